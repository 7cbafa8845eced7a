/*
 * What would be done to a result alone is done as it is written:
 *
 *     add(dot_general(x, w), r)              dot_general x, w, r         (a residual, or a gradient's sum)
 *     transpose(dot_general(x, w))           dot_general x, w {dims}     (heads in front of positions)
 *     transpose(rope(x)), rope(transpose(x)) rope x {swapped}
 *     add(rms_norm_backward(x, w, dy), r)    rms_norm_backward x, w, dy, r
 *       and its rounding to bf16               its third result
 *     add(r, scatter(zeros, …))              scatter r, … {apart}        (rows that occur, and no others)
 *       and its squares down the columns,      and these of r, from the product, corrected where rows occur
 *       where r is a product
 *
 *     softmax_cross_entropy, and its gradient, where nothing of the loss's own gradient is computed: one step, and one
 *       exponential instead of two; its rounding is another one
 *
 * It is done where kernels say that they can, on a plan's own graph, behind fuse_neighbours, which has made roundings
 * part of products. Each sum is rounded as it was: the bits are the same, but for the sign of zeros where nothing is
 * scattered to.
 *
 * A sum is computed where its latest operand was; so the other operand must be there by then.
 */
#include "compile/fuse.h"

typedef struct Written {
    cvn_graph *g;
    const Backend *backend;
    Arena *arena;
    uint32_t *uses;    /* [n_values], before anything was changed */
    int64_t *position; /* [n_values] of the operation that makes a value */
} Written;

static const Kernel *kernel_of(const Written *w, const Op *op)
{
    return kernel_find(w->backend, op);
}

/* op makes `v`, as its result k, from now on. */
static void set_result(Written *w, Op *op, int k, cvn_value *v)
{
    w->position[v->id] = w->position[op->result[0]->id];
    op->result[k] = v;
    v->def = op;
    v->result = k;
}

static void add_operand(Written *w, Op *op, cvn_value *v)
{
    Arena *arena = &w->g->arena;
    cvn_value **operand = arena_array(arena, (size_t)op->n_operands + 1, sizeof *operand);
    for (int i = 0; i < op->n_operands; i++)
        operand[i] = op->operand[i];
    operand[op->n_operands++] = v;
    op->operand = operand;
}

/* ---- sums ---- */

static bool is_product(const Op *op)
{
    return op->kind == OP_DOT_GENERAL && op->n_operands == 2 && op->attr.dims.n == 0 &&
           cvn_type_elements(&op->operand[0]->type) > 0; /* a sum of nothing is written by itself */
}

static bool is_norm(const Op *op)
{
    return op->kind == OP_RMS_NORM_BACKWARD && op->n_operands == 3;
}

static bool is_sum_of_rows(const Op *op)
{
    const Op *zero = op->kind == OP_SCATTER ? op->operand[0]->def : NULL;
    return zero && zero->kind == OP_CONSTANT && zero->attr.literal.splat &&
           op->attr.combine == COMBINE_ADD && op->operand[2]->type.dtype == CVN_F32 &&
           element_get(CVN_F32, zero->attr.literal.data, 0) == 0;
}

/* The sum of op's result 0, which nothing else reads, and `other` becomes op's. */
static bool take_sum(Written *w, Op *sum, Op *op, cvn_value *other)
{
    cvn_value *v = op->result[0], *made = sum->result[0];
    cvn_dtype dtype = made->type.dtype;
    const Kernel *kernel = kernel_of(w, op);
    if (w->uses[v->id] != 1 || !kernel || !kernel->adds || other == v ||
        (dtype != CVN_F32 && dtype != CVN_BF16))
        return false;
    if (is_sum_of_rows(op)) { /* it moves to where the sum was */
        Op *next = sum->next;
        w->position[v->id] = w->position[made->id];
        graph_remove(w->g, op);
        graph_remove(w->g, sum);
        fuse_put_before(w->g, op, next);
        op->operand[0] = other;
        op->attr.apart = true;
        set_result(w, op, 0, made);
        return true;
    }
    if (w->position[other->id] >= w->position[v->id] || (is_norm(op) && dtype != CVN_F32))
        return false;
    graph_remove(w->g, sum);
    add_operand(w, op, other);
    set_result(w, op, 0, made);
    return true;
}

static void take_sums(Written *w, Op *sum)
{
    cvn_value *v[2] = {sum->operand[0], sum->operand[1]};
    bool can[2], late = w->position[v[1]->id] > w->position[v[0]->id];
    for (int i = 0; i < 2; i++) {
        const Op *op = v[i]->def;
        can[i] = v[i]->result == 0 && (is_product(op) || is_norm(op) || is_sum_of_rows(op));
    }
    for (int i = 0; i < 2; i++) { /* the later one first */
        int k = i == 0 ? late : !late;
        if (can[k] && take_sum(w, sum, v[k]->def, v[1 - k]))
            return;
    }
}

/* The squares of a product to which some rows were added: those of the product, which has them while it has its sums, and
   what the rows make of them. */
static void take_squares_of_rows(Written *w, Op *reduce)
{
    Op *scatter = reduce->operand[0]->def;
    Op *product = scatter->kind == OP_SCATTER ? scatter->operand[0]->def : NULL;
    if (!reduce->attr.squares || !product || !scatter->attr.apart || scatter->n_results != 1 ||
        product->kind != OP_DOT_GENERAL || product->n_operands != 2 || product->n_results != 1 ||
        product->attr.dims.n > 0 || product->result[0]->type.dtype != CVN_F32 ||
        !fuse_sums_columns(reduce, product) || !kernel_of(w, product)->column_squares ||
        !kernel_of(w, scatter)->column_squares)
        return;
    Arena *arena = &w->g->arena;
    cvn_value *made = reduce->result[0], *before = arena_alloc(arena, sizeof *before);
    *before = (cvn_value){.type = made->type, .id = w->g->n_values++, .def = product, .result = 1};
    product->result =
        arena_copy(arena, (cvn_value *[]){product->result[0], before}, 2 * sizeof(cvn_value *));
    product->n_results = 2;
    scatter->result =
        arena_copy(arena, (cvn_value *[]){scatter->result[0], made}, 2 * sizeof(cvn_value *));
    scatter->n_results = 2;
    add_operand(w, scatter, before);
    graph_remove(w->g, reduce);
    set_result(w, scatter, 1, made);
}

/* ---- a rounded copy ---- */

static void take_copy(Written *w, Op *convert)
{
    Op *op = convert->operand[0]->def;
    const Kernel *kernel = kernel_of(w, op);
    if (op->kind != OP_RMS_NORM_BACKWARD || op->n_results != 2 ||
        convert->operand[0]->result != 0 || convert->operand[0]->type.dtype != CVN_F32 ||
        convert->result[0]->type.dtype != CVN_BF16 || !kernel || !kernel->copies)
        return;
    cvn_value **result = arena_array(&w->g->arena, 3, sizeof *result);
    result[0] = op->result[0];
    result[1] = op->result[1];
    graph_remove(w->g, convert);
    op->result = result;
    op->n_results = 3;
    set_result(w, op, 2, convert->result[0]);
}

/* ---- a gradient and what it is the gradient of ---- */

static bool is_constant(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT;
}

static void put_constant_before(cvn_graph *g, Op *constant, Op *next)
{
    graph_remove(g, constant);
    fuse_put_before(g, constant, next);
}

/* softmax_cross_entropy_backward logits, targets, lse, dloss, dlse becomes … logits, targets, dloss, dlse, with the
   results dlogits, loss, lse, in the place of the loss. */
static void take_loss(Written *w, Op *op)
{
    Op *loss = op->operand[2]->def;
    const Kernel *kernel = kernel_of(w, op);
    if (op->n_operands != 5 || loss->kind != OP_SOFTMAX_CROSS_ENTROPY ||
        op->operand[2]->result != 1 || loss->operand[0] != op->operand[0] ||
        loss->operand[1] != op->operand[1] || !is_constant(op->operand[3]) ||
        !is_constant(op->operand[4]) || !kernel || !kernel->joins)
        return;
    Arena *arena = &w->g->arena;
    cvn_value **result = arena_array(arena, 3, sizeof *result);
    cvn_value *operand[] = {op->operand[0], op->operand[1], op->operand[3], op->operand[4]};
    cvn_value *made[] = {op->result[0], loss->result[0], loss->result[1]};
    for (int i = 2; i < 4; i++)
        put_constant_before(w->g, operand[i]->def, loss);
    graph_remove(w->g, op);
    fuse_put_before(w->g, op, loss);
    graph_remove(w->g, loss);
    w->position[made[0]->id] = w->position[made[1]->id];
    op->operand = arena_copy(arena, operand, sizeof operand);
    op->n_operands = 4;
    op->result = result;
    op->n_results = 3;
    for (int i = 0; i < 3; i++) {
        result[i] = made[i];
        made[i]->def = op;
        made[i]->result = i;
    }
}

/* ---- places ---- */

/* [batch, seq, heads, head_dim] to [batch, heads, seq, head_dim], or back. */
static bool is_swap(const Op *op)
{
    const int64_t *p = op->attr.dims.v;
    return op->kind == OP_TRANSPOSE && op->attr.dims.n == 4 && p[0] == 0 && p[1] == 2 &&
           p[2] == 1 && p[3] == 3;
}

static void take_transpose(Written *w, Op *transpose)
{
    cvn_value *v = transpose->operand[0];
    Op *op = v->def;
    const Kernel *kernel = kernel_of(w, op);
    int last = v->type.rank - 1;
    if (v->result != 0 || w->uses[v->id] != 1 || !kernel || !kernel->places)
        return;
    if (op->kind == OP_ROPE && is_swap(transpose) && !(op->attr.swapped & 2))
        op->attr.swapped |= 2;
    else if (is_product(op) && op->attr.lhs_batch.n == 0 && transpose->attr.dims.v[last] == last &&
             op->operand[1]->type.rank > op->attr.rhs_contract.n)
        op->attr.dims = transpose->attr.dims;
    else
        return;
    graph_remove(w->g, transpose);
    set_result(w, op, 0, transpose->result[0]);
}

static void take_transposed(Written *w, Op *rope)
{
    Op *transpose = rope->operand[0]->def;
    const Kernel *kernel = kernel_of(w, rope);
    if (!is_swap(transpose) || w->uses[rope->operand[0]->id] != 1 || !kernel || !kernel->places)
        return;
    rope->operand[0] = transpose->operand[0];
    rope->attr.swapped |= 1;
}

void fuse_written(cvn_graph *g, const Backend *backend, Arena *arena)
{
    Written written = {.g = g, .backend = backend, .arena = arena, .uses = graph_uses(g, arena)};
    Written *w = &written;
    int64_t position = 0;
    w->position = arena_array(arena, g->n_values + (size_t)1, sizeof *w->position);
    for (const Op *op = g->first; op; op = op->next, position++)
        for (int i = 0; i < op->n_results; i++)
            w->position[op->result[i]->id] = position;
    for (Op *op = g->first, *next; op; op = next) {
        next = op->next;
        switch (op->kind) {
        case OP_ADD:
            take_sums(w, op);
            break;
        case OP_SOFTMAX_CROSS_ENTROPY_BACKWARD:
            take_loss(w, op);
            break;
        case OP_REDUCE:
            take_squares_of_rows(w, op);
            break;
        case OP_CONVERT:
            take_copy(w, op);
            break;
        case OP_TRANSPOSE:
            take_transpose(w, op);
            break;
        case OP_ROPE:
            take_transposed(w, op);
            break;
        default:
            break;
        }
    }
    graph_remove_dead(g);
}
