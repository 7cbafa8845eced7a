/*
 * Messages as Anthropic defined them. A stream has a block for what was thought, where there is such, and one for the answer:
 *
 *     message_start  [ content_block_start  content_block_delta …  content_block_stop ]…  message_delta  message_stop
 */
#include "server/internal.h"

enum { PART_NONE, PART_THOUGHT, PART_ANSWER, PART_CALL /* and the number of the call */ };

static int finish(Server *s, Ask *a, Refusal *why)
{
    if (a->sampling.max_tokens < 0)
        return refuse(why, 400, "max_tokens", "max_tokens is missing");
    if (a->sampling.temperature > 1)
        return refuse(why, 400, "temperature", "temperature is %g; give 0 to 1",
                      a->sampling.temperature);
    /* an answer goes on in the last message where that is the assistant's */
    const json_t *last = json_array_get(a->input.messages, json_array_size(a->input.messages) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    a->input.continue_final_message = role && strcmp(role, "assistant") == 0;
    return prompt_of_messages(s, a, why);
}

/* Tokens that were in a cache are counted apart. What there is not here is null. */
static json_t *usage_json(const Exchange *x, bool whole)
{
    Usage u = exchange_usage(x);
    return json_pack(
        "{s:I,s:I,s:i,s:I,s:{s:i,s:i},s:n,s:n,s:n,s:s}", "input_tokens",
        (json_int_t)(u.prompt - u.cached), "output_tokens", (json_int_t)(whole ? u.completion : 0),
        "cache_creation_input_tokens", 0, "cache_read_input_tokens", (json_int_t)u.cached,
        "cache_creation", "ephemeral_1h_input_tokens", 0, "ephemeral_5m_input_tokens", 0,
        "inference_geo", "output_tokens_details", "server_tool_use", "service_tier", "standard");
}

static json_t *block(const Choice *c, int kind, bool whole)
{
    if (kind >= PART_CALL) {
        const Call *call = &c->calls.call[kind - PART_CALL];
        json_t *input =
            whole && call->arguments.length
                ? json_loadb(call->arguments.text, call->arguments.length, JSON_ALLOW_NUL, NULL)
                : NULL;
        return json_pack("{s:s,s:s,s:s,s:o,s:{s:s}}", "type", "tool_use", "id", call->id, "name",
                         call->tool->name, "input", input ? input : json_object(), "caller", "type",
                         "direct");
    }
    if (kind == PART_THOUGHT)
        return json_pack("{s:s,s:o,s:s}", "type", "thinking", "thinking",
                         json_text_of(c->texts.thought.text, whole ? c->texts.thought.length : 0),
                         "signature", "");
    return json_pack("{s:s,s:o,s:n}", "type", "text", "text",
                     json_text_of(c->text.text, whole ? c->text.length : 0), "citations");
}

static const char *stop_reason(const Choice *c)
{
    const char *reason = finish_reason(c);
    return ends_in_calls(c)                ? "tool_use"
           : c->end.met                    ? "stop_sequence"
           : strcmp(reason, "length") == 0 ? "max_tokens"
                                           : "end_turn";
}

static json_t *message(const Exchange *x, bool whole)
{
    const Choice *c = &x->choice[0];
    char id[48];
    snprintf(id, sizeof id, "msg_%s", x->id);
    json_t *content = json_array();
    if (whole && c->texts.thought.length)
        json_array_append_new(content, block(c, PART_THOUGHT, true));
    if (whole && (c->text.length || !choice_calls(c)))
        json_array_append_new(content, block(c, PART_ANSWER, true));
    for (int k = 0; k < choice_calls(c) && whole; k++)
        json_array_append_new(content, block(c, PART_CALL + k, true));
    return json_pack("{s:s,s:s,s:s,s:s,s:o,s:s?,s:s?,s:o,s:n,s:n}", "id", id, "type", "message",
                     "role", "assistant", "model", answers_as(x), "content", content, "stop_reason",
                     whole ? stop_reason(c) : NULL, "stop_sequence", whole ? c->end.met : NULL,
                     "usage", usage_json(x, whole), "stop_details", "container");
}

static json_t *whole(const Exchange *x)
{
    return message(x, true);
}

/* ---- the stream ---- */

static void put(Exchange *x, const char *name, json_t *event)
{
    json_object_set_new(event, "type", json_string(name));
    put_event(&x->events.out, name, event);
}

static void close_block(Exchange *x)
{
    if (x->events.item == PART_NONE)
        return;
    put(x, "content_block_stop", json_pack("{s:i}", "index", x->events.item_index++));
    x->events.item = PART_NONE;
}

static void put_news(Exchange *x, int kind, const StrBuf *text, size_t *sent)
{
    const Choice *c = &x->choice[0];
    bool wanted = kind == PART_ANSWER && c->end.ended && !choice_calls(c);
    if (text->length == *sent && !wanted && kind < PART_CALL)
        return;
    if (x->events.item != kind) {
        close_block(x);
        x->events.item = kind;
        put(x, "content_block_start",
            json_pack("{s:i,s:o}", "index", x->events.item_index, "content_block",
                      block(c, kind, false)));
    }
    if (text->length > *sent) {
        static const struct {
            const char *type, *name;
        } deltas[] = {[PART_THOUGHT] = {"thinking_delta", "thinking"},
                      [PART_ANSWER] = {"text_delta", "text"},
                      [PART_CALL] = {"input_json_delta", "partial_json"}};
        int i = kind < PART_CALL ? kind : PART_CALL;
        json_t *delta = json_pack("{s:s,s:o}", "type", deltas[i].type, deltas[i].name,
                                  json_text_of(text->text + *sent, text->length - *sent));
        put(x, "content_block_delta",
            json_pack("{s:i,s:o}", "index", x->events.item_index, "delta", delta));
    }
    *sent = text->length;
}

static void stream(Exchange *x)
{
    enum { BEGIN, TEXT, END };
    Choice *c = &x->choice[0];
    if (x->events.stage == BEGIN)
        put(x, "message_start", json_pack("{s:o}", "message", message(x, false)));
    if (x->events.stage == END)
        return;
    x->events.stage = TEXT;
    if (x->end.failed.status) {
        put_event(&x->events.out, "error", dialect_error(x->dialect->path, &x->end.failed));
        x->events.stage = END;
        return;
    }
    put_news(x, PART_THOUGHT, &c->texts.thought, &c->sent.thought);
    put_news(x, PART_ANSWER, &c->text, &c->sent.text);
    for (int k = 0; k < choice_calls(c); k++) {
        Call *call = &c->calls.call[k];
        if (!call->opened || call->arguments.length > call->sent)
            put_news(x, PART_CALL + k, &call->arguments, &call->sent);
        call->opened = true;
    }
    if (!c->end.ended)
        return;
    close_block(x);
    put(x, "message_delta",
        json_pack("{s:{s:s,s:s?},s:o}", "delta", "stop_reason", stop_reason(c), "stop_sequence",
                  c->end.met, "usage", usage_json(x, true)));
    put(x, "message_stop", json_object());
    c->sent.end = true;
    x->events.stage = END;
}

const Dialect dialect_messages = {.path = "/v1/messages",
                                  .fields = &fields_messages,
                                  .name = "messages",
                                  .finish = finish,
                                  .whole = whole,
                                  .stream = stream};
