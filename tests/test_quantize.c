/* Quantized models: how weights are chosen, that folders hold what is made while loading, that fusion leaves no
   weight to be converted and changes no result. */
#include "io_support.h"

#include "base/float16.h"
#include "compile/fuse_linear.h"
#include "compile/pack.h"
#include "compile/pipeline.h"
#include "cpu/device.h"
#include "cpu/registry.h"
#include "graph/interp/interp.h"
#include "graph/linear.h"
#include "io/safetensors.h"
#include "io/save.h"
#include "llama_fixture.h"
#include "model/forward.h"
#include "plan_verify.h"
#include "random_graph.h"
#include "serve/engine.h"
#include "shell.h"

#include <math.h>

/* ---- one weight ---- */

static const QuantScheme int8 = {.kind = QUANT_INT8};

/* Uniform in [-1, 1), now and then ten times that. */
static void draw_numbers(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        double u = (double)(splitmix(&seed) >> 11) * 0x1p-53;
        x[i] = (float)((2 * u - 1) * (splitmix(&seed) % 50 ? 1 : 10));
    }
}

/* Quantizes n x k numbers and brings them back by the interpreter's meaning of dequantize. */
static QuantForm there_and_back(QuantScheme scheme, int64_t n, int64_t k, const float *x, float *y)
{
    QuantForm form = quant_form(scheme, n, k);
    cvn_graph *g = cvn_graph_new("dequantize", NULL);
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(form.dtype, n, k));
    cvn_value *s = cvn_parameter(g, "s", CVN_TYPE(form.scale_dtype, n, form.groups));
    cvn_output(g, cvn_dequantize(g, q, s, CVN_F32));
    uint8_t *numbers = calloc(1, cvn_type_bytes(&q->type));
    uint8_t *scales = calloc(1, cvn_type_bytes(&s->type));
    for (int64_t row = 0; row < n; row++)
        quant_row(&form, x + row * k, k, numbers + cvn_dtype_bytes(form.dtype, row * k),
                  scales + cvn_dtype_bytes(form.scale_dtype, row * form.groups));
    const void *in[] = {numbers, scales};
    void *out[1];
    cvn_err err = {0};
    if (interp_run_one(g, in, out, &err))
        fail_msg("%s", err.message);
    memcpy(y, out[0], (size_t)(n * k) * sizeof *y);
    free(out[0]);
    free(numbers);
    free(scales);
    cvn_graph_free(g);
    return form;
}

static void eight_bits_are_within_half_a_step(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{1, 1}, {3, 17}, {16, 4}, {17, 64}, {33, 127}, {40, 600}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        int64_t n = shapes[i][0], k = shapes[i][1];
        float *x = malloc((size_t)(n * k) * 4), *y = malloc((size_t)(n * k) * 4);
        draw_numbers(x, n * k, i);
        for (int64_t j = 0; j < k; j++)
            x[j] = 0; /* a row of zeros has a scale of 0 */
        there_and_back(int8, n, k, x, y);
        for (int64_t r = 0; r < n; r++) {
            float most = 0;
            for (int64_t j = 0; j < k; j++)
                most = fmaxf(most, fabsf(x[r * k + j]));
            for (int64_t j = 0; j < k; j++)
                assert_true(fabsf(x[r * k + j] - y[r * k + j]) <= most / 127 * 0.5001f);
        }
        free(x);
        free(y);
    }
}

/* The error of the plain way: a scale of max / 7. */
static double plain_error(const float *x, int64_t n)
{
    float most = 0;
    double error = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < n; i++) {
        float y = most > 0 ? rintf(x[i] / (most / 7)) * (most / 7) : 0;
        error += (double)((x[i] - y) * (x[i] - y));
    }
    return error;
}

static void four_bits_lose_less_than_the_plain_way(void **state)
{
    (void)state;
    static const int64_t groups[] = {32, 64, 128};
    enum { N = 21, K = 384 };
    float *x = malloc(N * K * 4), *y = malloc(N * K * 4);
    for (int g = 0; g < 3; g++) {
        draw_numbers(x, N * K, (uint64_t)g);
        QuantForm form =
            there_and_back((QuantScheme){.kind = QUANT_INT4, .group = groups[g]}, N, K, x, y);
        assert_int_equal(form.dtype, CVN_I4);
        assert_int_equal(form.groups, K / groups[g]);
        double error = 0, plain = 0;
        for (int64_t i = 0; i < N * K; i++)
            error += (double)((x[i] - y[i]) * (x[i] - y[i]));
        for (int64_t i = 0; i < N * K; i += groups[g])
            plain += plain_error(x + i, groups[g]);
        assert_true(error < 0.8 * plain);
        assert_true(error > 0);
    }
    free(x);
    free(y);
}

/* Of the scales that one looks at first, the one that loses least. */
static double error_of_places(const float *x, int64_t n)
{
    float most = 0;
    double least = INFINITY;
    for (int64_t i = 0; i < n; i++)
        most = fabsf(x[i]) > fabsf(most) ? x[i] : most;
    for (int i = 0; i < 24; i++) {
        float place = i % 2 ? 6.0f + 0.125f * (float)i : -6.25f - 0.125f * (float)i;
        float scale = bf16_to_f32(bf16_from_f32(most / place));
        double error = 0;
        for (int64_t k = 0; k < n; k++) {
            float y = rintf(x[k] * (1 / scale));
            y = y > 7 ? 7 : y < -8 ? -8 : y;
            error += (double)((x[k] - y * scale) * (x[k] - y * scale));
        }
        least = fmin(least, error);
    }
    return least;
}

/* Least squares never lose more than the places alone, on uniform numbers and on those with long tails, and mostly less. */
static void scales_of_least_squares_lose_no_more_than_places(void **state)
{
    (void)state;
    int better = 0;
    uint64_t seed = 3;
    for (int turn = 0; turn < 2000; turn++) {
        enum { N = 64 };
        float x[N], scale;
        double error = 0, before;
        for (int i = 0; i < N; i++) {
            double u = (double)(splitmix(&seed) >> 11) * 0x1p-53;
            /* of Cauchy's distribution, whose tails are the longest there are */
            x[i] = (float)(turn % 2 ? 2 * u - 1 : tan(3.1 * (u - 0.5)));
        }
        scale = bf16_to_f32(quant_scale(x, NULL, N));
        for (int i = 0; i < N; i++) {
            float y = rintf(x[i] * (1 / scale));
            y = y > 7 ? 7 : y < -8 ? -8 : y;
            error += (double)((x[i] - y * scale) * (x[i] - y * scale));
        }
        before = error_of_places(x, N);
        assert_true(error <= before * (1 + 1e-5));
        better += error < before * (1 - 1e-5);
    }
    assert_true(better > 500);
}

static void columns_that_do_not_divide_take_smaller_groups(void **state)
{
    (void)state;
    QuantScheme scheme = {.kind = QUANT_INT4, .group = 64};
    QuantForm form = quant_form(scheme, 32, 288);
    assert_int_equal(form.groups, 9);
    form = quant_form(scheme, 32, 24);
    assert_int_equal(form.groups, 3);
    form = quant_form(scheme, 32, 20);
    assert_int_equal(form.dtype, CVN_I8);
    assert_int_equal(form.groups, 1);
}

static void ways_to_quantize_are_read_and_written(void **state)
{
    (void)state;
    static const char *const names[] = {"none", "int8", "int4:32", "int4:64", "int4:128"};
    QuantScheme scheme;
    char text[16];
    cvn_err err = {0};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        assert_int_equal(quant_parse(names[i], &scheme, &err), 0);
        assert_string_equal(quant_text(scheme, text, sizeof text), names[i]);
    }
    assert_int_equal(quant_parse("int4:48", &scheme, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "int4:48"));
}

/* ---- fusion ---- */

static cvn_graph *step_of(const char *variant, QuantScheme scheme, StepOutput output,
                          cvn_dtype dtype)
{
    LlamaFixture f;
    cvn_err err = {0};
    fixture_open(&f, variant, CVN_F32);
    model_set_quant(f.model, scheme);
    ModelStep step = {.batch = 2, .seq = 3, .context = 9, .compute = dtype, .output = output};
    cvn_graph *g = model_step(f.model, &step, &err);
    if (!g)
        fail_msg("%s", err.message);
    fixture_close(&f);
    return g;
}

/* Weights brought into panels, as the compiler does it where it may. */
static void pack(cvn_graph *g)
{
    signed char layout[512];
    bool changed;
    cvn_err err = {0};
    assert_true(g->n_parameters < (int)sizeof layout);
    memset(layout, PACK_FREE, sizeof layout);
    if (graph_pack(g, layout, &changed, &err))
        fail_msg("%s", err.message);
    assert_true(changed);
}

static int count(const cvn_graph *g, OpKind kind)
{
    int n = 0;
    for (const Op *op = g->first; op; op = op->next)
        n += op->kind == kind;
    return n;
}

static void every_matrix_of_a_model_is_fused(void **state)
{
    (void)state;
    static const char *const variants[] = {"gqa", "tied", "biases"};
    for (int v = 0; v < 3; v++) {
        cvn_graph *g = step_of(variants[v], int8, STEP_LOGITS, CVN_BF16);
        int products = count(g, OP_DOT_GENERAL), pairs = 0, shared = 0;
        int layers = (products - 1) / 7;
        bool changed = false;
        cvn_err err = {0};
        pack(g);
        if (graph_fuse_linear(g, false, &changed, &err) || graph_verify(g, &err))
            fail_msg("%s", err.message);
        assert_true(changed);
        assert_int_equal(count(g, OP_DEQUANTIZE), 0);
        assert_int_equal(count(g, OP_DOT_GENERAL), 0);
        for (const Op *op = g->first; op; op = op->next) {
            pairs += op->kind == OP_LINEAR && op->attr.group_size == 2;
            shared += op->kind == OP_LINEAR && op->attr.group_size == 3;
        }
        assert_int_equal(shared, layers);
        assert_int_equal(pairs, layers);
        changed = false;
        assert_int_equal(graph_fuse_linear(g, false, &changed, &err), 0);
        assert_false(changed);
        cvn_graph_free(g);
    }
}

/* Small numbers for the parameters of a step; scales that keep its sums in range. */
static void **inputs_of(const cvn_graph *g)
{
    void **in = random_inputs(g, 5, false);
    for (int p = 0; p < g->n_parameters; p++) {
        const cvn_type *type = &g->parameter[p]->type;
        const char *name = g->parameter[p]->def->attr.name;
        bool scale = strstr(name, ".scale") != NULL;
        for (int64_t i = 0; i < cvn_type_elements(type); i++) {
            if (type->dtype == CVN_I32)
                ((int32_t *)in[p])[i] = strcmp(name, "length") == 0 ? 3 : (int32_t)(i % 5);
            else if (random_is_float(type->dtype))
                element_set(type->dtype, in[p], i,
                            scale ? 0.004 : element_get(type->dtype, in[p], i) / 4);
        }
    }
    return in;
}

static void fusion_changes_no_result(void **state)
{
    (void)state;
    const QuantScheme schemes[] = {{.kind = QUANT_INT4, .group = 32}, int8};
    for (int i = 0; i < 4; i++) {
        cvn_graph *g = step_of(i < 2 ? "gqa" : "tied", schemes[i % 2], STEP_LOGITS, CVN_F32);
        pack(g);
        void **in = inputs_of(g), *want[64], *got[64];
        cvn_err err = {0};
        assert_true(g->n_outputs < 64);
        assert_int_equal(interp_run_one(g, (const void *const *)in, want, &err), 0);
        assert_int_equal(graph_fuse_linear(g, false, NULL, &err), 0);
        assert_int_equal(interp_run_one(g, (const void *const *)in, got, &err), 0);
        for (int o = 0; o < g->n_outputs; o++) {
            const cvn_type *type = &g->output[o].value->type;
            for (int64_t j = 0; j < cvn_type_elements(type); j++) {
                double a = element_get(type->dtype, want[o], j);
                double b = element_get(type->dtype, got[o], j);
                if (!(fabs(a - b) <= 1e-4 * (1 + fabs(a))))
                    fail_msg("%d: output %d of %d %g %g", i, o, g->n_outputs, a, b);
            }
            free(want[o]);
            free(got[o]);
        }
        random_free(in, g->n_parameters);
        cvn_graph_free(g);
    }
}

/* h times a weight in f32, with eight of rows that are rounded to 8 bits. */
static cvn_value *product_of(cvn_graph *g, cvn_value *h, cvn_value *q, cvn_value *scale, int64_t n,
                             bool eight)
{
    const cvn_type *type = cvn_value_type(h);
    cvn_value *rows[2];
    if (!eight) {
        cvn_value *w = panel_dequantize(g, q, scale, CVN_TYPE(type->dtype, n, type->dim[1]), 1);
        return cvn_einsum_as(g, "mk,nk->mn", h, w, CVN_F32);
    }
    cvn_quantize_rows(g, h, rows);
    return panel_linear_int8(g, (cvn_value *[]){rows[0], rows[1], q, scale},
                             CVN_TYPE(CVN_F32, type->dim[0], n));
}

/* One product and what stands next to it, all of m rows. */
static cvn_graph *neighbours(const QuantForm *form, bool eight, int64_t m, cvn_dtype x_dtype)
{
    enum { K = 1056, N = 85 };
    cvn_graph *g = cvn_graph_new("neighbours", NULL);
    cvn_dtype compute = form->dtype == CVN_F32 ? CVN_F32 : CVN_BF16;
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(x_dtype, m, K)), *y[3];
    cvn_value *norm = cvn_parameter(g, "norm", CVN_TYPE(CVN_BF16, K));
    cvn_value *q[3], *scale[3] = {NULL}, *bias[3];
    for (int i = 0; i < 3; i++) {
        static const char *const names[3][3] = {
            {"q0", "q0.scale", "b0"}, {"q1", "q1.scale", "b1"}, {"q2", "q2.scale", "b2"}};
        q[i] = cvn_parameter(g, names[i][0], panel_type(form->dtype, N, K));
        if (form->groups)
            scale[i] = cvn_parameter(g, names[i][1], panel_scale_type(CVN_F32, N, form->groups));
        bias[i] = cvn_parameter(g, names[i][2], CVN_TYPE(i ? CVN_BF16 : CVN_F32, N));
    }
    cvn_value *h = cvn_rms_norm(g, x, norm, 1e-5, compute);
    for (int i = 0; i < 3; i++) {
        y[i] = product_of(g, h, q[i], scale[i], N, eight);
        cvn_value *b = cvn_convert(g, bias[i], CVN_F32);
        y[i] = cvn_add(g, y[i], cvn_broadcast_to(g, b, cvn_value_type(y[i])));
        cvn_output(g, y[i]);
    }
    return g;
}

/* Runs g, whole or with nothing but products fused, into out [n_outputs]; returns the number of steps. */
static int run_plan(cvn_graph *g, bool op_by_op, int threads, void **in, void **out)
{
    cvn_err err = {0};
    Plan *plan;
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = threads, .op_by_op = op_by_op};
    if (compile_verified(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    Device *device = device_new(threads, cpu_kernels(), &err);
    assert_non_null(device);
    void *at[8];
    if (executor_run(device, plan, in, at, &err))
        fail_msg("%s", err.message);
    for (int o = 0; o < plan->n_outputs; o++) {
        size_t bytes = cvn_type_bytes(&plan->output[o].type);
        out[o] = malloc(bytes);
        assert_non_null(out[o]);
        memcpy(out[o], at[o], bytes);
    }
    int steps = plan->n_steps;
    device_free(device);
    plan_free(plan);
    return steps;
}

/* A norm, biases and products of one input are one step, whose bits are those of all the steps apart: those of the
   norm's own kernel and of sums to which biases are added in f32. */
static void a_norm_and_biases_that_are_fused_change_no_bit(void **state)
{
    (void)state;
    static const QuantForm forms[] = {{.dtype = CVN_BF16},
                                      {.dtype = CVN_F32},
                                      {.dtype = CVN_I8, .groups = 1},
                                      {.dtype = CVN_I4, .groups = 33},
                                      {.dtype = CVN_I8, .groups = 1}};
    static const int64_t ms[] = {1, 3, 16, 33, 50};
    for (int f = 0; f < 5; f++)
        for (int m = 0; m < 5; m++) {
            cvn_dtype x = f == 1 || m % 2 ? CVN_F32 : CVN_BF16;
            cvn_graph *g = neighbours(&forms[f], f == 4, ms[m], x);
            void **in = inputs_of(g), *apart[3], *fused[3];
            int more = run_plan(g, true, 2, in, apart),
                steps = run_plan(g, false, 1 + m % 3, in, fused);
            assert_int_equal(steps, 1);
            assert_true(more > 6);
            for (int o = 0; o < 3; o++) {
                assert_memory_equal(apart[o], fused[o], cvn_type_bytes(&g->output[o].value->type));
                free(apart[o]);
                free(fused[o]);
            }
            random_free(in, g->n_parameters);
            cvn_graph_free(g);
        }
}

/* A feed-forward layer of which every product takes rows of 8 bits: two steps, with the bits of all apart. */
static void rows_of_8_bits_change_no_bit_when_fused(void **state)
{
    (void)state;
    enum { K = 96, INNER = 150 };
    static const int64_t ms[] = {1, 8, 17, 33};
    for (int m = 0; m < 4; m++) {
        cvn_graph *g = cvn_graph_new("mlp", NULL);
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, ms[m], K)), *q[3], *scale[3];
        cvn_value *norm = cvn_parameter(g, "norm", CVN_TYPE(CVN_BF16, K));
        static const char *const names[] = {"gate",     "gate.scale", "up",
                                            "up.scale", "down",       "down.scale"};
        for (int i = 0; i < 3; i++) {
            int64_t n = i < 2 ? INNER : K, k = i < 2 ? K : INNER;
            q[i] = cvn_parameter(g, names[2 * i], panel_type(CVN_I8, n, k));
            scale[i] = cvn_parameter(g, names[2 * i + 1], panel_scale_type(CVN_F32, n, 1));
        }
        cvn_value *h = cvn_rms_norm(g, x, norm, 1e-5, CVN_BF16);
        cvn_value *gate = product_of(g, h, q[0], scale[0], INNER, true);
        cvn_value *up = product_of(g, h, q[1], scale[1], INNER, true);
        cvn_value *silu = cvn_multiply(g, gate, cvn_logistic(g, gate));
        cvn_value *inner = cvn_convert(g, cvn_multiply(g, silu, up), CVN_BF16);
        cvn_output(g, cvn_add(g, x, product_of(g, inner, q[2], scale[2], K, true)));
        void **in = inputs_of(g), *apart[1], *fused[1];
        int more = run_plan(g, true, 2, in, apart),
            steps = run_plan(g, false, 1 + m % 2, in, fused);
        assert_int_equal(steps, 2);
        assert_true(more > 6);
        assert_memory_equal(apart[0], fused[0], cvn_type_bytes(&g->output[0].value->type));
        free(apart[0]);
        free(fused[0]);
        random_free(in, g->n_parameters);
        cvn_graph_free(g);
    }
}

/* GELU, by tanh, of one product times another, a multiplier and a residual behind a third, soft caps behind that: no rule knows them. */
static void whatever_is_elementwise_is_done_by_a_product(void **state)
{
    (void)state;
    enum { K = 96, INNER = 150 };
    static const int64_t ms[] = {1, 5, 8, 17, 300};
    for (int m = 0; m < 10; m++) {
        const bool eight = m >= 5;
        const cvn_type inner = CVN_TYPE(CVN_F32, ms[m % 5], INNER),
                       outer = CVN_TYPE(CVN_F32, ms[m % 5], K);
        cvn_graph *g = cvn_graph_new("geglu", NULL);
        cvn_value *x = cvn_parameter(g, "x", outer), *y[3];
        cvn_value *h = cvn_convert(g, cvn_parameter(g, "h", outer), CVN_BF16);
        static const char *const names[] = {"gate",     "gate.scale", "up",
                                            "up.scale", "down",       "down.scale"};
        cvn_value *q[3], *scale[3];
        for (int i = 0; i < 3; i++) {
            int64_t n = i < 2 ? INNER : K, k = i < 2 ? K : INNER;
            q[i] = cvn_parameter(g, names[2 * i], panel_type(CVN_I8, n, k));
            scale[i] = cvn_parameter(g, names[2 * i + 1], panel_scale_type(CVN_F32, n, 1));
        }
        for (int i = 0; i < 3; i++) {
            y[i] = product_of(g, h, q[i], scale[i], i < 2 ? INNER : K, eight);
            if (i != 1)
                continue;
            cvn_value *a = y[0], *cube = cvn_multiply(g, cvn_multiply(g, a, a), a);
            cube = cvn_multiply(g, cube, cvn_splat(g, inner, 0.044715));
            cvn_value *t = cvn_multiply(g, cvn_add(g, a, cube), cvn_splat(g, inner, 0.79788456));
            t = cvn_add(g, cvn_tanh(g, t), cvn_splat(g, inner, 1));
            t = cvn_multiply(g, cvn_multiply(g, a, cvn_splat(g, inner, 0.5)), t);
            h = cvn_convert(g, cvn_multiply(g, t, y[1]), CVN_BF16);
        }
        cvn_value *sum = cvn_add(g, x, cvn_multiply(g, y[2], cvn_splat(g, outer, 0.22)));
        cvn_value *cap = cvn_splat(g, outer, 30);
        cvn_output(g, sum);
        cvn_output(g, cvn_multiply(g, cvn_tanh(g, cvn_divide(g, sum, cap)), cap));
        void **in = inputs_of(g), *apart[2], *fused[2];
        int more = run_plan(g, true, 2, in, apart),
            steps = run_plan(g, false, 1 + m % 2, in, fused);
        assert_int_equal(steps, 3); /* with the conversion of h */
        assert_true(more > 12);
        for (int o = 0; o < 2; o++) {
            assert_memory_equal(apart[o], fused[o], cvn_type_bytes(&g->output[o].value->type));
            free(apart[o]);
            free(fused[o]);
        }
        random_free(in, g->n_parameters);
        cvn_graph_free(g);
    }
}

/* What another result needs too, or another dtype, stays. */
static void what_is_used_elsewhere_is_not_fused_away(void **state)
{
    (void)state;
    cvn_graph *g = cvn_graph_new("kept", NULL);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 8));
    cvn_value *r = cvn_parameter(g, "r", CVN_TYPE(CVN_F32, 2, 16));
    cvn_value *q = cvn_parameter(g, "q", panel_type(CVN_I8, 16, 8));
    cvn_value *s = cvn_parameter(g, "s", panel_scale_type(CVN_F32, 16, 1));
    cvn_value *w = panel_dequantize(g, q, s, CVN_TYPE(CVN_F32, 16, 8), 1);
    cvn_value *y = cvn_einsum(g, "mk,nk->mn", x, w);
    cvn_output(g, cvn_add(g, y, r));
    cvn_output(g, y);
    cvn_output(g, w);
    cvn_output(g, cvn_einsum(g, "mn,nk->mk", r, w)); /* along the rows */
    assert_int_equal(graph_fuse_linear(g, false, NULL, NULL), 0);
    assert_int_equal(count(g, OP_LINEAR), 1);
    assert_int_equal(count(g, OP_ADD), 1);
    assert_int_equal(count(g, OP_DEQUANTIZE), 1);
    assert_int_equal(count(g, OP_DOT_GENERAL), 1);
    cvn_graph_free(g);
}

/* ---- whole models ---- */

static const char *variant_path(const char *variant)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    return path;
}

/* Log-probabilities of some tokens. */
static void score_on(const char *path, const char *quantize, const char *mesh, float *logprob,
                     int n)
{
    cvn_err err = {0};
    cvn_model *model;
    cvn_engine *engine;
    cvn_model_options open = {.dtype = CVN_F32, .no_tokenizer = true, .quantize = quantize};
    cvn_engine_options options = cvn_engine_defaults();
    options.scoring = options.no_generation = true;
    options.mesh = mesh;
    if (cvn_model_open(path, &open, &model, &err) || cvn_engine_new(model, &options, &engine, &err))
        fail_msg("%s", err.message);
    int32_t token[32], likeliest[32];
    for (int i = 0; i < n; i++)
        token[i] = (int32_t)(i * 7 % cvn_model_vocab(model));
    assert_int_equal(cvn_engine_score(engine, token, n, logprob, likeliest, &err), 0);
    assert_int_equal(cvn_engine_free(engine, &err), 0);
    cvn_model_free(model);
}

static void score(const char *path, const char *quantize, float *logprob, int n)
{
    score_on(path, quantize, NULL, logprob, n);
}

/* What is not quantized is in f32. */
static void quantize_to(const char *from, const char *to, const char *how, int shard_bytes)
{
    char line[1200];
    snprintf(line, sizeof line,
             "caravan convert %s floats --type f32 2>/dev/null && "
             "caravan convert floats %s --type %s --shard-size %d 2>/dev/null && rm -r floats",
             from, to, how, shard_bytes);
    expect(0, line, how);
}

static void a_folder_holds_what_is_made_while_loading(void **state)
{
    (void)state;
    static const char *const variants[] = {"gqa", "tied"}, *const hows[] = {"int8", "int4:32"};
    enum { N = 12 };
    for (int v = 0; v < 2; v++)
        for (int h = 0; h < 2; h++) {
            float made[N], stored[N], plain[N];
            char name[32];
            snprintf(name, sizeof name, "%s-%d", variants[v], h);
            score(variant_path(variants[v]), hows[h], made, N);
            score(variant_path(variants[v]), NULL, plain, N);
            quantize_to(variant_path(variants[v]), in_scratch(name), hows[h], 20000);
            score(in_scratch(name), NULL, stored, N);
            assert_memory_equal(made, stored, sizeof made);
            double difference = 0;
            for (int i = 1; i < N; i++)
                difference = fmax(difference, (double)fabsf(made[i] - plain[i]));
            assert_true(difference > 0 && difference < (h ? 4 : 0.2));
        }
}

/* The same in every form of files. */
static void numbers_come_back_from_quantized_folders(void **state)
{
    (void)state;
    static const char *const hows[] = {"int8", "int4:32"};
    enum { N = 12 };
    for (int h = 0; h < 2; h++) {
        float stored[N], widened[N];
        quantize_to(variant_path("gqa"), in_scratch("rows"), hows[h], 1 << 30);
        expect(0,
               "caravan convert rows wide --type f32 && "
               "caravan convert rows rows.gguf --type f32 2>/dev/null && "
               "caravan convert rows.gguf wide3 --type f32 2>/dev/null && "
               "cmp wide/model.safetensors wide3/model.safetensors && rm -r wide3 && echo same",
               "same\n");
        expect(0, "caravan inspect -m rows --stats | grep 'no numbers' | wc -l", "0\n");
        expect(0, "caravan inspect -m rows --stats", h ? "int4" : "int8");
        score(in_scratch("rows"), NULL, stored, N);
        score(in_scratch("wide"), NULL, widened, N);
        for (int i = 1; i < N; i++)
            if (!(fabsf(stored[i] - widened[i]) < 1e-3f))
                fail_msg("%s: %g where the quantized folder has %g", hows[h], (double)widened[i],
                         (double)stored[i]);
        expect(1,
               h ? "caravan convert rows x --type int4:32 2>&1"
                 : "caravan quantize rows x --to int8 2>&1",
               h ? "'rows' is in int4:32 already" : "'rows' is in int8 already");
        expect(0, "caravan convert rows other --type int4:64 && rm -r rows rows.gguf wide other",
               "in int4:64");
    }
}

/* In a folder, what was in GGUF's order is in that of Hugging Face: sums of its scores are made in another order. */
static void blocks_of_a_gguf_file_are_quantized_again(void **state)
{
    (void)state;
    static const char *const hows[] = {"int8", "int4:32"};
    enum { N = 24 };
    const char *file = CVN_TEST_DATA "/gguf/mixed.gguf";
    float plain[N], made[N], stored[N];
    score(file, NULL, plain, N);
    for (int h = 0; h < 2; h++) {
        score(file, hows[h], made, N);
        quantize_to(file, in_scratch(hows[h]), hows[h], 20000);
        score(in_scratch(hows[h]), NULL, stored, N);
        double again = 0, order = 0;
        for (int i = 1; i < N; i++) {
            again = fmax(again, (double)fabsf(made[i] - plain[i]));
            order = fmax(order, (double)fabsf(made[i] - stored[i]));
        }
        assert_true(again > 0 && again < (h ? 1 : 0.1));
        assert_true(order < again / 4);
    }
}

/* What no product reads is not laid out anew. */
static void what_lies_plainly_is_the_files_own(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_model *model;
    cvn_engine *e;
    quantize_to(variant_path("gqa"), in_scratch("mapped"), "int8", 20000);
    cvn_model_options options = {.dtype = CVN_F32, .no_tokenizer = true};
    assert_int_equal(cvn_model_open(in_scratch("mapped"), &options, &model, &err), 0);
    assert_int_equal(cvn_engine_new(model, NULL, &e, &err), 0);
    for (int i = 0; i < model->io.params.n; i++) {
        const Buffer *b = runtime_buffer(&e->rt, ROLE_WEIGHT, i);
        const bool plain = b->layout == LAYOUT_PLAIN;
        assert_true(plain == (model->io.params.param[i].form == PARAM_PLAIN));
        if (plain)
            assert_ptr_equal(buffer_address(&e->rt, b, 0), model->io.source[i]->data);
    }
    cvn_engine_free(e, NULL);
    cvn_model_free(model);
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_model *model;
    quantize_to(variant_path("gqa"), in_scratch("twice"), "int8", 20000);
    cvn_model_options open = {.dtype = CVN_F32, .no_tokenizer = true, .quantize = "int4"};
    assert_int_equal(cvn_model_open(in_scratch("twice"), &open, &model, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "quantized already, as int8"));
    open.quantize = "int3";
    err = (cvn_err){0};
    assert_int_equal(cvn_model_open(variant_path("gqa"), &open, &model, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "int3"));
    /* A config that lies about its weights. */
    FileMap map;
    char *text, *bits;
    assert_int_equal(file_map(&map, in_scratch("twice/config.json"), &err), 0);
    text = strndup((const char *)map.data, map.size);
    file_unmap(&map);
    bits = strstr(text, "\"bits\": 8");
    assert_non_null(bits);
    bits[8] = '4';
    assert_int_equal(file_write(in_scratch("twice/config.json"), text, strlen(text), &err), 0);
    open.quantize = NULL;
    err = (cvn_err){0};
    assert_int_equal(cvn_model_open(in_scratch("twice"), &open, &model, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "group_size 0"));
    char *group = strstr(text, "\"group_size\": 0");
    memcpy(group + 13, "32", 2); /* over the space and the 0 */
    assert_int_equal(file_write(in_scratch("twice/config.json"), text, strlen(text), &err), 0);
    err = (cvn_err){0};
    assert_int_not_equal(cvn_model_open(in_scratch("twice"), &open, &model, &err), CVN_OK);
    assert_non_null(strstr(err.message, "has shape"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_bits_are_within_half_a_step),
        cmocka_unit_test(four_bits_lose_less_than_the_plain_way),
        cmocka_unit_test(scales_of_least_squares_lose_no_more_than_places),
        cmocka_unit_test(columns_that_do_not_divide_take_smaller_groups),
        cmocka_unit_test(ways_to_quantize_are_read_and_written),
        cmocka_unit_test(every_matrix_of_a_model_is_fused),
        cmocka_unit_test(a_norm_and_biases_that_are_fused_change_no_bit),
        cmocka_unit_test(rows_of_8_bits_change_no_bit_when_fused),
        cmocka_unit_test(whatever_is_elementwise_is_done_by_a_product),
        cmocka_unit_test(fusion_changes_no_result),
        cmocka_unit_test(what_is_used_elsewhere_is_not_fused_away),
        cmocka_unit_test(a_folder_holds_what_is_made_while_loading),
        cmocka_unit_test(numbers_come_back_from_quantized_folders),
        cmocka_unit_test(blocks_of_a_gguf_file_are_quantized_again),
        cmocka_unit_test(what_lies_plainly_is_the_files_own),
        cmocka_unit_test(what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
