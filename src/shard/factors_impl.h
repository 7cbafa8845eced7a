/* What the rules of operations are made with; included by the files that have them. */
#ifndef CVN_SHARD_FACTORS_IMPL_H
#define CVN_SHARD_FACTORS_IMPL_H

#include "shard/factors.h"

#include <assert.h>

typedef void RuleFn(const Op *op, Rule *rule);

/* Of the composites (factors_composite.c). */
RuleFn factor_by_notation, factor_dequantize, factor_linear_int8, factor_linear, factor_attention,
    factor_attention_backward, factor_argmax;

enum { NONE = -1 };

/* ---- making rules ---- */

static inline int add(Rule *rule, int64_t size, FactorKind kind)
{
    if (size == 1)
        return NONE;
    assert(rule->n_factors < FACTORS_MAX);
    rule->factor[rule->n_factors] = (Factor){.size = size, .kind = kind, .how = CVN_SUM};
    return rule->n_factors++;
}

static inline int add_local(Rule *rule, int64_t size, FactorKind kind, FactorLocal local)
{
    int f = add(rule, size, kind);
    if (f != NONE)
        rule->factor[f].local = local;
    return f;
}

static inline void put(Rule *rule, int tensor, int64_t d, int f)
{
    if (f == NONE)
        return;
    DimFactors *dim = &rule->dim[tensor][d];
    assert(dim->n < FACTORS_PER_DIM);
    dim->factor[dim->n++] = (uint8_t)f;
}

/* The factor is dimension d of every tensor that has so many. */
static inline void put_all(Rule *rule, int64_t d, int f)
{
    for (int t = 0; t < rule->n_tensors; t++)
        put(rule, t, d, f);
}

#endif
