/* caravan init: a folder with random weights in the shape of a preset. */
#include "base/bytes.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "io/save.h"
#include "model/presets.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PRESET, SEED, DTYPE, CONTEXT, TOKENIZER, SHARD, FORCE, THREADS, OUTPUT };

static const Option *const options[] = {
    OPTION(PRESET, "preset", .letter = 'p', .kind = ARG_CHOICE, .required = true, .value = "NAME",
           .choice = choice_of_preset, .brief = true, .or_shape = true,
           .help = "model preset: " PRESETS_SHOWN),
    [SEED] = SHARED(SEED),
    OPTION(DTYPE, "dtype", .kind = ARG_CHOICE, .value = "TYPE", .choices = storage_choices,
           .help = "type of the weights, default the preset's"),
    OPTION(CONTEXT, "context", .kind = ARG_INT, .low = 1, .high = 1 << 30, .value = "N",
           .help = "context length, default the preset's"),
    OPTION(TOKENIZER, "tokenizer", .kind = ARG_INPUT, .value = "FILE",
           .help = "tokenizer.model or tokenizer.json to copy"),
    [SHARD] = SHARED(SHARD_SIZE),
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    OPTION(OUTPUT, "out", .letter = 'o', .kind = ARG_OUTPUT, .required = true, .value = "DIR",
           .help = "output folder"),
    NULL,
};

/* What the fill of save_folder is given: the seed first, as init_fill wants it. */
typedef struct Filling {
    uint64_t seed;
    Progress progress; /* drawn by `owner` alone */
    atomic_llong done; /* elements written, by all threads */
    pthread_t owner;
} Filling;

static void fill(void *context, const Param *param, int64_t first, int64_t n, float *out)
{
    Filling *filling = context;
    init_fill(&filling->seed, param, first, n, out);
    long long done = atomic_fetch_add(&filling->done, (long long)n) + n;
    if (pthread_equal(pthread_self(), filling->owner))
        progress_set(&filling->progress, (double)done);
}

static int run(const Args *args, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    Model *model;
    TRY(arena_begin(&arena, err));
    TRY(preset_model(args->value[PRESET].text, &model, &arena, err));
    if (args->value[CONTEXT].given)
        model_set_context(model, args->value[CONTEXT].integer);
    SaveOptions save = save_options(args, args->value[DTYPE].given ? dtype_of(&args->value[DTYPE])
                                                                   : model_dtype(model));
    save.tokenizer = args->value[TOKENIZER].text;
    const char *folder = args->value[OUTPUT].text;
    ModelSize size = model_size(model);
    Filling filling = {.seed = (uint64_t)args->value[SEED].integer,
                       .progress = progress_start("writing", (double)size.params),
                       .owner = pthread_self()};
    int code = save_folder(folder, model, &save, fill, &filling, err);
    progress_end(&filling.progress);
    TRY(code);
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_printf(&text, "%s: %s, ", folder, args->value[PRESET].text);
    strbuf_count(&text, size.params);
    strbuf_printf(&text, " random parameters in %s, %s", cvn_dtype_name(save.dtype),
                  bytes_text((double)model_bytes(model, save.dtype)).text);
    if (text.text)
        puts(text.text);
    return EXIT_OK;
}

const Command command_init = {
    "init",
    .about = "create a model with random weights",
    .usage = "--preset NAME [options] -o DIR",
    .examples = "init --preset stories15m -o my-model\ta small model for training or tests\n"
                "init --preset llama3.2-1b --seed 7 -o llama1b\ta full-size model; the same seed "
                "gives the same weights\n",
    .notes = "The result is a Hugging Face folder: config.json, generation_config.json and "
             "safetensors. Weights are written as they are generated, so the model may be larger "
             "than memory.",
    .options = options,
    .run = run,
};
