/*
 * The acceptor: which bytes may follow, byte by byte. It is a pushdown automaton that may be in several configurations at
 * once. A configuration is a stack of frames, of which each says what it waits for:
 *
 *     {"a": [1, 2|          number 2 … < array, after an item < object, after a member < end
 *
 * Frames are kept once, by content, and point to the frame below, so that a configuration is one number, and a state a
 * sorted list of numbers. States are kept once, too; where they lead is computed when it is asked for first. What can no
 * longer be fulfilled is never entered (solve.h): a state has a configuration only if some text completes it.
 *
 * Arrays with unique items need their items' text: then states remember what was read, each its own.
 */
#ifndef CVN_CONSTRAIN_MACHINE_H
#define CVN_CONSTRAIN_MACHINE_H

#include "constrain/formula.h"
#include "constrain/grammar.h"
#include "constrain/solve.h"

enum {
    MACHINE_FRAMES = 2000000,       /* frames that are kept */
    MACHINE_STATES = 1000000,       /* states that are kept */
    MACHINE_CONFIGURATIONS = 32768, /* in one state */
};

typedef enum FrameKind {
    FRAME_END, /* after the text, where only blanks follow */
    FRAME_DONE, /* after a text behind which nothing follows: one that is no JSON, or that is generated */
    FRAME_TERM,   /* no JSON; a: term of what follows, b: u */
    FRAME_LINE,   /* a: symbol of the grammar that follows; in no state: what may begin there is */
    FRAME_VALUE,  /* a: formula of the value that begins here */
    FRAME_WORD,   /* a: null, false or true, b: characters that are there */
    FRAME_STRING, /* a: term of the rest of its characters, b: escape */
    FRAME_NUMBER, /* a: formula, b: name id of its text, if the formula asks for it, c: phase */
    FRAME_OBJECT, /* a: formula of the rest, b: alphabet, c: seen, d: place, used */
    FRAME_NAME, /* of a member, one of those from a to b - 1 of the alphabet; c: bytes that are there, d: escape */
    FRAME_OTHER, /* a name of a class; a: key, b: term of the rest, d: escape, used: what is there */
    FRAME_COLON, /* a: key, used: the name */
    FRAME_ARRAY, /* a: formula of the rest, d: place */
    FRAME_ITEM,  /* of an array with unique items, a: where its text begins */
} FrameKind;

typedef struct Frame {
    uint32_t kind, a, b, c, d;
    uint32_t below; /* the frame that goes on when this one ends */
    /* Of objects of which no name may come again (object_is_distinct): 1 + the term of those of classes that came. In a name
       1 + id of it as far as it is there. 0: of other objects. */
    uint32_t used;
} Frame;

/* What was read, last byte first. */
typedef struct Read {
    const struct Read *before;
    uint32_t length;
    unsigned char byte;
} Read;

/* Where a state leads. Bytes that are not in the set lead nowhere. */
typedef struct Steps {
    ByteSet set;
    uint8_t before[4]; /* bytes of the set in the words before each */
    uint32_t next[];   /* [bytes of the set] states, UINT32_MAX where not known */
} Steps;

typedef struct State {
    const uint32_t *frame; /* [n] sorted */
    uint32_t n;
    const Read *read; /* NULL where nothing needs it */
    Steps *steps;     /* or NULL */
    bool can_end;
} State;

/* The state from which nothing may follow, and which is no end. */
enum { STATE_DEAD = 0 };

typedef struct ObjectKeys {
    int8_t *allowed;   /* [keys] 1, 0; -1: not known */
    Branches **branch; /* [keys] */
} ObjectKeys;

typedef struct Machine {
    Engine e;
    Frame *frame;
    uint32_t n_frames;
    uint32_t *met; /* [n_frames] round in which a grammar led to it last */
    uint32_t rounds;
    Grammar grammar;   /* of no JSON */
    ObjectKeys **keys; /* [n_frames] of objects, or NULL */
    bool *in_item;     /* [n_frames] FRAME_ITEM is at or below it */
    State *state;
    uint32_t n_states;
    Map frames, states, seens, arrays;
    uint64_t **seen; /* [n_seens] */
    uint32_t n_seens;
    State *scratch; /* [n_scratch] states of a walk that looks ahead, with what they read; owned */
    uint32_t n_scratch, scratch_room;
    Arena scratch_arena;
    bool scratching;
    uint32_t begin; /* state */
    bool compact;   /* no blanks but in strings */
    bool reads; /* there are arrays with unique items: states within them remember what was read */
} Machine;

int machine_init(Machine *m, cvn_err *err);
void machine_free(Machine *m);

/* From a formula of JSON values; from a term of whole texts; from m->grammar. False with m->e.failed set. */
bool machine_begin_json(Machine *m, Formula f);
bool machine_begin_text(Machine *m, Term term);
bool machine_begin_grammar(Machine *m);

/* The state in which a frame alone goes on. */
uint32_t machine_state_of(Machine *m, uint32_t frame);

/* A frame in an item of an array with unique items (m->in_item), as if that stood alone; where such an item begins, the frame of its
   value as if it stood alone, or NO_FRAME. */
#define NO_FRAME UINT32_MAX
uint32_t machine_alone(Machine *m, uint32_t frame);
uint32_t machine_item_at(Machine *m, uint32_t frame);

/* Whether a value may begin in a frame, always under the same formula. */
bool machine_value_at(Machine *m, const Frame *frame, Formula *value);

/* Whether a frame goes on as it is where a blank follows. */
bool machine_takes_blanks(const Machine *m, uint32_t frame);

/* The state after a byte; STATE_DEAD with m->e.failed set where that could not be found out. */
uint32_t machine_next(Machine *m, uint32_t state, unsigned char byte);

/* A state by its number, which is SCRATCH and more for those of a walk that looks ahead. Good until the next is made. */
#define SCRATCH 0x80000000u
static inline const State *machine_at(const Machine *m, uint32_t state)
{
    return state & SCRATCH ? &m->scratch[state & ~SCRATCH] : &m->state[state];
}

/* Between these, states that remember what was read are forgotten. */
bool machine_look_ahead(Machine *m);
void machine_look_back(Machine *m);

/* Inside: frames of a state that is being made. */
typedef struct FrameList {
    uint32_t *at;
    uint32_t n, room;
} FrameList;

/* Places in an object or array: d of their frames. */
enum { AT_FIRST, AT_NEXT, AT_AFTER, AT_PENDING };

extern const char *const machine_words[]; /* null, false, true */

/* What a step works with. */
typedef struct Walk {
    Machine *m;
    unsigned char byte;
    const Read *before, *after; /* what was read without and with the byte */
    FrameList *out;
} Walk;

/* Adds to w->out what a frame becomes. */
void machine_step(Walk *w, uint32_t id);

/* What may come where a frame of a grammar goes on: terms, and the end. */
void machine_begin_lines(Machine *m, uint32_t frame, FrameList *out);

/* Steps of an array, found out once for each formula; NULL: none. */
const Branches *machine_array_branches(Machine *m, Formula f);

/* The byte of a name of an alphabet; -1 at its end. */
int machine_name_byte(const Machine *m, const Alphabet *a, uint32_t key, uint32_t depth);

uint32_t machine_frame(Machine *m, const Frame *frame);
void machine_add_id(Machine *m, FrameList *list, uint32_t id);
void machine_add(Machine *m, FrameList *list, const Frame *frame);
uint32_t machine_state(Machine *m, FrameList *list, const Read *read);

#endif
