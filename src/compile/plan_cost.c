/*
 * Work of operations, counted from their shapes, as ops.def says: what the profile shows and ratios of speed are taken of.
 *
 *     dot_general  2 * elements of the result * sizes summed over
 *     attention    4 * batch * heads * seq * context * head_dim: scores, and their product with the values
 *     elementwise  one per element, whatever the function costs
 *     moving       none
 */
#include "compile/fusion.h"
#include "compile/plan.h"

#include "graph/record.h"

static double elements(const cvn_value *v)
{
    return (double)cvn_type_elements(&v->type);
}

double op_flops(const Op *op)
{
    if (op->kind == OP_FUSION)
        return (double)op->attr.fusion->n_members * (double)op->attr.fusion->elements;
    const OpRecord *record = &op_record[op->kind];
    const bool elementwise = class_is_elementwise(op_info[op->kind].class_);
    if (record->flops)
        return record->flops(op);
    if (!record->flops_each)
        return 0;
    return record->flops_each * elements(elementwise ? op->result[0] : op->operand[0]);
}

/* Bytes of all operands but those in the mask. */
static size_t operand_bytes(const Op *op, unsigned but)
{
    size_t n = 0;
    for (int i = 0; i < op->n_operands; i++)
        if (i >= 32 || !(but >> i & 1))
            n += cvn_type_bytes(&op->operand[i]->type);
    return n;
}

size_t op_bytes(const Op *op)
{
    size_t results = 0;
    for (int i = 0; i < op->n_results; i++)
        results += cvn_type_bytes(&op->result[i]->type);
    switch (op->kind) {
    case OP_DYNAMIC_SLICE:
    case OP_GATHER:
    case OP_SLICE:
        return operand_bytes(op, 1) + 2 * results;
    case OP_DYNAMIC_UPDATE_SLICE: /* in place; a copy that had to be made is a step of its own */
    case OP_CACHE_UPDATE:
        return operand_bytes(op, 1) + cvn_type_bytes(&op->operand[1]->type);
    case OP_SCATTER:
        return operand_bytes(op, 1) + 2 * cvn_type_bytes(&op->operand[2]->type);
    default:
        return operand_bytes(op, 0) + results;
    }
}

double op_ring_bytes(const Op *op)
{
    if (op->kind == OP_COLLECTIVE_PERMUTE)
        return (double)cvn_type_bytes(&op->operand[0]->type);
    double n = (double)op->attr.group_size;
    double in = (double)cvn_type_bytes(&op->operand[0]->type);
    switch (op->kind) {
    case OP_ALL_REDUCE:
        return 2 * in * (n - 1) / n;
    case OP_ALL_GATHER:
        return in * (n - 1);
    case OP_REDUCE_SCATTER:
    case OP_ALL_TO_ALL:
        return in * (n - 1) / n;
    default:
        return 0;
    }
}
