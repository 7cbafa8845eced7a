/*
 * Buffers of a plugin are values: a run takes some and makes new ones. Those that it was given to write into (donation)
 * it makes of the same memory; their handles change places after each run, so that a Memory is a name for the newest.
 */
#include "pjrt/backend.h"

#include "base/helper.h"
#include "base/threads.h"
#include "pjrt/devices.h"

#include <stdlib.h>
#include <string.h>

/* ---- devices ---- */

static void destroy_executable(Devices *c, Executable *x)
{
    plugin_destroy(&c->plugin, PJRT_LOADED_DESTROY, x->loaded);
    for (int i = 0; x->result && i < x->signature.n_outputs; i++)
        free(x->result[i]);
}

static void pjrt_close(Devices *c)
{
    if (!c)
        return;
    pjrt_profile_free(c->profile);
    for (Executable *x = c->modules.first; x; x = x->next)
        destroy_executable(c, x);
    plugin_destroy(&c->plugin, PJRT_TOPOLOGY_DESTROY, c->modules.topology.topology);
    plugin_destroy(&c->plugin, PJRT_CLIENT_DESTROY, c->client);
    keys_close(c->keys);
    arena_free(&c->arena);
    free(c);
}

/* Of the mesh's `all` devices, each process has n; they are numbered in the order of ranks. */
static int take_devices(Devices *c, int all, cvn_err *err)
{
    int ranks = cluster_size(c->cluster), n = all / ranks;
    ClientInfo info;
    const char *kind = "";
    TRY(plugin_client_info(&c->plugin, c->client, &c->arena, &info, err));
    if ((size_t)n > info.n)
        return err_set(err, CVN_EINVAL,
                       "the mesh has %d devices%s, but '%s' has %zu; use a smaller mesh", n,
                       ranks > 1 ? " in each process" : "", c->plugin.path, info.n);
    c->n = n;
    c->device = arena_array(&c->arena, (size_t)n, sizeof *c->device);
    c->id = arena_array(&c->arena, (size_t)all, sizeof *c->id);
    int64_t *own = c->id + cluster_rank(c->cluster) * n;
    for (int i = 0; i < n; i++) {
        c->device[i] = info.device[i];
        TRY(plugin_device_id(&c->plugin, c->device[i], &own[i], err));
    }
    if (n)
        TRY(plugin_device_kind(&c->plugin, c->device[0], &c->arena, &kind, err));
    c->kind = arena_printf(&c->arena, "%s %s", info.platform, kind);
    c->version = info.version;
    return CVN_OK;
}

typedef struct Opening {
    Devices *devices;
    const DeviceOptions *options;
} Opening;

static int open_devices(void *of, cvn_err *err)
{
    Devices *c = ((Opening *)of)->devices;
    const DeviceOptions *o = ((Opening *)of)->options;
    TRY(arena_init(&c->arena, err));
    map_init(&c->modules.by_text, &c->arena);
    c->modules.dump_dir = o->dump_dir;
    if (o->topology) /* TPUs: a process does not take chips away from others */
        setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
    TRY(plugin_open(&c->plugin, o->device, &c->arena, err));
    c->modules.save = o->save;
    c->kind = o->topology;
    if (o->topology)
        return topology_open(&c->modules.topology, &c->plugin, o->topology, &c->arena, err);
    if (c->cluster)
        TRY(keys_open(cluster_transport(c->cluster), &c->keys, err));
    TRY(plugin_client(&c->plugin, c->keys, cluster_rank(c->cluster), cluster_size(c->cluster),
                      &c->client, err));
    return take_devices(c, o->n_devices, err);
}

/* Opens the devices of all processes or of none; the error names the process that failed. */
static int open_together(Devices *c, int code, cvn_err *err)
{
    TRY(cluster_together(c->cluster, CLUSTER_STEPS, code, err));
    if (!c->cluster)
        return CVN_OK;
    size_t n = (size_t)c->n, first = (size_t)cluster_rank(c->cluster) * n;
    int64_t *own = arena_try(&c->arena, n * sizeof *own);
    if (!own)
        return err_set(err, CVN_EMEM, "no memory for devices");
    memcpy(own, c->id + first, n * sizeof *own);
    return cluster_gather(c->cluster, CLUSTER_STEPS, own, c->id, n * sizeof *own, err);
}

static int pjrt_open(const DeviceOptions *o, Devices **out, cvn_err *err)
{
    Devices *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(err, CVN_EMEM, "no memory for devices");
    c->cluster = o->n_devices ? o->cluster : NULL;
    int code = protect(open_devices, &(Opening){c, o}, "opening the devices", err);
    code = open_together(c, code, err);
    if (code)
        pjrt_close(c);
    else
        *out = c;
    return code;
}

static void pjrt_describe(const Devices *c, DeviceInfo *out)
{
    *out = (DeviceInfo){
        .kind = c->kind, .n_local = c->n, .first = cluster_rank(c->cluster) * c->n, .threads = 1};
}

static void pjrt_executable(const Executable *x, ExecutableInfo *out)
{
    *out = x->info;
}

static int64_t pjrt_compilations(const Devices *c)
{
    return c->modules.compilations;
}

/* ---- memory ---- */

static int type_of(cvn_dtype dtype)
{
    static const int type[CVN_DTYPE_COUNT] = {
        [CVN_F64] = PJRT_F64, [CVN_F32] = PJRT_F32, [CVN_BF16] = PJRT_BF16,
        [CVN_F16] = PJRT_F16, [CVN_I32] = PJRT_I32, [CVN_U32] = PJRT_U32,
        [CVN_I8] = PJRT_I8,   [CVN_I4] = PJRT_I4,   [CVN_BOOL] = PJRT_BOOL,
    };
    return type[dtype];
}

/* Elements of 4 bits are widened, because plugins take one per byte. */
static int unpack(const cvn_type *type, const void *data, void **out, cvn_err *err)
{
    int64_t n = cvn_type_elements(type);
    int8_t *bytes = *out = malloc((size_t)n + 1);
    if (!bytes)
        return err_set(err, CVN_EMEM, "no memory for a tensor of %zu bytes", (size_t)n);
    for (int64_t i = 0; i < n; i++)
        bytes[i] = (int8_t)element_get(CVN_I4, data, i);
    return CVN_OK;
}

/* Plain data to device d. `semantics` says how long they stay as they are; the transfer has ended only where that is more
   than the call. */
static int send(Devices *c, int d, const cvn_type *type, const void *data, int semantics,
                PjrtBuffer **out, cvn_err *err)
{
    PjrtFromHostArgs args =
        PJRT_NEW(PjrtFromHostArgs, buffer, .client = c->client, .data = data,
                 .type = type_of(type->dtype), .dim = type->dim, .rank = (size_t)type->rank,
                 .semantics = semantics, .device = c->device[d]);
    void *unpacked = NULL;
    if (type->dtype == CVN_I4)
        TRY(unpack(type, data, &unpacked, err));
    if (unpacked) {
        args.data = unpacked;
        args.semantics = PJRT_ONLY_DURING_CALL;
    }
    int code = plugin_call(&c->plugin, PJRT_CLIENT_BUFFER_FROM_HOST, &args, err,
                           "accept a tensor of %zu bytes", cvn_type_bytes(type));
    free(unpacked);
    if (code)
        return code;
    *out = args.buffer;
    if (args.semantics != PJRT_ONLY_DURING_CALL)
        return plugin_await(&c->plugin, args.done, err, "accept a tensor");
    plugin_destroy(&c->plugin, PJRT_EVENT_DESTROY, args.done);
    return CVN_OK;
}

/* Starts the transfer of a buffer to host memory, row-major. */
static int bring(Devices *c, PjrtBuffer *buffer, const cvn_type *type, void *out, PjrtEvent **event,
                 cvn_err *err)
{
    int64_t order[CVN_MAX_RANK];
    for (int d = 0; d < type->rank; d++)
        order[d] = type->rank - 1 - d;
    PjrtLayout plain = PJRT_NEW(PjrtLayout, kind, .order_size = offsetof(PjrtLayout, kind) - 16,
                                .order = order, .rank = (size_t)type->rank);
    PjrtToHostArgs args = PJRT_NEW(PjrtToHostArgs, event, .buffer = buffer, .layout = &plain,
                                   .target = out, .bytes = cvn_type_bytes(type));
    TRY(plugin_call(&c->plugin, PJRT_BUFFER_TO_HOST, &args, err, "return a tensor"));
    *event = args.event;
    return CVN_OK;
}

static int pjrt_alloc(Devices *c, int d, const MemoryOptions *o, Memory **out, cvn_err *err)
{
    Memory *m = *out = calloc(1, sizeof *m);
    (void)c, (void)d;
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a tensor");
    m->type = o->type;
    return CVN_OK;
}

static void pjrt_free(Devices *c, Memory *m)
{
    if (m)
        plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, m->buffer);
    free(m);
}

/* Returns the shard in host memory: in place in a mapped file, or read into *owned. */
static int read_shard(const Memory *m, const BoxArray *shard, const Source *source,
                      const void **data, void **owned, cvn_err *err)
{
    size_t bytes = cvn_type_bytes(&m->type);
    const BoxArray packed = box_packed(&shard->box);
    int64_t there = box_elements(&shard->box);
    bool padded = there != cvn_type_elements(&m->type);
    *owned = NULL;
    *data = source->mapped;
    if (source->mapped)
        return CVN_OK;
    char *all = calloc(1, bytes + 1);
    char *part = all && padded ? malloc(cvn_dtype_bytes(m->type.dtype, there) + 1) : all;
    int code = part ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a tensor of %zu bytes", bytes);
    if (code == CVN_OK && there)
        code = source->read(source->context, &shard->box, part, err);
    if (code == CVN_OK && padded)
        box_copy(&packed, part, shard, all, m->type.dtype);
    if (part != all)
        free(part);
    if (code)
        free(all);
    else
        *data = *owned = all;
    return code;
}

static int pjrt_upload(Devices *c, int d, Memory *m, const BoxArray *shard, const Source *source,
                       cvn_err *err)
{
    const void *data;
    void *owned;
    TRY(read_shard(m, shard, source, &data, &owned, err));
    plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, m->buffer);
    m->buffer = NULL;
    int code = send(c, d, &m->type, data, PJRT_UNTIL_TRANSFERRED, &m->buffer, err);
    free(owned);
    return code;
}

/* Fills a buffer with 0 if nothing was written to it yet. */
int pjrt_zeros(Devices *c, int d, Memory *m, cvn_err *err)
{
    if (m->buffer)
        return CVN_OK;
    SCOPED(scoped_free) void *zeros = calloc(1, cvn_type_bytes(&m->type) + 1);
    if (!zeros)
        return err_set(err, CVN_EMEM, "no memory for a tensor");
    return send(c, d, &m->type, zeros, PJRT_UNTIL_TRANSFERRED, &m->buffer, err);
}

static int pjrt_download(Devices *c, const Memory *m, size_t offset, size_t bytes, void *out,
                         cvn_err *err)
{
    size_t all = cvn_type_bytes(&m->type);
    PjrtEvent *event;
    if (m->type.dtype == CVN_I4)
        return err_set(err, CVN_EUNSUPPORTED, "4-bit tensors cannot be copied to the host");
    if (!m->buffer) {
        memset(out, 0, bytes);
        return CVN_OK;
    }
    char *whole = bytes == all ? out : malloc(all);
    if (!whole)
        return err_set(err, CVN_EMEM, "no memory for a tensor of %zu bytes", all);
    int code = bring(c, m->buffer, &m->type, whole, &event, err);
    if (code == CVN_OK)
        code = plugin_await(&c->plugin, event, err, "return a tensor");
    if (whole != out) {
        if (code == CVN_OK)
            memcpy(out, whole + offset, bytes);
        free(whole);
    }
    return code;
}

static int pjrt_reserve(Devices *c, size_t bytes, cvn_err *err)
{
    (void)c, (void)bytes, (void)err;
    return CVN_OK;
}

/* ---- running ---- */

/* Frees the arguments that were made for this run alone. */
static void drop_inputs(Devices *c, const Executable *x, const Argument *argument)
{
    int n = x->signature.n_parameters;
    for (int d = 0; d < c->n; d++) {
        for (int i = 0; i < n; i++) {
            if (!argument[d * n + i].memory)
                plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, x->arguments[d][i]);
            x->arguments[d][i] = NULL;
        }
    }
}

static int give_inputs(Devices *c, const Executable *x, const Argument *argument, cvn_err *err)
{
    int n = x->signature.n_parameters;
    for (int d = 0; d < c->n; d++) {
        PjrtBuffer **to = x->arguments[d];
        for (int i = 0; i < n; i++) {
            const Argument *a = &argument[d * n + i];
            if (!a->memory) {
                if (a->pending)
                    helper_wait(a->pending);
                TRY(send(c, d, &x->parameter[i], a->host, PJRT_ONLY_DURING_CALL, &to[i], err));
                continue;
            }
            TRY(pjrt_zeros(c, d, a->memory, err));
            to[i] = a->memory->buffer;
        }
    }
    return CVN_OK;
}

static int execute(Devices *c, const Executable *x, cvn_err *err)
{
    PjrtExecuteOptions options = PJRT_NEW(PjrtExecuteOptions, incarnation, .launch = 0);
    PjrtExecuteArgs args = PJRT_NEW(
        PjrtExecuteArgs, device, .loaded = x->loaded, .options = &options,
        .argument = (PjrtBuffer *const *const *)x->arguments, .n_devices = (size_t)c->n,
        .n_arguments = (size_t)x->signature.n_parameters, .output = x->mades, .event = x->done);
    c->running.begun = clock_ns();
    return plugin_call(&c->plugin, PJRT_LOADED_EXECUTE, &args, err, "run '%s'", x->name);
}

/* Outputs that go into resident tensors replace their buffers. */
static void keep_outputs(Devices *c, const Executable *x, const Argument *argument)
{
    for (int d = 0; d < c->n; d++) {
        for (int i = 0; i < x->signature.n_outputs; i++) {
            int into = x->signature.into[i];
            Memory *m = into < 0 ? NULL : argument[d * x->signature.n_parameters + into].memory;
            if (!m)
                continue;
            plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, m->buffer);
            m->buffer = x->mades[d][i];
            x->mades[d][i] = NULL;
        }
    }
}

int pjrt_run(Devices *c, const Executable *x, const Argument *argument, const void **output,
             cvn_err *err)
{
    if (flag_is_set(c->interrupt))
        return err_set(err, CVN_EINTERRUPTED, "interrupted");
    int64_t given = clock_ns();
    int code = give_inputs(c, x, argument, err);
    pjrt_profile_add(c->profile, "inputs", given);
    if (code == CVN_OK)
        code = execute(c, x, err);
    drop_inputs(c, x, argument);
    if (code)
        return code;
    keep_outputs(c, x, argument);
    c->running.executable = x;
    c->running.argument = argument;
    for (int i = 0; i < x->signature.n_outputs; i++) {
        size_t bytes = cvn_type_bytes(&x->output[i]);
        bool wanted = output && x->signature.into[i] < 0;
        if (wanted && !x->result[i] && !(x->result[i] = malloc(bytes + 1)))
            code = err_set(err, CVN_EMEM, "no memory for a result of %zu bytes", bytes);
        if (output)
            output[i] = x->result[i];
    }
    return code;
}

/* Where an output of device d goes in host memory; NULL: nowhere. */
static void *target_of(const Devices *c, const Executable *x, int d, int i)
{
    int into = x->signature.into[i];
    if (into >= 0)
        return c->running.argument[d * x->signature.n_parameters + into].host;
    return d == 0 ? x->result[i] : NULL;
}

int pjrt_wait(Devices *c, cvn_err *err)
{
    const Executable *x = c->running.executable;
    int code = CVN_OK;
    c->running.executable = NULL;
    for (int d = 0; x && d < c->n; d++) {
        int failed = plugin_await(&c->plugin, x->done[d], err, "finish the program");
        code = code ? code : failed;
    }
    c->running.seconds = (double)(clock_ns() - c->running.begun) / 1e9;
    if (x)
        pjrt_profile_add(c->profile, x->name, c->running.begun);
    int64_t brought = clock_ns();
    for (int d = 0; x && d < c->n; d++) {
        for (int i = 0; i < x->signature.n_outputs; i++) {
            PjrtEvent *event = NULL;
            void *target = x->mades[d][i] ? target_of(c, x, d, i) : NULL;
            if (target && code == CVN_OK)
                code = bring(c, x->mades[d][i], &x->output[i], target, &event, err);
            int failed = plugin_await(&c->plugin, event, err, "return a result");
            code = code ? code : failed;
            plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, x->mades[d][i]);
            x->mades[d][i] = NULL;
        }
    }
    if (x)
        pjrt_profile_add(c->profile, "results", brought);
    return code;
}

static void pjrt_watch(Devices *c, const volatile int *flag)
{
    c->interrupt = flag;
}

/* ---- profiling ---- */

static void pjrt_communication(const Devices *c, CommTable *out)
{
    (void)c;
    *out = (CommTable){0};
}

static int pjrt_trace_begin(Devices *c, cvn_err *err)
{
    c->profile = pjrt_profile_begin(&c->plugin, err);
    return c->profile ? CVN_OK : err->code;
}

static int pjrt_trace_write(Devices *c, const char *path, cvn_err *err)
{
    return pjrt_profile_write(c->profile, c->cluster, path, err);
}

/* The whole executable counts as traffic; the rest of a step is the host's share. */
static double pjrt_traffic(Devices *c, bool record)
{
    (void)record;
    return c->running.seconds;
}

const Backend pjrt_backend = {
    .name = "pjrt",
    .open = pjrt_open,
    .close = pjrt_close,
    .describe = pjrt_describe,
    .compile = pjrt_compile,
    .executable = pjrt_executable,
    .compilations = pjrt_compilations,
    .alloc = pjrt_alloc,
    .free = pjrt_free,
    .upload = pjrt_upload,
    .download = pjrt_download,
    .reserve = pjrt_reserve,
    .run = pjrt_run,
    .wait = pjrt_wait,
    .watch = pjrt_watch,
    .communication = pjrt_communication,
    .trace_begin = pjrt_trace_begin,
    .trace_write = pjrt_trace_write,
    .peak = pjrt_peak,
    .reads = pjrt_reads,
    .traffic = pjrt_traffic,
};
