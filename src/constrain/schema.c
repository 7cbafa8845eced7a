#include "constrain/schema.h"

#include "base/num.h"
#include "constrain/pattern.h"
#include "constrain/solve.h"

#include <stdlib.h>
#include <string.h>

/* The count that a keyword gives, or `absent` if the schema lacks it. */
static uint32_t count_of(Schemas *s, uint32_t of, const char *keyword, uint32_t absent)
{
    const JsonValue *value = schema_keyword(s, of, keyword);
    if (!value)
        return absent;
    Decimal number = decimal_read(&s->e->arena, value->kind == JSON_K_NUMBER ? value->text : "-1",
                                  value->kind == JSON_K_NUMBER ? value->length : 2);
    if (number.negative || number.exp < 0) {
        schema_refuse(s, of, keyword, "a non-negative integer is expected");
        return absent;
    }
    if (number.n && decimal_magnitude(&number) > 9)
        return FORMULA_MANY - 1;
    uint32_t count = 0;
    for (int64_t i = 0; number.n && i < decimal_magnitude(&number); i++)
        count = count * 10 + (uint32_t)(i < number.n ? number.digits[i] - '0' : 0);
    return count;
}

static Formula say_type(Schemas *s, uint32_t of, const JsonValue *name)
{
    static const struct {
        const char *name;
        uint32_t kinds;
    } types[] = {{"null", KIND_NULL},     {"boolean", KIND_FALSE | KIND_TRUE},
                 {"number", KIND_NUMBER}, {"string", KIND_STRING},
                 {"array", KIND_ARRAY},   {"object", KIND_OBJECT}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (json_is(name, types[i].name))
            return f_type(s->e, types[i].kinds);
    if (!json_is(name, "integer"))
        return schema_refuse(s, of, "type", "a name of a type, or a list of them, is expected");
    Decimal one = decimal_read(&s->e->arena, "1", 1);
    NumberOp op = s->at[of].draft == DRAFT_4 ? NUMBER_DIGITS : NUMBER_MULTIPLE;
    return f_and2(s->e, f_type(s->e, KIND_NUMBER), f_number(s->e, op, &one));
}

static Formula add_type(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = F_FALSE;
    if (value->kind != JSON_K_ARRAY)
        return say_type(s, of, value);
    for (size_t i = 0; i < value->n; i++)
        f = f_or2(s->e, f, say_type(s, of, value->item[i]));
    return f;
}

static Formula add_const(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)of;
    return f_const(s->e, value);
}

static Formula add_enum(Schemas *s, uint32_t of, const JsonValue *value)
{
    Term *words = arena_array(&s->e->arena, value->n + 1, sizeof *words);
    Formula *list = arena_array(&s->e->arena, value->n + 1, sizeof *list);
    size_t n_words = 0, n = 0;
    if (value->kind != JSON_K_ARRAY)
        return schema_refuse(s, of, "enum", "a list is expected");
    for (size_t i = 0; i < value->n; i++) {
        if (value->item[i]->kind == JSON_K_STRING)
            words[n_words++] =
                term_text(&s->e->terms, value->item[i]->text, value->item[i]->length);
        else
            list[n++] = f_const(s->e, value->item[i]);
    }
    list[n] = F_FALSE;
    if (n_words)
        list[n++] = f_and2(s->e, f_type(s->e, KIND_STRING),
                           f_string(s->e, term_or(&s->e->terms, words, n_words)));
    return f_or(s->e, list, n);
}

static Formula add_bound(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                         NumberOp op)
{
    if (value->kind != JSON_K_NUMBER)
        return schema_refuse(s, of, keyword, "a number is expected");
    Decimal number = decimal_read(&s->e->arena, value->text, value->length);
    if (llabs(number.exp) > SCHEMA_EXPONENT || number.n > SCHEMA_EXPONENT ||
        (op == NUMBER_MULTIPLE && number.n > 18))
        return schema_refuse(s, of, keyword, "the number has too many digits");
    if (op == NUMBER_MULTIPLE && (number.negative || !number.n))
        return schema_refuse(s, of, keyword, "a positive number is expected");
    return f_number(s->e, op, &number);
}

/* In draft 4 a bound is exclusive where another keyword says so. */
static bool is_exclusive(Schemas *s, uint32_t of, const char *keyword)
{
    const JsonValue *value = schema_keyword(s, of, keyword);
    return value && s->at[of].draft == DRAFT_4 && value->kind == JSON_K_TRUE;
}

static Formula add_exclusive(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                             NumberOp op)
{
    bool says = value->kind == JSON_K_TRUE || value->kind == JSON_K_FALSE;
    if (s->at[of].draft != DRAFT_4)
        return add_bound(s, of, value, keyword, op);
    return says ? F_TRUE : schema_refuse(s, of, keyword, "true or false is expected in draft 4");
}

static Formula add_minimum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "minimum",
                     is_exclusive(s, of, "exclusiveMinimum") ? NUMBER_GT : NUMBER_GE);
}

static Formula add_maximum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "maximum",
                     is_exclusive(s, of, "exclusiveMaximum") ? NUMBER_LT : NUMBER_LE);
}

static Formula add_exclusive_minimum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_exclusive(s, of, value, "exclusiveMinimum", NUMBER_GT);
}

static Formula add_exclusive_maximum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_exclusive(s, of, value, "exclusiveMaximum", NUMBER_LT);
}

static Formula add_multiple(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "multipleOf", NUMBER_MULTIPLE);
}

/* minLength and maxLength together are one repetition. */
static Formula add_length(Schemas *s, uint32_t of, const JsonValue *value)
{
    uint32_t min = count_of(s, of, "minLength", 0), max = count_of(s, of, "maxLength", TERM_MANY);
    (void)value;
    if (max < min)
        return f_string(s->e, TERM_NONE);
    if (min == 0 && max == TERM_MANY)
        return F_TRUE;
    return f_string(s->e, term_rep(&s->e->terms, term_any_character(&s->e->terms), min, max));
}

static Term pattern_of(Schemas *s, uint32_t of, const char *keyword, const char *text, size_t n)
{
    cvn_err err = {0};
    Term term = TERM_NONE;
    if (pattern_term(&s->e->terms, text, n, false, &term, &err))
        solver_fail(s->e, "%s/%s: '%.100s': %s", s->at[of].path, keyword, text, err.message);
    return term;
}

static Formula add_pattern(Schemas *s, uint32_t of, const JsonValue *value)
{
    if (value->kind != JSON_K_STRING)
        return schema_refuse(s, of, "pattern", "a string is expected");
    return f_string(s->e, pattern_of(s, of, "pattern", value->text, value->length));
}

static Formula add_format(Schemas *s, uint32_t of, const JsonValue *value)
{
    Term term = TERM_ALL;
    bool named = value->kind == JSON_K_STRING, added = true;
    if (!s->assert_format)
        return F_TRUE;
    const uint32_t key[2] = {named ? name_id(s->e, value->text, value->length) : 0,
                             s->at[of].draft};
    uint64_t *known = named ? map_put(&s->formats, key, sizeof key, &added) : NULL;
    if (!added)
        return f_string(s->e, (Term)*known);
    if (format_term(&s->e->terms, value, s->at[of].draft, &term) < 0)
        return solver_fail(s->e, "%s/format: the format '%.60s' is not supported as an assertion",
                           s->at[of].path, value->text);
    if (named)
        *known = term;
    return f_string(s->e, term);
}

/* Whether `type` is the only keyword of a schema. */
static bool asks_types_only(const Schemas *s, uint32_t of)
{
    const JsonValue *value = s->at[of].value;
    bool asks = false;
    for (size_t i = 0; i < value->n && value->kind == JSON_K_OBJECT; i++) {
        bool type = value->item[i] == schema_keyword(s, of, "type");
        if (!type && schema_keyword(s, of, value->name[i].text))
            return false;
        asks = asks || type;
    }
    return asks;
}

/* The formula of a subschema. It is an atom until a value begins, since the schema may refer to itself. A schema that asks for types
   alone is the formula of those types, so that equal schemas have equal formulas, and contradictions are seen at once. */
static Formula below_of(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                        const char *key)
{
    uint32_t below = schema_below(s, of, value, keyword, key);
    if (s->e->failed[0] || value->kind == JSON_K_FALSE)
        return F_FALSE;
    Formula types =
        asks_types_only(s, below) ? add_type(s, below, json_member(value, "type", 4)) : F_TRUE;
    return types > F_TRUE ? types : f_schema(s->e, below, false);
}

static Formula item_of(Schemas *s, uint32_t of, const JsonValue *list, const char *keyword,
                       size_t i)
{
    return below_of(s, of, list->item[i], keyword, arena_printf(&s->e->arena, "%zu", i));
}

static bool is_object(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword)
{
    if (value->kind == JSON_K_OBJECT)
        return true;
    schema_refuse(s, of, keyword, "an object is expected");
    return false;
}

static Formula add_properties(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula *list = arena_array(&s->e->arena, value->n + 1, sizeof *list);
    if (!is_object(s, of, value, "properties"))
        return F_FALSE;
    for (size_t i = 0; i < value->n; i++) {
        uint32_t name = name_id(s->e, value->name[i].text, value->name[i].length);
        Formula below = below_of(s, of, value->item[i], "properties", value->name[i].text);
        list[i] = f_all_keys(s->e, set_of_name(s->e, name), below);
    }
    return f_and(s->e, list, value->n);
}

static Formula add_pattern_properties(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = F_TRUE;
    if (!is_object(s, of, value, "patternProperties"))
        return F_FALSE;
    for (size_t i = 0; i < value->n; i++) {
        Term term =
            pattern_of(s, of, "patternProperties", value->name[i].text, value->name[i].length);
        Formula below = below_of(s, of, value->item[i], "patternProperties", value->name[i].text);
        f = f_and2(s->e, f, f_all_keys(s->e, set_of_term(s->e, term, NULL, 0), below));
    }
    return f;
}

Term schema_own_names(Schemas *s, uint32_t of, uint32_t **known, uint32_t *n_known)
{
    const JsonValue *properties = schema_keyword(s, of, "properties"),
                    *patterns = schema_keyword(s, of, "patternProperties");
    size_t n_properties = properties ? properties->n : 0, n_patterns = patterns ? patterns->n : 0;
    Term *list = arena_array(&s->e->arena, n_properties + n_patterns + 1, sizeof *list);
    *known = arena_array(&s->e->arena, n_properties + 1, sizeof **known);
    *n_known = (uint32_t)n_properties;
    if ((properties && !properties->name && n_properties) ||
        (patterns && !patterns->name && n_patterns))
        return TERM_NONE;
    for (size_t i = 0; i < n_properties; i++) {
        (*known)[i] = name_id(s->e, properties->name[i].text, properties->name[i].length);
        list[i] = term_text(&s->e->terms, properties->name[i].text, properties->name[i].length);
    }
    for (size_t i = 0; i < n_patterns; i++)
        list[n_properties + i] = pattern_of(s, of, "patternProperties", patterns->name[i].text,
                                            patterns->name[i].length);
    return term_or(&s->e->terms, list, n_properties + n_patterns);
}

static Formula add_additional_properties(Schemas *s, uint32_t of, const JsonValue *value)
{
    uint32_t *known, n_known;
    Term own = schema_own_names(s, of, &known, &n_known);
    uint32_t set = set_of_term(s->e, term_not(&s->e->terms, own), known, n_known);
    return f_all_keys(s->e, set, below_of(s, of, value, "additionalProperties", NULL));
}

/* A name that the schema forbids is a key for which no value is allowed. */
static Formula add_property_names(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = f_restrict(s->e, below_of(s, of, value, "propertyNames", NULL), KIND_STRING);
    Term term = f == F_TRUE ? TERM_ALL : f == F_FALSE ? TERM_NONE : s->e->formulas.node[f].a;
    return f_all_keys(s->e, set_of_term(s->e, term_not(&s->e->terms, term), NULL, 0), F_FALSE);
}

static Formula require(Schemas *s, uint32_t of, const JsonValue *names, const char *keyword)
{
    Formula *list = arena_array(&s->e->arena, names->n + 1, sizeof *list);
    for (size_t i = 0; i < names->n || names->kind != JSON_K_ARRAY; i++) {
        if (names->kind != JSON_K_ARRAY || names->item[i]->kind != JSON_K_STRING)
            return schema_refuse(s, of, keyword, "a list of names is expected");
        uint32_t name = name_id(s->e, names->item[i]->text, names->item[i]->length);
        list[i] = f_some_key(s->e, set_of_name(s->e, name), F_TRUE);
    }
    return f_and(s->e, list, names->n);
}

static Formula add_required(Schemas *s, uint32_t of, const JsonValue *value)
{
    return require(s, of, value, "required");
}

static Formula absent(Schemas *s, const JsonName *name)
{
    return f_all_keys(s->e, set_of_name(s->e, name_id(s->e, name->text, name->length)), F_FALSE);
}

/* dependencies, whose members are lists of names (dependentRequired) or schemas (dependentSchemas). */
static Formula add_dependencies(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = F_TRUE;
    if (!is_object(s, of, value, "dependencies"))
        return F_FALSE;
    for (size_t i = 0; i < value->n; i++) {
        const JsonValue *on = value->item[i];
        Formula wanted = on->kind == JSON_K_ARRAY
                             ? require(s, of, on, "dependencies")
                             : below_of(s, of, on, "dependencies", value->name[i].text);
        f = f_and2(s->e, f, f_or2(s->e, absent(s, &value->name[i]), wanted));
    }
    return f;
}

static Formula add_dependent_required(Schemas *s, uint32_t of, const JsonValue *value)
{
    for (size_t i = 0; i < value->n; i++)
        if (value->item[i]->kind != JSON_K_ARRAY)
            return schema_refuse(s, of, "dependentRequired", "lists of names are expected");
    return add_dependencies(s, of, value);
}

static Formula add_dependent_schemas(Schemas *s, uint32_t of, const JsonValue *value)
{
    for (size_t i = 0; i < value->n; i++)
        if (value->item[i]->kind == JSON_K_ARRAY)
            return schema_refuse(s, of, "dependentSchemas", "schemas are expected");
    return add_dependencies(s, of, value);
}

static Formula add_key_count(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)value;
    return f_key_count(s->e, count_of(s, of, "minProperties", 0),
                       count_of(s, of, "maxProperties", FORMULA_MANY));
}

static Formula add_item_count(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)value;
    return f_length(s->e, count_of(s, of, "minItems", 0),
                    count_of(s, of, "maxItems", FORMULA_MANY));
}

static Formula say_items(Schemas *s, uint32_t of, const JsonValue *list, const char *keyword)
{
    Formula f = F_TRUE;
    for (size_t i = 0; i < list->n; i++)
        f = f_and2(s->e, f, f_item(s->e, (uint32_t)i, item_of(s, of, list, keyword, i)));
    return f;
}

static Formula add_prefix(Schemas *s, uint32_t of, const JsonValue *value)
{
    return value->kind == JSON_K_ARRAY ? say_items(s, of, value, "prefixItems")
                                       : schema_refuse(s, of, "prefixItems", "a list is expected");
}

static Formula rest_of_items(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                             size_t from)
{
    return f_items(s->e, (uint32_t)from, below_of(s, of, value, keyword, NULL));
}

static Formula add_items(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *prefix = schema_keyword(s, of, "prefixItems");
    if (s->at[of].draft != DRAFT_2020 && value->kind == JSON_K_ARRAY)
        return say_items(s, of, value, "items");
    return rest_of_items(s, of, value, "items", prefix ? prefix->n : 0);
}

static Formula add_additional_items(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *items = schema_keyword(s, of, "items");
    if (!items || items->kind != JSON_K_ARRAY)
        return F_TRUE;
    return rest_of_items(s, of, value, "additionalItems", items->n);
}

static Formula add_contains(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = below_of(s, of, value, "contains", NULL);
    return f_contains(s->e, 0, f, count_of(s, of, "minContains", 1),
                      count_of(s, of, "maxContains", FORMULA_MANY));
}

static Formula add_unique(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)of;
    return value->kind == JSON_K_TRUE ? f_unique(s->e, 0) : F_TRUE;
}

static Formula list_of(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                       bool all)
{
    Formula *list = arena_array(&s->e->arena, value->n + 1, sizeof *list);
    if (value->kind != JSON_K_ARRAY)
        return schema_refuse(s, of, keyword, "a list of schemas is expected");
    for (size_t i = 0; i < value->n; i++)
        list[i] = item_of(s, of, value, keyword, i);
    return all ? f_and(s->e, list, value->n) : f_or(s->e, list, value->n);
}

static Formula add_all_of(Schemas *s, uint32_t of, const JsonValue *value)
{
    return list_of(s, of, value, "allOf", true);
}

static Formula add_any_of(Schemas *s, uint32_t of, const JsonValue *value)
{
    return list_of(s, of, value, "anyOf", false);
}

/* oneOf is a schema of its own. Its formula is made only when it is needed (say_one_of), because by then it is known which alternatives
   exclude each other. */
static Formula add_one_of(Schemas *s, uint32_t of, const JsonValue *value)
{
    if (value->kind != JSON_K_ARRAY)
        return schema_refuse(s, of, "oneOf", "a list of schemas is expected");
    return f_schema(s->e, schema_of_one_of(s, of, value), false);
}

static Formula say_one_of(Schemas *s, uint32_t of, bool compare)
{
    const JsonValue *value = s->at[of].value;
    Solver *e = s->e;
    Formula *alternative = arena_array(&e->arena, value->n + 1, sizeof *alternative);
    Formula *list = arena_array(&e->arena, value->n + 1, sizeof *list);
    for (size_t i = 0; i < value->n; i++)
        alternative[i] = item_of(s, of, value, "oneOf", i);
    bool *apart = arena_array(&e->arena, value->n * value->n + 1, sizeof *apart);
    for (size_t i = 0; i < value->n && compare; i++)
        for (size_t k = 0; k < i; k++)
            apart[i * value->n + k] = apart[k * value->n + i] =
                !value_exists(e, f_and2(e, alternative[i], alternative[k]));
    for (size_t i = 0; i < value->n; i++) {
        Formula *only = arena_array(&e->arena, value->n + 1, sizeof *only);
        for (size_t k = 0; k < value->n; k++)
            only[k] = k == i                    ? alternative[k]
                      : apart[i * value->n + k] ? F_TRUE
                                                : f_not(e, alternative[k]);
        list[i] = f_and(e, only, value->n);
    }
    return f_or(e, list, value->n);
}

static Formula add_not(Schemas *s, uint32_t of, const JsonValue *value)
{
    return f_not(s->e, below_of(s, of, value, "not", NULL));
}

static Formula add_if(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *then = schema_keyword(s, of, "then"),
                    *otherwise = schema_keyword(s, of, "else");
    Formula condition = below_of(s, of, value, "if", NULL);
    Formula yes = then ? below_of(s, of, then, "then", NULL) : F_TRUE;
    Formula no = otherwise ? below_of(s, of, otherwise, "else", NULL) : F_TRUE;
    if (!then && !otherwise)
        return F_TRUE;
    return f_or2(s->e, f_and2(s->e, condition, yes), f_and2(s->e, f_not(s->e, condition), no));
}

static Formula add_ref(Schemas *s, uint32_t of, const JsonValue *value)
{
    return f_schema(s->e, schema_reference(s, of, "$ref", value), false);
}

static Formula add_dynamic_ref(Schemas *s, uint32_t of, const JsonValue *value)
{
    return f_schema(s->e, schema_reference(s, of, "$dynamicRef", value), false);
}

static Formula add_recursive_ref(Schemas *s, uint32_t of, const JsonValue *value)
{
    return f_schema(s->e, schema_reference(s, of, "$recursiveRef", value), false);
}

/* These are assertions in draft 7, whose test suite tests them as such, and annotations in later drafts. */
static Formula add_content(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)value;
    const JsonValue *encoding = schema_keyword(s, of, "contentEncoding");
    if (!s->assert_format)
        return F_TRUE;
    if (schema_keyword(s, of, "contentMediaType"))
        return schema_refuse(s, of, "contentMediaType", "is not supported as an assertion");
    if (!json_is(encoding, "base64"))
        return schema_refuse(s, of, "contentEncoding", "is supported for base64 only");
    return f_string(s->e, format_base64(&s->e->terms));
}

enum {
    FROM_2020 = 1 << DRAFT_2020,
    ONLY_2019 = 1 << DRAFT_2019,
    ONLY_7 = 1 << DRAFT_7,
    FROM_2019 = ONLY_2019 | FROM_2020,
    FROM_7 = ONLY_7 | FROM_2019,
    FROM_6 = 1 << DRAFT_6 | FROM_7,
    ALL = 1 << DRAFT_4 | FROM_6,
    TO_2019 = ALL & ~FROM_2020,
};

/* The keywords. One without a function is read by the function of another one. `applies`: the keyword hands the value to another
   schema, which may evaluate members and items of it. */
// clang-format off
const Keyword schema_keywords[] = {
    {"type",                  add_type,                  ALL,       0,                      false},
    {"const",                 add_const,                 FROM_6,    0,                      false},
    {"enum",                  add_enum,                  ALL,       0,                      false},
    {"properties",            add_properties,            ALL,       HOLDS_MEMBERS,          false},
    {"patternProperties",     add_pattern_properties,    ALL,       HOLDS_MEMBERS,          false},
    {"additionalProperties",  add_additional_properties, ALL,       HOLDS_ONE,              false},
    {"required",              add_required,              ALL,       0,                      false},
    {"propertyNames",         add_property_names,        FROM_6,    HOLDS_ONE,              false},
    {"minProperties",         add_key_count,             ALL,       0,                      false},
    {"maxProperties",         add_key_count,             ALL,       0,                      false},
    {"dependentRequired",     add_dependent_required,    FROM_2019, 0,                      false},
    {"minimum",               add_minimum,               ALL,       0,                      false},
    {"maximum",               add_maximum,               ALL,       0,                      false},
    {"exclusiveMinimum",      add_exclusive_minimum,     ALL,       0,                      false},
    {"exclusiveMaximum",      add_exclusive_maximum,     ALL,       0,                      false},
    {"multipleOf",            add_multiple,              ALL,       0,                      false},
    {"minLength",             add_length,                ALL,       0,                      false},
    {"maxLength",             add_length,                ALL,       0,                      false},
    {"pattern",               add_pattern,               ALL,       0,                      false},
    {"format",                add_format,                ALL,       0,                      false},
    {"prefixItems",           add_prefix,                FROM_2020, HOLDS_LIST,             false},
    {"items",                 add_items,                 ALL,       HOLDS_ONE | HOLDS_LIST, false},
    {"additionalItems",       add_additional_items,      TO_2019,   HOLDS_ONE,              false},
    {"contains",              add_contains,              FROM_6,    HOLDS_ONE,              false},
    {"minContains",           NULL,                      FROM_2019, 0,                      false},
    {"maxContains",           NULL,                      FROM_2019, 0,                      false},
    {"minItems",              add_item_count,            ALL,       0,                      false},
    {"maxItems",              add_item_count,            ALL,       0,                      false},
    {"uniqueItems",           add_unique,                ALL,       0,                      false},
    {"contentEncoding",       add_content,               ONLY_7,    0,                      false},
    {"contentMediaType",      add_content,               ONLY_7,    0,                      false},
    {"contentSchema",         NULL,                      FROM_2019, HOLDS_ONE,              false},
    {"$ref",                  add_ref,                   ALL,       0,                      true},
    {"$dynamicRef",           add_dynamic_ref,           FROM_2020, 0,                      true},
    {"$recursiveRef",         add_recursive_ref,         ONLY_2019, 0,                      true},
    {"allOf",                 add_all_of,                ALL,       HOLDS_LIST,             true},
    {"anyOf",                 add_any_of,                ALL,       HOLDS_LIST,             true},
    {"oneOf",                 add_one_of,                ALL,       HOLDS_LIST,             true},
    {"not",                   add_not,                   ALL,       HOLDS_ONE,              true},
    {"if",                    add_if,                    FROM_7,    HOLDS_ONE,              true},
    {"then",                  NULL,                      FROM_7,    HOLDS_ONE,              true},
    {"else",                  NULL,                      FROM_7,    HOLDS_ONE,              true},
    {"dependentSchemas",      add_dependent_schemas,     FROM_2019, HOLDS_MEMBERS,          true},
    {"dependencies",          add_dependencies,          ALL,       HOLDS_MEMBERS,          true},
    {"unevaluatedItems",      NULL,                      FROM_2019, HOLDS_ONE,              true},
    {"unevaluatedProperties", NULL,                      FROM_2019, HOLDS_ONE,              true},
    {"definitions",           NULL,                      ALL,       HOLDS_MEMBERS,          false},
    {"$defs",                 NULL,                      FROM_2019, HOLDS_MEMBERS,          false},
    {"$anchor",               NULL,                      FROM_2019, 0,                      false},
    {"$dynamicAnchor",        NULL,                      FROM_2020, 0,                      false},
    {"$recursiveAnchor",      NULL,                      ONLY_2019, 0,                      false},
};
// clang-format on
const size_t n_schema_keywords = sizeof schema_keywords / sizeof *schema_keywords;

static Formula say(Schemas *s, uint32_t of, bool applied)
{
    Formula list[sizeof schema_keywords / sizeof *schema_keywords];
    size_t n = 0;
    const JsonValue *ref = schema_keyword(s, of, "$ref");
    if (s->at[of].value->kind != JSON_K_OBJECT)
        return s->at[of].value->kind == JSON_K_TRUE ? F_TRUE : F_FALSE;
    if (ref && s->at[of].draft <= DRAFT_7) /* what stands beside it says nothing */
        return add_ref(s, of, ref);
    for (size_t i = 0; i < n_schema_keywords && !s->e->failed[0]; i++) {
        const Keyword *row = &schema_keywords[i];
        const JsonValue *value =
            row->say && row->drafts >> s->at[of].draft & 1 && (applied || !row->applies)
                ? json_member(s->at[of].value, row->name, strlen(row->name))
                : NULL;
        if (value)
            list[n++] = row->say(s, of, value);
    }
    return f_and(s->e, list, n);
}

Formula schema_plain(Schemas *s, uint32_t of)
{
    return say(s, of, false);
}

Formula schema_formula(Solver *e, uint32_t of)
{
    Schemas *s = e->schemas;
    if (s->at[of].done || e->failed[0])
        return s->at[of].formula;
    if (s->at[of].one_of) {
        bool again = s->at[of].doing;
        s->at[of].doing = true;
        Formula f = say_one_of(s, of, !again);
        if (again)
            return f;
        s->at[of].doing = false;
        s->at[of].formula = f;
    } else {
        bool evaluates = schema_keyword(s, of, "unevaluatedItems") ||
                         schema_keyword(s, of, "unevaluatedProperties");
        if (s->at[of].doing)
            return schema_refuse(s, of, "$ref",
                                 "refers to itself without another keyword in between");
        s->at[of].doing = true;
        Formula f = evaluates ? schema_evaluated(s, of) : say(s, of, true);
        s->at[of].doing = false;
        s->at[of].formula = f;
    }
    s->at[of].done = true;
    return s->at[of].formula;
}

Formula schema_read(Solver *e, const JsonValue *document, SchemaDraft draft, bool assert_format)
{
    Schemas *s = arena_alloc(&e->arena, sizeof *s);
    *s = (Schemas){.e = e, .assert_format = assert_format};
    e->schemas = s;
    map_init(&s->by_value, &e->arena);
    map_init(&s->resources, &e->arena);
    map_init(&s->formats, &e->arena);
    map_init(&s->anchors, &e->arena);
    map_init(&s->scopes, &e->arena);
    if (!is_schema(document))
        return solver_fail(e, "#: a schema is an object, true or false");
    return f_schema(e, schema_root(s, document, draft), false);
}
