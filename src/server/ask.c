#include "server/ask.h"

#include "base/map.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

void ask_init(Ask *a)
{
    *a = (Ask){.n = 1,
               .max_tokens = -1,
               .prompt_logprobs = -1,
               .temperature = 1,
               .top_p = 1,
               .repetition_penalty = 1,
               .add_generation_prompt = true,
               .parallel_tool_calls = true,
               .max_tool_calls = 16,
               .add_special_tokens = true,
               .skip_special_tokens = true,
               .adapter = -1};
}

void ask_free(Ask *a)
{
    for (int i = 0; i < a->n_prompts; i++)
        token_ids_free(&a->prompt[i]);
    for (int i = 0; i < a->n_tools; i++)
        cvn_constraint_free(a->tool[i].arguments);
    cvn_constraint_free(a->constraint);
    cvn_constraint_free(a->names);
    cvn_constraint_free(a->again);
    free(a->tool);
    json_decref(a->tools);
    json_decref(a->messages);
    free(a->prompt);
    free(a->stop);
    free(a->bias);
    token_ids_free(&a->stop_ids);
    strbuf_free(&a->ignored);
    json_decref(a->body);
    *a = (Ask){0};
}

void ask_forget_text(Ask *a)
{
    json_decref(a->messages);
    a->messages = NULL;
    a->prompts = a->template_variables = NULL;
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
    int64_t echoed = a->echo && a->logprobs ? a->top_logprobs : -1;
    return (int)(echoed > a->prompt_logprobs ? echoed : a->prompt_logprobs);
}

cvn_request ask_request(const Ask *a, int index, uint64_t seed)
{
    const TokenIds *prompt = &a->prompt[index / a->n];
    return (cvn_request){.prompt = prompt->id,
                         .n_prompt = (int64_t)prompt->n,
                         .max_tokens = a->max_tokens < 0 ? INT64_MAX : a->max_tokens,
                         .ignore_eos = a->ignore_eos,
                         .bias = a->bias,
                         .n_bias = a->n_bias,
                         .min_tokens = a->min_tokens,
                         .constraint = a->constraint,
                         .adapter = a->adapter,
                         .key = (uint64_t)a->key,
                         .priority = (int)a->priority,
                         .cache_salt =
                             a->cache_salt ? hash_bytes(a->cache_salt, strlen(a->cache_salt)) : 0,
                         .sampling = {.temperature = (float)a->temperature,
                                      .top_k = (int32_t)(a->top_k > 0 ? a->top_k : 0),
                                      .top_p = (float)(a->top_p > 1e-6 ? a->top_p : 1e-6),
                                      .min_p = (float)a->min_p,
                                      .repeat_penalty = (float)a->repetition_penalty,
                                      .presence_penalty = (float)a->presence_penalty,
                                      .frequency_penalty = (float)a->frequency_penalty,
                                      .seed = rng_seed(seed, (uint64_t)(index % a->n))}};
}
