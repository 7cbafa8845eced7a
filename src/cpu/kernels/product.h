/*
 * Blocks of C = A B of bf16, for operands and sums of any layout that is whole tiles of 16 rows of 64 bytes: what
 * attention and its gradient are made of (gemm.c and linear_bf16.c have loops of their own).
 *
 *     A  16 rows of 32 neighbours in k        B  16 pairs in k of 16 columns, 1 KiB in one piece       C  16 x 16 sums
 *
 * One product is up to 2 x 2 of those. amx/product.h runs it on tiles, avx512/product.h in vector registers.
 */
#ifndef CVN_CPU_KERNELS_PRODUCT_H
#define CVN_CPU_KERNELS_PRODUCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* All distances in bytes. */
typedef struct Product {
    const void *a;  /* the first tile of A */
    size_t a_row;   /* between its rows */
    size_t a_below; /* to the tile of the 16 rows below */
    size_t a_step;  /* to the next 32 of k */
    const void *b;  /* the first tile of B */
    size_t b_right; /* to the tile of the 16 columns beside */
    size_t b_step;  /* to the next 32 of k */
    int64_t steps;  /* of 32 of k */
    float *c;       /* sums */
    size_t c_row, c_right, c_below;
    bool below, right; /* whether there are rows below and columns beside */
    bool add;          /* to what c holds */
} Product;

#endif
