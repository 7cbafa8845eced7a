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
        cvn_value *start = cvn_splat(t.g, CVN_TYPE(CVN_I32, 2), 0);
        cvn_value *length = cvn_splat(t.g, CVN_TYPE(CVN_I32, 2), 5);
        const cvn_attention_spec spec = {
            .dropout = 0.3,
            .key = d.key,
            .site = dropout_site(3, 2),
            .any_key = seed == 2,
            .mask =
                seed ? trial_real(&t, CVN_TYPE(CVN_F64, seed == 1 ? 2 : 1, 4, 5, 5), -1, 1) : NULL,
            .scale = 0.7,
            .first = first,
            .window = seed % 2 ? 2 : 0,
            .cap = seed % 2,
            .sinks = seed > 1 ? trial_real(&t, CVN_TYPE(CVN_F64, 4), -1, 1) : NULL};
        grad_check_one(&t, cvn_attention(t.g, q, k, v, start, length, &spec));
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

/* Attention of f32, by the composite or, with a mask or a rate, in plain operations; a mask of bools has an operand of its own. */
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
    spec.dropout = rate;
    spec.key = d.key;
    spec.site = 5;
    if (!composite) /* which hides nothing */
        spec.mask = cvn_splat(g, CVN_TYPE(CVN_BOOL, 1, HEADS, 1, S), 1);
    return run(g, cvn_attention(g, q, k, v, start, length, &spec), inputs);
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

/* Masks against loops in C: of bools and of floats, of all shapes, over queries that see nothing, too. */
static void masks_say_which_keys_are_seen(void **state)
{
    enum { CONTEXT = 7 };
    float q[Q], k[B * KV * CONTEXT * D], v[B * KV * CONTEXT * D], more[B * HEADS * S * CONTEXT];
    uint8_t seen[B * HEADS * S * CONTEXT];
    const int32_t start[B] = {0, 1}, length[B] = {S, 4};
    uint64_t random = 9;
    for (int i = 0; i < Q; i++)
        q[i] = (float)draw(&random, 200) / 50 - 2;
    for (int i = 0; i < B * KV * CONTEXT * D; i++) {
        k[i] = (float)draw(&random, 200) / 50 - 2;
        v[i] = (float)draw(&random, 200) / 50 - 2;
    }
    for (int i = 0; i < B * HEADS * S * CONTEXT; i++) {
        more[i] = (float)draw(&random, 200) / 50 - 2;
        seen[i] = draw(&random, 2) != 0 && i / CONTEXT % S != 2; /* query 2 sees nothing */
        if (i / CONTEXT % S == 1 || i % 11 == 0)
            more[i] = -INFINITY;
    }
    for (int c = 0; c < 32; c++) {
        const int64_t dims[4] = {c & 1 ? B : 1, c & 2 ? HEADS : 1, c & 4 ? S : 1, CONTEXT};
        const bool floats = c & 8, any = c & 16;
        cvn_graph *g = cvn_graph_new("mask", NULL);
        cvn_value *in[6] = {
            cvn_parameter(g, "q", CVN_TYPE(CVN_F32, B, S, HEADS, D)),
            cvn_parameter(g, "k", CVN_TYPE(CVN_F32, B, KV, CONTEXT, D)),
            cvn_parameter(g, "v", CVN_TYPE(CVN_F32, B, KV, CONTEXT, D)),
            cvn_parameter(g, "start", CVN_TYPE(CVN_I32, B)),
            cvn_parameter(g, "length", CVN_TYPE(CVN_I32, B)),
            cvn_parameter(g, "mask", cvn_type_make(floats ? CVN_F32 : CVN_BOOL, 4, dims)),
        };
        const cvn_attention_spec spec = {.scale = 0.5, .mask = in[5], .any_key = any};
        const void *inputs[] = {q, k, v, start, length, floats ? (const void *)more : seen};
        float *got = run(g, cvn_attention(g, in[0], in[1], in[2], in[3], in[4], &spec), inputs);
        for (int i = 0; i < Q / D; i++) {
            const int h = i % HEADS, s = i / HEADS % S, b = i / HEADS / S;
            double weight[CONTEXT], sum = 0, y[D] = {0};
            for (int t = 0; t < CONTEXT; t++) {
                const int64_t at =
                    (((b % dims[0]) * dims[1] + h % dims[1]) * dims[2] + s % dims[2]) * CONTEXT + t;
                const float *key = k + ((b * KV + h / (HEADS / KV)) * CONTEXT + t) * D;
                double score = floats ? (double)more[at] : 0;
                for (int d = 0; d < D; d++)
                    score += 0.5 * (double)q[i * D + d] * (double)key[d];
                const bool sees =
                    (any || t <= start[b] + s) && (floats || seen[at]) && s < length[b];
                weight[t] = sees ? exp(score) : 0;
                sum += weight[t];
            }
            for (int t = 0; t < CONTEXT; t++)
                for (int d = 0; d < D && sum > 0; d++)
                    y[d] += weight[t] / sum *
                            (double)v[((b * KV + h / (HEADS / KV)) * CONTEXT + t) * D + d];
            for (int d = 0; d < D; d++)
                if (!(fabs(y[d] - (double)got[i * D + d]) < 1e-5))
                    fail_msg("case %d, row %d, query %d, head %d: %g, expected %g", c, b, s, h,
                             (double)got[i * D + d], y[d]);
        }
        free(got);
    }
}

static void what_attention_does_not_take_is_refused(void **state)
{
    static const struct {
        int64_t mask[4];
        double dropout;
        bool slots;
        const char *says;
    } cases[] = {
        {{1, 1, 5, 5}, 0, false, "must be bools or floats [batch, heads, seq, context]"},
        {{1, 1, 1, 6}, 1, false, "must be from 0 to below 1"},
        {{1, 1, 1, 6}, 0.5, false, "takes a key, u32 [batch, 2]"},
        {{1, 1, 1, 6}, 0, true, "no slots"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_err err = {0};
        cvn_graph *g = cvn_graph_new("refused", NULL);
        cvn_value *q = cvn_parameter(g, "q", CVN_TYPE(CVN_F32, B, S, HEADS, D));
        cvn_value *k = cvn_parameter(g, "k", CVN_TYPE(CVN_F32, B, KV, S, D));
        cvn_value *row = cvn_parameter(g, "row", CVN_TYPE(CVN_I32, B));
        const cvn_attention_spec spec = {
            .scale = 1,
            .mask = cvn_parameter(g, "mask", cvn_type_make(CVN_BOOL, 4, cases[i].mask)),
            .dropout = cases[i].dropout,
            .slot = cases[i].slots ? row : NULL};
        cvn_output(g, cvn_attention(g, q, k, k, row, row, &spec));
        assert_true(cvn_graph_check(g, &err) != 0);
        if (!strstr(err.message, cases[i].says))
            fail_msg("case %d: %s", (int)i, err.message);
        cvn_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_slopes),
        cmocka_unit_test(as_many_are_dropped_as_the_rate_says),
        cmocka_unit_test(attention_without_dropping_is_attention),
        cmocka_unit_test(masks_say_which_keys_are_seen),
        cmocka_unit_test(what_attention_does_not_take_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
