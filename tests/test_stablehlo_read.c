/*
 * The reader of StableHLO: modules that JAX printed give what JAX computed by them, on one device and cut for four
 * (tests/oracles/jax_modules.py), and what graphs do not have is refused by name, with its line.
 */
#include "caravan/run.h"
#include "graph/interp/interp.h"
#include "graph/stablehlo/stablehlo.h"
#include "xla_fixture.h"

#include "base/file.h"

#include <dirent.h>
#include <jansson.h>

static cvn_graph *read_module(const char *name)
{
    char path[400];
    cvn_err err = {0};
    FileMap map;
    snprintf(path, sizeof path, "%s/jax/%s", CVN_TEST_DATA, name);
    if (file_map(&map, path, &err))
        fail_msg("%s", err.message);
    cvn_graph *g = cvn_graph_from_stablehlo((const char *)map.data, map.size, name, &err);
    file_unmap(&map);
    if (!g || graph_verify(g, &err))
        fail_msg("%s", err.message);
    return g;
}

/* Runs g on the mesh, compiled, and compares with what is stored. */
static void compare_with_jax(const char *name, const cvn_graph *g, const char *mesh_spec)
{
    char path[400], type[TYPE_TEXT];
    cvn_err err = {0};
    void *in[64] = {NULL}, *out[64] = {NULL};
    snprintf(path, sizeof path, "%s/jax/%.*s.json", CVN_TEST_DATA, (int)strcspn(name, "."), name);
    json_t *stored = json_load_file(path, 0, NULL);
    const json_t *outputs = json_object_get(stored, "outputs");
    assert_true(g->n_parameters <= 64 && g->n_outputs <= 64);
    assert_int_equal(json_array_size(outputs), g->n_outputs);
    for (int p = 0; p < g->n_parameters; p++)
        in[p] = make_input(p, 0, &g->parameter[p]->type, 0);
    for (int i = 0; i < g->n_outputs; i++)
        out[i] = malloc(cvn_type_bytes(&g->output[i].value->type) + 1);
    cvn_mesh *mesh = cvn_mesh_new(mesh_spec, NULL, &err);
    cvn_program *program = cvn_compile(mesh, g, &err);
    if (cvn_run(program, in, out, &err))
        fail_msg("%s on '%s': %s", name, mesh_spec, err.message);
    for (int i = 0; i < g->n_outputs; i++) {
        const json_t *item = json_array_get(outputs, (size_t)i);
        const cvn_type *t = &g->output[i].value->type;
        assert_string_equal(json_string_value(json_object_get(item, "type")),
                            type_text(t, type, sizeof type));
        const json_t *data = json_array_get(json_object_get(item, "data"), 0);
        compare_output(name, i, t, out[i], json_string_value(data), 2e-5);
        free(out[i]);
    }
    for (int p = 0; p < g->n_parameters; p++)
        free(in[p]);
    cvn_program_free(program);
    cvn_mesh_free(mesh);
    json_decref(stored);
}

static void modules_of_jax_give_what_jax_computes(void **state)
{
    (void)state;
    int n = 0;
    DIR *folder = opendir(CVN_TEST_DATA "/jax");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".mlir"))
            continue;
        cvn_graph *g = read_module(entry->d_name);
        compare_with_jax(entry->d_name, g, NULL);
        const cvn_spec rows = {.rank = g->parameter[0]->type.rank, .dim[0] = {1, {"data"}}};
        cvn_mark_sharding(g, g->parameter[0], &rows);
        compare_with_jax(entry->d_name, g, "data=4");
        cvn_graph_free(g);
        n++;
    }
    closedir(folder);
    assert_true(n >= 10);
}

/* ---- small modules ---- */

#define MAIN(arguments, results, body)                                                             \
    "module {\n  func.func public @main(" arguments ") -> " results " {\n" body "  }\n}\n"

static cvn_graph *read_text(const char *text, cvn_err *err)
{
    return graph_read_stablehlo(text, strlen(text), "m", err);
}

/* The floats that a module without arguments gives. */
static void check_values(const char *text, int n, const double *expected)
{
    cvn_err err = {0};
    void *out[1] = {NULL};
    cvn_graph *g = read_text(text, &err);
    if (!g || interp_run_one(g, NULL, out, &err))
        fail_msg("%s", err.message);
    const cvn_type *type = &g->output[0].value->type;
    assert_int_equal(cvn_type_elements(type), n);
    for (int i = 0; i < n; i++) {
        double got = element_get(type->dtype, out[0], i);
        if (got != expected[i] && !(isnan(got) && isnan(expected[i])))
            fail_msg("element %d is %.9g, expected %.9g, of\n%s", i, got, expected[i], text);
    }
    free(out[0]);
    cvn_graph_free(g);
}
#define CHECK_VALUES(text, ...)                                                                    \
    check_values((text), (int)(sizeof((double[]){__VA_ARGS__}) / sizeof(double)),                  \
                 (double[]){__VA_ARGS__})

static void constants_are_read_in_all_forms(void **state)
{
    (void)state;
    CHECK_VALUES(MAIN("", "tensor<2x2xf32>",
                      "%c = stablehlo.constant dense<[[1.0, -2.5e-1], [0x7F800000, 3.0]]> : "
                      "tensor<2x2xf32>\n return %c : tensor<2x2xf32>\n"),
                 1, -0.25, (double)INFINITY, 3);
    CHECK_VALUES(MAIN("", "tensor<2xi32>",
                      "%c = \"stablehlo.constant\"() <{value = dense<\"0x01000000FFFFFFFF\"> : "
                      "tensor<2xi32>}> : () -> tensor<2xi32>\n return %c : tensor<2xi32>\n"),
                 1, -1);
    CHECK_VALUES(MAIN("", "tensor<9xi1>",
                      "%c = stablehlo.constant dense<\"0x0501\"> : tensor<9xi1>\n"
                      "return %c : tensor<9xi1>\n"),
                 1, 0, 1, 0, 0, 0, 0, 0, 1);
    CHECK_VALUES(MAIN("", "tensor<2xbf16>",
                      "%c = stablehlo.constant dense<\"0x803F\"> : tensor<2xbf16>\n"
                      "return %c : tensor<2xbf16>\n"),
                 1, 1);
    CHECK_VALUES(MAIN("", "tensor<3xi4>",
                      "%c = stablehlo.constant dense<\"0x0F0701\"> : tensor<3xi4>\n"
                      "return %c : tensor<3xi4>\n"),
                 -1, 7, 1);
}

#define I32(value) "stablehlo.constant dense<" value "> : tensor<i32>\n"

static void loops_and_choices_are_carried_out(void **state)
{
    (void)state;
    /* 1, 2, 4, 8 by a loop that calls a function. */
    CHECK_VALUES(
        "func.func @main() -> tensor<i32> {\n"
        "  %one = " I32("1") "  %zero = " I32("0") "  %three = " I32(
            "3") "  %r:2 = stablehlo.while(%x = %one, %i = %zero) : tensor<i32>, tensor<i32>\n"
                 "  cond { %t = stablehlo.compare LT, %i, %three, SIGNED : (tensor<i32>, "
                 "tensor<i32>) -> tensor<i1>\n stablehlo.return %t : tensor<i1> }\n"
                 "  do { %y = func.call @twice(%x) : (tensor<i32>) -> tensor<i32>\n"
                 "  %j = stablehlo.add %i, %one : tensor<i32>\n"
                 "  stablehlo.return %y, %j : tensor<i32>, tensor<i32> }\n"
                 "  return %r#0 : tensor<i32>\n}\n"
                 "func.func private @twice(%x: tensor<i32>) -> tensor<i32> {\n"
                 "  %y = stablehlo.add %x, %x : tensor<i32>\n return %y : tensor<i32>\n}\n",
        8);
    /* Where the index is out of range, the last. */
    CHECK_VALUES(
        MAIN("", "tensor<i32>",
             "%n = " I32("-1") "%a = " I32("5") "%b = " I32(
                 "7") "%y = \"stablehlo.case\"(%n) ({ stablehlo.return %a : tensor<i32> }, {\n"
                      "stablehlo.return %b : tensor<i32> }) : (tensor<i32>) -> tensor<i32>\n"
                      "return %y : tensor<i32>\n"),
        7);
}

/* A choice by data is a selection, the same for each of its values. */
static void choices_by_data_are_selections(void **state)
{
    (void)state;
    const char *text = MAIN(
        "%n: tensor<i32>, %p: tensor<i1>", "(tensor<i32>, tensor<i32>)",
        "%a = " I32("5") "%b = " I32("7") "%c = " I32(
            "9") "%y = \"stablehlo.case\"(%n) ({ stablehlo.return %a : tensor<i32> }, {\n"
                 "stablehlo.return %b : tensor<i32> }, { stablehlo.return %c : tensor<i32> }) : "
                 "(tensor<i32>) -> tensor<i32>\n"
                 "%z = \"stablehlo.if\"(%p) ({ stablehlo.return %a : tensor<i32> }, {\n"
                 "stablehlo.return %b : tensor<i32> }) : (tensor<i1>) -> tensor<i32>\n"
                 "return %y, %z : tensor<i32>, tensor<i32>\n");
    cvn_err err = {0};
    cvn_graph *g = read_text(text, &err);
    if (!g)
        fail_msg("%s", err.message);
    for (int32_t n = -1; n < 5; n++) {
        const bool p = n & 1;
        void *out[2];
        assert_int_equal(interp_run_one(g, (const void *[]){&n, &p}, out, &err), CVN_OK);
        assert_int_equal(*(int32_t *)out[0], n == 0 ? 5 : n == 1 ? 7 : 9);
        assert_int_equal(*(int32_t *)out[1], p ? 5 : 7);
        free(out[0]);
        free(out[1]);
    }
    cvn_graph_free(g);
}

/* NaN is the largest and the smallest; of equals the first; and what begins a reduction takes part in it. */
static void reductions_mean_what_their_blocks_say(void **state)
{
    (void)state;
#define ARGMAX(list)                                                                               \
    MAIN(                                                                                          \
        "", "tensor<i32>",                                                                         \
        "%x = stablehlo.constant dense<" list "> : tensor<4xf32>\n"                                \
        "%i = stablehlo.iota dim = 0 : tensor<4xi32>\n"                                            \
        "%least = stablehlo.constant dense<0xFF800000> : tensor<f32>\n%zero = " I32(               \
            "0") "%y:2 = stablehlo.reduce(%x init: %least), (%i init: %zero) across dimensions = " \
                 "[0] : "                                                                          \
                 "(tensor<4xf32>, tensor<4xi32>, tensor<f32>, tensor<i32>) -> (tensor<f32>, "      \
                 "tensor<i32>)\n"                                                                  \
                 " reducer(%a: tensor<f32>, %b: tensor<f32>) (%k: tensor<i32>, %l: tensor<i32>) "  \
                 "{\n"                                                                             \
                 "%1 = stablehlo.compare GT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> "       \
                 "tensor<i1>\n"                                                                    \
                 "%2 = stablehlo.compare NE, %a, %a, FLOAT : (tensor<f32>, tensor<f32>) -> "       \
                 "tensor<i1>\n"                                                                    \
                 "%3 = stablehlo.or %1, %2 : tensor<i1>\n"                                         \
                 "%4 = stablehlo.compare EQ, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> "       \
                 "tensor<i1>\n"                                                                    \
                 "%5 = stablehlo.compare LT, %k, %l, SIGNED : (tensor<i32>, tensor<i32>) -> "      \
                 "tensor<i1>\n"                                                                    \
                 "%6 = stablehlo.and %4, %5 : tensor<i1>\n%7 = stablehlo.or %3, %6 : tensor<i1>\n" \
                 "%8 = stablehlo.select %3, %a, %b : tensor<i1>, tensor<f32>\n"                    \
                 "%9 = stablehlo.select %7, %k, %l : tensor<i1>, tensor<i32>\n"                    \
                 "stablehlo.return %8, %9 : tensor<f32>, tensor<i32>\n}\n return %y#1 : "          \
                 "tensor<i32>\n")
    CHECK_VALUES(ARGMAX("[1.0, 3.0, 2.0, 3.0]"), 1);
    CHECK_VALUES(ARGMAX("[1.0, 3.0, 0x7FC00000, 0x7FC00000]"), 2);
    CHECK_VALUES(MAIN("", "tensor<f32>",
                      "%x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>\n"
                      "%i = stablehlo.constant dense<40.0> : tensor<f32>\n"
                      "%y = stablehlo.reduce(%x init: %i) applies stablehlo.add across dimensions "
                      "= [0] : (tensor<2xf32>, tensor<f32>) -> tensor<f32>\n"
                      "return %y : tensor<f32>\n"),
                 43);
    CHECK_VALUES(MAIN("", "tensor<3xf32>", /* from the end */
                      "%x = stablehlo.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>\n"
                      "%i = stablehlo.constant dense<0.0> : tensor<f32>\n"
                      "%y = \"stablehlo.reduce_window\"(%x, %i) <{padding = dense<[[0, 2]]> : "
                      "tensor<1x2xi64>, window_dimensions = array<i64: 3>}> ({\n"
                      "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n"
                      "%s = stablehlo.add %b, %a : tensor<f32>\n stablehlo.return %s : "
                      "tensor<f32>\n}) : (tensor<3xf32>, tensor<f32>) -> tensor<3xf32>\n"
                      "return %y : tensor<3xf32>\n"),
                 7, 6, 4);
}

#define SORT(compare)                                                                              \
    MAIN("", "tensor<4xf32>",                                                                      \
         "%x = stablehlo.constant dense<[0.0, 0xFFC00000, -0.0, -1.0]> : tensor<4xf32>\n"          \
         "%one = stablehlo.constant dense<1.0> : tensor<4xf32>\n"                                  \
         "%y = \"stablehlo.sort\"(%x) <{dimension = 0 : i64, is_stable = true}> ({\n"              \
         "^bb0(%a: tensor<f32>, %b: tensor<f32>):\n" compare                                       \
         "stablehlo.return %t : tensor<i1>\n}) : (tensor<4xf32>) -> tensor<4xf32>\n"               \
         "%z = stablehlo.divide %one, %y : tensor<4xf32>\n return %z : tensor<4xf32>\n")

/* 1 / x tells the zeros apart: -0 is before 0 in total order, and their order stays where they are equal. */
static void sorts_keep_the_order_of_their_comparison(void **state)
{
    (void)state;
    const double least = -(double)INFINITY, most = (double)INFINITY, nan = (double)NAN;
    CHECK_VALUES(SORT("%t = stablehlo.compare LT, %a, %b, TOTALORDER : (tensor<f32>, tensor<f32>) "
                      "-> tensor<i1>\n"),
                 nan, -1, least, most);
    CHECK_VALUES(SORT("%t = stablehlo.compare LT, %a, %b, FLOAT : (tensor<f32>, tensor<f32>) -> "
                      "tensor<i1>\n"),
                 -1, most, least, nan);
    CHECK_VALUES(SORT("%t = stablehlo.compare LT, %b, %a, TOTALORDER : (tensor<f32>, tensor<f32>) "
                      "-> tensor<i1>\n"),
                 most, least, -1, nan);
}

/* i64 may index, and be moved and compared. */
static void wide_integers_index(void **state)
{
    (void)state;
    CHECK_VALUES(MAIN("", "tensor<1xf32>",
                      "%x = stablehlo.constant dense<[1.0, 2.0, 4.0]> : tensor<3xf32>\n"
                      "%i = stablehlo.constant dense<1> : tensor<i64>\n"
                      "%j = stablehlo.constant dense<2> : tensor<i64>\n"
                      "%k = stablehlo.maximum %i, %j : tensor<i64>\n"
                      "%y = stablehlo.dynamic_slice %x, %k, sizes = [1] : (tensor<3xf32>, "
                      "tensor<i64>) -> tensor<1xf32>\n return %y : tensor<1xf32>\n"),
                 4);
}

static void shardings_become_marks(void **state)
{
    (void)state;
    cvn_err err = {0};
    cvn_graph *g = read_text(
        "#loc = loc(\"a.py\":1:2)\nmodule @m {\n  sdy.mesh @mesh = <[\"data\"=2, \"model\"=2]> "
        "{stablehlo.mesh = {axes = []}}\n"
        "  func.func @main(%x: tensor<4x8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{\"data\", "
        "\"model\"}, {}]>} loc(\"x\")) -> tensor<4x8xf32> {\n    call @none() : () -> () "
        "loc(#loc)\n"
        "    %y = sdy.sharding_constraint %x <@mesh, [{}, {\"model\"}]> : tensor<4x8xf32>\n"
        "    return %y : tensor<4x8xf32>\n  } loc(#loc)\n"
        "  func.func private @none() {\n    return loc(#loc)\n  } loc(#loc)\n} loc(#loc)\n",
        &err);
    if (!g)
        fail_msg("%s", err.message);
    assert_string_equal(g->mesh, "data=2,model=2");
    const cvn_spec *x = g->parameter[0]->spec, *y = g->output[0].value->spec;
    assert_int_equal(x->dim[0].n, 2);
    assert_string_equal(x->dim[0].axis[1], "model");
    assert_int_equal(y->dim[0].n, 0);
    assert_string_equal(y->dim[1].axis[0], "model");
    cvn_graph_free(g);
}

/* ---- what is refused ---- */

static void check_refused(const char *text, const char *message)
{
    cvn_err err = {0};
    cvn_graph *g = read_text(text, &err);
    cvn_graph_free(g);
    assert_null(g);
    assert_int_equal(err.code, CVN_EFORMAT);
    if (!strstr(err.message, message))
        fail_msg("the message is \"%s\", expected \"%s\"", err.message, message);
}

static void what_graphs_do_not_have_is_refused_by_name(void **state)
{
    (void)state;
    check_refused(MAIN("%x: tensor<4xf32>", "tensor<4xf32>",
                       "    %y = stablehlo.cosine %x : tensor<4xf32>\n"
                       "    %z = \"stablehlo.fft\"(%y) {fft_length = array<i64: 4>} : "
                       "(tensor<4xf32>) -> tensor<4xf32>\n    return %z : tensor<4xf32>\n"),
                  "m:4:5: stablehlo.fft is not supported");
    check_refused(MAIN("%x: tensor<4xi64>", "tensor<4xi64>", "    return %x : tensor<4xi64>\n"),
                  "m:2:26: %x is of i64");
    check_refused(MAIN("%x: tensor<?xf32>", "tensor<?xf32>", "    return %x : tensor<?xf32>\n"),
                  "has type tensor<?xf32>; supported are");
    check_refused(MAIN("%x: tensor<complex<f32>>", "tensor<f32>",
                       "    %y = stablehlo.real %x : (tensor<complex<f32>>) -> tensor<f32>\n"
                       "    return %y : tensor<f32>\n"),
                  "has type tensor<complex<f32>>");
    check_refused(MAIN("%x: tensor<f32>", "tensor<f32>",
                       "    %r = stablehlo.while(%i = %x) : tensor<f32>\n    cond {\n"
                       "      %t = stablehlo.compare GT, %i, %i, FLOAT : (tensor<f32>, "
                       "tensor<f32>) -> tensor<i1>\n      stablehlo.return %t : tensor<i1>\n"
                       "    } do { stablehlo.return %i : tensor<f32> }\n"
                       "    return %r : tensor<f32>\n"),
                  "m:3:5: stablehlo.while depends on data");
    check_refused(MAIN("%x: tensor<f32>", "tensor<f32>",
                       "    %y = stablehlo.custom_call @cu(%x) : (tensor<f32>) -> tensor<f32>\n"
                       "    return %y : tensor<f32>\n"),
                  "stablehlo.custom_call is not supported");
    check_refused(MAIN("%x: tensor<4xf32>", "tensor<5xf32>",
                       "    %y = stablehlo.add %x, %x : tensor<5xf32>\n"
                       "    return %y : tensor<5xf32>\n"),
                  "is f32[4], but f32[5] is written as its type");
    check_refused("func.func @main() {\n  %x = stablehlo.add %x, %x : tensor<f32>\n return\n}\n",
                  "m:2:22: found '%x', expected a value that is defined above");
    check_refused("func.func @main() -> tensor<f32> {\n  %x = call @main() : () -> tensor<f32>\n"
                  "  return %x : tensor<f32>\n}\n",
                  "m:2:3: call is called 64 calls deep");
    check_refused("func.func @main() -> tensor<i1> {\n"
                  "  %t = stablehlo.constant dense<true> : tensor<i1>\n"
                  "  %x = stablehlo.while(%i = %t) : tensor<i1>\n"
                  "  cond { stablehlo.return %t : tensor<i1> } do { stablehlo.return %i : "
                  "tensor<i1> }\n  return %x : tensor<i1>\n}\n",
                  "has more than 131072 turns");
}

/* Wherever a module is cut off, it is refused, in words for people; between an operation's name and its types by what is the matter. */
static void a_module_that_is_cut_off_is_refused(void **state)
{
    static const char whole[] = MAIN("%x: tensor<4xf32>", "tensor<4xf32>",
                                     "    %0 = stablehlo.add %x, %x : tensor<4xf32>\n"
                                     "    return %0 : tensor<4xf32>\n");
    const size_t operands = (size_t)(strstr(whole, "add %x, %x") - whole) + strlen("add %x, %x");
    (void)state;
    for (size_t n = 0; n < strlen(whole) - 1; n++) {
        cvn_err err = {0};
        cvn_graph *g = graph_read_stablehlo(whole, n, "m", &err);
        if (g || !strstr(err.message, n == operands ? "the text ends within this operation" : "m"))
            fail_msg("%zu bytes: %s", n, g ? "accepted" : err.message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(modules_of_jax_give_what_jax_computes),
        cmocka_unit_test(constants_are_read_in_all_forms),
        cmocka_unit_test(loops_and_choices_are_carried_out),
        cmocka_unit_test(choices_by_data_are_selections),
        cmocka_unit_test(reductions_mean_what_their_blocks_say),
        cmocka_unit_test(sorts_keep_the_order_of_their_comparison),
        cmocka_unit_test(wide_integers_index),
        cmocka_unit_test(shardings_become_marks),
        cmocka_unit_test(what_graphs_do_not_have_is_refused_by_name),
        cmocka_unit_test(a_module_that_is_cut_off_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
