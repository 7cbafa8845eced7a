/*
 * Packing for tiles of AMX (gemm_tiles.c): two tiles at a time, of 32 rows or columns of an operand and 32 values of k. Which
 * of the four it is says how the operand lies, and whether tiles keep its rows (A) or pairs of k (B):
 *
 *              k along                      k across (rows or columns are neighbours)
 *     A        copied                       paired and turned
 *     B        turned, 4 bytes at a time    paired
 *
 * Each line of an operand that is read, another one is asked for, which will be packed later.
 */
#define VEC_BF16
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/transpose.h"

enum { ROWS = GEMM_PANEL, LINE = 64, TILE = ROWS * LINE };

void gemm_tiles_copy(const uint16_t *x, int64_t stride, const uint16_t *ahead, void *out[2])
{
    for (int t = 0; t < 2; t++) {
        char *to = out[t];
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++, x += stride, ahead += stride) {
            __builtin_prefetch(ahead, 0, 2);
            _mm512_storeu_si512(to + i * LINE, _mm512_loadu_si512(x));
        }
    }
}

void gemm_tiles_turn(const uint16_t *x, int64_t stride, const uint16_t *ahead, void *out[2])
{
    for (int t = 0; t < 2; t++) {
        const void *row[ROWS];
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++, x += stride, ahead += stride) {
            __builtin_prefetch(ahead, 0, 2);
            row[i] = x;
        }
        transpose_units(row, 0, out[t]);
    }
}

/* Pairs of k, of 16 columns each, from columns 0 … 15 and 16 … 31. */
void gemm_tiles_pair(const uint16_t *x, int64_t stride, const uint16_t *ahead, void *out[2])
{
    enum { OTHER = 32 }; /* an element of the second operand of a permutation */
    uint16_t order[2][32];
    for (int i = 0; i < 32; i++) {
        order[0][i] = (uint16_t)(i / 2 + (i % 2 ? OTHER : 0));
        order[1][i] = (uint16_t)(order[0][i] + ROWS);
    }
    __m512i low = _mm512_loadu_si512(order[0]), high = _mm512_loadu_si512(order[1]);
    char *first = out[0], *second = out[1];
#pragma GCC unroll 16
    for (int u = 0; u < ROWS; u++, x += 2 * stride, ahead += 2 * stride) {
        __m512i even = _mm512_loadu_si512(x), odd = _mm512_loadu_si512(x + stride);
        __builtin_prefetch(ahead, 0, 2);
        __builtin_prefetch(ahead + stride, 0, 2);
        _mm512_storeu_si512(first + u * LINE, _mm512_permutex2var_epi16(even, low, odd));
        _mm512_storeu_si512(second + u * LINE, _mm512_permutex2var_epi16(even, high, odd));
    }
}

void gemm_tiles_pair_turn(const uint16_t *x, int64_t stride, const uint16_t *ahead, void *out[2])
{
    char pairs[2][TILE];
    gemm_tiles_pair(x, stride, ahead, (void *[2]){pairs[0], pairs[1]});
    for (int t = 0; t < 2; t++) {
        const void *row[ROWS];
#pragma GCC unroll 16
        for (int i = 0; i < ROWS; i++)
            row[i] = pairs[t] + i * LINE;
        transpose_units(row, 0, out[t]);
    }
}
