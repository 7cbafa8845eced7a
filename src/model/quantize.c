#include "model/quantize.h"

#include "base/float16.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

int quant_parse(const char *text, QuantScheme *out, cvn_err *err)
{
    text = text ? text : "none";
    static const struct {
        const char *name;
        QuantScheme scheme;
    } schemes[] = {{"none", {.kind = QUANT_NONE, .group = 0}},
                   {"int8", {.kind = QUANT_INT8, .group = 0}},
                   {"int4", {.kind = QUANT_INT4, .group = QUANT_DEFAULT_GROUP}},
                   {"int4:32", {.kind = QUANT_INT4, .group = 32}},
                   {"int4:64", {.kind = QUANT_INT4, .group = 64}},
                   {"int4:128", {.kind = QUANT_INT4, .group = 128}}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (strcmp(schemes[i].name, text) == 0) {
            *out = schemes[i].scheme;
            return CVN_OK;
        }
    return err_set(err, CVN_EINVAL,
                   "'%.40s' is no way to quantize; give int8, int4, int4:32, int4:64 or int4:128",
                   text);
}

const char *quant_text(QuantScheme scheme, char *text, size_t size)
{
    if (scheme.kind == QUANT_INT4)
        snprintf(text, size, "int4:%" PRId64, scheme.group);
    else
        snprintf(text, size, "%s", scheme.kind == QUANT_INT8 ? "int8" : "none");
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

/* Squared error of a group with this scale. */
static float group_error(const float *x, int64_t n, float scale)
{
    float inverse = 1.0f / scale, error = 0;
    for (int64_t i = 0; i < n; i++) {
        float y = x[i] * inverse;
        y = y > 7 ? 7 : y < -8 ? -8 : y;
        y = y + 12582912.0f - 12582912.0f; /* to the nearest integer */
        float d = x[i] - y * scale;
        error += d * d;
    }
    return error;
}

/* The bf16 scale, of either sign, that loses least: of some that put the extreme element at -9.1 to -6.25 or at
   6.1 to 8.9, where numbers end at -8 and 7. */
static uint16_t group_scale(const float *x, int64_t n)
{
    enum { PLACES = 24 };
    float most = extreme(x, n), least = INFINITY;
    uint16_t best = 0;
    for (int i = 0; i < PLACES && most != 0; i++) {
        float place = i % 2 ? 6.0f + 0.125f * (float)i : -6.25f - 0.125f * (float)i;
        uint16_t scale = bf16_from_f32(most / place);
        float value = bf16_to_f32(scale);
        if (!isnormal(value) || !isfinite(1.0f / value))
            continue;
        float error = group_error(x, n, value);
        if (error < least) {
            least = error;
            best = scale;
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
        uint16_t chosen = group_scale(x + at, group);
        float inverse = chosen ? 1.0f / bf16_to_f32(chosen) : 0;
        ((uint16_t *)scale)[at / group] = chosen;
        for (int64_t i = at; i < at + group; i += 2) {
            int low = nearest(x[i] * inverse, -8, 7), high = nearest(x[i + 1] * inverse, -8, 7);
            pairs[i / 2] = (uint8_t)((low & 15) | (high & 15) << 4);
        }
    }
}
