/*
 * The extension (xla/pjrt/c/pjrt_c_api_profiler_extension.h) is in the list behind the plugin's table. It points to another
 * table (xla/backends/profiler/plugin/profiler_c_api.h), whose functions have errors of their own: create, start, stop,
 * collect, destroy. What is collected is an XSpace (pjrt/xspace.h).
 */
#include "pjrt/profile.h"

#include "base/heap.h"
#include "base/threads.h"
#include "pjrt/xspace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPANS = 1 << 18 };   /* of the host: 6 MiB */
enum { PLUGIN_PIDS = 256 }; /* numbers of processes in the trace that each rank has */

typedef struct Span {
    const char *name;
    int64_t begin, end; /* clock_ns */
} Span;

struct PjrtProfile {
    const PjrtProfiler *table; /* the plugin's; NULL: it has none, or it failed */
    void *session;             /* owned, of the table */
    char failed[160];          /* what the plugin's profiler said; "" */
    int64_t begun;             /* clock_ns */
    Span *span;                /* owned [n] */
    size_t n, dropped;
};

/* ---- the plugin's own ---- */

static const PjrtProfiler *find_table(const PjrtApi *api)
{
    const PjrtExtension *e = api->extension;
    while (e && e->type != PJRT_EXTENSION_PROFILER)
        e = e->next;
    const PjrtProfiler *table = e ? ((const PjrtProfilerExtension *)(const void *)e)->table : NULL;
    return table && table->size >= sizeof *table ? table : NULL;
}

/* Whether a function failed; then its words are kept. */
static bool fails(PjrtProfile *p, void *error, const char *doing)
{
    if (!error)
        return false;
    PjrtProfilerMessageArgs said = {.size = sizeof said, .error = error};
    PjrtProfilerErrorArgs gone = {.size = sizeof gone, .error = error};
    p->table->message(&said);
    snprintf(p->failed, sizeof p->failed, " (the plugin could not %s: %.*s)", doing,
             (int)(said.text.n < 80 ? said.text.n : 80), said.text.text ? said.text.text : "");
    p->table->destroy_error(&gone);
    return true;
}

static void end_session(PjrtProfile *p)
{
    if (p->session)
        fails(p, p->table->destroy(&(PjrtProfilerArgs){sizeof(PjrtProfilerArgs), p->session}),
              "end its profile");
    p->session = NULL;
}

static void start_session(PjrtProfile *p)
{
    /* tensorflow.ProfileOptions: version 1, the host's tracer at level 2, the devices' at level 1. */
    static const char options[] = {5 << 3, 1, 2 << 3, 2, 3 << 3, 1};
    PjrtProfilerCreateArgs create = {.size = sizeof create, .options = {options, sizeof options}};
    if (fails(p, p->table->create(&create), "make a profile"))
        return;
    p->session = create.session;
    if (fails(p, p->table->start(&(PjrtProfilerArgs){sizeof(PjrtProfilerArgs), p->session}),
              "start its profile"))
        end_session(p);
}

/* Ends the recording; *bytes[*n] is what there is, the session's, or *owned; 0 where it failed. */
static int collect(PjrtProfile *p, const uint8_t **bytes, size_t *n, uint8_t **owned, cvn_err *err)
{
    *n = 0;
    PjrtProfilerArgs stop = {sizeof stop, p->session};
    PjrtProfilerCollectArgs args = {.size = sizeof args, .session = p->session};
    if (!p->session || fails(p, p->table->stop(&stop), "stop its profile") ||
        fails(p, p->table->collect(&args), "collect its profile"))
        return CVN_OK;
    if (!args.buffer && args.n) { /* it has told how much; newer ones lend what they have at once */
        *owned = args.buffer = malloc(args.n);
        if (!*owned)
            return err_set(err, CVN_EMEM, "no memory for a profile of %zu bytes", args.n);
        if (fails(p, p->table->collect(&args), "collect its profile"))
            return CVN_OK;
    }
    *bytes = args.buffer;
    *n = args.buffer ? args.n : 0;
    return CVN_OK;
}

/* ---- recording ---- */

PjrtProfile *pjrt_profile_begin(const Plugin *plugin, cvn_err *err)
{
    PjrtProfile *p = calloc(1, sizeof *p);
    if (p)
        p->span = calloc(SPANS, sizeof *p->span);
    if (!p || !p->span) {
        free(p);
        err_set(err, CVN_EMEM, "no memory for a profile");
        return NULL;
    }
    p->table = find_table(plugin->api);
    p->begun = clock_ns();
    if (p->table)
        start_session(p);
    return p;
}

void pjrt_profile_add(PjrtProfile *p, const char *name, int64_t begin)
{
    if (p && p->n < SPANS)
        p->span[p->n++] = (Span){name, begin, clock_ns()};
    else if (p)
        p->dropped++;
}

void pjrt_profile_free(PjrtProfile *p)
{
    if (!p)
        return;
    end_session(p);
    free(p->span);
    free(p);
}

/* ---- writing ---- */

typedef struct Printer {
    const PjrtProfile *profile;
    size_t next; /* of the host's spans */
    XSpace space;
} Printer;

static void print_some(void *printer, TraceOut *out)
{
    Printer *p = printer;
    const PjrtProfile *profile = p->profile;
    int pid = out->rank * PLUGIN_PIDS + 1;
    if (p->next == 0) {
        char name[224];
        snprintf(name, sizeof name, "caravan%s%s", profile->dropped ? " (events were dropped)" : "",
                 profile->failed);
        trace_process(out, pid, name);
        trace_track(out, pid, 0, "host");
        p->space.pid = pid + 1;
    }
    for (; p->next < profile->n && out->text.length < TRACE_ENOUGH; p->next++) {
        const Span *span = &profile->span[p->next];
        trace_slice(out, span->name, "host", pid, 0, span->begin, span->end);
        strbuf_puts(&out->text, "}");
    }
    if (p->next == profile->n)
        xspace_print(&p->space, out);
}

int pjrt_profile_write(PjrtProfile *p, Cluster *cluster, const char *path, cvn_err *err)
{
    const uint8_t *bytes = NULL;
    size_t n;
    SCOPED(scoped_free) uint8_t *owned = NULL;
    Arena arena;
    TRY(arena_init(&arena, err));
    int code = collect(p, &bytes, &n, &owned, err);
    code = cluster_together(cluster, CLUSTER_STEPS, code, err);
    if (code == CVN_OK) {
        Printer printer = {.profile = p, .space = xspace_open(bytes, n, &arena, p->begun, 0)};
        const TraceSource source = {.origin = p->begun,
                                    .dropped = (int64_t)p->dropped,
                                    .print = print_some,
                                    .context = &printer};
        code = trace_file_write(&source, cluster, path, err);
    }
    arena_free(&arena);
    end_session(p);
    return code;
}
