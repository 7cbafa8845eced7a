/*
 * Products with weights in bf16 by AVX-512, with the bits of AMX tiles.
 *
 * A tile product does not add in the order of k: over its 16 pairs it sums the even products and the odd ones apart,
 * from zero and in f32, then adds the two sums, and that to the tile; denormals are zeros (TDPBF16PS in volume 2 of the
 * Intel 64 and IA-32 Architectures Software Developer's Manual). Products of bf16 are exact in f32, so that fused
 * multiply-adds of widened numbers do the same. A row takes two of them for 64 bytes of weights: fewer than 16 rows are
 * limited by memory, as they are by tiles that they do not fill.
 */
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"

enum { ROWS = 4, STEP = 16 /* units of a tile */, AHEAD = 64 * PANEL_BYTES };

/* M rows, P panels, constants, in the order of a tile. */
VEC_INLINE void block(const int M, const int P, const LinearTile *t)
{
    __m512 sum[ROWS][2];
    const uint8_t *w = t->q;
    const uint16_t *x = t->x;
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
#pragma GCC unroll 2
        for (int j = 0; j < P; j++)
            sum[r][j] = t->add ? _mm512_loadu_ps(t->c + j * t->c_stride + r * PANEL_ROWS)
                               : _mm512_setzero_ps();
    for (int64_t u = 0; u < t->units;) {
        __m512 even[ROWS][2], odd[ROWS][2];
#pragma GCC unroll 4
        for (int r = 0; r < M; r++)
#pragma GCC unroll 2
            for (int j = 0; j < P; j++)
                even[r][j] = odd[r][j] = _mm512_setzero_ps();
        for (int64_t end = u + STEP < t->units ? u + STEP : t->units; u < end;
             u++, w += PANEL_BYTES, x += 2)
#pragma GCC unroll 2
            for (int j = 0; j < P; j++) {
                const uint8_t *at = w + j * t->q_stride;
                __builtin_prefetch(at + AHEAD);
                __m512i pair = _mm512_loadu_si512(at);
                __m512 low = _mm512_castsi512_ps(_mm512_slli_epi32(pair, 16));
                __m512 high = _mm512_castsi512_ps(
                    _mm512_and_si512(pair, _mm512_set1_epi32((int32_t)0xffff0000u)));
#pragma GCC unroll 4
                for (int r = 0; r < M; r++) {
                    const uint16_t *value = x + r * t->x_stride;
                    even[r][j] =
                        _mm512_fmadd_ps(_mm512_set1_ps(bf16_to_f32(value[0])), low, even[r][j]);
                    odd[r][j] =
                        _mm512_fmadd_ps(_mm512_set1_ps(bf16_to_f32(value[1])), high, odd[r][j]);
                }
            }
#pragma GCC unroll 4
        for (int r = 0; r < M; r++)
#pragma GCC unroll 2
            for (int j = 0; j < P; j++)
                sum[r][j] = _mm512_add_ps(sum[r][j], _mm512_add_ps(even[r][j], odd[r][j]));
    }
#pragma GCC unroll 4
    for (int r = 0; r < M; r++)
#pragma GCC unroll 2
        for (int j = 0; j < P; j++)
            _mm512_storeu_ps(t->c + j * t->c_stride + r * PANEL_ROWS, sum[r][j]);
}

VEC_INLINE void panels(const int M, const LinearTile *t)
{
    if (t->panels == 2)
        block(M, 2, t);
    else
        block(M, 1, t);
}

static void tile(const LinearTile *t)
{
    CONSTANT_ROWS_4(t->rows, panels, t);
}

const LinearIsa linear_as_tiles = {.rows = ROWS, .tile = tile};
