#include "base/crc32.h"

#include <string.h>

void crc32_init(Crc32 *c)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
        c->table[0][b] = crc;
    }
    for (int place = 1; place < 8; place++)
        for (int b = 0; b < 256; b++) {
            uint32_t before = c->table[place - 1][b];
            c->table[place][b] = before >> 8 ^ c->table[0][before & 255];
        }
}

uint32_t crc32(const Crc32 *c, uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    crc = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t v;
        memcpy(&v, p, sizeof v);
        v ^= crc;
        crc = 0;
        for (int i = 0; i < 8; i++)
            crc ^= c->table[7 - i][v >> 8 * i & 255];
    }
    for (; n > 0; n--, p++)
        crc = crc >> 8 ^ c->table[0][(crc ^ *p) & 255];
    return ~crc;
}
