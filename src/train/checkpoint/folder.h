/* The names in RUN/checkpoints, and removing what is there. */
#ifndef CVN_TRAIN_CHECKPOINT_FOLDER_H
#define CVN_TRAIN_CHECKPOINT_FOLDER_H

#include "base/err.h"
#include "base/file.h"

#include <stddef.h>
#include <stdint.h>

#define CHECKPOINT_PARTIAL ".partial"
#define CHECKPOINT_ASIDE ".aside"
#define CHECKPOINT_OPTIMIZER "optimizer."

/* "RUN/checkpoints". */
FilePath checkpoint_folder(const char *run);

/* "FOLDER/step-00001000SUFFIX". */
FilePath checkpoint_path(const char *folder, int64_t step, const char *suffix);

/* The step of "step-00001000"; -1 for any other name. */
int64_t checkpoint_step_of(const char *name);

/* Renames every step-N with N > step to step-N.aside (removing one set aside before). */
int checkpoint_set_aside(const char *folder, int64_t step, cvn_err *err);

/* Deletes old checkpoints, and first what an earlier deletion or save left half done: keeps the newest `keep_last` of
 * those up to `step` (0: all) and those whose step is a multiple of keep_every. */
int checkpoint_prune(const char *folder, int64_t step, int keep_last, int64_t keep_every,
                     cvn_err *err);

/* Steps of the folders named step-N in RUN/checkpoints, ascending, on the heap (*steps is NULL when there are none).
 * Only names are looked at. A missing folder holds none. */
int checkpoint_steps(const char *folder, int64_t **steps, size_t *n, cvn_err *err);

#endif
