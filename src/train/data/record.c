#include "train/data/record.h"

#include "base/json_file.h"
#include "base/strbuf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef enum Shape {
    SHAPE_MESSAGES,
    SHAPE_SHAREGPT,
    SHAPE_ALPACA,
    SHAPE_COMPLETION,
    SHAPE_PAIR,
    SHAPE_TEXT,
    SHAPE_LIST,
    SHAPE_NONE
} Shape;

static Shape shape_of(const json_t *value)
{
    const json_t *completion = json_object_get(value, "completion");
    const json_t *first = json_array_get(value, 0);
    if (json_is_array(json_object_get(value, "messages")))
        return SHAPE_MESSAGES;
    if (json_is_array(json_object_get(value, "conversations")))
        return SHAPE_SHAREGPT;
    if (json_is_string(json_object_get(value, "instruction")) &&
        json_is_string(json_object_get(value, "output")))
        return SHAPE_ALPACA;
    if (json_is_string(completion) || json_is_array(completion))
        return SHAPE_COMPLETION;
    if (json_object_get(value, "chosen") && json_object_get(value, "rejected"))
        return SHAPE_PAIR;
    if (json_is_string(json_object_get(value, "text")))
        return SHAPE_TEXT;
    if (json_object_get(first, "role") || json_object_get(first, "from"))
        return SHAPE_LIST;
    return SHAPE_NONE;
}

bool record_is(const json_t *value)
{
    return shape_of(value) != SHAPE_NONE;
}

/* ---- messages ---- */

/* What was put together, NUL bytes and all. */
static json_t *string_of(StrBuf *text, cvn_err *err)
{
    json_t *value = text->failed ? NULL : json_stringn(text->text ? text->text : "", text->length);
    strbuf_free(text);
    if (!value)
        err_set(err, CVN_EMEM, "no memory for a message");
    return value;
}

static void add_string(StrBuf *out, const json_t *value)
{
    strbuf_add(out, json_string_value(value), json_string_length(value));
}

/* The text of a list of parts, {"type": "text", "text": …}; a part of another kind is an error. */
static json_t *join_parts(const json_t *parts, cvn_err *err)
{
    StrBuf joined = {0};
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const json_t *part = json_array_get(parts, i), *text = json_object_get(part, "text");
        const char *type = json_string_value(json_object_get(part, "type"));
        if (!json_is_string(text) || (type && strcmp(type, "text") != 0)) {
            strbuf_free(&joined);
            err_set(err, CVN_EFORMAT, "content part %zu has type \"%.40s\"; only text is supported",
                    i, type ? type : "?");
            return NULL;
        }
        add_string(&joined, text);
    }
    return string_of(&joined, err);
}

/* A call as templates want it, {"type": "function", "function": {"name", "arguments": {}}}, with what else it has; a new
 * reference, or NULL with an error. */
static json_t *read_call(const json_t *call, cvn_err *err)
{
    const json_t *function = json_object_get(call, "function");
    const json_t *arguments = json_object_get(function, "arguments");
    json_t *object = json_is_object(arguments) ? json_deep_copy(arguments) : NULL;
    if (json_is_string(arguments))
        object = json_loadb(json_string_value(arguments), json_string_length(arguments),
                            JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL);
    if (!json_is_string(json_object_get(function, "name")) || !json_is_object(object)) {
        json_decref(object);
        err_set(err, CVN_EFORMAT,
                "a \"tool_calls\" entry has no \"function\" with \"name\" and \"arguments\", a "
                "JSON object");
        return NULL;
    }
    json_t *made = json_copy((json_t *)(uintptr_t)call),
           *inner = json_copy((json_t *)(uintptr_t)function);
    inner = json_with(inner, "arguments", object);
    if (!json_object_get(made, "type"))
        made = json_with(made, "type", json_string("function"));
    made = json_with(made, "function", inner);
    if (!made)
        err_set(err, CVN_EMEM, "no memory for a message");
    return made;
}

static int read_calls(json_t *message, const json_t *calls, cvn_err *err)
{
    json_t *list = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = read_call(json_array_get(calls, i), err);
        if (!call || json_array_append_new(list, call)) {
            json_decref(list);
            return err_set(err, CVN_EMEM, "no memory for a message");
        }
    }
    return json_object_set_new(message, "tool_calls", list)
               ? err_set(err, CVN_EMEM, "no memory for a message")
               : CVN_OK;
}

static json_t *make_message(json_t *role, json_t *content, cvn_err *err)
{
    json_t *message = json_with(json_object(), "role", role);
    message = json_with(message, "content", content);
    if (!message)
        err_set(err, CVN_EMEM, "no memory for a message");
    return message;
}

static json_t *read_sharegpt(const json_t *item, const char *from, cvn_err *err)
{
    static const char *const names[][2] = {
        {"human", "user"},          {"user", "user"},         {"gpt", "assistant"},
        {"assistant", "assistant"}, {"chatgpt", "assistant"}, {"bing", "assistant"},
        {"bard", "assistant"},      {"model", "assistant"},   {"system", "system"},
        {"observation", "tool"},    {"tool", "tool"},
    };
    const char *role = NULL;
    for (size_t i = 0; !role && i < sizeof names / sizeof *names; i++)
        role = strcmp(from, names[i][0]) == 0 ? names[i][1] : NULL;
    json_t *value = json_object_get(item, "value");
    if (role && json_is_string(value))
        return make_message(json_string(role), json_incref(value), err);
    err_set(err, CVN_EFORMAT,
            role ? "it has no string \"value\""
                 : "it is from \"%.40s\"; known are human, gpt, system and tool",
            from);
    return NULL;
}

/* What a message must be besides having a role and a content. */
static int check_message(const json_t *item, const json_t *content, cvn_err *err)
{
    const json_t *weight = json_object_get(item, "weight");
    double w = json_number_value(weight);
    if (!json_is_string(json_object_get(item, "role")) || !json_is_string(content))
        return err_set(err, CVN_EFORMAT, "it must have the strings \"role\" and \"content\"");
    if (json_is_object(json_object_get(item, "function_call")))
        return err_set(err, CVN_EFORMAT, "it has \"function_call\"; make it \"tool_calls\"");
    if (weight && !json_is_null(weight) &&
        (!json_is_number(weight) || (w < 0 || w > 1) || (w > 0 && w < 1)))
        return err_set(err, CVN_EFORMAT, "its \"weight\" is neither 0 nor 1");
    return CVN_OK;
}

/* A message of any kind as templates want it, with all its members: a new reference, or NULL with an error. */
static json_t *read_message(json_t *item, cvn_err *err)
{
    const json_t *calls = json_object_get(item, "tool_calls");
    const json_t *weight = json_object_get(item, "weight");
    const char *from = json_string_value(json_object_get(item, "from"));
    json_t *content = json_object_get(item, "content");
    bool called = json_array_size(calls) > 0;
    if (!json_object_get(item, "role") && from)
        return read_sharegpt(item, from, err);
    if (json_is_array(content))
        content = join_parts(content, err);
    else if (called && (!content || json_is_null(content)))
        content = json_string("");
    else
        json_incref(content);
    if (err->code || check_message(item, content, err)) {
        json_decref(content);
        return NULL;
    }
    json_t *message = json_with(json_copy(item), "content", content);
    if (message)
        json_object_del(message, "weight");
    if (message && json_is_number(weight) && !(json_number_value(weight) > 0))
        message = json_with(message, "mute", json_true());
    if (!message)
        err_set(err, CVN_EMEM, "no memory for a message");
    if (message && called && read_calls(message, calls, err)) {
        json_decref(message);
        return NULL;
    }
    return message;
}

/* Appends the messages of a list; mute: none of them is learnt. */
static int add_messages(json_t *to, const json_t *list, bool mute, cvn_err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        json_t *message = read_message(json_array_get(list, i), err);
        if (!message) {
            err_prefix(err, "message %zu", i);
            return err->code;
        }
        if (mute)
            json_object_set_new(message, "mute", json_true());
        if (json_array_append_new(to, message))
            return err_set(err, CVN_EMEM, "no memory for a conversation");
    }
    return CVN_OK;
}

static int add_alpaca(json_t *to, const json_t *value, cvn_err *err)
{
    const json_t *input = json_object_get(value, "input"),
                 *system = json_object_get(value, "system");
    json_t *question[] = {json_object_get(value, "instruction"), json_object_get(value, "output")};
    static const char *const roles[] = {"user", "assistant"};
    StrBuf asked = {0};
    add_string(&asked, question[0]);
    if (json_string_length(input) > 0) {
        strbuf_puts(&asked, "\n\n");
        add_string(&asked, input);
    }
    question[0] = string_of(&asked, err);
    json_incref(question[1]);
    bool failed =
        json_string_length(system) > 0 &&
        json_array_append_new(
            to, make_message(json_string("system"), json_incref((json_t *)(uintptr_t)system), err));
    for (int i = 0; i < 2; i++)
        failed |=
            json_array_append_new(to, make_message(json_string(roles[i]), question[i], err)) != 0;
    return failed ? err_set(err, CVN_EMEM, "no memory for a conversation") : CVN_OK;
}

/* ---- records ---- */

/* "tools": a list of objects, or a string with one, as tables of strings have it. *tools is new, or NULL: there are none. */
static int read_tools(const json_t *value, json_t **tools, cvn_err *err)
{
    json_t *given = json_object_get(value, "tools");
    if (!given || json_is_null(given))
        return CVN_OK;
    *tools = json_is_string(given) ? json_loadb(json_string_value(given), json_string_length(given),
                                                JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, NULL)
                                   : json_incref(given);
    bool right = json_is_array(*tools);
    for (size_t i = 0; i < json_array_size(*tools); i++)
        right &= json_is_object(json_array_get(*tools, i));
    return right
               ? CVN_OK
               : err_set(err, CVN_EFORMAT,
                         "\"tools\" must be a list of {\"type\": \"function\", \"function\": {…}}");
}

static json_t *read_conversation(json_t *value, Shape shape, cvn_err *err)
{
    json_auto_t *messages = json_array();
    json_t *record = NULL;
    const json_t *prompt = json_object_get(value, "prompt");
    json_auto_t *tools = NULL;
    int code = read_tools(value, &tools, err);
    if (code == CVN_OK && !messages)
        code = err_set(err, CVN_EMEM, "no memory for a conversation");
    else if (code == CVN_OK && shape == SHAPE_ALPACA)
        code = add_alpaca(messages, value, err);
    else if (code == CVN_OK && shape == SHAPE_COMPLETION)
        code = add_messages(messages, prompt, true, err) ||
                       add_messages(messages, json_object_get(value, "completion"), false, err)
                   ? err->code
                   : CVN_OK;
    else if (code == CVN_OK) {
        const char *key = shape == SHAPE_MESSAGES ? "messages" : "conversations";
        const json_t *list = shape == SHAPE_LIST ? value : json_object_get(value, key);
        if (json_array_size(list) == 0)
            code = err_set(err, CVN_EFORMAT, "\"%s\" is empty; remove the record", key);
        else
            code = add_messages(messages, list, false, err);
    }
    if (code == CVN_OK)
        record = json_with(json_object(), "messages", json_incref(messages));
    if (record && json_array_size(tools) > 0)
        record = json_with(record, "tools", json_incref(tools));
    if (!record && code == CVN_OK)
        err_set(err, CVN_EMEM, "no memory for a conversation");
    return record;
}

static json_t *read_one(json_t *value, Shape shape, cvn_err *err)
{
    json_t *prompt = json_object_get(value, "prompt");
    json_t *completion = json_object_get(value, "completion"), *record;
    if (shape == SHAPE_TEXT)
        return json_incref(value);
    if (shape == SHAPE_NONE) {
        bool message = json_object_get(value, "role") || json_object_get(value, "from");
        err_set(err, CVN_EFORMAT, "%s",
                message ? "this is a single message; a conversation is {\"messages\": […]}"
                        : "this is neither a text nor a conversation; give {\"text\": …}, "
                          "{\"messages\": […]}, {\"conversations\": […]}, {\"instruction\": …, "
                          "\"output\": …} or {\"prompt\": …, \"completion\": …}");
        return NULL;
    }
    if (shape != SHAPE_COMPLETION || (json_is_array(prompt) && json_is_array(completion)))
        return read_conversation(value, shape, err);
    if (!json_is_string(prompt) || !json_is_string(completion)) {
        err_set(err, CVN_EFORMAT,
                "\"prompt\" and \"completion\" must be two strings or two lists of messages");
        return NULL;
    }
    record = json_with(json_object(), "text", json_incref(prompt));
    record = json_with(record, "completion", json_incref(completion));
    if (!record)
        err_set(err, CVN_EMEM, "no memory for a record");
    return record;
}

/* ---- pairs ---- */

/* How many bytes two texts begin with alike, in whole characters; a space before an answer is the answer's. */
static size_t text_prefix(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(a), *y = json_string_value(b);
    size_t n = 0;
    while (x[n] && x[n] == y[n])
        n++;
    while (n > 0 && ((x[n] & 0xc0) == 0x80 || (y[n] & 0xc0) == 0x80))
        n--;
    return n > 0 && x[n - 1] == ' ' ? n - 1 : n;
}

/* The same of two lists of messages. */
static size_t list_prefix(const json_t *a, const json_t *b)
{
    size_t n = 0;
    while (n < json_array_size(a) && n < json_array_size(b) &&
           json_equal(json_array_get(a, n), json_array_get(b, n)))
        n++;
    return n;
}

/* The first n bytes or messages of an answer, or what follows them. */
static json_t *part_of(const json_t *answer, size_t n, bool first)
{
    if (json_is_string(answer)) {
        const char *text = json_string_value(answer);
        return first ? json_stringn(text, n)
                     : json_stringn(text + n, json_string_length(answer) - n);
    }
    json_t *part = json_array();
    for (size_t i = first ? 0 : n, end = first ? n : json_array_size(answer); part && i < end; i++)
        if (json_array_append(part, json_array_get(answer, i))) {
            json_decref(part);
            return NULL;
        }
    return part;
}

/* A prompt and one of its answers. */
static json_t *read_side(const json_t *pair, const char *side, size_t prefix, cvn_err *err)
{
    const json_t *answer = json_object_get(pair, side);
    json_t *prompt = json_object_get(pair, "prompt"), *tools = json_object_get(pair, "tools");
    json_auto_t *one = json_with(json_object(), "prompt",
                                 prompt ? json_incref(prompt) : part_of(answer, prefix, true));
    one = json_with(one, "completion", part_of(answer, prefix, false));
    one = tools ? json_with(one, "tools", json_incref(tools)) : one;
    if (!one) {
        err_set(err, CVN_EMEM, "no memory for a pair");
        return NULL;
    }
    json_t *record = read_one(one, SHAPE_COMPLETION, err);
    if (!record)
        err_prefix(err, "\"%s\"", side);
    return record;
}

static json_t *read_pair(const json_t *pair, cvn_err *err)
{
    static const char *const sides[] = {"chosen", "rejected"};
    const json_t *chosen = json_object_get(pair, sides[0]),
                 *rejected = json_object_get(pair, sides[1]);
    bool texts = json_is_string(chosen) && json_is_string(rejected);
    if (!texts && !(json_is_array(chosen) && json_is_array(rejected))) {
        err_set(err, CVN_EFORMAT,
                "\"chosen\" and \"rejected\" must be two strings or two lists of messages");
        return NULL;
    }
    size_t prefix = json_object_get(pair, "prompt") ? 0
                    : texts                         ? text_prefix(chosen, rejected)
                                                    : list_prefix(chosen, rejected);
    json_t *record = json_object();
    for (int i = 0; i < 2 && record && err->code == CVN_OK; i++)
        record = json_with(record, sides[i], read_side(pair, sides[i], prefix, err));
    if (!record && err->code == CVN_OK)
        err_set(err, CVN_EMEM, "no memory for a pair");
    return record;
}

json_t *record_read(json_t *value, bool pairs, cvn_err *err)
{
    Shape shape = shape_of(value);
    if (pairs && shape == SHAPE_PAIR)
        return read_pair(value, err);
    if (!pairs && shape != SHAPE_PAIR)
        return read_one(value, shape, err);
    err_set(
        err, CVN_EFORMAT, "%s",
        pairs
            ? "this is not a preference pair; give {\"prompt\": …, \"chosen\": …, \"rejected\": …}"
            : "this is a preference pair; use caravan train --dpo");
    return NULL;
}

size_t record_extent(const char *text, size_t n)
{
    size_t depth = 0, i = 0;
    for (bool quoted = false; i < n; i++) {
        char c = text[i];
        if (quoted) {
            i += c == '\\';
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{' || c == '[') {
            depth++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return i;
            if (--depth == 0)
                return i + 1;
        } else if (depth == 0 && memchr(", \t\r\n", c, 5)) {
            return i;
        }
    }
    return n;
}
