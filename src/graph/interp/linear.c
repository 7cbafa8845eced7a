/* What quantized weights, weights in panels, and products with them mean, element by element. */
#include "graph/linear.h"
#include "graph/interp/interp_impl.h"
#include "graph/reduce.h"

#include <math.h>

/* Where element (row, column) of a weight is in q. */
static int64_t weight_at(const LinearWeight *w, int64_t row, int64_t column)
{
    return w->panels ? panel_index(w->dtype, w->units, row, column) : row * w->k + column;
}

static double weight_get(const LinearWeight *w, const void *q, const void *scale, int64_t row,
                         int64_t column)
{
    double value = element_get(w->dtype, q, weight_at(w, row, column));
    if (!w->groups)
        return value;
    int64_t columns = w->panels ? w->units * panel_unit(w->dtype) : w->k;
    int64_t group = column / (columns / w->groups), at = row * w->groups + group;
    if (w->panels)
        at = (row / PANEL_ROWS * w->groups + group) * PANEL_ROWS + row % PANEL_ROWS;
    return value * element_get(w->scale_dtype, scale, at);
}

/* Columns of row `row` from `column` on, as many as a chunk of blocks has or else one; returns how many. */
static int64_t weight_columns(const LinearWeight *w, const void *q, const void *scale, int64_t row,
                              int64_t column, double out[BLOCK_MOST])
{
    float element[BLOCK_MOST];
    if (!w->blocks) {
        out[0] = weight_get(w, q, scale, row, column);
        return 1;
    }
    const BlockChunk c = block_chunk(w->blocks, w->k);
    int64_t at = (row / PANEL_ROWS * w->units + column / c.columns) * c.bytes;
    block_chunk_row(w->blocks, &c, (const uint8_t *)q + at, (int)(row % PANEL_ROWS), element);
    for (int64_t i = 0; i < c.columns; i++)
        out[i] = (double)element[i];
    return c.columns;
}

static void widen_blocks(const Op *op, const uint8_t *in, void *out)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    float element[BLOCK_MOST];
    int64_t n = cvn_type_elements(op_out(op, 0));
    for (int64_t i = 0; i < n; i++) {
        if (i % info->elements == 0)
            info->widen(in + i / info->elements * info->bytes, element);
        element_set(op_out(op, 0)->dtype, out, i, (double)element[i % info->elements]);
    }
}

void interp_dequantize(const Op *op, const void *const *in, void *const *out)
{
    if (op->attr.blocks && op->attr.axis == 0) {
        widen_blocks(op, in[0], out[0]);
        return;
    }
    LinearWeight w = dequantize_weight(op);
    double element[BLOCK_MOST];
    for (int64_t at = 0, n = 0; at < w.n * w.k; at += n) {
        n = weight_columns(&w, in[0], w.groups ? in[1] : NULL, at / w.k, at % w.k, element);
        for (int64_t i = 0; i < n; i++)
            element_set(op_out(op, 0)->dtype, out[0], at + i, element[i]);
    }
}

/* A step of a row in 8 bits, of its largest magnitude. In f32, like the kernels: what lies between two steps must round
   to the same one everywhere. */
static float step_of(double most)
{
    uint16_t step[1];
    element_set(CVN_BF16, step, 0, (double)((float)most / 127.0f));
    return (float)element_get(CVN_BF16, step, 0);
}

/* x in steps. */
static double steps_of(double x, float step)
{
    float steps = isfinite(step) && step > 0 ? rintf((float)x / step) : 0;
    return fmin(fmax((double)steps, -127), 127);
}

void interp_quantize_rows(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    int64_t d = x->dim[x->rank - 1], rows = cvn_type_elements(op_out(op, 1));
    for (int64_t row = 0; row < rows; row++) {
        double most = 0;
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            most = reduce_max(most, fabs((double)(float)element_get(x->dtype, in[0], i)));
        float step = step_of(most);
        element_set(CVN_BF16, out[1], row, (double)step);
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            element_set(CVN_I8, out[0], i, steps_of(element_get(x->dtype, in[0], i), step));
    }
}

void interp_linear_int8(const Op *op, const void *const *in, void *const *out)
{
    LinearWeight w = linear_weight(op, 0);
    const int8_t *x = in[0];
    int64_t rows = cvn_type_elements(op_in(op, 1));
    for (int64_t at = 0; at < rows * w.n; at++) {
        int64_t m = at / w.n, n = at % w.n, sum = 0;
        for (int64_t k = 0; k < w.k; k++)
            sum += x[m * w.k + k] * (int64_t)element_get(CVN_I8, in[2], weight_at(&w, n, k));
        double scale = element_get(CVN_F32, in[3], n) * element_get(CVN_BF16, in[1], m);
        element_set(op_out(op, 0)->dtype, out[0], at, (double)sum * scale);
    }
}

/* Element (m, k) of x, or with a norm x * scale * its weight, rounded. */
static double element_of(const Op *op, const void *const *in, int64_t at, int64_t k, double scale)
{
    double x = element_get(op_in(op, 0)->dtype, in[0], at);
    int norm = linear_norm(op);
    if (norm < 0)
        return x;
    float rounded[1] = {0};
    cvn_dtype dtype = linear_rows_dtype(op);
    element_set(dtype, rounded, 0, x * scale * element_get(op_in(op, norm)->dtype, in[norm], k));
    return element_get(dtype, rounded, 0);
}

/* The step in 8 bits of elements [k, k + columns) of row m. */
static float step_at(const Op *op, const void *const *in, int64_t m, int64_t k, int64_t columns,
                     double norm)
{
    const int64_t row = m * linear_weight(op, 0).k;
    double most = 0;
    for (int64_t i = k; i < k + columns; i++)
        most = reduce_max(most, fabs((double)(float)element_of(op, in, row + i, i, norm)));
    return step_of(most);
}

/* Row m of x, which its norm multiplies by so much, times row n of weight i, and its bias. */
static double product(const Op *op, const void *const *in, int i, int64_t m, double norm, int64_t n)
{
    LinearWeight w = linear_weight(op, i);
    int q = linear_operand(op, i), bias = linear_bias(op, i);
    const int64_t columns = linear_step_columns(&w);
    double sum = 0, weight[BLOCK_MOST];
    float step = 0;
    for (int64_t k = 0, from = 0, until = 0; k < w.k; k++) {
        if (k == until)
            until += weight_columns(&w, in[q], w.groups ? in[q + 1] : NULL, n, from = k, weight);
        if (op->attr.int8 && k % columns == 0)
            step = step_at(op, in, m, k, columns, norm);
        double x = element_of(op, in, m * w.k + k, k, norm);
        sum += (op->attr.int8 ? steps_of(x, step) * (double)step : x) * weight[k - from];
    }
    return bias < 0 ? sum : sum + element_get(op_in(op, bias)->dtype, in[bias], n);
}

void interp_linear(const Op *op, const void *const *in, void *const *out)
{
    int64_t rows = linear_rows(op);
    int residual = linear_residual(op);
    for (int i = 0; i < op->n_results; i++) {
        LinearWeight w = linear_weight(op, i);
        double norm = 1;
        for (int64_t at = 0; at < rows * w.n; at++) {
            const int64_t m = at / w.n, n = at % w.n;
            if (n == 0 && op->attr.norm)
                norm = interp_norm_scale(op_in(op, 0)->dtype, in[0], m * w.k, w.k, op->attr.eps);
            double y = product(op, in, i, m, norm, n);
            if (op->attr.flag)
                y = y / (1 + exp(-y)) * product(op, in, 1, m, norm, n);
            if (residual >= 0)
                y += element_get(CVN_F32, in[residual], at);
            element_set(op_out(op, i)->dtype, out[i], at, y);
        }
    }
}
