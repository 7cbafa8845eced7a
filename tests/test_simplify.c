/* graph_simplify: the same results, bit for bit, on random graphs; and rule by rule, what it makes. */
#include "graph/cse.h"
#include "graph/interp.h"
#include "graph/simplify.h"
#include "random_graph.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

static void run(const cvn_graph *g, void **inputs, void **outputs, uint64_t seed)
{
    cvn_err err = {0};
    if (interp_run_one(g, (const void *const *)inputs, outputs, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
}

/* Every operand is defined before its use, and types are what the rules of inference say. */
static void check_legal(const cvn_graph *g, uint64_t seed)
{
    bool *defined = calloc(g->n_values + (size_t)1, 1);
    assert_non_null(defined);
    for (const Op *op = g->first; op; op = op->next) {
        cvn_type type[2] = {op->result[0]->type, op->result[op->n_results - 1]->type};
        cvn_err err = {0};
        for (int i = 0; i < op->n_operands; i++)
            if (!defined[op->operand[i]->id])
                fail_msg("seed %llu: %s uses a value before its definition",
                         (unsigned long long)seed, op_info[op->kind].name);
        if (infer_types(op, type, &err) || !cvn_type_equal(&type[0], &op->result[0]->type))
            fail_msg("seed %llu: %s has the wrong type %s", (unsigned long long)seed,
                     op_info[op->kind].name, err.message);
        for (int i = 0; i < op->n_results; i++)
            defined[op->result[i]->id] = true;
    }
    for (int i = 0; i < g->n_outputs; i++)
        assert_true(defined[g->output[i].value->id]);
    free(defined);
}

/* Outputs keep their specs and are no parameters; one into a parameter shares no value with another. */
static void check_outputs(const cvn_graph *before, const cvn_graph *after)
{
    assert_int_equal(before->n_outputs, after->n_outputs);
    for (int i = 0; i < after->n_outputs; i++) {
        const Output *o = &after->output[i];
        const cvn_value *was = before->output[i].value;
        assert_int_equal(!o->into, !before->output[i].into);
        assert_true(cvn_type_equal(&o->value->type, &before->output[i].value->type));
        assert_int_not_equal(o->value->def->kind, OP_PARAMETER);
        assert_true(!was->spec || spec_equal(was->spec, o->value->spec));
        if (o->into)
            assert_string_equal(o->into->name, before->output[i].into->name);
        for (int j = 0; j < i && o->into; j++)
            assert_ptr_not_equal(after->output[j].value, o->value);
    }
}

/* Simplifies the graph of a seed and compares; returns by how many operations it shrank. */
static int64_t check_seed(uint64_t seed, const RandomOptions *options)
{
    cvn_err err = {0};
    bool changed = false, again = true;
    cvn_graph *before = random_graph(seed, options), *after;
    assert_non_null(before);
    if (cvn_graph_check(before, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    after = graph_clone(before, &err);
    assert_non_null(after);
    if (graph_simplify(after, &changed, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
    check_legal(after, seed);
    check_outputs(before, after);
    assert_int_equal(graph_simplify(after, &again, &err), 0);
    if (again)
        fail_msg("seed %llu: simplifying again changed something", (unsigned long long)seed);

    void **inputs = random_inputs(before, seed, options->specials);
    void **a = calloc((size_t)before->n_outputs + 1, sizeof *a);
    void **b = calloc((size_t)before->n_outputs + 1, sizeof *b);
    assert_true(inputs && a && b);
    run(before, inputs, a, seed);
    run(after, inputs, b, seed);
    for (int i = 0; i < before->n_outputs; i++) {
        const cvn_type *type = &before->output[i].value->type;
        int64_t at = random_difference(type, a[i], b[i]);
        if (at >= 0)
            fail_msg("seed %llu: output %d (%s), element %d: %.9g before, %.9g after",
                     (unsigned long long)seed, i, op_info[before->output[i].value->def->kind].name,
                     (int)at, element_get(type->dtype, a[i], at),
                     element_get(type->dtype, b[i], at));
    }
    int64_t shrank = before->n_ops - after->n_ops;
    random_free(inputs, before->n_parameters);
    random_free(a, before->n_outputs);
    random_free(b, before->n_outputs);
    cvn_graph_free(before);
    cvn_graph_free(after);
    return shrank;
}

/* CVN_SEEDS in the environment asks for more than the usual number of cases. */
static int seeds(int usual)
{
    const char *text = getenv("CVN_SEEDS");
    return text ? (int)strtol(text, NULL, 10) : usual;
}

static void random_graphs_compute_the_same(void **state)
{
    (void)state;
    int64_t shrank = 0;
    for (int seed = 0; seed < seeds(1500); seed++) {
        RandomOptions options = {.n_ops = 5 + seed % 40,
                                 .n_parameters = 1 + seed % 5,
                                 .most_elements = 150,
                                 .specials = seed % 2 == 0,
                                 .marks = seed % 3 == 0,
                                 .into = seed % 4 == 0,
                                 .collectives = seed % 5 == 0,
                                 .composites = seed % 7 == 0};
        shrank += check_seed((uint64_t)seed, &options);
    }
    assert_true(shrank > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_compute_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
