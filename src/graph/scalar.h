/*
 * What elementwise operations do with one element: floats in f64, whole numbers in 64 bits, of which the store keeps the low
 * ones. The interpreter is made of these, and so are kernels for what vectors of floats do not hold.
 */
#ifndef CVN_GRAPH_SCALAR_H
#define CVN_GRAPH_SCALAR_H

#include "graph/reduce.h"

#include <assert.h>

#define CASE(kind, value)                                                                          \
    case OP_##kind:                                                                                \
        return value

static inline double scalar_unary(OpKind kind, double x)
{
    switch (kind) {
        CASE(NEGATE, -x);
        CASE(ABS, fabs(x));
        CASE(SIGN, x > 0 ? 1 : x < 0 ? -1 : x); /* a zero keeps its sign, a NaN stays one */
        CASE(EXPONENTIAL, exp(x));
        CASE(EXPONENTIAL_MINUS_ONE, expm1(x));
        CASE(LOG, log(x));
        CASE(LOG_PLUS_ONE, log1p(x));
        CASE(SQRT, sqrt(x));
        CASE(RSQRT, 1 / sqrt(x));
        CASE(TANH, tanh(x));
        CASE(LOGISTIC, 1 / (1 + exp(-x)));
        CASE(SINE, sin(x));
        CASE(COSINE, cos(x));
        CASE(FLOOR, floor(x));
        CASE(IS_FINITE, isfinite(x) != 0);
    default:
        assert(!"an operation without a meaning");
        return x;
    }
}

/* The least integer is its own negative, and its own absolute value. */
static inline int64_t scalar_unary_int(OpKind kind, int64_t x)
{
    switch (kind) {
        CASE(NEGATE, -x);
        CASE(ABS, x < 0 ? -x : x);
        CASE(SIGN, (x > 0) - (x < 0));
    default:
        assert(!"an operation without a meaning");
        return x;
    }
}

static inline double scalar_binary(OpKind kind, double a, double b)
{
    switch (kind) {
        CASE(ADD, a + b);
        CASE(SUBTRACT, a - b);
        CASE(MULTIPLY, a * b);
        CASE(DIVIDE, a / b);
        CASE(MAXIMUM, reduce_max(a, b));
        CASE(MINIMUM, reduce_min(a, b));
        CASE(POWER, pow(a, b));
        CASE(REMAINDER, fmod(a, b));
    default:
        assert(!"an operation without a meaning");
        return a;
    }
}

/* Operands have at most 32 bits, so nothing overflows 64. */
static inline int64_t scalar_binary_int(OpKind kind, int64_t a, int64_t b)
{
    switch (kind) {
        CASE(ADD, a + b);
        CASE(SUBTRACT, a - b);
        CASE(MULTIPLY, (int64_t)((uint64_t)a * (uint64_t)b));
        CASE(DIVIDE, b == 0 ? -1 : a / b);
        CASE(MAXIMUM, a > b ? a : b);
        CASE(MINIMUM, a < b ? a : b);
        CASE(REMAINDER, b == 0 ? a : a % b);
    default:
        assert(!"an operation without a meaning");
        return a;
    }
}
#undef CASE

static inline bool scalar_compare(cvn_compare direction, double a, double b)
{
    switch (direction) {
    case CVN_EQ:
        return a == b;
    case CVN_NE:
        return a != b;
    case CVN_LT:
        return a < b;
    case CVN_LE:
        return a <= b;
    case CVN_GT:
        return a > b;
    case CVN_GE:
        return a >= b;
    }
    return false;
}

#endif
