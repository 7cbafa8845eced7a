/*
 * Parts of a tensor that are boxes: what a device holds of it, what a file does.
 *
 *     whole f32[4,6]      box first 0,2 count 4,2    as it lies in its shard f32[4,3], padded
 *     . . A B . .                                  A B 0
 *     . . C D . .                                  C D 0  ...
 *
 * A box of one array and the same box of another consist of runs of elements that lie side by side in both; trailing dimensions
 * that are whole in both make the runs longer.
 */
#ifndef CVN_SHARD_BOX_H
#define CVN_SHARD_BOX_H

#include "shard/spec.h"

/* Elements first[d] … first[d] + count[d] - 1 of each dimension of a whole tensor. */
typedef struct Box {
    int rank;
    int64_t first[CVN_MAX_RANK], count[CVN_MAX_RANK]; /* [rank] */
} Box;

/* An array that holds a box, row-major, from its first element on. */
typedef struct BoxArray {
    Box box;
    int64_t dim[CVN_MAX_RANK]; /* [rank] of the array, at least box.count: more is padding */
} BoxArray;

Box box_whole(const cvn_type *type);
BoxArray box_packed(const Box *box);
int64_t box_elements(const Box *box);
bool box_same(const Box *a, const Box *b);
/* What two boxes have in common; false when that is no element. */
bool box_intersect(const Box *a, const Box *b, Box *common);

/* What a device holds, without padding, and the shard in which it lies. */
BoxArray box_of_shard(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                      int32_t device);

/* Goes through a box in runs:

       box_walk(&w, &box, &a, &b);
       while (box_next(&w))
           … w.a, w.b, w.n */
typedef struct BoxWalk {
    int64_t a, b, n; /* elements a … a + n - 1 of the one array are b … b + n - 1 of the other */
    int64_t left;    /* runs still to come */
    int outer;       /* dimensions that are counted; the others make up a run */
    Box box;
    BoxArray array[2];
    int64_t at[CVN_MAX_RANK]; /* of the next run, from the box's first */
} BoxWalk;

/* Both arrays hold the box. */
void box_walk(BoxWalk *walk, const Box *box, const BoxArray *a, const BoxArray *b);
bool box_next(BoxWalk *walk);

/* Through a box of a tensor that lies whole (a), and that itself is packed (b):

       for (BoxWalk w = box_of(&box, &type); box_next(&w);)
           … */
BoxWalk box_of(const Box *box, const cvn_type *type);
/* Copies it. */
void box_cut(const Box *box, const cvn_type *type, const void *whole, void *out);

/* Copies what both have from one array to the other. */
void box_copy(const BoxArray *from, const void *source, const BoxArray *to, void *target,
              cvn_dtype dtype);

#endif
