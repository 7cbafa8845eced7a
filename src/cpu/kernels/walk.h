/*
 * A walk moves a box of elements: for each index, element `to + sum of index * to_stride` gets element
 * `from + sum of index * from_stride`. Neighbouring dimensions that lie as one on both sides are merged.
 *
 *     transpose f32[3,5] -> f32[5,3]:   size {5, 3}, from_stride {1, 5}, to_stride {3, 1}
 */
#ifndef CVN_CPU_KERNELS_WALK_H
#define CVN_CPU_KERNELS_WALK_H

#include "caravan/graph.h"

typedef struct Walk {
    int n; /* dimensions */
    int64_t size[CVN_MAX_RANK];
    int64_t from_stride[CVN_MAX_RANK], to_stride[CVN_MAX_RANK]; /* elements */
    int64_t from, to;                                           /* first elements */
} Walk;

/* Strides of a dense tensor, in elements. */
void walk_strides(const cvn_type *type, int64_t *stride);

/* Appends a dimension, inside those before it. */
void walk_add(Walk *w, int64_t size, int64_t from_stride, int64_t to_stride);

/* Cuts the walk to the part of one thread, along its longest dimension; false if that is nothing. */
bool walk_share(Walk *w, int thread, int n_threads);

/* Carries out a walk in which no size is 0; elements are `size` bytes. */
void walk_run(const Walk *w, size_t size, void *to, const void *from);

#endif
