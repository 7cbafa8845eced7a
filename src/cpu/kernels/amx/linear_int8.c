/*
 * Products of rows and weights of 8 bits on AMX tiles, in the blocks of linear_bf16.c: a span has twice the elements in
 * as many bytes. What fills no tiles is left to AVX-512: the integers are the same.
 */
#include "cpu/kernels/amx/linear_block.h"

enum { REST_ROWS = 12 };

/* By AVX-512, which takes rows of LINEAR_SPAN: out of longer ones, one span after the other. The first has all that the sums
   of x are for. */
static void in_short_spans(const LinearTile *t)
{
    static const int32_t none[REST_ROWS];
    const int64_t span_units = LINEAR_SPAN / (PANEL_BYTES / PANEL_ROWS);
    int8_t x[REST_ROWS * LINEAR_SPAN];
    if (t->x_stride == LINEAR_SPAN)
        linear_rows8_avx512_vnni.tile(t);
    for (int64_t u = 0; t->x_stride > LINEAR_SPAN && u < t->units; u += span_units) {
        LinearTile part = *t;
        for (int r = 0; r < t->rows; r++)
            memcpy(x + r * LINEAR_SPAN, (const int8_t *)t->x + r * t->x_stride + u * 4,
                   LINEAR_SPAN);
        part.x = x;
        part.q += u * PANEL_BYTES;
        part.units = t->units - u < span_units ? t->units - u : span_units;
        part.sum = u ? none : t->sum;
        part.add = t->add || u;
        linear_rows8_avx512_vnni.tile(&part);
    }
}

static const LinearIsa rest = {.rows = REST_ROWS, .tile = in_short_spans};

static void tile(const LinearTile *t)
{
    tile_panels(true, t, &rest);
}

const LinearIsa linear_rows8_amx = {
    BLOCK_MEMBERS,       .weight = CVN_I8,    .x = CVN_I8, .span = 2 * LINEAR_SPAN,
    .enter = tile_enter, .leave = tile_leave, .tile = tile};
