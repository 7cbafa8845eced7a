#include "train/checkpoint_export.h"

#include "train/checkpoint_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int checkpoint_find(Checkpoint *checkpoint, const char *path, int64_t step, CheckpointWarn *warn,
                    void *context, cvn_err *err)
{
    *checkpoint = (Checkpoint){0};
    char *manifest = file_join(path, MANIFEST_NAME), *folder = checkpoint_folder(path);
    char *exact = folder ? checkpoint_path(folder, step < 0 ? 0 : step, "") : NULL;
    int code;
    if (!manifest || !exact)
        code = err_set(err, CVN_EMEM, "no memory for a name in '%s'", path);
    else if (file_exists(manifest))
        code = checkpoint_open(checkpoint, path, err);
    else if (step < 0)
        code = checkpoint_open_latest(checkpoint, path, warn, context, err);
    else if (!file_is_folder(exact))
        code = err_set(err, CVN_EIO, "'%s' has no checkpoint of step %" PRId64, path, step);
    else
        code = checkpoint_open(checkpoint, exact, err);
    free(manifest);
    free(folder);
    free(exact);
    return code;
}

/* The tokenizer's file among those of a checkpoint; NULL when there is none. */
static const char *find_tokenizer(const Checkpoint *checkpoint, Arena *arena)
{
    static const char *const others[] = {"config.json", "generation_config.json",
                                         "model.safetensors.index.json"};
    for (size_t i = 0; i < checkpoint->manifest.n; i++) {
        const char *name = checkpoint->manifest.file[i].name, *dot = strrchr(name, '.');
        bool known = dot && strcmp(dot, ".safetensors") == 0;
        for (size_t k = 0; k < sizeof others / sizeof *others; k++)
            known |= strcmp(name, others[k]) == 0;
        if (!known)
            return arena_printf(arena, "%s/%s", checkpoint->folder, name);
    }
    return NULL;
}

int checkpoint_export(const Checkpoint *checkpoint, const char *folder, const SaveOptions *options,
                      cvn_err *err)
{
    IoModel model;
    int code = io_open_model(&model, checkpoint->folder, err);
    if (code != CVN_OK)
        return code;
    SaveOptions save = *options;
    if (!save.tokenizer)
        save.tokenizer = find_tokenizer(checkpoint, &model.arena);
    code = save_model(folder, &model, &save, err);
    io_close_model(&model);
    return code;
}
