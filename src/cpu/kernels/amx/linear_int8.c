/*
 * linear_int8 on AMX tiles. One step multiplies 32 rows of x with the 16 rows of two panels over 64 columns:
 *
 *     tiles 0 1    sums of rows  0-15 with the panels
 *           2 3    sums of rows 16-31
 *           4 5    x of these
 *           6 7    16 units of each panel, as they lie
 *
 * Fewer rows, and columns that make no whole step, are left to AVX-512: the integers are the same.
 */
#define VEC_BF16
#include "cpu/kernels/linear_int8.h"
#include "cpu/kernels/tile.h"
#include "graph/panels.h"

#include "cpu/kernels/amx/tiles.h"

enum { ROWS = 2 * TILE_ROWS, STEP_UNITS = TILE_ROWS };

/* 16 or 32 rows with one or two panels. */
static void tile_rows(const Int8Tile *t, bool below, bool second)
{
    const int8_t *x = t->x, *q = t->q;
    int64_t down = TILE_ROWS * t->stride;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t u = 0; u < t->units; u += STEP_UNITS, x += TILE_ROW_BYTES, q += TILE_BYTES) {
        tile_load(6, q, PANEL_BYTES);
        tile_load(4, x, t->stride);
        tile_s8(0, 4, 6);
        if (second) {
            tile_load(7, q + t->q_stride, PANEL_BYTES);
            tile_s8(1, 4, 7);
        }
        if (below) {
            tile_load(5, x + down, t->stride);
            tile_s8(2, 5, 6);
            if (second)
                tile_s8(3, 5, 7);
        }
    }
    int32_t *c = t->c, *right = c + t->c_stride;
    tile_store(0, c, TILE_ROW_BYTES);
    if (second)
        tile_store(1, right, TILE_ROW_BYTES);
    if (below)
        tile_store(2, c + TILE_ROWS * PANEL_ROWS, TILE_ROW_BYTES);
    if (below && second)
        tile_store(3, right + TILE_ROWS * PANEL_ROWS, TILE_ROW_BYTES);
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
    int begin = t->units % STEP_UNITS ? 0 : t->rows / TILE_ROWS * TILE_ROWS;
    if (begin)
        tile_rows(t, begin == ROWS, t->panels == 2);
    for (int panel = 0; panel < t->panels; panel++)
        for (int r = begin; r < t->rows; r += vnni->rows) {
            Int8Tile rest = rows_from(t, r, t->rows - r < vnni->rows ? t->rows - r : vnni->rows);
            rest.q += panel * t->q_stride;
            rest.c += panel * t->c_stride;
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
                                 .panels = 2,
                                 .chunk = 1280 << 10,
                                 .write = write_sums,
                                 .enter = tile_enter,
                                 .leave = tile_leave,
                                 .sum = sum_of,
                                 .tile = tile};
