/*
 * The Chrome trace event format (Duffy and others, "Trace Event Format"): an object with an array of events.
 *
 *     {"name":"dot_general","cat":"step","ph":"X","ts":12.345,"dur":6.789,"pid":1,"tid":0,"args":{…}}
 *
 * "X" is a slice with its beginning and duration in microseconds; "M" names a process or thread. Of a cluster every
 * process prints its own events, some at a time, and rank 0 gathers and writes them: the order does not matter.
 */
#include "cpu/trace.h"

#include "base/file.h"
#include "base/num.h"
#include "base/threads.h"
#include "compile/fused.h"
#include "compile/schedule.h"
#include "graph/region.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ENOUGH = 1 << 18, /* bytes that are printed before they are written */
    LANES = COMM_IN_FLIGHT
};

struct Trace {
    int n;
    Device **device;   /* owned [n], the devices borrowed */
    Profile **profile; /* owned [n] */
};

Trace *trace_begin(Device *const *device, int n, size_t events, cvn_err *err)
{
    Trace *trace = calloc(1, sizeof *trace);
    if (trace) {
        trace->device = calloc((size_t)n, sizeof(Device *));
        trace->profile = calloc((size_t)n, sizeof(Profile *));
    }
    if (!trace || !trace->device || !trace->profile) {
        trace_free(trace);
        err_set(err, CVN_EMEM, "no memory for a profile of %d devices", n);
        return NULL;
    }
    for (; trace->n < n; trace->n++) {
        Device *d = device[trace->n];
        Profile *profile = profile_new(device_threads(d), events, err);
        if (!profile) {
            trace_free(trace);
            return NULL;
        }
        trace->device[trace->n] = d;
        trace->profile[trace->n] = d->profile = profile;
    }
    return trace;
}

void trace_free(Trace *trace)
{
    if (!trace)
        return;
    for (int i = 0; i < trace->n; i++) {
        trace->device[i]->profile = NULL;
        if (trace->device[i]->links.comm)
            comm_watch(trace->device[i]->links.comm, trace->device[i]->links.index, NULL);
        profile_free(trace->profile[i]);
    }
    free(trace->device);
    free(trace->profile);
    free(trace);
}

/* ---- printing ---- */

/* What is printed next: `event` of `track` of `device`. Tracks are the threads, then communication. */
typedef struct Printer {
    Profile *const *profile; /* [n] */
    int n, first;            /* devices, and the number of the first */
    bool several;            /* there are devices elsewhere or more than one: they have numbers */
    const char *where;       /* "" or " (rank 1, host)" */
    int64_t origin;          /* clock_ns of time 0 of the trace */
    int device, track;
    size_t event;
    int64_t busy[LANES]; /* until when a lane of communication has a slice */
    StrBuf text;
} Printer;

static void print_types(StrBuf *buf, const char *key, int n, cvn_value *const *v)
{
    strbuf_printf(buf, "\"%s\":\"", key);
    for (int i = 0; i < n; i++) {
        strbuf_puts(buf, i ? " " : "");
        type_print(buf, &v[i]->type);
    }
    strbuf_puts(buf, "\",");
}

/* Names of graphs come from outside; the rest is ours and needs no quoting. */
static void print_quoted(StrBuf *buf, const char *text)
{
    for (const char *c = text; *c; c++) {
        if (*c == '"' || *c == '\\')
            strbuf_putc(buf, '\\');
        if ((unsigned char)*c < 32)
            strbuf_printf(buf, "\\u%04x", *c);
        else
            strbuf_putc(buf, *c);
    }
}

static int process_of(const Printer *p)
{
    return p->first + p->device + 1;
}

/* The head of a slice, up to and with its last number. */
static void print_slice(Printer *p, const char *name, const char *category, int track,
                        int64_t begin, int64_t end)
{
    strbuf_printf(&p->text,
                  ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
                  "\"pid\":%d,\"tid\":%d",
                  name, category, (double)(begin - p->origin) / 1e3, (double)(end - begin) / 1e3,
                  process_of(p), track);
}

static void print_step(Printer *p, const ProfileEvent *event)
{
    const Step *step = &event->plan->step[event->step];
    const Op *op = step->op;
    StrBuf *text = &p->text;
    if (step->sync) {
        print_slice(p, "wait", "wait", p->track, event->ready, event->start);
        strbuf_printf(text, ",\"args\":{\"step\":%d}}", event->step);
    }
    static const char *const phase[] = {"", " start", " done"};
    char name[64];
    snprintf(name, sizeof name, "%s%s", op_info[op->kind].name, phase[step->phase]);
    print_slice(p, name, op_is_exchange(op) ? "exposed" : "step", p->track, event->start,
                event->end);
    strbuf_puts(text, ",\"args\":{\"graph\":\"");
    print_quoted(text, event->plan->name);
    strbuf_printf(text, "\",\"step\":%d,\"kernel\":\"%s\",", event->step, step->kernel);
    if (op->fused) {
        strbuf_puts(text, "\"region\":\"");
        body_print_name(text, op->fused->body);
        strbuf_puts(text, "\",");
    }
    print_types(text, "operands", op->n_operands, op->operand);
    print_types(text, "results", op->n_results, op->result);
    strbuf_printf(text, "\"bytes\":%zu,\"flops\":%.0f}}", step->bytes, step->flops);
}

static void print_thread_name(Printer *p, int track, const char *name, int number)
{
    strbuf_printf(&p->text,
                  ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%d,"
                  "\"args\":{\"name\":\"%s",
                  process_of(p), track, name);
    if (number >= 0)
        strbuf_printf(&p->text, " %d", number);
    strbuf_puts(&p->text, "\"}}");
}

/* On the first lane that is free: slices of one track may not cross. What had arrived before somebody asked for it
   ends there. */
static void print_collective(Printer *p, const CommEvent *event)
{
    int64_t ended = event->arrived < event->asked ? event->arrived : event->ended;
    int lane = 0, n_threads = p->profile[p->device]->n_threads;
    while (lane < LANES - 1 && p->busy[lane] > event->begun)
        lane++;
    if (p->busy[lane] == 0)
        print_thread_name(p, n_threads + lane, "communication", lane ? lane + 1 : -1);
    p->busy[lane] = ended;
    print_slice(p, op_info[event->op->kind].name, "communication", n_threads + lane, event->begun,
                ended);
    strbuf_puts(&p->text, ",\"args\":{");
    print_types(&p->text, "operands", 1, event->op->operand);
    strbuf_printf(&p->text,
                  "\"axis\":\"%s\",\"bytes\":%.0f,\"asked_for_at_us\":%.3f,\"exposed_us\":%.3f}}",
                  event->axes, event->bytes, (double)(event->asked - p->origin) / 1e3,
                  (double)event->exposed / 1e3);
}

/* Prints some more of what this process has; nothing when all was printed. */
static void print_some(Printer *p)
{
    while (p->device < p->n && p->text.length < ENOUGH && !p->text.failed) {
        Profile *profile = p->profile[p->device];
        int n_threads = profile->n_threads;
        size_t n;
        if (p->track == 0 && p->event == 0) {
            strbuf_printf(
                &p->text,
                ",\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,\"args\":{\"name\":\"",
                process_of(p));
            if (p->several)
                strbuf_printf(&p->text, "device %d", p->first + p->device);
            else
                strbuf_puts(&p->text, "caravan");
            print_quoted(&p->text, p->where);
            strbuf_puts(&p->text, profile_dropped(profile) ? " (events were dropped)" : "");
            strbuf_puts(&p->text, "\"}}");
        }
        if (p->track < n_threads) {
            const ProfileTrack *track = &profile->track[p->track];
            n = track->n;
            if (p->event == 0)
                print_thread_name(p, p->track, "thread", p->track);
            for (; p->event < n && p->text.length < ENOUGH; p->event++)
                print_step(p, &track->event[p->event]);
        } else {
            const CommEvent *event = profile_collectives(profile, &n);
            for (; p->event < n && p->text.length < ENOUGH; p->event++)
                print_collective(p, &event[p->event]);
        }
        if (p->event < n)
            continue;
        p->event = 0;
        if (++p->track <= n_threads)
            continue;
        p->track = 0;
        p->device++;
        memset(p->busy, 0, sizeof p->busy);
    }
}

/* ---- writing ---- */

/* What a process says of itself before its events. */
typedef struct Greeting {
    int64_t origin;  /* its beginning by its clock_ns */
    int64_t real;    /* what the time of day is ahead of that clock, in ns */
    int64_t dropped; /* events */
    int64_t n;       /* devices */
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
        g->n = i < cluster_rank(cluster) ? g->n : all[i].n;
    }
    g->origin = zero - g->real;
    g->dropped = dropped;
    return CVN_OK;
}

/* Everybody's next piece: [n] of them, each *bytes long with zeros at the end, to *all; *bytes is 0 when nobody has
   any more. */
static int gather_texts(Cluster *cluster, Printer *p, char **all, size_t *bytes, cvn_err *err)
{
    int n = cluster_size(cluster);
    int64_t own = p->text.failed ? -1 : (int64_t)p->text.length, most = 0;
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
        memcpy(piece, p->text.text, (size_t)own);
    TRY(cluster_gather(cluster, CLUSTER_STEPS, piece, pieces, *bytes, err));
    strbuf_clear(&p->text);
    return CVN_OK;
}

/* Of all processes; only rank 0 has a writer. What it cannot write does not keep the others waiting. */
static int write_all(Cluster *cluster, Printer *p, FileWriter *writer, cvn_err *err)
{
    SCOPED(scoped_free) char *all = NULL;
    size_t bytes = 0;
    int code, wrote = CVN_OK;
    do {
        print_some(p);
        code = gather_texts(cluster, p, &all, &bytes, err);
        for (int i = 0; !code && bytes && writer && !wrote && i < cluster_size(cluster); i++) {
            const char *piece = all + (size_t)i * bytes;
            wrote = file_writer_write(writer, piece, strnlen(piece, bytes), err);
        }
    } while (!code && bytes);
    return code ? code : wrote;
}

int trace_write(Trace *trace, Cluster *cluster, const char *path, cvn_err *err)
{
    Profile *const *profile = trace->profile;
    const Comm *comm = trace->device[0]->links.comm;
    int n = trace->n, first = comm ? comm_first(comm) : 0;
    char where[96] = "";
    bool writes = cluster_rank(cluster) == 0;
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    Greeting greeting = {.origin = INT64_MAX, .n = n};
    greeting.real = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - clock_ns();
    for (int i = 0; i < n; i++) {
        greeting.origin = num_min(profile[i]->origin, greeting.origin);
        greeting.dropped += (int64_t)profile_dropped(profile[i]);
    }
    FileWriter writer;
    TRY(meet(cluster, &greeting, err));
    if (cluster)
        snprintf(where, sizeof where, " (rank %d, %s)", cluster_rank(cluster),
                 cluster_host(cluster, cluster_rank(cluster)));
    Printer p = {.profile = profile,
                 .n = n,
                 .first = first,
                 .several = cluster || n > 1,
                 .where = where,
                 .origin = greeting.origin};
    char head[160];
    snprintf(head, sizeof head,
             "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":%" PRId64
             "},\"traceEvents\":[\n{\"name\":\"process_sort_index\",\"ph\":\"M\","
             "\"pid\":1,\"args\":{\"sort_index\":1}}",
             greeting.dropped);
    int opened = writes ? file_writer_open(&writer, path, err) : CVN_OK;
    if (writes && !opened)
        opened = file_writer_write(&writer, head, strlen(head), err);
    int code = write_all(cluster, &p, writes && !opened ? &writer : NULL, err);
    code = opened ? opened : code;
    if (!code && writes)
        code = file_writer_write(&writer, "\n]}\n", 4, err);
    if (!code && writes)
        code = file_writer_commit(&writer, err);
    if (writes)
        file_writer_free(&writer);
    strbuf_free(&p.text);
    return code;
}
