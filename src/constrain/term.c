/* Terms as nodes, each once: what builds them takes apart what they are made of and simplifies, so that equal terms have one id. */
#include "constrain/term_impl.h"

#include "constrain/ids.h"

#include <stdlib.h>
#include <string.h>

static uint32_t add_node(TermTable *t, const TermNode *like)
{
    t->node = arena_more(t->arena, t->node, t->n, sizeof *t->node);
    t->node[t->n] = *like;
    return t->n++;
}

void terms_init(TermTable *terms, Arena *arena)
{
    *terms = (TermTable){.arena = arena};
    map_init(&terms->ids, arena);
    add_node(terms, &(TermNode){.kind = TERM_K_NONE});
    add_node(terms, &(TermNode){.kind = TERM_K_EMPTY, .nullable = true, .plain = true});
    add_node(terms, &(TermNode){.kind = TERM_K_ALL, .nullable = true, .plain = true});
}

Term term_fail(TermTable *t, const char *what)
{
    if (!t->failed)
        t->failed = what;
    return TERM_NONE;
}

Term term_intern(TermTable *t, TermKind kind, const ByteSet *set, uint32_t min, uint32_t max,
                 const Term *list, size_t n, bool nullable, bool plain)
{
    enum { SHORT = 64 };
    uint32_t few[SHORT];
    size_t words = 3 + (set ? 8 : n);
    uint32_t *key = words <= SHORT ? few : arena_array(t->arena, words, sizeof *key);
    key[0] = kind;
    key[1] = min;
    key[2] = max;
    memcpy(key + 3, set ? (const void *)set : list, (words - 3) * sizeof *key);
    bool added;
    uint64_t *id = map_put(&t->ids, key, words * sizeof *key, &added);
    if (!added)
        return (Term)*id;
    *id = TERM_NONE;
    if (t->n >= TERM_LIMIT)
        return term_fail(t, "the pattern needs too many states");
    TermNode node = {.kind = (uint8_t)kind,
                     .min = min,
                     .max = max,
                     .n = (uint32_t)n,
                     .nullable = nullable,
                     .plain = plain};
    if (set)
        node.set = *set;
    else
        node.list = arena_copy(t->arena, list, n * sizeof *list);
    *id = add_node(t, &node);
    return (Term)*id;
}

Term term_bytes(TermTable *t, const ByteSet *set)
{
    if (!(set->bit[0] | set->bit[1] | set->bit[2] | set->bit[3]))
        return TERM_NONE;
    return term_intern(t, TERM_K_BYTES, set, 0, 0, NULL, 0, false, true);
}

Term term_range(TermTable *t, unsigned char low, unsigned char high)
{
    ByteSet set = {{0}};
    for (unsigned b = low; b <= high; b++)
        set_add(&set, (unsigned char)b);
    return term_bytes(t, &set);
}

Term term_text(TermTable *t, const char *text, size_t n)
{
    Term term = TERM_EMPTY;
    while (n--)
        term = term_cat(t, term_range(t, (unsigned char)text[n], (unsigned char)text[n]), term);
    return term;
}

void term_count_work(TermTable *t, size_t n)
{
    t->work += n;
    if (t->work > TERM_WORK)
        term_fail(
            t,
            "its counts and alternatives multiply: computing what is allowed next takes too long");
}

/* Concatenations nest to the right; one that is itself the left side is taken apart, from its end. */
Term term_cat(TermTable *t, Term a, Term b)
{
    enum { FEW = 32 };
    if (a == TERM_NONE || b == TERM_NONE)
        return TERM_NONE;
    if (a == TERM_EMPTY || (a == TERM_ALL && b == TERM_ALL))
        return b;
    if (b == TERM_EMPTY)
        return a;
    Term few[FEW], *part = few;
    size_t n = 1;
    for (Term at = a; t->node[at].kind == TERM_K_CAT; at = t->node[at].list[1])
        n++;
    term_count_work(t, n);
    if (n > FEW)
        part = arena_array(t->arena, n, sizeof *part);
    for (size_t i = 0; i + 1 < n; i++, a = t->node[a].list[1])
        part[i] = t->node[a].list[0];
    part[n - 1] = a;
    for (size_t i = n; i-- > 0;) {
        if (part[i] == TERM_ALL && b == TERM_ALL)
            continue;
        if (part[i] == TERM_ALL && t->node[b].kind == TERM_K_CAT && t->node[b].list[0] == TERM_ALL)
            continue;
        Term list[2] = {part[i], b};
        const TermNode *x = &t->node[part[i]], *y = &t->node[b];
        b = term_intern(t, TERM_K_CAT, NULL, 0, 0, list, 2, x->nullable && y->nullable,
                        x->plain && y->plain);
    }
    return b;
}

/* Copies what is not `neutral`, taking lists of the same kind apart; sorts; drops doubles. Returns the number, or 0
   with *whole set where something makes the whole of it `absorbing`. */
static size_t collect(TermTable *t, TermKind kind, const Term *list, size_t n, Term neutral,
                      Term absorbing, Term **out, bool *whole)
{
    size_t room = 0, count = 0;
    for (size_t i = 0; i < n; i++)
        room += t->node[list[i]].kind == kind ? t->node[list[i]].n : 1;
    term_count_work(t, room);
    Term *all = malloc((room + !room) * sizeof *all);
    *whole = false;
    *out = all;
    if (!all)
        return term_fail(t, "no memory for the pattern");
    for (size_t i = 0; i < n; i++) {
        const TermNode *node = &t->node[list[i]];
        *whole = *whole || list[i] == absorbing;
        if (node->kind == kind) {
            memcpy(all + count, node->list, node->n * sizeof *all);
            count += node->n;
        } else if (list[i] != neutral) {
            all[count++] = list[i];
        }
    }
    return ids_sort(all, count);
}

/* The bytes that a term begins with, where it is bytes or bytes followed by something. */
static Term head_of(const TermTable *t, Term a)
{
    const TermNode *node = &t->node[a];
    if (node->kind == TERM_K_BYTES)
        return a;
    return node->kind == TERM_K_CAT && t->node[node->list[0]].kind == TERM_K_BYTES ? node->list[0]
                                                                                   : TERM_NONE;
}

typedef struct Headed {
    Term head, term;
} Headed;

static int by_head(const void *a, const void *b)
{
    const Headed *x = a, *y = b;
    if (x->head != y->head)
        return x->head > y->head ? 1 : -1;
    return (x->term > y->term) - (x->term < y->term);
}

/* ab|ac is a(b|c): what a union of words becomes is a tree, of which each byte keeps one branch. */
static size_t factor(TermTable *t, Term *list, size_t n)
{
    Headed *headed = malloc((n + !n) * sizeof *headed);
    if (!headed)
        return term_fail(t, "no memory for the pattern");
    for (size_t i = 0; i < n; i++)
        headed[i] = (Headed){head_of(t, list[i]), list[i]};
    qsort(headed, n, sizeof *headed, by_head);
    size_t kept = 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && headed[end].head == headed[i].head && headed[i].head;)
            end++;
        if (end == i + 1) {
            list[kept++] = headed[i].term;
            continue;
        }
        Term *tail = malloc((end - i) * sizeof *tail);
        if (!tail) {
            free(headed);
            return term_fail(t, "no memory for the pattern");
        }
        for (size_t k = i; k < end; k++)
            tail[k - i] = t->node[headed[k].term].kind == TERM_K_BYTES
                              ? TERM_EMPTY
                              : t->node[headed[k].term].list[1];
        list[kept++] = term_cat(t, headed[i].head, term_or(t, tail, end - i));
        free(tail);
    }
    free(headed);
    return ids_sort(list, kept);
}

/* Sets of bytes in a union are one set. */
static size_t merge_sets(TermTable *t, Term *list, size_t n)
{
    ByteSet set = {{0}};
    size_t kept = 0, sets = 0;
    for (size_t i = 0; i < n; i++)
        if (t->node[list[i]].kind == TERM_K_BYTES) {
            sets++;
            for (int w = 0; w < 4; w++)
                set.bit[w] |= t->node[list[i]].set.bit[w];
        }
    if (sets < 2)
        return n;
    for (size_t i = 0; i < n; i++)
        if (t->node[list[i]].kind != TERM_K_BYTES)
            list[kept++] = list[i];
    list[kept++] = term_bytes(t, &set);
    return ids_sort(list, kept);
}

Term term_or(TermTable *t, const Term *given, size_t n)
{
    bool whole;
    Term *list, term = TERM_NONE;
    size_t count = collect(t, TERM_K_OR, given, n, TERM_NONE, TERM_ALL, &list, &whole);
    if (t->failed || whole) {
        free(list);
        return t->failed ? TERM_NONE : TERM_ALL;
    }
    count = merge_sets(t, list, count);
    if (t->depth < TERM_DEPTH / 10) {
        t->depth++;
        count = factor(t, list, count);
        t->depth--;
    }
    bool nullable = false, plain = true;
    for (size_t i = 0; i < count; i++) {
        nullable = nullable || t->node[list[i]].nullable;
        plain = plain && t->node[list[i]].plain;
    }
    if (count == 1)
        term = list[0];
    else if (count)
        term = term_intern(t, TERM_K_OR, NULL, 0, 0, list, count, nullable, plain);
    free(list);
    return term;
}

Term term_or2(TermTable *t, Term a, Term b)
{
    return term_or(t, (Term[]){a, b}, 2);
}

Term term_and(TermTable *t, const Term *given, size_t n)
{
    bool whole, nullable = true, empty = false;
    Term *list, term = TERM_ALL;
    size_t count = collect(t, TERM_K_AND, given, n, TERM_ALL, TERM_NONE, &list, &whole);
    for (size_t i = 0; i < count && !whole; i++) {
        const TermNode *node = &t->node[list[i]];
        nullable = nullable && node->nullable;
        empty = empty || list[i] == TERM_EMPTY;
        whole = node->kind == TERM_K_NOT && ids_have(list, count, node->list[0]); /* x and not x */
    }
    if (t->failed || whole)
        term = TERM_NONE;
    else if (empty)
        term = nullable ? TERM_EMPTY : TERM_NONE;
    else if (count == 1)
        term = list[0];
    else if (count)
        term = term_intern(t, TERM_K_AND, NULL, 0, 0, list, count, nullable, false);
    free(list);
    return term;
}

Term term_and2(TermTable *t, Term a, Term b)
{
    return term_and(t, (Term[]){a, b}, 2);
}

Term term_not(TermTable *t, Term a)
{
    if (a == TERM_NONE || a == TERM_ALL)
        return a == TERM_NONE ? TERM_ALL : TERM_NONE;
    if (t->node[a].kind == TERM_K_NOT)
        return t->node[a].list[0];
    return term_intern(t, TERM_K_NOT, NULL, 0, 0, &a, 1, !t->node[a].nullable, false);
}

Term term_rep(TermTable *t, Term a, uint32_t min, uint32_t max)
{
    if (max == 0 || a == TERM_EMPTY)
        return TERM_EMPTY;
    if (a == TERM_NONE)
        return min == 0 ? TERM_EMPTY : TERM_NONE;
    if (a == TERM_ALL || (min == 1 && max == 1))
        return a;
    if (t->node[a].nullable)
        min = 0;
    if (t->node[a].kind == TERM_K_REP && t->node[a].min == 0 && t->node[a].max == TERM_MANY)
        return a;
    bool nullable = min == 0;
    return term_intern(t, TERM_K_REP, NULL, min, max, &a, 1, nullable,
                       nullable || t->node[a].plain);
}

Term term_loop(TermTable *t, bool nullable)
{
    if (t->n >= TERM_LIMIT)
        return term_fail(t, "the pattern needs too many states");
    return add_node(t, &(TermNode){.kind = TERM_K_LOOP, .nullable = nullable});
}

/* Whether a term may be at another before a byte is taken. */
static bool begins_with(const TermTable *t, Term a, Term loop, int depth)
{
    const TermNode *node = &t->node[a];
    if (a == loop || depth > TERM_DEPTH)
        return true;
    bool first = node->kind == TERM_K_CAT && !t->node[node->list[0]].nullable;
    for (uint32_t i = 0; node->kind != TERM_K_LANGUAGE && i < (first ? 1 : node->n); i++)
        if (begins_with(t, node->list[i], loop, depth + 1))
            return true;
    return false;
}

bool term_loop_is(TermTable *t, Term loop, Term is)
{
    if (t->failed || begins_with(t, is, loop, 0))
        return false;
    t->node[loop].list = arena_copy(t->arena, &is, sizeof is);
    t->node[loop].n = 1;
    return true;
}
