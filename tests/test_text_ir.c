/* The text form: what is printed reads back as the same graph, and what is no graph is refused with
 * the place of the mistake. */
#include "base/file.h"
#include "graph/blocks.h"
#include "graph/text/text.h"
#include "random_graph.h"
#include "unit.h"

static cvn_graph *parse(const char *text)
{
    cvn_err err = {0};
    cvn_graph *g = graph_parse(text, strlen(text), "test.txt", &err);
    if (!g)
        fail_msg("%s\n%s", err.message, text);
    assert_int_equal(graph_verify(g, &err), CVN_OK);
    return g;
}

/* Owned by the caller: free(text). */
static char *print(const cvn_graph *g)
{
    StrBuf out = {0};
    graph_print(&out, g);
    assert_false(out.failed);
    return out.text;
}

static void assert_specs_equal(const cvn_spec *a, const cvn_spec *b)
{
    assert_true(!a == !b);
    for (int d = 0; a && d < a->rank; d++) {
        assert_int_equal(a->dim[d].n, b->dim[d].n);
        for (int i = 0; i < a->dim[d].n; i++)
            assert_string_equal(a->dim[d].axis[i], b->dim[d].axis[i]);
    }
}

/* Position of an operation in its graph. */
static int64_t place(const Op *op)
{
    int64_t n = 0;
    while ((op = op->prev))
        n++;
    return n;
}

static bool same_value(const cvn_value *a, const cvn_value *b)
{
    return (!a && !b) || (a && b && a->result == b->result && place(a->def) == place(b->def));
}

static void assert_graphs_equal(const cvn_graph *a, const cvn_graph *b)
{
    assert_string_equal(a->name, b->name);
    assert_int_equal(a->n_ops, b->n_ops);
    for (const Op *x = a->first, *y = b->first; x; x = x->next, y = y->next) {
        assert_int_equal(x->kind, y->kind);
        assert_int_equal(x->n_operands, y->n_operands);
        assert_int_equal(x->n_results, y->n_results);
        assert_true(attr_equal(x->kind, &x->attr, &y->attr));
        for (int i = 0; i < x->n_operands; i++)
            assert_true(same_value(x->operand[i], y->operand[i]));
        for (int i = 0; i < x->n_results; i++) {
            assert_true(cvn_type_equal(&x->result[i]->type, &y->result[i]->type));
            assert_specs_equal(x->result[i]->spec, y->result[i]->spec);
        }
    }
    assert_int_equal(a->n_parameters, b->n_parameters);
    for (int i = 0; i < a->n_parameters; i++)
        assert_true(same_value(a->parameter[i], b->parameter[i]));
    assert_int_equal(a->n_outputs, b->n_outputs);
    for (int i = 0; i < a->n_outputs; i++) {
        assert_true(same_value(a->output[i].value, b->output[i].value));
        assert_true(same_value(a->output[i].into, b->output[i].into));
    }
}

static void assert_round_trips(const cvn_graph *g)
{
    char *text = print(g);
    cvn_graph *again = parse(text);
    char *text_again = print(again);
    assert_string_equal(text, text_again);
    assert_graphs_equal(g, again);
    free(text);
    free(text_again);
    cvn_graph_free(again);
}

static void random_graphs_round_trip(void **state)
{
    bool seen[OP_COUNT] = {false};
    const RandomOptions options = {.n_ops = 30,
                                   .n_parameters = 5,
                                   .most_elements = 200,
                                   .composites = true,
                                   .collectives = true,
                                   .specials = true,
                                   .regions = true,
                                   .marks = true,
                                   .into = true};
    for (uint64_t seed = 0; seed < 300; seed++) {
        cvn_graph *g = random_graph(seed, &options);
        assert_int_equal(graph_verify(g, NULL), CVN_OK);
        assert_round_trips(g);
        for (const Op *op = g->first; op; op = op->next)
            seen[op->kind] = true;
        cvn_graph_free(g);
    }
    for (int i = 0; i < OP_COUNT; i++)
        if (!seen[i])
            fail_msg("no random graph has a %s", op_info[i].name);
}

/* Blocks in panels have two attributes, of which each is left out where it is zero. */
static void all_attributes_of_an_operation_round_trip(void **state)
{
    cvn_graph *g = cvn_graph_new("panels", NULL);
    const cvn_type type = CVN_TYPE(CVN_F32, 20, 64);
    cvn_value *w = cvn_parameter(g, "w", block_panel_type(BLOCK_Q4_0, 20, 64));
    const OpAttr attr = {.axis = 1, .blocks = BLOCK_Q4_0};
    cvn_output(g, graph_add(g, OP_DEQUANTIZE, &attr, 1, &w, &type));
    assert_int_equal(cvn_graph_check(g, NULL), CVN_OK);
    assert_round_trips(g);
    cvn_graph_free(g);
}

/* Every bit pattern of a 16-bit float, and many of wider ones, but for the payloads of NaNs. */
static void constants_keep_their_bits(void **state)
{
    static const cvn_dtype dtypes[] = {CVN_BF16, CVN_F16, CVN_F32, CVN_F64};
    uint64_t random = 1;
    for (int t = 0; t < 4; t++) {
        size_t size = (size_t)cvn_dtype_bits(dtypes[t]) / 8;
        int64_t n = size == 2 ? 65536 : 20000;
        char *data = calloc((size_t)n, size);
        for (int64_t i = 0; i < n; i++) {
            uint64_t bits = size == 2 ? (uint64_t)i : splitmix(&random);
            memcpy(data + (size_t)i * size, &bits, size);
            if (isnan(element_get(dtypes[t], data, i)))
                element_set(dtypes[t], data, i, i % 2 ? (double)NAN : -(double)NAN);
        }
        cvn_graph *g = cvn_graph_new("bits", NULL);
        cvn_output(g, cvn_constant(g, CVN_TYPE(dtypes[t], n), data));
        assert_round_trips(g);
        cvn_graph_free(g);
        free(data);
    }
}

static void integers_and_bools_keep_their_bits(void **state)
{
    static const char text[] = "graph @g {\n"
                               "  %0: i4[3] = constant {value=[-8, 7, -1]}\n"
                               "  %1: i8[2] = constant {value=[-128, 127]}\n"
                               "  %2: i32[2] = constant {value=[-2147483648, 2147483647]}\n"
                               "  %3: u32[1] = constant {value=[4294967295]}\n"
                               "  %4: i1[2] = constant {value=[1, 0]}\n"
                               "  %5: f32[0,7] = constant {value=[]}\n"
                               "  %6: f32[9] = constant {value=splat -0}\n"
                               "  %7: f32[] = constant {value=[0.1]}\n"
                               "  return %0, %1, %2, %3, %4, %5, %6, %7\n"
                               "}\n";
    cvn_graph *g = parse(text);
    char *again = print(g);
    assert_string_equal(again, text);
    assert_int_equal(((const uint8_t *)g->first->attr.literal.data)[0], 0x78);
    assert_true(((const float *)g->last->attr.literal.data)[0] == 0.1f);
    free(again);
    cvn_graph_free(g);
}

static void white_space_and_comments_are_free(void **state)
{
    cvn_graph *g =
        parse("// a graph\r\n graph@\"two words\"{%a:f32[2]<data*model>=parameter{name=\"q\\\"\\\\"
              "\\x41\\xc3\\xa9\"}//x\n\t%b:f32[2]=add %a,%a{} return%b into %a,%b}//end");
    char *text = print(g);
    assert_string_equal(text, "graph @\"two words\" {\n"
                              "  %a: f32[2]<data*model> = parameter {name=\"q\\\"\\\\A\xc3\xa9\"}\n"
                              "  %b: f32[2] = add %a, %a\n"
                              "  return %b into %a, %b\n"
                              "}\n");
    free(text);
    cvn_graph_free(g);
}

static void values_that_share_a_name_are_told_apart(void **state)
{
    cvn_graph *g = cvn_graph_new("names", NULL);
    cvn_value *v = cvn_parameter(g, "x", cvn_scalar(CVN_F32));
    static const char *const name[] = {"x", "x.1", "x", NULL, "0", "not plain", "x"};
    for (int i = 0; i < 7; i++) {
        v = cvn_negate(g, v);
        v->name = name[i];
    }
    cvn_output(g, v);
    assert_round_trips(g);
    char *text = print(g);
    assert_non_null(strstr(text, "%x.1: f32[] = negate %x\n"));
    assert_non_null(strstr(text, "%x.1.1: f32[] = negate %x.1\n"));
    assert_non_null(strstr(text, "%x.2: f32[] = negate %x.1.1\n"));
    assert_non_null(strstr(text, "%4: f32[] = negate %x.2\n"));
    assert_non_null(strstr(text, "%5: f32[] = negate %4\n"));
    assert_non_null(strstr(text, "%6: f32[] = negate %5\n"));
    assert_non_null(strstr(text, "%x.3: f32[] = negate %6\n"));
    free(text);
    cvn_graph_free(g);
}

/* The examples of docs/GRAPH.md are legal graphs, and every operation is in one. */
static void the_documentation_has_every_operation(void **state)
{
    bool seen[OP_COUNT] = {false};
    FileMap map;
    assert_int_equal(file_map(&map, CVN_TEST_DATA "/../../docs/GRAPH.md", NULL), 0);
    const char *p = (const char *)map.data, *end = p + map.size;
    int n = 0;
    while ((p = memmem(p, (size_t)(end - p), "```\ngraph", 9))) {
        p += 4;
        const char *close = memmem(p, (size_t)(end - p), "```", 3);
        assert_non_null(close);
        cvn_err err = {0};
        cvn_graph *g = graph_parse(p, (size_t)(close - p), "example", &err);
        if (!g)
            fail_msg("%s\n%.*s", err.message, (int)(close - p), p);
        for (const Op *op = g->first; op; op = op->next)
            seen[op->kind] = true;
        cvn_graph_free(g);
        p = close + 3;
        n++;
    }
    assert_true(n > 0);
    for (int i = 0; i < OP_COUNT; i++)
        if (!seen[i])
            fail_msg("docs/GRAPH.md has no example of %s", op_info[i].name);
    file_unmap(&map);
}

#define HEAD "graph @g {\n  %a: f32[2,3] = parameter {name=\"a\"}\n"
#define TAIL "\n  return %a\n}\n"

static void mistakes_are_named_with_their_place(void **state)
{
    static const struct {
        const char *text, *message;
    } cases[] = {
        {"", "test.txt:1:1: the text ends, expected 'graph @name {'"},
        {"graph g", "test.txt:1:7: found 'g', expected '@' and the name of the graph"},
        {"graph @g {",
         "test.txt:1:11: the text ends, expected an operation (%x: f32[4] = ...) or 'return'"},
        {HEAD "  return %b\n}",
         "test.txt:3:10: found '%b', expected a value that is defined above"},
        {HEAD "  return %a\n} x", "test.txt:4:3: found 'x', expected the end of the text"},
        {HEAD "  return %a", "test.txt:3:12: the text ends, expected '}' and the end of the graph"},
        {HEAD "  return %a into %a, %a into %a\n}",
         "test.txt:3:22: two outputs are computed into parameter 'a'"},
        {HEAD "  %b: f32[3,2] = add %a, %a" TAIL,
         "test.txt:3:3: found type f32[3,2], but add gives f32[2,3]"},
        {HEAD "  %b: f32[2,3] = plus %a, %a" TAIL,
         "test.txt:3:18: found 'plus', expected the name of an operation, such as add"},
        {HEAD "  %b: f32[2,3] = add %a" TAIL,
         "test.txt:3:21: found 1 operands of add, expected 2 to 2"},
        {HEAD "  %b: f32[2,3] = add %a, %b" TAIL,
         "test.txt:3:26: found '%b', expected a value that is defined above"},
        {HEAD "  %a: f32[2,3] = negate %a" TAIL, "test.txt:3:3: value '%a' is defined twice"},
        {HEAD "  %b: f32[2,3], %b: f32[2,3] = sort %a, %a" TAIL,
         "test.txt:3:17: the value is defined twice"},
        {HEAD "  %b: f32[2,3], %c: f32[2,3] = sort %a" TAIL,
         "test.txt:3:3: found 2 results of sort, expected 1"},
        {HEAD "  %b: f32[2,3] = sort %a {axis=5}" TAIL,
         "test.txt:3:3: sort(f32[2,3]): axis 5 is outside 0 to 1"},
        {HEAD "  %b: f31[2,3] = negate %a" TAIL,
         "test.txt:3:7: found 'f31', expected an element type: f64, f32, bf16, f16, i32, u32, i8, "
         "i4 or i1"},
        {HEAD "  %b: f32[2,-3] = negate %a" TAIL,
         "test.txt:3:13: found size -3, expected 0 or more"},
        {HEAD "  %b: f32[1,1,1,1,1,1,1,1,1] = negate %a" TAIL, "a type has more than 8 dimensions"},
        {HEAD "  %b: f32[99999999999999999999] = negate %a" TAIL,
         "test.txt:3:11: 99999999999999999999 does not fit in 64 bits"},
        {HEAD "  %b: f32[2,3]<x> = negate %a" TAIL,
         "test.txt:3:16: found a spec of 1 dimensions, expected 2 as in the type"},
        {HEAD "  %b: f32[2,3]<x*y*z*u*v,_> = negate %a" TAIL,
         "a dimension is split by more than 4 axes"},
        {HEAD "  %b: f32[2,3]<x*y,x> = negate %a" TAIL,
         "test.txt:3:20: axis x is used twice in a spec"},
        {HEAD "  %b: f32[2,3]<4,_> = negate %a" TAIL,
         "test.txt:3:16: found '4', expected the name of a mesh axis"},
        {HEAD "  %b: i1[2,3] = compare %a, %a" TAIL, "compare needs the attribute direction"},
        {HEAD "  %b: i1[2,3] = compare %a, %a {direction=less}" TAIL,
         "test.txt:3:43: found 'less', expected one of eq, ne, lt, le, gt, ge"},
        {HEAD "  %b: f32[2,3] = negate %a {axis=1}" TAIL,
         "test.txt:3:29: found 'axis', but negate has no attributes"},
        {HEAD "  %b: f32[2,3] = sort %a {dim=1}" TAIL,
         "test.txt:3:27: found 'dim', but sort has attributes axis, descending"},
        {HEAD "  %b: f32[2,3] = sort %a {axis=1, axis=1}" TAIL,
         "test.txt:3:35: attribute axis is given twice"},
        {HEAD "  %b: f32[2,3] = sort %a {axis=1.5}" TAIL,
         "test.txt:3:32: found '1.5', expected an integer"},
        {HEAD "  %b: f32[2,3] = sort %a {descending=yes}" TAIL,
         "found 'yes', expected one of false, true"},
        {HEAD "  %b: f32[2,3] = parameter {name=\"a\"}" TAIL,
         "test.txt:3:29: a parameter above has the name \"a\" already"},
        {HEAD "  %b: f32[2,3] = parameter {name=\"b}" TAIL,
         "test.txt:3:37: found no character of a string"},
        {HEAD "  %b: f32[2,3] = parameter {name=\"\\q\"}" TAIL,
         "test.txt:3:35: found no character of a string"},
        {HEAD "  %b: f32[2,3] = parameter" TAIL, "parameter needs the attribute name"},
        {HEAD "  %b: f32[2] = constant {value=[1]}" TAIL,
         "test.txt:3:32: found 1 elements, expected 2 as in the type"},
        {HEAD "  %b: f32[1] = constant {value=[0x10]}" TAIL, "found '0x10', expected a number"},
        {HEAD "  %b: f16[1] = constant {value=[65536]}" TAIL,
         "test.txt:3:33: found 65536, expected a value that f16 can hold"},
        {HEAD "  %b: i8[1] = constant {value=[128]}" TAIL,
         "found 128, expected a value that i8 can hold"},
        {HEAD "  %b: i8[1] = constant {value=[0.5]}" TAIL,
         "found 0.5, expected a value that i8 can hold"},
        {HEAD "  %b: i8[1] = constant {value=[nan]}" TAIL, "expected a value that i8 can hold"},
        {HEAD "  %b: f32[1] = constant {value=[1e999]}" TAIL,
         "test.txt:3:33: 1e999 is too large for a number"},
        {HEAD "  %b: f32[2,3] = negate %a\v" TAIL,
         "test.txt:3:27: found byte 0x0b, expected an operation"},
        {HEAD "  %b: f32[2,3] = concatenate {axis=0}" TAIL,
         "found 0 operands of concatenate, expected 1 to 4096"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        cvn_graph *g = graph_parse(cases[i].text, strlen(cases[i].text), "test.txt", &err);
        assert_null(g);
        if (!strstr(err.message, cases[i].message))
            fail_msg("expected: %s\n     got: %s", cases[i].message, err.message);
    }
}

static void sizes_that_overflow_are_refused(void **state)
{
    static const char *const type[] = {"f32[9223372036854775807]", "f32[4294967296,4294967296]",
                                       "f32[3037000500,3037000500,2]", "i4[9223372036854775807,3]"};
    for (int i = 0; i < 4; i++) {
        for (int form = 0; form < 3; form++) {
            static const char *const op[] = {"parameter {name=\"a\"}", "constant {value=splat 1}",
                                             "constant {value=[1]}"};
            char text[200];
            snprintf(text, sizeof text, "graph @g {\n%%a: %s = %s\nreturn %%a}", type[i], op[form]);
            cvn_err err = {0};
            assert_null(graph_parse(text, strlen(text), "test.txt", &err));
            assert_int_equal(err.code, CVN_EFORMAT);
        }
    }
}

static void memory_is_in_proportion_to_the_text(void **state)
{
    cvn_graph *g = parse("graph @g { %a: f64[1048576,1048576] = constant {value=splat 1}\n"
                         "%b: f32[1048576,1048576] = iota\n return %a, %b }");
    assert_true(g->arena.used < 4096);
    cvn_graph_free(g);
    StrBuf text = {0};
    strbuf_puts(&text, "graph @g {");
    for (int i = 0; i < 2000; i++)
        strbuf_printf(&text, "%%%d:f32[]<>=constant{value=[1]}", i);
    strbuf_puts(&text, "return}");
    g = parse(text.text);
    assert_true(g->arena.used < 100 * text.length);
    cvn_graph_free(g);
    strbuf_free(&text);
}

/* Every beginning of a text, and every text with one character changed, is refused or a graph. */
static void broken_texts_are_refused_or_legal(void **state)
{
    const RandomOptions options = {
        .n_ops = 8, .n_parameters = 3, .most_elements = 30, .composites = true, .marks = true};
    for (uint64_t seed = 0; seed < 10; seed++) {
        cvn_graph *g = random_graph(seed, &options);
        char *text = print(g);
        size_t n = strlen(text);
        cvn_graph_free(g);
        for (size_t i = 0; i < n; i++) {
            /* The bytes behind the end are another allocation's, or poisoned. */
            char *cut = malloc(i ? i : 1);
            memcpy(cut, text, i);
            g = graph_parse(cut, i, "cut", NULL);
            assert_true(g == NULL || i == n - 1);
            cvn_graph_free(g);
            free(cut);
            char kept = text[i];
            text[i] = "%{}[]<>*,=:\"0-9a _"[i % 17];
            g = graph_parse(text, n, "changed", NULL);
            if (g)
                assert_int_equal(graph_verify(g, NULL), CVN_OK);
            cvn_graph_free(g);
            text[i] = kept;
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_round_trip),
        cmocka_unit_test(constants_keep_their_bits),
        cmocka_unit_test(integers_and_bools_keep_their_bits),
        cmocka_unit_test(white_space_and_comments_are_free),
        cmocka_unit_test(values_that_share_a_name_are_told_apart),
        cmocka_unit_test(all_attributes_of_an_operation_round_trip),
        cmocka_unit_test(the_documentation_has_every_operation),
        cmocka_unit_test(mistakes_are_named_with_their_place),
        cmocka_unit_test(sizes_that_overflow_are_refused),
        cmocka_unit_test(memory_is_in_proportion_to_the_text),
        cmocka_unit_test(broken_texts_are_refused_or_legal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
