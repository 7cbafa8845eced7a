/* Work of operations in a plan, counted from their shapes. */
#include "compile/plan.h"

#include "graph/grouped.h"
#include "graph/linear.h"

/* Bytes of all operands but those in the mask. */
static size_t operand_bytes(const Op *op, unsigned but)
{
    size_t n = 0;
    for (int i = 0; i < op->n_operands; i++)
        if (i >= 32 || !(but >> i & 1))
            n += cvn_type_bytes(&op->operand[i]->type);
    return n;
}

/* Of the weights, which are operands from 1 on, what the groups have that some row is of. */
static size_t grouped_bytes(const Op *op)
{
    const bool linear = op->kind == OP_GROUPED_LINEAR;
    const int end = linear ? linear_behind(op) : 2;
    const cvn_type *w = &op->operand[1]->type;
    const int64_t groups = linear ? w->dim[0] / linear_weight(op, 0).panels : w->dim[0];
    unsigned mask = 0;
    size_t weights = 0;
    for (int i = 1; i < end; i++) {
        weights += cvn_type_bytes(&op->operand[i]->type);
        mask |= 1u << i;
    }
    return operand_bytes(op, mask) + (size_t)((double)weights * grouped_active(op, groups));
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
    case OP_GROUPED_DOT:
    case OP_GROUPED_LINEAR:
        return grouped_bytes(op) + results;
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
