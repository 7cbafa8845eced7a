/* Rules of the elementwise operations: y is the result, dy its gradient. */
#include "grad/rule.h"

#include <math.h>

cvn_value *grad_like(cvn_graph *g, const cvn_value *x, double value)
{
    return cvn_splat(g, x->type, value);
}

cvn_value *grad_as(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    return x->type.dtype == dtype ? x : cvn_convert(g, x, dtype);
}

cvn_value *grad_where(cvn_graph *g, cvn_value *pred, cvn_value *x)
{
    return cvn_select(g, pred, x, grad_like(g, x, 0));
}

cvn_value *grad_sum_all(cvn_graph *g, cvn_value *x)
{
    static const int all[CVN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return x->type.rank ? cvn_reduce_dims(g, CVN_SUM, x, x->type.rank, all) : x;
}

void grad_negate(Grad *d, const Op *op)
{
    grad_add(d, op, 0, cvn_negate(d->g, grad_of(d, op, 0)));
}

void grad_abs(Grad *d, const Op *op)
{
    cvn_value *sign = cvn_sign(d->g, op->operand[0]);
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), sign));
}

/* dx = dy y */
void grad_exponential(Grad *d, const Op *op)
{
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), op->result[0]));
}

/* dx = dy (y + 1) */
void grad_exponential_minus_one(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *slope = cvn_add(d->g, y, grad_like(d->g, y, 1));
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

void grad_log(Grad *d, const Op *op)
{
    grad_add(d, op, 0, cvn_divide(d->g, grad_of(d, op, 0), op->operand[0]));
}

void grad_log_plus_one(Grad *d, const Op *op)
{
    cvn_value *x = op->operand[0];
    cvn_value *shifted = cvn_add(d->g, x, grad_like(d->g, x, 1));
    grad_add(d, op, 0, cvn_divide(d->g, grad_of(d, op, 0), shifted));
}

/* dx = dy / 2y */
void grad_sqrt(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *dy = grad_of(d, op, 0), *half = cvn_multiply(d->g, dy, grad_like(d->g, y, 0.5));
    grad_add(d, op, 0, cvn_divide(d->g, half, y));
}

/* dx = -dy y / 2x */
void grad_rsqrt(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *dy = grad_of(d, op, 0), *half = cvn_multiply(d->g, dy, grad_like(d->g, y, -0.5));
    grad_add(d, op, 0, cvn_multiply(d->g, half, cvn_divide(d->g, y, op->operand[0])));
}

/* dx = dy (1 - y^2) */
void grad_tanh(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *one = grad_like(d->g, y, 1);
    cvn_value *slope = cvn_subtract(d->g, one, cvn_multiply(d->g, y, y));
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

/* dx = dy y (1 - y) */
void grad_logistic(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *slope = cvn_multiply(d->g, y, cvn_subtract(d->g, grad_like(d->g, y, 1), y));
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

void grad_sine(Grad *d, const Op *op)
{
    cvn_value *slope = cvn_cosine(d->g, op->operand[0]);
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

void grad_cosine(Grad *d, const Op *op)
{
    cvn_value *slope = cvn_negate(d->g, cvn_sine(d->g, op->operand[0]));
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

/* Between floats, since others are neither wanted nor have a gradient. A gradient that has only just been rounded is
   taken as it was before. */
void grad_convert(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const Op *from = dy->def;
    if (from->kind == OP_CONVERT && from->operand[0]->type.dtype == dtype)
        dy = from->operand[0];
    grad_add(d, op, 0, grad_as(d->g, dy, dtype));
}

void grad_add_rule(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, dy);
    grad_add(d, op, 1, dy);
}

void grad_subtract(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, dy);
    if (grad_wants(d, op, 1))
        grad_add(d, op, 1, cvn_negate(d->g, dy));
}

void grad_multiply(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    for (int i = 0; i < 2; i++)
        if (grad_wants(d, op, i))
            grad_add(d, op, i, cvn_multiply(d->g, dy, op->operand[1 - i]));
}

/* da = dy / b, db = -dy (y / b) */
void grad_divide(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *b = op->operand[1];
    if (grad_wants(d, op, 0))
        grad_add(d, op, 0, cvn_divide(d->g, dy, b));
    if (grad_wants(d, op, 1)) {
        cvn_value *slope = cvn_negate(d->g, cvn_divide(d->g, op->result[0], b));
        grad_add(d, op, 1, cvn_multiply(d->g, dy, slope));
    }
}

/* maximum and minimum: the operand that is the result has the gradient; equal ones have half. */
void grad_extremum(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0);
    cvn_value *half = cvn_multiply(g, dy, grad_like(g, dy, 0.5));
    cvn_value *equal = cvn_compare_values(g, CVN_EQ, op->operand[0], op->operand[1]);
    for (int i = 0; i < 2; i++) {
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[i], op->result[0]);
        if (grad_wants(d, op, i))
            grad_add(d, op, i, cvn_select(g, equal, half, grad_where(g, wins, dy)));
    }
}

/* da = dy b a^(b - 1), 0 where b is 0;  db = dy y ln a, 0 where a is 0. */
void grad_power(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *a = op->operand[0], *b = op->operand[1];
    cvn_value *zero = grad_like(g, a, 0), *one = grad_like(g, a, 1);
    if (grad_wants(d, op, 0)) {
        cvn_value *flat = cvn_compare_values(g, CVN_EQ, b, zero);
        cvn_value *less = cvn_subtract(g, cvn_select(g, flat, one, b), one);
        cvn_value *slope = cvn_multiply(g, b, cvn_power(g, a, less));
        grad_add(d, op, 0, cvn_multiply(g, dy, slope));
    }
    if (grad_wants(d, op, 1)) {
        cvn_value *flat = cvn_compare_values(g, CVN_EQ, a, zero);
        cvn_value *log = cvn_log(g, cvn_select(g, flat, one, a));
        cvn_value *slope = cvn_multiply(g, op->result[0], log);
        slope = grad_where(g, cvn_not(g, flat), slope);
        grad_add(d, op, 1, cvn_multiply(g, dy, slope));
    }
}

/* y = a - b trunc(a / b), so da = dy, db = -dy trunc(a / b). */
void grad_remainder(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0);
    grad_add(d, op, 0, dy);
    if (grad_wants(d, op, 1)) {
        cvn_value *ratio = cvn_divide(g, op->operand[0], op->operand[1]);
        cvn_value *whole = cvn_floor(g, cvn_abs(g, ratio));
        cvn_value *slope = cvn_negate(g, cvn_multiply(g, cvn_sign(g, ratio), whole));
        grad_add(d, op, 1, cvn_multiply(g, dy, slope));
    }
}

void grad_select(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *zero = grad_like(d->g, dy, 0);
    if (grad_wants(d, op, 1))
        grad_add(d, op, 1, cvn_select(d->g, op->operand[0], dy, zero));
    if (grad_wants(d, op, 2))
        grad_add(d, op, 2, cvn_select(d->g, op->operand[0], zero, dy));
}

/* Gives dy where `mask` to a bound, which may be a scalar for all elements. */
static void add_to_bound(Grad *d, const Op *op, int i, cvn_value *mask, cvn_value *dy)
{
    if (!grad_wants(d, op, i))
        return;
    cvn_value *part = grad_where(d->g, mask, dy);
    grad_add(d, op, i, op->operand[i]->type.rank ? part : grad_sum_all(d->g, part));
}

/* Every element's gradient goes to exactly one of the three: see grad.h. */
void grad_clamp(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *x = op->operand[1];
    cvn_value *low = cvn_broadcast_to(g, op->operand[0], &x->type);
    cvn_value *high = cvn_broadcast_to(g, op->operand[2], &x->type);
    cvn_value *below = cvn_compare_values(g, CVN_LT, x, low);
    cvn_value *above = cvn_compare_values(g, CVN_GT, cvn_maximum(g, x, low), high);
    cvn_value *inside = cvn_not(g, cvn_or(g, below, above));
    if (grad_wants(d, op, 1))
        grad_add(d, op, 1, grad_where(g, inside, dy));
    add_to_bound(d, op, 0, cvn_and(g, below, cvn_not(g, above)), dy);
    add_to_bound(d, op, 2, above, dy);
}
