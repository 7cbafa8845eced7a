/* Decompositions of the gradients of composites; the formulas are in caravan/graph.h. */
#include "graph/attention.h"
#include "graph/decompose_impl.h"

/* dx = r (dn - n mean(dn n)), dweight = sum over rows of dy n. */
void decompose_rms_norm_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_dtype math = wide(op->operand[0]->type.dtype);
    cvn_value *x = as(g, op->operand[0], math);      /* [..., d] */
    cvn_value *weight = as(g, op->operand[1], math); /* [d] */
    cvn_value *dy = as(g, op->operand[2], math);     /* [..., d] */
    int last = x->type.rank - 1, rows[CVN_MAX_RANK] = {0};
    for (int i = 0; i < last; i++)
        rows[i] = i;

    cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1, &last);
    cvn_value *d = like(g, sum, (double)x->type.dim[last]);
    cvn_value *mean = cvn_divide(g, sum, d);
    cvn_value *scale = cvn_rsqrt(g, cvn_add(g, mean, like(g, mean, op->attr.eps)));
    scale = spread_over(g, scale, &x->type, last);
    cvn_value *normed = cvn_multiply(g, x, scale);
    cvn_value *dnormed = cvn_multiply(g, dy, spread(g, weight, &x->type, &last));
    cvn_value *along = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, dnormed, normed), 1, &last);
    along = spread_over(g, cvn_divide(g, along, d), &x->type, last);
    cvn_value *across = cvn_subtract(g, dnormed, cvn_multiply(g, normed, along));
    out[0] = as(g, cvn_multiply(g, scale, across), op->result[0]->type.dtype);
    cvn_value *dweight = cvn_multiply(g, dy, normed);
    out[1] = as(g, cvn_reduce_dims(g, CVN_SUM, dweight, last, rows), op->result[1]->type.dtype);
}

/* What the parts of attention's gradient share. */
typedef struct Attention {
    cvn_value *q, *dy;  /* [batch, seq, kv, group, dim], 0 for padding */
    cvn_value *k, *v;   /* [batch, kv, context, dim], 0 where no query sees them */
    cvn_value *weights; /* [batch, kv, seq, group, context], 0 for padding */
    cvn_value *start;   /* [batch] */
    cvn_value *first;   /* [batch, seq], or NULL */
    cvn_value *real;    /* bool [batch, seq]: no padding, and sees a key */
} Attention;

/* x [batch, seq, heads, dim] as [batch, seq, kv, group, dim], with 0 in the rows of padding. */
static cvn_value *real_rows(cvn_graph *g, cvn_value *x, cvn_value *real, int64_t kv)
{
    const int64_t *dim = x->type.dim;
    x = cvn_select(g, spread(g, real, &x->type, (const int[]){0, 1}), x, like(g, x, 0));
    return cvn_reshape(g, x, 5, (const int64_t[]){dim[0], dim[1], kv, dim[2] / kv, dim[3]});
}

/* What is in the result of products over the last dimension: q or dy with k or v. */
static cvn_value *with_keys(cvn_graph *g, cvn_value *rows, cvn_value *keys)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 2},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {3}};
    return cvn_dot_general(g, rows, keys, &dims, rows->type.dtype);
}

/* The weights again, as the forward pass makes them. */
static cvn_value *attention_weights(cvn_graph *g, const Attention *a, double scale)
{
    cvn_value *scores = with_keys(g, a->q, a->k);
    scores = cvn_multiply(g, scores, like(g, scores, scale));
    const cvn_type *shape = &scores->type; /* [batch, kv, seq, group, context] */
    cvn_type plane = CVN_TYPE(CVN_I32, shape->dim[0], shape->dim[2], shape->dim[4]);
    cvn_value *seen = seen_keys(g, &plane, a->start, a->first);
    seen = spread(g, seen, shape, (const int[]){0, 2, 4});
    Softmax s = softmax_parts(g, cvn_select(g, seen, scores, like(g, scores, -INFINITY)));
    cvn_value *weights = cvn_divide(g, s.power, spread_over(g, s.sum, shape, 4));
    cvn_value *real = spread(g, a->real, shape, (const int[]){0, 2});
    return cvn_select(g, real, weights, like(g, weights, 0));
}

/* Sum over queries of x [batch, kv, seq, group, context] times rows [batch, seq, kv, group, dim]:
   [batch, kv, context, dim]. */
static cvn_value *over_queries(cvn_graph *g, cvn_value *x, cvn_value *rows)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 2},
                               .n_contract = 2,
                               .lhs_contract = {2, 3},
                               .rhs_contract = {1, 3}};
    return cvn_dot_general(g, x, rows, &dims, x->type.dtype);
}

/* Sum over keys of dscores [batch, kv, seq, group, context] times k [batch, kv, context, dim], as
   [batch, seq, heads, dim]. */
static cvn_value *over_keys(cvn_graph *g, cvn_value *dscores, cvn_value *k, const cvn_type *q)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {2}};
    cvn_value *dq = cvn_dot_general(g, dscores, k, &dims, k->type.dtype);
    dq = cvn_transpose(g, dq, (const int[]){0, 2, 1, 3, 4});
    return cvn_reshape(g, dq, 4, q->dim);
}

void decompose_attention_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *q = &op->operand[0]->type, *k = &op->operand[1]->type;
    bool exact = q->dtype == CVN_F64 || k->dtype == CVN_F64;
    cvn_dtype math = exact ? CVN_F64 : CVN_F32;
    int64_t kv = k->dim[1], seq = q->dim[1];
    cvn_type rows = CVN_TYPE(CVN_I32, q->dim[0], seq);
    Attention a = {.start = op->operand[3], .first = attention_first(op)};
    a.real = cvn_compare_values(g, CVN_LT, count_along(g, &rows, 1),
                                spread(g, op->operand[4], &rows, (const int[]){0}));
    /* A query before the first key, or before its own
       first, sees none, and has no gradient either. */
    cvn_value *position =
        cvn_add(g, count_along(g, &rows, 1), spread(g, op->operand[3], &rows, (const int[]){0}));
    a.real = cvn_and(g, a.real, cvn_compare_values(g, CVN_GE, position, like(g, position, 0)));
    if (a.first) {
        cvn_value *last = cvn_minimum(g, position, like(g, position, (double)k->dim[2] - 1));
        a.real = cvn_and(g, a.real, cvn_compare_values(g, CVN_GE, last, a.first));
    }
    a.q = real_rows(g, as(g, op->operand[0], math), a.real, kv);
    a.dy = real_rows(g, as(g, op->operand[5], math), a.real, kv);
    a.k = visible_values(g, as(g, op->operand[1], math), a.start, seq);
    a.v = visible_values(g, as(g, op->operand[2], math), a.start, seq);
    a.weights = attention_weights(g, &a, op->attr.scale);

    cvn_value *dweights = with_keys(g, a.dy, a.v); /* [batch, kv, seq, group, context] */
    const int last = 4;
    cvn_value *mean = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, a.weights, dweights), 1, &last);
    cvn_value *dscores = cvn_subtract(g, dweights, spread_over(g, mean, &dweights->type, last));
    dscores = cvn_multiply(g, a.weights, dscores);
    dscores = cvn_multiply(g, dscores, like(g, dscores, op->attr.scale));
    out[0] = as(g, over_keys(g, dscores, a.k, q), q->dtype);
    out[1] = as(g, over_queries(g, dscores, a.q), k->dtype);
    out[2] = as(g, over_queries(g, a.weights, a.dy), k->dtype);
}

/* Where lse is infinite it is taken as 0, as the forward pass does with the largest element. */
void decompose_softmax_cross_entropy_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = as(g, op->operand[0], wide(op->operand[0]->type.dtype)); /* [..., vocab] */
    const cvn_type *shape = &logits->type;
    cvn_dtype math = shape->dtype;
    int last = shape->rank - 1;
    cvn_value *target = op->operand[1];             /* [...] */
    cvn_value *lse = as(g, op->operand[2], math);   /* [...] */
    cvn_value *dloss = as(g, op->operand[3], math); /* [...] */
    cvn_value *dlse = as(g, op->operand[4], math);  /* [...] */

    cvn_value *vocab = like(g, target, (double)shape->dim[last]);
    cvn_value *known = cvn_and(g, cvn_compare_values(g, CVN_GE, target, like(g, target, 0)),
                               cvn_compare_values(g, CVN_LT, target, vocab));
    dloss = cvn_select(g, known, dloss, like(g, dloss, 0));
    lse = cvn_select(g, cvn_is_finite(g, lse), lse, like(g, lse, 0));
    cvn_value *share = cvn_subtract(g, logits, spread_over(g, lse, shape, last));
    share = cvn_multiply(g, cvn_exponential(g, share),
                         spread_over(g, cvn_add(g, dloss, dlse), shape, last));
    cvn_value *here = cvn_compare_values(g, CVN_EQ, count_along(g, shape, last),
                                         spread_over(g, target, shape, last));
    cvn_value *less = cvn_subtract(g, share, spread_over(g, dloss, shape, last));
    out[0] = as(g, cvn_select(g, here, less, share), op->result[0]->type.dtype);
}
