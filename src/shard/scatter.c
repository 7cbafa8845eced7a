/* One tensor from the host to the shards of devices and back: for tests, and for small tensors. */
#include "shard/partition.h"
#include "shard/region.h"

#include <string.h>

void shard_scatter(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                   const void *whole, int32_t device, void *part)
{
    const cvn_type local = sharding_local(sharding, type);
    const Region all = region_whole(type);
    const RegionArray from = region_packed(&all),
                      to = region_of_shard(mesh, sharding, type, device);
    if (cvn_type_bytes(&local))
        memset(part, 0, cvn_type_bytes(&local));
    region_copy(&from, whole, &to, part, type->dtype);
}

void shard_gather(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                  const void *const *part, void *whole)
{
    const Region all = region_whole(type);
    const RegionArray to = region_packed(&all);
    for (int32_t device = 0; device < mesh->n_devices; device++) {
        const RegionArray from = region_of_shard(mesh, sharding, type, device);
        region_copy(&from, part[device], &to, whole, type->dtype);
    }
}
