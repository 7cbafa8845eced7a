/*
 * Threads that work together: a barrier, and a pool of workers that live as long as a device.
 *
 * The threads of a device meet thousands of times a second, so waiting begins by spinning: on an
 * idle machine the others are there within a microsecond. It ends by sleeping on a futex. How long
 * to spin is learnt: a long sleep halves the patience of the next wait, a short one doubles it, so
 * where others want the processor it is given to them almost at once.
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
#include <stdbool.h>
#include <stdint.h>

enum { THREADS_MAX = 1024 };

/* A flag that a handler of signals, or another thread, sets, and that says nothing of other memory. NULL is never set. */
static inline bool flag_is_set(const volatile int *flag)
{
    return flag && __atomic_load_n(flag, __ATOMIC_RELAXED);
}

static inline void flag_set(volatile int *flag, int value)
{
    __atomic_store_n(flag, value, __ATOMIC_RELAXED);
}

/* Between two looks of a thread that spins. */
static inline void threads_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Counts arrivals; the last one opens the next generation. Invariant: arrived < n between two
 * calls. */
typedef struct Barrier {
    alignas(64) atomic_uint arrived; /* threads that wait in this generation */
    alignas(64)
        atomic_uint generation; /* how often the barrier has opened, modulo 2^32; the futex word */
    atomic_uint sleepers;       /* threads that sleep, or are about to */
    atomic_int patience;        /* nanoseconds of spinning before sleeping */
    atomic_llong slept;         /* nanoseconds, summed over the threads */
    unsigned n;                 /* threads that meet, >= 1 */
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

   The threads are bound to cores, one to each, when there are as many as the process may use and
   the topology is known: then there is no choice that another process could have made differently.
   Fewer threads, or more, are left to the scheduler, because two processes that each bind two
   threads would bind them to the same two cores.
   CARAVAN_PIN=0 in the environment leaves them to the scheduler always. The caller's own thread is
   moved to its core when a run begins, and its mask is left as it was.
   Not to be used across fork. */
Pool *pool_new(int n, cvn_err *err);

/* Ends the workers and waits for them. NULL is allowed. */
void pool_free(Pool *pool);

/* Runs fn on all threads and returns when all have returned. One caller at a time. */
void pool_run(Pool *pool, PoolFn *fn, void *context);

/* The same on the first n threads only, 1 <= n <= pool_threads; the others sleep on. */
void pool_run_on(Pool *pool, int n, PoolFn *fn, void *context);

int pool_threads(const Pool *pool);

/* Whether the threads are bound to cores. */
bool pool_pinned(const Pool *pool);

/* Nanoseconds that threads have slept in waiting for each other, summed over all and all runs so
   far. Waits that spinning ended do not count. */
int64_t pool_slept(const Pool *pool);

/* A barrier of the threads that take part in a run, for use inside the function that runs. */
Barrier *pool_barrier(Pool *pool);

/* Threads worth starting: cores_usable(). At least 1, at most THREADS_MAX. */
int threads_available(void);

/* Nanoseconds of a clock that never goes back, the same on all threads. */
int64_t clock_ns(void);
/* The same in seconds. */
double clock_seconds(void);

#endif
