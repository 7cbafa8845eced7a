/* caravan run, and opt --run: carries a graph out, on given or random inputs. */
#ifndef CVN_CLI_OPT_RUN_H
#define CVN_CLI_OPT_RUN_H

#include "graph/graph.h"

typedef struct OptRun {
    const char *inputs; /* safetensors with values of parameters, by name; NULL: none is given */
    uint64_t seed;      /* of the others */
    const char *mesh;   /* NULL: one device, and marks count for nothing */
    bool check;         /* hold the results to the interpreter's */
    const char *out;    /* results are written there, as safetensors; NULL: they are printed */
    bool quiet;         /* does not say that the check was passed */
} OptRun;

/* The graph in a file, or on standard input ("-"): in text, or a module in StableHLO, which it looks like. The caller frees it. */
int opt_open(const char *path, cvn_graph **g, cvn_err *err);

int opt_run(const cvn_graph *g, const OptRun *how, cvn_err *err);

#endif
