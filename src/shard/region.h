/*
 * Parts of a tensor that are boxes: what a device holds of it, what a file does.
 *
 *     whole f32[4,6]      region first 0,2 count 4,2         as it lies in its shard f32[4,3], padded
 *     . . A B . .                                         A B 0
 *     . . C D . .                                         C D 0  ...
 *
 * A region of one array and the same region of another
 * consist of runs of elements that lie side by side in both;
 * trailing dimensions that are whole in both make the runs longer.
 */
#ifndef CVN_SHARD_REGION_H
#define CVN_SHARD_REGION_H

#include "shard/spec.h"

/* Elements first[d] … first[d] + count[d] - 1 of each dimension of a whole tensor. */
typedef struct Region {
    int rank;
    int64_t first[CVN_MAX_RANK], count[CVN_MAX_RANK]; /* [rank] */
} Region;

/* An array that holds a region, row-major, from its first element on. */
typedef struct RegionArray {
    Region region;
    int64_t dim[CVN_MAX_RANK]; /* [rank] of the array, at least region.count: more is padding */
} RegionArray;

Region region_whole(const cvn_type *type);
RegionArray region_packed(const Region *region);
int64_t region_elements(const Region *region);
bool region_same(const Region *a, const Region *b);
/* False when they have no element in common. */
bool region_intersect(const Region *a, const Region *b, Region *common);

/* What a device holds, without padding, and the shard in which it lies. */
RegionArray region_of_shard(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                            int32_t device);

/* Goes through a region in runs:  region_walk(&w, &region,
   &a, &b);  while (region_next(&w)) … w.a, w.b, w.n */
typedef struct RegionWalk {
    int64_t a, b, n; /* elements a … a + n - 1 of the one array are b … b + n - 1 of the other */
    int64_t left;    /* runs still to come */
    int outer;       /* dimensions that are counted; the others make up a run */
    Region region;
    RegionArray array[2];
    int64_t at[CVN_MAX_RANK]; /* of the next run, from the region's first */
} RegionWalk;

/* Both arrays hold the region. */
void region_walk(RegionWalk *walk, const Region *region, const RegionArray *a,
                 const RegionArray *b);
bool region_next(RegionWalk *walk);

/* Through a region of a tensor that lies whole (a), and that itself is packed (b):

       for (RegionWalk w = region_of(&region, &type); region_next(&w);)
           … */
RegionWalk region_of(const Region *region, const cvn_type *type);
/* Copies it. */
void region_cut(const Region *region, const cvn_type *type, const void *whole, void *out);

/* Copies what both have from one array to the other. */
void region_copy(const RegionArray *from, const void *source, const RegionArray *to, void *target,
                 cvn_dtype dtype);

#endif
