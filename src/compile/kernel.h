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

typedef struct Kernel Kernel;

struct Kernel {
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
    bool fuses;        /* does what stands beside an operation that it runs: Op.fused */
    /* Element i of the result is made of elements i of the operands that have as many, and of the others as a whole;
       threads share the elements by kernel_share, in units of KERNEL_GRAIN. */
    bool elementwise;
    bool single; /* called on thread 0 only; it may not call kernel_sync */
    /* Of a collective that can be under way while other steps run: `start`, on thread 0 only, begins it, and `done`,
       on all threads, ends it. Operand and result are left alone in between. NULL: only as a whole, by `run`. */
    KernelFn *start, *done;
};

typedef struct KernelSet {
    const char *name;
    const Kernel *const *kernel; /* [n_kernels], best first */
    int n_kernels;
    KernelFn *fallback; /* any plain operation, on thread 0 */
    /* Whether it does a region in one go: `plan` is what would run it, which says what is done beside its root (Op.fused,
       compile/fused.h), a program and all; root is what would run alone, or NULL, where all is elementwise. NULL: nothing is
       fused for it, and it never sees a region. */
    bool (*accepts)(const struct KernelSet *backend, const Op *root, const Op *plan);
    /* A step of no more bytes and operations than this is done by one thread before others could be told; 0: every
       step is shared. */
    size_t tiny;
} KernelSet;

/* Whether a kernel takes this operation, and the bytes of scratch that it asks for then. */
bool kernel_matches(const Kernel *kernel, const Op *op);
size_t kernel_scratch(const Kernel *kernel, const Op *op, int n_threads);

/* The first of the backend's kernels that matches; NULL: its fallback. */
const Kernel *kernel_find(const KernelSet *backend, const Op *op);

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
