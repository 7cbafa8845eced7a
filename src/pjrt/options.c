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

/* Writes a field that holds the bytes of `part`, and empties that. */
static void put_part(StrBuf *out, unsigned field, StrBuf *part)
{
    put_varint(out, field << 3 | 2);
    put_varint(out, part->length);
    strbuf_add(out, part->text, part->length);
    out->failed |= part->failed;
    strbuf_free(part);
}

/* Writes the devices of the replicas of one computation: first … first + n - 1. */
static void put_devices(StrBuf *assignment, const int64_t *id, int64_t first, int64_t n)
{
    StrBuf ids = {0}, devices = {0};
    for (int64_t i = first; i < first + n; i++)
        put_varint(&ids, (uint64_t)id[i]);
    put_part(&devices, 1, &ids);
    put_part(assignment, 3, &devices);
}

void compile_options_print(StrBuf *out, int64_t n, const int64_t *id, bool partitions)
{
    int64_t n_replicas = partitions ? 1 : n, n_partitions = partitions ? n : 1;
    StrBuf build = {0}, assignment = {0};
    put_int(&build, 1, -1);
    put_int(&build, 4, n_replicas);
    put_int(&build, 5, n_partitions);
    if (partitions)
        put_int(&build, 6, 1);
    if (id) {
        put_int(&assignment, 1, n_replicas);
        put_int(&assignment, 2, n_partitions);
        for (int64_t i = 0; i < n_partitions; i++)
            put_devices(&assignment, id, i, n_replicas);
        put_part(&build, 9, &assignment);
    }
    if (partitions)
        put_int(&build, 19, 1);
    put_part(out, 3, &build);
}
