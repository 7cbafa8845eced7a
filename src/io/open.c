/* What a path names: a model, or adapters that name the model which they belong to. */
#include "io/adapter.h"

static int open_plain(IoModel *model, const char *path, cvn_err *err)
{
    int code = io_open_files(model, path, err);
    if (code == CVN_OK && (code = io_audit(model, err)) != CVN_OK)
        io_close_model(model);
    return code;
}

static bool holds_adapters(const char *path)
{
    return file_has(path, LORA_CONFIG_NAME) && !file_has(path, "config.json");
}

/* What a PEFT folder says: of the adapters, and where their model is. */
static int read_adapters(const char *folder, LoraOptions *options, const char **base, Arena *arena,
                         cvn_err *err)
{
    int code = lora_config_read(options, base, folder, arena, err);
    if (code == CVN_OK && (!*base || !file_exists(*base)))
        code = err_set(err, CVN_EIO,
                       "'%s' holds adapters of the model '%s', which is not there; put its path "
                       "into \"base_model_name_or_path\" of " LORA_CONFIG_NAME,
                       folder, *base ? *base : "");
    return code;
}

/* The model that a PEFT folder names, with its adapters, or as files only. */
static int open_adapted(IoModel *model, const char *folder, bool files, cvn_err *err)
{
    Arena arena;
    LoraOptions options;
    const char *base;
    int code = arena_init(&arena, err);
    if (code != CVN_OK)
        return code;
    code = read_adapters(folder, &options, &base, &arena, err);
    if (code == CVN_OK)
        code = (files ? io_open_files : open_plain)(model, base, err);
    if (code == CVN_OK && files)
        model->adapter = arena_string(&model->arena, folder);
    else if (code == CVN_OK && (code = io_adapt(model, folder, &options, err)) != CVN_OK)
        io_close_model(model);
    arena_free(&arena);
    return code;
}

int io_open_model(IoModel *model, const char *path, cvn_err *err)
{
    *model = (IoModel){0};
    return holds_adapters(path) ? open_adapted(model, path, false, err)
                                : open_plain(model, path, err);
}

int io_open_shown(IoModel *model, const char *path, cvn_err *err)
{
    *model = (IoModel){0};
    return holds_adapters(path) ? open_adapted(model, path, true, err)
                                : io_open_files(model, path, err);
}
