/*
 * The schemas of a document: what each is called, and what references in it lead to. A document is walked once, along the keywords
 * that hold schemas in its dialect, and each schema is noted with the URI that its references are relative to.
 *
 * $dynamicRef (2020-12) and $recursiveRef (2019-09) lead to what the way to them has met first: a schema may say different things by
 * different ways. So a schema is noted once for each scope in which it is met; a scope says where the dynamic anchors lead that
 * have been met on the way, and few documents have any:
 *
 *     numberList {$dynamicAnchor: item, …} -> genericList {items: {$dynamicRef: #item}}      scope: item is numberList's
 */
#include "constrain/schema.h"

#include "constrain/uri.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    int number;
    const char *uri; /* without its scheme, and without an empty fragment */
} dialects[] = {
    [DRAFT_4] = {4, "json-schema.org/draft-04/schema"},
    [DRAFT_6] = {6, "json-schema.org/draft-06/schema"},
    [DRAFT_7] = {7, "json-schema.org/draft-07/schema"},
    [DRAFT_2019] = {2019, "json-schema.org/draft/2019-09/schema"},
    [DRAFT_2020] = {2020, "json-schema.org/draft/2020-12/schema"},
};
enum { DIALECTS = sizeof dialects / sizeof *dialects };

bool schema_draft(int number, SchemaDraft *out)
{
    *out = DRAFT_2020;
    for (int i = 0; i < DIALECTS; i++)
        if (dialects[i].number == number)
            *out = (SchemaDraft)i;
    return !number || dialects[*out].number == number;
}

static const Keyword *find_keyword(const char *name)
{
    for (size_t i = 0; i < n_schema_keywords; i++)
        if (strcmp(schema_keywords[i].name, name) == 0)
            return &schema_keywords[i];
    return NULL;
}

const JsonValue *schema_keyword(const Schemas *s, uint32_t of, const char *keyword)
{
    const JsonValue *value = json_member(s->at[of].value, keyword, strlen(keyword));
    const Keyword *row = value ? find_keyword(keyword) : NULL;
    return row && row->drafts >> s->at[of].draft & 1 ? value : NULL;
}

Formula schema_refuse(Schemas *s, uint32_t of, const char *keyword, const char *why)
{
    return solver_fail(s->e, "%s/%s: %s", s->at[of].path, keyword, why);
}

/* The index of a value as a schema in a scope; a new one is like `schema`. */
static uint32_t find_or_add(Schemas *s, const Schema *schema, bool *added)
{
    const uint64_t key[2] = {(uint64_t)(uintptr_t)schema->value, schema->scope};
    uint64_t *index = map_put(&s->by_value, key, sizeof key, added);
    if (!*added)
        return (uint32_t)*index;
    *index = s->n;
    if (s->n >= SCHEMA_LIMIT)
        solver_fail(s->e, "%s: there are more than %d schemas", schema->path, SCHEMA_LIMIT);
    s->at = arena_more(&s->e->arena, s->at, s->n, sizeof *s->at);
    s->at[s->n] = *schema;
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

bool is_schema(const JsonValue *value)
{
    return value->kind == JSON_K_OBJECT || value->kind == JSON_K_TRUE ||
           value->kind == JSON_K_FALSE;
}

/* False for a dialect that is not known. */
static bool draft_of(const JsonValue *name, SchemaDraft *out)
{
    const char *text = name->kind == JSON_K_STRING ? name->text : "";
    text += strncmp(text, "http://", 7) == 0 ? 7 : strncmp(text, "https://", 8) == 0 ? 8 : 0;
    size_t n = strcspn(text, "#");
    for (int i = 0; i < DIALECTS; i++)
        if (n == strlen(dialects[i].uri) && strncmp(text, dialects[i].uri, n) == 0 &&
            strlen(text + n) <= 1) {
            *out = (SchemaDraft)i;
            return true;
        }
    return false;
}

/* Of a name that two schemas have: what refers to it is refused. */
#define AMBIGUOUS UINT64_MAX

static void put_name(Map *map, const char *name, uint32_t index)
{
    bool added;
    uint64_t *at = map_put(map, name, strlen(name), &added);
    *at = added || *at == index ? index : AMBIGUOUS;
}

static void add_anchor(Schemas *s, uint32_t index, const JsonValue *name)
{
    if (name && name->kind == JSON_K_STRING)
        put_name(&s->anchors, arena_printf(&s->e->arena, "%s#%s", s->at[index].base, name->text),
                 index);
}

static void add_dynamic(Schemas *s, uint32_t index, const char *name)
{
    s->dynamic = arena_more(&s->e->arena, s->dynamic, s->n_dynamic, sizeof *s->dynamic);
    s->dynamic[s->n_dynamic++] = (Dynamic){s->at[index].base, name, index};
}

static void walk_below(Schemas *s, const Schema *of)
{
    for (size_t i = 0; i < n_schema_keywords; i++) {
        const Keyword *row = &schema_keywords[i];
        const JsonValue *value = row->holds && row->drafts >> of->draft & 1
                                     ? json_member(of->value, row->name, strlen(row->name))
                                     : NULL;
        if (!value)
            continue;
        Schema below = *of;
        if ((row->holds & HOLDS_ONE) && is_schema(value)) {
            below.value = value;
            below.path = path_below(s, of->path, row->name, NULL);
            schema_walk(s, &below);
        }
        if (!(row->holds & HOLDS_LIST && value->kind == JSON_K_ARRAY) &&
            !(row->holds & HOLDS_MEMBERS && value->kind == JSON_K_OBJECT))
            continue;
        for (size_t k = 0; k < value->n && solver_work(s->e, 1); k++) {
            if (!is_schema(value->item[k]))
                continue;
            below.value = value->item[k];
            below.path = path_below(s, of->path, row->name,
                                    value->name ? value->name[k].text
                                                : arena_printf(&s->e->arena, "%zu", k));
            schema_walk(s, &below);
        }
    }
}

uint32_t schema_walk(Schemas *s, const Schema *schema)
{
    Schema of = *schema;
    const JsonValue *dialect = json_member(of.value, "$schema", 7);
    bool added, named = json_member(of.value, "$id", 3) || json_member(of.value, "id", 2);
    if (dialect && (named || !s->n) && !draft_of(dialect, &of.draft))
        solver_fail(
            s->e, "%s/$schema: unknown dialect; supported are drafts 4, 6, 7, 2019-09 and 2020-12",
            of.path);
    bool hidden = of.draft <= DRAFT_7 && json_member(of.value, "$ref", 4);
    const char *word = of.draft == DRAFT_4 ? "id" : "$id";
    const JsonValue *id = hidden ? NULL : json_member(of.value, word, strlen(word));
    uint32_t index = find_or_add(s, &of, &added);
    if (!added || of.value->kind != JSON_K_OBJECT)
        return index;
    if (id && id->kind == JSON_K_STRING && id->text[0] == '#') {
        put_name(&s->anchors, arena_printf(&s->e->arena, "%s%s", of.base, id->text), index);
    } else if (id && id->kind == JSON_K_STRING) {
        char *uri = uri_resolve(&s->e->arena, of.base, id->text);
        const char *fragment = uri_cut_fragment(&s->e->arena, uri);
        s->at[index].base = of.base = uri;
        put_name(&s->resources, of.base, index);
        if (*fragment)
            put_name(&s->anchors, arena_printf(&s->e->arena, "%s#%s", of.base, fragment), index);
    }
    const JsonValue *recursive = schema_keyword(s, index, "$recursiveAnchor");
    if (recursive && recursive->kind == JSON_K_TRUE)
        add_dynamic(s, index, "");
    const JsonValue *anchor = schema_keyword(s, index, "$dynamicAnchor");
    add_anchor(s, index, schema_keyword(s, index, "$anchor"));
    if (anchor && anchor->kind == JSON_K_STRING) {
        add_dynamic(s, index, anchor->text);
        if (!map_get(&s->anchors, arena_printf(&s->e->arena, "%s#%s", of.base, anchor->text),
                     strlen(of.base) + 1 + anchor->length))
            add_anchor(s, index, anchor);
    }
    walk_below(s, &of);
    return index;
}

static const Dynamic *find_dynamic(const Schemas *s, const DynamicScope *scope, const char *name)
{
    for (uint32_t i = 0; i < scope->n; i++)
        if (strcmp(s->dynamic[scope->at[i]].name, name) == 0)
            return &s->dynamic[scope->at[i]];
    return NULL;
}

/* The scope in which a resource is met that is entered from another: its anchors come behind those that were there. */
static uint32_t scope_within(Schemas *s, uint32_t scope, const char *base)
{
    DynamicScope next = {.n = s->scope[scope].n};
    bool added;
    if (!s->n_dynamic)
        return scope;
    next.at = arena_array(&s->e->arena, next.n + s->n_dynamic + 1, sizeof *next.at);
    for (uint32_t i = 0; i < next.n; i++)
        next.at[i] = s->scope[scope].at[i];
    for (uint32_t i = 0; i < s->n_dynamic; i++)
        if (s->dynamic[i].base == base && !find_dynamic(s, &next, s->dynamic[i].name))
            next.at[next.n++] = i;
    uint64_t *id = map_put(&s->scopes, next.at, next.n * sizeof *next.at, &added);
    if (added) {
        *id = s->n_scopes;
        s->scope = arena_more(&s->e->arena, s->scope, s->n_scopes, sizeof *s->scope);
        s->scope[s->n_scopes++] = next;
    }
    return (uint32_t)*id;
}

/* A schema that was noted without a scope, as it is met from one. */
static uint32_t in_scope(Schemas *s, uint32_t index, uint32_t scope)
{
    const Schema *like = &s->at[index];
    Schema of = {
        .value = like->value, .base = like->base, .path = like->path, .draft = like->draft};
    bool added;
    of.scope = scope_within(s, scope, of.base);
    return of.scope ? find_or_add(s, &of, &added) : index;
}

uint32_t schema_root(Schemas *s, const JsonValue *document, SchemaDraft draft)
{
    const Schema of = {.value = document, .base = "", .path = "#", .draft = draft};
    s->scope = arena_more(&s->e->arena, s->scope, s->n_scopes, sizeof *s->scope);
    s->n_scopes = 1;
    *map_put(&s->scopes, "", 0, NULL) = 0;
    uint32_t root = schema_walk(s, &of);
    if (!map_get(&s->resources, "", 0))
        put_name(&s->resources, "", root);
    return in_scope(s, root, 0);
}

uint32_t schema_below(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword,
                      const char *key)
{
    bool added;
    if (!is_schema(value))
        schema_refuse(s, of, keyword, "is not a schema: an object, true or false is expected");
    Schema below = {.value = value,
                    .base = s->at[of].base,
                    .path = path_below(s, s->at[of].path, keyword, key),
                    .draft = s->at[of].draft};
    uint32_t index = find_or_add(s, &below, &added);
    return in_scope(s, index, s->at[of].scope);
}

uint32_t schema_of_one_of(Schemas *s, uint32_t of, const JsonValue *list)
{
    bool added;
    Schema one = {.value = list,
                  .base = s->at[of].base,
                  .path = s->at[of].path,
                  .draft = s->at[of].draft,
                  .scope = s->at[of].scope,
                  .one_of = true};
    return find_or_add(s, &one, &added);
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
        uint64_t *index = map_get(&s->by_value, (uint64_t[]){(uint64_t)(uintptr_t)value, 0},
                                  2 * sizeof(uint64_t));
        near = index ? (uint32_t)*index : near;
        at += n;
    }
    *found = is_schema(value);
    if (s->at[near].value == value || !*found)
        return near;
    return schema_walk(
        s, &(Schema){
               .value = value, .base = s->at[near].base, .path = path, .draft = s->at[near].draft});
}

uint32_t schema_reference(Schemas *s, uint32_t of, const char *keyword, const JsonValue *reference)
{
    Arena *arena = &s->e->arena;
    bool found = false;
    if (reference->kind != JSON_K_STRING) {
        schema_refuse(s, of, keyword, "is not a string");
        return of;
    }
    char *uri = uri_resolve(arena, s->at[of].base, reference->text);
    const char *fragment = uri_cut_fragment(arena, uri);
    uint64_t *resource = map_get(&s->resources, uri, strlen(uri)), *anchor = NULL;
    uint32_t target = of;
    bool twice = false;
    if (*fragment && *fragment != '/') {
        anchor = map_get(&s->anchors, arena_printf(arena, "%s#%s", uri, fragment),
                         strlen(uri) + 1 + strlen(fragment));
        twice = anchor && *anchor == AMBIGUOUS;
        found = anchor && !twice;
        target = found ? (uint32_t)*anchor : of;
    } else if (resource) {
        twice = *resource == AMBIGUOUS;
        if (!twice)
            target = by_pointer(s, (uint32_t)*resource, fragment, &found);
    }
    if (twice)
        solver_fail(s->e, "%s/%s: two schemas have the identifier '%.100s'", s->at[of].path,
                    keyword, uri);
    if (!found) {
        solver_fail(
            s->e,
            "%s/%s: '%.100s' does not resolve to a schema in this document; others are not loaded",
            s->at[of].path, keyword, reference->text);
        return of;
    }
    /* A dynamic anchor leads to the first of its name that was met; nothing else does. */
    bool dynamic = strcmp(keyword, "$ref") != 0;
    for (uint32_t i = 0; i < s->n_dynamic && dynamic; i++) {
        const char *name = s->dynamic[i].name;
        const Dynamic *first = find_dynamic(s, &s->scope[s->at[of].scope], name);
        if (s->dynamic[i].schema == target && first && strcmp(name, fragment) == 0) {
            target = first->schema;
            break;
        }
    }
    return in_scope(s, target, s->at[of].scope);
}
