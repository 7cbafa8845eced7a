/*
 * What stands behind a product in relatives of Llama becomes one region without a rule of its own: `caravan opt --passes
 * fuse` on graphs in text. What is printed is read again, and run it gives the bits of its operations apart.
 */
#include "compile/fuse.h"
#include "fuse_support.h"
#include "graph/region.h"
#include "graph/text/text.h"

#define X                                                                                          \
    "graph @g {\n  %x: bf16[64,96] = parameter {name=\"x\"}\n"                                     \
    "  %w: bf16[272,96] = parameter {name=\"w\"}\n"
#define DOT(dtype) "dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}\n"
#define U "  %u: bf16[64,272] = " DOT(bf16) "  %f: f32[64,272] = convert %u\n"
#define C(name, value) "  %" name ": f32[64,272] = constant {value=splat " value "}\n"
#define Y(name, what) "  %" name ": f32[64,272] = " what "\n"
#define END "  %y: bf16[64,272] = convert %r\n  return %y\n}\n"

typedef struct Case {
    const char *name, *text;
    int regions, steps;
} Case;

static const Case cases[] = {
    {"GeGLU, with tanh",
     X "  %g: bf16[64,272] = parameter {name=\"g\"}\n" U
       "  %h: f32[64,272] = convert %g\n" C("c1", "0.044715") C("c2", "0.7978846") C("half", "0.5")
           C("one", "1") Y("a", "multiply %h, %h") Y("b", "multiply %a, %h")
               Y("c", "multiply %b, %c1") Y("d", "add %h, %c") Y("e", "multiply %d, %c2")
                   Y("t", "tanh %e") Y("o", "add %t, %one") Y("p", "multiply %o, %h")
                       Y("q", "multiply %p, %half") Y("r", "multiply %q, %f") END,
     1, 1},
    {"GeGLU, with erf", /* Abramowitz and Stegun 7.1.26 */
     X "  %g: bf16[64,272] = parameter {name=\"g\"}\n" U "  %h: f32[64,272] = convert %g\n" C(
         "root", "0.70710678") C("by", "0.3275911") C("one", "1") C("half", "0.5")
         C("c1", "0.254829592") C("c2", "-0.284496736") C("c3", "1.421413741")
             C("c4", "-1.453152027") C("c5", "1.061405429") Y("z", "multiply %h, %root")
                 Y("a", "abs %z") Y("p", "multiply %a, %by") Y("q", "add %p, %one") Y(
                     "t", "divide %one, %q") Y("d5", "multiply %t, %c5") Y("e4", "add %d5, %c4")
                     Y("d4", "multiply %e4, %t") Y("e3", "add %d4, %c3") Y("d3", "multiply %e3, %t")
                         Y("e2", "add %d3, %c2") Y("d2", "multiply %e2, %t") Y("e1", "add %d2, %c1")
                             Y("d1", "multiply %e1, %t") Y("z2", "multiply %z, %z")
                                 Y("nz", "negate %z2") Y("ez", "exponential %nz")
                                     Y("m", "multiply %d1, %ez") Y("o", "subtract %one, %m")
                                         Y("s", "sign %z") Y("erf", "multiply %s, %o")
                                             Y("n", "add %one, %erf") Y("i", "multiply %n, %h")
                                                 Y("j", "multiply %i, %half")
                                                     Y("r", "multiply %j, %f") END,
     1, 1},
    {"a norm behind a product, and a residual",
     X
     "  %v: bf16[64,272] = parameter {name=\"v\"}\n  %b: f32[272] = parameter {name=\"b\"}\n"
     "  %n: f32[64] = constant {value=splat 272}\n  %eps: f32[64] = constant {value=splat 1e-5}\n" U
         Y("q",
           "multiply %f, %f") "  %s: f32[64] = reduce %q {kind=sum, dims=[1]}\n"
                              "  %s1: f32[64] = divide %s, %n\n  %s2: f32[64] = add %s1, %eps\n"
                              "  %s3: f32[64] = rsqrt %s2\n"
                              "  %k: f32[64,272] = broadcast_in_dim %s3 {dims=[0]}\n"
                              "  %o: f32[64,272] = broadcast_in_dim %b {dims=[1]}\n"
                              "  %l: f32[64,272] = convert %v\n" Y("e", "multiply %f, %k")
                                  Y("m", "multiply %e, %o") Y("r", "add %l, %m") END,
     1, 2},
    {"a norm of a kernel's own behind a product, a multiplier and a residual",
     X "  %v: f32[64,272] = parameter {name=\"v\"}\n  %b: f32[272] = parameter {name=\"b\"}\n"
       "  %u: bf16[64,272] = " DOT(bf16) Y("n", "rms_norm %u, %b {eps=1e-05}") C("by", "0.22")
           Y("m", "multiply %n, %by") Y("r", "add %v, %m") END,
     1, 2},
    {"ReLU squared", X U C("zero", "0") Y("m", "maximum %f, %zero") Y("r", "multiply %m, %m") END,
     1, 1},
    {"a soft cap of logits",
     X "  %u: f32[64,272] = " DOT(f32) C("cap", "30") Y("s", "divide %u, %cap") Y("t", "tanh %s")
         Y("r", "multiply %t, %cap") "  return %r\n}\n",
     1, 1},
    {"a residual multiplier",
     X "  %v: bf16[64,272] = parameter {name=\"v\"}\n" U C("by", "0.22")
         Y("s", "multiply %f, %by") "  %k: f32[64,272] = convert %v\n" Y("r", "add %k, %s") END,
     1, 1},
    {"a bias and SiLU",
     X "  %b: f32[272] = parameter {name=\"b\"}\n" U
       "  %k: f32[64,272] = broadcast_in_dim %b {dims=[1]}\n" Y("s", "add %f, %k")
           Y("t", "logistic %s") Y("r", "multiply %s, %t") END,
     1, 1},
    {"a norm of 1 + w, in small operations",
     "graph @g {\n  %x: bf16[64,272] = parameter {name=\"x\"}\n"
     "  %w: bf16[272] = parameter {name=\"w\"}\n  %one: f32[272] = constant {value=splat 1}\n"
     "  %n: f32[64] = constant {value=splat 272}\n  %eps: f32[64] = constant {value=splat 1e-5}\n"
     "  %f: f32[64,272] = convert %x\n" Y(
         "q", "multiply %f, %f") "  %s: f32[64] = reduce %q {kind=sum, dims=[1]}\n  %s1: f32[64] = "
                                 "divide %s, %n\n"
                                 "  %s2: f32[64] = add %s1, %eps\n  %s3: f32[64] = rsqrt %s2\n"
                                 "  %k: f32[64,272] = broadcast_in_dim %s3 {dims=[0]}\n"
                                 "  %c: f32[272] = convert %w\n  %g: f32[272] = add %c, %one\n"
                                 "  %o: f32[64,272] = broadcast_in_dim %g {dims=[1]}\n" Y(
                                     "e", "multiply %f, %k") Y("r", "multiply %e, %o") END,
     1, 1},
    {"a norm of a kernel's own, centred and of 1 + w",
     "graph @g {\n  %x: f32[64,272] = parameter {name=\"x\"}\n"
     "  %w: f32[272] = parameter {name=\"w\"}\n  %one: f32[272] = constant {value=splat 1}\n"
     "  %n: f32[64] = constant {value=splat 272}\n"
     "  %sum: f32[64] = reduce %x {kind=sum, dims=[1]}\n  %mean: f32[64] = divide %sum, %n\n"
     "  %all: f32[64,272] = broadcast_in_dim %mean {dims=[0]}\n" Y(
         "d",
         "subtract %x, %all") "  %g: f32[272] = add %w, %one\n"
                              "  %y: bf16[64,272] = rms_norm %d, %g {eps=1e-05}\n  return %y\n}\n",
     1, 1},
    {"LayerNorm",
     "graph @g {\n  %x: f32[64,272] = parameter {name=\"x\"}\n"
     "  %w: f32[272] = parameter {name=\"w\"}\n"
     "  %n: f32[64] = constant {value=splat 272}\n  %eps: f32[64] = constant {value=splat 1e-5}\n"
     "  %sum: f32[64] = reduce %x {kind=sum, dims=[1]}\n  %mean: f32[64] = divide %sum, %n\n"
     "  %all: f32[64,272] = broadcast_in_dim %mean {dims=[0]}\n" Y("d", "subtract %x, %all")
         Y("q", "multiply %d, %d") "  %v: f32[64] = reduce %q {kind=sum, dims=[1]}\n"
                                   "  %v1: f32[64] = divide %v, %n\n  %v2: f32[64] = add %v1, "
                                   "%eps\n  %v3: f32[64] = rsqrt %v2\n"
                                   "  %k: f32[64,272] = broadcast_in_dim %v3 {dims=[0]}\n"
                                   "  %o: f32[64,272] = broadcast_in_dim %w {dims=[1]}\n" Y(
                                       "e", "multiply %d, %k")
                                       Y("r", "multiply %e, %o") "  return %r\n}\n",
     1, 1},
};

static cvn_graph *parse(const char *text)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse(text, strlen(text), "test.txt", &err);
    if (!g)
        fail_msg("%s\n%s", err.message, text);
    return g;
}

static void as_many_steps(const void *context, const char *isa, const Ran *apart, const Ran *fused)
{
    const Case *c = context;
    (void)apart;
    if (fused->n_steps != c->steps)
        fail_msg("%s, %s: %d steps instead of %d", c->name, isa, fused->n_steps, c->steps);
}

static void what_stands_behind_a_product_needs_no_rule(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_graph *g = parse(cases[i].text);
        cvn_err err = {0};
        bool changed;
        check_fused(g, as_many_steps, &cases[i]);
        must(fuse_graph(g, cpu_kernels(), &changed, &err), &err);
        must(graph_verify(g, &err), &err);
        assert_true(changed);
        int regions = 0;
        for (const Op *op = g->first; op; op = op->next)
            regions += op->kind == OP_REGION;
        if (regions != cases[i].regions)
            fail_msg("%s: %d regions", cases[i].name, regions);
        StrBuf text = {0}, again = {0};
        graph_print(&text, g);
        cvn_graph *read = parse(text.text);
        graph_print(&again, read);
        assert_string_equal(text.text, again.text);
        check_fused(read, as_many_steps, &cases[i]);
        strbuf_free(&text);
        strbuf_free(&again);
        cvn_graph_free(read);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_stands_behind_a_product_needs_no_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
