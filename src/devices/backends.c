/* The back ends of this program. A new one is a folder, and a row here. */
#include "base/err.h"
#include "cpu/backend.h"
#include "pjrt/backend.h"
#include "pjrt/plugin.h"

#include <string.h>

const Backend *const backends[] = {&cpu_backend, &pjrt_backend, NULL};

int backend_find(const char *device, const Backend **out, cvn_err *err)
{
    *out = !device || strcmp(device, "cpu") == 0 ? &cpu_backend
           : plugin_names(device)                ? &pjrt_backend
                                                 : NULL;
    return *out ? CVN_OK
                : err_set(err, CVN_EINVAL,
                          "unknown device '%.60s'; give cpu, tpu, cuda or pjrt:PATH of a plugin",
                          device);
}
