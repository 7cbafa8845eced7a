/*
 * The barrier and the pool. A worker waits at a door of its own, so that a run on few threads wakes
 * nobody else; the caller waits until all who took part are done.
 *
 *     caller   open doors ─ fn(0) ── wait until nobody is left
 *     worker 1 … at its door ─ fn(1) ─ one less ─ at its door …
 */
#include "base/threads.h"

#include "base/cores.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Nanoseconds of spinning. The most is what a decode step leaves between two meetings of threads
   that share their work badly; the least is what a look costs. */
enum { PATIENCE_MOST = 100000, PATIENCE_LEAST = 1000 };

static_assert((int)THREADS_MAX == (int)CORES_MAX, "a core for each thread");

static void futex_wake(atomic_uint *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* Waits until *word is no longer `seen`: spins for as long as experience says that it helps, then
   sleeps, and returns how long it took if it came to that, else 0. A sleep that was short says that
   spinning on would have been better, a long one that it would have been for nothing. The kernel
   compares the word before it puts us to sleep, so a change between our last look and the call is
   not missed: either it sees the new word, or who changes it sees us among the sleepers. */
static int64_t wait_for_change(atomic_uint *word, unsigned seen, atomic_uint *sleepers,
                               atomic_int *patience)
{
    enum { LOOKS = 16 }; /* between two looks at the clock */
    int limit = atomic_load_explicit(patience, memory_order_relaxed);
    int64_t start = 0;
    do {
        for (int i = 0; i < LOOKS; i++) {
            if (atomic_load_explicit(word, memory_order_acquire) != seen)
                return 0;
            threads_relax();
        }
        start = start ? start : clock_ns();
    } while (clock_ns() - start < limit);
    atomic_fetch_add(sleepers, 1);
    while (atomic_load(word) == seen)
        syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(sleepers, 1);
    int64_t waited = clock_ns() - start;
    limit = waited <= PATIENCE_MOST ? 2 * limit : limit / 2;
    limit = limit > PATIENCE_MOST ? PATIENCE_MOST : limit < PATIENCE_LEAST ? PATIENCE_LEAST : limit;
    atomic_store_explicit(patience, limit, memory_order_relaxed);
    return waited;
}

void barrier_init(Barrier *barrier, int n)
{
    assert(n >= 1 && n <= THREADS_MAX);
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->generation, 0);
    atomic_init(&barrier->sleepers, 0);
    atomic_init(&barrier->patience, PATIENCE_MOST);
    atomic_init(&barrier->slept, 0);
    barrier->n = (unsigned)n;
}

void barrier_wait(Barrier *barrier)
{
    if (barrier->n == 1)
        return;
    unsigned seen = atomic_load_explicit(&barrier->generation, memory_order_relaxed);
    unsigned before = atomic_fetch_add_explicit(&barrier->arrived, 1, memory_order_acq_rel);
    if (before + 1 == barrier->n) {
        atomic_store_explicit(&barrier->arrived, 0, memory_order_relaxed);
        atomic_fetch_add(&barrier->generation, 1);
        if (atomic_load(&barrier->sleepers))
            futex_wake(&barrier->generation);
        return;
    }
    int64_t slept =
        wait_for_change(&barrier->generation, seen, &barrier->sleepers, &barrier->patience);
    if (slept)
        atomic_fetch_add_explicit(&barrier->slept, slept, memory_order_relaxed);
}

/* One worker and its door. */
typedef struct Worker {
    alignas(64) atomic_uint door; /* changes when there is something to run; the futex word */
    atomic_uint asleep;           /* 1 while the worker sleeps at it, or is about to */
    atomic_int patience;          /* as in Barrier, at the door */
    Pool *pool;
    int index; /* 1 … n - 1 */
    pthread_t thread;
} Worker;

struct Pool {
    Barrier meet;                 /* of those that run */
    alignas(64) atomic_uint left; /* workers that have not finished the run; the futex word */
    atomic_uint asleep;           /* 1 while the caller sleeps at it, or is about to */
    atomic_int patience;          /* the caller's */
    int n;
    int started;    /* workers that exist; n - 1 unless pool_new failed half way */
    int active;     /* threads of the run; written only while nobody runs, as are fn and context */
    PoolFn *fn;     /* what to run; NULL ends the workers */
    void *context;  /* for fn */
    Worker *worker; /* [n - 1] */
    int *cpu;       /* [n] where each thread is bound; NULL when they are not */
};

static void *work(void *argument)
{
    Worker *worker = argument;
    Pool *pool = worker->pool;
    if (pool->cpu)
        cores_bind(pool->cpu[worker->index]);
    for (unsigned seen = 0;; seen++) {
        wait_for_change(&worker->door, seen, &worker->asleep, &worker->patience);
        if (!pool->fn)
            return NULL;
        pool->fn(pool->context, worker->index, pool->active);
        if (atomic_fetch_sub(&pool->left, 1) == 1 && atomic_load(&pool->asleep))
            futex_wake(&pool->left);
    }
}

static int start_workers(Pool *pool, cvn_err *err)
{
    for (int i = 1; i < pool->n; i++) {
        Worker *worker = &pool->worker[i - 1];
        worker->pool = pool;
        worker->index = i;
        atomic_init(&worker->patience, PATIENCE_MOST);
        int error = pthread_create(&worker->thread, NULL, work, worker);
        if (error)
            return err_set(err, CVN_EMEM,
                           "the system refused thread %d of %d (%s); ask for fewer threads", i + 1,
                           pool->n, strerror(error));
        pool->started++;
    }
    return CVN_OK;
}

/* Zeroed memory for n things of `size` bytes, a multiple of 64, aligned to 64. */
static void *aligned_zeros(size_t n, size_t size)
{
    void *memory = aligned_alloc(64, n * size);
    return memory ? memset(memory, 0, n * size) : NULL;
}

Pool *pool_new(int n, cvn_err *err)
{
    if (n < 0 || n > THREADS_MAX) {
        err_set(err, CVN_EINVAL, "%d threads were requested; give 1 to %d", n, THREADS_MAX);
        return NULL;
    }
    Cores cores = {0};
    if (n != 1)
        cores_find(&cores);
    n = n ? n : cores.n;
    Pool *pool = aligned_zeros(1, sizeof *pool);
    Worker *worker = aligned_zeros((size_t)n, sizeof *worker);
    if (!pool || !worker) {
        free(pool);
        free(worker);
        err_set(err, CVN_EMEM, "no memory for a pool of %d threads", n);
        return NULL;
    }
    pool->n = n;
    pool->worker = worker;
    const char *wish = getenv("CARAVAN_PIN");
    bool binds = cores.known && n == cores.n_cores && n > 1 && !(wish && strcmp(wish, "0") == 0);
    pool->cpu = binds ? malloc((size_t)n * sizeof *pool->cpu) : NULL;
    if (pool->cpu)
        memcpy(pool->cpu, cores.cpu, (size_t)n * sizeof *pool->cpu);
    atomic_init(&pool->patience, PATIENCE_MOST);
    barrier_init(&pool->meet, n);
    if (start_workers(pool, err)) {
        pool_free(pool);
        return NULL;
    }
    return pool;
}

static void open_doors(Pool *pool, int n)
{
    for (int i = 0; i < n; i++) {
        Worker *worker = &pool->worker[i];
        atomic_fetch_add(&worker->door, 1);
        if (atomic_load(&worker->asleep))
            futex_wake(&worker->door);
    }
}

void pool_free(Pool *pool)
{
    if (!pool)
        return;
    pool->fn = NULL;
    open_doors(pool, pool->started);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->worker[i].thread, NULL);
    free(pool->worker);
    free(pool->cpu);
    free(pool);
}

void pool_run_on(Pool *pool, int n, PoolFn *fn, void *context)
{
    assert(n >= 1 && n <= pool->n);
    pool->fn = fn;
    pool->context = context;
    pool->active = n;
    pool->meet.n = (unsigned)n;
    atomic_store_explicit(&pool->left, (unsigned)n - 1, memory_order_relaxed);
    open_doors(pool, n - 1);
    if (pool->cpu && n > 1)
        cores_visit(pool->cpu[0]);
    fn(context, 0, n);
    int64_t slept = 0;
    for (unsigned left; (left = atomic_load_explicit(&pool->left, memory_order_acquire));)
        slept += wait_for_change(&pool->left, left, &pool->asleep, &pool->patience);
    if (slept)
        atomic_fetch_add_explicit(&pool->meet.slept, slept, memory_order_relaxed);
}

void pool_run(Pool *pool, PoolFn *fn, void *context)
{
    pool_run_on(pool, pool->n, fn, context);
}

int pool_threads(const Pool *pool)
{
    return pool->n;
}

bool pool_pinned(const Pool *pool)
{
    return pool->cpu != NULL;
}

int64_t pool_slept(const Pool *pool)
{
    return atomic_load_explicit(&pool->meet.slept, memory_order_relaxed);
}

Barrier *pool_barrier(Pool *pool)
{
    return &pool->meet;
}

int threads_available(void)
{
    return cores_usable();
}

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

double clock_seconds(void)
{
    return (double)clock_ns() * 1e-9;
}
