/* Training with LoRA against PEFT and torch (tests/oracles/lora.py), and what it leaves on the disk. */
#include "io/convert.h"
#include "io/safetensors.h"
#include "io_support.h"
#include "learn.h"
#include "train/checkpoint/export.h"
#include "train/trainer.h"

#include <jansson.h>
#include <math.h>

#define MODEL CVN_TEST_DATA "/llama/gqa"
#define LORA CVN_TEST_DATA "/lora"

enum { ROWS = 4, SEQ = 32, STEPS = 40 };

/* The tensors of a PEFT folder. */
typedef struct Adapter {
    Arena arena;
    FileMap map;
    IoTensors tensors;
} Adapter;

static void open_adapter(Adapter *adapter, const char *folder)
{
    cvn_err err = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    must(arena_init(&adapter->arena, &err), &err);
    io_tensors_init(&adapter->tensors, &adapter->arena);
    must(file_map(&adapter->map, path, &err), &err);
    must(st_read(&adapter->tensors, path, adapter->map.data, adapter->map.size, NULL, &err), &err);
}

static void close_adapter(Adapter *adapter)
{
    file_unmap(&adapter->map);
    arena_free(&adapter->arena);
}

static void open_trainer(Trainer *t, cvn_dtype compute, int64_t micro_batch)
{
    cvn_err err = {0};
    IoModel model;
    Adapter start;
    const char *base;
    TrainerOptions options = {.batch = ROWS,
                              .micro_batch = micro_batch,
                              .seq = SEQ,
                              .compute = compute,
                              .clip = 1,
                              .threads = 1,
                              .evaluates = true,
                              .optimizer = optimizer_defaults(OPTIMIZER_ADAMW, 1),
                              .schedule = {.kind = SCHEDULE_CONSTANT, .steps = STEPS}};
    options.optimizer.lr = 1e-2;
    open_adapter(&start, LORA "/start");
    must(lora_config_read(&options.lora, &base, LORA "/start", &start.arena, &err), &err);
    assert_null(base);
    must(io_open_model(&model, MODEL, &err), &err);
    must(trainer_open(t, model.desc, &options, &err), &err);
    must(trainer_from_model(t, &model, &err), &err);
    io_close_model(&model);
    assert_int_equal(t->state.n_weights, start.tensors.n);
    for (int i = 0; i < t->state.n_weights; i++) {
        const CheckpointTensor *to = &t->state.saved.tensor[i];
        const IoTensor *from = io_tensors_find(&start.tensors, to->name);
        if (!from || from->bytes != cvn_type_bytes(&to->type))
            fail_msg("PEFT has no %s of our size", to->name);
        memcpy(to->data, from->data, from->bytes);
    }
    close_adapter(&start);
}

static void train(Trainer *t, int64_t until, double *loss, double *norm)
{
    learn(t, until, fill_chains, loss, norm);
}

static void losses_and_adapters_are_those_of_peft(void **state)
{
    json_t *json = json_load_file(LORA "/curve.json", 0, NULL);
    static const struct {
        cvn_dtype compute;
        int64_t micro_batch;
        double tolerance;
    } way[] = {{CVN_F32, 0, 1e-4},
               {CVN_F32, 2, 1e-4},
               {CVN_BF16, 0, 8e-2}}; /* rounding moves a model of random weights that far */
    for (int w = 0; w < 3; w++) {
        Trainer t;
        double loss[STEPS], norm[STEPS], most = 0, largest = 0;
        open_trainer(&t, way[w].compute, way[w].micro_batch);
        train(&t, STEPS, loss, norm);
        for (size_t i = 0; i < STEPS; i++)
            most =
                fmax(most, fabs(loss[i] -
                                json_real_value(json_array_get(json_object_get(json, "loss"), i))));
        double first = json_real_value(json_array_get(json_object_get(json, "grad_norm"), 0));
        Adapter end;
        open_adapter(&end, LORA "/end");
        for (int i = 0; i < t.state.n_weights; i++) {
            const CheckpointTensor *tensor = &t.state.saved.tensor[i];
            const IoTensor *want = io_tensors_find(&end.tensors, tensor->name);
            for (int64_t k = 0; k < want->n; k++) {
                float value;
                io_decode(want, k, 1, &value);
                largest = fmax(largest, fabs((double)(((float *)tensor->data)[k] - value)));
            }
        }
        print_message("%s, micro-batch %d: losses differ by up to %.2g, adapters by %.2g\n",
                      cvn_dtype_name(way[w].compute), (int)way[w].micro_batch, most, largest);
        assert_true(most <= way[w].tolerance);
        if (way[w].compute == CVN_F32) {
            assert_true(largest < 2e-3);
            assert_true(fabs(norm[0] - first) < 1e-5 * first);
        }
        close_adapter(&end);
        trainer_close(&t);
    }
    json_decref(json);
}

static char **copy_adapters(const Trainer *t)
{
    char **copy = calloc((size_t)t->state.n_weights, sizeof *copy);
    for (int i = 0; i < t->state.n_weights; i++) {
        const CheckpointTensor *from = &t->state.saved.tensor[i];
        copy[i] = malloc(cvn_type_bytes(&from->type));
        memcpy(copy[i], from->data, cvn_type_bytes(&from->type));
    }
    return copy;
}

/* With these adapters, which the trainer gets: whatever else has a part in it is the model, however it lies. */
static double loss_with(Trainer *t, char *const *adapter)
{
    cvn_err err = {0};
    int32_t tokens[ROWS * SEQ], targets[ROWS * SEQ], starts[ROWS * SEQ] = {0};
    double sum = 0, count = 0;
    fill_chains(t, 0, tokens, targets);
    for (int i = 0; i < t->state.n_weights; i++) {
        const CheckpointTensor *to = &t->state.saved.tensor[i];
        memcpy(to->data, adapter[i], cvn_type_bytes(&to->type));
    }
    must(trainer_evaluate(t, &(TrainBatch){.tokens = tokens, .targets = targets, .starts = starts},
                          &sum, &count, &err),
         &err);
    return sum / count;
}

static void the_model_itself_is_not_changed(void **state)
{
    Trainer t;
    double loss[STEPS], norm[STEPS];
    open_trainer(&t, CVN_BF16, 0);
    size_t n = (size_t)t.state.n_weights, frozen = 0, all = 0;
    char **first = copy_adapters(&t);
    double before = loss_with(&t, first);
    train(&t, 3, loss, norm);
    char **trained = copy_adapters(&t);
    assert_true(loss_with(&t, trained) != before);
    assert_true(loss_with(&t, first) == before);
    /* Adapters, two averages of them, and not the model, are what a checkpoint holds. */
    for (int i = 0; i < t.state.model.n; i++)
        frozen += cvn_type_bytes(&runtime_buffer(&t.stage->rt, ROLE_WEIGHT, i)->type);
    for (int i = 0; i < t.state.saved.n; i++)
        all += cvn_type_bytes(&t.state.saved.tensor[i].type);
    assert_true(all < frozen);
    for (size_t i = 0; i < n; i++) {
        free(first[i]);
        free(trained[i]);
    }
    free(first);
    free(trained);
    trainer_close(&t);
}

static void checkpoints_are_peft_folders_and_resume_exactly(void **state)
{
    Trainer t;
    cvn_err err = {0};
    Checkpoint checkpoint;
    double loss[STEPS], norm[STEPS], again[STEPS];
    char run[256], out[256];
    snprintf(run, sizeof run, "%s", in_scratch("run"));
    open_trainer(&t, CVN_F32, 0);
    CheckpointOptions options = {.copy_limit = UINT64_MAX,
                                 .file_bytes = 100,
                                 .config = t.model,
                                 .lora = &t.options.lora,
                                 .base = MODEL};
    CheckpointWriter *writer = checkpoint_writer_new(run, 0, &options, &err);
    must(writer ? CVN_OK : err.code, &err);
    train(&t, 5, loss, norm);
    must(checkpoint_save(writer, &t.state.saved, &err), &err);
    train(&t, 8, loss, norm);
    must(checkpoint_wait(writer, &err), &err);
    checkpoint_writer_free(writer);
    trainer_close(&t);

    must(checkpoint_find(&checkpoint, run, -1, NULL, NULL, &err), &err);
    assert_true(checkpoint_is_lora(&checkpoint));
    open_trainer(&t, CVN_F32, 0);
    must(trainer_restore(&t, &checkpoint, &err), &err);
    train(&t, 8, again, norm);
    for (int i = 5; i < 8; i++)
        assert_true(loss[i] == again[i]);
    must(trainer_restore(&t, &checkpoint, &err), &err);

    /* As PEFT has it: the names and shapes of its own file, and a config that reads back. */
    snprintf(out, sizeof out, "%s", in_scratch("adapter"));
    must(checkpoint_export_adapter(&checkpoint, out, false, &err), &err);
    assert_int_equal(checkpoint_export_adapter(&checkpoint, out, false, NULL), CVN_EIO);
    Adapter ours, peft;
    LoraOptions lora;
    const char *base;
    open_adapter(&ours, out);
    open_adapter(&peft, LORA "/end");
    assert_int_equal(ours.tensors.n, peft.tensors.n);
    for (size_t i = 0; i < peft.tensors.n; i++) {
        const IoTensor *want = &peft.tensors.tensor[i];
        const IoTensor *got = io_tensors_find(&ours.tensors, want->name);
        if (!got || got->dtype != want->dtype || got->rank != want->rank ||
            memcmp(got->dims, want->dims, sizeof want->dims) != 0)
            fail_msg("no %s as PEFT has it", want->name);
    }
    must(lora_config_read(&lora, &base, out, &ours.arena, &err), &err);
    assert_string_equal(base, MODEL);
    assert_memory_equal(&lora, &t.options.lora, sizeof lora);
    close_adapter(&ours);
    close_adapter(&peft);

    /* Merged: the weights of every kind, adapted or not. */
    SaveOptions save = {.dtype = CVN_F32};
    must(checkpoint_export_merged(&checkpoint, NULL, in_scratch("merged"), &save, &err), &err);
    IoModel model, merged;
    must(io_open_model(&model, MODEL, &err), &err);
    must(io_open_model(&merged, in_scratch("merged"), &err), &err);
    for (int i = 0; i < model.params.n; i++) {
        int64_t n = model.params.param[i].n;
        float *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
        io_decode(model.source[i], 0, n, want);
        io_decode(merged.source[i], 0, n, got);
        int a = t.state.adapters.a[i];
        if (a >= 0)
            lora_merge(&(LoraProduct){t.state.saved.tensor[a].data,
                                      t.state.saved.tensor[a + 1].data, t.options.lora.rank,
                                      model.params.param[i].file_dims[1],
                                      t.options.lora.alpha / (double)t.options.lora.rank},
                       0, n, want);
        assert_memory_equal(want, got, (size_t)n * sizeof *want);
        free(want);
        free(got);
    }
    io_close_model(&model);
    io_close_model(&merged);
    err = (cvn_err){0};
    assert_int_equal(checkpoint_export_merged(&checkpoint, CVN_TEST_DATA "/llama/tied",
                                              in_scratch("other"), &save, &err),
                     CVN_EFORMAT);
    assert_non_null(strstr(err.message, "do not fit the model"));
    checkpoint_close(&checkpoint);
    trainer_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_and_adapters_are_those_of_peft),
        cmocka_unit_test(the_model_itself_is_not_changed),
        cmocka_unit_test(checkpoints_are_peft_folders_and_resume_exactly),
    };
    return cmocka_run_group_tests(tests, make_scratch,
                                  getenv("CARAVAN_KEEP") ? NULL : remove_scratch);
}
