/* What one step of a plan does of a region beside its root, and how a back end is asked whether it does. */
#ifndef CVN_COMPILE_FUSED_H
#define CVN_COMPILE_FUSED_H

#include "compile/kernel.h"

/* What the kernel of a plan's operation does beside it: the rest of the region whose root it is (compile/region_plan.h). */
typedef struct Fused {
    const cvn_graph *body; /* of the region */
    /* All of a region without a root; the epilogue of a product, on operands behind its own; the prologue of a reduce, whose
       operands are then the program's. Or NULL. */
    struct TileProgram *program;
    /* Of a product: its result's dimensions are permuted; or empty. */
    Ints dims;
    /* Of a reduce: it sums the squares of what it reads. */
    bool squares;
    /* Of a scatter: operand 0 is a residual, to which the sums of the updates are added. */
    bool residual;
    /* Of a rope: bit 0, its operand, bit 1, its result is [batch, heads, seq, head_dim]. */
    unsigned transposed;
} Fused;

static inline const Fused *kernel_fused(const Op *op)
{
    static const Fused none;
    return op->fused ? op->fused : &none;
}

/* What a back end is asked to do in one go: a root with what stands beside it, which rounds as each operation by itself would.
   It accepts by looking at this, and at shapes and types. */
typedef struct Region {
    const Op *root;       /* of the body; NULL: it is elementwise */
    const Kernel *kernel; /* what would run the root alone */
    const Op *plan;       /* what would run the region, as Op.fused says */
    struct {
        bool convert;   /* of a half dtype, and widened */
        bool transpose; /* its dimensions are permuted: Fused.transposed */
        bool square;    /* of a reduce: Fused.squares */
        bool program;   /* it is made by Fused.program */
    } prologue;         /* to operand 0, as it is read */
    struct {
        bool convert;   /* rounded to its half dtype */
        bool transpose; /* its dimensions are permuted: Fused.dims or Fused.transposed */
        bool residual;  /* a further operand, the last, is added; of a scatter Fused.residual */
        bool program;   /* of a product: what Fused.program makes of the sums is written instead */
    } epilogue;         /* to result 0, as it is written */
    bool copy;          /* a further result is result 0 rounded to bf16 */
    /* A further result, f32, has the sums of squares down the columns, as `reduce` sums them: of the exact sums of a product,
       where result 0 is rounded; of a scatter with a residual from operand 3, such sums of the residual. */
    bool column_squares;
    bool forward; /* a gradient makes the results of what it is the gradient of, too */
} Region;

/* Kernel.accepts of kernels that do whatever stands beside roots of their kind. */
static inline bool kernel_accepts_all(const Region *region)
{
    return region->root;
}

#endif
