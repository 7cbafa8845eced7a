/*
 * Makes a graph smaller without changing what it computes: dead code, common subexpressions,
 * constant folding, identities of arithmetic, and the algebra of reshapes, transposes, slices and
 * their kin.
 *
 * Exact: the simplified graph gives the same bits as the one before, whatever the inputs (a NaN may
 * come out as another NaN). An identity that holds only for real numbers is not used; each rule
 * says why it is exact.
 *
 * A value with a marked spec keeps it: no rule looks through such a value, and what takes its place
 * carries the same spec.
 */
#ifndef CVN_GRAPH_SIMPLIFY_H
#define CVN_GRAPH_SIMPLIFY_H

#include "graph/graph.h"

/* Simplifies until nothing changes. *changed (may be NULL) says whether anything did. */
int graph_simplify(cvn_graph *g, bool *changed, cvn_err *err);

#endif
