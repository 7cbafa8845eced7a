/*
 * attention: causal, grouped queries, over a cache with a start and a length for each row, and, where documents share
 * a row, a first key for each query. Compiled once per instruction set; ISA_GEMM names the micro-kernel to use, of f32.
 * (Where bf16 is multiplied, prompts have a kernel of their own, attention_tiles_impl.h.)
 *
 * The scores of a query are never all kept: keys are taken KEYS at a time, and the softmax is corrected as its
 * largest score grows (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). With m
 * the largest score so far, l the sum of exp(score - m) and o the sum of exp(score - m) * value:
 *
 *     m' = max(m, scores of the tile)       l' = l exp(m - m') + sum of exp(score - m')
 *                                           o' = o exp(m - m') + sum of exp(score - m') value
 *
 * The result is o / l. All queries that share a KV head are taken together, so that a key is read once for all:
 * a few positions (decoding) by dot products against the keys where they lie; many (prefill) as two matrix
 * products on packed tiles, with the micro-kernel of gemm.h. Threads share chunks of keys there (attention_few_impl.h),
 * and batch x KV heads x tiles of queries here; what a query gives does not depend on the others, but few and many
 * positions sum in different orders.
 */
#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

#include <assert.h>

enum {
    KEYS = 128,  /* keys at a time */
    CHUNK = 256, /* keys of a chunk, which one thread takes */
    ROWS = 128,  /* queries at a time, over heads and positions; a group of heads may be larger */
    FEW = ATTENTION_FEW
};

static bool match(const Op *op)
{
    cvn_dtype q = op->operand[0]->type.dtype, kv = op->operand[1]->type.dtype;
#if defined(VEC_BF16) /* the kernel of AVX-512 takes the others */
    if (q != CVN_BF16 || (kv != CVN_BF16 && kv != CVN_I8) || op->operand[0]->type.dim[1] > FEW)
        return false;
#endif
    return tile_dtype(q) && (kv == CVN_F32 || kv == CVN_BF16 || kv == CVN_I8) &&
           op->operand[1]->type.dim[2] <= INT32_MAX;
}

/* Keys that position s of a row sees; 0 for padding. */
static int64_t keys_seen(const Attention *a, int64_t b, int64_t s)
{
    return s >= a->length[b] ? 0 : attention_keys(a, b, s);
}

/* Element where head h of position s begins, in q and the result. */
static int64_t query_at(const Attention *a, int64_t b, int64_t s, int64_t h)
{
    return ((b * a->seq + s) * a->heads + h) * a->head_dim;
}

/* Padding. */
static void write_zero(const Attention *a, int64_t at)
{
    size_t size = a->q_dtype == CVN_F32 ? 4 : 2;
    memset((char *)a->out + (size_t)at * size, 0, (size_t)a->head_dim * size);
}

/* ---- softmax over one tile of scores ---- */

/* Replaces n scores by exp(score - peak), peak being the largest of them and *peak; updates the sum, and returns
   what sums so far must be multiplied by. */
static float soften(float *score, int64_t n, float *peak, float *sum)
{
    vf high = vf_splat(*peak);
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        high = vf_max(vf_load(score + i), high);
    float top = vf_max_lane(high);
    for (; i < n; i++)
        top = score[i] > top ? score[i] : top;
    float base = isfinite(top) ? top : 0.0f;
    vf total = vf_zero(), b = vf_splat(base);
    for (i = 0; i + VN <= n; i += VN) {
        vf p = vf_exp(vf_load(score + i) - b);
        vf_store(score + i, p);
        total += p;
    }
    if (i < n) {
        float last[VN];
        for (int64_t j = 0; j < VN; j++)
            last[j] = i + j < n ? score[i + j] : -INFINITY;
        vf p = vf_exp(vf_load(last) - b);
        vf_store_part(score + i, p, n - i);
        total += p;
    }
    float lane[VN];
    vf_store(lane, vf_exp(vf_splat(*peak - base)));
    float factor = lane[0];
    *sum = *sum * factor + vf_sum(total);
    *peak = top;
    return factor;
}

#include "cpu/kernels/attention_few_impl.h"

/* ---- many positions ---- */

/* Scratch of one tile of queries: `rows` of them, row r being position s0 + r / group of head r % group. Scores
   are made transposed, [keys, queries], so that each lane of a vector is a query: the softmax needs no sum
   across lanes, and what comes out of it is packed as the next product wants it. */
typedef struct Many {
    const GemmIsa *isa;
    int64_t rows;               /* most queries at a time */
    int64_t columns;            /* columns of a C tile: queries of a group */
    int64_t groups;             /* groups of queries */
    int64_t keys;               /* most keys at a time, whole A panels */
    int64_t d_panels;           /* head_dim in A panels */
    float *q;                   /* [groups * columns / 16][head_dim][16]: B panels */
    float *k;                   /* [keys / mr][head_dim][mr]: A panels */
    float *v;                   /* [d_panels][keys][mr]: A panels */
    float *score;               /* [keys][columns]: C tiles of one group */
    float *p;                   /* [columns / 16][keys][16]: B panels of one group */
    float *o;                   /* [groups][d_panels][mr][columns]: C tiles */
    float *row;                 /* [2 * 16 * head_dim]: rows being converted */
    float *peak, *sum, *factor; /* [groups * columns] */
    int32_t *first, *seen;      /* [groups * columns]: a query sees keys first … seen - 1 */
} Many;

static size_t many_floats(const Attention *a, const GemmIsa *isa, Many *m)
{
    *m = (Many){.isa = isa, .columns = GEMM_PANEL * isa->panels, .keys = KEYS / isa->mr * isa->mr};
    int64_t positions = num_min(a->group < ROWS ? ROWS / a->group : 1, a->seq);
    m->rows = positions * a->group;
    m->groups = num_pieces(m->rows, m->columns);
    m->d_panels = num_pieces(a->head_dim, isa->mr);
    assert(isa->kpack == 1);
    int64_t queries = m->groups * m->columns, d_rows = m->d_panels * isa->mr;
    return (size_t)((queries + m->keys) * a->head_dim + d_rows * m->keys +
                    2 * m->keys * m->columns + queries * d_rows + 32 * a->head_dim + 5 * queries);
}

static size_t many_bytes(const Attention *a, const GemmIsa *isa)
{
    Many m;
    return (size_t)num_round_up((int64_t)(many_floats(a, isa, &m) * sizeof(float)), 64);
}

static Many many_of(const Attention *a, const GemmIsa *isa, float *at)
{
    Many m;
    many_floats(a, isa, &m);
    int64_t queries = m.groups * m.columns, d_rows = m.d_panels * isa->mr;
    m.q = at;
    m.k = m.q + queries * a->head_dim;
    m.v = m.k + m.keys * a->head_dim;
    m.score = m.v + d_rows * m.keys;
    m.p = m.score + m.keys * m.columns;
    m.o = m.p + m.keys * m.columns;
    m.row = m.o + queries * d_rows;
    m.peak = m.row + 32 * a->head_dim;
    m.sum = m.peak + queries;
    m.factor = m.sum + queries;
    m.first = (int32_t *)(void *)(m.factor + queries);
    m.seen = m.first + queries;
    return m;
}

/* Queries of positions from s0 on, scaled, as B panels; those past `rows` are zeros and see nothing. */
static void pack_queries(const Attention *a, const Many *m, int64_t b, int64_t h, int64_t s0,
                         int64_t rows)
{
    int64_t d = a->head_dim;
    for (int64_t r = 0; r < m->groups * m->columns; r += GEMM_PANEL) {
        const void *row[GEMM_PANEL];
        for (int64_t i = 0; i < GEMM_PANEL; i++) {
            float *x = m->row + i * d;
            row[i] = x;
            if (r + i >= rows) {
                memset(x, 0, (size_t)d * sizeof *x);
                continue;
            }
            int64_t s = s0 + (r + i) / a->group, head = h * a->group + (r + i) % a->group;
            const float *q = tile_read(a->q_dtype, a->q, query_at(a, b, s, head), d, x);
            for (int64_t e = 0; e < d; e++)
                x[e] = q[e] * a->scale;
        }
        m->isa->interleave(row, d, m->q + r * d);
    }
}

/* A key (or value) as f32: where it lies, or in buffer. `at` counts positions of all heads. */
static const float *read_key(const Attention *a, const void *data, const uint16_t *scale,
                             int64_t at, float *buffer)
{
    int64_t d = a->head_dim, i = 0;
    if (a->kv_dtype != CVN_I8)
        return tile_read(a->kv_dtype, data, at * d, d, buffer);
    const int8_t *x = (const int8_t *)data + at * d;
    float s = bf16_to_f32(scale[at]);
    for (; i + VN <= d; i += VN)
        vf_store(buffer + i, vf_load_i8(x + i) * vf_splat(s));
    for (; i < d; i++)
        buffer[i] = (float)x[i] * s;
    return buffer;
}

/* Keys [first, first + keys) as A panels; those past the end are zeros. */
static void pack_keys(const Attention *a, const Many *m, int64_t first, int64_t keys)
{
    int64_t d = a->head_dim, mr = m->isa->mr;
    float *tile = m->row + 16 * d; /* [head_dim][16] */
    for (int64_t j = 0; j < keys; j += mr) {
        const void *row[GEMM_PANEL];
        for (int64_t i = 0; i < GEMM_PANEL; i++) {
            row[i] = m->row + i * d;
            if (i < mr && j + i < keys)
                row[i] = read_key(a, a->k, a->k_scale, first + j + i, m->row + i * d);
            else
                memset(m->row + i * d, 0, (size_t)d * sizeof(float));
        }
        m->isa->interleave(row, d, tile);
        float *to = m->k + j * d;
        for (int64_t e = 0; e < d; e++)
            memcpy(to + e * mr, tile + e * GEMM_PANEL, (size_t)mr * sizeof *to);
    }
}

/* Their values as A panels; columns past head_dim are zeros. */
static void pack_values(const Attention *a, const Many *m, int64_t first, int64_t keys)
{
    int64_t d = a->head_dim, mr = m->isa->mr;
    for (int64_t j = 0; j < keys; j++) {
        const float *x = read_key(a, a->v, a->v_scale, first + j, m->row);
        for (int64_t i = 0; i < d; i += mr) {
            float *to = m->v + i * m->keys + j * mr;
            int64_t n = num_min(mr, d - i);
            memcpy(to, x + i, (size_t)n * sizeof *to);
            memset(to + n, 0, (size_t)(mr - n) * sizeof *to);
        }
    }
}

/* Which of VN queries, from `query` on, see key number `key`. */
VEC_INLINE vi sees(const Many *m, int64_t query, int64_t key)
{
    vi first, seen;
    memcpy(&first, m->first + query, sizeof first);
    memcpy(&seen, m->seen + query, sizeof seen);
    return (first <= (int32_t)key) & (seen > (int32_t)key);
}

/* p = exp(score - base) of VN queries; returns their sums. */
VEC_INLINE vf make_weights(const Many *m, int64_t c, int64_t keys, vf base)
{
    const float *score = m->score + c;
    float *p = m->p + c / GEMM_PANEL * m->keys * GEMM_PANEL + c % GEMM_PANEL;
    vf total = vf_zero();
    for (int64_t i = 0; i < keys; i++, score += m->columns, p += GEMM_PANEL) {
        vf x = vf_exp(vf_load(score) - base);
        vf_store(p, x);
        total += x;
    }
    return total;
}

/* Softens the scores of queries [c, c + VN) of a group into p; `masked` where some do not see all keys. */
VEC_INLINE void soften_queries(const Many *m, int64_t query, int64_t c, int64_t j, int64_t keys,
                               bool masked)
{
    vf old = vf_load(m->peak + query + c), high = old;
    float *score = m->score + c;
    for (int64_t i = 0; i < keys; i++, score += m->columns) {
        vf x = vf_load(score);
        if (masked) {
            x = vf_select(sees(m, query + c, j + i), x, vf_splat(-INFINITY));
            vf_store(score, x);
        }
        high = vf_max(x, high);
    }
    vf base = vf_select(vf_abs(high) < INFINITY, high, vf_zero());
    vf total = make_weights(m, c, keys, base);
    vf factor = vf_exp(old - base);
    vf_store(m->factor + query + c, factor);
    vf_store(m->sum + query + c, vf_fma(vf_load(m->sum + query + c), factor, total));
    vf_store(m->peak + query + c, high);
}

/* Multiplies the sums of a group by its factors. */
static void correct_group(const Many *m, int64_t query, float *o)
{
    bool same = true;
    for (int64_t c = 0; c < m->columns; c++)
        same = same && m->factor[query + c] == 1.0f;
    if (same)
        return;
    for (int64_t i = 0; i < m->d_panels * m->isa->mr; i++, o += m->columns)
        for (int64_t c = 0; c < m->columns; c += VN)
            vf_store(o + c, vf_load(o + c) * vf_load(m->factor + query + c));
}

/* One group of queries and one tile of keys, packed already: scores = k q', softened, o += v' p. */
static void attend_group(const Attention *a, const Many *m, int64_t g, int64_t j, int64_t keys)
{
    const GemmIsa *isa = m->isa;
    int64_t d = a->head_dim, mr = isa->mr, tile = mr * m->columns, query = g * m->columns;
    int64_t least_seen = INT32_MAX, most_seen = 0, least_first = INT32_MAX, most_first = 0;
    for (int64_t c = query; c < query + m->columns; c++) {
        least_seen = num_min(m->seen[c], least_seen);
        most_seen = num_max(m->seen[c], most_seen);
        least_first = num_min(m->first[c], least_first);
        most_first = num_max(m->first[c], most_first);
    }
    if (most_seen <= j || least_first >= j + keys)
        return;
    bool masked = least_seen < j + keys || most_first > j;
    for (int64_t i = 0; i < keys; i += mr)
        isa->tile(d, m->k + i * d, m->q + query * d, (size_t)d * GEMM_PANEL * sizeof(float),
                  m->score + i * m->columns, false);
    for (int64_t c = 0; c < m->columns; c += VN) {
        if (masked)
            soften_queries(m, query, c, j, keys, true);
        else
            soften_queries(m, query, c, j, keys, false);
    }
    float *o = m->o + g * m->d_panels * tile;
    correct_group(m, query, o);
    for (int64_t i = 0; i < m->d_panels; i++)
        isa->tile(keys, m->v + i * mr * m->keys, m->p, (size_t)m->keys * GEMM_PANEL * sizeof(float),
                  o + i * tile, true);
}

static void write_queries(const Attention *a, const Many *m, int64_t b, int64_t h, int64_t s0,
                          int64_t rows)
{
    int64_t columns = m->columns, tile = m->d_panels * m->isa->mr * columns;
    for (int64_t r = 0; r < rows; r++) {
        int64_t s = s0 + r / a->group, at = query_at(a, b, s, h * a->group + r % a->group);
        if (s >= a->length[b]) {
            write_zero(a, at);
            continue;
        }
        const float *o = m->o + r / columns * tile + r % columns, factor = 1.0f / m->sum[r];
        for (int64_t i = 0; i < a->head_dim; i++)
            m->row[i] = o[i * columns] * factor;
        tile_write(a->q_dtype, a->out, at, a->head_dim, m->row);
    }
}

/* Positions [s0, s0 + n) of the heads that share KV head h. */
static void attend_many(const Attention *a, const Many *m, int64_t b, int64_t h, int64_t s0,
                        int64_t n)
{
    int64_t rows = n * a->group, queries = m->groups * m->columns;
    int64_t begin = INT32_MAX, end = 0; /* of the keys that are seen */
    for (int64_t r = 0; r < queries; r++) {
        int64_t s = s0 + r / a->group, seen = r < rows ? keys_seen(a, b, s) : 0;
        int64_t first = r < rows ? attention_first_key(a, b, s) : INT32_MAX;
        end = num_max(end, seen);
        begin = seen > 0 ? num_min(begin, first) : begin;
        m->first[r] = (int32_t)first;
        m->seen[r] = (int32_t)seen;
        m->peak[r] = -INFINITY;
        m->sum[r] = 0;
    }
    memset(m->o, 0, (size_t)(queries * m->d_panels * m->isa->mr) * sizeof *m->o);
    if (begin < end)
        pack_queries(a, m, b, h, s0, rows);
    int64_t cache = (b * a->kv_heads + h) * a->context;
    for (int64_t j = begin / m->keys * m->keys; j < end; j += m->keys) {
        int64_t keys = num_min(m->keys, end - j);
        pack_keys(a, m, cache + j, keys);
        pack_values(a, m, cache + j, keys);
        for (int64_t g = 0; g < m->groups; g++)
            attend_group(a, m, g, j, keys);
    }
    write_queries(a, m, b, h, s0, rows);
}

/* ---- sharing ---- */

static size_t scratch(const Op *op, int n_threads)
{
    Attention a = attention_of(op, NULL);
    return a.seq <= FEW ? few_scratch(&a, n_threads)
                        : many_bytes(&a, &ISA_GEMM) * (size_t)n_threads;
}

/* Later tiles see more keys than earlier ones, so threads take turns, forth and back. */
static void run_many(const Attention *a, const KernelArgs *args)
{
    size_t bytes = many_bytes(a, &ISA_GEMM) * (size_t)args->thread;
    Many m = many_of(a, &ISA_GEMM, (float *)(void *)((char *)args->scratch + bytes));
    int64_t positions = m.rows / a->group, tiles = num_pieces(a->seq, positions);
    int64_t items = a->batch * a->kv_heads * tiles, threads = args->n_threads;
    for (int64_t turn = 0; turn * threads < items && !kernel_cancelled(args); turn++) {
        int64_t i = turn * threads + (turn % 2 ? threads - 1 - args->thread : args->thread);
        if (i >= items)
            continue;
        int64_t s0 = i % tiles * positions, bh = i / tiles;
        attend_many(a, &m, bh / a->kv_heads, bh % a->kv_heads, s0, num_min(positions, a->seq - s0));
    }
}

static void run(const KernelArgs *args)
{
    Attention a = attention_of(args->op, args);
    if (a.batch == 0 || a.seq == 0 || a.heads == 0)
        return;
    if (a.seq <= FEW)
        run_few(&a, args);
    else
        run_many(&a, args);
}

const Kernel ISA_NAME(attention_kernels)[] = {
    {.name = "attention." ISA,
     .kind = OP_ATTENTION,
     .match = match,
     .scratch = scratch,
     .run = run},
    {0},
};
