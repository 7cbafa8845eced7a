/*
 * Random bits on vectors, and the noise that tokens are drawn with.
 *
 * The noise is -log(-log(u)), which costs two logarithms. How large it can be is known from the bits alone: with s = 1 - u
 * and its exponent e,
 *
 *     -log(u) >= s >= 2^e,     so     noise <= -e ln 2
 *
 *     u          0.3     0.9     0.999    1 - 2^-24      noise is above 10 once in 20,000 entries
 *     noise    -0.19    2.25     6.91         16.64
 *     bound     0.69    2.77     6.93         16.64
 */
#ifndef CVN_CPU_KERNELS_VEC_RANDOM_H
#define CVN_CPU_KERNELS_VEC_RANDOM_H

#include "cpu/kernels/vec_math.h"

/* A round of Threefry, by a rotation that is a constant. */
#define THREEFRY_ROUND(by)                                                                         \
    x0 += x1;                                                                                      \
    x1 = (x1 << (by) | x1 >> (32 - (by))) ^ x0

/* The first word of each lane's pair (base/rng.h): of counter (x0, x1) under key (k0, k1). */
VEC_INLINE vu threefry(vu k0, vu k1, vu x0, vu x1)
{
    vu key[3] = {k0, k1, k0 ^ k1 ^ 0x1bd11bdau};
    x0 += key[0];
    x1 += key[1];
#pragma GCC unroll 5
    for (uint32_t group = 1; group <= 5; group++) {
        if (group % 2) {
            THREEFRY_ROUND(13);
            THREEFRY_ROUND(15);
            THREEFRY_ROUND(26);
            THREEFRY_ROUND(6);
        } else {
            THREEFRY_ROUND(17);
            THREEFRY_ROUND(29);
            THREEFRY_ROUND(16);
            THREEFRY_ROUND(24);
        }
        x0 += key[group % 3];
        x1 += key[(group + 1) % 3] + group;
    }
    return x0;
}

#undef THREEFRY_ROUND

/* The noise of an entry with these random bits, step by step as the decomposition of `categorical` computes it. */
VEC_INLINE vf gumbel_noise(vu bits)
{
    vf u = (__builtin_convertvector((vi)(bits >> 9), vf) + 0.5f) * 0x1p-23f;
    return -vf_log(-vf_log(u));
}

/* What GUMBEL_SLACK leaves room for: vf_log is within 2 ulp, which makes at most 3e-7 of the inner one and 4e-6 of the
   outer, and the bound itself is rounded to 1e-6. */
#define GUMBEL_SLACK 0x1p-10f
#define GUMBEL_LN2 0.693147182464599609375f
/* No noise is larger: e is -24 or more. */
#define GUMBEL_MOST (24 * GUMBEL_LN2 + GUMBEL_SLACK)

/* No less than gumbel_noise(bits). */
VEC_INLINE vf gumbel_bound(vu bits)
{
    enum { ONE = 127 }; /* the exponent of 1, as it is stored */
    /* 2^23 s, which is exact: a multiple of 1/2 below 2^23. */
    vf s = 8388607.5f - __builtin_convertvector((vi)(bits >> 9), vf);
    vi exponent = ((vi)s >> 23) - (ONE + 23);
    return __builtin_convertvector(-exponent, vf) * GUMBEL_LN2 + GUMBEL_SLACK;
}

#endif
