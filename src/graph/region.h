/*
 * A region: operations that are done in one go, as one operation whose attribute is a graph, its body.
 *
 *     %y: bf16[4,8] = region %x, %w, %r {
 *       %d: f32[4,8] = dot_general %x, %w {lhs_contract=[1], rhs_contract=[1]}
 *       %s: f32[4,8] = add %d, %r
 *       %h: bf16[4,8] = convert %s
 *       return %h
 *     }
 *
 * Parameters of the body are the operands, in their order, and its outputs are the results. Nothing else is known inside.
 * What a region means is what its body means: the interpreter runs it, decomposing inlines it, and where a value is rounded
 * the body has a `convert`. Passes make regions after gradients were taken and the graph was partitioned.
 *
 * A body has one root, or a few that share an operand (products of one x, or a loss and its gradient): a product, a
 * reduction, an operation by index or a composite. All else is elementwise, a constant, or moves elements without adding
 * any but copies (broadcast_in_dim, reshape, transpose); beside a root that is no reduction, reductions are of what is made of
 * its results, and a norm that only linears read is their prologue. Or all roots reduce along the same rows, as norms do. A body
 * without a root is a chain of elementwise operations.
 *
 * A body is a part of the graph around it: it lies in that graph's arena, its parameters come first, ids count its values
 * in their order, and nobody changes it. Two bodies are equal where their operations are, whatever values are called.
 */
#ifndef CVN_GRAPH_REGION_H
#define CVN_GRAPH_REGION_H

#include "graph/graph.h"

/* A body of g with the operations and outputs of another graph, which it copies; parameters are moved to the front. */
const cvn_graph *body_copy(cvn_graph *g, const cvn_graph *from);

/* Whether two bodies do the same. */
bool body_equal(const cvn_graph *a, const cvn_graph *b);

/* Whether an operation of a body may be its root. */
bool op_may_be_root(const Op *op);
/* Elements of the rows, the last dimensions of operand 0, along which an operation reduces; 0: it is neither a reduce of f32 like that
   nor a norm. */
int64_t op_row_of(const Op *op);
/* The first root of a body, or NULL: it is elementwise. */
const Op *body_root(const cvn_graph *body);

/* Why this is no body, or NULL: what the rule of roots refuses. Operands and types are legal. */
const char *body_fault(const cvn_graph *body);

/* "dot_general+convert+add": what a body does, as profiles call it. */
void body_print_name(StrBuf *out, const cvn_graph *body);

/* Builds the operations of a region before its insertion point, on the given operands; out[i] takes the place of result i. */
void region_inline(cvn_graph *g, const Op *region, cvn_value *const *operand, cvn_value **out);

/* Puts the operations of its body in the place of a region, which is not removed: nothing uses its results any more. */
void region_dissolve(cvn_graph *g, Op *region);

#endif
