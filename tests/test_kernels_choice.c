/* The table by which kernels of products are taken: complete, and legal. */
#include "kernel_check.h"

#include "cpu/kernels/choice.h"
#include "cpu/kernels/kernels.h"
#include "graph/blocks.h"
#include "graph/panels.h"

enum { MOST = 300, N = 37, K = 128, GROUP = 32 };

/* Every table with kernels that are taken by rows, whether this machine can run them or not. */
static const Kernel *const tables[] = {
    dot_kernels_portable,
    dot_kernels_portable_same,
    linear_kernels_portable,
    linear_kernels_portable_same,
#if defined(CVN_HAVE_DOTPROD)
    linear_kernels_dotprod,
    linear_kernels_dotprod_same,
#endif
#if defined(CVN_HAVE_I8MM)
    linear_kernels_i8mm,
    linear_kernels_i8mm_same,
#endif
#if defined(CVN_HAVE_AVX2)
    dot_kernels_avx2,
    dot_kernels_avx2_same,
    linear_kernels_avx2,
    linear_kernels_avx2_same,
#endif
#if defined(CVN_HAVE_AVX512)
    dot_kernels_avx512,
    dot_kernels_avx512_same,
    dot_kernels_avx512_bf16,
    linear_kernels_avx512,
    linear_kernels_avx512_same,
    linear_kernels_avx512_bf16,
    linear_kernels_avx512_vnni,
    linear_kernels_avx512_vnni_same,
#endif
#if defined(CVN_HAVE_AMX)
    dot_kernels_amx,
    linear_kernels_amx,
#endif
};

enum { TABLES = sizeof tables / sizeof *tables };

/* The products that are there: weights of each dtype in rows, in panels, and with rows of 8 bits. */
static const struct Form {
    OpKind kind;
    cvn_dtype weight;
    bool int8; /* x is brought to 8 bits */
    const char *blocks;
} forms[] = {
    {OP_DOT_GENERAL, CVN_F32, false, NULL}, {OP_DOT_GENERAL, CVN_BF16, false, NULL},
    {OP_LINEAR, CVN_F32, false, NULL},      {OP_LINEAR, CVN_BF16, false, NULL},
    {OP_LINEAR, CVN_I8, false, NULL},       {OP_LINEAR, CVN_I4, false, NULL},
    {OP_LINEAR_INT8, CVN_I8, false, NULL},  {OP_LINEAR, CVN_I8, true, NULL},
    {OP_LINEAR, CVN_I8, false, "q4_0"},     {OP_LINEAR, CVN_I8, true, "q4_0"},
    {OP_LINEAR, CVN_I8, false, "f8_e4m3"},
};

enum { FORMS = sizeof forms / sizeof *forms };

static const Op *product(cvn_graph *g, const struct Form *form, int64_t m)
{
    cvn_type y = CVN_TYPE(CVN_F32, m, N);
    cvn_dtype x_dtype = form->weight == CVN_F32 ? CVN_F32 : CVN_BF16;
    if (form->kind == OP_DOT_GENERAL) {
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(form->weight, m, K));
        cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(form->weight, N, K));
        return cvn_einsum_as(g, "mk,nk->mn", x, w, CVN_F32)->def;
    }
    cvn_type panels =
        form->blocks ? block_panel_type(form->blocks[0] == 'f' ? BLOCK_F8_E4M3 : BLOCK_Q4_0, N, K)
                     : panel_type(form->weight, N, K);
    cvn_value *q = cvn_parameter(g, "q", panels), *out[3];
    cvn_type scales = panel_scale_type(CVN_F32, N, form->weight == CVN_I4 ? K / GROUP : 1);
    bool scaled = panel_scaled(form->weight) && !form->blocks;
    cvn_value *scale = scaled ? cvn_parameter(g, "s", scales) : NULL;
    if (form->kind == OP_LINEAR_INT8) {
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_I8, m, K));
        cvn_value *step = cvn_parameter(g, "step", CVN_TYPE(CVN_BF16, m, 1));
        return panel_linear_int8(g, (cvn_value *[]){x, step, q, scale}, y)->def;
    }
    cvn_linear_spec spec = {.contract = 1,
                            .n_weights = 1,
                            .int8 = form->int8,
                            .blocks = form->blocks,
                            .q = {q},
                            .scale = {scale},
                            .type = {y}};
    cvn_linear(g, cvn_parameter(g, "x", CVN_TYPE(x_dtype, m, K)), &spec, out);
    return out[0]->def;
}

/* Whether a kernel takes a product of m rows. */
static bool takes(const Kernel *kernel, const struct Form *form, int64_t m)
{
    if (kernel->kind != form->kind)
        return false;
    cvn_graph *g = cvn_graph_new("choice", NULL);
    assert_non_null(g);
    bool yes = kernel_matches(kernel, product(g, form, m));
    assert_int_equal(cvn_graph_check(g, NULL), 0);
    cvn_graph_free(g);
    return yes;
}

static void every_kernel_that_looks_at_rows_is_in_the_table(void **state)
{
    bool found[64] = {false};
    for (int t = 0; t < TABLES; t++)
        for (const Kernel *kernel = tables[t]; kernel->name; kernel++) {
            const RowChoice *row = choice_of(kernel->name);
            /* No product, or one of any number of rows of each group. */
            bool ever = kernel->kind == OP_QUANTIZE_ROWS || kernel->kind == OP_GROUPED_LINEAR ||
                        kernel->kind == OP_GROUPED_DOT || kernel->kind == OP_GROUPED_OUTER;
            for (int f = 0; f < FORMS; f++) {
                int64_t inside = row ? row->from : 1;
                if (!takes(kernel, &forms[f], inside ? inside : 1))
                    continue;
                ever = true;
                for (int64_t m = 1; m <= MOST; m += m < 70 ? 1 : 23)
                    if (takes(kernel, &forms[f], m) != choice_takes(kernel->name, m))
                        fail_msg("%s with %d rows is not what the table says", kernel->name,
                                 (int)m);
            }
            assert_true(ever);
            if (row)
                found[row - row_choices] = true;
        }
    for (int i = 0; i < row_choices_count; i++) {
        const RowChoice *row = &row_choices[i];
        assert_true(row->from >= 0 && row->from < row->to);
        assert_true(row->from == 0 || row->to == INT64_MAX); /* what is few, or what is many */
        assert_ptr_equal(choice_of(row->kernel), row);       /* once */
#if defined(CVN_HAVE_AMX)
        if (!found[i])
            fail_msg("there is no kernel %s", row->kernel);
#else
        (void)found;
#endif
    }
}

/* At every level something takes every number of rows, and one kernel follows another once at most. */
static void every_number_of_rows_has_a_kernel(void **state)
{
    for (int i = 0; i < 2 * CPU_ISA_COUNT; i++) {
        const KernelSet *backend = cpu_kernels_of_as((CpuIsa)(i / 2), i % 2);
        for (int f = 0; backend && f < FORMS; f++) {
            const Kernel *last = NULL;
            int changes = 0;
            for (int64_t m = 1; m <= MOST; m += m < 70 ? 1 : 23) {
                const Kernel *found = NULL;
                for (int k = 0; k < backend->n_kernels && !found; k++)
                    if (takes(backend->kernel[k], &forms[f], m))
                        found = backend->kernel[k];
                assert_non_null(found);
                changes += last && found != last;
                last = found;
            }
            assert_true(changes <= 1);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kernel_that_looks_at_rows_is_in_the_table),
        cmocka_unit_test(every_number_of_rows_has_a_kernel),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
