/* Checkpoints from one mesh to another, without devices: tensor by tensor, in the memory of one. */
#ifndef CVN_TRAIN_CHECKPOINT_RESHARD_H
#define CVN_TRAIN_CHECKPOINT_RESHARD_H

#include "train/checkpoint/checkpoint.h"

/* Writes an open checkpoint as that of a run in `folder`, which must be new or
   empty: FOLDER/checkpoints/step-N and the tokenizer, with which `caravan train
   --resume` goes on. mesh "" or NULL: whole, as of one device. What *interrupt
   ends (CVN_EINTERRUPTED, or NULL) or an error leaves nothing behind. */
int checkpoint_reshard(const Checkpoint *checkpoint, const char *folder, const char *mesh,
                       const char *layout, const volatile int *interrupt, cvn_err *err);

#endif
