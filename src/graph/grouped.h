/* What is read of products by group: grouped_dot, grouped_outer, grouped_linear (graph/ops/grouped.c says what they are). */
#ifndef CVN_GRAPH_GROUPED_H
#define CVN_GRAPH_GROUPED_H

#include "graph/linear.h"

#include <math.h>

static inline bool is_grouped(const Op *op)
{
    return op->kind == OP_GROUPED_DOT || op->kind == OP_GROUPED_OUTER ||
           op->kind == OP_GROUPED_LINEAR;
}

/* The operand that says the groups, i32 [lead …, slots]: behind x and the weights. */
static inline int grouped_operand(const Op *op)
{
    return op->kind == OP_GROUPED_LINEAR ? linear_behind(op) : 2;
}

static inline const cvn_type *grouped_groups(const Op *op)
{
    return &op->operand[grouped_operand(op)]->type;
}

/* Whether operand i has a row for each slot. */
static inline bool grouped_has_slots(const Op *op, int i)
{
    return op->operand[i]->type.rank == grouped_groups(op)->rank + 1;
}

/* The part of the groups that some row is of, where all are as likely: with t tokens of k slots, whose groups differ, of n groups
   1 - (1 - k / n)^t. That of the weights is read. */
static inline double grouped_active(const Op *op, int64_t groups)
{
    const cvn_type *g = grouped_groups(op);
    const double slots = (double)g->dim[g->rank - 1], n = (double)groups;
    const double tokens = slots > 0 ? (double)cvn_type_elements(g) / slots : 0;
    return slots >= n ? (tokens > 0) : 1 - pow(1 - slots / n, tokens);
}

#endif
