/*
 * The table of the interpreter, one function per operation, and the leaves.
 *
 * Elementwise functions are in interp_element.c, those that move elements in interp_shape.c and
 * interp_index.c, sums in interp_reduce.c, composites in interp_composite.c, operations between
 * devices in interp_collective.c, whole graphs in interp_run.c.
 */
#include "graph/interp_impl.h"

#include <assert.h>

static void interp_parameter(const Op *op, const void *const *in, void *const *out)
{
    (void)op;
    (void)in;
    (void)out;
}

static void interp_constant(const Op *op, const void *const *in, void *const *out)
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

static void interp_iota(const Op *op, const void *const *in, void *const *out)
{
    (void)in;
    const cvn_type *type = op_out(op, 0);
    Lines lines = interp_lines(type, op->attr.axis);
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

static InterpFn *const interp_table[OP_COUNT] = {
    [OP_PARAMETER] = interp_parameter,
    [OP_CONSTANT] = interp_constant,
    [OP_IOTA] = interp_iota,
    [OP_NEGATE] = interp_negate,
    [OP_ABS] = interp_abs,
    [OP_SIGN] = interp_sign,
    [OP_NOT] = interp_not,
    [OP_IS_FINITE] = interp_is_finite,
    [OP_CONVERT] = interp_convert,
    [OP_AND] = interp_bitwise,
    [OP_OR] = interp_bitwise,
    [OP_XOR] = interp_bitwise,
    [OP_SHIFT_LEFT] = interp_bitwise,
    [OP_SHIFT_RIGHT_LOGICAL] = interp_bitwise,
    [OP_COMPARE] = interp_compare,
    [OP_SELECT] = interp_select,
    [OP_CLAMP] = interp_clamp_op,
    [OP_BROADCAST_IN_DIM] = interp_broadcast_in_dim,
    [OP_RESHAPE] = interp_copy,
    [OP_TRANSPOSE] = interp_transpose,
    [OP_SLICE] = interp_slice,
    [OP_CONCATENATE] = interp_concatenate,
    [OP_PAD] = interp_pad,
    [OP_REVERSE] = interp_reverse,
    [OP_DYNAMIC_SLICE] = interp_dynamic_slice,
    [OP_DYNAMIC_UPDATE_SLICE] = interp_dynamic_update_slice,
    [OP_GATHER] = interp_gather,
    [OP_SCATTER] = interp_scatter,
    [OP_SORT] = interp_sort,
    [OP_REDUCE] = interp_reduce,
    [OP_CUMSUM] = interp_cumsum,
    [OP_DOT_GENERAL] = interp_dot_general,
    [OP_ALL_REDUCE] = interp_alone,
    [OP_ALL_GATHER] = interp_alone,
    [OP_REDUCE_SCATTER] = interp_alone,
    [OP_ALL_TO_ALL] = interp_alone,
    [OP_COLLECTIVE_PERMUTE] = interp_alone,
    [OP_PARTITION_ID] = interp_alone,
    [OP_OPTIMIZATION_BARRIER] = interp_copy,
    [OP_RMS_NORM] = interp_rms_norm,
    [OP_ROPE] = interp_rope,
    [OP_ATTENTION] = interp_attention,
    [OP_CACHE_UPDATE] = interp_cache_update,
    [OP_SOFTMAX_CROSS_ENTROPY] = interp_softmax_cross_entropy,
    [OP_ARGMAX] = interp_argmax,
    [OP_RANDOM_BITS] = interp_random_bits,
    [OP_KEEP_LIKELIEST] = interp_keep_likeliest,
    [OP_CATEGORICAL] = interp_categorical,
    [OP_DEQUANTIZE] = interp_dequantize,
    [OP_QUANTIZE_ROWS] = interp_quantize_rows,
    [OP_LINEAR_INT8] = interp_linear_int8,
    [OP_LINEAR] = interp_linear,
    [OP_RMS_NORM_BACKWARD] = interp_rms_norm_backward,
    [OP_ATTENTION_BACKWARD] = interp_attention_backward,
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = interp_softmax_cross_entropy_backward,
};
_Static_assert(sizeof interp_table / sizeof *interp_table == OP_COUNT,
               "a function for the last operation");

/* Elementwise operations that are a function of floats, or of numbers, need no row. */
static InterpFn *function_of(OpKind kind)
{
    OpClass class_ = op_info[kind].class_;
    return interp_table[kind]       ? interp_table[kind]
           : class_ == CLASS_UNARY  ? interp_unary_float
           : class_ == CLASS_BINARY ? interp_arithmetic
                                    : NULL;
}

void interp_op(const Op *op, const void *const *in, void *const *out)
{
    assert(op->kind < OP_COUNT);
    function_of(op->kind)(op, in, out);
    /* The nibble after an odd number of i4 is zero. */
    for (int i = 0; i < op->n_results && op->kind != OP_PARAMETER; i++) {
        const cvn_type *type = op_out(op, i);
        int64_t n = cvn_type_elements(type);
        if (type->dtype == CVN_I4 && n % 2)
            element_set(CVN_I4, out[i], n, 0);
    }
}
