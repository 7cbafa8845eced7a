/* What collectives came to, for people and for scripts; and what a device holds. */
#ifndef CVN_CLI_FIGURES_H
#define CVN_CLI_FIGURES_H

#include "comm/account.h"
#include "run/runtime.h"

#include <jansson.h>
#include <stdio.h>

/* A table under a title; nothing when nothing was communicated. */
void print_communication(FILE *file, const char *title, const CommTable *table);

/* The list with an object per row: collective, axis, count, bytes, seconds, exposed_seconds; and `part`, which says
   what of, unless it is NULL. */
json_t *add_communication(json_t *list, const char *part, const CommTable *table);

/* The same keys whether it was planned or measured. */
json_t *device_memory_json(const DeviceMemory *memory);

/* What runs on a device, as --device named it: the level of the CPU's kernels, or the device itself. */
const char *kernels_name(const char *device);

#endif
