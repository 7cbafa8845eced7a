/* Work of operations in a plan, counted from their shapes. */
#include "compile/plan.h"

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
