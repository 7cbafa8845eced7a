#include "train/optimizer.h"

#include "graph/graph.h"

#include <math.h>

const Optimizer optimizers[OPTIMIZER_COUNT] = {
    [OPTIMIZER_ADAMW] = {"adamw",
                         3,
                         {"lr", "correction1", "correction2"},
                         optimizer_adamw_slots,
                         optimizer_adamw_scalars,
                         optimizer_adamw_update},
    [OPTIMIZER_ADAFACTOR] = {"adafactor",
                             3,
                             {"lr", "decay", "rest"},
                             optimizer_adafactor_slots,
                             optimizer_adafactor_scalars,
                             optimizer_adafactor_update},
    [OPTIMIZER_MUON] = {"muon",
                        3,
                        {"lr", "correction1", "correction2"},
                        optimizer_muon_slots,
                        optimizer_adamw_scalars,
                        optimizer_muon_update},
};

int optimizer_slots(const OptimizerOptions *options, const Param *param,
                    OptimizerSlot slot[OPTIMIZER_MAX_SLOTS])
{
    int n = optimizers[options->kind].slots(param, slot);
    for (int k = 0; k < n; k++)
        slot[k].type.dtype = options->state;
    return n;
}

OptimizerOptions optimizer_defaults(OptimizerKind kind, int64_t n_params)
{
    OptimizerOptions o = {
        .kind = kind, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .momentum = 0.95, .state = CVN_F32};
    if (kind == OPTIMIZER_ADAFACTOR)
        return o;
    o.lr = fmin(0.01, 0.5 / cbrt((double)(n_params > 1 ? n_params : 1)));
    o.weight_decay = 0.1;
    return o;
}

int optimizer_check(const OptimizerOptions *o, cvn_err *err)
{
    if (!(o->lr >= 0 && o->lr <= 100))
        return err_set(err, CVN_EINVAL, "the learning rate is %g; give one from 0 to 100", o->lr);
    if (!(o->weight_decay >= 0 && o->weight_decay <= 10))
        return err_set(err, CVN_EINVAL, "the weight decay is %g; give one from 0 to 10",
                       o->weight_decay);
    if (!(o->beta1 >= 0 && o->beta1 < 1 && o->beta2 >= 0 && o->beta2 < 1))
        return err_set(err, CVN_EINVAL, "the betas are %g and %g; give two from 0 to below 1",
                       o->beta1, o->beta2);
    if (!(o->momentum >= 0 && o->momentum < 1))
        return err_set(err, CVN_EINVAL, "the momentum is %g; give one from 0 to below 1",
                       o->momentum);
    if (o->state != CVN_F32 && o->state != CVN_BF16)
        return err_set(err, CVN_EUNSUPPORTED,
                       "the optimizer state cannot have type %s; use f32 or bf16",
                       cvn_dtype_name(o->state));
    if (!(o->eps >= 0 && o->eps <= 1))
        return err_set(err, CVN_EINVAL, "eps is %g; give one from 0 to 1", o->eps);
    return CVN_OK;
}

cvn_value *optimizer_sum_of_squares(cvn_graph *g, cvn_value *x)
{
    const Op *op = x->def;
    for (int i = 0; i < 2 && op->kind == OP_ADD;
         i++) /* rows are added to the product of a tied table */
        if (op->operand[i]->def->kind == OP_DOT_GENERAL)
            op = op->operand[i]->def;
    bool product = op->kind == OP_DOT_GENERAL && op->attr.lhs_batch.n == 0;
    int n_rows = product ? op->operand[0]->type.rank - op->attr.lhs_contract.n : 0;
    int rows[CVN_MAX_RANK];
    cvn_value *sum = cvn_multiply(g, x, x);
    for (int d = 0; d < n_rows; d++)
        rows[d] = d;
    if (n_rows > 0)
        sum = cvn_reduce_dims(g, CVN_SUM, sum, n_rows, rows);
    for (int d = cvn_value_type(sum)->rank - 1; d >= 0; d--)
        sum = cvn_reduce_dims(g, CVN_SUM, sum, 1, &d);
    return sum;
}

cvn_value *optimizer_rms(cvn_graph *g, cvn_value *x)
{
    double n = (double)cvn_type_elements(cvn_value_type(x));
    cvn_value *inverse = cvn_splat(g, cvn_scalar(CVN_F32), 1 / n);
    return cvn_sqrt(g, cvn_multiply(g, optimizer_sum_of_squares(g, x), inverse));
}
