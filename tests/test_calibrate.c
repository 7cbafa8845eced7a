/* Calibrated rounding: products with the inputs that were seen change less than by rounding to the nearest, and numbers do not depend
   on the number of threads. */
#include "base/float16.h"
#include "calibrate/round.h"
#include "splitmix.h"
#include "unit.h"

#include <math.h>

enum { N = 40, K = 128, GROUP = 32, TOKENS = 600 };

static float uniform(uint64_t *seed)
{
    return (float)(splitmix(seed) >> 40) * 0x1p-23f - 1;
}

/* Weights, and the sums of inputs whose columns go together, some of them larger than others. */
static void draw_case(float *w, float *sums, uint64_t seed)
{
    static float x[TOKENS][K];
    for (int i = 0; i < N * K; i++)
        w[i] = uniform(&seed);
    memset(sums, 0, K * K * sizeof *sums);
    for (int t = 0; t < TOKENS; t++) {
        float hidden[8];
        for (int h = 0; h < 8; h++)
            hidden[h] = uniform(&seed);
        for (int j = 0; j < K; j++)
            x[t][j] = (hidden[j % 8] + hidden[j % 5] + 0.2f * uniform(&seed)) * (j % 11 ? 1 : 6);
        for (int i = 0; i < K; i++)
            for (int j = 0; j < K; j++)
                sums[i * K + j] += x[t][i] * x[t][j];
    }
}

static void products_change_less_than_by_rounding_to_the_nearest(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[2][N * K / 2];
    static uint16_t scale[2][N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    (void)state;
    for (uint64_t seed = 1; seed < 4; seed++) {
        Pool *pool = pool_new(1, NULL);
        Inputs in;
        draw_case(w, sums, seed);
        assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
        for (int r = 0; r < N; r++)
            quant_row(&f, w + r * K, K, q[0] + r * K / 2, scale[0] + r * K / GROUP);
        assert_int_equal(round_matrix(&in, &f, w, q[1], scale[1], pool, NULL), CVN_OK);
        double plain = round_error(&in, &f, w, q[0], scale[0]);
        double calibrated = round_error(&in, &f, w, q[1], scale[1]);
        if (!(calibrated < 0.5 * plain))
            fail_msg("%g calibrated, %g plain", calibrated, plain);
        inputs_close(&in);
        pool_free(pool);
    }
}

static void numbers_are_the_same_for_any_number_of_threads(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[2][N * K / 2];
    static uint16_t scale[2][N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    (void)state;
    draw_case(w, sums, 9);
    for (int threads = 1; threads < 6; threads++) {
        Pool *pool = pool_new(threads, NULL);
        Inputs in;
        const int i = threads > 1;
        assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
        assert_int_equal(round_matrix(&in, &f, w, q[i], scale[i], pool, NULL), CVN_OK);
        assert_memory_equal(q[0], q[i], sizeof q[0]);
        assert_memory_equal(scale[0], scale[i], sizeof scale[0]);
        inputs_close(&in);
        pool_free(pool);
    }
}

/* Inputs that are all 0, as of a text of one token, and weights of 0. */
static void zeros_are_rounded_to_zeros(void **state)
{
    static float w[N * K], sums[K * K];
    static uint8_t q[N * K / 2];
    static uint16_t scale[N * K / GROUP];
    const QuantForm f = quant_form((QuantScheme){.kind = QUANT_INT4, .group = GROUP}, N, K);
    Pool *pool = pool_new(1, NULL);
    Inputs in;
    (void)state;
    assert_int_equal(inputs_open(&in, sums, K, pool, NULL), CVN_OK);
    assert_int_equal(round_matrix(&in, &f, w, q, scale, pool, NULL), CVN_OK);
    for (size_t i = 0; i < sizeof q; i++)
        assert_int_equal(q[i], 0);
    inputs_close(&in);
    pool_free(pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_change_less_than_by_rounding_to_the_nearest),
        cmocka_unit_test(numbers_are_the_same_for_any_number_of_threads),
        cmocka_unit_test(zeros_are_rounded_to_zeros),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
