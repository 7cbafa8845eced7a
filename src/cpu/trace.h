/*
 * A Chrome trace of what devices did, which https://ui.perfetto.dev opens:
 *
 *     device 0        thread 0         |rms_norm|linear|wait|attention|all_reduce|add|…
 *                     thread 1         |rms_norm|linear|    |attention|          |add|…
 *                     communication                          |all_reduce, model, 64 KiB|
 *     device 1 …
 *
 * Each device is a process of the trace and has a track per thread, with a slice per step ("step"), per collective
 * that keeps it from computing ("exposed"), and per waiting of a thread for the others ("wait"); and a track for its
 * collectives from start to end ("communication"), with their bytes and axes; further ones where several are under
 * way at once. The devices of all processes of a cluster come into the one file.
 */
#ifndef CVN_CPU_TRACE_H
#define CVN_CPU_TRACE_H

#include "comm/cluster.h"
#include "cpu/device.h"
#include "cpu/profile.h"

typedef struct Trace Trace;

/* Gives each of the n devices, borrowed, a profile, with room for `events` per thread; 0 takes PROFILE_EVENTS. */
Trace *trace_begin(Device *const *device, int n, size_t events, cvn_err *err);

/* Writes all there is to `path`, with a cluster (NULL: alone) called by all of its processes, and rank 0 writes. All
   plans and Comms that ran must still be there. */
int trace_write(Trace *trace, Cluster *cluster, const char *path, cvn_err *err);

/* Takes the profiles away from their devices, which must still be there. NULL is allowed. */
void trace_free(Trace *trace);

#endif
