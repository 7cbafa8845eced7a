#include "io/adapter.h"

#include "io/convert.h"
#include "io/safetensors.h"

#include <string.h>
#include <unistd.h>

/* That a tensor of this shape is there. */
static int check_tensor(const IoAdapter *adapter, const IoModel *model, const Param *param,
                        cvn_err *err)
{
    const char *name = param->file_name[NAMING_HF];
    const IoTensor *tensor = io_tensors_find(&adapter->tensors, name);
    if (tensor && io_is_numeric(tensor) && tensor->rank == 2 &&
        tensor->dims[0] == param->file_dims[0] && tensor->dims[1] == param->file_dims[1])
        return CVN_OK;
    return err_set(err, CVN_EFORMAT,
                   "the adapters of '%s' do not fit the model '%s': the tensor '%s' is missing or "
                   "has another shape",
                   adapter->folder, model->path, name);
}

/* Opens the adapters of a model once the tensors of their folder are known: number and shapes must fit. */
static int open_by(IoAdapter *adapter, const IoModel *model, Arena *arena, cvn_err *err)
{
    lora_params(&adapter->params, &model->params, &adapter->options, arena);
    const ParamList *list = &adapter->params.list;
    if (adapter->tensors.n != (size_t)list->n)
        return err_set(
            err, CVN_EFORMAT,
            "the adapters of '%s' do not fit the model '%s': it has %zu tensors, expected %d",
            adapter->folder, model->path, adapter->tensors.n, list->n);
    for (int i = 0; i < list->n; i++)
        TRY(check_tensor(adapter, model, &list->param[i], err));
    return CVN_OK;
}

int io_adapter_open(IoAdapter *adapter, const IoModel *model, const char *folder, Arena *arena,
                    cvn_err *err)
{
    const char *base, *path = arena_printf(arena, "%s/adapter_model.safetensors", folder);
    *adapter = (IoAdapter){.folder = arena_string(arena, folder)};
    /* A folder that may not be looked into is told by what opens its files. */
    if (!file_has(folder, LORA_CONFIG_NAME) && (!file_is_folder(folder) || !access(folder, X_OK)))
        return err_set(err, CVN_EIO,
                       "'%s' is not a folder of adapters; give one with " LORA_CONFIG_NAME
                       " and adapter_model.safetensors, as train and PEFT write them",
                       folder);
    TRY(lora_config_read(&adapter->options, &base, folder, arena, err));
    TRY(file_map(&adapter->map, path, err));
    adapter->mapped = true;
    io_tensors_init(&adapter->tensors, arena);
    TRY(st_read(&adapter->tensors, path, adapter->map.data, adapter->map.size, NULL, err));
    return open_by(adapter, model, arena, err);
}

void io_adapter_close(IoAdapter *adapter)
{
    if (adapter->mapped)
        file_unmap(&adapter->map);
    *adapter = (IoAdapter){0};
}

void io_adapter_read(const IoAdapter *adapter, const IoModel *model, int number, float *out)
{
    const Param *p = &adapter->params.list.param[number];
    const IoTensor *tensor = io_tensors_find(&adapter->tensors, p->file_name[NAMING_HF]);
    if (model_has_hf_pairs(model->desc) || !p->rotated) {
        io_decode(tensor, 0, p->n, out);
        return;
    }
    /* Rows of B [heads * head_dim, rank] from Hugging Face's order into that of the model's pairs. */
    const int64_t rank = p->dims[2];
    const bool other = !model_is_interleaved(model->desc);
    for (int64_t row = 0; row < p->file_dims[0]; row++)
        io_decode(tensor, row * rank, rank, out + io_row(model, p, row, other) * rank);
}

static int merge(IoModel *model, const IoAdapter *adapter, cvn_err *err)
{
    const LoraOptions *options = &adapter->options;
    if (model_quant(model->desc).kind != QUANT_NONE)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the adapters of '%s' cannot be merged into '%s', which is quantized; give "
                       "them with --adapter",
                       adapter->folder, model->path);
    for (int i = 0; i < model->params.n; i++) {
        int number = adapter->params.a[i];
        float *half[2]; /* A, B */
        for (int k = 0; k < 2 && number >= 0; k++) {
            int64_t n = adapter->params.list.param[number + k].n;
            half[k] = arena_array(&model->arena, (size_t)n, sizeof **half);
            io_adapter_read(adapter, model, number + k, half[k]);
        }
        if (number < 0)
            continue;
        LoraProduct product = {half[0], half[1], options->rank,
                               adapter->params.list.param[number].file_dims[1],
                               options->alpha / (double)options->rank};
        IoTensor adapted = *model->source[i];
        adapted.adapter = arena_copy(&model->arena, &product, sizeof product);
        model->source[i] = arena_copy(&model->arena, &adapted, sizeof adapted);
    }
    model->adapter = adapter->folder;
    return CVN_OK;
}

int io_adapt_by(IoModel *model, const IoTensors *tensors, const char *folder,
                const LoraOptions *options, cvn_err *err)
{
    IoAdapter adapter = {
        .folder = arena_string(&model->arena, folder), .options = *options, .tensors = *tensors};
    TRY(open_by(&adapter, model, &model->arena, err));
    return merge(model, &adapter, err);
}

static void release(void *adapter)
{
    io_adapter_close(adapter);
}

int io_adapt(IoModel *model, const char *folder, cvn_err *err)
{
    IoAdapter adapter = {0};
    Cleanup cleanup;
    cleanup_push(&cleanup, release, &adapter);
    int code = io_adapter_open(&adapter, model, folder, &model->arena, err);
    if (code == CVN_OK)
        code = merge(model, &adapter, err);
    cleanup_run(&cleanup);
    return code;
}
