/*
 * Per-device operations, appended to the graph that runs on every device: what depends on which
 * device it is (partition_id), and reshards. The same graph runs everywhere, so a device's place on
 * the mesh is computed:
 *
 *     data=4,model=2      digit of `data` = place / 2 % 4       offset of its shard = digit * chunk
 *
 * Contents of the padding of a shard are unspecified, but every value is an ordinary number that an
 * operation made of others, never memory that was not written.
 */
#ifndef CVN_SHARD_EMIT_H
#define CVN_SHARD_EMIT_H

#include "base/map.h"
#include "graph/graph.h"
#include "shard/reshard.h"

typedef struct Emit {
    cvn_graph *g; /* the per-device graph, which operations are appended to */
    const Mesh *mesh;
    cvn_value *place; /* i32, this device's; NULL until it is needed */
    Map cached;       /* digits, masks and device groups by what they depend on */
} Emit;

/* Begins to emit into g, whose arena is used. */
void emit_init(Emit *e, cvn_graph *g, const Mesh *mesh);

cvn_value *emit_i32(Emit *e, int64_t value);
/* Which shard of a dimension that these axes split this device has: an i32 scalar. */
cvn_value *emit_digit(Emit *e, const AxisList *axes);
/* The index of this device's shard, times chunk: where the shard begins. */
cvn_value *emit_offset(Emit *e, const AxisList *axes, int64_t chunk);

/* Picks this device's number from one for each place on the mesh, [n_devices]: an i32 scalar. */
cvn_value *emit_lookup(Emit *e, const int32_t *number);

/* x with element `fill` in all places of dimension d that lie beyond the n of the whole tensor;
   x itself where there can be none. `axes` split dimension d. */
cvn_value *emit_mask(Emit *e, cvn_value *x, int d, const AxisList *axes, int64_t n, double fill);

/* x with dimension d cut or padded with zeros at its end. */
cvn_value *emit_resize(Emit *e, cvn_value *x, int d, int64_t size);

/* A shard of shape `after` from one of x's, with pieces of other devices. */
cvn_value *emit_pieces(Emit *e, cvn_value *x, const cvn_type *after, const Pieces *pieces);

/* The shard x of the device whose digit along these axes is the mirror image of this one's: 3 - i of 4. */
cvn_value *emit_mirror(Emit *e, cvn_value *x, const AxisList *axes);

/* One step of a reshard of a tensor of `type`: x is a shard under `before`. */
cvn_value *emit_step(Emit *e, cvn_value *x, const cvn_type *type, const Sharding *before,
                     const ReshardStep *step);

#endif
