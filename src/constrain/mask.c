#include "constrain/mask.h"

#include "base/heap.h"
#include "constrain/escape.h"

#include <stdlib.h>
#include <string.h>

static void set_bit(uint32_t *bits, cvn_token token)
{
    bits[token / 32] |= 1u << (token % 32);
}

static bool has_bit(const uint32_t *bits, cvn_token token)
{
    return bits[token / 32] >> (token % 32) & 1;
}

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

int masks_init(Masks *masks, const cvn_vocabulary *vocabulary, cvn_err *err)
{
    *masks = (Masks){.vocabulary = vocabulary};
    if (arena_init(&masks->arena, err))
        return CVN_EMEM;
    map_init(&masks->strings, &masks->arena);
    map_init(&masks->numbers, &masks->arena);
    return CVN_OK;
}

void masks_free(Masks *masks)
{
    for (uint32_t i = 0; i < masks->n_strings; i++)
        string_mask_free(masks->string[i]);
    for (uint32_t i = 0; i < masks->n_numbers; i++) {
        free(masks->number[i]->list);
        free(masks->number[i]->exit);
        free(masks->number[i]);
    }
    for (uint32_t i = 0; i < masks->n_frames; i++)
        free(masks->frame[i].list);
    free(masks->string);
    free(masks->number);
    free(masks->frame);
    arena_free(&masks->arena);
    *masks = (Masks){0};
}

/* Where in a string a walk is. */
typedef struct Inside {
    Term term;
    uint32_t escape;     /* of raw text: u */
    uint16_t characters; /* that began */
} Inside;

/* The characters that leave a term as it is. */
typedef struct Stay {
    Term term;
    uint64_t ascii[2]; /* a bit for each */
    uint64_t lead,
        known; /* as TrieBelow has them: whether all that begin so do, and whether that is known */
} Stay;

enum { STAYS = 256, STAY_TOKENS = 4 }; /* fewer tokens are walked one by one */

/* What is being collected of one string mask. */
typedef struct Strings {
    const cvn_vocabulary *v;
    Terms *terms; /* NULL where nothing is asked */
    bool raw;     /* no JSON string, but a text of the term … */
    bool tails;   /* … behind which another may follow */
    StringMask *mask;
    TriePiece *tail; /* [n_tail] */
    size_t n_tail, room;
    Stay stay[STAYS]; /* by the term's low bits */
} Strings;

static bool add_tail(Strings *s, uint32_t node)
{
    const Trie *trie = &s->v->trie;
    uint32_t *more = realloc(s->mask->exit, (s->mask->n_exits + 1) * sizeof *more);
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

/* 1: goes on, 0: does not, 2: has ended. */
static int step_inside(const Strings *s, Inside *at, unsigned char byte)
{
    Escaped escaped = {.state = 0, .n = 1, .byte = {byte}};
    if (at->escape == 0 && byte >= 0x20 && byte < 0x80 &&
        (s->raw || (byte != '"' && byte != '\\'))) {
        at->characters++;
        at->term = term_next(s->terms, at->term, byte);
        return term_alive(s->terms, at->term, 0);
    }
    if (s->raw) {
        int u = utf8_step((int)at->escape, byte);
        if (u < 0)
            return 0;
        escaped.state = (uint32_t)u;
    } else if (!escape_step(at->escape, byte, &escaped)) {
        return 0;
    }
    if (at->escape == 0 && !escaped.end)
        at->characters++;
    if (escaped.end)
        return term_ends(s->terms, at->term) ? 2 : 0;
    for (int i = 0; i < escaped.n; i++)
        at->term = term_next(s->terms, at->term, escaped.byte[i]);
    at->escape = escaped.state;
    return s->raw ? term_alive(s->terms, at->term, (int)at->escape)
                  : alive_in_string(s->terms, at->term, at->escape);
}

static uint32_t tokens_end(const Trie *trie, uint32_t node)
{
    uint32_t after = trie->node[node].after;
    return after < trie->n_nodes ? trie->node[after].first : trie->n_tokens;
}

/* Whether what follows within a character leads to a term, whatever it is. */
static bool leads_to(Terms *t, Term from, int u, Term to)
{
    Term last[8] = {0};
    for (unsigned b = 0x80; b < 0xc0; b++) {
        int then = utf8_step(u, (unsigned char)b);
        Term next = then < 0 ? to : term_next(t, from, (unsigned char)b);
        if (then < 0 || (then && next == last[then]))
            continue;
        if (then ? !leads_to(t, next, then, to) : next != to)
            return false;
        last[then] = next;
    }
    return true;
}

/* Whether all that stands below a node leaves the term as it is. */
static bool stays(Strings *s, uint32_t node, Term term)
{
    const TrieBelow *below = &s->v->trie.below[node];
    Stay *stay = &s->stay[term % STAYS];
    if (stay->term != term) {
        *stay = (Stay){.term = term};
        for (unsigned b = s->raw ? 0 : 0x20; b < 128; b++)
            if ((s->raw || (b != '"' && b != '\\')) &&
                term_next(s->terms, term, (unsigned char)b) == term)
                stay->ascii[b >> 6] |= 1ull << (b & 63);
    }
    if (below->broken || (below->ascii[0] & ~stay->ascii[0]) || (below->ascii[1] & ~stay->ascii[1]))
        return false;
    for (uint64_t left = below->lead & ~stay->known; left; left &= left - 1) {
        unsigned char b = (unsigned char)(TRIE_LEAD + __builtin_ctzll(left));
        stay->known |= left & -left;
        if (leads_to(s->terms, term_next(s->terms, term, b), utf8_step(0, b), term))
            stay->lead |= left & -left;
    }
    return !(below->lead & ~stay->lead);
}

/* Whether more bytes than not lead to where nothing is asked any more. */
static bool is_wide(const Strings *s, Inside begin)
{
    int free_bytes = 0;
    for (int b = 0; b < 128 && !s->raw && begin.escape == 0; b++)
        free_bytes += term_next(s->terms, begin.term, (unsigned char)b) == TERM_ALL;
    return free_bytes > 64;
}

/* Takes over the exits of strings of which nothing is asked, without those of tokens that were looked at. */
static bool add_free_exits(Strings *s, const uint32_t *seen)
{
    const StringMask *base = s->v->free_text;
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
static bool note_characters(Strings *s, uint32_t node, const Inside *at, int step)
{
    const Trie *trie = &s->v->trie;
    StringMask *mask = s->mask;
    uint32_t end = step == 2 ? tokens_end(trie, node) : trie->node[node].first + trie->node[node].n;
    for (uint32_t k = trie->node[node].first; k < end; k++)
        mask->characters[trie->token[k]] = at->characters;
    if (step != 2)
        return true;
    uint32_t *quote = realloc(mask->quote, (mask->n_quotes + 1) * sizeof *quote);
    uint16_t *before = realloc(mask->before, (mask->n_quotes + 1) * sizeof *before);
    mask->quote = quote ? quote : mask->quote;
    mask->before = before ? before : mask->before;
    if (!quote || !before)
        return false;
    quote[mask->n_quotes] = node;
    before[mask->n_quotes++] = at->characters;
    return true;
}

/* Of strings of which only the length is asked: what is too long, or ends too early, is taken away. */
static StringMask *make_length_mask(Strings *s, uint32_t min, uint32_t max)
{
    const StringMask *base = s->v->free_text;
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

/* A walk through the vocabulary; where most is as in strings of which nothing is asked, only through what is not. */
static StringMask *make_string_mask(Strings *s, Inside begin)
{
    const Trie *trie = &s->v->trie;
    size_t words = CVN_MASK_WORDS(s->v->n) + 1;
    Inside at[TOKEN_BYTES + 1] = {begin};
    bool wide = s->v->free_text && is_wide(s, begin);
    uint32_t *seen = calloc(words, sizeof *seen);
    s->mask = calloc(1, sizeof *s->mask);
    if (s->mask)
        s->mask->bits = calloc(words, sizeof *s->mask->bits);
    bool good = s->mask && s->mask->bits && seen, base = !s->v->free_text;
    if (good && base)
        good = (s->mask->characters = calloc((size_t)s->v->n + 1, sizeof(uint16_t))) != NULL;
    if (good && wide)
        memcpy(s->mask->bits, s->v->free_text->bits, (words - 1) * sizeof *seen);
    for (uint32_t i = 0; i < trie->n_nodes && good;) {
        const TrieNode *node = &trie->node[i];
        Inside *next = &at[node->depth + 1];
        *next = at[node->depth];
        int step = step_inside(s, next, node->byte);
        if (base && step)
            good = note_characters(s, i, next, step);
        if (wide && step == 1 && next->term == TERM_ALL && next->escape == 0) {
            i = node->after;
            continue;
        }
        uint32_t last = tokens_end(trie, i), end = step == 1 ? node->first + node->n : last;
        if (!base && step == 1 && next->escape == 0 && last - node->first >= STAY_TOKENS &&
            !(s->tails && term_ends(s->terms, next->term)) && stays(s, i, next->term)) {
            for (uint32_t k = node->first; k < last; k++)
                set_bit(s->mask->bits, trie->token[k]);
            i = node->after;
            continue;
        }
        for (uint32_t k = node->first; wide && k < end; k++) {
            set_bit(seen, trie->token[k]);
            s->mask->bits[trie->token[k] / 32] &= ~(1u << (trie->token[k] % 32));
        }
        for (uint32_t k = 0; k < node->n && step; k++)
            set_bit(s->mask->bits, trie->token[node->first + k]);
        bool ends =
            step == 2 || (s->tails && step && next->escape == 0 && term_ends(s->terms, next->term));
        s->mask->no_tails = s->n_tail > 4 * (size_t)s->v->n;
        if (good && ends && node->after > i + 1 && !s->mask->no_tails)
            good = add_tail(s, i);
        i = step == 1 ? i + 1 : node->after;
    }
    good =
        good && (!wide || add_free_exits(s, seen)) && trie_make(&s->mask->tail, s->tail, s->n_tail);
    free(s->tail);
    if (s->mask && wide)
        s->mask->seen = seen;
    else
        free(seen);
    if (good)
        return s->mask;
    string_mask_free(s->mask);
    return NULL;
}

StringMask *string_mask_free_text(const cvn_vocabulary *vocabulary)
{
    Arena arena;
    Terms terms;
    if (arena_init(&arena, NULL))
        return NULL;
    terms_init(&terms, &arena);
    Strings s = {.v = vocabulary, .terms = &terms};
    StringMask *mask = make_string_mask(&s, (Inside){TERM_ALL, 0, 0});
    arena_free(&arena);
    return mask;
}

/* The term with the ends of repetitions that a token cannot reach taken away. */
static Term nearby(Terms *t, Term term, uint32_t reach)
{
    TermNode node = t->node[term];
    if (!node.plain)
        return term;
    if (node.kind == TERM_K_CAT && t->node[node.list[0]].kind == TERM_K_REP)
        return term_cat(t, nearby(t, node.list[0], reach), node.list[1]);
    if (node.kind != TERM_K_REP)
        return term;
    uint32_t min = node.min > reach ? reach + 1 : node.min,
             max = node.max > reach ? TERM_MANY : node.max;
    return term_rep(t, node.list[0], min, max);
}

static const StringMask *string_mask(Masks *masks, Machine *m, Term term, uint32_t escape, bool raw,
                                     bool tails)
{
    const cvn_vocabulary *v = masks->vocabulary;
    term = nearby(&m->e.terms, term, v->longest);
    if (!raw && escape == 0 &&
        (term == TERM_ALL ||
         term == term_rep(&m->e.terms, term_any_character(&m->e.terms), 0, TERM_MANY)))
        return v->free_text;
    uint32_t key[3] = {term, escape, (uint32_t)raw + (uint32_t)tails};
    uint64_t *known = map_get(&masks->strings, key, sizeof key);
    if (known)
        return masks->string[*known];
    Strings s = {.v = v, .terms = &m->e.terms, .raw = raw, .tails = tails};
    StringMask **more = realloc(masks->string, (masks->n_strings + 1) * sizeof(StringMask *));
    TermNode node = m->e.terms.node[term];
    bool length = !raw && escape == 0 && node.kind == TERM_K_REP &&
                  node.list[0] == term_any_character(&m->e.terms);
    StringMask *mask = NULL;
    if (more)
        mask = length ? make_length_mask(&s, node.min, node.max)
                      : make_string_mask(&s, (Inside){term, escape, 0});
    if (more)
        masks->string = more;
    if (!mask) {
        engine_fail(&m->e, "there is no memory for masks");
        return NULL;
    }
    masks->string[masks->n_strings] = mask;
    *map_put(&masks->strings, key, sizeof key, NULL) = masks->n_strings++;
    masks->bytes += CVN_MASK_WORDS(v->n) * sizeof(uint32_t);
    return mask;
}

/* Tokens that are found by a walk. */
typedef struct Found {
    cvn_token *list;
    uint32_t n, room;
} Found;

static void add_tokens(Engine *e, Found *found, const Trie *trie, const TrieNode *node)
{
    if (found->n + node->n > found->room) {
        uint32_t room = (found->n + node->n) * 2 + 64;
        cvn_token *more = realloc(found->list, room * sizeof *more);
        if (!more) {
            engine_fail(e, "there is no memory for masks");
            return;
        }
        found->list = more;
        found->room = room;
    }
    memcpy(found->list + found->n, trie->token + node->first, node->n * sizeof *found->list);
    found->n += node->n;
}

/* Tokens that go through a node, from the state before it. */
static void walk(Machine *m, const Trie *trie, uint32_t from, uint32_t to, uint32_t *at,
                 Found *found)
{
    for (uint32_t i = from; i < to && !m->e.failed[0];) {
        const TrieNode *node = &trie->node[i];
        uint32_t next = machine_next(m, at[node->depth], node->byte);
        if (next == STATE_DEAD) {
            i = node->after;
            continue;
        }
        at[node->depth + 1] = next;
        if (node->n)
            add_tokens(&m->e, found, trie, node);
        i++;
    }
}

/* All tokens but those of blanks alone, where these leave the state as it is, and those that begin with one of `but`. */
static void walk_all(Machine *m, const cvn_vocabulary *v, uint32_t state, bool blanks,
                     const char *but, Found *found)
{
    uint32_t at[TOKEN_BYTES + 1];
    const Trie *trie = &v->trie;
    for (int b = 0; b < 256 && !m->e.failed[0]; b++) {
        if (v->begin[b] == v->begin[b + 1] || (b && strchr(but, b)) ||
            machine_next(m, state, (unsigned char)b) == STATE_DEAD)
            continue;
        for (uint32_t i = v->begin[b]; i < v->begin[b + 1]; i++) {
            const TrieNode *node = &trie->node[v->node[i]];
            if (node->depth && !blanks)
                continue;
            at[node->depth] = state;
            walk(m, trie, v->node[i], node->after, at, found);
        }
    }
    for (uint32_t i = 0; i < trie->n_nodes && !blanks; i = trie->node[i].after)
        if (is_blank(trie->node[i].byte)) {
            at[0] = state;
            walk(m, trie, i, trie->node[i].after, at, found);
        }
}

/* What follows the quote of a string. */
static void walk_tails(Machine *m, const cvn_vocabulary *v, const StringMask *mask, uint32_t state,
                       Found *found)
{
    uint32_t at[TOKEN_BYTES + 1] = {state};
    walk(m, &mask->tail, 0, mask->tail.n_nodes, at, found);
    if (!mask->seen)
        return;
    uint32_t kept = found->n;
    walk(m, &v->free_text->tail, 0, v->free_text->tail.n_nodes, at, found);
    for (uint32_t i = kept; i < found->n; i++)
        if (!has_bit(mask->seen, found->list[i]))
            found->list[kept++] = found->list[i];
    found->n = kept;
}

/* Within an array of unique items, where what follows depends on all that was read: tokens through nodes side by side, from
   the state before their first byte. */
static void walk_from(Machine *m, const cvn_vocabulary *v, uint32_t from, uint32_t to,
                      uint32_t state, Found *found)
{
    uint32_t at[TOKEN_BYTES + 1] = {state}, k = from;
    uint16_t depth = v->trie.node[from].depth;
    while (!v->trie.node[k].n)
        k++;
    const char *text = v->piece[v->trie.token[v->trie.node[k].first]];
    for (uint16_t d = 0; d < depth; d++)
        at[d + 1] = machine_next(m, at[d], (unsigned char)text[d]);
    if (at[depth] != STATE_DEAD)
        walk(m, &v->trie, from, to, at, found);
}

/* A number, or, in an item, a value that may be one: then *f is that number, of which nothing is there. */
static bool begins_number(Machine *m, Frame *f, bool in_item)
{
    Engine *e = &m->e;
    if (f->kind != FRAME_VALUE || !in_item)
        return f->kind == FRAME_NUMBER;
    Formula of = f_restrict(e, f->a, KIND_NUMBER);
    *f = (Frame){.kind = FRAME_NUMBER, .a = of, .b = name_id(e, "", 0), .c = NUMBER_BEGIN};
    return of != F_FALSE;
}

/* The tails of names were tried without the name itself, which may not come again: that matters to tokens with another
   name in them, which begins and ends with quotes. */
static void keep_distinct(Machine *m, const cvn_vocabulary *v, uint32_t frame, Found *found)
{
    uint32_t begin = machine_state_of(m, frame), kept = 0;
    for (uint32_t i = 0; i < found->n; i++) {
        cvn_token token = found->list[i];
        const char *text = v->piece[token];
        uint32_t quotes = 0, state = begin;
        for (size_t k = 0; k < v->length[token]; k++)
            quotes += text[k] == '"';
        for (size_t k = 0; quotes > 2 && k < v->length[token] && state != STATE_DEAD; k++)
            state = machine_next(m, state, (unsigned char)text[k]);
        if (state != STATE_DEAD)
            found->list[kept++] = token;
    }
    found->n = kept;
}

/* A number that is being written, without a frame for each of its texts. */
static bool walk_number(Engine *e, const Trie *trie, const Frame *f, NumberMask *mask, Found *found)
{
    NumberPhase phase[TOKEN_BYTES + 1] = {(NumberPhase)f->c};
    char text[NUMBER_TEXT + TOKEN_BYTES + 1];
    size_t n = f->a == F_TRUE ? 0 : e->name[f->b].length;
    memcpy(text, n ? e->name[f->b].text : "", n);
    mask->ends = number_can_end(f->c) && number_is(e, f->a, text, n);
    for (uint32_t i = 0; i < trie->n_nodes && !e->failed[0];) {
        const TrieNode *node = &trie->node[i];
        size_t length = n + node->depth, d = node->depth;
        int next = number_step(phase[d], node->byte);
        bool goes_on = next >= 0;
        if (goes_on) {
            phase[d + 1] = (NumberPhase)next;
            text[length] = (char)node->byte;
            goes_on = f->a == F_TRUE || (length < NUMBER_TEXT &&
                                         number_exists(e, f->a, phase[d + 1], text, length + 1));
        } else if (d && number_can_end(phase[d]) && number_is(e, f->a, text, length)) {
            uint32_t *more = heap_more(mask->exit, mask->n_exits, sizeof *more);
            if (!more)
                return false;
            mask->exit = more;
            mask->exit[mask->n_exits++] = i;
        }
        if (goes_on && node->n)
            add_tokens(e, found, trie, node);
        i = goes_on ? i + 1 : node->after;
    }
    return true;
}

static const NumberMask *number_mask(Masks *masks, Machine *m, const Frame *f)
{
    const uint32_t key[3] = {f->a, f->a == F_TRUE ? 0 : f->b, f->c};
    uint64_t *known = map_get(&masks->numbers, key, sizeof key);
    if (known)
        return masks->number[*known];
    NumberMask *mask = calloc(1, sizeof *mask),
               **more = heap_more(masks->number, masks->n_numbers, sizeof *more);
    Found found = {0};
    masks->number = more ? more : masks->number;
    if (!mask || !more || !walk_number(&m->e, &masks->vocabulary->trie, f, mask, &found)) {
        free(mask);
        engine_fail(&m->e, "there is no memory for masks");
        return NULL;
    }
    mask->list = found.list;
    mask->n = found.n;
    masks->bytes += (mask->n + mask->n_exits) * sizeof *mask->list;
    masks->number[masks->n_numbers] = mask;
    *map_put(&masks->numbers, key, sizeof key, NULL) = masks->n_numbers++;
    return mask;
}

/* Of a string, a name or a term: returns what stays in it. `alone`: the state within an array of unique items, else dead. */
static const uint32_t *fill_string(Masks *masks, Machine *m, uint32_t id, uint32_t alone,
                                   Found *found)
{
    const cvn_vocabulary *v = masks->vocabulary;
    Frame f = m->frame[id];
    bool name = f.kind == FRAME_OTHER, raw = f.kind == FRAME_TERM,
         last = raw && m->frame[f.below].kind == FRAME_DONE;
    const StringMask *string =
        string_mask(masks, m, name ? f.b : f.a, name ? f.d : f.b, raw, raw && !last);
    if (!string || last)
        return string ? string->bits : NULL;
    if (raw && string->no_tails) {
        walk_all(m, v, machine_state_of(m, id), false, "", found);
        return string->bits;
    }
    for (uint32_t i = 0; i < string->n_exits && alone; i++)
        walk_from(m, v, string->exit[i] + 1, v->trie.node[string->exit[i]].after, alone, found);
    if (alone)
        return string->bits;
    const Frame colon = {.kind = FRAME_COLON, .a = f.a, .below = f.below};
    uint32_t behind = machine_state_of(m, name ? machine_frame(m, &colon) : f.below);
    walk_tails(m, v, string, behind, found);
    if (name && f.used)
        keep_distinct(m, v, id, found);
    return string->bits;
}

static FrameMask make_frame_mask(Masks *masks, Machine *m, uint32_t id, uint32_t state)
{
    const cvn_vocabulary *v = masks->vocabulary;
    Frame f = m->frame[id];
    FrameMask mask = {.known = true, .also = NO_FRAME};
    Found found = {0};
    bool in_item = m->in_item[id], blanks = !in_item && machine_takes_blanks(m, id);
    uint32_t begin = in_item                  ? machine_state_in(m, id, state)
                     : f.kind == FRAME_NUMBER ? machine_state_of(m, f.below)
                                              : machine_state_of(m, id);
    if (f.kind == FRAME_TERM || f.kind == FRAME_STRING || f.kind == FRAME_OTHER) {
        mask.bits = fill_string(masks, m, id, in_item ? begin : STATE_DEAD, &found);
    } else if (begins_number(m, &f, in_item)) {
        mask.number = number_mask(masks, m, &f);
        for (uint32_t i = 0; mask.number && i < mask.number->n_exits; i++) {
            uint32_t from = mask.number->exit[i], to = v->trie.node[from].after,
                     at[TOKEN_BYTES + 1];
            at[v->trie.node[from].depth] = begin;
            if (in_item)
                walk_from(m, v, from, to, begin, &found);
            else
                walk(m, &v->trie, from, to, at, &found);
        }
        if (in_item)
            walk_all(m, v, begin, false, "+-.0123456789Ee", &found);
        else if (mask.number && mask.number->ends)
            mask.also = f.below;
    } else {
        mask.bits = blanks ? v->blank : NULL;
        walk_all(m, v, begin, blanks, "", &found);
    }
    mask.list = found.list;
    mask.n = found.n;
    return mask;
}

static void add_mask(const Masks *masks, const FrameMask *mask, uint32_t *bits)
{
    size_t words = CVN_MASK_WORDS(masks->vocabulary->n);
    for (size_t i = 0; i < words && mask->bits; i++)
        bits[i] |= mask->bits[i];
    for (uint32_t i = 0; i < mask->n; i++)
        set_bit(bits, mask->list[i]);
    for (uint32_t i = 0; mask->number && i < mask->number->n; i++)
        set_bit(bits, mask->number->list[i]);
}

static bool room_for_frame(Masks *masks, uint32_t id)
{
    if (id < masks->n_frames)
        return true;
    uint32_t n = id + id / 2 + 64;
    FrameMask *more = realloc(masks->frame, n * sizeof *more);
    if (!more)
        return false;
    memset(more + masks->n_frames, 0, (n - masks->n_frames) * sizeof *more);
    masks->frame = more;
    masks->n_frames = n;
    return true;
}

/* Adds the tokens of a frame; returns another whose tokens come with them, or NO_FRAME. */
static uint32_t fill_frame(Masks *masks, Machine *m, uint32_t id, uint32_t state, uint32_t *bits)
{
    bool keeps = !m->in_item[id];
    if (keeps && !room_for_frame(masks, id)) {
        engine_fail(&m->e, "there is no memory for masks");
        return NO_FRAME;
    }
    if (keeps && masks->frame[id].known) {
        add_mask(masks, &masks->frame[id], bits);
        return masks->frame[id].also;
    }
    if (!machine_look_ahead(m))
        return NO_FRAME;
    FrameMask mask = make_frame_mask(masks, m, id, state);
    machine_look_back(m);
    add_mask(masks, &mask, bits);
    if (keeps && !m->e.failed[0]) {
        masks->frame[id] = mask;
        masks->bytes += mask.n * sizeof *mask.list;
    } else {
        free(mask.list);
    }
    return mask.also;
}

void masks_fill(Masks *masks, Machine *m, uint32_t state, uint32_t *bits)
{
    const uint32_t *frame = m->state[state].frame;
    uint32_t n = m->state[state].n;
    const cvn_vocabulary *v = masks->vocabulary;
    memset(bits, 0, CVN_MASK_WORDS(v->n) * sizeof *bits);
    if (masks->bytes > MASK_BYTES) {
        masks_free(masks);
        if (masks_init(masks, v, NULL))
            engine_fail(&m->e, "there is no memory for masks");
    }
    for (uint32_t i = 0; i < n && !m->e.failed[0]; i++)
        for (uint32_t id = frame[i], also; id != NO_FRAME && !m->e.failed[0]; id = also)
            also = fill_frame(masks, m, id, state, bits);
}
