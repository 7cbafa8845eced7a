/*
 * The small steps that decompositions, gradients and models are written in.
 *
 * C leaves open which argument of a call is computed first, so at most one of them may add operations; others get a name
 * before (everywhere, not only here: a graph must not depend on the compiler).
 */
#ifndef CVN_GRAPH_STEPS_H
#define CVN_GRAPH_STEPS_H

#include "graph/graph.h"

static inline cvn_type with_dtype(cvn_type type, cvn_dtype dtype)
{
    type.dtype = dtype;
    return type;
}

/* x in another dtype; x itself where it has it. */
static inline cvn_value *as(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    return x->type.dtype == dtype ? x : cvn_convert(g, x, dtype);
}

/* A splat of x's type. */
static inline cvn_value *like(cvn_graph *g, const cvn_value *x, double value)
{
    return cvn_splat(g, x->type, value);
}

/* x where pred, 0 elsewhere. */
static inline cvn_value *where(cvn_graph *g, cvn_value *pred, cvn_value *x)
{
    return cvn_select(g, pred, x, like(g, x, 0));
}

/* Puts dimension i of x at dims[i] of a tensor of this shape, in x's own dtype. */
static inline cvn_value *spread(cvn_graph *g, cvn_value *x, const cvn_type *shape, const int *dims)
{
    return cvn_broadcast_in_dim(g, x, *shape, dims);
}

/* [batch] -> [batch, …] */
static inline cvn_value *along_rows(cvn_graph *g, cvn_value *x, const cvn_type *shape)
{
    return spread(g, x, shape, (const int[]){0});
}

/* Undoes a reduction over one dimension: puts x back under `shape`, repeated along `axis`. */
static inline cvn_value *spread_over(cvn_graph *g, cvn_value *x, const cvn_type *shape, int axis)
{
    int dims[CVN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++)
        dims[i] = i < axis ? i : i + 1;
    return spread(g, x, shape, dims);
}

#endif
