/* What one step of a plan does of a region beside its root. */
#ifndef CVN_COMPILE_FUSED_H
#define CVN_COMPILE_FUSED_H

#include "compile/kernel.h"

enum { FUSED_PROGRAMS = 3 };

/* What the kernel of a plan's operation does beside it: the rest of the region whose root it is (compile/region_plan.h). */
typedef struct Fused {
    const cvn_graph *body; /* of the region */
    /* All of a region without a root; the epilogue of a product or a norm, on operands behind its own; the prologue of a reduce, whose
       operands are then the program's. Or NULL. Of a linear [i] is the epilogue of its result i, or [0] of all of them together:
       then they are of one shape. */
    struct TileProgram *program[FUSED_PROGRAMS];
    bool together;
    /* [n_results] bit i: may be written over operand i; NULL where no program writes them */
    uint32_t *over;
    /* Of a linear: what makes its rows of those of the plan's operand 0, as a norm does, in which dtype; or NULL. */
    struct TileProgram *rows;
    cvn_dtype rows_dtype;
    /* Of a product: its result's dimensions are permuted; or empty. */
    Ints dims;
    /* Of a rope: bit 0, its operand, bit 1, its result is [batch, heads, seq, head_dim]. */
    unsigned transposed;
} Fused;

static inline const Fused *kernel_fused(const Op *op)
{
    static const Fused none;
    return op->fused ? op->fused : &none;
}

#endif
