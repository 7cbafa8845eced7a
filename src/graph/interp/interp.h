/*
 * The interpreter: the slow, obvious functions that define what every operation means.
 *
 * Kernels, constant folding and the passes are all tested against these. Rules that hold for every
 * operation unless its function says otherwise:
 *
 *   floats     elements are read as f64, computed in f64 and rounded on the store (bf16 and f16 by
 *              way of f32, as XLA does); for +, -, *, / and sqrt this is exactly IEEE arithmetic in
 *              the type of the element. Subnormal numbers are kept; XLA's CPU backend, and kernels
 *              that set the processor so, flush them to zero
 *   integers   two's complement, wrap around (in the width of their type)
 *   sums       run in index order in f64 (integers: wrap), rounded at the end
 *   moves      copy bits: the payload of a NaN and the sign of a zero survive
 *
 * Composites are their decompositions, with floats in f64 up to the last rounding (composite.c).
 *
 * All tensors are dense, row-major and packed as in memory. No function here allocates except
 * interp_run, and interp_op of composites.
 */
#ifndef CVN_GRAPH_INTERP_INTERP_H
#define CVN_GRAPH_INTERP_INTERP_H

#include "graph/graph.h"

/* Carries out one operation on one device: reads in[n_operands], writes all of out[n_results].
   Results may not overlap operands. An operation between devices (CLASS_COLLECTIVE) is carried out
   as if device 0 were the only one; its groups must then have size 1. PARAMETER does nothing. */
void interp_op(const Op *op, const void *const *in, void *const *out);

/* Carries out an operation between devices for all of them: in[d] and out[d] are device d's operand
   (unused by partition_id) and result. Every device
   must be in a group, see interp_check_devices. */
void interp_collective(const Op *op, int n_devices, const void *const *in, void *const *out);

/* 0 when every collective of the graph makes sense on n_devices devices: its groups name each
   device exactly once, and its pairs name no others. */
int interp_check_devices(const cvn_graph *g, int n_devices, cvn_err *err);

/* Runs a graph on n_devices devices in lockstep, operation by operation.
   inputs [n_devices * n_parameters], device-major: borrowed, never written (an output "into" a
   parameter is a new buffer here). outputs [n_devices * n_outputs]: each is allocated, to be freed
   by the caller with free(); all NULL after an error.
   Temporaries are freed after their last use. */
int interp_run(const cvn_graph *g, int n_devices, const void *const *inputs, void **outputs,
               cvn_err *err);

/* The same on one device. */
int interp_run_one(const cvn_graph *g, const void *const *inputs, void **outputs, cvn_err *err);

#endif
