#include "io/encode.h"

#include "base/float8.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { TRIES = 19, TRY_MIDDLE = 9 }; /* scales that are tried, and the one that fits the extremes */

static int clamp_round(float x, int low, int high)
{
    float r = nearbyintf(x);
    return r < (float)low ? low : r > (float)high ? high : (int)r;
}

static void put_half(uint8_t *to, float x)
{
    uint16_t h = f16_from_f32(x);
    memcpy(to, &h, sizeof h);
}

/* A scale rounded as it is stored; f16 has no larger number. */
static float as_half(float x)
{
    return f16_to_f32(f16_from_f32(fminf(fmaxf(x, -65504), 65504)));
}

static int code_of(float x, float scale, int low, int high)
{
    return scale != 0 ? clamp_round(x / scale, low, high) : 0;
}

/* What an error in element i counts. */
static double weigh(const float *importance, int i)
{
    return importance ? (double)importance[i] : 1;
}

/* The scale s for which s q, low <= q <= high, is nearest to n numbers. */
static float best_scale(const float *x, const float *importance, int n, int low, int high)
{
    float extreme = 0, best = 0;
    double most = 0;
    for (int i = 0; i < n; i++)
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    if (!(fabsf(extreme) > 0) || !isfinite(extreme))
        return 0;
    for (int t = 0; t < TRIES; t++) {
        float inverse = ((float)low - 0.1f * (float)(t - TRY_MIDDLE)) / extreme;
        double xq = 0, qq = 0;
        for (int i = 0; i < n; i++) {
            int q = clamp_round(x[i] * inverse, low, high);
            xq += weigh(importance, i) * (double)x[i] * q;
            qq += weigh(importance, i) * (double)q * q;
        }
        if (qq > 0 && xq * xq > most * qq) { /* what is left of sum x x */
            most = xq * xq / qq;
            best = (float)(xq / qq);
        }
    }
    return best;
}

static void encode_q8_0(const float *x, const float *importance, uint8_t *out)
{
    (void)importance; /* an eighth of a percent of error has none to spare */
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    float scale = as_half(most / 127);
    put_half(out, scale);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)code_of(x[i], scale, -127, 127);
}

/* Codes of 4 bits of 2 n elements, the first n in the low halves. */
static void put_halves(const uint8_t *code, int n, uint8_t *out)
{
    for (int i = 0; i < n; i++)
        out[i] = (uint8_t)((code[i] & 15) | (code[n + i] & 15) << 4);
}

/* The fifth bits of 32 codes. */
static void put_fifths(const uint8_t *code, uint8_t out[4])
{
    memset(out, 0, 4);
    for (int i = 0; i < 32; i++)
        out[i / 8] = (uint8_t)(out[i / 8] | (code[i] >> 4 & 1) << i % 8);
}

/* Q4_0 and Q5_0: scale (code - half). */
static void encode_around_0(const float *x, const float *importance, int half, uint8_t *out)
{
    uint8_t code[32];
    const float scale = as_half(best_scale(x, importance, 32, -half, half - 1));
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(code_of(x[i], scale, -half, half - 1) + half);
    put_half(out, scale);
    out += 2;
    if (half == 16) {
        put_fifths(code, out);
        out += 4;
    }
    put_halves(code, 16, out);
}

static void encode_q4_0(const float *x, const float *importance, uint8_t *out)
{
    encode_around_0(x, importance, 8, out);
}

static void encode_q5_0(const float *x, const float *importance, uint8_t *out)
{
    encode_around_0(x, importance, 16, out);
}

/* Scales of groups as whole numbers of at most `most`, times a float. */
static float share(const float *scale, int n, int most, int8_t *whole)
{
    float extreme = 0;
    for (int g = 0; g < n; g++)
        extreme = fabsf(scale[g]) > fabsf(extreme) ? scale[g] : extreme;
    float d = as_half(extreme / (float)most);
    for (int g = 0; g < n; g++)
        whole[g] = (int8_t)code_of(scale[g], d, -most, most);
    return d;
}

static void encode_q6_k(const float *x, const float *importance, uint8_t *out)
{
    enum { GROUPS = 16, GROUP = 16 };
    float scale[GROUPS];
    int8_t whole[GROUPS];
    uint8_t code[256];
    for (int g = 0; g < GROUPS; g++)
        scale[g] =
            best_scale(x + g * GROUP, importance ? importance + g * GROUP : NULL, GROUP, -32, 31);
    float d = share(scale, GROUPS, 127, whole);
    for (int i = 0; i < 256; i++)
        code[i] = (uint8_t)(code_of(x[i], d * (float)whole[i / GROUP], -32, 31) + 32);
    for (int half = 0; half < 2; half++) {
        const uint8_t *c = code + 128 * half;
        for (int i = 0; i < 64; i++)
            out[64 * half + i] = (uint8_t)((c[i] & 15) | (c[64 + i] & 15) << 4);
        for (int i = 0; i < 32; i++)
            out[128 + 32 * half + i] = (uint8_t)(c[i] >> 4 | c[32 + i] >> 4 << 2 |
                                                 c[64 + i] >> 4 << 4 | c[96 + i] >> 4 << 6);
    }
    memcpy(out + 192, whole, GROUPS);
    put_half(out + 208, d);
}

/* Scale s >= 0 and minimum m for which s q - m, 0 <= q <= top, is nearest to 32 numbers; lowest: m is not negative. */
static void best_line(const float *x, const float *importance, int top, bool lowest, float *scale,
                      float *minimum)
{
    enum { N = 32 };
    float low = lowest ? 0 : INFINITY, high = -INFINITY;
    double least = INFINITY, xx = 0, sx = 0, n = 0;
    for (int i = 0; i < N; i++) {
        const double w = weigh(importance, i);
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        sx += w * (double)x[i];
        xx += w * (double)x[i] * (double)x[i];
        n += w;
    }
    *scale = 0;
    *minimum = isfinite(low) ? -low : 0;
    if (!(high > low) || !isfinite(high - low))
        return;
    for (int t = 0; t < TRIES; t++) {
        float inverse = ((float)top + 0.1f * (float)(t - TRY_MIDDLE)) / (high - low);
        double sq = 0, qq = 0, xq = 0;
        for (int i = 0; i < N; i++) {
            const double w = weigh(importance, i);
            int q = clamp_round((x[i] - low) * inverse, 0, top);
            sq += w * q;
            qq += w * (double)q * q;
            xq += w * (double)x[i] * q;
        }
        /* The line of least squares; through 0 where it would lie above and may not. */
        double det = n * qq - sq * sq;
        double s = det > 0 ? (n * xq - sq * sx) / det : 0, m = n > 0 ? (s * sq - sx) / n : 0;
        if (lowest && m < 0) {
            m = 0;
            s = qq > 0 ? xq / qq : 0;
        }
        double error = s * s * qq + n * m * m + xx - 2 * s * m * sq - 2 * s * xq + 2 * m * sx;
        if (s >= 0 && error < least) {
            least = error;
            *scale = (float)s;
            *minimum = (float)m;
        }
    }
}

/* Q4_1 and Q5_1: scale code + minimum. */
static void encode_above_minimum(const float *x, const float *importance, int top, uint8_t *out)
{
    uint8_t code[32];
    float scale, minimum;
    best_line(x, importance, top, false, &scale, &minimum);
    scale = as_half(scale);
    minimum = as_half(minimum);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)code_of(x[i] + minimum, scale, 0, top);
    put_half(out, scale);
    put_half(out + 2, -minimum);
    out += 4;
    if (top > 15) {
        put_fifths(code, out);
        out += 4;
    }
    put_halves(code, 16, out);
}

static void encode_q4_1(const float *x, const float *importance, uint8_t *out)
{
    encode_above_minimum(x, importance, 15, out);
}

static void encode_q5_1(const float *x, const float *importance, uint8_t *out)
{
    encode_above_minimum(x, importance, 31, out);
}

/* Q4_K and Q5_K: whole numbers of 6 bits for scales and minima of groups of 32. */
static void encode_k_minima(const float *x, const float *importance, int top, uint8_t *out)
{
    enum { GROUPS = 8, GROUP = 32 };
    float scale[GROUPS], minimum[GROUPS];
    int8_t s[GROUPS], m[GROUPS];
    uint8_t code[256];
    for (int g = 0; g < GROUPS; g++)
        best_line(x + g * GROUP, importance ? importance + g * GROUP : NULL, top, true, &scale[g],
                  &minimum[g]);
    float d = share(scale, GROUPS, 63, s), dm = share(minimum, GROUPS, 63, m);
    for (int i = 0; i < 256; i++) {
        int g = i / GROUP;
        code[i] = (uint8_t)code_of(x[i] + dm * (float)m[g], d * (float)s[g], 0, top);
    }
    put_half(out, d);
    put_half(out + 2, dm);
    for (int g = 0; g < 4; g++) {
        out[4 + g] = (uint8_t)(s[g] | s[g + 4] >> 4 << 6);
        out[8 + g] = (uint8_t)(m[g] | m[g + 4] >> 4 << 6);
        out[12 + g] = (uint8_t)((s[g + 4] & 15) | (m[g + 4] & 15) << 4);
    }
    out += 16;
    for (int i = 0; i < 32 && top > 15; i++) { /* bit g of byte i: the fifth of code 32 g + i */
        *out = 0;
        for (int g = 0; g < GROUPS; g++)
            *out = (uint8_t)(*out | code[GROUP * g + i] >> 4 << g);
        out++;
    }
    for (int i = 0; i < 4; i++)
        put_halves(code + 64 * i, 32, out + 32 * i);
}

static void encode_q4_k(const float *x, const float *importance, uint8_t *out)
{
    encode_k_minima(x, importance, 15, out);
}

static void encode_q5_k(const float *x, const float *importance, uint8_t *out)
{
    encode_k_minima(x, importance, 31, out);
}

/* The number of e2m1, doubled, that is nearest to x: its code. */
static uint8_t mxfp4_code(float x)
{
    int best = 0;
    for (int c = 1; c < 16; c++)
        if (fabsf(x - (float)block_mxfp4_number[c]) < fabsf(x - (float)block_mxfp4_number[best]))
            best = c;
    return (uint8_t)best;
}

/* The scale is a power of two: that which puts the largest number at 4 to 8, where they end at 6, or one beside it. */
static void encode_mxfp4(const float *x, const float *importance, uint8_t *out)
{
    enum { LEAST = -126, MOST = 127 };
    float most = 0;
    double least = INFINITY;
    uint8_t code[32] = {0};
    for (int i = 0; i < 32; i++)
        most = isfinite(x[i]) ? fmaxf(most, fabsf(x[i])) : most;
    const int place = most > 0 ? ilogbf(most) - 2 : LEAST;
    for (int e = place - 1; e <= place + 1; e++) {
        const int power = e < LEAST ? LEAST : e > MOST ? MOST : e;
        uint8_t now[32];
        double error = 0;
        for (int i = 0; i < 32; i++) {
            now[i] = mxfp4_code(ldexpf(x[i], 1 - power));
            double d = (double)x[i] - ldexp(block_mxfp4_number[now[i]], power - 1);
            error += weigh(importance, i) * d * d;
        }
        if (!(error < least))
            continue;
        least = error;
        out[0] = (uint8_t)(power + 127);
        memcpy(code, now, sizeof code);
    }
    if (!isfinite(least))
        out[0] = (uint8_t)(place + 127);
    put_halves(code, 16, out + 1);
}

/* What errors count does not matter: with any scale most numbers keep as many bits. */
static void encode_f8_e4m3(const float *x, const float *importance, uint8_t *out)
{
    enum { N = 128 };
    const float largest = f8_to_f32(F8_E4M3, f8_largest(F8_E4M3));
    float most = 0;
    (void)importance;
    for (int i = 0; i < N; i++)
        most = fmaxf(most, fabsf(x[i]));
    const float scale = fminf(most, 0x1.fffffep127f) / largest;
    memcpy(out, &scale, sizeof scale);
    for (int i = 0; i < N; i++)
        out[sizeof scale + (size_t)i] = f8_from_f32(F8_E4M3, scale > 0 ? x[i] / scale : 0);
}

static void (*const encoders[BLOCK_KINDS])(const float *, const float *, uint8_t *) = {
    [BLOCK_Q4_0] = encode_q4_0,       [BLOCK_Q4_1] = encode_q4_1, [BLOCK_Q5_0] = encode_q5_0,
    [BLOCK_Q5_1] = encode_q5_1,       [BLOCK_Q8_0] = encode_q8_0, [BLOCK_Q4_K] = encode_q4_k,
    [BLOCK_Q5_K] = encode_q5_k,       [BLOCK_Q6_K] = encode_q6_k, [BLOCK_MXFP4] = encode_mxfp4,
    [BLOCK_F8_E4M3] = encode_f8_e4m3,
};

bool block_encodes(BlockKind kind)
{
    return encoders[kind] != NULL;
}

void block_encode(BlockKind kind, const float *in, const float *importance, int64_t n, uint8_t *out)
{
    const BlockInfo *info = &block_info[kind];
    assert(encoders[kind] && n % info->elements == 0);
    for (int64_t i = 0; i < n; i += info->elements, out += info->bytes)
        encoders[kind](in + i, importance ? importance + i : NULL, out);
}
