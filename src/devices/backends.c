/* The back ends that this program was built with. A new one is a folder, and a row here. */
#include "cpu/backend.h"

const Backend *const backends[] = {&cpu_backend, NULL};
