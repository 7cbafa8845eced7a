/*
 * Short runs of elements of any dtype of a byte or more, as wide as the interpreter computes: floats as f64, whole numbers and
 * bools in 64 bits. For reductions over devices, and for kernels of what is too rare to have a loop for each dtype.
 */
#ifndef CVN_GRAPH_WIDE_H
#define CVN_GRAPH_WIDE_H

#include "base/float16.h"
#include "graph/reduce.h"

enum { WIDE = 256 }; /* elements */

typedef union Wide {
    double real[WIDE];   /* where the dtype is a float */
    int64_t whole[WIDE]; /* elsewhere; sums wrap, and the store keeps the low bits */
} Wide;

static inline __attribute__((unused)) bool wide_dtype(cvn_dtype dtype)
{
    return cvn_dtype_bits(dtype) >= 8;
}

/* n <= WIDE elements, at, at + step, … */
static inline __attribute__((unused)) void wide_read(cvn_dtype dtype, const void *data, int64_t at,
                                                     int64_t step, int64_t n, Wide *out)
{
#define READ_BY(step_, type, to, ...)                                                              \
    for (int64_t i = 0; i < n; i++) {                                                              \
        const type x = ((const type *)data)[at + i * (step_)];                                     \
        out->to[i] = __VA_ARGS__;                                                                  \
    }
#define READ(...)                                                                                  \
    if (step == 1)                                                                                 \
        READ_BY(1, __VA_ARGS__)                                                                    \
    else                                                                                           \
        READ_BY(step, __VA_ARGS__)                                                                 \
    break
    switch (dtype) {
    case CVN_F64:
        READ(double, real, x);
    case CVN_F32:
        READ(float, real, (double)x);
    case CVN_BF16:
        READ(uint16_t, real, (double)bf16_to_f32(x));
    case CVN_F16:
        READ(uint16_t, real, (double)f16_to_f32(x));
    case CVN_I32:
        READ(int32_t, whole, x);
    case CVN_U32:
        READ(uint32_t, whole, x);
    case CVN_I8:
        READ(int8_t, whole, x);
    default:
        READ(uint8_t, whole, x != 0);
    }
#undef READ
#undef READ_BY
}

/* 16-bit floats are rounded by way of f32, as elements are everywhere. */
static inline __attribute__((unused)) void wide_write(cvn_dtype dtype, void *data, int64_t at,
                                                      int64_t step, int64_t n, const Wide *x)
{
#define WRITE_BY(step_, type, ...)                                                                 \
    for (int64_t i = 0; i < n; i++)                                                                \
        ((type *)data)[at + i * (step_)] = __VA_ARGS__;
#define WRITE(...)                                                                                 \
    if (step == 1)                                                                                 \
        WRITE_BY(1, __VA_ARGS__)                                                                   \
    else                                                                                           \
        WRITE_BY(step, __VA_ARGS__)                                                                \
    break
    switch (dtype) {
    case CVN_F64:
        WRITE(double, x->real[i]);
    case CVN_F32:
        WRITE(float, (float)x->real[i]);
    case CVN_BF16:
        WRITE(uint16_t, bf16_from_f32((float)x->real[i]));
    case CVN_F16:
        WRITE(uint16_t, f16_from_f32((float)x->real[i]));
    case CVN_I32:
    case CVN_U32:
        WRITE(uint32_t, (uint32_t)x->whole[i]);
    case CVN_I8:
        WRITE(uint8_t, (uint8_t)x->whole[i]);
    default:
        WRITE(uint8_t, x->whole[i] != 0);
    }
#undef WRITE
#undef WRITE_BY
}

static inline __attribute__((unused)) void wide_fill(cvn_dtype dtype, double value, int64_t n,
                                                     Wide *out)
{
    for (int64_t i = 0; i < n; i++)
        if (dtype_is_float(dtype))
            out->real[i] = value;
        else
            out->whole[i] = (int64_t)value;
}

/* to[first + i * step], step 0 or 1, gets x[i], too: all of them one after the other where it is 0. */
static inline __attribute__((unused)) void wide_reduce(cvn_reduce kind, cvn_dtype dtype, Wide *to,
                                                       int64_t first, int64_t step, const Wide *x,
                                                       int64_t n)
{
    const bool sums = kind == CVN_SUM; /* compilers make a loop of its own of it */
    double *real = to->real + first, one = *real;
    uint64_t *whole = (uint64_t *)to->whole + first, bits = *whole;
    const uint64_t *y = (const uint64_t *)x->whole;
    if (dtype_is_float(dtype) && step == 0) {
        for (int64_t i = 0; i < n; i++)
            one = sums ? one + x->real[i] : reduce_floats(kind, one, x->real[i]);
        *real = one;
    } else if (step == 0) {
        for (int64_t i = 0; i < n; i++)
            bits = sums ? bits + y[i] : reduce_integers(kind, bits, y[i]);
        *whole = bits;
    } else if (dtype_is_float(dtype)) {
        for (int64_t i = 0; i < n; i++)
            real[i] = sums ? real[i] + x->real[i] : reduce_floats(kind, real[i], x->real[i]);
    } else {
        for (int64_t i = 0; i < n; i++)
            whole[i] = sums ? whole[i] + y[i] : reduce_integers(kind, whole[i], y[i]);
    }
}

#endif
