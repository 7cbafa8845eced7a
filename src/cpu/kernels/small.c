/*
 * Small operations that need nothing of an instruction set: iota, cumsum, cumprod.
 */
#include "base/num.h"
#include "cpu/kernels/kernels.h"
#include "graph/strides.h"
#include "graph/wide.h"

static bool is_number(const Op *op)
{
    return wide_dtype(op_out(op, 0)->dtype);
}

/* Elements run over lines: `inner` of 0, as many of 1, … */
static void run_iota(const KernelArgs *args)
{
    const cvn_type *type = op_out(args->op, 0);
    Lines l = type_lines(type, args->op->attr.axis);
    const bool is_float = dtype_is_float(type->dtype), across = l.inner == 1;
    int64_t begin, end;
    Wide values;
    kernel_share(cvn_type_elements(type), 64, args->thread, args->n_threads, &begin, &end);
    for (int64_t at = begin, n; at < end; at += n) {
        int64_t value = at / l.inner % l.n;
        n = num_min(num_min(end - at, WIDE), across ? l.n - value : l.inner - at % l.inner);
        if (is_float)
            for (int64_t i = 0; i < n; i++)
                values.real[i] = (double)(across ? value + i : value);
        else
            for (int64_t i = 0; i < n; i++)
                values.whole[i] = across ? value + i : value;
        wide_write(type->dtype, args->out[0], at, 1, n, &values);
    }
}

/* The sums, or the products, along one line, whose first element is at `at`. Whole numbers wrap. */
static void run_line(const KernelArgs *args, const Lines *l, int64_t at, bool product)
{
    const cvn_dtype dtype = op_out(args->op, 0)->dtype;
    double real = product;
    uint64_t whole = product;
    Wide x;
    for (int64_t i = 0, n; i < l->n; i += n, at += n * l->inner) {
        n = num_min(l->n - i, WIDE);
        wide_read(dtype, args->in[0], at, l->inner, n, &x);
        for (int64_t k = 0; k < n && dtype_is_float(dtype); k++)
            x.real[k] = real = product ? real * x.real[k] : real + x.real[k];
        for (int64_t k = 0; k < n && !dtype_is_float(dtype); k++) {
            whole = product ? whole * (uint64_t)x.whole[k] : whole + (uint64_t)x.whole[k];
            x.whole[k] = (int64_t)whole;
        }
        wide_write(dtype, args->out[0], at, l->inner, n, &x);
    }
}

/* Lines are shared over the threads. Floats are computed in f64: rows may be as long as a vocabulary. */
static void run_running(const KernelArgs *args)
{
    const cvn_type *type = op_out(args->op, 0);
    const Lines l = type_lines(type, args->op->attr.axis);
    const bool product = args->op->kind == OP_CUMPROD;
    int64_t begin, end;
    kernel_share(l.outer * l.inner, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t at = line / l.inner * l.n * l.inner + line % l.inner;
        if (type->dtype != CVN_F32 || product) {
            run_line(args, &l, at, product);
            continue;
        }
        double sum = 0; /* as drawing a token has them: read and written in the time of the sum */
        for (int64_t i = 0; i < l.n; i++, at += l.inner)
            ((float *)args->out[0])[at] = (float)(sum += (double)((const float *)args->in[0])[at]);
    }
}

const Kernel small_kernels[] = {
    {.name = "iota", .kind = OP_IOTA, .match = is_number, .run = run_iota},
    {.name = "cumsum", .kind = OP_CUMSUM, .match = is_number, .run = run_running, .in_place = 1},
    {.name = "cumprod", .kind = OP_CUMPROD, .match = is_number, .run = run_running, .in_place = 1},
    {0},
};
