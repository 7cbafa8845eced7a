/*
 * What training asks of routers beside their choice, so that experts are chosen alike often. With f_e the part of the tokens that
 * choose expert e, and p_e the mean of its score, of all tokens that count:
 *
 *     BALANCE_BATCH       experts * sum over e of f_e p_e, of the tokens of all rows and layers in one pool: k where all are chosen
 *                         alike, and more where some are chosen more often (Fedus et al. 2021, arXiv:2101.03961; so in transformers)
 *     BALANCE_SEQUENCE    experts / k * the same sum of each row and layer by itself; the mean of the rows, added up over layers
 *                         (DeepSeek-AI 2024, arXiv:2412.19437)
 *     z                   the mean of logsumexp(logits)^2, added up over layers (Zoph et al. 2022, arXiv:2202.08906)
 *     load                nothing that is minimised: its gradient with respect to an expert's correction is how many tokens chose it, by
 *                         which the update moves the correction (arXiv:2412.19437, "auxiliary-loss-free")
 *
 * Four tokens that choose one of two experts, three of them the first by 0.9 and one the second by 0.7: f = (3/4, 1/4), p = (3/4, 1/4),
 * balance 2 (9/16 + 1/16) = 1.25. Gradients go by the scores alone. Scores are normalised: a softmax, or sigmoids over their sum.
 */
#include "model/forward_impl.h"

static cvn_value *sum_rows(Builder *b, cvn_value *x, int n, const int *dims)
{
    return cvn_reduce_dims(G, CVN_SUM, x, n, dims);
}

/* x + y; x may be NULL. */
static cvn_value *plus(Builder *b, cvn_value *x, cvn_value *y)
{
    return x ? cvn_add(G, x, y) : y;
}

static cvn_value *times(Builder *b, cvn_value *x, double factor)
{
    return cvn_multiply(G, x, cvn_splat(G, *cvn_value_type(x), factor));
}

void routers_begin(Builder *b, RouterTerms asked, cvn_value *targets)
{
    const cvn_type grid = *cvn_value_type(targets);
    b->routers.asked = asked;
    if (!asked.balance && !asked.z && !asked.load)
        return;
    cvn_value *place = cvn_iota(G, grid, 1);
    cvn_value *known = forward_known(b, targets), *none = cvn_splat(G, grid, -1);
    cvn_value *with = cvn_select(G, known, place, none);
    cvn_value *last = cvn_reduce_dims(G, CVN_MAX, with, 1, (int[]){1});
    last = cvn_broadcast_in_dim(G, last, grid, (int[]){0});
    b->routers.counted = cvn_convert(G, cvn_compare_values(G, CVN_LE, place, last), CVN_F32);
}

/* f32 [batch, seq, experts]: 1 of an expert that the token chose. */
static cvn_value *taken_of(Builder *b, cvn_value *chosen, const cvn_type *type)
{
    cvn_type numbers = *type;
    numbers.dtype = CVN_I32;
    cvn_value *number = cvn_iota(G, numbers, 2), *taken = NULL;
    for (int64_t k = 0; k < cvn_value_type(chosen)->dim[2]; k++) {
        cvn_value *one = cvn_slice_axis(G, chosen, 2, k, k + 1);
        one = cvn_reshape(G, one, 2, type->dim);
        one = cvn_broadcast_in_dim(G, one, numbers, (int[]){0, 1});
        taken = plus(b, taken, cvn_convert(G, cvn_compare_values(G, CVN_EQ, number, one), CVN_F32));
    }
    return taken;
}

static cvn_value *scores_of(Builder *b, const Experts *e, cvn_value *logits)
{
    if (e->score != SCORE_SIGMOID)
        return forward_softmax(b, logits);
    cvn_value *score = cvn_logistic(G, logits);
    cvn_value *sum = sum_rows(b, score, 1, (int[]){2});
    return cvn_divide(G, score,
                      cvn_broadcast_in_dim(G, sum, *cvn_value_type(score), (int[]){0, 1}));
}

/* What `taken` and `score`, both of counted tokens, come to in each row, whose mean is taken. */
static cvn_value *of_sequences(Builder *b, const Experts *e, cvn_value *taken, cvn_value *score)
{
    cvn_value *n = sum_rows(b, b->routers.counted, 1, (int[]){1}); /* [batch] */
    const cvn_type rows = *cvn_value_type(n);
    cvn_value *one = cvn_splat(G, rows, 1), *some = cvn_minimum(G, n, one);
    taken = sum_rows(b, taken, 1, (int[]){1});
    score = sum_rows(b, score, 1, (int[]){1});
    cvn_value *both = sum_rows(b, cvn_multiply(G, taken, score), 1, (int[]){1});
    n = cvn_maximum(G, n, one);
    both = cvn_divide(G, both, cvn_multiply(G, n, n));
    both = times(b, both, (double)e->number / (double)e->chosen);
    cvn_value *count = sum_rows(b, some, 1, (int[]){0});
    count = cvn_maximum(G, count, cvn_splat(G, cvn_scalar(CVN_F32), 1));
    return cvn_divide(G, sum_rows(b, both, 1, (int[]){0}), count);
}

/* logsumexp(logits)^2 of each token, f32 [batch, seq]. */
static cvn_value *squares(Builder *b, cvn_value *logits)
{
    const cvn_type *type = cvn_value_type(logits);
    cvn_value *most = cvn_reduce_dims(G, CVN_MAX, logits, 1, (int[]){2});
    cvn_value *x = cvn_subtract(G, logits, cvn_broadcast_in_dim(G, most, *type, (int[]){0, 1}));
    cvn_value *sum = sum_rows(b, cvn_exponential(G, x), 1, (int[]){2});
    cvn_value *lse = cvn_add(G, most, cvn_log(G, sum));
    return cvn_multiply(G, lse, lse);
}

void routers_add(Builder *b, cvn_value *logits, cvn_value *chosen, int64_t layer)
{
    static const int tokens[] = {0, 1};
    RouterSums *r = &b->routers;
    const Experts *e = &b->model->block[layer].experts;
    const cvn_type type = *cvn_value_type(logits);
    if (!r->counted)
        return;
    r->layers++;
    if (r->asked.z) {
        cvn_value *z = cvn_multiply(G, squares(b, logits), r->counted);
        r->z = plus(b, r->z, sum_rows(b, z, 2, tokens));
    }
    if (!r->asked.balance && !r->asked.load)
        return;
    cvn_value *counted = cvn_broadcast_in_dim(G, r->counted, type, tokens);
    cvn_value *taken = cvn_multiply(G, taken_of(b, chosen, &type), counted);
    cvn_value *of_all = sum_rows(b, taken, 2, tokens);
    if (r->asked.load && e->corrected) {
        cvn_value *correction = cvn_convert(G, forward_weight(b, PARAM_CORRECTION, layer), CVN_F32);
        cvn_value *load = cvn_multiply(G, correction, of_all);
        r->load = plus(b, r->load, sum_rows(b, load, 1, (int[]){0}));
    }
    if (!r->asked.balance)
        return;
    cvn_value *score = cvn_multiply(G, scores_of(b, e, logits), counted);
    if (r->asked.balance == BALANCE_SEQUENCE) {
        r->balance = plus(b, r->balance, of_sequences(b, e, taken, score));
        return;
    }
    r->taken = plus(b, r->taken, of_all);
    r->score = plus(b, r->score, sum_rows(b, score, 2, tokens));
}

void routers_end(Builder *b, ModelLoss *loss)
{
    RouterSums *r = &b->routers;
    if (!r->layers)
        return;
    cvn_value *one = cvn_splat(G, cvn_scalar(CVN_F32), 1);
    cvn_value *n = cvn_maximum(G, sum_rows(b, r->counted, 2, (int[]){0, 1}), one);
    if (r->taken) {
        const double experts = (double)cvn_value_type(r->taken)->dim[0];
        cvn_value *rows = times(b, n, (double)r->layers);
        cvn_value *sum = sum_rows(b, cvn_multiply(G, r->taken, r->score), 1, (int[]){0});
        r->balance = times(b, cvn_divide(G, sum, cvn_multiply(G, rows, rows)), experts);
    }
    loss->balance = r->balance;
    loss->router_z = r->z ? cvn_divide(G, r->z, n) : NULL;
    loss->load = r->load;
}
