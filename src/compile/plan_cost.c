/*
 * Work of operations, counted from their shapes: what the profile shows and ratios of speed are taken of.
 *
 *     dot_general  2 * elements of the result * sizes summed over
 *     attention    4 * batch * heads * seq * context * head_dim: scores, and their product with the values
 *     elementwise  one per element, whatever the function costs
 *     moving       none
 */
#include "compile/fusion.h"
#include "compile/plan.h"

#include "graph/linear.h"

static double elements(const cvn_value *v)
{
    return (double)cvn_type_elements(&v->type);
}

/* Of composites, per element of the first operand; of attention, for each key. */
static const unsigned char composite_flops[OP_COUNT] = {
    [OP_RMS_NORM] = 4, /* square, add, scale, weight */
    [OP_ROPE] = 3,     /* two multiplies and an add each */
    [OP_ATTENTION] = 4,
    [OP_SOFTMAX_CROSS_ENTROPY] = 4, /* maximum, subtract, exp, add */
    [OP_ARGMAX] = 1,
    [OP_CATEGORICAL] = 1,   /* noise is made of few */
    [OP_QUANTIZE_ROWS] = 4, /* maximum, divide, round, clamp */
    [OP_RMS_NORM_BACKWARD] = 10,
    [OP_ATTENTION_BACKWARD] = 10, /* five products where the forward pass has two */
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = 4,
};

static double flops_of_composite(const Op *op)
{
    const bool keys = op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_BACKWARD;
    if (op->kind == OP_LINEAR || op->kind == OP_LINEAR_INT8) {
        double n = 0;
        for (int i = 0; i < linear_weights(op); i++) {
            LinearWeight w = linear_weight(op, i);
            n += 2 * (double)linear_rows(op) * (double)w.n * (double)w.k;
        }
        return n;
    }
    if (op->kind == OP_DEQUANTIZE)
        return elements(op->result[0]);
    return composite_flops[op->kind] * elements(op->operand[0]) *
           (keys ? (double)op->operand[1]->type.dim[2] : 1);
}

double op_flops(const Op *op)
{
    double n;
    if (op->kind == OP_FUSION)
        return (double)op->attr.fusion->n_members * (double)op->attr.fusion->elements;
    switch (op_info[op->kind].class_) {
    case CLASS_UNARY:
    case CLASS_BINARY:
    case CLASS_TERNARY:
        return elements(op->result[0]);
    case CLASS_REDUCE:
        return elements(op->operand[0]);
    case CLASS_CONTRACT:
        n = 2 * elements(op->result[0]);
        for (int i = 0; i < op->attr.lhs_contract.n; i++)
            n *= (double)op->operand[0]->type.dim[op->attr.lhs_contract.v[i]];
        return n;
    case CLASS_COMPOSITE:
        return flops_of_composite(op);
    default:
        return 0;
    }
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
