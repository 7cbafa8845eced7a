/*
 * A fusion that reads the product made last before it becomes the epilogue of that product, which does it to each tile of
 * sums while these are in the cache:
 *
 *     %u = dot_general %h, %w : bf16            %u, %y = dot_general %h, %w, %g {fusion}
 *     %y = fusion %g, %u           ->             convert sums -> %u, …
 *
 * What the product made is then written only where something else reads it, and read nowhere. Products round their
 * sums to bf16, which is the first member of the epilogue; the bits are the same. Kernels say which programs they do
 * (Kernel.epilogue).
 */
#include "compile/fuse_impl.h"

/* The product among the operands of a fusion that is made after all others, or NULL. */
static cvn_value *last_product(const Fuse *p, const Op *fusion)
{
    cvn_value *last = NULL; /* of splats alone a fusion has no operands */
    for (int i = 0; i < fusion->n_operands; i++)
        if (!last || p->position[fusion->operand[i]->id] > p->position[last->id])
            last = fusion->operand[i];
    if (!last || cvn_type_elements(&last->type) != fusion->attr.fusion->elements)
        return NULL;
    const Op *op = last->def;
    const Kernel *kernel = kernel_find(p->backend, op);
    if (op->kind != OP_DOT_GENERAL || cvn_type_elements(&op->operand[0]->type) == 0)
        return NULL;
    int64_t columns = cvn_type_elements(&op->operand[1]->type); /* of its result */
    for (int i = 0; i < op->attr.rhs_contract.n; i++)
        columns /= op->operand[1]->type.dim[op->attr.rhs_contract.v[i]];
    bool takes = op->n_operands == 2 && op->n_results == 1 && op->attr.dims.n == 0 &&
                 op->attr.lhs_batch.n == 0 && !op->attr.fusion && kernel && kernel->epilogue &&
                 last->type.dtype == CVN_BF16 && columns % FUSION_COLUMNS == 0;
    return takes ? last : NULL;
}

/* v: what the product made, of which a convert of its sums is to be the first member. */
static void take_epilogue(const Fuse *p, Op *product, Op *fusion, cvn_value *v)
{
    Arena *arena = &p->g->arena;
    const Fusion *old = fusion->attr.fusion;
    cvn_value *sums = arena_alloc(arena, sizeof *sums);
    Op *convert = arena_alloc(arena, sizeof *convert), *op[FUSION_MEMBERS];
    Making *m = p->making;
    if (old->n_members == FUSION_MEMBERS)
        return;
    *sums = (cvn_value){.type = v->type, .id = p->g->n_values++, .def = product};
    sums->type.dtype = CVN_F32;
    *convert = (Op){.kind = OP_CONVERT,
                    .n_operands = 1,
                    .n_results = 1,
                    .operand = arena_copy(arena, &sums, sizeof(cvn_value *)),
                    .result = arena_copy(arena, &v, sizeof(cvn_value *)),
                    .file = product->file,
                    .line = product->line};
    op[0] = convert;
    for (int i = 0; i < old->n_members; i++)
        op[i + 1] = (Op *)(uintptr_t)old->member[i].op;
    for (int i = 0; i <= old->n_members; i++)
        fuse_own_results(op[i]);
    *m = (Making){.g = p->g,
                  .backend = p->backend,
                  .uses = p->uses,
                  .op = op,
                  .n = old->n_members + 1,
                  .sums = sums};
    Fusion *f = fuse_make_members(m) ? fuse_make(m) : NULL;
    if (f)
        f->epilogue = f->program ? kernel_find(p->backend, product)->epilogue(f) : -1;
    if (!f || f->epilogue < 0) {
        fuse_own_results(product);
        fuse_own_results(fusion);
        return;
    }
    for (int i = 0; i < m->n_operands; i++)
        fuse_add_operand(p->g, product, m->operand[i]);
    for (int i = 0; i < m->n_results; i++) {
        f->over[i] <<= 2; /* its operands come behind the product's */
        p->position[m->result[i]->id] = p->position[product->result[0]->id];
    }
    graph_remove(p->g, fusion);
    product->result = arena_copy(arena, m->result, (size_t)m->n_results * sizeof *m->result);
    product->n_results = m->n_results;
    product->attr.fusion = f;
    fuse_own_results(product);
}

void fuse_product(Fuse *f, Op *op)
{
    cvn_value *v = op->kind == OP_FUSION ? last_product(f, op) : NULL;
    if (v)
        take_epilogue(f, v->def, op, v);
}
