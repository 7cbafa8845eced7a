/*
 * attention of bf16 on tiles of AMX, for prompts and training: causal, grouped queries, over a cache with a start and a length
 * for each row, and, where documents share a row, a first key for each query.
 *
 * As in attention_impl.h, keys are taken KEYS at a time and the softmax is corrected as its largest score grows, so
 * that scores are never all kept. For 32 queries (positions and the heads that share a KV head) and 128 keys, in the
 * L1 cache except for K and V:
 *
 *     S' = K Q'          rows of K as they lie, Q packed once              [128, 32] f32
 *     P' = 2^(S' - peak) AVX-512, a query per lane                         [128, 32] bf16 in pairs of keys
 *     O' += V' P'        V transposed to tiles once for ROWS queries       [head_dim, 32] f32
 *
 * The peak that is subtracted is one that was largest at some time: it is replaced when a score exceeds it by 2^8, and
 * only then O' and the sum are corrected. Sums reach 2^8 times their number, and the bits lost are none.
 *
 * Keys that none of the 32 queries sees are left out, 32 at a time. What a query gives does not depend on the queries
 * it shares tiles with: a key that it does not see has weight 0, and adding that changes nothing.
 *
 * Keys and values of 8 bits, with a scale for each row, are whole numbers that bf16 holds exactly: they are widened as
 * they are packed, scores are multiplied by the scale of their key, and weights, before they are rounded for the product
 * with the values, by the scale of their value.
 */
#include "base/float16.h"
#include "cpu/kernels/kernels.h"

#include "cpu/kernels/attention_tiles.h"

#include <math.h>

enum {
    KEYS = 128,                  /* at a time */
    KEY_STEPS = KEYS / STEP,     /* of tiles over keys */
    ROWS = 256,                  /* queries for which V is packed; a group of heads may be more */
    ROW_BYTES = WIDE * 4,        /* of a row of scores */
    PAIR_BYTES = 2 * TILE_BYTES, /* of weights of 32 keys */
};

/* Scratch of one thread, and the queries it is at: `rows` from number r0 on of KV head h of row b. */
typedef struct QueryScratch {
    const AttentionOperands *a;
    int64_t b, h, r0, rows;
    int64_t groups;   /* of WIDE queries */
    char *q;          /* [groups][2][steps] tiles of B over head_dim */
    char *k;          /* [KEYS][steps * STEP]: keys that cannot be read where they lie */
    const char *keys; /* those of this step: k, or in the cache */
    char *v;          /* [tiles][KEY_STEPS] tiles of A over keys */
    char *v_rows; /* as k, of values that are widened; NULL where there is nothing to be widened */
    float *k_scale, *v_scale; /* [KEYS] of this step, likewise; zeros behind the last */
    float *score;             /* [KEYS][WIDE] */
    char *p;                  /* [KEY_STEPS][2] tiles of B over keys */
    float *o;                 /* [groups][tiles][2] tiles */
    float *peak;              /* [groups][WIDE] */
    float *sum;               /* [groups][2][16]: by the columns of the two tiles (column_query) */
    Seen *group;              /* [groups] */
    bool *begun;              /* [groups]: o holds something */
    int32_t *first, *seen;    /* [groups][WIDE]: a query sees keys first … seen - 1 */
} QueryScratch;

static size_t block_of(const AttentionOperands *a, char *base, QueryScratch *x)
{
    size_t used = 0;
    int64_t positions = num_min(num_max(ROWS / a->group, 1), a->seq), tile = TILE_BYTES;
    *x = (QueryScratch){.a = a, .rows = positions * a->group};
    x->groups = num_pieces(x->rows, WIDE);
    x->q = scratch_take(base, &used, x->groups * 2 * a->steps * tile);
    x->k = scratch_take(base, &used, KEYS * a->steps * TILE_ROW_BYTES);
    x->v = scratch_take(base, &used, a->tiles * KEY_STEPS * tile);
    if (a->kv_dtype == CVN_I8) {
        x->v_rows = scratch_take(base, &used, KEYS * a->steps * TILE_ROW_BYTES);
        x->k_scale = scratch_take(base, &used, KEYS * 4);
        x->v_scale = scratch_take(base, &used, KEYS * 4);
    }
    x->score = scratch_take(base, &used, KEYS * ROW_BYTES);
    x->p = scratch_take(base, &used, KEY_STEPS * PAIR_BYTES);
    x->o = scratch_take(base, &used, x->groups * a->tiles * 2 * tile);
    x->peak = scratch_take(base, &used, x->groups * ROW_BYTES);
    x->sum = scratch_take(base, &used, x->groups * ROW_BYTES);
    x->begun = scratch_take(base, &used, x->groups);
    x->group = scratch_take(base, &used, x->groups * (int64_t)sizeof *x->group);
    x->first = scratch_take(base, &used, x->groups * ROW_BYTES);
    x->seen = scratch_take(base, &used, x->groups * ROW_BYTES);
    return used;
}

static size_t scratch(const Op *op, int n_threads)
{
    QueryScratch x;
    AttentionOperands a = attention_of(op, NULL);
    return block_of(&a, NULL, &x) * (size_t)n_threads;
}

/* ---- a step of keys ---- */

/* Keys [j, j + n), n <= KEYS: rows of K, and V transposed. What lies behind them may never have been written, so it
   is not read; of K, rows that no query sees do no harm where they lie. */
static void pack_keys(QueryScratch *x, int64_t j, int64_t n)
{
    const AttentionOperands *a = x->a;
    int64_t first = attention_key(a, x->b, x->h, j), at = first * a->head_dim;
    int64_t left = a->page - j % a->page; /* of the page */
    bool lies = !x->v_rows && a->head_dim % STEP == 0 && num_round_up(n, STEP) <= left;
    x->keys = lies ? (const char *)((const uint16_t *)a->k + at) : x->k;
    for (int64_t i = 0; i < n; i += left, left = a->page) {
        int64_t here = num_min(left, n - i), across = i / STEP * TILE_BYTES;
        size_t row = (size_t)a->steps * TILE_ROW_BYTES;
        first = attention_key(a, x->b, x->h, j + i);
        at = first * a->head_dim;
        char *k = x->k + (size_t)i * row;
        if (!x->v_rows) {
            if (!lies)
                pack_rows(a, (const uint16_t *)a->k + at, here, num_round_up(here, STEP), k);
            pack_across(a, (const uint16_t *)a->v + at, a->head_dim, here, here, KEYS,
                        x->v + across);
            continue;
        }
        pack_rows(a, (const int8_t *)a->k + at, here, num_round_up(here, STEP), k);
        pack_rows(a, (const int8_t *)a->v + at, here, here, x->v_rows);
        pack_across(a, (const uint16_t *)(const void *)x->v_rows, a->steps * STEP, here, here, KEYS,
                    x->v + across);
        for (int64_t s = 0; s < here; s++) {
            x->k_scale[i + s] = bf16_to_f32(a->k_scale[first + s]);
            x->v_scale[i + s] = bf16_to_f32(a->v_scale[first + s]);
        }
    }
    for (int64_t i = n; i < KEYS && x->v_rows; i++)
        x->k_scale[i] = x->v_scale[i] = 0;
}

/* Multiplies o and the sums of a group by factors, a query in each lane. */
static void correct(const QueryScratch *x, int64_t g, const __m512 factor[2])
{
    const int64_t rows = x->a->tiles * 2 * TILE_ROWS;
    float *o = x->o + g * rows * 16, *sum = x->sum + g * WIDE;
    const __m512 column[2] = {by_column(0, factor[0], factor[1]),
                              by_column(1, factor[0], factor[1])};
    for (int64_t i = 0; i < rows; i++, o += 16)
        _mm512_store_ps(o, _mm512_mul_ps(_mm512_load_ps(o), column[i / TILE_ROWS % 2]));
    for (int t = 0; t < 2; t++)
        _mm512_store_ps(sum + t * 16, _mm512_mul_ps(_mm512_load_ps(sum + t * 16), column[t]));
}

/* Scores become weights in pairs of keys. v_scale: what they are multiplied by for the values, or NULL. Without it sums
   are of the rounded weights, so that a key which has nearly all the weight gives its value and not a rounding of it. */
static inline void make_weights(const QueryScratch *x, int64_t g, int64_t from, int64_t to,
                                const float *v_scale, const __m512 base[2])
{
    const __m512 exponent = _mm512_set1_ps(x->a->exponent);
    const __m512bh ones = (__m512bh)_mm512_set1_epi16(0x3f80);
    const float *score = x->score + from * WIDE;
    float *sum = x->sum + g * WIDE;
    __m512 total[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()}; /* v_scale: by query; by column */
    char *p = x->p + from / STEP * PAIR_BYTES;
    for (int64_t i = from; i < to; i += STEP, p += PAIR_BYTES)
        for (int u = 0; u < TILE_ROWS; u++, score += 2 * WIDE) {
            __m512 w[2][2];
            for (int key = 0; key < 2; key++)
                for (int v = 0; v < 2; v++) {
                    __m512 s = _mm512_load_ps(score + key * WIDE + v * 16);
                    w[key][v] = power_of_two(_mm512_fmsub_ps(s, exponent, base[v]));
                    if (!v_scale)
                        continue;
                    total[v] = _mm512_add_ps(total[v], w[key][v]);
                    w[key][v] = _mm512_mul_ps(w[key][v], _mm512_set1_ps(v_scale[i + 2 * u + key]));
                }
            __m512i even = round_row(w[0][0], w[0][1]), odd = round_row(w[1][0], w[1][1]);
            const __m512i pair[2] = {_mm512_unpacklo_epi16(even, odd),
                                     _mm512_unpackhi_epi16(even, odd)};
            for (int t = 0; t < 2; t++) {
                _mm512_store_si512(p + t * TILE_BYTES + u * TILE_ROW_BYTES, pair[t]);
                if (!v_scale)
                    total[t] = _mm512_dpbf16_ps(total[t], (__m512bh)pair[t], ones);
            }
        }
    for (int t = 0; t < 2; t++) {
        __m512 more = v_scale ? by_column(t, total[0], total[1]) : total[t];
        _mm512_store_ps(sum + t * 16, _mm512_add_ps(_mm512_load_ps(sum + t * 16), more));
    }
}

/* Group g and the keys [j, j + n) that are packed. */
static void attend_group(const QueryScratch *x, int64_t g, int64_t j, int64_t n)
{
    const AttentionOperands *a = x->a;
    const Seen *seen = &x->group[g];
    int64_t from = num_max(seen->least_first - j, 0) / STEP * STEP;
    int64_t to = num_round_up(num_min(seen->most - j, n), STEP);
    if (from >= to)
        return;
    bool masked = seen->least < j + to || seen->most_first > j + from;
    __m512 top[2], base[2], factor[2];
    multiply_rows(a, x->keys, x->q + g * 2 * a->steps * TILE_BYTES, from, to, x->score);
    find_peaks(a, seen, j, from, to, masked, x->k_scale, x->score, top);
    bool rose = raise_peaks(a, top, x->peak + g * WIDE, base, factor), begun = x->begun[g];
    if (rose && begun)
        correct(x, g, factor);
    if (x->v_scale)
        make_weights(x, g, from, to, x->v_scale, base);
    else
        make_weights(x, g, from, to, NULL, base);
    multiply_across(a, x->v + from / STEP * TILE_BYTES, KEY_STEPS * TILE_BYTES,
                    x->p + from / STEP * PAIR_BYTES, (to - from) / STEP,
                    x->o + g * a->tiles * 2 * TILE_ROWS * 16, begun);
    x->begun[g] = true;
}

/* ---- a block of queries ---- */

/* Writes a group: rows of head_dim out of columns. */
static void write_group(const QueryScratch *x, int64_t g, float *row)
{
    const AttentionOperands *a = x->a;
    for (int tile = 0; tile < 2; tile++) {
        turn_sums(a, x->o + (g * a->tiles * 2 + tile) * TILE_ROWS * 16, row);
        for (int c = 0; c < 16; c++) {
            int64_t i = g * WIDE + column_query(tile, c), r = x->r0 + i;
            if (i >= x->rows)
                continue;
            bool padding = !attention_real(a, x->b, r / a->group);
            float sum = x->sum[g * WIDE + tile * 16 + c];
            bool nothing = !x->begun[g] || sum == 0; /* seen: 0 / 0 */
            uint16_t *to = (uint16_t *)a->out + query_at(a, x->b, x->h, r);
            const __m512 factor = _mm512_set1_ps(1.0f / sum);
            const __m512 other = _mm512_set1_ps(padding ? 0.0f : NAN);
            for (int64_t t = 0; t < a->tiles; t++) {
                __m512 y = _mm512_mul_ps(_mm512_loadu_ps(row + (t * TILE_ROWS + c) * 16), factor);
                write_rounded(to + t * 16, padding || nothing ? other : y, a->head_dim - t * 16);
            }
        }
    }
}

static void attend(QueryScratch *x)
{
    int64_t begin, all = x->groups * WIDE;
    int64_t end = attention_see(x->a, x->b, x->r0, x->rows, all, x->first, x->seen, &begin);
    for (int64_t i = 0; i < all; i++) {
        x->peak[i] = NONE;
        x->sum[i] = 0;
    }
    for (int64_t g = 0; g < x->groups; g++) {
        x->group[g] = seen_by(x->first + g * WIDE, x->seen + g * WIDE, WIDE);
        x->begun[g] = false;
    }
    if (end > 0)
        pack_queries(x->a, x->a->q, x->b, x->h, x->r0, x->rows, x->q, NULL);
    for (int64_t j = begin / KEYS * KEYS; j < end; j += KEYS) {
        int64_t n = num_min(KEYS, end - j);
        pack_keys(x, j, n);
        for (int64_t g = 0; g < x->groups; g++)
            attend_group(x, g, j, n);
    }
    for (int64_t g = 0; g < x->groups; g++)
        write_group(x, g, (float *)(void *)x->v);
}

static void run(const KernelArgs *args)
{
    AttentionOperands a = attention_of(args->op, args);
    QueryScratch x;
    Positions at = {0};
    size_t bytes = block_of(&a, NULL, &x);
    block_of(&a, (char *)args->scratch + bytes * (size_t)args->thread, &x);
    int64_t most = x.rows / a.group;
    tile_enter();
    while (attention_next(&a, args, 0, most, &at)) {
        x.b = at.b;
        x.h = at.h;
        x.r0 = at.from * a.group;
        x.rows = at.n * a.group;
        x.groups = num_pieces(x.rows, WIDE);
        attend(&x);
    }
    tile_leave();
}

const Kernel ISA_NAME(attention_kernels)[] = {
    {.name = "attention." ISA,
     .kind = OP_ATTENTION,
     .match = match_tiles,
     .scratch = scratch,
     .run = run},
    {0},
};
