#include "cli/find_checkpoint.h"

#include "base/file.h"

#include <stdio.h>

const Option option_step = {
    "step",       .letter = 's', .kind = ARG_INT,
    .high = 1e15, .value = "N",  .help = "the checkpoint of that step, else the newest whole one"};

static void warn(void *context, const char *sentence)
{
    (void)context;
    fprintf(stderr, "caravan: warning: %s; the checkpoint before it is looked at\n", sentence);
}

int find_checkpoint(Checkpoint *checkpoint, const char *run, const Value *step, cvn_err *err)
{
    if (!file_exists(run))
        return err_set(err, CVN_EIO, "there is no folder '%s'", run);
    return checkpoint_find(checkpoint, run, step->given ? step->integer : -1, warn, NULL, err);
}
