/* The processors of this machine as a back end (run/backend.h): kernels, threads, plans and memory are its own affair. */
#ifndef CVN_CPU_BACKEND_H
#define CVN_CPU_BACKEND_H

#include "run/backend.h"

extern const Backend cpu_backend;

#endif
