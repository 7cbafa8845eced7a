/*
 * The inside of a JSON string: bytes, and escapes that stand for characters. Where in an escape a text is, is one number:
 *
 *     "aé\u00e9\ud83d\ude00"     plain: bytes as they are, with where in a character of UTF-8 (utf8_step) they are
 *
 * Halves of surrogate pairs that stand alone mean no character, and are not let in.
 *
 * Canonical strings are written as JSON.stringify writes them, each character in one way: as it is, but for the quote, the backslash
 * and control characters, which are escaped by a letter where there is one (\b \f \n \r \t), else as \u00 and two lower-case digits.
 */
#ifndef CVN_CONSTRAIN_ESCAPE_H
#define CVN_CONSTRAIN_ESCAPE_H

#include "constrain/term.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct Escaped {
    uint32_t state;
    bool end;              /* the string's closing quote */
    unsigned char byte[4]; /* [n] of the characters that this byte completes */
    int n;
} Escaped;

/* From state 0. False for a byte that cannot be there. */
bool escape_step(uint32_t state, unsigned char byte, bool canonical, Escaped *out);

bool escape_is_plain(uint32_t state);
int escape_u(uint32_t state); /* of a plain state, for utf8_step */

/* The code points that an escape that has begun may stand for, in up to three parts, which may be empty; false past the last. */
bool escape_points(uint32_t state, int part, bool canonical, uint32_t *low, uint32_t *high);

/* Whether a string of which the term is asked can go on in this state of an escape. */
bool live_in_string(TermTable *t, Term term, uint32_t escape, bool canonical);

/* Whether UTF-8 text begins with a code point in the range. */
bool name_has_point(const char *text, size_t n, uint32_t low, uint32_t high);

#endif
