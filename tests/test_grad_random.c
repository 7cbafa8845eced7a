/*
 * Gradients of random graphs in f64 against central differences, at hundreds of seeds: rules in chains,
 * values used again and again, odd shapes.
 *
 * A random graph may jump, or be infinite, near its random inputs. Differences at three step sizes tell: a
 * seed where they disagree (a jump, or rounding that drowns the slope), or where something is not finite, says nothing and is not counted; enough
 * must be left.
 */
#include "grad_check.h"
#include "graph/simplify.h"
#include "graph/text/text.h"

/* Not remainder: by small divisors its jumps lie closer than any step, and differences do not tell. */
static const OpKind kinds[] = {
    OP_NEGATE,
    OP_ABS,
    OP_SIGN,
    OP_EXPONENTIAL,
    OP_EXPONENTIAL_MINUS_ONE,
    OP_LOG,
    OP_LOG_PLUS_ONE,
    OP_SQRT,
    OP_RSQRT,
    OP_TANH,
    OP_LOGISTIC,
    OP_SINE,
    OP_COSINE,
    OP_FLOOR,
    OP_ADD,
    OP_SUBTRACT,
    OP_MULTIPLY,
    OP_DIVIDE,
    OP_MAXIMUM,
    OP_MINIMUM,
    OP_POWER,
    OP_COMPARE,
    OP_SELECT,
    OP_CLAMP,
    OP_BROADCAST_IN_DIM,
    OP_RESHAPE,
    OP_TRANSPOSE,
    OP_SLICE,
    OP_CONCATENATE,
    OP_PAD,
    OP_REVERSE,
    OP_DYNAMIC_SLICE,
    OP_DYNAMIC_UPDATE_SLICE,
    OP_GATHER,
    OP_SCATTER,
    OP_SORT,
    OP_REDUCE,
    OP_CUMSUM,
    OP_CUMPROD,
    OP_DOT_GENERAL,
    OP_ALL_REDUCE,
    OP_ALL_GATHER,
    OP_REDUCE_SCATTER,
    OP_ALL_TO_ALL,
    OP_COLLECTIVE_PERMUTE,
    OP_OPTIMIZATION_BARRIER,
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Draws operations, of which those with results in f32 and below are not used further: differences
   would only see their rounding. The loss is a sum over the last few values. */
static cvn_value *random_loss(Trial *t, RandomGraph *r, int n_ops)
{
    for (int i = 0; i < 3; i++)
        random_note(r, trial_real(t, random_type(r, CVN_F64), -1.5, 1.5));
    for (int i = 0; i < n_ops && !t->g->err.code; i++) {
        OpKind kind = kinds[random_below(r, N_KINDS)];
        cvn_value *v = random_maker(kind)(r, kind);
        bool narrow = v && random_is_float(v->type.dtype) && v->type.dtype != CVN_F64;
        if (v && !narrow && !(v->def->n_results > 1 && v->def->result[1]->type.dtype == CVN_F32))
            random_note(r, v);
    }
    cvn_value *loss = cvn_splat(t->g, cvn_scalar(CVN_F64), 0);
    for (int i = r->n - 1, n = 0; i >= 0 && n < 5; i--) {
        if (r->value[i]->type.dtype != CVN_F64)
            continue;
        loss = cvn_add(t->g, loss, trial_weigh(t, cvn_sine(t->g, r->value[i])));
        n++;
    }
    return loss;
}

static double slope_of(const Trial *t, double step, double *const *u)
{
    void *out[1 + TRIAL_PARAMETERS];
    double more = trial_run(t, step, u, out);
    trial_free_outputs(t, out);
    double less = trial_run(t, -step, u, out);
    trial_free_outputs(t, out);
    return (more - less) / (2 * step);
}

/* Compares along one random direction. False when the differences say nothing. */
static bool compare_direction(Trial *t, void *const *outputs, int seed)
{
    double *u[TRIAL_PARAMETERS], slope = 0, size = 0;
    for (int w = 0; w < t->n_wrt; w++) {
        int64_t n = cvn_type_elements(&t->wrt[w]->type);
        u[w] = calloc((size_t)n + 1, sizeof **u);
        for (int64_t i = 0; i < n; i++)
            u[w][i] = trial_number(t, -1, 1);
        slope += trial_dot(&t->wrt[w]->type, outputs[1 + w], u[w], &size);
    }
    double middle = slope_of(t, 1e-5, u), unsure = 0;
    static const double steps[] = {1e-4, 1e-6};
    for (int i = 0; i < 2; i++)
        unsure += fabs(slope_of(t, steps[i], u) - middle);
    for (int w = 0; w < t->n_wrt; w++)
        free(u[w]);
    if (!isfinite(middle) || !isfinite(unsure) || !isfinite(slope) || size > 1e6 ||
        unsure > 1e-4 * size + 1e-6)
        return false;
    if (fabs(middle - slope) > unsure + 1e-6 * size + 1e-7)
        fail_msg("seed %d: the slope is %.10g, but the gradient says %.10g", seed, middle, slope);
    return true;
}

static bool check_seed(int seed)
{
    Trial t = trial_new("random", seed);
    cvn_err err = {0};
    RandomGraph *r = calloc(1, sizeof *r);
    assert_non_null(r);
    r->g = t.g;
    r->options = (RandomOptions){.most_elements = 60, .collectives = true};
    r->state = (uint64_t)seed * UINT64_C(0x9E3779B97F4A7C15) + 5;
    cvn_value *loss = random_loss(&t, r, 4 + seed % 30), *gradient[TRIAL_PARAMETERS];
    free(r);
    if (graph_gradient(t.g, loss, t.n_wrt, t.wrt, gradient, &err))
        fail_msg("seed %d: %s", seed, err.message);
    cvn_output(t.g, loss);
    for (int i = 0; i < t.n_wrt; i++)
        cvn_output(t.g, gradient[i]);
    if (graph_verify(t.g, &err) || graph_simplify(t.g, NULL, &err))
        fail_msg("seed %d: %s", seed, err.message);
    void *outputs[1 + TRIAL_PARAMETERS];
    bool told = false;
    trial_run(&t, 0, NULL, outputs);
    for (int i = 0; i < 2; i++)
        told = compare_direction(&t, outputs, seed) || told;
    trial_free_outputs(&t, outputs);
    trial_free(&t);
    return told;
}

static void random_graphs_have_the_slopes_of_their_gradients(void **state)
{
    enum { SEEDS = SANITIZED ? 150 : 1500 };
    int told = 0;
    for (int seed = 0; seed < SEEDS; seed++)
        told += check_seed(seed);
    if (told < SEEDS / 3)
        fail_msg("only %d of %d seeds could be compared", told, SEEDS);
    print_message("%d of %d seeds were compared\n", told, SEEDS);
}

/* The same graph and the same order of addition, every time. */
static void gradients_are_built_the_same_way_every_time(void **state)
{
    StrBuf text[2] = {{0}, {0}};
    for (int i = 0; i < 2; i++) {
        cvn_graph *g = cvn_graph_new("same", NULL);
        cvn_err err = {0};
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, 3)), *dx;
        cvn_value *y = cvn_multiply(g, cvn_tanh(g, x), cvn_add(g, x, cvn_sine(g, x)));
        cvn_value *loss = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, y, x), 1, (const int[]){0});
        assert_int_equal(graph_gradient(g, loss, 1, &x, &dx, &err), 0);
        cvn_output(g, dx);
        graph_print(&text[i], g);
        cvn_graph_free(g);
    }
    assert_string_equal(text[0].text, text[1].text);
    strbuf_free(&text[0]);
    strbuf_free(&text[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs_have_the_slopes_of_their_gradients),
        cmocka_unit_test(gradients_are_built_the_same_way_every_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
