/* Products by group: every kernel against the interpreter, with groups of no slots, of one and of many, and slots of no group. */
#include "graph/grouped.h"
#include "graph/panels.h"
#include "kernel_check.h"
#include "linear_around.h"

/* Of so many slots: groups from -1 to n, the higher the rarer. */
static void fill_groups(Check *c, int at, int64_t n)
{
    int32_t *group = c->in[at].data;
    const int64_t slots = cvn_type_elements(&c->op->operand[at]->type);
    for (int64_t i = 0; i < slots; i++)
        group[i] = (int32_t)(check_uniform() * check_uniform() * (double)(n + 2)) - 1;
}

static void set_tolerance(Check *c, cvn_dtype out, int64_t k)
{
    c->absolute = 1e-7 * (4 + (double)k) * (out == CVN_F32 ? 1 : 4);
    c->relative = out == CVN_BF16 ? 0x1p-8 : out == CVN_F16 ? 0x1p-11 : 1e-6;
}

static void check_dot(cvn_dtype dtype, cvn_dtype out, int64_t tokens, int64_t slots, int64_t groups,
                      int64_t n, int64_t k, bool own, int contract)
{
    Check c = check_begin();
    cvn_type x = own ? CVN_TYPE(dtype, tokens, slots, k) : CVN_TYPE(dtype, tokens, k);
    cvn_type w = contract == 2 ? CVN_TYPE(dtype, groups, n, k) : CVN_TYPE(dtype, groups, k, n);
    cvn_value *a = check_parameter(&c, x), *b = check_parameter(&c, w);
    cvn_value *group = check_parameter(&c, CVN_TYPE(CVN_I32, tokens, slots));
    check_inputs(&c, cvn_grouped_dot(c.g, a, b, group, contract, out));
    fill_groups(&c, 2, groups);
    set_tolerance(&c, out, k);
    check_kernels(&c, 1);
    check_end(&c);
}

static void rows_times_the_matrix_of_their_group(void **state)
{
    for (int d = 0; d < 3; d++)
        for (int contract = 1; contract < 3; contract++) {
            check_dot(check_floats[d], CVN_F32, 1, 2, 4, 37, 33, false, contract);
            check_dot(check_floats[d], check_floats[d], 7, 3, 5, 20, 65, true, contract);
            check_dot(check_floats[d], CVN_F32, 150, 2, 3, 18, 31, false, contract);
        }
    check_dot(CVN_F32, CVN_F32, 0, 2, 3, 18, 31, false, 2);
}

static void check_outer(cvn_dtype dtype, cvn_dtype out, int64_t tokens, int64_t slots,
                        int64_t groups, int64_t n, int64_t k, bool own)
{
    Check c = check_begin();
    cvn_type y = own ? CVN_TYPE(dtype, tokens, slots, k) : CVN_TYPE(dtype, tokens, k);
    cvn_value *a = check_parameter(&c, CVN_TYPE(dtype, tokens, slots, n)),
              *b = check_parameter(&c, y);
    cvn_value *group = check_parameter(&c, CVN_TYPE(CVN_I32, tokens, slots));
    check_inputs(&c, cvn_grouped_outer(c.g, a, b, group, groups, out));
    fill_groups(&c, 2, groups);
    set_tolerance(&c, out, tokens * slots);
    check_kernels(&c, 1);
    check_end(&c);
}

static void sums_of_outer_products_by_group(void **state)
{
    for (int d = 0; d < 3; d++) {
        check_outer(check_floats[d], CVN_F32, 1, 2, 4, 37, 33, false);
        check_outer(check_floats[d], check_floats[d], 7, 3, 5, 70, 65, true);
        check_outer(check_floats[d], CVN_F32, 90, 2, 3, 131, 18, false);
    }
}

/* groups of n rows and k columns in panels: of floats, of whole numbers with a scale for each row or each 32 columns. */
static void check_panels(cvn_dtype dtype, cvn_dtype x_dtype, cvn_dtype out, int64_t tokens,
                         int64_t slots, int64_t groups, int64_t n, int64_t k, bool own, bool swiglu,
                         bool bias)
{
    Check c = check_begin();
    const int weights = swiglu ? 2 : 1;
    const OpAttr attr = {.group_size = weights};
    cvn_value *operand[8], *y;
    int at = 0;
    operand[at++] = check_parameter(&c, own ? CVN_TYPE(x_dtype, tokens, slots, k)
                                            : CVN_TYPE(x_dtype, tokens, k));
    for (int i = 0; i < weights; i++) {
        operand[at++] = check_parameter(&c, panel_type(dtype, groups * n, k));
        if (panel_scaled(dtype))
            operand[at++] =
                check_parameter(&c, panel_scale_type(dtype == CVN_I8 ? CVN_F32 : CVN_BF16,
                                                     groups * n, dtype == CVN_I8 ? 1 : k / 32));
    }
    operand[at++] = check_parameter(&c, CVN_TYPE(CVN_I32, tokens, slots));
    const cvn_dtype sums = swiglu || bias ? CVN_F32 : out;
    const cvn_type type[] = {CVN_TYPE(sums, tokens, slots, n), CVN_TYPE(sums, tokens, slots, n)};
    y = graph_add(c.g, OP_GROUPED_LINEAR, &attr, at, operand, type);
    cvn_value *up = swiglu ? y->def->result[1] : NULL;
    if (bias)
        y = around_bias(c.g, y, check_parameter(&c, CVN_TYPE(CVN_F32, n)));
    if (swiglu)
        y = around_swiglu(c.g, y, up);
    check_inputs(&c, around_rounded(c.g, y, out));
    for (int i = 0; i < at; i++) /* whole numbers of the whole range */
        if (panel_scaled(c.op->operand[i]->type.dtype))
            check_fill(&c.op->operand[i]->type, c.in[i].data, dtype == CVN_I8 ? -127 : -8,
                       dtype == CVN_I8 ? 128 : 8);
    fill_groups(&c, at - 1, groups);
    const double size = dtype == CVN_I8 ? 127 : dtype == CVN_I4 ? 8 : 1;
    c.absolute = 2e-4 * size * (swiglu ? size * (double)k : 1) * sqrt((double)k);
    c.relative = out == CVN_BF16 ? 0x1p-7 : 2e-3;
    check_kernels(&c, 1);
    check_end(&c);
}

static void weights_in_panels(void **state)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_I8, CVN_I4};
    for (int d = 0; d < 4; d++) {
        const cvn_dtype x = dtypes[d] == CVN_F32 ? CVN_F32 : CVN_BF16;
        check_panels(dtypes[d], x, CVN_F32, 1, 2, 4, 48, 64, false, false, false);
        check_panels(dtypes[d], x, x, 5, 3, 6, 32, 608, true, false, true);
        check_panels(dtypes[d], x, CVN_BF16, 1, 4, 9, 80, 96, false, true, false);
        check_panels(dtypes[d], x, CVN_F32, 300, 2, 3, 16, 64, false, true, true);
    }
}

/* A row has the same bits alone and among others. */
static void rows_do_not_depend_on_the_batch(void **state)
{
    enum { N = 32, K = 640, GROUPS = 3, MOST = 41 };
    static float alone[MOST][N], among[MOST][N];
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16};
    Pool *pool = check_pool(2);
    int32_t group[MOST];
    for (int i = 0; i < MOST; i++)
        group[i] = i % 5 % GROUPS;
    for (int d = 0; d < 2; d++) {
        const cvn_type all = CVN_TYPE(dtypes[d], MOST, K),
                       weight = panel_type(dtypes[d], GROUPS * N, K);
        Guarded x = guarded_new(cvn_type_bytes(&all)), w = guarded_new(cvn_type_bytes(&weight));
        check_fill(&all, x.data, -1, 1);
        check_fill(&weight, w.data, -1, 1);
        for (int i = 0; i <= MOST; i++) { /* one after the other, and then all */
            const int64_t rows = i < MOST ? 1 : MOST, first = i < MOST ? i : 0;
            Check c = check_begin();
            cvn_value *operand[] = {check_parameter(&c, CVN_TYPE(dtypes[d], rows, K)),
                                    check_parameter(&c, weight),
                                    check_parameter(&c, CVN_TYPE(CVN_I32, rows, 1))};
            const OpAttr attr = {.group_size = 1};
            const cvn_type type = CVN_TYPE(CVN_F32, rows, 1, N);
            c.op = graph_add(c.g, OP_GROUPED_LINEAR, &attr, 3, operand, &type)->def;
            const Kernel *kernel = kernel_find(cpu_kernels(), c.op);
            assert_non_null(kernel);
            check_run(&c, kernel, pool,
                      (const void *[]){(char *)x.data + cvn_dtype_bytes(dtypes[d], first * K),
                                       w.data, group + first},
                      (void *[]){i < MOST ? alone[i] : among[0]});
            cvn_graph_free(c.g);
        }
        assert_memory_equal(alone, among, sizeof alone);
        guarded_free(&x);
        guarded_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_times_the_matrix_of_their_group),
        cmocka_unit_test(sums_of_outer_products_by_group),
        cmocka_unit_test(weights_in_panels),
        cmocka_unit_test(rows_do_not_depend_on_the_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
