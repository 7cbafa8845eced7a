/* Talking by the public interface alone: conversations become ids, and answers messages. */
#include "caravan/caravan.h"
#include "shell.h"

#include <jansson.h>

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
        {"[", NULL, "messages are no JSON"},
        {"{}", NULL, "'messages' is not a list"},
        {"[]", NULL, "no message"},
        {"[{\"content\": \"a\"}]", NULL, "message 0 has no \"role\""},
        {"[{\"role\": \"king\", \"content\": \"a\"}]", NULL, "'king'"},
        {"[{\"role\": \"user\", \"content\": \"a\"}]", "x", "tools are no JSON"},
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
        must(cvn_chat_read(chat, NULL, 0, ids, n, &text, &err), &err);
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
        strbuf_free(&list);
        free(text);
        free(ids);
        cvn_chat_free(chat);
        cvn_model_free(model);
    }
}

static void the_example_answers_in_a_message(void **state)
{
    cvn_model_free(open_model(""));
    expect(0,
           "$(dirname " CVN_BINARY ")/example_chat model '[{\"role\": \"user\", \"content\": "
           "\"the sea\"}]' 1",
           "{\"role\":\"assistant\",\"content\":\"");
    expect(1, "$(dirname " CVN_BINARY ")/example_chat model '[' 2>&1", "messages are no JSON");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversation_becomes_ids),
        cmocka_unit_test(what_is_no_conversation_is_refused),
        cmocka_unit_test(an_answer_becomes_a_message),
        cmocka_unit_test(the_example_answers_in_a_message),
    };
    return cmocka_run_group_tests(tests, make_models, remove_scratch);
}
