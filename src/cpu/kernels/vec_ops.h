/* What elementwise operations on floats do to a vector: the same for an operation alone and in a tile program. */
#ifndef CVN_CPU_KERNELS_VEC_OPS_H
#define CVN_CPU_KERNELS_VEC_OPS_H

#include "cpu/kernels/vec_math.h"
#include "graph/graph.h"

VEC_INLINE vf unary_vector(OpKind kind, vf x)
{
    switch (kind) {
    case OP_NEGATE:
        return (vf)((vi)x ^ INT32_MIN);
    case OP_ABS:
        return vf_abs(x);
    case OP_SIGN:
        return vf_select(x > 0.0f, vf_splat(1), vf_select(x < 0.0f, vf_splat(-1), x));
    case OP_EXPONENTIAL:
        return vf_exp(x);
    case OP_LOG:
        return vf_log(x);
    case OP_SQRT:
        return vf_sqrt(x);
    case OP_RSQRT:
        return 1.0f / vf_sqrt(x);
    case OP_TANH:
        return vf_tanh(x);
    case OP_LOGISTIC:
        return vf_logistic(x);
    default:
        return x;
    }
}

/* NaN wins; of two zeros +0 is the larger. */
VEC_INLINE vf maximum(vf a, vf b)
{
    vf greater = vf_select(a > b, a, vf_select(a == b, (vf)((vi)a & (vi)b), b));
    return vf_select(a != a, a, greater);
}

VEC_INLINE vf minimum(vf a, vf b)
{
    vf less = vf_select(a < b, a, vf_select(a == b, (vf)((vi)a | (vi)b), b));
    return vf_select(a != a, a, less);
}

VEC_INLINE vf binary_vector(OpKind kind, vf a, vf b)
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
        return maximum(a, b);
    default:
        return minimum(a, b);
    }
}

#endif
