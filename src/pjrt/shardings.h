/*
 * How a graph on whole shapes lies on a mesh, in words of Shardy (https://openxla.org/shardy), for XLA's partitioner:
 *
 *     mesh data=2,model=4                    <["data"=2, "model"=4]>
 *     f32[8,16]<data,model.2.2>              [{"data"}, {"model":(2)2}]
 */
#ifndef CVN_PJRT_SHARDINGS_H
#define CVN_PJRT_SHARDINGS_H

#include "graph/stablehlo/stablehlo.h"
#include "shard/partition.h"

/* Adds to the options what the report says of the parameters and outputs of the graph, in the arena. What the partitioner
   does not take, shards with padding and rows of caches that are split, is refused. */
int shardings_of(StableHloOptions *options, const cvn_graph *g, const PartitionReport *report,
                 const Mesh *mesh, Arena *arena, cvn_err *err);

#endif
