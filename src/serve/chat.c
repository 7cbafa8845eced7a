/* Conversations by the public interface (caravan/chat.h): JSON in, ids out, and answers back into JSON. */
#include "caravan/chat.h"

#include "base/json_file.h"
#include "serve/model.h"
#include "text/bytes_json.h"
#include "text/call_syntax.h"
#include "text/plain_calls.h"
#include "text/thinking.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

struct cvn_chat {
    const Tokenizer *tokenizer; /* borrowed */
    ChatTemplate *template;     /* owned */
    CallSyntax calls;           /* owned */
    int32_t ends[4];            /* [n_ends] */
    size_t n_ends;
};

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

static int read_json(const char *what, const char *text, json_t **out, cvn_err *err)
{
    json_error_t where;
    *out = text ? json_loads(text, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where) : NULL;
    return !text || *out ? CVN_OK
                         : err_set(err, CVN_EFORMAT, "%s are no JSON: %s", what, where.text);
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
    TRY(read_json("messages", given->messages, &messages, err));
    TRY(read_json("tools", given->tools, &tools, err));
    TRY(read_json("variables", given->variables, &variables, err));
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

int cvn_chat_read(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const int32_t *ids,
                  int64_t n, char **message, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf whole = {0}, thought = {0}, said = {0}, content = {0};
    const TokenIds before = {.id = (int32_t *)(uintptr_t)prompt, .n = (size_t)n_prompt};
    *message = NULL;
    for (size_t i = 0; n > 0 && i < chat->n_ends; i++)
        if (ids[n - 1] == chat->ends[i]) {
            n--;
            i = (size_t)-1;
        }
    TRY(tokenizer_decode(chat->tokenizer, ids, (size_t)n, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE,
                         &whole, err));
    const char *text = whole.length ? whole.text : "";
    if (chat_template_thinks(chat->template)) {
        Thinking thinking;
        thinking_init(&thinking, thinking_begun(chat->tokenizer, &before));
        thinking_push(&thinking, text, whole.length, &thought, &said);
        thinking_flush(&thinking, &thought, &said);
    } else {
        strbuf_add(&said, text, whole.length);
    }
    json_auto_t *calls = json_array();
    if (chat->calls.known && said.length && strlen(said.text) == said.length)
        read_calls(&chat->calls, said.text, calls, &content);
    else
        strbuf_add(&content, said.length ? said.text : "", said.length);
    if (whole.failed || thought.failed || said.failed || content.failed)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    json_auto_t *answer = json_pack("{s:s,s:o}", "role", "assistant", "content",
                                    bytes_json(content.length ? content.text : "", content.length));
    if (thought.length)
        answer = json_with(answer, "reasoning_content", bytes_json(thought.text, thought.length));
    if (json_array_size(calls))
        answer = json_with(answer, "tool_calls", json_incref(calls));
    *message = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
    return *message ? CVN_OK : err_set(err, CVN_EMEM, "no memory for an answer");
}
