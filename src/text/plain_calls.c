#include "text/plain_calls.h"

#include "base/strbuf.h"

#include <stdlib.h>
#include <string.h>

static void add_json(StrBuf *out, const json_t *value)
{
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    strbuf_puts(out, text ? text : "");
    out->failed = out->failed || !text;
    free(text);
}

static void add_content(StrBuf *out, const json_t *message)
{
    const json_t *content = json_object_get(message, "content");
    const char *text = json_string_value(content);
    strbuf_add(out, text ? text : "", text ? json_string_length(content) : 0);
}

static int set_content(json_t *message, const StrBuf *text)
{
    return text->failed ||
           json_object_set_new(message, "content",
                               json_stringn(text->length ? text->text : "", text->length));
}

static bool has_role(const json_t *message, const char *role)
{
    const char *has = json_string_value(json_object_get(message, "role"));
    return has && strcmp(has, role) == 0;
}

/* Says in the first message what tools there are. */
static int tell_tools(json_t *messages, const json_t *tools, bool system, StrBuf *text)
{
    json_t *first = json_array_get(messages, 0);
    bool own = system && !has_role(first, "system"), behind = system && !own;
    strbuf_clear(text);
    if (own && json_array_insert_new(messages, 0, json_pack("{s:s}", "role", "system")))
        return -1;
    if (behind) {
        add_content(text, first);
        strbuf_puts(text, "\n\n");
    }
    strbuf_puts(text, "You may call these functions. Their parameters are JSON Schemas.\n");
    for (size_t i = 0; i < json_array_size(tools); i++) {
        add_json(text, json_object_get(json_array_get(tools, i), "function"));
        strbuf_puts(text, "\n");
    }
    strbuf_puts(text,
                "To call one, answer with its name and its arguments as JSON:\n" PLAIN_CALL_BEGIN
                "NAME" PLAIN_CALL_MIDDLE "{…}" PLAIN_CALL_END
                "\nResults are returned between <tool_response> and </tool_response>.");
    if (!system) {
        strbuf_puts(text, "\n\n");
        add_content(text, first);
    }
    return set_content(json_array_get(messages, 0), text);
}

/* Puts a message behind the others. What came of calls is told by the user, in one message with what else the user says then:
   templates want roles in turns. */
static int add_plain(json_t *all, const json_t *message, bool joins, StrBuf *text)
{
    bool result = has_role(message, "tool");
    const json_t *calls = json_object_get(message, "tool_calls");
    json_t *last = json_array_get(all, json_array_size(all) - 1);
    strbuf_clear(text);
    if (joins) {
        add_content(text, last);
        strbuf_puts(text, "\n");
    }
    strbuf_puts(text, result ? "<tool_response>\n" : "");
    add_content(text, message);
    strbuf_puts(text, result ? "\n</tool_response>" : "");
    for (size_t i = 0; i < json_array_size(calls); i++) {
        const json_t *f = json_object_get(json_array_get(calls, i), "function");
        const char *name = json_string_value(json_object_get(f, "name"));
        strbuf_puts(text, text->length ? "\n" PLAIN_CALL_BEGIN : PLAIN_CALL_BEGIN);
        strbuf_puts(text, name ? name : "");
        strbuf_puts(text, PLAIN_CALL_MIDDLE);
        add_json(text, json_object_get(f, "arguments"));
        strbuf_puts(text, PLAIN_CALL_END);
    }
    if (joins)
        return set_content(last, text);
    json_t *made = json_copy((json_t *)(uintptr_t)message);
    json_object_del(made, "tool_calls");
    json_object_del(made, "tool_call_id");
    if (result)
        json_object_set_new(made, "role", json_string("user"));
    return set_content(made, text) | json_array_append_new(all, made);
}

json_t *plain_messages(const json_t *messages, const json_t *tools, bool system)
{
    StrBuf text = {0};
    json_t *all = json_array();
    bool results = false; /* the last message is what came of calls */
    int failed = 0;
    for (size_t i = 0; i < json_array_size(messages) && !failed; i++) {
        const json_t *message = json_array_get(messages, i);
        bool result = has_role(message, "tool");
        bool joins = results && (result || has_role(message, "user"));
        failed = add_plain(all, message, joins, &text);
        results = result || joins;
    }
    if (json_array_size(tools) && !failed)
        failed = tell_tools(all, tools, system, &text);
    strbuf_free(&text);
    if (failed)
        json_decref(all);
    return failed ? NULL : all;
}
