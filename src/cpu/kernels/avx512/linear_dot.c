/*
 * Products with the dot-product instructions of AVX-512. With weights in bf16: vdpbf16ps adds two products to each of 16
 * sums, one per row of a panel. Of rows and weights of 8 bits: vpdpbusd adds four products of an unsigned byte with a
 * signed one. Weights are made unsigned by flipping their sign bit, which adds 128; the sum of x takes that back.
 *
 * Up to 6 rows take four panels at a time, up to 12 two: at most 24 sums of 32 registers.
 */
#define VEC_BF16
#include "cpu/kernels/avx512/linear_vnni.h"
#include "cpu/kernels/constant_rows.h"

enum { ROWS = 12, FEW = 6, AHEAD = 128 * PANEL_BYTES /* what of a panel is fetched ahead */ };

/* Sums before the first product: those there are, at c, or zeros; of 8 bits less what flipped weights add. */
VEC_INLINE __m512i first_sums(const bool eight, const LinearTile *t, int r, const float *c)
{
    __m512i before = t->add ? _mm512_loadu_si512(c) : _mm512_setzero_si512();
    return eight ? _mm512_sub_epi32(before, _mm512_set1_epi32(128 * t->sum[r])) : before;
}

/* sum + w . x */
VEC_INLINE __m512i dot_of(const bool eight, __m512i sum, __m512i w, __m512i x)
{
    if (eight)
        return dot(sum, w, x);
    return _mm512_castps_si512(
        _mm512_dpbf16_ps(_mm512_castsi512_ps(sum), (__m512bh)x, (__m512bh)w));
}

/* M rows, P panels from the given one on, constants; eight: of 8 bits. */
VEC_INLINE void block(const bool eight, const int M, const int P, const LinearTile *t, int panel)
{
    const __m512i flip = _mm512_set1_epi8((char)0x80);
    const int row = eight ? LINEAR_SPAN : 2 * LINEAR_SPAN; /* bytes of x */
    __m512i sum[ROWS][4];
    float *c = t->c + panel * t->c_stride;
    const uint8_t *w = t->q + panel * t->q_stride;
    const int8_t *x = t->x;
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            sum[r][j] = first_sums(eight, t, r, c + j * t->c_stride + r * PANEL_ROWS);
    for (int64_t u = 0; u < t->units; u++, w += PANEL_BYTES, x += 4) {
        __m512i y[4];
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            __builtin_prefetch(w + j * t->q_stride + AHEAD, 0, 2);
            y[j] = _mm512_loadu_si512(w + j * t->q_stride);
            if (eight)
                y[j] = _mm512_xor_si512(y[j], flip);
        }
#pragma GCC unroll 16
        for (int r = 0; r < M; r++) {
            __m512i a = load_x(x + r * row);
#pragma GCC unroll 4
            for (int j = 0; j < P; j++)
                sum[r][j] = dot_of(eight, sum[r][j], y[j], a);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            _mm512_storeu_si512(c + j * t->c_stride + r * PANEL_ROWS, sum[r][j]);
}

/* M rows, all panels. */
VEC_INLINE void rows(const int M, const bool eight, const LinearTile *t)
{
    const int P = M <= FEW ? 4 : 2;
    int panel = 0;
    for (; panel + P <= t->panels; panel += P)
        block(eight, M, P, t, panel);
    for (; panel < t->panels; panel++)
        block(eight, M, 1, t, panel);
}

VEC_INLINE void all_rows(const bool eight, const LinearTile *t)
{
    CONSTANT_ROWS_12(t->rows, rows, eight, t);
}

static void tile_bf16(const LinearTile *t)
{
    all_rows(false, t);
}

static void tile_rows8(const LinearTile *t)
{
    all_rows(true, t);
}

#define MEMBERS                                                                                    \
    .of_rows = &linear_rows_avx512_bf16, .rows = ROWS, .few = FEW, .even = true, .panels = 2

const LinearIsa linear_bf16_avx512_bf16 = {MEMBERS, .weight = CVN_BF16, .x = CVN_BF16,
                                           .tile = tile_bf16};
const LinearIsa linear_rows8_avx512 = {MEMBERS, .weight = CVN_I8, .x = CVN_I8, .tile = tile_rows8};
