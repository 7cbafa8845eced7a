#include "constrain/machine.h"

#include "base/heap.h"
#include "constrain/escape.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* Places in an object or array. */
enum { AT_FIRST, AT_NEXT, AT_AFTER, AT_PENDING };

#define NOT_KNOWN UINT32_MAX

static const char *const words[] = {"null", "false", "true"};

/* What a step works with. */
typedef struct Walk {
    Machine *m;
    unsigned char byte;
    const Read *before, *after; /* what was read without and with the byte */
    FrameList *out;
} Walk;

int machine_init(Machine *m, cvn_err *err)
{
    *m = (Machine){0};
    if (engine_init(&m->e, err))
        return CVN_EMEM;
    Map *const maps[] = {&m->frames, &m->states, &m->seens, &m->arrays};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        map_init(maps[i], &m->e.arena);
    m->state = arena_more(&m->e.arena, m->state, m->n_states, sizeof *m->state);
    m->n_states = 1;
    return CVN_OK;
}

void machine_free(Machine *m)
{
    free(m->scratch);
    engine_free(&m->e);
}

static bool is_pending(const Frame *f)
{
    return f->kind == FRAME_ARRAY && f->d == AT_PENDING;
}

uint32_t machine_frame(Machine *m, const Frame *frame)
{
    bool added;
    uint64_t *id = map_put(&m->frames, frame, sizeof *frame, &added);
    if (!added)
        return (uint32_t)*id;
    *id = m->n_frames;
    if (m->n_frames >= MACHINE_FRAMES) {
        engine_fail(&m->e, "the text and its schema need more than %d states", MACHINE_FRAMES);
        return 0;
    }
    m->frame = arena_more(&m->e.arena, m->frame, m->n_frames, sizeof *m->frame);
    m->keys = arena_more(&m->e.arena, m->keys, m->n_frames, sizeof *m->keys);
    m->keys[m->n_frames] = NULL;
    m->met = arena_more(&m->e.arena, m->met, m->n_frames, sizeof *m->met);
    m->met[m->n_frames] = 0;
    m->in_item = arena_more(&m->e.arena, m->in_item, m->n_frames, sizeof *m->in_item);
    m->in_item[m->n_frames] =
        frame->kind == FRAME_ITEM || is_pending(frame) || (m->n_frames && m->in_item[frame->below]);
    m->frame[m->n_frames] = *frame;
    return m->n_frames++;
}

static void add_id(Machine *m, FrameList *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->n && list->n < 16; i++)
        if (list->at[i] == id)
            return;
    if (list->n == list->room) {
        list->room = list->room ? list->room * 2 : 16;
        uint32_t *more =
            list->n < MACHINE_CONFIGURATIONS ? realloc(list->at, list->room * sizeof *more) : NULL;
        if (!more) {
            engine_fail(&m->e, "its alternatives multiply: more than %d ways to read the text",
                        MACHINE_CONFIGURATIONS);
            list->n = 0;
            return;
        }
        list->at = more;
    }
    list->at[list->n++] = id;
}

void machine_add(Machine *m, FrameList *list, const Frame *frame)
{
    add_id(m, list, machine_frame(m, frame));
}

static int by_id(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static bool frame_can_end(Machine *m, uint32_t id)
{
    Frame f = m->frame[id];
    if (f.kind == FRAME_END || f.kind == FRAME_DONE)
        return true;
    if (f.kind != FRAME_NUMBER || m->frame[f.below].kind != FRAME_END || !number_can_end(f.c))
        return false;
    return f.a == F_TRUE || number_is(&m->e, f.a, m->e.name[f.b].text, m->e.name[f.b].length);
}

uint32_t machine_state(Machine *m, FrameList *list, const Read *read)
{
    if (m->e.failed[0] || !list->n)
        return STATE_DEAD;
    if (list->n > 1)
        qsort(list->at, list->n, sizeof *list->at, by_id);
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (!n || list->at[n - 1] != list->at[i])
            list->at[n++] = list->at[i];
    list->n = n;
    bool added = true, in_item = false;
    for (uint32_t i = 0; i < n && read; i++)
        in_item = in_item || m->in_item[list->at[i]];
    read = in_item ? read : NULL;
    uint64_t *id = read ? NULL : map_put(&m->states, list->at, n * sizeof *list->at, &added);
    if (!added)
        return (uint32_t)*id;
    if (read && m->scratching) {
        if (m->n_scratch == m->scratch_room) {
            uint32_t room = m->scratch_room * 2 + 256;
            State *more = realloc(m->scratch, room * sizeof *more);
            if (!more)
                return engine_fail(&m->e, "there is no memory");
            m->scratch = more;
            m->scratch_room = room;
        }
        m->scratch[m->n_scratch] =
            (State){.n = n,
                    .frame = arena_copy(&m->scratch_arena, list->at, n * sizeof *list->at),
                    .read = read};
        return SCRATCH | m->n_scratch++;
    }
    if (m->n_states >= MACHINE_STATES) {
        engine_fail(&m->e, "the text and its schema need more than %d states", MACHINE_STATES);
        return STATE_DEAD;
    }
    if (id)
        *id = m->n_states;
    m->state = arena_more(&m->e.arena, m->state, m->n_states, sizeof *m->state);
    State *state = &m->state[m->n_states];
    *state = (State){
        .n = n, .frame = arena_copy(&m->e.arena, list->at, n * sizeof *list->at), .read = read};
    for (uint32_t i = 0; i < n && !state->can_end; i++)
        state->can_end = frame_can_end(m, list->at[i]);
    return m->n_states++;
}

static uint32_t seen_id(Machine *m, const uint64_t *seen, size_t n_words)
{
    bool added;
    uint64_t *id = map_put(&m->seens, seen, n_words * sizeof *seen, &added);
    if (added) {
        *id = m->n_seens;
        m->seen = arena_more(&m->e.arena, m->seen, m->n_seens, sizeof *m->seen);
        m->seen[m->n_seens++] = arena_copy(&m->e.arena, seen, (n_words + !n_words) * sizeof *seen);
    }
    return (uint32_t)*id;
}

static bool blank(const Machine *m, unsigned char byte)
{
    return !m->compact && (byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r');
}

/* Objects. */

static size_t seen_words(const Alphabet *a)
{
    return (a->n_names + 63) / 64;
}

/* The names that cannot come any more after this key. */
static uint32_t seen_after(Machine *m, const Frame *object, uint32_t key)
{
    const Alphabet *a = m->e.alphabet[object->b];
    size_t n = seen_words(a);
    uint64_t few[16], *seen = n <= 16 ? few : arena_array(&m->e.arena, n, sizeof *seen);
    memcpy(seen, m->seen[object->c], n * sizeof *seen);
    if (!n)
        return object->c;
    if (key < a->n_names)
        seen[key >> 6] |= 1ull << (key & 63);
    for (uint32_t k = 0; k < a->n_names && m->e.in_order; k++)
        if (key >= a->n_names || a->rank[k] < a->rank[key])
            seen[k >> 6] |= 1ull << (k & 63);
    return seen_id(m, seen, n);
}

static ObjectKeys *keys_of(Machine *m, uint32_t object)
{
    if (!m->keys[object]) {
        const Alphabet *a = m->e.alphabet[m->frame[object].b];
        size_t n = a->n_names + a->n_classes;
        ObjectKeys *keys = arena_alloc(&m->e.arena, sizeof *keys);
        keys->allowed = arena_alloc(&m->e.arena, n + 1);
        memset(keys->allowed, -1, n + 1);
        keys->branch = arena_array(&m->e.arena, n + 1, sizeof *keys->branch);
        m->keys[object] = keys;
    }
    return m->keys[object];
}

/* What a member of this name leads to; NULL where it may not come. */
static const Branches *branches_of(Machine *m, uint32_t object, uint32_t key)
{
    ObjectKeys *keys = keys_of(m, object);
    Frame f = m->frame[object];
    if (keys->allowed[key] >= 0)
        return keys->branch[key];
    keys->allowed[key] = 0;
    const Alphabet *a = m->e.alphabet[f.b];
    if (key < a->n_names && (m->seen[f.c][key >> 6] >> (key & 63) & 1))
        return NULL;
    Branches *all = malloc(sizeof *all);
    if (!all) {
        engine_fail(&m->e, "there is no memory");
        return NULL;
    }
    object_step(&m->e, f.a, f.b, key, all);
    size_t n = 0;
    uint32_t seen = seen_after(m, &f, key);
    for (size_t i = 0; i < all->n; i++)
        if (object_exists(&m->e, all->at[i].rest, f.b, m->seen[seen]))
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

static bool any_key(Machine *m, uint32_t object, uint32_t from, uint32_t to)
{
    for (uint32_t k = from; k < to; k++)
        if (branches_of(m, object, k))
            return true;
    return false;
}

static uint32_t n_keys(const Machine *m, uint32_t object)
{
    const Alphabet *a = m->e.alphabet[m->frame[object].b];
    return a->n_names + a->n_classes;
}

static void begin_name(Walk *w, uint32_t object)
{
    const Alphabet *a = w->m->e.alphabet[w->m->frame[object].b];
    if (any_key(w->m, object, 0, a->n_names))
        machine_add(w->m, w->out, &(Frame){.kind = FRAME_NAME, .b = a->n_names, .below = object});
    uint32_t used = w->m->frame[object].used;
    for (uint32_t k = a->n_names; k < a->n_names + a->n_classes; k++) {
        Term term = a->class[k - a->n_names];
        if (used)
            term = term_and2(&w->m->e.terms, term, term_not(&w->m->e.terms, used - 1));
        if (branches_of(w->m, object, k))
            machine_add(w->m, w->out,
                        &(Frame){.kind = FRAME_OTHER,
                                 .a = k,
                                 .b = term,
                                 .below = object,
                                 .used = used ? 1 + name_id(&w->m->e, "", 0) : 0});
    }
}

static int byte_at(const Machine *m, const Alphabet *a, uint32_t key, uint32_t depth)
{
    const JsonName *name = &m->e.name[a->name[key]];
    return depth < name->length ? (unsigned char)name->text[depth] : -1;
}

/* Narrows the names from f->a to f->b - 1 to those that go on with the byte. */
static void narrow(const Machine *m, const Alphabet *a, Frame *f, unsigned char byte)
{
    uint32_t low = f->a, high = f->b;
    for (uint32_t end = f->b; low < end;) {
        uint32_t middle = (low + end) / 2;
        if (byte_at(m, a, middle, f->c) < byte)
            low = middle + 1;
        else
            end = middle;
    }
    for (uint32_t begin = low; begin < high;) {
        uint32_t middle = (begin + high) / 2;
        if (byte_at(m, a, middle, f->c) <= byte)
            begin = middle + 1;
        else
            high = middle;
    }
    f->a = low;
    f->b = high;
    f->c++;
}

static void step_name(Walk *w, const Frame *of)
{
    Machine *m = w->m;
    const Alphabet *a = m->e.alphabet[m->frame[of->below].b];
    Escaped escaped;
    Frame f = *of;
    if (!escape_step(of->d, w->byte, &escaped))
        return;
    if (escaped.end) {
        if (byte_at(m, a, f.a, f.c) < 0 && branches_of(m, f.below, f.a))
            machine_add(m, w->out, &(Frame){.kind = FRAME_COLON, .a = f.a, .below = f.below});
        return;
    }
    for (int i = 0; i < escaped.n && f.a < f.b; i++)
        narrow(m, a, &f, escaped.byte[i]);
    f.d = escaped.state;
    if (f.a < f.b && escape_is_plain(f.d) ? any_key(m, f.below, f.a, f.b) : false) {
        machine_add(m, w->out, &f);
        return;
    }
    uint32_t low, high;
    for (uint32_t k = f.a; k < f.b && !escape_is_plain(f.d); k++) {
        const JsonName *name = &m->e.name[a->name[k]];
        bool follows = false;
        for (int part = 0; escape_points(f.d, part, &low, &high); part++)
            follows = follows || name_has_point(name->text + f.c, name->length - f.c, low, high);
        if (follows && branches_of(m, f.below, k)) {
            machine_add(m, w->out, &f);
            return;
        }
    }
}

/* The characters of a string; read->end where its quote was read and it may end. False where it cannot go on. */
static bool step_characters(Walk *w, Term *term, uint32_t *escape, Escaped *read)
{
    if (!escape_step(*escape, w->byte, read))
        return false;
    if (read->end)
        return term_ends(&w->m->e.terms, *term);
    for (int i = 0; i < read->n; i++)
        *term = term_next(&w->m->e.terms, *term, read->byte[i]);
    *escape = read->state;
    return alive_in_string(&w->m->e.terms, *term, *escape);
}

/* A value has ended above this frame. */
static void add_below(Walk *w, uint32_t below, const Read *read)
{
    Machine *m = w->m;
    Frame f = m->frame[below];
    if (f.kind != FRAME_ITEM) {
        add_id(m, w->out, below);
        return;
    }
    /* A value of an array with unique items: what it is matters when another follows. */
    Frame array = m->frame[f.below];
    machine_add(m, w->out,
                &(Frame){.kind = FRAME_ARRAY,
                         .a = array.a,
                         .b = f.a,
                         .c = read->length,
                         .d = AT_PENDING,
                         .below = array.below});
}

/* What is asked of the rest after an item whose text was read from f->b to f->c. */
static Formula after_item(Walk *w, const Frame *f)
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

static void step_frame(Walk *w, uint32_t id);

static void begin_value(Walk *w, Formula f, uint32_t below)
{
    Machine *m = w->m;
    Engine *e = &m->e;
    Formula of;
    if (w->byte == '{' && (of = f_restrict(e, f, KIND_OBJECT)) != F_FALSE) {
        uint32_t alphabet = alphabet_of(e, of);
        size_t n = seen_words(e->alphabet[alphabet]);
        uint32_t seen = seen_id(m, arena_array(&e->arena, n + 1, sizeof(uint64_t)), n);
        if (object_exists(e, of, alphabet, m->seen[seen]))
            machine_add(m, w->out,
                        &(Frame){.kind = FRAME_OBJECT,
                                 .a = of,
                                 .b = alphabet,
                                 .c = seen,
                                 .d = AT_FIRST,
                                 .below = below,
                                 .used = object_is_distinct(e, of, alphabet) ? 1 + TERM_NONE : 0});
    } else if (w->byte == '[' && (of = f_restrict(e, f, KIND_ARRAY)) != F_FALSE) {
        if (array_exists(e, of))
            machine_add(m, w->out,
                        &(Frame){.kind = FRAME_ARRAY, .a = of, .d = AT_FIRST, .below = below});
    } else if (w->byte == '"' && (of = f_restrict(e, f, KIND_STRING)) != F_FALSE) {
        Term term = of == F_TRUE ? TERM_ALL : e->node[of].a;
        if (term_alive(&e->terms, term, 0))
            machine_add(m, w->out, &(Frame){.kind = FRAME_STRING, .a = term, .below = below});
    } else if (w->byte == '-' || (w->byte >= '0' && w->byte <= '9')) {
        if ((of = f_restrict(e, f, KIND_NUMBER)) != F_FALSE)
            step_frame(w, machine_frame(m, &(Frame){.kind = FRAME_NUMBER,
                                                    .a = of,
                                                    .b = name_id(e, "", 0),
                                                    .c = NUMBER_BEGIN,
                                                    .below = below}));
    }
    for (uint32_t i = 0; i < 3; i++)
        if (w->byte == (unsigned char)words[i][0] && f_restrict(e, f, KIND_NULL << i) == F_TRUE)
            machine_add(m, w->out, &(Frame){.kind = FRAME_WORD, .a = i, .b = 1, .below = below});
}

static void step_number(Walk *w, const Frame *f)
{
    Machine *m = w->m;
    Engine *e = &m->e;
    int phase = number_step(f->c, w->byte);
    if (phase < 0) {
        const JsonName *name = &e->name[f->b];
        if (number_can_end(f->c) &&
            (f->a == F_TRUE || number_is(e, f->a, name->text, name->length))) {
            FrameList popped = {0}, *out = w->out;
            w->out = &popped;
            add_below(w, f->below, w->before);
            w->out = out;
            for (uint32_t i = 0; i < popped.n; i++)
                step_frame(w, popped.at[i]);
            free(popped.at);
        }
        return;
    }
    Frame next = *f;
    next.c = (uint32_t)phase;
    if (f->a != F_TRUE) {
        char text[NUMBER_TEXT + 1];
        size_t n = e->name[f->b].length;
        if (n >= NUMBER_TEXT)
            return;
        memcpy(text, e->name[f->b].text, n);
        text[n] = (char)w->byte;
        n = number_simplify(e, f->a, (NumberPhase)phase, text, n + 1);
        if (!number_exists(e, f->a, (NumberPhase)phase, text, n))
            return;
        next.b = name_id(e, text, n);
    }
    machine_add(m, w->out, &next);
}

/* Steps of an array, once for each formula. */
static const Branches *branches_of_array(Machine *m, Formula f)
{
    bool added;
    uint64_t *known = map_put(&m->arrays, &f, sizeof f, &added);
    if (!added)
        return (const Branches *)(uintptr_t)*known;
    *known = 0;
    Branches *all = malloc(sizeof *all);
    size_t n = 0;
    if (!all) {
        engine_fail(&m->e, "there is no memory");
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

static void step_array(Walk *w, const Frame *f)
{
    Machine *m = w->m;
    if (w->byte == ']' && f->d != AT_NEXT) {
        if (array_can_end(&m->e, f->a))
            add_below(w, f->below, w->after);
        return;
    }
    if (f->d >= AT_AFTER && w->byte != ',')
        return;
    Formula rest = f->d == AT_PENDING ? after_item(w, f) : f->a;
    const Branches *branches = branches_of_array(m, rest);
    if (f->d >= AT_AFTER) {
        if (branches)
            machine_add(m, w->out,
                        &(Frame){.kind = FRAME_ARRAY, .a = rest, .d = AT_NEXT, .below = f->below});
        return;
    }
    for (size_t i = 0; branches && i < branches->n; i++) {
        uint32_t below = machine_frame(m, &(Frame){.kind = FRAME_ARRAY,
                                                   .a = branches->at[i].rest,
                                                   .d = AT_AFTER,
                                                   .below = f->below});
        if (array_is_unique(&m->e, branches->at[i].rest))
            below = machine_frame(m, &(Frame){.kind = FRAME_ITEM,
                                              .a = w->before ? w->before->length : 0,
                                              .below = below});
        begin_value(w, branches->at[i].value, below);
    }
}

bool machine_value_at(Machine *m, const Frame *frame, Formula *value)
{
    bool item = frame->kind == FRAME_ARRAY && (frame->d == AT_FIRST || frame->d == AT_NEXT);
    const Branches *branches = item ? branches_of_array(m, frame->a) : NULL;
    *value = frame->kind == FRAME_VALUE ? frame->a : branches ? branches->at[0].value : F_FALSE;
    return frame->kind == FRAME_VALUE || (branches && branches->n == 1);
}

static void step_object(Walk *w, uint32_t id, const Frame *f)
{
    Machine *m = w->m;
    if (w->byte == '}' && f->d != AT_NEXT) {
        if (object_can_end(&m->e, f->a))
            add_below(w, f->below, w->after);
    } else if (f->d == AT_AFTER) {
        if (w->byte != ',')
            return;
        Frame next = *f;
        next.d = AT_NEXT;
        uint32_t object = machine_frame(m, &next);
        if (any_key(m, object, 0, n_keys(m, object)))
            add_id(m, w->out, object);
    } else if (w->byte == '"') {
        begin_name(w, id);
    }
}

static void step_colon(Walk *w, const Frame *f)
{
    Machine *m = w->m;
    const Branches *branches = branches_of(m, f->below, f->a);
    Frame object = m->frame[f->below];
    uint32_t seen = seen_after(m, &object, f->a), used = object.used;
    if (f->used) {
        const JsonName *name = &m->e.name[f->used - 1];
        Term came = term_text(&m->e.terms, name->text, name->length);
        used = 1 + term_or2(&m->e.terms, used - 1, came);
    }
    for (size_t i = 0; branches && i < branches->n; i++) {
        uint32_t below = machine_frame(m, &(Frame){.kind = FRAME_OBJECT,
                                                   .a = branches->at[i].rest,
                                                   .b = object.b,
                                                   .c = seen,
                                                   .d = AT_AFTER,
                                                   .below = object.below,
                                                   .used = used});
        machine_add(m, w->out,
                    &(Frame){.kind = FRAME_VALUE, .a = branches->at[i].value, .below = below});
    }
}

/* Adds a frame that a grammar leads to, once in a round. */
static void meet(Machine *m, FrameList *list, uint32_t id)
{
    if (m->met[id] != m->rounds)
        add_id(m, list, id);
    m->met[id] = m->rounds;
}

/* What may come where a frame of a grammar goes on: terms, and the end. */
static void begin_lines(Machine *m, uint32_t frame, FrameList *out)
{
    FrameList list = {0};
    m->rounds++;
    meet(m, &list, frame);
    for (uint32_t i = 0; i < list.n && engine_work(&m->e, 1); i++) {
        Frame f = m->frame[list.at[i]];
        const uint32_t *symbol = m->grammar.symbol + f.a;
        if (f.kind == FRAME_DONE) {
            add_id(m, out, list.at[i]);
            continue;
        }
        uint32_t what = *symbol >> SYMBOL_BITS, kind = *symbol & ((1 << SYMBOL_BITS) - 1),
                 below = f.below;
        if (kind != SYMBOL_END && symbol[1] != SYMBOL_END)
            below = machine_frame(m, &(Frame){.kind = FRAME_LINE, .a = f.a + 1, .below = f.below});
        if (kind == SYMBOL_TERM)
            machine_add(m, out, &(Frame){.kind = FRAME_TERM, .a = what, .below = below});
        if (kind == SYMBOL_END || (kind == SYMBOL_TERM && term_ends(&m->e.terms, what)))
            meet(m, &list, below);
        const Rule *rule = &m->grammar.rule[kind == SYMBOL_RULE ? what : 0];
        for (uint32_t k = 0; kind == SYMBOL_RULE && k < rule->n; k++)
            meet(m, &list,
                 machine_frame(m, &(Frame){.kind = FRAME_LINE, .a = rule->at[k], .below = below}));
    }
    free(list.at);
}

/* A name with the characters behind it that a byte has completed. */
static uint32_t longer_name(Engine *e, uint32_t id, const Escaped *read)
{
    const JsonName *name = &e->name[id];
    char *text = arena_alloc(&e->arena, name->length + sizeof read->byte);
    if (!read->n)
        return id;
    memcpy(text, name->text, name->length);
    memcpy(text + name->length, read->byte, (size_t)read->n);
    return name_id(e, text, name->length + (size_t)read->n);
}

static void step_frame(Walk *w, uint32_t id)
{
    Machine *m = w->m;
    Frame f = m->frame[id]; /* a copy: frames move when one is added */
    Escaped read;
    if (!engine_work(&m->e, 1))
        return;
    switch ((FrameKind)f.kind) {
    case FRAME_END:
    case FRAME_VALUE:
    case FRAME_OBJECT:
    case FRAME_ARRAY:
    case FRAME_COLON:
        if (blank(m, w->byte)) {
            add_id(m, w->out, id);
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
        f.a = term_next(&m->e.terms, f.a, w->byte);
        f.b = (uint32_t)u;
        if (u < 0 || !term_alive(&m->e.terms, f.a, u))
            break;
        if (f.a != TERM_EMPTY)
            machine_add(m, w->out, &f);
        if (u == 0 && term_ends(&m->e.terms, f.a))
            begin_lines(m, f.below, w->out);
        break;
    }
    case FRAME_DONE:
    case FRAME_LINE:
        break;
    case FRAME_WORD:
        if (w->byte != (unsigned char)words[f.a][f.b])
            break;
        f.b++;
        if (words[f.a][f.b])
            machine_add(m, w->out, &f);
        else
            add_below(w, f.below, w->after);
        break;
    case FRAME_STRING:
        if (!step_characters(w, &f.a, &f.b, &read))
            break;
        if (read.end)
            add_below(w, f.below, w->after);
        else
            machine_add(m, w->out, &f);
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
            machine_add(m, w->out,
                        &(Frame){.kind = FRAME_COLON, .a = f.a, .below = f.below, .used = f.used});
        else
            machine_add(m, w->out, &f);
        break;
    case FRAME_ITEM:
        break;
    }
}

bool machine_begin_json(Machine *m, Formula f)
{
    FrameList list = {0};
    uint32_t end = machine_frame(m, &(Frame){.kind = FRAME_END});
    if (value_exists(&m->e, f))
        machine_add(m, &list, &(Frame){.kind = FRAME_VALUE, .a = f, .below = end});
    m->begin = machine_state(m, &list, NULL);
    free(list.at);
    return !m->e.failed[0];
}

bool machine_begin_text(Machine *m, Term term)
{
    uint32_t *symbol = arena_array(&m->e.arena, 2, sizeof *symbol),
             *first = arena_array(&m->e.arena, 1, sizeof *first);
    Rule *rule = arena_alloc(&m->e.arena, sizeof *rule);
    symbol[0] = term << SYMBOL_BITS | SYMBOL_TERM;
    *rule = (Rule){first, term_alive(&m->e.terms, term, 0)};
    m->grammar = (Grammar){symbol, rule};
    return machine_begin_grammar(m);
}

bool machine_begin_grammar(Machine *m)
{
    FrameList list = {0};
    uint32_t done = machine_frame(m, &(Frame){.kind = FRAME_DONE});
    const Rule *start = m->grammar.rule;
    for (uint32_t i = 0; i < start->n; i++)
        begin_lines(
            m, machine_frame(m, &(Frame){.kind = FRAME_LINE, .a = start->at[i], .below = done}),
            &list);
    m->begin = machine_state(m, &list, NULL);
    free(list.at);
    return engine_work(&m->e, 1);
}

uint32_t machine_state_of(Machine *m, uint32_t frame)
{
    FrameList list = {0};
    if (m->frame[frame].kind == FRAME_LINE)
        begin_lines(m, frame, &list);
    else
        add_id(m, &list, frame);
    uint32_t state = machine_state(m, &list, NULL);
    free(list.at);
    return state;
}

uint32_t machine_alone(Machine *m, uint32_t frame)
{
    uint32_t *above = NULL, n = 0, alone = machine_frame(m, &(Frame){.kind = FRAME_END});
    const Frame *f = &m->frame[frame];
    for (uint32_t id = frame; !(f->kind == FRAME_ITEM || is_pending(f)); n++) {
        uint32_t *more = heap_more(above, n, sizeof *above);
        if (!more) {
            engine_fail(&m->e, "there is no memory");
            break;
        }
        above = more;
        above[n] = id;
        id = f->below;
        f = &m->frame[id];
    }
    while (n) {
        Frame copy = m->frame[above[--n]];
        copy.below = alone;
        alone = machine_frame(m, &copy);
    }
    free(above);
    return alone;
}

uint32_t machine_item_at(Machine *m, uint32_t frame)
{
    const Frame f = m->frame[frame];
    bool begins = f.kind == FRAME_ARRAY && (f.d == AT_FIRST || f.d == AT_NEXT);
    const Branches *branches = begins && m->reads ? branches_of_array(m, f.a) : NULL;
    if (!branches || branches->n != 1 || !array_is_unique(&m->e, branches->at[0].rest))
        return NO_FRAME;
    uint32_t end = machine_frame(m, &(Frame){.kind = FRAME_END});
    return machine_frame(m,
                         &(Frame){.kind = FRAME_VALUE, .a = branches->at[0].value, .below = end});
}

bool machine_takes_blanks(const Machine *m, uint32_t frame)
{
    static const uint32_t kinds = 1u << FRAME_END | 1u << FRAME_VALUE | 1u << FRAME_OBJECT |
                                  1u << FRAME_ARRAY | 1u << FRAME_COLON;
    return !m->compact && (kinds >> m->frame[frame].kind & 1);
}

bool machine_look_ahead(Machine *m)
{
    if (m->reads && arena_init(&m->scratch_arena, NULL)) {
        engine_fail(&m->e, "there is no memory");
        return false;
    }
    m->scratching = true;
    return true;
}

void machine_look_back(Machine *m)
{
    if (m->reads)
        arena_free(&m->scratch_arena);
    m->n_scratch = 0;
    m->scratching = false;
}

static void add_bytes(ByteSet *set, const char *bytes)
{
    for (; *bytes; bytes++)
        set_add(set, (unsigned char)*bytes);
}

/* Adds the bytes that may follow in a frame, and perhaps others: those that are missing lead nowhere. */
static void add_first(const Machine *m, uint32_t id, ByteSet *set)
{
    static const char values[] = "{[\"-0123456789nft";
    const Frame *f = &m->frame[id];
    const Alphabet *a;
    switch ((FrameKind)f->kind) {
    case FRAME_OBJECT:
        add_bytes(set, f->d == AT_FIRST ? "\"}" : f->d == AT_NEXT ? "\"" : ",}");
        break;
    case FRAME_ARRAY:
        add_bytes(set, f->d >= AT_AFTER ? ",]" : values);
        add_bytes(set, f->d == AT_FIRST ? "]" : "");
        break;
    case FRAME_VALUE:
        add_bytes(set, values);
        break;
    case FRAME_COLON:
        add_bytes(set, ":");
        break;
    case FRAME_WORD:
        set_add(set, (unsigned char)words[f->a][f->b]);
        break;
    case FRAME_NUMBER:
        add_bytes(set, "0123456789.eE+-");
        if (number_can_end(f->c))
            add_first(m, f->below, set);
        break;
    case FRAME_ITEM:
        add_first(m, f->below, set);
        break;
    case FRAME_NAME:
        a = m->e.alphabet[m->frame[f->below].b];
        if (f->d == 0) {
            add_bytes(set, "\"\\");
            for (uint32_t k = f->a; k < f->b; k++)
                set_add(set, (unsigned char)byte_at(m, a, k, f->c));
            break;
        } /* fall through */
    case FRAME_TERM:
    case FRAME_STRING:
    case FRAME_OTHER:
        memset(set, 0xff, sizeof *set);
        break;
    case FRAME_END:
    case FRAME_DONE:
    case FRAME_LINE:
        break;
    }
    if (machine_takes_blanks(m, id))
        add_bytes(set, " \t\n\r");
}

/* Where a byte of the set leads. */
static uint32_t *step_of(Steps *steps, unsigned char byte)
{
    uint64_t below = steps->set.bit[byte >> 6] & ((1ull << (byte & 63)) - 1);
    return &steps->next[steps->before[byte >> 6] + __builtin_popcountll(below)];
}

static Steps *new_steps(Machine *m, const ByteSet *set)
{
    uint8_t before[4];
    size_t n = 0;
    for (int w = 0; w < 4; w++) {
        before[w] = (uint8_t)n;
        n += (size_t)__builtin_popcountll(set->bit[w]);
    }
    Steps *steps = arena_alloc(&m->e.arena, sizeof *steps + n * sizeof *steps->next);
    steps->set = *set;
    memcpy(steps->before, before, sizeof before);
    memset(steps->next, 0xff, n * sizeof *steps->next);
    return steps;
}

uint32_t machine_next(Machine *m, uint32_t id, unsigned char byte)
{
    State state = *machine_at(m, id); /* a copy: states move when one is added */
    ByteSet set = {{0}};
    if (id == STATE_DEAD || (state.steps && !set_has(&state.steps->set, byte)))
        return STATE_DEAD;
    if (state.steps && *step_of(state.steps, byte) != NOT_KNOWN)
        return *step_of(state.steps, byte);
    for (uint32_t i = 0; i < state.n && !state.steps; i++)
        add_first(m, state.frame[i], &set);
    if (!state.steps && !state.read)
        m->state[id].steps = state.steps = new_steps(m, &set);
    if (!set_has(state.steps ? &state.steps->set : &set, byte))
        return STATE_DEAD;
    FrameList list = {0};
    Walk w = {.m = m, .byte = byte, .before = state.read, .after = state.read, .out = &list};
    if (m->reads) {
        Read *read = arena_alloc(m->scratching ? &m->scratch_arena : &m->e.arena, sizeof *read);
        *read = (Read){
            .before = state.read, .length = state.read ? state.read->length + 1 : 1, .byte = byte};
        w.after = read;
    }
    for (uint32_t i = 0; i < state.n; i++)
        step_frame(&w, state.frame[i]);
    uint32_t next = machine_state(m, &list, m->reads ? w.after : NULL);
    free(list.at);
    if (!state.read && !(next & SCRATCH) && !m->e.failed[0])
        *step_of(state.steps, byte) = next;
    return next;
}
