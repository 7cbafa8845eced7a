/*
 * Regular expressions as ECMA-262 has them with its flag u, which is what JSON Schema's `pattern` means, as terms:
 *
 *     . \d \D \w \W \s \S \p{L} [a-z] [^…]   \n \cX \xHH \uHHHH \u{…}   (…) (?:…) (?<name>…) |   * + ? {m} {m,} {m,n}
 *     ^ $ \b \B (?=…) (?!…)   \1 \k<name> of groups that say one of few words
 *
 * A brace that begins no count is one, as without that flag. Refused by name: references to other groups, looking behind, looking around in
 * groups that are repeated and may be empty, properties other than those below. Of \p{…}, letters (L), numbers (N), decimal digits
 * (Nd) and blanks (Zs) are known.
 */
#ifndef CVN_CONSTRAIN_PATTERN_H
#define CVN_CONSTRAIN_PATTERN_H

#include "constrain/term.h"

enum {
    PATTERN_DEPTH = 200,  /* groups within groups */
    PATTERN_GROUPS = 200, /* that references may name */
    PATTERN_WORDS = 64,   /* of a group that is referred to */
    PATTERN_COPIES = 100, /* of a group that looks around, and is counted */
};

/* The texts that have a match in them; or, with `whole`, that are one. CVN_EFORMAT or CVN_EUNSUPPORTED says what is wrong
   with the expression. */
int pattern_term(TermTable *terms, const char *text, size_t n, bool whole, Term *out, cvn_err *err);

#endif
