/*
 * Adapters trained on meshes of devices in this process: losses, norms and the adapters themselves are those of one
 * device, for every layout, with both optimizers and with micro-batches; checkpoints go on on any other mesh, and what is
 * exported of them is what one device exports.
 */
#include "io/convert.h"
#include "io/safetensors.h"
#include "io_support.h"
#include "learn.h"
#include "splitmix.h"
#include "train/checkpoint/export.h"
#include "train/trainer.h"

#include <math.h>

enum { ROWS = 6, SEQ = 8, STEPS = 6, HALF = 3 };

static const char *const layouts[] = {"dp", "tp", "tp-scatter", "fsdp", "2d", "fsdp+tp"};
static const char *const meshes[] = {"data=1",         "data=2",         "model=3",
                                     "data=2,model=2", "data=3,model=2", "data=2,model=4"};
enum { LAYOUTS = 6, MESHES = 6 };

static const char *model_path(const char *variant)
{
    static char path[300];
    snprintf(path, sizeof path, "%s/llama/%s", CVN_TEST_DATA, variant);
    return path;
}

typedef struct Setting {
    const char *model, *mesh, *layout; /* mesh NULL: one device */
    OptimizerKind optimizer;
    int64_t micro_batch;
    cvn_dtype compute;
} Setting;

static void open_trainer(Trainer *t, const Setting *s)
{
    cvn_err err = {0};
    IoModel model;
    TrainerOptions options = {.batch = ROWS,
                              .micro_batch = s->micro_batch,
                              .seq = SEQ,
                              .compute = s->compute,
                              .clip = 1,
                              .threads = 1,
                              .mesh = s->mesh,
                              .layout = s->layout,
                              .memory_limit = (size_t)1 << 40,
                              .optimizer = optimizer_defaults(s->optimizer, 1),
                              .schedule = {.kind = SCHEDULE_CONSTANT, .steps = STEPS}};
    options.optimizer.lr = 1e-2;
    must(lora_parse(&options.lora, "r=3,alpha=6", &err), &err);
    must(io_open_model(&model, model_path(s->model), &err), &err);
    must(trainer_open(t, model.desc, &options, &err), &err);
    must(trainer_from_model(t, &model, &err), &err);
    must(trainer_random(t, 7, &err), &err);
    io_close_model(&model);
}

static void fill_batch(const Trainer *t, int64_t step, int32_t *tokens, int32_t *targets)
{
    uint64_t seed = (uint64_t)step;
    int vocab = (int)model_vocab(t->model);
    for (int i = 0; i < ROWS * SEQ; i++) {
        tokens[i] = draw(&seed, vocab);
        targets[i] = i % 7 ? (5 * tokens[i] + 1) % vocab : -1;
    }
}

static void train(Trainer *t, int64_t until, double *loss, double *norm)
{
    learn(t, until, fill_batch, loss, norm);
}

/* A checkpoint of the state, in RUN of this name. */
static void save(Trainer *t, const char *name)
{
    cvn_err err = {0};
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch(name));
    CheckpointOptions options = {
        .config = t->model, .lora = &t->options.lora, .base = model_path("gqa")};
    CheckpointWriter *writer = checkpoint_writer_new(run, 0, &options, &err);
    must(writer ? CVN_OK : err.code, &err);
    must(checkpoint_save(writer, &t->state.saved, &err), &err);
    must(checkpoint_wait(writer, &err), &err);
    checkpoint_writer_free(writer);
}

static void find(Checkpoint *checkpoint, const char *name)
{
    cvn_err err = {0};
    char run[256];
    snprintf(run, sizeof run, "%s", in_scratch(name));
    must(checkpoint_find(checkpoint, run, -1, NULL, NULL, &err), &err);
    assert_true(checkpoint_is_lora(checkpoint));
}

static void near_losses(const double *a, const double *b, int n, double tolerance, const Setting *s,
                        const char *what)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= tolerance * fabs(a[i])))
            fail_msg("%s by %s, %s of step %d: %.9g, on one device %.9g", s->mesh, s->layout, what,
                     i + 1, b[i], a[i]);
}

/* Adapters of two PEFT folders: the same names and shapes, and values within a tolerance of the largest. */
static void near_adapters(const char *a, const char *b, double tolerance)
{
    cvn_err err = {0};
    Arena arena;
    FileMap map[2];
    IoTensors list[2];
    must(arena_init(&arena, &err), &err);
    for (int i = 0; i < 2; i++) {
        const char *path =
            arena_printf(&arena, "%s/adapter_model.safetensors", in_scratch(i ? b : a));
        io_tensors_init(&list[i], &arena);
        must(file_map(&map[i], path, &err), &err);
        must(st_read(&list[i], path, map[i].data, map[i].size, NULL, &err), &err);
    }
    assert_int_equal(list[0].n, list[1].n);
    for (size_t i = 0; i < list[0].n; i++) {
        const IoTensor *want = &list[0].tensor[i], *got = io_tensors_find(&list[1], want->name);
        assert_non_null(got);
        assert_int_equal(want->rank, got->rank);
        assert_memory_equal(want->dims, got->dims, sizeof want->dims);
        double most = 0, scale = 0;
        for (int64_t k = 0; k < want->n; k++) {
            float x, y;
            io_decode(want, k, 1, &x);
            io_decode(got, k, 1, &y);
            most = fmax(most, fabs((double)x - (double)y));
            scale = fmax(scale, fabs((double)x));
        }
        if (!(scale > 0 && most <= tolerance * scale))
            fail_msg("%s: differs by %g of %g", want->name, most, scale);
    }
    file_unmap(&map[0]);
    file_unmap(&map[1]);
    arena_free(&arena);
}

static void adapters_on_a_mesh_learn_as_on_one_device(void **state)
{
    static const char *const models[] = {"mha", "gqa", "tied"};
    int n = 0;
    for (int model = 0; model < 3; model++)
        for (int k = 0; k < OPTIMIZER_COUNT; k++)
            for (int micro = 0; micro < 2; micro++) {
                Setting s = {models[model], NULL, NULL, (OptimizerKind)k, micro ? 3 : 0, CVN_F32};
                double loss[STEPS], norm[STEPS], other[STEPS], others[STEPS];
                Trainer t;
                open_trainer(&t, &s);
                train(&t, HALF, loss, norm);
                trainer_close(&t);
                for (int l = 0; l < LAYOUTS; l++)
                    for (int m = 0; m < MESHES; m++) {
                        if (!getenv("CARAVAN_TEST_LONG") &&
                            (l + 2 * m + 3 * model + 5 * k + 7 * micro) % 12)
                            continue;
                        s.mesh = meshes[m];
                        s.layout = layouts[l];
                        open_trainer(&t, &s);
                        train(&t, HALF, other, others);
                        trainer_close(&t);
                        near_losses(loss, other, HALF, 1e-5, &s, "loss");
                        near_losses(norm, others, HALF, 1e-4, &s, "norm");
                        n++;
                    }
            }
    assert_true(n >= LAYOUTS * MESHES);
}

/* The weights beside the adapters are in parts, and in 16 bits where products are. */
static void what_is_frozen_lies_in_parts(void **state)
{
    Setting s = {"gqa", "data=2,model=2", "2d", OPTIMIZER_ADAMW, 0, CVN_F32};
    size_t bytes[2];
    for (int i = 0; i < 2; i++) {
        Trainer t;
        double loss[STEPS], norm[STEPS], other[STEPS];
        s.compute = i ? CVN_BF16 : CVN_F32;
        s.mesh = NULL;
        open_trainer(&t, &s);
        train(&t, HALF, loss, norm);
        size_t frozen = 0;
        for (int k = 0; k < t.state.model.n; k++)
            frozen += cvn_type_bytes(&runtime_buffer(&t.stage->rt, ROLE_WEIGHT, k)->type);
        trainer_close(&t);
        s.mesh = "data=2,model=2";
        open_trainer(&t, &s);
        train(&t, HALF, other, norm);
        near_losses(loss, other, HALF, i ? 5e-2 : 1e-5, &s, "loss");
        bytes[i] = 0;
        for (int k = 0; k < t.state.model.n; k++)
            bytes[i] += cvn_type_bytes(&runtime_buffer(&t.stage->rt, ROLE_WEIGHT, k)->local);
        assert_true(bytes[i] < frozen / 4 + frozen / 20);
        trainer_close(&t);
    }
    assert_int_equal(bytes[0], 2 * bytes[1]);
}

static void export(const char *run, const char *to)
{
    cvn_err err = {0};
    Checkpoint checkpoint;
    char out[256];
    snprintf(out, sizeof out, "%s", in_scratch(to));
    find(&checkpoint, run);
    must(checkpoint_export_adapter(&checkpoint, out, true, &err), &err);
    checkpoint_close(&checkpoint);
}

static void checkpoints_go_on_elsewhere_and_export_what_one_device_does(void **state)
{
    static const struct {
        const char *mesh[2], *layout[2];
    } ways[] = {{{"data=2,model=2", "data=2,model=2"}, {"2d", "2d"}},
                {{"data=2,model=2", "model=3"}, {"2d", "tp"}},
                {{"data=3,model=2", NULL}, {"fsdp+tp", NULL}},
                {{NULL, "data=4"}, {NULL, "fsdp"}}};
    Setting s = {"gqa", NULL, NULL, OPTIMIZER_ADAMW, 0, CVN_F32};
    double loss[STEPS], norm[STEPS], other[STEPS];
    Trainer t;
    open_trainer(&t, &s);
    train(&t, STEPS, loss, norm);
    save(&t, "alone");
    trainer_close(&t);
    export("alone", "peft");
    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        cvn_err err = {0};
        Checkpoint checkpoint;
        char half[32], end[32], out[32];
        snprintf(half, sizeof half, "half%zu", w);
        snprintf(end, sizeof end, "end%zu", w);
        snprintf(out, sizeof out, "peft%zu", w);
        s.mesh = ways[w].mesh[0];
        s.layout = ways[w].layout[0];
        open_trainer(&t, &s);
        train(&t, HALF, other, norm);
        save(&t, half);
        trainer_close(&t);
        s.mesh = ways[w].mesh[1];
        s.layout = ways[w].layout[1];
        open_trainer(&t, &s);
        find(&checkpoint, half);
        must(trainer_restore(&t, &checkpoint, &err), &err);
        checkpoint_close(&checkpoint);
        assert_int_equal(t.state.saved.step, HALF);
        train(&t, STEPS, other, norm);
        near_losses(loss, other, STEPS, 1e-5, &s, "loss");
        save(&t, end);
        trainer_close(&t);
        export(end, out);
        near_adapters("peft", out, 1e-3);
    }
    /* Merged into the model: from slices as from a whole. */
    cvn_err err = {0};
    Checkpoint checkpoint;
    SaveOptions options = {.dtype = CVN_F32};
    IoModel model[2];
    find(&checkpoint, "end0");
    must(checkpoint_export_merged(&checkpoint, NULL, in_scratch("merged0"), &options, &err), &err);
    checkpoint_close(&checkpoint);
    find(&checkpoint, "alone");
    must(checkpoint_export_merged(&checkpoint, NULL, in_scratch("merged"), &options, &err), &err);
    checkpoint_close(&checkpoint);
    must(io_open_model(&model[0], in_scratch("merged"), &err), &err);
    must(io_open_model(&model[1], in_scratch("merged0"), &err), &err);
    for (int i = 0; i < model[0].params.n; i++)
        for (int64_t k = 0; k < model[0].params.param[i].n; k++) {
            float x, y;
            io_decode(model[0].source[i], k, 1, &x);
            io_decode(model[1].source[i], k, 1, &y);
            assert_true(fabs((double)x - (double)y) < 1e-4);
        }
    io_close_model(&model[0]);
    io_close_model(&model[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adapters_on_a_mesh_learn_as_on_one_device),
        cmocka_unit_test(what_is_frozen_lies_in_parts),
        cmocka_unit_test(checkpoints_go_on_elsewhere_and_export_what_one_device_does),
    };
    return cmocka_run_group_tests(tests, make_scratch,
                                  getenv("CARAVAN_KEEP") ? NULL : remove_scratch);
}
