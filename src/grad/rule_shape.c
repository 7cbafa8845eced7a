/* Rules of the operations that move elements: each moves the gradient back. */
#include "grad/rule.h"

cvn_value *grad_repeat(cvn_graph *g, cvn_value *v, const cvn_type *shape, const Ints *reduced)
{
    int dims[CVN_MAX_RANK], n = 0;
    for (int i = 0; i < shape->rank; i++)
        if (!ints_contain(reduced, i))
            dims[n++] = i;
    return cvn_broadcast_in_dim(g, v, *shape, dims);
}

cvn_value *grad_place(cvn_graph *g, cvn_value *x, const int *place)
{
    int permutation[CVN_MAX_RANK];
    bool moves = false;
    for (int i = 0; i < x->type.rank; i++) {
        permutation[place[i]] = i;
        moves = moves || place[i] != i;
    }
    return moves ? cvn_transpose(g, x, permutation) : x;
}

/* Sums over the dimensions that were added or stretched, then puts the others back in order. */
void grad_broadcast_in_dim(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    cvn_value *dx = grad_of(d, op, 0);
    int source[CVN_MAX_RANK], summed[CVN_MAX_RANK], place[CVN_MAX_RANK];
    int n_summed = 0, n_kept = 0;
    for (int i = 0; i < y->rank; i++)
        source[i] = -1;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] == y->dim[op->attr.dims.v[i]])
            source[op->attr.dims.v[i]] = i;
    for (int i = 0; i < y->rank; i++) {
        if (source[i] < 0)
            summed[n_summed++] = i;
        else
            place[n_kept++] = source[i];
    }
    /* Of the operand's dimensions only the kept ones are there yet: count their places among these. */
    int rank_among[CVN_MAX_RANK];
    for (int i = 0; i < n_kept; i++) {
        rank_among[i] = 0;
        for (int j = 0; j < n_kept; j++)
            rank_among[i] += place[j] < place[i];
    }
    if (n_summed)
        dx = cvn_reduce_dims(g, CVN_SUM, dx, n_summed, summed);
    dx = grad_place(g, dx, rank_among);
    if (n_kept != x->rank)
        dx = cvn_reshape(g, dx, x->rank, x->dim);
    grad_add(d, op, 0, dx);
}

void grad_reshape(Grad *d, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    grad_add(d, op, 0, cvn_reshape(d->g, grad_of(d, op, 0), x->rank, x->dim));
}

/* Dimension i of y is dimension p[i] of x. */
void grad_transpose(Grad *d, const Op *op)
{
    int place[CVN_MAX_RANK];
    for (int i = 0; i < op->attr.dims.n; i++)
        place[i] = (int)op->attr.dims.v[i];
    grad_add(d, op, 0, grad_place(d->g, grad_of(d, op, 0), place));
}

static cvn_value *zero_of(cvn_graph *g, const cvn_value *x)
{
    return cvn_splat(g, cvn_scalar(x->type.dtype), 0);
}

/* Zeros around and between. */
void grad_slice(Grad *d, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    int64_t high[CVN_MAX_RANK], between[CVN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        int64_t stride = op->attr.stride.v[i];
        int64_t width = y->dim[i] ? (y->dim[i] - 1) * stride + 1 : 0;
        between[i] = stride - 1;
        high[i] = x->dim[i] - op->attr.start.v[i] - width;
    }
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, cvn_pad(d->g, dy, zero_of(d->g, dy), op->attr.start.v, high, between));
}

void grad_concatenate(Grad *d, const Op *op)
{
    int axis = (int)op->attr.axis;
    int64_t start = 0;
    for (int i = 0; i < op->n_operands; i++) {
        int64_t limit = start + op->operand[i]->type.dim[axis];
        if (grad_wants(d, op, i))
            grad_add(d, op, i, cvn_slice_axis(d->g, grad_of(d, op, 0), axis, start, limit));
        start = limit;
    }
}

/* Cuts the padding off (or, where it was negative, puts zeros back), then takes every
   (interior + 1)-th. The padding value has the gradients of the places that are padding. */
void grad_pad(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    const OpAttr *a = &op->attr;
    cvn_value *dy = grad_of(d, op, 0);
    if (grad_wants(d, op, 0)) {
        int64_t low[CVN_MAX_RANK], high[CVN_MAX_RANK], none[CVN_MAX_RANK] = {0};
        int64_t limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
        for (int i = 0; i < x->rank; i++) {
            low[i] = -a->start.v[i];
            high[i] = -a->limit.v[i];
            stride[i] = a->stride.v[i] + 1;
            limit[i] = y->dim[i] + low[i] + high[i];
        }
        cvn_value *cut = cvn_pad(g, dy, zero_of(g, dy), low, high, none);
        grad_add(d, op, 0, cvn_slice(g, cut, none, limit, stride));
    }
    if (grad_wants(d, op, 1)) {
        const cvn_type mask = with_dtype(*x, CVN_BOOL);
        cvn_value *yes = cvn_splat(g, cvn_scalar(CVN_BOOL), 1);
        cvn_value *padding =
            cvn_pad(g, cvn_splat(g, mask, 0), yes, a->start.v, a->limit.v, a->stride.v);
        grad_add(d, op, 1, grad_sum_all(g, where(g, padding, dy)));
    }
}

void grad_reverse(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, graph_add(d->g, OP_REVERSE, &op->attr, 1, &dy, NULL));
}

void grad_barrier(Grad *d, const Op *op)
{
    grad_add(d, op, 0, grad_of(d, op, 0));
}
