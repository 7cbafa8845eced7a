/*
 * Fusion: what stands next to a product with weights in panels becomes part of it.
 *
 *     dot_general(x, dequantize(q, s))              linear x, q, s          (without s: not quantized)
 *     linear_int8(quantize_rows(x), q, s)           linear x, q, s {int8}
 *     linear dequantize(quantize_rows(x)), blocks   linear x, blocks {int8}
 *     silu(x A) * (x B)                             linear x, A, B {swiglu}
 *     x A + b, b spread over the rows               linear x, A, b {bias}
 *     x A, x B, x C                                 linear x, A, B, C       (one step, three results)
 *     linear(rms_norm(x, w), …)                     linear x, …, w {norm}
 *
 * so that no converted weight, and as few sums as can be, are written to memory. A value that something
 * else uses too stays as it is. The weights of a linear are not rounded to x's dtype, as those of a
 * dequantize are: fusion makes results more exact, never less.
 *
 * The norm is taken in by the product because a product lays its rows out anyway, in bf16 or as whole numbers in
 * spans of 512: the normalised rows need not lie in memory besides. Of m rows of d elements the norm alone reads
 * 4 m d bytes and writes 2 m d, and the product reads 2 m d and writes its layout, 2 m d; together they are 4 m d in
 * and 2 m d out, 6 instead of 10. For 512 rows of 2,048 that is 4 MB of a prompt's step, 0.1 ms beside products of
 * 0.9 (q, k, v) and 5 ms (gate, up) on AMX. For one row it is no bytes that count, but one step with its meeting of
 * the threads: each of them normalises the row for itself. A norm that several products take (of weights that are
 * not alike, which cannot be one step) is shared by them as a step of its own.
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
