/*
 * Products of rows and weights of 8 bits on AMX tiles, in the blocks of linear_bf16.c: a span has twice the elements in
 * as many bytes. What fills no tiles is left to AVX-512: the integers are the same.
 */
#include "cpu/kernels/amx/linear_block.h"

static void rest_of(const DirectTile *t, int r)
{
    const DirectIsa *vnni = &linear_avx512_rows8;
    for (; r < t->rows; r += vnni->rows) {
        int rows = t->rows - r < vnni->rows ? t->rows - r : vnni->rows;
        DirectTile rest = rows_from(t, r, rows, t->x_stride);
        vnni->tile(&rest);
    }
}

static void tile(const DirectTile *t)
{
    tile_panels(true, t, rest_of);
}

static float norm_scale(const LinearNorm *norm, int64_t row)
{
    return linear_avx512_rows8.norm_scale(norm, row);
}

static void norm_span(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                      void *out)
{
    linear_avx512_rows8.norm_span(norm, row, k0, n, scale, out);
}

static int32_t largest(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int32_t most)
{
    return linear_avx512_rows8.largest(dtype, x, at, n, most);
}

static float step(int32_t most)
{
    return linear_avx512_rows8.step(most);
}

static int32_t to_8_bits(cvn_dtype dtype, const void *x, int64_t at, int64_t n, float scale,
                         int8_t *out)
{
    return linear_avx512_rows8.to_8_bits(dtype, x, at, n, scale, out);
}

static void write_rows(const LinearOut *out)
{
    linear_avx512_rows8.write(out);
}

/* The span is what AVX-512 takes, too. */
const DirectIsa linear_amx_rows8 = {.weight = CVN_I8,
                                    .x = CVN_I8,
                                    .rows = BLOCK_ROWS,
                                    .chunk = 512,
                                    .block = 16,
                                    .group = 2,
                                    .span = LINEAR_SPAN,
                                    .enter = tile_enter,
                                    .leave = tile_leave,
                                    .tile = tile,
                                    .norm_scale = norm_scale,
                                    .norm_span = norm_span,
                                    .largest = largest,
                                    .step = step,
                                    .to_8_bits = to_8_bits,
                                    .write = write_rows};
