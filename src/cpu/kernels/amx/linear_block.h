/*
 * Blocks of products with weights in panels on AMX tiles, in bf16 or of rows and weights of 8 bits:
 *
 *     tiles 0 1    sums of rows  0-15 with two panels
 *           2 3    sums of rows 16-31
 *           4 5    x, 16 rows of 64 bytes, as laid out
 *           6 7    16 units of each panel, as they lie
 *
 * What does not fill 16 rows or 16 units is left to AVX-512. In all of this `eight` is a constant: of 8 bits.
 */
#ifndef CVN_CPU_KERNELS_AMX_LINEAR_BLOCK_H
#define CVN_CPU_KERNELS_AMX_LINEAR_BLOCK_H

#include "cpu/kernels/linear_direct.h"

#include "cpu/kernels/amx/tiles.h"

enum { BLOCK_ROWS = 2 * TILE_ROWS, BLOCK_UNITS = TILE_ROWS };

/* The products of one or both panels with rows 0 to 15, whose x is in tile 4. */
static inline __attribute__((always_inline)) void products_above(const bool eight, bool second,
                                                                 const char *w_second)
{
    if (eight)
        tile_s8(0, 4, 6);
    else
        tile_bf16(0, 4, 6);
    if (second) {
        tile_load(7, w_second, TILE_ROW_BYTES);
        if (eight)
            tile_s8(1, 4, 7);
        else
            tile_bf16(1, 4, 7);
    }
}

/* And with rows 16 to 31, in tile 5. */
static inline __attribute__((always_inline)) void products_below(const bool eight, bool second)
{
    if (eight)
        tile_s8(2, 5, 6);
    else
        tile_bf16(2, 5, 6);
    if (second) {
        if (eight)
            tile_s8(3, 5, 7);
        else
            tile_bf16(3, 5, 7);
    }
}

/* 16 or 32 rows with one or two panels; x_row: bytes of a row of x. */
static inline __attribute__((always_inline)) void tile_block(const bool eight, const DirectTile *t,
                                                             size_t x_row, bool below, bool second)
{
    const size_t row = PANEL_ROWS * sizeof(float);
    float *c0 = t->c, *c1 = t->c + t->c_stride;
    float *c2 = c0 + TILE_ROWS * PANEL_ROWS, *c3 = c1 + TILE_ROWS * PANEL_ROWS;
    const char *x = t->x, *w = t->w;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    if (t->add) {
        tile_load(0, c0, row);
        if (second)
            tile_load(1, c1, row);
        if (below)
            tile_load(2, c2, row);
        if (below && second)
            tile_load(3, c3, row);
    }
    for (int64_t u = 0; u < t->units; u += BLOCK_UNITS, x += PANEL_BYTES, w += TILE_BYTES) {
        tile_load(6, w, TILE_ROW_BYTES);
        tile_load(4, x, x_row);
        products_above(eight, second, w + t->w_stride);
        if (below) {
            tile_load(5, x + TILE_ROWS * x_row, x_row);
            products_below(eight, second);
        }
    }
    tile_store(0, c0, row);
    if (second)
        tile_store(1, c1, row);
    if (below)
        tile_store(2, c2, row);
    if (below && second)
        tile_store(3, c3, row);
}

/* All panels of a tile, two at a time; `rest` takes from row r on what tiles do not. */
static inline __attribute__((always_inline)) void
tile_panels(const bool eight, const DirectTile *t, void (*rest)(const DirectTile *t, int r))
{
    const size_t x_row = (size_t)t->x_stride * (eight ? 1 : 2);
    for (int panel = 0; panel < t->panels; panel += 2) {
        DirectTile two = *t;
        two.panels = t->panels - panel < 2 ? t->panels - panel : 2;
        two.w = t->w + panel * t->w_stride;
        two.c = t->c + panel * t->c_stride;
        int whole = t->units % BLOCK_UNITS ? 0 : t->rows / TILE_ROWS * TILE_ROWS;
        if (whole)
            tile_block(eight, &two, x_row, whole == BLOCK_ROWS, two.panels == 2);
        if (whole < t->rows)
            rest(&two, whole);
    }
}

/* Rows [r, r + rows) of a tile. */
static inline DirectTile rows_from(const DirectTile *t, int r, int rows, int64_t x_row)
{
    DirectTile part = *t;
    part.rows = rows;
    part.x = (const char *)t->x + r * x_row;
    part.sum = t->sum ? t->sum + r : NULL;
    part.c = t->c + r * PANEL_ROWS;
    return part;
}

#endif
