/*
 * The composite `linear`, read: x times one to three weights in panels.
 *
 *     operands   x [kept …, summed …], then each weight (of quantized ones q and scale); in a plan then what stands around it
 *                (compile/fused.h)
 *     attributes contract: how many of x's dimensions are summed (the last ones); weights; int8: rows are brought to 8
 *                bits before they are multiplied, each by its largest element; with blocks each linear_step_columns of them
 *     results    one per weight, [kept …, the weight's rows …]; in a plan those of the epilogue, of these shapes
 *
 * With `blocks` each weight is one operand, panels of blocks of that kind (graph/blocks.h).
 *
 * A `grouped_linear` reads as a linear of one group: its operands are x, the weights of all groups, and the group of each slot.
 *
 * `linear_int8` reads as a linear of one weight whose rows are of 8 bits already: its operands are x, x's scales, the
 * weight. Like that of `dequantize`, this is in panels where `rows` says so, and else plain: q [rows …, columns …], scale
 * [rows …, groups].
 */
#ifndef CVN_GRAPH_LINEAR_H
#define CVN_GRAPH_LINEAR_H

#include "graph/blocks.h"
#include "graph/graph.h"
#include "graph/panels.h"

enum {
    LINEAR_WEIGHTS = 3,
    LINEAR_OPERANDS = 2 + 2 * LINEAR_WEIGHTS,
    LINEAR_INT8_MOST_K = 131072 /* whose sums of products of 8 bits fit 32 */
};

/* One weight of a linear or a dequantize. */
typedef struct LinearWeight {
    cvn_dtype dtype; /* i8 or i4, bf16 or f32; of blocks i8 */
    BlockKind blocks;
    cvn_dtype scale_dtype; /* f32 or bf16 */
    int64_t n, k;          /* rows and columns */
    int64_t panels, units; /* of q; of blocks chunks; 0: not in panels */
    int64_t groups;        /* scales of a row; 0: not quantized, or in blocks */
    size_t panel_bytes;    /* of q, from panel to panel */
} LinearWeight;

/* Operands of each weight of a linear: 2 where weights are quantized, else 1. */
static inline int linear_each(const Op *op)
{
    return 1 + (op->kind == OP_LINEAR_INT8 ||
                (!op->attr.blocks && panel_scaled(op->operand[1]->type.dtype)));
}

/* The operand that is weight i; its scale is the next. */
static inline int linear_operand(const Op *op, int i)
{
    return op->kind == OP_LINEAR_INT8 ? 2 : 1 + linear_each(op) * i;
}

static inline int linear_weights(const Op *op)
{
    return op->kind == OP_LINEAR_INT8 ? 1 : (int)op->attr.group_size;
}

/* Weight i of a linear. */
LinearWeight linear_weight(const Op *op, int i);

/* The weight of a dequantize. */
LinearWeight dequantize_weight(const Op *op);

/* Columns that share a step where rows are brought to 8 bits: of weights in blocks those of a chunk. */
static inline int64_t linear_step_columns(const LinearWeight *w)
{
    return w->blocks ? block_chunk(w->blocks, w->k).columns : w->k;
}

/* Rows of x: the product of the dimensions that are kept. */
int64_t linear_rows(const Op *op);

/* The operand behind the weights. */
static inline int linear_behind(const Op *op)
{
    return 1 + linear_each(op) * (int)op->attr.group_size;
}

#endif
