/* The memory planner on random lifetimes: no overlap by brute force, and how close it comes to the
 * bound. */
#include "compile/memory.h"
#include "splitmix.h"
#include "unit.h"

#include <stdbool.h>

enum { MOST = 120 };

static bool live_together(const Lifetime *a, const Lifetime *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool share_bytes(const Lifetime *a, const Lifetime *b)
{
    return a->bytes && b->bytes && a->offset < b->offset + b->bytes &&
           b->offset < a->offset + a->bytes;
}

/* Chains like a network's: most buffers die soon, a few live long; sizes in a handful of classes. */
static int random_lifetimes(uint64_t *seed, Lifetime *buffer)
{
    int n = 1 + draw(seed, MOST);
    for (int i = 0; i < n; i++) {
        int life = draw(seed, 8) ? draw(seed, 4) : draw(seed, 2 * n);
        buffer[i] = (Lifetime){.first = i, .last = i + life, .offset = 12345};
        switch (draw(seed, 6)) {
        case 0:
            buffer[i].bytes = (size_t)draw(seed, 3);
            break;
        case 1:
            buffer[i].bytes = (size_t)draw(seed, 100000);
            break;
        default:
            buffer[i].bytes = (size_t)4096 << draw(seed, 4);
        }
    }
    return n;
}

static size_t brute_force_peak(const Lifetime *buffer, int n)
{
    size_t peak = 0;
    for (int i = 0; i < n; i++) { /* the peak is reached where some buffer begins */
        size_t alive = 0;
        for (int j = 0; j < n; j++)
            if (buffer[j].first <= buffer[i].first && buffer[i].first <= buffer[j].last)
                alive += (buffer[j].bytes + MEMORY_ALIGN - 1) / MEMORY_ALIGN * MEMORY_ALIGN;
        peak = alive > peak ? alive : peak;
    }
    return peak;
}

static void buffers_alive_together_never_overlap(void **state)
{
    double worst = 1, sum = 0;
    enum { CASES = 500 };
    for (int trial = 0; trial < CASES; trial++) {
        uint64_t seed = (uint64_t)trial;
        Lifetime buffer[MOST];
        int n = random_lifetimes(&seed, buffer);
        MemoryPlan plan;
        assert_int_equal(memory_plan(buffer, n, &plan, NULL), CVN_OK);
        for (int i = 0; i < n; i++) {
            if (buffer[i].offset % MEMORY_ALIGN || buffer[i].offset + buffer[i].bytes > plan.total)
                fail_msg("seed %d: buffer %d is out of place", trial, i);
            for (int j = 0; j < i; j++)
                if (live_together(&buffer[i], &buffer[j]) && share_bytes(&buffer[i], &buffer[j]))
                    fail_msg("seed %d: buffers %d and %d overlap", trial, j, i);
        }
        assert_int_equal(plan.lower_bound, brute_force_peak(buffer, n));
        assert_true(plan.total >= plan.lower_bound);
        double ratio = plan.lower_bound ? (double)plan.total / (double)plan.lower_bound : 1;
        worst = ratio > worst ? ratio : worst;
        sum += ratio;
    }
    print_message("arena / lower bound over %d cases: mean %.4f, worst %.3f\n", CASES, sum / CASES,
                  worst);
    assert_true(sum / CASES < 1.03);
    assert_true(worst < 1.5);
}

static void the_example_of_the_header_is_placed_as_drawn(void **state)
{
    Lifetime buffer[] = {{.bytes = 4 * 64, .first = 0, .last = 1},
                         {.bytes = 2 * 64, .first = 1, .last = 2},
                         {.bytes = 2 * 64, .first = 3, .last = 3}};
    MemoryPlan plan;
    assert_int_equal(memory_plan(buffer, 3, &plan, NULL), CVN_OK);
    assert_int_equal(buffer[0].offset, 0);
    assert_int_equal(buffer[1].offset, 4 * 64);
    assert_int_equal(buffer[2].offset, 0);
    assert_int_equal(plan.total, 6 * 64);
    assert_int_equal(plan.lower_bound, 6 * 64);
}

static void nothing_takes_nothing(void **state)
{
    MemoryPlan plan;
    assert_int_equal(memory_plan(NULL, 0, &plan, NULL), CVN_OK);
    assert_int_equal(plan.total, 0);
    Lifetime empty = {.bytes = 0, .first = 2, .last = 5, .offset = 99};
    assert_int_equal(memory_plan(&empty, 1, &plan, NULL), CVN_OK);
    assert_int_equal(plan.total, 0);
    assert_int_equal(empty.offset, 0);
}

static void sizes_that_overflow_are_refused(void **state)
{
    Lifetime buffer[] = {{.bytes = SIZE_MAX / 3, .first = 0, .last = 1},
                         {.bytes = SIZE_MAX / 3, .first = 0, .last = 1}};
    MemoryPlan plan;
    cvn_err err = {0};
    assert_int_equal(memory_plan(buffer, 2, &plan, &err), CVN_EMEM);
    assert_non_null(strstr(err.message, "address space"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buffers_alive_together_never_overlap),
        cmocka_unit_test(the_example_of_the_header_is_placed_as_drawn),
        cmocka_unit_test(nothing_takes_nothing),
        cmocka_unit_test(sizes_that_overflow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
