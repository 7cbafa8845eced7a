/*
 * Elementwise operations: each element of the result is a function of one element of each operand. What the functions of
 * one and two numbers are says graph/scalar.h; here is how they are applied, and those that are more.
 */
#include "graph/ops/ops.h"
#include "graph/scalar.h"

/* ---- builders ---- */

/* Most builders take no more than operands: cvn_NAME of a row of ops.def appends an OP_KIND. */
#define ONE(name, KIND)                                                                            \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *x)                                              \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 1, &x, NULL);                                         \
    }
#define TWO(name, KIND)                                                                            \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *a, cvn_value *b)                                \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 2, (cvn_value *[]){a, b}, NULL);                      \
    }
#define THREE(name, KIND)                                                                          \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *a, cvn_value *b, cvn_value *c)                  \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 3, (cvn_value *[]){a, b, c}, NULL);                   \
    }
#define F(builder) builder
#define N(builder) builder
#define I(builder) builder
#define A(builder) /* convert and compare have attributes, or a type that is wanted */
#define LEAF(name, KIND, dtypes)
#define UNARY(name, KIND, dtypes) dtypes(ONE(name, KIND))
#define BINARY(name, KIND, dtypes) dtypes(TWO(name, KIND))
#define TERNARY(name, KIND, dtypes) THREE(name, KIND)
#define SHAPE(name, KIND, dtypes)
#define INDEX(name, KIND, dtypes)
#define REDUCE(name, KIND, dtypes)
#define CONTRACT(name, KIND, dtypes)
#define COLLECTIVE(name, KIND, dtypes)
#define CONTROL(name, KIND, dtypes) ONE(name, KIND)
#define COMPOSITE(name, KIND, dtypes)
#define REGION(name, KIND, dtypes)
#define OP(KIND, name, least, most, results, class, dtypes, ...) class(name, KIND, dtypes)
#include "graph/ops.def"
#undef OP

cvn_value *cvn_convert(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    cvn_type want = x->type;
    want.dtype = dtype;
    return graph_add(g, OP_CONVERT, NULL, 1, &x, &want);
}

cvn_value *cvn_compare_values(cvn_graph *g, cvn_compare direction, cvn_value *a, cvn_value *b)
{
    OpAttr attr = {.compare = direction};
    return graph_add(g, OP_COMPARE, &attr, 2, (cvn_value *[]){a, b}, NULL);
}

/* ---- types ---- */

/* Operations of class CONTROL, which pass their operand on, have it, too. */
int infer_unary(const Op *op, cvn_type *type, cvn_err *err)
{
    cvn_dtype dtype = op->kind == OP_IS_FINITE ? CVN_BOOL : op_in(op, 0)->dtype;
    if (op->kind == OP_CONVERT) {
        TRY(infer_wanted(op, type, err));
        dtype = type[0].dtype;
    }
    type[0] = *op_in(op, 0);
    type[0].dtype = dtype;
    return CVN_OK;
}

int infer_binary(const Op *op, cvn_type *type, cvn_err *err)
{
    bool shifts = op->kind == OP_SHIFT_LEFT || op->kind == OP_SHIFT_RIGHT_LOGICAL;
    if (shifts && op_in(op, 0)->dtype == CVN_BOOL)
        return infer_fail(op, err, "cannot shift bools");
    if (!cvn_type_equal(op_in(op, 0), op_in(op, 1)))
        return infer_fail(op, err, "operands must have the same type");
    type[0] = *op_in(op, 0);
    if (op->kind == OP_COMPARE) {
        if ((unsigned)op->attr.compare >= COMPARE_COUNT)
            return infer_fail(op, err, "unknown direction");
        type[0].dtype = CVN_BOOL;
    }
    return CVN_OK;
}

int infer_select(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *pred = op_in(op, 0);
    type[0] = *op_in(op, 1);
    if (!cvn_type_equal(op_in(op, 1), op_in(op, 2)))
        return infer_fail(op, err, "both choices must have the same type");
    cvn_type mask = type[0];
    mask.dtype = CVN_BOOL;
    if (pred->dtype != CVN_BOOL || (pred->rank != 0 && !cvn_type_equal(pred, &mask)))
        return infer_fail(op, err, "the predicate must be bool, of the choices' shape or a scalar");
    return CVN_OK;
}

int infer_clamp(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 1);
    for (int i = 0; i <= 2; i += 2) {
        const cvn_type *bound = op_in(op, i);
        if (bound->dtype != type[0].dtype || (bound->rank != 0 && !cvn_type_equal(bound, type)))
            return infer_fail(op, err, "bounds must have the operand's type or be its scalars");
    }
    return CVN_OK;
}

/* ---- meaning ---- */

void interp_unary(const Op *op, const void *const *in, void *const *out)
{
    cvn_dtype dtype = op_in(op, 0)->dtype, to = op_out(op, 0)->dtype;
    for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++)
        if (dtype_is_float(dtype))
            element_set(to, out[0], i, scalar_unary(op->kind, element_get(dtype, in[0], i)));
        else
            interp_set_int(dtype, out[0], i,
                           scalar_unary_int(op->kind, interp_get_int(dtype, in[0], i)));
}

void interp_binary(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        if (dtype_is_float(dtype)) {
            double a = element_get(dtype, in[0], i), b = element_get(dtype, in[1], i);
            element_set(dtype, out[0], i, scalar_binary(op->kind, a, b));
        } else {
            int64_t a = interp_get_int(dtype, in[0], i), b = interp_get_int(dtype, in[1], i);
            interp_set_int(dtype, out[0], i, scalar_binary_int(op->kind, a, b));
        }
    }
}

/* not is logical on bool, bitwise on integers. */
void interp_not(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        int64_t x = interp_get_int(type->dtype, in[0], i);
        interp_set_int(type->dtype, out[0], i, type->dtype == CVN_BOOL ? !x : ~x);
    }
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

/* On the bits of elements of `width` bits. Shift amounts are read as unsigned, so a negative one
   is too large; an amount of the width or more shifts everything out. */
#define BITS(name, y)                                                                              \
    void interp_##name(const Op *op, const void *const *in, void *const *out)                      \
    {                                                                                              \
        cvn_dtype dtype = op_out(op, 0)->dtype;                                                    \
        unsigned width = (unsigned)cvn_dtype_bits(dtype);                                          \
        uint64_t mask = (UINT64_C(1) << width) - 1;                                                \
        for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++) {                    \
            uint64_t a = (uint64_t)interp_get_int(dtype, in[0], i) & mask;                         \
            uint64_t b = (uint64_t)interp_get_int(dtype, in[1], i) & mask;                         \
            interp_set_int(dtype, out[0], i, (int64_t)(y));                                        \
        }                                                                                          \
    }
BITS(and, (a & b))
BITS(or, a | b)
BITS(xor, a ^ b)
BITS(shift_left, b < width ? a << b : 0)
BITS(shift_right_logical, b < width ? a >> b : 0)

void interp_compare(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_in(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        ((uint8_t *)out[0])[i] =
            scalar_compare(op->attr.compare, element_get(type->dtype, in[0], i),
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
void interp_clamp(const Op *op, const void *const *in, void *const *out)
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

/* ---- gradients: y is the result, dy its gradient ---- */

/* The gradient of a function of one operand x: what dx is. */
#define GRADIENT(name, dx)                                                                         \
    void grad_##name(Grad *d, const Op *op)                                                        \
    {                                                                                              \
        cvn_graph *g = d->g;                                                                       \
        cvn_value *x = op->operand[0], *y = op->result[0], *dy = grad_of(d, op, 0);                \
        (void)x, (void)y;                                                                          \
        grad_give(d, op, 0, dx);                                                                   \
    }

GRADIENT(negate, cvn_negate(g, dy))
GRADIENT(abs, cvn_multiply(g, dy, cvn_sign(g, x)))
GRADIENT(exponential, cvn_multiply(g, dy, y))
GRADIENT(exponential_minus_one, cvn_multiply(g, dy, cvn_add(g, y, like(g, y, 1))))
GRADIENT(log, cvn_divide(g, dy, x))
GRADIENT(log_plus_one, cvn_divide(g, dy, cvn_add(g, x, like(g, x, 1))))
GRADIENT(sqrt, cvn_divide(g, cvn_multiply(g, dy, like(g, y, 0.5)), y))
GRADIENT(logistic, cvn_multiply(g, dy, cvn_multiply(g, y, cvn_subtract(g, like(g, y, 1), y))))
GRADIENT(sine, cvn_multiply(g, dy, cvn_cosine(g, x)))
GRADIENT(cosine, cvn_multiply(g, dy, cvn_negate(g, cvn_sine(g, x))))

/* dx = -dy y / 2x */
void grad_rsqrt(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *dy = grad_of(d, op, 0), *half = cvn_multiply(d->g, dy, like(d->g, y, -0.5));
    grad_give(d, op, 0, cvn_multiply(d->g, half, cvn_divide(d->g, y, op->operand[0])));
}

/* dx = dy (1 - y^2) */
void grad_tanh(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0], *one = like(d->g, y, 1);
    cvn_value *slope = cvn_subtract(d->g, one, cvn_multiply(d->g, y, y));
    grad_give(d, op, 0, cvn_multiply(d->g, grad_of(d, op, 0), slope));
}

/* A gradient as it was before it was rounded from dtype; NULL where it was not. Also what was rounded on its way from a
   product to a weight and then moved, scaled or added up, but not farther than `depth` operations back. */
static cvn_value *before_rounding(Grad *d, cvn_value *v, cvn_dtype dtype, int depth)
{
    const Op *op = v->def;
    if (v->id < d->n_values) /* the forward pass did read it rounded */
        return NULL;
    if (op->kind == OP_CONVERT && op->operand[0]->type.dtype == dtype)
        return op->operand[0];
    bool moves = op->kind == OP_RESHAPE || op->kind == OP_TRANSPOSE || op->kind == OP_SLICE ||
                 op->kind == OP_PAD;
    bool counts = op->kind == OP_ADD || op->kind == OP_SUBTRACT || op->kind == OP_MULTIPLY ||
                  op->kind == OP_NEGATE;
    if (depth == 0 || !(moves || counts))
        return NULL;
    cvn_value *exact[2] = {NULL}, *any = NULL;
    for (int i = 0; i < op->n_operands; i++)
        if ((exact[i] = before_rounding(d, op->operand[i], dtype, depth - 1)))
            any = exact[i];
    if (!any)
        return NULL;
    for (int i = 0; i < op->n_operands; i++)
        exact[i] = exact[i] ? exact[i] : as(d->g, op->operand[i], dtype);
    cvn_type type = v->type;
    type.dtype = dtype;
    return graph_add(d->g, op->kind, &op->attr, op->n_operands, exact, &type);
}

/* Between floats, since others are neither wanted nor have a gradient. A gradient that has only just been rounded is
   taken as it was before. */
void grad_convert(Grad *d, const Op *op)
{
    enum { DEPTH = 6 };
    cvn_value *dy = grad_of(d, op, 0);
    cvn_dtype dtype = op->operand[0]->type.dtype;
    cvn_value *exact = before_rounding(d, dy, dtype, d->weight[op->result[0]->id] ? DEPTH : 0);
    grad_give(d, op, 0, exact ? exact : as(d->g, dy, dtype));
}

void grad_add(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, dy);
    grad_give(d, op, 1, dy);
}

void grad_subtract(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, dy);
    if (grad_wants(d, op, 1))
        grad_give(d, op, 1, cvn_negate(d->g, dy));
}

void grad_multiply(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    for (int i = 0; i < 2; i++)
        if (grad_wants(d, op, i))
            grad_give(d, op, i, cvn_multiply(d->g, dy, op->operand[1 - i]));
}

/* da = dy / b, db = -dy (y / b) */
void grad_divide(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *b = op->operand[1];
    if (grad_wants(d, op, 0))
        grad_give(d, op, 0, cvn_divide(d->g, dy, b));
    if (grad_wants(d, op, 1)) {
        cvn_value *slope = cvn_negate(d->g, cvn_divide(d->g, op->result[0], b));
        grad_give(d, op, 1, cvn_multiply(d->g, dy, slope));
    }
}

/* maximum and minimum: the operand that is the result has the gradient; equal ones have half. */
static void grad_extremum(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0);
    cvn_value *half = cvn_multiply(g, dy, like(g, dy, 0.5));
    cvn_value *equal = cvn_compare_values(g, CVN_EQ, op->operand[0], op->operand[1]);
    for (int i = 0; i < 2; i++) {
        cvn_value *wins = cvn_compare_values(g, CVN_EQ, op->operand[i], op->result[0]);
        if (grad_wants(d, op, i))
            grad_give(d, op, i, cvn_select(g, equal, half, where(g, wins, dy)));
    }
}

void grad_maximum(Grad *d, const Op *op)
{
    grad_extremum(d, op);
}

void grad_minimum(Grad *d, const Op *op)
{
    grad_extremum(d, op);
}

/* da = dy b a^(b - 1), 0 where b is 0;  db = dy y ln a, 0 where a is 0. */
void grad_power(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *a = op->operand[0], *b = op->operand[1];
    cvn_value *zero = like(g, a, 0), *one = like(g, a, 1);
    if (grad_wants(d, op, 0)) {
        cvn_value *flat = cvn_compare_values(g, CVN_EQ, b, zero);
        cvn_value *less = cvn_subtract(g, cvn_select(g, flat, one, b), one);
        cvn_value *slope = cvn_multiply(g, b, cvn_power(g, a, less));
        grad_give(d, op, 0, cvn_multiply(g, dy, slope));
    }
    if (grad_wants(d, op, 1)) {
        cvn_value *flat = cvn_compare_values(g, CVN_EQ, a, zero);
        cvn_value *log = cvn_log(g, cvn_select(g, flat, one, a));
        cvn_value *slope = cvn_multiply(g, op->result[0], log);
        slope = where(g, cvn_not(g, flat), slope);
        grad_give(d, op, 1, cvn_multiply(g, dy, slope));
    }
}

/* y = a - b trunc(a / b), so da = dy, db = -dy trunc(a / b). */
void grad_remainder(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, dy);
    if (grad_wants(d, op, 1)) {
        cvn_value *ratio = cvn_divide(g, op->operand[0], op->operand[1]);
        cvn_value *whole = cvn_floor(g, cvn_abs(g, ratio));
        cvn_value *slope = cvn_negate(g, cvn_multiply(g, cvn_sign(g, ratio), whole));
        grad_give(d, op, 1, cvn_multiply(g, dy, slope));
    }
}

void grad_select(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *zero = like(d->g, dy, 0);
    if (grad_wants(d, op, 1))
        grad_give(d, op, 1, cvn_select(d->g, op->operand[0], dy, zero));
    if (grad_wants(d, op, 2))
        grad_give(d, op, 2, cvn_select(d->g, op->operand[0], zero, dy));
}

/* Gives dy where `mask` to a bound, which may be a scalar for all elements. */
static void add_to_bound(Grad *d, const Op *op, int i, cvn_value *mask, cvn_value *dy)
{
    if (!grad_wants(d, op, i))
        return;
    cvn_value *part = where(d->g, mask, dy);
    grad_give(d, op, i, op->operand[i]->type.rank ? part : grad_sum_all(d->g, part));
}

/* Every element's gradient goes to exactly one of the three: see grad.h. */
void grad_clamp(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *dy = grad_of(d, op, 0), *x = op->operand[1];
    cvn_value *low = cvn_broadcast_to(g, op->operand[0], &x->type);
    cvn_value *high = cvn_broadcast_to(g, op->operand[2], &x->type);
    cvn_value *below = cvn_compare_values(g, CVN_LT, x, low);
    cvn_value *above = cvn_compare_values(g, CVN_GT, cvn_maximum(g, x, low), high);
    cvn_value *inside = cvn_not(g, cvn_or(g, below, above));
    if (grad_wants(d, op, 1))
        grad_give(d, op, 1, where(g, inside, dy));
    add_to_bound(d, op, 0, cvn_and(g, below, cvn_not(g, above)), dy);
    add_to_bound(d, op, 2, above, dy);
}

/* ---- StableHLO ---- */

/* StableHLO has abs and sign of signed numbers only. */
void hlo_abs(Hlo *h, const Op *op)
{
    hlo_op(h, op, op->result[0]->type.dtype == CVN_U32 ? "convert" : "abs", NULL, NULL);
}

void hlo_sign(Hlo *h, const Op *op)
{
    const cvn_type *type = &op->result[0]->type;
    if (type->dtype != CVN_U32) {
        hlo_op(h, op, "sign", NULL, NULL);
        return;
    }
    const char *t = hlo_tensor(h, type), *one = hlo_splat(h, type, 1);
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = "minimum",
                           .operands = arena_printf(&h->arena, "%s, %s", hlo_operands(h, op), one),
                           .operand_types = arena_printf(&h->arena, "%s, %s", t, t),
                           .result_types = t});
}

void hlo_compare(Hlo *h, const Op *op)
{
    static const char *const direction[COMPARE_COUNT] = {"EQ", "NE", "LT", "LE", "GT", "GE"};
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const char *type = dtype == CVN_U32 || dtype == CVN_BOOL ? "UNSIGNED"
                       : dtype_is_float(dtype)               ? "FLOAT"
                                                             : "SIGNED";
    hlo_op(h, op, "compare", NULL,
           arena_printf(&h->arena,
                        "comparison_direction = #stablehlo<comparison_direction %s>, "
                        "compare_type = #stablehlo<comparison_type %s>",
                        direction[op->attr.compare], type));
}
