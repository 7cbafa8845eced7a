#include "io/folder.h"

#include "base/json_file.h"
#include "io/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#define SUFFIX ".safetensors"

/* Maps one file into the next slot of folder->map and reads its tensors. */
static int add_file(Folder *folder, const char *path, cvn_err *err)
{
    FileMap *map = &folder->map[folder->n_maps];
    TRY(file_map(map, path, err));
    folder->n_maps++;
    return st_read(&folder->tensors, path, map->data, map->size, NULL, err);
}

/* A shard is a file of the folder itself: no separators, nothing hidden, so no "../x". */
static bool is_plain_name(const char *name)
{
    return name[0] != '.' && !strchr(name, '/') && !strchr(name, '\\') &&
           io_ends_with(name, SUFFIX);
}

/* Opens every distinct shard of the weight map, in order of first mention. */
static int open_shards(Folder *folder, const char *path, const char *index, json_t *weight_map,
                       Map *shard_of, cvn_err *err)
{
    Arena *arena = folder->tensors.arena;
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value)
    {
        const char *shard = json_string_value(value);
        if (!shard || !is_plain_name(shard))
            return err_set(err, CVN_EFORMAT,
                           "'%s' puts tensor '%s' into '%s', which is not a *" SUFFIX
                           " file name of that folder",
                           index, name, shard ? shard : "(not a string)");
        bool added;
        uint64_t *slot = map_put(shard_of, shard, strlen(shard), &added);
        if (!added)
            continue;
        const char *shard_path = arena_printf(arena, "%s/%s", path, shard);
        *slot = (uint64_t)(uintptr_t)shard_path;
        int code = file_exists(shard_path)
                       ? add_file(folder, shard_path, err)
                       : err_set(err, CVN_EIO, "'%s' lists the shard '%s', which is missing", index,
                                 shard);
        if (code != CVN_OK)
            return code;
    }
    return CVN_OK;
}

/* Every tensor listed is in its shard, and every tensor in a shard is listed. */
static int check_index(const Folder *folder, const char *index, json_t *weight_map,
                       const Map *shard_of, cvn_err *err)
{
    const char *name;
    json_t *value;
    json_object_foreach(weight_map, name, value)
    {
        const char *shard = json_string_value(value);
        const IoTensor *tensor = io_tensors_find(&folder->tensors, name);
        const char *want = (const char *)(uintptr_t)*map_get(shard_of, shard, strlen(shard));
        if (!tensor)
            return err_set(err, CVN_EFORMAT,
                           "'%s' lists tensor '%s' in '%s', which does not hold it", index, name,
                           shard);
        if (strcmp(tensor->file, want) != 0)
            return err_set(err, CVN_EFORMAT, "'%s' lists tensor '%s' in '%s', but it is in '%s'",
                           index, name, shard, tensor->file);
    }
    for (size_t i = 0; i < folder->tensors.n; i++)
        if (!json_object_get(weight_map, folder->tensors.tensor[i].name))
            return err_set(err, CVN_EFORMAT, "'%s' does not list tensor '%s', which is in '%s'",
                           index, folder->tensors.tensor[i].name, folder->tensors.tensor[i].file);
    return CVN_OK;
}

static int open_indexed(Folder *folder, const char *path, const char *index, cvn_err *err)
{
    json_t *root = json_object_read(index, err);
    if (!root)
        return CVN_EFORMAT;
    int code;
    Cleanup cleanup;
    cleanup_push(&cleanup, json_release, root);
    json_t *weight_map = json_object_get(root, "weight_map");
    if (!json_is_object(weight_map) || json_object_size(weight_map) == 0) {
        code = err_set(err, CVN_EFORMAT, "'%s' has no \"weight_map\" object with tensors", index);
        goto done;
    }
    /* There are no more shards than tensors. */
    folder->map =
        arena_array(folder->tensors.arena, json_object_size(weight_map), sizeof *folder->map);
    Map shard_of; /* shard file name -> its path, the same string as in IoTensor.file */
    map_init(&shard_of, folder->tensors.arena);
    if ((code = open_shards(folder, path, index, weight_map, &shard_of, err)) == CVN_OK)
        code = check_index(folder, index, weight_map, &shard_of, err);
done:
    cleanup_run(&cleanup);
    return code;
}

static void close_folder(void *stream)
{
    closedir(stream);
}

/* The one *.safetensors file of the folder, in the arena; NULL with an error when it is not one. */
static const char *only_file(const char *path, Arena *arena, cvn_err *err)
{
    const char *found = NULL;
    int n = 0;
    bool pickled = false, slices = false;
    Cleanup cleanup;
    DIR *stream = opendir(path);
    if (!stream) {
        err_set(err, CVN_EIO, "cannot read the folder '%s': %s", path, strerror(errno));
        return NULL;
    }
    cleanup_push(&cleanup, close_folder, stream);
    for (struct dirent *entry; (entry = readdir(stream));) {
        pickled |= io_ends_with(entry->d_name, ".bin") || io_ends_with(entry->d_name, ".pth") ||
                   io_ends_with(entry->d_name, ".pt");
        if (!is_plain_name(entry->d_name))
            continue;
        slices |= strncmp(entry->d_name, "shard-", 6) == 0;
        n++;
        found = arena_printf(arena, "%s/%s", path, entry->d_name);
    }
    cleanup_run(&cleanup);
    if (slices && file_exists(arena_printf(arena, "%s/manifest.json", path))) {
        err_set(
            err, CVN_EFORMAT,
            "'%s' is a checkpoint of a mesh, whose files hold slices of tensors; make a model of "
            "it with caravan export '%s' MODEL, or a run for one device with caravan reshard",
            path, path);
        return NULL;
    }
    if (n == 1)
        return found;
    if (n == 0)
        err_set(err, CVN_EIO, "'%s' has no *" SUFFIX " file%s", path,
                pickled ? "; pickled weights must be saved as safetensors first" : "");
    else
        err_set(err, CVN_EIO,
                "'%s' has %d *" SUFFIX " files but neither model" SUFFIX " nor model" SUFFIX
                ".index.json, so which of them belong to the model is unclear",
                path, n);
    return NULL;
}

int folder_open(Folder *folder, const char *path, Arena *arena, cvn_err *err)
{
    Cleanup cleanup;
    *folder = (Folder){0};
    cleanup_push(&cleanup, folder_release, folder);
    io_tensors_init(&folder->tensors, arena);
    const char *single = arena_printf(arena, "%s/model" SUFFIX, path);
    const char *index = arena_printf(arena, "%s/model" SUFFIX ".index.json", path);
    int code;
    if (!file_exists(single) && file_exists(index)) {
        code = open_indexed(folder, path, index, err);
    } else if (!file_exists(single) && !(single = only_file(path, arena, err))) {
        code = CVN_EIO;
    } else {
        folder->map = arena_alloc(arena, sizeof *folder->map);
        code = add_file(folder, single, err);
    }
    if (code != CVN_OK)
        cleanup_run(&cleanup);
    else
        cleanup_cancel(&cleanup);
    return code;
}

void folder_release(void *folder)
{
    folder_close(folder);
}

void folder_close(Folder *folder)
{
    for (size_t i = 0; i < folder->n_maps; i++)
        file_unmap(&folder->map[i]);
    *folder = (Folder){0};
}
