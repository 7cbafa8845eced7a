/* Operations that move elements to where attributes say; nothing is computed. */
#include "graph/interp_impl.h"

/* The same elements in the same order: reshape and optimization_barrier. */
void interp_copy(const Op *op, const void *const *in, void *const *out)
{
    size_t bytes = cvn_type_bytes(interp_out(op, 0));
    if (bytes)
        memcpy(out[0], in[0], bytes);
}

/* y[at] = x[at of the dimensions that x has], 0 where x's size is 1. */
void interp_broadcast_in_dim(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = interp_in(op, 0), *y = interp_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    interp_strides(x, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, interp_next(y->rank, y->dim, at)) {
        int64_t from = 0;
        for (int d = 0; d < x->rank; d++)
            from += x->dim[d] == 1 ? 0 : at[op->attr.dims.v[d]] * stride[d];
        interp_move(y->dtype, out[0], i, in[0], from);
    }
}

/* y[at] = x[p] with p[permutation[d]] = at[d]. */
void interp_transpose(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = interp_in(op, 0), *y = interp_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    interp_strides(x, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, interp_next(y->rank, y->dim, at)) {
        int64_t from = 0;
        for (int d = 0; d < y->rank; d++)
            from += at[d] * stride[op->attr.dims.v[d]];
        interp_move(y->dtype, out[0], i, in[0], from);
    }
}

/* y[at] = x[start + at * stride]. */
void interp_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = interp_in(op, 0), *y = interp_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    interp_strides(x, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, interp_next(y->rank, y->dim, at)) {
        int64_t from = 0;
        for (int d = 0; d < y->rank; d++)
            from += (op->attr.start.v[d] + at[d] * op->attr.stride.v[d]) * stride[d];
        interp_move(y->dtype, out[0], i, in[0], from);
    }
}

void interp_concatenate(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *y = interp_out(op, 0);
    Lines to = interp_lines(y, op->attr.axis);
    int64_t begin = 0; /* where operand k starts along the axis */
    for (int k = 0; k < op->n_operands; k++) {
        Lines from = interp_lines(interp_in(op, k), op->attr.axis);
        for (int64_t o = 0; o < from.outer; o++)
            for (int64_t i = 0; i < from.n; i++)
                for (int64_t r = 0; r < from.inner; r++)
                    interp_move(y->dtype, out[0], (o * to.n + begin + i) * to.inner + r, in[k],
                                (o * from.n + i) * from.inner + r);
        begin += from.n;
    }
}

/* y[low + at * (interior + 1)] = x[at] where that is in bounds, and the value elsewhere. */
void interp_pad(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = interp_in(op, 0), *y = interp_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    interp_strides(y, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++)
        interp_move(y->dtype, out[0], i, in[1], 0);
    for (int64_t i = 0, n = cvn_type_elements(x); i < n; i++, interp_next(x->rank, x->dim, at)) {
        int64_t to = 0;
        bool inside = true;
        for (int d = 0; d < x->rank; d++) {
            int64_t place = op->attr.start.v[d] + at[d] * (op->attr.stride.v[d] + 1);
            inside = inside && place >= 0 && place < y->dim[d];
            to += inside ? place * stride[d] : 0;
        }
        if (inside)
            interp_move(y->dtype, out[0], to, in[0], i);
    }
}

void interp_reverse(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *y = interp_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    interp_strides(y, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, interp_next(y->rank, y->dim, at)) {
        int64_t from = 0;
        for (int d = 0; d < y->rank; d++)
            from += (ints_contain(&op->attr.dims, d) ? y->dim[d] - 1 - at[d] : at[d]) * stride[d];
        interp_move(y->dtype, out[0], i, in[0], from);
    }
}
