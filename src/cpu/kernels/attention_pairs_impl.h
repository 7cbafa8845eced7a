/*
 * The part of attention_impl.h for many positions where pairs of bf16 and whole numbers are multiplied (VEC_BF16): the sums of
 * attention_few_impl.h, bit for bit, in loops that keep keys for many rows.
 *
 * A few rows take a key as it lies: lane l of a vector sums the products of elements 2l, 2l + 1 of each 32, and the 16 lanes are
 * then added by shuffles (vec_sum4). For many rows 16 keys are packed as columns (pack_columns), so that a lane is a key,
 * and the sum of what was lane l is a vector of its own. These 16 are added in the order of the shuffles, a vector addition
 * each, which another port does while products are made:
 *
 *     few    key j:    [sum 0  sum 1 … sum 15]                      ((0 + 2) + (1 + 3)) of each four, then of the fours
 *     many   sum l:    [key 0  key 1 … key 15], l = 0 … 15          the same, of vectors
 *
 * Keys and values of 8 bits have loops over four rows at a time, of few rows or many (attention_few_int8_impl.h); their sums are
 * exact, so that what counts is the unit of a row alone.
 */

/* A block of keys as columns, 16 keys after each other; of those past the end zeros. */
static void pair_keys(const AttentionOperands *a, const Keys *keys, char *out)
{
    const uint16_t *k = (const uint16_t *)a->k + keys->at * a->head_dim, *row[VN];
    for (int64_t j = 0; j < keys->n; j += VN, out += a->steps * PACK_BYTES) {
        int64_t n = num_min(VN, keys->n - j);
        for (int64_t i = 0; i < n; i++)
            row[i] = k + (j + i) * a->head_dim;
        pack_columns(row, n, a->head_dim, out);
    }
}

/* x[r][c] += products of lane l of R rows with C blocks of 16 keys, constants. */
VEC_INLINE void add_lane(const int R, const int C, const uint16_t *q, const char *k, int64_t steps,
                         int l, vf x[4][2])
{
    const char *column = k + l * PAIR_STEP;
    const uint16_t *pair = q + 2 * l;
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            x[r][c] = vf_zero();
    for (int64_t s = 0; s < steps; s++, column += PACK_BYTES, pair += PAIR_STEP / 2) {
        __m512bh key[2];
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            key[c] = (__m512bh)_mm512_loadu_si512(column + c * steps * PACK_BYTES);
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            int two;
            memcpy(&two, pair + r * steps * (PAIR_STEP / 2), sizeof two);
            __m512bh y = (__m512bh)_mm512_set1_epi32(two);
#pragma GCC unroll 2
            for (int c = 0; c < C; c++)
                x[r][c] = _mm512_dpbf16_ps(x[r][c], y, key[c]);
        }
    }
}

/* sum[r][c] = lanes (4 g + 0, + 2) and (1, 3). */
VEC_INLINE void sum_four(const int R, const int C, const uint16_t *q, const char *k, int64_t steps,
                         int g, vf sum[4][2])
{
    vf x[4][2], y[4][2];
    add_lane(R, C, q, k, steps, 4 * g, sum);
    add_lane(R, C, q, k, steps, 4 * g + 2, x);
    add_lane(R, C, q, k, steps, 4 * g + 1, y);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            sum[r][c] += x[r][c];
    add_lane(R, C, q, k, steps, 4 * g + 3, x);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            sum[r][c] += y[r][c] + x[r][c];
}

/* Scores of R rows and C blocks of 16 keys. */
VEC_INLINE void score_columns(const int R, const int C, const uint16_t *q, const char *k,
                              int64_t steps, float scale, float *score)
{
    vf half[4][2], x[4][2];
    vf sum[4][2];
    sum_four(R, C, q, k, steps, 0, sum);
    sum_four(R, C, q, k, steps, 2, x);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            sum[r][c] += x[r][c];
    sum_four(R, C, q, k, steps, 1, half);
    sum_four(R, C, q, k, steps, 3, x);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < C; c++)
            vf_store(score + r * KEYS + c * VN,
                     (sum[r][c] + (half[r][c] + x[r][c])) * vf_splat(scale));
}

VEC_INLINE void score_pairs(const int R, const uint16_t *q, const char *k, int64_t steps,
                            float scale, int64_t from, int64_t to, float *score)
{
    int64_t j = from / VN * VN;
    for (; j + VN < to; j += 2 * VN)
        score_columns(R, 2, q, k + j * steps * PAIR_STEP, steps, scale, score + j);
    if (j < to)
        score_columns(R, 1, q, k + j * steps * PAIR_STEP, steps, scale, score + j);
}

/* Scores of keys [from, to), which rows r … r + n - 1 see. */
static void score_whole(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t r,
                        int64_t n, int64_t from, int64_t to)
{
    int64_t at = keys->at + from;
    Bytes bytes = {.row = (const int8_t *)a->k + at * a->head_dim,
                   .next = (const int8_t *)a->v + at * a->head_dim,
                   .keys = to - from,
                   .d = a->head_dim};
    CONSTANT_ROWS_4(n, score_rows_bytes, &bytes, &m->whole_q, r, a->k_scale + at, m->score + from)
}

static void score_many(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t rows)
{
    for (int64_t r = 0; r < rows; r += 4) {
        int64_t n = num_min(4, rows - r), from, to;
        seen_of(m, keys, r, n, &from, &to);
        if (from >= to)
            continue;
        if (few_whole(a->kv_dtype))
            score_whole(a, m, keys, r, n, from / VN * VN, to);
        else
            CONSTANT_ROWS_4(n, score_pairs, m->pair_q + r * a->steps * (PAIR_STEP / 2), m->pair_k,
                            a->steps, a->scale, from, to, m->score + r * KEYS)
    }
}

/* Scores of row r, which sees keys [from, to), become weights. */
static void weigh_many_whole(const AttentionOperands *a, const Many *m, const Keys *keys, int64_t r,
                             int64_t from, int64_t to, const Sums *part)
{
    const int64_t begin = from / VN * VN;
    int8_t *row = m->weight.x + 2 * r * KEYS;
    if (from >= to) {
        memset(row, 0, 2 * KEYS);
        m->weight.unit[r] = 0;
        m->weight.flip[r] = 0;
        return;
    }
    weigh_whole(a, &m->weight, r, begin, m->score + r * KEYS + begin, from - begin, to - begin,
                a->v_scale + keys->at + begin, &part->peak[r], &part->sum[r]);
}

static void value_many_whole(const AttentionOperands *a, const Many *m, const Keys *keys,
                             int64_t rows, float *o)
{
    for (int64_t r = 0; r < rows; r += 4) {
        int64_t n = num_min(4, rows - r), from, to;
        seen_of(m, keys, r, n, &from, &to);
        if (from >= to)
            continue;
        from = from / VN * VN;
        int64_t at = keys->at + from;
        Bytes bytes = {.row = (const int8_t *)a->v + at * a->head_dim,
                       .next = (const int8_t *)a->k + (at + KEYS) * a->head_dim,
                       .keys = to - from,
                       .d = a->head_dim};
        Whole weight = m->weight;
        weight.x += 2 * from;
        CONSTANT_ROWS_4(n, add_rows_bytes, &bytes, &weight, r, o)
    }
}
