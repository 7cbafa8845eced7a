/* Talking by the public interface alone: conversations become ids, and answers messages. */
#include "caravan/caravan.h"
#include "shell.h"

#include <jansson.h>
#include <math.h>

/* A model whose template is this, or none of its own. */
static cvn_model *open_model(const char *template)
{
    char path[256], line[1024];
    int status;
    cvn_model *model;
    cvn_err err = {0};
    snprintf(line, sizeof line, "rm -f model/chat_template.jinja; printf '%%s' \"%s\" %s", template,
             *template ? ">model/chat_template.jinja" : "");
    StrBuf out = shell(line, &status);
    assert_int_equal(status, 0);
    strbuf_free(&out);
    snprintf(path, sizeof path, "%s/model", scratch);
    must(cvn_model_open(path, NULL, &model, &err), &err);
    return model;
}

static void expect_ids(const cvn_model *model, const cvn_chat *chat, const cvn_chat_input *input,
                       const char *text)
{
    int32_t *ids, *expected;
    int64_t n, m;
    cvn_err err = {0};
    must(cvn_chat_encode(chat, input, &ids, &n, &err), &err);
    must(cvn_model_encode(model, text, strlen(text), CVN_ENCODE_SPECIAL, &expected, &m, &err),
         &err);
    assert_int_equal(n, m);
    assert_int_equal(ids[0], cvn_model_bos(model));
    assert_true(cvn_model_eos(model) >= 0 && cvn_model_eos(model) < cvn_model_vocab(model));
    assert_memory_equal(ids, expected, (size_t)n * sizeof *ids);
    free(ids);
    free(expected);
}

static void a_conversation_becomes_ids(void **state)
{
    cvn_model *model = open_model("");
    cvn_chat *chat;
    cvn_err err = {0};
    int64_t n;
    must(cvn_chat_new(model, NULL, &chat, &err), &err);
    cvn_chat_input input = {.messages = "[{\"role\": \"user\", \"content\": \"Hi\"}]"};
    expect_ids(model, chat, &input,
               "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n");
    input.complete = true;
    expect_ids(model, chat, &input,
               "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>");
    input = (cvn_chat_input){.messages = "[{\"role\": \"user\", \"content\": \"Hi\"}, {\"role\": "
                                         "\"assistant\", \"content\": \"Good\"}]",
                             .go_on = true};
    expect_ids(model, chat, &input,
               "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\nGood");
    assert_non_null(cvn_chat_ends(chat, &n));
    assert_int_equal(n, 2);
    cvn_chat_free(chat);
    assert_int_not_equal(cvn_chat_new(model, "nosuch", &chat, &err), CVN_OK);
    assert_null(chat);
    cvn_model_free(model);
}

static void what_is_no_conversation_is_refused(void **state)
{
    static const struct {
        const char *messages, *tools, *says;
    } cases[] = {
        {NULL, NULL, "no messages"},
        {"[", NULL, "messages is not valid JSON"},
        {"{}", NULL, "'messages' is not a list"},
        {"[]", NULL, "no message"},
        {"[{\"content\": \"a\"}]", NULL, "message 0 has no \"role\""},
        {"[{\"role\": \"king\", \"content\": \"a\"}]", NULL, "'king'"},
        {"[{\"role\": \"user\", \"content\": \"a\"}]", "x", "tools is not valid JSON"},
    };
    cvn_model *model = open_model("");
    cvn_chat *chat;
    cvn_err err = {0};
    must(cvn_chat_new(model, NULL, &chat, &err), &err);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const cvn_chat_input input = {.messages = cases[i].messages, .tools = cases[i].tools};
        int32_t *ids;
        int64_t n;
        err = (cvn_err){0};
        assert_int_not_equal(cvn_chat_encode(chat, &input, &ids, &n, &err), CVN_OK);
        assert_null(ids);
        if (!strstr(err.message, cases[i].says))
            fail_msg("case %zu: %s", i, err.message);
    }
    cvn_chat_free(chat);
    cvn_model_free(model);
}

/* Calls as JSON between tags, and with the name in a tag. */
#define CALLS(each)                                                                                \
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}" each                       \
    "{% endfor %}<|eot_id|>{% endfor %}"
#define TAGGED CALLS("<call>{{ c.function | tojson }}</call>")
#define NAMED CALLS("<f={{ c.function.name }}>{{ c.function.arguments | tojson }}</f>")
#define THINKS "{% for m in messages %}{{ m.content.split('</think>')[-1] }}<|eot_id|>{% endfor %}"

/* What deltas say together is the message's content, or that of its thoughts, and no call is among them. */
static void expect_deltas(const cvn_chat *chat, const int32_t *ids, int64_t n, const char *expected)
{
    cvn_answer *answer;
    cvn_err err = {0};
    StrBuf said = {0}, thought = {0};
    char *text, *message;
    must(cvn_answer_new(chat, NULL, 0, NULL, &answer, &err), &err);
    strbuf_puts(&said, "");
    for (int64_t i = 0; i <= n; i++) {
        if (i < n)
            must(cvn_answer_push(answer, &ids[i], 1, &text, &err), &err);
        else
            must(cvn_answer_end(answer, &text, &message, &err), &err);
        json_auto_t *delta = json_loads(text, 0, NULL);
        const char *content = json_string_value(json_object_get(delta, "content")),
                   *thinks = json_string_value(json_object_get(delta, "reasoning_content"));
        strbuf_puts(&said, content ? content : "");
        strbuf_puts(&thought, thinks ? thinks : "");
        free(text);
    }
    assert_string_equal(message, expected);
    json_auto_t *whole = json_loads(message, 0, NULL);
    const char *thinks = json_string_value(json_object_get(whole, "reasoning_content"));
    assert_string_equal(said.text, json_string_value(json_object_get(whole, "content")));
    assert_string_equal(thought.text, thinks ? thinks : "");
    free(message);
    strbuf_free(&said);
    strbuf_free(&thought);
    cvn_answer_free(answer);
}

static void an_answer_becomes_a_message(void **state)
{
    static const struct {
        const char *template, *answer, *content, *thought, *calls; /* calls: name and arguments */
    } cases[] = {
        {"", "Hello!<|eot_id|>", "Hello!", NULL, ""},
        {"", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", "", NULL,
         "f{\"a\":1} "},
        {"",
         "Let me see.\n<tool_call>{\"arguments\":{},\"name\":\"g\"}</tool_call>\n<tool_call>\n"
         "{\"name\": \"f\", \"arguments\": {\"a\": 2}}\n</tool_call><|eot_id|>",
         "Let me see.", NULL, "g{} f{\"a\":2} "},
        {"", "<tool_call>\n{\"name\": \"f\", \"argum", "<tool_call>\n{\"name\": \"f\", \"argum",
         NULL, ""},
        {TAGGED, "a <call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</call>b", "a b", NULL,
         "f{\"a\":1} "},
        {TAGGED,
         "<call>[{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g\", \"arguments\": "
         "{}}]</call>",
         "", NULL, "f{} g{} "},
        {NAMED, "<f=g>{\"a\": [1, {}]}</f><f=h>{}</f>", "", NULL, "g{\"a\":[1,{}]} h{} "},
        {NAMED, "<f=g>{\"a\": ", "<f=g>{\"a\": ", NULL, ""},
        {"", "1 < 2 <tool", "1 < 2 <tool", NULL, ""},
        {"", "end \n\n<|eot_id|>", "end \n\n", NULL, ""},
        {THINKS, "<think>\nhm\n</think>\n\nyes<|eot_id|>", "yes", "hm\n", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_model *model = open_model(cases[i].template);
        cvn_chat *chat;
        cvn_err err = {0};
        int32_t *ids;
        int64_t n;
        char *text;
        must(cvn_chat_new(model, NULL, &chat, &err), &err);
        must(cvn_model_encode(model, cases[i].answer, strlen(cases[i].answer), CVN_ENCODE_SPECIAL,
                              &ids, &n, &err),
             &err);
        must(cvn_chat_read(chat, NULL, 0, NULL, ids, n, &text, &err), &err);
        json_auto_t *message = json_loads(text, 0, NULL);
        const json_t *thought = json_object_get(message, "reasoning_content"),
                     *calls = json_object_get(message, "tool_calls");
        StrBuf list = {0};
        strbuf_puts(&list, "");
        for (size_t k = 0; k < json_array_size(calls); k++) {
            const json_t *f = json_object_get(json_array_get(calls, k), "function");
            char *arguments = json_dumps(json_object_get(f, "arguments"), JSON_COMPACT);
            strbuf_printf(&list, "%s%s ", json_string_value(json_object_get(f, "name")), arguments);
            free(arguments);
        }
        const char *content = json_string_value(json_object_get(message, "content"));
        if (strcmp(content, cases[i].content) != 0 || strcmp(list.text, cases[i].calls) != 0)
            fail_msg("case %zu: %s", i, text);
        assert_true(!thought == !cases[i].thought);
        if (thought)
            assert_string_equal(json_string_value(thought), cases[i].thought);
        expect_deltas(chat, ids, n, text);
        strbuf_free(&list);
        free(text);
        free(ids);
        cvn_chat_free(chat);
        cvn_model_free(model);
    }
}

/* Pushes the ids of a text, and an end token: what a phase of calls generates. */
static void push_text(const cvn_model *model, const cvn_chat *chat, cvn_calls *calls,
                      const char *text, bool end)
{
    int32_t *ids;
    int64_t n, n_ends;
    cvn_err err = {0};
    must(cvn_model_encode(model, text, strlen(text), CVN_ENCODE_SPECIAL, &ids, &n, &err), &err);
    bool more = true;
    for (int64_t i = 0; i < n && more; i++)
        more = cvn_calls_push(calls, ids[i]);
    if (end)
        assert_false(cvn_calls_push(calls, cvn_chat_ends(chat, &n_ends)[0]));
    free(ids);
}

/* The prompt of the next request is this text, after the model's beginning. */
static void expect_next(const cvn_model *model, cvn_calls *calls, cvn_request *request,
                        const char *text)
{
    cvn_err err = {0};
    assert_true(cvn_calls_next(calls, request));
    StrBuf got = {0};
    cvn_decoder *decoder;
    const char *piece;
    size_t length;
    must(cvn_decoder_new(model, CVN_DECODE_SPECIAL, &decoder, &err), &err);
    must(cvn_decoder_push(decoder, request->prompt, request->n_prompt, true, &piece, &length, &err),
         &err);
    strbuf_add(&got, piece, length);
    if (!strstr(got.text, text) || strcmp(strstr(got.text, text), text) != 0)
        fail_msg("'%s' does not end with '%s'", got.text, text);
    cvn_decoder_free(decoder);
    strbuf_free(&got);
}

#define TOOLS                                                                                      \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"properties\": "  \
    "{\"a\": {\"type\": \"integer\"}}}}}, {\"type\": \"function\", \"function\": {\"name\": "      \
    "\"g\"}}]"

/* What stands around names and arguments is given, in requests that go on where the one before ended; a call that equals an
   earlier one ends the answer, and one that is cut short is not in the message. */
static void calls_are_made_in_phases(void **state)
{
    cvn_model *model = open_model(TAGGED);
    cvn_chat *chat;
    cvn_calls *calls;
    cvn_err err = {0};
    int64_t n;
    char *message;
    must(cvn_chat_new(model, NULL, &chat, &err), &err);
    cvn_calls_options options = {.tools = TOOLS};
    cvn_request request = {.max_tokens = 500};
    must(cvn_calls_new(chat, &options, (int32_t[]){1, 2}, 2, &calls, &err), &err);
    expect_next(model, calls, &request, "<call>{\"name\": \"");
    assert_non_null(request.constraint);
    assert_int_equal(request.prompt[0], 1);
    assert_int_equal(request.prompt[1], 2);
    push_text(model, chat, calls, "f", true);
    expect_next(model, calls, &request, "<call>{\"name\": \"f\", \"arguments\": ");
    push_text(model, chat, calls, "{\"a\":1}", true);
    expect_next(model, calls, &request, "\"arguments\": {\"a\":1}}</call>");
    push_text(model, chat, calls, "<call>{\"name\": \"", true);
    expect_next(model, calls, &request, "{\"a\":1}}</call><call>{\"name\": \"");
    push_text(model, chat, calls, "f", true);
    assert_true(cvn_calls_next(calls, &request));
    push_text(model, chat, calls, "{\"a\":1}", true);
    assert_false(cvn_calls_next(calls, &request));
    const int32_t *tokens = cvn_calls_tokens(calls, &n);
    assert_true(n > 500 - request.max_tokens && tokens[0] == request.prompt[2]);
    must(cvn_calls_message(calls, &message, &err), &err);
    json_auto_t *made = json_loads(message, 0, NULL);
    const json_t *list = json_object_get(made, "tool_calls");
    assert_int_equal(json_array_size(list), 1);
    const json_t *f = json_object_get(json_array_get(list, 0), "function");
    assert_string_equal(json_string_value(json_object_get(f, "name")), "f");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(f, "arguments"), "a")), 1);
    free(message);
    cvn_calls_free(calls);
    /* A tool by its name is called once, and its name is given. */
    options.name = "g";
    request = (cvn_request){.max_tokens = 500};
    must(cvn_calls_new(chat, &options, (int32_t[]){1}, 1, &calls, &err), &err);
    expect_next(model, calls, &request, "<call>{\"name\": \"g\", \"arguments\": ");
    push_text(model, chat, calls, "{}", true);
    assert_false(cvn_calls_next(calls, &request));
    cvn_calls_free(calls);
    /* Cut short. */
    request = (cvn_request){.max_tokens = 500};
    must(cvn_calls_new(chat, &options, (int32_t[]){1}, 1, &calls, &err), &err);
    assert_true(cvn_calls_next(calls, &request));
    push_text(model, chat, calls, "{\"x", false);
    must(cvn_calls_message(calls, &message, &err), &err);
    assert_string_equal(message, "{\"role\":\"assistant\",\"content\":\"\"}");
    free(message);
    cvn_calls_free(calls);
    request.max_tokens = 1; /* what is given takes more */
    must(cvn_calls_new(chat, &options, (int32_t[]){1}, 1, &calls, &err), &err);
    assert_false(cvn_calls_next(calls, &request));
    cvn_calls_free(calls);
    static const struct {
        cvn_calls_options options;
        const char *says;
    } refused[] = {
        {{.tools = TOOLS, .name = "h"}, "unknown tool \"h\""},
        {{.tools = NULL}, "1 to 256 tools"},
        {{.tools = "[]"}, "1 to 256 tools"},
        {{.tools = "[{}]"}, "tool 0 is not"},
        {{.tools = "{"}, "tools is not valid JSON"},
        {{.tools = TOOLS, .most = -1}, "give 1 to 256"},
        {{.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"a b\"}}]"},
         "a tool name must"},
        {{.tools = "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": true, "
                   "\"parameters\": {\"type\": \"nothing\"}}}]"},
         "the parameters of the tool \"f\""},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        err = (cvn_err){0};
        assert_int_not_equal(cvn_calls_new(chat, &refused[i].options, NULL, 0, &calls, &err),
                             CVN_OK);
        assert_null(calls);
        if (!strstr(err.message, refused[i].says))
            fail_msg("case %zu: %s", i, err.message);
    }
    cvn_chat_free(chat);
    cvn_model_free(model);
}

/* Calls of a model that thinks begin when it has thought. */
static void calls_begin_when_thoughts_end(void **state)
{
    cvn_model *model =
        open_model("{% for m in messages %}{{ m.content.split('</think>')[-1] }}{% for c in "
                   "m.tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor "
                   "%}<|eot_id|>{% endfor %}");
    cvn_chat *chat;
    cvn_calls *calls;
    cvn_err err = {0};
    int32_t *ids;
    int64_t n;
    char *message;
    must(cvn_chat_new(model, NULL, &chat, &err), &err);
    must(cvn_model_encode(model, "<think>\n", 8, CVN_ENCODE_SPECIAL, &ids, &n, &err), &err);
    const cvn_calls_options options = {.tools = TOOLS, .name = "g"};
    cvn_request request = {.max_tokens = 500};
    must(cvn_calls_new(chat, &options, ids, n, &calls, &err), &err);
    assert_true(cvn_calls_next(calls, &request));
    assert_null(request.constraint);
    assert_int_equal(request.n_prompt, n);
    push_text(model, chat, calls, "hm</think>\nmore", false);
    assert_true(cvn_calls_next(calls, &request));
    assert_non_null(request.constraint);
    push_text(model, chat, calls, "{}", true);
    assert_false(cvn_calls_next(calls, &request));
    must(cvn_calls_message(calls, &message, &err), &err);
    assert_non_null(strstr(message, "\"reasoning_content\":\"hm\",\"tool_calls\":[{"));
    free(message);
    cvn_calls_free(calls);
    /* It ends without. */
    must(cvn_calls_new(chat, &options, ids, n, &calls, &err), &err);
    assert_true(cvn_calls_next(calls, &request));
    push_text(model, chat, calls, "hm", true);
    assert_false(cvn_calls_next(calls, &request));
    cvn_calls_free(calls);
    free(ids);
    cvn_chat_free(chat);
    cvn_model_free(model);
}

static void text_comes_id_by_id_as_at_once(void **state)
{
    static const char text[] = "caf\u00e9 \u4f60\u597d \xf0\x9f\x98\x80 <|eot_id|>!";
    cvn_model *model = open_model("");
    cvn_decoder *decoder;
    cvn_err err = {0};
    int32_t *ids;
    int64_t n;
    size_t length;
    must(cvn_model_encode(model, text, sizeof text - 1, CVN_ENCODE_SPECIAL, &ids, &n, &err), &err);
    for (unsigned flags = 0; flags < 4; flags++) {
        StrBuf all = {0};
        const char *piece;
        must(cvn_decoder_new(model, flags, &decoder, &err), &err);
        for (int64_t i = 0; i < n; i++) {
            must(cvn_decoder_push(decoder, &ids[i], 1, i == n - 1, &piece, &length, &err), &err);
            assert_true(length == 0 || (piece[0] & 0xC0) != 0x80); /* no half character */
            strbuf_add(&all, piece, length);
        }
        if (flags & CVN_DECODE_SPECIAL)
            assert_string_equal(all.text, text);
        else
            assert_null(strstr(all.text, "eot"));
        strbuf_free(&all);
        cvn_decoder_free(decoder);
    }
    must(cvn_decoder_new(model, 0, &decoder, &err), &err);
    assert_int_equal(
        cvn_decoder_push(decoder, &(int32_t){-1}, 1, true, &(const char *){NULL}, &length, &err),
        CVN_EINVAL);
    cvn_decoder_free(decoder);
    free(ids);
    cvn_model_free(model);
}

static void a_token_is_as_likely_as_its_logit_says(void **state)
{
    const float logits[] = {1, 3, 3, -INFINITY, 0};
    const double sum = log(exp(1) + 2 * exp(3) + exp(0));
    cvn_logprob top[8];
    float logprob;
    int rank;
    assert_int_equal(cvn_logprobs(logits, 5, 0, &logprob, &rank, top, 8), 5);
    assert_float_equal(logprob, (float)(1 - sum), 1e-6);
    assert_int_equal(rank, 3);
    const int32_t order[] = {1, 2, 0, 4, 3};
    for (int i = 0; i < 5; i++)
        assert_int_equal(top[i].token, order[i]);
    assert_float_equal(top[1].logprob, (float)(3 - sum), 1e-6);
    assert_int_equal(cvn_logprobs(logits, 5, 2, &logprob, NULL, NULL, 0), 0);
    assert_float_equal(logprob, (float)(3 - sum), 1e-6);
}

static void a_model_is_found_by_its_name(void **state)
{
    char *path, folder[256];
    cvn_err err = {0};
    cvn_model_free(open_model(""));
    snprintf(folder, sizeof folder, "%s/model", scratch);
    must(cvn_model_find(folder, &path, &err), &err);
    assert_string_equal(path, folder);
    free(path);
    setenv("CARAVAN_MODELS", scratch, 1);
    must(cvn_model_find("model", &path, &err), &err);
    assert_string_equal(path, folder);
    free(path);
    unsetenv("CARAVAN_MODELS");
    assert_int_equal(cvn_model_find("some/model", &path, &err), CVN_EIO);
    assert_null(path);
    assert_non_null(strstr(err.message, "caravan pull some/model"));
}

static void the_example_answers_in_a_message(void **state)
{
    cvn_model_free(open_model(""));
    expect(0,
           "$(dirname " CVN_BINARY ")/example_chat model '[{\"role\": \"user\", \"content\": "
           "\"the sea\"}]' 1",
           "{\"role\":\"assistant\",\"content\":\"");
    expect(1, "$(dirname " CVN_BINARY ")/example_chat model '[' 2>&1",
           "messages is not valid JSON");
}

#define TYPED_TOOLS                                                                                \
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": {\"type\": "        \
    "\"object\", "                                                                                 \
    "\"properties\": {\"s\": {\"type\": \"string\"}, \"n\": {\"type\": \"integer\"}, \"b\": "      \
    "{\"type\": "                                                                                  \
    "\"boolean\"}}, \"required\": [\"s\"]}}}]"

/* Arguments between marks are made one by one: those that must come are given, others are a choice; a string ends by its mark. */
static void arguments_between_marks_are_made_in_phases(void **state)
{
    cvn_model *model = open_model(CALLS("<f={{ c.function.name }}>{% for k, v in "
                                        "c.function.arguments.items() %}<p={{ k }}>{{ v }}</p>{% "
                                        "endfor %}</f>"));
    cvn_chat *chat;
    cvn_calls *calls;
    cvn_err err = {0};
    char *text;
    const int32_t prompt[] = {1};
    cvn_request request = {.max_tokens = 100};
    const cvn_calls_options options = {.tools = TYPED_TOOLS, .most = 1};
    must(cvn_chat_new(model, NULL, &chat, &err), &err);
    must(cvn_calls_new(chat, &options, prompt, 1, &calls, &err), &err);
    expect_next(model, calls, &request, "<f=f><p=s>");
    push_text(model, chat, calls, "a < \"b\"\n7</p>", true);
    expect_next(model, calls, &request, "<f=f><p=s>a < \"b\"\n7</p>");
    push_text(model, chat, calls, "<p=b>", true);
    expect_next(model, calls, &request, "</p><p=b>");
    push_text(model, chat, calls, "true", true);
    expect_next(model, calls, &request, "<p=b>true");
    push_text(model, chat, calls, "</p></f>", true);
    assert_false(cvn_calls_next(calls, &request));
    must(cvn_calls_message(calls, &text, &err), &err);
    json_auto_t *message = json_loads(text, 0, NULL);
    json_auto_t *wanted = json_pack("{s:s,s:b}", "s", "a < \"b\"\n7", "b", 1);
    const json_t *call = json_array_get(json_object_get(message, "tool_calls"), 0);
    if (!json_equal(json_object_get(json_object_get(call, "function"), "arguments"), wanted))
        fail_msg("%s", text);
    free(text);
    cvn_calls_free(calls);
    cvn_chat_free(chat);
    cvn_model_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_becomes_ids),
        cmocka_unit_test(what_is_no_conversation_is_refused),
        cmocka_unit_test(an_answer_becomes_a_message),
        cmocka_unit_test(calls_are_made_in_phases),
        cmocka_unit_test(arguments_between_marks_are_made_in_phases),
        cmocka_unit_test(calls_begin_when_thoughts_end),
        cmocka_unit_test(text_comes_id_by_id_as_at_once),
        cmocka_unit_test(a_token_is_as_likely_as_its_logit_says),
        cmocka_unit_test(a_model_is_found_by_its_name),
        cmocka_unit_test(the_example_answers_in_a_message),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
