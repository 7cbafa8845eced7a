/*
 * What products of rows of 8 bits have beside their tiles, for every instruction set on the vectors of vec.h: how rows are
 * brought to 8 bits (linear_direct.h says when), and out of the sums (linear_write_impl.h).
 */
#include "cpu/kernels/linear_direct.h"
#include "cpu/kernels/linear_write_impl.h"
#include "cpu/kernels/rows8_impl.h"

static int32_t row_largest(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int32_t most)
{
    float from[TILE];
    return largest(tile_read(dtype, x, at, n, from), n, most);
}

static float row_step(int32_t most)
{
    return bf16_to_f32(step_of(most));
}

static int32_t row_to_8_bits(cvn_dtype dtype, const void *x, int64_t at, int64_t n, float step,
                             int8_t *out)
{
    float from[TILE];
    int32_t sum = 0;
    if (dtype == CVN_I8)
        memcpy(out, (const int8_t *)x + at, (size_t)n);
    else if (step_usable(step))
        steps_of(out, tile_read(dtype, x, at, n, from), step, n);
    else
        memset(out, 0, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        sum += out[i];
    return sum;
}

/* The members of a DirectIsa that are these. */
#define ROWS8_MEMBERS                                                                              \
    .weight = CVN_I8, .x = CVN_I8, .norm_scale = norm_row_scale, .norm_span = norm_row_span,       \
    .largest = row_largest, .step = row_step, .to_8_bits = row_to_8_bits, .write = write
