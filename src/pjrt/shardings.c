#include "pjrt/shardings.h"

#include "graph/signature.h"

#include <inttypes.h>

static const char *print_mesh(const Mesh *mesh, Arena *arena)
{
    const char *text = "<[";
    for (int i = 0; i < mesh->n_axes; i++)
        text = arena_printf(arena, "%s%s\"%s\"=%" PRId32, text, i ? ", " : "", mesh->axis[i].name,
                            mesh->axis[i].size);
    text = arena_printf(arena, "%s]", text);
    for (int32_t i = 0; mesh->order && i < mesh->n_devices; i++)
        text =
            arena_printf(arena, "%s%s%" PRId32, text, i ? ", " : ", device_ids=[", mesh->order[i]);
    return arena_printf(arena, "%s%s>", text, mesh->order ? "]" : "");
}

static const char *print_sharding(const Mesh *mesh, const Sharding *s, Arena *arena)
{
    const char *text = "[";
    for (int d = 0; d < s->rank; d++) {
        const AxisList *axes = &s->dim[d].axes;
        text = arena_printf(arena, "%s%s{", text, d ? ", " : "");
        for (int i = 0; i < axes->n; i++) {
            AxisRef ref = axes->ref[i];
            const MeshAxis *axis = &mesh->axis[ref.axis];
            text = arena_printf(arena, "%s%s\"%s\"", text, i ? ", " : "", axis->name);
            if (ref.size != axis->size)
                text = arena_printf(arena, "%s:(%" PRId32 ")%" PRId32, text, ref.pre, ref.size);
        }
        text = arena_printf(arena, "%s}", text);
    }
    return arena_printf(arena, "%s]", text);
}

static int check(const PartitionTensor *t, const cvn_value *v, cvn_err *err)
{
    const char *name = v->name ? v->name : "a result";
    bool rows = v->role == ROLE_CACHE && t->sharding.dim[0].axes.n > 0;
    for (int d = 0; d < t->global.rank; d++)
        if (t->global.dim[d] % axes_size(&t->sharding.dim[d].axes))
            return err_set(
                err, CVN_EUNSUPPORTED,
                "XLA's partitioner needs equal shards, and dimension %d of '%s' is %" PRId64
                "; use another mesh, or partitioner=own",
                d, name, t->global.dim[d]);
    return rows ? err_set(err, CVN_EUNSUPPORTED,
                          "XLA's partitioner does not support KV caches whose slots are sharded; "
                          "use a mesh without that axis, or partitioner=own")
                : CVN_OK;
}

int shardings_of(StableHloOptions *o, const cvn_graph *g, const PartitionReport *report,
                 const Mesh *mesh, Arena *arena, cvn_err *err)
{
    const char **parameter = arena_array(arena, (size_t)g->n_parameters, sizeof *parameter);
    const char **output = arena_array(arena, (size_t)g->n_outputs, sizeof *output);
    if (mesh->n_devices == 1)
        return CVN_OK;
    for (int i = 0; i < g->n_parameters; i++) { /* behind those of the report, where rows begin */
        const PartitionTensor *t = i < report->n_parameters ? &report->parameter[i] : NULL;
        parameter[i] = t ? print_sharding(mesh, &t->sharding, arena) : "[{}]";
        if (t)
            TRY(check(t, g->parameter[i], err));
    }
    for (int i = 0; i < g->n_outputs; i++) {
        output[i] = print_sharding(mesh, &report->output[i].sharding, arena);
        TRY(check(&report->output[i], g->output[i].value, err));
    }
    o->mesh = print_mesh(mesh, arena);
    o->parameter = parameter;
    o->output = output;
    return CVN_OK;
}
