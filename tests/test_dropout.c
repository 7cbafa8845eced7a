/* Dropout as functions of a graph: what is dropped, how much, and the gradient. That training with it is the same on meshes
 * and in parts is held by test_train_mesh.c. */
#include "grad_check.h"
#include "model/dropout.h"

/* Keys of rows as constants: each row has its own. */
static ModelDropout keyed(cvn_graph *g, int64_t rows, double rate)
{
    uint32_t *words = calloc((size_t)rows, 2 * sizeof *words);
    for (int64_t i = 0; i < 2 * rows; i++)
        words[i] = (uint32_t)(7 + 2654435761U * (uint64_t)i);
    ModelDropout d = {.key = cvn_constant(g, CVN_TYPE(CVN_U32, rows, 2), words),
                      .attention = rate,
                      .hidden = rate};
    free(words);
    return d;
}

static void gradients_are_slopes(void **state)
{
    for (int seed = 0; seed < 4; seed++) {
        Trial t = trial_new("dropout", seed);
        ModelDropout d = keyed(t.g, 3, 0.4);
        cvn_value *x = trial_real(&t, CVN_TYPE(CVN_F64, 3, 4, 5), -1, 1);
        grad_check_one(&t, dropout(t.g, cvn_tanh(t.g, x), &d, d.hidden, dropout_site(0, 1)));

        t = trial_new("attention with dropout", seed);
        d = keyed(t.g, 2, 0.3);
        cvn_value *q = trial_real(&t, CVN_TYPE(CVN_F64, 2, 5, 4, 2), -2, 2);
        cvn_value *k = trial_real(&t, CVN_TYPE(CVN_F64, 2, 2, 5, 2), -2, 2);
        cvn_value *v = trial_real(&t, CVN_TYPE(CVN_F64, 2, 2, 5, 2), -2, 2);
        cvn_value *first = trial_whole(&t, CVN_TYPE(CVN_I32, 2, 5), 0, 0);
        const cvn_attention_spec spec = {
            .scale = 0.7,
            .first = first,
            .window = seed % 2 ? 2 : 0,
            .cap = seed % 2,
            .sinks = seed > 1 ? trial_real(&t, CVN_TYPE(CVN_F64, 4), -1, 1) : NULL};
        grad_check_one(&t, dropout_attention(t.g, q, k, v, &spec, &d, dropout_site(3, 2)));
    }
}

/* Runs a graph of one output of floats. */
static float *run(cvn_graph *g, cvn_value *out, const void *const *inputs)
{
    cvn_err err = {0};
    void *result;
    cvn_output(g, out);
    must(cvn_graph_check(g, &err), &err);
    must(interp_run_one(g, inputs, &result, &err), &err);
    cvn_graph_free(g);
    return result;
}

static float *dropped_ones(int64_t rows, int64_t n, double rate, int64_t site)
{
    cvn_graph *g = cvn_graph_new("ones", NULL);
    ModelDropout d = keyed(g, rows, rate);
    cvn_value *x = cvn_splat(g, CVN_TYPE(CVN_F32, rows, n / 8, 8), 1);
    return run(g, dropout(g, x, &d, rate, site), NULL);
}

/* Of 32,768 the part that is dropped is as far from the rate as chance has it, 4 standard deviations; of rows, of sites and
 * of neighbours none goes with another. */
static void as_many_are_dropped_as_the_rate_says(void **state)
{
    enum { ROWS = 8, N = 4096, ALL = ROWS * N };
    static const double rates[] = {0.01, 0.1, 0.5, 0.9};
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        double rate = rates[r], sigma = sqrt(rate * (1 - rate) / ALL);
        float *a = dropped_ones(ROWS, N, rate, dropout_site(0, DROPOUT_MLP_RESULT));
        float *b = dropped_ones(ROWS, N, rate, dropout_site(1, DROPOUT_MLP_RESULT));
        float *again = dropped_ones(ROWS, N, rate, dropout_site(0, DROPOUT_MLP_RESULT));
        int dropped = 0, sites = 0, rows = 0, neighbours = 0;
        for (int i = 0; i < ALL; i++) {
            assert_true(a[i] == 0 || fabsf(a[i] - (float)(1 / (1 - rate))) < 1e-6F * a[i]);
            dropped += a[i] == 0;
            sites += a[i] == 0 && b[i] == 0;
            rows += a[i] == 0 && a[(i + N) % ALL] == 0;
            neighbours += a[i] == 0 && a[(i + 1) % ALL] == 0;
        }
        double both = rate * rate, wide = 6 * sqrt(both * (1 - both) / ALL);
        assert_true(fabs((double)dropped / ALL - rate) < 4 * sigma);
        assert_true(fabs((double)sites / ALL - both) < wide);
        assert_true(fabs((double)rows / ALL - both) < wide);
        assert_true(fabs((double)neighbours / ALL - both) < wide);
        assert_memory_equal(a, again, ALL * sizeof *a);
        free(a);
        free(b);
        free(again);
    }
}

enum { B = 2, S = 6, HEADS = 4, KV = 2, D = 4, Q = B * S * HEADS * D, K = B * KV * S * D };

/* Attention of f32, by the composite or in plain operations with a rate. */
static float *attend(bool composite, double rate, cvn_attention_spec spec, bool sinks,
                     const void *const *inputs)
{
    cvn_graph *g = cvn_graph_new("attention", NULL);
    ModelDropout d = keyed(g, B, rate);
    cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, B, S, HEADS, D));
    cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(CVN_F32, B, KV, S, D));
    cvn_value *v = cvn_parameter(g, "v", CVN_TYPE(CVN_F32, B, KV, S, D));
    spec.first = cvn_parameter(g, "first", CVN_TYPE(CVN_I32, B, S));
    spec.sinks = sinks ? cvn_parameter(g, "sinks", CVN_TYPE(CVN_F32, HEADS)) : NULL;
    cvn_value *start = cvn_splat(g, CVN_TYPE(CVN_I32, B), 0);
    cvn_value *length = cvn_splat(g, CVN_TYPE(CVN_I32, B), S);
    return run(g,
               composite ? cvn_attention(g, q, k, v, start, length, &spec)
                         : dropout_attention(g, q, k, v, &spec, &d, 5),
               inputs);
}

static void attention_without_dropping_is_attention(void **state)
{
    float q[Q], k[K], v[K];
    int32_t first[B * S] = {0, 0, 0, 3, 3, 3, 0, 1, 1, 1, 4, 4};
    uint64_t random = 3;
    for (int i = 0; i < Q; i++)
        q[i] = (float)draw(&random, 200) / 50 - 2;
    for (int i = 0; i < K; i++) {
        k[i] = (float)draw(&random, 200) / 50 - 2;
        v[i] = (float)draw(&random, 200) / 50 - 2;
    }
    float sinks[HEADS];
    for (int i = 0; i < HEADS; i++)
        sinks[i] = (float)draw(&random, 200) / 50 - 2;
    const void *inputs[] = {q, k, v, first, sinks};
    const cvn_attention_spec specs[] = {{.scale = 0.5},
                                        {.scale = 0.5, .window = 2, .cap = 0.8},
                                        {.scale = 0.6, .chunk = 3},
                                        {.scale = 0.7, .window = 3, .chunk = 4, .cap = 1.5}};
    for (size_t n = 0; n < sizeof specs / sizeof *specs; n++) {
        float *want = attend(true, 0, specs[n], n >= 2, inputs);
        float *got = attend(false, 0, specs[n], n >= 2, inputs);
        for (int i = 0; i < Q; i++)
            assert_true(fabsf(want[i] - got[i]) < 2e-6F);
        free(got);
        got = attend(false, 0.5, specs[n], n >= 2, inputs);
        int other = 0;
        for (int i = 0; i < Q; i++)
            other += fabsf(got[i] - want[i]) > 1e-3F;
        assert_true(other > Q / 3);
        free(got);
        free(want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(as_many_are_dropped_as_the_rate_says),
        cmocka_unit_test(attention_without_dropping_is_attention),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
