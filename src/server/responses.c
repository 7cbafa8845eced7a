/*
 * Responses as OpenAI defined them, without memory between requests. A stream opens and closes an item for what was
 * thought, where there is such, and one for the answer:
 *
 *     created  in_progress  [ item added  part added  delta …  done  part done  item done ]…  completed
 */
#include "server/internal.h"

#include <time.h>

enum { ITEM_NONE, ITEM_THOUGHT, ITEM_ANSWER, ITEM_CALL /* and the number of the call */ };

static json_t *usage_json(const Exchange *x)
{
    Usage u = exchange_usage(x);
    return json_pack("{s:I,s:{s:I,s:i},s:I,s:{s:i},s:I}", "input_tokens", (json_int_t)u.prompt,
                     "input_tokens_details", "cached_tokens", (json_int_t)u.cached,
                     "cache_write_tokens", 0, "output_tokens", (json_int_t)u.completion,
                     "output_tokens_details", "reasoning_tokens", 0, "total_tokens",
                     (json_int_t)(u.prompt + u.completion));
}

static json_t *part(const Choice *c, int kind, bool whole)
{
    const StrBuf *text = kind == ITEM_THOUGHT ? &c->texts.thought : &c->text;
    json_t *json = json_text_of(text->text, whole ? text->length : 0);
    if (kind == ITEM_THOUGHT)
        return json_pack("{s:s,s:o}", "type", "reasoning_text", "text", json);
    return json_pack("{s:s,s:o,s:[],s:[]}", "type", "output_text", "text", json, "annotations",
                     "logprobs");
}

static const char *status_of(const Choice *c)
{
    return !c->end.ended ? "in_progress"
           : c->end.result.finish == CVN_FINISH_LENGTH || c->end.result.finish == CVN_FINISH_CONTEXT
               ? "incomplete"
               : "completed";
}

static void item_id(const Exchange *x, int kind, char *out, size_t size)
{
    if (kind >= ITEM_CALL)
        snprintf(out, size, "fc_%s_%d", x->id, kind - ITEM_CALL);
    else
        snprintf(out, size, "%s_%s", kind == ITEM_THOUGHT ? "rs" : "msg", x->id);
}

static json_t *item(const Choice *c, int kind, bool whole)
{
    char id[48];
    item_id(c->x, kind, id, sizeof id);
    if (kind >= ITEM_CALL) {
        const Call *call = &c->calls.call[kind - ITEM_CALL];
        return json_pack("{s:s,s:s,s:s,s:s,s:s,s:o}", "id", id, "type", "function_call", "call_id",
                         call->id, "name", call->tool->name, "status",
                         whole ? status_of(c) : "in_progress", "arguments",
                         json_text_of(call->arguments.text, whole ? call->arguments.length : 0));
    }
    json_t *content = json_array();
    if (whole)
        json_array_append_new(content, part(c, kind, true));
    const char *status = whole ? kind == ITEM_THOUGHT ? "completed" : status_of(c) : "in_progress";
    if (kind == ITEM_THOUGHT)
        return json_pack("{s:s,s:s,s:[],s:o,s:s}", "id", id, "type", "reasoning", "summary",
                         "content", content, "status", status);
    return json_pack("{s:s,s:s,s:s,s:s,s:o}", "id", id, "type", "message", "status", status, "role",
                     "assistant", "content", content);
}

/* As the request has them, with what it leaves out. */
static json_t *tools_json(const json_t *given)
{
    static const char *const fields[] = {"description", "parameters", "strict"};
    json_t *tools = json_deep_copy(given), *tool;
    size_t i;
    json_array_foreach(tools, i, tool) for (size_t k = 0; k < sizeof fields / sizeof *fields;
                                            k++) if (!json_object_get(tool, fields[k]))
        json_object_set_new(tool, fields[k], json_null());
    return tools;
}

static json_t *response(const Exchange *x, bool whole)
{
    char id[48];
    const Choice *c = &x->choice[0];
    const Ask *a = &x->ask;
    const json_t *metadata = json_object_get(a->body, "metadata");
    bool cut = whole && strcmp(status_of(c), "incomplete") == 0;
    snprintf(id, sizeof id, "resp_%s", x->id);
    json_t *output = json_array();
    if (whole && c->texts.thought.length)
        json_array_append_new(output, item(c, ITEM_THOUGHT, true));
    if (whole && (c->text.length || !choice_calls(c)))
        json_array_append_new(output, item(c, ITEM_ANSWER, true));
    for (int k = 0; k < choice_calls(c) && whole; k++)
        json_array_append_new(output, item(c, ITEM_CALL + k, true));
    json_t *r =
        json_pack("{s:s,s:s,s:I,s:s,s:n,s:o,s:s,s:o,s:b,s:n,s:b,s:f,s:f,s:s,s:[],s:s,s:{s:{s:s}},s:"
                  "{s:n,s:n}}",
                  "id", id, "object", "response", "created_at", (json_int_t)x->time.created,
                  "status", whole ? status_of(c) : "in_progress", "error", "incomplete_details",
                  cut ? json_pack("{s:s}", "reason", "max_output_tokens") : json_null(), "model",
                  answers_as(x), "output", output, "parallel_tool_calls", 1, "previous_response_id",
                  "store", 0, "temperature", a->sampling.temperature, "top_p", a->sampling.top_p,
                  "tool_choice", "auto", "tools", "truncation", "disabled", "text", "format",
                  "type", "text", "reasoning", "effort", "summary");
    static const char *const as_given[] = {"tools", "tool_choice", "parallel_tool_calls", "text"};
    for (size_t i = 0; i < sizeof as_given / sizeof *as_given; i++) {
        json_t *given = json_object_get(a->body, as_given[i]);
        if (given && !json_is_null(given) && json_object_size(given) + !json_is_object(given))
            json_object_set_new(r, as_given[i], i ? json_deep_copy(given) : tools_json(given));
    }
    static const char *const or_null[] = {"instructions", "safety_identifier", "prompt_cache_key",
                                          "max_tool_calls"};
    for (size_t i = 0; i < sizeof or_null / sizeof *or_null; i++) {
        json_t *given = json_object_get(a->body, or_null[i]);
        json_object_set_new(r, or_null[i], given ? json_deep_copy(given) : json_null());
    }
    json_object_update_new(r, json_pack("{s:i,s:i,s:i,s:b,s:s}", "presence_penalty", 0,
                                        "frequency_penalty", 0, "top_logprobs", 0, "background", 0,
                                        "service_tier", "default"));
    json_object_set_new(r, "completed_at",
                        whole && !cut ? json_integer((json_int_t)time(NULL)) : json_null());
    json_object_set_new(r, "usage", whole ? usage_json(x) : json_null());
    json_object_set_new(r, "max_output_tokens",
                        a->sampling.max_tokens < 0 ? json_null()
                                                   : json_integer(a->sampling.max_tokens));
    json_object_set_new(r, "metadata", metadata ? json_deep_copy(metadata) : json_object());
    return r;
}

static json_t *whole(const Exchange *x)
{
    return response(x, true);
}

/* ---- the stream ---- */

static void put(Exchange *x, const char *name, json_t *event)
{
    json_object_set_new(event, "type", json_string(name));
    json_object_set_new(event, "sequence_number", json_integer(x->events.sequence++));
    put_event(&x->events.out, name, event);
}

/* An event about a part of the item that is open. */
static json_t *about_part(const Exchange *x, int kind)
{
    char id[48];
    item_id(x, kind, id, sizeof id);
    return json_pack("{s:s,s:i,s:i}", "item_id", id, "output_index", x->events.item_index,
                     "content_index", 0);
}

/* An event about a call. */
static json_t *about_call(const Exchange *x, int kind)
{
    char id[48];
    item_id(x, kind, id, sizeof id);
    return json_pack("{s:s,s:i}", "item_id", id, "output_index", x->events.item_index);
}

static void open_item(Exchange *x, int kind)
{
    const Choice *c = &x->choice[0];
    x->events.item = kind;
    put(x, "response.output_item.added",
        json_pack("{s:i,s:o}", "output_index", x->events.item_index, "item", item(c, kind, false)));
    if (kind >= ITEM_CALL)
        return;
    json_t *event = about_part(x, kind);
    json_object_set_new(event, "part", part(c, kind, false));
    put(x, "response.content_part.added", event);
}

static void put_delta(Exchange *x, int kind, const char *text, size_t n)
{
    json_t *event = kind >= ITEM_CALL ? about_call(x, kind) : about_part(x, kind);
    json_object_set_new(event, "delta", json_text_of(text, n));
    if (kind >= ITEM_CALL) {
        put(x, "response.function_call_arguments.delta", event);
        return;
    }
    if (kind == ITEM_ANSWER)
        json_object_set_new(event, "logprobs", json_array());
    put(x, kind == ITEM_ANSWER ? "response.output_text.delta" : "response.reasoning_text.delta",
        event);
}

static void close_call(Exchange *x, int kind)
{
    const Choice *c = &x->choice[0];
    const Call *call = &c->calls.call[kind - ITEM_CALL];
    json_t *event = about_call(x, kind);
    json_object_set_new(event, "name", json_string(call->tool->name));
    json_object_set_new(event, "arguments",
                        json_text_of(call->arguments.text, call->arguments.length));
    put(x, "response.function_call_arguments.done", event);
    put(x, "response.output_item.done",
        json_pack("{s:i,s:o}", "output_index", x->events.item_index, "item", item(c, kind, true)));
}

static void close_item(Exchange *x)
{
    const Choice *c = &x->choice[0];
    int kind = x->events.item;
    if (kind >= ITEM_CALL) {
        close_call(x, kind);
        x->events.item = ITEM_NONE;
        x->events.item_index++;
        return;
    }
    const StrBuf *text = kind == ITEM_ANSWER ? &c->text : &c->texts.thought;
    if (kind == ITEM_NONE)
        return;
    json_t *event = about_part(x, kind);
    json_object_set_new(event, "text", json_text_of(text->text, text->length));
    if (kind == ITEM_ANSWER)
        json_object_set_new(event, "logprobs", json_array());
    put(x, kind == ITEM_ANSWER ? "response.output_text.done" : "response.reasoning_text.done",
        event);
    event = about_part(x, kind);
    json_object_set_new(event, "part", part(c, kind, true));
    put(x, "response.content_part.done", event);
    put(x, "response.output_item.done",
        json_pack("{s:i,s:o}", "output_index", x->events.item_index, "item", item(c, kind, true)));
    x->events.item = ITEM_NONE;
    x->events.item_index++;
}

static void put_news(Exchange *x, int kind, const StrBuf *text, size_t *sent)
{
    const Choice *c = &x->choice[0];
    bool wanted = kind == ITEM_ANSWER && c->end.ended && !choice_calls(c);
    if (text->length == *sent && !wanted && kind < ITEM_CALL)
        return;
    if (x->events.item != kind) {
        close_item(x);
        open_item(x, kind);
    }
    if (text->length > *sent)
        put_delta(x, kind, text->text + *sent, text->length - *sent);
    *sent = text->length;
}

static void stream(Exchange *x)
{
    enum { BEGIN, TEXT, END };
    Choice *c = &x->choice[0];
    if (x->events.stage == BEGIN) {
        put(x, "response.created", json_pack("{s:o}", "response", response(x, false)));
        put(x, "response.in_progress", json_pack("{s:o}", "response", response(x, false)));
        x->events.stage = TEXT;
    }
    if (x->events.stage == END)
        return;
    if (x->end.failed.status) {
        json_t *event = json_pack(
            "{s:s,s:o,s:n}", "code", "server_error", "message",
            json_text_of(x->end.failed.err.message, strlen(x->end.failed.err.message)), "param");
        put(x, "error", event);
        x->events.stage = END;
        return;
    }
    put_news(x, ITEM_THOUGHT, &c->texts.thought, &c->sent.thought);
    put_news(x, ITEM_ANSWER, &c->text, &c->sent.text);
    for (int k = 0; k < choice_calls(c); k++) {
        Call *call = &c->calls.call[k];
        if (!call->opened || call->arguments.length > call->sent)
            put_news(x, ITEM_CALL + k, &call->arguments, &call->sent);
        call->opened = true;
    }
    if (!c->end.ended)
        return;
    close_item(x);
    bool cut = strcmp(status_of(c), "incomplete") == 0;
    put(x, cut ? "response.incomplete" : "response.completed",
        json_pack("{s:o}", "response", response(x, true)));
    c->sent.end = true;
    x->events.stage = END;
}

const Dialect dialect_responses = {.path = "/v1/responses",
                                   .fields = &fields_responses,
                                   .name = "responses",
                                   .finish = prompt_of_messages,
                                   .whole = whole,
                                   .stream = stream};
