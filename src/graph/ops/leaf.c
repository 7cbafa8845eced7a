/* Operations without operands: parameters, constants, and counting. */
#include "graph/ops/ops.h"

/* ---- parameter ---- */

cvn_value *cvn_parameter(cvn_graph *g, const char *name, cvn_type type)
{
    OpAttr attr = {.name = graph_string(g, name ? name : "")};
    cvn_value *v = graph_add(g, OP_PARAMETER, &attr, 0, NULL, &type);
    if (v != g->poison)
        v->name = attr.name;
    return v;
}

int infer_parameter(const Op *op, cvn_type *type, cvn_err *err)
{
    if (!op->attr.name || !op->attr.name[0])
        return infer_fail(op, err, "needs a name");
    return infer_wanted(op, type, err);
}

void interp_parameter(const Op *op, const void *const *in, void *const *out)
{
    (void)op;
    (void)in;
    (void)out;
}

/* Parameters are arguments of the function. */
void hlo_parameter(Hlo *h, const Op *op)
{
    (void)h;
    (void)op;
}

/* ---- constant ---- */

cvn_value *cvn_splat(cvn_graph *g, cvn_type type, double value)
{
    if ((unsigned)type.dtype >= CVN_DTYPE_COUNT) {
        graph_fail(g, CVN_EINVAL, "a constant needs an element type");
        return g->poison;
    }
    size_t bytes = cvn_dtype_bytes(type.dtype, 1);
    void *data = graph_alloc(g, bytes);
    if (!data)
        return g->poison;
    element_set(type.dtype, data, 0, value);
    OpAttr attr = {.literal = {true, bytes, data}};
    return graph_add(g, OP_CONSTANT, &attr, 0, NULL, &type);
}

cvn_value *cvn_constant(cvn_graph *g, cvn_type type, const void *data)
{
    const char *fault = type_fault(&type);
    if (fault) {
        graph_fail(g, CVN_ESHAPE, "constant: its type %s", fault);
        return g->poison;
    }
    size_t bytes = cvn_type_bytes(&type);
    void *copy = graph_alloc(g, bytes);
    if (!copy)
        return g->poison;
    if (bytes)
        memcpy(copy, data, bytes);
    OpAttr attr = {.literal = {false, bytes, copy}};
    return graph_add(g, OP_CONSTANT, &attr, 0, NULL, &type);
}

int infer_constant(const Op *op, cvn_type *type, cvn_err *err)
{
    TRY(infer_wanted(op, type, err));
    const Literal *literal = &op->attr.literal;
    if (!literal->data)
        return infer_fail(op, err, "has no value");
    size_t bytes = literal->splat ? cvn_dtype_bytes(type->dtype, 1) : cvn_type_bytes(type);
    if (literal->bytes != bytes)
        return infer_fail(op, err, "has %zu bytes of data, its type needs %zu", literal->bytes,
                          bytes);
    return CVN_OK;
}

void interp_constant(const Op *op, const void *const *in, void *const *out)
{
    (void)in;
    const Literal *literal = &op->attr.literal;
    const cvn_type *type = op_out(op, 0);
    if (!literal->splat) {
        if (literal->bytes)
            memcpy(out[0], literal->data, literal->bytes);
        return;
    }
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        interp_move(type->dtype, out[0], i, literal->data, 0);
}

void hlo_constant(Hlo *h, const Op *op)
{
    const Literal *literal = &op->attr.literal;
    const char *dense = hlo_dense(h, &op->result[0]->type, literal->data, literal->splat);
    hlo_op(h, op, "constant", NULL, arena_printf(&h->arena, "value = %s", dense));
}

/* ---- iota ---- */

cvn_value *cvn_iota(cvn_graph *g, cvn_type type, int axis)
{
    return graph_add(g, OP_IOTA, &(OpAttr){.axis = axis}, 0, NULL, &type);
}

int infer_iota(const Op *op, cvn_type *type, cvn_err *err)
{
    TRY(infer_wanted(op, type, err));
    if (type[0].dtype == CVN_BOOL || type[0].dtype == CVN_I4)
        return infer_fail(op, err, "cannot count in %s", cvn_dtype_name(type[0].dtype));
    return infer_check_axis(op, op->attr.axis, type[0].rank, err);
}

void interp_iota(const Op *op, const void *const *in, void *const *out)
{
    (void)in;
    const cvn_type *type = op_out(op, 0);
    Lines lines = type_lines(type, op->attr.axis);
    for (int64_t k = 0, n = cvn_type_elements(type); k < n; k++) {
        int64_t i = k / lines.inner % lines.n;
        if (dtype_is_float(type->dtype))
            element_set(type->dtype, out[0], k, (double)i);
        else
            interp_set_int(type->dtype, out[0], k, i);
    }
}
