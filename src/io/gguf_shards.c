/*
 * GGUF files that are one of several: NAME-00001-of-00003.gguf has the model's keys, and each file a header of its own with
 * the tensors that are in it. split.no (from 0), split.count and split.tensors.count say so in every one.
 */
#include "io/gguf.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_SHARDS = 9999, ENDING = 64 };

/* "-00002-of-00003.gguf" */
static const char *ending_of(int64_t shard, int64_t shards, char text[ENDING])
{
    snprintf(text, ENDING, "-%05" PRId64 "-of-%05" PRId64 ".gguf", shard, shards);
    return text;
}

static int add_shard(Gguf *gguf, FileMap *map, size_t *n_maps, const char *path, int64_t count,
                     cvn_err *err)
{
    Gguf shard;
    int64_t index = (int64_t)*n_maps, no = -1, of = -1;
    TRY(file_map(&map[index], path, err));
    *n_maps += 1;
    TRY(gguf_read(&shard, path, map[index].data, map[index].size, gguf->tensors.arena, err));
    gguf_int(&shard, "split.no", &no);
    gguf_int(&shard, "split.count", &of);
    if (no != index || of != count)
        return err_set(err, CVN_EFORMAT,
                       "'%s' says that it is shard %" PRId64 " of %" PRId64 " where shard %" PRId64
                       " of %" PRId64 " is expected",
                       path, no + 1, of, index + 1, count);
    for (size_t i = 0; i < shard.tensors.n; i++)
        TRY(io_tensors_add(&gguf->tensors, &shard.tensors.tensor[i], err));
    return CVN_OK;
}

static int add_shards(Gguf *gguf, FileMap **map, size_t *n_maps, int64_t count, cvn_err *err)
{
    Arena *arena = gguf->tensors.arena;
    const FileMap first = **map;
    const char *path = gguf->file;
    char ending[ENDING];
    int64_t no = 0, tensors = -1;
    gguf_int(gguf, "split.no", &no);
    if (no != 0 || !io_ends_with(path, ending_of(1, count, ending)))
        return err_set(err, CVN_EFORMAT,
                       "'%s' is shard %" PRId64 " of %" PRId64
                       "; give the first shard, whose name ends with '%s', and keep the others in "
                       "the same folder",
                       path, no + 1, count, ending_of(1, count, ending));
    size_t stem = strlen(path) - strlen(ending);
    *map = arena_array(arena, (size_t)count, sizeof **map);
    **map = first;
    for (int64_t i = 1; i < count; i++) {
        const char *name =
            arena_printf(arena, "%.*s%s", (int)stem, path, ending_of(i + 1, count, ending));
        TRY(add_shard(gguf, *map, n_maps, name, count, err));
    }
    if (gguf_int(gguf, "split.tensors.count", &tensors) && tensors != (int64_t)gguf->tensors.n)
        return err_set(err, CVN_EFORMAT,
                       "'%s' and its other shards hold %zu tensors where it says %" PRId64, path,
                       gguf->tensors.n, tensors);
    return CVN_OK;
}

int gguf_open(Gguf *gguf, FileMap **map, size_t *n_maps, const char *path, Arena *arena,
              cvn_err *err)
{
    int64_t count = 1;
    *map = arena_alloc(arena, sizeof **map);
    TRY(file_map(*map, path, err));
    *n_maps = 1;
    TRY(gguf_read(gguf, path, (*map)->data, (*map)->size, arena, err));
    if (!gguf_int(gguf, "split.count", &count) || count == 1)
        return CVN_OK;
    if (count < 1 || count > MAX_SHARDS)
        return err_set(err, CVN_EFORMAT, "'%s': split.count is %" PRId64 "; 1 to %d are expected",
                       path, count, MAX_SHARDS);
    return add_shards(gguf, map, n_maps, count, err);
}
