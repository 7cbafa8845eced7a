/*
 * Products with 4-bit weights on AMX tiles of 8-bit numbers. A span of a panel is widened once, into 8 or 16 KiB that
 * stay in L1, and then multiplied with all rows, up to 32 at a time:
 *
 *     tiles 0 1    sums of rows  0-15 with the high bytes, with the low bytes
 *           2 3    sums of rows 16-31
 *           4 5    x, high and low bytes of 16 rows, as arrange() of AVX-512 leaves them
 *           6      64 columns of the panel, widened
 *
 * A group has a scale of its own, so tiles are emptied after each: its integers are scaled and added in f32, in the
 * order of the groups. A group of 32 is half a tile, whose other half is zeros:
 *
 *     groups of 64 and more    [column / 64][16 units][16 rows][4]          a tile is 64 columns of one group
 *     groups of 32             [column / 32][16 units][16 rows][4]          units 0-7 or 8-15 are the group's
 *
 * Why not tiles of bf16, with weights multiplied by their scales: those round differently from the integers of
 * vpdpbusd that few rows take, and a row would change its bits with the size of its batch. The integers are the same
 * on both. In cycles, for 16 rows and 64 columns: vpdpbusd 256, two tiles of bf16 32, two of 8 bits 32 and about 50
 * more for the sums' way through memory (with groups of 32 twice both; of 128 the 50 only once for two). So these
 * tiles are three times as fast as vpdpbusd, and give away half of what tiles of bf16 would reach.
 */
#include "cpu/kernels/linear.h"

#include "cpu/kernels/amx/tiles.h"

#include "base/float16.h"

enum {
    TILE_COLUMNS = TILE_ROWS * PANEL_QUAD, /* 64 */
    PAIR_UNITS = 2 * PANEL_QUAD            /* columns of a unit of 4-bit weights */
};

/* A span of a panel, widened. */
typedef struct Widened {
    int8_t tile[2 * LINEAR_SPAN / TILE_COLUMNS][TILE_ROWS][PANEL_BYTES];
} Widened;

/* Of each byte the low four bits are one unit's, the high four the next one's. */
static void widen_unit(const uint8_t *q, int8_t *low, int8_t *high)
{
    for (int i = 0; i < PANEL_BYTES; i++) {
        low[i] = (int8_t)((q[i] & 15) ^ 8) - 8;
        high[i] = (int8_t)((q[i] >> 4) ^ 8) - 8;
    }
}

static void widen(const LinearTile *t, Widened *w)
{
    bool half = t->group * PAIR_UNITS < TILE_COLUMNS;
    for (int64_t u = 0; u < t->units; u++) {
        int64_t unit = 2 * u; /* of 8 bits */
        int64_t tile = half ? u / t->group : unit / TILE_ROWS;
        int8_t *to = w->tile[tile][unit % TILE_ROWS];
        widen_unit(t->q + u * PANEL_BYTES, to, to + PANEL_BYTES);
        if (half) /* the same place in the other half */
            memset(w->tile[tile][(unit + TILE_ROWS / 2) % TILE_ROWS], 0, 2 * PANEL_BYTES);
    }
}

/* y += the integers of a group times its scales, as AVX-512 does it. */
static void add_group(int32_t high[TILE_ROWS][16], int32_t low[TILE_ROWS][16],
                      const float scale[PANEL_ROWS], float y[TILE_ROWS][PANEL_ROWS])
{
    for (int r = 0; r < TILE_ROWS; r++)
        for (int j = 0; j < PANEL_ROWS; j++)
            y[r][j] = __builtin_fmaf((float)(high[r][j] * 256 + low[r][j]), scale[j], y[r][j]);
}

static void read_scales(const LinearTile *t, int64_t group, float scale[PANEL_ROWS])
{
    const float *f32 = (const float *)t->scale + group * PANEL_ROWS;
    const uint16_t *bf16 = (const uint16_t *)t->scale + group * PANEL_ROWS;
    for (int j = 0; j < PANEL_ROWS; j++)
        scale[j] = t->scale_dtype == CVN_F32 ? f32[j] : bf16_to_f32(bf16[j]);
}

/* Rows first to first + 15 or, with `below`, first + 31. */
static void rows_of(const LinearTile *t, const Widened *w, int first, bool below)
{
    int32_t sum[4][TILE_ROWS][16] __attribute__((aligned(64)));
    float y[2][TILE_ROWS][PANEL_ROWS] = {{{0}}}, scale[PANEL_ROWS];
    int64_t columns = t->group * PAIR_UNITS, groups = t->units / t->group;
    int64_t steps = columns < TILE_COLUMNS ? 1 : columns / TILE_COLUMNS;
    for (int64_t g = 0; g < groups; g++) {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
        for (int64_t s = g * steps; s < (g + 1) * steps; s++) {
            int64_t at = columns < TILE_COLUMNS ? s / 2 * TILE_COLUMNS : s * TILE_COLUMNS;
            const int8_t *x = t->x + first * LINEAR_ROW_BYTES + at;
            tile_load(6, w->tile[s], PANEL_BYTES);
            tile_load(4, x, LINEAR_ROW_BYTES);
            tile_s8(0, 4, 6);
            tile_load(5, x + LINEAR_SPAN, LINEAR_ROW_BYTES);
            tile_s8(1, 5, 6);
            if (below) {
                x += TILE_ROWS * LINEAR_ROW_BYTES;
                tile_load(4, x, LINEAR_ROW_BYTES);
                tile_s8(2, 4, 6);
                tile_load(5, x + LINEAR_SPAN, LINEAR_ROW_BYTES);
                tile_s8(3, 5, 6);
            }
        }
        tile_store(0, sum[0], TILE_ROW_BYTES);
        tile_store(1, sum[1], TILE_ROW_BYTES);
        read_scales(t, g, scale);
        add_group(sum[0], sum[1], scale, y[0]);
        if (below) {
            tile_store(2, sum[2], TILE_ROW_BYTES);
            tile_store(3, sum[3], TILE_ROW_BYTES);
            add_group(sum[2], sum[3], scale, y[1]);
        }
    }
    for (int r = 0; r < (below ? 2 : 1) * TILE_ROWS; r++) {
        float *c = t->c + (first + r) * PANEL_ROWS, s = t->span[first + r].scale;
        for (int j = 0; j < PANEL_ROWS; j++)
            c[j] = __builtin_fmaf(y[r / TILE_ROWS][r % TILE_ROWS][j], s, t->add ? c[j] : 0.0f);
    }
}

void linear_amx_tile_i4(const LinearTile *t)
{
    const LinearIsa *vnni = &linear_avx512_vnni;
    Widened w __attribute__((aligned(64)));
    int r = 0;
    if (t->rows >= TILE_ROWS)
        widen(t, &w);
    for (; t->rows - r >= TILE_ROWS; r += t->rows - r >= 2 * TILE_ROWS ? 2 * TILE_ROWS : TILE_ROWS)
        rows_of(t, &w, r, t->rows - r >= 2 * TILE_ROWS);
    for (; r < t->rows; r += vnni->rows_i4) {
        LinearTile rest = *t;
        rest.rows = t->rows - r < vnni->rows_i4 ? t->rows - r : vnni->rows_i4;
        rest.x += r * LINEAR_ROW_BYTES;
        rest.span += r;
        rest.c += r * PANEL_ROWS;
        vnni->tile_i4(&rest);
    }
}
