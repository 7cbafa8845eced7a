#include "io/adapter.h"

#include "io/convert.h"
#include "io/safetensors.h"

#include <string.h>

/* A tensor of the folder as f32 in the model's arena; NULL with an error when it is not as it should be. */
static float *read_tensor(IoModel *model, const IoTensors *tensors, const char *folder,
                          const Param *param, cvn_err *err)
{
    const char *name = param->file_name[NAMING_HF];
    const IoTensor *tensor = io_tensors_find(tensors, name);
    if (!tensor || !io_is_numeric(tensor) || tensor->rank != 2 ||
        tensor->dims[0] != param->file_dims[0] || tensor->dims[1] != param->file_dims[1]) {
        err_set(err, CVN_EFORMAT,
                "the adapters of '%s' do not fit the model '%s': there is no '%s' of its shape",
                folder, model->path, name);
        return NULL;
    }
    float *data = arena_array(&model->arena, (size_t)param->n, sizeof *data);
    io_decode(tensor, 0, param->n, data);
    return data;
}

/* Rows of B [heads * head_dim, rank] from Hugging Face's order into that of interleaved rotary pairs. */
static float *interleaved(IoModel *model, const Param *base, const float *b, int64_t rank)
{
    int64_t head_dim = base->dims[1], half = head_dim / 2, rows = base->file_dims[0];
    float *out = arena_array(&model->arena, (size_t)(rows * rank), sizeof *out);
    for (int64_t row = 0; row < rows; row++) {
        int64_t d = row % head_dim, to = row - d + d % half * 2 + d / half;
        memcpy(out + to * rank, b + row * rank, (size_t)rank * sizeof *out);
    }
    return out;
}

static int add_all(IoModel *model, const IoTensors *tensors, const char *folder,
                   const LoraOptions *options, cvn_err *err)
{
    LoraParams lora;
    lora_params(&lora, &model->params, options, &model->arena);
    if (tensors->n != (size_t)lora.list.n)
        return err_set(err, CVN_EFORMAT,
                       "the adapters of '%s' do not fit the model '%s': it has %zu tensors where "
                       "%d are expected",
                       folder, model->path, tensors->n, lora.list.n);
    for (int i = 0; i < model->params.n; i++) {
        const Param *base = &model->params.param[i];
        const Param *part = lora.a[i] < 0 ? NULL : &lora.list.param[lora.a[i]];
        if (!part)
            continue;
        const float *a = read_tensor(model, tensors, folder, part, err);
        const float *b = a ? read_tensor(model, tensors, folder, part + 1, err) : NULL;
        if (!b)
            return err->code;
        if (model->config.rope_interleaved && (base->kind == PARAM_Q || base->kind == PARAM_K))
            b = interleaved(model, base, b, options->rank);
        LoraProduct product = {a, b, options->rank, base->file_dims[1],
                               options->alpha / (double)options->rank};
        IoTensor adapted = *model->source[i];
        adapted.adapter = arena_copy(&model->arena, &product, sizeof product);
        model->source[i] = arena_copy(&model->arena, &adapted, sizeof adapted);
    }
    return CVN_OK;
}

int io_adapt_by(IoModel *model, const IoTensors *tensors, const char *folder,
                const LoraOptions *options, cvn_err *err)
{
    if (model->config.quant.kind != QUANT_NONE)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the adapters of '%s' cannot be merged into '%s', which is quantized",
                       folder, model->path);
    int code = add_all(model, tensors, folder, options, err);
    if (code == CVN_OK)
        model->adapter = arena_string(&model->arena, folder);
    return code;
}

int io_adapt(IoModel *model, const char *folder, const LoraOptions *options, cvn_err *err)
{
    FileMap map;
    Held held;
    IoTensors tensors;
    const char *path = arena_printf(&model->arena, "%s/adapter_model.safetensors", folder);
    int code = file_map(&map, path, err);
    if (code)
        return code;
    hold(&held, file_map_release, &map);
    io_tensors_init(&tensors, &model->arena);
    code = st_read(&tensors, path, map.data, map.size, NULL, err);
    if (code == CVN_OK)
        code = io_adapt_by(model, &tensors, folder, options, err);
    held_release(&held);
    return code;
}
