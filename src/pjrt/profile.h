/*
 * `--profile` on the devices of a plugin: what the host does with them, and, where the plugin has XLA's profiler extension,
 * what they do themselves, in one trace (run/trace_file.h).
 *
 *     caravan         host      |inputs|decode            |results|inputs|…
 *     /device:TPU:0   XLA Ops          |fusion.3|copy.1|…|
 *
 * The plugin's recording begins with pjrt_trace_begin and ends when the trace is written. A plugin whose profiler fails is not
 * an error: what it said stands in the host's name.
 */
#ifndef CVN_PJRT_PROFILE_H
#define CVN_PJRT_PROFILE_H

#include "pjrt/plugin.h"

#include "comm/cluster.h"

typedef struct PjrtProfile PjrtProfile;

PjrtProfile *pjrt_profile_begin(const Plugin *plugin, cvn_err *err);

/* The host was busy with `name` from `begin` until now, by clock_ns; the name is kept as it is. A profile of NULL takes nothing. */
void pjrt_profile_add(PjrtProfile *profile, const char *name, int64_t begin);

/* Ends the recording and writes all there is, by all processes of the cluster together. */
int pjrt_profile_write(PjrtProfile *profile, Cluster *cluster, const char *path, cvn_err *err);

/* Ends the recording. NULL is allowed. */
void pjrt_profile_free(PjrtProfile *profile);

#endif
