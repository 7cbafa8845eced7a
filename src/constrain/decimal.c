#include "constrain/decimal.h"

#include "base/num.h"

#include <stdio.h>
#include <string.h>

Decimal decimal_of(Arena *arena, bool negative, const char *digits, size_t n, int64_t exp)
{
    while (n && *digits == '0') {
        digits++;
        n--;
    }
    while (n && digits[n - 1] == '0') {
        n--;
        exp++;
    }
    if (!n)
        return (Decimal){0};
    return (Decimal){
        .negative = negative, .digits = arena_copy(arena, digits, n), .n = (int32_t)n, .exp = exp};
}

Decimal decimal_read(Arena *arena, const char *text, size_t n)
{
    char *digits = arena_alloc(arena, n + 1);
    size_t count = 0, at = 0;
    int64_t exp = 0, written = 0;
    bool negative = n && text[0] == '-', fraction = false, minus = false;
    for (at = negative; at < n && text[at] != 'e' && text[at] != 'E'; at++) {
        if (text[at] == '.') {
            fraction = true;
            continue;
        }
        digits[count++] = text[at];
        exp -= fraction;
    }
    const bool e = at < n;
    for (at++; at < n; at++) {
        if (text[at] == '-' || text[at] == '+')
            minus = text[at] == '-';
        else
            written = num_min(written * 10 + (text[at] - '0'), DECIMAL_EXP_MAX);
    }
    Decimal d = decimal_of(arena, negative, digits, count, exp + (minus ? -written : written));
    d.fraction = fraction || e;
    return d;
}

static int compare_sizes(const Decimal *a, const Decimal *b)
{
    if (!a->n || !b->n)
        return (a->n > 0) - (b->n > 0);
    int64_t x = decimal_magnitude(a), y = decimal_magnitude(b);
    if (x != y)
        return x < y ? -1 : 1;
    int order = memcmp(a->digits, b->digits, (size_t)(a->n < b->n ? a->n : b->n));
    return order ? order : (a->n > b->n) - (a->n < b->n);
}

int decimal_compare(const Decimal *a, const Decimal *b)
{
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

__extension__ typedef unsigned __int128 Wide;

static uint64_t digits_value(const Decimal *d)
{
    uint64_t value = 0;
    for (int32_t i = 0; i < d->n; i++)
        value = value * 10 + (uint64_t)(d->digits[i] - '0');
    return value;
}

bool decimal_is_multiple(const Decimal *a, const Decimal *b)
{
    if (!a->n)
        return true;
    if (a->exp < b->exp) /* the last digit of a is not 0 */
        return false;
    uint64_t divisor = digits_value(b), rest = 0, power = 10 % divisor, factor = 1 % divisor;
    for (int32_t i = 0; i < a->n; i++)
        rest = (uint64_t)(((Wide)rest * 10 + (Wide)(a->digits[i] - '0')) % divisor);
    for (uint64_t zeros = (uint64_t)(a->exp - b->exp); zeros; zeros >>= 1) {
        if (zeros & 1)
            factor = (uint64_t)((Wide)factor * power % divisor);
        power = (uint64_t)((Wide)power * power % divisor);
    }
    return (Wide)rest * factor % divisor == 0;
}

bool decimal_multiple_from(Arena *arena, const Decimal *a, const Decimal *b, bool above,
                           Decimal *out)
{
    char digits[DECIMAL_DIGITS + 24];
    int64_t shift = a->exp - b->exp; /* a = digits * 10^shift in units of b's last digit */
    int64_t n = a->n + shift;
    uint64_t divisor = digits_value(b), rest = 0;
    bool whole = true;
    if (n > DECIMAL_DIGITS)
        return false;
    n = num_max(n, 0);
    for (int64_t i = 0; i < n; i++) { /* the quotient, digit by digit */
        Wide value = (Wide)rest * 10 + (Wide)(i < a->n ? a->digits[i] - '0' : 0);
        digits[1 + i] = (char)('0' + (int)(value / divisor));
        rest = (uint64_t)(value % divisor);
    }
    whole = rest == 0 && (n >= a->n);
    digits[0] = '0';
    if (!whole || above) {
        int64_t i = n;
        for (; digits[i] == '9'; i--)
            digits[i] = '0';
        digits[i]++;
    }
    char product[DECIMAL_DIGITS + 24 + 20];
    size_t end = sizeof product, at = end;
    Wide carry = 0;
    for (int64_t i = n; i >= 0; i--) {
        carry += (Wide)(digits[i] - '0') * divisor;
        product[--at] = (char)('0' + (int)(carry % 10));
        carry /= 10;
    }
    for (; carry; carry /= 10)
        product[--at] = (char)('0' + (int)(carry % 10));
    *out = decimal_of(arena, false, product + at, end - at, b->exp);
    return true;
}

size_t decimal_write(const Decimal *d, char *out)
{
    enum { PLAIN_ABOVE = 21, PLAIN_BELOW = -6 }; /* ECMA-262's Number::toString */
    int64_t point = decimal_magnitude(d);
    size_t n = 0, k = (size_t)d->n;
    if (!d->n)
        return (void)(out[0] = '0'), 1;
    if (d->negative)
        out[n++] = '-';
    if (point > PLAIN_ABOVE || point <= PLAIN_BELOW) {
        out[n++] = d->digits[0];
        if (k > 1)
            out[n++] = '.';
        memcpy(out + n, d->digits + 1, k - 1);
        n += k - 1;
        return n + (size_t)snprintf(out + n, 32, "e%+lld", (long long)point - 1);
    }
    if (point <= 0)
        out[n++] = '0';
    for (int64_t i = num_min(point, 0); i < num_max(point, (int64_t)k); i++) {
        if (i == num_min(point, 0) ? point <= 0 : i == point)
            out[n++] = '.';
        out[n++] = i < 0 || i >= (int64_t)k ? '0' : d->digits[i];
    }
    return n;
}

/* As a whole number of units of 10^exp; 0: it has too many digits. */
static uint64_t in_units(const Decimal *d, int64_t exp)
{
    enum { MOST = 18 };
    uint64_t value = 0;
    if (d->n + (d->exp - exp) > MOST)
        return 0;
    for (int64_t i = 0; i < d->n + (d->exp - exp); i++)
        value = value * 10 + (uint64_t)(i < d->n ? d->digits[i] - '0' : 0);
    return value;
}

bool decimal_common_multiple(Arena *arena, const Decimal *a, const Decimal *b, Decimal *out)
{
    int64_t exp = num_min(a->exp, b->exp);
    uint64_t x = in_units(a, exp), y = in_units(b, exp), common, rest;
    char text[24];
    if (!x || !y)
        return false;
    for (uint64_t p = x, q = y; q; q = rest) {
        rest = p % q;
        common = p = q;
    }
    if (__builtin_mul_overflow(x / common, y, &common) || common > 999999999999999999u)
        return false;
    int n = snprintf(text, sizeof text, "%llu", (unsigned long long)common);
    *out = decimal_of(arena, false, text, (size_t)n, exp);
    return true;
}
