/* Measuring training: the count of operations, what plans of real shapes take, and that figures come out of a run. */
#include "compile/pipeline.h"
#include "cpu/registry.h"
#include "model/params.h"
#include "model/presets.h"
#include "model_make.h"
#include "train/bench.h"
#include "unit.h"

static Model *config_of(const char *preset)
{
    Model *config = model_preset(preset);
    return config;
}

static void operations_are_those_of_the_shape(void **state)
{
    Model *c = config_of("stories260k"); /* 64 wide, 5 layers, 8 heads of 8, 4 KV, ffn 172 */
    double layer = 64 * 64 * 2 + 2 * 32 * 64 + 3 * 172 * 64, head = 512 * 64;
    double pairs = 3 * 10 * 11 / 2.0;
    double expected = 6 * 30 * (5 * layer + head) + 12 * pairs * 64 * 5;
    if (train_flops(c, 3, 10) != expected)
        fail_msg("%.17g, not %.17g", train_flops(c, 3, 10), expected);
}

/* What a step of 1,024 tokens a row takes, by its plan. */
typedef struct Planned {
    size_t temporaries, all; /* bytes */
} Planned;

static Planned planned(const char *preset, int64_t batch, OptimizerKind kind, RematPolicy remat)
{
    cvn_err err = {0};
    Model *config = config_of(preset);
    TrainStepOptions step = {.batch = batch,
                             .seq = 1024,
                             .compute = CVN_BF16,
                             .clip = 1,
                             .remat = remat,
                             .optimizer = optimizer_defaults(kind, model_size(config).params)};
    CompileOptions options = {.backend = cpu_kernels(), .n_threads = 2};
    Plan *plan = NULL;
    cvn_graph *g = train_graph(TRAIN_STEP, config, &step, &err);
    if (!g || compile_graph(g, &options, &plan, &err))
        fail_msg("%s", err.message);
    Planned bytes = {plan->arena_bytes,
                     plan->arena_bytes + plan->report.parameter_bytes + plan->constant_bytes};
    plan_free(plan);
    cvn_graph_free(g);
    return bytes;
}

/* stories110m, two rows: every policy takes less than the one before, noticeably. */
static void recomputation_takes_less_memory(void **state)
{
    size_t bytes[REMAT_POLICY_COUNT];
    for (int i = 0; i < REMAT_POLICY_COUNT; i++)
        bytes[i] = planned("stories110m", 2, OPTIMIZER_ADAMW, (RematPolicy)i).temporaries;
    if (bytes[REMAT_SELECTIVE] * 100 > bytes[REMAT_NONE] * 84 ||
        bytes[REMAT_BLOCK] * 100 > bytes[REMAT_SELECTIVE] * 70)
        fail_msg("MiB: none %zu, selective %zu, block %zu", bytes[REMAT_NONE] >> 20,
                 bytes[REMAT_SELECTIVE] >> 20, bytes[REMAT_BLOCK] >> 20);
}

/* Logits are there once in f32 (the gradient lies over them) and once rounded: no second f32 buffer. */
static void logits_are_not_there_twice(void **state)
{
    size_t bytes = planned("stories110m", 4, OPTIMIZER_ADAMW, REMAT_BLOCK).temporaries;
    size_t less = planned("stories110m", 2, OPTIMIZER_ADAMW, REMAT_BLOCK).temporaries;
    size_t logits = (size_t)2 * 1024 * 32000 * 4; /* of the two rows more */
    if (bytes - less > logits * 7 / 4 + ((size_t)160 << 20))
        fail_msg("two rows more take %zu MiB, their logits %zu", (bytes - less) >> 20,
                 logits >> 20);
}

static void a_model_of_a_billion_fits_in_20_gib(void **state)
{
    size_t bytes = planned("llama3.2-1b", 1, OPTIMIZER_ADAFACTOR, REMAT_BLOCK).all;
    if (bytes > (size_t)20 << 30)
        fail_msg("%.1f GiB", (double)bytes / 0x1p30);
}

static void a_step_runs_and_is_measured(void **state)
{
    cvn_err err = {0};
    Model *config = config_of("stories260k");
    for (int i = 0; i < OPTIMIZER_COUNT; i++) {
        TrainBench bench = {.config = config,
                            .trainer = {.batch = 2,
                                        .seq = 33,
                                        .compute = i ? CVN_F32 : CVN_BF16,
                                        .remat = (RematPolicy)i,
                                        .optimizer = optimizer_defaults((OptimizerKind)i, 260000),
                                        .threads = 2},
                            .repeats = 2};
        TrainFigure figure;
        must(train_bench(&bench, &figure, &err), &err);
        assert_true(figure.seconds > 0 && figure.mfu > 0 && figure.peak_memory > 1000000);
        assert_true(figure.loss[0] > 5 && figure.loss[1] < figure.loss[0]); /* ln 512 = 6.2 */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operations_are_those_of_the_shape),
        cmocka_unit_test(recomputation_takes_less_memory),
        cmocka_unit_test(logits_are_not_there_twice),
        cmocka_unit_test(a_model_of_a_billion_fits_in_20_gib),
        cmocka_unit_test(a_step_runs_and_is_measured),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
