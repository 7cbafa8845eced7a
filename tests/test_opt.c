/* caravan opt as people meet it: what it prints, what it says, what it leaves in files. */
#include "base/file.h"
#include "base/strbuf.h"
#include "compile/pipeline.h"
#include "graph/passes.h"
#include "unit.h"

#include <sys/wait.h>
#include <unistd.h>

/* Runs "caravan opt ARGS" by the shell: its output is appended, its exit status returned. */
static int opt(StrBuf *out, const char *args)
{
    StrBuf line = {0};
    strbuf_printf(&line, "%s opt %s", CVN_BINARY, args);
    FILE *pipe = popen(line.text, "r");
    assert_non_null(pipe);
    char piece[4096];
    size_t n;
    while ((n = fread(piece, 1, sizeof piece, pipe)) > 0)
        strbuf_add(out, piece, n);
    strbuf_free(&line);
    strbuf_add(out, "", 0);
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(int status, const char *args, const char *output)
{
    StrBuf out = {0};
    int got = opt(&out, args);
    if (got != status || strcmp(out.text, output) != 0)
        fail_msg("caravan opt %s: status %d, expected %d; printed\n%s", args, got, status,
                 out.text);
    strbuf_free(&out);
}

/* The same with a graph on standard input. */
static void expect_from_stdin(int status, const char *text, const char *args, const char *output)
{
    StrBuf line = {0};
    strbuf_printf(&line, "- %s <<'END'\n%s\nEND\n", args, text);
    expect(status, line.text, output);
    strbuf_free(&line);
}

static const char graph[] = "graph @g {\n"
                            "  %x: f32[2] = parameter {name=\"x\"}\n"
                            "  %y: f32[2] = negate %x\n"
                            "  %z: f32[2] = negate %y\n"
                            "  %e: f32[2] = exponential %z\n"
                            "  return %e\n"
                            "}";

static void passes_run_in_order_and_are_reported(void **state)
{
    expect_from_stdin(0, graph, "-p dead,simplify 2>&1",
                      "dead: unchanged, 4 operations\n"
                      "simplify: changed, 2 operations\n"
                      "graph @g {\n"
                      "  %x: f32[2] = parameter {name=\"x\"}\n"
                      "  %e: f32[2] = exponential %x\n"
                      "  return %e\n"
                      "}\n");
    expect_from_stdin(0, graph, "-q -p simplify --emit nothing 2>&1", "");
}

/* With a context of its own, it counts its runs, and changes the graph the first n times. */
static int count_runs(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)g;
    (void)err;
    int *left = *(int *const *)context;
    *changed = left[1]++ < left[0];
    return CVN_OK;
}

static void a_pass_runs_again_only_after_a_change(void **state)
{
    static const GraphPass a = {"a", "", count_runs}, b = {"b", "", count_runs};
    cvn_graph *g = cvn_graph_new("g", NULL);
    /* {passes that change the graph, runs there are} of a, b, a, b, a */
    static const int cases[][2] = {{0, 2}, {1, 2}, {2, 3}, {3, 4}, {4, 5}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int counter[2] = {cases[i][0], 0}, *context = counter;
        PassOptions options = {.context = &context};
        assert_int_equal(
            passes_run(g, (const GraphPass *const[]){&a, &b, &a, &b, &a}, 5, &options, NULL), 0);
        assert_int_equal(counter[1], cases[i][1]);
    }
    cvn_graph_free(g);
}

static void standard_input_is_a_dash(void **state)
{
    expect(0, "- -q -p simplify <<'END'\ngraph @e {return}\nEND\n", "graph @e {\n  return\n}\n");
    expect(1, "- 2>&1 <<'END'\ngraph @e return}\nEND\n",
           "caravan: standard input:1:10: found 'return', expected '{' and the operations\n");
}

/* What follows a mistake in the command line. */
#define HINT "caravan opt --help shows examples and all options\n"

static void mistakes_are_named(void **state)
{
    expect_from_stdin(2, graph, "-p simplfy 2>&1",
                      "caravan: unknown pass simplfy; did you mean simplify?\n" HINT);
    expect_from_stdin(2, graph, "-p simplify,,dead 2>&1",
                      "caravan: unknown pass ''; caravan opt --help lists them\n" HINT);
}

static void every_pass_is_in_the_help(void **state)
{
    StrBuf help = {0};
    assert_int_equal(opt(&help, "--help"), 0);
    for (char *c = help.text; *c; c++) /* the help is wrapped */
        if (*c == '\n')
            *c = ' ';
    const GraphPass *const *const tables[] = {graph_passes, compile_passes};
    for (int t = 0; t < 2; t++)
        for (const GraphPass *const *pass = tables[t]; *pass; pass++) {
            char row[200];
            snprintf(row, sizeof row, "%s (%s)", (*pass)->name, (*pass)->about);
            if (!strstr(help.text, row))
                fail_msg("%s is not in the help", row);
        }
    strbuf_free(&help);
}

static void each_step_is_dumped(void **state)
{
    char folder[] = "/tmp/caravan-opt-XXXXXX", path[100], args[200];
    assert_non_null(mkdtemp(folder));
    snprintf(args, sizeof args, "-q -p dead,simplify --dump %s/steps --emit nothing", folder);
    expect_from_stdin(0, graph, args, "");
    static const struct {
        const char *name, *text;
    } files[] = {
        {"00-input", "negate %y"}, {"01-dead", "negate %y"}, {"02-simplify", "exponential %x"}};
    for (int i = 0; i < 3; i++) {
        FileMap map;
        snprintf(path, sizeof path, "%s/steps/%s.txt", folder, files[i].name);
        assert_int_equal(file_map(&map, path, NULL), 0);
        assert_non_null(memmem(map.data, map.size, files[i].text, strlen(files[i].text)));
        file_unmap(&map);
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/steps", folder);
    rmdir(path);
    rmdir(folder);
}

/* A pass that breaks the graph is named by the error. */
static int break_graph(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    (void)err;
    *changed = true;
    g->first->result[0]->type.dim[0] = 7;
    return CVN_OK;
}

static int refuse(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    (void)g;
    (void)changed;
    return err_set(err, CVN_EUNSUPPORTED, "cannot do this");
}

static void a_pass_that_breaks_the_graph_is_named(void **state)
{
    static const GraphPass breaks = {"break", "", break_graph}, refuses = {"refuse", "", refuse};
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("g", &err);
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 2));
    cvn_output(g, cvn_negate(g, x));
    assert_int_equal(passes_run(g, (const GraphPass *const[]){&refuses}, 1, NULL, &err),
                     CVN_EUNSUPPORTED);
    assert_string_equal(err.message, "pass refuse: cannot do this");
    err = (cvn_err){0};
    assert_int_equal(passes_run(g, (const GraphPass *const[]){&breaks}, 1, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "after pass break: graph 'g', operation 1 (negate"));
    err = (cvn_err){0};
    assert_int_equal(passes_run(g, NULL, 0, NULL, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "before the first pass: graph 'g'"));
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_run_in_order_and_are_reported),
        cmocka_unit_test(a_pass_runs_again_only_after_a_change),
        cmocka_unit_test(standard_input_is_a_dash),
        cmocka_unit_test(mistakes_are_named),
        cmocka_unit_test(every_pass_is_in_the_help),
        cmocka_unit_test(each_step_is_dumped),
        cmocka_unit_test(a_pass_that_breaks_the_graph_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
