/*
 * Product (cpu/kernels/product.h) on the tiles of AMX:
 *
 *     tiles 0 1    sums of 16 rows with 16 columns, and with the 16 columns beside them
 *           2 3    sums of the 16 rows below
 *           4 5    A: 16 rows of 32 neighbours in k           6 7    B: 16 pairs in k of 16 columns
 *
 * With both rows and both columns, 4 loads serve 4 products.
 */
#ifndef CVN_CPU_KERNELS_AMX_PRODUCT_H
#define CVN_CPU_KERNELS_AMX_PRODUCT_H

#include "cpu/kernels/amx/tiles.h"
#include "cpu/kernels/product.h"

/* right, below: as in Product; constants where both are. */
static inline __attribute__((always_inline)) void product_steps(const Product *p, const bool right,
                                                                const bool below)
{
    const char *a = p->a, *b = p->b;
    for (int64_t k = 0; k < p->steps; k++, a += p->a_step, b += p->b_step) {
        tile_load(6, b, TILE_ROW_BYTES);
        tile_load(4, a, p->a_row);
        tile_bf16(0, 4, 6);
        if (right) {
            tile_load(7, b + p->b_right, TILE_ROW_BYTES);
            tile_bf16(1, 4, 7);
        }
        if (below) {
            tile_load(5, a + p->a_below, p->a_row);
            tile_bf16(2, 5, 6);
            if (right)
                tile_bf16(3, 5, 7);
        }
    }
}

static inline void product_run(const Product *p)
{
    char *c = (char *)p->c;
    tile_fence();
    tiles_zero();
    if (p->add)
        tiles_of_sums(tile_load, c, p->c_row, p->c_right, p->c_below, p->right, p->below);
    if (p->below && p->right)
        product_steps(p, true, true);
    else
        product_steps(p, p->right, p->below);
    tiles_of_sums(tile_store, c, p->c_row, p->c_right, p->c_below, p->right, p->below);
}

#endif
