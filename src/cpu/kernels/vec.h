/*
 * Vectors of floats as wide as the instruction set this file is compiled for.
 *
 * Kernels are written once, in *_impl.h, on vf (VN floats), and compiled once per instruction set
 * by the small files in portable/, avx2/, avx512/, neon/. Each of those defines ISA, the name that
 * kernels carry, and ISA_NAME, which makes exported symbols unique:
 *
 *     avx512/elementwise.c:  #define ISA "avx512"
 *                            #define ISA_NAME(x) x##_avx512
 *                            #include "cpu/kernels/elementwise_impl.h"
 *
 * VN is 16 with AVX-512, 8 with AVX2, 4 otherwise (SSE2, NEON: GCC's generic vectors).
 */
#ifndef CVN_CPU_KERNELS_VEC_H
#define CVN_CPU_KERNELS_VEC_H

#include "base/float16.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { VN = 16 };
typedef __m512 vf;
#elif defined(__AVX2__)
enum { VN = 8 };
typedef __m256 vf;
#else
enum { VN = 4 };
typedef float vf __attribute__((vector_size(16)));
#endif
typedef int32_t vi __attribute__((vector_size(4 * VN)));
typedef uint32_t vu __attribute__((vector_size(4 * VN)));
typedef uint16_t vh __attribute__((vector_size(2 * VN)));

#define VEC_INLINE static inline __attribute__((always_inline, unused))

VEC_INLINE vf vf_load(const float *p)
{
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

VEC_INLINE void vf_store(float *p, vf v)
{
    memcpy(p, &v, sizeof v);
}

VEC_INLINE vf vf_splat(float x)
{
#if defined(__AVX512F__)
    return _mm512_set1_ps(x);
#elif defined(__AVX2__)
    return _mm256_set1_ps(x);
#else
    return (vf){x, x, x, x};
#endif
}

VEC_INLINE vf vf_zero(void)
{
    return vf_splat(0.0f);
}

VEC_INLINE vi vi_splat(int32_t x)
{
    return (vi){0} + x;
}

/* The first n < VN floats at p; the other lanes are 0. Reads nothing else. */
VEC_INLINE vf vf_load_part(const float *p, int64_t n)
{
#if defined(__AVX512F__)
    return _mm512_maskz_loadu_ps((__mmask16)((1u << n) - 1u), p);
#else
    float lane[VN] = {0};
    for (int64_t i = 0; i < n; i++)
        lane[i] = p[i];
    return vf_load(lane);
#endif
}

VEC_INLINE void vf_store_part(float *p, vf v, int64_t n)
{
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
#else
    float lane[VN];
    vf_store(lane, v);
    for (int64_t i = 0; i < n; i++)
        p[i] = lane[i];
#endif
}

/* a * b + c: in one rounding where the machine does that. */
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    vf r;
    for (int i = 0; i < VN; i++)
        r[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return r;
#else
    return a * b + c;
#endif
}

/* mask (lanes all ones or all zeros) ? a : b */
VEC_INLINE vf vf_select(vi mask, vf a, vf b)
{
    return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

/* Where a lane of a is NaN the result is b's. */
VEC_INLINE vf vf_max(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_max_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_max_ps(a, b);
#else
    return vf_select(a > b, a, b);
#endif
}

/* Where a lane of a is NaN the result is b's. */
VEC_INLINE vf vf_min(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_min_ps(a, b);
#elif defined(__AVX2__)
    return _mm256_min_ps(a, b);
#else
    return vf_select(a < b, a, b);
#endif
}

VEC_INLINE vf vf_abs(vf a)
{
    return (vf)((vi)a & 0x7fffffff);
}

VEC_INLINE vf vf_sqrt(vf a)
{
#if defined(__AVX512F__)
    return _mm512_sqrt_ps(a);
#elif defined(__AVX2__)
    return _mm256_sqrt_ps(a);
#else
    vf r;
    for (int i = 0; i < VN; i++)
        r[i] = sqrtf(a[i]);
    return r;
#endif
}

/* The sum of the lanes, halves first: ((0+8)+(4+12))+… . */
VEC_INLINE float vf_sum(vf v)
{
    float lane[VN];
    vf_store(lane, v);
    for (int half = VN / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

VEC_INLINE float vf_max_lane(vf v)
{
    float lane[VN];
    vf_store(lane, v);
    for (int half = VN / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
}

VEC_INLINE vf vf_from_bf16(vh h)
{
    return (vf)(__builtin_convertvector(h, vu) << 16);
}

VEC_INLINE vf vf_load_bf16(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return vf_from_bf16(h);
}

VEC_INLINE vf vf_load_bf16_part(const uint16_t *p, int64_t n)
{
    vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof *p);
    return vf_from_bf16(h);
}

/* Rounded to nearest, ties to even; a NaN stays one. The same bits as bf16_from_f32. */
VEC_INLINE vh vf_to_bf16(vf v)
{
    vu bits = (vu)v;
    vu nan = (bits >> 16) | 0x0040u;
    vu rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    vu is_nan = (vu)((bits & 0x7fffffffu) > 0x7f800000u);
    return __builtin_convertvector((is_nan & nan) | (~is_nan & rounded), vh);
}

VEC_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
    vh h = vf_to_bf16(v);
    memcpy(p, &h, sizeof h);
}

VEC_INLINE void vf_store_bf16_part(uint16_t *p, vf v, int64_t n)
{
    vh h = vf_to_bf16(v);
    memcpy(p, &h, (size_t)n * sizeof *p);
}

#endif
