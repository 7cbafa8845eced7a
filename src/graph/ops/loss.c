/* softmax_cross_entropy and its gradient. */
#include "graph/ops/ops.h"

/* ---- softmax_cross_entropy ---- */

void cvn_softmax_cross_entropy(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                               cvn_value *out[2])
{
    cvn_value *operand[] = {logits, targets};
    build_results(g, graph_add(g, OP_SOFTMAX_CROSS_ENTROPY, NULL, 2, operand, NULL), 2, out);
}

int infer_softmax_cross_entropy(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *logits = op_in(op, 0), *targets = op_in(op, 1);
    if (logits->rank < 1 || !dtype_is_float(logits->dtype) || logits->dim[logits->rank - 1] < 1)
        return infer_fail(op, err, "logits must be floats [..., vocab]");
    cvn_type rows = *logits;
    rows.rank--;
    rows.dim[rows.rank] = 0;
    rows.dtype = CVN_I32;
    if (!cvn_type_equal(&rows, targets))
        return infer_fail(op, err, "targets must be i32, the shape of logits without vocab");
    rows.dtype = CVN_F32;
    type[0] = type[1] = rows;
    return CVN_OK;
}

/* The logit of the target is picked by comparing with iota, not by a gather: so it stays a plain
   sum where the vocabulary is split over devices. */
void decompose_softmax_cross_entropy(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = as(g, op->operand[0], wide(op->operand[0]->type.dtype)); /* [..., vocab] */
    cvn_value *target = op->operand[1];                                          /* [...] */
    int last = logits->type.rank - 1;

    Softmax s = softmax_parts(g, logits, NULL);
    cvn_value *lse = cvn_add(g, cvn_log(g, s.sum), s.peak);
    cvn_value *entry = count_along(g, &logits->type, last);
    cvn_value *here =
        cvn_compare_values(g, CVN_EQ, entry, spread_over(g, target, &logits->type, last));
    cvn_value *picked =
        cvn_reduce_dims(g, CVN_SUM, cvn_select(g, here, logits, like(g, logits, 0)), 1, &last);
    cvn_value *known = is_known(g, target, logits->type.dim[last]);
    cvn_value *loss = cvn_subtract(g, lse, picked);
    loss = cvn_select(g, known, loss, like(g, lse, 0));
    out[0] = as(g, loss, op->result[0]->type.dtype);
    out[1] = as(g, lse, op->result[1]->type.dtype);
}

void grad_softmax_cross_entropy(Grad *d, const Op *op)
{
    cvn_value *dloss = grad_of(d, op, 0), *dlse = grad_of(d, op, 1);
    grad_give(d, op, 0,
              cvn_softmax_cross_entropy_backward(d->g, op->operand[0], op->operand[1],
                                                 op->result[1], dloss, dlse));
}

/* ---- softmax_cross_entropy_backward ---- */

cvn_value *cvn_softmax_cross_entropy_backward(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                                              cvn_value *lse, cvn_value *dloss, cvn_value *dlse)
{
    cvn_value *operand[] = {logits, targets, lse, dloss, dlse};
    return graph_add(g, OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, NULL, 5, operand, NULL);
}

int infer_softmax_cross_entropy_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    static const char *const names[] = {"lse", "dloss", "dlse"};
    cvn_type rows[2];
    TRY(infer_softmax_cross_entropy(op, rows, err));
    for (int i = 0; i < 3; i++)
        if (!cvn_type_equal(op_in(op, 2 + i), &rows[0]))
            return infer_fail(op, err, "%s must be f32, the shape of targets", names[i]);
    type[0] = *op_in(op, 0);
    return CVN_OK;
}

/* Where lse is infinite it is taken as 0, as the forward pass does with the largest element. */
void decompose_softmax_cross_entropy_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = as(g, op->operand[0], wide(op->operand[0]->type.dtype)); /* [..., vocab] */
    const cvn_type *shape = &logits->type;
    cvn_dtype math = shape->dtype;
    int last = shape->rank - 1;
    cvn_value *target = op->operand[1];             /* [...] */
    cvn_value *lse = as(g, op->operand[2], math);   /* [...] */
    cvn_value *dloss = as(g, op->operand[3], math); /* [...] */
    cvn_value *dlse = as(g, op->operand[4], math);  /* [...] */

    cvn_value *known = is_known(g, target, shape->dim[last]);
    dloss = cvn_select(g, known, dloss, like(g, dloss, 0));
    cvn_value *finite = cvn_is_finite(g, lse);
    lse = cvn_select(g, finite, lse, like(g, lse, 0));
    cvn_value *share = cvn_subtract(g, logits, spread_over(g, lse, shape, last));
    share = cvn_exponential(g, share);
    share = cvn_multiply(g, share, spread_over(g, cvn_add(g, dloss, dlse), shape, last));
    target = spread_over(g, target, shape, last);
    cvn_value *here = cvn_compare_values(g, CVN_EQ, count_along(g, shape, last), target);
    cvn_value *less = cvn_subtract(g, share, spread_over(g, dloss, shape, last));
    out[0] = as(g, cvn_select(g, here, less, share), op->result[0]->type.dtype);
}
