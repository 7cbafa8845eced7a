/*
 * What the bytes of IQ1, IQ2 and IQ3 mean.
 *
 * d is an f16. A block is 32 runs of eight elements. Of IQ1 and IQ2 a run is a point of eight elements, of IQ3 two of four; p is its
 * number, s the scale of some runs, n the signs of a run: a bit for each element, or seven bits, of which the eighth
 * makes the number of ones even.
 *
 *   type     bytes: field (size), in order               element
 *   IQ2_XXS   66: d 2, [p 4 x 8, n 4 x 7 bits, s 4 bits] 8 x 8      d (s + 1/2) / 4 * point   s of four runs
 *   IQ2_XS    74: d 2, [p 9 bits, n 7 bits] 2 x 32, s 8             d (s + 1/2) / 4 * point        two
 *   IQ2_S     82: d 2, p 32, n 32, p above 8, s 8                   d (s + 1/2) / 4 * point        two
 *   IQ3_XXS   98: d 2, p 64, [n 4 x 7 bits, s 4 bits] 4 x 8         d (s + 1/2) / 2 * point        four
 *   IQ3_S    110: d 2, p 64, p above 8, n 32, s 4                   d (2 s + 1) * point            four
 *   IQ1_S     50: d 2, p 32, [p above 4 x 3, s 3, shift 1] 2 x 8    d (2 s + 1) * (point + shift)  four
 *   IQ1_M     56: p 32, [p above 3, shift 1] 16, [s 4 x 3, d 4] 2 x 4   the same                   two
 *
 * The shift is 1/8, or where its bit is set -1/8.
 *
 * (Formats: ggml-common.h and gguf-py of ggml-org.)
 */
#include "io/gguf_lattices.h"

#include "base/float16.h"

#include <stdbool.h>

#include "io/gguf_lattices.inc"

enum { RUNS = 32, RUN = 8 };

/* What the digits of points stand for. */
static const float of_iq1[] = {-1, 0, 1, 0}, of_iq2[] = {8, 25, 43, 0},
                   of_iq3_xxs[] = {4, 12, 20, 28, 36, 44, 52, 62},
                   of_iq3_s[] = {1, 3, 5, 7, 9, 11, 13, 15};

static unsigned load16(const uint8_t *p)
{
    return p[0] | (unsigned)p[1] << 8;
}

static uint32_t load32(const uint8_t *p)
{
    return load16(p) | (uint32_t)load16(p + 2) << 16;
}

static float half_at(const uint8_t *p)
{
    return f16_to_f32((uint16_t)load16(p));
}

/* Half a byte: the lower one of the first of two. */
static unsigned nibble(const uint8_t *p, int i)
{
    return p[i / 2] >> i % 2 * 4 & 15;
}

/* The eighth sign of seven. */
static unsigned even(unsigned seven)
{
    return seven | (unsigned)__builtin_parity(seven) << 7;
}

static void put_signed(float x, unsigned negative, float *out)
{
    *out = negative ? -x : x;
}

/* A point of eight elements, two bits each. */
static void put_eight(unsigned point, float scale, unsigned signs, float *out)
{
    for (int i = 0; i < RUN; i++)
        put_signed(scale * of_iq2[point >> 2 * i & 3], signs >> i & 1, out + i);
}

/* Two points of four, four bits each. */
static void put_four(unsigned first, unsigned second, const float *value, float scale,
                     unsigned signs, float *out)
{
    for (int i = 0; i < RUN; i++)
        put_signed(scale * value[(i < 4 ? first : second) >> 4 * (i % 4) & 7], signs >> i & 1,
                   out + i);
}

static void put_shifted(unsigned point, float scale, bool down, float *out)
{
    for (int i = 0; i < RUN; i++)
        out[i] = scale * (of_iq1[iq1_points[point] >> 2 * i & 3] + (down ? -0.125f : 0.125f));
}

void lattice_iq2_xxs(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        const uint8_t *at = block + 2 + r / 4 * 8;
        uint32_t rest = load32(at + 4);
        float scale = half_at(block) * (0.5f + (float)(rest >> 28)) * 0.25f;
        put_eight(iq2_xxs_points[at[r % 4]], scale, even(rest >> r % 4 * 7 & 127), out + RUN * r);
    }
}

void lattice_iq2_xs(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        unsigned word = load16(block + 2 + 2 * r);
        float scale = half_at(block) * (0.5f + (float)nibble(block + 66, r / 2)) * 0.25f;
        put_eight(iq2_xs_points[word & 511], scale, even(word >> 9), out + RUN * r);
    }
}

void lattice_iq2_s(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        unsigned p = block[2 + r] | (block[66 + r / 4] >> r % 4 * 2 & 3u) << 8;
        float scale = half_at(block) * (0.5f + (float)nibble(block + 74, r / 2)) * 0.25f;
        put_eight(iq2_s_points[p], scale, block[34 + r], out + RUN * r);
    }
}

void lattice_iq3_xxs(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        const uint8_t *p = block + 2 + 2 * r;
        uint32_t rest = load32(block + 66 + r / 4 * 4);
        float scale = half_at(block) * (0.5f + (float)(rest >> 28)) * 0.5f;
        put_four(iq3_xxs_points[p[0]], iq3_xxs_points[p[1]], of_iq3_xxs, scale,
                 even(rest >> r % 4 * 7 & 127), out + RUN * r);
    }
}

void lattice_iq3_s(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        const uint8_t *p = block + 2 + 2 * r;
        unsigned above = block[66 + r / 4] >> r % 4 * 2;
        float scale = half_at(block) * (1 + 2 * (float)nibble(block + 106, r / 4));
        put_four(iq3_s_points[p[0] | (above & 1) << 8], iq3_s_points[p[1] | (above & 2) << 7],
                 of_iq3_s, scale, block[74 + r], out + RUN * r);
    }
}

void lattice_iq1_s(const uint8_t *block, float *out)
{
    for (int r = 0; r < RUNS; r++) {
        unsigned word = load16(block + 34 + r / 4 * 2);
        unsigned p = block[2 + r] | (word >> r % 4 * 3 & 7) << 8;
        float scale = half_at(block) * (float)(2 * (word >> 12 & 7) + 1);
        put_shifted(p, scale, word >> 15, out + RUN * r);
    }
}

void lattice_iq1_m(const uint8_t *block, float *out)
{
    unsigned d = 0;
    for (int i = 0; i < 4; i++)
        d |= load16(block + 48 + 2 * i) >> 12 << 4 * i;
    for (int r = 0; r < RUNS; r++) {
        unsigned above = nibble(block + 32, r), word = load16(block + 48 + r / 8 * 2);
        float scale = f16_to_f32((uint16_t)d) * (float)(2 * (word >> r % 8 / 2 * 3 & 7) + 1);
        put_shifted(block[r] | (above & 7) << 8, scale, above >> 3, out + RUN * r);
    }
}
