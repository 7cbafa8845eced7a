/* caravan convert: a model from one file format into another; and by another name, caravan quantize, into a folder in 8 or
   4 bits. */
#include "cli/convert.h"
#include "base/json_file.h"
#include "base/num.h"
#include "cli/calibrated.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "io/card.h"
#include "io/formats.h"
#include "io/save.h"
#include "text/gguf_write.h"
#include "text/tokenizer_config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { TYPE, SHARD, FORCE, THREADS, TEXT_ONLY, CALIBRATE, TOKENS, BITS, TO, SHARDS };

static const struct {
    const char *name;
    int (*make)(Out *out, const FormatOptions *options, cvn_err *err);
    bool file; /* OUT is a file, not a folder */
} formats[] = {{"hf", format_hf, false},
               {"meta", format_meta, false},
               {"gguf", format_gguf, true},
               {"llama2c", format_llama2c, true},
               {"llama2c-v0", format_llama2c_v0, true}};
enum { HF, META, GGUF, LLAMA2C, LLAMA2C_V0, FORMATS };

static const char *format_name(size_t i)
{
    return i < FORMATS ? formats[i].name : NULL;
}

#define CALIBRATION                                                                                \
    OPTION(CALIBRATE, "calibrate", .kind = ARG_INPUT, .optional = true, .value = "FILE",           \
           .help = "calibrate the quantization on a text; without FILE on generated text"),        \
        OPTION(TOKENS, "calibration-tokens", .kind = ARG_INT, .low = 2, .high = 1 << 24,           \
               .needs = "calibrate", .value = "N", .fallback = "16384",                            \
               .help = "number of calibration tokens"),                                            \
        OPTION(BITS, "bits", .kind = ARG_REAL, .low = 4, .high = 9, .needs = "calibrate",          \
               .value = "B",                                                                       \
               .help = "int4: maximum mean bits per weight of layers, default 0.35 above int4")

static const Option *const options[] = {
    OPTION(TYPE, "type", .kind = ARG_CHOICE, .value = "TYPE", .choice = weight_type_name,
           .alias = weight_type_alias,
           .help =
               "type of the weights, default that of IN; gguf also q8_0 to mxfp4, hf also int8, "
               "int4 and fp8 (docs/QUANTIZATION.md)"),
    [SHARD] = SHARED(SHARD_SIZE),
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    [TEXT_ONLY] = SHARED(TEXT_ONLY),
    CALIBRATION,
    OPTION(TO, "to", .kind = ARG_CHOICE, .value = "FORMAT", .choice = format_name,
           .help = "file format of OUT, default gguf for *.gguf, llama2c for *.bin, else hf"),
    OPTION(SHARDS, "shards", .kind = ARG_INT, .low = 1, .high = 63, .value = "N", .fallback = "1",
           .help = "number of files of a Meta folder"),
    NULL,
};

/* Of the other name: the first of those above. */
static const Option *const options_of_quantize[] = {
    OPTION(TYPE, "to", .kind = ARG_CHOICE, .value = "HOW",
           .choices = CHOICES("int8", "int4", "int4:32", "int4:64", "int4:128", "fp8"),
           .required = true, .help = "type of the weights, int4 with its group size, one of"),
    [SHARD] = SHARED(SHARD_SIZE),
    [FORCE] = SHARED(FORCE),
    [THREADS] = SHARED(THREADS),
    [TEXT_ONLY] = SHARED(TEXT_ONLY),
    CALIBRATION,
    NULL,
};

/* A conversion, and where it is filled: a folder beside OUT, which an attempt that ended early leaves to the next. */
typedef struct Convert {
    const Value *value;              /* of the options above */
    const char *tokenizer;           /* a file of one, or NULL: IN's */
    const char *name;                /* of the model; NULL: what IN is called */
    const char *from, *to, *staging; /* arena */
    IoModel model;
    Arena arena;
    int format;
    FormatOptions format_options;
    GgufKeys keys; /* the tokenizer's, of GGUF */
    Out out;
    cvn_err no_tokenizer; /* why OUT has none, if so */
    bool resumed;
} Convert;

#define RECORD ".source"

/* What is converted into what: an attempt is gone on with where all of it is the same. */
static int put_record(const Convert *c, StrBuf *text, cvn_err *err)
{
    const IoTensors *list = &c->model.tensors;
    const char *last = NULL;
    strbuf_printf(text, "%s %s %d %.0f\n", formats[c->format].name, c->format_options.type->name,
                  c->format_options.shards, (double)c->format_options.shard_bytes);
    if (c->value[CALIBRATE].given)
        strbuf_printf(text, "calibrated by %lld tokens of '%s', %g bits\n",
                      (long long)c->value[TOKENS].integer, c->value[CALIBRATE].text,
                      c->value[BITS].real);
    for (size_t i = 0; i < list->n; i++) {
        const IoTensor *t = &list->tensor[i];
        struct stat s;
        if (t->file == last)
            continue;
        last = t->file;
        if (stat(t->file, &s) != 0)
            return err_set(err, CVN_EIO, "cannot stat '%s': %s", t->file, strerror(errno));
        strbuf_printf(text, "%s %lld %lld.%09ld\n", t->file, (long long)s.st_size,
                      (long long)s.st_mtim.tv_sec, (long)s.st_mtim.tv_nsec);
    }
    return text->failed ? err_set(err, CVN_EMEM, "no memory for a record") : CVN_OK;
}

static int open_staging(Convert *c, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf record = {0};
    FileMap map = {0};
    const FilePath path = file_path(c->staging, RECORD);
    TRY(put_record(c, &record, err));
    c->resumed = file_exists(path.text) && !file_map(&map, path.text, NULL) &&
                 map.size == record.length && memcmp(map.data, record.text, map.size) == 0;
    file_unmap(&map);
    if (c->resumed)
        return CVN_OK;
    TRY(file_remove_folder(c->staging, err));
    TRY(file_make_folder(c->staging, err));
    return file_write(path.text, record.text, record.length, err);
}

/* Whole now: under its name. */
static int commit(Convert *c, cvn_err *err)
{
    const FilePath record = file_path(c->staging, RECORD);
    const FilePath file =
        file_path(c->staging, c->format_options.file ? c->format_options.file : "");
    const char *from = formats[c->format].file ? file.text : c->staging;
    if (!formats[c->format].file && remove(record.text) != 0)
        return err_set(err, CVN_EIO, "cannot remove '%s': %s", record.text, strerror(errno));
    TRY(file_sync_folder(c->staging, err));
    if (!formats[c->format].file && file_exists(c->to) && !file_folder_is_empty(c->to))
        return save_move_into(c->staging, c->to, &c->arena, err);
    if (rename(from, c->to) != 0)
        return err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", from, c->to,
                       strerror(errno));
    return formats[c->format].file ? file_remove_folder(c->staging, err) : CVN_OK;
}

/* ---- what stands beside the weights ---- */

/* What a GGUF file says of its tokenizer beyond the tokens. */
static int write_tokenizer_config(Convert *c, cvn_err *err)
{
    Tokenizer *t;
    TRY(tokenizer_open(c->from, &t, err));
    int code = tokenizer_config_write(t, c->staging, err);
    tokenizer_free(t);
    return code;
}

/* The name and the licence that a GGUF file says, as a model card has them. */
static int write_card(Convert *c, cvn_err *err)
{
    Card card;
    if (file_has(c->to, "README.md")) /* somebody's own */
        return CVN_OK;
    for (int i = 0; i < CARD_FIELDS; i++)
        card.value[i] = gguf_string(c->model.gguf, card_keys[i], &c->arena);
    if (!card.value[0] && card.value[1])
        card.value[0] = c->format_options.name;
    return card_write(&card, c->staging, err);
}

/* A model without a tokenizer is one still. */
static int copy_tokenizer(Convert *c, cvn_err *err)
{
    const char *folder = c->from, *slash = strrchr(c->from, '/');
    if (!file_is_folder(c->from))
        folder = slash ? arena_stringn(&c->arena, c->from, (size_t)(slash - c->from)) : ".";
    if (c->tokenizer)
        return tokenizer_copy(c->tokenizer, c->staging, err);
    if (c->model.kind == IO_KIND_GGUF)
        return tokenizer_copy(c->from, c->staging, &c->no_tokenizer)
                   ? CVN_OK
                   : write_tokenizer_config(c, err);
    return save_copy_tokenizer(folder, c->staging, err);
}

static int tokenizer_keys(Convert *c, cvn_err *err)
{
    Tokenizer *t;
    if (c->model.kind == IO_KIND_GGUF) {
        gguf_copy_tokenizer(c->model.gguf, &c->keys);
        c->format_options.tokenizer = &c->keys;
        return CVN_OK;
    }
    if (tokenizer_open(c->from, &t, &c->no_tokenizer))
        return CVN_OK;
    int code = gguf_write_tokenizer(t, &c->keys, &c->no_tokenizer);
    tokenizer_free(t);
    if (code == CVN_OK)
        c->format_options.tokenizer = &c->keys;
    return code == CVN_EMEM ? err_set(err, code, "%s", c->no_tokenizer.message) : CVN_OK;
}

/* ---- the command ---- */

static int check_out(const Convert *c, cvn_err *err)
{
    bool there = file_exists(c->to), file = formats[c->format].file, force = c->value[FORCE].flag;
    if (there && file_is_folder(c->to) == file)
        return err_set(err, CVN_EIO, "'%s' exists and is %s folder", c->to, file ? "a" : "not a");
    if (there && file && !force)
        return err_set(err, CVN_EIO, "'%s' exists; give another name or --force", c->to);
    if (there && !file && !force && !file_folder_is_empty(c->to))
        return err_set(err, CVN_EIO, "'%s' is not empty; give another folder or --force", c->to);
    return CVN_OK;
}

static void close_calibration(Calibration **c)
{
    calibration_close(*c);
}

/* Has numbers chosen by what enters matrices as a text is read. */
static int calibrate(Convert *c, Calibration **out, cvn_err *err)
{
    const WeightType *type = c->format_options.type;
    const Value *bits = &c->value[BITS];
    const double most = bits->given ? bits->real : quant_bits(type->quant) + 0.35;
    TRY(calibrated_by(c->value[CALIBRATE].text, c->value[TOKENS].integer, c->from, &c->model,
                      type->quant, c->out.threads, c->out.interrupt, out, err));
    c->out.context = *out;
    c->out.importance = calibration_importance;
    if (type->quant.kind == QUANT_NONE)
        return CVN_OK;
    c->format_options.eight = calibration_choose(*out, type->quant, most, &c->arena);
    c->out.round = calibration_round;
    return CVN_OK;
}

static int convert_all(void *of, cvn_err *err)
{
    Convert *c = of;
    const Value *v = c->value;
    size_t n = strlen(c->to);
    while (n > 1 && c->to[n - 1] == '/')
        n--;
    c->to = arena_stringn(&c->arena, c->to, n);
    c->staging = arena_printf(&c->arena, "%s.part", c->to);
    const WeightType *type = weight_type_find(v[TYPE].text);
    c->format = v[TO].given                    ? (int)v[TO].integer
                : type && type->quant.kind     ? HF
                : io_ends_with(c->to, ".gguf") ? GGUF
                : io_ends_with(c->to, ".bin")  ? LLAMA2C
                                               : HF;
    if (!type)
        type = weight_type_find(c->format >= LLAMA2C ? "f32"
                                                     : cvn_dtype_name(model_dtype(c->model.desc)));
    const char *slash = strrchr(c->to, '/'), *source = strrchr(c->from, '/');
    c->format_options =
        (FormatOptions){.type = type,
                        .file = formats[c->format].file ? slash ? slash + 1 : c->to : NULL,
                        .name = c->name               ? c->name
                                : source && source[1] ? source + 1
                                                      : c->from,
                        .shards = v[SHARDS].integer ? (int)v[SHARDS].integer : 1,
                        .shard_bytes = (uint64_t)v[SHARD].integer};
    c->out = (Out){.arena = &c->arena,
                   .model = &c->model,
                   .threads = (int)v[THREADS].integer,
                   .resumes = true,
                   .interrupt = run_interrupt_once(false)};
    TRY(check_out(c, err));
    /* Quantized the same way, there is nothing to convert; else what is quantized is widened as it is read. */
    const QuantScheme has = model_quant(c->model.desc);
    char text[16];
    if (has.kind && has.kind == type->quant.kind && has.group == type->quant.group)
        return err_set(err, CVN_EINVAL, "'%s' is in %s already", c->from,
                       quant_text(has, text, sizeof text));
    if (v[CALIBRATE].given && type->quant.kind != QUANT_INT4 &&
        (!type->block || type->block == BLOCK_Q8_0))
        return err_set(err, CVN_EINVAL,
                       "--calibrate works with the types int4 to int4:128 and q4_0 to q6_k only");
    if (v[BITS].given && type->quant.kind != QUANT_INT4)
        return err_set(err, CVN_EINVAL, "--bits works with the types int4 to int4:128 only");
    io_widen(&c->model);
    if (c->format == GGUF)
        TRY(tokenizer_keys(c, err));
    SCOPED(close_calibration) Calibration *calibration = NULL;
    if (v[CALIBRATE].given)
        TRY(calibrate(c, &calibration, err));
    TRY(formats[c->format].make(&c->out, &c->format_options, err));
    TRY(open_staging(c, err));
    TRY(out_write(&c->out, c->staging, err));
    if (!formats[c->format].file)
        TRY(copy_tokenizer(c, err));
    if (c->format == HF && c->model.gguf)
        TRY(write_card(c, err));
    if (c->format == HF)
        TRY(model_write(format_hf_model(&c->model, &c->format_options, &c->arena), c->staging,
                        err));
    return commit(c, err);
}

/* All of it; dtype: of the weights as if IN's were so, or CVN_DTYPE_COUNT. */
static int convert(Convert *c, cvn_dtype dtype, bool tell, cvn_err *err)
{
    TRY(io_open_as(&c->model, c->from, c->value[TEXT_ONLY].flag ? IO_TEXT_ONLY : 0, err));
    if (dtype != CVN_DTYPE_COUNT)
        model_set_dtype(c->model.desc, dtype);
    int code = arena_init(&c->arena, err);
    if (!code)
        code = protect(convert_all, c, "converting a model", err);
    if (code == CVN_EINTERRUPTED) /* what is kept, which no other command has */
        fprintf(stderr, "caravan: %s\n", err->message);
    if (!code && c->no_tokenizer.code)
        fprintf(stderr, "caravan: %s has no tokenizer: %s\n", c->to, c->no_tokenizer.message);
    if (!code && c->out.too_large)
        fprintf(stderr, "caravan: warning: %" PRId64 " numbers are too large for f16\n",
                c->out.too_large);
    if (!code && c->format == GGUF &&
        model_longest_context(c->model.desc) > model_context(c->model.desc))
        fprintf(stderr,
                "caravan: warning: a GGUF file cannot record that a context over %" PRId64
                " has dynamic rope scaling; up to that length the model is the same\n",
                model_context(c->model.desc));
    if (!code && tell)
        printf("%s: %s in %s%s\n", c->to, c->from, c->format_options.type->name,
               c->resumed ? ", resumed" : "");
    strbuf_free(&c->keys.bytes);
    arena_free(&c->arena);
    io_close_model(&c->model);
    return code;
}

static int run(const Args *args, cvn_err *err)
{
    Convert c = {.value = args->value, .from = args->operand[0], .to = args->operand[1]};
    return convert(&c, CVN_DTYPE_COUNT, true, err);
}

int convert_quantized(const Args *args, const char *from, const char *name, const char *to,
                      const char *type, cvn_dtype dtype, const char *tokenizer, cvn_err *err)
{
    const Value value[] = {[TYPE] = {.text = type},
                           [SHARD] = *args_value(args, SHARED(SHARD_SIZE)),
                           [FORCE] = *args_value(args, SHARED(FORCE)),
                           [THREADS] = *args_value(args, SHARED(THREADS)),
                           [TEXT_ONLY] = *args_value(args, SHARED(TEXT_ONLY)),
                           [SHARDS] = {.integer = 1},
                           [CALIBRATE] = {.given = false}};
    Convert c = {.value = value, .tokenizer = tokenizer, .from = from, .name = name, .to = to};
    return convert(&c, dtype, false, err);
}

const Command command_convert = {
    "convert",
    .about = "convert a model to another file format",
    .usage = "IN OUT [options]",
    .examples =
        "convert my-llama my-llama.gguf --type q4_k_m\t4-bit GGUF for llama.cpp\n"
        "convert my-llama.gguf my-llama\tfor transformers, vLLM and training\n"
        "convert my-llama meta --to meta --shards 8\tconsolidated.00.pth to .07.pth\n"
        "convert stories.bin stories --type int8\tllama2.c to a quantized Hugging Face folder\n",
    .notes = "IN is anything that --model takes elsewhere. Weights are streamed; the tokenizer and "
             "the chat template are copied. OUT is written atomically: an interrupted conversion "
             "stays in OUT.part, and the same command resumes it. Quantized blocks that already "
             "have the type are copied; all others are quantized again.",
    .operands = "IN and OUT",
    .model_first = true,
    .min_operands = 2,
    .max_operands = 2,
    .options = options,
    .run = run,
};

const Command command_quantize = {
    "quantize",
    .about = "quantize a model to int8, int4 or fp8",
    .usage = "IN OUT --to HOW [options]",
    .examples =
        "quantize my-llama my-llama-int8 --to int8\thalf the size of bf16, nearly lossless\n"
        "quantize my-llama small --to int4:32\ta quarter of the size, group size 32\n",
    .notes = "The same as convert --type HOW. OUT is a Hugging Face folder that is memory-mapped: "
             "q, k, v, o, gate, up, down and the output head in 8 or 4 bits, norms and the "
             "embedding unchanged. int4 is int4:32 with the head in 8 bits. Quality: "
             "docs/QUANTIZATION.md.",
    .operands = "IN and OUT",
    .model_first = true,
    .min_operands = 2,
    .max_operands = 2,
    .options = options_of_quantize,
    .run = run,
};
