/*
 * The algebra of mesh axes and their parts.
 *
 * An axis of size 8 can be seen as [2,4], [4,2] or [2,2,2], as a reshape sees a dimension. A
 * reference names one digit of such a view by what lies before it and its size:
 *
 *     x of size 8 seen as [2, 2, 2]:  {pre 1, size 2}  {pre 2, size 2}  {pre 4, size 2}
 *     the whole axis                  {pre 1, size 8}
 *     coordinate 6 = 1 1 0            digit of {2, 2}: (6 / (8 / 4)) % 2 = 1
 *
 * In general the digit of coordinate c is (c / (n / (pre * size))) % size. The meaning of a
 * reference is thus a partition of the devices into `size` equal classes, and everything below is
 * tested against that meaning by enumeration. A list of references that do not overlap is one digit
 * of a larger number, the first most significant: it says which shard of a dimension a device has.
 */
#ifndef CVN_SHARD_AXES_H
#define CVN_SHARD_AXES_H

#include "shard/mesh.h"

/* Invariant: size >= 2; pre * size divides the size of the axis. */
typedef struct AxisRef {
    int32_t axis; /* index in the mesh */
    int32_t pre;  /* product of the digits before it; 1 for a whole axis */
    int32_t size; /* of this digit */
} AxisRef;

/* Enough for lists without overlaps: every entry at least halves the MESH_MAX_DEVICES devices. */
enum { AXES_MAX = 16 };

/* Major to minor. Invariant: no two overlap, and neighbours that are one digit together are merged.
 */
typedef struct AxisList {
    int n;
    AxisRef ref[AXES_MAX]; /* [n] */
} AxisList;

bool axis_equal(AxisRef a, AxisRef b);
/* Both are digits of one view of their axis: {1,2} and {1,4} of 8 are, {1,2} and {1,3} of 6 are
   not. References to different axes are. */
bool axis_coexist(AxisRef a, AxisRef b);
/* Not known to be independent: a tensor may not use both. */
bool axis_overlaps(AxisRef a, AxisRef b);
/* The digit of b follows from that of a. */
bool axis_contains(AxisRef a, AxisRef b);
/* a is b, or its more significant part. */
bool axis_prefix_of(AxisRef a, AxisRef b);
/* Makes {1,2} {2,4} into {1,8}; false when b does not follow a. */
bool axis_merge(AxisRef a, AxisRef b, AxisRef *merged);
/* The first `size` of a, and the rest: {1,8} by 2 is {1,2} {2,4}. The rest has size 1 when there is
   none. size must divide a.size. */
AxisRef axis_first(AxisRef a, int32_t size);
AxisRef axis_rest(AxisRef a, int32_t size);
/* The largest prefix of a that does not overlap b; size 1 when there is none. */
AxisRef axis_prefix_without(AxisRef a, AxisRef b);

/* Appends, merging at the seam; an entry of size 1 is dropped. */
void axes_add(AxisList *list, AxisRef ref);
void axes_add_list(AxisList *list, const AxisList *more);
/* The number of shards. */
int32_t axes_size(const AxisList *list);
bool axes_equal(const AxisList *a, const AxisList *b);
/* Splitting by b refines splitting by a: a's shards are unions of neighbouring shards of b. */
bool axes_prefix_of(const AxisList *a, const AxisList *b);
/* The longest list that is a prefix of both. */
AxisList axes_common_prefix(const AxisList *a, const AxisList *b);
/* b without its prefix a. */
AxisList axes_without_prefix(const AxisList *b, const AxisList *a);
bool axes_overlap(const AxisList *list, AxisRef ref);
bool axes_contain(const AxisList *list, AxisRef ref);
AxisRef axes_prefix_without(AxisRef a, const AxisList *list);
/* Takes out of every entry what overlaps ref, keeping the rest of the entry where it is a digit. */
AxisList axes_remove(const AxisList *list, AxisRef ref);

/* Which shard a device at this place holds: the digits of the list as one number. */
int32_t axes_digit(const Mesh *mesh, const AxisList *list, int32_t place);

/* "data*model.2.4"; a part of an axis is written NAME.PRE.SIZE. "_" when empty. */
void axes_print(StrBuf *out, const Mesh *mesh, const AxisList *list);
void axis_name(const Mesh *mesh, AxisRef ref, char *name, size_t size);
enum { AXIS_NAME_SIZE = MESH_MAX_NAME + 16 };
/* Reads what axis_name writes; CVN_EINVAL when the mesh has no such axis or part. A whole axis of
   size 1 gives size 1. */
int axis_parse(const Mesh *mesh, const char *name, AxisRef *ref, cvn_err *err);

#endif
