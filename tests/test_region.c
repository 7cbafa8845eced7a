/* Regions mean what their bodies mean: interpreted, inlined, printed and read again; and the rule of roots is kept. */
#include "graph/decompose.h"
#include "graph/interp/interp.h"
#include "graph/passes.h"
#include "graph/record.h"
#include "graph/region.h"
#include "graph/text/text.h"
#include "random_graph.h"
#include "unit.h"

static cvn_graph *parse(const char *text)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse(text, strlen(text), "test.txt", &err);
    if (!g)
        fail_msg("%s\n%s", err.message, text);
    must(graph_verify(g, &err), &err);
    return g;
}

static char *print(const cvn_graph *g)
{
    StrBuf out = {0};
    graph_print(&out, g);
    assert_false(out.failed);
    return out.text;
}

#define HEAD                                                                                       \
    "graph @g {\n  %x: f32[4,8] = parameter {name=\"x\"}\n"                                        \
    "  %w: f32[3,8] = parameter {name=\"w\"}\n"                                                    \
    "  %r: f32[4,3] = parameter {name=\"r\"}\n"

static const char product[] =
    HEAD "  %y: bf16[4,3], %d: f32[4,3] = region %x, %w, %r {\n"
         "    %d: f32[4,3] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
         "    %4: f32[4,3] = add %d, %r\n"
         "    %5: bf16[4,3] = convert %4\n"
         "    return %5, %d\n"
         "  }\n"
         "  return %y, %d\n}\n";

static void the_text_of_a_region_is_read_as_it_is_printed(void **state)
{
    cvn_graph *g = parse(product);
    char *text = print(g);
    assert_string_equal(text, product);
    const Op *op = g->output[0].value->def;
    assert_int_equal(op->kind, OP_REGION);
    assert_int_equal(body_root(op->attr.body)->kind, OP_DOT_GENERAL);
    assert_true(op_flops(op) == 2.0 * 4 * 3 * 8 + 12 + 12);
    free(text);
    cvn_graph_free(g);
}

/* One operand given twice is two parameters of the body. */
static void an_operand_may_be_given_twice(void **state)
{
    cvn_graph *g = parse(HEAD "  %y: f32[4,8] = region %x, %x.1 = %x {\n"
                              "    %2: f32[4,8] = subtract %x, %x.1\n"
                              "    return %2\n  }\n  return %y\n}\n");
    char *text = print(g);
    cvn_graph *again = parse(text);
    assert_true(
        attr_equal(OP_REGION, &g->output[0].value->def->attr, &again->output[0].value->def->attr));
    assert_int_equal(g->output[0].value->def->attr.body->n_parameters, 2);
    assert_non_null(strstr(text, "region %x, %x.1 = %x {"));
    free(text);
    cvn_graph_free(again);
    cvn_graph_free(g);
}

static void what_is_no_region_is_refused(void **state)
{
#define BODY(lines) HEAD "  %y: f32[4,8] = region %x, %w {\n" lines "  }\n  return %y\n}\n"
    static const struct {
        const char *text, *message;
    } cases[] = {
        {BODY("    %a: f32[4,3] = negate %r\n    return %a\n"),
         "found '%r', expected a value that is defined above"},
        {BODY("    %a: f32[4,8] = parameter {name=\"a\"}\n    return %a\n"),
         "the parameters of a body are its operands"},
        {BODY("    %a: f32[4,8] = optimization_barrier %x\n    return %a\n"),
         "it holds an operation that regions do not have"},
        {BODY("    %a: f32[8] = reduce %x {kind=sum, dims=[0]}\n"
              "    %b: f32[8] = reduce %w {kind=sum, dims=[0]}\n    return %a, %b\n"),
         "found 1 results of region, expected 2"},
        {HEAD "  %y: f32[8], %z: f32[8] = region %x, %w {\n"
              "    %a: f32[8] = reduce %x {kind=sum, dims=[0]}\n"
              "    %b: f32[8] = reduce %w {kind=sum, dims=[0]}\n    return %a, %b\n"
              "  }\n  return %y\n}\n",
         "its roots have no operand in common"},
        {HEAD "  %y: f32[4,3], %z: f32[3] = region %x, %w, %r {\n"
              "    %d: f32[4,3] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
              "    %s: f32[3] = reduce %r {kind=sum, dims=[0]}\n    return %d, %s\n"
              "  }\n  return %y\n}\n",
         "it reduces what its root has no part in"},
        {BODY("    %a: f32[4,8] = region %x {\n      %b: f32[4,8] = negate %x\n      return %b\n"
              "    }\n    return %a\n"),
         "regions cannot be nested"},
        {BODY("    return %x into %x\n"), "expected '}' and the end of the region"},
        {HEAD "  %y: f32[4,8] = region %x, %w\n  return %y\n}\n",
         "expected '{' and the body of the region"},
        {HEAD "  %y: f32[4,8] = region %x, %x {\n    return %x\n  }\n  return %y\n}\n",
         "the body has two values of this name"},
        {BODY("    %a: f32[4,8] = negate %x\n    return %a"), NULL},
        {BODY("    return\n"), "found 1 results of region, expected 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        cvn_graph *g = graph_parse(cases[i].text, strlen(cases[i].text), "test.txt", &err);
        if (!cases[i].message) {
            assert_non_null(g);
            cvn_graph_free(g);
            continue;
        }
        assert_null(g);
        if (!strstr(err.message, cases[i].message))
            fail_msg("case %d: %s", (int)i, err.message);
    }
}

static void equal_regions_are_merged_and_others_are_not(void **state)
{
#define NEGATED(v, op)                                                                             \
    "  %" v ": f32[4,8] = region %x {\n    %1: f32[4,8] = " op " %x\n    return %1\n  }\n"
    cvn_graph *g = parse(HEAD NEGATED("a", "negate") NEGATED("b", "negate")
                             NEGATED("c", "tanh") "  return %a, %b, %c\n}\n");
    bool changed;
    cvn_err err = {0};
    must(pass_simplify.run(g, NULL, &changed, &err), &err);
    assert_ptr_equal(g->output[0].value, g->output[1].value);
    assert_ptr_not_equal(g->output[0].value, g->output[2].value);
    cvn_graph_free(g);
}

/* A verified graph whose body was spoilt is not verified. */
static void a_spoilt_body_is_found(void **state)
{
    cvn_graph *g = parse(product);
    cvn_err err = {0};
    Op *add = (Op *)g->output[0].value->def->attr.body->last->prev;
    add->operand[1] = g->parameter[2];
    assert_int_not_equal(graph_verify(g, &err), CVN_OK);
    assert_non_null(strstr(err.message, "in its body"));
    cvn_graph_free(g);
}

/* Interpreted, the regions of random graphs give the bits of what they are bodies of; inlined, the graph has none, and gives
   the same again. */
static void regions_mean_their_bodies(void **state)
{
    const RandomOptions options = {
        .n_ops = 30, .n_parameters = 4, .most_elements = 60, .composites = true, .regions = true};
    int regions = 0;
    for (uint64_t seed = 1; seed <= 500; seed++) {
        cvn_err err = {0};
        cvn_graph *g = random_graph(seed, &options), *inlined = graph_clone(g, &err);
        char *text = print(g);
        cvn_graph *again = parse(text);
        void **inputs = random_inputs(g, seed, false);
        void *a[64] = {NULL}, *b[64] = {NULL}, *c[64] = {NULL};
        assert_true(g->n_outputs <= 64);
        must(graph_verify(g, &err), &err);
        for (const Op *op = g->first; op; op = op->next)
            regions += op->kind == OP_REGION;
        for (Op *op = inlined->first, *next; op; op = next) {
            next = op->next;
            graph_resolve_op(op);
            if (op->kind != OP_REGION)
                continue;
            cvn_value *out[OP_MOST_RESULTS];
            graph_insert_before(inlined, op);
            region_inline(inlined, op, op->operand, out);
            for (int i = 0; i < op->n_results; i++)
                graph_replace(op->result[i], out[i]);
            graph_remove(inlined, op);
        }
        graph_insert_before(inlined, NULL);
        graph_resolve(inlined);
        must(graph_verify(inlined, &err), &err);
        must(interp_run_one(g, (const void *const *)inputs, a, &err), &err);
        must(interp_run_one(inlined, (const void *const *)inputs, b, &err), &err);
        must(interp_run_one(again, (const void *const *)inputs, c, &err), &err);
        for (int i = 0; i < g->n_outputs; i++) {
            const cvn_type *type = &g->output[i].value->type;
            if (random_difference(type, a[i], b[i]) >= 0 ||
                random_difference(type, a[i], c[i]) >= 0)
                fail_msg("seed %d: output %d differs\n%s", (int)seed, i, text);
            free(a[i]), free(b[i]), free(c[i]);
        }
        random_free(inputs, g->n_parameters);
        free(text);
        cvn_graph_free(again);
        cvn_graph_free(inlined);
        cvn_graph_free(g);
    }
    assert_true(regions > 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_text_of_a_region_is_read_as_it_is_printed),
        cmocka_unit_test(an_operand_may_be_given_twice),
        cmocka_unit_test(what_is_no_region_is_refused),
        cmocka_unit_test(equal_regions_are_merged_and_others_are_not),
        cmocka_unit_test(a_spoilt_body_is_found),
        cmocka_unit_test(regions_mean_their_bodies),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
