/*
 * Whether what is asked can be fulfilled: of a value, of the rest of an object or array, of a number whose first
 * characters are there. A mask that knows this never leads into a dead end.
 *
 * Objects. The alphabet of a formula is every name that it speaks of, and classes of all other names, of which each is
 * inside or outside of each of its key sets:
 *
 *     properties a, b; patternProperties ^x; additionalProperties false        a   b   ^x, but not a or b   the rest
 *
 * A member takes the formula f to another one, by what it decides to be true of its value:
 *
 *     some_key("a", g) and rest      with "a": a value of g leaves rest
 *     contains(0, g, 1, many)        an item of g leaves nothing; any other leaves it as it is
 *
 * so a step may have several branches, and of each the value and the rest are satisfiable, or it is not there.
 */
#ifndef CVN_CONSTRAIN_SOLVE_H
#define CVN_CONSTRAIN_SOLVE_H

#include "constrain/formula.h"

enum {
    SOLVE_BRANCHES = 1024,  /* of one step */
    SOLVE_CONCERNED = 512,  /* atoms that a member or item concerns */
    SOLVE_OVERLAPPING = 32, /* sets of them that are tried the overlapping way, … */
    SOLVE_TRIED = 4096,     /* … and the disjoint way (solve.c) */
    SOLVE_FAILED = 32,      /* conjunctions, before those that have begun are looked at, too */
    SOLVE_CLASSES = 64,     /* of names */
    SOLVE_WORDS = 64,       /* a class with so few names is listed */
    NUMBER_TEXT = 400,      /* characters of a number of which something is asked */
};

typedef struct Branch {
    Formula value, rest;
} Branch;

typedef struct Branches {
    size_t n;
    Branch at[SOLVE_BRANCHES]; /* [n]; those that are kept have room for n only */
} Branches;

/* The keys 0 to n_names - 1 are names, then come classes. */
typedef struct Alphabet {
    uint32_t *name; /* [n_names] ids, in the order of their bytes */
    uint32_t *rank; /* [n_names] by when the schema speaks of it first */
    uint32_t n_names;
    Term *class; /* [n_classes] */
    uint32_t n_classes;
    uint32_t *set; /* [n_sets] key sets that are terms */
    uint32_t n_sets;
    bool *has;       /* [n_names + n_classes, n_sets] */
    uint32_t fewest; /* names that a class has at least, as term_count says; 0: not known */
} Alphabet;

/* Whether some value fulfils f. */
bool value_exists(Solver *e, Formula f);

/* Index of the alphabet of a formula that is restricted to objects. */
uint32_t alphabet_of(Solver *e, Formula f);

/* Whether a key set of the formula has a key; the key of a name, which is in the alphabet. */
bool alphabet_has_key(const Solver *e, const Alphabet *a, uint32_t set, uint32_t key);
uint32_t alphabet_key_of(const Solver *e, const Alphabet *a, uint32_t name);

/* seen: [(n_names + 63) / 64] a bit per name that came already. */
bool object_can_end(const Solver *e, Formula f);

/* Whether no name of a class may come again: where f makes a difference between that and another name, because it counts members or asks for
   a value under some name of a class; and in texts that are generated, since JSON.stringify writes each name once. */
bool object_is_distinct(Solver *e, Formula f, uint32_t alphabet);

/* Looks whether classes have names enough for what f still asks for, those that came left out; where they may not, that is refused. */
void object_check_names(Solver *e, Formula f, uint32_t alphabet, Term came);
bool object_exists(Solver *e, Formula f, uint32_t alphabet, const uint64_t *seen);
void object_step(Solver *e, Formula f, uint32_t alphabet, uint32_t key, Branches *out);

bool array_can_end(const Solver *e, Formula f);
bool array_exists(Solver *e, Formula f);
void array_step(Solver *e, Formula f, Branches *out);

/* Whether f asks for unique items; f after an item that is equal to what `value` says. */
bool array_is_unique(const Solver *e, Formula f);
Formula array_after_unique(Solver *e, Formula f, Formula value);

/* A state of the DFA of numbers: its phase in the low bits and, where numbers are spelled in one way (number.c), counters above. */
typedef uint32_t NumberState;
typedef enum NumberPhase {
    NUMBER_BEGIN,
    NUMBER_MINUS,
    NUMBER_ZERO,
    NUMBER_INTEGER,
    NUMBER_POINT,
    NUMBER_FRACTION,
    NUMBER_E,
    NUMBER_SIGN,
    NUMBER_EXPONENT
} NumberPhase;

enum { NUMBER_PHASES = 15, NUMBER_UNFINISHED = 16 /* it may not end here */ };

static inline NumberPhase number_phase(NumberState state)
{
    return (NumberPhase)(state & NUMBER_PHASES);
}

/* The transition of a number of which f is asked; NUMBER_DEAD: none. */
#define NUMBER_DEAD UINT32_MAX
NumberState number_step(Solver *e, Formula f, NumberState state, unsigned char byte);

static inline bool number_can_end(NumberState state)
{
    NumberPhase phase = number_phase(state);
    return !(state & NUMBER_UNFINISHED) && (phase == NUMBER_ZERO || phase == NUMBER_INTEGER ||
                                            phase == NUMBER_FRACTION || phase == NUMBER_EXPONENT);
}

bool number_is(Solver *e, Formula f, const char *text, size_t n);
bool number_exists(Solver *e, Formula f, NumberState state, const char *text, size_t n);

/* Whether numbers of this sign may be as far from 0 as one likes, so that all that has no exponent yet goes on. */
bool number_is_open(Solver *e, Formula f, bool negative);

/* Replaces a text by one that f makes no difference between, whatever follows; returns its length. */
size_t number_simplify(Solver *e, Formula f, NumberState state, char *text, size_t n);

/* Whether there are so many numbers. */
bool number_has(Solver *e, Formula f, uint32_t count);

/* Calls `each` for the conjunctions of atoms whose alternatives f is, until it returns true: returns whether it did. `possible` says of the
   first atoms of a conjunction whether others may make one of them for which `each` returns true, so that those that begin alike are left
   out together; NULL: that is not known. */
typedef bool TakeConjunction(Solver *, const Formula *atom, size_t n, void *);
bool each_conjunction(Solver *e, Formula f, TakeConjunction *each, TakeConjunction *possible,
                      void *data);

#endif
