#include "io/save.h"

#include "base/capacity.h"
#include "base/file.h"
#include "base/num.h"
#include "base/threads.h"
#include "io/convert.h"
#include "io/safetensors.h"
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

#define PIECE ((int64_t)1 << 16)

const char *const tokenizer_files[] = {"tokenizer.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       NULL};
static_assert(sizeof tokenizer_files / sizeof *tokenizer_files == TOKENIZER_FILES + 1,
              "their number is said in save.h");

/* One save: what is written, and into which folder at the moment. */
typedef struct Save {
    const char *folder;  /* being filled: the staging folder, or the final one when forced */
    int lock;            /* of the staging folder, open */
    const Model *config; /* with the file's dtype */
    const SaveOptions *options;
    SaveFill fill;
    void *context;
    Arena arena; /* params, files, names */
    ParamList params;
    SaveFiles files; /* by index in params */
    Pool *pool;      /* owned */
    /* What is being written: elements first .. first+n-1 of a parameter. */
    const Param *param;
    int64_t first, n;
    float *values;    /* [n] elements */
    uint8_t *encoded; /* [n] elements of the file's type */
    cvn_err *err;     /* [threads], the first error of each */
} Save;

static void plan_shards(Save *save)
{
    save->files = save_files("model", save->options->shard_bytes, save->params.n, &save->arena);
    for (int i = 0; i < save->params.n; i++) {
        const ParamTensor t = params_tensor(&save->params, i, NAMING_HF);
        uint64_t bytes = 0;
        for (int k = 0; k < t.n; k++)
            bytes += param_bytes(&save->params.param[t.member[k]], save->options->dtype);
        for (int k = 0; k < t.n; k++)
            save_files_add(&save->files, t.member[k], t.name, k ? 0 : bytes);
    }
}

/* What the threads do together: elements first .. first+n-1 of a parameter, each thread one range. */
static void fill_range(void *context, int thread, int n_threads)
{
    const Save *save = context;
    int64_t begin = save->n * thread / n_threads, end = save->n * (thread + 1) / n_threads;
    if (begin == end || save->err[thread].code != CVN_OK ||
        save->fill(save->context, save->param, save->first + begin, end - begin,
                   save->values + begin, &save->err[thread]) != CVN_OK)
        return;
    io_encode(save->options->dtype, save->values + begin, end - begin,
              save->encoded + cvn_dtype_bytes(save->options->dtype, begin));
}

static int check_interrupt(const Save *save, cvn_err *err)
{
    return flag_is_set(save->options->interrupt)
               ? err_set(err, CVN_EINTERRUPTED, "interrupted while writing '%s'", save->folder)
               : CVN_OK;
}

static int run_threads(Save *save, void (*work)(void *, int, int), cvn_err *err)
{
    pool_run(save->pool, work, save);
    for (int t = 0; t < pool_threads(save->pool); t++)
        if (save->err[t].code != CVN_OK)
            return err_set(err, save->err[t].code, "%s", save->err[t].message);
    return CVN_OK;
}

static int write_param(Save *save, StWriter *writer, size_t index, cvn_err *err)
{
    int64_t piece = PIECE * pool_threads(save->pool), total = save->param->n;
    for (save->first = 0; save->first < total; save->first += piece) {
        save->n = num_min(total - save->first, piece);
        TRY(check_interrupt(save, err));
        TRY(run_threads(save, fill_range, err));
        TRY(st_writer_data(writer, index, save->encoded,
                           cvn_dtype_bytes(save->options->dtype, save->n), err));
    }
    return CVN_OK;
}

static int write_params(Save *save, StWriter *writer, int shard, cvn_err *err)
{
    size_t index = 0;
    TRY(st_writer_metadata(writer, "format", "pt", err));
    for (int i = 0; i < save->params.n; i++) {
        const Param *param = &save->params.param[i];
        const ParamTensor t = params_tensor(&save->params, i, NAMING_HF);
        const int64_t dims[PARAM_FILE_RANK] = {t.n > 1 ? t.rows : param->file_dims[0],
                                               param->file_dims[1], param->file_dims[2],
                                               param->file_dims[3]};
        if (save->files.file[i] == shard && t.n)
            TRY(st_writer_declare(writer, t.name, save->options->dtype, param->file_rank, dims,
                                  err));
    }
    TRY(st_writer_begin(writer, err));
    for (int i = 0; i < save->params.n; i++) {
        const ParamTensor t = params_tensor(&save->params, i, NAMING_HF);
        for (int k = 0; k < t.n && save->files.file[i] == shard; k++) {
            save->param = &save->params.param[t.member[k]];
            TRY(check_interrupt(save, err));
            TRY(write_param(save, writer, index, err));
        }
        index += t.n > 0 && save->files.file[i] == shard;
    }
    return st_writer_commit(writer, err);
}

static int write_shard(Save *save, int shard, cvn_err *err)
{
    StWriter writer;
    const char *path =
        arena_printf(&save->arena, "%s/%s", save->folder, save_files_name(&save->files, shard));
    Cleanup cleanup;
    int code = st_writer_open(&writer, path, err);
    cleanup_push(&cleanup, st_writer_release, &writer);
    if (code == CVN_OK)
        code = write_params(save, &writer, shard, err);
    cleanup_run(&cleanup);
    return code;
}

static int copy_into(Save *save, const char *from, cvn_err *err)
{
    const char *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    return file_copy(from, arena_printf(&save->arena, "%s/%s", save->folder, name), err);
}

/* The name by which a tokenizer is looked for in a folder, whatever the file that is copied is called: JSON begins so. */
static const char *tokenizer_name(const char *file)
{
    FileMap map;
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
    for (size_t i = 0; o->tokenizer_folder && tokenizer_files[i]; i++) {
        const char *path =
            arena_printf(&save->arena, "%s/%s", o->tokenizer_folder, tokenizer_files[i]);
        if (file_exists(path))
            TRY(copy_into(save, path, err));
    }
    return CVN_OK;
}

/* Everything into save->folder, the config last: without it a folder is no model. */
static int write_all(Save *save, cvn_err *err)
{
    TRY(copy_tokenizer(save, err));
    for (int shard = 0; shard < save->files.n; shard++)
        TRY(write_shard(save, shard, err));
    if (save->files.n > 1)
        TRY(save_files_index(&save->files, save->folder, err));
    return model_write(save->config, save->folder, err);
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

/* What belongs to the model that was in the folder, and is not replaced by this one's. */
static void remove_old_model(Save *save)
{
    const SaveOptions *o = save->options;
    const char **written =
        arena_array(&save->arena, (size_t)save->files.n + TOKENIZER_FILES + 4, sizeof *written);
    size_t n = 0;
    written[n++] = "config.json";
    written[n++] = "generation_config.json";
    for (int shard = 0; shard < save->files.n; shard++)
        written[n++] = save_files_name(&save->files, shard);
    if (save->files.n > 1)
        written[n++] = SAVE_INDEX;
    if (o->tokenizer)
        written[n++] = tokenizer_name(o->tokenizer);
    for (int i = 0; o->tokenizer_folder && tokenizer_files[i]; i++)
        if (file_has(o->tokenizer_folder, tokenizer_files[i]))
            written[n++] = tokenizer_files[i];
    save_remove_others(save->folder, written, n);
}

/* The staging folder holds plain files only, all of them ours. */
static void remove_staging(void *of)
{
    const Save *save = of;
    file_remove_folder(save->folder, NULL);
    close(save->lock);
}

static int make_staging(Save *save, const char *final, cvn_err *err)
{
    const char *slash = strrchr(final, '/');
    const char *beside =
        slash ? arena_stringn(&save->arena, final, (size_t)(slash - final) + 1) : ".";
    file_clear_left(beside, slash ? slash + 1 : final);
    save->folder = arena_printf(&save->arena, "%s.tmp-%ld", final, (long)getpid());
    for (;;) { /* again where another process took it for a dead one's before it was locked */
        if (mkdir(save->folder, 0777) != 0 && errno != EEXIST)
            return err_set(err, CVN_EIO, "cannot make the folder '%s': %s", final, strerror(errno));
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

static int write_staged(Save *save, const char *folder, cvn_err *err)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    const char *final = arena_stringn(&save->arena, folder, n);
    Cleanup cleanup;
    TRY(make_staging(save, final, err));
    cleanup_push(&cleanup, remove_staging, save);
    int code = write_all(save, err);
    if (code == CVN_OK && rename(save->folder, final) != 0)
        code = err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", save->folder, final,
                       strerror(errno));
    if (code != CVN_OK) {
        cleanup_run(&cleanup);
        return code;
    }
    cleanup_cancel(&cleanup);
    close(save->lock);
    return CVN_OK;
}

static void free_pool(void *pool)
{
    pool_free(pool);
}

static int save_all(void *of, cvn_err *err)
{
    Save *save = of;
    const Model *saved = save->config;
    const SaveOptions *options = save->options;
    const char *folder = save->folder;
    Cleanup cleanup;
    bool exists = file_exists(folder);
    bool filled = exists && !file_folder_is_empty(folder);
    TRY(model_check(saved, folder, err));
    if (!model_has_hf_pairs(saved))
        return err_set(err, CVN_EINVAL, "'%s': interleaved rotary pairs have no Hugging Face form",
                       folder);
    if (exists && !file_is_folder(folder))
        return err_set(err, CVN_EIO, "'%s' exists and is not a folder", folder);
    if (filled && !options->force)
        return err_set(err, CVN_EIO, "'%s' is not empty; give another folder or --force", folder);
    TRY(arena_begin(&save->arena, err));
    if (!(save->pool = pool_new(options->threads, err))) {
        arena_free(&save->arena);
        return CVN_EINVAL;
    }
    cleanup_push(&cleanup, free_pool, save->pool);
    params_list(&save->params, saved, &save->arena);
    plan_shards(save);
    size_t threads = (size_t)pool_threads(save->pool), piece = (size_t)PIECE * threads;
    save->values = arena_array(&save->arena, piece, sizeof *save->values);
    save->encoded = arena_array(&save->arena, piece, sizeof *save->values);
    save->err = arena_array(&save->arena, threads, sizeof *save->err);
    if (filled)
        file_clear_left(save->folder, NULL);
    int code = capacity_check_disk(save->folder, save->files.total, err);
    if (code == CVN_OK)
        code = filled ? write_all(save, err) : write_staged(save, folder, err);
    if (code == CVN_OK && filled)
        remove_old_model(save);
    cleanup_run(&cleanup);
    arena_free(&save->arena);
    return code;
}

int save_folder(const char *folder, const Model *config, const SaveOptions *options, SaveFill fill,
                void *context, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    Model *saved = model_copy(config, &arena);
    model_set_dtype(saved, options->dtype);
    Save save = {
        .folder = folder, .config = saved, .options = options, .fill = fill, .context = context};
    return protect(save_all, &save, "writing a model", err);
}
