/* The barrier and the pool: nobody passes early, everything written before is seen after, and
   neither more threads than processors nor an idle hour of microseconds in between breaks it. */
#include "base/cores.h"
#include "base/helper.h"
#include "base/threads.h"
#include "unit.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

enum { ROUNDS = 300, MOST = 8 };

typedef struct Shared {
    Barrier *barrier;
    int slot[MOST];  /* plain memory: only the barrier orders its use */
    int wrong[MOST]; /* what each thread found amiss */
} Shared;

/* In each round a thread writes its slot, and after the barrier reads everybody's. */
static void write_meet_read(void *context, int thread, int n)
{
    Shared *shared = context;
    for (int round = 1; round <= ROUNDS; round++) {
        shared->slot[thread] = round;
        barrier_wait(shared->barrier);
        for (int i = 0; i < n; i++)
            shared->wrong[thread] += shared->slot[i] != round;
        barrier_wait(shared->barrier);
    }
}

static void a_barrier_orders_what_was_written_before_it(void **state)
{
    for (int n = 1; n <= MOST; n++) {
        Pool *pool = pool_new(n, NULL);
        assert_non_null(pool);
        assert_int_equal(pool_threads(pool), n);
        Shared shared = {.barrier = pool_barrier(pool)};
        pool_run(pool, write_meet_read, &shared);
        for (int i = 0; i < n; i++)
            assert_int_equal(shared.wrong[i], 0);
        pool_free(pool);
    }
}

static void count(void *context, int thread, int n)
{
    int *ran = context; /* [n] */
    (void)n;
    ran[thread]++;
}

static void every_thread_runs_once_per_call_also_after_a_rest(void **state)
{
    Pool *pool = pool_new(4, NULL);
    assert_non_null(pool);
    int ran[4] = {0};
    for (int i = 0; i < 200; i++) {
        pool_run(pool, count, ran);
        if (i % 50 == 0)
            usleep(2000); /* long enough for the workers to fall asleep */
        for (int t = 0; t < 4; t++)
            assert_int_equal(ran[t], i + 1);
    }
    pool_free(pool);
}

static void a_pool_that_never_ran_ends(void **state)
{
    for (int i = 0; i < 20; i++)
        pool_free(pool_new(1 + i % 5, NULL));
    pool_free(NULL);
}

static void bad_thread_counts_are_refused(void **state)
{
    const int bad[] = {-1, THREADS_MAX + 1};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        cvn_err err = {0};
        assert_null(pool_new(bad[i], &err));
        assert_int_equal(err.code, CVN_EINVAL);
        assert_non_null(strstr(err.message, "threads"));
    }
}

static void the_default_is_what_the_machine_allows(void **state)
{
    int n = threads_available();
    assert_in_range(n, 1, THREADS_MAX);
    assert_true(n <= sysconf(_SC_NPROCESSORS_CONF));
    Pool *pool = pool_new(0, NULL);
    assert_non_null(pool);
    assert_int_equal(pool_threads(pool), n);
    pool_free(pool);
}

static void a_run_on_some_threads_leaves_the_others_alone(void **state)
{
    Pool *pool = pool_new(4, NULL);
    assert_non_null(pool);
    int ran[4] = {0}, wanted[4] = {0};
    for (int i = 0; i < 200; i++) {
        int n = 1 + i * 7 % 4;
        pool_run_on(pool, n, count, ran);
        for (int t = 0; t < 4; t++) {
            wanted[t] += t < n;
            assert_int_equal(ran[t], wanted[t]);
        }
        Shared shared = {.barrier = pool_barrier(pool)};
        if (i < 8) {
            pool_run_on(pool, n, write_meet_read, &shared);
            for (int t = 0; t < 4; t++)
                assert_int_equal(shared.wrong[t], 0);
        }
    }
    pool_free(pool);
}

/* Thread 0 keeps the others waiting long enough for all of them to fall asleep. */
static void dawdle(void *context, int thread, int n)
{
    Barrier *barrier = context;
    (void)n;
    for (int i = 0; i < 3; i++) {
        if (thread == 0)
            usleep(2000);
        barrier_wait(barrier);
    }
}

static void who_waits_long_sleeps(void **state)
{
    Pool *pool = pool_new(3, NULL);
    assert_non_null(pool);
    assert_int_equal(pool_slept(pool), 0);
    pool_run(pool, dawdle, pool_barrier(pool));
    assert_in_range(pool_slept(pool), 2000000,
                    INT64_MAX); /* two threads, three times two milliseconds */
    pool_free(pool);
}

/* Leaves only the first processor of the mask, as taskset does; false where that cannot be. */
static bool only_one_processor(cpu_set_t *before)
{
    if (sched_getaffinity(0, sizeof *before, before))
        return false;
    int first = 0;
    while (first < CPU_SETSIZE && !CPU_ISSET(first, before))
        first++;
    return first < CPU_SETSIZE && cores_bind(first);
}

static void the_affinity_mask_counts_and_threads_that_do_not_fit_it_are_not_bound(void **state)
{
    cpu_set_t before;
    if (!only_one_processor(&before))
        skip();
    Cores cores;
    cores_find(&cores);
    assert_int_equal(cores.n, 1);
    assert_int_equal(cores.n_processors, 1);
    assert_int_equal(threads_available(), 1);
    Pool *pool = pool_new(0, NULL);
    assert_int_equal(pool_threads(pool), 1);
    pool_free(pool);
    pool = pool_new(4, NULL);
    assert_non_null(pool);
    assert_false(pool_pinned(pool));
    int ran[4] = {0};
    pool_run(pool, count, ran);
    for (int t = 0; t < 4; t++)
        assert_int_equal(ran[t], 1);
    pool_free(pool);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void where_am_i(void *context, int thread, int n)
{
    int *cpu = context; /* [n] */
    (void)n;
    cpu[thread] = sched_getcpu();
}

static void a_thread_per_core_is_bound_and_the_caller_keeps_its_mask(void **state)
{
    Cores cores;
    cores_find(&cores);
    cpu_set_t before, after;
    if (!cores.known || cores.n_cores < 2 || sched_getaffinity(0, sizeof before, &before))
        skip();
    Pool *pool = pool_new(cores.n_cores, NULL);
    assert_non_null(pool);
    assert_true(pool_pinned(pool));
    int cpu[CORES_MAX];
    pool_run(pool, where_am_i, cpu);
    for (int t = 1; t < cores.n_cores; t++)
        assert_int_equal(cpu[t], cores.cpu[t]);
    pool_free(pool);
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));

    pool = pool_new(cores.n_cores + 1, NULL);
    assert_false(pool_pinned(pool));
    pool_free(pool);
    setenv("CARAVAN_PIN", "0", 1);
    pool = pool_new(cores.n_cores, NULL);
    assert_false(pool_pinned(pool));
    pool_free(pool);
    unsetenv("CARAVAN_PIN");
}

typedef struct Pending {
    HelperThread *helper;
    int written, wrong; /* plain memory: only waiting orders its use */
} Pending;

static void write_later(void *context)
{
    usleep(1000);
    ((Pending *)context)->written++;
}

static void wait_and_read(void *context, int thread, int n)
{
    Pending *pending = context;
    helper_wait(pending->helper);
    if (pending->written != 1)
        pending->wrong += thread + n;
    helper_wait(pending->helper);
}

static void what_a_helper_thread_did_is_seen_by_all_who_waited(void **state)
{
    (void)state;
    Pending pending = {.helper = helper_new(NULL)};
    Pool *pool = pool_new(3, NULL);
    helper_wait(pending.helper); /* for nothing */
    for (int i = 0; i < 20; i++) {
        pending.written = 0;
        helper_start(pending.helper, write_later, &pending);
        pool_run(pool, wait_and_read, &pending);
    }
    assert_int_equal(pending.wrong, 0);
    pending.written = 0;
    helper_start(pending.helper, write_later, &pending);
    helper_free(pending.helper); /* in the midst of it */
    assert_int_equal(pending.written, 1);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_barrier_orders_what_was_written_before_it),
        cmocka_unit_test(every_thread_runs_once_per_call_also_after_a_rest),
        cmocka_unit_test(a_pool_that_never_ran_ends),
        cmocka_unit_test(bad_thread_counts_are_refused),
        cmocka_unit_test(the_default_is_what_the_machine_allows),
        cmocka_unit_test(a_run_on_some_threads_leaves_the_others_alone),
        cmocka_unit_test(who_waits_long_sleeps),
        cmocka_unit_test(what_a_helper_thread_did_is_seen_by_all_who_waited),
        cmocka_unit_test(the_affinity_mask_counts_and_threads_that_do_not_fit_it_are_not_bound),
        cmocka_unit_test(a_thread_per_core_is_bound_and_the_caller_keeps_its_mask),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
