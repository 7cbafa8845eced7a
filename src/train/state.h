/*
 * The state of training: everything that changes from step to step, as one flat list of tensors.
 *
 *   tensor[0 … n_weights)     master weights, f32, in the order of the parameter table, under their
 *                             Hugging Face names
 *   then, weight by weight    what the optimizer keeps: "optimizer.<slot>.<name of the weight>"
 *   the last one              "optimizer.updates" i32 [1]: updates made; steps that were skipped because
 *                             something was not finite do not count
 *
 * With LoRA the adapters (lora.h) stand in place of the weights, which are frozen: kept apart, in the type
 * that enters products, and not saved. Nor are the rounded copies of weights (step.h), which whoever fills the
 * weights fills with them.
 *
 * With the counters beside them this is all that a checkpoint holds: random numbers are counter-based, so
 * the seed is their whole state, and the data's position is the number of sequences taken.
 *
 * The list is a CheckpointState, and is saved between steps. Its tensors are buffers of a runtime (run/runtime.h) by their
 * bindings; the counter of updates is memory of the host.
 */
#ifndef CVN_TRAIN_STATE_H
#define CVN_TRAIN_STATE_H

#include "model/lora.h"
#include "run/runtime.h"
#include "train/checkpoint/checkpoint.h"
#include "train/optimizer.h"

typedef struct TrainState {
    CheckpointState saved; /* tensors and counters; config is the caller's */
    Binding *binding;      /* [saved.n] which buffer a tensor is; of the last one ROLE_NONE */
    int n_weights;         /* the first of saved.tensor: what is trained */
    int32_t *updates;      /* data of the last tensor */
    ParamList params;      /* what is trained: the model's parameters, or the adapters */
    ParamList model;       /* the model's */
    LoraParams adapters;   /* with LoRA */
    size_t bytes;          /* of it on one device, with rounded copies and what is frozen */
    /* [n_fetched] tensors whose back end gives no address: copies of them */
    struct Fetched *fetched;
    int n_fetched;
    Arena arena; /* owned: names and the lists */
} TrainState;

typedef struct TrainStateOptions {
    OptimizerOptions optimizer;
    LoraOptions lora;  /* rank 0: every weight is trained */
    cvn_dtype compute; /* of what enters products, f32 or bf16: of frozen and rounded weights */
} TrainStateOptions;

/* Which tensors there are; but for the counter of updates they have no data. */
int train_state_init(TrainState *state, const Model *config, const TrainStateOptions *options,
                     cvn_err *err);

/* Safe on {0}. */
void train_state_free(TrainState *state);

/* The stages of a model that are in this process, from number `first` on: their runtimes. */
typedef struct StateStages {
    const Runtime *const *rt; /* [n] */
    int n, first, all;
} StateStages;

/* Where the tensors lie: whole, at their addresses, where there is one device; else `saved` gets its shards, those of
   this process, stage by stage. Of runtimes that only describe they have no data and are read when they are written. */
int train_state_place(TrainState *state, const StateStages *stages, cvn_err *err);

/* Before it is saved: brings what lies where the host cannot address it. */
int train_state_fetch(TrainState *state, cvn_err *err);

#endif
