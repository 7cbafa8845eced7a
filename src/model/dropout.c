#include "model/dropout.h"

#include "graph/steps.h"

#include <math.h>
#include <string.h>

enum { HEAD_SHIFT = 20 }; /* sites are below 2^20, and heads below 2^12 */

#define G CVN_HERE(g)

/* The sum over dimensions of index * stride, u32 of that shape; it may wrap around. */
static cvn_value *places(cvn_graph *g, const cvn_type *shape, const int64_t *stride, int64_t begin)
{
    const cvn_type type = with_dtype(*shape, CVN_U32);
    cvn_value *sum = cvn_splat(G, type, (double)begin);
    for (int d = 0; d < type.rank; d++) {
        if (stride[d] == 0 || type.dim[d] == 1)
            continue;
        cvn_value *index = cvn_iota(G, type, d);
        cvn_value *factor = cvn_splat(G, type, (double)(uint32_t)stride[d]);
        sum = cvn_add(G, sum, cvn_multiply(G, index, factor));
    }
    return sum;
}

/* Words of the keys of rows [batch, 2], over all that a row has. */
static cvn_value *word_of(cvn_graph *g, const cvn_type *shape, cvn_value *key, int word)
{
    const int64_t batch = shape->dim[0];
    cvn_value *one = cvn_reshape(G, cvn_slice_axis(G, key, 1, word, word + 1), 1, &batch);
    const cvn_type type = with_dtype(*shape, CVN_U32);
    return along_rows(G, one, &type);
}

/* Drops elements of x, whose place in its row and whose head are sums over dimensions of index * stride. */
static cvn_value *drop(cvn_graph *g, cvn_value *x, const ModelDropout *d, double rate, int64_t site,
                       const int64_t *place, const int64_t *head)
{
    const cvn_type shape = *cvn_value_type(x);
    cvn_value *k0 = word_of(g, &shape, d->key, 0), *k1 = word_of(g, &shape, d->key, 1);
    cvn_value *c0 = places(g, &shape, place, 0), *c1 = places(g, &shape, head, site);
    cvn_value *bits = cvn_random_bits(G, k0, k1, c0, c1);
    cvn_value *least = like(G, bits, floor(rate * 0x1p32));
    cvn_value *stays = cvn_compare_values(G, CVN_GE, bits, least);
    x = cvn_multiply(G, x, like(G, x, 1 / (1 - rate)));
    return where(G, stays, x);
}

cvn_value *dropout(cvn_graph *g, cvn_value *x, const ModelDropout *d, double rate, int64_t site)
{
    const cvn_type *shape = cvn_value_type(x);
    int64_t place[CVN_MAX_RANK] = {0}, head[CVN_MAX_RANK] = {0}, stride = 1;
    if (!d->key || rate <= 0)
        return x;
    for (int i = shape->rank - 1; i > 0; stride *= shape->dim[i--])
        place[i] = stride;
    return drop(g, x, d, rate, site, place, head);
}

/* Which keys queries see, bool [batch, seq, seq]: those of their document, window and chunk up to themselves. */
static cvn_value *seen_keys(cvn_graph *g, int64_t batch, int64_t seq,
                            const cvn_attention_spec *spec)
{
    const cvn_type plane = CVN_TYPE(CVN_I32, batch, seq, seq);
    cvn_value *query = cvn_iota(G, plane, 1), *key = cvn_iota(G, plane, 2), *from[3] = {NULL};
    cvn_value *seen = cvn_compare_values(G, CVN_LE, key, query);
    if (spec->first)
        from[0] = spread(G, spec->first, &plane, (const int[]){0, 1});
    if (spec->window)
        from[1] = cvn_subtract(G, query, like(G, query, (double)(spec->window - 1)));
    if (spec->chunk) {
        cvn_value *inside = cvn_remainder(G, query, like(G, query, (double)spec->chunk));
        from[2] = cvn_subtract(G, query, inside);
    }
    for (int i = 0; i < 3; i++)
        if (from[i])
            seen = cvn_and(G, seen, cvn_compare_values(G, CVN_GE, key, from[i]));
    return seen;
}

/* cap * tanh(x / cap) */
static cvn_value *capped(cvn_graph *g, cvn_value *x, double cap)
{
    if (cap == 0)
        return x;
    x = cvn_tanh(G, cvn_multiply(G, x, like(G, x, 1 / cap)));
    return cvn_multiply(G, x, like(G, x, cap));
}

/* Sinks [heads] for each query, [batch, kv_heads, seq, group]. */
static cvn_value *sinks_of_rows(cvn_graph *g, cvn_value *sinks, const cvn_type *rows)
{
    sinks =
        cvn_reshape(G, as(G, sinks, rows->dtype), 2, (const int64_t[]){rows->dim[1], rows->dim[3]});
    return spread(G, sinks, rows, (const int[]){1, 3});
}

cvn_value *dropout_attention(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v,
                             const cvn_attention_spec *spec, const ModelDropout *d, int64_t site)
{
    const cvn_type shape = *cvn_value_type(q);
    const int64_t batch = shape.dim[0], seq = shape.dim[1], kv = cvn_value_type(k)->dim[1];
    const int64_t group = shape.dim[2] / kv;
    const cvn_dtype math = shape.dtype == CVN_F64 ? CVN_F64 : CVN_F32;
    q = cvn_reshape(G, q, 5, (const int64_t[]){batch, seq, kv, group, shape.dim[3]});
    cvn_value *scores /* [batch, kv_heads, seq, group, seq] */ =
        cvn_einsum_as(G, "bqkgd,bktd->bkqgt", q, k, math);
    scores = capped(g, cvn_multiply(G, scores, like(G, scores, spec->scale)), spec->cap);
    const cvn_type type = *cvn_value_type(scores), mask = with_dtype(type, CVN_BOOL);
    cvn_value *seen = seen_keys(g, batch, seq, spec), *sinks = NULL;
    seen = spread(G, seen, &mask, (const int[]){0, 2, 4});
    /* Not -infinity: a row of padding that sees nothing stays finite. */
    scores = cvn_select(G, seen, scores, like(G, scores, -1e30));
    const int last = 4;
    cvn_value *peak = cvn_reduce_dims(G, CVN_MAX, scores, 1, &last);
    if (spec->sinks) {
        sinks = sinks_of_rows(g, spec->sinks, cvn_value_type(peak));
        peak = cvn_maximum(G, peak, sinks);
    }
    cvn_value *power =
        cvn_exponential(G, cvn_subtract(G, scores, spread_over(G, peak, &type, last)));
    cvn_value *sum = cvn_reduce_dims(G, CVN_SUM, power, 1, &last);
    if (sinks)
        sum = cvn_add(G, sum, cvn_exponential(G, cvn_subtract(G, sinks, peak)));
    cvn_value *weights = cvn_divide(G, power, spread_over(G, sum, &type, last));
    const int64_t place[] = {0, 0, seq, 0, 1};
    const int64_t head[] = {0, group << HEAD_SHIFT, 0, INT64_C(1) << HEAD_SHIFT, 0};
    weights = drop(g, weights, d, d->attention, site, place, head);
    weights = as(G, weights, cvn_value_type(v)->dtype);
    cvn_value *out = cvn_einsum_as(G, "bkqgt,bktd->bqkgd", weights, v, shape.dtype);
    return cvn_reshape(G, out, 4, shape.dim);
}
