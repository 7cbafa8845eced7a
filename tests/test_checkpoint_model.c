/* A checkpoint of a real model is a Hugging Face folder; exporting it keeps the weights. */
#include "train/checkpoint/export.h"

#include "base/float16.h"
#include "io/convert.h"
#include "model/presets.h"
#include "model_make.h"
#include "shell.h"
#include "train/trainer.h"
#include "unit.h"

/* RUN with checkpoints of steps 7 (seed 1) and 9 (seed 2), in files of at most file_bytes. */
static void make_run(Trainer *t, const char *run, uint64_t file_bytes)
{
    cvn_err err = {0};
    const Model *config = model_preset("tiny");
    const TrainerOptions of_trainer = {.batch = 1,
                                       .seq = 8,
                                       .compute = CVN_F32,
                                       .optimizer = optimizer_defaults(OPTIMIZER_ADAFACTOR, 1),
                                       .schedule = {.kind = SCHEDULE_CONSTANT, .steps = 9}};
    must(trainer_open(t, config, &of_trainer, &err), &err);
    CheckpointOptions options = {.config = config,
                                 .tokenizer = CVN_TEST_DATA "/chat/tokenizer.json",
                                 .file_bytes = file_bytes,
                                 .copy_limit = UINT64_MAX};
    CheckpointWriter *writer = checkpoint_writer_new(run, 0, &options, &err);
    for (uint64_t seed = 1; seed <= 2 && writer; seed++) {
        must(trainer_random(t, seed, &err), &err);
        t->state.saved.step = 5 + 2 * (int64_t)seed;
        must(checkpoint_save(writer, &t->state.saved, &err), &err);
        must(checkpoint_wait(writer, &err), &err);
    }
    assert_non_null(writer);
    checkpoint_writer_free(writer);
}

/* Every weight of a folder is that of the state, as f32 or rounded to bf16. */
static void expect_weights(const char *folder, const TrainState *state, cvn_dtype dtype)
{
    cvn_err err = {0};
    IoModel model;
    must(io_open_model(&model, folder, &err), &err);
    assert_int_equal(model.params.n, state->n_weights);
    for (int i = 0; i < state->n_weights; i++) {
        const IoTensor *tensor = model.source[i];
        const float *want = state->saved.tensor[i].data;
        assert_int_equal(tensor->dtype, dtype);
        assert_int_equal(tensor->n, cvn_type_elements(&state->saved.tensor[i].type));
        for (int64_t k = 0; k < tensor->n; k++) {
            float got;
            io_decode(tensor, k, 1, &got);
            float expected = dtype == CVN_BF16 ? bf16_to_f32(bf16_from_f32(want[k])) : want[k];
            if (got != expected)
                fail_msg("%s[%d]: %g, expected %g", tensor->name, (int)k, (double)got,
                         (double)expected);
        }
    }
    io_close_model(&model);
}

static void a_checkpoint_is_a_model_and_exports_as_one(void **unused)
{
    (void)unused;
    static const uint64_t file_bytes[] = {0, 20000};
    for (int i = 0; i < 2; i++) {
        Trainer t;
        char run[256];
        snprintf(run, sizeof run, "%s%d", in_scratch("run"), i);
        make_run(&t, run, file_bytes[i]);
        char folder[300];
        snprintf(folder, sizeof folder, "%s/checkpoints/step-00000009", run);
        expect_weights(folder, &t.state, CVN_F32);
        Checkpoint checkpoint;
        cvn_err err = {0};
        must(checkpoint_find(&checkpoint, folder, -1, NULL, NULL, &err), &err);
        SaveOptions save = {.dtype = CVN_F32, .force = true};
        must(checkpoint_export(&checkpoint, in_scratch("f32"), &save, &err), &err);
        save.dtype = CVN_BF16;
        must(checkpoint_export(&checkpoint, in_scratch("bf16"), &save, &err), &err);
        checkpoint_close(&checkpoint);
        expect_weights(in_scratch("f32"), &t.state, CVN_F32);
        expect_weights(in_scratch("bf16"), &t.state, CVN_BF16);
        assert_true(file_exists(in_scratch("bf16/tokenizer.json")));
        assert_false(file_exists(in_scratch("bf16/optimizer.safetensors")));
        must(checkpoint_find(&checkpoint, run, 7, NULL, NULL, &err), &err);
        must(checkpoint_export(&checkpoint, in_scratch("older"), &save, &err), &err);
        checkpoint_close(&checkpoint);
        must(trainer_random(&t, 1, &err), &err);
        expect_weights(in_scratch("older"), &t.state, CVN_BF16);
        assert_int_equal(checkpoint_find(&checkpoint, run, 8, NULL, NULL, &err), CVN_EIO);
        assert_non_null(strstr(err.message, "has no checkpoint of step 8"));
        trainer_close(&t);
    }
}

static void the_command_exports_and_the_program_reads_it(void **unused)
{
    (void)unused;
    expect(0, "caravan export run0 out", "out: step 9 of run0, in bf16");
    expect(0, "caravan generate --model out --prompt a -n 3 --temperature 0 2>&1", "");
    expect(0, "caravan generate --model run0/checkpoints/step-00000009 --prompt a -n 3 2>&1", "");
    expect(1, "caravan export run0 out 2>&1", "is not empty; give another folder or --force");
    expect(0, "caravan export run0/checkpoints/step-00000007 out --force --dtype f32",
           "out: step 7 of run0/checkpoints/step-00000007, in f32");
    expect(0, "caravan export run0 small --quantize int8 --dtype f32",
           "small: step 9 of run0, in int8");
    expect(0,
           "caravan export run0 nine --dtype f32 && caravan convert nine exact --type int8 && cmp "
           "small/model.safetensors "
           "exact/model.safetensors && ! ls | grep floats && echo same",
           "same\n");
    expect(
        0,
        "caravan export run0 small.gguf -q q8_0 && caravan generate -m small.gguf -p a -n 3 2>&1",
        "small.gguf: step 9 of run0, in q8_0");
    expect(1, "caravan export run0 blocks -q q4_0 2>&1",
           "q4_0 does not exist in Hugging Face folders");
    expect(0, "! ls | grep -E 'blocks|floats' && echo none", "none\n");
    expect(1, "caravan export run0 small -q int4 2>&1", "is not empty");
    expect(1, "caravan export nowhere out2 2>&1", "there is no folder 'nowhere'");
    expect(2, "caravan export run0 2>&1", "");
    expect(0,
           "printf x | dd of=run0/checkpoints/step-00000009/model.safetensors bs=1 seek=9000 "
           "conv=notrunc 2>/dev/null; caravan export run0 out3 2>&1",
           "warning: 'run0/checkpoints/step-00000009/model.safetensors' is corrupt");
    expect(0, "caravan export run0 out4 2>/dev/null", "out4: step 7 of run0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_checkpoint_is_a_model_and_exports_as_one),
        cmocka_unit_test(the_command_exports_and_the_program_reads_it),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
