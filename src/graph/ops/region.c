/* Regions: types, meaning and decomposition are those of the body. See region.h. */
#include "graph/region.h"

#include "graph/infer.h"
#include "graph/interp/interp_impl.h"

#include <stdlib.h>

int infer_region(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_graph *body = op->attr.body;
    if (!body)
        return infer_fail(op, err, "has no body");
    if (body->n_parameters != op->n_operands)
        return infer_fail(op, err, "has %d operands, but its body has %d parameters",
                          op->n_operands, body->n_parameters);
    for (int i = 0; i < op->n_operands; i++)
        if (!cvn_type_equal(&body->parameter[i]->type, op_in(op, i)))
            return infer_fail(op, err, "operand %d is not of the type of the body's parameter", i);
    const char *fault = body_fault(body);
    if (fault)
        return infer_fail(op, err, "%s", fault);
    for (int i = 0; i < body->n_outputs; i++)
        type[i] = body->output[i].value->type;
    return CVN_OK;
}

void interp_region(const Op *op, const void *const *in, void *const *out)
{
    cvn_err err = {0};
    void *result[OP_MOST_RESULTS] = {NULL};
    if (interp_run_one(op->attr.body, in, result, &err)) /* it was verified: only memory can end */
        protect_abandon(0);
    for (int i = 0; i < op->n_results; i++) {
        memcpy(out[i], result[i], cvn_type_bytes(op_out(op, i)));
        free(result[i]);
    }
}

void decompose_region(cvn_graph *g, const Op *op, cvn_value **out)
{
    region_inline(g, op, op->operand, out);
}

double flops_region(const Op *op)
{
    double flops = 0;
    for (const Op *each = op->attr.body->first; each; each = each->next)
        flops += op_flops(each);
    return flops;
}
