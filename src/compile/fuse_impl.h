/*
 * Inside fuse*.c: the rules, in the order in which they are applied, what they change the graph with, and the making of one
 * fusion out of operations that are to be its members.
 */
#ifndef CVN_COMPILE_FUSE_IMPL_H
#define CVN_COMPILE_FUSE_IMPL_H

#include "compile/fuse.h"

/* What rules share during one walk over the graph. */
typedef struct Fuse {
    cvn_graph *g;
    const KernelSet *backend;
    Arena *arena;          /* for what is not needed afterwards */
    uint32_t *uses;        /* [n_values] by operations and outputs, before anything was changed */
    int64_t *position;     /* [n_values] of the operation that makes a value, from the first on */
    struct Making *making; /* for one fusion after the other */
} Fuse;

/* What may be done with an operation, which may be removed. */
typedef void FuseRule(Fuse *f, Op *op);

/* ---- the rules: each is a file, which see ---- */

FuseRule fuse_squares, fuse_convert, fuse_epilogue, fuse_reduce;
/* A walk of its own, from the last to the first. */
void fuse_recompute(Fuse *f);
/* fuse.c: chains of elementwise operations. Then, with uses as fuse_uses has it: */
FuseRule fuse_product;

/* ---- changes of the graph ---- */

/* Makes op the one that its results come from. */
void fuse_own_results(Op *op);

/* A further operand or result, the last. */
void fuse_add_operand(cvn_graph *g, Op *op, cvn_value *v);
void fuse_add_result(cvn_graph *g, Op *op, cvn_value *v);

/* [n_values] of the operation that makes a value, counted from the first. */
int64_t *fuse_positions(const cvn_graph *g, Arena *arena);

/* ---- one fusion ---- */

/* A fusion being made. */
typedef struct Making {
    cvn_graph *g;
    const KernelSet *backend;
    const uint32_t *uses; /* [n_values] as fuse_uses has it, before anything was fused */
    Op *const *op;        /* [n] its members, in order */
    int n;
    const cvn_value *only; /* the one result that is wanted; NULL: all that others use */
    const cvn_value *sums; /* of a product whose epilogue it is, or NULL */
    Slot slot[FUSION_SLOTS];
    Member member[FUSION_MEMBERS];
    cvn_value *operand[FUSION_OPERANDS], *result[FUSION_RESULTS];
    uint32_t over[FUSION_RESULTS];
    int n_slots, n_operands, n_results;
    size_t scratch;
    bool spared; /* a constant or broadcast need not be written out */
} Making;

/* What v is all of, under another shape. */
cvn_value *fuse_root_of(cvn_value *v);

/* A view of all of its operand: a reshape or barrier, most often. */
bool fuse_is_whole(const Op *op);

/* [n_values] How often operations and outputs use what has this root; views of all of it are no uses. */
uint32_t *fuse_uses(const cvn_graph *g, Arena *arena);

/* A constant of one value. */
bool fuse_is_splat(const cvn_value *v);

/* A broadcast of one value, or of a tensor that has a run of the result's dimensions: *inner elements of the result
   in turn are of one element. */
bool fuse_is_spread(const cvn_value *v, int64_t *inner);

/* The kernel of an operation that can be a member, or NULL. */
const Kernel *fuse_member_kernel(const KernelSet *backend, const Op *op);

/* What members read and write; false where that is more than one fusion has room for. */
bool fuse_make_members(Making *m);

/* The fusion that comes of it; m->operand and m->result are what its operation reads and makes. */
Fusion *fuse_make(Making *m);

#endif
