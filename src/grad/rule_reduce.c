/* Rules of sums and their like, and of contractions. */
#include "grad/rule.h"

static cvn_value *reduce_like(cvn_graph *g, const Op *op, cvn_reduce kind, cvn_value *x)
{
    int dims[CVN_MAX_RANK];
    for (int i = 0; i < op->attr.dims.n; i++)
        dims[i] = (int)op->attr.dims.v[i];
    return cvn_reduce_dims(g, kind, x, op->attr.dims.n, dims);
}

/* dx_i = dy times the product of the others: y / x_i, but for zeros; where there is just one zero,
   only its own gradient is not zero. */
static cvn_value *product_gradient(cvn_graph *g, const Op *op, cvn_value *dy)
{
    cvn_value *x = op->operand[0];
    const Ints *reduced = &op->attr.dims;
    cvn_value *one = like(g, x, 1);
    cvn_value *is_zero = cvn_compare_values(g, CVN_EQ, x, like(g, x, 0));
    cvn_value *factor = cvn_select(g, is_zero, one, x);
    cvn_value *zeros = reduce_like(g, op, CVN_SUM, cvn_convert(g, is_zero, CVN_I32));
    cvn_value *rest = reduce_like(g, op, CVN_PRODUCT, factor);
    rest = grad_repeat(g, cvn_multiply(g, dy, rest), &x->type, reduced);
    zeros = grad_repeat(g, zeros, &x->type, reduced);
    /* The zeros among the other elements. */
    cvn_value *others = cvn_subtract(g, zeros, cvn_convert(g, is_zero, CVN_I32));
    cvn_value *whole = cvn_compare_values(g, CVN_EQ, others, like(g, others, 0));
    return where(g, whole, cvn_divide(g, rest, factor));
}

/* The elements that are equal to the result share its gradient. */
static cvn_value *extremum_gradient(cvn_graph *g, const Op *op, cvn_value *dy)
{
    cvn_value *x = op->operand[0];
    const Ints *reduced = &op->attr.dims;
    cvn_value *y = grad_repeat(g, op->result[0], &x->type, reduced);
    cvn_value *wins = cvn_compare_values(g, CVN_EQ, x, y);
    cvn_value *count = cvn_convert(g, wins, CVN_I32);
    count = reduce_like(g, op, CVN_SUM, count);
    cvn_value *share = cvn_divide(g, dy, cvn_convert(g, count, dy->type.dtype));
    return where(g, wins, grad_repeat(g, share, &x->type, reduced));
}

void grad_reduce(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    switch (op->attr.reduce) {
    case CVN_SUM:
        grad_add(d, op, 0, grad_repeat(d->g, dy, &op->operand[0]->type, &op->attr.dims));
        break;
    case CVN_PRODUCT:
        grad_add(d, op, 0, product_gradient(d->g, op, dy));
        break;
    case CVN_MAX:
    case CVN_MIN:
        grad_add(d, op, 0, extremum_gradient(d->g, op, dy));
        break;
    default: /* of bools */
        break;
    }
}

/* Element i is in the sums i, i + 1, …: a cumulative sum from the end. */
void grad_cumsum(Grad *d, const Op *op)
{
    int axis = (int)op->attr.axis;
    cvn_value *back = cvn_reverse(d->g, grad_of(d, op, 0), 1, &axis);
    grad_add(d, op, 0, cvn_reverse(d->g, cvn_cumsum(d->g, back, axis), 1, &axis));
}

/* Dimensions of a type that are neither batch nor contracted, in order. */
static int free_dims(const cvn_type *type, const Ints *batch, const Ints *contract, int64_t *dims)
{
    int n = 0;
    for (int i = 0; i < type->rank; i++)
        if (!ints_contain(batch, i) && !ints_contain(contract, i))
            dims[n++] = i;
    return n;
}

/*
 * The gradient of operand `side` is dy contracted with the other operand over the other's free
 * dimensions. The product has the batch dimensions, then this side's free ones, then the other's
 * contracted ones in its order; a transpose puts them where this operand has them. An example:
 *
 *     y[b,s,f] = sum over e of x[b,s,e] w[f,e]
 *     dx[b,s,e] = sum over f of dy[b,s,f] w[f,e];   dw[f,e] = sum over b, s of dy[b,s,f] x[b,s,e]
 */
static void grad_dot_side(Grad *d, const Op *op, int side)
{
    cvn_graph *g = d->g;
    const OpAttr *a = &op->attr;
    const Ints *batch[2] = {&a->lhs_batch, &a->rhs_batch};
    const Ints *contract[2] = {&a->lhs_contract, &a->rhs_contract};
    cvn_value *other = op->operand[1 - side];
    int n_batch = batch[0]->n, place[CVN_MAX_RANK], n = 0;
    int64_t own_free[CVN_MAX_RANK], other_free[CVN_MAX_RANK];
    int n_own = free_dims(&op->operand[side]->type, batch[side], contract[side], own_free);
    int n_other = free_dims(&other->type, batch[1 - side], contract[1 - side], other_free);
    cvn_dot_dims dims = {.n_batch = n_batch, .n_contract = n_other};
    for (int i = 0; i < n_batch; i++) {
        dims.lhs_batch[i] = i;
        dims.rhs_batch[i] = batch[1 - side]->v[i];
        place[n++] = (int)batch[side]->v[i];
    }
    for (int i = 0; i < n_other; i++) {
        dims.lhs_contract[i] = n_batch + (side == 0 ? n_own : 0) + i;
        dims.rhs_contract[i] = other_free[i];
    }
    for (int i = 0; i < n_own; i++)
        place[n++] = (int)own_free[i];
    for (int i = 0; i < other->type.rank; i++)
        for (int k = 0; k < contract[1 - side]->n; k++)
            if (contract[1 - side]->v[k] == i)
                place[n++] = (int)contract[side]->v[k];
    cvn_value *own = op->operand[side], *dy = as(g, grad_of(d, op, 0), other->type.dtype);
    /* It is computed in the operand's type; but in that of the weight where the operand is made of one,
       and rounded for the product. A sum over all tokens is not rounded to bf16 then (see grad_convert). */
    const cvn_value *weight = d->weight[own->id];
    cvn_dtype dtype = own->type.dtype;
    if (weight && cvn_dtype_bits(weight->type.dtype) > cvn_dtype_bits(dtype))
        dtype = weight->type.dtype;
    cvn_value *product = grad_place(g, cvn_dot_general(g, dy, other, &dims, dtype), place);
    grad_add(d, op, side, as(g, product, own->type.dtype));
}

void grad_dot_general(Grad *d, const Op *op)
{
    for (int side = 0; side < 2; side++)
        if (grad_wants(d, op, side))
            grad_dot_side(d, op, side);
}
