/*
 * Exponential, logarithm and their like on vectors of floats, within about 2 ulp.
 *
 * The method is that of Cephes (Moshier): reduce the argument to a small interval, where a polynomial is near
 * enough, and put the result back together from its parts. For exp:
 *
 *     x = n ln 2 + r,  |r| <= ln 2 / 2,     exp(x) = 2^n (1 + r + r^2 p(r))
 *
 * With AVX-512 n is in sixteenths: 2^(n mod 1) is one of 16 floats of a register, r is so small that three terms do, and one
 * instruction scales by 2^floor(n). It takes 12 instructions instead of 19. With VEC_SAME it is as on all others.
 */
#ifndef CVN_CPU_KERNELS_VEC_MATH_H
#define CVN_CPU_KERNELS_VEC_MATH_H

#include "cpu/kernels/vec.h"

/* 2^n for -126 <= n <= 127. */
VEC_INLINE vf vf_power_of_two(vi n)
{
    return (vf)((n + 127) << 23);
}

/* ln 2 in two parts; the first has 9 bits, so that its product with n is exact. */
#define VEC_LN2_HIGH 0.693359375f
#define VEC_LN2_LOW -2.12194440e-4f

/* Overflows to infinity, underflows by way of subnormals to 0; a NaN stays one. */
VEC_INLINE vf vf_exp(vf x)
{
    vf in = vf_max(vf_splat(-104.0f), vf_min(vf_splat(89.0f), x));
#if defined(__AVX512F__) && !defined(VEC_SAME)
    const vf root = {0x1.000000p+0f, 0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
                     0x1.306fe0p+0f, 0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
                     0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
                     0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
    /* Adding 1.5 * 2^19 leaves the nearest sixteenth in the low bits. */
    vf shift = vf_splat(786432.0f);
    vf shifted = vf_fma(in, vf_splat(1.44269504088896341f), shift);
    vf whole = shifted - shift; /* n */
    vf r = vf_fma(whole, vf_splat(-VEC_LN2_HIGH), in);
    r = vf_fma(whole, vf_splat(-VEC_LN2_LOW), r);
    vf p = vf_fma(vf_splat(1.6666670e-1f), r, vf_splat(0.5f));
    p = vf_fma(vf_fma(p, r, vf_splat(1.0f)), r, vf_splat(1.0f));
    return _mm512_scalef_ps(_mm512_permutexvar_ps((__m512i)shifted, root) * p, whole);
#else
    /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
    vf shift = vf_splat(12582912.0f);
    vf shifted = vf_fma(in, vf_splat(1.44269504088896341f), shift);
    vf whole = shifted - shift; /* n */
    vf r = vf_fma(whole, vf_splat(-VEC_LN2_HIGH), in);
    r = vf_fma(whole, vf_splat(-VEC_LN2_LOW), r);
    vf p = vf_splat(1.9875691500e-4f);
    p = vf_fma(p, r, vf_splat(1.3981999507e-3f));
    p = vf_fma(p, r, vf_splat(8.3334519073e-3f));
    p = vf_fma(p, r, vf_splat(4.1665795894e-2f));
    p = vf_fma(p, r, vf_splat(1.6666665459e-1f));
    p = vf_fma(p, r, vf_splat(5.0000001201e-1f));
    p = vf_fma(p, r * r, r) + 1.0f;
    /* 2^n in two factors, each a normal number: one rounding, as above. */
    vi n = (vi)shifted - (vi)shift, half = n >> 1;
    vf y = p * vf_power_of_two(half) * vf_power_of_two(n - half);
    return vf_select(x != x, x, y);
#endif
}

/* -inf at 0, NaN below. */
VEC_INLINE vf vf_log(vf x)
{
    /* Subnormals are scaled to normal numbers first. */
    vi tiny = (x < 1.17549435e-38f) & (x > 0.0f);
    vf in = vf_select(tiny, x * 8388608.0f, x);
    vi bits = (vi)in;
    vi exponent = ((bits >> 23) & 0xff) - 126 - (tiny & 23);
    vf m = (vf)((bits & 0x007fffff) | 0x3f000000); /* in [0.5, 1) */
    vi low = m < 0.707106781186547524f;
    exponent += low; /* -1 where low */
    m = vf_select(low, m + m, m) - 1.0f;
    vf e = __builtin_convertvector(exponent, vf);
    vf z = m * m;
    vf p = vf_splat(7.0376836292e-2f);
    p = vf_fma(p, m, vf_splat(-1.1514610310e-1f));
    p = vf_fma(p, m, vf_splat(1.1676998740e-1f));
    p = vf_fma(p, m, vf_splat(-1.2420140846e-1f));
    p = vf_fma(p, m, vf_splat(1.4249322787e-1f));
    p = vf_fma(p, m, vf_splat(-1.6668057665e-1f));
    p = vf_fma(p, m, vf_splat(2.0000714765e-1f));
    p = vf_fma(p, m, vf_splat(-2.4999993993e-1f));
    p = vf_fma(p, m, vf_splat(3.3333331174e-1f));
    vf y = p * m * z;
    y = vf_fma(e, vf_splat(-2.12194440e-4f), y);
    y = vf_fma(z, vf_splat(-0.5f), y);
    y = vf_fma(e, vf_splat(0.693359375f), m + y);
    y = vf_select(x == 0.0f, vf_splat(-INFINITY), y);
    y = vf_select(x == INFINITY, x, y);
    return vf_select((x >= 0.0f), y, vf_splat(NAN));
}

/* Divides: a reciprocal estimate and a step of Newton's are faster, but estimates differ from maker to maker. */
VEC_INLINE vf vf_logistic(vf x)
{
    return 1.0f / (1.0f + vf_exp(-x));
}

/* Of |x| <= 2^20, where vf_fma rounds once: x = n pi / 2 + r, |r| <= pi / 4, with pi / 2 in three parts, each a float;
   n says which of the polynomials of r is the sine, and the signs. Within about 1e-7. */
VEC_INLINE void vf_sincos(vf x, vf *sine, vf *cosine)
{
    vf shift = vf_splat(12582912.0f); /* as in vf_exp */
    vf shifted = vf_fma(x, vf_splat(0.636619772367581343f), shift);
    vf whole = shifted - shift;
    vi n = (vi)shifted - (vi)shift;
    vf r = vf_fma(whole, vf_splat(-1.57079637050628662109375f), x);
    r = vf_fma(whole, vf_splat(4.37113900018624283e-8f), r);
    r = vf_fma(whole, vf_splat(1.71512449e-15f), r);
    vf z = r * r;
    vf s = vf_fma(vf_splat(-1.9515295891e-4f), z, vf_splat(8.3321608736e-3f));
    s = vf_fma(vf_fma(s, z, vf_splat(-1.6666654611e-1f)), z * r, r);
    vf c = vf_fma(vf_splat(2.443315711809948e-5f), z, vf_splat(-1.388731625493765e-3f));
    c = vf_fma(c, z, vf_splat(4.166664568298827e-2f));
    c = vf_fma(c, z * z, vf_fma(z, vf_splat(-0.5f), vf_splat(1.0f)));
    vi odd = (n & 1) == 1;
    vf a = vf_select(odd, c, s), b = vf_select(odd, s, c);
    *sine = (vf)((vu)a ^ (((vu)n & 2u) << 30));
    *cosine = (vf)((vu)b ^ ((((vu)n + 1u) & 2u) << 30));
}

VEC_INLINE vf vf_tanh(vf x)
{
    vf a = vf_abs(x);
    vf z = x * x;
    vf p = vf_splat(-5.70498872745e-3f);
    p = vf_fma(p, z, vf_splat(2.06390887954e-2f));
    p = vf_fma(p, z, vf_splat(-5.37397155531e-2f));
    p = vf_fma(p, z, vf_splat(1.33314422036e-1f));
    p = vf_fma(p, z, vf_splat(-3.33332819422e-1f));
    vf small = vf_fma(p * z, x, x);
    vf large = 1.0f - 2.0f / (vf_exp(a + a) + 1.0f);
    vf signed_large = (vf)((vi)large | ((vi)x & INT32_MIN));
    return vf_select(a < 0.625f, small, vf_select(x != x, x, signed_large));
}

/* A soft cap: about x where that is small, never above cap. */
VEC_INLINE vf vf_cap(vf x, float cap)
{
    return vf_tanh(x * vf_splat(1.0f / cap)) * vf_splat(cap);
}

#endif
