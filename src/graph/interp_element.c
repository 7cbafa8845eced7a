/* Elementwise operations: each result element is a function of one element of each operand. */
#include "graph/interp_impl.h"
#include "graph/reduce.h"

#include <math.h>

static double unary_float(OpKind kind, double x)
{
    switch (kind) {
    case OP_EXPONENTIAL:
        return exp(x);
    case OP_EXPONENTIAL_MINUS_ONE:
        return expm1(x);
    case OP_LOG:
        return log(x);
    case OP_LOG_PLUS_ONE:
        return log1p(x);
    case OP_SQRT:
        return sqrt(x);
    case OP_RSQRT:
        return 1 / sqrt(x);
    case OP_TANH:
        return tanh(x);
    case OP_LOGISTIC:
        return 1 / (1 + exp(-x));
    case OP_SINE:
        return sin(x);
    case OP_COSINE:
        return cos(x);
    case OP_FLOOR:
        return floor(x);
    default:
        return x;
    }
}

void interp_unary_float(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        element_set(type->dtype, out[0], i,
                    unary_float(op->kind, element_get(type->dtype, in[0], i)));
}

/* Of the least integer: itself. */
void interp_negate(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        if (dtype_is_float(type->dtype))
            element_set(type->dtype, out[0], i, -element_get(type->dtype, in[0], i));
        else
            interp_set_int(type->dtype, out[0], i, -interp_get_int(type->dtype, in[0], i));
    }
}

/* Of the least integer: itself. */
void interp_abs(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        if (dtype_is_float(type->dtype)) {
            element_set(type->dtype, out[0], i, fabs(element_get(type->dtype, in[0], i)));
        } else {
            int64_t x = interp_get_int(type->dtype, in[0], i);
            interp_set_int(type->dtype, out[0], i, x < 0 ? -x : x);
        }
    }
}

/* -1, 0 or 1; a zero keeps its sign, a NaN stays one. */
void interp_sign(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double x = element_get(type->dtype, in[0], i);
        element_set(type->dtype, out[0], i, x > 0 ? 1 : x < 0 ? -1 : x);
    }
}

/* Logical on bool, bitwise on integers. */
void interp_not(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        int64_t x = interp_get_int(type->dtype, in[0], i);
        interp_set_int(type->dtype, out[0], i, type->dtype == CVN_BOOL ? !x : ~x);
    }
}

void interp_is_finite(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_in(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        ((uint8_t *)out[0])[i] = isfinite(element_get(type->dtype, in[0], i)) != 0;
}

/* Float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits;
   anything to bool is x != 0; anything to float is rounded. */
void interp_convert(const Op *op, const void *const *in, void *const *out)
{
    cvn_dtype from = op_in(op, 0)->dtype, to = op_out(op, 0)->dtype;
    bool wraps = !dtype_is_float(from) && !dtype_is_float(to) && to != CVN_BOOL;
    for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++) {
        if (from == to)
            interp_move(to, out[0], i, in[0], i);
        else if (wraps)
            interp_set_int(to, out[0], i, interp_get_int(from, in[0], i));
        else
            element_set(to, out[0], i, element_get(from, in[0], i));
    }
}

static double binary_float(OpKind kind, double a, double b)
{
    switch (kind) {
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_MULTIPLY:
        return a * b;
    case OP_DIVIDE:
        return a / b;
    case OP_MAXIMUM:
        return reduce_max(a, b);
    case OP_MINIMUM:
        return reduce_min(a, b);
    case OP_POWER:
        return pow(a, b);
    case OP_REMAINDER:
        return fmod(a, b);
    default:
        return a;
    }
}

/* Operands have at most 32 bits, so nothing below overflows 64; the store wraps. */
static int64_t binary_int(OpKind kind, int64_t a, int64_t b)
{
    switch (kind) {
    case OP_ADD:
        return a + b;
    case OP_SUBTRACT:
        return a - b;
    case OP_MULTIPLY:
        return (int64_t)((uint64_t)a * (uint64_t)b);
    case OP_DIVIDE:
        return b == 0 ? -1 : a / b;
    case OP_MAXIMUM:
        return a > b ? a : b;
    case OP_MINIMUM:
        return a < b ? a : b;
    case OP_REMAINDER:
        return b == 0 ? a : a % b;
    default:
        return a;
    }
}

void interp_arithmetic(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        if (dtype_is_float(dtype)) {
            double a = element_get(dtype, in[0], i), b = element_get(dtype, in[1], i);
            element_set(dtype, out[0], i, binary_float(op->kind, a, b));
        } else {
            int64_t a = interp_get_int(dtype, in[0], i), b = interp_get_int(dtype, in[1], i);
            interp_set_int(dtype, out[0], i, binary_int(op->kind, a, b));
        }
    }
}

/* On the bits of an element of `width` bits. Shift amounts are read as unsigned, so a negative one
   is too large; an amount of the width or more shifts everything out. */
static uint64_t bitwise(OpKind kind, uint64_t a, uint64_t b, int width)
{
    switch (kind) {
    case OP_AND:
        return a & b;
    case OP_OR:
        return a | b;
    case OP_XOR:
        return a ^ b;
    case OP_SHIFT_LEFT:
        return b < (uint64_t)width ? a << b : 0;
    case OP_SHIFT_RIGHT_LOGICAL:
        return b < (uint64_t)width ? a >> b : 0;
    default:
        return a;
    }
}

void interp_bitwise(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    int width = cvn_dtype_bits(dtype);
    uint64_t mask = (UINT64_C(1) << width) - 1;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        uint64_t a = (uint64_t)interp_get_int(dtype, in[0], i) & mask;
        uint64_t b = (uint64_t)interp_get_int(dtype, in[1], i) & mask;
        interp_set_int(dtype, out[0], i, (int64_t)bitwise(op->kind, a, b, width));
    }
}

static bool compare(cvn_compare direction, double a, double b)
{
    switch (direction) {
    case CVN_EQ:
        return a == b;
    case CVN_NE:
        return a != b;
    case CVN_LT:
        return a < b;
    case CVN_LE:
        return a <= b;
    case CVN_GT:
        return a > b;
    case CVN_GE:
        return a >= b;
    }
    return false;
}

void interp_compare(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_in(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        ((uint8_t *)out[0])[i] = compare(op->attr.compare, element_get(type->dtype, in[0], i),
                                         element_get(type->dtype, in[1], i));
}

/* pred ? a : b; a scalar pred holds for all elements. */
void interp_select(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    bool one = op_in(op, 0)->rank == 0;
    const uint8_t *pred = in[0];
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        interp_move(type->dtype, out[0], i, pred[one ? 0 : i] ? in[1] : in[2], i);
}

/* min(max(x, low), high): high where low > high; scalar bounds hold for all elements. */
void interp_clamp_op(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    bool one_low = op_in(op, 0)->rank == 0, one_high = op_in(op, 2)->rank == 0;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double low = element_get(dtype, in[0], one_low ? 0 : i);
        double high = element_get(dtype, in[2], one_high ? 0 : i);
        double x = element_get(dtype, in[1], i);
        element_set(dtype, out[0], i, reduce_min(reduce_max(x, low), high));
    }
}
