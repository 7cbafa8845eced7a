/* The order of fusion: see fuse.h. */
#include "compile/fuse_impl.h"

int64_t *fuse_positions(const cvn_graph *g, Arena *arena)
{
    int64_t *position = arena_array(arena, g->n_values + (size_t)1, sizeof *position), n = 0;
    for (const Op *op = g->first; op; op = op->next, n++)
        for (int i = 0; i < op->n_results; i++)
            position[op->result[i]->id] = n;
    return position;
}

/* [n_values] How often operations and outputs use what has this root; views of all of it are no uses. */
static uint32_t *uses_of_roots(const cvn_graph *g, Arena *arena)
{
    uint32_t *uses = arena_array(arena, g->n_values + (size_t)1, sizeof *uses);
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_operands && !tile_is_view(op); i++)
            uses[tile_root_of(op->operand[i])->id]++;
    for (int i = 0; i < g->n_outputs; i++)
        uses[tile_root_of(g->output[i].value)->id]++;
    return uses;
}

void fuse_begin(Fuse *f, bool by_root)
{
    const cvn_graph *g = f->g;
    f->by_root = by_root;
    f->uses = by_root ? uses_of_roots(g, f->arena) : graph_uses(g, f->arena);
    f->position = fuse_positions(g, f->arena);
    f->reader = arena_array(f->arena, g->n_values + (size_t)1, sizeof *f->reader);
    for (const Op *op = g->last; op; op = op->prev) /* in their order */
        for (int i = 0; i < op->n_operands; i++) {
            Reader **list = &f->reader[op->operand[i]->id], *r;
            if (*list && (*list)->of == op->result[0])
                continue;
            r = arena_alloc(f->arena, sizeof *r);
            *r = (Reader){op->result[0], *list};
            *list = r;
        }
}

/* What only rounds a result of f32 does so right behind what makes it: both may be in one region then, and the exact tensor
   is never written. */
static void bring_roundings(Fuse *f)
{
    fuse_begin(f, false);
    for (Op *op = f->g->first, *next; op; op = next) {
        next = op->next;
        if (op->kind != OP_CONVERT)
            continue;
        cvn_dtype to = op->result[0]->type.dtype;
        const cvn_value *exact = op->operand[0];
        if (exact->type.dtype != CVN_F32 || (to != CVN_BF16 && to != CVN_F16) ||
            f->uses[exact->id] != 1 || exact->def->kind == OP_PARAMETER)
            continue;
        graph_remove(f->g, op);
        graph_put_before(f->g, op, exact->def->next);
    }
}

int fuse_graph(cvn_graph *g, const KernelSet *backend, bool *changed, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    *changed = false;
    if (!backend->accepts)
        return CVN_OK;
    TRY(arena_begin(&arena, err));
    Fuse f = {.g = g, .backend = backend, .arena = &arena};
    bring_roundings(&f);
    fuse_around(&f, true);
    fuse_rows(&f);
    fuse_roots(&f, false);
    fuse_recompute(&f);
    fuse_reduce(&f);
    fuse_around(&f, false);
    fuse_chains(&f);
    fuse_roots(&f, true);
    *changed = f.changed;
    return cvn_graph_check(g, err);
}
