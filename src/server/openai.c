/* Chat completions and completions as OpenAI defined them, with vLLM's additions. */
#include "server/internal.h"

#include "text/utf8.h"

#include <stdlib.h>

json_t *json_text_of(const char *text, size_t n)
{
    if (!n)
        return json_string("");
    json_t *whole = utf8_valid(text, n) ? json_stringn_nocheck(text, n) : NULL;
    if (whole)
        return whole;
    StrBuf clean = {0};
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        strbuf_add(&clean, length ? text + i : "\xef\xbf\xbd", length ? (size_t)length : 3);
        i += length ? (size_t)length : 1;
    }
    whole = json_stringn_nocheck(clean.text ? clean.text : "", clean.length);
    strbuf_free(&clean);
    return whole;
}

void put_event(StrBuf *out, const char *name, json_t *json)
{
    char *text = json_dumps(json, JSON_COMPACT);
    if (name)
        strbuf_printf(out, "event: %s\n", name);
    strbuf_puts(out, "data: ");
    strbuf_puts(out, text ? text : "{}");
    strbuf_puts(out, "\n\n");
    out->failed = out->failed || !text;
    free(text);
    json_decref(json);
}

bool ends_in_calls(const Choice *c)
{
    return choice_calls(c) &&
           (c->end.result.finish == CVN_FINISH_EOS || c->end.result.finish == CVN_FINISH_STOPPED);
}

const char *finish_reason(const Choice *c)
{
    switch (c->end.result.finish) {
    case CVN_FINISH_EOS:
    case CVN_FINISH_STOPPED:
        return "stop";
    case CVN_FINISH_LENGTH:
    case CVN_FINISH_CONTEXT:
        return "length";
    case CVN_FINISH_CANCELLED:
    case CVN_FINISH_CONSTRAINT:
        break;
    }
    return "abort";
}

static bool is_chat(const Exchange *x)
{
    return x->dialect == &dialect_chat;
}

static json_t *usage_json(const Exchange *x)
{
    Usage u = exchange_usage(x);
    return json_pack("{s:I,s:I,s:I,s:{s:I}}", "prompt_tokens", (json_int_t)u.prompt,
                     "completion_tokens", (json_int_t)u.completion, "total_tokens",
                     (json_int_t)(u.prompt + u.completion), "prompt_tokens_details",
                     "cached_tokens", (json_int_t)u.cached);
}

/* What every answer and every chunk begins with. */
static json_t *head(const Exchange *x, const char *object)
{
    char id[48];
    snprintf(id, sizeof id, "%s-%s", is_chat(x) ? "chatcmpl" : "cmpl", x->id);
    return json_pack("{s:s,s:s,s:I,s:s,s:s}", "id", id, "object", object, "created",
                     (json_int_t)x->time.created, "model", answers_as(x), "system_fingerprint",
                     x->ask.served->fingerprint);
}

static json_t *ids_json(const TokenIds *ids, size_t from)
{
    json_t *array = json_array();
    for (size_t i = from; i < ids->n; i++)
        json_array_append_new(array, json_integer(ids->id[i]));
    return array;
}

/* A token's own bytes. */
static json_t *token_text(const Choice *c, int32_t token, StrBuf *bytes)
{
    strbuf_clear(bytes);
    if (c->x->ask.served->tokenizer)
        tokenizer_decode(c->x->ask.served->tokenizer, &token, 1,
                         TOKENIZER_SPECIAL | TOKENIZER_CONTINUE, bytes, NULL);
    return json_text_of(bytes->text, bytes->length);
}

/* JSON has no infinity; OpenAI writes this instead. */
static json_t *logprob_json(float x)
{
    return json_real(x > -9999.f ? (double)x : -9999.0);
}

static json_t *likely_json(const Choice *c, int32_t token, float logprob, StrBuf *bytes)
{
    json_t *json = json_pack("{s:o,s:o}", "token", token_text(c, token, bytes), "logprob",
                             logprob_json(logprob));
    json_t *numbers = json_array();
    for (size_t i = 0; i < bytes->length; i++)
        json_array_append_new(numbers, json_integer((unsigned char)bytes->text[i]));
    json_object_set_new(json, "bytes", numbers);
    return json;
}

/* Of tokens from number `from` on, as chat has it. */
static json_t *chat_logprobs(const Choice *c, size_t from)
{
    StrBuf bytes = {0};
    json_t *content = json_array();
    for (size_t i = from; i < c->likely.n && i < c->tokens.n; i++) {
        const Likely *l = &c->likely.token[i];
        json_t *token = likely_json(c, c->tokens.id[i], l->logprob, &bytes), *top = json_array();
        for (int k = 0; k < l->n_top; k++)
            json_array_append_new(top, likely_json(c, l->top[k].token, l->top[k].logprob, &bytes));
        json_object_set_new(token, "top_logprobs", top);
        json_array_append_new(content, token);
    }
    strbuf_free(&bytes);
    return json_pack("{s:o,s:n}", "content", content, "refusal");
}

/* The likeliest tokens of a place, and the token itself whatever it is: a text and its log-probability. */
static json_t *top_json(const Choice *c, const Likely *l, const char *token)
{
    StrBuf bytes = {0};
    json_t *top = json_object();
    json_object_set_new_nocheck(top, token, logprob_json(l->logprob));
    for (int k = 0; k < l->n_top; k++) {
        json_t *name = token_text(c, l->top[k].token, &bytes);
        json_object_set_new_nocheck(top, json_string_value(name), logprob_json(l->top[k].logprob));
        json_decref(name);
    }
    strbuf_free(&bytes);
    return top;
}

static bool echoes_logprobs(const Choice *c)
{
    return c->x->ask.output.echo && c->x->prompts.seen;
}

/* As completions have it, of tokens [from, to): those of the prompt come first where it is echoed, and of the very first
   nothing can be said. */
static json_t *completion_logprobs(const Choice *c, size_t from, size_t to)
{
    const TokenIds *prompt = &c->x->ask.input.prompt[c->prompt];
    const Likely *seen = echoes_logprobs(c) ? c->x->prompts.seen[c->prompt] : NULL;
    size_t echoed = seen ? prompt->n : 0, offset = 0;
    StrBuf bytes = {0};
    json_t *tokens = json_array(), *logprobs = json_array(), *tops = json_array(),
           *offsets = json_array();
    for (size_t i = 0; i < to && i < echoed + c->likely.n && i < echoed + c->tokens.n; i++) {
        const Likely *l = i < echoed ? &seen[i] : &c->likely.token[i - echoed];
        json_t *text = token_text(c, i < echoed ? prompt->id[i] : c->tokens.id[i - echoed], &bytes);
        bool said = i > 0 || !echoed;
        if (i >= from) {
            json_array_append_new(logprobs, said ? logprob_json(l->logprob) : json_null());
            json_array_append_new(tops,
                                  said ? top_json(c, l, json_string_value(text)) : json_null());
            json_array_append_new(offsets, json_integer((json_int_t)offset));
            json_array_append(tokens, text);
        }
        json_decref(text);
        offset += bytes.length;
    }
    strbuf_free(&bytes);
    return json_pack("{s:o,s:o,s:o,s:o}", "tokens", tokens, "token_logprobs", logprobs,
                     "top_logprobs", tops, "text_offset", offsets);
}

/* Of each token of a prompt but the first: what it was, and the likeliest, by their ids. */
static json_t *prompt_logprobs(const Choice *c)
{
    const TokenIds *prompt = &c->x->ask.input.prompt[c->prompt];
    const Likely *seen = c->x->prompts.seen[c->prompt];
    StrBuf bytes = {0};
    json_t *all = json_array();
    json_array_append_new(all, json_null());
    for (size_t i = 1; i < prompt->n; i++) {
        json_t *place = json_object();
        for (int k = seen[i].n_top; k-- >= 0;) { /* the token itself comes last, and counts */
            int32_t token = k >= 0 ? seen[i].top[k].token : prompt->id[i];
            char id[16];
            snprintf(id, sizeof id, "%d", (int)token);
            json_object_set_new(
                place, id,
                json_pack("{s:o,s:i,s:o}", "logprob",
                          logprob_json(k >= 0 ? seen[i].top[k].logprob : seen[i].logprob), "rank",
                          k >= 0 ? k + 1 : seen[i].rank, "decoded_token",
                          token_text(c, token, &bytes)));
        }
        json_array_append_new(all, place);
    }
    strbuf_free(&bytes);
    return all;
}

static json_t *logprobs_json(const Choice *c, size_t from)
{
    return !c->x->ask.output.logprobs ? json_null()
           : is_chat(c->x)            ? chat_logprobs(c, from)
                                      : completion_logprobs(c, from, SIZE_MAX);
}

/* The first token that is not sent yet, where that of a prompt is echoed. */
static size_t logprobs_from(const Choice *c)
{
    bool echoed = echoes_logprobs(c) && c->x->ask.output.stream;
    return c->sent.tokens + (echoed ? c->x->ask.input.prompt[c->prompt].n : 0);
}

static void set_finish(json_t *choice, const Choice *c)
{
    json_object_set_new(choice, "logprobs", logprobs_json(c, logprobs_from(c)));
    const char *reason = ends_in_calls(c) ? "tool_calls" : finish_reason(c);
    json_object_set_new(choice, "finish_reason", c->end.ended ? json_string(reason) : json_null());
    if (c->end.ended)
        json_object_set_new(choice, "stop_reason",
                            c->end.met ? json_string(c->end.met) : json_null());
}

/* The prompt's text, which echo puts in front. */
static void put_prompt(const Choice *c, StrBuf *out)
{
    const Exchange *x = c->x;
    const TokenIds *prompt = &x->ask.input.prompt[c->prompt];
    if (x->ask.output.echo && x->ask.served->tokenizer)
        tokenizer_decode(x->ask.served->tokenizer, prompt->id, prompt->n, 0, out, NULL);
}

/* Call number k; its arguments from byte `from` on; where it is not the first that is told of it, no more than these. */
static json_t *call_json(const Choice *c, int k, size_t from, bool first, bool streamed)
{
    const Call *call = &c->calls.call[k];
    json_t *function =
        json_pack("{s:o}", "arguments",
                  json_text_of(call->arguments.length ? call->arguments.text + from : "",
                               call->arguments.length - from));
    json_t *json = json_pack("{s:o}", "function", function);
    if (streamed)
        json_object_set_new(json, "index", json_integer(k));
    if (first) {
        json_object_set_new(function, "name", json_string(call->tool->name));
        json_object_set_new(json, "id", json_string(call->id));
        json_object_set_new(json, "type", json_string("function"));
    }
    return json;
}

static json_t *whole_choice(const Choice *c)
{
    const Ask *a = &c->x->ask;
    json_t *choice = json_pack("{s:i}", "index", c->index);
    if (is_chat(c->x)) {
        json_t *message =
            json_pack("{s:s,s:o,s:n,s:[]}", "role", "assistant", "content",
                      json_text_of(c->text.text, c->text.length), "refusal", "annotations");
        if (c->texts.thought.length)
            json_object_set_new(message, "reasoning_content",
                                json_text_of(c->texts.thought.text, c->texts.thought.length));
        json_t *calls = choice_calls(c) ? json_array() : NULL;
        for (int k = 0; k < choice_calls(c); k++)
            json_array_append_new(calls, call_json(c, k, 0, true, false));
        if (calls)
            json_object_set_new(message, "tool_calls", calls);
        if (calls && !c->text.length)
            json_object_set_new(message, "content", json_null());
        json_object_set_new(choice, "message", message);
    } else {
        StrBuf text = {0};
        put_prompt(c, &text);
        strbuf_add(&text, c->text.text ? c->text.text : "", c->text.length);
        json_object_set_new(choice, "text", json_text_of(text.text, text.length));
        strbuf_free(&text);
    }
    set_finish(choice, c);
    if (a->output.prompt_logprobs >= 0 && !is_chat(c->x))
        json_object_set_new(choice, "prompt_logprobs", prompt_logprobs(c));
    if (a->output.receipt) {
        const cvn_request request = ask_request(a, c->index, (uint64_t)a->sampling.seed);
        json_object_set_new(choice, "receipt",
                            receipt_json(&c->receipt, a->served->receipt, &request));
    }
    if (a->output.return_token_ids) {
        json_object_set_new(choice, "token_ids", ids_json(&c->tokens, 0));
        json_object_set_new(choice, "prompt_token_ids", ids_json(&a->input.prompt[c->prompt], 0));
    }
    return choice;
}

static json_t *whole(const Exchange *x)
{
    json_t *answer = head(x, is_chat(x) ? "chat.completion" : "text_completion");
    json_t *choices = json_array();
    for (int i = 0; i < x->n_choices; i++)
        json_array_append_new(choices, whole_choice(&x->choice[i]));
    json_object_set_new(answer, "choices", choices);
    json_object_set_new(answer, "usage", usage_json(x));
    if (is_chat(x) && x->ask.output.prompt_logprobs >= 0)
        json_object_set_new(answer, "prompt_logprobs", prompt_logprobs(&x->choice[0]));
    return answer;
}

/* ---- streams ---- */

static void put_chunk(Exchange *x, json_t *choice)
{
    json_t *chunk = head(x, is_chat(x) ? "chat.completion.chunk" : "text_completion");
    json_t *choices = json_array();
    if (choice)
        json_array_append_new(choices, choice);
    json_object_set_new(chunk, "choices", choices);
    bool last = !choice;
    if (x->ask.output.include_usage)
        json_object_set_new(chunk, "usage",
                            last || x->ask.output.continuous_usage ? usage_json(x) : json_null());
    put_event(&x->events.out, NULL, chunk);
}

static json_t *delta_of(Choice *c, bool *something)
{
    json_t *delta = json_object();
    size_t thought = c->texts.thought.length - c->sent.thought,
           text = c->text.length - c->sent.text;
    if (thought)
        json_object_set_new(delta, "reasoning_content",
                            json_text_of(c->texts.thought.text + c->sent.thought, thought));
    if (text)
        json_object_set_new(delta, "content", json_text_of(c->text.text + c->sent.text, text));
    json_t *calls = json_array();
    for (int k = 0; k < choice_calls(c); k++) {
        Call *call = &c->calls.call[k];
        if (!call->opened || call->arguments.length > call->sent)
            json_array_append_new(calls, call_json(c, k, call->sent, !call->opened, true));
        call->opened = true;
        call->sent = call->arguments.length;
    }
    *something = thought || text || json_array_size(calls);
    if (json_array_size(calls))
        json_object_set_new(delta, "tool_calls", calls);
    else
        json_decref(calls);
    return delta;
}

static void put_news(Choice *c)
{
    Exchange *x = c->x;
    json_t *choice = json_pack("{s:i}", "index", c->index);
    bool something = c->text.length > c->sent.text;
    if (is_chat(x))
        json_object_set_new(choice, "delta", delta_of(c, &something));
    else
        json_object_set_new(
            choice, "text",
            json_text_of(c->text.text + c->sent.text, c->text.length - c->sent.text));
    set_finish(choice, c);
    if (x->ask.output.return_token_ids)
        json_object_set_new(choice, "token_ids", ids_json(&c->tokens, c->sent.tokens));
    c->sent.text = c->text.length;
    c->sent.thought = c->texts.thought.length;
    c->sent.tokens = c->tokens.n;
    c->sent.end = c->end.ended;
    if (something || c->end.ended)
        put_chunk(x, choice);
    else
        json_decref(choice);
}

/* Chat: the role of each choice. Completions: the prompt, if it is wanted. */
static void put_first(Choice *c)
{
    StrBuf text = {0};
    json_t *choice = json_pack("{s:i}", "index", c->index);
    put_prompt(c, &text);
    if (is_chat(c->x))
        json_object_set_new(choice, "delta",
                            json_pack("{s:s,s:s}", "role", "assistant", "content", ""));
    else
        json_object_set_new(choice, "text", json_text_of(text.text, text.length));
    json_object_set_new(choice, "logprobs",
                        echoes_logprobs(c)
                            ? completion_logprobs(c, 0, c->x->ask.input.prompt[c->prompt].n)
                            : json_null());
    json_object_set_new(choice, "finish_reason", json_null());
    if (c->x->ask.output.return_token_ids)
        json_object_set_new(choice, "prompt_token_ids",
                            ids_json(&c->x->ask.input.prompt[c->prompt], 0));
    if (is_chat(c->x) || text.length || c->x->ask.output.return_token_ids)
        put_chunk(c->x, choice);
    else
        json_decref(choice);
    strbuf_free(&text);
}

enum { STAGE_BEGIN, STAGE_TEXT, STAGE_END };

static void stream(Exchange *x)
{
    const Choice *first = &x->choice[0];
    if (x->events.stage == STAGE_BEGIN && x->ask.output.echo && x->ask.output.logprobs &&
        !first->tokens.n && !x->n_ended)
        return; /* the prompt is being looked at */
    if (x->events.stage == STAGE_BEGIN)
        for (int i = 0; i < x->n_choices; i++)
            put_first(&x->choice[i]);
    if (x->events.stage == STAGE_BEGIN)
        x->events.stage = STAGE_TEXT;
    for (int i = 0; i < x->n_choices && !x->end.failed.status; i++) {
        Choice *c = &x->choice[i];
        if (!c->sent.end && choice_has_news(c))
            put_news(c);
    }
    if (x->events.stage == STAGE_TEXT && x->n_ended == x->n_choices) {
        if (x->end.failed.status)
            put_event(&x->events.out, NULL, dialect_error(x->dialect->path, &x->end.failed));
        else if (x->ask.output.include_usage)
            put_chunk(x, NULL);
        strbuf_puts(&x->events.out, "data: [DONE]\n\n");
        x->events.stage = STAGE_END;
    }
}

const Dialect dialect_chat = {.path = "/v1/chat/completions",
                              .fields = &fields_chat,
                              .name = "chat",
                              .finish = prompt_of_messages,
                              .whole = whole,
                              .stream = stream};

const Dialect dialect_completions = {.path = "/v1/completions",
                                     .fields = &fields_completions,
                                     .name = "completions",
                                     .finish = prompts_of_completion,
                                     .whole = whole,
                                     .stream = stream};
