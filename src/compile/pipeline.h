/*
 * Compiling: a graph goes through a table of passes, with the verifier between them, and is lowered to a plan.
 *
 *     verify → simplify → pack weights → fuse products → decompose what the backend has no kernel for → simplify
 *     → fuse → lower
 *
 * Op by op, only the passes run that a graph cannot be lowered without: how much the others bring is then seen by
 * measuring. With a dump directory, the graph is written after each pass (graph/dump.h), and the plan.
 */
#ifndef CVN_COMPILE_PIPELINE_H
#define CVN_COMPILE_PIPELINE_H

#include "compile/plan.h"
#include "compile/schedule.h"
#include "graph/passes.h"

typedef struct CompileOptions {
    const KernelSet *backend; /* whose kernels; borrowed, must outlive the plan */
    int n_threads;            /* of the device, >= 1 */
    /* Where to write graphs and the plan, made if it is not there; NULL: nowhere. */
    const char *dump_dir;
    bool op_by_op; /* only what lowering needs: no simplification, threads meet at every step */
    bool split_attention; /* decompose attention although there is a kernel */
    bool blocking;        /* every collective is one step, during which nothing is computed */
    Link link;            /* between devices, for the order of steps; zeros: LINK_DEFAULT */
    /* How each parameter lies, or that the compiler may choose, as it may where the caller fills its memory accordingly:
       see pack.h. [n_parameters] of the graph; NULL: all as the graph has them. */
    const signed char *layout;
} CompileOptions;

/* g is left as it is. */
int compile_graph(const cvn_graph *g, const CompileOptions *options, Plan **out, cvn_err *err);

/* What the passes of this folder are told. */
typedef struct Compile {
    const CompileOptions *options;
    signed char *layout; /* [n_parameters] as the options have it, then as it is; or NULL */
    bool free_layout;    /* there is no caller who fills parameters: all as the compiler likes */
} Compile;

/* The passes of this folder that caravan opt runs too, ended by NULL; their context is a Compile. */
extern const GraphPass *const compile_passes[];

#endif
