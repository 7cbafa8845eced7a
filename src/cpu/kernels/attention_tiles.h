/*
 * What attention and its gradient share where bf16 is multiplied, on tiles of AMX and in the same layout with AVX-512:
 * which operation it is, who sees which key, packing to tiles, and the exponential. Who includes this has included the
 * product.h of its instruction set.
 *
 * Scores are made transposed, S' = K Q', 32 queries wide, so that each lane of a vector is a query and softmax needs
 * no sum across lanes. Rows of K are then tiles of A as they lie, and two rows of weights become a row of tiles of B
 * by one instruction:
 *
 *     row of key k      [k, 0] [k, 1] …      [k, 31]         bf16, 32 queries: a row of a tile of A over queries
 *     row of key k + 1  [k+1, 0] …           [k+1, 31]
 *     unpack low        [k, 0] [k+1, 0] … [k, 3] [k+1, 3]  [k, 8] … [k+1, 11]  [k, 16] …  [k, 24] …     left tile of B
 *     unpack high       [k, 4] [k+1, 4] …                  [k, 12] …           [k, 20] …  [k, 28] …     right tile
 *
 * Column c of the left tile is thus query 8 (c / 4) + c % 4 of the 32, that of the right tile 4 more: column_query.
 */
#ifndef CVN_CPU_KERNELS_ATTENTION_TILES_H
#define CVN_CPU_KERNELS_ATTENTION_TILES_H

#include "cpu/kernels/attention_operands.h"
#include "cpu/kernels/pack_columns.h"
#include "cpu/kernels/power_of_two.h"
#include "cpu/kernels/product.h"

enum { STEP = 32 /* of k in a tile */, WIDE = 32 /* queries of a group: two tiles of columns */ };
_Static_assert((int)STEP == 32 && (int)TILE_ROWS == 16,
               "steps and tiles as attention_of counts them");

static const float NONE = -1e30f; /* the largest score of a query that has seen no key */
static const float HIDDEN =
    -1e35f; /* a score that a query does not see, times exponent: a weight of 0 */

/* All of bf16, or k and v of 8 bits; and a scale by which HIDDEN can be divided. Few positions read the cache where it
   lies (attention_few_impl.h); caps and sinks are attention_impl.h's. */
static inline bool match_tiles(const Op *op)
{
    AttentionOperands a = attention_of(op, NULL);
    bool scale = a.exponent > 1e-3f && a.exponent < 1e3f;
    if (a.cap > 0 || op->attr.sinks)
        return false;
    cvn_dtype kv = op->operand[1]->type.dtype;
    if (op->operand[0]->type.dtype != CVN_BF16 || op->operand[2]->type.dtype != kv ||
        (kv != CVN_BF16 && (kv != CVN_I8 || op->kind != OP_ATTENTION)))
        return false;
    return scale && a.seq > ATTENTION_FEW && a.head_dim > 0 && attention_pages_match(op, STEP);
}

/* Query r of a pair of batch and KV head is position r / group of head r % group: its first element in q. */
static inline int64_t query_at(const AttentionOperands *a, int64_t b, int64_t h, int64_t r)
{
    return ((b * a->seq + r / a->group) * a->heads + h * a->group + r % a->group) * a->head_dim;
}

static inline int column_query(int tile, int column)
{
    return column / 4 * 8 + column % 4 + 4 * tile;
}

/* Lanes of two vectors of 32 queries in the order of the columns of a tile. */
static inline __m512 by_column(int tile, __m512 low, __m512 high)
{
    const __m512i order =
        _mm512_set_epi32(27, 26, 25, 24, 19, 18, 17, 16, 11, 10, 9, 8, 3, 2, 1, 0);
    return _mm512_permutex2var_ps(low, _mm512_add_epi32(order, _mm512_set1_epi32(4 * tile)), high);
}

/* A row of 32 sums in bf16. */
static inline __m512i round_row(__m512 low, __m512 high)
{
    return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

/* The lower (upper) 16 of a row of bf16. */
static inline __m512 widen(__m256i half)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}

static inline __m512 widen_low(__m512i row)
{
    return widen(_mm512_castsi512_si256(row));
}

static inline __m512 widen_high(__m512i row)
{
    return widen(_mm512_extracti64x4_epi64(row, 1));
}

/* Which queries of half v see a key. */
static inline __mmask16 sees(const Seen *s, int v, int64_t key)
{
    __m512i k = _mm512_set1_epi32((int32_t)key);
    return _mm512_cmple_epi32_mask(_mm512_loadu_si512(s->first + v * 16), k) &
           _mm512_cmpgt_epi32_mask(_mm512_loadu_si512(s->seen + v * 16), k);
}

/* ---- softmax ---- */

/* The largest scores of 32 queries over rows [from, to) of score, whose row 0 is key j. Where that is `masked`, what a
   query does not see is overwritten. scale: what scores are first multiplied by, for each row, or NULL. */
static inline void find_peaks(const AttentionOperands *a, const Seen *seen, int64_t j, int64_t from,
                              int64_t to, bool masked, const float *scale, float *score,
                              __m512 top[2])
{
    const __m512 hidden = _mm512_set1_ps(HIDDEN / a->exponent);
    __m512 other[2] = {
        hidden, hidden}; /* of odd keys: two chains of instructions that wait for each other */
    top[0] = top[1] = hidden;
    for (int64_t i = from; i < to; i += 2)
        for (int v = 0; v < 2; v++) {
            float *even = score + i * WIDE + v * 16, *odd = even + WIDE;
            __m512 s = _mm512_load_ps(even), t = _mm512_load_ps(odd);
            if (scale) {
                s = _mm512_mul_ps(s, _mm512_set1_ps(scale[i]));
                t = _mm512_mul_ps(t, _mm512_set1_ps(scale[i + 1]));
            }
            if (masked) {
                s = _mm512_mask_mov_ps(hidden, sees(seen, v, j + i), s);
                t = _mm512_mask_mov_ps(hidden, sees(seen, v, j + i + 1), t);
            }
            if (masked || scale) {
                _mm512_store_ps(even, s);
                _mm512_store_ps(odd, t);
            }
            top[v] = _mm512_max_ps(s, top[v]);
            other[v] = _mm512_max_ps(t, other[v]);
        }
    for (int v = 0; v < 2; v++)
        top[v] = _mm512_max_ps(top[v], other[v]);
}

/* Replaces peaks that are exceeded by more than 2^RISE. base: those in use from here on. Returns whether there was one;
   factor: what sums so far must then be multiplied by. */
static inline bool raise_peaks(const AttentionOperands *a, const __m512 top[2], float *peak,
                               __m512 base[2], __m512 factor[2])
{
    enum { RISE = 8 };
    __mmask16 rose[2];
    for (int v = 0; v < 2; v++) {
        __m512 now = _mm512_mul_ps(top[v], _mm512_set1_ps(a->exponent));
        __m512 old = _mm512_load_ps(peak + v * 16);
        rose[v] = _mm512_cmp_ps_mask(now, _mm512_add_ps(old, _mm512_set1_ps(RISE)), _CMP_GT_OQ);
        base[v] = _mm512_mask_mov_ps(old, rose[v], now);
        factor[v] = _mm512_mask_mov_ps(_mm512_set1_ps(1), rose[v],
                                       power_of_two(_mm512_sub_ps(old, base[v])));
        _mm512_store_ps(peak + v * 16, base[v]);
    }
    return rose[0] | rose[1];
}

/* ---- packing ---- */

static inline __m512i pair_rows(__m256i even, __m256i odd)
{
    return _mm512_or_si512(_mm512_cvtepu16_epi32(even),
                           _mm512_slli_epi32(_mm512_cvtepu16_epi32(odd), 16));
}

/* Elements [at, at + 16) of `rows` of 32 rows of n, in pairs of rows; zeros for the others. */
static inline void pair_columns(const uint16_t *const *row, int64_t rows, int64_t at, int64_t n,
                                __m512i out[TILE_ROWS])
{
    const __mmask16 valid = (__mmask16)elements(n - at);
    if (rows == STEP) {
        for (int i = 0; i < TILE_ROWS; i++)
            out[i] = pair_rows(_mm256_maskz_loadu_epi16(valid, row[2 * i] + at),
                               _mm256_maskz_loadu_epi16(valid, row[2 * i + 1] + at));
        return;
    }
    for (int i = 0; i < TILE_ROWS; i++) {
        __m256i even = _mm256_setzero_si256(), odd = even;
        if (2 * i < rows)
            even = _mm256_maskz_loadu_epi16(valid, row[2 * i] + at);
        if (2 * i + 1 < rows)
            odd = _mm256_maskz_loadu_epi16(valid, row[2 * i + 1] + at);
        out[i] = pair_rows(even, odd);
    }
}

/* `rows` of 32 rows of n elements as tiles of B over the rows, one after the other: pairs of rows, 16 columns. */
static inline void pack_pairs(const uint16_t *const *row, int64_t rows, int64_t n, char *out)
{
    for (int64_t at = 0; at < n; at += TILE_ROWS, out += TILE_BYTES)
        pair_columns(row, rows, at, n, (__m512i *)(void *)out);
}

/* The same rows, transposed, as tiles of A: 16 elements by 32 rows, `step` bytes from tile to tile. */
static inline void pack_transposed(const uint16_t *const *row, int64_t rows, int64_t n, size_t step,
                                   char *out)
{
    __m512i pair[TILE_ROWS];
    const void *from[TILE_ROWS];
    for (int i = 0; i < TILE_ROWS; i++)
        from[i] = &pair[i];
    for (int64_t at = 0; at < n; at += TILE_ROWS, out += step) {
        pair_columns(row, rows, at, n, pair);
        transpose_units(from, 0, out);
    }
}

/* Rounds the first n <= 16 sums to bf16. */
static inline void write_rounded(uint16_t *to, __m512 y, int64_t n)
{
    _mm256_mask_storeu_epi16(to, (__mmask16)elements(num_min(n, 16)),
                             (__m256i)_mm512_cvtneps_pbh(y));
}

/* n rows of head_dim elements of bf16, or of 8 bits, which bf16 holds exactly, as rows of whole steps, and zeros up to `rows` of
   them. */
static inline void pack_rows(const AttentionOperands *a, const void *x, int64_t n, int64_t rows,
                             char *out)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t s = 0; s < a->steps; s++, out += TILE_ROW_BYTES) {
            __mmask32 valid = i < n ? elements(a->head_dim - s * STEP) : 0;
            int64_t at = i * a->head_dim + s * STEP;
            if (a->kv_dtype != CVN_I8) {
                _mm512_storeu_si512(out, _mm512_maskz_loadu_epi16(valid, (const uint16_t *)x + at));
                continue;
            }
            __m256i eight = _mm256_maskz_loadu_epi8(valid, (const int8_t *)x + at);
            __m512i low = _mm512_cvtepi8_epi32(_mm256_castsi256_si128(eight));
            __m512i high = _mm512_cvtepi8_epi32(_mm256_extracti128_si256(eight, 1));
            _mm512_storeu_si512(out, round_row(_mm512_cvtepi32_ps(low), _mm512_cvtepi32_ps(high)));
        }
}

/* `rows` queries from number r0 on, or their gradients, in groups of WIDE, as tiles of B over head_dim; those past the end are
   zeros. row, unless NULL, [rows]: where each begins. */
static inline void pack_queries(const AttentionOperands *a, const void *data, int64_t b, int64_t h,
                                int64_t r0, int64_t rows, char *out, const uint16_t **row)
{
    const uint16_t *own[TILE_ROWS];
    for (int64_t r = 0; r < num_round_up(rows, WIDE); r += TILE_ROWS) {
        const uint16_t **from = row ? row + r : own;
        int64_t n = num_max(num_min(TILE_ROWS, rows - r), 0);
        for (int64_t i = 0; i < n; i++)
            from[i] = (const uint16_t *)data + query_at(a, b, h, r0 + r + i);
        pack_columns(from, n, a->head_dim, out + r / TILE_ROWS * a->steps * TILE_BYTES);
    }
}

/* n rows of head_dim elements, `row` from one to the next, transposed, as tiles of A: of each `keys` of them [tiles][keys / STEP],
   and zeros up to `all`. */
static inline void pack_across(const AttentionOperands *a, const uint16_t *x, int64_t row,
                               int64_t n, int64_t all, int64_t keys, char *out)
{
    for (int64_t j = 0; j < all; j += STEP) {
        const uint16_t *from[STEP];
        int64_t rows = num_max(num_min(STEP, n - j), 0), steps = keys / STEP;
        for (int64_t i = 0; i < rows; i++)
            from[i] = x + (j + i) * row;
        pack_transposed(from, rows, a->head_dim, (size_t)(steps * TILE_BYTES),
                        out + (j / keys * a->tiles * steps + j % keys / STEP) * TILE_BYTES);
    }
}

/* 16 columns of tiles of sums over head_dim, two beside each other, become rows of tiles * 16 floats. */
static inline void turn_sums(const AttentionOperands *a, const float *from, float *row)
{
    for (int64_t t = 0; t < a->tiles; t++, from += 2 * TILE_ROWS * 16, row += 16 * TILE_ROWS) {
        const void *line[TILE_ROWS];
        for (int i = 0; i < TILE_ROWS; i++)
            line[i] = from + i * 16;
        transpose_units(line, 0, (char *)row);
    }
}

/* ---- products ---- */

/* sum [keys][WIDE], from `from` up to `to`, whole steps: rows of keys or values times columns of a group of queries. */
static inline void multiply_rows(const AttentionOperands *a, const char *rows, const char *columns,
                                 int64_t from, int64_t to, float *sum)
{
    size_t row = (size_t)a->steps * TILE_ROW_BYTES, tiles = (size_t)a->steps * TILE_BYTES;
    Product p = {.a_row = row,
                 .a_below = TILE_ROWS * row,
                 .a_step = TILE_ROW_BYTES,
                 .b = columns,
                 .b_right = tiles,
                 .b_step = TILE_BYTES,
                 .steps = a->steps,
                 .c_row = WIDE * 4,
                 .c_right = TILE_ROW_BYTES,
                 .c_below = TILE_ROWS * WIDE * 4,
                 .below = true,
                 .right = true};
    for (int64_t i = from; i < to; i += STEP) {
        p.a = rows + (size_t)i * row;
        p.c = sum + i * WIDE;
        product_run(&p);
    }
}

/* sum [tiles][2] tiles (unless `add`, 0) += what lies across, [tiles] of `apart` bytes, times pairs of so many steps of keys. */
static inline void multiply_across(const AttentionOperands *a, const char *across, size_t apart,
                                   const char *pairs, int64_t steps, float *sum, bool add)
{
    Product p = {.a_row = TILE_ROW_BYTES,
                 .a_below = apart,
                 .a_step = TILE_BYTES,
                 .b = pairs,
                 .b_right = TILE_BYTES,
                 .b_step = 2 * TILE_BYTES,
                 .steps = steps,
                 .c_row = TILE_ROW_BYTES,
                 .c_right = TILE_BYTES,
                 .c_below = 2 * TILE_BYTES,
                 .right = true,
                 .add = add};
    for (int64_t t = 0; t < a->tiles; t += 2) {
        p.a = across + (size_t)t * apart;
        p.c = sum + t * 2 * TILE_ROWS * 16;
        p.below = t + 1 < a->tiles;
        product_run(&p);
    }
}

#endif
