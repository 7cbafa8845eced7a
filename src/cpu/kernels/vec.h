/*
 * Vectors of floats as wide as the instruction set this file is compiled for.
 *
 * Kernels are written once, in *_impl.h, on vf (VN floats), and compiled once per instruction set
 * by the small files in portable/, avx2/, avx512/. Each of those defines ISA, the name that
 * kernels carry, and ISA_NAME, which makes exported symbols unique:
 *
 *     avx512/elementwise.c:  #define ISA "avx512"
 *                            #define ISA_NAME(x) x##_avx512
 *                            #include "cpu/kernels/elementwise_impl.h"
 *
 * VN is 16 with AVX-512, 8 with AVX2, 4 otherwise: GCC's generic vectors, which are SSE2 or NEON, with the few
 * NEON instructions that they do not reach by themselves.
 *
 * A lane that is an element of a result has the same bits whatever VN is. A sum over lanes (VecSum) has not, and neither what is
 * multiplied and added in one rounding here and in two there. Files that define VEC_SAME are a second set, of which every
 * instruction set gives the same bits (--numerics portable): sums have SUM_LANES = 16 lanes, which are 16 / VN vectors, and
 * are added in one order; vf_fma rounds once, by fmaf where nothing else does; there is one exponential (vec_math.h).
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
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#if defined(__AVX512F__)
enum { VN = 16 };
typedef __m512 vf;
#elif defined(__AVX2__)
enum { VN = 8 };
typedef __m256 vf;
#else
enum { VN = 4 };
#if defined(__aarch64__)
typedef float32x4_t vf;
#else
typedef float vf __attribute__((vector_size(16)));
#endif
#endif
typedef int32_t vi __attribute__((vector_size(4 * VN)));
typedef uint32_t vu __attribute__((vector_size(4 * VN)));
typedef uint16_t vh __attribute__((vector_size(2 * VN)));

#if defined(VEC_SAME)
enum { SUM_LANES = 16 };
#else
enum { SUM_LANES = VN };
#endif
enum { SUM_VECTORS = SUM_LANES / VN };

/* A sum whose lane l has every SUM_LANES-th term from the l-th on. */
typedef struct VecSum {
    vf part[SUM_VECTORS];
} VecSum;

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

/* Of the n floats at p as many as there are lanes; further lanes are `rest`. Reads nothing else. */
VEC_INLINE vf vf_load_part_or(const float *p, int64_t n, float rest)
{
    if (n >= VN)
        return vf_load(p);
#if defined(__AVX512F__)
    return _mm512_mask_loadu_ps(vf_splat(rest), (__mmask16)((1u << n) - 1u), p);
#else
    float lane[VN];
    for (int64_t i = 0; i < VN; i++)
        lane[i] = i < n ? p[i] : rest;
    return vf_load(lane);
#endif
}

/* The same; further lanes are 0. */
VEC_INLINE vf vf_load_part(const float *p, int64_t n)
{
    return vf_load_part_or(p, n, 0.0f);
}

VEC_INLINE void vf_store_part(float *p, vf v, int64_t n)
{
    if (n >= VN) {
        vf_store(p, v);
        return;
    }
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, (__mmask16)((1u << n) - 1u), v);
#else
    float lane[VN];
    vf_store(lane, v);
    for (int64_t i = 0; i < n; i++)
        p[i] = lane[i];
#endif
}

/* a * b + c: in one rounding where the machine does that, with VEC_SAME always. */
VEC_INLINE vf vf_fma(vf a, vf b, vf c)
{
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#elif defined(__aarch64__)
    return vfmaq_f32(c, a, b);
#elif defined(VEC_SAME)
    return (vf){fmaf(a[0], b[0], c[0]), fmaf(a[1], b[1], c[1]), fmaf(a[2], b[2], c[2]),
                fmaf(a[3], b[3], c[3])};
#else
    return a * b + c;
#endif
}

/* v, in a register: the compiler may not load it again at each use. */
VEC_INLINE vf vf_keep(vf v)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(v));
#elif defined(__AVX2__)
    __asm__("" : "+x"(v));
#elif defined(__aarch64__)
    __asm__("" : "+w"(v));
#endif
    return v;
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

/* Whether any lane of a is as large as that of b; a NaN never is. */
VEC_INLINE bool vf_any_ge(vf a, vf b)
{
#if defined(__AVX512F__)
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_ps(_mm256_cmp_ps(a, b, _CMP_GE_OQ)) != 0;
#elif defined(__aarch64__)
    return vmaxvq_u32(vcgeq_f32(a, b)) != 0;
#else
    uint64_t half[2];
    vi ge = a >= b;
    memcpy(half, &ge, sizeof half);
    return (half[0] | half[1]) != 0;
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
#elif defined(__aarch64__)
    return vsqrtq_f32(a);
#else
    vf r;
    for (int i = 0; i < VN; i++)
        r[i] = sqrtf(a[i]);
    return r;
#endif
}

/* The first of what out[0 … 4) is made of: of one vector of each of four sums, in each group of four lanes
   (x0 + x2) + (x1 + x3), by shuffles that treat the four alike. */
#if defined(__AVX512F__)
VEC_INLINE __m512 vf_sum_groups(vf a, vf b, vf c, vf d)
{
    __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    __m512 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    __m512d x = _mm512_castps_pd(ab), y = _mm512_castps_pd(cd);
    return _mm512_add_ps(_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)),
                         _mm512_castpd_ps(_mm512_unpackhi_pd(x, y)));
}
#elif defined(__AVX2__)
VEC_INLINE __m256 vf_sum_groups(vf a, vf b, vf c, vf d)
{
    __m256 ab = _mm256_add_ps(_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
    __m256 cd = _mm256_add_ps(_mm256_unpacklo_ps(c, d), _mm256_unpackhi_ps(c, d));
    __m256d x = _mm256_castps_pd(ab), y = _mm256_castps_pd(cd);
    return _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(x, y)),
                         _mm256_castpd_ps(_mm256_unpackhi_pd(x, y)));
}
#else
VEC_INLINE vf vf_sum_groups(vf a, vf b, vf c, vf d)
{
    vf ab = __builtin_shufflevector(a, b, 0, 4, 1, 5) + __builtin_shufflevector(a, b, 2, 6, 3, 7);
    vf cd = __builtin_shufflevector(c, d, 0, 4, 1, 5) + __builtin_shufflevector(c, d, 2, 6, 3, 7);
    return __builtin_shufflevector(ab, cd, 0, 1, 4, 5) +
           __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
}
#endif

/* out[0 … 4) = the sums of the lanes of s[0 … 4), of which none depends on which of them it is: in each group of four lanes
   (x0 + x2) + (x1 + x3), then the groups likewise. */
VEC_INLINE void vec_sum4(const VecSum s[4], float *out)
{
    const int last = SUM_VECTORS - 1;
#if defined(__AVX512F__)
    __m512 all = vf_sum_groups(s[0].part[0], s[1].part[0], s[2].part[0], s[3].part[0]);
    __m256 half = _mm256_add_ps(_mm512_castps512_ps256(all), _mm512_extractf32x8_ps(all, 1));
    (void)last;
#elif defined(__AVX2__)
    __m256 half = vf_sum_groups(s[0].part[0], s[1].part[0], s[2].part[0], s[3].part[0]);
    if (last)
        half = _mm256_add_ps(half, vf_sum_groups(s[0].part[last], s[1].part[last], s[2].part[last],
                                                 s[3].part[last]));
#else
    vf group[SUM_VECTORS];
#pragma GCC unroll 4
    for (int p = 0; p < SUM_VECTORS; p++)
        group[p] = vf_sum_groups(s[0].part[p], s[1].part[p], s[2].part[p], s[3].part[p]);
    if (last)
        group[0] = (group[0] + group[last / 2 + 1]) + (group[last / 2] + group[last]);
    vf_store(out, group[0]);
#endif
#if defined(__AVX2__)
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
#endif
}

VEC_INLINE VecSum vec_sum_zero(void)
{
    VecSum s;
#pragma GCC unroll 4
    for (int p = 0; p < SUM_VECTORS; p++)
        s.part[p] = vf_zero();
    return s;
}

/* The sum of the lanes, in the order of vec_sum4. */
VEC_INLINE float vec_sum(const VecSum *s)
{
    float sum[4];
    vec_sum4((const VecSum[4]){*s, *s, *s, *s}, sum);
    return sum[0];
}

/* Of n > 0 terms those that are left for vector p of a sum, and whether those are any: with one vector all. */
VEC_INLINE int64_t vec_left(int64_t n, int p)
{
    return SUM_VECTORS == 1 ? n : n > p * VN ? n - p * VN : 0;
}

/* c[i * ldc + j] = sum of the lanes of v[i][j], i < M <= 4, j < N <= 4, constants; four at a time. */
VEC_INLINE void vec_sum_block(const int M, const int N, VecSum v[4][4], float *c, int64_t ldc)
{
#pragma GCC unroll 4
    for (int q = 0; q < M * N; q += 4) {
        VecSum in[4];
        float sum[4];
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            in[t] = q + t < M * N ? v[(q + t) / N][(q + t) % N] : vec_sum_zero();
        vec_sum4(in, sum);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++)
            if (q + t < M * N)
                c[(q + t) / N * ldc + (q + t) % N] = sum[t];
    }
}

/* The largest lane: halves against each other as vf_max, until one is left. */
VEC_INLINE float vf_max_lane(vf v)
{
#if defined(__AVX2__)
#if defined(__AVX512F__)
    __m256 half = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
#else
    __m256 half = v;
#endif
    __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    x = _mm_max_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
#else
    float lane[VN];
    vf_store(lane, v);
    for (int half = VN / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] = lane[i] > lane[i + half] ? lane[i] : lane[i + half];
    return lane[0];
#endif
}

/* (GCC takes 16-bit lanes apart in halves where one instruction would do, so those are named here.) */
VEC_INLINE vf vf_from_bf16(vh h)
{
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)h), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32((__m128i)h), 16);
#else
    return (vf)(__builtin_convertvector(h, vu) << 16);
#endif
}

VEC_INLINE vf vf_load_bf16(const uint16_t *p)
{
    vh h;
    memcpy(&h, p, sizeof h);
    return vf_from_bf16(h);
}

VEC_INLINE vf vf_load_bf16_part(const uint16_t *p, int64_t n)
{
    if (n >= VN)
        return vf_load_bf16(p);
#if defined(__AVX512F__)
    return vf_from_bf16((vh)_mm256_maskz_loadu_epi16((__mmask16)((1u << n) - 1u), p));
#else
    vh h = {0};
    memcpy(&h, p, (size_t)n * sizeof *p);
    return vf_from_bf16(h);
#endif
}

VEC_INLINE vf vf_load_i8(const int8_t *p)
{
#if defined(__AVX512F__)
    __m128i bytes;
    memcpy(&bytes, p, sizeof bytes);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
#elif defined(__AVX2__)
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
#else
    typedef int8_t vb __attribute__((vector_size(VN)));
    vb bytes;
    memcpy(&bytes, p, sizeof bytes);
    return __builtin_convertvector(bytes, vf);
#endif
}

VEC_INLINE vf vf_load_i8_part(const int8_t *p, int64_t n)
{
    if (n >= VN)
        return vf_load_i8(p);
    int8_t lane[VN] = {0};
    memcpy(lane, p, (size_t)n);
    return vf_load_i8(lane);
}

/* Rounded to nearest, ties to even; a NaN stays one. The same bits as bf16_from_f32. VEC_BF16, which files define whose
   kernels need AVX-512 BF16 anyway: by one instruction, which only takes denormals for zeros. */
VEC_INLINE vh vf_to_bf16(vf v)
{
#if defined(VEC_BF16) && defined(__AVX512BF16__) && defined(__AVX512DQ__)
    enum { DENORMAL = 0x20 };
    if (__builtin_expect(_mm512_fpclass_ps_mask(v, DENORMAL) == 0, 1))
        return (vh)_mm512_cvtneps_pbh(v);
#endif
#if defined(__AVX512F__)
    __m512i bits = (__m512i)v;
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    sum = _mm512_mask_or_epi32(sum, nan, bits, _mm512_set1_epi32(0x400000));
    return (vh)_mm512_cvtepi32_epi16(_mm512_srli_epi32(sum, 16));
#else
    vu bits = (vu)v;
    vu nan = bits | 0x00400000u;
    vu rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    vu is_nan = (vu)(v != v);
    vu sum = ((is_nan & nan) | (~is_nan & rounded)) >> 16;
#if defined(__AVX2__)
    __m128i low = _mm256_castsi256_si128((__m256i)sum);
    return (vh)_mm_packus_epi32(low, _mm256_extracti128_si256((__m256i)sum, 1));
#else
    return __builtin_convertvector(sum, vh);
#endif
#endif
}

VEC_INLINE void vf_store_bf16(uint16_t *p, vf v)
{
    vh h = vf_to_bf16(v);
    memcpy(p, &h, sizeof h);
}

/* Two neighbouring vectors. */
VEC_INLINE void vf_store_bf16_two(uint16_t *p, vf a, vf b)
{
#if defined(VEC_BF16) && defined(__AVX512BF16__) && defined(__AVX512DQ__)
    enum { DENORMAL = 0x20 };
    __mmask16 special = _mm512_fpclass_ps_mask(a, DENORMAL) | _mm512_fpclass_ps_mask(b, DENORMAL);
    if (__builtin_expect(special == 0, 1)) {
        _mm512_storeu_si512(p, (__m512i)_mm512_cvtne2ps_pbh(b, a));
        return;
    }
#endif
    vf_store_bf16(p, a);
    vf_store_bf16(p + VN, b);
}

/* The same past the caches, where whole lines are written: memory need not be read first. p is aligned to the vector; who
   has done it calls vec_streamed before others may read. */
VEC_INLINE void vf_stream_bf16(uint16_t *p, vf v)
{
#if defined(__AVX512F__)
    _mm256_stream_si256((__m256i *)(void *)p, (__m256i)vf_to_bf16(v));
#elif defined(__AVX2__)
    _mm_stream_si128((__m128i *)(void *)p, (__m128i)vf_to_bf16(v));
#else
    vf_store_bf16(p, v);
#endif
}

VEC_INLINE void vec_streamed(void)
{
#if defined(__AVX2__)
    _mm_sfence();
#endif
}

VEC_INLINE void vf_store_bf16_part(uint16_t *p, vf v, int64_t n)
{
    vh h = vf_to_bf16(v);
    if (n >= VN) {
        memcpy(p, &h, sizeof h);
        return;
    }
#if defined(__AVX512F__)
    _mm256_mask_storeu_epi16(p, (__mmask16)((1u << n) - 1u), (__m256i)h);
#else
    memcpy(p, &h, (size_t)n * sizeof *p);
#endif
}

#endif
