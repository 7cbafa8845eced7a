/* Sampling: frequencies against probabilities, filters against a naive version, independence of the batch. */
#include "base/rng.h"
#include "graph/interp/interp.h"
#include "model/sample.h"
#include "unit.h"

#include <math.h>

enum { VOCAB = 37, ROWS = 4000 };

/* Settings of every row; the arrays are [rows]. */
typedef struct Draw {
    int64_t rows;
    float *logits; /* [rows, VOCAB] */
    int32_t *position, *top_k;
    float *temperature, *top_p, *min_p;
    uint32_t *key; /* [rows, 2] */
} Draw;

static Draw new_draw(int64_t rows, uint32_t seed)
{
    size_t n = (size_t)rows;
    Draw d = {rows,         calloc(n * VOCAB, 4), calloc(n, 4), calloc(n, 4),
              calloc(n, 4), calloc(n, 4),         calloc(n, 4), calloc(n, 8)};
    for (int64_t r = 0; r < rows; r++) {
        for (int v = 0; v < VOCAB; v++)
            d.logits[r * VOCAB + v] = (float)(3 * sin(v * 1.7 + 0.3));
        d.position[r] = (int32_t)r;
        d.temperature[r] = 1;
        d.top_p[r] = 1;
        d.key[2 * r] = seed;
    }
    return d;
}

static void free_draw(Draw *d)
{
    free(d->logits);
    free(d->position);
    free(d->top_k);
    free(d->temperature);
    free(d->top_p);
    free(d->min_p);
    free(d->key);
}

/* The tokens drawn, malloc'ed. */
static int32_t *draw(const Draw *d, SampleMode mode)
{
    cvn_err err = {0};
    cvn_graph *g = cvn_graph_new("sample", &err);
    assert_non_null(g);
    cvn_value *logits = cvn_parameter(g, "logits", CVN_TYPE(CVN_F32, d->rows, VOCAB));
    cvn_value *position = cvn_parameter(g, "position", CVN_TYPE(CVN_I32, d->rows));
    cvn_output(g, sample_tokens(g, mode, logits, position));
    must(cvn_graph_check(g, &err), &err);
    const void *input[] = {d->logits, d->position, d->temperature, d->key,
                           d->top_k,  d->top_p,    d->min_p};
    assert_int_equal(g->n_parameters, mode == SAMPLE_GREEDY ? 2 : 7);
    void *output[1];
    must(interp_run_one(g, input, output, &err), &err);
    cvn_graph_free(g);
    return output[0];
}

/* What temperature and filters leave: probabilities [VOCAB], by sorting. */
static void naive(const float *logits, double temperature, int top_k, double top_p, double min_p,
                  double *p)
{
    int order[VOCAB];
    double sum = 0, best = -INFINITY;
    for (int v = 0; v < VOCAB; v++) {
        int i = v;
        for (; i > 0 && logits[order[i - 1]] < logits[v]; i--)
            order[i] = order[i - 1];
        order[i] = v;
        best = fmax(best, (double)logits[v] / temperature);
    }
    int n = top_k > 0 && top_k < VOCAB ? top_k : VOCAB;
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[order[i]] / temperature - best);
    double before = 0, kept = 0;
    memset(p, 0, VOCAB * sizeof *p);
    for (int i = 0; i < n; i++) {
        double q = exp((double)logits[order[i]] / temperature - best);
        if (i > 0 && ((top_p < 1 && before >= top_p * sum) || q < min_p))
            break;
        p[order[i]] = q;
        kept += q;
        before += q;
    }
    for (int v = 0; v < VOCAB; v++)
        p[v] /= kept;
}

static void frequencies_follow_the_filtered_probabilities(void **state)
{
    static const struct {
        double temperature;
        int top_k;
        double top_p, min_p;
    } cases[] = {{1, 0, 1, 0},      {0.5, 0, 1, 0},   {1, 5, 1, 0},      {1, 0, 0.6, 0},
                 {1, 0, 1, 0.3},    {2, 10, 0.8, 0},  {1, 7, 0.9, 0.05}, {1, 1, 1, 0},
                 {1, 0, 0.0001, 0}, {0.7, 100, 1, 0}, {1, 0, 1, 1}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        Draw d = new_draw(ROWS, 77 + (uint32_t)c);
        for (int64_t r = 0; r < ROWS; r++) {
            d.temperature[r] = (float)cases[c].temperature;
            d.top_k[r] = cases[c].top_k;
            d.top_p[r] = (float)cases[c].top_p;
            d.min_p[r] = (float)cases[c].min_p;
        }
        int32_t *token = draw(&d, SAMPLE_GENERAL);
        double p[VOCAB], count[VOCAB] = {0}, chi2 = 0;
        naive(d.logits, cases[c].temperature, cases[c].top_k, cases[c].top_p, cases[c].min_p, p);
        for (int64_t r = 0; r < ROWS; r++)
            count[token[r]]++;
        int cells = 0;
        for (int v = 0; v < VOCAB; v++) {
            if (p[v] == 0 && count[v] > 0)
                fail_msg("case %zu: token %d was filtered and drawn", c, v);
            if (p[v] * ROWS < 5)
                continue;
            cells++;
            chi2 += pow(count[v] - p[v] * ROWS, 2) / (p[v] * ROWS);
        }
        /* Mean cells - 1, variance 2 (cells - 1): six deviations are out of reach for a right sampler. */
        if (chi2 > cells + 6 * sqrt(2.0 * cells))
            fail_msg("case %zu: chi-square %g over %d cells", c, chi2, cells);
        free(token);
        free_draw(&d);
    }
}

static void filters_that_are_off_change_no_draw(void **state)
{
    Draw d = new_draw(300, 5);
    int32_t *a = draw(&d, SAMPLE_GENERAL);
    for (int r = 0; r < 300; r++) { /* which let all pass, too */
        d.top_k[r] = VOCAB;
        d.min_p[r] = 1e-30f;
    }
    int32_t *b = draw(&d, SAMPLE_GENERAL);
    assert_memory_equal(a, b, 300 * sizeof *a);
    free(a);
    free(b);
    free_draw(&d);
}

static void zero_temperature_is_greedy_in_either_mode(void **state)
{
    Draw d = new_draw(20, 5);
    memset(d.temperature, 0, 20 * sizeof *d.temperature);
    int32_t *a = draw(&d, SAMPLE_GREEDY), *b = draw(&d, SAMPLE_GENERAL);
    assert_memory_equal(a, b, 20 * sizeof *a);
    free(a);
    free(b);
    free_draw(&d);
}

static void a_row_draws_the_same_whatever_is_beside_it(void **state)
{
    Draw many = new_draw(50, 1), one = new_draw(1, 1);
    for (int r = 0; r < 50; r++)
        many.key[2 * r + 1] = (uint32_t)r;
    int32_t *all = draw(&many, SAMPLE_GENERAL);
    for (int r = 0; r < 50; r += 7) {
        one.position[0] = many.position[r];
        one.key[1] = many.key[2 * r + 1];
        int32_t *alone = draw(&one, SAMPLE_GENERAL);
        assert_int_equal(alone[0], all[r]);
        free(alone);
    }
    free(all);
    free_draw(&many);
    free_draw(&one);
}

/* The largest of random bits: their noise is the largest there is, and must still be finite. */
static void no_noise_makes_an_unlikely_token_certain(void **state)
{
    Draw d = new_draw(1, 3);
    int token = -1;
    for (uint32_t position = 0; token < 0; position++)
        for (uint32_t v = 0; v < VOCAB && token < 0; v++) {
            uint32_t key[2] = {3, 0}, counter[2] = {v, position}, bits[2];
            rng_threefry2x32(key, counter, bits);
            if (bits[0] >> 8 == 0xffffff) {
                token = (int)v;
                d.position[0] = (int32_t)position;
            }
        }
    d.logits[token] = -1000;
    int32_t *drawn = draw(&d, SAMPLE_GENERAL);
    assert_int_not_equal(drawn[0], token);
    free(drawn);
    free_draw(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frequencies_follow_the_filtered_probabilities),
        cmocka_unit_test(filters_that_are_off_change_no_draw),
        cmocka_unit_test(zero_temperature_is_greedy_in_either_mode),
        cmocka_unit_test(no_noise_makes_an_unlikely_token_certain),
        cmocka_unit_test(a_row_draws_the_same_whatever_is_beside_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
