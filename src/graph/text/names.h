/*
 * How values are called in text. A value that has a name keeps it; those that share one are told
 * apart by a number behind it (%x, %x.1); the others go by their number in the order of the text.
 * So a graph which was printed and read prints as the same text.
 */
#ifndef CVN_GRAPH_TEXT_NAMES_H
#define CVN_GRAPH_TEXT_NAMES_H

#include "graph/graph.h"

/* [n_values] by id, without the %, in the arena. given [n_parameters]: those of the parameters, each once; or NULL. */
char **names_choose(const cvn_graph *g, const char *const *given, Arena *arena);

#endif
