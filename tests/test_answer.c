/* Answers in parts: thoughts, what is said and calls, in the forms that templates have, however the text is cut. */
#include "test_text.h"
#include "text/answer.h"
#include "text/tokenizer.h"

#include <dirent.h>
#include <stdlib.h>

static Tokenizer *open_chat_tokenizer(void)
{
    Tokenizer *t;
    cvn_err err = {0};
    must(tokenizer_open(CVN_TEST_DATA "/chat/tokenizer.json", &t, &err), &err);
    return t;
}

static const AnswerForm *form_of(const char *name)
{
    const AnswerForm *form = answer_forms;
    while (form->name && strcmp(form->name, name) != 0)
        form++;
    return form->name ? form : NULL;
}

/* ---- forms ---- */

static void parts_are_told_apart_however_they_are_cut(void **state)
{
    static const struct {
        const char *form, *text, *thought, *said, *call;
        AnswerPart from;
    } cases[] = {
        {"think", "\nI think.\n</think>\n\nHello", "I think.\n", "Hello", "", ANSWER_THOUGHT},
        {"think", "<think>\nI <think> so </thin </think>Hello <think>", "I <think> so </thin ",
         "Hello <think>", "", ANSWER_SAID},
        {"think", "Hello </think>", "", "Hello </think>", "", ANSWER_SAID},
        {"think", "no end </th", "no end </th", "", "", ANSWER_THOUGHT},
        {"think", "<<think>a</think>b", "", "<<think>a</think>b", "", ANSWER_SAID},
        {"think", "a<</think>b</think>", "a<", "b</think>", "", ANSWER_THOUGHT},
        {"think", "", "", "", "", ANSWER_THOUGHT},
        {"think", "<think>a</think>\nLet me see. \n<c>f()", "a", "Let me see.", " \n<c>f()",
         ANSWER_SAID},
        {"think", "a \n <b> \n", "", "a \n <b> \n", "", ANSWER_SAID},
        {"think", "<think>a<c>b</think>c", "a<c>b", "c", "", ANSWER_SAID},
        {NULL, "\n<think>a <c", "", "\n<think>a <c", "", ANSWER_SAID},
        {"mistral", "[THINK]a[/THINK]b", "a", "b", "", ANSWER_SAID},
        {"gemma", "<|channel>thought\na\n<channel|>b", "a\n", "b", "", ANSWER_SAID},
        {"cohere", "a<|END_THINKING|><|START_RESPONSE|>b<|END_RESPONSE|>", "a", "b", "",
         ANSWER_THOUGHT},
        {"apriel", "a\n[BEGIN FINAL RESPONSE]\nb", "a\n", "b", "", ANSWER_THOUGHT},
        {"granite", "<think>a</think><response>b</response>", "a", "b", "", ANSWER_SAID},
        {"harmony",
         "<|channel|>analysis<|message|>hm < <|<|end|><|start|>assistant<|channel|>final<|message|>"
         "Yes.\n",
         "hm < <|", "Yes.\n", "", ANSWER_HEADER},
        {"harmony", "<|channel|>final<|message|>Yes <|st", "", "Yes <|st", "", ANSWER_HEADER},
        {"harmony", "<|channel|>fin", "", "", "", ANSWER_HEADER},
        {"harmony",
         "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>"
         "I "
         "look.<|end|><|start|>assistant<|channel|>commentary to=functions.f "
         "<|constrain|>json<|message|>{}",
         "a", "I look.", " to=functions.f|{}", ANSWER_HEADER},
        {"harmony", " to=functions.f<|channel|>commentary json<|message|>{}", "", "",
         " to=functions.f|{}", ANSWER_HEADER},
        {"recipients", " to=self<|message|>a<|eom|><|start|>assistant to=user<|message|>b", "a",
         "b", "", ANSWER_HEADER},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const AnswerForm *form = cases[i].form ? form_of(cases[i].form) : NULL;
        const bool channels = form && form->calls;
        AnswerKind kind = {.form = form,
                           .calls = {.known = true,
                                     .before = (char *)(channels ? " to=functions." : "<c>"),
                                     .between = (char *)"|",
                                     .mark = (char *)(channels ? NULL : "<c>")}};
        size_t n = strlen(cases[i].text);
        assert_true(form || !cases[i].form);
        for (size_t cut = 0; cut <= n; cut++) {
            Answer answer;
            AnswerTexts texts = {0};
            answer_init(&answer, &kind, true, NULL, NULL);
            answer.part = cases[i].from;
            answer_push(&answer, cases[i].text, cut, &texts);
            for (size_t k = cut; k < n; k++)
                answer_push(&answer, cases[i].text + k, 1, &texts);
            answer_flush(&answer, &texts);
            const char *got[] = {texts.thought.text, texts.said.text, texts.call.text},
                       *wanted[] = {cases[i].thought, cases[i].said, cases[i].call};
            for (int k = 0; k < 3; k++)
                if (strcmp(got[k] ? got[k] : "", wanted[k]) != 0)
                    fail_msg("case %zu, part %d: '%s'", i, k, got[k] ? got[k] : "");
            assert_int_equal(answer.place, n);
            answer_texts_free(&texts);
            answer_free(&answer);
        }
    }
}

/* ---- templates ---- */

#define ARGUMENTS                                                                                  \
    "{\"b\": true, \"i\": 7, \"l\": [1, 2], \"o\": {\"x\": \"y\"}, \"r\": -1.5, \"s\": \"a "       \
    "\\\"q\\\" <b>\\nit's\", \"t\": \"7\", \"u\": \"\"}"
#define PROPERTY(name, type) "\"" name "\": {\"type\": \"" type "\", \"description\": \"d\"}"
#define TOOL(name)                                                                                       \
    "{\"type\": \"function\", \"function\": {\"name\": \"" name                                          \
    "\", \"description\": \"a tool\", \"parameters\": {\"type\": \"object\", \"properties\": "           \
    "{" PROPERTY("b", "boolean") "," PROPERTY("i", "integer") "," PROPERTY("l", "array") "," PROPERTY(   \
        "o",                                                                                             \
        "object") "," PROPERTY("r",                                                                      \
                               "number") "," PROPERTY("s",                                               \
                                                      "string") "," PROPERTY("t",                        \
                                                                             "string") "," PROPERTY("u", \
                                                                                                    "string") "}, \"required\": [\"s\"]}}}"
#define TOOLS "[" TOOL("get_it") ", " TOOL("put_it") "]"

static json_t *call_of(const char *id, const char *name, const char *arguments)
{
    return json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id, "type", "function", "function", "name",
                     name, "arguments", json_loads(arguments, 0, NULL));
}

/* A conversation that ends with n calls, or before the answer. */
static bool render(const ChatTemplate *chat, const Tokenizer *t, int n, TokenIds *ids, StrBuf *text)
{
    static const struct tm then = {.tm_year = 124, .tm_mday = 1};
    json_auto_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "question");
    json_auto_t *tools = json_loads(TOOLS, 0, NULL), *calls = json_array();
    json_array_append_new(calls, call_of("call00000", "get_it", ARGUMENTS));
    if (n > 1)
        json_array_append_new(calls, call_of("call00001", "put_it", "{}"));
    if (n)
        json_array_append_new(messages, json_pack("{s:s,s:s,s:O}", "role", "assistant", "content",
                                                  "", "tool_calls", calls));
    const ChatInput input = {
        .messages = messages, .tools = tools, .generation_prompt = !n, .now = &then};
    return chat_template_encode(chat, t, &input, ids, text, NULL) == CVN_OK && text->length;
}

typedef enum Verdict { EQUAL, DIFFERS, AS_TEXT } Verdict;

/* What the template writes of calls, read back. */
static Verdict read_back(const ChatTemplate *chat, const Tokenizer *t, StrBuf *why)
{
    AnswerKind kind;
    Answer answer;
    AnswerTexts texts = {0};
    StrBuf prompt = {0}, text = {0}, rest = {0};
    TokenIds ids = {0}, unused = {0};
    Verdict verdict = AS_TEXT;
    answer_kind_learn(&kind, chat, t);
    int n = render(chat, t, 2, &unused, &text) ? 2 : 1;
    if (!kind.calls.plain && render(chat, t, 0, &ids, &prompt) &&
        (n == 2 || render(chat, t, 1, &unused, &text))) {
        size_t same = 0;
        while (same < prompt.length && prompt.text[same] == text.text[same])
            same++;
        bool whole = same == prompt.length;
        while (!whole && same && text.text[same] != '<' && text.text[same] != '[')
            same--;
        answer_init(&answer, &kind, true, t, whole ? &ids : NULL);
        answer_push(&answer, text.text + same, text.length - same, &texts);
        answer_flush(&answer, &texts);
        json_auto_t *calls = json_array(), *wanted = json_array();
        json_auto_t *tools = json_loads(TOOLS, 0, NULL);
        json_array_append_new(wanted, call_of("call00000", "get_it", ARGUMENTS));
        if (n == 2)
            json_array_append_new(wanted, call_of("call00001", "put_it", "{}"));
        calls_read(&kind.calls, tools, texts.call.length ? texts.call.text : "", calls, &rest);
        verdict = json_equal(calls, wanted) ? EQUAL : DIFFERS;
        if (verdict == DIFFERS && json_array_size(calls) == 1 && n == 2) { /* it writes the first */
            json_array_remove(wanted, 1);
            verdict =
                json_equal(calls, wanted) && !strstr(text.text + same, "put_it") ? EQUAL : DIFFERS;
        }
        char *got = json_dumps(calls, 0);
        strbuf_printf(why, "%.300s\n    said '%.200s' call '%.600s'", got,
                      texts.said.length ? texts.said.text : "",
                      texts.call.length ? texts.call.text : "");
        free(got);
        answer_free(&answer);
    }
    answer_kind_free(&kind);
    answer_texts_free(&texts);
    strbuf_free(&prompt);
    strbuf_free(&text);
    strbuf_free(&rest);
    token_ids_free(&ids);
    token_ids_free(&unused);
    return verdict;
}

static int read_folder(const char *folder, const Tokenizer *t, int count[3])
{
    struct dirent **list;
    int n = scandir(folder, &list, NULL, alphasort), seen = 0;
    for (int i = 0; i < n; i++) {
        char path[1024];
        StrBuf why = {0};
        ChatTemplate *chat = NULL;
        cvn_err err = {0};
        snprintf(path, sizeof path, "%s/%s", folder, list[i]->d_name);
        bool is = strstr(list[i]->d_name, ".jinja");
        free(list[i]);
        if (!is)
            continue;
        must(chat_template_open(t, path, &chat, &err), &err);
        Verdict verdict = read_back(chat, t, &why);
        count[verdict]++;
        seen++;
        if (verdict != EQUAL)
            print_message("%s: %s %s\n", path, verdict == DIFFERS ? "differs" : "as text",
                          why.length ? why.text : "");
        strbuf_free(&why);
        chat_template_free(chat);
    }
    if (n >= 0)
        free(list);
    return seen;
}

/* Templates of our own in the syntaxes that published ones have, and, by CARAVAN_TEMPLATES, those of a folder. */
static void calls_that_templates_write_are_read_back(void **state)
{
    Tokenizer *t = open_chat_tokenizer();
    int count[3] = {0}, found[3] = {0};
    assert_true(read_folder(CVN_TEST_DATA "/chat/templates", t, count) > 0);
    assert_int_equal(count[DIFFERS] + count[AS_TEXT], 0);
    const char *folder = getenv("CARAVAN_TEMPLATES");
    if (folder) {
        assert_true(read_folder(folder, t, found) > 0);
        print_message("%s: %d equal, %d differ, %d as text\n", folder, found[EQUAL], found[DIFFERS],
                      found[AS_TEXT]);
        assert_int_equal(found[DIFFERS], 0);
    }
    tokenizer_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_are_told_apart_however_they_are_cut),
        cmocka_unit_test(calls_that_templates_write_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
