/*
 * Tiles of whole numbers and bools as 32 bits: i32 and u32 where they lie, i8 and bools by way of a buffer, sign- or
 * zero-extended. Results keep the low bits.
 */
#ifndef CVN_CPU_KERNELS_WORDS_IMPL_H
#define CVN_CPU_KERNELS_WORDS_IMPL_H

#include "cpu/kernels/tile.h"
#include "graph/scalar.h"

static bool is_word(cvn_dtype dtype)
{
    return dtype == CVN_I32 || dtype == CVN_U32;
}

/* The dtypes that tiles of words can be made of. */
static bool word_dtype(cvn_dtype dtype)
{
    return is_word(dtype) || dtype == CVN_I8 || dtype == CVN_BOOL;
}

/* Elements [at, at + n): where they lie, or in the buffer. */
static const int32_t *words_read(cvn_dtype dtype, const void *data, int64_t at, int64_t n,
                                 int32_t *buffer)
{
    if (is_word(dtype))
        return (const int32_t *)data + at;
    if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            buffer[i] = ((const int8_t *)data)[at + i];
    else
        for (int64_t i = 0; i < n; i++)
            buffer[i] = ((const uint8_t *)data)[at + i] != 0;
    return buffer;
}

/* Where to compute elements from `at` on, for words_write. */
static int32_t *words_target(cvn_dtype dtype, void *data, int64_t at, int32_t *buffer)
{
    return is_word(dtype) ? (int32_t *)data + at : buffer;
}

/* The low bits; to bool, x != 0. */
static void words_write(cvn_dtype dtype, void *data, int64_t at, int64_t n, const int32_t *x)
{
    if (dtype == CVN_I8)
        for (int64_t i = 0; i < n; i++)
            ((int8_t *)data)[at + i] = (int8_t)(uint8_t)x[i];
    else if (dtype == CVN_BOOL)
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)data)[at + i] = x[i] != 0;
    else if (x != (int32_t *)data + at)
        memcpy((int32_t *)data + at, x, (size_t)n * sizeof *x);
}

static void words_unary(OpKind kind, cvn_dtype dtype, int32_t *y, const int32_t *x, int64_t n)
{
    const int32_t flip = dtype == CVN_BOOL ? 1 : -1;
    if (kind == OP_NOT)
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i] ^ flip;
    else if (dtype == CVN_U32) /* only its negative is another number */
        for (int64_t i = 0; i < n; i++)
            y[i] = (int32_t)scalar_unary_int(kind, (uint32_t)x[i]);
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = (int32_t)scalar_unary_int(kind, x[i]);
}

/* Amounts of the width or more, which a negative one is as well, shift everything out. */
static void words_shift(bool left, cvn_dtype dtype, int32_t *y, const int32_t *a, const int32_t *b,
                        int64_t n)
{
    const uint32_t width = (uint32_t)cvn_dtype_bits(dtype), mask = UINT32_MAX >> (32 - width);
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = (uint32_t)a[i] & mask, by = (uint32_t)b[i] & mask;
        uint32_t shifted = left ? x << (by & 31) : x >> (by & 31);
        y[i] = (int32_t)(by < width ? shifted : 0);
    }
}

static void words_binary(OpKind kind, cvn_dtype dtype, int32_t *y, const int32_t *a,
                         const int32_t *b, int64_t n)
{
#define LOOP(operator)                                                                             \
    for (int64_t i = 0; i < n; i++)                                                                \
        y[i] = (int32_t)((uint32_t)a[i] operator(uint32_t) b[i]);                                  \
    break
    switch (kind) {
    case OP_ADD:
        LOOP(+);
    case OP_SUBTRACT:
        LOOP(-);
    case OP_MULTIPLY:
        LOOP(*);
    case OP_AND:
        LOOP(&);
    case OP_OR:
        LOOP(|);
    case OP_XOR:
        LOOP(^);
    case OP_SHIFT_LEFT:
    case OP_SHIFT_RIGHT_LOGICAL:
        words_shift(kind == OP_SHIFT_LEFT, dtype, y, a, b, n);
        break;
    default: /* what has an order is done in 64 bits, where nothing overflows */
        for (int64_t i = 0; i < n && dtype == CVN_U32; i++)
            y[i] = (int32_t)scalar_binary_int(kind, (uint32_t)a[i], (uint32_t)b[i]);
        for (int64_t i = 0; i < n && dtype != CVN_U32; i++)
            y[i] = (int32_t)scalar_binary_int(kind, a[i], b[i]);
        break;
    }
#undef LOOP
}

#endif
