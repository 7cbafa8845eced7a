/*
 * Rules of the collectives. With the loss being the sum of the losses of all devices, the gradient
 * of a linear collective is its transpose: where a device sent to others, it gets back the sum of
 * what they have.
 */
#include "grad/rule.h"

/* Another collective of op's groups. */
static cvn_value *over_groups(cvn_graph *g, const Op *op, OpKind kind, OpAttr attr, cvn_value *x)
{
    attr.groups = op->attr.groups;
    attr.group_size = op->attr.group_size;
    return graph_add(g, kind, &attr, 1, &x, NULL);
}

void grad_all_gather(Grad *d, const Op *op)
{
    const OpAttr attr = {.reduce = CVN_SUM, .axis = op->attr.axis};
    grad_add(d, op, 0, over_groups(d->g, op, OP_REDUCE_SCATTER, attr, grad_of(d, op, 0)));
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
    const OpAttr sum = {.reduce = CVN_SUM}, gather = {.axis = op->attr.axis};
    dy = over_groups(g, op, all ? OP_ALL_REDUCE : OP_ALL_GATHER, all ? sum : gather, dy);
    if (kind != CVN_SUM) { /* max or min: what is equal to the result shares the group's gradient */
        y = all ? y : over_groups(g, op, OP_ALL_GATHER, gather, y);
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[0], y);
        cvn_value *count = cvn_convert(g, wins, dy->type.dtype);
        count = over_groups(g, op, OP_ALL_REDUCE, sum, count);
        dy = where(g, wins, cvn_divide(g, dy, count));
    }
    grad_add(d, op, 0, dy);
}

void grad_all_to_all(Grad *d, const Op *op)
{
    const OpAttr back = {.axis = op->attr.concat_axis, .concat_axis = op->attr.axis};
    grad_add(d, op, 0, over_groups(d->g, op, OP_ALL_TO_ALL, back, grad_of(d, op, 0)));
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
