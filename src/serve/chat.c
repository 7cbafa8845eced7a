/* Conversations by the public interface (caravan/chat.h): JSON in, ids out, and answers back into JSON. */
#include "serve/chat.h"

#include "base/json_file.h"
#include "serve/model.h"
#include "text/bytes_json.h"
#include "text/plain_calls.h"
#include "text/thinking.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

int cvn_chat_new(const cvn_model *model, const char *chat_template, cvn_chat **out, cvn_err *err)
{
    *out = NULL;
    if (!model->tokenizer)
        return err_set(err, CVN_EINVAL, "the model has no tokenizer: %s",
                       model->tokenizer_err.message);
    cvn_chat *chat = calloc(1, sizeof *chat);
    if (!chat)
        return err_set(err, CVN_EMEM, "no memory for a chat");
    chat->tokenizer = model->tokenizer;
    int code = chat_template_open(chat->tokenizer, chat_template, &chat->template, err);
    if (code) {
        cvn_chat_free(chat);
        return code;
    }
    chat->n_ends = chat_template_stops(chat->template, chat->tokenizer, chat->ends);
    call_syntax_learn(&chat->calls, chat->template, chat->tokenizer, chat->ends, chat->n_ends);
    *out = chat;
    return CVN_OK;
}

void cvn_chat_free(cvn_chat *chat)
{
    if (!chat)
        return;
    chat_template_free(chat->template);
    call_syntax_free(&chat->calls);
    free(chat);
}

const int32_t *cvn_chat_ends(const cvn_chat *chat, int64_t *n)
{
    *n = (int64_t)chat->n_ends;
    return chat->ends;
}

/* ---- what is given ---- */

int chat_read_json(const char *what, const char *text, json_t **out, cvn_err *err)
{
    json_error_t where;
    *out = text ? json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where) : NULL;
    return !text || *out ? CVN_OK
                         : err_set(err, CVN_EFORMAT, "%s is not valid JSON: %s", what, where.text);
}

/* Arguments of calls as the objects that templates want. */
static void open_arguments(json_t *message)
{
    const json_t *calls = json_object_get(message, "tool_calls");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *function = json_object_get(json_array_get(calls, i), "function");
        const json_t *arguments = json_object_get(function, "arguments");
        json_t *object = json_is_string(arguments)
                             ? json_loadb(json_string_value(arguments),
                                          json_string_length(arguments), JSON_ALLOW_NUL, NULL)
                             : NULL;
        if (json_is_object(object))
            json_object_set(function, "arguments", object);
        json_decref(object);
    }
}

static int check_messages(json_t *messages, bool *calls, cvn_err *err)
{
    for (size_t i = 0; i < json_array_size(messages); i++) {
        json_t *message = json_array_get(messages, i);
        const char *role = json_string_value(json_object_get(message, "role"));
        if (!role)
            return err_set(err, CVN_EFORMAT, "message %zu has no \"role\"", i);
        open_arguments(message);
        *calls |= json_object_get(message, "tool_calls") || strcmp(role, "tool") == 0;
    }
    return CVN_OK;
}

int cvn_chat_encode(const cvn_chat *chat, const cvn_chat_input *given, int32_t **ids,
                    int64_t *n_ids, cvn_err *err)
{
    json_auto_t *messages = NULL, *tools = NULL, *variables = NULL;
    *ids = NULL;
    *n_ids = 0;
    if (!given->messages)
        return err_set(err, CVN_EINVAL, "the conversation has no messages");
    TRY(chat_read_json("messages", given->messages, &messages, err));
    TRY(chat_read_json("tools", given->tools, &tools, err));
    TRY(chat_read_json("variables", given->variables, &variables, err));
    bool calls = tools != NULL;
    if (json_is_array(messages))
        TRY(check_messages(messages, &calls, err));
    json_auto_t *plain = NULL;
    if (calls && chat->calls.plain && json_array_size(messages)) {
        plain = plain_messages(messages, tools, chat->calls.system);
        if (!plain)
            return err_set(err, CVN_EMEM, "no memory for a conversation");
    }
    time_t clock = given->now ? (time_t)given->now : time(NULL);
    struct tm now;
    const ChatInput input = {.messages = plain ? plain : messages,
                             .tools = plain || !json_array_size(tools) ? NULL : tools,
                             .variables = variables,
                             .generation_prompt = !given->complete && !given->go_on,
                             .continues = given->go_on ? "content" : NULL,
                             .now = localtime_r(&clock, &now)};
    TokenIds list = {0};
    int code = chat_template_encode(chat->template, chat->tokenizer, &input, &list, NULL, err);
    if (!code && list.failed)
        code = err_set(err, CVN_EMEM, "no memory for a conversation");
    if (code) {
        token_ids_free(&list);
        return code;
    }
    *ids = list.id;
    *n_ids = (int64_t)list.n;
    return CVN_OK;
}

/* ---- what is answered ---- */

static const char *skip(const char *at, const char *these)
{
    return at + strspn(at, these);
}

/* The JSON object that begins at *at, which is then behind it; NULL where there is none. */
static json_t *read_object(const char **at)
{
    json_error_t where;
    json_t *object = **at == '{' ? json_loads(*at, JSON_DISABLE_EOF_CHECK, &where) : NULL;
    if (object)
        *at += where.position;
    return object;
}

static int add_call(json_t *calls, const char *name, json_t *arguments)
{
    char id[16];
    snprintf(id, sizeof id, "call%05zu", json_array_size(calls) % 100000);
    return json_array_append_new(calls,
                                 json_pack("{s:s,s:s,s:{s:s,s:O}}", "id", id, "type", "function",
                                           "function", "name", name, "arguments", arguments));
}

/* One call at *at, which is then behind its arguments: an object with name and arguments, or the name between what the
   template puts in front of it and behind it. */
static bool read_call(const CallSyntax *y, const char **at, json_t *calls)
{
    const char *from = *at;
    if (*from == '{') {
        json_auto_t *object = read_object(&from);
        const char *name = json_string_value(json_object_get(object, "name"));
        json_t *arguments = json_object_get(object, "arguments");
        arguments = arguments ? arguments : json_object_get(object, "parameters");
        if (!name || !json_is_object(arguments) || add_call(calls, name, arguments))
            return false;
        *at = from;
        return true;
    }
    const char *between = strstr(from, y->between);
    if (!between)
        return false;
    SCOPED(scoped_free) char *name = strndup(from, (size_t)(between - from));
    from = skip(between + strlen(y->between), " \n");
    json_auto_t *arguments = read_object(&from);
    if (!name || !*name || !arguments || add_call(calls, name, arguments))
        return false;
    *at = from;
    return true;
}

/* Where the next call begins, and *inside: where its name or its object does; NULL: nowhere. */
static const char *find_call(const CallSyntax *y, const char *text, const char **inside)
{
    const char *object = strchr(y->before, '{'); /* the call is one, or its name follows */
    const char *begin = skip(y->before, " \n");
    const char *found = y->mark ? strstr(text, y->mark) : skip(text, " \n");
    if (!found || !*found)
        return NULL;
    const char *at = y->mark ? found + strlen(y->mark) : found;
    if (object) {
        *inside = skip(at, " \n[");
        return **inside == '{' ? found : NULL;
    }
    size_t n = strlen(begin);
    *inside = found + n;
    return strncmp(found, begin, n) == 0 ? found : NULL;
}

/* Takes the calls out of a text; what is left goes to `content`. */
static void read_calls(const CallSyntax *y, const char *text, json_t *calls, StrBuf *content)
{
    const char *inside, *begin;
    const char *end = skip(y->after, "} \n]"); /* what stands behind a call */
    while ((begin = find_call(y, text, &inside))) {
        const char *at = inside;
        if (!read_call(y, &at, calls))
            break;
        strbuf_add(content, text, (size_t)(begin - text));
        while (strchr(y->before, '{')) { /* a list of them */
            const char *next = skip(at, " \n,");
            if (next == at || *next != '{' || !read_call(y, &next, calls))
                break;
            at = next;
        }
        const char *rest = skip(at, "} \n]");
        size_t n = strlen(end);
        while (n && strchr(" \n", end[n - 1]))
            n--;
        text = strncmp(rest, end, n) == 0 ? skip(rest + n, " \n") : rest;
    }
    strbuf_puts(content, text);
    while (json_array_size(calls) && content->length &&
           strchr(" \n", content->text[content->length - 1]))
        content->text[--content->length] = '\0';
}

struct cvn_answer {
    const cvn_chat *chat; /* borrowed */
    Decoder decoder;
    bool thinks;
    Thinking thinking;
    TokenIds ends;        /* end tokens that nothing came behind */
    StrBuf thought, said; /* all of them */
    size_t thought_given, said_given;
};

int cvn_answer_new(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, cvn_answer **out,
                   cvn_err *err)
{
    const TokenIds before = {.id = (int32_t *)(uintptr_t)prompt, .n = (size_t)n_prompt};
    cvn_answer *a = *out = calloc(1, sizeof *a);
    if (!a)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    a->chat = chat;
    decoder_init(&a->decoder, chat->tokenizer, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE);
    a->thinks = chat_template_thinks(chat->template);
    if (a->thinks)
        thinking_init(&a->thinking, thinking_begun(chat->tokenizer, &before));
    strbuf_puts(&a->said, "");
    return CVN_OK;
}

void cvn_answer_free(cvn_answer *answer)
{
    if (!answer)
        return;
    token_ids_free(&answer->ends);
    strbuf_free(&answer->thought);
    strbuf_free(&answer->said);
    free(answer);
}

bool chat_ends(const cvn_chat *chat, int32_t id)
{
    for (size_t i = 0; i < chat->n_ends; i++)
        if (chat->ends[i] == id)
            return true;
    return false;
}

static void take_text(cvn_answer *a, const StrBuf *piece)
{
    if (a->thinks)
        thinking_push(&a->thinking, piece->text, piece->length, &a->thought, &a->said);
    else
        strbuf_add(&a->said, piece->text, piece->length);
}

/* An end token is text where something comes behind it. */
static int take_ids(cvn_answer *a, const int32_t *ids, int64_t n, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf piece = {0};
    for (int64_t i = 0; i < n; i++) {
        bool end = chat_ends(a->chat, ids[i]);
        for (size_t k = 0; !end && k < a->ends.n; k++)
            TRY(decoder_push(&a->decoder, a->ends.id[k], &piece, err));
        a->ends.n = end ? a->ends.n : 0;
        if (end)
            token_ids_add(&a->ends, ids[i]);
        else
            TRY(decoder_push(&a->decoder, ids[i], &piece, err));
    }
    if (piece.length)
        take_text(a, &piece);
    if (piece.failed || a->ends.failed || a->thought.failed || a->said.failed)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    return CVN_OK;
}

/* How many bytes of what is said are no call and cannot become the beginning of one. */
static size_t plain_length(const cvn_answer *a)
{
    const CallSyntax *y = &a->chat->calls;
    const char *text = a->said.text, *begin = y->known ? skip(y->before, " \n") : "";
    size_t n = a->said.length, blank = strspn(text, " \n"), mark = y->mark ? strlen(y->mark) : 0;
    if (!y->known)
        return n;
    if (!y->mark) { /* a call is the whole answer */
        size_t shown = n - blank, expected = strlen(begin);
        bool object = strchr(y->before, '{');
        bool may = object ? strchr("{[", text[blank]) != NULL
                          : memcmp(text + blank, begin, shown < expected ? shown : expected) == 0;
        if (shown == 0 || may)
            return 0;
    } else {
        const char *at = memmem(text, n, y->mark, mark);
        size_t held = at ? n - (size_t)(at - text) : mark - 1 < n ? mark - 1 : n;
        while (!at && held && memcmp(text + n - held, y->mark, held) != 0)
            held--;
        n -= held;
    }
    while (n && strchr(" \n", text[n - 1])) /* not of the content where a call follows */
        n--;
    return n;
}

/* What was not given yet of n bytes of content. */
static int make_delta(cvn_answer *a, const char *content, size_t n, char **delta, cvn_err *err)
{
    json_auto_t *json = json_object();
    if (a->thought.length > a->thought_given)
        json = json_with(
            json, "reasoning_content",
            bytes_json(a->thought.text + a->thought_given, a->thought.length - a->thought_given));
    if (n > a->said_given)
        json = json_with(json, "content", bytes_json(content + a->said_given, n - a->said_given));
    *delta = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (!*delta)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    a->thought_given = a->thought.length;
    a->said_given = n > a->said_given ? n : a->said_given;
    return CVN_OK;
}

int cvn_answer_push(cvn_answer *a, const int32_t *ids, int64_t n, char **delta, cvn_err *err)
{
    *delta = NULL;
    TRY(take_ids(a, ids, n, err));
    return make_delta(a, a->said.text, plain_length(a), delta, err);
}

static int make_message(const cvn_answer *a, const StrBuf *content, json_t *calls, char **message,
                        cvn_err *err)
{
    json_auto_t *json = json_pack("{s:s,s:o}", "role", "assistant", "content",
                                  bytes_json(content->text, content->length));
    if (a->thought.length)
        json = json_with(json, "reasoning_content", bytes_json(a->thought.text, a->thought.length));
    if (json_array_size(calls))
        json = json_with(json, "tool_calls", json_incref(calls));
    *message = json ? json_dumps(json, JSON_COMPACT) : NULL;
    return *message ? CVN_OK : err_set(err, CVN_EMEM, "no memory for an answer");
}

int cvn_answer_end(cvn_answer *a, char **delta, char **message, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf rest = {0}, content = {0};
    json_auto_t *calls = json_array();
    decoder_flush(&a->decoder, &rest);
    if (rest.length)
        take_text(a, &rest);
    if (a->thinks)
        thinking_flush(&a->thinking, &a->thought, &a->said);
    strbuf_puts(&content, "");
    if (a->chat->calls.known && strlen(a->said.text) == a->said.length)
        read_calls(&a->chat->calls, a->said.text, calls, &content);
    else
        strbuf_add(&content, a->said.text, a->said.length);
    if (rest.failed || a->thought.failed || a->said.failed || content.failed)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    if (delta)
        TRY(make_delta(a, content.text, content.length, delta, err));
    return message ? make_message(a, &content, calls, message, err) : CVN_OK;
}

int cvn_chat_read(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const int32_t *ids,
                  int64_t n, char **message, cvn_err *err)
{
    cvn_answer *answer;
    *message = NULL;
    int code = cvn_answer_new(chat, prompt, n_prompt, &answer, err);
    code = code ? code : take_ids(answer, ids, n, err);
    code = code ? code : cvn_answer_end(answer, NULL, message, err);
    cvn_answer_free(answer);
    return code;
}
