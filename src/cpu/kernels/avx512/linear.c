/*
 * Products with quantized weights with AVX-512 VNNI: vpdpbusd sums four products of unsigned with
 * signed bytes into each of 16 sums, one per row of a panel. Weights are made unsigned by flipping
 * their sign bit, which adds 128 (i4: 8); the activations' sums take that back.
 *
 * A tile of 12 rows of i8 holds 24 sums of 32 registers; one of 8 rows of i4 16, and 8 of floats.
 */
#include <stdint.h>

static void arrange(const int16_t *x, int8_t *out);
#include "cpu/kernels/linear_impl.h"

enum { ROWS_I8 = 12, ROWS_I4 = 8 };

/* [hi of 512][lo of 512] */
static void arrange(const int16_t *x, int8_t *out)
{
    for (int i = 0; i < LINEAR_SPAN; i++) {
        int high = (x[i] + 128) >> 8;
        out[i] = (int8_t)high;
        out[LINEAR_SPAN + i] = (int8_t)(x[i] - 256 * high);
    }
}

/* 64 bytes of weights, and those some units on on their way: with many rows between two loads, the processor's
   own look-ahead does not reach the next line. */
VEC_INLINE __m512i load_unit(const uint8_t *q)
{
    enum { AHEAD = 64 * PANEL_BYTES };
    __builtin_prefetch(q + AHEAD);
    return _mm512_loadu_si512(q);
}

/* sum + w (unsigned) . the four bytes at x (signed), for each of 16 rows. Written out, because compilers
   broadcast x into a register first, and then have too few of them. */
VEC_INLINE __m512i dot(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const int8_t(*)[PANEL_QUAD])x));
    return sum;
}

/* 256 hi + lo, as floats. */
VEC_INLINE __m512 join(__m512i high, __m512i low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

VEC_INLINE void add_row(float *c, __m512 sum, float scale, bool add)
{
    __m512 before = add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, _mm512_set1_ps(scale), before));
}

/* M rows, in two chains of sums where there are few. */
VEC_INLINE void rows_i8(const int M, const LinearTile *t)
{
    enum { CHAINS = 2 };
    const int chains = M <= 4 ? CHAINS : 1;
    __m512i high[ROWS_I8][CHAINS], low[ROWS_I8][CHAINS];
    const __m512i flip = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 2
        for (int i = 0; i < chains; i++) {
            high[r][i] = _mm512_setzero_si512();
            low[r][i] = i ? _mm512_setzero_si512() : _mm512_set1_epi32(-128 * t->span[r].sum[0]);
        }
    const uint8_t *q = t->q;
    const int8_t *x = t->x;
    int64_t u = 0;
    for (; u + chains <= t->units; u += chains, q += chains * PANEL_BYTES, x += chains * PANEL_QUAD)
#pragma GCC unroll 2
        for (int i = 0; i < chains; i++) {
            __m512i w = _mm512_xor_si512(load_unit(q + i * PANEL_BYTES), flip);
            const int8_t *at = x + i * PANEL_QUAD;
#pragma GCC unroll 16
            for (int r = 0; r < M; r++) {
                high[r][i] = dot(high[r][i], w, at + r * LINEAR_ROW_BYTES);
                low[r][i] = dot(low[r][i], w, at + r * LINEAR_ROW_BYTES + LINEAR_SPAN);
            }
        }
    for (; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD) {
        __m512i w = _mm512_xor_si512(load_unit(q), flip);
#pragma GCC unroll 16
        for (int r = 0; r < M; r++) {
            high[r][0] = dot(high[r][0], w, x + r * LINEAR_ROW_BYTES);
            low[r][0] = dot(low[r][0], w, x + r * LINEAR_ROW_BYTES + LINEAR_SPAN);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) {
        if (chains == 2) {
            high[r][0] = _mm512_add_epi32(high[r][0], high[r][1]);
            low[r][0] = _mm512_add_epi32(low[r][0], low[r][1]);
        }
        add_row(t->c + r * PANEL_ROWS, join(high[r][0], low[r][0]), t->span[r].scale, t->add);
    }
}

VEC_INLINE __m512 load_scale(const LinearTile *t, int64_t group)
{
    if (t->scale_dtype == CVN_F32)
        return _mm512_loadu_ps((const float *)t->scale + group * PANEL_ROWS);
    return vf_load_bf16((const uint16_t *)t->scale + group * PANEL_ROWS);
}

/* Two units at a time in two chains where there are few rows: the low nibbles in one, the high ones
   in the other. */
VEC_INLINE void rows_i4(const int M, const LinearTile *t)
{
    const bool split = M <= 4;
    const __m512i flip = _mm512_set1_epi8((char)0x88), mask = _mm512_set1_epi8(0x0f);
    __m512 sum[ROWS_I4];
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
        sum[r] = _mm512_setzero_ps();
    const uint8_t *q = t->q;
    const int8_t *x = t->x;
    int64_t groups = t->units / t->group;
    for (int64_t g = 0; g < groups; g++) {
        __m512i high[ROWS_I4][2], low[ROWS_I4][2];
#pragma GCC unroll 16
        for (int r = 0; r < M; r++) {
            high[r][0] = high[r][1] = low[r][1] = _mm512_setzero_si512();
            low[r][0] = _mm512_set1_epi32(-8 * t->span[r].sum[g]);
        }
        for (int64_t u = 0; u < t->group; u++, q += PANEL_BYTES, x += 2 * PANEL_QUAD) {
            __m512i both = _mm512_xor_si512(load_unit(q), flip);
            __m512i w[2] = {_mm512_and_si512(both, mask),
                            _mm512_and_si512(_mm512_srli_epi16(both, 4), mask)};
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++) {
                const int8_t *at = x + i * PANEL_QUAD;
                const int chain = split ? i : 0;
#pragma GCC unroll 16
                for (int r = 0; r < M; r++) {
                    high[r][chain] = dot(high[r][chain], w[i], at + r * LINEAR_ROW_BYTES);
                    low[r][chain] =
                        dot(low[r][chain], w[i], at + r * LINEAR_ROW_BYTES + LINEAR_SPAN);
                }
            }
        }
        __m512 scale = load_scale(t, g);
#pragma GCC unroll 16
        for (int r = 0; r < M; r++) {
            if (split) {
                high[r][0] = _mm512_add_epi32(high[r][0], high[r][1]);
                low[r][0] = _mm512_add_epi32(low[r][0], low[r][1]);
            }
            sum[r] = _mm512_fmadd_ps(join(high[r][0], low[r][0]), scale, sum[r]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
        add_row(t->c + r * PANEL_ROWS, sum[r], t->span[r].scale, t->add);
}

static void tile_i8(const LinearTile *t)
{
    switch (t->rows) {
    case 1:
        rows_i8(1, t);
        break;
    case 2:
        rows_i8(2, t);
        break;
    case 3:
        rows_i8(3, t);
        break;
    case 4:
        rows_i8(4, t);
        break;
    case 5:
        rows_i8(5, t);
        break;
    case 6:
        rows_i8(6, t);
        break;
    case 7:
        rows_i8(7, t);
        break;
    case 8:
        rows_i8(8, t);
        break;
    case 9:
        rows_i8(9, t);
        break;
    case 10:
        rows_i8(10, t);
        break;
    case 11:
        rows_i8(11, t);
        break;
    case 12:
        rows_i8(12, t);
        break;
    default:
        break;
    }
}

static void tile_i4(const LinearTile *t)
{
    switch (t->rows) {
    case 1:
        rows_i4(1, t);
        break;
    case 2:
        rows_i4(2, t);
        break;
    case 3:
        rows_i4(3, t);
        break;
    case 4:
        rows_i4(4, t);
        break;
    case 5:
        rows_i4(5, t);
        break;
    case 6:
        rows_i4(6, t);
        break;
    case 7:
        rows_i4(7, t);
        break;
    case 8:
        rows_i4(8, t);
        break;
    default:
        break;
    }
}

const LinearIsa linear_avx512_vnni = {
    .rows_i8 = ROWS_I8,
    .rows_i4 = ROWS_I4,
    .quantize = quantize,
    .tile_i8 = tile_i8,
    .tile_i4 = tile_i4,
    .norm_scale = norm_row_scale,
    .norm_span = norm_row_span,
    .write = write,
};
