#include "text/call_syntax.h"

#include "text/answer_forms.h"
#include "text/plain_calls.h"

#include <stdlib.h>
#include <string.h>

/* What stands for names, keys and values in the conversations that templates are shown. */
static const char NAME[] = "cvn_tool_name", KEY[2][16] = {"cvn_argument", "cvn_second"};
static const char TEXT[] = "cvn_value", NUMBER[] = "41707";
static const struct tm then = {.tm_year = 124, .tm_mday = 1};

static json_t *shown_tools(void)
{
    json_t *properties = json_object();
    for (int i = 0; i < 2; i++)
        json_object_set_new(properties, KEY[i],
                            json_pack("{s:s,s:s}", "type", "integer", "description", "a value"));
    return json_pack("[{s:s,s:{s:s,s:s,s:{s:s,s:o,s:[]}}}]", "type", "function", "function", "name",
                     NAME, "description", "a tool", "parameters", "type", "object", "properties",
                     properties, "required");
}

static json_t *shown_call(int i, int n_keys, bool text)
{
    char id[16];
    json_t *arguments = json_object();
    snprintf(id, sizeof id, "call%05d", i);
    for (int k = 0; k < n_keys; k++)
        json_object_set_new(arguments, KEY[k],
                            text ? json_string(TEXT) : json_integer(atoll(NUMBER)));
    return json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id, "type", "function", "function", "name",
                     NAME, "arguments", arguments);
}

/* A conversation with n calls as the template writes it; 0 calls: up to where the answer begins. */
static bool show(const ChatTemplate *chat, const Tokenizer *tokenizer, int n, int n_keys,
                 bool as_text, StrBuf *text)
{
    json_auto_t *messages = json_pack("[{s:s,s:s}]", "role", "user", "content", "question");
    json_auto_t *tools = shown_tools(), *calls = json_array();
    for (int i = 0; i < n; i++)
        json_array_append_new(calls, shown_call(i, n_keys, as_text));
    if (n)
        json_array_append_new(messages, json_pack("{s:s,s:s,s:O}", "role", "assistant", "content",
                                                  "", "tool_calls", calls));
    const ChatInput input = {
        .messages = messages, .tools = tools, .generation_prompt = !n, .now = &then};
    SCOPED(token_ids_free) TokenIds ids = {0};
    return chat_template_encode(chat, tokenizer, &input, &ids, text, NULL) == CVN_OK &&
           text->length;
}

/* Whether the template writes what a system message says. */
static bool takes_system(const ChatTemplate *chat, const Tokenizer *tokenizer)
{
    json_auto_t *messages = json_pack("[{s:s,s:s},{s:s,s:s}]", "role", "system", "content", NAME,
                                      "role", "user", "content", "question");
    const ChatInput input = {.messages = messages, .generation_prompt = true, .now = &then};
    SCOPED(token_ids_free) TokenIds ids = {0};
    SCOPED(strbuf_free) StrBuf text = {0};
    return chat_template_encode(chat, tokenizer, &input, &ids, &text, NULL) == CVN_OK &&
           text.length && strstr(text.text, NAME);
}

/* ---- pieces of texts ---- */

static const char *skip_blanks(const char *at)
{
    return at + strspn(at, " \n");
}

static size_t common(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return n;
}

/* How much of n bytes stands in front of a tag that they break off in. */
static size_t before_tag(const char *text, size_t n)
{
    const char *open = memrchr(text, '<', n);
    return open && !memchr(open, '>', n - (size_t)(open - text)) ? (size_t)(open - text) : n;
}

static char *cut(const char *from, const char *to)
{
    return strndup(from, (size_t)(to - from));
}

/* Ends the text where the first token stands that ends an answer, from a byte on. */
static void cut_at_stop(char *from, const Tokenizer *tokenizer, const int32_t *stops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        size_t length = 0;
        const char *piece = tokenizer_piece(tokenizer, stops[i], &length);
        char *at = piece && length ? memmem(from, strlen(from), piece, length) : NULL;
        if (at)
            *at = '\0';
    }
}

/* Behind a thought of none, or its end, that the template writes in front of a call: Qwen3's "<think>\n\n</think>\n\n". */
static const char *behind_thought(const AnswerForm *form, const char *text)
{
    if (!form || form->header)
        return text;
    const size_t open = strcspn(form->open, "\n"), close = strlen(form->close);
    const char *at = skip_blanks(text);
    if (strncmp(at, form->open, open) == 0)
        at = skip_blanks(at + open + (form->open[open] == '\n'));
    return strncmp(at, form->close, close) == 0 ? skip_blanks(at + close) : text;
}

/* ---- what a template is asked ---- */

typedef struct Asked {
    const ChatTemplate *chat;
    const Tokenizer *tokenizer;
    const int32_t *stops;  /* [n_stops] */
    size_t n_stops, begin; /* where calls begin in all texts */
} Asked;

/* A text with calls, and in it the first name, and what it has of keys and values. */
typedef struct Shown {
    StrBuf text; /* owned */
    char *name;  /* behind it */
    char *key[2], *value[2];
    size_t n_key[2], n_value[2];
} Shown;

static void shown_free(Shown *shown)
{
    strbuf_free(&shown->text);
}

static bool ask(const Asked *a, int n, int n_keys, bool text, Shown *out)
{
    const char *value = text ? TEXT : NUMBER;
    if (!show(a->chat, a->tokenizer, n, n_keys, text, &out->text) || out->text.length < a->begin)
        return false;
    char *from = out->text.text + a->begin, *at = strstr(from, NAME);
    cut_at_stop(at ? at : from, a->tokenizer, a->stops, a->n_stops);
    char *first = n_keys ? strstr(from, KEY[0]) : NULL;
    for (out->name = at; at && first && at < first; at = strstr(at + 1, NAME))
        out->name = at;
    if (!out->name || (n_keys && (!first || first < out->name)))
        return false;
    at = out->name += strlen(NAME);
    for (int k = 0; k < n_keys; k++) {
        out->key[k] = strstr(at, KEY[k]);
        out->value[k] = out->key[k] ? strstr(out->key[k], value) : NULL;
        out->n_key[k] = strlen(KEY[k]);
        out->n_value[k] = strlen(value);
        if (!out->value[k])
            return false;
        at = out->value[k] + out->n_value[k];
    }
    return true;
}

static bool learn_value(const Asked *a, bool text, CallValue *v)
{
    SCOPED(shown_free) Shown one = {0}, two = {0};
    if (!ask(a, 1, 1, text, &one) || !ask(a, 1, 2, text, &two))
        return false;
    v->first = cut(one.name, one.key[0]);
    v->middle = cut(one.key[0] + one.n_key[0], one.value[0]);
    v->next = cut(two.value[0] + two.n_value[0], two.key[1]);
    v->close = strdup(one.value[0] + one.n_value[0]);
    if (!v->first || !v->middle || !v->next || !v->close || strstr(v->next, KEY[0]))
        return false;
    size_t n = before_tag(v->next, common(v->next, v->close));
    while (n && strchr(" \n", v->next[n - 1]))
        n--;
    v->end = strndup(v->next, n);
    return v->end;
}

/* Takes `tail` off the end of a text. */
static bool without(char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    if (n < m || strcmp(text + n - m, tail) != 0)
        return false;
    text[n - m] = '\0';
    return true;
}

/* Arguments that are no JSON: what stands around each. */
static bool learn_values(const Asked *a, CallSyntax *y)
{
    SCOPED(shown_free) Shown none = {0}, two = {0};
    if (!learn_value(a, true, &y->string) || !learn_value(a, false, &y->other) ||
        !ask(a, 1, 0, false, &none))
        return false;
    y->none = strdup(none.name);
    y->between = strdup("");
    const char *end = NULL, *next = NULL;
    if (ask(a, 2, 1, false, &two)) {
        end = two.value[0] + two.n_value[0];
        next = strstr(end, NAME);
    }
    size_t n = next ? before_tag(end, common(end, y->other.close)) : strlen(y->other.close);
    y->after = strdup(y->other.close + n);
    if (next && (size_t)(next - end) > n)
        y->again = cut(end + n, next);
    return y->none && y->after && without(y->other.close, y->after) &&
           without(y->string.close, y->after) && without(y->none, y->after);
}

/* Arguments as one object of JSON, which ends at `end`. */
static bool learn_object(const Asked *a, const Shown *one, const char *object, const char *end,
                         CallSyntax *y)
{
    SCOPED(shown_free) Shown two = {0};
    y->between = cut(one->name, object);
    y->after = strdup(end);
    if (ask(a, 2, 1, false, &two)) {
        const char *from = two.value[0] + two.n_value[0] + 1, *next = strstr(from, NAME);
        if (next)
            y->again = cut(from, next);
    }
    return y->between && y->after;
}

static void find_mark(CallSyntax *y)
{
    const char *from = skip_blanks(y->before);
    const size_t all = strlen(from);
    size_t n = *from == '<' ? strcspn(from, ">") + 1 : *from == '[' ? strcspn(from, "]") + 1 : 0;
    if (n > all)
        n = *from == '<' ? all : 0; /* <function=NAME */
    if (n >= 3)
        y->mark = strndup(from, n);
}

static bool learn(CallSyntax *y, Asked *a)
{
    SCOPED(strbuf_free) StrBuf prompt = {0}, text = {0};
    SCOPED(shown_free) Shown one = {0};
    const AnswerForm *form = answer_form_find(chat_template_source(a->chat));
    if (!show(a->chat, a->tokenizer, 0, 0, false, &prompt) ||
        !show(a->chat, a->tokenizer, 1, 1, false, &text))
        return false;
    const size_t same = before_tag(text.text, common(prompt.text, text.text));
    a->begin = (size_t)(behind_thought(form, text.text + same) - text.text);
    if (!ask(a, 1, 1, false, &one))
        return false;
    const char *key = one.key[0], *value = one.value[0], *end = value + one.n_value[0];
    const bool braces = key[-1] == '{', equals = value[-1] == '=';
    const bool quoted = key[-1] == '"' && key[-2] == '{' && strchr(" :", value[-1]) && *end == '}';
    y->before = cut(one.text.text + a->begin, one.name - strlen(NAME));
    y->arguments = quoted                     ? CALL_JSON
                   : braces && *end == '}'    ? CALL_BARE
                   : equals && key[-1] == '(' ? CALL_PYTHON
                                              : CALL_TAGGED;
    if (!y->before || strstr(y->before, NAME) ||
        !(quoted ? learn_object(a, &one, key - 2, end + 1, y) : learn_values(a, y)))
        return false;
    find_mark(y);
    return y->mark || *skip_blanks(y->before);
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
                        .mark = strdup(PLAIN_CALL_MARK)};
    return out->before && out->between && out->after && out->again && out->mark;
}

void call_syntax_learn(CallSyntax *y, const ChatTemplate *chat, const Tokenizer *tokenizer,
                       const int32_t *stops, size_t n_stops)
{
    Asked asked = {chat, tokenizer, stops, n_stops, 0};
    *y = (CallSyntax){0};
    y->known = chat && learn(y, &asked);
    if (!y->known) {
        call_syntax_free(y);
        y->known = plain_syntax(y);
        y->system = !chat || takes_system(chat, tokenizer);
    }
}

static void value_free(CallValue *v)
{
    free(v->first);
    free(v->middle);
    free(v->next);
    free(v->close);
    free(v->end);
}

void call_syntax_free(CallSyntax *y)
{
    free(y->before);
    free(y->between);
    free(y->after);
    free(y->again);
    free(y->none);
    free(y->mark);
    value_free(&y->string);
    value_free(&y->other);
    *y = (CallSyntax){0};
}
