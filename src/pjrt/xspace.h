/*
 * What XLA's profilers record: an XSpace (tensorflow/tsl, profiler/protobuf/xplane.proto), a protocol buffer of planes (a
 * device, or the host), each with lines (a core, a stream, a thread), each with events. An event says only its metadata's
 * number; the name behind it is in its plane's table:
 *
 *     plane "/device:TPU:0"   line "XLA Ops", begun at 1,000 ns     event 7: at 2,500,000 ps for 800,000 ps
 *                             table: 7 -> "fusion.3"
 *
 * becomes a slice "fusion.3" of 0.8 us that begins 3.5 us after time 0.
 */
#ifndef CVN_PJRT_XSPACE_H
#define CVN_PJRT_XSPACE_H

#include "base/arena.h"
#include "base/protobuf.h"
#include "run/trace_file.h"

typedef struct XName {
    int64_t id;
    Proto name;
} XName;

/* A plane's table of names, sorted by number. */
typedef struct XNames {
    XName *name; /* [n], the arena's */
    size_t n;
} XNames;

/* How far an XSpace has been printed. All that it points to is in the bytes or in the arena. */
typedef struct XSpace {
    Arena *arena;         /* borrowed; grows by each plane's tables */
    int64_t begun;        /* clock_ns when recording began */
    int pid;              /* of the next plane that has events */
    Proto planes;         /* unread */
    Proto name, lines;    /* of the plane: its name, unread lines */
    XNames events, stats; /* of the plane */
    Proto line;           /* unread events */
    Proto line_name;
    int64_t line_begun; /* clock_ns */
    int tid;
    bool named,
        line_named; /* whether plane and line have a name in the trace: they get it with their first event */
} XSpace;

/* bytes[n] stay while it is printed. */
XSpace xspace_open(const uint8_t *bytes, size_t n, Arena *arena, int64_t begun, int pid);

/* Appends events until the text has TRACE_ENOUGH bytes, or there are no more. What is malformed ends its plane. */
void xspace_print(XSpace *space, TraceOut *out);

#endif
