/*
 * Sums of squares: the prologue of a reduce, or the epilogue of a product.
 *
 *     %x = dot_general …                 %x, %r = dot_general …
 *     %q = multiply %x, %x         ->
 *     %r = reduce %q
 *
 * A reduce squares what it reads. Where that is a matrix product and the sum goes down its columns, the product has it as
 * a second result, and its first is not read again. Where rows are added to a product, the squares are the product's,
 * and what the rows make of them. Squares are rounded as before.
 */
#include "compile/fuse_impl.h"

/* A product of which a sum goes down the columns, over the free dimensions of lhs: those that the result begins with. */
static bool sums_columns(const KernelSet *backend, const Op *reduce, const Op *product)
{
    const OpAttr *a = &product->attr;
    unsigned dims = 0;
    if (product->kind != OP_DOT_GENERAL || product->n_operands != 2 || product->n_results != 1 ||
        a->dims.n > 0 || a->lhs_batch.n > 0 ||
        !kernel_fuses(backend, product, EPILOGUE_COLUMN_SQUARES))
        return false;
    int n_rows = product->operand[0]->type.rank - a->lhs_contract.n;
    for (int i = 0; i < reduce->attr.dims.n; i++)
        dims |= 1u << reduce->attr.dims.v[i];
    return dims == (1u << n_rows) - 1;
}

static void take_column_squares(cvn_graph *g, const KernelSet *backend, Op *reduce)
{
    Op *from = reduce->operand[0]->def;
    cvn_value *made = reduce->result[0];
    if (sums_columns(backend, reduce, from)) {
        graph_remove(g, reduce);
        fuse_add_result(g, from, made);
        return;
    }
    Op *product = from->kind == OP_SCATTER ? from->operand[0]->def : NULL;
    if (!product || !from->attr.residual || from->n_results != 1 ||
        product->result[0]->type.dtype != CVN_F32 || !sums_columns(backend, reduce, product) ||
        !kernel_fuses(backend, from, EPILOGUE_COLUMN_SQUARES))
        return;
    cvn_value *before = arena_alloc(&g->arena, sizeof *before);
    *before = (cvn_value){.type = made->type, .id = g->n_values++};
    fuse_add_result(g, product, before);
    fuse_add_operand(g, from, before);
    graph_remove(g, reduce);
    fuse_add_result(g, from, made);
}

void fuse_squares(Fuse *f, Op *op)
{
    if (op->kind != OP_REDUCE)
        return;
    const Op *square = op->operand[0]->def;
    if (op->attr.reduce == CVN_SUM && square->kind == OP_MULTIPLY &&
        square->operand[0] == square->operand[1] && f->uses[op->operand[0]->id] == 1 &&
        op->operand[0]->type.dtype == CVN_F32 && kernel_fuses(f->backend, op, PROLOGUE_SQUARE)) {
        op->operand[0] = square->operand[0];
        op->attr.squares = true;
    }
    if (op->attr.squares)
        take_column_squares(f->g, f->backend, op);
}
