/*
 * HTTP, by libmicrohttpd. A connection is in one of three states: its request is coming in, its answer is going out, or it
 * is suspended, because what it is to send has not been generated yet. No thread ever waits for a client or for the engine.
 *
 * Threads. The lock is taken inside of libmicrohttpd's call-backs, and held where a connection is suspended or resumed, so
 * that nothing can be generated between a look and going to sleep. libmicrohttpd calls back with no lock of its own that
 * suspending or resuming takes.
 */
#include "server/internal.h"

#include "base/file.h"
#include "base/threads.h"
#include "server/listen.h"
#include "server/routes.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum {
    HTTP_THREADS = 2,
    HTTP_CONNECTION_BYTES = 64 << 10, /* of headers */
    HTTP_BLOCK = 16 << 10,            /* bytes of a stream sent at once */
    BODY_SECONDS = 120,               /* that a body may take to come in */
    BODIES_AT_ONCE = 8,               /* of the longest kind: memory for requests that come in */
    FLUSH_SECONDS = 10,               /* for what has been answered to leave, at the end */
};

enum {
    DAEMONS = 8 /* most that are at work: one, and those that finish what came before a reload */
};

/* What takes connections, or has taken some that go on. It has a descriptor of the socket of its own, which libmicrohttpd
   closes where it cannot start, and at the end unless it has stopped listening. */
typedef struct Daemon {
    struct MHD_Daemon *mhd;
    int left; /* the descriptor, once it has stopped listening; else -1 */
} Daemon;

struct Http {
    int fd; /* listens */
    /* [n_daemons] the last one listens; those before have an older certificate. Guarded by `reload`. */
    Daemon daemon[DAEMONS];
    int n_daemons;
    pthread_mutex_t reload;
    /* Guarded by the server's lock. */
    int open;       /* connections that have an exchange */
    int64_t bodies; /* bytes that bodies which come in may have */
};

/* A request on a connection. */
typedef struct Visit {
    Server *server;
    const Route *route;  /* NULL: there is none */
    char *path, *method; /* owned, for the log */
    StrBuf body;
    bool too_big;
    int64_t reserved; /* bytes that the body may have */
    int key;          /* that it came with; -1: none */
    int status;       /* that was answered; 0: none yet */
    Exchange *x;      /* held, or NULL */
    double begin;     /* of clock_seconds */
    char id[80];      /* of the request */
    char trace[80];
} Visit;

void http_wake(Exchange *x)
{
    if (x->link.suspended && x->link.connection)
        MHD_resume_connection(x->link.connection);
    x->link.suspended = false;
}

/* ---- sending ---- */

static const char *header(struct MHD_Connection *c, const char *name)
{
    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, name);
}

static void add_headers(Visit *v, struct MHD_Connection *c, struct MHD_Response *r)
{
    MHD_add_response_header(r, "X-Request-Id", v->id);
    MHD_add_response_header(r, "X-Content-Type-Options", "nosniff");
    MHD_add_response_header(r, "Cache-Control", "no-store");
    MHD_add_response_header(r, "Referrer-Policy", "no-referrer");
    MHD_add_response_header(r, "Content-Security-Policy",
                            "default-src 'none'; script-src 'self'; style-src 'self'; "
                            "connect-src 'self'; img-src data:; base-uri 'none'; form-action "
                            "'none'; frame-ancestors 'none'; require-trusted-types-for 'script'");
    const char *origin = header(c, "Origin");
    if (origin && v->server->options.cors && strcmp(origin, v->server->options.cors) == 0) {
        MHD_add_response_header(r, "Access-Control-Allow-Origin", origin);
        MHD_add_response_header(r, "Vary", "Origin");
    }
}

static enum MHD_Result send_bytes(Visit *v, struct MHD_Connection *c, int status, const char *type,
                                  char *bytes, size_t n, enum MHD_ResponseMemoryMode mode)
{
    struct MHD_Response *r = MHD_create_response_from_buffer(n, bytes, mode);
    if (!r) {
        if (mode == MHD_RESPMEM_MUST_FREE)
            free(bytes);
        return MHD_NO;
    }
    add_headers(v, c, r);
    MHD_add_response_header(r, "Content-Type", type);
    v->status = status;
    enum MHD_Result sent = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return sent;
}

/* What was let pass, in a header: a name holds whatever its client wrote. */
static void name_ignored(struct MHD_Response *r, const StrBuf *ignored)
{
    if (!ignored->length)
        return;
    char clean[512];
    size_t n = ignored->length < sizeof clean - 1 ? ignored->length : sizeof clean - 1;
    for (size_t i = 0; i < n; i++)
        clean[i] = ignored->text[i] > ' ' && ignored->text[i] < 127 ? ignored->text[i] : ' ';
    clean[n] = '\0';
    MHD_add_response_header(r, "X-Ignored-Fields", clean);
}

static enum MHD_Result send_json(Visit *v, struct MHD_Connection *c, int status, json_t *json,
                                 const Refusal *why, const StrBuf *ignored)
{
    char *text = json_dumps(json, JSON_COMPACT);
    json_decref(json);
    if (!text)
        return MHD_NO;
    struct MHD_Response *r =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!r) {
        free(text);
        return MHD_NO;
    }
    add_headers(v, c, r);
    MHD_add_response_header(r, "Content-Type", "application/json");
    if (ignored)
        name_ignored(r, ignored);
    if (why && why->retry) {
        char seconds[16];
        snprintf(seconds, sizeof seconds, "%d", why->retry);
        MHD_add_response_header(r, "Retry-After", seconds);
    }
    if (why && status == 401)
        MHD_add_response_header(r, "WWW-Authenticate", "Bearer");
    if (why && status == 405 && v->route)
        MHD_add_response_header(r, "Allow", v->route->method);
    v->status = status;
    enum MHD_Result sent = MHD_queue_response(c, (unsigned)status, r);
    MHD_destroy_response(r);
    return sent;
}

static enum MHD_Result send_refusal(Visit *v, struct MHD_Connection *c, const Refusal *why)
{
    Server *s = v->server;
    pthread_mutex_lock(&s->lock);
    s->refused++;
    pthread_mutex_unlock(&s->lock);
    return send_json(v, c, why->status, dialect_error(v->path, why), why, NULL);
}

/* ---- texts ---- */

/* Some more of a stream. */
static ssize_t read_stream(void *context, uint64_t at, char *out, size_t most)
{
    Exchange *x = context;
    Server *s = x->server;
    (void)at;
    ssize_t n = 0;
    pthread_mutex_lock(&s->lock);
    if (x->events.sent == x->events.out.length) {
        strbuf_clear(&x->events.out);
        x->events.sent = 0;
        x->dialect->stream(x);
    }
    size_t left = x->events.out.length - x->events.sent;
    n = (ssize_t)(left < most ? left : most);
    if (x->events.out.failed) {
        n = MHD_CONTENT_READER_END_WITH_ERROR;
    } else if (n) {
        memcpy(out, x->events.out.text + x->events.sent, (size_t)n);
        x->events.sent += (size_t)n;
    } else if (x->n_ended == x->n_choices) {
        n = MHD_CONTENT_READER_END_OF_STREAM;
    } else {
        x->link.suspended = true;
        MHD_suspend_connection(x->link.connection);
    }
    pthread_mutex_unlock(&s->lock);
    return n;
}

static enum MHD_Result send_stream(Visit *v, struct MHD_Connection *c)
{
    Exchange *x = v->x;
    struct MHD_Response *r =
        MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, HTTP_BLOCK, read_stream, x, NULL);
    if (!r)
        return MHD_NO;
    add_headers(v, c, r);
    MHD_add_response_header(r, "Content-Type", "text/event-stream; charset=utf-8");
    MHD_add_response_header(r, "X-Accel-Buffering", "no");
    name_ignored(r, &x->ask.ignored);
    v->status = 200;
    enum MHD_Result sent = MHD_queue_response(c, 200, r);
    MHD_destroy_response(r);
    return sent;
}

/* The answer, or sleep until there is one: then this is called again. */
static enum MHD_Result go_on(Visit *v, struct MHD_Connection *c)
{
    Exchange *x = v->x;
    Server *s = v->server;
    pthread_mutex_lock(&s->lock);
    bool ended = x->n_ended == x->n_choices;
    if (!ended && !x->ask.output.stream) {
        x->link.suspended = true;
        MHD_suspend_connection(c);
    }
    pthread_mutex_unlock(&s->lock);
    if (x->ask.output.stream)
        return send_stream(v, c);
    if (!ended)
        return MHD_YES;
    /* The engine is done with it: nobody writes to it any more. */
    if (x->end.failed.status)
        return send_refusal(v, c, &x->end.failed);
    return send_json(v, c, 200, x->dialect->whole(x), NULL, &x->ask.ignored);
}

static int generate(Visit *v, struct MHD_Connection *c, Ask *ask, Refusal *why)
{
    Server *s = v->server;
    const Dialect *dialect = v->route->dialect;
    Exchange *x = exchange_read(s, dialect, ask, why);
    if (!x)
        return why->status;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(c, MHD_CONNECTION_INFO_CONNECTION_FD);
    x->link.connection = c;
    x->link.fd = info ? info->connect_fd : -1;
    x->time.begin = v->begin;
    if (worker_add(s, x, why)) {
        exchange_free(x);
        return why->status;
    }
    pthread_mutex_lock(&s->lock);
    s->listen.http->open++;
    pthread_mutex_unlock(&s->lock);
    v->x = x;
    return 0;
}

/* ---- requests ---- */

static void release_body(Visit *v)
{
    Server *s = v->server;
    strbuf_free(&v->body);
    v->body = (StrBuf){0};
    pthread_mutex_lock(&s->lock);
    s->listen.http->bodies -= v->reserved;
    pthread_mutex_unlock(&s->lock);
    v->reserved = 0;
}

/* Room for a body; one of unknown length may become as long as any. */
static int reserve_body(Visit *v, const char *length, Refusal *why)
{
    Server *s = v->server;
    int64_t most = s->options.max_body, bytes = length ? strtoll(length, NULL, 10) : most;
    if (bytes > most || bytes < 0)
        return refuse(why, 413, NULL, "the body has %.20s bytes; the limit is %lld", length,
                      (long long)most);
    pthread_mutex_lock(&s->lock);
    if (s->listen.http->bodies + bytes <= BODIES_AT_ONCE * most) {
        v->reserved = bytes;
        s->listen.http->bodies += bytes;
    } else {
        refuse(why, 429, NULL, "%lld bytes of request bodies are already being received",
               (long long)s->listen.http->bodies);
        why->retry = 1;
    }
    pthread_mutex_unlock(&s->lock);
    return why->status;
}

/* Nothing of the model is looked at before this says that it is there. */
static int check_ready(Server *s, Refusal *why)
{
    pthread_mutex_lock(&s->lock);
    bool ready = s->state != SERVER_LOADING;
    pthread_mutex_unlock(&s->lock);
    if (ready)
        return 0;
    why->retry = 5;
    return refuse(why, 503, NULL, "the server is loading the model");
}

static enum MHD_Result handle(Visit *v, struct MHD_Connection *c)
{
    Server *s = v->server;
    Refusal why = {0};
    Ask ask;
    json_t *answer = NULL;
    ask_init(&ask);
    ask.queue.key = v->key;
    const Route *route = v->route;
    if (v->too_big || v->body.failed)
        refuse(&why, 413, NULL, "the body exceeds the limit of %lld bytes",
               (long long)s->options.max_body);
    else if (route->page)
        return send_bytes(v, c, 200, route->type, (char *)(uintptr_t)route->page,
                          (size_t)(route->page_end - route->page), MHD_RESPMEM_PERSISTENT);
    else if (route->text) {
        StrBuf text = {0};
        strbuf_add(&text, "", 0);
        route->text(s, &text);
        return send_bytes(v, c, 200, route->type, text.text, text.length, MHD_RESPMEM_MUST_FREE);
    } else if (strcmp(route->method, "POST") == 0 && !check_ready(s, &why))
        ask_parse(v->body.text ? v->body.text : "", v->body.length, &ask.body, &why);
    release_body(v);
    int status = 200;
    if (!why.status && route->dialect)
        generate(v, c, &ask, &why);
    else if (!why.status)
        status = route->answer(s, &ask, &answer, &why);
    StrBuf ignored = ask.ignored;
    ask.ignored = (StrBuf){0};
    ask_free(&ask);
    enum MHD_Result sent = why.status ? send_refusal(v, c, &why)
                           : v->x     ? go_on(v, c)
                                      : send_json(v, c, status, answer, NULL, &ignored);
    strbuf_free(&ignored);
    return sent;
}

static int check_key(Visit *v, struct MHD_Connection *c, Refusal *why)
{
    Server *s = v->server;
    const char *given = header(c, "Authorization");
    static const char bearer[] = "Bearer ";
    if (given && strncasecmp(given, bearer, sizeof bearer - 1) == 0)
        given += sizeof bearer - 1;
    else
        given = header(c, "x-api-key");
    pthread_mutex_lock(&s->lock);
    bool wanted = s->keys.n > 0;
    v->key = wanted && given ? keys_find(&s->keys, given, strlen(given)) : -1;
    pthread_mutex_unlock(&s->lock);
    if (!wanted || v->key >= 0 || (v->route && v->route->is_public))
        return 0;
    refuse(why, 401, NULL,
           given ? "invalid API key"
                 : "an API key is required: send Authorization: Bearer KEY, or x-api-key: KEY");
    why->code = "invalid_api_key";
    return why->status;
}

/* A web page of somebody else must not be able to use a server that listens to this machine only. */
static int check_origin(const Visit *v, struct MHD_Connection *c, Refusal *why)
{
    const Server *s = v->server;
    const char *origin = header(c, "Origin"), *host = header(c, "Host");
    bool local = s->options.socket_path || listen_is_local_name(host);
    if (s->listen.loopback && !local)
        return refuse(why, 403, NULL,
                      "this server accepts local requests only, and the Host header is %.100s",
                      host);
    if (!origin || (s->options.cors && strcmp(origin, s->options.cors) == 0))
        return 0;
    const char *name = strstr(origin, "://");
    if (name && host && strcmp(name + 3, host) == 0)
        return 0;
    return refuse(why, 403, NULL, "requests from the origin %.100s are not allowed (--cors)",
                  origin);
}

static void copy_header(char *out, size_t size, const char *value)
{
    size_t n = 0;
    for (; value && value[n] && n < size - 1; n++)
        out[n] = value[n] > ' ' && value[n] < 127 && !strchr("\"\\", value[n]) ? value[n] : '_';
    out[n] = '\0';
}

/* A browser asks for another page whether that may ask; keys come with the request itself. */
static enum MHD_Result send_permission(Visit *v, struct MHD_Connection *c)
{
    static char nothing[1];
    struct MHD_Response *r = MHD_create_response_from_buffer(0, nothing, MHD_RESPMEM_PERSISTENT);
    if (!r)
        return MHD_NO;
    add_headers(v, c, r);
    MHD_add_response_header(r, "Access-Control-Allow-Methods", "GET, POST");
    MHD_add_response_header(r, "Access-Control-Allow-Headers",
                            "authorization, content-type, x-api-key, x-request-id, traceparent, "
                            "anthropic-version, anthropic-beta");
    MHD_add_response_header(r, "Access-Control-Max-Age", "600");
    v->status = 204;
    enum MHD_Result sent = MHD_queue_response(c, 204, r);
    MHD_destroy_response(r);
    return sent;
}

/* The headers are here. */
static enum MHD_Result arrive(Server *s, struct MHD_Connection *c, const char *url,
                              const char *method, void **context)
{
    Visit *v = calloc(1, sizeof *v);
    if (!v)
        return MHD_NO;
    *context = v;
    *v = (Visit){.server = s, .key = -1, .begin = clock_seconds()};
    v->path = strdup(url);
    v->method = strdup(method);
    const char *id = header(c, "X-Request-Id");
    copy_header(v->trace, sizeof v->trace, header(c, "traceparent"));
    copy_header(v->id, sizeof v->id, id);
    if (!*v->id)
        snprintf(v->id, sizeof v->id, "req_%016llx", (unsigned long long)routes_random());
    if (!v->path || !v->method)
        return MHD_NO;
    Refusal why = {0};
    const char *length = header(c, "Content-Length");
    bool is_get = strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
    v->route = routes_find(url, is_get ? "GET" : method);
    if (check_origin(v, c, &why))
        ;
    else if (strcmp(method, "OPTIONS") == 0 && header(c, "Access-Control-Request-Method"))
        return send_permission(v, c);
    else if (check_key(v, c, &why))
        ;
    else if (!v->route)
        refuse(&why, 404, NULL, "no such path: %.200s", url);
    else if (strcmp(v->route->method, is_get ? "GET" : method) != 0)
        refuse(&why, 405, NULL, "%s supports %s, not %.20s", v->route->path, v->route->method,
               method);
    else if (!is_get)
        reserve_body(v, length, &why);
    return why.status ? send_refusal(v, c, &why) : MHD_YES;
}

static enum MHD_Result take_body(Visit *v, const char *data, size_t n)
{
    size_t most = (size_t)v->server->options.max_body;
    if (clock_seconds() - v->begin > BODY_SECONDS)
        return MHD_NO;
    v->too_big = v->too_big || v->body.length + n > most;
    if (v->too_big) /* of unknown length; nobody sends that much for an error */
        return MHD_NO;
    strbuf_add(&v->body, data, n);
    return MHD_YES;
}

static enum MHD_Result on_request(void *context, struct MHD_Connection *c, const char *url,
                                  const char *method, const char *version, const char *data,
                                  size_t *n, void **visit)
{
    Visit *v = *visit;
    (void)version;
    if (!v)
        return arrive(context, c, url, method, visit);
    if (*n) {
        size_t here = *n;
        *n = 0;
        return v->status ? MHD_YES : take_body(v, data, here);
    }
    if (v->status)
        return MHD_YES;
    return v->x ? go_on(v, c) : handle(v, c);
}

/* ---- the end of a request ---- */

static void put_text_field(StrBuf *out, const char *name, const char *text)
{
    json_t *json = json_text_of(text, strlen(text));
    char *quoted = json_dumps(json, JSON_ENCODE_ANY);
    strbuf_printf(out, ",\"%s\":%s", name, quoted ? quoted : "\"\"");
    free(quoted);
    json_decref(json);
}

static void write_log(const Visit *v, bool gone)
{
    const Server *s = v->server;
    StrBuf line = {0};
    struct timespec now;
    struct tm utc;
    char date[40];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &utc);
    strbuf_printf(&line, "{\"time\":\"%s.%03ldZ\",\"id\":\"%s\"", date, now.tv_nsec / 1000000,
                  v->id);
    put_text_field(&line, "method", v->method);
    put_text_field(&line, "path", v->path);
    strbuf_printf(&line, ",\"status\":%d,\"seconds\":%.4f", v->status, clock_seconds() - v->begin);
    if (v->key >= 0)
        strbuf_printf(&line, ",\"key\":%d", v->key);
    if (*v->trace)
        strbuf_printf(&line, ",\"traceparent\":\"%s\"", v->trace);
    if (v->x) {
        Usage u = exchange_usage(v->x);
        put_text_field(&line, "model", answers_as(v->x));
        strbuf_printf(&line,
                      ",\"stream\":%s,\"prompt_tokens\":%lld,\"cached_tokens\":%lld,"
                      "\"completion_tokens\":%lld,\"first_token_seconds\":%.4f,\"reason\":\"%s\"",
                      v->x->ask.output.stream ? "true" : "false", (long long)u.prompt,
                      (long long)u.cached, (long long)u.completion,
                      v->x->time.first > 0 ? v->x->time.first - v->begin : 0,
                      gone ? "disconnected" : finish_reason(&v->x->choice[0]));
    }
    if (v->x && s->options.log_text)
        exchange_put_texts(v->x, &line);
    strbuf_puts(&line, "}");
    if (!line.failed)
        s->options.access(s->options.access_context, line.text);
    strbuf_free(&line);
}

static void on_completed(void *context, struct MHD_Connection *c, void **visit,
                         enum MHD_RequestTerminationCode code)
{
    Server *s = context;
    Visit *v = *visit;
    (void)c;
    if (!v)
        return;
    pthread_mutex_lock(&s->lock);
    bool gone = v->x && v->x->n_ended < v->x->n_choices;
    if (v->x) {
        v->x->link.connection = NULL;
        v->x->link.fd = -1;
        v->x->end.cancelled = v->x->end.cancelled || gone;
    }
    if (s->options.access && v->path && v->method)
        write_log(v, gone || (v->x && code != MHD_REQUEST_TERMINATED_COMPLETED_OK));
    if (v->x) {
        exchange_drop(v->x);
        s->listen.http->open--;
    }
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    release_body(v);
    free(v->path);
    free(v->method);
    free(v);
    *visit = NULL;
}

/* ---- the server ---- */

/* A PEM file as a string, owned; NULL after an error. */
static char *read_pem(const char *path, cvn_err *err)
{
    enum { PEM_MAX_BYTES = 1 << 20 };
    FileMap map;
    if (file_map(&map, path, err))
        return NULL;
    char *text = map.size <= PEM_MAX_BYTES ? calloc(map.size + 1, 1) : NULL;
    if (text && map.size)
        memcpy(text, map.data, map.size);
    if (!text)
        err_set(err, CVN_EFORMAT, "%s must be a PEM file of at most %d bytes", path, PEM_MAX_BYTES);
    file_unmap(&map);
    return text;
}

static void forget(char *secret)
{
    if (secret)
        explicit_bzero(secret, strlen(secret));
    free(secret);
}

static void stop_daemon(Daemon *d)
{
    MHD_stop_daemon(d->mhd);
    if (d->left >= 0)
        close(d->left);
}

/* One that listens at the server's socket. */
static struct MHD_Daemon *make_daemon(Server *s, cvn_err *err)
{
    const ServerOptions *o = &s->options;
    char *cert = o->tls_cert ? read_pem(o->tls_cert, err) : NULL;
    char *key = cert ? read_pem(o->tls_key, err) : NULL;
    struct MHD_Daemon *daemon = NULL;
    const struct MHD_OptionItem tls[] = {
        {MHD_OPTION_HTTPS_MEM_CERT, 0, cert},
        {MHD_OPTION_HTTPS_MEM_KEY, 0, key},
        {MHD_OPTION_HTTPS_PRIORITIES, 0, (char[]){"NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"}},
        {MHD_OPTION_END, 0, NULL}};
    static const struct MHD_OptionItem plain[] = {{MHD_OPTION_END, 0, NULL}};
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC;
    int fd = !o->tls_cert || key ? fcntl(s->listen.http->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        daemon = MHD_start_daemon(
            flags | (key ? MHD_USE_TLS : 0), 0, NULL, NULL, on_request, s, MHD_OPTION_LISTEN_SOCKET,
            fd, MHD_OPTION_NOTIFY_COMPLETED, on_completed, s, MHD_OPTION_THREAD_POOL_SIZE,
            (unsigned)HTTP_THREADS, MHD_OPTION_CONNECTION_LIMIT, (unsigned)o->max_connections,
            MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)o->idle_seconds,
            MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_CONNECTION_BYTES, MHD_OPTION_ARRAY,
            key ? tls : plain, MHD_OPTION_END);
    if (!daemon && key)
        err_set(
            err, CVN_EINVAL,
            "cannot use the TLS certificate %s with the key %s: both must be PEM files and match",
            o->tls_cert, o->tls_key);
    else if (!daemon && !o->tls_cert)
        err_set(err, CVN_EIO, "cannot start libmicrohttpd");
    free(cert);
    forget(key);
    return daemon;
}

/* Takes the place of the one that listens, whose connections go on. */
static int add_daemon(Server *s, cvn_err *err)
{
    struct Http *h = s->listen.http;
    int code = CVN_OK, kept = 0;
    pthread_mutex_lock(&h->reload);
    for (int i = 0; i < h->n_daemons; i++) {
        const union MHD_DaemonInfo *info =
            MHD_get_daemon_info(h->daemon[i].mhd, MHD_DAEMON_INFO_CURRENT_CONNECTIONS);
        if (i < h->n_daemons - 1 && info && info->num_connections == 0)
            stop_daemon(&h->daemon[i]);
        else
            h->daemon[kept++] = h->daemon[i];
    }
    h->n_daemons = kept;
    struct MHD_Daemon *new = NULL;
    if (kept == DAEMONS)
        code = err_set(err, CVN_EINVAL,
                       "%d older certificates are still used by connections; reload again when "
                       "these have closed",
                       DAEMONS - 1);
    else if (!(new = make_daemon(s, err)))
        code = err->code;
    if (new) {
        if (kept)
            h->daemon[kept - 1].left = MHD_quiesce_daemon(h->daemon[kept - 1].mhd);
        h->daemon[h->n_daemons++] = (Daemon){new, -1};
    }
    pthread_mutex_unlock(&h->reload);
    return code;
}

static int start(Server *s, cvn_err *err)
{
    if (!s->options.tls_cert != !s->options.tls_key)
        return err_set(err, CVN_EINVAL, "TLS requires both a certificate and its key");
    if (s->options.tls_cert && MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
        return err_set(err, CVN_EUNSUPPORTED, "libmicrohttpd was built without TLS");
    const ServerOptions *o = &s->options;
    int fd = listen_open(o, &s->listen.port, &s->listen.loopback, err);
    if (fd < 0)
        return err->code;
    if (!s->listen.loopback && !s->keys.n && !o->open) {
        close(fd);
        return err_set(err, CVN_EINVAL,
                       "%s is reachable from other machines without authentication; give "
                       "--api-key-file FILE, or --open to allow that",
                       o->host);
    }
    s->listen.http = calloc(1, sizeof *s->listen.http);
    if (!s->listen.http) {
        close(fd);
        return err_set(err, CVN_EMEM, "no memory for a server");
    }
    s->listen.http->fd = fd;
    pthread_mutex_init(&s->listen.http->reload, NULL);
    return add_daemon(s, err);
}

int server_new(const ServerOptions *options, Server **out, cvn_err *err)
{
    *out = NULL;
    Server *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(err, CVN_EMEM, "no memory for a server");
    s->options = *options;
    s->started = clock_seconds();
    s->created = (json_int_t)time(NULL);
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->wake, NULL);
    s->served = calloc((size_t)options->n_models, sizeof *s->served);
    int code = s->served ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a server");
    for (int i = 0; s->served && i < options->n_models; i++)
        s->served[i].is = &options->model[i];
    if (code == CVN_OK && options->key_file)
        code = keys_read(&s->keys, options->key_file, err);
    if (code == CVN_OK && !options->follows)
        code = start(s, err);
    if (code) {
        server_free(s);
        return code;
    }
    *out = s;
    return CVN_OK;
}

int server_port(const Server *s)
{
    return s->listen.port;
}

int server_reload(Server *s, cvn_err *err)
{
    Keys keys, old;
    if (s->options.tls_cert && add_daemon(s, err))
        return err->code;
    if (!s->options.key_file)
        return CVN_OK;
    int code = keys_read(&keys, s->options.key_file, err);
    if (code)
        return code;
    pthread_mutex_lock(&s->lock);
    old = s->keys;
    s->keys = keys;
    pthread_mutex_unlock(&s->lock);
    keys_free(&old);
    return CVN_OK;
}

bool server_drain(Server *s)
{
    pthread_mutex_lock(&s->lock);
    bool runs = s->state != SERVER_LOADING;
    if (s->state == SERVER_READY)
        s->state = SERVER_DRAINING;
    pthread_cond_broadcast(&s->wake);
    pthread_mutex_unlock(&s->lock);
    return runs;
}

void server_abort(Server *s)
{
    flag_set(&s->aborting, 1);
    server_drain(s);
}

/* What has been answered leaves before connections are closed. */
static void flush(Server *s)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += FLUSH_SECONDS;
    pthread_mutex_lock(&s->lock);
    while (s->listen.http->open && pthread_cond_timedwait(&s->wake, &s->lock, &until) == 0)
        ;
    pthread_mutex_unlock(&s->lock);
}

void server_free(Server *s)
{
    if (!s)
        return;
    if (s->listen.http) {
        flush(s);
        for (int i = 0; i < s->listen.http->n_daemons; i++)
            stop_daemon(&s->listen.http->daemon[i]);
        close(s->listen.http->fd);
        pthread_mutex_destroy(&s->listen.http->reload);
        if (s->options.socket_path)
            unlink(s->options.socket_path);
    }
    free(s->listen.http);
    keys_free(&s->keys);
    for (int i = 0; s->served && i < s->options.n_models; i++) {
        chat_template_free(s->served[i].chat.template);
        answer_kind_free(&s->served[i].chat.answers);
        json_decref(s->served[i].receipt);
    }
    free(s->served);
    pthread_cond_destroy(&s->wake);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
