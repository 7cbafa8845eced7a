/*
 * Propagation: from a few marks to the sharding of every value.
 *
 * Each operation is looked at through its factors (factors.h): what splits a factor in one of its
 * tensors should split it in the others. Values only ever get more axes, never other ones, so this
 * ends; what still disagrees then is a conflict, which costs a reshard, and is reported.
 *
 *     %x: f32[8,64] <data,_>            a mark
 *     %w: f32[256,64] <model,_>         a mark
 *     %h: f32[8,256] = dot_general %x, %w
 *
 *     gives %h <data,model>:            dim 0 by data: dot_general from %x; mark on %x
 *                                       dim 1 by model: dot_general from %w; mark on %w
 *
 * In which order axes spread decides who wins where two want the same axis:
 *
 *     marks        by their priority (cvn_spec): those of a smaller number first, and to the end
 *     operations   in five steps, those that only pass elements on before others and contractions
 *                  before broadcasts (`direction` in propagate.c)
 *     mode         in each step first what no tensor of an operation objects to, then for each
 *                  tensor what it can take, where the largest tensor wins
 *
 * Constants and what is computed of constants alone take any sharding at each use: they carry none,
 * and link nothing. An output computed into a parameter has the parameter's sharding.
 *
 * Last comes the exchange. Where both operands of a product are split along the contraction by the
 * same axes, devices hold partial sums; where the result could not take an axis of its weights,
 * because another of its dimensions has it, it takes the axes of the partial sum in that place: a
 * reduce-scatter instead of an all-reduce. That is how activations lie in the published 2-D layout:
 *
 *     x <data,_,model> . w_q <data,_,model>   ->   q <data,_,model,_>     heads wanted `data`
 */
#ifndef CVN_SHARD_PROPAGATE_H
#define CVN_SHARD_PROPAGATE_H

#include "graph/graph.h"
#include "shard/spec.h"

typedef enum ShardOriginKind {
    ORIGIN_MARK,
    ORIGIN_OP,
    ORIGIN_OUTPUT,
    ORIGIN_EXCHANGE
} ShardOriginKind;

/* Who split a dimension of a value. The arena's. */
typedef struct ShardOrigin {
    ShardOriginKind kind;
    int dim;                  /* of the value */
    AxisList axes;            /* that this step added */
    const Op *op;             /* that they came through; NULL for marks and outputs */
    const cvn_value *from;    /* the tensor of op that had them, or NULL */
    int from_dim;             /* its dimension, -1 when it is not one */
    struct ShardOrigin *next; /* an earlier step of the same value, or NULL */
} ShardOrigin;

/* A factor of an operation that its tensors do not agree on, or that it needs
 * whole. */
typedef struct ShardConflict {
    const Op *op;
    int factor; /* in factor_rule(op) */
} ShardConflict;

typedef struct ShardResult {
    Arena arena;             /* owns everything below */
    uint32_t n_values;       /* of the graph */
    Sharding *sharding;      /* [n_values] by value id; a constant's is replicated */
    ShardOrigin **origin;    /* [n_values], the latest step first; NULL when never split */
    ShardConflict *conflict; /* [n_conflicts] in the order of operations */
    int n_conflicts;
} ShardResult;

/* Shards every value of a verified graph for a mesh. *result is the caller's to
 * free. */
int shard_propagate(const cvn_graph *g, const Mesh *mesh, ShardResult *result, cvn_err *err);
void shard_result_free(ShardResult *result);

/* The step that a step followed from: how the tensor it came from got its axes; NULL: it began here. */
const ShardOrigin *shard_origin_before(const ShardResult *result, const ShardOrigin *origin);

/* Which values are made of constants alone: constant[n_values]
   by id. They have no sharding of their own. */
void shard_constants(const cvn_graph *g, bool *constant);

/* Every value with its spec, who set it and the chain of operations back to a
   mark; then the conflicts. */
void shard_report(StrBuf *out, const cvn_graph *g, const Mesh *mesh, const ShardResult *result);

#endif
