/*
 * Random legal graphs, random inputs for them, and the comparison of results: the material of
 * property tests. A pass is right when, for thousands of seeds, the graph computes the same before
 * and after it.
 *
 *     RandomOptions options = {.n_ops = 20, .n_parameters = 4, .most_elements = 200};
 *     cvn_graph *g = random_graph(seed, &options);
 *     void **inputs = random_inputs(g, seed, options.specials);
 *     … run, transform, run again, random_difference(type, a, b) < 0 for each output …
 *     random_free(inputs, g->n_parameters);
 *
 * Everything is a function of the seed. Operations prefer recent values as operands, so that chains
 * arise, and constants that identities know (0, -0, 1, -1, all ones), so that rules have something
 * to do.
 */
#ifndef TESTS_RANDOM_GRAPH_H
#define TESTS_RANDOM_GRAPH_H

#include "graph/graph.h"
#include "graph/panels.h"
#include "splitmix.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct RandomOptions {
    int n_ops;             /* operations to draw; some draws fail and make none */
    int n_parameters;      /* at least 1 */
    int64_t most_elements; /* of any tensor */
    bool composites;       /* also draw attention, rms_norm, … */
    bool collectives;      /* also draw collectives, in groups of one device, for a run on one */
    bool specials;         /* inputs hold NaN, infinities, -0 and the extremes of integers */
    bool marks;            /* some values carry a spec */
    bool into;             /* some outputs are computed into parameters */
} RandomOptions;

typedef struct RandomGraph {
    cvn_graph *g;
    RandomOptions options;
    uint64_t state;         /* of the random numbers */
    cvn_value *value[4096]; /* [n] drawn so far, operands of what comes */
    int n;
} RandomGraph;

/* In [0, n), n > 0. */
static inline int random_below(RandomGraph *r, int64_t n)
{
    return (int)(splitmix(&r->state) % (uint64_t)n);
}

static inline bool random_chance(RandomGraph *r, int percent)
{
    return random_below(r, 100) < percent;
}

static inline bool random_is_float(cvn_dtype dtype)
{
    return dtype == CVN_F64 || dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16;
}

/* ---- data ---- */

static inline double random_number(uint64_t *state, cvn_dtype dtype, bool specials)
{
    static const double special[] = {-0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 65504, 3e38};
    uint64_t bits = splitmix(state);
    bool is_special = specials && bits % 8 == 0;
    bits >>= 8;
    if (dtype == CVN_BOOL)
        return (double)(bits % 2);
    if (random_is_float(dtype)) {
        if (is_special)
            return special[bits % 8];
        return bits % 4 == 0 ? (double)((int)(bits / 4 % 17) - 8) / 2
                             : ((double)(bits % 1000003) / 1000003 - 0.5) * 8;
    }
    if (is_special && dtype == CVN_U32)
        return bits % 2 ? UINT32_MAX : INT32_MAX;
    if (is_special && dtype == CVN_I32)
        return bits % 2 ? INT32_MIN : INT32_MAX;
    if (is_special)
        return bits % 2 ? 127 : -128; /* saturates in i4 */
    return dtype == CVN_U32 ? (double)(bits % 9) : (double)((int)(bits % 13) - 4);
}

static inline void random_fill(uint64_t *state, const cvn_type *type, void *data, bool specials)
{
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++)
        element_set(type->dtype, data, i, random_number(state, type->dtype, specials));
}

/* A buffer per parameter: an array of g->n_parameters, to be freed by random_free. */
static inline void **random_inputs(const cvn_graph *g, uint64_t seed, bool specials)
{
    void **inputs = calloc((size_t)g->n_parameters + 1, sizeof *inputs);
    for (int i = 0; inputs && i < g->n_parameters; i++) {
        const cvn_type *type = &g->parameter[i]->type;
        inputs[i] = calloc(cvn_type_bytes(type) + 1, 1);
        if (inputs[i])
            random_fill(&seed, type, inputs[i], specials);
    }
    return inputs;
}

static inline void random_free(void **buffers, int n)
{
    for (int i = 0; buffers && i < n; i++)
        free(buffers[i]);
    free(buffers);
}

/* The first element where a and b differ, or -1. Zeros of different sign differ; NaNs do not. */
static inline int64_t random_difference(const cvn_type *type, const void *a, const void *b)
{
    for (int64_t i = 0, n = cvn_type_elements(type); i < n; i++) {
        double x = element_get(type->dtype, a, i), y = element_get(type->dtype, b, i);
        if (!(isnan(x) && isnan(y)) && (x != y || signbit(x) != signbit(y)))
            return i;
    }
    return -1;
}

/* ---- operands ---- */

static inline int64_t random_size(RandomGraph *r)
{
    static const int64_t size[] = {1, 1, 2, 2, 3, 3, 4, 5, 6, 8};
    return random_chance(r, 2) ? 0 : size[random_below(r, 10)];
}

static inline cvn_type random_type(RandomGraph *r, cvn_dtype dtype)
{
    int64_t dim[CVN_MAX_RANK];
    for (;;) {
        int rank = random_below(r, 5);
        for (int i = 0; i < rank; i++)
            dim[i] = random_size(r);
        cvn_type type = cvn_type_make(dtype, rank, dim);
        if (cvn_type_elements(&type) <= r->options.most_elements)
            return type;
    }
}

static inline bool random_fits(OpKind kind, cvn_dtype dtype)
{
    OpDTypes allowed = op_info[kind].dtypes;
    if (dtype == CVN_I4)
        return allowed == DTYPES_A || kind == OP_CONVERT;
    if (dtype == CVN_BOOL && allowed == DTYPES_N)
        return false;
    return allowed == DTYPES_F ? random_is_float(dtype)
                               : allowed != DTYPES_I || !random_is_float(dtype);
}

/* A value that may be an operand of this kind, mostly a recent one; NULL when there is none. */
static inline cvn_value *random_pick(RandomGraph *r, OpKind kind, int least_rank)
{
    for (int tries = 0; tries < 20; tries++) {
        int recent = r->n < 6 ? r->n : 6;
        int at = random_chance(r, 60) ? r->n - 1 - random_below(r, recent) : random_below(r, r->n);
        cvn_value *v = r->value[at];
        if (v->type.rank >= least_rank && random_fits(kind, v->type.dtype))
            return v;
    }
    return NULL;
}

static inline cvn_value *random_constant(RandomGraph *r, cvn_type type)
{
    static const double number[] = {0, -0.0, 1, -1, 2, 0.5, 4, 3, INFINITY, -INFINITY, 31};
    if (random_chance(r, 70)) {
        double x = number[random_below(r, 11)];
        if (type.dtype == CVN_U32 && random_chance(r, 10))
            x = UINT32_MAX;
        return cvn_splat(r->g, type, x);
    }
    void *data = calloc(cvn_type_bytes(&type) + 1, 1);
    if (data)
        random_fill(&r->state, &type, data, false);
    cvn_value *v = cvn_constant(r->g, type, data);
    free(data);
    return v;
}

/* A value of exactly this type: an old one, a constant, a scalar stretched, or an iota. */
static inline cvn_value *random_of_type(RandomGraph *r, cvn_type type)
{
    if (random_chance(r, 70)) {
        int start = random_below(r, r->n);
        for (int i = 0; i < r->n; i++) {
            cvn_value *v = r->value[(start + i) % r->n];
            if (cvn_type_equal(&v->type, &type))
                return v;
        }
    }
    if (random_chance(r, 30) && type.rank > 0) {
        cvn_value *scalar = random_of_type(r, cvn_scalar(type.dtype));
        return cvn_broadcast_in_dim(r->g, scalar, type, NULL);
    }
    bool countable = type.dtype != CVN_BOOL && type.dtype != CVN_I4 && type.rank > 0;
    if (random_chance(r, 20) && countable)
        return cvn_iota(r->g, type, random_below(r, type.rank));
    return random_constant(r, type);
}

static inline void random_permutation(RandomGraph *r, int n, int *permutation)
{
    for (int i = 0; i < n; i++) {
        int j = random_below(r, i + 1);
        permutation[i] = permutation[j];
        permutation[j] = i;
    }
}

/* ---- operations: each returns its first result, or NULL when nothing fits ---- */

static inline cvn_value *random_unary(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    return x ? graph_add(r->g, kind, NULL, 1, &x, NULL) : NULL;
}

static inline cvn_value *random_convert(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 0);
    return x ? cvn_convert(r->g, x, (cvn_dtype)random_below(r, CVN_DTYPE_COUNT)) : NULL;
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

static inline cvn_value *random_broadcast(RandomGraph *r, OpKind kind)
{
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

static inline cvn_value *random_cumsum(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    return x ? cvn_cumsum(r->g, x, random_below(r, x->type.rank)) : NULL;
}

static inline cvn_value *random_dot_general(RandomGraph *r, OpKind kind)
{
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

/* A collective among groups of one device. */
static inline cvn_value *random_collective(RandomGraph *r, OpKind kind)
{
    cvn_value *x = random_pick(r, kind, 1);
    const int64_t self[2] = {0, 0};
    if (!r->options.collectives || !x || x->type.dtype == CVN_BOOL || x->type.dtype == CVN_I4)
        return NULL;
    int axis = random_below(r, x->type.rank);
    switch (kind) {
    case OP_ALL_REDUCE:
        return cvn_all_reduce(r->g, x, CVN_SUM, 1, 1, self);
    case OP_ALL_GATHER:
        return cvn_all_gather(r->g, x, axis, 1, 1, self);
    case OP_REDUCE_SCATTER:
        return cvn_reduce_scatter(r->g, x, CVN_MAX, axis, 1, 1, self);
    case OP_ALL_TO_ALL:
        return cvn_all_to_all(r->g, x, axis, random_below(r, x->type.rank), 1, 1, self);
    case OP_COLLECTIVE_PERMUTE:
        return cvn_collective_permute(r->g, x, random_below(r, 2), self);
    default:
        return cvn_partition_id(r->g);
    }
}

/* A quantized weight of 16 or 20 rows, or a product with it. */
static inline cvn_value *random_quantized(RandomGraph *r, OpKind kind, int64_t batch, int64_t dim)
{
    cvn_dtype dtype = random_chance(r, 50) ? CVN_I8 : CVN_I4,
              out = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    int64_t n = random_chance(r, 70) ? 32 : 20, k = dtype == CVN_I4 ? 8 : dim;
    cvn_linear_spec spec = {.contract = 1, .n_weights = 1};
    spec.q[0] = random_of_type(r, panel_type(dtype, n, k));
    spec.scale[0] = random_of_type(r, panel_scale_type(CVN_F32, n, 1));
    if (kind == OP_DEQUANTIZE)
        return random_chance(r, 50)
                   ? cvn_dequantize(r->g, spec.q[0], spec.scale[0], CVN_TYPE(out, n, k), 1)
                   : cvn_dequantize(r->g, spec.q[0], spec.scale[0], CVN_TYPE(out, n / 4, 4, k), 2);
    cvn_value *results[OP_MOST_RESULTS] = {NULL};
    spec.type[0] = spec.type[1] = CVN_TYPE(out, batch, 1, n);
    if (random_chance(r, 50)) {
        spec.n_weights = 2;
        spec.q[1] = spec.q[0];
        spec.scale[1] = spec.scale[0];
        spec.swiglu = random_chance(r, 50);
    } else if (random_chance(r, 50)) {
        spec.residual = random_of_type(r, CVN_TYPE(CVN_F32, batch, 1, n));
    }
    cvn_linear(r->g, random_of_type(r, CVN_TYPE(CVN_BF16, batch, 1, k)), &spec, results);
    return results[0];
}

static inline cvn_value *random_composite(RandomGraph *r, OpKind kind)
{
    cvn_graph *g = r->g;
    if (!r->options.composites)
        return NULL;
    cvn_dtype dtype = random_chance(r, 50) ? CVN_F32 : CVN_BF16;
    int64_t batch = 1 + random_below(r, 2), seq = 1 + random_below(r, 4),
            kv = 1 + random_below(r, 2);
    int64_t group = 1 + random_below(r, 3), dim = 2 + 2 * random_below(r, 2);
    int64_t context = seq + random_below(r, 3), heads = kv * group;
    cvn_type rows = CVN_TYPE(CVN_I32, batch), q = CVN_TYPE(dtype, batch, seq, heads, dim);
    cvn_type cache = CVN_TYPE(dtype, batch, kv, context, dim);
    cvn_value *v[6], *out[3];
    switch (kind) {
    case OP_RMS_NORM:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(dtype, dim));
        return cvn_rms_norm(g, v[0], v[1], 1e-5, random_chance(r, 50) ? CVN_F32 : dtype);
    case OP_ROPE:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(CVN_I32, batch, seq));
        v[2] = random_of_type(r, CVN_TYPE(CVN_F32, dim / 2));
        return cvn_rope(g, v[0], v[1], v[2], random_chance(r, 50));
    case OP_ATTENTION:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, cache);
        v[2] = random_of_type(r, cache);
        v[3] = random_of_type(r, rows);
        v[4] = random_of_type(r, rows);
        return cvn_attention(g, v[0], v[1], v[2], v[3], v[4], 0.5);
    case OP_CACHE_UPDATE:
        v[0] = random_of_type(r, cache);
        v[1] = random_of_type(r, CVN_TYPE(dtype, batch, seq, kv, dim));
        v[2] = random_of_type(r, rows);
        return cvn_cache_update(g, v[0], v[1], v[2]);
    case OP_SOFTMAX_CROSS_ENTROPY:
        v[0] = random_of_type(r, CVN_TYPE(dtype, batch, context));
        v[1] = random_of_type(r, rows);
        cvn_softmax_cross_entropy(g, v[0], v[1], out);
        return out[0];
    case OP_RMS_NORM_BACKWARD:
        v[0] = random_of_type(r, q);
        v[1] = random_of_type(r, CVN_TYPE(dtype, dim));
        v[2] = random_of_type(r, q);
        cvn_rms_norm_backward(g, v[0], v[1], v[2], 1e-5, out);
        return out[0];
    case OP_ATTENTION_BACKWARD:
        for (int i = 0; i < 3; i++)
            v[i] = random_of_type(r, i ? cache : q);
        v[3] = random_of_type(r, rows);
        v[4] = random_of_type(r, rows);
        v[5] = random_of_type(r, q);
        cvn_attention_backward(g, v[0], v[1], v[2], v[3], v[4], v[5], 0.5, out);
        return out[0];
    case OP_SOFTMAX_CROSS_ENTROPY_BACKWARD:
        v[0] = random_of_type(r, CVN_TYPE(dtype, batch, context));
        v[1] = random_of_type(r, rows);
        for (int i = 2; i < 5; i++)
            v[i] = random_of_type(r, CVN_TYPE(CVN_F32, batch));
        return cvn_softmax_cross_entropy_backward(g, v[0], v[1], v[2], v[3], v[4]);
    case OP_DEQUANTIZE:
    case OP_LINEAR:
        return random_quantized(r, kind, batch, dim);
    case OP_ARGMAX: {
        cvn_value *x = random_pick(r, kind, 1);
        int axis = x ? random_below(r, x->type.rank) : 0;
        return x && x->type.dim[axis] > 0 ? cvn_argmax(g, x, axis) : NULL;
    }
    default:
        for (int i = 0; i < 4; i++)
            v[i] = random_of_type(r, CVN_TYPE(CVN_U32, batch, dim));
        return cvn_random_bits(g, v[0], v[1], v[2], v[3]);
    }
}

typedef cvn_value *RandomMaker(RandomGraph *r, OpKind kind);

/* How operations of a kind are drawn; NULL where parameters are made otherwise. */
static inline RandomMaker *random_maker(OpKind kind)
{
    switch (op_info[kind].class_) {
    case CLASS_UNARY:
        return kind == OP_CONVERT ? random_convert : random_unary;
    case CLASS_BINARY:
        return random_binary;
    case CLASS_COLLECTIVE:
        return random_collective;
    case CLASS_COMPOSITE:
        return random_composite;
    case CLASS_CONTROL:
        return random_unary;
    default:
        break;
    }
    static RandomMaker *const table[OP_COUNT] = {
        [OP_CONSTANT] = random_new_constant,
        [OP_IOTA] = random_iota,
        [OP_SELECT] = random_select,
        [OP_CLAMP] = random_clamp,
        [OP_BROADCAST_IN_DIM] = random_broadcast,
        [OP_RESHAPE] = random_reshape,
        [OP_TRANSPOSE] = random_transpose,
        [OP_SLICE] = random_slice,
        [OP_CONCATENATE] = random_concatenate,
        [OP_PAD] = random_pad,
        [OP_REVERSE] = random_reverse,
        [OP_DYNAMIC_SLICE] = random_dynamic_slice,
        [OP_DYNAMIC_UPDATE_SLICE] = random_dynamic_update_slice,
        [OP_GATHER] = random_gather,
        [OP_SCATTER] = random_scatter,
        [OP_SORT] = random_sort,
        [OP_REDUCE] = random_reduce,
        [OP_CUMSUM] = random_cumsum,
        [OP_DOT_GENERAL] = random_dot_general,
    };
    return table[kind];
}

/* ---- graphs ---- */

static inline void random_note(RandomGraph *r, cvn_value *first)
{
    if (!first || first == r->g->poison)
        return;
    for (int i = 0; i < first->def->n_results; i++)
        if (r->n < (int)(sizeof r->value / sizeof *r->value))
            r->value[r->n++] = first->def->result[i];
}

static inline void random_mark(RandomGraph *r, cvn_value *v)
{
    cvn_spec spec = {.rank = v->type.rank};
    if (spec.rank) {
        int d = random_below(r, spec.rank);
        spec.dim[d].n = 1;
        spec.dim[d].axis[0] = random_chance(r, 50) ? "data" : "model";
    }
    cvn_mark_sharding(r->g, v, &spec);
}

/* Everything that nothing uses, and some of the rest, becomes an output. */
static inline void random_outputs(RandomGraph *r)
{
    uint32_t *uses = graph_uses(r->g, &r->g->arena);
    for (int i = 0; i < r->n && !r->g->err.code; i++) {
        cvn_value *v = r->value[i], *into = NULL;
        if (v->def->kind == OP_PARAMETER || (uses[v->id] && random_chance(r, 85)))
            continue;
        for (int p = 0; p < r->g->n_parameters && r->options.into; p++) {
            cvn_value *candidate = r->g->parameter[p];
            bool taken = !cvn_type_equal(&candidate->type, &v->type);
            for (int o = 0; o < r->g->n_outputs; o++)
                taken |= r->g->output[o].into == candidate;
            if (!taken)
                into = candidate;
        }
        if (into)
            cvn_output_into(r->g, v, into);
        else
            cvn_output(r->g, v);
    }
}

/* The graph of a seed; NULL when memory is out. Check it with cvn_graph_check: it is always legal.
 */
static inline cvn_graph *random_graph(uint64_t seed, const RandomOptions *options)
{
    RandomGraph *r = calloc(1, sizeof *r);
    cvn_graph *g = r ? cvn_graph_new("random", NULL) : NULL;
    if (!g) {
        free(r);
        return NULL;
    }
    r->g = g;
    r->options = *options;
    r->state = seed * UINT64_C(0x2545F4914F6CDD1D) + 1;
    for (int i = 0; i < options->n_parameters; i++) {
        static const cvn_dtype common[] = {CVN_F32, CVN_F32, CVN_I32, CVN_BF16, CVN_BOOL};
        bool any = random_chance(r, 30);
        cvn_dtype dtype =
            any ? (cvn_dtype)random_below(r, CVN_DTYPE_COUNT) : common[random_below(r, 5)];
        char name[16] = {'p', (char)('0' + i / 10 % 10), (char)('0' + i % 10)};
        random_note(r, cvn_parameter(g, name, random_type(r, dtype)));
    }
    OpKind kind = OP_CONSTANT;
    for (int i = 0; i < options->n_ops && !g->err.code; i++) {
        if (!random_chance(r, 25)) /* or the same kind again, for chains of them */
            kind = (OpKind)random_below(r, OP_COUNT);
        RandomMaker *maker = random_maker(kind);
        cvn_value *v = NULL;
        if (random_chance(r, 4))
            v = random_split_and_join(r, OP_CONCATENATE);
        else if (maker)
            v = maker(r, kind);
        if (v && options->marks && random_chance(r, 10))
            random_mark(r, v);
        random_note(r, v);
    }
    random_outputs(r);
    free(r);
    return g;
}

#endif
