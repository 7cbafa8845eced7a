/*
 * Fusion: a pass that makes regions (graph/region.h) of what a back end does in one go.
 *
 *     %d = dot_general %x, %w         %h = region %x, %w, %r {
 *     %s = add %d, %r         ->        %d = dot_general %x, %w
 *     %h = convert %s                   %s = add %d, %r
 *                                       %h = convert %s
 *                                       return %h }
 *
 * The order is one for all:
 *
 *     along rows   reductions along rows, as norms have them, take all that is elementwise around them, however small
 *     rows         the norm of a product that rows are added to (fuse_rows.c)
 *     roots        products, turns, gradients of norms and losses, sums of rows: each takes what reads it, and what only it
 *                  reads, one operation after the other
 *     recompute    what is elementwise and read again much later is computed again there (fuse_recompute.c)
 *     sums         reductions take what makes their terms (fuse_reduce.c)
 *     linears      products with weights in panels take all that is elementwise behind them, however small
 *     chains       elementwise operations that read each other's results, or the same tensors (fuse_chains.c)
 *     roots again  products take the chains behind them
 *
 * and so is the rule: operations join where the back end accepts the region that comes of it (region_plan.h) and where that
 * writes and reads fewer bytes, which what is made and taken inside of a region never is. A region computes at the place of
 * its root: what else it reads must be there by then. Nothing of a region is rounded but where its body says so, and each
 * operation of it is done as it would be alone: the bits are the same.
 */
#ifndef CVN_COMPILE_FUSE_H
#define CVN_COMPILE_FUSE_H

#include "compile/kernel.h"

/* Makes regions of g, which is without composites that the back end has no kernel for; says whether there were any. */
int fuse_graph(cvn_graph *g, const KernelSet *backend, bool *changed, cvn_err *err);

#endif
