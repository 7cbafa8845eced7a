/*
 * Training against transformers and torch, step by step, on the curves that tests/oracles/train.py stored.
 *
 * The 15M shape runs a few steps of its 100; CARAVAN_CURVE_STEPS=100 test_train_curve runs all (two minutes).
 * A curve of any model, made by `train.py DIR OPTIMIZER OUT.json`, is compared in the same way with
 *     CARAVAN_CURVE_MODEL=DIR CARAVAN_CURVE_OPTIMIZER=adamw CARAVAN_CURVE=OUT.json test_train_curve
 */
#include "learn.h"
#include "model/presets.h"
#include "model_make.h"
#include "train/trainer.h"
#include "unit.h"

#include <jansson.h>
#include <math.h>

/* Of the 15M shape, unless more are asked for. */
enum { FEW_STEPS = SANITIZED ? 1 : 4 };

typedef struct Curve {
    int64_t batch, seq;
    int steps;
    double lr;           /* of AdamW */
    double *loss, *norm; /* [steps] */
    double *exact;       /* [steps]: the loss in float64, of Muon in float32 throughout, or NULL */
} Curve;

static void curve_free(Curve *c)
{
    free(c->loss);
    free(c->norm);
    free(c->exact);
}

static Curve curve_new(int64_t batch, int64_t seq, int steps)
{
    Curve c = {.batch = batch, .seq = seq, .steps = steps};
    c.loss = calloc((size_t)steps, sizeof *c.loss);
    c.norm = calloc((size_t)steps, sizeof *c.norm);
    assert_true(c.loss && c.norm);
    return c;
}

static Curve curve_load(const char *path)
{
    json_error_t error;
    json_t *json = json_load_file(path, 0, &error);
    if (!json)
        fail_msg("%s: %s", path, error.text);
    Curve c = curve_new(json_integer_value(json_object_get(json, "batch")),
                        json_integer_value(json_object_get(json, "seq")),
                        (int)json_integer_value(json_object_get(json, "steps")));
    c.lr = json_number_value(json_object_get(json, "lr"));
    for (int i = 0; i < c.steps; i++) {
        c.loss[i] = json_real_value(json_array_get(json_object_get(json, "loss"), (size_t)i));
        c.norm[i] = json_real_value(json_array_get(json_object_get(json, "grad_norm"), (size_t)i));
    }
    const json_t *exact = json_object_get(json, "exact");
    c.exact = exact ? calloc((size_t)c.steps, sizeof *c.exact) : NULL;
    for (int i = 0; c.exact && i < c.steps; i++)
        c.exact[i] = json_real_value(json_array_get(exact, (size_t)i));
    json_decref(json);
    return c;
}

static TrainerOptions options_of(OptimizerKind kind, const Curve *c)
{
    TrainerOptions o = {.batch = c->batch,
                        .seq = c->seq,
                        .compute = CVN_F32,
                        .clip = 1,
                        .threads = 1,
                        .optimizer = optimizer_defaults(kind, 1)};
    o.schedule = (Schedule){.kind = SCHEDULE_CONSTANT, .steps = 100};
    if (kind != OPTIMIZER_ADAFACTOR) {
        o.optimizer.lr = c->lr > 0 ? c->lr : 3e-3;
        o.schedule = (Schedule){.kind = SCHEDULE_COSINE, .steps = 100, .warmup = 10, .final = 0.1};
    }
    return o;
}

static void open_trainer(Trainer *t, const char *folder, const TrainerOptions *options)
{
    cvn_err err = {0};
    IoModel model;
    must(io_open_model(&model, folder, &err), &err);
    must(trainer_open(t, model.desc, options, &err), &err);
    must(trainer_from_model(t, &model, &err), &err);
    io_close_model(&model);
}

/* Trains; c->steps steps, which may be fewer than the schedule has. */
static void train(Trainer *t, Curve *c)
{
    learn(t, c->steps, fill_chains, c->loss, c->norm);
}

static const char *gqa = CVN_TEST_DATA "/llama/gqa";

static Curve curve_of(const char *folder, const TrainerOptions *options, int steps)
{
    Trainer t;
    open_trainer(&t, folder, options);
    Curve c = curve_new(options->batch, options->seq, steps);
    train(&t, &c);
    assert_true(t.stage->rt.backend->compilations(t.stage->rt.devices) <= 2);
    trainer_close(&t);
    return c;
}

static double largest_difference(const Curve *a, const Curve *b)
{
    double most = 0;
    for (int i = 0; i < a->steps; i++) {
        double d = fabs(a->loss[i] - b->loss[i]);
        most = d > most || isnan(d) ? d : most;
    }
    return most;
}

static void compare_with(const char *folder, OptimizerKind kind, const char *path,
                         cvn_dtype compute, cvn_dtype state, double tolerance)
{
    Curve expected = curve_load(path);
    TrainerOptions options = options_of(kind, &expected);
    options.compute = compute;
    options.optimizer.state = state;
    if (kind == OPTIMIZER_MUON && compute == CVN_F32 && expected.exact)
        memcpy(expected.loss, expected.exact, (size_t)expected.steps * sizeof *expected.loss);
    Curve got = curve_of(folder, &options, expected.steps);
    double most = largest_difference(&expected, &got);
    print_message("%s: largest difference of the loss %.2g, first norm %.6f for %.6f\n", path, most,
                  got.norm[0], expected.norm[0]);
    for (int i = 0; getenv("CARAVAN_CURVE_PRINT") && i < got.steps; i++)
        print_message("%d %.6f %.6f %.2g\n", i + 1, expected.loss[i], got.loss[i],
                      got.loss[i] - expected.loss[i]);
    if (!(most <= tolerance))
        fail_msg("%s: the loss differs by %.3g", path, most);
    if (compute == CVN_F32)
        assert_true(fabs(got.norm[0] - expected.norm[0]) < 1e-4 * expected.norm[0]);
    curve_free(&expected);
    curve_free(&got);
}

static void compare(const char *folder, OptimizerKind kind, const char *path, cvn_dtype compute,
                    double tolerance)
{
    compare_with(folder, kind, path, compute, CVN_F32, tolerance);
}

static void adamw_follows_torch(void **state)
{
    compare(gqa, OPTIMIZER_ADAMW, CVN_TEST_DATA "/train/adamw.json", CVN_F32, 1e-3);
}

static void adafactor_follows_transformers(void **state)
{
    compare(gqa, OPTIMIZER_ADAFACTOR, CVN_TEST_DATA "/train/adafactor.json", CVN_F32, 1e-3);
}

static void muon_follows_torch(void **state)
{
    compare(gqa, OPTIMIZER_MUON, CVN_TEST_DATA "/train/muon.json", CVN_F32, 1e-3);
}

static void states_in_bf16_follow_torch(void **state)
{
    compare_with(gqa, OPTIMIZER_ADAMW, CVN_TEST_DATA "/train/adamw-bf16.json", CVN_F32, CVN_BF16,
                 1e-3);
}

static void bf16_is_near(void **state)
{
    compare(gqa, OPTIMIZER_ADAMW, CVN_TEST_DATA "/train/adamw.json", CVN_BF16, 2e-2);
    compare(gqa, OPTIMIZER_ADAFACTOR, CVN_TEST_DATA "/train/adafactor.json", CVN_BF16, 2e-2);
    compare(gqa, OPTIMIZER_MUON, CVN_TEST_DATA "/train/muon.json", CVN_BF16, 2e-2);
}

/* Preferences, with the model as its own reference. */
static void preferences_follow_torch(void **state)
{
    enum { ROWS = 4, SEQ = 32, STEPS = 50 };
    Curve expected = curve_load(CVN_TEST_DATA "/train/dpo.json");
    TrainerOptions options = options_of(OPTIMIZER_ADAMW, &expected);
    options.beta = 0.1;
    for (int micro = 0; micro < 2; micro++) {
        Trainer t, start;
        TrainBatch batch;
        TrainReport report;
        cvn_err err = {0};
        double most = 0;
        options.micro_batch = micro ? ROWS / 2 : ROWS;
        open_trainer(&t, gqa, &options);
        options.micro_batch = ROWS;
        open_trainer(&start, gqa, &options);
        must(train_batch_new(&batch, ROWS, SEQ, &err), &err);
        for (int i = 0; i < STEPS; i++) {
            fill_chains(&t, i, batch.tokens, batch.targets);
            must(trainer_score(&start, &batch, batch.reference, &err), &err);
            must(trainer_step(&t, &batch, &report, &err), &err);
            assert_true(report.z >= 0 && report.z <= 1);
            assert_true(report.tokens > 1.5 && report.tokens < 2.5);
            most = fmax(most, fabs(report.loss - expected.loss[i]));
        }
        print_message("dpo: largest difference of the loss %.2g\n", most);
        assert_true(most < 1e-3);
        /* A pair of which one answer is cut off does not count. */
        for (int i = 0; i < SEQ; i++)
            batch.targets[SEQ + i] = -1;
        must(trainer_step(&t, &batch, &report, &err), &err);
        assert_true(report.tokens > 0.5 && report.tokens < 1.5);
        train_batch_free(&batch);
        trainer_close(&t);
        trainer_close(&start);
    }
    curve_free(&expected);
    options.batch = options.micro_batch = 3;
    Trainer t;
    cvn_err err = {0};
    Model *config = model_preset("stories260k");
    assert_int_equal(trainer_open(&t, config, &options, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "even --batch"));
}

/* Within tolerance of `expected`, over the steps of `got`. */
static void near(const char *what, const Curve *got, const double *expected, double tolerance)
{
    double most = 0;
    for (int i = 0; i < got->steps; i++) {
        double d = fabs(got->loss[i] - expected[i]);
        most = d > most || isnan(d) ? d : most;
    }
    print_message("%s, %d steps: largest difference of the loss %.2g\n", what, got->steps, most);
    if (!(most <= tolerance))
        fail_msg("%s: the loss differs by %.3g, more than %g", what, most, tolerance);
}

/* A shape of 15 million parameters, from the weights that `caravan init --seed 1` makes. In f32 ours is
 * nearer to float64 than torch's, whose sums of squares over millions of elements are rough. */
static void the_15m_shape_follows_torch(void **state)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_BF16};
    const char *all = getenv("CARAVAN_CURVE_STEPS");
    int steps = all ? (int)strtol(all, NULL, 10) : FEW_STEPS;
    for (int i = 0; i < 2 * OPTIMIZER_MUON; i++) { /* of the two before it */
        char path[256], what[64];
        OptimizerKind kind = (OptimizerKind)(i / 2);
        snprintf(path, sizeof path, CVN_TEST_DATA "/train/stories15m-%s.json",
                 optimizers[kind].name);
        Curve expected = curve_load(path);
        steps = steps > 0 && steps < expected.steps ? steps : expected.steps;
        TrainerOptions options = options_of(kind, &expected);
        options.compute = dtypes[i % 2];
        options.threads = 0;
        const Model *config = model_preset("stories15m");
        Trainer t;
        cvn_err err = {0};
        must(trainer_open(&t, config, &options, &err), &err);
        must(trainer_random(&t, 1, &err), &err);
        Curve got = curve_new(expected.batch, expected.seq, steps);
        train(&t, &got);
        trainer_close(&t);
        snprintf(what, sizeof what, "%s in %s", optimizers[kind].name,
                 cvn_dtype_name(options.compute));
        near(what, &got, expected.loss, i % 2 ? 2e-2 : 1e-3);
        near(what, &got, expected.exact, i % 2 ? 2e-2 : 2e-5);
        curve_free(&expected);
        curve_free(&got);
    }
}

static void a_curve_given_by_hand(void **state)
{
    const char *folder = getenv("CARAVAN_CURVE_MODEL"), *path = getenv("CARAVAN_CURVE");
    const char *name = getenv("CARAVAN_CURVE_OPTIMIZER");
    if (!folder || !path || !name) {
        print_message("skipped: no CARAVAN_CURVE_MODEL\n");
        skip();
    }
    OptimizerKind kind = strcmp(name, "adamw") == 0 ? OPTIMIZER_ADAMW : OPTIMIZER_ADAFACTOR;
    compare(folder, kind, path, CVN_F32, 1e-3);
    compare(folder, kind, path, CVN_BF16, 2e-2);
}

/* Micro-batches change the order of sums only, though every one has another number of targets. */
static void micro_batches_are_one_batch(void **state)
{
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        Curve shape = {.batch = 4, .seq = 32, .steps = 100};
        TrainerOptions options = options_of((OptimizerKind)kind, &shape);
        options.z_loss = 1e-3;
        Curve whole = curve_of(gqa, &options, 12);
        options.micro_batch = 1;
        Curve parts = curve_of(gqa, &options, 12);
        double most = largest_difference(&whole, &parts);
        if (!(most < 1e-4))
            fail_msg("%s: the loss differs by %g", optimizers[kind].name, most);
        curve_free(&whole);
        curve_free(&parts);
    }
}

/* In every byte of what a checkpoint would hold. */
static void same_state(const Trainer *a, const Trainer *b)
{
    assert_int_equal(a->state.saved.n, b->state.saved.n);
    for (int i = 0; i < a->state.saved.n; i++) {
        const CheckpointTensor *x = &a->state.saved.tensor[i], *y = &b->state.saved.tensor[i];
        assert_memory_equal(x->data, y->data, cvn_type_bytes(&x->type));
    }
}

static char *copy_state(const Trainer *t)
{
    size_t at = 0;
    char *copy = malloc(t->state.bytes);
    for (int i = 0; i < t->state.saved.n; i++) {
        const CheckpointTensor *x = &t->state.saved.tensor[i];
        memcpy(copy + at, x->data, cvn_type_bytes(&x->type));
        at += cvn_type_bytes(&x->type);
    }
    return copy;
}

static void two_runs_give_the_same_bits(void **state)
{
    Curve shape = {.batch = 4, .seq = 32, .steps = 100};
    Trainer t[3];
    for (int i = 0; i < 3; i++) {
        TrainerOptions options = options_of(OPTIMIZER_ADAMW, &shape);
        options.compute = CVN_BF16;
        options.threads = i == 1 ? 1 : 2;
        options.remat = i == 2 ? REMAT_BLOCK : REMAT_NONE;
        open_trainer(&t[i], gqa, &options);
        Curve c = curve_new(4, 32, 5);
        train(&t[i], &c);
        curve_free(&c);
    }
    for (int i = 1; i < 3; i++)
        same_state(&t[i], &t[0]);
    for (int i = 0; i < 3; i++)
        trainer_close(&t[i]);
}

static void what_is_not_finite_changes_nothing(void **state)
{
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        Curve c = curve_new(2, 16, 2);
        TrainerOptions options = options_of((OptimizerKind)kind, &c);
        Trainer t;
        cvn_err err = {0};
        open_trainer(&t, gqa, &options);
        train(&t, &c);
        float *weight = t.state.saved.tensor[0].data;
        weight[5 * 48] = INFINITY; /* embedding of token 5 */
        char *before = copy_state(&t);
        int32_t tokens[32], targets[32], starts[32] = {0};
        TrainBatch batch = {.tokens = tokens, .targets = targets, .starts = starts};
        for (int i = 0; i < 32; i++)
            tokens[i] = targets[i] = 5;
        TrainReport report;
        must(trainer_step(&t, &batch, &report, &err), &err);
        assert_false(report.updated);
        char *after = copy_state(&t);
        for (size_t i = 0, at = 0; i < (size_t)t.state.saved.n; i++) {
            size_t bytes = cvn_type_bytes(&t.state.saved.tensor[i].type);
            assert_memory_equal(before + at, after + at, bytes);
            at += bytes;
        }
        assert_int_equal(t.state.saved.step, 3);
        assert_int_equal(*t.state.updates, 2);
        /* and goes on afterwards */
        weight[5 * 48] = 0;
        must(trainer_step(&t, &batch, &report, &err), &err);
        assert_true(report.updated);
        free(before);
        free(after);
        trainer_close(&t);
        curve_free(&c);
    }
}

/* The beginning of a page of text by heart, a token per character. The whole page: test_train_files.c. */
static void a_text_is_overfitted(void **state)
{
    enum { ROWS = 4, SEQ = 64 };
    static int32_t tokens[ROWS * SEQ], targets[ROWS * SEQ], starts[ROWS * SEQ];
    TrainBatch batch = {.tokens = tokens, .targets = targets, .starts = starts};
    FILE *page = fopen(CVN_TEST_DATA "/train/page.txt", "re");
    assert_non_null(page);
    for (int i = 0; i < ROWS * SEQ; i++) {
        int c = fgetc(page);
        assert_true(c == '\n' || (c >= ' ' && c <= '~'));
        tokens[i] = c == '\n' ? 95 : c - ' ';
    }
    fclose(page);
    for (int i = 0; i < ROWS * SEQ; i++)
        targets[i] = i % SEQ == SEQ - 1 ? -1 : tokens[i + 1];
    for (int kind = 0; kind < OPTIMIZER_COUNT; kind++) {
        Curve shape = {.batch = ROWS, .seq = SEQ, .steps = 200};
        TrainerOptions options = options_of((OptimizerKind)kind, &shape);
        Trainer t;
        cvn_err err = {0};
        open_trainer(&t, gqa, &options);
        TrainReport report = {0};
        for (int i = 0; i < 200; i++)
            must(trainer_step(&t, &batch, &report, &err), &err);
        print_message("%s: loss %.4f\n", optimizers[kind].name, report.loss);
        assert_true(report.loss < 0.05);
        assert_int_equal(t.stage->rt.backend->compilations(t.stage->rt.devices), 1);
        trainer_close(&t);
    }
}

static void what_does_not_fit_is_refused_with_the_sum(void **state)
{
    Model *config = model_preset("llama2-7b");
    cvn_err err = {0};
    Curve shape = {.batch = 1, .seq = 128, .steps = 1};
    TrainerOptions options = options_of(OPTIMIZER_ADAMW, &shape);
    options.memory_limit = (size_t)1 << 30;
    Trainer t;
    assert_int_equal(trainer_open(&t, config, &options, &err), CVN_EMEM);
    assert_non_null(strstr(err.message, "75.3 GiB"));
    assert_non_null(strstr(err.message, "--optimizer adafactor"));
    print_message("%s\n", err.message);
    /* Nobody is told to take what they have. */
    options = options_of(OPTIMIZER_ADAFACTOR, &shape);
    options.memory_limit = (size_t)1 << 30;
    err = (cvn_err){0};
    assert_int_equal(trainer_open(&t, config, &options, &err), CVN_EMEM);
    assert_non_null(strstr(err.message, "use a smaller model"));
    assert_null(strstr(err.message, "adafactor"));
}

static void less_memory_means_more_computed_again(void **state)
{
    Model *config = model_preset("stories260k");
    cvn_err err = {0};
    Curve shape = {.batch = 4, .seq = 128, .steps = 1};
    TrainerOptions options = options_of(OPTIMIZER_ADAMW, &shape);
    size_t bytes[REMAT_POLICY_COUNT];
    Trainer t;
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++) {
        options.remat = (RematPolicy)policy;
        must(trainer_open(&t, config, &options, &err), &err);
        bytes[policy] = t.bytes;
        trainer_close(&t);
    }
    options.remat = REMAT_POLICY_COUNT;
    for (int policy = 0; policy < REMAT_POLICY_COUNT; policy++) {
        options.memory_limit = bytes[policy];
        must(trainer_open(&t, config, &options, &err), &err);
        assert_int_equal(t.options.remat, policy);
        trainer_close(&t);
    }
    options.memory_limit = bytes[REMAT_BLOCK] - 1;
    assert_int_equal(trainer_open(&t, config, &options, &err), CVN_EMEM);
}

int main(int argc, char **argv)
{
    if (argc > 1) /* a test by name */
        cmocka_set_test_filter(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adamw_follows_torch),
        cmocka_unit_test(adafactor_follows_transformers),
        cmocka_unit_test(muon_follows_torch),
        cmocka_unit_test(states_in_bf16_follow_torch),
        cmocka_unit_test(bf16_is_near),
        cmocka_unit_test(preferences_follow_torch),
        cmocka_unit_test(the_15m_shape_follows_torch),
        cmocka_unit_test(a_curve_given_by_hand),
        cmocka_unit_test(micro_batches_are_one_batch),
        cmocka_unit_test(two_runs_give_the_same_bits),
        cmocka_unit_test(what_is_not_finite_changes_nothing),
        cmocka_unit_test(a_text_is_overfitted),
        cmocka_unit_test(what_does_not_fit_is_refused_with_the_sum),
        cmocka_unit_test(less_memory_means_more_computed_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
