/* One tensor from the host to the shards of devices and back: for tests, and for small tensors. */
#include "shard/box.h"
#include "shard/partition.h"

#include <string.h>

void shard_scatter(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                   const void *whole, int32_t device, void *part)
{
    const cvn_type local = sharding_local(sharding, type);
    const Box all = box_whole(type);
    const BoxArray from = box_packed(&all), to = box_of_shard(mesh, sharding, type, device);
    if (cvn_type_bytes(&local))
        memset(part, 0, cvn_type_bytes(&local));
    box_copy(&from, whole, &to, part, type->dtype);
}

void shard_gather(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                  const void *const *part, void *whole)
{
    const Box all = box_whole(type);
    const BoxArray to = box_packed(&all);
    for (int32_t device = 0; device < mesh->n_devices; device++) {
        const BoxArray from = box_of_shard(mesh, sharding, type, device);
        box_copy(&from, part[device], &to, whole, type->dtype);
    }
}
