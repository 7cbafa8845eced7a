/*
 * Eight tables ("slicing by 8"): table k says what a byte adds to the register after k more zero
 * bytes, so eight bytes are looked up at once and their contributions added (which is xor here).
 */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined __aarch64__
#include <sys/auxv.h>
#endif

#define POLYNOMIAL 0x82f63b78u /* 0x1EDC6F41, bits reversed */

static uint32_t table[8][256];
static pthread_once_t tables_made = PTHREAD_ONCE_INIT;

static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t r = byte;
        for (int bit = 0; bit < 8; bit++)
            r = r >> 1 ^ (r & 1 ? POLYNOMIAL : 0);
        table[0][byte] = r;
    }
    for (int k = 1; k < 8; k++)
        for (int byte = 0; byte < 256; byte++)
            table[k][byte] = table[k - 1][byte] >> 8 ^ table[0][table[k - 1][byte] & 0xff];
}

uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n)
{
    const uint8_t *p = bytes;
    uint32_t r = ~crc;
    pthread_once(&tables_made, make_tables);
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        word ^= r;
        r = 0;
        for (int k = 0; k < 8; k++)
            r ^= table[7 - k][word >> (8 * k) & 0xff];
    }
    for (; n > 0; n--)
        r = r >> 8 ^ table[0][(r ^ *p++) & 0xff];
    return ~r;
}

#if defined __x86_64__

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const uint8_t *p,
                                                                 size_t n)
{
    uint64_t r = (uint32_t)~crc;
    for (; n >= 8; n -= 8, p += 8) {
        unsigned long long word;
        memcpy(&word, p, 8);
        r = __builtin_ia32_crc32di(r, word);
    }
    uint32_t low = (uint32_t)r;
    for (; n > 0; n--)
        low = __builtin_ia32_crc32qi(low, *p++);
    return ~low;
}

static int has_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2");
}

#elif defined __aarch64__

#define HWCAP_CRC32_BIT (1ul << 7)

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    uint32_t r = ~crc;
    for (; n >= 8; n -= 8, p += 8) {
        uint64_t word;
        memcpy(&word, p, 8);
        __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %x1" : "+r"(r) : "r"(word));
    }
    for (; n > 0; n--, p++)
        __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(r) : "r"((uint32_t)*p));
    return ~r;
}

static int has_instruction(void)
{
    return (getauxval(AT_HWCAP) & HWCAP_CRC32_BIT) != 0;
}

#else

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, size_t n)
{
    return crc32c_portable(crc, p, n);
}

static int has_instruction(void)
{
    return 0;
}

#endif

uint32_t crc32c(uint32_t crc, const void *bytes, size_t n)
{
    return has_instruction() ? by_instruction(crc, bytes, n) : crc32c_portable(crc, bytes, n);
}
