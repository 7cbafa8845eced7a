/*
 * Matrix products of bf16 on AMX tiles. One step multiplies 32 rows of A and 32 columns of B over 32
 * values of k: two tiles of each make four products, for which all four are loaded once.
 *
 *     tiles 0 1    sums of rows  0-15 with columns 0-15, 16-31
 *           2 3    sums of rows 16-31
 *           4 5    A, rows 0-15, 16-31
 *           6 7    B, columns 0-15, 16-31
 *
 * On two cores with 2.9 to 3.5 GHz a product of tiles takes 4.6 to 5.5 ns, and a load 2.2 from L1, 5.5 from L2, 34 from L3:
 * with one operand in L1 four products run at the peak. Here 32 columns of B stay there (kc = 512: 32 KiB), and A comes
 * past them from L2. Sums cost 80 ns and more for each 32 x 32 of them, whose products take 350 (docs/PERFORMANCE.md).
 *
 * Few rows are left to the kernels of AVX-512, which read B where it lies.
 */
#define VEC_BF16
#include "cpu/kernels/gemm.h"

#include "cpu/kernels/amx/tiles.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/transpose.h"

/* Asks for rows of what comes next, beside step i. */
static inline __attribute__((always_inline)) void ask(const GemmTiles *p, int64_t i, int64_t rows)
{
    const char *at = p->ask + (size_t)(i * rows) * p->ask_row;
    for (int64_t r = 0; r < rows; r++, at += p->ask_row)
        for (size_t j = 0; j < p->ask_bytes; j += 64)
            __builtin_prefetch(at + j, 1, 3);
}

/* Sums of 32 rows and 32 columns; rows of bytes. */
static void tiles_four(const GemmTiles *p, const char *a, const char *b, size_t panel,
                       const char *from, size_t from_row, char *to, size_t to_row)
{
    const int64_t steps = p->steps, rows = p->ask ? (2 * TILE_ROWS + steps - 1) / steps : 0;
    if (from)
        tiles_of_sums(tile_load, from, from_row, TILE_ROW_BYTES, TILE_ROWS * from_row, true, true);
    else
        tiles_zero();
    for (int64_t i = 0; i < steps; i++, a += TILE_BYTES, b += TILE_BYTES) {
        tile_stream(4, a, TILE_ROW_BYTES);
        tile_load(6, b, TILE_ROW_BYTES);
        tile_bf16(0, 4, 6);
        tile_load(7, b + panel, TILE_ROW_BYTES);
        tile_bf16(1, 4, 7);
        tile_stream(5, a + panel, TILE_ROW_BYTES);
        tile_bf16(2, 5, 6);
        tile_bf16(3, 5, 7);
        ask(p, i, rows);
        tile_awake(i, 4);
    }
    tiles_of_sums(tile_store, to, to_row, TILE_ROW_BYTES, TILE_ROWS * to_row, true, true);
}

/* One tile of sums. */
static void tiles_one(int64_t steps, const char *a, const char *b, const char *from,
                      size_t from_row, char *to, size_t to_row)
{
    tile_zero(0);
    if (from)
        tile_load(0, from, from_row);
    for (int64_t i = 0; i < steps; i++, a += TILE_BYTES, b += TILE_BYTES) {
        tile_load(4, a, TILE_ROW_BYTES);
        tile_load(6, b, TILE_ROW_BYTES);
        tile_bf16(0, 4, 6);
    }
    tile_store(0, to, to_row);
}

static void tile_products(const GemmTiles *p)
{
    _Static_assert(GEMM_TILE_PANELS == 2, "panels of B that are multiplied at a time");
    size_t from_row = (size_t)p->from_row * sizeof(float), panel = (size_t)p->steps * TILE_BYTES;
    size_t to_row = (size_t)p->to_row * sizeof(float);
    const char *a = p->a, *b = p->b, *from = (const char *)p->from;
    char *to = (char *)p->to;
    if (p->rows == 2 && p->columns == 2) {
        tiles_four(p, a, b, panel, from, from_row, to, to_row);
        return;
    }
    for (int i = 0; i < p->rows; i++)
        for (int j = 0; j < p->columns; j++) {
            const size_t down = (size_t)i * TILE_ROWS, right = (size_t)j * TILE_ROW_BYTES;
            tiles_one(p->steps, a + (size_t)i * panel, b + (size_t)j * panel,
                      from ? from + down * from_row + right : NULL, from_row,
                      to + down * to_row + right, to_row);
        }
}

const GemmIsa gemm_bf16_amx = {
    .packed = CVN_BF16,
    .kpack = 2,
    .mr = GEMM_PANEL,
    .panels = GEMM_TILE_PANELS,
    .mc = 512,
    .nc = 256,
    .kc = 512,
    .enter = tile_enter,
    .leave = tile_leave,
    .tiles = tile_products,
    .pack = {{gemm_tiles_copy, gemm_tiles_pair_turn}, {gemm_tiles_turn, gemm_tiles_pair}},
    .interleave = interleave_units,
    .pair = gemm_pair_rows,
    .round = tile_rows_to_bf16,
    .epilogue = fusion_epilogue_avx512_bf16,
    .squares = tile_add_squares,
    .source = CVN_BF16,
};
