/* A server on a thread of its own, for tests, and questions to it. */
#ifndef CVN_TESTS_SERVER_RUN_H
#define CVN_TESTS_SERVER_RUN_H

#include "http_client.h"
#include "server/server.h"
#include "shell.h"

#include <pthread.h>

enum { ROWS = 3, WAITING = 40, CONTEXT = 256 };

static int64_t server_context = CONTEXT;

static cvn_model *model;
static ServerModel
    *served; /* of the options asked for last: what it is called, and where it lies */

/* A server on a thread of its own. */
typedef struct Running {
    Server *server;
    cvn_engine *engine;
    pthread_t thread;
    int port, code;
    cvn_err err;
} Running;

static inline void *run_server(void *context)
{
    Running *r = context;
    r->code = server_run(r->server, &r->engine, &r->err);
    return NULL;
}

static inline ServerOptions usual_options(void)
{
    static char path[256];
    static ServerModel each[16]; /* servers that run read theirs */
    static int n;
    if (!n)
        snprintf(path, sizeof path, "%s/model", scratch);
    served = &each[n++ % 16];
    *served = (ServerModel){.name = "tiny", .path = path};
    return (ServerOptions){.host = "127.0.0.1",
                           .model = served,
                           .n_models = 1,
                           .max_waiting = WAITING,
                           .max_body = 1 << 20,
                           .max_connections = 200,
                           .idle_seconds = 30};
}

static inline void make_server(Running *r, const ServerOptions *options)
{
    *r = (Running){0};
    const cvn_engine_options engine = {.slots = ROWS,
                                       .context = server_context,
                                       .threads = 1,
                                       .sampling = true,
                                       .penalties = true,
                                       .reuse = true,
                                       .logits_processors = true,
                                       .scoring = true,
                                       .n_buckets = 2,
                                       .bucket = {16, 64}};
    if (cvn_engine_new(model, &engine, &r->engine, &r->err) ||
        server_new(options, &r->server, &r->err))
        fail_msg("%s", r->err.message);
    r->port = server_port(r->server);
}

static inline void start_server(Running *r, const ServerOptions *options)
{
    make_server(r, options);
    assert_int_equal(pthread_create(&r->thread, NULL, run_server, r), 0);
    for (int i = 0; i < 500; i++) {
        Reply reply = http_ask(r->port, "GET", "/health", "", NULL);
        int status = reply.status;
        reply_free(&reply);
        if (status == 200)
            return;
        usleep(10000);
    }
    fail_msg("the server did not become ready");
}

static inline void stop_server(Running *r)
{
    server_drain(r->server);
    pthread_join(r->thread, NULL);
    assert_int_equal(r->code, CVN_OK);
    server_free(r->server);
    assert_int_equal(cvn_engine_free(r->engine, NULL), CVN_OK);
}

static inline Reply post(int port, const char *path, const char *body)
{
    return http_ask(port, "POST", path, "Content-Type: application/json\r\n", body);
}

static inline json_t *json_of(const Reply *r)
{
    json_t *json = json_loadb(r->body.text, r->body.length, JSON_ALLOW_NUL, NULL);
    if (!json)
        fail_msg("status %d, no JSON: %s", r->status, r->body.text);
    return json;
}

/* The string at a path of an answer, to be freed. */
static inline char *string_at(const Reply *r, const char *path)
{
    json_t *json = json_of(r);
    const char *text = json_string_value(json_at(json, path));
    if (!text)
        fail_msg("status %d, nothing at %s of %s", r->status, path, r->body.text);
    char *copy = strdup(text);
    json_decref(json);
    return copy;
}

static inline void expect_status(int port, const char *path, const char *body, int status,
                                 const char *piece)
{
    Reply r = post(port, path, body);
    if (r.status != status || !strstr(r.body.text, piece))
        fail_msg("%s %s\nstatus %d, expected %d and \"%s\" in: %s", path, body, r.status, status,
                 piece, r.body.text);
    reply_free(&r);
}

typedef struct Question {
    const char *path, *body;  /* an object without its braces */
    const char *text, *delta; /* where the text is in a whole answer, and in events */
} Question;

static inline char *answer(int port, const Question *q, bool stream)
{
    StrBuf body = {0};
    strbuf_printf(&body, "{%s%s}", q->body, stream ? ", \"stream\": true" : "");
    Reply r = post(port, q->path, body.text);
    if (r.status != 200)
        fail_msg("%s %s\nstatus %d: %s", q->path, body.text, r.status, r.body.text);
    char *text = stream ? stream_text(&r, q->delta) : string_at(&r, q->text);
    strbuf_free(&body);
    reply_free(&r);
    return text;
}

#define RUNNING "vllm:num_requests_running{"
#define WAITS "vllm:num_requests_waiting{"

static inline double metric(int port, const char *name)
{
    Reply r = http_ask(port, "GET", "/metrics", "", NULL);
    char line[128];
    snprintf(line, sizeof line, "\n%s", name);
    const char *at = strstr(r.body.text, line);
    assert_non_null(at);
    double value = strtod(strchr(at + 1, ' '), NULL);
    reply_free(&r);
    return value;
}

static inline void wait_for(int port, const char *name, double value)
{
    for (int i = 0; i < 1000; i++) {
        if (metric(port, name) == value)
            return;
        usleep(10000);
    }
    fail_msg("%s did not become %g", name, value);
}

/* One server for all tests that need nothing special of it. */
static inline int begin_server(void **state)
{
    static Running running;
    const ServerOptions options = usual_options();
    cvn_err err = {0};
    if (make_models(state))
        return -1;
    if (cvn_model_open(in_scratch("model"), NULL, &model, &err)) {
        fprintf(stderr, "%s\n", err.message);
        return -1;
    }
    start_server(&running, &options);
    *state = &running;
    return 0;
}

static inline int finish_server(void **state)
{
    stop_server(*state);
    cvn_model_free(model);
    return remove_scratch(state);
}

#endif
