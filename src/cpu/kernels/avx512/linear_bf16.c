/*
 * Products with weights in bf16 with AVX-512 BF16: vdpbf16ps adds two products to each of 16 sums, one per row of a
 * panel. Up to 6 rows take four panels at a time, up to 12 two: at most 24 sums of 32 registers.
 */
#define VEC_BF16
#include "cpu/kernels/linear_float.h"
#include "cpu/kernels/linear_write_impl.h"

enum { ROWS = 12, FEW = 6, AHEAD = 128 * PANEL_BYTES /* what of a panel is fetched ahead */ };

/* M rows, P panels from the given one on, constants. */
VEC_INLINE void block(const int M, const int P, const FloatTile *t, int panel)
{
    __m512 sum[ROWS][4];
    float *c = t->c + panel * t->c_stride;
    const char *w = t->w + panel * t->w_stride, *x = t->x;
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            sum[r][j] = t->add ? _mm512_loadu_ps(c + j * t->c_stride + r * PANEL_ROWS)
                               : _mm512_setzero_ps();
    for (int64_t u = 0; u < t->units; u++, w += PANEL_BYTES, x += 4) {
        __m512bh y[4];
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            __builtin_prefetch(w + j * t->w_stride + AHEAD, 0, 2);
            y[j] = (__m512bh)_mm512_loadu_si512(w + j * t->w_stride);
        }
#pragma GCC unroll 16
        for (int r = 0; r < M; r++) {
            int32_t pair;
            memcpy(&pair, x + r * LINEAR_SPAN * 2, sizeof pair);
            __m512bh a = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 4
            for (int j = 0; j < P; j++)
                sum[r][j] = _mm512_dpbf16_ps(sum[r][j], a, y[j]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            _mm512_storeu_ps(c + j * t->c_stride + r * PANEL_ROWS, sum[r][j]);
}

/* M rows, all panels. */
VEC_INLINE void rows(const int M, const FloatTile *t)
{
    const int P = M <= FEW ? 4 : 2;
    int panel = 0;
    for (; panel + P <= t->panels; panel += P)
        block(M, P, t, panel);
    for (; panel < t->panels; panel++)
        block(M, 1, t, panel);
}

static void tile(const FloatTile *t)
{
    switch (t->rows) {
    case 1:
        rows(1, t);
        break;
    case 2:
        rows(2, t);
        break;
    case 3:
        rows(3, t);
        break;
    case 4:
        rows(4, t);
        break;
    case 5:
        rows(5, t);
        break;
    case 6:
        rows(6, t);
        break;
    case 7:
        rows(7, t);
        break;
    case 8:
        rows(8, t);
        break;
    case 9:
        rows(9, t);
        break;
    case 10:
        rows(10, t);
        break;
    case 11:
        rows(11, t);
        break;
    case 12:
        rows(12, t);
        break;
    default:
        break;
    }
}

const FloatIsa linear_avx512_bf16dot = {.weight = CVN_BF16,
                                        .x = CVN_BF16,
                                        .rows = ROWS,
                                        .few = FEW,
                                        .even = true,
                                        .tile = tile,
                                        .norm_scale = norm_row_scale,
                                        .norm_span = norm_row_span,
                                        .write = write};
