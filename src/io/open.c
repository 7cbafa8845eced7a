/* What a path names: a model, or adapters that name the model which they belong to. */
#include "io/adapter.h"

static int open_plain(IoModel *model, const char *path, unsigned how, cvn_err *err)
{
    int code = io_open_files(model, path, how & IO_TEXT_ONLY, err);
    if (code == CVN_OK && !(how & IO_SHOWN) && (code = io_audit(model, err)) != CVN_OK)
        io_close_model(model);
    return code;
}

static bool holds_adapters(const char *path)
{
    return file_has(path, LORA_CONFIG_NAME) && !file_has(path, "config.json");
}

/* Reads from a PEFT folder where the model is that its adapters belong to. */
static int read_base(const char *folder, const char **base, Arena *arena, cvn_err *err)
{
    LoraOptions options;
    int code = lora_config_read(&options, base, folder, arena, err);
    if (code == CVN_OK && (!*base || !file_exists(*base)))
        code = err_set(err, CVN_EIO,
                       "'%s' holds adapters of the model '%s', which does not exist; give the base "
                       "model with --model and this folder with --adapter",
                       folder, *base ? *base : "");
    return code;
}

/* The model that a PEFT folder names, with its adapters, or as files only. */
static int open_adapted(IoModel *model, const char *folder, unsigned how, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    const char *base;
    TRY(arena_begin(&arena, err));
    int code = read_base(folder, &base, &arena, err);
    if (code == CVN_OK)
        code = open_plain(model, base, how, err);
    if (code == CVN_OK && how & IO_SHOWN)
        model->adapter = arena_string(&model->arena, folder);
    else if (code == CVN_OK && (code = io_adapt(model, folder, err)) != CVN_OK)
        io_close_model(model);
    return code;
}

typedef struct Opening {
    IoModel *model;
    const char *path;
    unsigned how; /* bits */
} Opening;

static int open_either(void *of, cvn_err *err)
{
    const Opening *o = of;
    return (holds_adapters(o->path) ? open_adapted : open_plain)(o->model, o->path, o->how, err);
}

int io_open_as(IoModel *model, const char *path, unsigned how, cvn_err *err)
{
    Opening o = {model, path, how};
    *model = (IoModel){0};
    int code = protect(open_either, &o, "opening a model", err);
    if (code != CVN_OK)
        io_close_model(model);
    return code;
}

int io_open_model(IoModel *model, const char *path, cvn_err *err)
{
    return io_open_as(model, path, 0, err);
}
