/*
 * What every operation means for sharding: a rule in terms of factors.
 *
 * A factor is a loop index of the operation. A rule says for each dimension of each operand and
 * result which factors it is made of, major to minor:
 *
 *     dot_general [B,M,K] . [B,N,K]       ([i,j,l], [i,k,l]) -> ([i,j,k])     reduce l
 *     reshape f32[4,6] -> f32[24]         ([i,j]) -> ([i j])
 *     attention, 8 heads over 2 KV heads  q [b,s,(kv g),d]  k, v [b,kv,c,d] -> [b,s,(kv g),d]
 *
 * All dimensions that share a factor should be split alike. What happens when a factor is split is
 * its kind:
 *
 *     PASS     shard i of the results needs shard i of the operands only
 *     REDUCE   each device computes a partial result, to be combined over the factor's axes;
 *              results that have the factor are split by it, as with PASS
 *     WHOLE    the operation needs the dimension whole: the operand is gathered first
 *     SHIFT    shard i needs elements of other shards (slice, pad, concatenate, reverse); gathered
 *
 * and how the operation is run on shards, its FactorLocal. Dimensions of size 1 have no factor.
 */
#ifndef CVN_SHARD_FACTORS_H
#define CVN_SHARD_FACTORS_H

#include "graph/graph.h"

typedef enum FactorKind { FACTOR_PASS, FACTOR_REDUCE, FACTOR_WHOLE, FACTOR_SHIFT } FactorKind;

/* What a device does to run the operation on its shard. */
typedef enum FactorLocal {
    LOCAL_PLAIN, /* the same operation on smaller shapes */
    LOCAL_INDEX, /* the index operands are made relative to the shard; where they leave it, nothing
                    is read (the result is 0) or written */
    LOCAL_ONCE,  /* the first operand counts in the first shard only; elsewhere it is 0 */
    LOCAL_PARTS  /* the composite is decomposed first: its parts have reductions over the factor */
} FactorLocal;

enum { FACTORS_MAX = 48, FACTORS_PER_DIM = 16 };

typedef struct Factor {
    int64_t size; /* of the loop; >= 0 and never 1 */
    FactorKind kind;
    FactorLocal local;
    cvn_reduce how; /* of REDUCE */
} Factor;

/* The factors of one dimension, major to minor. None for size 1. */
typedef struct DimFactors {
    int n;
    uint8_t factor[FACTORS_PER_DIM]; /* [n], indices in the rule */
} DimFactors;

/* Tensors are the operands and then the results. Lives in an arena. */
typedef struct Rule {
    int n_factors;
    Factor *factor; /* [n_factors] */
    int n_operands, n_tensors;
    DimFactors (*dim)[CVN_MAX_RANK]; /* [n_tensors][rank] */
} Rule;

/* The rule of an operation of a verified graph. Operations that have none (leaves, collectives)
   get one without factors. */
Rule factor_rule(const Op *op, Arena *arena);
/* A rule between two tensors of one type: each dimension is a PASS factor. */
Rule factor_identity(const cvn_type *type, Arena *arena);

/* Tensor t of an operation: its operands, and then its results. */
static inline const cvn_value *factor_tensor(const Op *op, int t)
{
    return t < op->n_operands ? op->operand[t] : op->result[t - op->n_operands];
}

/* Whether a kind of operation has a row in the table: all must have. */
bool factor_rule_exists(OpKind kind);
/* Operations that only pass elements on: elementwise ones, reshape, transpose. */
bool factor_is_transparent(OpKind kind);

/* Attributes for the same operation on shards, the first operand's being of this type: sizes that
   name whole dimensions shrink with them. Lists are the arena's. */
OpAttr factor_local_attr(const Op *op, const cvn_type *shard, Arena *arena);

#endif
