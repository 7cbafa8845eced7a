/* What products by vpdpbusd share: panels that are read, and numbers that are multiplied. */
#ifndef CVN_CPU_KERNELS_AVX512_LINEAR_VNNI_H
#define CVN_CPU_KERNELS_AVX512_LINEAR_VNNI_H

#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"

/* Where the panels of a block are read, and what of them is asked for at the same time. */
typedef struct Streams {
    const uint8_t *q[LINEAR_BLOCK], *ahead[LINEAR_BLOCK];
} Streams;

/* 64 bytes of a panel, `at` bytes from its beginning. */
VEC_INLINE __m512i load_unit(const Streams *s, int j, int64_t at)
{
    __builtin_prefetch(s->ahead[j] + at, 0, 2);
    return _mm512_loadu_si512(s->q[j] + at);
}

/* The four bytes at x, 16 times. */
VEC_INLINE __m512i load_x(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/* sum + w (unsigned) . x (signed). Written out, because compilers copy the sum for the intrinsic. */
VEC_INLINE __m512i dot(__m512i sum, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}

/* 256 hi + lo, as floats. */
VEC_INLINE __m512 join(__m512i high, __m512i low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

#endif
