/*
 * What --dump=DIR writes: 00-input.txt, the graph as it came; a numbered
 * file after each pass; and what is made of the graph at last. Where a
 * program compiles several graphs, each has a folder of its own, DIR/GRAPH.
 */
#ifndef CVN_GRAPH_DUMP_H
#define CVN_GRAPH_DUMP_H

#include "base/strbuf.h"
#include "graph/graph.h"

#include <limits.h>

typedef struct Dump {
    char folder[PATH_MAX]; /* "": nothing is written */
    int number;            /* of the next file */
} Dump;

/* Makes DIR, and in it the folder of the graph of that name
   unless it is NULL. dir may be NULL: nothing is written. */
int dump_init(Dump *dump, const char *dir, const char *graph, cvn_err *err);

/* Writes the next file, NN-WHAT.txt, and frees the text. Nothing where nothing is to be written. */
int dump_text(Dump *dump, const char *what, StrBuf *text, cvn_err *err);
int dump_graph(Dump *dump, const char *what, const cvn_graph *g, cvn_err *err);

#endif
