/*
 * UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF.
 *
 *     bytes                 code points
 *     00..7F                U+0000..U+007F
 *     C2..DF 80..BF         U+0080..U+07FF
 *     E0..EF 80..BF x2      U+0800..U+FFFF     E0: second from A0; ED: second up to 9F
 *     F0..F4 80..BF x3      U+10000..U+10FFFF  F0: second from 90; F4: second up to 8F
 */
#ifndef CVN_TEXT_UTF8_H
#define CVN_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes that a character starting with this byte takes, or 0 when none can start with it. */
static inline int utf8_need(unsigned char lead)
{
    if (lead < 0x80)
        return 1;
    if (lead < 0xc2 || lead > 0xf4)
        return 0;
    return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

/* Whether `second` may follow `lead`, a lead byte of two bytes or more. */
static inline bool utf8_second(unsigned char lead, unsigned char second)
{
    unsigned char low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    unsigned char high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    return second >= low && second <= high;
}

/* Length of the character at p[0..n), n > 0; 0 when there is no valid one. */
static inline int utf8_length(const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text;
    int need = utf8_need(p[0]);
    if (need <= 1)
        return need;
    if (n < (size_t)need || !utf8_second(p[0], p[1]))
        return 0;
    for (int i = 2; i < need; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return need;
}

static inline bool utf8_valid(const char *text, size_t n)
{
    for (size_t i = 0; i < n;) {
        int length = utf8_length(text + i, n - i);
        if (!length)
            return false;
        i += (size_t)length;
    }
    return true;
}

/* The code point of a valid character of that length. */
static inline uint32_t utf8_point(const char *text, int length)
{
    const unsigned char *p = (const unsigned char *)text;
    switch (length) {
    case 1:
        return p[0];
    case 2:
        return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    case 3:
        return (p[0] & 0x0fu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    default:
        return (p[0] & 0x07u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
    }
}

/* Writes a code point; returns the length of its character. */
static inline int utf8_put(uint32_t point, unsigned char *out /* [4] */)
{
    static const unsigned char mark[] = {0, 0, 0xc0, 0xe0, 0xf0};
    int n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, point >>= 6)
        out[i] = (unsigned char)(0x80 | (point & 0x3f));
    out[0] = (unsigned char)(mark[n] | point);
    return n;
}

#endif
