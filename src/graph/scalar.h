/*
 * What elementwise operations do with one element: floats in f64, whole numbers in 64 bits, of which the store keeps the low
 * ones. The interpreter is made of these, and so are kernels for what vectors of floats do not hold.
 */
#ifndef CVN_GRAPH_SCALAR_H
#define CVN_GRAPH_SCALAR_H

#include "graph/reduce.h"

#include <assert.h>

static inline double scalar_unary(OpKind kind, double x)
{
    switch (kind) {
    case OP_NEGATE:
        return -x;
    case OP_ABS:
        return fabs(x);
    case OP_SIGN: /* a zero keeps its sign, a NaN stays one */
        return x > 0 ? 1 : x < 0 ? -1 : x;
    case OP_EXPONENTIAL:
        return exp(x);
    case OP_EXPONENTIAL_MINUS_ONE:
        return expm1(x);
    case OP_LOG:
        return log(x);
    case OP_LOG_PLUS_ONE:
        return log1p(x);
    case OP_SQRT:
        return sqrt(x);
    case OP_RSQRT:
        return 1 / sqrt(x);
    case OP_TANH:
        return tanh(x);
    case OP_LOGISTIC:
        return 1 / (1 + exp(-x));
    case OP_SINE:
        return sin(x);
    case OP_COSINE:
        return cos(x);
    case OP_FLOOR:
        return floor(x);
    case OP_IS_FINITE:
        return isfinite(x) != 0;
    default:
        assert(!"an operation without a meaning");
        return x;
    }
}

/* The least integer is its own negative, and its own absolute value. */
static inline int64_t scalar_unary_int(OpKind kind, int64_t x)
{
    switch (kind) {
    case OP_NEGATE:
        return -x;
    case OP_ABS:
        return x < 0 ? -x : x;
    case OP_SIGN:
        return (x > 0) - (x < 0);
    default:
        assert(!"an operation without a meaning");
        return x;
    }
}

static inline double scalar_binary(OpKind kind, double a, double b)
{
    switch (kind) {
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_MULTIPLY:
        return a * b;
    case OP_DIVIDE:
        return a / b;
    case OP_MAXIMUM:
        return reduce_max(a, b);
    case OP_MINIMUM:
        return reduce_min(a, b);
    case OP_POWER:
        return pow(a, b);
    case OP_REMAINDER:
        return fmod(a, b);
    default:
        assert(!"an operation without a meaning");
        return a;
    }
}

/* Operands have at most 32 bits, so nothing overflows 64. */
static inline int64_t scalar_binary_int(OpKind kind, int64_t a, int64_t b)
{
    switch (kind) {
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_MULTIPLY:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_DIVIDE:
        return b == 0 ? -1 : a / b;
    case OP_MAXIMUM:
        return a > b ? a : b;
    case OP_MINIMUM:
        return a < b ? a : b;
    case OP_REMAINDER:
        return b == 0 ? a : a % b;
    default:
        assert(!"an operation without a meaning");
        return a;
    }
}

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
