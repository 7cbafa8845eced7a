/*
 * Functions of a module that graphs have no operation for, made of those that there are. In f32 where the operand is of 16 bits.
 * Polynomials of erf and its kin are Cephes' (ndtrf.c, S. Moshier), that of its inverse is M. Giles' ("Approximating the erfinv
 * function", 2010), as in XLA.
 */
#include "graph/stablehlo/read.h"

#include <math.h>

typedef cvn_value *MathFn(cvn_graph *g, cvn_value *x);

static cvn_value *number(cvn_graph *g, const cvn_value *like, double value)
{
    return cvn_splat(g, like->type, value);
}

static cvn_value *scaled(cvn_graph *g, cvn_value *x, double by)
{
    return cvn_multiply(g, x, number(g, x, by));
}

static cvn_value *plus(cvn_graph *g, cvn_value *x, double more)
{
    return cvn_add(g, x, number(g, x, more));
}

static cvn_value *is(cvn_graph *g, cvn_compare how, cvn_value *x, double than)
{
    return cvn_compare_values(g, how, x, number(g, x, than));
}

/* c[0] x^(n-1) + … + c[n-1] */
static cvn_value *polynomial(cvn_graph *g, cvn_value *x, int n, const double *c)
{
    cvn_value *y = number(g, x, c[0]);
    for (int i = 1; i < n; i++)
        y = plus(g, cvn_multiply(g, y, x), c[i]);
    return y;
}
#define POLYNOMIAL(g, x, c) polynomial((g), (x), (int)(sizeof(c) / sizeof *(c)), (c))

/* erf of |x| < 1, and 1 - erf of |x| elsewhere. */
static void erf_parts(cvn_graph *g, cvn_value *x, cvn_value **near, cvn_value **rest)
{
    static const double t[] = {7.853861353153693e-5,  -8.010193625184903e-4, 5.188327685732524e-3,
                               -2.685381193529856e-2, 1.128358514861418e-1,  -3.761262582423300e-1,
                               1.128379165726710e+0};
    static const double p[] = {2.326819970068386e-2,  -1.387039388740657e-1, 3.687424674597105e-1,
                               -5.824733027278666e-1, 6.210004621745983e-1,  -4.944515323274145e-1,
                               3.404879937665872e-1,  -2.741127028184656e-1, 5.638259427386472e-1};
    static const double s[] = {-1.047766399936249e+1, 1.297719955372516e+1,  -7.495518717768503e+0,
                               2.921019019210786e+0,  -1.015265279202700e+0, 4.218463358204948e-1,
                               -2.820767439740514e-1, 5.641895067754075e-1};
    cvn_value *square = cvn_multiply(g, x, x), *size = cvn_abs(g, x);
    cvn_value *inverse = cvn_divide(g, number(g, x, 1), size);
    cvn_value *y = cvn_multiply(g, inverse, inverse);
    cvn_value *two = is(g, CVN_LT, size, 2);
    cvn_value *below = POLYNOMIAL(g, y, p), *above = POLYNOMIAL(g, y, s);
    cvn_value *part = cvn_select(g, two, below, above);
    part =
        cvn_multiply(g, cvn_multiply(g, cvn_exponential(g, cvn_negate(g, square)), inverse), part);
    *near = cvn_multiply(g, x, POLYNOMIAL(g, square, t));
    cvn_value *none = is(g, CVN_GT, square, 88.72283905206835), *zero = number(g, x, 0);
    *rest = cvn_select(g, none, zero, part);
}

static cvn_value *make_erf(cvn_graph *g, cvn_value *x)
{
    cvn_value *near, *rest, *size = cvn_abs(g, x);
    erf_parts(g, x, &near, &rest);
    cvn_value *sign = cvn_sign(g, x), *size_far = cvn_subtract(g, number(g, x, 1), rest);
    cvn_value *far = cvn_multiply(g, sign, size_far);
    return cvn_select(g, is(g, CVN_LT, size, 1), near, far);
}

static cvn_value *make_erfc(cvn_graph *g, cvn_value *x)
{
    cvn_value *near, *rest, *size = cvn_abs(g, x);
    erf_parts(g, x, &near, &rest);
    cvn_value *below = cvn_subtract(g, number(g, x, 2), rest);
    cvn_value *far = cvn_select(g, is(g, CVN_LT, x, 0), below, rest);
    cvn_value *is_near = is(g, CVN_LT, size, 1), *close = cvn_subtract(g, number(g, x, 1), near);
    return cvn_select(g, is_near, close, far);
}

static cvn_value *make_erf_inv(cvn_graph *g, cvn_value *x)
{
    static const double near[] = {2.81022636e-08,  3.43273939e-07, -3.5233877e-06,
                                  -4.39150654e-06, 0.00021858087,  -0.00125372503,
                                  -0.00417768164,  0.246640727,    1.50140941};
    static const double far[] = {-0.000200214257, 0.000100950558, 0.00134934322,
                                 -0.00367342844,  0.00573950773,  -0.0076224613,
                                 0.00943887047,   1.00167406,     2.83297682};
    cvn_value *w = cvn_negate(g, cvn_log_plus_one(g, cvn_negate(g, cvn_multiply(g, x, x))));
    cvn_value *is_near = is(g, CVN_LT, w, 5);
    cvn_value *small = plus(g, w, -2.5), *large = plus(g, cvn_sqrt(g, w), -3);
    cvn_value *y = cvn_select(g, is_near, small, large);
    small = POLYNOMIAL(g, y, near);
    large = POLYNOMIAL(g, y, far);
    cvn_value *p = cvn_select(g, is_near, small, large);
    cvn_value *end = is(g, CVN_EQ, cvn_abs(g, x), 1), *far_off = scaled(g, x, INFINITY);
    return cvn_select(g, end, far_off, cvn_multiply(g, p, x));
}

static cvn_value *make_square(cvn_graph *g, cvn_value *x)
{
    return cvn_multiply(g, x, x);
}

static cvn_value *make_tan(cvn_graph *g, cvn_value *x)
{
    cvn_value *sine = cvn_sine(g, x);
    return cvn_divide(g, sine, cvn_cosine(g, x));
}

/* (e^x - e^-x) / 2, where small by e^x - 1, and with 2 in the exponent so that what is finite stays so. */
static cvn_value *make_sinh(cvn_graph *g, cvn_value *x)
{
    const double ln2 = 0.69314718055994530942;
    cvn_value *up = cvn_exponential(g, plus(g, x, -ln2));
    cvn_value *down = cvn_exponential(g, plus(g, cvn_negate(g, x), -ln2));
    cvn_value *m = cvn_exponential_minus_one(g, x);
    cvn_value *near = scaled(g, cvn_add(g, m, cvn_divide(g, m, plus(g, m, 1))), 0.5);
    cvn_value *is_near = is(g, CVN_LT, cvn_abs(g, x), 1);
    return cvn_select(g, is_near, near, cvn_subtract(g, up, down));
}

static cvn_value *make_cosh(cvn_graph *g, cvn_value *x)
{
    const double ln2 = 0.69314718055994530942;
    cvn_value *up = cvn_exponential(g, plus(g, x, -ln2));
    return cvn_add(g, up, cvn_exponential(g, plus(g, cvn_negate(g, x), -ln2)));
}

static cvn_value *make_atanh(cvn_graph *g, cvn_value *x)
{
    cvn_value *below = cvn_log_plus_one(g, cvn_negate(g, x));
    return scaled(g, cvn_subtract(g, cvn_log_plus_one(g, x), below), 0.5);
}

static cvn_value *make_ceil(cvn_graph *g, cvn_value *x)
{
    return cvn_negate(g, cvn_floor(g, cvn_negate(g, x)));
}

/* To the nearest whole number, of halves the even one; what becomes 0 keeps its sign. */
static cvn_value *make_round_even(cvn_graph *g, cvn_value *x)
{
    cvn_value *down = cvn_floor(g, x), *up = plus(g, down, 1), *over = cvn_subtract(g, x, down);
    cvn_value *half = scaled(g, cvn_floor(g, scaled(g, down, 0.5)), 2);
    cvn_value *even = cvn_compare_values(g, CVN_EQ, half, down);
    cvn_value *below = is(g, CVN_LT, over, 0.5);
    cvn_value *tie = cvn_and(g, is(g, CVN_EQ, over, 0.5), even);
    cvn_value *goes_down = cvn_or(g, below, tie);
    cvn_value *y = cvn_select(g, goes_down, down, up);
    cvn_value *is_zero = is(g, CVN_EQ, y, 0);
    return cvn_select(g, is_zero, scaled(g, x, 0), y);
}

static cvn_value *make_round_away(cvn_graph *g, cvn_value *x)
{
    cvn_value *size = cvn_abs(g, x), *down = cvn_floor(g, size);
    cvn_value *is_down = is(g, CVN_LT, cvn_subtract(g, size, down), 0.5);
    cvn_value *y = cvn_select(g, is_down, down, plus(g, down, 1));
    return cvn_multiply(g, cvn_sign(g, x), y);
}

/* |x|^(1/3), a step of Newton's method, and the sign. */
static cvn_value *make_cbrt(cvn_graph *g, cvn_value *x)
{
    cvn_value *size = cvn_abs(g, x), *y = cvn_power(g, size, number(g, x, 1.0 / 3));
    cvn_value *square = cvn_multiply(g, y, y);
    cvn_value *off = scaled(g, cvn_subtract(g, y, cvn_divide(g, size, square)), 1.0 / 3);
    cvn_value *better = cvn_subtract(g, y, off);
    better = cvn_select(g, cvn_is_finite(g, better), better, y);
    return cvn_multiply(g, cvn_sign(g, x), better);
}

/* A function of floats, computed in f32 or f64. */
static int read_math(Read *r, const MlirOp *op, MathFn *make, bool double_too, const ReadValue *in,
                     ReadValue *out)
{
    if (op->operand.n != 1 || op->result.n != 1 || !dtype_is_float(in[0].v->type.dtype))
        return read_fail(r, op, "is supported of one operand of floats");
    cvn_dtype dtype = in[0].v->type.dtype;
    if (dtype == CVN_F64 && !double_too)
        return read_fail(r, op, "is supported of f32, bf16 and f16");
    cvn_dtype within = dtype == CVN_F64 ? CVN_F64 : CVN_F32;
    out[0].v = read_as(r->g, make(r->g, read_as(r->g, in[0].v, within)), dtype);
    return CVN_OK;
}

#define MATH(name, double_too)                                                                     \
    static int read_##name(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)         \
    {                                                                                              \
        return read_math(r, op, make_##name, (double_too), in, out);                               \
    }
MATH(erf, false)
MATH(erfc, false)
MATH(erf_inv, false)
MATH(tan, true)
MATH(sinh, true)
MATH(cosh, true)
MATH(atanh, true)
MATH(ceil, true)
MATH(round_even, true)
MATH(round_away, true)
MATH(cbrt, true)

static int read_square(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->operand.n != 1 || op->result.n != 1 || in[0].wide)
        return read_fail(r, op, "is supported of one operand of at most 32 bits");
    out[0].v = make_square(r->g, in[0].v);
    return CVN_OK;
}

/* Of what is below 0 the bits that come in are ones. */
static int read_shift_right(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    if (op->operand.n != 2 || op->result.n != 1 || in[0].wide || in[1].wide)
        return read_fail(r, op, "is supported of two operands of at most 32 bits");
    cvn_graph *g = r->g;
    cvn_value *x = in[0].v, *by = in[1].v;
    cvn_value *up = cvn_shift_right_logical(g, x, by);
    cvn_value *below = cvn_not(g, cvn_shift_right_logical(g, cvn_not(g, x), by));
    bool is_signed = x->type.dtype != CVN_U32;
    cvn_value *high = number(g, x, is_signed ? 0 : 2147483648.0);
    out[0].v =
        cvn_select(g, cvn_compare_values(g, is_signed ? CVN_LT : CVN_GE, x, high), below, up);
    return CVN_OK;
}

/* The k largest of the last dimension, and their places. */
static int read_top_k(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    int64_t k;
    TRY(read_int(r, op, "k", NULL, &k));
    if (op->operand.n != 1 || op->result.n != 2 || in[0].wide || in[0].v->type.rank < 1)
        return read_fail(r, op, "has no operand and two results");
    cvn_graph *g = r->g;
    int axis = in[0].v->type.rank - 1;
    cvn_type places = in[0].v->type;
    places.dtype = CVN_I32;
    cvn_value *sorted[2] = {g->poison, g->poison};
    cvn_sort_pair(g, in[0].v, cvn_iota(g, places, axis), axis, true, sorted);
    for (int i = 0; i < 2 && !g->err.code; i++)
        out[i].v = cvn_slice_axis(g, sorted[i], axis, 0, k);
    return CVN_OK;
}

const ReadRow read_maths[] = {
    {"erf", read_erf},
    {"erfc", read_erfc},
    {"erf_inv", read_erf_inv},
    {"square", read_square},
    {"tan", read_tan},
    {"sinh", read_sinh},
    {"cosh", read_cosh},
    {"atanh", read_atanh},
    {"ceil", read_ceil},
    {"round_nearest_even", read_round_even},
    {"round_nearest_afz", read_round_away},
    {"cbrt", read_cbrt},
    {"shift_right_arithmetic", read_shift_right},
    {"top_k", read_top_k},
    {NULL, NULL},
};
