/*
 * The Chrome trace event format (Duffy and others, "Trace Event Format"): an object with an array of events.
 *
 *     {"name":"dot_general","cat":"step","ph":"X","ts":12.345,"dur":6.789,"pid":1,"tid":0,"args":{…}}
 *
 * "X" is a slice with its beginning and duration in microseconds; "M" names a thread.
 */
#include "cpu/profile.h"

#include "base/file.h"
#include "base/threads.h"
#include "compile/fuse.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct Event {
    const Plan *plan;
    int step;
    int64_t ready, start, end; /* nanoseconds */
} Event;

/* A line of its own in the cache for each thread. */
typedef struct Track {
    alignas(64) Event *event; /* owned: [capacity] */
    size_t n;
    size_t dropped;
} Track;

struct Profile {
    int n_threads;
    size_t capacity; /* events per thread */
    int64_t origin;  /* clock_ns at the beginning: time 0 of the trace */
    Track *track;    /* [n_threads] */
};

Profile *profile_new(int n_threads, size_t events, cvn_err *err)
{
    size_t n = (size_t)n_threads;
    Profile *profile = calloc(1, sizeof *profile);
    Track *track = aligned_alloc(64, n * sizeof *track);
    if (!profile || !track) {
        free(profile);
        free(track);
        err_set(err, CVN_EMEM, "no memory for a profile");
        return NULL;
    }
    *profile = (Profile){.n_threads = n_threads,
                         .capacity = events ? events : PROFILE_EVENTS,
                         .origin = clock_ns(),
                         .track = track};
    bool ok = true;
    for (size_t i = 0; i < n; i++) {
        track[i] = (Track){.event = calloc(profile->capacity, sizeof(Event))};
        ok = ok && track[i].event;
    }
    if (!ok) {
        profile_free(profile);
        err_set(err, CVN_EMEM, "no memory for a profile of %zu events per thread", events);
        return NULL;
    }
    return profile;
}

void profile_free(Profile *profile)
{
    if (!profile)
        return;
    for (int i = 0; i < profile->n_threads; i++)
        free(profile->track[i].event);
    free(profile->track);
    free(profile);
}

void profile_add(Profile *profile, int thread, const Plan *plan, int step, int64_t ready,
                 int64_t start, int64_t end)
{
    Track *track = &profile->track[thread];
    if (track->n == profile->capacity) {
        track->dropped++;
        return;
    }
    track->event[track->n++] = (Event){plan, step, ready, start, end};
}

void profile_clear(Profile *profile)
{
    for (int i = 0; i < profile->n_threads; i++)
        profile->track[i].n = profile->track[i].dropped = 0;
}

int64_t profile_sum(const Profile *profile, int thread, bool (*counts)(const Step *step))
{
    const Track *track = &profile->track[thread];
    int64_t sum = 0;
    for (size_t i = 0; i < track->n; i++) {
        const Event *event = &track->event[i];
        if (counts(&event->plan->step[event->step]))
            sum += event->end - event->start;
    }
    return sum;
}

size_t profile_dropped(const Profile *profile)
{
    size_t n = 0;
    for (int i = 0; i < profile->n_threads; i++)
        n += profile->track[i].dropped;
    return n;
}

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

/* The head of a slice, up to and with its last number. */
static void print_slice(StrBuf *buf, const Profile *profile, const char *name, const char *category,
                        int thread, int64_t begin, int64_t end)
{
    strbuf_printf(buf,
                  ",\n{\"name\":\"%s\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%.3f,\"dur\":%.3f,"
                  "\"pid\":1,\"tid\":%d",
                  name, category, (double)(begin - profile->origin) / 1e3,
                  (double)(end - begin) / 1e3, thread);
}

static void print_event(StrBuf *buf, const Profile *profile, int thread, const Event *event)
{
    const Step *step = &event->plan->step[event->step];
    const Op *op = step->op;
    if (step->sync) {
        print_slice(buf, profile, "wait", "wait", thread, event->ready, event->start);
        strbuf_printf(buf, ",\"args\":{\"step\":%d}}", event->step);
    }
    print_slice(buf, profile, op_info[op->kind].name, "step", thread, event->start, event->end);
    strbuf_puts(buf, ",\"args\":{\"graph\":\"");
    print_quoted(buf, event->plan->name);
    strbuf_printf(buf, "\",\"step\":%d,\"kernel\":\"%s\",", event->step, step->kernel);
    if (op->kind == OP_FUSION) {
        strbuf_puts(buf, "\"members\":\"");
        fusion_print(buf, op);
        strbuf_puts(buf, "\",");
    }
    print_types(buf, "operands", op->n_operands, op->operand);
    print_types(buf, "results", op->n_results, op->result);
    strbuf_printf(buf, "\"bytes\":%zu,\"flops\":%.0f}}", step->bytes, step->flops);
}

/* Writes what is in buf, and empties it. */
static int flush(FileWriter *writer, StrBuf *buf, const char *path, cvn_err *err)
{
    if (buf->failed)
        return err_set(err, CVN_EMEM, "no memory to write the profile '%s'", path);
    int rc = buf->length ? file_writer_write(writer, buf->text, buf->length, err) : CVN_OK;
    strbuf_clear(buf);
    return rc;
}

int profile_write(const Profile *profile, const char *path, cvn_err *err)
{
    FileWriter writer;
    StrBuf buf = {0};
    int rc = file_writer_open(&writer, path, err);
    if (rc)
        return rc;
    strbuf_printf(&buf,
                  "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"dropped_events\":%zu},"
                  "\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":1,"
                  "\"args\":{\"name\":\"caravan%s\"}}",
                  profile_dropped(profile),
                  profile_dropped(profile) ? " (events were dropped)" : "");
    for (int t = 0; t < profile->n_threads && !rc; t++) {
        const Track *track = &profile->track[t];
        strbuf_printf(&buf,
                      ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":%d,"
                      "\"args\":{\"name\":\"thread %d\"}}",
                      t, t);
        for (size_t i = 0; i < track->n && !rc; i++) {
            print_event(&buf, profile, t, &track->event[i]);
            if (buf.length > 1 << 16)
                rc = flush(&writer, &buf, path, err);
        }
    }
    strbuf_puts(&buf, "\n]}\n");
    if (!rc)
        rc = flush(&writer, &buf, path, err);
    if (!rc)
        rc = file_writer_commit(&writer, err);
    strbuf_free(&buf);
    file_writer_free(&writer);
    return rc;
}
