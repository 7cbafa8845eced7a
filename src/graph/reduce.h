/*
 * What a reduction does with two elements: floats in f64, integers and
 * bools in wrapping 64-bit arithmetic; and what it begins with. The
 * interpreter's reductions, its maximum and minimum, sums over devices
 * and what passes know of reductions are all made of these.
 */
#ifndef CVN_GRAPH_REDUCE_H
#define CVN_GRAPH_REDUCE_H

#include "graph/graph.h"

#include <math.h>

/* The larger and the smaller of two floats: a NaN wins, and -0 is below +0. */
static inline double reduce_max(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? b : a;
    return a > b ? a : b;
}

static inline double reduce_min(double a, double b)
{
    if (isnan(a) || isnan(b))
        return NAN;
    if (a == b)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

/* The least number that a dtype holds, and the greatest. */
static inline double dtype_least(cvn_dtype dtype)
{
    if (dtype_is_float(dtype))
        return -INFINITY;
    bool is_signed = dtype == CVN_I32 || dtype == CVN_I8 || dtype == CVN_I4;
    return is_signed ? -ldexp(1, cvn_dtype_bits(dtype) - 1) : 0;
}

static inline double dtype_greatest(cvn_dtype dtype)
{
    if (dtype == CVN_BOOL)
        return 1;
    return dtype_is_float(dtype) ? INFINITY
                                 : dtype_least(dtype) + ldexp(1, cvn_dtype_bits(dtype)) - 1;
}

/* A row per reduction: what it begins with, and what it makes of two floats, and of two words in two's complement. Combined
   with x, what it begins with gives x; but a sum, which begins with +0, gives +0 of -0. */
#define REDUCTIONS(ROW)                                                                            \
    ROW(SUM, 0, a + b, a + b)                                                                      \
    ROW(PRODUCT, 1, (a * b), (a * b))                                                              \
    ROW(MAX, dtype_least(dtype), reduce_max(a, b), (int64_t)a > (int64_t)b ? a : b)                \
    ROW(MIN, dtype_greatest(dtype), reduce_min(a, b), (int64_t)a < (int64_t)b ? a : b)             \
    ROW(ALL, 1, a, (a & b))                                                                        \
    ROW(ANY, 0, a, a | b)

static inline double reduce_neutral(cvn_reduce kind, cvn_dtype dtype)
{
    switch (kind) {
#define ROW(name, neutral, floats, words)                                                          \
    case CVN_##name:                                                                               \
        return neutral;
        REDUCTIONS(ROW)
#undef ROW
    }
    return 0;
}

static inline double reduce_floats(cvn_reduce kind, double a, double b)
{
    switch (kind) {
#define ROW(name, neutral, floats, words)                                                          \
    case CVN_##name:                                                                               \
        return floats;
        REDUCTIONS(ROW)
#undef ROW
    }
    return a;
}

static inline uint64_t reduce_integers(cvn_reduce kind, uint64_t a, uint64_t b)
{
    switch (kind) {
#define ROW(name, neutral, floats, words)                                                          \
    case CVN_##name:                                                                               \
        return words;
        REDUCTIONS(ROW)
#undef ROW
    }
    return a;
}

#endif
