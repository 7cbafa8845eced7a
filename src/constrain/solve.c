#include "constrain/solve.h"

#include "base/num.h"

#include <stdlib.h>
#include <string.h>

typedef struct Conjunctions {
    Solver *e;
    Formula *atom; /* [room] */
    size_t n, room;
    TakeConjunction *each;
    TakeConjunction *possible; /* as in solve.h */
    void *data;
    size_t failed; /* conjunctions for which `each` returned false */
} Conjunctions;

/* What is still to be taken apart, innermost first. */
typedef struct Pending {
    Formula f;
    const struct Pending *more;
} Pending;

static bool conjunctions(Conjunctions *c, const Pending *pending)
{
    Solver *e = c->e;
    if (!solver_work(e, 1))
        return false;
    if (!pending) {
        bool taken = c->each(e, c->atom, c->n, c->data);
        c->failed += !taken;
        return taken;
    }
    Formula of = pending->f;
    FormulaNode f = e->formulas.node[of];
    bool found = false;
    size_t before = c->n;
    if (of == F_FALSE)
        return false;
    if (f.kind == F_K_AND) { /* the atoms first, then the alternatives */
        Pending *rest = malloc((f.n + 1) * sizeof *rest);
        const Pending *next = pending->more;
        if (!rest)
            return solver_fail(e, "out of memory"), false;
        size_t alternatives = 0;
        if (c->n + f.n > c->room) {
            Formula *more = realloc(c->atom, (c->n + f.n) * 2 * sizeof *more);
            if (!more) {
                free(rest);
                return solver_fail(e, "out of memory"), false;
            }
            c->atom = more;
            c->room = (c->n + f.n) * 2;
        }
        for (uint32_t i = 0; i < f.n; i++) {
            if (e->formulas.node[f.list[i]].kind == F_K_OR) {
                rest[alternatives] = (Pending){f.list[i], next};
                next = &rest[alternatives++];
            } else {
                c->atom[c->n++] = f.list[i];
            }
        }
        found = conjunctions(c, next);
        free(rest);
    } else if (f.kind == F_K_OR) {
        bool look = c->possible && c->failed > SOLVE_FAILED;
        if (++e->effort.depth > FORMULA_DEPTH)
            solver_fail(e, "its alternatives are nested too deeply");
        bool possible = !look || c->possible(e, c->atom, c->n, c->data);
        for (uint32_t i = 0; possible && i < f.n && !found && !e->failed[0]; i++) {
            found = conjunctions(c, &(Pending){f.list[i], pending->more});
            c->n = before;
        }
        e->effort.depth--;
    } else {
        if (of != F_TRUE) {
            if (c->n == c->room) {
                Formula *more = realloc(c->atom, (c->room * 2 + 16) * sizeof *more);
                if (!more)
                    return solver_fail(e, "out of memory"), false;
                c->atom = more;
                c->room = c->room * 2 + 16;
            }
            c->atom[c->n++] = of;
        }
        found = conjunctions(c, pending->more);
    }
    c->n = before;
    return found;
}

bool each_conjunction(Solver *e, Formula f, TakeConjunction *each, TakeConjunction *possible,
                      void *data)
{
    Conjunctions c = {.e = e, .each = each, .possible = possible, .data = data};
    bool found = conjunctions(&c, &(Pending){f, NULL});
    free(c.atom);
    return found && !e->failed[0];
}

static bool is_seen(const uint64_t *seen, uint32_t key)
{
    return seen[key >> 6] >> (key & 63) & 1;
}

/* One conjunction that the rest of an object shall fulfil. */
typedef struct Rest {
    const Alphabet *a;
    const uint64_t *seen;
    const Formula *atom; /* [n] */
    size_t n;
    uint32_t min, max;
    uint32_t *all; /* [n_all] atoms all_keys of single names, in the order of names */
    size_t n_all;
    Formula *wide; /* [n_wide] atoms all_keys of terms */
    size_t n_wide;
    Formula *open; /* [n_open] atoms some_key of terms */
    size_t n_open;
    uint32_t *key;  /* [n_keys] members that shall come */
    Formula *value; /* [n_keys] what is asked of them */
    size_t n_keys;
} Rest;

/* What all_keys ask of a member. */
static Formula value_of_key(Solver *e, const Rest *r, uint32_t key)
{
    Formula f = F_TRUE;
    if (key < r->a->n_names) {
        size_t low = 0, high = r->n_all;
        while (low < high) {
            size_t middle = (low + high) / 2;
            if (e->keys.set[e->formulas.node[r->all[middle]].a].name < r->a->name[key])
                low = middle + 1;
            else
                high = middle;
        }
        for (;
             low < r->n_all && e->keys.set[e->formulas.node[r->all[low]].a].name == r->a->name[key];
             low++)
            f = f_and2(e, f, e->formulas.node[r->all[low]].b);
    }
    for (size_t i = 0; i < r->n_wide; i++)
        if (alphabet_has_key(e, r->a, e->formulas.node[r->wide[i]].a, key))
            f = f_and2(e, f, e->formulas.node[r->wide[i]].b);
    return f;
}

static bool is_taken(const Rest *r, uint32_t key)
{
    for (size_t i = 0; i < r->n_keys; i++)
        if (r->key[i] == key)
            return true;
    return false;
}

/* Whether there are names enough for the least number of members. */
static bool enough_keys(Solver *e, const Rest *r)
{
    size_t have = r->n_keys;
    if (have > r->max)
        return false;
    for (uint32_t k = r->a->n_names; k < r->a->n_names + r->a->n_classes && have < r->min; k++)
        if (value_exists(e, value_of_key(e, r, k)))
            return true;
    for (uint32_t k = 0; k < r->a->n_names && have < r->min; k++)
        if (!is_seen(r->seen, k) && !is_taken(r, k) && value_exists(e, value_of_key(e, r, k)))
            have++;
    return have >= r->min;
}

/* Finds a member for each of the atoms some_key from the i-th on: one that comes anyhow, or another. */
static bool place_open(Solver *e, Rest *r, size_t i)
{
    if (!solver_work(e, 1) || r->n_keys > r->max)
        return false;
    if (i == r->n_open)
        return enough_keys(e, r);
    FormulaNode some = e->formulas.node[r->open[i]];
    for (size_t k = 0; k < r->n_keys; k++) {
        Formula before = r->value[k], both;
        if (!alphabet_has_key(e, r->a, some.a, r->key[k]) ||
            !value_exists(e, both = f_and2(e, before, some.b)))
            continue;
        r->value[k] = both;
        if (place_open(e, r, i + 1))
            return true;
        r->value[k] = before;
    }
    for (uint32_t key = r->a->n_names + r->a->n_classes; key-- > 0;) {
        bool name = key < r->a->n_names;
        if (!alphabet_has_key(e, r->a, some.a, key) ||
            (name && (is_seen(r->seen, key) || is_taken(r, key))))
            continue;
        Formula value = f_and2(e, value_of_key(e, r, key), some.b);
        if (!value_exists(e, value))
            continue;
        r->key[r->n_keys] = key;
        r->value[r->n_keys++] = value;
        if (place_open(e, r, i + 1))
            return true;
        r->n_keys--;
    }
    return false;
}

typedef struct ByName {
    uint32_t name;
    Formula atom;
} ByName;

static int by_set_name(const void *a, const void *b)
{
    const ByName *x = a, *y = b;
    return x->name != y->name ? (x->name > y->name ? 1 : -1)
                              : (x->atom > y->atom) - (x->atom < y->atom);
}

static bool rest_exists(Solver *e, Rest *r)
{
    ByName *named = malloc((2 * r->n + 2) * sizeof *named), *wanted = named + r->n + 1;
    size_t n_wanted = 0;
    bool possible = named != NULL;
    if (!named)
        return solver_fail(e, "out of memory"), false;
    for (size_t i = 0; i < r->n && possible; i++) {
        const FormulaNode *f = &e->formulas.node[r->atom[i]];
        uint32_t name = f->kind == F_K_KEY_COUNT ? 0 : e->keys.set[f->a].name;
        if (f->kind == F_K_KEY_COUNT) {
            r->min = f->c > r->min ? f->c : r->min;
            r->max = f->d < r->max ? f->d : r->max;
        } else if (f->kind == F_K_ALL_KEYS && name != UINT32_MAX) {
            named[r->n_all++] = (ByName){name, r->atom[i]};
        } else if (f->kind == F_K_ALL_KEYS) {
            r->wide[r->n_wide++] = r->atom[i];
        } else if (name != UINT32_MAX) {
            wanted[n_wanted++] = (ByName){name, r->atom[i]};
        } else {
            r->open[r->n_open++] = r->atom[i];
        }
    }
    qsort(named, r->n_all, sizeof *named, by_set_name);
    qsort(wanted, n_wanted, sizeof *wanted, by_set_name);
    for (size_t i = 0; i < r->n_all; i++)
        r->all[i] = named[i].atom;
    for (size_t i = 0, end; i < n_wanted && possible; i = end) {
        uint32_t key = alphabet_key_of(e, r->a, wanted[i].name);
        Formula value = F_TRUE;
        for (end = i; end < n_wanted && wanted[end].name == wanted[i].name; end++)
            value = f_and2(e, value, e->formulas.node[wanted[end].atom].b);
        possible = !is_seen(r->seen, key);
        if (possible)
            value = f_and2(e, value, value_of_key(e, r, key));
        possible = possible && value_exists(e, value);
        r->key[r->n_keys] = key;
        r->value[r->n_keys++] = value;
    }
    free(named);
    return possible && r->n_keys <= r->max && place_open(e, r, 0);
}

static bool try_rest(Solver *e, const Formula *atom, size_t n, void *data)
{
    const Rest *of = data;
    Rest r = {.a = of->a, .seen = of->seen, .atom = atom, .n = n, .max = FORMULA_MANY};
    uint32_t *room = malloc((5 * n + 5) * sizeof *room);
    if (!room)
        return solver_fail(e, "out of memory"), false;
    r.all = room;
    r.wide = room + n;
    r.open = room + 2 * n;
    r.key = room + 3 * n;
    r.value = room + 4 * n;
    bool exists = rest_exists(e, &r);
    free(room);
    solver_work(e, n);
    return exists;
}

/* A `no` that was found while the answer for something around it was not known is not kept. */
static bool keeps(const Solver *e, uint64_t assumed)
{
    return e->effort.assumed == assumed || e->effort.visiting == 0;
}

bool object_exists(Solver *e, Formula f, uint32_t alphabet, const uint64_t *seen)
{
    if (f <= F_TRUE)
        return f;
    const Alphabet *a = e->solved.alphabet[alphabet];
    size_t words = (a->n_names + 63) / 64, size = 8 + words * sizeof *seen;
    uint64_t few[20], *key = words < 18 ? few : malloc(size + 8), assumed = e->effort.assumed;
    if (!key)
        return solver_fail(e, "out of memory"), false;
    key[0] = (uint64_t)f << 32 | alphabet;
    if (words)
        memcpy(key + 1, seen, words * sizeof *seen);
    uint64_t *known = map_get(&e->solved.completes, key, size);
    bool exists = known ? *known : false;
    if (!known) {
        Rest r = {.a = a, .seen = seen};
        exists = each_conjunction(e, f, try_rest, try_rest, &r);
        if (exists || keeps(e, assumed))
            *map_put(&e->solved.completes, key, size, NULL) = exists;
    }
    if (key != few)
        free(key);
    return exists;
}

/* Whether f holds where nothing more comes. */
static bool holds_at_end(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    switch ((FormulaKind)f->kind) {
    case F_K_AND:
    case F_K_OR:
        for (uint32_t i = 0; i < f->n; i++)
            if (holds_at_end(e, f->list[i]) != (f->kind == F_K_AND))
                return f->kind == F_K_OR;
        return f->kind == F_K_AND;
    case F_K_KEY_COUNT:
    case F_K_LENGTH:
    case F_K_CONTAINS:
        return f->c == 0;
    case F_K_FALSE:
    case F_K_SOME_KEY:
    case F_K_REPEATED:
        return false;
    default:
        return true;
    }
}

bool object_can_end(const Solver *e, Formula f)
{
    return holds_at_end(e, f);
}

static bool tells_names_apart(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    for (uint32_t i = 0; i < f->n; i++)
        if (tells_names_apart(e, f->list[i]))
            return true;
    return (f->kind == F_K_KEY_COUNT && f->c > 1) ||
           (f->kind == F_K_SOME_KEY && f->b != F_TRUE && e->keys.set[f->a].name == UINT32_MAX);
}

bool object_is_distinct(Solver *e, Formula f, uint32_t alphabet)
{
    return e->solved.alphabet[alphabet]->n_classes &&
           (e->spelling.canonical || tells_names_apart(e, f));
}

/* Members under names of classes that f asks for at most. */
static uint32_t names_wanted(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_KEY_COUNT
                     ? f->c
                     : f->kind == F_K_SOME_KEY && e->keys.set[f->a].name == UINT32_MAX;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t part = names_wanted(e, f->list[i]);
        n = f->kind == F_K_AND ? n + part : part > n ? part : n;
    }
    return n < TERM_TEXTS ? n : TERM_TEXTS;
}

void object_check_names(Solver *e, Formula f, uint32_t alphabet, Term came)
{
    Alphabet *a = e->solved.alphabet[alphabet];
    if (!a->n_classes || !tells_names_apart(e, f))
        return;
    if (!a->fewest) {
        a->fewest = TERM_TEXTS;
        for (uint32_t i = 0; i < a->n_classes; i++) {
            uint32_t n = term_count(&e->terms, a->class[i]);
            a->fewest = n < a->fewest ? n : a->fewest;
        }
    }
    if (a->fewest < TERM_TEXTS && names_wanted(e, f) + term_count(&e->terms, came) > a->fewest)
        solver_fail(e, "members are counted or required, and a pattern that allows only a few "
                       "names may not leave enough of them");
}

bool array_can_end(const Solver *e, Formula f)
{
    return holds_at_end(e, f);
}

/*
 * A step in the making: what the atoms become that the member or item concerns, as far as they depend on its value. Each of these is true
 * or false of the value, and each set of those that are true may be a branch. Two ways lead to these sets:
 *
 *     overlapping    the value fulfils those that are true, and whatever it likes of the others: few branches, if there are few atoms
 *     disjoint       it fulfils those that are true and none of the others, and a set that no value fulfils is left as soon as that is seen:
 *                    there are as many branches as kinds of values, though there be many atoms (oneOf over 20 values of one member: 21)
 */
typedef struct MemberStep {
    Formula f; /* restricted to the kind */
    uint32_t kind;
    Formula atom[SOLVE_CONCERNED];    /* [n] those with a choice, or that the value depends on */
    Formula becomes[SOLVE_CONCERNED]; /* [n] */
    size_t n;
    const Alphabet *a; /* of objects, with */
    uint32_t key;
    Branches *out;
    size_t tried;         /* sets of them */
    bool disjoint;        /* how the sets are found */
    const char *too_many; /* what there are too many of, or NULL */
} MemberStep;

/* What becomes of the others. */
static Formula shifted(Solver *e, Formula of)
{
    FormulaNode f = e->formulas.node[of];
    uint32_t min = f.c ? f.c - 1 : 0, max = f.d == FORMULA_MANY ? f.d : f.d - 1;
    switch ((FormulaKind)f.kind) {
    case F_K_KEY_COUNT:
        return f.d ? f_key_count(e, min, max) : F_FALSE;
    case F_K_LENGTH:
        return f.d ? f_length(e, min, max) : F_FALSE;
    case F_K_ITEM:
        return f_item(e, f.a - 1, f.b);
    case F_K_ITEMS:
        return f_items(e, f.a ? f.a - 1 : 0, f.b);
    case F_K_CONTAINS:
        return f_contains(e, f.a ? f.a - 1 : 0, f.b, f.c, f.d);
    default:
        return of;
    }
}

static Formula step_atom(Solver *e, Formula atom, void *data)
{
    const MemberStep *s = data;
    for (size_t i = 0; i < s->n; i++)
        if (s->atom[i] == atom)
            return s->becomes[i];
    return shifted(e, atom);
}

static bool is_concerned(const Solver *e, const MemberStep *s, Formula atom)
{
    const FormulaNode *f = &e->formulas.node[atom];
    if (f->kind == F_K_ALL_KEYS || f->kind == F_K_SOME_KEY)
        return alphabet_has_key(e, s->a, f->a, s->key);
    return (f->kind == F_K_ITEM || f->kind == F_K_ITEMS || f->kind == F_K_CONTAINS) && f->a == 0;
}

static void find_concerned(Solver *e, MemberStep *s, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    if (f->kind == F_K_AND || f->kind == F_K_OR) {
        for (uint32_t i = 0; i < f->n; i++)
            find_concerned(e, s, f->list[i]);
        return;
    }
    if (!is_concerned(e, s, of))
        return;
    for (size_t i = 0; i < s->n; i++)
        if (s->atom[i] == of)
            return;
    if (s->n == sizeof s->atom / sizeof *s->atom)
        s->too_many = "keywords that concern it";
    else
        s->atom[s->n++] = of;
}

static bool must_hold(const Solver *e, const MemberStep *s, Formula atom)
{
    const FormulaNode *f = &e->formulas.node[s->f];
    if (s->f == atom)
        return true;
    for (uint32_t i = 0; f->kind == F_K_AND && i < f->n; i++)
        if (f->list[i] == atom)
            return true;
    return false;
}

/* Decides for the atoms from the i-th on whether the value fulfils them. */
static void decide(Solver *e, MemberStep *s, size_t i, Formula value)
{
    if (value == F_FALSE || s->too_many || !solver_work(e, 1))
        return;
    if (i == s->n) {
        if (s->tried++ == (s->disjoint ? SOLVE_TRIED : SOLVE_OVERLAPPING))
            s->too_many = "alternatives";
        Formula rest = f_restrict(e, f_replace(e, s->f, step_atom, s), s->kind);
        if (rest == F_FALSE || !value_exists(e, value))
            return;
        for (size_t k = 0; k < s->out->n; k++)
            if (s->out->at[k].value == value && s->out->at[k].rest == rest)
                return;
        if (s->out->n == SOLVE_BRANCHES)
            s->too_many = "alternatives";
        else
            s->out->at[s->out->n++] = (Branch){value, rest};
        return;
    }
    if (s->disjoint && !value_exists(e, value))
        return;
    FormulaNode f = e->formulas.node[s->atom[i]];
    bool name =
        (f.kind == F_K_ALL_KEYS || f.kind == F_K_SOME_KEY) && e->keys.set[f.a].name != UINT32_MAX;
    Formula if_so = s->atom[i], if_not = F_FALSE, other = F_TRUE;
    if (f.kind == F_K_ITEM || (f.kind == F_K_ALL_KEYS && name) || f.kind == F_K_SOME_KEY)
        if_so = F_TRUE;
    if (f.kind == F_K_SOME_KEY && !name)
        if_not = s->atom[i];
    if (f.kind == F_K_CONTAINS) {
        if_so = f.d ? f_contains(e, 0, f.b, f.c ? f.c - 1 : 0, f.d == FORMULA_MANY ? f.d : f.d - 1)
                    : F_FALSE;
        if_not = s->atom[i];
        other = f.d == FORMULA_MANY ? F_TRUE : f_not(e, f.b);
    }
    if (s->disjoint)
        other = f_not(e, f.b);
    bool must = must_hold(e, s, s->atom[i]);
    if (f.b != F_FALSE && !(must && if_so == F_FALSE)) {
        s->becomes[i] = if_so;
        decide(e, s, i + 1, f_and2(e, value, f.b));
    }
    if (f.b != F_TRUE && !(must && if_not == F_FALSE)) {
        s->becomes[i] = if_not;
        decide(e, s, i + 1, f_and2(e, value, other));
    }
}

/* The alternatives of a formula: its own, or those of one of its parts together with the others. Returns their number, up to `most`. */
static uint32_t alternatives_of(Solver *e, Formula of, Formula *out, uint32_t most)
{
    FormulaNode f = e->formulas.node[of];
    Formula part = f.kind == F_K_OR ? of : F_FALSE;
    for (uint32_t i = 0; f.kind == F_K_AND && i < f.n; i++)
        if (e->formulas.node[f.list[i]].kind == F_K_OR &&
            e->formulas.node[f.list[i]].n > e->formulas.node[part].n)
            part = f.list[i];
    FormulaNode alternatives = e->formulas.node[part];
    for (uint32_t i = 0; i < alternatives.n && i < most; i++) {
        out[i] = alternatives.list[i];
        if (part == of)
            continue;
        Formula *list = arena_array(&e->arena, f.n, sizeof *list);
        for (uint32_t k = 0; k < f.n; k++)
            list[k] = f.list[k] == part ? alternatives.list[i] : f.list[k];
        out[i] = f_and(e, list, f.n);
    }
    return alternatives.n < most ? alternatives.n : most;
}

/* The parts of a conjunction, or of the whole, that have alternatives. */
static uint32_t choices_in(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_OR;
    for (uint32_t i = 0; f->kind == F_K_AND && i < f->n; i++)
        n += e->formulas.node[f->list[i]].kind == F_K_OR;
    return n;
}

/* Adds the branches of s->f. Where they are too many, they are looked for the disjoint way if several parts of it have alternatives, since these
   multiply; and else, or where they are still too many, for one alternative after the other, each with fewer atoms. */
static void take_step(Solver *e, MemberStep *s, Formula value)
{
    Formula alternative[SOLVE_BRANCHES + 1];
    size_t before = s->out->n;
    if (s->f == F_FALSE)
        return;
    if (++e->effort.depth > FORMULA_DEPTH / 4)
        solver_fail(e, "its alternatives are nested too deeply");
    s->n = 0;
    s->too_many = NULL;
    find_concerned(e, s, s->f);
    for (int way = 0; way < 2 && (way == 0 || (s->too_many && choices_in(e, s->f) > 1)); way++) {
        s->out->n = before;
        s->tried = 0;
        s->too_many = NULL;
        s->disjoint = way == 1;
        decide(e, s, 0, value);
    }
    uint32_t n = s->too_many ? alternatives_of(e, s->f, alternative, SOLVE_BRANCHES + 1) : 0;
    if (s->too_many && n < 2)
        solver_fail(e, "its alternatives multiply: a value has too many %s", s->too_many);
    if (n)
        s->out->n = before;
    for (uint32_t i = 0; i < n && solver_work(e, 1); i++) {
        MemberStep one = *s;
        one.f = alternative[i];
        take_step(e, &one, value);
    }
    e->effort.depth--;
}

void object_step(Solver *e, Formula f, uint32_t alphabet, uint32_t key, Branches *out)
{
    MemberStep s = {
        .f = f, .kind = KIND_OBJECT, .a = e->solved.alphabet[alphabet], .key = key, .out = out};
    out->n = 0;
    take_step(e, &s, F_TRUE);
}

typedef struct Unique {
    uint32_t list;
    bool there;
    bool negated; /* two items shall be equal */
} Unique;

static void find_unique(const Solver *e, Formula of, Unique *unique)
{
    const FormulaNode *f = &e->formulas.node[of];
    for (uint32_t i = 0; i < f->n; i++)
        find_unique(e, f->list[i], unique);
    if (f->kind == F_K_UNIQUE)
        *unique = (Unique){f->a, true, unique->negated};
    unique->negated = unique->negated || f->kind == F_K_REPEATED;
}

void array_step(Solver *e, Formula f, Branches *out)
{
    MemberStep s = {.f = f, .kind = KIND_ARRAY, .out = out};
    Unique unique = {0};
    Formula value = F_TRUE;
    out->n = 0;
    find_unique(e, f, &unique);
    if (unique.negated)
        solver_fail(e, "negated uniqueItems is not supported");
    if (unique.there && unique.list)
        value = e->values.list[unique.list].differs;
    take_step(e, &s, value);
}

/* An array of which single items, the rest and the length are asked: the rest need not be walked through. */
static int plain_array(Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_AND ? f->n : 1, min = 0, last = 0;
    const Formula *list = f->kind == F_K_AND ? f->list : &of;
    for (uint32_t i = 0; i < n; i++) {
        const FormulaNode *atom = &e->formulas.node[list[i]];
        if (atom->kind == F_K_LENGTH)
            min = atom->c;
        else if (atom->kind == F_K_ITEM || atom->kind == F_K_ITEMS)
            last = atom->a > last ? atom->a : last;
        else
            return -1;
    }
    for (uint32_t k = 0; k < min && k <= last && solver_work(e, 1); k++) {
        Formula value = F_TRUE;
        for (uint32_t i = 0; i < n; i++) {
            FormulaNode atom = e->formulas.node[list[i]];
            if ((atom.kind == F_K_ITEM && atom.a == k) || (atom.kind == F_K_ITEMS && atom.a <= k))
                value = f_and2(e, value, atom.b);
        }
        if (!value_exists(e, value))
            return 0;
    }
    return 1;
}

/* Depth first through the formulas that items lead to, until one is found where the array can end. */
static bool walk_array(Solver *e, Formula f)
{
    Formula *stack = NULL, *seen = NULL;
    size_t n = 0, n_seen = 0;
    bool exists = false;
    Branches *branches = malloc(sizeof *branches);
    Map visited;
    Arena arena;
    if (!branches || arena_init(&arena, NULL)) {
        free(branches);
        return solver_fail(e, "out of memory"), false;
    }
    map_init(&visited, &arena);
    stack = arena_more(&arena, stack, n, sizeof *stack);
    stack[n++] = f;
    while (n && !exists && solver_work(e, 1)) {
        Formula at = stack[--n];
        bool added;
        map_put(&visited, &at, sizeof at, &added);
        int plain = plain_array(e, at);
        exists = array_can_end(e, at) || plain == 1;
        if (!added || exists || plain == 0)
            continue;
        seen = arena_more(&arena, seen, n_seen, sizeof *seen);
        seen[n_seen++] = at;
        array_step(e, at, branches);
        for (size_t i = branches->n; i-- > 0;) { /* what fulfils most is looked at first */
            stack = arena_more(&arena, stack, n, sizeof *stack);
            stack[n++] = branches->at[i].rest;
        }
    }
    free(branches);
    arena_free(&arena);
    return exists;
}

bool array_exists(Solver *e, Formula f)
{
    if (f <= F_TRUE)
        return f;
    uint64_t key = (uint64_t)f << 32 | UINT32_MAX, assumed = e->effort.assumed;
    uint64_t *known = map_get(&e->solved.completes, &key, sizeof key);
    if (known)
        return *known;
    bool exists = walk_array(e, f);
    if (exists || keeps(e, assumed))
        *map_put(&e->solved.completes, &key, sizeof key, NULL) = exists;
    return exists;
}

static bool find_value(Solver *e, Formula f)
{
    for (uint32_t kind = KIND_NULL; kind <= KIND_OBJECT; kind <<= 1) {
        Formula of = f_restrict(e, f, kind);
        if (e->failed[0])
            return false;
        if (of == F_FALSE)
            continue;
        if (of == F_TRUE || kind < KIND_NUMBER)
            return true;
        if (kind == KIND_NUMBER && number_exists(e, of, NUMBER_BEGIN, "", 0))
            return true;
        if (kind == KIND_STRING && term_is_live(&e->terms, e->formulas.node[of].a, 0))
            return true;
        if (kind == KIND_ARRAY && array_exists(e, of))
            return true;
        if (kind == KIND_OBJECT) {
            uint32_t alphabet = alphabet_of(e, of);
            size_t words = (e->solved.alphabet[alphabet]->n_names + 63) / 64;
            if (object_exists(e, of, alphabet, arena_array(&e->arena, words + 1, sizeof(uint64_t))))
                return true;
        }
    }
    return false;
}

bool value_exists(Solver *e, Formula f)
{
    if (e->formulas.node[f].satisfied >= 0)
        return e->formulas.node[f].satisfied;
    if (e->formulas.node[f].visiting) { /* not by way of itself */
        e->effort.assumed++;
        return false;
    }
    uint64_t assumed = e->effort.assumed;
    if (++e->effort.depth > FORMULA_DEPTH) {
        e->effort.depth--;
        return solver_fail(e, "schemas are nested too deeply"), false;
    }
    e->formulas.node[f].visiting = true;
    e->effort.visiting++;
    bool exists = find_value(e, f);
    e->effort.visiting--;
    e->formulas.node[f].visiting = false;
    e->effort.depth--;
    if (!e->failed[0] && (exists || keeps(e, assumed)))
        e->formulas.node[f].satisfied = exists;
    return exists;
}

bool array_is_unique(const Solver *e, Formula f)
{
    Unique unique = {0};
    find_unique(e, f, &unique);
    return unique.there;
}

static Formula replace_unique(Solver *e, Formula of, void *data)
{
    FormulaNode f = e->formulas.node[of];
    const Formula *differs = data;
    if (f.kind != F_K_UNIQUE)
        return of;
    e->values.list = arena_more(&e->arena, e->values.list, e->values.n, sizeof *e->values.list);
    Formula before = f.a ? e->values.list[f.a].differs : F_TRUE;
    e->values.list[e->values.n] = (Values){.before = f.a, .differs = f_and2(e, before, *differs)};
    return f_unique(e, e->values.n++);
}

Formula array_after_unique(Solver *e, Formula f, Formula value)
{
    Formula differs = f_not(e, value);
    return f_replace(e, f, replace_unique, &differs);
}
