/* caravan inspect: what a model is and what it takes, from its headers alone or from a preset. */
#include "base/bytes.h"
#include "base/json_file.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "io/convert.h"
#include "io/model.h"
#include "io/stats.h"
#include "io/towers.h"
#include "model/presets.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

#include <inttypes.h>
#include <jansson.h>

enum { MODEL, PRESET, BATCH, LENGTH, TENSORS, STATS, JSON };

static const Option *const options[] = {
    OPTION(MODEL, "model", .letter = 'm', .kind = ARG_INPUT, .model = true, .required = true,
           .group = 1, .value = "DIR",
           .help = "a Hugging Face or Meta folder, a GGUF file, or llama2.c's .bin"),
    OPTION(PRESET, "preset", .letter = 'p', .kind = ARG_CHOICE, .group = 1, .value = "NAME",
           .choice = choice_of_preset, .brief = true, .or_shape = true,
           .help = "a preset instead of files: " PRESETS_SHOWN),
    OPTION(BATCH, "batch", .letter = 'b', .kind = ARG_INT, .low = 1, .high = 1 << 20, .value = "N",
           .fallback = "1", .help = "batch size of the KV cache estimate"),
    OPTION(LENGTH, "length", .letter = 'l', .kind = ARG_INT, .low = 1, .high = 1 << 30,
           .value = "N", .help = "context length of the KV cache estimate, default the model's"),
    OPTION(TENSORS, "tensors", .refuses = "preset", .kind = ARG_FLAG, .help = "list all tensors"),
    OPTION(STATS, "stats", .refuses = "preset", .kind = ARG_FLAG,
           .help = "list all tensors with minimum, maximum, mean, and counts of NaN and infinite "
                   "elements"),
    [JSON] = SHARED(JSON),
    SHARED(TEXT_ONLY),
    NULL,
};

/* What is shown, gathered from files or from a preset. */
typedef struct Subject {
    const char *name; /* path or preset */
    IoModel model;    /* when from_files */
    bool from_files;
    cvn_err audit; /* why the files cannot be run, if so */
    Model *desc;
    ParamList params;      /* of it */
    Arena arena;           /* owns params */
    double disk_bytes;     /* of all tensors in files */
    int64_t batch, length; /* of the cache */
} Subject;

/* Elements of a kind of parameter, over all layers, and in how many tensors. */
static int64_t count_kind(const ParamList *params, ParamKind kind, int64_t *tensors)
{
    int64_t n = 0;
    *tensors = 0;
    for (int i = 0; i < params->n; i++)
        if (params->param[i].kind == kind) {
            n += params->param[i].n;
            ++*tensors;
        }
    return n;
}

static void close_subject(void *subject)
{
    Subject *s = subject;
    io_close_model(&s->model);
    arena_free(&s->arena);
}

static int open_subject(Subject *s, const Args *args, cvn_err *err)
{
    s->name = args->value[PRESET].given ? args->value[PRESET].text : args->value[MODEL].text;
    TRY(arena_init(&s->arena, err));
    const bool text_only = args_value(args, SHARED(TEXT_ONLY))->flag;
    s->from_files = !args->value[PRESET].given && !is_shape(s->name);
    if (s->from_files) {
        TRY(io_open_as(&s->model, s->name, IO_SHOWN | (text_only ? IO_TEXT_ONLY : 0), err));
        s->desc = model_copy(s->model.desc, &s->arena);
        if (io_audit(&s->model, &s->audit) == CVN_OK)
            io_keep_blocks(&s->model);
        for (size_t i = 0; i < s->model.tensors.n; i++)
            s->disk_bytes += (double)s->model.tensors.tensor[i].bytes;
    } else {
        TRY(preset_model(s->name, &s->desc, &s->arena, err));
        TRY(towers_check(s->desc, text_only, s->name, err));
    }
    params_list(&s->params, s->desc, &s->arena);
    s->batch = args->value[BATCH].integer;
    s->length = args->value[LENGTH].given ? args->value[LENGTH].integer : model_context(s->desc);
    return CVN_OK;
}

/* Of a model that runs in the blocks that its files have: bytes of its weights with `dtype` for what is in none; else 0. A table
   in which rows are looked up stays in its file. */
static double block_bytes(const Subject *s, cvn_dtype dtype)
{
    const ParamList *params = &s->model.params;
    double bytes = 0;
    for (int i = 0; s->from_files && model_in_blocks(s->model.desc) && i < params->n; i++)
        if (params->param[i].kind != PARAM_EMBED || params->param[i].form == PARAM_PLAIN)
            bytes += (double)param_bytes(&params->param[i], dtype);
    return bytes;
}

static void add_sizes(StrBuf *out, const Subject *s)
{
    ModelSize size = model_size(s->desc);
    strbuf_puts(out, "parameters  ");
    strbuf_count(out, size.params);
    strbuf_puts(out, ", of which ");
    strbuf_count(out, size.matmul_params);
    strbuf_puts(out, " are multiplied with every token\n");
    if (s->from_files) {
        const IoTensors *list = &s->model.tensors;
        strbuf_printf(out, "on disk     %s in %zu tensors, %zu %s\n",
                      bytes_text(s->disk_bytes).text, list->n, s->model.n_maps,
                      s->model.n_maps == 1 ? "file" : "files");
        strbuf_puts(out, "weights     ");
        io_types_text(list, out);
        strbuf_puts(out, list->n ? "\n" : "none\n");
    }
    static const cvn_dtype dtypes[] = {CVN_BF16, CVN_F32};
    double in_blocks = block_bytes(s, CVN_BF16);
    const char *label = "in memory   ";
    if (in_blocks > 0) {
        strbuf_printf(out, "%sin their own types %s, with the KV cache; converted:\n", label,
                      bytes_text(in_blocks).text);
        label = "            ";
    }
    for (int i = 0; i < 2; i++) {
        int64_t cache = kv_cache_bytes(s->desc, s->batch, s->length, dtypes[i]);
        strbuf_printf(out, "%s%-4s weights %s, KV cache %s", i ? "            " : label,
                      cvn_dtype_name(dtypes[i]),
                      bytes_text((double)model_bytes(s->desc, dtypes[i])).text,
                      cache < 0 ? "too large to compute" : bytes_text((double)cache).text);
        strbuf_printf(out, " for %" PRIi64 " x %" PRIi64 " tokens\n", s->batch, s->length);
    }
}

/* The tokenizer beside the weights and the chat template; a model can do without, on ids alone. */
static void add_tokenizer(StrBuf *out, const Subject *s)
{
    cvn_err err = {0};
    Tokenizer *tokenizer = NULL;
    if (tokenizer_open(s->name, &tokenizer, &err)) {
        strbuf_printf(out, "tokenizer   none: %s\n", err.message);
        return;
    }
    strbuf_printf(out, "tokenizer   %s, %" PRIi32 " pieces\n", tokenizer_kind(tokenizer),
                  tokenizer_vocab_size(tokenizer));
    ChatTemplate *template;
    if (chat_template_open(tokenizer, NULL, &template, &err) == CVN_OK)
        strbuf_printf(out, "chat        template %s\n", chat_template_name(template));
    else
        strbuf_printf(out, "chat        none: %s\n", err.message);
    chat_template_free(template);
    tokenizer_free(tokenizer);
}

static void add_groups(StrBuf *out, const Subject *s)
{
    int64_t all = model_size(s->desc).params, tensors;
    strbuf_puts(out, "\n  group          tensors       parameters   share\n");
    for (ParamKind k = 0; k < PARAM_KIND_COUNT; k++) {
        SCOPED(strbuf_free) StrBuf count = {0};
        int64_t n = count_kind(&s->params, k, &tensors);
        strbuf_count(&count, n);
        if (tensors)
            strbuf_printf(out, "  %-12s %9" PRIi64 " %16s  %5.1f%%\n", param_kind_name(k), tensors,
                          count.text ? count.text : "", 100 * (double)n / (double)all);
    }
}

static void add_stats(StrBuf *out, const IoTensor *t)
{
    if (!io_is_numeric(t)) {
        strbuf_printf(out, "%-42s", "not readable as numbers");
        return;
    }
    IoStats s = io_stats(t);
    strbuf_printf(out, "%-11.5g %-11.5g %-11.5g ", s.min, s.max, s.mean);
    if (s.nan + s.infinite)
        strbuf_printf(out, "%" PRIi64 " ", s.nan + s.infinite);
    else
        strbuf_puts(out, "-     ");
}

static void add_tensors(StrBuf *out, const IoTensors *list, bool stats)
{
    strbuf_printf(out, "\n  type    shape            bytes        %sname\n",
                  stats ? "least       largest     mean        bad   " : "");
    for (size_t i = 0; i < list->n; i++) {
        char shape[128];
        const IoTensor *t = &list->tensor[i];
        strbuf_printf(out, "  %-7s %-16s %-12zu ", t->type,
                      io_shape_text(t->dims, t->rank, shape, sizeof shape), t->bytes);
        if (stats)
            add_stats(out, t);
        strbuf_printf(out, "%s\n", t->name);
    }
}

static json_t *tensors_json(const IoTensors *list, bool stats)
{
    json_t *all = json_array();
    for (size_t i = 0; i < list->n; i++) {
        const IoTensor *t = &list->tensor[i];
        json_t *one = json_pack("{s:s, s:s, s:o, s:I}", "name", t->name, "type", t->type, "shape",
                                json_integers(t->dims, t->rank), "bytes", (json_int_t)t->bytes);
        if (stats && io_is_numeric(t)) {
            IoStats of = io_stats(t);
            one = json_with(one, "min", json_real(of.min));
            one = json_with(one, "max", json_real(of.max));
            one = json_with(one, "mean", json_real(of.mean));
            one = json_with(one, "nan", json_integer(of.nan));
            one = json_with(one, "infinite", json_integer(of.infinite));
        }
        all = json_append(all, one);
    }
    return all;
}

static json_t *subject_json(const Subject *s, const IoTensors *tensors, bool stats)
{
    json_t *groups = json_object();
    for (ParamKind k = 0; k < PARAM_KIND_COUNT; k++) {
        int64_t n_tensors, n = count_kind(&s->params, k, &n_tensors);
        if (n_tensors)
            groups = json_with(groups, param_kind_name(k), json_integer(n));
    }
    ModelSize size = model_size(s->desc);
    json_t *all = json_pack(
        "{s:s, s:o, s:I, s:I, s:o, s:{s:I, s:I}, s:{s:I, s:I, s:I, s:I}}", "name", s->name,
        "config", model_describe_json(s->desc), "parameters", (json_int_t)size.params,
        "matmul_parameters", (json_int_t)size.matmul_params, "groups", groups, "weight_bytes",
        "bf16", (json_int_t)model_bytes(s->desc, CVN_BF16), "f32",
        (json_int_t)model_bytes(s->desc, CVN_F32), "cache_bytes", "batch", (json_int_t)s->batch,
        "length", (json_int_t)s->length, "bf16",
        (json_int_t)kv_cache_bytes(s->desc, s->batch, s->length, CVN_BF16), "f32",
        (json_int_t)kv_cache_bytes(s->desc, s->batch, s->length, CVN_F32));
    if (all && s->from_files) {
        all = json_with(all, "kind", json_string(io_kind_name(s->model.kind)));
        if (s->model.adapter)
            all = json_with(all, "adapters_of", json_string(s->model.path));
        all = json_with(all, "disk_bytes", json_integer((json_int_t)s->disk_bytes));
        IoTypeShare type[IO_MAX_TYPES];
        json_t *types = json_object();
        for (int i = 0, n_types = io_types(&s->model.tensors, type); i < n_types; i++)
            types = json_with(types, type[i].name, json_integer((json_int_t)type[i].bytes));
        all = json_with(all, "type_bytes", types);
        if (model_in_blocks(s->model.desc))
            all = json_with(all, "block_bytes", json_integer((json_int_t)block_bytes(s, CVN_BF16)));
        if (tensors)
            all = json_with(all, "tensors", tensors_json(tensors, stats));
    }
    return all;
}

static int show(const Subject *s, const IoTensors *tensors, bool stats)
{
    StrBuf text = {0};
    const char *kind = s->from_files            ? io_kind_name(s->model.kind)
                       : preset_is_own(s->name) ? "a shape, no weights"
                                                : "preset, no files";
    if (s->from_files && s->model.adapter)
        strbuf_printf(&text, "%s: adapters for the %s %s, which is shown below\n", s->name, kind,
                      s->model.path);
    else
        strbuf_printf(&text, "%s: %s\n", s->name, kind);
    model_describe(s->desc, &text);
    if (s->from_files)
        add_tokenizer(&text, s);
    add_sizes(&text, s);
    add_groups(&text, s);
    if (tensors && s->from_files)
        add_tensors(&text, tensors, stats);
    return print_text(&text);
}

static int run(const Args *args, cvn_err *err)
{
    Subject s = {0};
    CLEANUP(close_subject, &s);
    TRY(open_subject(&s, args, err));
    warn_lines(model_warnings(s.desc));
    const bool stats = args->value[STATS].flag;
    const IoTensors tensors =
        stats && s.from_files && !s.audit.code ? io_joined(&s.model) : s.model.tensors;
    const IoTensors *shown = stats || args->value[TENSORS].flag ? &tensors : NULL;
    TRY(args->value[JSON].flag ? print_json(subject_json(&s, shown, stats), err)
                               : show(&s, shown, stats));
    /* What can be shown has been; a model that cannot be run is refused all the same. */
    *err = s.audit;
    return s.audit.code;
}

const Command command_inspect = {
    "inspect",
    .about = "show a model's configuration, tensors and memory",
    .usage = "(MODEL | --preset NAME) [options]",
    .examples = "inspect --model my-llama\tconfiguration, parameters, size on disk and in memory\n"
                "inspect --preset llama3.1-405b --batch 8 --length 8192\tmemory of a preset, "
                "without any files\n"
                "inspect --model my-llama --tensors\tevery tensor with its type and shape\n"
                "inspect --model my-llama --stats\talso statistics of its elements\n",
    .notes = "Only headers are read, except with --stats. Afterwards inspect checks that every "
             "parameter is present exactly once with its shape, as loading does; a model that "
             "cannot be run gives exit status 1.",
    .options = options,
    .run = run,
};
