#include "shard/emit.h"

#include <string.h>

void emit_init(Emit *e, cvn_graph *g, const Mesh *mesh)
{
    *e = (Emit){.g = g, .mesh = mesh};
    map_init(&e->cached, &g->arena);
}

/* What a cached value depends on. Zeroed before it is filled, as it is compared by its bytes. */
typedef struct Key {
    char what; /* 'd' digit, 'o' offset, 'm' mask, 'g' groups */
    int32_t n;
    AxisRef ref[AXES_MAX];
    int64_t a, b;
} Key;

static uint64_t *cache_of(Emit *e, char what, const AxisList *axes, int64_t a, int64_t b)
{
    Key key;
    memset(&key, 0, sizeof key);
    key.what = what;
    key.n = axes->n;
    memcpy(key.ref, axes->ref, (size_t)axes->n * sizeof key.ref[0]);
    key.a = a;
    key.b = b;
    return map_put(&e->cached, &key, sizeof key, NULL);
}

cvn_value *emit_i32(Emit *e, int64_t value)
{
    return cvn_splat(e->g, cvn_scalar(CVN_I32), (double)value);
}

/* ---- places of devices ---- */

static cvn_value *entry(Emit *e, const int32_t *number, cvn_value *at)
{
    int64_t one = 1;
    cvn_value *table = cvn_constant(e->g, CVN_TYPE(CVN_I32, e->mesh->n_devices), number);
    cvn_value *found = cvn_dynamic_slice(e->g, table, &at, &one);
    return cvn_reshape(e->g, found, 0, NULL);
}

static cvn_value *place_of_device(Emit *e)
{
    if (e->place)
        return e->place;
    e->place = cvn_convert(e->g, cvn_partition_id(e->g), CVN_I32);
    if (e->mesh->order) {
        int64_t n = e->mesh->n_devices;
        int32_t *place = arena_array(&e->g->arena, (size_t)n, sizeof *place);
        for (int32_t p = 0; p < n; p++)
            place[mesh_device(e->mesh, p)] = p;
        e->place = entry(e, place, e->place);
    }
    return e->place;
}

cvn_value *emit_lookup(Emit *e, const int32_t *number)
{
    return entry(e, number, place_of_device(e));
}

/* The distance in places between devices that are neighbours in a digit. */
static int64_t digit_stride(const Mesh *mesh, AxisRef ref)
{
    int64_t stride = mesh->axis[ref.axis].size / (ref.pre * ref.size);
    for (int i = ref.axis + 1; i < mesh->n_axes; i++)
        stride *= mesh->axis[i].size;
    return stride;
}

cvn_value *emit_digit(Emit *e, const AxisList *axes)
{
    uint64_t *known = cache_of(e, 'd', axes, 0, 0);
    if (*known)
        return (cvn_value *)(uintptr_t)*known;
    cvn_value *digit = NULL;
    for (int i = 0; i < axes->n; i++) {
        AxisRef ref = axes->ref[i];
        int64_t stride = digit_stride(e->mesh, ref);
        cvn_value *d = place_of_device(e);
        if (stride > 1)
            d = cvn_divide(e->g, d, emit_i32(e, stride));
        if (stride * ref.size < e->mesh->n_devices)
            d = cvn_remainder(e->g, d, emit_i32(e, ref.size));
        if (digit)
            d = cvn_add(e->g, cvn_multiply(e->g, digit, emit_i32(e, ref.size)), d);
        digit = d;
    }
    if (!digit)
        digit = emit_i32(e, 0);
    *cache_of(e, 'd', axes, 0, 0) = (uintptr_t)digit;
    return digit;
}

cvn_value *emit_offset(Emit *e, const AxisList *axes, int64_t chunk)
{
    uint64_t *known = cache_of(e, 'o', axes, chunk, 0);
    if (*known)
        return (cvn_value *)(uintptr_t)*known;
    cvn_value *offset = emit_digit(e, axes);
    if (chunk != 1 && axes->n)
        offset = cvn_multiply(e->g, offset, emit_i32(e, chunk));
    *cache_of(e, 'o', axes, chunk, 0) = (uintptr_t)offset;
    return offset;
}

/* ---- masks ---- */

/* x, or `fill` where pred [rank 1, of dimension d of x] is false. */
static cvn_value *where(Emit *e, cvn_value *pred, cvn_value *x, int d, double fill)
{
    if (x->type.rank > 1)
        pred = cvn_broadcast_in_dim(e->g, pred, x->type, &d);
    return cvn_select(e->g, pred, x, cvn_splat(e->g, x->type, fill));
}

cvn_value *emit_mask(Emit *e, cvn_value *x, int d, const AxisList *axes, int64_t n, double fill)
{
    int64_t chunk = x->type.dim[d];
    if (chunk * axes_size(axes) == n)
        return x;
    uint64_t *known = cache_of(e, 'm', axes, chunk, n);
    cvn_value *real = (cvn_value *)(uintptr_t)*known;
    if (!real) {
        cvn_type row = CVN_TYPE(CVN_I32, chunk);
        cvn_value *count = emit_i32(e, n);
        cvn_value *left = cvn_subtract(e->g, count, emit_offset(e, axes, chunk));
        left = cvn_broadcast_in_dim(e->g, left, row, NULL);
        real = cvn_compare_values(e->g, CVN_LT, cvn_iota(e->g, row, 0), left);
        *cache_of(e, 'm', axes, chunk, n) = (uintptr_t)real;
    }
    return where(e, real, x, d, fill);
}

/* ---- parts ---- */

cvn_value *emit_resize(Emit *e, cvn_value *x, int d, int64_t size)
{
    if (x->type.dim[d] == size)
        return x;
    if (x->type.dim[d] > size)
        return cvn_slice_axis(e->g, x, d, 0, size);
    int64_t none[CVN_MAX_RANK] = {0}, high[CVN_MAX_RANK] = {0};
    high[d] = size - x->type.dim[d];
    return cvn_pad(e->g, x, cvn_splat(e->g, cvn_scalar(x->type.dtype), 0), none, high, none);
}

/* ---- collectives ---- */

/* Adds what digit number `digit` of the axes is worth to a place where they are all 0. */
static int32_t place_with(const Mesh *mesh, const AxisList *axes, int32_t place, int32_t digit)
{
    for (int i = axes->n - 1; i >= 0; i--) {
        place += (int32_t)(digit % axes->ref[i].size * digit_stride(mesh, axes->ref[i]));
        digit /= axes->ref[i].size;
    }
    return place;
}

/* A collective along these axes. Its groups are rows of device ids: devices that differ in nothing
   else, in the order of the digits. */
static cvn_value *collective(Emit *e, OpKind kind, OpAttr attr, const AxisList *axes, cvn_value *x)
{
    uint64_t *known = cache_of(e, 'g', axes, 0, 0);
    const int32_t n = e->mesh->n_devices, size = axes_size(axes);
    if (!*known) {
        int64_t *id = arena_array(&e->g->arena, (size_t)n, sizeof *id), *next = id;
        for (int32_t p = 0; p < n; p++)
            for (int32_t i = 0; i < size && axes_digit(e->mesh, axes, p) == 0; i++)
                *next++ = mesh_device(e->mesh, place_with(e->mesh, axes, p, i));
        *known = (uintptr_t)id;
    }
    attr.groups = (Ints){n, (const int64_t *)(uintptr_t)*known};
    attr.group_size = size;
    return graph_add(e->g, kind, &attr, 1, &x, NULL);
}

/* The place that has 0 for the digits of the axes, and is the same otherwise. */
static int32_t place_without(const Mesh *mesh, const AxisList *axes, int32_t place)
{
    return place - place_with(mesh, axes, 0, axes_digit(mesh, axes, place));
}

/* Digits that only `a` uses, on any dimension, in the order of the mesh. */
static AxisList only_in(const Sharding *a, const Sharding *b)
{
    AxisList all = {0};
    for (int d = 0; d < a->rank; d++)
        for (int i = 0; i < a->dim[d].axes.n; i++) {
            AxisList ref = {1, {a->dim[d].axes.ref[i]}};
            for (int k = 0; k < b->rank; k++)
                for (int j = 0; j < b->dim[k].axes.n; j++)
                    ref = axes_remove(&ref, b->dim[k].axes.ref[j]);
            axes_add_list(&all, &ref);
        }
    return all;
}

static cvn_value *permute(Emit *e, cvn_value *x, const Sharding *before, const Sharding *after)
{
    const int32_t n = e->mesh->n_devices;
    AxisList left = only_in(before, after), came = only_in(after, before);
    int64_t *pair = arena_array(&e->g->arena, 2 * (size_t)n, sizeof *pair);
    for (int32_t p = 0; p < n; p++) {
        /* Which place holds under `before` what this one is to hold under `after`. Every place is the source of
           one: digits that become unused take over from those that were. */
        int32_t from = p;
        for (int d = 0; d < after->rank; d++)
            from = place_without(e->mesh, &after->dim[d].axes, from);
        from = place_without(e->mesh, &left, from);
        from = place_with(e->mesh, &came, from, axes_digit(e->mesh, &left, p));
        for (int d = 0; d < after->rank; d++)
            from = place_with(e->mesh, &before->dim[d].axes, from,
                              axes_digit(e->mesh, &after->dim[d].axes, p));
        pair[2 * p] = mesh_device(e->mesh, from);
        pair[2 * p + 1] = mesh_device(e->mesh, p);
    }
    return cvn_collective_permute(e->g, x, n, pair);
}

cvn_value *emit_mirror(Emit *e, cvn_value *x, const AxisList *axes)
{
    const int32_t n = e->mesh->n_devices, size = axes_size(axes);
    int64_t *pair = arena_array(&e->g->arena, 2 * (size_t)n, sizeof *pair);
    for (int32_t p = 0; p < n; p++) {
        const int32_t digit = size - 1 - axes_digit(e->mesh, axes, p);
        const int32_t from = place_with(e->mesh, axes, place_without(e->mesh, axes, p), digit);
        pair[2 * p] = mesh_device(e->mesh, from);
        pair[2 * p + 1] = mesh_device(e->mesh, p);
    }
    return cvn_collective_permute(e->g, x, n, pair);
}

cvn_value *emit_step(Emit *e, cvn_value *x, const cvn_type *type, const Sharding *before,
                     const ReshardStep *step)
{
    const Sharding *after = &step->after;
    const cvn_type local = sharding_local(after, type);
    int d = step->dim, from = step->from_dim;
    int64_t n = axes_size(&step->axes);
    cvn_value *start, *at[CVN_MAX_RANK];
    switch (step->kind) {
    case RESHARD_SLICE:
        x = emit_resize(e, x, d, local.dim[d] * n);
        start = emit_offset(e, &step->axes, local.dim[d]);
        for (int i = 0; i < local.rank; i++)
            at[i] = i == d ? start : emit_i32(e, 0);
        return cvn_dynamic_slice(e->g, x, at, local.dim);
    case RESHARD_ALL_GATHER:
        x = collective(e, OP_ALL_GATHER, (OpAttr){.axis = d}, &step->axes, x);
        return emit_resize(e, x, d, local.dim[d]);
    case RESHARD_REDUCE_SCATTER:
        x = emit_resize(e, x, d, local.dim[d] * n);
        return collective(e, OP_REDUCE_SCATTER, (OpAttr){.axis = d, .reduce = before->how},
                          &step->axes, x);
    case RESHARD_ALL_REDUCE:
        return collective(e, OP_ALL_REDUCE, (OpAttr){.reduce = before->how}, &step->axes, x);
    case RESHARD_ALL_TO_ALL:
        x = emit_resize(e, x, d, local.dim[d] * n);
        x = collective(e, OP_ALL_TO_ALL, (OpAttr){.axis = d, .concat_axis = from}, &step->axes, x);
        return emit_resize(e, x, from, local.dim[from]);
    case RESHARD_PIECES:
        return emit_pieces(e, x, &local, step->pieces);
    case RESHARD_PERMUTE:
    case RESHARD_KINDS:
        break;
    }
    return permute(e, x, before, after);
}
