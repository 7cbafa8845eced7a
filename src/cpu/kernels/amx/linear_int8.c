/*
 * linear_int8 on AMX tiles. One step multiplies 48 rows of x with the 16 rows of a panel over 64 columns:
 *
 *     tiles 0 1 2    sums of rows 0-15, 16-31, 32-47
 *           4 5 6    x of these
 *           7        16 units of the panel, as they lie
 *
 * Fewer rows, and columns that make no whole step, are left to AVX-512: the integers are the same.
 */
#define VEC_BF16
#include "cpu/kernels/linear_int8.h"
#include "cpu/kernels/tile.h"
#include "graph/panels.h"

#include "cpu/kernels/amx/tiles.h"

enum { ROWS = 3 * TILE_ROWS, STEP_UNITS = TILE_ROWS };

static void tiles_48(const Int8Tile *t)
{
    const int8_t *x = t->x;
    int64_t below = TILE_ROWS * t->stride;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    for (int64_t u = 0; u < t->units; u += STEP_UNITS, x += TILE_ROW_BYTES) {
        tile_load(7, t->q + u * PANEL_BYTES, PANEL_BYTES);
        tile_load(4, x, t->stride);
        tile_s8(0, 4, 7);
        tile_load(5, x + below, t->stride);
        tile_s8(1, 5, 7);
        tile_load(6, x + 2 * below, t->stride);
        tile_s8(2, 6, 7);
    }
    tile_store(0, t->c, TILE_ROW_BYTES);
    tile_store(1, t->c + TILE_ROWS * PANEL_ROWS, TILE_ROW_BYTES);
    tile_store(2, t->c + 2 * TILE_ROWS * PANEL_ROWS, TILE_ROW_BYTES);
}

static void tiles_16(const Int8Tile *t)
{
    const int8_t *x = t->x;
    tile_zero(0);
    for (int64_t u = 0; u < t->units; u += STEP_UNITS, x += TILE_ROW_BYTES) {
        tile_load(7, t->q + u * PANEL_BYTES, PANEL_BYTES);
        tile_load(4, x, t->stride);
        tile_s8(0, 4, 7);
    }
    tile_store(0, t->c, TILE_ROW_BYTES);
}

static int32_t sum_of(const int8_t *x, int64_t n)
{
    return linear_int8_avx512.sum(x, n);
}

/* The same tile from row r on. */
static Int8Tile rows_from(const Int8Tile *t, int r, int rows)
{
    Int8Tile rest = *t;
    rest.rows = rows;
    rest.x += r * t->stride;
    rest.sum += r;
    rest.c += r * PANEL_ROWS;
    return rest;
}

static void tile(const Int8Tile *t)
{
    const Int8Isa *vnni = &linear_int8_avx512;
    int r = 0;
    bool whole = t->units % STEP_UNITS == 0;
    if (whole && t->rows == ROWS) {
        tiles_48(t);
        return;
    }
    for (; whole && r + TILE_ROWS <= t->rows; r += TILE_ROWS) {
        Int8Tile rest = rows_from(t, r, TILE_ROWS);
        tiles_16(&rest);
    }
    for (; r < t->rows; r += vnni->rows) {
        Int8Tile rest = rows_from(t, r, t->rows - r < vnni->rows ? t->rows - r : vnni->rows);
        vnni->tile(&rest);
    }
}

static void write_sums(const Int8Out *o)
{
    for (int r = 0; r < o->rows; r++)
        for (int v = 0; v < PANEL_ROWS; v += VN) {
            vi sum;
            memcpy(&sum, o->c + r * PANEL_ROWS + v, sizeof sum);
            vf y = __builtin_convertvector(sum, vf) * vf_load(o->scale + v) *
                   vf_splat(bf16_to_f32(o->row_scale[r]));
            if (o->dtype == CVN_BF16)
                vf_store_bf16((uint16_t *)o->out + r * o->stride + v, y);
            else
                vf_store((float *)o->out + r * o->stride + v, y);
        }
}

const Int8Isa linear_int8_amx = {.rows = ROWS,
                                 .chunk = 1280 << 10,
                                 .write = write_sums,
                                 .enter = tile_enter,
                                 .leave = tile_leave,
                                 .sum = sum_of,
                                 .tile = tile};
