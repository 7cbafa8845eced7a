/* Decompositions of the gradients of composites but attention; the formulas are in caravan/graph.h. */
#include "graph/decompose_impl.h"

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
