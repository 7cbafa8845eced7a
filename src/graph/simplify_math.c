/*
 * Identities of elementwise operations that hold for every bit pattern.
 *
 * For floats the signs of zeros decide: x + 0 is not x, since -0 + 0 is +0; but x + -0 is x, and so
 * is x - 0. x * 0 is not 0 for infinities and NaN. For integers, arithmetic is modulo a power of
 * two and the school's identities hold.
 *
 *     %1 = add %x, splat -0.0     ->  %x            %1 = negate %x        add %y, %1
 *     %1 = multiply %x, splat 1   ->  %x                               -> subtract %y, %x
 */
#include "graph/fold.h"
#include "graph/reduce.h"
#include "graph/simplify_rules.h"

#include <math.h>
#include <stdlib.h>

static bool is_float(const cvn_value *v)
{
    return dtype_is_float(v->type.dtype);
}

/* The number that v holds everywhere; false when it is no such constant. */
static bool splat_number(const cvn_value *v, double *number)
{
    const Literal *literal = fold_splat_of(v);
    if (literal)
        *number = element_get(v->type.dtype, literal->data, 0);
    return literal != NULL;
}

/* v holds this number everywhere; zeros of different sign differ. */
static bool is_splat(const cvn_value *v, double number)
{
    double x;
    return splat_number(v, &x) && x == number && !signbit(x) == !signbit(number);
}

/* All bits of v are set: true, or -1. */
static bool is_all_ones(const cvn_value *v)
{
    switch (v->type.dtype) {
    case CVN_BOOL:
        return is_splat(v, 1);
    case CVN_U32:
        return is_splat(v, UINT32_MAX);
    default:
        return is_splat(v, -1);
    }
}

/* x + 0 = x for integers, x + -0 = x for floats; x
   + -y = x - y, which IEEE 754 defines it to be. */
static cvn_value *add_identities(cvn_graph *g, const Op *op)
{
    for (int i = 0; i < 2; i++) {
        cvn_value *x = op->operand[i], *y = op->operand[1 - i];
        if (is_splat(y, is_float(x) ? -0.0 : 0))
            return x;
        const Op *negated = made_by(y, OP_NEGATE);
        if (negated)
            return cvn_subtract(g, x, negated->operand[0]);
    }
    return NULL;
}

/* x - 0 = x; 0 - x = -x for integers, -0 - x = -x for floats; x - -y = x + y; x - x = 0 for
   integers (for floats it may be NaN). */
static cvn_value *subtract_identities(cvn_graph *g, const Op *op)
{
    cvn_value *x = op->operand[0], *y = op->operand[1];
    if (is_splat(y, 0))
        return x;
    if (is_splat(x, is_float(x) ? -0.0 : 0))
        return cvn_negate(g, y);
    const Op *negated = made_by(y, OP_NEGATE);
    if (negated)
        return cvn_add(g, x, negated->operand[0]);
    return x == y && !is_float(x) ? cvn_splat(g, x->type, 0) : NULL;
}

/* x * 1 = x; x * -1 = -x; -x * -y = x * y; x * 0 = 0 for integers. */
static cvn_value *multiply_identities(cvn_graph *g, const Op *op)
{
    for (int i = 0; i < 2; i++) {
        cvn_value *x = op->operand[i], *y = op->operand[1 - i];
        if (is_splat(y, 1))
            return x;
        if (is_splat(y, -1))
            return cvn_negate(g, x);
        if (!is_float(x) && is_splat(y, 0))
            return y;
    }
    const Op *a = made_by(op->operand[0], OP_NEGATE), *b = made_by(op->operand[1], OP_NEGATE);
    return a && b ? cvn_multiply(g, a->operand[0], b->operand[0]) : NULL;
}

/* x / 1 = x; x / 2^k = x * 2^-k: both are the same real number, rounded once. */
static cvn_value *divide_identities(cvn_graph *g, const Op *op)
{
    cvn_value *x = op->operand[0], *y = op->operand[1];
    double number;
    int exponent;
    if (!splat_number(y, &number))
        return NULL;
    if (number == 1)
        return x;
    if (!is_float(x) || !isfinite(number) || fabs(frexp(number, &exponent)) != 0.5)
        return NULL;
    /* Up to this k, 2^-k … 2^k are normal numbers. */
    const cvn_dtype dtype = x->type.dtype;
    if (abs(exponent - 1) > (dtype == CVN_F64 ? 1022 : dtype == CVN_F16 ? 14 : 126))
        return NULL;
    return cvn_multiply(g, x, cvn_splat(g, x->type, 1 / number));
}

/* max(x, x) = x; max(x, least) = x, NaN being kept by both; likewise min. */
static cvn_value *extreme_identities(cvn_graph *g, const Op *op)
{
    (void)g;
    cvn_reduce kind = op->kind == OP_MAXIMUM ? CVN_MAX : CVN_MIN;
    for (int i = 0; i < 2; i++) {
        cvn_value *x = op->operand[i], *y = op->operand[1 - i];
        if (x == y || is_splat(y, reduce_neutral(kind, x->type.dtype)))
            return x;
    }
    return NULL;
}

/* pow(x, 1) = x, and x shifted by 0. */
static cvn_value *neutral_exponent_or_shift(cvn_graph *g, const Op *op)
{
    (void)g;
    return is_splat(op->operand[1], op->kind == OP_POWER) ? op->operand[0] : NULL;
}

/* x and x = x or x = x. Of true and false (or all bits, and none) one is neutral, and the other is the result whatever x
   is. */
static cvn_value *and_or_identities(cvn_graph *g, const Op *op)
{
    (void)g;
    bool is_and = op->kind == OP_AND;
    for (int i = 0; i < 2; i++) {
        cvn_value *x = op->operand[i], *y = op->operand[1 - i];
        bool ones = is_all_ones(y), zeros = is_splat(y, 0);
        if (x == y || (is_and ? ones : zeros))
            return x;
        if (is_and ? zeros : ones)
            return y;
    }
    return NULL;
}

static cvn_value *xor_identities(cvn_graph *g, const Op *op)
{
    for (int i = 0; i < 2; i++) {
        cvn_value *x = op->operand[i], *y = op->operand[1 - i];
        if (is_splat(y, 0))
            return x;
        if (is_all_ones(y))
            return cvn_not(g, x);
        if (x == y)
            return cvn_splat(g, x->type, 0);
    }
    return NULL;
}

/* -(-x) = x; -(x - y) is not y - x, which has another sign where x = y. */
static cvn_value *negate_identities(cvn_graph *g, const Op *op)
{
    (void)g;
    const Op *inner = made_by(op->operand[0], OP_NEGATE);
    return inner ? inner->operand[0] : NULL;
}

/* |-x| = |x| where numbers have signs; ||x|| = |x|. Both hold for the least integer, which is its own
   negative. */
static cvn_value *abs_identities(cvn_graph *g, const Op *op)
{
    const Op *negated = made_by(op->operand[0], OP_NEGATE);
    if (negated && op->result[0]->type.dtype != CVN_U32)
        return cvn_abs(g, negated->operand[0]);
    return made_by(op->operand[0], OP_ABS) ? op->operand[0] : NULL;
}

static cvn_value *floor_identities(cvn_graph *g, const Op *op)
{
    (void)g;
    return made_by(op->operand[0], OP_FLOOR) ? op->operand[0] : NULL;
}

/* not(not x) = x; not(a < b) = a >= b for integers, and so on: of floats only = and != have a comparison that is true
   exactly where they are false, since all others are false for NaN. */
static cvn_value *not_identities(cvn_graph *g, const Op *op)
{
    static const cvn_compare opposite[COMPARE_COUNT] = {
        [CVN_EQ] = CVN_NE, [CVN_NE] = CVN_EQ, [CVN_LT] = CVN_GE,
        [CVN_LE] = CVN_GT, [CVN_GT] = CVN_LE, [CVN_GE] = CVN_LT,
    };
    const Op *inner = made_by(op->operand[0], OP_NOT);
    if (inner)
        return inner->operand[0];
    const Op *compare = made_by(op->operand[0], OP_COMPARE);
    if (!compare)
        return NULL;
    cvn_value *a = compare->operand[0], *b = compare->operand[1];
    cvn_compare d = compare->attr.compare;
    bool exact = d == CVN_EQ || d == CVN_NE || !is_float(a);
    return exact ? cvn_compare_values(g, opposite[d], a, b) : NULL;
}

/* x = x is true for integers; b = true is b. */
static cvn_value *compare_identities(cvn_graph *g, const Op *op)
{
    cvn_value *x = op->operand[0], *y = op->operand[1];
    cvn_compare d = op->attr.compare;
    if (x == y && !is_float(x))
        return cvn_splat(g, op->result[0]->type, d == CVN_EQ || d == CVN_LE || d == CVN_GE);
    if (x->type.dtype != CVN_BOOL || (d != CVN_EQ && d != CVN_NE))
        return NULL;
    for (int i = 0; i < 2; i++) {
        double number;
        if (splat_number(op->operand[i], &number))
            return (number != 0) == (d == CVN_EQ) ? op->operand[1 - i]
                                                  : cvn_not(g, op->operand[1 - i]);
    }
    return NULL;
}

/* A known predicate; equal choices; select(not p, a, b) = select(p, b, a); of bools p ? true :
 * false. */
static cvn_value *select_identities(cvn_graph *g, const Op *op)
{
    cvn_value *pred = op->operand[0], *a = op->operand[1], *b = op->operand[2];
    double number;
    if (splat_number(pred, &number))
        return number != 0 ? a : b;
    if (a == b)
        return a;
    const Op *inverted = made_by(pred, OP_NOT);
    if (inverted)
        return cvn_select(g, inverted->operand[0], b, a);
    if (a->type.dtype == CVN_BOOL && cvn_type_equal(&pred->type, &a->type)) {
        if (is_splat(a, 1) && is_splat(b, 0))
            return pred;
        if (is_splat(a, 0) && is_splat(b, 1))
            return cvn_not(g, pred);
    }
    return NULL;
}

/* Bits of the numbers of a dtype. */
typedef struct Precision {
    int digits;   /* of the significand, or of the magnitude of an integer */
    int exponent; /* numbers are below 2^exponent; 0 for integers */
    bool is_signed;
} Precision;

static const Precision precision[CVN_DTYPE_COUNT] = {
    [CVN_F64] = {53, 1024, true}, [CVN_F32] = {24, 128, true}, [CVN_BF16] = {8, 128, true},
    [CVN_F16] = {11, 16, true},   [CVN_I32] = {31, 0, true},   [CVN_U32] = {32, 0, false},
    [CVN_I8] = {7, 0, true},      [CVN_I4] = {3, 0, true},     [CVN_BOOL] = {1, 0, false},
};

/* Every number of `from` is one of `to`. */
static bool holds_all(cvn_dtype from, cvn_dtype to)
{
    const Precision *a = &precision[from], *b = &precision[to];
    if (from == to)
        return true;
    if (a->exponent && !b->exponent)
        return false;
    return a->digits <= b->digits && a->exponent <= b->exponent && (!a->is_signed || b->is_signed);
}

/* To the same dtype. From a to b to c where b holds all of a: b changes nothing. Where a is an
   integer c must hold all of it too: integers are cut to fit and floats saturate, so the way would
   matter. */
static cvn_value *convert_identities(cvn_graph *g, const Op *op)
{
    cvn_value *x = op->operand[0];
    cvn_dtype to = op->result[0]->type.dtype;
    if (x->type.dtype == to)
        return x;
    const Op *inner = made_by(x, OP_CONVERT);
    if (!inner)
        return NULL;
    cvn_value *source = inner->operand[0];
    cvn_dtype from = source->type.dtype;
    if (!holds_all(from, x->type.dtype))
        return NULL;
    if (from == to)
        return source;
    if (!dtype_is_float(from) && !holds_all(from, to))
        return NULL;
    return cvn_convert(g, source, to);
}

SimplifyRule *const simplify_math_rules[OP_COUNT][RULES_PER_KIND] = {
    [OP_ADD] = {add_identities},
    [OP_SUBTRACT] = {subtract_identities},
    [OP_MULTIPLY] = {multiply_identities},
    [OP_DIVIDE] = {divide_identities},
    [OP_MAXIMUM] = {extreme_identities},
    [OP_MINIMUM] = {extreme_identities},
    [OP_POWER] = {neutral_exponent_or_shift},
    [OP_AND] = {and_or_identities},
    [OP_OR] = {and_or_identities},
    [OP_XOR] = {xor_identities},
    [OP_SHIFT_LEFT] = {neutral_exponent_or_shift},
    [OP_SHIFT_RIGHT_LOGICAL] = {neutral_exponent_or_shift},
    [OP_NEGATE] = {negate_identities},
    [OP_ABS] = {abs_identities},
    [OP_FLOOR] = {floor_identities},
    [OP_NOT] = {not_identities},
    [OP_COMPARE] = {compare_identities},
    [OP_SELECT] = {select_identities},
    [OP_CONVERT] = {convert_identities},
};
