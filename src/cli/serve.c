/* caravan serve: a model over HTTP. */
#include "base/arena.h"
#include "base/bytes.h"
#include "base/num.h"
#include "base/threads.h"
#include "cli/common.h"
#include "cli/ranks.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "serve/model.h"
#include "server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MODEL,
    NAME,
    ADAPTER,
    POOLING,
    HOST,
    PORT,
    SOCKET,
    KEYS,
    TLS_CERT,
    TLS_KEY,
    OPEN,
    CORS,
    SLOTS,
    WAITING,
    CHAT_TEMPLATE,
    LENIENT,
    LOG,
    LOG_TEXT,
    BODY,
    CONNECTIONS,
    IDLE,
    DEADLINE,
};

static const Option *const options[] = {
    OPTION(MODEL, "model", .letter = 'm', .kind = ARG_INPUT, .model = true, .required = true,
           .repeats = true, .named = true, .value = "[NAME=]DIR",
           .help = "model to serve; repeatable with names"),
    OPTION(NAME, "name", .kind = ARG_TEXT, .value = "NAME",
           .help = "model name for clients, default the folder's name"),
    OPTION(ADAPTER, "adapter", .kind = ARG_INPUT, .repeats = true, .named = true,
           .value = "NAME=DIR", .help = "LoRA adapters, served under NAME"),
    OPTION(POOLING, "pooling", .kind = ARG_CHOICE, .value = "HOW",
           .choices = CHOICES("mean", "last"), .fallback = "mean", .help = "pooling of embeddings"),
    OPTION(HOST, "host", .kind = ARG_TEXT, .value = "ADDRESS", .fallback = "127.0.0.1",
           .help = "address to listen on; non-local ones require keys"),
    OPTION(PORT, "port", .kind = ARG_INT, .high = 65535, .value = "N", .fallback = "8080",
           .help = "port to listen on, 0: any free port"),
    OPTION(SOCKET, "socket", .kind = ARG_TEXT, .value = "PATH",
           .help = "listen on a Unix socket instead"),
    OPTION(KEYS, "api-key-file", .kind = ARG_INPUT, .value = "FILE",
           .help = "require an API key from FILE, one key per line"),
    OPTION(TLS_CERT, "tls-cert", .kind = ARG_INPUT, .value = "FILE",
           .help = "TLS certificate chain, PEM"),
    OPTION(TLS_KEY, "tls-key", .kind = ARG_INPUT, .value = "FILE", .help = "TLS private key, PEM"),
    OPTION(OPEN, "open", .kind = ARG_FLAG, .help = "serve without authentication"),
    OPTION(CORS, "cors", .kind = ARG_TEXT, .value = "ORIGIN",
           .help = "allow CORS requests from ORIGIN, https://example.org"),
    [SLOTS] = SHARED(SLOTS),
    OPTION(WAITING, "max-waiting", .kind = ARG_INT, .high = 1 << 20, .value = "N",
           .fallback = "256", .help = "maximum queued requests"),
    [CHAT_TEMPLATE] = SHARED(CHAT_TEMPLATE),
    OPTION(LENIENT, "lenient", .kind = ARG_FLAG,
           .help = "ignore unknown request fields, listing them in a header"),
    OPTION(LOG, "access-log", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
           .help = "append a JSON line per request"),
    OPTION(LOG_TEXT, "log-text", .kind = ARG_FLAG, .help = "log prompts and answers, too"),
    OPTION(BODY, "max-body", .kind = ARG_SIZE, .low = 1024, .high = 1 << 30, .value = "SIZE",
           .fallback = "16M", .help = "maximum size of a request body"),
    OPTION(CONNECTIONS, "max-connections", .kind = ARG_INT, .low = 1, .high = 65536, .value = "N",
           .fallback = "1000", .help = "maximum open connections"),
    OPTION(IDLE, "idle", .kind = ARG_INT, .low = 1, .high = 86400, .value = "SECONDS",
           .fallback = "60", .help = "idle timeout of connections"),
    OPTION(DEADLINE, "deadline", .kind = ARG_INT, .high = 86400, .value = "SECONDS",
           .fallback = "0", .help = "request timeout, 0: none"),
    SHARED(CONTEXT),
    RUN_MODEL_OPTIONS,
    SHARED(SPECULATE),
    SHARED(DRAFT),
    SHARED(MAX_STALL),
    SHARED(BUCKETS),
    SHARED(TRAFFIC),
    SHARED(PROFILE),
    NULL,
};

#ifdef CVN_HAVE_MICROHTTPD

/* A run of the command. */
typedef struct Serve {
    const Args *args;
    Arena arena; /* of what follows */
    int n;
    ServerModel *model;   /* [n] */
    double *seconds;      /* [n] that loading took */
    const char ***folder; /* [n][n_adapters] of their adapters */
    RunModel *run;        /* [n] owned */
    cvn_engine **engine;  /* [n] */
    Server *server;
    sigset_t signals;
    atomic_bool ended; /* and nobody waits for signals any more */
    pthread_t waits;
    int log;      /* the file's descriptor, or -1 */
    cvn_err *err; /* of closing, too */
} Serve;

/* A line in one write, so that those of several threads stay apart. */
static void write_line(void *context, const char *line)
{
    const Serve *serve = context;
    SCOPED(strbuf_free) StrBuf text = {0};
    strbuf_printf(&text, "%s\n", line);
    if (!text.failed && write(serve->log, text.text, text.length) < 0 && errno == ENOSPC)
        fprintf(stderr, "caravan: cannot write the access log: the disk is full\n");
}

/* Signals come here and nowhere else. mpirun hands SIGUSR1 on to its processes. */
static void *wait_for_signals(void *context)
{
    Serve *serve = context;
    int asked = 0, number;
    while (sigwait(&serve->signals, &number) == 0 && !serve->ended) {
        cvn_err err = {0};
        if (number == SIGHUP) {
            if (server_reload(serve->server, &err))
                fprintf(stderr, "caravan: %s; the previous keys and certificates stay in use\n",
                        err.message);
        } else if (asked++ == 0) {
            if (!server_drain(serve->server))
                _exit(EXIT_OK); /* nothing has begun */
            fprintf(stderr, "caravan: finishing running requests; a second signal stops them\n");
        } else {
            server_abort(serve->server);
        }
    }
    return NULL;
}

/* The last part of the path. */
static char *last_part(const char *path, Arena *arena)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && path[from - 1] != '/')
        from--;
    return arena_stringn(arena, path + from, n - from);
}

/* That no model, or an adapter of one, is called so. */
static int check_name(const Serve *serve, const char *name, cvn_err *err)
{
    bool taken = false;
    for (const ServerModel *m = serve->model; m < serve->model + serve->n; m++) {
        taken |= strcmp(m->name, name) == 0;
        for (int k = 0; k < m->n_adapters; k++)
            taken |= strcmp(m->adapter[k], name) == 0;
    }
    return taken ? err_set(err, CVN_EINVAL, "two have the name %s; give each its own, as NAME=DIR",
                           name)
                 : CVN_OK;
}

static int take_models(Serve *serve, cvn_err *err)
{
    const Value *v = serve->args->value;
    size_t n = v[MODEL].n_texts, length;
    serve->model = arena_array(&serve->arena, n, sizeof *serve->model);
    serve->folder = arena_array(&serve->arena, n, sizeof *serve->folder);
    serve->seconds = arena_array(&serve->arena, n, sizeof *serve->seconds);
    serve->run = arena_array(&serve->arena, n, sizeof *serve->run);
    serve->engine = arena_array(&serve->arena, n, sizeof(cvn_engine *));
    if (n > 1 && (v[NAME].given || args_value(serve->args, SHARED(DRAFT))->given ||
                  args_value(serve->args, SHARED(PROFILE))->given))
        return err_set(err, CVN_EINVAL,
                       "--name, --draft and --profile need a single model; with several, give "
                       "names as --model NAME=DIR");
    for (size_t i = 0; i < n; i++) {
        const char *path = option_named(v[MODEL].texts[i], &length);
        const char *name = length          ? arena_stringn(&serve->arena, v[MODEL].texts[i], length)
                           : v[NAME].given ? v[NAME].text
                                           : last_part(path, &serve->arena);
        TRY(check_name(serve, name, err));
        serve->model[serve->n++] = (ServerModel){.name = name, .path = path};
    }
    return CVN_OK;
}

/* "NAME=DIR", or where there are several models "MODEL/NAME=DIR". */
static int take_adapter(Serve *serve, const char *text, cvn_err *err)
{
    size_t length, own = 0;
    const char *folder = option_named(text, &length), *name = text;
    int of = 0;
    for (int i = 0; serve->n > 1 && own == 0; of = i++) {
        own = i < serve->n ? strlen(serve->model[i].name) : 0;
        if (i == serve->n)
            return err_set(err, CVN_EINVAL,
                           "with several models, --adapter %s must name its model: MODEL/NAME=DIR",
                           text);
        own = own < length && memcmp(text, serve->model[i].name, own) == 0 && text[own] == '/'
                  ? own + 1
                  : 0;
    }
    if (length <= own)
        return err_set(err, CVN_EINVAL, "--adapter %s has no name for clients; give NAME=DIR",
                       text);
    ServerModel *m = &serve->model[of];
    size_t most = serve->args->value[ADAPTER].n_texts;
    const char **names = (const char **)(uintptr_t)m->adapter;
    if (!names) {
        names = arena_array(&serve->arena, most, sizeof *names);
        serve->folder[of] = arena_array(&serve->arena, most, sizeof *names);
    }
    name = arena_stringn(&serve->arena, text + own, length - own);
    TRY(check_name(serve, name, err));
    names[m->n_adapters] = name;
    serve->folder[of][m->n_adapters++] = folder;
    m->adapter = names;
    return CVN_OK;
}

static RunOptions run_options(const Serve *serve)
{
    RunOptions run = run_model_options(serve->args);
    run.tokenizer_later = true;
    run.engine.slots = (int)serve->args->value[SLOTS].integer;
    run.engine.pooling = serve->args->value[POOLING].text;
    run.engine.sampling = run.engine.penalties = run.engine.reuse = run.engine.logits_processors =
        run.engine.scoring = true;
    return run;
}

/* Of which model it is. */
static void set_model(const Serve *serve, int i, RunOptions *run)
{
    run->path = serve->model[i].path;
    run->engine.adapter = serve->folder[i];
    run->engine.n_adapters = serve->model[i].n_adapters;
}

/* Called when it is so, not when the models are there. */
static void say_ready(void *context)
{
    const Serve *serve = context;
    for (int i = 0; i < serve->n; i++) {
        cvn_engine_stats stats = cvn_engine_get_stats(serve->engine[i]);
        const double bytes[] = {(double)stats.weight_bytes, (double)stats.cache_bytes,
                                (double)stats.arena_bytes};
        fprintf(stderr,
                "caravan: %s is ready after %.1f s: %d slots, at most %s of memory (weights %s, KV "
                "cache %s, activations %s)\n",
                serve->model[i].name, serve->seconds[i], (int)serve->args->value[SLOTS].integer,
                bytes_text(bytes[0] + bytes[1] + bytes[2]).text, bytes_text(bytes[0]).text,
                bytes_text(bytes[1]).text, bytes_text(bytes[2]).text);
    }
}

/* What is wrong with files and options is said before anybody could ask; of weights nothing is read yet. */
static int open_models(Serve *serve, cvn_err *err)
{
    const Value *v = serve->args->value;
    RunOptions run = run_options(serve);
    TRY(take_models(serve, err));
    for (size_t i = 0; i < v[ADAPTER].n_texts; i++)
        TRY(take_adapter(serve, v[ADAPTER].texts[i], err));
    for (int i = 0; i < serve->n; i++) {
        double begin = clock_seconds();
        set_model(serve, i, &run);
        TRY(run_model_open(&serve->run[i], &run, err));
        TRY(run_model_check(&serve->run[i], &run, err));
        serve->seconds[i] = clock_seconds() - begin;
    }
    return CVN_OK;
}

static int listen_for_requests(Serve *serve, cvn_err *err)
{
    const Value *v = serve->args->value;
    if (v[LOG].given) {
        serve->log = open(v[LOG].text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (serve->log < 0)
            return err_set(err, CVN_EIO, "cannot write %s: %s", v[LOG].text, strerror(errno));
    }
    const ServerOptions o = {.host = v[HOST].text,
                             .port = (int)v[PORT].integer,
                             .socket_path = v[SOCKET].text,
                             .model = serve->model,
                             .n_models = serve->n,
                             .chat_template = v[CHAT_TEMPLATE].text,
                             .key_file = v[KEYS].text,
                             .tls_cert = v[TLS_CERT].text,
                             .tls_key = v[TLS_KEY].text,
                             .deadline_seconds = (int)v[DEADLINE].integer,
                             .follows = !ranks_first(),
                             .ready = say_ready,
                             .ready_context = serve,
                             .open = v[OPEN].flag,
                             .cors = v[CORS].text,
                             .lenient = v[LENIENT].flag,
                             .max_waiting = (int)v[WAITING].integer,
                             .max_body = v[BODY].integer,
                             .max_connections = (int)v[CONNECTIONS].integer,
                             .idle_seconds = (int)v[IDLE].integer,
                             .log_text = v[LOG_TEXT].flag,
                             .access = serve->log >= 0 ? write_line : NULL,
                             .access_context = serve};
    TRY(server_new(&o, &serve->server, err));
    if (o.follows || pthread_create(&serve->waits, NULL, wait_for_signals, serve) == 0)
        return CVN_OK;
    server_free(serve->server);
    serve->server = NULL;
    return err_set(err, CVN_EMEM, "cannot start the signal thread");
}

/* The model that is being loaded. */
typedef struct Loading {
    const Serve *serve;
    int model;
} Loading;

static void say_progress(void *context, uint64_t done, uint64_t all)
{
    const Loading *loading = context;
    server_progress(loading->serve->server, loading->model, done, all);
}

/* A tokenizer that is read while the engine is made: it takes a third of the time of a small model. */
typedef struct Reading {
    cvn_model *model;
    const char *path;
    pthread_t thread;
    cvn_err err;
} Reading;

static void *read_tokenizer(void *context)
{
    Reading *r = context;
    model_open_tokenizer(r->model, r->path, &r->err);
    return NULL;
}

static void end_reading(void *context)
{
    pthread_join(((Reading *)context)->thread, NULL);
}

static int start(RunModel *of, const RunOptions *run, cvn_err *err)
{
    Reading reading = {.model = of->model, .path = run->path};
    size_t said = of->model->warnings.length;
    Cleanup cleanup;
    bool beside = pthread_create(&reading.thread, NULL, read_tokenizer, &reading) == 0;
    if (beside)
        cleanup_push(&cleanup, end_reading, &reading);
    int code = run_model_start(of, run, 0, cvn_model_context(of->model), err);
    if (beside)
        cleanup_run(&cleanup);
    else
        read_tokenizer(&reading);
    warn_lines(cvn_model_warnings(of->model) + said);
    if (code == CVN_OK && reading.err.code)
        *err = reading.err;
    return code ? code : reading.err.code;
}

static int load(Serve *serve, int i, RunOptions *run, cvn_err *err)
{
    RunModel *of = &serve->run[i];
    double begin = clock_seconds();
    Loading loading = {serve, i};
    server_progress(serve->server, i, 0, 0);
    run->engine.on_load = say_progress;
    run->engine.on_load_context = &loading;
    set_model(serve, i, run);
    const int64_t most = cvn_model_context(of->model), context = run->engine.context;
    TRY(run_model_traffic(args_value(serve->args, SHARED(TRAFFIC)),
                          context ? num_min(context, most) : most, &run->engine, err));
    TRY(start(of, run, err));
    serve->engine[i] = of->engine;
    cvn_engine_stats stats = cvn_engine_get_stats(of->engine);
    uint64_t bytes = stats.weight_bytes + stats.cache_bytes + stats.arena_bytes;
    if (run->engine.memory_limit) /* the next one has what is left */
        run->engine.memory_limit =
            run->engine.memory_limit > bytes ? run->engine.memory_limit - bytes : 1;
    serve->seconds[i] += clock_seconds() - begin;
    return CVN_OK;
}

static void close_serve(Serve *serve)
{
    if (serve->server) {
        server_free(serve->server);
        serve->ended = true;
        if (ranks_first()) {
            pthread_kill(serve->waits, SIGUSR1);
            pthread_join(serve->waits, NULL);
        }
    }
    for (int i = 0; serve->run && i < serve->n; i++)
        run_model_close(&serve->run[i], serve->err);
    if (serve->log >= 0)
        close(serve->log);
    arena_free(&serve->arena);
}

static int run(const Args *args, cvn_err *err)
{
    const Value *v = args->value;
    SCOPED(close_serve) Serve serve = {.args = args, .log = -1, .err = err};
    Cluster *cluster;
    sigemptyset(&serve.signals);
    static const int numbers[] = {SIGINT, SIGHUP, SIGUSR1, SIGTERM};
    size_t n_numbers =
        ranks_speaks() ? 4 : 3; /* others are ended by it when one of them has died */
    for (size_t i = 0; i < n_numbers; i++)
        sigaddset(&serve.signals, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &serve.signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* of clients that went away */
    TRY(run_join(args_value(args, SHARED(MESH))->given, &cluster, err));
    if (cluster && v[MODEL].n_texts > 1)
        return err_set(err, CVN_EUNSUPPORTED,
                       "several processes can serve only one model; give one --model");
    TRY(arena_begin(&serve.arena, err));
    TRY(open_models(&serve, err));
    TRY(listen_for_requests(&serve, err));
    if (v[SOCKET].given)
        printf("listening at %s\n", v[SOCKET].text);
    else
        printf("listening at http%s://%s%s%s:%d\n", v[TLS_CERT].given ? "s" : "",
               strchr(v[HOST].text, ':') ? "[" : "", v[HOST].text,
               strchr(v[HOST].text, ':') ? "]" : "", server_port(serve.server));
    fflush(stdout);
    RunOptions run = run_options(&serve);
    for (int i = 0; i < serve.n; i++)
        TRY(load(&serve, i, &run, err));
    return server_run(serve.server, serve.engine, err);
}

#else

static int run(const Args *args, cvn_err *err)
{
    (void)args;
    return err_set(err, CVN_EUNSUPPORTED,
                   "this build has no server: it needs libmicrohttpd (on Debian and Ubuntu "
                   "libmicrohttpd-dev) when it is built");
}

#endif

const Command command_serve = {
    "serve",
    .about = "serve models over HTTP",
    .usage = "MODEL [options]",
    .examples =
        "serve -m my-llama\thttp://127.0.0.1:8080, with OpenAI's and Anthropic's APIs\n"
        "serve -m my-llama --host 0.0.0.0 --api-key-file keys.txt\tother machines, with API keys\n"
        "serve -m my-llama --socket /run/caravan.sock\tbehind a reverse proxy\n"
        "serve -m my-llama --adapter law=law-lora --adapter code=code-lora\tLoRA adapters by name\n"
        "serve -m small=my-llama -m large=my-llama-8b --slots 32\tseveral models, up to 32 "
        "sequences each\n",
    .notes = "SIGTERM and Ctrl-C finish the accepted requests and exit; a second signal exits at "
             "once. SIGHUP reloads keys and certificates. /health returns 503 until the model is "
             "loaded. A request's answer does not depend on what else is in the batch.",
    .options = options,
    .run = run,
};
