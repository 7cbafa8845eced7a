/* How the elements of a tensor lie, row-major. */
#ifndef CVN_GRAPH_STRIDES_H
#define CVN_GRAPH_STRIDES_H

#include "caravan/graph.h"

/* Elements of dimensions `from` up to `to`. */
int64_t type_span(const cvn_type *type, int from, int to);
/* Elements between neighbours in each dimension, row-major. */
void type_strides(const cvn_type *type, int64_t stride[CVN_MAX_RANK]);

/* A tensor seen as [outer, n, inner], n being one of its dimensions: element (o, i, r) is at
   (o * n + i) * inner + r. */
typedef struct Lines {
    int64_t outer, n, inner;
} Lines;

Lines type_lines(const cvn_type *type, int64_t axis);

#endif
