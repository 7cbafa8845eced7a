/*
 * Every operation against what XLA makes of it: the cases in tests/data/ops, whose format is said
 * in tests/oracles/ops.py. A case becomes a graph of one operation, its attributes set by name
 * through ops.def, and runs in the interpreter.
 */
#include "graph/graph.h"
#include "graph/interp/interp.h"
#include "graph/text/text.h"
#include "unit.h"

#include <jansson.h>
#include <math.h>

enum { MOST = 8 };

typedef struct Tensor {
    cvn_type type;
    void *data; /* heap */
} Tensor;

typedef struct Case {
    OpKind kind;
    OpAttr attr;
    Tensor in[MOST], out[MOST];
    int n_in, n_out;
    int n_devices; /* 0: one, and not a collective; else in and out hold a tensor for each */
    int64_t ulp;
} Case;

static bool seen[OP_COUNT]; /* operations that some case is about */

static int hex_digit(char c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* The bytes of a string of hexadecimal digits, on the heap, with room for one more element. */
static void *hex_bytes(const char *text, size_t *bytes)
{
    *bytes = strlen(text) / 2;
    uint8_t *data = malloc(*bytes + 8);
    assert_non_null(data);
    for (size_t i = 0; i < *bytes; i++)
        data[i] = (uint8_t)(hex_digit(text[2 * i]) << 4 | hex_digit(text[2 * i + 1]));
    return data;
}

/* "f32[2,3]" */
static cvn_type parse_type(const char *text)
{
    char name[8];
    size_t n = strcspn(text, "[");
    assert_true(n < sizeof name);
    memcpy(name, text, n);
    name[n] = '\0';
    cvn_type type = {0};
    assert_true(cvn_dtype_parse(name, &type.dtype));
    for (const char *p = text + n + 1; *p != ']';) {
        char *end;
        type.dim[type.rank++] = strtoll(p, &end, 10);
        p = *end == ',' ? end + 1 : end;
    }
    return type;
}

static int load_tensors(const json_t *list, Tensor *to)
{
    size_t i;
    const json_t *item;
    assert_true(json_array_size(list) <= MOST);
    json_array_foreach(list, i, item)
    {
        size_t bytes;
        to[i].type = parse_type(json_string_value(json_object_get(item, "type")));
        to[i].data = hex_bytes(json_string_value(json_object_get(item, "data")), &bytes);
        assert_int_equal(bytes, cvn_type_bytes(&to[i].type));
    }
    return (int)json_array_size(list);
}

static Ints load_ints(cvn_graph *g, const json_t *list)
{
    int64_t v[64];
    size_t n = json_array_size(list);
    assert_true(n <= 64);
    for (size_t i = 0; i < n; i++)
        v[i] = json_integer_value(json_array_get(list, i));
    return graph_ints(g, (int)n, v);
}

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("unknown name %s", name);
    return -1;
}

static Literal load_literal(cvn_graph *g, const json_t *value)
{
    size_t bytes;
    void *data = hex_bytes(json_string_value(json_object_get(value, "data")), &bytes);
    Literal literal = {json_is_true(json_object_get(value, "splat")), bytes,
                       arena_copy(&g->arena, data, bytes)};
    free(data);
    return literal;
}

/* Sets the attribute that its info describes. */
static void load_attr(cvn_graph *g, OpAttr *attr, const AttrInfo *info, const json_t *value)
{
    void *field = (char *)attr + info->offset;
    switch (info->type) {
    case ATTR_INT:
        *(int64_t *)field = json_integer_value(value);
        break;
    case ATTR_INTS:
        *(Ints *)field = load_ints(g, value);
        break;
    case ATTR_FLOAT:
        *(double *)field = json_number_value(value);
        break;
    case ATTR_BOOL:
        *(bool *)field = json_is_true(value);
        break;
    case ATTR_STRING:
        *(const char **)field = arena_string(&g->arena, json_string_value(value));
        break;
    case ATTR_LITERAL:
        *(Literal *)field = load_literal(g, value);
        break;
    default: /* an enum */
        *(unsigned *)field = (unsigned)find_name(
            attr_types[info->type].names, attr_types[info->type].n_names, json_string_value(value));
    }
}

static const AttrInfo *find_attr(OpKind kind, const char *name)
{
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++)
        if (strcmp(row->name, name) == 0)
            return row;
    fail_msg("%s has no attribute %s", op_info[kind].name, name);
    return NULL;
}

static Case load_case(cvn_graph *g, json_t *json)
{
    Case c = {.kind = OP_COUNT};
    const char *name = json_string_value(json_object_get(json, "op"));
    for (int k = 0; k < OP_COUNT; k++)
        if (strcmp(op_info[k].name, name) == 0)
            c.kind = (OpKind)k;
    assert_true(c.kind < OP_COUNT);
    const char *key;
    json_t *value;
    json_object_foreach(json_object_get(json, "attrs"), key, value)
    {
        load_attr(g, &c.attr, find_attr(c.kind, key), value);
    }
    c.n_in = load_tensors(json_object_get(json, "in"), c.in);
    c.n_out = load_tensors(json_object_get(json, "out"), c.out);
    c.ulp = json_integer_value(json_object_get(json, "ulp"));
    c.n_devices = (int)json_integer_value(json_object_get(json, "devices"));
    return c;
}

static void free_case(Case *c)
{
    for (int i = 0; i < c->n_in; i++)
        free(c->in[i].data);
    for (int i = 0; i < c->n_out; i++)
        free(c->out[i].data);
}

/* The operation on parameters of the operands' types, all its results being outputs. */
static void build_case(cvn_graph *g, const Case *c)
{
    cvn_value *operand[MOST];
    cvn_type want[MOST];
    bool collective = c->n_devices > 0;
    int n_operands = collective ? c->n_in > 0 : c->n_in, n_results = collective ? 1 : c->n_out;
    for (int i = 0; i < n_operands; i++) {
        char name[] = {'x', (char)('0' + i), '\0'};
        operand[i] = cvn_parameter(g, name, c->in[i].type);
    }
    for (int i = 0; i < n_results; i++)
        want[i] = c->out[i].type;
    cvn_value *first = graph_add(g, c->kind, &c->attr, n_operands, operand, want);
    if (g->err.code)
        fail_msg("%s", g->err.message);
    assert_int_equal(first->def->n_results, n_results);
    for (int i = 0; i < n_results; i++)
        cvn_output(g, first->def->result[i]);
}

/* An integer that floats of one dtype order as, neighbours being one apart. */
static int64_t float_place(cvn_dtype dtype, const void *data, int64_t i)
{
    int64_t bits;
    if (dtype == CVN_F64)
        bits = ((const int64_t *)data)[i];
    else if (dtype == CVN_F32)
        bits = ((const int32_t *)data)[i];
    else
        bits = ((const int16_t *)data)[i];
    return bits < 0 ? bits ^ INT64_MAX : bits;
}

static double least_normal(cvn_dtype dtype)
{
    return dtype == CVN_F64 ? 0x1p-1022 : dtype == CVN_F16 ? 0x1p-14 : 0x1p-126;
}

/* XLA on a CPU may take a subnormal number for zero, of the same sign or not. */
static bool is_flushed(cvn_dtype dtype, double got, double expected)
{
    return expected == 0 && fabs(got) < least_normal(dtype);
}

static bool close_enough(cvn_dtype dtype, const void *got, const void *expected, int64_t i,
                         int64_t ulp)
{
    double x = element_get(dtype, got, i), y = element_get(dtype, expected, i);
    if (dtype > CVN_F16)
        return x == y;
    if (isnan(x) || isnan(y))
        return isnan(x) && isnan(y);
    if (x != 0 && is_flushed(dtype, x, y))
        return true;
    int64_t a = float_place(dtype, got, i), b = float_place(dtype, expected, i), distance;
    if (__builtin_sub_overflow(a, b, &distance))
        return false;
    return distance >= -ulp && distance <= ulp;
}

/* 0, or the number of elements that are wrong, the first of which is printed. */
static int compare_result(const Case *c, const char *where, int result, const void *got)
{
    const Tensor *expected = &c->out[result];
    cvn_dtype dtype = expected->type.dtype;
    int wrong = 0;
    for (int64_t i = 0, n = cvn_type_elements(&expected->type); i < n; i++) {
        if (close_enough(dtype, got, expected->data, i, c->ulp))
            continue;
        if (wrong++ == 0) {
            char type[TYPE_TEXT];
            print_error("%s: %s result %d %s, element %lld: %.17g, XLA gives %.17g", where,
                        op_info[c->kind].name, result,
                        type_text(&expected->type, type, sizeof type), (long long)i,
                        element_get(dtype, got, i), element_get(dtype, expected->data, i));
            for (int k = 0; k < c->n_in; k++)
                if (cvn_type_elements(&c->in[k].type) == n)
                    print_error(", x%d %s %.17g", k, cvn_dtype_name(c->in[k].type.dtype),
                                element_get(c->in[k].type.dtype, c->in[k].data, i));
            print_error("\n");
        }
    }
    if (wrong > 1)
        print_error("    and %d more of %lld\n", wrong - 1,
                    (long long)cvn_type_elements(&expected->type));
    return wrong;
}

/* The graph that is read from g's text, in place of g; printed again it gives the same text. */
static cvn_graph *through_text(cvn_graph *g, const char *where)
{
    StrBuf first = {0}, second = {0};
    cvn_err err = {0};
    graph_print(&first, g);
    cvn_graph *back = graph_parse(first.text, first.length, where, &err);
    if (!back || graph_verify(back, &err))
        fail_msg("%s: %s\n%s", where, err.message, first.text);
    graph_print(&second, back);
    assert_string_equal(first.text, second.text);
    strbuf_free(&first);
    strbuf_free(&second);
    cvn_graph_free(g);
    return back;
}

static int run_case(json_t *json, const char *where)
{
    cvn_graph *g = cvn_graph_new("case", NULL);
    assert_non_null(g);
    Case c = load_case(g, json);
    build_case(g, &c);
    g = through_text(g, where);
    const void *in[MOST];
    void *out[MOST];
    for (int i = 0; i < c.n_in; i++)
        in[i] = c.in[i].data;
    cvn_err err = {0};
    if (interp_run(g, c.n_devices ? c.n_devices : 1, in, out, &err))
        fail_msg("%s: %s", where, err.message);
    int wrong = 0;
    for (int i = 0; i < c.n_out; i++) {
        wrong += compare_result(&c, where, i, out[i]);
        free(out[i]);
    }
    seen[c.kind] = true;
    free_case(&c);
    cvn_graph_free(g);
    return wrong;
}

static void run_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/ops/%s.json", CVN_TEST_DATA, name);
    json_error_t error;
    json_t *cases = json_load_file(path, 0, &error);
    if (!cases)
        fail_msg("%s:%d: %s", path, error.line, error.text);
    int wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        char where[600];
        snprintf(where, sizeof where, "%s:%zu", path, i + 2);
        wrong += run_case(json_array_get(cases, i), where);
    }
    json_decref(cases);
    assert_int_equal(wrong, 0);
}

static void leaves_are_as_in_xla(void **state)
{
    run_file("leaf");
}

static void unary_operations_are_as_in_xla(void **state)
{
    run_file("unary");
}

static void conversions_are_as_in_xla(void **state)
{
    run_file("convert");
}

static void binary_operations_are_as_in_xla(void **state)
{
    run_file("binary");
}

static void select_and_clamp_are_as_in_xla(void **state)
{
    run_file("ternary");
}

static void shape_operations_are_as_in_xla(void **state)
{
    run_file("shape");
}

static void index_operations_are_as_in_xla(void **state)
{
    run_file("index");
}

static void reductions_are_as_in_xla(void **state)
{
    run_file("reduce");
}

static void contractions_are_as_in_xla(void **state)
{
    run_file("dot");
}

static void composites_are_as_their_formulas_in_xla(void **state)
{
    run_file("composite");
}

static void quantized_weights_are_as_by_their_formulas(void **state)
{
    run_file("quantized");
}

static void products_by_group_are_as_one_by_one(void **state)
{
    run_file("grouped");
}

static void gradients_are_as_by_jax(void **state)
{
    run_file("gradient");
}

static void collectives_are_as_in_xla(void **state)
{
    run_file("collective");
}

/* Runs last. A parameter has no function of its own, and a region its body's. */
static void every_operation_had_a_case(void **state)
{
    for (int k = 0; k < OP_COUNT; k++)
        if (!seen[k] && k != OP_PARAMETER && k != OP_REGION)
            fail_msg("no case in tests/data/ops is about %s", op_info[k].name);
}

/* The comparison must be able to fail: one unit too far, a wrong sign of zero, NaN for a number. */
static void the_comparison_sees_small_differences(void **state)
{
    float base[] = {1, -0.0f, NAN, 0, INFINITY},
          off[] = {1.0000001f, 0, 1, 0x1p-140f, 0x1.fffffep127f};
    assert_false(close_enough(CVN_F32, off, base, 0, 0));
    assert_true(close_enough(CVN_F32, off, base, 0, 1));
    assert_false(close_enough(CVN_F32, off, base, 1, 0));
    assert_false(close_enough(CVN_F32, off, base, 2, 1000));
    assert_true(close_enough(CVN_F32, off, base, 3, 0));
    assert_false(close_enough(CVN_F32, base, off, 3, 0));
    assert_false(close_enough(CVN_F32, off, base, 4, 0));
    int8_t five = 5, six = 6;
    assert_false(close_enough(CVN_I8, &five, &six, 0, 9));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_comparison_sees_small_differences),
        cmocka_unit_test(leaves_are_as_in_xla),
        cmocka_unit_test(unary_operations_are_as_in_xla),
        cmocka_unit_test(conversions_are_as_in_xla),
        cmocka_unit_test(binary_operations_are_as_in_xla),
        cmocka_unit_test(select_and_clamp_are_as_in_xla),
        cmocka_unit_test(shape_operations_are_as_in_xla),
        cmocka_unit_test(index_operations_are_as_in_xla),
        cmocka_unit_test(reductions_are_as_in_xla),
        cmocka_unit_test(contractions_are_as_in_xla),
        cmocka_unit_test(composites_are_as_their_formulas_in_xla),
        cmocka_unit_test(quantized_weights_are_as_by_their_formulas),
        cmocka_unit_test(products_by_group_are_as_one_by_one),
        cmocka_unit_test(gradients_are_as_by_jax),
        cmocka_unit_test(collectives_are_as_in_xla),
        cmocka_unit_test(every_operation_had_a_case),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
