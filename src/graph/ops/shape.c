/* Operations that move elements to where attributes say; nothing is computed. The gradient moves back. */
#include "graph/ops/ops.h"

#include "base/num.h"

/* Copies the same elements in the same order, of reshape and optimization_barrier. */
void interp_copy(const Op *op, const void *const *in, void *const *out)
{
    size_t bytes = cvn_type_bytes(op_out(op, 0));
    if (bytes)
        memcpy(out[0], in[0], bytes);
}

/* ---- broadcast_in_dim ---- */

cvn_value *cvn_broadcast_in_dim(cvn_graph *g, cvn_value *x, cvn_type type, const int *dims)
{
    OpAttr attr = {.dims = build_dims(g, x->type.rank, dims)};
    type.dtype = x->type.dtype;
    return graph_add(g, OP_BROADCAST_IN_DIM, &attr, 1, &x, &type);
}

cvn_value *cvn_broadcast_to(cvn_graph *g, cvn_value *x, const cvn_type *like)
{
    cvn_type type = *like;
    type.dtype = x->type.dtype;
    if (g->err.code || cvn_type_equal(&type, &x->type))
        return x;
    int dims[CVN_MAX_RANK] = {0};
    for (int i = 0; i < x->type.rank; i++)
        dims[i] = type.rank - x->type.rank + i;
    return cvn_broadcast_in_dim(g, x, type, dims);
}

int infer_broadcast_in_dim(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    const Ints *dims = &op->attr.dims;
    TRY(infer_wanted(op, type, err));
    TRY(infer_check_count(op, dims, x->rank, "dims", err));
    TRY(infer_check_dims(op, dims, type[0].rank, "dims", err));
    for (int i = 0; i < x->rank; i++) {
        int64_t to = type[0].dim[dims->v[i]];
        if (x->dim[i] != 1 && x->dim[i] != to)
            return infer_fail(op, err, "dimension %d of size %lld cannot be stretched to %lld", i,
                              (long long)x->dim[i], (long long)to);
    }
    type[0].dtype = x->dtype;
    return CVN_OK;
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

/* The gradient is summed over the dimensions that were added or stretched; the others are put back in order. */
void grad_broadcast_in_dim(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    cvn_value *dx = grad_of(d, op, 0);
    int source[CVN_MAX_RANK], summed[CVN_MAX_RANK], place[CVN_MAX_RANK];
    int n_summed = 0, n_kept = 0;
    for (int i = 0; i < y->rank; i++)
        source[i] = -1;
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] == y->dim[op->attr.dims.v[i]])
            source[op->attr.dims.v[i]] = i;
    for (int i = 0; i < y->rank; i++) {
        if (source[i] < 0)
            summed[n_summed++] = i;
        else
            place[n_kept++] = source[i];
    }
    /* Of the operand's dimensions only the kept ones are there yet: count their places among these. */
    int rank_among[CVN_MAX_RANK];
    for (int i = 0; i < n_kept; i++) {
        rank_among[i] = 0;
        for (int j = 0; j < n_kept; j++)
            rank_among[i] += place[j] < place[i];
    }
    if (n_summed)
        dx = cvn_reduce_dims(g, CVN_SUM, dx, n_summed, summed);
    dx = grad_place(g, dx, rank_among);
    if (n_kept != x->rank)
        dx = cvn_reshape(g, dx, x->rank, x->dim);
    grad_give(d, op, 0, dx);
}

void factors_broadcast_in_dim(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        rule_put(rule, 1, d, f);
        for (int i = 0; i < op_in(op, 0)->rank; i++)
            if (op->attr.dims.v[i] == d && op_in(op, 0)->dim[i] == op_out(op, 0)->dim[d])
                rule_put(rule, 0, i, f);
    }
}

/* ---- reshape ---- */

cvn_value *cvn_reshape(cvn_graph *g, cvn_value *x, int rank, const int64_t *dim)
{
    if (rank < 0 || rank > CVN_MAX_RANK) {
        graph_fail(g, CVN_ESHAPE, "reshape: rank %d is not in 0 to %d", rank, CVN_MAX_RANK);
        return g->poison;
    }
    cvn_type want = cvn_type_make(x->type.dtype, rank, dim);
    return graph_add(g, OP_RESHAPE, NULL, 1, &x, &want);
}

int infer_reshape(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    TRY(infer_wanted(op, type, err));
    type[0].dtype = x->dtype;
    if (cvn_type_elements(x) != cvn_type_elements(&type[0])) {
        char text[TYPE_TEXT];
        return infer_fail(op, err, "cannot become %s: the numbers of elements differ",
                          type_text(&type[0], text, sizeof text));
    }
    return CVN_OK;
}

void interp_reshape(const Op *op, const void *const *in, void *const *out)
{
    interp_copy(op, in, out);
}

void grad_reshape(Grad *d, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type;
    grad_give(d, op, 0, cvn_reshape(d->g, grad_of(d, op, 0), x->rank, x->dim));
}

/* Gives dimensions [from, to) of a tensor factors of their own: they are not in line with the other side. */
static void own_factors(Rule *rule, int tensor, const int64_t *left, int from, int to)
{
    for (int d = from; d < to; d++)
        rule_put(rule, tensor, d, rule_add(rule, left[d], FACTOR_WHOLE));
}

/* Dimensions i … and o … of the two sides hold the same elements: common factors from the major
   side, for as long as the sizes have common divisors.
   left[] is what of each size has no factor. */
static void reshape_group(Rule *rule, int64_t *left[2], int i, int i_end, int o, int o_end)
{
    for (;;) {
        while (i < i_end && left[0][i] == 1)
            i++;
        while (o < o_end && left[1][o] == 1)
            o++;
        int64_t common = i < i_end && o < o_end ? num_gcd(left[0][i], left[1][o]) : 1;
        if (common == 1)
            break;
        int f = rule_add(rule, common, FACTOR_PASS);
        rule_put(rule, 0, i, f);
        rule_put(rule, 1, o, f);
        left[0][i] /= common;
        left[1][o] /= common;
    }
    own_factors(rule, 0, left[0], i, i_end);
    own_factors(rule, 1, left[1], o, o_end);
}

void factors_reshape(const Op *op, Rule *rule)
{
    cvn_type a = *op_in(op, 0), b = *op_out(op, 0);
    int64_t *left[2] = {a.dim, b.dim};
    if (cvn_type_elements(&a) == 0)
        return;
    for (int i = 0, o = 0; i < a.rank || o < b.rank;) {
        int i0 = i, o0 = o;
        int64_t x = i < a.rank ? a.dim[i++] : 1, y = o < b.rank ? b.dim[o++] : 1;
        while (x != y) {
            if (x < y)
                x *= a.dim[i++];
            else
                y *= b.dim[o++];
        }
        reshape_group(rule, left, i0, i, o0, o);
    }
}

/* ---- transpose ---- */

cvn_value *cvn_transpose(cvn_graph *g, cvn_value *x, const int *permutation)
{
    OpAttr attr = {.dims = build_dims(g, x->type.rank, permutation)};
    return graph_add(g, OP_TRANSPOSE, &attr, 1, &x, NULL);
}

int infer_transpose(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    const Ints *permutation = &op->attr.dims;
    TRY(infer_check_count(op, permutation, x->rank, "permutation", err));
    TRY(infer_check_dims(op, permutation, x->rank, "permutation", err));
    type[0] = *x;
    for (int i = 0; i < x->rank; i++)
        type[0].dim[i] = x->dim[permutation->v[i]];
    return CVN_OK;
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

/* Dimension i of y is dimension p[i] of x. */
void grad_transpose(Grad *d, const Op *op)
{
    int place[CVN_MAX_RANK];
    for (int i = 0; i < op->attr.dims.n; i++)
        place[i] = (int)op->attr.dims.v[i];
    grad_give(d, op, 0, grad_place(d->g, grad_of(d, op, 0), place));
}

void factors_transpose(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        rule_put(rule, 0, op->attr.dims.v[d], f);
        rule_put(rule, 1, d, f);
    }
}

/* ---- slice ---- */

cvn_value *cvn_slice(cvn_graph *g, cvn_value *x, const int64_t *start, const int64_t *limit,
                     const int64_t *stride)
{
    static const int64_t ones[CVN_MAX_RANK] = {1, 1, 1, 1, 1, 1, 1, 1};
    int rank = x->type.rank;
    OpAttr attr = {.start = graph_ints(g, rank, start),
                   .limit = graph_ints(g, rank, limit),
                   .stride = graph_ints(g, rank, stride ? stride : ones)};
    return graph_add(g, OP_SLICE, &attr, 1, &x, NULL);
}

cvn_value *cvn_slice_axis(cvn_graph *g, cvn_value *x, int axis, int64_t start, int64_t limit)
{
    int64_t from[CVN_MAX_RANK] = {0}, to[CVN_MAX_RANK] = {0};
    memcpy(to, x->type.dim, sizeof to);
    if (axis < 0 || axis >= x->type.rank) {
        graph_fail(g, CVN_ESHAPE, "slice: axis %d is outside 0 to %d", axis, x->type.rank - 1);
        return g->poison;
    }
    from[axis] = start;
    to[axis] = limit;
    return cvn_slice(g, x, from, to, NULL);
}

int infer_slice(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    const OpAttr *a = &op->attr;
    TRY(infer_check_count(op, &a->start, x->rank, "start", err));
    TRY(infer_check_count(op, &a->limit, x->rank, "limit", err));
    TRY(infer_check_count(op, &a->stride, x->rank, "stride", err));
    type[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        int64_t start = a->start.v[i], limit = a->limit.v[i], stride = a->stride.v[i];
        if (start < 0 || start > limit || limit > x->dim[i] || stride < 1)
            return infer_fail(op, err, "[%lld:%lld:%lld] is not a slice of dimension %d",
                              (long long)start, (long long)limit, (long long)stride, i);
        type[0].dim[i] = limit == start ? 0 : (limit - start - 1) / stride + 1;
    }
    return CVN_OK;
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

static cvn_value *zero_of(cvn_graph *g, const cvn_value *x)
{
    return cvn_splat(g, cvn_scalar(x->type.dtype), 0);
}

/* The gradient is padded with zeros, around and between. */
void grad_slice(Grad *d, const Op *op)
{
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    int64_t high[CVN_MAX_RANK], between[CVN_MAX_RANK];
    for (int i = 0; i < x->rank; i++) {
        int64_t stride = op->attr.stride.v[i];
        int64_t width = y->dim[i] ? (y->dim[i] - 1) * stride + 1 : 0;
        between[i] = stride - 1;
        high[i] = x->dim[i] - op->attr.start.v[i] - width;
    }
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, cvn_pad(d->g, dy, zero_of(d->g, dy), op->attr.start.v, high, between));
}

void factors_slice(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int64_t x = op_in(op, 0)->dim[d], y = op_out(op, 0)->dim[d];
        rule_put_all(rule, d, rule_add(rule, num_max(x, y), x == y ? FACTOR_PASS : FACTOR_SHIFT));
    }
}

/* ---- concatenate ---- */

cvn_value *cvn_concatenate(cvn_graph *g, int n, cvn_value *const *x, int axis)
{
    return graph_add(g, OP_CONCATENATE, &(OpAttr){.axis = axis}, n, x, NULL);
}

int infer_concatenate(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    int axis = (int)op->attr.axis;
    for (int i = 1; i < op->n_operands; i++) {
        cvn_type part = *op_in(op, i);
        if (part.rank != type[0].rank)
            return infer_fail(op, err, "operand %d has another rank", i);
        int64_t size = part.dim[axis], sum;
        part.dim[axis] = type[0].dim[axis];
        if (!cvn_type_equal(&part, &type[0]))
            return infer_fail(op, err, "operand %d differs outside axis %d", i, axis);
        if (__builtin_add_overflow(type[0].dim[axis], size, &sum))
            return infer_fail(op, err, "the sizes overflow");
        type[0].dim[axis] = sum;
    }
    return CVN_OK;
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

void grad_concatenate(Grad *d, const Op *op)
{
    int axis = (int)op->attr.axis;
    int64_t start = 0;
    for (int i = 0; i < op->n_operands; i++) {
        int64_t limit = start + op->operand[i]->type.dim[axis];
        if (grad_wants(d, op, i))
            grad_give(d, op, i, cvn_slice_axis(d->g, grad_of(d, op, 0), axis, start, limit));
        start = limit;
    }
}

/* ---- pad ---- */

cvn_value *cvn_pad(cvn_graph *g, cvn_value *x, cvn_value *value, const int64_t *low,
                   const int64_t *high, const int64_t *interior)
{
    int rank = x->type.rank;
    OpAttr attr = {.start = graph_ints(g, rank, low),
                   .limit = graph_ints(g, rank, high),
                   .stride = graph_ints(g, rank, interior)};
    return graph_add(g, OP_PAD, &attr, 2, (cvn_value *[]){x, value}, NULL);
}

/* low + (n - 1) * (interior + 1) + 1 + high, or -1 if it overflows. */
static int64_t padded_size(int64_t n, int64_t low, int64_t high, int64_t interior)
{
    int64_t size = 0;
    if (n > 0 &&
        (__builtin_mul_overflow(n - 1, interior, &size) || __builtin_add_overflow(size, n, &size)))
        return -1;
    if (__builtin_add_overflow(size, low, &size) || __builtin_add_overflow(size, high, &size))
        return -1;
    return size;
}

int infer_pad(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *value = op_in(op, 1);
    const OpAttr *a = &op->attr;
    if (value->rank != 0 || value->dtype != x->dtype)
        return infer_fail(op, err, "the padding value must be a scalar of the operand's type");
    TRY(infer_check_count(op, &a->start, x->rank, "low", err));
    TRY(infer_check_count(op, &a->limit, x->rank, "high", err));
    TRY(infer_check_count(op, &a->stride, x->rank, "interior", err));
    type[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        if (a->stride.v[i] < 0 || a->stride.v[i] > INT64_C(1) << 58)
            return infer_fail(op, err, "interior padding of dimension %d is negative or too large",
                              i);
        type[0].dim[i] = padded_size(x->dim[i], a->start.v[i], a->limit.v[i], a->stride.v[i]);
        if (type[0].dim[i] < 0)
            return infer_fail(op, err, "padding makes dimension %d negative or too large", i);
    }
    return CVN_OK;
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

/* Cuts the padding off (or, where it was negative, puts zeros back), then takes every
   (interior + 1)-th. The padding value has the gradients of the places that are padding. */
void grad_pad(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    const cvn_type *x = &op->operand[0]->type, *y = &op->result[0]->type;
    const OpAttr *a = &op->attr;
    cvn_value *dy = grad_of(d, op, 0);
    if (grad_wants(d, op, 0)) {
        int64_t low[CVN_MAX_RANK], high[CVN_MAX_RANK], none[CVN_MAX_RANK] = {0};
        int64_t limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
        for (int i = 0; i < x->rank; i++) {
            low[i] = -a->start.v[i];
            high[i] = -a->limit.v[i];
            stride[i] = a->stride.v[i] + 1;
            limit[i] = y->dim[i] + low[i] + high[i];
        }
        cvn_value *cut = cvn_pad(g, dy, zero_of(g, dy), low, high, none);
        grad_give(d, op, 0, cvn_slice(g, cut, none, limit, stride));
    }
    if (grad_wants(d, op, 1)) {
        const cvn_type mask = with_dtype(*x, CVN_BOOL);
        cvn_value *yes = cvn_splat(g, cvn_scalar(CVN_BOOL), 1);
        cvn_value *padding =
            cvn_pad(g, cvn_splat(g, mask, 0), yes, a->start.v, a->limit.v, a->stride.v);
        grad_give(d, op, 1, grad_sum_all(g, where(g, padding, dy)));
    }
}

void factors_pad(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = !a->start.v[d] && !a->limit.v[d] && !a->stride.v[d];
        int64_t x = op_in(op, 0)->dim[d], y = op_out(op, 0)->dim[d];
        int f = rule_add(rule, num_max(x, y), whole ? FACTOR_PASS : FACTOR_SHIFT);
        rule_put(rule, 0, d, f);
        rule_put(rule, 2, d, f);
    }
}

/* ---- reverse ---- */

cvn_value *cvn_reverse(cvn_graph *g, cvn_value *x, int n, const int *dims)
{
    OpAttr attr = {.dims = build_dims(g, n, dims)};
    return graph_add(g, OP_REVERSE, &attr, 1, &x, NULL);
}

int infer_reverse(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return infer_check_dims(op, &op->attr.dims, type[0].rank, "dims", err);
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

void grad_reverse(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, graph_add(d->g, OP_REVERSE, &op->attr, 1, &dy, NULL));
}

/* ---- optimization_barrier ---- */

void grad_optimization_barrier(Grad *d, const Op *op)
{
    grad_give(d, op, 0, grad_of(d, op, 0));
}
