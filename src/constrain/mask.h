/*
 * Masks: the tokens that may follow in a state. A state's mask is the union of those of its frames, and of a frame only
 * what depends on it is kept:
 *
 *     inside a string     the tokens that stay in it or end with its quote depend on the term of the rest only: they are
 *                         bits, shared by all strings of this term (StringMask). What follows the quote in a token is
 *                         in a small tree of its own, walked from the frame below: ", ": "} …
 *     elsewhere           a list, found by a walk through the vocabulary, of which structure lets few bytes through
 *
 * A repetition that a token cannot reach the end of is taken as one without end, so that the length of a string that is
 * far from its maximum makes no new masks.
 */
#ifndef CVN_CONSTRAIN_MASK_H
#define CVN_CONSTRAIN_MASK_H

#include "constrain/machine.h"
#include "constrain/vocabulary.h"

enum { MASK_BYTES = 64 << 20 }; /* of masks that are kept: more, and all are made anew */

typedef struct StringMask {
    uint32_t *bits;   /* [CVN_MASK_WORDS(n)] */
    TriePiece *piece; /* [tail.n_tokens] that it is made of, sorted */
    Trie tail;        /* what follows the quote, of tokens that go on behind it */
    uint32_t
        *exit; /* [n_exits] nodes of the vocabulary where the string ends and a token goes on */
    uint32_t n_exits;
    bool no_tails; /* they would be most of the vocabulary: tokens have to be walked whole */
    uint32_t *
        quote; /* [n_quotes] nodes where the string ends; of strings of which nothing is asked, as are */
    uint16_t *before; /* [n_quotes] characters before the quote */
    uint32_t n_quotes;
    uint16_t *characters; /* [tokens] that a token begins in the string, as far as it is in it */
} StringMask;

typedef struct FrameMask {
    const StringMask *string; /* or NULL */
    cvn_token *list;          /* [n] and these */
    uint32_t n;
    bool known;
} FrameMask;

typedef struct Masks {
    const cvn_vocabulary *vocabulary; /* borrowed */
    Map strings;                      /* (term, escape, raw) -> StringMask */
    StringMask **string;              /* [n_strings] owned */
    uint32_t n_strings;
    FrameMask *frame; /* [n_frames] */
    uint32_t n_frames;
    size_t bytes;
    Arena arena; /* of the map */
} Masks;

int masks_init(Masks *masks, const cvn_vocabulary *vocabulary, cvn_err *err);
void masks_free(Masks *masks);

/* Writes the mask of a state, without tokens that end a text. Failures are the machine's. */
void masks_fill(Masks *masks, Machine *m, uint32_t state, uint32_t *bits);

/* Of strings of which nothing is asked; made with the vocabulary. NULL: no memory. */
StringMask *string_mask_free_text(const cvn_vocabulary *vocabulary);
void string_mask_free(StringMask *mask);

#endif
