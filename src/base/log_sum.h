/*
 * ln of a sum of exponentials, in a written order, so that every place that says how likely a token is says the same: drawing,
 * scoring and the loss of training, on any set of instructions.
 *
 * Element i is added to lane i mod 16, in the order of i; the lanes are then added by halves (8 apart, 4, 2, 1). Nothing is a fused
 * multiply-add, and exp and ln are the ones below: exp within 2 ulp, by the method of Cephes (x = n ln 2 + r), ln in double.
 *
 *     ln p(t) = x[t] - peak - ln sum of exp(x[i] - peak)
 */
#ifndef CVN_BASE_LOG_SUM_H
#define CVN_BASE_LOG_SUM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { LANES = 16 };
typedef float Lanes __attribute__((vector_size(4 * LANES)));
typedef int32_t LaneInts __attribute__((vector_size(4 * LANES)));

/* Every lane of x becomes exp(x): at most exp(89), which is infinite, and 0 below -104; a NaN stays one. */
static inline __attribute__((always_inline)) void lanes_exp(Lanes *x)
{
    const float shift =
        12582912.0f; /* 1.5 * 2^23: adding it leaves the nearest integer in the low bits */
    const int32_t zero = 0x4b400000; /* its bits */
    const Lanes least = (Lanes){0} - 104.0f, most = (Lanes){0} + 89.0f;
    LaneInts over = *x > most, under = *x < least;
    Lanes in = (Lanes)((over & (LaneInts)most) | (~over & (LaneInts)*x));
    in = (Lanes)((under & (LaneInts)least) | (~under & (LaneInts)in));
    Lanes shifted = in * 1.44269504088896341f + shift;
    Lanes whole = shifted - shift;
    Lanes r = in - whole * 0.693359375f; /* exact: 9 bits times at most 8 */
    r = r - whole * -2.12194440e-4f;
    Lanes p = r * 1.9875691500e-4f + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r + 1.0f;
    LaneInts n = (LaneInts)shifted - zero, half = n >> 1;
    p = p * (Lanes)((half + 127) << 23) * (Lanes)((n - half + 127) << 23);
    LaneInts nan = *x != *x;
    *x = (Lanes)((nan & (LaneInts)*x) | (~nan & (LaneInts)p));
}

static inline __attribute__((always_inline)) float lanes_sum(const Lanes *x)
{
    float lane[LANES];
    memcpy(lane, x, sizeof lane);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* ln of x >= 0, the float nearest to it but for 1e-9: with x = m 2^e and s = (m - 1) / (m + 1), e ln 2 + 2 (s + s^3 / 3 + …). */
static inline float log_of_sum(float x)
{
    if (!(x > 0) || isinf(x))
        return x == 0 ? -INFINITY : x;
    int e;
    double m = frexp((double)x, &e); /* exact */
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 15;
    for (int k = 13; k > 0; k -= 2)
        p = p * z + 1.0 / k;
    return (float)(e * 0.69314718055994531 + 2 * s * p);
}

/* ln of the sum of exp(x - *peak) over n floats; *peak is the largest, or 0 where that is not finite. By the widest vectors that the
   processor has: the order is the same in all. */
float log_sum_floats(const float *x, int64_t n, float *peak);

#endif
