/* The cache of plans and its counters; dumps; profiles. */
#include "compile/cache.h"

#include "cpu/device.h"
#include "cpu/registry.h"
#include "cpu/trace.h"
#include "scratch.h"
#include "unit.h"

#include <stdbool.h>
#include <unistd.h>

#include <jansson.h>

enum { N = 64 };

/* A step that adds `number` to its state: in place, or not. */
static cvn_graph *counter_graph(double number, bool donate)
{
    cvn_graph *g = cvn_graph_new("count", NULL);
    cvn_value *state = cvn_parameter(g, "state", CVN_TYPE(CVN_F32, N));
    cvn_value *next = cvn_add(g, state, cvn_splat(g, CVN_TYPE(CVN_F32, N), number));
    if (donate)
        cvn_output_into(g, next, state);
    else
        cvn_output(g, next);
    return g;
}

static void a_graph_is_compiled_once(void **state)
{
    Device *device = device_new(2, NULL, NULL);
    assert_non_null(device);
    CompileOptions options = {.backend = device->backend, .n_threads = 2};
    Cache cache;
    assert_int_equal(cache_init(&cache, &options, NULL), CVN_OK);
    float data[N] = {0};
    void *const parameters[] = {data};
    for (int i = 0; i < 50; i++) {
        cvn_graph *g =
            counter_graph(1, true); /* made anew: known by what it says, not by where it is */
        const Plan *plan;
        assert_int_equal(cache_get(&cache, g, NULL, &plan, NULL), CVN_OK);
        cvn_graph_free(g);
        void *output;
        assert_int_equal(executor_run(device, plan, parameters, &output, NULL), CVN_OK);
        assert_ptr_equal(output, data); /* its address never changes */
        assert_true(data[N - 1] == (float)(i + 1));
    }
    assert_int_equal(cache.compilations, 1);
    assert_int_equal(cache.hits, 49);
    cache_free(&cache);
    device_free(device);
}

static void what_differs_is_compiled_again(void **state)
{
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1};
    Cache cache;
    assert_int_equal(cache_init(&cache, &options, NULL), CVN_OK);
    const Plan *seen[4];
    for (int i = 0; i < 4; i++) {
        cvn_graph *g = counter_graph(1 + 1e-15 * (i / 2), i % 2); /* rounds to 1 in f32 */
        assert_int_equal(cache_get(&cache, g, NULL, &seen[i], NULL), CVN_OK);
        cvn_graph_free(g);
    }
    assert_int_equal(cache.compilations, 2); /* donation counts, the unrounded number does not */
    assert_ptr_equal(seen[0], seen[2]);
    assert_true(seen[0] != seen[1]);
    cvn_graph *other = counter_graph(2, false);
    assert_int_equal(cache_get(&cache, other, NULL, &seen[0], NULL), CVN_OK);
    assert_int_equal(cache.compilations, 3);
    cvn_graph_free(other);
    cache_free(&cache);
}

static void a_graph_that_does_not_compile_is_not_kept(void **state)
{
    const KernelSet none = {.name = "none"};
    CompileOptions options = {.backend = &none, .n_threads = 1};
    Cache cache;
    assert_int_equal(cache_init(&cache, &options, NULL), CVN_OK);
    cvn_graph *g = cvn_graph_new("apart", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 8));
    cvn_output(g, cvn_all_reduce(g, x, CVN_SUM, 1, 2, (int64_t[]){0, 1}));
    for (int i = 0; i < 2; i++) {
        const Plan *plan;
        cvn_err err = {0};
        assert_int_equal(cache_get(&cache, g, NULL, &plan, &err), CVN_EUNSUPPORTED);
        assert_null(plan);
        assert_non_null(strstr(err.message, "all_reduce"));
    }
    assert_int_equal(cache.compilations, 2);
    cvn_graph_free(g);
    cache_free(&cache);
    cache_free(&(Cache){0});
}

/* ---- files ---- */

static void dumps_are_numbered_and_end_with_the_plan(void **state)
{
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 1, .dump_dir = scratch};
    cvn_graph *g = counter_graph(1, true);
    Plan *plan;
    assert_int_equal(compile_graph(g, &options, &plan, NULL), CVN_OK);
    static const char *const want[][2] = {{"00-input.txt", "graph @count"},
                                          {"01-simplify.txt", "add %"},
                                          {"04-decompose.txt", "return"},
                                          {"05-fuse.txt", "return"},
                                          {"06-plan.txt", "-> f32[64] at state"}};
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        char path[256], text[4096] = {0};
        snprintf(path, sizeof path, "%s/count/%s", scratch, want[i][0]);
        FILE *file = fopen(path, "r");
        if (!file)
            fail_msg("%s is not there", path);
        assert_true(fread(text, 1, sizeof text - 1, file) > 0);
        fclose(file);
        if (!strstr(text, want[i][1]))
            fail_msg("%s has no '%s'", path, want[i][1]);
    }
    plan_free(plan);
    options.dump_dir = "/proc/nowhere";
    cvn_err err = {0};
    assert_int_equal(compile_graph(g, &options, &plan, &err), CVN_EIO);
    assert_non_null(strstr(err.message, "/proc/nowhere"));
    cvn_graph_free(g);
}

/* Three products in a row, run `runs` times under a profile with room for `events` per thread. */
static json_t *profiled(int n_threads, int runs, size_t events, size_t *dropped)
{
    Device *device = device_new(n_threads, NULL, NULL);
    assert_non_null(device);
    cvn_graph *g = cvn_graph_new("say \"hi\"\n", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, N, N));
    cvn_value *y = x;
    for (int i = 0; i < 3; i++)
        y = cvn_einsum(g, "ij,jk->ik", y, x);
    cvn_output(g, y);
    CompileOptions options = {.backend = device->backend, .n_threads = n_threads};
    Plan *plan;
    assert_int_equal(compile_graph(g, &options, &plan, NULL), CVN_OK);
    Trace *recorded = trace_begin(&device, 1, events, NULL);
    assert_non_null(recorded);
    static float data[N * N];
    void *const parameters[] = {data};
    for (int i = 0; i < runs; i++)
        assert_int_equal(executor_run(device, plan, parameters, NULL, NULL), CVN_OK);
    char path[256];
    snprintf(path, sizeof path, "%s/profile.json", scratch);
    assert_int_equal(trace_write(recorded, NULL, path, NULL), CVN_OK);
    *dropped = profile_dropped(device->profile);
    trace_free(recorded);
    plan_free(plan);
    cvn_graph_free(g);
    device_free(device);
    json_error_t error;
    json_t *trace = json_load_file(path, 0, &error);
    if (!trace)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    return trace;
}

static void a_profile_has_a_slice_per_step_and_thread(void **state)
{
    size_t dropped;
    /* Two runs: after three a busy machine may be given a run on fewer threads, to see whether that is faster. */
    json_t *trace = profiled(2, 2, 0, &dropped);
    assert_int_equal(dropped, 0);
    size_t i;
    json_t *event;
    int steps[2] = {0}, waits[2] = {0};
    double end[2] = {0};
    json_array_foreach(json_object_get(trace, "traceEvents"), i, event)
    {
        if (strcmp(json_string_value(json_object_get(event, "ph")), "X") != 0)
            continue;
        int tid = (int)json_integer_value(json_object_get(event, "tid"));
        double begin = json_number_value(json_object_get(event, "ts"));
        double duration = json_number_value(json_object_get(event, "dur"));
        const json_t *args = json_object_get(event, "args");
        assert_true(begin >= end[tid] - 0.002 && duration >= 0); /* in order, to the rounding */
        end[tid] = begin + duration;
        if (strcmp(json_string_value(json_object_get(event, "cat")), "wait") == 0) {
            waits[tid]++;
            continue;
        }
        steps[tid]++;
        assert_string_equal(json_string_value(json_object_get(event, "name")), "dot_general");
        assert_string_equal(json_string_value(json_object_get(args, "graph")), "say \"hi\"\n");
        assert_string_equal(json_string_value(json_object_get(args, "results")), "f32[64,64]");
        assert_int_equal(json_integer_value(json_object_get(args, "flops")), 2 * N * N * N);
        assert_int_equal(json_integer_value(json_object_get(args, "bytes")), 3 * N * N * 4);
    }
    for (int t = 0; t < 2; t++) {
        assert_int_equal(steps[t], 6);
        assert_int_equal(waits[t], 4);
    }
    json_decref(trace);
}

static void a_full_profile_says_what_it_dropped(void **state)
{
    size_t dropped;
    json_t *trace = profiled(1, 5, 4, &dropped);
    assert_int_equal(dropped, 11);
    const json_t *other = json_object_get(trace, "otherData");
    assert_int_equal(json_integer_value(json_object_get(other, "dropped_events")), 11);
    json_decref(trace);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_graph_is_compiled_once),
        cmocka_unit_test(what_differs_is_compiled_again),
        cmocka_unit_test(a_graph_that_does_not_compile_is_not_kept),
        cmocka_unit_test(dumps_are_numbered_and_end_with_the_plan),
        cmocka_unit_test(a_profile_has_a_slice_per_step_and_thread),
        cmocka_unit_test(a_full_profile_says_what_it_dropped),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
