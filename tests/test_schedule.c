/*
 * Communication behind computation: a stack of layers whose weights are split over the devices (FSDP) hides what can
 * be hidden, by the estimate of its schedule, within its memory, with the same bits; and plan_verify sees when a
 * collective under way is touched.
 */
#include "mesh_support.h"
#include "schedule_bound.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { DEVICES = 2, LAYERS = 12, ROWS = 64, WIDTH = 256 };

static const Link slow = {20e-6, 1.5e9}; /* a gather takes two thirds of a layer's product */

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
    CompileOptions options = {.backend = cpu_backend(),
                              .n_threads = n_threads,
                              .blocking = blocking,
                              .link = link,
                              .verify_plan = true};
    if (cvn_graph_check(g, &err) || compile_graph(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    return plan;
}

static void most_of_what_can_be_hidden_is_hidden_within_memory(void **state)
{
    (void)state;
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

/* Runs the plan on devices with a slow link; all outputs of all devices are copied to `bits`. */
static CommStats run(const Plan *plan, void **inputs, Link link, char *bits)
{
    cvn_err err = {0};
    Comm *comm = comm_new(DEVICES, NULL, &err);
    DeviceGroup *group = group_new(comm, 2, NULL, &err);
    void *out[DEVICES * (LAYERS + 1)];
    comm_set_link(comm, link);
    for (int step = 0; step < 3; step++)
        if (group_run(group, plan, inputs, out, &err))
            fail_msg("%s", err.message);
    for (int i = 0; i < DEVICES * plan->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&plan->output[i % plan->n_outputs].type);
        memcpy(bits, out[i], bytes);
        bits += bytes;
    }
    CommStats stats = comm_stats(comm);
    group_free(group);
    comm_free(comm);
    return stats;
}

static void overlap_over_a_slow_link_gives_the_same_bits(void **state)
{
    (void)state;
    Link link = {1e-3, 1e9};
    cvn_graph *g = fsdp_graph();
    Plan *off = compile(g, 2, true, link), *on = compile(g, 2, false, link);
    void **inputs = mesh_inputs(g, 5, DEVICES);
    size_t bytes = DEVICES * (size_t)(LAYERS + 2) * WIDTH * WIDTH * 4;
    char *want = calloc(1, bytes), *got = calloc(1, bytes);
    CommStats blocking = run(off, inputs, link, want), overlapped = run(on, inputs, link, got);
    assert_memory_equal(want, got, bytes);
    assert_int_equal(blocking.bytes, overlapped.bytes);
    assert_int_equal(blocking.exchanges, overlapped.exchanges);
    /* A blocking collective waits out the whole link. */
    assert_true(blocking.wait_ns >= blocking.exchanges * 1000000);
    print_message("waits of %lld exchanges: blocking %.1f ms, overlapped %.1f ms\n",
                  (long long)blocking.exchanges, (double)blocking.wait_ns * 1e-6,
                  (double)overlapped.wait_ns * 1e-6);
    free(want);
    free(got);
    random_free(inputs, DEVICES * g->n_parameters);
    plan_free(off);
    plan_free(on);
    cvn_graph_free(g);
}

/* One of the values made so far; the later ones more often. */
static cvn_value *pick(uint64_t *state, cvn_value *const *made, int n)
{
    int back = draw(state, 2) ? draw(state, n) : draw(state, n < 6 ? n : 6);
    return made[n - 1 - back];
}

/* Makes [8, 8] of one or two of the same shape. */
static cvn_value *random_piece(cvn_graph *g, uint64_t *state, cvn_value *x, cvn_value *y)
{
    static const int64_t ids[] = {0, 1}, flat[] = {64}, square[] = {8, 8}, pairs[] = {0, 1, 1, 0};
    static const int swap[] = {1, 0};
    char name[24];
    switch (draw(state, 13)) {
    case 0: /* parameters may be made anywhere */
        snprintf(name, sizeof name, "p%d", g->n_parameters);
        return cvn_parameter(g, name, CVN_TYPE(CVN_F32, 8, 8));
    case 1:
        return cvn_convert(g, cvn_convert(g, x, CVN_BF16), CVN_F32);
    case 2:
        return cvn_transpose(g, x, swap);
    case 3:
        return cvn_reshape(g, cvn_reshape(g, x, 1, flat), 2, square);
    case 4:
        return cvn_slice_axis(g, cvn_all_gather(g, x, 0, 1, DEVICES, ids), 0, 5, 13);
    case 5:
        x = cvn_convert(g, x, CVN_BF16);
        return cvn_convert(g, cvn_slice_axis(g, cvn_all_gather(g, x, 1, 1, DEVICES, ids), 1, 3, 11),
                           CVN_F32);
    case 6:
        return cvn_all_reduce(g, x, CVN_SUM, 1, DEVICES, ids);
    case 7:
        x = cvn_reduce_scatter(g, x, CVN_MAX, 0, 1, DEVICES, ids);
        return cvn_all_gather(g, x, 0, 1, DEVICES, ids);
    case 8:
        return cvn_reshape(g, cvn_all_to_all(g, x, 0, 1, 1, DEVICES, ids), 2, square);
    case 9:
        return cvn_collective_permute(g, x, 2, pairs);
    case 10:
        return cvn_tanh(g, cvn_einsum(g, "ij,jk->ik", x, y));
    default:
        return cvn_tanh(g, cvn_add(g, x, y));
    }
}

/* Collectives of parameters, of what prepares them, of what was computed just now and long ago, and of each other;
   some parameters are written. */
static cvn_graph *random_schedule(uint64_t seed)
{
    enum { PIECES = 40 };
    cvn_graph *g = cvn_graph_new("random", NULL);
    cvn_value *made[PIECES] = {cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 8, 8))};
    for (int n = 1; n < PIECES; n++) {
        cvn_value *x = pick(&seed, made, n), *y = pick(&seed, made, n);
        made[n] = random_piece(g, &seed, x, y);
    }
    for (int i = 0; i < g->n_parameters; i++)
        if (draw(&seed, 3) == 0)
            cvn_output_into(g, pick(&seed, made, PIECES), g->parameter[i]);
    for (int i = 0; i < 3; i++)
        cvn_output(g, pick(&seed, made, PIECES));
    return g;
}

/* Runs a plan twice on the group; outputs and all parameters afterwards go to `bits` [devices * values * 64]. */
static void run_twice(DeviceGroup *group, const cvn_graph *g, const Plan *plan, uint64_t seed,
                      float *bits)
{
    cvn_err err = {0};
    void **inputs = mesh_inputs(g, seed, DEVICES);
    void **out = calloc((size_t)(DEVICES * g->n_outputs) + 1, sizeof *out);
    for (int i = 0; i < DEVICES * g->n_parameters; i++) /* numbers that stay in range */
        for (int k = 0; k < 64; k++)
            ((float *)inputs[i])[k] = (float)((i * 37 + k * 11) % 64 - 32) / 64;
    for (int step = 0; step < 2; step++)
        if (group_run(group, plan, inputs, out, &err))
            fail_msg("seed %d: %s", (int)seed, err.message);
    for (int i = 0; i < DEVICES * g->n_outputs; i++, bits += 64)
        memcpy(bits, out[i], 256);
    for (int i = 0; i < DEVICES * g->n_parameters; i++, bits += 64)
        memcpy(bits, inputs[i], 256);
    random_free(inputs, DEVICES * g->n_parameters);
    free(out);
}

static void any_order_of_collectives_gives_the_same_bits(void **state)
{
    (void)state;
    static const Link links[] = {{0, 0}, {1e-9, 0}, {1e-7, 1e9}, {1e-3, 1e9}};
    cvn_err err = {0};
    Comm *comm = comm_new(DEVICES, NULL, &err);
    DeviceGroup *group = group_new(comm, 1, NULL, &err);
    int split = 0;
    for (uint64_t seed = 0; seed < 400; seed++) {
        cvn_graph *g = random_schedule(seed);
        size_t n = (size_t)DEVICES * (size_t)(g->n_outputs + g->n_parameters) * 64;
        float *want = calloc(n, sizeof *want), *got = calloc(n, sizeof *got);
        Plan *off = compile(g, 1, true, links[seed % 4]),
             *on = compile(g, 1, false, links[seed % 4]);
        for (int i = 0; i < on->n_steps; i++)
            split += on->step[i].phase == STEP_START;
        run_twice(group, g, off, seed, want);
        run_twice(group, g, on, seed, got);
        if (memcmp(want, got, n * sizeof *want))
            fail_msg("seed %d: other bits", (int)seed);
        free(want);
        free(got);
        plan_free(off);
        plan_free(on);
        cvn_graph_free(g);
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
    (void)state;
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
