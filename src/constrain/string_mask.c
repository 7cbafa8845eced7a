#include "constrain/string_mask.h"

#include "base/heap.h"
#include "constrain/escape.h"

#include <stdlib.h>
#include <string.h>

enum { TEXT_UNKNOWN, TEXT_DEAD, TEXT_END, TEXT_FIRST };

enum { STAY_NODES = 3 }; /* fewer nodes are walked one by one */

void string_mask_free(StringMask *mask)
{
    if (!mask)
        return;
    free(mask->bits);
    free(mask->exit);
    free(mask->seen);
    free(mask->quote);
    free(mask->before);
    free(mask->characters);
    trie_free(&mask->tail);
    free(mask);
}

int text_dfa_init(TextDfa *dfa, Arena *arena)
{
    *dfa = (TextDfa){.arena = arena, .n = TEXT_FIRST};
    map_init(&dfa->ids, arena);
    map_init(&dfa->free, arena);
    dfa->at = arena_try(arena, (TEXT_STATES + TOKEN_BYTES + 2) * sizeof *dfa->at);
    return dfa->at ? CVN_OK : CVN_EMEM;
}

size_t text_dfa_bytes(const TextDfa *dfa)
{
    return (dfa->n - TEXT_FIRST) * sizeof(TextState);
}

/* What is being collected of one string mask. */
typedef struct Strings {
    const cvn_vocabulary *v;
    TermTable *terms;
    TextDfa *dfa;
    const StringMask *base; /* of strings of which nothing is asked; NULL while that is made */
    bool canonical;         /* escape.h */
    bool raw;               /* no JSON string, but a text of the term … */
    bool tails;             /* … behind which another may follow */
    bool wide; /* most is as in strings of which nothing is asked: bits begin as theirs */
    StringMask *mask;
    uint32_t *seen;  /* of wide ones */
    TriePiece *tail; /* [n_tail] */
    size_t n_tail, room;
} Strings;

static uint32_t text_state_of(Strings *s, Term term, uint32_t escape, uint32_t depth)
{
    TextDfa *p = s->dfa;
    const uint32_t key[3] = {term, escape, s->raw};
    uint64_t *known = map_get(&p->ids, key, sizeof key);
    if (known)
        return (uint32_t)*known;
    uint32_t id = p->n < TEXT_STATES ? p->n++ : TEXT_STATES + depth;
    if (!p->at[id])
        p->at[id] = arena_alloc(p->arena, sizeof(TextState));
    *p->at[id] = (TextState){.term = term,
                             .escape = escape,
                             .raw = s->raw,
                             .ends = escape == 0 && term_is_nullable(s->terms, term),
                             .free = -1};
    if (id < TEXT_STATES)
        *map_put(&p->ids, key, sizeof key, NULL) = id;
    return id;
}

static uint32_t find_next(Strings *s, const TextState *at, unsigned char byte, uint32_t depth)
{
    Escaped escaped = {.state = 0, .n = 1, .byte = {byte}};
    if (at->raw) {
        int u = utf8_step((int)at->escape, byte);
        if (u < 0)
            return TEXT_DEAD;
        escaped.state = (uint32_t)u;
    } else if (!escape_step(at->escape, byte, s->canonical, &escaped)) {
        return TEXT_DEAD;
    }
    if (escaped.end)
        return term_is_nullable(s->terms, at->term) ? TEXT_END : TEXT_DEAD;
    Term term = at->term;
    for (int i = 0; i < escaped.n; i++)
        term = term_derivative(s->terms, term, escaped.byte[i]);
    bool alive = at->raw ? term_is_live(s->terms, term, (int)escaped.state)
                         : live_in_string(s->terms, term, escaped.state, s->canonical);
    return alive ? text_state_of(s, term, escaped.state, depth + 1) : TEXT_DEAD;
}

/* From a state at this depth of a walk. */
static inline uint32_t next_text_state(Strings *s, uint32_t from, unsigned char byte,
                                       uint32_t depth)
{
    TextState *at = s->dfa->at[from];
    uint32_t next = at->next[byte];
    if (next == TEXT_UNKNOWN) {
        next = find_next(s, at, byte, depth);
        if (next < TEXT_STATES)
            at->next[byte] = (uint16_t)next;
    }
    return next;
}

/* Terms that a term leads to, with where in a character. */
typedef struct Reached {
    Term term[FREE_STATES];
    uint8_t u[FREE_STATES];
    uint16_t slot[4 * FREE_STATES]; /* 1 + index, by hash */
    size_t n;
} Reached;

/* False where there is no room. */
static bool reach(Reached *r, Term term, int u)
{
    size_t i = (term * 8u + (unsigned)u) * 2654435761u % (4 * FREE_STATES);
    for (; r->slot[i]; i = (i + 1) % (4 * FREE_STATES))
        if (r->term[r->slot[i] - 1] == term && r->u[r->slot[i] - 1] == u)
            return true;
    if (r->n == FREE_STATES)
        return false;
    r->term[r->n] = term;
    r->u[r->n++] = (uint8_t)u;
    r->slot[i] = (uint16_t)r->n;
    return true;
}

static bool find_free(TermTable *t, Reached *r)
{
    for (size_t i = 0; i < r->n; i++)
        for (unsigned b = 0; b < 256; b++) {
            int u = utf8_step(r->u[i], (unsigned char)b);
            Term next = u < 0 ? TERM_ALL : term_derivative(t, r->term[i], (unsigned char)b);
            if (next == TERM_ALL || (next == r->term[i] && u == r->u[i]))
                continue;
            if (!term_is_live(t, next, u) || !reach(r, next, u))
                return false;
        }
    return !t->failed;
}

/* Whether a text of the term may begin with any other: it is one that may stand anywhere. */
static bool begins_anyhow(TermTable *t, Term term)
{
    TermNode node = t->node[term];
    for (uint32_t i = 0; node.kind == TERM_K_OR && i < node.n; i++)
        if (begins_anyhow(t, node.list[i]))
            return true;
    return node.kind == TERM_K_CAT && node.list[0] == TERM_ALL && term_is_live(t, node.list[1], 0);
}

/* Whether every text goes on from a term to some end: false where that would take long to find out. */
static bool is_free(Strings *s, Term term)
{
    TextDfa *p = s->dfa;
    if (term <= TERM_ALL)
        return term == TERM_ALL;
    uint64_t *known = map_get(&p->free, &term, sizeof term);
    if (known)
        return *known;
    Reached r = {.n = 0};
    reach(&r, term, 0);
    bool is = begins_anyhow(s->terms, term) || find_free(s->terms, &r);
    *map_put(&p->free, &term, sizeof term, NULL) = is;
    for (size_t i = 1; i < r.n && is; i++)
        if (r.u[i] == 0)
            *map_put(&p->free, &r.term[i], sizeof term, NULL) = true;
    return is;
}

static bool state_is_free(Strings *s, TextState *at)
{
    if (at->free < 0)
        at->free = !at->raw && at->escape == 0 && s->base && is_free(s, at->term);
    return at->free;
}

static bool add_tail(Strings *s, uint32_t node)
{
    const Trie *trie = &s->v->trie;
    uint32_t *more = heap_more(s->mask->exit, s->mask->n_exits, sizeof *more);
    if (!more)
        return false;
    s->mask->exit = more;
    s->mask->exit[s->mask->n_exits++] = node;
    size_t depth = trie->node[node].depth + 1u;
    for (uint32_t i = node + 1; i < trie->node[node].after; i++)
        for (uint32_t k = 0; k < trie->node[i].n; k++) {
            cvn_token token = trie->token[trie->node[i].first + k];
            if (s->n_tail == s->room) {
                s->room = s->room * 2 + 64;
                TriePiece *tail = realloc(s->tail, s->room * sizeof *tail);
                if (!tail)
                    return false;
                s->tail = tail;
            }
            s->tail[s->n_tail++] =
                (TriePiece){s->v->piece[token] + depth, s->v->length[token] - depth, token};
        }
    return true;
}

/* Whether what follows within a character leads to a term, whatever it is. */
static bool leads_to(TermTable *t, Term from, int u, Term to)
{
    Term last[8] = {0};
    for (unsigned b = 0x80; b < 0xc0; b++) {
        int then = utf8_step(u, (unsigned char)b);
        Term next = then < 0 ? to : term_derivative(t, from, (unsigned char)b);
        if (then < 0 || (then && next == last[then]))
            continue;
        if (then ? !leads_to(t, next, then, to) : next != to)
            return false;
        last[then] = next;
    }
    return true;
}

/* Whether all that stands below a node leaves the term as it is. */
static bool stays(Strings *s, uint32_t node, TextState *at)
{
    const TrieBelow *below = &s->v->trie.below[node];
    Term term = at->term;
    for (unsigned b = s->raw ? 0 : 0x20; b < 128 && !at->stays_known; b++)
        if ((s->raw || (b != '"' && b != '\\')) &&
            term_derivative(s->terms, term, (unsigned char)b) == term)
            at->ascii[b >> 6] |= 1ull << (b & 63);
    at->stays_known = true;
    if (below->broken || (below->ascii[0] & ~at->ascii[0]) || (below->ascii[1] & ~at->ascii[1]))
        return false;
    for (uint64_t left = below->lead & ~at->known; left; left &= left - 1) {
        unsigned char b = (unsigned char)(TRIE_LEAD + __builtin_ctzll(left));
        at->known |= left & -left;
        if (leads_to(s->terms, term_derivative(s->terms, term, b), utf8_step(0, b), term))
            at->lead |= left & -left;
    }
    return !(below->lead & ~at->lead);
}

/* Whether more bytes than not lead to where tokens are as in strings of which nothing is asked. */
static bool is_wide(Strings *s, uint32_t begin)
{
    TextState *at = s->dfa->at[begin];
    int free_bytes = 0;
    for (unsigned b = 0x20; b < 128 && !s->raw && s->base && at->escape == 0; b++) {
        uint32_t next = next_text_state(s, begin, (unsigned char)b, 0);
        free_bytes += next >= TEXT_FIRST && state_is_free(s, s->dfa->at[next]);
    }
    return free_bytes > 64;
}

/* Takes over the exits of strings of which nothing is asked, without those of tokens that were looked at. */
static bool add_free_exits(Strings *s, const uint32_t *seen)
{
    const StringMask *base = s->base;
    uint32_t *exits =
        realloc(s->mask->exit, (s->mask->n_exits + base->n_exits + 1) * sizeof *exits);
    if (!exits)
        return false;
    s->mask->exit = exits;
    for (uint32_t i = 0; i < base->n_exits; i++) {
        cvn_token below = s->v->trie.token[s->v->trie.node[base->exit[i] + 1].first];
        if (!has_bit(seen, below))
            s->mask->exit[s->mask->n_exits++] = base->exit[i];
    }
    return true;
}

/* Of strings of which nothing is asked: how long a token is in them. */
static bool note_characters(Strings *s, uint32_t node, uint16_t characters, bool end)
{
    const Trie *trie = &s->v->trie;
    StringMask *mask = s->mask;
    uint32_t last = end ? tokens_end(trie, node) : trie->node[node].first + trie->node[node].n;
    for (uint32_t k = trie->node[node].first; k < last; k++)
        mask->characters[trie->token[k]] = characters;
    if (!end)
        return true;
    uint32_t *quote = heap_more(mask->quote, mask->n_quotes, sizeof *quote);
    mask->quote = quote ? quote : mask->quote;
    uint16_t *before = heap_more(mask->before, mask->n_quotes, sizeof *before);
    mask->before = before ? before : mask->before;
    if (!quote || !before)
        return false;
    quote[mask->n_quotes] = node;
    before[mask->n_quotes++] = characters;
    return true;
}

/* Of strings of which only the length is asked: what is too long, or ends too early, is taken away. */
static StringMask *make_length_mask(Strings *s, uint32_t min, uint32_t max)
{
    const StringMask *base = s->base;
    const Trie *trie = &s->v->trie;
    size_t words = CVN_MASK_WORDS(s->v->n) + 1;
    uint32_t *seen = calloc(words, sizeof *seen);
    s->mask = calloc(1, sizeof *s->mask);
    if (s->mask)
        s->mask->bits = calloc(words, sizeof *s->mask->bits);
    bool good = s->mask && s->mask->bits && seen;
    if (good)
        memcpy(s->mask->bits, base->bits, (words - 1) * sizeof *seen);
    for (uint32_t i = 0; i < base->n_quotes && good; i++)
        for (uint32_t k = trie->node[base->quote[i]].first;
             k < tokens_end(trie, base->quote[i]) &&
             (base->before[i] < min || base->before[i] > max);
             k++)
            set_bit(seen, trie->token[k]);
    for (cvn_token i = 0; i < s->v->n && good && max != TERM_MANY; i++)
        if (base->characters[i] > max)
            set_bit(seen, i);
    for (size_t i = 0; i < words && good; i++)
        s->mask->bits[i] &= ~seen[i];
    good = good && add_free_exits(s, seen);
    if (s->mask)
        s->mask->seen = seen;
    else
        free(seen);
    if (good)
        return s->mask;
    string_mask_free(s->mask);
    return NULL;
}

/* Tokens that go through a node and are not as in strings of which nothing is asked, as far as is known yet. */
static void take_away(Strings *s, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++) {
        cvn_token token = s->v->trie.token[k];
        if (s->wide)
            set_bit(s->seen, token);
        s->mask->bits[token / 32] &= ~(1u << (token % 32));
    }
}

/* Where a quote stands in a token, the string may end or not: of those from a state on, before which `depth` bytes are there. */
static bool take_quotes(Strings *s, uint32_t from, uint32_t to, uint32_t state, uint32_t depth)
{
    const Trie *trie = &s->v->trie;
    const StringMask *base = s->base;
    uint32_t low = 0;
    for (uint32_t high = base->n_quotes; low < high;) {
        uint32_t middle = (low + high) / 2;
        if (base->quote[middle] < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < base->n_quotes && base->quote[low] < to; low++) {
        uint32_t quote = base->quote[low], at = state, last = tokens_end(trie, quote);
        const char *text = s->v->piece[trie->token[trie->node[quote].first]];
        for (uint32_t d = depth; d < trie->node[quote].depth; d++)
            at = next_text_state(s, at, (unsigned char)text[d], d);
        if (!s->dfa->at[at]->ends)
            take_away(s, trie->node[quote].first, last);
        else if (!s->wide && trie->node[quote].after > quote + 1 && !add_tail(s, quote))
            return false;
    }
    return true;
}

/* All that goes through a node from a free state on. */
static bool take_free(Strings *s, uint32_t node, uint32_t state)
{
    const Trie *trie = &s->v->trie;
    for (uint32_t k = trie->node[node].first; k < tokens_end(trie, node) && !s->wide; k++)
        if (has_bit(s->base->bits, trie->token[k]))
            set_bit(s->mask->bits, trie->token[k]);
    return take_quotes(s, node + 1, trie->node[node].after, state, trie->node[node].depth + 1u);
}

static bool walk_tokens(Strings *s, uint32_t begin)
{
    const Trie *trie = &s->v->trie;
    uint32_t at[TOKEN_BYTES + 1] = {begin};
    uint16_t characters[TOKEN_BYTES + 1] = {0};
    bool first = !s->base, plain = s->dfa->at[begin]->escape == 0;
    for (uint32_t i = 0; i < trie->n_nodes;) {
        const TrieNode *node = &trie->node[i];
        uint32_t next = next_text_state(s, at[node->depth], node->byte, node->depth);
        if (next == TEXT_DEAD && !s->wide) {
            i = node->after;
            continue;
        }
        uint32_t last = tokens_end(trie, i);
        if (first && next != TEXT_DEAD) {
            bool begins = next != TEXT_END && s->dfa->at[at[node->depth]]->escape == 0;
            characters[node->depth + 1] = (uint16_t)(characters[node->depth] + begins);
            if (!note_characters(s, i, characters[node->depth + 1], next == TEXT_END))
                return false;
        }
        if (next < TEXT_FIRST) {
            if (s->wide)
                take_away(s, node->first, last);
            for (uint32_t k = 0; k < node->n && next == TEXT_END; k++)
                set_bit(s->mask->bits, trie->token[node->first + k]);
            if (next == TEXT_END && node->after > i + 1 && !add_tail(s, i))
                return false;
            i = node->after;
            continue;
        }
        TextState *state = s->dfa->at[next];
        at[node->depth + 1] = next;
        if (node->after - i >= STAY_NODES && state->escape == 0 && !first) {
            bool free_state = plain && state_is_free(s, state);
            if (free_state && !take_free(s, i, next))
                return false;
            bool all = !free_state && !(s->tails && state->ends) && stays(s, i, state);
            for (uint32_t k = node->first; k < last && all; k++)
                set_bit(s->mask->bits, trie->token[k]);
            if (all && s->wide)
                for (uint32_t k = node->first; k < last; k++)
                    set_bit(s->seen, trie->token[k]);
            if (free_state || all) {
                i = node->after;
                continue;
            }
        }
        if (s->wide)
            take_away(s, node->first, node->first + node->n);
        for (uint32_t k = 0; k < node->n; k++)
            set_bit(s->mask->bits, trie->token[node->first + k]);
        s->mask->no_tails = s->n_tail > 4 * (size_t)s->v->n;
        if (s->tails && state->ends && node->after > i + 1 && !s->mask->no_tails && !add_tail(s, i))
            return false;
        i++;
    }
    return true;
}

/* A walk through the vocabulary; where most is as in strings of which nothing is asked, only through what is not. */
static StringMask *make_string_mask(Strings *s, Term term, uint32_t escape)
{
    const Trie *trie = &s->v->trie;
    size_t words = CVN_MASK_WORDS(s->v->n) + 1;
    uint32_t begin = text_state_of(s, term, escape, 0);
    bool all = state_is_free(s, s->dfa->at[begin]);
    s->wide = all || is_wide(s, begin);
    s->seen = calloc(words, sizeof *s->seen);
    s->mask = calloc(1, sizeof *s->mask);
    if (s->mask)
        s->mask->bits = calloc(words, sizeof *s->mask->bits);
    bool good = s->mask && s->mask->bits && s->seen;
    if (good && !s->base)
        good = (s->mask->characters = calloc((size_t)s->v->n + 1, sizeof(uint16_t))) != NULL;
    if (good && s->wide)
        memcpy(s->mask->bits, s->base->bits, (words - 1) * sizeof *s->seen);
    if (good)
        good = all ? take_quotes(s, 0, trie->n_nodes, begin, 0) : walk_tokens(s, begin);
    good = good && (!s->wide || add_free_exits(s, s->seen)) &&
           trie_make(&s->mask->tail, s->tail, s->n_tail);
    free(s->tail);
    if (s->mask && s->wide)
        s->mask->seen = s->seen;
    else
        free(s->seen);
    if (good)
        return s->mask;
    string_mask_free(s->mask);
    return NULL;
}

StringMask *string_mask_make(const cvn_vocabulary *v, TextDfa *dfa, TermTable *terms, Term term,
                             uint32_t escape, bool canonical, bool raw, bool tails)
{
    Strings s = {.v = v,
                 .terms = terms,
                 .dfa = dfa,
                 .base = v->free_text[canonical],
                 .canonical = canonical,
                 .raw = raw,
                 .tails = tails};
    TermNode node = terms->node[term];
    bool length =
        !raw && escape == 0 && node.kind == TERM_K_REP && node.list[0] == term_any_character(terms);
    return length ? make_length_mask(&s, node.min, node.max) : make_string_mask(&s, term, escape);
}

StringMask *string_mask_free_text(const cvn_vocabulary *vocabulary, bool canonical)
{
    Arena arena;
    TermTable terms;
    TextDfa dfa;
    StringMask *mask = NULL;
    if (arena_init(&arena, NULL))
        return NULL;
    terms_init(&terms, &arena);
    if (!text_dfa_init(&dfa, &arena))
        mask = string_mask_make(vocabulary, &dfa, &terms, TERM_ALL, 0, canonical, false, false);
    arena_free(&arena);
    return mask;
}
