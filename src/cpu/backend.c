/*
 * Each device is some threads that walk plans, with an arena; several meet in collectives through a Comm (device.h).
 * Memory of a shard is a mapping of its own, or the place in a mapped file where it lies already.
 */
#include "cpu/backend.h"

#include "base/num.h"
#include "comm/account.h"
#include "compile/cache.h"
#include "compile/pack.h"
#include "cpu/ceilings.h"
#include "cpu/device.h"
#include "cpu/kernels/attention_operands.h"
#include "cpu/registry.h"
#include "cpu/trace.h"
#include "graph/blocks.h"
#include "graph/panels.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct Executable {
    const Plan *plan; /* the cache's */
    ExecutableInfo info;
    void **parameter, **output; /* [local devices * …], of a run */
};

typedef struct MemoryBlock MemoryBlock;

struct Devices {
    Arena arena; /* of executables */
    Cluster *cluster;
    int n_local; /* 0: only graphs are compiled, and there is no comm and no group */
    Comm *comm;
    DeviceGroup *group;
    Cache cache;
    Trace *trace;        /* owned; NULL: nothing is recorded */
    Profile *traffic;    /* owned: of the last run of the first device that was recorded; or NULL */
    Profile *before;     /* what that device has when it is not */
    ReadProbe **probe;   /* [local devices] owned; NULL before reads were measured */
    double *sample;      /* [local devices] */
    MemoryBlock **block; /* [local devices] owned: the newest of each */
    bool invariant;      /* DeviceInfo.chunk_invariant of its kernels */
    char kind[64];
};

/* Memory of many tensors. */
struct MemoryBlock {
    char *map; /* owned mapping of `bytes` */
    size_t bytes, used;
    MemoryBlock *next;
};

struct Memory {
    char *data;                  /* the shard */
    cvn_type type;               /* of it, as the graph has it */
    const PlanParameter *panels; /* it lies in panels, as this says; or NULL */
    size_t bytes;                /* there */
    void *map; /* owned mapping of them; NULL: they are in a block, or in a mapped file */
};

/* ---- devices ---- */

static void cpu_close(Devices *c)
{
    if (!c)
        return;
    if (c->cluster)
        cluster_set_comm(c->cluster, NULL);
    trace_free(c->trace);
    for (int d = 0; c->sample && d < c->group->n; d++) { /* the last of the lists that are made */
        read_probe_free(c->probe[d]);
        for (const MemoryBlock *b = c->block[d]; b; b = b->next)
            munmap(b->map, b->bytes);
    }
    group_free(c->group);
    profile_free(c->traffic);
    comm_free(c->comm);
    cache_free(&c->cache);
    arena_free(&c->arena);
    free(c);
}

typedef struct Opening {
    Devices *devices;
    const DeviceOptions *options;
} Opening;

static int open_devices(void *of, cvn_err *err)
{
    Devices *c = ((Opening *)of)->devices;
    const DeviceOptions *o = ((Opening *)of)->options;
    const KernelSet *kernels = cpu_kernels_as(o->portable);
    c->n_local = o->n_devices / cluster_size(o->cluster);
    TRY(arena_init(&c->arena, err));
    if (c->n_local) {
        c->comm = comm_new(c->n_local, o->cluster ? cluster_transport(o->cluster) : NULL, err);
        c->group = c->comm ? group_new(c->comm, o->threads, kernels, err) : NULL;
        if (!c->group)
            return err->code;
        c->probe = arena_array(&c->arena, (size_t)c->n_local, sizeof(ReadProbe *));
        c->block = arena_array(&c->arena, (size_t)c->n_local, sizeof(MemoryBlock *));
        c->sample = arena_array(&c->arena, (size_t)c->n_local, sizeof *c->sample);
        c->cluster = o->cluster;
    }
    if (c->cluster)
        cluster_set_comm(c->cluster, c->comm);
    int threads = c->group ? device_threads(c->group->device[0]) : o->threads;
    const CompileOptions compile = {.backend = kernels,
                                    .n_threads = threads ? threads : 1,
                                    .dump_dir = o->dump_dir,
                                    .op_by_op = o->op_by_op,
                                    .blocking = o->blocking,
                                    .split_attention = o->split_attention};
    c->invariant = o->portable || cpu_chunk_invariant();
    snprintf(c->kind, sizeof c->kind, "cpu %s", kernels->name);
    return cache_init(&c->cache, &compile, err);
}

static int cpu_open(const DeviceOptions *o, Devices **out, cvn_err *err)
{
    Devices *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(err, CVN_EMEM, "no memory for devices");
    int code = protect(open_devices, &(Opening){c, o}, "opening the devices", err);
    if (code)
        cpu_close(c);
    else
        *out = c;
    return code;
}

static void cpu_describe(const Devices *c, DeviceInfo *out)
{
    const CompileOptions *o = &c->cache.options;
    *out = (DeviceInfo){.kind = c->kind,
                        .n_local = c->n_local,
                        .first = c->comm ? comm_first(c->comm) : 0,
                        .threads = o->n_threads,
                        .page = ATTENTION_KEYS,
                        .discards = true,
                        .chunk_invariant = c->invariant && !o->op_by_op && !o->split_attention};
}

/* ---- executables ---- */

static int cpu_compile(Devices *c, const cvn_graph *local, const PartitionReport *report,
                       const Mesh *mesh, const MemoryLayout *layout, const Executable **out,
                       cvn_err *err)
{
    const Plan *plan;
    (void)mesh;
    size_t n = (size_t)local->n_parameters;
    signed char *pack = malloc(n + 1);
    if (!pack)
        return err_set(err, CVN_EMEM, "no memory to compile '%s'", local->name);
    SCOPED(cleanup_run) Cleanup cleanup;
    cleanup_push(&cleanup, free, pack);
    for (size_t i = 0; i < n; i++)
        pack[i] = (signed char)layout[i];
    /* So that communication is told by the axes that it runs along. */
    for (int64_t i = 0; c->comm && i < report->n_collectives; i++) {
        const PartitionCollective *row = &report->collective[i];
        const OpAttr *a = &row->op->attr;
        TRY(comm_name_axes(c->comm, &a->groups, a->group_size, row->along, err));
    }
    TRY(cache_get(&c->cache, local, pack, &plan, err));
    size_t n_local = (size_t)c->n_local;
    MemoryLayout *layouts = arena_array(&c->arena, n, sizeof *layouts);
    size_t *bytes = arena_array(&c->arena, n, sizeof *bytes);
    Executable *x = arena_alloc(&c->arena, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        layouts[i] = plan->parameter[i].rows; /* 0: plain */
        bytes[i] = plan->parameter[i].bytes;
    }
    *x = (Executable){
        .plan = plan,
        .info = {.temporary_bytes = plan->arena_bytes,
                 .constant_bytes = plan->constant_bytes,
                 .n_steps = plan->n_steps,
                 .layout = layouts,
                 .parameter_bytes = bytes,
                 .plan = plan},
        .parameter = arena_array(&c->arena, n_local * n, sizeof(void *)),
        .output = arena_array(&c->arena, n_local * (size_t)plan->n_outputs, sizeof(void *))};
    for (const Op *op = local->first; op; op = op->next) {
        x->info.n_operations++;
        x->info.flops += op_flops(op);
    }
    *out = x;
    return CVN_OK;
}

static void cpu_executable(const Executable *x, ExecutableInfo *out)
{
    *out = x->info;
}

static int64_t cpu_compilations(const Devices *c)
{
    return c->cache.compilations;
}

/* ---- memory ---- */

enum { HUGE_PAGE = 2 << 20 };

/* Address space of its own; pages come as they are touched, large ones where the system has them and it is asked for. */
static int map_memory(size_t bytes, bool large, void **out, cvn_err *err)
{
    void *map = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (map == MAP_FAILED)
        return err_set(err, CVN_EMEM, "the system refused %.1f MiB for tensors: %s",
                       (double)bytes / 0x1p20, strerror(errno));
    if (large)
        madvise(map, bytes, MADV_HUGEPAGE);
    *out = map;
    return CVN_OK;
}

/* The next `bytes` of a device's block, of a new one where the last has no room. What lies side by side shares large pages. */
static int take_from_block(Devices *c, int d, size_t bytes, size_t all, char **out, cvn_err *err)
{
    MemoryBlock *block = c->block[d];
    bytes = num_padded(bytes, CACHE_LINE);
    if (!block || block->bytes - block->used < bytes) {
        size_t size =
            num_padded(all > bytes ? all + CACHE_LINE * 1024 : bytes, HUGE_PAGE) + HUGE_PAGE;
        void *map = NULL;
        block = arena_try(&c->arena, sizeof *block);
        if (!block)
            return err_set(err, CVN_EMEM, "no memory for %.1f MiB of tensors",
                           (double)size / 0x1p20);
        TRY(map_memory(size, size > 2 * HUGE_PAGE, &map, err));
        *block = (MemoryBlock){.map = map, .bytes = size, .next = c->block[d]};
        block->used = num_padded((uintptr_t)map, HUGE_PAGE) - (uintptr_t)map;
        if (block->bytes - block->used < bytes)
            block->used = 0;
        c->block[d] = block;
    }
    *out = block->map + block->used;
    block->used += bytes;
    return CVN_OK;
}

static int cpu_alloc(Devices *c, int d, const MemoryOptions *o, Memory **out, cvn_err *err)
{
    const PlanParameter *panels =
        o->layout > LAYOUT_PLAIN ? &o->executable->plan->parameter[o->parameter] : NULL;
    size_t bytes = panels ? panels->bytes : cvn_type_bytes(&o->type);
    Memory *m = calloc(1, sizeof *m);
    *out = NULL;
    if (!m)
        return err_set(err, CVN_EMEM, "no memory for a tensor");
    *m = (Memory){.type = o->type, .panels = panels, .bytes = o->sparse ? bytes + 1 : bytes};
    int code = o->sparse ? map_memory(m->bytes, false, &m->map, err)
                         : take_from_block(c, d, bytes, o->all_bytes, &m->data, err);
    m->data = o->sparse ? m->map : m->data;
    if (code)
        free(m);
    else
        *out = m;
    return code;
}

static void *cpu_address(Memory *m)
{
    return m->panels ? NULL : m->data;
}

static int cpu_download(Devices *c, const Memory *m, size_t offset, size_t bytes, void *out,
                        cvn_err *err)
{
    (void)c;
    (void)err;
    memcpy(out, m->data + offset, bytes);
    return CVN_OK;
}

static void cpu_discard(Devices *c, Memory *m, size_t offset, size_t bytes)
{
    (void)c;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), at = (uintptr_t)m->data + offset;
    uintptr_t first = num_padded(at, page), last = (at + bytes) / page * page;
    if (first < last)
        madvise((void *)first, last - first, MADV_DONTNEED);
}

static void cpu_free(Devices *c, Memory *m)
{
    if (m && m->map)
        munmap(m->map, m->bytes);
    else if (m) /* the block's address space is not had again */
        cpu_discard(c, m, 0, m->bytes);
    free(m);
}

/* What the threads of a device do together: each fills some of the outermost elements. */
typedef struct Upload {
    Memory *memory;
    const BoxArray *shard;
    const Source *source;
    atomic_flag failed;
    cvn_err err; /* of the first that failed */
} Upload;

/* Elements `first` up to `end` of the outermost dimension of the shard, with its padding, to an array of their own. */
static int read_slices(const Upload *u, int64_t first, int64_t end, char *out, cvn_err *err)
{
    BoxArray to = *u->shard;
    Box *part = &to.box;
    bool dense = true;
    if (part->rank > 0) {
        int64_t there = part->count[0] < end ? part->count[0] : end;
        part->first[0] += first;
        part->count[0] = there > first ? there - first : 0;
        to.dim[0] = end - first;
    }
    for (int k = 1; k < part->rank; k++)
        dense = dense && to.dim[k] == part->count[k];
    if (box_elements(part) == 0)
        return CVN_OK;
    if (dense)
        return u->source->read(u->source->context, part, out, err);
    SCOPED(scoped_free)
    char *packed = malloc(cvn_dtype_bytes(u->memory->type.dtype, box_elements(part)));
    if (!packed)
        return err_set(err, CVN_EMEM, "no memory for a part of a tensor");
    TRY(u->source->read(u->source->context, part, packed, err));
    const BoxArray from = box_packed(part);
    box_copy(&from, packed, &to, out, u->memory->type.dtype);
    return CVN_OK;
}

/* Panels `begin` up to `end`: rows are read a few slices of the outermost dimension at a time. */
static int upload_panels(const Upload *u, int64_t begin, int64_t end, cvn_err *err)
{
    const PlanParameter *p = u->memory->panels;
    const cvn_dtype dtype = p->plain.dtype;
    const int64_t inner = p->n / p->plain.dim[0]; /* rows of a slice */
    const int64_t step = 4 * num_pieces(inner, PANEL_ROWS);
    const size_t row = p->blocks ? (size_t)(p->plain.dim[p->rows] * p->plain.dim[p->rows + 1])
                                 : cvn_dtype_bytes(dtype, p->k);
    const size_t panel = p->bytes / (size_t)p->type.dim[0];
    SCOPED(scoped_free) char *slices = malloc((size_t)(step * PANEL_ROWS + 2 * inner) * row);
    if (!slices)
        return err_set(err, CVN_EMEM, "no memory for rows of '%s'", p->name);
    for (int64_t at = begin; at < end; at += step) {
        int64_t last = num_min(at + step, end), first = at * PANEL_ROWS / inner;
        int64_t rows = num_min(last * PANEL_ROWS, p->n), until = num_pieces(rows, inner);
        memset(slices, 0, (size_t)((until - first) * inner) * row);
        TRY(read_slices(u, first, until, slices, err));
        for (int64_t i = at; i < last; i++) {
            const char *from = slices + (size_t)(i * PANEL_ROWS - first * inner) * row;
            char *to = u->memory->data + (size_t)i * panel;
            int64_t n = num_min(rows - i * PANEL_ROWS, PANEL_ROWS);
            if (p->blocks)
                block_pack(p->blocks, p->k, from, row, n, to);
            else if (p->scales)
                panel_pack_scales(dtype, p->k, from, row, n, to);
            else
                panel_pack(dtype, p->k, from, row, n, to);
        }
    }
    return CVN_OK;
}

static void upload_share(void *context, int thread, int n_threads)
{
    Upload *u = context;
    Memory *m = u->memory;
    const BoxArray *shard = u->shard;
    int64_t begin = 0, end = 1, rows = shard->box.rank ? shard->dim[0] : 1;
    cvn_err err = {0};
    if (m->panels)
        pack_share(m->panels, thread, n_threads, &begin, &end);
    else
        kernel_share(rows, 1, thread, n_threads, &begin, &end);
    if (begin >= end)
        return;
    int64_t slice = shard->box.rank ? cvn_type_elements(&m->type) / m->type.dim[0] : 1;
    size_t at = cvn_dtype_bytes(m->type.dtype, slice * begin);
    int code = m->panels ? upload_panels(u, begin, end, &err)
                         : read_slices(u, begin, end, m->data + at, &err);
    if (code && !atomic_flag_test_and_set(&u->failed)) {
        err_set(&err, code, "a tensor could not be filled, and no reason was given");
        u->err = err;
    }
}

static int cpu_upload(Devices *c, int d, Memory *m, const BoxArray *shard, const Source *source,
                      cvn_err *err)
{
    int bits = cvn_dtype_bits(m->type.dtype);
    if (source->mapped && !m->panels &&
        (uintptr_t)source->mapped % (bits < 8 ? 1 : (size_t)bits / 8) == 0) {
        m->data = (char *)(uintptr_t)source->mapped; /* read only: nobody donates it … */
        m->bytes = 0;                                /* … nor gives it back */
        return CVN_OK;
    }
    Upload u = {.memory = m, .shard = shard, .source = source, .failed = ATOMIC_FLAG_INIT};
    pool_run(c->group->device[d]->pool, upload_share, &u);
    return u.err.code ? err_set(err, u.err.code, "%s", u.err.message) : CVN_OK;
}

static int cpu_reserve(Devices *c, size_t bytes, cvn_err *err)
{
    for (int d = 0; d < c->group->n; d++)
        TRY(device_reserve(c->group->device[d], bytes, err));
    return CVN_OK;
}

/* ---- running ---- */

static int cpu_run(Devices *c, const Executable *x, const Argument *argument, const void **output,
                   cvn_err *err)
{
    const Plan *plan = x->plan;
    int n = plan->n_parameters;
    for (int i = 0; i < n * comm_local(c->comm); i++) {
        const Argument *a = &argument[i];
        x->parameter[i] = a->memory ? a->memory->data : a->host;
        if (a->pending) {
            c->group->device[i / n]->pending.by = a->pending;
            c->group->device[i / n]->pending.index = i % n;
        }
    }
    if (c->traffic)
        profile_clear(c->traffic);
    int code = group_run(c->group, plan, x->parameter, x->output, err);
    for (int d = 0; d < c->group->n; d++)
        c->group->device[d]->pending.by = NULL;
    for (int i = 0; output && i < plan->n_outputs; i++)
        output[i] = x->output[i];
    return code;
}

/* A run has ended when it returns: the caller's thread is one of the device's. */
static int cpu_wait(Devices *c, cvn_err *err)
{
    (void)c;
    (void)err;
    return CVN_OK;
}

static void cpu_watch(Devices *c, const volatile int *flag)
{
    for (int d = 0; d < c->group->n; d++)
        c->group->device[d]->interrupt = flag;
}

/* ---- looking on ---- */

static void cpu_communication(const Devices *c, CommTable *out)
{
    comm_table(c->comm, out);
}

static int cpu_trace_begin(Devices *c, cvn_err *err)
{
    c->trace = trace_begin(c->group->device, c->group->n, 0, err);
    return c->trace ? CVN_OK : err->code;
}

static int cpu_trace_write(Devices *c, const char *path, cvn_err *err)
{
    return trace_write(c->trace, c->cluster, path, err);
}

/* What is measured of each device, all at the same time. */
typedef struct Sampling {
    Devices *devices;
    bool reads; /* else the peak of a dtype */
    cvn_dtype dtype;
    double seconds;
} Sampling;

static void sample_device(void *context, int d, int n)
{
    const Sampling *s = context;
    Devices *c = s->devices;
    Pool *pool = c->group->device[d]->pool;
    (void)n;
    if (!s->reads)
        c->sample[d] = peak_run(pool, s->dtype, s->seconds);
    else if (c->probe[d] || read_probe_new(pool, &c->probe[d], NULL) == CVN_OK)
        c->sample[d] = read_probe_run(c->probe[d], s->seconds);
    else
        c->sample[d] = -INFINITY;
}

static double sample_all(const Sampling *s)
{
    const DeviceGroup *group = s->devices->group;
    double sum = 0;
    pool_run(group->pool, sample_device, (void *)(uintptr_t)s);
    for (int d = 0; d < group->n; d++)
        sum += s->devices->sample[d];
    return sum;
}

static double cpu_peak(Devices *c, cvn_dtype dtype, double seconds)
{
    return sample_all(&(Sampling){.devices = c, .dtype = dtype, .seconds = seconds});
}

static double cpu_reads(Devices *c, double seconds)
{
    return sample_all(&(Sampling){.devices = c, .reads = true, .seconds = seconds});
}

/* Products and attention. */
static bool is_traffic(const Step *step)
{
    OpKind kind = step->op->kind;
    return op_info[kind].class_ == CLASS_CONTRACT || kind == OP_LINEAR || kind == OP_LINEAR_INT8 ||
           kind == OP_ATTENTION;
}

static double cpu_traffic(Devices *c, bool record)
{
    Device *first = c->group->device[0];
    double seconds = c->traffic ? (double)profile_sum(c->traffic, 0, is_traffic) * 1e-9 : 0;
    bool recorded = c->traffic && first->profile == c->traffic;
    if (record && !c->traffic)
        c->traffic = profile_new(device_threads(first), 1 << 16, NULL);
    if (record && c->traffic && !recorded) {
        c->before = first->profile;
        first->profile = c->traffic;
    } else if (!record && recorded) {
        first->profile = c->before;
    }
    return seconds;
}

const Backend cpu_backend = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .describe = cpu_describe,
    .compile = cpu_compile,
    .executable = cpu_executable,
    .compilations = cpu_compilations,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .upload = cpu_upload,
    .address = cpu_address,
    .download = cpu_download,
    .discard = cpu_discard,
    .reserve = cpu_reserve,
    .run = cpu_run,
    .wait = cpu_wait,
    .watch = cpu_watch,
    .communication = cpu_communication,
    .trace_begin = cpu_trace_begin,
    .trace_write = cpu_trace_write,
    .peak = cpu_peak,
    .reads = cpu_reads,
    .traffic = cpu_traffic,
};
