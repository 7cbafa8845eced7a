/* What the files of lowering share: see lower.h for what they do. */
#ifndef CVN_COMPILE_LOWER_INTERNAL_H
#define CVN_COMPILE_LOWER_INTERNAL_H

#include "compile/lower.h"
#include "compile/lower_blocks.h"

/* A graph on its way to a plan. */
typedef struct Lowering {
    cvn_graph *g;
    const Backend *backend;
    int n_threads;
    Arena arena;           /* what is needed only while lowering */
    bool *donated;         /* [g->n_parameters] some output goes into it */
    Liveness live;         /* of g as it is now */
    const Kernel **kernel; /* [live.n_steps], NULL: the fallback */
    Blocks blocks;
} Lowering;

/* Inserts the copies that outputs need, and joins the blocks of values with the parameters that they go into.
   Leaves lifetimes, kernels and blocks up to date with the graph. */
int lower_outputs(Lowering *lowering, cvn_err *err);

#endif
