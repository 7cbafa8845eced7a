/* The barrier and the pool: nobody passes early, everything written before is seen after, and
   neither more threads than processors nor an idle hour of microseconds in between breaks it. */
#include "base/threads.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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
    (void)state;
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
    (void)state;
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
    (void)state;
    for (int i = 0; i < 20; i++)
        pool_free(pool_new(1 + i % 5, NULL));
    pool_free(NULL);
}

static void bad_thread_counts_are_refused(void **state)
{
    (void)state;
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
    (void)state;
    int n = threads_available();
    assert_in_range(n, 1, THREADS_MAX);
    assert_true(n <= sysconf(_SC_NPROCESSORS_CONF));
    Pool *pool = pool_new(0, NULL);
    assert_non_null(pool);
    assert_int_equal(pool_threads(pool), n);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
