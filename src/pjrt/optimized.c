#include "pjrt/optimized.h"

#include <stdint.h>
#include <string.h>

typedef struct Bytes {
    const uint8_t *at, *end;
} Bytes;

static bool read_varint(Bytes *b, uint64_t *out)
{
    *out = 0;
    for (unsigned shift = 0; shift < 64 && b->at < b->end; shift += 7) {
        uint8_t byte = *b->at++;
        *out |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return true;
    }
    return false;
}

enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_BYTES = 2, WIRE_FIXED32 = 5 };

/* The next field, and its bytes where it has some. False at the end, and where the message is damaged, which leaves
   bytes unread. */
static bool next_field(Bytes *b, uint64_t *field, Bytes *value)
{
    uint64_t key, n = 0;
    Bytes at = *b;
    if (!read_varint(&at, &key))
        return false;
    *field = key >> 3;
    *value = (Bytes){0};
    switch (key & 7) {
    case WIRE_VARINT:
        if (!read_varint(&at, &n))
            return false;
        n = 0;
        break;
    case WIRE_FIXED64:
        n = 8;
        break;
    case WIRE_FIXED32:
        n = 4;
        break;
    case WIRE_BYTES:
        if (!read_varint(&at, &n))
            return false;
        break;
    default:
        return false;
    }
    if (n > (uint64_t)(at.end - at.at))
        return false;
    *value = (Bytes){at.at, at.at + n};
    *b = (Bytes){at.at + n, at.end};
    return true;
}

/* A collective that has a beginning and an end counts where it begins. */
static void count_collective(Bytes opcode, Compiled *out)
{
    static const char *const kinds[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                        "collective-permute"};
    _Static_assert(sizeof kinds / sizeof *kinds == sizeof out->collective / sizeof *out->collective,
                   "all kinds");
    static const char start[] = "-start";
    size_t n = (size_t)(opcode.end - opcode.at), ends = sizeof start - 1;
    if (n > ends && memcmp(opcode.end - ends, start, ends) == 0)
        n -= ends;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        out->collective[i].kind = kinds[i];
        out->collective[i].count += strlen(kinds[i]) == n && memcmp(opcode.at, kinds[i], n) == 0;
    }
}

static void add_cycles(Bytes config, Compiled *out)
{
    static const char key[] = "\"estimated_cycles\":\"";
    const uint8_t *at = memmem(config.at, (size_t)(config.end - config.at), key, sizeof key - 1);
    double cycles = 0;
    for (at = at ? at + sizeof key - 1 : config.end; at < config.end && *at >= '0' && *at <= '9';)
        cycles = cycles * 10 + (*at++ - '0');
    out->cycles += cycles;
}

static void read_instruction(Bytes b, Compiled *out)
{
    enum { OPCODE = 2, BACKEND_CONFIG = 43 };
    uint64_t field;
    Bytes value;
    while (next_field(&b, &field, &value)) {
        if (field == OPCODE)
            count_collective(value, out);
        else if (field == BACKEND_CONFIG)
            add_cycles(value, out);
    }
}

bool optimized_read(const void *bytes, size_t n, Compiled *out)
{
    /* From the outside to the inside: the module, its computations, their instructions. */
    static const uint64_t path[] = {1, 3, 2};
    enum { DEPTH = 3 };
    Bytes level[DEPTH] = {{bytes, (const uint8_t *)bytes + n}};
    int depth = 0;
    while (depth >= 0) {
        uint64_t field;
        Bytes value;
        if (level[depth].at == level[depth].end)
            depth--;
        else if (!next_field(&level[depth], &field, &value))
            return false;
        else if (field == path[depth] && depth == DEPTH - 1)
            read_instruction(value, out);
        else if (field == path[depth])
            level[++depth] = value;
    }
    return true;
}
