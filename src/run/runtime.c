#include "run/runtime.h"

#include <string.h>

typedef struct Reading {
    Runtime *rt;
    const char *mesh; /* or NULL */
} Reading;

static int read_mesh(void *of, cvn_err *err)
{
    const Reading *r = of;
    r->rt->spec = arena_string(&r->rt->arena, r->mesh ? r->mesh : "");
    return mesh_parse(&r->rt->mesh, r->rt->spec, &r->rt->arena, err);
}

int runtime_open(Runtime *rt, const RuntimeOptions *options, cvn_err *err)
{
    *rt = (Runtime){.backend = options->backend, .cluster = options->devices.cluster};
    DeviceOptions devices = options->devices;
    int n_ranks = cluster_size(rt->cluster);
    if (arena_init(&rt->arena, err) ||
        (!rt->backend && backend_find(devices.device, &rt->backend, err)))
        return err->code;
    if (devices.portable && strcmp(rt->backend->name, "cpu") != 0)
        return err_set(err, CVN_EUNSUPPORTED,
                       "portable numerics are those of processors, not of '%s'; leave the device "
                       "or portable out",
                       rt->backend->name);
    map_init(&rt->buffers, &rt->arena);
    TRY(protect(read_mesh, &(Reading){rt, options->mesh}, "reading a mesh", err));
    if (rt->mesh.n_devices % n_ranks)
        return err_set(err, CVN_EINVAL,
                       "a mesh of %d device%s cannot be divided among %d processes; the number of "
                       "processes must divide the number of devices",
                       (int)rt->mesh.n_devices, rt->mesh.n_devices == 1 ? "" : "s", n_ranks);
    rt->info.n_local = rt->mesh.n_devices;
    if (options->describes)
        return CVN_OK;
    devices.n_devices = rt->mesh.n_devices;
    if (rt->backend->open(&devices, &rt->devices, err))
        return err->code;
    rt->backend->describe(rt->devices, &rt->info);
    return CVN_OK;
}

void buffer_release(Runtime *rt, Buffer *b)
{
    for (int i = 0; i < (b->n_slots ? b->n_slots : 1); i++) {
        buffer_use_slot(b, i);
        for (int d = 0; b->memory && d < rt->info.n_local; d++)
            rt->backend->free(rt->devices, b->memory[d]);
    }
    b->memory = NULL;
    b->n_slots = 0;
}

void runtime_close(Runtime *rt)
{
    for (Buffer *b = rt->first; b; b = b->next)
        buffer_release(rt, b);
    if (rt->devices)
        rt->backend->close(rt->devices);
    arena_free(&rt->arena);
    *rt = (Runtime){0};
}

int runtime_mesh_missing(cvn_err *err)
{
    return err_set(err, CVN_EINVAL,
                   "several processes were started without --mesh; for 4 of them give --mesh "
                   "data=2,model=2, for example");
}

int runtime_idle_axis(const Runtime *rt)
{
    for (int i = 0; i < rt->mesh.n_axes; i++)
        if (rt->mesh.axis[i].size > 1 && !(rt->used & 1u << i))
            return i;
    return -1;
}

Buffer *runtime_buffer(const Runtime *rt, Role role, int index)
{
    const int key[] = {(int)role, index};
    const uint64_t *at = map_get(&rt->buffers, key, sizeof key);
    return at ? (Buffer *)(uintptr_t)*at : NULL;
}

size_t runtime_role_bytes(const Runtime *rt, Role role)
{
    double bytes = 0;
    for (const Buffer *b = rt->first; b; b = b->next)
        bytes += b->role == role ? (double)b->bytes * b->held : 0;
    return (size_t)bytes * (size_t)rt->info.n_local;
}

void runtime_memory(const Runtime *rt, DeviceMemory *m)
{
    *m = (DeviceMemory){.inputs = (double)rt->input_bytes,
                        .temporaries = (double)(rt->temporary_bytes + rt->constant_bytes),
                        .constants = (double)rt->constant_bytes};
    double *const of[ROLE_RESIDENT] = {
        [ROLE_WEIGHT] = &m->weights,
        [ROLE_TRAINED] = &m->weights,
        [ROLE_ADAPTER] = &m->weights,
        [ROLE_SLOT] = &m->optimizer,
        [ROLE_ROUNDED] = &m->rounded_weights,
        [ROLE_SUM] = &m->sums,
        [ROLE_TOTAL] = &m->sums,
        [ROLE_PEER] = &m->sums,
        [ROLE_BOUNDARY] = &m->temporaries,
        [ROLE_KEPT] = &m->temporaries,
        [ROLE_CACHE] = &m->kv_cache,
    };
    m->total = m->inputs + m->temporaries;
    for (const Buffer *b = rt->first; b; b = b->next) {
        *of[b->role] += (double)b->bytes * b->held;
        m->total += (double)b->bytes * b->held;
    }
}

static int allocate(Runtime *rt, Buffer *b, cvn_err *err)
{
    if (b->memory)
        return CVN_OK;
    const MemoryOptions options = {.type = b->local,
                                   .layout = b->layout,
                                   .executable = b->executable,
                                   .parameter = b->parameter,
                                   .sparse = b->role == ROLE_CACHE,
                                   .all_bytes =
                                       runtime_role_bytes(rt, b->role) / (size_t)rt->info.n_local};
    b->memory = arena_try(&rt->arena, (size_t)rt->info.n_local * sizeof(Memory *));
    if (!b->memory)
        return err_set(err, CVN_EMEM, "no memory for tensors");
    int code = CVN_OK;
    for (int d = 0; d < rt->info.n_local && code == CVN_OK; d++)
        code = rt->backend->alloc(rt->devices, d, &options, &b->memory[d], err);
    if (code)
        buffer_release(rt, b);
    return code;
}

int buffer_slots(Runtime *rt, Buffer *b, int n, cvn_err *err)
{
    if (!(b->slot = arena_try(&rt->arena, (size_t)n * sizeof *b->slot)))
        return err_set(err, CVN_EMEM, "no memory for tensors");
    while (b->n_slots < n) {
        b->memory = NULL;
        TRY(allocate(rt, b, err));
        b->slot[b->n_slots++] = b->memory;
    }
    return CVN_OK;
}

void buffer_use_slot(Buffer *b, int slot)
{
    if (b->n_slots)
        b->memory = b->slot[slot];
}

int runtime_allocate(Runtime *rt, Role role, cvn_err *err)
{
    for (Buffer *b = rt->first; b; b = b->next)
        if (b->role == role && b->held > 0 && allocate(rt, b, err))
            return err->code;
    return CVN_OK;
}

int runtime_reserve(Runtime *rt, cvn_err *err)
{
    return rt->backend->reserve(rt->devices, rt->temporary_bytes, err);
}

BoxArray buffer_shard(const Runtime *rt, const Buffer *b, int d)
{
    return box_of_shard(&rt->mesh, &b->sharding, &b->type, rt->info.first + d);
}

int buffer_fill(Runtime *rt, Buffer *b, const Source *source, cvn_err *err)
{
    TRY(allocate(rt, b, err));
    for (int d = 0; d < rt->info.n_local; d++) {
        const BoxArray shard = buffer_shard(rt, b, d);
        const Box whole = box_whole(&b->type);
        Source from = *source;
        if (!box_same(&whole, &shard.box) || !cvn_type_equal(&b->type, &b->local))
            from.mapped = NULL;
        if (rt->backend->upload)
            TRY(rt->backend->upload(rt->devices, d, b->memory[d], &shard, &from, err));
    }
    return CVN_OK;
}

static int read_zeros(void *context, const Box *box, void *out, cvn_err *err)
{
    const Buffer *b = context;
    memset(out, 0, cvn_dtype_bytes(b->type.dtype, box_elements(box)));
    (void)err;
    return CVN_OK;
}

int buffer_clear(Runtime *rt, Buffer *b, cvn_err *err)
{
    const Source zeros = {.read = read_zeros, .context = b};
    return buffer_fill(rt, b, &zeros, err);
}

void *buffer_address(const Runtime *rt, const Buffer *b, int d)
{
    return b->memory && rt->backend->address ? rt->backend->address(b->memory[d]) : NULL;
}

int buffer_row_shards(const Buffer *b)
{
    return b->type.rank ? (int)axes_size(&b->sharding.dim[0].axes) : 1;
}

int buffer_row_shard(const Buffer *b, int64_t row)
{
    return (int)(row / sharding_chunk(&b->sharding, 0, b->type.dim[0]));
}

void buffer_discard(Runtime *rt, Buffer *b, int64_t row)
{
    const cvn_type *t = &b->local;
    const size_t bytes = cvn_dtype_bytes(t->dtype, t->dim[1] * t->dim[2] * t->dim[3]);
    for (int d = 0; b->memory && rt->backend->discard && d < rt->info.n_local; d++) {
        const Box shard = buffer_shard(rt, b, d).box;
        if (row >= shard.first[0] && row < shard.first[0] + shard.count[0])
            rt->backend->discard(rt->devices, b->memory[d], bytes * (size_t)(row - shard.first[0]),
                                 bytes);
    }
}

enum { SAMPLES = 7 };

/* The median of n samples of reads, or of the peak of a dtype, after one that does not count. */
static double ceiling(const Runtime *rt, bool reads, cvn_dtype dtype, int n)
{
    double sample[SAMPLES];
    for (int i = -1; i < n; i++)
        sample[i < 0 ? 0 : i] =
            reads ? rt->backend->reads(rt->devices, 0) : rt->backend->peak(rt->devices, dtype, 0);
    return median(sample, n);
}

double runtime_peak(const Runtime *rt, cvn_dtype dtype)
{
    return ceiling(rt, false, dtype, 3);
}

int runtime_ceilings(const Runtime *rt, Ceilings *out, cvn_err *err)
{
    *out = (Ceilings){.bandwidth = ceiling(rt, true, CVN_F32, SAMPLES)};
    if (out->bandwidth < 0)
        return err_set(err, CVN_EMEM, "no memory to measure the read bandwidth");
    out->flops_f32 = ceiling(rt, false, CVN_F32, SAMPLES);
    out->flops_bf16 = ceiling(rt, false, CVN_BF16, SAMPLES);
    out->flops_int8 = ceiling(rt, false, CVN_I8, SAMPLES);
    return CVN_OK;
}
