#include "pjrt/options.h"

#include "base/protobuf.h"

/* Writes the devices of the replicas of one computation: first … first + n - 1. */
static void put_devices(StrBuf *assignment, const int64_t *id, int64_t first, int64_t n)
{
    StrBuf ids = {0}, devices = {0};
    for (int64_t i = first; i < first + n; i++)
        proto_put_varint(&ids, (uint64_t)id[i]);
    proto_put_message(&devices, 1, &ids);
    proto_put_message(assignment, 3, &devices);
}

void compile_options_print(StrBuf *out, int64_t n, const int64_t *id, bool partitions)
{
    int64_t n_replicas = partitions ? 1 : n, n_partitions = partitions ? n : 1;
    StrBuf build = {0}, assignment = {0};
    proto_put_int(&build, 1, -1);
    proto_put_int(&build, 4, n_replicas);
    proto_put_int(&build, 5, n_partitions);
    if (partitions)
        proto_put_int(&build, 6, 1);
    if (id) {
        proto_put_int(&assignment, 1, n_replicas);
        proto_put_int(&assignment, 2, n_partitions);
        for (int64_t i = 0; i < n_partitions; i++)
            put_devices(&assignment, id, i, n_replicas);
        proto_put_message(&build, 9, &assignment);
    }
    if (partitions)
        proto_put_int(&build, 19, 1);
    proto_put_message(out, 3, &build);
}
