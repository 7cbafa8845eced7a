/* rope: pairs of elements turned by an angle that grows with their position. */
#include "graph/ops/ops.h"

cvn_value *cvn_rope(cvn_graph *g, cvn_value *x, cvn_value *positions, cvn_value *inv_freq,
                    bool interleaved)
{
    OpAttr attr = {.flag = interleaved};
    return graph_add(g, OP_ROPE, &attr, 3, (cvn_value *[]){x, positions, inv_freq}, NULL);
}

int infer_rope(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *position = op_in(op, 1), *freq = op_in(op, 2);
    if (x->rank != 4 || !dtype_is_float(x->dtype))
        return infer_fail(op, err, "x must be floats [batch, seq, heads, head_dim]");
    if (position->dtype != CVN_I32 || position->rank != 2 || position->dim[0] != x->dim[0] ||
        position->dim[1] != x->dim[1])
        return infer_fail(op, err, "positions must be i32 [batch, seq]");
    if (freq->dtype != CVN_F32 || freq->rank != 1 || freq->dim[0] * 2 != x->dim[3])
        return infer_fail(op, err, "inv_freq must be f32 [head_dim / 2]");
    type[0] = *x;
    return CVN_OK;
}

/* One half of each pair, as [batch, seq, heads, pairs]: elements [0, pairs) or [pairs, 2 pairs) of
   the last dimension; or, interleaved, the even or the odd ones. */
static cvn_value *rope_half(cvn_graph *g, cvn_value *x, int half, bool interleaved)
{
    int64_t start[CVN_MAX_RANK] = {0}, limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    int last = x->type.rank - 1;
    int64_t pairs = x->type.dim[last] / 2;
    for (int i = 0; i <= last; i++) {
        limit[i] = x->type.dim[i];
        stride[i] = 1;
    }
    if (interleaved) {
        start[last] = half;
        stride[last] = 2;
    } else {
        start[last] = half * pairs;
        limit[last] = start[last] + pairs;
    }
    return cvn_slice(g, x, start, limit, stride);
}

/* The inverse of rope_half joins a and b into one tensor of the given shape. */
static cvn_value *rope_join(cvn_graph *g, cvn_value *a, cvn_value *b, const cvn_type *shape,
                            bool interleaved)
{
    int last = shape->rank - 1;
    if (!interleaved)
        return cvn_concatenate(g, 2, (cvn_value *[]){a, b}, last);
    int64_t dim[CVN_MAX_RANK];
    for (int i = 0; i <= last; i++)
        dim[i] = a->type.dim[i];
    dim[last + 1] = 1; /* [batch, seq, heads, pairs, 1] */
    cvn_value *pair[2] = {a, b};
    for (int i = 0; i < 2; i++)
        pair[i] = cvn_reshape(g, pair[i], last + 2, dim);
    return cvn_reshape(g, cvn_concatenate(g, 2, pair, last + 1), shape->rank, shape->dim);
}

/* (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position * inv_freq[pair]. */
void decompose_rope(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *shape = &op->operand[0]->type;
    cvn_value *x = as(g, op->operand[0], wide(shape->dtype)); /* [batch, seq, heads, head_dim] */
    cvn_value *position = as(g, op->operand[1], CVN_F32);     /* [batch, seq] */
    cvn_value *inv_freq = as(g, op->operand[2], CVN_F32);     /* [pairs] */
    bool interleaved = op->attr.flag;

    cvn_value *a = rope_half(g, x, 0, interleaved), *b = rope_half(g, x, 1, interleaved);
    cvn_type turn = CVN_TYPE(CVN_F32, shape->dim[0], shape->dim[1], shape->dim[3] / 2);
    position = spread(g, position, &turn, (const int[]){0, 1});
    inv_freq = spread(g, inv_freq, &turn, (const int[]){2});
    cvn_value *angle = as(g, cvn_multiply(g, position, inv_freq), x->type.dtype);
    const int over_heads[] = {0, 1, 3};
    cvn_value *c = spread(g, cvn_cosine(g, angle), &a->type, over_heads);
    cvn_value *s = spread(g, cvn_sine(g, angle), &a->type, over_heads);
    cvn_value *ac = cvn_multiply(g, a, c), *turned_a = cvn_subtract(g, ac, cvn_multiply(g, b, s));
    cvn_value *bc = cvn_multiply(g, b, c), *turned_b = cvn_add(g, bc, cvn_multiply(g, a, s));
    out[0] = as(g, rope_join(g, turned_a, turned_b, shape, interleaved), shape->dtype);
}

/* Turning is undone by turning back, by the opposite angle. */
void grad_rope(Grad *d, const Op *op)
{
    if (grad_wants(d, op, 2)) {
        grad_refuse(d, op, "for its frequencies");
        return;
    }
    cvn_value *back = cvn_negate(d->g, op->operand[2]);
    grad_give(d, op, 0, cvn_rope(d->g, grad_of(d, op, 0), op->operand[1], back, op->attr.flag));
}
