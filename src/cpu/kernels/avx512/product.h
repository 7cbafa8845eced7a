/*
 * Product (cpu/kernels/product.h) with AVX-512 BF16: vdpbf16ps multiplies 32 pairs and adds two products to each of 16
 * sums. 8 rows by 32 columns of sums stay in 16 registers; of A two neighbours in k go to all lanes, of B 16 pairs are a
 * vector: 10 loads for 16 instructions that multiply.
 */
#ifndef CVN_CPU_KERNELS_AVX512_PRODUCT_H
#define CVN_CPU_KERNELS_AVX512_PRODUCT_H

#include "cpu/kernels/product.h"

#include <immintrin.h>
#include <string.h>

enum { TILE_ROWS = 16, TILE_ROW_BYTES = 64, TILE_BYTES = TILE_ROWS * TILE_ROW_BYTES };

static inline void tile_enter(void)
{
}

static inline void tile_leave(void)
{
}

/* 8 rows of A, by `columns` x 16 columns, a constant. */
static inline __attribute__((always_inline)) void product_rows(const Product *p, const int columns,
                                                               const char *a, char *c)
{
    enum { ROWS_AT_ONCE = 8, PAIR_BYTES_OF_A = 4 };
    __m512 sum[ROWS_AT_ONCE][2];
    const char *b = p->b;
#pragma GCC unroll 8
    for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma GCC unroll 2
        for (int v = 0; v < columns; v++)
            sum[r][v] = p->add ? _mm512_loadu_ps(c + (size_t)r * p->c_row + (size_t)v * p->c_right)
                               : _mm512_setzero_ps();
    for (int64_t k = 0; k < p->steps; k++, a += p->a_step, b += p->b_step)
        for (int u = 0; u < TILE_ROWS; u++) {
            __m512bh y[2];
#pragma GCC unroll 2
            for (int v = 0; v < columns; v++)
                y[v] =
                    (__m512bh)_mm512_loadu_si512(b + u * TILE_ROW_BYTES + (size_t)v * p->b_right);
#pragma GCC unroll 8
            for (int r = 0; r < ROWS_AT_ONCE; r++) {
                int pair;
                memcpy(&pair, a + (size_t)r * p->a_row + u * PAIR_BYTES_OF_A, sizeof pair);
                __m512bh x = (__m512bh)_mm512_set1_epi32(pair);
#pragma GCC unroll 2
                for (int v = 0; v < columns; v++)
                    sum[r][v] = _mm512_dpbf16_ps(sum[r][v], x, y[v]);
            }
        }
#pragma GCC unroll 8
    for (int r = 0; r < ROWS_AT_ONCE; r++)
#pragma GCC unroll 2
        for (int v = 0; v < columns; v++)
            _mm512_storeu_ps(c + (size_t)r * p->c_row + (size_t)v * p->c_right, sum[r][v]);
}

static inline void product_run(const Product *p)
{
    for (int r = 0; r < (p->below ? 2 : 1) * TILE_ROWS; r += TILE_ROWS / 2) {
        size_t half = (size_t)(r % TILE_ROWS), below = r >= TILE_ROWS;
        const char *a = (const char *)p->a + below * p->a_below + half * p->a_row;
        char *c = (char *)p->c + below * p->c_below + half * p->c_row;
        if (p->right)
            product_rows(p, 2, a, c);
        else
            product_rows(p, 1, a, c);
    }
}

#endif
