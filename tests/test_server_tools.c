/*
 * Answers that are JSON by a schema, and calls of tools: a model of random weights says nothing that does not parse, in every
 * dialect, streamed or not, in whatever way its template writes calls.
 */
#include "shell.h"

#ifdef CVN_HAVE_MICROHTTPD

#include "base/file.h"
#include "server_run.h"

#include <signal.h>

/* A model whose template writes a call as `call` says, and a server for it. */
static void serve_template(Running *r, const char *call)
{
    static const char *const begin =
        "{% if tools %}<|start_header_id|>system<|end_header_id|>{% for t in tools %}{{ t | tojson "
        "}}{% endfor %}<|eot_id|>{% endif %}{% for m in messages %}<|start_header_id|>{{ m.role "
        "}}<|end_header_id|>{{ m.content }}{% for c in m.tool_calls or [] %}{% set f = c.function "
        "%}";
    static const char *const end = "{% endfor %}<|eot_id|>{% endfor %}{% if add_generation_prompt "
                                   "%}<|start_header_id|>assistant<|end_header_id|>{% endif %}";
    static char path[300];
    ServerOptions options = usual_options();
    cvn_err err = {0};
    expect(0, "rm -rf templated && cp -r long templated", "");
    snprintf(path, sizeof path, "%s/templated/chat_template.jinja", scratch);
    FILE *file = fopen(path, "w");
    fprintf(file, "%s%s%s", begin, call, end);
    fclose(file);
    *strrchr(path, '/') = '\0';
    served->path = path;
    must(cvn_model_open(path, NULL, &model, &err), &err);
    start_server(r, &options);
}

static void end_template(Running *r)
{
    stop_server(r);
    cvn_model_free(model);
}

#define HERMES                                                                                     \
    "\n<tool_call>\n{\"name\": \"{{ f.name }}\", \"arguments\": {{ f.arguments | tojson "          \
    "}}}\n</tool_call>"
#define MISTRAL                                                                                    \
    "{% if loop.first %}<|python_tag|>[{% endif %}{\"name\": \"{{ f.name }}\", \"arguments\": "    \
    "{{ f.arguments | tojson }}, \"id\": \"{{ c.id }}\"}{{ ']' if loop.last else ', ' }}"
#define ONE_ONLY                                                                                   \
    "{% if loop.length > 1 %}{{ raise_exception('one call at a time') }}{% endif %}"               \
    "{\"name\": \"{{ f.name }}\", \"parameters\": {{ f.arguments | tojson }}}"
#define BARE "!!!{{ f.name }} {{ f.arguments | tojson }}"
#define EACH(body) "{% for k, v in f.arguments.items() %}" body "{% endfor %}"
#define CODER                                                                                      \
    "\n<tool_call>\n<function={{ f.name }}>\n" EACH(                                               \
        "<parameter={{ k }}>\n{{ v }}\n</parameter>\n") "</function>\n</tool_call>"
#define GLM                                                                                        \
    "\n<tool_call>{{ f.name }}" EACH(                                                              \
        "\n<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>") "\n</tool_call>"
#define TYPED                                                                                      \
    "{{ '<calls>' if loop.first }}<invoke name='{{ f.name }}'>" EACH(                              \
        "<p name='{{ k }}' text='{{ v is string }}'>{{ v }}</p>") "</invoke>{{ '</calls>' if "     \
                                                                  "loop.last }}"
#define PYTHON                                                                                     \
    "{{ '<calls>[' if loop.first else ', ' }}{{ f.name }}(" EACH(                                  \
        "{% if not loop.first %}, {% endif %}{{ k }}={% if v is string %}'{{ v }}'{% else %}{{ v " \
        "}}{% "                                                                                    \
        "endif %}") "){{ ']</calls>' if loop.last }}"
#define GEMMA                                                                                      \
    "<|call>{{ f.name }}{{ '{' }}" EACH("{% if not loop.first %},{% endif %}{{ k }}:{% if v is "   \
                                        "string %}<|\"|>{{ v }}<|\"|>{% else %}"                   \
                                        "{{ v }}{% endif %}") "{{ '}' }}<call|>"

#define WEATHER                                                                                    \
    "{\"type\": \"object\", \"properties\": {\"city\": {\"enum\": [\"Paris\", \"Rome\"]}, "        \
    "\"days\": {\"type\": \"integer\", \"minimum\": 1, \"maximum\": 9}}, \"required\": "           \
    "[\"city\", \"days\"], \"additionalProperties\": false}"
#define CLOCK                                                                                      \
    "{\"type\": \"object\", \"properties\": {\"zone\": {\"enum\": [\"UTC\", \"CET\"]}}, "          \
    "\"required\": [\"zone\"], \"additionalProperties\": false}"

static const char CHAT_TOOLS[] =
    "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 400, \"tools\": "
    "[{\"type\": \"function\", \"function\": {\"name\": \"weather\", \"parameters\": " WEATHER
    "}}, {\"type\": \"function\", \"function\": {\"name\": \"clock\", \"strict\": true, "
    "\"parameters\": " CLOCK "}}]";

/* That arguments are those of the tool. */
static void check_call(const char *name, const json_t *arguments)
{
    const char *city = json_string_value(json_object_get(arguments, "city"));
    const char *zone = json_string_value(json_object_get(arguments, "zone"));
    json_int_t days = json_integer_value(json_object_get(arguments, "days"));
    if (strcmp(name, "weather") == 0) {
        assert_true(city && (strcmp(city, "Paris") == 0 || strcmp(city, "Rome") == 0));
        assert_int_equal(json_object_size(arguments), 2);
        assert_true(json_number_value(json_object_get(arguments, "days")) >= 1 && days <= 9);
    } else {
        assert_string_equal(name, "clock");
        assert_true(zone && (strcmp(zone, "UTC") == 0 || strcmp(zone, "CET") == 0));
    }
}

/* The calls of an answer, "name arguments;" each, after checking them. */
static char *calls_of(const json_t *json)
{
    StrBuf text = {0};
    strbuf_add(&text, "", 0);
    const json_t *calls = json_at(json, "choices.0.message.tool_calls");
    assert_string_equal(json_string_value(json_at(json, "choices.0.finish_reason")), "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i);
        const char *name = json_string_value(json_at(call, "function.name"));
        const char *given = json_string_value(json_at(call, "function.arguments"));
        json_t *arguments = json_loads(given, 0, NULL);
        assert_int_equal(strlen(json_string_value(json_at(call, "id"))), 9);
        check_call(name, arguments);
        strbuf_printf(&text, "%s %s;", name, given);
        json_decref(arguments);
    }
    return text.text;
}

/* The same of a stream of chunks. */
static char *streamed_calls(const Reply *r)
{
    StrBuf text = {0};
    int n = 0;
    strbuf_add(&text, "", 0);
    for (const char *at = strstr(r->body.text, "data: {"); at; at = strstr(at + 1, "data: {")) {
        json_t *event = json_loadb(at + 6, strcspn(at, "\n") - 6, JSON_ALLOW_NUL, NULL);
        const json_t *calls = json_at(event, "choices.0.delta.tool_calls");
        for (size_t i = 0; i < json_array_size(calls); i++) {
            const json_t *call = json_array_get(calls, i);
            const char *name = json_string_value(json_at(call, "function.name"));
            if (name) {
                assert_int_equal(json_integer_value(json_at(call, "index")), n++);
                strbuf_printf(&text, "%s%s ", n > 1 ? ";" : "", name);
            }
            strbuf_puts(&text, json_string_value(json_at(call, "function.arguments")));
        }
        json_decref(event);
    }
    strbuf_puts(&text, n ? ";" : "");
    return text.text;
}

/* What is called with these further fields, whole and streamed; its number of calls. */
static int call(int port, const char *more)
{
    StrBuf body = {0};
    strbuf_printf(&body, "{%s, %s}", CHAT_TOOLS, more);
    Reply r = post(port, "/v1/chat/completions", body.text);
    if (r.status != 200 || !strstr(r.body.text, "\"finish_reason\":\"tool_calls\""))
        fail_msg("%s\n%s", more, r.body.text);
    json_t *json = json_of(&r);
    char *whole = calls_of(json);
    reply_free(&r);
    strbuf_clear(&body);
    strbuf_printf(&body, "{%s, %s, \"stream\": true}", CHAT_TOOLS, more);
    r = post(port, "/v1/chat/completions", body.text);
    char *streamed = streamed_calls(&r);
    assert_string_equal(whole, streamed);
    assert_non_null(strstr(r.body.text, "\"finish_reason\":\"tool_calls\""));
    int n = (int)json_array_size(json_at(json, "choices.0.message.tool_calls"));
    assert_true(n > 0);
    free(whole);
    free(streamed);
    json_decref(json);
    reply_free(&r);
    strbuf_free(&body);
    return n;
}

static void calls_that_are_wanted_come_in_every_syntax(void **state)
{
    static const struct {
        const char *template;
        bool several;
    } cases[] = {{HERMES, true}, {MISTRAL, true}, {ONE_ONLY, false}, {BARE, true},   {"", true},
                 {CODER, true},  {GLM, true},     {TYPED, true},     {PYTHON, true}, {GEMMA, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Running r;
        int most = 0;
        serve_template(&r, cases[i].template);
        for (int seed = 0; seed < 6; seed++) {
            char more[100];
            snprintf(more, sizeof more, "\"tool_choice\": \"required\", \"seed\": %d", seed);
            int n = call(r.port, more);
            most = n > most ? n : most;
        }
        if (cases[i].several ? most < 2 : most != 1)
            fail_msg("%s: at most %d calls", cases[i].template, most);
        assert_int_equal(call(r.port, "\"tool_choice\": \"required\", \"seed\": 2, "
                                      "\"parallel_tool_calls\": false"),
                         1);
        assert_int_equal(call(r.port, "\"tool_choice\": {\"type\": \"function\", \"function\": "
                                      "{\"name\": \"clock\"}}, \"seed\": 2"),
                         1);
        end_template(&r);
    }
}

/* The id of a text that is one token. */
static int token_of(int port, const char *text)
{
    char body[100];
    snprintf(body, sizeof body, "{\"prompt\": \"%s\", \"add_special_tokens\": false}", text);
    Reply r = post(port, "/tokenize", body);
    json_t *json = json_of(&r);
    assert_int_equal(json_integer_value(json_at(json, "count")), 1);
    int id = (int)json_integer_value(json_at(json, "tokens.0"));
    json_decref(json);
    reply_free(&r);
    return id;
}

static void a_call_that_the_model_begins_is_one(void **state)
{
    Running r;
    char more[300];
    /* by a token of its own */
    serve_template(&r, MISTRAL);
    call(
        r.port,
        "\"logit_bias\": {\"7\": 100}, \"seed\": 1, \"parallel_tool_calls\": false"); /* <|python_tag|> */
    end_template(&r);
    /* by what stands at the beginning of the answer */
    serve_template(&r, BARE);
    snprintf(more, sizeof more,
             "\"logit_bias\": {\"%d\": 100}, \"seed\": 1, \"parallel_tool_calls\": false",
             token_of(r.port, "!"));
    call(r.port, more);
    end_template(&r);
    /* by a text, anywhere: these three tokens alone are drawn, until it is there */
    serve_template(&r, "<!>{{ f.name }} {{ f.arguments | tojson }}");
    snprintf(more, sizeof more,
             "\"logit_bias\": {\"%d\": 100, \"%d\": 100, \"%d\": 100}, \"seed\": 1, "
             "\"parallel_tool_calls\": false",
             token_of(r.port, "<"), token_of(r.port, "!"), token_of(r.port, ">"));
    call(r.port, more);
    StrBuf body = {0};
    strbuf_printf(&body, "{%s, %s}", CHAT_TOOLS, more);
    Reply reply = post(r.port, "/v1/chat/completions", body.text);
    char *content = string_at(&reply, "choices.0.message.content");
    assert_true(*content);
    assert_null(strstr(content, "<!>"));
    assert_int_equal(strspn(content, "<!>"), strlen(content));
    free(content);
    reply_free(&reply);
    strbuf_free(&body);
    end_template(&r);
}

static void calls_and_results_reach_the_template_from_every_dialect(void **state)
{
    Running r;
    serve_template(&r, HERMES);
    static const struct {
        const char *path, *body, *piece;
    } cases[] = {
        {"/v1/chat/completions",
         "{\"max_tokens\": 200, \"parallel_tool_calls\": false, \"tool_choice\": \"required\", "
         "\"tools\": [{\"type\": "
         "\"function\", \"function\": {\"name\": \"clock\", \"parameters\": " CLOCK
         "}}], \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
         "\"content\": null, \"tool_calls\": [{\"id\": \"abc\", \"type\": \"function\", "
         "\"function\": {\"name\": \"clock\", \"arguments\": \"{\\\"zone\\\": \\\"UTC\\\"}\"}}]}, "
         "{\"role\": \"tool\", \"tool_call_id\": \"abc\", \"content\": \"noon\"}]}",
         "\"finish_reason\":\"tool_calls\""},
        {"/v1/responses",
         "{\"max_output_tokens\": 200, \"parallel_tool_calls\": false, \"tool_choice\": "
         "\"required\", \"tools\": [{\"type\": "
         "\"function\", \"name\": \"clock\", \"parameters\": " CLOCK
         "}], \"input\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"type\": \"function_call\", "
         "\"call_id\": \"abc\", \"name\": \"clock\", \"arguments\": \"{\\\"zone\\\": "
         "\\\"UTC\\\"}\"}, {\"type\": \"function_call_output\", \"call_id\": \"abc\", \"output\": "
         "\"noon\"}]}",
         "\"type\":\"function_call\""},
        {"/v1/messages",
         "{\"max_tokens\": 200, \"tool_choice\": {\"type\": \"any\", "
         "\"disable_parallel_tool_use\": true}, \"tools\": [{\"name\": "
         "\"clock\", \"input_schema\": " CLOCK
         "}], \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
         "\"content\": [{\"type\": \"tool_use\", \"id\": \"abc\", \"name\": \"clock\", \"input\": "
         "{\"zone\": \"UTC\"}}]}, {\"role\": \"user\", \"content\": [{\"type\": \"tool_result\", "
         "\"tool_use_id\": \"abc\", \"content\": \"noon\"}]}]}",
         "\"stop_reason\":\"tool_use\""},
    };
    int64_t tokens = 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static const char *const usage[] = {"usage.prompt_tokens", "usage.input_tokens",
                                            "usage.input_tokens"};
        Reply reply = post(r.port, cases[i].path, cases[i].body);
        if (reply.status != 200 || !strstr(reply.body.text, cases[i].piece))
            fail_msg("%s", reply.body.text);
        json_t *json = json_of(&reply);
        int64_t n = json_integer_value(json_at(json, usage[i])) +
                    json_integer_value(json_at(json, "usage.cache_read_input_tokens"));
        assert_true(i == 0 || n == tokens); /* the same prompt, to the token */
        tokens = n;
        json_decref(json);
        reply_free(&reply);
        StrBuf streamed = {0};
        strbuf_printf(&streamed, "{\"stream\": true, \"seed\": 5, %s", cases[i].body + 1);
        reply = post(r.port, cases[i].path, streamed.text);
        assert_int_equal(reply.status, 200);
        char *text = i == 0   ? streamed_calls(&reply)
                     : i == 1 ? stream_text(&reply, "delta")
                              : stream_text(&reply, "delta.partial_json");
        assert_non_null(strstr(text, "{\""));
        free(text);
        strbuf_free(&streamed);
        reply_free(&reply);
    }
    end_template(&r);
}

static void tools_are_told_of_in_text_where_the_template_knows_none(void **state)
{
    static const char body[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": \"assistant\", "
        "\"content\": \"Well\", \"tool_calls\": [{\"id\": \"a\", \"type\": \"function\", "
        "\"function\": {\"name\": \"clock\", \"arguments\": \"{\\\"zone\\\":\\\"UTC\\\"}\"}}]}, "
        "{\"role\": \"tool\", \"tool_call_id\": \"a\", \"content\": \"noon\"}, "
        "{\"role\": \"user\", \"content\": \"And?\"}], \"tools\": [{\"type\": \"function\", "
        "\"function\": {\"name\": \"clock\", \"parameters\": {\"type\": \"object\"}}}]}";
    static const char *const pieces[] = {
        "<|start_header_id|>system<|end_header_id|>You may call these functions.",
        "{\"name\": \"clock\", \"description\": \"\", \"parameters\": {\"type\": \"object\"}}",
        "user<|end_header_id|>Hi<|eot_id|>",
        "assistant<|end_header_id|>Well\n<tool_call>\n{\"name\": \"clock\", \"arguments\": "
        "{\"zone\": "
        "\"UTC\"}}\n</tool_call><|eot_id|>",
        "user<|end_header_id|><tool_response>\nnoon\n</tool_response>\nAnd?<|eot_id|>",
    };
    Running r;
    serve_template(&r, "");
    Reply reply = post(r.port, "/apply-template", body);
    char *prompt = string_at(&reply, "prompt"), *at = prompt;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        at = strstr(at, pieces[i]);
        if (!at)
            fail_msg("%s is not where it should be in\n%s", pieces[i], prompt);
    }
    free(prompt);
    reply_free(&reply);
    end_template(&r);
}

#define COUNTER                                                                                    \
    "{\"type\": \"object\", \"properties\": {\"n\": {\"enum\": [1, 2, 3, 4, 5]}}, \"required\": "  \
    "[\"n\"]}"

/* Objects one behind the other, each as it is written most briefly. */
static char *shortened(const char *text)
{
    StrBuf out = {0};
    strbuf_add(&out, "", 0);
    for (size_t n; *text; text += n) {
        n = strcspn(text, "}") + 1;
        json_t *json = json_loadb(text, n, 0, NULL);
        char *one = json_dumps(json, JSON_COMPACT);
        if (!one)
            fail_msg("no objects: %s", text);
        strbuf_puts(&out, one);
        free(one);
        json_decref(json);
    }
    return out.text;
}

/* Asks for calls of one tool in a dialect, whole and streamed: the arguments of all calls, as they were streamed. */
static char *counted(int port, int dialect, const char *more)
{
    static const struct {
        const char *path, *body, *calls, *arguments, *delta;
    } dialects[] = {
        {"/v1/chat/completions",
         "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 2000, "
         "\"tool_choice\": \"required\", \"tools\": [{\"type\": \"function\", \"function\": "
         "{\"name\": \"count\", \"parameters\": " COUNTER "}}]",
         "choices.0.message.tool_calls", "function.arguments", NULL},
        {"/v1/responses",
         "\"input\": \"Hi\", \"max_output_tokens\": 2000, \"tool_choice\": \"required\", "
         "\"tools\": [{\"type\": \"function\", \"name\": \"count\", \"parameters\": " COUNTER "}]",
         "output", "arguments", "delta"},
        {"/v1/messages",
         "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 2000, "
         "\"tool_choice\": {\"type\": \"any\"}, \"tools\": [{\"name\": \"count\", "
         "\"input_schema\": " COUNTER "}]",
         "content", "input", "delta.partial_json"},
    };
    StrBuf body = {0}, text = {0};
    strbuf_add(&text, "", 0);
    strbuf_printf(&body, "{%s, %s}", dialects[dialect].body, more);
    Reply r = post(port, dialects[dialect].path, body.text);
    json_t *json = json_of(&r);
    const json_t *calls = json_at(json, dialects[dialect].calls);
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *arguments = json_at(json_array_get(calls, i), dialects[dialect].arguments);
        char *dumped = json_dumps(arguments, JSON_COMPACT | JSON_ENCODE_ANY);
        strbuf_puts(&text, json_is_string(arguments) ? json_string_value(arguments) : dumped);
        free(dumped);
    }
    json_decref(json);
    reply_free(&r);
    strbuf_clear(&body);
    strbuf_printf(&body, "{%s, %s, \"stream\": true}", dialects[dialect].body, more);
    r = post(port, dialects[dialect].path, body.text);
    char *streamed = dialect ? stream_text(&r, dialects[dialect].delta) : streamed_calls(&r),
         *to = streamed;
    for (const char *at = streamed; dialect == 0; at++) { /* "count {…};" */
        at += *at == ';';
        at += strncmp(at, "count ", 6) == 0 ? 6 : 0;
        *to++ = *at;
        if (!*at)
            break;
    }
    char *one = shortened(text.text), *other = shortened(streamed);
    assert_string_equal(one, other);
    free(one);
    free(other);
    reply_free(&r);
    strbuf_free(&body);
    strbuf_free(&text);
    return streamed;
}

static int calls_in(const char *text)
{
    int n = 0;
    while ((text = strchr(text, '{'))) {
        n++;
        text++;
    }
    return n;
}

static void calls_end_at_one_that_was_there_and_at_the_most(void **state)
{
    Running r;
    int all = 0;
    serve_template(&r, HERMES);
    for (int dialect = 0; dialect < 3; dialect++)
        for (int seed = 0; seed < 30; seed++) {
            char more[100];
            snprintf(more, sizeof more, "\"seed\": %d", seed);
            char *calls = counted(r.port, dialect, more);
            for (const char *at = calls; *at; at += strcspn(at, "}") + 1) {
                char once[100];
                snprintf(once, sizeof once, "%.*s", (int)strcspn(at, "}") + 1, at);
                if (strstr(at + 1, once))
                    fail_msg("seed %d: %s is there twice in %s", seed, once, calls);
            }
            int n = calls_in(calls);
            all = n > all ? n : all;
            for (int most = 1; most <= 2; most++) {
                snprintf(more, sizeof more, "\"seed\": %d, \"max_tool_calls\": %d", seed, most);
                char *fewer = counted(r.port, dialect, more);
                assert_int_equal(calls_in(fewer), n < most ? n : most);
                assert_int_equal(strncmp(fewer, calls, strlen(fewer)), 0);
                free(fewer);
            }
            free(calls);
        }
    assert_true(all > 2);
    end_template(&r);
}

/* A model that always wants one more: the end of an answer is not drawn. */
static void calls_are_sixteen_at_most_where_nothing_is_said(void **state)
{
    Running r;
    StrBuf body = {0};
    serve_template(&r, HERMES);
    for (int said = 0; said < 2; said++) {
        strbuf_clear(&body);
        strbuf_printf(&body,
                      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], "
                      "\"max_tokens\": 8000, \"seed\": 1, \"logit_bias\": {\"2\": -100, \"5\": "
                      "-100, \"6\": -100}, "
                      "\"tool_choice\": \"required\", %s\"tools\": [{\"type\": \"function\", "
                      "\"function\": {\"name\": \"a\", \"parameters\": {\"type\": \"object\", "
                      "\"properties\": {\"n\": {\"type\": \"integer\", \"minimum\": 1000000, "
                      "\"maximum\": 9999999}}, \"required\": [\"n\"]}}}]}",
                      said ? "\"max_tool_calls\": 20, " : "");
        Reply reply = post(r.port, "/v1/chat/completions", body.text);
        json_t *json = json_of(&reply);
        const json_t *calls = json_at(json, "choices.0.message.tool_calls");
        if (json_array_size(calls) != (said ? 20 : 16))
            fail_msg("%zu calls: %s", json_array_size(calls), reply.body.text);
        json_decref(json);
        reply_free(&reply);
    }
    strbuf_free(&body);
    end_template(&r);
}

static void what_is_not_to_be_had_is_refused(void **state)
{
    Running r;
    serve_template(&r, HERMES);
    static const struct {
        const char *more, *piece;
    } cases[] = {
        {"\"tool_choice\": \"sometimes\"", "tool_choice"},
        {"\"tool_choice\": {\"type\": \"function\", \"function\": {\"name\": \"x\"}}",
         "unknown tool \\\"x"},
        {"\"response_format\": {\"type\": \"json_object\"}", "requires tool_choice none"},
        {"\"logprobs\": true", "logprobs"},
    };
    char body[2000];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(body, sizeof body, "{%s, %s}", CHAT_TOOLS, cases[i].more);
        expect_status(r.port, "/v1/chat/completions", body, 400, cases[i].piece);
    }
    snprintf(body, sizeof body, "{%s, \"tool_choice\": \"none\"}", CHAT_TOOLS);
    expect_status(r.port, "/v1/chat/completions", body, 200, "choices");
#define TOOL(name, more)                                                                           \
    "{\"max_tokens\": 2, \"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"tools\": "   \
    "[{\"type\": \"function\", \"function\": {\"name\": \"" name "\"" more "}}]}"
    expect_status(r.port, "/v1/chat/completions", TOOL("a b", ""), 400, "letters");
    expect_status(r.port, "/v1/chat/completions",
                  TOOL("a", ", \"strict\": true, \"parameters\": {\"$dynamicRef\": \"#x\"}"), 400,
                  "dynamicRef");
    expect_status(r.port, "/v1/chat/completions",
                  TOOL("a", ", \"parameters\": {\"$dynamicRef\": \"#x\"}"), 200, "choices");
    end_template(&r);
}

/* ---- answers under a schema ---- */

static void answers_are_what_their_schema_says(void **state)
{
    const Running *r = *state;
    static const struct {
        const char *path, *body, *at;
    } cases[] = {
        {"/v1/chat/completions",
         "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 200, "
         "\"response_format\": {\"type\": \"json_schema\", \"json_schema\": {\"name\": \"c\", "
         "\"strict\": true, \"schema\": " CLOCK "}}",
         "choices.0.message.content"},
        {"/v1/completions",
         "\"prompt\": \"x\", \"max_tokens\": 200, \"structured_outputs\": {\"json\": " CLOCK "}",
         "choices.0.text"},
        {"/v1/responses",
         "\"input\": \"Hi\", \"text\": {\"format\": {\"type\": \"json_schema\", \"name\": \"c\", "
         "\"schema\": " CLOCK "}}",
         "output.0.content.0.text"},
        {"/v1/messages",
         "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"max_tokens\": 200, "
         "\"output_config\": {\"format\": {\"type\": \"json_schema\", \"schema\": " CLOCK "}}",
         "content.0.text"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int seed = 0; seed < 3; seed++) {
            char body[1000];
            snprintf(body, sizeof body, "{%s, \"seed\": %d}", cases[i].body, seed);
            Reply reply = post(r->port, cases[i].path, body);
            char *text = string_at(&reply, cases[i].at);
            json_t *json = json_loads(text, 0, NULL);
            check_call("clock", json);
            json_decref(json);
            free(text);
            reply_free(&reply);
        }
    Question choice = {"/v1/completions",
                       "\"prompt\": \"x\", \"structured_outputs\": {\"choice\": [\"yes\", "
                       "\"no\"]}, \"seed\": 1",
                       "choices.0.text", "choices.0.text"};
    char *text = answer(r->port, &choice, false), *streamed = answer(r->port, &choice, true);
    assert_true(strcmp(text, "yes") == 0 || strcmp(text, "no") == 0);
    assert_string_equal(text, streamed);
    free(text);
    free(streamed);
    choice.body = "\"prompt\": \"x\", \"structured_outputs\": {\"regex\": \"[0-9]{4}-[ab]\"}";
    text = answer(r->port, &choice, false);
    assert_int_equal(strlen(text), 6);
    free(text);
    choice.body = "\"prompt\": \"x\", \"structured_outputs\": {\"grammar\": "
                  "\"root ::= \\\"<\\\" [ab]{3} \\\">\\\"\"}, \"max_tokens\": 200, "
                  "\"seed\": 1";
    text = answer(r->port, &choice, false);
    assert_int_equal(text[0], '<');
    assert_int_equal(text[strlen(text) - 1], '>');
    free(text);
    expect_status(r->port, "/v1/completions",
                  "{\"prompt\": \"x\", \"structured_outputs\": {\"regex\": \"(\"}}", 400,
                  "structured_outputs");
    expect_status(r->port, "/v1/completions",
                  "{\"prompt\": \"x\", \"structured_outputs\": {\"regex\": \"a\"}, "
                  "\"response_format\": {\"type\": \"json_object\"}}",
                  400, "both constrain");
}

static int begin(void **state)
{
    static Running running;
    const ServerOptions options = usual_options();
    cvn_err err = {0};
    if (make_models(state) || cvn_model_open(in_scratch("long"), NULL, &model, &err))
        return -1;
    start_server(&running, &options);
    *state = &running;
    return 0;
}

static cvn_model *shared;

static int keep_model(void **state)
{
    shared = model;
    return 0;
}

static int restore_model(void **state)
{
    model = shared;
    return 0;
}

static int finish(void **state)
{
    stop_server(*state);
    cvn_model_free(model);
    return remove_scratch(state);
}

#define OWN_MODEL(test) cmocka_unit_test_setup_teardown(test, keep_model, restore_model)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_what_their_schema_says),
        OWN_MODEL(calls_that_are_wanted_come_in_every_syntax),
        OWN_MODEL(calls_end_at_one_that_was_there_and_at_the_most),
        OWN_MODEL(calls_are_sixteen_at_most_where_nothing_is_said),
        OWN_MODEL(a_call_that_the_model_begins_is_one),
        OWN_MODEL(calls_and_results_reach_the_template_from_every_dialect),
        OWN_MODEL(tools_are_told_of_in_text_where_the_template_knows_none),
        OWN_MODEL(what_is_not_to_be_had_is_refused),
    };
    signal(SIGPIPE, SIG_IGN);
    server_context = 4096;
    return cmocka_run_group_tests(tests, begin, finish);
}

#else

static void there_is_nothing_without_a_server(void **state)
{
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(there_is_nothing_without_a_server)};
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}

#endif
