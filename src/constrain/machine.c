#include "constrain/machine.h"

#include "base/heap.h"
#include "constrain/ids.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NOT_KNOWN UINT32_MAX

const char *const machine_words[] = {"null", "false", "true"};

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

void machine_add_id(Machine *m, FrameList *list, uint32_t id)
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
    machine_add_id(m, list, machine_frame(m, frame));
}

static bool frame_can_end(Machine *m, uint32_t id)
{
    Frame f = m->frame[id];
    if (f.kind == FRAME_END || f.kind == FRAME_DONE)
        return true;
    const uint32_t below = m->frame[f.below].kind;
    if (f.kind != FRAME_NUMBER || (below != FRAME_END && below != FRAME_DONE) ||
        !number_can_end(f.c))
        return false;
    return f.a == F_TRUE || number_is(&m->e, f.a, m->e.name[f.b].text, m->e.name[f.b].length);
}

uint32_t machine_state(Machine *m, FrameList *list, const Read *read)
{
    if (m->e.failed[0] || !list->n)
        return STATE_DEAD;
    uint32_t n = list->n = (uint32_t)ids_sort(list->at, list->n);
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

bool machine_begin_json(Machine *m, Formula f)
{
    FrameList list = {0};
    /* Behind a whole value that is generated nothing follows: a small model would write empty lines without end. */
    uint32_t end = machine_frame(m, &(Frame){.kind = m->e.canonical ? FRAME_DONE : FRAME_END});
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
        machine_begin_lines(
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
        machine_begin_lines(m, frame, &list);
    else
        machine_add_id(m, &list, frame);
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
    const Branches *branches = begins && m->reads ? machine_array_branches(m, f.a) : NULL;
    if (!branches || branches->n != 1 || !array_is_unique(&m->e, branches->at[0].rest))
        return NO_FRAME;
    uint32_t end = machine_frame(m, &(Frame){.kind = FRAME_END});
    return machine_frame(m,
                         &(Frame){.kind = FRAME_VALUE, .a = branches->at[0].value, .below = end});
}

bool machine_value_at(Machine *m, const Frame *frame, Formula *value)
{
    bool item = frame->kind == FRAME_ARRAY && (frame->d == AT_FIRST || frame->d == AT_NEXT);
    const Branches *branches = item ? machine_array_branches(m, frame->a) : NULL;
    *value = frame->kind == FRAME_VALUE ? frame->a : branches ? branches->at[0].value : F_FALSE;
    return frame->kind == FRAME_VALUE || (branches && branches->n == 1);
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
        set_add(set, (unsigned char)machine_words[f->a][f->b]);
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
                set_add(set, (unsigned char)machine_name_byte(m, a, k, f->c));
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
        machine_step(&w, state.frame[i]);
    uint32_t next = machine_state(m, &list, m->reads ? w.after : NULL);
    free(list.at);
    if (!state.read && !(next & SCRATCH) && !m->e.failed[0])
        *step_of(state.steps, byte) = next;
    return next;
}
