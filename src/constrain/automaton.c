#include "constrain/automaton.h"

#include "base/heap.h"
#include "constrain/ids.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define NOT_KNOWN UINT32_MAX

const char *const automaton_words[] = {"null", "false", "true"};

int automaton_init(Automaton *m, cvn_err *err)
{
    *m = (Automaton){0};
    if (solver_init(&m->e, err))
        return CVN_EMEM;
    Map *const maps[] = {&m->frames.ids, &m->states.ids, &m->seen.ids, &m->arrays};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        map_init(maps[i], &m->e.arena);
    m->states.state =
        arena_more(&m->e.arena, m->states.state, m->states.n, sizeof *m->states.state);
    m->states.n = 1;
    return CVN_OK;
}

void automaton_free(Automaton *m)
{
    free(m->scratch.state);
    solver_free(&m->e);
}

static bool is_pending(const Frame *f)
{
    return f->kind == FRAME_ARRAY && f->d == AT_PENDING;
}

uint32_t automaton_frame(Automaton *m, const Frame *frame)
{
    bool added;
    uint64_t *id = map_put(&m->frames.ids, frame, sizeof *frame, &added);
    if (!added)
        return (uint32_t)*id;
    *id = m->frames.n;
    if (m->frames.n >= AUTOMATON_FRAMES) {
        solver_fail(&m->e, "the constraint needs more than %d states for this text",
                    AUTOMATON_FRAMES);
        return 0;
    }
    m->frames.frame =
        arena_more(&m->e.arena, m->frames.frame, m->frames.n, sizeof *m->frames.frame);
    m->frames.keys = arena_more(&m->e.arena, m->frames.keys, m->frames.n, sizeof *m->frames.keys);
    m->frames.keys[m->frames.n] = NULL;
    m->frames.met = arena_more(&m->e.arena, m->frames.met, m->frames.n, sizeof *m->frames.met);
    m->frames.met[m->frames.n] = 0;
    m->frames.in_item =
        arena_more(&m->e.arena, m->frames.in_item, m->frames.n, sizeof *m->frames.in_item);
    m->frames.in_item[m->frames.n] = frame->kind == FRAME_ITEM || is_pending(frame) ||
                                     (m->frames.n && m->frames.in_item[frame->below]);
    m->frames.frame[m->frames.n] = *frame;
    return m->frames.n++;
}

void automaton_add_id(Automaton *m, FrameList *list, uint32_t id)
{
    for (uint32_t i = 0; i < list->n && list->n < 16; i++)
        if (list->at[i] == id)
            return;
    if (list->n == list->room) {
        list->room = list->room ? list->room * 2 : 16;
        uint32_t *more = list->n < AUTOMATON_CONFIGURATIONS
                             ? realloc(list->at, list->room * sizeof *more)
                             : NULL;
        if (!more) {
            solver_fail(&m->e, "it is too ambiguous: the text can be parsed in more than %d ways",
                        AUTOMATON_CONFIGURATIONS);
            list->n = 0;
            return;
        }
        list->at = more;
    }
    list->at[list->n++] = id;
}

void automaton_add(Automaton *m, FrameList *list, const Frame *frame)
{
    automaton_add_id(m, list, automaton_frame(m, frame));
}

static bool frame_can_end(Automaton *m, uint32_t id)
{
    Frame f = m->frames.frame[id];
    if (f.kind == FRAME_END || f.kind == FRAME_DONE)
        return true;
    const uint32_t below = m->frames.frame[f.below].kind;
    if (f.kind != FRAME_NUMBER || (below != FRAME_END && below != FRAME_DONE) ||
        !number_can_end(f.c))
        return false;
    return f.a == F_TRUE ||
           number_is(&m->e, f.a, m->e.names.name[f.b].text, m->e.names.name[f.b].length);
}

uint32_t automaton_state(Automaton *m, FrameList *list, const Read *read)
{
    if (m->e.failed[0] || !list->n)
        return STATE_DEAD;
    uint32_t n = list->n = (uint32_t)ids_sort(list->at, list->n);
    bool added = true, in_item = false;
    for (uint32_t i = 0; i < n && read; i++)
        in_item = in_item || m->frames.in_item[list->at[i]];
    read = in_item ? read : NULL;
    uint64_t *id = read ? NULL : map_put(&m->states.ids, list->at, n * sizeof *list->at, &added);
    if (!added)
        return (uint32_t)*id;
    if (read && m->scratch.active) {
        if (m->scratch.n == m->scratch.room) {
            uint32_t room = m->scratch.room * 2 + 256;
            AutomatonState *more = realloc(m->scratch.state, room * sizeof *more);
            if (!more)
                return solver_fail(&m->e, "out of memory");
            m->scratch.state = more;
            m->scratch.room = room;
        }
        m->scratch.state[m->scratch.n] =
            (AutomatonState){.n = n,
                             .frame = arena_copy(&m->scratch.arena, list->at, n * sizeof *list->at),
                             .read = read};
        return SCRATCH | m->scratch.n++;
    }
    if (m->states.n >= AUTOMATON_STATES) {
        solver_fail(&m->e, "the constraint needs more than %d states for this text",
                    AUTOMATON_STATES);
        return STATE_DEAD;
    }
    if (id)
        *id = m->states.n;
    m->states.state =
        arena_more(&m->e.arena, m->states.state, m->states.n, sizeof *m->states.state);
    AutomatonState *state = &m->states.state[m->states.n];
    *state = (AutomatonState){
        .n = n, .frame = arena_copy(&m->e.arena, list->at, n * sizeof *list->at), .read = read};
    for (uint32_t i = 0; i < n && !state->can_end; i++)
        state->can_end = frame_can_end(m, list->at[i]);
    return m->states.n++;
}

bool automaton_begin_json(Automaton *m, Formula f)
{
    FrameList list = {0};
    /* Behind a whole value that is generated nothing follows: a small model would write empty lines without end. */
    uint32_t end =
        automaton_frame(m, &(Frame){.kind = m->e.spelling.canonical ? FRAME_DONE : FRAME_END});
    if (value_exists(&m->e, f))
        automaton_add(m, &list, &(Frame){.kind = FRAME_VALUE, .a = f, .below = end});
    m->begin = automaton_state(m, &list, NULL);
    free(list.at);
    return !m->e.failed[0];
}

bool automaton_begin_text(Automaton *m, Term term)
{
    uint32_t *symbol = arena_array(&m->e.arena, 2, sizeof *symbol),
             *first = arena_array(&m->e.arena, 1, sizeof *first);
    GrammarRule *rule = arena_alloc(&m->e.arena, sizeof *rule);
    symbol[0] = term << SYMBOL_BITS | SYMBOL_TERM;
    *rule = (GrammarRule){first, term_is_live(&m->e.terms, term, 0)};
    m->grammar = (Grammar){symbol, rule};
    return automaton_begin_grammar(m);
}

bool automaton_begin_grammar(Automaton *m)
{
    FrameList list = {0};
    uint32_t done = automaton_frame(m, &(Frame){.kind = FRAME_DONE});
    const GrammarRule *start = m->grammar.rule;
    for (uint32_t i = 0; i < start->n; i++)
        automaton_expand(
            m,
            automaton_frame(m,
                            &(Frame){.kind = FRAME_PRODUCTION, .a = start->at[i], .below = done}),
            &list);
    m->begin = automaton_state(m, &list, NULL);
    free(list.at);
    return solver_work(&m->e, 1);
}

uint32_t automaton_state_of(Automaton *m, uint32_t frame)
{
    FrameList list = {0};
    if (m->frames.frame[frame].kind == FRAME_PRODUCTION)
        automaton_expand(m, frame, &list);
    else
        automaton_add_id(m, &list, frame);
    uint32_t state = automaton_state(m, &list, NULL);
    free(list.at);
    return state;
}

uint32_t automaton_alone(Automaton *m, uint32_t frame)
{
    uint32_t *above = NULL, n = 0, alone = automaton_frame(m, &(Frame){.kind = FRAME_END});
    const Frame *f = &m->frames.frame[frame];
    for (uint32_t id = frame; !(f->kind == FRAME_ITEM || is_pending(f)); n++) {
        uint32_t *more = heap_more(above, n, sizeof *above);
        if (!more) {
            solver_fail(&m->e, "out of memory");
            break;
        }
        above = more;
        above[n] = id;
        id = f->below;
        f = &m->frames.frame[id];
    }
    while (n) {
        Frame copy = m->frames.frame[above[--n]];
        copy.below = alone;
        alone = automaton_frame(m, &copy);
    }
    free(above);
    return alone;
}

uint32_t automaton_item_at(Automaton *m, uint32_t frame)
{
    const Frame f = m->frames.frame[frame];
    bool begins = f.kind == FRAME_ARRAY && (f.d == AT_FIRST || f.d == AT_NEXT);
    const Branches *branches = begins && m->reads ? automaton_array_branches(m, f.a) : NULL;
    if (!branches || branches->n != 1 || !array_is_unique(&m->e, branches->at[0].rest))
        return NO_FRAME;
    uint32_t end = automaton_frame(m, &(Frame){.kind = FRAME_END});
    return automaton_frame(m,
                           &(Frame){.kind = FRAME_VALUE, .a = branches->at[0].value, .below = end});
}

bool automaton_value_at(Automaton *m, const Frame *frame, Formula *value)
{
    bool item = frame->kind == FRAME_ARRAY && (frame->d == AT_FIRST || frame->d == AT_NEXT);
    const Branches *branches = item ? automaton_array_branches(m, frame->a) : NULL;
    *value = frame->kind == FRAME_VALUE ? frame->a : branches ? branches->at[0].value : F_FALSE;
    return frame->kind == FRAME_VALUE || (branches && branches->n == 1);
}

bool automaton_takes_blanks(const Automaton *m, uint32_t frame)
{
    static const uint32_t kinds = 1u << FRAME_END | 1u << FRAME_VALUE | 1u << FRAME_OBJECT |
                                  1u << FRAME_ARRAY | 1u << FRAME_COLON;
    return !m->compact && (kinds >> m->frames.frame[frame].kind & 1);
}

bool automaton_look_ahead(Automaton *m)
{
    if (m->reads && arena_init(&m->scratch.arena, NULL)) {
        solver_fail(&m->e, "out of memory");
        return false;
    }
    m->scratch.active = true;
    return true;
}

void automaton_look_back(Automaton *m)
{
    if (m->reads)
        arena_free(&m->scratch.arena);
    m->scratch.n = 0;
    m->scratch.active = false;
}

static void add_bytes(ByteSet *set, const char *bytes)
{
    for (; *bytes; bytes++)
        set_add(set, (unsigned char)*bytes);
}

/* Adds the bytes that may follow in a frame, and perhaps others: those that are missing lead nowhere. */
static void add_first(const Automaton *m, uint32_t id, ByteSet *set)
{
    static const char values[] = "{[\"-0123456789nft";
    const Frame *f = &m->frames.frame[id];
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
        set_add(set, (unsigned char)automaton_words[f->a][f->b]);
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
        a = m->e.solved.alphabet[m->frames.frame[f->below].b];
        if (f->d == 0) {
            add_bytes(set, "\"\\");
            for (uint32_t k = f->a; k < f->b; k++)
                set_add(set, (unsigned char)automaton_name_byte(m, a, k, f->c));
            break;
        } /* fall through */
    case FRAME_TERM:
    case FRAME_STRING:
    case FRAME_OTHER:
        memset(set, 0xff, sizeof *set);
        break;
    case FRAME_END:
    case FRAME_DONE:
    case FRAME_PRODUCTION:
        break;
    }
    if (automaton_takes_blanks(m, id))
        add_bytes(set, " \t\n\r");
}

/* Where a byte of the set leads. */
static uint32_t *transition_of(Transitions *transitions, unsigned char byte)
{
    uint64_t below = transitions->set.bit[byte >> 6] & ((1ull << (byte & 63)) - 1);
    return &transitions->next[transitions->before[byte >> 6] + __builtin_popcountll(below)];
}

static Transitions *new_transitions(Automaton *m, const ByteSet *set)
{
    uint8_t before[4];
    size_t n = 0;
    for (int w = 0; w < 4; w++) {
        before[w] = (uint8_t)n;
        n += (size_t)__builtin_popcountll(set->bit[w]);
    }
    Transitions *transitions =
        arena_alloc(&m->e.arena, sizeof *transitions + n * sizeof *transitions->next);
    transitions->set = *set;
    memcpy(transitions->before, before, sizeof before);
    memset(transitions->next, 0xff, n * sizeof *transitions->next);
    return transitions;
}

uint32_t automaton_next(Automaton *m, uint32_t id, unsigned char byte)
{
    AutomatonState state = *automaton_at(m, id); /* a copy: states move when one is added */
    ByteSet set = {{0}};
    if (id == STATE_DEAD || (state.transitions && !set_has(&state.transitions->set, byte)))
        return STATE_DEAD;
    if (state.transitions && *transition_of(state.transitions, byte) != NOT_KNOWN)
        return *transition_of(state.transitions, byte);
    for (uint32_t i = 0; i < state.n && !state.transitions; i++)
        add_first(m, state.frame[i], &set);
    if (!state.transitions && !state.read)
        m->states.state[id].transitions = state.transitions = new_transitions(m, &set);
    if (!set_has(state.transitions ? &state.transitions->set : &set, byte))
        return STATE_DEAD;
    FrameList list = {0};
    ByteStep w = {.m = m, .byte = byte, .before = state.read, .after = state.read, .out = &list};
    if (m->reads) {
        Read *read = arena_alloc(m->scratch.active ? &m->scratch.arena : &m->e.arena, sizeof *read);
        *read = (Read){
            .before = state.read, .length = state.read ? state.read->length + 1 : 1, .byte = byte};
        w.after = read;
    }
    for (uint32_t i = 0; i < state.n; i++)
        automaton_step(&w, state.frame[i]);
    uint32_t next = automaton_state(m, &list, m->reads ? w.after : NULL);
    free(list.at);
    if (!state.read && !(next & SCRATCH) && !m->e.failed[0])
        *transition_of(state.transitions, byte) = next;
    return next;
}
