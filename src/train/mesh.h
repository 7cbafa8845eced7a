/*
 * Training on several devices: where the tensors of the state lie, and how a step runs on all.
 *
 * The graphs are those of one device (step.h). Each is marked by the layout, cut by the partitioner
 * and compiled once; all devices run the same plan. The first graph decides how the state lies; in
 * those that follow, what is known is marked. Slots of the optimizer and sums of gradients are not
 * marked but follow their weights by propagation.
 *
 *     resident    0 … n_state - 1         the state: weights, slots (state.h), in its order; with LoRA
 *                                         of the adapters
 *                 n_state … n_kept - 1    in the type that enters products: with LoRA the frozen
 *                                         weights, else the weights that have rounded copies
 *                 n_kept … n - 1          with micro-batches: sums of the gradients, and "total"
 *     inputs      tokens, targets         every device gets its part of the batch
 *                 scalars                 the same on all
 *
 * No process ever holds a tensor whole: weights are drawn, or read, shard by shard. What the report
 * says (loss, norm) is the same on all devices, so every process of a cluster goes the same way.
 */
#ifndef CVN_TRAIN_MESH_H
#define CVN_TRAIN_MESH_H

#include "cpu/mesh_devices.h"
#include "io/save_fill.h"
#include "shard/region.h"
#include "train/checkpoint_shards.h"
#include "train/state.h"

/* A tensor that stays on the devices from step to step. */
typedef struct MeshTensor {
    cvn_type type;     /* of the whole */
    bool known;        /* a graph has said how it lies: what follows holds */
    Sharding sharding; /* on the mesh */
    cvn_type local;    /* of a shard, with its padding */
} MeshTensor;

typedef struct TrainMesh {
    Arena arena; /* of all that is no memory of its own */
    MeshDevices devices;
    const char *spec, *layout; /* as given */
    LlamaConfig config;
    int n_state;        /* resident tensors of the state */
    int n_kept;         /* … and those that are frozen or rounded */
    int *rounded;       /* [weights]: index of a weight's rounded copy, or -1 */
    int n;              /* … and sums: all of them */
    MeshTensor *tensor; /* [n] */
    Map by_name;        /* name in graphs -> index in tensor */
    void **data;        /* [n_local * n]: the shards of each device, in block */
    char *block;        /* owned mapping of block_bytes */
    size_t block_bytes;
} TrainMesh;

/* A step, ready to run on the devices of this process. */
typedef struct MeshStep {
    PartitionReport report; /* owned */
    void **param, **output; /* [n_local * parameters], [n_local * outputs] */
} MeshStep;

/* What a mesh is made for. All is borrowed until the call
   returns, and the cluster until the mesh is closed. */
typedef struct TrainMeshOptions {
    const LlamaConfig *config;
    const TrainState *state; /* which tensors there are; their memory is not looked at */
    OptimizerKind optimizer;
    bool accumulates;   /* sums of gradients stay on the devices too */
    const char *mesh;   /* "data=2,model=2" */
    const char *layout; /* shard/layouts.h; NULL: "2d" */
    Cluster *cluster;   /* the other processes; NULL: all devices are here */
    int threads;        /* per device; 0: this machine's, divided among them */
} TrainMeshOptions;

/* On an error, too, *m is to be closed. */
int train_mesh_open(TrainMesh *m, const TrainMeshOptions *options, cvn_err *err);

/* The same, of which nothing is run, to see how things would lie on it: no cluster, no threads. */
int train_mesh_describe(TrainMesh *m, const TrainMeshOptions *options, cvn_err *err);

/* Safe on {0}. */
void train_mesh_close(TrainMesh *m);

/* The graph of a device, from a whole one, which is changed. The report in *step is to be freed by
   train_mesh_step_free. */
int train_mesh_cut(TrainMesh *m, cvn_graph *g, MeshStep *step, cvn_graph **local, cvn_err *err);
void train_mesh_step_free(MeshStep *step);

/* Bytes of the shards of this process, of what is kept or of the sums; 0 before a graph was cut. */
size_t train_mesh_state_bytes(const TrainMesh *m);
size_t train_mesh_sum_bytes(const TrainMesh *m);

/* Takes the memory of the shards, all 0, and of the devices' arenas. */
int train_mesh_allocate(TrainMesh *m, size_t arena_bytes, cvn_err *err);

/* The tables of a compiled step. */
int train_mesh_bind(TrainMesh *m, const Plan *plan, MeshStep *step, Arena *arena, cvn_err *err);

/* Which of the rows that a step takes at once the devices of this process need: need[rows], of
   "tokens", "targets" and "starts" together. */
void train_mesh_rows(const TrainMesh *m, const Plan *plan, const MeshStep *step, bool *need,
                     int64_t rows);

/* Runs it: each device gets its part of host[i] where the plan's parameter i does not stay there;
   output [outputs of the plan] is where the first device here has its results. */
int train_mesh_run(TrainMesh *m, const Plan *plan, MeshStep *step, void *const *host, void **output,
                   cvn_err *err);

/* The sums of gradients are 0 again. */
void train_mesh_clear_sums(TrainMesh *m);

/* Shard by shard, from what gives any elements of them: what is trained, the state's params; with
   LoRA what is frozen, its model. */
int train_mesh_fill(TrainMesh *m, const ParamList *params, SaveFill fill, void *context,
                    cvn_err *err);
int train_mesh_fill_frozen(TrainMesh *m, const ParamList *model, SaveFill fill, void *context,
                           cvn_err *err);

/* Where device d of this process has weight i and its
   rounded copy; returns how many elements the shard has. */
int64_t train_mesh_rounded(const TrainMesh *m, int d, int i, const float **weight,
                           uint16_t **rounded);

/* What this process writes of the state, until the mesh is closed. */
int train_mesh_shards(TrainMesh *m, const CheckpointState *state, CheckpointShards **shards,
                      cvn_err *err);

/* Every shard from a checkpoint, whatever mesh or device wrote it; state gets its counters. */
int train_mesh_restore(TrainMesh *m, const Checkpoint *checkpoint, CheckpointState *state,
                       cvn_err *err);

#endif
