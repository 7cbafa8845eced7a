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

/* What a reduction begins with: combined with x it gives x; but a sum, which begins with +0, gives +0 of -0. */
static inline double reduce_neutral(cvn_reduce kind, cvn_dtype dtype)
{
    switch (kind) {
    case CVN_SUM:
    case CVN_ANY:
        return 0;
    case CVN_PRODUCT:
    case CVN_ALL:
        return 1;
    case CVN_MAX:
        return dtype_least(dtype);
    case CVN_MIN:
        return dtype_greatest(dtype);
    }
    return 0;
}

static inline double reduce_floats(cvn_reduce kind, double a, double b)
{
    switch (kind) {
    case CVN_SUM:
        return a + b;
    case CVN_PRODUCT:
        return a * b;
    case CVN_MAX:
        return reduce_max(a, b);
    case CVN_MIN:
        return reduce_min(a, b);
    case CVN_ALL: /* of bools only */
    case CVN_ANY:
        break;
    }
    return a;
}

/* In two's complement. */
static inline uint64_t reduce_integers(cvn_reduce kind, uint64_t a, uint64_t b)
{
    switch (kind) {
    case CVN_SUM:
        return a + b;
    case CVN_PRODUCT:
        return a * b;
    case CVN_MAX:
        return (int64_t)a > (int64_t)b ? a : b;
    case CVN_MIN:
        return (int64_t)a < (int64_t)b ? a : b;
    case CVN_ALL:
        return a & b;
    case CVN_ANY:
        return a | b;
    }
    return a;
}

#endif
