#include "io/save.h"

#include "base/file.h"
#include "base/json_file.h"
#include "base/room.h"
#include "base/threads.h"
#include "io/convert.h"
#include "io/safetensors.h"
#include "io/save_quantized.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_SHARD_BYTES UINT64_C(5000000000)
#define INDEX_NAME "model.safetensors.index.json"
#define PIECE ((int64_t)1 << 16)

const char *const tokenizer_files[] = {"tokenizer.json",
                                       "tokenizer.model",
                                       "tokenizer_config.json",
                                       "special_tokens_map.json",
                                       "added_tokens.json",
                                       "chat_template.jinja",
                                       NULL};

/* One save: what is written, and into which folder at the moment. */
typedef struct Save {
    const char *folder;        /* being filled: the staging folder, or the final one when forced */
    const LlamaConfig *config; /* with the file's dtype */
    const SaveOptions *options;
    SaveFill fill;
    void *context;
    Arena arena; /* params, shard_of, names */
    ParamList params;
    int *shard_of; /* [params.n]: shard of each parameter, from 0 */
    int n_shards;
    Pool *pool; /* owned */
} Save;

/* Fills shards in order of the table, opening the next one when a tensor would not fit. */
static void plan_shards(Save *save)
{
    uint64_t limit = save->options->shard_bytes ? save->options->shard_bytes : DEFAULT_SHARD_BYTES;
    uint64_t used = 0;
    save->shard_of = arena_array(&save->arena, (size_t)save->params.n, sizeof *save->shard_of);
    for (int i = 0; i < save->params.n; i++) {
        const Param *param = &save->params.param[i];
        uint64_t bytes = param_bytes(param, save->options->dtype);
        if (param->form == PARAM_SCALES) /* beside its matrix, below */
            continue;
        if (param->form == PARAM_PANELS)
            bytes += param_bytes(&save->params.param[param->scale], save->options->dtype);
        if (i > 0 && used + bytes > limit) {
            save->n_shards++;
            used = 0;
        }
        save->shard_of[i] = save->n_shards;
        if (param->form == PARAM_PANELS)
            save->shard_of[param->scale] = save->n_shards;
        used += bytes;
    }
    save->n_shards++;
}

static const char *shard_name(Save *save, int shard)
{
    if (save->n_shards == 1)
        return "model.safetensors";
    return arena_printf(&save->arena, "model-%05d-of-%05d.safetensors", shard + 1, save->n_shards);
}

/* What the threads do together: elements first .. first+n-1 of a parameter, each thread one range. */
typedef struct Fill {
    const Save *save;
    const Param *param;
    int64_t first, n;
    float *values;    /* [n] */
    uint8_t *encoded; /* [n] of the file's type */
    cvn_err *err;     /* [threads], the first error of each */
} Fill;

static void fill_range(void *context, int thread, int n_threads)
{
    const Fill *fill = context;
    const Save *save = fill->save;
    int64_t begin = fill->n * thread / n_threads, end = fill->n * (thread + 1) / n_threads;
    if (begin == end || fill->err[thread].code != CVN_OK ||
        save->fill(save->context, fill->param, fill->first + begin, end - begin,
                   fill->values + begin, &fill->err[thread]) != CVN_OK)
        return;
    io_encode(save->options->dtype, fill->values + begin, end - begin,
              fill->encoded + cvn_dtype_bytes(save->options->dtype, begin));
}

static int check_interrupt(const Save *save, cvn_err *err)
{
    const volatile int *interrupt = save->options->interrupt;
    return interrupt && *interrupt
               ? err_set(err, CVN_EINTERRUPTED, "interrupted while writing '%s'", save->folder)
               : CVN_OK;
}

static int write_param(Save *save, StWriter *writer, size_t index, Fill *fill, cvn_err *err)
{
    int64_t piece = PIECE * pool_threads(save->pool), total = fill->param->n;
    for (fill->first = 0; fill->first < total; fill->first += piece) {
        fill->n = total - fill->first < piece ? total - fill->first : piece;
        int code = check_interrupt(save, err);
        if (code != CVN_OK)
            return code;
        pool_run(save->pool, fill_range, fill);
        for (int t = 0; t < pool_threads(save->pool); t++)
            if (fill->err[t].code != CVN_OK)
                return err_set(err, fill->err[t].code, "%s", fill->err[t].message);
        code = st_writer_data(writer, index, fill->encoded,
                              cvn_dtype_bytes(save->options->dtype, fill->n), err);
        if (code != CVN_OK)
            return code;
    }
    return CVN_OK;
}

/* A matrix in panels is followed by its scales. */
static int declare_param(Save *save, StWriter *writer, const Param *param, cvn_err *err)
{
    bool plain = param->form == PARAM_PLAIN;
    if (param->form == PARAM_SCALES)
        return CVN_OK;
    int code = st_writer_declare(writer, param->file_name[NAMING_HF],
                                 plain ? save->options->dtype : CVN_I8, param->file_rank,
                                 param->file_dims, err);
    if (plain || code)
        return code;
    const Param *scale = &save->params.param[param->scale];
    return st_writer_declare(writer, scale->file_name[NAMING_HF], param->quant.scale_dtype,
                             scale->file_rank, scale->file_dims, err);
}

static int write_shard(Save *save, int shard, cvn_err *err)
{
    StWriter writer;
    size_t index = 0;
    size_t threads = (size_t)pool_threads(save->pool), piece = (size_t)PIECE * threads;
    Fill fill = {.save = save,
                 .values = malloc(piece * sizeof *fill.values),
                 .encoded = malloc(piece * sizeof *fill.values),
                 .err = calloc(threads, sizeof *fill.err)};
    const char *path = arena_printf(&save->arena, "%s/%s", save->folder, shard_name(save, shard));
    int code = st_writer_open(&writer, path, err);
    if (code == CVN_OK && (!fill.values || !fill.encoded || !fill.err))
        code = err_set(err, CVN_EMEM, "no memory to write '%s'", path);
    if (code == CVN_OK)
        code = st_writer_metadata(&writer, "format", "pt", err);
    for (int i = 0; i < save->params.n && code == CVN_OK; i++) {
        if (save->shard_of[i] == shard)
            code = declare_param(save, &writer, &save->params.param[i], err);
    }
    if (code == CVN_OK)
        code = st_writer_begin(&writer, err);
    for (int i = 0; i < save->params.n && code == CVN_OK; i++) {
        fill.param = &save->params.param[i];
        if (save->shard_of[i] != shard || fill.param->form == PARAM_SCALES)
            continue;
        if (fill.param->form == PARAM_PLAIN) {
            code = write_param(save, &writer, index++, &fill, err);
        } else {
            code = check_interrupt(save, err);
            if (code == CVN_OK)
                code = save_quantized(&writer, index, fill.param, save->fill, save->context,
                                      save->pool, err);
            index += 2;
        }
    }
    if (code == CVN_OK)
        code = st_writer_commit(&writer, err);
    st_writer_free(&writer);
    free(fill.values);
    free(fill.encoded);
    free(fill.err);
    return code;
}

static int write_index(Save *save, cvn_err *err)
{
    json_t *weight_map = json_object();
    uint64_t total = 0;
    for (int i = 0; i < save->params.n; i++) {
        const Param *param = &save->params.param[i];
        total += param_bytes(param, save->options->dtype);
        json_object_set_new(weight_map, param->file_name[NAMING_HF],
                            json_string(shard_name(save, save->shard_of[i])));
    }
    json_t *root = json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)total,
                             "weight_map", weight_map);
    const char *path = arena_printf(&save->arena, "%s/" INDEX_NAME, save->folder);
    int code = root ? json_file_write(path, root, err)
                    : err_set(err, CVN_EMEM, "no memory to write '%s'", path);
    json_decref(root);
    return code;
}

static int copy_into(Save *save, const char *from, cvn_err *err)
{
    const char *slash = strrchr(from, '/');
    const char *name = slash ? slash + 1 : from;
    return file_copy(from, arena_printf(&save->arena, "%s/%s", save->folder, name), err);
}

static int copy_tokenizer(Save *save, cvn_err *err)
{
    const SaveOptions *o = save->options;
    int code = o->tokenizer ? copy_into(save, o->tokenizer, err) : CVN_OK;
    for (size_t i = 0; o->tokenizer_folder && tokenizer_files[i] && !code; i++) {
        const char *path =
            arena_printf(&save->arena, "%s/%s", o->tokenizer_folder, tokenizer_files[i]);
        if (file_exists(path))
            code = copy_into(save, path, err);
    }
    return code;
}

/* Everything into save->folder, the config last: without it a folder is no model. */
static int write_all(Save *save, cvn_err *err)
{
    int code = copy_tokenizer(save, err);
    for (int shard = 0; shard < save->n_shards && code == CVN_OK; shard++)
        code = write_shard(save, shard, err);
    if (code == CVN_OK && save->n_shards > 1)
        code = write_index(save, err);
    if (code == CVN_OK)
        code = llama_config_write(save->config, save->folder, err);
    return code;
}

static bool is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Entries of a folder; 0 when it does not exist. */
static int count_entries(const char *folder)
{
    DIR *stream = opendir(folder);
    int n = 0;
    if (!stream)
        return 0;
    for (struct dirent *entry; (entry = readdir(stream));)
        n += !is_dot(entry->d_name);
    closedir(stream);
    return n;
}

/* Whether a file of a model folder is one that we write weights to. */
static bool is_weight_file(const char *name)
{
    int a, b, end = 0;
    return strcmp(name, "model.safetensors") == 0 || strcmp(name, INDEX_NAME) == 0 ||
           (sscanf(name, "model-%5d-of-%5d.safetensors%n", &a, &b, &end) == 2 && end > 0 &&
            name[end] == '\0');
}

/* Removes weight files that this save has not written: they belong to the model before it. */
static void remove_stale_weights(Save *save)
{
    DIR *stream = opendir(save->folder);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));) {
        bool keep = !is_weight_file(entry->d_name) ||
                    (save->n_shards > 1 && strcmp(entry->d_name, INDEX_NAME) == 0);
        for (int shard = 0; shard < save->n_shards && !keep; shard++)
            keep = strcmp(entry->d_name, shard_name(save, shard)) == 0;
        if (!keep)
            unlinkat(dirfd(stream), entry->d_name, 0);
    }
    closedir(stream);
}

/* The staging folder holds plain files only, all of them ours. */
static void remove_staging(const char *folder)
{
    DIR *stream = opendir(folder);
    if (!stream)
        return;
    for (struct dirent *entry; (entry = readdir(stream));)
        if (!is_dot(entry->d_name))
            unlinkat(dirfd(stream), entry->d_name, 0);
    closedir(stream);
    rmdir(folder);
}

static int write_staged(Save *save, const char *folder, cvn_err *err)
{
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    const char *final = arena_stringn(&save->arena, folder, n);
    save->folder = arena_printf(&save->arena, "%s.tmp-%ld", final, (long)getpid());
    if (mkdir(save->folder, 0777) != 0 && errno != EEXIST)
        return err_set(err, CVN_EIO, "cannot make the folder '%s': %s", final, strerror(errno));
    int code = write_all(save, err);
    if (code == CVN_OK && rename(save->folder, final) != 0)
        code = err_set(err, CVN_EIO, "cannot rename '%s' to '%s': %s", save->folder, final,
                       strerror(errno));
    if (code != CVN_OK)
        remove_staging(save->folder);
    return code;
}

static int check_room(const Save *save, cvn_err *err)
{
    uint64_t bytes = 0;
    for (int i = 0; i < save->params.n; i++)
        bytes += param_bytes(&save->params.param[i], save->options->dtype);
    return room_check_disk(save->folder, bytes, err);
}

int save_folder(const char *folder, const LlamaConfig *config, const SaveOptions *options,
                SaveFill fill, void *context, cvn_err *err)
{
    LlamaConfig saved = *config;
    saved.dtype = options->dtype;
    Save save = {
        .folder = folder, .config = &saved, .options = options, .fill = fill, .context = context};
    bool exists = file_exists(folder);
    bool filled = exists && count_entries(folder) > 0;
    int code = llama_config_check(&saved, folder, err);
    if (code != CVN_OK)
        return code;
    if (saved.rope_interleaved)
        return err_set(err, CVN_EINVAL, "'%s': interleaved rotary pairs have no Hugging Face form",
                       folder);
    if (exists && !file_is_folder(folder))
        return err_set(err, CVN_EIO, "'%s' exists and is no folder", folder);
    if (filled && !options->force)
        return err_set(err, CVN_EIO, "'%s' is not empty; give another folder or --force", folder);
    if ((code = arena_init(&save.arena, err)) != CVN_OK)
        return code;
    if (!(save.pool = pool_new(options->threads, err))) {
        arena_free(&save.arena);
        return CVN_EINVAL;
    }
    params_list(&save.params, &saved, &save.arena);
    plan_shards(&save);
    code = check_room(&save, err);
    if (code != CVN_OK) {
        /* nothing is begun */
    } else if (filled) {
        code = write_all(&save, err);
        if (code == CVN_OK)
            remove_stale_weights(&save);
    } else {
        code = write_staged(&save, folder, err);
    }
    pool_free(save.pool);
    arena_free(&save.arena);
    return code;
}
