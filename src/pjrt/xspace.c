#include "pjrt/xspace.h"

#include "base/heap.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Numbers of fields in xplane.proto. */
enum { SPACE_PLANES = 1 };
enum { PLANE_NAME = 2, PLANE_LINES = 3, PLANE_EVENTS = 4, PLANE_STATS = 5 };
enum { ENTRY_KEY = 1, ENTRY_VALUE = 2 };               /* of a map */
enum { METADATA_NAME = 2, METADATA_DISPLAY_NAME = 4 }; /* of events and of stats */
enum { LINE_NAME = 2, LINE_TIMESTAMP_NS = 3, LINE_EVENTS = 4, LINE_DISPLAY_NAME = 11 };
enum { EVENT_METADATA = 1, EVENT_OFFSET_PS = 2, EVENT_DURATION_PS = 3, EVENT_STATS = 4 };
enum { STAT_METADATA = 1, STAT_DOUBLE, STAT_UINT, STAT_INT, STAT_TEXT, STAT_BYTES, STAT_REFERENCE };

static const Proto nothing = {0};

static int64_t not_negative(uint64_t value)
{
    return value > INT64_MAX ? 0 : (int64_t)value;
}

/* ---- tables of names ---- */

/* The display name where there is one. */
static Proto metadata_name(Proto metadata)
{
    Proto name = nothing;
    ProtoField field;
    while (proto_next(&metadata, &field))
        if (field.wire == PROTO_BYTES && proto_length(field.bytes) &&
            (field.number == METADATA_NAME || field.number == METADATA_DISPLAY_NAME))
            name = field.bytes;
    return name;
}

static XName read_entry(Proto entry)
{
    XName name = {0};
    ProtoField field;
    while (proto_next(&entry, &field)) {
        if (field.number == ENTRY_KEY && field.wire == PROTO_VARINT)
            name.id = (int64_t)field.value;
        if (field.number == ENTRY_VALUE && field.wire == PROTO_BYTES)
            name.name = metadata_name(field.bytes);
    }
    return name;
}

static int by_id(const void *a, const void *b)
{
    int64_t x = ((const XName *)a)->id, y = ((const XName *)b)->id;
    return (x > y) - (x < y);
}

/* The map that is field `number` of a plane. */
static XNames read_names(Proto plane, uint32_t number, Arena *arena)
{
    XNames names = {0};
    ProtoField field;
    for (Proto p = plane; proto_next(&p, &field);)
        names.n += field.number == number && field.wire == PROTO_BYTES;
    names.name = arena_try(arena, (names.n + 1) * sizeof *names.name);
    if (!names.name)
        return (XNames){0};
    names.n = 0;
    for (Proto p = plane; proto_next(&p, &field);)
        if (field.number == number && field.wire == PROTO_BYTES)
            names.name[names.n++] = read_entry(field.bytes);
    qsort(names.name, names.n, sizeof *names.name, by_id);
    return names;
}

static Proto name_of(const XNames *names, int64_t id)
{
    const XName key = {.id = id};
    const XName *found = names->n ? bsearch(&key, names->name, names->n, sizeof key, by_id) : NULL;
    return found ? found->name : nothing;
}

/* ---- planes and lines ---- */

/* Goes to the next plane; false: there is none. */
static bool next_plane(XSpace *x)
{
    ProtoField field, part;
    while (proto_next(&x->planes, &field)) {
        if (field.number != SPACE_PLANES || field.wire != PROTO_BYTES)
            continue;
        x->pid += x->named;
        x->named = false;
        x->tid = 0;
        x->name = nothing;
        for (Proto p = field.bytes; proto_next(&p, &part);)
            if (part.number == PLANE_NAME && part.wire == PROTO_BYTES)
                x->name = part.bytes;
        x->events = read_names(field.bytes, PLANE_EVENTS, x->arena);
        x->stats = read_names(field.bytes, PLANE_STATS, x->arena);
        x->lines = field.bytes;
        return true;
    }
    return false;
}

/* Goes to the plane's next line; false: there is none. A line counts from the time of day, or, where its number is too small
   for that, from when recording began. */
static bool next_line(XSpace *x, const TraceOut *out)
{
    ProtoField field, part;
    while (proto_next(&x->lines, &field)) {
        if (field.number != PLANE_LINES || field.wire != PROTO_BYTES)
            continue;
        int64_t at = 0;
        x->tid++;
        x->line_named = false;
        x->line_name = nothing;
        for (Proto p = field.bytes; proto_next(&p, &part);) {
            if (part.number == LINE_TIMESTAMP_NS && part.wire == PROTO_VARINT)
                at = not_negative(part.value);
            if ((part.number == LINE_NAME || part.number == LINE_DISPLAY_NAME) &&
                part.wire == PROTO_BYTES && proto_length(part.bytes))
                x->line_name = part.bytes;
        }
        x->line_begun = at >= (x->begun + out->real) / 2 ? at - out->real : x->begun + at;
        x->line = field.bytes;
        return true;
    }
    return false;
}

/* ---- events ---- */

static void quote(StrBuf *text, Proto name)
{
    if (proto_length(name))
        trace_quote(text, (const char *)name.at, proto_length(name));
}

/* `"bytes accessed":4096`, with a comma before all but the first; what has no name or no value in JSON is left out. */
static void print_stat(const XSpace *x, Proto stat, bool *first, StrBuf *text)
{
    Proto name = nothing;
    ProtoField field, value = {0};
    while (proto_next(&stat, &field)) {
        if (field.number == STAT_METADATA && field.wire == PROTO_VARINT)
            name = name_of(&x->stats, (int64_t)field.value);
        else
            value = field;
    }
    double real;
    memcpy(&real, &value.value, sizeof real);
    const bool number =
        (value.number == STAT_UINT || value.number == STAT_INT) && value.wire == PROTO_VARINT;
    const bool is_real =
        value.number == STAT_DOUBLE && value.wire == PROTO_FIXED64 && isfinite(real);
    Proto words = value.number == STAT_TEXT && value.wire == PROTO_BYTES ? value.bytes
                  : value.number == STAT_REFERENCE && value.wire == PROTO_VARINT
                      ? name_of(&x->stats, (int64_t)value.value)
                      : nothing;
    if (!proto_length(name) || (!number && !is_real && !proto_length(words)))
        return;
    strbuf_puts(text, *first ? "\"" : ",\"");
    *first = false;
    quote(text, name);
    strbuf_puts(text, "\":");
    if (is_real) {
        strbuf_printf(text, "%.9g", real);
    } else if (number && value.number == STAT_UINT) {
        strbuf_printf(text, "%" PRIu64, value.value);
    } else if (number) {
        strbuf_printf(text, "%" PRId64, (int64_t)value.value);
    } else {
        strbuf_putc(text, '"');
        quote(text, words);
        strbuf_putc(text, '"');
    }
}

/* Names as the trace takes them: ended by a NUL, cut after 200 bytes. */
static const char *short_name(Proto name, const char *otherwise, char out[static 201])
{
    size_t n = proto_length(name) < 200 ? proto_length(name) : 200;
    if (!n)
        return otherwise;
    memcpy(out, name.at, n);
    out[n] = 0;
    return out;
}

static void print_names(XSpace *x, TraceOut *out)
{
    char name[201];
    if (!x->named)
        trace_process(out, x->pid, short_name(x->name, "plane", name));
    if (!x->line_named)
        trace_track(out, x->pid, x->tid, short_name(x->line_name, "line", name));
    x->named = x->line_named = true;
}

static void print_event(XSpace *x, Proto event, TraceOut *out)
{
    int64_t id = 0, offset = 0, duration = 0;
    bool first = true;
    char name[201];
    ProtoField field;
    for (Proto p = event; proto_next(&p, &field);) {
        if (field.wire != PROTO_VARINT)
            continue;
        if (field.number == EVENT_METADATA)
            id = (int64_t)field.value;
        if (field.number == EVENT_OFFSET_PS)
            offset = not_negative(field.value);
        if (field.number == EVENT_DURATION_PS)
            duration = not_negative(field.value);
    }
    int64_t begin = x->line_begun + offset / 1000;
    print_names(x, out);
    trace_slice(out, short_name(name_of(&x->events, id), "event", name), "device", x->pid, x->tid,
                begin, begin + duration / 1000);
    strbuf_puts(&out->text, ",\"args\":{");
    for (Proto p = event; proto_next(&p, &field);)
        if (field.number == EVENT_STATS && field.wire == PROTO_BYTES)
            print_stat(x, field.bytes, &first, &out->text);
    strbuf_puts(&out->text, "}}");
}

XSpace xspace_open(const uint8_t *bytes, size_t n, Arena *arena, int64_t begun, int pid)
{
    return (XSpace){
        .arena = arena, .begun = begun, .pid = pid, .planes = {bytes, bytes ? bytes + n : NULL}};
}

void xspace_print(XSpace *x, TraceOut *out)
{
    ProtoField field;
    while (out->text.length < TRACE_ENOUGH && !out->text.failed) {
        if (proto_next(&x->line, &field)) {
            if (field.number == LINE_EVENTS && field.wire == PROTO_BYTES)
                print_event(x, field.bytes, out);
        } else if (!next_line(x, out) && !next_plane(x)) {
            return;
        }
    }
}
