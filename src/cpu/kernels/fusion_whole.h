/*
 * Tile programs that are compiled whole: every value of a vector stays in a register from the operands to the results, so
 * that nothing is stored and loaded between steps, and square roots and divisions go on while memory is waited for.
 *
 * A program is known by its hash (tile_program.h), which says all but the operands' numbers and the constants' values. One
 * that is not known is taken step by step, with the same bits. It is worth it where a program is long and its tensors are
 * larger than the caches: an optimizer's step. tests/test_fusion_whole.c holds that these are known, and says their hashes
 * where they change.
 */
#ifndef CVN_CPU_KERNELS_FUSION_WHOLE_H
#define CVN_CPU_KERNELS_FUSION_WHOLE_H

#include "compile/kernel.h"
#include "compile/tile_program.h"

typedef enum WholeKind {
    WHOLE_ADAMW,         /* of f32 alone */
    WHOLE_ADAMW_ROUNDED, /* writes the weight in bf16, too */
    WHOLE_ADAMW_HALF,    /* and reads a gradient in bf16 */
    WHOLE_COUNT
} WholeKind;

/* What a program is known as, or WHOLE_COUNT. */
WholeKind whole_find(const TileProgram *program);

/* What an epilogue is done to: rows of sums, each `row` floats from the one before, which are elements [at, at + n) of the results, and
   so on, `ld` from row to row. Those of a further result of the root are `apart` floats behind. */
typedef struct EpilogueTile {
    const float *sum;
    int64_t row, apart, at, ld, rows, n;
} EpilogueTile;

typedef void Epilogue(const KernelArgs *args, const TileProgram *program, const EpilogueTile *tile);
Epilogue fusion_epilogue_portable, fusion_epilogue_avx2, fusion_epilogue_avx512,
    fusion_epilogue_avx512_bf16, fusion_epilogue_portable_same, fusion_epilogue_avx2_same,
    fusion_epilogue_avx512_same;

/* Elements [at, at + n), n <= TILE_ELEMENTS, of what is to be summed (fusion_impl.h). */
typedef void FusionPrologue(const KernelArgs *args, int64_t at, int64_t n, float *out);
FusionPrologue fusion_prologue_portable, fusion_prologue_avx2, fusion_prologue_avx512,
    fusion_prologue_avx512_bf16, fusion_prologue_portable_same, fusion_prologue_avx2_same,
    fusion_prologue_avx512_same;

/* A row of what a program makes along rows. */
typedef void FusionRow(const KernelArgs *args, const TileProgram *program, int64_t row, void *out);
FusionRow fusion_row_portable, fusion_row_avx2, fusion_row_avx512, fusion_row_avx512_bf16,
    fusion_row_portable_same, fusion_row_avx2_same, fusion_row_avx512_same;

#endif
