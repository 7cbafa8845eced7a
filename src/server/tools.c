#include "server/tools.h"

#include "base/json_reader.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *string_of(const json_t *object, const char *name)
{
    return json_string_value(json_object_get(object, name));
}

static bool is(const char *word, const char *other)
{
    return word && strcmp(word, other) == 0;
}

/* ---- what answers must be ---- */

static const cvn_constrain_options WRITTEN = {.compact = true, .in_order = true, .canonical = true};

static int make_schema(const json_t *schema, const char *field, cvn_constraint **out, Refusal *why)
{
    cvn_err err = {0};
    char *text = json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text)
        return refuse(why, 500, NULL, "no memory for a schema");
    if (cvn_constraint_schema(text, strlen(text), &WRITTEN, out, &err))
        refuse(why, 400, field, "the schema of %s: %s", field, err.message);
    free(text);
    return why->status;
}

static int set_constraint(Ask *a, const char *field, int code, const cvn_err *err, Refusal *why)
{
    a->constraint_field = field;
    return code ? refuse(why, code == CVN_EMEM ? 500 : 400, field, "%s: %s", field, err->message)
                : 0;
}

static int check_one(const Ask *a, const char *field, Refusal *why)
{
    return a->constraint
               ? refuse(why, 400, field, "%s and %s both constrain the answer; send one of them",
                        a->constraint_field, field)
               : 0;
}

static int set_schema(Ask *a, const char *field, const json_t *schema, Refusal *why)
{
    if (check_one(a, field, why))
        return why->status;
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return refuse(why, 400, field, "%s has no schema", field);
    a->constraint_field = field;
    return make_schema(schema, field, &a->constraint, why);
}

static int set_any_object(Ask *a, const char *field, Refusal *why)
{
    static const char any[] = "{\"type\":\"object\"}";
    cvn_err err = {0};
    if (check_one(a, field, why))
        return why->status;
    int code = cvn_constraint_schema(any, sizeof any - 1, &WRITTEN, &a->constraint, &err);
    return set_constraint(a, field, code, &err, why);
}

/* {"type": "json_schema", …}: `schema` lies in it, or one level deeper. */
static int read_format(Ask *a, const char *field, const json_t *value, bool nested, Refusal *why)
{
    const char *type = string_of(value, "type");
    if (is(type, "text"))
        return 0;
    if (is(type, "json_object"))
        return set_any_object(a, field, why);
    if (is(type, "json_schema"))
        return set_schema(
            a, field,
            json_object_get(nested ? json_object_get(value, "json_schema") : value, "schema"), why);
    return refuse(why, 400, field, "%s has an unknown type; give text, json_object or json_schema",
                  field);
}

int read_response_format(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    return read_format(a, name, value, true, why);
}

int read_output_format(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    return read_format(a, name, value, false, why);
}

int read_output_config(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return refuse(why, 400, name, "%s is not an object", name);
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        if (json_is_null(member))
            continue;
        if (strcmp(key, "format") != 0)
            return refuse(why, 400, name, "%s: \"%.60s\" is not supported", name, key);
        if (read_format(a, name, member, false, why))
            return why->status;
    }
    return 0;
}

int read_responses_text(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    json_t *rest = json_is_object(value) ? json_copy((json_t *)(uintptr_t)value) : NULL;
    if (is(string_of(rest, "verbosity"), "medium"))
        json_object_del(rest, "verbosity");
    if (rest)
        read_output_config(a, name, rest, why);
    else
        refuse(why, 400, name, "%s is not an object", name);
    json_decref(rest);
    return why->status;
}

static int set_choices(Ask *a, const char *field, const json_t *list, Refusal *why)
{
    enum { MOST = 1024 };
    const char *text[MOST];
    size_t length[MOST], n = json_array_size(list);
    cvn_err err = {0};
    if (n == 0 || n > MOST)
        return refuse(why, 400, field, "%s: choice must be an array of 1 to %d strings", field,
                      MOST);
    for (size_t i = 0; i < n; i++) {
        text[i] = json_string_value(json_array_get(list, i));
        length[i] = json_string_length(json_array_get(list, i));
        if (!text[i])
            return refuse(why, 400, field, "%s: choice %zu is not a string", field, i);
    }
    int code = cvn_constraint_choices(text, length, n, &a->constraint, &err);
    return set_constraint(a, field, code, &err, why);
}

/* vLLM's: {"json": schema}, {"regex": …}, {"choice": […]} or {"json_object": true}. */
int read_structured_outputs(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *key;
    json_t *member;
    if (!json_is_object(value))
        return refuse(why, 400, name, "%s is not an object", name);
    json_object_foreach((json_t *)(uintptr_t)value, key, member)
    {
        cvn_err err = {0};
        json_t *parsed = NULL;
        if (json_is_null(member) || json_is_false(member))
            continue;
        if (check_one(a, name, why))
            return why->status;
        if (is(key, "json") && json_is_string(member)) {
            ask_parse(json_string_value(member), json_string_length(member), &parsed, why);
            if (!why->status)
                set_schema(a, name, parsed, why);
            json_decref(parsed);
        } else if (is(key, "json")) {
            set_schema(a, name, member, why);
        } else if (is(key, "json_object")) {
            set_any_object(a, name, why);
        } else if (is(key, "choice")) {
            set_choices(a, name, member, why);
        } else if ((is(key, "regex") || is(key, "grammar")) && json_is_string(member)) {
            const char *text = json_string_value(member);
            size_t n = json_string_length(member);
            int code = is(key, "regex") ? cvn_constraint_regex(text, n, &a->constraint, &err)
                                        : cvn_constraint_grammar(text, n, &a->constraint, &err);
            set_constraint(a, name, code, &err, why);
        } else {
            refuse(why, 400, name, "%s: \"%.60s\" is not supported", name, key);
        }
        if (why->status)
            return why->status;
    }
    return 0;
}

/* ---- tools ---- */

/* A refusal of what the set of tools says of a field. */
static int set_tools(const char *field, int code, const cvn_err *err, Refusal *why)
{
    return code ? refuse(why, code == CVN_EMEM ? 500 : 400, code == CVN_EMEM ? NULL : field, "%s",
                         err->message)
                : 0;
}

static int add_tool(Ask *a, const char *field, const json_t *tool, const json_t *parameters,
                    Refusal *why)
{
    cvn_err err = {0};
    return set_tools(field, tool_set_add(&a->calls.set, tool, parameters, &err), &err, why);
}

static int begin_tools(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    cvn_err err = {0};
    size_t n = json_array_size(value);
    if (!json_is_array(value) || n > TOOLS_MAX)
        return refuse(why, 400, name, "%s must be an array of at most %d tools", name, TOOLS_MAX);
    return set_tools(NULL, tool_set_init(&a->calls.set, n, &err), &err, why);
}

static int wrong_kind(const json_t *tool, const char *field, Refusal *why)
{
    const char *type = string_of(tool, "type");
    return refuse(why, 400, field, "a tool has the type %.40s; only function is supported",
                  type ? type : "(none)");
}

int read_chat_tools(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    begin_tools(a, name, value, why);
    for (size_t i = 0; i < json_array_size(value) && !why->status; i++) {
        const json_t *tool = json_array_get(value, i), *f = json_object_get(tool, "function");
        if (!is(string_of(tool, "type"), "function") || !json_is_object(f))
            return wrong_kind(tool, name, why);
        add_tool(a, name, f, json_object_get(f, "parameters"), why);
    }
    return why->status;
}

int read_responses_tools(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    begin_tools(a, name, value, why);
    for (size_t i = 0; i < json_array_size(value) && !why->status; i++) {
        const json_t *tool = json_array_get(value, i);
        if (!is(string_of(tool, "type"), "function"))
            return wrong_kind(tool, name, why);
        add_tool(a, name, tool, json_object_get(tool, "parameters"), why);
    }
    return why->status;
}

int read_messages_tools(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    begin_tools(a, name, value, why);
    for (size_t i = 0; i < json_array_size(value) && !why->status; i++) {
        const json_t *tool = json_array_get(value, i);
        const char *type = string_of(tool, "type");
        if (type && !is(type, "custom"))
            return wrong_kind(tool, name, why);
        add_tool(a, name, tool, json_object_get(tool, "input_schema"), why);
    }
    return why->status;
}

/* A word, or an object that names a function, in the shape of either of OpenAI's dialects. */
int read_tool_choice(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    const char *word = json_string_value(value);
    const json_t *function = json_object_get(value, "function");
    a->calls.choice = is(word, "none")       ? TOOLS_NONE
                      : is(word, "required") ? TOOLS_REQUIRED
                                             : TOOLS_AUTO;
    if (word && (a->calls.choice != TOOLS_AUTO || is(word, "auto")))
        return 0;
    a->calls.named_tool = string_of(function ? function : value, "name");
    if (!is(string_of(value, "type"), "function") || !a->calls.named_tool)
        return refuse(why, 400, name, "%s must be none, auto, required or name a function", name);
    a->calls.choice = TOOLS_NAMED;
    return 0;
}

int read_messages_tool_choice(Ask *a, const char *name, const json_t *value, Refusal *why)
{
    static const char *const words[] = {"auto", "none", "any", "tool"};
    const char *type = string_of(value, "type");
    int i = 0;
    while (i < 4 && !is(type, words[i]))
        i++;
    a->calls.choice = (ToolChoice)i;
    a->calls.parallel_tool_calls =
        !json_is_true(json_object_get(value, "disable_parallel_tool_use"));
    a->calls.named_tool = string_of(value, "name");
    if (i == 4 || (a->calls.choice == TOOLS_NAMED && !a->calls.named_tool))
        return refuse(why, 400, name, "%s must have the type auto, any, none, or tool with a name",
                      name);
    return 0;
}

int tools_finish(Ask *a, const CallSyntax *y, Refusal *why)
{
    cvn_err err = {0};
    const bool named = a->calls.choice == TOOLS_NAMED;
    if (a->calls.choice >= TOOLS_REQUIRED && !a->calls.set.n)
        return refuse(why, 400, "tool_choice",
                      "tool_choice requires a tool call, but the request has no tools");
    if (!a->calls.set.n || a->calls.choice == TOOLS_NONE)
        return 0;
    if (a->constraint)
        return refuse(why, 400, "tools", "%s constrains the answer and requires tool_choice none",
                      a->constraint_field);
    if (a->output.logprobs || a->output.return_token_ids)
        return refuse(why, 400, a->output.logprobs ? "logprobs" : "return_token_ids",
                      "log-probabilities are not available with tool calls");
    int code = tool_set_allow(&a->calls.set, y, named ? a->calls.named_tool : NULL,
                              a->calls.parallel_tool_calls && !named, &err);
    return set_tools("tool_choice", code, &err, why);
}
