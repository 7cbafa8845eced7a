/* Conversations by the public interface (caravan/chat.h): JSON in, ids out, and answers back into JSON. */
#include "serve/chat.h"

#include "base/json_file.h"
#include "serve/model.h"
#include "text/bytes_json.h"
#include "text/plain_calls.h"

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
    answer_kind_learn(&chat->kind, chat->template, chat->tokenizer);
    *out = chat;
    return CVN_OK;
}

void cvn_chat_free(cvn_chat *chat)
{
    if (!chat)
        return;
    chat_template_free(chat->template);
    answer_kind_free(&chat->kind);
    free(chat);
}

const int32_t *cvn_chat_ends(const cvn_chat *chat, int64_t *n)
{
    *n = (int64_t)chat->kind.n_stops;
    return chat->kind.stops;
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
    if (calls && chat->kind.calls.plain && json_array_size(messages)) {
        plain = plain_messages(messages, tools, chat->kind.calls.system);
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

struct cvn_answer {
    const cvn_chat *chat; /* borrowed */
    json_t *tools;        /* owned: for the types of arguments; or NULL */
    Decoder decoder;
    Answer answer;
    TokenIds ends;     /* end tokens that nothing came behind */
    AnswerTexts texts; /* all of them */
    size_t thought_given, said_given;
};

int cvn_answer_new(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const char *tools,
                   cvn_answer **out, cvn_err *err)
{
    const TokenIds before = {.id = (int32_t *)(uintptr_t)prompt, .n = (size_t)n_prompt};
    json_t *read = NULL;
    *out = NULL;
    TRY(chat_read_json("tools", tools, &read, err));
    cvn_answer *a = *out = calloc(1, sizeof *a);
    if (!a) {
        json_decref(read);
        return err_set(err, CVN_EMEM, "no memory for an answer");
    }
    a->chat = chat;
    a->tools = read;
    decoder_init(&a->decoder, chat->tokenizer, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE);
    answer_init(&a->answer, &chat->kind, true, chat->tokenizer, &before);
    strbuf_puts(&a->texts.said, "");
    return CVN_OK;
}

void cvn_answer_free(cvn_answer *answer)
{
    if (!answer)
        return;
    json_decref(answer->tools);
    answer_free(&answer->answer);
    answer_texts_free(&answer->texts);
    token_ids_free(&answer->ends);
    free(answer);
}

static int check_memory(const cvn_answer *a, bool failed, cvn_err *err)
{
    const AnswerTexts *t = &a->texts;
    return failed || a->ends.failed || t->thought.failed || t->said.failed || t->call.failed
               ? err_set(err, CVN_EMEM, "no memory for an answer")
               : CVN_OK;
}

/* An end token is text where something comes behind it. */
static int take_ids(cvn_answer *a, const int32_t *ids, int64_t n, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf piece = {0};
    for (int64_t i = 0; i < n; i++) {
        bool end = answer_ends(&a->chat->kind, ids[i]);
        for (size_t k = 0; !end && k < a->ends.n; k++)
            TRY(decoder_push(&a->decoder, a->ends.id[k], &piece, err));
        a->ends.n = end ? a->ends.n : 0;
        if (end)
            token_ids_add(&a->ends, ids[i]);
        else
            TRY(decoder_push(&a->decoder, ids[i], &piece, err));
    }
    answer_push(&a->answer, piece.text, piece.length, &a->texts);
    return check_memory(a, piece.failed, err);
}

/* What was not given yet of thoughts and content. */
static int make_delta(cvn_answer *a, char **delta, cvn_err *err)
{
    const StrBuf *thought = &a->texts.thought, *said = &a->texts.said;
    json_auto_t *json = json_object();
    if (thought->length > a->thought_given)
        json = json_with(
            json, "reasoning_content",
            bytes_json(thought->text + a->thought_given, thought->length - a->thought_given));
    if (said->length > a->said_given)
        json = json_with(json, "content",
                         bytes_json(said->text + a->said_given, said->length - a->said_given));
    *delta = json ? json_dumps(json, JSON_COMPACT) : NULL;
    if (!*delta)
        return err_set(err, CVN_EMEM, "no memory for an answer");
    a->thought_given = thought->length;
    a->said_given = said->length;
    return CVN_OK;
}

int cvn_answer_push(cvn_answer *a, const int32_t *ids, int64_t n, char **delta, cvn_err *err)
{
    *delta = NULL;
    TRY(take_ids(a, ids, n, err));
    return make_delta(a, delta, err);
}

static int make_message(const cvn_answer *a, json_t *calls, char **message, cvn_err *err)
{
    const AnswerTexts *t = &a->texts;
    json_auto_t *json = json_pack("{s:s,s:o}", "role", "assistant", "content",
                                  bytes_json(t->said.text, t->said.length));
    if (t->thought.length)
        json = json_with(json, "reasoning_content", bytes_json(t->thought.text, t->thought.length));
    if (json_array_size(calls))
        json = json_with(json, "tool_calls", json_incref(calls));
    *message = json ? json_dumps(json, JSON_COMPACT) : NULL;
    return *message ? CVN_OK : err_set(err, CVN_EMEM, "no memory for an answer");
}

int cvn_answer_end(cvn_answer *a, char **delta, char **message, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf rest = {0};
    json_auto_t *calls = json_array();
    AnswerTexts *t = &a->texts;
    decoder_flush(&a->decoder, &rest);
    answer_push(&a->answer, rest.text, rest.length, t);
    answer_flush(&a->answer, t);
    strbuf_clear(&rest);
    if (t->call.length && strlen(t->call.text) == t->call.length)
        calls_read(&a->chat->kind.calls, a->tools, t->call.text, calls, &rest);
    else
        strbuf_add(&rest, t->call.length ? t->call.text : "", t->call.length);
    while (json_array_size(calls) && rest.length && strchr(" \n", rest.text[rest.length - 1]))
        rest.length--;
    strbuf_add(&t->said, rest.length ? rest.text : "", rest.length);
    TRY(check_memory(a, rest.failed, err));
    if (delta)
        TRY(make_delta(a, delta, err));
    return message ? make_message(a, calls, message, err) : CVN_OK;
}

int cvn_chat_read(const cvn_chat *chat, const int32_t *prompt, int64_t n_prompt, const char *tools,
                  const int32_t *ids, int64_t n, char **message, cvn_err *err)
{
    cvn_answer *answer;
    *message = NULL;
    int code = cvn_answer_new(chat, prompt, n_prompt, tools, &answer, err);
    code = code ? code : take_ids(answer, ids, n, err);
    code = code ? code : cvn_answer_end(answer, NULL, message, err);
    cvn_answer_free(answer);
    return code;
}
