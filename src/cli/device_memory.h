/* What a device holds, for scripts: the same keys whether it was planned or measured. */
#ifndef CVN_CLI_DEVICE_MEMORY_H
#define CVN_CLI_DEVICE_MEMORY_H

#include "run/runtime.h"

#include <jansson.h>

json_t *device_memory_json(const DeviceMemory *memory);

#endif
