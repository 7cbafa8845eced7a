/* The state of a mesh, to and from checkpoints. */
#include "train/mesh.h"

/* As every process has it: tensors of the state behind those on the devices lie whole, on all. */
static Sharding sharding_of(const TrainMesh *m, int tensor, const cvn_type *type)
{
    return tensor < m->n_state ? m->tensor[tensor].sharding : sharding_open(type->rank);
}

int train_mesh_shards(TrainMesh *m, const CheckpointState *state, CheckpointShards **out,
                      cvn_err *err)
{
    size_t n = (size_t)state->n;
    CheckpointShards *shards = arena_alloc(&m->arena, sizeof *shards);
    Sharding *sharding = arena_array(&m->arena, n, sizeof *sharding);
    const char **spec = arena_array(&m->arena, n, sizeof *spec);
    void **data = arena_array(&m->arena, n, sizeof *data);
    *shards = (CheckpointShards){.mesh = m->spec,
                                 .layout = m->layout,
                                 .spec = spec,
                                 .n_files = m->devices.mesh.n_devices,
                                 .first = m->devices.first,
                                 .n_local = m->devices.n_local};
    shards->slice = arena_array(&m->arena, n * (size_t)m->devices.n_local, sizeof *shards->slice);
    for (int i = 0; i < state->n; i++) {
        StrBuf text = {0};
        sharding[i] = sharding_of(m, i, &state->tensor[i].type);
        sharding_print(&text, &m->devices.mesh, &sharding[i]);
        if (text.failed)
            return err_set(err, CVN_EMEM, "no memory for a spec");
        spec[i] = arena_string(&m->arena, text.text ? text.text : "");
        strbuf_free(&text);
    }
    for (int d = 0; d < m->devices.n_local; d++) {
        for (int i = 0; i < state->n; i++)
            data[i] = i >= m->n_state ? state->tensor[i].data
                      : m->data       ? m->data[d * m->n + i]
                                      : NULL;
        checkpoint_shards_add(shards, &m->devices.mesh, d, state, sharding, data);
    }
    *out = shards;
    return CVN_OK;
}

int train_mesh_restore(TrainMesh *m, const Checkpoint *checkpoint, CheckpointState *state,
                       cvn_err *err)
{
    int code = checkpoint_restore_counters(checkpoint, state, err);
    for (int d = 0; d < m->devices.n_local && code == CVN_OK; d++)
        for (int i = 0; i < state->n; i++) {
            const CheckpointTensor *tensor = &state->tensor[i];
            Sharding sharding = sharding_of(m, i, &tensor->type);
            RegionArray to =
                region_of_shard(&m->devices.mesh, &sharding, &tensor->type, m->devices.first + d);
            checkpoint_restore_part(checkpoint, tensor, &to,
                                    i < m->n_state ? m->data[d * m->n + i] : tensor->data);
        }
    return code;
}
