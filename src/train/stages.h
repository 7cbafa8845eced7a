/*
 * Training a model in stages: an axis of the mesh over which its layers are divided (model/layouts.h, "pp").
 *
 * Each stage is what a trainer of one stage is: a runtime, on the mesh that is left, with programs of its own layers, which are cut over the
 * other axes as ever. So nothing of the partitioner, the compiler and the devices knows of stages: they run other programs, at other
 * times, and share no collective. (The other way is one program for all, with layers stacked and activations permuted along the axis, as
 * TPUs have it. Here weights are a tensor for each layer and every device has a plan of its own, so that different programs cost nothing, and
 * the first and the last stage need not compute what only they have.)
 *
 * A step is a list of tasks of each stage, GRADIENT and FORWARD of a micro-batch, and channels (run/channel.h) between neighbours, from
 * device to device: activations go forward, their gradients back. A stage runs a task when what it needs has come. The order is 1F1B
 * (Narayanan et al. 2019, PipeDream; 2021, arXiv:2104.04473): a stage begins with as many micro-batches as there are stages behind it, and then
 * takes one backward for each that it takes forward, so that no more than that wait, however many micro-batches there are. Three
 * stages, five micro-batches; the last stage's forward pass is a part of its GRADIENT:
 *
 *     stage 0    F0 F1 F2 .. B0 F3 .. B1 F4 .. B2 .. B3 .. B4
 *     stage 1       F0 F1 B0 .. F2 B1 .. F3 B2 .. F4 B3 B4
 *     stage 2          B0 .. B1 .. B2 .. B3 .. B4
 *
 * What waits is what the backward pass reads of the forward pass (kept.h), by --remat more or less.
 *
 * Then: an embedding that is the head, too, is in the first and in the last stage, and both add the gradient of the other. Each stage gives the
 * sums of squares of its gradients (SQUARES), which are added in the order of the table of weights, as one device adds them; and updates its
 * weights. Gradients of a weight are added micro-batch by micro-batch, so that all is what one device computes, to the bit where that adds
 * in the same order: everywhere but in such an embedding, with several micro-batches.
 *
 * Of several processes either each has some stages, or each stage has some processes: a rank's devices are neighbours on the mesh, and the axis
 * of stages is its first.
 */
#ifndef CVN_TRAIN_STAGES_H
#define CVN_TRAIN_STAGES_H

#include "train/trainer.h"

typedef struct StageTask {
    TrainGraph kind; /* TRAIN_FORWARD or TRAIN_GRADIENT */
    int micro;       /* of which micro-batch */
} StageTask;

/* What stage s of n does in a step of so many micro-batches, in order: into task, with room for two of each. Returns how many. */
int stage_tasks(int s, int n, int micro, StageTask *task);

/* Of how many micro-batches stage s keeps what entered it, at most. */
int stage_kept(int s, int n, int micro);

/* Which stages are in this process, from *first on; returns how many. *part is the cluster of one, the caller's to free, where several processes
   share it, or NULL. */
int stages_here(Cluster *cluster, int stages, int *first, Cluster **part, cvn_err *err);

/* What a stage keeps of each micro-batch has so many slots, by the policy that its programs were made with: when they are. */
void stage_hold(Runtime *rt, int slots, RematPolicy policy);
/* Memory for it. */
int stages_allocate(Trainer *trainer, cvn_err *err);

/* Between the stages of an opened trainer. */
int stages_link(Trainer *trainer, cvn_err *err);
void stages_unlink(Trainer *trainer);

/* What a device of the first stage here has sent to other stages, and waited for: a row of the table. */
void stages_communication(const Trainer *trainer, CommTable *table);

/* The gradients of a batch in micro-batches, and the update. */
int stages_step(Trainer *trainer, const TrainBatch *batch, cvn_err *err);

/* EVALUATE of a micro-batch through all stages: sums over its tokens. */
int stages_evaluate(Trainer *trainer, const TrainBatch *batch, float sums[TRAIN_TOTALS],
                    cvn_err *err);

#endif
