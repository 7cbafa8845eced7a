/*
 * The barrier and the pool. A pool needs nothing beyond the barrier: workers wait at it for work,
 * do it, and meet the caller at it again.
 *
 *     caller   set fn ─┐           ┌─ fn(0) ─┐
 *     worker 1 waiting ┴─ barrier ─┴─ fn(1) ─┴─ barrier ─ waiting …
 */
#include "base/threads.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    SPINS = 2000,      /* 20 to 100 microseconds, by processor */
    SPINS_CROWDED = 50 /* where there are more threads than processors, who spins is in the way */
};

static void relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void barrier_init(Barrier *barrier, int n)
{
    assert(n >= 1 && n <= THREADS_MAX);
    atomic_init(&barrier->arrived, 0);
    atomic_init(&barrier->generation, 0);
    atomic_init(&barrier->sleepers, 0);
    barrier->n = (unsigned)n;
    barrier->spins = n <= threads_available() ? SPINS : SPINS_CROWDED;
}

/* The kernel compares the word with `seen` before it puts us to sleep, so an opening between our
   last look and the call is not missed: either it sees the new word, or the opener sees us among
   the sleepers. */
static void sleep_until_opened(Barrier *barrier, unsigned seen)
{
    atomic_fetch_add(&barrier->sleepers, 1);
    while (atomic_load(&barrier->generation) == seen)
        syscall(SYS_futex, &barrier->generation, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
    atomic_fetch_sub(&barrier->sleepers, 1);
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
            syscall(SYS_futex, &barrier->generation, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
        return;
    }
    for (unsigned i = 0; i < barrier->spins; i++) {
        if (atomic_load_explicit(&barrier->generation, memory_order_acquire) != seen)
            return;
        relax();
    }
    sleep_until_opened(barrier, seen);
}

/* What a worker is told at its start. */
typedef struct Worker {
    Pool *pool;
    int index; /* 1 … n - 1 */
    pthread_t thread;
} Worker;

struct Pool {
    Barrier gate; /* opens to start work, and when it is done */
    Barrier meet; /* for the functions that run */
    int n;
    int started; /* workers that exist; n - 1 unless pool_new failed half way */
    PoolFn *fn;  /* what to run; NULL ends the workers. Written only while they wait at the gate */
    void *context;  /* for fn */
    Worker *worker; /* [n - 1] */
};

static void *work(void *argument)
{
    const Worker *worker = argument;
    Pool *pool = worker->pool;
    for (;;) {
        barrier_wait(&pool->gate);
        if (!pool->fn)
            return NULL;
        pool->fn(pool->context, worker->index, pool->n);
        barrier_wait(&pool->gate);
    }
}

static int start_workers(Pool *pool, cvn_err *err)
{
    for (int i = 1; i < pool->n; i++) {
        Worker *worker = &pool->worker[i - 1];
        *worker = (Worker){.pool = pool, .index = i};
        int error = pthread_create(&worker->thread, NULL, work, worker);
        if (error)
            return err_set(err, CVN_EMEM,
                           "the system refused thread %d of %d (%s); ask for fewer threads", i + 1,
                           pool->n, strerror(error));
        pool->started++;
    }
    return CVN_OK;
}

Pool *pool_new(int n, cvn_err *err)
{
    if (n == 0)
        n = threads_available();
    if (n < 1 || n > THREADS_MAX) {
        err_set(err, CVN_EINVAL, "%d threads were asked for; give a number from 1 to %d", n,
                THREADS_MAX);
        return NULL;
    }
    Pool *pool = aligned_alloc(64, (sizeof *pool + 63) / 64 * 64);
    Worker *worker = calloc((size_t)n, sizeof *worker);
    if (!pool || !worker) {
        free(pool);
        free(worker);
        err_set(err, CVN_EMEM, "no memory for a pool of %d threads", n);
        return NULL;
    }
    memset(pool, 0, sizeof *pool);
    pool->n = n;
    pool->worker = worker;
    barrier_init(&pool->gate, n);
    barrier_init(&pool->meet, n);
    if (start_workers(pool, err)) {
        pool_free(pool);
        return NULL;
    }
    return pool;
}

void pool_free(Pool *pool)
{
    if (!pool)
        return;
    /* Stands in for the workers that were never started, so that the gate opens for the others. */
    for (int i = pool->started + 1; i < pool->n; i++)
        atomic_fetch_add(&pool->gate.arrived, 1);
    pool->fn = NULL;
    barrier_wait(&pool->gate);
    for (int i = 0; i < pool->started; i++)
        pthread_join(pool->worker[i].thread, NULL);
    free(pool->worker);
    free(pool);
}

void pool_run(Pool *pool, PoolFn *fn, void *context)
{
    pool->fn = fn;
    pool->context = context;
    barrier_wait(&pool->gate);
    fn(context, 0, pool->n);
    barrier_wait(&pool->gate);
}

int pool_threads(const Pool *pool)
{
    return pool->n;
}

Barrier *pool_barrier(Pool *pool)
{
    return &pool->meet;
}

/* Processors in the affinity mask; the mask grows until the kernel is content with its size. */
static int affinity_count(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (!set)
            break;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int n = sched_getaffinity(0, bytes, set) ? 0 : CPU_COUNT_S(bytes, set);
        CPU_FREE(set);
        if (n > 0)
            return n;
        if (errno != EINVAL)
            break;
    }
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : n > THREADS_MAX ? THREADS_MAX : (int)n;
}

/* First line of DIRECTORY/NAME; false when it cannot be read. */
static bool read_line(const char *directory, const char *name, char *line, int size)
{
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", directory, name);
    if (n < 0 || (size_t)n >= sizeof path)
        return false;
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    bool ok = fgets(line, size, file) != NULL;
    fclose(file);
    return ok;
}

/* The smaller of `limit` and the quota said in one control group's directory, in processors rounded
 * up. */
static int quota_of(const char *directory, int limit)
{
    char line[128];
    double quota = 0, period = 0;
    if (read_line(directory, "cpu.max", line, sizeof line)) {
        char *rest = NULL;
        quota = strtod(line, &rest); /* "max 100000" reads as 0: no limit */
        period = strtod(rest, NULL);
    } else if (read_line(directory, "cpu.cfs_quota_us", line, sizeof line)) {
        quota = strtod(line, NULL); /* -1: no limit */
        if (read_line(directory, "cpu.cfs_period_us", line, sizeof line))
            period = strtod(line, NULL);
    }
    if (quota <= 0 || period <= 0 || quota / period >= limit)
        return limit;
    int whole = (int)(quota / period);
    whole += whole < quota / period;
    return whole < 1 ? 1 : whole;
}

/* Walks from this process's control group up to the root: every level's quota holds. A line of
   /proc/self/cgroup is "ID:CONTROLLERS:PATH"; version 2 has no controllers. */
static int cgroup_limit(int limit)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    if (!file)
        return limit;
    char line[PATH_MAX];
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        bool v2 = controllers[1] == 0;
        if (!v2 && !strstr(controllers, "cpu"))
            continue;
        char directory[PATH_MAX + 64];
        snprintf(directory, sizeof directory, "%s%s", v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu",
                 path);
        size_t root = strlen(v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu");
        for (;;) {
            limit = quota_of(directory, limit);
            char *slash = strrchr(directory, '/');
            if (strlen(directory) <= root || !slash)
                break;
            *slash = 0;
        }
    }
    fclose(file);
    return limit;
}

int threads_available(void)
{
    int n = cgroup_limit(affinity_count());
    return n > THREADS_MAX ? THREADS_MAX : n;
}

int64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
