/*
 * The byte-level alphabet, which shows each of the 256 bytes as a printable character: 21..7E, A1..AC and
 * AE..FF as the character with that number, the other 68 in order as U+0100 to U+0143, so that " the" is
 * "Ġthe". (encoder.py of GPT-2)
 */
#ifndef CVN_TEXT_BYTE_LEVEL_H
#define CVN_TEXT_BYTE_LEVEL_H

#include <stdbool.h>
#include <stdint.h>

enum { BYTE_LEVEL_END = 0x144 }; /* no character of the alphabet is here or behind */

/* Whether a byte is shown as the character with its number. */
static inline bool byte_level_itself(unsigned byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* The code point that shows each byte. */
static inline void byte_level_fill(uint16_t point[256])
{
    uint16_t next = 0x100;
    for (unsigned byte = 0; byte < 256; byte++)
        point[byte] = byte_level_itself(byte) ? (uint16_t)byte : next++;
}

#endif
