/* caravan export: what a training run has learned, as a Hugging Face folder; or a model with the modules that run it. */
#include "cli/common.h"
#include "cli/convert.h"
#include "cli/export_modules.h"
#include "cli/run_model.h"
#include "cli/terminal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    STEP,
    DTYPE,
    MERGE,
    INIT,
    SHARD,
    TOKENIZER,
    FORCE,
    THREADS,
    TO,
    BATCH,
    CONTEXT,
    SCORE,
    TRAIN,
    QUANTIZE
};

static const Option *const options[] = {
    [STEP] = SHARED(STEP),
    OPTION(DTYPE, "dtype", .kind = ARG_CHOICE, .value = "TYPE", .choices = storage_choices,
           .fallback = "bf16", .help = "type of the weights, one of"),
    OPTION(MERGE, "lora-merge", .kind = ARG_FLAG,
           .help = "merge LoRA adapters into the base model"),
    OPTION(INIT, "init", .kind = ARG_INPUT, .value = "DIR",
           .help = "base model of the adapters, default the run's"),
    [SHARD] = SHARED(SHARD_SIZE),
    OPTION(TOKENIZER, "tokenizer", .kind = ARG_INPUT, .value = "FILE",
           .help = "tokenizer to copy, default the run's"),
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    OPTION(TO, "to", .kind = ARG_CHOICE, .value = "WHAT", .choices = CHOICES("stablehlo"),
           .refuses = "step lora-merge init", .help = "export a model on disk as modules"),
    OPTION(BATCH, "batch", .letter = 'b', .kind = ARG_INT, .low = 1, .high = 1 << 20, .needs = "to",
           .value = "B", .fallback = "1", .help = "batch size of the modules"),
    OPTION(CONTEXT, "context", .letter = 'c', .kind = ARG_INT, .high = 1 << 30, .needs = "to",
           .value = "N", .fallback = "0", .help = "context length, 0: the model's"),
    OPTION(SCORE, "score", .kind = ARG_FLAG, .needs = "to",
           .help = "also export modules that score texts"),
    OPTION(TRAIN, "train", .kind = ARG_INT, .high = 1 << 30, .needs = "to", .value = "SEQ",
           .fallback = "0", .help = "also export a training step of sequence length SEQ"),
    OPTION(QUANTIZE, "quantize", .letter = 'q', .kind = ARG_CHOICE, .value = "HOW",
           .choice = quant_name, .alias = weight_type_alias,
           .help = "quantize the weights, with GGUF types if OUT is *.gguf, to"),
    SHARED(TEXT_ONLY),
    NULL,
};

/* A model's folder, or a copy of it in 8 or 4 bits, and its modules in there. */
static int run_modules(const Args *args, cvn_err *err)
{
    const char *from = args->operand[0], *to = args->operand[1];
    const Value *v = args->value;
    SCOPED(io_close_model) IoModel model = {0};
    TRY(io_open_as(&model, from, args_value(args, SHARED(TEXT_ONLY))->flag ? IO_TEXT_ONLY : 0,
                   err));
    SaveOptions save = save_options(args, dtype_of(&v[DTYPE]));
    const ModulesAsk ask = {.compute = save.dtype == CVN_F32 ? CVN_F32 : CVN_BF16,
                            .batch = v[BATCH].integer,
                            .context =
                                v[CONTEXT].integer ? v[CONTEXT].integer : model_context(model.desc),
                            .score = v[SCORE].flag,
                            .train_seq = v[TRAIN].integer};
    QuantScheme scheme;
    TRY(quant_parse(v[QUANTIZE].text, &scheme, err));
    if (scheme.kind == QUANT_BLOCKS)
        return err_set(err, CVN_EINVAL, "modules do not take weights in %s; give int8 or int4",
                       v[QUANTIZE].text);
    if (ask.train_seq && scheme.kind != QUANT_NONE)
        return err_set(err, CVN_EINVAL,
                       "training supports f32 and bf16 only; leave out --quantize or --train");
    save.tokenizer = v[TOKENIZER].text;
    save.tokenizer_folder = save.tokenizer || model.kind == IO_KIND_GGUF ? NULL : from;
    TRY(scheme.kind != QUANT_NONE ? convert_quantized(args, from, NULL, to, v[QUANTIZE].text,
                                                      save.dtype, save.tokenizer, err)
                                  : save_model(to, &model, &save, err));
    TRY(export_modules(to, &ask, err));
    printf("%s: %s and its modules, in %s\n", to, from, v[DTYPE].text);
    return EXIT_OK;
}

/* A path without slashes at its end, in the arena. */
static char *trimmed(const char *path, Arena *arena)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return arena_stringn(arena, path, n);
}

/* What a run has learned, in fewer bits: its weights as they are go into a folder beside OUT, which is converted. */
static int export_quantized(const Args *args, const Checkpoint *checkpoint, bool merge,
                            SaveOptions save, cvn_err *err)
{
    const char *to = args->operand[1];
    const cvn_dtype dtype = save.dtype;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    const char *floats = arena_printf(&arena, "%s.floats", trimmed(to, &arena));
    const char *name = trimmed(args->operand[0], &arena), *slash = strrchr(name, '/');
    save.dtype = CVN_F32;
    TRY(file_remove_folder(floats, err));
    int code =
        merge ? checkpoint_export_merged(checkpoint, args->value[INIT].text, floats, &save, err)
              : checkpoint_export(checkpoint, floats, &save, err);
    if (code == CVN_OK)
        code = convert_quantized(args, floats, slash ? slash + 1 : name, to,
                                 args->value[QUANTIZE].text, dtype, NULL, err);
    file_remove_folder(floats, NULL);
    return code;
}

static int run(const Args *args, cvn_err *err)
{
    if (args->value[TO].given)
        return run_modules(args, err);
    Checkpoint checkpoint = {0};
    const char *from = args->operand[0], *to = args->operand[1];
    SaveOptions save = save_options(args, dtype_of(&args->value[DTYPE]));
    save.tokenizer = args->value[TOKENIZER].text;
    TRY(find_checkpoint(&checkpoint, from, &args->value[STEP], err));
    CLEANUP(checkpoint_release, &checkpoint);
    bool lora = checkpoint_is_lora(&checkpoint), merge = args->value[MERGE].flag;
    if (!lora && merge)
        return err_set(err, CVN_EINVAL,
                       "'%s' is a full model, not an adapter; leave out --lora-merge", from);
    QuantScheme scheme;
    TRY(quant_parse(args->value[QUANTIZE].text, &scheme, err));
    if (lora && !merge && scheme.kind != QUANT_NONE)
        return err_set(err, CVN_EINVAL,
                       "adapters cannot be quantized; merge them with --lora-merge");
    if (scheme.kind != QUANT_NONE) {
        TRY(export_quantized(args, &checkpoint, merge, save, err));
        printf("%s: step %" PRId64 " of %s, in %s\n", to, checkpoint.manifest.step, from,
               args->value[QUANTIZE].text);
        return EXIT_OK;
    }
    TRY(!lora   ? checkpoint_export(&checkpoint, to, &save, err)
        : merge ? checkpoint_export_merged(&checkpoint, args->value[INIT].text, to, &save, err)
                : checkpoint_export_adapter(&checkpoint, to, save.force, err));
    printf("%s: %sstep %" PRId64 " of %s, in %s\n", to, lora && !merge ? "adapters of " : "",
           checkpoint.manifest.step, from, cvn_dtype_name(lora && !merge ? CVN_F32 : save.dtype));
    return EXIT_OK;
}

const Command command_export = {
    "export",
    .about = "export a checkpoint as a model, or a model as StableHLO",
    .usage = "RUN OUT [options], caravan export MODEL OUT --to stablehlo [options]",
    .examples = "export RUN my-model\tthe newest checkpoint of a run in bf16\n"
                "export RUN my-model --step 2000 --dtype f32\tan older one in f32\n"
                "export RUN merged --lora-merge\tLoRA adapters merged into the base model\n"
                "export RUN small.gguf --quantize q4_k_m\t4-bit GGUF\n"
                "export RUN/checkpoints/step-00002000 my-model\tthe same, by its folder\n"
                "export my-model out --to stablehlo\tStableHLO modules for JAX\n",
    .notes = "The run may be in progress: checkpoints appear when they are complete. The result "
             "loads in transformers, vLLM, llama.cpp's converter and `caravan generate --model`: "
             "config.json, generation_config.json, safetensors and the tokenizer. A run with "
             "--lora gives a PEFT folder: adapter_config.json and adapter_model.safetensors. --to "
             "stablehlo writes a model on disk with modules for prefill and decoding and their "
             "signature.json; docs/ACCELERATORS.md runs one in JAX.",
    .operands = "RUN and OUT",
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .run = run,
};
