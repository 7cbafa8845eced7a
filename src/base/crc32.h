/*
 * CRC-32 as zip archives have it: polynomial 0x04c11db7, bits reversed, all ones before and after (APPNOTE.TXT of PKWARE).
 * crc32(&c, 0, "123456789", 9) is 0xcbf43926.
 */
#ifndef CVN_BASE_CRC32_H
#define CVN_BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* What each byte adds, at eight places. */
typedef struct Crc32 {
    uint32_t table[8][256];
} Crc32;

void crc32_init(Crc32 *c);

/* Of what came before, 0 at first, and n more bytes. */
uint32_t crc32(const Crc32 *c, uint32_t crc, const void *bytes, size_t n);

#endif
