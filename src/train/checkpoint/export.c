#include "train/checkpoint/export.h"

#include "io/adapter.h"
#include "io/safetensors.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/shards.h"

#include <inttypes.h>
#include <string.h>

#define ADAPTER_FILE "adapter_model.safetensors"

int checkpoint_find(Checkpoint *checkpoint, const char *path, int64_t step, CheckpointWarn *warn,
                    void *context, cvn_err *err)
{
    *checkpoint = (Checkpoint){0};
    TRY(file_check_seen(path, err));
    if (file_exists(file_path(path, MANIFEST_NAME).text))
        return checkpoint_open(checkpoint, path, err);
    if (step < 0)
        return checkpoint_open_latest(checkpoint, path, NULL, warn, context, err);
    const FilePath exact = checkpoint_path(checkpoint_folder(path).text, step, "");
    if (!file_is_folder(exact.text))
        return err_set(err, CVN_EIO, "'%s' has no checkpoint of step %" PRId64, path, step);
    return checkpoint_open(checkpoint, exact.text, err);
}

static bool is_companion(const char *name)
{
    for (int i = TOKENIZER_KINDS; tokenizer_files[i]; i++)
        if (strcmp(name, tokenizer_files[i]) == 0)
            return true;
    return false;
}

/* The tokenizer's file among those of a checkpoint; NULL when there is none. */
const char *checkpoint_tokenizer(const Checkpoint *checkpoint, Arena *arena)
{
    static const char *const others[] = {"config.json", "generation_config.json", LORA_CONFIG_NAME,
                                         "model.safetensors.index.json"};
    for (size_t i = 0; i < checkpoint->manifest.n; i++) {
        const char *name = checkpoint->manifest.file[i].name, *dot = strrchr(name, '.');
        bool known = is_companion(name) || (dot && strcmp(dot, ".safetensors") == 0);
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            known |= strcmp(name, others[k]) == 0;
        if (!known)
            return arena_printf(arena, "%s/%s", checkpoint->folder, name);
    }
    return NULL;
}

/* The checkpoint's, where none is given. */
static SaveOptions with_tokenizer(const Checkpoint *checkpoint, const SaveOptions *options,
                                  Arena *arena)
{
    SaveOptions save = *options;
    if (!save.tokenizer)
        save.tokenizer = checkpoint_tokenizer(checkpoint, arena);
    return save;
}

static int copy_into(const Checkpoint *checkpoint, const char *name, const char *folder,
                     cvn_err *err)
{
    return file_copy(file_path(checkpoint->folder, name).text, file_path(folder, name).text, err);
}

/* What stands beside the checkpoint's tokenizer, where that is what was saved. */
static int copy_companions(const Checkpoint *checkpoint, const char *folder,
                           const SaveOptions *options, cvn_err *err)
{
    for (size_t i = 0; i < checkpoint->manifest.n && !options->tokenizer; i++)
        if (is_companion(checkpoint->manifest.file[i].name))
            TRY(copy_into(checkpoint, checkpoint->manifest.file[i].name, folder, err));
    return CVN_OK;
}

int checkpoint_copy_tokenizer(const Checkpoint *checkpoint, const char *folder, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    const char *path = checkpoint_tokenizer(checkpoint, &arena);
    TRY(path ? copy_into(checkpoint, strrchr(path, '/') + 1, folder, err) : CVN_OK);
    return copy_companions(checkpoint, folder, &(SaveOptions){0}, err);
}

/* Reads numbers of a parameter from the slices of a checkpoint, the context. */
static void fill_from_slices(void *context, const Param *param, int64_t first, int64_t n,
                             float *out)
{
    const Checkpoint *checkpoint = context;
    checkpoint_whole_range(checkpoint_wholes_find(checkpoint->wholes, param->file_name[NAMING_HF]),
                           first, n, out);
}

/* The model is put together piece by piece. */
int checkpoint_export(const Checkpoint *checkpoint, const char *folder, const SaveOptions *options,
                      cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    Model *model;
    ParamList params;
    TRY(arena_begin(&arena, err));
    TRY(model_read(&model, checkpoint->folder, &arena, err));
    params_list(&params, model, &arena);
    for (int i = 0; i < params.n; i++) {
        const char *name = params.param[i].file_name[NAMING_HF];
        const CheckpointWhole *whole = checkpoint_wholes_find(checkpoint->wholes, name);
        if (!whole || whole->type.dtype != CVN_F32 ||
            cvn_type_elements(&whole->type) != params.param[i].n)
            return err_set(err, CVN_EFORMAT, "'%s' has no '%s' of the shape in its config.json",
                           checkpoint->folder, name);
    }
    SaveOptions save = with_tokenizer(checkpoint, options, &arena);
    TRY(save_folder(folder, model, &save, fill_from_slices, (void *)(uintptr_t)checkpoint, err));
    return copy_companions(checkpoint, folder, options, err);
}

static void close_model(void *model)
{
    io_close_model(model);
}

bool checkpoint_is_lora(const Checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->manifest.n; i++)
        if (strcmp(checkpoint->manifest.file[i].name, LORA_CONFIG_NAME) == 0)
            return true;
    return false;
}

/* Adapters, put together in the arena. */
static int gather_adapters(const Checkpoint *checkpoint, IoTensors *list, Arena *arena,
                           cvn_err *err)
{
    io_tensors_init(list, arena);
    for (int i = 0; i < checkpoint->wholes->n; i++) {
        const CheckpointWhole *whole = &checkpoint->wholes->whole[i];
        IoTensor tensor = {.name = whole->name,
                           .type = "F32",
                           .file = checkpoint->folder,
                           .bytes = cvn_type_bytes(&whole->type),
                           .dtype = CVN_F32};
        if (strncmp(whole->name, CHECKPOINT_OPTIMIZER, sizeof CHECKPOINT_OPTIMIZER - 1) == 0)
            continue;
        if (whole->type.dtype != CVN_F32 || whole->type.rank < 2)
            return err_set(err, CVN_EFORMAT, "'%s': '%s' is not an adapter", checkpoint->folder,
                           whole->name);
        /* The shape that PEFT has: axes of the model that are apart here are one, A [rank, in], B [out, rank]. */
        bool first = strstr(whole->name, ".lora_A.") != NULL;
        tensor.rank = 2;
        tensor.dims[0] = tensor.dims[1] = 1;
        for (int d = 0; d < whole->type.rank; d++)
            tensor.dims[(first ? d == 0 : d < whole->type.rank - 1) ? 0 : 1] *= whole->type.dim[d];
        tensor.n = tensor.dims[0] * tensor.dims[1];
        Box box = box_whole(&whole->type);
        BoxArray all = box_packed(&box);
        uint8_t *data = arena_array(arena, tensor.bytes, 1);
        checkpoint_whole_copy(whole, &all, data);
        tensor.data = data;
        TRY(io_tensors_add(list, &tensor, err));
    }
    return CVN_OK;
}

static int write_adapters(const Checkpoint *checkpoint, const char *folder, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    IoTensors list;
    SCOPED(st_writer_free) StWriter writer = {.file = {.fd = -1}};
    TRY(arena_begin(&arena, err));
    TRY(gather_adapters(checkpoint, &list, &arena, err));
    TRY(st_writer_open(&writer, file_path(folder, ADAPTER_FILE).text, err));
    TRY(st_writer_metadata(&writer, "format", "pt", err));
    for (size_t i = 0; i < list.n; i++)
        TRY(st_writer_declare(&writer, list.tensor[i].name, CVN_F32, list.tensor[i].rank,
                              list.tensor[i].dims, err));
    TRY(st_writer_begin(&writer, err));
    for (size_t i = 0; i < list.n; i++)
        TRY(st_writer_data(&writer, i, list.tensor[i].data, list.tensor[i].bytes, err));
    return st_writer_commit(&writer, err);
}

int checkpoint_export_adapter(const Checkpoint *checkpoint, const char *folder, bool force,
                              cvn_err *err)
{
    if (!force && file_exists(file_path(folder, LORA_CONFIG_NAME).text))
        return err_set(err, CVN_EIO,
                       "'%s' already contains an adapter; give another folder or --force", folder);
    TRY(file_make_folder(folder, err));
    TRY(write_adapters(checkpoint, folder, err));
    TRY(copy_into(checkpoint, LORA_CONFIG_NAME, folder, err));
    /* A tokenizer is no other model: that of a run stands beside its adapters. */
    const char *written[2 + TOKENIZER_FILES] = {ADAPTER_FILE, LORA_CONFIG_NAME};
    memcpy(written + 2, tokenizer_files, TOKENIZER_FILES * sizeof *written);
    save_remove_others(folder, written, sizeof written / sizeof *written);
    return CVN_OK;
}

int checkpoint_export_merged(const Checkpoint *checkpoint, const char *base, const char *folder,
                             const SaveOptions *options, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    IoTensors list;
    IoModel model;
    LoraOptions lora;
    const char *named;
    TRY(arena_begin(&arena, err));
    TRY(lora_config_read(&lora, &named, checkpoint->folder, &arena, err));
    if (!base && !named)
        return err_set(err, CVN_EINVAL, "'%s' does not name its base model; give it with --init",
                       checkpoint->folder);
    /* A run has adapters of a text model only, whatever it was inside of. */
    TRY(io_open_as(&model, base ? base : named, IO_TEXT_ONLY, err));
    CLEANUP(close_model, &model);
    SaveOptions save = with_tokenizer(checkpoint, options, &arena);
    TRY(gather_adapters(checkpoint, &list, &arena, err));
    TRY(io_adapt_by(&model, &list, checkpoint->folder, &lora, err));
    TRY(save_model(folder, &model, &save, err));
    return copy_companions(checkpoint, folder, options, err);
}
