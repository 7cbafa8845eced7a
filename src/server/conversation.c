/*
 * Messages of all dialects as chat templates want them: one array of objects, content as one string, calls of tools with
 * their arguments as objects, results of tools as messages of their own.
 *
 *     chat       {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
 *     responses  {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"}
 *     messages   {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]}
 *     all        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "type": "function",
 *                 "function": {"name": "f", "arguments": {}}}]}
 */
#include "server/conversation.h"

#include <string.h>

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is_among(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n && word; i++)
        if (strcmp(word, list[i]) == 0)
            return true;
    return false;
}

#define AMONG(word, list) is_among(word, list, sizeof list / sizeof *list)

/* Refuses members that ask for something and are none of the known ones. */
static int check_members(const json_t *object, const char *const *known, size_t n, const char *what,
                         const char *field, Refusal *why)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool nothing = json_is_null(value) || (json_is_array(value) && !json_array_size(value));
        if (!nothing && !is_among(key, known, n))
            return refuse(why, 400, field, "%s: field \"%.60s\" is not supported", what, key);
    }
    return 0;
}

#define CHECK_MEMBERS(object, known, what, field, why)                                             \
    check_members(object, known, sizeof known / sizeof *known, what, field, why)

/* ---- calls ---- */

static json_t *last_message(const Ask *a)
{
    size_t n = json_array_size(a->input.messages);
    return n ? json_array_get(a->input.messages, n - 1) : NULL;
}

static int add(Ask *a, json_t *message, Refusal *why)
{
    if (json_array_size(a->input.messages) >= ASK_MAX_MESSAGES) {
        json_decref(message);
        return refuse(why, 400, "messages", "there are more than %d messages", ASK_MAX_MESSAGES);
    }
    a->input.messages = a->input.messages ? a->input.messages : json_array();
    return json_array_append_new(a->input.messages, message)
               ? refuse(why, 500, NULL, "no memory for the request")
               : 0;
}

/* A call, behind the calls of the assistant's message that comes last, or in one of its own. */
static int add_call(Ask *a, const char *id, const char *name, json_t *arguments, const char *field,
                    Refusal *why)
{
    json_t *last = last_message(a);
    if (!name || !json_is_object(arguments)) {
        json_decref(arguments);
        return refuse(why, 400, field,
                      "a tool call needs a name, and arguments that are a JSON object");
    }
    const char *role = string_of(last, "role");
    if (!role || strcmp(role, "assistant") != 0) {
        last = json_pack("{s:s,s:s}", "role", "assistant", "content", "");
        if (add(a, last, why)) {
            json_decref(arguments);
            return why->status;
        }
    }
    json_t *calls = json_object_get(last, "tool_calls");
    if (!calls) {
        calls = json_array();
        json_object_set_new(last, "tool_calls", calls);
    }
    json_array_append_new(calls,
                          json_pack("{s:s,s:s,s:{s:s,s:o}}", "id", id ? id : "", "type", "function",
                                    "function", "name", name, "arguments", arguments));
    return 0;
}

/* Arguments as a string of JSON; NULL: it is none. */
static json_t *parse_arguments(const json_t *text)
{
    const char *from = json_string_value(text);
    json_t *json = NULL;
    Refusal why = {0};
    if (from && *from)
        ask_parse(from, json_string_length(text), &json, &why);
    return from && !*from ? json_object() : json;
}

static int add_chat_calls(Ask *a, const json_t *calls, const char *field, Refusal *why)
{
    if (!json_is_array(calls))
        return refuse(why, 400, field, "tool_calls of a message is not an array");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *call = json_array_get(calls, i),
                     *function = json_object_get(call, "function");
        if (add_call(a, string_of(call, "id"), string_of(function, "name"),
                     parse_arguments(json_object_get(function, "arguments")), field, why))
            return why->status;
    }
    return 0;
}

/* ---- content ---- */

static int add_text(StrBuf *out, const json_t *part, const char *field, Refusal *why)
{
    static const char *const kinds[] = {"text", "input_text", "output_text"};
    static const char *const known[] = {"type",        "text",     "cache_control",
                                        "annotations", "logprobs", "citations"};
    const json_t *text = json_object_get(part, "text");
    const char *kind = string_of(part, "type");
    if (!AMONG(kind, kinds))
        return refuse(why, 400, field, "a content part has the type %.40s; only text is supported",
                      kind ? kind : "(none)");
    if (!json_is_string(text))
        return refuse(why, 400, field, "a content part has no text");
    strbuf_add(out, json_string_value(text), json_string_length(text));
    return CHECK_MEMBERS(part, known, "a part of a message", field, why);
}

/* A string, or an array of parts that are text; NULL after an error. */
static json_t *read_content(const json_t *content, const char *field, Refusal *why)
{
    StrBuf text = {0};
    strbuf_add(&text, "", 0);
    if (json_is_string(content))
        strbuf_add(&text, json_string_value(content), json_string_length(content));
    else if (json_is_array(content))
        for (size_t i = 0; i < json_array_size(content) && !why->status; i++)
            add_text(&text, json_array_get(content, i), field, why);
    else
        refuse(why, 400, field,
               "the content of a message is neither a string nor an array of parts");
    json_t *json = why->status || text.failed ? NULL : json_stringn(text.text, text.length);
    if (!json)
        refuse(why, 500, NULL, "no memory for the request");
    strbuf_free(&text);
    return json;
}

static int add_plain(Ask *a, const char *role, const json_t *content, const char *field,
                     Refusal *why)
{
    json_t *text = read_content(content, field, why);
    return text ? add(a, json_pack("{s:s,s:o}", "role", role, "content", text), why) : why->status;
}

static int add_result(Ask *a, const json_t *id, const json_t *content, const char *field,
                      Refusal *why)
{
    if (!json_is_string(id))
        return refuse(why, 400, field, "a tool result does not name its tool call");
    json_t *nothing = content && !json_is_null(content) ? NULL : json_string("");
    int status = add_plain(a, "tool", nothing ? nothing : content, field, why);
    json_decref(nothing);
    if (!status)
        json_object_set(last_message(a), "tool_call_id", (json_t *)(uintptr_t)id);
    return status;
}

/* Blocks of Anthropic's messages that are no text: what was called, what came of it, what was thought. */
static int add_block(Ask *a, const json_t *block, const char *role, const char *field, Refusal *why)
{
    const char *type = string_of(block, "type");
    bool assistant = strcmp(role, "assistant") == 0;
    if (type && strcmp(type, "tool_use") == 0 && assistant)
        return add_call(a, string_of(block, "id"), string_of(block, "name"),
                        json_incref(json_object_get(block, "input")), field, why);
    if (type && strcmp(type, "tool_result") == 0 && !assistant)
        return add_result(a, json_object_get(block, "tool_use_id"),
                          json_object_get(block, "content"), field, why);
    json_t *parts = json_pack("[O]", block), *last = last_message(a);
    if (type && strcmp(type, "thinking") == 0 && assistant)
        add(a,
            json_pack("{s:s,s:s,s:O?}", "role", role, "content", "", "reasoning_content",
                      json_object_get(block, "thinking")),
            why);
    else if (last && json_object_get(last, "open")) { /* goes on with the same message */
        json_t *text = read_content(parts, field, why);
        const json_t *before = json_object_get(last, "content");
        StrBuf both = {0};
        strbuf_add(&both, json_string_value(before), json_string_length(before));
        strbuf_add(&both, text ? json_string_value(text) : "", json_string_length(text));
        json_object_set_new(last, "content", json_stringn(both.text, both.length));
        strbuf_free(&both);
        json_decref(text);
    } else {
        add_plain(a, role, parts, field, why);
    }
    json_decref(parts);
    last = last_message(a);
    if (!why->status && last)
        json_object_set_new(last, "open", json_true());
    return why->status;
}

static int add_blocks(Ask *a, const json_t *blocks, const char *role, const char *field,
                      Refusal *why)
{
    size_t before = json_array_size(a->input.messages);
    for (size_t i = 0; i < json_array_size(blocks) && !why->status; i++)
        add_block(a, json_array_get(blocks, i), role, field, why);
    for (size_t i = before; i < json_array_size(a->input.messages); i++)
        json_object_del(json_array_get(a->input.messages, i), "open");
    return why->status;
}

/* ---- messages ---- */

/* An item of /v1/responses that is no message. */
static int add_item(Ask *a, const char *type, const json_t *item, const char *field, Refusal *why)
{
    if (strcmp(type, "function_call") == 0)
        return add_call(a, string_of(item, "call_id"), string_of(item, "name"),
                        parse_arguments(json_object_get(item, "arguments")), field, why);
    if (strcmp(type, "function_call_output") == 0)
        return add_result(a, json_object_get(item, "call_id"), json_object_get(item, "output"),
                          field, why);
    if (strcmp(type, "reasoning") != 0)
        return refuse(why, 400, field,
                      "an item has the type %.40s; supported are message, reasoning, function_call "
                      "and function_call_output",
                      type);
    StrBuf thought = {0};
    strbuf_add(&thought, "", 0);
    const json_t *parts = json_object_get(item, "content");
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *text = json_object_get(json_array_get(parts, i), "text");
        strbuf_add(&thought, text ? json_string_value(text) : "", json_string_length(text));
    }
    json_t *message =
        json_pack("{s:s,s:s,s:o,s:b}", "role", "assistant", "content", "", "reasoning_content",
                  json_stringn(thought.text, thought.length), "thought", 1);
    strbuf_free(&thought);
    return message ? add(a, message, why) : refuse(why, 400, field, "a thinking block is not text");
}

/* What was thought, as an item of its own, belongs to the message behind it. */
static void join_thought(Ask *a)
{
    size_t n = json_array_size(a->input.messages);
    json_t *before = n > 1 ? json_array_get(a->input.messages, n - 2) : NULL,
           *last = last_message(a);
    const char *role = string_of(last, "role");
    if (!json_object_get(before, "thought") || !role || strcmp(role, "assistant") != 0)
        return;
    json_object_set(last, "reasoning_content", json_object_get(before, "reasoning_content"));
    json_array_remove(a->input.messages, n - 2);
}

static int add_message(Ask *a, const char *field, const json_t *message, Refusal *why)
{
    static const char *const known[] = {
        "role",        "content",           "type",       "id",           "status", "name",
        "annotations", "reasoning_content", "tool_calls", "tool_call_id", "phase"};
    static const char *const roles[] = {"system", "user", "assistant", "tool"};
    const char *role = string_of(message, "role"), *type = string_of(message, "type");
    if (!json_is_object(message))
        return refuse(why, 400, field, "%s: a message must be an object with role and content",
                      field);
    if (type && strcmp(type, "message") != 0)
        return add_item(a, type, message, field, why);
    if (!role)
        return refuse(why, 400, field, "a message has no role");
    if (CHECK_MEMBERS(message, known, "a message", field, why))
        return why->status;
    if (json_is_string(json_object_get(message, "name")) && strcmp(role, "tool") != 0)
        return refuse(why, 400, field, "a message has a name, which no chat template supports");
    role = strcmp(role, "developer") == 0 ? "system" : role;
    if (!AMONG(role, roles))
        return refuse(why, 400, field,
                      "a message has the role %.40s; give system, user, assistant or tool", role);
    const json_t *content = json_object_get(message, "content");
    const json_t *calls = json_object_get(message, "tool_calls");
    if (json_is_null(calls) || json_array_size(calls) == 0)
        calls = NULL;
    if (strcmp(role, "tool") == 0)
        return add_result(a, json_object_get(message, "tool_call_id"), content, field, why);
    if (calls && strcmp(role, "assistant") != 0)
        return refuse(why, 400, field, "a message of %s has tool_calls", role);
    bool blocks = json_is_array(content) && a->input.anthropic && strcmp(role, "system") != 0;
    json_t *none = calls && (!content || json_is_null(content)) ? json_string("") : NULL;
    if (blocks && json_array_size(content))
        add_blocks(a, content, role, field, why);
    else
        add_plain(a, role, none ? none : content, field, why);
    json_decref(none);
    const json_t *thought = json_object_get(message, "reasoning_content");
    if (!why->status && json_is_string(thought))
        json_object_set(last_message(a), "reasoning_content", (json_t *)(uintptr_t)thought);
    return calls && !why->status ? add_chat_calls(a, calls, field, why) : why->status;
}

int read_messages(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return refuse(why, 400, name, "%s must be an array of messages", name);
    if (n == 0)
        return refuse(why, 400, name, "%s is empty; send at least one message", name);
    for (size_t i = 0; i < n && !why->status; i++) {
        add_message(a, name, json_array_get(value, i), why);
        join_thought(a);
    }
    return why->status;
}

int read_anthropic_messages(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    a->input.anthropic = true;
    return read_messages(a, name, value, why);
}

/* A system message that is a field of its own: before all messages, whichever field comes first. */
int read_system(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    json_t *rest = a->input.messages;
    a->input.messages = NULL;
    add_plain(a, "system", value, name, why);
    if (rest && a->input.messages)
        json_array_extend(a->input.messages, rest);
    json_decref(rest);
    return why->status;
}

int read_responses_input(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    return json_is_string(value) ? add_plain(a, "user", value, name, why)
                                 : read_messages(a, name, value, why);
}
