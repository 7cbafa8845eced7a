/*
 * The whole table: every layout, and products of them, on meshes of 1, 2, 3, 4, 6 and 8 devices, for a model with a KV
 * head for each head and one with groups of them, whose sizes the meshes do not divide. In each cell two optimizers
 * train (f32, losses and norms to 1e-5), a text is scored (prefill, to 1e-5), and prompts of different lengths go on
 * greedily (prefill and decode, to the same tokens); all as on one device, with the kernels that really run.
 *
 * A layout gets the mesh of its axes: data, model, or both. Where a run is slow, in a build with sanitizers, a part of the
 * table is taken.
 */
#include "io/model.h"
#include "serve/engine.h"
#include "shard/layouts.h"
#include "splitmix.h"
#include "train/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { TAKEN = 5 };
#else
enum { TAKEN = 1 };
#endif

static const char *const models[] = {"mha", "gqa"};
static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp", "dp+tp"};
enum { MODELS = 2, LAYOUTS = 7, SIZES = 6 };

/* By size, 1, 2, 3, 4, 6, 8: along one axis, and along both. */
static const char *const along_data[SIZES] = {"data=1", "data=2", "data=3",
                                              "data=4", "data=6", "data=8"};
static const char *const along_model[SIZES] = {"model=1", "model=2", "model=3",
                                               "model=4", "model=6", "model=8"};
static const char *const along_both[SIZES] = {"data=1,model=1", "data=1,model=2", "data=3,model=1",
                                              "data=2,model=2", "data=3,model=2", "data=2,model=4"};

static const char *mesh_of(const char *layout, int size)
{
    bool data = strcmp(layout, "dp") == 0 || strcmp(layout, "fsdp") == 0;
    bool model = strcmp(layout, "tp") == 0 || strcmp(layout, "tp-scatter") == 0;
    return data ? along_data[size] : model ? along_model[size] : along_both[size];
}

static const char *path_of(const char *model)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, model);
    return path;
}

/* ---- training ---- */

enum { ROWS = 6, SEQ = 8, STEPS = 3 };

typedef struct Curve {
    double loss[STEPS], norm[STEPS];
} Curve;

static Curve train(const char *model, OptimizerKind optimizer, const char *mesh, const char *layout)
{
    Trainer t;
    Curve curve;
    cvn_err err = {0};
    IoModel io;
    int32_t tokens[ROWS * SEQ], targets[ROWS * SEQ], starts[ROWS * SEQ] = {0};
    TrainBatch batch = {tokens, targets, starts};
    TrainerOptions o = {.batch = ROWS,
                        .seq = SEQ,
                        .compute = CVN_F32,
                        .clip = 1,
                        .remat = REMAT_NONE,
                        .optimizer = optimizer_defaults(optimizer, 20000),
                        .schedule = {.kind = SCHEDULE_CONSTANT, .steps = 100, .final = 1},
                        .threads = 1,
                        .memory_limit = (size_t)1 << 40,
                        .mesh = mesh,
                        .layout = layout};
    if (io_open_model(&io, path_of(model), &err) || trainer_open(&t, &io.config, &o, &err) ||
        trainer_from_model(&t, &io, &err))
        fail_msg("%s, %s on %s: %s", model, layout, mesh, err.message);
    for (int i = 0; i < STEPS; i++) {
        TrainReport report;
        uint64_t seed = (uint64_t)i;
        for (int k = 0; k < ROWS * SEQ; k++) {
            tokens[k] = draw(&seed, (int)io.config.vocab);
            targets[k] = k % 7 ? tokens[k] * 3 % (int)io.config.vocab : -1;
        }
        if (trainer_step(&t, &batch, &report, &err))
            fail_msg("%s, %s on %s: %s", model, layout, mesh, err.message);
        assert_true(report.updated);
        curve.loss[i] = report.loss;
        curve.norm[i] = report.grad_norm;
    }
    trainer_close(&t);
    io_close_model(&io);
    return curve;
}

static void every_cell_trains_alike(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++)
        for (int k = 0; k < OPTIMIZER_COUNT; k++) {
            Curve alone = train(models[m], (OptimizerKind)k, NULL, NULL);
            for (int cell = 0; cell < LAYOUTS * SIZES; cell++) {
                const char *layout = layouts[cell / SIZES], *mesh = mesh_of(layout, cell % SIZES);
                if ((cell + m + 2 * k) % TAKEN)
                    continue;
                Curve curve = train(models[m], (OptimizerKind)k, mesh, layout);
                for (int i = 0; i < STEPS; i++)
                    if (!(fabs(curve.loss[i] - alone.loss[i]) <= 1e-5 * alone.loss[i] &&
                          fabs(curve.norm[i] - alone.norm[i]) <= 1e-5 * alone.norm[i]))
                        fail_msg("%s with %s, %s on %s: step %d has loss %.9g and norm %.9g, on "
                                 "one device %.9g and %.9g",
                                 models[m], optimizers[k].name, layout, mesh, i + 1, curve.loss[i],
                                 curve.norm[i], alone.loss[i], alone.norm[i]);
            }
        }
}

/* ---- scoring and generation ---- */

enum { N_TOKENS = 21, N_TEXTS = 3, N_NEW = 8 };

typedef struct Answers {
    float logprob[N_TOKENS];
    int32_t argmax[N_TOKENS], text[N_TEXTS][N_NEW];
    int n[N_TEXTS];
} Answers;

static bool collect(void *context, int request, int32_t token)
{
    Answers *a = context;
    a->text[request][a->n[request]++] = token;
    return true;
}

static void ask(const char *variant, const char *mesh, const char *layout, Answers *a)
{
    cvn_model_options with = {.dtype = CVN_F32, .no_tokenizer = true, .no_weights = mesh != NULL};
    cvn_engine_options options = {.rows = 3,
                                  .threads = 1,
                                  .scoring = true,
                                  .context = 64,
                                  .eos_interval = 2,
                                  .n_buckets = 1,
                                  .bucket = {16},
                                  .mesh = mesh,
                                  .layout = layout};
    cvn_model *model = NULL;
    cvn_engine *engine = NULL;
    cvn_err err = {0};
    int32_t token[N_TOKENS];
    cvn_request request[N_TEXTS] = {0};
    cvn_result result[N_TEXTS];
    *a = (Answers){0};
    if (cvn_model_open(path_of(variant), &with, &model, &err))
        fail_msg("%s", err.message);
    for (int i = 0; i < N_TOKENS; i++)
        token[i] = (int32_t)((i * 37 + 11) % cvn_model_vocab(model));
    for (int i = 0; i < N_TEXTS; i++)
        request[i] = (cvn_request){.prompt = token + i,
                                   .n_prompt = 1 + 9 * i,
                                   .max_tokens = N_NEW,
                                   .ignore_eos = true,
                                   .sampling = {.top_p = 1}};
    if (cvn_engine_new(model, &options, &engine, &err) ||
        cvn_engine_score(engine, token, N_TOKENS, a->logprob, a->argmax, &err) ||
        cvn_engine_generate(engine, request, N_TEXTS, collect, a, NULL, result, &err))
        fail_msg("%s, %s on %s: %s", variant, layout, mesh, err.message);
    cvn_engine_free(engine, NULL);
    cvn_model_free(model);
}

static void every_cell_scores_and_continues_alike(void **state)
{
    (void)state;
    for (int m = 0; m < MODELS; m++) {
        Answers alone, parts;
        ask(models[m], NULL, NULL, &alone);
        for (int cell = 0; cell < LAYOUTS * SIZES; cell++) {
            const char *layout = layouts[cell / SIZES], *mesh = mesh_of(layout, cell % SIZES);
            if ((cell + m) % TAKEN)
                continue;
            ask(models[m], mesh, layout, &parts);
            for (int i = 1; i < N_TOKENS; i++) {
                double want = (double)alone.logprob[i], got = (double)parts.logprob[i];
                if (!(fabs(want - got) <= 1e-5 * (1 + fabs(want))))
                    fail_msg("%s, %s on %s: token %d scores %.7f, not %.7f", models[m], layout,
                             mesh, i, got, want);
            }
            for (int t = 0; t < N_TEXTS; t++)
                if (parts.n[t] != N_NEW ||
                    memcmp(alone.text[t], parts.text[t], sizeof alone.text[t]) != 0)
                    fail_msg("%s, %s on %s: text %d differs", models[m], layout, mesh, t);
        }
    }
}

/* A layout that is added must be added here. */
static void every_layout_is_in_the_table(void **state)
{
    (void)state;
    for (size_t i = 0; layout_name(i); i++) {
        bool there = false;
        for (int l = 0; l < LAYOUTS; l++)
            there = there || strcmp(layouts[l], layout_name(i)) == 0;
        assert_true(there);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_layout_is_in_the_table),
        cmocka_unit_test(every_cell_trains_alike),
        cmocka_unit_test(every_cell_scores_and_continues_alike),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
