/* The gradients of composites, each by its formula in caravan/graph.h, summed in f64. No memory is
   needed but results and the stack: what does not fit there is computed anew. */
#include "base/num.h"
#include "graph/attention.h"
#include "graph/interp/interp_impl.h"
#include "graph/reduce.h"

#include <math.h>

/* dx of one row, whose norm multiplies by `scale`. */
static void norm_row(const Op *op, const void *const *in, int64_t row, double scale, void *dx)
{
    const cvn_type *type = op_in(op, 0);
    cvn_dtype x = type->dtype, w = op_in(op, 1)->dtype, dy = op_in(op, 2)->dtype;
    int64_t d = type->dim[type->rank - 1];
    double along = 0;
    for (int64_t i = 0; i < d; i++)
        along += element_get(dy, in[2], row * d + i) * element_get(w, in[1], i) *
                 element_get(x, in[0], row * d + i) * scale;
    along /= (double)d;
    for (int64_t i = 0; i < d; i++) {
        double normed = element_get(x, in[0], row * d + i) * scale;
        double dn = element_get(dy, in[2], row * d + i) * element_get(w, in[1], i);
        element_set(x, dx, row * d + i, scale * (dn - normed * along));
    }
}

void interp_rms_norm_backward(const Op *op, const void *const *in, void *const *out)
{
    enum { PIECE = 256 };
    const cvn_type *x = op_in(op, 0);
    int64_t d = x->dim[x->rank - 1], rows = d ? cvn_type_elements(x) / d : 0;
    for (int64_t row = 0; row < rows; row++)
        norm_row(op, in, row, interp_norm_scale(x->dtype, in[0], row * d, d, op->attr.eps), out[0]);
    for (int64_t first = 0; first < d; first += PIECE) {
        int64_t width = num_min(d - first, PIECE);
        double sum[PIECE] = {0};
        for (int64_t row = 0; row < rows; row++) {
            double scale = interp_norm_scale(x->dtype, in[0], row * d, d, op->attr.eps);
            for (int64_t i = 0; i < width; i++) {
                int64_t at = row * d + first + i;
                sum[i] += element_get(op_in(op, 2)->dtype, in[2], at) *
                          element_get(x->dtype, in[0], at) * scale;
            }
        }
        for (int64_t i = 0; i < width; i++)
            element_set(op_out(op, 1)->dtype, out[1], first + i, sum[i]);
    }
}

/* Attention's operands, and the shape that they have in common. */
typedef struct Attention {
    const Op *op;
    const void *const *in;
    int64_t batch, seq, heads, kv_heads, context, head_dim;
} Attention;

/* One query of one head, and what its softmax needs. */
typedef struct Query {
    int64_t b, s, h;
    int64_t row;        /* offset of its row in q and dy */
    int64_t first, n;   /* keys seen: first … n - 1; none where n is 0: padding */
    double peak, total; /* largest score, and the sum of exp(score - peak) */
    double mean;        /* sum over keys of weight * dweight */
} Query;

static int64_t key_row(const Attention *a, const Query *query, int64_t key)
{
    int64_t kv = query->h / (a->heads / a->kv_heads);
    return ((query->b * a->kv_heads + kv) * a->context + key) * a->head_dim;
}

/* Row `key` of operand 1 or 2 times the query's row of operand 0 or 5. */
static double row_product(const Attention *a, const Query *query, int rows, int keys, int64_t key)
{
    double sum = 0;
    int64_t at = key_row(a, query, key);
    for (int64_t i = 0; i < a->head_dim; i++)
        sum += element_get(op_in(a->op, rows)->dtype, a->in[rows], query->row + i) *
               element_get(op_in(a->op, keys)->dtype, a->in[keys], at + i);
    return sum;
}

static double attention_weight(const Attention *a, const Query *query, int64_t key)
{
    double score = row_product(a, query, 0, 1, key) * a->op->attr.scale;
    return exp(score - query->peak) / query->total;
}

static double attention_dweight(const Attention *a, const Query *query, int64_t key)
{
    return row_product(a, query, 5, 2, key);
}

static double attention_dscore(const Attention *a, const Query *query, int64_t key)
{
    return attention_weight(a, query, key) * (attention_dweight(a, query, key) - query->mean) *
           a->op->attr.scale;
}

static Query attention_query(const Attention *a, int64_t b, int64_t s, int64_t h)
{
    const int32_t *start = a->in[3], *length = a->in[4];
    const int32_t *first = attention_first(a->op) ? a->in[6] : NULL;
    Query query = {.b = b, .s = s, .h = h, .peak = -INFINITY, .total = 1};
    query.row = ((b * a->seq + s) * a->heads + h) * a->head_dim;
    query.n = s < length[b] ? interp_within(start[b] + s + 1, 0, a->context) : 0;
    if (first)
        query.first = interp_within(first[b * a->seq + s], 0, query.n);
    for (int64_t key = query.first; key < query.n; key++)
        query.peak = reduce_max(query.peak, row_product(a, &query, 0, 1, key) * a->op->attr.scale);
    if (!isfinite(query.peak))
        query.peak = 0;
    double total = 0;
    for (int64_t key = query.first; key < query.n; key++)
        total += attention_weight(a, &query, key);
    query.total = total;
    for (int64_t key = query.first; key < query.n; key++)
        query.mean += attention_weight(a, &query, key) * attention_dweight(a, &query, key);
    return query;
}

static void attention_dq(const Attention *a, const Query *query, void *dq)
{
    enum { PIECE = 256 };
    cvn_dtype k = op_in(a->op, 1)->dtype;
    for (int64_t first = 0; first < a->head_dim; first += PIECE) {
        int64_t width = num_min(a->head_dim - first, PIECE);
        double sum[PIECE] = {0};
        for (int64_t key = query->first; key < query->n; key++) {
            double dscore = attention_dscore(a, query, key);
            int64_t at = key_row(a, query, key) + first;
            for (int64_t i = 0; i < width; i++)
                sum[i] += dscore * element_get(k, a->in[1], at + i);
        }
        for (int64_t i = 0; i < width; i++)
            element_set(op_out(a->op, 0)->dtype, dq, query->row + first + i, sum[i]);
    }
}

/* A piece of dk and dv on the stack: some keys of one KV head, some elements of their rows. */
enum { KEYS = 16, WIDTH = 64 };

typedef struct KeyPiece {
    int64_t b, kv, key, n_keys, first, width;
    double dk[KEYS][WIDTH], dv[KEYS][WIDTH];
} KeyPiece;

static void add_query(const Attention *a, const Query *query, KeyPiece *p)
{
    cvn_dtype q = op_in(a->op, 0)->dtype, dy = op_in(a->op, 5)->dtype;
    for (int64_t j = 0; j < p->n_keys && p->key + j < query->n; j++) {
        if (p->key + j < query->first)
            continue;
        double weight = attention_weight(a, query, p->key + j);
        double dscore = attention_dscore(a, query, p->key + j);
        for (int64_t i = 0; i < p->width; i++) {
            int64_t at = query->row + p->first + i;
            p->dk[j][i] += dscore * element_get(q, a->in[0], at);
            p->dv[j][i] += weight * element_get(dy, a->in[5], at);
        }
    }
}

/* Sums over all queries of the group that reads this KV head. */
static void attention_dkv(const Attention *a, KeyPiece *p, void *dk, void *dv)
{
    int64_t group = a->heads / a->kv_heads;
    for (int64_t s = 0; s < a->seq; s++) {
        for (int64_t h = p->kv * group; h < (p->kv + 1) * group; h++) {
            Query query = attention_query(a, p->b, s, h);
            add_query(a, &query, p);
        }
    }
    for (int64_t j = 0; j < p->n_keys; j++) {
        int64_t at = ((p->b * a->kv_heads + p->kv) * a->context + p->key + j) * a->head_dim;
        for (int64_t i = 0; i < p->width; i++) {
            element_set(op_out(a->op, 1)->dtype, dk, at + p->first + i, p->dk[j][i]);
            element_set(op_out(a->op, 2)->dtype, dv, at + p->first + i, p->dv[j][i]);
        }
    }
}

void interp_attention_backward(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *q = op_in(op, 0); /* [batch, seq, heads, head_dim] */
    const cvn_type *k = op_in(op, 1); /* [batch, kv_heads, context, head_dim] */
    Attention a = {op, in, q->dim[0], q->dim[1], q->dim[2], k->dim[1], k->dim[2], q->dim[3]};
    for (int64_t row = 0; row < a.batch * a.seq * a.heads; row++) {
        Query query =
            attention_query(&a, row / a.heads / a.seq, row / a.heads % a.seq, row % a.heads);
        attention_dq(&a, &query, out[0]);
    }
    for (int64_t head = 0; head < a.batch * a.kv_heads; head++) {
        for (int64_t key = 0; key < a.context; key += KEYS) {
            for (int64_t first = 0; first < a.head_dim; first += WIDTH) {
                KeyPiece piece = {
                    .b = head / a.kv_heads, .kv = head % a.kv_heads, .key = key, .first = first};
                piece.n_keys = num_min(a.context - key, KEYS);
                piece.width = num_min(a.head_dim - first, WIDTH);
                attention_dkv(&a, &piece, out[1], out[2]);
            }
        }
    }
}

void interp_softmax_cross_entropy_backward(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *logits = op_in(op, 0);
    int64_t vocab = logits->dim[logits->rank - 1];
    const int32_t *target = in[1];
    const float *lse = in[2], *dloss = in[3], *dlse = in[4];
    for (int64_t row = 0, n = cvn_type_elements(op_in(op, 1)); row < n; row++) {
        bool known = target[row] >= 0 && target[row] < vocab;
        double base = isfinite(lse[row]) ? (double)lse[row] : 0;
        double d = known ? (double)dloss[row] : 0;
        for (int64_t i = 0; i < vocab; i++) {
            int64_t at = row * vocab + i;
            double share =
                exp(element_get(logits->dtype, in[0], at) - base) * (d + (double)dlse[row]);
            element_set(logits->dtype, out[0], at, i == target[row] ? share - d : share);
        }
    }
}
