/*
 * The contract between a plan and the functions that carry it out.
 *
 * A backend is a table of kernels. For each operation the compiler takes the first kernel of the
 * table that matches; an operation that none matches is decomposed if it is a composite, and is
 * otherwise run by the backend's fallback (the interpreter's function, on thread 0).
 *
 * Contract of every kernel:
 *
 * All threads of the device call it with the same arguments except `thread`; together they write
 * the whole of every result. A kernel splits its work by thread index, in a way that makes the
 * result independent of the number of threads (no sum is split over threads), unless it says
 * otherwise. A step that is too small to share is called on thread 0 alone, with n_threads 1.
 *
 * Inputs and outputs are dense, row-major, packed as in memory. Buffers that the plan owns are
 * aligned to 64 bytes; parameters (mapped files) may have any alignment that their element type
 * allows. Reading past the end of a buffer, even by one byte, is an error.
 *
 * A result may share its memory only with the operands named in `in_place`, and then exactly.
 *
 * `scratch` is 64-byte aligned, private to the step and shared by its threads; its contents on
 * entry are undefined. Phases that exchange data through it call kernel_sync between them, on every
 * thread.
 *
 * An operation whose results have no bytes is never run. Reshapes, optimization barriers and dense
 * slices are views, constants lie ready or are filled in by the plan: these need no kernels.
 */
#ifndef CVN_COMPILE_KERNEL_H
#define CVN_COMPILE_KERNEL_H

#include "base/threads.h"
#include "graph/graph.h"

typedef struct Comm Comm; /* comm/comm.h */

/* How much of a thread's last part of a step has been taken, by itself or by others that were done before. Written by
   all: alone in its cache line. */
typedef struct KernelTail {
    alignas(64) _Atomic uint64_t taken; /* turn << KERNEL_TAIL_BITS | items that were taken in it */
} KernelTail;

typedef struct KernelArgs {
    const Op *op; /* types and attributes; operands and results are not to be followed further */
    const void *const *in; /* [op->n_operands] */
    void *const *out;      /* [op->n_results] */
    void *scratch;         /* as many bytes as the kernel asked for, or NULL */
    Barrier *barrier;      /* of all threads; for kernel_sync */
    int thread, n_threads; /* 0 <= thread < n_threads */
    Comm *comm;            /* what connects this device with others, or NULL: it is alone */
    int device;            /* its number there */
    KernelTail *tail;      /* [n_threads], for kernel_take; NULL: everyone does its own share */
    uint64_t turn;         /* grows from step to step and from run to run */
    const volatile int *cancelled; /* nonzero: nobody wants the results any more; or NULL */
    const void *isa;               /* the kernel's */
} KernelArgs;

typedef void KernelFn(const KernelArgs *args);

enum { KERNEL_GRAIN = 512 }; /* elements */

/* What the kernel of a plan's operation does beside it: the rest of the region whose root it is (compile/region_plan.h). */
typedef struct Fused {
    const cvn_graph *body; /* of the region */
    /* All of a region without a root; the epilogue of a product, on operands behind its own; the prologue of a reduce, whose
       operands are then the program's. Or NULL. */
    const struct Fusion *program;
    /* Of a product: its result's dimensions are permuted; or empty. */
    Ints dims;
    /* Of a reduce: it sums the squares of what it reads. */
    bool squares;
    /* Of a scatter: operand 0 is a residual, to which the sums of the updates are added. */
    bool residual;
    /* Of a rope: bit 0, its operand, bit 1, its result is [batch, heads, seq, head_dim]. */
    unsigned transposed;
} Fused;

static inline const Fused *kernel_fused(const Op *op)
{
    static const Fused none;
    return op->fused ? op->fused : &none;
}

/* What a kernel does of the operations of a region beside its root: a prologue to an operand as it is read, an epilogue to a
   result as it is written. Each rounds as the operation by itself would. */
typedef enum KernelFuses {
    /* Operand 0, result 0 is of any float dtype; what is computed is f32. */
    PROLOGUE_CONVERT = 1 << 0,
    EPILOGUE_CONVERT = 1 << 1,
    /* Dimensions of operand 0, of result 0 are permuted: see Fused. */
    PROLOGUE_TRANSPOSE = 1 << 2,
    EPILOGUE_TRANSPOSE = 1 << 3,
    /* A further operand, the last, of the type of result 0, is added to it; a scatter adds the sums of its updates to
       operand 0, where Fused.residual says so. */
    EPILOGUE_RESIDUAL = 1 << 4,
    EPILOGUE_COPY = 1 << 5, /* a further result is a rounding of result 0 to bf16 */
    /* Of a reduce of f32: it is squared as it is read, where Fused.squares says so; Fused.program makes what is reduced of
       the operands. */
    PROLOGUE_SQUARE = 1 << 6,
    PROLOGUE_PROGRAM = 1 << 7,
    /* Of a dot_general to f32, without batch dimensions: where it has a second result, f32, of its rhs's free dimensions,
       that gets the sums of squares down the columns, as `reduce` sums them; of the exact sums, where result 0 is rounded.
       Of a scatter with a residual: operand 3 is such sums of operand 0's, and result 1 the same of the result's. */
    EPILOGUE_COLUMN_SQUARES = 1 << 8,
    FUSES_FORWARD = 1 << 9 /* a gradient makes the results of what it is the gradient of, too */
} KernelFuses;

typedef struct Kernel {
    const char *name; /* "dot_general.avx512.bf16": operation, instruction set, what it is for */
    OpKind kind;
    bool (*match)(const Op *op);                    /* shapes and dtypes it takes; NULL: all */
    size_t (*scratch)(const Op *op, int n_threads); /* bytes of scratch; NULL: none */
    KernelFn *run;
    /* Of kernels that are one code for several instruction sets: what tells them apart, given to `run`; and match and
       scratch where these depend on it. */
    const void *isa;
    bool (*match_isa)(const struct Kernel *kernel, const Op *op);
    size_t (*scratch_isa)(const struct Kernel *kernel, const Op *op, int n_threads);
    unsigned in_place; /* bit i: result 0 may be written over operand i */
    unsigned fuses;    /* KernelFuses */
    /* Element i of the result is made of elements i of the operands that have as many, and of the others as a whole;
       threads share the elements by kernel_share, in units of KERNEL_GRAIN. */
    bool elementwise;
    /* Of a dot_general without batch dimensions: elementwise operations that are done to its sums before anything is
       written (Fusion.program). Returns a number for Fusion.epilogue, or -1 for a program that cannot be; NULL: none. */
    int (*epilogue)(const struct Fusion *fusion);
    bool single; /* called on thread 0 only; it may not call kernel_sync */
    /* Of a collective that can be under way while other steps run: `start`, on thread 0 only, begins it, and `done`,
       on all threads, ends it. Operand and result are left alone in between. NULL: only as a whole, by `run`. */
    KernelFn *start, *done;
} Kernel;

typedef struct KernelSet {
    const char *name;
    const Kernel *const *kernel; /* [n_kernels], best first */
    int n_kernels;
    KernelFn *fallback; /* any plain operation, on thread 0 */
    /* A step of no more bytes and operations than this is done by one thread before others could be told; 0: every
       step is shared. */
    size_t tiny;
} KernelSet;

/* Whether a kernel takes this operation, and the bytes of scratch that it asks for then. */
bool kernel_matches(const Kernel *kernel, const Op *op);
size_t kernel_scratch(const Kernel *kernel, const Op *op, int n_threads);

/* The first of the backend's kernels that matches; NULL: its fallback. */
const Kernel *kernel_find(const KernelSet *backend, const Op *op);

/* Whether that kernel fuses this. */
bool kernel_fuses(const KernelSet *backend, const Op *op, KernelFuses what);

/* Whether a kernel that takes long may leave out what it has not done yet; it still meets the other threads wherever it
   would have. */
static inline bool kernel_cancelled(const KernelArgs *args)
{
    return flag_is_set(args->cancelled);
}

/* Waits until all threads of the device are here. */
void kernel_sync(const KernelArgs *args);

/* Takes the next one of the n items that thread `owner` has left to whoever comes first: its number, or -1 when none is
   left. n < 2^KERNEL_TAIL_BITS. Nothing needs to be set up between steps: a count of an earlier turn is none, and that
   of a later one says that somebody found this step's items to be gone. */
enum { KERNEL_TAIL_BITS = 20 };
static inline int64_t kernel_take(const KernelArgs *args, int owner, int64_t n)
{
    _Atomic uint64_t *taken = &args->tail[owner].taken;
    uint64_t none = args->turn << KERNEL_TAIL_BITS;
    uint64_t seen = atomic_load_explicit(taken, memory_order_relaxed);
    for (;;) {
        uint64_t now = seen < none ? none : seen;
        if (now - none >= (uint64_t)n)
            return -1;
        if (atomic_compare_exchange_weak_explicit(taken, &seen, now + 1, memory_order_relaxed,
                                                  memory_order_relaxed))
            return (int64_t)(now - none);
    }
}

/* The part of n items (in units of `grain`) that thread t of nt takes: [*begin, *end). Contiguous,
   and empty for threads that get nothing. */
static inline void kernel_share(int64_t n, int64_t grain, int t, int nt, int64_t *begin,
                                int64_t *end)
{
    int64_t units = (n + grain - 1) / grain;
    int64_t b = units * t / nt * grain, e = units * (t + 1) / nt * grain;
    *begin = b < n ? b : n;
    *end = e < n ? e : n;
}

#endif
