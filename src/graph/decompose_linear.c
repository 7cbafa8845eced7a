/*
 * Quantized weights in plain operations: converted, brought from panels into rows if they are in such, multiplied by
 * their scales. In panels, an i8 weight of 20 rows and 6 columns:
 *
 *     q i8[2,2,16,4] -> f32 -> transpose -> [2,16,2,4] -> reshape [32,1,8]
 *     scale f32[2,1,16] -> [2,16,1] -> [32,1] -> over [32,1,8];  q * scale -> [32,8] -> slice [20,6]
 */
#include "graph/decompose_impl.h"
#include "graph/linear.h"
#include "graph/panels.h"

/* f32 [n, k]; scale: NULL of a weight that is not quantized */
static cvn_value *rows_of(cvn_graph *g, cvn_value *q, cvn_value *scale, const LinearWeight *w)
{
    if (w->blocks) {
        const OpAttr attr = {.axis = 1, .blocks = w->blocks};
        const cvn_type type = CVN_TYPE(CVN_F32, w->n, w->k);
        return graph_add(g, OP_DEQUANTIZE, &attr, 1, &q, &type);
    }
    bool panels = w->panels > 0;
    int64_t rows = panels ? w->panels * PANEL_ROWS : w->n;
    int64_t columns = panels ? w->units * panel_unit(w->dtype) : w->k;
    int64_t groups = scale ? w->groups : 1;
    const int64_t grouped[] = {rows, groups, columns / groups};
    cvn_value *value = as(g, q, CVN_F32);
    if (panels)
        value = w->dtype == CVN_I4 ? cvn_transpose(g, value, (const int[]){0, 2, 1, 4, 3})
                                   : cvn_transpose(g, value, (const int[]){0, 2, 1, 3});
    value = cvn_reshape(g, value, 3, grouped);
    if (scale) {
        cvn_value *step = as(g, scale, CVN_F32);
        if (panels)
            step = cvn_transpose(g, step, (const int[]){0, 2, 1});
        step = cvn_reshape(g, step, 2, grouped);
        value = cvn_multiply(g, value, spread(g, step, &value->type, (const int[]){0, 1}));
    }
    value = cvn_reshape(g, value, 2, (const int64_t[]){rows, columns});
    if (rows == w->n && columns == w->k)
        return value;
    return cvn_slice(g, value, (const int64_t[]){0, 0}, (const int64_t[]){w->n, w->k}, NULL);
}

void decompose_dequantize(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->result[0]->type;
    if (op->attr.blocks) {
        cvn_value *all = decompose_blocks(g, op->operand[0], op->attr.blocks, op->attr.axis > 0);
        out[0] = as(g, cvn_reshape(g, all, type->rank, type->dim), type->dtype);
        return;
    }
    LinearWeight w = dequantize_weight(op);
    cvn_value *scale = w.groups ? op->operand[1] : NULL;
    cvn_value *value = rows_of(g, op->operand[0], scale, &w);
    out[0] = as(g, cvn_reshape(g, value, type->rank, type->dim), type->dtype);
}

/* The nearest whole number of floats of at most 2^23, halves to even. (x + c - c for a large c would do, but
   XLA folds it to x.) The part of |x| past its floor is exact. */
static cvn_value *nearest(cvn_graph *g, cvn_value *x)
{
    cvn_value *size = cvn_abs(g, x), *low = cvn_floor(g, size);
    cvn_value *part = cvn_subtract(g, size, low), *half = like(g, x, 0.5);
    cvn_value *odd = cvn_remainder(g, low, like(g, x, 2)), *one = like(g, x, 1);
    cvn_value *tie = cvn_compare_values(g, CVN_EQ, part, half);
    cvn_value *up = cvn_and(g, tie, cvn_compare_values(g, CVN_EQ, odd, one));
    up = cvn_or(g, up, cvn_compare_values(g, CVN_GT, part, half));
    low = cvn_add(g, low, cvn_select(g, up, one, like(g, x, 0)));
    return cvn_multiply(g, low, cvn_sign(g, x));
}

/* x [..., d] as i8, and a scale of each row as bf16 [..., 1]. */
static void to_8_bits(cvn_graph *g, cvn_value *x, cvn_value *out[2])
{
    x = as(g, x, CVN_F32);
    int last = x->type.rank - 1;
    cvn_type scales = x->type;
    scales.dim[last] = 1;
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, cvn_abs(g, x), 1, &last); /* [...] */
    cvn_value *scale = cvn_convert(g, cvn_divide(g, most, like(g, most, 127)), CVN_BF16);
    out[1] = cvn_reshape(g, scale, last + 1, scales.dim);
    cvn_value *step = as(g, scale, CVN_F32);
    cvn_value *usable = cvn_compare_values(g, CVN_GT, step, like(g, step, 0));
    usable = spread_over(g, cvn_and(g, usable, cvn_is_finite(g, step)), &x->type, last);
    cvn_value *steps = cvn_divide(g, x, spread_over(g, step, &x->type, last));
    cvn_value *least = like(g, x, -127);
    steps = nearest(g, cvn_clamp(g, least, steps, like(g, x, 127)));
    out[0] = cvn_convert(g, cvn_select(g, usable, steps, like(g, x, 0)), CVN_I8);
}

void decompose_quantize_rows(cvn_graph *g, const Op *op, cvn_value **out)
{
    to_8_bits(g, op->operand[0], out);
}

/* x [rows, k] times weight i, f32 [rows, n]; step: of each row of x that is of 8 bits, of any shape, or NULL */
static cvn_value *product_of(cvn_graph *g, const Op *op, int i, cvn_value *x, cvn_value *step)
{
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {1}};
    LinearWeight w = linear_weight(op, i);
    cvn_value *const *q = op->operand + linear_operand(op, i);
    cvn_value *values = rows_of(g, q[0], w.groups ? q[1] : NULL, &w);
    cvn_value *y = cvn_dot_general(g, as(g, x, CVN_F32), values, &dims, CVN_F32);
    if (!step)
        return y;
    step = as(g, cvn_reshape(g, step, 1, &y->type.dim[0]), CVN_F32);
    return cvn_multiply(g, y, spread_over(g, step, &y->type, 1));
}

void decompose_linear_int8(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->result[0]->type;
    const int64_t shape[] = {linear_rows(op), linear_weight(op, 0).k};
    cvn_value *x = cvn_reshape(g, op->operand[0], 2, shape);
    cvn_value *y = product_of(g, op, 0, x, op->operand[1]);
    out[0] = as(g, cvn_reshape(g, y, type->rank, type->dim), type->dtype);
}

void decompose_linear(cvn_graph *g, const Op *op, cvn_value **out)
{
    int weights = (int)op->attr.group_size, residual = linear_residual(op);
    const int64_t shape[] = {linear_rows(op), linear_weight(op, 0).k};
    cvn_value *y[LINEAR_WEIGHTS], *from = op->operand[0], *eight[2] = {NULL, NULL};
    if (op->attr.norm) {
        from = decompose_norm(g, from, op->operand[linear_norm(op)], op->attr.eps);
        from = as(g, from, linear_rows_dtype(op));
    }
    from = cvn_reshape(g, from, 2, shape);
    if (op->attr.int8 && op->attr.blocks) {
        const LinearWeight w = linear_weight(op, 0);
        const int64_t columns = linear_step_columns(&w);
        from = cvn_reshape(g, from, 3, (const int64_t[]){shape[0], w.k / columns, columns});
        to_8_bits(g, from, eight);
        from = cvn_reshape(g, cvn_dequantize(g, eight[0], eight[1], CVN_F32), 2, shape);
        eight[1] = NULL;
    } else if (op->attr.int8) {
        to_8_bits(g, from, eight);
        from = eight[0];
    }
    for (int i = 0; i < weights; i++) {
        y[i] = product_of(g, op, i, from, eight[1]);
        if (op->attr.bias) {
            LinearWeight w = linear_weight(op, i);
            cvn_value *bias = cvn_reshape(g, op->operand[linear_bias(op, i)], 1, &w.n);
            y[i] = cvn_add(g, y[i], spread(g, as(g, bias, CVN_F32), &y[i]->type, (int[]){1}));
        }
    }
    if (op->attr.flag)
        y[0] = cvn_multiply(g, cvn_multiply(g, y[0], cvn_logistic(g, y[0])), y[1]);
    for (int i = 0; i < op->n_results; i++) {
        const cvn_type *type = &op->result[i]->type;
        cvn_value *result = cvn_reshape(g, y[i], type->rank, type->dim);
        if (residual >= 0)
            result = cvn_add(g, result, op->operand[residual]);
        out[i] = as(g, result, type->dtype);
    }
}
