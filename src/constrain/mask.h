/*
 * Token masks: a bit for each token of the vocabulary, set where the token may follow in a state of the automaton. The mask of a state
 * is the union of the masks of its frames, which are cached by what they depend on:
 *
 *     inside a string     the tokens that stay in it or end with its quote depend on the term of the rest only: they are
 *                         bits, shared by all strings of this term (StringMask). What follows the quote in a token is
 *                         in a small tree of its own, walked from the frame below: ", ": "} …
 *     inside a number     the tokens that stay in it depend on what is asked and its text so far only: shared by all such
    before structure    blanks are tokens that are known; a list of what may follow them, found by a walk through those
                        tokens whose first byte may come
 *
 * In arrays of unique items what follows an item depends on all that was read, but nothing within it: its masks are those of the
 * item as if it stood alone, and tokens that go on behind it are tried one by one.
 *
 * A repetition that a token cannot reach the end of is taken as one without end, so that the length of a string that is
 * far from its maximum makes no new masks.
 */
#ifndef CVN_CONSTRAIN_MASK_H
#define CVN_CONSTRAIN_MASK_H

#include "constrain/automaton.h"
#include "constrain/string_mask.h"

enum { MASK_BYTES = 64 << 20 }; /* of masks that are kept: more, and all are made anew */

/* The tokens that may follow in a number: of one formula, text and NumberState. */
typedef struct NumberMask {
    cvn_token *list; /* [n] tokens that stay in the number; owned */
    uint32_t n;
    /* [n_exits] nodes of the vocabulary with the first byte behind the number; owned */
    uint32_t *exit;
    uint32_t n_exits;
    bool ends; /* the number may end before the next token */
} NumberMask;

typedef struct FrameMask {
    const uint32_t *bits;     /* [CVN_MASK_WORDS(n)], or NULL */
    const NumberMask *number; /* or NULL */
    uint32_t also;            /* a frame whose mask is to be added, or NO_FRAME */
    cvn_token *list;          /* [n] tokens besides those of bits; owned */
    uint32_t n;
    /* [n_named] with a whole name in them, of objects in which none may come again: tried each time; owned */
    cvn_token *named;
    uint32_t n_named;
    Trie left; /* tokens that go on behind the whole value */
    bool known;
} FrameMask;

typedef struct Masks {
    const cvn_vocabulary *vocabulary; /* borrowed */
    Map strings;                      /* (term, escape, raw) -> StringMask */
    StringMask **string;              /* [n_strings] owned */
    uint32_t n_strings;
    TextDfa dfa;         /* shared by the string masks */
    Map numbers;         /* (formula, text, phase) -> NumberMask */
    NumberMask **number; /* [n_numbers] owned */
    uint32_t n_numbers;
    FrameMask *frame; /* [n_frames] */
    uint32_t n_frames;
    size_t bytes;
    Arena arena; /* of the map */
} Masks;

int masks_init(Masks *masks, const cvn_vocabulary *vocabulary, cvn_err *err);
void masks_free(Masks *masks);

/* Whether all that a state's mask is made of is kept. */
bool masks_know(const Masks *masks, const Automaton *m, uint32_t state);

/* Writes the mask of a state, without tokens that end a text. Failures are the automaton's. */
void masks_fill(Masks *masks, Automaton *m, uint32_t state, uint32_t *bits);

#endif
