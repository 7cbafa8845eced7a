#include "constrain/schema.h"

#include "base/num.h"
#include "constrain/pattern.h"
#include "constrain/solve.h"
#include "constrain/uri.h"

#include <stdlib.h>
#include <string.h>

/* Keywords below which there are schemas. */
enum { ONE = 1, LIST = 2, MEMBERS = 4 };

static const struct {
    const char *name;
    uint8_t shape;
} holders[] = {{"not", ONE},
               {"if", ONE},
               {"then", ONE},
               {"else", ONE},
               {"items", ONE | LIST},
               {"additionalItems", ONE},
               {"contains", ONE},
               {"additionalProperties", ONE},
               {"propertyNames", ONE},
               {"unevaluatedItems", ONE},
               {"unevaluatedProperties", ONE},
               {"allOf", LIST},
               {"anyOf", LIST},
               {"oneOf", LIST},
               {"prefixItems", LIST},
               {"properties", MEMBERS},
               {"patternProperties", MEMBERS},
               {"$defs", MEMBERS},
               {"definitions", MEMBERS},
               {"dependentSchemas", MEMBERS},
               {"dependencies", MEMBERS}};

const JsonValue *schema_keyword(const Schemas *s, uint32_t of, const char *keyword)
{
    return json_member(s->at[of].value, keyword, strlen(keyword));
}

Formula schema_refuse(Schemas *s, uint32_t of, const char *keyword, const char *why)
{
    return engine_fail(s->e, "%s/%s: %s", s->at[of].path, keyword, why);
}

static uint32_t find_or_add(Schemas *s, const JsonValue *value, const char *base, const char *path,
                            Draft draft, bool *added)
{
    uint64_t *index = map_put(&s->by_value, &value, sizeof value, added);
    if (!*added)
        return (uint32_t)*index;
    *index = s->n;
    if (s->n >= SCHEMA_LIMIT)
        engine_fail(s->e, "%s: there are more than %d schemas", path, SCHEMA_LIMIT);
    s->at = arena_more(&s->e->arena, s->at, s->n, sizeof *s->at);
    s->at[s->n] = (Schema){.value = value, .base = base, .path = path, .draft = draft};
    return s->n++;
}

static const char *path_below(Schemas *s, const char *path, const char *keyword, const char *key)
{
    const char *part[] = {path, "/", keyword, key ? "/" : "", key ? key : ""};
    size_t length[sizeof part / sizeof *part], n = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        n += length[i] = strlen(part[i]);
    char *text = arena_alloc(&s->e->arena, n + 1), *at = text; /* there are too many for printf */
    for (size_t i = 0; i < sizeof part / sizeof *part; at += length[i++])
        memcpy(at, part[i], length[i]);
    return text;
}

static bool is_schema(const JsonValue *value)
{
    return value->kind == JSON_K_OBJECT || value->kind == JSON_K_TRUE ||
           value->kind == JSON_K_FALSE;
}

/* "http://json-schema.org/draft-07/schema#" and the like. False for a dialect that is not known. */
static bool draft_of(const JsonValue *name, Draft *out)
{
    static const struct {
        const char *uri;
        Draft draft;
    } drafts[] = {{"json-schema.org/draft/2020-12/schema", DRAFT_2020},
                  {"json-schema.org/draft-07/schema", DRAFT_7}};
    const char *text = name->kind == JSON_K_STRING ? name->text : "";
    text += strncmp(text, "http://", 7) == 0 ? 7 : strncmp(text, "https://", 8) == 0 ? 8 : 0;
    size_t n = strcspn(text, "#");
    for (size_t i = 0; i < sizeof drafts / sizeof *drafts; i++)
        if (n == strlen(drafts[i].uri) && strncmp(text, drafts[i].uri, n) == 0 &&
            strlen(text + n) <= 1) {
            *out = drafts[i].draft;
            return true;
        }
    return false;
}

static void put_name(Schemas *s, Map *map, const char *name, uint32_t index)
{
    bool added;
    uint64_t *at = map_put(map, name, strlen(name), &added);
    if (added)
        *at = index;
    else if (*at != index)
        engine_fail(s->e, "%s: two schemas are called %s", s->at[index].path, name);
}

static void add_anchor(Schemas *s, uint32_t index, const JsonValue *name)
{
    if (name && name->kind == JSON_K_STRING)
        put_name(s, &s->anchors, arena_printf(&s->e->arena, "%s#%s", s->at[index].base, name->text),
                 index);
}

static uint32_t walk(Schemas *s, const JsonValue *value, const char *base, const char *path,
                     Draft draft);

static void walk_below(Schemas *s, const JsonValue *value, const char *base, const char *path,
                       Draft draft)
{
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++) {
        const JsonValue *of = json_member(value, holders[i].name, strlen(holders[i].name));
        if (!of)
            continue;
        if ((holders[i].shape & ONE) && is_schema(of))
            walk(s, of, base, path_below(s, path, holders[i].name, NULL), draft);
        if (!(holders[i].shape & LIST && of->kind == JSON_K_ARRAY) &&
            !(holders[i].shape & MEMBERS && of->kind == JSON_K_OBJECT))
            continue;
        for (size_t k = 0; k < of->n && engine_work(s->e, 1); k++)
            if (is_schema(of->item[k]))
                walk(s, of->item[k], base,
                     path_below(s, path, holders[i].name,
                                of->name ? of->name[k].text : arena_printf(&s->e->arena, "%zu", k)),
                     draft);
    }
}

/* Notes a schema and all below it. JSON's own depth bounds how deep this goes. */
static uint32_t walk(Schemas *s, const JsonValue *value, const char *base, const char *path,
                     Draft draft)
{
    bool added, hidden = draft == DRAFT_7 && json_member(value, "$ref", 4);
    const JsonValue *id = hidden ? NULL : json_member(value, "$id", 3),
                    *dialect = json_member(value, "$schema", 7);
    if (dialect && (id || !s->n) && !draft_of(dialect, &draft))
        engine_fail(s->e, "%s/$schema: this dialect is not known; drafts 7 and 2020-12 are", path);
    uint32_t index = find_or_add(s, value, base, path, draft, &added);
    if (!added || value->kind != JSON_K_OBJECT)
        return index;
    if (id && id->kind == JSON_K_STRING && id->text[0] == '#') {
        put_name(s, &s->anchors, arena_printf(&s->e->arena, "%s%s", base, id->text), index);
    } else if (id && id->kind == JSON_K_STRING) {
        char *uri = uri_resolve(&s->e->arena, base, id->text);
        const char *fragment = uri_cut_fragment(&s->e->arena, uri);
        base = uri;
        s->at[index].base = base;
        put_name(s, &s->resources, base, index);
        if (*fragment)
            put_name(s, &s->anchors, arena_printf(&s->e->arena, "%s#%s", base, fragment), index);
    }
    if (draft == DRAFT_2020) {
        add_anchor(s, index, json_member(value, "$anchor", 7));
        const JsonValue *anchor = json_member(value, "$dynamicAnchor", 14);
        if (anchor && anchor->kind == JSON_K_STRING &&
            !map_get(&s->anchors, arena_printf(&s->e->arena, "%s#%s", base, anchor->text),
                     strlen(base) + 1 + anchor->length))
            add_anchor(s, index, anchor);
    }
    walk_below(s, value, base, path, draft);
    return index;
}

uint32_t schema_below(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                      const char *key)
{
    bool added;
    if (!is_schema(value))
        schema_refuse(s, of, keyword, "is no schema: an object, true or false is expected");
    return find_or_add(s, value, s->at[of].base, path_below(s, s->at[of].path, keyword, key),
                       s->at[of].draft, &added);
}

/* One step of a JSON pointer: the member or item that `token` of n bytes names. */
static const JsonValue *pointed(const JsonValue *value, const char *token, size_t n, Arena *arena)
{
    char *name = arena_alloc(arena, n + 1), *end = name;
    for (size_t i = 0; i < n; i++) {
        bool escaped = token[i] == '~' && i + 1 < n && (token[i + 1] == '0' || token[i + 1] == '1');
        *end++ = !escaped ? token[i] : token[i + 1] == '0' ? '~' : '/';
        i += escaped;
    }
    if (value->kind != JSON_K_ARRAY)
        return json_member(value, name, (size_t)(end - name));
    char *rest;
    unsigned long index = strtoul(name, &rest, 10);
    return end > name && !*rest && name[0] >= '0' && name[0] <= '9' && index < value->n
               ? value->item[index]
               : NULL;
}

static uint32_t by_pointer(Schemas *s, uint32_t root, const char *pointer, bool *found)
{
    const JsonValue *value = s->at[root].value;
    uint32_t near = root;
    const char *path = s->at[root].path;
    for (const char *at = pointer; *at;) {
        size_t n = strcspn(++at, "/");
        value = pointed(value, at, n, &s->e->arena);
        *found = value != NULL;
        if (!value)
            return root;
        path = arena_printf(&s->e->arena, "%s/%.*s", path, (int)n, at);
        uint64_t *index = map_get(&s->by_value, &value, sizeof value);
        near = index ? (uint32_t)*index : near;
        at += n;
    }
    *found = is_schema(value);
    if (s->at[near].value == value || !*found)
        return near;
    return walk(s, value, s->at[near].base, path, s->at[near].draft);
}

uint32_t schema_reference(Schemas *s, uint32_t of, const JsonValue *reference)
{
    Arena *arena = &s->e->arena;
    bool found = false;
    if (reference->kind != JSON_K_STRING) {
        schema_refuse(s, of, "$ref", "is no string");
        return of;
    }
    char *uri = uri_resolve(arena, s->at[of].base, reference->text);
    const char *fragment = uri_cut_fragment(arena, uri);
    uint64_t *resource = map_get(&s->resources, uri, strlen(uri)), *anchor = NULL;
    uint32_t target = of;
    if (*fragment && *fragment != '/') {
        anchor = map_get(&s->anchors, arena_printf(arena, "%s#%s", uri, fragment),
                         strlen(uri) + 1 + strlen(fragment));
        found = anchor != NULL;
        target = anchor ? (uint32_t)*anchor : of;
    } else if (resource) {
        target = by_pointer(s, (uint32_t)*resource, fragment, &found);
    }
    if (!found)
        engine_fail(
            s->e, "%s/$ref: '%.100s' leads to no schema in this document, and others are not read",
            s->at[of].path, reference->text);
    return target;
}

/* A count of a keyword, `absent` where it is not there. */
static uint32_t count_of(Schemas *s, uint32_t of, const char *keyword, uint32_t absent)
{
    const JsonValue *value = schema_keyword(s, of, keyword);
    if (!value)
        return absent;
    Decimal number = decimal_read(&s->e->arena, value->kind == JSON_K_NUMBER ? value->text : "-1",
                                  value->kind == JSON_K_NUMBER ? value->length : 2);
    if (number.negative || number.exp < 0) {
        schema_refuse(s, of, keyword, "a whole number from 0 is expected");
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
    return f_and2(s->e, f_type(s->e, KIND_NUMBER), f_number(s->e, NUMBER_MULTIPLE, &one));
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
        return schema_refuse(s, of, keyword, "the number has more digits than are supported");
    if (op == NUMBER_MULTIPLE && (number.negative || !number.n))
        return schema_refuse(s, of, keyword, "a number above 0 is expected");
    return f_number(s->e, op, &number);
}

static Formula add_minimum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "minimum", NUMBER_GE);
}

static Formula add_maximum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "maximum", NUMBER_LE);
}

static Formula add_exclusive_minimum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "exclusiveMinimum", NUMBER_GT);
}

static Formula add_exclusive_maximum(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "exclusiveMaximum", NUMBER_LT);
}

static Formula add_multiple(Schemas *s, uint32_t of, const JsonValue *value)
{
    return add_bound(s, of, value, "multipleOf", NUMBER_MULTIPLE);
}

/* minLength and maxLength are one repetition. */
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
        engine_fail(s->e, "%s/%s: '%.100s': %s", s->at[of].path, keyword, text, err.message);
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
    uint64_t *known = named ? map_put(&s->formats, value->text, value->length, &added) : NULL;
    if (!added)
        return f_string(s->e, (Term)*known);
    if (format_term(&s->e->terms, value, &term) < 0)
        return engine_fail(s->e, "%s/format: the format '%.60s' is not supported as an assertion",
                           s->at[of].path, value->text);
    if (named)
        *known = term;
    return f_string(s->e, term);
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
        uint32_t below = schema_below(s, of, value->item[i], "properties", value->name[i].text);
        list[i] = f_all_keys(s->e, set_of_name(s->e, name), f_schema(s->e, below, false));
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
        uint32_t below =
            schema_below(s, of, value->item[i], "patternProperties", value->name[i].text);
        f = f_and2(
            s->e, f,
            f_all_keys(s->e, set_of_term(s->e, term, NULL, 0), f_schema(s->e, below, false)));
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
    uint32_t below = schema_below(s, of, value, "additionalProperties", NULL);
    return f_all_keys(s->e, set,
                      value->kind == JSON_K_FALSE ? F_FALSE : f_schema(s->e, below, false));
}

/* Names that the schema forbids are keys of which no value is allowed. */
static Formula add_property_names(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f =
        f_restrict(s->e, f_schema(s->e, schema_below(s, of, value, "propertyNames", NULL), false),
                   KIND_STRING);
    Term term = f == F_TRUE ? TERM_ALL : f == F_FALSE ? TERM_NONE : s->e->node[f].a;
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

/* dependentRequired, and dependencies, whose members are either. */
static Formula add_dependencies(Schemas *s, uint32_t of, const JsonValue *value)
{
    Formula f = F_TRUE;
    if (!is_object(s, of, value, "dependencies"))
        return F_FALSE;
    for (size_t i = 0; i < value->n; i++) {
        const JsonValue *on = value->item[i];
        Formula wanted =
            on->kind == JSON_K_ARRAY
                ? require(s, of, on, "dependencies")
                : f_schema(s->e, schema_below(s, of, on, "dependencies", value->name[i].text),
                           false);
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
        f = f_and2(s->e, f,
                   f_item(s->e, (uint32_t)i,
                          f_schema(s->e,
                                   schema_below(s, of, list->item[i], keyword,
                                                arena_printf(&s->e->arena, "%zu", i)),
                                   false)));
    return f;
}

static Formula add_prefix(Schemas *s, uint32_t of, const JsonValue *value)
{
    if (s->at[of].draft != DRAFT_2020)
        return F_TRUE;
    return value->kind == JSON_K_ARRAY ? say_items(s, of, value, "prefixItems")
                                       : schema_refuse(s, of, "prefixItems", "a list is expected");
}

static Formula rest_of_items(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                             size_t from)
{
    uint32_t below = schema_below(s, of, value, keyword, NULL);
    return f_items(s->e, (uint32_t)from,
                   value->kind == JSON_K_FALSE ? F_FALSE : f_schema(s->e, below, false));
}

static Formula add_items(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *prefix = schema_keyword(s, of, "prefixItems");
    bool tuple = s->at[of].draft == DRAFT_7 && value->kind == JSON_K_ARRAY;
    if (tuple)
        return say_items(s, of, value, "items");
    return rest_of_items(s, of, value, "items",
                         prefix && s->at[of].draft == DRAFT_2020 ? prefix->n : 0);
}

static Formula add_additional_items(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *items = schema_keyword(s, of, "items");
    if (s->at[of].draft != DRAFT_7 || !items || items->kind != JSON_K_ARRAY)
        return F_TRUE;
    return rest_of_items(s, of, value, "additionalItems", items->n);
}

static Formula add_contains(Schemas *s, uint32_t of, const JsonValue *value)
{
    bool counted = s->at[of].draft == DRAFT_2020;
    Formula f = f_schema(s->e, schema_below(s, of, value, "contains", NULL), false);
    return f_contains(s->e, 0, f, counted ? count_of(s, of, "minContains", 1) : 1,
                      counted ? count_of(s, of, "maxContains", FORMULA_MANY) : FORMULA_MANY);
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
        list[i] = f_schema(
            s->e,
            schema_below(s, of, value->item[i], keyword, arena_printf(&s->e->arena, "%zu", i)),
            false);
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

/* A schema of its own, whose formula is made when it is needed: then it can be asked which alternatives exclude each
   other. */
static Formula add_one_of(Schemas *s, uint32_t of, const JsonValue *value)
{
    bool added;
    if (value->kind != JSON_K_ARRAY)
        return schema_refuse(s, of, "oneOf", "a list of schemas is expected");
    uint32_t index = find_or_add(s, value, s->at[of].base, s->at[of].path, s->at[of].draft, &added);
    s->at[index].one_of = true;
    return f_schema(s->e, index, false);
}

static Formula say_one_of(Schemas *s, uint32_t of, bool compare)
{
    const JsonValue *value = s->at[of].value;
    Engine *e = s->e;
    Formula *alternative = arena_array(&e->arena, value->n + 1, sizeof *alternative);
    Formula *list = arena_array(&e->arena, value->n + 1, sizeof *list);
    for (size_t i = 0; i < value->n; i++)
        alternative[i] = f_schema(
            e, schema_below(s, of, value->item[i], "oneOf", arena_printf(&e->arena, "%zu", i)),
            false);
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
    return f_schema(s->e, schema_below(s, of, value, "not", NULL), true);
}

static Formula add_if(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *then = schema_keyword(s, of, "then"),
                    *otherwise = schema_keyword(s, of, "else");
    Formula condition = f_schema(s->e, schema_below(s, of, value, "if", NULL), false);
    Formula yes = then ? f_schema(s->e, schema_below(s, of, then, "then", NULL), false) : F_TRUE;
    Formula no =
        otherwise ? f_schema(s->e, schema_below(s, of, otherwise, "else", NULL), false) : F_TRUE;
    if (!then && !otherwise)
        return F_TRUE;
    return f_or2(s->e, f_and2(s->e, condition, yes), f_and2(s->e, f_not(s->e, condition), no));
}

static Formula add_ref(Schemas *s, uint32_t of, const JsonValue *value)
{
    return f_schema(s->e, schema_reference(s, of, value), false);
}

/* Draft 7 lets these be assertions, and its test suite tests them as such; draft 2020-12 does not. */
static Formula add_content(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)value;
    const char *keyword =
        schema_keyword(s, of, "contentEncoding") ? "contentEncoding" : "contentMediaType";
    return schema_refuse(s, of, keyword, "is not supported in draft 7");
}

static Formula add_refused(Schemas *s, uint32_t of, const JsonValue *value)
{
    (void)value;
    const char *keyword = schema_keyword(s, of, "$dynamicRef") ? "$dynamicRef" : "$recursiveRef";
    return schema_refuse(s, of, keyword, "is not supported");
}

enum { BOTH = 3, ONLY_2020 = 1, ONLY_7 = 2 };

/* Those of `applies` give the value to another schema, which may evaluate members and items of it. */
static const struct {
    const char *name;
    Formula (*add)(Schemas *, uint32_t, const JsonValue *);
    uint8_t drafts;
    bool applies;
} keywords[] = {
    {"type", add_type, BOTH, false},
    {"const", add_const, BOTH, false},
    {"enum", add_enum, BOTH, false},
    {"properties", add_properties, BOTH, false},
    {"patternProperties", add_pattern_properties, BOTH, false},
    {"additionalProperties", add_additional_properties, BOTH, false},
    {"required", add_required, BOTH, false},
    {"propertyNames", add_property_names, BOTH, false},
    {"minProperties", add_key_count, BOTH, false},
    {"maxProperties", add_key_count, BOTH, false},
    {"dependentRequired", add_dependent_required, ONLY_2020, false},
    {"minimum", add_minimum, BOTH, false},
    {"maximum", add_maximum, BOTH, false},
    {"exclusiveMinimum", add_exclusive_minimum, BOTH, false},
    {"exclusiveMaximum", add_exclusive_maximum, BOTH, false},
    {"multipleOf", add_multiple, BOTH, false},
    {"minLength", add_length, BOTH, false},
    {"maxLength", add_length, BOTH, false},
    {"pattern", add_pattern, BOTH, false},
    {"format", add_format, BOTH, false},
    {"prefixItems", add_prefix, BOTH, false},
    {"items", add_items, BOTH, false},
    {"additionalItems", add_additional_items, ONLY_7, false},
    {"contains", add_contains, BOTH, false},
    {"minItems", add_item_count, BOTH, false},
    {"maxItems", add_item_count, BOTH, false},
    {"uniqueItems", add_unique, BOTH, false},
    {"contentEncoding", add_content, ONLY_7, false},
    {"contentMediaType", add_content, ONLY_7, false},
    {"$ref", add_ref, BOTH, true},
    {"allOf", add_all_of, BOTH, true},
    {"anyOf", add_any_of, BOTH, true},
    {"oneOf", add_one_of, BOTH, true},
    {"not", add_not, BOTH, true},
    {"if", add_if, BOTH, true},
    {"dependentSchemas", add_dependent_schemas, ONLY_2020, true},
    {"dependencies", add_dependencies, BOTH, true},
    {"$dynamicRef", add_refused, ONLY_2020, true},
    {"$recursiveRef", add_refused, ONLY_2020, true},
};

static Formula say(Schemas *s, uint32_t of, bool applied)
{
    Formula list[sizeof keywords / sizeof *keywords];
    size_t n = 0;
    uint8_t draft = s->at[of].draft == DRAFT_7 ? ONLY_7 : ONLY_2020;
    const JsonValue *ref = schema_keyword(s, of, "$ref");
    if (s->at[of].value->kind != JSON_K_OBJECT)
        return s->at[of].value->kind == JSON_K_TRUE ? F_TRUE : F_FALSE;
    if (ref && draft == ONLY_7)
        return add_ref(s, of, ref);
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords && !s->e->failed[0]; i++) {
        const JsonValue *value = schema_keyword(s, of, keywords[i].name);
        if (value && (keywords[i].drafts & draft) && (applied || !keywords[i].applies))
            list[n++] = keywords[i].add(s, of, value);
    }
    return f_and(s->e, list, n);
}

Formula schema_plain(Schemas *s, uint32_t of)
{
    return say(s, of, false);
}

Formula schema_formula(Engine *e, uint32_t of)
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
        bool evaluates =
            s->at[of].draft == DRAFT_2020 && (schema_keyword(s, of, "unevaluatedItems") ||
                                              schema_keyword(s, of, "unevaluatedProperties"));
        if (s->at[of].doing)
            return schema_refuse(s, of, "$ref", "leads back to itself without anything in between");
        s->at[of].doing = true;
        Formula f = evaluates ? schema_evaluated(s, of) : say(s, of, true);
        s->at[of].doing = false;
        s->at[of].formula = f;
    }
    s->at[of].done = true;
    return s->at[of].formula;
}

Formula schema_read(Engine *e, const JsonValue *document, Draft draft, bool assert_format)
{
    Schemas *s = arena_alloc(&e->arena, sizeof *s);
    *s = (Schemas){.e = e, .assert_format = assert_format};
    e->schemas = s;
    map_init(&s->by_value, &e->arena);
    map_init(&s->resources, &e->arena);
    map_init(&s->formats, &e->arena);
    map_init(&s->anchors, &e->arena);
    if (!is_schema(document))
        return engine_fail(e, "#: a schema is an object, true or false");
    uint32_t root = walk(s, document, "", "#", draft);
    if (!map_get(&s->resources, "", 0))
        put_name(s, &s->resources, "", root);
    return f_schema(e, root, false);
}
