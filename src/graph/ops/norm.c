/* rms_norm and its gradient. */
#include "graph/ops/ops.h"

/* ---- rms_norm ---- */

cvn_value *cvn_rms_norm(cvn_graph *g, cvn_value *x, cvn_value *weight, double eps, cvn_dtype dtype)
{
    cvn_type want = x->type;
    want.dtype = dtype;
    OpAttr attr = {.eps = eps};
    return graph_add(g, OP_RMS_NORM, &attr, 2, (cvn_value *[]){x, weight}, &want);
}

int infer_rms_norm(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *weight = op_in(op, 1);
    if (x->rank < 1 || weight->rank != 1 || weight->dim[0] != x->dim[x->rank - 1])
        return infer_fail(op, err, "the weight must be a vector over the last dimension");
    if (!(op->attr.eps >= 0) || isinf(op->attr.eps))
        return infer_fail(op, err, "eps must be a finite number, not negative");
    cvn_dtype dtype = type[0].dtype == CVN_DTYPE_COUNT ? x->dtype : type[0].dtype;
    if (!dtype_is_float(dtype))
        return infer_fail(op, err, "cannot give a result of %s", cvn_dtype_name(dtype));
    type[0] = *x;
    type[0].dtype = dtype;
    return CVN_OK;
}

void decompose_rms_norm(cvn_graph *g, const Op *op, cvn_value **out)
{
    out[0] = as(g, decompose_norm(g, op->operand[0], op->operand[1], op->attr.eps),
                op->result[0]->type.dtype);
}

void grad_rms_norm(Grad *d, const Op *op)
{
    cvn_value *out[2];
    cvn_rms_norm_backward(d->g, op->operand[0], op->operand[1], grad_of(d, op, 0), op->attr.eps,
                          out);
    for (int i = 0; i < 2; i++)
        grad_give(d, op, i, out[i]);
}

/* ---- rms_norm_backward ---- */

void cvn_rms_norm_backward(cvn_graph *g, cvn_value *x, cvn_value *weight, cvn_value *dy, double eps,
                           cvn_value *out[2])
{
    OpAttr attr = {.eps = eps};
    cvn_value *operand[] = {x, weight, dy};
    build_results(g, graph_add(g, OP_RMS_NORM_BACKWARD, &attr, 3, operand, NULL), 2, out);
}

int infer_rms_norm_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0].dtype = CVN_DTYPE_COUNT;
    TRY(infer_rms_norm(op, type, err));
    TRY(infer_check_gradient(op, 2, 0, "dy", err));
    type[0] = *op_in(op, 0);
    type[1] = *op_in(op, 1);
    return CVN_OK;
}

/* dx = r (dn - n mean(dn n)), dweight = sum over rows of dy n. */
void decompose_rms_norm_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_dtype math = wide(op->operand[0]->type.dtype);
    cvn_value *x = as(g, op->operand[0], math);      /* [..., d] */
    cvn_value *weight = as(g, op->operand[1], math); /* [d] */
    cvn_value *dy = as(g, op->operand[2], math);     /* [..., d] */
    int last = x->type.rank - 1, rows[CVN_MAX_RANK] = {0};
    for (int i = 0; i < last; i++)
        rows[i] = i;

    cvn_value *scale, *normed = normalise(g, x, op->attr.eps, &scale);
    cvn_value *dnormed = cvn_multiply(g, dy, spread(g, weight, &x->type, &last));
    cvn_value *along = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, dnormed, normed), 1, &last);
    along = cvn_divide(g, along, like(g, along, (double)x->type.dim[last]));
    along = spread_over(g, along, &x->type, last);
    cvn_value *across = cvn_subtract(g, dnormed, cvn_multiply(g, normed, along));
    out[0] = as(g, cvn_multiply(g, scale, across), op->result[0]->type.dtype);
    cvn_value *dweight = cvn_multiply(g, dy, normed);
    out[1] = as(g, cvn_reduce_dims(g, CVN_SUM, dweight, last, rows), op->result[1]->type.dtype);
}
