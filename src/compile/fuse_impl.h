/*
 * Inside fuse*.c: the making of one fusion out of operations that are to be its members.
 */
#ifndef CVN_COMPILE_FUSE_IMPL_H
#define CVN_COMPILE_FUSE_IMPL_H

#include "compile/fuse.h"

/* A fusion being made. */
typedef struct Making {
    cvn_graph *g;
    const Backend *backend;
    const uint32_t *uses; /* [n_values] by operations and outputs, before anything was fused */
    Op *const *op;        /* [n] its members, in order */
    int n;
    const cvn_value *only; /* the one result that is wanted; NULL: all that others use */
    const cvn_value *sums; /* of a product that the members follow, or NULL */
    Slot slot[2 * FUSION_MEMBERS + FUSION_OPERANDS];
    Member member[FUSION_MEMBERS];
    cvn_value *operand[FUSION_OPERANDS], *result[FUSION_RESULTS];
    uint32_t over[FUSION_RESULTS];
    int n_slots, n_operands, n_results;
    size_t scratch;
    bool spared; /* a constant or broadcast need not be written out */
} Making;

/* What v is all of, under another shape. */
cvn_value *fuse_root_of(cvn_value *v);

/* A constant of one value. */
bool fuse_is_splat(const cvn_value *v);

/* A broadcast of one value, or of a tensor that has a run of the result's dimensions: *inner elements of the result
   in turn are of one element. */
bool fuse_is_spread(const cvn_value *v, int64_t *inner);

/* The kernel of an operation that can be a member, or NULL. */
const Kernel *fuse_member_kernel(const Backend *backend, const Op *op);

/* What members read and write; false where that is more than one fusion has room for. */
bool fuse_make_members(Making *m);

/* The fusion that comes of it; m->operand and m->result are what its operation reads and makes. */
Fusion *fuse_make(Making *m);

/* What only sums and elementwise operations read becomes part of the sums, where kernels can: see fuse_terms.c. */
int fuse_terms(cvn_graph *g, const Backend *backend, Arena *arena);

/* A fusion that stands right behind a product, where kernels can do both at once, becomes part of it: see fuse_follow.c. */
int fuse_follow(cvn_graph *g, const Backend *backend, const uint32_t *uses, Arena *arena);

#endif
