/*
 * Regular languages over bytes, as terms whose derivatives are taken (Brzozowski 1964): what may follow after a byte is
 * again a term. Intersection and complement are terms like any other, which automata make hard and JSON Schema needs.
 *
 *     ab|ac   after 'a':  b|c      after 'b':  nothing more, and the end is allowed
 *
 * Equal terms have equal ids, so that states can be compared, and transitions are computed once:
 *
 *     bytes(set)   cat(a, b)   or(…)   and(…)   not(a)   rep(a, min, max)   language(functions)
 *
 * All languages are meant as sets of UTF-8 texts: `u` is where in a character a text stands (utf8_step), and a term is
 * alive where some end of it makes valid UTF-8. Bytes outside UTF-8 never get here.
 */
#ifndef CVN_CONSTRAIN_TERM_H
#define CVN_CONSTRAIN_TERM_H

#include "base/map.h"

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t Term;

enum {
    TERM_NONE = 0,  /* no text at all */
    TERM_EMPTY = 1, /* the empty text */
    TERM_ALL = 2,   /* every text */
};

#define TERM_MANY UINT32_MAX /* no upper bound of a repetition */

enum {
    TERM_LIMIT = 1000000, /* terms of one constraint */
    TERM_DEPTH = 3000,    /* how deep terms nest */
    TERM_WORK = 4000000,  /* steps of derivatives that one mask, or compiling, may take */
    TERM_SEARCH = 200000, /* states that are looked at to find whether a text exists */
};

typedef struct ByteSet {
    uint64_t bit[4];
} ByteSet;

static inline bool set_has(const ByteSet *set, unsigned char byte)
{
    return set->bit[byte >> 6] >> (byte & 63) & 1;
}

static inline void set_add(ByteSet *set, unsigned char byte)
{
    set->bit[byte >> 6] |= 1ull << (byte & 63);
}

typedef enum TermKind {
    TERM_K_NONE,
    TERM_K_EMPTY,
    TERM_K_ALL,
    TERM_K_BYTES,
    TERM_K_CAT,
    TERM_K_OR,
    TERM_K_AND,
    TERM_K_NOT,
    TERM_K_REP,
    TERM_K_LANGUAGE,
    TERM_K_LOOP,
} TermKind;

typedef struct TermNode {
    uint8_t kind;
    bool nullable;    /* contains the empty text */
    bool plain;       /* made without and, not: contains a text */
    uint8_t alive[2]; /* for each u, a bit: known to be live; known to be dead */
    uint8_t met;      /* for each u, a bit: visited by the search of this number */
    uint32_t search;
    uint32_t min, max; /* REP */
    uint32_t n;        /* of list */
    /* [n] CAT: two; OR, AND: sorted; NOT, REP, LOOP: one; LANGUAGE: the two halves of a pointer and a byte each of the text so far */
    const Term *list;
    ByteSet set; /* BYTES */
    /* [256] transitions (derivatives), UINT32_MAX where they are not computed yet; or NULL */
    Term *next;
} TermNode;

typedef struct TermTable {
    Arena *arena; /* borrowed */
    Map ids;      /* of a node's content */
    TermNode *node;
    uint32_t n;
    int depth;          /* of what is being computed */
    uint32_t searches;  /* that there were */
    uint64_t work;      /* since whoever owns them set it to 0 */
    const char *failed; /* the limit that was met, or NULL; then results mean nothing */
} TermTable;

void terms_init(TermTable *terms, Arena *arena);

Term term_bytes(TermTable *t, const ByteSet *set);
Term term_range(TermTable *t, unsigned char low, unsigned char high);
Term term_text(TermTable *t, const char *text, size_t n);
Term term_cat(TermTable *t, Term a, Term b);
Term term_or(TermTable *t, const Term *list, size_t n);
Term term_or2(TermTable *t, Term a, Term b);
Term term_and(TermTable *t, const Term *list, size_t n);
Term term_and2(TermTable *t, Term a, Term b);
Term term_not(TermTable *t, Term a);
Term term_rep(TermTable *t, Term a, uint32_t min, uint32_t max);

/* Characters of ranges of code points [low, high], two numbers each, sorted or not; surrogates are left out. */
Term term_points(TermTable *t, const uint32_t *range, size_t n_ranges);
Term term_any_character(TermTable *t);

/* A term that is defined by itself: term_loop is what stands for it within, of which it is said whether it contains the empty text, and
   term_loop_is says what it is, where that takes a byte before it comes to itself: else false. */
Term term_loop(TermTable *t, bool nullable);
bool term_loop_is(TermTable *t, Term loop, Term is);

/* A language that no expression tells, of texts of up to LANGUAGE_TEXT bytes. */
enum { LANGUAGE_TEXT = 255 };
typedef struct Language {
    bool (*has)(const struct Language *of, const char *text, size_t n);
    bool (*begins)(const struct Language *of, const char *text, size_t n); /* a text of it */
    uint32_t room; /* what begins is ended by so many bytes, or fewer */
    int is;        /* theirs */
} Language;
Term term_language(TermTable *t, const Language *of);

/* The Brzozowski derivative by a byte: the texts that may follow it. */
Term term_derivative(TermTable *t, Term a, unsigned char byte);
Term term_after(TermTable *t, Term a, const char *text, size_t n);
bool term_is_nullable(const TermTable *t, Term a);
bool term_matches(TermTable *t, Term a, const char *text, size_t n);

/* Whether the state is live: whether some text of the language follows, where a character has been begun as u says (utf8_step). */
bool term_is_live(TermTable *t, Term a, int u);

/* Whether a character between two code points may come next, and the rest after it. */
bool term_is_live_between(TermTable *t, Term a, uint32_t low, uint32_t high);

/* Up to `most` texts, as NUL-ended strings in the arena; more, or one longer than TERM_WORD bytes: most + 1 is returned. */
enum { TERM_WORD = 64 };
size_t term_words(TermTable *t, Term a, size_t most, const char **word, size_t *length);

/* How many texts there are; TERM_TEXTS: so many, or more, which is more than one text has room for. */
enum { TERM_TEXTS = 4000000 };
uint32_t term_count(TermTable *t, Term a);

/* The state after a byte, from state 0 between characters; -1 for a byte that cannot be there. */
int utf8_step(int u, unsigned char byte);

#endif
