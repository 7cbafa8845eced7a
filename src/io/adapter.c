#include "io/adapter.h"

#include "io/convert.h"
#include "io/safetensors.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A or B of a weight in the files of a folder: in a tensor of its own, or, where Hugging Face has several matrices in one, in that of
   all of them, where A is everybody's and B has the rows of one matrix behind those of another:

       qkv_proj.lora_A [rank, dim]      qkv_proj.lora_B [rows of q, k and v, rank] */
typedef struct Half {
    const IoTensor *tensor; /* NULL: there is none */
    int64_t first, rows;    /* the first row in it, and how many it must have */
} Half;

static Half find_half(const IoAdapter *adapter, const IoModel *model, int number)
{
    const ParamList *list = &model->params;
    const Param *p = &adapter->params.list.param[number];
    const bool lower = number % 2 == 0; /* A */
    Half half = {io_tensors_find(&adapter->tensors, p->file_name[NAMING_HF]), 0, p->file_dims[0]};
    int i = 0;
    while (adapter->params.a[i] != number - !lower)
        i++;
    const Param *base = &list->param[i];
    const char *fused = base->experts ? NULL : base->fused[NAMING_HF];
    if (half.tensor || !fused)
        return half;
    char name[256];
    snprintf(name, sizeof name, "base_model.model.%.*s.lora_%c.weight",
             (int)(strlen(fused) - strlen(".weight")), fused, lower ? 'A' : 'B');
    half.tensor = io_tensors_find(&adapter->tensors, name);
    for (int k = list->layer[base->layer]; k < list->layer[base->layer + 1] && !lower; k++) {
        const Param *other = &list->param[k];
        if (k == i || !other->fused[NAMING_HF] || strcmp(other->fused[NAMING_HF], fused) != 0)
            continue;
        half.first += k < i ? other->file_dims[0] : 0;
        half.rows += other->file_dims[0];
    }
    return half;
}

/* That a tensor of this shape is there; it is marked. */
static int check_tensor(const IoAdapter *adapter, const IoModel *model, int number, bool *used,
                        cvn_err *err)
{
    const Param *param = &adapter->params.list.param[number];
    const Half half = find_half(adapter, model, number);
    const IoTensor *tensor = half.tensor;
    if (tensor)
        used[tensor - adapter->tensors.tensor] = true;
    if (tensor && io_is_numeric(tensor) && tensor->rank == 2 && tensor->dims[0] == half.rows &&
        tensor->dims[1] == param->file_dims[1])
        return CVN_OK;
    return err_set(err, CVN_EFORMAT,
                   "the adapters of '%s' do not fit the model '%s': the tensor '%s' is missing or "
                   "has another shape",
                   adapter->folder, model->path, param->file_name[NAMING_HF]);
}

/* Opens the adapters of a model once the tensors of their folder are known: number and shapes must fit. */
static int open_by(IoAdapter *adapter, const IoModel *model, Arena *arena, cvn_err *err)
{
    lora_params(&adapter->params, &model->params, &adapter->options, arena);
    const ParamList *list = &adapter->params.list;
    bool *used = arena_array(arena, adapter->tensors.n + 1, sizeof *used);
    size_t n = 0;
    for (int i = 0; i < list->n; i++)
        TRY(check_tensor(adapter, model, i, used, err));
    for (size_t i = 0; i < adapter->tensors.n; i++)
        n += used[i];
    if (adapter->tensors.n == n)
        return CVN_OK;
    return err_set(err, CVN_EFORMAT,
                   "the adapters of '%s' do not fit the model '%s': it has %zu tensors, expected "
                   "%zu",
                   adapter->folder, model->path, adapter->tensors.n, n);
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
    const Half half = find_half(adapter, model, number);
    const int64_t begin = half.first * p->file_dims[1];
    if (model_has_hf_pairs(model->desc) || !p->rotated) {
        io_decode(half.tensor, begin, p->n, out);
        return;
    }
    /* Rows of B [heads * head_dim, rank] from Hugging Face's order into that of the model's pairs. */
    const int64_t rank = p->dims[2];
    const bool other = !model_is_interleaved(model->desc);
    for (int64_t row = 0; row < p->file_dims[0]; row++)
        io_decode(half.tensor, begin + row * rank, rank, out + io_row(model, p, row, other) * rank);
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
