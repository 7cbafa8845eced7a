/*
 * Communication behind computation: a stack of layers whose weights are split over the devices (FSDP) hides what can
 * be hidden, by the estimate of its schedule, within its memory, with the same bits; and plan_verify sees when a
 * collective under way is touched.
 */
#include "comm/account.h"
#include "mesh_support.h"
#include "random_schedule.h"
#include "schedule_bound.h"
#include "unit.h"

enum { DEVICES = 2, LAYERS = 12, ROWS = 64, WIDTH = 256 };

static const Link slow = {2e-6, 15e9}; /* a gather takes two thirds of a layer's product */

/* y = x w1 w2 …, forth and back as gradients go: rows of every w are split. */
static cvn_graph *fsdp_graph(void)
{
    static const int64_t ids[] = {0, 1};
    cvn_graph *g = cvn_graph_new("fsdp", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, ROWS, WIDTH)), *shard[LAYERS],
              *reduced[LAYERS];
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "w%d", i);
        shard[i] = cvn_parameter(g, name, CVN_TYPE(CVN_F32, WIDTH / DEVICES, WIDTH));
        cvn_value *w = cvn_all_gather(g, shard[i], 0, 1, DEVICES, ids);
        x = cvn_einsum(g, "be,ef->bf", x, w);
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        cvn_value *w = cvn_all_gather(g, shard[i], 0, 1, DEVICES, ids);
        cvn_value *dw = cvn_einsum(g, "be,bf->ef", x, x);
        reduced[i] = cvn_reduce_scatter(g, dw, CVN_SUM, 0, 1, DEVICES, ids);
        x = cvn_einsum(g, "bf,ef->be", x, w);
    }
    for (int i = 0; i < LAYERS; i++)
        cvn_output(g, cvn_add(g, shard[i], reduced[i]));
    cvn_output(g, x);
    return g;
}

static Plan *compile(const cvn_graph *g, int n_threads, bool blocking, Link link)
{
    cvn_err err = {0};
    Plan *plan = NULL;
    CompileOptions options = {
        .backend = cpu_kernels(), .n_threads = n_threads, .blocking = blocking, .link = link};
    must(cvn_graph_check(g, &err), &err);
    must(compile_verified(g, &options, &plan, &err), &err);
    return plan;
}

static void most_of_what_can_be_hidden_is_hidden_within_memory(void **state)
{
    cvn_graph *g = fsdp_graph();
    Plan *off = compile(g, 1, true, slow), *on = compile(g, 1, false, slow);
    ScheduleCost before = schedule_cost(off->graph, slow), after = schedule_cost(on->graph, slow);
    double can = before.exposed - schedule_bound(off->graph, slow, compute_seconds);
    print_message("compute %.0f us, link %.0f us; exposed %.0f us before, %.0f after; peak %.0f "
                  "KiB before, %.0f after\n",
                  before.compute * 1e6, before.link * 1e6, before.exposed * 1e6,
                  after.exposed * 1e6, before.peak / 1024, after.peak / 1024);
    assert_true(before.exposed > 0.99 * before.link);
    assert_true(before.exposed - after.exposed >= 0.8 * can);
    double gather = WIDTH * WIDTH * 4;
    assert_true(after.peak <= before.peak * 1.125 + 2 * gather);
    assert_true(on->arena_bytes <= off->arena_bytes + off->arena_bytes / 8 + 3 * (size_t)gather);
    plan_free(off);
    plan_free(on);
    cvn_graph_free(g);
}

/* Runs the plan on devices with a slow link; all outputs of all devices are copied to `bits`. Returns what one
   device's exchanges came to. */
static CommRow run(const Plan *plan, void **inputs, Link link, char *bits)
{
    cvn_err err = {0};
    Comm *comm = comm_new(DEVICES, NULL, &err);
    DeviceGroup *group = group_new(comm, 2, NULL, &err);
    void *out[DEVICES * (LAYERS + 1)];
    comm_set_link(comm, link);
    for (int step = 0; step < 3; step++)
        must(group_run(group, plan, inputs, out, &err), &err);
    for (int i = 0; i < DEVICES * plan->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&plan->output[i % plan->n_outputs].type);
        memcpy(bits, out[i], bytes);
        bits += bytes;
    }
    CommTable table;
    comm_table(comm, &table);
    group_free(group);
    comm_free(comm);
    return comm_table_sum(&table);
}

static void overlap_over_a_slow_link_gives_the_same_bits(void **state)
{
    Link link = {1e-3, 1e9};
    cvn_graph *g = fsdp_graph();
    Plan *off = compile(g, 2, true, link), *on = compile(g, 2, false, link);
    void **inputs = mesh_inputs(g, 5, DEVICES);
    size_t bytes = DEVICES * (size_t)(LAYERS + 2) * WIDTH * WIDTH * 4;
    char *want = calloc(1, bytes), *got = calloc(1, bytes);
    CommRow blocking = run(off, inputs, link, want), overlapped = run(on, inputs, link, got);
    assert_memory_equal(want, got, bytes);
    assert_true(blocking.bytes > 0 && blocking.bytes == overlapped.bytes);
    assert_int_equal(blocking.count, overlapped.count);
    /* A blocking collective waits out the whole link. */
    assert_true(blocking.exposed >= (double)blocking.count * link.latency);
    print_message("exposed of %lld exchanges: blocking %.1f ms, overlapped %.1f ms\n",
                  (long long)blocking.count, blocking.exposed * 1e3, overlapped.exposed * 1e3);
    free(want);
    free(got);
    random_free(inputs, DEVICES * g->n_parameters);
    plan_free(off);
    plan_free(on);
    cvn_graph_free(g);
}

static void any_order_of_collectives_gives_the_same_bits(void **state)
{
    cvn_err err = {0};
    Comm *comm = comm_new(DEVICES, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    int split = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        char why[256] = "";
        if (schedule_check(group, group, seed, &split, why, sizeof why))
            fail_msg("seed %d: %s", (int)seed, why);
    }
    assert_true(split > 400);
    group_free(group);
    comm_free(comm);
}

static int find_done(const Plan *plan, int from)
{
    while (from < plan->n_steps && plan->step[from].phase != STEP_DONE)
        from++;
    return from;
}

static void a_collective_under_way_that_is_touched_is_caught(void **state)
{
    cvn_graph *g = fsdp_graph();
    Plan *plan = compile(g, 1, false, slow);
    cvn_err err = {0};
    int done, faults = 0;
    for (done = find_done(plan, 0); done < plan->n_steps; done = find_done(plan, done + 1)) {
        int start = done - 1, use = done + 1;
        while (plan->step[start].op != plan->step[done].op)
            start--;
        /* Its end after its first use, at the latest at the end of the plan. */
        while (use < plan->n_steps) {
            bool uses = false;
            for (int k = 0; k < plan->step[use].op->n_operands; k++)
                uses = uses || ref_overlap(&plan->step[use].in[k], &plan->step[done].out[0]);
            if (uses)
                break;
            use++;
        }
        assert_true(use < plan->n_steps);
        Step moved = plan->step[done], first = plan->step[use];
        plan->step[done] = first;
        plan->step[use] = moved;
        assert_int_not_equal(plan_verify(plan, &err), CVN_OK);
        plan->step[done] = moved;
        plan->step[use] = first;
        /* A step in between that writes where bytes arrive. */
        for (int i = start + 1; i < done; i++) {
            Step *step = &plan->step[i];
            if (step->phase != STEP_WHOLE || step->out[0].bytes > moved.out[0].bytes)
                continue;
            BufferRef kept = step->out[0];
            step->out[0].offset = moved.out[0].offset;
            if (moved.out[0].space == kept.space) {
                assert_int_not_equal(plan_verify(plan, &err), CVN_OK);
                faults++;
            }
            step->out[0] = kept;
        }
        faults++;
    }
    assert_true(faults > LAYERS);
    assert_int_equal(plan_verify(plan, &err), CVN_OK);
    plan_free(plan);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(most_of_what_can_be_hidden_is_hidden_within_memory),
        cmocka_unit_test(overlap_over_a_slow_link_gives_the_same_bits),
        cmocka_unit_test(any_order_of_collectives_gives_the_same_bits),
        cmocka_unit_test(a_collective_under_way_that_is_touched_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
