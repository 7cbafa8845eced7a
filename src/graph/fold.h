/*
 * Constant folding: an operation whose operands are constants becomes a constant.
 *
 * A graph must stay small whatever its shapes, so nothing grows: a tensor that holds one value
 * everywhere (a splat) stays a splat through elementwise operations and through those that only
 * move elements, of any size; other results are computed only when they are small and no larger
 * than the constants that they are made of.
 */
#ifndef CVN_GRAPH_FOLD_H
#define CVN_GRAPH_FOLD_H

#include "graph/graph.h"

/* A constant that takes the place of op's only result, or NULL where there is none. New operations
   go to g's insertion point. Values with a marked spec are not looked into. */
cvn_value *fold_op(cvn_graph *g, const Op *op);

/* A constant of this type with a literal, whose data lie in g's arena and are shared. */
cvn_value *fold_constant(cvn_graph *g, const cvn_type *type, const Literal *literal);

/* The literal of a splat that may be looked into, or NULL. */
const Literal *fold_splat_of(const cvn_value *v);

#endif
