/*
 * How long each step of a plan takes by itself on this machine: its kernel, on the threads of as many devices as run it
 * together, over operands that nothing was computed for.
 *
 *     steps_measure(plan, 1, 511, seconds, &err)     seconds[i]: of step i; nothing of the plan as a whole was run
 *
 * Parameters of a step are there several times, and each turn takes the next: in a whole run everything else that the plan
 * reads goes through the caches between two uses of a weight. What it reads and writes of the arena comes from as far: a buffer
 * that was last used 40 MB of other steps ago has copies of as much. Steps that are alike are measured once.
 */
#ifndef CVN_CPU_STEPS_H
#define CVN_CPU_STEPS_H

#include "compile/plan.h"

/* Whole numbers among the operands (positions, tokens) are `at`, or where that is 0 small ones. The end of a collective
   that goes on beside others counts with its start. seconds [plan->n_steps]. */
int steps_measure(const Plan *plan, int n_devices, int32_t at, double *seconds, cvn_err *err);

#endif
