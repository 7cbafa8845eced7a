/*
 * What runs a region: the operation of its root as a kernel takes it, with what the kernel does beside it (Fused).
 *
 *     %h: bf16[4,8] = region %x, %w, %r {
 *       %d: f32[4,8] = dot_general %x, %w {…}        dot_general %x, %w, %r -> %h
 *       %s: f32[4,8] = add %d, %r                      with a tile program that adds the third operand to the
 *       %h: bf16[4,8] = convert %s                     sums and rounds them, before they leave the cache
 *       return %h
 *     }
 *
 * A back end accepts a region where there is such an operation and KernelSet.accepts says so. Passes ask before they make one; one that
 * is not accepted, which only a graph from elsewhere has, is inlined before the plan is made.
 */
#ifndef CVN_COMPILE_REGION_PLAN_H
#define CVN_COMPILE_REGION_PLAN_H

#include "compile/fused.h"

/* The operation that a plan has for a region, or NULL: the back end does not accept it. It makes the region's results, which
   go on being the region's until it takes their place. What it is made of is in `arena`. *next_id: of values that only the
   kernel has. */
Op *region_plan(const KernelSet *backend, const Op *region, Arena *arena, uint32_t *next_id);

/* Puts what runs them in the place of the regions of a graph, or their bodies. Afterwards it can only be lowered. */
int region_plan_all(cvn_graph *g, const KernelSet *backend, cvn_err *err);

#endif
