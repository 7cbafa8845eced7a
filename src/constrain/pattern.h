/*
 * Regular expressions as ECMA-262 has them with its flag u, which is what JSON Schema's `pattern` means, as terms:
 *
 *     . \d \D \w \W \s \S \p{L} [a-z] [^…]   \n \cX \xHH \uHHHH \u{…}   (…) (?:…) (?<name>…) |   * + ? {m} {m,} {m,n}
 *     ^ $ (?=…) (?!…)   where they stand alone, in alternatives, or in a group that is there at most once
 *
 * Refused by name: references to groups, \b, lookbehind, ^ behind what may be empty, properties other than those below.
 * Of \p{…}, letters (L), numbers (N) and decimal digits (Nd) are known.
 */
#ifndef CVN_CONSTRAIN_PATTERN_H
#define CVN_CONSTRAIN_PATTERN_H

#include "constrain/term.h"

enum { PATTERN_DEPTH = 200 }; /* groups within groups */

/* The texts that have a match in them; or, with `whole`, that are one. CVN_EFORMAT or CVN_EUNSUPPORTED says what is wrong
   with the expression. */
int pattern_term(Terms *terms, const char *text, size_t n, bool whole, Term *out, cvn_err *err);

#endif
