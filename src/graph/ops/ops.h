/* What the files of operations are written with: what each part of a record takes (record.h), and a little of their own. */
#ifndef CVN_GRAPH_OPS_OPS_H
#define CVN_GRAPH_OPS_OPS_H

#include "graph/decompose_impl.h"
#include "graph/factors.h"
#include "graph/grad_rule.h"
#include "graph/infer.h"
#include "graph/interp/interp_impl.h"
#include "graph/stablehlo/stablehlo_impl.h"

/* ---- builders (build.c) ---- */

/* A list of at most CVN_MAX_RANK entries. */
Ints build_list(cvn_graph *g, int n, const int64_t *v);
Ints build_dims(cvn_graph *g, int n, const int *v);
/* The n results of an operation, of which `first` is the first; or the poison value in their place. */
void build_results(cvn_graph *g, cvn_value *first, int n, cvn_value **out);

static inline double op_elements(const cvn_value *v)
{
    return (double)cvn_type_elements(&v->type);
}

#endif
