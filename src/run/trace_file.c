#include "run/trace_file.h"

#include "base/file.h"
#include "base/threads.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- printing ---- */

void trace_quote(StrBuf *text, const char *at, size_t n)
{
    for (const char *c = at; c < at + n; c++) {
        if (*c == '"' || *c == '\\')
            strbuf_putc(text, '\\');
        if ((unsigned char)*c < 32)
            strbuf_printf(text, "\\u%04x", *c);
        else
            strbuf_putc(text, *c);
    }
}

void trace_slice(TraceOut *out, const char *name, const char *category, int pid, int tid,
                 int64_t begin, int64_t end)
{
    strbuf_puts(&out->text, ",\n{\"name\":\"");
    trace_quote(&out->text, name, strlen(name));
    strbuf_printf(&out->text,
                  "\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
                  "\"pid\":%d,\"tid\":%d",
                  category, (double)(begin - out->origin) / 1e3, (double)(end - begin) / 1e3, pid,
                  tid);
}

void trace_process(TraceOut *out, int pid, const char *name)
{
    strbuf_printf(&out->text,
                  ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"",
                  pid);
    trace_quote(&out->text, name, strlen(name));
    trace_quote(&out->text, out->where, strlen(out->where));
    strbuf_puts(&out->text, "\"}}");
}

void trace_track(TraceOut *out, int pid, int tid, const char *name)
{
    strbuf_printf(&out->text,
                  ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                  "\"args\":{\"name\":\"",
                  pid, tid);
    trace_quote(&out->text, name, strlen(name));
    strbuf_puts(&out->text, "\"}}");
}

/* ---- writing ---- */

/* What a process says of itself before its events. */
typedef struct Greeting {
    int64_t origin;  /* its beginning by its clock_ns */
    int64_t real;    /* what the time of day is ahead of that clock, in ns */
    int64_t dropped; /* events */
} Greeting;

/* Agrees on time 0, in the time of day, and adds up. Machines whose clocks go the same show the same times. */
static int meet(Cluster *cluster, Greeting *g, cvn_err *err)
{
    int n = cluster_size(cluster);
    SCOPED(scoped_free) Greeting *all = calloc((size_t)n, sizeof *all);
    if (!all)
        return err_set(err, CVN_EMEM, "no memory to write a profile");
    TRY(cluster_gather(cluster, CLUSTER_STEPS, g, all, sizeof *g, err));
    int64_t zero = g->origin + g->real, dropped = 0;
    for (int i = 0; i < n; i++) {
        int64_t begun = all[i].origin + all[i].real;
        zero = begun < zero ? begun : zero;
        dropped += all[i].dropped;
    }
    g->origin = zero - g->real;
    g->dropped = dropped;
    return CVN_OK;
}

/* Everybody's next piece: [n] of them, each *bytes long with zeros at the end, to *all; *bytes is 0 when nobody has
   any more. */
static int gather_texts(Cluster *cluster, TraceOut *out, char **all, size_t *bytes, cvn_err *err)
{
    int n = cluster_size(cluster);
    int64_t own = out->text.failed ? -1 : (int64_t)out->text.length, most = 0;
    SCOPED(scoped_free) int64_t *length = calloc((size_t)n, sizeof *length);
    TRY(length ? cluster_gather(cluster, CLUSTER_STEPS, &own, length, sizeof own, err)
               : err_set(err, CVN_EMEM, "no memory to write a profile"));
    for (int i = 0; i < n; i++) {
        most = length[i] > most ? length[i] : most;
        if (length[i] < 0)
            return err_set(err, CVN_EMEM, "rank %d has no memory to write its profile", i);
    }
    *bytes = (size_t)most;
    if (most == 0)
        return CVN_OK;
    SCOPED(scoped_free) char *piece = calloc(1, *bytes);
    char *pieces = realloc(*all, (size_t)n * *bytes);
    *all = pieces ? pieces : *all;
    if (!piece || !pieces)
        return err_set(err, CVN_EMEM, "no memory to write a profile");
    if (own > 0)
        memcpy(piece, out->text.text, (size_t)own);
    TRY(cluster_gather(cluster, CLUSTER_STEPS, piece, pieces, *bytes, err));
    strbuf_clear(&out->text);
    return CVN_OK;
}

/* Of all processes; only rank 0 has a writer. What it cannot write does not keep the others waiting. */
static int write_all(const TraceSource *source, Cluster *cluster, TraceOut *out, FileWriter *writer,
                     cvn_err *err)
{
    SCOPED(scoped_free) char *all = NULL;
    size_t bytes = 0;
    int code, wrote = CVN_OK;
    do {
        source->print(source->context, out);
        code = gather_texts(cluster, out, &all, &bytes, err);
        for (int i = 0; !code && bytes && writer && !wrote && i < cluster_size(cluster); i++) {
            const char *piece = all + (size_t)i * bytes;
            wrote = file_writer_write(writer, piece, strnlen(piece, bytes), err);
        }
    } while (!code && bytes);
    return code ? code : wrote;
}

int trace_file_write(const TraceSource *source, Cluster *cluster, const char *path, cvn_err *err)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    Greeting greeting = {.origin = source->origin, .dropped = source->dropped};
    greeting.real = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - clock_ns();
    TRY(meet(cluster, &greeting, err));
    TraceOut out = {
        .origin = greeting.origin, .real = greeting.real, .rank = cluster_rank(cluster)};
    if (cluster)
        snprintf(out.where, sizeof out.where, " (rank %d, %s)", out.rank,
                 cluster_host(cluster, out.rank));
    char head[160];
    snprintf(head, sizeof head,
             "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":%" PRId64
             "},\"traceEvents\":[\n{\"name\":\"process_sort_index\",\"ph\":\"M\","
             "\"pid\":1,\"args\":{\"sort_index\":1}}",
             greeting.dropped);
    bool writes = out.rank == 0;
    FileWriter writer;
    int opened = writes ? file_writer_open(&writer, path, err) : CVN_OK;
    if (writes && !opened)
        opened = file_writer_write(&writer, head, strlen(head), err);
    int code = write_all(source, cluster, &out, writes && !opened ? &writer : NULL, err);
    code = opened ? opened : code;
    if (!code && writes)
        code = file_writer_write(&writer, "\n]}\n", 4, err);
    if (!code && writes)
        code = file_writer_commit(&writer, err);
    if (writes)
        file_writer_free(&writer);
    strbuf_free(&out.text);
    return code;
}
