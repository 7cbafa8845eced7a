/*
 * The CUDA toolkit, without which XLA's plugin for GPUs does not compile: it takes libdevice and, unless it has an assembler
 * of its own, ptxas from there. Where it is missing some versions end the program, so we look first, where they will.
 *
 *     XLA_FLAGS=--xla_gpu_cuda_data_dir=DIR    DIR
 *     /usr/local/cuda, /opt/cuda               where systems have it
 *     site-packages/nvidia/cu13                beside the plugin, where Python's packages have it
 */
#ifndef CVN_PJRT_TOOLKIT_H
#define CVN_PJRT_TOOLKIT_H

#include "base/arena.h"
#include "base/err.h"

extern const char *const toolkit_system[]; /* where systems have it; NULL behind the last */

/* plugin: its file. The error says where it was looked for. */
int toolkit_find(const char *plugin, const char *const *system, Arena *arena, const char **out,
                 cvn_err *err);

#endif
