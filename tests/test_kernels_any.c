/*
 * Operations drawn at random, of every dtype of a byte or more: each has a kernel at every level of instruction set, which
 * does what the interpreter does. And those of f64 and whole numbers at sizes around blocks and lines.
 */
#include "kernel_check.h"
#include "random_graph.h"

/* The fallback's alone: what is packed below a byte, and keys of 64 bits to sort by. */
static bool may_fall_back(const Op *op)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i]->type.dtype == CVN_I4)
            return true;
    cvn_dtype dtype = op->result[0]->type.dtype;
    return dtype == CVN_I4 || (dtype == CVN_F64 && op->kind == OP_SORT);
}

/* Views and constants are no steps; composites without a kernel are decomposed. */
static bool is_step(const Op *op)
{
    OpClass class_ = op_info[op->kind].class_;
    return op->kind != OP_RESHAPE && op->kind != OP_PARAMETER && op->kind != OP_CONSTANT &&
           class_ != CLASS_COMPOSITE && class_ != CLASS_CONTROL && class_ != CLASS_COLLECTIVE;
}

/* Sums that cancel are as near as what they are sums of. */
static void set_tolerance(Check *c)
{
    cvn_dtype in = c->op->n_operands ? c->op->operand[0]->type.dtype : CVN_F32;
    cvn_dtype out = c->op->result[0]->type.dtype;
    bool wide = in == CVN_F64 || out == CVN_F64;
    c->relative = out == CVN_F64 || !dtype_is_float(out) ? 1e-14 : check_ulp(out);
    c->absolute = !dtype_is_float(out) ? 0 : wide ? 1e-12 : 1e-3;
}

static void check_op(const Op *op, uint64_t *specials)
{
    Check c = {.op = op};
    bool product = op->kind == OP_REDUCE && op->attr.reduce == CVN_PRODUCT;
    for (int i = 0; i < op->n_operands; i++) {
        const cvn_type *type = &op->operand[i]->type;
        bool near_one = product && dtype_is_float(type->dtype);
        c.in[i] = guarded_new(cvn_type_bytes(type));
        if (specials)
            random_fill(specials, type, c.in[i].data, true);
        else
            check_fill(type, c.in[i].data, near_one ? 0.9 : -4, near_one ? 1.1 : 9);
    }
    set_tolerance(&c);
    check_kernels(&c, may_fall_back(op) ? 0 : 1);
    for (int i = 0; i < op->n_operands; i++)
        guarded_free(&c.in[i]);
}

static void random_operations_have_kernels_that_agree_with_the_interpreter(void **state)
{
    RandomOptions options = {.n_ops = 40, .n_parameters = 5, .most_elements = 2000};
    int drawn[OP_COUNT] = {0};
    uint64_t specials = 1;
    for (uint64_t seed = 1; seed <= 250; seed++) {
        cvn_graph *g = random_graph(seed, &options);
        assert_non_null(g);
        for (const Op *op = g->first; op; op = op->next) {
            if (!is_step(op))
                continue;
            for (int isa = 0; isa < CPU_ISA_COUNT; isa++) {
                const KernelSet *backend = cpu_kernels_of((CpuIsa)isa);
                char text[TYPE_TEXT];
                if (backend && !may_fall_back(op) && !kernel_find(backend, op))
                    fail_msg("no kernel of level %s for %s, result %s", backend->name,
                             op_info[op->kind].name,
                             type_text(&op->result[0]->type, text, sizeof text));
            }
            check_op(op, NULL);
            if (op_info[op->kind].class_ != CLASS_REDUCE &&
                op_info[op->kind].class_ != CLASS_CONTRACT)
                check_op(op, &specials);
            drawn[op->kind]++;
        }
        cvn_graph_free(g);
    }
    assert_true(drawn[OP_SCATTER] > 20 && drawn[OP_GATHER] > 20 && drawn[OP_DOT_GENERAL] > 20);
    assert_true(drawn[OP_REDUCE] > 20 && drawn[OP_CONVERT] > 20 && drawn[OP_CUMSUM] > 20);
}

static void products_of_doubles_and_whole_numbers(void **state)
{
    static const cvn_dtype rows[][2] = {{CVN_F64, CVN_F64}, {CVN_F64, CVN_F32}, {CVN_F64, CVN_BF16},
                                        {CVN_F32, CVN_F64}, {CVN_F16, CVN_F64}, {CVN_I32, CVN_I32},
                                        {CVN_U32, CVN_U32}, {CVN_I8, CVN_I8},   {CVN_I8, CVN_I32}};
    static const char *const equation[] = {"mk,nk->mn", "km,kn->mn", "mk,kn->mn"};
    static const int64_t sizes[][3] = {/* m, n, k */
                                       {1, 129, 65}, {17, 64, 1}, {9, 63, 300},
                                       {3, 1, 5},    {0, 5, 3},   {4, 3, 0}};
    for (size_t d = 0; d < sizeof rows / sizeof *rows; d++)
        for (int e = 0; e < 3; e++)
            for (int s = 0; s < 6; s++) {
                int64_t m = sizes[s][0], n = sizes[s][1], k = sizes[s][2];
                Check c = check_begin();
                cvn_type lhs = e == 1 ? CVN_TYPE(rows[d][0], k, m) : CVN_TYPE(rows[d][0], m, k);
                cvn_type rhs = e > 0 ? CVN_TYPE(rows[d][0], k, n) : CVN_TYPE(rows[d][0], n, k);
                cvn_value *a = check_parameter(&c, lhs), *b = check_parameter(&c, rhs);
                check_inputs(&c, cvn_einsum_as(c.g, equation[e], a, b, rows[d][1]));
                if (!dtype_is_float(rows[d][0])) { /* sums that wrap */
                    check_fill(&lhs, c.in[0].data, -2e9, 4e9);
                    check_fill(&rhs, c.in[1].data, -2e9, 4e9);
                }
                set_tolerance(&c);
                check_kernels(&c, 1);
                check_end(&c);
            }
    Check c = check_begin();
    cvn_value *a = check_parameter(&c, CVN_TYPE(CVN_F64, 2, 13, 3, 10));
    cvn_value *b = check_parameter(&c, CVN_TYPE(CVN_F64, 2, 3, 7, 10));
    check_inputs(&c, cvn_einsum(c.g, "bsnh,bnth->bnst", a, b)); /* batches that lie apart */
    set_tolerance(&c);
    check_kernels(&c, 1);
    check_end(&c);
}

static void reductions_of_dimensions_that_lie_apart(void **state)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_F64, CVN_I8, CVN_I32, CVN_BOOL};
    static const struct {
        int n, dims[2];
    } rows[] = {{2, {0, 2}}, {2, {1, 3}}, {2, {0, 3}}, {1, {1}}, {1, {3}}};
    static const int64_t shapes[][4] = {
        {3, 5, 7, 2}, {2, 300, 3, 5}, {2, 3, 2, 600}, {2, 0, 3, 4}, {2, 3, 0, 4}};
    for (int d = 0; d < 6; d++)
        for (int kind = 0; kind < REDUCE_COUNT; kind++)
            for (int r = 0; r < 5; r++)
                for (int s = 0; s < 5; s++) {
                    if ((kind == CVN_ALL || kind == CVN_ANY) != (dtypes[d] == CVN_BOOL))
                        continue;
                    Check c = check_begin();
                    const int64_t *n = shapes[s];
                    cvn_value *x = check_parameter(&c, CVN_TYPE(dtypes[d], n[0], n[1], n[2], n[3]));
                    check_inputs(
                        &c, cvn_reduce_dims(c.g, (cvn_reduce)kind, x, rows[r].n, rows[r].dims));
                    if (kind == CVN_PRODUCT && dtype_is_float(dtypes[d]))
                        check_fill(&x->type, c.in[0].data, 0.99, 1.01);
                    set_tolerance(&c);
                    check_kernels(&c, 1);
                    check_end(&c);
                }
}

/* Several components, boxes that overlap and hang out of bounds, windows before and between the dimensions of the indices. */
static void scatters_of_every_form(void **state)
{
    static const struct {
        cvn_type x, indices, updates;
        cvn_gather_dims dims;
    } rows[] = {
        {{CVN_F32, 2, {11, 300}},
         {CVN_I32, 1, {19}},
         {CVN_F32, 2, {19, 300}}, /* rows */
         {.n_window = 1,
          .window = {1},
          .n_collapsed = 1,
          .collapsed = {0},
          .n_index_map = 1,
          .index_map = {0},
          .index_vector_dim = 1}},
        {{CVN_F32, 3, {5, 11, 7}},
         {CVN_I32, 2, {2, 23}},
         {CVN_F32, 3, {23, 4, 7}}, /* boxes at two components, held in the first dimension */
         {.n_window = 2,
          .window = {1, 2},
          .n_collapsed = 1,
          .collapsed = {0},
          .n_index_map = 2,
          .index_map = {1, 0},
          .index_vector_dim = 0}},
        {{CVN_F32, 1, {17}},
         {CVN_U32, 1, {40}},
         {CVN_F32, 2, {5, 40}}, /* windows first: in row-major order the later ones come later */
         {.n_window = 1, .window = {0}, .n_index_map = 1, .index_map = {0}, .index_vector_dim = 1}},
        {{CVN_F32, 3, {3, 11, 9}},
         {CVN_I32, 3, {3, 13, 1}},
         {CVN_F32, 3, {3, 4, 13}}, /* batches, and a window between the dimensions of the indices */
         {.n_window = 1,
          .window = {1},
          .n_collapsed = 1,
          .collapsed = {2},
          .n_operand_batch = 1,
          .operand_batch = {0},
          .n_index_batch = 1,
          .index_batch = {0},
          .n_index_map = 1,
          .index_map = {2},
          .index_vector_dim = 2}},
        {{CVN_F32, 0, {0}},
         {CVN_I32, 1, {0}},
         {CVN_F32, 0, {0}}, /* a scalar */
         {.index_vector_dim = 0}},
        {{CVN_F32, 2, {5, 4}},
         {CVN_I32, 2, {0, 1}},
         {CVN_F32, 2, {0, 4}}, /* nothing */
         {.n_window = 1,
          .window = {1},
          .n_collapsed = 1,
          .collapsed = {0},
          .n_index_map = 1,
          .index_map = {0},
          .index_vector_dim = 1}},
    };
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16, CVN_F64, CVN_I32, CVN_I8, CVN_BOOL};
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++)
        for (int d = 0; d < 6; d++)
            for (int adds = 0; adds < 2; adds++) {
                if (adds && dtypes[d] == CVN_BOOL)
                    continue;
                Check c = check_begin();
                cvn_type x = rows[r].x, u = rows[r].updates;
                x.dtype = u.dtype = dtypes[d];
                cvn_value *to = check_parameter(&c, x), *from;
                cvn_value *indices = check_parameter(&c, rows[r].indices);
                from = check_parameter(&c, u);
                check_inputs(&c, adds ? cvn_scatter_add(c.g, to, indices, from, &rows[r].dims)
                                      : cvn_scatter_assign(c.g, to, indices, from, &rows[r].dims));
                check_fill(&x, c.in[0].data, -90, 90);
                check_fill(&rows[r].indices, c.in[1].data, -3, 13);
                check_fill(&u, c.in[2].data, -90, 90);
                check_kernels(&c, 1);
                check_end(&c);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_have_kernels_that_agree_with_the_interpreter),
        cmocka_unit_test(products_of_doubles_and_whole_numbers),
        cmocka_unit_test(reductions_of_dimensions_that_lie_apart),
        cmocka_unit_test(scatters_of_every_form),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
