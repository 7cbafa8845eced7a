/*
 * From a graph to a plan: chooses a kernel for every operation, decides which values share memory, gives the
 * rest their places in the arena and puts the syncs between steps.
 *
 * The graph must be verified, and without composites that the backend has no kernel for.
 */
#ifndef CVN_COMPILE_LOWER_H
#define CVN_COMPILE_LOWER_H

#include "compile/plan.h"
#include "compile/schedule.h"

/* The kernel of an operation: the backend's, or, of what only lowering makes, our own. NULL: the backend's fallback. */
const Kernel *lower_kernel(const KernelSet *backend, const Op *op);

/* Lowers g, which is taken over whatever the result: the plan owns it, or it is freed. With a link collectives are
   scheduled; NULL: each is one step. */
int lower_graph(cvn_graph *g, const KernelSet *backend, int n_threads, const Link *link, Plan **out,
                cvn_err *err);

/* Sets `sync` of every step: see plan.h. Two steps of thread 0 alone never need one between them. */
void lower_syncs(Plan *plan, Arena *scratch);

#endif
