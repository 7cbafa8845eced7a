#include "base/json_reader.h"

#include <stdio.h>
#include <string.h>

const char *json_value_text(const json_t *value, char *text, size_t size)
{
    SCOPED(scoped_free)
    char *all = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(9));
    snprintf(text, size, "%.*s%s", (int)size - 4, all ? all : "?",
             all && strlen(all) > size - 4 ? "..." : "");
    return text;
}

void json_wrong_type(JsonReader *r, const char *key, const json_t *value, const char *want)
{
    char text[80];
    if (r->code == CVN_OK)
        r->code = err_set(r->err, CVN_EFORMAT, "'%s': %s is %s, expected %s", r->file, key,
                          json_value_text(value, text, sizeof text), want);
}

const json_t *json_get(const JsonReader *r, const char *key)
{
    const json_t *value = json_object_get(r->json, key);
    return json_is_null(value) ? NULL : value;
}

void json_get_int(JsonReader *r, const char *key, int64_t *out)
{
    const json_t *value = json_get(r, key);
    if (value && !json_is_integer(value))
        json_wrong_type(r, key, value, "an integer");
    else if (value)
        *out = json_integer_value(value);
}

void json_get_real(JsonReader *r, const char *key, double *out)
{
    const json_t *value = json_get(r, key);
    if (value && !json_is_number(value))
        json_wrong_type(r, key, value, "a number");
    else if (value)
        *out = json_number_value(value);
}

void json_get_bool(JsonReader *r, const char *key, bool *out)
{
    const json_t *value = json_get(r, key);
    if (value && !json_is_boolean(value))
        json_wrong_type(r, key, value, "true or false");
    else if (value)
        *out = json_is_true(value);
}

const char *json_get_string(JsonReader *r, const char *key)
{
    const json_t *value = json_get(r, key);
    if (value && !json_is_string(value))
        json_wrong_type(r, key, value, "a string");
    return json_string_value(value);
}
