#include "constrain/mask.h"

#include "base/heap.h"

#include <stdlib.h>
#include <string.h>

int masks_init(Masks *masks, const cvn_vocabulary *vocabulary, cvn_err *err)
{
    *masks = (Masks){.vocabulary = vocabulary};
    if (arena_init(&masks->arena, err))
        return CVN_EMEM;
    map_init(&masks->strings, &masks->arena);
    map_init(&masks->numbers, &masks->arena);
    return text_dfa_init(&masks->dfa, &masks->arena);
}

static void free_frame_mask(FrameMask *mask)
{
    free(mask->list);
    free(mask->named);
    trie_free(&mask->left);
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
    for (uint32_t i = 0; i < masks->n_frames; i++) {
        free_frame_mask(&masks->frame[i]);
    }
    free(masks->string);
    free(masks->number);
    free(masks->frame);
    arena_free(&masks->arena);
    *masks = (Masks){0};
}

/* The term with the ends of repetitions that a token cannot reach taken away. */
static Term nearby(TermTable *t, Term term, uint32_t reach)
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

static const StringMask *string_mask(Masks *masks, Automaton *m, Term term, uint32_t escape,
                                     bool raw, bool tails)
{
    const cvn_vocabulary *v = masks->vocabulary;
    term = nearby(&m->e.terms, term, v->longest);
    if (!raw && escape == 0 &&
        (term == TERM_ALL ||
         term == term_rep(&m->e.terms, term_any_character(&m->e.terms), 0, TERM_MANY)))
        return v->free_text[m->e.spelling.canonical];
    uint32_t key[3] = {term, escape, (uint32_t)raw + (uint32_t)tails};
    uint64_t *known = map_get(&masks->strings, key, sizeof key);
    if (known)
        return masks->string[*known];
    StringMask **more = heap_more(masks->string, masks->n_strings, sizeof(StringMask *));
    StringMask *mask = NULL;
    size_t before = text_dfa_bytes(&masks->dfa);
    if (more) {
        masks->string = more;
        mask = string_mask_make(v, &masks->dfa, &m->e.terms, term, escape, m->e.spelling.canonical,
                                raw, tails);
    }
    if (!mask) {
        solver_fail(&m->e, "no memory for masks");
        return NULL;
    }
    masks->string[masks->n_strings] = mask;
    *map_put(&masks->strings, key, sizeof key, NULL) = masks->n_strings++;
    masks->bytes += CVN_MASK_WORDS(v->n) * sizeof(uint32_t) + text_dfa_bytes(&masks->dfa) - before;
    return mask;
}

/* Tokens that are found by a walk. */
typedef struct Found {
    cvn_token *list;
    uint32_t n, room;
} Found;

static void add_tokens(Solver *e, Found *found, const Trie *trie, const TrieNode *node)
{
    if (!node->n)
        return;
    if (found->n + node->n > found->room) {
        uint32_t room = (found->n + node->n) * 2 + 64;
        cvn_token *more = realloc(found->list, room * sizeof *more);
        if (!more) {
            solver_fail(e, "no memory for masks");
            return;
        }
        found->list = more;
        found->room = room;
    }
    memcpy(found->list + found->n, trie->token + node->first, node->n * sizeof *found->list);
    found->n += node->n;
}

/* What a walk finds. */
typedef struct Walked {
    Found *in;   /* tokens that may come */
    Found *left; /* those that go on behind the whole value: of JSON, else NULL */
} Walked;

/* Whether a comma or a bracket stands behind the whole value: what it leads to is not known here, but where the value is an item. */
static bool leaves(const Automaton *m, uint32_t state, unsigned char byte, const Walked *w)
{
    return w->left && (byte == ',' || byte == ']') && automaton_at(m, state)->can_end;
}

/* Tokens that go through a node, from the state before it. */
static void walk(Automaton *m, const Trie *trie, uint32_t from, uint32_t to, uint32_t *at,
                 const Walked *w)
{
    for (uint32_t i = from; i < to && !m->e.failed[0];) {
        const TrieNode *node = &trie->node[i];
        if (leaves(m, at[node->depth], node->byte, w)) {
            for (; i < node->after; i++)
                add_tokens(&m->e, w->left, trie, &trie->node[i]);
            continue;
        }
        uint32_t next = automaton_next(m, at[node->depth], node->byte);
        if (next == STATE_DEAD) {
            i = node->after;
            continue;
        }
        at[node->depth + 1] = next;
        add_tokens(&m->e, w->in, trie, node);
        i++;
    }
}

/* All tokens but those of blanks alone, where these leave the state as it is, and those that begin with one of `but` at once. */
static void walk_all(Automaton *m, const cvn_vocabulary *v, uint32_t state, bool blanks,
                     const char *but, const Walked *w)
{
    uint32_t at[TOKEN_BYTES + 1];
    const Trie *trie = &v->trie;
    for (int b = 0; b < 256 && !m->e.failed[0]; b++) {
        bool left_out = b && strchr(but, b);
        if (v->begin[b] == v->begin[b + 1] || (left_out && !blanks) ||
            (!leaves(m, state, (unsigned char)b, w) &&
             automaton_next(m, state, (unsigned char)b) == STATE_DEAD))
            continue;
        for (uint32_t i = v->begin[b]; i < v->begin[b + 1]; i++) {
            const TrieNode *node = &trie->node[v->node[i]];
            if (node->depth ? !blanks : left_out)
                continue;
            at[node->depth] = state;
            walk(m, trie, v->node[i], node->after, at, w);
        }
    }
    for (uint32_t i = 0; i < trie->n_nodes && !blanks; i = trie->node[i].after)
        if (is_blank(trie->node[i].byte)) {
            at[0] = state;
            walk(m, trie, i, trie->node[i].after, at, w);
        }
}

/* Takes those from the n-th on out again of which another mask has tails of its own. */
static void drop_seen(Found *found, uint32_t n, const uint32_t *seen)
{
    uint32_t kept = n;
    for (uint32_t i = n; i < found->n; i++)
        if (!has_bit(seen, found->list[i]))
            found->list[kept++] = found->list[i];
    found->n = kept;
}

/* What follows the quote of a string. */
static void walk_tails(Automaton *m, const cvn_vocabulary *v, const StringMask *mask,
                       uint32_t state, const Walked *w)
{
    uint32_t at[TOKEN_BYTES + 1] = {state};
    walk(m, &mask->tail, 0, mask->tail.n_nodes, at, w);
    if (!mask->seen)
        return;
    uint32_t in = w->in->n, left = w->left ? w->left->n : 0;
    const Trie *free_tail = &v->free_text[m->e.spelling.canonical]->tail;
    walk(m, free_tail, 0, free_tail->n_nodes, at, w);
    drop_seen(w->in, in, mask->seen);
    if (w->left)
        drop_seen(w->left, left, mask->seen);
}

/* Tokens through nodes side by side, from the state before their first byte. */
static void walk_from(Automaton *m, const cvn_vocabulary *v, uint32_t from, uint32_t to,
                      uint32_t state, const Walked *w)
{
    uint32_t at[TOKEN_BYTES + 1] = {state}, k = from;
    uint16_t depth = v->trie.node[from].depth;
    while (!v->trie.node[k].n)
        k++;
    const char *text = v->piece[v->trie.token[v->trie.node[k].first]];
    for (uint16_t d = 0; d < depth; d++)
        at[d + 1] = automaton_next(m, at[d], (unsigned char)text[d]);
    if (at[depth] != STATE_DEAD)
        walk(m, &v->trie, from, to, at, w);
}

/* A number, or where a value begins that may be one: then *f is that number, of which nothing is there. */
static bool begins_number(Automaton *m, Frame *f)
{
    Solver *e = &m->e;
    Formula value;
    if (f->kind == FRAME_NUMBER || !automaton_value_at(m, f, &value))
        return f->kind == FRAME_NUMBER;
    Formula of = f_restrict(e, value, KIND_NUMBER);
    if (of != F_FALSE)
        *f = (Frame){.kind = FRAME_NUMBER, .a = of, .b = name_id(e, "", 0), .c = NUMBER_BEGIN};
    return of != F_FALSE;
}

/* Of names that may not come again, the tails were tried without the name itself. That matters to tokens with another name in them, which
   begins and ends with quotes: they are put aside, to be tried in each frame. */
static void put_aside(Automaton *m, const cvn_vocabulary *v, Found *found, FrameMask *mask)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < found->n; i++) {
        cvn_token token = found->list[i], *more;
        uint32_t quotes = 0;
        for (size_t k = 0; k < v->length[token]; k++)
            quotes += v->piece[token][k] == '"';
        if (quotes <= 2) {
            found->list[kept++] = token;
        } else if ((more = heap_more(mask->named, mask->n_named, sizeof *more))) {
            mask->named = more;
            mask->named[mask->n_named++] = token;
        } else {
            solver_fail(&m->e, "no memory for masks");
        }
    }
    found->n = kept;
}

/* Adds those that were put aside and may come in a frame. */
static void fill_named(const cvn_vocabulary *v, Automaton *m, uint32_t frame, const FrameMask *mask,
                       uint32_t *bits)
{
    const uint32_t begin = mask->n_named ? automaton_state_of(m, frame) : STATE_DEAD;
    for (uint32_t i = 0; i < mask->n_named; i++) {
        const cvn_token token = mask->named[i];
        uint32_t state = begin;
        for (size_t k = 0; k < v->length[token] && state != STATE_DEAD; k++)
            state = automaton_next(m, state, (unsigned char)v->piece[token][k]);
        if (state != STATE_DEAD)
            set_bit(bits, token);
    }
}

/* The frame of which the mask is that of this one, but for what was put aside: names as if nothing of them were there. */
static uint32_t nameless(Automaton *m, uint32_t id)
{
    Frame f = m->frames.frame[id];
    if (f.kind != FRAME_OTHER || !f.used)
        return id;
    f.used = 1 + name_id(&m->e, "", 0);
    return automaton_frame(m, &f);
}

/* A number that is being written, without a frame for each of its texts. */
static bool walk_number(Solver *e, const Trie *trie, const Frame *f, NumberMask *mask, Found *found)
{
    NumberState state[TOKEN_BYTES + 1] = {f->c};
    char text[NUMBER_TEXT + TOKEN_BYTES + 1];
    size_t n = f->a == F_TRUE ? 0 : e->names.name[f->b].length;
    memcpy(text, n ? e->names.name[f->b].text : "", n);
    mask->ends = number_can_end(f->c) && number_is(e, f->a, text, n);
    const bool open[] = {number_is_open(e, f->a, false), number_is_open(e, f->a, true)};
    for (uint32_t i = 0; i < trie->n_nodes && !e->failed[0];) {
        const TrieNode *node = &trie->node[i];
        size_t length = n + node->depth, d = node->depth;
        NumberState next = number_step(e, f->a, state[d], node->byte);
        bool goes_on = next != NUMBER_DEAD;
        if (goes_on) {
            state[d + 1] = next;
            text[length] = (char)node->byte;
            goes_on = f->a == F_TRUE || (length < NUMBER_TEXT &&
                                         ((number_phase(next) < NUMBER_E && open[text[0] == '-']) ||
                                          number_exists(e, f->a, next, text, length + 1)));
        } else if (d && number_can_end(state[d]) && number_is(e, f->a, text, length)) {
            uint32_t *more = heap_more(mask->exit, mask->n_exits, sizeof *more);
            if (!more)
                return false;
            mask->exit = more;
            mask->exit[mask->n_exits++] = i;
        }
        if (goes_on)
            add_tokens(e, found, trie, node);
        i = goes_on ? i + 1 : node->after;
    }
    return true;
}

static const NumberMask *number_mask(Masks *masks, Automaton *m, const Frame *f)
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
        solver_fail(&m->e, "no memory for masks");
        return NULL;
    }
    mask->list = found.list;
    mask->n = found.n;
    masks->bytes += (mask->n + mask->n_exits) * sizeof *mask->list;
    masks->number[masks->n_numbers] = mask;
    *map_put(&masks->numbers, key, sizeof key, NULL) = masks->n_numbers++;
    return mask;
}

/* Of a string, a name or a term: returns what stays in it. */
static const uint32_t *fill_string(Masks *masks, Automaton *m, uint32_t id, const Walked *w)
{
    const cvn_vocabulary *v = masks->vocabulary;
    Frame f = m->frames.frame[id];
    bool name = f.kind == FRAME_OTHER, raw = f.kind == FRAME_TERM,
         last = raw && m->frames.frame[f.below].kind == FRAME_DONE;
    const StringMask *string =
        string_mask(masks, m, name ? f.b : f.a, name ? f.d : f.b, raw, raw && !last);
    if (!string || last)
        return string ? string->bits : NULL;
    if (raw && string->no_tails) {
        walk_all(m, v, automaton_state_of(m, id), false, "", w);
        return string->bits;
    }
    const Frame colon = {.kind = FRAME_COLON, .a = f.a, .below = f.below};
    uint32_t behind = automaton_state_of(m, name ? automaton_frame(m, &colon) : f.below);
    walk_tails(m, v, string, behind, w);
    return string->bits;
}

static void keep_left(Automaton *m, const cvn_vocabulary *v, const Found *left, Trie *out)
{
    TriePiece *piece = left->n ? malloc(left->n * sizeof *piece) : NULL;
    for (uint32_t i = 0; piece && i < left->n; i++)
        piece[i] = (TriePiece){v->piece[left->list[i]], v->length[left->list[i]], left->list[i]};
    if (left->n && (!piece || !trie_make(out, piece, left->n)))
        solver_fail(&m->e, "no memory for masks");
    free(piece);
    free(left->list);
}

static FrameMask make_frame_mask(Masks *masks, Automaton *m, uint32_t id)
{
    const cvn_vocabulary *v = masks->vocabulary;
    Frame f = m->frames.frame[id];
    FrameMask mask = {.known = true, .also = automaton_item_at(m, id)};
    Found found = {0}, left = {0};
    const Walked w = {&found, m->grammar.rule ? NULL : &left};
    bool number = f.kind == FRAME_NUMBER, blanks = automaton_takes_blanks(m, id);
    uint32_t begin = automaton_state_of(m, number ? f.below : id);
    mask.bits = blanks ? v->blank : NULL;
    if (mask.also != NO_FRAME) { /* an empty array is what is left */
        for (uint32_t i = v->begin[']']; i < v->begin[']' + 1]; i++)
            for (uint32_t k = v->node[i]; k < v->trie.node[v->node[i]].after; k++)
                add_tokens(&m->e, &left, &v->trie, &v->trie.node[k]);
    } else if (f.kind == FRAME_TERM || f.kind == FRAME_STRING || f.kind == FRAME_OTHER) {
        mask.bits = fill_string(masks, m, id, &w);
        if (f.kind == FRAME_OTHER && f.used)
            put_aside(m, v, &found, &mask);
    } else if (begins_number(m, &f)) {
        mask.number = number_mask(masks, m, &f);
        for (uint32_t i = 0; mask.number && i < mask.number->n_exits; i++) {
            uint32_t from = mask.number->exit[i], to = v->trie.node[from].after,
                     at[TOKEN_BYTES + 1];
            at[v->trie.node[from].depth] = begin;
            if (number)
                walk(m, &v->trie, from, to, at, &w);
            else
                walk_from(m, v, from, to, begin, &w);
        }
        if (!number)
            walk_all(m, v, begin, blanks, "+-.0123456789Ee", &w);
        else if (mask.number && mask.number->ends)
            mask.also = f.below;
    } else {
        walk_all(m, v, begin, blanks, "", &w);
    }
    mask.list = found.list;
    mask.n = found.n;
    keep_left(m, v, &left, &mask.left);
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

/* Adds the tokens of a frame, of which `id` is the nameless one; returns another whose tokens come with them, or NO_FRAME. */
static uint32_t fill_frame(Masks *masks, Automaton *m, uint32_t frame, uint32_t id, uint32_t *bits)
{
    if (!room_for_frame(masks, id > frame ? id : frame)) {
        solver_fail(&m->e, "no memory for masks");
        return NO_FRAME;
    }
    if (!masks->frame[id].known) {
        if (!automaton_look_ahead(m))
            return NO_FRAME;
        FrameMask mask = make_frame_mask(masks, m, id);
        automaton_look_back(m);
        if (m->e.failed[0]) {
            free_frame_mask(&mask);
            return NO_FRAME;
        }
        masks->frame[id] = mask;
        masks->bytes += (mask.n + mask.n_named) * sizeof *mask.list +
                        mask.left.n_nodes * sizeof *mask.left.node;
    }
    add_mask(masks, &masks->frame[id], bits);
    fill_named(masks->vocabulary, m, frame, &masks->frame[id], bits);
    if (id != frame)
        masks->frame[frame] = (FrameMask){.known = true, .also = NO_FRAME};
    return masks->frame[id].also;
}

/* Adds what is left and may come in a state, in which the value is an item. */
static void fill_left(Automaton *m, const Trie *left, uint32_t state, uint32_t *bits)
{
    uint32_t at[TOKEN_BYTES + 1] = {state};
    Found found = {0};
    if (!left->n_nodes || !automaton_look_ahead(m))
        return;
    walk(m, left, 0, left->n_nodes, at, &(Walked){&found, NULL});
    automaton_look_back(m);
    for (uint32_t i = 0; i < found.n; i++)
        set_bit(bits, found.list[i]);
    free(found.list);
}

bool masks_know(const Masks *masks, const Automaton *m, uint32_t state)
{
    for (uint32_t i = 0; i < m->states.state[state].n; i++)
        for (uint32_t id = m->states.state[state].frame[i]; id != NO_FRAME;
             id = masks->frame[id].also)
            if (m->frames.in_item[id] || id >= masks->n_frames || !masks->frame[id].known)
                return false;
    return true;
}

void masks_fill(Masks *masks, Automaton *m, uint32_t state, uint32_t *bits)
{
    uint32_t n = m->states.state[state].n;
    const cvn_vocabulary *v = masks->vocabulary;
    memset(bits, 0, CVN_MASK_WORDS(v->n) * sizeof *bits);
    if (masks->bytes > MASK_BYTES) {
        masks_free(masks);
        if (masks_init(masks, v, NULL))
            solver_fail(&m->e, "no memory for masks");
    }
    for (uint32_t i = 0; i < n && !m->e.failed[0]; i++) {
        uint32_t frame = m->states.state[state].frame[i], id = frame, also;
        bool in_item = m->frames.in_item[frame],
             item = in_item || automaton_item_at(m, frame) != NO_FRAME;
        if (in_item)
            id = automaton_alone(m, frame);
        for (; id != NO_FRAME && !m->e.failed[0]; id = also) {
            const uint32_t like = nameless(m, id);
            also = fill_frame(masks, m, id, like, bits);
            if (item && !m->e.failed[0])
                fill_left(m, &masks->frame[like].left, state, bits);
        }
    }
}
