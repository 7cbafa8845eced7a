#include "io/encode.h"

#include "base/float16.h"

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

/* The scale s for which s q, low <= q <= high, is nearest to n numbers. */
static float best_scale(const float *x, int n, int low, int high)
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
            xq += (double)x[i] * q;
            qq += (double)q * q;
        }
        if (qq > 0 && xq * xq > most * qq) { /* what is left of sum x x */
            most = xq * xq / qq;
            best = (float)(xq / qq);
        }
    }
    return best;
}

static void encode_q8_0(const float *x, uint8_t *out)
{
    float most = 0;
    for (int i = 0; i < 32; i++)
        most = fmaxf(most, fabsf(x[i]));
    float scale = as_half(most / 127);
    put_half(out, scale);
    for (int i = 0; i < 32; i++)
        out[2 + i] = (uint8_t)code_of(x[i], scale, -127, 127);
}

static void encode_q4_0(const float *x, uint8_t *out)
{
    float scale = as_half(best_scale(x, 32, -8, 7));
    put_half(out, scale);
    for (int i = 0; i < 16; i++)
        out[2 + i] = (uint8_t)((code_of(x[i], scale, -8, 7) + 8) |
                               (code_of(x[16 + i], scale, -8, 7) + 8) << 4);
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

static void encode_q6_k(const float *x, uint8_t *out)
{
    enum { GROUPS = 16, GROUP = 16 };
    float scale[GROUPS];
    int8_t whole[GROUPS];
    uint8_t code[256];
    for (int g = 0; g < GROUPS; g++)
        scale[g] = best_scale(x + g * GROUP, GROUP, -32, 31);
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

/* Scale s and minimum m, neither negative, for which s q - m, 0 <= q <= 15, is nearest to 32 numbers. */
static void best_line(const float *x, float *scale, float *minimum)
{
    enum { N = 32, TOP = 15 };
    float low = 0, high = -INFINITY;
    double least = INFINITY, xx = 0, sx = 0;
    *scale = *minimum = 0;
    for (int i = 0; i < N; i++) {
        low = fminf(low, x[i]);
        high = fmaxf(high, x[i]);
        sx += (double)x[i];
        xx += (double)x[i] * (double)x[i];
    }
    if (!(high > low) || !isfinite(high - low)) {
        *minimum = isfinite(low) ? -low : 0;
        return;
    }
    for (int t = 0; t < TRIES; t++) {
        float inverse = ((float)TOP + 0.1f * (float)(t - TRY_MIDDLE)) / (high - low);
        double sq = 0, qq = 0, xq = 0;
        for (int i = 0; i < N; i++) {
            int q = clamp_round((x[i] - low) * inverse, 0, TOP);
            sq += q;
            qq += (double)q * q;
            xq += (double)x[i] * q;
        }
        /* The line of least squares; through 0 where it would lie above. */
        double det = N * qq - sq * sq;
        double s = det > 0 ? (N * xq - sq * sx) / det : 0, m = (s * sq - sx) / N;
        if (m < 0) {
            m = 0;
            s = qq > 0 ? xq / qq : 0;
        }
        double error = s * s * qq + N * m * m + xx - 2 * s * m * sq - 2 * s * xq + 2 * m * sx;
        if (s >= 0 && error < least) {
            least = error;
            *scale = (float)s;
            *minimum = (float)m;
        }
    }
}

static void encode_q4_k(const float *x, uint8_t *out)
{
    enum { GROUPS = 8, GROUP = 32 };
    float scale[GROUPS], minimum[GROUPS];
    int8_t s[GROUPS], m[GROUPS];
    uint8_t code[256];
    for (int g = 0; g < GROUPS; g++)
        best_line(x + g * GROUP, &scale[g], &minimum[g]);
    float d = share(scale, GROUPS, 63, s), dm = share(minimum, GROUPS, 63, m);
    for (int i = 0; i < 256; i++) {
        int g = i / GROUP;
        code[i] = (uint8_t)code_of(x[i] + dm * (float)m[g], d * (float)s[g], 0, 15);
    }
    put_half(out, d);
    put_half(out + 2, dm);
    for (int g = 0; g < 4; g++) {
        out[4 + g] = (uint8_t)(s[g] | s[g + 4] >> 4 << 6);
        out[8 + g] = (uint8_t)(m[g] | m[g + 4] >> 4 << 6);
        out[12 + g] = (uint8_t)((s[g + 4] & 15) | (m[g + 4] & 15) << 4);
    }
    for (int i = 0; i < 128; i++) {
        const uint8_t *c = code + i / 32 * 64 + i % 32;
        out[16 + i] = (uint8_t)(c[0] | c[32] << 4);
    }
}

static void (*const encoders[BLOCK_KINDS])(const float *, uint8_t *) = {
    [BLOCK_Q4_0] = encode_q4_0,
    [BLOCK_Q8_0] = encode_q8_0,
    [BLOCK_Q4_K] = encode_q4_k,
    [BLOCK_Q6_K] = encode_q6_k,
};

bool block_encodes(BlockKind kind)
{
    return encoders[kind] != NULL;
}

void block_encode(BlockKind kind, const float *in, int64_t n, uint8_t *out)
{
    const BlockInfo *info = &block_info[kind];
    assert(encoders[kind] && n % info->elements == 0);
    for (int64_t i = 0; i < n; i += info->elements, out += info->bytes)
        encoders[kind](in + i, out);
}
