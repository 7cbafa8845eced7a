#include "pjrt/options.h"

static void put_varint(StrBuf *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7)
        strbuf_putc(out, (char)(value | 0x80));
    strbuf_putc(out, (char)value);
}

static void put_int(StrBuf *out, unsigned field, int64_t value)
{
    put_varint(out, field << 3);
    put_varint(out, (uint64_t)value);
}

/* A field that holds bytes: what was written to `part`, which is then empty. */
static void put_part(StrBuf *out, unsigned field, StrBuf *part)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, part->length);
    strbuf_add(out, part->text, part->length);
    out->failed |= part->failed;
    strbuf_free(part);
}

void compile_options_print(StrBuf *out, int64_t n, const int64_t *id)
{
    StrBuf build = {0}, assignment = {0}, devices = {0}, ids = {0};
    put_int(&build, 1, -1);
    put_int(&build, 4, n);
    put_int(&build, 5, 1);
    for (int64_t i = 0; id && i < n; i++)
        put_varint(&ids, (uint64_t)id[i]);
    if (id) {
        put_part(&devices, 1, &ids);
        put_int(&assignment, 1, n);
        put_int(&assignment, 2, 1);
        put_part(&assignment, 3, &devices);
        put_part(&build, 9, &assignment);
    }
    put_part(out, 3, &build);
}
