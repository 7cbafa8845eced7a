/*
 * unevaluatedProperties and unevaluatedItems speak of what no other keyword has looked at successfully, in this schema or
 * in those that it applies to the same value. So the ways in which these can be fulfilled are listed, each with the names
 * and items that it evaluates; they exclude each other where that differs:
 *
 *     anyOf: [A, B]        A and not B: A's names      B and not A: B's      A and B: both
 */
#include "constrain/schema.h"

#include <string.h>

typedef struct Outcome {
    Formula f;
    Term names;      /* that are evaluated */
    uint32_t *known; /* [n_known] of them, those that are listed */
    uint32_t n_known;
    uint32_t items;     /* so many items, FORMULA_MANY: all */
    Formula items_like; /* and those that fulfil this */
} Outcome;

typedef struct Outcomes {
    Outcome *at;
    size_t n;
} Outcomes;

static void add(Schemas *s, Outcomes *list, const Outcome *outcome)
{
    if (outcome->f == F_FALSE)
        return;
    if (list->n >= SCHEMA_OUTCOMES) {
        solver_fail(s->e,
                    "unevaluatedProperties or unevaluatedItems over more than %d combinations of "
                    "alternatives is not supported",
                    SCHEMA_OUTCOMES);
        return;
    }
    list->at = arena_more(&s->e->arena, list->at, list->n, sizeof *list->at);
    list->at[list->n++] = *outcome;
}

static Outcomes single(Schemas *s, Formula f)
{
    Outcomes list = {0};
    add(s, &list, &(Outcome){.f = f});
    return list;
}

static Outcome both(Schemas *s, const Outcome *a, const Outcome *b)
{
    Outcome out = {.f = f_and2(s->e, a->f, b->f),
                   .names = term_or2(&s->e->terms, a->names, b->names)};
    out.known = arena_array(&s->e->arena, a->n_known + b->n_known + 1, sizeof *out.known);
    for (uint32_t i = 0; i < a->n_known; i++)
        out.known[out.n_known++] = a->known[i];
    for (uint32_t i = 0; i < b->n_known; i++)
        out.known[out.n_known++] = b->known[i];
    out.items = a->items > b->items ? a->items : b->items;
    out.items_like = f_or2(s->e, a->items_like, b->items_like);
    return out;
}

static Outcomes product(Schemas *s, const Outcomes *a, const Outcomes *b)
{
    Outcomes out = {0};
    for (size_t i = 0; i < a->n; i++)
        for (size_t k = 0; k < b->n && solver_work(s->e, 1); k++) {
            Outcome outcome = both(s, &a->at[i], &b->at[k]);
            add(s, &out, &outcome);
        }
    return out;
}

static Outcomes sum(Schemas *s, const Outcomes *a, const Outcomes *b)
{
    Outcomes out = {0};
    for (size_t i = 0; i < a->n; i++)
        add(s, &out, &a->at[i]);
    for (size_t i = 0; i < b->n; i++)
        add(s, &out, &b->at[i]);
    return out;
}

/* Whether it makes a difference which of them it is. */
static bool evaluates(const Outcomes *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].names != TERM_NONE || list->at[i].items ||
            list->at[i].items_like != F_FALSE)
            return true;
    return false;
}

static Outcomes outcomes_of(Schemas *s, uint32_t of);

static Outcomes of_schema(Schemas *s, uint32_t index)
{
    Outcomes list = {0};
    if (++s->e->effort.depth > FORMULA_DEPTH / 8)
        solver_fail(s->e,
                    "%s: references between schemas with unevaluatedProperties or unevaluatedItems "
                    "are nested too deeply",
                    s->at[index].path);
    else
        list = outcomes_of(s, index);
    s->e->effort.depth--;
    return evaluates(&list) ? list : single(s, f_schema(s->e, index, false));
}

static Outcomes of_list(Schemas *s, uint32_t of, const char *keyword, bool one)
{
    const JsonValue *value = schema_keyword(s, of, keyword);
    Outcomes any = single(s, F_TRUE), out = {0};
    uint32_t *index = arena_array(&s->e->arena, value->n + 1, sizeof *index);
    if (value->kind != JSON_K_ARRAY) {
        schema_refuse(s, of, keyword, "a list of schemas is expected");
        return any;
    }
    for (size_t i = 0; i < value->n; i++)
        index[i] =
            schema_below(s, of, value->item[i], keyword, arena_printf(&s->e->arena, "%zu", i));
    if (one) {
        for (size_t i = 0; i < value->n && solver_work(s->e, 1); i++) {
            Outcomes only = of_schema(s, index[i]);
            Formula others = F_TRUE;
            for (size_t k = 0; k < value->n; k++)
                others = k == i ? others : f_and2(s->e, others, f_schema(s->e, index[k], true));
            Outcomes excluded = single(s, others);
            only = product(s, &only, &excluded);
            out = sum(s, &out, &only);
        }
        return out;
    }
    Formula none = F_TRUE, plain = F_FALSE;
    bool some = false;
    for (size_t i = 0; i < value->n && solver_work(s->e, 1); i++) {
        Outcomes in = of_schema(s, index[i]);
        if (!evaluates(&in)) { /* whether it holds changes nothing but that one holds */
            plain = f_or2(s->e, plain, f_schema(s->e, index[i], false));
            continue;
        }
        Outcomes not_in = single(s, f_schema(s->e, index[i], true));
        Outcomes either = sum(s, &in, &not_in);
        any = product(s, &any, &either);
        none = f_and2(s->e, none, f_schema(s->e, index[i], true));
        some = true;
    }
    Outcomes least = single(s, some ? f_or2(s->e, f_not(s->e, none), plain) : plain);
    return product(s, &any, &least);
}

static Outcomes of_if(Schemas *s, uint32_t of, const JsonValue *value)
{
    const JsonValue *then = schema_keyword(s, of, "then"),
                    *otherwise = schema_keyword(s, of, "else");
    uint32_t condition = schema_below(s, of, value, "if", NULL);
    Outcomes yes = of_schema(s, condition), no = single(s, f_schema(s->e, condition, true));
    if (then) {
        Outcomes next = of_schema(s, schema_below(s, of, then, "then", NULL));
        yes = product(s, &yes, &next);
    }
    if (otherwise) {
        Outcomes next = of_schema(s, schema_below(s, of, otherwise, "else", NULL));
        no = product(s, &no, &next);
    }
    return sum(s, &yes, &no);
}

static Outcomes of_dependent(Schemas *s, uint32_t of, const JsonValue *value, const char *keyword)
{
    Outcomes out = single(s, F_TRUE);
    for (size_t i = 0; i < value->n && solver_work(s->e, 1); i++) {
        Formula absent = f_all_keys(
            s->e, set_of_name(s->e, name_id(s->e, value->name[i].text, value->name[i].length)),
            F_FALSE);
        Outcomes without = single(s, absent), with = single(s, f_not(s->e, absent)), other_kind;
        if (value->item[i]->kind == JSON_K_ARRAY) {
            solver_fail(s->e,
                        "%s/%s: lists of names beside unevaluatedProperties are not supported; use "
                        "dependentRequired",
                        s->at[of].path, keyword);
            break;
        }
        other_kind =
            of_schema(s, schema_below(s, of, value->item[i], keyword, value->name[i].text));
        with = product(s, &with, &other_kind);
        without = sum(s, &without, &with);
        out = product(s, &out, &without);
    }
    return out;
}

/* What the keywords of the schema itself evaluate. */
static Outcome own(Schemas *s, uint32_t of)
{
    Outcome out = {.f = schema_plain(s, of)};
    const JsonValue *prefix = schema_keyword(s, of, "prefixItems"),
                    *items = schema_keyword(s, of, "items"),
                    *contains = schema_keyword(s, of, "contains");
    if (items && items->kind == JSON_K_ARRAY) { /* 2019-09's prefix */
        prefix = items;
        items = schema_keyword(s, of, "additionalItems");
    }
    out.names = schema_own_names(s, of, &out.known, &out.n_known);
    if (schema_keyword(s, of, "additionalProperties"))
        out.names = TERM_ALL;
    out.items = items ? FORMULA_MANY : prefix ? (uint32_t)prefix->n : 0;
    if (contains && s->at[of].draft >= DRAFT_2020)
        out.items_like = f_schema(s->e, schema_below(s, of, contains, "contains", NULL), false);
    return out;
}

static Outcomes outcomes_of(Schemas *s, uint32_t of)
{
    const JsonValue *names, *items, *value;
    Outcomes out = {0};
    if (s->at[of].value->kind != JSON_K_OBJECT || s->at[of].draft < DRAFT_2019)
        return single(s, f_schema(s->e, of, false));
    Outcome self = own(s, of);
    add(s, &out, &self);
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    for (size_t i = 0; i < 3; i++) {
        if (!(value = schema_keyword(s, of, lists[i])))
            continue;
        if (i == 0) {
            for (size_t k = 0; k < value->n && solver_work(s->e, 1); k++) {
                Outcomes each = of_schema(s, schema_below(s, of, value->item[k], "allOf",
                                                          arena_printf(&s->e->arena, "%zu", k)));
                out = product(s, &out, &each);
            }
            continue;
        }
        Outcomes each = of_list(s, of, lists[i], i == 2);
        out = product(s, &out, &each);
    }
    Outcomes more = single(s, F_TRUE);
    static const char *const references[] = {"$ref", "$dynamicRef", "$recursiveRef"};
    for (size_t i = 0; i < 3; i++)
        if ((value = schema_keyword(s, of, references[i]))) {
            Outcomes each = of_schema(s, schema_reference(s, of, references[i], value));
            more = product(s, &more, &each);
        }
    if ((value = schema_keyword(s, of, "not"))) {
        Outcomes each = single(s, f_schema(s->e, schema_below(s, of, value, "not", NULL), true));
        more = product(s, &more, &each);
    }
    if ((value = schema_keyword(s, of, "if"))) {
        Outcomes each = of_if(s, of, value);
        more = product(s, &more, &each);
    }
    static const char *const dependent[] = {"dependentSchemas", "dependencies"};
    for (size_t i = 0; i < 2; i++)
        if ((value = schema_keyword(s, of, dependent[i]))) {
            Outcomes each = of_dependent(s, of, value, dependent[i]);
            more = product(s, &more, &each);
        }
    out = product(s, &out, &more);
    names = schema_keyword(s, of, "unevaluatedProperties");
    items = schema_keyword(s, of, "unevaluatedItems");
    for (size_t i = 0; i < out.n && !s->e->failed[0]; i++) {
        Outcome *o = &out.at[i];
        if (names) {
            Formula f =
                f_schema(s->e, schema_below(s, of, names, "unevaluatedProperties", NULL), false);
            uint32_t set =
                set_of_term(s->e, term_not(&s->e->terms, o->names), o->known, o->n_known);
            o->f = f_and2(s->e, o->f,
                          f_all_keys(s->e, set, names->kind == JSON_K_FALSE ? F_FALSE : f));
            o->names = TERM_ALL;
        }
        if (items && o->items != FORMULA_MANY) {
            Formula f =
                items->kind == JSON_K_FALSE
                    ? F_FALSE
                    : f_schema(s->e, schema_below(s, of, items, "unevaluatedItems", NULL), false);
            o->f = f_and2(s->e, o->f, f_items(s->e, o->items, f_or2(s->e, f, o->items_like)));
        }
        if (items)
            o->items = FORMULA_MANY;
    }
    return out;
}

Formula schema_evaluated(Schemas *s, uint32_t of)
{
    Outcomes list = outcomes_of(s, of);
    Formula f = F_FALSE;
    for (size_t i = 0; i < list.n; i++)
        f = f_or2(s->e, f, list.at[i].f);
    return f;
}
