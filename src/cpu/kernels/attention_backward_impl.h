/*
 * attention_backward: the gradients of q, k and v, from scores that are computed anew. Compiled once per
 * instruction set; ISA_GEMM names the micro-kernel, of f32. (Where bf16 is multiplied, bf16 has a kernel of its own,
 * attention_backward_tiles_impl.h.)
 *
 * The queries of all heads that share a KV head are taken ROWS at a time against all keys that they see (Dao
 * 2023, arXiv:2307.08691, with a strip of scores instead of a tile, so that each is computed once). Nothing grows
 * with the square of the length. With S the scores, P their softmax and dO the gradient of the result:
 *
 *     S = Q K'    dP = dO V'                        strips [ROWS, keys seen]
 *     dS = scale P (dP - rowsum(P dP))              KEYS keys at a time
 *     dV += P' dO    dK += dS' Q    dQ += dS K
 *
 * Where scores are capped, S = cap tanh(scale Q K' / cap) and dS is times the slope of that, a third strip. A sink takes part in
 * the softmax, and its gradient is the sum over its head's queries of -(its weight) rowsum(P dP).
 *
 * All five are products of packed panels by the micro-kernel of gemm.h. A thread takes whole pairs of batch and
 * KV head, so that sums over queries have one order. Queries that are padding, or before the first key, are
 * left out: their gradient is 0 and they add nothing. Where documents share a row, blocks of keys that none of the
 * ROWS queries sees are left out too.
 */
#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

#include <assert.h>

enum {
    ROWS = 48, /* queries at a time: whole A panels of every instruction set */
    KEYS = 96, /* keys whose gradients are computed at a time: whole A panels and whole C tiles */
    UNIT = 4   /* bytes of a packed f32 */
};

/* Scratch of one thread. `columns` is the width of a C tile; mr the rows of an A panel; d_columns head_dim rounded up
   to columns. */
typedef struct Strip {
    const GemmIsa *isa;
    int64_t columns, d_columns, keys; /* keys: context rounded up to KEYS */
    char *k_rows, *v_rows;            /* [keys / 16] B panels over head_dim */
    char *k_columns;                  /* [keys / KEYS][d_columns / 16] B panels over KEYS keys */
    float *dk, *dv;                   /* [keys / mr][d_columns / columns] C tiles */
    float *score, *dweight;           /* [keys / columns][ROWS / mr] C tiles: the strips */
    float *slope;                     /* the same, of capped scores */
    double *dsinks;                   /* [batch, heads], of all threads */
    double *dsink;                    /* [group]: those of the heads that are at hand */
    char *q_rows, *dy_rows;           /* [ROWS / mr] A panels over head_dim */
    char *q_columns, *dy_columns;     /* [d_columns / 16] B panels over ROWS queries */
    char *weight, *dscore;            /* [KEYS / mr] A panels over ROWS queries */
    char *dscore_rows;                /* [ROWS / mr] A panels over KEYS keys */
    char *dscore_flat;                /* [ROWS][KEYS] as packed */
    float *dq;                        /* [ROWS / mr][d_columns / columns] C tiles */
    float *row;                       /* [d_columns] */
    float *mean, *inverse;            /* [ROWS]: rowsum(P dP), and 1 over the sum of powers */
    int32_t *first, *seen;            /* [ROWS]: a query sees keys first … seen - 1 */
} Strip;

static bool match(const Op *op)
{
    static const int tensors[] = {0, 1, 2, 5};
    for (int i = 0; i < 4; i++) {
        if (!tile_dtype(op_in(op, tensors[i])->dtype))
            return false;
    }
    return op_in(op, 1)->dim[2] <= INT32_MAX / 2 && attention_sinks_match(op);
}

/* Bytes of a panel of `width` rows over k. */
static size_t panel_bytes(int64_t width, int64_t k)
{
    return (size_t)(k * width) * UNIT;
}

static size_t strip_of(const AttentionOperands *a, const GemmIsa *isa, char *base, Strip *s)
{
    size_t used = 0;
    int64_t d = a->head_dim, columns = GEMM_PANEL * isa->panels;
    *s = (Strip){.isa = isa,
                 .columns = columns,
                 .d_columns = num_round_up(d, columns),
                 .keys = num_round_up(a->context, KEYS)};
    const int64_t keys = s->keys, d_columns = s->d_columns, over_d = d * UNIT;
    enum { over_keys = KEYS * UNIT, over_rows = ROWS * UNIT };
    s->k_rows = scratch_take(base, &used, keys * over_d);
    s->v_rows = scratch_take(base, &used, keys * over_d);
    s->k_columns = scratch_take(base, &used, keys / KEYS * d_columns * over_keys);
    s->dk = scratch_take(base, &used, keys * d_columns * UNIT);
    s->dv = scratch_take(base, &used, keys * d_columns * UNIT);
    s->score = scratch_take(base, &used, ROWS * keys * UNIT);
    s->dweight = scratch_take(base, &used, ROWS * keys * UNIT);
    s->slope = scratch_take(base, &used, a->cap > 0 ? ROWS * keys * UNIT : 0);
    s->q_rows = scratch_take(base, &used, ROWS * over_d);
    s->dy_rows = scratch_take(base, &used, ROWS * over_d);
    s->q_columns = scratch_take(base, &used, d_columns * over_rows);
    s->dy_columns = scratch_take(base, &used, d_columns * over_rows);
    s->weight = scratch_take(base, &used, KEYS * over_rows);
    s->dscore = scratch_take(base, &used, KEYS * over_rows);
    s->dscore_rows = scratch_take(base, &used, ROWS * over_keys);
    s->dscore_flat = scratch_take(base, &used, ROWS * over_keys);
    s->dq = scratch_take(base, &used, ROWS * d_columns * UNIT);
    s->row = scratch_take(base, &used, d_columns * UNIT);
    s->mean = scratch_take(base, &used, ROWS * UNIT);
    s->inverse = scratch_take(base, &used, ROWS * UNIT);
    s->first = scratch_take(base, &used, ROWS * UNIT);
    s->seen = scratch_take(base, &used, ROWS * UNIT);
    return used;
}

/* Gradients of sinks are summed over the rows of a batch when all are there. */
static size_t dsinks_bytes(const Op *op)
{
    int64_t n = op->attr.sinks ? op_in(op, 0)->dim[0] * op_in(op, 0)->dim[2] : 0;
    return (size_t)n * sizeof(double);
}

static size_t scratch(const Op *op, int n_threads)
{
    Strip s;
    AttentionOperands a = attention_of(op, NULL);
    return strip_of(&a, &ISA_GEMM, NULL, &s) * (size_t)n_threads + dsinks_bytes(op);
}

/* ---- what lies where ---- */

/* Query r of a pair of batch and KV head is position r / group of head r % group: its dimensions in q and dy. */
static GemmDims query_dims(const AttentionOperands *a)
{
    int64_t along = a->heads * a->head_dim;
    if (a->group == 1)
        return (GemmDims){.n = 1, .size = {a->seq}, .stride = {along}};
    return (GemmDims){.n = 2, .size = {a->seq, a->group}, .stride = {along, a->head_dim}};
}

static GemmDims dims_of(int64_t size, int64_t stride)
{
    return (GemmDims){.n = 1, .size = {size}, .stride = {stride}};
}

static const void *element_at(const Op *op, int i, const void *data, int64_t at)
{
    return (const char *)data + (size_t)at * (op_in(op, i)->dtype == CVN_F32 ? 4 : 2);
}

/* The queries of a tile as A panels over head_dim, and as B panels over the queries. */
static void pack_queries(const AttentionOperands *a, const Strip *s, int i, const void *data,
                         int64_t r0, int64_t rows, char *over_d, char *over_rows)
{
    const GemmIsa *isa = s->isa;
    cvn_dtype dtype = op_in(a->op, i)->dtype;
    int64_t d = a->head_dim, panels = num_pieces(rows, isa->mr);
    GemmOperand by_row = {.dtype = dtype, .row = query_dims(a), .k = dims_of(d, 1)};
    gemm_pack_panels(isa, &by_row, data, r0 + rows, r0, isa->mr, panels, 0, d, over_d,
                     panel_bytes(isa->mr, d));
    GemmOperand by_column = {.dtype = dtype, .row = dims_of(d, 1), .k = query_dims(a)};
    gemm_pack_panels(isa, &by_column, data, d, 0, GEMM_PANEL, s->d_columns / GEMM_PANEL, r0, rows,
                     over_rows, panel_bytes(GEMM_PANEL, ROWS));
}

/* The first n keys and values of one KV head. */
static void pack_keys(const AttentionOperands *a, const Strip *s, const void *k, const void *v,
                      int64_t n)
{
    const GemmIsa *isa = s->isa;
    int64_t d = a->head_dim, panels = num_round_up(n, s->columns) / GEMM_PANEL;
    size_t panel = panel_bytes(GEMM_PANEL, d), block = panel_bytes(GEMM_PANEL, KEYS);
    GemmOperand by_row = {
        .dtype = op_in(a->op, 1)->dtype, .row = dims_of(n, d), .k = dims_of(d, 1)};
    gemm_pack_panels(isa, &by_row, k, n, 0, GEMM_PANEL, panels, 0, d, s->k_rows, panel);
    GemmOperand by_column = {.dtype = by_row.dtype, .row = dims_of(d, 1), .k = dims_of(n, d)};
    int64_t d_panels = s->d_columns / GEMM_PANEL;
    for (int64_t j = 0; j < n; j += KEYS)
        gemm_pack_panels(isa, &by_column, k, d, 0, GEMM_PANEL, d_panels, j, num_min(KEYS, n - j),
                         s->k_columns + (size_t)(j / KEYS * d_panels) * block, block);
    by_row.dtype = op_in(a->op, 2)->dtype;
    gemm_pack_panels(isa, &by_row, v, n, 0, GEMM_PANEL, panels, 0, d, s->v_rows, panel);
}

/* ---- softmax ---- */

/* Where row r of a strip has keys from `key`, a multiple of VN, on. */
static float *strip_at(const Strip *s, float *strip, int64_t r, int64_t key)
{
    int64_t c = key % s->columns;
    return strip + ((key - c) * ROWS + r * s->columns) + c;
}

/* The first n lanes. */
VEC_INLINE vi lanes_below(int64_t n)
{
    vi lane;
    for (int i = 0; i < VN; i++)
        lane[i] = i;
    return lane < (int32_t)num_min(n, VN);
}

/* Scores of VN keys of a row become scaled, and capped; -inf where it does not see them. */
VEC_INLINE vf scale_scores(const AttentionOperands *a, const Strip *s, int64_t r, int64_t key)
{
    float *score = strip_at(s, s->score, r, key);
    vf x = vf_load(score) * vf_splat(a->scale);
    if (a->cap > 0) {
        vf t = vf_tanh(x * vf_splat(1.0f / a->cap));
        vf_store(strip_at(s, s->slope, r, key), 1.0f - t * t);
        x = t * vf_splat(a->cap);
    }
    int64_t left = s->seen[r] - key, before = s->first[r] - key;
    if (left < VN)
        x = vf_select(lanes_below(left), x, vf_splat(-INFINITY));
    if (before > 0)
        x = vf_select(lanes_below(before), vf_splat(-INFINITY), x);
    vf_store(score, x);
    return x;
}

/* Scores of a row become exp(scale score - peak); finds their sum, with the sink of head `head` of the group, and the mean of
   dweight under them. In the last vector that holds a key, what is past it becomes 0. */
static void soften_row(const AttentionOperands *a, const Strip *s, int64_t r, int64_t kv_head,
                       int64_t head)
{
    int64_t n = s->seen[r], begin = s->first[r] / SUM_LANES * SUM_LANES;
    float sum, sink = attention_sink(a, kv_head * a->group + head, &sum);
    vf most = vf_splat(sink);
    for (int64_t key = begin; key < n; key += VN)
        most = vf_max(scale_scores(a, s, r, key), most);
    float peak = vf_max_lane(most);
    vf base = vf_splat(isfinite(peak) ? peak : 0.0f);
    VecSum total = vec_sum_zero(), along = total;
    for (int64_t key = begin; key < n; key += VN) {
        const int64_t lanes = key / VN % SUM_VECTORS;
        float *dweight = strip_at(s, s->dweight, r, key), *score = strip_at(s, s->score, r, key);
        vf p = vf_exp(vf_load(score) - base), d = vf_load(dweight);
        if (n - key < VN) {
            d = vf_select(lanes_below(n - key), d, vf_zero());
            vf_store(dweight, d);
        }
        vf_store(score, p);
        total.part[lanes] += p;
        along.part[lanes] = vf_fma(p, d, along.part[lanes]);
    }
    sum *= vf_exp(vf_splat(sink) - base)[0];
    s->inverse[r] = 1.0f / (a->sinks ? vec_sum(&total) + sum : vec_sum(&total));
    s->mean[r] = vec_sum(&along) * s->inverse[r];
    if (a->sinks)
        s->dsink[head] -= (double)(sum * s->inverse[r] * s->mean[r]);
}

/* P and dS of VN keys of a row, 0 where it does not see them. */
VEC_INLINE void weigh(const AttentionOperands *a, const Strip *s, int64_t r, int64_t key, vf *p,
                      vf *ds)
{
    *p = *ds = vf_zero();
    if (key >= s->seen[r] || key + VN <= s->first[r])
        return;
    *p = vf_load(strip_at(s, s->score, r, key)) * vf_splat(s->inverse[r]);
    vf d = vf_load(strip_at(s, s->dweight, r, key)) - vf_splat(s->mean[r]);
    *ds = *p * d * vf_splat(a->scale);
    if (a->cap > 0)
        *ds *= vf_load(strip_at(s, s->slope, r, key));
}

/* A line of KEYS numbers goes to row u of the A panels over queries. */
static void write_line(const Strip *s, const float *line, int64_t u, char *panels)
{
    const size_t mr = (size_t)s->isa->mr, panel = panel_bytes((int64_t)mr, ROWS);
    char *to = panels + (size_t)u * mr * UNIT;
    for (size_t i = 0; i < KEYS; i += mr, to += panel)
        memcpy(to, line + i, mr * UNIT);
}

/* P and dS of one block of keys, packed for the three products that use them. */
static void weigh_block(const AttentionOperands *a, const Strip *s, int64_t rows, int64_t key)
{
    const GemmIsa *isa = s->isa;
    float p_line[KEYS], ds_line[KEYS];
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < KEYS; c += VN) {
            vf p, ds;
            weigh(a, s, r, key + c, &p, &ds);
            vf_store(p_line + c, p);
            vf_store(ds_line + c, ds);
            vf_store((float *)(void *)s->dscore_flat + r * KEYS + c, ds);
        }
        write_line(s, p_line, r, s->weight);
        write_line(s, ds_line, r, s->dscore);
    }
    GemmOperand flat = {.dtype = isa->packed, .row = dims_of(ROWS, KEYS), .k = dims_of(KEYS, 1)};
    gemm_pack_panels(isa, &flat, s->dscore_flat, rows, 0, isa->mr, num_pieces(rows, isa->mr), 0,
                     KEYS, s->dscore_rows, panel_bytes(isa->mr, KEYS));
}

/* ---- products ---- */

/* C tiles [n_a / mr][d_columns / columns] += A panels (a_panel bytes each) times B panels (b_panel bytes each), over
   `units`. */
static void multiply(const Strip *s, int64_t n_a, int64_t units, const char *a_panels,
                     size_t a_panel, const char *b_panels, size_t b_panel, float *c, bool add)
{
    const GemmIsa *isa = s->isa;
    size_t group = b_panel * (size_t)isa->panels;
    for (int64_t i = 0; i < n_a; i += isa->mr, a_panels += a_panel)
        for (int64_t g = 0; g < s->d_columns / s->columns; g++, c += isa->mr * s->columns)
            isa->tile(units, a_panels, b_panels + (size_t)g * group, b_panel, c, add);
}

/* Strips of scores and dweights: rows against keys [begin, n), begin a multiple of KEYS. */
static void make_strips(const AttentionOperands *a, const Strip *s, int64_t rows, int64_t begin,
                        int64_t n)
{
    const GemmIsa *isa = s->isa;
    int64_t d = a->head_dim;
    size_t a_panel = panel_bytes(isa->mr, d), b_panel = panel_bytes(GEMM_PANEL, d);
    for (int64_t j = begin; j < n; j += s->columns) {
        size_t keys = (size_t)(j / GEMM_PANEL) * b_panel;
        for (int64_t r = 0; r < rows; r += isa->mr) {
            size_t queries = (size_t)(r / isa->mr) * a_panel;
            isa->tile(d, s->q_rows + queries, s->k_rows + keys, b_panel,
                      strip_at(s, s->score, r, j), false);
            isa->tile(d, s->dy_rows + queries, s->v_rows + keys, b_panel,
                      strip_at(s, s->dweight, r, j), false);
        }
    }
}

/* Adds what `rows` packed queries, which see keys [begin, n) or fewer, give to dk and dv; and makes their dq. */
static void add_rows(const AttentionOperands *a, const Strip *s, int64_t rows, int64_t begin,
                     int64_t n)
{
    const GemmIsa *isa = s->isa;
    int64_t mr = isa->mr, tiles = s->d_columns * KEYS;
    size_t a_rows = panel_bytes(mr, ROWS), b_rows = panel_bytes(GEMM_PANEL, ROWS);
    size_t a_keys = panel_bytes(mr, KEYS), b_keys = panel_bytes(GEMM_PANEL, KEYS);
    for (int64_t j = begin; j < n; j += KEYS) {
        weigh_block(a, s, rows, j);
        multiply(s, KEYS, rows, s->weight, a_rows, s->dy_columns, b_rows, s->dv + j / KEYS * tiles,
                 true);
        multiply(s, KEYS, rows, s->dscore, a_rows, s->q_columns, b_rows, s->dk + j / KEYS * tiles,
                 true);
        multiply(s, rows, num_min(KEYS, n - j), s->dscore_rows, a_keys,
                 s->k_columns + (size_t)(j / KEYS * (s->d_columns / GEMM_PANEL)) * b_keys, b_keys,
                 s->dq, j > begin);
    }
}

/* Row r of C tiles, rounded to n = head_dim elements from `at` on. */
static void write_row(const AttentionOperands *a, const Strip *s, const float *tiles, int64_t r,
                      cvn_dtype dtype, void *out, int64_t at)
{
    int64_t mr = s->isa->mr, groups = s->d_columns / s->columns;
    const float *from = tiles + (r / mr * groups * mr + r % mr) * s->columns;
    for (int64_t g = 0; g < groups; g++, from += mr * s->columns)
        memcpy(s->row + g * s->columns, from, (size_t)s->columns * sizeof *from);
    tile_write(dtype, out, at, a->head_dim, s->row);
}

static void write_zeros(const Op *op, int i, void *out, int64_t at, int64_t n)
{
    size_t size = op->result[i]->type.dtype == CVN_F32 ? 4 : 2;
    memset((char *)out + (size_t)at * size, 0, (size_t)n * size);
}

/* A tile of `rows` queries of KV head h of row b, from number r0 on; q_at: where those of the pair begin. */
static void run_rows(const AttentionOperands *a, const Strip *s, int64_t b, int64_t h, int64_t q_at,
                     int64_t r0, int64_t rows)
{
    int64_t d = a->head_dim, begin;
    int64_t end = attention_see(a, b, r0, rows, rows, s->first, s->seen, &begin);
    begin = begin / KEYS * KEYS;
    if (end > 0) {
        pack_queries(a, s, 0, element_at(a->op, 0, a->q, q_at), r0, rows, s->q_rows, s->q_columns);
        pack_queries(a, s, 5, element_at(a->op, 5, a->dy, q_at), r0, rows, s->dy_rows,
                     s->dy_columns);
        make_strips(a, s, rows, begin, end);
        for (int64_t r = 0; r < rows; r++)
            soften_row(a, s, r, h, (r0 + r) % a->group);
        add_rows(a, s, rows, begin, end);
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = q_at + ((r0 + r) / a->group * a->heads + (r0 + r) % a->group) * d;
        if (end > 0)
            write_row(a, s, s->dq, r, a->op->result[0]->type.dtype, a->dq, at);
        else
            write_zeros(a->op, 0, a->dq, at, d);
    }
}

/* One pair of batch and KV head. Positions from `first` to `last` see a key and are no padding. */
static void run_head(const AttentionOperands *a, Strip *s, int64_t b, int64_t h)
{
    int64_t d = a->head_dim, last = num_min(a->length[b], a->seq);
    int64_t first = a->start[b] < 0 ? -(int64_t)a->start[b] : 0;
    int64_t q_at = (b * a->seq * a->heads + h * a->group) * d;
    int64_t kv_at = (b * a->kv_heads + h) * a->context * d;
    int64_t n = last > first ? attention_keys(a, b, last - 1) : 0;
    for (int64_t p = 0; p < a->seq; p++)
        if (p < first || p >= last || n == 0)
            write_zeros(a->op, 0, a->dq, q_at + p * a->heads * d, a->group * d);
    if (n > 0)
        pack_keys(a, s, element_at(a->op, 1, a->k, kv_at), element_at(a->op, 2, a->v, kv_at), n);
    size_t bytes = (size_t)(num_round_up(n, KEYS) * s->d_columns) * sizeof(float);
    memset(s->dk, 0, bytes);
    memset(s->dv, 0, bytes);
    s->dsink = a->sinks ? s->dsinks + b * a->heads + h * a->group : NULL;
    for (int64_t i = 0; a->sinks && i < a->group; i++)
        s->dsink[i] = 0;
    for (int64_t r0 = first * a->group; n > 0 && r0 < last * a->group; r0 += ROWS)
        run_rows(a, s, b, h, q_at, r0, num_min(ROWS, last * a->group - r0));
    for (int64_t j = 0; j < n; j++) {
        write_row(a, s, s->dk, j, a->op->result[1]->type.dtype, a->dk, kv_at + j * d);
        write_row(a, s, s->dv, j, a->op->result[2]->type.dtype, a->dv, kv_at + j * d);
    }
    write_zeros(a->op, 1, a->dk, kv_at + n * d, (a->context - n) * d);
    write_zeros(a->op, 2, a->dv, kv_at + n * d, (a->context - n) * d);
}

/* Sums over the rows of the batch. */
static void write_dsinks(const AttentionOperands *a, const Strip *s)
{
    for (int64_t head = 0; head < a->heads; head++) {
        double sum = 0;
        for (int64_t b = 0; b < a->batch && a->head_dim > 0; b++)
            sum += s->dsinks[b * a->heads + head];
        float rounded = (float)sum;
        tile_write(a->sinks_dtype, a->dsinks, head, 1, &rounded);
    }
}

static void run(const KernelArgs *args)
{
    AttentionOperands a = attention_of(args->op, args);
    Strip s;
    int64_t begin, end;
    size_t bytes = strip_of(&a, &ISA_GEMM, NULL, &s);
    strip_of(&a, &ISA_GEMM, (char *)args->scratch + bytes * (size_t)args->thread, &s);
    s.dsinks = (double *)(void *)((char *)args->scratch + bytes * (size_t)args->n_threads);
    assert(s.isa->kpack == 1 && ROWS % s.isa->mr == 0 && KEYS % s.isa->mr == 0 &&
           KEYS % s.columns == 0);
    kernel_share(a.batch * a.kv_heads, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end && a.head_dim > 0; i++)
        run_head(&a, &s, i / a.kv_heads, i % a.kv_heads);
    if (!a.sinks)
        return;
    kernel_sync(args);
    if (args->thread == 0)
        write_dsinks(&a, &s);
}

const Kernel ISA_NAME(attention_backward_kernels)[] = {
    {.name = "attention_backward." ISA,
     .kind = OP_ATTENTION_BACKWARD,
     .match = match,
     .scratch = scratch,
     .run = run},
    {0},
};
