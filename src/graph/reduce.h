/*
 * What a reduction does with two elements: floats in f64, integers and
 * bools in wrapping 64-bit arithmetic. The interpreter's reductions,
 * its maximum and minimum, and sums over devices are all made of these.
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
