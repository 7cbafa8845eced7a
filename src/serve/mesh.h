/*
 * An engine's devices when there are several: what each of them holds, and how a step runs on all.
 *
 * Every step's graph is marked by the layout, cut by the partitioner and compiled once; all devices
 * run the same plan. A device holds its shards of the weights, read from the files slice by slice,
 * and its own KV cache: all rows, and of the heads those that are its. Rows of the decode step are
 * divided over the axis "data" where their number divides by it; prefill of a row runs on all
 * devices alike, so a device has the cache of rows that it does not decode too. What goes in and
 * out (tokens, lengths, settings, results) is the same on all devices, which is why the engine
 * above, the same in every process, need not know where anything lies.
 */
#ifndef CVN_SERVE_MESH_H
#define CVN_SERVE_MESH_H

#include "cpu/mesh_devices.h"
#include "model/llama.h"
#include "serve/kv.h"
#include "serve/model.h"

typedef struct EngineMesh {
    Arena arena; /* of what is below and not memory of its own */
    MeshDevices devices;
    const char *layout;     /* its name */
    const cvn_model *model; /* borrowed */
    int n_weights;          /* parameters of the model */
    /* [n_weights] how each lies; the same in every step. NULL before the first step. */
    Sharding *weight;
    void **shard; /* [n_local * n_weights] the devices' parts of them, in block */
    char *block;  /* owned mapping of block_bytes */
    size_t block_bytes;
    double read_bytes; /* of the model's files that the weights here were made of */
    KvCache *kv;       /* [n_local]; no bytes before the first step */
    int rows;          /* of the caches */
    int64_t positions; /* of a row of the caches */
    cvn_dtype kv_dtype;
    int64_t steps; /* run so far: what a failure of a rank says */
    uint32_t used; /* a bit for each axis of the mesh by which some step divides something */
} EngineMesh;

/* A step, ready to run on the devices of this process. */
typedef struct MeshProgram {
    const Plan *plan; /* borrowed: of every device */
    int n_caches;     /* parameters after the weights */
    /* [n_local] the first of the caches' rows that the device works on, from the row asked for. */
    int64_t *first_row;
    void **param, **output; /* [n_local * parameters], [n_local * outputs] */
} MeshProgram;

/* Of the options its mesh, layout, cluster, threads and rows. With a cluster the devices are divided
   among its ranks, which must come out even. */
int engine_mesh_init(EngineMesh *m, const cvn_model *model, const cvn_engine_options *options,
                     int64_t positions, cvn_dtype kv, cvn_err *err);
void engine_mesh_free(EngineMesh *m);

/* The graph of a device from the step's whole graph g, which is changed. With the first one the
   weights are read and the caches made. Both results are the caller's to free; after an error there
   are none. */
int engine_mesh_partition(EngineMesh *m, cvn_graph *g, cvn_graph **local, PartitionReport *report,
                          cvn_err *err);

/* The tables of a compiled step. */
int engine_mesh_bind(EngineMesh *m, const Plan *plan, const PartitionReport *report, int n_caches,
                     Arena *arena, MeshProgram *p, cvn_err *err);

/* Runs it: inputs are copied from host [parameters of the plan; weights and caches
   are not looked at] to each device, those that the step changes are copied back,
   and output [outputs of the plan] is where the first device here has its results.
   `row` is the row of the caches that a step of one row is for; else 0. */
int engine_mesh_run(EngineMesh *m, MeshProgram *p, void *const *host, int row, void **output,
                    cvn_err *err);

/* Gives the memory of a row of the caches back. */
void engine_mesh_release(EngineMesh *m, int row);

/* Bytes of the caches (address space) of the devices of this process. */
size_t engine_mesh_cache_bytes(const EngineMesh *m);

#endif
