/* The rows of ops.def as data: op_info, and op_record with the functions that are found by a row's name. */
#include "graph/record.h"

/* ---- attributes ---- */

#define NONE
#define WIDE(mask)
#define EACH(n)
#define WORK(f)
#define ATTR(text, field, type, hlo) {text, offsetof(OpAttr, field), ATTR_##type, hlo},
#define OP(kind, name, least, most, results, class, dtypes, gradient, factors, hlo, more)          \
    static const AttrInfo attrs_##name[] = {more{0}};
#include "graph/ops.def"
#undef OP

const OpInfo op_info[OP_COUNT] = {
#define OP(kind, name, least, most, results, class, dtypes, ...)                                   \
    [OP_##kind] = {#name, least, most, results, CLASS_##class, DTYPES_##dtypes, attrs_##name},
#include "graph/ops.def"
#undef OP
};

/* ---- functions ---- */

#undef WIDE
#undef EACH
#undef WORK
#undef ATTR
#define WIDE(mask) .wide = (mask),
#define EACH(n) .flops_each = (n),
#define WORK(f) .flops = f,
#define ATTR(...)

/* Types and meaning, by class and, of elementwise operations on one or two numbers, by dtypes. */
#define F(shared, name) shared
#define N(shared, name) shared
#define I(shared, name) interp_##name
#define A(shared, name) interp_##name
#define OWN_TYPES(name) .infer = infer_##name, .interp = interp_##name,
#define LEAF(name, dtypes) OWN_TYPES(name)
#define UNARY(name, dtypes)                                                                        \
    .infer = infer_unary, .interp = dtypes(interp_unary, name), .flops_each = 1,
#define BINARY(name, dtypes)                                                                       \
    .infer = infer_binary, .interp = dtypes(interp_binary, name), .flops_each = 1,
#define TERNARY(name, dtypes) OWN_TYPES(name).flops_each = 1,
#define SHAPE(name, dtypes) OWN_TYPES(name)
#define INDEX(name, dtypes) OWN_TYPES(name)
#define REDUCE(name, dtypes) OWN_TYPES(name).flops_each = 1,
#define CONTRACT(name, dtypes) OWN_TYPES(name)
#define COLLECTIVE(name, dtypes) .infer = infer_##name, .interp = interp_alone,
#define CONTROL(name, dtypes) .infer = infer_unary, .interp = interp_copy,
#define COMPOSITE(name, dtypes)                                                                    \
    .infer = infer_##name, .interp = interp_composite, .decompose = decompose_##name,
#define REGION(name, dtypes) OWN_TYPES(name).decompose = decompose_##name,

#define GRAD_OWN(name) .gradient = grad_##name,
#define GRAD_LEAF(name) .flat = "it has no operands",
#define GRAD_STEP(name) .flat = "it is constant but for jumps, where its gradient is zero",
#define GRAD_WHOLE(name) .flat = "it is on integers or bools, which have no gradient",
#define GRAD_INDEX(name) .flat = "its result is an index, which has no gradient",
#define GRAD_QUANTIZED(name) .refused = "with respect to quantized weights, which are not trained",
#define GRAD_ROUNDED(name)                                                                         \
    .refused = "through numbers of 8 bits; differentiate the graph that computes in floats",
#define GRAD_FUSED(name) .refused = "once it is fused", /* which comes after the backward pass */
#define GRAD_BACKWARD(name) .refused = "of its own",

#define FACTORS_OWN(name) .factors = factors_##name,
#define FACTORS_SAME(name) .notation = "*",
#define FACTORS_NONE(name) .notation = "",
#define FACTORS_BY(text) .notation = text, DROPPED
#define DROPPED(name)

#define HLO_OWN(name) .hlo = hlo_##name,
#define HLO_PLAIN(name)
#define HLO_GONE(name)

const OpRecord op_record[OP_COUNT] = {
#define OP(kind, name, least, most, results, class, dtypes, gradient, factors, hlo, more)          \
    [OP_##kind] = {class(name, dtypes) GRAD_##gradient(name) FACTORS_##factors(name)               \
                       HLO_##hlo(name) more},
#include "graph/ops.def"
#undef OP
};

/*
 * Work, counted from shapes: what profiles show and ratios of speed are taken of.
 *
 *     dot_general  2 * elements of the result * sizes summed over
 *     attention    4 * batch * heads * seq * context * head_dim: scores, and their product with the values
 *     elementwise  one per element, whatever the function costs
 *     moving       none
 */
double op_flops(const Op *op)
{
    const OpRecord *record = &op_record[op->kind];
    if (record->flops)
        return record->flops(op);
    if (!record->flops_each)
        return 0;
    const cvn_value *of =
        class_is_elementwise(op_info[op->kind].class_) ? op->result[0] : op->operand[0];
    return record->flops_each * (double)cvn_type_elements(&of->type);
}
