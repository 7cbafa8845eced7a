/* Shape inference of products with weights in panels; graph/panels.h says how those lie. */
#include "base/num.h"
#include "graph/infer.h"
#include "graph/linear.h"
#include "graph/panels.h"
#include "graph/strides.h"

#include <math.h>

cvn_type panel_type(cvn_dtype dtype, int64_t rows, int64_t k)
{
    dtype = panel_dtype(dtype) ? dtype : CVN_I8;
    int64_t unit = panel_unit(dtype), units = num_pieces(k, unit);
    if (dtype == CVN_I4)
        return CVN_TYPE(CVN_I4, num_pieces(rows, PANEL_ROWS), units, PANEL_ROWS, PANEL_QUAD, 2);
    return CVN_TYPE(dtype, num_pieces(rows, PANEL_ROWS), units, PANEL_ROWS, unit);
}

cvn_type panel_scale_type(cvn_dtype dtype, int64_t rows, int64_t groups)
{
    return CVN_TYPE(dtype, num_pieces(rows, PANEL_ROWS), groups, PANEL_ROWS);
}

int linear_results(const OpAttr *attr)
{
    return attr->flag ? 1 : (int)attr->group_size;
}

/* Operand q holds panels of blocks of a weight of n rows and k columns. */
static int check_blocks(const Op *op, int q, int64_t n, int64_t k, cvn_err *err)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    if (k % info->elements)
        return infer_fail(op, err, "%lld columns do not make whole blocks of %s, which have %d",
                          (long long)k, info->name, info->elements);
    cvn_type want = block_panel_type(op->attr.blocks, n, k);
    char text[TYPE_TEXT];
    if (!cvn_type_equal(op_in(op, q), &want))
        return infer_fail(op, err, "a weight of %lld rows and %lld columns in %s lies in %s",
                          (long long)n, (long long)k, info->name,
                          type_text(&want, text, sizeof text));
    return CVN_OK;
}

/* Operand q, and if it is quantized the scale behind it, hold a weight of n rows and k columns. */
static int check_panels(const Op *op, int q, int64_t n, int64_t k, cvn_err *err)
{
    const cvn_type *type = op_in(op, q);
    if (n < 1 || k < 1)
        return infer_fail(op, err, "a weight of %lld rows and %lld columns is empty", (long long)n,
                          (long long)k);
    if (op->attr.blocks)
        return check_blocks(op, q, n, k, err);
    cvn_type want = panel_type(type->dtype, n, k);
    if (!cvn_type_equal(type, &want)) {
        char text[TYPE_TEXT];
        return infer_fail(op, err, "a weight of %lld rows and %lld columns lies in %s",
                          (long long)n, (long long)k, type_text(&want, text, sizeof text));
    }
    if (!panel_scaled(type->dtype))
        return CVN_OK;
    const cvn_type *scale = op_in(op, q + 1);
    int64_t groups = scale->rank == 3 ? scale->dim[1] : 0;
    if ((scale->dtype != CVN_F32 && scale->dtype != CVN_BF16) || groups < 1 ||
        scale->dim[0] != want.dim[0] || scale->dim[2] != PANEL_ROWS)
        return infer_fail(op, err, "the scale must be f32 or bf16 [%lld, groups, %d]",
                          (long long)want.dim[0], PANEL_ROWS);
    int64_t unit = panel_unit(type->dtype);
    if ((groups > 1 || type->dtype == CVN_I4) && k % (groups * unit))
        return infer_fail(op, err, "%lld columns do not make %lld groups of whole units of %lld",
                          (long long)k, (long long)groups, (long long)unit);
    return CVN_OK;
}

/* The first `lead` dimensions of both are the same, and y has more. */
static bool begins_like(const cvn_type *y, const cvn_type *x, int lead)
{
    bool like = y->rank > lead;
    for (int d = 0; d < lead && like; d++)
        like = y->dim[d] == x->dim[d];
    return like;
}

/* An array of blocks, not in panels. */
static int infer_blocks(const Op *op, const cvn_type *type, cvn_err *err)
{
    const BlockInfo *info = &block_info[op->attr.blocks];
    int rows = op_in(op, 0)->rank - 2;
    if (rows < 0 || type->rank <= rows || type_span(type, rows, type->rank) % info->elements)
        return infer_fail(op, err,
                          "takes i8 [rows …, blocks, bytes] and makes [rows …, columns …]"
                          " of whole blocks of %s, which have %d",
                          info->name, info->elements);
    cvn_type want = block_type(op->attr.blocks, type, rows);
    char text[TYPE_TEXT];
    if (!cvn_type_equal(op_in(op, 0), &want))
        return infer_fail(op, err, "this in blocks of %s lies in %s", info->name,
                          type_text(&want, text, sizeof text));
    return CVN_OK;
}

/* A weight and its scale lie plainly: [rows …, columns …], scale [rows …, groups]. */
static int infer_scaled(const Op *op, const cvn_type *type, cvn_err *err)
{
    const cvn_type *weight = op_in(op, 0);
    cvn_type want = *weight;
    want.dtype = type->dtype;
    if (op->n_operands != 2)
        return infer_fail(op, err, "takes a scale");
    if (!cvn_type_equal(type, &want))
        return infer_fail(op, err, "the result has the shape of what is scaled");
    const cvn_type *scale = op_in(op, 1);
    int rows = scale->rank - 1;
    bool fits = rows >= 1 && panel_scaled(weight->dtype) &&
                (scale->dtype == CVN_F32 || scale->dtype == CVN_BF16) &&
                begins_like(weight, scale, rows) && scale->dim[rows] >= 1 &&
                type_span(weight, rows, weight->rank) % scale->dim[rows] == 0;
    return fits
               ? CVN_OK
               : infer_fail(op, err,
                            "takes i8 or i4 [rows …, columns …] with a scale, f32 or bf16 [rows …, "
                            "groups], whose groups divide the columns");
}

int infer_dequantize(const Op *op, cvn_type *type, cvn_err *err)
{
    if (type[0].dtype == CVN_DTYPE_COUNT || !dtype_is_float(type[0].dtype))
        return infer_fail(op, err, "needs a result type of floats");
    if (op->attr.blocks && op->n_operands != 1)
        return infer_fail(op, err, "takes blocks without a scale");
    if (op->attr.blocks && op->attr.axis == 0)
        return infer_blocks(op, &type[0], err);
    if (op->attr.axis == 0)
        return infer_scaled(op, type, err);
    int rows = (int)op->attr.axis;
    if (op->attr.axis < 1 || op->attr.axis >= type[0].rank)
        return infer_fail(op, err, "rows is %lld, but the result has %d dimensions",
                          (long long)op->attr.axis, type[0].rank);
    if (op->n_operands != 1 + (!op->attr.blocks && panel_scaled(op_in(op, 0)->dtype)))
        return infer_fail(op, err, "takes a scale for integers, and none for floats");
    return check_panels(op, 0, type_span(&type[0], 0, rows),
                        type_span(&type[0], rows, type[0].rank), err);
}

int infer_quantize_rows(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->rank < 1 || x->dim[x->rank - 1] < 1)
        return infer_fail(op, err, "x must be floats [..., d] with d at least 1");
    type[0] = type[1] = *x;
    type[0].dtype = CVN_I8;
    type[1].dtype = CVN_BF16;
    type[1].dim[x->rank - 1] = 1;
    return CVN_OK;
}

/* Whether operand q is a weight of i8 in panels with a scale in f32 for each row. */
static bool takes_rows_of_8_bits(const Op *op, int q)
{
    if (op_in(op, q)->dtype != CVN_I8) /* then there is no scale, perhaps */
        return false;
    const cvn_type *scale = op_in(op, q + 1);
    return scale->dtype == CVN_F32 && scale->rank == 3 && scale->dim[1] == 1;
}

/* The weight of a linear_int8 that is not in panels, for results y whose rows are from `lead` on. */
static int check_plain_int8(const Op *op, const cvn_type *y, int lead, int64_t k, cvn_err *err)
{
    const cvn_type *q = op_in(op, 2), *scale = op_in(op, 3);
    int rows = y->rank - lead;
    bool fits = q->dtype == CVN_I8 && q->rank > rows && scale->dtype == CVN_F32 &&
                scale->rank == rows + 1 && scale->dim[rows] == 1;
    for (int d = 0; d < rows && fits; d++)
        fits = y->dim[lead + d] == q->dim[d] && y->dim[lead + d] == scale->dim[d];
    if (!fits || type_span(q, rows, q->rank) != k)
        return infer_fail(
            op, err,
            "takes a weight of i8 [rows …, columns …] of %lld columns and scales of f32 "
            "[rows …, 1] for results [..., rows …]",
            (long long)k);
    return CVN_OK;
}

int infer_linear_int8(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *y = &type[0];
    int lead = x->rank - 1;
    if (x->dtype != CVN_I8 || lead < 0 || x->dim[lead] < 1 || x->dim[lead] > LINEAR_INT8_MOST_K)
        return infer_fail(op, err, "x must be i8 [..., k] with k from 1 to %d", LINEAR_INT8_MOST_K);
    cvn_type scales = *x;
    scales.dtype = CVN_BF16;
    scales.dim[lead] = 1;
    if (!cvn_type_equal(&scales, op_in(op, 1)))
        return infer_fail(op, err, "x's scales must be bf16 [..., 1]");
    if (y->dtype == CVN_DTYPE_COUNT || !dtype_is_float(y->dtype) || y->dtype == CVN_F64)
        return infer_fail(op, err, "needs a result type of f32, bf16 or f16");
    if (!begins_like(y, x, lead))
        return infer_fail(op, err, "the result begins with the dimensions of x but its last");
    if (op->attr.axis == 0)
        return check_plain_int8(op, y, lead, x->dim[lead], err);
    if (op->attr.axis != y->rank - lead)
        return infer_fail(op, err, "rows is %lld, but the result has %d dimensions behind x's",
                          (long long)op->attr.axis, y->rank - lead);
    if (!takes_rows_of_8_bits(op, 2))
        return infer_fail(op, err, "takes a weight of i8 with a scale in f32 for each row");
    return check_panels(op, 2, type_span(y, lead, y->rank), x->dim[lead], err);
}

/* A weight of k floats; one dimension of x is summed. */
static int check_norm(const Op *op, int64_t k, cvn_err *err)
{
    const cvn_type *weight = op_in(op, linear_norm(op));
    if (op->attr.axis != 1 || !dtype_is_float(weight->dtype) || weight->dtype == CVN_F64 ||
        weight->rank != 1 || weight->dim[0] != k)
        return infer_fail(
            op, err, "a norm is of one dimension of x, with a weight of f32, bf16 or f16 [%lld]",
            (long long)k);
    if (!(op->attr.eps >= 0) || isinf(op->attr.eps))
        return infer_fail(op, err, "eps must be a finite number, not negative");
    return CVN_OK;
}

/* Floats of the shape of weight i's rows, which are y's dimensions from lead on. */
static int check_bias(const Op *op, int i, const cvn_type *y, int lead, cvn_err *err)
{
    const cvn_type *bias = op_in(op, linear_bias(op, i));
    bool fits =
        dtype_is_float(bias->dtype) && bias->dtype != CVN_F64 && bias->rank == y->rank - lead;
    for (int d = lead; d < y->rank && fits; d++)
        fits = bias->dim[d - lead] == y->dim[d];
    if (!fits)
        return infer_fail(op, err,
                          "a bias must be f32, bf16 or f16 of the shape of its weight's rows");
    return CVN_OK;
}

int infer_linear(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    int64_t contract = op->attr.axis, weights = op->attr.group_size;
    if (weights < 1 || weights > LINEAR_WEIGHTS || (op->attr.flag && weights != 2))
        return infer_fail(op, err, "takes 1 to %d weights, and 2 with swiglu", LINEAR_WEIGHTS);
    int each = linear_each(op), biases = op->attr.bias ? (int)weights : 0;
    int residual = op->n_operands - linear_behind(op) - op->attr.norm - biases;
    int results = linear_results(&op->attr);
    if (residual < 0 || residual > 1 || (residual && results != 1))
        return infer_fail(
            op, err,
            "takes x, each of %lld weights, with its scale if it is quantized, with norm "
            "its weight, with bias one for each weight, and where there is one result "
            "a residual",
            (long long)weights);
    if (!dtype_is_float(x->dtype) || x->dtype == CVN_F64 || contract < 1 || contract > x->rank)
        return infer_fail(op, err, "x must be f32, bf16 or f16 of at least %lld dimensions",
                          (long long)contract);
    int lead = x->rank - (int)contract;
    int64_t k = type_span(x, lead, x->rank);
    if (op->attr.norm && check_norm(op, k, err))
        return CVN_ESHAPE;
    if (!op->attr.norm && op->attr.eps != 0)
        return infer_fail(op, err, "eps belongs to a norm");
    for (int i = 0; i < (int)weights; i++) {
        const cvn_type *y = &type[op->attr.flag ? 0 : i];
        if (y->dtype == CVN_DTYPE_COUNT || !dtype_is_float(y->dtype) || y->dtype == CVN_F64)
            return infer_fail(op, err, "needs result types of f32, bf16 or f16");
        if (!begins_like(y, x, lead))
            return infer_fail(op, err, "results begin with the %d dimensions of x that are kept",
                              lead);
        if (!op->attr.blocks && each != 1 + panel_scaled(op_in(op, 1 + each * i)->dtype))
            return infer_fail(op, err, "takes weights that are all quantized, or none");
        if (op->attr.int8 && !op->attr.blocks &&
            (!takes_rows_of_8_bits(op, 1 + each * i) || k > LINEAR_INT8_MOST_K))
            return infer_fail(op, err,
                              "with int8 takes weights in blocks, or of i8 of at most %d columns "
                              "with a scale in f32 for each row",
                              LINEAR_INT8_MOST_K);
        if (check_panels(op, 1 + each * i, type_span(y, lead, y->rank), k, err) ||
            (op->attr.bias && check_bias(op, i, y, lead, err)))
            return CVN_ESHAPE;
    }
    if (residual) {
        cvn_type like = type[0];
        like.dtype = CVN_F32;
        if (!cvn_type_equal(&like, op_in(op, op->n_operands - 1)))
            return infer_fail(op, err, "the residual must be f32 of the result's shape");
    }
    return CVN_OK;
}

/* ---- reading what was checked ---- */

/* How many of x's dimensions are summed. */
static int summed(const Op *op)
{
    return op->kind == OP_LINEAR_INT8 ? 1 : (int)op->attr.axis;
}

/* Of operand q, and of the scale behind it. */
static LinearWeight weight_of(const Op *op, int q, int64_t n, int64_t k)
{
    const cvn_type *type = op_in(op, q);
    LinearWeight w = {.dtype = type->dtype,
                      .scale_dtype = CVN_F32,
                      .n = n,
                      .k = k,
                      .blocks = op->kind == OP_LINEAR_INT8 ? BLOCK_NONE : op->attr.blocks};
    bool plain = op->kind != OP_LINEAR && op->attr.axis == 0;
    if (!plain) {
        w.panels = type->dim[0];
        w.units = type->dim[1];
        w.panel_bytes = cvn_type_bytes(type) / (size_t)w.panels;
    }
    if (panel_scaled(type->dtype) && !w.blocks) {
        const cvn_type *scale = op_in(op, q + 1);
        w.scale_dtype = scale->dtype;
        w.groups = scale->dim[plain ? scale->rank - 1 : 1];
    }
    return w;
}

LinearWeight linear_weight(const Op *op, int i)
{
    const cvn_type *x = op_in(op, 0), *y = &op->result[op->attr.flag ? 0 : i]->type;
    int lead = x->rank - summed(op);
    return weight_of(op, linear_operand(op, i), type_span(y, lead, y->rank),
                     type_span(x, lead, x->rank));
}

LinearWeight dequantize_weight(const Op *op)
{
    const cvn_type *y = &op->result[0]->type;
    int rows = op->attr.axis ? (int)op->attr.axis : op_in(op, 1)->rank - 1;
    return weight_of(op, 0, type_span(y, 0, rows), type_span(y, rows, y->rank));
}

int64_t linear_rows(const Op *op)
{
    const cvn_type *x = op_in(op, 0);
    return type_span(x, 0, x->rank - summed(op));
}
