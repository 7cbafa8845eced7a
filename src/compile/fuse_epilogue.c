/*
 * What would be done to a result alone is an epilogue of the operation that writes it:
 *
 *     add(dot_general(x, w), r)              dot_general x, w, r         (a residual, or a gradient's sum)
 *     transpose(dot_general(x, w))           dot_general x, w {dims}     (heads in front of positions)
 *     transpose(rope(x)), rope(transpose(x)) rope x {transposed}
 *     add(rms_norm_backward(x, w, dy), r)    rms_norm_backward x, w, dy, r
 *       and its rounding to bf16               its third result
 *     add(r, scatter(zeros, …))              scatter r, … {residual}     (rows that occur, and no others)
 *
 *     softmax_cross_entropy, and its gradient, where nothing of the loss's own gradient is computed: one step, and one
 *       exponential instead of two; its rounding is another one
 *
 * It is done where kernels say that they can, on a plan's own graph, behind fuse_convert, which has made roundings part of
 * products. Each sum is rounded as it was: the bits are the same, but for the sign of zeros where nothing is scattered to.
 *
 * A sum is computed where its latest operand was; so the other operand must be there by then.
 */
#include "compile/fuse_impl.h"

static void move_before(cvn_graph *g, Op *op, Op *next)
{
    graph_remove(g, op);
    graph_put_before(g, op, next);
}

/* op makes `v`, as its result 0, from now on. */
static void set_result(Fuse *f, Op *op, cvn_value *v)
{
    f->position[v->id] = f->position[op->result[0]->id];
    op->result[0] = v;
    fuse_own_results(op);
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
static bool take_sum(Fuse *f, Op *sum, Op *op, cvn_value *other)
{
    cvn_value *v = op->result[0], *made = sum->result[0];
    cvn_dtype dtype = made->type.dtype;
    if (f->uses[v->id] != 1 || !kernel_fuses(f->backend, op, EPILOGUE_RESIDUAL) || other == v ||
        (dtype != CVN_F32 && dtype != CVN_BF16))
        return false;
    if (is_sum_of_rows(op)) { /* it moves to where the sum was */
        f->position[v->id] = f->position[made->id];
        move_before(f->g, op, sum);
        op->operand[0] = other;
        op->attr.residual = true;
    } else if (f->position[other->id] < f->position[v->id] && (!is_norm(op) || dtype == CVN_F32)) {
        fuse_add_operand(f->g, op, other);
    } else {
        return false;
    }
    graph_remove(f->g, sum);
    set_result(f, op, made);
    return true;
}

static void take_sums(Fuse *f, Op *sum)
{
    cvn_value *v[2] = {sum->operand[0], sum->operand[1]};
    bool late = f->position[v[1]->id] > f->position[v[0]->id];
    for (int i = 0; i < 2; i++) { /* the later one first */
        int k = i == 0 ? late : !late;
        Op *op = v[k]->def;
        bool can = v[k]->result == 0 && (is_product(op) || is_norm(op) || is_sum_of_rows(op));
        if (can && take_sum(f, sum, op, v[1 - k]))
            return;
    }
}

/* ---- a rounded copy ---- */

static void take_copy(Fuse *f, Op *convert)
{
    Op *op = convert->operand[0]->def;
    if (op->kind != OP_RMS_NORM_BACKWARD || op->n_results != 2 ||
        convert->operand[0]->result != 0 || convert->operand[0]->type.dtype != CVN_F32 ||
        convert->result[0]->type.dtype != CVN_BF16 || !kernel_fuses(f->backend, op, EPILOGUE_COPY))
        return;
    graph_remove(f->g, convert);
    fuse_add_result(f->g, op, convert->result[0]);
    f->position[convert->result[0]->id] = f->position[op->result[0]->id];
}

/* ---- a gradient and what it is the gradient of ---- */

static bool is_constant(const cvn_value *v)
{
    return v->def->kind == OP_CONSTANT;
}

/* softmax_cross_entropy_backward logits, targets, lse, dloss, dlse becomes … logits, targets, dloss, dlse, with the
   results dlogits, loss, lse, in the place of the loss. */
static void take_loss(Fuse *f, Op *op)
{
    Op *loss = op->operand[2]->def;
    if (op->n_operands != 5 || loss->kind != OP_SOFTMAX_CROSS_ENTROPY ||
        op->operand[2]->result != 1 || loss->operand[0] != op->operand[0] ||
        loss->operand[1] != op->operand[1] || !is_constant(op->operand[3]) ||
        !is_constant(op->operand[4]) || !kernel_fuses(f->backend, op, FUSES_FORWARD))
        return;
    for (int i = 3; i < 5; i++) {
        move_before(f->g, op->operand[i]->def, loss);
        op->operand[i - 1] = op->operand[i];
    }
    op->n_operands = 4;
    move_before(f->g, op, loss);
    graph_remove(f->g, loss);
    f->position[op->result[0]->id] = f->position[loss->result[0]->id];
    for (int i = 0; i < 2; i++)
        fuse_add_result(f->g, op, loss->result[i]);
}

/* ---- dimensions ---- */

/* [batch, seq, heads, head_dim] to [batch, heads, seq, head_dim], or back. */
static bool is_swap(const Op *op)
{
    const int64_t *p = op->attr.dims.v;
    return op->kind == OP_TRANSPOSE && op->attr.dims.n == 4 && p[0] == 0 && p[1] == 2 &&
           p[2] == 1 && p[3] == 3;
}

static void take_transpose(Fuse *f, Op *transpose)
{
    cvn_value *v = transpose->operand[0];
    Op *op = v->def;
    int last = v->type.rank - 1;
    if (v->result != 0 || f->uses[v->id] != 1 || !kernel_fuses(f->backend, op, EPILOGUE_TRANSPOSE))
        return;
    if (op->kind == OP_ROPE && is_swap(transpose) && !(op->attr.transposed & 2))
        op->attr.transposed |= 2;
    else if (is_product(op) && op->attr.lhs_batch.n == 0 && transpose->attr.dims.v[last] == last &&
             op->operand[1]->type.rank > op->attr.rhs_contract.n)
        op->attr.dims = transpose->attr.dims;
    else
        return;
    graph_remove(f->g, transpose);
    set_result(f, op, transpose->result[0]);
}

static void take_transposed(Fuse *f, Op *rope)
{
    const Op *transpose = rope->operand[0]->def;
    if (!is_swap(transpose) || f->uses[rope->operand[0]->id] != 1 ||
        !kernel_fuses(f->backend, rope, PROLOGUE_TRANSPOSE))
        return;
    rope->operand[0] = transpose->operand[0];
    rope->attr.transposed |= 1;
}

void fuse_epilogue(Fuse *f, Op *op)
{
    static FuseRule *const rule[OP_COUNT] = {
        [OP_ADD] = take_sums,
        [OP_CONVERT] = take_copy,
        [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = take_loss,
        [OP_TRANSPOSE] = take_transpose,
        [OP_ROPE] = take_transposed,
    };
    if (rule[op->kind])
        rule[op->kind](f, op);
}
