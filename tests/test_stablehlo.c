/*
 * The StableHLO printer: XLA compiled and ran the modules that it prints for tests/data/graphs, and
 * what the interpreter computes from the same graphs on the same inputs is the same. The results in
 * tests/data/stablehlo are made by tests/oracles/stablehlo.py.
 */
#include "base/file.h"
#include "base/map.h"
#include "graph/interp/interp.h"
#include "graph/stablehlo/stablehlo_impl.h"
#include "graph/text/text.h"
#include "xla_fixture.h"

#include <dirent.h>
#include <jansson.h>

static cvn_graph *read_graph(const char *name)
{
    char path[400];
    cvn_err err = {0};
    FileMap map;
    snprintf(path, sizeof path, "%s/graphs/%s", CVN_TEST_DATA, name);
    if (file_map(&map, path, &err))
        fail_msg("%s", err.message);
    cvn_graph *g = graph_parse((const char *)map.data, map.size, name, &err);
    file_unmap(&map);
    if (!g || graph_verify(g, &err))
        fail_msg("%s", err.message);
    return g;
}

/* Calls `each` for every graph of tests/data/graphs. */
static void for_graphs(void (*each)(const char *name, cvn_graph *g, void *context), void *context)
{
    int n = 0;
    DIR *folder = opendir(CVN_TEST_DATA "/graphs");
    assert_non_null(folder);
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (!strstr(entry->d_name, ".txt"))
            continue;
        cvn_graph *g = read_graph(entry->d_name);
        each(entry->d_name, g, context);
        cvn_graph_free(g);
        n++;
    }
    closedir(folder);
    assert_true(n > 0);
}

/* context: what the graph is made first, or NULL. */
static void compare_with_xla(const char *name, cvn_graph *g, void *context)
{
    cvn_graph *(*const *make)(const char *name, const cvn_graph *g) = context;
    cvn_graph *made = make ? (*make)(name, g) : NULL;
    g = made ? made : g;
    char path[400], type[TYPE_TEXT];
    snprintf(path, sizeof path, "%s/stablehlo/%.*s.json", CVN_TEST_DATA, (int)strcspn(name, "."),
             name);
    json_t *stored = json_load_file(path, 0, NULL);
    if (!stored)
        fail_msg("%s is missing; make oracles makes it", path);
    int n_devices = (int)json_integer_value(json_object_get(stored, "devices"));
    const json_t *outputs = json_object_get(stored, "outputs");
    assert_int_equal(json_array_size(outputs), g->n_outputs);
    size_t n_in = (size_t)(n_devices * g->n_parameters);
    void **in = calloc(n_in + 1, sizeof *in);
    void **out = calloc((size_t)(n_devices * g->n_outputs) + 1, sizeof *out);
    assert_true(in && out && n_devices >= 1);
    for (int d = 0; d < n_devices; d++)
        for (int p = 0; p < g->n_parameters; p++)
            in[d * g->n_parameters + p] = make_input(p, d, &g->parameter[p]->type, -3);
    cvn_err err = {0};
    if (interp_run(g, n_devices, (const void *const *)in, out, &err))
        fail_msg("%s: %s", name, err.message);
    for (int i = 0; i < g->n_outputs; i++) {
        const json_t *item = json_array_get(outputs, (size_t)i);
        const cvn_type *t = &g->output[i].value->type;
        assert_string_equal(json_string_value(json_object_get(item, "type")),
                            type_text(t, type, sizeof type));
        const json_t *data = json_object_get(item, "data");
        assert_int_equal(json_array_size(data), n_devices);
        for (int d = 0; d < n_devices; d++) {
            void *got = out[d * g->n_outputs + i];
            compare_output(name, i, t, got, json_string_value(json_array_get(data, (size_t)d)),
                           4e-6);
            free(got);
        }
    }
    for (size_t i = 0; i < n_in; i++)
        free(in[i]);
    free(in);
    free(out);
    json_decref(stored);
    cvn_graph_free(made);
}

static void xla_computes_what_the_interpreter_does(void **state)
{
    (void)state;
    for_graphs(compare_with_xla, NULL);
}

/* The module of g, read. */
static cvn_graph *there_and_back(const char *name, const cvn_graph *g)
{
    cvn_err err = {0};
    StrBuf text = {0};
    if (graph_print_stablehlo(&text, g, NULL, &err))
        fail_msg("%s: %s", name, err.message);
    cvn_graph *read = graph_read_stablehlo(text.text, text.length, name, &err);
    if (!read || graph_verify(read, &err))
        fail_msg("%s", err.message);
    assert_int_equal(read->n_parameters, g->n_parameters);
    for (int i = 0; i < g->n_outputs; i++) /* the same memory */
        assert_int_equal(read->output[i].into != NULL, g->output[i].into != NULL);
    strbuf_free(&text);
    return read;
}

static void a_module_that_was_printed_means_the_same_when_read(void **state)
{
    (void)state;
    cvn_graph *(*make)(const char *name, const cvn_graph *g) = there_and_back;
    for_graphs(compare_with_xla, &make);
}

static void note_kinds(const char *name, cvn_graph *g, void *context)
{
    (void)name;
    bool *seen = context;
    for (const Op *op = g->first; op; op = op->next)
        seen[op->kind] = true;
}

static void every_operation_is_compared(void **state)
{
    (void)state;
    bool seen[OP_COUNT] = {false};
    for_graphs(note_kinds, seen);
    for (int i = 0; i < OP_COUNT; i++)
        if (!seen[i] && i != OP_REGION) /* which is its body */
            fail_msg("no graph in tests/data/graphs has a %s", op_info[i].name);
}

static char *print_module(const char *text, int64_t n_devices, cvn_err *err)
{
    StrBuf out = {0};
    cvn_graph *g = graph_parse(text, strlen(text), "test", err);
    if (!g)
        fail_msg("%s", err->message);
    StableHloOptions options = {.n_devices = n_devices};
    if (graph_print_stablehlo(&out, g, &options, err))
        strbuf_free(&out);
    cvn_graph_free(g);
    return out.text;
}

static void a_module_is_printed_so(void **state)
{
    (void)state;
    cvn_err err = {0};
    char *text =
        print_module("graph @step {\n"
                     "  %x: f32[2] = parameter {name=\"x\"}\n"
                     "  %n: u32[] = parameter {name=\"n\"}\n"
                     "  %c: f32[2] = constant {value=[0.1, -inf]}\n"
                     "  %y: f32[2] = add %x, %c\n"
                     "  %a: f32[2], %b: f32[2] = sort %y, %x {descending=true}\n"
                     "  %s: f32[2] = all_reduce %b {kind=max, group_size=2, groups=[1,0]}\n"
                     "  return %n, %s into %x\n"
                     "}\n",
                     0, &err);
    assert_int_equal(err.code, CVN_OK);
    assert_string_equal(
        text,
        "module @step attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 2 : i32} {\n"
        "  func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = 1 : i32}, "
        "%n: tensor<ui32>) -> (tensor<ui32>, tensor<2xf32>) {\n"
        "    %c = \"stablehlo.constant\"() {value = dense<[1.0e-01, 0xFF800000]> : tensor<2xf32>} "
        ": () -> tensor<2xf32>\n"
        "    %y = \"stablehlo.add\"(%x, %c) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>\n"
        "    %a:2 = \"stablehlo.sort\"(%y, %x) ({\n"
        "    ^bb0(%$a: tensor<f32>, %$b: tensor<f32>, %$c: tensor<f32>, %$d: tensor<f32>):\n"
        "      %$e = \"stablehlo.compare\"(%$a, %$b) {comparison_direction = "
        "#stablehlo<comparison_direction GT>, compare_type = #stablehlo<comparison_type "
        "TOTALORDER>} : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
        "      \"stablehlo.return\"(%$e) : (tensor<i1>) -> ()\n"
        "    }) {dimension = 0 : i64, is_stable = true} : (tensor<2xf32>, tensor<2xf32>) -> "
        "(tensor<2xf32>, tensor<2xf32>)\n"
        "    %s = \"stablehlo.all_reduce\"(%a#1) ({\n"
        "    ^bb0(%$a: tensor<f32>, %$b: tensor<f32>):\n"
        "      %$c = \"stablehlo.maximum\"(%$a, %$b) : (tensor<f32>, tensor<f32>) -> tensor<f32>\n"
        "      \"stablehlo.return\"(%$c) : (tensor<f32>) -> ()\n"
        "    }) {replica_groups = dense<[[1, 0]]> : tensor<1x2xi64>} : (tensor<2xf32>) -> "
        "tensor<2xf32>\n"
        "    \"func.return\"(%n, %s) : (tensor<ui32>, tensor<2xf32>) -> ()\n"
        "  }\n"
        "}\n");
    free(text);
}

static void devices_that_are_not_there_are_refused(void **state)
{
    (void)state;
    cvn_err err = {0};
    static const char text[] = "graph @g {\n"
                               "  %x: f32[2] = parameter {name=\"x\"}\n"
                               "  %y: f32[2] = collective_permute %x {pairs=[0,5]}\n"
                               "  return %y\n"
                               "}\n";
    assert_null(print_module(text, 5, &err));
    assert_string_equal(err.message, "graph 'g' names devices up to 5, but the module is for 5");
    err = (cvn_err){0};
    char *module = print_module(text, 0, &err);
    assert_non_null(strstr(module, "mhlo.num_replicas = 6"));
    free(module);
    static const char far[] =
        "graph @g {\n"
        "  %x: f32[2] = parameter {name=\"x\"}\n"
        "  %y: f32[2] = collective_permute %x {pairs=[0,9223372036854775807]}\n"
        "  return %y\n"
        "}\n";
    assert_null(print_module(far, 0, &err));
    assert_int_equal(err.code, CVN_EINVAL);
}

/* Of 8 heads, 1024 queries and as many keys a tensor would hold 32 MB: there is a loop, and no such tensor. 128 queries of 131072
   keys would still be 512 MB: each turn takes half of the heads. */
static void attention_never_holds_all_scores(void **state)
{
    static const struct {
        int64_t queries, keys;
        const char *held, *not_held;
    } cases[] = {{1024, 1024, "tensor<1x2x512x4x1024xf32>", "x1024x4x1024x"},
                 {256, 131072, "tensor<1x1x128x4x131072xf32>", "x2x128x4x131072x"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        StrBuf text = {0};
        cvn_graph *g = cvn_graph_new("attend", &err);
        cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_BF16, 1, cases[i].queries, 8, 16)), *d[4];
        cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(CVN_BF16, 1, 2, cases[i].keys, 16));
        cvn_value *at = cvn_parameter(g, "at", CVN_TYPE(CVN_I32, 1));
        const cvn_attention_spec spec = {.scale = 1};
        cvn_value *y = cvn_attention(g, q, k, k, at, at, &spec);
        cvn_attention_backward(g, q, k, k, at, at, y, &spec, d);
        for (int j = 0; j < 3; j++)
            cvn_output(g, d[j]);
        assert_int_equal(graph_print_stablehlo(&text, g, NULL, &err), CVN_OK);
        const char *first = strstr(text.text, "stablehlo.while");
        assert_non_null(first);
        assert_non_null(strstr(first + 1, "stablehlo.while"));
        assert_non_null(strstr(text.text, cases[i].held));
        assert_null(strstr(text.text, cases[i].not_held));
        cvn_graph *read = graph_read_stablehlo(text.text, text.length, "attend", &err);
        if (read) /* a loop of a number of turns that is known */
            assert_int_equal(graph_verify(read, &err), CVN_OK);
        else if (i != 1 || !strstr(err.message, "stablehlo.while depends on data"))
            fail_msg("%s", err.message);
        cvn_graph_free(read);
        strbuf_free(&text);
        cvn_graph_free(g);
    }
}

/* Rows of so many keys: the first and last have some in two blocks, the second none, and the room goes on. */
enum { RAGGED_ROWS = 3, RAGGED_QUERIES = 2, RAGGED_HEADS = 4 };

/* Floats of [-2, 2), but NaN where keys (dimension 2) are behind those of the row. */
static void *ragged_input(uint64_t p, const cvn_type *type, const int32_t *end)
{
    void *data = make_input((int)p, 0, type, -3);
    int64_t inner = type->dim[3], keys = type->dim[2], row = type->dim[1] * keys * inner;
    for (int64_t i = 0, n = cvn_type_elements(type); end && i < n; i++)
        if (dtype_is_float(type->dtype) && i / inner % keys >= end[i / row])
            element_set(type->dtype, data, i, (double)NAN);
    return data;
}

/* Attention over a cache with much room ends behind the last key: it is a loop, which is read as its turns where starts are
   constants, and gives what attention gives. */
static void attention_over_a_long_cache_reads_what_is_filled(void **state)
{
    static const struct {
        const char *attrs;
        bool eight, sinks;
        int turns, keys;
    } cases[] = {{"", false, false, 2, 6144},
                 {", window=600", false, false, 1, 6144},
                 {", chunk=1600, cap=3", false, false, 2, 6144},
                 {", sinks=true", false, true, 2, 6144},
                 {"", true, false, 2, 6144},
                 /* the last block begins earlier */
                 {"", false, false, 2, 4096},
                 {"", false, false, 3, 4097},
                 {", window=600, sinks=true", false, true, 2, 4103},
                 {"", true, false, 3, 5200}};
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        char text[2000];
        cvn_err err = {0};
        StrBuf module = {0};
        void *in[6], *want[1], *got[1];
        const char *cache = cases[c].eight ? "i8" : "f32";
        const int keys = cases[c].keys, start = keys % 2048 ? keys - 1 : 3524;
        const int32_t end[RAGGED_ROWS] = {2804, 0, start + 1};
        char scales[200] = "";
        if (cases[c].eight)
            snprintf(scales, sizeof scales,
                     " %%a: bf16[3,2,%d,1] = parameter {name=\"a\"}\n"
                     " %%b: bf16[3,2,%d,1] = parameter {name=\"b\"}\n",
                     keys, keys);
        snprintf(text, sizeof text,
                 "graph @g {\n %%q: f32[3,2,4,8] = parameter {name=\"q\"}\n"
                 " %%k: %s[3,2,%d,8] = parameter {name=\"k\"}\n"
                 " %%v: %s[3,2,%d,8] = parameter {name=\"v\"}\n%s%s"
                 " %%s: i32[3] = constant {value=[2802, 5, %d]}\n"
                 " %%n: i32[3] = constant {value=[2, 0, 1]}\n"
                 " %%y: f32[3,2,4,8] = attention %%q, %%k, %%v, %%s, %%n%s%s {scale=0.35%s}\n"
                 " return %%y\n}\n",
                 cache, keys, cache, keys, scales,
                 cases[c].sinks ? " %t: f32[4] = parameter {name=\"t\"}\n" : "", start,
                 cases[c].eight ? ", %a, %b" : "", cases[c].sinks ? ", %t" : "", cases[c].attrs);
        cvn_graph *g = graph_parse(text, strlen(text), "ragged", &err);
        if (!g || graph_print_stablehlo(&module, g, NULL, &err))
            fail_msg("%s", err.message);
        assert_non_null(strstr(module.text, "stablehlo.while"));
        char scores[40]; /* of the whole room: there are none */
        snprintf(scores, sizeof scores, "x%dxf32>, tensor<1x2x", keys);
        assert_null(strstr(module.text, scores));
        cvn_graph *read = graph_read_stablehlo(module.text, module.length, "ragged", &err);
        if (!read)
            fail_msg("%s", err.message);
        int blocks = 0; /* of keys that are read */
        for (const Op *op = read->first; op; op = op->next)
            blocks += op->kind == OP_DYNAMIC_SLICE && op->operand[0] == read->parameter[1];
        assert_int_equal(blocks, cases[c].turns);
        for (int p = 0; p < g->n_parameters; p++) {
            const cvn_type *type = &g->parameter[p]->type;
            in[p] = ragged_input((uint64_t)p, type, p && type->rank == 4 ? end : NULL);
        }
        assert_int_equal(interp_run_one(g, (const void *const *)in, want, &err), CVN_OK);
        assert_int_equal(interp_run_one(read, (const void *const *)in, got, &err), CVN_OK);
        for (int i = 0; i < RAGGED_ROWS * RAGGED_QUERIES * RAGGED_HEADS * 8; i++)
            if (!is_close(CVN_F32, ((float *)got[0])[i], ((float *)want[0])[i], 4e-6))
                fail_msg("case %zu: element %d is %.9g, expected %.9g", c, i,
                         (double)((float *)got[0])[i], (double)((float *)want[0])[i]);
        free(want[0]);
        free(got[0]);
        for (int p = 0; p < g->n_parameters; p++)
            free(in[p]);
        cvn_graph_free(read);
        cvn_graph_free(g);
        strbuf_free(&module);
    }
}

/* What comes a second time waits for what was computed last before it: XLA would merge it with the first, or begin early. So it
   waits for gradients that are there since (%d, %e): XLA would keep what they are computed from. */
static void what_is_computed_again_waits(void **state)
{
    (void)state;
    cvn_err err = {0};
    char *text = print_module("graph @again {\n"
                              "  %w: f32[2] = parameter {name=\"w\"}\n"
                              "  %x: f32[4] = parameter {name=\"x\"}\n"
                              "  %g: f32[4] = all_gather %w {axis=0, group_size=2, groups=[0,1]}\n"
                              "  %y: f32[4] = multiply %x, %g\n"
                              "  %z: f32[4] = tanh %y\n"
                              "  %k: f32[4] = optimization_barrier %x\n"
                              "  %h: f32[4] = all_gather %w {axis=0, group_size=2, groups=[0,1]}\n"
                              "  %u: f32[4] = multiply %k, %h\n"
                              "  %v: f32[4] = multiply %u, %z\n"
                              "  %d: f32[2] = reduce_scatter %v {axis=0, kind=sum, group_size=2, "
                              "groups=[0,1]}\n"
                              "  %e: f32[4] = multiply %v, %z\n"
                              "  %n: f32[4] = negate %v\n"
                              "  %l: f32[4] = optimization_barrier %x\n"
                              "  %m: f32[4] = add %l, %n\n"
                              "  return %m, %d, %e\n"
                              "}\n",
                              0, &err);
    assert_int_equal(err.code, CVN_OK);
    assert_non_null(strstr(text, "%g = \"stablehlo.all_gather\"(%w)"));
    assert_non_null(strstr(text, "%$0:2 = \"stablehlo.optimization_barrier\"(%x, %z)"));
    assert_non_null(strstr(text, "%$1:2 = \"stablehlo.optimization_barrier\"(%w, %z)"));
    assert_non_null(strstr(text, "%h = \"stablehlo.all_gather\"(%$1#0)"));
    assert_non_null(strstr(text, "%u = \"stablehlo.multiply\"(%$0#0, %h)"));
    assert_non_null(strstr(text, "%$2:4 = \"stablehlo.optimization_barrier\"(%x, %d, %e, %n)"));
    free(text);
}

/* Zeros beside a single row change no bit of its product, in batches, too; products of more rows stay. */
static void a_single_row_gets_company(void **state)
{
    static const char text[] =
        "graph @one {\n"
        "  %x: f32[1,1,4] = parameter {name=\"x\"}\n"
        "  %w: f32[4,3] = parameter {name=\"w\"}\n"
        "  %y: f32[1,1,3] = dot_general %x, %w {lhs_contract=[2], rhs_contract=[0]}\n"
        "  %z: f32[3,1,1] = dot_general %w, %x {lhs_contract=[0], rhs_contract=[2]}\n"
        "  %b: f32[4,1,3] = reshape %w\n"
        "  %c: f32[4,1,1] = dot_general %b, %b {lhs_batch=[0], rhs_batch=[0], lhs_contract=[2], "
        "rhs_contract=[2]}\n"
        "  return %y, %z, %c\n"
        "}\n";
    const float x[4] = {1.25f, -3, 0.1f, 7}, w[12] = {0.3f, 1, 2, 3, -4, 5, 6, 7.7f, 8, 9, 10, -11};
    const void *in[] = {x, w};
    void *want[3], *got[3];
    cvn_err err = {0};
    (void)state;
    cvn_graph *g = graph_parse(text, sizeof text - 1, "test", &err);
    assert_non_null(g);
    assert_int_equal(interp_run_one(g, in, want, &err), CVN_OK);
    hlo_more_rows(g, 0);
    assert_int_equal(g->n_ops, 6);
    hlo_more_rows(g, 2);
    assert_int_equal(graph_verify(g, &err), CVN_OK);
    assert_int_equal(g->n_ops, 12); /* a zero, a pad and a slice more for two of the products */
    assert_int_equal(interp_run_one(g, in, got, &err), CVN_OK);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(got[i], want[i], 3 * sizeof(float));
        free(got[i]);
        free(want[i]);
    }
    cvn_graph_free(g);
}

/* Rows with a scale each are multiplied as they are, and their sums scaled: the same but for rounding. Rows with two scales, and sums
   over rows, stay. */
static void rows_are_scaled_when_they_are_summed(void **state)
{
    static const char text[] =
        "graph @scaled {\n"
        "  %x: f32[2,4] = parameter {name=\"x\"}\n"
        "  %q: i8[3,2,4] = parameter {name=\"q\"}\n"
        "  %s: f32[3,2,1] = parameter {name=\"s\"}\n"
        "  %t: f32[3,2,2] = parameter {name=\"t\"}\n"
        "  %one: f32[3,2,4] = dequantize %q, %s\n"
        "  %two: f32[3,2,4] = dequantize %q, %t\n"
        "  %a: f32[2,3,2] = dot_general %x, %one {lhs_contract=[1], rhs_contract=[2]}\n"
        "  %b: f32[2,3,2] = dot_general %x, %two {lhs_contract=[1], rhs_contract=[2]}\n"
        "  %c: f32[4,3,4] = dot_general %x, %one {lhs_contract=[0], rhs_contract=[1]}\n"
        "  return %a, %b, %c\n"
        "}\n";
    static const int64_t sizes[] = {12, 12, 48};
    float x[8], s[6], t[12];
    int8_t q[24];
    for (int i = 0; i < 24; i++) {
        q[i] = (int8_t)(i * 37 % 251 - 125);
        x[i % 8] = (float)(i % 5) - 1.7f;
        s[i % 6] = 0.01f * (float)(i % 6 + 1);
        t[i % 12] = 0.02f * (float)(i % 7 + 1);
    }
    const void *in[] = {x, q, s, t};
    void *want[3], *got[3];
    int of_codes = 0;
    cvn_err err = {0};
    (void)state;
    cvn_graph *g = graph_parse(text, sizeof text - 1, "test", &err);
    if (!g)
        fail_msg("%s", err.message);
    assert_int_equal(interp_run_one(g, in, want, &err), CVN_OK);
    hlo_scale_products(g);
    assert_int_equal(graph_verify(g, &err), CVN_OK);
    for (const Op *op = g->first; op; op = op->next)
        of_codes += op->kind == OP_DOT_GENERAL && op->operand[1]->def->kind == OP_CONVERT;
    assert_int_equal(of_codes, 1);
    assert_int_equal(interp_run_one(g, in, got, &err), CVN_OK);
    for (int i = 0; i < 3; i++) {
        for (int64_t k = 0; k < sizes[i]; k++)
            assert_true(fabsf(((float *)got[i])[k] - ((float *)want[i])[k]) < 1e-4f);
        free(got[i]);
        free(want[i]);
    }
    cvn_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_scaled_when_they_are_summed),
        cmocka_unit_test(xla_computes_what_the_interpreter_does),
        cmocka_unit_test(a_module_that_was_printed_means_the_same_when_read),
        cmocka_unit_test(every_operation_is_compared),
        cmocka_unit_test(a_module_is_printed_so),
        cmocka_unit_test(devices_that_are_not_there_are_refused),
        cmocka_unit_test(attention_never_holds_all_scores),
        cmocka_unit_test(attention_over_a_long_cache_reads_what_is_filled),
        cmocka_unit_test(what_is_computed_again_waits),
        cmocka_unit_test(a_single_row_gets_company),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
