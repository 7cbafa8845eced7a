#include "cli/common.h"

#include "base/cores.h"
#include "base/file.h"
#include "cli/terminal.h"
#include "grad/remat.h"
#include "io/tensor.h"
#include "model/presets.h"
#include "run/backend.h"
#include "shard/mesh.h"
#include "train/config.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

const Option shared_options[SHARED_OPTIONS] = {
    [SHARED_MODEL] = {"model", .letter = 'm', .kind = ARG_INPUT, .model = true, .required = true,
                      .value = "DIR",
                      .help = "a Hugging Face or Meta folder, a GGUF file, or llama2.c's .bin"},
    [SHARED_DTYPE] = {"dtype", .kind = ARG_CHOICE, .value = "TYPE",
                      .choices = CHOICES("f32", "bf16"),
                      .help = "of weights and cache, else the model's"},
    [SHARED_QUANTIZE] = {"quantize", .letter = 'q', .kind = ARG_CHOICE, .value = "HOW",
                         .choices =
                             CHOICES("none", "int8", "int4", "int4:32", "int4:64", "int4:128"),
                         .help = "quantize the weights while loading, as"},
    [SHARED_KV_CACHE] = {"kv-cache", .kind = ARG_CHOICE, .value = "HOW",
                         .choices = CHOICES("none", "int8"),
                         .help = "keep keys and values quantized, as"},
    [SHARED_ACTIVATIONS] = {"activations", .kind = ARG_CHOICE, .value = "HOW",
                            .choices = CHOICES("none", "int8"),
                            .help = "round what enters weights in int8 or blocks, to"},
    [SHARED_THREADS] = {"threads", .letter = 't', .kind = ARG_INT, .high = 1024, .value = "N",
                        .fallback = "0", .help = "most threads to use, 0: one per core"},
    [SHARED_SHARD_SIZE] = {"shard-size", .kind = ARG_SIZE, .low = 1, .high = 0x1p60,
                           .value = "SIZE", .fallback = "4.5G",
                           .help = "most bytes of weights in one file"},
    [SHARED_FORCE] = {"force", .letter = 'f', .kind = ARG_FLAG,
                      .help = "write into a folder that is not empty"},
    [SHARED_SEED] = {"seed", .letter = 's', .kind = ARG_INT, .value = "N", .fallback = "0",
                     .help = "same seed, same result"},
    [SHARED_STEP] = {"step", .letter = 's', .kind = ARG_INT, .high = 1e15, .value = "N",
                     .help = "the checkpoint of that step, else the newest whole one"},
    [SHARED_JSON] = {"json", .kind = ARG_FLAG, .help = "print one JSON object"},
    [SHARED_CONTEXT] = {"context", .letter = 'c', .kind = ARG_INT, .high = 1 << 30, .value = "N",
                        .fallback = "0", .help = "most positions, 0: what the text needs"},
    [SHARED_MEMORY] = {"memory", .kind = ARG_SIZE, .high = 0x1p60, .value = "SIZE", .fallback = "0",
                       .help = "refuse to start when more would be needed, 0: no limit"},
    [SHARED_DEVICE] = {"device", .kind = ARG_TEXT, .check = check_device, .value = "DEVICE",
                       .fallback = "cpu", .help = "cpu, tpu, cuda or pjrt:PLUGIN,option=value"},
    [SHARED_MESH] = {"mesh", .kind = ARG_TEXT, .check = check_mesh, .value = "MESH",
                     .help = "devices to divide the model among, data=2,model=2"},
    [SHARED_LAYOUT] = {"layout", .kind = ARG_TEXT, .needs = "mesh", .value = "LAYOUT",
                       .fallback = "auto",
                       .help = "dp, tp, tp-scatter, fsdp, 2d, fsdp+tp, FILE.json; auto: by mesh"},
    [SHARED_OVERLAP] = {"overlap", .kind = ARG_CHOICE, .needs = "mesh", .value = "WHEN",
                        .choice = train_overlap_name, .fallback = "on",
                        .help = "compute while devices exchange"},
    [SHARED_DUMP] = {"dump", .kind = ARG_OUTPUT, .value = "DIR",
                     .help = "write every graph after each pass, and the plans"},
    [SHARED_PROFILE] = {"profile", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
                        .help = "write a trace that Perfetto and Chrome open"},
    [SHARED_TEMPERATURE] = {"temperature", .kind = ARG_REAL, .high = 100, .value = "T",
                            .fallback = "0.8",
                            .help = "0: always the likeliest token; higher: more varied"},
    [SHARED_TOP_K] = {"top-k", .kind = ARG_INT, .high = 1 << 30, .value = "K", .fallback = "0",
                      .help = "draw from the K likeliest tokens, 0: from all"},
    [SHARED_TOP_P] = {"top-p", .kind = ARG_REAL, .low = 1e-6, .high = 1, .value = "P",
                      .fallback = "0.95",
                      .help = "draw from the likeliest tokens, of probability P"},
    [SHARED_MIN_P] = {"min-p", .kind = ARG_REAL, .high = 1, .value = "P", .fallback = "0",
                      .help = "leave out what is P times less likely than the first"},
    [SHARED_REPEAT_PENALTY] = {"repeat-penalty", .kind = ARG_REAL, .low = 0.01, .high = 100,
                               .value = "R", .fallback = "1",
                               .help = "make tokens that were there before less likely, 1: off"},
    [SHARED_IGNORE_EOS] = {"ignore-eos", .kind = ARG_FLAG,
                           .help = "go on past the end of the text"},
    [SHARED_JSON_SCHEMA] = {"json-schema", .kind = ARG_TEXT, .group = 2, .value = "JSON",
                            .help = "let only JSON of this schema come, a file or {…}"},
    [SHARED_REGEX] = {"regex", .kind = ARG_TEXT, .group = 2, .value = "REGEX",
                      .help = "let only what matches this come, from end to end"},
    [SHARED_GRAMMAR] = {"grammar", .kind = ARG_INPUT, .group = 2, .value = "FILE",
                        .help = "let only texts of this grammar come (GBNF or Lark)"},
    [SHARED_ONE_OF] = {"choice", .kind = ARG_TEXT, .repeats = true, .group = 2, .value = "TEXT",
                       .help = "let only this come, or another that is given so"},
    [SHARED_ANY_ORDER] = {"any-order", .kind = ARG_FLAG, .needs = "json-schema",
                          .help = "members in any order, not in the schema's"},
    [SHARED_PRETTY] = {"pretty", .kind = ARG_FLAG, .needs = "json-schema",
                       .help = "allow blanks between the parts of the JSON"},
    [SHARED_DRAFT] = {"draft", .kind = ARG_INPUT, .model = true, .value = "DIR",
                      .help = "a small model of the same vocabulary that guesses tokens"},
    [SHARED_ADAPTER] = {"adapter", .kind = ARG_INPUT, .value = "DIR",
                        .help = "run the model with these adapters (LoRA), as PEFT writes them"},
    [SHARED_MAX_STALL] = {"max-stall", .kind = ARG_REAL, .high = 1e6, .value = "MS",
                          .fallback = "0", .help = "longest that texts wait for prompts, 0: any"},
    [SHARED_BUCKETS] = {"buckets", .kind = ARG_TOKENS, .low = 1, .high = 1 << 20, .value = "N,N,…",
                        .help = "lengths of prompts to compile for; 1: token by token"},
    [SHARED_EOS_INTERVAL] = {"eos-interval", .kind = ARG_INT, .low = 1, .high = 1 << 20,
                             .value = "N", .fallback = "1",
                             .help = "tokens between two looks for the end of a text"},
    [SHARED_SPECULATE] = {"speculate", .kind = ARG_CHOICE, .value = "HOW",
                          .choices = CHOICES("off", "lookup"), .fallback = "off",
                          .help = "guess tokens that repeat the text, and draw several at once"},
};

const char *choice_of_preset(size_t i)
{
    return i < presets_count() ? preset_at(i).name : NULL;
}

int check_mesh(const char *text, cvn_err *err)
{
    Mesh mesh;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    int code = mesh_parse(&mesh, text, &arena, err);
    if (code)
        err_prefix(err, "--mesh");
    return code;
}

int check_device(const char *text, cvn_err *err)
{
    const Backend *found;
    if (backend_find(text, &found, err))
        err_prefix(err, "--device");
    return err->code;
}

bool is_shape(const char *folder)
{
    if (!file_has(folder, "config.json"))
        return false;
    DIR *stream = opendir(folder);
    bool weights = false;
    for (struct dirent *entry; stream && (entry = readdir(stream));)
        weights |= io_ends_with(entry->d_name, ".safetensors") ||
                   io_ends_with(entry->d_name, ".index.json");
    if (stream)
        closedir(stream);
    return stream && !weights;
}

const char *choice_of_remat(size_t i)
{
    return i < REMAT_POLICY_COUNT ? remat_policy_names[i] : NULL;
}

const char *const storage_choices[] = {"f32", "bf16", "f16", NULL};

void warn_threads(int64_t wanted)
{
    Cores cores;
    if (wanted <= 1)
        return;
    cores_find(&cores);
    if (wanted <= cores.n)
        return;
    fprintf(
        stderr,
        "caravan: warning: %lld threads on %d core%s that this process may use: they take turns, "
        "and fewer are used where that is faster\n",
        (long long)wanted, cores.n, cores.n == 1 ? "" : "s");
}

cvn_dtype dtype_of(const Value *value)
{
    cvn_dtype dtype = CVN_DTYPE_COUNT;
    if (value->text)
        cvn_dtype_parse(value->text, &dtype);
    return dtype;
}

static int write_stdout(const char *text, size_t n, void *context)
{
    (void)context;
    return fwrite(text, 1, n, stdout) == n ? 0 : -1;
}

int print_json(json_t *value, cvn_err *err)
{
    int code = value ? json_dump_callback(value, write_stdout, NULL, JSON_REAL_PRECISION(9)) : -1;
    json_decref(value);
    return code == 0 && putchar('\n') != EOF
               ? CVN_OK
               : err_set(err, CVN_EIO, "the result could not be printed as JSON");
}

int print_text(StrBuf *text)
{
    bool ok = !text->failed;
    if (text->length)
        ok = fwrite(text->text, 1, text->length, stdout) == text->length && ok;
    strbuf_free(text);
    return ok ? EXIT_OK : EXIT_REFUSED;
}

int read_input(const char *path, char **text, size_t *length, cvn_err *err)
{
    bool standard = strcmp(path, "-") == 0;
    if (!standard && file_is_folder(path))
        return err_set(err, CVN_EIO, "'%s' is a folder; give a file", path);
    FILE *file = standard ? stdin : fopen(path, "rb");
    if (!file)
        return err_set(err, CVN_EIO, "cannot open '%s': %s", path, strerror(errno));
    StrBuf all = {0};
    char piece[65536];
    size_t n;
    strbuf_add(&all, "", 0);
    do { /* a short read is the end: on a terminal another one would wait for a second Ctrl-D */
        n = fread(piece, 1, sizeof piece, file);
        strbuf_add(&all, piece, n);
    } while (n == sizeof piece);
    int code = CVN_OK;
    if (ferror(file))
        code = err_set(err, CVN_EIO, "cannot read %s: %s", standard ? "standard input" : path,
                       strerror(errno));
    else if (all.failed)
        code = err_set(err, CVN_EMEM, "no memory for the %zu bytes of '%s'", all.length, path);
    if (!standard)
        fclose(file);
    if (code) {
        strbuf_free(&all);
        return code;
    }
    *text = all.text;
    *length = all.length;
    return CVN_OK;
}

int each_line(const char *source, const char *text, size_t n, TakeLine *take, void *context,
              cvn_err *err)
{
    size_t number = 1;
    for (const char *at = text, *end = text + n; at < end; number++) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        int code = strspn(at, " \t\r") < length ? take(context, at, length, number, err) : CVN_OK;
        if (code) {
            err_prefix(err, "%s:%zu", source, number);
            return code;
        }
        at += length + (newline != NULL);
    }
    return CVN_OK;
}

static void warn_of_damage(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "caravan: warning: %s; the checkpoint before it is looked at\n", sentence);
}

int find_checkpoint(Checkpoint *checkpoint, const char *run, const Value *step, cvn_err *err)
{
    if (!file_exists(run))
        return err_set(err, CVN_EIO, "there is no folder '%s'", run);
    return checkpoint_find(checkpoint, run, step->given ? step->integer : -1, warn_of_damage, NULL,
                           err);
}
