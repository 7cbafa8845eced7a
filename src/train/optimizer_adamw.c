/*
 * AdamW, in the order of operations of torch.optim.AdamW (so that rounding agrees too):
 *
 *   w  = w (1 - lr decay)
 *   m  = m + (1 - beta1) (g - m)
 *   v  = beta2 v + (1 - beta2) g^2
 *   w  = w - lr / c1 * m / (sqrt(v) / c2 + eps),   c1 = 1 - beta1^t,  c2 = sqrt(1 - beta2^t)
 *
 * Scalars: lr, lr / c1, 1 / c2.
 */
#include "train/optimizer.h"

#include <math.h>

int optimizer_adamw_slots(const Param *param, OptimizerSlot slot[OPTIMIZER_MAX_SLOTS])
{
    cvn_type type = cvn_type_make(CVN_F32, param->rank, param->dims);
    slot[0] = (OptimizerSlot){"exp_avg", type};
    slot[1] = (OptimizerSlot){"exp_avg_sq", type};
    return 2;
}

void optimizer_adamw_scalars(const OptimizerOptions *options, int64_t t, double factor, float *out)
{
    double lr = options->lr * factor;
    out[0] = (float)lr;
    out[1] = (float)(lr / (1 - pow(options->beta1, (double)t)));
    out[2] = (float)(1 / sqrt(1 - pow(options->beta2, (double)t)));
}

cvn_value *optimizer_decayed(const OptimizerUpdate *u)
{
    cvn_graph *g = u->g;
    if (u->options->weight_decay <= 0 || u->param->file_rank < 2)
        return u->weight;
    cvn_value *one = cvn_splat(g, cvn_scalar(CVN_F32), 1);
    cvn_value *decay = cvn_splat(g, cvn_scalar(CVN_F32), u->options->weight_decay);
    cvn_value *keep = cvn_subtract(g, one, cvn_multiply(g, u->scalar[0], decay));
    return cvn_multiply(g, u->weight, cvn_broadcast_to(g, keep, cvn_value_type(u->weight)));
}

void optimizer_adamw_update(OptimizerUpdate *u)
{
    cvn_graph *g = u->g;
    const OptimizerOptions *o = u->options;
    const cvn_type *type = cvn_value_type(u->weight);
    cvn_value *step = cvn_broadcast_to(g, u->scalar[1], type);
    cvn_value *correction = cvn_broadcast_to(g, u->scalar[2], type);
    cvn_value *gradient = u->gradient, *m = u->state[0], *v = u->state[1];

    cvn_value *difference = cvn_subtract(g, gradient, m);
    m = cvn_add(g, m, cvn_multiply(g, difference, cvn_splat(g, *type, 1 - o->beta1)));
    cvn_value *square = cvn_multiply(g, gradient, gradient);
    v = cvn_multiply(g, v, cvn_splat(g, *type, o->beta2));
    v = cvn_add(g, v, cvn_multiply(g, square, cvn_splat(g, *type, 1 - o->beta2)));
    cvn_value *root = cvn_multiply(g, cvn_sqrt(g, v), correction);
    root = cvn_add(g, root, cvn_splat(g, *type, o->eps));
    cvn_value *w = optimizer_decayed(u);
    u->new_weight = cvn_subtract(g, w, cvn_multiply(g, step, cvn_divide(g, m, root)));
    u->new_state[0] = m;
    u->new_state[1] = v;
}
