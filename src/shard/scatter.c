/* One tensor from the host to the shards of devices and back: for tests, and for small tensors. */
#include "shard/partition.h"
#include "shard/reshard.h"

#include <string.h>

/* Calls copy for every element of a shard that there is: at[] counts in the shard. */
typedef struct Walk {
    const cvn_type *type;
    cvn_type local;
    int64_t first[CVN_MAX_RANK], count[CVN_MAX_RANK];
    int64_t whole, part; /* index of the element at hand, row-major */
    int64_t at[CVN_MAX_RANK];
} Walk;

/* False when the shard has no elements but padding. */
static bool walk_begin(Walk *w, const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                       int32_t device)
{
    *w = (Walk){.type = type, .local = sharding_local(sharding, type)};
    bool any = true;
    for (int d = 0; d < type->rank; d++) {
        sharding_range(mesh, sharding, d, type->dim[d], mesh_place(mesh, device), &w->first[d],
                       &w->count[d]);
        any = any && w->count[d] > 0;
    }
    return any;
}

static void walk_index(Walk *w)
{
    w->whole = w->part = 0;
    for (int d = 0; d < w->type->rank; d++) {
        w->whole = w->whole * w->type->dim[d] + w->first[d] + w->at[d];
        w->part = w->part * w->local.dim[d] + w->at[d];
    }
}

static bool walk_next(Walk *w)
{
    for (int d = w->type->rank - 1; d >= 0; d--) {
        if (++w->at[d] < w->count[d])
            return true;
        w->at[d] = 0;
    }
    return false;
}

/* Bits of element j of `from` become element i of `to`. */
static void move(cvn_dtype dtype, void *to, int64_t i, const void *from, int64_t j)
{
    size_t size = cvn_dtype_bytes(dtype, 1);
    if (dtype == CVN_I4)
        element_set(dtype, to, i, element_get(dtype, from, j));
    else
        memcpy((char *)to + (size_t)i * size, (const char *)from + (size_t)j * size, size);
}

void shard_scatter(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                   const void *whole, int32_t device, void *part)
{
    Walk w;
    bool any = walk_begin(&w, mesh, sharding, type, device);
    if (cvn_type_bytes(&w.local))
        memset(part, 0, cvn_type_bytes(&w.local));
    if (!any)
        return;
    do {
        walk_index(&w);
        move(type->dtype, part, w.part, whole, w.whole);
    } while (walk_next(&w));
}

void shard_gather(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                  const void *const *part, void *whole)
{
    for (int32_t device = 0; device < mesh->n_devices; device++) {
        Walk w;
        if (!walk_begin(&w, mesh, sharding, type, device))
            continue;
        do {
            walk_index(&w);
            move(type->dtype, whole, w.whole, part[device], w.part);
        } while (walk_next(&w));
    }
}
