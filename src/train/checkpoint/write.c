#include "train/checkpoint/checkpoint.h"

#include "base/crc32c.h"
#include "io/safetensors.h"
#include "io/save.h"
#include "io/save_files.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/shards.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct Writing {
    const CheckpointState *state;
    const CheckpointOptions *options;
    const char *folder; /* step-N.partial */
    Arena arena;        /* names, params, the manifest */
    ParamList params;   /* of the config; n = 0 without one */
    Map param_of;       /* Hugging Face name -> index in params */
    Manifest manifest;  /* grows as files are written; file has room for all */
    SaveFiles group[2]; /* of whole tensors: the model's, the optimizer's */
    ManifestFile *here; /* [n_local] of shards: the files of this process; the arena's */
    ManifestFile *all;  /* [n_files] those of all processes; the arena's */
} Writing;

#define WRITING "writing a checkpoint"

/* "model" or "optimizer": tensors of one kind, by their index in the state. */
static SaveFiles make_group(Writing *w, const char *name, bool optimizer, uint64_t limit)
{
    const CheckpointState *state = w->state;
    SaveFiles files = save_files(name, limit, state->n, &w->arena);
    for (int i = 0; i < state->n; i++) {
        const char *own = state->tensor[i].name;
        bool kept = strncmp(own, CHECKPOINT_OPTIMIZER, sizeof CHECKPOINT_OPTIMIZER - 1) == 0;
        if (kept == optimizer)
            save_files_add(&files, i, own, cvn_type_bytes(&state->tensor[i].type));
    }
    return files;
}

static void list_file(Writing *w, const char *name, uint64_t bytes, uint32_t crc)
{
    w->manifest.file[w->manifest.n++] = (ManifestFile){name, bytes, crc};
}

/* A slice says where it lies. Of a whole tensor the shape in the file is Hugging Face's, where it is a parameter of the
   config. */
static int declare(Writing *w, StWriter *writer, const CheckpointSlice *piece, cvn_err *err)
{
    const CheckpointTensor *tensor = &w->state->tensor[piece->tensor];
    const Box *box = &piece->at.box;
    const uint64_t *index = map_get(&w->param_of, tensor->name, strlen(tensor->name));
    const Param *param = index ? &w->params.param[*index] : NULL;
    if (w->state->shards)
        TRY(st_writer_metadata(writer, tensor->name, checkpoint_box_text(box, &w->arena), err));
    else if (param && param->n == cvn_type_elements(&tensor->type))
        return st_writer_declare(writer, tensor->name, tensor->type.dtype, param->file_rank,
                                 param->file_dims, err);
    return st_writer_declare(writer, tensor->name, tensor->type.dtype, box->rank, box->count, err);
}

static int write_piece(Writing *w, StWriter *writer, size_t index, const CheckpointSlice *piece,
                       cvn_err *err)
{
    const CheckpointTensor *tensor = &w->state->tensor[piece->tensor];
    const BoxArray packed = box_packed(&piece->at.box);
    size_t size = cvn_dtype_bytes(tensor->type.dtype, 1);
    size_t bytes = (size_t)box_elements(&packed.box) * size;
    if (piece->data || bytes == 0) { /* of the array that holds it, without its padding */
        BoxWalk walk;
        box_walk(&walk, &packed.box, &piece->at, &packed);
        while (box_next(&walk))
            TRY(st_writer_data(writer, index, (const char *)piece->data + (size_t)walk.a * size,
                               (size_t)walk.n * size, err));
        return CVN_OK;
    }
    SCOPED(scoped_free) void *data = malloc(bytes);
    TRY(data ? w->state->read(w->state->context, piece->tensor, &packed, data, err)
             : err_set(err, CVN_EMEM, "no memory for '%s'", tensor->name));
    return st_writer_data(writer, index, data, bytes, err);
}

/* Which file, of those of a group or of those of this process (group NULL), a piece goes into. */
static int file_of(const SaveFiles *group, const CheckpointSlice *piece)
{
    return group ? group->file[piece->tensor] : piece->file;
}

static int write_pieces(Writing *w, StWriter *writer, const SaveFiles *group, int file,
                        cvn_err *err)
{
    int n = checkpoint_pieces(w->state);
    size_t index = 0;
    if (group)
        TRY(st_writer_metadata(writer, "format", "pt", err));
    for (int i = 0; i < n; i++) {
        const CheckpointSlice piece = checkpoint_piece(w->state, i);
        if (file_of(group, &piece) == file)
            TRY(declare(w, writer, &piece, err));
    }
    TRY(st_writer_begin(writer, err));
    for (int i = 0; i < n; i++) {
        const CheckpointSlice piece = checkpoint_piece(w->state, i);
        if (file_of(group, &piece) == file)
            TRY(write_piece(w, writer, index++, &piece, err));
    }
    return st_writer_commit(writer, err);
}

static int write_file(Writing *w, const char *name, const SaveFiles *group, int file,
                      ManifestFile *listed, cvn_err *err)
{
    StWriter writer;
    int code = st_writer_open(&writer, arena_printf(&w->arena, "%s/%s", w->folder, name), err);
    CLEANUP(st_writer_release, &writer);
    TRY(code);
    TRY(write_pieces(w, &writer, group, file, err));
    *listed = (ManifestFile){name, writer.file.position, writer.file.crc};
    return CVN_OK;
}

/* Lists a file that was written by other means, as it reads back. */
static int list_small(Writing *w, const char *name, cvn_err *err)
{
    SCOPED(file_unmap) FileMap map = {0};
    TRY(file_map(&map, arena_printf(&w->arena, "%s/%s", w->folder, name), err));
    list_file(w, name, map.size, crc32c(0, map.data, map.size));
    return CVN_OK;
}

static int copy_small(Writing *w, const char *from, const char *name, cvn_err *err)
{
    TRY(file_copy(from, arena_printf(&w->arena, "%s/%s", w->folder, name), err));
    return list_small(w, name, err);
}

/* What makes the folder one that other programs load: configs, the tokenizer, and what stands beside it. */
static int write_companions(Writing *w, cvn_err *err)
{
    if (w->options->lora) {
        TRY(lora_config_write(w->options->lora, w->options->base, w->folder, err));
        TRY(list_small(w, LORA_CONFIG_NAME, err));
    } else if (w->options->config) {
        Model *saved = model_copy(w->options->config, &w->arena);
        model_set_dtype(saved, CVN_F32);
        TRY(model_write(saved, w->folder, err));
        TRY(list_small(w, "config.json", err));
        TRY(list_small(w, "generation_config.json", err));
    }
    if (!w->options->tokenizer)
        return CVN_OK;
    const char *from = w->options->tokenizer, *slash = strrchr(from, '/');
    int beside = slash ? (int)(slash - from) + 1 : 0;
    TRY(copy_small(w, from, arena_string(&w->arena, from + beside), err));
    for (int i = TOKENIZER_KINDS; tokenizer_files[i]; i++) {
        const char *path = arena_printf(&w->arena, "%.*s%s", beside, from, tokenizer_files[i]);
        if (file_exists(path))
            TRY(copy_small(w, path, tokenizer_files[i], err));
    }
    return CVN_OK;
}

static int write_own_shards(void *of, cvn_err *err)
{
    Writing *w = of;
    const CheckpointShards *shards = w->state->shards;
    for (int i = 0; i < shards->n_local; i++)
        TRY(write_file(w, checkpoint_shard_name(shards, shards->first + i, &w->arena), NULL, i,
                       &w->here[i], err));
    return CVN_OK;
}

static int write_files(void *of, cvn_err *err)
{
    Writing *w = of;
    const CheckpointShards *shards = w->state->shards;
    Cluster *cluster = w->options->cluster;
    if (shards) { /* every process its own; then the first one has all of them listed */
        int code = protect(write_own_shards, w, WRITING, err);
        TRY(cluster_together(cluster, CLUSTER_SAVES, code, err));
        TRY(cluster_gather(cluster, CLUSTER_SAVES, w->here, w->all,
                           (size_t)shards->n_local * sizeof *w->here, err));
        for (int i = 0; i < shards->n_files; i++)
            list_file(w, checkpoint_shard_name(shards, i, &w->arena), w->all[i].bytes,
                      w->all[i].crc32c);
    }
    for (const SaveFiles *group = w->group; !shards && group < w->group + 2; group++)
        for (int file = 0; file < group->n; file++)
            TRY(write_file(w, save_files_name(group, file), group, file,
                           &w->manifest.file[w->manifest.n++], err));
    if (!shards && w->group[0].n > 1) {
        TRY(save_files_index(&w->group[0], w->folder, err));
        TRY(list_small(w, SAVE_INDEX, err));
    }
    if (cluster_rank(cluster))
        return CVN_OK;
    TRY(write_companions(w, err));
    TRY(manifest_write(&w->manifest, w->folder, err));
    return file_sync_folder(w->folder, err);
}

/* Gives the folder its name. Where that is taken the two are exchanged, and what was there before
 * (now under the partial name) is removed. */
static int rename_whole(const char *folder, const char *partial, const char *final, cvn_err *err)
{
    bool taken = file_exists(final);
    if (renameat2(AT_FDCWD, partial, AT_FDCWD, final, taken ? RENAME_EXCHANGE : 0) != 0)
        return err_set(err, CVN_EIO,
                       taken ? "cannot exchange '%s' and '%s': %s"
                             : "cannot rename '%s' to '%s': %s",
                       partial, final, strerror(errno));
    TRY(file_sync_folder(folder, err));
    return taken ? file_remove_folder(partial, err) : CVN_OK;
}

/* All that is allocated before the processes write their files, so that none of them gives up where the others meet. */
static int prepare(void *of, cvn_err *err)
{
    Writing *w = of;
    const CheckpointShards *shards = w->state->shards;
    const CheckpointOptions *options = w->options;
    const uint64_t limit = options->file_bytes;
    LoraParams adapters;
    (void)err;
    if (options->config)
        params_list(&w->params, options->config, &w->arena);
    if (options->config && options->lora) {
        lora_params(&adapters, &w->params, options->lora, &w->arena);
        w->params = adapters.list;
    }
    for (int i = 0; i < w->params.n; i++) {
        const char *name = w->params.param[i].file_name[NAMING_HF];
        *map_put(&w->param_of, name, strlen(name), NULL) = (uint64_t)i;
    }
    size_t n_files = 16; /* and those beside the tensors */
    if (shards) {
        w->here = arena_array(&w->arena, (size_t)shards->n_local, sizeof *w->here);
        w->all = arena_array(&w->arena, (size_t)shards->n_files, sizeof *w->all);
        n_files += (size_t)shards->n_files;
    } else { /* PEFT knows no split adapters. */
        w->group[0] = options->lora ? make_group(w, "adapter_model", false, UINT64_MAX)
                                    : make_group(w, "model", false, limit);
        w->group[1] = make_group(w, "optimizer", true, limit);
        n_files += (size_t)(w->group[0].n + w->group[1].n);
    }
    w->manifest.file = arena_array(&w->arena, n_files, sizeof *w->manifest.file);
    w->manifest.n_tensors = (size_t)w->state->n;
    w->manifest.tensor = arena_array(&w->arena, w->manifest.n_tensors, sizeof *w->manifest.tensor);
    for (int i = 0; i < w->state->n; i++)
        w->manifest.tensor[i] =
            (ManifestTensor){w->state->tensor[i].name, w->state->tensor[i].type};
    return CVN_OK;
}

int checkpoint_write(const char *folder, const CheckpointState *state,
                     const CheckpointOptions *options, cvn_err *err)
{
    Writing w = {.state = state,
                 .options = options,
                 .manifest = {.step = state->step,
                              .tokens = state->tokens,
                              .position = state->position,
                              .seed = state->seed,
                              .config = state->config}};
    const FilePath partial = checkpoint_path(folder, state->step, CHECKPOINT_PARTIAL);
    const FilePath final = checkpoint_path(folder, state->step, "");
    const bool first = cluster_rank(options->cluster) == 0;
    TRY(arena_begin(&w.arena, err));
    map_init(&w.param_of, &w.arena);
    w.folder = partial.text;
    int code = protect(prepare, &w, WRITING, err);
    if (code == CVN_OK && first)
        code = file_remove_folder(partial.text, err);
    if (code == CVN_OK && first)
        code = file_make_folder(partial.text, err);
    code = cluster_together(options->cluster, CLUSTER_SAVES, code, err);
    if (code == CVN_OK)
        code = protect(write_files, &w, WRITING, err);
    if (code == CVN_OK && first)
        code = rename_whole(folder, partial.text, final.text, err);
    code = cluster_together(options->cluster, CLUSTER_SAVES, code, err);
    if (code != CVN_OK && first)
        file_remove_folder(partial.text, NULL);
    arena_free(&w.arena);
    return code;
}
