/*
 * The composites, each by its own direct definition (caravan/graph.h says them in words). Their
 * decompositions into plain operations are in decompose.c; tests compare the two.
 */
#include "base/num.h"
#include "base/rng.h"
#include "graph/attention.h"
#include "graph/interp/interp_impl.h"
#include "graph/reduce.h"

#include <math.h>

double interp_norm_scale(cvn_dtype dtype, const void *x, int64_t first, int64_t d, double eps)
{
    double sum = 0;
    for (int64_t i = 0; i < d; i++) {
        double e = element_get(dtype, x, first + i);
        sum += e * e;
    }
    return 1 / sqrt(sum / (double)d + eps);
}

void interp_rms_norm(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    cvn_dtype weight = op_in(op, 1)->dtype;
    int64_t d = x->dim[x->rank - 1], rows = d ? cvn_type_elements(x) / d : 0;
    for (int64_t row = 0; row < rows; row++) {
        double scale = interp_norm_scale(x->dtype, in[0], row * d, d, op->attr.eps);
        for (int64_t i = 0; i < d; i++)
            element_set(y->dtype, out[0], row * d + i,
                        element_get(x->dtype, in[0], row * d + i) * scale *
                            element_get(weight, in[1], i));
    }
}

/* The angle is rounded to f32 before its sine and cosine are taken, as Hugging Face's models do:
   at large positions that rounding is larger than any other error here. */
void interp_rope(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0); /* [batch, seq, heads, head_dim] */
    int64_t heads = x->dim[2], head_dim = x->dim[3], pairs = head_dim / 2;
    bool interleaved = op->attr.flag;
    const int32_t *position = in[1]; /* [batch, seq] */
    const float *inv_freq = in[2];   /* [pairs] */
    for (int64_t row = 0; row < x->dim[0] * x->dim[1] * heads; row++) {
        for (int64_t i = 0; i < pairs; i++) {
            float angle = (float)position[row / heads] * inv_freq[i];
            double c = cos((double)angle), s = sin((double)angle);
            int64_t first = row * head_dim + (interleaved ? 2 * i : i);
            int64_t second = row * head_dim + (interleaved ? 2 * i + 1 : i + pairs);
            double a = element_get(x->dtype, in[0], first);
            double b = element_get(x->dtype, in[0], second);
            element_set(x->dtype, out[0], first, a * c - b * s);
            element_set(x->dtype, out[0], second, b * c + a * s);
        }
    }
}

/* One query of one head: keys first … n - 1 of the rows at offset kv are seen. */
typedef struct Query {
    const Op *op;
    const void *const *in;
    int64_t q;  /* offset of the query's row in q */
    int64_t kv; /* offset of the first key's row in k, and of its value in v */
    int scales; /* operand of k's scales, that of v's being the next, or -1 */
    int64_t first, n;
    int64_t head_dim;
} Query;

/* The scale of key `key` (which 0) or its value (1): 1 where there are none. */
static double scale_of(const Query *query, int64_t key, int which)
{
    return query->scales < 0 ? 1
                             : element_get(CVN_BF16, query->in[query->scales + which],
                                           query->kv / query->head_dim + key);
}

static double attention_score(const Query *query, int64_t key)
{
    cvn_dtype q = op_in(query->op, 0)->dtype, k = op_in(query->op, 1)->dtype;
    double sum = 0;
    for (int64_t i = 0; i < query->head_dim; i++)
        sum += element_get(q, query->in[0], query->q + i) *
               element_get(k, query->in[1], query->kv + key * query->head_dim + i);
    return sum * scale_of(query, key, 0) * query->op->attr.scale;
}

/* sum of exp(score - peak) * v over sum of exp(score - peak), peak being the largest score. Keys
   that are not seen are not read at all: the memory behind them may never have been written. A
   query that sees no key gets NaN, 0 / 0. The result is made in pieces, so that no memory is needed
   but `sum`; the scores are computed anew for each. */
static void attention_query(const Query *query, void *out)
{
    enum { PIECE = 256 };
    cvn_dtype v = op_in(query->op, 2)->dtype, y = op_out(query->op, 0)->dtype;
    double peak = -INFINITY;
    for (int64_t key = query->first; key < query->n; key++)
        peak = reduce_max(peak, attention_score(query, key));
    if (!isfinite(peak))
        peak = 0;
    for (int64_t first = 0; first < query->head_dim; first += PIECE) {
        int64_t width = num_min(query->head_dim - first, PIECE);
        double total = 0, sum[PIECE] = {0};
        for (int64_t key = query->first; key < query->n; key++) {
            double weight = exp(attention_score(query, key) - peak);
            int64_t row = query->kv + key * query->head_dim + first;
            total += weight;
            weight *= scale_of(query, key, 1);
            for (int64_t i = 0; i < width; i++)
                sum[i] += weight * element_get(v, query->in[2], row + i);
        }
        for (int64_t i = 0; i < width; i++)
            element_set(y, out, query->q + first + i, sum[i] / total);
    }
}

void interp_attention(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *q = op_in(op, 0); /* [batch, seq, heads, head_dim] */
    const cvn_type *k = op_in(op, 1); /* [batch, kv_heads, context, head_dim] */
    int64_t seq = q->dim[1], heads = q->dim[2], head_dim = q->dim[3];
    int64_t kv_heads = k->dim[1], context = k->dim[2];
    const int32_t *start = in[3], *length = in[4];             /* [batch] */
    const int32_t *first = attention_first(op) ? in[5] : NULL; /* [batch, seq] */
    for (int64_t row = 0; row < q->dim[0] * seq * heads; row++) {
        int64_t b = row / heads / seq, s = row / heads % seq, h = row % heads;
        if (s >= length[b]) {
            for (int64_t i = 0; i < head_dim; i++)
                element_set(q->dtype, out[0], row * head_dim + i, 0);
            continue;
        }
        Query query = {.op = op,
                       .in = in,
                       .q = row * head_dim,
                       .kv = (b * kv_heads + h / (heads / kv_heads)) * context * head_dim,
                       .scales = attention_scales(op),
                       .first = first ? interp_within(first[row / heads], 0, context) : 0,
                       .n = interp_within(start[b] + s + 1, 0, context),
                       .head_dim = head_dim};
        attention_query(&query, out[0]);
    }
}

void interp_cache_update(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *cache = op_in(op, 0);  /* [batch, kv_heads, context, head_dim] */
    const cvn_type *update = op_in(op, 1); /* [batch, seq, kv_heads, head_dim] */
    int64_t kv_heads = cache->dim[1], context = cache->dim[2], head_dim = cache->dim[3];
    int64_t seq = update->dim[1];
    const int32_t *start = in[2]; /* [batch] */
    interp_copy(op, in, out);
    for (int64_t row = 0; row < cache->dim[0] * seq * kv_heads; row++) {
        int64_t b = row / kv_heads / seq, s = row / kv_heads % seq, h = row % kv_heads;
        int64_t place = start[b] + s;
        if (place < 0 || place >= context)
            continue;
        for (int64_t i = 0; i < head_dim; i++)
            interp_move(cache->dtype, out[0], ((b * kv_heads + h) * context + place) * head_dim + i,
                        in[1], row * head_dim + i);
    }
}

/* ln of the sum of exp(x): the largest element is taken out first so that nothing overflows. */
static double logsumexp(cvn_dtype dtype, const void *x, int64_t first, int64_t n)
{
    double peak = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++)
        peak = reduce_max(peak, element_get(dtype, x, first + i));
    if (!isfinite(peak))
        peak = 0;
    for (int64_t i = 0; i < n; i++)
        sum += exp(element_get(dtype, x, first + i) - peak);
    return log(sum) + peak;
}

void interp_softmax_cross_entropy(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *logits = op_in(op, 0);
    int64_t vocab = logits->dim[logits->rank - 1];
    const int32_t *target = in[1];
    for (int64_t row = 0, n = cvn_type_elements(op_in(op, 1)); row < n; row++) {
        double lse = logsumexp(logits->dtype, in[0], row * vocab, vocab);
        bool known = target[row] >= 0 && target[row] < vocab;
        double logit = known ? element_get(logits->dtype, in[0], row * vocab + target[row]) : 0;
        element_set(op_out(op, 0)->dtype, out[0], row, known ? lse - logit : 0);
        element_set(op_out(op, 1)->dtype, out[1], row, lse);
    }
}

/* The first of the largest; a NaN counts as -inf. */
void interp_argmax(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    Lines lines = type_lines(x, op->attr.axis);
    for (int64_t o = 0; o < lines.outer; o++) {
        for (int64_t r = 0; r < lines.inner; r++) {
            int64_t best = 0;
            double most = -INFINITY;
            for (int64_t i = 0; i < lines.n; i++) {
                double e = element_get(x->dtype, in[0], (o * lines.n + i) * lines.inner + r);
                if (e > most) { /* never so for a NaN */
                    most = e;
                    best = i;
                }
            }
            ((int32_t *)out[0])[o * lines.inner + r] = (int32_t)best;
        }
    }
}

void interp_random_bits(const Op *op, const void *const *in, void *const *out)
{
    const uint32_t *k0 = in[0], *k1 = in[1], *c0 = in[2], *c1 = in[3];
    for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++) {
        uint32_t word[2];
        rng_threefry2x32((uint32_t[]){k0[i], k1[i]}, (uint32_t[]){c0[i], c1[i]}, word);
        ((uint32_t *)out[0])[i] = word[0];
    }
}

/* What the logits above v weigh together: 1 each, or e^(logit - best). */
static double weight_above(const float *x, int64_t n, float v, const float *best)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += !(x[i] > v) ? 0 : best ? exp((double)x[i] - (double)*best) : 1;
    return sum;
}

/* A logit stays if those above it are fewer than k, weigh less than the share p of the k largest, and it is not too
   unlikely. */
void interp_keep_likeliest(const Op *op, const void *const *in, void *const *out)
{
    int64_t rows = op_in(op, 0)->dim[0], n = op_in(op, 0)->dim[1];
    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)in[0] + row * n;
        float *y = (float *)out[0] + row * n, best = -INFINITY, p = ((const float *)in[2])[row];
        double min_p = (double)((const float *)in[3])[row], total = 0;
        int64_t k = ((const int32_t *)in[1])[row];
        k = k <= 0 || k > n ? n : k;
        for (int64_t i = 0; i < n; i++)
            best = x[i] > best ? x[i] : best;
        for (int64_t i = 0; i < n; i++) { /* of equals, as many as make k */
            double above = weight_above(x, n, x[i], NULL), same = 0;
            for (int64_t j = 0; j < n; j++)
                same += x[j] == x[i];
            double left = (double)k - above, part = left < same ? left / same : 1;
            total += left > 0 && x[i] > -INFINITY ? part * exp((double)x[i] - (double)best) : 0;
        }
        for (int64_t i = 0; i < n; i++) {
            bool top_k = weight_above(x, n, x[i], NULL) < (double)k;
            bool top_p = p >= 1 || weight_above(x, n, x[i], &best) < (double)p * total;
            bool keep = top_k && top_p && exp((double)x[i] - (double)best) >= min_p;
            y[i] = keep || x[i] == best ? x[i] : -INFINITY;
        }
    }
}

/* The Gumbel noise of an entry, each step rounded to f32 as the decomposition's are. */
static float gumbel(const uint32_t key[2], uint32_t entry, uint32_t position)
{
    uint32_t word[2];
    rng_threefry2x32(key, (uint32_t[]){entry, position}, word);
    float u = ((float)(word[0] >> 9) + 0.5f) * 0x1p-23f;
    float surprise = -(float)log((double)u);
    return -(float)log((double)surprise);
}

void interp_categorical(const Op *op, const void *const *in, void *const *out)
{
    int64_t rows = op_in(op, 0)->dim[0], n = op_in(op, 0)->dim[1];
    const bool *greedy = in[1];
    for (int64_t row = 0; row < rows; row++) {
        const uint32_t *key = (const uint32_t *)in[2] + 2 * row;
        uint32_t position = ((const uint32_t *)in[3])[row];
        float most = -INFINITY;
        int64_t best = 0;
        for (int64_t i = 0; i < n; i++) {
            float x = ((const float *)in[0])[row * n + i];
            x = greedy[row] ? x : x + gumbel(key, (uint32_t)i, position);
            if (x > most) { /* never so for a NaN */
                most = x;
                best = i;
            }
        }
        ((int32_t *)out[0])[row] = (int32_t)best;
    }
}
