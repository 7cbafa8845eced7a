/*
 * The two 8-bit floating-point formats of checkpoints as bit patterns (OCP 8-bit Floating Point Specification), as float16.h has
 * those of 16 bits. Each is known by its bits of fraction:
 *
 *   e4m3   3   1 sign, 4 exponent (bias 7) bits:  up to 448, steps of 2^-9 around 0; all ones are no number, and none is infinite
 *   e5m2   2   1 sign, 5 exponent (bias 15) bits: up to 57344, steps of 2^-16; infinities and NaN as in f16, whose upper half it is
 *
 * 0x3e in e4m3 is exponent 7, fraction 6: 1.75. From f32 the nearest is taken, ties to the even one; what is too large becomes the
 * largest, with its sign.
 */
#ifndef CVN_BASE_FLOAT8_H
#define CVN_BASE_FLOAT8_H

#include "base/float16.h"

#include <math.h>
#include <stdbool.h>

enum { F8_E4M3 = 3, F8_E5M2 = 2 };

/* Twice as many codes of exponents have twice the range on each side of 1. */
static inline int f8_bias(int fraction)
{
    return (1 << (6 - fraction)) - 1;
}

/* The code of the largest number. */
static inline uint8_t f8_largest(int fraction)
{
    return fraction == F8_E4M3 ? 0x7e : 0x7b;
}

static inline bool f8_is_finite(int fraction, uint8_t code)
{
    return (code & 0x7f) <= f8_largest(fraction);
}

static inline float f8_to_f32(int fraction, uint8_t code)
{
    const int bits = code & 0x7f, exponent = bits >> fraction, one = 1 << fraction;
    const int whole = exponent ? one + (bits & (one - 1)) : bits;
    float x = ldexpf((float)whole, (exponent ? exponent : 1) - f8_bias(fraction) - fraction);
    if (!f8_is_finite(fraction, code))
        x = fraction == F8_E5M2 && bits == 0x7c ? INFINITY : NAN;
    return code & 0x80 ? -x : x;
}

static inline uint8_t f8_from_f32(int fraction, float x)
{
    const uint8_t sign = f32_bits(x) >> 31 ? 0x80 : 0, most = f8_largest(fraction);
    const float size = fabsf(x);
    if (isnan(x))
        return sign | 0x7f;
    if (size >= f8_to_f32(fraction, most))
        return sign | most;
    /* In steps of its binade, or of the subnormal ones below all: the codes are those steps in order. */
    int exponent = size > 0 ? ilogbf(size) : 1 - f8_bias(fraction);
    exponent = exponent < 1 - f8_bias(fraction) ? 1 - f8_bias(fraction) : exponent;
    const int steps = (int)rintf(ldexpf(size, fraction - exponent));
    return (uint8_t)(sign | (((exponent + f8_bias(fraction) - 1) << fraction) + steps));
}

#endif
