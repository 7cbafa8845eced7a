/* One checkpoint into one folder, from beginning to end, by the thread that calls. */
#ifndef CVN_TRAIN_CHECKPOINT_WRITE_H
#define CVN_TRAIN_CHECKPOINT_WRITE_H

#include "train/checkpoint/checkpoint.h"

/* Writes FOLDER/step-N.partial and renames it to FOLDER/step-N; what was there under that name is
 * replaced. After an error FOLDER/step-N is what it was. */
int checkpoint_write(const char *folder, const CheckpointState *state,
                     const CheckpointOptions *options, cvn_err *err);

#endif
