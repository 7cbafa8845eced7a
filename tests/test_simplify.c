/* graph_simplify: the same results, bit for bit, on random graphs; and rule by rule, what it makes. */
#include "graph/cse.h"
#include "graph/interp/interp.h"
#include "graph/simplify.h"
#include "graph/text/text.h"
#include "random_graph.h"
#include "unit.h"

static void run(const cvn_graph *g, void **inputs, void **outputs, uint64_t seed)
{
    cvn_err err = {0};
    if (interp_run_one(g, (const void *const *)inputs, outputs, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
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
    if (graph_verify(after, &err))
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.message);
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
    int64_t shrank = 0;
    for (int seed = 0; seed < seeds(1500); seed++) {
        bool large = seed % 50 == 49;
        RandomOptions options = {.n_ops = 5 + seed % 40,
                                 .n_parameters = 1 + seed % 5,
                                 .most_elements = large ? 4 * RANDOM_ROWS * RANDOM_COLUMNS : 150,
                                 .rows = large ? RANDOM_ROWS : 0,
                                 .specials = seed % 2 == 0,
                                 .marks = seed % 3 == 0,
                                 .into = seed % 4 == 0,
                                 .collectives = seed % 5 == 0,
                                 .composites = seed % 7 == 0};
        shrank += check_seed((uint64_t)seed, &options);
    }
    assert_true(shrank > 0);
}

/* ---- goldens: tests/data/passes/simplify.txt ---- */

/* Values of two graphs that are taken to be the same: b's by a's id. */
typedef struct Match {
    cvn_value **partner; /* [n_values of a] */
} Match;

/* The same operations on the same operands, all the way up to the parameters. */
static bool match(Match *m, cvn_value *a, cvn_value *b)
{
    if (m->partner[a->id])
        return m->partner[a->id] == b;
    const Op *p = a->def, *q = b->def;
    if (p->kind != q->kind || a->result != b->result || p->n_operands != q->n_operands ||
        !cvn_type_equal(&a->type, &b->type) || !spec_equal(a->spec, b->spec) ||
        !attr_equal(p->kind, &p->attr, &q->attr))
        return false;
    for (int i = 0; i < p->n_operands; i++)
        if (!match(m, p->operand[i], q->operand[i]))
            return false;
    m->partner[a->id] = b;
    return true;
}

static bool same_graph(const cvn_graph *a, const cvn_graph *b)
{
    bool same = a->n_ops == b->n_ops && a->n_outputs == b->n_outputs;
    Match m = {calloc(a->n_values + (size_t)1, sizeof *m.partner)};
    assert_non_null(m.partner);
    for (int i = 0; i < a->n_outputs && same; i++) {
        const Output *x = &a->output[i], *y = &b->output[i];
        same = match(&m, x->value, y->value) && !x->into == !y->into &&
               (!x->into || match(&m, x->into, y->into));
    }
    free(m.partner);
    return same;
}

/* Graph text of a case: a line "x: f32[4]" is short for a parameter; the rest is copied. */
static cvn_graph *read_graph(const char *name, const char *parameters, const char *body)
{
    StrBuf text = {0};
    strbuf_puts(&text, "graph @case {\n");
    for (const char *line = parameters; *line; line += strcspn(line, "\n") + 1) {
        int n = (int)strcspn(line, ":"), all = (int)strcspn(line, "\n");
        strbuf_printf(&text, "%%%.*s = parameter {name=\"%.*s\"}\n", all, line, n, line);
    }
    strbuf_puts(&text, body);
    strbuf_puts(&text, "}\n");
    cvn_err err = {0};
    assert_false(text.failed);
    cvn_graph *g = graph_parse(text.text, text.length, name, &err);
    if (!g)
        fail_msg("case \"%s\": %s in\n%s", name, err.message, text.text);
    strbuf_free(&text);
    return g;
}

static void check_case(const char *name, const char *parameters, const char *before,
                       const char *after)
{
    cvn_err err = {0};
    bool changed = false;
    cvn_graph *g = read_graph(name, parameters, before);
    cvn_graph *expected = read_graph(name, parameters, after ? after : before);
    if (graph_simplify(g, &changed, &err))
        fail_msg("case \"%s\": %s", name, err.message);
    if (graph_verify(g, &err))
        fail_msg("case \"%s\": %s", name, err.message);
    if (changed == !after || !same_graph(g, expected)) {
        StrBuf text = {0};
        graph_print(&text, g);
        fail_msg("case \"%s\" (changed: %d) became\n%s", name, changed, text.text);
    }
    cvn_graph_free(g);
    cvn_graph_free(expected);
}

/* Cuts the text at the next line that starts with `mark`; returns what follows it, or NULL. */
static char *cut(char *text, const char *mark)
{
    for (char *line = text; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, mark, strlen(mark)) == 0) {
            char *rest = line + strlen(mark);
            *line = '\0';
            return rest;
        }
    }
    return NULL;
}

static char *read_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s is missing", path);
    size_t size = 1 << 20, n;
    char *text = calloc(size, 1);
    assert_non_null(text);
    n = fread(text, 1, size - 1, f);
    fclose(f);
    assert_true(n > 0 && n < size - 1);
    return text;
}

static void each_rule_makes_what_it_says(void **state)
{
    int cases = 0;
    char *text = read_file(CVN_TEST_DATA "/passes/simplify.txt");
    for (char *name = cut(text, "# "), *next; name; name = next) {
        next = cut(name, "# ");
        char *after = cut(name, "=>"), *parameters = strchr(name, '\n');
        if (!after || !parameters)
            fail_msg("case \"%s\" has no \"=>\"", name);
        *parameters++ = '\0';
        char *body = parameters;
        while (*body && *body != '%' && strncmp(body, "return", 6) != 0)
            body += strcspn(body, "\n") + 1;
        char *before = strdup(body);
        assert_non_null(before);
        *body = '\0';
        check_case(name, parameters, before, strncmp(after, " same", 5) ? after : NULL);
        free(before);
        cases++;
    }
    free(text);
    assert_true(cases > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_rule_makes_what_it_says),
        cmocka_unit_test(random_graphs_compute_the_same),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
