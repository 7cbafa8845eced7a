/*
 * Running graphs on a mesh of devices: build a graph on whole shapes (caravan/graph.h), mark how a few values lie on the
 * mesh, and the compiler makes the program that every device runs, with the collectives between them.
 *
 *     cvn_mesh *mesh = cvn_mesh_new("data=2,model=2", NULL, &err);          4 devices
 *     cvn_mark_sharding(g, h, &(cvn_spec){.rank = 2, .dim = {{1, {"data"}}, {1, {"model"}}}});
 *     cvn_program *program = cvn_compile(mesh, g, &err);
 *     cvn_run(program, (void *[]){x, w}, (void *[]){y}, &err);              whole arrays of the host
 *
 * examples/mlp.c is a whole program. Errors as everywhere (caravan/error.h); err may be NULL. Where a function is given
 * NULL for what an earlier one did not make, it fails, and the earlier error stays.
 *
 * Arrays of the host are dense, row-major, cvn_type_bytes of the type of the parameter or output in the graph, and aligned
 * as malloc does it. A mesh with all of its programs and arrays is used by one thread at a time.
 */
#ifndef CARAVAN_RUN_H
#define CARAVAN_RUN_H

#include "caravan/graph.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- graphs ---- */

/* Appends the gradients of `loss`, a scalar of floats, with respect to n values of floats: out[i] has the type of wrt[i],
   and is 0 where the loss does not depend on it. CVN_EUNSUPPORTED or CVN_EINVAL, naming the operation, where there is no
   gradient; the graph keeps that error. */
int cvn_gradient(cvn_graph *g, cvn_value *loss, int n, cvn_value *const *wrt, cvn_value **out,
                 cvn_err *err);

/* What a graph takes and gives: parameters and outputs in order, from 0. Values and names are the graph's. */
int cvn_graph_parameters(const cvn_graph *g);
cvn_value *cvn_graph_parameter(const cvn_graph *g, int i);
const char *cvn_graph_parameter_name(const cvn_graph *g, int i);
int cvn_graph_outputs(const cvn_graph *g);
cvn_value *cvn_graph_output(const cvn_graph *g, int i);
/* The parameter whose memory output i is computed into, -1 where there is none. */
int cvn_graph_output_into(const cvn_graph *g, int i);

/* A graph from its text (docs/GRAPH.md), n bytes. name: what errors call the text, such as its file. The caller frees it with
   cvn_graph_free; NULL with *err set, which says the line and the column. */
cvn_graph *cvn_graph_parse(const char *text, size_t n, const char *name, cvn_err *err);

/* The graph that a module in StableHLO means, n bytes of MLIR text as JAX prints it (docs/STABLEHLO.md). Its parameters are the
   arguments of its function "main". As above; an operation that graphs do not have is CVN_EFORMAT, with its name and line. */
cvn_graph *cvn_graph_from_stablehlo(const char *text, size_t n, const char *name, cvn_err *err);

/* A graph in text (docs/GRAPH.md), and as a StableHLO module for as many devices as its collectives name. malloc'ed:
   the caller frees it. NULL with *err set, as for a graph that holds an error of building. */
char *cvn_graph_print(const cvn_graph *g, cvn_err *err);
char *cvn_graph_stablehlo(const cvn_graph *g, cvn_err *err);

/* The graph that each device of a mesh, "data=2,model=2", runs: the shapes of its shards, and collectives. No devices are
   needed to make it. The caller frees it with cvn_graph_free; NULL with *err set. */
cvn_graph *cvn_partition(const cvn_graph *g, const char *mesh, cvn_err *err);

/* ---- meshes ---- */

typedef struct cvn_mesh cvn_mesh;
typedef struct cvn_program cvn_program;
typedef struct cvn_array cvn_array;

/* All 0: the defaults. */
typedef struct cvn_mesh_options {
    int threads; /* of each device; 0: the cores of this machine, divided among the devices */
    const char *backend; /* the kind of devices: "cpu", "tpu", "cuda", "pjrt:PATH"; NULL: "cpu" */
    /* The processes that it spans (caravan/ranks.h), borrowed; NULL: this one. */
    struct cvn_cluster *cluster;
} cvn_mesh_options;

/* The devices of "data=2,model=2"; of "" or NULL a single one. options: NULL for the defaults. Where a mesh spans several
   processes, all of them make the same calls, in the same order, with the same arrays of the host.
   NULL with *err set: CVN_EINVAL for what is no mesh or no kind of devices, CVN_EMEM. */
cvn_mesh *cvn_mesh_new(const char *spec, const cvn_mesh_options *options, cvn_err *err);
/* After its programs and arrays. NULL is allowed. */
void cvn_mesh_free(cvn_mesh *mesh);
int cvn_mesh_devices(const cvn_mesh *mesh);
int cvn_mesh_threads(const cvn_mesh *mesh); /* of each device */

/* ---- programs ---- */

/* Simplifies, spreads the marks, cuts and compiles the graph, which is copied. Marks name axes of the mesh; on a mesh
   without axes they count for nothing. Sizes need not be divisible by what splits them. NULL with *err set: what
   cvn_graph_check says, CVN_EINVAL for graphs and marks that are not legal, CVN_EUNSUPPORTED for collectives, CVN_EMEM.
   Compiled code stays with the mesh: the same graph is compiled once. */
cvn_program *cvn_compile(cvn_mesh *mesh, const cvn_graph *g, cvn_err *err);
/* NULL is allowed. */
void cvn_program_free(cvn_program *program);

/* Runs it and waits. inputs [parameters of the graph]: arrays of the host, read; those that an output is computed into
   (cvn_output_into) are written, so that a loop just calls cvn_run again. outputs [outputs of the graph]: each is written
   whole; NULL: it is not wanted, as is seldom that of an output computed into a parameter. outputs may be NULL. */
int cvn_run(cvn_program *program, void *const *inputs, void *const *outputs, cvn_err *err);

/* ---- arrays: parameters that stay on the devices from run to run ---- */

/* A new array, of which nothing is known yet. NULL with *err set when memory cannot be had. */
cvn_array *cvn_array_new(cvn_mesh *mesh, cvn_err *err);
/* No program that takes it may be run any more. NULL is allowed. */
void cvn_array_free(cvn_array *array);

/* As cvn_compile, where parameter i is arrays[i] in every run (NULL: it is an input) and cvn_run does not look at
   inputs[i]. The first program that takes an array says its type and how it lies on the mesh; programs compiled later are
   cut to fit, whatever they mark. It holds zeros, and then what was written to it, or computed into the parameter.
   CVN_ESHAPE where its type is another one already, CVN_EINVAL for an array that is given twice or is of another mesh,
   CVN_EUNSUPPORTED for i4. */
cvn_program *cvn_compile_arrays(cvn_mesh *mesh, const cvn_graph *g, cvn_array *const *arrays,
                                cvn_err *err);

/* Fills an array that some program takes from an array of the host, and reads it back. */
int cvn_array_write(cvn_array *array, const void *data, cvn_err *err);
int cvn_array_read(cvn_array *array, void *data, cvn_err *err);

/* Gives the elements first[d] … first[d] + count[d] - 1 of every dimension d, dense and row-major. Called from several
   threads at once. Returns 0, or a negative code with *err filled. */
typedef int cvn_fill_fn(void *context, const int64_t *first, const int64_t *count, void *out,
                        cvn_err *err);

/* Fills an array part by part, as devices need it: nothing of its whole size is ever made. */
int cvn_array_fill(cvn_array *array, cvn_fill_fn *fill, void *context, cvn_err *err);

#ifdef __cplusplus
}
#endif
#endif
