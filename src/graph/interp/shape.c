/* Operations that move elements to where attributes say; nothing is computed. */
#include "graph/interp/interp_impl.h"

/* The same elements in the same order: reshape and optimization_barrier. */
void interp_copy(const Op *op, const void *const *in, void *const *out)
{
    size_t bytes = cvn_type_bytes(op_out(op, 0));
    if (bytes)
        memcpy(out[0], in[0], bytes);
}

void interp_reshape(const Op *op, const void *const *in, void *const *out)
{
    interp_copy(op, in, out);
}

/* What an operation reads whose result is a regular pattern of elements of x: y[at] is the element of x at
   first + at[0] * step[0] + at[1] * step[1] + … */
typedef struct Pattern {
    int64_t first, step[CVN_MAX_RANK];
} Pattern;

static void read_pattern(const Op *op, const void *const *in, void *const *out, const Pattern *p)
{
    const cvn_type *y = op_out(op, 0);
    int64_t at[CVN_MAX_RANK] = {0};
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at)) {
        int64_t from = p->first;
        for (int d = 0; d < y->rank; d++)
            from += at[d] * p->step[d];
        interp_move(y->dtype, out[0], i, in[0], from);
    }
}

/* y[at] = x[at of the dimensions that x has], 0 where x's size is 1. */
void interp_broadcast_in_dim(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    int64_t stride[CVN_MAX_RANK];
    Pattern p = {0};
    type_strides(x, stride);
    for (int d = 0; d < x->rank; d++)
        p.step[op->attr.dims.v[d]] = x->dim[d] == 1 ? 0 : stride[d];
    read_pattern(op, in, out, &p);
}

/* y[at] = x[p] with p[permutation[d]] = at[d]. */
void interp_transpose(const Op *op, const void *const *in, void *const *out)
{
    int64_t stride[CVN_MAX_RANK];
    Pattern p = {0};
    type_strides(op_in(op, 0), stride);
    for (int d = 0; d < op->attr.dims.n; d++)
        p.step[d] = stride[op->attr.dims.v[d]];
    read_pattern(op, in, out, &p);
}

/* y[at] = x[start + at * stride]. */
void interp_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    int64_t stride[CVN_MAX_RANK];
    Pattern p = {0};
    type_strides(x, stride);
    for (int d = 0; d < x->rank; d++) {
        bool steps = op_out(op, 0)->dim[d] > 1; /* a stride that is not used may be anything */
        p.first += op->attr.start.v[d] * stride[d];
        p.step[d] = steps ? op->attr.stride.v[d] * stride[d] : 0;
    }
    read_pattern(op, in, out, &p);
}

/* y[at] = x[size - 1 - at] along the given dimensions. */
void interp_reverse(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    Pattern p = {0};
    type_strides(x, p.step);
    for (int i = 0; i < op->attr.dims.n; i++) {
        int64_t d = op->attr.dims.v[i];
        p.first += (x->dim[d] - 1) * p.step[d];
        p.step[d] = -p.step[d];
    }
    read_pattern(op, in, out, &p);
}

void interp_concatenate(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *y = op_out(op, 0);
    Lines to = type_lines(y, op->attr.axis);
    int64_t begin = 0; /* where operand k starts along the axis */
    for (int k = 0; k < op->n_operands; k++) {
        Lines from = type_lines(op_in(op, k), op->attr.axis);
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
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    type_strides(y, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++)
        interp_move(y->dtype, out[0], i, in[1], 0);
    for (int64_t i = 0, n = cvn_type_elements(x); i < n; i++, index_next(x->rank, x->dim, at)) {
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
