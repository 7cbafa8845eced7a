/*
 * The rules of graph_simplify, as tables of functions by kind of operation.
 *
 * A rule looks at one operation, whose operands are up to date, and returns the value that takes
 * the place of its only result, of the same type: an operand, something behind an operand, or new
 * operations, which go before the one looked at. NULL where it does not apply. Every rule leaves
 * less to do: fewer operations, fewer elements, or an operation that costs less (a reshape, which
 * moves nothing, for a transpose), so applying them comes to an end.
 */
#ifndef CVN_GRAPH_SIMPLIFY_RULES_H
#define CVN_GRAPH_SIMPLIFY_RULES_H

#include "graph/graph.h"

typedef cvn_value *SimplifyRule(cvn_graph *g, const Op *op);

enum { RULES_PER_KIND = 6 };

/* NULL-terminated rows, tried in order. */
extern SimplifyRule *const simplify_math_rules[OP_COUNT][RULES_PER_KIND];  /* elementwise */
extern SimplifyRule *const simplify_shape_rules[OP_COUNT][RULES_PER_KIND]; /* the others */

/* For all elementwise operations: moves a broadcast behind them. In simplify_shape.c. */
cvn_value *simplify_broadcast_operands(cvn_graph *g, const Op *op);

/* The operation that makes v when it is of this kind and v has no marked spec; else NULL. */
static inline const Op *made_by(const cvn_value *v, OpKind kind)
{
    return v->def->kind == kind && !v->spec ? v->def : NULL;
}

#endif
