/*
 * Products with quantized weights with AVX2: vpmaddwd sums two products of 16-bit numbers into each
 * of 8 sums. Bytes are widened where they lie: of each pair the even ones by shifting left and
 * right, the odd ones by shifting right; the activations are arranged to match,
 *
 *     x0 x2 x1 x3 | x4 x6 x5 x7 | …
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/vec.h"

enum { ROWS = 4, HALVES = 2 /* vectors of 8 sums */ };

static void arrange(const int16_t *x, int8_t *out)
{
    int16_t pair[LINEAR_SPAN];
    for (int i = 0; i < LINEAR_SPAN; i += PANEL_QUAD) {
        pair[i] = x[i];
        pair[i + 1] = x[i + 2];
        pair[i + 2] = x[i + 1];
        pair[i + 3] = x[i + 3];
    }
    memcpy(out, pair, sizeof pair);
}

VEC_INLINE __m256i pair_at(const int8_t *x)
{
    int32_t two;
    memcpy(&two, x, 4);
    return _mm256_set1_epi32(two);
}

VEC_INLINE __m256i load(const uint8_t *q)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)q);
}

/* sum += w . the pair of x */
VEC_INLINE __m256i multiply_add(__m256i sum, __m256i w, __m256i x)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
}

VEC_INLINE void add_row(float *c, const __m256 *sum, float scale, bool add)
{
#pragma GCC unroll 2
    for (int h = 0; h < HALVES; h++) {
        __m256 before = add ? _mm256_loadu_ps(c + 8 * h) : _mm256_setzero_ps();
        _mm256_storeu_ps(c + 8 * h, _mm256_fmadd_ps(sum[h], _mm256_set1_ps(scale), before));
    }
}

VEC_INLINE void rows_i8(const int M, const LinearTile *t)
{
    __m256i sum[ROWS][HALVES];
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
        sum[r][0] = sum[r][1] = _mm256_setzero_si256();
    for (int64_t u = 0; u < t->units; u++) {
        const int8_t *x = (const int8_t *)t->x + u * 2 * PANEL_QUAD;
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i q = load(t->q + u * PANEL_BYTES + 32 * h);
            __m256i even = _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8);
            __m256i odd = _mm256_srai_epi16(q, 8);
#pragma GCC unroll 4
            for (int r = 0; r < M; r++) {
                const int8_t *at = x + r * LINEAR_ROW_BYTES;
                sum[r][h] = multiply_add(sum[r][h], even, pair_at(at));
                sum[r][h] = multiply_add(sum[r][h], odd, pair_at(at + 4));
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < M; r++) {
        __m256 y[HALVES] = {_mm256_cvtepi32_ps(sum[r][0]), _mm256_cvtepi32_ps(sum[r][1])};
        add_row(t->c + r * PANEL_ROWS, y, t->span[r].scale, t->add);
    }
}

VEC_INLINE __m256 load_scale(const LinearTile *t, int64_t at)
{
    return t->scale_dtype == CVN_F32 ? vf_load((const float *)t->scale + at)
                                     : vf_load_bf16((const uint16_t *)t->scale + at);
}

/* One group of half a panel. */
VEC_INLINE void group_i4(const int M, const LinearTile *t, int64_t first, int h, __m256i *sum)
{
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
        sum[r] = _mm256_setzero_si256();
    for (int64_t u = first; u < first + t->group; u++) {
        const int8_t *x = (const int8_t *)t->x + u * 4 * PANEL_QUAD;
        __m256i q = load(t->q + u * PANEL_BYTES + 32 * h);
        /* The nibbles of each pair of bytes, from the lowest on: columns b, 4 + b of the even byte,
           then of the odd one. */
        __m256i w[4] = {_mm256_srai_epi16(_mm256_slli_epi16(q, 12), 12),
                        _mm256_srai_epi16(_mm256_slli_epi16(q, 4), 12),
                        _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 12), _mm256_srai_epi16(q, 12)};
#pragma GCC unroll 4
        for (int r = 0; r < M; r++)
#pragma GCC unroll 4
            for (int i = 0; i < 4; i++)
                sum[r] = multiply_add(sum[r], w[i], pair_at(x + r * LINEAR_ROW_BYTES + 4 * i));
    }
}

VEC_INLINE void rows_i4(const int M, const LinearTile *t)
{
    __m256 y[ROWS][HALVES];
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
        y[r][0] = y[r][1] = _mm256_setzero_ps();
    for (int64_t g = 0; g < t->units / t->group; g++)
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i sum[ROWS];
            group_i4(M, t, g * t->group, h, sum);
            __m256 scale = load_scale(t, g * PANEL_ROWS + 8 * h);
#pragma GCC unroll 4
            for (int r = 0; r < M; r++)
                y[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[r]), scale, y[r][h]);
        }
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
        add_row(t->c + r * PANEL_ROWS, y[r], t->span[r].scale, t->add);
}

static void tile_i8(const LinearTile *t)
{
    CONSTANT_ROWS_4(t->rows, rows_i8, t);
}

static void tile_i4(const LinearTile *t)
{
    CONSTANT_ROWS_4(t->rows, rows_i4, t);
}

static void group_sums(const int8_t *number, int64_t units, const int8_t *x, bool eight,
                       int32_t sum[PANEL_ROWS])
{
    __m256i all[HALVES] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
    for (int64_t u = 0; u < units; u++, x += eight ? PANEL_QUAD : 2 * PANEL_QUAD) {
        const __m256i bytes = pair_at(x); /* of eight */
        const __m256i first = eight ? _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8) : bytes;
        const __m256i second = eight ? _mm256_srai_epi16(bytes, 8) : pair_at(x + 4);
#pragma GCC unroll 2
        for (int h = 0; h < HALVES; h++) {
            __m256i q = load((const uint8_t *)number + u * PANEL_BYTES + 32 * h);
            all[h] = multiply_add(all[h], _mm256_srai_epi16(_mm256_slli_epi16(q, 8), 8), first);
            all[h] = multiply_add(all[h], _mm256_srai_epi16(q, 8), second);
        }
    }
    memcpy(sum, all, sizeof all);
}

#include "cpu/kernels/linear_blocks_impl.h"

/* ---- rows of 8 bits ----
 *
 * 16 bytes of weights, four panel rows of four, become 16 numbers of 16 bits; each row's sum lies in two neighbours until the end.
 */

enum { ROWS_8 = 2, QUARTERS = 4 /* of a panel's rows */ };

/* Four bytes of x as 16-bit numbers, four times. */
static inline __m256i quad_at(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm256_broadcastq_epi64(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(four)));
}

static inline void store_row(float *c, const __m256i *sum, bool add)
{
    const __m256i order = _mm256_setr_epi32(0, 1, 4, 5, 2, 3, 6, 7);
    for (int h = 0; h < 2; h++) {
        __m256i both = _mm256_hadd_epi32(sum[2 * h], sum[2 * h + 1]);
        both = _mm256_permutevar8x32_epi32(both, order);
        __m256i *to = (__m256i *)(void *)(c + 8 * h);
        _mm256_storeu_si256(to, add ? _mm256_add_epi32(both, _mm256_loadu_si256(to)) : both);
    }
}

static inline __attribute__((always_inline)) void rows_of(const int M, const LinearTile *t,
                                                          int panel)
{
    __m256i sum[ROWS_8][QUARTERS];
    for (int r = 0; r < M; r++)
        for (int i = 0; i < QUARTERS; i++)
            sum[r][i] = _mm256_setzero_si256();
    const int8_t *q = (const int8_t *)t->q + panel * t->q_stride, *x = t->x;
    for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD) {
        __m256i row[ROWS_8];
        for (int r = 0; r < M; r++)
            row[r] = quad_at(x + r * t->x_stride);
        for (int i = 0; i < QUARTERS; i++) {
            __m256i w =
                _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(q + 16 * i)));
            for (int r = 0; r < M; r++)
                sum[r][i] = _mm256_add_epi32(sum[r][i], _mm256_madd_epi16(w, row[r]));
        }
    }
    for (int r = 0; r < M; r++)
        store_row(t->c + panel * t->c_stride + r * PANEL_ROWS, sum[r], t->add);
}

static void tile_rows8(const LinearTile *t)
{
    for (int panel = 0; panel < t->panels; panel++) {
        if (t->rows == ROWS_8)
            rows_of(ROWS_8, t, panel);
        else
            rows_of(1, t, panel);
    }
}

#define FIXED .of_rows = &linear_rows_avx2, .fixed = true, .panels = 1, .arrange = arrange

const LinearIsa linear_i8_avx2 = {FIXED, .weight = CVN_I8, .rows = ROWS, .tile = tile_i8};
const LinearIsa linear_i4_avx2 = {FIXED, .weight = CVN_I4, .rows = ROWS, .tile = tile_i4};
const LinearIsa linear_blocks_avx2 = {FIXED, .blocks = true, .rows = LINEAR_ROWS_BLOCKS,
                                      .tile = tile_blocks};
const LinearIsa linear_rows8_avx2 = {.of_rows = &linear_rows_avx2,
                                     .weight = CVN_I8,
                                     .x = CVN_I8,
                                     .rows = ROWS_8,
                                     .panels = 2,
                                     .tile = tile_rows8};
