/*
 * Attention and its gradient in plain operations.
 *
 * Heads are viewed as [kv_heads, group], so that each KV head meets its group of queries in one
 * product:
 *
 *     scores  [batch, kv, seq, group, context] = q [batch, seq, kv, group, dim] . k [batch, kv, context, dim]
 *     seen    first[batch, query] <= key <= start[batch] + query
 *     weights = softmax(seen ? scores * scale : -inf)
 *     out     [batch, kv, seq, group, dim] = weights . v [batch, kv, context, dim], 0 where query >= length
 *
 * The gradient makes the weights again and goes back the same way: with P the weights and dy the
 * gradient of out, dv = P^T dy, dP = dy v^T, dS = P (dP - rowsum(P dP)), dq = scale dS k, dk = scale dS^T q.
 */
#include "graph/attention.h"
#include "graph/decompose_impl.h"

/* Keys or values of 8 bits times their scales [batch, kv_heads, context, 1]. */
static cvn_value *unscaled(cvn_graph *g, cvn_value *x, cvn_value *scale, cvn_dtype math)
{
    scale = cvn_reshape(g, as(g, scale, math), 3, scale->type.dim);
    x = as(g, x, math);
    return cvn_multiply(g, x, spread_over(g, scale, &x->type, 3));
}

/* v [batch, kv_heads, context, head_dim] with 0 for the keys that no query of the row sees but padding. Their
   weight is 0, but memory that was never written may hold anything, and 0 * NaN is NaN. */
static cvn_value *visible_values(cvn_graph *g, cvn_value *v, const Op *op)
{
    cvn_type keys = CVN_TYPE(CVN_I32, v->type.dim[0], v->type.dim[2]); /* [batch, context] */
    cvn_value *start = op->operand[3], *length = op->operand[4];
    length = cvn_minimum(g, length, like(g, length, (double)op_in(op, 0)->dim[1]));
    cvn_value *end = cvn_add(g, start, length);
    end = spread(g, end, &keys, (const int[]){0});
    cvn_value *seen = cvn_compare_values(g, CVN_LT, count_along(g, &keys, 1), end);
    seen = spread(g, seen, &v->type, (const int[]){0, 2});
    return cvn_select(g, seen, v, like(g, v, 0));
}

/* Sums over dim of rows [batch, seq, kv, group, dim] with keys or values [batch, kv, context, dim]:
   [batch, kv, seq, group, context]. */
static cvn_value *with_keys(cvn_graph *g, cvn_value *rows, cvn_value *keys, cvn_dtype dtype)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 2},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {3}};
    return cvn_dot_general(g, rows, keys, &dims, dtype);
}

/* Sums over the context of x [batch, kv, seq, group, context] with keys or values
   [batch, kv, context, dim]: [batch, seq, heads, dim], which is `shape`. */
static cvn_value *over_keys(cvn_graph *g, cvn_value *x, cvn_value *keys, const cvn_type *shape)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {2}};
    cvn_value *y = cvn_dot_general(g, x, keys, &dims, keys->type.dtype);
    y = cvn_transpose(g, y, (const int[]){0, 2, 1, 3, 4});
    return cvn_reshape(g, y, 4, shape->dim);
}

/* Sums over the queries of x [batch, kv, seq, group, context] with rows [batch, seq, kv, group, dim]:
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

/* x [batch, seq, heads, dim] as [batch, seq, kv, group, dim]. */
static cvn_value *by_group(cvn_graph *g, cvn_value *x, int64_t kv)
{
    const int64_t *dim = x->type.dim;
    return cvn_reshape(g, x, 5,
                       (const int64_t[]){dim[0], dim[1], kv, kv ? dim[2] / kv : 0, dim[3]});
}

/* x [batch, seq, heads, dim] with 0 in the rows that are not real, bool [batch, seq]. */
static cvn_value *real_rows(cvn_graph *g, cvn_value *x, cvn_value *real)
{
    real = spread(g, real, &x->type, (const int[]){0, 1});
    return cvn_select(g, real, x, like(g, x, 0));
}

/* Which queries are no padding, bool of the shape of rows [batch, seq]: query < length [batch]. */
static cvn_value *no_padding(cvn_graph *g, const cvn_type *rows, cvn_value *length)
{
    length = spread(g, length, rows, (const int[]){0});
    return cvn_compare_values(g, CVN_LT, count_along(g, rows, 1), length);
}

/* What each query makes of the keys: q [batch, seq, kv, group, dim] and k give
   [batch, kv, seq, group, context]. */
static cvn_value *attention_weights(cvn_graph *g, const Op *op, cvn_value *q, cvn_value *k,
                                    cvn_dtype math)
{
    cvn_value *scores = with_keys(g, q, k, math);
    scores = cvn_multiply(g, scores, like(g, scores, op->attr.scale));
    const cvn_type *shape = &scores->type;
    cvn_type plane = CVN_TYPE(CVN_I32, shape->dim[0], shape->dim[2], shape->dim[4]);
    /* Which keys a query sees, bool [batch, seq, context]: those from `first` [batch, seq] (or 0) to the query's
       position, which counts on from start [batch]. */
    cvn_value *key = count_along(g, &plane, 2), *first = attention_first(op);
    cvn_value *start = spread(g, op->operand[3], &plane, (const int[]){0});
    cvn_value *query = cvn_add(g, count_along(g, &plane, 1), start);
    cvn_value *seen = cvn_compare_values(g, CVN_LE, key, query);
    if (first) {
        first = spread(g, first, &plane, (const int[]){0, 1});
        seen = cvn_and(g, seen, cvn_compare_values(g, CVN_GE, key, first));
    }
    seen = spread(g, seen, shape, (const int[]){0, 2, 4});
    Softmax s = softmax_parts(g, cvn_select(g, seen, scores, like(g, scores, -INFINITY)));
    return cvn_divide(g, s.power, spread_over(g, s.sum, shape, 4));
}

void decompose_attention(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *q = op->operand[0], *k = op->operand[1], *v = op->operand[2];
    const cvn_type shape = q->type;
    int scales = attention_scales(op);
    if (scales >= 0) {
        k = unscaled(g, k, op->operand[scales], wide(shape.dtype));
        v = unscaled(g, v, op->operand[scales + 1], wide(shape.dtype));
    }
    cvn_dtype math = wide(shape.dtype == CVN_F64 ? shape.dtype : k->type.dtype);
    if (shape.dtype != k->type.dtype) {
        q = as(g, q, math);
        k = as(g, k, math);
    }
    q = by_group(g, q, k->type.dim[1]);
    cvn_value *weights = attention_weights(g, op, q, k, math);
    v = visible_values(g, as(g, v, math), op);
    cvn_value *y = over_keys(g, weights, v, &shape);
    cvn_type rows = CVN_TYPE(CVN_I32, shape.dim[0], shape.dim[1]);
    out[0] = as(g, real_rows(g, y, no_padding(g, &rows, op->operand[4])), shape.dtype);
}

/* Which queries have a gradient, bool [batch, seq]: those that are no padding and see a key. */
static cvn_value *real_queries(cvn_graph *g, const Op *op)
{
    const cvn_type *q = &op->operand[0]->type, *k = &op->operand[1]->type;
    cvn_type rows = CVN_TYPE(CVN_I32, q->dim[0], q->dim[1]);
    cvn_value *first = attention_first(op), *real = no_padding(g, &rows, op->operand[4]);
    cvn_value *start = spread(g, op->operand[3], &rows, (const int[]){0});
    cvn_value *position = cvn_add(g, count_along(g, &rows, 1), start);
    real = cvn_and(g, real, cvn_compare_values(g, CVN_GE, position, like(g, position, 0)));
    if (!first)
        return real;
    cvn_value *last = cvn_minimum(g, position, like(g, position, (double)k->dim[2] - 1));
    return cvn_and(g, real, cvn_compare_values(g, CVN_GE, last, first));
}

void decompose_attention_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->operand[0]->type, *k_type = &op->operand[1]->type;
    bool exact = type->dtype == CVN_F64 || k_type->dtype == CVN_F64;
    cvn_dtype math = exact ? CVN_F64 : CVN_F32;
    int64_t kv = k_type->dim[1];
    cvn_value *real = real_queries(g, op);
    cvn_value *q = by_group(g, real_rows(g, as(g, op->operand[0], math), real), kv);
    cvn_value *dy = by_group(g, real_rows(g, as(g, op->operand[5], math), real), kv);
    cvn_value *k = visible_values(g, as(g, op->operand[1], math), op);
    cvn_value *v = visible_values(g, as(g, op->operand[2], math), op);
    cvn_value *weights = attention_weights(g, op, q, k, math);
    cvn_value *counts = spread(g, real, &weights->type, (const int[]){0, 2});
    weights = cvn_select(g, counts, weights, like(g, weights, 0));

    cvn_value *dweights = with_keys(g, dy, v, math);
    const int last = 4;
    cvn_value *mean = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, weights, dweights), 1, &last);
    cvn_value *dscores = cvn_subtract(g, dweights, spread_over(g, mean, &dweights->type, last));
    dscores = cvn_multiply(g, weights, dscores);
    dscores = cvn_multiply(g, dscores, like(g, dscores, op->attr.scale));
    out[0] = as(g, over_keys(g, dscores, k, type), type->dtype);
    out[1] = as(g, over_queries(g, dscores, q), k_type->dtype);
    out[2] = as(g, over_queries(g, weights, dy), k_type->dtype);
}
