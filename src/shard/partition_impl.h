/* Shared by the files of the partitioner. */
#ifndef CVN_SHARD_PARTITION_IMPL_H
#define CVN_SHARD_PARTITION_IMPL_H

#include "graph/factors.h"
#include "shard/emit.h"
#include "shard/partition.h"

/* How each factor of an operation is split. */
typedef struct FactorSplit {
    AxisList axes[FACTORS_MAX]; /* [n_factors] */
} FactorSplit;

/* A value of the whole graph as the devices have it. */
typedef struct Version {
    Sharding sharding;
    cvn_value *local;
    bool gathered;        /* a gathered weight, which is not kept for long (KEEP_OPS) */
    int64_t used;         /* the operation of the whole graph that needed it last, by number */
    struct Version *next; /* an older one, or NULL */
} Version;

typedef struct Partitioner {
    const cvn_graph *g; /* the whole graph */
    const Mesh *mesh;
    const Sharding *sharding; /* [n_values], where propagation wants each value */
    bool *constant;           /* [n_values], see shard_constants */
    const uint32_t *uses;     /* [n_values] */
    int64_t *first_use;       /* [n_values] number of the operation that needs it first; outputs: at
                                 the end */
    int64_t op;               /* number of the operation at hand */
    Version **version;        /* [n_values], none for constants that nothing asked for */
    Emit emit;                /* the local graph */
    Arena arena;              /* scratch */
    Map plans;                /* reshards by type and shardings */
    PartitionReport *report;
} Partitioner;

/* The sharding of tensor t when the factors are split so: results also say what is partial. */
Sharding choice_sharding(const Rule *rule, const FactorSplit *choice, int t, int rank);

/* Finds the cheapest reshard from one sharding to another, and remembers it. */
const Reshard *part_plan(Partitioner *p, const cvn_type *type, const Sharding *from,
                         const Sharding *to);
/* Returns a value under the wanted sharding: the version that is cheapest to reshard is resharded, and the result is kept. */
cvn_value *part_value(Partitioner *p, const cvn_value *v, const Sharding *want);
/* The cost of the reshard that part_value would do. */
double part_cost(Partitioner *p, const cvn_value *v, const Sharding *want);

/* Chooses how the factors of an operation are split at the least cost. */
void part_choose(Partitioner *p, const Op *op, const Rule *rule, FactorSplit *choice);

/* Counts a collective that was just emitted for the sake of a value: along these axes, with so many bytes sent by each device. */
void part_note(Partitioner *p, const cvn_value *of, const Op *op, const AxisList *axes,
               double bytes);

/* Emits the operation on shards in[n_operands], and gives its results out[n_results]. */
void part_emit(Partitioner *p, const Op *op, const Rule *rule, const FactorSplit *choice,
               cvn_value **in, cvn_value **out);

/* A copy of the graph in which every value has its sharding as a mark, composites with a reduction
   inside over a split dimension are decomposed, and attention that the KV heads keep from being
   split has them repeated; propagated again. *copy is NULL when nothing of that is needed. */
int part_prepare(const cvn_graph *g, const Mesh *mesh, const ShardResult *result, cvn_graph **copy,
                 ShardResult *again, cvn_err *err);

#endif
