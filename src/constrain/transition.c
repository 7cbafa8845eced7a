/*
 * The transitions of the automaton: by a byte a frame stays, becomes another, pushes others above itself, or is popped, and the frame
 * below goes on.
 *
 *     value of [1, 2     '['   array, first item     '1'   number 1 above array, after an item     ','   array, next item
 */
#include "constrain/automaton.h"
#include "constrain/escape.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static uint32_t seen_id(Automaton *m, const uint64_t *seen, size_t n_words)
{
    bool added;
    uint64_t *id = map_put(&m->seen.ids, seen, n_words * sizeof *seen, &added);
    if (added) {
        *id = m->seen.n;
        m->seen.bits = arena_more(&m->e.arena, m->seen.bits, m->seen.n, sizeof *m->seen.bits);
        m->seen.bits[m->seen.n++] =
            arena_copy(&m->e.arena, seen, (n_words + !n_words) * sizeof *seen);
    }
    return (uint32_t)*id;
}

static bool blank(const Automaton *m, unsigned char byte)
{
    return !m->compact && (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r');
}

/* Objects. */

static size_t seen_words(const Alphabet *a)
{
    return (a->n_names + 63) / 64;
}

/* The names that cannot come any more after this key. */
static uint32_t seen_after(Automaton *m, const Frame *object, uint32_t key)
{
    const Alphabet *a = m->e.solved.alphabet[object->b];
    size_t n = seen_words(a);
    uint64_t few[16], *seen = n <= 16 ? few : arena_array(&m->e.arena, n, sizeof *seen);
    memcpy(seen, m->seen.bits[object->c], n * sizeof *seen);
    if (!n)
        return object->c;
    if (key < a->n_names)
        seen[key >> 6] |= 1ull << (key & 63);
    for (uint32_t k = 0; k < a->n_names && m->e.spelling.in_order; k++)
        if (key >= a->n_names || a->rank[k] < a->rank[key])
            seen[k >> 6] |= 1ull << (k & 63);
    return seen_id(m, seen, n);
}

static ObjectKeys *keys_of(Automaton *m, uint32_t object)
{
    if (!m->frames.keys[object]) {
        const Alphabet *a = m->e.solved.alphabet[m->frames.frame[object].b];
        size_t n = a->n_names + a->n_classes;
        ObjectKeys *keys = arena_alloc(&m->e.arena, sizeof *keys);
        keys->allowed = arena_alloc(&m->e.arena, n + 1);
        memset(keys->allowed, -1, n + 1);
        keys->branch = arena_array(&m->e.arena, n + 1, sizeof *keys->branch);
        m->frames.keys[object] = keys;
    }
    return m->frames.keys[object];
}

/* What a member of this name leads to; NULL where it may not come. */
static const Branches *branches_of(Automaton *m, uint32_t object, uint32_t key)
{
    ObjectKeys *keys = keys_of(m, object);
    Frame f = m->frames.frame[object];
    if (keys->allowed[key] >= 0)
        return keys->branch[key];
    keys->allowed[key] = 0;
    const Alphabet *a = m->e.solved.alphabet[f.b];
    if (key < a->n_names && (m->seen.bits[f.c][key >> 6] >> (key & 63) & 1))
        return NULL;
    Branches *all = malloc(sizeof *all);
    if (!all) {
        solver_fail(&m->e, "out of memory");
        return NULL;
    }
    object_step(&m->e, f.a, f.b, key, all);
    size_t n = 0;
    uint32_t seen = seen_after(m, &f, key);
    for (size_t i = 0; i < all->n; i++)
        if (object_exists(&m->e, all->at[i].rest, f.b, m->seen.bits[seen]))
            all->at[n++] = all->at[i];
    all->n = n;
    if (n) {
        Branches *kept = arena_alloc(&m->e.arena, offsetof(Branches, at) + n * sizeof(Branch));
        memcpy(kept->at, all->at, n * sizeof(Branch));
        kept->n = n;
        keys->branch[key] = kept;
        keys->allowed[key] = 1;
    }
    free(all);
    return keys->branch[key];
}

/* The names of a class that may still come. */
static Term names_left(Automaton *m, uint32_t object, uint32_t key)
{
    TermTable *t = &m->e.terms;
    const Frame *f = &m->frames.frame[object];
    const Alphabet *a = m->e.solved.alphabet[f->b];
    Term term = a->class[key - a->n_names];
    if (f->used > 1 + TERM_NONE)
        term = term_and2(t, term, term_not(t, f->used - 1));
    return branches_of(m, object, key) && term_is_live(t, term, 0) ? term : TERM_NONE;
}

/* Whether one of the names of an alphabet from `from` to `to` may come; from n_names on, those of a class. */
static bool any_key(Automaton *m, uint32_t object, uint32_t from, uint32_t to)
{
    const uint32_t n_names = m->e.solved.alphabet[m->frames.frame[object].b]->n_names;
    for (uint32_t k = from; k < to; k++)
        if (k < n_names ? branches_of(m, object, k) != NULL : names_left(m, object, k) != TERM_NONE)
            return true;
    return false;
}

static uint32_t n_keys(const Automaton *m, uint32_t object)
{
    const Alphabet *a = m->e.solved.alphabet[m->frames.frame[object].b];
    return a->n_names + a->n_classes;
}

static void begin_name(ByteStep *w, uint32_t object)
{
    const Alphabet *a = w->m->e.solved.alphabet[w->m->frames.frame[object].b];
    const bool distinct = w->m->frames.frame[object].used;
    if (any_key(w->m, object, 0, a->n_names))
        automaton_add(w->m, w->out, &(Frame){.kind = FRAME_NAME, .b = a->n_names, .below = object});
    for (uint32_t k = a->n_names; k < a->n_names + a->n_classes; k++) {
        Term term = names_left(w->m, object, k);
        if (term != TERM_NONE)
            automaton_add(w->m, w->out,
                          &(Frame){.kind = FRAME_OTHER,
                                   .a = k,
                                   .b = term,
                                   .below = object,
                                   .used = distinct ? 1 + name_id(&w->m->e, "", 0) : 0});
    }
}

int automaton_name_byte(const Automaton *m, const Alphabet *a, uint32_t key, uint32_t depth)
{
    const JsonName *name = &m->e.names.name[a->name[key]];
    return depth < name->length ? (unsigned char)name->text[depth] : -1;
}

/* Narrows the names from f->a to f->b - 1 to those that go on with the byte. */
static void narrow(const Automaton *m, const Alphabet *a, Frame *f, unsigned char byte)
{
    uint32_t low = f->a, high = f->b;
    for (uint32_t end = f->b; low < end;) {
        uint32_t middle = (low + end) / 2;
        if (automaton_name_byte(m, a, middle, f->c) < byte)
            low = middle + 1;
        else
            end = middle;
    }
    for (uint32_t begin = low; begin < high;) {
        uint32_t middle = (begin + high) / 2;
        if (automaton_name_byte(m, a, middle, f->c) <= byte)
            begin = middle + 1;
        else
            high = middle;
    }
    f->a = low;
    f->b = high;
    f->c++;
}

static void step_name(ByteStep *w, const Frame *of)
{
    Automaton *m = w->m;
    const Alphabet *a = m->e.solved.alphabet[m->frames.frame[of->below].b];
    Escaped escaped;
    Frame f = *of;
    if (!escape_step(of->d, w->byte, m->e.spelling.canonical, &escaped))
        return;
    if (escaped.end) {
        if (automaton_name_byte(m, a, f.a, f.c) < 0 && branches_of(m, f.below, f.a))
            automaton_add(m, w->out, &(Frame){.kind = FRAME_COLON, .a = f.a, .below = f.below});
        return;
    }
    for (int i = 0; i < escaped.n && f.a < f.b; i++)
        narrow(m, a, &f, escaped.byte[i]);
    f.d = escaped.state;
    if (f.a < f.b && escape_is_plain(f.d) ? any_key(m, f.below, f.a, f.b) : false) {
        automaton_add(m, w->out, &f);
        return;
    }
    uint32_t low, high;
    for (uint32_t k = f.a; k < f.b && !escape_is_plain(f.d); k++) {
        const JsonName *name = &m->e.names.name[a->name[k]];
        bool follows = false;
        for (int part = 0; escape_points(f.d, part, m->e.spelling.canonical, &low, &high); part++)
            follows = follows || name_has_point(name->text + f.c, name->length - f.c, low, high);
        if (follows && branches_of(m, f.below, k)) {
            automaton_add(m, w->out, &f);
            return;
        }
    }
}

/* The characters of a string; read->end where its quote was read and it may end. False where it cannot go on. */
static bool step_characters(ByteStep *w, Term *term, uint32_t *escape, Escaped *read)
{
    if (!escape_step(*escape, w->byte, w->m->e.spelling.canonical, read))
        return false;
    if (read->end)
        return term_is_nullable(&w->m->e.terms, *term);
    for (int i = 0; i < read->n; i++)
        *term = term_derivative(&w->m->e.terms, *term, read->byte[i]);
    *escape = read->state;
    return live_in_string(&w->m->e.terms, *term, *escape, w->m->e.spelling.canonical);
}

/* A value has ended above this frame. */
static void add_below(ByteStep *w, uint32_t below, const Read *read)
{
    Automaton *m = w->m;
    Frame f = m->frames.frame[below];
    if (f.kind != FRAME_ITEM) {
        automaton_add_id(m, w->out, below);
        return;
    }
    /* A value of an array with unique items: what it is matters when another follows. */
    Frame array = m->frames.frame[f.below];
    automaton_add(m, w->out,
                  &(Frame){.kind = FRAME_ARRAY,
                           .a = array.a,
                           .b = f.a,
                           .c = read->length,
                           .d = AT_PENDING,
                           .below = array.below});
}

/* What is asked of the rest after an item whose text was read from f->b to f->c. */
static Formula after_item(ByteStep *w, const Frame *f)
{
    Arena *arena = &w->m->e.arena;
    size_t n = f->c - f->b;
    char *text = arena_alloc(arena, n + 1);
    const Read *at = w->before;
    while (at->length > f->c)
        at = at->before;
    for (; n; at = at->before)
        text[--n] = (char)at->byte;
    const JsonValue *value = json_tree(arena, text, f->c - f->b, NULL);
    return value ? array_after_unique(&w->m->e, f->a, f_const(&w->m->e, value)) : F_FALSE;
}

static void begin_value(ByteStep *w, Formula f, uint32_t below)
{
    Automaton *m = w->m;
    Solver *e = &m->e;
    Formula of;
    if (w->byte == '{' && (of = f_restrict(e, f, KIND_OBJECT)) != F_FALSE) {
        uint32_t alphabet = alphabet_of(e, of);
        size_t n = seen_words(e->solved.alphabet[alphabet]);
        uint32_t seen = seen_id(m, arena_array(&e->arena, n + 1, sizeof(uint64_t)), n);
        object_check_names(e, of, alphabet, TERM_NONE);
        if (object_exists(e, of, alphabet, m->seen.bits[seen]))
            automaton_add(
                m, w->out,
                &(Frame){.kind = FRAME_OBJECT,
                         .a = of,
                         .b = alphabet,
                         .c = seen,
                         .d = AT_FIRST,
                         .below = below,
                         .used = object_is_distinct(e, of, alphabet) ? 1 + TERM_NONE : 0});
    } else if (w->byte == '[' && (of = f_restrict(e, f, KIND_ARRAY)) != F_FALSE) {
        if (array_exists(e, of))
            automaton_add(m, w->out,
                          &(Frame){.kind = FRAME_ARRAY, .a = of, .d = AT_FIRST, .below = below});
    } else if (w->byte == '"' && (of = f_restrict(e, f, KIND_STRING)) != F_FALSE) {
        Term term = of == F_TRUE ? TERM_ALL : e->formulas.node[of].a;
        if (term_is_live(&e->terms, term, 0))
            automaton_add(m, w->out, &(Frame){.kind = FRAME_STRING, .a = term, .below = below});
    } else if (w->byte == '-' || (w->byte >= '0' && w->byte <= '9')) {
        if ((of = f_restrict(e, f, KIND_NUMBER)) != F_FALSE)
            automaton_step(w, automaton_frame(m, &(Frame){.kind = FRAME_NUMBER,
                                                          .a = of,
                                                          .b = name_id(e, "", 0),
                                                          .c = NUMBER_BEGIN,
                                                          .below = below}));
    }
    for (uint32_t i = 0; i < 3; i++)
        if (w->byte == (unsigned char)automaton_words[i][0] &&
            f_restrict(e, f, KIND_NULL << i) == F_TRUE)
            automaton_add(m, w->out, &(Frame){.kind = FRAME_WORD, .a = i, .b = 1, .below = below});
}

static void step_number(ByteStep *w, const Frame *f)
{
    Automaton *m = w->m;
    Solver *e = &m->e;
    NumberState place = number_step(e, f->a, f->c, w->byte);
    if (place == NUMBER_DEAD) {
        const JsonName *name = &e->names.name[f->b];
        if (number_can_end(f->c) &&
            (f->a == F_TRUE || number_is(e, f->a, name->text, name->length))) {
            FrameList popped = {0}, *out = w->out;
            w->out = &popped;
            add_below(w, f->below, w->before);
            w->out = out;
            for (uint32_t i = 0; i < popped.n; i++)
                automaton_step(w, popped.at[i]);
            free(popped.at);
        }
        return;
    }
    Frame next = *f;
    next.c = place;
    if (f->a != F_TRUE) {
        char text[NUMBER_TEXT + 1];
        size_t n = e->names.name[f->b].length;
        if (n >= NUMBER_TEXT)
            return;
        memcpy(text, e->names.name[f->b].text, n);
        text[n] = (char)w->byte;
        n = number_simplify(e, f->a, place, text, n + 1);
        if (!number_exists(e, f->a, place, text, n))
            return;
        next.b = name_id(e, text, n);
    }
    automaton_add(m, w->out, &next);
}

const Branches *automaton_array_branches(Automaton *m, Formula f)
{
    bool added;
    uint64_t *known = map_put(&m->arrays, &f, sizeof f, &added);
    if (!added)
        return (const Branches *)(uintptr_t)*known;
    *known = 0;
    Branches *all = malloc(sizeof *all);
    size_t n = 0;
    if (!all) {
        solver_fail(&m->e, "out of memory");
        return NULL;
    }
    array_step(&m->e, f, all);
    for (size_t i = 0; i < all->n; i++)
        if (array_exists(&m->e, all->at[i].rest))
            all->at[n++] = all->at[i];
    Branches *kept = NULL;
    if (n) {
        kept = arena_alloc(&m->e.arena, offsetof(Branches, at) + n * sizeof(Branch));
        kept->n = n;
        memcpy(kept->at, all->at, n * sizeof(Branch));
    }
    free(all);
    *map_get(&m->arrays, &f, sizeof f) = (uint64_t)(uintptr_t)kept;
    return kept;
}

static void step_array(ByteStep *w, const Frame *f)
{
    Automaton *m = w->m;
    if (w->byte == ']' && f->d != AT_NEXT) {
        if (array_can_end(&m->e, f->a))
            add_below(w, f->below, w->after);
        return;
    }
    if (f->d >= AT_AFTER && w->byte != ',')
        return;
    Formula rest = f->d == AT_PENDING ? after_item(w, f) : f->a;
    const Branches *branches = automaton_array_branches(m, rest);
    if (f->d >= AT_AFTER) {
        if (branches)
            automaton_add(
                m, w->out,
                &(Frame){.kind = FRAME_ARRAY, .a = rest, .d = AT_NEXT, .below = f->below});
        return;
    }
    for (size_t i = 0; branches && i < branches->n; i++) {
        uint32_t below = automaton_frame(m, &(Frame){.kind = FRAME_ARRAY,
                                                     .a = branches->at[i].rest,
                                                     .d = AT_AFTER,
                                                     .below = f->below});
        if (array_is_unique(&m->e, branches->at[i].rest))
            below = automaton_frame(m, &(Frame){.kind = FRAME_ITEM,
                                                .a = w->before ? w->before->length : 0,
                                                .below = below});
        begin_value(w, branches->at[i].value, below);
    }
}

static void step_object(ByteStep *w, uint32_t id, const Frame *f)
{
    Automaton *m = w->m;
    if (w->byte == '}' && f->d != AT_NEXT) {
        if (object_can_end(&m->e, f->a))
            add_below(w, f->below, w->after);
    } else if (f->d == AT_AFTER) {
        if (w->byte != ',')
            return;
        Frame next = *f;
        next.d = AT_NEXT;
        uint32_t object = automaton_frame(m, &next);
        if (any_key(m, object, 0, n_keys(m, object)))
            automaton_add_id(m, w->out, object);
    } else if (w->byte == '"') {
        begin_name(w, id);
    }
}

static void step_colon(ByteStep *w, const Frame *f)
{
    Automaton *m = w->m;
    const Branches *branches = branches_of(m, f->below, f->a);
    Frame object = m->frames.frame[f->below];
    uint32_t seen = seen_after(m, &object, f->a), used = object.used;
    if (f->used) {
        const JsonName *name = &m->e.names.name[f->used - 1];
        Term came = term_text(&m->e.terms, name->text, name->length);
        used = 1 + term_or2(&m->e.terms, used - 1, came);
    }
    for (size_t i = 0; branches && i < branches->n; i++) {
        if (f->used)
            object_check_names(&m->e, branches->at[i].rest, object.b, used - 1);
        uint32_t below = automaton_frame(m, &(Frame){.kind = FRAME_OBJECT,
                                                     .a = branches->at[i].rest,
                                                     .b = object.b,
                                                     .c = seen,
                                                     .d = AT_AFTER,
                                                     .below = object.below,
                                                     .used = used});
        automaton_add(m, w->out,
                      &(Frame){.kind = FRAME_VALUE, .a = branches->at[i].value, .below = below});
    }
}

/* Adds a frame that a grammar leads to, once in a round. */
static void meet(Automaton *m, FrameList *list, uint32_t id)
{
    if (m->frames.met[id] != m->frames.rounds)
        automaton_add_id(m, list, id);
    m->frames.met[id] = m->frames.rounds;
}

void automaton_expand(Automaton *m, uint32_t frame, FrameList *out)
{
    FrameList list = {0};
    m->frames.rounds++;
    meet(m, &list, frame);
    for (uint32_t i = 0; i < list.n && solver_work(&m->e, 1); i++) {
        Frame f = m->frames.frame[list.at[i]];
        const uint32_t *symbol = m->grammar.symbol + f.a;
        if (f.kind == FRAME_DONE) {
            automaton_add_id(m, out, list.at[i]);
            continue;
        }
        uint32_t what = *symbol >> SYMBOL_BITS, kind = *symbol & ((1 << SYMBOL_BITS) - 1),
                 below = f.below;
        if (kind != SYMBOL_END && symbol[1] != SYMBOL_END)
            below = automaton_frame(
                m, &(Frame){.kind = FRAME_PRODUCTION, .a = f.a + 1, .below = f.below});
        if (kind == SYMBOL_TERM)
            automaton_add(m, out, &(Frame){.kind = FRAME_TERM, .a = what, .below = below});
        if (kind == SYMBOL_END || (kind == SYMBOL_TERM && term_is_nullable(&m->e.terms, what)))
            meet(m, &list, below);
        const GrammarRule *rule = &m->grammar.rule[kind == SYMBOL_RULE ? what : 0];
        for (uint32_t k = 0; kind == SYMBOL_RULE && k < rule->n; k++)
            meet(m, &list,
                 automaton_frame(
                     m, &(Frame){.kind = FRAME_PRODUCTION, .a = rule->at[k], .below = below}));
    }
    free(list.at);
}

/* A name with the characters behind it that a byte has completed. */
static uint32_t longer_name(Solver *e, uint32_t id, const Escaped *read)
{
    const JsonName *name = &e->names.name[id];
    char *text = arena_alloc(&e->arena, name->length + sizeof read->byte);
    if (!read->n)
        return id;
    memcpy(text, name->text, name->length);
    memcpy(text + name->length, read->byte, (size_t)read->n);
    return name_id(e, text, name->length + (size_t)read->n);
}

void automaton_step(ByteStep *w, uint32_t id)
{
    Automaton *m = w->m;
    Frame f = m->frames.frame[id]; /* a copy: frames move when one is added */
    Escaped read;
    if (!solver_work(&m->e, 1))
        return;
    switch ((FrameKind)f.kind) {
    case FRAME_END:
    case FRAME_VALUE:
    case FRAME_OBJECT:
    case FRAME_ARRAY:
    case FRAME_COLON:
        if (blank(m, w->byte)) {
            automaton_add_id(m, w->out, id);
        } else if (f.kind == FRAME_VALUE) {
            begin_value(w, f.a, f.below);
        } else if (f.kind == FRAME_OBJECT) {
            step_object(w, id, &f);
        } else if (f.kind == FRAME_ARRAY) {
            step_array(w, &f);
        } else if (f.kind == FRAME_COLON && w->byte == ':') {
            step_colon(w, &f);
        }
        break;
    case FRAME_TERM: {
        int u = utf8_step((int)f.b, w->byte);
        f.a = term_derivative(&m->e.terms, f.a, w->byte);
        f.b = (uint32_t)u;
        if (u < 0 || !term_is_live(&m->e.terms, f.a, u))
            break;
        if (f.a != TERM_EMPTY)
            automaton_add(m, w->out, &f);
        if (u == 0 && term_is_nullable(&m->e.terms, f.a))
            automaton_expand(m, f.below, w->out);
        break;
    }
    case FRAME_DONE:
    case FRAME_PRODUCTION:
        break;
    case FRAME_WORD:
        if (w->byte != (unsigned char)automaton_words[f.a][f.b])
            break;
        f.b++;
        if (automaton_words[f.a][f.b])
            automaton_add(m, w->out, &f);
        else
            add_below(w, f.below, w->after);
        break;
    case FRAME_STRING:
        if (!step_characters(w, &f.a, &f.b, &read))
            break;
        if (read.end)
            add_below(w, f.below, w->after);
        else
            automaton_add(m, w->out, &f);
        break;
    case FRAME_NUMBER:
        step_number(w, &f);
        break;
    case FRAME_NAME:
        step_name(w, &f);
        break;
    case FRAME_OTHER:
        if (!step_characters(w, &f.b, &f.d, &read))
            break;
        f.used = f.used ? 1 + longer_name(&m->e, f.used - 1, &read) : 0;
        if (read.end)
            automaton_add(
                m, w->out,
                &(Frame){.kind = FRAME_COLON, .a = f.a, .below = f.below, .used = f.used});
        else
            automaton_add(m, w->out, &f);
        break;
    case FRAME_ITEM:
        break;
    }
}
