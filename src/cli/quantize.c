/* caravan quantize: a model with its matrices in 8 or 4 bits. */
#include "base/bytes.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "io/save.h"
#include "text/tokenizer.h"

#include <stdlib.h>

enum { TO, SHARD, FORCE, THREADS };

static const Option *const options[] = {
    [TO] =
        &(const Option){"to", .kind = ARG_CHOICE, .value = "HOW",
                        .choices = CHOICES("int8", "int4", "int4:32", "int4:64", "int4:128"),
                        .required = true, .help = "bits of a weight and, of 4, the group, one of"},
    [SHARD] = SHARED(SHARD_SIZE),
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    NULL,
};

/* Bytes of all parameters. */
static double size_of(const LlamaConfig *config, cvn_dtype dtype)
{
    Arena arena;
    ParamList params;
    double bytes = 0;
    if (arena_begin(&arena, NULL))
        return 0;
    params_list(&params, config, &arena);
    for (int i = 0; i < params.n; i++)
        bytes += (double)param_bytes(&params.param[i], dtype);
    arena_free(&arena);
    return bytes;
}

static int run(const Args *args)
{
    cvn_err err = {0};
    IoModel model;
    const char *from = args->operand[0], *to = args->operand[1];
    if (io_open_model(&model, from, &err))
        return fail(&err);
    QuantScheme quant;
    SaveOptions save = save_options(args, model.config.dtype);
    save.tokenizer_folder = model.kind == IO_KIND_GGUF ? NULL : from;
    double before = size_of(&model.config, save.dtype);
    bool failed = quant_parse(args->value[TO].text, &quant, &err) ||
                  save_model_quantized(to, &model, quant, &save, &err);
    if (!failed && model.kind == IO_KIND_GGUF) {
        cvn_err none = {0}; /* without a tokenizer it is a model still */
        if (tokenizer_copy(from, to, &none))
            fprintf(stderr, "caravan: %s has no tokenizer: %s\n", to, none.message);
    }
    if (!failed) {
        LlamaConfig config = model.config;
        config.quant = quant;
        char name[16];
        printf("%s: %s in %s, %s instead of %s\n", to, from, quant_text(quant, name, sizeof name),
               bytes_text(size_of(&config, save.dtype)).text, bytes_text(before).text);
    }
    io_close_model(&model);
    return failed ? fail(&err) : EXIT_OK;
}

const Command command_quantize = {
    "quantize",
    .about = "write a model with its matrices in 8 or 4 bits",
    .usage = "MODEL OUT --to HOW [options]",
    .examples =
        "quantize my-llama my-llama-int8 --to int8\thalf the bytes of bf16, nearly the same "
        "text\n"
        "quantize my-llama small --to int4:32\ta quarter, a scale for every 32 weights\n",
    .notes =
        "MODEL is a Hugging Face or Meta folder or a GGUF file; it is read once, a matrix at a "
        "time. OUT is a folder that is read in place: q, k, v, o, gate, up, down and the output "
        "head in the bytes that the products stream, norms and the embedding as they were. "
        "int4 is int4:64. docs/QUANTIZATION.md says what it costs in quality.",
    .operands = "MODEL and OUT",
    .model_first = true,
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .run = run,
};
