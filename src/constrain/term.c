#include "constrain/term.h"

#include "base/heap.h"
#include "constrain/ids.h"
#include "text/utf8.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { UNKNOWN = -1 };
#define NOT_KNOWN UINT32_MAX

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

static Term fail(TermTable *t, const char *what)
{
    if (!t->failed)
        t->failed = what;
    return TERM_NONE;
}

/* The id of a node with this content. */
static Term intern(TermTable *t, TermKind kind, const ByteSet *set, uint32_t min, uint32_t max,
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
        return fail(t, "the pattern needs too many states");
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
    return intern(t, TERM_K_BYTES, set, 0, 0, NULL, 0, false, true);
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

static void count_work(TermTable *t, size_t n)
{
    t->work += n;
    if (t->work > TERM_WORK)
        fail(t,
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
    count_work(t, n);
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
        b = intern(t, TERM_K_CAT, NULL, 0, 0, list, 2, x->nullable && y->nullable,
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
    count_work(t, room);
    Term *all = malloc((room + !room) * sizeof *all);
    *whole = false;
    *out = all;
    if (!all)
        return fail(t, "no memory for the pattern");
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
        return fail(t, "no memory for the pattern");
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
            return fail(t, "no memory for the pattern");
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
        term = intern(t, TERM_K_OR, NULL, 0, 0, list, count, nullable, plain);
    free(list);
    return term;
}

Term term_or2(TermTable *t, Term a, Term b)
{
    return term_or(t, (Term[]){a, b}, 2);
}

Term term_and(TermTable *t, const Term *given, size_t n)
{
    bool whole;
    Term *list, term = TERM_ALL;
    size_t count = collect(t, TERM_K_AND, given, n, TERM_ALL, TERM_NONE, &list, &whole);
    if (t->failed || whole) {
        free(list);
        return TERM_NONE;
    }
    bool nullable = true;
    for (size_t i = 0; i < count; i++) {
        const TermNode *node = &t->node[list[i]];
        nullable = nullable && node->nullable;
        if (node->kind == TERM_K_NOT && ids_have(list, count, node->list[0]))
            whole = true; /* x and not x */
    }
    if (whole) {
        free(list);
        return TERM_NONE;
    }
    for (size_t i = 0; i < count; i++)
        if (list[i] == TERM_EMPTY) { /* the empty text, or nothing */
            free(list);
            return nullable ? TERM_EMPTY : TERM_NONE;
        }
    if (count == 1)
        term = list[0];
    else if (count)
        term = intern(t, TERM_K_AND, NULL, 0, 0, list, count, nullable, false);
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
    return intern(t, TERM_K_NOT, NULL, 0, 0, &a, 1, !t->node[a].nullable, false);
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
    return intern(t, TERM_K_REP, NULL, min, max, &a, 1, nullable, nullable || t->node[a].plain);
}

Term term_loop(TermTable *t, bool nullable)
{
    if (t->n >= TERM_LIMIT)
        return fail(t, "the pattern needs too many states");
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

static const Language *language_of(const TermNode *node)
{
    return (const Language *)(uintptr_t)(node->list[0] | (uint64_t)node->list[1] << 32);
}

/* What follows a text of a language. */
static Term after_text(TermTable *t, const Language *of, const char *text, size_t n)
{
    enum { STEPS = 100 }; /* that asking about a text counts as */
    Term list[LANGUAGE_TEXT + 2] = {(Term)(uintptr_t)of, (Term)((uint64_t)(uintptr_t)of >> 32)};
    count_work(t, STEPS);
    if (t->failed || !of->begins(of, text, n))
        return TERM_NONE;
    for (size_t i = 0; i < n; i++)
        list[2 + i] = (unsigned char)text[i];
    return intern(t, TERM_K_LANGUAGE, NULL, 0, 0, list, n + 2, of->has(of, text, n), true);
}

Term term_language(TermTable *t, const Language *of)
{
    return after_text(t, of, "", 0);
}

static Term derive_language(TermTable *t, const TermNode *node, unsigned char byte, ByteSet *same)
{
    const Language *of = language_of(node);
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
        return fail(t, "the pattern is nested too deeply");
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
            fail(t, "no memory for the pattern");
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

/* 0: between characters; 1, 2, 3: so many bytes are owed; 4, 5, 6, 7: after E0, ED, F0, F4. */
int utf8_step(int u, unsigned char byte)
{
    if (u == 0) {
        if (byte < 0x80)
            return 0;
        if (byte < 0xc2 || byte > 0xf4)
            return -1;
        return byte < 0xe0    ? 1
               : byte == 0xe0 ? 4
               : byte == 0xed ? 5
               : byte < 0xf0  ? 2
               : byte == 0xf0 ? 6
               : byte == 0xf4 ? 7
                              : 3;
    }
    static const unsigned char low[] = {0, 0x80, 0x80, 0x80, 0xa0, 0x80, 0x90, 0x80};
    static const unsigned char high[] = {0, 0xbf, 0xbf, 0xbf, 0xbf, 0x9f, 0xbf, 0x8f};
    static const signed char then[] = {0, 0, 1, 2, 1, 1, 2, 2};
    return byte >= low[u] && byte <= high[u] ? then[u] : -1;
}

typedef struct Search {
    Term term;
    uint8_t u;
    uint16_t byte; /* that is tried next */
} Search;

static int known(const TermTable *t, Term a, int u)
{
    const TermNode *node = &t->node[a];
    if (a == TERM_NONE || (node->alive[1] >> u & 1))
        return 0;
    if (a == TERM_ALL || (u == 0 && (node->plain || node->nullable)) || (node->alive[0] >> u & 1))
        return 1;
    return UNKNOWN;
}

/* Whether it is met for the first time in this search. */
static bool visit(TermTable *t, Term a, uint8_t u)
{
    TermNode *node = &t->node[a];
    if (node->search != t->searches)
        node->met = 0;
    node->search = t->searches;
    bool first = !(node->met >> u & 1);
    node->met |= (uint8_t)(1u << u);
    return first;
}

/* Depth first, until a text is found: then all on the way are alive. Where none is, all that was seen is dead. */
static bool search(TermTable *t, Term a, int u)
{
    Search *way = NULL, *seen = NULL;
    size_t depth = 0, n_seen = 0;
    bool found = false;
    Search next = {a, (uint8_t)u, 0};
    t->searches++;
    for (bool push = true; !found;) {
        if (push && visit(t, next.term, next.u)) {
            Search *longer = heap_more(way, depth, sizeof *way),
                   *more = heap_more(seen, n_seen, sizeof *seen);
            way = longer ? longer : way;
            seen = more ? more : seen;
            if (!longer || !more || n_seen == TERM_SEARCH) {
                fail(t, longer && more
                            ? "deciding whether the combined patterns match any text takes too long"
                            : "no memory for the pattern");
                break;
            }
            way[depth++] = next;
            seen[n_seen++] = next;
        }
        push = false;
        if (!depth || t->failed)
            break;
        Search *top = &way[depth - 1];
        Term last = TERM_NONE;
        for (; top->byte < 256 && !push && !found; top->byte++) {
            int then = utf8_step(top->u, (unsigned char)top->byte);
            if (then < 0)
                continue;
            Term term = term_derivative(t, top->term, (unsigned char)top->byte);
            int is = term == last && then == 0 ? 0 : known(t, term, then);
            last = then == 0 ? term : TERM_NONE;
            found = is == 1;
            push = is == UNKNOWN;
            next = (Search){term, (uint8_t)then, 0};
        }
        if (!push && !found)
            depth--;
    }
    for (size_t i = 0; i < depth && found; i++)
        t->node[way[i].term].alive[0] |= (uint8_t)(1u << way[i].u);
    for (size_t i = 0; i < n_seen && !found && !t->failed; i++)
        t->node[seen[i].term].alive[1] |= (uint8_t)(1u << seen[i].u);
    free(way);
    free(seen);
    return found;
}

#define NO_ROOM UINT32_MAX

/* Bytes that some text of a term needs at most; NO_ROOM: that is not easy to see. */
static uint32_t room_of(const TermTable *t, Term a, int depth)
{
    const TermNode *node = &t->node[a];
    uint32_t n = NO_ROOM, each;
    if (node->nullable)
        return 0;
    if (node->kind == TERM_K_BYTES || node->kind == TERM_K_LANGUAGE)
        return node->kind == TERM_K_BYTES ? 1 : language_of(node)->room;
    if (depth > TERM_DEPTH || (node->kind != TERM_K_CAT && node->kind != TERM_K_OR))
        return NO_ROOM;
    for (uint32_t i = 0; i < node->n; i++) {
        each = room_of(t, node->list[i], depth + 1);
        if (node->kind == TERM_K_OR)
            n = each < n ? each : n;
        else if (i == 0 || n == NO_ROOM || each == NO_ROOM)
            n = i == 0 || n != NO_ROOM ? each : n;
        else
            n += each < NO_ROOM / 2 && n < NO_ROOM / 2 ? each : NO_ROOM - 1 - n;
    }
    return n;
}

/* Whether two terms have a text in common because one asks for the length only, and some text of the other is short. */
static bool has_room(TermTable *t, Term a)
{
    const TermNode node = t->node[a];
    Term any = term_any_character(t);
    for (int i = 0; i < 2 && node.kind == TERM_K_AND && node.n == 2; i++) {
        const TermNode length = t->node[node.list[i]];
        if (length.kind == TERM_K_REP && length.list[0] == any && length.min <= 1 &&
            (length.min == 0 || !t->node[node.list[1 - i]].nullable)) {
            uint32_t room = room_of(t, node.list[1 - i], 0);
            return room != NO_ROOM && room <= length.max;
        }
    }
    return false;
}

bool term_is_live(TermTable *t, Term a, int u)
{
    int is = known(t, a, u);
    if (is == UNKNOWN && u == 0 && !t->failed && has_room(t, a)) {
        t->node[a].alive[0] |= 1;
        return true;
    }
    return is == UNKNOWN ? !t->failed && search(t, a, u) : is;
}

/* A range of code points whose characters have equally many bytes, as bytes: [low, high] agree in their first bytes, or
   go from the first to the last of what continues. */
typedef struct ByteRanges {
    int n;
    unsigned char low[4], high[4];
} ByteRanges;

/* Cuts [low, high] so that each piece is a product of ranges of bytes; calls `each` until it returns true. */
static bool each_ranges(uint32_t low, uint32_t high, bool (*each)(void *, const ByteRanges *),
                        void *data)
{
    static const uint32_t ends[] = {0x7f, 0x7ff, 0xd7ff, 0xdfff, 0xffff, 0x10ffff};
    while (low <= high) {
        uint32_t last = high;
        for (size_t i = 0; i < 6; i++)
            if (low <= ends[i] && last > ends[i])
                last = ends[i];
        if (low >= 0xd800 && low <= 0xdfff) {
            low = last + 1;
            continue;
        }
        for (int bits = 18; bits > 0;
             bits -= 6) { /* the parts below must be whole, or the parts above be equal */
            uint32_t mask = (1u << bits) - 1;
            if ((low & ~mask) == (last & ~mask))
                continue;
            if (low & mask)
                last = low | mask;
            else if ((last & mask) != mask)
                last = (last & ~mask) - 1;
        }
        ByteRanges ranges;
        ranges.n = utf8_put(low, ranges.low);
        utf8_put(last, ranges.high);
        if (each(data, &ranges))
            return true;
        if (last == 0x10ffff)
            return false;
        low = last + 1;
    }
    return false;
}

typedef struct Points {
    TermTable *t;
    Term *list;
    size_t n;
    Term term;
} Points;

static bool add_points(void *data, const ByteRanges *ranges)
{
    Points *p = data;
    Term term = TERM_EMPTY;
    for (int i = ranges->n; i-- > 0;)
        term = term_cat(p->t, term_range(p->t, ranges->low[i], ranges->high[i]), term);
    p->list = arena_more(p->t->arena, p->list, p->n, sizeof *p->list);
    p->list[p->n++] = term;
    return false;
}

Term term_points(TermTable *t, const uint32_t *range, size_t n_ranges)
{
    Points p = {.t = t};
    for (size_t i = 0; i < n_ranges; i++)
        each_ranges(range[2 * i], range[2 * i + 1], add_points, &p);
    return term_or(t, p.list, p.n);
}

Term term_any_character(TermTable *t)
{
    return term_points(t, (const uint32_t[]){0, 0x10ffff}, 1);
}

static bool alive_through(TermTable *t, Term a, const ByteRanges *ranges, int i)
{
    if (i == ranges->n)
        return term_is_live(t, a, 0);
    Term last = TERM_NONE;
    for (unsigned b = ranges->low[i]; b <= ranges->high[i]; b++) {
        Term next = term_derivative(t, a, (unsigned char)b);
        if (next != TERM_NONE && next != last && alive_through(t, next, ranges, i + 1))
            return true;
        last = next;
    }
    return false;
}

static bool is_alive_through(void *data, const ByteRanges *ranges)
{
    Points *p = data;
    return alive_through(p->t, p->term, ranges, 0);
}

bool term_is_live_between(TermTable *t, Term a, uint32_t low, uint32_t high)
{
    Points p = {.t = t, .term = a};
    return each_ranges(low, high, is_alive_through, &p);
}

typedef struct Words {
    TermTable *t;
    size_t n, most;
    const char **word;
    size_t *length;
    char text[TERM_WORD];
} Words;

static void add_words(Words *w, Term a, int u, size_t depth)
{
    if (w->n > w->most || w->t->failed)
        return;
    if (u == 0 && term_is_nullable(w->t, a)) {
        if (w->n < w->most) {
            w->word[w->n] = arena_stringn(w->t->arena, w->text, depth);
            w->length[w->n] = depth;
        }
        w->n++;
    }
    for (unsigned b = 0; b < 256 && w->n <= w->most; b++) {
        int then = utf8_step(u, (unsigned char)b);
        Term next = then < 0 ? TERM_NONE : term_derivative(w->t, a, (unsigned char)b);
        if (next == TERM_NONE || !term_is_live(w->t, next, then))
            continue;
        if (depth == TERM_WORD) {
            w->n = w->most + 1;
            return;
        }
        w->text[depth] = (char)b;
        add_words(w, next, then, depth + 1);
    }
}

size_t term_words(TermTable *t, Term a, size_t most, const char **word, size_t *length)
{
    Words w = {.t = t, .most = most, .word = word, .length = length};
    if (a == TERM_ALL)
        return most + 1;
    add_words(&w, a, 0, 0);
    return w.n;
}

/* Counting texts: TERM_TEXTS for a term that the count is within, of which there is no end. */
typedef struct Count {
    TermTable *t;
    Map known; /* (term, u) -> texts */
    int depth;
} Count;

static uint32_t count_texts(Count *c, Term a, int u)
{
    const uint32_t key[2] = {a, (uint32_t)u};
    bool added;
    uint64_t *known = map_put(&c->known, key, sizeof key, &added);
    if (!added)
        return (uint32_t)*known;
    *known = TERM_TEXTS;
    if (++c->depth > TERM_DEPTH || c->known.n > TERM_SEARCH)
        fail(c->t, "it has names that are too long or too many to count");
    uint32_t n = u == 0 && term_is_nullable(c->t, a);
    for (unsigned b = 0; b < 256 && n < TERM_TEXTS && !c->t->failed; b++) {
        int then = utf8_step(u, (unsigned char)b);
        Term next = then < 0 ? TERM_NONE : term_derivative(c->t, a, (unsigned char)b);
        if (next != TERM_NONE && term_is_live(c->t, next, then))
            n += count_texts(c, next, then);
    }
    c->depth--;
    *map_get(&c->known, key, sizeof key) = n = n < TERM_TEXTS ? n : TERM_TEXTS;
    return n;
}

uint32_t term_count(TermTable *t, Term a)
{
    Count c = {.t = t};
    map_init(&c.known, t->arena);
    return count_texts(&c, a, 0);
}
