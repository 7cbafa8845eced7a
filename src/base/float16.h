/*
 * The two 16-bit floating-point formats as bit patterns, to and from f32, in integer arithmetic:
 * what storage means, on any machine and at any optimisation level. Kernels use the vector
 * instructions; tests hold them to these functions.
 *
 *   bf16   1 sign, 8 exponent (bias 127), 7 fraction bits: the upper half of an f32
 *   f16    1 sign, 5 exponent (bias 15), 10 fraction bits: IEEE 754 binary16, with subnormals
 *
 * From f32 the nearest value is taken, ties to the even one; what is too large becomes infinity; a
 * NaN stays a NaN with its sign and upper payload bits, made quiet.
 */
#ifndef CVN_BASE_FLOAT16_H
#define CVN_BASE_FLOAT16_H

#include <stdint.h>
#include <string.h>

static inline uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float f32_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float bf16_to_f32(uint16_t half)
{
    return f32_from_bits((uint32_t)half << 16);
}

static inline uint16_t bf16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t nan = (bits >> 16) | 0x0040u;
    /* Adding 0x7fff, or 0x8000 when the result would
       be odd, rounds to nearest with ties to even. */
    uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    return (uint16_t)((bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
}

static inline float f16_to_f32(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity or NaN */
        return f32_from_bits(sign | 0x7f800000u | (magnitude & 0x03ffu) << 13);
    if (magnitude >= 0x0400u) /* normal: the exponent bias goes from 15 to 127 */
        return f32_from_bits(sign | ((magnitude << 13) + (112u << 23)));
    /* Zero or subnormal: fraction * 2^-24, exact in f32. */
    return f32_from_bits(sign | f32_bits((float)magnitude * 0x1p-24f));
}

static inline uint16_t f16_from_f32(float value)
{
    uint32_t bits = f32_bits(value);
    uint32_t sign = (bits >> 16) & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN */
        return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x03ffu));
    if (magnitude >= 0x477ff000u) /* 65520, half way to 2^16, and above */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude >= 0x38800000u) { /* 2^-14 and above: normal */
        uint32_t rounded = magnitude + 0x0fffu + ((magnitude >> 13) & 1u);
        return (uint16_t)(sign | ((rounded - (112u << 23)) >> 13));
    }
    if (magnitude <= 0x33000000u) /* 2^-25, half the least subnormal, and below */
        return (uint16_t)sign;
    /* Subnormal: the 24-bit significand shifted so that one unit is 2^-24. */
    uint32_t shift = 126u - (magnitude >> 23);
    uint32_t significand = (magnitude & 0x007fffffu) | 0x00800000u;
    uint32_t rest = significand & ((1u << shift) - 1u);
    uint32_t half = 1u << (shift - 1u);
    uint32_t quotient = significand >> shift;
    quotient += (rest > half || (rest == half && (quotient & 1u))) ? 1u : 0u;
    return (uint16_t)(sign | quotient);
}

#endif
