/*
 * Running plans. Every thread of the device walks the whole plan and does its part of each step; they meet only
 * where the plan says sync. Nothing is allocated, chosen or searched on the way.
 */
#ifndef CVN_CPU_EXECUTOR_H
#define CVN_CPU_EXECUTOR_H

#include "cpu/device.h"

/* Runs a plan that was made for this device's number of threads.
   parameters [plan->n_parameters]: where each lies, dense and packed, aligned for its element type; the plan
   reads them in place, and writes only those that it says are donated, which no other parameter may overlap.
   outputs [plan->n_outputs]: set to where each result lies, which is its parameter if it was declared to go into
   one; else it stays until the next run on this device. May be NULL.
   Fails before anything has run, with CVN_EINVAL for parameters that cannot be, with CVN_EMEM when the arena cannot
   grow; or with CVN_EINTERRUPTED when the device's interrupt flag is set before the run or while it lasts: the rest of the
   run is left out, within a step too where its kernel looks (kernel_cancelled), and what it writes (outputs, donated
   parameters) has no meaning. */
int executor_run(Device *device, const Plan *plan, void *const *parameters, void **outputs,
                 cvn_err *err);

#endif
