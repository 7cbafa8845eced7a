/* Fusion changes no bit, saves steps and memory, and keeps to what in-place results may lie over. */
#include "base/float16.h"
#include "compile/fuse.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/executor.h"
#include "cpu/registry.h"
#include "cpu/trace.h"
#include "grad/grad.h"
#include "graph/graph.h"
#include "train/optimizer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { KERNELS = 512, ROWS = 67, COLUMNS = 129, TENSORS = 5, VALUES = 64 };

/* A backend of which nothing is elementwise, or that has no kernel for fusions. */
typedef struct Plain {
    Backend backend;
    Kernel kernel[KERNELS];
    const Kernel *table[KERNELS];
} Plain;

static Plain plain, memberwise;

static void make_plain_of(const Backend *best, bool fuses, Plain *out)
{
    assert_true(best->n_kernels <= KERNELS);
    out->backend = *best;
    out->backend.kernel = out->table;
    out->backend.n_kernels = 0;
    for (int i = 0; i < best->n_kernels; i++) {
        if (fuses && best->kernel[i]->kind == OP_FUSION)
            continue;
        int n = out->backend.n_kernels++;
        out->kernel[n] = *best->kernel[i];
        out->kernel[n].elementwise = fuses && best->kernel[i]->elementwise;
        out->kernel[n].squares = fuses && best->kernel[i]->squares;
        out->kernel[n].converts = fuses && best->kernel[i]->converts;
        out->kernel[n].rounds = fuses && best->kernel[i]->rounds;
        out->kernel[n].adds = fuses && best->kernel[i]->adds;
        out->kernel[n].places = fuses && best->kernel[i]->places;
        out->kernel[n].copies = fuses && best->kernel[i]->copies;
        out->kernel[n].follows = NULL;
        out->kernel[n].terms = false;
        out->kernel[n].joins = fuses && best->kernel[i]->joins;
        out->table[n] = &out->kernel[n];
    }
}

static int make_plain(void **state)
{
    (void)state;
    make_plain_of(cpu_backend(), false, &plain);
    make_plain_of(cpu_backend(), true, &memberwise);
    return 0;
}

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
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

/* What a run gives: the outputs, one after the other. */
typedef struct Ran {
    char *data;
    size_t bytes;
    int n_steps, n_fusions, n_programs;
    int n_followed; /* products with a fusion behind them */
    int64_t floats; /* the most elements that an f32 result of a step has */
    size_t arena_bytes;
} Ran;

static Ran run(const cvn_graph *g, const Backend *backend, int threads)
{
    cvn_err err = {0};
    Plan *plan;
    CompileOptions options = {.backend = backend, .n_threads = threads, .verify_plan = true};
    if (compile_graph(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    Device *device = device_new(threads, backend, &err);
    assert_non_null(device);
    void **at = calloc((size_t)plan->n_parameters + 1, sizeof *at);
    void **out = calloc((size_t)plan->n_outputs + 1, sizeof *out);
    uint32_t state = 7;
    for (int i = 0; i < plan->n_parameters; i++) {
        at[i] = aligned_alloc(64, (plan->parameter[i].bytes + 63) / 64 * 64);
        for (size_t k = 0; k < plan->parameter[i].bytes / 4; k++)
            ((float *)at[i])[k] = (float)next(&state) * 0x1p-23f - 1.0f;
    }
    if (executor_run(device, plan, at, out, &err))
        fail_msg("%s", err.message);
    Ran ran = {.n_steps = plan->n_steps, .arena_bytes = plan->arena_bytes};
    for (int i = 0; i < plan->n_steps; i++) {
        ran.n_fusions += plan->step[i].op->kind == OP_FUSION;
        ran.n_followed += plan->step[i].op->kind == OP_DOT_GENERAL && plan->step[i].op->attr.fusion;
        ran.n_programs += strncmp(plan->step[i].kernel, "fusion.", 7) == 0;
        for (int k = 0; k < plan->step[i].op->n_results; k++) {
            const cvn_type *type = &plan->step[i].op->result[k]->type;
            int64_t n = type->dtype == CVN_F32 ? cvn_type_elements(type) : 0;
            ran.floats = n > ran.floats ? n : ran.floats;
        }
    }
    for (int i = 0; i < plan->n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&plan->output[i].type);
        ran.data = realloc(ran.data, ran.bytes + bytes);
        memcpy(ran.data + ran.bytes, out[i], bytes);
        ran.bytes += bytes;
    }
    for (int i = 0; i < plan->n_parameters; i++)
        free(at[i]);
    free(at);
    free(out);
    device_free(device);
    plan_free(plan);
    return ran;
}

static void fusion_changes_no_bit(void **state)
{
    (void)state;
    int fusions = 0, fewer = 0, programs = 0;
    for (uint32_t seed = 0; seed < 120; seed++) {
        cvn_graph *g = random_chain(seed);
        Ran apart = run(g, &plain.backend, 2), fused = run(g, cpu_backend(), 1 + (int)seed % 3);
        assert_int_equal(apart.n_fusions, 0);
        assert_int_equal(apart.bytes, fused.bytes);
        if (memcmp(apart.data, fused.data, fused.bytes) != 0)
            fail_msg("seed %u: other bits when fused", seed);
        assert_true(fused.n_steps <= apart.n_steps);
        Ran members = run(g, &memberwise.backend, 2);
        if (memcmp(apart.data, members.data, members.bytes) != 0)
            fail_msg("seed %u: other bits when fused, member by member", seed);
        assert_int_equal(members.n_programs, 0);
        free(members.data);
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
    (void)state;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, false, apart_of);
        for (uint32_t seed = 200; seed < 230; seed++) {
            cvn_graph *g = random_chain(seed);
            Ran apart = run(g, &apart_of->backend, 1), fused = run(g, backend, 2);
            if (memcmp(apart.data, fused.data, fused.bytes) != 0)
                fail_msg("%s, seed %u: other bits when fused", cpu_isa_name((CpuIsa)isa), seed);
            free(apart.data);
            free(fused.data);
            cvn_graph_free(g);
        }
        free(apart_of);
    }
}

/* What a choice by a scalar keeps or replaces in place, as the optimizer's step does it: both ways, the same bits. */
static void a_choice_in_place_changes_no_bit(void **state)
{
    (void)state;
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
        Ran apart = run(g, &plain.backend, 1), fused = run(g, cpu_backend(), 2);
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
    (void)state;
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
    Ran ran = run(g, cpu_backend(), 2);
    assert_int_equal(ran.n_fusions, 1);
    assert_int_equal(ran.n_steps, 1);
    assert_true(ran.arena_bytes < 200000);
    free(ran.data);
    cvn_graph_free(g);
}

static void a_plan_and_a_profile_name_the_members(void **state)
{
    (void)state;
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
    assert_non_null(strstr(text.text, "of sqrt, add\n"));
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
    assert_non_null(strstr(trace, "\"members\":\"sqrt, add\""));
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
    (void)state;
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
        Ran apart = run(g, &plain.backend, threads), joined = run(g, cpu_backend(), threads);
        assert_int_equal(joined.n_steps, apart.n_steps - 3);
        assert_memory_equal(apart.data, joined.data, joined.bytes);
        free(apart.data);
        free(joined.data);
        cvn_graph_free(g);
    }
}

/* Along rows, down columns, and of all: without a step for the squares. */
static void a_sum_of_squares_has_no_step_of_products(void **state)
{
    (void)state;
    static const int dims[] = {1, 0, 1}; /* {1}, {0}, {0, 1} */
    for (int i = 0; i < 3; i++) {
        cvn_graph *g = cvn_graph_new("squares", NULL);
        cvn_value *x = cvn_parameter(g, "x", wide(CVN_F32));
        cvn_output(g,
                   cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, x, x), 1 + i / 2, dims + (i > 0)));
        Ran apart = run(g, &plain.backend, 2), joined = run(g, cpu_backend(), 3);
        assert_int_equal(joined.n_steps, apart.n_steps - 1);
        assert_memory_equal(apart.data, joined.data, joined.bytes);
        free(apart.data);
        free(joined.data);
        cvn_graph_free(g);
    }
}

/* x [tokens, dim] times w [rows, dim], as a training step keeps it: rounded, read in f32. */
static cvn_value *kept_product(cvn_graph *g, cvn_value *x, cvn_value *w)
{
    cvn_value *y = cvn_einsum_as(g, "td,fd->tf", x, cvn_convert(g, w, CVN_BF16), CVN_F32);
    return cvn_convert(g, cvn_convert(g, y, CVN_BF16), CVN_F32);
}

/* SwiGLU of tokens, and the gradients of what it is made of. */
static cvn_graph *swiglu_graph(int64_t tokens, int64_t dim, int64_t ffn)
{
    cvn_graph *g = cvn_graph_new("swiglu", NULL);
    cvn_value *w[] = {cvn_parameter(g, "x", CVN_TYPE(CVN_F32, tokens, dim)),
                      cvn_parameter(g, "gate", CVN_TYPE(CVN_F32, ffn, dim)),
                      cvn_parameter(g, "up", CVN_TYPE(CVN_F32, ffn, dim)),
                      cvn_parameter(g, "down", CVN_TYPE(CVN_F32, dim, ffn))};
    cvn_value *x = cvn_convert(g, w[0], CVN_BF16), *dw[4];
    cvn_value *gate = kept_product(g, x, w[1]), *up = kept_product(g, x, w[2]);
    cvn_value *silu = cvn_multiply(g, gate, cvn_logistic(g, gate));
    cvn_value *inner = cvn_convert(g, cvn_multiply(g, silu, up), CVN_BF16);
    cvn_value *y = cvn_einsum_as(g, "tf,df->td", inner, cvn_convert(g, w[3], CVN_BF16), CVN_F32);
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, y, y), 2, (const int[]){0, 1});
    assert_int_equal(graph_gradient(g, loss, 4, w, dw, NULL), CVN_OK);
    for (int i = 0; i < 4; i++)
        cvn_output(g, dw[i]);
    return g;
}

/* SwiGLU and its gradient: neither pass writes floats of all tokens and channels, nor keeps any for the other. */
static void what_is_kept_for_the_backward_pass_is_the_products(void **state)
{
    (void)state;
    enum { TOKENS = 40, DIM = 24, FFN = 264 };
    for (int threads = 1; threads <= 3; threads++) {
        cvn_graph *g = swiglu_graph(TOKENS, DIM, FFN);
        Ran apart = run(g, &plain.backend, threads), fused = run(g, cpu_backend(), threads);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        assert_int_equal(apart.floats, TOKENS * FFN);
        assert_int_equal(fused.floats, FFN * DIM);
        assert_int_equal(fused.n_followed,
                         0); /* as columns are no multiple of what a product writes at once */
        Ran members = run(g, &memberwise.backend, threads);
        assert_memory_equal(apart.data, members.data, members.bytes);
        free(members.data);
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

/* SwiGLU and its gradient are made of the sums of products, on every instruction set, with the same bits, whatever tiles and
   threads are left over; few rows are products of another kind. */
static void elementwise_operations_follow_a_product(void **state)
{
    (void)state;
    static const struct {
        int64_t tokens, dim, ffn;
    } shapes[] = {{40, 24, 272}, {131, 40, 528}, {50, 800, 112}, {7, 24, 1008}};
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, false, apart_of);
        for (int i = 0; i < 4; i++) {
            cvn_graph *g = swiglu_graph(shapes[i].tokens, shapes[i].dim, shapes[i].ffn);
            Ran apart = run(g, &apart_of->backend, 2);
            assert_int_equal(apart.n_followed, 0);
            for (int threads = 1; threads <= 4; threads++) {
                Ran fused = run(g, backend, threads);
                if (fused.n_followed != 2 && shapes[i].tokens >= 32)
                    fail_msg("%s: %d products are followed", cpu_isa_name((CpuIsa)isa),
                             fused.n_followed);
                if (memcmp(apart.data, fused.data, fused.bytes) != 0)
                    fail_msg("%s, %d threads, shape %d: other bits", cpu_isa_name((CpuIsa)isa),
                             threads, i);
                free(fused.data);
            }
            free(apart.data);
            cvn_graph_free(g);
        }
        free(apart_of);
    }
}

/* What something else than fusions reads late, or the caller, is not computed again. */
static void what_lies_in_memory_anyway_is_computed_once(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        cvn_graph *g = cvn_graph_new("once", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 72, 72));
        cvn_value *a = cvn_add(g, x, x), *b = cvn_exponential(g, a);
        cvn_value *c = cvn_einsum_as(g, "ab,cb->ac", b, a, CVN_F32);
        cvn_value *d =
            i == 0 ? cvn_multiply(g, c, b) : cvn_einsum_as(g, "ab,cb->ac", c, b, CVN_F32);
        cvn_output(g, cvn_multiply(g, cvn_multiply(g, d, a), b));
        if (i == 2)
            cvn_output(g, b);
        Ran apart = run(g, &plain.backend, 2), fused = run(g, cpu_backend(), 2);
        assert_memory_equal(apart.data, fused.data, fused.bytes);
        assert_int_equal(fused.n_steps, i == 0 ? 3 : 4);
        free(apart.data);
        free(fused.data);
        cvn_graph_free(g);
    }
}

/* The same bits, and `fewer` steps less, on every instruction set and by any number of threads. */
static void the_same_in_fewer_steps(const cvn_graph *g, int fewer)
{
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, false, apart_of);
        for (int threads = 1; threads <= 3; threads++) {
            Ran apart = run(g, &apart_of->backend, threads), joined = run(g, backend, threads);
            if (apart.n_steps - joined.n_steps != fewer)
                fail_msg("%s: %d steps instead of %d", cpu_isa_name((CpuIsa)isa), joined.n_steps,
                         apart.n_steps);
            assert_memory_equal(apart.data, joined.data, joined.bytes);
            free(apart.data);
            free(joined.data);
        }
        free(apart_of);
    }
}

/* A residual in f32; and gradients in bf16, of which each sum is rounded: whichever comes first. */
static void sums_of_products_are_made_as_they_are_written(void **state)
{
    (void)state;
    enum { TOKENS = 45, DIM = 50 };
    cvn_graph *g = cvn_graph_new("sums", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, DIM)), *dot[4];
    for (int i = 0; i < 4; i++) {
        char name[] = {'w', (char)('0' + i), 0};
        cvn_value *w = cvn_parameter(g, name, CVN_TYPE(CVN_F32, DIM, DIM));
        cvn_value *half = cvn_convert(g, i ? x : cvn_negate(g, x), CVN_BF16);
        dot[i] = cvn_einsum_as(g, "td,ed->te", half, cvn_convert(g, w, CVN_BF16),
                               i ? CVN_BF16 : CVN_F32);
    }
    cvn_output(g, cvn_add(g, x, dot[0]));
    cvn_output(g, cvn_add(g, cvn_add(g, dot[2], dot[1]), dot[3]));
    the_same_in_fewer_steps(g, 3);
    cvn_graph_free(g);

    g = cvn_graph_new(
        "apart", NULL); /* what something else reads, or added to itself, is not part of a sum */
    x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, DIM));
    cvn_value *y = cvn_einsum_as(g, "td,ed->te", x, x, CVN_F32);
    cvn_value *z = cvn_einsum_as(g, "td,ed->te", y, y, CVN_F32);
    cvn_output(g, cvn_add(g, y, z)); /* z can take y */
    cvn_output(g, cvn_add(g, y, y));
    the_same_in_fewer_steps(g, 1);
    cvn_graph_free(g);
}

/* Keys and values, and the gradient of keys: heads before positions, without a step that moves them. */
static void heads_are_written_where_they_belong(void **state)
{
    (void)state;
    enum { BATCH = 2, SEQ = 37, HEADS = 3, WIDTH = 34 };
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        static const int swap[] = {0, 2, 1, 3};
        cvn_graph *g = cvn_graph_new("heads", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, BATCH, SEQ, WIDTH));
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, HEADS, WIDTH, WIDTH));
        cvn_value *freq = cvn_parameter(g, "freq", CVN_TYPE(CVN_F32, WIDTH / 2));
        cvn_value *position = cvn_iota(g, CVN_TYPE(CVN_I32, BATCH, SEQ), 1);
        cvn_value *v = cvn_einsum_as(g, "bse,khe->bskh", cvn_convert(g, x, CVN_BF16),
                                     cvn_convert(g, w, CVN_BF16), CVN_F32);
        cvn_value *k = cvn_rope(g, cvn_einsum_as(g, "bse,khe->bskh", x, w, CVN_F32), position, freq,
                                interleaved);
        cvn_value *keys = cvn_transpose(g, cvn_convert(g, k, CVN_BF16), swap);
        cvn_output(g, keys);
        cvn_output(g, cvn_transpose(g, cvn_convert(g, v, CVN_BF16), swap));
        cvn_value *back = cvn_transpose(g, cvn_multiply(g, keys, keys), swap);
        cvn_output(g, cvn_rope(g, back, position, freq, interleaved));
        /* columns before rows, and rows of several dimensions apart */
        cvn_value *p = cvn_einsum_as(g, "bse,khe->bskh", x, cvn_add(g, w, w), CVN_F32);
        cvn_output(g, cvn_transpose(g, p, (const int[]){2, 1, 0, 3}));
        the_same_in_fewer_steps(g, 2 + 2 + 1 + 1);
        cvn_graph_free(g);
    }
}

/* The gradient of a norm, the one that went by it, and both together for the product below. */
static void the_gradient_of_a_norm_takes_the_one_beside_it(void **state)
{
    (void)state;
    for (int half = 0; half < 2; half++) {
        cvn_graph *g = cvn_graph_new("norm", NULL);
        cvn_type type = CVN_TYPE(CVN_F32, 70, 65);
        cvn_value *x = cvn_parameter(g, "x", type), *dy = cvn_parameter(g, "dy", type);
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, 65)), *out[2];
        cvn_value *beside = cvn_parameter(g, "beside", type);
        cvn_rms_norm_backward(g, x, w, half ? cvn_convert(g, dy, CVN_BF16) : dy, 1e-5, out);
        cvn_value *sum = cvn_add(g, beside, out[0]);
        cvn_output(g, sum);
        cvn_output(g, out[1]);
        cvn_output(g, cvn_convert(g, sum, CVN_BF16));
        the_same_in_fewer_steps(g, 2);
        cvn_graph_free(g);
    }
}

/* The gradient of a tied embedding: rows that occur, some often, some outside. */
static void rows_are_added_to_where_they_occur(void **state)
{
    (void)state;
    enum { ROWS_OF = 300, DIM = 70, N = 90 };
    cvn_graph *g = cvn_graph_new("rows", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, ROWS_OF, DIM));
    cvn_value *update = cvn_parameter(g, "update", CVN_TYPE(CVN_F32, N, DIM));
    cvn_value *i = cvn_iota(g, CVN_TYPE(CVN_I32, N), 0); /* (i i) % 307 - 3 */
    i = cvn_remainder(g, cvn_multiply(g, i, i), cvn_splat(g, CVN_TYPE(CVN_I32, N), 307));
    i = cvn_subtract(g, i, cvn_splat(g, CVN_TYPE(CVN_I32, N), 3));
    cvn_gather_dims dims = {
        .n_window = 1, .window = {1}, .n_collapsed = 1, .n_index_map = 1, .index_vector_dim = 1};
    cvn_value *zeros = cvn_splat(g, CVN_TYPE(CVN_F32, ROWS_OF, DIM), 0);
    cvn_value *rows = cvn_scatter_add(g, zeros, i, update, &dims);
    cvn_value *y = cvn_multiply(g, x, x);
    cvn_output_into(g, cvn_add(g, y, rows), x);
    the_same_in_fewer_steps(g, 1);
    cvn_graph_free(g);
}

/* A product [heads, width, columns] and the sum of its squares; `rounded`: of bf16; `waits`: it is wanted in bf16. */
static cvn_graph *product_graph(int64_t heads, int64_t width, int64_t columns, bool rounded,
                                bool waits)
{
    enum { TOKENS = 70 };
    cvn_graph *g = cvn_graph_new("product", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, TOKENS, heads, width));
    cvn_value *y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, TOKENS, columns));
    if (rounded) {
        x = cvn_convert(g, x, CVN_BF16);
        y = cvn_convert(g, y, CVN_BF16);
    }
    cvn_value *product = cvn_einsum_as(g, "tnh,te->nhe", x, y, CVN_F32);
    cvn_output(g, optimizer_sum_of_squares(g, product));
    cvn_output(g, waits ? cvn_convert(g, product, CVN_BF16) : product);
    return g;
}

/* Whatever the blocks of rows and columns are, and however many threads. */
static void squares_of_a_product_are_summed_where_it_is_made(void **state)
{
    (void)state;
    static const struct {
        int64_t heads, width, columns;
    } shapes[] = {{3, 11, 40}, {2, 64, 33}, {5, 51, 300}, {1, 1031, 17}, {13, 60, 96}};
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, false, apart_of);
        for (int i = 0; i < 20; i++) {
            bool waits = i >= 10;
            cvn_graph *g = product_graph(shapes[i / 2 % 5].heads, shapes[i / 2 % 5].width,
                                         shapes[i / 2 % 5].columns, i % 2, waits);
            Ran apart = run(g, &apart_of->backend, 2);
            for (int threads = 1; threads <= 4; threads++) {
                Ran joined = run(g, backend, threads);
                assert_int_equal(joined.n_steps, apart.n_steps - 2 - waits);
                if (memcmp(apart.data, joined.data, joined.bytes) != 0)
                    fail_msg("%s, %d threads, shape %d: other bits", cpu_isa_name((CpuIsa)isa),
                             threads, i);
                free(joined.data);
            }
            free(apart.data);
            cvn_graph_free(g);
        }
        free(apart_of);
    }
}

/* A gradient's squares by rows and columns, and the square of its scaled self, as Adafactor sums them. */
static cvn_graph *sums_graph(cvn_dtype dtype, int64_t heads, int64_t rows, int64_t columns)
{
    cvn_graph *g = cvn_graph_new("sums", NULL);
    cvn_type type = CVN_TYPE(CVN_F32, heads, rows, columns);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(dtype, heads, rows, columns));
    cvn_value *scale = cvn_parameter(g, "scale", cvn_scalar(CVN_F32));
    x = cvn_multiply(g, cvn_convert(g, x, CVN_F32), cvn_broadcast_to(g, scale, &type));
    cvn_value *square = cvn_add(g, cvn_multiply(g, x, x), cvn_splat(g, type, 1e-3));
    cvn_value *row = cvn_reduce_dims(g, CVN_SUM, square, 1, (const int[]){2});
    cvn_value *column = cvn_reduce_dims(g, CVN_SUM, square, 1, (const int[]){1});
    cvn_value *u = cvn_multiply(g, cvn_broadcast_in_dim(g, row, type, (const int[]){0, 1}), x);
    u = cvn_multiply(g, u, cvn_broadcast_in_dim(g, scale, type, NULL));
    cvn_output(g, row);
    cvn_output(g, column);
    cvn_output(g, optimizer_sum_of_squares(g, u));
    return g;
}

/* No tensor as large as x is written for its sums, and they have the same bits, along rows and down columns. */
static void terms_of_a_sum_are_made_where_they_are_summed(void **state)
{
    (void)state;
    static const int64_t shapes[][3] = {{1, 37, 256}, {3, 50, 301}, {2, 150, 1030}, {1, 5, 2048}};
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, false, apart_of);
        for (int i = 0; i < 8; i++) {
            const int64_t *shape = shapes[i / 2];
            cvn_graph *g = sums_graph(i % 2 ? CVN_BF16 : CVN_F32, shape[0], shape[1], shape[2]);
            Ran apart = run(g, &apart_of->backend, 2);
            assert_int_equal(apart.floats, shape[0] * shape[1] * shape[2]);
            for (int threads = 1; threads <= 3; threads++) {
                Ran joined = run(g, backend, threads);
                assert_true(joined.floats < apart.floats);
                if (memcmp(apart.data, joined.data, joined.bytes) != 0)
                    fail_msg("%s, %d threads, shape %d: other bits", cpu_isa_name((CpuIsa)isa),
                             threads, i);
                free(joined.data);
            }
            free(apart.data);
            cvn_graph_free(g);
        }
        free(apart_of);
    }
}

static float half_at(const char *data, size_t i)
{
    uint16_t half;
    memcpy(&half, data + 2 * i, sizeof half);
    return bf16_to_f32(half);
}

/* The loss and its gradient, which is rounded otherwise: over the logits, in one step. Rows with no target, with a
   target outside, and with logits that are not finite. */
static void a_loss_and_its_gradient_are_one_step(void **state)
{
    (void)state;
    enum { N = 9, VOCAB = 1037 };
    cvn_graph *g = cvn_graph_new("loss", NULL);
    cvn_type rows = CVN_TYPE(CVN_F32, N);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, N, VOCAB));
    cvn_value *scale = cvn_parameter(g, "scale", rows); /* row 0 becomes infinite */
    cvn_value *i = cvn_iota(g, CVN_TYPE(CVN_I32, N), 0), *entropy[2];
    cvn_value *first = cvn_compare_values(g, CVN_EQ, i, cvn_splat(g, i->type, 0));
    scale = cvn_select(g, first, cvn_splat(g, rows, INFINITY), cvn_splat(g, rows, 9));
    cvn_value *logits = cvn_multiply(g, x, cvn_broadcast_in_dim(g, scale, x->type, (int[]){0}));
    logits = cvn_convert(g, logits, CVN_BF16);
    cvn_value *target = cvn_multiply(g, cvn_subtract(g, i, cvn_splat(g, i->type, 2)),
                                     cvn_splat(g, i->type, 200)); /* -400 … 1200 */
    cvn_softmax_cross_entropy(g, logits, target, entropy);
    cvn_output(g, entropy[0]);
    cvn_output(g, entropy[1]);
    cvn_value *gradient = cvn_softmax_cross_entropy_backward(
        g, logits, target, entropy[1], cvn_splat(g, rows, 1.5), cvn_splat(g, rows, 0.25));
    cvn_output(g, gradient);
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const Backend *backend = cpu_backend_of((CpuIsa)isa);
        if (!backend)
            continue;
        Plain *apart_of = calloc(1, sizeof *apart_of);
        make_plain_of(backend, true, apart_of);
        for (int k = 0; k < apart_of->backend.n_kernels; k++)
            apart_of->kernel[k].joins = false;
        Ran apart = run(g, &apart_of->backend, 2), joined = run(g, backend, 1 + isa % 3);
        assert_int_equal(joined.n_steps, apart.n_steps - 1);
        size_t sums = 2 * N * sizeof(float);
        assert_memory_equal(apart.data, joined.data, sums);
        for (size_t k = 0; k < (size_t)N * VOCAB; k++) {
            float a = half_at(apart.data + sums, k), b = half_at(joined.data + sums, k);
            if (a != b && !(fabsf(a - b) <= 0x1p-7f * fabsf(a)) && !(isnan(a) && isnan(b)))
                fail_msg("%s: element %zu is %g instead of %g", cpu_isa_name((CpuIsa)isa), k, b, a);
        }
        free(apart.data);
        free(joined.data);
        free(apart_of);
    }
    cvn_graph_free(g);
}

/* More results than one fusion has. */
static void large_groups_are_split(void **state)
{
    (void)state;
    cvn_graph *g = cvn_graph_new("many", NULL);
    cvn_value *x = cvn_parameter(g, "x", wide(CVN_F32)), *y = x;
    for (int i = 0; i < 60; i++) {
        y = cvn_add(g, y, x);
        cvn_output(g, y);
    }
    Ran apart = run(g, &plain.backend, 1), fused = run(g, cpu_backend(), 2);
    assert_true(fused.n_fusions >= 60 / FUSION_RESULTS);
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
        cmocka_unit_test(a_sum_of_squares_has_no_step_of_products),
        cmocka_unit_test(what_is_kept_for_the_backward_pass_is_the_products),
        cmocka_unit_test(elementwise_operations_follow_a_product),
        cmocka_unit_test(what_lies_in_memory_anyway_is_computed_once),
        cmocka_unit_test(sums_of_products_are_made_as_they_are_written),
        cmocka_unit_test(heads_are_written_where_they_belong),
        cmocka_unit_test(the_gradient_of_a_norm_takes_the_one_beside_it),
        cmocka_unit_test(rows_are_added_to_where_they_occur),
        cmocka_unit_test(squares_of_a_product_are_summed_where_it_is_made),
        cmocka_unit_test(terms_of_a_sum_are_made_where_they_are_summed),
        cmocka_unit_test(a_loss_and_its_gradient_are_one_step),
        cmocka_unit_test(large_groups_are_split),
    };
    return cmocka_run_group_tests(tests, make_plain, NULL);
}
