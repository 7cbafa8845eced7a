/*
 * Rules of the operations that address by data.
 *
 * Gather clamps its indices so that slices are inside, scatter skips what is outside. So gather's
 * gradient scatters to clamped indices; and scatter's gradient gathers from a tensor with a margin of
 * zeros, as wide as the slice, where the indices that are outside end up:
 *
 *     dy [5], slices of 2, index 4: element 4 is inside, 5 is not
 *     with margins: 0 0 | a b c d e | 0 0      index 4 + 2 reads  e 0
 */
#include "grad/rule.h"

/* A value for each component of the index vectors, in the type of the indices. */
static cvn_value *per_component(cvn_graph *g, const Op *op, const cvn_type *indices,
                                const int64_t *value)
{
    int n = op->attr.index_map.n, at = (int)op->attr.index_vector_dim;
    if (at == indices->rank)
        return cvn_splat(g, *indices, (double)value[0]);
    int32_t data[CVN_MAX_RANK] = {0};
    for (int i = 0; i < n; i++)
        data[i] = (int32_t)value[i];
    cvn_value *row = cvn_constant(g, CVN_TYPE(indices->dtype, n), data);
    return cvn_broadcast_in_dim(g, row, *indices, &at);
}

/* A scatter with the dimension numbers of op, which is a scatter or a gather. */
static cvn_value *scatter_like(cvn_graph *g, const Op *op, Combine combine, cvn_value *x,
                               cvn_value *indices, cvn_value *updates)
{
    OpAttr attr = op->attr;
    attr.combine = combine;
    attr.sizes = (Ints){0};
    return graph_add(g, OP_SCATTER, &attr, 3, (cvn_value *[]){x, indices, updates}, NULL);
}

/* A scatter-add to where the slices came from. Its updates are applied in row-major order. */
void grad_gather(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *x = op->operand[0], *indices = op->operand[1];
    int64_t most[CVN_MAX_RANK] = {0};
    for (int k = 0; k < op->attr.index_map.n; k++) {
        int64_t dim = op->attr.index_map.v[k];
        most[k] = x->type.dim[dim] - op->attr.sizes.v[dim];
    }
    cvn_value *least = cvn_splat(g, cvn_scalar(indices->type.dtype), 0);
    indices = cvn_clamp(g, least, indices, per_component(g, op, &indices->type, most));
    /* Sums of 16-bit floats are kept in f32 while they are being added up. */
    const cvn_type sum = with_dtype(x->type, x->type.dtype == CVN_F64 ? CVN_F64 : CVN_F32);
    cvn_value *dy = as(g, grad_of(d, op, 0), sum.dtype);
    cvn_value *zeros = cvn_splat(g, sum, 0);
    cvn_value *dx = scatter_like(g, op, COMBINE_ADD, zeros, indices, dy);
    grad_add(d, op, 0, as(g, dx, x->type.dtype));
}

cvn_value *grad_gather_updates(cvn_graph *g, const Op *op, cvn_value *x)
{
    const OpAttr *a = &op->attr;
    cvn_value *indices = as(g, op->operand[1], CVN_I32);
    const cvn_type *updates = &op->operand[2]->type;
    int64_t size[CVN_MAX_RANK], margin[CVN_MAX_RANK] = {0}, none[CVN_MAX_RANK] = {0};
    int64_t least[CVN_MAX_RANK] = {0}, most[CVN_MAX_RANK] = {0}, shift[CVN_MAX_RANK] = {0};
    for (int i = 0, w = 0; i < x->type.rank; i++) {
        bool dropped = ints_contain(&a->collapsed, i) || ints_contain(&a->operand_batch, i);
        size[i] = dropped ? 1 : updates->dim[a->window.v[w++]];
    }
    for (int k = 0; k < a->index_map.n; k++) {
        int64_t dim = a->index_map.v[k];
        margin[dim] = shift[k] = size[dim];
        least[k] = -size[dim];
        most[k] = x->type.dim[dim];
    }
    const cvn_type *shape = &indices->type;
    cvn_value *low = per_component(g, op, shape, least), *high = per_component(g, op, shape, most);
    cvn_value *inside = cvn_clamp(g, low, indices, high);
    inside = cvn_add(g, inside, per_component(g, op, shape, shift));
    cvn_value *zero = cvn_splat(g, cvn_scalar(x->type.dtype), 0);
    OpAttr attr = op->attr;
    attr.combine = COMBINE_ASSIGN; /* 0, as a gather has none */
    attr.sizes = graph_ints(g, x->type.rank, size);
    x = cvn_pad(g, x, zero, margin, margin, none);
    return graph_add(g, OP_GATHER, &attr, 2, (cvn_value *[]){x, inside}, NULL);
}

/* An assignment: what was overwritten has no gradient, and of updates to one place only the last has
   one. Each update is given a number; the numbers that stand in the result say which were last. */
static void grad_scatter_assign(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *x = op->operand[0], *indices = op->operand[1], *updates = op->operand[2];
    cvn_value *dy = grad_of(d, op, 0);
    if (grad_wants(d, op, 0)) {
        cvn_value *zeros = like(g, updates, 0);
        grad_add(d, op, 0, scatter_like(g, op, COMBINE_ASSIGN, dy, indices, zeros));
    }
    if (!grad_wants(d, op, 2))
        return;
    int64_t n = cvn_type_elements(&updates->type);
    cvn_value *count = cvn_iota(g, CVN_TYPE(CVN_I32, n), 0);
    count = cvn_add(g, count, like(g, count, 1)); /* 0 is: none */
    count = cvn_reshape(g, count, updates->type.rank, updates->type.dim);
    cvn_value *places = cvn_splat(g, with_dtype(x->type, CVN_I32), 0);
    cvn_value *writer = scatter_like(g, op, COMBINE_ASSIGN, places, indices, count);
    cvn_value *last = cvn_compare_values(g, CVN_EQ, grad_gather_updates(g, op, writer), count);
    grad_add(d, op, 2, where(g, last, grad_gather_updates(g, op, dy)));
}

void grad_scatter(Grad *d, const Op *op)
{
    if (op->attr.combine == COMBINE_ASSIGN) {
        grad_scatter_assign(d, op);
        return;
    }
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, dy);
    if (grad_wants(d, op, 2))
        grad_add(d, op, 2, grad_gather_updates(d->g, op, dy));
}

void grad_dynamic_slice(Grad *d, const Op *op)
{
    cvn_value *zeros = like(d->g, op->operand[0], 0);
    grad_add(d, op, 0, cvn_dynamic_update_slice(d->g, zeros, grad_of(d, op, 0), op->operand + 1));
}

void grad_dynamic_update_slice(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *update = op->operand[1], **starts = op->operand + 2;
    if (grad_wants(d, op, 0))
        grad_add(d, op, 0, cvn_dynamic_update_slice(d->g, dy, like(d->g, update, 0), starts));
    if (grad_wants(d, op, 1))
        grad_add(d, op, 1, cvn_dynamic_slice(d->g, dy, starts, update->type.dim));
}

/* Sorting positions along with the key says where each element came from; sorting the gradient by
   these positions takes it back there. */
void grad_sort(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    int axis = (int)op->attr.axis;
    const cvn_type count = with_dtype(op->operand[0]->type, CVN_I32);
    cvn_value *sorted[2], *back[2];
    cvn_sort_pair(g, op->operand[0], cvn_iota(g, count, axis), axis, op->attr.flag, sorted);
    for (int i = 0; i < op->n_operands; i++) {
        if (!grad_wants(d, op, i))
            continue;
        cvn_sort_pair(g, sorted[1], grad_of(d, op, i), axis, false, back);
        grad_add(d, op, i, back[1]);
    }
}
