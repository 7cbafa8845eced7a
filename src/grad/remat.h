/*
 * Rematerialisation: activations are not kept for the backward pass but computed again (Chen et al.
 * 2016, arXiv:1604.06174).
 *
 * The forward pass is cut into blocks by values that are kept, such as what enters each layer. Where
 * the backward pass uses a value from inside a block, the part of the block that makes it is copied to
 * just before the first such use. The copy starts from an optimization_barrier on what was kept, or
 * simplification would find that it computes what is there already and undo it:
 *
 *     %x0 → a → b → %x1     …     backward of the block uses a and b
 *
 *     %x0 → a → b → %x1     …     %k = optimization_barrier %x0 → a' → b', which the backward uses
 *
 * a and b now die in the forward pass. The numbers are the same, bit for bit.
 */
#ifndef CVN_GRAD_REMAT_H
#define CVN_GRAD_REMAT_H

#include "graph/graph.h"

typedef enum RematPolicy {
    REMAT_NONE,      /* everything is kept */
    REMAT_SELECTIVE, /* products and attention are kept, cheap operations are computed again */
    REMAT_BLOCK,     /* only the input of each block is kept: this costs one more forward pass */
    REMAT_POLICY_COUNT
} RematPolicy;

extern const char *const remat_policy_names[REMAT_POLICY_COUNT]; /* "none", … */

/* boundary[0 … n_blocks], in execution order: block i is what lies between boundary[i] and
   boundary[i + 1] and depends on boundary[i]. backward: the first operation that graph_gradient
   appended (g->last->next of before). */
int graph_remat(cvn_graph *g, RematPolicy policy, int n_blocks, cvn_value *const *boundary,
                Op *backward, cvn_err *err);

#endif
