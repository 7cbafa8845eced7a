/*
 * The whole table: every layout, and products of them, on meshes of 1, 2, 3, 4, 6 and 8 devices, for a model with a KV
 * head for each head and one with groups of them, whose sizes the meshes do not divide. In each cell two optimizers
 * train (f32, losses and norms to 1e-5), a text is scored (prefill, to 1e-5), and prompts of different lengths go on
 * greedily (prefill and decode, to the same tokens); all as on one device, with the kernels that really run.
 *
 * A layout gets the mesh of its axes: data, model, context, or two of them. A build with sanitizers goes through a quarter of the table,
 * in which every layout, size and family is there (part.h).
 */
#include "io/model.h"
#include "learn.h"
#include "llama_fixture.h"
#include "mesh_answers.h"
#include "model/layouts.h"
#include "part.h"

static const char *const models[] = {"mha", "gqa"};
static const char *const layouts[] = {"dp",    "tp", "tp-scatter", "fsdp",    "2d",   "fsdp+tp",
                                      "dp+tp", "ep", "cp",         "fsdp+cp", "tp+cp"};
enum { MODELS = 2, LAYOUTS = 11, SIZES = 6 };

/* By size, 1, 2, 3, 4, 6, 8: along one axis, and along both. */
static const char *const along_data[SIZES] = {"data=1", "data=2", "data=3",
                                              "data=4", "data=6", "data=8"};
static const char *const along_model[SIZES] = {"model=1", "model=2", "model=3",
                                               "model=4", "model=6", "model=8"};
static const char *const along_both[SIZES] = {"data=1,model=1", "data=1,model=2", "data=3,model=1",
                                              "data=2,model=2", "data=3,model=2", "data=2,model=4"};

static const char *const along_expert[SIZES] = {"expert=1", "expert=2", "expert=3",
                                                "expert=4", "expert=6", "expert=8"};
/* Texts of 12 tokens, in shares of 6, 4, 3, 2 and, where 8 does not divide them, 12. */
static const char *const along_context[SIZES] = {"context=1", "context=2", "context=3",
                                                 "context=4", "context=6", "context=8"};
static const char *const along_data_and_context[SIZES] = {"data=1,context=1", "data=1,context=2",
                                                          "data=3,context=1", "data=2,context=2",
                                                          "data=2,context=3", "data=2,context=4"};
static const char *const along_model_and_context[SIZES] = {
    "model=1,context=1", "context=2,model=1", "model=3,context=1",
    "model=2,context=2", "context=3,model=2", "model=2,context=4"};

static const char *mesh_of(const char *layout, int size)
{
    static const struct {
        const char *layout;
        const char *const *mesh;
    } of[] = {{"dp", along_data},
              {"fsdp", along_data},
              {"tp", along_model},
              {"tp-scatter", along_model},
              {"ep", along_expert},
              {"cp", along_context},
              {"fsdp+cp", along_data_and_context},
              {"tp+cp", along_model_and_context}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strcmp(of[i].layout, layout) == 0)
            return of[i].mesh[size];
    return along_both[size];
}

static const char *path_of(const char *model)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, model);
    return path;
}

/* ---- training ---- */

enum { ROWS = 6, SEQ = 12, STEPS = 3 }; /* longer than the windows of 8 */

typedef struct Curve {
    double loss[STEPS], norm[STEPS];
} Curve;

static void fill_batch(const Trainer *t, int64_t step, int32_t *tokens, int32_t *targets)
{
    uint64_t seed = (uint64_t)step;
    int vocab = (int)model_vocab(t->model);
    for (int k = 0; k < ROWS * SEQ; k++) {
        tokens[k] = draw(&seed, vocab);
        targets[k] = k % 7 ? tokens[k] * 3 % vocab : -1;
    }
}

static Curve train(const char *model, OptimizerKind optimizer, const char *mesh, const char *layout)
{
    Trainer t;
    Curve curve;
    cvn_err err = {0};
    IoModel io;
    TrainerOptions o = learn_options(optimizer, CVN_F32, ROWS, ROWS, SEQ);
    o.evaluates = false;
    /* Above what rounding makes of gradients that are nearly 0: with 1e-8, AdamW makes whole steps of those. */
    o.optimizer.eps = 1e-4;
    o.mesh = mesh;
    o.layout = layout;
    if (io_open_model(&io, path_of(model), &err) || trainer_open(&t, io.desc, &o, &err) ||
        trainer_from_model(&t, &io, &err))
        fail_msg("%s, %s on %s: %s", model, layout, mesh, err.message);
    learn(&t, STEPS, fill_batch, curve.loss, curve.norm);
    trainer_close(&t);
    io_close_model(&io);
    return curve;
}

static void check_training(const char *model, OptimizerKind optimizer, const char *mesh,
                           const char *layout, const Curve *alone)
{
    Curve curve = train(model, optimizer, mesh, layout);
    for (int i = 0; i < STEPS; i++)
        if (!(fabs(curve.loss[i] - alone->loss[i]) <= 1e-5 * alone->loss[i] &&
              fabs(curve.norm[i] - alone->norm[i]) <= 1e-5 * alone->norm[i]))
            fail_msg("%s with %s, %s on %s: step %d has loss %.9g and norm %.9g, on one device "
                     "%.9g and %.9g",
                     model, optimizers[optimizer].name, layout, mesh, i + 1, curve.loss[i],
                     curve.norm[i], alone->loss[i], alone->norm[i]);
}

static void every_cell_trains_alike(void **state)
{
    for (int m = 0; m < MODELS; m++)
        for (int k = 0; k < OPTIMIZER_COUNT; k++) {
            Curve alone = train(models[m], (OptimizerKind)k, NULL, NULL);
            for (int cell = 0; cell < LAYOUTS * SIZES; cell++) {
                const char *layout = layouts[cell / SIZES], *mesh = mesh_of(layout, cell % SIZES);
                if (in_part((size_t)(cell + cell / SIZES + m + k), 1))
                    check_training(models[m], (OptimizerKind)k, mesh, layout, &alone);
            }
        }
}

/* ---- scoring and generation ---- */

static void every_cell_scores_and_continues_alike(void **state)
{
    for (int m = 0; m < MODELS; m++) {
        Question q = {models[m],  NULL,       .rows = 3, .n_tokens = 21,
                      .n_new = 8, .first = 1, .more = 9};
        Answers alone;
        cvn_err err = {0};
        must(answers_ask(&q, NULL, NULL, &alone, &err), &err);
        for (int cell = 0; cell < LAYOUTS * SIZES; cell++) {
            const char *layout = layouts[cell / SIZES], *mesh = mesh_of(layout, cell % SIZES);
            if (in_part((size_t)(cell + cell / SIZES + m), 1))
                answers_check(&q, &alone, mesh, layout, 1e-5);
        }
    }
}

/* Every other tiny model of tests/data/llama, whatever its family, in every layout on 4 devices. */
static void every_family_is_alike_on_four_devices(void **state)
{
    for (int v = 0; v < LLAMA_VARIANTS; v++) {
        const char *variant = llama_variants[v];
        Question q = {variant, NULL, .rows = 3, .n_tokens = 21, .n_new = 8, .first = 1, .more = 9};
        Answers alone;
        cvn_err err = {0};
        if (strcmp(variant, models[0]) == 0 || strcmp(variant, models[1]) == 0)
            continue;
        must(answers_ask(&q, NULL, NULL, &alone, &err), &err);
        Curve curve = train(variant, OPTIMIZER_ADAMW, NULL, NULL);
        for (int l = 0; l < LAYOUTS; l++) {
            const char *mesh = mesh_of(layouts[l], 3);
            if (!in_part((size_t)(v + l), 1))
                continue;
            answers_check(&q, &alone, mesh, layouts[l], 1e-5);
            check_training(variant, OPTIMIZER_ADAMW, mesh, layouts[l], &curve);
        }
    }
}

/* A layout that is added must be added here. */
static void every_layout_is_in_the_table(void **state)
{
    for (size_t i = 0; layout_name(i); i++) {
        bool there = strcmp(layout_name(i), "pp") == 0; /* of layers: tests/test_train_stages.c */
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
        cmocka_unit_test(every_family_is_alike_on_four_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
