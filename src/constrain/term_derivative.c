/* What a term is after a byte. */
#include "constrain/term_impl.h"

#include <stdlib.h>
#include <string.h>

#define NOT_KNOWN UINT32_MAX

/* What follows a text of a language. */
static Term after_text(TermTable *t, const Language *of, const char *text, size_t n)
{
    enum { STEPS = 100 }; /* that asking about a text counts as */
    Term list[LANGUAGE_TEXT + 2] = {(Term)(uintptr_t)of, (Term)((uint64_t)(uintptr_t)of >> 32)};
    term_count_work(t, STEPS);
    if (t->failed || !of->begins(of, text, n))
        return TERM_NONE;
    for (size_t i = 0; i < n; i++)
        list[2 + i] = (unsigned char)text[i];
    return term_intern(t, TERM_K_LANGUAGE, NULL, 0, 0, list, n + 2, of->has(of, text, n), true);
}

Term term_language(TermTable *t, const Language *of)
{
    return after_text(t, of, "", 0);
}

static Term derive_language(TermTable *t, const TermNode *node, unsigned char byte, ByteSet *same)
{
    const Language *of = term_language_of(node);
    char text[LANGUAGE_TEXT + 1];
    size_t n = node->n - 2;
    ByteSet only = {{0}};
    set_add(&only, byte);
    for (int w = 0; w < 4; w++)
        same->bit[w] &= only.bit[w];
    for (size_t i = 0; i < n; i++)
        text[i] = (char)node->list[2 + i];
    text[n] = (char)byte;
    return n < LANGUAGE_TEXT ? after_text(t, of, text, n + 1) : TERM_NONE;
}

/* The derivative by a byte; *same is narrowed to bytes that all have this derivative. */
static Term derive(TermTable *t, Term a, unsigned char byte, ByteSet *same)
{
    TermNode node = t->node[a]; /* a copy: the nodes move when one is added */
    if (t->failed)
        return TERM_NONE;
    if (++t->depth > TERM_DEPTH) {
        t->depth--;
        return term_fail(t, "the pattern is nested too deeply");
    }
    Term result = TERM_NONE;
    switch ((TermKind)node.kind) {
    case TERM_K_NONE:
    case TERM_K_EMPTY:
        break;
    case TERM_K_ALL:
        result = TERM_ALL;
        break;
    case TERM_K_BYTES: {
        bool in = set_has(&node.set, byte);
        for (int w = 0; w < 4; w++)
            same->bit[w] &= in ? node.set.bit[w] : ~node.set.bit[w];
        result = in ? TERM_EMPTY : TERM_NONE;
        break;
    }
    case TERM_K_CAT:
        result = term_cat(t, derive(t, node.list[0], byte, same), node.list[1]);
        if (t->node[node.list[0]].nullable)
            result = term_or2(t, result, derive(t, node.list[1], byte, same));
        break;
    case TERM_K_OR:
    case TERM_K_AND: {
        Term *list = malloc(node.n * sizeof *list);
        size_t n = 0;
        bool dead = false;
        for (size_t i = 0; list && i < node.n && !dead; i++) {
            list[n++] = derive(t, node.list[i], byte, same);
            dead = node.kind == TERM_K_AND && list[n - 1] == TERM_NONE;
        }
        if (!list)
            term_fail(t, "no memory for the pattern");
        else
            result = node.kind == TERM_K_OR ? term_or(t, list, n) : term_and(t, list, n);
        free(list);
        break;
    }
    case TERM_K_NOT:
        result = term_not(t, derive(t, node.list[0], byte, same));
        break;
    case TERM_K_LOOP:
        result = derive(t, node.list[0], byte, same);
        break;
    case TERM_K_LANGUAGE:
        result = derive_language(t, &node, byte, same);
        break;
    case TERM_K_REP:
        result = term_cat(t, derive(t, node.list[0], byte, same),
                          term_rep(t, node.list[0], node.min ? node.min - 1 : 0,
                                   node.max == TERM_MANY ? TERM_MANY : node.max - 1));
        break;
    }
    t->depth--;
    return result;
}

Term term_derivative(TermTable *t, Term a, unsigned char byte)
{
    if (a <= TERM_ALL)
        return a == TERM_ALL ? TERM_ALL : TERM_NONE;
    if (!t->node[a].next) {
        Term *next = arena_array(t->arena, 256, sizeof *next);
        memset(next, 0xff, 256 * sizeof *next);
        t->node[a].next = next;
    }
    if (t->node[a].next[byte] == NOT_KNOWN) {
        ByteSet same = {{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX}};
        Term next = derive(t, a, byte, &same);
        if (t->failed)
            return TERM_NONE;
        for (unsigned b = 0; b < 256; b++)
            if (set_has(&same, (unsigned char)b))
                t->node[a].next[b] = next;
    }
    return t->node[a].next[byte];
}

Term term_after(TermTable *t, Term a, const char *text, size_t n)
{
    for (size_t i = 0; i < n && a != TERM_NONE; i++)
        a = term_derivative(t, a, (unsigned char)text[i]);
    return a;
}

bool term_is_nullable(const TermTable *t, Term a)
{
    return t->node[a].nullable;
}

bool term_matches(TermTable *t, Term a, const char *text, size_t n)
{
    return term_is_nullable(t, term_after(t, a, text, n));
}
