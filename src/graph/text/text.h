/*
 * The text form of graphs: what --dump writes, what `caravan opt` reads, what tests are written in.
 *
 *     graph @decode {
 *       %tokens: i32[4,1] = parameter {name="tokens"}
 *       %w: bf16[512,64]<data*model,_> = parameter {name="embed"}    // <…> marks a sharding
 *       %3: f32[4,1,512] = dot_general %x, %w {lhs_contract=[2], rhs_contract=[1]}
 *       %s: f32[4,9], %i: i32[4,9] = sort %a, %b {axis=1, descending=true}
 *       %c: f32[2] = constant {value=[1, -inf]}
 *       %d: f32[9] = constant {value=splat 0.5}
 *       return %3, %k1 into %k
 *     }
 *
 * Printing and parsing are driven by op_info and attr_info, so an
 * operation needs no code here, but for a region, whose body is operations (graph/region.h). Attributes that are zero, empty or false
 * are left out. A graph that was printed parses to an equal graph.
 */
#ifndef CVN_GRAPH_TEXT_TEXT_H
#define CVN_GRAPH_TEXT_TEXT_H

#include "graph/graph.h"

void graph_print(StrBuf *out, const cvn_graph *g);

/* NULL with *err set (file:line:column, what was found,
   what was expected) when the text is not a graph. */
cvn_graph *graph_parse(const char *text, size_t n, const char *filename, cvn_err *err);

/* Marks v of g by what would stand within <…>: "data*model,_". */
int graph_parse_mark(cvn_graph *g, cvn_value *v, const char *text, cvn_err *err);

#endif
