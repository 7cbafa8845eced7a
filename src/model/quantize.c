#include "model/quantize.h"

#include "base/float16.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

const WeightType weight_types[] = {
    {"f32", .dtype = CVN_F32, .gguf = 0},
    {"f16", .dtype = CVN_F16, .gguf = 1},
    {"bf16", .dtype = CVN_BF16, .gguf = 32},
    {"q8_0", .block = BLOCK_Q8_0, .head = BLOCK_Q8_0, .gguf = 7},
    {"q6_k", .block = BLOCK_Q6_K, .head = BLOCK_Q6_K, .gguf = 18},
    {"q5_k_m", "q5_k", .block = BLOCK_Q5_K, .head = BLOCK_Q6_K, .spread = BLOCK_Q6_K, .gguf = 17},
    {"q5_k_s", .block = BLOCK_Q5_K, .head = BLOCK_Q6_K, .gguf = 16},
    {"q5_1", .block = BLOCK_Q5_1, .head = BLOCK_Q6_K, .gguf = 9},
    {"q5_0", .block = BLOCK_Q5_0, .head = BLOCK_Q6_K, .gguf = 8},
    {"q4_k_m", "q4_k", .block = BLOCK_Q4_K, .head = BLOCK_Q6_K, .spread = BLOCK_Q6_K, .gguf = 15},
    {"q4_k_s", .block = BLOCK_Q4_K, .head = BLOCK_Q6_K, .first = BLOCK_Q5_K, .gguf = 14},
    {"q4_1", .block = BLOCK_Q4_1, .head = BLOCK_Q6_K, .gguf = 3},
    {"q4_0", .block = BLOCK_Q4_0, .head = BLOCK_Q6_K, .gguf = 2},
    {"mxfp4", .block = BLOCK_MXFP4, .head = BLOCK_Q6_K, .gguf = 38},
    {"fp8", "f8_e4m3", .block = BLOCK_F8_E4M3},
    {"int8", .quant = {.kind = QUANT_INT8}},
    {"int4", .quant = {.kind = QUANT_INT4, .group = QUANT_DEFAULT_GROUP}},
    {"int4:32", .quant = {.kind = QUANT_INT4, .group = 32}},
    {"int4:64", .quant = {.kind = QUANT_INT4, .group = 64}},
    {"int4:128", .quant = {.kind = QUANT_INT4, .group = 128}},
    {0},
};

const WeightType *weight_type_find(const char *name)
{
    for (const WeightType *t = weight_types; name && t->name; t++)
        if (strcasecmp(t->name, name) == 0 || (t->alias && strcasecmp(t->alias, name) == 0))
            return t;
    return NULL;
}

const char *weight_type_alias(const char *name)
{
    const WeightType *t = weight_type_find(name);
    return t ? t->name : name;
}

const char *weight_type_name(size_t i)
{
    return weight_types[i].name;
}

/* Those that weights can be quantized to while they are loaded, ours first. */
const char *quant_name(size_t i)
{
    enum { TYPES = sizeof weight_types / sizeof *weight_types - 1 };
    if (i == 0)
        return "none";
    for (int turn = 0; turn < 2; turn++)
        for (const WeightType *t = weight_types; t < weight_types + TYPES; t++)
            if ((turn ? t->block != BLOCK_NONE : t->quant.kind != QUANT_NONE) && --i == 0)
                return t->name;
    return NULL;
}

int quant_parse(const char *text, QuantScheme *out, cvn_err *err)
{
    const WeightType *t = weight_type_find(text);
    *out = (QuantScheme){.kind = QUANT_NONE};
    if (!text || strcasecmp(text, "none") == 0)
        return CVN_OK;
    if (!t || (!t->block && !t->quant.kind))
        return err_set(err, CVN_EINVAL,
                       "'%.40s' is not a quantization type; give int8, int4, int4:32, int4:64, "
                       "int4:128, fp8, or a type of GGUF files from q4_0 to q8_0",
                       text);
    *out = t->block ? (QuantScheme){.kind = QUANT_BLOCKS, .blocks = t} : t->quant;
    return CVN_OK;
}

const char *quant_text(QuantScheme scheme, char *text, size_t size)
{
    if (scheme.kind == QUANT_INT4)
        snprintf(text, size, "int4:%" PRId64, scheme.group);
    else
        snprintf(text, size, "%s",
                 scheme.kind == QUANT_BLOCKS ? scheme.blocks->name
                 : scheme.kind == QUANT_INT8 ? "int8"
                                             : "none");
    return text;
}

QuantForm quant_form(QuantScheme scheme, int64_t n, int64_t k)
{
    QuantForm form = {.dtype = CVN_I8, .scale_dtype = CVN_F32, .n = n, .k = k, .groups = 1};
    int64_t group = scheme.group;
    while (group >= 8 && k % group)
        group /= 2;
    if (scheme.kind == QUANT_INT4 && group >= 8) {
        form.dtype = CVN_I4;
        form.scale_dtype = CVN_BF16;
        form.groups = k / group;
    }
    return form;
}

double quant_bits(QuantScheme scheme)
{
    return 4 + 16 / (double)scheme.group;
}

/* The largest magnitude, with its sign. A NaN counts as 0: weights with NaN are reported elsewhere. */
static float extreme(const float *x, int64_t n)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        if (fabsf(x[i]) > fabsf(most))
            most = x[i];
    return isfinite(most) ? most : copysignf(3e38f, most);
}

static int nearest(float x, int low, int high)
{
    float y = rintf(x);
    return y >= (float)high ? high : y > (float)low ? (int)y : y <= (float)low ? low : 0;
}

/* What a number becomes. */
static float code_of(float x, float inverse)
{
    float y = x * inverse;
    y = y > 7 ? 7 : y < -8 ? -8 : y;
    return y + 12582912.0f - 12582912.0f; /* to the nearest integer */
}

/* Squared error of a group with this scale, and the scale of least squares for the numbers that it gives. */
static float group_error(const float *x, const float *weight, int64_t n, float scale, float *better)
{
    float inverse = 1.0f / scale, error = 0, xq = 0, qq = 0;
    for (int64_t i = 0; i < n; i++) {
        float y = code_of(x[i], inverse), d = x[i] - y * scale, by = weight ? weight[i] : 1;
        error += by * d * d;
        xq += by * x[i] * y;
        qq += by * y * y;
    }
    *better = qq > 0 ? xq / qq : scale;
    return error;
}

/* The bf16 scale, of either sign, that loses least: of some that put the extreme element at -9.1 to -6.25 or at
   6.1 to 8.9, where numbers end at -8 and 7; and then of those of least squares for the numbers that the best gives. */
uint16_t quant_scale(const float *x, const float *weight, int64_t n)
{
    enum { PLACES = 24, TURNS = 8 };
    float most = extreme(x, n), least = INFINITY, next = 0, better;
    uint16_t best = 0;
    for (int i = 0; i < PLACES + TURNS && most != 0; i++) {
        float place = i % 2 ? 6.0f + 0.125f * (float)i : -6.25f - 0.125f * (float)i;
        uint16_t scale = bf16_from_f32(i < PLACES ? most / place : next);
        float value = bf16_to_f32(scale);
        if (!isnormal(value) || !isfinite(1.0f / value))
            continue;
        float error = group_error(x, weight, n, value, &better);
        if (error < least) {
            least = error;
            best = scale;
            next = better;
        } else if (i >= PLACES) {
            break;
        }
    }
    return best;
}

void quant_row(const QuantForm *form, const float *x, int64_t columns, void *q, void *scale)
{
    int8_t *eight = q;
    uint8_t *pairs = q;
    if (form->dtype == CVN_I8) {
        float one = fabsf(extreme(x, columns)) / 127.0f, inverse = one > 0 ? 1.0f / one : 0;
        *(float *)scale = one;
        for (int64_t i = 0; i < columns; i++)
            eight[i] = (int8_t)nearest(isfinite(inverse) ? x[i] * inverse : 0, -127, 127);
        return;
    }
    int64_t group = form->k / form->groups;
    for (int64_t at = 0; at < columns; at += group) {
        uint16_t chosen = quant_scale(x + at, NULL, group);
        float inverse = chosen ? 1.0f / bf16_to_f32(chosen) : 0;
        ((uint16_t *)scale)[at / group] = chosen;
        for (int64_t i = at; i < at + group; i += 2) {
            int low = nearest(x[i] * inverse, -8, 7), high = nearest(x[i + 1] * inverse, -8, 7);
            pairs[i / 2] = (uint8_t)((low & 15) | (high & 15) << 4);
        }
    }
}
