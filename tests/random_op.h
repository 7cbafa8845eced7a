/* Random operations of the core: each function returns the first result of what it drew, or NULL when nothing fits. */
#ifndef TESTS_RANDOM_OP_H
#define TESTS_RANDOM_OP_H

#include "random_operand.h"

#include <string.h>

static inline cvn_value *random_unary(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    return x ? graph_add(r->g, kind, NULL, 1, &x, NULL) : NULL;
}

static inline cvn_value *random_convert(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    cvn_dtype to = (cvn_dtype)random_below(r, CVN_DTYPE_COUNT);
    if (r->options.rows && random_chance(r, 70)) /* the ones that programs of tiles take */
        to = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    return x ? cvn_convert(r->g, x, to) : NULL;
}

static inline cvn_value *random_binary(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    if (!x ||
        ((kind == OP_SHIFT_LEFT || kind == OP_SHIFT_RIGHT_LOGICAL) && x->type.dtype == CVN_BOOL))
        return NULL;
    cvn_value *y = random_of_type(r, x->type);
    bool swap = random_chance(r, 30);
    cvn_value *operand[2] = {swap ? y : x, swap ? x : y};
    OpAttr attr = {.compare = kind == OP_COMPARE ? (cvn_compare)random_below(r, 6) : CVN_EQ};
    return graph_add(r->g, kind, &attr, 2, operand, NULL);
}

static inline cvn_value *random_select(RandomGraph *r, OpKind kind)
{
    cvn_value *a = random_pick(r, kind, 0);
    if (!a)
        return NULL;
    cvn_type mask = random_chance(r, 30) ? cvn_scalar(CVN_BOOL) : a->type;
    mask.dtype = CVN_BOOL;
    cvn_value *pred = random_of_type(r, mask), *b = random_of_type(r, a->type);
    return cvn_select(r->g, pred, a, b);
}

static inline cvn_value *random_clamp(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    if (!x)
        return NULL;
    cvn_type bound = random_chance(r, 50) ? cvn_scalar(x->type.dtype) : x->type;
    cvn_value *low = random_of_type(r, bound), *high = random_of_type(r, bound);
    return cvn_clamp(r->g, low, x, high);
}

static inline cvn_value *random_iota(RandomGraph *r, OpKind kind)
{
    cvn_type type = random_type(r, (cvn_dtype)random_below(r, CVN_DTYPE_COUNT));
    if (!random_fits(kind, type.dtype) || type.rank == 0)
        return NULL;
    return cvn_iota(r->g, type, random_below(r, type.rank));
}

static inline cvn_value *random_new_constant(RandomGraph *r, OpKind kind)
{
    (void)kind;
    return random_constant(r, random_type(r, (cvn_dtype)random_below(r, CVN_DTYPE_COUNT)));
}

/* A vector along one dimension of a tensor that is fused. */
static inline cvn_value *random_row_broadcast(RandomGraph *r)
{
    static const cvn_dtype dtypes[] = {CVN_F32, CVN_F32, CVN_BF16, CVN_I32};
    cvn_type type = random_fused_type(r, dtypes[random_below(r, 4)]);
    int d = random_below(r, type.rank);
    cvn_value *v = random_of_type(r, CVN_TYPE(type.dtype, type.dim[d]));
    return cvn_broadcast_in_dim(r->g, v, type, &d);
}

static inline cvn_value *random_broadcast(RandomGraph *r, OpKind kind)
{
    if (r->options.rows && random_chance(r, 70))
        return random_row_broadcast(r);
    cvn_value *x = random_pick(r, kind, 0);
    if (!x)
        return NULL;
    int rank = x->type.rank + random_below(r, 3), slots[CVN_MAX_RANK], dims[CVN_MAX_RANK];
    if (rank > 6)
        return NULL;
    random_permutation(r, rank, slots);
    cvn_type type = {.dtype = x->type.dtype, .rank = rank};
    for (int i = 0; i < rank; i++)
        type.dim[i] = random_size(r);
    for (int i = 0; i < x->type.rank; i++) {
        dims[i] = slots[i];
        if (x->type.dim[i] != 1 || random_chance(r, 50))
            type.dim[slots[i]] = x->type.dim[i];
    }
    if (random_chance(r, 60)) { /* in order, as numpy does */
        for (int i = 0; i < rank; i++)
            type.dim[i] = random_size(r);
        for (int i = 0; i < x->type.rank; i++) {
            dims[i] = rank - x->type.rank + i;
            type.dim[dims[i]] = x->type.dim[i];
        }
    }
    if (cvn_type_elements(&type) > r->options.most_elements)
        return NULL;
    return cvn_broadcast_in_dim(r->g, x, type, dims);
}

/* Joins neighbouring dimensions, splits some by 2, adds some of size 1. */
static inline cvn_value *random_reshape(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    if (!x)
        return NULL;
    if (r->options.rows && cvn_type_elements(&x->type) == r->options.rows * RANDOM_COLUMNS &&
        random_chance(r, 70)) {
        cvn_type to = random_fused_type(r, x->type.dtype);
        return cvn_reshape(r->g, x, to.rank, to.dim);
    }
    int64_t dim[32];
    int rank = 0;
    for (int i = 0; i < x->type.rank; i++) {
        int64_t size = x->type.dim[i];
        if (rank && random_chance(r, 30)) {
            dim[rank - 1] *= size;
        } else if (size % 2 == 0 && random_chance(r, 30)) {
            dim[rank++] = 2;
            dim[rank++] = size / 2;
        } else if (size != 1 || random_chance(r, 50)) {
            dim[rank++] = size;
        }
        if (random_chance(r, 15))
            dim[rank++] = 1;
    }
    return rank <= 6 ? cvn_reshape(r->g, x, rank, dim) : NULL;
}

static inline cvn_value *random_transpose(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    int permutation[CVN_MAX_RANK];
    if (!x)
        return NULL;
    random_permutation(r, x->type.rank, permutation);
    return cvn_transpose(r->g, x, permutation);
}

static inline cvn_value *random_slice(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    int64_t start[CVN_MAX_RANK], limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    if (!x)
        return NULL;
    for (int i = 0; i < x->type.rank; i++) {
        int64_t n = x->type.dim[i];
        start[i] = random_chance(r, 50) ? 0 : random_below(r, n + 1);
        limit[i] = random_chance(r, 50) ? n : start[i] + random_below(r, n - start[i] + 1);
        if (start[i] == limit[i] && random_chance(r, 95)) {
            start[i] = 0;
            limit[i] = n;
        }
        stride[i] = random_chance(r, 75) ? 1 : 1 + random_below(r, 3);
    }
    return cvn_slice(r->g, x, start, limit, stride);
}

static inline cvn_value *random_concatenate(RandomGraph *r, OpKind kind)
{
    cvn_value *part[3];
    part[0] = random_pick(r, kind, 1);
    if (!part[0] || cvn_type_elements(&part[0]->type) * 3 > r->options.most_elements)
        return NULL;
    int n = 1 + random_below(r, 3), axis = random_below(r, part[0]->type.rank);
    for (int i = 1; i < n; i++) {
        cvn_type type = part[0]->type;
        if (random_chance(r, 30))
            type.dim[axis] = random_below(r, type.dim[axis] + 1);
        part[i] = random_of_type(r, type);
    }
    return cvn_concatenate(r->g, n, part, axis);
}

/* Slices of one value that adjoin, put together again, sometimes in the wrong order. */
static inline cvn_value *random_split_and_join(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    if (!x)
        return NULL;
    int axis = random_below(r, x->type.rank);
    int64_t at = random_below(r, x->type.dim[axis] + 1);
    cvn_value *a = cvn_slice_axis(r->g, x, axis, 0, at);
    cvn_value *b = cvn_slice_axis(r->g, x, axis, at, x->type.dim[axis]);
    bool swap = random_chance(r, 20);
    return cvn_concatenate(r->g, 2, (cvn_value *[]){swap ? b : a, swap ? a : b}, axis);
}

static inline cvn_value *random_pad(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    int64_t low[CVN_MAX_RANK] = {0}, high[CVN_MAX_RANK] = {0}, interior[CVN_MAX_RANK] = {0};
    if (!x || cvn_type_elements(&x->type) * 4 > r->options.most_elements)
        return NULL;
    int64_t elements = 1;
    for (int i = 0; i < x->type.rank; i++) {
        int64_t n = x->type.dim[i];
        if (random_chance(r, 40)) {
            low[i] = random_below(r, 4) - 2;
            high[i] = random_below(r, 4) - 2;
            interior[i] = random_chance(r, 30) ? random_below(r, 3) : 0;
        }
        int64_t size = low[i] + high[i] + n + (n > 0 ? (n - 1) * interior[i] : 0);
        if (size < 0)
            return NULL;
        elements *= size;
    }
    if (elements > r->options.most_elements)
        return NULL;
    cvn_value *value = random_of_type(r, cvn_scalar(x->type.dtype));
    return cvn_pad(r->g, x, value, low, high, interior);
}

static inline cvn_value *random_reverse(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    int permutation[CVN_MAX_RANK];
    if (!x)
        return NULL;
    random_permutation(r, x->type.rank, permutation);
    return cvn_reverse(r->g, x, random_below(r, x->type.rank + 1), permutation);
}

static inline cvn_value *random_dynamic_slice(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1), *starts[CVN_MAX_RANK];
    int64_t sizes[CVN_MAX_RANK];
    if (!x)
        return NULL;
    for (int i = 0; i < x->type.rank; i++) {
        sizes[i] = random_chance(r, 40) ? x->type.dim[i] : random_below(r, x->type.dim[i] + 1);
        starts[i] = random_of_type(r, cvn_scalar(CVN_I32));
    }
    return cvn_dynamic_slice(r->g, x, starts, sizes);
}

static inline cvn_value *random_dynamic_update_slice(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1), *starts[CVN_MAX_RANK];
    if (!x)
        return NULL;
    cvn_type update = x->type;
    for (int i = 0; i < x->type.rank; i++) {
        if (random_chance(r, 50))
            update.dim[i] = random_below(r, x->type.dim[i] + 1);
        starts[i] = random_of_type(r, cvn_scalar(CVN_I32));
    }
    return cvn_dynamic_update_slice(r->g, x, random_of_type(r, update), starts);
}

/* Legal dimension numbers for gathering from x, the type of the indices, and that of the result. */
static inline bool random_gather_dims(RandomGraph *r, const cvn_type *x, cvn_gather_dims *d,
                                      int64_t *sizes, cvn_type *indices, cvn_type *result)
{
    int order[CVN_MAX_RANK], slots[CVN_MAX_RANK], n_window = 0;
    int64_t window_size[CVN_MAX_RANK];
    memset(d, 0, sizeof *d);
    random_permutation(r, x->rank, order);
    d->n_index_map = 1 + random_below(r, x->rank);
    bool batched = x->rank > 1 && d->n_index_map < x->rank && random_chance(r, 40);
    int batch = batched ? order[x->rank - 1] : -1;
    for (int i = 0; i < d->n_index_map; i++)
        d->index_map[i] = order[i];
    for (int i = 0; i < x->rank; i++) {
        if (x->dim[i] == 0)
            return false;
        sizes[i] = random_chance(r, 50) || i == batch ? 1 : 1 + random_below(r, x->dim[i]);
        if (i == batch)
            continue;
        if (sizes[i] == 1 && random_chance(r, 70))
            d->collapsed[d->n_collapsed++] = i;
        else
            window_size[n_window++] = sizes[i];
    }
    int n_index = random_below(r, 2) + batched, at = random_below(r, n_index + 1), n = 0;
    int batch_slot = batched ? random_below(r, n_index) : -1;
    *indices = (cvn_type){.dtype = CVN_I32};
    for (int i = 0; i <= n_index; i++) {
        if (i == at && (i < n_index || d->n_index_map != 1 || random_chance(r, 50)))
            indices->dim[indices->rank++] = d->n_index_map;
        if (i == n_index)
            break;
        if (i == batch_slot) {
            d->operand_batch[d->n_operand_batch++] = batch;
            d->index_batch[d->n_index_batch++] = indices->rank;
        }
        indices->dim[indices->rank++] = i == batch_slot ? x->dim[batch] : random_size(r);
    }
    d->index_vector_dim = at;
    d->n_window = n_window;
    *result = (cvn_type){.dtype = x->dtype, .rank = n_index + n_window};
    if (result->rank > 6)
        return false;
    bool is_window[CVN_MAX_RANK] = {false};
    random_permutation(r, result->rank, slots);
    for (int i = 0; i < n_window; i++)
        is_window[slots[i]] = true;
    for (int i = 0, w = 0; i < result->rank; i++) {
        if (is_window[i]) {
            d->window[w] = i;
            result->dim[i] = window_size[w++];
        } else {
            n += n == at && indices->rank > n_index;
            result->dim[i] = indices->dim[n++];
        }
    }
    return cvn_type_elements(result) <= r->options.most_elements;
}

static inline cvn_value *random_gather(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    cvn_gather_dims dims;
    int64_t sizes[CVN_MAX_RANK];
    cvn_type indices, result;
    if (!x || !random_gather_dims(r, &x->type, &dims, sizes, &indices, &result))
        return NULL;
    return cvn_gather(r->g, x, random_of_type(r, indices), &dims, sizes);
}

static inline cvn_value *random_scatter(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    cvn_gather_dims dims;
    int64_t sizes[CVN_MAX_RANK];
    cvn_type indices, updates;
    if (!x || !random_gather_dims(r, &x->type, &dims, sizes, &indices, &updates))
        return NULL;
    cvn_value *at = random_of_type(r, indices), *update = random_of_type(r, updates);
    bool adds = x->type.dtype != CVN_BOOL && x->type.dtype != CVN_I4 && random_chance(r, 50);
    return (adds ? cvn_scatter_add : cvn_scatter_assign)(r->g, x, at, update, &dims);
}

/* Keys have one NaN only: sorting tells NaNs apart by their sign, which nothing else promises. */
static inline cvn_value *random_sort(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1), *out[2];
    if (!x || x->type.dtype == CVN_BOOL || x->type.dtype == CVN_I4)
        return NULL;
    int axis = random_below(r, x->type.rank);
    bool descending = random_chance(r, 50);
    if (random_is_float(x->type.dtype))
        x = cvn_select(r->g, cvn_compare_values(r->g, CVN_EQ, x, x), x,
                       cvn_splat(r->g, x->type, NAN));
    if (random_chance(r, 50))
        return cvn_sort(r->g, x, axis, descending);
    cvn_type payload = x->type;
    payload.dtype = random_chance(r, 50) ? CVN_I32 : CVN_F32;
    cvn_sort_pair(r->g, x, random_of_type(r, payload), axis, descending, out);
    return out[0];
}

static inline cvn_value *random_reduce(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    int permutation[CVN_MAX_RANK];
    if (!x || x->type.dtype == CVN_I4)
        return NULL;
    random_permutation(r, x->type.rank, permutation);
    int how = x->type.dtype == CVN_BOOL ? CVN_ALL + random_below(r, 2) : random_below(r, 4);
    int n = random_below(r, x->type.rank + 1);
    return cvn_reduce_dims(r->g, (cvn_reduce)how, x, n, permutation);
}

/* cumsum and cumprod */
static inline cvn_value *random_running(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    if (!x)
        return NULL;
    const OpAttr attr = {.axis = random_below(r, x->type.rank)};
    return graph_add(r->g, kind, &attr, 1, &x, NULL);
}

/* A product of rows, and a square matrix. */
static inline cvn_value *random_row_product(RandomGraph *r)
{
    cvn_dtype dtype = random_chance(r, 70) ? CVN_BF16 : CVN_F32;
    cvn_value *x = random_of_type(r, CVN_TYPE(dtype, r->options.rows, RANDOM_COLUMNS));
    cvn_value *w = random_of_type(r, CVN_TYPE(dtype, RANDOM_COLUMNS, RANDOM_COLUMNS));
    const cvn_dot_dims dims = {
        .n_contract = 1, .lhs_contract = {1}, .rhs_contract = {random_below(r, 2)}};
    return cvn_dot_general(r->g, x, w, &dims, random_chance(r, 60) ? dtype : CVN_F32);
}

static inline cvn_value *random_dot_general(RandomGraph *r, OpKind kind)
{
    if (r->options.rows && random_chance(r, 70))
        return random_row_product(r);
    cvn_value *x = random_pick(r, kind, 0);
    if (!x)
        return NULL;
    int rank = x->type.rank, order[CVN_MAX_RANK], back[CVN_MAX_RANK];
    random_permutation(r, rank, order);
    int n_batch = random_chance(r, 50) ? 0 : random_below(r, rank + 1);
    int n_contract = random_below(r, rank - n_batch + 1), n_free = random_below(r, 3);
    cvn_dot_dims dims = {.n_batch = n_batch, .n_contract = n_contract};
    cvn_type y = {.dtype = x->type.dtype, .rank = n_batch + n_contract + n_free};
    int64_t elements = 1;
    random_permutation(r, y.rank, back);
    for (int i = 0; i < rank; i++)
        elements *= i < n_batch + n_contract && i >= n_batch ? 1 : x->type.dim[order[i]];
    for (int i = 0; i < y.rank; i++) {
        int at = back[i];
        if (i < n_batch) {
            dims.lhs_batch[i] = order[i];
            dims.rhs_batch[i] = at;
        } else if (i < n_batch + n_contract) {
            dims.lhs_contract[i - n_batch] = order[i];
            dims.rhs_contract[i - n_batch] = at;
        }
        y.dim[at] = i < n_batch + n_contract ? x->type.dim[order[i]] : random_size(r);
        elements *= i < n_batch + n_contract ? 1 : y.dim[at];
    }
    if (rank + n_free > 6 || elements > r->options.most_elements ||
        cvn_type_elements(&y) > r->options.most_elements)
        return NULL;
    cvn_dtype dtype = x->type.dtype;
    if (random_chance(r, 40))
        dtype = random_is_float(dtype) ? CVN_F32 : CVN_I32;
    return cvn_dot_general(r->g, x, random_of_type(r, y), &dims, dtype);
}

#endif
