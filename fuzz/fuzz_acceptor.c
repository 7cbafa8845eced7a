/* The acceptor against a validator: a schema and a value are made from arbitrary bytes, and the verdict, byte by byte, held to what a
 * checker of a page says, which knows whole values only. */
#include "caravan/constrain.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

static unsigned next(Bytes *b, unsigned below)
{
    return b->at < b->end ? *b->at++ % below : 0;
}

static const char *const names[] = {"a", "b", "ab", ""};
static const char *const strings[] = {"", "a", "b", "ab", "aab", "1", "\xc3\xa9", "a\"\\"};
static const double numbers[] = {0, 1, 2, 3, -1, -2, 10, 0.5, 1.5, 12, -0.25, 100};
enum { NAMES = 4, STRINGS = 8, NUMBERS = 12 };

static json_t *any_value(Bytes *b, int depth)
{
    unsigned kind = next(b, depth > 0 ? 8 : 5), n = 0;
    json_t *v;
    switch (kind) {
    case 0:
        return json_null();
    case 1:
        return json_boolean(next(b, 2));
    case 2:
        return json_integer((int)next(b, 16) - 4);
    case 3:
        return json_real(numbers[next(b, NUMBERS)]);
    case 4:
        return json_string(strings[next(b, STRINGS)]);
    case 5:
    case 6:
        v = json_array();
        for (n = next(b, 5); n; n--)
            json_array_append_new(v, any_value(b, depth - 1));
        return v;
    default:
        v = json_object();
        for (n = next(b, 4); n; n--)
            json_object_set_new(v, names[next(b, NAMES)], any_value(b, depth - 1));
        return v;
    }
}

static json_t *any_schema(Bytes *b, int depth);

static json_t *list_of_schemas(Bytes *b, int depth)
{
    json_t *list = json_array();
    for (unsigned n = 1 + next(b, 3); n; n--)
        json_array_append_new(list, any_schema(b, depth - 1));
    return list;
}

static const char *const types[] = {"null",   "boolean", "integer", "number",
                                    "string", "array",   "object"};
static const char *const counts[] = {"minLength", "maxLength",     "minItems",
                                     "maxItems",  "minProperties", "maxProperties"};
static const char *const bounds[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
static const char *const lists[] = {"allOf", "anyOf", "oneOf", "prefixItems"};
static const char *const single[] = {"items", "contains", "not",          "additionalProperties",
                                     "if",    "then",     "propertyNames"};

static void add_keyword(Bytes *b, json_t *s, int depth)
{
    switch (next(b, 12)) {
    case 0:
    case 1:
        json_object_set_new(s, "type", json_string(types[next(b, 7)]));
        break;
    case 2:
        json_object_set_new(s, "const", any_value(b, 2));
        break;
    case 3: {
        json_t *list = json_array();
        for (unsigned n = 1 + next(b, 3); n; n--)
            json_array_append_new(list, any_value(b, 1));
        json_object_set_new(s, "enum", list);
        break;
    }
    case 4:
        json_object_set_new(s, counts[next(b, 6)], json_integer(next(b, 4)));
        break;
    case 5:
        json_object_set_new(s, bounds[next(b, 4)], json_real(numbers[next(b, NUMBERS)]));
        break;
    case 6:
        json_object_set_new(s, "multipleOf", json_integer(1 + next(b, 3)));
        break;
    case 7:
        if (depth > 0)
            json_object_set_new(s, lists[next(b, 4)], list_of_schemas(b, depth));
        break;
    case 8:
    case 9:
        if (depth > 0)
            json_object_set_new(s, single[next(b, 7)], any_schema(b, depth - 1));
        break;
    case 10: {
        json_t *list = json_array();
        json_array_append_new(list, json_string(names[next(b, NAMES)]));
        json_object_set_new(s, "required", list);
        break;
    }
    default: {
        json_t *of = json_object();
        for (unsigned n = 1 + next(b, 2); n && depth > 0; n--)
            json_object_set_new(of, names[next(b, NAMES)], any_schema(b, depth - 1));
        json_object_set_new(s, "properties", of);
        if (next(b, 8) == 7)
            json_object_set_new(s, "uniqueItems", json_true());
    }
    }
}

static json_t *any_schema(Bytes *b, int depth)
{
    unsigned n = next(b, 6);
    if (n == 5)
        return json_boolean(next(b, 4));
    json_t *s = json_object();
    for (; n; n--)
        add_keyword(b, s, depth);
    return s;
}

static bool same(const json_t *a, const json_t *b)
{
    if (json_is_number(a) && json_is_number(b))
        return json_number_value(a) == json_number_value(b);
    if (json_typeof(a) != json_typeof(b))
        return false;
    if (json_is_array(a)) {
        bool is = json_array_size(a) == json_array_size(b);
        for (size_t i = 0; is && i < json_array_size(a); i++)
            is = same(json_array_get(a, i), json_array_get(b, i));
        return is;
    }
    if (json_is_object(a)) {
        bool is = json_object_size(a) == json_object_size(b);
        const char *name;
        json_t *value;
        json_object_foreach((json_t *)a, name, value)
        {
            const json_t *other = json_object_get(b, name);
            is = is && other && same(value, other);
        }
        return is;
    }
    return json_equal((json_t *)a, (json_t *)b);
}

static bool is_of(const json_t *v, const char *type)
{
    static const json_type plain[] = {JSON_STRING, JSON_ARRAY, JSON_OBJECT, JSON_NULL};
    static const char *const called[] = {"string", "array", "object", "null"};
    for (size_t i = 0; i < 4; i++)
        if (!strcmp(type, called[i]))
            return json_typeof(v) == plain[i];
    if (!strcmp(type, "boolean"))
        return json_is_boolean(v);
    double number = json_number_value(v);
    return json_is_number(v) && (strcmp(type, "integer") != 0 || floor(number) == number);
}

static size_t characters(const char *text)
{
    size_t n = 0;
    for (; *text; text++)
        n += (*text & 0xc0) != 0x80;
    return n;
}

static bool fulfils(const json_t *s, const json_t *v);

static size_t fulfilled(const json_t *list, const json_t *v)
{
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(list); i++)
        n += fulfils(json_array_get(list, i), v);
    return n;
}

static bool in_bounds(const json_t *s, double v)
{
    const json_t *low = json_object_get(s, "minimum"), *high = json_object_get(s, "maximum"),
                 *above = json_object_get(s, "exclusiveMinimum"),
                 *below = json_object_get(s, "exclusiveMaximum"),
                 *unit = json_object_get(s, "multipleOf");
    return (!low || v >= json_number_value(low)) && (!high || v <= json_number_value(high)) &&
           (!above || v > json_number_value(above)) && (!below || v < json_number_value(below)) &&
           (!unit || fmod(v, json_number_value(unit)) == 0);
}

static bool counted(const json_t *s, const char *min, const char *max, size_t n)
{
    const json_t *low = json_object_get(s, min), *high = json_object_get(s, max);
    return (!low || (json_int_t)n >= json_integer_value(low)) &&
           (!high || (json_int_t)n <= json_integer_value(high));
}

static bool array_fulfils(const json_t *s, const json_t *v)
{
    const json_t *prefix = json_object_get(s, "prefixItems"), *items = json_object_get(s, "items"),
                 *contains = json_object_get(s, "contains");
    size_t n = json_array_size(v), found = 0;
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, i),
                     *of = i < json_array_size(prefix) ? json_array_get(prefix, i) : items;
        if (of && !fulfils(of, item))
            return false;
        found += contains && fulfils(contains, item);
        for (size_t k = 0; k < i && json_object_get(s, "uniqueItems"); k++)
            if (same(item, json_array_get(v, k)))
                return false;
    }
    return (!contains || found) && counted(s, "minItems", "maxItems", n);
}

static bool object_fulfils(const json_t *s, const json_t *v)
{
    const json_t *properties = json_object_get(s, "properties"),
                 *others = json_object_get(s, "additionalProperties"),
                 *called = json_object_get(s, "propertyNames"),
                 *required = json_object_get(s, "required");
    const char *name;
    json_t *value;
    for (size_t i = 0; i < json_array_size(required); i++)
        if (!json_object_get(v, json_string_value(json_array_get(required, i))))
            return false;
    json_object_foreach((json_t *)v, name, value)
    {
        const json_t *of = json_object_get(properties, name);
        json_t *text = json_string(name);
        bool good = !called || fulfils(called, text);
        json_decref(text);
        if (!good || ((of || others) && !fulfils(of ? of : others, value)))
            return false;
    }
    return counted(s, "minProperties", "maxProperties", json_object_size(v));
}

static bool fulfils(const json_t *s, const json_t *v)
{
    const json_t *k;
    if (!json_is_object(s))
        return json_is_true(s);
    if ((k = json_object_get(s, "type")) && !is_of(v, json_string_value(k)))
        return false;
    if ((k = json_object_get(s, "const")) && !same(k, v))
        return false;
    if ((k = json_object_get(s, "enum"))) {
        bool found = false;
        for (size_t i = 0; i < json_array_size(k); i++)
            found = found || same(json_array_get(k, i), v);
        if (!found)
            return false;
    }
    if ((k = json_object_get(s, "allOf")) && fulfilled(k, v) < json_array_size(k))
        return false;
    if ((k = json_object_get(s, "anyOf")) && !fulfilled(k, v))
        return false;
    if ((k = json_object_get(s, "oneOf")) && fulfilled(k, v) != 1)
        return false;
    if ((k = json_object_get(s, "not")) && fulfils(k, v))
        return false;
    if ((k = json_object_get(s, "if")) && fulfils(k, v) && (k = json_object_get(s, "then")) &&
        !fulfils(k, v))
        return false;
    if (json_is_number(v))
        return in_bounds(s, json_number_value(v));
    if (json_is_string(v))
        return counted(s, "minLength", "maxLength", characters(json_string_value(v)));
    return json_is_array(v) ? array_fulfils(s, v) : json_is_object(v) ? object_fulfils(s, v) : true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    Bytes b = {data, data + (size < 512 ? size : 512)};
    json_t *schema = any_schema(&b, 3);
    char *text = json_dumps(schema, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6));
    cvn_constraint *constraint = NULL;
    if (text && !cvn_constraint_schema(text, strlen(text), NULL, &constraint, NULL)) {
        for (int i = 0; i < 4; i++) {
            json_t *value = any_value(&b, 3);
            char *said = json_dumps(value, JSON_ENCODE_ANY | (i & 1 ? JSON_ENSURE_ASCII : 0));
            cvn_constrained *read = NULL;
            if (!said || cvn_constrained_new(constraint, NULL, &read, NULL))
                abort();
            int code = cvn_constrained_advance_bytes(read, said, strlen(said), NULL);
            bool accepted = code == CVN_OK && cvn_constrained_complete(read);
            if ((code == CVN_OK || code == CVN_EINVAL) && accepted != fulfils(schema, value))
                abort();
            cvn_constrained_free(read);
            free(said);
            json_decref(value);
        }
        cvn_constraint_free(constraint);
    }
    free(text);
    json_decref(schema);
    return 0;
}
