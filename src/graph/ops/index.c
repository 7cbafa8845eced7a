/*
 * Operations that address by data. Gather and scatter follow the StableHLO specification: each index vector names where a
 * slice of the operand starts; `window` says which dimensions of the result run over the slice, and the others run over
 * the index vectors. Gather, on the example of rows of a table:
 *
 *     table [512,64], indices [4,7]  ->  y [4,7,64]
 *     window=[2] collapsed=[0] index_map=[0] index_vector_dim=2 sizes=[1,64]
 *
 * y[2,5,:]: the dimensions of y that are not in `window`, (2,5), name an index vector, here the one number
 * r = indices[2,5]. index_map says that it is where the slice starts in dimension 0 of the table: start = (r, 0), clamped
 * so that all of the slice is inside. The dimensions of y in `window` run over the slice, without the collapsed ones:
 * place = start + (0, at[2]).
 *
 * Gather clamps its indices so that slices are inside, scatter skips what is outside. So gather's gradient scatters to
 * clamped indices; and scatter's gradient gathers from a tensor with a margin of zeros, as wide as the slice, where the
 * indices that are outside end up:
 *
 *     dy [5], slices of 2, index 4: element 4 is inside, 5 is not
 *     with margins: 0 0 | a b c d e | 0 0      index 4 + 2 reads  e 0
 */
#include "graph/ops/ops.h"

#include <inttypes.h>

/* ---- dynamic_slice and dynamic_update_slice ---- */

cvn_value *cvn_dynamic_slice(cvn_graph *g, cvn_value *x, cvn_value *const *starts,
                             const int64_t *sizes)
{
    cvn_value *operand[1 + CVN_MAX_RANK] = {x};
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++)
        operand[1 + i] = starts[i];
    OpAttr attr = {.sizes = graph_ints(g, rank, sizes)};
    return graph_add(g, OP_DYNAMIC_SLICE, &attr, 1 + rank, operand, NULL);
}

cvn_value *cvn_dynamic_update_slice(cvn_graph *g, cvn_value *x, cvn_value *update,
                                    cvn_value *const *starts)
{
    cvn_value *operand[2 + CVN_MAX_RANK] = {x, update};
    int rank = x->type.rank;
    for (int i = 0; i < rank; i++)
        operand[2 + i] = starts[i];
    return graph_add(g, OP_DYNAMIC_UPDATE_SLICE, NULL, 2 + rank, operand, NULL);
}

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

/* Reads the starts of a slice with these sizes, operands first, first + 1, …, and clamps them into x. */
static void read_starts(const Op *op, const void *const *in, int first, const int64_t *sizes,
                        int64_t *start)
{
    const cvn_type *x = op_in(op, 0);
    for (int d = 0; d < x->rank; d++)
        start[d] = interp_within(interp_get_int(op_in(op, first + d)->dtype, in[first + d], 0), 0,
                                 x->dim[d] - sizes[d]);
}

/* The offset of index start + at. */
static int64_t place_of(int rank, const int64_t *start, const int64_t *at, const int64_t *stride)
{
    int64_t place = 0;
    for (int d = 0; d < rank; d++)
        place += (start[d] + at[d]) * stride[d];
    return place;
}

void interp_dynamic_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    read_starts(op, in, 1, op->attr.sizes.v, start);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at))
        interp_move(y->dtype, out[0], i, in[0], place_of(y->rank, start, at, stride));
}

void interp_dynamic_update_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *update = op_in(op, 1);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    read_starts(op, in, 2, update->dim, start);
    interp_copy(op, in, out);
    for (int64_t i = 0, n = cvn_type_elements(update); i < n;
         i++, index_next(update->rank, update->dim, at))
        interp_move(x->dtype, out[0], place_of(x->rank, start, at, stride), in[1], i);
}

void grad_dynamic_slice(Grad *d, const Op *op)
{
    cvn_value *zeros = like(d->g, op->operand[0], 0);
    grad_give(d, op, 0, cvn_dynamic_update_slice(d->g, zeros, grad_of(d, op, 0), op->operand + 1));
}

void grad_dynamic_update_slice(Grad *d, const Op *op)
{
    cvn_value *dy = grad_of(d, op, 0), *update = op->operand[1], **starts = op->operand + 2;
    if (grad_wants(d, op, 0))
        grad_give(d, op, 0, cvn_dynamic_update_slice(d->g, dy, like(d->g, update, 0), starts));
    if (grad_wants(d, op, 1))
        grad_give(d, op, 1, cvn_dynamic_slice(d->g, dy, starts, update->type.dim));
}

void factors_dynamic_slice(const Op *op, Rule *rule)
{
    int result = rule->n_operands;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = op_in(op, 0)->dim[d] == op_out(op, 0)->dim[d];
        if (whole) {
            int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
            rule_put(rule, 0, d, f);
            rule_put(rule, result, d, f);
        } else {
            rule_put(rule, 0, d, rule_add(rule, op_in(op, 0)->dim[d], FACTOR_WHOLE));
            rule_put(rule, result, d, rule_add(rule, op_out(op, 0)->dim[d], FACTOR_WHOLE));
        }
    }
}

void factors_dynamic_update_slice(const Op *op, Rule *rule)
{
    int result = rule->n_operands;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = op_in(op, 0)->dim[d] == op_in(op, 1)->dim[d];
        int f = whole ? rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS)
                      : rule_add_local(rule, op_out(op, 0)->dim[d], FACTOR_PASS, LOCAL_INDEX);
        rule_put(rule, 0, d, f);
        rule_put(rule, result, d, f);
        rule_put(rule, 1, d, whole ? f : rule_add(rule, op_in(op, 1)->dim[d], FACTOR_WHOLE));
    }
}

/* The starts of a dynamic slice or update, operands first, first + 1, …, have one type in StableHLO: i64 where ours
   differ. */
static void dynamic(Hlo *h, const Op *op, int first)
{
    const char *operands = NULL, *types = NULL;
    bool same = true;
    for (int i = first; i < op->n_operands; i++)
        same &= op->operand[i]->type.dtype == op->operand[first]->type.dtype;
    for (int i = 0; i < op->n_operands; i++) {
        const char *text = hlo_ref(h, op->operand[i]);
        const char *type = hlo_tensor(h, &op->operand[i]->type);
        if (i >= first && !same) {
            const char *temp = hlo_temp(h);
            hlo_call(h, &(HloCall){.result = temp,
                                   .name = "convert",
                                   .operands = text,
                                   .operand_types = type,
                                   .result_types = "tensor<i64>"});
            text = temp;
            type = "tensor<i64>";
        }
        operands = i ? arena_printf(&h->arena, "%s, %s", operands, text) : text;
        types = i ? arena_printf(&h->arena, "%s, %s", types, type) : type;
    }
    hlo_call(h, &(HloCall){.result = hlo_results(h, op),
                           .name = op_info[op->kind].name,
                           .operands = operands,
                           .operand_types = types,
                           .attrs = hlo_attrs(h, op),
                           .result_types = hlo_tensor(h, &op->result[0]->type)});
}

void hlo_dynamic_slice(Hlo *h, const Op *op)
{
    dynamic(h, op, 1);
}

void hlo_dynamic_update_slice(Hlo *h, const Op *op)
{
    dynamic(h, op, 2);
}

/* ---- what gather and scatter share ---- */

static OpAttr index_attr(cvn_graph *g, const cvn_gather_dims *d)
{
    return (OpAttr){.window = build_list(g, d->n_window, d->window),
                    .collapsed = build_list(g, d->n_collapsed, d->collapsed),
                    .operand_batch = build_list(g, d->n_operand_batch, d->operand_batch),
                    .index_batch = build_list(g, d->n_index_batch, d->index_batch),
                    .index_map = build_list(g, d->n_index_map, d->index_map),
                    .index_vector_dim = d->index_vector_dim};
}

/* Checks the dimension numbers against operand and indices. */
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

/* The start, in each dimension of the operand, that the index vector says which belongs to index
   `at` (of rank `rank`) of gather's result or scatter's updates. Not clamped. */
static void index_start(const Op *op, const void *indices, int rank, const int64_t *at,
                        int64_t start[CVN_MAX_RANK])
{
    const OpAttr *a = &op->attr;
    const cvn_type *type = op_in(op, 1);
    int64_t stride[CVN_MAX_RANK + 1] = {0}, where[CVN_MAX_RANK + 1] = {0};
    type_strides(type, stride);
    for (int d = 0, e = 0; d < rank; d++) {
        if (ints_contain(&a->window, d))
            continue;
        e += e == a->index_vector_dim;
        where[e++] = at[d];
    }
    int64_t vector = 0;
    for (int d = 0; d < type->rank; d++)
        vector += where[d] * stride[d];
    for (int d = 0; d < CVN_MAX_RANK; d++)
        start[d] = 0;
    for (int k = 0; k < a->index_map.n; k++) /* stride is 0 where index_vector_dim = rank */
        start[a->index_map.v[k]] =
            interp_get_int(type->dtype, indices, vector + k * stride[a->index_vector_dim]);
    for (int k = 0; k < a->operand_batch.n; k++)
        start[a->operand_batch.v[k]] = where[a->index_batch.v[k]];
}

/* The offset inside the slice, in each dimension of the operand, of index `at`. */
static void window_offset(const Op *op, const int64_t *at, int64_t offset[CVN_MAX_RANK])
{
    const OpAttr *a = &op->attr;
    for (int d = 0, w = 0; d < op_in(op, 0)->rank; d++) {
        bool dropped = ints_contain(&a->collapsed, d) || ints_contain(&a->operand_batch, d);
        offset[d] = dropped ? 0 : at[a->window.v[w++]];
    }
}

/* A value for each component of the index vectors, in the type of the indices. */
static cvn_value *per_component(cvn_graph *g, const Op *op, const cvn_type *indices,
                                const int64_t *value)
{
    int n = op->attr.index_map.n, at = (int)op->attr.index_vector_dim;
    if (at == indices->rank)
        return cvn_splat(g, *indices, (double)value[0]);
    int32_t data[CVN_MAX_RANK] = {0};
    for (int i = 0; i < n; i++)
        data[i] = (int32_t)value[i];
    cvn_value *row = cvn_constant(g, CVN_TYPE(indices->dtype, n), data);
    return cvn_broadcast_in_dim(g, row, *indices, &at);
}

/* A scatter with the dimension numbers of op, which is a scatter or a gather. */
static cvn_value *scatter_like(cvn_graph *g, const Op *op, Combine combine, cvn_value *x,
                               cvn_value *indices, cvn_value *updates)
{
    OpAttr attr = op->attr;
    attr.combine = combine;
    attr.sizes = (Ints){0};
    return graph_add(g, OP_SCATTER, &attr, 3, (cvn_value *[]){x, indices, updates}, NULL);
}

/* The dimension of a gather's result (scatter's updates) that runs over dimension e of the indices.
   The dimensions that are not window run over them in order, without the index vectors' own. */
static int64_t index_slot(const OpAttr *a, int rank, int64_t e)
{
    int64_t index = 0, slot = -1;
    for (int64_t d = 0; d < rank && slot < 0; d++) {
        if (ints_contain(&a->window, d))
            continue;
        index += index == a->index_vector_dim;
        if (index++ == e)
            slot = d;
    }
    assert(slot >= 0);
    return slot;
}

/* Gives factors to the indices, and to the dimensions of tensor `slots` that run over them. */
static void index_dims(const Op *op, Rule *rule, int slots, const cvn_type *type, FactorKind kind,
                       FactorLocal local)
{
    const OpAttr *a = &op->attr;
    for (int e = 0; e < op_in(op, 1)->rank; e++) {
        int64_t size = op_in(op, 1)->dim[e];
        if (e == a->index_vector_dim) {
            rule_put(rule, 1, e, rule_add(rule, size, FACTOR_WHOLE));
            continue;
        }
        bool batch = ints_contain(&a->index_batch, e);
        int f = batch ? rule_add(rule, size, FACTOR_PASS) : rule_add_local(rule, size, kind, local);
        rule_put(rule, 1, e, f);
        rule_put(rule, slots, index_slot(a, type->rank, e), f);
        for (int i = 0; batch && i < a->index_batch.n; i++) {
            if (a->index_batch.v[i] != e)
                continue;
            rule_put(rule, 0, a->operand_batch.v[i], f);
            if (op->kind == OP_SCATTER)
                rule_put(rule, 3, a->operand_batch.v[i], f);
        }
    }
}

/* ", name = [1, 2]", or nothing: readers of old versions do not know batching dimensions. */
static const char *optional_list(Hlo *h, const char *name, const Ints *ints)
{
    return ints->n ? arena_printf(&h->arena, ", %s = %s", name, hlo_list(h, ints)) : "";
}

/* ---- gather ---- */

cvn_value *cvn_gather(cvn_graph *g, cvn_value *x, cvn_value *indices, const cvn_gather_dims *dims,
                      const int64_t *slice_sizes)
{
    OpAttr attr = index_attr(g, dims);
    attr.sizes = graph_ints(g, x->type.rank, slice_sizes);
    return graph_add(g, OP_GATHER, &attr, 2, (cvn_value *[]){x, indices}, NULL);
}

cvn_value *cvn_take_rows(cvn_graph *g, cvn_value *table, cvn_value *indices)
{
    int rank = table->type.rank, index_rank = indices->type.rank;
    if (rank < 1 || rank - 1 + index_rank > CVN_MAX_RANK) {
        graph_fail(g, CVN_ESHAPE, "take_rows: a table of rank %d and indices of rank %d", rank,
                   index_rank);
        return g->poison;
    }
    cvn_gather_dims dims = {
        .n_window = rank - 1, .n_collapsed = 1, .n_index_map = 1, .index_vector_dim = index_rank};
    int64_t sizes[CVN_MAX_RANK] = {1};
    for (int i = 0; i < rank - 1; i++) {
        dims.window[i] = index_rank + i;
        sizes[i + 1] = table->type.dim[i + 1];
    }
    return cvn_gather(g, table, indices, &dims, sizes);
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

void interp_gather(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], offset[CVN_MAX_RANK];
    int64_t at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at)) {
        index_start(op, in[1], y->rank, at, start);
        window_offset(op, at, offset);
        for (int d = 0; d < x->rank; d++)
            start[d] = interp_within(start[d], 0, x->dim[d] - op->attr.sizes.v[d]);
        interp_move(x->dtype, out[0], i, in[0], place_of(x->rank, start, offset, stride));
    }
}

/* The gradient is a scatter-add to where the slices came from. Its updates are applied in row-major order. */
void grad_gather(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *x = op->operand[0], *indices = op->operand[1];
    int64_t most[CVN_MAX_RANK] = {0};
    for (int k = 0; k < op->attr.index_map.n; k++) {
        int64_t dim = op->attr.index_map.v[k];
        most[k] = x->type.dim[dim] - op->attr.sizes.v[dim];
    }
    cvn_value *least = cvn_splat(g, cvn_scalar(indices->type.dtype), 0);
    indices = cvn_clamp(g, least, indices, per_component(g, op, &indices->type, most));
    /* Sums of 16-bit floats are kept in f32 while they are being added up. */
    const cvn_type sum = with_dtype(x->type, x->type.dtype == CVN_F64 ? CVN_F64 : CVN_F32);
    cvn_value *dy = as(g, grad_of(d, op, 0), sum.dtype);
    cvn_value *zeros = cvn_splat(g, sum, 0);
    cvn_value *dx = scatter_like(g, op, COMBINE_ADD, zeros, indices, dy);
    grad_give(d, op, 0, as(g, dx, x->type.dtype));
}

/* Rows of a table split by rows: each device looks up what it has, and the sum is the result. */
void factors_gather(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    cvn_dtype dtype = op_out(op, 0)->dtype;
    index_dims(op, rule, 2, op_out(op, 0), FACTOR_PASS, LOCAL_PLAIN);
    for (int d = 0, w = 0; d < op_in(op, 0)->rank; d++) {
        int64_t size = op_in(op, 0)->dim[d];
        if (ints_contain(&a->operand_batch, d))
            continue;
        if (ints_contain(&a->collapsed, d)) {
            bool split = ints_contain(&a->index_map, d) && dtype != CVN_I4;
            int f = rule_add_local(rule, size, split ? FACTOR_REDUCE : FACTOR_WHOLE,
                                   split ? LOCAL_INDEX : LOCAL_PLAIN);
            if (f != NO_FACTOR && dtype == CVN_BOOL)
                rule->factor[f].how = CVN_ANY;
            rule_put(rule, 0, d, f);
            continue;
        }
        int64_t slot = a->window.v[w++];
        int f = rule_add(rule, size, a->sizes.v[d] == size ? FACTOR_PASS : FACTOR_WHOLE);
        rule_put(rule, 0, d, f);
        rule_put(rule, 2, slot,
                 a->sizes.v[d] == size ? f : rule_add(rule, a->sizes.v[d], FACTOR_WHOLE));
    }
}

void hlo_gather(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    const char *attrs = arena_printf(
        &h->arena,
        "dimension_numbers = #stablehlo.gather<offset_dims = %s, collapsed_slice_dims = %s%s%s, "
        "start_index_map = %s, index_vector_dim = %" PRId64 ">, %s, indices_are_sorted = false",
        hlo_list(h, &a->window), hlo_list(h, &a->collapsed),
        optional_list(h, "operand_batching_dims", &a->operand_batch),
        optional_list(h, "start_indices_batching_dims", &a->index_batch),
        hlo_list(h, &a->index_map), a->index_vector_dim, hlo_attrs(h, op));
    hlo_op(h, op, "gather", NULL, attrs);
}

/* ---- scatter ---- */

static cvn_value *scatter(cvn_graph *g, Combine combine, cvn_value *x, cvn_value *indices,
                          cvn_value *updates, const cvn_gather_dims *dims)
{
    OpAttr attr = index_attr(g, dims);
    attr.combine = combine;
    return graph_add(g, OP_SCATTER, &attr, 3, (cvn_value *[]){x, indices, updates}, NULL);
}

cvn_value *cvn_scatter_add(cvn_graph *g, cvn_value *x, cvn_value *indices, cvn_value *updates,
                           const cvn_gather_dims *dims)
{
    return scatter(g, COMBINE_ADD, x, indices, updates, dims);
}

cvn_value *cvn_scatter_assign(cvn_graph *g, cvn_value *x, cvn_value *indices, cvn_value *updates,
                              const cvn_gather_dims *dims)
{
    return scatter(g, COMBINE_ASSIGN, x, indices, updates, dims);
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

/* Takes the updates in row-major order; an element whose place is outside is skipped. Each addition
   is rounded to the dtype of the tensor. */
void interp_scatter(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *u = op_in(op, 2);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], offset[CVN_MAX_RANK];
    int64_t at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    interp_copy(op, in, out);
    for (int64_t i = 0, n = cvn_type_elements(u); i < n; i++, index_next(u->rank, u->dim, at)) {
        index_start(op, in[1], u->rank, at, start);
        window_offset(op, at, offset);
        bool inside = true;
        for (int d = 0; d < x->rank; d++)
            inside = inside && start[d] + offset[d] >= 0 && start[d] + offset[d] < x->dim[d];
        if (!inside)
            continue;
        int64_t to = place_of(x->rank, start, offset, stride);
        if (op->attr.combine == COMBINE_ASSIGN)
            interp_move(x->dtype, out[0], to, in[2], i);
        else if (dtype_is_float(x->dtype))
            element_set(x->dtype, out[0], to,
                        element_get(x->dtype, out[0], to) + element_get(x->dtype, in[2], i));
        else
            interp_set_int(x->dtype, out[0], to,
                           interp_get_int(x->dtype, out[0], to) +
                               interp_get_int(x->dtype, in[2], i));
    }
}

cvn_value *grad_gather_updates(cvn_graph *g, const Op *op, cvn_value *x)
{
    const OpAttr *a = &op->attr;
    cvn_value *indices = as(g, op->operand[1], CVN_I32);
    const cvn_type *updates = &op->operand[2]->type;
    int64_t size[CVN_MAX_RANK], margin[CVN_MAX_RANK] = {0}, none[CVN_MAX_RANK] = {0};
    int64_t least[CVN_MAX_RANK] = {0}, most[CVN_MAX_RANK] = {0}, shift[CVN_MAX_RANK] = {0};
    for (int i = 0, w = 0; i < x->type.rank; i++) {
        bool dropped = ints_contain(&a->collapsed, i) || ints_contain(&a->operand_batch, i);
        size[i] = dropped ? 1 : updates->dim[a->window.v[w++]];
    }
    for (int k = 0; k < a->index_map.n; k++) {
        int64_t dim = a->index_map.v[k];
        margin[dim] = shift[k] = size[dim];
        least[k] = -size[dim];
        most[k] = x->type.dim[dim];
    }
    const cvn_type *shape = &indices->type;
    cvn_value *low = per_component(g, op, shape, least), *high = per_component(g, op, shape, most);
    cvn_value *inside = cvn_clamp(g, low, indices, high);
    inside = cvn_add(g, inside, per_component(g, op, shape, shift));
    cvn_value *zero = cvn_splat(g, cvn_scalar(x->type.dtype), 0);
    OpAttr attr = op->attr;
    attr.combine = COMBINE_ASSIGN; /* which is 0: a gather has no such attribute */
    attr.sizes = graph_ints(g, x->type.rank, size);
    x = cvn_pad(g, x, zero, margin, margin, none);
    return graph_add(g, OP_GATHER, &attr, 2, (cvn_value *[]){x, inside}, NULL);
}

/* An assignment: what was overwritten has no gradient, and of updates to one place only the last has
   one. Each update is given a number; the numbers that stand in the result say which were last. */
static void grad_scatter_assign(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *x = op->operand[0], *indices = op->operand[1], *updates = op->operand[2];
    cvn_value *dy = grad_of(d, op, 0);
    if (grad_wants(d, op, 0)) {
        cvn_value *zeros = like(g, updates, 0);
        grad_give(d, op, 0, scatter_like(g, op, COMBINE_ASSIGN, dy, indices, zeros));
    }
    if (!grad_wants(d, op, 2))
        return;
    int64_t n = cvn_type_elements(&updates->type);
    cvn_value *count = cvn_iota(g, CVN_TYPE(CVN_I32, n), 0);
    count = cvn_add(g, count, like(g, count, 1)); /* 0 stands for none */
    count = cvn_reshape(g, count, updates->type.rank, updates->type.dim);
    cvn_value *places = cvn_splat(g, with_dtype(x->type, CVN_I32), 0);
    cvn_value *writer = scatter_like(g, op, COMBINE_ASSIGN, places, indices, count);
    cvn_value *last = cvn_compare_values(g, CVN_EQ, grad_gather_updates(g, op, writer), count);
    grad_give(d, op, 2, where(g, last, grad_gather_updates(g, op, dy)));
}

void grad_scatter(Grad *d, const Op *op)
{
    if (op->attr.combine == COMBINE_ASSIGN) {
        grad_scatter_assign(d, op);
        return;
    }
    cvn_value *dy = grad_of(d, op, 0);
    grad_give(d, op, 0, dy);
    if (grad_wants(d, op, 2))
        grad_give(d, op, 2, grad_gather_updates(d->g, op, dy));
}

/* Updates that are split among devices make partial sums, where they are added; where they
   replace, their order counts and they are needed whole. A window that an index moves may hang over
   the end, and what hangs over is skipped: it does not pass even when it has the full size. */
void factors_scatter(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    const cvn_type *updates = op_in(op, 2);
    bool adds = a->combine == COMBINE_ADD;
    index_dims(op, rule, 2, updates, adds ? FACTOR_REDUCE : FACTOR_WHOLE,
               adds ? LOCAL_ONCE : LOCAL_PLAIN);
    for (int d = 0, w = 0; d < op_out(op, 0)->rank; d++) {
        int64_t size = op_out(op, 0)->dim[d];
        int f;
        if (ints_contain(&a->operand_batch, d))
            continue;
        if (ints_contain(&a->collapsed, d)) {
            bool split = ints_contain(&a->index_map, d);
            f = rule_add_local(rule, size, split ? FACTOR_PASS : FACTOR_WHOLE,
                               split ? LOCAL_INDEX : LOCAL_PLAIN);
        } else {
            int64_t slot = a->window.v[w++], n = updates->dim[slot];
            bool whole = n == size && !ints_contain(&a->index_map, d);
            f = rule_add(rule, size, whole ? FACTOR_PASS : FACTOR_WHOLE);
            rule_put(rule, 2, slot, whole ? f : rule_add(rule, n, FACTOR_WHOLE));
        }
        rule_put(rule, 0, d, f);
        rule_put(rule, 3, d, f);
    }
}

void hlo_scatter(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    cvn_dtype dtype = op->result[0]->type.dtype;
    const char *attrs = arena_printf(
        &h->arena,
        "scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = %s, "
        "inserted_window_dims = %s%s%s, scatter_dims_to_operand_dims = %s, index_vector_dim = "
        "%" PRId64 ">, indices_are_sorted = false, unique_indices = false",
        hlo_list(h, &a->window), hlo_list(h, &a->collapsed),
        optional_list(h, "input_batching_dims", &a->operand_batch),
        optional_list(h, "scatter_indices_batching_dims", &a->index_batch),
        hlo_list(h, &a->index_map), a->index_vector_dim);
    const cvn_type scalar = cvn_scalar(dtype);
    const char *t = hlo_tensor(h, &scalar);
    const char *region = a->combine == COMBINE_ADD
                             ? hlo_reducer(h, CVN_SUM, dtype)
                             : arena_printf(&h->arena, /* the update is kept */
                                            "{\n    ^bb0(%%$a: %s, %%$b: %s):\n"
                                            "      \"stablehlo.return\"(%%$b) : (%s) -> ()\n    }",
                                            t, t, t);
    hlo_op(h, op, "scatter", region, attrs);
}
