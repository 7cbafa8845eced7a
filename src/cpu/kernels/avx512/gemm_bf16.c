/*
 * Matrix products of bf16 with AVX-512 BF16: vdpbf16ps multiplies 32 pairs and adds two products to
 * each of 16 f32 sums, twice the work of an f32 fused multiply-add. 12 x 32 accumulators are 24 of
 * 32 registers.
 */
#define VEC_BF16
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/transpose.h"

enum { MR = 12, PANELS = 2, LANES = 32 /* bf16 in a vector */ };

VEC_INLINE __m512bh load_pairs(const void *p)
{
    return (__m512bh)_mm512_loadu_si512(p);
}

/* The first n < 32 elements at p; the others are 0. */
VEC_INLINE __m512bh load_part(const void *p, int64_t n)
{
    return (__m512bh)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1u), p);
}

static void tile_bf16(int64_t k, const void *a_panel, const void *b_panels, size_t b_stride,
                      float *c, bool add)
{
    const char *a = a_panel, *b = b_panels;
    __m512 sum[MR][PANELS];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANELS; v++)
            sum[r][v] = add ? _mm512_loadu_ps(c + (r * PANELS + v) * 16) : _mm512_setzero_ps();
    for (int64_t i = 0; i < k; i++, a += MR * 4, b += 64) {
        __m512bh row0 = load_pairs(b), row1 = load_pairs(b + b_stride);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) {
            int32_t pair;
            memcpy(&pair, a + r * 4, 4);
            __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
            sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, row0);
            sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, row1);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 2
        for (int v = 0; v < PANELS; v++)
            _mm512_storeu_ps(c + (r * PANELS + v) * 16, sum[r][v]);
}

static void pair_rows(const uint16_t *x, int64_t stride, int64_t units, uint32_t *out)
{
    for (int64_t u = 0; u < units; u++, x += 2 * stride, out += GEMM_PANEL) {
        __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
        __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + stride)));
        _mm512_storeu_si512(out, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

/* One step of M x N dot products. */
VEC_INLINE void dots_step(const int M, const int N, const uint16_t *a, const __m512bh *x,
                          vf sum[4][4])
{
#pragma GCC unroll 4
    for (int i = 0; i < M; i++) {
        __m512bh y = load_pairs(a + i * LANES);
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j] = _mm512_dpbf16_ps(sum[i][j], y, x[j]);
    }
}

/* M rows of a against N rows of b, all constants; one accumulator for each of the M * N. */
VEC_INLINE void dots_block(const int M, const int N, int64_t k, const uint16_t *a,
                           const uint16_t *b, int64_t ldb, float *c, int64_t ldc)
{
    vf sum[4][4];
    __m512bh x[4];
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j] = _mm512_setzero_ps();
    int64_t at = 0;
    for (; at + LANES <= k; at += LANES, a += M * LANES) {
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            x[j] = load_pairs(b + j * ldb + at);
            __builtin_prefetch(b + (j + 2 * N) * ldb + at); /* the next block but one */
        }
        dots_step(M, N, a, x, sum);
    }
    if (at < k) {
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            x[j] = load_part(b + j * ldb + at, k - at);
        dots_step(M, N, a, x, sum);
    }
    vf_sum_block(M, N, sum, c, ldc);
}

/* All n columns for M rows. */
VEC_INLINE void dots_rows(const int M, int64_t n, int64_t k, const uint16_t *a, const uint16_t *b,
                          int64_t ldb, float *c, int64_t ldc)
{
    int64_t j = 0;
    for (; j + 4 <= n; j += 4)
        dots_block(M, 4, k, a, b + j * ldb, ldb, c + j, ldc);
    for (; j < n; j++)
        dots_block(M, 1, k, a, b + j * ldb, ldb, c + j, ldc);
}

static void dots_pairs(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                       float *c, int64_t ldc)
{
    CONSTANT_ROWS_4(m, dots_rows, n, k, a, b, ldb, c, ldc);
}

const GemmIsa gemm_bf16_avx512_bf16 = {
    .packed = CVN_BF16,
    .kpack = 2,
    .mr = MR,
    .panels = PANELS,
    .mc = 516,
    .nc = 256,
    .kc = 768,
    .tile = tile_bf16,
    .interleave = interleave_units,
    .pair = pair_rows,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .epilogue = fusion_epilogue_avx512_bf16,
    .squares = tile_add_squares,
    .dots = dots_pairs,
    .lanes = LANES,
    .source = CVN_BF16,
};
