/* A checkpoint as export and reshard are told it: RUN, or the folder of one of its checkpoints, and --step. */
#ifndef CVN_CLI_FIND_CHECKPOINT_H
#define CVN_CLI_FIND_CHECKPOINT_H

#include "cli/options.h"
#include "train/checkpoint/export.h"

extern const Option option_step; /* --step */

/* Opens it, by checkpoint_find; a damaged one that is passed over is warned of. */
int find_checkpoint(Checkpoint *checkpoint, const char *run, const Value *step, cvn_err *err);

#endif
