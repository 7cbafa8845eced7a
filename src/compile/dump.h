/*
 * What --dump=DIR writes: DIR/GRAPH/00-input.txt, the graph as it came; one numbered file after each pass; and
 * the plan as the last. A folder per graph, because a program compiles several.
 */
#ifndef CVN_COMPILE_DUMP_H
#define CVN_COMPILE_DUMP_H

#include "compile/plan.h"

#include <limits.h>

typedef struct Dump {
    char folder[PATH_MAX]; /* "": nothing is written */
    int number;            /* of the next file */
} Dump;

/* Makes the folder, and the one it is in; dir may be NULL. */
int dump_init(Dump *dump, const char *dir, const char *graph, cvn_err *err);

int dump_graph(Dump *dump, const char *pass, const cvn_graph *g, cvn_err *err);
int dump_plan(Dump *dump, const Plan *plan, cvn_err *err);

#endif
