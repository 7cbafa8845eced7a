/* The phases of tool calls (call_writer.h). */
#include "serve/call_writer.h"

#include "base/err.h"
#include "text/bytes_json.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

int call_writer_init(CallWriter *w, const ToolSet *set, const CallSyntax *syntax,
                     const Tokenizer *tokenizer, int most, cvn_err *err)
{
    *w = (CallWriter){.set = set,
                      .syntax = syntax,
                      .tokenizer = tokenizer,
                      .call = calloc((size_t)most, sizeof *w->call),
                      .most = most};
    return w->call ? CVN_OK : err_set(err, CVN_EMEM, "no memory for tool calls");
}

void call_writer_free(CallWriter *w)
{
    for (int i = 0; i < w->n; i++)
        strbuf_free(&w->call[i].arguments);
    strbuf_free(&w->picked);
    cvn_constraint_free(w->made);
    free(w->call);
}

void call_writer_give(const CallWriter *w, const char *text, size_t n, TokenIds *tokens)
{
    tokenizer_encode(w->tokenizer, text, n, TOKENIZER_SPECIAL, tokens, NULL);
}

static void begin_phase(CallWriter *w, CallPhase phase)
{
    w->phase = phase;
    w->end = NULL;
    w->known = 0;
    strbuf_clear(&w->picked);
    decoder_init(&w->decoder, w->tokenizer, TOKENIZER_CONTINUE);
}

/* ---- arguments that are not one object of JSON ---- */

static StrBuf *arguments_of(CallWriter *w)
{
    return &w->call[w->n - 1].arguments;
}

static const json_t *parameters_of(const CallWriter *w)
{
    return w->call[w->n - 1].tool->parameters;
}

/* Argument number k, and its schema; NULL: there is none. */
static const char *argument_at(const CallWriter *w, int k, const json_t **schema)
{
    json_t *all = json_object_get(parameters_of(w), "properties");
    void *at = json_object_iter(all);
    for (; at && k > 0; k--)
        at = json_object_iter_next(all, at);
    *schema = at ? json_object_iter_value(at) : NULL;
    return at ? json_object_iter_key(at) : NULL;
}

static bool is_required(const CallWriter *w, const char *name)
{
    const json_t *list = json_object_get(parameters_of(w), "required");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *one = json_string_value(json_array_get(list, i));
        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

static bool is_type(const json_t *schema, const char *type)
{
    const char *has = json_string_value(json_object_get(schema, "type"));
    return has && strcmp(has, type) == 0;
}

/* What stands around argument k. Python's strings are written as those of JSON. */
static const CallValue *around(const CallWriter *w, int k)
{
    const CallSyntax *y = w->syntax;
    const json_t *schema;
    return argument_at(w, k, &schema) && is_type(schema, "string") && y->arguments != CALL_PYTHON &&
                   *y->string.end
               ? &y->string
               : &y->other;
}

/* What may follow the last argument: number k, or, where that is -1, no more. The mark that ended a string is there already. */
static void put_choice(const CallWriter *w, int k, StrBuf *out)
{
    const CallSyntax *y = w->syntax;
    const CallValue *last = w->key < 0 ? NULL : around(w, w->key);
    const size_t there = last == &y->string ? strlen(last->end) : 0;
    const json_t *schema;
    strbuf_clear(out);
    if (k < 0) {
        strbuf_puts(out, last ? last->close + there : y->none);
        return;
    }
    strbuf_puts(out, last ? last->next + there : around(w, k)->first);
    strbuf_puts(out, argument_at(w, k, &schema));
    strbuf_puts(out, around(w, k)->middle);
}

/* The arguments that may follow: numbers from w->key + 1 to *last, and whether there may be none. */
static bool next_arguments(const CallWriter *w, int *last)
{
    const json_t *schema;
    const char *name;
    for (*last = w->key; (name = argument_at(w, *last + 1, &schema));) {
        ++*last;
        if (is_required(w, name))
            return false;
    }
    return true;
}

/* Which of the choices the text is, of which number k is that of an argument; -1: the end. */
static int picked_key(const CallWriter *w)
{
    SCOPED(strbuf_free) StrBuf choice = {0};
    int last, k;
    next_arguments(w, &last);
    for (k = w->key + 1; k <= last; k++) {
        put_choice(w, k, &choice);
        if (w->picked.length == choice.length &&
            memcmp(w->picked.text, choice.text, choice.length) == 0)
            return k;
    }
    return -1;
}

/* A schema within the tool's parameters, with what its references lead to. */
static json_t *whole_schema(const CallWriter *w, const json_t *schema)
{
    static const char *const held[] = {"$defs", "definitions"};
    json_t *whole = json_copy((json_t *)(uintptr_t)schema);
    for (size_t i = 0; i < sizeof held / sizeof *held && json_is_object(whole); i++) {
        json_t *of = json_object_get(parameters_of(w), held[i]);
        if (of && !json_object_get(whole, held[i]))
            json_object_set(whole, held[i], of);
    }
    return whole;
}

/* Any text up to a mark, and the mark. */
static cvn_constraint *text_until(const char *mark)
{
    SCOPED(strbuf_free) StrBuf escaped = {0}, regex = {0};
    for (; *mark; mark++) {
        if (strchr("\\^$.|?*+()[]{}/", *mark))
            strbuf_putc(&escaped, '\\');
        strbuf_putc(&escaped, *mark);
    }
    strbuf_printf(&regex, "(?:(?!%s)[\\s\\S])*%s", escaped.text, escaped.text);
    cvn_constraint *made = NULL;
    if (!regex.failed)
        cvn_constraint_regex(regex.text, regex.length, &made, NULL);
    return made;
}

/* One of some texts, each with the mark behind it. */
static cvn_constraint *text_among(const json_t *list, const char *mark)
{
    const size_t n = json_array_size(list);
    SCOPED(scoped_free) const char **text = calloc(n + 1, sizeof *text);
    SCOPED(scoped_free) size_t *length = calloc(n + 1, sizeof *length);
    StrBuf *each = calloc(n + 1, sizeof *each);
    cvn_constraint *made = NULL;
    for (size_t i = 0; text && length && each && i < n; i++) {
        const char *one = json_string_value(json_array_get(list, i));
        strbuf_puts(&each[i], one ? one : "");
        strbuf_puts(&each[i], mark);
        text[i] = each[i].text;
        length[i] = each[i].length;
    }
    if (text && length && each)
        cvn_constraint_choices(text, length, n, &made, NULL);
    for (size_t i = 0; each && i < n; i++)
        strbuf_free(&each[i]);
    free(each);
    return made;
}

/* The value of argument w->key. */
static void begin_value(CallWriter *w)
{
    static const char *const truths[] = {"True", "False"};
    static const size_t lengths[] = {4, 5};
    const json_t *schema, *list;
    const CallValue *v = around(w, w->key);
    const char *name = argument_at(w, w->key, &schema);
    StrBuf *arguments = arguments_of(w);
    begin_phase(w, CALL_VALUE);
    json_auto_t *key = json_string(name), *whole = whole_schema(w, schema);
    SCOPED(scoped_free) char *written = json_dumps(key, JSON_ENCODE_ANY);
    SCOPED(scoped_free) char *text = json_dumps(whole, JSON_ENCODE_ANY | JSON_COMPACT);
    strbuf_puts(arguments, arguments->length ? "," : "{");
    strbuf_puts(arguments, written ? written : "");
    strbuf_puts(arguments, ":");
    if (v == &w->syntax->string) {
        w->end = v->end;
        list = json_object_get(schema, "enum");
        w->made = list ? text_among(list, v->end) : text_until(v->end);
        strbuf_puts(arguments, "\"");
    } else if (w->syntax->arguments == CALL_PYTHON && is_type(schema, "boolean")) {
        cvn_constraint_choices(truths, lengths, 2, &w->made, NULL);
    } else if (text) {
        cvn_constraint_schema(text, strlen(text), &tools_written, &w->made, NULL);
    }
    if (!w->made && !w->end)
        cvn_constraint_json(&tools_written, &w->made, NULL);
}

/* Behind an argument, or the name: what follows, drawn unless it is an argument that must. */
static void begin_key(CallWriter *w, TokenIds *tokens)
{
    int last;
    const bool none = next_arguments(w, &last);
    begin_phase(w, CALL_KEY);
    cvn_constraint_free(w->made);
    w->made = NULL;
    SCOPED(strbuf_free) StrBuf text = {0};
    if (!none && last == w->key + 1) {
        put_choice(w, last, &text);
        call_writer_give(w, text.text, text.length, tokens);
        w->key = last;
        begin_value(w);
        return;
    }
    json_auto_t *list = json_array();
    for (int k = w->key + 1; k <= last + none; k++) {
        put_choice(w, k > last ? -1 : k, &text);
        json_array_append_new(list, json_stringn(text.text, text.length));
    }
    w->made = text_among(list, "");
}

/* What is known of a string goes to the arguments; the mark that ends it does not. */
static void add_string(CallWriter *w, bool ended)
{
    const size_t mark = strlen(w->end);
    size_t n = w->picked.length > mark ? w->picked.length - mark : 0;
    while (!ended && n > w->known && ((unsigned char)w->picked.text[n] & 0xC0) == 0x80)
        n--;
    if (n > w->known) {
        json_auto_t *piece = bytes_json(w->picked.text + w->known, n - w->known);
        SCOPED(scoped_free) char *json = json_dumps(piece, JSON_ENCODE_ANY);
        if (json)
            strbuf_add(arguments_of(w), json + 1, strlen(json) - 2);
        w->known = n;
    }
    if (ended)
        strbuf_puts(arguments_of(w), "\"");
}

static void end_value(CallWriter *w)
{
    if (w->end)
        add_string(w, true);
    else if (w->picked.length) /* Python's */
        strbuf_puts(arguments_of(w), strcmp(w->picked.text, "True") == 0 ? "true" : "false");
}

/* The key that was picked, or the end of the arguments; whether a value follows. */
static bool take_key(CallWriter *w)
{
    const int k = picked_key(w);
    cvn_constraint_free(w->made);
    w->made = NULL;
    if (k >= 0) {
        w->key = k;
        begin_value(w);
        return true;
    }
    strbuf_puts(arguments_of(w), arguments_of(w)->length ? "}" : "{}");
    return false;
}

/* ---- phases ---- */

/* Behind its name, or what stands for it where there is one only. */
static void begin_arguments(CallWriter *w, const Tool *tool, TokenIds *tokens)
{
    Call *call = &w->call[w->n++];
    unsigned char random[8];
    *call = (Call){.tool = tool};
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        memset(random, w->n, sizeof random);
    for (size_t i = 0; i < sizeof random; i++)
        call->id[i] = "0123456789abcdefghijklmnopqrstuv"[random[i] % 32];
    call->id[sizeof random] = (char)('a' + w->n % 26);
    call_writer_give(w, w->syntax->between, strlen(w->syntax->between), tokens);
    if (w->syntax->arguments == CALL_JSON) {
        begin_phase(w, CALL_ARGUMENTS);
        return;
    }
    w->key = -1;
    begin_key(w, tokens);
}

void call_writer_begin(CallWriter *w, TokenIds *tokens)
{
    begin_phase(w, CALL_NAME);
    if (w->set->only >= 0) {
        const Tool *tool = &w->set->tool[w->set->only];
        call_writer_give(w, tool->name, strlen(tool->name), tokens);
        begin_arguments(w, tool, tokens);
    }
}

void call_writer_push(CallWriter *w, int32_t token)
{
    const bool truth = w->phase == CALL_VALUE && w->syntax->arguments == CALL_PYTHON;
    const json_t *schema = NULL;
    bool json = w->phase == CALL_ARGUMENTS || (w->phase == CALL_VALUE && !w->end);
    if (truth && argument_at(w, w->key, &schema) && is_type(schema, "boolean"))
        json = false;
    decoder_push(&w->decoder, token, json ? arguments_of(w) : &w->picked, NULL);
    if (w->end)
        add_string(w, false);
}

/* Whether the last call equals one before; or, with `may`, could come to. */
static bool is_repeated(const CallWriter *w, bool may)
{
    const Call *last = &w->call[w->n - 1];
    size_t n = last->arguments.length;
    for (const Call *call = w->call; call < last; call++)
        if (call->tool == last->tool &&
            (may ? call->arguments.length >= n : call->arguments.length == n) &&
            (n == 0 || memcmp(call->arguments.text, last->arguments.text, n) == 0))
            return true;
    return false;
}

int call_writer_count(const CallWriter *w, bool ended)
{
    const bool open = w->phase >= CALL_ARGUMENTS && w->phase <= CALL_VALUE;
    return w->n - (w->n && is_repeated(w, !ended && open));
}

static bool is_picked(const CallWriter *w, const char *text)
{
    return strcmp(w->picked.length ? w->picked.text : "", text) == 0;
}

/* Whether another call may follow. */
static bool end_arguments(CallWriter *w, TokenIds *tokens)
{
    begin_phase(w, CALL_AGAIN);
    if (!w->set->again || w->n >= w->most || is_repeated(w, false))
        return false;
    call_writer_give(w, w->syntax->after, w->set->same_end, tokens);
    return true;
}

bool call_writer_next(CallWriter *w, TokenIds *tokens)
{
    const ToolSet *set = w->set;
    int i = 0;
    tokens->n -= tokens->n > 0;
    switch (w->phase) {
    case CALL_NAME:
        while (i < set->n - 1 && !is_picked(w, set->tool[i].name))
            i++;
        begin_arguments(w, &set->tool[i], tokens);
        return true;
    case CALL_VALUE:
        end_value(w);
        begin_key(w, tokens);
        return true;
    case CALL_KEY:
        return take_key(w) || end_arguments(w, tokens);
    case CALL_ARGUMENTS:
        return end_arguments(w, tokens);
    case CALL_NOT:
    case CALL_AGAIN:
        break;
    }
    if (w->phase == CALL_NOT || !set->again || !is_picked(w, w->syntax->again + set->same_end))
        return false;
    call_writer_begin(w, tokens);
    return true;
}

cvn_constraint *call_writer_constraint(const CallWriter *w)
{
    return w->phase == CALL_NAME        ? w->set->names
           : w->phase == CALL_AGAIN     ? w->set->again
           : w->phase == CALL_ARGUMENTS ? w->call[w->n - 1].tool->arguments
                                        : w->made;
}
