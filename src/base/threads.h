/*
 * Threads that work together: a barrier, and a pool of workers that live as long as a device.
 *
 * The threads of a device meet thousands of times a second, so waiting begins by spinning. It ends,
 * after a bounded time, by sleeping on a futex: a machine with more threads than cores loses
 * microseconds then, not whole time slices.
 *
 *     Pool *pool = pool_new(4, &err);
 *     pool_run(pool, work, &context);      work(&context, t, 4) on threads t = 0 (the caller) to 3
 *     pool_free(pool);
 */
#ifndef CVN_BASE_THREADS_H
#define CVN_BASE_THREADS_H

#include "base/err.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>

enum { THREADS_MAX = 1024 };

/* Counts arrivals; the last one opens the next generation. Invariant: arrived < n between two
 * calls. */
typedef struct Barrier {
    alignas(64) atomic_uint arrived; /* threads that wait in this generation */
    alignas(64)
        atomic_uint generation; /* how often the barrier has opened, modulo 2^32; the futex word */
    atomic_uint sleepers;       /* threads that sleep, or are about to */
    unsigned n;                 /* threads that meet, >= 1 */
    unsigned spins;             /* looks at `generation` before sleeping */
} Barrier;

/* n threads will meet, 1 <= n <= THREADS_MAX. */
void barrier_init(Barrier *barrier, int n);

/* Returns when all n threads have called it. What any thread wrote before is seen by all after. */
void barrier_wait(Barrier *barrier);

typedef struct Pool Pool;

/* What a pool runs: once on each thread, 0 <= thread < n_threads; all at the same time. */
typedef void PoolFn(void *context, int thread, int n_threads);

/* Starts n - 1 workers (the caller of pool_run is the first thread); n = 0 takes
   threads_available(). NULL with *err set when n is out of range or the system refuses a thread.
   Not to be used across fork. */
Pool *pool_new(int n, cvn_err *err);

/* Ends the workers and waits for them. NULL is allowed. */
void pool_free(Pool *pool);

/* Runs fn on all threads and returns when all have returned. One caller at a time. */
void pool_run(Pool *pool, PoolFn *fn, void *context);

int pool_threads(const Pool *pool);

/* A barrier of the pool's threads, for use inside a function it runs. */
Barrier *pool_barrier(Pool *pool);

/* Threads worth starting: processors in the affinity mask, and no more than the quota of the
   control group (cpu.max of cgroup v2, cpu.cfs_quota_us of v1) rounded up. At least 1, at most
   THREADS_MAX. */
int threads_available(void);

/* Nanoseconds of a clock that never goes back, the same on all threads. */
int64_t clock_ns(void);

#endif
