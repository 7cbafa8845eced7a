/* The verifier finds every broken promise of graph.h: each test breaks one and reads the message. */
#include "graph/graph.h"
#include "unit.h"

/* x, y -> sum = x + y, sorted, order = sort(sum, y), scaled = sum * 2; outputs scaled into x, sorted. */
typedef struct Fixture {
    cvn_graph *g;
    cvn_value *x, *y, *sum, *two, *scaled, *pair[2];
} Fixture;

static Fixture make(void)
{
    Fixture f;
    cvn_err err = {0};
    cvn_graph *g = f.g = cvn_graph_new("broken", &err);
    assert_non_null(g);
    cvn_at(g, "model.c", 7);
    f.x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2, 3));
    f.y = cvn_parameter(g, "y", CVN_TYPE(CVN_F32, 2, 3));
    f.sum = cvn_add(g, f.x, f.y);
    cvn_sort_pair(g, f.sum, f.y, 1, false, f.pair);
    f.two = cvn_splat(g, f.sum->type, 2);
    f.scaled = cvn_multiply(g, f.sum, f.two);
    cvn_output_into(g, f.scaled, f.x);
    cvn_output(g, f.pair[0]);
    assert_int_equal(graph_verify(g, &err), CVN_OK);
    return f;
}

/* Verifies the graph, which must be refused with this message, and frees it. */
static void refused(Fixture *f, const char *message)
{
    cvn_err err = {0};
    assert_int_equal(graph_verify(f->g, &err), CVN_EINVAL);
    if (!strstr(err.message, message))
        fail_msg("expected: %s\n     got: %s", message, err.message);
    cvn_graph_free(f->g);
}

static void errors_of_building_come_first(void **state)
{
    Fixture f = make();
    cvn_transpose(f.g, f.x, (const int[]){0, 0});
    cvn_err err = {0};
    assert_int_equal(graph_verify(f.g, &err), CVN_ESHAPE);
    assert_non_null(strstr(err.message, "model.c:7: transpose"));
    cvn_graph_free(f.g);
}

static void the_list_must_be_linked_both_ways(void **state)
{
    Fixture f = make();
    f.sum->def->prev = f.x->def;
    refused(&f,
            "graph 'broken', operation 2 (add, made at model.c:7): it does not lead back to the "
            "operation before it");
    f = make();
    f.sum->def->next = f.scaled->def;
    refused(&f, "operation 3 (multiply, made at model.c:7): it does not lead back");
    f = make();
    f.scaled->def->next = f.sum->def;
    refused(&f, "operation 6 (add, made at model.c:7): it does not lead back");
    f = make();
    f.g->last = f.two->def;
    refused(&f, "operation 5 (multiply, made at model.c:7): the list goes on after it");
    f = make();
    f.g->first = f.y->def;
    refused(&f, "operation 0 (parameter, made at model.c:7): it does not lead back");
    f = make();
    f.g->n_ops = 7;
    refused(&f, "it counts 7 operations, but has 6");
    f = make();
    f.g->insert_point = f.sum->def;
    refused(&f, "the last pass left its insertion point set");
}

static void operands_must_be_defined_before_their_use(void **state)
{
    Fixture f = make();
    f.sum->def->operand[1] = f.scaled;
    refused(&f, "operation 2 (add, made at model.c:7): operand 1 is not defined before it");
    f = make();
    f.sum->def->operand[0] = f.sum;
    refused(&f, "operand 0 is not defined before it");
    f = make();
    f.sum->def->operand[0] = NULL;
    refused(&f, "operand 0 is not defined before it");
    /* A value of another graph, even one with the id of a value here. */
    Fixture other = make();
    f = make();
    f.sum->def->operand[0] = other.x;
    refused(&f, "operand 0 is not defined before it");
    cvn_graph_free(other.g);
    f = make();
    f.scaled->def->n_operands = 1;
    refused(&f, "it has 1 operands, expected 2 to 2");
    /* An operation that was removed though its result is used. */
    f = make();
    graph_remove(f.g, f.two->def);
    refused(&f, "operation 4 (multiply, made at model.c:7): operand 1 is not defined before it");
}

static void replacements_must_be_resolved(void **state)
{
    Fixture f = make();
    graph_replace(f.sum, f.y);
    refused(&f, "operation 3 (sort, made at model.c:7): operand 0 was replaced and not resolved");
    f = make();
    graph_replace(f.scaled, f.y);
    refused(&f, "output 0 was replaced and not resolved");
    f = make();
    graph_replace(f.sum, f.y);
    graph_resolve(f.g);
    graph_remove_dead(f.g);
    assert_int_equal(graph_verify(f.g, NULL), CVN_OK);
    cvn_graph_free(f.g);
}

static void results_must_be_their_operations_own(void **state)
{
    Fixture f = make();
    f.pair[1]->result = 0;
    refused(&f, "operation 3 (sort, made at model.c:7): result 1 is not its own");
    f = make();
    f.scaled->def = f.sum->def;
    refused(&f, "result 0 is not its own");
    f = make();
    f.pair[0]->def->n_results = 1;
    refused(&f, "it has 1 results, expected 2");
    f = make();
    f.scaled->id = f.sum->id;
    refused(&f, "result 0 has the id 2 of another value");
    f = make();
    f.scaled->id = 99;
    refused(&f, "result 0 has id 99, but only 7 were handed out");
}

static void types_must_be_those_inferred(void **state)
{
    Fixture f = make();
    f.scaled->type.dim[1] = 4;
    refused(&f, "result 0 has type f32[2,4], but inference gives f32[2,3]");
    f = make();
    f.y->type.dtype = CVN_BF16;
    refused(&f, "operation 2 (add, made at model.c:7): add(f32[2,3], bf16[2,3]): operands must");
    f = make();
    f.x->type.rank = 99;
    refused(&f, "the result has a rank outside 0 to 8");
    f = make();
    f.x->type.dim[0] = -2;
    refused(&f, "the result has a negative size");
    f = make();
    f.scaled->def->kind = (OpKind)99;
    refused(&f, "there is no kind of operation 99");
}

static void attributes_must_be_whole_and_of_the_kind(void **state)
{
    Fixture f = make();
    f.two->def->attr.literal.bytes = 3;
    refused(&f, "operation 4 (constant, made at model.c:7): constant(): has 3 bytes of data");
    f = make();
    f.x->def->attr.name = NULL;
    refused(&f, "attribute name is missing");
    f = make();
    f.pair[0]->def->attr.axis = 2;
    refused(&f, "axis 2 is outside 0 to 1");
    f = make();
    f.sum->def->attr.axis = 1;
    refused(&f, "operation 2 (add, made at model.c:7): it has an attribute that is not one of its");
    f = make();
    f.sum->def->attr.int8 = true;
    refused(&f, "it has an attribute that is not one of its kind");
    f = make();
    f.pair[0]->def->attr.dims = graph_ints(f.g, 1, (const int64_t[]){0});
    refused(&f, "it has an attribute that is not one of its kind");
    f = make();
    cvn_value *turned = cvn_transpose(f.g, f.sum, (const int[]){1, 0});
    turned->def->attr.dims.n = -1;
    refused(&f, "attribute permutation is a list of -1 integers at no address");
    f = make();
    cvn_value *lt = cvn_compare_values(f.g, CVN_LT, f.x, f.y);
    lt->def->attr.compare = (cvn_compare)17;
    refused(&f, "unknown direction");
    f = make();
    cvn_value *max = cvn_reduce_dims(f.g, CVN_MAX, f.x, 0, NULL);
    max->def->attr.reduce = (cvn_reduce)17;
    refused(&f, "unknown reducer");
}

static void specs_must_fit_their_values(void **state)
{
    static const cvn_spec fits = {.rank = 2, .dim = {{1, {"data"}}, {2, {"model", "expert"}}}};
    Fixture f = make();
    cvn_mark_sharding(f.g, f.sum, &fits);
    assert_int_equal(graph_verify(f.g, NULL), CVN_OK);
    cvn_graph_free(f.g);
    cvn_spec spec = fits;
    f = make();
    f.sum->spec = &spec;
    spec.rank = 1;
    refused(&f, "a spec has rank 1, its value 2");
    f = make();
    f.sum->spec = &spec;
    spec = fits;
    spec.dim[1].axis[1] = "data";
    refused(&f, "a spec uses the axis 'data' twice");
    f = make();
    f.sum->spec = &spec;
    spec = fits;
    spec.dim[0].axis[0] = "_";
    refused(&f, "a spec names no mesh axis for dimension 0");
    f = make();
    f.sum->spec = &spec;
    spec = fits;
    spec.dim[0].axis[0] = NULL;
    refused(&f, "a spec names no mesh axis for dimension 0");
    f = make();
    f.sum->spec = &spec;
    spec = fits;
    spec.dim[1].n = 5;
    refused(&f, "a spec splits dimension 1 by 5 axes");
}

static void parameters_must_be_listed_in_order_with_names_of_their_own(void **state)
{
    Fixture f = make();
    f.g->parameter[0] = f.y;
    f.g->parameter[1] = f.x;
    refused(&f,
            "operation 0 (parameter, made at model.c:7): parameter 0 of the list is another one");
    f = make();
    f.g->n_parameters = 1;
    refused(&f,
            "operation 1 (parameter, made at model.c:7): parameter 1 of the list is another one");
    f = make();
    f.g->n_parameters = 3;
    f.g->parameter[2] = f.x;
    refused(&f, "1 parameters of its list have no operation");
    f = make();
    f.y->def->attr.name = "x";
    refused(&f, "there are two parameters 'x'");
}

static void outputs_must_be_values_and_their_places_parameters(void **state)
{
    Fixture other = make(), f = make();
    f.g->output[1].value = other.sum;
    refused(&f, "output 1 is not a value of the graph");
    f = make();
    f.g->output[1].value = NULL;
    refused(&f, "output 1 is not a value of the graph");
    f = make();
    f.g->output[0].into = f.two;
    refused(&f, "output 0 is computed into what is not a parameter");
    f = make();
    f.g->output[0].into = other.x;
    refused(&f, "output 0 is computed into what is not a parameter");
    cvn_graph_free(other.g);
    f = make();
    f.g->output[1].into = f.x;
    refused(&f, "two outputs are computed into parameter 'x'");
    f = make();
    cvn_output(f.g, cvn_convert(f.g, f.x, CVN_BF16));
    f.g->output[2].into = f.y;
    refused(&f, "output 2 and its parameter 'y' differ in type");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_building_come_first),
        cmocka_unit_test(the_list_must_be_linked_both_ways),
        cmocka_unit_test(operands_must_be_defined_before_their_use),
        cmocka_unit_test(replacements_must_be_resolved),
        cmocka_unit_test(results_must_be_their_operations_own),
        cmocka_unit_test(types_must_be_those_inferred),
        cmocka_unit_test(attributes_must_be_whole_and_of_the_kind),
        cmocka_unit_test(specs_must_fit_their_values),
        cmocka_unit_test(parameters_must_be_listed_in_order_with_names_of_their_own),
        cmocka_unit_test(outputs_must_be_values_and_their_places_parameters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
