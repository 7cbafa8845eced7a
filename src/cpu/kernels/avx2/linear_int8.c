/*
 * Products of rows and weights of 8 bits with AVX2: vpmaddwd sums two products of 16-bit numbers into each of 8 sums. 16 bytes of weights, four
 * panel rows of four, become 16 such numbers; each row's sum lies in two neighbours until the end.
 */
#include "cpu/kernels/linear_rows8_impl.h"

#include <immintrin.h>

enum { ROWS = 2, QUARTERS = 4 /* of a panel's rows */ };

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

static inline __attribute__((always_inline)) void rows_of(const int M, const DirectTile *t,
                                                          int panel)
{
    __m256i sum[ROWS][QUARTERS];
    for (int r = 0; r < M; r++)
        for (int i = 0; i < QUARTERS; i++)
            sum[r][i] = _mm256_setzero_si256();
    const int8_t *q = (const int8_t *)t->w + panel * t->w_stride, *x = t->x;
    for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD) {
        __m256i row[ROWS];
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

static void tile(const DirectTile *t)
{
    for (int panel = 0; panel < t->panels; panel++) {
        if (t->rows == ROWS)
            rows_of(ROWS, t, panel);
        else
            rows_of(1, t, panel);
    }
}

const DirectIsa linear_avx2_rows8 = {ROWS8_MEMBERS, .rows = ROWS, .tile = tile};
