/*
 * A graph as a StableHLO module in MLIR text, for XLA and whatever else reads it
 * (https://openxla.org/stablehlo/spec). Operations are written in MLIR's generic form:
 *
 *     module @decode attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 8 : i32} {
 *       func.func public @main(%x: tensor<2xf32>, %k: tensor<2xf32> {tf.aliasing_output = 0 : i32}) ... {
 *         %y = "stablehlo.add"(%x, %k) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
 *
 * Composites are decomposed first; attention whose scores would be large becomes a loop over blocks of them. Where StableHLO leaves to the implementation what this project
 * defines, the module says it: sums of 16-bit floats are made in f32, a matrix product of f32 asks
 * for the highest precision. Devices are replicas: partition_id becomes replica_id, the groups of
 * collectives are ids of replicas, and XLA runs the module as it stands, without its partitioner.
 * Parameters are in order; an output computed into a parameter is an alias of it
 * (tf.aliasing_output). Marked specs are not written.
 *
 * A graph on whole shapes can be left to XLA's own partitioner (Shardy) instead: then devices are partitions of one replica,
 * and the module says how its parameters and results lie on a mesh.
 *
 *     module @decode attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
 *       sdy.mesh @mesh = <["data"=2, "model"=2]>
 *       func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"data"}]>}) ...
 */
#ifndef CVN_GRAPH_STABLEHLO_STABLEHLO_H
#define CVN_GRAPH_STABLEHLO_STABLEHLO_H

#include "graph/graph.h"

typedef struct StableHloOptions {
    int64_t n_devices; /* that will run the module; 0: as many as its collectives name */
    /* that a product has at least, for compilers that are slow with one (rows.c); 0: as in the graph */
    int64_t rows;
    /* For XLA's partitioner: the mesh, <["data"=2]>; and how parameters and outputs lie on it, [{"data"}, {}]. NULL: the
       graph is that of one device. */
    const char *mesh;
    const char *const *parameter, *const *output;
} StableHloOptions;

/* Appends the module; options may be NULL. The graph is not changed. */
int graph_print_stablehlo(StrBuf *out, const cvn_graph *g, const StableHloOptions *options,
                          cvn_err *err);

/* The graph that a module in StableHLO means (read.c), JAX's or one of those above; NULL with *err set, which says the line, and
   the operation that graphs do not have. Values have no roles. g->mesh is the mesh of its shardings, or NULL. */
cvn_graph *graph_read_stablehlo(const char *text, size_t n, const char *filename, cvn_err *err);

#endif
