/* Products with quantized weights, and of rows of 8 bits, in portable C. */
#include "cpu/kernels/linear.h"

#include "base/float16.h"

#include <string.h>

enum { ROWS = 4 };

/* As they are. */
static void arrange(const int16_t *x, int8_t *out)
{
    memcpy(out, x, LINEAR_ROW_BYTES);
}

/* sum[j] += the four products of row j. */
static void add_quads(const int8_t *q, const int16_t *x, int32_t sum[PANEL_ROWS])
{
    for (int j = 0; j < PANEL_ROWS; j++)
        sum[j] += q[4 * j] * x[0] + q[4 * j + 1] * x[1] + q[4 * j + 2] * x[2] + q[4 * j + 3] * x[3];
}

static void add_to(float *c, const float *y, bool add)
{
    for (int j = 0; j < PANEL_ROWS; j++)
        c[j] = add ? c[j] + y[j] : y[j];
}

static void tile_i8(const LinearTile *t)
{
    for (int r = 0; r < t->rows; r++) {
        int32_t sum[PANEL_ROWS] = {0};
        float y[PANEL_ROWS];
        int16_t x[LINEAR_SPAN];
        memcpy(x, (const int8_t *)t->x + r * LINEAR_ROW_BYTES, sizeof x);
        for (int64_t u = 0; u < t->units; u++)
            add_quads((const int8_t *)t->q + u * PANEL_BYTES, x + u * PANEL_QUAD, sum);
        for (int j = 0; j < PANEL_ROWS; j++)
            y[j] = (float)sum[j] * t->span[r].scale;
        add_to(t->c + r * PANEL_ROWS, y, t->add);
    }
}

static float scale_at(const LinearTile *t, int64_t i)
{
    return t->scale_dtype == CVN_F32 ? ((const float *)t->scale)[i]
                                     : bf16_to_f32(((const uint16_t *)t->scale)[i]);
}

static void tile_i4(const LinearTile *t)
{
    for (int r = 0; r < t->rows; r++) {
        float y[PANEL_ROWS] = {0};
        int16_t x[LINEAR_SPAN];
        memcpy(x, (const int8_t *)t->x + r * LINEAR_ROW_BYTES, sizeof x);
        for (int64_t u = 0; u < t->units;) {
            int64_t group = u / t->group;
            int32_t sum[PANEL_ROWS] = {0};
            for (int64_t i = 0; i < t->group; i++, u++) {
                const uint8_t *q = t->q + u * PANEL_BYTES;
                int8_t low[PANEL_BYTES], high[PANEL_BYTES];
                for (int j = 0; j < PANEL_BYTES; j++) {
                    low[j] = (int8_t)((q[j] & 15) ^ 8) - 8;
                    high[j] = (int8_t)((q[j] >> 4) ^ 8) - 8;
                }
                add_quads(low, x + u * 2 * PANEL_QUAD, sum);
                add_quads(high, x + (u * 2 + 1) * PANEL_QUAD, sum);
            }
            for (int j = 0; j < PANEL_ROWS; j++)
                y[j] += (float)sum[j] * scale_at(t, group * PANEL_ROWS + j);
        }
        for (int j = 0; j < PANEL_ROWS; j++)
            y[j] *= t->span[r].scale;
        add_to(t->c + r * PANEL_ROWS, y, t->add);
    }
}

static void group_sums(const int8_t *number, int64_t units, const int8_t *x, bool eight,
                       int32_t sum[PANEL_ROWS])
{
    int16_t from[LINEAR_SPAN];
    if (!eight)
        memcpy(from, x, (size_t)(units * PANEL_QUAD) * sizeof *from);
    for (int64_t i = 0; eight && i < units * PANEL_QUAD; i++)
        from[i] = x[i];
    memset(sum, 0, PANEL_ROWS * sizeof *sum);
    for (int64_t u = 0; u < units; u++)
        add_quads(number + u * PANEL_BYTES, from + u * PANEL_QUAD, sum);
}

#include "cpu/kernels/linear_blocks_impl.h"

static void row_of(const LinearTile *t, int r, int panel)
{
    int32_t sum[PANEL_ROWS], *c = (int32_t *)(void *)(t->c + panel * t->c_stride + r * PANEL_ROWS);
    const int8_t *q = (const int8_t *)t->q + panel * t->q_stride;
    const int8_t *x = (const int8_t *)t->x + r * t->x_stride;
    for (int j = 0; j < PANEL_ROWS; j++)
        sum[j] = t->add ? c[j] : 0;
    for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD)
        for (int j = 0; j < PANEL_ROWS; j++)
            for (int e = 0; e < PANEL_QUAD; e++)
                sum[j] += q[j * PANEL_QUAD + e] * x[e];
    memcpy(c, sum, sizeof sum);
}

static void tile_rows8(const LinearTile *t)
{
    for (int panel = 0; panel < t->panels; panel++)
        for (int r = 0; r < t->rows; r++)
            row_of(t, r, panel);
}

#define FIXED .of_rows = &linear_rows_portable, .fixed = true, .panels = 1, .arrange = arrange

const LinearIsa linear_i8_portable = {FIXED, .weight = CVN_I8, .rows = ROWS, .tile = tile_i8};
const LinearIsa linear_i4_portable = {FIXED, .weight = CVN_I4, .rows = ROWS, .tile = tile_i4};
const LinearIsa linear_blocks_portable = {FIXED, .blocks = true, .rows = LINEAR_ROWS_BLOCKS,
                                          .tile = tile_blocks};
const LinearIsa linear_rows8_portable = {.of_rows = &linear_rows_portable,
                                         .weight = CVN_I8,
                                         .x = CVN_I8,
                                         .rows = ROWS,
                                         .panels = 2,
                                         .tile = tile_rows8};
