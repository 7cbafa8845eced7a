/*
 * Buffers of a plugin are values: a run takes some and makes new ones. Those that it was given to write into (donation)
 * it makes of the same memory; their handles change places after each run, so that a Memory is a name for the newest.
 *
 * A buffer is taken whole. Where a program works on some rows of a tensor, as prefill does on a row of the caches, its module
 * begins by slicing them out and ends by putting them back, at a row that is an input:
 *
 *     graph      (cache [1,8,256,64])                  -> cache
 *     module     (cache [4,8,256,64], first_rows [1])  -> dynamic_update_slice(cache, …(dynamic_slice(cache)))
 */
#include "pjrt/backend.h"

#include "base/cpu.h"
#include "base/map.h"
#include "base/spare.h"
#include "base/strbuf.h"
#include "base/threads.h"
#include "compile/plan.h"
#include "graph/stablehlo/stablehlo.h"
#include "pjrt/executables.h"
#include "pjrt/options.h"
#include "pjrt/plugin.h"
#include "pjrt/shardings.h"
#include "pjrt/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct Executable {
    PjrtLoaded *loaded; /* owned; NULL: it was compiled for chips that are not here */
    Compiled compiled;
    const char *name;
    ExecutableInfo info;
    Signature signature;
    cvn_type *parameter, *output; /* [parameters], [outputs] of the module */
    bool *sliced;                 /* [parameters] some rows of it are worked on */
    int n_sliced;                 /* then one more parameter: where they begin */
    int32_t *first_row;           /* [n_sliced] */
    void **result; /* [outputs] owned: in host memory, of the first device; those that go nowhere */
    /* Of a run: [local devices][parameters + 1], [local devices][outputs]. */
    PjrtBuffer **argument, **made;
    PjrtBuffer ***arguments, ***mades;
    PjrtEvent **done;        /* [local devices] */
    struct Executable *next; /* in the order in which they were made */
};

/* What devices can do: bytes that are read and written, operations of products. */
typedef enum CeilingKind {
    COPIES,
    PRODUCTS_F32,
    PRODUCTS_BF16,
    PRODUCTS_INT8,
    CEILINGS
} CeilingKind;

struct Memory {
    PjrtBuffer *buffer; /* owned; NULL: all 0, and not there yet */
    cvn_type type;
};

struct Devices {
    Arena arena; /* of executables */
    Plugin plugin;
    PjrtClient *client;  /* owned */
    Cluster *cluster;    /* the other processes, borrowed, or NULL; and */
    Keys *keys;          /* owned: what their plugins tell each other */
    PjrtDevice **device; /* [n] of the mesh, those of this process */
    int64_t *id;         /* [all of the mesh] the plugin's numbers of them */
    int n;               /* 0: graphs are only compiled */
    Topology topology;   /* that they are compiled for, where there is no client */
    const char *save;
    const char *kind, *version;
    Map modules; /* text -> Executable * */
    Executable *first;
    int64_t compilations;
    /* Programs that find out what the devices can do; NULL: not yet. */
    const Executable *ceiling[CEILINGS];
    double begun, ran; /* when the last run began on the devices, and the seconds until it ended */
    const Executable *running; /* since the last wait; or NULL */
    const Argument *argument;  /* of that run */
    const char *dump_dir;
    const volatile int *interrupt;
};

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
    for (Executable *x = c->first; x; x = x->next)
        destroy_executable(c, x);
    plugin_destroy(&c->plugin, PJRT_TOPOLOGY_DESTROY, c->topology.topology);
    plugin_destroy(&c->plugin, PJRT_CLIENT_DESTROY, c->client);
    keys_close(c->keys);
    arena_free(&c->arena);
    free(c);
}

/* Those of this process are n of the mesh's `all`, as many as every process has, which are numbered by ranks. */
static int take_devices(Devices *c, int all, cvn_err *err)
{
    int ranks = cluster_size(c->cluster), n = all / ranks;
    ClientInfo info;
    const char *kind = "";
    TRY(plugin_client_info(&c->plugin, c->client, &c->arena, &info, err));
    if ((size_t)n > info.n)
        return err_set(err, CVN_EINVAL,
                       "the mesh has %d devices%s and '%s' has %zu; take a smaller mesh", n,
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
    map_init(&c->modules, &c->arena);
    c->dump_dir = o->dump_dir;
    if (o->topology) /* TPUs: nobody takes chips away from others */
        setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 0);
    TRY(plugin_open(&c->plugin, o->device, &c->arena, err));
    c->save = o->save;
    c->kind = o->topology;
    if (o->topology)
        return topology_open(&c->topology, &c->plugin, o->topology, &c->arena, err);
    if (c->cluster)
        TRY(keys_open(cluster_transport(c->cluster), &c->keys, err));
    TRY(plugin_client(&c->plugin, c->keys, cluster_rank(c->cluster), cluster_size(c->cluster),
                      &c->client, err));
    return take_devices(c, o->n_devices, err);
}

/* What all processes have opened, or none: then the error says which could not. */
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

/* ---- executables ---- */

static int type_of(cvn_dtype dtype)
{
    static const int type[CVN_DTYPE_COUNT] = {
        [CVN_F64] = PJRT_F64, [CVN_F32] = PJRT_F32, [CVN_BF16] = PJRT_BF16,
        [CVN_F16] = PJRT_F16, [CVN_I32] = PJRT_I32, [CVN_U32] = PJRT_U32,
        [CVN_I8] = PJRT_I8,   [CVN_I4] = PJRT_I4,   [CVN_BOOL] = PJRT_BOOL,
    };
    return type[dtype];
}

/* Row `which` of the input that says where rows begin, and 0 for the other dimensions. */
static void starts_at(cvn_graph *g, cvn_value *rows, int which, int rank, cvn_value **start)
{
    cvn_value *row = cvn_slice_axis(g, rows, 0, which, which + 1);
    start[0] = cvn_reshape(g, row, 0, NULL);
    for (int d = 1; d < rank; d++)
        start[d] = cvn_constant(g, cvn_scalar(CVN_I32), &(int32_t){0});
}

/* Every use of a parameter becomes one of its slice; what goes into it is put back there. */
static void slice_parameter(cvn_graph *g, int i, int64_t rows, cvn_value *first, int which,
                            Op *begin)
{
    cvn_value *p = g->parameter[i], *start[CVN_MAX_RANK];
    cvn_type part = p->type;
    p->type.dim[0] = rows;
    graph_insert_before(g, begin);
    starts_at(g, first, which, part.rank, start);
    cvn_value *slice = cvn_dynamic_slice(g, p, start, part.dim);
    for (Op *op = begin; op; op = op->next)
        for (int k = 0; k < op->n_operands; k++)
            if (op->operand[k] == p)
                op->operand[k] = slice;
    graph_insert_before(g, NULL);
    for (int k = 0; k < g->n_outputs; k++)
        if (g->output[k].into == p)
            g->output[k].value = cvn_dynamic_update_slice(
                g, p, g->output[k].value == p ? slice : g->output[k].value, start);
}

/* All parameters before all else, in their order; the first operation behind them. */
static Op *parameters_first(cvn_graph *g)
{
    Op *begin = g->first;
    while (begin && begin->kind == OP_PARAMETER)
        begin = begin->next;
    for (Op *op = begin, *next; op; op = next) {
        next = op->next;
        if (op->kind != OP_PARAMETER)
            continue;
        graph_remove(g, op);
        op->prev = begin->prev;
        op->next = begin;
        *(begin->prev ? &begin->prev->next : &g->first) = op;
        begin->prev = op;
        g->n_ops++;
    }
    return begin;
}

/* The graph of the module: one that takes tensors whole (rows [parameters]; 0: as the parameter is). */
static cvn_graph *take_whole(const cvn_graph *local, const int64_t *rows, Executable *x,
                             Arena *arena, cvn_err *err)
{
    cvn_graph *g = graph_clone(local, err);
    if (!g)
        return NULL;
    x->sliced = arena_array(arena, (size_t)local->n_parameters, sizeof *x->sliced);
    for (int i = 0; i < local->n_parameters; i++) {
        x->sliced[i] = rows[i] && rows[i] != local->parameter[i]->type.dim[0];
        x->n_sliced += x->sliced[i];
    }
    x->first_row = arena_array(arena, (size_t)x->n_sliced + 1, sizeof *x->first_row);
    if (!x->n_sliced)
        return g;
    Op *begin = parameters_first(g);
    graph_insert_before(g, begin);
    cvn_value *first = cvn_parameter(g, "first_rows", CVN_TYPE(CVN_I32, x->n_sliced));
    for (int i = 0, which = 0; i < local->n_parameters; i++)
        if (x->sliced[i])
            slice_parameter(g, i, rows[i], first, which++, begin);
    if (cvn_graph_check(g, err)) {
        cvn_graph_free(g);
        return NULL;
    }
    return g;
}

/* All that what is compiled depends on. Of XLA's own CPU devices that is the processor, too. */
static void key_of(const Devices *c, StrBuf *key, const StrBuf *text, PjrtText options)
{
    struct stat file = {0};
    stat(c->plugin.path, &file);
    strbuf_printf(key, "%s %s 0.%d %lld.%lld %x %zu ", c->kind, c->version,
                  c->plugin.api->version.minor, (long long)file.st_size, (long long)file.st_mtime,
                  (unsigned)cpu_features(), options.n);
    strbuf_add(key, options.text, options.n);
    strbuf_add(key, text->text, text->length);
}

/* False where none is kept, and where the plugin does not take it. */
static bool load_kept(Devices *c, Executable *x, const StrBuf *key)
{
    FileMap map;
    size_t n;
    const uint8_t *bytes =
        executables_find(c->plugin.executables, key->text, key->length, &map, &n);
    if (!bytes)
        return false;
    PjrtDeserializeArgs args =
        PJRT_NEW(PjrtDeserializeArgs, n_options, .client = c->client, .bytes = bytes, .n = n);
    bool taken =
        plugin_call(&c->plugin, PJRT_DESERIALIZE_AND_LOAD, &args, NULL, "take a program") == 0;
    file_unmap(&map);
    x->loaded = taken ? args.loaded : NULL;
    return taken;
}

static void keep_compiled(Devices *c, PjrtExecutable *executable, const StrBuf *key)
{
    PjrtSerializeArgs args = PJRT_NEW(PjrtSerializeArgs, release, .executable = executable);
    if (plugin_call(&c->plugin, PJRT_EXECUTABLE_SERIALIZE, &args, NULL, "write its program"))
        return;
    executables_keep(c->plugin.executables, key->text, key->length, args.bytes.text, args.bytes.n);
    if (args.release)
        args.release(args.owner);
}

/* For the devices that are here: compiled, or, where that was done before, from the disk. */
static int load_module(Devices *c, Executable *x, const PjrtProgram *program, PjrtText options,
                       const StrBuf *key, cvn_err *err)
{
    bool keeps = c->plugin.executables && !key->failed, kept = keeps && load_kept(c, x, key);
    PjrtClientCompileArgs args = PJRT_NEW(PjrtClientCompileArgs, loaded, .client = c->client,
                                          .program = program, .options = options);
    if (!kept) {
        TRY(plugin_call(&c->plugin, PJRT_CLIENT_COMPILE, &args, err, "compile '%s'", x->name));
        x->loaded = args.loaded;
        c->compilations++;
    }
    PjrtLoadedExecutableArgs of =
        PJRT_NEW(PjrtLoadedExecutableArgs, executable, .loaded = x->loaded);
    TRY(plugin_call(&c->plugin, PJRT_LOADED_EXECUTABLE, &of, err, "describe '%s'", x->name));
    compiled_memory(&c->plugin, of.executable, &x->compiled);
    if (keeps && !kept)
        keep_compiled(c, of.executable, key);
    plugin_destroy(&c->plugin, PJRT_EXECUTABLE_DESTROY, of.executable);
    return CVN_OK;
}

static int compile_module(Devices *c, Executable *x, StrBuf *text, int n, cvn_err *err)
{
    StrBuf options = {0}, key = {0};
    Held held[2];
    hold(&held[0], strbuf_release, &options);
    hold(&held[1], strbuf_release, &key);
    compile_options_print(&options, n, c->id, c->plugin.partitions);
    const PjrtProgram program = PJRT_NEW(PjrtProgram, format, .code = text->text,
                                         .n_code = text->length, .format = {"mlir", 4});
    const PjrtText how = {options.text, options.length};
    if (c->client && c->plugin.executables)
        key_of(c, &key, text, how);
    int code = options.failed ? err_set(err, CVN_EMEM, "no memory to compile '%s'", x->name)
               : c->topology.topology
                   ? topology_compile(&c->topology, &c->plugin, x->name, &program, how, n, c->save,
                                      &x->compiled, err)
                   : load_module(c, x, &program, how, &key, err);
    held_release(&held[1]);
    held_release(&held[0]);
    x->info.temporary_bytes = (size_t)x->compiled.temporaries;
    x->info.compiled = c->topology.topology ? &x->compiled : NULL;
    c->compilations += c->topology.topology && !code;
    return code;
}

/* local: what a device has of the module's parameters and outputs, but for rows of caches. */
static void describe(Devices *c, Executable *x, const cvn_graph *local, const cvn_graph *module)
{
    Arena *arena = &c->arena;
    size_t n = (size_t)local->n_parameters, outputs = (size_t)local->n_outputs;
    size_t devices = (size_t)c->n;
    MemoryLayout *layout = arena_array(arena, n, sizeof *layout);
    size_t *bytes = arena_array(arena, n, sizeof *bytes);
    signature_of(&x->signature, local, arena);
    x->parameter = arena_array(arena, n, sizeof *x->parameter);
    x->output = arena_array(arena, outputs, sizeof *x->output);
    x->result = arena_array(arena, outputs, sizeof *x->result);
    for (size_t i = 0; i < n; i++) {
        layout[i] = LAYOUT_PLAIN;
        bytes[i] = cvn_type_bytes(&local->parameter[i]->type);
        x->parameter[i] = module->parameter[i]->type;
    }
    for (size_t i = 0; i < outputs; i++)
        x->output[i] = module->output[i].value->type;
    x->info.layout = layout;
    x->info.parameter_bytes = bytes;
    for (const Op *op = local->first; op; op = op->next) {
        x->info.n_operations++;
        x->info.flops += op_flops(op);
    }
    x->argument = arena_array(arena, devices * (n + 1), sizeof(PjrtBuffer *));
    x->made = arena_array(arena, devices * outputs, sizeof(PjrtBuffer *));
    x->arguments = arena_array(arena, devices, sizeof(PjrtBuffer **));
    x->mades = arena_array(arena, devices, sizeof(PjrtBuffer **));
    x->done = arena_array(arena, devices, sizeof(PjrtEvent *));
    for (size_t d = 0; d < devices; d++) {
        x->arguments[d] = x->argument + d * (n + 1);
        x->mades[d] = x->made + d * outputs;
    }
}

static int print_module(const Devices *c, StrBuf *text, const cvn_graph *module,
                        const PartitionReport *report, const Mesh *mesh, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    StableHloOptions how = {.n_devices = mesh->n_devices,
                            .rows = strstr(c->plugin.path, "libtpu") ? 2 : 0};
    int code = CVN_OK;
    if (c->plugin.partitions)
        code = shardings_of(&how, module, report, mesh, &arena, err);
    if (code == CVN_OK)
        code = graph_print_stablehlo(text, module, &how, err);
    return code;
}

static int compile_text(Devices *c, Executable *x, const cvn_graph *local, const cvn_graph *module,
                        const PartitionReport *report, const Mesh *mesh, const Executable **out,
                        cvn_err *err)
{
    StrBuf text = {0};
    Held held;
    hold(&held, strbuf_release, &text);
    int code = print_module(c, &text, module, report, mesh, err);
    const uint64_t *known = code ? NULL : map_get(&c->modules, text.text, text.length);
    if (known) {
        x = (Executable *)(uintptr_t)*known;
    } else if (code == CVN_OK) {
        describe(c, x, local, c->plugin.partitions ? local : module);
        x->next = c->first;
        c->first = x;
        code = compile_module(c, x, &text, mesh->n_devices, err);
        if (code == CVN_OK)
            *map_put(&c->modules, text.text, text.length, NULL) = (uint64_t)(uintptr_t)x;
    }
    held_release(&held);
    *out = x;
    return code;
}

static int pjrt_compile(Devices *c, const cvn_graph *local, const PartitionReport *report,
                        const Mesh *mesh, const MemoryLayout *layout, const int64_t *rows,
                        const Executable **out, cvn_err *err)
{
    (void)layout;
    Executable *x = arena_alloc(&c->arena, sizeof *x);
    x->name = arena_string(&c->arena, local->name);
    const cvn_graph *whole = c->plugin.partitions ? report->whole : local;
    SCOPED(graph_release) cvn_graph *module = take_whole(whole, rows, x, &c->arena, err);
    if (!module)
        return err->code;
    return compile_text(c, x, local, module, report, mesh, out, err);
}

static void pjrt_executable(const Executable *x, ExecutableInfo *out)
{
    *out = x->info;
}

static int64_t pjrt_compilations(const Devices *c)
{
    return c->compilations;
}

/* ---- memory ---- */

/* Of 4 bits: plugins take an element per byte. */
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
                           "take a tensor of %zu bytes", cvn_type_bytes(type));
    free(unpacked);
    if (code)
        return code;
    *out = args.buffer;
    if (args.semantics != PJRT_ONLY_DURING_CALL)
        return plugin_await(&c->plugin, args.done, err, "take a tensor");
    plugin_destroy(&c->plugin, PJRT_EVENT_DESTROY, args.done);
    return CVN_OK;
}

/* Begins to bring a buffer to host memory, row-major. */
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
    TRY(plugin_call(&c->plugin, PJRT_BUFFER_TO_HOST, &args, err, "give a tensor back"));
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

/* The shard in host memory: where it lies in a file, or read, in *owned. */
static int read_shard(const Memory *m, const RegionArray *shard, const Source *source,
                      const void **data, void **owned, cvn_err *err)
{
    size_t bytes = cvn_type_bytes(&m->type);
    const RegionArray packed = region_packed(&shard->region);
    int64_t there = region_elements(&shard->region);
    bool padded = there != cvn_type_elements(&m->type);
    *owned = NULL;
    *data = source->mapped;
    if (source->mapped)
        return CVN_OK;
    char *all = calloc(1, bytes + 1);
    char *part = all && padded ? malloc(cvn_dtype_bytes(m->type.dtype, there) + 1) : all;
    int code = part ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a tensor of %zu bytes", bytes);
    if (code == CVN_OK && there)
        code = source->read(source->context, &shard->region, part, err);
    if (code == CVN_OK && padded)
        region_copy(&packed, part, shard, all, m->type.dtype);
    if (part != all)
        free(part);
    if (code)
        free(all);
    else
        *data = *owned = all;
    return code;
}

static int pjrt_upload(Devices *c, int d, Memory *m, const RegionArray *shard, const Source *source,
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

/* All 0, where nothing was written yet. */
static int make_zeros(Devices *c, int d, Memory *m, cvn_err *err)
{
    if (m->buffer)
        return CVN_OK;
    SCOPED(scoped_free) void *zeros = calloc(1, cvn_type_bytes(&m->type) + 1);
    if (!zeros)
        return err_set(err, CVN_EMEM, "no memory for a tensor");
    return send(c, d, &m->type, zeros, PJRT_UNTIL_TRANSFERRED, &m->buffer, err);
}

static void *pjrt_address(Memory *m)
{
    (void)m;
    return NULL;
}

static int pjrt_download(Devices *c, const Memory *m, size_t offset, size_t bytes, void *out,
                         cvn_err *err)
{
    size_t all = cvn_type_bytes(&m->type);
    PjrtEvent *event;
    if (m->type.dtype == CVN_I4)
        return err_set(err, CVN_EUNSUPPORTED, "tensors of 4 bits are not brought back");
    if (!m->buffer) {
        memset(out, 0, bytes);
        return CVN_OK;
    }
    char *whole = bytes == all ? out : malloc(all);
    if (!whole)
        return err_set(err, CVN_EMEM, "no memory for a tensor of %zu bytes", all);
    int code = bring(c, m->buffer, &m->type, whole, &event, err);
    if (code == CVN_OK)
        code = plugin_await(&c->plugin, event, err, "give a tensor back");
    if (whole != out) {
        if (code == CVN_OK)
            memcpy(out, whole + offset, bytes);
        free(whole);
    }
    return code;
}

static void pjrt_discard(Devices *c, Memory *m, size_t offset, size_t bytes)
{
    (void)c, (void)m, (void)offset, (void)bytes;
}

static int pjrt_reserve(Devices *c, size_t bytes, cvn_err *err)
{
    (void)c, (void)bytes, (void)err;
    return CVN_OK;
}

/* ---- running ---- */

/* Arguments that were made for the run alone. */
static void drop_inputs(Devices *c, const Executable *x, const Argument *argument)
{
    int n = x->signature.n_parameters;
    for (int d = 0; d < c->n; d++) {
        for (int i = 0; i <= n; i++) {
            if (i == n || !argument[d * n + i].memory)
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
        int which = 0;
        for (int i = 0; i < n; i++) {
            const Argument *a = &argument[d * n + i];
            if (x->sliced[i])
                x->first_row[which++] = (int32_t)a->row;
            if (!a->memory) {
                if (a->late)
                    spare_wait(a->late);
                TRY(send(c, d, &x->parameter[i], a->host, PJRT_ONLY_DURING_CALL, &to[i], err));
                continue;
            }
            TRY(make_zeros(c, d, a->memory, err));
            to[i] = a->memory->buffer;
        }
        const cvn_type rows = CVN_TYPE(CVN_I32, x->n_sliced);
        if (x->n_sliced)
            TRY(send(c, d, &rows, x->first_row, PJRT_ONLY_DURING_CALL, &to[n], err));
    }
    return CVN_OK;
}

static int execute(Devices *c, const Executable *x, cvn_err *err)
{
    PjrtExecuteOptions options = PJRT_NEW(PjrtExecuteOptions, incarnation, .launch = 0);
    PjrtExecuteArgs args =
        PJRT_NEW(PjrtExecuteArgs, device, .loaded = x->loaded, .options = &options,
                 .argument = (PjrtBuffer *const *const *)x->arguments, .n_devices = (size_t)c->n,
                 .n_arguments = (size_t)(x->signature.n_parameters + (x->n_sliced > 0)),
                 .output = x->mades, .event = x->done);
    c->begun = clock_seconds();
    return plugin_call(&c->plugin, PJRT_LOADED_EXECUTE, &args, err, "run '%s'", x->name);
}

/* Outputs into resident tensors take their places. */
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

static int pjrt_run(Devices *c, const Executable *x, const Argument *argument, const void **output,
                    cvn_err *err)
{
    if (flag_is_set(c->interrupt))
        return err_set(err, CVN_EINTERRUPTED, "interrupted");
    int code = give_inputs(c, x, argument, err);
    if (code == CVN_OK)
        code = execute(c, x, err);
    drop_inputs(c, x, argument);
    if (code)
        return code;
    keep_outputs(c, x, argument);
    c->running = x;
    c->argument = argument;
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
        return c->argument[d * x->signature.n_parameters + into].host;
    return d == 0 ? x->result[i] : NULL;
}

static int pjrt_wait(Devices *c, cvn_err *err)
{
    const Executable *x = c->running;
    int code = CVN_OK;
    c->running = NULL;
    for (int d = 0; x && d < c->n; d++) {
        int failed = plugin_await(&c->plugin, x->done[d], err, "run to the end");
        code = code ? code : failed;
    }
    c->ran = clock_seconds() - c->begun;
    for (int d = 0; x && d < c->n; d++) {
        for (int i = 0; i < x->signature.n_outputs; i++) {
            PjrtEvent *event = NULL;
            void *target = x->mades[d][i] ? target_of(c, x, d, i) : NULL;
            if (target && code == CVN_OK)
                code = bring(c, x->mades[d][i], &x->output[i], target, &event, err);
            int failed = plugin_await(&c->plugin, event, err, "give a result back");
            code = code ? code : failed;
            plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, x->mades[d][i]);
            x->mades[d][i] = NULL;
        }
    }
    return code;
}

static void pjrt_watch(Devices *c, const volatile int *flag)
{
    c->interrupt = flag;
}

/* ---- looking on ---- */

static void pjrt_communication(const Devices *c, CommTable *out)
{
    (void)c;
    *out = (CommTable){0};
}

static int no_trace(cvn_err *err)
{
    return err_set(err, CVN_EUNSUPPORTED,
                   "runs on a plugin's devices are not recorded; leave out --profile");
}

static int pjrt_trace_begin(Devices *c, cvn_err *err)
{
    (void)c;
    return no_trace(err);
}

static int pjrt_trace_write(Devices *c, const char *path, cvn_err *err)
{
    (void)c, (void)path;
    return no_trace(err);
}

/* x + 1 where x lies, or a product of n x n matrices: what there is to do of it in *work. */
static cvn_graph *ceiling_graph(const Devices *c, CeilingKind kind, double *work, cvn_err *err)
{
    static const cvn_dtype dtype[CEILINGS] = {CVN_F32, CVN_F32, CVN_BF16, CVN_I8};
    bool slow = strncmp(c->kind, "cpu", 3) == 0;
    int64_t n = slow ? 1024 : 8192;
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {0}};
    cvn_graph *g = cvn_graph_new("ceiling", err);
    if (!g)
        return NULL;
    if (kind == COPIES) {
        int64_t elements = slow ? 1 << 24 : 1 << 28;
        cvn_value *x = cvn_parameter(g, "x", CVN_TYPE(CVN_F32, elements));
        cvn_output_into(g, cvn_add(g, x, cvn_splat(g, x->type, 1)), x);
        *work = 8 * (double)elements;
    } else {
        cvn_value *a = cvn_parameter(g, "a", CVN_TYPE(dtype[kind], n, n));
        cvn_value *b = cvn_parameter(g, "b", CVN_TYPE(dtype[kind], n, n));
        cvn_output(g,
                   cvn_dot_general(g, a, b, &dims, kind == PRODUCTS_INT8 ? CVN_I32 : dtype[kind]));
        *work = 2 * (double)n * (double)n * (double)n;
    }
    return g;
}

static int ceiling_program(Devices *c, CeilingKind kind, double *work, cvn_err *err)
{
    static const int64_t whole[2] = {0, 0};
    const Mesh mesh = {.n_devices = c->n};
    cvn_graph *g = ceiling_graph(c, kind, work, err);
    if (!g || cvn_graph_check(g, err) || c->ceiling[kind]) {
        cvn_graph_free(g);
        return c->ceiling[kind] ? CVN_OK : err->code;
    }
    bool partitions = c->plugin.partitions;
    c->plugin.partitions = false; /* every device does the same */
    int code = pjrt_compile(c, g, NULL, &mesh, NULL, whole, &c->ceiling[kind], err);
    c->plugin.partitions = partitions;
    cvn_graph_free(g);
    if (code)
        c->ceiling[kind] = NULL;
    return code;
}

/* What all devices here do in a second, over about so many seconds; 0: it could not be found out. */
static double measure(Devices *c, CeilingKind kind, double seconds)
{
    double work = 0, all = 0, spent = 0;
    cvn_err err = {0};
    if (c->n == 0 || ceiling_program(c, kind, &work, &err))
        return 0;
    const Executable *x = c->ceiling[kind];
    int n = x->signature.n_parameters;
    Memory *memory = calloc((size_t)(c->n * n), sizeof *memory);
    SCOPED(scoped_free) Argument *argument = calloc((size_t)(c->n * n), sizeof *argument);
    int code = memory && argument ? CVN_OK : CVN_EMEM;
    for (int i = 0; i < c->n * n && !code; i++) {
        memory[i].type = x->parameter[i % n];
        argument[i].memory = &memory[i];
        code = make_zeros(c, i / n, &memory[i], &err);
    }
    for (int run = 0; !code && (run < 2 || spent < seconds); run++) { /* the first does not count */
        code = pjrt_run(c, x, argument, NULL, &err);
        code = code ? code : pjrt_wait(c, &err);
        all += run ? work * c->n : 0;
        spent += run ? c->ran : 0;
    }
    for (int i = 0; i < c->n * n && memory; i++)
        plugin_destroy(&c->plugin, PJRT_BUFFER_DESTROY, memory[i].buffer);
    free(memory);
    return code || spent <= 0 ? 0 : all / spent;
}

static double pjrt_peak(Devices *c, cvn_dtype dtype, double seconds)
{
    return measure(c,
                   dtype == CVN_BF16 ? PRODUCTS_BF16
                   : dtype == CVN_I8 ? PRODUCTS_INT8
                                     : PRODUCTS_F32,
                   seconds);
}

static double pjrt_reads(Devices *c, double seconds)
{
    return measure(c, COPIES, seconds);
}

/* The whole of the executable is traffic: what is left of a step is the host's part. */
static double pjrt_traffic(Devices *c, bool record)
{
    (void)record;
    return c->ran;
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
    .address = pjrt_address,
    .download = pjrt_download,
    .discard = pjrt_discard,
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
