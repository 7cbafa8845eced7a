/*
 * Protocol buffers, read and written without a schema. A message is a row of fields, each a varint key (field number << 3 | wire
 * type) and a value; a varint has 7 bits per byte, low bits first, the top bit set on all bytes but the last:
 *
 *     wire type  value                      0A 0E  0A 05 3C 75 6E 6B 3E  15 00 00 00 00  18 02
 *     0          varint                     |  |   1: bytes "<unk>"      2: float 0.0    3: 2
 *     1          8 bytes                    |  length 14
 *     2          varint length, bytes       field 1, wire type 2: a message
 *     5          4 bytes
 */
#ifndef CVN_BASE_PROTOBUF_H
#define CVN_BASE_PROTOBUF_H

#include "base/strbuf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum ProtoWire {
    PROTO_VARINT = 0,
    PROTO_FIXED64 = 1,
    PROTO_BYTES = 2,
    PROTO_FIXED32 = 5,
} ProtoWire;

/* ---- reading ---- */

/* Unread bytes of one message. */
typedef struct Proto {
    const uint8_t *at, *end;
} Proto;

typedef struct ProtoField {
    uint32_t number; /* as in the .proto file, at least 1 */
    uint32_t wire;   /* ProtoWire */
    uint64_t value;  /* of all wire types but PROTO_BYTES */
    Proto bytes;     /* of all wire types but PROTO_VARINT */
} ProtoField;

/* The next field. False at the end of the message, and where it is malformed: then at != end. */
bool proto_next(Proto *message, ProtoField *field);

/* The next of packed numbers. False where there is none, or no whole one. */
bool proto_varint(Proto *numbers, uint64_t *value);

static inline size_t proto_length(Proto message)
{
    return (size_t)(message.end - message.at);
}

/* ---- writing: fields are appended; out->failed says that memory ran out ---- */

void proto_put_varint(StrBuf *out, uint64_t value);
void proto_put_key(StrBuf *out, unsigned number, ProtoWire wire);
void proto_put_int(StrBuf *out, unsigned number, int64_t value);
void proto_put_bytes(StrBuf *out, unsigned number, const void *bytes, size_t n);

/* A message that was built apart; it is freed. */
void proto_put_message(StrBuf *out, unsigned number, StrBuf *message);

#endif
