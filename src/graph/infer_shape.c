/* Shape inference of operations that move, reduce or contract elements, and of the collectives. */
#include "graph/infer.h"

#include <stdlib.h>

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

int infer_reverse(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return infer_check_dims(op, &op->attr.dims, type[0].rank, "dims", err);
}

static int check_reducer(const Op *op, cvn_err *err)
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
    TRY(check_reducer(op, err));
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

int infer_cumsum(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return infer_check_axis(op, op->attr.axis, type[0].rank, err);
}

/* Checks the dimension numbers of one side of a contraction. */
static int check_dot_side(const Op *op, int side, const Ints *batch, const Ints *contract,
                          cvn_err *err)
{
    int rank = op_in(op, side)->rank;
    const char *name = side ? "rhs dimension numbers" : "lhs dimension numbers";
    if (batch->n + contract->n > rank)
        return infer_fail(op, err, "%s name more dimensions than there are", name);
    int64_t all[CVN_MAX_RANK];
    for (int i = 0; i < batch->n; i++)
        all[i] = batch->v[i];
    for (int i = 0; i < contract->n; i++)
        all[batch->n + i] = contract->v[i];
    Ints both = {batch->n + contract->n, all};
    return infer_check_dims(op, &both, rank, name, err);
}

static int check_dot_sizes(const Op *op, const Ints *l, const Ints *r, const char *what,
                           cvn_err *err)
{
    if (l->n != r->n)
        return infer_fail(op, err, "lhs and rhs name %d and %d %s dimensions", l->n, r->n, what);
    for (int i = 0; i < l->n; i++) {
        long long a = op_in(op, 0)->dim[l->v[i]], b = op_in(op, 1)->dim[r->v[i]];
        if (a != b)
            return infer_fail(op, err, "%s sizes %lld and %lld differ", what, a, b);
    }
    return CVN_OK;
}

/* Appends the dimensions of operand `side` that are neither batch nor contracted. */
static int add_free_dims(const Op *op, int side, const Ints *batch, const Ints *contract,
                         cvn_type *type)
{
    unsigned taken = 0;
    for (int i = 0; i < batch->n; i++)
        taken |= 1u << batch->v[i];
    for (int i = 0; i < contract->n; i++)
        taken |= 1u << contract->v[i];
    const cvn_type *x = op_in(op, side);
    for (int i = 0; i < x->rank; i++) {
        if (taken & 1u << i)
            continue;
        if (type->rank == CVN_MAX_RANK)
            return CVN_ESHAPE;
        type->dim[type->rank++] = x->dim[i];
    }
    return CVN_OK;
}

int infer_dot_general(const Op *op, cvn_type *type, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *lhs = op_in(op, 0);
    if (lhs->dtype != op_in(op, 1)->dtype)
        return infer_fail(op, err, "operands must have the same dtype");
    TRY(check_dot_side(op, 0, &a->lhs_batch, &a->lhs_contract, err));
    TRY(check_dot_side(op, 1, &a->rhs_batch, &a->rhs_contract, err));
    TRY(check_dot_sizes(op, &a->lhs_batch, &a->rhs_batch, "batch", err));
    TRY(check_dot_sizes(op, &a->lhs_contract, &a->rhs_contract, "contracting", err));
    cvn_type result = {.dtype = type[0].dtype == CVN_DTYPE_COUNT ? lhs->dtype : type[0].dtype};
    if (dtype_is_float(lhs->dtype) != dtype_is_float(result.dtype) || result.dtype == CVN_BOOL ||
        result.dtype == CVN_I4)
        return infer_fail(op, err, "cannot give a result of %s", cvn_dtype_name(result.dtype));
    for (int i = 0; i < a->lhs_batch.n; i++)
        result.dim[result.rank++] = lhs->dim[a->lhs_batch.v[i]];
    if (add_free_dims(op, 0, &a->lhs_batch, &a->lhs_contract, &result) ||
        add_free_dims(op, 1, &a->rhs_batch, &a->rhs_contract, &result))
        return infer_fail(op, err, "the result would have more than %d dimensions", CVN_MAX_RANK);
    type[0] = result;
    return CVN_OK;
}

static int compare_ids(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* Device ids: every `step`-th entry from `first` on is >= 0 and no two of them are equal. */
static int check_ids(const Op *op, int first, int step, cvn_err *err)
{
    const Ints *list = &op->attr.groups;
    int n = 0;
    SCOPED(scoped_free) int64_t *sorted = malloc(sizeof *sorted * ((size_t)list->n + 1));
    if (!sorted)
        return err_set(err, CVN_EMEM, "no memory to check %d device ids", list->n);
    for (int i = first; i < list->n; i += step)
        sorted[n++] = list->v[i];
    qsort(sorted, (size_t)n, sizeof *sorted, compare_ids);
    for (int i = 0; i < n; i++) {
        if (sorted[i] < 0)
            return infer_fail(op, err, "device id %lld is negative", (long long)sorted[i]);
        if (i > 0 && sorted[i] == sorted[i - 1])
            return infer_fail(op, err, "device %lld is named twice", (long long)sorted[i]);
    }
    return CVN_OK;
}

/* Groups: rows of group_size device ids, no id twice. */
static int check_groups(const Op *op, cvn_err *err)
{
    const Ints *groups = &op->attr.groups;
    int64_t size = op->attr.group_size;
    if (size < 1 || groups->n < 1 || groups->n % size)
        return infer_fail(op, err, "%d device ids do not make groups of %lld", groups->n,
                          (long long)size);
    return check_ids(op, 0, 1, err);
}

int infer_all_reduce(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    return check_reducer(op, err) || check_groups(op, err) ? CVN_ESHAPE : CVN_OK;
}

int infer_all_gather(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    int64_t *dim = &type[0].dim[op->attr.axis];
    if (__builtin_mul_overflow(*dim, op->attr.group_size, dim))
        return infer_fail(op, err, "the size overflows");
    return CVN_OK;
}

int infer_reduce_scatter(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(check_reducer(op, err));
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    int64_t *dim = &type[0].dim[op->attr.axis];
    if (*dim % op->attr.group_size)
        return infer_fail(op, err, "%lld elements do not divide among %lld devices",
                          (long long)*dim, (long long)op->attr.group_size);
    *dim /= op->attr.group_size;
    return CVN_OK;
}

int infer_all_to_all(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    TRY(check_groups(op, err));
    TRY(infer_check_axis(op, op->attr.axis, type[0].rank, err));
    TRY(infer_check_axis(op, op->attr.concat_axis, type[0].rank, err));
    int64_t *split = &type[0].dim[op->attr.axis], *concat = &type[0].dim[op->attr.concat_axis];
    if (*split % op->attr.group_size)
        return infer_fail(op, err, "%lld elements do not divide among %lld devices",
                          (long long)*split, (long long)op->attr.group_size);
    *split /= op->attr.group_size;
    if (__builtin_mul_overflow(*concat, op->attr.group_size, concat))
        return infer_fail(op, err, "the size overflows");
    return CVN_OK;
}

int infer_collective_permute(const Op *op, cvn_type *type, cvn_err *err)
{
    const Ints *pairs = &op->attr.groups;
    type[0] = *op_in(op, 0);
    if (pairs->n % 2)
        return infer_fail(op, err, "pairs has an odd number of entries");
    TRY(check_ids(op, 0, 2, err));
    TRY(check_ids(op, 1, 2, err));
    return CVN_OK;
}

int infer_partition_id(const Op *op, cvn_type *type, cvn_err *err)
{
    (void)op;
    (void)err;
    type[0] = cvn_scalar(CVN_U32);
    return CVN_OK;
}
