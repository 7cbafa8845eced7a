/* What stands around a product in models, as operations: kernels of products do it in one go (compile/fused.h). */
#ifndef CVN_TESTS_LINEAR_AROUND_H
#define CVN_TESTS_LINEAR_AROUND_H

#include "graph/graph.h"

/* y [rows, n] plus a bias [n] of any float type. */
static inline cvn_value *around_bias(cvn_graph *g, cvn_value *y, cvn_value *bias)
{
    const int last = y->type.rank - 1;
    if (bias->type.dtype != CVN_F32)
        bias = cvn_convert(g, bias, CVN_F32);
    return cvn_add(g, y, cvn_broadcast_in_dim(g, bias, y->type, &last));
}

static inline cvn_value *around_swiglu(cvn_graph *g, cvn_value *gate, cvn_value *up)
{
    return cvn_multiply(g, cvn_multiply(g, gate, cvn_logistic(g, gate)), up);
}

static inline cvn_value *around_rounded(cvn_graph *g, cvn_value *y, cvn_dtype dtype)
{
    return y->type.dtype == dtype ? y : cvn_convert(g, y, dtype);
}

/* Rows of x, normalised, as a product with such weights takes them. */
static inline cvn_value *around_norm(cvn_graph *g, cvn_value *x, cvn_value *norm, cvn_dtype weights)
{
    return cvn_rms_norm(g, x, norm, 1e-5, weights == CVN_F32 ? CVN_F32 : CVN_BF16);
}

#endif
