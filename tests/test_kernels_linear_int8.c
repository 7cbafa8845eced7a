/* Products of rows and weights of 8 bits: every instruction set at odd sizes, AMX on fewer rows than it is taken for, too. */
#include "kernel_check.h"
#include "linear_around.h"

#include "graph/panels.h"

#if defined(CVN_HAVE_AMX)
#include "cpu/kernels/linear.h"

static const Kernel tiles_kernel = {.name = "linear_int8.amx",
                                    .kind = OP_LINEAR_INT8,
                                    .isa = &linear_rows8_amx,
                                    .scratch_isa = linear_scratch,
                                    .run = linear_run};
#endif

/* All instruction sets give the same bits: their sums are exact, and scaled in one order. */
static void check_shape(int64_t m, int64_t k, int64_t n, cvn_dtype out, bool tiles)
{
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_I8, m, k));
    cvn_value *step = check_parameter(&c, CVN_TYPE(CVN_BF16, m, 1));
    cvn_value *q = check_parameter(&c, panel_type(CVN_I8, n, k));
    cvn_value *scale = check_parameter(&c, panel_scale_type(CVN_F32, n, 1));
    check_inputs(&c,
                 panel_linear_int8(c.g, (cvn_value *[]){x, step, q, scale}, CVN_TYPE(out, m, n)));
    check_fill(&x->type, c.in[0].data, -127, 128);
    check_fill(&q->type, c.in[2].data, -128, 128);
    c.relative = out == CVN_BF16 ? 0x1.01p-8 : out == CVN_F16 ? 0x1.01p-10 : 3e-7;
    c.absolute = out == CVN_F16 ? 1e-3 : 0;
    if (out == CVN_F16) /* which is small */
        check_fill(&step->type, c.in[1].data, 0, 1e-3);
    check_kernels(&c, 1);
#if defined(CVN_HAVE_AMX)
    if (tiles && cpu_kernels_of(CPU_ISA_AMX)) {
        const void *in[] = {c.in[0].data, c.in[1].data, c.in[2].data, c.in[3].data};
        void *want = malloc(cvn_type_bytes(&c.op->result[0]->type));
        assert_non_null(want);
        interp_op(c.op, in, &want);
        check_kernel(&c, &tiles_kernel, &want);
        free(want);
    }
#endif
    (void)tiles;
    check_end(&c);
}

static void all_odd_shapes(void **state)
{
    static const int64_t ms[] = {1, 2, 3, 4, 7, 8, 17, 24, 25, 31, 49},
                         sizes[] = {1, 3, 17, 31, 64, 127};
    for (int m = 0; m < 11; m++)
        for (int k = 0; k < 6; k++)
            for (int n = 0; n < 6; n++)
                check_shape(ms[m], sizes[k], sizes[n],
                            (m + n) % 3 == 0   ? CVN_BF16
                            : (m + n) % 3 == 1 ? CVN_F32
                                               : CVN_F16,
                            false);
}

/* The largest sums there are. */
static void sums_fit(void **state)
{
    enum { K = 131072 };
    Check c = check_begin();
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_I8, 2, K));
    cvn_value *step = check_parameter(&c, CVN_TYPE(CVN_BF16, 2, 1));
    cvn_value *q = check_parameter(&c, panel_type(CVN_I8, 1, K));
    cvn_value *scale = check_parameter(&c, panel_scale_type(CVN_F32, 1, 1));
    check_inputs(
        &c, panel_linear_int8(c.g, (cvn_value *[]){x, step, q, scale}, CVN_TYPE(CVN_F32, 2, 1)));
    memset(c.in[0].data, 127, K);
    memset((char *)c.in[0].data + K, -127, K);
    memset(c.in[2].data, -128, c.in[2].bytes);
    c.relative = 3e-7;
    check_kernels(&c, 1);
    check_end(&c);
}

/* ---- products that bring their rows to 8 bits themselves ---- */

typedef struct FusedLinear {
    int64_t m, k, n[3];
    int n_weights;
    bool swiglu, norm, bias, residual;
    cvn_dtype x, out;
} FusedLinear;

/* A normalised element near a tie may be rounded to the other bf16, and so its row to other steps. */
static void check_fused(const FusedLinear *s)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16};
    Check c = check_begin();
    const bool around = s->residual || s->swiglu || s->bias;
    cvn_linear_spec spec = {.contract = 1, .n_weights = s->n_weights, .int8 = true};
    cvn_value *x = check_parameter(&c, CVN_TYPE(s->x, s->m, s->k)), *out[3];
    for (int i = 0; i < s->n_weights; i++) {
        spec.q[i] = check_parameter(&c, panel_type(CVN_I8, s->n[i], s->k));
        spec.scale[i] = check_parameter(&c, panel_scale_type(CVN_F32, s->n[i], 1));
        spec.type[i] = CVN_TYPE(around ? CVN_F32 : s->out, s->m, s->n[i]);
    }
    if (s->norm)
        x = around_norm(c.g, x, check_parameter(&c, CVN_TYPE(dtypes[s->m % 2], s->k)), CVN_I8);
    cvn_linear(c.g, x, &spec, out);
    for (int i = 0; i < s->n_weights && s->bias; i++)
        out[i] = around_bias(c.g, out[i],
                             check_parameter(&c, CVN_TYPE(dtypes[(s->k + i) % 2], s->n[i])));
    if (s->residual)
        out[0] = cvn_add(c.g, out[0], check_parameter(&c, CVN_TYPE(CVN_F32, s->m, s->n[0])));
    if (s->swiglu)
        out[0] = around_swiglu(c.g, out[0], out[1]);
    const int results = s->swiglu ? 1 : s->n_weights;
    for (int i = 0; i < results && around; i++)
        out[i] = around_rounded(c.g, out[i], s->out);
    check_inputs_of(&c, out, results);
    for (int i = 1; i <= 2 * s->n_weights; i += 2)
        check_fill(&c.op->operand[i]->type, c.in[i].data, -128, 128);
    double most = (s->norm ? 4 : 0.05) * sqrt((double)s->k); /* of a product, one step is 1 / 127 */
    c.absolute = s->swiglu ? most * 256 * sqrt((double)s->k) : most;
    c.relative = s->out == CVN_BF16 ? 0x1p-7 : s->out == CVN_F16 ? 0x1p-10 : 1e-5;
    check_kernels(&c, 1);
    check_end(&c);
}

static void all_that_is_fused(void **state)
{
    static const int64_t ms[] = {1, 4, 7, 17, 31, 33, 70}, ks[] = {17, 64, 608, 1100};
    for (int m = 0; m < 7; m++)
        for (int k = 0; k < 4; k++) {
            FusedLinear s = {.m = ms[m],
                             .k = ks[k],
                             .n = {35, 35, 17},
                             .n_weights = 1,
                             .residual = k % 2,
                             .bias = m % 2,
                             .x = k % 2 ? CVN_F32 : CVN_BF16,
                             .out = CVN_F32};
            check_fused(&s);
            s.residual = false;
            s.norm = k < 3;
            s.n_weights = 3;
            check_fused(&s);
            s.swiglu = true;
            s.n_weights = 2;
            s.out = m % 2 ? CVN_F32 : CVN_BF16;
            check_fused(&s);
        }
}

/* Row 0 of m rows, by one kernel, into y [n]. */
static void first_row(const Kernel *kernel, int64_t m, float *y, int64_t n)
{
    enum { K = 1100 };
    Check c = check_begin();
    cvn_linear_spec spec = {
        .contract = 1, .n_weights = 1, .int8 = true, .type = {CVN_TYPE(CVN_F32, m, n)}};
    cvn_value *x = check_parameter(&c, CVN_TYPE(CVN_BF16, m, K)), *out[3];
    spec.q[0] = check_parameter(&c, panel_type(CVN_I8, n, K));
    spec.scale[0] = check_parameter(&c, panel_scale_type(CVN_F32, n, 1));
    cvn_linear(c.g, x, &spec, out);
    check_inputs(&c, out[0]);
    check_state = 5;
    check_fill(&spec.q[0]->type, c.in[1].data, -128, 128);
    check_fill(&spec.scale[0]->type, c.in[2].data, 0, 1);
    check_fill(&x->type, c.in[0].data, -1, 1);
    const void *in[] = {c.in[0].data, c.in[1].data, c.in[2].data};
    float *all = malloc((size_t)(m * n) * sizeof *all);
    assert_non_null(all);
    void *outs[] = {all};
    check_run(&c, kernel, check_pool(2), in, outs);
    memcpy(y, all, (size_t)n * sizeof *y);
    free(all);
    check_end(&c);
}

/* On any instruction set, too: sums are exact. */
static void a_row_has_the_same_bits_in_any_batch(void **state)
{
    enum { N = 37 };
    static const int64_t ms[] = {1, 2, 7, 12, 13, 33, 300};
    float alone[N], among[N];
    bool known = false;
    for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
        const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
        for (int i = 0; backend && i < backend->n_kernels; i++) {
            const Kernel *kernel = backend->kernel[i];
            if (kernel->kind != OP_LINEAR || !strstr(kernel->name, ".rows8"))
                continue;
            for (int m = 0; m < 7; m++) {
                first_row(kernel, ms[m], among, N);
                if (!known)
                    memcpy(alone, among, sizeof alone);
                known = true;
                assert_memory_equal(alone, among, sizeof alone);
            }
        }
    }
    assert_true(known);
}

static void tiles_in_emulation(void **state)
{
    static const int64_t ms[] = {16, 17, 33, 48, 100, 530}, ks[] = {64, 128, 576, 100};
    for (int m = 0; m < 6; m++)
        for (int k = 0; k < 4; k++)
            check_shape(ms[m], ks[k], m % 2 ? 33 : 300, k % 2 ? CVN_BF16 : CVN_F32, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_odd_shapes),
        cmocka_unit_test(sums_fit),
        cmocka_unit_test(all_that_is_fused),
        cmocka_unit_test(a_row_has_the_same_bits_in_any_batch),
        cmocka_unit_test(tiles_in_emulation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
