/*
 * attention: causal, grouped queries, over a cache with a start and a length for each row, and, where documents share
 * a row, a first key for each query; with windows, chunks, caps and sinks. Compiled once per instruction set; ISA_GEMM names the micro-kernel to use, of f32.
 * (Where bf16 is multiplied, prompts have a kernel of their own, attention_tiles_impl.h.)
 *
 * The scores of a query are never all kept: keys are taken KEYS at a time, and the softmax is corrected as its
 * largest score grows (Milakov and Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135). With m
 * the largest score so far, l the sum of exp(score - m) and o the sum of exp(score - m) * value:
 *
 *     m' = max(m, scores of the tile)       l' = l exp(m - m') + sum of exp(score - m')
 *                                           o' = o exp(m - m') + sum of exp(score - m') value
 *
 * The result is o / l. A sink is a score without a value: m begins as it, and l as 1. Windows and chunks are first keys, before
 * which nothing is read but in the same KEYS. All queries that share a KV head are taken together, so that a key is read once for all:
 * a few positions (decoding) by dot products against the keys where they lie; many (prefill) as two matrix
 * products on packed tiles, with the micro-kernel of gemm.h. Threads share chunks of keys there (attention_few_impl.h),
 * and batch x KV heads x tiles of queries here; what a query gives does not depend on the others, but few and many
 * positions sum in different orders.
 */
#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/constant_rows.h"
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
           op->operand[1]->type.dim[2] <= INT32_MAX && attention_sinks_match(op);
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
    vf high = vf_splat(*peak), total = vf_zero();
    for (int64_t i = 0; i < n; i += VN)
        high = vf_max(vf_load_part_or(score + i, n - i, -INFINITY), high);
    float top = vf_max_lane(high), base = isfinite(top) ? top : 0.0f;
    for (int64_t i = 0; i < n; i += VN) {
        vf p = vf_exp(vf_load_part_or(score + i, n - i, -INFINITY) - vf_splat(base));
        vf_store_part(score + i, p, n - i);
        total += p;
    }
    float factor = vf_exp(vf_splat(*peak - base))[0];
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
    int64_t rows;    /* most queries at a time */
    int64_t columns; /* columns of a C tile: queries of a group */
    int64_t groups;  /* groups of queries */
    int64_t keys;    /* most keys at a time, whole A panels */
    float *q;        /* [groups * columns / 16][head_dim][16]: B panels */
    float *k;        /* [keys / mr][head_dim][mr]: A panels */
    float *v;        /* [head_dim / mr, rounded up][keys][mr]: A panels */
    float *score;    /* [keys][columns]: C tiles of one group */
    float *p;        /* [columns / 16][keys][16]: B panels of one group */
    float *o;        /* [groups][d_rows][columns]: C tiles */
    int64_t d_rows;  /* head_dim in whole A panels */
    float *lines; /* [rows or keys][head_dim]: what is packed, as f32; and a row that is written */
    float *peak, *sum, *factor; /* [groups * columns] */
    int32_t *first, *seen;      /* [groups * columns]: a query sees keys first … seen - 1 */
} Many;

static size_t many_of(const Attention *a, char *base, Many *m)
{
    const GemmIsa *isa = &ISA_GEMM;
    const int64_t size = sizeof(float), d = a->head_dim;
    size_t used = 0;
    *m = (Many){.columns = GEMM_PANEL * isa->panels, .keys = KEYS / isa->mr * isa->mr};
    assert(isa->kpack == 1);
    m->rows = num_min(num_max(ROWS / a->group, 1), a->seq) * a->group;
    m->groups = num_pieces(m->rows, m->columns);
    m->d_rows = num_round_up(d, isa->mr);
    int64_t queries = m->groups * m->columns;
    m->q = scratch_take(base, &used, queries * d * size);
    m->k = scratch_take(base, &used, m->keys * d * size);
    m->v = scratch_take(base, &used, m->d_rows * m->keys * size);
    m->score = scratch_take(base, &used, m->keys * m->columns * size);
    m->p = scratch_take(base, &used, m->keys * m->columns * size);
    m->o = scratch_take(base, &used, queries * m->d_rows * size);
    m->lines = scratch_take(base, &used, num_max(m->rows, m->keys) * d * size);
    m->peak = scratch_take(base, &used, queries * size);
    m->sum = scratch_take(base, &used, queries * size);
    m->factor = scratch_take(base, &used, queries * size);
    m->first = scratch_take(base, &used, queries * size);
    m->seen = scratch_take(base, &used, queries * size);
    return used;
}

/* n lines of head_dim as panels of `width` of them; zeros past the last. */
static void pack_lines(const Attention *a, const float *lines, int64_t n, int width, int64_t panels,
                       float *out)
{
    int64_t d = a->head_dim;
    const GemmOperand x = {.dtype = CVN_F32,
                           .row = {.n = 1, .size = {n}, .stride = {d}},
                           .k = {.n = 1, .size = {d}, .stride = {1}}};
    gemm_pack_panels(&ISA_GEMM, &x, lines, n, 0, width, panels, 0, d, out,
                     (size_t)(width * d) * sizeof *out);
}

/* Queries of positions, scaled, as B panels; those behind them are zeros and not looked at. */
static void pack_queries(const Attention *a, const Many *m, const Positions *p)
{
    int64_t n = a->group * a->head_dim;
    for (int64_t s = 0; s < p->n; s++) {
        float *line = m->lines + s * n;
        int64_t at = query_at(a, p->b, p->from + s, p->h * a->group);
        const float *q = tile_read(a->q_dtype, a->q, at, n, line);
        for (int64_t i = 0; i < n; i++)
            line[i] = q[i] * a->scale;
    }
    pack_lines(a, m->lines, p->n * a->group, GEMM_PANEL, m->groups * m->columns / GEMM_PANEL, m->q);
}

/* n keys (or values) as f32: where they lie, or in m->lines. `at` counts positions of all heads. */
static const float *read_keys(const Attention *a, const Many *m, const void *data,
                              const uint16_t *scale, int64_t at, int64_t n)
{
    int64_t d = a->head_dim;
    if (a->kv_dtype != CVN_I8)
        return tile_read(a->kv_dtype, data, at * d, n * d, m->lines);
    const int8_t *x = (const int8_t *)data + at * d;
    float *line = m->lines;
    for (int64_t j = 0; j < n; j++, x += d, line += d)
        for (int64_t i = 0; i < d; i += VN)
            vf_store_part(line + i,
                          vf_load_i8_part(x + i, d - i) * vf_splat(bf16_to_f32(scale[at + j])),
                          d - i);
    return m->lines;
}

/* Keys [first, first + keys) and their values as A panels; keys past the end and columns past head_dim are zeros. */
static void pack_keys(const Attention *a, const Many *m, int64_t first, int64_t keys)
{
    int64_t d = a->head_dim, mr = ISA_GEMM.mr;
    const float *k = read_keys(a, m, a->k, a->k_scale, first, keys);
    pack_lines(a, k, keys, ISA_GEMM.mr, num_pieces(keys, mr), m->k);
    const float *v = read_keys(a, m, a->v, a->v_scale, first, keys);
    for (int64_t j = 0; j < keys; j++, v += d)
        for (int64_t i = 0; i < d; i += mr) {
            float *to = m->v + i * m->keys + j * mr;
            int64_t n = num_min(mr, d - i);
            memcpy(to, v + i, (size_t)n * sizeof *to);
            memset(to + n, 0, (size_t)(mr - n) * sizeof *to);
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

/* Softens the scores of queries [c, c + VN) of a group into p; `masked` where some do not see all keys, cap > 0 where scores
   are capped, and masked. */
VEC_INLINE void soften_queries(const Many *m, int64_t query, int64_t c, int64_t j, int64_t keys,
                               bool masked, float cap)
{
    vf old = vf_load(m->peak + query + c), high = old;
    float *score = m->score + c;
    for (int64_t i = 0; i < keys; i++, score += m->columns) {
        vf x = vf_load(score);
        if (cap > 0)
            x = vf_cap(x, cap);
        if (masked) {
            x = vf_select(sees(m, query + c, j + i), x, vf_splat(-INFINITY));
            vf_store(score, x);
        }
        high = vf_max(x, high);
    }
    vf base = vf_select(vf_abs(high) < INFINITY, high, vf_zero());
    float *p = m->p + c / GEMM_PANEL * m->keys * GEMM_PANEL + c % GEMM_PANEL;
    vf total = vf_zero();
    score = m->score + c;
    for (int64_t i = 0; i < keys; i++, score += m->columns, p += GEMM_PANEL) {
        vf x = vf_exp(vf_load(score) - base);
        vf_store(p, x);
        total += x;
    }
    vf factor = vf_exp(old - base);
    vf_store(m->factor + query + c, factor);
    vf_store(m->sum + query + c, vf_fma(vf_load(m->sum + query + c), factor, total));
    vf_store(m->peak + query + c, high);
}

/* One group of queries and one tile of keys, packed already: scores = k q', softened, o += v' p. */
static void attend_group(const Attention *a, const Many *m, int64_t g, int64_t j, int64_t keys)
{
    const GemmIsa *isa = &ISA_GEMM;
    int64_t d = a->head_dim, mr = isa->mr, query = g * m->columns;
    const Seen s = seen_by(m->first + query, m->seen + query, m->columns);
    if (s.most <= j || s.least_first >= j + keys)
        return;
    bool masked = s.least < j + keys || s.most_first > j;
    for (int64_t i = 0; i < keys; i += mr)
        isa->tile(d, m->k + i * d, m->q + query * d, (size_t)d * GEMM_PANEL * sizeof(float),
                  m->score + i * m->columns, false);
    for (int64_t c = 0; c < m->columns; c += VN) {
        if (a->cap > 0)
            soften_queries(m, query, c, j, keys, true, a->cap);
        else if (masked)
            soften_queries(m, query, c, j, keys, true, 0);
        else
            soften_queries(m, query, c, j, keys, false, 0);
    }
    float *o = m->o + query * m->d_rows;
    bool same = true;
    for (int64_t c = 0; c < m->columns; c++)
        same = same && m->factor[query + c] == 1.0f;
    for (int64_t i = 0; !same && i < m->d_rows; i++)
        for (int64_t c = 0; c < m->columns; c += VN) {
            float *x = o + i * m->columns + c;
            vf_store(x, vf_load(x) * vf_load(m->factor + query + c));
        }
    for (int64_t i = 0; i < m->d_rows; i += mr)
        isa->tile(keys, m->v + i * m->keys, m->p, (size_t)m->keys * GEMM_PANEL * sizeof(float),
                  o + i * m->columns, true);
}

static void write_queries(const Attention *a, const Many *m, const Positions *p)
{
    int64_t columns = m->columns;
    for (int64_t r = 0; r < p->n * a->group; r++) {
        int64_t s = p->from + r / a->group;
        int64_t at = query_at(a, p->b, s, p->h * a->group + r % a->group);
        if (s >= a->length[p->b]) {
            write_zero(a, at);
            continue;
        }
        const float *o = m->o + r / columns * columns * m->d_rows + r % columns;
        const float factor = 1.0f / m->sum[r];
        for (int64_t i = 0; i < a->head_dim; i++)
            m->lines[i] = o[i * columns] * factor;
        tile_write(a->q_dtype, a->out, at, a->head_dim, m->lines);
    }
}

/* Positions of the heads that share a KV head. */
static void attend_many(const Attention *a, const Many *m, const Positions *p)
{
    int64_t queries = m->groups * m->columns, begin;
    int64_t end = attention_see(a, p->b, p->from * a->group, p->n * a->group, queries, m->first,
                                m->seen, &begin);
    for (int64_t r = 0; r < queries; r++) {
        int64_t head = p->h * a->group + r % a->group;
        m->peak[r] = attention_sink(a, head, &m->sum[r]);
    }
    memset(m->o, 0, (size_t)(queries * m->d_rows) * sizeof *m->o);
    if (end > 0)
        pack_queries(a, m, p);
    int64_t cache = (p->b * a->kv_heads + p->h) * a->context;
    for (int64_t j = begin / m->keys * m->keys; j < end; j += m->keys) {
        int64_t keys = num_min(m->keys, end - j);
        pack_keys(a, m, cache + j, keys);
        for (int64_t g = 0; g < m->groups; g++)
            attend_group(a, m, g, j, keys);
    }
    write_queries(a, m, p);
}

/* ---- sharing ---- */

static size_t scratch(const Op *op, int n_threads)
{
    Attention a = attention_of(op, NULL);
    Many m;
    return a.seq <= FEW ? few_scratch(&a, n_threads) : many_of(&a, NULL, &m) * (size_t)n_threads;
}

static void run(const KernelArgs *args)
{
    Attention a = attention_of(args->op, args);
    Positions p = {0};
    Many m;
    if (a.batch == 0 || a.seq == 0 || a.heads == 0)
        return;
    if (a.seq <= FEW) {
        run_few(&a, args);
        return;
    }
    size_t bytes = many_of(&a, NULL, &m);
    many_of(&a, (char *)args->scratch + bytes * (size_t)args->thread, &m);
    while (attention_next(&a, args, m.rows / a.group, &p))
        attend_many(&a, &m, &p);
}

const Kernel ISA_NAME(attention_kernels)[] = {
    {.name = "attention." ISA,
     .kind = OP_ATTENTION,
     .match = match,
     .scratch = scratch,
     .run = run},
    {0},
};
