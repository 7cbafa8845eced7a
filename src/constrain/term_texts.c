/* What texts a term has: whether any, which, how many; all of them UTF-8. */
#include "constrain/term_impl.h"

#include "base/heap.h"

#include <stdlib.h>

enum { UNKNOWN = -1 };

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
                term_fail(
                    t, longer && more
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
        return node->kind == TERM_K_BYTES ? 1 : term_language_of(node)->room;
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
        term_fail(c->t, "it has names that are too long or too many to count");
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
