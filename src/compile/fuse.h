/*
 * Fusion: elementwise operations that read each other's results, or the same tensors, become one step, which takes
 * all of them over FUSION_ELEMENTS elements before it goes on to the next. What is between them stays in cache and
 * has no place in the arena.
 *
 *     %m1 = multiply %m, splat 0.9                fusion %m, %g -> %m1
 *     %g1 = multiply %g, splat 0.1        ->        multiply slot 0, splat    -> slot 2 (scratch)
 *     %m2 = add %m1, %g1                            multiply slot 1, splat    -> slot 3 (scratch)
 *                                                   add slot 2, slot 3        -> result 0
 *
 * A member runs the backend's own kernel, as if it were one of many threads, so that its bits are those of the
 * operation alone. Constants of one value, and broadcasts, are written out for a tile at a time and take no
 * memory either.
 *
 * It is done while lowering, on the plan's own graph: an operation of kind OP_FUSION takes the place of its members
 * (whose results it has) and is not seen by any pass.
 */
#ifndef CVN_COMPILE_FUSE_H
#define CVN_COMPILE_FUSE_H

#include "compile/fusion.h"

/* Makes prologues and epilogues of what the backend's kernels say that they fuse, and fusions of what they say is
   elementwise. g is verified; afterwards it can only be lowered. scratch: for what is not needed afterwards. */
void fuse_graph(cvn_graph *g, const KernelSet *backend, Arena *scratch);

#endif
