/*
 * Products with 8-bit weights on AMX tiles. One step multiplies 16 rows of x, in their two bytes, with the 16 rows of
 * two panels over 64 columns:
 *
 *     tiles 0 1    sums of a panel with the high bytes, with the low bytes
 *           2 3    sums of the panel beside it
 *           4 5    x, high and low bytes of 16 rows, as arrange() of AVX-512 leaves them
 *           6 7    16 units of each panel, as they lie
 *
 * so that 4 loads serve 4 products. A span of two panels, 16 KiB, stays in L1, and x comes past it from L2, 16 KiB for 16
 * rows; 512 rows are taken at a time, as in linear_bf16.c. The sums are the integers that vpdpbusd makes, so that
 * a row has the same bits here and there: what does not fill tiles is left to that.
 */
#include "cpu/kernels/amx/linear_block.h"

enum { ROWS_I8 = 32, STEP_UNITS = TILE_ROWS };

/* 16 rows of a panel out of their sums, rounded as AVX-512 rounds them. */
static void add_rows(const LinearTile *t, float *c, int32_t high[TILE_ROWS][16],
                     int32_t low[TILE_ROWS][16])
{
    const bool add = t->add;
    for (int r = 0; r < TILE_ROWS; r++, c += PANEL_ROWS) {
        __m512i sum = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high[r]), 8),
                                       _mm512_load_si512(low[r]));
        __m512 before = add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
        _mm512_storeu_ps(
            c, _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_set1_ps(t->span[r].scale), before));
    }
}

/* 16 rows with one or two panels; step: of all steps of a tile, the first. */
static void tiles_16(const LinearTile *t, int64_t step)
{
    FixedSums sum __attribute__((aligned(64)));
    const bool second = t->panels == 2;
    const int8_t *x = t->x;
    const uint8_t *q = t->q;
    tiles_zero();
    for (int64_t u = 0; u < t->units;
         u += STEP_UNITS, x += TILE_ROWS * PANEL_QUAD, q += TILE_BYTES, step++)
        fixed_step(t, x, q, second ? q + t->q_stride : NULL, step);
    store_fixed(&sum, second);
    add_rows(t, t->c, sum.of[0], sum.of[1]);
    if (second)
        add_rows(t, t->c + t->c_stride, sum.of[2], sum.of[3]);
}

static void tile_i8(const LinearTile *t)
{
    int r = 0;
    for (; t->units % STEP_UNITS == 0 && t->rows - r >= TILE_ROWS; r += TILE_ROWS) {
        LinearTile tile = rows_from(t, r, TILE_ROWS, LINEAR_ROW_BYTES);
        tiles_16(&tile, r / TILE_ROWS * (t->units / STEP_UNITS));
    }
    rest_of(&linear_i8_avx512_vnni, t, r, LINEAR_ROW_BYTES);
}

#define MEMBERS                                                                                    \
    .of_rows = &linear_rows_avx512_bf16, .fixed = true, .panels = 2, .asks = 1,                    \
    .chunk = LINEAR_WIDE_CHUNK, .block = 16, .enter = tile_enter, .leave = tile_leave,             \
    .arrange = linear_avx512_arrange

const LinearIsa linear_i8_amx = {MEMBERS, .weight = CVN_I8, .rows = ROWS_I8, .tile = tile_i8};
/* A panel is widened once for so many rows. */
const LinearIsa linear_i4_amx = {MEMBERS, .weight = CVN_I4, .least_group = 32,
                                 .rows = LINEAR_WIDE_CHUNK, .tile = linear_amx_tile_i4};
const LinearIsa linear_blocks_amx = {MEMBERS,
                                     .blocks = true,
                                     .rows = LINEAR_WIDE_CHUNK,
                                     .turned = true,
                                     .turn = linear_amx_arrange_blocks,
                                     .tile = linear_amx_tile_blocks};
