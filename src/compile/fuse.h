/*
 * Fusion: elementwise operations that read each other's results, or the same tensors, become one step, which takes
 * all of them over FUSION_ELEMENTS elements before it goes on to the next. What is between them stays in cache and
 * has no place in the arena.
 *
 *     %m1 = multiply %m, splat 0.9                fusion %m, %g -> %m1
 *     %g1 = multiply %g, splat 0.1        ->        multiply slot 0, splat    -> slot 2 (scratch)
 *     %m2 = add %m1, %g1                            multiply slot 1, splat    -> slot 3 (scratch)
 *                                                   add slot 2, slot 3        -> result 0
 *
 * A member runs the backend's own kernel, as if it were one of many threads, so that its bits are those of the
 * operation alone. Constants of one value, and broadcasts, are written out for a tile at a time and take no
 * memory either.
 *
 * It is done while lowering, on the plan's own graph: an operation of kind OP_FUSION takes the place of its members
 * (whose results it has) and is not seen by any pass.
 */
#ifndef CVN_COMPILE_FUSE_H
#define CVN_COMPILE_FUSE_H

#include "compile/kernel.h"

enum {
    FUSION_ELEMENTS = 2 * KERNEL_GRAIN, /* of a tile */
    FUSION_LEAST = 8 * KERNEL_GRAIN,    /* elements: smaller tensors are in cache anyway */
    FUSION_MEMBERS = 48,
    FUSION_OPERANDS = 24,
    FUSION_RESULTS = 8
};

typedef enum SlotKind {
    SLOT_OPERAND, /* element i of operand `index` */
    SLOT_RESULT,  /* element i of result `index` */
    SLOT_WHOLE,   /* all of operand `index`: a scalar for all elements */
    SLOT_SPREAD,  /* element (i / inner) % size of operand `index` */
    SLOT_SPLAT,   /* one value */
    SLOT_INSIDE   /* of a member, used by members only */
} SlotKind;

/* What members read and write. The last three kinds are in scratch, FUSION_ELEMENTS elements each. */
typedef struct Slot {
    SlotKind kind;
    int index;           /* of the operand or result */
    int64_t inner, size; /* of a spread */
    size_t bytes;        /* of an element */
    const void *value;   /* [bytes] of a splat */
    size_t scratch;      /* offset in the scratch of a thread */
    uint32_t value_id;   /* of what it holds: the root of an operand, or a member's result */
} Slot;

typedef struct Member {
    const Op *op;
    const Kernel *kernel;
    int in[3], out; /* slots */
} Member;

/* In the attributes of an OP_FUSION; lives in the graph's arena. */
typedef struct Fusion {
    int64_t elements;
    Member *member; /* [n_members], in order */
    int n_members;
    Slot *slot; /* [n_slots] */
    int n_slots;
    size_t scratch;                    /* bytes of a thread */
    uint32_t *over;                    /* [n_results] bit i: may be written over operand i */
    const struct TileProgram *program; /* the same for kernels that run programs, or NULL */
} Fusion;

extern const Kernel fusion_kernel;

/* Makes fusions of what the backend's kernels say is elementwise. g is verified; afterwards it can only be
   lowered. */
int fuse_graph(cvn_graph *g, const Backend *backend, cvn_err *err);

/* Makes conversions and squares part of the operations beside them, where kernels say that they do that. Operands and
   results may be of another float dtype afterwards than the verifier allows. */
void fuse_neighbours(cvn_graph *g, const Backend *backend, Arena *arena);

/* Puts an operation that is in no list before another one, or, with NULL, last. */
void fuse_put_before(cvn_graph *g, Op *op, Op *next);

/* "subtract, multiply, add": what an operation of kind OP_FUSION does, in order. */
void fusion_print(StrBuf *out, const Op *op);

/* True when a kernel may write result k of op over its operand i. */
bool kernel_overwrites(const Kernel *kernel, const Op *op, int k, int i);

#endif
