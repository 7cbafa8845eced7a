#include "cli/device_memory.h"

json_t *device_memory_json(const DeviceMemory *m)
{
    return json_pack("{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f}", "weights", m->weights,
                     "rounded_weights", m->rounded_weights, "optimizer", m->optimizer,
                     "gradient_sums", m->sums, "kv_cache", m->kv_cache, "inputs", m->inputs,
                     "temporaries", m->temporaries, "constants", m->constants, "total", m->total);
}
