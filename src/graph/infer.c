/*
 * Shape inference: what makes an operation legal and what types its results have. One function per operation, infer_NAME
 * (ops/), by op_record. The builder and the verifier both call infer_types, so a graph that was built is legal and one that
 * was read from text is checked by the same code.
 */
#include "graph/infer.h"

#include <stdarg.h>
#include <stdio.h>

int infer_fail(const Op *op, cvn_err *err, const char *format, ...)
{
    char message[512], types[256];
    size_t n = 0;
    types[0] = '\0';
    for (int i = 0; i < op->n_operands && i < 4 && n < sizeof types; i++) {
        char type[TYPE_TEXT];
        int wrote = snprintf(types + n, sizeof types - n, "%s%s", i ? ", " : "",
                             type_text(op_in(op, i), type, sizeof type));
        n += wrote > 0 ? (size_t)wrote : 0;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return err_set(err, CVN_ESHAPE, "%s(%s%s): %s", op_info[op->kind].name, types,
                   op->n_operands > 4 ? ", ..." : "", message);
}

int infer_check_dims(const Op *op, const Ints *dims, int rank, const char *what, cvn_err *err)
{
    unsigned seen = 0;
    for (int i = 0; i < dims->n; i++) {
        int64_t d = dims->v[i];
        if (d < 0 || d >= rank)
            return infer_fail(op, err, "%s has dimension %lld, outside 0 to %d", what, (long long)d,
                              rank - 1);
        if (seen & 1u << d)
            return infer_fail(op, err, "%s names dimension %lld twice", what, (long long)d);
        seen |= 1u << d;
    }
    return CVN_OK;
}

int infer_check_count(const Op *op, const Ints *list, int n, const char *what, cvn_err *err)
{
    if (list->n != n)
        return infer_fail(op, err, "%s has %d entries, expected %d", what, list->n, n);
    return CVN_OK;
}

int infer_check_axis(const Op *op, int64_t axis, int rank, cvn_err *err)
{
    if (axis < 0 || axis >= rank)
        return infer_fail(op, err, "axis %lld is outside 0 to %d", (long long)axis, rank - 1);
    return CVN_OK;
}

int infer_check_index(const Op *op, int i, cvn_err *err)
{
    cvn_dtype dtype = op_in(op, i)->dtype;
    if (dtype != CVN_I32 && dtype != CVN_U32)
        return infer_fail(op, err, "operand %d holds indices and must be i32 or u32", i);
    return CVN_OK;
}

int infer_check_gradient(const Op *op, int i, int as, const char *name, cvn_err *err)
{
    cvn_type shape = *op_in(op, as);
    shape.dtype = op_in(op, i)->dtype;
    if (!dtype_is_float(shape.dtype) || !cvn_type_equal(&shape, op_in(op, i)))
        return infer_fail(op, err, "%s must be floats of the shape of operand %d", name, as);
    return CVN_OK;
}

int infer_wanted(const Op *op, const cvn_type *type, cvn_err *err)
{
    if (type[0].dtype == CVN_DTYPE_COUNT)
        return infer_fail(op, err, "needs a result type");
    return CVN_OK;
}

static int check_type(const Op *op, const cvn_type *type, cvn_err *err)
{
    const char *fault = type_fault(type);
    return fault ? infer_fail(op, err, "the result %s", fault) : CVN_OK;
}

static int check_dtypes(const Op *op, cvn_err *err)
{
    OpDTypes allowed = op_info[op->kind].dtypes;
    for (int i = 0; i < op->n_operands; i++) {
        cvn_dtype dtype = op_in(op, i)->dtype;
        bool is_float = dtype_is_float(dtype);
        if (dtype == CVN_I4 && op->kind != OP_CONVERT && allowed != DTYPES_A)
            return infer_fail(op, err, "i4 is for storage; convert it first");
        if (allowed == DTYPES_F && !is_float)
            return infer_fail(op, err, "operand %d must be of floats", i);
        if (allowed == DTYPES_I && is_float)
            return infer_fail(op, err, "operand %d must be of integers or bools", i);
        if (allowed == DTYPES_N && dtype == CVN_BOOL)
            return infer_fail(op, err, "operand %d must be of numbers", i);
    }
    return CVN_OK;
}

int infer_types(const Op *op, cvn_type *type, cvn_err *err)
{
    if (op->kind >= OP_COUNT)
        return err_set(err, CVN_ESHAPE, "unknown operation %d", (int)op->kind);
    for (int i = 0; i < op->n_results; i++)
        if (type[i].dtype != CVN_DTYPE_COUNT && check_type(op, &type[i], err))
            return CVN_ESHAPE;
    TRY(check_dtypes(op, err));
    TRY(op_record[op->kind].infer(op, type, err));
    for (int i = 0; i < op->n_results; i++)
        TRY(check_type(op, &type[i], err));
    return CVN_OK;
}
