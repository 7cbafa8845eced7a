/*
 * Outputs and donation.
 *
 * An output lies in the arena or in the parameter it was declared to go into. A value computed by some step is
 * simply computed there. What cannot be is copied there: by a step at the end, which no later step disturbs.
 *
 *     output %p                      %p is a parameter: copied, so that a result is never the caller's own
 *                                    memory under another name
 *     output %x into %p              %x is computed in %p's memory if the old %p is not read after that;
 *                                    else it is computed in the arena and copied at the end
 *     output %q into %p,             a swap: copies of the old %p and %q are taken before anything writes
 *     output %p into %q              them, and copied over at the end
 */
#include "compile/lower_impl.h"
#include "graph/interp/interp.h"

#include <assert.h>

static int parameter_index(const cvn_graph *g, const cvn_value *v)
{
    int p = 0;
    while (g->parameter[p] != v)
        p++;
    return p;
}

/* Inserts a copy of v before an operation (NULL: at the end). */
static cvn_value *insert_copy(cvn_graph *g, cvn_value *v, Op *before)
{
    OpAttr attr = {.flag = true}; /* see op_is_copy */
    graph_insert_before(g, before);
    cvn_value *copy = graph_add(g, OP_OPTIMIZATION_BARRIER, &attr, 1, &v, NULL);
    graph_insert_before(g, NULL);
    return copy;
}

static int analyse(Lowering *lowering, cvn_err *err)
{
    const cvn_graph *g = lowering->g;
    Liveness *live = &lowering->live;
    liveness_find(g, &lowering->arena, live);
    lowering->kernel =
        arena_array(&lowering->arena, (size_t)live->n_steps + 1, sizeof(const Kernel *));
    for (int i = 0; i < live->n_steps; i++) {
        const Op *op = live->step[i];
        OpClass class = op_info[op->kind].class_;
        lowering->kernel[i] = lower_kernel(lowering->backend, op);
        if (lowering->kernel[i])
            continue;
        if (class == CLASS_COMPOSITE || !lowering->backend->fallback)
            return err_set(err, CVN_EUNSUPPORTED, "backend '%s' has no kernel for operation %s",
                           lowering->backend->name, op_info[op->kind].name);
        /* The fallback is a device of its own: it can talk to itself, but to no other. */
        if (class == CLASS_COLLECTIVE && interp_check_devices(g, 1, err))
            return CVN_EUNSUPPORTED;
    }
    blocks_init(&lowering->blocks, g, live, lowering->kernel, lowering->donated, &lowering->arena);
    return CVN_OK;
}

/* Tries to have every donated output computed in its parameter; copies where that fails. *copied says whether
   there were any: the graph has changed then, and what was found out about it is stale. */
static void bind_outputs(Lowering *lowering, bool *copied)
{
    cvn_graph *g = lowering->g;
    int n = g->n_outputs;
    *copied = false;
    for (int i = 0; i < n; i++) {
        Output *output = &g->output[i];
        if (!output->into || cvn_type_bytes(&output->value->type) == 0)
            continue;
        cvn_value *root = lowering->live.alias[output->value->id].root;
        if (covers_root(&lowering->live, output->value) &&
            blocks_join(&lowering->blocks, root, output->into))
            continue;
        output->value = insert_copy(g, output->value, NULL);
        *copied = true;
    }
}

int lower_outputs(Lowering *lowering, cvn_err *err)
{
    cvn_graph *g = lowering->g;
    lowering->donated = arena_array(&lowering->arena, (size_t)g->n_parameters + 1, sizeof(bool));
    for (int i = 0; i < g->n_outputs; i++)
        if (g->output[i].into)
            lowering->donated[parameter_index(g, g->output[i].into)] = true;
    /* Outputs that are (views of) parameters and constants are copied: at the end, but what will be overwritten
       as early as possible. */
    for (int i = 0; i < g->n_outputs; i++) {
        Output *output = &g->output[i];
        cvn_value *root = op_root_of(output->value);
        Op *before = NULL;
        if (op_is_step(root->def) || root == output->into)
            continue;
        if (root->def->kind == OP_PARAMETER && lowering->donated[parameter_index(g, root)])
            before = output->value->def->next;
        output->value = insert_copy(g, output->value, before);
    }
    bool copied = true;
    /* The copies of the first round can be made in place: nothing runs after them. So the second is the last. */
    for (int round = 0; copied; round++) {
        assert(round < 2);
        TRY(analyse(lowering, err));
        bind_outputs(lowering, &copied);
    }
    return cvn_graph_check(g, err);
}
