/* From messages, texts and ids to the tokens that the model goes on from. */
#include "server/internal.h"

#include <inttypes.h>
#include <stdlib.h>

int find_chat_format(Server *s, cvn_err *err)
{
    ChatKind *chat = &s->chat;
    const char *wanted = s->options.chat_format;
    chat->there = false;
    if (!s->tokenizer) {
        err_set(&chat->why, CVN_EUNSUPPORTED, "the model has no tokenizer");
        return CVN_OK;
    }
    if (wanted) {
        for (int i = 0; i < CHAT_N && !chat->there; i++) {
            chat->there = strcmp(chat_format_name((ChatFormat)i), wanted) == 0;
            chat->format = (ChatFormat)i;
        }
        if (!chat->there)
            return err_set(err, CVN_EINVAL, "there is no chat format %s", wanted);
    } else if (chat_template_open(s->tokenizer, &chat->template, &chat->why) == CVN_OK) {
        chat->there = chat->template || chat_format_find(s->options.model_path, s->tokenizer,
                                                         &chat->format, &chat->why) == CVN_OK;
    }
    if (chat->template) {
        chat->n_stops = chat_template_stops(chat->template, s->tokenizer, chat->stops);
        chat->thinks = chat_template_thinks(chat->template);
        call_syntax_learn(&chat->calls, chat->template, s->tokenizer, chat->stops, chat->n_stops);
    } else if (chat->there) {
        chat->n_stops = chat_stops(chat->format, s->tokenizer, chat->stops);
        chat->thinks = chat_thinks(chat->format);
    }
    return CVN_OK;
}

int check_model(Server *s, const Ask *a, Refusal *why)
{
    if (!a->model || strcmp(a->model, s->options.model_name) == 0)
        return 0;
    refuse(why, 404, "model", "there is no model %.200s; %s is here", a->model,
           s->options.model_name);
    why->code = "model_not_found";
    return why->status;
}

static int make_prompts(Ask *a, size_t n, const char *field, Refusal *why)
{
    if (n == 0 || n > ASK_MAX_PROMPTS)
        return refuse(why, 400, field, "there are %zu prompts; send 1 to %d", n, ASK_MAX_PROMPTS);
    a->prompt = calloc(n, sizeof *a->prompt);
    if (!a->prompt)
        return refuse(why, 500, NULL, "no memory for the request");
    a->n_prompts = (int)n;
    return 0;
}

static int check_prompt(const Server *s, const TokenIds *prompt, const char *field, Refusal *why)
{
    if (prompt->failed)
        return refuse(why, 500, NULL, "no memory for the prompt");
    if (prompt->n == 0)
        return refuse(why, 400, field, "the prompt has no tokens");
    if ((int64_t)prompt->n <= s->context)
        return 0;
    refuse(why, 400, field,
           "the prompt has %zu tokens, and the maximum context length is %" PRId64 " tokens",
           prompt->n, s->context);
    why->code = "context_length_exceeded";
    return why->status;
}

/* What is said of each token of a prompt is kept until the answer is written. */
static int check_scoring(const Server *s, const Ask *a, Refusal *why)
{
    int64_t tokens = 0, most = s->context * s->rows;
    if (ask_prompt_top(a) < 0)
        return 0;
    if (a->stream && a->prompt_logprobs >= 0)
        return refuse(why, 400, "prompt_logprobs", "prompt_logprobs are not streamed");
    for (int i = 0; i < a->n_prompts; i++)
        tokens += (int64_t)a->prompt[i].n;
    return tokens <= most
               ? 0
               : refuse(why, 400, "prompt",
                        "the prompts have %" PRId64 " tokens, and log-probabilities are computed "
                        "for at most %" PRId64,
                        tokens, most);
}

/* By the model's own template, and the time in this place. */
static int encode_by_template(const Server *s, const Ask *a, TokenIds *prompt, cvn_err *err)
{
    time_t clock = time(NULL);
    struct tm now;
    const ChatInput input = {.messages = a->messages,
                             .tools = a->n_tools && a->tool_choice != TOOLS_NONE ? a->tools : NULL,
                             .variables = a->template_variables,
                             .generation_prompt =
                                 a->add_generation_prompt && !a->continue_final_message,
                             .continues = a->continue_final_message ? "content" : NULL,
                             .now = localtime_r(&clock, &now)};
    return chat_template_encode(s->chat.template, s->tokenizer, &input, prompt, NULL, err);
}

/* By a format that is known by its name, of those who have no template. */
static int encode_by_format(const Server *s, const Ask *a, TokenIds *prompt, cvn_err *err)
{
    const ChatOptions options = {.generation_prompt = a->add_generation_prompt};
    size_t n = json_array_size(a->messages);
    ChatMessage *message = calloc(n + 1, sizeof *message);
    int code = message ? CVN_OK : err_set(err, CVN_EMEM, "no memory for the conversation");
    for (size_t i = 0; i < n && code == CVN_OK; i++) {
        const json_t *m = json_array_get(a->messages, i), *text = json_object_get(m, "content");
        message[i] = (ChatMessage){.role = json_string_value(json_object_get(m, "role")),
                                   .content = json_string_value(text),
                                   .length = json_string_length(text)};
        if (json_object_get(m, "tool_calls") || json_object_get(m, "tool_call_id"))
            code = err_set(err, CVN_EUNSUPPORTED,
                           "the model has no chat template; the format %s knows no calls of tools",
                           chat_format_name(s->chat.format));
    }
    if (code == CVN_OK)
        code = chat_encode(s->chat.format, s->tokenizer, message, n, &options, prompt, NULL, err);
    free(message);
    return code;
}

int prompt_of_messages(Server *s, Ask *a, Refusal *why)
{
    if (check_model(s, a, why))
        return why->status;
    if (a->top_logprobs && !a->logprobs)
        return refuse(why, 400, "top_logprobs", "top_logprobs says something with logprobs only");
    a->n_messages = json_array_size(a->messages);
    if (!a->n_messages)
        return refuse(why, 400, "messages", "messages are missing");
    if (!s->chat.there)
        return refuse(why, 400, "messages", "there is no chat format: %s", s->chat.why.message);
    if (tools_finish(a, &s->chat.calls, why) || make_prompts(a, 1, "messages", why))
        return why->status;
    bool own = a->continue_final_message || json_object_size(a->template_variables);
    if (own && !s->chat.template)
        return refuse(why, 400,
                      a->continue_final_message ? "continue_final_message" : "chat_template_kwargs",
                      "the model has no chat template; the format %s neither goes on in a message "
                      "nor has variables",
                      chat_format_name(s->chat.format));
    if (a->continue_final_message &&
        json_is_true(json_object_get(a->body, "add_generation_prompt")))
        return refuse(why, 400, "continue_final_message",
                      "continue_final_message and add_generation_prompt contradict each other");
    cvn_err err = {0};
    int code = s->chat.template ? encode_by_template(s, a, a->prompt, &err)
                                : encode_by_format(s, a, a->prompt, &err);
    if (code)
        return refuse(why, err.code == CVN_EMEM ? 500 : 400, "messages", "%s", err.message);
    return check_prompt(s, a->prompt, "messages", why) || check_scoring(s, a, why) ? why->status
                                                                                   : 0;
}

static int encode_text(const Server *s, const json_t *text, bool add_special, TokenIds *out,
                       Refusal *why)
{
    cvn_err err = {0};
    if (!s->tokenizer)
        return refuse(why, 400, "prompt", "the model has no tokenizer; send token ids");
    if (tokenizer_encode(s->tokenizer, json_string_value(text), json_string_length(text),
                         add_special ? TOKENIZER_BOS : 0, out, &err))
        return refuse(why, err.code == CVN_EMEM ? 500 : 400, "prompt", "%s", err.message);
    return check_prompt(s, out, "prompt", why);
}

static int take_ids(const Server *s, const json_t *ids, TokenIds *out, Refusal *why)
{
    int64_t vocab = cvn_model_vocab(s->model);
    if ((int64_t)json_array_size(ids) > s->context)
        return refuse(why, 400, "prompt",
                      "the prompt has %zu tokens, and the maximum context length is %" PRId64
                      " tokens",
                      json_array_size(ids), s->context);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        int64_t token = json_is_integer(id) ? json_integer_value(id) : -1;
        if (token < 0 || token >= vocab)
            return refuse(why, 400, "prompt",
                          "place %zu of the prompt is no token id from 0 to below %" PRId64, i,
                          vocab);
        token_ids_add(out, (int32_t)token);
    }
    return check_prompt(s, out, "prompt", why);
}

/* "text", [1, 2], ["text", "text"] or [[1, 2], [3]]. */
int prompts_of_completion(Server *s, Ask *a, Refusal *why)
{
    const json_t *given = a->prompts;
    if (check_model(s, a, why))
        return why->status;
    if (!given)
        return refuse(why, 400, "prompt", "the prompt is missing");
    bool one = json_is_string(given) || json_is_integer(json_array_get(given, 0));
    if (make_prompts(a, one ? 1 : json_array_size(given), "prompt", why))
        return why->status;
    for (int i = 0; i < a->n_prompts; i++) {
        const json_t *p = one ? given : json_array_get(given, (size_t)i);
        if (json_is_string(p))
            encode_text(s, p, a->add_special_tokens, &a->prompt[i], why);
        else if (json_is_array(p))
            take_ids(s, p, &a->prompt[i], why);
        else
            refuse(why, 400, "prompt", "prompt %d is neither a string nor an array of token ids",
                   i);
        if (why->status)
            return why->status;
    }
    if (a->max_tokens < 0)
        a->max_tokens = 16; /* OpenAI's default */
    return check_scoring(s, a, why);
}
