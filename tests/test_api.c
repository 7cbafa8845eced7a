/* Graphs from C: compiled, run, differentiated, cut and printed by the public interface. */
#include "caravan/caravan.h"
#include "unit.h"

enum { ROWS = 5, COLUMNS = 7 };

/* w [rows, columns], x [columns], rate [] -> w - rate * gradient of sum(exp(-w x)) into w, and that sum. */
static cvn_graph *build(bool marked)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("step", &err);
    cvn_value *w = cvn_parameter(g, "w", CVN_TYPE(CVN_F32, ROWS, COLUMNS)), *dw;
    cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, COLUMNS));
    cvn_value *rate = cvn_parameter(g, "rate", cvn_scalar(CVN_F32));
    cvn_value *y = cvn_exponential(g, cvn_negate(g, cvn_einsum(g, "rc,c->r", w, x)));
    cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, y, 1, (int[]){0});
    if (marked)
        cvn_mark_sharding(g, w, &(cvn_spec){.rank = 2, .dim = {{1, {"data"}}, {1, {"model"}}}});
    assert_int_equal(cvn_gradient(g, loss, 1, &w, &dw, &err), 0);
    rate = cvn_broadcast_to(g, rate, cvn_value_type(w));
    cvn_output_into(g, cvn_subtract(g, w, cvn_multiply(g, rate, dw)), w);
    cvn_output(g, loss);
    assert_int_equal(cvn_graph_check(g, &err), 0);
    return g;
}

static float start(int64_t i)
{
    return (float)(i * 5 % 11) / 20 - 0.2F;
}

static void close_to(const float *a, const float *b, int n)
{
    for (int i = 0; i < n; i++)
        assert_float_equal(a[i], b[i], 1e-6);
}

/* Steps by arrays of the host: weights are written back, split or not, even or not. */
static void train(const char *spec, float *w, float *losses, int steps)
{
    cvn_err err = {0};
    float x[COLUMNS], rate = 0.1F;
    cvn_graph *g = build(spec[0]);
    cvn_mesh *mesh = cvn_mesh_new(spec, &(cvn_mesh_options){.threads = 1, .backend = "cpu"}, &err);
    cvn_program *program = cvn_compile(mesh, g, &err);
    cvn_graph_free(g);
    assert_non_null(program);
    assert_int_equal(cvn_mesh_threads(mesh), 1);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        w[i] = start(i);
    for (int i = 0; i < COLUMNS; i++)
        x[i] = start(3 * i) + 0.1F;
    for (int i = 0; i < steps; i++) {
        float copy[ROWS * COLUMNS];
        void *inputs[] = {w, x, &rate}, *outputs[] = {copy, &losses[i]};
        assert_int_equal(cvn_run(program, inputs, outputs, &err), 0);
        assert_memory_equal(copy, w, sizeof copy);
    }
    cvn_program_free(program);
    cvn_mesh_free(mesh);
}

static void a_loop_runs_again_on_what_was_written_back(void **state)
{
    static const char *const meshes[] = {"data=2,model=2", "data=3,model=2", "data=1,model=4"};
    float w[2][ROWS * COLUMNS], losses[2][4];
    train("", w[0], losses[0], 4);
    for (int i = 1; i < 4; i++)
        assert_true(losses[0][i] < losses[0][i - 1]);
    for (size_t m = 0; m < sizeof meshes / sizeof *meshes; m++) {
        train(meshes[m], w[1], losses[1], 4);
        close_to(w[0], w[1], ROWS * COLUMNS);
        close_to(losses[0], losses[1], 4);
    }
}

static int fill(void *context, const int64_t *first, const int64_t *count, void *out, cvn_err *err)
{
    float *to = out;
    (void)context;
    (void)err;
    for (int64_t r = first[0]; r < first[0] + count[0]; r++)
        for (int64_t c = first[1]; c < first[1] + count[1]; c++)
            *to++ = start(r * COLUMNS + c);
    return 0;
}

/* Two programs have the same weights, of which the second asks for another place; a scalar stays, too. */
static void arrays_stay_on_the_devices(void **state)
{
    cvn_err err = {0};
    float w[2][ROWS * COLUMNS], x[COLUMNS], losses[2][4], rate = 0.1F, sum, expected = 0;
    train("", w[0], losses[0], 4);
    for (int i = 0; i < COLUMNS; i++)
        x[i] = start(3 * i) + 0.1F;
    cvn_mesh *mesh = cvn_mesh_new("data=2,model=2", NULL, &err);
    cvn_array *weights = cvn_array_new(mesh, &err), *of_rate = cvn_array_new(mesh, &err);
    assert_int_equal(cvn_array_write(weights, w[0], NULL), CVN_EINVAL); /* of unknown type */
    cvn_graph *g = build(true);
    cvn_program *step = cvn_compile_arrays(mesh, g, (cvn_array *[]){weights, NULL, of_rate}, &err);
    assert_non_null(step);
    assert_int_equal(cvn_array_read(weights, w[1], &err), 0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(w[1][i] == 0);
    assert_int_equal(cvn_array_fill(weights, fill, NULL, &err), 0);
    assert_int_equal(cvn_array_write(of_rate, &rate, &err), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(
            cvn_run(step, (void *[]){NULL, x, NULL}, (void *[]){NULL, &losses[1][i]}, &err), 0);
    close_to(losses[0], losses[1], 4);
    cvn_graph *h = cvn_graph_new("sum", &err);
    cvn_value *p = cvn_parameter(h, "p", CVN_TYPE(CVN_F32, ROWS, COLUMNS));
    cvn_mark_sharding(h, p, &(cvn_spec){.rank = 2, .dim = {[1] = {1, {"data"}}}});
    cvn_output(h, cvn_reduce_dims(h, CVN_SUM, p, 2, (int[]){0, 1}));
    cvn_program *adds = cvn_compile_arrays(mesh, h, &weights, &err);
    assert_int_equal(cvn_run(adds, NULL, (void *[]){&sum}, &err), 0);
    assert_int_equal(cvn_array_read(weights, w[1], &err), 0);
    close_to(w[0], w[1], ROWS * COLUMNS);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        expected += w[1][i];
    assert_float_equal(sum, expected, 1e-5);
    assert_int_equal(err.code, 0);
    cvn_program_free(adds);
    cvn_program_free(step);
    cvn_array_free(weights);
    cvn_array_free(of_rate);
    cvn_graph_free(g);
    cvn_graph_free(h);
    cvn_mesh_free(mesh);
}

/* An array that lies in parts, given as a result as it is; and what is computed into it, given as a result of its own. */
static void results_are_whole_where_arrays_are_not(void **state)
{
    cvn_err err = {0};
    float w[3][ROWS * COLUMNS], twice[2][ROWS * COLUMNS], x[COLUMNS] = {0}, rate = 0, loss;
    cvn_mesh *mesh = cvn_mesh_new("data=2,model=2", NULL, &err);
    cvn_array *weights = cvn_array_new(mesh, &err);
    cvn_graph *g = build(true), *h = cvn_graph_new("same", &err), *k = cvn_graph_new("twice", &err);
    cvn_program *step = cvn_compile_arrays(mesh, g, (cvn_array *[]){weights, NULL, NULL}, &err);
    cvn_value *p = cvn_parameter(h, "p", CVN_TYPE(CVN_F32, ROWS, COLUMNS));
    cvn_output(h, p);
    cvn_output(h, cvn_add(h, p, p));
    cvn_program *same = cvn_compile_arrays(mesh, h, &weights, &err);
    if (!same)
        fail_msg("%s", err.message);
    p = cvn_parameter(k, "p", CVN_TYPE(CVN_F32, ROWS, COLUMNS));
    cvn_value *sum = cvn_add(k, p, p);
    cvn_output_into(k, sum, p);
    cvn_output(k, sum);
    cvn_output(k, p);
    cvn_program *doubles = cvn_compile_arrays(mesh, k, &weights, &err);
    if (!doubles)
        fail_msg("%s", err.message);
    assert_int_equal(cvn_array_fill(weights, fill, NULL, &err), 0);
    assert_int_equal(cvn_run(step, (void *[]){NULL, x, &rate}, (void *[]){NULL, &loss}, &err), 0);
    assert_int_equal(cvn_run(same, NULL, (void *[]){w[0], twice[0]}, &err), 0);
    assert_int_equal(cvn_run(doubles, NULL, (void *[]){w[1], twice[1], w[2]}, &err), 0);
    for (int i = 0; i < ROWS * COLUMNS; i++)
        assert_true(w[0][i] == start(i) && twice[0][i] == 2 * start(i) && w[1][i] == 2 * start(i) &&
                    twice[1][i] == 2 * start(i) && w[2][i] == start(i));
    cvn_program_free(step);
    cvn_program_free(same);
    cvn_program_free(doubles);
    cvn_array_free(weights);
    cvn_graph_free(g);
    cvn_graph_free(h);
    cvn_graph_free(k);
    cvn_mesh_free(mesh);
}

static long resident_mib(void)
{
    long pages = 0, all;
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    assert_int_equal(fscanf(f, "%ld %ld", &all, &pages), 2);
    fclose(f);
    return pages / 256;
}

static void freed_arrays_give_their_memory_back(void **state)
{
    enum { MIB = 24, TIMES = 5 };
    cvn_err err = {0};
    float *data = calloc(MIB << 18, sizeof *data);
    cvn_mesh *mesh = cvn_mesh_new("", NULL, &err);
    cvn_graph *g = cvn_graph_new("sum", &err);
    cvn_value *p = cvn_parameter(g, "p", CVN_TYPE(CVN_F32, MIB << 18));
    cvn_output(g, cvn_reduce_dims(g, CVN_SUM, p, 1, (int[]){0}));
    assert_non_null(data);
    long before = resident_mib();
    for (int i = 0; i < TIMES; i++) {
        cvn_array *array = cvn_array_new(mesh, &err);
        cvn_program *program = cvn_compile_arrays(mesh, g, &array, &err);
        assert_int_equal(cvn_array_write(array, data, &err), 0);
        cvn_program_free(program);
        cvn_array_free(array);
    }
    assert_true(resident_mib() - before < 2 * MIB);
    free(data);
    cvn_graph_free(g);
    cvn_mesh_free(mesh);
}

static void graphs_are_printed_and_cut(void **state)
{
    cvn_err err = {0};
    cvn_graph *g = build(true);
    cvn_graph *local = cvn_partition(g, "data=2,model=2", &err);
    char *text = cvn_graph_print(g, &err), *cut = cvn_graph_print(local, &err);
    char *hlo = cvn_graph_stablehlo(local, &err);
    assert_non_null(strstr(text, "%w: f32[5,7]<data,model> = parameter {name=\"w\"}"));
    assert_null(strstr(text, "all_reduce"));
    assert_non_null(strstr(cut, "f32[3,4] = parameter {name=\"w\"}"));
    assert_non_null(strstr(cut, "all_reduce"));
    assert_non_null(strstr(hlo, "\"stablehlo.all_reduce\""));
    assert_null(cvn_partition(g, "data=2", NULL));
    free(hlo);
    free(cut);
    free(text);
    cvn_graph_free(local);
    cvn_graph_free(g);
}

#define expect_error(call, wanted, piece)                                                          \
    do {                                                                                           \
        cvn_err error_ = {0}, *e = &error_;                                                        \
        (void)(call);                                                                              \
        assert_int_equal(e->code, wanted);                                                         \
        if (!strstr(e->message, piece))                                                            \
            fail_msg("'%s' says nothing of '%s'", e->message, piece);                              \
    } while (0)

static int fail_silently(void *context, const int64_t *first, const int64_t *count, void *out,
                         cvn_err *err)
{
    (void)context, (void)first, (void)count, (void)out, (void)err;
    return CVN_EIO;
}

static void what_was_printed_is_read_again(void **state)
{
    cvn_err err = {0};
    cvn_graph *g = build(true);
    char *text = cvn_graph_print(g, &err);
    cvn_graph *again = cvn_graph_parse(text, strlen(text), "step.graph", &err);
    assert_non_null(again);
    char *copy = cvn_graph_print(again, &err);
    assert_string_equal(text, copy);
    assert_int_equal(cvn_graph_parameters(again), 3);
    assert_int_equal(cvn_graph_outputs(again), 2);
    assert_string_equal(cvn_graph_parameter_name(again, 2), "rate");
    for (int i = 0; i < 3; i++)
        assert_true(cvn_type_equal(cvn_value_type(cvn_graph_parameter(again, i)),
                                   cvn_value_type(cvn_graph_parameter(g, i))));
    assert_int_equal(cvn_value_type(cvn_graph_output(again, 0))->rank, 2);
    assert_int_equal(cvn_graph_output_into(again, 0), 0);
    assert_int_equal(cvn_graph_output_into(again, 1), -1);
    cvn_graph_free(again);
    cvn_graph_free(g);
    free(text);
    free(copy);
    assert_null(cvn_graph_parse("graph @f {\n  ?", 14, "bad.graph", &err));
    assert_non_null(strstr(err.message, "bad.graph:2"));
}

static void mistakes_are_named(void **state)
{
    cvn_err err = {0};
    cvn_graph *g = build(false), *marked = build(true), *wrong = cvn_graph_new("wrong", &err);
    cvn_mesh *mesh = cvn_mesh_new("model=2", NULL, &err), *other = cvn_mesh_new(NULL, NULL, &err);
    cvn_array *a = cvn_array_new(mesh, &err), *b = cvn_array_new(other, &err);
    cvn_program *program = cvn_compile_arrays(mesh, g, (cvn_array *[]){a, NULL, NULL}, &err);
    assert_int_equal(err.code, 0);
    expect_error(cvn_mesh_new("model=two", NULL, e), CVN_EINVAL, "model=two");
    expect_error(cvn_mesh_new("", &(cvn_mesh_options){.backend = "gpu9"}, e), CVN_EINVAL, "gpu9");
    expect_error(cvn_compile(mesh, marked, e), CVN_EINVAL, "data");
    expect_error(cvn_compile(NULL, g, e), CVN_EINVAL, "mesh");
    expect_error(cvn_compile_arrays(mesh, g, (cvn_array *[]){NULL, a, NULL}, e), CVN_ESHAPE,
                 "parameter 'x' is f32[7], and its array f32[5,7]");
    expect_error(cvn_compile_arrays(mesh, g, (cvn_array *[]){a, a, NULL}, e), CVN_EINVAL,
                 "'w' and 'x'");
    expect_error(cvn_compile_arrays(mesh, g, (cvn_array *[]){b, NULL, NULL}, e), CVN_EINVAL,
                 "another mesh");
    expect_error(cvn_run(program, NULL, NULL, e), CVN_EINVAL, "input 1, 'x'");
    expect_error(cvn_array_fill(a, fail_silently, NULL, e), CVN_EIO, "filled");
    expect_error(cvn_run(NULL, NULL, NULL, e), CVN_EINVAL, "no program");
    expect_error(cvn_array_read(b, NULL, e), CVN_EINVAL, "no program uses");
    cvn_output(wrong, cvn_add(wrong, cvn_parameter(wrong, "x", CVN_TYPE(CVN_F32, 2)),
                              cvn_parameter(wrong, "y", CVN_TYPE(CVN_F32, 3))));
    expect_error(cvn_compile(mesh, wrong, e), CVN_ESHAPE, "add");
    expect_error(cvn_graph_print(wrong, e), CVN_ESHAPE, "add");
    assert_null(cvn_compile(mesh, wrong, NULL));
    assert_null(cvn_graph_stablehlo(NULL, NULL));
    cvn_program_free(program);
    cvn_array_free(a);
    cvn_array_free(b);
    cvn_mesh_free(mesh);
    cvn_mesh_free(other);
    cvn_graph_free(g);
    cvn_graph_free(marked);
    cvn_graph_free(wrong);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_loop_runs_again_on_what_was_written_back),
        cmocka_unit_test(arrays_stay_on_the_devices),
        cmocka_unit_test(results_are_whole_where_arrays_are_not),
        cmocka_unit_test(freed_arrays_give_their_memory_back),
        cmocka_unit_test(graphs_are_printed_and_cut),
        cmocka_unit_test(what_was_printed_is_read_again),
        cmocka_unit_test(mistakes_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
