/* One tensor from the host to the shards of devices and back: for tests, and for small tensors. */
#include "shard/partition.h"
#include "shard/region.h"

#include <string.h>

/* What both arrays have, from one to the other: as region_copy,
   and of I4, which has no bytes of its own, too. */
static void copy(cvn_dtype dtype, const RegionArray *from, const void *source,
                 const RegionArray *to, void *target)
{
    Region common;
    RegionWalk w;
    if (dtype != CVN_I4) {
        region_copy(from, source, to, target, cvn_dtype_bytes(dtype, 1));
    } else if (region_intersect(&from->region, &to->region, &common)) {
        region_walk(&w, &common, from, to);
        while (region_next(&w))
            for (int64_t i = 0; i < w.n; i++)
                element_set(dtype, target, w.b + i, element_get(dtype, source, w.a + i));
    }
}

void shard_scatter(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                   const void *whole, int32_t device, void *part)
{
    const cvn_type local = sharding_local(sharding, type);
    const Region all = region_whole(type);
    const RegionArray from = region_packed(&all),
                      to = region_of_shard(mesh, sharding, type, device);
    if (cvn_type_bytes(&local))
        memset(part, 0, cvn_type_bytes(&local));
    copy(type->dtype, &from, whole, &to, part);
}

void shard_gather(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                  const void *const *part, void *whole)
{
    const Region all = region_whole(type);
    const RegionArray to = region_packed(&all);
    for (int32_t device = 0; device < mesh->n_devices; device++) {
        const RegionArray from = region_of_shard(mesh, sharding, type, device);
        copy(type->dtype, &from, part[device], &to, whole);
    }
}
