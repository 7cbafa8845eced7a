/* What the functions of gradients are written with. */
#include "graph/grad_rule.h"

#include <assert.h>

cvn_value *grad_of(Grad *d, const Op *op, int i)
{
    cvn_value *v = d->gradient[op->result[i]->id];
    return v ? v : like(d->g, op->result[i], 0);
}

void grad_give(Grad *d, const Op *op, int i, cvn_value *v)
{
    const cvn_value *x = op->operand[i];
    if (!d->wanted[x->id] || d->g->err.code)
        return;
    assert(cvn_type_equal(&x->type, &v->type));
    cvn_value **sum = &d->gradient[x->id];
    *sum = *sum ? cvn_add(d->g, *sum, v) : v;
}

void grad_refuse(Grad *d, const Op *op, const char *why)
{
    graph_fail(d->g, CVN_EINVAL, "%s has no gradient %s", op_info[op->kind].name, why);
}

cvn_value *grad_sum_all(cvn_graph *g, cvn_value *x)
{
    static const int all[CVN_MAX_RANK] = {0, 1, 2, 3, 4, 5, 6, 7};
    return x->type.rank ? cvn_reduce_dims(g, CVN_SUM, x, x->type.rank, all) : x;
}

cvn_value *grad_repeat(cvn_graph *g, cvn_value *v, const cvn_type *shape, const Ints *reduced)
{
    int dims[CVN_MAX_RANK], n = 0;
    for (int i = 0; i < shape->rank; i++)
        if (!ints_contain(reduced, i))
            dims[n++] = i;
    return cvn_broadcast_in_dim(g, v, *shape, dims);
}

cvn_value *grad_place(cvn_graph *g, cvn_value *x, const int *place)
{
    int permutation[CVN_MAX_RANK];
    bool moves = false;
    for (int i = 0; i < x->type.rank; i++) {
        permutation[place[i]] = i;
        moves = moves || place[i] != i;
    }
    return moves ? cvn_transpose(g, x, permutation) : x;
}
