/* Chat formats against renderings and ids of Meta's code and of the published templates. */
#include "test_text.h"
#include "text/chat.h"

#include <sys/stat.h>

#define GOLDEN CVN_SHARED_DATA "/chat/chat-golden.jsonl"

enum { MOST_MESSAGES = 16 };

static size_t json_messages(const json_t *list, ChatMessage messages[MOST_MESSAGES])
{
    size_t n = json_array_size(list);
    assert_true(n <= MOST_MESSAGES);
    for (size_t i = 0; i < n; i++) {
        const json_t *from = json_array_get(list, i), *content = json_object_get(from, "content");
        messages[i] = (ChatMessage){
            .role = json_string_value(json_object_get(from, "role")),
            .content = json_string_value(content),
            .length = json_string_length(content),
            .tool_name = json_string_value(json_object_get(from, "tool_name")),
            .tool_arguments = json_string_value(json_object_get(from, "tool_arguments")),
        };
    }
    return n;
}

/* Encodes and compares the text, and the ids unless they are NULL. */
static void check_chat(ChatFormat format, const Tokenizer *t, const json_t *list,
                       const ChatOptions *options, const char *expected, const json_t *expected_ids)
{
    ChatMessage messages[MOST_MESSAGES];
    size_t n = json_messages(list, messages);
    cvn_err err = {0};
    TokenIds ids = {0};
    StrBuf text = {0};
    if (chat_encode(format, t, messages, n, options, &ids, &text, &err))
        fail_msg("%s", err.message);
    assert_string_equal(text.text, expected);
    bool same = !expected_ids || ids.n == json_array_size(expected_ids);
    for (size_t i = 0; same && expected_ids && i < ids.n; i++)
        same = ids.id[i] == json_integer_value(json_array_get(expected_ids, i));
    if (!same) {
        print_ids("got:", ids.id, ids.n);
        fail_msg("ids of %s differ: %s", chat_format_name(format), expected);
    }
    token_ids_free(&ids);
    strbuf_free(&text);
}

typedef struct GoldenRun {
    const Tokenizer *tokenizer;
    const char *key;
    ChatFormat format;
} GoldenRun;

static void check_golden(const json_t *line, void *arg)
{
    const GoldenRun *run = arg;
    const json_t *expected = json_object_get(line, run->key);
    ChatOptions options = {.generation_prompt = true, .tags_as_text = true};
    assert_non_null(expected);
    check_chat(run->format, run->tokenizer, json_object_get(line, "messages"), &options,
               json_string_value(json_object_get(expected, "text")),
               json_object_get(expected, "ids"));
}

static void golden(const char *tokenizer, const char *key, ChatFormat format)
{
    need_file(GOLDEN);
    GoldenRun run = {open_tokenizer(tokenizer), key, format};
    assert_int_equal(each_line(GOLDEN, check_golden, &run), 12);
    tokenizer_free((Tokenizer *)run.tokenizer);
}

static void llama2_is_exact(void **state)
{
    (void)state;
    golden(CVN_SHARED_DATA "/tokenizers/llama2/tokenizer.model", "llama2", CHAT_LLAMA2);
    golden(CVN_SHARED_DATA "/tokenizers/llama2/tokenizer.json", "llama2", CHAT_LLAMA2);
}

static void llama3_is_exact(void **state)
{
    (void)state;
    golden(CVN_SHARED_DATA "/tokenizers/llama3/tokenizer.model", "llama3_stripped", CHAT_LLAMA3);
    golden(CVN_SHARED_DATA "/tokenizers/llama3/tokenizer.model", "llama3_raw", CHAT_LLAMA3_META);
    golden(CVN_SHARED_DATA "/tokenizers/llama3/tokenizer.json", "llama3_raw", CHAT_LLAMA3_META);
}

static void thinking_is_split_however_it_is_cut(void **state)
{
    (void)state;
    static const struct {
        const char *text, *thought, *answer;
        bool inside;
    } cases[] = {
        {"\nI think.\n</think>\n\nHello", "I think.\n", "Hello", true},
        {"<think>\nI <think> so </thin </think>Hello <think>", "I <think> so </thin ",
         "Hello <think>", false},
        {"Hello </think>", "", "Hello </think>", false},
        {"no end </th", "no end </th", "", true},
        {"<<think>a</think>b", "", "<<think>a</think>b", false},
        {"a<</think>b</think>", "a<", "b</think>", true},
        {"", "", "", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n = strlen(cases[i].text);
        for (size_t cut = 0; cut <= n; cut++) {
            Thinking thinking;
            StrBuf thought = {0}, answer = {0};
            strbuf_puts(&thought, "");
            strbuf_puts(&answer, "");
            thinking_init(&thinking, cases[i].inside);
            thinking_push(&thinking, cases[i].text, cut, &thought, &answer);
            for (size_t k = cut; k < n; k++)
                thinking_push(&thinking, cases[i].text + k, 1, &thought, &answer);
            thinking_flush(&thinking, &thought, &answer);
            assert_string_equal(thought.text, cases[i].thought);
            assert_string_equal(answer.text, cases[i].answer);
            strbuf_free(&thought);
            strbuf_free(&answer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama2_is_exact),
        cmocka_unit_test(llama3_is_exact),
        cmocka_unit_test(thinking_is_split_however_it_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
