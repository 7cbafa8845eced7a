/*
 * Fusion: what stands next to a product with weights in panels becomes part of it.
 *
 *     dot_general(x, dequantize(q, s))              linear x, q, s          (without s: not quantized)
 *     silu(x A) * (x B), converted                  linear x, A, B {swiglu}
 *     r + x A                                       linear x, A, r          (a residual)
 *     x A, x B, x C                                 linear x, A, B, C       (one step, three results)
 *     convert(x A)                                  linear of that dtype
 *
 * so that no converted weight, and as few sums as can be, are written to memory. A value that something
 * else uses too stays as it is. The weights of a linear are not rounded to x's dtype, as those of a
 * dequantize are: fusion makes results more exact, never less.
 */
#ifndef CVN_COMPILE_FUSE_LINEAR_H
#define CVN_COMPILE_FUSE_LINEAR_H

#include "graph/graph.h"

/* A pass: says in *changed whether it found anything. products_only: the first rule alone, which is what a product
   with weights in panels takes; without it they would be brought into rows each time. */
int graph_fuse_linear(cvn_graph *g, bool products_only, bool *changed, cvn_err *err);

#endif
