/* From messages, texts and ids to the tokens that the model goes on from. */
#include "server/internal.h"
#include "text/plain_calls.h"

#include <inttypes.h>
#include <stdlib.h>

int find_chat_template(const Server *s, Served *m, cvn_err *err)
{
    ChatKind *chat = &m->chat;
    const char *wanted = s->options.chat_template;
    if (!m->tokenizer) {
        err_set(&chat->why, CVN_EUNSUPPORTED, "the model has no tokenizer");
        return CVN_OK;
    }
    if (chat_template_open(m->tokenizer, wanted, &chat->template, &chat->why))
        return wanted ? err_set(err, chat->why.code, "%s", chat->why.message) : CVN_OK;
    answer_kind_learn(&chat->answers, chat->template, m->tokenizer);
    return CVN_OK;
}

const char *answers_as(const Exchange *x)
{
    const ServerModel *is = x->ask.served->is;
    return x->ask.adapter < 0 ? is->name : is->adapter[x->ask.adapter];
}

/* The number of an adapter of a model, or -1. */
static int find_adapter(const Served *m, const char *name)
{
    int i = m->is->n_adapters - 1;
    while (i >= 0 && strcmp(m->is->adapter[i], name) != 0)
        i--;
    return i;
}

/* Models and adapters, or the adapters of one model. */
static void list_names(const Server *s, const Served *only, StrBuf *out)
{
    for (int i = 0; i < s->options.n_models; i++) {
        const ServerModel *m = &s->options.model[i];
        for (int k = only ? 0 : -1; k < m->n_adapters && (!only || only->is == m); k++)
            strbuf_printf(out, "%s%.100s", out->length ? ", " : "",
                          k < 0 ? m->name : m->adapter[k]);
    }
}

static int refuse_name(const Server *s, const Served *only, const char *field, const char *name,
                       Refusal *why)
{
    StrBuf names = {0};
    list_names(s, only, &names);
    if (name)
        refuse(why, 404, field, "%s %.200s does not exist; %.400s %s available", field, name,
               names.length ? names.text : "none",
               names.length && strchr(names.text, ',') ? "are" : "is");
    else
        refuse(why, 400, field, "the %s is missing; available are %.400s", field, names.text);
    if (name)
        why->code = "model_not_found";
    strbuf_free(&names);
    return why->status;
}

int find_model(Server *s, Ask *a, Refusal *why)
{
    int n = s->options.n_models;
    a->served = a->model ? NULL : &s->served[0];
    if (!a->model && n > 1)
        return refuse_name(s, NULL, "model", NULL, why);
    for (int i = 0; i < n && !a->served; i++) {
        Served *m = &s->served[i];
        a->adapter = find_adapter(m, a->model);
        if (a->adapter >= 0 || strcmp(m->is->name, a->model) == 0)
            a->served = m;
    }
    if (!a->served)
        return refuse_name(s, NULL, "model", a->model, why);
    if (!a->adapter_name)
        return 0;
    int adapter = find_adapter(a->served, a->adapter_name);
    if (adapter < 0)
        return refuse_name(s, a->served, "adapter", a->adapter_name, why);
    if (a->adapter >= 0 && a->adapter != adapter)
        return refuse(why, 400, "adapter", "model %.100s and adapter %.100s contradict each other",
                      a->model, a->adapter_name);
    a->adapter = adapter;
    return 0;
}

static int make_prompts(Ask *a, size_t n, const char *field, Refusal *why)
{
    if (n == 0 || n > ASK_MAX_PROMPTS)
        return refuse(why, 400, field, "the request has %zu prompts; send 1 to %d", n,
                      ASK_MAX_PROMPTS);
    a->input.prompt = calloc(n, sizeof *a->input.prompt);
    if (!a->input.prompt)
        return refuse(why, 500, NULL, "no memory for the request");
    a->input.n_prompts = (int)n;
    return 0;
}

static int check_prompt(const Served *m, const TokenIds *prompt, const char *field, Refusal *why)
{
    if (prompt->failed)
        return refuse(why, 500, NULL, "no memory for the prompt");
    if (prompt->n == 0)
        return refuse(why, 400, field, "the prompt has no tokens");
    if ((int64_t)prompt->n <= m->context)
        return 0;
    refuse(why, 400, field,
           "the prompt has %zu tokens, and the maximum context length is %" PRId64 " tokens",
           prompt->n, m->context);
    why->code = "context_length_exceeded";
    return why->status;
}

/* What is said of each token of a prompt is kept until the answer is written. */
static int check_scoring(const Ask *a, Refusal *why)
{
    int64_t tokens = 0, most = a->served->context * a->served->slots;
    if (a->output.receipt && (a->output.stream || a->calls.set.n))
        return refuse(why, 400, "receipt", "a receipt cannot be streamed, nor given with tools");
    if (ask_prompt_top(a) < 0)
        return 0;
    if (a->output.stream && a->output.prompt_logprobs >= 0)
        return refuse(why, 400, "prompt_logprobs", "prompt_logprobs cannot be streamed");
    for (int i = 0; i < a->input.n_prompts; i++)
        tokens += (int64_t)a->input.prompt[i].n;
    return tokens <= most
               ? 0
               : refuse(why, 400, "prompt",
                        "the prompts have %" PRId64 " tokens, and log-probabilities are computed "
                        "for at most %" PRId64,
                        tokens, most);
}

static const json_t *shown_tools(const Ask *a)
{
    return a->calls.set.n && a->calls.choice != TOOLS_NONE ? a->calls.set.shown : NULL;
}

/* By the chat template, and the time in this place. */
static int encode_messages(const Served *m, const Ask *a, TokenIds *prompt, cvn_err *err)
{
    time_t clock = a->input.now ? (time_t)a->input.now : time(NULL);
    struct tm now;
    const ChatInput input = {.messages = a->input.messages,
                             .tools = m->chat.answers.calls.plain ? NULL : shown_tools(a),
                             .variables = a->input.template_variables,
                             .generation_prompt =
                                 a->input.add_generation_prompt && !a->input.continue_final_message,
                             .continues = a->input.continue_final_message ? "content" : NULL,
                             .now = localtime_r(&clock, &now)};
    return chat_template_encode(m->chat.template, m->tokenizer, &input, prompt, NULL, err);
}

/* How much to think is a variable of templates; some know only whether to think at all. */
static int apply_effort(const Served *m, Ask *a, Refusal *why)
{
    const char *source = chat_template_source(m->chat.template);
    bool none = a->input.effort && strcmp(a->input.effort, "none") == 0;
    if (!a->input.effort || (none && !m->chat.answers.form))
        return 0;
    bool graded = strstr(source, "reasoning_effort");
    if (!graded && !strstr(source, "enable_thinking"))
        return refuse(why, 400, a->input.effort_field,
                      "%s = %s is not supported: the model's chat template has no variable for it",
                      a->input.effort_field, a->input.effort);
    json_t *variables = json_object();
    if (a->input.template_variables)
        json_object_update(variables, (json_t *)(uintptr_t)a->input.template_variables);
    json_object_set_new(variables, graded ? "reasoning_effort" : "enable_thinking",
                        graded ? json_string(a->input.effort) : json_boolean(!none));
    json_object_set_new(a->body, "chat_template_kwargs", variables);
    a->input.template_variables = variables;
    return 0;
}

int prompt_of_messages(Server *s, Ask *a, Refusal *why)
{
    if (find_model(s, a, why))
        return why->status;
    const Served *m = a->served;
    if (a->output.top_logprobs && !a->output.logprobs)
        return refuse(why, 400, "top_logprobs", "top_logprobs requires logprobs");
    a->input.n_messages = json_array_size(a->input.messages);
    if (!a->input.n_messages)
        return refuse(why, 400, "messages", "messages are missing");
    if (!m->chat.template)
        return refuse(why, 400, "messages", "the model has no chat template: %s",
                      m->chat.why.message);
    if (apply_effort(m, a, why) || tools_finish(a, &m->chat.answers.calls, why) ||
        make_prompts(a, 1, "messages", why))
        return why->status;
    if (a->input.continue_final_message &&
        json_is_true(json_object_get(a->body, "add_generation_prompt")))
        return refuse(why, 400, "continue_final_message",
                      "continue_final_message and add_generation_prompt contradict each other");
    if (m->chat.answers.calls.plain) {
        json_t *plain =
            plain_messages(a->input.messages, shown_tools(a), m->chat.answers.calls.system);
        if (!plain)
            return refuse(why, 500, NULL, "no memory for the conversation");
        json_decref(a->input.messages);
        a->input.messages = plain;
    }
    cvn_err err = {0};
    if (encode_messages(m, a, a->input.prompt, &err))
        return refuse(why, err.code == CVN_EMEM ? 500 : 400, "messages", "%s", err.message);
    return check_prompt(m, a->input.prompt, "messages", why) || check_scoring(a, why) ? why->status
                                                                                      : 0;
}

static int encode_text(const Served *m, const json_t *text, bool add_special, const char *field,
                       TokenIds *out, Refusal *why)
{
    cvn_err err = {0};
    if (!m->tokenizer)
        return refuse(why, 400, field, "the model has no tokenizer; send token ids");
    if (tokenizer_encode(m->tokenizer, json_string_value(text), json_string_length(text),
                         add_special ? TOKENIZER_BOS : 0, out, &err))
        return refuse(why, err.code == CVN_EMEM ? 500 : 400, field, "%s", err.message);
    return check_prompt(m, out, field, why);
}

static int take_ids(const Served *m, const json_t *ids, const char *field, TokenIds *out,
                    Refusal *why)
{
    int64_t vocab = cvn_model_vocab(m->model);
    if ((int64_t)json_array_size(ids) > m->context)
        return refuse(why, 400, field,
                      "the prompt has %zu tokens, and the maximum context length is %" PRId64
                      " tokens",
                      json_array_size(ids), m->context);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const json_t *id = json_array_get(ids, i);
        int64_t token = json_is_integer(id) ? json_integer_value(id) : -1;
        if (token < 0 || token >= vocab)
            return refuse(why, 400, field,
                          "element %zu of the prompt is not a token id from 0 to below %" PRId64, i,
                          vocab);
        token_ids_add(out, (int32_t)token);
    }
    return check_prompt(m, out, field, why);
}

/* "text", [1, 2], ["text", "text"] or [[1, 2], [3]]. */
int prompts_of_texts(Server *s, Ask *a, const char *field, Refusal *why)
{
    const json_t *given = a->input.prompts;
    if (find_model(s, a, why))
        return why->status;
    const Served *m = a->served;
    if (!given)
        return refuse(why, 400, field, "the %s is missing", field);
    bool one = json_is_string(given) || json_is_integer(json_array_get(given, 0));
    if (make_prompts(a, one ? 1 : json_array_size(given), field, why))
        return why->status;
    for (int i = 0; i < a->input.n_prompts; i++) {
        const json_t *p = one ? given : json_array_get(given, (size_t)i);
        if (json_is_string(p))
            encode_text(m, p, a->output.add_special_tokens, field, &a->input.prompt[i], why);
        else if (json_is_array(p))
            take_ids(m, p, field, &a->input.prompt[i], why);
        else
            refuse(why, 400, field, "%s %d is neither a string nor an array of token ids", field,
                   i);
        if (why->status)
            return why->status;
    }
    return 0;
}

int prompts_of_completion(Server *s, Ask *a, Refusal *why)
{
    if (prompts_of_texts(s, a, "prompt", why))
        return why->status;
    if (a->sampling.max_tokens < 0)
        a->sampling.max_tokens = 16; /* OpenAI's default */
    return check_scoring(a, why);
}
