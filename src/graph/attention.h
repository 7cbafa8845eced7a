/* The operands of attention: q, k, v, start, length, and where k and v are of 8 bits their scales. */
#ifndef CVN_GRAPH_ATTENTION_H
#define CVN_GRAPH_ATTENTION_H

#include "graph/graph.h"

/* Which operand is the scale of k; that of v is the next. -1: k and v are floats. */
static inline int attention_scales(const Op *op)
{
    return op->kind == OP_ATTENTION && op->operand[1]->type.dtype == CVN_I8 ? op->n_operands - 2
                                                                            : -1;
}

#endif
