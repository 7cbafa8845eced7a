#include "server/fields.h"

#include "base/json_reader.h"
#include "base/suggest.h"
#include "server/conversation.h"
#include "server/tools.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- what no kind of field can say ---- */

static int wrong_type(const char *name, const json_t *value, const char *want, Refusal *why)
{
    char text[80];
    return refuse(why, 400, name, "%s is %s, expected %s", name,
                  json_value_text(value, text, sizeof text), want);
}

static int add_stop(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    if (!json_is_string(value))
        return wrong_type(name, value, "a string, or an array of strings,", why);
    size_t n = json_string_length(value);
    if (n == 0 || n > ASK_MAX_STOP_BYTES || strlen(json_string_value(value)) != n)
        return refuse(
            why, 400, name,
            "a string of %s has %zu bytes or contains NUL; give 1 to %d bytes without NUL", name, n,
            ASK_MAX_STOP_BYTES);
    a->stops.text[a->stops.n++] = json_string_value(value);
    return 0;
}

static int read_encoding(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *text = json_string_value(value);
    a->output.base64 = text && strcmp(text, "base64") == 0;
    return a->output.base64 || (text && strcmp(text, "float") == 0)
               ? 0
               : wrong_type(name, value, "\"float\" or \"base64\"", why);
}

static int read_stop(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (n > ASK_MAX_STOPS)
        return refuse(why, 400, name, "%s has %zu strings; give at most %d", name, n,
                      ASK_MAX_STOPS);
    a->stops.text = calloc(n + 1, sizeof *a->stops.text);
    if (!a->stops.text)
        return refuse(why, 500, NULL, "no memory for the request");
    if (!json_is_array(value))
        return add_stop(a, name, value, why);
    int status = 0;
    for (size_t i = 0; i < n && !status; i++)
        status = add_stop(a, name, json_array_get(value, i), why);
    return status;
}

static int read_stop_ids(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    if (!json_is_array(value) || json_array_size(value) > ASK_MAX_STOPS)
        return wrong_type(name, value, "an array of at most 64 token ids", why);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *id = json_array_get(value, i);
        if (!json_is_integer(id) || json_integer_value(id) < 0 ||
            json_integer_value(id) > INT32_MAX)
            return wrong_type(name, id, "a token id", why);
        token_ids_add(&a->stops.ids, (int32_t)json_integer_value(id));
    }
    return a->stops.ids.failed ? refuse(why, 500, NULL, "no memory for the request") : 0;
}

static int read_seed(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    if (!json_is_integer(value))
        return wrong_type(name, value, "an integer", why);
    a->sampling.has_seed = true;
    a->sampling.seed = json_integer_value(value);
    return 0;
}

static int read_stream_options(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    static const struct {
        const char *name;
        size_t at;
    } flags[] = {{"include_usage", offsetof(Ask, output.include_usage)},
                 {"continuous_usage_stats", offsetof(Ask, output.continuous_usage)}};
    const char *key;
    json_t *flag;
    if (!json_is_object(value))
        return wrong_type(name, value, "an object", why);
    json_object_foreach((json_t *)(uintptr_t)value, key, flag)
    {
        size_t i = 0;
        while (i < 2 && strcmp(key, flags[i].name) != 0)
            i++;
        /* include_obfuscation: padding against listeners, which no answer depends on */
        if (i == 2 && strcmp(key, "include_obfuscation") != 0)
            return refuse(
                why, 400, name,
                "%s: unknown field \"%.60s\"; known are include_usage and continuous_usage_stats",
                name, key);
        if (!json_is_boolean(flag))
            return wrong_type(key, flag, "true or false", why);
        if (i < 2)
            *(bool *)((char *)a + flags[i].at) = json_is_true(flag);
    }
    return 0;
}

/* ---- completions ---- */

/* It is read when the tokenizer is at hand. */
static int read_prompts(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    if (!json_is_string(value) && !json_is_array(value))
        return wrong_type(name, value, "a string, token ids, or an array of these", why);
    a->input.prompts = value;
    return 0;
}

/* {"50256": -100}, with OpenAI's range. */
static int read_bias(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *key;
    json_t *bias;
    if (!json_is_object(value))
        return wrong_type(name, value, "an object of token ids and biases", why);
    if (json_object_size(value) > ASK_MAX_BIAS)
        return refuse(why, 400, name, "%s has %zu tokens; give at most %d", name,
                      json_object_size(value), ASK_MAX_BIAS);
    a->sampling.bias = calloc(json_object_size(value) + 1, sizeof *a->sampling.bias);
    if (!a->sampling.bias)
        return refuse(why, 500, NULL, "no memory for the request");
    json_object_foreach((json_t *)(uintptr_t)value, key, bias)
    {
        char *end;
        long id = strtol(key, &end, 10);
        double x = json_number_value(bias);
        if (*end || end == key || id < 0 || id > INT32_MAX)
            return refuse(why, 400, name, "\"%.40s\" is not a token id", key);
        if (!json_is_number(bias) || !(x >= -100 && x <= 100))
            return refuse(why, 400, name, "the bias of token %ld is not a number from -100 to 100",
                          id);
        a->sampling.bias[a->sampling.n_bias++] = (cvn_bias){.token = (int32_t)id, .bias = (float)x};
    }
    return 0;
}

/* How many of the likeliest tokens: a number, 0 or more, asks for logprobs too. */
static int read_logprobs(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        json_integer_value(value) > ASK_MAX_TOP_LOGPROBS)
        return wrong_type(name, value, "an integer from 0 to 20", why);
    a->output.logprobs = true;
    a->output.top_logprobs = json_integer_value(value);
    return 0;
}

/* Variables of the chat template. Those that it has for itself are fields of a request, or nothing to ask for. */
static int read_template_variables(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!json_is_object(value))
        return wrong_type(name, value, "an object", why);
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (json_object_get(value, own[i]))
            return refuse(why, 400, name, "%s sets %s, which is reserved by the chat template",
                          name, own[i]);
    a->input.template_variables = value;
    return 0;
}

static int read_effort(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    static const char *const words[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
    const char *text = json_string_value(value);
    for (size_t i = 0; text && i < sizeof words / sizeof *words; i++)
        if (strcmp(text, words[i]) == 0) {
            a->input.effort = text;
            a->input.effort_field = name;
            return 0;
        }
    return wrong_type(name, value, "none, minimal, low, medium, high or xhigh", why);
}

/* {"effort": "low", "summary": null} */
static int read_reasoning(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return wrong_type(name, value, "an object", why);
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        if (json_is_null(member))
            continue;
        if (strcmp(key, "effort") != 0)
            return refuse(why, 400, name, "%s: \"%.60s\" is not supported", name, key);
        if (read_effort(a, name, member, why))
            return why->status;
    }
    return 0;
}

/* ---- the tables ---- */

#define AT(member) offsetof(Ask, member)

static const Field sampling[] = {
    {"model", .kind = FIELD_STRING, .at = AT(model)},
    {"adapter", .kind = FIELD_STRING, .at = AT(adapter_name)},
    {"temperature", .kind = FIELD_REAL, .high = 100, .at = AT(sampling.temperature)},
    {"top_p", .kind = FIELD_REAL, .high = 1, .at = AT(sampling.top_p)},
    {"top_k", .kind = FIELD_INT, .low = -1, .high = INT32_MAX, .at = AT(sampling.top_k)},
    {"stream", .kind = FIELD_BOOL, .at = AT(output.stream)},
    {"metadata", .kind = FIELD_NEUTRAL},
    {"service_tier", .kind = FIELD_NEUTRAL},
    {0},
};

/* What both of OpenAI's older dialects have, vLLM's additions among it. */
static const Field openai[] = {
    {"n", .kind = FIELD_INT, .low = 1, .high = 128, .at = AT(sampling.n)},
    {"seed", .kind = FIELD_READ, .read = read_seed},
    {"stop", .kind = FIELD_READ, .read = read_stop},
    {"stop_token_ids", .kind = FIELD_READ, .read = read_stop_ids},
    {"max_tokens", .kind = FIELD_INT, .high = 1 << 30, .at = AT(sampling.max_tokens)},
    {"min_p", .kind = FIELD_REAL, .high = 1, .at = AT(sampling.min_p)},
    {"repetition_penalty", .kind = FIELD_REAL, .low = 0.01, .high = 100,
     .at = AT(sampling.repetition_penalty)},
    {"ignore_eos", .kind = FIELD_BOOL, .at = AT(sampling.ignore_eos)},
    {"stream_options", .kind = FIELD_READ, .read = read_stream_options},
    {"return_token_ids", .kind = FIELD_BOOL, .at = AT(output.return_token_ids)},
    {"receipt", .kind = FIELD_BOOL, .at = AT(output.receipt)},
    {"skip_special_tokens", .kind = FIELD_BOOL, .at = AT(output.skip_special_tokens)},
    {"user", .kind = FIELD_NEUTRAL},
    {"request_id", .kind = FIELD_NEUTRAL},
    {"session_id", .kind = FIELD_NEUTRAL},
    {"spaces_between_special_tokens", .kind = FIELD_ONLY, .only = "[false]"},
    {"include_stop_str_in_output", .kind = FIELD_ONLY, .only = "[false]"},
    {"presence_penalty", .kind = FIELD_REAL, .low = -2, .high = 2,
     .at = AT(sampling.presence_penalty)},
    {"frequency_penalty", .kind = FIELD_REAL, .low = -2, .high = 2,
     .at = AT(sampling.frequency_penalty)},
    {"logit_bias", .kind = FIELD_READ, .read = read_bias},
    {"min_tokens", .kind = FIELD_INT, .high = 1 << 30, .at = AT(sampling.min_tokens)},
    {"bad_words", .kind = FIELD_ONLY, .only = "[[]]"},
    {"allowed_token_ids", .kind = FIELD_ONLY, .only = "[]"},
    {"logprob_token_ids", .kind = FIELD_ONLY, .only = "[]"},
    {"prompt_logprobs", .kind = FIELD_INT, .high = ASK_MAX_TOP_LOGPROBS,
     .at = AT(output.prompt_logprobs)},
    {"truncate_prompt_tokens", .kind = FIELD_ONLY, .only = "[]"},
    {"priority", .kind = FIELD_INT, .low = -1000, .high = 1000, .at = AT(queue.priority)},
    {"cache_salt", .kind = FIELD_STRING, .at = AT(queue.cache_salt)},
    {"return_tokens_as_token_ids", .kind = FIELD_ONLY, .only = "[false]"},
    {"best_of", .kind = FIELD_ONLY, .only = "[1]"},
    {"response_format", .kind = FIELD_READ, .read = read_response_format},
    {"structured_outputs", .kind = FIELD_READ, .read = read_structured_outputs},
    {0},
};

/* How a conversation becomes a prompt. */
static const Field by_template[] = {
    {"add_generation_prompt", .kind = FIELD_BOOL, .at = AT(input.add_generation_prompt)},
    {"continue_final_message", .kind = FIELD_BOOL, .at = AT(input.continue_final_message)},
    {"chat_template_kwargs", .kind = FIELD_READ, .read = read_template_variables},
    {"reasoning_effort", .kind = FIELD_READ, .read = read_effort},
    {0},
};

static const Field chat[] = {
    {"messages", .kind = FIELD_READ, .read = read_messages},
    {"max_completion_tokens", .kind = FIELD_INT, .high = 1 << 30, .at = AT(sampling.max_tokens)},
    {"logprobs", .kind = FIELD_BOOL, .at = AT(output.logprobs)},
    {"top_logprobs", .kind = FIELD_INT, .high = ASK_MAX_TOP_LOGPROBS,
     .at = AT(output.top_logprobs)},
    {"echo", .kind = FIELD_ONLY, .only = "[false]"},
    {"chat_template", .kind = FIELD_ONLY, .only = "[]"},
    {"documents", .kind = FIELD_ONLY, .only = "[[]]"},
    {"tools", .kind = FIELD_READ, .read = read_chat_tools},
    {"tool_choice", .kind = FIELD_READ, .read = read_tool_choice},
    {"parallel_tool_calls", .kind = FIELD_BOOL, .at = AT(calls.parallel_tool_calls)},
    {"max_tool_calls", .kind = FIELD_INT, .low = 1, .high = 128, .at = AT(calls.max_tool_calls)},
    {"functions", .kind = FIELD_ONLY, .only = "[[]]"},
    {"function_call", .kind = FIELD_ONLY, .only = "[\"none\", \"auto\"]"},
    {"thinking_token_budget", .kind = FIELD_ONLY, .only = "[]"},
    {"verbosity", .kind = FIELD_ONLY, .only = "[\"medium\"]"},
    {"modalities", .kind = FIELD_ONLY, .only = "[[\"text\"]]"},
    {"audio", .kind = FIELD_ONLY, .only = "[]"},
    {"prediction", .kind = FIELD_ONLY, .only = "[]"},
    {"web_search_options", .kind = FIELD_ONLY, .only = "[]"},
    {"store", .kind = FIELD_ONLY, .only = "[false]"},
    {"safety_identifier", .kind = FIELD_NEUTRAL},
    {"prompt_cache_key", .kind = FIELD_NEUTRAL},
    {"prompt_cache_retention", .kind = FIELD_NEUTRAL},
    {0},
};

static const Field completions[] = {
    {"prompt", .kind = FIELD_READ, .read = read_prompts},
    {"echo", .kind = FIELD_BOOL, .at = AT(output.echo)},
    {"logprobs", .kind = FIELD_READ, .read = read_logprobs},
    {"suffix", .kind = FIELD_ONLY, .only = "[\"\"]"},
    {0},
};

static const Field responses[] = {
    {"input", .kind = FIELD_READ, .read = read_responses_input},
    {"instructions", .kind = FIELD_READ, .read = read_system},
    {"max_output_tokens", .kind = FIELD_INT, .low = 1, .high = 1 << 30,
     .at = AT(sampling.max_tokens)},
    {"seed", .kind = FIELD_READ, .read = read_seed},
    {"min_p", .kind = FIELD_REAL, .high = 1, .at = AT(sampling.min_p)},
    {"store", .kind = FIELD_ONLY, .only = "[false]"},
    {"background", .kind = FIELD_ONLY, .only = "[false]"},
    {"conversation", .kind = FIELD_ONLY, .only = "[]"},
    {"previous_response_id", .kind = FIELD_ONLY, .only = "[]"},
    {"prompt", .kind = FIELD_ONLY, .only = "[]"},
    {"include", .kind = FIELD_ONLY, .only = "[[]]"},
    {"reasoning", .kind = FIELD_READ, .read = read_reasoning},
    {"text", .kind = FIELD_READ, .read = read_responses_text},
    {"tools", .kind = FIELD_READ, .read = read_responses_tools},
    {"tool_choice", .kind = FIELD_READ, .read = read_tool_choice},
    {"parallel_tool_calls", .kind = FIELD_BOOL, .at = AT(calls.parallel_tool_calls)},
    {"max_tool_calls", .kind = FIELD_INT, .low = 1, .high = 128, .at = AT(calls.max_tool_calls)},
    {"top_logprobs", .kind = FIELD_ONLY, .only = "[0]"},
    {"truncation", .kind = FIELD_ONLY, .only = "[\"disabled\"]"},
    {"stream_options", .kind = FIELD_READ, .read = read_stream_options},
    {"user", .kind = FIELD_NEUTRAL},
    {"safety_identifier", .kind = FIELD_NEUTRAL},
    {"prompt_cache_key", .kind = FIELD_NEUTRAL},
    {"prompt_cache_retention", .kind = FIELD_NEUTRAL},
    {0},
};

static const Field messages[] = {
    {"messages", .kind = FIELD_READ, .read = read_anthropic_messages},
    {"system", .kind = FIELD_READ, .read = read_system},
    {"tools", .kind = FIELD_READ, .read = read_messages_tools},
    {"tool_choice", .kind = FIELD_READ, .read = read_messages_tool_choice},
    {"thinking", .kind = FIELD_ONLY, .only = "[{\"type\": \"disabled\"}]"},
    {"cache_control", .kind = FIELD_NEUTRAL},
    {"context_management", .kind = FIELD_ONLY, .only = "[]"},
    {"mcp_servers", .kind = FIELD_ONLY, .only = "[[]]"},
    {"output_config", .kind = FIELD_READ, .read = read_output_config},
    {"output_format", .kind = FIELD_READ, .read = read_output_format},
    {0},
};

static const Field messages_answer[] = {
    {"max_tokens", .kind = FIELD_INT, .low = 1, .high = 1 << 30, .at = AT(sampling.max_tokens)},
    {"stop_sequences", .kind = FIELD_READ, .read = read_stop},
    {"seed", .kind = FIELD_READ, .read = read_seed},
    {"container", .kind = FIELD_ONLY, .only = "[]"},
    {"max_tool_calls", .kind = FIELD_INT, .low = 1, .high = 128, .at = AT(calls.max_tool_calls)},
    {"inference_geo", .kind = FIELD_NEUTRAL},
    {0},
};

static const Field count[] = {{"model", .kind = FIELD_STRING, .at = AT(model)},
                              {"adapter", .kind = FIELD_STRING, .at = AT(adapter_name)},
                              {0}};

/* What turns into a prompt, without an answer. */
static const Field tokenize[] = {
    {"tools", .kind = FIELD_READ, .read = read_chat_tools},
    {"prompt", .kind = FIELD_READ, .read = read_prompts},
    {"messages", .kind = FIELD_READ, .read = read_messages},
    {"add_special_tokens", .kind = FIELD_BOOL, .at = AT(output.add_special_tokens)},
    {"return_token_strs", .kind = FIELD_BOOL, .at = AT(output.return_token_strs)},
    {0},
};

static const Field embeddings[] = {
    {"input", .kind = FIELD_READ, .read = read_prompts},
    {"encoding_format", .kind = FIELD_READ, .read = read_encoding},
    {"dimensions", .kind = FIELD_INT, .low = 1, .high = 1 << 30, .at = AT(output.dimensions)},
    {"add_special_tokens", .kind = FIELD_BOOL, .at = AT(output.add_special_tokens)},
    {"priority", .kind = FIELD_NEUTRAL},
    {"truncate_prompt_tokens", .kind = FIELD_ONLY, .only = "[]"},
    {"user", .kind = FIELD_NEUTRAL},
    {0},
};

static const Field detokenize[] = {
    {"tokens", .kind = FIELD_READ, .read = read_prompts},
    {0},
};

static const Field apply_template[] = {
    {"tools", .kind = FIELD_READ, .read = read_chat_tools},
    {"messages", .kind = FIELD_READ, .read = read_messages},
    {0},
};

const Fields fields_chat = {"chat.completions",
                            (const Field *const[]){sampling, openai, by_template, chat, NULL}};
const Fields fields_completions = {"completions",
                                   (const Field *const[]){sampling, openai, completions, NULL}};
const Fields fields_responses = {"responses", (const Field *const[]){sampling, responses, NULL}};
const Fields fields_messages = {"messages",
                                (const Field *const[]){sampling, messages, messages_answer, NULL}};
const Fields fields_embeddings = {"embeddings", (const Field *const[]){count, embeddings, NULL}};
const Fields fields_count_tokens = {"messages/count_tokens",
                                    (const Field *const[]){count, messages, NULL}};
const Fields fields_tokenize = {"tokenize",
                                (const Field *const[]){count, by_template, tokenize, NULL}};
const Fields fields_detokenize = {"detokenize", (const Field *const[]){count, detokenize, NULL}};
const Fields fields_apply_template = {
    "apply-template", (const Field *const[]){count, by_template, apply_template, NULL}};

/* ---- reading ---- */

static const Field *find(const Fields *fields, const char *name)
{
    for (const Field *const *table = fields->tables; *table; table++)
        for (const Field *f = *table; f->name; f++)
            if (strcmp(f->name, name) == 0)
                return f;
    return NULL;
}

static const char *field_at(const void *list, size_t i)
{
    const Fields *fields = list;
    for (const Field *const *table = fields->tables; *table; table++)
        for (const Field *f = *table; f->name; f++)
            if (i-- == 0)
                return f->name;
    return NULL;
}

/* A field that no row has: one that is spelt alike, or the request that has it, may have been meant. */
static int refuse_unknown(const Fields *fields, const char *name, Refusal *why)
{
    static const Fields *const others[] = {&fields_chat,     &fields_completions, &fields_responses,
                                           &fields_messages, &fields_embeddings,  &fields_tokenize};
    const char *near = suggest(name, field_at, fields);
    if (near)
        return refuse(why, 400, name, "unknown field \"%.60s\" in %s; did you mean %s?", name,
                      fields->name, near);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (find(others[i], name))
            return refuse(why, 400, name, "unknown field \"%.60s\": it is a field of %s, not of %s",
                          name, others[i]->name, fields->name);
    return refuse(why, 400, name, "unknown field \"%.60s\" in %s", name, fields->name);
}

static int read_number(Ask *a, const Field *f, const json_t *value, Refusal *why)
{
    bool whole = f->kind == FIELD_INT;
    if (whole ? !json_is_integer(value) : !json_is_number(value))
        return wrong_type(f->name, value, whole ? "an integer" : "a number", why);
    double x = json_number_value(value);
    if ((f->low < f->high && (x < f->low || x > f->high)) || !isfinite(x))
        return refuse(why, 400, f->name, "%s is %.15g; give %.15g to %.15g", f->name, x, f->low,
                      f->high);
    if (whole)
        *(int64_t *)((char *)a + f->at) = json_integer_value(value);
    else
        *(double *)((char *)a + f->at) = x;
    return 0;
}

static int read_only(const Field *f, const json_t *value, Refusal *why)
{
    json_t *accepted = json_loads(f->only, 0, NULL);
    bool fine = false;
    for (size_t i = 0; i < json_array_size(accepted); i++)
        fine = fine || json_equal(json_array_get(accepted, i), value);
    json_decref(accepted);
    char text[80];
    return fine ? 0
                : refuse(why, 400, f->name, "%s = %s is not supported", f->name,
                         json_value_text(value, text, sizeof text));
}

static int read_field(Ask *a, const Field *f, const json_t *value, Refusal *why)
{
    switch (f->kind) {
    case FIELD_INT:
    case FIELD_REAL:
        return read_number(a, f, value, why);
    case FIELD_BOOL:
        if (!json_is_boolean(value))
            return wrong_type(f->name, value, "true or false", why);
        *(bool *)((char *)a + f->at) = json_is_true(value);
        return 0;
    case FIELD_STRING:
        if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value))
            return wrong_type(f->name, value, "a string", why);
        *(const char **)((char *)a + f->at) = json_string_value(value);
        return 0;
    case FIELD_READ:
        return f->read(a, f->name, value, why);
    case FIELD_ONLY:
        return read_only(f, value, why);
    case FIELD_NEUTRAL:
        break;
    }
    return 0;
}

int fields_read(const Fields *fields, Ask *a, bool lenient, Refusal *why)
{
    const char *name;
    json_t *value;
    json_object_foreach(a->body, name, value)
    {
        const Field *f = find(fields, name);
        if (json_is_null(value) && f)
            continue;
        Refusal here = {0};
        if (f)
            read_field(a, f, value, &here);
        else
            refuse_unknown(fields, name, &here);
        if (here.status && lenient && (!f || f->kind == FIELD_ONLY)) {
            strbuf_printf(&a->ignored, "%s%.60s", a->ignored.length ? ", " : "", name);
        } else if (here.status) {
            *why = here;
            return here.status;
        }
    }
    return 0;
}
