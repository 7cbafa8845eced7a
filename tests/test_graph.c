/* The builder and the list of operations: sticky errors, inferred types, replacing, removing,
 * cloning. */
#include "graph/graph.h"
#include "unit.h"

static cvn_graph *new_graph(void)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("test", &err);
    assert_non_null(g);
    return g;
}

static void assert_type(const cvn_value *v, const char *expected)
{
    char text[TYPE_TEXT];
    assert_string_equal(type_text(cvn_value_type(v), text, sizeof text), expected);
}

static void every_operation_has_a_row(void **state)
{
    for (int i = 0; i < OP_COUNT; i++) {
        assert_non_null(op_info[i].name);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(op_info[i].name, op_info[j].name);
        assert_true(op_info[i].least <= op_info[i].most);
    }
}

static void types_are_inferred(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_BF16, 2, 5, 6));
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_BF16, 7, 6));
    cvn_value *i = cvn_parameter(g, "i", CVN_TYPE(CVN_I32, 3, 4));
    cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {2}, .rhs_contract = {1}};
    assert_type(cvn_dot_general(g, x, w, &dims, CVN_F32), "f32[2,5,7]");
    assert_type(cvn_transpose(g, x, (int[]){2, 0, 1}), "bf16[6,2,5]");
    assert_type(cvn_slice_axis(g, x, 1, 1, 4), "bf16[2,3,6]");
    assert_type(cvn_concatenate(g, 2, (cvn_value *[]){x, x}, 1), "bf16[2,10,6]");
    assert_type(cvn_reduce_dims(g, CVN_SUM, x, 2, (int[]){0, 2}), "bf16[5]");
    assert_type(cvn_take_rows(g, w, i), "bf16[3,4,6]");
    assert_type(cvn_argmax(g, x, 1), "i32[2,6]");
    assert_type(cvn_compare_values(g, CVN_LT, x, x), "i1[2,5,6]");
    assert_type(cvn_all_gather(g, x, 1, 1, 4, (int64_t[]){0, 1, 2, 3}), "bf16[2,20,6]");
    assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
    cvn_graph_free(g);
}

static void the_first_mistake_is_kept(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 3));
    cvn_value *y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, 3, 2));
    cvn_value *z = cvn_add(cvn_at(g, "model.c", 12), x, y);
    z = cvn_multiply(cvn_at(g, "model.c", 13), z, x);
    cvn_output(g, cvn_reshape(g, z, 1, (int64_t[]){77}));
    cvn_err err = {0};
    assert_int_equal(cvn_graph_check(g, &err), CVN_ESHAPE);
    assert_string_equal(err.message,
                        "model.c:12: add(f32[2,3], f32[3,2]): operands must have the same type");
    cvn_graph_free(g);
}

static void replaced_and_dead_operations_go(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_value *n1 = cvn_negate(g, x), *n2 = cvn_negate(g, n1);
    cvn_value *y = cvn_add(g, n2, x);
    cvn_output(g, y);
    graph_replace(n2, x);
    graph_resolve(g);
    assert_true(graph_remove_dead(g));
    assert_false(graph_remove_dead(g));
    assert_int_equal(g->n_ops, 2);
    assert_ptr_equal(y->def->operand[0], x);
    assert_ptr_equal(g->first->next, y->def);
    cvn_graph_free(g);
}

static void operations_can_be_inserted(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_value *y = cvn_tanh(g, x);
    graph_insert_before(g, y->def);
    cvn_value *z = cvn_abs(g, x);
    assert_ptr_equal(z->def->next, y->def);
    assert_ptr_equal(z->def->prev, x->def);
    cvn_graph_free(g);
}

static void a_clone_is_equal_and_independent(void **state)
{
    cvn_graph *g = new_graph();
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 3));
    cvn_spec spec = {.rank = 2};
    spec.dim[0].n = 1;
    spec.dim[0].axis[0] = "data";
    cvn_mark_sharding(g, x, &spec);
    cvn_value *y = cvn_transpose(g, x, (int[]){1, 0});
    cvn_output_into(g, cvn_transpose(g, y, (int[]){1, 0}), x);
    cvn_graph *copy = graph_clone(g, NULL);
    assert_non_null(copy);
    cvn_graph_free(g);
    assert_int_equal(copy->n_ops, 3);
    assert_string_equal(copy->parameter[0]->spec->dim[0].axis[0], "data");
    assert_ptr_equal(copy->output[0].into, copy->parameter[0]);
    assert_type(copy->output[0].value, "f32[2,3]");
    assert_int_equal(copy->output[0].value->def->attr.dims.v[0], 1);
    cvn_graph_free(copy);
}

static void illegal_operations_are_refused(void **state)
{
    struct {
        const char *says;
    } cases[9] = {
        {"outside 0 to 1"}, {"differ"},          {"named twice"},   {"not divide"},
        {"too large"},      {"two outputs are"}, {"cannot reduce"}, {"the table is missing"},
        {"slot is missing"}};
    for (int i = 0; i < 9; i++) {
        cvn_graph *g = new_graph();
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 3));
        int64_t twice[] = {0, 1, 1, 2};
        if (i == 0)
            cvn_transpose(g, x, (int[]){0, 2});
        if (i == 1)
            cvn_reshape(g, x, 1, (int64_t[]){7});
        if (i == 2)
            cvn_all_reduce(g, x, CVN_SUM, 2, 2, twice);
        if (i == 3)
            cvn_reduce_scatter(g, x, CVN_SUM, 1, 1, 2, twice);
        if (i == 4)
            cvn_parameter(g, "y", CVN_TYPE(CVN_F32, INT64_C(1) << 40, INT64_C(1) << 40));
        if (i == 5) {
            cvn_output_into(g, x, x);
            cvn_output_into(g, x, x);
        }
        if (i == 6)
            cvn_reduce_dims(g, CVN_ALL, x, 0, NULL);
        cvn_value *kv = cvn_parameter(g, "kv", CVN_TYPE(CVN_F32, 1, 4, 1, 2));
        cvn_value *row = cvn_parameter(g, "row", CVN_TYPE(CVN_I32, 1));
        if (i == 7)
            cvn_cache_update(g, kv, kv, row, row, NULL);
        cvn_value *table = cvn_parameter(g, "table", CVN_TYPE(CVN_I32, 1, 1));
        if (i == 8)
            cvn_attention(g, kv, kv, kv, row, row, &(cvn_attention_spec){.table = table});
        cvn_err err = {0};
        assert_int_not_equal(cvn_graph_check(g, &err), CVN_OK);
        if (!strstr(err.message, cases[i].says))
            fail_msg("case %d: '%s' does not say '%s'", i, err.message, cases[i].says);
        cvn_graph_free(g);
    }
}

/* Of the caller's arrays no more is read than they have, whatever the counts and types say. */
static void what_lists_and_types_claim_is_not_believed(void **state)
{
    cvn_gather_dims nine = {.n_window = CVN_MAX_RANK + 1};
    cvn_dot_dims many = {.n_batch = 100};
    cvn_type long_type = {.dtype = CVN_F32, .rank = 99};
    cvn_type huge = CVN_TYPE(CVN_F32, INT64_C(1) << 40, INT64_C(1) << 40);
    const int64_t none[CVN_MAX_RANK] = {0}, far[] = {INT64_MAX}, ids[] = {0, 1};
    static const char *const says[] = {"at most 8", "at most 8", "has a rank", "too large",
                                       "interior",  "too many",  "too many",   "has a rank"};
    for (int i = 0; i < 8; i++) {
        cvn_graph *g = new_graph();
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 1)), *out[3];
        cvn_value *index = cvn_parameter(g, "i", CVN_TYPE(CVN_I32, 1));
        cvn_linear_spec spec = {.contract = 1, .n_weights = 3, .q = {x, x, x}};
        if (i == 0)
            cvn_gather(g, x, index, &nine, none);
        if (i == 1)
            cvn_dot_general(g, x, x, &many, CVN_F32);
        if (i == 2)
            cvn_constant(g, long_type, none);
        if (i == 3)
            cvn_constant(g, huge, none);
        if (i == 4)
            cvn_pad(g, x, cvn_splat(g, cvn_scalar(CVN_F32), 0), none, none, far);
        if (i == 5)
            cvn_all_reduce(g, x, CVN_SUM, 65536, 65536, ids);
        if (i == 6)
            cvn_collective_permute(g, x, INT32_MAX, ids);
        if (i == 7) {
            spec.type[0] = spec.type[1] = spec.type[2] = x->type;
            spec.type[1].rank = 99;
            cvn_linear(g, x, &spec, out);
        }
        cvn_err err = {0};
        assert_int_not_equal(cvn_graph_check(g, &err), CVN_OK);
        if (!strstr(err.message, says[i]))
            fail_msg("case %d: '%s' does not say '%s'", i, err.message, says[i]);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_has_a_row),
        cmocka_unit_test(what_lists_and_types_claim_is_not_believed),
        cmocka_unit_test(types_are_inferred),
        cmocka_unit_test(the_first_mistake_is_kept),
        cmocka_unit_test(replaced_and_dead_operations_go),
        cmocka_unit_test(operations_can_be_inserted),
        cmocka_unit_test(a_clone_is_equal_and_independent),
        cmocka_unit_test(illegal_operations_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
