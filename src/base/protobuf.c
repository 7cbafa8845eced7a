#include "base/protobuf.h"

#include <string.h>

bool proto_varint(Proto *numbers, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && numbers->at < numbers->end; shift += 7) {
        uint8_t byte = *numbers->at++;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

bool proto_next(Proto *message, ProtoField *field)
{
    Proto at = *message;
    uint64_t key, n;
    *field = (ProtoField){0};
    if (at.at == at.end || !proto_varint(&at, &key) || key > UINT32_MAX || key >> 3 == 0)
        return false;
    field->number = (uint32_t)(key >> 3);
    field->wire = (uint32_t)(key & 7);
    switch (field->wire) {
    case PROTO_VARINT:
        if (!proto_varint(&at, &field->value))
            return false;
        *message = at;
        return true;
    case PROTO_BYTES:
        if (!proto_varint(&at, &n))
            return false;
        break;
    case PROTO_FIXED64:
        n = 8;
        break;
    case PROTO_FIXED32:
        n = 4;
        break;
    default:
        return false;
    }
    if (n > proto_length(at))
        return false;
    field->bytes = (Proto){at.at, at.at + n};
    if (field->wire != PROTO_BYTES)
        memcpy(&field->value, at.at, n);
    *message = (Proto){at.at + n, at.end};
    return true;
}

void proto_put_varint(StrBuf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        strbuf_putc(out, (char)(value | 0x80));
    strbuf_putc(out, (char)value);
}

void proto_put_key(StrBuf *out, unsigned number, ProtoWire wire)
{
    proto_put_varint(out, (uint64_t)number << 3 | wire);
}

void proto_put_int(StrBuf *out, unsigned number, int64_t value)
{
    proto_put_key(out, number, PROTO_VARINT);
    proto_put_varint(out, (uint64_t)value);
}

void proto_put_bytes(StrBuf *out, unsigned number, const void *bytes, size_t n)
{
    proto_put_key(out, number, PROTO_BYTES);
    proto_put_varint(out, n);
    strbuf_add(out, bytes, n);
}

void proto_put_message(StrBuf *out, unsigned number, StrBuf *message)
{
    proto_put_bytes(out, number, message->text ? message->text : "", message->length);
    out->failed |= message->failed;
    strbuf_free(message);
}
