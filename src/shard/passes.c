#include "shard/passes.h"

#include "shard/partition.h"
#include "shard/propagate.h"

/* Where every value lies on the graph's mesh. What is found is to be freed. */
static int find_shards(cvn_graph *g, const char *pass, Mesh *mesh, ShardResult *found, cvn_err *err)
{
    if (!g->mesh)
        return err_set(err, CVN_EINVAL, "%s needs a mesh; give one with --mesh data=2,model=2",
                       pass);
    TRY(mesh_parse(mesh, g->mesh, &g->arena, err));
    return shard_propagate(g, mesh, found, err);
}

/* Every value that a mark splits, directly or not, gets its spec. */
static int propagate(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    Mesh mesh;
    SCOPED(shard_result_free) ShardResult result = {0};
    TRY(find_shards(g, "propagate", &mesh, &result, err));
    for (Op *op = g->first; op; op = op->next) {
        for (int i = 0; i < op->n_results; i++) {
            cvn_value *v = op->result[i];
            cvn_spec spec;
            if (v->spec || !result.origin[v->id])
                continue;
            const Sharding *sharding = &result.sharding[v->id];
            TRY(sharding_check(&mesh, sharding, v->name ? v->name : "a value", err));
            TRY(sharding_to_spec(&mesh, sharding, &g->arena, &spec, err));
            v->spec = arena_copy(&g->arena, &spec, sizeof spec);
            *changed = true;
        }
    }
    return CVN_OK;
}

/* The graph becomes the one that every device runs. */
static int partition(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    Mesh mesh;
    SCOPED(shard_result_free) ShardResult result = {0};
    SCOPED(partition_report_free) PartitionReport report = {0};
    SCOPED(graph_release) cvn_graph *local = NULL;
    TRY(find_shards(g, "partition", &mesh, &result, err));
    TRY(shard_partition(g, &mesh, &result, &local, &report, err));
    g->first = g->last = NULL;
    g->n_ops = g->n_values = 0;
    g->n_parameters = g->n_outputs = 0;
    *changed = true;
    return graph_append(g, local, err);
}

const GraphPass pass_propagate = {"propagate", "propagate shardings from marked values, on --mesh",
                                  propagate};

const GraphPass pass_partition = {
    "partition", "SPMD partitioning: the graph of one device, with collectives", partition};

const GraphPass *const shard_passes[] = {&pass_propagate, &pass_partition, NULL};
