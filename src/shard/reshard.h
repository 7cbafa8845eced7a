/*
 * From one sharding of a tensor to another: the cheapest sequence of moves.
 *
 *     f32[8,6]  <data,_>  ->  <_,data>         all_to_all  dim 0 to dim 1 by data
 *               <_,_>+unreduced(model)
 *                         ->  <model,_>        reduce_scatter  dim 0 by model
 *               <data,_>  ->  <data,model>     slice  dim 1 by model
 *               <data,_>  ->  <model,_>        collective_permute (axes of one size)
 *
 * Axes are cut into digits that both shardings can be said in. A state is where each digit is: on a
 * dimension, in which order; unused; or unreduced. Moves change the state, and the cheapest path is
 * searched (A*, with what a last move costs at least) among the states within reach:
 *
 *     slice            a digit that is unused goes to the end of a dimension; costs nothing
 *     reduce_scatter   the same for a digit that is unreduced
 *     all_reduce       all digits that are unreduced and should not be
 *     all_to_all       digits at the end of one dimension go to the end of another
 *     all_gather       digits at the end of a dimension become unused
 *     permute          digits of one size change places
 *
 * A slice that brings digits to where they should be is made at once, whatever else there is to do,
 * and they stay there. Moves after which a device would hold more than it does before and after all
 * of them are left out: memory is what splitting is for. Where no other moves lead to the goal, as
 * from 2 shards of a dimension to 3 others, devices exchange the pieces themselves (pieces.h), which
 * always works.
 *
 * A move costs the bytes that each device sends, in a ring: S (n-1)/n for a gather or a scatter of
 * S bytes over n devices, twice that for an all-reduce; then a little per hop. The slow axis
 * between groups of machines weighs more. A dimension that the shards do not divide is padded to
 * chunks of ceil(size / shards), first or until the end, where it is whole on one side. Where it is
 * split on both, moves for which the borders of the chunks do not agree are left out.
 */
#ifndef CVN_SHARD_RESHARD_H
#define CVN_SHARD_RESHARD_H

#include "shard/pieces.h"

typedef enum ReshardKind {
    RESHARD_SLICE,
    RESHARD_ALL_GATHER,
    RESHARD_REDUCE_SCATTER,
    RESHARD_ALL_REDUCE,
    RESHARD_ALL_TO_ALL,
    RESHARD_PERMUTE,
    RESHARD_PIECES,
    RESHARD_KINDS
} ReshardKind;

typedef struct ReshardStep {
    ReshardKind kind;
    int dim;        /* that the axes come to, or leave in a gather; -1 where it is none */
    int from_dim;   /* ALL_TO_ALL: that they leave */
    AxisList axes;  /* that move; unused in PERMUTE and PIECES */
    double bytes;   /* that each device sends */
    Sharding after; /* of the tensor */
    Pieces *pieces; /* PIECES: the arena's */
} ReshardStep;

typedef struct Reshard {
    int n;
    ReshardStep *step; /* [n], the arena's */
    cvn_type padded;   /* the whole tensor as the steps see it: a dimension that is whole on one
                          side is as long as the shards of the other side together */
    double bytes;      /* that each device sends, in all */
    double cost;       /* bytes with hops and slow axes weighed in */
    /* Devices hold more on the way than before and after; false by construction (see above). */
    bool involuntary;
} Reshard;

/* Plans a reshard of a tensor of this type. Axes that are unreduced in `to` must be unreduced in `from`, too. */
Reshard reshard_plan(const Mesh *mesh, const cvn_type *type, const Sharding *from,
                     const Sharding *to, Arena *arena);

#endif
