/*
 * Numbers, exactly. A text that has begun can become any number that starts with its digits, at any power of ten, since
 * an exponent may follow; one whose exponent has begun has its digits, and the powers of ten that begin so.
 *
 *     12      [12, 13), [120, 130), [1.2, 1.3), …       1.2e1     12, 1.2e10 to 1.2e19, 1.2e100 …
 *
 * Whether one of them fulfils what is asked is a question about intervals and the multiples in them.
 *
 * Where a text is being written (`Solver.canonical`), integers are digits alone: 12 goes on with the powers of ten from 0 up; and other
 * numbers are written in one way, as JSON.stringify writes them: 1.5, never 1.50 or 15e-1, 1e-7, never 0.0000001. Those that are listed are
 * written so whatever they are; of others those that have up to 15 digits, since a double of up to 15 digits is never written with
 * fewer or others. Where bounds leave none of these, numbers are written as one likes.
 */
#include "base/num.h"
#include "constrain/solve.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TRIED_MULTIPLES = 1000,
    NUMBER_REACH = 64, /* digits of bounds and units of integers that are written by digits alone */
};

/* The largest power of ten that makes a difference to an atom of f. */
static int64_t reach(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    int64_t most = 0;
    for (uint32_t i = 0; i < f->n; i++)
        most = num_max(most, reach(e, f->list[i]));
    if (f->kind == F_K_NUMBER)
        most = llabs(e->decimals.decimal[f->b].exp) + e->decimals.decimal[f->b].n;
    return most;
}

/* The number that a conjunction says its numbers are, by bounds that are equal; or NULL. */
static const Decimal *only_value(const Solver *e, const FormulaNode *f)
{
    for (uint32_t i = 0; i < f->n; i++) {
        const FormulaNode *low = &e->formulas.node[f->list[i]];
        for (uint32_t k = 0; k < f->n && low->kind == F_K_NUMBER && low->a == NUMBER_GE; k++) {
            const FormulaNode *high = &e->formulas.node[f->list[k]];
            if (high->kind == F_K_NUMBER && high->a == NUMBER_LE && high->b == low->b)
                return &e->decimals.decimal[low->b];
        }
    }
    return NULL;
}

/* Whether f says of all its numbers that they are integers: multiples of one, or equal to one. */
static bool is_integer(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    bool all = f->kind == F_K_OR;
    if (f->kind == F_K_NUMBER)
        return f->a == NUMBER_DIGITS ||
               (f->a == NUMBER_MULTIPLE && e->decimals.decimal[f->b].exp >= 0);
    if (f->kind != F_K_AND && !all)
        return false;
    const Decimal *only = all ? NULL : only_value(e, f);
    if (only && only->exp >= 0)
        return true;
    for (uint32_t i = 0; i < f->n; i++)
        if (is_integer(e, f->list[i]) != all)
            return !all;
    return all;
}

/* Whether numbers are written by their digits alone; not where they are so large that a text has no room for them. */
static bool has_digits_only(const Solver *e, Formula f)
{
    return e->spelling.canonical && is_integer(e, f) && reach(e, f) <= NUMBER_REACH;
}

static bool holds(const Solver *e, Formula of, const Decimal *value)
{
    const FormulaNode *f = &e->formulas.node[of];
    if (f->kind == F_K_AND || f->kind == F_K_OR) {
        bool all = f->kind == F_K_AND;
        for (uint32_t i = 0; i < f->n; i++)
            if (holds(e, f->list[i], value) != all)
                return !all;
        return all;
    }
    if (f->kind != F_K_NUMBER)
        return of == F_TRUE;
    const Decimal *bound = &e->decimals.decimal[f->b];
    int order = decimal_compare(value, bound);
    switch ((NumberOp)f->a) {
    case NUMBER_GE:
        return order >= 0;
    case NUMBER_GT:
        return order > 0;
    case NUMBER_LE:
        return order <= 0;
    case NUMBER_LT:
        return order < 0;
    case NUMBER_NE:
        return order != 0;
    case NUMBER_MULTIPLE:
        return decimal_is_multiple(value, bound);
    case NUMBER_NO_MULTIPLE:
        return !decimal_is_multiple(value, bound);
    case NUMBER_DIGITS:
    case NUMBER_NO_DIGITS:
        return (value->exp >= 0 && !value->fraction) == (f->a == NUMBER_DIGITS);
    }
    return false;
}

/* The number that `text` begins, or is, where numbers are listed. */
typedef struct Listed {
    Formula all; /* what is asked of it besides being listed */
    const char *text;
    size_t n;
    bool whole; /* the text is the number, not its beginning */
    bool found;
} Listed;

/* Looks for the number among those that f lists. False where f lists none. */
static bool find_listed(const Solver *e, Formula of, Listed *look)
{
    const FormulaNode *f = &e->formulas.node[of];
    const Decimal *value = f->kind == F_K_AND ? only_value(e, f) : NULL;
    bool lists = f->kind == F_K_OR;
    if (value) {
        char text[DECIMAL_TEXT];
        size_t n = decimal_write(value, text);
        bool is = look->n <= n && (!look->whole || look->n == n) &&
                  memcmp(text, look->text, look->n) == 0;
        look->found = look->found || (is && holds(e, look->all, value));
        return true;
    }
    for (uint32_t i = 0; (f->kind == F_K_AND || f->kind == F_K_OR) && i < f->n; i++)
        if (find_listed(e, f->list[i], look) != lists)
            return !lists;
    return lists;
}

/* Whether f lists all its numbers. */
static bool is_listed(const Solver *e, Formula f)
{
    return find_listed(e, f, &(Listed){f, "", 0, false, false});
}

/* The next phase of a number that is written as one likes. */
static NumberState free_step(NumberPhase phase, unsigned char byte)
{
    bool digit = byte >= '0' && byte <= '9';
    switch (phase) {
    case NUMBER_BEGIN:
        if (byte == '-')
            return NUMBER_MINUS;
        /* fall through */
    case NUMBER_MINUS:
        return byte == '0' ? NUMBER_ZERO : digit ? NUMBER_INTEGER : NUMBER_DEAD;
    case NUMBER_ZERO:
    case NUMBER_INTEGER:
        if (digit)
            return phase == NUMBER_INTEGER ? NUMBER_INTEGER : NUMBER_DEAD;
        return byte == '.' ? NUMBER_POINT : (byte | 32) == 'e' ? NUMBER_E : NUMBER_DEAD;
    case NUMBER_POINT:
        return digit ? NUMBER_FRACTION : NUMBER_DEAD;
    case NUMBER_FRACTION:
        return digit ? NUMBER_FRACTION : (byte | 32) == 'e' ? NUMBER_E : NUMBER_DEAD;
    case NUMBER_E:
        if (byte == '+' || byte == '-')
            return NUMBER_SIGN;
        /* fall through */
    case NUMBER_SIGN:
    case NUMBER_EXPONENT:
        return digit ? NUMBER_EXPONENT : NUMBER_DEAD;
    }
    return NUMBER_DEAD;
}

/* What a state says besides its phase, where numbers are spelled in one way. */
enum {
    SPELLED_LEADING = 1 << 5, /* 0.00: no digit but 0 is there */
    SPELLED_ONE =
        1 << 6, /* one digit stands before the point, and it is not 0: an exponent may come */
    SPELLED_NEGATIVE = 1 << 7, /* of the exponent */
    SPELLED_COUNT =
        8, /* bits from here on: digits that are there, zeros where LEADING; the exponent */
    SPELLED_DIGITS = 15,   /* which every double tells apart */
    SPELLED_PLAIN = 21,    /* digits of integers without an exponent */
    SPELLED_ZEROS = 5,     /* behind the point of numbers without an exponent */
    SPELLED_LARGEST = 307, /* exponent, of either sign */
};

/* The least exponent that numbers are written with. */
static uint32_t least_exponent(bool negative)
{
    return negative ? SPELLED_ZEROS + 2 : SPELLED_PLAIN;
}

static NumberState number_state(uint32_t phase, uint32_t count)
{
    return phase | count << SPELLED_COUNT;
}

/* The next state of a number that is written as JSON.stringify writes it. */
static NumberState spelled_step(NumberState state, unsigned char byte)
{
    const uint32_t count = state >> SPELLED_COUNT, digit = (uint32_t)byte - '0';
    const bool is_digit = digit < 10, exponent = byte == 'e';
    switch (number_phase(state)) {
    case NUMBER_BEGIN:
        if (byte == '-')
            return NUMBER_MINUS;
        return !is_digit ? NUMBER_DEAD : digit ? number_state(NUMBER_INTEGER, 1) : NUMBER_ZERO;
    case NUMBER_MINUS: /* -0 is written 0 */
        return !is_digit ? NUMBER_DEAD
               : digit   ? number_state(NUMBER_INTEGER, 1)
                         : NUMBER_ZERO | NUMBER_UNFINISHED;
    case NUMBER_ZERO:
        return byte == '.' ? NUMBER_POINT | SPELLED_LEADING : NUMBER_DEAD;
    case NUMBER_INTEGER:
        if (is_digit && (count < SPELLED_DIGITS || (digit == 0 && count < SPELLED_PLAIN)))
            return number_state(NUMBER_INTEGER, count + 1);
        if (byte == '.' && count < SPELLED_DIGITS)
            return number_state(NUMBER_POINT | (count == 1 ? SPELLED_ONE : 0), count);
        return exponent && count == 1 ? NUMBER_E : NUMBER_DEAD;
    case NUMBER_POINT:
    case NUMBER_FRACTION:
        if (exponent)
            return state & SPELLED_ONE && number_can_end(state) ? NUMBER_E : NUMBER_DEAD;
        if (!is_digit)
            return NUMBER_DEAD;
        if (state & SPELLED_LEADING && !digit)
            return count < SPELLED_ZEROS
                       ? number_state(NUMBER_FRACTION | NUMBER_UNFINISHED | SPELLED_LEADING,
                                      count + 1)
                       : NUMBER_DEAD;
        if (state & SPELLED_LEADING)
            return number_state(NUMBER_FRACTION, 1);
        return count + !digit < SPELLED_DIGITS
                   ? number_state(NUMBER_FRACTION | (state & SPELLED_ONE) |
                                      (digit ? 0 : NUMBER_UNFINISHED),
                                  count + 1)
                   : NUMBER_DEAD;
    case NUMBER_E:
        return byte == '+'   ? NUMBER_SIGN
               : byte == '-' ? NUMBER_SIGN | SPELLED_NEGATIVE
                             : NUMBER_DEAD;
    case NUMBER_SIGN:
    case NUMBER_EXPONENT: {
        const uint32_t power = count * 10 + digit, least = least_exponent(state & SPELLED_NEGATIVE);
        if (!is_digit || !power || power > SPELLED_LARGEST)
            return NUMBER_DEAD;
        return number_state(NUMBER_EXPONENT | (state & SPELLED_NEGATIVE) |
                                (power < least ? NUMBER_UNFINISHED : 0),
                            power);
    }
    }
    return NUMBER_DEAD;
}

static bool is_spelled(Solver *e, Formula f);

NumberState number_step(Solver *e, Formula f, NumberState state, unsigned char byte)
{
    const NumberPhase phase = number_phase(state);
    const bool digit = byte >= '0' && byte <= '9';
    if (is_spelled(e, f))
        return spelled_step(state, byte);
    bool zero = phase == NUMBER_MINUS && byte == '0'; /* -0 is 0 */
    if ((zero || ((phase == NUMBER_ZERO || phase == NUMBER_INTEGER) && !digit)) &&
        has_digits_only(e, f))
        return NUMBER_DEAD;
    return free_step(phase, byte);
}

bool number_is(Solver *e, Formula f, const char *text, size_t n)
{
    if (f == F_TRUE)
        return true;
    Listed look = {f, text, n, true, false};
    if (e->spelling.canonical && find_listed(e, f, &look))
        return look.found;
    Decimal value = decimal_read(&e->arena, text, n);
    return holds(e, f, &value);
}

/* Sizes, without their sign. */
typedef struct Interval {
    Decimal low, high;
    bool low_open, high_open, bounded;
} Interval;

static void raise_low(Interval *i, const Decimal *value, bool open)
{
    int order = decimal_compare(value, &i->low);
    if (order > 0)
        i->low = *value;
    i->low_open = order > 0 ? open : i->low_open || (order == 0 && open);
}

static void lower_high(Interval *i, const Decimal *value, bool open)
{
    int order = i->bounded ? decimal_compare(value, &i->high) : -1;
    if (order < 0)
        i->high = *value;
    i->high_open = order < 0 ? open : i->high_open || (order == 0 && open);
    i->bounded = true;
}

typedef struct Begun {
    NumberPhase phase;
    bool negative;
    bool spelled;       /* the numbers that are looked for are written in one way; and then: */
    bool longer;        /* a digit that is not 0 has to follow */
    int64_t before;     /* digits before the point, 0: the digit 0 */
    int64_t zeros;      /* of a number below 1, behind the point and before any other digit */
    const char *digits; /* [n] of its significand, without leading zeros */
    size_t n;
    int64_t room;  /* for so many digits; -1: for points and exponents, too */
    bool fraction; /* the numbers that are looked for are written with one, or an exponent */
    Formula f;
    Decimal *found; /* the number that was found, where it matters; NULL else */
    bool *dense;    /* with found: as many as one likes are there */
} Begun;

/* Whether a number in the interval is wanted: f holds for it; all wanted are multiples of *unit, where there is one. */
static bool wanted_in(Solver *e, const Begun *b, const Interval *i, const Decimal *unit)
{
    int order = i->bounded ? decimal_compare(&i->low, &i->high) : -1;
    Decimal value = i->low;
    value.fraction = b->fraction;
    solver_work(e, 4);
    if (order > 0 || (order == 0 && (i->low_open || i->high_open)))
        return false;
    if (order < 0 && !unit && b->dense)
        *b->dense = true;
    if (order < 0 && !unit)
        return true; /* too many for single numbers and multiples of another to be all of them */
    if (order == 0) {
        if (b->spelled && value.n > SPELLED_DIGITS)
            return false;
        value.negative = b->negative && value.n;
        if (b->found)
            *b->found = value;
        return holds(e, b->f, &value);
    }
    bool above = i->low_open;
    for (int tried = 0; tried < TRIED_MULTIPLES; tried++, above = true) {
        if (!decimal_multiple_from(&e->arena, &value, unit, above, &value))
            return solver_fail(e, "bounds and multipleOf have too many digits"), false;
        order = i->bounded ? decimal_compare(&value, &i->high) : -1;
        if (order > 0 || (order == 0 && i->high_open))
            return false;
        Decimal number = value;
        number.fraction = b->fraction;
        number.negative = b->negative && value.n;
        if (b->found)
            *b->found = number;
        if (holds(e, b->f, &number))
            return true;
        solver_work(e, 4);
    }
    return solver_fail(e, "this combination of multipleOf is not supported"), false;
}

static Interval cut(Solver *e, const Interval *whole, const Begun *b, int64_t power)
{
    Interval i = *whole;
    char digits[NUMBER_TEXT + 2];
    size_t n = b->n;
    Decimal low = decimal_of(&e->arena, false, b->digits, n, power);
    memcpy(digits + 1, b->digits, n);
    digits[0] = '0';
    size_t at = n;
    for (; digits[at] == '9'; at--)
        digits[at] = '0';
    digits[at]++;
    Decimal high = decimal_of(&e->arena, false, digits, n + 1, power);
    raise_low(&i, &low, false);
    lower_high(&i, &high, true);
    return i;
}

/* Whether what has begun may become a number of a magnitude. */
static bool reaches(const Begun *b, int64_t magnitude)
{
    const bool plain = magnitude >= -SPELLED_ZEROS && magnitude <= SPELLED_PLAIN;
    const int64_t n = (int64_t)b->n;
    if (b->phase <= NUMBER_MINUS)
        return true;
    if (b->phase == NUMBER_INTEGER)
        return plain ? magnitude >= n : n == 1;
    if (b->before)
        return plain ? magnitude == b->before : b->before == 1;
    return plain && (b->n ? magnitude == -b->zeros : magnitude <= -b->zeros);
}

/* Whether a number in the interval is wanted that begins so and is written in one way, magnitude by magnitude: of each the numbers of up to
   SPELLED_DIGITS digits are the multiples of a power of ten. */
static bool spelled_in(Solver *e, const Begun *b, const Interval *whole, const Decimal *unit)
{
    const bool zero = !b->negative && (b->phase == NUMBER_BEGIN || b->phase == NUMBER_ZERO);
    int64_t first = whole->low.n ? decimal_magnitude(&whole->low) : -SPELLED_LARGEST + 1;
    int64_t last = !whole->bounded ? SPELLED_LARGEST + 1
                   : whole->high.n ? decimal_magnitude(&whole->high)
                                   : first - 1;
    if (zero && !whole->low.n && !whole->low_open && holds(e, b->f, &(Decimal){0}))
        return true;
    first = num_max(first, -SPELLED_LARGEST + 1);
    last = num_min(last, SPELLED_LARGEST + 1);
    for (int64_t at = first; at <= last && solver_work(e, 1); at++) {
        if (!reaches(b, at))
            continue;
        Interval i = *whole;
        int64_t n = b->n ? (int64_t)b->n : 1;
        Decimal low = decimal_of(&e->arena, false, b->n ? b->digits : "1", (size_t)n, at - n), both,
                high = decimal_of(&e->arena, false, "1", 1, at),
                digit = decimal_of(&e->arena, false, "1", 1, at - SPELLED_DIGITS);
        if (b->n) {
            i = cut(e, whole, b, at - (int64_t)b->n);
            raise_low(&i, &low, b->longer);
        } else {
            raise_low(&i, &low, false);
            lower_high(&i, &high, true);
        }
        if (!unit || decimal_common_multiple(&e->arena, unit, &digit, &both))
            if (wanted_in(e, b, &i, unit ? &both : &digit))
                return true;
    }
    return false;
}

static bool conjunction_exists(Solver *e, const Formula *atom, size_t n, void *data)
{
    const Begun *b = data;
    Interval whole = {.low = {0}, .low_open = b->room >= 0 && b->phase == NUMBER_MINUS};
    const Decimal *unit = NULL;
    Decimal common;
    for (size_t i = 0; i < n; i++) {
        const FormulaNode *f = &e->formulas.node[atom[i]];
        if (f->kind != F_K_NUMBER)
            continue;
        const Decimal *value = &e->decimals.decimal[f->b];
        Decimal size = *value;
        size.negative = value->n && value->negative != b->negative;
        bool low = f->a == NUMBER_GE || f->a == NUMBER_GT,
             open = f->a == NUMBER_GT || f->a == NUMBER_LT;
        if (f->a == (b->fraction ? NUMBER_DIGITS : NUMBER_NO_DIGITS) &&
            (b->fraction || b->room >= 0))
            return false;
        if ((f->a == NUMBER_MULTIPLE || f->a == NUMBER_DIGITS) &&
            !decimal_common_multiple(&e->arena, unit ? unit : value, value, &common))
            return solver_fail(e, "values of multipleOf without a common multiple of at most 18 "
                                  "digits are not supported"),
                   false;
        if (f->a == NUMBER_MULTIPLE || f->a == NUMBER_DIGITS)
            unit = &common;
        if (f->a >= NUMBER_NE)
            continue;
        if (low != b->negative)
            raise_low(&whole, &size, open);
        else
            lower_high(&whole, &size, open);
    }
    for (size_t i = 0; i < n && unit; i++) {
        const FormulaNode *f = &e->formulas.node[atom[i]];
        if (f->kind == F_K_NUMBER && f->a == NUMBER_NO_MULTIPLE &&
            decimal_is_multiple(unit, &e->decimals.decimal[f->b]))
            return false;
    }
    if (whole.bounded && whole.high.negative)
        return false;
    if (b->spelled)
        return spelled_in(e, b, &whole, unit);
    if (!b->n)
        return (b->room < 0 || b->phase != NUMBER_ZERO) && wanted_in(e, b, &whole, unit);
    int64_t digits = (int64_t)b->n, unit_size = unit ? decimal_magnitude(unit) : 0;
    int64_t low = whole.low.n ? decimal_magnitude(&whole.low) : INT64_MIN;
    if (!unit && (!whole.bounded || (!whole.low.n && whole.high.n)))
        return true;
    if (whole.bounded && !whole.high.n)
        return false;
    if (!whole.bounded && b->room < 0) {
        Interval i =
            cut(e, &whole, b, num_max(low == INT64_MIN ? 0 : low - digits + 1, unit_size) + 1);
        return wanted_in(e, b, &i, unit);
    }
    int64_t first = (unit ? num_max(low, unit_size) : low) - digits - 1;
    int64_t last = whole.bounded ? decimal_magnitude(&whole.high) - digits + 1 : b->room;
    if (b->room >= 0) {
        first = 0;
        last = num_min(last, b->room);
    }
    for (int64_t power = first; power <= last; power++) {
        Interval i = cut(e, &whole, b, power);
        if (wanted_in(e, b, &i, unit))
            return true;
    }
    return false;
}

/* Whether an exponent that begins with these digits ("" and 0: any) can be j. */
static bool can_become(int64_t j, int sign, const char *digits, size_t n)
{
    char text[24];
    if ((sign > 0 && j < 0) || (sign < 0 && j > 0))
        return false;
    while (n && *digits == '0') {
        digits++;
        n--;
    }
    int length = snprintf(text, sizeof text, "%lld", llabs((long long)j));
    return n == 0 || (n <= (size_t)length && memcmp(text, digits, n) == 0);
}

/* Whether f makes a difference between 1 and 1.0. */
static bool tells_spellings(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    for (uint32_t i = 0; i < f->n; i++)
        if (tells_spellings(e, f->list[i]))
            return true;
    return f->kind == F_K_NUMBER && f->a >= NUMBER_DIGITS;
}

static bool either_sign(Solver *e, Formula f, Begun *b, bool begins)
{
    bool negative = b->negative, exists = each_conjunction(e, f, conjunction_exists, NULL, b);
    b->negative = true;
    exists = exists || (begins && each_conjunction(e, f, conjunction_exists, NULL, b));
    b->negative = negative;
    return exists;
}

/* The number that a text has begun, as far as its exponent. */
static void begin(Begun *b, char *digits /* [NUMBER_TEXT] */, const char *text, size_t n)
{
    bool point = false;
    b->negative = n && text[0] == '-';
    b->digits = digits;
    for (size_t i = b->negative; i < n; i++) {
        point = point || text[i] == '.';
        if (text[i] < '0' || text[i] > '9')
            continue;
        if (b->n || text[i] != '0')
            digits[b->n++] = text[i];
        else
            b->zeros += point;
        b->before += !point && b->n;
    }
    b->longer = point && (text[n - 1] == '.' || text[n - 1] == '0');
}

/* Whether all numbers of a sign, and 0, fulfil f. */
static bool holds_for_all(const Solver *e, Formula of, bool negative)
{
    const FormulaNode *f = &e->formulas.node[of];
    const bool all = f->kind == F_K_AND;
    for (uint32_t i = 0; (all || f->kind == F_K_OR) && i < f->n; i++)
        if (holds_for_all(e, f->list[i], negative) != all)
            return !all;
    if (f->kind != F_K_NUMBER)
        return all || of == F_TRUE;
    const Decimal *bound = &e->decimals.decimal[f->b];
    const bool low = f->a == NUMBER_GE || f->a == NUMBER_GT,
               open = f->a == NUMBER_GT || f->a == NUMBER_LT;
    if (f->a >= NUMBER_NE || low == negative)
        return false;
    return bound->n ? bound->negative == low : !open;
}

/* Whether a number that is written in one way goes on from a text. */
static bool spelled_exists(Solver *e, Formula f, NumberState state, const char *text, size_t n)
{
    char digits[NUMBER_TEXT];
    /* A text that has begun is empty where number_simplify left nothing of it. */
    if (state != NUMBER_BEGIN && holds_for_all(e, f, n && text[0] == '-'))
        return true;
    if (number_phase(state) < NUMBER_E) {
        Begun b = {.phase = number_phase(state), .spelled = true, .room = -1, .f = f};
        begin(&b, digits, text, n);
        return either_sign(e, f, &b, b.phase == NUMBER_BEGIN);
    }
    size_t at = 0;
    while (text[at] != 'e')
        at++;
    const Decimal value = decimal_read(&e->arena, text, at++);
    const char *power = text + at + (at < n);
    for (int sign = -1; sign <= 1; sign += 2)
        for (int64_t j = least_exponent(sign < 0); j <= SPELLED_LARGEST && solver_work(e, 1) &&
                                                   (at == n || (text[at] == '-') == (sign < 0));
             j++) {
            Decimal scaled = value;
            scaled.exp += sign * j;
            if (can_become(sign * j, sign, power, (size_t)(text + n - power)) &&
                holds(e, f, &scaled))
                return true;
        }
    return false;
}

/* Whether texts of numbers are those of JSON.stringify: where that is asked, and leaves a number. */
static bool is_spelled(Solver *e, Formula f)
{
    if (e->spelling.canonical && e->formulas.node[f].spelled < 0) {
        e->formulas.node[f].spelled = false;
        bool is = !has_digits_only(e, f) && !is_listed(e, f) && !tells_spellings(e, f) &&
                  spelled_exists(e, f, NUMBER_BEGIN, "", 0);
        e->formulas.node[f].spelled = is;
    }
    return e->spelling.canonical && e->formulas.node[f].spelled;
}

static bool exponent_exists(Solver *e, Formula f, const char *text, size_t n)
{
    size_t at = 0;
    while ((text[at] | 32) != 'e')
        at++;
    Decimal value = decimal_read(&e->arena, text, at);
    value.fraction = true;
    at++;
    int sign = at < n && text[at] == '-' ? -1 : at < n ? 1 : 0;
    at += at < n && (text[at] == '-' || text[at] == '+');
    if (!value.n)
        return holds(e, f, &value);
    int64_t most = 64 + reach(e, f) + llabs(value.exp) + value.n;
    for (int64_t j = -most - 1; j <= most + 1; j++) {
        Decimal scaled = value;
        scaled.exp += j;
        bool far = llabs(j) > most; /* stands for all that are further */
        if (far ? sign != (j < 0 ? 1 : -1) : can_become(j, sign, text + at, n - at))
            if (holds(e, f, &scaled))
                return true;
        solver_work(e, 1);
    }
    return false;
}

bool number_exists(Solver *e, Formula f, NumberState state, const char *text, size_t n)
{
    const NumberPhase phase = number_phase(state);
    if (f <= F_TRUE)
        return f;
    if (n > NUMBER_TEXT)
        return false;
    Listed look = {f, text, n, false, false};
    if (e->spelling.canonical && find_listed(e, f, &look))
        return look.found;
    if (is_spelled(e, f))
        return spelled_exists(e, f, state, text, n);
    Decimal value = decimal_read(&e->arena, text, n);
    bool only = has_digits_only(e, f);
    if (!(only && phase == NUMBER_MINUS) && holds(e, f, &value)) /* by zeros, if it may not end */
        return true;
    const FormulaNode *node = &e->formulas.node[f];
    if (!only && phase < NUMBER_E && node->kind == F_K_NUMBER && node->a == NUMBER_MULTIPLE)
        return true; /* by an exponent, if need be */
    if (phase >= NUMBER_E)
        return exponent_exists(e, f, text, n);
    char digits[NUMBER_TEXT];
    Begun b = {.phase = phase, .room = only ? NUMBER_TEXT - (int64_t)n : -1, .f = f};
    begin(&b, digits, text, n);
    bool tells = tells_spellings(e, f), begins = phase == NUMBER_BEGIN;
    if (tells && phase < NUMBER_POINT && !only) { /* by digits alone, or with more */
        b.room = NUMBER_TEXT - (int64_t)n;
        if (either_sign(e, f, &b, begins))
            return true;
        b.room = -1;
    }
    b.fraction = tells && !only;
    return either_sign(e, f, &b, begins);
}

/* Numbers that may not be are too few to matter. */
bool number_is_open(Solver *e, Formula of, bool negative)
{
    if (is_spelled(e, of))
        return holds_for_all(e, of, negative);
    if (has_digits_only(e, of))
        return false; /* a text that begins with 0 has ended, and there is less room */
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_AND ? f->n : 1, multiples = 0;
    const Formula *list = f->kind == F_K_AND ? f->list : &of;
    for (uint32_t i = 0; f->kind == F_K_OR && i < f->n; i++)
        if (number_is_open(e, f->list[i], negative))
            return true;
    for (uint32_t i = 0; i < n; i++) {
        const FormulaNode *atom = &e->formulas.node[list[i]];
        bool low = atom->a == NUMBER_GE || atom->a == NUMBER_GT;
        multiples += atom->kind == F_K_NUMBER && atom->a == NUMBER_MULTIPLE;
        if (atom->kind != F_K_NUMBER || atom->a > NUMBER_MULTIPLE ||
            (atom->a < NUMBER_NE && low == negative))
            return false;
    }
    return multiples <= 1;
}

/* Of integers, and of bounds at 0, a text says three things: its sign, whether it is zero, and how many zeros it ends
   with. So digits are replaced by others, and texts that say the same are the same. */
static bool asks_little(const Solver *e, Formula of)
{
    const FormulaNode *f = &e->formulas.node[of];
    uint32_t n = f->kind == F_K_AND ? f->n : 1;
    const Formula *list = f->kind == F_K_AND ? f->list : &of;
    bool whole = false, from_one = false;
    for (uint32_t i = 0; i < n; i++) {
        const FormulaNode *atom = &e->formulas.node[list[i]];
        if (atom->kind != F_K_NUMBER)
            return false;
        const Decimal *value = &e->decimals.decimal[atom->b];
        bool one = value->n == 1 && value->digits[0] == '1' && !value->exp && !value->negative;
        if (one && (atom->a == NUMBER_MULTIPLE || atom->a == NUMBER_DIGITS))
            whole = true;
        else if (atom->a == NUMBER_GE && one)
            from_one = true;
        else if (atom->a > NUMBER_LT || value->n)
            return false;
    }
    return whole || !from_one;
}

size_t number_simplify(Solver *e, Formula f, NumberState state, char *text, size_t n)
{
    const NumberPhase phase = number_phase(state);
    if (is_spelled(e, f))
        return phase < NUMBER_E && holds_for_all(e, f, text[0] == '-') ? text[0] == '-' : n;
    Listed look = {f, text, n, false, false};
    if (phase >= NUMBER_E || phase < NUMBER_ZERO || !asks_little(e, f) ||
        (e->spelling.canonical && find_listed(e, f, &look)))
        return n;
    size_t begin = n && text[0] == '-', point = begin, out = begin;
    while (point < n && text[point] != '.')
        point++;
    size_t last = n; /* digit of the fraction that is not 0 */
    for (size_t i = point; i < n; i++)
        if (text[i] >= '1' && text[i] <= '9')
            last = i;
    size_t zeros = 0;
    while (point - zeros > begin + 1 && text[point - zeros - 1] == '0')
        zeros++;
    bool zero = text[begin] == '0';
    text[out++] = zero && last == n ? '0' : '1';
    for (size_t i = 0; i < zeros && last == n; i++)
        text[out++] = '0';
    for (size_t i = point; i < n; i++)
        text[out++] = text[i] == '.' ? '.' : i == last ? '1' : '0';
    return out;
}

bool number_has(Solver *e, Formula f, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        Decimal found = {0};
        bool dense = f == F_TRUE;
        Begun b = {.phase = NUMBER_BEGIN,
                   .room = -1,
                   .digits = "",
                   .f = f,
                   .found = &found,
                   .dense = &dense};
        bool exists = f == F_TRUE || (f != F_FALSE && either_sign(e, f, &b, true));
        b.fraction = true;
        exists = exists || (f != F_FALSE && tells_spellings(e, f) && either_sign(e, f, &b, true));
        if (!exists || dense)
            return exists;
        f = f_and2(e, f, f_number(e, NUMBER_NE, &found));
    }
    return true;
}
