/*
 * Who may ask the server, and until when: web pages, strangers and keys, clients that leave, are too many or take too long, and
 * how it ends.
 */
#include "shell.h"

#ifdef CVN_HAVE_MICROHTTPD

#include "server_run.h"

#include <signal.h>

/* ---- web pages ---- */

static void web_pages_of_others_are_refused(void **state)
{
    const Running *r = *state;
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"Host: evil.example\r\n", 403},
        {"Host: evil.example\r\nOrigin: http://evil.example\r\n", 403},
        {"Host: localhost:80\r\nOrigin: http://evil.example\r\n", 403},
        {"Host: localhost:80\r\nOrigin: null\r\n", 403},
        {"Host: localhost:80\r\nOrigin: http://localhost:80\r\n", 200},
        {"Host: 127.0.0.1:80\r\n", 200},
        {"Host: [::1]:80\r\n", 200},
        {"Host: 127.0.0.1.evil.example\r\n", 403},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Reply reply = http_ask(r->port, "GET", "/v1/models", cases[i].headers, NULL);
        assert_int_equal(reply.status, cases[i].status);
        reply_free(&reply);
    }
}

static void the_page_and_its_files_want_no_key_and_name_nothing_elsewhere(void **state)
{
    const Running *r = *state;
    static const struct {
        const char *path, *type, *piece;
    } files[] = {{"/", "text/html", "<script src=\"/page.js\""},
                 {"/page.css", "text/css", "prefers-color-scheme"},
                 {"/page.js", "text/javascript", "'use strict';"}};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        Reply reply = http_ask(r->port, "GET", files[i].path, "", NULL);
        assert_int_equal(reply.status, 200);
        assert_non_null(strstr(reply.head.text, files[i].type));
        assert_non_null(strstr(reply.head.text, "Content-Security-Policy: default-src 'none'; "
                                                "script-src 'self'"));
        assert_non_null(strstr(reply.body.text, files[i].piece));
        assert_null(strstr(reply.body.text, "https://"));
        assert_null(strstr(reply.body.text, "innerHTML"));
        reply_free(&reply);
    }
}

static void only_the_origin_that_is_named_may_ask_from_elsewhere(void **state)
{
    Running r;
    ServerOptions options = usual_options();
    options.cors = "https://example.org";
    start_server(&r, &options);
    static const char asks[] = "Host: localhost\r\nOrigin: %s\r\n"
                               "Access-Control-Request-Method: POST\r\n";
    for (int i = 0; i < 2; i++) {
        char headers[200];
        snprintf(headers, sizeof headers, asks, i ? "https://other.example" : options.cors);
        Reply reply = http_ask(r.port, "OPTIONS", "/v1/completions", headers, NULL);
        assert_int_equal(reply.status, i ? 403 : 204);
        assert_int_equal(strstr(reply.head.text, "Access-Control-Allow-Headers: auth") != NULL, !i);
        assert_int_equal(strstr(reply.head.text, "Allow-Origin: https://example.org") != NULL, !i);
        reply_free(&reply);
    }
    stop_server(&r);
}

/* The page names every field of every dialect. */
/* ---- clients that leave ---- */

static int ask_many(int port, int n, bool stream)
{
    char body[160];
    int fd = http_connect(port);
    assert_true(fd >= 0);
    snprintf(body, sizeof body,
             "{\"prompt\": \"x\", \"max_tokens\": 100000, \"ignore_eos\": true, \"n\": %d%s}", n,
             stream ? ", \"stream\": true" : "");
    http_send(fd, "POST", "/v1/completions", "", body);
    return fd;
}

static int ask_long(int port, bool stream)
{
    return ask_many(port, 30, stream);
}

static void keep_line(void *log, const char *line)
{
    strbuf_puts(log, line);
}

static void texts_are_in_the_log_only_where_that_is_said(void **state)
{
    for (int logs = 0; logs < 2; logs++) {
        Running r;
        StrBuf log = {0};
        ServerOptions options = usual_options();
        options.access = keep_line;
        options.access_context = &log;
        options.log_text = logs;
        start_server(&r, &options);
        Reply reply = post(r.port, "/v1/completions",
                           "{\"prompt\": \"A secret\", \"max_tokens\": 5, \"temperature\": 0}");
        char *text = string_at(&reply, "choices.0.text");
        stop_server(&r);
        json_t *json = json_loads(strrchr(log.text, '{'), 0, NULL); /* the last line */
        const char *prompt = json_string_value(json_at(json, "prompts.0"));
        const char *said = json_string_value(json_at(json, "texts.0"));
        assert_true(logs == (prompt && strstr(prompt, "A secret")));
        assert_true(logs == (said && strcmp(said, text) == 0));
        assert_true(logs == (strstr(log.text, "secret") != NULL));
        json_decref(json);
        free(text);
        reply_free(&reply);
        strbuf_free(&log);
    }
}

static void a_client_that_leaves_frees_its_rows(void **state)
{
    const Running *r = *state;
    double aborted = metric(
        r->port, "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}");
    for (int stream = 0; stream < 2; stream++) {
        int fd = ask_long(r->port, stream);
        for (int i = 0; i < 100000 && metric(r->port, RUNNING) == 0; i++)
            usleep(100);
        close(fd);
        wait_for(r->port, RUNNING, 0);
        wait_for(r->port, WAITS, 0);
    }
    assert_true(
        metric(r->port,
               "vllm:request_success_total{model_name=\"tiny\",finished_reason=\"abort\"}") >
        aborted);
}

static void too_many_are_told_to_come_back(void **state)
{
    const Running *r = *state;
    int fd = ask_long(r->port, true);
    for (int i = 0; i < 100000 && metric(r->port, RUNNING) == 0; i++)
        usleep(100);
    Reply reply = post(r->port, "/v1/completions", "{\"prompt\": \"x\", \"n\": 44}");
    assert_int_equal(reply.status, 429);
    assert_non_null(strstr(reply.head.text, "Retry-After:"));
    assert_non_null(strstr(reply.body.text, "rate_limit"));
    reply_free(&reply);
    close(fd);
    wait_for(r->port, WAITS, 0);
}

/* ---- keys ---- */

static void keys_are_wanted_on_all_but_health_and_the_page(void **state)
{
    Running r;
    ServerOptions options = usual_options();
    const char *path = in_scratch("keys");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs("# ours\nsecret-1\n\nsecret-22\r\n", file);
    fclose(file);
    options.key_file = path;
    options.lenient = true;
    start_server(&r, &options);
    static const struct {
        const char *headers;
        int status;
    } cases[] = {
        {"", 401},
        {"Authorization: Bearer secret-2\r\n", 401},
        {"Authorization: Bearer secret-222\r\n", 401},
        {"Authorization: Bearer \r\n", 401},
        {"Authorization: Bearer # ours\r\n", 401},
        {"Authorization: Bearer secret-1\r\n", 200},
        {"Authorization: bearer secret-22\r\n", 200},
        {"x-api-key: secret-1\r\n", 200},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const paths[] = {"/v1/models", "/metrics", "/version", "/health",
                                            "/nowhere",   "/",        "/page.js"};
        for (int p = 0; p < 7; p++) {
            Reply reply = http_ask(r.port, "GET", paths[p], cases[i].headers, NULL);
            int expected = p == 3 || p > 4                    ? 200
                           : p == 4 && cases[i].status == 200 ? 404
                                                              : cases[i].status;
            assert_int_equal(reply.status, expected);
            reply_free(&reply);
        }
    }
    file = fopen(path, "w");
    fputs("other\n", file);
    fclose(file);
    assert_int_equal(server_reload(r.server, &r.err), CVN_OK);
    Reply reply = http_ask(r.port, "GET", "/v1/models", "x-api-key: secret-1\r\n", NULL);
    assert_int_equal(reply.status, 401);
    reply_free(&reply);
    /* lenient: what is unknown is named in a header */
    reply =
        http_ask(r.port, "POST", "/v1/completions", "x-api-key: other\r\n",
                 "{\"prompt\": \"x\", \"foo\\r\\nSet-Cookie: a\": 1, \"tools\": 3, \"bar\": 1}");
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.head.text, "X-Ignored-Fields: foo  Set-Cookie: a, tools, bar"));
    reply_free(&reply);
    stop_server(&r);
}

static void strangers_want_a_key(void **state)
{
    ServerOptions options = usual_options();
    Server *server;
    cvn_err err = {0};
    options.host = "0.0.0.0";
    assert_int_equal(server_new(&options, &server, &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "--api-key-file"));
    options.open = true;
    assert_int_equal(server_new(&options, &server, NULL), CVN_OK);
    server_free(server);
}

/* ---- the end ---- */

static void what_runs_is_finished(void **state)
{
    Running r;
    const ServerOptions options = usual_options();
    start_server(&r, &options);
    int fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = http_connect(r.port);
        http_send(fd[i], "POST", "/v1/completions", "",
                  i ? "{\"prompt\": \"x\", \"max_tokens\": 200, \"ignore_eos\": true, \"n\": 4}"
                    : "{\"prompt\": \"x\", \"max_tokens\": 200, \"ignore_eos\": true, \"n\": 4, "
                      "\"stream\": true}");
    }
    for (int i = 0; i < 100000 && metric(r.port, RUNNING) + metric(r.port, WAITS) < 8; i++)
        usleep(100);
    assert_true(server_drain(r.server));
    Reply late = post(r.port, "/v1/completions", "{\"prompt\": \"x\"}");
    assert_true(late.status == 503 || late.status == 0);
    reply_free(&late);
    pthread_join(r.thread, NULL);
    assert_int_equal(r.code, CVN_OK);
    server_free(r.server);
    for (int i = 0; i < 2; i++) {
        Reply reply = http_receive(fd[i]);
        assert_int_equal(reply.status, 200);
        if (i == 0)
            assert_non_null(strstr(reply.body.text, "data: [DONE]"));
        else
            assert_non_null(strstr(reply.body.text, "\"completion_tokens\":800"));
        reply_free(&reply);
    }
    cvn_engine_free(r.engine, NULL);
}

static void a_second_signal_ends_what_runs(void **state)
{
    Running r;
    const ServerOptions options = usual_options();
    start_server(&r, &options);
    int fd = ask_long(r.port, false);
    for (int i = 0; i < 100000 && metric(r.port, RUNNING) == 0; i++)
        usleep(100);
    server_abort(r.server);
    pthread_join(r.thread, NULL);
    server_free(r.server);
    Reply reply = http_receive(fd);
    assert_int_equal(reply.status, 500);
    reply_free(&reply);
    cvn_engine_free(r.engine, NULL);
}

static void the_command_serves_and_ends_with_a_signal(void **state)
{
    expect(0,
           "rm -f out; " CVN_BINARY " serve -m model --port 0 --slots 2 --access-log log > out & "
           "for i in $(seq 900); do grep -q listening out && break; sleep 0.05; done; "
           "url=$(sed -n 's/^listening at //p' out); "
           "sleep 1; kill -TERM $!; wait $!; echo ended $? $url",
           "ended 0 http://127.0.0.1:");
    expect(1, "caravan serve -m model --host 0.0.0.0 --port 0 2>&1", "--api-key-file");
}

/* By curl, which checks the certificate; with openssl, which makes it. */
static void tls_has_the_certificate_that_was_read_last(void **state)
{
    int status;
    StrBuf tools = shell("command -v curl openssl", &status);
    strbuf_free(&tools);
    if (status)
        skip();
    expect(
        0,
        "for i in 1 2; do openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "
        "-subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -days 2 -keyout key$i -out "
        "cert$i 2>/dev/null; done; cp cert1 cert; cp key1 key; rm -f out err; " CVN_BINARY
        " serve -m model --port 0 --slots 2 --tls-cert cert --tls-key key > out 2> err & pid=$!; "
        "for i in $(seq 900); do grep -q ready err && break; sleep 0.05; done; "
        "url=$(sed -n 's/^listening at //p' out); "
        "ask() { curl -s -o answer -w '%{http_code} ' --max-time 20 --cacert $1 $url/health; }; "
        "ask cert1; ask cert2; cp cert2 cert; cp key2 key; kill -HUP $pid; "
        "for i in $(seq 600); do ask cert2 | grep -q 200 && break; sleep 0.05; done; "
        "ask cert1; ask cert2; echo garbage > key; kill -HUP $pid; "
        "for i in $(seq 600); do grep -q stays err && break; sleep 0.05; done; ask cert2; "
        "curl -s -o answer -w '%{http_code} ' --max-time 5 http${url#https}/health; "
        "kill -TERM $pid; wait $pid; echo ended $?; grep -o 'previous keys and certificates "
        "stay' err",
        "200 000 000 200 200 000 ended 0\nprevious keys and certificates stay");
    expect(1, "caravan serve -m model --port 0 --tls-cert cert 2>&1", "its key");
    expect(1, "caravan serve -m model --port 0 --tls-cert cert1 --tls-key key2 2>&1", "PEM");
}

static void a_request_that_takes_too_long_is_ended(void **state)
{
    Running r;
    ServerOptions options = usual_options();
    options.deadline_seconds = 1;
    options.max_waiting = 300;
    start_server(&r, &options);
    /* the context ends them otherwise, after more than a second */
    int fd[2] = {ask_many(r.port, 100, false), ask_many(r.port, 100, true)};
    for (int i = 0; i < 2; i++) {
        Reply reply = http_receive(fd[i]);
        assert_int_equal(reply.status, i ? 200 : 504);
        assert_non_null(strstr(reply.body.text, "timed out after 1 seconds"));
        reply_free(&reply);
    }
    wait_for(r.port, RUNNING, 0);
    stop_server(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(web_pages_of_others_are_refused),
        cmocka_unit_test(the_page_and_its_files_want_no_key_and_name_nothing_elsewhere),
        cmocka_unit_test(only_the_origin_that_is_named_may_ask_from_elsewhere),
        cmocka_unit_test(texts_are_in_the_log_only_where_that_is_said),
        cmocka_unit_test(a_client_that_leaves_frees_its_rows),
        cmocka_unit_test(too_many_are_told_to_come_back),
        cmocka_unit_test(keys_are_wanted_on_all_but_health_and_the_page),
        cmocka_unit_test(strangers_want_a_key),
        cmocka_unit_test(tls_has_the_certificate_that_was_read_last),
        cmocka_unit_test(a_request_that_takes_too_long_is_ended),
        cmocka_unit_test(what_runs_is_finished),
        cmocka_unit_test(a_second_signal_ends_what_runs),
        cmocka_unit_test(the_command_serves_and_ends_with_a_signal),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, begin_server, finish_server);
}

#else

int main(void)
{
    return 0;
}

#endif
