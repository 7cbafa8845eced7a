/*
 * From one graph on whole shapes to the graph that every device runs: shapes of shards, and
 * explicit collectives between them.
 *
 *     mesh model=2                                     on each of the 2 devices
 *     %x: f32[8,64]<_,model>                           %x: f32[8,32]
 *     %w: f32[16,64]<_,model>                          %w: f32[16,32]
 *     %y: f32[8,16]<_,_> = dot_general %x, %w          %0: f32[8,16] = dot_general %x, %w
 *                                                      %y: f32[8,16] = all_reduce %0
 *
 * Every operation is looked at through its factors (factors.h). How each factor is split is chosen
 * among what its tensors are split by, at the least cost: what it takes to bring the
 * operands there, to bring the results to where propagation wants them, and to compute.
 * Weights are thus gathered where a batch is large and stay where they are where it is
 * small; a partial sum is scattered where the result is split by its axes. Values are
 * brought somewhere when something needs them there, and what was brought is kept for
 * others. Composites whose inside has a reduction over a split dimension are decomposed
 * first. A KV head that no device group can have of its own is repeated.
 *
 * A dimension that its shards do not divide is padded at the end. What is in the padding is
 * unspecified; wherever it would meet something real it is masked. Parameters arrive with zeros
 * there (shard_scatter).
 */
#ifndef CVN_SHARD_PARTITION_H
#define CVN_SHARD_PARTITION_H

#include "shard/propagate.h"

/* An input or output of both graphs. */
typedef struct PartitionTensor {
    cvn_type global, local;
    Sharding sharding;
} PartitionTensor;

typedef struct PartitionCollective {
    const Op *op;      /* in the local graph */
    const char *along; /* the axes that it runs along, "data*model"; "_" for a permute */
    double bytes;      /* that each device sends, around a ring */
    const char *of;    /* the value of the whole graph it moves: its name, or its operation's */
    bool slow;         /* along the axis between groups of machines */
} PartitionCollective;

typedef struct PartitionReport {
    Arena arena; /* owns what is below */
    int n_parameters, n_outputs;
    PartitionTensor *parameter, *output; /* in the order of the graph */
    int64_t n_collectives;
    PartitionCollective *collective; /* [n_collectives] in the order of the local graph */
    int64_t count[OP_COUNT];         /* of each kind of collective */
    double bytes[OP_COUNT];          /* that each device sends in all of a kind */
    /* The graph that was cut, while it is compiled, for back ends that cut it themselves: borrowed by who set it. */
    const cvn_graph *whole;
    int64_t n_involuntary; /* reshards that hold more than either side has: none, see reshard.h */
} PartitionReport;

/* Cuts a verified graph with the shardings that shard_propagate found. *local is the caller's to
   free, and *report with partition_report_free; neither refers to `global` afterwards. The report
   refers to operations of *local. CVN_EUNSUPPORTED for a graph that has collectives already. */
int shard_partition(const cvn_graph *global, const Mesh *mesh, const ShardResult *result,
                    cvn_graph **local, PartitionReport *report, cvn_err *err);
void partition_report_free(PartitionReport *report);

/* The shard of a device, cut from a whole tensor; what is
   padding is zero. part has the bytes of the local type. */
void shard_scatter(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                   const void *whole, int32_t device, void *part);
/* A whole tensor from the shards of all devices, part[device]. */
void shard_gather(const Mesh *mesh, const Sharding *sharding, const cvn_type *type,
                  const void *const *part, void *whole);

#endif
