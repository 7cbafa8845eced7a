/* This machine, measured as a chip that simulate can be asked about (`--chip this`). */
#ifndef CVN_CLI_THIS_CHIP_H
#define CVN_CLI_THIS_CHIP_H

#include "sim/timing.h"

/* Its ceilings, in a second: what memory gives, and what products reach, on all threads. */
int this_chip(Chip *chip, cvn_err *err);

/* Measures the steps of plans here, each by itself, on as many devices as the context, an int, says. */
int this_clock(void *devices, const Plan *plan, int32_t at, double *seconds, cvn_err *err);

#endif
