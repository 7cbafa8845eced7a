/*
 * Small operations that need nothing of an instruction set: iota, cumsum.
 */
#include "base/float16.h"
#include "cpu/kernels/kernels.h"

/* A tensor as [outer, n, inner] around one dimension. */
typedef struct Lines {
    int64_t outer, n, inner;
} Lines;

static Lines lines_of(const cvn_type *type, int64_t axis)
{
    Lines l = {1, type->dim[axis], 1};
    for (int i = 0; i < type->rank; i++) {
        if (i < axis)
            l.outer *= type->dim[i];
        else if (i > axis)
            l.inner *= type->dim[i];
    }
    return l;
}

static bool is_number(const Op *op)
{
    cvn_dtype dtype = op_out(op, 0)->dtype;
    return dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16 || dtype == CVN_I32 ||
           dtype == CVN_U32;
}

/* Elements [begin, end) of 0, 1, 2, … */
static void count_up(cvn_dtype dtype, void *out, int64_t begin, int64_t end)
{
    if (dtype == CVN_F32)
        for (int64_t i = begin; i < end; i++)
            ((float *)out)[i] = (float)i;
    else
        for (int64_t i = begin; i < end; i++)
            ((int32_t *)out)[i] = (int32_t)i;
}

static void run_iota(const KernelArgs *args)
{
    const cvn_type *type = op_out(args->op, 0);
    Lines l = lines_of(type, args->op->attr.axis);
    int64_t begin, end;
    kernel_share(l.outer * l.n, 64, args->thread, args->n_threads, &begin, &end);
    if (type->dtype != CVN_BF16 && type->dtype != CVN_F16 && l.outer == 1 && l.inner == 1) {
        count_up(type->dtype, args->out[0], begin, end);
        return;
    }
    for (int64_t line = begin; line < end; line++) {
        int64_t value = line % l.n, at = line * l.inner;
        if (type->dtype == CVN_F32)
            for (int64_t i = 0; i < l.inner; i++)
                ((float *)args->out[0])[at + i] = (float)value;
        else if (type->dtype == CVN_BF16)
            for (int64_t i = 0; i < l.inner; i++)
                ((uint16_t *)args->out[0])[at + i] = bf16_from_f32((float)value);
        else if (type->dtype == CVN_F16)
            for (int64_t i = 0; i < l.inner; i++)
                ((uint16_t *)args->out[0])[at + i] = f16_from_f32((float)value);
        else
            for (int64_t i = 0; i < l.inner; i++)
                ((int32_t *)args->out[0])[at + i] = (int32_t)value;
    }
}

static float read_float(cvn_dtype dtype, const void *data, int64_t i)
{
    return dtype == CVN_F32    ? ((const float *)data)[i]
           : dtype == CVN_BF16 ? bf16_to_f32(((const uint16_t *)data)[i])
                               : f16_to_f32(((const uint16_t *)data)[i]);
}

static void write_float(cvn_dtype dtype, void *data, int64_t i, float value)
{
    if (dtype == CVN_F32)
        ((float *)data)[i] = value;
    else
        ((uint16_t *)data)[i] = dtype == CVN_BF16 ? bf16_from_f32(value) : f16_from_f32(value);
}

/* Lines are shared over the threads. Floats are summed in f64: rows may be as long as a vocabulary. */
static void run_cumsum(const KernelArgs *args)
{
    const cvn_type *type = op_out(args->op, 0);
    Lines l = lines_of(type, args->op->attr.axis);
    bool is_float = type->dtype != CVN_I32 && type->dtype != CVN_U32;
    int64_t begin, end;
    kernel_share(l.outer * l.inner, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t line = begin; line < end; line++) {
        int64_t at = line / l.inner * l.n * l.inner + line % l.inner;
        double sum = 0;
        uint32_t words = 0;
        for (int64_t i = 0; i < l.n; i++, at += l.inner) {
            if (is_float) {
                sum += (double)read_float(type->dtype, args->in[0], at);
                write_float(type->dtype, args->out[0], at, (float)sum);
            } else {
                words += ((const uint32_t *)args->in[0])[at];
                ((uint32_t *)args->out[0])[at] = words;
            }
        }
    }
}

const Kernel small_kernels[] = {
    {.name = "iota", .kind = OP_IOTA, .match = is_number, .run = run_iota},
    {.name = "cumsum", .kind = OP_CUMSUM, .match = is_number, .run = run_cumsum, .in_place = 1},
    {0},
};
