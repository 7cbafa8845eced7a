/*
 * How a product brings its rows to 8 bits, for every instruction set on the vectors of vec.h: linear_float.h says when.
 */
#include "cpu/kernels/linear_float.h"
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
