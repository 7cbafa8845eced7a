/*
 * Decimal numbers of any size, as JSON writes them and JSON Schema compares them: 1.0 is 1, 1e400 is no infinity, and
 * 0.0075 is a multiple of 0.0001, which in binary it is not.
 *
 *     -12.50e3       negative, digits "125", exp 2
 */
#ifndef CVN_CONSTRAIN_DECIMAL_H
#define CVN_CONSTRAIN_DECIMAL_H

#include "base/arena.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    DECIMAL_DIGITS = 1200,              /* of what is calculated with */
    DECIMAL_EXP_MAX = 1000000000,       /* exponents beyond are taken for this */
    DECIMAL_TEXT = DECIMAL_DIGITS + 64, /* characters of a number that is written */
};

typedef struct Decimal {
    bool negative;      /* never of zero */
    bool fraction;      /* written with a fraction or an exponent, were it 0 */
    const char *digits; /* [n] '0' to '9', neither beginning nor ending with '0' */
    int32_t n;          /* 0: zero */
    int64_t exp;        /* of the last digit */
} Decimal;

/* Of JSON's text of a number, or the beginning of one ("-", "1.", "1e"), which counts as if it ended there. */
Decimal decimal_read(Arena *arena, const char *text, size_t n);

/* As JSON.stringify writes a number: 12, 0.5, 1.5e+22; without rounding. Returns the length; no NUL follows. */
size_t decimal_write(const Decimal *d, char *out /* [DECIMAL_TEXT] */);

/* <0, 0, >0 */
int decimal_compare(const Decimal *a, const Decimal *b);

/* Whether a is a whole multiple of b, which is positive and has at most 18 digits. */
bool decimal_is_multiple(const Decimal *a, const Decimal *b);

/* The least number that is a multiple of both, which are positive. False where one of the three has more than 18 digits. */
bool decimal_common_multiple(Arena *arena, const Decimal *a, const Decimal *b, Decimal *out);

/* The least multiple of b that is >= a (> a where `above`), for a >= 0 and b as before. False where that needs more than
   DECIMAL_DIGITS digits. */
bool decimal_multiple_from(Arena *arena, const Decimal *a, const Decimal *b, bool above,
                           Decimal *out);

/* digits * 10^exp of n digits that may begin and end with zeros. */
Decimal decimal_of(Arena *arena, bool negative, const char *digits, size_t n, int64_t exp);

/* Where its first digit stands: 1 for 1 to 9.99, 2 for 10 to 99.9. Not for zero. */
static inline int64_t decimal_magnitude(const Decimal *d)
{
    return d->n + d->exp;
}

#endif
