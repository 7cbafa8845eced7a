/* Opening a checkpoint, finding the newest whole one, and putting it back into a state. */
#include "base/crc32c.h"
#include "base/file.h"
#include "io/safetensors.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/folder.h"
#include "train/checkpoint/shards.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Maps one file of the manifest, holds it to its size and checksum, and reads its tensors. */
static int open_file(Checkpoint *checkpoint, const ManifestFile *file, bool verify, cvn_err *err)
{
    FileMap *map = &checkpoint->map[checkpoint->n_maps];
    const char *path = arena_printf(&checkpoint->arena, "%s/%s", checkpoint->folder, file->name);
    TRY(file_map(map, path, err));
    checkpoint->n_maps++;
    if (map->size != file->bytes)
        return err_set(err, CVN_EFORMAT, "'%s' has %zu bytes; its manifest says %" PRIu64, path,
                       map->size, file->bytes);
    if (verify && crc32c(0, map->data, map->size) != file->crc32c)
        return err_set(err, CVN_EFORMAT, "'%s' is corrupt: its checksum differs from its manifest",
                       path);
    if (!io_ends_with(file->name, ".safetensors"))
        return CVN_OK;
    return checkpoint_wholes_add(checkpoint->wholes, path, map->data, map->size, &checkpoint->arena,
                                 err);
}

typedef struct Opening {
    Checkpoint *checkpoint;
    const char *folder;
    int part, n;
} Opening;

static int open_files(void *of, cvn_err *err)
{
    const Opening *o = of;
    Checkpoint *checkpoint = o->checkpoint;
    Arena *arena = &checkpoint->arena;
    TRY(arena_init(arena, err));
    checkpoint->folder = arena_string(arena, o->folder);
    TRY(manifest_read(&checkpoint->manifest, checkpoint->folder, arena, err));
    const size_t files = checkpoint->manifest.n;
    checkpoint->map = arena_array(arena, files, sizeof *checkpoint->map);
    checkpoint->wholes = arena_alloc(arena, sizeof *checkpoint->wholes);
    TRY(checkpoint_wholes_init(checkpoint->wholes, checkpoint->folder, &checkpoint->manifest, arena,
                               err));
    for (size_t i = 0; i < files; i++)
        TRY(open_file(checkpoint, &checkpoint->manifest.file[i],
                      i * (size_t)o->n / files == (size_t)o->part, err));
    return checkpoint_wholes_check(checkpoint->wholes, checkpoint->folder, err);
}

/* Opens a checkpoint as one of `n` processes that each verify the checksums of a part of the files: this one those of part `part`. */
static int open_part(Checkpoint *checkpoint, const char *folder, int part, int n, cvn_err *err)
{
    Opening o = {checkpoint, folder, part, n};
    *checkpoint = (Checkpoint){0};
    int code = protect(open_files, &o, "opening a checkpoint", err);
    if (code != CVN_OK)
        checkpoint_close(checkpoint);
    return code;
}

int checkpoint_open(Checkpoint *checkpoint, const char *folder, cvn_err *err)
{
    return open_part(checkpoint, folder, 0, 1, err);
}

void checkpoint_close(Checkpoint *checkpoint)
{
    for (size_t i = 0; i < checkpoint->n_maps; i++)
        file_unmap(&checkpoint->map[i]);
    arena_free(&checkpoint->arena);
    *checkpoint = (Checkpoint){0};
}

void checkpoint_release(void *checkpoint)
{
    checkpoint_close(checkpoint);
}

/* Says that a run has no checkpoint to continue from, or n of them, none of which is whole. */
static int none_found(const char *run, const char *folder, size_t n, cvn_err *err)
{
    if (n || file_is_folder(folder))
        return err_set(err, CVN_EIO, "'%s' has no complete checkpoint%s", folder,
                       n ? "; all are corrupt"
                         : ": the run ended before its first; start it again");
    if (file_has(run, MANIFEST_NAME))
        return err_set(err, CVN_EIO, "'%s' is a checkpoint; give the folder of its run", run);
    if (file_exists(run) && !file_is_folder(run))
        return err_set(err, CVN_EIO,
                       "'%s' is not a run of caravan train: it is a file; give a folder", run);
    int64_t *steps;
    bool inside = checkpoint_steps(run, &steps, &n, NULL) == CVN_OK && n > 0;
    free(steps);
    if (inside)
        return err_set(err, CVN_EIO,
                       "'%s' is the checkpoints folder of a run; give the run folder above it",
                       run);
    return err_set(err, CVN_EIO, "'%s' is not a run of caravan train: it has no folder checkpoints",
                   run);
}

int checkpoint_open_latest(Checkpoint *checkpoint, const char *run, Cluster *cluster,
                           CheckpointWarn *warn, void *context, cvn_err *err)
{
    SCOPED(scoped_free) int64_t *steps = NULL;
    size_t n = 0;
    *checkpoint = (Checkpoint){0};
    const FilePath folder = checkpoint_folder(run);
    TRY(checkpoint_steps(folder.text, &steps, &n, err));
    bool found = false;
    int code = CVN_OK;
    for (size_t left = n; !found;) {
        cvn_err damage = {0};
        int64_t step = left > 0 ? steps[--left] : -1; /* the first process says which */
        code = cluster_share(cluster, &step, sizeof step, err);
        if (code || step < 0)
            break;
        const FilePath path = checkpoint_path(folder.text, step, "");
        /* On all processes, or on none, with the error of one. */
        int here =
            open_part(checkpoint, path.text, cluster_rank(cluster), cluster_size(cluster), &damage);
        found = cluster_together(cluster, CLUSTER_STEPS, here, &damage) == CVN_OK;
        if (!found && here == CVN_OK)
            checkpoint_close(checkpoint);
        if (!found && warn)
            warn(context, damage.message);
    }
    if (code == CVN_OK && !found)
        code = none_found(run, folder.text, n, err);
    return code;
}

static int check_tensor(const Checkpoint *checkpoint, const CheckpointTensor *tensor, cvn_err *err)
{
    char have[128], want[128];
    const cvn_type *type = &tensor->type;
    const CheckpointWhole *whole = checkpoint_wholes_find(checkpoint->wholes, tensor->name);
    if (!whole)
        return err_set(err, CVN_EFORMAT, "'%s' has no tensor '%s', which this run needs",
                       checkpoint->folder, tensor->name);
    if (cvn_type_equal(&whole->type, type))
        return CVN_OK;
    return err_set(err, CVN_EFORMAT,
                   "'%s': tensor '%s' is %s %s, but this run expects %s %s; resume with the "
                   "options of the run",
                   checkpoint->folder, tensor->name, cvn_dtype_name(whole->type.dtype),
                   io_shape_text(whole->type.dim, whole->type.rank, have, sizeof have),
                   cvn_dtype_name(type->dtype),
                   io_shape_text(type->dim, type->rank, want, sizeof want));
}

/* Names a tensor of the file that the state lacks; NULL when there is none. */
static const char *find_extra(const Checkpoint *checkpoint, const CheckpointState *state)
{
    SCOPED(arena_free) Arena arena = {0};
    Map known;
    const CheckpointWholes *wholes = checkpoint->wholes;
    const char *extra = NULL;
    if (arena_begin(&arena, NULL) != CVN_OK)
        return "(no memory to look)";
    map_init(&known, &arena);
    for (int i = 0; i < state->n; i++)
        map_put(&known, state->tensor[i].name, strlen(state->tensor[i].name), NULL);
    for (int i = 0; i < wholes->n && !extra; i++) {
        const char *name = wholes->whole[i].name;
        extra = map_get(&known, name, strlen(name)) ? NULL : name;
    }
    return extra;
}

void checkpoint_restore_box(const Checkpoint *checkpoint, const CheckpointTensor *tensor,
                            const BoxArray *to, void *target)
{
    checkpoint_whole_copy(checkpoint_wholes_find(checkpoint->wholes, tensor->name), to, target);
}

int checkpoint_restore_counters(const Checkpoint *checkpoint, CheckpointState *state, cvn_err *err)
{
    for (int i = 0; i < state->n; i++)
        TRY(check_tensor(checkpoint, &state->tensor[i], err));
    const char *extra = find_extra(checkpoint, state);
    if (extra)
        return err_set(
            err, CVN_EFORMAT,
            "'%s' has the tensor '%s', which this run does not; resume with the options of the run",
            checkpoint->folder, extra);
    state->step = checkpoint->manifest.step;
    state->tokens = checkpoint->manifest.tokens;
    state->position = checkpoint->manifest.position;
    state->seed = checkpoint->manifest.seed;
    return CVN_OK;
}
