/*
 * Small operations that need nothing of an instruction set: iota, cumsum.
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

/* Lines are shared over the threads. Floats are summed in f64: rows may be as long as a vocabulary. */
static void run_cumsum(const KernelArgs *args)
{
    const cvn_type *type = op_out(args->op, 0);
    Lines l = type_lines(type, args->op->attr.axis);
    const bool is_float = dtype_is_float(type->dtype);
    int64_t begin, end;
    Wide x;
    kernel_share(l.outer * l.inner, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t first = line / l.inner * l.n * l.inner + line % l.inner, whole = 0;
        double real = 0;
        if (type->dtype ==
            CVN_F32) { /* as drawing a token has them: read and written in the time of the sum */
            for (int64_t at = first, i = 0; i < l.n; i++, at += l.inner)
                ((float *)args->out[0])[at] =
                    (float)(real += (double)((const float *)args->in[0])[at]);
            continue;
        }
        for (int64_t i = 0; i < l.n; i += WIDE) {
            int64_t n = num_min(l.n - i, WIDE), at = first + i * l.inner;
            wide_read(type->dtype, args->in[0], at, l.inner, n, &x);
            if (is_float)
                for (int64_t k = 0; k < n; k++)
                    x.real[k] = real += x.real[k];
            else
                for (int64_t k = 0; k < n; k++)
                    x.whole[k] = whole += x.whole[k];
            wide_write(type->dtype, args->out[0], at, l.inner, n, &x);
        }
    }
}

const Kernel small_kernels[] = {
    {.name = "iota", .kind = OP_IOTA, .match = is_number, .run = run_iota},
    {.name = "cumsum", .kind = OP_CUMSUM, .match = is_number, .run = run_cumsum, .in_place = 1},
    {0},
};
