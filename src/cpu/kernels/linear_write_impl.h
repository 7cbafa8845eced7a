/*
 * What products do with rows on the way in and with sums on the way out, for every instruction set on the vectors of
 * vec.h: a norm; scales, biases, SwiGLU, a residual, rounding.
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/norm_impl.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

/* Vectors of 16 columns. */
enum { COLUMN_VECTORS = PANEL_ROWS / VN };

static float norm_row_scale(const LinearNorm *n, int64_t row)
{
    return norm_scale(n->x_dtype, n->x, row * n->k, n->k, n->eps);
}

static void norm_row_span(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                          void *out)
{
    _Static_assert((int)LINEAR_SPAN <= (int)TILE, "a span is one tile");
    float from[TILE], weights[TILE], to[TILE];
    float *y = tile_target(norm->out_dtype, out, 0, to);
    norm_tile(y, tile_read(norm->x_dtype, norm->x, row * norm->k + k0, n, from),
              tile_read(norm->weight_dtype, norm->weight, k0, n, weights), scale, n);
    tile_write(norm->out_dtype, out, 0, n, y);
}

/* A panel's bias in f32, zeros behind its columns. */
static const float *bias_of(cvn_dtype dtype, const void *bias, int columns,
                            float buffer[PANEL_ROWS])
{
    float from[TILE];
    if (!bias)
        return NULL;
    memset(buffer, 0, PANEL_ROWS * sizeof *buffer);
    memcpy(buffer, tile_read(dtype, bias, 0, columns, from), (size_t)columns * sizeof *buffer);
    return buffer;
}

static void write(const LinearOut *o)
{
    float biases[2][PANEL_ROWS];
    const float *bias = bias_of(o->bias_dtype, o->bias, o->columns, biases[0]);
    const float *up_bias = bias_of(o->up_bias_dtype, o->up_bias, o->columns, biases[1]);
    for (int r = 0; r < o->rows; r++) {
        float y[PANEL_ROWS];
        for (int v = 0; v < COLUMN_VECTORS; v++) {
            vf sum = vf_load(o->c + r * PANEL_ROWS + v * VN);
            if (o->scale)
                sum *= vf_load(o->scale + v * VN);
            if (bias)
                sum += vf_load(bias + v * VN);
            if (o->up) {
                vf up = vf_load(o->up + r * PANEL_ROWS + v * VN);
                if (o->up_scale)
                    up *= vf_load(o->up_scale + v * VN);
                if (up_bias)
                    up += vf_load(up_bias + v * VN);
                sum = sum * vf_logistic(sum) * up;
            }
            vf_store(y + v * VN, sum);
        }
        if (o->residual)
            for (int j = 0; j < o->columns; j++)
                y[j] += o->residual[r * o->stride + j];
        int64_t at = o->at + r * o->stride;
        float *to = tile_target(o->dtype, o->out, at, y);
        if (to != y)
            memcpy(to, y, (size_t)o->columns * sizeof *y);
        tile_write(o->dtype, o->out, at, o->columns, to);
    }
}
