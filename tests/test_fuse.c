/* Fusion changes no bit, saves steps and memory, and keeps to what in-place results may lie over. */
#include "fuse_support.h"

#include "cpu/trace.h"
#include "train/optimizer.h"

#include <stdio.h>
#include <unistd.h>

enum { ROWS = 67, COLUMNS = 129, TENSORS = 5, VALUES = 64 };

static KernelSet plain;

static int make_plain(void **state)
{
    plain = plain_of(cpu_kernels());
    return 0;
}

static int below(uint32_t *state, int n)
{
    return (int)(next(state) % (uint32_t)n);
}

static cvn_value *any(cvn_value **v, int n, uint32_t *state)
{
    return v[below(state, n)];
}

static cvn_type wide(cvn_dtype dtype)
{
    return CVN_TYPE(dtype, ROWS, COLUMNS);
}

/* An elementwise operation on some of the f32 values so far; now and then one that is not. */
static cvn_value *grow(cvn_graph *g, cvn_value **v, int n, cvn_value *const small[3],
                       uint32_t *state)
{
    cvn_value *a = any(v, n, state), *b = any(v, n, state);
    switch (below(state, 20)) {
    case 0:
        return cvn_add(g, a, b);
    case 1:
        return cvn_multiply(g, a, cvn_splat(g, wide(CVN_F32), 0.75));
    case 2:
        return cvn_subtract(g, a, cvn_broadcast_in_dim(g, small[0], wide(CVN_F32), NULL));
    case 3:
        return cvn_multiply(g, a,
                            cvn_broadcast_in_dim(g, small[1], wide(CVN_F32), (const int[]){1}));
    case 4:
        return cvn_add(g, a, cvn_broadcast_in_dim(g, small[2], wide(CVN_F32), (const int[]){0}));
    case 5:
        return cvn_logistic(g, a);
    case 6:
        return cvn_convert(g, cvn_convert(g, a, CVN_BF16), CVN_F32);
    case 7:
        return cvn_select(g, cvn_compare_values(g, CVN_LT, a, b), b, a);
    case 8:
        return cvn_select(g, cvn_compare_values(g, CVN_GT, small[0], cvn_negate(g, small[0])), a,
                          b);
    case 9:
        return cvn_maximum(g, a, b);
    case 10: { /* a sum along rows, spread again */
        cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, a, 1, (const int[]){1});
        return cvn_add(g, b, cvn_broadcast_in_dim(g, sum, wide(CVN_F32), (const int[]){0}));
    }
    case 11: { /* through another shape */
        cvn_value *flat = cvn_reshape(g, a, 1, (const int64_t[]){ROWS * COLUMNS});
        return cvn_reshape(g, cvn_negate(g, flat), 2, (const int64_t[]){ROWS, COLUMNS});
    }
    case 12:
        return cvn_optimization_barrier(g, a);
    case 13: /* the other way round than case 8 */
        return cvn_select(g, cvn_compare_values(g, CVN_LT, small[0], cvn_negate(g, small[0])), a,
                          b);
    case 14: { /* computed in bf16 */
        cvn_value *half = cvn_convert(g, a, CVN_BF16);
        return cvn_convert(g, cvn_multiply(g, half, cvn_convert(g, b, CVN_BF16)), CVN_F32);
    }
    case 15:
        return cvn_subtract(g, any(v, n, state), cvn_multiply(g, a, b));
    case 16:
        return cvn_subtract(g, cvn_multiply(g, a, any(v, n, state)), b);
    case 17:
        return cvn_multiply(g, cvn_subtract(g, a, b), any(v, n, state));
    case 18:
        return cvn_divide(g, a,
                          cvn_add(g, cvn_sqrt(g, cvn_abs(g, b)), cvn_splat(g, wide(CVN_F32), 0.5)));
    default:
        return cvn_multiply(g, a, b);
    }
}

static cvn_graph *random_chain(uint32_t seed)
{
    cvn_graph *g = cvn_graph_new("chain", NULL);
    cvn_value *v[VALUES], *parameter[TENSORS];
    uint32_t state = seed * 2654435761u + 1;
    int n = 0, length = 3 + below(&state, 40);
    for (int i = 0; i < TENSORS; i++) {
        char name[] = {'p', (char)('0' + i), 0};
        v[n++] = parameter[i] = cvn_parameter(g, name, wide(CVN_F32));
    }
    cvn_value *small[] = {cvn_parameter(g, "scalar", cvn_scalar(CVN_F32)),
                          cvn_parameter(g, "row", CVN_TYPE(CVN_F32, COLUMNS)),
                          cvn_parameter(g, "column", CVN_TYPE(CVN_F32, ROWS))};
    for (int i = 0; i < length; i++, n++)
        v[n] = grow(g, v, n, small, &state);
    for (int i = 0; i < 3; i++)
        cvn_output(g, v[n - 1 - below(&state, 4)]);
    for (int i = 0; i < TENSORS; i++) /* some are updated in place */
        if (below(&state, 2))
            cvn_output_into(g, v[TENSORS + below(&state, length)], parameter[i]);
    return g;
}

static void fusion_changes_no_bit(void **state)
{
    int fusions = 0, fewer = 0, programs = 0;
    for (uint32_t seed = 0; seed < 120; seed++) {
        cvn_graph *g = random_chain(seed);
        Ran apart = run(g, &plain, 2), fused = run(g, cpu_kernels(), 1 + (int)seed % 3);
        assert_int_equal(apart.n_fusions, 0);
        assert_int_equal(apart.bytes, fused.bytes);
        if (memcmp(apart.data, fused.data, fused.bytes) != 0)
            fail_msg("seed %u: other bits when fused", seed);
        assert_true(fused.n_steps <= apart.n_steps);
        programs += fused.n_programs;
        fusions += fused.n_fusions;
        fewer += fused.n_steps < apart.n_steps;
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
    assert_true(fusions > 120 && fewer > 90 && programs > 60);
}

/* Every instruction set's programs give the bits of its own kernels. */
static void every_instruction_set_changes_no_bit(void **state)
{
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        if (!backend)
            continue;
        KernelSet apart_of = plain_of(backend);
        for (uint32_t seed = 200; seed < 230; seed++) {
            cvn_graph *g = random_chain(seed);
            Ran apart = run(g, &apart_of, 1), fused = run(g, backend, 2);
            if (memcmp(apart.data, fused.data, fused.bytes) != 0)
                fail_msg("%s, seed %u: other bits when fused", cpu_isa_name((CpuIsa)isa), seed);
            free(apart.data);
            free(fused.data);
            cvn_graph_free(g);
        }
    }
}

/* What a choice by a scalar keeps or replaces in place, as the optimizer's step does it: both ways, the same bits. */
static void a_choice_in_place_changes_no_bit(void **state)
{
    for (int taken = 0; taken < 2; taken++) {
        cvn_graph *g = cvn_graph_new("choice", NULL);
        cvn_type type = CVN_TYPE(CVN_F32, ROWS * COLUMNS);
        cvn_value *w = cvn_parameter(g, "w", type), *m = cvn_parameter(g, "m", type);
        cvn_value *d = cvn_parameter(g, "d", type), *s = cvn_parameter(g, "s", cvn_scalar(CVN_F32));
        cvn_value *updated = cvn_compare_values(g, taken ? CVN_EQ : CVN_NE, s, s);
        cvn_value *m1 = cvn_add(g, cvn_multiply(g, m, cvn_splat(g, type, 0.9)), d);
        cvn_value *w1 = cvn_subtract(g, w, cvn_multiply(g, m1, cvn_splat(g, type, 0.1)));
        cvn_value *late = cvn_multiply(g, w, m); /* reads both after they were replaced */
        cvn_output_into(g, cvn_select(g, updated, w1, w), w);
        cvn_output_into(g, cvn_select(g, updated, m1, m), m);
        cvn_output(g, late);
        Ran apart = run(g, &plain, 1), fused = run(g, cpu_kernels(), 2);
        assert_int_equal(fused.n_programs, 1);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

/* AdamW of one tensor: one step, in place, without memory but a tile for each thread. */
static void an_update_in_place_needs_no_memory(void **state)
{
    cvn_graph *g = cvn_graph_new("update", NULL);
    cvn_type type = CVN_TYPE(CVN_F32, 1 << 18);
    cvn_value *w = cvn_parameter(g, "w", type), *m = cvn_parameter(g, "m", type);
    cvn_value *v = cvn_parameter(g, "v", type), *d = cvn_parameter(g, "d", type);
    cvn_value *rate = cvn_broadcast_to(g, cvn_parameter(g, "rate", cvn_scalar(CVN_F32)), &type);
    cvn_value *m1 = cvn_add(g, m, cvn_multiply(g, cvn_subtract(g, d, m), cvn_splat(g, type, 0.1)));
    cvn_value *v1 = cvn_add(g, cvn_multiply(g, v, cvn_splat(g, type, 0.9)),
                            cvn_multiply(g, cvn_multiply(g, d, d), cvn_splat(g, type, 0.1)));
    cvn_value *step = cvn_divide(g, m1, cvn_add(g, cvn_sqrt(g, v1), cvn_splat(g, type, 1e-8)));
    cvn_output_into(g, cvn_subtract(g, w, cvn_multiply(g, rate, step)), w);
    cvn_output_into(g, m1, m);
    cvn_output_into(g, v1, v);
    Ran ran = run(g, cpu_kernels(), 2);
    assert_int_equal(ran.n_fusions, 1);
    assert_int_equal(ran.n_steps, 1);
    assert_true(ran.arena_bytes < 200000);
    free(ran.data);
    cvn_graph_free(g);
}

static void a_plan_and_a_profile_name_the_members(void **state)
{
    cvn_graph *g = cvn_graph_new("chain", NULL);
    cvn_type type = CVN_TYPE(CVN_F32, 1 << 16);
    cvn_value *x = cvn_parameter(g, "x", type);
    cvn_output(g, cvn_add(g, cvn_sqrt(g, x), x));
    Device *device = device_new(1, NULL, NULL);
    CompileOptions options = {.backend = device->backend, .n_threads = 1};
    Plan *plan;
    assert_int_equal(compile_graph(g, &options, &plan, NULL), CVN_OK);
    StrBuf text = {0};
    plan_print(&text, plan);
    assert_non_null(strstr(text.text, "of sqrt+add\n"));
    strbuf_free(&text);

    Trace *recorded = trace_begin(&device, 1, 0, NULL);
    assert_non_null(recorded);
    float *data = calloc(1 << 16, sizeof *data);
    assert_int_equal(executor_run(device, plan, (void *const[]){data}, NULL, NULL), CVN_OK);
    char path[] = "/tmp/caravan-fuse-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(trace_write(recorded, NULL, path, NULL), CVN_OK);
    char trace[8192];
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    trace[fread(trace, 1, sizeof trace - 1, in)] = 0;
    assert_non_null(strstr(trace, "\"region\":\"sqrt+add\""));
    fclose(in);
    close(file);
    unlink(path);
    free(data);
    trace_free(recorded);
    plan_free(plan);
    device_free(device);
    cvn_graph_free(g);
}

/* Heads that are widened, turned and rounded, and the gradient of logits that only its rounding reads: one step each. */
static void conversions_join_what_they_stand_beside(void **state)
{
    for (int threads = 1; threads <= 3; threads++) {
        cvn_graph *g = cvn_graph_new("rounded", NULL);
        cvn_value *heads = cvn_parameter(g, "heads", CVN_TYPE(CVN_BF16, 3, 7, 3, 34));
        cvn_value *freq = cvn_parameter(g, "freq", CVN_TYPE(CVN_F32, 17));
        cvn_value *position = cvn_iota(g, CVN_TYPE(CVN_I32, 3, 7), 1);
        cvn_value *turned = cvn_rope(g, cvn_convert(g, heads, CVN_F32), position, freq, false);
        cvn_output(g, cvn_convert(g, turned, CVN_BF16));
        cvn_type rows = CVN_TYPE(CVN_F32, 3, 7);
        cvn_value *logits = cvn_parameter(g, "logits", CVN_TYPE(CVN_F32, 3, 7, 531));
        cvn_value *lse = cvn_parameter(g, "lse", rows), *d = cvn_parameter(g, "d", rows);
        cvn_value *gradient =
            cvn_softmax_cross_entropy_backward(g, logits, position, lse, d, cvn_negate(g, d));
        cvn_output(g, cvn_convert(g, gradient, CVN_BF16));
        Ran apart = run(g, &plain, threads), joined = run(g, cpu_kernels(), threads);
        assert_int_equal(joined.n_steps, apart.n_steps - 3);
        assert_memory_equal(apart.data, joined.data, joined.bytes);
        free(apart.data);
        free(joined.data);
        cvn_graph_free(g);
    }
}

/* What simplification may not fold, because a barrier or a mark stands before it. */
static void a_fusion_may_read_nothing_but_splats(void **state)
{
    for (int marked = 0; marked < 2; marked++) {
        cvn_graph *g = cvn_graph_new("splat", NULL);
        cvn_value *splat = cvn_splat(g, wide(CVN_F32), 2);
        if (marked)
            cvn_mark_sharding(g, splat,
                              &(cvn_spec){.rank = 2, .dim = {{.n = 1, .axis = {"data"}}}});
        cvn_output(g, cvn_tanh(g, marked ? splat : cvn_optimization_barrier(g, splat)));
        Ran apart = run(g, &plain, 1), fused = run(g, cpu_kernels(), 2);
        assert_int_equal(fused.n_steps, 1);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

static void chains_go_through_reshapes_and_barriers(void **state)
{
    const int64_t flat[] = {ROWS * COLUMNS}, turned[] = {COLUMNS, ROWS};
    cvn_graph *g = cvn_graph_new("views", NULL);
    cvn_value *x = cvn_parameter(g, "x", wide(CVN_F32)), *v = cvn_tanh(g, x);
    v = cvn_negate(g, cvn_reshape(g, v, 1, flat));
    v = cvn_logistic(g, cvn_optimization_barrier(g, v));
    cvn_value *kept = cvn_reshape(g, v, 2, turned);
    v = cvn_add(g, kept, cvn_reshape(g, cvn_abs(g, x), 2, turned));
    cvn_output(g, cvn_reshape(g, cvn_convert(g, v, CVN_BF16), 1, flat));
    Ran apart = run(g, &plain, 1), fused = run(g, cpu_kernels(), 2);
    assert_int_equal(fused.n_steps, 1);
    assert_true(fused.arena_bytes < ROWS * COLUMNS * 4); /* the result, and no tensor between */
    assert_memory_equal(apart.data, fused.data, fused.bytes);
    free(apart.data);
    free(fused.data);
    /* what others read of it, under whatever shape, is there by then */
    cvn_output(g, cvn_reduce_dims(g, CVN_SUM, kept, 1, (const int[]){0}));
    apart = run(g, &plain, 1), fused = run(g, cpu_kernels(), 2);
    assert_int_equal(fused.n_steps, 2);
    assert_memory_equal(apart.data, fused.data, fused.bytes);
    free(apart.data);
    free(fused.data);
    cvn_graph_free(g);
}

/* More results than one fusion has. */
static void large_groups_are_split(void **state)
{
    cvn_graph *g = cvn_graph_new("many", NULL);
    cvn_value *x = cvn_parameter(g, "x", wide(CVN_F32)), *y = x;
    for (int i = 0; i < 60; i++) {
        y = cvn_add(g, y, x);
        cvn_output(g, y);
    }
    Ran apart = run(g, &plain, 1), fused = run(g, cpu_kernels(), 2);
    assert_true(fused.n_fusions >= 60 / TILE_RESULTS);
    assert_true(fused.n_steps < 20);
    assert_memory_equal(apart.data, fused.data, fused.bytes);
    free(apart.data);
    free(fused.data);
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fusion_changes_no_bit),
        cmocka_unit_test(every_instruction_set_changes_no_bit),
        cmocka_unit_test(a_choice_in_place_changes_no_bit),
        cmocka_unit_test(an_update_in_place_needs_no_memory),
        cmocka_unit_test(a_plan_and_a_profile_name_the_members),
        cmocka_unit_test(conversions_join_what_they_stand_beside),
        cmocka_unit_test(a_fusion_may_read_nothing_but_splats),
        cmocka_unit_test(chains_go_through_reshapes_and_barriers),
        cmocka_unit_test(large_groups_are_split),
    };
    return cmocka_run_group_tests(tests, make_plain, NULL);
}
