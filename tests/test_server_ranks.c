/* A server of several processes: one listens, and what it answers is what one process with the same mesh answers, whoever leaves
   meanwhile; a signal ends all of them when what was accepted has been answered. */
#include "ranks.h"
#include "shell.h"

#ifdef CVN_HAVE_MICROHTTPD

#include "server_run.h"

#define SERVE                                                                                      \
    "serve -m model --mesh data=2 --layout dp --threads 1 --slots 4 --context 200 --port 0 "

static const Question questions[] = {
    {"/v1/completions", "\"prompt\": \"Once\", \"max_tokens\": 30, \"seed\": 3", "choices.0.text",
     "choices.0.text"},
    {"/v1/completions",
     "\"prompt\": \"Once\", \"max_tokens\": 60, \"seed\": 4, \"ignore_eos\": true, \"stop\": "
     "[\"e\"], "
     "\"logit_bias\": {\"40\": 3}, \"logprobs\": 1, \"echo\": true",
     "choices.0.text", "choices.0.text"},
    {"/v1/chat/completions",
     "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 60, \"seed\": "
     "5, \"structured_outputs\": {\"regex\": \"[a-f]{3}(-[0-9]+){1,4}\"}",
     "choices.0.message.content", "choices.0.delta.content"},
    {"/v1/messages",
     "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 30, \"seed\": 6",
     "content.0.text", "delta.text"},
};
#define LONG "\"prompt\": \"The\", \"max_tokens\": 150, \"temperature\": 0, \"ignore_eos\": true"
enum { QUESTIONS = sizeof questions / sizeof *questions };

/* Starts a server whose files begin with `name`: `name`.pid, .out, .err, and .ended with its status. Its port. */
static int start(const char *name, const char *launcher)
{
    char line[800];
    snprintf(line, sizeof line,
             "rm -f %s.*; (sh -c 'echo $$ > %s.pid; exec %s " CVN_BINARY " " SERVE
             "' > %s.out 2> %s.err; echo $? > %s.ended) > none 2>&1 & for i in $(seq 1200); do "
             "grep -q 'is ready' %s.err && break; [ -e %s.ended ] && cat %s.err && break; sleep "
             "0.05; done; sed 's/.*://' %s.out",
             name, name, launcher, name, name, name, name, name, name, name);
    int status;
    StrBuf output = shell(line, &status);
    int at = (int)strtol(output.text, NULL, 10);
    if (at <= 0)
        fail_msg("%s: %s", line, output.text);
    strbuf_free(&output);
    return at;
}

static void end(const char *name, const char *signal)
{
    char line[300];
    snprintf(line, sizeof line,
             "kill -%s $(cat %s.pid); for i in $(seq 1200); do [ -s %s.ended ] && break; sleep "
             "0.05; done; cat %s.ended %s.err",
             signal, name, name, name, name);
    expect(0, line, "0\n");
}

static double gauge(int port, const char *name)
{
    Reply r = http_ask(port, "GET", "/metrics", "", NULL);
    const char *at = strstr(r.body.text, name);
    assert_non_null(at);
    double value = strtod(strchr(at, '}') + 1, NULL);
    reply_free(&r);
    return value;
}

static void several_processes_answer_as_one(void **state)
{
    static const Question long_one = {"/v1/completions", LONG, "choices.0.text", NULL};
    char *alone[QUESTIONS];
    need_mpirun();
    int port = start("one", "");
    for (int i = 0; i < QUESTIONS; i++)
        alone[i] = answer(port, &questions[i], false);
    char *whole = answer(port, &long_one, false);
    end("one", "TERM");
    port = start("two", MPIRUN "-n 2");
    for (int i = 0; i < QUESTIONS; i++) {
        int gone = http_connect(port);
        http_send(gone, "POST", "/v1/completions", "",
                  "{\"prompt\": \"x\", \"max_tokens\": 190, \"ignore_eos\": true}");
        for (int stream = 0; stream < 2; stream++) {
            char *text = answer(port, &questions[i], stream);
            assert_string_equal(text, alone[i]);
            free(text);
        }
        close(gone);
        free(alone[i]);
    }
    for (int i = 0; gauge(port, "vllm:num_requests_running{") > 0; i++) {
        assert_true(i < 3000);
        usleep(10000);
    }
    int fd = http_connect(port); /* its answer has begun when the signal comes */
    http_send(fd, "POST", "/v1/completions", "", "{" LONG ", \"stream\": true}");
    char first;
    assert_int_equal(recv(fd, &first, 1, MSG_PEEK), 1);
    end("two", "USR1");
    Reply reply = http_receive(fd);
    char *late = stream_text(&reply, "choices.0.text");
    assert_string_equal(late, whole);
    reply_free(&reply);
    free(late);
    free(whole);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_processes_answer_as_one),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}

#else

int main(void)
{
    return 0;
}

#endif
