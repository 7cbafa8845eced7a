#include "constrain/escape.h"

#include "constrain/json.h"
#include "text/utf8.h"

#include <string.h>

/* In the low 4 bits. Above: u of PLAIN; digits and value of HEX; what the first of a pair said, and digits and value of
   the second. */
enum { PLAIN, BACKSLASH, HEX, SECOND_BACKSLASH, SECOND_U, SECOND_HEX };

enum { COUNT_SHIFT = 4, VALUE_SHIFT = 6, FIRST_SHIFT = 22 };

static uint32_t kind_of(uint32_t state)
{
    return state & 15;
}

bool escape_is_plain(uint32_t state)
{
    return kind_of(state) == PLAIN;
}

int escape_u(uint32_t state)
{
    return (int)(state >> COUNT_SHIFT);
}

static void put_point(Escaped *out, uint32_t point)
{
    out->n = utf8_put(point, out->byte);
}

/* Control characters that canonical strings write by their digits, in parts. */
static const uint32_t by_digits[][2] = {{0, 7}, {0xb, 0xb}, {0xe, 0x1f}};
enum { BY_DIGITS = sizeof by_digits / sizeof *by_digits };

/* Whether the digits so far of an escape can become one of these. */
static bool begins_control(uint32_t value, uint32_t count)
{
    uint32_t shift = 4 * (4 - count);
    for (int i = 0; i < BY_DIGITS; i++)
        if (value >= by_digits[i][0] >> shift && value <= by_digits[i][1] >> shift)
            return true;
    return false;
}

static bool step_hex(uint32_t state, unsigned char byte, bool canonical, Escaped *out)
{
    bool second = kind_of(state) == SECOND_HEX;
    uint32_t count = (state >> COUNT_SHIFT & 3) + 1, value = state >> VALUE_SHIFT & 0xffff,
             first = state >> FIRST_SHIFT;
    int digit = hex_digit(byte);
    value = value << 4 | (uint32_t)(digit & 15);
    if (digit < 0 || (second && ((count == 1 && digit != 0xd) || (count == 2 && digit < 0xc))))
        return false;
    if (canonical && ((byte >= 'A' && byte <= 'F') || !begins_control(value, count)))
        return false;
    if (count < 4) {
        out->state =
            kind_of(state) | count << COUNT_SHIFT | value << VALUE_SHIFT | first << FIRST_SHIFT;
        return second || count < 2 || value >> (4 * (count - 2)) < 0xdc ||
               value >> (4 * (count - 2)) > 0xdf;
    }
    if (second)
        put_point(out, 0x10000 + (first << 10) + (value - 0xdc00));
    else if (value >= 0xd800 && value < 0xdc00)
        out->state = SECOND_BACKSLASH | (value - 0xd800) << FIRST_SHIFT;
    else
        put_point(out, value);
    return true;
}

bool escape_step(uint32_t state, unsigned char byte, bool canonical, Escaped *out)
{
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    *out = (Escaped){0};
    switch (kind_of(state)) {
    case PLAIN: {
        int u = escape_u(state);
        if (u == 0 && (byte == '"' || byte == '\\')) {
            out->end = byte == '"';
            out->state = byte == '"' ? PLAIN : BACKSLASH;
            return true;
        }
        u = byte < 0x20 ? -1 : utf8_step(u, byte);
        out->state = PLAIN | (uint32_t)u << COUNT_SHIFT;
        out->byte[0] = byte;
        out->n = 1;
        return u >= 0;
    }
    case BACKSLASH: {
        const char *letter = byte && !(canonical && byte == '/') ? strchr(letters, byte) : NULL;
        if (letter)
            put_point(out, (unsigned char)meant[letter - letters]);
        else
            out->state = HEX;
        return letter || byte == 'u';
    }
    case SECOND_BACKSLASH:
    case SECOND_U:
        out->state = (state & ~15u) | (kind_of(state) + 1);
        return byte == (kind_of(state) == SECOND_BACKSLASH ? '\\' : 'u');
    default:
        return step_hex(state, byte, canonical, out);
    }
}

/* Of a canonical string: control characters, of which some have a letter; and, before it is known that digits follow, what
   stands behind a backslash as it is. */
static bool canonical_points(uint32_t kind, uint32_t begin, uint32_t end, int part, uint32_t *low,
                             uint32_t *high)
{
    static const uint32_t behind_backslash[][2] = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
    const uint32_t(*of)[2] = kind == BACKSLASH ? behind_backslash : by_digits;
    if (part >= 3)
        return false;
    *low = begin > of[part][0] ? begin : of[part][0];
    *high = end < of[part][1] ? end : of[part][1];
    return true;
}

bool escape_points(uint32_t state, int part, bool canonical, uint32_t *low, uint32_t *high)
{
    uint32_t kind = kind_of(state), count = state >> COUNT_SHIFT & 3,
             value = state >> VALUE_SHIFT & 0xffff, first = state >> FIRST_SHIFT;
    if (kind == BACKSLASH)
        count = value = 0;
    uint32_t begin = value << (4 * (4 - count)), end = begin + (1u << (4 * (4 - count))) - 1;
    if (canonical)
        return canonical_points(kind, begin, end, part, low, high);
    if (kind == BACKSLASH)
        kind = HEX;
    if (kind != HEX) { /* the second of a pair */
        if (kind != SECOND_HEX || begin < 0xdc00)
            begin = 0xdc00;
        if (kind != SECOND_HEX || end > 0xdfff)
            end = 0xdfff;
        *low = 0x10000 + (first << 10) + (begin - 0xdc00);
        *high = 0x10000 + (first << 10) + (end - 0xdc00);
        return part == 0;
    }
    *low = begin;
    *high = end;
    if (part == 0)
        return true;
    if (begin < 0xd800)
        begin = 0xd800;
    if (end > 0xdbff)
        end = 0xdbff;
    *low = 0x10000 + ((begin - 0xd800) << 10);
    *high = 0x10000 + ((end - 0xd800) << 10) + 0x3ff;
    return part == 1 && begin <= end;
}

bool name_has_point(const char *text, size_t n, uint32_t low, uint32_t high)
{
    int length = n ? utf8_length(text, n) : 0;
    uint32_t point = length ? utf8_point(text, length) : 0;
    return length && point >= low && point <= high;
}

bool live_in_string(TermTable *t, Term term, uint32_t escape, bool canonical)
{
    uint32_t low, high;
    if (term == TERM_ALL)
        return true;
    if (escape_is_plain(escape))
        return term_is_live(t, term, escape_u(escape));
    for (int part = 0; escape_points(escape, part, canonical, &low, &high); part++)
        if (term_is_live_between(t, term, low, high))
            return true;
    return false;
}
