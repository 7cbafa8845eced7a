/* Random weights from counter-based numbers. */
#include "base/rng.h"
#include "io/save.h"

int init_fill(void *seed, const Param *param, int64_t first, int64_t n, float *out, cvn_err *err)
{
    (void)err;
    if (param->init != INIT_NORMAL) {
        float value = param->init == INIT_ONES ? 1.0f : 0.0f;
        for (int64_t i = 0; i < n; i++)
            out[i] = value;
        return CVN_OK;
    }
    float std = (float)param->std;
    rng_normal(rng_key(*(const uint64_t *)seed, param->file_name[NAMING_HF]), (uint64_t)first,
               (size_t)n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= std;
    return CVN_OK;
}
