/* How the elements of a tensor lie, row-major. */
#ifndef CVN_GRAPH_STRIDES_H
#define CVN_GRAPH_STRIDES_H

#include "caravan/graph.h"

/* Elements of dimensions `from` up to `to`. */
int64_t type_span(const cvn_type *type, int from, int to);
/* Elements between neighbours in each dimension, row-major. */
void type_strides(const cvn_type *type, int64_t stride[CVN_MAX_RANK]);

/* The index after `at` in row-major order over `rank` dimensions of these sizes; back to all zeros
   after the last. */
static inline void index_next(int rank, const int64_t *dim, int64_t *at)
{
    for (int d = rank - 1; d >= 0; d--) {
        if (++at[d] < dim[d])
            return;
        at[d] = 0;
    }
}

/* A tensor seen as [outer, n, inner], n being one of its dimensions: element (o, i, r) is at
   (o * n + i) * inner + r. */
typedef struct Lines {
    int64_t outer, n, inner;
} Lines;

Lines type_lines(const cvn_type *type, int64_t axis);

#endif
