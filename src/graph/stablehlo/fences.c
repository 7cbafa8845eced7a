/*
 * XLA begins what it can when it likes, ends it when it must, and merges what is computed twice. A step of training that
 * computes blocks again, drops weights and gathers them again, and has a device keep its share of a gradient only, would hold
 * all of that at a time. It is fenced: what begins a block again, and the gathers of its weights, wait for all that was computed
 * since the fence before it and is wanted later, such as gradients of weights and their sums over devices.
 *
 *     %dw = reduce_scatter …              a gradient of the block behind this one
 *     %dx = …                             what this block's gradients begin with
 *     %$1:3 = optimization_barrier %x0, %dw, %dx
 *     %a = … %$1#0 …                      the block again
 */
#include "graph/stablehlo/stablehlo_impl.h"

void hlo_fences_begin(Hlo *h, const cvn_graph *g)
{
    Fences *f = &h->fences;
    *f = (Fences){.gathered = arena_array(&h->arena, g->n_values, sizeof *f->gathered),
                  .uses = graph_uses(g, &h->arena),
                  .since = arena_array(&h->arena, g->n_values, sizeof *f->since)};
}

void hlo_fences_pass(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    if (op->kind == OP_PARAMETER || op->kind == OP_CONSTANT || !f->uses)
        return;
    for (int i = 0; i < op->n_operands; i++)
        f->uses[op->operand[i]->id]--;
    for (int i = 0; i < op->n_results; i++)
        f->since[f->n_since++] = op->result[i];
}

/* v, as it is once n others are there. */
static const char *fenced(Hlo *h, cvn_value *v, int n, cvn_value *const *others)
{
    const char *all = hlo_temp(h), *values = hlo_ref(h, v), *types = hlo_tensor(h, &v->type);
    for (int i = 0; i < n; i++) {
        values = arena_printf(&h->arena, "%s, %s", values, hlo_ref(h, others[i]));
        types = arena_printf(&h->arena, "%s, %s", types, hlo_tensor(h, &others[i]->type));
    }
    hlo_call(h, &(HloCall){.result = n ? arena_printf(&h->arena, "%s:%d", all, n + 1) : all,
                           .name = "optimization_barrier",
                           .operands = values,
                           .operand_types = types,
                           .result_types = types,
                           .n_results = n + 1});
    return n ? arena_printf(&h->arena, "%s#0", all) : all;
}

/* From here on v is called so, without its %. */
static void rename_value(Hlo *h, const cvn_value *v, const char *text)
{
    h->name[v->id] = arena_string(&h->arena, text + 1);
}

void hlo_optimization_barrier(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    int n = 0;
    for (int i = 0; i < f->n_since;
         i++) /* of the forward pass, the last that was computed tells of all */
        if (i == f->n_since - 1 || (f->begun && f->uses[f->since[i]->id] > 0))
            f->since[n++] = f->since[i];
    rename_value(h, op->result[0], fenced(h, op->operand[0], n, f->since));
    f->begun = n ? f->since[n - 1] : f->begun;
    f->n_since = 0;
}

void hlo_all_gather(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    cvn_value *v = op->operand[0];
    cvn_value *after = f->begun || !f->n_since ? f->begun : f->since[f->n_since - 1];
    char *name = h->name[v->id];
    bool again = f->gathered && f->gathered[v->id];
    if (again && after && v->def->n_results == 1)
        rename_value(h, v, fenced(h, v, 1, &after));
    if (f->gathered)
        f->gathered[v->id] = true;
    hlo_collective(h, op);
    h->name[v->id] = name;
}
