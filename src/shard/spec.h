/*
 * How one tensor lies on a mesh, as the passes of this folder see it.
 *
 *     mesh data=4,model=2     f32[6,8]<data,model>
 *
 * Dimension 0 is cut into 4 shards of ceil(6 / 4) = 2 rows: rows 0-1, 2-3, 4-5 and none; dimension
 * 1 into 2 shards of 4 columns. Which shard a device holds is the digit of the dimension's axes
 * (axes.h). Devices that differ only in axes that no dimension names hold the same elements.
 *
 * A dimension is open when propagation may split it further. Dimensions of a value that the user
 * marked are closed: the mark is all there is to say.
 */
#ifndef CVN_SHARD_SPEC_H
#define CVN_SHARD_SPEC_H

#include "caravan/graph.h"
#include "shard/axes.h"

typedef struct DimSharding {
    AxisList axes; /* that split the dimension, major to minor */
    bool closed;   /* propagation adds no more */
} DimSharding;

/* Invariant (sharding_check): no two references overlap in all of dim, replicated and unreduced. */
typedef struct Sharding {
    int rank;
    DimSharding dim[CVN_MAX_RANK]; /* [rank] */
    AxisList replicated;           /* axes that may not be used, whatever propagation finds */
    AxisList unreduced;            /* the value is a partial result over them ... */
    cvn_reduce how;                /* ... to be combined so */
} Sharding;

/* Not split, every dimension open. */
Sharding sharding_open(int rank);

/* Reads a user's mark: all dimensions closed. Axes of size 1 are dropped. CVN_EINVAL for an axis
   that the mesh has not or that is used twice; CVN_ESHAPE for a wrong rank. `name` is what messages
   call the value. */
int sharding_from_spec(const Mesh *mesh, const cvn_spec *spec, int rank, const char *name,
                       Sharding *sharding, cvn_err *err);
/* The same as a spec whose names live in the arena. CVN_EUNSUPPORTED when a dimension has more than
   CVN_MAX_SPEC_AXES references. */
int sharding_to_spec(const Mesh *mesh, const Sharding *sharding, Arena *arena, cvn_spec *spec,
                     cvn_err *err);

/* The invariant above, and that every reference is one of the mesh. */
int sharding_check(const Mesh *mesh, const Sharding *sharding, const char *name, cvn_err *err);

/* Every axis that the tensor uses, in dimensions, replicated or unreduced. */
bool sharding_uses(const Sharding *sharding, AxisRef ref);

/* "<data*model,_>", as in the text form; "+unreduced(model)" behind it where there is such a thing.
 */
void sharding_print(StrBuf *out, const Mesh *mesh, const Sharding *sharding);

/* Elements first … first + count - 1 of dimension d, of size n, are held at this place; count may
   be 0, and less than sharding_chunk in the last shards. */
void sharding_range(const Mesh *mesh, const Sharding *sharding, int d, int64_t n, int32_t place,
                    int64_t *first, int64_t *count);
/* Size of a shard with its padding: ceil(n / shards). */
int64_t sharding_chunk(const Sharding *sharding, int d, int64_t n);

/* Both mean the same: dimensions and unreduced axes are equal. */
bool sharding_same(const Sharding *a, const Sharding *b);

/* The type of a device's shard. */
cvn_type sharding_local(const Sharding *sharding, const cvn_type *type);

#endif
