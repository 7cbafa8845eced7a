/*
 * Passes by name, and a runner that verifies the graph after each and writes it down if asked to.
 *
 * A pass is one function, graph to graph, in a file named after it. To add one of this folder, give
 * it a row in passes.c; folders above have tables of their own of the same type, which src/cli/opt.c
 * lists.
 */
#ifndef CVN_GRAPH_PASSES_H
#define CVN_GRAPH_PASSES_H

#include "graph/graph.h"

typedef struct GraphPass {
    const char *name;  /* as in --passes */
    const char *about; /* a phrase without a full stop */
    int (*run)(cvn_graph *g, bool *changed, cvn_err *err);
} GraphPass;

/* Ended by a row without a name. */
extern const GraphPass graph_passes[];

typedef struct PassOptions {
    const char *dump; /* folder for NN-NAME.txt after each pass and 00-input.txt, or NULL */
    /* Told after each pass; may be NULL. */
    void (*report)(const GraphPass *pass, bool changed, const cvn_graph *g, void *context);
    void *context;
} PassOptions;

/* Runs passes in order and verifies the graph before the first and after each one. An error names
   the pass. options may be NULL. */
int passes_run(cvn_graph *g, const GraphPass *const *pass, int n, const PassOptions *options,
               cvn_err *err);

/* Writes the text form to FOLDER/NN-NAME.txt; makes the folder. */
int graph_dump(const cvn_graph *g, const char *folder, int number, const char *name, cvn_err *err);

#endif
