/*
 * Products with weights in bf16 on AMX tiles, and for what does not fill tiles in AVX-512, with the same bits
 * (avx512/linear_as_tiles.c).
 *
 *     tiles 0 1    sums of rows  0-15 with two panels
 *           2 3    sums of rows 16-31
 *           4 5    x, 16 rows of 32 neighbours in k, as laid out
 *           6 7    16 units of each panel, as they lie
 *
 * 512 rows and 16 panels are taken at a time: a span of x (512 KiB) and the sums (512 KiB, twice that of SwiGLU) stay in
 * L2, two panels (32 KiB) in L1. Weights then come from memory once for 512 rows, 32 KiB in the 5 us that tiles take for
 * them: 6.5 GB/s for a core, fetched ahead. With 240 rows, which is what suits AVX-512, memory would need as long as
 * the tiles. A span of x comes from L3 once for 16 panels, 512 KiB in 40 us.
 */
#include "cpu/kernels/linear_float.h"

#include "cpu/kernels/amx/tiles.h"

#include <xmmintrin.h>

enum { ROWS = 32, STEP = TILE_ROWS /* units of a tile */ };

/* 16 or 32 rows with one or two panels. */
static void tile_rows(const FloatTile *t, bool below, bool second)
{
    const size_t row = PANEL_ROWS * sizeof(float), x_row = (size_t)t->x_stride * 2;
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
    for (int64_t u = 0; u < t->units; u += STEP, x += PANEL_BYTES, w += TILE_BYTES) {
        tile_load(6, w, TILE_ROW_BYTES);
        tile_load(4, x, x_row);
        tile_bf16(0, 4, 6);
        if (second) {
            tile_load(7, w + t->w_stride, TILE_ROW_BYTES);
            tile_bf16(1, 4, 7);
        }
        if (below) {
            tile_load(5, x + TILE_ROWS * x_row, x_row);
            tile_bf16(2, 5, 6);
            if (second)
                tile_bf16(3, 5, 7);
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

static void tile_two_panels(const FloatTile *t)
{
    bool whole = t->units % STEP == 0;
    int r = whole ? t->rows / TILE_ROWS * TILE_ROWS : 0;
    if (r)
        tile_rows(t, r == ROWS, t->panels == 2);
    for (; r < t->rows; r += TILES_ROWS) {
        FloatTile rest = *t;
        rest.rows = t->rows - r < TILES_ROWS ? t->rows - r : TILES_ROWS;
        rest.x = (const char *)t->x + r * t->x_stride * 2;
        rest.c = t->c + r * PANEL_ROWS;
        linear_rows_as_tiles(&rest);
    }
}

static void tile(const FloatTile *t)
{
    for (int panel = 0; panel < t->panels; panel += 2) {
        FloatTile two = *t;
        two.panels = t->panels - panel < 2 ? t->panels - panel : 2;
        two.w = t->w + panel * t->w_stride;
        two.c = t->c + panel * t->c_stride;
        tile_two_panels(&two);
    }
}

enum { FLUSH = 0x8040 /* denormal results and operands are zeros */ };
static _Thread_local unsigned control; /* as it was */

static float norm_scale(const LinearNorm *norm, int64_t row)
{
    return linear_avx512_bf16dot.norm_scale(norm, row);
}

static void norm_span(const LinearNorm *norm, int64_t row, int64_t k0, int64_t n, float scale,
                      void *out)
{
    linear_avx512_bf16dot.norm_span(norm, row, k0, n, scale, out);
}

static void write_rows(const LinearOut *out)
{
    linear_avx512_bf16dot.write(out);
}

static void enter(void)
{
    control = _mm_getcsr();
    _mm_setcsr(control | FLUSH);
    tile_enter();
}

static void leave(void)
{
    tile_leave();
    _mm_setcsr(control);
}

const FloatIsa linear_amx_bf16 = {.weight = CVN_BF16,
                                  .x = CVN_BF16,
                                  .rows = ROWS,
                                  .chunk = 512,
                                  .block = 16,
                                  .group = 2,
                                  .span = 256,
                                  .enter = enter,
                                  .leave = leave,
                                  .tile = tile,
                                  .norm_scale = norm_scale,
                                  .norm_span = norm_span,
                                  .write = write_rows};
