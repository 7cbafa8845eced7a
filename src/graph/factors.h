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
 *
 * Most operations say their rule in a notation in their row of ops.def. For each operand and result it has the dimensions as
 * letters, of which those that are the same are one factor:
 *
 *     "bshd,bs,p -> bshd; whole dp"       rope: x [batch, seq, heads, head_dim], positions, frequencies
 *
 *     K     a capital is a dimension of several of what its small letter is: of two factors, that and how many there are
 *     *     at the beginning: all dimensions that have no letter, each a factor of its own; dimension i of a tensor with a *
 *           and dimension i of another are one
 *     -@    behind the *: the tensor lacks those of them that the attribute axis or dims names, which are called @
 *     1     no factor
 *
 * One tensor without an arrow stands for all operands and results. Behind semicolons is what factors do, by their letters,
 * where it is more than to pass: "whole", "shift", "sum", "max" or "reduce" (by the attribute of that name); and how they
 * are run, where it is not plainly: "index" or "parts". Where the number of operands varies there are several notations,
 * with | between them; the one that has an operation's number of operands is its own.
 */
#ifndef CVN_GRAPH_FACTORS_H
#define CVN_GRAPH_FACTORS_H

#include "graph/graph.h"

#include <assert.h>

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

/* Operations that only pass elements on: elementwise ones, reshape, transpose. */
bool factor_is_transparent(OpKind kind);

/* Attributes for the same operation on shards, the first operand's being of this type: sizes that
   name whole dimensions shrink with them. Lists are the arena's. */
OpAttr factor_local_attr(const Op *op, const cvn_type *shard, Arena *arena);

/* ---- what the functions of operations are written with ---- */

enum { NO_FACTOR = -1 };

/* A new factor; none for size 1. */
static inline int rule_add(Rule *rule, int64_t size, FactorKind kind)
{
    if (size == 1)
        return NO_FACTOR;
    assert(rule->n_factors < FACTORS_MAX);
    rule->factor[rule->n_factors] = (Factor){.size = size, .kind = kind, .how = CVN_SUM};
    return rule->n_factors++;
}

static inline int rule_add_local(Rule *rule, int64_t size, FactorKind kind, FactorLocal local)
{
    int f = rule_add(rule, size, kind);
    if (f != NO_FACTOR)
        rule->factor[f].local = local;
    return f;
}

/* The factor is the next, towards minor, of dimension d of a tensor. */
static inline void rule_put(Rule *rule, int tensor, int64_t d, int f)
{
    if (f == NO_FACTOR)
        return;
    DimFactors *dim = &rule->dim[tensor][d];
    assert(dim->n < FACTORS_PER_DIM);
    dim->factor[dim->n++] = (uint8_t)f;
}

/* The factor is dimension d of every tensor that has so many. */
static inline void rule_put_all(Rule *rule, int64_t d, int f)
{
    for (int t = 0; t < rule->n_tensors; t++)
        rule_put(rule, t, d, f);
}

#endif
