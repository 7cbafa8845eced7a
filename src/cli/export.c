/* caravan export: what a training run has learned, as a Hugging Face folder. */
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <stdio.h>

enum { STEP, DTYPE, MERGE, INIT, SHARD, TOKENIZER, FORCE, THREADS };

static const Option *const options[] = {
    [STEP] = SHARED(STEP),
    [DTYPE] =
        &(const Option){"dtype", .kind = ARG_CHOICE, .value = "TYPE", .choices = storage_choices,
                        .fallback = "bf16", .help = "type of the weights, one of"},
    [MERGE] = &(const Option){"lora-merge", .kind = ARG_FLAG,
                              .help = "adapters merged into their model, else as a PEFT folder"},
    [INIT] = &(const Option){"init", .kind = ARG_INPUT, .value = "DIR",
                             .help = "the model that they adapt, else the one the run began from"},
    [SHARD] = SHARED(SHARD_SIZE),
    [TOKENIZER] = &(const Option){"tokenizer", .kind = ARG_INPUT, .value = "FILE",
                                  .help = "tokenizer to copy, else the one the run has"},
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    NULL,
};

static void close_checkpoint(void *checkpoint)
{
    checkpoint_close(checkpoint);
}

static int run(const Args *args)
{
    cvn_err err = {0};
    Checkpoint checkpoint;
    Held held;
    const char *from = args->operand[0], *to = args->operand[1];
    SaveOptions save = save_options(args, dtype_of(&args->value[DTYPE]));
    save.tokenizer = args->value[TOKENIZER].text;
    if (find_checkpoint(&checkpoint, from, &args->value[STEP], &err))
        return fail(&err);
    hold(&held, close_checkpoint, &checkpoint);
    int64_t at = checkpoint.manifest.step;
    bool lora = checkpoint_is_lora(&checkpoint), merge = args->value[MERGE].flag;
    int code;
    if (!lora && merge)
        code = err_set(&err, CVN_EINVAL,
                       "'%s' holds a whole model, no adapters; leave out "
                       "--lora-merge",
                       from);
    else if (!lora)
        code = checkpoint_export(&checkpoint, to, &save, &err);
    else if (merge)
        code = checkpoint_export_merged(&checkpoint, args->value[INIT].text, to, &save, &err);
    else
        code = checkpoint_export_adapter(&checkpoint, to, save.force, &err);
    held_release(&held);
    if (code)
        return fail(&err);
    printf("%s: %sstep %" PRId64 " of %s, in %s\n", to, lora && !merge ? "adapters of " : "", at,
           from, cvn_dtype_name(lora && !merge ? CVN_F32 : save.dtype));
    return EXIT_OK;
}

const Command command_export = {
    "export",
    .about = "write what a training run has learned as a Hugging Face folder",
    .usage = "RUN OUT [options]",
    .examples = "export RUN my-model\tthe newest checkpoint of a run, in bf16\n"
                "export RUN my-model --step 2000 --dtype f32\tan older one, exactly as trained\n"
                "export RUN merged --lora-merge\tadapters, merged into their model\n"
                "export RUN/checkpoints/step-00002000 my-model\tthe same, by its folder\n",
    .notes = "The run may be in progress: checkpoints are whole or not there. The result is what "
             "transformers, vLLM, llama.cpp's converter and `caravan generate --model` take: "
             "config.json, generation_config.json, safetensors and the tokenizer. Of a run with "
             "--lora it is what PEFT takes: adapter_config.json and adapter_model.safetensors.",
    .operands = "RUN and OUT",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .run = run,
};
