/*
 * The table of the interpreter, one function per operation, and the leaves.
 *
 * Elementwise functions are in element.c, those that move elements in shape.c and
 * index.c, sums in reduce.c, composites in composite.c and linear.c, operations
 * between devices in collective.c, whole graphs in run.c.
 */
#include "graph/interp/interp_impl.h"

#include <assert.h>

void interp_parameter(const Op *op, const void *const *in, void *const *out)
{
    (void)op;
    (void)in;
    (void)out;
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

/* A collective where device 0 is alone. */
static void interp_alone(const Op *op, const void *const *in, void *const *out)
{
    interp_collective(op, 1, in, out);
}

/* The function of a row of ops.def, by its class and, where that is one or two numbers, its dtypes. */
#define F(shared, name) shared
#define N(shared, name) shared
#define I(shared, name) interp_##name
#define A(shared, name) interp_##name
#define LEAF(name, dtypes) interp_##name
#define UNARY(name, dtypes) dtypes(interp_unary, name)
#define BINARY(name, dtypes) dtypes(interp_binary, name)
#define TERNARY(name, dtypes) interp_##name
#define SHAPE(name, dtypes) interp_##name
#define INDEX(name, dtypes) interp_##name
#define REDUCE(name, dtypes) interp_##name
#define CONTRACT(name, dtypes) interp_##name
#define COLLECTIVE(name, dtypes) interp_alone
#define CONTROL(name, dtypes) interp_copy
#define COMPOSITE(name, dtypes) interp_composite

static InterpFn *const functions[OP_COUNT] = {
#define OP(kind, name, least, most, results, class, dtypes) [OP_##kind] = class(name, dtypes),
#include "graph/ops.def"
#undef OP
};

void interp_op(const Op *op, const void *const *in, void *const *out)
{
    assert(op->kind < OP_COUNT);
    functions[op->kind](op, in, out);
    /* The nibble after an odd number of i4 is zero. */
    for (int i = 0; i < op->n_results && op->kind != OP_PARAMETER; i++) {
        const cvn_type *type = op_out(op, i);
        int64_t n = cvn_type_elements(type);
        if (type->dtype == CVN_I4 && n % 2)
            element_set(CVN_I4, out[i], n, 0);
    }
}
