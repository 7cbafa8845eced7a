/*
 * Conversions beside an operation whose kernel reads and writes any float dtype, computing in f32, become part of it:
 *
 *     %f = convert %x : f32 …
 *     %y = rope %f, … : f32 …          %h = rope %x, … : bf16 …
 *     %h = convert %y : bf16 …
 *
 * The bits are the same: what is read is widened, which is exact, and what is written is rounded once. A rounding that
 * cannot join goes where what it rounds is made, so that both may be in one fusion and the exact tensor is never written.
 *
 * A sum of squares reads what is squared: reduce(multiply(x, x)) is one step. Its products are rounded as before. Where x
 * is a matrix product and the sum goes down its columns, the product has it as its second result, and x is not read again;
 * and where nothing else reads it but a rounding, it is written rounded, while the squares stay those of the exact sums.
 */
#include "compile/fuse.h"

static bool is_half(cvn_dtype dtype)
{
    return dtype == CVN_BF16 || dtype == CVN_F16;
}

static bool converts(const Backend *backend, const Op *op)
{
    const Kernel *kernel = kernel_find(backend, op);
    return kernel && kernel->converts;
}

static bool rounds(const Backend *backend, const Op *op)
{
    const Kernel *kernel = kernel_find(backend, op);
    return kernel && kernel->rounds;
}

/* A result that only a rounding reads is rounded where it is made, or right behind. */
static void take_rounding(cvn_graph *g, const Backend *backend, const uint32_t *uses, Op *convert)
{
    cvn_value *exact = convert->operand[0], *rounded = convert->result[0];
    Op *op = exact->def;
    if (exact->type.dtype != CVN_F32 || !is_half(rounded->type.dtype) || uses[exact->id] != 1 ||
        op->kind == OP_PARAMETER)
        return;
    graph_remove(g, convert);
    if (exact->result != 0 || !(converts(backend, op) || rounds(backend, op))) {
        fuse_put_before(g, convert, op->next);
        return;
    }
    op->result[0] = rounded;
    rounded->def = op;
    rounded->result = 0;
}

/* What was widened for this operation alone is read as it is. */
static void take_widening(const Backend *backend, const uint32_t *uses, Op *op)
{
    Op *convert = op->n_operands > 0 ? op->operand[0]->def : NULL;
    if (!convert || convert->kind != OP_CONVERT || uses[op->operand[0]->id] != 1 ||
        op->operand[0]->type.dtype != CVN_F32 || !is_half(convert->operand[0]->type.dtype) ||
        !converts(backend, op))
        return;
    op->operand[0] = convert->operand[0];
}

static void take_squares(const Backend *backend, uint32_t *uses, Op *op)
{
    const Op *square = op->operand[0]->def;
    const Kernel *kernel = kernel_find(backend, op);
    if (op->attr.reduce != CVN_SUM || square->kind != OP_MULTIPLY ||
        square->operand[0] != square->operand[1] || uses[op->operand[0]->id] != 1 ||
        op->operand[0]->type.dtype != CVN_F32 || !kernel || !kernel->squares)
        return;
    op->operand[0] = square->operand[0];
    op->attr.squares = true;
    uses[op->operand[0]->id]--; /* once, not twice */
}

/* The free dimensions of lhs are those that a product's result begins with. */
bool fuse_sums_columns(const Op *reduce, const Op *product)
{
    const OpAttr *a = &product->attr;
    int n_rows = product->operand[0]->type.rank - a->lhs_contract.n;
    bool columns = a->lhs_batch.n == 0 && reduce->attr.dims.n == n_rows;
    unsigned dims = 0;
    for (int i = 0; columns && i < n_rows; i++)
        dims |= 1u << reduce->attr.dims.v[i];
    return columns && dims == (1u << n_rows) - 1;
}

/* A sum of squares down the columns of a product is the product's. */
static void take_column_squares(cvn_graph *g, const Backend *backend, uint32_t *uses, Op *op)
{
    Op *product = op->operand[0]->def;
    const Kernel *kernel = kernel_find(backend, product);
    if (!op->attr.squares || product->kind != OP_DOT_GENERAL || product->n_results != 1 ||
        !kernel || !kernel->column_squares || !fuse_sums_columns(op, product))
        return;
    cvn_value **result = arena_array(&g->arena, 2, sizeof *result);
    result[0] = product->result[0];
    result[1] = op->result[0];
    graph_remove(g, op);
    product->result = result;
    product->n_results = 2;
    result[1]->def = product;
    result[1]->result = 1;
    uses[result[0]->id]--;
}

void fuse_neighbours(cvn_graph *g, const Backend *backend, Arena *arena)
{
    uint32_t *uses = graph_uses(g, arena);
    for (Op *op = g->first, *next; op; op = next) {
        next = op->next;
        if (op->kind == OP_CONVERT)
            take_rounding(g, backend, uses, op);
        else
            take_widening(backend, uses, op);
        if (op->kind == OP_REDUCE) {
            take_squares(backend, uses, op);
            take_column_squares(g, backend, uses, op);
        }
    }
    graph_remove_dead(g);
}
