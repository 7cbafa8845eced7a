#include "cli/run_model.h"

#include "base/json_file.h"
#include "base/map.h"
#include "base/threads.h"
#include "cli/common.h"
#include "cli/figures.h"
#include "cli/ranks.h"
#include "cli/terminal.h"
#include "model/layouts.h"
#include "serve/buckets.h"
#include "serve/engine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Set by the handler; the one piece of state that a signal leaves no other place for. */
static volatile int interrupted;

static void on_interrupt(int signal_number)
{
    (void)signal_number;
    interrupted = 1;
}

#define STOPPING "stopping after this step; Ctrl-C again stops now\n"
enum {
    TWICE_MS = 1000
}; /* keys and shells repeat themselves: what comes within it is the same wish */

/* Says at once that it was heard: a step may take minutes. Only functions that a handler may call. */
static void on_stop(int number)
{
    static volatile int64_t first;
    static const char line[] = "\r\033[K" STOPPING;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    int64_t now = (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
    if (interrupted && now - first < TWICE_MS)
        return;
    if (interrupted && number != SIGHUP) {
        signal(number, SIG_DFL);
        raise(number);
        return;
    }
    if (interrupted)
        return;
    interrupted = 1;
    first = now;
    size_t skip = isatty(STDERR_FILENO) ? 0 : sizeof line - sizeof STOPPING;
    if (write(STDERR_FILENO, line + skip, sizeof line - 1 - skip) < 0)
        return; /* nobody listens any more */
}

const volatile int *run_interrupt_step(bool several)
{
    const int numbers[] = {SIGINT, several ? SIGUSR1 : SIGTERM, SIGHUP};
    struct sigaction stop = {.sa_handler = on_stop, .sa_flags = SA_RESTART}, before;
    for (int i = 0; i < 3; i++)
        if (numbers[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) != 0 ||
            before.sa_handler != SIG_IGN) /* nohup */
            sigaction(numbers[i], &stop, NULL);
    signal(SIGPIPE, SIG_IGN); /* `train | tee log`: Ctrl-C ends tee, and the run is to be saved */
    return &interrupted;
}

/* once: a second one ends the program. Reads are interrupted, not begun again. */
static void catch_signal(int number, bool once)
{
    struct sigaction action = {.sa_handler = on_interrupt,
                               .sa_flags = once ? (int)SA_RESETHAND : 0};
    sigaction(number, &action, NULL);
}

volatile int *run_interrupt_keep(bool several)
{
    if (several)
        signal(SIGINT, SIG_DFL);
    else
        catch_signal(SIGINT, false);
    return &interrupted;
}

const volatile int *run_interrupt_once(bool several)
{
    catch_signal(SIGINT, true);
    catch_signal(several ? SIGUSR1 : SIGTERM, true);
    return &interrupted;
}

const volatile int *run_interrupt(void)
{
    return &interrupted;
}

const char *layout_said(const char *mesh, const Value *layout, bool training)
{
    bool chosen = strcmp(layout->text, "auto") == 0;
    return chosen ? layout_for(mesh ? mesh : "", training) : layout->text;
}

int check_layout(const char *mesh, const char *layout, cvn_err *err)
{
    Mesh parsed;
    SCOPED(arena_free) Arena arena = {0};
    if (!mesh)
        return CVN_OK;
    TRY(arena_begin(&arena, err));
    TRY(mesh_parse(&parsed, mesh, &arena, err));
    return layout_check(layout, &parsed, err);
}

int run_join(bool mesh, Cluster **cluster, cvn_err *err)
{
    *cluster = NULL;
    if (transport_launched() && !mesh)
        return runtime_mesh_missing(err);
    return mesh ? ranks_join(cluster, err) : CVN_OK;
}

int run_model_open(RunModel *run, const RunOptions *options, cvn_err *err)
{
    if (run_join(options->mesh != NULL, &run->cluster, err) ||
        check_layout(options->mesh, options->layout, err))
        return err->code;
    catch_signal(SIGINT, true);
    if (run->cluster) /* what mpirun hands on to its processes */
        catch_signal(SIGUSR1, true);
    double begin = clock_seconds();
    cvn_model_options open = {.dtype = options->dtype,
                              .quantize = options->quantize,
                              .tokenizer = options->tokenizer,
                              .no_tokenizer = options->tokenizer_later,
                              .text_only = options->text_only};
    run->encoding = TOKENIZER_BOS | (options->special ? TOKENIZER_SPECIAL : 0U);
    TRY(cvn_model_open(options->path, &open, &run->model, err));
    open = (cvn_model_options){
        .dtype = options->dtype, .no_tokenizer = true, .text_only = options->text_only};
    if (options->draft)
        TRY(cvn_model_open(options->draft, &open, &run->draft, err));
    run->load_seconds = clock_seconds() - begin;
    if (options->needs_tokenizer && !cvn_model_has_tokenizer(run->model))
        return err_set(err, CVN_EINVAL, "%s, so there is no tokenizer for text%s",
                       run->model->tokenizer_err.message,
                       options->takes_ids ? "; give token ids with --tokens" : "");
    warn_lines(cvn_model_warnings(run->model));
    /* The ranks have the same model as far as its config says. */
    const uint64_t same[] = {model_hash(run->model->io.desc), run->model->dtype};
    return cluster_agree(run->cluster, "the model", hash_bytes(same, sizeof same), err);
}

cvn_sampling run_model_sampling(const Args *args)
{
    return (cvn_sampling){.temperature = (float)args_value(args, SHARED(TEMPERATURE))->real,
                          .top_k = (int32_t)args_value(args, SHARED(TOP_K))->integer,
                          .top_p = (float)args_value(args, SHARED(TOP_P))->real,
                          .min_p = (float)args_value(args, SHARED(MIN_P))->real,
                          .repeat_penalty = (float)args_value(args, SHARED(REPEAT_PENALTY))->real,
                          .seed = (uint64_t)args_value(args, SHARED(SEED))->integer};
}

/* A file, or the schema itself. */
static int constraint_of_schema(const Args *args, const char *schema, cvn_constraint **out,
                                cvn_err *err)
{
    const cvn_constrain_options options = {
        .compact = !args_value(args, SHARED(PRETTY))->flag,
        .in_order = !args_value(args, SHARED(ANY_ORDER))->flag,
        .canonical = true,
    };
    SCOPED(scoped_free) char *text = NULL;
    size_t n = strlen(schema);
    bool file = schema[strspn(schema, " \t\r\n")] != '{' && strcmp(schema, "true") != 0 &&
                strcmp(schema, "false") != 0;
    if (file)
        TRY(read_input(schema, &text, &n, err));
    int code = cvn_constraint_schema(file ? text : schema, n, &options, out, err);
    if (code)
        err_prefix(err, "%s", file ? schema : "--json-schema");
    return code;
}

int run_model_constraint(const Args *args, cvn_constraint **out, cvn_err *err)
{
    const Value *schema = args_value(args, SHARED(JSON_SCHEMA)),
                *regex = args_value(args, SHARED(REGEX)),
                *grammar = args_value(args, SHARED(GRAMMAR)),
                *choice = args_value(args, SHARED(ONE_OF));
    int code = CVN_OK;
    *out = NULL;
    if (schema->given)
        return constraint_of_schema(args, schema->text, out, err);
    if (grammar->given) {
        SCOPED(scoped_free) char *text = NULL;
        size_t n;
        TRY(read_input(grammar->text, &text, &n, err));
        code = cvn_constraint_grammar(text, n, out, err);
        if (code)
            err_prefix(err, "%s", grammar->text);
        return code;
    }
    if (regex->given) {
        code = cvn_constraint_regex(regex->text, strlen(regex->text), out, err);
        if (code)
            err_prefix(err, "--regex");
    }
    if (choice->given) {
        SCOPED(scoped_free) size_t *length = calloc(choice->n_texts, sizeof *length);
        if (!length)
            return err_set(err, CVN_EMEM, "no memory for %zu choices", choice->n_texts);
        for (size_t i = 0; i < choice->n_texts; i++)
            length[i] = strlen(choice->texts[i]);
        code = cvn_constraint_choices(choice->texts, length, choice->n_texts, out, err);
    }
    return code;
}

void run_model_buckets(const Value *buckets, cvn_engine_options *engine)
{
    engine->n_buckets = (int)buckets->n_ids; /* if they are too many, the engine says so */
    for (size_t i = 0; i < buckets->n_ids && i < CVN_MAX_BUCKETS; i++)
        engine->bucket[i] = buckets->ids[i];
}

int run_model_traffic(const Value *traffic, int64_t context, cvn_engine_options *engine,
                      cvn_err *err)
{
    BucketChoice choice;
    if (!traffic->given)
        return CVN_OK;
    TRY(buckets_of_log(traffic->text, context, &choice, err));
    engine->n_buckets = choice.n;
    memcpy(engine->bucket, choice.bucket, sizeof choice.bucket);
    if (!ranks_speaks())
        return CVN_OK;
    fprintf(stderr, "%" PRId64 " prompts in %s: --buckets ", choice.prompts, traffic->text);
    for (int i = 0; i < choice.n; i++)
        fprintf(stderr, "%s%" PRId64, i ? "," : "", choice.bucket[i]);
    fprintf(stderr, "; %.0f %% of what prefill computes is padding, %.0f %% with the default\n",
            100 * choice.padding, 100 * choice.usual);
    return CVN_OK;
}

RunOptions run_model_options(const Args *args)
{
    cvn_sampling s = run_model_sampling(args);
    const Value *adapter = args_value(args, SHARED(ADAPTER));
    bool samples = s.temperature > 0;
    bool constrained =
        args_value(args, SHARED(JSON_SCHEMA))->given || args_value(args, SHARED(REGEX))->given ||
        args_value(args, SHARED(GRAMMAR))->given || args_value(args, SHARED(ONE_OF))->given;
    RunOptions options = {
        .path = args_value(args, SHARED(MODEL))->text,
        .dtype = dtype_of(args_value(args, SHARED(DTYPE))),
        .quantize = args_value(args, SHARED(QUANTIZE))->text,
        .text_only = args_value(args, SHARED(TEXT_ONLY))->flag,
        .draft = args_value(args, SHARED(DRAFT))->text,
        .mesh = args_value(args, SHARED(MESH))->text,
        .layout = layout_said(args_value(args, SHARED(MESH))->text,
                              args_value(args, SHARED(LAYOUT)), false),
        .chosen = strcmp(args_value(args, SHARED(LAYOUT))->text, "auto") == 0,
        .engine = {.threads = (int)args_value(args, SHARED(THREADS))->integer,
                   .context = args_value(args, SHARED(CONTEXT))->integer,
                   .kv_cache = args_value(args, SHARED(KV_CACHE))->text,
                   .activations = args_value(args, SHARED(ACTIVATIONS))->text,
                   .numerics = args_value(args, SHARED(NUMERICS))->text,
                   .device = args_value(args, SHARED(DEVICE))->text,
                   .speculate = args_value(args, SHARED(SPECULATE))->text,
                   .adapter = &adapter->text,
                   .n_adapters = adapter->given,
                   .max_stall = args_value(args, SHARED(MAX_STALL))->real / 1e3,
                   .memory_limit = (uint64_t)args_value(args, SHARED(MEMORY))->integer,
                   .kv_memory = (uint64_t)args_value(args, SHARED(KV_MEMORY))->integer,
                   .blocking = args_value(args, SHARED(OVERLAP))->integer == 1,
                   .dump_dir = args_value(args, SHARED(DUMP))->text,
                   .profile_path = args_value(args, SHARED(PROFILE))->text,
                   .logits_processors = constrained,
                   .sampling = samples,
                   .penalties =
                       s.repeat_penalty > 0 && (s.repeat_penalty < 1 || s.repeat_penalty > 1)}};
    run_model_buckets(args_value(args, SHARED(BUCKETS)), &options.engine);
    return options;
}

int run_model_input(const RunModel *run, const Value *ids, const char *text, const char *file,
                    TokenIds *out, cvn_err *err)
{
    if (ids->given) {
        for (size_t i = 0; i < ids->n_ids; i++)
            token_ids_add(out, ids->ids[i]);
        return out->failed ? err_set(err, CVN_EMEM, "no memory for the token ids") : CVN_OK;
    }
    SCOPED(scoped_free) char *all = NULL;
    size_t n = text ? strlen(text) : 0;
    if (file)
        TRY(read_input(file, &all, &n, err));
    if (file && n == 0)
        return err_set(err, CVN_EINVAL, "%s is empty; give a text",
                       strcmp(file, "-") == 0 ? "standard input" : file);
    warn_left_out(run->model->tokenizer, file ? file : "the text", file ? all : text, n);
    TRY(tokenizer_encode(run->model->tokenizer, file ? all : text, n, run->encoding, out, err));
    if (out->n == 0)
        return err_set(err, CVN_EINVAL, "the prompt is empty");
    return cluster_agree(run->cluster, "the text", hash_bytes(out->id, out->n * sizeof *out->id),
                         err);
}

static cvn_engine_options engine_options(const RunModel *run, const RunOptions *options)
{
    cvn_engine_options engine = options->engine;
    engine.mesh = options->mesh;
    engine.layout = options->layout;
    engine.cluster = run->cluster;
    engine.draft = run->draft;
    return engine;
}

int run_model_check(const RunModel *run, const RunOptions *options, cvn_err *err)
{
    const cvn_engine_options engine = engine_options(run, options);
    return engine_check(run->model, &engine, err);
}

int run_model_start(RunModel *run, const RunOptions *options, int64_t n_prompt, int64_t n_new,
                    cvn_err *err)
{
    cvn_engine_options engine = engine_options(run, options);
    const char *mesh = ranks_speaks() ? options->mesh : NULL;
    /* The layout, where it was not said; and that another would do with less, where it was. */
    if (mesh && options->chosen)
        fprintf(stderr, "layout %s, chosen for mesh %s\n", options->layout, mesh);
    else if (mesh && strcmp(options->layout, "2d") == 0 &&
             strcmp(layout_for(mesh, false), "tp") == 0)
        fprintf(stderr,
                "caravan: warning: on mesh %s, layout 2d has four all-reduces per layer, tp two: "
                "use --layout tp\n",
                mesh);
    int64_t most = cvn_model_context(run->model), needed = n_prompt + n_new;
    if (engine.context == 0)
        engine.context = needed < most ? needed : most;
    if (n_prompt > engine.context)
        return err_set(err, CVN_EINVAL,
                       "the prompt has %" PRId64 " tokens and the context is %" PRId64
                       "; shorten the prompt%s",
                       n_prompt, engine.context,
                       engine.context < most ? " or raise --context" : "");
    double begin = clock_seconds();
    TRY(cvn_engine_new(run->model, &engine, &run->engine, err));
    double load = cvn_engine_get_stats(run->engine).load_seconds;
    run->load_seconds += load;
    run->compile_seconds = clock_seconds() - begin - load;
    cvn_engine_watch(run->engine, run_interrupt());
    warn_lines(cvn_engine_warnings(run->engine));
    /* Devices that only repeat what others do are no mistake here: the next text may divide. But nobody should wait for
       them. */
    const Runtime *rt = &run->engine->rt;
    int axis = ranks_speaks() ? runtime_idle_axis(rt) : -1, rows = run->engine->options.slots;
    if (axis >= 0)
        fprintf(stderr,
                "caravan: warning: the %d devices along %s all compute the same: with layout %s a "
                "batch of %d sequence%s cannot be sharded over it\n",
                (int)rt->mesh.axis[axis].size, rt->mesh.axis[axis].name, options->layout, rows,
                rows == 1 ? "" : "s");
    return CVN_OK;
}

int run_model_close(RunModel *run, cvn_err *err)
{
    if (run->engine && run->engine->options.profile_path && !run->engine->failed) {
        CommTable table;
        run->engine->rt.backend->communication(run->engine->rt.devices, &table);
        print_communication(stderr, "communication of this run, per device", &table);
    }
    int code = cvn_engine_free(run->engine, err);
    cvn_model_free(run->model);
    cvn_model_free(run->draft);
    *run = (RunModel){0};
    return code;
}

SaveOptions save_options(const Args *args, cvn_dtype dtype)
{
    return (SaveOptions){.dtype = dtype,
                         .shard_bytes = (uint64_t)args_value(args, SHARED(SHARD_SIZE))->integer,
                         .force = args_value(args, SHARED(FORCE))->flag,
                         .threads = (int)args_value(args, SHARED(THREADS))->integer,
                         .interrupt = run_interrupt_once(false)};
}

json_t *json_ids(const int32_t *ids, size_t n)
{
    json_t *array = json_array();
    for (size_t i = 0; i < n; i++)
        array = json_append(array, json_integer(ids[i]));
    return array;
}
