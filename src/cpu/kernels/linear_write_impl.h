/*
 * What products do with rows on the way in and with sums on the way out, for every instruction set on the vectors of
 * vec.h: a norm; scales, biases, SwiGLU, a residual, rounding.
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/norm_impl.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

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

/* Biases in f32, zeros behind the last. */
static const float *bias_of(cvn_dtype dtype, const void *bias, int columns, float *buffer)
{
    float from[TILE];
    if (!bias)
        return NULL;
    int whole = (columns + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    memcpy(buffer, tile_read(dtype, bias, 0, columns, from), (size_t)columns * sizeof *buffer);
    memset(buffer + columns, 0, (size_t)(whole - columns) * sizeof *buffer);
    return buffer;
}

/* Sums times their scale; step: of integers, or NULL. */
VEC_INLINE vf scaled(const float *c, const float *scale, const float *step)
{
    vf sum = vf_load(c);
    if (step)
        sum = __builtin_convertvector((vi)sum, vf);
    if (scale)
        sum *= vf_load(scale);
    if (step)
        sum *= vf_splat(*step);
    return sum;
}

/* One vector of sums, and of those of `up`, and what belongs to its columns; NULL where there is none. */
VEC_INLINE vf finish(const float *c, const float *up, const float *step, const float *scale,
                     const float *up_scale, const float *bias, const float *up_bias)
{
    vf sum = scaled(c, scale, step);
    if (bias)
        sum += vf_load(bias);
    if (!up)
        return sum;
    vf y = scaled(up, up_scale, step);
    if (up_bias)
        y += vf_load(up_bias);
    return sum * vf_logistic(sum) * y;
}

/* Columns j to j + 15 of row r, of which n are there. */
static void write_part(const LinearOut *o, int r, int j, int n, const float y[PANEL_ROWS])
{
    float last[PANEL_ROWS];
    int64_t at = o->at + r * o->stride + j;
    for (int i = 0; i < n; i++)
        last[i] = o->residual ? y[i] + o->residual[r * o->stride + j + i] : y[i];
    float *to = tile_target(o->dtype, o->out, at, last);
    if (to != last)
        memcpy(to, last, (size_t)n * sizeof *to);
    tile_write(o->dtype, o->out, at, n, to);
}

/* Rows from asking for the place of a row, and its residual, to writing it. Earlier they would be driven out: rows a power of
   two apart share few places of L2. */
enum { WRITE_AHEAD = 4 };

VEC_INLINE void fetch_row(const LinearOut *o, const cvn_dtype dtype, int r)
{
    const int64_t size = dtype == CVN_F32 ? 4 : 2, at = o->at + r * o->stride;
    if (!o->ahead || r >= o->rows)
        return;
    for (int64_t i = 0; i < o->columns * size; i += 64)
        __builtin_prefetch((const char *)o->out + at * size + i, 1, 2);
    for (int64_t i = 0; o->residual && i < o->columns; i += 16)
        __builtin_prefetch(o->residual + r * o->stride + i, 0, 2);
}

/* Row by row: half a cache line of each row of a panel would leave and come back. */
VEC_INLINE void write_rows_of(const LinearOut *o, const cvn_dtype dtype, const float *up0,
                              const float *steps, const float *scale, const float *up_scale,
                              const float *bias, const float *up_bias)
{
    const float *residual = o->residual;
    const int64_t c_stride = o->c_stride, stride = o->stride;
    const int rows = o->rows, columns = o->columns;
    for (int r = 0; r < rows; r++) {
        fetch_row(o, dtype, r + WRITE_AHEAD);
        const float *c = o->c + r * PANEL_ROWS, *up = up0 ? up0 + r * PANEL_ROWS : NULL;
        float *to = (float *)o->out + o->at + r * stride;
        uint16_t *half = (uint16_t *)o->out + o->at + r * stride;
        const float *step = steps ? steps + r : NULL;
        for (int j = 0; j < columns; j += PANEL_ROWS, c += c_stride, up = up ? up + c_stride : up) {
            bool whole = j + PANEL_ROWS <= columns && dtype != CVN_F16;
            float y[PANEL_ROWS];
            for (int v = 0; v < PANEL_ROWS; v += VN) {
                vf x = finish(c + v, up ? up + v : NULL, step, scale ? scale + j + v : NULL,
                              up_scale ? up_scale + j + v : NULL, bias ? bias + j + v : NULL,
                              up_bias ? up_bias + j + v : NULL);
                if (residual && whole)
                    x += vf_load(residual + r * stride + j + v);
                if (!whole)
                    vf_store(y + v, x);
                else if (dtype == CVN_BF16)
                    vf_store_bf16(half + j + v, x);
                else
                    vf_store(to + j + v, x);
            }
            if (!whole)
                write_part(o, r, j, columns - j < PANEL_ROWS ? columns - j : PANEL_ROWS, y);
        }
    }
}

/* Without biases: what there is is known before the loops. */
VEC_INLINE void write_as(const LinearOut *o, const cvn_dtype dtype)
{
    if (o->step && o->up)
        write_rows_of(o, dtype, o->up, o->step, o->scale, o->up_scale, NULL, NULL);
    else if (o->step)
        write_rows_of(o, dtype, NULL, o->step, o->scale, NULL, NULL, NULL);
    else if (o->scale && o->up)
        write_rows_of(o, dtype, o->up, NULL, o->scale, o->up_scale, NULL, NULL);
    else if (o->scale)
        write_rows_of(o, dtype, NULL, NULL, o->scale, NULL, NULL, NULL);
    else if (o->up)
        write_rows_of(o, dtype, o->up, NULL, NULL, NULL, NULL, NULL);
    else
        write_rows_of(o, dtype, NULL, NULL, NULL, NULL, NULL, NULL);
}

static void write(const LinearOut *o)
{
    float biases[2][LINEAR_MOST_BLOCK * PANEL_ROWS];
    const float *bias = bias_of(o->bias_dtype, o->bias, o->columns, biases[0]);
    const float *up_bias = bias_of(o->up_bias_dtype, o->up_bias, o->columns, biases[1]);
    if (bias || o->dtype == CVN_F16)
        write_rows_of(o, o->dtype, o->up, o->step, o->scale, o->up_scale, bias, up_bias);
    else if (o->dtype == CVN_BF16)
        write_as(o, CVN_BF16);
    else
        write_as(o, CVN_F32);
}
