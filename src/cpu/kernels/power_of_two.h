/* The exponential of attention with AVX-512: 2^x by 7 instructions. */
#ifndef CVN_CPU_KERNELS_POWER_OF_TWO_H
#define CVN_CPU_KERNELS_POWER_OF_TWO_H

#include <immintrin.h>

/* 2^x within 3e-6 of it, far below the rounding of bf16; 0 for what is very negative. */
static inline __m512 power_of_two(__m512 x)
{
    __m512 r = _mm512_reduce_ps(x, 1); /* x - floor(x) */
    __m512 p = _mm512_set1_ps(0x1.bb7cd4p-7f);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.aa13f0p-5f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.ee798ap-3f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.62d166p-1f));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0x1.00002cp+0f));
    return _mm512_scalef_ps(p, x); /* p * 2^floor(x) */
}

#endif
