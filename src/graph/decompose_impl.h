/* Shared by the files of decompositions. */
#ifndef CVN_GRAPH_DECOMPOSE_IMPL_H
#define CVN_GRAPH_DECOMPOSE_IMPL_H

#include "graph/record.h"
#include "graph/steps.h"

#include <math.h>

/* The dtype that sums and exponentials of this data are computed in. */
static inline cvn_dtype wide(cvn_dtype dtype)
{
    return dtype == CVN_F64 ? CVN_F64 : CVN_F32;
}

/* x [..., d] * rsqrt(mean(x^2) + eps), x being of a wide dtype; *scale is what it is multiplied by, of x's shape. */
static inline cvn_value *normalise(cvn_graph *g, cvn_value *x, double eps, cvn_value **scale)
{
    int last = x->type.rank - 1;
    cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1, &last);
    cvn_value *mean = cvn_divide(g, sum, like(g, sum, (double)x->type.dim[last]));
    cvn_value *step = cvn_rsqrt(g, cvn_add(g, mean, like(g, mean, eps)));
    *scale = spread_over(g, step, &x->type, last);
    return cvn_multiply(g, x, *scale);
}

/* The same times weight [d], of any x. */
static inline cvn_value *decompose_norm(cvn_graph *g, cvn_value *x, cvn_value *weight, double eps)
{
    cvn_dtype math = wide(x->type.dtype);
    int last = x->type.rank - 1;
    cvn_value *scale, *normed = normalise(g, as(g, x, math), eps, &scale);
    return cvn_multiply(g, normed, spread(g, as(g, weight, math), &normed->type, &last));
}

/* The numbers of a weight in blocks, f32 [rows, blocks, groups, columns of a group]; refused of some kinds, and in panels. */
cvn_value *decompose_blocks(cvn_graph *g, cvn_value *w, BlockKind kind, bool panels);

/* The least index of the largest element along an axis. */
cvn_value *decompose_index_of_max(cvn_graph *g, cvn_value *x, int axis);

static inline cvn_value *count_along(cvn_graph *g, const cvn_type *shape, int axis)
{
    return cvn_iota(g, with_dtype(*shape, CVN_I32), axis);
}

/* Whether a target [...] is in the vocabulary. */
static inline cvn_value *is_known(cvn_graph *g, cvn_value *target, int64_t vocab)
{
    cvn_value *low = cvn_compare_values(g, CVN_GE, target, like(g, target, 0));
    return cvn_and(g, low, cvn_compare_values(g, CVN_LT, target, like(g, target, (double)vocab)));
}

/* The parts of a softmax along the last dimension: peak m, the largest element, taken out so that nothing overflows;
   power exp(x - m); and the sum of that. Where all elements are -inf, or one is +inf, m is taken as 0, which keeps
   -inf - -inf from making NaN. `other`, or NULL, is one more element, whose power stands alone. */
typedef struct Softmax {
    cvn_value *peak, *power, *sum; /* [...], [..., n], [...] */
    cvn_value *other;              /* [...]; NULL: there is none */
} Softmax;

static inline Softmax softmax_parts(cvn_graph *g, cvn_value *x, cvn_value *other)
{
    Softmax s = {0};
    int last = x->type.rank - 1;
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, x, 1, &last);
    if (other)
        most = cvn_maximum(g, most, other);
    cvn_value *finite = cvn_is_finite(g, most);
    s.peak = cvn_select(g, finite, most, like(g, most, 0));
    cvn_value *shifted = cvn_subtract(g, x, spread_over(g, s.peak, &x->type, last));
    s.power = cvn_exponential(g, shifted);
    s.sum = cvn_reduce_dims(g, CVN_SUM, s.power, 1, &last);
    if (other) {
        s.other = cvn_exponential(g, cvn_subtract(g, other, s.peak));
        s.sum = cvn_add(g, s.sum, s.other);
    }
    return s;
}

#endif
