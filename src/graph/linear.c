/* What is read of products with weights in panels, and of these weights, whose types ops/quantized.c has checked. */
#include "graph/linear.h"

#include "base/num.h"
#include "graph/panels.h"
#include "graph/strides.h"

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

/* How many of x's dimensions are summed. */
static int summed(const Op *op)
{
    return op->kind == OP_LINEAR ? (int)op->attr.axis : 1;
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
    bool plain = op->kind != OP_LINEAR && op->kind != OP_GROUPED_LINEAR && op->attr.axis == 0;
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
    const cvn_type *x = op_in(op, 0), *y = &op->result[i < op->n_results ? i : 0]->type;
    int lead = x->rank - summed(op);
    if (op->kind != OP_GROUPED_LINEAR)
        return weight_of(op, linear_operand(op, i), type_span(y, lead, y->rank),
                         type_span(x, lead, x->rank));
    LinearWeight w = weight_of(op, linear_operand(op, i), y->dim[y->rank - 1], x->dim[lead]);
    w.panels = w.n / PANEL_ROWS;
    return w;
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
    return op->kind == OP_GROUPED_LINEAR ? cvn_type_elements(op_in(op, linear_behind(op)))
                                         : type_span(x, 0, x->rank - summed(op));
}
