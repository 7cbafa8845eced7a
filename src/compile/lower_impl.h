/* What the files of lowering share: see lower.h for what they do. */
#ifndef CVN_COMPILE_LOWER_IMPL_H
#define CVN_COMPILE_LOWER_IMPL_H

#include "compile/lower.h"
#include "compile/lower_blocks.h"
#include "compile/memory.h"

/* A graph on its way to a plan. */
typedef struct Lowering {
    cvn_graph *g;
    const KernelSet *backend;
    int n_threads;
    Arena arena;           /* what is needed only while lowering */
    bool *donated;         /* [g->n_parameters] some output goes into it */
    Liveness live;         /* of g as it is now */
    const Kernel **kernel; /* [live.n_steps], NULL: the fallback */
    AliasSets blocks;
} Lowering;

/* Inserts the copies that outputs need, and joins the blocks of values with the parameters that they go into.
   Leaves lifetimes, kernels and blocks up to date with the graph. */
int lower_outputs(Lowering *lowering, cvn_err *err);

/* The places of roots and of scratch, as they are found. */
typedef struct Places {
    BufferRef *root;    /* [n_values] by id of roots */
    Lifetime *lifetime; /* [n] */
    int *of;            /* [n_values] by id of representatives: its index in lifetime, or -1 */
    int *scratch;       /* [n_steps] index in lifetime, or -1 */
    int n;
} Places;

/* More arena than this, and a sixteenth of it, is not spent on saving syncs. */
enum { STRETCH_FREE_BYTES = 1 << 20 };

/* Lays out parameters and constants, and finds the lifetimes of everything else. */
void places_init(Lowering *lowering, Plan *plan, Places *places);

/* Plans the arena, and writes places and syncs into the steps of the plan. */
int places_choose(Lowering *lowering, Places *places, Plan *plan, cvn_err *err);

/* Where a value lies, once the step that computes it has its places. */
BufferRef places_of(const Lowering *lowering, const Places *places, const cvn_value *v);

#endif
