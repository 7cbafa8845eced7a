/* Calibration as convert does it: by the beginning of a text, or by one of the model's own making. */
#ifndef CVN_CLI_CALIBRATED_H
#define CVN_CLI_CALIBRATED_H

#include "calibrate/calibrate.h"

/* By n tokens. text: a file; "": the model says something itself. from: the path of the model, which is opened already. The caller closes *out,
   after an error, too. */
int calibrated_by(const char *text, int64_t n, const char *from, const IoModel *model,
                  QuantScheme scheme, int threads, const volatile int *interrupt, Calibration **out,
                  cvn_err *err);

#endif
