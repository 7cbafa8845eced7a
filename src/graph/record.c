/* The rows of ops.def as data: op_info, and op_record with the functions that are found by a row's name. */
#include "graph/record.h"

#include <limits.h>

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

static const AttrInfo no_attrs[] = {{0}};

const OpInfo op_info[OP_COUNT + 1] = {
#define OP(kind, name, least, most, results, class, dtypes, ...)                                   \
    [OP_##kind] = {#name, least, most, results, CLASS_##class, DTYPES_##dtypes, attrs_##name},
#include "graph/ops.def"
#undef OP
    [OP_FUSION] = {"fusion", 1, INT_MAX, 1, CLASS_CONTROL, DTYPES_A, no_attrs},
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
