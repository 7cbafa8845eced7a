/* Shared by the files of decompositions: the small steps that they are written in. */
#ifndef CVN_GRAPH_DECOMPOSE_IMPL_H
#define CVN_GRAPH_DECOMPOSE_IMPL_H

#include "graph/graph.h"

#include <math.h>

/* Builds what op stands for; out[i] takes the place of result i. */
typedef void DecomposeFn(cvn_graph *g, const Op *op, cvn_value **out);

DecomposeFn decompose_dequantize, decompose_quantize_rows, decompose_linear_int8, decompose_linear;
DecomposeFn decompose_rms_norm_backward, decompose_attention_backward,
    decompose_softmax_cross_entropy_backward;

/* The dtype that sums and exponentials of this data are computed in. */
static inline cvn_dtype wide(cvn_dtype dtype)
{
    return dtype == CVN_F64 ? CVN_F64 : CVN_F32;
}

static inline cvn_value *as(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    return x->type.dtype == dtype ? x : cvn_convert(g, x, dtype);
}

static inline cvn_type with_dtype(cvn_type type, cvn_dtype dtype)
{
    type.dtype = dtype;
    return type;
}

/* A splat of x's type. */
static inline cvn_value *like(cvn_graph *g, const cvn_value *x, double value)
{
    return cvn_splat(g, x->type, value);
}

/* Puts dimension i of x at dims[i] of a tensor of this shape, in x's own dtype. */
static inline cvn_value *spread(cvn_graph *g, cvn_value *x, const cvn_type *shape, const int *dims)
{
    return cvn_broadcast_in_dim(g, x, with_dtype(*shape, x->type.dtype), dims);
}

/* Undoes a reduction over one dimension: puts x back under `shape`, repeated along `axis`. */
static inline cvn_value *spread_over(cvn_graph *g, cvn_value *x, const cvn_type *shape, int axis)
{
    int dims[CVN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        dims[i] = i < axis ? i : i + 1;
    return spread(g, x, shape, dims);
}

/* x [..., d] * rsqrt(mean(x^2) + eps) * weight [d], in the wide dtype. */
static inline cvn_value *decompose_norm(cvn_graph *g, cvn_value *x, cvn_value *weight, double eps)
{
    cvn_dtype math = wide(x->type.dtype);
    x = as(g, x, math);
    int last = x->type.rank - 1;
    cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1, &last);
    cvn_value *mean = cvn_divide(g, sum, like(g, sum, (double)x->type.dim[last]));
    cvn_value *scale = cvn_rsqrt(g, cvn_add(g, mean, like(g, mean, eps)));
    cvn_value *normed = cvn_multiply(g, x, spread_over(g, scale, &x->type, last));
    return cvn_multiply(g, normed, spread(g, as(g, weight, math), &x->type, &last));
}

static inline cvn_value *count_along(cvn_graph *g, const cvn_type *shape, int axis)
{
    return cvn_iota(g, with_dtype(*shape, CVN_I32), axis);
}

/* sum of exp(x - m) along the last dimension, with m the largest element, so that nothing
   overflows: fills the exponentials and returns m; both sum and m are without that dimension. Where
   all elements are -inf, or one is +inf, m is taken
   as 0, which keeps -inf - -inf from making NaN. */
typedef struct Softmax {
    cvn_value *peak, *power, *sum; /* [...], [..., n], [...] */
} Softmax;

static inline Softmax softmax_parts(cvn_graph *g, cvn_value *x)
{
    Softmax s;
    int last = x->type.rank - 1;
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, x, 1, &last);
    s.peak = cvn_select(g, cvn_is_finite(g, most), most, like(g, most, 0));
    cvn_value *shifted = cvn_subtract(g, x, spread_over(g, s.peak, &x->type, last));
    s.power = cvn_exponential(g, shifted);
    s.sum = cvn_reduce_dims(g, CVN_SUM, s.power, 1, &last);
    return s;
}

/* Which keys a query of attention sees, bool [batch, seq, context],
   the shape of `plane`: those from `first` [batch, seq] (or NULL for
   0) to the query's position, which counts on from start [batch]. */
static inline cvn_value *seen_keys(cvn_graph *g, const cvn_type *plane, cvn_value *start,
                                   cvn_value *first)
{
    cvn_value *key = count_along(g, plane, 2);
    cvn_value *query =
        cvn_add(g, count_along(g, plane, 1), spread(g, start, plane, (const int[]){0}));
    cvn_value *seen = cvn_compare_values(g, CVN_LE, key, query);
    if (!first)
        return seen;
    first = spread(g, first, plane, (const int[]){0, 1});
    return cvn_and(g, seen, cvn_compare_values(g, CVN_GE, key, first));
}

/* v [batch, kv_heads, context, head_dim] with 0 for the keys that no query of the row sees. Their
   weight is 0, but memory that was never written may hold anything, and 0 * NaN is NaN. */
static inline cvn_value *visible_values(cvn_graph *g, cvn_value *v, cvn_value *start, int64_t seq)
{
    cvn_type keys = CVN_TYPE(CVN_I32, v->type.dim[0], v->type.dim[2]); /* [batch, context] */
    cvn_value *end = cvn_add(g, start, like(g, start, (double)(seq - 1)));
    cvn_value *seen = cvn_compare_values(g, CVN_LE, count_along(g, &keys, 1),
                                         spread(g, end, &keys, (const int[]){0}));
    return cvn_select(g, spread(g, seen, &v->type, (const int[]){0, 2}), v, like(g, v, 0));
}

#endif
