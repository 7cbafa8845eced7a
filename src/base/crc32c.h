/*
 * CRC-32C (Castagnoli), the checksum of checkpoints and of TFRecord files: the remainder of the
 * bytes as a polynomial over GF(2), modulo 0x1EDC6F41, bits reflected, register inverted before and
 * after (RFC 3720, section 12.1; RFC 7143). crc32c(0, "123456789", 9) is 0xE3069283.
 *
 * Computed by the processor where it has the instruction
 * (SSE 4.2, ARMv8 CRC), else by eight tables.
 */
#ifndef CVN_BASE_CRC32C_H
#define CVN_BASE_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/* The checksum of what `crc` is the checksum of (0: of nothing) with n more bytes. */
uint32_t crc32c(uint32_t crc, const void *bytes, size_t n);

/* The same without the processor's instruction; for tests. */
uint32_t crc32c_portable(uint32_t crc, const void *bytes, size_t n);

#endif
