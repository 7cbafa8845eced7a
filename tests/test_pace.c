/* The number of threads a plan runs on, against machines that are formulas: it ends at the fastest, stays there when
   nothing changes, and finds its way back when the machine does. */
#include "cpu/pace.h"
#include "unit.h"

/* Nanoseconds of a run on k threads, and the share of them that is waited. */
typedef struct Machine {
    double work;    /* that threads share */
    double meeting; /* of each run, for every thread but the first */
    double share;
} Machine;

static int64_t run(Pace *pace, const Machine *m)
{
    int k = pace_threads(pace);
    double ns = m->work / k + m->meeting * (k - 1);
    pace_add(pace, (int64_t)ns, (int64_t)(k > 1 ? ns * m->share : 0));
    return (int64_t)ns;
}

static int64_t runs(Pace *pace, const Machine *m, int n)
{
    int64_t ns = 0;
    for (int i = 0; i < n; i++)
        ns += run(pace, m);
    return ns;
}

static const Machine idle = {.work = 400e6};
static const Machine crowded = {.work = 400e6, .meeting = 900e6, .share = 0.9};
static const Machine tiny = {.work = 40e3, .meeting = 30e3};
static const Machine middle = {.work = 160e3, .meeting = 9e3}; /* 4 threads are best */

static void an_idle_machine_uses_all_threads_and_tries_no_other(void **state)
{
    Pace pace;
    pace_init(&pace, 8);
    for (int i = 0; i < 5000; i++) {
        assert_int_equal(pace_threads(&pace), 8);
        run(&pace, &idle);
    }
}

static void short_runs_end_on_the_number_that_is_fastest_and_rarely_try_others(void **state)
{
    const struct {
        const Machine *machine;
        int best;
    } table[] = {{&tiny, 1}, {&middle, 4}, {&(const Machine){.work = 400e3}, 8}};
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        const Machine *m = table[i].machine;
        Pace pace;
        pace_init(&pace, 8);
        runs(&pace, m, 3000);
        double best = m->work / table[i].best + m->meeting * (table[i].best - 1);
        int64_t ns = runs(&pace, m, 100000);
        assert_true((double)ns < 1.05 * best * 100000);
        int there = 0;
        for (int j = 0; j < 1000; j++) {
            there += pace_threads(&pace) == table[i].best;
            run(&pace, m);
        }
        assert_in_range(there, 700, 1000);
    }
}

static void threads_are_given_up_on_a_crowded_machine_and_taken_again_after(void **state)
{
    Pace pace;
    pace_init(&pace, 4);
    runs(&pace, &idle, 100);
    assert_int_equal(pace_threads(&pace), 4);
    runs(&pace, &crowded, 40);
    assert_int_equal(pace.threads, 1);
    runs(&pace, &crowded, 500);
    runs(&pace, &idle, 300); /* alone, this looks no different until a try says so */
    assert_int_equal(pace.threads, 4);
}

static void one_thread_is_one_thread(void **state)
{
    Pace pace;
    pace_init(&pace, 1);
    runs(&pace, &crowded, 100);
    assert_int_equal(pace_threads(&pace), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_idle_machine_uses_all_threads_and_tries_no_other),
        cmocka_unit_test(short_runs_end_on_the_number_that_is_fastest_and_rarely_try_others),
        cmocka_unit_test(threads_are_given_up_on_a_crowded_machine_and_taken_again_after),
        cmocka_unit_test(one_thread_is_one_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
