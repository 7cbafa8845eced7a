/* Answers that must be tool calls, by the public interface (caravan/chat.h): the phases of call_writer.h as requests. */
#include "serve/chat.h"

#include "base/err.h"
#include "base/json_file.h"
#include "serve/call_writer.h"
#include "text/bytes_json.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_CALLS = 16 }; /* of an answer, where nothing else is asked for */

struct cvn_calls {
    const cvn_chat *chat; /* borrowed */
    ToolSet set;
    CallWriter writer;
    TokenIds tokens;  /* of the answer, those that were given among them */
    TokenIds joined;  /* the prompt, and those */
    size_t n_prompt;  /* of joined */
    size_t accounted; /* tokens that were taken off max_tokens */
    bool begun;       /* the first phase was asked for */
    bool waits;       /* for the end of the thinking text */
    Decoder decoder;  /* of it */
    Answer answer;
    AnswerTexts texts;
};

void cvn_calls_free(cvn_calls *calls)
{
    if (!calls)
        return;
    call_writer_free(&calls->writer);
    tool_set_free(&calls->set);
    token_ids_free(&calls->tokens);
    token_ids_free(&calls->joined);
    answer_free(&calls->answer);
    answer_texts_free(&calls->texts);
    free(calls);
}

static int add_tools(ToolSet *set, const json_t *tools, cvn_err *err)
{
    size_t n = json_array_size(tools);
    if (n == 0 || n > TOOLS_MAX)
        return err_set(err, CVN_EINVAL, "tools must be an array of 1 to %d tools", TOOLS_MAX);
    TRY(tool_set_init(set, n, err));
    for (size_t i = 0; i < n; i++) {
        const json_t *tool = json_array_get(tools, i), *f = json_object_get(tool, "function");
        const char *type = json_string_value(json_object_get(tool, "type"));
        if (!type || strcmp(type, "function") != 0 || !json_is_object(f))
            return err_set(err, CVN_EINVAL,
                           "tool %zu is not {\"type\": \"function\", \"function\": {…}}", i);
        TRY(tool_set_add(set, f, json_object_get(f, "parameters"), err));
    }
    return CVN_OK;
}

/* Calls follow the thoughts; a part that has a header begins with its own. */
static void begin_call(cvn_calls *c)
{
    const AnswerKind *kind = &c->chat->kind;
    SCOPED(strbuf_free) StrBuf text = {0};
    if (c->tokens.n && kind->form && kind->form->header) {
        Decoder decoder;
        decoder_init(&decoder, c->chat->tokenizer, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE);
        answer_cut(&c->answer, decoder, &c->tokens, &text);
    }
    strbuf_puts(&text, kind->calls.before);
    call_writer_give(&c->writer, text.text, text.length, &c->tokens);
    call_writer_begin(&c->writer, &c->tokens);
}

static int fill(cvn_calls *c, const json_t *tools, const cvn_calls_options *options,
                const int32_t *prompt, int64_t n_prompt, cvn_err *err)
{
    const cvn_chat *chat = c->chat;
    int64_t most = options->most ? options->most : MOST_CALLS;
    if (most < 1 || most > TOOLS_MAX)
        return err_set(err, CVN_EINVAL, "an answer of at most %lld calls; give 1 to %d",
                       (long long)most, TOOLS_MAX);
    TRY(add_tools(&c->set, tools, err));
    TRY(tool_set_allow(&c->set, &chat->kind.calls, options->name, most > 1 && !options->name, err));
    TRY(call_writer_init(&c->writer, &c->set, &chat->kind.calls, chat->tokenizer, (int)most, err));
    for (int64_t i = 0; i < n_prompt; i++)
        token_ids_add(&c->joined, prompt[i]);
    c->n_prompt = (size_t)n_prompt;
    answer_init(&c->answer, &chat->kind, true, chat->tokenizer, &c->joined);
    c->waits = answer_waits(&c->answer);
    decoder_init(&c->decoder, chat->tokenizer, TOKENIZER_SPECIAL | TOKENIZER_CONTINUE);
    if (!c->waits)
        begin_call(c);
    return c->joined.failed || c->tokens.failed
               ? err_set(err, CVN_EMEM, "no memory for a prompt of %lld tokens",
                         (long long)n_prompt)
               : CVN_OK;
}

int cvn_calls_new(const cvn_chat *chat, const cvn_calls_options *options, const int32_t *prompt,
                  int64_t n_prompt, cvn_calls **out, cvn_err *err)
{
    json_auto_t *tools = NULL;
    *out = NULL;
    TRY(chat_read_json("tools", options->tools, &tools, err));
    cvn_calls *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(err, CVN_EMEM, "no memory for tool calls");
    c->chat = chat;
    int code = fill(c, tools, options, prompt, n_prompt, err);
    if (code) {
        cvn_calls_free(c);
        return code;
    }
    *out = c;
    return CVN_OK;
}

bool cvn_calls_push(cvn_calls *c, int32_t token)
{
    SCOPED(strbuf_free) StrBuf piece = {0};
    token_ids_add(&c->tokens, token);
    if (answer_ends(&c->chat->kind, token))
        return false;
    if (c->writer.phase != CALL_NOT) {
        call_writer_push(&c->writer, token);
        return true;
    }
    decoder_push(&c->decoder, token, &piece, NULL);
    answer_push(&c->answer, piece.text, piece.length, &c->texts);
    return answer_waits(&c->answer);
}

/* A phase has ended: whether another follows. */
static bool is_followed(cvn_calls *c)
{
    if (!c->waits)
        return call_writer_next(&c->writer, &c->tokens);
    if (answer_waits(&c->answer))
        return false;
    c->waits = false;
    begin_call(c);
    return true;
}

bool cvn_calls_next(cvn_calls *c, cvn_request *request)
{
    if (c->begun && !is_followed(c))
        return false;
    c->begun = true;
    c->joined.n = c->n_prompt;
    for (size_t i = 0; i < c->tokens.n; i++)
        token_ids_add(&c->joined, c->tokens.id[i]);
    request->prompt = c->joined.id;
    request->n_prompt = (int64_t)c->joined.n;
    request->constraint = call_writer_constraint(&c->writer);
    request->end = cvn_chat_ends(c->chat, &request->n_end);
    request->min_tokens = 0;
    request->max_tokens -= (int64_t)c->tokens.n - (int64_t)c->accounted;
    c->accounted = c->tokens.n;
    return request->max_tokens > 0 && !c->joined.failed && !c->tokens.failed;
}

const int32_t *cvn_calls_tokens(const cvn_calls *c, int64_t *n)
{
    *n = (int64_t)c->tokens.n;
    return c->tokens.id;
}

int cvn_calls_message(const cvn_calls *c, char **message, cvn_err *err)
{
    json_auto_t *calls = json_array();
    json_auto_t *json = json_pack("{s:s,s:s}", "role", "assistant", "content", "");
    int n = call_writer_count(&c->writer, true);
    *message = NULL;
    for (int i = 0; i < n; i++) {
        const Call *call = &c->writer.call[i];
        json_t *arguments =
            call->arguments.length
                ? json_loadb(call->arguments.text, call->arguments.length, JSON_ALLOW_NUL, NULL)
                : NULL;
        if (arguments)
            json_array_append_new(calls, json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", call->id, "type",
                                                   "function", "function", "name", call->tool->name,
                                                   "arguments", arguments));
    }
    if (c->texts.thought.length)
        json = json_with(json, "reasoning_content",
                         bytes_json(c->texts.thought.text, c->texts.thought.length));
    if (json_array_size(calls))
        json = json_with(json, "tool_calls", json_incref(calls));
    *message = json && !c->tokens.failed ? json_dumps(json, JSON_COMPACT) : NULL;
    return *message ? CVN_OK : err_set(err, CVN_EMEM, "no memory for an answer");
}
