#include "io/save_files.h"

#include "base/json_file.h"

#include <string.h>

static const uint64_t default_limit = 5000000000;

SaveFiles save_files(const char *name, uint64_t limit, int n_tensors, Arena *arena)
{
    SaveFiles files = {.name = name, .limit = limit ? limit : default_limit, .arena = arena};
    files.tensor = arena_array(arena, (size_t)n_tensors, sizeof *files.tensor);
    files.file = arena_array(arena, (size_t)n_tensors, sizeof *files.file);
    files.pieces = arena_array(arena, (size_t)n_tensors, sizeof *files.pieces);
    while (files.n_tensors < n_tensors)
        files.file[files.n_tensors++] = -1;
    return files;
}

void save_files_add(SaveFiles *files, int i, const char *tensor, uint64_t bytes)
{
    if (files->n == 0 || (bytes > 0 && files->used > 0 && files->used + bytes > files->limit)) {
        files->n++;
        files->used = 0;
    }
    files->used += bytes;
    files->total += bytes;
    files->tensor[i] = tensor;
    files->file[i] = files->n - 1;
}

const char *save_files_name(const SaveFiles *files, int file)
{
    if (files->n == 1)
        return arena_printf(files->arena, "%s.safetensors", files->name);
    return arena_printf(files->arena, "%s-%05d-of-%05d.safetensors", files->name, file + 1,
                        files->n);
}

json_t *save_files_json(const SaveFiles *files)
{
    json_t *weight_map = json_object();
    for (int i = 0; i < files->n_tensors; i++)
        for (int64_t e = 0; files->file[i] >= 0 && e < (files->pieces[i] ? files->pieces[i] : 1);
             e++) {
            const char *name = files->tensor[i],
                       *piece = files->pieces[i] ? strstr(name, "%d") : NULL;
            if (piece)
                name = arena_printf(files->arena, "%.*s%lld%s", (int)(piece - name), name,
                                    (long long)e, piece + 2);
            weight_map =
                json_with(weight_map, name, json_string(save_files_name(files, files->file[i])));
        }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)files->total,
                     "weight_map", weight_map);
}

int save_files_index(const SaveFiles *files, const char *folder, cvn_err *err)
{
    const char *path = arena_printf(files->arena, "%s/" SAVE_INDEX, folder);
    json_auto_t *root = save_files_json(files);
    return root ? json_file_write(path, root, err)
                : err_set(err, CVN_EMEM, "no memory to write '%s'", path);
}
