/* Rows of bf16, or of 4-byte units, packed as columns of 16: tiles of B (product.h), which vdpbf16ps multiplies as well. */
#ifndef CVN_CPU_KERNELS_PACK_COLUMNS_H
#define CVN_CPU_KERNELS_PACK_COLUMNS_H

#include "cpu/kernels/transpose.h"

enum { PACK_ROWS = 16, PACK_STEP = 32 /* elements */, PACK_BYTES = 1024 };

/* The first of n elements, as many as there are of 32. */
static inline __mmask32 elements(int64_t n)
{
    return n >= 32 ? ~(__mmask32)0 : ((__mmask32)1 << n) - 1;
}

/* `rows` of 16 rows of n elements as tiles of B over their elements, one after the other: pairs (2 k, 2 k + 1) of 16
   columns; those of the other rows are zeros. */
static inline void pack_columns(const uint16_t *const *row, int64_t rows, int64_t n, char *out)
{
    __m512i line[PACK_ROWS];
    const void *whole[PACK_ROWS], *part[PACK_ROWS];
    for (int i = 0; i < PACK_ROWS; i++) {
        whole[i] = i < rows ? row[i] : NULL;
        part[i] = &line[i];
    }
    for (int64_t at = 0; at < n; at += PACK_STEP, out += PACK_BYTES) {
        if (rows == PACK_ROWS && at + PACK_STEP <= n) {
            transpose_units(whole, at / 2, out);
            continue;
        }
        for (int i = 0; i < PACK_ROWS; i++)
            line[i] = i < rows ? _mm512_maskz_loadu_epi16(elements(n - at), row[i] + at)
                               : _mm512_setzero_si512();
        transpose_units(part, 0, out);
    }
}

#endif
