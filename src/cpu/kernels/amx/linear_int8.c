/*
 * Products of rows and weights of 8 bits on AMX tiles, in the blocks of linear_bf16.c: a span has twice the elements in
 * as many bytes. What fills no tiles is left to AVX-512: the integers are the same.
 */
#include "cpu/kernels/amx/linear_block.h"

/* Rows of LINEAR_SPAN, as AVX-512 takes them, out of longer ones: one after the other. The first has all that the sums of x
   are for. */
static void in_short_spans(const DirectTile *t)
{
    enum { MOST = 16 };
    static const int32_t none[MOST];
    const int64_t span_units = LINEAR_SPAN / (PANEL_BYTES / PANEL_ROWS);
    int8_t x[MOST * LINEAR_SPAN];
    for (int64_t u = 0; u < t->units; u += span_units) {
        DirectTile part = *t;
        for (int r = 0; r < t->rows; r++)
            memcpy(x + r * LINEAR_SPAN, (const int8_t *)t->x + r * t->x_stride + u * 4,
                   LINEAR_SPAN);
        part.x = x;
        part.w += u * PANEL_BYTES;
        part.units = t->units - u < span_units ? t->units - u : span_units;
        part.sum = u ? none : t->sum;
        part.add = t->add || u;
        linear_avx512_rows8.tile(&part);
    }
}

static void rest_of(const DirectTile *t, int r)
{
    const int most = linear_avx512_rows8.rows;
    for (; r < t->rows; r += most) {
        int rows = t->rows - r < most ? t->rows - r : most;
        DirectTile rest = rows_from(t, r, rows, t->x_stride);
        if (t->x_stride == LINEAR_SPAN)
            linear_avx512_rows8.tile(&rest);
        else
            in_short_spans(&rest);
    }
}

static void tile(const DirectTile *t)
{
    tile_panels(true, t, rest_of);
}

const DirectIsa linear_amx_rows8 = {BLOCK_MEMBERS,           .rows_of = &linear_avx512_rows8,
                                    .weight = CVN_I8,        .x = CVN_I8,
                                    .span = 2 * LINEAR_SPAN, .enter = tile_enter,
                                    .leave = tile_leave,     .tile = tile};
