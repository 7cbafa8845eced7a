/*
 * linear_int8 with AVX-512 VNNI: vpdpbusd sums four products of unsigned with signed bytes into each of 16 sums, one
 * per row of a panel. Weights are made unsigned by flipping their sign bit, which adds 128; the sum of x takes that
 * back. A tile of 24 rows holds 24 of the 32 registers.
 */
#include "cpu/kernels/linear_int8.h"
#include "graph/panels.h"

#include <immintrin.h>

enum { ROWS = 24 };

/* sum + w (unsigned) . the four bytes at x (signed), for each of 16 rows. */
static inline __attribute__((always_inline)) __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const int8_t(*)[PANEL_QUAD])x));
    return sum;
}

static inline __attribute__((always_inline)) void rows_of(const int M, const Int8Tile *t, int first)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    __m512i sum[ROWS];
#pragma GCC unroll 24
    for (int r = 0; r < M; r++)
        sum[r] = _mm512_set1_epi32(-128 * t->sum[first + r]);
    const int8_t *q = t->q, *x = t->x + first * t->stride;
    int64_t stride = t->stride;
    for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD) {
        __m512i w = _mm512_xor_si512(_mm512_loadu_si512(q), flip);
#pragma GCC unroll 24
        for (int r = 0; r < M; r++)
            sum[r] = dot(sum[r], w, x + r * stride);
    }
#pragma GCC unroll 24
    for (int r = 0; r < M; r++)
        _mm512_storeu_si512(t->c + (first + r) * PANEL_ROWS, sum[r]);
}

static int32_t sum_of(const int8_t *x, int64_t n)
{
    const __m512i one = _mm512_set1_epi8(1);
    __m512i sum = _mm512_setzero_si512();
    int64_t i = 0;
    for (; i + 64 <= n; i += 64)
        sum = _mm512_dpbusd_epi32(sum, one, _mm512_loadu_si512(x + i));
    __mmask64 rest = ((__mmask64)1 << (n - i)) - 1;
    sum = _mm512_dpbusd_epi32(sum, one, _mm512_maskz_loadu_epi8(rest, x + i));
    return _mm512_reduce_add_epi32(sum);
}

static void tile(const Int8Tile *t)
{
    int r = 0;
    if (t->rows == ROWS) {
        rows_of(ROWS, t, 0);
        return;
    }
    for (; r + 8 <= t->rows; r += 8)
        rows_of(8, t, r);
    for (; r + 4 <= t->rows; r += 4)
        rows_of(4, t, r);
    for (; r < t->rows; r++)
        rows_of(1, t, r);
}

const Int8Isa linear_int8_avx512 = {.rows = ROWS, .sum = sum_of, .tile = tile};
