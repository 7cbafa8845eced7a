/* caravan train: a model from text, or a model trained further. */
#include "base/bytes.h"
#include "base/json_file.h"
#include "caravan/engine.h"
#include "cli/common.h"
#include "cli/figures.h"
#include "cli/ranks.h"
#include "cli/run_model.h"
#include "cli/task.h"
#include "cli/terminal.h"
#include "cli/train_receipt.h"
#include "train/config.h"
#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* A new model or one there is: one of the two; and one of --steps and --epochs. */
enum { BEGINNING = 1, LENGTH };

/* Types of rows of config.def that are kinds of options, too. */
#define ARG_DATA ARG_INPUT
#define ARG_PRESET ARG_CHOICE

#define FALLBACK_TEXT(text) text
#define FALLBACK_DATA FALLBACK_TEXT
#define FALLBACK_INPUT FALLBACK_TEXT
#define FALLBACK_OUTPUT FALLBACK_TEXT
#define FALLBACK_PRESET FALLBACK_TEXT
#define FALLBACK_CHOICE FALLBACK_TEXT
#define FALLBACK_INT(number) #number
#define FALLBACK_SIZE(number) #number
#define FALLBACK_REAL(number) #number
#define FALLBACK_FLAG(off) NULL

#define CHOICE_CHOICE(list) .choice = (list),
#define CHOICE_TEXT(list)
#define CHOICE_DATA CHOICE_TEXT
#define CHOICE_INPUT CHOICE_TEXT
#define CHOICE_OUTPUT CHOICE_TEXT
#define CHOICE_PRESET CHOICE_TEXT
#define CHOICE_INT CHOICE_TEXT
#define CHOICE_SIZE CHOICE_TEXT
#define CHOICE_REAL CHOICE_TEXT
#define CHOICE_FLAG CHOICE_TEXT

/* What an option is called in the lists below: AT_lr, AT_RESUME. */
enum {
#define KEY(type, change, field, ...) AT_##field,
#define FILE_KEY(...)
#define COMMAND(name) AT_##name,
#include "train/config.def"
    AT_PER_DEVICE,
    AT_ACCUMULATION,
};

static const Option *const options[] = {
#define KEY(type, change, field, name_, fallback_, low_, high_, choices_, value_, help_, ...)      \
    OPTION(AT_##field, name_, .kind = ARG_##type, .low = low_, .high = high_, .value = value_,     \
           .fallback = FALLBACK_##type(fallback_), .help = help_,                                  \
           CHOICE_##type(choices_).aliases = __VA_ARGS__),
#define SHARED_KEY(type, change, field, name_, fallback_, low_, high_, option)                     \
    [AT_##field] = SHARED(option),
#define FILE_KEY(...)
#define COMMAND(name) COMMAND_##name
#define COMMAND_RESUME                                                                             \
    OPTION(AT_RESUME, "resume", .kind = ARG_INPUT, .value = "DIR",                                 \
           .aliases = "resume-from resume-from-checkpoint",                                        \
           .help = "resume the run in this folder"),
#define COMMAND_CONFIG                                                                             \
    OPTION(AT_CONFIG, "config", .kind = ARG_INPUT, .value = "FILE",                                \
           .help = "options as a JSON file; the command line wins"),
#define COMMAND_RECEIPT                                                                            \
    OPTION(AT_RECEIPT, "receipt", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",              \
           .help = "write a receipt of the finished run"),
#define COMMAND_PROFILE [AT_PROFILE] = SHARED(PROFILE),
#define COMMAND_VALIDATION /* two keys in one */                                                   \
    OPTION(AT_VALIDATION, "validation", .kind = ARG_TEXT, .value = "X", .fallback = "0",           \
           .aliases = "validation-file eval-file",                                                 \
           .help = "validation data: a fraction of --data, or FILE"),
#include "train/config.def"
    OPTION(AT_PER_DEVICE, "per-device-train-batch-size", .kind = ARG_INT, .hidden = true, .low = 1,
           .high = 1 << 24, .value = "N", .refuses = "batch mesh",
           .help = "micro-batch size per device"),
    OPTION(AT_ACCUMULATION, "gradient-accumulation-steps", .kind = ARG_INT, .hidden = true,
           .low = 1, .high = 1 << 24, .value = "N", .refuses = "micro-batch",
           .aliases = "grad-accumulation-steps grad-accum-steps gradient-accumulation",
           .help = "gradient accumulation steps"),
    NULL,
};

/* ---- options to a config ---- */

static json_t *value_json(const TrainKey *key, const Value *value)
{
    if (strcmp(key->name, "validation") == 0)
        return json_real(strtod(value->text, NULL));
    if (key->type == KEY_REAL)
        return json_real(value->real);
    if (key->type == KEY_FLAG)
        return json_boolean(value->flag);
    if (key->type == KEY_TEXT)
        return json_string(value->text);
    if (key->type != KEY_DATA)
        return json_integer(value->integer);
    json_t *list = json_array();
    for (size_t i = 0; i < value->n_texts; i++)
        list = json_append(list, json_string(value->texts[i]));
    return list;
}

static bool typed(const Args *args, const char *name)
{
    return args->value[option_find(args->command, name, strlen(name))].given;
}

/* Of two options of which a run has one, one is typed and the file says the other: as always, what is typed wins. */
static void choose_typed(const Args *args, const char *path, TrainConfig *config, bool *given)
{
    static const char *const either[][2] = {
        {"preset", "init"}, {"init", "preset"}, {"steps", "epochs"}, {"epochs", "steps"}};
    const TrainConfig plain = train_config_defaults();
    for (size_t k = 0; k < sizeof either / sizeof *either; k++) {
        const char *winner = either[k][0], *other = either[k][1];
        const TrainKey *key = train_key_find(other);
        if (!typed(args, winner) || typed(args, other) || !given[key - train_keys])
            continue;
        train_config_copy(config, &plain, key);
        given[key - train_keys] = false;
        if (ranks_speaks())
            fprintf(stderr, "--%s overrides \"%s\" in %s\n", winner, other, path);
    }
}

/* Batches as transformers and torchtune count them, of what is computed at once: a step takes so many of them as
   gradients are accumulated over. */
static int count_accumulation(const Args *args, TrainConfig *config, bool *given, cvn_err *err)
{
    const Value *device = &args->value[AT_PER_DEVICE], *steps = &args->value[AT_ACCUMULATION];
    const TrainKey *batch = train_key_find("batch"), *micro = train_key_find("micro-batch");
    if (device->given) {
        config->batch = device->integer;
        given[batch - train_keys] = true;
    }
    if (!steps->given)
        return CVN_OK;
    if (config->batch == 0)
        return err_set(err, CVN_EINVAL, "--%s needs the global batch size: give --batch",
                       options[AT_ACCUMULATION]->name);
    config->micro_batch = config->batch;
    given[micro - train_keys] = true;
    config->batch *= steps->integer;
    return CVN_OK;
}

/* What was typed over what --config says over the defaults. */
static int read_config(const Args *args, TrainConfig *config, bool *given, Arena *arena,
                       cvn_err *err)
{
    const char *path = args->value[AT_CONFIG].text;
    *config = train_config_defaults();
    if (path) {
        json_t *json = json_object_read(path, err);
        CLEANUP(json_release, json);
        TRY(json ? train_config_read(config, path, json, given, arena, err) : err->code);
    }
    for (int i = 0; options[i]; i++) {
        const TrainKey *key = train_key_find(options[i]->name);
        if (!key || !args->value[i].given)
            continue;
        char *end;
        if (i == AT_VALIDATION &&
            (strtod(args->value[i].text, &end), *end || end == args->value[i].text))
            key = train_key_find("validation-file");
        json_t *value = value_json(key, &args->value[i]);
        CLEANUP(json_release, value);
        TRY(value ? train_config_set(config, key, "the command line", value, arena, err)
                  : err_set(err, CVN_EFORMAT, "--%s is not UTF-8", key->name));
        given[key - train_keys] = true;
    }
    if (path)
        choose_typed(args, path, config, given);
    return count_accumulation(args, config, given, err);
}

static int check_mesh_options(const Args *args, const TrainConfig *config, cvn_err *err)
{
    static const int of_mesh[] = {AT_layout, AT_overlap};
    bool mesh = config->mesh && *config->mesh;
    for (int i = 0; i < 2 && !mesh; i++)
        if (args->value[of_mesh[i]].on_command_line)
            return err_set(err, CVN_EINVAL,
                           "--%s has no effect without --mesh; give both or neither",
                           options[of_mesh[i]]->name);
    return CVN_OK;
}

/* ---- what is seen ---- */

typedef struct View {
    bool live;           /* one line on a terminal, drawn over and over */
    bool drawn;          /* it is there now */
    int threads;         /* for texts */
    const char *receipt; /* where one is to be written, or NULL */
} View;

static void on_note(void *context, const char *sentence)
{
    View *view = context;
    live_line_end();
    view->drawn = false;
    fprintf(stderr, "%s\n", sentence);
}

static void on_warning(void *context, const char *sentence)
{
    View *view = context;
    live_line_end();
    view->drawn = false;
    fprintf(stderr, "caravan: warning: %s\n", sentence);
}

static void add_time(StrBuf *out, double seconds)
{
    long long s = (long long)(seconds + 0.5);
    if (s >= 3600)
        strbuf_printf(out, "%lld:%02lld:%02lld", s / 3600, s / 60 % 60, s % 60);
    else
        strbuf_printf(out, "%lld:%02lld", s / 60, s % 60);
}

/* What is told of a step. On a narrow terminal figures of the highest rank give way first; rank 0 stays. */
enum { FIGURES = 10 };
typedef struct Figures {
    int n;
    struct {
        int rank;
        char text[64];
    } figure[FIGURES];
} Figures;

__attribute__((format(printf, 3, 4))) static void add_figure(Figures *f, int rank,
                                                             const char *format, ...)
{
    va_list args;
    va_start(args, format);
    f->figure[f->n].rank = rank;
    vsnprintf(f->figure[f->n++].text, sizeof f->figure->text, format, args);
    va_end(args);
}

static Figures list_figures(const TrainProgress *p)
{
    const MetricsRow *row = &p->row;
    Figures f = {0};
    SCOPED(strbuf_free) StrBuf left = {0};
    add_time(&left, p->left);
    add_figure(&f, 0, "step %" PRId64 "/%" PRId64, row->step, p->steps);
    if (isfinite(row->loss))
        add_figure(&f, 0, "loss %.4f", row->loss);
    else
        add_figure(&f, 0, "loss not finite");
    if (!isnan(row->validation_loss))
        add_figure(&f, 1, "validation %.4f", row->validation_loss);
    if (row->accuracy > 0)
        add_figure(&f, 1, "in order %.0f%%", 100 * row->accuracy);
    add_figure(&f, 5, "lr %.2e", row->lr);
    add_figure(&f, 6, "norm %.3f", row->grad_norm);
    add_figure(&f, 2, "%.0f tok/s", row->tokens_per_second);
    add_figure(&f, 4, "MFU %.1f%%", 100 * row->mfu);
    add_figure(&f, 7, "%s", bytes_text((double)p->memory).text);
    if (row->comm_seconds > 0)
        add_figure(&f, 3, "comm %.1f ms, exposed %.1f", 1e3 * row->comm_seconds,
                   1e3 * row->comm_exposed_seconds);
    add_figure(&f, 0, "left %s", left.text ? left.text : "");
    return f;
}

/* Columns of the figures of a rank below `ranks`, with two blanks between them. */
static size_t width_of(const Figures *f, int ranks)
{
    size_t width = 0;
    for (int i = 0; i < f->n; i++)
        if (f->figure[i].rank < ranks)
            width += strlen(f->figure[i].text) + (width ? 2 : 0);
    return width;
}

static bool on_step(void *context, const TrainProgress *p)
{
    View *view = context;
    int64_t step = p->row.step, every = p->steps / 100 > 1 ? p->steps / 100 : 1;
    bool looked = !isnan(p->row.validation_loss);
    /* In a log a line for the first steps, then for about every hundredth part of the run. */
    if (!view->live && step > 5 && step % every != 0 && step != p->steps && !looked)
        return true;
    SCOPED(strbuf_free) StrBuf line = {0};
    const Figures f = list_figures(p);
    size_t width = view->live ? (size_t)terminal_width(stderr) - 1 : SIZE_MAX;
    int ranks = FIGURES; /* as many as fit; rank 0 in any case */
    while (ranks > 1 && width_of(&f, ranks) > width)
        ranks--;
    for (int i = 0; i < f.n; i++)
        if (f.figure[i].rank < ranks)
            strbuf_printf(&line, "%s%s", line.length ? "  " : "", f.figure[i].text);
    /* A line with a validation loss stays; the next one is drawn below it. */
    bool stays = !view->live || looked;
    if (view->live && line.text)
        live_line("%s", line.text);
    else if (line.text)
        fputs(line.text, stderr);
    if (stays)
        fputc('\n', stderr);
    view->drawn = !stays;
    return true;
}

/* ---- texts, for the report ---- */

enum { MOST_TOKENS = 200 };

typedef struct Generated {
    int32_t id[MOST_TOKENS];
    int64_t n;
} Generated;

static bool take_token(void *context, int request, int32_t token)
{
    Generated *g = context;
    (void)request;
    if (g->n < MOST_TOKENS)
        g->id[g->n++] = token;
    return true;
}

static void free_model(cvn_model **model)
{
    cvn_model_free(*model);
}

static void free_engine(cvn_engine **engine)
{
    cvn_engine_free(*engine, NULL);
}

/* A text by the model in a folder, which goes on from `prompt`, by at most MOST_TOKENS and always with the same seed. */
static int on_sample(void *context, const char *folder, const char *prompt, char **text,
                     cvn_err *err)
{
    const View *view = context;
    SCOPED(free_model) cvn_model *model = NULL;
    SCOPED(free_engine) cvn_engine *engine = NULL;
    SCOPED(scoped_free) int32_t *ids = NULL;
    size_t length;
    Generated generated = {0};
    cvn_result result;
    cvn_request request = {.sampling = {.temperature = 0.7F, .top_p = 0.95F, .seed = 1}};
    cvn_engine_options how = cvn_engine_defaults();
    how.threads = view->threads;
    how.sampling = true;
    *text = NULL;
    TRY(cvn_model_open(folder, &(cvn_model_options){.dtype = CVN_DTYPE_COUNT}, &model, err));
    how.context = cvn_model_context(model) < 1024 ? cvn_model_context(model) : 1024;
    TRY(cvn_engine_new(model, &how, &engine, err));
    TRY(cvn_model_encode(model, prompt, strlen(prompt), CVN_ENCODE_BOS, &ids, &request.n_prompt,
                         err));
    if (request.n_prompt == 0) { /* a tokenizer without a begin of text starts from a line end */
        free(ids);
        ids = NULL;
        TRY(cvn_model_encode(model, "\n", 1, CVN_ENCODE_BOS, &ids, &request.n_prompt, err));
    }
    int64_t room = cvn_model_context(model) - request.n_prompt;
    request.prompt = ids;
    request.max_tokens = room < MOST_TOKENS ? room : MOST_TOKENS;
    TRY(cvn_engine_generate(engine, &request, 1, take_token, &generated, run_interrupt(), &result,
                            err));
    return cvn_model_decode(model, generated.id, generated.n, text, &length, err);
}

/* Questions to the model in a folder. */
static int on_evaluate(void *context, const char *folder, const char *file, char **text,
                       cvn_err *err)
{
    const View *view = context;
    SCOPED(free_model) cvn_model *model = NULL;
    SCOPED(free_engine) cvn_engine *engine = NULL;
    SCOPED(task_free) Task task = {0};
    cvn_engine_options how = cvn_engine_defaults();
    how.threads = view->threads;
    how.scoring = how.no_generation = true;
    TRY(cvn_model_open(folder, &(cvn_model_options){.dtype = CVN_DTYPE_COUNT}, &model, err));
    TRY(task_read(&task, file, model, TOKENIZER_BOS, err));
    how.context = cvn_model_context(model);
    if ((int64_t)task.longest < how.context)
        how.context = (int64_t)task.longest;
    TRY(cvn_engine_new(model, &how, &engine, err));
    TRY(task_score(&task, engine, how.context, run_interrupt(), err));
    *text = task_text(&task);
    return *text ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a message");
}

static int on_finished(void *context, const TrainRecord *record, cvn_err *err)
{
    const View *view = context;
    return view->receipt ? train_receipt_write(view->receipt, record, err) : CVN_OK;
}

/* ---- the command ---- */

static void print_end(const TrainResult *result, const char *out)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_printf(&text, "%s after step %" PRId64 " of %" PRId64,
                  result->finished ? "finished" : "stopped", result->step, result->steps);
    if (isfinite(result->loss))
        strbuf_printf(&text, ", loss %.4f", result->loss);
    if (result->seconds > 0) {
        strbuf_printf(&text, ", %.0f tokens/s in ", (double)result->tokens / result->seconds);
        add_time(&text, result->seconds);
    }
    SCOPED(strbuf_free) StrBuf word = {0};
    strbuf_word(&word, out);
    out = word.text ? word.text : out;
    if (result->finished && result->lora)
        strbuf_printf(&text, "; the adapters are in %s: caravan export %s OUT --lora-merge", out,
                      out);
    else if (result->finished)
        strbuf_printf(&text, "; the model is in %s: caravan generate --model %s", out, out);
    else
        strbuf_printf(&text, "; resume with: caravan train --resume %s", out);
    if (text.text)
        puts(text.text);
    print_communication(stdout, "communication of a step, per device", &result->communication);
}

static int train(const Args *args, const TrainConfig *config, const bool *given, bool resume,
                 TrainResult *result, cvn_err *err)
{
    View view = {.live = terminal_live(),
                 .threads = (int)config->threads,
                 .receipt = args->value[AT_RECEIPT].text};
    TrainEvents events = {.context = &view,
                          .note = on_note,
                          .warning = on_warning,
                          .step = on_step,
                          .sample = on_sample,
                          .evaluate = on_evaluate,
                          .finished = on_finished,
                          .profile = args->value[AT_PROFILE].text};
    TRY(ranks_join(&events.cluster, err));
    events.stop = run_interrupt_step(events.cluster != NULL);
    int code = train_run(config, given, resume, &events, result, err);
    if (view.drawn)
        fputc('\n', stderr);
    return code;
}

static int run(const Args *args, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TrainConfig config;
    TrainResult result = {0};
    const char *resume = args->value[AT_RESUME].text, *file = args->value[AT_CONFIG].text;
    TRY(arena_begin(&arena, err));
    bool *given = arena_array(&arena, (size_t)train_n_keys, sizeof *given);
    TRY(read_config(args, &config, given, &arena, err));
    if (resume && args->value[AT_out].given && strcmp(args->value[AT_out].text, resume) != 0)
        return err_set(err, CVN_EINVAL,
                       "--resume continues in its own folder; leave out --out, or start a new run "
                       "with --init from one of its checkpoints");
    /* What is missing or does not go together was forgotten on the command line, where there is no file. */
    if (!resume &&
        (check_mesh_options(args, &config, err) || (!file && train_config_check(&config, err))))
        return !file && err->code == CVN_EINVAL ? EXIT_USAGE : err->code;
    if (resume)
        config.out = resume;
    config.threads = limit_threads(config.threads);
    int code = train(args, &config, given, resume != NULL, &result, err);
    if (code == CVN_EINTERRUPTED)
        fprintf(stderr, "interrupted before the first step; %s\n",
                resume ? "the run is unchanged" : "nothing was saved");
    TRY(code);
    print_end(&result, config.out);
    return result.stopped ? EXIT_INTERRUPTED : EXIT_OK;
}

const Command command_train = {
    "train",
    .about = "pretrain or fine-tune a model",
    .usage = "--data FILE --preset NAME --out DIR [options]",
    .examples =
        "train --data story.txt --preset tiny --steps 1000 --out RUN\ta small model and its "
        "tokenizer from text\n"
        "train --resume RUN\tresume after an interruption\n"
        "train --data chat.jsonl --init my-llama --lr 1e-5 --out tuned\tfine-tune; the loss is on "
        "the answers only\n"
        "train --data chat.jsonl --init my-llama --lora r=16 --out tuned\tLoRA fine-tuning, in "
        "little memory\n"
        "train --dpo pairs.jsonl --init tuned --out better\tdirect preference optimization\n"
        "train --data story.txt --preset tiny --mesh data=2,model=2 --out RUN\t4 devices; several "
        "machines with mpirun\n",
    .notes = "The run folder holds checkpoints, metrics.jsonl, report.html, TensorBoard event "
             "files and the final model as a Hugging Face folder. Ctrl-C saves a checkpoint and "
             "exits with 130; --resume leads to the same result. More: docs/TRAINING.md.\n",
    .options = options,
    .run = run,
};
