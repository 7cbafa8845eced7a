/* The passes of this folder, by name. They need the graph's mesh
 * (cvn_graph.mesh). */
#ifndef CVN_SHARD_PASSES_H
#define CVN_SHARD_PASSES_H

#include "graph/passes.h"

extern const GraphPass pass_propagate, pass_partition;

/* Ended by NULL. */
extern const GraphPass *const shard_passes[];

#endif
