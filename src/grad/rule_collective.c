/*
 * Rules of the collectives. With the loss being the sum of the losses of all devices, the gradient
 * of a linear collective is its transpose: where a device sent to others, it gets back the sum of
 * what they have.
 */
#include "grad/rule.h"

static int group_size(const Op *op)
{
    return (int)op->attr.group_size;
}

static int n_groups(const Op *op)
{
    return op->attr.groups.n / group_size(op);
}

static cvn_value *sum_over_group(cvn_graph *g, const Op *op, cvn_value *x)
{
    return cvn_all_reduce(g, x, CVN_SUM, n_groups(op), group_size(op), op->attr.groups.v);
}

void grad_all_gather(Grad *d, const Op *op)
{
    grad_add(d, op, 0,
             cvn_reduce_scatter(d->g, grad_of(d, op, 0), CVN_SUM, (int)op->attr.axis, n_groups(op),
                                group_size(op), op->attr.groups.v));
}

static cvn_value *gather_group(cvn_graph *g, const Op *op, cvn_value *x)
{
    return cvn_all_gather(g, x, (int)op->attr.axis, n_groups(op), group_size(op),
                          op->attr.groups.v);
}

/* all_reduce and reduce_scatter */
void grad_reducing_collective(Grad *d, const Op *op)
{
    const bool all = op->kind == OP_ALL_REDUCE;
    cvn_reduce kind = op->attr.reduce;
    if (kind == CVN_PRODUCT) {
        grad_refuse(d, op, "when it multiplies");
        return;
    }
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *y = op->result[0];
    dy = all ? sum_over_group(g, op, dy) : gather_group(g, op, dy);
    if (kind != CVN_SUM) { /* max or min: what is equal to the result shares the group's gradient */
        y = all ? y : gather_group(g, op, y);
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[0], y);
        cvn_value *count = sum_over_group(g, op, cvn_convert(g, wins, dy->type.dtype));
        dy = where(g, wins, cvn_divide(g, dy, count));
    }
    grad_add(d, op, 0, dy);
}

void grad_all_to_all(Grad *d, const Op *op)
{
    grad_add(d, op, 0,
             cvn_all_to_all(d->g, grad_of(d, op, 0), (int)op->attr.concat_axis, (int)op->attr.axis,
                            n_groups(op), group_size(op), op->attr.groups.v));
}

void grad_collective_permute(Grad *d, const Op *op)
{
    const Ints *pairs = &op->attr.groups;
    int64_t *back = arena_array(&d->g->arena, (size_t)pairs->n + 1, sizeof *back);
    for (int i = 0; i + 1 < pairs->n; i += 2) {
        back[i] = pairs->v[i + 1];
        back[i + 1] = pairs->v[i];
    }
    grad_add(d, op, 0, cvn_collective_permute(d->g, grad_of(d, op, 0), pairs->n / 2, back));
}
