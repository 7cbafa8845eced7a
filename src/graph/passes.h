/*
 * Passes, and the one way to run them: the graph is verified and, if
 * asked to, written down before the first and after each. `caravan opt`
 * and the compiler (src/compile/pipeline.h) both run theirs by it.
 *
 * A pass is one function, graph to graph, in a file named after it. To
 * add one of this folder, give it a row in passes.c; folders above have
 * tables of their own of the same type, which src/cli/opt.c lists.
 */
#ifndef CVN_GRAPH_PASSES_H
#define CVN_GRAPH_PASSES_H

#include "graph/dump.h"
#include "graph/graph.h"

/* Changes g and says whether it did. It leaves nothing for itself to do: where it has run, and no
   other pass has changed the graph since, it is not run again. context is that of PassOptions. */
typedef int PassFn(cvn_graph *g, const void *context, bool *changed, cvn_err *err);

typedef struct GraphPass {
    const char *name;  /* as in --passes, and of its dump */
    const char *about; /* a phrase without a full stop */
    PassFn *run;
} GraphPass;

extern const GraphPass pass_simplify;

/* Ended by NULL. */
extern const GraphPass *const graph_passes[];

typedef struct PassOptions {
    const void *context; /* what the passes are told; NULL where they need nothing */
    Dump *dump;          /* where the graph is written, or NULL */
    /* Told after each pass; may be NULL. */
    void (*report)(const GraphPass *pass, bool changed, const cvn_graph *g);
} PassOptions;

/* Runs n passes in order. An error names the pass. options may be NULL. */
int passes_run(cvn_graph *g, const GraphPass *const *pass, int n, const PassOptions *options,
               cvn_err *err);

#endif
