/* What a chip's own compiler says of a step that was simulated (`--check`). */
#ifndef CVN_CLI_CHECK_COMPILED_H
#define CVN_CLI_CHECK_COMPILED_H

#include "sim/plan.h"

typedef struct CheckedStep {
    double peak;    /* bytes of a device */
    double cycles;  /* estimated; 0: it does not say */
    double seconds; /* that they take; 0: likewise */
    double took;    /* seconds of compiling */
} CheckedStep;

/* Compiles what ask says, as `caravan compile` does, for n_devices chips by the plugin that `device` names ("tpu",
   "pjrt:/usr/lib/libtpu.so"). */
int check_compiled(const SimAsk *ask, const char *device, int n_devices, CheckedStep *out,
                   cvn_err *err);

#endif
