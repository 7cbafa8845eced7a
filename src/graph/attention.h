/* The operands of attention: q, k, v, start, length, and then the scales of k and v where these are
   of 8 bits, or the first key of each query where it is said; and of its gradient: q, k, v, start,
   length, dy, and the first keys. */
#ifndef CVN_GRAPH_ATTENTION_H
#define CVN_GRAPH_ATTENTION_H

#include "graph/graph.h"

/* Which operand is the scale of k; that of v is the next. -1: k and v are floats. */
static inline int attention_scales(const Op *op)
{
    return op->kind == OP_ATTENTION && op->operand[1]->type.dtype == CVN_I8 ? op->n_operands - 2
                                                                            : -1;
}

/* The first key that each query sees, i32 [batch, seq]; NULL: key 0. */
static inline cvn_value *attention_first(const Op *op)
{
    int at = op->kind == OP_ATTENTION ? 5 : 6;
    return op->n_operands == at + 1 ? op->operand[at] : NULL;
}

#endif
