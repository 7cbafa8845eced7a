/*
 * attention: causal, grouped queries, over a cache with a start and a length for each row, and, where documents share
 * a row, a first key for each query; with windows, chunks, caps and sinks. Compiled once per instruction set.
 * (On tiles of AMX prompts have a kernel of their own, attention_tiles_impl.h.)
 *
 * Keys are taken in blocks of KEYS, which are counted from position 0, and of which each lies in one page. Each block gives a query its largest score m, the sum l of
 * exp(score - m) and the sum o of exp(score - m) * value, and these are folded one after the other, from the first block to the last (Milakov and
 * Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135): with the sums so far on the left,
 *
 *     M' = max(M, m)      L' = L exp(M - M') + l exp(m - M')      O' = O exp(M - M') + o exp(m - M')
 *
 * The result is O / L. A sink is a score without a value: M begins as it, and L as 1. Windows and chunks are first keys, before
 * which nothing counts.
 *
 * Where a block ends depends on the position of its keys alone, the order is always the same, and what a block gives a query
 * does not depend on other queries (attention_block_impl.h). So a text has the same bits whether it is read at once, in
 * chunks of any length or token by token, alone or beside others, on any number of threads: what was drawn is as what is read.
 *
 * In a list of tokens, rows of one position that say their slots, those that go on in one slot are taken together as if they were
 * one row (attention_run).
 *
 * All queries that share a KV head are taken together, so that a key is read once for all: a few positions (decoding) against
 * the keys where they lie (attention_few_impl.h), many (prefill) against a block that is brought to f32 first, or, where pairs of
 * bf16 and whole numbers are multiplied, as attention_pairs_impl.h says. Threads share blocks of keys there, and batch x KV heads x
 * tiles of queries here.
 */
#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

enum {
    KEYS = ATTENTION_KEYS, /* of a block */
    ROWS = 128, /* queries at a time, over heads and positions; a group of heads may be larger */
    FEW = ATTENTION_FEW
};

static bool match(const Op *op)
{
    cvn_dtype q = op->operand[0]->type.dtype, kv = op->operand[1]->type.dtype;
#if defined(VEC_BF16) /* the kernel of AVX-512 takes the others */
    if (q != CVN_BF16 || (kv != CVN_BF16 && kv != CVN_I8))
        return false;
#endif
    return tile_dtype(q) && (kv == CVN_F32 || kv == CVN_BF16 || kv == CVN_I8) &&
           attention_pages_match(op, KEYS) && attention_sinks_match(op);
}

/* Keys that position s of a row sees; 0 for padding. */
static int64_t keys_seen(const AttentionOperands *a, int64_t b, int64_t s)
{
    return attention_real(a, b, s) ? attention_keys(a, b, s) : 0;
}

/* Element where head h of position s begins, in q and the result. */
static int64_t query_at(const AttentionOperands *a, int64_t b, int64_t s, int64_t h)
{
    return ((b * a->seq + s) * a->heads + h) * a->head_dim;
}

/* Padding. */
static void write_zero(const AttentionOperands *a, int64_t at)
{
    size_t size = a->q_dtype == CVN_F32 ? 4 : 2;
    memset((char *)a->out + (size_t)at * size, 0, (size_t)a->head_dim * size);
}

#include "cpu/kernels/attention_block_impl.h"

#include "cpu/kernels/attention_few_impl.h"

/* ---- many positions ---- */

enum {
    SCORE_ROWS =
        2, /* rows whose scores are made at once, against the keys of a block, which stay in the L1 cache meanwhile */
    VALUE_ROWS = 4 /* the same where values are summed */
};

/* Scratch of one thread: of queries `rows`, row r being position s0 + r / group of head r % group, and of a block of keys. */
typedef struct Many {
    int64_t rows;          /* most queries at a time */
    float *q;              /* [rows, head_dim] times the scale */
    float *score;          /* [rows, KEYS] */
    float *all, *part;     /* Sums of all blocks so far, and of this one */
    float *k, *v;          /* [KEYS, head_dim] where they are not f32 in the cache */
    float *line;           /* [head_dim] */
    int32_t *first, *seen; /* [rows]: a query sees keys first … seen - 1 */
#if defined(VEC_BF16)
    uint16_t *pair_q;      /* [rows, steps, 32], of a cache of bf16 */
    char *pair_k;          /* [KEYS / 16] blocks of 16 keys (pack_columns) */
    Whole whole_q, weight; /* of a cache of 8 bits, as in Few, [rows] */
#endif
} Many;

static size_t many_of(const AttentionOperands *a, char *base, Many *m)
{
    const int64_t size = sizeof(float), d = a->head_dim;
    size_t used = 0;
    *m = (Many){.rows = num_min(num_max(ROWS / a->group, 1), a->longest) * a->group};
#if defined(VEC_BF16)
    m->pair_q = scratch_take(base, &used, m->rows * a->steps * PAIR_STEP);
    m->pair_k = scratch_take(base, &used, KEYS * a->steps * PAIR_STEP);
    m->whole_q = whole_of(base, &used, m->rows, num_round_up(d, UNIT));
    m->weight = whole_of(base, &used, m->rows, KEYS);
#endif
    m->q = scratch_take(base, &used, m->rows * d * size);
    m->score = scratch_take(base, &used, m->rows * KEYS * size);
    m->all = scratch_take(base, &used, sums_floats(a, m->rows) * size);
    m->part = scratch_take(base, &used, sums_floats(a, m->rows) * size);
    m->k = scratch_take(base, &used, KEYS * d * size);
    m->v = scratch_take(base, &used, KEYS * d * size);
    m->line = scratch_take(base, &used, d * size);
    m->first = scratch_take(base, &used, m->rows * size);
    m->seen = scratch_take(base, &used, m->rows * size);
    return used;
}

#if defined(VEC_BF16)
/* Rows of q as they lie, in whole steps. */
static void pair_queries(const AttentionOperands *a, const Positions *p, uint16_t *out)
{
    for (int64_t r = 0; r < p->n * a->group; r++) {
        int64_t at = query_at(a, p->b, p->from + r / a->group, p->h * a->group + r % a->group);
        for (int64_t i = 0; i < a->steps; i++, out += PAIR_STEP / 2)
            _mm512_storeu_si512(out,
                                _mm512_maskz_loadu_epi16(elements(a->head_dim - i * 32),
                                                         (const uint16_t *)a->q + at + i * 32));
    }
}
#endif

static void read_queries(const AttentionOperands *a, const Many *m, const Positions *p)
{
    int64_t n = a->group * a->head_dim;
#if defined(VEC_BF16)
    if (few_pairs(a->kv_dtype)) {
        pair_queries(a, p, m->pair_q);
        return;
    }
#endif
    for (int64_t s = 0; s < p->n; s++) {
        float *to = m->q + s * n;
        const float *q =
            tile_read(a->q_dtype, a->q, query_at(a, p->b, p->from + s, p->h * a->group), n, to);
        for (int64_t i = 0; i < n; i++)
            to[i] = q[i] * a->scale;
#if defined(VEC_BF16)
        for (int64_t r = 0; r < a->group; r++)
            whole_query(&m->whole_q, s * a->group + r, to + r * a->head_dim, a->head_dim);
#endif
    }
}

/* n keys (or values) from number `at` of the cache on as f32, without their scales: where they lie, or in `to`. */
static const float *read_block(const AttentionOperands *a, const void *data, int64_t at, int64_t n,
                               float *to)
{
    at *= a->head_dim;
    n *= a->head_dim;
    if (a->kv_dtype != CVN_I8)
        return tile_read(a->kv_dtype, data, at, n, to);
    for (int64_t i = 0; i < n; i += VN)
        vf_store_part(to + i, vf_load_i8_part((const int8_t *)data + at + i, n - i), n - i);
    return to;
}

/* A block of keys, or some of it: keys [j, j + n), of which the first is number `at` of the cache. */
typedef struct Keys {
    int64_t j, n, at;
    const float *k, *v; /* [n, head_dim], where these are what is multiplied */
} Keys;

/* Of these keys those from *from on and before *to are what some of `count` rows from r on see: none where *from >= *to. */
static void seen_of(const Many *m, const Keys *keys, int64_t r, int64_t count, int64_t *from,
                    int64_t *to)
{
    *from = keys->n;
    *to = 0;
    for (int64_t i = r; i < r + count; i++) {
        int64_t first = num_max(m->first[i] - keys->j, 0);
        int64_t end = num_min(m->seen[i] - keys->j, keys->n);
        if (first >= end)
            continue;
        *from = num_min(*from, first);
        *to = num_max(*to, end);
    }
}

#if defined(VEC_BF16)
#include "cpu/kernels/attention_pairs_impl.h"
#else
static void score_many(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t rows)
{
    const int64_t d = a->head_dim;
    for (int64_t r = 0; r < rows; r += SCORE_ROWS) {
        int64_t n = num_min(SCORE_ROWS, rows - r), from, to;
        seen_of(m, keys, r, n, &from, &to);
        float *score = m->score + r * KEYS + from;
        if (n == SCORE_ROWS && from < to)
            score_rows(SCORE_ROWS, false, CVN_F32, m->q + r * d, 0, keys->k, NULL, from * d,
                       to - from, d, score);
        else if (from < to)
            score_rows(1, false, CVN_F32, m->q + r * d, 0, keys->k, NULL, from * d, to - from, d,
                       score);
    }
}
#endif

static void value_many(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t rows,
                       float *o)
{
    const int64_t d = a->head_dim;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        value_many_whole(a, m, keys, rows, o);
        return;
    }
#endif
    for (int64_t r = 0; r < rows; r += VALUE_ROWS) {
        int64_t n = num_min(VALUE_ROWS, rows - r), from, to;
        seen_of(m, keys, r, n, &from, &to);
        if (from < to)
            CONSTANT_ROWS_4(n, value_rows, false, CVN_F32, m->score + r * KEYS + from, keys->v,
                            NULL, from * d, to - from, d, o + r * d)
    }
}

/* Scores of row r become weights, which are 0 of what only its neighbours see. */
static void weigh_many(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t r,
                       int64_t rows, const Sums *part)
{
    int64_t from, to, least, most, first = r / VALUE_ROWS * VALUE_ROWS;
    float *score = m->score + r * KEYS;
    seen_of(m, keys, r, 1, &from, &to);
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        weigh_many_whole(a, m, keys, r, from, to, part);
        return;
    }
#endif
    seen_of(m, keys, first, num_min(VALUE_ROWS, rows - first), &least, &most);
    if (from >= to)
        from = to = most;
    else
        weigh(a, score + from, keys->at + from, to - from, &part->peak[r], &part->sum[r]);
    for (int64_t i = least; i < from; i++)
        score[i] = 0;
    for (int64_t i = to; i < most; i++)
        score[i] = 0;
}

/* All rows, and a block. */
static void attend_many_block(const AttentionOperands *a, const Many *m, const Keys *keys,
                              int64_t rows, const Sums *all, const Sums *part)
{
    memset(part->o, 0, (size_t)(rows * a->head_dim) * sizeof *part->o);
    score_many(a, m, keys, rows);
    for (int64_t r = 0; r < rows; r++)
        weigh_many(a, m, keys, r, rows, part);
    value_many(a, m, keys, rows, part->o);
    for (int64_t r = 0; r < rows; r++) {
        int64_t from, to;
        seen_of(m, keys, r, 1, &from, &to);
        if (from < to)
            fold(a, all, part, r);
    }
}

/* Positions of the heads that share a KV head. */
static void attend_many(const AttentionOperands *a, const Many *m, const Positions *p)
{
    const Sums all = sums_at(a, m->rows, m->all), part = sums_at(a, m->rows, m->part);
    int64_t rows = p->n * a->group, begin;
    int64_t end = attention_see(a, p->b, p->from * a->group, rows, rows, m->first, m->seen, &begin);
    for (int64_t r = 0; r < rows; r++)
        sums_begin(a, &all, r, p->h * a->group + r % a->group);
    if (end > 0)
        read_queries(a, m, p);
    for (int64_t j = begin / KEYS * KEYS; j < end; j += KEYS) {
        Keys keys = {.j = j, .n = num_min(KEYS, end - j), .at = attention_key(a, p->b, p->h, j)};
#if defined(VEC_BF16)
        if (few_pairs(a->kv_dtype))
            pair_keys(a, &keys, m->pair_k);
#else
        keys.k = read_block(a, a->k, keys.at, keys.n, m->k);
#endif
        if (!few_whole(a->kv_dtype))
            keys.v = read_block(a, a->v, keys.at, keys.n, m->v);
        attend_many_block(a, m, &keys, rows, &all, &part);
    }
    for (int64_t r = 0; r < rows; r++) {
        int64_t s = p->from + r / a->group;
        int64_t at = query_at(a, p->b, s, p->h * a->group + r % a->group);
        if (attention_real(a, p->b, s))
            write_row(a, &all, r, at, m->line);
        else
            write_zero(a, at);
    }
}

/* ---- sharing ---- */

static size_t scratch(const Op *op, int n_threads)
{
    AttentionOperands a = attention_of(op, NULL);
    Many m;
    size_t few = a.seq <= FEW ? few_scratch(&a, n_threads) : 0;
    return few + (a.longest > FEW ? many_of(&a, NULL, &m) * (size_t)n_threads : 0);
}

static void run(const KernelArgs *args)
{
    AttentionOperands a = attention_of(args->op, args);
    Positions p = {0};
    Many m;
    char *base = args->scratch;
    if (a.batch == 0 || a.seq == 0 || a.heads == 0)
        return;
    if (a.seq <= FEW) {
        base += few_scratch(&a, args->n_threads);
        run_few(&a, args);
    }
    if (a.longest <= FEW)
        return;
    size_t bytes = many_of(&a, NULL, &m);
    many_of(&a, base + bytes * (size_t)args->thread, &m);
    while (attention_next(&a, args, FEW, m.rows / a.group, &p))
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
