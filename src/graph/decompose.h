/*
 * Replaces composites by the plain operations they stand for.
 *
 * A backend keeps the composites that it has a kernel for and asks for the others to be decomposed;
 * a graph printed for another compiler has all of them decomposed. What a composite means is said
 * in caravan/graph.h, and each decomposition computes exactly that, up to the order of float sums.
 */
#ifndef CVN_GRAPH_DECOMPOSE_H
#define CVN_GRAPH_DECOMPOSE_H

#include "graph/graph.h"

/* Decomposes every composite for which keep(op, context) is false; all of them when keep is NULL.
 *changed (may be NULL) says whether there were any. Specs and names of results are taken over. */
int graph_decompose(cvn_graph *g, bool (*keep)(const Op *op, void *context), void *context,
                    bool *changed, cvn_err *err);

#endif
