#include "shard/passes.h"

#include "shard/propagate.h"

/* Every value that a mark splits, directly or not, gets its spec. */
static int pass_propagate(cvn_graph *g, bool *changed, cvn_err *err)
{
    Mesh mesh;
    ShardResult result;
    if (!g->mesh)
        return err_set(err, CVN_EINVAL,
                       "propagate needs a mesh; give one with --mesh data=2,model=2");
    if (mesh_parse(&mesh, g->mesh, &g->arena, err))
        return CVN_EINVAL;
    int code = shard_propagate(g, &mesh, &result, err);
    if (code)
        return code;
    for (Op *op = g->first; op && !code; op = op->next) {
        for (int i = 0; i < op->n_results && !code; i++) {
            cvn_value *v = op->result[i];
            cvn_spec spec;
            if (v->spec || !result.origin[v->id])
                continue;
            code = sharding_to_spec(&mesh, &result.sharding[v->id], &g->arena, &spec, err);
            v->spec = arena_copy(&g->arena, &spec, sizeof spec);
            *changed = true;
        }
    }
    shard_result_free(&result);
    return code;
}

const GraphPass shard_passes[] = {
    {"propagate", "give every value the spec that follows from the marks, for --mesh",
     pass_propagate},
    {NULL, NULL, NULL},
};
