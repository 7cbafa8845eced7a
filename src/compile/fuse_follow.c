/*
 * A fusion that reads the product made last before it becomes part of that product, which takes it over each tile of sums
 * while these are in the cache:
 *
 *     %u = dot_general %h, %w : bf16            %u, %y = dot_general %h, %w, %g {fusion}
 *     %y = fusion %g, %u           ->             convert sums -> %u, …
 *
 * What the product made is then written only where something else reads it, and read nowhere. Products round their
 * sums to bf16, which is the first member of what follows; the bits are the same. Kernels say which programs can follow
 * (Kernel.follows).
 */
#include "compile/fuse_impl.h"

#include <stdlib.h>

typedef struct Follow {
    cvn_graph *g;
    const Backend *backend;
    const uint32_t *uses; /* [n_values] before anything was fused */
    int64_t *position;    /* [n_values] of the operation that makes a value */
} Follow;

/* Dimensions of a product that are the columns of its result. */
static int64_t columns_of(const Op *product)
{
    int64_t n = cvn_type_elements(&product->operand[1]->type);
    for (int i = 0; i < product->attr.rhs_contract.n; i++)
        n /= product->operand[1]->type.dim[product->attr.rhs_contract.v[i]];
    return n;
}

static bool can_be_followed(const Follow *w, const Op *op, const cvn_value *v)
{
    const Kernel *kernel = kernel_find(w->backend, op);
    return op->kind == OP_DOT_GENERAL && op->n_operands == 2 && op->n_results == 1 &&
           op->attr.dims.n == 0 && op->attr.lhs_batch.n == 0 && !op->attr.fusion && kernel &&
           kernel->follows && v->type.dtype == CVN_BF16 &&
           cvn_type_elements(&op->operand[0]->type) > 0 && columns_of(op) % FUSION_COLUMNS == 0;
}

/* The product among the operands of a fusion that is made after all others, or NULL. */
static cvn_value *last_product(const Follow *w, const Op *fusion)
{
    cvn_value *last = fusion->operand[0];
    for (int i = 1; i < fusion->n_operands; i++)
        if (w->position[fusion->operand[i]->id] > w->position[last->id])
            last = fusion->operand[i];
    int64_t elements = cvn_type_elements(&last->type);
    return elements == fusion->attr.fusion->elements && can_be_followed(w, last->def, last) ? last
                                                                                            : NULL;
}

/* Makes operations the ones that values come from. */
static void own_results(Op *op)
{
    for (int i = 0; i < op->n_results; i++) {
        op->result[i]->def = op;
        op->result[i]->result = i;
    }
}

static void put_behind(const Follow *w, Op *product, Op *fusion, const Making *m, Fusion *f)
{
    Arena *arena = &w->g->arena;
    cvn_value **operand = arena_array(arena, (size_t)m->n_operands + 2, sizeof *operand);
    for (int i = 0; i < m->n_operands + 2; i++)
        operand[i] = i < 2 ? product->operand[i] : m->operand[i - 2];
    for (int i = 0; i < m->n_results; i++) {
        f->over[i] <<= 2;
        w->position[m->result[i]->id] = w->position[product->result[0]->id];
    }
    graph_remove(w->g, fusion);
    product->operand = operand;
    product->n_operands = m->n_operands + 2;
    product->result = arena_copy(arena, m->result, (size_t)m->n_results * sizeof *m->result);
    product->n_results = m->n_results;
    product->attr.fusion = f;
    own_results(product);
}

/* v: what the product made, of which a convert of its sums is to be the first member. */
static int follow(const Follow *w, Op *product, Op *fusion, cvn_value *v)
{
    Arena *arena = &w->g->arena;
    const Fusion *old = fusion->attr.fusion;
    cvn_value *sums = arena_alloc(arena, sizeof *sums);
    Op *convert = arena_alloc(arena, sizeof *convert), *op[FUSION_MEMBERS];
    if (old->n_members == FUSION_MEMBERS)
        return CVN_OK;
    Making *m = calloc(1, sizeof *m);
    if (!m)
        return CVN_EMEM;
    *sums = (cvn_value){.type = v->type, .id = w->g->n_values++, .def = product};
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
        own_results(op[i]);
    *m = (Making){.g = w->g,
                  .backend = w->backend,
                  .uses = w->uses,
                  .op = op,
                  .n = old->n_members + 1,
                  .sums = sums};
    Fusion *f = fuse_make_members(m) ? fuse_make(m) : NULL;
    if (f)
        f->follows = f->program ? kernel_find(w->backend, product)->follows(f) : -1;
    if (f && f->follows >= 0) {
        put_behind(w, product, fusion, m, f);
    } else {
        own_results(product);
        own_results(fusion);
    }
    free(m);
    return CVN_OK;
}

int fuse_follow(cvn_graph *g, const Backend *backend, const uint32_t *uses, Arena *arena)
{
    Follow w = {.g = g, .backend = backend, .uses = uses};
    int64_t position = 0;
    int code = CVN_OK;
    w.position = arena_array(arena, g->n_values + (size_t)1, sizeof *w.position);
    for (const Op *op = g->first; op; op = op->next, position++)
        for (int i = 0; i < op->n_results; i++)
            w.position[op->result[i]->id] = position;
    for (Op *op = g->first, *next; op && !code; op = next) {
        next = op->next;
        cvn_value *v = op->kind == OP_FUSION ? last_product(&w, op) : NULL;
        if (v)
            code = follow(&w, v->def, op, v);
    }
    return code;
}
