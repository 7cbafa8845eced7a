/* Tools as constraints: names are choices, arguments JSON by the schema of each (tool_set.h). */
#include "serve/tool_set.h"

#include "base/err.h"

#include <stdlib.h>
#include <string.h>

const cvn_constrain_options tools_written = {.compact = true, .in_order = true, .canonical = true};

int tool_set_init(ToolSet *set, size_t most, cvn_err *err)
{
    *set =
        (ToolSet){.shown = json_array(), .tool = calloc(most + 1, sizeof *set->tool), .only = -1};
    return set->shown && set->tool ? CVN_OK : err_set(err, CVN_EMEM, "no memory for tools");
}

void tool_set_free(ToolSet *set)
{
    for (int i = 0; i < set->n; i++)
        cvn_constraint_free(set->tool[i].arguments);
    cvn_constraint_free(set->names);
    cvn_constraint_free(set->again);
    free(set->tool);
    json_decref(set->shown);
    *set = (ToolSet){0};
}

static bool is_name(const char *name)
{
    size_t n =
        name ? strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")
             : 0;
    return n && n <= TOOL_NAME_MAX && !name[n];
}

/* A function takes the arguments that it names: where its schema leaves open whether there are others, none are written. */
static json_t *arguments_schema(const json_t *parameters)
{
    static const char *const open[] = {"additionalProperties",
                                       "unevaluatedProperties",
                                       "patternProperties",
                                       "allOf",
                                       "anyOf",
                                       "oneOf",
                                       "$ref"};
    bool closes = json_object_size(json_object_get(parameters, "properties")) > 0;
    for (size_t i = 0; i < sizeof open / sizeof *open; i++)
        closes = closes && !json_object_get(parameters, open[i]);
    json_t *schema = json_copy((json_t *)(uintptr_t)parameters);
    if (closes)
        json_object_set_new(schema, open[0], json_false());
    return schema;
}

/* Takes the reference to `schema`. */
static int constrain_by(json_t *schema, const char *name, cvn_constraint **out, cvn_err *err)
{
    cvn_err why = {0};
    char *text = schema ? json_dumps(schema, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    json_decref(schema);
    if (!text)
        return err_set(err, CVN_EMEM, "no memory for a schema");
    int code = cvn_constraint_schema(text, strlen(text), &tools_written, out, &why);
    free(text);
    return code ? err_set(err, code, "the parameters of the tool \"%.100s\": %s", name, why.message)
                : CVN_OK;
}

int tool_set_add(ToolSet *set, const json_t *function, const json_t *parameters, cvn_err *err)
{
    const char *name = json_string_value(json_object_get(function, "name"));
    const json_t *text = json_object_get(function, "description");
    if (!is_name(name))
        return err_set(err, CVN_EINVAL, "a tool name must have 1 to %d letters, digits, _, - and .",
                       TOOL_NAME_MAX);
    for (int i = 0; i < set->n; i++)
        if (strcmp(set->tool[i].name, name) == 0)
            return err_set(err, CVN_EINVAL, "two tools are named %s", name);
    bool given = parameters && !json_is_null(parameters);
    json_t *schema = given ? json_incref((json_t *)(uintptr_t)parameters)
                           : json_pack("{s:s,s:{}}", "type", "object", "properties");
    json_t *shown = json_pack("{s:s,s:{s:s,s:s,s:o}}", "type", "function", "function", "name", name,
                              "description", json_is_string(text) ? json_string_value(text) : "",
                              "parameters", schema);
    if (!shown || json_array_append_new(set->shown, shown))
        return err_set(err, CVN_EMEM, "no memory for tools");
    Tool *t = &set->tool[set->n++];
    *t = (Tool){.name =
                    json_string_value(json_object_get(json_object_get(shown, "function"), "name")),
                .parameters = schema};
    if (!json_is_object(schema))
        return err_set(err, CVN_EINVAL, "the parameters of the tool %s are not a JSON schema",
                       name);
    cvn_err why = {0};
    int code = constrain_by(arguments_schema(schema), name, &t->arguments, &why);
    if (code && code != CVN_EMEM && !json_is_true(json_object_get(function, "strict")))
        return constrain_by(json_pack("{s:s}", "type", "object"), name, &t->arguments, err);
    return code ? err_set(err, code, "%s", why.message) : CVN_OK;
}

/* What comes after a call: another, or its end. What both begin with is no choice. */
static int make_again(ToolSet *set, const CallSyntax *y, cvn_err *err)
{
    size_t same = 0;
    while (y->again[same] && y->again[same] == y->after[same])
        same++;
    const char *const texts[] = {y->again + same, y->after + same};
    const size_t lengths[] = {strlen(texts[0]), strlen(texts[1])};
    set->same_end = same;
    return cvn_constraint_choices(texts, lengths, 2, &set->again, err);
}

int tool_set_allow(ToolSet *set, const CallSyntax *syntax, const char *named, bool several,
                   cvn_err *err)
{
    const char *names[TOOLS_MAX];
    size_t lengths[TOOLS_MAX];
    if (!syntax->known)
        return err_set(err, CVN_EMEM, "no memory for the tool call format");
    set->only = set->n == 1 && !named ? 0 : -1;
    for (int i = 0; i < set->n; i++) {
        names[i] = set->tool[i].name;
        lengths[i] = strlen(names[i]);
        if (named && strcmp(named, names[i]) == 0)
            set->only = i;
    }
    if (named && set->only < 0)
        return err_set(err, CVN_EINVAL, "unknown tool \"%.100s\"", named);
    int code = cvn_constraint_choices(names, lengths, (size_t)set->n, &set->names, err);
    return code == CVN_OK && several && syntax->again ? make_again(set, syntax, err) : code;
}
