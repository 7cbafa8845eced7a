/* The making of one fusion out of the operations of a region's body that are to be its members. */
#ifndef CVN_COMPILE_FUSION_MAKE_H
#define CVN_COMPILE_FUSION_MAKE_H

#include "compile/fusion.h"

/* A fusion being made. */
typedef struct Making {
    const KernelSet *backend;
    const cvn_graph *body;
    /* [n] Its members, in order. */
    Op *const *op;
    int n;
    /* The one result that is wanted; NULL: what the body returns, in its order. */
    const cvn_value *only;
    /* Of a product whose epilogue it is, or NULL. */
    const cvn_value *sums;
    Slot slot[FUSION_SLOTS];
    Member member[FUSION_MEMBERS];
    cvn_value *operand[FUSION_OPERANDS]; /* parameters of the body */
    uint32_t over[FUSION_RESULTS];
    int n_slots, n_operands, n_results;
    size_t scratch;
} Making;

/* What v is all of, under another shape. */
cvn_value *fuse_root_of(cvn_value *v);

/* A view of all of its operand: a reshape or barrier, most often. */
bool fuse_is_whole(const Op *op);

/* A constant of one value. */
bool fuse_is_splat(const cvn_value *v);

/* A broadcast of one value, or of a tensor that has a run of the result's dimensions: *inner elements of the result
   in turn are of one element. */
bool fuse_is_spread(const cvn_value *v, int64_t *inner);

/* The kernel of an operation that can be a member, or NULL. */
const Kernel *fuse_member_kernel(const KernelSet *backend, const Op *op);

/* What members read and write; false where that is more than one fusion has room for, or is made by what is no member. */
bool fuse_make_members(Making *m);

/* The fusion that comes of it; m->operand is what it reads. */
Fusion *fuse_make(Making *m, Arena *arena);

#endif
