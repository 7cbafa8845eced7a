/* Rules of the composites: each has a gradient that is a composite too, or an operation of its own
   kind. */
#include "grad/rule.h"
#include "graph/attention.h"
#include "graph/decompose.h"

#include <math.h>

void grad_rms_norm(Grad *d, const Op *op)
{
    cvn_value *out[2];
    cvn_rms_norm_backward(d->g, op->operand[0], op->operand[1], grad_of(d, op, 0), op->attr.eps,
                          out);
    for (int i = 0; i < 2; i++)
        grad_add(d, op, i, out[i]);
}

/* Turning is undone by turning back: by the opposite angle. */
void grad_rope(Grad *d, const Op *op)
{
    if (grad_wants(d, op, 2)) {
        grad_refuse(d, op, "for its frequencies");
        return;
    }
    cvn_value *back = cvn_negate(d->g, op->operand[2]);
    grad_add(d, op, 0, cvn_rope(d->g, grad_of(d, op, 0), op->operand[1], back, op->attr.flag));
}

void grad_attention(Grad *d, const Op *op)
{
    cvn_value *const *v = op->operand, *out[3];
    if (attention_scales(op) >= 0) {
        grad_refuse(d, op, "over keys and values of 8 bits");
        return;
    }
    cvn_value *first = attention_first(op), *dy = grad_of(d, op, 0);
    cvn_attention_backward(d->g, v[0], v[1], v[2], v[3], v[4], first, dy, op->attr.scale, out);
    for (int i = 0; i < 3; i++)
        grad_add(d, op, i, out[i]);
}

/* As a scatter that assigns: what was overwritten has no gradient; the update has that of the places
   it was written to, 0 where they are outside. Places are never written twice. */
void grad_cache_update(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *update = op->operand[1], *start = op->operand[2];
    cvn_type rows = CVN_TYPE(CVN_I32, update->type.dim[0], update->type.dim[1]); /* [batch, seq] */
    cvn_value *position = cvn_broadcast_in_dim(g, start, rows, (const int[]){0});
    position = cvn_add(g, cvn_iota(g, rows, 1), position);
    cvn_value *kept = cvn_scatter_assign(g, dy, position, like(g, update, 0), &cache_update_dims);
    grad_add(d, op, 0, kept);
    if (grad_wants(d, op, 1) && !g->err.code)
        grad_add(d, op, 1, grad_gather_updates(g, kept->def, dy));
}

void grad_softmax_cross_entropy(Grad *d, const Op *op)
{
    cvn_value *dloss = grad_of(d, op, 0), *dlse = grad_of(d, op, 1);
    grad_add(d, op, 0,
             cvn_softmax_cross_entropy_backward(d->g, op->operand[0], op->operand[1], op->result[1],
                                                dloss, dlse));
}

/* What is kept is passed on; what is not is -inf. */
void grad_keep_likeliest(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *kept = cvn_compare_values(d->g, CVN_GT, y, like(d->g, y, -INFINITY));
    grad_add(d, op, 0, where(d->g, kept, grad_of(d, op, 0)));
}
