/* Measuring: the counts that ratios are made of, and that figures come out of a run. No test asserts a time. */
#include "model/presets.h"
#include "model_make.h"
#include "serve/bench.h"
#include "serve/synthetic.h"
#include "unit.h"

#include <math.h>

static Model *config_of(const char *preset)
{
    Model *config = model_preset(preset);
    return config;
}

static void assert_near(double got, double expected)
{
    if (!(fabs(got - expected) <= 1e-9 * fabs(expected)))
        fail_msg("%.17g, not %.17g", got, expected);
}

static void counts_are_those_of_the_shape(void **state)
{
    Model *c = config_of("stories260k"); /* 64 wide, 5 layers, 8 heads of 8, 4 KV, ffn 172 */
    double layer = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 172 * 64, head = 512 * 64;
    double pairs = 10 * 11 / 2;
    assert_near(bench_prefill_flops(c, 10), 2 * 10 * 5 * layer + 2 * head + 4 * pairs * 64 * 5);
    assert_near(bench_decode_bytes(c, CVN_BF16, CVN_BF16, 3, 7),
                2 * (5 * layer + head) + 5 * 2 * 3 * 7 * 32 * 2);
    assert_near(bench_decode_bytes(c, CVN_BF16, CVN_I8, 3, 7),
                2 * (5 * layer + head) + 5 * 2 * 3 * 7 * 4 * (8 + 2));
}

static void a_synthetic_model_runs_and_is_measured(void **state)
{
    cvn_err err = {0};
    Model *config = config_of("stories260k");
    for (int b = 0; b < 2; b++) {
        cvn_model *model;
        cvn_engine *engine;
        must(model_synthetic(config, b ? CVN_BF16 : CVN_F32, &model, &err), &err);
        cvn_engine_options options = {.slots = 2, .threads = 2};
        must(cvn_engine_new(model, &options, &engine, &err), &err);
        BenchFigure prefill = {0}, decode = {0};
        must(bench_prefill(engine, 130, 3, &prefill, &err), &err);
        must(bench_decode(engine, 20, 5, 1e9, &decode, &err), &err);
        assert_true(prefill.seconds > 0 && prefill.utilization > 0 && prefill.spread >= 0);
        assert_true(decode.seconds > 0 && decode.utilization > 0 && decode.spread >= 0);
        assert_true(decode.bandwidth > 0 && prefill.peak > 0);
        assert_near(prefill.tokens_per_second, 130 / prefill.seconds);
        assert_near(decode.tokens_per_second, 2 / decode.seconds);
        cvn_engine_free(engine, NULL);
        cvn_model_free(model);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_those_of_the_shape),
        cmocka_unit_test(a_synthetic_model_runs_and_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
