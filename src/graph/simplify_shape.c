/*
 * The algebra of operations that move elements, and what contractions, reductions and collectives
 * can do without. Nothing here computes, so everything here is exact.
 *
 *     transpose(transpose(x, p), q)  -> transpose(x, q of p)       or x when that is the identity
 *     transpose(x f32[8,1,64], 1,0,2) -> reshape(x)                only a dimension of size 1 moves
 *     slice(concatenate(a, b))       -> slice(b)                   when it lies in one part
 *     broadcast(broadcast(x))        -> broadcast(x)
 *     add(broadcast(x), broadcast(y)) -> broadcast(add(x, y))      the same stretching of one shape
 *     dot_general(transpose(x), y)   -> dot_general(x, y)          with other dimension numbers
 */
#include "graph/fold.h"
#include "graph/simplify_rules.h"

#include <string.h>

static cvn_value *reshape_to(cvn_graph *g, cvn_value *x, const cvn_type *type)
{
    return cvn_type_equal(&x->type, type) ? x : cvn_reshape(g, x, type->rank, type->dim);
}

static cvn_value *broadcast(cvn_graph *g, cvn_value *x, const cvn_type *type, const int64_t *dims)
{
    OpAttr attr = {.dims = graph_ints(g, x->type.rank, dims)};
    cvn_type want = *type;
    want.dtype = x->type.dtype;
    return graph_add(g, OP_BROADCAST_IN_DIM, &attr, 1, &x, &want);
}

/* ---- operations that do nothing ---- */

/* Of a reshape, or of a slice: a stride of more than 1 would make the result smaller, and the
   starts of a dynamic one are clamped to 0. */
static cvn_value *operand_of_same_type(cvn_graph *g, const Op *op)
{
    (void)g;
    cvn_value *x = op->operand[0];
    return cvn_type_equal(&x->type, &op->result[0]->type) ? x : NULL;
}

/* A group of one device has nothing to exchange. */
static cvn_value *group_of_one(cvn_graph *g, const Op *op)
{
    return op->attr.group_size == 1 ? operand_of_same_type(g, op) : NULL;
}

/* ---- iota ---- */

/* Counting along a dimension of size 1 gives 0. */
static cvn_value *iota_of_one(cvn_graph *g, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    return type->dim[op->attr.axis] == 1 ? cvn_splat(g, *type, 0) : NULL;
}

/* ---- reshape ---- */

static cvn_value *reshape_of_reshape(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_RESHAPE);
    return inner ? reshape_to(g, inner->operand[0], &op->result[0]->type) : NULL;
}

/* A scalar stretched over one shape is the scalar stretched over another. */
static cvn_value *reshape_of_broadcast_scalar(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_BROADCAST_IN_DIM);
    if (!inner || inner->operand[0]->type.rank != 0)
        return NULL;
    return broadcast(g, inner->operand[0], &op->result[0]->type, NULL);
}

/* ---- transpose ---- */

/* Dimensions of size 1 may go anywhere: when the others keep their order no element moves. */
static cvn_value *transpose_as_reshape(cvn_graph *g, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    int64_t last = -1;
    bool moves = false;
    for (int i = 0; i < type->rank; i++) {
        moves = moves || op->attr.dims.v[i] != i;
        if (type->dim[i] == 1)
            continue;
        if (op->attr.dims.v[i] < last)
            return NULL;
        last = op->attr.dims.v[i];
    }
    return moves ? reshape_to(g, op->operand[0], type) : op->operand[0];
}

static cvn_value *transpose_of_transpose(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_TRANSPOSE);
    if (!inner)
        return NULL;
    int permutation[CVN_MAX_RANK];
    for (int i = 0; i < op->attr.dims.n; i++)
        permutation[i] = (int)inner->attr.dims.v[op->attr.dims.v[i]];
    return cvn_transpose(g, inner->operand[0], permutation);
}

/* Where each dimension of the operand of a transpose goes. */
static void inverse(const Ints *permutation, int64_t *to)
{
    for (int i = 0; i < permutation->n; i++)
        to[permutation->v[i]] = i;
}

static cvn_value *transpose_of_broadcast(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_BROADCAST_IN_DIM);
    if (!inner)
        return NULL;
    int64_t to[CVN_MAX_RANK], dims[CVN_MAX_RANK];
    inverse(&op->attr.dims, to);
    for (int i = 0; i < inner->attr.dims.n; i++)
        dims[i] = to[inner->attr.dims.v[i]];
    return broadcast(g, inner->operand[0], &op->result[0]->type, dims);
}

static cvn_value *transpose_of_iota(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_IOTA);
    if (!inner)
        return NULL;
    int64_t to[CVN_MAX_RANK];
    inverse(&op->attr.dims, to);
    return cvn_iota(g, op->result[0]->type, (int)to[inner->attr.axis]);
}

/* ---- broadcast_in_dim ---- */

/* As many elements as before, in the same order: only dimensions of size 1 are added. */
static cvn_value *broadcast_as_reshape(cvn_graph *g, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    cvn_value *x = op->operand[0];
    if (cvn_type_elements(type) != cvn_type_elements(&x->type))
        return NULL;
    for (int i = 1; i < op->attr.dims.n; i++)
        if (op->attr.dims.v[i] <= op->attr.dims.v[i - 1])
            return NULL;
    return reshape_to(g, x, type);
}

/* Of a broadcast, or of a transpose. */
static cvn_value *broadcast_of_moved(cvn_graph *g, const Op *op)
{
    const Op *turned = made_by(op->operand[0], OP_TRANSPOSE);
    const Op *inner = turned ? turned : made_by(op->operand[0], OP_BROADCAST_IN_DIM);
    if (!inner)
        return NULL;
    const int64_t *to = op->attr.dims.v, *moved = inner->attr.dims.v;
    int64_t dims[CVN_MAX_RANK];
    for (int i = 0; i < inner->attr.dims.n; i++)
        dims[turned ? moved[i] : i] = to[turned ? i : moved[i]];
    return broadcast(g, inner->operand[0], &op->result[0]->type, dims);
}

/* Of a reshape that only adds dimensions of size 1 to one that has none. */
static cvn_value *broadcast_of_reshape(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_RESHAPE);
    if (!inner)
        return NULL;
    cvn_value *x = inner->operand[0];
    const cvn_type *padded = &op->operand[0]->type;
    int64_t dims[CVN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < padded->rank; i++) {
        if (padded->dim[i] == 1)
            continue;
        if (n == x->type.rank || x->type.dim[n] != padded->dim[i])
            return NULL;
        dims[n++] = op->attr.dims.v[i];
    }
    return n == x->type.rank ? broadcast(g, x, &op->result[0]->type, dims) : NULL;
}

static cvn_value *broadcast_of_iota(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_IOTA);
    if (!inner || inner->result[0]->type.dim[inner->attr.axis] == 1)
        return NULL;
    return cvn_iota(g, op->result[0]->type, (int)op->attr.dims.v[inner->attr.axis]);
}

/* The broadcast that an operand is, when it is like
   `model`: the same stretching of the same shape. */
static const Op *like_broadcast(const cvn_value *v, const Op *model)
{
    const Op *b = made_by(v, OP_BROADCAST_IN_DIM);
    if (!b || !model)
        return b;
    cvn_type source = b->operand[0]->type;
    source.dtype = model->operand[0]->type.dtype;
    return cvn_type_equal(&source, &model->operand[0]->type) &&
                   attr_equal(OP_BROADCAST_IN_DIM, &b->attr, &model->attr)
               ? b
               : NULL;
}

/* Computes before stretching. Each operand is a broadcast like the others, a splat, or a scalar
   where the operation takes one; the sources have fewer elements than the result. */
cvn_value *simplify_broadcast_operands(cvn_graph *g, const Op *op)
{
    const Op *model = NULL;
    cvn_value *source[3];
    const cvn_type *wide = &op->result[0]->type;
    for (int i = 0; i < op->n_operands && !model; i++)
        if (op->operand[i]->type.rank == wide->rank)
            model = made_by(op->operand[i], OP_BROADCAST_IN_DIM);
    if (!model || cvn_type_elements(&model->operand[0]->type) >= cvn_type_elements(wide))
        return NULL;
    for (int i = 0; i < op->n_operands; i++) {
        const Op *same = like_broadcast(op->operand[i], model);
        bool scalar = op->operand[i]->type.rank == 0 && wide->rank != 0;
        if (!same && !scalar && !fold_splat_of(op->operand[i]))
            return NULL;
        source[i] = same ? same->operand[0] : op->operand[i];
    }
    cvn_type narrow = model->operand[0]->type;
    for (int i = 0; i < op->n_operands; i++) {
        const Literal *literal = fold_splat_of(op->operand[i]);
        narrow.dtype = op->operand[i]->type.dtype;
        if (literal && op->operand[i]->type.rank == wide->rank)
            source[i] = fold_constant(g, &narrow, literal);
    }
    narrow.dtype = wide->dtype;
    cvn_value *y = graph_add(g, op->kind, &op->attr, op->n_operands, source, &narrow);
    return broadcast(g, y, wide, model->attr.dims.v);
}

/* ---- slice ---- */

static cvn_value *slice_of_slice(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_SLICE);
    if (!inner)
        return NULL;
    const OpAttr *a = &inner->attr, *b = &op->attr;
    const cvn_type *type = &op->result[0]->type;
    int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    for (int i = 0; i < type->rank; i++) {
        start[i] = limit[i] = 0;
        stride[i] = 1;
        if (type->dim[i] == 0)
            continue;
        start[i] = a->start.v[i] + b->start.v[i] * a->stride.v[i];
        /* A stride that is never stepped may be anything; the product of two may overflow. */
        if (type->dim[i] > 1)
            stride[i] = a->stride.v[i] * b->stride.v[i];
        limit[i] = start[i] + (type->dim[i] - 1) * stride[i] + 1;
    }
    return cvn_slice(g, inner->operand[0], start, limit, stride);
}

/* Within one part of a concatenation. */
static cvn_value *slice_of_concatenate(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_CONCATENATE);
    int64_t axis = inner ? inner->attr.axis : 0;
    const cvn_type *type = &op->result[0]->type;
    if (!inner || type->dim[axis] == 0)
        return NULL;
    int64_t stride = type->dim[axis] > 1 ? op->attr.stride.v[axis] : 1;
    int64_t begin = op->attr.start.v[axis], end = begin + (type->dim[axis] - 1) * stride + 1;
    for (int i = 0; i < inner->n_operands; i++) {
        int64_t size = inner->operand[i]->type.dim[axis];
        if (begin >= 0 && end <= size && begin < end) {
            int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK];
            size_t bytes = (size_t)type->rank * sizeof *start;
            memcpy(start, op->attr.start.v, bytes);
            memcpy(limit, op->attr.limit.v, bytes);
            start[axis] = begin;
            limit[axis] = end;
            return cvn_slice(g, inner->operand[i], start, limit, op->attr.stride.v);
        }
        begin -= size;
        end -= size;
    }
    return NULL;
}

/* Of a broadcast: only what is read of the source is stretched. */
static cvn_value *slice_of_broadcast(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_BROADCAST_IN_DIM);
    if (!inner)
        return NULL;
    cvn_value *x = inner->operand[0];
    int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    for (int i = 0; i < x->type.rank; i++) {
        int64_t d = inner->attr.dims.v[i];
        bool stretched = x->type.dim[i] != op->operand[0]->type.dim[d];
        start[i] = stretched ? 0 : op->attr.start.v[d];
        limit[i] = stretched ? x->type.dim[i] : op->attr.limit.v[d];
        stride[i] = stretched ? 1 : op->attr.stride.v[d];
    }
    cvn_value *part = cvn_slice(g, x, start, limit, stride);
    if (cvn_type_equal(&part->type, &x->type))
        part = x;
    return broadcast(g, part, &op->result[0]->type, inner->attr.dims.v);
}

/* Across the dimension that is counted along nothing but the shape changes. */
static cvn_value *slice_of_iota(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_IOTA);
    if (!inner)
        return NULL;
    int64_t axis = inner->attr.axis;
    if (op->attr.start.v[axis] != 0 || (op->attr.stride.v[axis] != 1 && op->attr.limit.v[axis] > 1))
        return NULL;
    return cvn_iota(g, op->result[0]->type, (int)axis);
}

/* Starts that are known make it a slice. */
static cvn_value *dynamic_slice_as_slice(cvn_graph *g, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        const cvn_value *given = op->operand[1 + i];
        const Literal *literal = fold_splat_of(given);
        int64_t size = op->attr.sizes.v[i], most = x->dim[i] - size;
        if (!literal && most > 0)
            return NULL;
        int64_t at = literal ? (int64_t)element_get(given->type.dtype, literal->data, 0) : 0;
        start[i] = at < 0 ? 0 : at > most ? most : at;
        limit[i] = start[i] + size;
    }
    return cvn_slice(g, op->operand[0], start, limit, NULL);
}

/* An update of the operand's size replaces all of it; an empty one nothing. */
static cvn_value *whole_or_no_update(cvn_graph *g, const Op *op)
{
    (void)g;
    cvn_value *x = op->operand[0], *update = op->operand[1];
    if (cvn_type_equal(&x->type, &update->type))
        return update;
    return cvn_type_elements(&update->type) == 0 ? x : NULL;
}

/* ---- concatenate, pad, reverse ---- */

/* a and b are slices of one tensor, b going on along the axis where a ends, and alike otherwise. */
static bool adjoining(const Op *a, const Op *b, int64_t axis)
{
    if (!a || !b || a->operand[0] != b->operand[0])
        return false;
    for (int i = 0; i < a->attr.start.n; i++) {
        const OpAttr *p = &a->attr, *q = &b->attr;
        if (i == axis ? p->limit.v[i] != q->start.v[i] || p->stride.v[i] != 1 || q->stride.v[i] != 1
                      : p->start.v[i] != q->start.v[i] || p->limit.v[i] != q->limit.v[i] ||
                            p->stride.v[i] != q->stride.v[i])
            return false;
    }
    return true;
}

/* Drops empty parts, takes nested concatenations along
   the same axis apart, joins adjoining slices. */
static cvn_value *concatenate_fewer(cvn_graph *g, const Op *op)
{
    int64_t axis = op->attr.axis;
    int n = 0, most = 0;
    bool changed = op->n_operands == 1;
    for (int i = 0; i < op->n_operands; i++) {
        const Op *nested = made_by(op->operand[i], OP_CONCATENATE);
        most += nested && nested->attr.axis == axis ? nested->n_operands : 1;
    }
    if (most > op_info[OP_CONCATENATE].most)
        return NULL;
    cvn_value **part = arena_array(&g->arena, (size_t)most, sizeof *part);
    for (int i = 0; i < op->n_operands; i++) {
        const Op *nested = made_by(op->operand[i], OP_CONCATENATE);
        bool flat = nested && nested->attr.axis == axis;
        changed |= flat;
        for (int j = 0; j < (flat ? nested->n_operands : 1); j++) {
            cvn_value *next = flat ? nested->operand[j] : op->operand[i];
            const Op *a = n ? made_by(part[n - 1], OP_SLICE) : NULL, *b = made_by(next, OP_SLICE);
            bool joins = adjoining(a, b, axis), empty = next->type.dim[axis] == 0;
            changed |= joins || empty;
            if (joins) { /* the slice that both are together */
                int64_t limit[CVN_MAX_RANK];
                memcpy(limit, a->attr.limit.v, (size_t)a->attr.limit.n * sizeof *limit);
                limit[axis] = b->attr.limit.v[axis];
                part[n - 1] = cvn_slice(g, a->operand[0], a->attr.start.v, limit, a->attr.stride.v);
            } else if (!empty) {
                part[n++] = next;
            }
        }
    }
    if (!changed || n == 0)
        return NULL;
    return n == 1 ? part[0] : cvn_concatenate(g, n, part, (int)axis);
}

/* Padding with nothing but negative amounts is a slice. */
static cvn_value *pad_as_slice(cvn_graph *g, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        if (op->attr.start.v[i] > 0 || op->attr.limit.v[i] > 0 || op->attr.stride.v[i] != 0)
            return NULL;
        start[i] = -op->attr.start.v[i];
        limit[i] = x->dim[i] + op->attr.limit.v[i];
    }
    return cvn_slice(g, op->operand[0], start, limit, NULL);
}

/* Dimensions of size 1 need not be turned round, and what is turned twice is not turned. */
static cvn_value *reverse_fewer(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_REVERSE);
    cvn_value *x = inner ? inner->operand[0] : op->operand[0];
    bool turned[CVN_MAX_RANK] = {false};
    for (int i = 0; i < op->attr.dims.n; i++)
        turned[op->attr.dims.v[i]] = true;
    for (int i = 0; inner && i < inner->attr.dims.n; i++)
        turned[inner->attr.dims.v[i]] ^= true;
    int dims[CVN_MAX_RANK], n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (turned[i] && x->type.dim[i] > 1)
            dims[n++] = i;
    if (n == 0)
        return x;
    return inner || n < op->attr.dims.n ? cvn_reverse(g, x, n, dims) : NULL;
}

/* ---- reduce ---- */

/* Choosing the largest in two steps is choosing it in one; so for integer sums and products, but
   not for those of floats, which depend on the order. */
static cvn_value *reduce_of_reduce(cvn_graph *g, const Op *op)
{
    const Op *inner = made_by(op->operand[0], OP_REDUCE);
    bool adds = op->attr.reduce == CVN_SUM || op->attr.reduce == CVN_PRODUCT;
    if (!inner || inner->attr.reduce != op->attr.reduce ||
        (adds && dtype_is_float(op->operand[0]->type.dtype)))
        return NULL;
    cvn_value *x = inner->operand[0];
    bool gone[CVN_MAX_RANK] = {false};
    for (int i = 0; i < inner->attr.dims.n; i++)
        gone[inner->attr.dims.v[i]] = true;
    int left[CVN_MAX_RANK], n = 0; /* dimensions of x that the inner one leaves */
    for (int i = 0; i < x->type.rank; i++)
        if (!gone[i])
            left[n++] = i;
    for (int i = 0; i < op->attr.dims.n; i++)
        gone[left[op->attr.dims.v[i]]] = true;
    int dims[CVN_MAX_RANK];
    n = 0;
    for (int i = 0; i < x->type.rank; i++)
        if (gone[i])
            dims[n++] = i;
    return cvn_reduce_dims(g, op->attr.reduce, x, n, dims);
}

/* Over dimensions of size 1 (or none) nothing is combined but the element with the neutral one. For
   a sum of floats that matters, since +0 + -0 = +0; for the others it does not. */
static cvn_value *reduce_as_reshape(cvn_graph *g, const Op *op)
{
    cvn_value *x = op->operand[0];
    const cvn_type *type = &op->result[0]->type;
    for (int i = 0; i < op->attr.dims.n; i++)
        if (x->type.dim[op->attr.dims.v[i]] != 1)
            return NULL;
    cvn_value *same = reshape_to(g, x, type);
    if (op->attr.reduce == CVN_SUM && dtype_is_float(type->dtype))
        return cvn_add(g, same, cvn_splat(g, *type, 0));
    return same;
}

/* ---- dot_general ---- */

/* Rewrites the dimension numbers of one operand to those before its transpose. Free dimensions keep
   their order in the result, so they must not change it. */
static bool absorb_transpose(cvn_graph *g, const cvn_value *v, Ints *batch, Ints *contract)
{
    const Op *transpose = made_by(v, OP_TRANSPOSE);
    if (!transpose)
        return false;
    const int64_t *to = transpose->attr.dims.v;
    int64_t last = -1;
    for (int i = 0; i < v->type.rank; i++) {
        if (ints_contain(batch, i) || ints_contain(contract, i))
            continue;
        if (to[i] < last)
            return false;
        last = to[i];
    }
    for (int k = 0; k < 2; k++) {
        Ints *dims = k ? contract : batch;
        int64_t before[CVN_MAX_RANK];
        for (int i = 0; i < dims->n; i++)
            before[i] = to[dims->v[i]];
        *dims = graph_ints(g, dims->n, before);
    }
    return true;
}

static cvn_value *dot_of_transpose(cvn_graph *g, const Op *op)
{
    OpAttr attr = op->attr;
    cvn_value *operand[2] = {op->operand[0], op->operand[1]};
    bool lhs = absorb_transpose(g, operand[0], &attr.lhs_batch, &attr.lhs_contract);
    bool rhs = absorb_transpose(g, operand[1], &attr.rhs_batch, &attr.rhs_contract);
    if (!lhs && !rhs)
        return NULL;
    operand[0] = lhs ? operand[0]->def->operand[0] : operand[0];
    operand[1] = rhs ? operand[1]->def->operand[0] : operand[1];
    return graph_add(g, OP_DOT_GENERAL, &attr, 2, operand, &op->result[0]->type);
}

/* Products of 16-bit floats are computed in f32 anyway: operands that were widened to f32 need not
   be. A product of two of them is exact in f32. */
static cvn_value *dot_of_widened(cvn_graph *g, const Op *op)
{
    const Op *a = made_by(op->operand[0], OP_CONVERT), *b = made_by(op->operand[1], OP_CONVERT);
    if (!a || !b || op->operand[0]->type.dtype != CVN_F32)
        return NULL;
    cvn_value *operand[2] = {a->operand[0], b->operand[0]};
    cvn_dtype from = operand[0]->type.dtype;
    if ((from != CVN_BF16 && from != CVN_F16) || operand[1]->type.dtype != from)
        return NULL;
    return graph_add(g, OP_DOT_GENERAL, &op->attr, 2, operand, &op->result[0]->type);
}

SimplifyRule *const simplify_shape_rules[OP_COUNT][RULES_PER_KIND] = {
    [OP_IOTA] = {iota_of_one},
    [OP_BROADCAST_IN_DIM] = {broadcast_as_reshape, broadcast_of_moved, broadcast_of_reshape,
                             broadcast_of_iota},
    [OP_RESHAPE] = {operand_of_same_type, reshape_of_reshape, reshape_of_broadcast_scalar},
    [OP_TRANSPOSE] = {transpose_as_reshape, transpose_of_transpose, transpose_of_broadcast,
                      transpose_of_iota},
    [OP_SLICE] = {operand_of_same_type, slice_of_slice, slice_of_concatenate, slice_of_broadcast,
                  slice_of_iota},
    [OP_CONCATENATE] = {concatenate_fewer},
    [OP_PAD] = {pad_as_slice},
    [OP_REVERSE] = {reverse_fewer},
    [OP_DYNAMIC_SLICE] = {operand_of_same_type, dynamic_slice_as_slice},
    [OP_DYNAMIC_UPDATE_SLICE] = {whole_or_no_update},
    [OP_REDUCE] = {reduce_as_reshape, reduce_of_reduce},
    [OP_DOT_GENERAL] = {dot_of_transpose, dot_of_widened},
    [OP_ALL_REDUCE] = {group_of_one},
    [OP_ALL_GATHER] = {group_of_one},
    [OP_REDUCE_SCATTER] = {group_of_one},
    [OP_ALL_TO_ALL] = {group_of_one},
};
