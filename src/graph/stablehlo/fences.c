/*
 * XLA begins what it can when it likes, ends it when it must, and merges what is computed twice. A step of training that
 * computes blocks again, drops weights and gathers them again, and has a device keep its share of a gradient only, would hold
 * all of that at a time. It is fenced: what begins a block again, and the gathers of its weights, wait for what was computed
 * before them, with the sums over devices that belong to it.
 *
 *     %dw = reduce_scatter …              a gradient of the block behind this one
 *     %dx = …                             what this block's gradients begin with
 *     %$1:3 = optimization_barrier %x0, %dx, %dw
 *     %a = … %$1#0 …                      the block again
 */
#include "graph/stablehlo/stablehlo_impl.h"

void hlo_fences_begin(Hlo *h, const cvn_graph *g)
{
    h->fences = (Fences){
        .gathered = arena_array(&h->arena, g->n_values, sizeof *h->fences.gathered),
        .sum = arena_array(&h->arena, (size_t)g->n_ops + 1, sizeof *h->fences.sum),
    };
}

void hlo_fences_pass(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    if (op->kind == OP_PARAMETER || op->kind == OP_CONSTANT)
        return;
    f->latest = op->result[0];
    if (op->kind == OP_REDUCE_SCATTER && f->sum)
        f->sum[f->n_sums++] = op->result[0];
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

void hlo_barrier(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    if (f->latest && f->sum)
        f->sum[f->n_sums++] = f->latest;
    rename_value(h, op->result[0], fenced(h, op->operand[0], f->n_sums, f->sum));
    f->begun = f->latest ? f->latest : f->begun;
    f->n_sums = 0;
}

void hlo_all_gather(Hlo *h, const Op *op)
{
    Fences *f = &h->fences;
    cvn_value *v = op->operand[0], *after = f->begun ? f->begun : f->latest;
    char *name = h->name[v->id];
    bool again = f->gathered && f->gathered[v->id];
    if (again && after && v->def->n_results == 1)
        rename_value(h, v, fenced(h, v, 1, &after));
    if (f->gathered)
        f->gathered[v->id] = true;
    hlo_collective(h, op);
    h->name[v->id] = name;
}
