/* Elementwise operations: each result element is a function of one element of each operand. */
#include "graph/interp/interp_impl.h"
#include "graph/scalar.h"

void interp_unary(const Op *op, const void *const *in, void *const *out)
{
    cvn_dtype dtype = op_in(op, 0)->dtype, to = op_out(op, 0)->dtype;
    for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++)
        if (dtype_is_float(dtype))
            element_set(to, out[0], i, scalar_unary(op->kind, element_get(dtype, in[0], i)));
        else
            interp_set_int(dtype, out[0], i,
                           scalar_unary_int(op->kind, interp_get_int(dtype, in[0], i)));
}

void interp_binary(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        if (dtype_is_float(dtype)) {
            double a = element_get(dtype, in[0], i), b = element_get(dtype, in[1], i);
            element_set(dtype, out[0], i, scalar_binary(op->kind, a, b));
        } else {
            int64_t a = interp_get_int(dtype, in[0], i), b = interp_get_int(dtype, in[1], i);
            interp_set_int(dtype, out[0], i, scalar_binary_int(op->kind, a, b));
        }
    }
}

/* Logical on bool, bitwise on integers. */
void interp_not(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        int64_t x = interp_get_int(type->dtype, in[0], i);
        interp_set_int(type->dtype, out[0], i, type->dtype == CVN_BOOL ? !x : ~x);
    }
}

/* Float to integer truncates and saturates, NaN gives 0; integer to integer keeps the low bits;
   anything to bool is x != 0; anything to float is rounded. */
void interp_convert(const Op *op, const void *const *in, void *const *out)
{
    cvn_dtype from = op_in(op, 0)->dtype, to = op_out(op, 0)->dtype;
    bool wraps = !dtype_is_float(from) && !dtype_is_float(to) && to != CVN_BOOL;
    for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++) {
        if (from == to)
            interp_move(to, out[0], i, in[0], i);
        else if (wraps)
            interp_set_int(to, out[0], i, interp_get_int(from, in[0], i));
        else
            element_set(to, out[0], i, element_get(from, in[0], i));
    }
}

/* On the bits of elements of `width` bits. Shift amounts are read as unsigned, so a negative one
   is too large; an amount of the width or more shifts everything out. */
#define BITS(name, y)                                                                              \
    void interp_##name(const Op *op, const void *const *in, void *const *out)                      \
    {                                                                                              \
        cvn_dtype dtype = op_out(op, 0)->dtype;                                                    \
        unsigned width = (unsigned)cvn_dtype_bits(dtype);                                          \
        uint64_t mask = (UINT64_C(1) << width) - 1;                                                \
        for (int64_t i = 0, n = cvn_type_elements(op_out(op, 0)); i < n; i++) {                    \
            uint64_t a = (uint64_t)interp_get_int(dtype, in[0], i) & mask;                         \
            uint64_t b = (uint64_t)interp_get_int(dtype, in[1], i) & mask;                         \
            interp_set_int(dtype, out[0], i, (int64_t)(y));                                        \
        }                                                                                          \
    }
BITS(and, (a & b))
BITS(or, a | b)
BITS(xor, a ^ b)
BITS(shift_left, b < width ? a << b : 0)
BITS(shift_right_logical, b < width ? a >> b : 0)

void interp_compare(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_in(op, 0);
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        ((uint8_t *)out[0])[i] =
            scalar_compare(op->attr.compare, element_get(type->dtype, in[0], i),
                           element_get(type->dtype, in[1], i));
}

/* pred ? a : b; a scalar pred holds for all elements. */
void interp_select(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    bool one = op_in(op, 0)->rank == 0;
    const uint8_t *pred = in[0];
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        interp_move(type->dtype, out[0], i, pred[one ? 0 : i] ? in[1] : in[2], i);
}

/* min(max(x, low), high): high where low > high; scalar bounds hold for all elements. */
void interp_clamp(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *type = op_out(op, 0);
    cvn_dtype dtype = type->dtype;
    bool one_low = op_in(op, 0)->rank == 0, one_high = op_in(op, 2)->rank == 0;
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double low = element_get(dtype, in[0], one_low ? 0 : i);
        double high = element_get(dtype, in[2], one_high ? 0 : i);
        double x = element_get(dtype, in[1], i);
        element_set(dtype, out[0], i, reduce_min(reduce_max(x, low), high));
    }
}
