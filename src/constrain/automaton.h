/*
 * A pushdown automaton that accepts the texts of a constraint byte by byte. It is nondeterministic: it may be in several
 * configurations at once. A configuration is a stack of frames, and each frame says what it waits for:
 *
 *     {"a": [1, 2|          number 2 … < array, after an item < object, after a member < end
 *
 * Frames are kept once, by content, and point to the frame below, so that a configuration is one number, and a state (the set
 * of configurations) a sorted list of numbers. States are kept once, too, and their transitions are computed on first use: the
 * subset construction, made lazily. What can no
 * longer be fulfilled is never entered (solve.h): a state has a configuration only if some text completes it.
 *
 * Arrays with unique items need their items' text: then states remember what was read, each its own.
 */
#ifndef CVN_CONSTRAIN_AUTOMATON_H
#define CVN_CONSTRAIN_AUTOMATON_H

#include "constrain/formula.h"
#include "constrain/grammar.h"
#include "constrain/solve.h"

enum {
    AUTOMATON_FRAMES = 2000000,       /* frames that are kept */
    AUTOMATON_STATES = 1000000,       /* states that are kept */
    AUTOMATON_CONFIGURATIONS = 32768, /* in one state */
};

typedef enum FrameKind {
    FRAME_END, /* after the text, where only blanks follow */
    FRAME_DONE, /* after a text behind which nothing follows: one that is no JSON, or that is generated */
    FRAME_TERM, /* text that is not JSON; a: term of what follows, b: UTF-8 state (utf8_step) */
    FRAME_PRODUCTION, /* a: symbol of a production that follows; it is expanded, so that no state has it */
    FRAME_VALUE,  /* a: formula of the value that begins here */
    FRAME_WORD,   /* a: null, false or true, b: characters that were read */
    FRAME_STRING, /* a: term of the rest of its characters, b: escape */
    FRAME_NUMBER, /* a: formula, b: name id of its text, if the formula asks for it, c: NumberState */
    FRAME_OBJECT, /* a: formula of the rest, b: alphabet, c: seen, d: place, used */
    FRAME_NAME, /* of a member, one of those from a to b - 1 of the alphabet; c: bytes that are there, d: escape */
    FRAME_OTHER, /* a name of a class of the alphabet; a: key, b: term of the rest, d: escape, used: what was read of it */
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

/* The text that was read, as a list from the last byte to the first. */
typedef struct Read {
    const struct Read *before;
    uint32_t length;
    unsigned char byte;
} Read;

/* The transitions of a state. Bytes that are not in the set lead to STATE_DEAD. */
typedef struct Transitions {
    ByteSet set;
    uint8_t before[4]; /* bytes of the set in the words before each */
    uint32_t next[];   /* [bytes of the set] states, UINT32_MAX where they are not computed yet */
} Transitions;

typedef struct AutomatonState {
    const uint32_t *frame; /* [n] sorted */
    uint32_t n;
    const Read *read;         /* NULL where nothing needs it */
    Transitions *transitions; /* or NULL */
    bool can_end;
} AutomatonState;

/* The dead state: no text goes on from it, and none ends in it. */
enum { STATE_DEAD = 0 };

typedef struct ObjectKeys {
    int8_t *allowed;   /* [keys] 1, 0; -1: not known */
    Branches **branch; /* [keys] */
} ObjectKeys;

/* Frames, kept once by content; arrays run beside them. */
typedef struct FrameTable {
    Map ids;
    Frame *frame; /* [n] */
    uint32_t n;
    uint32_t *met; /* [n] round in which a grammar led to it last */
    uint32_t rounds;
    ObjectKeys **keys; /* [n] of objects, or NULL */
    bool *in_item;     /* [n] FRAME_ITEM is at or below it */
} FrameTable;

/* States, kept once by their frames and what was read. */
typedef struct StateTable {
    Map ids;
    AutomatonState *state; /* [n] */
    uint32_t n;
} StateTable;

/* Which members of an object came, as bits, kept once. */
typedef struct SeenTable {
    Map ids;
    uint64_t **bits; /* [n] */
    uint32_t n;
} SeenTable;

/* States of a walk that looks ahead, with what they read: forgotten when it is over. */
typedef struct Scratch {
    AutomatonState *state; /* [n] owned */
    uint32_t n, room;
    Arena arena;
    bool active;
} Scratch;

typedef struct Automaton {
    Solver e;
    FrameTable frames;
    StateTable states;
    SeenTable seen;
    Map arrays; /* formula -> its transitions (automaton_array_branches) */
    Scratch scratch;
    Grammar grammar; /* of no JSON */
    uint32_t begin;  /* state */
    bool compact;    /* no blanks but in strings */
    bool reads; /* there are arrays with unique items: states within them remember what was read */
} Automaton;

int automaton_init(Automaton *m, cvn_err *err);
void automaton_free(Automaton *m);

/* From a formula of JSON values; from a term of whole texts; from m->grammar. False with m->e.failed set. */
bool automaton_begin_json(Automaton *m, Formula f);
bool automaton_begin_text(Automaton *m, Term term);
bool automaton_begin_grammar(Automaton *m);

/* The state in which a frame alone goes on. */
uint32_t automaton_state_of(Automaton *m, uint32_t frame);

/* A frame in an item of an array with unique items (m->in_item), as if that stood alone; where such an item begins, the frame of its
   value as if it stood alone, or NO_FRAME. */
#define NO_FRAME UINT32_MAX
uint32_t automaton_alone(Automaton *m, uint32_t frame);
uint32_t automaton_item_at(Automaton *m, uint32_t frame);

/* Whether a value may begin in a frame, always under the same formula. */
bool automaton_value_at(Automaton *m, const Frame *frame, Formula *value);

/* Whether a blank leaves a frame as it is. */
bool automaton_takes_blanks(const Automaton *m, uint32_t frame);

/* The state after a byte; STATE_DEAD with m->e.failed set where that could not be found out. */
uint32_t automaton_next(Automaton *m, uint32_t state, unsigned char byte);

/* A state by its number, which is SCRATCH and more for those of a walk that looks ahead. Good until the next is made. */
#define SCRATCH 0x80000000u
static inline const AutomatonState *automaton_at(const Automaton *m, uint32_t state)
{
    return state & SCRATCH ? &m->scratch.state[state & ~SCRATCH] : &m->states.state[state];
}

/* Between these, states that remember what was read are forgotten. */
bool automaton_look_ahead(Automaton *m);
void automaton_look_back(Automaton *m);

/* The frames of a state that is being made. */
typedef struct FrameList {
    uint32_t *at;
    uint32_t n, room;
} FrameList;

/* How far an object or array is: d of their frames. */
enum { AT_FIRST, AT_NEXT, AT_AFTER, AT_PENDING };

extern const char *const automaton_words[]; /* null, false, true */

/* One byte that is read by all frames of a state. */
typedef struct ByteStep {
    Automaton *m;
    unsigned char byte;
    const Read *before, *after; /* what was read without and with the byte */
    FrameList *out;
} ByteStep;

/* Adds to w->out the frames that a frame becomes by the byte. */
void automaton_step(ByteStep *w, uint32_t id);

/* Adds what a production may begin with, terms and the end: the closure over rules that need no byte. */
void automaton_expand(Automaton *m, uint32_t frame, FrameList *out);

/* Transitions of an array, found out once for each formula; NULL: none. */
const Branches *automaton_array_branches(Automaton *m, Formula f);

/* The byte of a name of an alphabet; -1 at its end. */
int automaton_name_byte(const Automaton *m, const Alphabet *a, uint32_t key, uint32_t depth);

uint32_t automaton_frame(Automaton *m, const Frame *frame);
void automaton_add_id(Automaton *m, FrameList *list, uint32_t id);
void automaton_add(Automaton *m, FrameList *list, const Frame *frame);
uint32_t automaton_state(Automaton *m, FrameList *list, const Read *read);

#endif
