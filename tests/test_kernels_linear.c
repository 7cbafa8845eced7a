/* Products with weights in panels: every instruction set, i8, i4, bf16 and f32, at odd sizes, alone and in
   batches. */
#include "kernel_check.h"
#include "linear_around.h"

#include "cpu/kernels/linear.h"
#include "cpu/kernels/share.h"
#include "graph/panels.h"

/* Activations in [-1, 1) are rounded to multiples of 1 / 32512, which disturbs each product by
   most / (32512 * 6) or so for weights up to `most`; k of them add up like a random walk. Six times
   that is allowed. */
static void set_tolerance(Check *c, cvn_dtype out, int64_t k, double most)
{
    c->absolute = 3.2e-5 * most * sqrt((double)k);
    c->relative = out == CVN_BF16 ? 0x1p-7 : out == CVN_F16 ? 0x1p-11 : 1e-5;
}

typedef struct Shape {
    int64_t m, k, group; /* group 0: i8 */
    int n_weights;
    int64_t n[3];
    bool swiglu, residual, norm, bias;
    cvn_dtype x, out, scale;
} Shape;

/* The product of x with what stands around it, as the shape says; how it is made of the rest of spec. */
static void check_around(Check *c, const Shape *s, cvn_linear_spec *spec, cvn_value *x)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_F16};
    const bool around = s->residual || s->swiglu || s->bias;
    cvn_value *out[3];
    int n = s->n_weights;
    if (s->norm) {
        cvn_value *norm = check_parameter(c, CVN_TYPE(dtypes[s->m % 3], s->k));
        x = around_norm(c->g, x, norm, spec->q[0]->type.dtype);
    }
    for (int i = 0; i < n && around; i++)
        spec->type[i].dtype = CVN_F32;
    cvn_linear(c->g, x, spec, out);
    for (int i = 0; i < n && s->bias; i++)
        out[i] = around_bias(c->g, out[i],
                             check_parameter(c, CVN_TYPE(dtypes[(s->k + i) % 2], s->n[i])));
    if (s->residual)
        out[0] = cvn_add(c->g, out[0], check_parameter(c, CVN_TYPE(CVN_F32, s->m, s->n[0])));
    if (s->swiglu)
        out[0] = around_swiglu(c->g, out[0], out[1]);
    n = s->swiglu ? 1 : n;
    for (int i = 0; i < n && around; i++)
        out[i] = around_rounded(c->g, out[i], s->out);
    check_inputs_of(c, out, n);
}

static const cvn_type *operand_type(const Check *c, int i)
{
    return &c->op->operand[i]->type;
}

static void check_linear(const Shape *s)
{
    Check c = check_begin();
    cvn_dtype dtype = s->group ? CVN_I4 : CVN_I8;
    cvn_linear_spec spec = {.contract = 1, .n_weights = s->n_weights};
    cvn_value *x = check_parameter(&c, CVN_TYPE(s->x, s->m, s->k));
    for (int i = 0; i < s->n_weights; i++) {
        spec.q[i] = check_parameter(&c, panel_type(dtype, s->n[i], s->k));
        int64_t groups = s->group ? s->k / s->group : 1;
        spec.scale[i] = check_parameter(&c, panel_scale_type(s->scale, s->n[i], groups));
        spec.type[i] = CVN_TYPE(s->out, s->m, s->n[i]);
    }
    check_around(&c, s, &spec, x);
    for (int i = 1; i <= 2 * s->n_weights; i += 2)
        check_fill(operand_type(&c, i), c.in[i].data, s->group ? -8 : -128, s->group ? 8 : 128);
    double most = s->group ? 8 : 128;
    most *=
        s->norm
            ? 2
            : 1; /* rows of uniform numbers grow by sqrt(3); one in a thousand rounds to another bf16 */
    set_tolerance(&c, s->out, s->k, s->swiglu ? most * most * sqrt((double)s->k) : most);
    check_kernels(&c, 1);
    check_end(&c);
}

/* A normalised element near a tie may be rounded to the other bf16: by 2^-8 of up to 2, times a weight. */
static void norms_and_biases(void **state)
{
    for (int group = 0; group <= 32; group += 32)
        for (int64_t m = 1; m < 20; m += 3) {
            Shape s = {.m = m,
                       .k = m % 2 ? 608 : 96,
                       .group = group,
                       .n_weights = 1,
                       .n = {35, 35, 17},
                       .bias = true,
                       .residual = m % 2,
                       .x = CVN_BF16,
                       .out = CVN_F32,
                       .scale = CVN_F32};
            check_linear(&s);
            s.residual = false;
            s.norm = true;
            s.x = m % 2 ? CVN_F32 : CVN_BF16;
            s.n_weights = 3;
            s.bias = m % 2;
            check_linear(&s);
            s.swiglu = true;
            s.n_weights = 2;
            check_linear(&s);
        }
}

static const int64_t sizes[] = {1, 3, 17, 31, 33, 64, 127};

static void weights_of_8_bits_of_all_odd_shapes(void **state)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 7, 8, 12, 13, 17, 31, 33};
    for (size_t m = 0; m < sizeof ms / sizeof *ms; m++)
        for (size_t n = 0; n < 7; n++)
            check_linear(&(Shape){.m = ms[m],
                                  .k = sizes[(m + n) % 7],
                                  .n_weights = 1,
                                  .n = {sizes[n]},
                                  .x = n % 2 ? CVN_BF16 : CVN_F32,
                                  .out = CVN_F32,
                                  .scale = CVN_F32});
}

static void weights_of_4_bits_of_all_groups(void **state)
{
    static const int64_t groups[] = {8, 16, 32, 64, 128, 512}, ms[] = {1, 2, 5, 8, 9, 17};
    for (int g = 0; g < 6; g++)
        for (int m = 0; m < 6; m++)
            check_linear(&(Shape){.m = ms[m],
                                  .k = groups[g] * (1 + (g + m) % 5),
                                  .group = groups[g],
                                  .n_weights = 1,
                                  .n = {sizes[(g + m) % 7]},
                                  .x = m % 2 ? CVN_BF16 : CVN_F32,
                                  .out = m % 3 ? CVN_F32 : CVN_BF16,
                                  .scale = g % 2 ? CVN_BF16 : CVN_F32});
}

static void sums_longer_than_a_span(void **state)
{
    for (int group = 0; group <= 32; group += 32)
        for (int64_t m = 1; m < 20; m += 9)
            check_linear(&(Shape){.m = m,
                                  .k = 1184,
                                  .group = group,
                                  .n_weights = 1,
                                  .n = {37},
                                  .x = CVN_BF16,
                                  .out = CVN_F32,
                                  .scale = CVN_F32});
}

static void weights_that_share_their_input(void **state)
{
    for (int group = 0; group <= 32; group += 32)
        for (int64_t m = 1; m < 20; m += 6)
            check_linear(&(Shape){.m = m,
                                  .k = 96,
                                  .group = group,
                                  .n_weights = 3,
                                  .n = {40, 17, 16},
                                  .x = CVN_BF16,
                                  .out = CVN_F32,
                                  .scale = CVN_F32});
}

static void gated_products_and_residuals(void **state)
{
    for (int group = 0; group <= 32; group += 32)
        for (int64_t m = 1; m < 20; m += 6) {
            Shape s = {.m = m,
                       .k = 64,
                       .group = group,
                       .n_weights = 1,
                       .n = {35, 35},
                       .residual = true,
                       .x = CVN_BF16,
                       .out = CVN_F32,
                       .scale = CVN_F32};
            check_linear(&s);
            s.residual = false;
            s.swiglu = true;
            s.n_weights = 2;
            s.out = CVN_BF16;
            check_linear(&s);
        }
}

static void more_rows_than_a_chunk(void **state)
{
    for (int group = 0; group <= 8; group += 8)
        check_linear(&(Shape){.m = 251,
                              .k = 24,
                              .group = group,
                              .n_weights = 1,
                              .n = {150},
                              .x = CVN_F32,
                              .out = CVN_F32,
                              .scale = CVN_F32});
}

/* The bits of row 0 of y for m rows, by one kernel. */
static void first_row(const Kernel *kernel, cvn_dtype dtype, int64_t m, float *y, int64_t n)
{
    enum { K = 1056 };
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1, .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, m, K)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(dtype, n, K));
    spec.scale[0] = check_parameter(&c, panel_scale_type(CVN_F32, n, dtype == CVN_I4 ? K / 32 : 1));
    cvn_linear(c.g, x, &spec, out);
    check_state = 7; /* the same weights each time */
    check_inputs(&c, out[0]);
    check_state = 8;
    for (int i = 2; i >= 0; i--)
        check_fill(operand_type(&c, i), c.in[i].data, i == 1 ? -8 : -1, i == 1 ? 8 : 1);
    check_state = 9; /* row 0 too; the others differ with m */
    cvn_type row = CVN_TYPE(CVN_BF16, K);
    check_fill(&row, c.in[0].data, -1, 1);
    const void *in[] = {c.in[0].data, c.in[1].data, c.in[2].data};
    float *all = malloc((size_t)(m * n) * sizeof *all);
    void *outs[] = {all};
    check_run(&c, kernel, check_pool(2), in, outs);
    memcpy(y, all, (size_t)n * sizeof *y);
    free(all);
    check_end(&c);
}

/* Whether a kernel of `linear` is one for quantized weights. */
static bool takes_8_bits(const Kernel *kernel)
{
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1, .type = {CVN_TYPE(CVN_F32, 1, 16)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, 1, 64)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(CVN_I8, 16, 64));
    spec.scale[0] = check_parameter(&c, panel_scale_type(CVN_F32, 16, 1));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    bool takes = kernel_matches(kernel, c.op);
    check_end(&c);
    return takes;
}

static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    enum { N = 37 };
    static const int64_t ms[] = {2, 7, 12, 13, 33, 300};
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        for (int i = 0; backend && i < backend->n_kernels; i++) {
            const Kernel *kernel = backend->kernel[i];
            if (kernel->kind != OP_LINEAR || !takes_8_bits(kernel))
                continue;
            for (int d = 0; d < 2; d++) {
                float alone[N], among[N];
                first_row(kernel, d ? CVN_I4 : CVN_I8, 1, alone, N);
                for (int m = 0; m < 6; m++) {
                    first_row(kernel, d ? CVN_I4 : CVN_I8, ms[m], among, N);
                    assert_memory_equal(alone, among, sizeof alone);
                }
            }
        }
    }
}

/* ---- weights that are not quantized ---- */

static void check_float(const Shape *s)
{
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = s->n_weights};
    cvn_dtype weights = s->norm ? s->scale : s->x; /* a norm takes any x */
    cvn_value *x = check_parameter(&c, CVN_TYPE(s->x, s->m, s->k));
    for (int i = 0; i < s->n_weights; i++) {
        spec.q[i] = check_parameter(&c, panel_type(weights, s->n[i], s->k));
        spec.type[i] = CVN_TYPE(s->out, s->m, s->n[i]);
    }
    check_around(&c, s, &spec, x);
    c.absolute = 1e-6 * (double)s->k;
    if (s->norm) /* which rounds some elements to another bf16, and a gate multiplies that */
        c.absolute *= weights == CVN_BF16 ? 128 : 4;
    c.relative = s->out == CVN_BF16 ? 0x1p-7 : s->out == CVN_F16 ? 0x1p-10 : 1e-5;
    check_kernels(&c, 1);
    check_end(&c);
}

static const cvn_dtype floats[] = {CVN_BF16, CVN_F32};

static void weights_of_floats_of_all_odd_shapes(void **state)
{
    static const int64_t ms[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 17, 31, 33, 127};
    for (int d = 0; d < 2; d++)
        for (size_t m = 0; m < sizeof ms / sizeof *ms; m++)
            for (size_t n = 0; n < 7; n += 1 + m % 2)
                check_float(&(Shape){.m = ms[m],
                                     .k = sizes[(m + n) % 7],
                                     .n_weights = 1,
                                     .n = {sizes[n]},
                                     .x = floats[d],
                                     .out = n % 3 ? CVN_F32 : CVN_BF16});
}

static void weights_of_floats_with_all_that_is_fused(void **state)
{
    for (int d = 0; d < 2; d++)
        for (int64_t m = 1; m < 40; m += 12) {
            Shape s = {.m = m,
                       .k = 1187, /* more than two spans */
                       .n_weights = 3,
                       .n = {150, 17, 64},
                       .x = floats[d],
                       .out = CVN_F32};
            check_float(&s);
            s.k = 61;
            s.n_weights = 2;
            s.n[1] = 150;
            s.swiglu = true;
            s.out = CVN_BF16;
            check_float(&s);
            s.n_weights = 1;
            s.swiglu = false;
            s.residual = true;
            check_float(&s);
            s.m = 251; /* more than a chunk */
            check_float(&s);
        }
}

static void norms_and_biases_of_floats(void **state)
{
    for (int d = 0; d < 2; d++)
        for (int64_t m = 1; m < 40; m += 6) {
            Shape s = {.m = m,
                       .k = m % 4 == 1 ? 1187 : 61,
                       .n_weights = 3,
                       .n = {40, 17, 64},
                       .norm = true,
                       .bias = m % 3,
                       .x = m % 2 ? CVN_F32 : CVN_F16,
                       .scale = floats[d],
                       .out = CVN_F32};
            check_float(&s);
            s.n_weights = 2;
            s.n[1] = 40;
            s.swiglu = true;
            check_float(&s);
            s = (Shape){.m = m,
                        .k = 100,
                        .n_weights = 1,
                        .n = {37},
                        .bias = true,
                        .residual = m % 2,
                        .x = floats[d],
                        .out = CVN_BF16};
            check_float(&s);
        }
}

/* Row 0 of y for m rows, by one kernel; the other rows differ. */
static void first_float_row(const Kernel *kernel, cvn_dtype dtype, int64_t m, float *y, int64_t n)
{
    enum { K = 1055 };
    Check c = check_begin();
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1, .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(dtype, m, K)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(dtype, n, K));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    check_state = 8;
    check_fill(&spec.q[0]->type, c.in[1].data, -1, 1);
    cvn_type row = CVN_TYPE(dtype, K);
    check_fill(&row, c.in[0].data, -1, 1);
    const void *in[] = {c.in[0].data, c.in[1].data};
    float *all = malloc((size_t)(m * n) * sizeof *all);
    assert_non_null(all);
    void *outs[] = {all};
    if (!kernel_matches(kernel, c.op)) {
        memset(all, 0, (size_t)n * sizeof *all);
    } else {
        check_run(&c, kernel, check_pool(2), in, outs);
        assert_true(all[0] != 0);
    }
    memcpy(y, all, (size_t)n * sizeof *y);
    free(all);
    check_end(&c);
}

static void a_row_of_floats_has_the_same_bits_in_any_batch(void **state)
{
    enum { N = 85 };
    static const int64_t ms[] = {2, 5, 7, 12, 13, 16, 32, 33, 300};
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        for (int i = 0; backend && i < backend->n_kernels; i++) {
            const Kernel *kernel = backend->kernel[i];
            for (int d = 0; d < 2 && kernel->kind == OP_LINEAR; d++) {
                float alone[N], among[N];
                first_float_row(kernel, floats[d], 1, alone, N);
                for (int m = 0; m < 9; m++) {
                    first_float_row(kernel, floats[d], ms[m], among, N);
                    assert_memory_equal(alone, among, sizeof alone);
                }
            }
        }
    }
}

/* Threads come for more in every order that a number's bits say, turn after turn, twice in each, and one of them never comes. */
static void every_panel_is_taken_once_in_any_order(void **state)
{
    enum { THREADS = 3, MOST = 300 };
    static const int64_t jobs[] = {0, 1, 3, 31, 32, 97, 256, MOST};
    KernelTail tail[THREADS] = {{0}};
    uint64_t turn = 1;
    for (size_t j = 0; j < sizeof jobs / sizeof *jobs; j++, turn++)
        for (uint32_t order = 1; order < 2000; order += 37, turn += order % 2) {
            KernelArgs args[THREADS];
            Share share[THREADS];
            int taken[MOST] = {0};
            bool done[THREADS] = {false};
            for (int t = 0; t < THREADS; t++) {
                args[t] =
                    (KernelArgs){.thread = t, .n_threads = THREADS, .tail = tail, .turn = turn};
                share[t] = share_of(&args[t], jobs[j], true, order % 2 == 0);
            }
            uint32_t bits = order;
            while (!done[0] || !done[1] || !done[2]) {
                int t = (int)(bits % THREADS);
                int64_t begin, end;
                bits = bits * 1664525u + 1013904223u;
                bits ^= bits >> 15;
                if (done[t] || (done[t] = !share_next(&share[t], &begin, &end)))
                    continue;
                for (int64_t i = begin; i < end; i++)
                    taken[i]++;
            }
            for (int64_t i = 0; i < jobs[j]; i++)
                assert_int_equal(taken[i], 1);
        }
}

/* Threads of unequal speed, by a clock that counts panels: all are done at about the time that all panels take all of them. */
static void a_slow_core_holds_up_nobody(void **state)
{
    enum { THREADS = 4, JOBS = 1024 };
    static const double speed[][THREADS] = {
        {1, 1, 1, 1}, {1, 1, 1, 0.5}, {1, 1, 0.5, 0.5}, {1, 0.4, 0.4, 0.4}};
    KernelTail tail[THREADS] = {{0}};
    for (int i = 0; i < 4; i++) {
        KernelArgs args[THREADS];
        Share share[THREADS];
        double at[THREADS] = {0}, all = 0, last = 0;
        bool done[THREADS] = {false};
        for (int t = 0; t < THREADS; t++, all += speed[i][t - 1]) {
            args[t] = (KernelArgs){
                .thread = t, .n_threads = THREADS, .tail = tail, .turn = (uint64_t)i + 1};
            share[t] = share_of(&args[t], JOBS, true, 0);
        }
        for (int left = THREADS; left;) {
            int t = -1;
            for (int j = 0; j < THREADS; j++)
                if (!done[j] && (t < 0 || at[j] < at[t]))
                    t = j;
            int64_t begin, end;
            if (share_next(&share[t], &begin, &end)) {
                at[t] += (double)(end - begin) / speed[i][t];
                last = at[t] > last ? at[t] : last;
            } else {
                done[t] = true;
                left--;
            }
        }
        assert_true(last < 1.15 * JOBS / all);
    }
}

/* Who comes late to a step that others have left finds nothing, even when they have begun the next. */
static void a_late_thread_takes_nothing_of_a_later_step(void **state)
{
    KernelTail tail = {0};
    KernelArgs slow = {.tail = &tail, .turn = 5}, fast = {.tail = &tail, .turn = 5};
    assert_int_equal(kernel_take(&fast, 0, 2), 0);
    assert_int_equal(kernel_take(&slow, 0, 2), 1);
    assert_int_equal(kernel_take(&fast, 0, 2), -1);
    fast.turn = 6;
    assert_int_equal(kernel_take(&fast, 0, 2), 0);
    assert_int_equal(kernel_take(&slow, 0, 2), -1);
    assert_int_equal(kernel_take(&fast, 0, 2), 1);
    assert_int_equal(kernel_take(&fast, 0, 2), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_panel_is_taken_once_in_any_order),
        cmocka_unit_test(a_slow_core_holds_up_nobody),
        cmocka_unit_test(a_late_thread_takes_nothing_of_a_later_step),
        cmocka_unit_test(weights_of_8_bits_of_all_odd_shapes),
        cmocka_unit_test(weights_of_4_bits_of_all_groups),
        cmocka_unit_test(sums_longer_than_a_span),
        cmocka_unit_test(weights_that_share_their_input),
        cmocka_unit_test(norms_and_biases),
        cmocka_unit_test(gated_products_and_residuals),
        cmocka_unit_test(more_rows_than_a_chunk),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(weights_of_floats_of_all_odd_shapes),
        cmocka_unit_test(weights_of_floats_with_all_that_is_fused),
        cmocka_unit_test(norms_and_biases_of_floats),
        cmocka_unit_test(a_row_of_floats_has_the_same_bits_in_any_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
