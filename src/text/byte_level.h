/*
 * The byte-level alphabet, which shows each of the 256 bytes as a printable character: 21..7E, A1..AC and
 * AE..FF as the character with that number, the other 68 in order as U+0100 to U+0143, so that " the" is
 * "Ġthe". (encoder.py of GPT-2)
 */
#ifndef CVN_TEXT_BYTE_LEVEL_H
#define CVN_TEXT_BYTE_LEVEL_H

#include "base/strbuf.h"
#include "text/utf8.h"

#include <stdbool.h>
#include <stdint.h>

enum { BYTE_LEVEL_END = 0x144 }; /* no character of the alphabet is here or behind */

/* Whether a byte is shown as the character with its number. */
static inline bool byte_level_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The character that shows a byte. */
static inline uint32_t byte_level_point(unsigned char byte)
{
    if (byte_level_itself(byte))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + (byte - 0x7fu) : 0x143u;
}

/* Appends n bytes in the alphabet, as UTF-8. */
static inline void byte_level_put(const char *text, size_t n, StrBuf *out)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char shows[4];
        int length = utf8_put(byte_level_point((unsigned char)text[i]), shows);
        strbuf_add(out, (const char *)shows, (size_t)length);
    }
}

#endif
