/*
 * The element types of GGUF files, and what the bytes of their blocks mean.
 *
 * A row of a tensor is a row of blocks. A block holds small integers q, one per element, and what they
 * are scaled with: d and m are f16; s and t are integers, one of each per group of neighbours.
 *
 *   type    of  bytes: field (size), in order       element
 *   Q4_0    32  18: d 2, q 16                       d (q - 8)
 *   Q4_1    32  20: d 2, m 2, q 16                  d q + m
 *   Q5_0    32  22: d 2, h 4, q 16                  d (q - 16)
 *   Q5_1    32  24: d 2, m 2, h 4, q 16             d q + m
 *   Q8_0    32  34: d 2, q 32                       d q
 *   Q2_K   256  84: s and t 16, q 64, d 2, m 2      d s q - m t         groups of 16
 *   Q3_K   256 110: h 32, q 64, s 12, d 2           d (s - 32) (q - 4)            16
 *   Q4_K   256 144: d 2, m 2, s and t 12, q 128     d s q - m t                   32
 *   Q5_K   256 176: d 2, m 2, s and t 12, h 32, q 128   d s q - m t               32
 *   Q6_K   256 210: q 128, h 64, s 16, d 2          d s (q - 32)                  16
 *   IQ4_NL  32  18: d 2, q 16                       d v[q]
 *   IQ4_XS 256 136: d 2, sh 2, sl 4, q 128          d (s - 32) v[q]               32
 *   TQ1_0  256  54: q 48, q 4, d 2                  d (q - 1)
 *   TQ2_0  256  66: q 64, d 2                       d (q - 1)
 *   MXFP4   32  17: e 1, q 16                       2^(e - 127) f[q]
 *
 * Upper bits of q for which there is no room in its bytes are in h. v are 16 unequal steps, f the
 * numbers of 4 bits of OCP's MX. Elements that share a byte are not neighbours, so that whole vectors
 * are unpacked by a mask or a shift: in 16 bytes of two q each, byte i holds elements i (low) and 16 + i
 * (high). A block of Q4_0 that begins with the bytes 00 38 9f has d = 0.5, element 0 is 0.5 (15 - 8) = 3.5, and
 * element 16 is 0.5 (9 - 8) = 0.5.
 *
 * All products here are exact in f32 (at most 24 bits), so that only the last sum, if any, rounds.
 * (Formats: ggml-quants.h and gguf-py of ggml-org.)
 *
 * Of the types that are not read only the sizes are known, so that files that hold them can be shown: IQ1, IQ2 and
 * IQ3 number the points of lattices, whose tables are larger than this file; Q8_1 and Q8_K are only made while
 * computing.
 */
#include "io/gguf_blocks.h"

#include "base/float16.h"

#include <math.h>

enum { SMALL = 32, LARGE = 256 }; /* elements of a block */

static float load_f16(const uint8_t *p)
{
    return f16_to_f32((uint16_t)(p[0] | p[1] << 8));
}

/* out = scale * q */
static inline void scale_all(const int8_t *q, int n, float scale, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = scale * (float)q[i];
}

/* out = scale * q + offset */
static inline void scale_and_shift(const int8_t *q, int n, float scale, float offset, float *out)
{
    for (int i = 0; i < n; i++)
        out[i] = scale * (float)q[i] + offset;
}

/* The low halves of n bytes are the first n numbers, the high halves the other n. `less` is taken off. */
static inline void unpack_4(const uint8_t *in, int n, int less, int8_t *q)
{
    for (int i = 0; i < n; i++) {
        q[i] = (int8_t)((in[i] & 15) - less);
        q[n + i] = (int8_t)((in[i] >> 4) - less);
    }
}

/* The four pairs of bits of 32 bytes, the lowest first: 128 numbers. */
static inline void unpack_2(const uint8_t *in, int less, int8_t *q)
{
    for (int pair = 0; pair < 4; pair++)
        for (int i = 0; i < 32; i++)
            q[pair * 32 + i] = (int8_t)((in[i] >> 2 * pair & 3) - less);
}

/* Adds 16 to each number whose bit in h (32 bits, little endian) is set. */
static inline void add_fifth_bits(const uint8_t *h, int8_t *q)
{
    for (int i = 0; i < SMALL; i++)
        q[i] = (int8_t)(q[i] + (h[i / 8] >> i % 8 & 1) * 16);
}

static void widen_q4_0(const uint8_t *block, float *out)
{
    int8_t q[SMALL];
    unpack_4(block + 2, 16, 8, q);
    scale_all(q, SMALL, load_f16(block), out);
}

static void widen_q4_1(const uint8_t *block, float *out)
{
    int8_t q[SMALL];
    unpack_4(block + 4, 16, 0, q);
    scale_and_shift(q, SMALL, load_f16(block), load_f16(block + 2), out);
}

static void widen_q5_0(const uint8_t *block, float *out)
{
    int8_t q[SMALL];
    unpack_4(block + 6, 16, 16, q);
    add_fifth_bits(block + 2, q);
    scale_all(q, SMALL, load_f16(block), out);
}

static void widen_q5_1(const uint8_t *block, float *out)
{
    int8_t q[SMALL];
    unpack_4(block + 8, 16, 0, q);
    add_fifth_bits(block + 4, q);
    scale_and_shift(q, SMALL, load_f16(block), load_f16(block + 2), out);
}

static void widen_q8_0(const uint8_t *block, float *out)
{
    float scale = load_f16(block);
    for (int i = 0; i < SMALL; i++)
        out[i] = scale * (float)(int8_t)block[2 + i];
}

/* A group's byte has its scale below and its minimum above. */
static void widen_q2_k(const uint8_t *block, float *out)
{
    const uint8_t *s = block, *in = block + 16;
    float d = load_f16(block + 80), m = load_f16(block + 82);
    int8_t q[LARGE];
    unpack_2(in, 0, q);
    unpack_2(in + 32, 0, q + 128);
    for (int g = 0; g < 16; g++)
        scale_and_shift(q + 16 * g, 16, d * (float)(s[g] & 15), -(m * (float)(s[g] >> 4)),
                        out + 16 * g);
}

/* 16 scales of 6 bits: byte g % 8 has the low four of scale g, below for the first eight and above for
 * the others; byte 8 + g % 4 has the upper two, those of g / 4 = 0 lowest. */
static int q3_k_scale(const uint8_t *s, int g)
{
    return (s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
}

static void widen_q3_k(const uint8_t *block, float *out)
{
    const uint8_t *h = block, *in = block + 32, *s = block + 96;
    float d = load_f16(block + 108);
    int8_t q[LARGE];
    unpack_2(in, 4, q);
    unpack_2(in + 32, 4, q + 128);
    for (int i = 0; i < LARGE; i++) /* bit k of h's byte j is that of element 32 k + j */
        q[i] = (int8_t)(q[i] + (h[i % 32] >> i / 32 & 1) * 4);
    for (int g = 0; g < 16; g++)
        scale_all(q + 16 * g, 16, d * (float)(q3_k_scale(s, g) - 32), out + 16 * g);
}

/* 8 scales and 8 minima of 6 bits in 12 bytes. The first four of each are the low bits of bytes 0-3
 * and 4-7; the last four have their low four bits in bytes 8-11, scales below and minima above, and
 * their upper two on top of bytes 0-3 and 4-7. */
static inline void unpack_scales(const uint8_t *s, int g, int *scale, int *min)
{
    *scale = g < 4 ? s[g] & 63 : (s[g + 4] & 15) | s[g - 4] >> 6 << 4;
    *min = g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | s[g] >> 6 << 4;
}

/* q, with the scales and minima of groups of 32, for Q4_K and Q5_K. */
static inline void scale_groups(const uint8_t *block, const int8_t *q, float *out)
{
    float d = load_f16(block), m = load_f16(block + 2);
    for (int g = 0; g < 8; g++) {
        int scale, min;
        unpack_scales(block + 4, g, &scale, &min);
        scale_and_shift(q + 32 * g, 32, d * (float)scale, -(m * (float)min), out + 32 * g);
    }
}

static void widen_q4_k(const uint8_t *block, float *out)
{
    int8_t q[LARGE];
    for (int i = 0; i < 4; i++)
        unpack_4(block + 16 + 32 * i, 32, 0, q + 64 * i);
    scale_groups(block, q, out);
}

static void widen_q5_k(const uint8_t *block, float *out)
{
    const uint8_t *h = block + 16;
    int8_t q[LARGE];
    for (int i = 0; i < 4; i++)
        unpack_4(block + 48 + 32 * i, 32, 0, q + 64 * i);
    for (int i = 0; i < LARGE; i++) /* bit k of h's byte j is that of element 32 k + j */
        q[i] = (int8_t)(q[i] + (h[i % 32] >> i / 32 & 1) * 16);
    scale_groups(block, q, out);
}

/* Each half of 128: low four bits in 64 bytes, upper two in 32. */
static void widen_q6_k(const uint8_t *block, float *out)
{
    const uint8_t *s = block + 192;
    float d = load_f16(block + 208);
    for (int half = 0; half < 2; half++) {
        int8_t q[128], high[128];
        unpack_4(block + 64 * half, 64, 32, q);
        unpack_2(block + 128 + 32 * half, 0, high);
        for (int i = 0; i < 128; i++)
            q[i] = (int8_t)(q[i] + high[i] * 16);
        for (int g = 0; g < 8; g++)
            scale_all(q + 16 * g, 16, d * (float)(int8_t)s[8 * half + g],
                      out + 128 * half + 16 * g);
    }
}

/* Steps that are finer near zero, as weights are. */
static const int8_t iq4_step[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};

/* e2m1 (sign, two bits of exponent, one of fraction), doubled: 0, 1/2, 1, 3/2, 2, 3, 4, 6. */
static const int8_t mxfp4_number[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* 16 bytes of indices into a table. */
static inline void scale_looked_up(const uint8_t *in, const int8_t table[16], float scale,
                                   float *out)
{
    int8_t q[SMALL];
    unpack_4(in, 16, 0, q);
    for (int i = 0; i < SMALL; i++)
        q[i] = table[q[i]];
    scale_all(q, SMALL, scale, out);
}

static void widen_iq4_nl(const uint8_t *block, float *out)
{
    scale_looked_up(block + 2, iq4_step, load_f16(block), out);
}

/* Scales of 6 bits: the low four of two in a byte of sl, the upper two of eight in sh. */
static void widen_iq4_xs(const uint8_t *block, float *out)
{
    int high = block[2] | block[3] << 8;
    float d = load_f16(block);
    for (int g = 0; g < 8; g++) {
        int scale = (block[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4;
        scale_looked_up(block + 8 + 16 * g, iq4_step, d * (float)(scale - 32), out + 32 * g);
    }
}

static void widen_mxfp4(const uint8_t *block, float *out)
{
    scale_looked_up(block + 1, mxfp4_number, ldexpf(1, block[0] - 128), out);
}

/* A byte b is the fraction b/256, whose digits to the base of 3 are numbers: `digits` of them from n bytes,
 * the first digits of all bytes first. */
static void unpack_trits(const uint8_t *in, int n, int digits, int8_t *q)
{
    for (int i = 0; i < n; i++) {
        unsigned rest = in[i];
        for (int digit = 0; digit < digits; digit++) {
            q[digit * n + i] = (int8_t)((int)(rest * 3 >> 8) - 1);
            rest = rest * 3 & 255;
        }
    }
}

static void widen_tq1_0(const uint8_t *block, float *out)
{
    int8_t q[LARGE];
    unpack_trits(block, 32, 5, q);
    unpack_trits(block + 32, 16, 5, q + 160);
    unpack_trits(block + 48, 4, 4, q + 240);
    scale_all(q, LARGE, load_f16(block + 52), out);
}

static void widen_tq2_0(const uint8_t *block, float *out)
{
    int8_t q[LARGE];
    unpack_2(block, 1, q);
    unpack_2(block + 32, 1, q + 128);
    scale_all(q, LARGE, load_f16(block + 64), out);
}

/* By number; without a name where the number was withdrawn. */
static const GgufElement elements[] = {
    [0] = {"F32", {1, 4, NULL}, IO_PLAIN, CVN_F32},
    [1] = {"F16", {1, 2, NULL}, IO_PLAIN, CVN_F16},
    [2] = {"Q4_0", {SMALL, 18, widen_q4_0}, IO_BLOCKS, CVN_F32},
    [3] = {"Q4_1", {SMALL, 20, widen_q4_1}, IO_BLOCKS, CVN_F32},
    [6] = {"Q5_0", {SMALL, 22, widen_q5_0}, IO_BLOCKS, CVN_F32},
    [7] = {"Q5_1", {SMALL, 24, widen_q5_1}, IO_BLOCKS, CVN_F32},
    [8] = {"Q8_0", {SMALL, 34, widen_q8_0}, IO_BLOCKS, CVN_F32},
    [9] = {"Q8_1", {SMALL, 36, NULL}, IO_OPAQUE, CVN_F32},
    [10] = {"Q2_K", {LARGE, 84, widen_q2_k}, IO_BLOCKS, CVN_F32},
    [11] = {"Q3_K", {LARGE, 110, widen_q3_k}, IO_BLOCKS, CVN_F32},
    [12] = {"Q4_K", {LARGE, 144, widen_q4_k}, IO_BLOCKS, CVN_F32},
    [13] = {"Q5_K", {LARGE, 176, widen_q5_k}, IO_BLOCKS, CVN_F32},
    [14] = {"Q6_K", {LARGE, 210, widen_q6_k}, IO_BLOCKS, CVN_F32},
    [15] = {"Q8_K", {LARGE, 292, NULL}, IO_OPAQUE, CVN_F32},
    [16] = {"IQ2_XXS", {LARGE, 66, NULL}, IO_OPAQUE, CVN_F32},
    [17] = {"IQ2_XS", {LARGE, 74, NULL}, IO_OPAQUE, CVN_F32},
    [18] = {"IQ3_XXS", {LARGE, 98, NULL}, IO_OPAQUE, CVN_F32},
    [19] = {"IQ1_S", {LARGE, 50, NULL}, IO_OPAQUE, CVN_F32},
    [20] = {"IQ4_NL", {SMALL, 18, widen_iq4_nl}, IO_BLOCKS, CVN_F32},
    [21] = {"IQ3_S", {LARGE, 110, NULL}, IO_OPAQUE, CVN_F32},
    [22] = {"IQ2_S", {LARGE, 82, NULL}, IO_OPAQUE, CVN_F32},
    [23] = {"IQ4_XS", {LARGE, 136, widen_iq4_xs}, IO_BLOCKS, CVN_F32},
    [24] = {"I8", {1, 1, NULL}, IO_PLAIN, CVN_I8},
    [25] = {"I16", {1, 2, NULL}, IO_OPAQUE, CVN_F32},
    [26] = {"I32", {1, 4, NULL}, IO_PLAIN, CVN_I32},
    [27] = {"I64", {1, 8, NULL}, IO_OPAQUE, CVN_F32},
    [28] = {"F64", {1, 8, NULL}, IO_PLAIN, CVN_F64},
    [29] = {"IQ1_M", {LARGE, 56, NULL}, IO_OPAQUE, CVN_F32},
    [30] = {"BF16", {1, 2, NULL}, IO_PLAIN, CVN_BF16},
    [34] = {"TQ1_0", {LARGE, 54, widen_tq1_0}, IO_BLOCKS, CVN_F32},
    [35] = {"TQ2_0", {LARGE, 66, widen_tq2_0}, IO_BLOCKS, CVN_F32},
    [39] = {"MXFP4", {SMALL, 17, widen_mxfp4}, IO_BLOCKS, CVN_F32},
    [40] = {"NVFP4", {64, 36, NULL}, IO_OPAQUE, CVN_F32},
    [41] = {"Q1_0", {128, 18, NULL}, IO_OPAQUE, CVN_F32},
};

const GgufElement *gguf_element(uint32_t number)
{
    bool known = number < sizeof elements / sizeof *elements && elements[number].name;
    return known ? &elements[number] : NULL;
}
