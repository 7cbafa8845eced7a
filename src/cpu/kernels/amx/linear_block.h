/*
 * Blocks of products with weights in panels on AMX tiles, in bf16 or of rows and weights of 8 bits:
 *
 *     tiles 0 1    sums of rows  0-15 with two panels
 *           2 3    sums of rows 16-31
 *           4 5    x, 16 rows of 64 bytes, as laid out
 *           6 7    16 units of each panel, as they lie
 *
 * What is far from filling 16 rows, or 16 units, is left to AVX-512. In all of this `eight` is a constant: of 8 bits.
 */
#ifndef CVN_CPU_KERNELS_AMX_LINEAR_BLOCK_H
#define CVN_CPU_KERNELS_AMX_LINEAR_BLOCK_H

#include "cpu/kernels/linear_tile.h"

#include "cpu/kernels/amx/tiles.h"

enum { BLOCK_ROWS = 2 * TILE_ROWS, BLOCK_UNITS = TILE_ROWS };

/* Of a LinearIsa of these blocks: 512 rows and 32 panels are taken at a time. */
#define BLOCK_MEMBERS                                                                              \
    .of_rows = &linear_rows_avx512_bf16, .rows = BLOCK_ROWS, .panels = 2, .asks = 65,              \
    .chunk = 512, .block = 32, .turned = true

/* tile_load or, of what comes past what is to stay in L1, tile_stream. */
#define LOAD(t, p, stride)                                                                         \
    do {                                                                                           \
        if (past)                                                                                  \
            tile_stream(t, p, stride);                                                             \
        else                                                                                       \
            tile_load(t, p, stride);                                                               \
    } while (0)
#define MULTIPLY(c, a, b)                                                                          \
    do {                                                                                           \
        if (eight)                                                                                 \
            tile_s8(c, a, b);                                                                      \
        else                                                                                       \
            tile_bf16(c, a, b);                                                                    \
    } while (0)

/* Asks for the place of sums, beside step i. */
static inline __attribute__((always_inline)) void ask_for_sums(const LinearTile *t, int64_t i)
{
    const char *at = (const char *)t->next + i * 2 * PANEL_BYTES;
    const size_t panel = (size_t)t->c_stride * sizeof(float);
    __builtin_prefetch(at, 1, 3);
    __builtin_prefetch(at + PANEL_BYTES, 1, 3);
    __builtin_prefetch(at + panel, 1, 3);
    __builtin_prefetch(at + panel + PANEL_BYTES, 1, 3);
}

/* 16 or 32 rows with one or two panels; below_bytes: from x of 16 rows to that of the next; past: x comes past the panels, and other things are asked
   for meanwhile. */
static inline __attribute__((always_inline)) void tile_block(const bool eight, const bool past,
                                                             const LinearTile *t,
                                                             size_t below_bytes, bool below,
                                                             bool second)
{
    const size_t row = PANEL_ROWS * sizeof(float);
    const char *x = t->x, *w = (const char *)t->q;
    tiles_zero();
    if (t->add)
        tiles_of_sums(tile_load, t->c, row, t->c_stride, TILE_ROWS * PANEL_ROWS, second, below);
    for (int64_t i = 0, n = t->units / BLOCK_UNITS; i < n; i++, x += TILE_BYTES, w += TILE_BYTES) {
        tile_load(6, w, TILE_ROW_BYTES);
        LOAD(4, x, TILE_ROW_BYTES);
        MULTIPLY(0, 4, 6);
        if (second) {
            tile_load(7, w + t->q_stride, TILE_ROW_BYTES);
            MULTIPLY(1, 4, 7);
        }
        if (below) {
            LOAD(5, x + below_bytes, TILE_ROW_BYTES);
            MULTIPLY(2, 5, 6);
            if (second)
                MULTIPLY(3, 5, 7);
        }
        tile_awake(i, 4);
        if (past) {
            linear_ask(t->beside, i);
            linear_ask_rows(t->beside, i);
            ask_for_sums(t, i);
        }
    }
    tiles_of_sums(tile_store, t->c, row, t->c_stride, TILE_ROWS * PANEL_ROWS, second, below);
}

/* Rows [r, r + rows) of a tile, of which one of x is so many bytes. */
static inline LinearTile rows_from(const LinearTile *t, int r, int rows, int64_t x_row)
{
    LinearTile part = *t;
    part.rows = rows;
    part.x = (const char *)t->x + r * x_row;
    part.span = t->span ? t->span + r : NULL;
    part.sum = t->sum ? t->sum + r : NULL;
    part.c = t->c + r * PANEL_ROWS;
    return part;
}

/* A step of 16 rows of fixed point: their high and low bytes of 64 columns, times one or two panels, of which the second is
   there unless it is NULL; as in linear.c beside this. */
static inline __attribute__((always_inline)) void fixed_step(const LinearTile *t, const int8_t *x,
                                                             const void *first, const void *second,
                                                             int64_t step)
{
    tile_load(6, first, PANEL_BYTES);
    tile_load(4, x, LINEAR_ROW_BYTES);
    tile_s8(0, 4, 6);
    tile_load(5, x + LINEAR_SPAN, LINEAR_ROW_BYTES);
    tile_s8(1, 5, 6);
    if (second) {
        tile_load(7, second, PANEL_BYTES);
        tile_s8(2, 4, 7);
        tile_s8(3, 5, 7);
    }
    if (t->beside) {
        linear_ask(t->beside, step);
        linear_ask_rows(t->beside, step);
    }
}

/* Those sums: of the high bytes and of the low ones of each panel. */
typedef struct FixedSums {
    int32_t of[4][TILE_ROWS][PANEL_ROWS];
} FixedSums;

static inline __attribute__((always_inline)) void store_fixed(FixedSums *sum, bool second)
{
    tile_store(0, sum->of[0], TILE_ROW_BYTES);
    tile_store(1, sum->of[1], TILE_ROW_BYTES);
    if (second) {
        tile_store(2, sum->of[2], TILE_ROW_BYTES);
        tile_store(3, sum->of[3], TILE_ROW_BYTES);
    }
    tile_fence();
}

/* Rows from r on, which fill no tile, as another instruction set takes them. */
static inline void rest_of(const LinearIsa *isa, const LinearTile *t, int r, int64_t x_row)
{
    for (; r < t->rows; r += isa->rows) {
        LinearTile rest = rows_from(t, r, t->rows - r < isa->rows ? t->rows - r : isa->rows, x_row);
        isa->tile(&rest);
    }
}

/* All panels of a tile, two at a time; `rest` takes what tiles do not. */
static inline __attribute__((always_inline)) void tile_panels(const bool eight, const LinearTile *t,
                                                              const LinearIsa *rest)
{
    const int64_t row = t->x_stride * (eight ? 1 : 2);
    for (int panel = 0; panel < t->panels; panel += 2) {
        LinearTile two = *t;
        two.panels = t->panels - panel < 2 ? t->panels - panel : 2;
        two.q = t->q + panel * t->q_stride;
        two.c = t->c + panel * t->c_stride;
        int whole = t->units % BLOCK_UNITS ? 0 : (int)linear_tiled_rows(t->rows);
        if (whole == BLOCK_ROWS && two.panels == 2 && t->beside)
            tile_block(eight, true, &two, (size_t)(TILE_ROWS * row), true, true);
        else if (whole)
            tile_block(eight, false, &two, (size_t)(TILE_ROWS * row), whole == BLOCK_ROWS,
                       two.panels == 2);
        rest_of(rest, &two, whole, row);
    }
}

#endif
