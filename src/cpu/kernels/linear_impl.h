/*
 * The parts of linear.h that are the same for every instruction set, on the vectors of vec.h: to
 * fixed point, and out of the sums (linear_write_impl.h). The file that includes this has defined
 *
 *     static void arrange(const int16_t *x, int8_t *out)
 *
 * which lays 512 numbers out as its tiles read them, in 1024 bytes.
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/linear_write_impl.h"
#include "cpu/kernels/rows8_impl.h"

/* The largest magnitude, by the bits: a NaN counts as larger than all. */
static float largest_of_span(const float *x)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < LINEAR_SPAN; i++) {
        uint32_t bits;
        memcpy(&bits, x + i, 4);
        bits &= 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    float value;
    memcpy(&value, &most, 4);
    return value;
}

/* The least power of two that is not smaller. */
static float power_of_two(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fffff) & 0xff800000;
    memcpy(&x, &bits, sizeof bits);
    return x;
}

/* Leaves in `value` what it was rounded by. */
static void to_fixed(bool power, float value[LINEAR_SPAN], int64_t group, int8_t *out,
                     LinearSpan *span)
{
    int16_t fixed[LINEAR_SPAN];
    float most = largest_of_span(value);
    span->scale = most * (1.0f / 32512.0f);
    if (power)
        span->scale = power_of_two(span->scale);
    float inverse = power ? 1 / span->scale : 32512.0f / most;
    if (!(most < INFINITY) || !(inverse < INFINITY)) { /* or all 0, or nearly */
        span->scale = most < INFINITY ? 0 : NAN;
        inverse = 0;
        memset(value, 0, LINEAR_SPAN * sizeof *value);
    }
    for (int64_t i = 0; i < LINEAR_SPAN; i++) {
        float shifted = value[i] * inverse + 12582912.0f; /* the nearest integer in the low bits */
        int32_t bits;
        memcpy(&bits, &shifted, 4);
        fixed[i] = (int16_t)(bits - 0x4b400000);
        value[i] = (float)((double)value[i] - (double)fixed[i] * (double)span->scale);
    }
    for (int64_t g = 0; g < LINEAR_SPAN / group; g++) {
        int32_t sum = 0;
        for (int64_t i = g * group; i < (g + 1) * group; i++)
            sum += fixed[i];
        span->minus8[g] = -8 * sum;
    }
    arrange(fixed, out);
}

static void quantize(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int64_t group,
                     int8_t *out, LinearSpan *span, int64_t rest)
{
    float buffer[TILE], value[LINEAR_SPAN];
    memcpy(value, tile_read(dtype, x, at, n, buffer), (size_t)n * sizeof *value);
    memset(value + n, 0, (size_t)(LINEAR_SPAN - n) * sizeof *value);
    to_fixed(dtype == CVN_BF16, value, group, out, span);
    if (rest)
        to_fixed(false, value, group, out + rest * LINEAR_ROW_BYTES, span + rest);
}

static void quantize8(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int64_t group,
                      int64_t columns, int8_t *out, LinearSpan *span)
{
    float buffer[TILE];
    const float *value = tile_read(dtype, x, at, n, buffer);
    memset(out, 0, LINEAR_SPAN);
    for (int64_t i = 0; i < n; i += columns) {
        float step = bf16_to_f32(step_of(largest(value + i, columns, 0)));
        span->step[i / columns] = step;
        if (step_usable(step))
            steps_of(out + i, value + i, step, columns);
    }
    for (int64_t g = 0; g < LINEAR_SPAN / group; g++) {
        int32_t sum = 0;
        for (int64_t i = g * group; i < (g + 1) * group; i++)
            sum -= out[i];
        span->minus[g] = sum;
    }
}

/* What the file that includes this has with these: tile_i8 and tile_i4. */
#define LINEAR_MEMBERS                                                                             \
    .quantize = quantize, .quantize8 = quantize8, .tile_i8 = tile_i8, .tile_i4 = tile_i4,          \
    .norm_scale = norm_row_scale, .norm_span = norm_row_span, .write = write
