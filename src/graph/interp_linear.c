/* What weights in panels and products with them mean, element by element. */
#include "graph/interp_impl.h"
#include "graph/linear.h"
#include "graph/panels.h"
#include "graph/reduce.h"

#include <math.h>

/* Element (row, column) of a weight. */
static double weight_get(const LinearWeight *w, const void *q, const void *scale, int64_t row,
                         int64_t column)
{
    double value = element_get(w->dtype, q, panel_index(w->dtype, w->units, row, column));
    if (!w->groups)
        return value;
    int64_t group = column / ((w->units * panel_unit(w->dtype)) / w->groups);
    int64_t at = (row / PANEL_ROWS * w->groups + group) * PANEL_ROWS + row % PANEL_ROWS;
    return value * element_get(w->scale_dtype, scale, at);
}

void interp_dequantize(const Op *op, const void *const *in, void *const *out)
{
    LinearWeight w = dequantize_weight(op);
    for (int64_t row = 0; row < w.n; row++)
        for (int64_t column = 0; column < w.k; column++)
            element_set(interp_out(op, 0)->dtype, out[0], row * w.k + column,
                        weight_get(&w, in[0], w.groups ? in[1] : NULL, row, column));
}

/* In f32, like the kernels: what lies between two steps must round to the same one everywhere. */
void interp_quantize_rows(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = interp_in(op, 0);
    int64_t d = x->dim[x->rank - 1], rows = cvn_type_elements(interp_out(op, 1));
    for (int64_t row = 0; row < rows; row++) {
        double most = 0;
        for (int64_t i = row * d; i < (row + 1) * d; i++)
            most = reduce_max(most, fabs((double)(float)element_get(x->dtype, in[0], i)));
        element_set(CVN_BF16, out[1], row, (double)((float)most / 127.0f));
        float scale = (float)element_get(CVN_BF16, out[1], row);
        for (int64_t i = row * d; i < (row + 1) * d; i++) {
            float steps = 0;
            if (isfinite(scale) && scale > 0)
                steps = rintf((float)element_get(x->dtype, in[0], i) / scale);
            element_set(CVN_I8, out[0], i, fmin(fmax((double)steps, -127), 127));
        }
    }
}

void interp_linear_int8(const Op *op, const void *const *in, void *const *out)
{
    LinearWeight w = linear_int8_weight(op);
    const int8_t *x = in[0];
    int64_t rows = cvn_type_elements(interp_in(op, 1));
    for (int64_t at = 0; at < rows * w.n; at++) {
        int64_t m = at / w.n, n = at % w.n, sum = 0;
        for (int64_t k = 0; k < w.k; k++)
            sum += x[m * w.k + k] *
                   (int64_t)element_get(CVN_I8, in[2], panel_index(CVN_I8, w.units, n, k));
        double scale = element_get(CVN_F32, in[3], n) * element_get(CVN_BF16, in[1], m);
        element_set(interp_out(op, 0)->dtype, out[0], at, (double)sum * scale);
    }
}

/* What the norm multiplies the elements of row m of x by, besides its weight. */
static double norm_scale(const Op *op, const void *const *in, int64_t m, int64_t k)
{
    double sum = 0;
    for (int64_t i = m * k; i < (m + 1) * k; i++) {
        double e = element_get(interp_in(op, 0)->dtype, in[0], i);
        sum += e * e;
    }
    return 1 / sqrt(sum / (double)k + op->attr.eps);
}

/* Element (m, k) of what is multiplied: x, or with a norm x * scale * its weight, rounded. */
static double row_get(const Op *op, const void *const *in, int64_t at, int64_t k, double scale)
{
    double x = element_get(interp_in(op, 0)->dtype, in[0], at);
    int norm = linear_norm(op);
    if (norm < 0)
        return x;
    float rounded[1] = {0};
    cvn_dtype dtype = linear_rows_dtype(op);
    element_set(dtype, rounded, 0,
                x * scale * element_get(interp_in(op, norm)->dtype, in[norm], k));
    return element_get(dtype, rounded, 0);
}

/* Row m of x times row n of weight i, and its bias. */
static double product(const Op *op, const void *const *in, int i, int64_t m, double scale,
                      int64_t n)
{
    LinearWeight w = linear_weight(op, i);
    int q = 1 + linear_each(op) * i, bias = linear_bias(op, i);
    double sum = 0;
    for (int64_t k = 0; k < w.k; k++)
        sum += row_get(op, in, m * w.k + k, k, scale) *
               weight_get(&w, in[q], w.groups ? in[q + 1] : NULL, n, k);
    return bias < 0 ? sum : sum + element_get(interp_in(op, bias)->dtype, in[bias], n);
}

void interp_linear(const Op *op, const void *const *in, void *const *out)
{
    int64_t rows = linear_rows(op);
    int residual = linear_residual(op);
    for (int i = 0; i < op->n_results; i++) {
        LinearWeight w = linear_weight(op, i);
        double scale = 1;
        for (int64_t at = 0; at < rows * w.n; at++) {
            if (op->attr.norm && at % w.n == 0)
                scale = norm_scale(op, in, at / w.n, w.k);
            double y = product(op, in, i, at / w.n, scale, at % w.n);
            if (op->attr.flag)
                y = y / (1 + exp(-y)) * product(op, in, 1, at / w.n, scale, at % w.n);
            if (residual >= 0)
                y += element_get(CVN_F32, in[residual], at);
            element_set(interp_out(op, i)->dtype, out[i], at, y);
        }
    }
}
