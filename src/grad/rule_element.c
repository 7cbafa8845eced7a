/* Rules of the elementwise operations: y is the result, dy its gradient. */
#include "grad/rule.h"

#include <math.h>

cvn_value *grad_sum_all(cvn_graph *g, cvn_value *x)
{
    static const int all[CVN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return x->type.rank ? cvn_reduce_dims(g, CVN_SUM, x, x->type.rank, all) : x;
}

/* The rules of functions of one operand x: what dx is. */
#define UNARY(name, dx)                                                                            \
    void grad_##name(Grad *d, const Op *op)                                                        \
    {                                                                                              \
        cvn_graph *g = d->g;                                                                       \
        cvn_value *x = op->operand[0], *y = op->result[0], *dy = grad_of(d, op, 0);                \
        (void)x, (void)y;                                                                          \
        grad_add(d, op, 0, dx);                                                                    \
    }

UNARY(negate, cvn_negate(g, dy))
UNARY(abs, cvn_multiply(g, dy, cvn_sign(g, x)))
UNARY(exponential, cvn_multiply(g, dy, y))
UNARY(exponential_minus_one, cvn_multiply(g, dy, cvn_add(g, y, like(g, y, 1))))
UNARY(log, cvn_divide(g, dy, x))
UNARY(log_plus_one, cvn_divide(g, dy, cvn_add(g, x, like(g, x, 1))))
UNARY(sqrt, cvn_divide(g, cvn_multiply(g, dy, like(g, y, 0.5)), y))
UNARY(logistic, cvn_multiply(g, dy, cvn_multiply(g, y, cvn_subtract(g, like(g, y, 1), y))))
UNARY(sine, cvn_multiply(g, dy, cvn_cosine(g, x)))
UNARY(cosine, cvn_multiply(g, dy, cvn_negate(g, cvn_sine(g, x))))

/* dx = -dy y / 2x */
void grad_rsqrt(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *dy = grad_of(d, op, 0), *half = cvn_multiply(d->g, dy, like(d->g, y, -0.5));
    grad_add(d, op, 0, cvn_multiply(d->g, half, cvn_divide(d->g, y, op->operand[0])));
}

/* dx = dy (1 - y^2) */
void grad_tanh(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0], *one = like(d->g, y, 1);
    cvn_value *slope = cvn_subtract(d->g, one, cvn_multiply(d->g, y, y));
    grad_add(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

/* A gradient as it was before it was rounded from dtype; NULL where it was not. Also what was rounded on its way from a
   product to a weight and then moved, scaled or added up, but not farther than `depth` operations back. */
static cvn_value *before_rounding(Grad *d, cvn_value *v, cvn_dtype dtype, int depth)
{
    const Op *op = v->def;
    if (v->id < d->n_values) /* the forward pass did read it rounded */
        return NULL;
    if (op->kind == OP_CONVERT && op->operand[0]->type.dtype == dtype)
        return op->operand[0];
    bool moves = op->kind == OP_RESHAPE || op->kind == OP_TRANSPOSE || op->kind == OP_SLICE ||
                 op->kind == OP_PAD;
    bool counts = op->kind == OP_ADD || op->kind == OP_SUBTRACT || op->kind == OP_MULTIPLY ||
                  op->kind == OP_NEGATE;
    if (depth == 0 || !(moves || counts))
        return NULL;
    cvn_value *exact[2] = {NULL}, *any = NULL;
    for (int i = 0; i < op->n_operands; i++)
        if ((exact[i] = before_rounding(d, op->operand[i], dtype, depth - 1)))
            any = exact[i];
    if (!any)
        return NULL;
    for (int i = 0; i < op->n_operands; i++)
        exact[i] = exact[i] ? exact[i] : as(d->g, op->operand[i], dtype);
    cvn_type type = v->type;
    type.dtype = dtype;
    return graph_add(d->g, op->kind, &op->attr, op->n_operands, exact, &type);
}

/* Between floats, since others are neither wanted nor have a gradient. A gradient that has only just been rounded is
   taken as it was before. */
void grad_convert(Grad *d, const Op *op)
{
    enum { DEPTH = 6 };
    cvn_value *dy = grad_of(d, op, 0);
    cvn_dtype dtype = op->operand[0]->type.dtype;
    cvn_value *exact = before_rounding(d, dy, dtype, d->weight[op->result[0]->id] ? DEPTH : 0);
    grad_add(d, op, 0, exact ? exact : as(d->g, dy, dtype));
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
    cvn_value *half = cvn_multiply(g, dy, like(g, dy, 0.5));
    cvn_value *equal = cvn_compare_values(g, CVN_EQ, op->operand[0], op->operand[1]);
    for (int i = 0; i < 2; i++) {
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[i], op->result[0]);
        if (grad_wants(d, op, i))
            grad_add(d, op, i, cvn_select(g, equal, half, where(g, wins, dy)));
    }
}

/* da = dy b a^(b - 1), 0 where b is 0;  db = dy y ln a, 0 where a is 0. */
void grad_power(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *a = op->operand[0], *b = op->operand[1];
    cvn_value *zero = like(g, a, 0), *one = like(g, a, 1);
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
        slope = where(g, cvn_not(g, flat), slope);
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
    cvn_value *dy = grad_of(d, op, 0), *zero = like(d->g, dy, 0);
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
    cvn_value *part = where(d->g, mask, dy);
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
        grad_add(d, op, 1, where(g, inside, dy));
    add_to_bound(d, op, 0, cvn_and(g, below, cvn_not(g, above)), dy);
    add_to_bound(d, op, 2, above, dy);
}
