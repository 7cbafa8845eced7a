#include "constrain/formula.h"

#include "base/num.h"
#include "constrain/ids.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int solver_init(Solver *e, cvn_err *err)
{
    *e = (Solver){0};
    if (arena_init(&e->arena, err))
        return CVN_EMEM;
    terms_init(&e->terms, &e->arena);
    Map *const maps[] = {&e->formulas.ids, &e->formulas.restricted, &e->keys.ids,    &e->names.ids,
                         &e->decimals.ids, &e->solved.completes,    &e->solved.types};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        map_init(maps[i], &e->arena);
    e->formulas.node = arena_more(&e->arena, NULL, 0, sizeof *e->formulas.node);
    e->formulas.node[e->formulas.n++] =
        (FormulaNode){.kind = F_K_FALSE, .satisfied = 0, .spelled = 0, .negation = F_TRUE};
    e->formulas.node = arena_more(&e->arena, e->formulas.node, 1, sizeof *e->formulas.node);
    e->formulas.node[e->formulas.n++] =
        (FormulaNode){.kind = F_K_TRUE, .satisfied = 1, .spelled = 1, .negation = F_FALSE};
    e->values.list = arena_more(&e->arena, NULL, 0, sizeof *e->values.list);
    e->values.n = 1;
    return CVN_OK;
}

void solver_free(Solver *e)
{
    arena_free(&e->arena);
}

Formula solver_fail(Solver *e, const char *format, ...)
{
    if (!e->failed[0]) {
        va_list args;
        va_start(args, format);
        vsnprintf(e->failed, sizeof e->failed, format, args);
        va_end(args);
    }
    return F_FALSE;
}

void solver_begin(Solver *e)
{
    e->effort.work = e->terms.work = 0;
}

bool solver_work(Solver *e, uint64_t n)
{
    e->effort.work += n;
    if (e->effort.work > FORMULA_WORK)
        solver_fail(e, "its alternatives multiply: computing what is allowed next takes too long");
    if (e->terms.failed)
        solver_fail(e, "%s", e->terms.failed);
    return !e->failed[0];
}

static Formula intern(Solver *e, FormulaKind kind, uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                      const Formula *list, size_t n)
{
    enum { SHORT = 128 };
    uint32_t few[SHORT], *key = n + 5 <= SHORT ? few : malloc((n + 5) * sizeof *key);
    if (!key)
        return solver_fail(e, "out of memory");
    key[0] = kind;
    key[1] = a;
    key[2] = b;
    key[3] = c;
    key[4] = d;
    if (n)
        memcpy(key + 5, list, n * sizeof *list);
    bool added;
    uint64_t *id = map_put(&e->formulas.ids, key, (n + 5) * sizeof *key, &added);
    if (key != few)
        free(key);
    if (!added)
        return (Formula)*id;
    *id = F_FALSE;
    if (e->formulas.n >= FORMULA_LIMIT)
        return solver_fail(e, "its alternatives multiply: there are too many of them");
    e->formulas.node =
        arena_more(&e->arena, e->formulas.node, e->formulas.n, sizeof *e->formulas.node);
    e->formulas.node[e->formulas.n] =
        (FormulaNode){.kind = (uint8_t)kind,
                      .satisfied = -1,
                      .spelled = -1,
                      .a = a,
                      .b = b,
                      .c = c,
                      .d = d,
                      .n = (uint32_t)n,
                      .list = n ? arena_copy(&e->arena, list, n * sizeof *list) : NULL};
    *id = e->formulas.n;
    return e->formulas.n++;
}

Formula f_type(Solver *e, uint32_t kinds)
{
    if (kinds == 0 || kinds == KIND_ANY)
        return kinds ? F_TRUE : F_FALSE;
    return intern(e, F_K_TYPE, kinds, 0, 0, 0, NULL, 0);
}

Formula f_string(Solver *e, Term term)
{
    if (term == TERM_ALL)
        return F_TRUE;
    if (term == TERM_NONE)
        return f_type(e, KIND_ANY & ~(uint32_t)KIND_STRING);
    return intern(e, F_K_STRING, term, 0, 0, 0, NULL, 0);
}

Formula f_number(Solver *e, NumberOp op, const Decimal *value)
{
    char key[DECIMAL_DIGITS + 32];
    if (value->n > DECIMAL_DIGITS)
        return solver_fail(e, "a number has more than %d digits", DECIMAL_DIGITS);
    int n = snprintf(key, sizeof key, "%d %lld %.*s", value->negative, (long long)value->exp,
                     (int)value->n, value->n ? value->digits : "");
    bool added;
    uint64_t *id = map_put(&e->decimals.ids, key, (size_t)n, &added);
    if (added) {
        *id = e->decimals.n;
        e->decimals.decimal =
            arena_more(&e->arena, e->decimals.decimal, e->decimals.n, sizeof *e->decimals.decimal);
        e->decimals.decimal[e->decimals.n++] = *value;
    }
    return intern(e, F_K_NUMBER, op, (uint32_t)*id, 0, 0, NULL, 0);
}

Formula f_all_keys(Solver *e, uint32_t set, Formula f)
{
    if (f == F_TRUE || e->keys.set[set].term == TERM_NONE)
        return F_TRUE;
    return intern(e, F_K_ALL_KEYS, set, f, 0, 0, NULL, 0);
}

Formula f_some_key(Solver *e, uint32_t set, Formula f)
{
    if (f == F_FALSE || e->keys.set[set].term == TERM_NONE)
        return f_type(e, KIND_ANY & ~(uint32_t)KIND_OBJECT);
    return intern(e, F_K_SOME_KEY, set, f, 0, 0, NULL, 0);
}

static Formula count_formula(Solver *e, FormulaKind kind, uint32_t type, uint32_t min, uint32_t max)
{
    if (min == 0 && max == FORMULA_MANY)
        return F_TRUE;
    if (min > max)
        return f_type(e, KIND_ANY & ~type);
    return intern(e, kind, 0, 0, min, max, NULL, 0);
}

Formula f_key_count(Solver *e, uint32_t min, uint32_t max)
{
    return count_formula(e, F_K_KEY_COUNT, KIND_OBJECT, min, max);
}

Formula f_length(Solver *e, uint32_t min, uint32_t max)
{
    return count_formula(e, F_K_LENGTH, KIND_ARRAY, min, max);
}

Formula f_item(Solver *e, uint32_t index, Formula f)
{
    return f == F_TRUE ? F_TRUE : intern(e, F_K_ITEM, index, f, 0, 0, NULL, 0);
}

Formula f_items(Solver *e, uint32_t from, Formula f)
{
    if (f == F_FALSE)
        return f_length(e, 0, from);
    return f == F_TRUE ? F_TRUE : intern(e, F_K_ITEMS, from, f, 0, 0, NULL, 0);
}

Formula f_contains(Solver *e, uint32_t from, Formula f, uint32_t min, uint32_t max)
{
    if (min == 0 && (max == FORMULA_MANY || f == F_FALSE))
        return F_TRUE;
    if (min > max || f == F_FALSE)
        return f_type(e, KIND_ANY & ~(uint32_t)KIND_ARRAY);
    return intern(e, F_K_CONTAINS, from, f, min, max, NULL, 0);
}

Formula f_unique(Solver *e, uint32_t values)
{
    return intern(e, F_K_UNIQUE, values, 0, 0, 0, NULL, 0);
}

Formula f_schema(Solver *e, uint32_t schema, bool negative)
{
    return intern(e, F_K_SCHEMA, schema, negative, 0, 0, NULL, 0);
}

/* Types, terms of strings and counts are one atom each: what `and` has in common, what `or` has in all. */
static size_t merge_atoms(Solver *e, bool is_and, Formula *list, size_t n)
{
    uint32_t kinds = is_and ? KIND_ANY : 0, least[2] = {0, 0},
             most[2] = {FORMULA_MANY, FORMULA_MANY};
    Term *term = NULL;
    size_t kept = 0, types = 0, strings = 0, counts = 0;
    for (size_t i = 0; i < n; i++) {
        types += e->formulas.node[list[i]].kind == F_K_TYPE;
        strings += e->formulas.node[list[i]].kind == F_K_STRING;
        counts += is_and && (e->formulas.node[list[i]].kind == F_K_KEY_COUNT ||
                             e->formulas.node[list[i]].kind == F_K_LENGTH);
    }
    if (types < 2 && strings < 2 && counts < 2)
        return n;
    term = malloc((strings + 1) * sizeof *term);
    if (!term)
        return solver_fail(e, "out of memory");
    strings = 0;
    for (size_t i = 0; i < n; i++) {
        const FormulaNode *f = &e->formulas.node[list[i]];
        int count = f->kind == F_K_LENGTH;
        if (f->kind == F_K_TYPE) {
            kinds = is_and ? kinds & f->a : kinds | f->a;
        } else if (f->kind == F_K_STRING) {
            term[strings++] = f->a;
        } else if (is_and && (count || f->kind == F_K_KEY_COUNT)) {
            least[count] = f->c > least[count] ? f->c : least[count];
            most[count] = f->d < most[count] ? f->d : most[count];
        } else {
            list[kept++] = list[i];
        }
    }
    if (types)
        list[kept++] = f_type(e, kinds);
    if (strings)
        list[kept++] = f_string(e, is_and ? term_and(&e->terms, term, strings)
                                          : term_or(&e->terms, term, strings));
    free(term);
    if (counts) {
        list[kept++] = f_key_count(e, least[0], most[0]);
        list[kept++] = f_length(e, least[1], most[1]);
    }
    return ids_sort(list, kept);
}

/* x and (x or y) is x; x or (x and y) is x. x and not x is nothing, for schemas. */
static size_t absorb(Solver *e, bool is_and, Formula *list, size_t n)
{
    FormulaKind inner = is_and ? F_K_OR : F_K_AND;
    size_t kept = 0;
    bool opposite = false;
    bool *drop = calloc(n + 1, sizeof *drop);
    if (!drop)
        return solver_fail(e, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const FormulaNode *f = &e->formulas.node[list[i]];
        for (uint32_t k = 0; f->kind == inner && k < f->n && !drop[i]; k++)
            drop[i] = ids_have(list, n, f->list[k]);
        if (f->kind == F_K_SCHEMA && f->negation != F_FALSE && ids_have(list, n, f->negation))
            opposite = true;
    }
    for (size_t i = 0; i < n; i++)
        if (!drop[i])
            list[kept++] = list[i];
    free(drop);
    if (opposite) {
        list[0] = is_and ? F_FALSE : F_TRUE;
        return 1;
    }
    return kept;
}

static Formula combine(Solver *e, bool is_and, const Formula *given, size_t n)
{
    FormulaKind kind = is_and ? F_K_AND : F_K_OR;
    Formula neutral = is_and ? F_TRUE : F_FALSE, absorbing = is_and ? F_FALSE : F_TRUE;
    size_t room = 0, count = 0;
    if (n == 2 && (given[0] == given[1] || given[1] == neutral))
        return given[0];
    for (size_t i = 0; i < n; i++) {
        if (given[i] == absorbing)
            return absorbing;
        room += e->formulas.node[given[i]].kind == kind ? e->formulas.node[given[i]].n : 1;
    }
    Formula *list = malloc((room + 4) * sizeof *list);
    if (!list)
        return solver_fail(e, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const FormulaNode *f = &e->formulas.node[given[i]];
        if (f->kind == kind)
            for (uint32_t k = 0; k < f->n; k++)
                list[count++] = f->list[k];
        else if (given[i] != neutral)
            list[count++] = given[i];
    }
    count = ids_sort(list, count);
    count = merge_atoms(e, is_and, list, count);
    count = absorb(e, is_and, list, count);
    Formula result = neutral;
    bool absorbed = false;
    size_t kept = 0;
    for (size_t i = 0; i < count; i++) {
        absorbed = absorbed || list[i] == absorbing;
        if (list[i] != neutral)
            list[kept++] = list[i];
    }
    if (absorbed)
        result = absorbing;
    else if (kept == 1)
        result = list[0];
    else if (kept)
        result = intern(e, kind, 0, 0, 0, 0, list, kept);
    free(list);
    solver_work(e, count + 1);
    return result;
}

Formula f_and(Solver *e, const Formula *list, size_t n)
{
    return combine(e, true, list, n);
}

Formula f_or(Solver *e, const Formula *list, size_t n)
{
    return combine(e, false, list, n);
}

Formula f_and2(Solver *e, Formula a, Formula b)
{
    return combine(e, true, (Formula[]){a, b}, 2);
}

Formula f_or2(Solver *e, Formula a, Formula b)
{
    return combine(e, false, (Formula[]){a, b}, 2);
}

static Formula not_count(Solver *e, Formula (*make)(Solver *, uint32_t, uint32_t), uint32_t kind,
                         const FormulaNode *f)
{
    Formula less = f->c ? make(e, 0, f->c - 1) : F_FALSE;
    Formula more = f->d == FORMULA_MANY ? F_FALSE : make(e, f->d + 1, FORMULA_MANY);
    return f_and2(e, f_type(e, kind), f_or2(e, less, more));
}

static Formula negate(Solver *e, Formula of)
{
    static const NumberOp opposite[] = {NUMBER_LT,       NUMBER_LE,        NUMBER_GT,
                                        NUMBER_GE,       NUMBER_NE,        NUMBER_NO_MULTIPLE,
                                        NUMBER_MULTIPLE, NUMBER_NO_DIGITS, NUMBER_DIGITS};
    FormulaNode f = e->formulas.node[of];
    switch ((FormulaKind)f.kind) {
    case F_K_FALSE:
    case F_K_TRUE:
        break;
    case F_K_AND:
    case F_K_OR: {
        Formula *list = malloc(f.n * sizeof *list), result;
        if (!list)
            return solver_fail(e, "out of memory");
        for (uint32_t i = 0; i < f.n; i++)
            list[i] = f_not(e, f.list[i]);
        result = combine(e, f.kind == F_K_OR, list, f.n);
        free(list);
        return result;
    }
    case F_K_SCHEMA:
        return f_schema(e, f.a, !f.b);
    case F_K_TYPE:
        return f_type(e, KIND_ANY & ~f.a);
    case F_K_STRING:
        return f_and2(e, f_type(e, KIND_STRING), f_string(e, term_not(&e->terms, f.a)));
    case F_K_NUMBER: {
        Decimal value = e->decimals.decimal[f.b];
        Formula is = f.a == NUMBER_NE
                         ? f_and2(e, f_number(e, NUMBER_GE, &value), f_number(e, NUMBER_LE, &value))
                         : f_number(e, opposite[f.a], &value);
        return f_and2(e, f_type(e, KIND_NUMBER), is);
    }
    case F_K_ALL_KEYS:
        return f_and2(e, f_type(e, KIND_OBJECT), f_some_key(e, f.a, f_not(e, f.b)));
    case F_K_SOME_KEY:
        return f_and2(e, f_type(e, KIND_OBJECT), f_all_keys(e, f.a, f_not(e, f.b)));
    case F_K_KEY_COUNT:
        return not_count(e, f_key_count, KIND_OBJECT, &f);
    case F_K_LENGTH:
        return not_count(e, f_length, KIND_ARRAY, &f);
    case F_K_ITEM:
        return f_and(e,
                     (Formula[]){f_type(e, KIND_ARRAY), f_length(e, f.a + 1, FORMULA_MANY),
                                 f_item(e, f.a, f_not(e, f.b))},
                     3);
    case F_K_ITEMS:
        return f_and2(e, f_type(e, KIND_ARRAY), f_contains(e, f.a, f_not(e, f.b), 1, FORMULA_MANY));
    case F_K_CONTAINS: {
        Formula less = f.c ? f_contains(e, f.a, f.b, 0, f.c - 1) : F_FALSE;
        Formula more =
            f.d == FORMULA_MANY ? F_FALSE : f_contains(e, f.a, f.b, f.d + 1, FORMULA_MANY);
        return f_and2(e, f_type(e, KIND_ARRAY), f_or2(e, less, more));
    }
    case F_K_UNIQUE:
        return f_and2(e, f_type(e, KIND_ARRAY), intern(e, F_K_REPEATED, f.a, 0, 0, 0, NULL, 0));
    case F_K_REPEATED:
        return f_and2(e, f_type(e, KIND_ARRAY), f_unique(e, f.a));
    }
    return of == F_FALSE ? F_TRUE : F_FALSE;
}

Formula f_not(Solver *e, Formula f)
{
    if (f <= F_TRUE)
        return f == F_FALSE ? F_TRUE : F_FALSE;
    if (e->formulas.node[f].negation != F_FALSE)
        return e->formulas.node[f].negation;
    if (++e->effort.depth > FORMULA_DEPTH) {
        e->effort.depth--;
        return solver_fail(e, "schemas are nested too deeply");
    }
    Formula negation = negate(e, f);
    e->effort.depth--;
    e->formulas.node[f].negation = negation;
    if (negation > F_TRUE && e->formulas.node[f].kind == F_K_SCHEMA)
        e->formulas.node[negation].negation = f;
    return negation;
}

Formula f_const(Solver *e, const JsonValue *value)
{
    static const uint32_t kinds[] = {KIND_NULL,   KIND_FALSE, KIND_TRUE,  KIND_NUMBER,
                                     KIND_STRING, KIND_ARRAY, KIND_OBJECT};
    Formula kind = f_type(e, kinds[value->kind]), said = F_TRUE, of = F_TRUE;
    if (value->kind == JSON_K_NUMBER) {
        Decimal number = decimal_read(&e->arena, value->text, value->length);
        said = f_and2(e, f_number(e, NUMBER_GE, &number), f_number(e, NUMBER_LE, &number));
    } else if (value->kind == JSON_K_STRING) {
        said = f_string(e, term_text(&e->terms, value->text, value->length));
    } else if (value->kind >= JSON_K_ARRAY) {
        Formula *list = arena_array(&e->arena, value->n + 2, sizeof *list);
        uint32_t *names = arena_array(&e->arena, value->n + 1, sizeof *names);
        Term *terms = arena_array(&e->arena, value->n + 1, sizeof *terms);
        bool object = value->kind == JSON_K_OBJECT;
        for (size_t i = 0; i < value->n; i++) {
            of = f_const(e, value->item[i]);
            if (object) {
                names[i] = name_id(e, value->name[i].text, value->name[i].length);
                terms[i] = term_text(&e->terms, value->name[i].text, value->name[i].length);
            }
            list[i] =
                object ? f_some_key(e, set_of_name(e, names[i]), of) : f_item(e, (uint32_t)i, of);
        }
        list[value->n] = kind;
        Term others = object ? term_not(&e->terms, term_or(&e->terms, terms, value->n)) : 0;
        list[value->n + 1] = object
                                 ? f_all_keys(e, set_of_term(e, others, names, value->n), F_FALSE)
                                 : f_length(e, (uint32_t)value->n, (uint32_t)value->n);
        return f_and(e, list, value->n + 2);
    }
    return f_and2(e, kind, said);
}

uint32_t name_id(Solver *e, const char *text, size_t n)
{
    bool added;
    uint64_t *id = map_put(&e->names.ids, text, n, &added);
    if (added) {
        *id = e->names.n;
        e->names.name = arena_more(&e->arena, e->names.name, e->names.n, sizeof *e->names.name);
        e->names.name[e->names.n++] = (JsonName){arena_stringn(&e->arena, text, n), n};
    }
    return (uint32_t)*id;
}

static uint32_t add_set(Solver *e, uint32_t key[2], const KeySet *set)
{
    bool added;
    uint64_t *id = map_put(&e->keys.ids, key, 2 * sizeof *key, &added);
    if (added) {
        *id = e->keys.n;
        e->keys.set = arena_more(&e->arena, e->keys.set, e->keys.n, sizeof *e->keys.set);
        e->keys.set[e->keys.n++] = *set;
    }
    return (uint32_t)*id;
}

uint32_t set_of_name(Solver *e, uint32_t name)
{
    KeySet set = {.name = name,
                  .term =
                      term_text(&e->terms, e->names.name[name].text, e->names.name[name].length)};
    return add_set(e, (uint32_t[]){0, name}, &set);
}

uint32_t set_of_term(Solver *e, Term term, const uint32_t *known, size_t n_known)
{
    KeySet set = {.name = UINT32_MAX, .term = term, .n_known = (uint32_t)n_known};
    set.known = n_known ? arena_copy(&e->arena, known, n_known * sizeof *known) : NULL;
    return add_set(e, (uint32_t[]){1, term}, &set);
}

bool set_has_name(Solver *e, uint32_t set, uint32_t name)
{
    if (e->keys.set[set].name != UINT32_MAX)
        return e->keys.set[set].name == name;
    return term_matches(&e->terms, e->keys.set[set].term, e->names.name[name].text,
                        e->names.name[name].length);
}

static uint32_t kind_of_atom(FormulaKind kind)
{
    static const uint8_t kinds[] = {
        [F_K_STRING] = KIND_STRING,   [F_K_NUMBER] = KIND_NUMBER,    [F_K_ALL_KEYS] = KIND_OBJECT,
        [F_K_SOME_KEY] = KIND_OBJECT, [F_K_KEY_COUNT] = KIND_OBJECT, [F_K_ITEM] = KIND_ARRAY,
        [F_K_ITEMS] = KIND_ARRAY,     [F_K_CONTAINS] = KIND_ARRAY,   [F_K_LENGTH] = KIND_ARRAY,
        [F_K_UNIQUE] = KIND_ARRAY,    [F_K_REPEATED] = KIND_ARRAY};
    return kinds[kind];
}

#define BEING_DONE UINT32_MAX

Formula f_restrict(Solver *e, Formula of, uint32_t kind)
{
    if (of <= F_TRUE || e->failed[0])
        return of;
    FormulaNode f = e->formulas.node[of];
    if (f.kind == F_K_TYPE)
        return f.a & kind ? F_TRUE : F_FALSE;
    if (f.kind != F_K_AND && f.kind != F_K_OR && f.kind != F_K_SCHEMA)
        return kind_of_atom(f.kind) == kind ? of : F_TRUE;
    uint32_t key[2] = {of, kind};
    bool added;
    uint64_t *known = map_put(&e->formulas.restricted, key, sizeof key, &added);
    if (!added)
        return *known == BEING_DONE
                   ? solver_fail(e, "$ref refers to itself without another keyword in between")
                   : (Formula)*known;
    *known = BEING_DONE;
    Formula result = F_FALSE;
    if (++e->effort.depth > FORMULA_DEPTH) {
        solver_fail(e, "schemas are nested too deeply");
    } else if (f.kind == F_K_SCHEMA) {
        Formula said = schema_formula(e, f.a);
        result = f_restrict(e, f.b ? f_not(e, said) : said, kind);
    } else {
        Formula *list = malloc(f.n * sizeof *list);
        if (!list)
            solver_fail(e, "out of memory");
        for (uint32_t i = 0; list && i < f.n; i++)
            list[i] = f_restrict(e, f.list[i], kind);
        if (list)
            result = combine(e, f.kind == F_K_AND, list, f.n);
        free(list);
    }
    e->effort.depth--;
    /* Atoms that nothing fulfils became types, which are known now. */
    if (result > F_TRUE && result != of)
        result = f_restrict(e, result, kind);
    *map_get(&e->formulas.restricted, key, sizeof key) = result;
    return result;
}

Formula f_replace(Solver *e, Formula of, Formula (*replace)(Solver *, Formula, void *), void *data)
{
    enum { FEW = 64 };
    if (of <= F_TRUE)
        return of;
    FormulaNode f = e->formulas.node[of];
    if (f.kind != F_K_AND && f.kind != F_K_OR)
        return replace(e, of, data);
    Formula few[FEW], *list = f.n <= FEW ? few : malloc(f.n * sizeof *list), result = of;
    bool changed = false;
    if (!list)
        return solver_fail(e, "out of memory");
    for (uint32_t i = 0; i < f.n; i++) {
        list[i] = f_replace(e, f.list[i], replace, data);
        changed = changed || list[i] != f.list[i];
    }
    if (changed)
        result = combine(e, f.kind == F_K_AND, list, f.n);
    if (list != few)
        free(list);
    return result;
}

bool f_mentions(const Solver *e, Formula of, Formula atom)
{
    const FormulaNode *f = &e->formulas.node[of];
    if (of == atom)
        return true;
    if ((f->kind != F_K_AND && f->kind != F_K_OR) || ids_have(f->list, f->n, atom))
        return f->kind == F_K_AND || f->kind == F_K_OR;
    for (uint32_t i = 0; i < f->n; i++)
        if ((e->formulas.node[f->list[i]].kind == F_K_AND ||
             e->formulas.node[f->list[i]].kind == F_K_OR) &&
            f_mentions(e, f->list[i], atom))
            return true;
    return false;
}
