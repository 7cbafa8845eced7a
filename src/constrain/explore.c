#include "constrain/explore.h"

#include "constrain/solve.h"

#include <stdlib.h>

typedef struct Explorer {
    Solver *e;
    Map known;
    Formula *list; /* [n] of which the first `at` were looked at */
    uint32_t n, at;
    Branches branches;
} Explorer;

static void add(Explorer *x, Formula f)
{
    bool added;
    if (f <= F_TRUE || x->n >= EXPLORE_VALUES)
        return;
    map_put(&x->known, &f, sizeof f, &added);
    if (!added)
        return;
    x->list = arena_more(&x->e->arena, x->list, x->n, sizeof *x->list);
    x->list[x->n++] = f;
}

static void add_branches(Explorer *x)
{
    for (size_t i = 0; i < x->branches.n; i++)
        add(x, x->branches.at[i].value);
}

/* Whether there are so many values; as far as that is easy to see. */
static bool many_values(Solver *e, Formula f, uint32_t count)
{
    uint32_t n = 0;
    for (uint32_t kind = KIND_NULL; kind <= KIND_TRUE; kind <<= 1)
        n += f_restrict(e, f, kind) == F_TRUE;
    Formula string = f_restrict(e, f, KIND_STRING), number = f_restrict(e, f, KIND_NUMBER);
    if (string == F_TRUE || number == F_TRUE || f_restrict(e, f, KIND_ARRAY) == F_TRUE ||
        f_restrict(e, f, KIND_OBJECT) == F_TRUE)
        return true;
    if (string != F_FALSE) {
        const char *word[SOLVE_WORDS];
        size_t length[SOLVE_WORDS],
            words = term_words(&e->terms, e->formulas.node[string].a, SOLVE_WORDS, word, length);
        if (words > SOLVE_WORDS)
            return true;
        n += (uint32_t)words;
    }
    return n >= count || number_has(e, number, count - n);
}

/* What the length of an array is at least; UINT32_MAX where there are alternatives. */
static uint32_t least_length(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_AND ? f->n : 1, least = 0;
    const Formula *list = f->kind == F_K_AND ? f->list : &of;
    for (uint32_t i = 0; i < n; i++) {
        const FormulaNode *atom = &e->formulas.node[list[i]];
        if (atom->kind == F_K_OR ||
            (atom->kind == F_K_CONTAINS && (atom->c > 1 || atom->d != FORMULA_MANY)))
            return UINT32_MAX;
        least = atom->kind == F_K_LENGTH ? atom->c : least;
    }
    return least;
}

/* An array of unique items needs as many values as it must have items. */
static void check_unique(Explorer *x, Formula of)
{
    Solver *e = x->e;
    uint32_t least = least_length(e, of);
    if (least < 2 || !array_is_unique(e, of))
        return;
    if (least == UINT32_MAX) {
        solver_fail(e, "uniqueItems together with counted contains, or with alternatives of "
                       "arrays, is not supported");
        return;
    }
    Formula at = of;
    for (uint32_t i = 0; i < least && solver_work(e, 1); i++) {
        array_step(e, at, &x->branches);
        for (size_t k = 0; k < x->branches.n; k++)
            if (!many_values(e, x->branches.at[k].value, least)) {
                solver_fail(e, "uniqueItems with minItems over few values is not supported");
                return;
            }
        if (!x->branches.n || x->branches.at[0].rest == at)
            return;
        at = x->branches.at[0].rest;
    }
}

static void look_at(Explorer *x, Formula f)
{
    Solver *e = x->e;
    Formula object = f_restrict(e, f, KIND_OBJECT), array = f_restrict(e, f, KIND_ARRAY);
    value_exists(e, f);
    f_restrict(e, f, KIND_STRING);
    f_restrict(e, f, KIND_NUMBER);
    if (object > F_TRUE) {
        uint32_t index = alphabet_of(e, object);
        const Alphabet *a = e->solved.alphabet[index];
        object_check_names(e, object, index, TERM_NONE);
        for (uint32_t k = 0; k < a->n_names + a->n_classes && solver_work(e, 1); k++) {
            object_step(e, object, index, k, &x->branches);
            add_branches(x);
        }
    }
    if (array <= F_TRUE)
        return;
    check_unique(x, array);
    Formula at = array;
    for (int i = 0; i < 16 && solver_work(e, 1); i++) {
        array_step(e, at, &x->branches);
        add_branches(x);
        if (!x->branches.n || x->branches.at[0].rest == at)
            break;
        at = x->branches.at[0].rest;
    }
}

void explore(Solver *e, Formula f)
{
    Explorer *x = calloc(1, sizeof *x);
    if (!x) {
        solver_fail(e, "out of memory");
        return;
    }
    x->e = e;
    map_init(&x->known, &e->arena);
    add(x, f);
    while (x->at < x->n && solver_work(e, 1))
        look_at(x, x->list[x->at++]);
    free(x);
}
