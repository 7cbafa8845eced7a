#include "server/ask.h"

#include "base/map.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

void ask_init(Ask *a)
{
    *a = (Ask){
        .adapter = -1,
        .input = {.add_generation_prompt = true},
        .sampling =
            {.n = 1, .max_tokens = -1, .temperature = 1, .top_p = 1, .repetition_penalty = 1},
        .calls = {.parallel_tool_calls = true, .max_tool_calls = 16},
        .output = {.prompt_logprobs = -1, .add_special_tokens = true, .skip_special_tokens = true}};
}

void ask_free(Ask *a)
{
    for (int i = 0; i < a->input.n_prompts; i++)
        token_ids_free(&a->input.prompt[i]);
    cvn_constraint_free(a->constraint);
    tool_set_free(&a->calls.set);
    json_decref(a->input.messages);
    free(a->input.prompt);
    free(a->stops.text);
    free(a->sampling.bias);
    token_ids_free(&a->stops.ids);
    strbuf_free(&a->ignored);
    json_decref(a->body);
    *a = (Ask){0};
}

void ask_forget_text(Ask *a)
{
    json_decref(a->input.messages);
    a->input.messages = NULL;
    a->input.prompts = a->input.template_variables = NULL;
    static const char *const texts[] = {"prompt", "messages", "input", "system",
                                        "chat_template_kwargs"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        json_object_del(a->body, texts[i]);
}

/* How deeply arrays and objects lie in each other: known before anything recursive reads them. */
static int depth_of(const char *text, size_t n)
{
    int depth = 0, most = 0;
    bool quoted = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (quoted && c == '\\')
            i++;
        else if (c == '"')
            quoted = !quoted;
        else if (!quoted && (c == '[' || c == '{'))
            most = ++depth > most ? depth : most;
        else if (!quoted && (c == ']' || c == '}'))
            depth--;
    }
    return most;
}

int ask_parse(const char *text, size_t n, json_t **out, Refusal *why)
{
    json_error_t where;
    *out = NULL;
    if (depth_of(text, n) > ASK_MAX_DEPTH)
        return refuse(why, 400, NULL, "the body nests arrays and objects more than %d levels deep",
                      ASK_MAX_DEPTH);
    json_t *json = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &where);
    if (!json)
        return refuse(why, 400, NULL, "the body is not valid JSON: line %d, column %d: %s",
                      where.line, where.column, where.text);
    if (!json_is_object(json)) {
        json_decref(json);
        return refuse(why, 400, NULL, "the body is not a JSON object");
    }
    *out = json;
    return 0;
}

int ask_prompt_top(const Ask *a)
{
    int64_t echoed = a->output.echo && a->output.logprobs ? a->output.top_logprobs : -1;
    return (int)(echoed > a->output.prompt_logprobs ? echoed : a->output.prompt_logprobs);
}

cvn_request ask_request(const Ask *a, int index, uint64_t seed)
{
    const TokenIds *prompt = &a->input.prompt[index / a->sampling.n];
    return (cvn_request){
        .prompt = prompt->id,
        .n_prompt = (int64_t)prompt->n,
        .max_tokens = a->sampling.max_tokens < 0 ? INT64_MAX : a->sampling.max_tokens,
        .ignore_eos = a->sampling.ignore_eos,
        .bias = a->sampling.bias,
        .n_bias = a->sampling.n_bias,
        .min_tokens = a->sampling.min_tokens,
        .constraint = a->constraint,
        .adapter = a->adapter,
        .key = (uint64_t)a->queue.key,
        .priority = (int)a->queue.priority,
        .cache_salt =
            a->queue.cache_salt ? hash_bytes(a->queue.cache_salt, strlen(a->queue.cache_salt)) : 0,
        .sampling = {.temperature = (float)a->sampling.temperature,
                     .top_k = (int32_t)(a->sampling.top_k > 0 ? a->sampling.top_k : 0),
                     .top_p = (float)(a->sampling.top_p > 1e-6 ? a->sampling.top_p : 1e-6),
                     .min_p = (float)a->sampling.min_p,
                     .repeat_penalty = (float)a->sampling.repetition_penalty,
                     .presence_penalty = (float)a->sampling.presence_penalty,
                     .frequency_penalty = (float)a->sampling.frequency_penalty,
                     .seed = rng_seed(seed, (uint64_t)(index % a->sampling.n))}};
}
