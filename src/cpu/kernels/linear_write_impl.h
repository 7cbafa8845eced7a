/*
 * What products do with their sums on the way out, for every instruction set on the vectors of vec.h: scales, SwiGLU, a
 * residual, rounding.
 */
#include "cpu/kernels/linear.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

/* Vectors of 16 columns. */
enum { COLUMN_VECTORS = PANEL_ROWS / VN };

static void write(const LinearOut *o)
{
    for (int r = 0; r < o->rows; r++) {
        float y[PANEL_ROWS];
        for (int v = 0; v < COLUMN_VECTORS; v++) {
            vf sum = vf_load(o->c + r * PANEL_ROWS + v * VN);
            if (o->scale)
                sum *= vf_load(o->scale + v * VN);
            if (o->up) {
                vf up = vf_load(o->up + r * PANEL_ROWS + v * VN);
                if (o->up_scale)
                    up *= vf_load(o->up_scale + v * VN);
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
