#include "train/data/conversation.h"

#include "base/heap.h"
#include "text/plain_calls.h"

#include <stdlib.h>
#include <string.h>

void chat_writer_init(ChatWriter *w, const ChatTemplate *chat, const Tokenizer *tokenizer)
{
    *w = (ChatWriter){.tokenizer = tokenizer, .template = chat};
    answer_kind_learn(&w->kind, chat, tokenizer);
}

void chat_writer_free(ChatWriter *w)
{
    answer_kind_free(&w->kind);
}

/* A range of bytes of a rendered text that is to be learnt. */
typedef struct Span {
    size_t begin, end;
    bool marked; /* by the template: as it is, else up to the token that ends the turn */
} Span;

/* The document that is being made: the last answered text, and what is to be learnt of it. */
typedef struct Document {
    JinjaText text; /* owned */
    Span *span;     /* [n] owned, ascending */
    size_t n;
} Document;

static void document_free(Document *document)
{
    jinja_text_free(&document->text);
    free(document->span);
}

static int add_span(Document *document, Span span, cvn_err *err)
{
    Span *more = heap_more(document->span, document->n, sizeof *more);
    if (!more)
        return err_set(err, CVN_EMEM, "no memory for a conversation");
    document->span = more;
    document->span[document->n++] = span;
    return CVN_OK;
}

/* ---- where an answer is ---- */

/* How many bytes two texts begin with that are alike and come from the same messages. */
static size_t common(const JinjaText *a, const JinjaText *b)
{
    size_t n = 0;
    while (n < a->text.length && n < b->text.length && a->text.text[n] == b->text.text[n] &&
           a->mark.text[n] == b->mark.text[n])
        n++;
    return n;
}

/* The next run of bytes that the template marks as generated, from *at on; false: there is none. */
static bool next_run(const JinjaText *text, size_t *at, Span *run)
{
    size_t n = text->generated.length;
    while (*at < n && !text->generated.text[*at])
        ++*at;
    run->begin = *at;
    while (*at < n && text->generated.text[*at])
        ++*at;
    run->end = *at;
    run->marked = true;
    return run->end > run->begin;
}

/* Finds the marked answers that the prompt does not have. */
static int find_marked(Document *document, const JinjaText *prompt, size_t i, cvn_err *err)
{
    Span run;
    size_t before = 0, runs = 0, had = document->n;
    for (size_t at = 0; next_run(prompt, &at, &run);)
        before++;
    for (size_t at = 0; next_run(&document->text, &at, &run);)
        if (runs++ >= before)
            TRY(add_span(document, run, err));
    return document->n > had
               ? CVN_OK
               : err_set(
                     err, CVN_EFORMAT,
                     "message %zu: the chat template marks no part of it with {%% generation %%}",
                     i);
}

/* What the answered text has more than the prompt, which may open more than is there (<think>), but nothing that a message
   says. */
static int find_unmarked(Document *document, const JinjaText *prompt, size_t i, cvn_err *err)
{
    const JinjaText *text = &document->text;
    size_t begin = common(prompt, text);
    if (begin < prompt->text.length &&
        memchr(prompt->mark.text + begin, JINJA_DATA, prompt->text.length - begin))
        return err_set(err, CVN_EFORMAT,
                       "message %zu: the chat template renders the messages before an answer "
                       "differently once the answer is there, so the answer cannot be located; "
                       "give a template with {%% generation %%} markers with --chat-template",
                       i);
    if (begin == text->text.length)
        return err_set(err, CVN_EFORMAT, "message %zu: the chat template does not render it", i);
    return add_span(document, (Span){begin, text->text.length, false}, err);
}

/* ---- what a template must write ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Whether the text from a byte on has what a message says, but for blanks around it. */
static bool writes(const JinjaText *text, size_t from, const char *what, size_t n)
{
    while (n > 0 && is_blank(*what))
        what++, n--;
    while (n > 0 && is_blank(what[n - 1]))
        n--;
    return n == 0 || (from < text->text.length &&
                      memmem(text->text.text + from, text->text.length - from, what, n) != NULL);
}

static int refuse_lost(size_t i, const char *what, cvn_err *err)
{
    return err_set(err, CVN_EFORMAT,
                   "message %zu %s, which the chat template does not render; remove it, or give a "
                   "template that does with --chat-template",
                   i, what);
}

/* Thoughts and calls of an answer are in the text behind its prompt: they would be left out in silence else. */
static int check_written(const AnswerForm *form, const JinjaText *text, size_t from,
                         const json_t *message, size_t i, cvn_err *err)
{
    static const char *const reasoning[] = {"reasoning_content", "thinking", "reasoning"};
    const json_t *said = json_object_get(message, "content");
    const char *content = json_string_value(said);
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t k = 0; k < sizeof reasoning / sizeof *reasoning; k++) {
        const json_t *thought = json_object_get(message, reasoning[k]);
        if (!writes(text, from, json_string_value(thought), json_string_length(thought)))
            return refuse_lost(i, "has thinking text", err);
    }
    const char *end = content && form ? strstr(content, form->close) : NULL, *begin = content;
    if (end && strncmp(content, form->open, strlen(form->open)) == 0)
        begin += strlen(form->open);
    if (end && !writes(text, from, begin, (size_t)(end - begin)))
        return refuse_lost(i, "has thinking text", err);
    for (size_t k = 0; k < json_array_size(calls); k++) {
        const json_t *function = json_object_get(json_array_get(calls, k), "function");
        const json_t *name = json_object_get(function, "name");
        if (!writes(text, from, json_string_value(name), json_string_length(name)))
            return refuse_lost(i, "has a tool call", err);
    }
    if (json_array_size(calls) && !end && !writes(text, from, content, json_string_length(said)))
        return refuse_lost(i, "has text and a tool call", err);
    return CVN_OK;
}

/* ---- documents ---- */

/* The ids in front of byte n of a text that the ids of the whole begin with. */
static int ids_before(const ChatWriter *w, const Document *document, size_t n,
                      const TokenIds *whole, size_t *out, cvn_err *err)
{
    SCOPED(token_ids_free) TokenIds part = {0};
    TRY(chat_template_ids(w->template, w->tokenizer, &document->text, n, &part, err));
    for (*out = 0; *out < part.n && *out < whole->n && part.id[*out] == whole->id[*out];)
        ++*out;
    return CVN_OK;
}

/* Appends the document to *out, and makes it an empty one. */
static int emit(const ChatWriter *w, Document *document, EncodedUnit *out, cvn_err *err)
{
    const JinjaText *text = &document->text;
    SCOPED(token_ids_free) TokenIds ids = {0};
    TRY(chat_template_ids(w->template, w->tokenizer, text, text->text.length, &ids, err));
    size_t first = out->learn.length;
    for (size_t i = 0; i < ids.n; i++) {
        token_ids_add(&out->ids, ids.id[i]);
        strbuf_putc(&out->learn, 0);
    }
    token_ids_add(&out->end, (int32_t)out->ids.n);
    if (out->ids.failed || out->end.failed || out->learn.failed)
        return err_set(err, CVN_EMEM, "no memory for a conversation");
    for (size_t i = 0; i < document->n; i++) {
        const Span *span = &document->span[i];
        size_t begin, end;
        TRY(ids_before(w, document, span->begin, &ids, &begin, err));
        TRY(ids_before(w, document, span->end, &ids, &end, err));
        size_t last = end; /* behind the id that ends the turn stands what nobody is asked to say */
        while (last > begin && !span->marked && !answer_ends(&w->kind, ids.id[last - 1]))
            last--;
        end = last > begin ? last : end;
        if (end > begin)
            memset(out->learn.text + first + begin, 1, end - begin);
    }
    jinja_text_free(&document->text);
    document->text = (JinjaText){0};
    document->n = 0;
    return CVN_OK;
}

/* ---- conversations ---- */

/* The time that templates are told: the one that published templates have where they know none. Data do not depend on when
   they are read. */
static const struct tm THEN = {.tm_year = 124, .tm_mon = 6, .tm_mday = 26};

/* The first n messages. */
static int render(const ChatWriter *w, const json_t *messages, const json_t *tools, size_t n,
                  bool prompt, JinjaText *out, cvn_err *err)
{
    json_auto_t *first = json_array();
    for (size_t i = 0; first && i < n; i++)
        if (json_array_append(first, json_array_get(messages, i)))
            return err_set(err, CVN_EMEM, "no memory for a conversation");
    const ChatInput input = {
        .messages = first, .tools = tools, .generation_prompt = prompt, .now = &THEN};
    return chat_template_render(w->template, w->tokenizer, &input, out, err);
}

/* The answer in messages[i]. */
static int add_answer(const ChatWriter *w, const json_t *messages, const json_t *tools, size_t i,
                      Document *document, EncodedUnit *out, cvn_err *err)
{
    SCOPED(jinja_text_free) JinjaText prompt = {0}, text = {0};
    TRY(render(w, messages, tools, i, true, &prompt, err));
    TRY(render(w, messages, tools, i + 1, false, &text, err));
    if (document->n && common(&document->text, &text) < document->text.text.length)
        TRY(emit(w, document, out, err));
    JinjaText was = document->text;
    document->text = text;
    text = was; /* is freed */
    TRY(check_written(w->kind.form, &document->text, common(&prompt, &document->text),
                      json_array_get(messages, i), i, err));
    return document->text.generated.length &&
                   memchr(document->text.generated.text, 1, document->text.generated.length)
               ? find_marked(document, &prompt, i, err)
               : find_unmarked(document, &prompt, i, err);
}

static bool is_answer(const json_t *message)
{
    return strcmp(json_string_value(json_object_get(message, "role")), "assistant") == 0;
}

static bool has_calls(const json_t *messages)
{
    bool has = false;
    for (size_t i = 0; i < json_array_size(messages); i++) {
        const json_t *message = json_array_get(messages, i);
        has |= json_object_get(message, "tool_calls") != NULL ||
               strcmp(json_string_value(json_object_get(message, "role")), "tool") == 0;
    }
    return has;
}

int conversation_encode(const ChatWriter *w, const json_t *record, EncodedUnit *out, cvn_err *err)
{
    SCOPED(document_free) Document document = {0};
    const json_t *given = json_object_get(record, "messages");
    const json_t *tools = json_object_get(record, "tools");
    json_auto_t *messages = NULL;
    bool plain = w->kind.calls.plain && (tools || has_calls(given));
    if (plain) /* as the server tells them, who is asked the same way */
        messages = plain_messages(given, tools, w->kind.calls.system);
    else
        messages = json_deep_copy(given);
    size_t n = json_array_size(messages), answers = 0;
    SCOPED(scoped_free) bool *mute = calloc(n + 1, sizeof *mute);
    if (!messages || !mute)
        return err_set(err, CVN_EMEM, "no memory for a conversation");
    for (size_t i = 0; i < n; i++)
        mute[i] = json_object_del(json_array_get(messages, i), "mute") == 0;
    for (size_t i = 1; i < n; i++)
        if (is_answer(json_array_get(messages, i)) && !mute[i]) {
            TRY(add_answer(w, messages, plain ? NULL : tools, i, &document, out, err));
            answers++;
        }
    if (answers == 0)
        return err_set(
            err, CVN_EFORMAT,
            "the conversation has no answer: no message of role \"assistant\" follows another");
    return emit(w, &document, out, err);
}
