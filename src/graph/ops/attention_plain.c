/*
 * Attention with a mask, or whose weights are dropped in part, in plain operations: no kernel, and what the plain operations have in
 * the way of gradients, devices and StableHLO. Scores of all queries and keys lie in memory.
 *
 *     seen    keys that windows, chunks, `first` and their places leave a query, and a mask of bools
 *     scores  cap tanh(q k scale / cap) + a mask of floats, where seen; -infinity there is not seen
 *     weights softmax(scores), with the sinks, 0 where a query sees nothing; dropped (Srivastava et al. 2014, JMLR 15):
 *
 *       bits of a weight = threefry(key of its row, (query * context + key, head << 20 | site))     (cvn_random_bits)
 *       it is 0 where bits < rate * 2^32, and else divided by 1 - rate
 *
 * so that what is dropped is a function and no draw: the same in the forward and the backward pass, on one device and on many.
 */
#include "graph/attention.h"
#include "graph/dropout.h"
#include "graph/steps.h"

#include <float.h>
#include <math.h>

/* The sum over dimensions of index * stride, u32 of that shape; it may wrap around. */
static cvn_value *places(cvn_graph *g, const cvn_type *shape, const int64_t *stride, int64_t begin)
{
    const cvn_type type = with_dtype(*shape, CVN_U32);
    cvn_value *sum = cvn_splat(g, type, (double)begin);
    for (int d = 0; d < type.rank; d++) {
        if (stride[d] == 0 || type.dim[d] == 1)
            continue;
        cvn_value *index = cvn_iota(g, type, d);
        cvn_value *factor = cvn_splat(g, type, (double)(uint32_t)stride[d]);
        sum = cvn_add(g, sum, cvn_multiply(g, index, factor));
    }
    return sum;
}

/* Words of the keys of rows [batch, 2], over all that a row has. */
static cvn_value *word_of(cvn_graph *g, const cvn_type *shape, cvn_value *key, int word)
{
    const int64_t batch = shape->dim[0];
    cvn_value *one = cvn_reshape(g, cvn_slice_axis(g, key, 1, word, word + 1), 1, &batch);
    const cvn_type type = with_dtype(*shape, CVN_U32);
    return along_rows(g, one, &type);
}

cvn_value *dropout_places(cvn_graph *g, cvn_value *x, cvn_value *key, double rate, int64_t site,
                          const int64_t *place, const int64_t *head)
{
    const cvn_type shape = x->type;
    cvn_value *k0 = word_of(g, &shape, key, 0), *k1 = word_of(g, &shape, key, 1);
    cvn_value *c0 = places(g, &shape, place, 0), *c1 = places(g, &shape, head, site);
    cvn_value *bits = cvn_random_bits(g, k0, k1, c0, c1);
    cvn_value *least = like(g, bits, floor(rate * 0x1p32));
    cvn_value *stays = cvn_compare_values(g, CVN_GE, bits, least);
    x = cvn_multiply(g, x, like(g, x, 1 / (1 - rate)));
    return where(g, stays, x);
}

/* i32 [batch, seq, context] of `plane`: start + query of each row. */
static cvn_value *positions(cvn_graph *g, const cvn_type *plane, cvn_value *start)
{
    cvn_value *query = cvn_iota(g, *plane, 1);
    return cvn_add(g, query, along_rows(g, start, plane));
}

/* Which keys queries see, bool [batch, seq, context]: those of their document, window and chunk up to themselves. */
static cvn_value *seen_keys(cvn_graph *g, int64_t batch, int64_t seq, int64_t context,
                            cvn_value *start, const cvn_attention_spec *spec)
{
    const cvn_type plane = CVN_TYPE(CVN_I32, batch, seq, context);
    cvn_value *query = positions(g, &plane, start), *key = cvn_iota(g, plane, 2), *from[3] = {NULL};
    cvn_value *seen = spec->any_key ? cvn_splat(g, with_dtype(plane, CVN_BOOL), 1)
                                    : cvn_compare_values(g, CVN_LE, key, query);
    if (spec->first)
        from[0] = spread(g, spec->first, &plane, (const int[]){0, 1});
    if (spec->window)
        from[1] = cvn_subtract(g, query, like(g, query, (double)(spec->window - 1)));
    if (spec->chunk) {
        cvn_value *inside = cvn_remainder(g, query, like(g, query, (double)spec->chunk));
        from[2] = cvn_subtract(g, query, inside);
    }
    for (int i = 0; i < 3; i++)
        if (from[i])
            seen = cvn_and(g, seen, cvn_compare_values(g, CVN_GE, key, from[i]));
    return seen;
}

/* A mask [batch, heads, seq, context], of which dimensions may be 1, over scores [batch, kv_heads, seq, group, context]. */
static cvn_value *mask_of(cvn_graph *g, cvn_value *mask, const cvn_type *scores)
{
    const int64_t *m = mask->type.dim, kv = scores->dim[1], group = scores->dim[3];
    const int64_t apart[] = {m[0], m[1] == 1 ? 1 : kv, m[1] == 1 ? 1 : group, m[2], m[3]};
    static const int to[] = {0, 1, 3, 2, 4};
    int64_t shape[5];
    int dims[5], n = 0;
    mask = cvn_reshape(g, mask, 5, apart);
    for (int d = 0; d < 5; d++)
        if (apart[d] > 1) {
            shape[n] = apart[d];
            dims[n++] = to[d];
        }
    /* Dimensions in the order of the scores: groups come behind queries. */
    mask = cvn_reshape(g, mask, n, shape);
    for (int d = 0; d + 1 < n; d++)
        if (dims[d] > dims[d + 1]) {
            int order[5] = {0, 1, 2, 3, 4}, swapped = dims[d];
            order[d] = d + 1;
            order[d + 1] = d;
            mask = cvn_transpose(g, mask, order);
            dims[d] = dims[d + 1];
            dims[d + 1] = swapped;
        }
    const cvn_type type = with_dtype(*scores, mask->type.dtype);
    return spread(g, mask, &type, dims);
}

/* cap * tanh(x / cap) */
static cvn_value *capped(cvn_graph *g, cvn_value *x, double cap)
{
    if (cap == 0)
        return x;
    x = cvn_tanh(g, cvn_multiply(g, x, like(g, x, 1 / cap)));
    return cvn_multiply(g, x, like(g, x, cap));
}

/* Sinks [heads] for each query, [batch, kv_heads, seq, group]. */
static cvn_value *sinks_of_rows(cvn_graph *g, cvn_value *sinks, const cvn_type *rows)
{
    sinks =
        cvn_reshape(g, as(g, sinks, rows->dtype), 2, (const int64_t[]){rows->dim[1], rows->dim[3]});
    return spread(g, sinks, rows, (const int[]){1, 3});
}

static bool fits(const cvn_type *mask, const cvn_type *q, int64_t context)
{
    const int64_t whole[] = {q->dim[0], q->dim[2], q->dim[1], context};
    bool fit = mask->rank == 4 && (mask->dtype == CVN_BOOL || dtype_is_float(mask->dtype));
    for (int d = 0; d < 4 && fit; d++)
        fit = mask->dim[d] == 1 || mask->dim[d] == whole[d];
    return fit;
}

/* Why this cannot be; NULL: it can. */
static const char *why_not(const cvn_value *q, const cvn_value *k, const cvn_value *v,
                           const cvn_attention_spec *spec)
{
    const cvn_type *a = &q->type, *b = &k->type, *key = spec->key ? &spec->key->type : NULL;
    if (spec->slot || spec->k_scale || spec->v_scale || !dtype_is_float(b->dtype))
        return "attention with a mask or dropout takes k and v of floats, and no slots";
    if (a->rank != 4 || b->rank != 4 || !cvn_type_equal(b, &v->type) || b->dim[0] != a->dim[0] ||
        b->dim[1] < 1 || a->dim[2] % b->dim[1] || a->dim[3] != b->dim[3])
        return "attention takes q [batch, seq, heads, head_dim] and k and v [batch, kv_heads, "
               "context, head_dim]";
    if (spec->mask && !fits(&spec->mask->type, a, b->dim[2]))
        return "the mask of an attention must be bools or floats [batch, heads, seq, context], "
               "each as many or 1";
    if (!(spec->dropout >= 0 && spec->dropout < 1))
        return "the dropout of an attention must be from 0 to below 1";
    if (spec->dropout > 0 &&
        !(key && key->dtype == CVN_U32 && key->rank == 2 && key->dim[0] == a->dim[0] &&
          key->dim[1] == 2 && spec->site >= 0 && spec->site < 1 << DROPOUT_HEAD_SHIFT))
        return "attention with dropout takes a key, u32 [batch, 2], and a site below 2^20";
    return NULL;
}

/* Softmax of scores over the last dimension, with sinks. */
static cvn_value *weights_of(cvn_graph *g, cvn_value *scores, cvn_value *seen, cvn_value *sinks)
{
    const cvn_type type = scores->type;
    const int last = 4;
    /* Not -infinity: a query that sees nothing stays finite. */
    const double least = type.dtype == CVN_F64 ? -DBL_MAX : (double)-FLT_MAX;
    scores = cvn_select(g, seen, scores, like(g, scores, least));
    cvn_value *peak = cvn_reduce_dims(g, CVN_MAX, scores, 1, &last);
    if (sinks) {
        sinks = sinks_of_rows(g, sinks, &peak->type);
        peak = cvn_maximum(g, peak, sinks);
    }
    cvn_value *power =
        cvn_exponential(g, cvn_subtract(g, scores, spread_over(g, peak, &type, last)));
    cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, power, 1, &last);
    if (sinks)
        sum = cvn_add(g, sum, cvn_exponential(g, cvn_subtract(g, sinks, peak)));
    return where(g, seen, cvn_divide(g, power, spread_over(g, sum, &type, last)));
}

cvn_value *attention_plain(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v, cvn_value *start,
                           cvn_value *length, const cvn_attention_spec *spec)
{
    const char *why = why_not(q, k, v, spec);
    if (why) {
        graph_fail(g, CVN_EINVAL, "%s", why);
        return g->poison;
    }
    const cvn_type shape = q->type;
    const int64_t batch = shape.dim[0], seq = shape.dim[1], kv = k->type.dim[1];
    const int64_t group = shape.dim[2] / kv, context = k->type.dim[2];
    const cvn_dtype math = shape.dtype == CVN_F64 ? CVN_F64 : CVN_F32;
    q = cvn_reshape(g, q, 5, (const int64_t[]){batch, seq, kv, group, shape.dim[3]});
    cvn_value *scores = cvn_einsum_as(g, "bqkgd,bktd->bkqgt", q, k, math);
    scores = capped(g, cvn_multiply(g, scores, like(g, scores, spec->scale)), spec->cap);
    const cvn_type type = scores->type, bools = with_dtype(type, CVN_BOOL);
    cvn_value *seen = seen_keys(g, batch, seq, context, start, spec);
    seen = spread(g, seen, &bools, (const int[]){0, 2, 4});
    cvn_value *mask = spec->mask;
    if (mask && mask->type.dtype != CVN_BOOL) {
        scores = cvn_add(g, scores, as(g, mask_of(g, mask, &type), math));
        mask = cvn_compare_values(g, CVN_GT, mask, like(g, mask, -INFINITY));
    }
    if (mask)
        seen = cvn_and(g, seen, mask_of(g, mask, &type));
    cvn_value *weights = weights_of(g, scores, seen, spec->sinks);
    const int64_t place[] = {0, 0, context, 0, 1};
    const int64_t head[] = {0, group << DROPOUT_HEAD_SHIFT, 0, INT64_C(1) << DROPOUT_HEAD_SHIFT, 0};
    if (spec->dropout > 0)
        weights = dropout_places(g, weights, spec->key, spec->dropout, spec->site, place, head);
    weights = as(g, weights, v->type.dtype);
    cvn_value *out = cvn_einsum_as(g, "bkqgt,bktd->bqkgd", weights, v, shape.dtype);
    out = cvn_reshape(g, out, 4, shape.dim);
    const cvn_type rows = with_dtype(shape, CVN_I32);
    cvn_value *query = cvn_iota(g, rows, 1);
    return where(g, cvn_compare_values(g, CVN_LT, query, along_rows(g, length, &rows)), out);
}
