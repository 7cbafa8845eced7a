/*
 * Matrix products of bf16 on AMX tiles. One step multiplies 32 rows of A and 32 columns of B over 32
 * values of k: two tiles of each make four products, for which all four are loaded once.
 *
 *     tiles 0 1    sums of rows  0-15 with columns 0-15, 16-31        B panels of gemm.h are tiles
 *           2 3    sums of rows 16-31                                 as they lie; A panels keep
 *           4 5    A, rows 0-15, 16-31                                rows of 32 values (keep_rows)
 *           6 7    B, columns 0-15, 16-31
 *
 * On the processors this was designed for, a product of tiles takes 4.9 ns, and a load 2.6 ns from
 * L1, 6.2 from L2: with both operands in L2 loads are the limit (72% of peak), with one in L1 they
 * are not. So a panel of A (32 rows, kc = 256: 16 KiB) is what stays in L1, and B is streamed from L2
 * past it. Sums go to scratch once for each kc, in tiles that lie as one block, and leave from the last. What is in use at
 * a time, 256 KiB of A, 512 of sums, 128 of B and what is asked for ahead, fits into L2. bench/amx_model says what other
 * sizes cost.
 *
 * Few rows are left to the kernels of AVX-512, which read B where it lies.
 */
#define VEC_BF16
#include "cpu/kernels/gemm.h"

#include "cpu/kernels/amx/tiles.h"
#include "cpu/kernels/tile.h"

enum { STEP = 32 /* values of k in a row of a tile */, MR = 32, GROUP = 32 };

static void tile_product(int64_t k, const void *a_panel, const void *b_panels, size_t b_stride,
                         float *c, bool add)
{
    const size_t row = GROUP * sizeof(float), below = TILE_ROWS * GROUP;
    const char *a = a_panel, *b = b_panels;
    if (add) {
        tile_load(0, c, row);
        tile_load(1, c + 16, row);
        tile_load(2, c + below, row);
        tile_load(3, c + below + 16, row);
    } else {
        tile_zero(0);
        tile_zero(1);
        tile_zero(2);
        tile_zero(3);
    }
    for (int64_t i = 0; i < k; i += STEP / 2, a += 2 * TILE_BYTES, b += TILE_BYTES) {
        tile_load(4, a, TILE_ROW_BYTES);
        tile_stream(6, b, TILE_ROW_BYTES);
        tile_bf16(0, 4, 6);
        tile_stream(7, b + b_stride, TILE_ROW_BYTES);
        tile_bf16(1, 4, 7);
        tile_load(5, a + TILE_BYTES, TILE_ROW_BYTES);
        tile_bf16(2, 5, 6);
        tile_bf16(3, 5, 7);
    }
    tile_store(0, c, row);
    tile_store(1, c + 16, row);
    tile_store(2, c + below, row);
    tile_store(3, c + below + 16, row);
}

static void interleave_pairs(const void *const row[GEMM_PANEL], int64_t units, void *out)
{
    gemm_avx512_bf16dot.interleave(row, units, out);
}

static void pair_rows(const uint16_t *x, int64_t stride, int64_t units, uint32_t *out)
{
    gemm_avx512_bf16dot.pair(x, stride, units, out);
}

const GemmIsa gemm_amx_bf16 = {
    .name = "amx.bf16",
    .packed = CVN_BF16,
    .kpack = 2,
    .step = STEP,
    .keep_rows = true,
    .mr = MR,
    .panels = 2,
    .mc = 512,
    .nc = 256,
    .kc = 256,
    .enter = tile_enter,
    .leave = tile_leave,
    .tile = tile_product,
    .interleave = interleave_pairs,
    .pair = pair_rows,
    .round = tile_rows_to_bf16,
    .add = tile_add,
    .follow = fusion_follow_avx512,
    .squares = tile_add_squares,
};
