/*
 * Products with weights in panels: what they are, and those of one x are one.
 *
 *     dot_general(x, dequantize(q, s))              linear x, q, s          (without s: not quantized)
 *     linear_int8(quantize_rows(x), q, s)           linear x, q, s {int8}
 *     linear dequantize(quantize_rows(x)), blocks   linear x, blocks {int8}
 *     x A, x B, x C                                 linear x, A, B, C       (one step, three results)
 *
 * so that no converted weight is written to memory. Those that meet, as gate and up do in SwiGLU, are joined before others. What
 * stands around them is fuse.h's. The weights of a linear are not rounded to x's dtype, as those of a
 * dequantize are: fusion makes results more exact, never less.
 */
#ifndef CVN_COMPILE_FUSE_LINEAR_H
#define CVN_COMPILE_FUSE_LINEAR_H

#include "graph/graph.h"

/* Of a product whose weight may be in panels, x [kept …, summed …] times w [rows …, summed …]: how many dimensions of w
   are rows; 0 of any other operation. */
int fuse_product_rows(const Op *op);

/* A pass: says in *changed whether it found anything. products_only: the first rule alone, which is what a product
   with weights in panels takes; without it they would be brought into rows each time. */
int graph_fuse_linear(cvn_graph *g, bool products_only, bool *changed, cvn_err *err);

#endif
