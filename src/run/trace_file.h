/*
 * A Chrome trace (Duffy and others, "Trace Event Format"), which https://ui.perfetto.dev opens: an object with an array of
 * events.
 *
 *     {"name":"dot_general","cat":"step","ph":"X","ts":12.345,"dur":6.789,"pid":1,"tid":0,"args":{…}}
 *
 * "X" is a slice of track `tid` of process `pid`, with its beginning and duration in microseconds; "M" names a process or a
 * track. Of a cluster every process prints its own events, some at a time, and rank 0 gathers and writes them: their order
 * does not matter. Whoever has events gives a TraceSource.
 */
#ifndef CVN_RUN_TRACE_FILE_H
#define CVN_RUN_TRACE_FILE_H

#include "base/strbuf.h"
#include "comm/cluster.h"

enum { TRACE_ENOUGH = 1 << 18 }; /* bytes that are printed before they are written */

/* Where a process prints to. */
typedef struct TraceOut {
    StrBuf text;
    int64_t origin; /* clock_ns of time 0 of the trace */
    int64_t real;   /* what the time of day is ahead of clock_ns, in ns */
    int rank;       /* of the process; 0: it is alone or the first */
    char where[96]; /* " (rank 1, host)" behind names of processes; "" where there is one process */
} TraceOut;

typedef struct TraceSource {
    int64_t origin;  /* clock_ns of the beginning */
    int64_t dropped; /* events that had no room */
    /* Appends events, each with ",\n" before it, until the text has TRACE_ENOUGH bytes or all have been printed; nothing
       from then on. */
    void (*print)(void *context, TraceOut *out);
    void *context;
} TraceSource;

/* Writes the trace; with a cluster (NULL: alone) called by all of its processes, and rank 0 writes. Machines whose clocks go
   the same show the same times. */
int trace_file_write(const TraceSource *source, Cluster *cluster, const char *path, cvn_err *err);

/* n bytes of text, as they may stand in a string of JSON. */
void trace_quote(StrBuf *text, const char *at, size_t n);

/* A slice from begin to end by clock_ns, up to its last number: the caller adds its arguments, if any, and "}". */
void trace_slice(TraceOut *out, const char *name, const char *category, int pid, int tid,
                 int64_t begin, int64_t end);

/* The name of a process, with `where` behind it. */
void trace_process(TraceOut *out, int pid, const char *name);
/* The name of a track. */
void trace_track(TraceOut *out, int pid, int tid, const char *name);

#endif
