/*
 * What a module is compiled for, as the protocol buffer CompileOptionsProto (xla/pjrt/proto/compile_options.proto), written by hand:
 *
 *     field 3, executable_build_options       1a <length>
 *       field 1, device_ordinal = -1 (any)      08 ff ff ff ff ff ff ff ff ff 01
 *       field 4, num_replicas                   20 <n>
 *       field 5, num_partitions = 1             28 01
 *       field 9, device_assignment              4a <length>
 *         field 1, replica_count                  08 <n>
 *         field 2, computation_count = 1          10 01
 *         field 3, computation_devices            1a <length>
 *           field 1, replica_device_ids, packed     0a <length> <id>…
 *
 * Devices are replicas, as in the module (graph/stablehlo/stablehlo.h). Where they are partitions, which XLA cuts, the numbers
 * of both change places, every partition has computation_devices of its own, and fields 6 and 19 ask for the partitioner:
 * use_spmd_partitioning, use_shardy_partitioner.
 */
#ifndef CVN_PJRT_OPTIONS_H
#define CVN_PJRT_OPTIONS_H

#include "base/strbuf.h"

/* Appends them; id [n]: the plugin's numbers of the devices; NULL: it chooses. */
void compile_options_print(StrBuf *out, int64_t n, const int64_t *id, bool partitions);

#endif
