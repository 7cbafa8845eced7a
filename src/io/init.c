/* Models that are in no file, and random weights from counter-based numbers as one of them. */
#include "base/rng.h"
#include "io/save.h"

#include <string.h>

int io_filled_model(IoModel *model, const char *name, const Model *desc, IoFill *fill,
                    void *context, cvn_err *err)
{
    *model = (IoModel){.path = name, .kind = IO_KIND_HF};
    TRY(arena_init(&model->arena, err));
    TRY(model_check(desc, name, err));
    Arena *arena = &model->arena;
    model->desc = model_copy(desc, arena);
    io_tensors_init(&model->tensors, arena);
    params_list(&model->params, model->desc, arena);
    const size_t n = (size_t)model->params.n;
    IoTensor *tensor = arena_array(arena, n, sizeof *tensor);
    IoFilled *filled = arena_array(arena, n, sizeof *filled);
    model->source = arena_array(arena, n, sizeof *model->source);
    for (size_t i = 0; i < n; i++) {
        const Param *p = &model->params.param[i];
        filled[i] = (IoFilled){fill, context, p};
        tensor[i] = (IoTensor){.name = p->name,
                               .type = "F32",
                               .file = name,
                               .n = p->n,
                               .coding = IO_FILLED,
                               .dtype = CVN_F32,
                               .rank = p->file_rank,
                               .filled = &filled[i]};
        memcpy(tensor[i].dims, p->file_dims, (size_t)p->file_rank * sizeof *p->file_dims);
        model->source[i] = &tensor[i];
    }
    return CVN_OK;
}

void init_fill(void *seed, const Param *param, int64_t first, int64_t n, float *out)
{
    if (param->init != INIT_NORMAL) {
        float value = param->init == INIT_ONES ? 1.0f : 0.0f;
        for (int64_t i = 0; i < n; i++)
            out[i] = value;
        return;
    }
    float std = (float)param->std;
    rng_normal(rng_key(*(const uint64_t *)seed, param->file_name[NAMING_HF]), (uint64_t)first,
               (size_t)n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] *= std;
}
