#include "pjrt/optimized.h"

#include "base/heap.h"
#include "base/protobuf.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* A collective that has a beginning and an end counts where it begins. */
static void count_collective(Proto opcode, Compiled *out)
{
    static const char *const kinds[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                        "collective-permute"};
    _Static_assert(sizeof kinds / sizeof *kinds == sizeof out->collective / sizeof *out->collective,
                   "all kinds");
    static const char start[] = "-start";
    size_t n = proto_length(opcode), ends = sizeof start - 1;
    if (n > ends && memcmp(opcode.end - ends, start, ends) == 0)
        n -= ends;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        out->collective[i].kind = kinds[i];
        out->collective[i].count += strlen(kinds[i]) == n && memcmp(opcode.at, kinds[i], n) == 0;
    }
}

static double cycles_of(Proto config)
{
    static const char key[] = "\"estimated_cycles\":\"";
    /* An empty field has no address, which memmem may not be given. */
    const uint8_t *at =
        config.at ? memmem(config.at, proto_length(config), key, sizeof key - 1) : NULL;
    double cycles = 0;
    for (at = at ? at + sizeof key - 1 : config.end; at < config.end && *at >= '0' && *at <= '9';)
        cycles = cycles * 10 + (*at++ - '0');
    return cycles;
}

typedef struct Computation {
    uint64_t id;
    double cycles; /* of its instructions, once */
    /* the last whole number in it: of the condition of a loop, how many turns there are */
    uint64_t constant;
} Computation;

typedef struct Loop {
    uint64_t body, condition; /* ids */
} Loop;

typedef struct Reading {
    Compiled *out;
    Computation *computation; /* [n], owned */
    Loop *loop;               /* [n_loops], owned */
    size_t n, n_loops;
} Reading;

/* LiteralProto: field 4, numbers of 32 bits, packed. */
static void read_literal(Proto b, Computation *c)
{
    enum { S32S = 4 };
    ProtoField field;
    while (proto_next(&b, &field))
        if (field.number == S32S && field.wire != PROTO_VARINT)
            proto_varint(&field.bytes, &c->constant);
}

static bool read_instruction(Proto b, Reading *r)
{
    enum { OPCODE = 2, LITERAL = 8, CALLED = 38, BACKEND_CONFIG = 43 };
    Computation *own = &r->computation[r->n - 1];
    bool loops = false;
    ProtoField field;
    Loop loop = {0};
    while (proto_next(&b, &field)) {
        Proto value = field.bytes;
        if (field.number == OPCODE) {
            count_collective(value, r->out);
            loops = proto_length(value) == 5 && memcmp(value.at, "while", 5) == 0;
        } else if (field.number == LITERAL) {
            read_literal(value, own);
        } else if (field.number == CALLED) {
            proto_varint(&value, &loop.body);
            proto_varint(&value, &loop.condition);
        } else if (field.number == BACKEND_CONFIG) {
            own->cycles += cycles_of(value);
        }
    }
    if (!loops)
        return true;
    Loop *more = heap_more(r->loop, r->n_loops, sizeof *more);
    if (!more)
        return false;
    r->loop = more;
    r->loop[r->n_loops++] = loop;
    return true;
}

static const Computation *find(const Reading *r, uint64_t id)
{
    for (size_t i = 0; i < r->n; i++)
        if (r->computation[i].id == id)
            return &r->computation[i];
    return NULL;
}

/* Instructions of a loop count as often as it turns. (Loops of our modules are never nested.) */
static void add_up(Reading *r)
{
    enum { MOST_TURNS = 1 << 20 };
    for (size_t i = 0; i < r->n; i++)
        r->out->cycles += r->computation[i].cycles;
    for (size_t i = 0; i < r->n_loops; i++) {
        const Computation *body = find(r, r->loop[i].body);
        const Computation *condition = find(r, r->loop[i].condition);
        if (body && condition && condition->constant > 1 && condition->constant <= MOST_TURNS)
            r->out->cycles += body->cycles * (double)(condition->constant - 1);
    }
}

/* Walks the module, its computations, and their instructions. */
static bool read_levels(const void *bytes, size_t n, Reading *r)
{
    static const uint32_t path[] = {1, 3, 2};
    enum { DEPTH = 3, ID = 5 };
    Proto level[DEPTH] = {{bytes, (const uint8_t *)bytes + n}};
    int depth = 0;
    while (depth >= 0) {
        ProtoField field;
        if (level[depth].at == level[depth].end) {
            depth--;
            continue;
        }
        if (!proto_next(&level[depth], &field))
            return false;
        if (field.number == ID && depth == DEPTH - 1)
            r->computation[r->n - 1].id = field.value;
        if (field.number != path[depth])
            continue;
        if (depth == DEPTH - 1) {
            if (!read_instruction(field.bytes, r))
                return false;
            continue;
        }
        level[++depth] = field.bytes;
        if (depth < DEPTH - 1)
            continue;
        Computation *more = heap_more(r->computation, r->n, sizeof *more);
        if (!more)
            return false;
        r->computation = more;
        r->computation[r->n++] = (Computation){0};
    }
    return true;
}

bool optimized_read(const void *bytes, size_t n, Compiled *out)
{
    Reading r = {.out = out};
    bool whole = read_levels(bytes, n, &r);
    add_up(&r);
    free(r.computation);
    free(r.loop);
    return whole;
}
