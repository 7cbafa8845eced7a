#include "io/save.h"

#include "base/capacity.h"
#include "base/file.h"
#include "io/formats.h"
#include "io/save_files.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const tokenizer_files[] = {"tokenizer.json",
                                       "tekken.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       "chat_template.json",
                                       NULL};
static_assert(sizeof tokenizer_files / sizeof *tokenizer_files == TOKENIZER_FILES + 1,
              "their number is said in save.h");

/* One save: what is written, and into which folder. */
typedef struct Save {
    const char *final;  /* where the model is to be, without slashes at its end */
    const char *folder; /* being filled, beside it or in it; the arena's */
    int lock;           /* of that, open */
    bool filled;        /* there is something in `final` already */
    const SaveOptions *options;
    Arena arena;
    Out out;
    FormatOptions format;
} Save;

int save_copy_tokenizer(const char *from, const char *folder, cvn_err *err)
{
    for (size_t i = 0; tokenizer_files[i]; i++) {
        const FilePath file = file_path(from, tokenizer_files[i]);
        if (file_exists(file.text))
            TRY(file_copy(file.text, file_path(folder, tokenizer_files[i]).text, err));
    }
    return CVN_OK;
}

/* The name by which a tokenizer is looked for in a folder, whatever the file that is copied is called: JSON begins so. */
static const char *tokenizer_name(const char *file)
{
    FileMap map;
    const char *slash = strrchr(file, '/');
    if (strcmp(slash ? slash + 1 : file, "tekken.json") == 0)
        return "tekken.json";
    if (file_map(&map, file, NULL))
        return "tokenizer.model";
    const char *text = (const char *)map.data;
    size_t at = 0;
    while (at < map.size && memchr(" \t\r\n", text[at], 4))
        at++;
    const bool json = at < map.size && text[at] == '{';
    file_unmap(&map);
    return json ? "tokenizer.json" : "tokenizer.model";
}

static int copy_tokenizer(Save *save, cvn_err *err)
{
    const SaveOptions *o = save->options;
    if (o->tokenizer)
        TRY(file_copy(o->tokenizer, file_path(save->folder, tokenizer_name(o->tokenizer)).text,
                      err));
    return o->tokenizer_folder ? save_copy_tokenizer(o->tokenizer_folder, save->folder, err)
                               : CVN_OK;
}

static int write_all(Save *save, cvn_err *err)
{
    const Out *out = &save->out;
    TRY(copy_tokenizer(save, err));
    TRY(out_write(&save->out, save->folder, err));
    return model_write(format_hf_model(out->model, &save->format, out->arena), save->folder, err);
}

/* Whether a file of a folder is of a model in it, or of adapters: other files there are somebody's own. */
static bool is_of_model(const char *name)
{
    static const char *const fixed[] = {
        "config.json",         "generation_config.json",    "model.safetensors", SAVE_INDEX,
        "adapter_config.json", "adapter_model.safetensors", "params.json",       NULL};
    int a, b, end = 0;
    for (int i = 0; fixed[i]; i++)
        if (strcmp(name, fixed[i]) == 0)
            return true;
    for (int i = 0; tokenizer_files[i]; i++)
        if (strcmp(name, tokenizer_files[i]) == 0)
            return true;
    return (sscanf(name, "model-%5d-of-%5d.safetensors%n", &a, &b, &end) == 2 && end > 0 &&
            name[end] == '\0') ||
           (sscanf(name, "consolidated.%2d.pth%n", &a, &end) == 1 && end > 0 && name[end] == '\0');
}

void save_remove_others(const char *folder, const char *const *written, size_t n)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        bool keep = !is_of_model(entry->d_name);
        for (size_t i = 0; i < n && !keep; i++)
            keep = strcmp(entry->d_name, written[i]) == 0;
        if (!keep)
            unlinkat(dirfd(stream), entry->d_name, 0);
    }
    closedir(stream);
}

int save_move_into(const char *from, const char *folder, Arena *arena, cvn_err *err)
{
    const char **name = NULL;
    size_t n = 0;
    DIR *stream = opendir(from);
    if (!stream)
        return err_set(err, CVN_EIO, "cannot read '%s': %s", from, strerror(errno));
    for (struct dirent *entry; (entry = readdir(stream));)
        if (entry->d_name[0] != '.') {
            name = arena_more(arena, name, n, sizeof *name);
            name[n++] = arena_string(arena, entry->d_name);
        }
    closedir(stream);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < n; i++) {
            bool waits = strcmp(name[i], "config.json") == 0 || strcmp(name[i], "params.json") == 0;
            const FilePath old = file_path(from, name[i]), new = file_path(folder, name[i]);
            if (waits == (turn == 1) && rename(old.text, new.text) != 0)
                return err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", old.text, new.text,
                               strerror(errno));
        }
    save_remove_others(folder, name, n);
    return file_remove_folder(from, err);
}

/* The staging folder holds plain files only, all of them ours. */
static void remove_staging(void *of)
{
    const Save *save = of;
    file_remove_folder(save->folder, NULL);
    close(save->lock);
}

static int make_staging(Save *save, cvn_err *err)
{
    const char *slash = strrchr(save->final, '/');
    const char *beside =
        slash ? arena_stringn(&save->arena, save->final, (size_t)(slash - save->final) + 1) : ".";
    file_clear_left(save->filled ? save->final : beside, save->filled ? NULL
                                                         : slash      ? slash + 1
                                                                      : save->final);
    save->folder = arena_printf(&save->arena, "%s%s.tmp-%ld", save->final,
                                save->filled ? "/model" : "", (long)getpid());
    for (;;) { /* again where another process took it for a dead one's before it was locked */
        if (mkdir(save->folder, 0777) != 0 && errno != EEXIST)
            return err_set(err, CVN_EIO, "cannot create the folder '%s': %s", save->final,
                           strerror(errno));
        save->lock = open(save->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (save->lock < 0 && errno != ENOENT)
            return err_set(err, CVN_EIO, "cannot open the folder '%s': %s", save->folder,
                           strerror(errno));
        if (save->lock >= 0 && file_lock_new(save->folder, save->lock) == 0)
            return CVN_OK;
        if (save->lock >= 0)
            close(save->lock);
    }
}

static int write_staged(Save *save, cvn_err *err)
{
    TRY(make_staging(save, err));
    CLEANUP(remove_staging, save); /* nothing where it was renamed */
    TRY(write_all(save, err));
    if (save->filled)
        return save_move_into(save->folder, save->final, &save->arena, err);
    return rename(save->folder, save->final) == 0
               ? CVN_OK
               : err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", save->folder, save->final,
                         strerror(errno));
}

static int save_all(void *of, cvn_err *err)
{
    Save *save = of;
    uint64_t bytes = 0;
    const bool exists = file_exists(save->final);
    save->filled = exists && !file_folder_is_empty(save->final);
    if (exists && !file_is_folder(save->final))
        return err_set(err, CVN_EIO, "'%s' exists and is not a folder", save->final);
    if (save->filled && !save->options->force)
        return err_set(err, CVN_EIO, "'%s' is not empty; give another folder or --force",
                       save->final);
    TRY(format_hf(&save->out, &save->format, err));
    for (size_t i = 0; i < save->out.n_files; i++)
        bytes += save->out.file[i].bytes;
    TRY(capacity_check_disk(save->final, bytes, err));
    return write_staged(save, err);
}

int save_model(const char *folder, const IoModel *model, const SaveOptions *options, cvn_err *err)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    Save save = {.options = options,
                 .format = {.type = weight_type_find(cvn_dtype_name(options->dtype)),
                            .shard_bytes = options->shard_bytes}};
    if (model_quant(model->desc).kind != QUANT_NONE)
        return err_set(err, CVN_EUNSUPPORTED,
                       "'%s' is quantized; convert the original model instead", model->path);
    TRY(arena_init(&save.arena, err));
    save.final = arena_stringn(&save.arena, folder, n);
    save.out = (Out){.arena = &save.arena,
                     .model = model,
                     .threads = options->threads,
                     .interrupt = options->interrupt};
    int code = protect(save_all, &save, "writing a model", err);
    arena_free(&save.arena);
    return code;
}

int save_folder(const char *folder, const Model *desc, const SaveOptions *options, IoFill *fill,
                void *context, cvn_err *err)
{
    SCOPED(io_close_model) IoModel model = {0};
    TRY(io_filled_model(&model, folder, desc, fill, context, err));
    return save_model(folder, &model, options, err);
}
