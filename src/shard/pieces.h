/*
 * A tensor from any sharding to any other, piece by piece: every device gets its new shard from
 * those that hold parts of it, and never holds more than the two shards.
 *
 *     mesh data=2,model=3, f32[32]  <data> -> <model>
 *
 *     device     has      wants     gets
 *     0,0       0-15      0-10
 *     0,1       0-15     11-21      16-21 from 1,1
 *     0,2       0-15     22-31      22-31 from 1,0
 *     1,0      16-31      0-10       0-10 from 0,0
 *     1,1      16-31     11-21      11-15 from 0,1
 *     1,2      16-31     22-31
 *
 * A round is a collective permute: each device sends at most one piece and gets at most one. Here
 * one round does. All pieces of a round travel in windows of one size, the largest of them.
 */
#ifndef CVN_SHARD_PIECES_H
#define CVN_SHARD_PIECES_H

#include "shard/spec.h"

/* A box that is part of a shard of `source` before and of `target` after. */
typedef struct Piece {
    int32_t source, target;     /* places on the mesh */
    int64_t from[CVN_MAX_RANK]; /* [rank] its first element in the source's shard */
    int64_t to[CVN_MAX_RANK];   /* [rank] the same in the target's shard */
    int64_t size[CVN_MAX_RANK]; /* [rank] at least 1 */
} Piece;

typedef struct PieceRound {
    int32_t n;
    Piece *piece;                 /* [n], no two of one source, no two of one target */
    int64_t window[CVN_MAX_RANK]; /* [rank] the largest size of a piece along each dimension */
    bool slow;                    /* some travel between groups of machines */
} PieceRound;

/* The plan of a reshard by pieces. It lies in the arena. */
typedef struct Pieces {
    PieceRound own; /* what devices hold already, which is copied and not sent */
    int n_rounds;
    PieceRound *round; /* [n_rounds] */
} Pieces;

/* Plans the pieces of a reshard. Both shardings must have the same unreduced axes. */
Pieces *pieces_plan(const Mesh *mesh, const cvn_type *type, const Sharding *from,
                    const Sharding *to, Arena *arena);

/* What a device sends in a round. */
double piece_bytes(const PieceRound *round, const cvn_type *type);

#endif
