/* The passes of this folder, by name. They need the graph's mesh
 * (cvn_graph.mesh). */
#ifndef CVN_SHARD_PASSES_H
#define CVN_SHARD_PASSES_H

#include "graph/passes.h"

/* Ended by a row without a name. */
extern const GraphPass shard_passes[];

#endif
