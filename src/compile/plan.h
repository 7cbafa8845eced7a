/*
 * A plan: what is left of a graph when everything that can be decided before it runs has been decided.
 *
 * It is a flat list of steps. A step is one kernel with the places of its operands and results; places are
 * offsets, so that nothing is allocated, searched or chosen at run time:
 *
 *     parameters:  x 0 f32[4,64]   w 1 f32[128,64]   cache 2 f32[4,128] (donated)
 *     step 0       dot_general  parameter 0, parameter 1        -> arena 0 (2048 bytes)
 *     step 1  sync tanh         arena 0                         -> arena 0 (in place)
 *     step 2  sync add          arena 0, parameter 2            -> parameter 2
 *     outputs:     0 at parameter 2
 *
 * Memory is of three kinds: what the caller passes as parameters, constants (owned by the plan), and one
 * arena (owned by the device that runs the plan, arena_bytes long). Only donated parameters, those that an
 * output was declared to go into, are ever written.
 *
 * `sync` says that a step touches bytes that steps since the last sync wrote (or writes what they read), so
 * all threads must meet before it. Threads run all other steps without waiting for each other.
 */
#ifndef CVN_COMPILE_PLAN_H
#define CVN_COMPILE_PLAN_H

#include "compile/kernel.h"

typedef enum Space { SPACE_PARAMETER, SPACE_CONSTANT, SPACE_ARENA, SPACE_COUNT } Space;

/* A place of dense bytes. */
typedef struct BufferRef {
    Space space;
    int parameter; /* which, when space is SPACE_PARAMETER; else 0 */
    size_t offset; /* bytes from the start of the parameter, the constants or the arena */
    size_t bytes;
} BufferRef;

/* A collective is one step, or two: from its start to its end its operand and result are left alone. */
typedef enum StepPhase { STEP_WHOLE, STEP_START, STEP_DONE } StepPhase;

typedef struct Step {
    const Op *op;       /* in the plan's graph */
    StepPhase phase;    /* what of it */
    KernelFn *run;      /* never NULL */
    const void *isa;    /* the kernel's */
    const char *kernel; /* name of the kernel */
    BufferRef *in;      /* [op->n_operands] */
    BufferRef *out;     /* [op->n_results] */
    BufferRef scratch;  /* 0 bytes: none */
    unsigned in_place;  /* the kernel's: operands that result 0 may lie over */
    bool sync;          /* all threads meet before this step */
    bool single;        /* runs on thread 0 only, as on a device of one thread */
    bool fallback;      /* no kernel took it: the backend's fallback runs it, slowly */
    double flops;       /* floating-point operations, counted from the shapes */
    size_t bytes;       /* read and written, counted from the shapes */
} Step;

typedef struct PlanParameter {
    const char *name;
    cvn_type type; /* of what lies there */
    size_t bytes;  /* of that */
    bool donated;  /* the plan writes it: some output goes into it */
    /* Where the compiler wants it in panels (compile/pack.h): how many leading dimensions of `plain` are rows, else 0. */
    int rows;
    BlockKind blocks; /* and of blocks of which kind it is */
    bool scales;      /* those of a quantized weight */
    cvn_type plain;   /* what the graph has; `type`, but for those */
    int64_t n, k;     /* of those: rows and columns */
    /* Of every weight in panels (and its scales) that a product reads: the panels that the threads of its step share, and
       of them those before this weight's (pack_share); 0: no product reads it. */
    int64_t panels_joined, panels_before;
} PlanParameter;

typedef struct PlanOutput {
    cvn_type type;
    BufferRef ref; /* in the arena, or the whole of parameter `into` */
    int into;      /* the parameter it was declared to go into, or -1 */
} PlanOutput;

/* Everything but the memory of parameters and the arena belongs to the plan, in its graph's arena. A plan does
   not change once it is made, and may be run by any number of devices. */
/* What is told of a plan; no run needs it. */
typedef struct PlanReport {
    size_t parameter_bytes;   /* sum over the parameters */
    size_t arena_lower_bound; /* no placement of these buffers could do with fewer bytes */
    int n_buffers;            /* places in the arena that were planned */
    int n_syncs;              /* times that all threads meet */
    int n_copies; /* steps that only copy, because a donation or an output could not do without */
    size_t copied_bytes; /* by them, per run */
} PlanReport;

typedef struct Plan {
    cvn_graph *graph; /* owned: the lowered graph that steps refer to */
    const char *name; /* the graph's */
    int64_t made;     /* clock_ns of its making: with its address, unlike any other plan's */
    int n_threads;    /* what scratch was sized for: the device must have as many */
    int n_devices; /* 1 + the largest device that a collective of the plan names; 0: it has none */
    bool op_by_op; /* threads are woken and waited for at every step */
    Step *step;    /* [n_steps], in order of execution */
    int n_steps;
    int n_refs;               /* operands, results and scratch of all steps: pointers a run needs */
    PlanParameter *parameter; /* [n_parameters] */
    int n_parameters;
    PlanOutput *output; /* [n_outputs] */
    int n_outputs;
    const void *constants; /* constant_bytes, 64-byte aligned */
    size_t constant_bytes;
    size_t arena_bytes;
    PlanReport report;
} Plan;

/* Frees the plan and its graph; NULL is allowed. */
void plan_free(Plan *plan);

/* True when the two share a byte. */
bool ref_overlap(const BufferRef *a, const BufferRef *b);

/* The plan as text: the steps with their places, then the sums. For people; there is no parser. */
void plan_print(StrBuf *out, const Plan *plan);

/* Steps that run by the backend's fallback: how many, and in `names`, unless it is NULL, the operations that they are, each
   once: "sort, pad". */
int plan_fallbacks(const Plan *plan, StrBuf *names);

/* Bytes that an operation must move at least (a gather reads its slices, not its table): those inside of a region do not. */
size_t op_bytes(const Op *op);

/* The bytes that a device sends for a collective, around a ring. */
double op_ring_bytes(const Op *op);

/* An optimization_barrier that lowering inserted to copy its operand; one from the graph is a view. */
static inline bool op_is_copy(const Op *op)
{
    return op->kind == OP_OPTIMIZATION_BARRIER && op->attr.flag;
}

/* Results that are a view cost nothing: *offset is where the result begins in its operand, in bytes. */
bool op_is_view(const Op *op, size_t *offset);
/* The value that v is bytes of, looking through views. */
cvn_value *op_root_of(cvn_value *v);

#endif
