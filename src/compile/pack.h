/*
 * Packing: a weight that nothing but products reads lies in memory as they read it, in panels (graph/panels.h).
 *
 *     %w: bf16[32,64,2048] = parameter                 %w: bf16[128,1024,16,2] = parameter
 *                                                      %0: bf16[32,64,2048] = dequantize %w {rows=2}
 *     %y = dot_general %x, %w  (the last summed)       %y = dot_general %x, %0
 *
 * of which fuse_linear.h makes a linear: nothing is brought back into rows. Graphs are written without a thought of
 * this, and the pass runs on the graph of one device, so that a weight on a mesh is packed shard by shard.
 *
 * The compiler may lay out a parameter whose memory the caller fills accordingly (PlanParameter.rows says how). It does
 * where every use is one of
 *
 *     a product        rhs of a dot_general without batch, the last dimensions of both operands being summed, and x of
 *                      the weight's own type (bf16 or f32), so that no number is rounded on the way
 *     a look-up        rows of a table by their numbers (an embedding that is also the head): a row is a box of its panel
 *     an all_gather    or all_to_all of whole panels or units, of which the same holds: panels travel, in as many
 *                      bytes
 *
 * and at least one is a product; a table that is only looked up stays as it is. Which uses there are may differ among
 * programs that share a weight (a section of a prompt has no head, and on some meshes the partitioner gathers for many
 * rows what it leaves where it is for few, and shards may not be whole panels). So the caller may say what the first of them found: then any other use is
 * made to work, by bringing the weight back into rows. The program to compile first is thus one that has them all, a step of
 * decoding.
 */
#ifndef CVN_COMPILE_PACK_H
#define CVN_COMPILE_PACK_H

#include "compile/plan.h"

/* Of a parameter, in an array of signed char [n_parameters]; what is above 0 is in panels, that many of its leading
   dimensions being rows of the weight, the others columns. */
enum { PACK_FREE = -1, PACK_PLAIN = 0 };

/* A pass. Chooses for parameters that are PACK_FREE, and writes to layout what it chose. CVN_EINVAL where one should be in
   panels that cannot. */
int graph_pack(cvn_graph *g, signed char *layout, bool *changed, cvn_err *err);

/* Writes into a plan how its parameters lie: g is the graph it was made of, layout what graph_pack left, or NULL. */
int pack_describe(Plan *plan, const cvn_graph *g, const signed char *layout, cvn_err *err);

/* The panels [*begin, *end) of a weight (its own are counted), or of its scales, that thread t of nt reads. Whoever fills
   its memory writes these on that thread: their pages then lie near it. */
void pack_share(const PlanParameter *parameter, int t, int nt, int64_t *begin, int64_t *end);

#endif
