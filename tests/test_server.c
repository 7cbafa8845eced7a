/*
 * The server over HTTP: what it answers is what the model says, whole or streamed, alone or in company, in every dialect; and
 * what it does not carry out it refuses by name.
 */
#include "shell.h"

#ifdef CVN_HAVE_MICROHTTPD

#include "server/fields.h"
#include "server_run.h"

#include "base/file.h"
#include "base/threads.h"

#include <math.h>
#include <signal.h>

/* ---- loading ---- */

static void it_answers_while_it_loads(void **state)
{
    Running r;
    const ServerOptions options = usual_options();
    make_server(&r, &options);
    Reply reply = http_ask(r.port, "GET", "/health", "", NULL);
    assert_int_equal(reply.status, 503);
    assert_non_null(strstr(reply.body.text, "loading"));
    reply_free(&reply);
    server_progress(r.server, 0, 700, 1000);
    reply = http_ask(r.port, "GET", "/health", "", NULL);
    assert_non_null(
        strstr(reply.body.text, "\"model\":\"tiny\",\"bytes_loaded\":700,\"bytes\":1000"));
    reply_free(&reply);
    static const char *const paths[] = {
        "/v1/chat/completions", "/v1/completions", "/v1/responses",
        "/v1/messages",         "/tokenize",       "/v1/messages/count_tokens"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        reply = post(r.port, paths[i], "{\"prompt\": \"x\", \"messages\": []}");
        assert_int_equal(reply.status, 503);
        assert_non_null(strstr(reply.head.text, "Retry-After:"));
        reply_free(&reply);
    }
    assert_false(server_drain(r.server));
    server_free(r.server);
    cvn_engine_free(r.engine, NULL);
}

/* ---- answers ---- */

static const Question questions[] = {
    {"/v1/completions", "\"prompt\": \"Once\", \"max_tokens\": 30, \"seed\": 3", "choices.0.text",
     "choices.0.text"},
    {"/v1/completions", "\"prompt\": [5, 6, 7], \"max_tokens\": 30, \"temperature\": 0",
     "choices.0.text", "choices.0.text"},
    {"/v1/chat/completions",
     "\"messages\": [{\"role\": \"user\", \"content\": \"Hello\"}], \"max_tokens\": 30, \"seed\": "
     "4, "
     "\"top_k\": 20",
     "choices.0.message.content", "choices.0.delta.content"},
    {"/v1/responses",
     "\"input\": \"Hello\", \"instructions\": \"Be brief.\", \"max_output_tokens\": 30, \"seed\": "
     "5",
     "output.0.content.0.text", "delta"},
    {"/v1/messages",
     "\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"Hi\"}]}], "
     "\"max_tokens\": 30, \"seed\": 6, \"system\": \"Be brief.\"",
     "content.0.text", "delta.text"},
    {"/v1/chat/completions",
     "\"messages\": [{\"role\": \"system\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": "
     "\"Hello there, what is this long text about, and who wrote it?\"}], \"max_tokens\": 60, "
     "\"seed\": 7, \"min_p\": 0.01, \"repetition_penalty\": 1.2, \"ignore_eos\": true",
     "choices.0.message.content", "choices.0.delta.content"},
};
enum { QUESTIONS = sizeof questions / sizeof *questions };

static void a_stream_says_what_a_whole_answer_says(void **state)
{
    const Running *r = *state;
    int said = 0;
    for (int i = 0; i < QUESTIONS; i++) {
        char *whole = answer(r->port, &questions[i], false);
        char *streamed = answer(r->port, &questions[i], true);
        assert_string_equal(whole, streamed);
        said += *whole != 0;
        free(whole);
        free(streamed);
    }
    assert_true(said > 3);
}

/* One of the clients that ask all at once. */
typedef struct Client {
    pthread_t thread;
    int port, number;
    char *const *alone; /* [QUESTIONS] */
    int wrong;
} Client;

static void *ask_all(void *context)
{
    Client *c = context;
    for (int i = 0; i < QUESTIONS; i++) {
        int q = (i + c->number) % QUESTIONS;
        /* some leave in the middle of an answer */
        if ((i + c->number) % 3 == 0) {
            int fd = http_connect(c->port);
            http_send(
                fd, "POST", "/v1/completions", "",
                "{\"prompt\": \"x\", \"max_tokens\": 200, \"ignore_eos\": true, \"stream\": true}");
            usleep(2000);
            close(fd);
        }
        char *text = answer(c->port, &questions[q], c->number % 2);
        c->wrong += strcmp(text, c->alone[q]) != 0;
        free(text);
    }
    return NULL;
}

static void an_answer_does_not_depend_on_company(void **state)
{
    enum { CLIENTS = 6 };
    const Running *r = *state;
    char *alone[QUESTIONS];
    Client client[CLIENTS];
    for (int i = 0; i < QUESTIONS; i++)
        alone[i] = answer(r->port, &questions[i], false);
    for (int i = 0; i < CLIENTS; i++) {
        client[i] = (Client){.port = r->port, .number = i, .alone = alone};
        assert_int_equal(pthread_create(&client[i].thread, NULL, ask_all, &client[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(client[i].thread, NULL);
    for (int i = 0; i < CLIENTS; i++)
        assert_int_equal(client[i].wrong, 0);
    for (int i = 0; i < QUESTIONS; i++)
        free(alone[i]);
    wait_for(r->port, RUNNING, 0);
}

static void texts_of_one_request_are_those_of_their_own_seeds(void **state)
{
    const Running *r = *state;
    Reply one = post(r->port, "/v1/completions", "{\"prompt\": [\"a\", \"b\"], \"seed\": 9}");
    Reply two = post(r->port, "/v1/completions",
                     "{\"prompt\": [\"a\", \"b\"], \"seed\": 9, \"n\": 2, \"echo\": true}");
    json_t *first = json_of(&one), *second = json_of(&two);
    assert_int_equal(json_array_size(json_object_get(first, "choices")), 2);
    assert_int_equal(json_array_size(json_object_get(second, "choices")), 4);
    for (int prompt = 0; prompt < 2; prompt++) {
        const json_t *a = json_array_get(json_object_get(first, "choices"), (size_t)prompt);
        const json_t *b = json_array_get(json_object_get(second, "choices"), 2 * (size_t)prompt);
        const json_t *c =
            json_array_get(json_object_get(second, "choices"), 2 * (size_t)prompt + 1);
        const char *echoed = json_string_value(json_object_get(b, "text"));
        assert_int_equal(echoed[0], "ab"[prompt]);
        assert_string_equal(json_string_value(json_object_get(a, "text")), echoed + 1);
        assert_string_not_equal(echoed, json_string_value(json_object_get(c, "text")));
    }
    assert_int_equal(json_integer_value(json_at(second, "usage.prompt_tokens")),
                     json_integer_value(json_at(first, "usage.prompt_tokens")));
    json_decref(first);
    json_decref(second);
    reply_free(&one);
    reply_free(&two);
}

static void a_stop_text_is_never_seen(void **state)
{
    const Running *r = *state;
    const Question plain = {
        "/v1/completions",
        "\"prompt\": \"Once\", \"max_tokens\": 60, \"seed\": 3, \"ignore_eos\": true",
        "choices.0.text", "choices.0.text"};
    char *whole = answer(r->port, &plain, false), body[400];
    size_t n = strlen(whole);
    assert_true(n > 20);
    json_t *stop = NULL;
    size_t at = 8;
    while (!stop && at < n) /* three bytes of text that is UTF-8 there */
        stop = json_stringn(whole + at++, 3);
    at--;
    char *quoted = json_dumps(stop, JSON_ENCODE_ANY);
    size_t first = (size_t)(strstr(whole, json_string_value(stop)) - whole);
    snprintf(body, sizeof body, "%s, \"stop\": [\"never, never\", %s]", plain.body, quoted);
    const Question stopped = {plain.path, body, plain.text, plain.delta};
    for (int stream = 0; stream < 2; stream++) {
        char *text = answer(r->port, &stopped, stream);
        assert_int_equal(strlen(text), first);
        assert_memory_equal(text, whole, first);
        free(text);
    }
    free(quoted);
    json_decref(stop);
    free(whole);
}

static int64_t cached(int port, const char *salt)
{
    char body[400];
    snprintf(body, sizeof body,
             "{\"prompt\": \"A prompt that is long enough to be worth keeping\", \"seed\": 1, "
             "\"cache_salt\": \"%s\"}",
             salt);
    Reply r = post(port, "/v1/completions", body);
    json_t *json = json_of(&r);
    int64_t n = json_integer_value(json_at(json, "usage.prompt_tokens_details.cached_tokens"));
    json_decref(json);
    reply_free(&r);
    return n;
}

static void a_prompt_is_read_once_for_all_who_share_a_salt(void **state)
{
    const Running *r = *state;
    assert_int_equal(cached(r->port, "a"), 0);
    assert_true(cached(r->port, "a") > 5);
    assert_int_equal(cached(r->port, "b"), 0);
    assert_true(cached(r->port, "b") > 5);
}

static void logprobs_are_of_the_tokens(void **state)
{
    const Running *r = *state;
    Reply reply =
        post(r->port, "/v1/chat/completions",
             "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 5, "
             "\"temperature\": 0, \"logprobs\": true, \"top_logprobs\": 3, \"ignore_eos\": true}");
    json_t *json = json_of(&reply);
    const json_t *content = json_at(json, "choices.0.logprobs.content");
    assert_int_equal(json_array_size(content), 5);
    for (size_t i = 0; i < 5; i++) {
        const json_t *token = json_array_get(content, i);
        double p = json_number_value(json_at(token, "logprob"));
        assert_true(p < 0 && p > -20);
        assert_int_equal(json_array_size(json_at(token, "top_logprobs")), 3);
        /* greedy: the likeliest is the token */
        assert_true(json_number_value(json_at(token, "top_logprobs.0.logprob")) == p);
        assert_true(json_number_value(json_at(token, "top_logprobs.1.logprob")) <= p);
    }
    json_decref(json);
    reply_free(&reply);
    reply = post(
        r->port, "/v1/completions",
        "{\"prompt\": \"x\", \"max_tokens\": 5, \"logprobs\": 2, \"logit_bias\": {\"5\": 100}, "
        "\"presence_penalty\": 0.5, \"frequency_penalty\": -0.5, \"min_tokens\": 5}");
    json = json_of(&reply);
    assert_int_equal(json_array_size(json_at(json, "choices.0.logprobs.tokens")), 5);
    assert_int_equal(json_array_size(json_at(json, "choices.0.logprobs.token_logprobs")), 5);
    json_decref(json);
    reply_free(&reply);
    /* of a stream: all of them, once */
    reply = post(r->port, "/v1/completions",
                 "{\"prompt\": \"x\", \"max_tokens\": 7, \"logprobs\": 0, \"ignore_eos\": true, "
                 "\"stream\": true}");
    size_t tokens = 0;
    for (const char *at = strstr(reply.body.text, "{\"id\""); at; at = strstr(at + 1, "{\"id\"")) {
        json = json_loadb(at, strcspn(at, "\n"), JSON_ALLOW_NUL, NULL);
        tokens += json_array_size(json_at(json, "choices.0.logprobs.tokens"));
        json_decref(json);
    }
    if (tokens != 7)
        fail_msg("%zu tokens in %s%s", tokens, reply.head.text, reply.body.text);
    reply_free(&reply);
    expect_status(r->port, "/v1/completions",
                  "{\"prompt\": \"x\", \"logit_bias\": {\"99999999\": 1}}", 400, "vocabulary");
    expect_status(r->port, "/v1/completions", "{\"prompt\": \"x\", \"logit_bias\": {\"a\": 1}}",
                  400, "logit_bias");
    expect_status(r->port, "/v1/completions", "{\"prompt\": \"x\", \"logit_bias\": {\"1\": 101}}",
                  400, "logit_bias");
}

/* What evaluation harnesses ask: how likely is a text that is given? */
static void a_prompt_that_is_echoed_has_logprobs(void **state)
{
    const Running *r = *state;
    static const char body[] = "{\"prompt\": [[35, 36, 37, 38], [39, 40]], \"max_tokens\": 3, "
                               "\"echo\": true, \"logprobs\": 2, "
                               "\"temperature\": 0, \"ignore_eos\": true";
    char text[300];
    snprintf(text, sizeof text, "%s, \"prompt_logprobs\": 1}", body);
    Reply reply = post(r->port, "/v1/completions", text);
    json_t *json = json_of(&reply);
    const json_t *all = json_at(json, "choices.0.logprobs.token_logprobs");
    assert_int_equal(json_array_size(all), 7);
    assert_int_equal(json_array_size(json_at(json, "choices.1.logprobs.token_logprobs")), 5);
    assert_true(json_is_null(json_array_get(all, 0)));
    assert_true(json_is_null(json_at(json, "choices.0.logprobs.top_logprobs.0")));
    const json_t *prompt = json_at(json, "choices.0.prompt_logprobs");
    assert_int_equal(json_array_size(prompt), 4);
    assert_true(json_number_value(json_at(json_array_get(prompt, 2), "37.logprob")) ==
                json_number_value(json_array_get(all, 2)));
    assert_int_equal(json_string_length(json_at(json, "choices.0.text")),
                     json_integer_value(json_at(json, "choices.0.logprobs.text_offset.6")) +
                         json_string_length(json_at(json, "choices.0.logprobs.tokens.6")));
    /* what is generated there has, where it is given, the same number */
    Reply again = post(r->port, "/v1/completions",
                       "{\"prompt\": [35, 36, 37, 38], \"max_tokens\": 1, \"temperature\": 0, "
                       "\"return_token_ids\": true, \"ignore_eos\": true}");
    json_t *next = json_of(&again);
    int token = (int)json_integer_value(json_at(next, "choices.0.token_ids.0"));
    json_decref(next);
    reply_free(&again);
    snprintf(
        text, sizeof text,
        "{\"prompt\": [35, 36, 37, 38, %d], \"max_tokens\": 0, \"echo\": true, \"logprobs\": 1}",
        token);
    again = post(r->port, "/v1/completions", text);
    next = json_of(&again);
    assert_int_equal(json_array_size(json_at(next, "choices.0.logprobs.tokens")), 5);
    double given = json_number_value(json_at(next, "choices.0.logprobs.token_logprobs.4"));
    assert_true(fabs(given - json_number_value(json_array_get(all, 4))) < 1e-4);
    json_decref(next);
    reply_free(&again);
    /* a receipt of what it generates is the same alone and later */
    char digest[2][80];
    for (int i = 0; i < 2; i++) {
        again = post(r->port, "/v1/completions",
                     "{\"prompt\": [35, 36, 37, 38], \"max_tokens\": 6, \"seed\": 4, "
                     "\"receipt\": true, \"ignore_eos\": true}");
        next = json_of(&again);
        assert_int_equal(json_array_size(json_at(next, "choices.0.receipt.tokens")), 6);
        assert_int_equal(json_string_length(json_at(next, "choices.0.receipt.weights")), 64);
        assert_int_equal(json_integer_value(json_at(next, "choices.0.receipt.request.prompt.3")),
                         38);
        snprintf(digest[i], sizeof digest[i], "%s",
                 json_string_value(json_at(next, "choices.0.receipt.logits")));
        json_decref(next);
        reply_free(&again);
    }
    assert_string_equal(digest[0], digest[1]);
    assert_int_equal(strlen(digest[0]), 64);
    expect_status(r->port, "/v1/completions",
                  "{\"prompt\": [35], \"max_tokens\": 1, \"receipt\": true, \"stream\": true}", 400,
                  "\"param\":\"receipt\"");
    /* a stream says all of it, once */
    snprintf(text, sizeof text, "%s, \"stream\": true}", body);
    again = post(r->port, "/v1/completions", text);
    size_t tokens = 0;
    for (const char *at = strstr(again.body.text, "{\"id\""); at; at = strstr(at + 1, "{\"id\"")) {
        next = json_loadb(at, strcspn(at, "\n"), JSON_ALLOW_NUL, NULL);
        tokens += json_array_size(json_at(next, "choices.0.logprobs.tokens"));
        json_decref(next);
    }
    assert_int_equal(tokens, 12);
    reply_free(&again);
    json_decref(json);
    reply_free(&reply);
    expect_status(r->port, "/v1/chat/completions",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 1, "
                  "\"prompt_logprobs\": 0}",
                  200, "\"prompt_logprobs\":[null,{");
    expect_status(r->port, "/v1/completions",
                  "{\"prompt\": \"x\", \"stream\": true, \"prompt_logprobs\": 1}", 400,
                  "\"param\":\"prompt_logprobs\"");
}

static void ids_and_text_are_turned_into_each_other(void **state)
{
    const Running *r = *state;
    char body[256];
    Reply reply = post(r->port, "/tokenize",
                       "{\"prompt\": \"Hello <|eot_id|>\", \"add_special_tokens\": false}");
    json_t *json = json_of(&reply);
    char *ids = json_dumps(json_object_get(json, "tokens"), JSON_COMPACT);
    snprintf(body, sizeof body, "{\"tokens\": %s}", ids);
    free(ids);
    json_decref(json);
    reply_free(&reply);
    expect_status(r->port, "/detokenize", body, 200, "{\"prompt\":\"Hello <|eot_id|>\"}");
    expect_status(r->port, "/v1/messages/count_tokens",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", 200,
                  "input_tokens");
    expect_status(r->port, "/apply-template",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}", 200,
                  "<|start_header_id|>assistant");
}

/* Fails unless /apply-template makes `text` of the rest of a body. */
static void expect_prompt(int port, const char *rest, const char *text)
{
    char body[400];
    snprintf(body, sizeof body, "{%s}", rest);
    Reply r = post(port, "/apply-template", body);
    char *prompt = string_at(&r, "prompt");
    assert_string_equal(prompt, text);
    free(prompt);
    reply_free(&r);
}

static void a_template_has_variables_and_messages_are_gone_on_in(void **state)
{
    Running r;
    cvn_model *plain = model;
    cvn_err err = {0};
    ServerOptions options = usual_options();
    expect(0,
           "cp -r model templated && printf '%s' '{% for m in messages %}<|start_header_id|>{{ "
           "m.role }}<|end_header_id|>{{ m.content }}<|eot_id|>{% endfor %}{% if "
           "add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>{{ mood }}{{ "
           "reasoning_effort }}{% endif %}' > templated/chat_template.jinja",
           "");
    char path[300];
    snprintf(path, sizeof path, "%s/templated", scratch);
    served->path = path;
    assert_int_equal(cvn_model_open(path, NULL, &model, &err), CVN_OK);
    start_server(&r, &options);
#define HI "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}"
#define HI_TEXT "<|start_header_id|>user<|end_header_id|>Hi<|eot_id|>"
#define HEADER "<|start_header_id|>assistant<|end_header_id|>"
    expect_prompt(r.port, HI "]", HI_TEXT HEADER);
    expect_prompt(r.port, HI "], \"chat_template_kwargs\": {\"mood\": \"happy\"}",
                  HI_TEXT HEADER "happy");
    expect_prompt(r.port,
                  HI "], \"chat_template_kwargs\": {\"mood\": \"so \"}, \"reasoning_effort\": "
                     "\"low\"",
                  HI_TEXT HEADER "so low");
    expect_prompt(r.port, HI "], \"add_generation_prompt\": false", HI_TEXT);
    expect_prompt(
        r.port,
        HI ", {\"role\": \"assistant\", \"content\": \"So\"}], \"continue_final_message\": true",
        HI_TEXT HEADER "So");
    expect_status(r.port, "/v1/messages/count_tokens",
                  "{" HI ", {\"role\": \"assistant\", \"content\": \"So\"}]}", 200, "input_tokens");
    expect_status(r.port, "/apply-template",
                  "{" HI "], \"chat_template_kwargs\": {\"messages\": []}}", 400, "messages");
    expect_status(r.port, "/apply-template",
                  "{" HI "], \"continue_final_message\": true, \"add_generation_prompt\": true}",
                  400, "contradict");
    stop_server(&r);
    cvn_model_free(model);
    model = plain;
}

/* Another model of the same shape, and the same one. */
static void the_fingerprint_is_of_the_weights(void **state)
{
    const Running *r = *state;
    cvn_model *first = model;
    cvn_err err = {0};
    const ServerOptions options = usual_options();
    char *print[3];
    expect(0, "caravan init -p tiny -s 4 --tokenizer model/tokenizer.json -o other", "");
    for (int i = 0; i < 3; i++) {
        Running other = {.port = r->port};
        if (i && cvn_model_open(in_scratch(i == 1 ? "other" : "model"), NULL, &model, &err))
            fail_msg("%s", err.message);
        if (i)
            start_server(&other, &options);
        Reply reply = post(other.port, "/v1/completions", "{\"prompt\": \"x\", \"max_tokens\": 1}");
        print[i] = string_at(&reply, "system_fingerprint");
        reply_free(&reply);
        if (i) {
            stop_server(&other);
            cvn_model_free(model);
        }
    }
    model = first;
    assert_string_not_equal(print[0], print[1]);
    assert_string_equal(print[0], print[2]);
    for (int i = 0; i < 3; i++)
        free(print[i]);
}

/* ---- refusals ---- */

static void what_is_not_carried_out_is_refused_by_name(void **state)
{
    const Running *r = *state;
    static const struct {
        const char *path, *field, *value;
    } refused[] = {
        {"/v1/completions", "foo", "1"},
        {"/v1/completions", "temperature", "-1"},
        {"/v1/completions", "temperature", "\"1\""},
        {"/v1/completions", "top_p", "1.5"},
        {"/v1/completions", "n", "0"},
        {"/v1/completions", "n", "1.5"},
        {"/v1/completions", "max_tokens", "-1"},
        {"/v1/completions", "seed", "\"x\""},
        {"/v1/completions", "stop", "[\"\"]"},
        {"/v1/completions", "stop", "[1]"},
        {"/v1/completions", "stop_token_ids", "[-1]"},
        {"/v1/completions", "stream_options", "{\"x\": true}"},
        {"/v1/completions", "suffix", "\"x\""},
        {"/v1/completions", "best_of", "2"},
        {"/v1/chat/completions", "tools", "[{\"type\": \"function\"}]"},
        {"/v1/chat/completions", "response_format", "{\"type\": \"xml\"}"},
        {"/v1/chat/completions", "store", "true"},
        {"/v1/responses", "previous_response_id", "\"x\""},
        {"/v1/responses", "background", "true"},
        {"/v1/messages", "stop_sequences", "1"},
        {"/v1/messages", "thinking", "{\"type\": \"enabled\", \"budget_tokens\": 1024}"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        char body[400], wanted[64];
        snprintf(body, sizeof body, "{\"%s\": \"x\", \"max_%stokens\": 4, \"%s\": %s}",
                 strstr(refused[i].path, "chat") || strstr(refused[i].path, "messages") ? "model"
                 : strstr(refused[i].path, "responses")                                 ? "input"
                                                                                        : "prompt",
                 strstr(refused[i].path, "responses") ? "output_" : "", refused[i].field,
                 refused[i].value);
        bool anthropic = strstr(refused[i].path, "messages");
        snprintf(wanted, sizeof wanted, anthropic ? "%s" : "\"param\":\"%s\"", refused[i].field);
        if (strcmp(refused[i].field, "max_tokens") == 0)
            snprintf(body, sizeof body, "{\"prompt\": \"x\", \"max_tokens\": -1}");
        expect_status(r->port, refused[i].path, body, 400, wanted);
    }
}

/* What somebody meant who sent a field that there is not. */
static void what_was_meant_is_said(void **state)
{
    const Running *r = *state;
#define ASKS "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]"
    static const struct {
        const char *path, *body, *piece;
    } cases[] = {
        {"/v1/chat/completions", "{" ASKS ", \"max_token\": 5}", "did you mean max_tokens?"},
        {"/v1/completions", "{\"promt\": \"x\"}", "did you mean prompt?"},
        {"/v1/completions", "{\"prompt\": \"x\", \"messages\": []}",
         "it is a field of chat.completions, not of completions"},
        {"/v1/chat/completions", "{\"messages\": []}",
         "messages is empty; send at least one message"},
        {"/v1/messages", "{\"max_tokens\": 4, \"messages\": []}", "messages is empty"},
        {"/v1/chat/completions", "{\"messages\": {}}", "must be an array of messages"},
        {"/v1/chat/completions", "{" ASKS ", \"reasoning_effort\": \"low\"}",
         "reasoning_effort = low is not supported: the model's chat template has no variable"},
        {"/v1/responses", "{\"input\": \"Hi\", \"reasoning\": {\"effort\": \"high\"}}",
         "reasoning = high is not supported"},
        {"/v1/chat/completions", "{" ASKS ", \"reasoning_effort\": \"much\"}",
         "none, minimal, low, medium, high or xhigh"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_status(r->port, cases[i].path, cases[i].body, 400, cases[i].piece);
    expect_status(r->port, "/v1/chat/completions",
                  "{" ASKS ", \"max_tokens\": 2, \"reasoning_effort\": \"none\"}", 200, "choices");
}

static void what_asks_for_nothing_is_accepted(void **state)
{
    const Running *r = *state;
    expect_status(
        r->port, "/v1/chat/completions",
        "{\"model\": \"tiny\", \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
        "\"max_completion_tokens\": 2, \"user\": \"me\", \"metadata\": {\"a\": \"b\"}, "
        "\"store\": false, \"tools\": [], \"tool_choice\": \"auto\", \"logit_bias\": {}, "
        "\"service_tier\": \"auto\", \"response_format\": {\"type\": \"text\"}, "
        "\"presence_penalty\": 0, \"frequency_penalty\": 0.0, \"stop\": null}",
        200, "\"finish_reason\"");
}

static void bad_bodies_are_refused(void **state)
{
    const Running *r = *state;
    StrBuf deep = {0}, large = {0};
    for (int i = 0; i < 5000; i++)
        strbuf_puts(&deep, "{\"a\":[");
    strbuf_puts(&large, "{\"prompt\": \"");
    for (int i = 0; i < 1 << 17; i++)
        strbuf_puts(&large, "0123456789abcdef");
    strbuf_puts(&large, "\"}");
    static const char *const bad[] = {"",
                                      "x",
                                      "[]",
                                      "{",
                                      "{\"prompt\": \"a\", \"prompt\": \"b\"}",
                                      "{\"prompt\": \"\xff\"}",
                                      "null",
                                      "{}",
                                      "1",
                                      "{\"prompt\": []}",
                                      "{\"prompt\": [[]]}",
                                      "{\"prompt\": [-1]}",
                                      "{\"prompt\": [99999999]}",
                                      "{\"prompt\": [1, \"a\"]}",
                                      "{\"prompt\": {}}",
                                      "{\"prompt\": \"a\", \"max_tokens\": 1e400}",
                                      "{\"prompt\": [1e10]}",
                                      "{\"prompt\": \"a\"} x",
                                      "{\"prompt\": \"a\", \"seed\": 99999999999999999999}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        expect_status(r->port, "/v1/completions", bad[i], 400, "invalid_request_error");
    expect_status(r->port, "/v1/completions", deep.text, 400, "levels");
    expect_status(r->port, "/v1/completions", large.text, 413, "bytes");
    strbuf_free(&deep);
    strbuf_clear(&large);
    strbuf_puts(&large, "{\"prompt\": [1");
    for (int i = 0; i < CONTEXT; i++)
        strbuf_puts(&large, ", 1");
    strbuf_puts(&large, "]}");
    expect_status(r->port, "/v1/completions", large.text, 400, "maximum context length");
    strbuf_free(&large);
    expect_status(r->port, "/v1/completions", "{\"model\": \"other\", \"prompt\": \"a\"}", 404,
                  "model_not_found");
    expect_status(r->port, "/v1/messages",
                  "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", 400,
                  "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\"");
    expect_status(r->port, "/nowhere", "{}", 404, "no such path");
    Reply reply = http_ask(r->port, "GET", "/v1/completions", "", NULL);
    assert_int_equal(reply.status, 405);
    assert_non_null(strstr(reply.head.text, "Allow: POST"));
    reply_free(&reply);
    reply = http_ask(r->port, "HEAD", "/health", "", NULL);
    assert_int_equal(reply.status, 200);
    reply_free(&reply);
}

static void the_openapi_file_has_every_field_that_is_read(void **state)
{
    const Running *r = *state;
    Reply reply = http_ask(r->port, "GET", "/openapi.json", "", NULL);
    json_t *json = json_of(&reply);
    const json_t *chat = json_object_get(json_object_get(json, "paths"), "/v1/chat/completions");
    const json_t *schema = json_at(chat, "post.requestBody.content");
    schema = json_at(json_object_get(schema, "application/json"), "schema");
    assert_true(json_is_false(json_object_get(schema, "additionalProperties")));
    for (const Field *const *table = fields_chat.tables; *table; table++)
        for (const Field *f = *table; f->name; f++)
            assert_non_null(json_object_get(json_object_get(schema, "properties"), f->name));
    json_decref(json);
    reply_free(&reply);
}

static void fields_are_in_the_page(void **state)
{
    static const Fields *const all[] = {
        &fields_chat,       &fields_completions,    &fields_responses,
        &fields_messages,   &fields_count_tokens,   &fields_tokenize,
        &fields_detokenize, &fields_apply_template, &fields_embeddings};
    FileMap page;
    cvn_err err = {0};
    must(file_map(&page, CVN_TEST_DATA "/../../docs/SERVING.md", &err), &err);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (const Field *const *table = all[i]->tables; *table; table++)
            for (const Field *f = *table; f->name; f++) {
                char quoted[80];
                snprintf(quoted, sizeof quoted, "`%s`", f->name);
                if (!memmem(page.data, page.size, quoted, strlen(quoted)))
                    fail_msg("docs/SERVING.md does not name %s of %s", f->name, all[i]->name);
            }
    file_unmap(&page);
}

static void the_dashboard_asks_for_metrics_that_are_served(void **state)
{
    const Running *r = *state;
    FileMap file;
    cvn_err err = {0};
    int asked = 0;
    must(file_map(&file, CVN_TEST_DATA "/../../examples/grafana.json", &err), &err);
    json_t *dashboard = json_loadb((const char *)file.data, file.size, 0, NULL), *panel, *target;
    Reply reply = http_ask(r->port, "GET", "/metrics", "", NULL);
    size_t i, k;
    json_array_foreach(json_object_get(dashboard, "panels"), i, panel)
    {
        json_array_foreach(json_object_get(panel, "targets"), k, target)
        {
            const char *at = json_string_value(json_object_get(target, "expr"));
            while ((at = strpbrk(at, "vc"))) {
                size_t prefix = strncmp(at, "vllm:", 5) == 0      ? 5
                                : strncmp(at, "caravan:", 8) == 0 ? 8
                                                                  : 0;
                size_t n = prefix + strspn(at + prefix, "abcdefghijklmnopqrstuvwxyz0123456789_");
                char line[120];
                snprintf(line, sizeof line, "\n%.*s", (int)n, at);
                const char *found = prefix ? strstr(reply.body.text, line) : reply.body.text;
                if (!found || (prefix && !strchr("{ ", found[n + 1])))
                    fail_msg("examples/grafana.json asks for%s, which is not served", line);
                asked += prefix > 0;
                at += prefix ? n : 1;
            }
        }
    }
    assert_true(asked > 20);
    json_decref(dashboard);
    reply_free(&reply);
    file_unmap(&file);
}

/* Lines of a log, one behind the other. */
int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_answers_while_it_loads),
        cmocka_unit_test(a_stream_says_what_a_whole_answer_says),
        cmocka_unit_test(an_answer_does_not_depend_on_company),
        cmocka_unit_test(texts_of_one_request_are_those_of_their_own_seeds),
        cmocka_unit_test(a_stop_text_is_never_seen),
        cmocka_unit_test(a_prompt_is_read_once_for_all_who_share_a_salt),
        cmocka_unit_test(logprobs_are_of_the_tokens),
        cmocka_unit_test(a_prompt_that_is_echoed_has_logprobs),
        cmocka_unit_test(ids_and_text_are_turned_into_each_other),
        cmocka_unit_test(a_template_has_variables_and_messages_are_gone_on_in),
        cmocka_unit_test(the_fingerprint_is_of_the_weights),
        cmocka_unit_test(what_is_not_carried_out_is_refused_by_name),
        cmocka_unit_test(what_asks_for_nothing_is_accepted),
        cmocka_unit_test(what_was_meant_is_said),
        cmocka_unit_test(bad_bodies_are_refused),
        cmocka_unit_test(the_openapi_file_has_every_field_that_is_read),
        cmocka_unit_test(fields_are_in_the_page),
        cmocka_unit_test(the_dashboard_asks_for_metrics_that_are_served),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, begin_server, finish_server);
}

#else

static void the_command_says_what_is_missing(void **state)
{
    expect(1, "caravan serve -m model 2>&1", "libmicrohttpd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_command_says_what_is_missing)};
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}

#endif
