/*
 * A checkpoint as a Hugging Face folder of its own. A checkpoint's folder is one already; exporting
 * verifies it, brings the weights into another type, and leaves the optimizer behind. A checkpoint of
 * adapters (LoRA) becomes a PEFT folder or, merged into the model that it adapts, a model.
 */
#ifndef CVN_TRAIN_CHECKPOINT_EXPORT_H
#define CVN_TRAIN_CHECKPOINT_EXPORT_H

#include "io/save.h"
#include "train/checkpoint/checkpoint.h"

/* Opens a checkpoint by any of its names: the folder of a run (its newest whole one, or the one of `step`
 * when that is not negative) or the checkpoint's own folder. */
int checkpoint_find(Checkpoint *checkpoint, const char *path, int64_t step, CheckpointWarn *warn,
                    void *context, cvn_err *err);

/* Writes the weights of an open checkpoint to `folder`. The tokenizer of the checkpoint is copied where
 * options->tokenizer is NULL. */
int checkpoint_export(const Checkpoint *checkpoint, const char *folder, const SaveOptions *options,
                      cvn_err *err);

/* Whether what it holds are adapters. */
bool checkpoint_is_lora(const Checkpoint *checkpoint);

/* Adapters as a PEFT folder, as they are (f32). */
int checkpoint_export_adapter(const Checkpoint *checkpoint, const char *folder, bool force,
                              cvn_err *err);

/* Adapters merged into their model, which is found by the path that the checkpoint has, or by `base`. */
int checkpoint_export_merged(const Checkpoint *checkpoint, const char *base, const char *folder,
                             const SaveOptions *options, cvn_err *err);

/* From one mesh to another, without devices, tensor by tensor in the memory of one: writes an open checkpoint as that of
 * a run in `folder`, which must be new or empty: FOLDER/checkpoints/step-N and the tokenizer, with which `caravan train
 * --resume` goes on. mesh "" or NULL: whole, as of one device. What *interrupt ends (CVN_EINTERRUPTED, or NULL) or an
 * error leaves nothing behind. */
int checkpoint_reshard(const Checkpoint *checkpoint, const char *folder, const char *mesh,
                       const char *layout, const volatile int *interrupt, cvn_err *err);

/* The tokenizer's file in a checkpoint, its path in the arena; NULL: it has none. And a copy of it, with what stands
 * beside it. */
const char *checkpoint_tokenizer(const Checkpoint *checkpoint, Arena *arena);
int checkpoint_copy_tokenizer(const Checkpoint *checkpoint, const char *folder, cvn_err *err);

#endif
