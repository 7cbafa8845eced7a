/*
 * The devices of a PJRT plugin (plugin.h) as a back end (run/backend.h): graphs become StableHLO modules, which the plugin
 * compiles; tensors are its buffers, all of them plain.
 */
#ifndef CVN_PJRT_BACKEND_H
#define CVN_PJRT_BACKEND_H

#include "run/backend.h"

extern const Backend pjrt_backend;

#endif
