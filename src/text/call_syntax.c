#include "text/call_syntax.h"

#include "text/plain_calls.h"

#include <stdlib.h>
#include <string.h>

static const char NAME[] = "cvn_tool_name", ARGUMENT[] = "cvn_argument";
static const struct tm then = {.tm_year = 124, .tm_mday = 1};

/* A conversation with n calls as the template writes it; 0 calls: up to where the answer begins. */
static bool show(const ChatTemplate *chat, const Tokenizer *tokenizer, int n, StrBuf *text)
{
    json_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "question");
    json_t *tools = json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:{s:{s:s}}}}}]", "type", "function",
                              "function", "name", NAME, "description", "a tool", "parameters",
                              "type", "object", "properties", ARGUMENT, "type", "integer");
    json_t *calls = json_array();
    for (int i = 0; i < n; i++) {
        char id[16];
        snprintf(id, sizeof id, "call%05d", i);
        json_array_append_new(calls,
                              json_pack("{s:s,s:s,s:{s:s,s:{s:i}}}", "id", id, "type", "function",
                                        "function", "name", NAME, "arguments", ARGUMENT, 1));
    }
    if (n)
        json_array_append_new(messages, json_pack("{s:s,s:s,s:O}", "role", "assistant", "content",
                                                  "", "tool_calls", calls));
    const ChatInput input = {
        .messages = messages, .tools = tools, .generation_prompt = !n, .now = &then};
    TokenIds ids = {0};
    int code = chat_template_encode(chat, tokenizer, &input, &ids, text, NULL);
    token_ids_free(&ids);
    json_decref(messages);
    json_decref(tools);
    json_decref(calls);
    return code == CVN_OK && text->length;
}

/* Whether the template writes what a system message says. */
static bool takes_system(const ChatTemplate *chat, const Tokenizer *tokenizer)
{
    json_t *messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", NAME, "role",
                                 "user", "content", "question");
    const ChatInput input = {.messages = messages, .generation_prompt = true, .now = &then};
    TokenIds ids = {0};
    StrBuf text = {0};
    int code = chat_template_encode(chat, tokenizer, &input, &ids, &text, NULL);
    bool takes = code == CVN_OK && text.length && strstr(text.text, NAME);
    token_ids_free(&ids);
    strbuf_free(&text);
    json_decref(messages);
    return takes;
}

/* How many bytes of what stands in front of a call are a thought that the template writes of none: Qwen3's "<think>\n\n</think>\n\n". */
static size_t empty_thought(const char *text)
{
    static const char open[] = "<think>", close[] = "</think>";
    const char *at = text + strspn(text, " \n");
    if (strncmp(at, open, strlen(open)) != 0)
        return 0;
    at += strlen(open);
    at += strspn(at, " \n");
    if (strncmp(at, close, strlen(close)) != 0)
        return 0;
    at += strlen(close);
    return (size_t)(at - text) + strspn(at, " \n");
}

static char *find_in(const char *text, const char *piece)
{
    return text ? strstr(text, piece) : NULL;
}

static char *find_arguments(const char *text, size_t *n)
{
    static const char *const forms[] = {"{\"cvn_argument\": 1}", "{\"cvn_argument\":1}"};
    for (size_t i = 0; i < 2; i++) {
        char *at = find_in(text, forms[i]);
        *n = strlen(forms[i]);
        if (at)
            return at;
    }
    return NULL;
}

/* Ends the text where the first token stands that ends an answer. */
static void cut_at_stop(char *text, const Tokenizer *tokenizer, const int32_t *stops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        const char *piece = tokenizer_piece(tokenizer, stops[i], &length);
        char *at = piece && length ? memmem(text, strlen(text), piece, length) : NULL;
        if (at)
            *at = '\0';
    }
}

static void find_mark(CallSyntax *y, const Tokenizer *tokenizer)
{
    const char *from = y->before + strspn(y->before, " \n");
    size_t n = *from == '<' ? strcspn(from, ">") + 1 : *from == '[' ? strcspn(from, "]") + 1 : 0;
    if (n < 3 || n > strlen(from))
        return;
    y->mark = strndup(from, n);
    y->mark_token = y->mark ? tokenizer_special(tokenizer, y->mark) : -1;
}

/* The syntax of calls for models whose templates write none. False: no memory. */
static bool plain_syntax(CallSyntax *out)
{
    *out = (CallSyntax){.known = true,
                        .plain = true,
                        .before = strdup(PLAIN_CALL_BEGIN),
                        .between = strdup(PLAIN_CALL_MIDDLE),
                        .after = strdup(PLAIN_CALL_END),
                        .again = strdup(PLAIN_CALL_END "\n" PLAIN_CALL_BEGIN),
                        .mark = strdup(PLAIN_CALL_MARK),
                        .mark_token = -1};
    return out->before && out->between && out->after && out->again && out->mark;
}

void call_syntax_learn(CallSyntax *y, const ChatTemplate *chat, const Tokenizer *tokenizer,
                       const int32_t *stops, size_t n_stops)
{
    StrBuf prompt = {0}, one = {0}, two = {0};
    *y = (CallSyntax){.mark_token = -1};
    bool shown = chat && show(chat, tokenizer, 0, &prompt) && show(chat, tokenizer, 1, &one);
    size_t common = 0, n;
    while (shown && common < prompt.length && prompt.text[common] == one.text[common])
        common++;
    char *name = shown ? find_in(one.text + common, NAME) : NULL;
    char *arguments = name ? find_arguments(name, &n) : NULL;
    if (arguments) {
        const char *between = name + strlen(NAME);
        common += empty_thought(one.text + common);
        y->before = strndup(one.text + common, (size_t)(name - one.text) - common);
        y->between = strndup(between, (size_t)(arguments - between));
        y->after = strdup(arguments + n);
        y->known = y->before && y->between && y->after;
    }
    if (y->known) {
        cut_at_stop(y->after, tokenizer, stops, n_stops);
        find_mark(y, tokenizer);
    }
    if (y->known && show(chat, tokenizer, 2, &two)) {
        const char *first = find_arguments(two.text + common, &n);
        const char *next = first ? find_in(first, NAME) : NULL;
        if (next)
            y->again = strndup(first + n, (size_t)(next - first) - n);
    }
    if (!y->known) {
        call_syntax_free(y);
        y->known = plain_syntax(y);
        y->system = !chat || takes_system(chat, tokenizer);
    }
    strbuf_free(&prompt);
    strbuf_free(&one);
    strbuf_free(&two);
}

void call_syntax_free(CallSyntax *y)
{
    free(y->before);
    free(y->between);
    free(y->after);
    free(y->again);
    free(y->mark);
    *y = (CallSyntax){0};
}
