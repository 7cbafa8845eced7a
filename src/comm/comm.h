/*
 * How the devices of a mesh meet.
 *
 * A Comm stands for all devices that run one plan together, numbered 0 to size - 1. Some of them, a
 * run of numbers, are in this process and see each other's memory; the others are in other
 * processes and are reached through a Transport. With no transport all of them are here: N virtual
 * devices, which is how a mesh is tested on one machine.
 *
 *     devices        0   1 | 2   3 | 4   5 | 6   7
 *     processes      rank 0  rank 1  rank 2  rank 3        rank 1: first 2, n_local 2, size 8
 *
 * A collective operation of one device is a Collective, from comm_start, which says where its
 * operand and result are (and sends what other processes need), to comm_done, which waits for the
 * other members of its group and does this device's share of the work. Between the two the device
 * may compute other things. Collectives are numbered in the order in which a device starts them, and
 * all devices start the same ones in the same order:
 * that is how the k-th collective of one device finds the k-th of another.
 *
 * Reductions go through the members of a group in their order in it, in f64 (integers: wrapping),
 * and are rounded once: the order of the interpreter. So every device gets the same bits, in every
 * run, however the devices are spread over processes.
 *
 * A device that cannot go on says comm_fail; from then on nobody waits, all collectives come back
 * undone, and comm_failed says why.
 */
#ifndef CVN_COMM_COMM_H
#define CVN_COMM_COMM_H

#include "base/err.h"
#include "compile/kernel.h"
#include "compile/schedule.h"

typedef struct Comm Comm;
typedef struct Transport Transport; /* comm/transport.h */

/* n_local devices in this process; with a transport (borrowed, may be NULL) as many in each of its
   ranks. NULL with *err set when there is no memory or n_local is out of range. */
Comm *comm_new(int n_local, Transport *transport, cvn_err *err);
void comm_free(Comm *comm);

int comm_size(const Comm *comm);  /* devices in all processes */
int comm_first(const Comm *comm); /* the number of this process's first device */
int comm_local(const Comm *comm); /* devices in this process */

/* All devices of this process stop waiting; the first error is kept. Any thread may call it. */
void comm_fail(Comm *comm, const cvn_err *err);
/* The error's code, and the error itself in *err (which may be NULL); 0 when nothing failed. */
int comm_failed(const Comm *comm, cvn_err *err);
/* Forgets a failure and every collective under way, between
   two runs: no device of this process may be running.
   Not with a transport, where a failure is for good. */
void comm_reset(Comm *comm);

/* For measuring on one machine what a network would do: from now on a collective
   is not done before its bytes could have passed a link of that latency (seconds)
   and bandwidth (bytes a second; 0: endless), of which every device has one, and
   which sends one collective after the other. No device may be running. */
void comm_set_link(Comm *comm, Link link);

/* Seconds that a step of this operation takes; 0 for collectives. */
typedef double StepSeconds(const Op *op);

/* From now on devices do not look at the wall's clock, but have one each that begins at 0, goes on
   by `seconds` for each step, and by what the device waits for links: so that what comes of it, the
   account too, is the same on a machine that is busy. NULL: the wall's again. Without a transport
   only; no device may be running. */
void comm_set_clock(Comm *comm, StepSeconds *seconds);

/* A device has run a step; called by its thread 0. Counts its time by the clock above, and moves
   along what the device has under way with other processes. */
void comm_after_step(Comm *comm, int device, const Op *op);

/* What a device's clock shows; 0 without comm_set_clock. No device may be running. */
double comm_seconds(const Comm *comm, int device);

/* True while a device here has a collective with other
   processes under way: somebody should move it along. */
bool comm_busy(const Comm *comm);

/* Collectives that one device may have under way, from start to done. */
enum { COMM_IN_FLIGHT = COLLECTIVES_IN_FLIGHT };

/* Begins op, a collective, for a device of this process: `in` is its operand (NULL for
   partition_id), `out` its result, both to be left alone until comm_done. Called by one thread of
   the device. Returns the collective's number, for comm_done. */
unsigned comm_start(Comm *comm, int device, const Op *op, const void *in, void *out);

/* Ends the collective `number` of args->device: after it, on the thread
   that the device's next barrier lets through, the result is written.
   Called by all threads of the device, with the arguments of the step. */
void comm_done(const KernelArgs *args, unsigned number);

/* Whether any device of the mesh wishes so: the same answer on all of them. Called by all threads of every device, in
   the same place among its collectives; of `wish` only thread 0's counts. Nothing of it is accounted for. Where the Comm has
   failed the answer has no meaning. */
bool comm_any(const KernelArgs *args, bool wish);

/* Whether the device has begun the operation and not ended it. */
bool comm_is_open(Comm *comm, int device, const Op *op);

/* A row per collective operation: what a backend runs them with. Ended by a row without a name. */
extern const Kernel collective_kernels[];

#endif
