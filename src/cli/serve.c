/* caravan serve: a model over HTTP. */
#include "base/bytes.h"
#include "base/threads.h"
#include "cli/common.h"
#include "cli/run_model.h"
#include "cli/terminal.h"
#include "serve/model.h"
#include "server/server.h"
#include "text/chat.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MODEL,
    NAME,
    HOST,
    PORT,
    SOCKET,
    KEYS,
    TLS_CERT,
    TLS_KEY,
    OPEN,
    CORS,
    ROWS,
    WAITING,
    FORMAT,
    LENIENT,
    LOG,
    BODY,
    CONNECTIONS,
    IDLE,
    DEADLINE,
};

static const char *format_name(size_t i)
{
    return i < CHAT_N ? chat_format_name((ChatFormat)i) : NULL;
}

static const Option *const options[] = {
    [MODEL] = SHARED(MODEL),
    [NAME] = &(const Option){"name", .kind = ARG_TEXT, .value = "NAME",
                             .help = "what clients call the model, else its folder's name"},
    [HOST] = &(const Option){"host", .kind = ARG_TEXT, .value = "ADDRESS", .fallback = "127.0.0.1",
                             .help = "address to listen at; others than this machine's want a key"},
    [PORT] = &(const Option){"port", .kind = ARG_INT, .high = 65535, .value = "N",
                             .fallback = "8080", .help = "port to listen at, 0: any that is free"},
    [SOCKET] = &(const Option){"socket", .kind = ARG_TEXT, .value = "PATH",
                               .help = "listen at a path of this machine instead"},
    [KEYS] = &(const Option){"api-key-file", .kind = ARG_INPUT, .value = "FILE",
                             .help = "answer those only that have one of its keys, one per line"},
    [TLS_CERT] = &(const Option){"tls-cert", .kind = ARG_INPUT, .value = "FILE",
                                 .help = "speak TLS with this chain of certificates, in PEM"},
    [TLS_KEY] = &(const Option){"tls-key", .kind = ARG_INPUT, .value = "FILE",
                                .help = "the certificate's key, in PEM"},
    [OPEN] = &(const Option){"open", .kind = ARG_FLAG,
                             .help = "answer everyone who reaches the address, without a key"},
    [CORS] = &(const Option){"cors", .kind = ARG_TEXT, .value = "ORIGIN",
                             .help = "let web pages of ORIGIN use the server, https://example.org"},
    [ROWS] = &(const Option){"rows", .kind = ARG_INT, .low = 1, .high = 4096, .value = "N",
                             .fallback = "8", .help = "most texts generated at once"},
    [WAITING] = &(const Option){"max-waiting", .kind = ARG_INT, .high = 1 << 20, .value = "N",
                                .fallback = "256", .help = "most texts that wait for a row"},
    [FORMAT] = &(const Option){"format", .kind = ARG_CHOICE, .value = "NAME", .choice = format_name,
                               .help = "chat format, else the model's"},
    [LENIENT] = &(const Option){"lenient", .kind = ARG_FLAG,
                                .help = "name fields that are not known in a header, not an error"},
    [LOG] = &(const Option){"access-log", .kind = ARG_OUTPUT, .tried = true, .value = "FILE",
                            .help = "add a JSON line for each request"},
    [BODY] = &(const Option){"max-body", .kind = ARG_SIZE, .low = 1024, .high = 1 << 30,
                             .value = "SIZE", .fallback = "16M", .help = "longest request"},
    [CONNECTIONS] =
        &(const Option){"max-connections", .kind = ARG_INT, .low = 1, .high = 65536, .value = "N",
                        .fallback = "1000", .help = "most connections at once"},
    [IDLE] = &(const Option){"idle", .kind = ARG_INT, .low = 1, .high = 86400, .value = "SECONDS",
                             .fallback = "60", .help = "close connections on which nothing moves"},
    [DEADLINE] = &(const Option){"deadline", .kind = ARG_INT, .high = 86400, .value = "SECONDS",
                                 .fallback = "0", .help = "most that a request may take, 0: any"},
    SHARED(CONTEXT),
    RUN_MODEL_OPTIONS,
    SHARED(SPECULATE),
    SHARED(DRAFT),
    SHARED(MAX_STALL),
    SHARED(PROFILE),
    NULL,
};

#ifdef CVN_HAVE_MICROHTTPD

/* A run of the command. */
typedef struct Serve {
    const Args *args;
    RunModel model;
    Server *server;
    sigset_t signals;
    pthread_t waits;
    int log;    /* the file's descriptor, or -1 */
    char *name; /* owned */
} Serve;

/* A line in one write, so that those of several threads stay apart. */
static void write_line(void *context, const char *line)
{
    const Serve *serve = context;
    StrBuf text = {0};
    strbuf_printf(&text, "%s\n", line);
    if (!text.failed && write(serve->log, text.text, text.length) < 0 && errno == ENOSPC)
        fprintf(stderr, "caravan: the access log cannot be written: the disk is full\n");
    strbuf_free(&text);
}

/* Signals come here and nowhere else. */
static void *wait_for_signals(void *context)
{
    Serve *serve = context;
    int asked = 0, number;
    while (sigwait(&serve->signals, &number) == 0 && number != SIGUSR1) {
        cvn_err err = {0};
        if (number == SIGHUP) {
            if (server_reload(serve->server, &err))
                fprintf(stderr, "caravan: %s; what was read before stays\n", err.message);
        } else if (asked++ == 0) {
            if (!server_drain(serve->server))
                _exit(EXIT_OK); /* nothing has begun */
            fprintf(stderr, "caravan: finishing what runs; a second signal ends it\n");
        } else {
            server_abort(serve->server);
        }
    }
    return NULL;
}

/* The last part of the path. */
static char *model_name(const Value *given, const char *path)
{
    if (given->given)
        return strdup(given->text);
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from && path[from - 1] != '/')
        from--;
    return strndup(path + from, n - from);
}

static int listen_for_requests(Serve *serve, cvn_err *err)
{
    const Value *v = serve->args->value;
    serve->name = model_name(&v[NAME], v[MODEL].text);
    if (!serve->name)
        return err_set(err, CVN_EMEM, "no memory for a name");
    if (v[LOG].given) {
        serve->log = open(v[LOG].text, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
        if (serve->log < 0)
            return err_set(err, CVN_EIO, "cannot write %s: %s", v[LOG].text, strerror(errno));
    }
    const ServerOptions o = {.host = v[HOST].text,
                             .port = (int)v[PORT].integer,
                             .socket_path = v[SOCKET].text,
                             .model_path = v[MODEL].text,
                             .model_name = serve->name,
                             .chat_format = v[FORMAT].given ? v[FORMAT].text : NULL,
                             .key_file = v[KEYS].text,
                             .tls_cert = v[TLS_CERT].text,
                             .tls_key = v[TLS_KEY].text,
                             .deadline_seconds = (int)v[DEADLINE].integer,
                             .open = v[OPEN].flag,
                             .cors = v[CORS].text,
                             .lenient = v[LENIENT].flag,
                             .max_waiting = (int)v[WAITING].integer,
                             .max_body = v[BODY].integer,
                             .max_connections = (int)v[CONNECTIONS].integer,
                             .idle_seconds = (int)v[IDLE].integer,
                             .access = serve->log >= 0 ? write_line : NULL,
                             .access_context = serve};
    if (server_new(&o, &serve->server, err))
        return err->code;
    if (pthread_create(&serve->waits, NULL, wait_for_signals, serve) == 0)
        return CVN_OK;
    server_free(serve->server);
    serve->server = NULL;
    return err_set(err, CVN_EMEM, "no thread for signals could be made");
}

static int load(Serve *serve, cvn_err *err)
{
    const Value *v = serve->args->value;
    RunOptions run = run_model_options(serve->args);
    double begin = clock_seconds();
    run.engine.rows = (int)v[ROWS].integer;
    run.engine.sampling = run.engine.filters = run.engine.penalties = run.engine.reuse =
        run.engine.adjust = run.engine.scoring = true;
    int code = run_model_open(&serve->model, &run, err);
    if (code == CVN_OK)
        code = run_model_start(&serve->model, &run, 0, cvn_model_context(serve->model.model), err);
    if (code)
        return code;
    cvn_engine_stats stats = cvn_engine_get_stats(serve->model.engine);
    fprintf(stderr, "caravan: %s is ready after %.1f s: %d rows, %s of weights\n", serve->name,
            clock_seconds() - begin, run.engine.rows, bytes_text((double)stats.weight_bytes).text);
    return CVN_OK;
}

static void say_where(const Serve *serve)
{
    const Value *v = serve->args->value;
    if (v[SOCKET].given)
        printf("listening at %s\n", v[SOCKET].text);
    else
        printf("listening at http%s://%s%s%s:%d\n", v[TLS_CERT].given ? "s" : "",
               strchr(v[HOST].text, ':') ? "[" : "", v[HOST].text,
               strchr(v[HOST].text, ':') ? "]" : "", server_port(serve->server));
    fflush(stdout);
}

static int run(const Args *args)
{
    cvn_err err = {0}, closing = {0};
    Serve serve = {.args = args, .log = -1};
    if (transport_launched()) {
        err_set(&err, CVN_EUNSUPPORTED,
                "caravan serve does not run in several processes yet; --mesh divides a model among "
                "devices of one");
        return fail(&err);
    }
    sigemptyset(&serve.signals);
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        sigaddset(&serve.signals, numbers[i]);
    pthread_sigmask(SIG_BLOCK, &serve.signals, NULL);
    signal(SIGPIPE, SIG_IGN); /* of clients that went away */
    int code = listen_for_requests(&serve, &err);
    if (code == CVN_OK) {
        say_where(&serve);
        code = load(&serve, &err);
        if (code == CVN_OK)
            code = server_run(serve.server, serve.model.model, serve.model.engine, &err);
        server_free(serve.server);
        pthread_kill(serve.waits, SIGUSR1);
        pthread_join(serve.waits, NULL);
    }
    int closed = run_model_close(&serve.model, &closing);
    if (serve.log >= 0)
        close(serve.log);
    free(serve.name);
    if (code || closed)
        return fail(code ? &err : &closing);
    return EXIT_OK;
}

#else

static int run(const Args *args)
{
    cvn_err err = {0};
    (void)args;
    err_set(&err, CVN_EUNSUPPORTED,
            "this build has no server: it needs libmicrohttpd (on Debian and Ubuntu "
            "libmicrohttpd-dev) when it is built");
    return fail(&err);
}

#endif

const Command command_serve = {
    "serve",
    .about = "answer requests over HTTP",
    .usage = "--model DIR [options]",
    .examples =
        "serve -m my-llama\tat http://127.0.0.1:8080, for clients of OpenAI's and Anthropic's "
        "APIs\n"
        "serve -m my-llama --rows 32 --quantize int8\tfor many clients at once\n"
        "serve -m my-llama --host 0.0.0.0 --api-key-file keys.txt\tfor other machines, with keys\n"
        "serve -m my-llama --socket /run/caravan.sock\tbehind another server\n",
    .notes =
        "SIGTERM and Ctrl-C end the server when it has answered what it has accepted; a second "
        "signal ends it at once. SIGHUP reads the files of keys and certificates again. /health "
        "says 503 until the "
        "model is loaded. What a request is answered depends on nothing that runs beside it.",
    .options = options,
    .run = run,
};
