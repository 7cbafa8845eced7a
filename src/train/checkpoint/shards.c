/* Writing: which slices a device writes, and its file. */
#include "train/checkpoint/shards.h"

#include "io/safetensors.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char *checkpoint_shard_name(const CheckpointShards *shards, int file, Arena *arena)
{
    return arena_printf(arena, "shard-%05d-of-%05d.safetensors", file + 1, shards->n_files);
}

/* Of the devices that hold the same slice, the one whose turn it is. */
static bool writes(const Mesh *mesh, const Sharding *sharding, const cvn_type *type, int tensor,
                   int device, const Region *mine)
{
    int holders = 0, me = 0;
    for (int d = 0; d < mesh->n_devices; d++) {
        Region other = region_of_shard(mesh, sharding, type, d).region;
        if (!region_same(&other, mine))
            continue;
        me = d == device ? holders : me;
        holders++;
    }
    return tensor % holders == me;
}

void checkpoint_shards_add(CheckpointShards *shards, const Mesh *mesh, int file,
                           const CheckpointState *state, const Sharding *sharding,
                           void *const *data)
{
    int device = shards->first + file;
    for (int i = 0; i < state->n; i++) {
        const cvn_type *type = &state->tensor[i].type;
        RegionArray at = region_of_shard(mesh, &sharding[i], type, device);
        if (region_elements(&at.region) == 0 ||
            !writes(mesh, &sharding[i], type, i, device, &at.region))
            continue;
        shards->slice[shards->n_slices++] = (CheckpointSlice){i, file, at, data ? data[i] : NULL};
    }
}

/* "0+16 8+8"; "all" for a scalar. */
static const char *region_text(const Region *region, Arena *arena)
{
    const char *text = region->rank ? "" : "all";
    for (int d = 0; d < region->rank; d++)
        text = arena_printf(arena, "%s%s%" PRId64 "+%" PRId64, text, d ? " " : "", region->first[d],
                            region->count[d]);
    return text;
}

static int declare_slices(StWriter *writer, const CheckpointState *state, int file, Arena *arena,
                          cvn_err *err)
{
    const CheckpointShards *shards = state->shards;
    int code = CVN_OK;
    for (int i = 0; i < shards->n_slices && code == CVN_OK; i++) {
        const CheckpointSlice *slice = &shards->slice[i];
        const CheckpointTensor *tensor = &state->tensor[slice->tensor];
        const Region *region = &slice->at.region;
        if (slice->file != file)
            continue;
        code = st_writer_metadata(writer, tensor->name, region_text(region, arena), err);
        if (code == CVN_OK)
            code = st_writer_declare(writer, tensor->name, tensor->type.dtype, region->rank,
                                     region->count, err);
    }
    return code;
}

/* The slice without its padding. */
static int write_slice(StWriter *writer, size_t index, const CheckpointSlice *slice,
                       const void *data, size_t size, cvn_err *err)
{
    RegionArray packed = region_packed(&slice->at.region);
    RegionWalk w;
    int code = CVN_OK;
    region_walk(&w, &packed.region, &slice->at, &packed);
    while (code == CVN_OK && region_next(&w))
        code = st_writer_data(writer, index, (const char *)data + (size_t)w.a * size,
                              (size_t)w.n * size, err);
    return code;
}

static int write_slices(StWriter *writer, const CheckpointState *state, int file, cvn_err *err)
{
    const CheckpointShards *shards = state->shards;
    int code = CVN_OK;
    size_t index = 0;
    for (int i = 0; i < shards->n_slices && code == CVN_OK; i++) {
        const CheckpointSlice *slice = &shards->slice[i];
        cvn_dtype dtype = state->tensor[slice->tensor].type.dtype;
        if (slice->file != file)
            continue;
        CheckpointSlice asked = *slice;
        void *read = NULL;
        if (!slice->data) {
            asked.at = region_packed(&slice->at.region);
            read = malloc(cvn_dtype_bytes(dtype, region_elements(&slice->at.region)));
            code = read ? state->read(state->context, slice->tensor, &asked.at, read, err)
                        : err_set(err, CVN_EMEM, "no memory for a slice of '%s'",
                                  state->tensor[slice->tensor].name);
        }
        if (code == CVN_OK)
            code = write_slice(writer, index++, &asked, read ? read : slice->data,
                               cvn_dtype_bytes(dtype, 1), err);
        free(read);
    }
    return code;
}

int checkpoint_write_shard(const char *folder, const CheckpointState *state, int file, Arena *arena,
                           ManifestFile *listed, cvn_err *err)
{
    StWriter writer;
    const char *name = checkpoint_shard_name(state->shards, state->shards->first + file, arena);
    int code = st_writer_open(&writer, arena_printf(arena, "%s/%s", folder, name), err);
    if (code == CVN_OK)
        code = declare_slices(&writer, state, file, arena, err);
    if (code == CVN_OK)
        code = st_writer_begin(&writer, err);
    if (code == CVN_OK)
        code = write_slices(&writer, state, file, err);
    if (code == CVN_OK)
        code = st_writer_commit(&writer, err);
    if (code == CVN_OK)
        *listed = (ManifestFile){name, writer.file.position, writer.file.crc};
    st_writer_free(&writer);
    return code;
}

int checkpoint_shards_text(const CheckpointState *state, Arena *arena, const char **text,
                           cvn_err *err)
{
    const CheckpointShards *shards = state->shards;
    json_t *tensors = json_array();
    for (int i = 0; i < state->n; i++) {
        const CheckpointTensor *tensor = &state->tensor[i];
        json_t *shape = json_array();
        for (int d = 0; d < tensor->type.rank; d++)
            json_array_append_new(shape, json_integer(tensor->type.dim[d]));
        json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:s}", "name", tensor->name,
                                                 "dtype", cvn_dtype_name(tensor->type.dtype),
                                                 "shape", shape, "spec", shards->spec[i]));
    }
    json_t *root = json_pack("{s:s, s:s, s:i, s:o}", "axes", shards->mesh, "layout", shards->layout,
                             "files", shards->n_files, "tensors", tensors);
    char *dumped = root ? json_dumps(root, JSON_COMPACT) : NULL;
    *text = dumped ? arena_string(arena, dumped) : NULL;
    json_decref(root);
    free(dumped);
    return *text ? CVN_OK : err_set(err, CVN_EMEM, "no memory for a manifest");
}
