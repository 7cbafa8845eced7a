/* Sums and their like: reductions over dimensions, and running ones along one. */
#include "graph/reduce.h"
#include "graph/ops/ops.h"

/* ---- reductions ---- */

Fold interp_fold(cvn_reduce kind, cvn_dtype dtype)
{
    double first = reduce_neutral(kind, dtype);
    Fold fold = {.kind = kind, .is_float = dtype_is_float(dtype), .real = first};
    if (!fold.is_float)
        fold.integer = (uint64_t)(int64_t)first;
    return fold;
}

void interp_fold_add(Fold *fold, cvn_dtype dtype, const void *data, int64_t i)
{
    if (fold->is_float)
        fold->real = reduce_floats(fold->kind, fold->real, element_get(dtype, data, i));
    else
        fold->integer =
            reduce_integers(fold->kind, fold->integer, (uint64_t)interp_get_int(dtype, data, i));
}

void interp_fold_store(const Fold *fold, cvn_dtype dtype, void *data, int64_t i)
{
    if (fold->is_float)
        element_set(dtype, data, i, fold->real);
    else
        interp_set_int(dtype, data, i, (int64_t)fold->integer);
}

/* Makes operand 0, in the dtype that sums are made in, and the neutral element the operands of a call. */
static void reduction_operands(Hlo *h, const Op *op, cvn_reduce kind, HloCall *call)
{
    cvn_type type = op->operand[0]->type;
    cvn_dtype dtype = hlo_sum_dtype(type.dtype);
    const cvn_type scalar = cvn_scalar(dtype);
    const char *x = hlo_as(h, hlo_ref(h, op->operand[0]), &type, dtype);
    const char *start = hlo_splat(h, &scalar, reduce_neutral(kind, dtype));
    type.dtype = dtype;
    call->operands = arena_printf(&h->arena, "%s, %s", x, start);
    call->operand_types =
        arena_printf(&h->arena, "%s, %s", hlo_tensor(h, &type), hlo_tensor(h, &scalar));
    call->region = hlo_reducer(h, kind, dtype);
}

/* ---- reduce ---- */

cvn_value *cvn_reduce_dims(cvn_graph *g, cvn_reduce kind, cvn_value *x, int n, const int *dims)
{
    OpAttr attr = {.reduce = kind, .dims = build_dims(g, n, dims)};
    return graph_add(g, OP_REDUCE, &attr, 1, &x, NULL);
}

int infer_check_reducer(const Op *op, cvn_err *err)
{
    cvn_reduce kind = op->attr.reduce;
    if ((unsigned)kind >= REDUCE_COUNT)
        return infer_fail(op, err, "unknown reducer");
    bool logical = kind == CVN_ALL || kind == CVN_ANY;
    bool boolean = op_in(op, 0)->dtype == CVN_BOOL;
    if (logical != boolean || op_in(op, 0)->dtype == CVN_I4)
        return infer_fail(op, err, "cannot reduce %s by %s", cvn_dtype_name(op_in(op, 0)->dtype),
                          reduce_names[kind]);
    return CVN_OK;
}

int infer_reduce(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    TRY(infer_check_reducer(op, err));
    TRY(infer_check_dims(op, &op->attr.dims, x->rank, "dims", err));
    unsigned reduced = 0;
    for (int i = 0; i < op->attr.dims.n; i++)
        reduced |= 1u << op->attr.dims.v[i];
    type[0] = (cvn_type){.dtype = x->dtype};
    for (int i = 0; i < x->rank; i++)
        if (!(reduced & 1u << i))
            type[0].dim[type[0].rank++] = x->dim[i];
    return CVN_OK;
}

void interp_reduce(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK];
    type_strides(x, stride);
    Dims kept = {.count = 1}, reduced = {.count = 1};
    for (int d = 0; d < x->rank; d++)
        dims_add(ints_contain(&op->attr.dims, d) ? &reduced : &kept, x, stride, d);
    int64_t at[CVN_MAX_RANK] = {0};
    for (int64_t i = 0; i < kept.count; i++, index_next(kept.n, kept.size, at)) {
        int64_t first = dims_offset(&kept, at), k[CVN_MAX_RANK] = {0};
        Fold fold = interp_fold(op->attr.reduce, x->dtype);
        for (int64_t j = 0; j < reduced.count; j++, index_next(reduced.n, reduced.size, k))
            interp_fold_add(&fold, x->dtype, in[0], first + dims_offset(&reduced, k));
        interp_fold_store(&fold, y->dtype, out[0], i);
    }
}

static cvn_value *reduce_like(cvn_graph *g, const Op *op, cvn_reduce kind, cvn_value *x)
{
    int dims[CVN_MAX_RANK];
    for (int i = 0; i < op->attr.dims.n; i++)
        dims[i] = (int)op->attr.dims.v[i];
    return cvn_reduce_dims(g, kind, x, op->attr.dims.n, dims);
}

/* dx_i = dy times the product of the others: y / x_i, but for zeros; where there is just one zero,
   only its own gradient is not zero. */
static cvn_value *product_gradient(cvn_graph *g, const Op *op, cvn_value *dy)
{
    cvn_value *x = op->operand[0];
    const Ints *reduced = &op->attr.dims;
    cvn_value *one = like(g, x, 1);
    cvn_value *is_zero = cvn_compare_values(g, CVN_EQ, x, like(g, x, 0));
    cvn_value *factor = cvn_select(g, is_zero, one, x);
    cvn_value *zeros = reduce_like(g, op, CVN_SUM, cvn_convert(g, is_zero, CVN_I32));
    cvn_value *rest = reduce_like(g, op, CVN_PRODUCT, factor);
    rest = grad_repeat(g, cvn_multiply(g, dy, rest), &x->type, reduced);
    zeros = grad_repeat(g, zeros, &x->type, reduced);
    /* The zeros among the other elements. */
    cvn_value *others = cvn_subtract(g, zeros, cvn_convert(g, is_zero, CVN_I32));
    cvn_value *whole = cvn_compare_values(g, CVN_EQ, others, like(g, others, 0));
    return where(g, whole, cvn_divide(g, rest, factor));
}

/* The elements that are equal to the result share its gradient. */
static cvn_value *extremum_gradient(cvn_graph *g, const Op *op, cvn_value *dy)
{
    cvn_value *x = op->operand[0];
    const Ints *reduced = &op->attr.dims;
    cvn_value *y = grad_repeat(g, op->result[0], &x->type, reduced);
    cvn_value *wins = cvn_compare_values(g, CVN_EQ, x, y);
    cvn_value *count = cvn_convert(g, wins, CVN_I32);
    count = reduce_like(g, op, CVN_SUM, count);
    cvn_value *share = cvn_divide(g, dy, cvn_convert(g, count, dy->type.dtype));
    return where(g, wins, grad_repeat(g, share, &x->type, reduced));
}

void grad_reduce(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    switch (op->attr.reduce) {
    case CVN_SUM:
        grad_give(d, op, 0, grad_repeat(d->g, dy, &op->operand[0]->type, &op->attr.dims));
        break;
    case CVN_PRODUCT:
        grad_give(d, op, 0, product_gradient(d->g, op, dy));
        break;
    case CVN_MAX:
    case CVN_MIN:
        grad_give(d, op, 0, extremum_gradient(d->g, op, dy));
        break;
    default: /* of bools */
        break;
    }
}

void hlo_reduce(Hlo *h, const Op *op)
{
    HloCall call = {.name = "reduce"};
    reduction_operands(h, op, op->attr.reduce, &call);
    call.attrs = hlo_attrs(h, op);
    hlo_call_in(h, op, call, hlo_sum_dtype(op->operand[0]->type.dtype));
}

/* ---- cumsum and cumprod ---- */

cvn_value *cvn_cumsum(cvn_graph *g, cvn_value *x, int axis)
{
    return graph_add(g, OP_CUMSUM, &(OpAttr){.axis = axis}, 1, &x, NULL);
}

cvn_value *cvn_cumprod(cvn_graph *g, cvn_value *x, int axis)
{
    return graph_add(g, OP_CUMPROD, &(OpAttr){.axis = axis}, 1, &x, NULL);
}

int infer_cumsum(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return infer_check_axis(op, op->attr.axis, type[0].rank, err);
}

int infer_cumprod(const Op *op, cvn_type *type, cvn_err *err)
{
    return infer_cumsum(op, type, err);
}

/* y[i] = x[0] + … + x[i] along the axis, or the same with another reducer. */
static void running(const Op *op, cvn_reduce kind, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    Lines lines = type_lines(x, op->attr.axis);
    for (int64_t o = 0; o < lines.outer; o++) {
        for (int64_t r = 0; r < lines.inner; r++) {
            Fold fold = interp_fold(kind, x->dtype);
            for (int64_t i = 0; i < lines.n; i++) {
                int64_t place = (o * lines.n + i) * lines.inner + r;
                interp_fold_add(&fold, x->dtype, in[0], place);
                interp_fold_store(&fold, x->dtype, out[0], place);
            }
        }
    }
}

void interp_cumsum(const Op *op, const void *const *in, void *const *out)
{
    running(op, CVN_SUM, in, out);
}

void interp_cumprod(const Op *op, const void *const *in, void *const *out)
{
    running(op, CVN_PRODUCT, in, out);
}

/* Element i is in the sums i, i + 1, …: a cumulative sum from the end. */
void grad_cumsum(Grad *d, const Op *op)
{
    int axis = (int)op->attr.axis;
    cvn_value *back = cvn_reverse(d->g, grad_of(d, op, 0), 1, &axis);
    grad_give(d, op, 0, cvn_reverse(d->g, cvn_cumsum(d->g, back, axis), 1, &axis));
}

/* y[i] = x[i - by] along the axis, and `fill` where there is no such element. */
static cvn_value *moved(cvn_graph *g, cvn_value *x, int axis, int64_t by, double fill)
{
    int64_t low[CVN_MAX_RANK] = {0}, high[CVN_MAX_RANK] = {0}, none[CVN_MAX_RANK] = {0};
    low[axis] = by;
    high[axis] = -by;
    return cvn_pad(g, x, cvn_splat(g, cvn_scalar(x->type.dtype), fill), low, high, none);
}

/*
 * dx[i] is the product of the elements before i, times s[i], the sum over k >= i of dy[k] times the elements between i and k:
 *
 *     s[i] = dy[i] + x[i + 1] s[i + 1]
 *
 * Nothing is divided, so zeros are as any other elements. The recurrence is solved by doubling: where sum[i] has the terms
 * of n elements from i on, and factor[i] is the product of the n behind i, sum[i] + factor[i] sum[i + n] has those of 2n.
 */
void grad_cumprod(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    const int axis = (int)op->attr.axis;
    const cvn_dtype dtype = op_in(op, 0)->dtype;
    cvn_value *x = as(g, op->operand[0], wide(dtype));
    cvn_value *before = cvn_cumprod(g, moved(g, x, axis, 1, 1), axis);
    cvn_value *factor = moved(g, x, axis, -1, 0), *sum = as(g, grad_of(d, op, 0), wide(dtype));
    for (int64_t n = 1; n < x->type.dim[axis]; n *= 2) {
        sum = cvn_add(g, sum, cvn_multiply(g, factor, moved(g, sum, axis, -n, 0)));
        factor = cvn_multiply(g, factor, moved(g, factor, axis, -n, 0));
    }
    grad_give(d, op, 0, as(g, cvn_multiply(g, before, sum), dtype));
}

/* Prints a window over all elements up to this one. */
static void put_running(Hlo *h, const Op *op, cvn_reduce kind)
{
    const cvn_type *x = &op->operand[0]->type;
    int64_t window[CVN_MAX_RANK], one[CVN_MAX_RANK], padding[2 * CVN_MAX_RANK] = {0};
    for (int d = 0; d < x->rank; d++)
        one[d] = window[d] = 1;
    int axis = (int)op->attr.axis;
    if (x->dim[axis] > 1) {
        window[axis] = x->dim[axis];
        padding[2 * axis] = x->dim[axis] - 1;
    }
    const char *ones = hlo_array(h, &(Ints){x->rank, one});
    HloCall call = {.name = "reduce_window"};
    reduction_operands(h, op, kind, &call);
    call.attrs = arena_printf(&h->arena,
                              "window_dimensions = %s, window_strides = %s, base_dilations = %s, "
                              "window_dilations = %s, padding = %s",
                              hlo_array(h, &(Ints){x->rank, window}), ones, ones, ones,
                              hlo_rows(h, &(Ints){2 * x->rank, padding}, 2));
    hlo_call_in(h, op, call, hlo_sum_dtype(x->dtype));
}

void hlo_cumsum(Hlo *h, const Op *op)
{
    put_running(h, op, CVN_SUM);
}

void hlo_cumprod(Hlo *h, const Op *op)
{
    put_running(h, op, CVN_PRODUCT);
}
