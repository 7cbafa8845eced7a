/*
 * A layer of experts as a graph: the router gives each token a few of them and how much each counts, each computes what a
 * feed-forward part does, and what they give is weighted and summed. A token of two experts out of four:
 *
 *     logits   1.0  3.0  0.5  2.0        h times the router's weight
 *     scores   .09  .64  .05  .23        of SCORE_SOFTMAX
 *     chosen   1 (.64), 3 (.23)          the best first; of equals that of the lower number
 *     counts   .74, .26                  where they are renormalised
 *
 * The sum over the experts of a token is in the order of its choice, from products that depend on the token alone: so bits depend
 * neither on the batch nor on which device has which experts.
 */
#include "model/forward_impl.h"

/* What of a sorted or summed x [batch, seq, experts] is of the first n. */
static cvn_value *best(Builder *b, cvn_value *x, int64_t n)
{
    return cvn_slice_axis(G, x, 2, 0, n);
}

/* x [batch, seq] beside each of what `shape` has. */
static cvn_value *beside(Builder *b, cvn_value *x, const cvn_type *shape)
{
    return cvn_broadcast_in_dim(G, x, *shape, (int[]){0, 1});
}

cvn_value *forward_softmax(Builder *b, cvn_value *x)
{
    const cvn_type type = *cvn_value_type(x);
    cvn_value *most = cvn_reduce_dims(G, CVN_MAX, x, 1, (int[]){2});
    x = cvn_exponential(G, cvn_subtract(G, x, beside(b, most, &type)));
    cvn_value *sum = cvn_reduce_dims(G, CVN_SUM, x, 1, (int[]){2});
    return cvn_divide(G, x, beside(b, sum, &type));
}

/* Of x [batch, seq, experts] what is at the numbers of some, [batch, seq, chosen]. */
static cvn_value *of_experts(Builder *b, cvn_value *x, cvn_value *number)
{
    const cvn_gather_dims dims = {.n_collapsed = 1,
                                  .collapsed = {2},
                                  .n_operand_batch = 2,
                                  .operand_batch = {0, 1},
                                  .n_index_batch = 2,
                                  .index_batch = {0, 1},
                                  .n_index_map = 1,
                                  .index_map = {2},
                                  .index_vector_dim = 3};
    return cvn_gather(G, x, number, &dims, (int64_t[]){1, 1, 1});
}

/* Numbers of experts in order of what they are compared by, the largest first, with what they count. */
static void choose(Builder *b, const Experts *e, cvn_value *logits, int64_t layer,
                   cvn_value *out[2])
{
    const cvn_type type = *cvn_value_type(logits);
    cvn_type numbers = type;
    numbers.dtype = CVN_I32;
    /* Sigmoids that only count are of those that are chosen, whose order is that of their logits. */
    const bool late = e->score == SCORE_SIGMOID && !e->corrected;
    cvn_value *score = e->score == SCORE_SOFTMAX            ? forward_softmax(b, logits)
                       : e->score == SCORE_SIGMOID && !late ? cvn_logistic(G, logits)
                                                            : logits;
    cvn_value *correction = e->corrected ? forward_weight(b, PARAM_CORRECTION, layer) : NULL;
    cvn_value *sorted[2], *by = score, *number = cvn_iota(G, numbers, 2);
    if (correction) {
        correction = cvn_convert(G, correction, CVN_F32);
        by = cvn_add(G, score, cvn_broadcast_in_dim(G, correction, type, (int[]){2}));
    }
    cvn_sort_pair(G, by, number, 2, true, sorted);
    out[0] = best(b, sorted[1], e->chosen);
    out[1] = correction ? of_experts(b, score, out[0]) : best(b, sorted[0], e->chosen);
    if (e->score == SCORE_SOFTMAX_CHOSEN)
        out[1] = forward_softmax(b, out[1]);
    else if (late)
        out[1] = cvn_logistic(G, out[1]);
    const cvn_type counts = *cvn_value_type(out[1]);
    if (e->renormalised) {
        cvn_value *sum = cvn_reduce_dims(G, CVN_SUM, out[1], 1, (int[]){2});
        out[1] = cvn_divide(G, out[1], beside(b, sum, &counts));
    }
    if (e->scale != 1)
        out[1] = cvn_multiply(G, out[1], cvn_splat(G, counts, e->scale));
}

/* x, a row for each token or for each of its choices, times the weights of the experts, f32. */
static cvn_value *products(Builder *b, cvn_value *x, cvn_value *chosen, ParamKind kind,
                           ParamKind bias, int64_t layer)
{
    const Param *p = params_find(b->params, kind, (int)layer);
    cvn_value *add = forward_weight(b, bias, layer);
    if (b->input)
        b->input[p - b->params->param] = x;
    cvn_value *w = forward_matrix(b, kind, layer, b->compute);
    cvn_value *y = cvn_grouped_dot(G, x, w, chosen, 2, CVN_F32);
    return add ? cvn_add(G, y, cvn_take_rows(G, cvn_convert(G, add, CVN_F32), chosen)) : y;
}

/* h [batch, seq, dim] for each choice, times what that counts: [batch, seq, chosen, dim]. */
static cvn_value *counted(Builder *b, cvn_value *h, cvn_value *count)
{
    const cvn_type *rows = cvn_value_type(count);
    const cvn_type type =
        CVN_TYPE(CVN_F32, rows->dim[0], rows->dim[1], rows->dim[2], b->model->width);
    h = cvn_broadcast_in_dim(G, cvn_convert(G, h, CVN_F32), type, (int[]){0, 1, 3});
    count = cvn_broadcast_in_dim(G, count, type, (int[]){0, 1, 2});
    return forward_compute(b, cvn_multiply(G, h, count));
}

cvn_value *forward_experts(Builder *b, cvn_value *h, int64_t layer)
{
    const Block *block = &b->model->block[layer];
    cvn_value *route[2]; /* i32 and f32 [batch, seq, chosen] */
    cvn_value *logits = forward_linear(b, "bse,ne->bsn", h, PARAM_ROUTER, PARAM_ROUTER_BIAS, layer);
    choose(b, &block->experts, logits, layer, route);
    routers_add(b, logits, route[0], layer);
    if (block->experts.before)
        h = counted(b, h, route[1]);
    cvn_value *gate /* [batch, seq, chosen, ffn] */ =
        forward_kept(b, products(b, h, route[0], PARAM_EXPERT_GATE, PARAM_EXPERT_GATE_BIAS, layer));
    cvn_value *up =
        forward_kept(b, products(b, h, route[0], PARAM_EXPERT_UP, PARAM_EXPERT_UP_BIAS, layer));
    cvn_value *inner = forward_compute(b, forward_gated(b, gate, up, layer));
    cvn_value *y /* [batch, seq, chosen, dim] */ =
        products(b, inner, route[0], PARAM_EXPERT_DOWN, PARAM_EXPERT_DOWN_BIAS, layer);
    const cvn_type type = *cvn_value_type(y);
    if (!block->experts.before)
        y = cvn_multiply(G, y, cvn_broadcast_in_dim(G, route[1], type, (int[]){0, 1, 2}));
    return cvn_reduce_dims(G, CVN_SUM, y, 1, (int[]){2});
}
