/* Values of parameters and results of a graph, by name: from and to files, and random ones. */
#ifndef CVN_CLI_OPT_VALUES_H
#define CVN_CLI_OPT_VALUES_H

#include "graph/graph.h"

/* Values of the parameters whose names are in a safetensors file, into data[n_parameters] (malloc'ed, the caller's); those
   that are not stay NULL. Every tensor of the file must be a parameter of its type, but results of the graph are passed
   over, which may have been written beside an updated parameter. */
int inputs_read(const cvn_graph *g, const char *path, void **data, cvn_err *err);

/* Random values for those that are NULL, a function of the seed and the parameter's name: floats of mean 0 and variance 1,
   bools, and integers in 0 … 15; or, where they index something, below its size. */
int inputs_random(const cvn_graph *g, uint64_t seed, void **data, cvn_err *err);

enum { RESULT_NAME = 256 };

/* What output i is called, into text [RESULT_NAME], and returns it: as the parameter that it goes into, as its value, or
   "result.N" where that is nameless or another is called so. */
const char *result_name(const cvn_graph *g, int i, char *text);

/* Writes the results, data[n_outputs], by their names. */
int results_write(const cvn_graph *g, const char *path, void *const *data, cvn_err *err);

#endif
