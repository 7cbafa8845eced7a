/*
 * Shape inference of operations that address by data. Gather and scatter follow the StableHLO
 * specification: each index vector names where a slice of the operand starts; `window` says which
 * result dimensions run over the slice, and the others run over the index vectors. Example, rows of
 * a table:
 *
 *     table f32[512,64], indices i32[4,7]  ->  f32[4,7,64]
 *     window=[2]  collapsed=[0]  index_map=[0]  index_vector_dim=2  sizes=[1,64]
 */
#include "graph/infer.h"

static int check_starts(const Op *op, int first, cvn_err *err)
{
    int rank = op_in(op, 0)->rank;
    if (op->n_operands != first + rank)
        return infer_fail(op, err, "needs one start for each of %d dimensions", rank);
    for (int i = first; i < op->n_operands; i++) {
        if (op_in(op, i)->rank != 0)
            return infer_fail(op, err, "start %d is not a scalar", i - first);
        TRY(infer_check_index(op, i, err));
    }
    return CVN_OK;
}

int infer_dynamic_slice(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    const Ints *sizes = &op->attr.sizes;
    TRY(check_starts(op, 1, err));
    TRY(infer_check_count(op, sizes, x->rank, "sizes", err));
    type[0] = *x;
    for (int i = 0; i < x->rank; i++) {
        if (sizes->v[i] < 0 || sizes->v[i] > x->dim[i])
            return infer_fail(op, err, "size %lld of dimension %d is not in 0 to %lld",
                              (long long)sizes->v[i], i, (long long)x->dim[i]);
        type[0].dim[i] = sizes->v[i];
    }
    return CVN_OK;
}

int infer_dynamic_update_slice(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0), *update = op_in(op, 1);
    if (update->dtype != x->dtype || update->rank != x->rank)
        return infer_fail(op, err, "the update must have the operand's dtype and rank");
    for (int i = 0; i < x->rank; i++)
        if (update->dim[i] > x->dim[i])
            return infer_fail(op, err, "the update is larger than the operand in dimension %d", i);
    type[0] = *x;
    return check_starts(op, 2, err);
}

/* What gather and scatter have in common: the dimension numbers against operand and indices. */
static int check_index_dims(const Op *op, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *x = op_in(op, 0), *indices = op_in(op, 1);
    TRY(infer_check_index(op, 1, err));
    int64_t along = a->index_vector_dim;
    if (along < 0 || along > indices->rank)
        return infer_fail(op, err, "index_vector_dim %lld is outside 0 to %d", (long long)along,
                          indices->rank);
    int64_t components = along == indices->rank ? 1 : indices->dim[along];
    if (components != a->index_map.n)
        return infer_fail(op, err, "index vectors have %lld components, index_map %d",
                          (long long)components, a->index_map.n);
    TRY(infer_check_dims(op, &a->index_map, x->rank, "index_map", err));
    TRY(infer_check_dims(op, &a->collapsed, x->rank, "collapsed", err));
    TRY(infer_check_dims(op, &a->operand_batch, x->rank, "operand_batch", err));
    TRY(infer_check_dims(op, &a->index_batch, indices->rank, "index_batch", err));
    TRY(infer_check_count(op, &a->index_batch, a->operand_batch.n, "index_batch", err));
    for (int i = 0; i < a->operand_batch.n; i++) {
        int64_t d = a->operand_batch.v[i], e = a->index_batch.v[i];
        if (ints_contain(&a->collapsed, d) || ints_contain(&a->index_map, d) ||
            e == a->index_vector_dim)
            return infer_fail(op, err, "batch dimension %lld has a second role", (long long)d);
        if (x->dim[d] != indices->dim[e])
            return infer_fail(op, err, "batch sizes %lld and %lld differ", (long long)x->dim[d],
                              (long long)indices->dim[e]);
    }
    return CVN_OK;
}

/* The type that gathering slices of the given sizes gives. window[i] are slice sizes of the
   dimensions that are neither collapsed nor batch, in order. */
static int gathered_type(const Op *op, const int64_t *window, int n_window, cvn_type *type,
                         cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *indices = op_in(op, 1);
    int index_rank = indices->rank - (a->index_vector_dim < indices->rank);
    type->dtype = op_in(op, 0)->dtype;
    type->rank = index_rank + n_window;
    if (type->rank > CVN_MAX_RANK)
        return infer_fail(op, err, "the result would have %d dimensions", type->rank);
    TRY(infer_check_count(op, &a->window, n_window, "window", err));
    TRY(infer_check_dims(op, &a->window, type->rank, "window", err));
    int index = 0;
    for (int d = 0, w = 0; d < type->rank; d++) {
        if (ints_contain(&a->window, d)) {
            if (a->window.v[w] != d)
                return infer_fail(op, err, "window must be in increasing order");
            type->dim[d] = window[w++];
        } else {
            index += index == a->index_vector_dim;
            type->dim[d] = indices->dim[index++];
        }
    }
    return CVN_OK;
}

int infer_gather(const Op *op, cvn_type *type, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *x = op_in(op, 0);
    TRY(check_index_dims(op, err));
    TRY(infer_check_count(op, &a->sizes, x->rank, "sizes", err));
    int64_t window[CVN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        int64_t size = a->sizes.v[i];
        bool dropped = ints_contain(&a->collapsed, i) || ints_contain(&a->operand_batch, i);
        if (size < 0 || size > x->dim[i] || (dropped && size != 1))
            return infer_fail(op, err, "slice size %lld of dimension %d does not fit",
                              (long long)size, i);
        if (!dropped)
            window[n++] = size;
    }
    return gathered_type(op, window, n, type, err);
}

int infer_scatter(const Op *op, cvn_type *type, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *x = op_in(op, 0), *updates = op_in(op, 2);
    TRY(check_index_dims(op, err));
    if ((unsigned)a->combine >= COMBINE_COUNT)
        return infer_fail(op, err, "unknown way to combine");
    if (a->combine == COMBINE_ADD && (x->dtype == CVN_BOOL || x->dtype == CVN_I4))
        return infer_fail(op, err, "cannot add %s", cvn_dtype_name(x->dtype));
    TRY(infer_check_dims(op, &a->window, updates->rank, "window", err));
    int64_t window[CVN_MAX_RANK];
    int n = 0;
    for (int i = 0; i < x->rank; i++) {
        if (ints_contain(&a->collapsed, i) || ints_contain(&a->operand_batch, i))
            continue;
        if (n == a->window.n)
            return infer_fail(op, err, "window has too few dimensions");
        window[n] = updates->dim[a->window.v[n]];
        if (window[n++] > x->dim[i])
            return infer_fail(op, err, "the updates are larger than dimension %d", i);
    }
    cvn_type expected = {0};
    TRY(gathered_type(op, window, n, &expected, err));
    if (!cvn_type_equal(&expected, updates)) {
        char text[TYPE_TEXT];
        return infer_fail(op, err, "updates must be %s", type_text(&expected, text, sizeof text));
    }
    type[0] = *x;
    return CVN_OK;
}

int infer_sort(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *key = op_in(op, 0);
    if (key->dtype == CVN_I4 || key->dtype == CVN_BOOL)
        return infer_fail(op, err, "cannot sort by %s", cvn_dtype_name(key->dtype));
    type[0] = *key;
    if (op->n_operands == 2) {
        type[1] = *op_in(op, 1);
        cvn_type shape = type[1];
        shape.dtype = key->dtype;
        if (!cvn_type_equal(&shape, key) || type[1].dtype == CVN_I4)
            return infer_fail(op, err, "key and payload must have the same shape");
    }
    return infer_check_axis(op, op->attr.axis, key->rank, err);
}
