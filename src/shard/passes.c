#include "shard/passes.h"

#include "shard/partition.h"
#include "shard/propagate.h"

#include <stdlib.h>

/* Every value that a mark splits, directly or not, gets its spec. */
static int propagate(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
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
            code =
                sharding_check(&mesh, &result.sharding[v->id], v->name ? v->name : "a value", err);
            if (code)
                break;
            code = sharding_to_spec(&mesh, &result.sharding[v->id], &g->arena, &spec, err);
            v->spec = arena_copy(&g->arena, &spec, sizeof spec);
            *changed = true;
        }
    }
    shard_result_free(&result);
    return code;
}

/* g gets the operations of another graph in the place of its own. */
static int take_over(cvn_graph *g, const cvn_graph *other, cvn_err *err)
{
    cvn_value **map = calloc(other->n_values + (size_t)1, sizeof *map);
    if (!map)
        return err_set(err, CVN_EMEM, "no memory to copy graph '%s'", g->name);
    g->first = g->last = NULL;
    g->n_ops = 0;
    g->n_values = 0;
    g->n_parameters = g->n_outputs = 0;
    for (const Op *op = other->first; op && !g->err.code; op = op->next) {
        cvn_value **operand = arena_array(&g->arena, (size_t)op->n_operands, sizeof *operand);
        for (int i = 0; i < op->n_operands; i++)
            operand[i] = map[op->operand[i]->id];
        cvn_value *first = graph_add_like(g, op, operand);
        for (int i = 0; i < op->n_results && !g->err.code; i++)
            map[op->result[i]->id] = first->def->result[i];
    }
    for (int i = 0; i < other->n_outputs && !g->err.code; i++) {
        const Output *output = &other->output[i];
        if (output->into)
            cvn_output_into(g, map[output->value->id], map[output->into->id]);
        else
            cvn_output(g, map[output->value->id]);
    }
    free(map);
    return cvn_graph_check(g, err);
}

/* The graph becomes the one that every device runs. */
static int partition(cvn_graph *g, const void *context, bool *changed, cvn_err *err)
{
    (void)context;
    Mesh mesh;
    ShardResult result;
    PartitionReport report;
    cvn_graph *local;
    if (!g->mesh)
        return err_set(err, CVN_EINVAL,
                       "partition needs a mesh; give one with --mesh data=2,model=2");
    if (mesh_parse(&mesh, g->mesh, &g->arena, err))
        return CVN_EINVAL;
    int code = shard_propagate(g, &mesh, &result, err);
    if (code)
        return code;
    code = shard_partition(g, &mesh, &result, &local, &report, err);
    shard_result_free(&result);
    if (code)
        return code;
    partition_report_free(&report);
    code = take_over(g, local, err);
    cvn_graph_free(local);
    if (code)
        return code;
    *changed = true;
    return CVN_OK;
}

const GraphPass pass_propagate = {
    "propagate", "give every value the spec that follows from the marks, for --mesh", propagate};

const GraphPass pass_partition = {
    "partition", "make the graph that each device of --mesh runs, with collectives", partition};

const GraphPass *const shard_passes[] = {&pass_propagate, &pass_partition, NULL};
