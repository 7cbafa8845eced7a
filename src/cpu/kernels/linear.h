/*
 * Products of x with weights in panels (graph/panels.h): their tiles, and what an instruction set has for them.
 *
 * Weights of x's own kind, bf16, f32 or 8 bits, are multiplied directly. Every sum has one accumulator, to which the products
 * are added in the order of k (of bf16 in pairs, by one instruction where there is one), however many rows there are and
 * whatever is kept in registers. Few rows take more panels at a time instead, so that enough sums are under way. Rows of 8
 * bits (`linear` with int8, which brings them there, and `linear_int8`) are multiplied in integers, |sum| <= 128 * 127 * k
 * fits 32 bits; floats come of them when they are written.
 *
 * Quantized weights are multiplied in integers, too. They are i8 or i4 and are read once, as they lie. The
 * activations are brought to integers of the same kind: in each span of 512 neighbours in k, a row
 * of x becomes 16-bit fixed point with one scale,
 *
 *     X = round(x / s),  s = max |x| / 32512,  X = 256 hi + lo,  -128 <= hi, lo <= 127
 *
 * so that one instruction (vpdpbusd) sums four products of a weight with hi, one with lo, and no
 * weight is ever converted. Sums of a span are exact:
 *
 *     |sum| <= 128 * 32512 * 512 < 2^31
 *
 * and only their scaling is in f32:  y = sum over spans of s * (sum over groups of scale * sum).
 * Rounding to 16 bits of the largest element of a span disturbs a sum less than that element's own
 * rounding to bf16 does. Of x in bf16 s is rounded up to a power of two: what is not far smaller than the largest is X
 * exactly then, and every X is a number of bf16. A span with a NaN or an infinity makes the row's results NaN.
 *
 * Weights in blocks (graph/blocks.h) are read as they lie in their chunks, which divide a span, by tile_blocks. With X the sum
 * of a row's fixed point over a group, and c its codes,
 *
 *     y = sum over spans of s * (sum over groups of scale * (sum of (c - offset) x) - minimum * X)
 *
 * An instruction set may take codes as they are, unsigned, and take offset * X off (vec_codes.h), or multiply floats whose
 * sums are exact, and so the same integers (amx/linear_blocks.c).
 *
 * Of weights in blocks, whose numbers are to be a file's in f32 too, a row of x in f32 is two rows of fixed point, the second
 * of what the first rounded off, and both products are added.
 *
 * With int8 (graph/linear.h), which blocks have, too, the columns of a chunk have one step instead, and x one byte, as it is:
 *
 *     y = sum over chunks of step * (sum over groups of scale * (sum of (c - offset) x) - minimum * (sum of x))
 *
 * What holds for results: integer sums have no order, and the spans of a row are added in one order
 * whatever else is computed, so that a row has the same bits in any batch, in prefill and decode, at
 * any place, on any number of threads.
 *
 * x is first laid out by spans, [spans][rows][512]: a tile's rows then lie together, while rows a power of two apart would
 * share a few sets of the L1 cache. Some tiles of AMX want 16 rows of 64 bytes in one piece: each 16 whole rows are [span's
 * 64 bytes][16][64] there. The loops (blocks that keep a span of the activations in L2 and of a panel in L1):
 *
 *     x is laid out once, by all threads
 *     for rows, a chunk at a time
 *       for panels of weights, each thread its own range, LINEAR_BLOCK (or isa->block) at a time
 *         for spans of k
 *           for panels of the block
 *             for tiles of rows               tile(): rows x 16 * panels sums in registers
 */
#ifndef CVN_CPU_KERNELS_LINEAR_H
#define CVN_CPU_KERNELS_LINEAR_H

#include "cpu/kernels/linear_loops.h"
#include "graph/blocks.h"

/* Functions of kernels whose `isa` is a LinearIsa. */
bool linear_match(const Kernel *kernel, const Op *op);
size_t linear_scratch(const Kernel *kernel, const Op *op, int n_threads);
void linear_run(const KernelArgs *args);

#endif
