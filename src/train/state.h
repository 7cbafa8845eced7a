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
 * that enters products, and not saved.
 *
 * Beside them, where products are in bf16, lie the weights rounded to it (step.h). They are not saved: whoever fills
 * the weights rounds them (trainer.h).
 *
 * With the counters beside them this is all that a checkpoint holds: random numbers are counter-based, so
 * the seed is their whole state, and the data's position is the number of sequences taken.
 *
 * The list is a CheckpointState and may be given to checkpoint_save and checkpoint_restore between
 * steps. Memory is one block, allocated once, page aligned; every tensor begins at a multiple of 64 bytes.
 */
#ifndef CVN_TRAIN_STATE_H
#define CVN_TRAIN_STATE_H

#include "io/model.h"
#include "io/save_fill.h"
#include "model/lora.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"

typedef struct TrainState {
    CheckpointState saved;    /* tensors and counters; config is the caller's */
    int n_weights;            /* the first of saved.tensor: what is trained */
    int *first_slot;          /* [n_weights + 1]: index of the first slot of each weight */
    int32_t *updates;         /* data of the last tensor */
    ParamList params;         /* what is trained: the model's parameters, or the adapters */
    ParamList model;          /* the model's */
    LoraOptions lora;         /* rank 0: none */
    LoraParams adapters;      /* with LoRA */
    CheckpointTensor *frozen; /* [model.n] with LoRA, else NULL */
    /* [n_weights] copies in the type of products; no name: there is none. */
    CheckpointTensor *rounded;
    Arena arena; /* owned: names and the lists */
    void *block; /* owned mapping of `bytes`, zero at first */
    size_t bytes;
} TrainState;

typedef struct TrainStateOptions {
    OptimizerKind optimizer;
    LoraOptions lora; /* rank 0: every weight is trained */
    cvn_dtype
        compute;    /* type of what enters products, f32 or bf16: of frozen and rounded weights */
    bool elsewhere; /* the tensors have their data on a mesh: only that of the last is here */
} TrainStateOptions;

/* Bytes of the block that train_state_init would allocate. */
int train_state_size(const LlamaConfig *config, const TrainStateOptions *options, size_t *bytes,
                     cvn_err *err);

/* Allocates; everything is 0. */
int train_state_init(TrainState *state, const LlamaConfig *config, const TrainStateOptions *options,
                     cvn_err *err);

/* Safe on {0}. */
void train_state_free(TrainState *state);

/* Weights drawn as `caravan init` draws them from a seed; with LoRA the adapters. And what draws them: its context is a
   pointer to the seed. */
int train_state_random(TrainState *state, uint64_t seed, cvn_err *err);
SaveFill train_fill_random(const TrainState *state);

/* Weights of an opened and audited model whose parameters are the state's; interleaved rotary pairs are
   brought into Hugging Face's order. With LoRA they are what is frozen. */
int train_state_from_model(TrainState *state, const IoModel *model, cvn_err *err);

/* Writes the weights as a Hugging Face folder; not with LoRA (checkpoint_export.h). `tokenizer`: a file to copy
   into it, or NULL. */
int train_state_export(const TrainState *state, const LlamaConfig *config, cvn_dtype dtype,
                       const char *folder, const char *tokenizer, cvn_err *err);

#endif
