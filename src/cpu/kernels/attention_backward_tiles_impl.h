/*
 * attention_backward of bf16 on tiles: the gradients of q, k and v, from scores that are computed anew. Compiled for AMX
 * and AVX-512, as attention_tiles_impl.h.
 *
 * ROWS or MANY_ROWS queries, of all heads that share a KV head, are taken at a time, twice over the keys that they see,
 * KEYS at a time. With S the scores, P their softmax and dO the gradient of the result, all transposed (attention_tiles.h):
 *
 *     1   S' = K Q'    dP' = V dO'     P' up to a factor, its sums, and sums of P' dP'; P' and dP' are kept
 *     2   dS' = P' (dP' - mean)        with mean the sum of P' dP' of a query
 *         dV += P' dO    dK += dS' Q    dQ' += K' dS'
 *
 * Softmax is corrected as in attention_tiles_impl.h: a block of keys notes the peaks that it was computed with. Rows of
 * P' and dS', rounded, are tiles of A over queries as they are; two rows of dS' become tiles of B over keys by an unpack. So
 * nothing of the size of the scores is ever transposed. What is kept of a tile of queries is 6 bytes per score, and dk
 * and dv in f32: for 1,024 keys of 64, 384 KiB and 512 KiB, in L2.
 *
 * A thread takes whole pairs of batch and KV head, so that sums over queries have one order. Queries that are padding
 * or before the first key are left out, and so are blocks of keys that none of these queries sees.
 *
 * docs/PERFORMANCE.md counts the instructions of a block.
 */
#include "cpu/kernels/kernels.h"

#include "cpu/kernels/attention_tiles.h"

enum {
    KEYS = 64,               /* at a time */
    KEY_STEPS = KEYS / STEP, /* of tiles over keys */
    ROWS = 64,               /* queries at a time */
    MANY_ROWS = 128,         /* the same of heads whose dk and dv are too large to stay in L2 */
    GROUPS = MANY_ROWS / WIDE,
    HALF_BYTES = WIDE * 2,  /* of a row of bf16: 32 queries */
    FLOAT_BYTES = WIDE * 4, /* of a row of f32 */
    TILE_FLOATS = TILE_BYTES / 4,
    MANY_ELEMENTS = 1 << 17 /* of the keys of a head: dk and dv are 1 MiB then */
};

/* Scratch of one thread, and what it is at: keys [0, n) of KV head h of row b, queries r0 … r0 + rows - 1. */
typedef struct GradientScratch {
    AttentionOperands a;
    int64_t most;                      /* queries at a time: ROWS or MANY_ROWS */
    int64_t b, h, n, r0, rows, groups; /* groups: of WIDE queries */
    bool copy;                         /* rows of keys and values cannot be read where they lie */
    const char *k, *v;            /* [n rounded up to KEYS] rows: in the cache, or in the copies */
    char *k_copy, *v_copy;        /* rows of whole steps, zeros past n */
    char *k_across;               /* [keys / KEYS][tiles][KEY_STEPS] tiles of A: K' */
    float *dk_sum, *dv_sum;       /* [keys / 16][tiles] tiles */
    char *q_columns, *dy_columns; /* [most / 16][steps] tiles of B over head_dim */
    char *q_pairs, *dy_pairs;     /* [most / WIDE][tiles] tiles of B over queries */
    float *score;                 /* [KEYS][WIDE] */
    char *p;                      /* [most / WIDE][keys][WIDE] bf16: 2^(score - base) */
    float *dp;                    /* [most / WIDE][keys][WIDE] */
    float *base;                  /* [keys / KEYS][most]: the peaks of a block of keys */
    char *weight, *dscore; /* [most / WIDE][KEYS][WIDE] bf16: tiles of A over queries: P', dS' */
    char *dscore_pairs;    /* [most / WIDE][KEY_STEPS][2] tiles of B over keys: dS' */
    float *dq_sum;         /* [most / WIDE][tiles][2] tiles: dQ' */
    float *row;            /* [tiles] tiles */
    float *peak, *sum, *along; /* [most]: so far; along: of P' dP' */
    float *inverse, *mean;     /* [most]: 1 / sum, and along / sum; 0 for who sees nothing */
    Seen group[GROUPS];
    int32_t *first, *seen; /* [most]: a query sees keys first … seen - 1 */
} GradientScratch;

static size_t block_of(const AttentionOperands *a, char *base, GradientScratch *x)
{
    size_t used = 0;
    *x = (GradientScratch){.a = *a};
    int64_t keys = num_round_up(a->context, KEYS), tile = TILE_BYTES,
            row = a->steps * TILE_ROW_BYTES;
    x->most = keys * a->head_dim > MANY_ELEMENTS ? MANY_ROWS : ROWS;
    int64_t rows = x->most;
    x->copy = a->head_dim % STEP || a->context % KEYS;
    x->k_copy = scratch_take(base, &used, x->copy ? keys * row : 0);
    x->v_copy = scratch_take(base, &used, x->copy ? keys * row : 0);
    x->k_across = scratch_take(base, &used, keys / STEP * a->tiles * tile);
    x->dk_sum = scratch_take(base, &used, keys / TILE_ROWS * a->tiles * tile);
    x->dv_sum = scratch_take(base, &used, keys / TILE_ROWS * a->tiles * tile);
    x->q_columns = scratch_take(base, &used, rows / TILE_ROWS * a->steps * tile);
    x->dy_columns = scratch_take(base, &used, rows / TILE_ROWS * a->steps * tile);
    x->q_pairs = scratch_take(base, &used, rows / WIDE * a->tiles * tile);
    x->dy_pairs = scratch_take(base, &used, rows / WIDE * a->tiles * tile);
    x->score = scratch_take(base, &used, KEYS * FLOAT_BYTES);
    x->p = scratch_take(base, &used, rows / WIDE * keys * HALF_BYTES);
    x->dp = scratch_take(base, &used, rows / WIDE * keys * FLOAT_BYTES);
    x->base = scratch_take(base, &used, keys / KEYS * rows * 4);
    x->weight = scratch_take(base, &used, rows / WIDE * KEYS * HALF_BYTES);
    x->dscore = scratch_take(base, &used, rows / WIDE * KEYS * HALF_BYTES);
    x->dscore_pairs = scratch_take(base, &used, rows / WIDE * KEYS * HALF_BYTES);
    x->dq_sum = scratch_take(base, &used, rows / WIDE * a->tiles * 2 * tile);
    x->row = scratch_take(base, &used, a->tiles * tile);
    x->peak = scratch_take(base, &used, rows * 4);
    x->sum = scratch_take(base, &used, rows * 4);
    x->along = scratch_take(base, &used, rows * 4);
    x->inverse = scratch_take(base, &used, rows * 4);
    x->mean = scratch_take(base, &used, rows * 4);
    x->first = scratch_take(base, &used, rows * 4);
    x->seen = scratch_take(base, &used, rows * 4);
    return used;
}

static size_t scratch(const Op *op, int n_threads)
{
    GradientScratch x;
    AttentionOperands a = attention_of(op, NULL);
    return block_of(&a, NULL, &x) * (size_t)n_threads;
}

/* Row `key` of group g of p or dp, as many bytes wide as said. */
static size_t kept_at(const GradientScratch *x, int64_t g, int64_t key, size_t row)
{
    return (size_t)(g * num_round_up(x->a.context, KEYS) + key) * row;
}

/* ---- packing ---- */

static void pack_keys(GradientScratch *x)
{
    const AttentionOperands *a = &x->a;
    int64_t at = (x->b * a->kv_heads + x->h) * a->context * a->head_dim,
            all = num_round_up(x->n, KEYS);
    const uint16_t *k = (const uint16_t *)a->k + at, *v = (const uint16_t *)a->v + at;
    x->k = (const char *)k;
    x->v = (const char *)v;
    pack_across(a, k, a->head_dim, x->n, all, KEYS, x->k_across);
    if (!x->copy)
        return;
    pack_rows(a, k, x->n, all, x->k_copy);
    pack_rows(a, v, x->n, all, x->v_copy);
    x->k = x->k_copy;
    x->v = x->v_copy;
}

/* The queries of a tile, or their gradients; those past the end are zeros. */
static void pack_rows_of(const GradientScratch *x, const void *data, char *columns, char *pairs)
{
    const uint16_t *row[MANY_ROWS];
    pack_queries(&x->a, data, x->b, x->h, x->r0, x->rows, columns, row);
    for (int64_t g = 0; g < x->groups; g++)
        pack_pairs(row + g * WIDE, num_min(STEP, x->rows - g * WIDE), x->a.head_dim,
                   pairs + g * x->a.tiles * TILE_BYTES);
}

/* ---- once over the keys: scores ---- */

/* Zeros where a query does not see the key: values there may never have been written. */
static void hide(const Seen *seen, int64_t j, float *dp)
{
    for (int64_t i = 0; i < KEYS; i++)
        for (int v = 0; v < 2; v++) {
            float *at = dp + i * WIDE + v * 16;
            _mm512_store_ps(at, _mm512_maskz_mov_ps(sees(seen, v, j + i), _mm512_load_ps(at)));
        }
}

/* Scores become weights up to a factor; adds to their sums. */
static void make_weights(const GradientScratch *x, int64_t g, const float *dp, const __m512 base[2],
                         char *p)
{
    const __m512 exponent = _mm512_set1_ps(x->a.exponent);
    __m512 total[2], along[2];
    for (int v = 0; v < 2; v++) {
        total[v] = _mm512_load_ps(x->sum + g * WIDE + v * 16);
        along[v] = _mm512_load_ps(x->along + g * WIDE + v * 16);
    }
    for (int64_t i = 0; i < KEYS; i++) {
        __m512 w[2];
        for (int v = 0; v < 2; v++) {
            __m512 s = _mm512_load_ps(x->score + i * WIDE + v * 16);
            w[v] = power_of_two(_mm512_fmsub_ps(s, exponent, base[v]));
            total[v] = _mm512_add_ps(total[v], w[v]);
            along[v] = _mm512_fmadd_ps(w[v], _mm512_load_ps(dp + i * WIDE + v * 16), along[v]);
        }
        _mm512_store_si512(p + i * HALF_BYTES, round_row(w[0], w[1]));
    }
    for (int v = 0; v < 2; v++) {
        _mm512_store_ps(x->sum + g * WIDE + v * 16, total[v]);
        _mm512_store_ps(x->along + g * WIDE + v * 16, along[v]);
    }
}

/* The block of keys at j and group g. */
static void score_block(const GradientScratch *x, int64_t g, int64_t j)
{
    const Seen *seen = &x->group[g];
    bool masked = seen->least < j + KEYS || seen->most_first > j;
    float *dp = (float *)(void *)((char *)x->dp + kept_at(x, g, j, FLOAT_BYTES));
    float *sums[] = {x->sum + g * WIDE, x->along + g * WIDE};
    __m512 top[2], base[2], factor[2];
    const size_t columns = (size_t)(g * 2 * x->a.steps * TILE_BYTES);
    const size_t row = (size_t)(j * x->a.steps * TILE_ROW_BYTES);
    multiply_rows(&x->a, x->k + row, x->q_columns + columns, 0, KEYS, x->score);
    multiply_rows(&x->a, x->v + row, x->dy_columns + columns, 0, KEYS, dp);
    if (masked)
        hide(seen, j, dp);
    find_peaks(&x->a, seen, j, 0, KEYS, masked, NULL, x->score, top);
    if (raise_peaks(&x->a, top, x->peak + g * WIDE, base, factor))
        for (int i = 0; i < 4; i++) {
            float *at = sums[i / 2] + i % 2 * 16;
            _mm512_store_ps(at, _mm512_mul_ps(_mm512_load_ps(at), factor[i % 2]));
        }
    for (int v = 0; v < 2; v++)
        _mm512_store_ps(x->base + j / KEYS * x->most + g * WIDE + v * 16, base[v]);
    make_weights(x, g, dp, base, x->p + kept_at(x, g, j, HALF_BYTES));
}

/* ---- twice over the keys: gradients ---- */

/* P' and dS' of group g and the block of keys at j, rounded. */
static void weigh(const GradientScratch *x, int64_t g, int64_t j)
{
    const float *base = x->base + j / KEYS * x->most + g * WIDE;
    const float *dp =
        (const float *)(const void *)((const char *)x->dp + kept_at(x, g, j, FLOAT_BYTES));
    const char *p = x->p + kept_at(x, g, j, HALF_BYTES);
    size_t at = (size_t)g * KEYS * HALF_BYTES;
    char *weight = x->weight + at, *dscore = x->dscore + at, *pairs = x->dscore_pairs + at;
    __m512 factor[2], mean[2];
    for (int v = 0; v < 2; v++) {
        __m512 peak = _mm512_load_ps(x->peak + g * WIDE + v * 16);
        factor[v] = _mm512_mul_ps(power_of_two(_mm512_sub_ps(_mm512_load_ps(base + v * 16), peak)),
                                  _mm512_load_ps(x->inverse + g * WIDE + v * 16));
        mean[v] = _mm512_load_ps(x->mean + g * WIDE + v * 16);
    }
    for (int64_t i = 0; i < KEYS; i += 2) {
        __m512i rounded[2];
        for (int key = 0; key < 2; key++, p += HALF_BYTES, dp += WIDE) {
            __m512i kept = _mm512_load_si512(p);
            __m512 w[2] = {_mm512_mul_ps(widen_low(kept), factor[0]),
                           _mm512_mul_ps(widen_high(kept), factor[1])};
            __m512 ds[2];
            for (int v = 0; v < 2; v++)
                ds[v] = _mm512_mul_ps(w[v], _mm512_sub_ps(_mm512_load_ps(dp + v * 16), mean[v]));
            rounded[key] = round_row(ds[0], ds[1]);
            _mm512_store_si512(weight + (i + key) * HALF_BYTES, round_row(w[0], w[1]));
            _mm512_store_si512(dscore + (i + key) * HALF_BYTES, rounded[key]);
        }
        char *pair = pairs + i / STEP * 2 * TILE_BYTES + i % STEP / 2 * TILE_ROW_BYTES;
        _mm512_store_si512(pair, _mm512_unpacklo_epi16(rounded[0], rounded[1]));
        _mm512_store_si512(pair + TILE_BYTES, _mm512_unpackhi_epi16(rounded[0], rounded[1]));
    }
}

/* sum (dk or dv) of the block of keys at j += rows over queries times pairs of queries. */
static void add_keys(const GradientScratch *x, int64_t j, const char *rows, const char *pairs,
                     float *sum)
{
    int64_t tiles = x->a.tiles;
    Product p = {.a_row = TILE_ROW_BYTES,
                 .a_below = TILE_BYTES,
                 .a_step = KEYS * HALF_BYTES,
                 .b_right = TILE_BYTES,
                 .b_step = (size_t)tiles * TILE_BYTES,
                 .steps = x->groups,
                 .c_row = TILE_ROW_BYTES,
                 .c_right = TILE_BYTES,
                 .c_below = (size_t)tiles * TILE_BYTES,
                 .below = true,
                 .add = true};
    for (int64_t i = 0; i < KEYS; i += STEP)
        for (int64_t t = 0; t < tiles; t += 2) {
            p.a = rows + i * HALF_BYTES;
            p.b = pairs + t * TILE_BYTES;
            p.c = sum + ((j + i) / TILE_ROWS * tiles + t) * TILE_FLOATS;
            p.right = t + 1 < tiles;
            product_run(&p);
        }
}

/* ---- results ---- */

/* 16 columns of tiles, `apart` floats from tile to tile, become rows of head_dim. */
static void write_columns(const GradientScratch *x, int64_t g, int tile)
{
    const AttentionOperands *a = &x->a;
    turn_sums(a, x->dq_sum + (g * a->tiles * 2 + tile) * TILE_FLOATS, x->row);
    for (int c = 0; c < 16; c++) {
        int64_t i = g * WIDE + column_query(tile, c);
        if (i >= x->rows)
            continue;
        uint16_t *to = (uint16_t *)a->dq + query_at(a, x->b, x->h, x->r0 + i);
        for (int64_t t = 0; t < a->tiles; t++) {
            __m512 y = _mm512_loadu_ps(x->row + t * TILE_FLOATS + c * 16);
            write_rounded(to + t * 16, _mm512_mul_ps(y, _mm512_set1_ps(x->a.scale)),
                          a->head_dim - t * 16);
        }
    }
}

/* dk or dv of a head: rows of tiles, times scale; zeros for keys that no query sees. */
static void write_keys(const GradientScratch *x, const float *sum, float scale, uint16_t *out)
{
    const AttentionOperands *a = &x->a;
    out += (x->b * a->kv_heads + x->h) * a->context * a->head_dim;
    for (int64_t j = 0; j < x->n; j++)
        for (int64_t t = 0; t < a->tiles; t++) {
            const float *y =
                sum + (j / TILE_ROWS * a->tiles + t) * TILE_FLOATS + j % TILE_ROWS * 16;
            write_rounded(out + j * a->head_dim + t * 16,
                          _mm512_mul_ps(_mm512_loadu_ps(y), _mm512_set1_ps(scale)),
                          a->head_dim - t * 16);
        }
    memset(out + x->n * a->head_dim, 0, (size_t)((a->context - x->n) * a->head_dim) * sizeof *out);
}

/* ---- a tile of queries, and a head ---- */

static void run_rows(GradientScratch *x)
{
    x->groups = num_pieces(x->rows, WIDE);
    int64_t begin, all = x->groups * WIDE;
    int64_t end = attention_see(&x->a, x->b, x->r0, x->rows, all, x->first, x->seen, &begin);
    begin = begin / KEYS * KEYS;
    for (int64_t i = 0; i < all; i++) {
        x->peak[i] = NONE;
        x->sum[i] = x->along[i] = 0;
    }
    for (int64_t g = 0; g < x->groups; g++)
        x->group[g] = seen_by(x->first + g * WIDE, x->seen + g * WIDE, WIDE);
    if (end > 0) {
        pack_rows_of(x, x->a.q, x->q_columns, x->q_pairs);
        pack_rows_of(x, x->a.dy, x->dy_columns, x->dy_pairs);
    }
    for (int64_t j = begin; j < end; j += KEYS)
        for (int64_t g = 0; g < x->groups; g++)
            score_block(x, g, j);
    for (int64_t i = 0; i < all; i++) {
        x->inverse[i] = x->sum[i] > 0 ? 1 / x->sum[i] : 0;
        x->mean[i] = x->along[i] * x->inverse[i];
    }
    for (int64_t j = begin; j < end; j += KEYS) {
        for (int64_t g = 0; g < x->groups; g++) {
            weigh(x, g, j);
            multiply_across(&x->a, x->k_across + j / STEP * x->a.tiles * TILE_BYTES,
                            KEY_STEPS * TILE_BYTES, x->dscore_pairs + g * KEYS * HALF_BYTES,
                            KEY_STEPS, x->dq_sum + g * x->a.tiles * 2 * TILE_FLOATS, j > begin);
        }
        add_keys(x, j, x->weight, x->dy_pairs, x->dv_sum);
        add_keys(x, j, x->dscore, x->q_pairs, x->dk_sum);
    }
    if (end == 0)
        memset(x->dq_sum, 0, (size_t)x->groups * (size_t)x->a.tiles * 2 * TILE_BYTES);
    for (int64_t g = 0; g < x->groups; g++)
        for (int tile = 0; tile < 2; tile++)
            write_columns(x, g, tile);
}

/* Positions from `first` to `last` see a key and are no padding. */
static void run_head(GradientScratch *x)
{
    const AttentionOperands *a = &x->a;
    int64_t last = num_min(a->length[x->b], a->seq);
    int64_t first = a->start[x->b] < 0 ? -(int64_t)a->start[x->b] : 0;
    x->n = last > first ? attention_keys(a, x->b, last - 1) : 0;
    for (int64_t s = 0; s < a->seq; s++)
        if (s < first || s >= last)
            memset((uint16_t *)a->dq + query_at(a, x->b, x->h, s * a->group), 0,
                   (size_t)(a->group * a->head_dim) * sizeof(uint16_t));
    size_t tiles = (size_t)(num_round_up(x->n, KEYS) / TILE_ROWS * a->tiles);
    memset(x->dk_sum, 0, tiles * TILE_BYTES);
    memset(x->dv_sum, 0, tiles * TILE_BYTES);
    if (x->n > 0)
        pack_keys(x);
    for (int64_t r0 = first * a->group; r0 < last * a->group; r0 += x->most) {
        x->r0 = r0;
        x->rows = num_min(x->most, last * a->group - r0);
        run_rows(x);
    }
    write_keys(x, x->dk_sum, x->a.scale, a->dk);
    write_keys(x, x->dv_sum, 1, a->dv);
}

static void run(const KernelArgs *args)
{
    GradientScratch x;
    int64_t begin, end;
    AttentionOperands a = attention_of(args->op, args);
    size_t bytes = block_of(&a, NULL, &x);
    block_of(&a, (char *)args->scratch + bytes * (size_t)args->thread, &x);
    kernel_share(x.a.batch * x.a.kv_heads, 1, args->thread, args->n_threads, &begin, &end);
    tile_enter();
    for (int64_t i = begin; i < end; i++) {
        x.b = i / x.a.kv_heads;
        x.h = i % x.a.kv_heads;
        run_head(&x);
    }
    tile_leave();
}

static bool match(const Op *op)
{
    return match_tiles(op) && op->operand[5]->type.dtype == CVN_BF16;
}

const Kernel ISA_NAME(attention_backward_kernels)[] = {
    {.name = "attention_backward." ISA,
     .kind = OP_ATTENTION_BACKWARD,
     .match = match,
     .scratch = scratch,
     .run = run},
    {0},
};
