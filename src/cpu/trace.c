/* The tracks of a device as events of a trace (run/trace_file.h): its threads, then what it communicates. */
#include "cpu/trace.h"

#include "base/num.h"
#include "compile/fused.h"
#include "compile/schedule.h"
#include "graph/region.h"
#include "run/trace_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = COMM_IN_FLIGHT };

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
    int device, track;
    size_t event;
    int64_t busy[LANES]; /* until when a lane of communication has a slice */
    TraceOut *out;
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

static int process_of(const Printer *p)
{
    return p->first + p->device + 1;
}

static void print_step(Printer *p, const ProfileEvent *event)
{
    const Step *step = &event->plan->step[event->step];
    const Op *op = step->op;
    StrBuf *text = &p->out->text;
    if (step->sync) {
        trace_slice(p->out, "wait", "wait", process_of(p), p->track, event->ready, event->start);
        strbuf_printf(text, ",\"args\":{\"step\":%d}}", event->step);
    }
    static const char *const phase[] = {"", " start", " done"};
    char name[64];
    snprintf(name, sizeof name, "%s%s", op_info[op->kind].name, phase[step->phase]);
    trace_slice(p->out, name, op_is_exchange(op) ? "exposed" : "step", process_of(p), p->track,
                event->start, event->end);
    strbuf_puts(text, ",\"args\":{\"graph\":\"");
    trace_quote(text, event->plan->name, strlen(event->plan->name));
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

static void name_track(Printer *p, int track, const char *name, int number)
{
    char text[32];
    if (number < 0)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "%s %d", name, number);
    trace_track(p->out, process_of(p), track, text);
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
        name_track(p, n_threads + lane, "communication", lane ? lane + 1 : -1);
    p->busy[lane] = ended;
    trace_slice(p->out, op_info[event->op->kind].name, "communication", process_of(p),
                n_threads + lane, event->begun, ended);
    strbuf_puts(&p->out->text, ",\"args\":{");
    print_types(&p->out->text, "operands", 1, event->op->operand);
    strbuf_printf(&p->out->text,
                  "\"axis\":\"%s\",\"bytes\":%.0f,\"asked_for_at_us\":%.3f,\"exposed_us\":%.3f}}",
                  event->axes, event->bytes, (double)(event->asked - p->out->origin) / 1e3,
                  (double)event->exposed / 1e3);
}

/* Prints some more of what this process has; nothing when all was printed. */
static void print_some(void *printer, TraceOut *out)
{
    Printer *p = printer;
    p->out = out;
    while (p->device < p->n && p->out->text.length < TRACE_ENOUGH && !p->out->text.failed) {
        Profile *profile = p->profile[p->device];
        int n_threads = profile->n_threads;
        size_t n;
        if (p->track == 0 && p->event == 0) {
            const char *dropped = profile_dropped(profile) ? " (events were dropped)" : "";
            char name[64];
            if (p->several)
                snprintf(name, sizeof name, "device %d%s", p->first + p->device, dropped);
            else
                snprintf(name, sizeof name, "caravan%s", dropped);
            trace_process(out, process_of(p), name);
        }
        if (p->track < n_threads) {
            const ProfileTrack *track = &profile->track[p->track];
            n = track->n;
            if (p->event == 0)
                name_track(p, p->track, "thread", p->track);
            for (; p->event < n && p->out->text.length < TRACE_ENOUGH; p->event++)
                print_step(p, &track->event[p->event]);
        } else {
            const CommEvent *event = profile_collectives(profile, &n);
            for (; p->event < n && p->out->text.length < TRACE_ENOUGH; p->event++)
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

int trace_write(Trace *trace, Cluster *cluster, const char *path, cvn_err *err)
{
    const Comm *comm = trace->device[0]->links.comm;
    Printer p = {.profile = trace->profile,
                 .n = trace->n,
                 .first = comm ? comm_first(comm) : 0,
                 .several = cluster || trace->n > 1};
    TraceSource source = {.origin = INT64_MAX, .print = print_some, .context = &p};
    for (int i = 0; i < trace->n; i++) {
        source.origin = num_min(trace->profile[i]->origin, source.origin);
        source.dropped += (int64_t)profile_dropped(trace->profile[i]);
    }
    return trace_file_write(&source, cluster, path, err);
}
