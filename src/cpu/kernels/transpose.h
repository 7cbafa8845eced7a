/*
 * Transposes of 4-byte units between rows in memory and panels of 16, by shuffles in registers.
 */
#ifndef CVN_CPU_KERNELS_TRANSPOSE_H
#define CVN_CPU_KERNELS_TRANSPOSE_H

#include "cpu/kernels/vec.h"

#if defined(__AVX512F__)

enum { TRANSPOSE_UNITS = 16 };

/* out[j][i] = row[i][at + j], i, j < 16. */
VEC_INLINE void transpose_units(const void *const row[16], int64_t at, char *out)
{
    __m512i r[16], s[16];
    for (int i = 0; i < 16; i++)
        r[i] = _mm512_loadu_si512((const char *)row[i] + at * 4);
    for (int i = 0; i < 16; i += 2) { /* pairs of rows */
        s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16;
         i += 4) { /* r[i + c]: column 4 L + c of rows i … i + 3, in 128-bit lane L */
        r[i] = _mm512_unpacklo_epi64(s[i], s[i + 2]);
        r[i + 1] = _mm512_unpackhi_epi64(s[i], s[i + 2]);
        r[i + 2] = _mm512_unpacklo_epi64(s[i + 1], s[i + 3]);
        r[i + 3] = _mm512_unpackhi_epi64(s[i + 1], s[i + 3]);
    }
    for (int c = 0; c < 4; c++) { /* lanes of equal L from the four groups of rows */
        __m512i even0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        __m512i odd0 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        __m512i even1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        __m512i odd1 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        _mm512_storeu_si512(out + 64 * c, _mm512_shuffle_i32x4(even0, even1, 0x88));
        _mm512_storeu_si512(out + 64 * (4 + c), _mm512_shuffle_i32x4(odd0, odd1, 0x88));
        _mm512_storeu_si512(out + 64 * (8 + c), _mm512_shuffle_i32x4(even0, even1, 0xdd));
        _mm512_storeu_si512(out + 64 * (12 + c), _mm512_shuffle_i32x4(odd0, odd1, 0xdd));
    }
}

#elif defined(__AVX2__)

enum { TRANSPOSE_UNITS = 8 };

/* out[j][i] = row[i][at + j], i, j < 8; rows of out are 16 units apart. */
VEC_INLINE void transpose_8x8(const void *const row[8], int64_t at, char *out)
{
    __m256 r[8], s[8];
    for (int i = 0; i < 8; i++)
        r[i] = _mm256_loadu_ps((const float *)row[i] + at);
    for (int i = 0; i < 8; i += 2) {
        s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8;
         i += 4) { /* r[i + c]: column 4 L + c of rows i … i + 3, in 128-bit lane L */
        r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
    }
    for (int c = 0; c < 4; c++) {
        _mm256_storeu_ps((float *)(void *)(out + 64 * c),
                         _mm256_permute2f128_ps(r[c], r[4 + c], 0x20));
        _mm256_storeu_ps((float *)(void *)(out + 64 * (4 + c)),
                         _mm256_permute2f128_ps(r[c], r[4 + c], 0x31));
    }
}

/* out[j][i] = row[i][at + j], i < 16, j < 8. */
VEC_INLINE void transpose_units(const void *const row[16], int64_t at, char *out)
{
    transpose_8x8(row, at, out);
    transpose_8x8(row + 8, at, out + 32);
}

#else

enum { TRANSPOSE_UNITS = 4 };

/* out[j][i] = row[i][at + j], i < 16, j < 4. */
VEC_INLINE void transpose_units(const void *const row[16], int64_t at, char *out)
{
    for (int j = 0; j < 4; j++)
        for (int i = 0; i < 16; i++)
            memcpy(out + (j * 16 + i) * 4, (const char *)row[i] + (at + j) * 4, 4);
}

#endif

/* out[j][i] = row[i][j], i < 16, j < units. */
static inline void interleave_units(const void *const row[16], int64_t units, void *out)
{
    char *to = out;
    int64_t j = 0;
    for (; j + TRANSPOSE_UNITS <= units; j += TRANSPOSE_UNITS)
        transpose_units(row, j, to + j * 64);
    for (; j < units; j++)
        for (int i = 0; i < 16; i++)
            memcpy(to + (j * 16 + i) * 4, (const char *)row[i] + j * 4, 4);
}

#endif
