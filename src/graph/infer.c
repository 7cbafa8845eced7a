/*
 * Shape inference: what makes an operation legal and what types its results have. One rule per
 * operation, in a table; the rules for leaves and elementwise operations are here, the others in
 * infer_shape.c, infer_index.c and infer_composite.c. The builder and the verifier both call
 * infer_types, so a graph that was built is legal and one that was read from text is checked by the
 * same code.
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

int infer_wanted(const Op *op, const cvn_type *type, cvn_err *err)
{
    if (type[0].dtype == CVN_DTYPE_COUNT)
        return infer_fail(op, err, "needs a result type");
    return CVN_OK;
}

int infer_parameter(const Op *op, cvn_type *type, cvn_err *err)
{
    if (!op->attr.name || !op->attr.name[0])
        return infer_fail(op, err, "needs a name");
    return infer_wanted(op, type, err);
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

int infer_iota(const Op *op, cvn_type *type, cvn_err *err)
{
    TRY(infer_wanted(op, type, err));
    if (type[0].dtype == CVN_BOOL || type[0].dtype == CVN_I4)
        return infer_fail(op, err, "cannot count in %s", cvn_dtype_name(type[0].dtype));
    return infer_check_axis(op, op->attr.axis, type[0].rank, err);
}

/* Also of what only passes its operand on. */
static int infer_unary(const Op *op, cvn_type *type, cvn_err *err)
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

static int infer_binary(const Op *op, cvn_type *type, cvn_err *err)
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

/* The rule of a row of ops.def, by its class. */
#define LEAF(name) infer_##name
#define UNARY(name) infer_unary
#define BINARY(name) infer_binary
#define TERNARY(name) infer_##name
#define SHAPE(name) infer_##name
#define INDEX(name) infer_##name
#define REDUCE(name) infer_##name
#define CONTRACT(name) infer_##name
#define COLLECTIVE(name) infer_##name
#define CONTROL(name) infer_unary
#define COMPOSITE(name) infer_##name

static InferFn *const rules[OP_COUNT] = {
#define OP(kind, name, least, most, results, class, dtypes) [OP_##kind] = class(name),
#include "graph/ops.def"
#undef OP
};

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
    TRY(rules[op->kind](op, type, err));
    for (int i = 0; i < op->n_results; i++)
        TRY(check_type(op, &type[i], err));
    return CVN_OK;
}
