/* A program of elementwise operations: what they are, and what they read and write. See region_plan.h. */
#ifndef CVN_COMPILE_FUSION_H
#define CVN_COMPILE_FUSION_H

#include "compile/fused.h"

enum {
    FUSION_ELEMENTS = 2 * KERNEL_GRAIN, /* of a tile */
    FUSION_LEAST = 8 * KERNEL_GRAIN,    /* elements: smaller tensors are in cache anyway */
    FUSION_MEMBERS = 48,
    FUSION_OPERANDS = 24,
    FUSION_RESULTS = 8,
    FUSION_SLOTS = 2 * FUSION_MEMBERS + FUSION_OPERANDS,
    FUSION_COLUMNS = 16, /* columns of a product with a fusion as its epilogue are a multiple */
    FUSION_SUMS = -1     /* index of the sums of a product, in a slot of its epilogue */
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

/* Of a region, as Fused.program says. Lives in the graph's arena. */
typedef struct Fusion {
    int64_t elements;
    Member *member; /* [n_members], in order */
    int n_members;
    Slot *slot; /* [n_slots] */
    int n_slots;
    size_t scratch;                    /* bytes of a thread */
    uint32_t *over;                    /* [n_results] bit i: may be written over operand i */
    const struct TileProgram *program; /* the same for kernels that run programs, or NULL */
    int epilogue; /* of a product: what the back end calls the program that it accepts */
} Fusion;

extern const Kernel fusion_kernel;

/* True when a kernel may write result k of op over its operand i. */
bool kernel_overwrites(const Kernel *kernel, const Op *op, int k, int i);

#endif
