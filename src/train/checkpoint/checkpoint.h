/*
 * Checkpoints: everything that training needs to go on exactly, on the disk.
 *
 *   RUN/checkpoints/
 *     lock                                 held by the process that trains; empty
 *     step-00001000/
 *       model.safetensors                  weights, f32, under Hugging Face's names; above file_bytes
 *                                          model-0000N-of-0000M.safetensors and an index of them
 *       optimizer.safetensors              tensors whose name begins with "optimizer."; split likewise
 *       config.json, generation_config.json, the tokenizer: so that this folder is a Hugging Face
 *                                          folder, which any program loads as it is; with LoRA
 *                                          adapter_model.safetensors and adapter_config.json, and it
 *                                          is a PEFT folder
 *       manifest.json                      counters, the run's options, sizes and checksums (manifest.h)
 *     step-00002000.partial/               being written, or left behind by a process that died
 *     step-00003000.aside/                 of a later step than training went on from; nobody's
 *
 * A checkpoint is written as step-N.partial, every file and the folder flushed to the disk, the
 * manifest last, and then renamed; so a folder named step-N is whole, whenever the power fails. Old
 * ones are deleted only after the new one is there, under the name step-N.partial again. There is no
 * file that says which is the newest: it is found by looking, its sizes and checksums are verified, and
 * a damaged one is passed over for the one before it.
 *
 * Writing goes on in the background. checkpoint_save copies the state (memory: the size of the state,
 * from the call until the writing ends, or none: see copy_limit) and a thread writes the copy. At most
 * one is in flight: a second save waits for the first. Why a copy, not fork() and copy-on-write: the
 * very next step touches every page of the state, so fork would copy as much, page fault by page fault
 * in the middle of a step, and a forked child of a process with threads may not even allocate.
 */
#ifndef CVN_TRAIN_CHECKPOINT_CHECKPOINT_H
#define CVN_TRAIN_CHECKPOINT_CHECKPOINT_H

#include "base/file.h"
#include "caravan/graph.h"
#include "comm/cluster.h"
#include "io/tensor.h"
#include "model/lora.h"
#include "model/params.h"
#include "train/checkpoint/manifest.h"

typedef struct CheckpointTensor {
    const char *name; /* in the file */
    cvn_type type;    /* may keep axes apart that Hugging Face flattens; bytes are what count */
    void *data;       /* row-major */
} CheckpointTensor;

typedef struct CheckpointShards CheckpointShards; /* shards.h */
typedef struct CheckpointWholes CheckpointWholes;

/* Fills the array of a box of a tensor. */
struct BoxArray;
typedef int (*CheckpointRead)(void *context, int tensor, const struct BoxArray *to, void *target,
                              cvn_err *err);

/* What is saved and restored; borrowed. */
typedef struct CheckpointState {
    CheckpointTensor *tensor; /* [n] */
    int n;
    int64_t step;       /* steps done */
    int64_t tokens;     /* tokens seen */
    int64_t position;   /* rows of data taken */
    uint64_t seed;      /* of the run's random numbers */
    const char *config; /* JSON object as text, or NULL */
    /* How the tensors lie on a mesh, and their slices; NULL: data is whole. */
    CheckpointShards *shards;
    /* Gives the data of tensors and slices that have NULL for it; not in saves in the
       background. */
    CheckpointRead read;
    void *context; /* of read */
} CheckpointState;

typedef struct CheckpointOptions {
    int keep_last;       /* newest checkpoints to keep; 0 keeps all */
    int64_t keep_every;  /* also keep those whose step is a multiple; 0: none */
    uint64_t file_bytes; /* most bytes of tensors in a file; 0: 5e9 */
    uint64_t copy_limit; /* a state above it is written before checkpoint_save returns, without
                                  a copy; UINT64_MAX: always in the background */
    const Model *config; /* for config.json and the shapes in files, or NULL; borrowed */
    /* What is trained are adapters: the checkpoint is a PEFT folder, with adapter_model.safetensors and
       adapter_config.json in place of the model's; or NULL; borrowed. */
    const LoraOptions *lora;
    const char *base;      /* with lora: path of the model that they adapt, or NULL; borrowed */
    const char *tokenizer; /* file copied into each checkpoint, or NULL; borrowed */
    /* Processes that write together, all calling the same functions; the first one does what is not shards; or NULL;
       borrowed. */
    Cluster *cluster;
    bool locked; /* the caller holds the lock of the run (checkpoint_lock) */
} CheckpointOptions;

/* Locks RUN/checkpoints, which is there, for this process: *lock is a file descriptor whose closing unlocks it, or -1
 * after an error, which says where it is so that another process trains into the run. */
int checkpoint_lock(const char *run, int *lock, cvn_err *err);

/* Writes one checkpoint from beginning to end: FOLDER/step-N.partial, which is renamed to FOLDER/step-N; what was there
 * under that name is replaced. After an error FOLDER/step-N is what it was. */
int checkpoint_write(const char *folder, const CheckpointState *state,
                     const CheckpointOptions *options, cvn_err *err);

/* Writes them in the background. */
typedef struct CheckpointWriter CheckpointWriter;

/* Takes RUN/checkpoints for this process unless the caller has (another that trains into it is an error), makes it if
 * need be, removes what dead processes left half done, and sets aside checkpoints of steps after `step`,
 * the one that training goes on from. NULL after an error. */
CheckpointWriter *checkpoint_writer_new(const char *run, int64_t step,
                                        const CheckpointOptions *options, cvn_err *err);

/* Saves the state as it is now; the caller may change it as soon as this returns. An error may be that
 * of the save before, which this one waited for; then nothing new was begun. Whatever fails, the
 * checkpoints that were there are still there, and another save may be tried. */
int checkpoint_save(CheckpointWriter *writer, const CheckpointState *state, cvn_err *err);

/* What a checkpoint of that state takes on the disk, nearly: of all processes together. */
uint64_t checkpoint_bytes(const CheckpointState *state);

/* Whether a save has failed since this was last asked: to be called after every step. Never waits. Where
 * processes write together it says nothing, for it would not say it to all of them at the same step.
 * *saved (may be NULL) gets the step of the newest checkpoint that this writer completed, or -1. */
int checkpoint_poll(CheckpointWriter *writer, int64_t *saved, cvn_err *err);

/* Waits for the save in flight, if there is one; its error, if it failed. */
int checkpoint_wait(CheckpointWriter *writer, cvn_err *err);

/* Waits and frees. NULL is allowed. */
void checkpoint_writer_free(CheckpointWriter *writer);

/* A checkpoint opened for reading: its manifest and its tensors, mapped. */
typedef struct Checkpoint {
    Arena arena;  /* owned: all below but the mappings */
    char *folder; /* RUN/checkpoints/step-N */
    Manifest manifest;
    CheckpointWholes *wholes; /* its tensors, made up of the slices in its files; the arena's */
    FileMap *map;             /* [n_maps], owned mappings */
    size_t n_maps;
} Checkpoint;

/* Opens one folder and verifies every size and checksum (which reads all of it, once). */
int checkpoint_open(Checkpoint *checkpoint, const char *folder, cvn_err *err);

/* One sentence about a checkpoint that was passed over. */
typedef void CheckpointWarn(void *context, const char *sentence);

/* Opens the newest whole checkpoint of a run; each one that is damaged is told to `warn` (may be NULL). That there is
 * none is an error. All processes of a cluster (NULL: this one alone) look at the checkpoints that the first one sees,
 * and share the verifying of their checksums. */
int checkpoint_open_latest(Checkpoint *checkpoint, const char *run, Cluster *cluster,
                           CheckpointWarn *warn, void *context, cvn_err *err);

/* Puts a checkpoint back into a state of the same names, types and sizes, whose data may be elsewhere: first that
 * everything fits, and the counters are copied (`state->config` is left as it is); then what of a tensor lies in `to`,
 * wherever the checkpoint has it. */
int checkpoint_restore_counters(const Checkpoint *checkpoint, CheckpointState *state, cvn_err *err);
void checkpoint_restore_box(const Checkpoint *checkpoint, const CheckpointTensor *tensor,
                            const struct BoxArray *to, void *target);

/* Safe after a failed open and on {0}. */
void checkpoint_close(Checkpoint *checkpoint);
void checkpoint_release(void *checkpoint); /* the same as a cleanup (base/protect.h) */

#endif
