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
} KernelArgs;

typedef void KernelFn(const KernelArgs *args);

enum { KERNEL_GRAIN = 512 }; /* elements */

typedef struct Kernel {
    const char *name; /* "dot_general.avx512.bf16": operation, instruction set, what it is for */
    OpKind kind;
    bool (*match)(const Op *op);                    /* shapes and dtypes it takes; NULL: all */
    size_t (*scratch)(const Op *op, int n_threads); /* bytes of scratch; NULL: none */
    KernelFn *run;
    unsigned in_place; /* bit i: result 0 may be written over operand i */
    /* Element i of the result is made of elements i of the operands that have as many, and of the others as a whole;
       threads share the elements by kernel_share, in units of KERNEL_GRAIN. */
    bool elementwise;
    /* Operand 0 and result 0 may each be of any float dtype, computed in f32: conversions beside the operation become
       part of it. */
    bool converts;
    /* Result 0, computed in f32, may be of any float dtype: a rounding behind the operation becomes part of it. */
    bool rounds;
    /* A further operand, the last, of the type of result 0, is added to it as it is written, each rounded by itself;
       a scatter adds to operand 0 the sums of its updates by themselves, where attr.apart says so. */
    bool adds;
    /* The dimensions of result 0 may be permuted: attr.dims of a product, attr.swapped of a rope. */
    bool places;
    /* A gradient that makes the results of what it is the gradient of, too. */
    bool joins;
    bool copies;  /* a further result is a rounding of result 0 to bf16 */
    bool squares; /* of a reduce: squares f32 as it reads it, where attr.squares says so */
    /* Of a dot_general to f32, without batch dimensions: where it has a second result, f32, of its rhs's free dimensions,
       that gets the sums of squares down the columns, as `reduce` sums them; of the exact sums, where result 0 is rounded.
       Of a scatter with attr.apart: operand 3 is such sums of operand 0's, and result 1 the same of the result's. */
    bool column_squares;
    /* Of a reduce of f32: attr.fusion says how what it sums up is made of its operands. */
    bool terms;
    /* Of a dot_general without batch dimensions: elementwise operations that can follow its sums before anything is written
       (Fusion.program). Returns a number for Fusion.follows, or -1 for a program that cannot. */
    int (*follows)(const struct Fusion *fusion);
    bool single; /* called on thread 0 only; it may not call kernel_sync */
    /* Of a collective that can be under way while other steps run: `start`, on thread 0 only, begins it, and `done`,
       on all threads, ends it. Operand and result are left alone in between. NULL: only as a whole, by `run`. */
    KernelFn *start, *done;
} Kernel;

typedef struct Backend {
    const char *name;
    const Kernel *const *kernel; /* [n_kernels], best first */
    int n_kernels;
    KernelFn *fallback; /* any plain operation, on thread 0 */
    /* A step of no more bytes and operations than this is done by one thread before others could be told; 0: every
       step is shared. */
    size_t tiny;
} Backend;

/* The first of the backend's kernels that matches; NULL: its fallback. */
const Kernel *kernel_find(const Backend *backend, const Op *op);

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
