/* A text by a model in training, for its report. */
#ifndef CVN_CLI_TRAIN_SAMPLE_H
#define CVN_CLI_TRAIN_SAMPLE_H

#include "base/err.h"

/* Opens the folder and goes on from `prompt`, by at most 200 tokens, always with the same seed. *text is
 * malloc'ed. `stop` is looked at between tokens. */
int train_sample(const char *folder, const char *prompt, int threads, const volatile int *stop,
                 char **text, cvn_err *err);

#endif
