/*
 * Products with 8-bit weights on AMX tiles. One step multiplies up to 32 rows of x, in their two bytes,
 * with the 16 rows of a panel over 64 columns:
 *
 *     tiles 0 1    sums of rows  0-15 with the high bytes, with the low bytes
 *           2 3    sums of rows 16-31
 *           4 5    x, high and low bytes of 16 rows, as arrange() of AVX-512 leaves them
 *           6      16 units of a panel, as they lie
 *
 * The sums are the integers that vpdpbusd makes, so that a row has the same bits here and there: what
 * does not fill tiles is left to that.
 */
#include "cpu/kernels/linear.h"

#include "cpu/kernels/amx/tiles.h"

enum { ROWS_I8 = 32, STEP_UNITS = TILE_ROWS };

/* 16 rows out of their sums, rounded as AVX-512 rounds them. */
static void add_rows(const LinearTile *t, int first, int32_t high[TILE_ROWS][16],
                     int32_t low[TILE_ROWS][16])
{
    for (int r = 0; r < TILE_ROWS; r++) {
        float *c = t->c + (first + r) * PANEL_ROWS, scale = t->span[first + r].scale;
        for (int j = 0; j < PANEL_ROWS; j++) {
            float sum = (float)(high[r][j] * 256 + low[r][j]);
            c[j] = __builtin_fmaf(sum, scale, t->add ? c[j] : 0.0f);
        }
    }
}

static void tiles_32(const LinearTile *t)
{
    int32_t sum[4][TILE_ROWS][16] __attribute__((aligned(64)));
    const int8_t *x = t->x, *below = t->x + TILE_ROWS * LINEAR_ROW_BYTES;
    tile_zero(0);
    tile_zero(1);
    tile_zero(2);
    tile_zero(3);
    for (int64_t u = 0; u < t->units; u += STEP_UNITS) {
        int64_t at = u * PANEL_QUAD;
        tile_load(6, t->q + u * PANEL_BYTES, PANEL_BYTES);
        tile_load(4, x + at, LINEAR_ROW_BYTES);
        tile_s8(0, 4, 6);
        tile_load(5, x + at + LINEAR_SPAN, LINEAR_ROW_BYTES);
        tile_s8(1, 5, 6);
        tile_load(4, below + at, LINEAR_ROW_BYTES);
        tile_s8(2, 4, 6);
        tile_load(5, below + at + LINEAR_SPAN, LINEAR_ROW_BYTES);
        tile_s8(3, 5, 6);
    }
    tile_store(0, sum[0], TILE_ROW_BYTES);
    tile_store(1, sum[1], TILE_ROW_BYTES);
    tile_store(2, sum[2], TILE_ROW_BYTES);
    tile_store(3, sum[3], TILE_ROW_BYTES);
    add_rows(t, 0, sum[0], sum[1]);
    add_rows(t, TILE_ROWS, sum[2], sum[3]);
}

static void tiles_16(const LinearTile *t)
{
    int32_t sum[2][TILE_ROWS][16] __attribute__((aligned(64)));
    tile_zero(0);
    tile_zero(1);
    for (int64_t u = 0; u < t->units; u += STEP_UNITS) {
        const int8_t *x = t->x + u * PANEL_QUAD;
        tile_load(6, t->q + u * PANEL_BYTES, PANEL_BYTES);
        tile_load(4, x, LINEAR_ROW_BYTES);
        tile_s8(0, 4, 6);
        tile_load(5, x + LINEAR_SPAN, LINEAR_ROW_BYTES);
        tile_s8(1, 5, 6);
    }
    tile_store(0, sum[0], TILE_ROW_BYTES);
    tile_store(1, sum[1], TILE_ROW_BYTES);
    add_rows(t, 0, sum[0], sum[1]);
}

/* The same tile from row r on. */
static LinearTile rows_from(const LinearTile *t, int r, int rows)
{
    LinearTile rest = *t;
    rest.rows = rows;
    rest.x += r * LINEAR_ROW_BYTES;
    rest.span += r;
    rest.c += r * PANEL_ROWS;
    return rest;
}

static void tile_i8(const LinearTile *t)
{
    const LinearIsa *vnni = &linear_avx512_vnni;
    bool whole = t->units % STEP_UNITS == 0;
    int r = whole && t->rows == ROWS_I8 ? ROWS_I8 : whole && t->rows >= TILE_ROWS ? TILE_ROWS : 0;
    if (r == ROWS_I8)
        tiles_32(t);
    else if (r)
        tiles_16(t);
    for (; r < t->rows; r += vnni->rows_i8) {
        int rows = t->rows - r < vnni->rows_i8 ? t->rows - r : vnni->rows_i8;
        LinearTile rest = rows_from(t, r, rows);
        vnni->tile_i8(&rest);
    }
}

static void quantize_row(cvn_dtype dtype, const void *x, int64_t at, int64_t n, int64_t group,
                         int8_t *out, LinearSpan *span)
{
    linear_avx512_vnni.quantize(dtype, x, at, n, group, out, span);
}

static float norm_scale(const LinearNorm *norm, int64_t row)
{
    return linear_avx512_vnni.norm_scale(norm, row);
}

static void norm_span(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                      void *out)
{
    linear_avx512_vnni.norm_span(norm, row, k0, n, scale, out);
}

static void write_rows(const LinearOut *out)
{
    linear_avx512_vnni.write(out);
}

const LinearIsa linear_amx_int8 = {
    .rows_i8 = ROWS_I8,
    .rows_i4 = LINEAR_CHUNK, /* for which a panel is widened once */
    .enter = tile_enter,
    .leave = tile_leave,
    .quantize = quantize_row,
    .tile_i8 = tile_i8,
    .tile_i4 = linear_amx_tile_i4,
    .norm_scale = norm_scale,
    .norm_span = norm_span,
    .write = write_rows,
};
