/* What dropout drops, as a function of places (ops/attention_plain.c). */
#ifndef CVN_GRAPH_DROPOUT_H
#define CVN_GRAPH_DROPOUT_H

#include "graph/graph.h"

enum { DROPOUT_HEAD_SHIFT = 20 }; /* sites are below 2^20, and heads below 2^12 */

/* Drops elements of x [batch, …] by the keys of its rows, u32 [batch, 2]; an element's place in its row, and its head << 20, are
   sums over dimensions of index * stride. */
cvn_value *dropout_places(cvn_graph *g, cvn_value *x, cvn_value *key, double rate, int64_t site,
                          const int64_t *place, const int64_t *head);

#endif
