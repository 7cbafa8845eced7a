/* The names that a formula of objects speaks of, and the classes that its patterns cut all others into (solve.h). */
#include "constrain/solve.h"

#include <stdlib.h>
#include <string.h>

/* Names in the order of their bytes. */
typedef struct Named {
    const JsonName *name;
    uint32_t id;
} Named;

static int by_name(const void *a, const void *b)
{
    const JsonName *x = ((const Named *)a)->name, *y = ((const Named *)b)->name;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

typedef struct Collected {
    Map seen; /* of names: id -> 1; of sets */
    Map seen_sets;
    uint32_t *name, n_names;
    uint32_t *set, n_sets;
} Collected;

static void collect_name(Solver *e, Collected *c, uint32_t id)
{
    bool added;
    map_put(&c->seen, &id, sizeof id, &added);
    if (!added)
        return;
    c->name = arena_more(&e->arena, c->name, c->n_names, sizeof *c->name);
    c->name[c->n_names++] = id;
}

static void collect(Solver *e, Collected *c, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    for (uint32_t i = 0; i < f->n; i++)
        collect(e, c, f->list[i]);
    if (f->kind != F_K_ALL_KEYS && f->kind != F_K_SOME_KEY)
        return;
    const KeySet *set = &e->keys.set[f->a];
    bool added;
    map_put(&c->seen_sets, &f->a, sizeof f->a, &added);
    if (!added)
        return;
    if (set->name != UINT32_MAX) {
        collect_name(e, c, set->name);
        return;
    }
    for (uint32_t i = 0; i < set->n_known; i++)
        collect_name(e, c, set->known[i]);
    c->set = arena_more(&e->arena, c->set, c->n_sets, sizeof *c->set);
    c->set[c->n_sets++] = f->a;
}

static Term other_names(Solver *e, const Collected *c)
{
    Term *list = arena_array(&e->arena, c->n_names + 1, sizeof *list);
    for (uint32_t i = 0; i < c->n_names; i++)
        list[i] =
            term_text(&e->terms, e->names.name[c->name[i]].text, e->names.name[c->name[i]].length);
    return term_not(&e->terms, term_or(&e->terms, list, c->n_names));
}

/* Cuts the names that are not listed into classes; a class of few names is listed instead, and all begins again. */
static void find_classes(Solver *e, Collected *c, Alphabet *a)
{
    for (bool again = true; again && solver_work(e, 1);) {
        Term class[2 * SOLVE_CLASSES];
        uint32_t n = 1;
        again = false;
        class[0] = other_names(e, c);
        for (uint32_t s = 0; s < c->n_sets && n <= SOLVE_CLASSES; s++) {
            uint32_t kept = 0;
            Term cut[2 * SOLVE_CLASSES];
            for (uint32_t i = 0; i < n; i++) {
                Term term = e->keys.set[c->set[s]].term;
                Term in = term_and2(&e->terms, class[i], term),
                     out = term_and2(&e->terms, class[i], term_not(&e->terms, term));
                if (term_is_live(&e->terms, in, 0))
                    cut[kept++] = in;
                if (term_is_live(&e->terms, out, 0))
                    cut[kept++] = out;
            }
            memcpy(class, cut, kept * sizeof *cut);
            n = kept;
        }
        if (n > SOLVE_CLASSES) {
            solver_fail(e, "its patternProperties distinguish more than %d classes of names",
                        SOLVE_CLASSES);
            return;
        }
        for (uint32_t i = 0; i < n && !again; i++) {
            const char *word[SOLVE_WORDS];
            size_t length[SOLVE_WORDS],
                words = term_words(&e->terms, class[i], SOLVE_WORDS, word, length);
            again = words <= SOLVE_WORDS && words > 0;
            for (size_t w = 0; again && w < words; w++)
                collect_name(e, c, name_id(e, word[w], length[w]));
        }
        a->class = arena_copy(&e->arena, class, n * sizeof *class);
        a->n_classes = n;
    }
}

static bool set_has_class(Solver *e, uint32_t set, Term class)
{
    return term_is_live(&e->terms, term_and2(&e->terms, class, e->keys.set[set].term), 0);
}

uint32_t alphabet_of(Solver *e, Formula f)
{
    uint64_t *known = map_get(&e->solved.types, &f, sizeof f);
    if (known)
        return (uint32_t)*known;
    Collected c = {0};
    Alphabet *a = arena_alloc(&e->arena, sizeof *a);
    map_init(&c.seen, &e->arena);
    map_init(&c.seen_sets, &e->arena);
    collect(e, &c, f);
    find_classes(e, &c, a);
    a->n_names = c.n_names;
    a->set = c.set;
    a->n_sets = c.n_sets;
    a->name = arena_array(&e->arena, c.n_names + 1, sizeof *a->name);
    a->rank = arena_array(&e->arena, c.n_names + 1, sizeof *a->rank);
    Named *sorted = arena_array(&e->arena, c.n_names + 1, sizeof *sorted);
    for (uint32_t i = 0; i < c.n_names; i++)
        sorted[i] = (Named){&e->names.name[c.name[i]], c.name[i]};
    qsort(sorted, c.n_names, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < c.n_names; i++) {
        a->name[i] = sorted[i].id;
        a->rank[i] = sorted[i].id; /* names get their numbers as the schema is read */
    }
    uint32_t keys = a->n_names + a->n_classes;
    a->has = arena_array(&e->arena, (size_t)keys * a->n_sets + 1, sizeof *a->has);
    for (uint32_t k = 0; k < keys && solver_work(e, 1); k++)
        for (uint32_t s = 0; s < a->n_sets; s++)
            a->has[(size_t)k * a->n_sets + s] =
                k < a->n_names ? set_has_name(e, a->set[s], a->name[k])
                               : set_has_class(e, a->set[s], a->class[k - a->n_names]);
    e->solved.alphabet =
        arena_more(&e->arena, e->solved.alphabet, e->solved.n, sizeof *e->solved.alphabet);
    e->solved.alphabet[e->solved.n] = a;
    *map_put(&e->solved.types, &f, sizeof f, NULL) = e->solved.n;
    return e->solved.n++;
}

bool alphabet_has_key(const Solver *e, const Alphabet *a, uint32_t set, uint32_t key)
{
    if (e->keys.set[set].name != UINT32_MAX)
        return key < a->n_names && a->name[key] == e->keys.set[set].name;
    for (uint32_t s = 0; s < a->n_sets; s++)
        if (a->set[s] == set)
            return a->has[(size_t)key * a->n_sets + s];
    return false;
}

uint32_t alphabet_key_of(const Solver *e, const Alphabet *a, uint32_t name)
{
    const Named *found;
    uint32_t low = 0, high = a->n_names;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        Named x = {&e->names.name[a->name[middle]], 0}, y = {&e->names.name[name], 0};
        found = &x;
        if (by_name(found, &y) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
