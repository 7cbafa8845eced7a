/*
 * A walk moves a box of elements: for each index, element `to + sum of index * to_stride` gets element
 * `from + sum of index * from_stride`. Neighbouring dimensions that lie as one on both sides are merged.
 *
 *     transpose f32[3,5] -> f32[5,3]:   size {5, 3}, from_stride {1, 5}, to_stride {3, 1}
 */
#ifndef CVN_CPU_KERNELS_WALK_H
#define CVN_CPU_KERNELS_WALK_H

#include "graph/strides.h"

typedef struct Walk {
    int n; /* dimensions */
    int64_t size[CVN_MAX_RANK];
    int64_t from_stride[CVN_MAX_RANK], to_stride[CVN_MAX_RANK]; /* elements */
    int64_t from, to;                                           /* first elements */
} Walk;

/* One element, for dimensions to be added to. (Nothing past n is read; a Walk of zeros is one, too, but takes longer.) */
static inline void walk_begin(Walk *w, int64_t from, int64_t to)
{
    w->n = 0;
    w->from = from;
    w->to = to;
}

/* Appends a dimension, inside those before it. */
void walk_add(Walk *w, int64_t size, int64_t from_stride, int64_t to_stride);

/* Cuts the walk to the part of one thread, along its longest dimension, in units of `grain` where that is the innermost;
   false if that is nothing. */
bool walk_share(Walk *w, int64_t grain, int thread, int n_threads);

/* Carries out a walk in which no size is 0; elements are `size` bytes. */
void walk_run(const Walk *w, size_t size, void *to, const void *from);

/* Steps through the indices of the first n dimensions, in row-major order from all zeros; false after the last. */
static inline bool walk_next(const Walk *w, int n, int64_t *at)
{
    for (int d = n - 1; d >= 0; d--) {
        if (++at[d] < w->size[d])
            return true;
        at[d] = 0;
    }
    return false;
}

/* How far the index is from the first element, by the strides of what is read or of what is written. */
static inline int64_t walk_offset(const int64_t *stride, int n, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < n; d++)
        offset += at[d] * stride[d];
    return offset;
}

#endif
