/* Writing: which slices a device writes. */
#include "train/checkpoint/shards.h"

#include <inttypes.h>

const char *checkpoint_shard_name(const CheckpointShards *shards, int file, Arena *arena)
{
    return arena_printf(arena, "shard-%05d-of-%05d.safetensors", file + 1, shards->n_files);
}

/* Whether a device is the one that writes a slice, of all that hold the same. */
static bool writes(const Mesh *mesh, const Sharding *sharding, const cvn_type *type, int tensor,
                   int device, const Box *mine)
{
    int holders = 0, me = 0;
    for (int d = 0; d < mesh->n_devices; d++) {
        Box other = box_of_shard(mesh, sharding, type, d).box;
        if (!box_same(&other, mine))
            continue;
        me = d == device ? holders : me;
        holders++;
    }
    return tensor % holders == me;
}

void checkpoint_shards_add(CheckpointShards *shards, const Mesh *mesh, int device, int file,
                           const CheckpointState *state, const Sharding *const *sharding,
                           void *const *data)
{
    for (int i = 0; i < state->n; i++) {
        const cvn_type *type = &state->tensor[i].type;
        if (!sharding[i])
            continue;
        BoxArray at = box_of_shard(mesh, sharding[i], type, device);
        if (box_elements(&at.box) == 0 || !writes(mesh, sharding[i], type, i, device, &at.box))
            continue;
        shards->slice[shards->n_slices++] = (CheckpointSlice){i, file, at, data ? data[i] : NULL};
    }
}

int checkpoint_pieces(const CheckpointState *state)
{
    return state->shards ? state->shards->n_slices : state->n;
}

CheckpointSlice checkpoint_piece(const CheckpointState *state, int i)
{
    if (state->shards)
        return state->shards->slice[i];
    const Box whole = box_whole(&state->tensor[i].type);
    return (CheckpointSlice){i, 0, box_packed(&whole), state->tensor[i].data};
}

/* "0+16 8+8"; "all" for a scalar. */
const char *checkpoint_box_text(const Box *box, Arena *arena)
{
    const char *text = box->rank ? "" : "all";
    for (int d = 0; d < box->rank; d++)
        text = arena_printf(arena, "%s%s%" PRId64 "+%" PRId64, text, d ? " " : "", box->first[d],
                            box->count[d]);
    return text;
}
