/*
 * The public builder: each function packs its arguments into attributes and calls graph_add. All
 * checking is in infer.c; here only what would be unsafe to look at is guarded (NULL is never
 * returned, so values are never NULL; after an error everything is the poison value and graph_add
 * does nothing).
 */
#include "graph/blocks.h"

#include <string.h>

/* Builders of operations that are no more than their operands: cvn_NAME appends an OP_KIND. */
#define UNARY(name, KIND)                                                                          \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *x)                                              \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 1, &x, NULL);                                         \
    }
#define BINARY(name, KIND)                                                                         \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *a, cvn_value *b)                                \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 2, (cvn_value *[]){a, b}, NULL);                      \
    }

#define TERNARY(name, KIND)                                                                        \
    cvn_value *cvn_##name(cvn_graph *g, cvn_value *a, cvn_value *b, cvn_value *c)                  \
    {                                                                                              \
        return graph_add(g, OP_##KIND, NULL, 3, (cvn_value *[]){a, b, c}, NULL);                   \
    }

UNARY(negate, NEGATE)
UNARY(abs, ABS)
UNARY(sign, SIGN)
UNARY(exponential, EXPONENTIAL)
UNARY(log, LOG)
UNARY(log_plus_one, LOG_PLUS_ONE)
UNARY(exponential_minus_one, EXPONENTIAL_MINUS_ONE)
UNARY(sqrt, SQRT)
UNARY(rsqrt, RSQRT)
UNARY(tanh, TANH)
UNARY(logistic, LOGISTIC)
UNARY(sine, SINE)
UNARY(cosine, COSINE)
UNARY(floor, FLOOR)
UNARY(not, NOT)
UNARY(is_finite, IS_FINITE)
UNARY(optimization_barrier, OPTIMIZATION_BARRIER)

BINARY(add, ADD)
BINARY(subtract, SUBTRACT)
BINARY(multiply, MULTIPLY)
BINARY(divide, DIVIDE)
BINARY(maximum, MAXIMUM)
BINARY(minimum, MINIMUM)
BINARY(power, POWER)
BINARY(remainder, REMAINDER)
BINARY(and, AND)
BINARY(or, OR)
BINARY(xor, XOR)
BINARY(shift_left, SHIFT_LEFT)
BINARY(shift_right_logical, SHIFT_RIGHT_LOGICAL)

TERNARY(select, SELECT)
TERNARY(clamp, CLAMP)
TERNARY(cache_update, CACHE_UPDATE)

/* A list that the caller has in an array of CVN_MAX_RANK. */
static Ints rank_list(cvn_graph *g, int n, const int64_t *v)
{
    if (n > CVN_MAX_RANK) {
        graph_fail(g, CVN_EINVAL, "%d dimensions were given; at most %d", n, CVN_MAX_RANK);
        return (Ints){0};
    }
    return graph_ints(g, n, v);
}

static Ints int_list(cvn_graph *g, int n, const int *v)
{
    int64_t wide[CVN_MAX_RANK] = {0};
    for (int i = 0; i < n && i < CVN_MAX_RANK; i++)
        wide[i] = v[i];
    return rank_list(g, n, wide);
}

cvn_value *cvn_parameter(cvn_graph *g, const char *name, cvn_type type)
{
    OpAttr attr = {.name = graph_string(g, name ? name : "")};
    cvn_value *v = graph_add(g, OP_PARAMETER, &attr, 0, NULL, &type);
    if (v != g->poison)
        v->name = attr.name;
    return v;
}

void cvn_output(cvn_graph *g, cvn_value *v)
{
    cvn_output_into(g, v, NULL);
}

void cvn_output_into(cvn_graph *g, cvn_value *v, cvn_value *parameter)
{
    if (g->err.code)
        return;
    char a[TYPE_TEXT], b[TYPE_TEXT];
    if (parameter && parameter->def->kind != OP_PARAMETER)
        graph_fail(g, CVN_EINVAL, "an output can only be computed into a parameter, not into a %s",
                   op_info[parameter->def->kind].name);
    else if (parameter && !cvn_type_equal(&v->type, &parameter->type))
        graph_fail(g, CVN_ESHAPE, "an output %s cannot be computed into parameter '%s' of type %s",
                   type_text(&v->type, a, sizeof a), parameter->def->attr.name,
                   type_text(&parameter->type, b, sizeof b));
    for (int i = 0; i < g->n_outputs && parameter && !g->err.code; i++)
        if (g->output[i].into == parameter)
            graph_fail(g, CVN_EINVAL, "two outputs are computed into parameter '%s'",
                       parameter->def->attr.name);
    if (g->err.code)
        return;
    Output *list = graph_more(g, g->output, (size_t)g->n_outputs, sizeof *g->output);
    if (!list)
        return;
    g->output = list;
    g->output[g->n_outputs++] = (Output){.value = v, .into = parameter};
}

cvn_value *cvn_splat(cvn_graph *g, cvn_type type, double value)
{
    if ((unsigned)type.dtype >= CVN_DTYPE_COUNT) {
        graph_fail(g, CVN_EINVAL, "a constant needs an element type");
        return g->poison;
    }
    size_t bytes = cvn_dtype_bytes(type.dtype, 1);
    void *data = graph_alloc(g, bytes);
    if (!data)
        return g->poison;
    element_set(type.dtype, data, 0, value);
    OpAttr attr = {.literal = {true, bytes, data}};
    return graph_add(g, OP_CONSTANT, &attr, 0, NULL, &type);
}

cvn_value *cvn_constant(cvn_graph *g, cvn_type type, const void *data)
{
    const char *fault = type_fault(&type);
    if (fault) {
        graph_fail(g, CVN_ESHAPE, "constant: its type %s", fault);
        return g->poison;
    }
    size_t bytes = cvn_type_bytes(&type);
    void *copy = graph_alloc(g, bytes);
    if (!copy)
        return g->poison;
    if (bytes)
        memcpy(copy, data, bytes);
    OpAttr attr = {.literal = {false, bytes, copy}};
    return graph_add(g, OP_CONSTANT, &attr, 0, NULL, &type);
}

cvn_value *cvn_iota(cvn_graph *g, cvn_type type, int axis)
{
    return graph_add(g, OP_IOTA, &(OpAttr){.axis = axis}, 0, NULL, &type);
}

cvn_value *cvn_convert(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    cvn_type want = x->type;
    want.dtype = dtype;
    return graph_add(g, OP_CONVERT, NULL, 1, &x, &want);
}

cvn_value *cvn_compare_values(cvn_graph *g, cvn_compare direction, cvn_value *a, cvn_value *b)
{
    OpAttr attr = {.compare = direction};
    return graph_add(g, OP_COMPARE, &attr, 2, (cvn_value *[]){a, b}, NULL);
}

cvn_value *cvn_broadcast_in_dim(cvn_graph *g, cvn_value *x, cvn_type type, const int *dims)
{
    OpAttr attr = {.dims = int_list(g, x->type.rank, dims)};
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

cvn_value *cvn_reshape(cvn_graph *g, cvn_value *x, int rank, const int64_t *dim)
{
    if (rank < 0 || rank > CVN_MAX_RANK) {
        graph_fail(g, CVN_ESHAPE, "reshape: rank %d is not in 0 to %d", rank, CVN_MAX_RANK);
        return g->poison;
    }
    cvn_type want = cvn_type_make(x->type.dtype, rank, dim);
    return graph_add(g, OP_RESHAPE, NULL, 1, &x, &want);
}

cvn_value *cvn_transpose(cvn_graph *g, cvn_value *x, const int *permutation)
{
    OpAttr attr = {.dims = int_list(g, x->type.rank, permutation)};
    return graph_add(g, OP_TRANSPOSE, &attr, 1, &x, NULL);
}

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

cvn_value *cvn_concatenate(cvn_graph *g, int n, cvn_value *const *x, int axis)
{
    return graph_add(g, OP_CONCATENATE, &(OpAttr){.axis = axis}, n, x, NULL);
}

cvn_value *cvn_pad(cvn_graph *g, cvn_value *x, cvn_value *value, const int64_t *low,
                   const int64_t *high, const int64_t *interior)
{
    int rank = x->type.rank;
    OpAttr attr = {.start = graph_ints(g, rank, low),
                   .limit = graph_ints(g, rank, high),
                   .stride = graph_ints(g, rank, interior)};
    return graph_add(g, OP_PAD, &attr, 2, (cvn_value *[]){x, value}, NULL);
}

cvn_value *cvn_reverse(cvn_graph *g, cvn_value *x, int n, const int *dims)
{
    OpAttr attr = {.dims = int_list(g, n, dims)};
    return graph_add(g, OP_REVERSE, &attr, 1, &x, NULL);
}

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

static OpAttr index_attr(cvn_graph *g, const cvn_gather_dims *d)
{
    return (OpAttr){.window = rank_list(g, d->n_window, d->window),
                    .collapsed = rank_list(g, d->n_collapsed, d->collapsed),
                    .operand_batch = rank_list(g, d->n_operand_batch, d->operand_batch),
                    .index_batch = rank_list(g, d->n_index_batch, d->index_batch),
                    .index_map = rank_list(g, d->n_index_map, d->index_map),
                    .index_vector_dim = d->index_vector_dim};
}

cvn_value *cvn_gather(cvn_graph *g, cvn_value *x, cvn_value *indices, const cvn_gather_dims *dims,
                      const int64_t *slice_sizes)
{
    OpAttr attr = index_attr(g, dims);
    attr.sizes = graph_ints(g, x->type.rank, slice_sizes);
    return graph_add(g, OP_GATHER, &attr, 2, (cvn_value *[]){x, indices}, NULL);
}

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

cvn_value *cvn_sort(cvn_graph *g, cvn_value *x, int axis, bool descending)
{
    OpAttr attr = {.axis = axis, .flag = descending};
    return graph_add(g, OP_SORT, &attr, 1, &x, NULL);
}

/* The n results of an operation, of which `first` is the first; or the poison value in their place. */
static void all_results(cvn_graph *g, cvn_value *first, int n, cvn_value **out)
{
    for (int i = 0; i < n; i++)
        out[i] = first == g->poison ? first : first->def->result[i];
}

void cvn_sort_pair(cvn_graph *g, cvn_value *key, cvn_value *payload, int axis, bool descending,
                   cvn_value *out[2])
{
    OpAttr attr = {.axis = axis, .flag = descending};
    all_results(g, graph_add(g, OP_SORT, &attr, 2, (cvn_value *[]){key, payload}, NULL), 2, out);
}

cvn_value *cvn_reduce_dims(cvn_graph *g, cvn_reduce kind, cvn_value *x, int n, const int *dims)
{
    OpAttr attr = {.reduce = kind, .dims = int_list(g, n, dims)};
    return graph_add(g, OP_REDUCE, &attr, 1, &x, NULL);
}

cvn_value *cvn_cumsum(cvn_graph *g, cvn_value *x, int axis)
{
    return graph_add(g, OP_CUMSUM, &(OpAttr){.axis = axis}, 1, &x, NULL);
}

cvn_value *cvn_dot_general(cvn_graph *g, cvn_value *lhs, cvn_value *rhs, const cvn_dot_dims *dims,
                           cvn_dtype dtype)
{
    OpAttr attr = {.lhs_batch = rank_list(g, dims->n_batch, dims->lhs_batch),
                   .rhs_batch = rank_list(g, dims->n_batch, dims->rhs_batch),
                   .lhs_contract = rank_list(g, dims->n_contract, dims->lhs_contract),
                   .rhs_contract = rank_list(g, dims->n_contract, dims->rhs_contract)};
    cvn_type want = cvn_scalar(dtype);
    return graph_add(g, OP_DOT_GENERAL, &attr, 2, (cvn_value *[]){lhs, rhs}, &want);
}

/* A list of n times `each` device ids. */
static Ints device_list(cvn_graph *g, int n, int each, const int64_t *id)
{
    int all = 0;
    if (__builtin_mul_overflow(n, each, &all))
        graph_fail(g, CVN_EINVAL, "%d times %d devices are too many", n, each);
    return graph_ints(g, g->err.code ? 0 : all, id);
}

/* A collective within groups of devices. */
static cvn_value *in_groups(cvn_graph *g, OpKind kind, OpAttr attr, cvn_value *x, int n_groups,
                            int group_size, const int64_t *groups)
{
    attr.group_size = group_size;
    attr.groups = device_list(g, n_groups, group_size, groups);
    return graph_add(g, kind, &attr, 1, &x, NULL);
}

cvn_value *cvn_all_reduce(cvn_graph *g, cvn_value *x, cvn_reduce kind, int n_groups, int group_size,
                          const int64_t *groups)
{
    return in_groups(g, OP_ALL_REDUCE, (OpAttr){.reduce = kind}, x, n_groups, group_size, groups);
}

cvn_value *cvn_all_gather(cvn_graph *g, cvn_value *x, int axis, int n_groups, int group_size,
                          const int64_t *groups)
{
    return in_groups(g, OP_ALL_GATHER, (OpAttr){.axis = axis}, x, n_groups, group_size, groups);
}

cvn_value *cvn_reduce_scatter(cvn_graph *g, cvn_value *x, cvn_reduce kind, int axis, int n_groups,
                              int group_size, const int64_t *groups)
{
    const OpAttr attr = {.reduce = kind, .axis = axis};
    return in_groups(g, OP_REDUCE_SCATTER, attr, x, n_groups, group_size, groups);
}

cvn_value *cvn_all_to_all(cvn_graph *g, cvn_value *x, int split_axis, int concat_axis, int n_groups,
                          int group_size, const int64_t *groups)
{
    const OpAttr attr = {.axis = split_axis, .concat_axis = concat_axis};
    return in_groups(g, OP_ALL_TO_ALL, attr, x, n_groups, group_size, groups);
}

cvn_value *cvn_collective_permute(cvn_graph *g, cvn_value *x, int n, const int64_t *pairs)
{
    OpAttr attr = {.groups = device_list(g, n, 2, pairs)};
    return graph_add(g, OP_COLLECTIVE_PERMUTE, &attr, 1, &x, NULL);
}

cvn_value *cvn_partition_id(cvn_graph *g)
{
    return graph_add(g, OP_PARTITION_ID, NULL, 0, NULL, NULL);
}

cvn_value *cvn_rms_norm(cvn_graph *g, cvn_value *x, cvn_value *weight, double eps, cvn_dtype dtype)
{
    cvn_type want = x->type;
    want.dtype = dtype;
    OpAttr attr = {.eps = eps};
    return graph_add(g, OP_RMS_NORM, &attr, 2, (cvn_value *[]){x, weight}, &want);
}

cvn_value *cvn_rope(cvn_graph *g, cvn_value *x, cvn_value *positions, cvn_value *inv_freq,
                    bool interleaved)
{
    OpAttr attr = {.flag = interleaved};
    return graph_add(g, OP_ROPE, &attr, 3, (cvn_value *[]){x, positions, inv_freq}, NULL);
}

cvn_value *cvn_attention(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v, cvn_value *start,
                         cvn_value *length, cvn_value *first, double scale)
{
    OpAttr attr = {.scale = scale};
    cvn_value *operand[] = {q, k, v, start, length, first};
    return graph_add(g, OP_ATTENTION, &attr, first ? 6 : 5, operand, NULL);
}

cvn_value *cvn_attention_quantized(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *k_scale,
                                   cvn_value *v, cvn_value *v_scale, cvn_value *start,
                                   cvn_value *length, double scale)
{
    OpAttr attr = {.scale = scale};
    cvn_value *operand[] = {q, k, v, start, length, k_scale, v_scale};
    return graph_add(g, OP_ATTENTION, &attr, 7, operand, NULL);
}

void cvn_softmax_cross_entropy(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                               cvn_value *out[2])
{
    cvn_value *operand[] = {logits, targets};
    all_results(g, graph_add(g, OP_SOFTMAX_CROSS_ENTROPY, NULL, 2, operand, NULL), 2, out);
}

cvn_value *cvn_argmax(cvn_graph *g, cvn_value *x, int axis)
{
    return graph_add(g, OP_ARGMAX, &(OpAttr){.axis = axis}, 1, &x, NULL);
}

cvn_value *cvn_random_bits(cvn_graph *g, cvn_value *k0, cvn_value *k1, cvn_value *c0, cvn_value *c1)
{
    return graph_add(g, OP_RANDOM_BITS, NULL, 4, (cvn_value *[]){k0, k1, c0, c1}, NULL);
}

cvn_value *cvn_keep_likeliest(cvn_graph *g, cvn_value *logits, cvn_value *top_k, cvn_value *top_p,
                              cvn_value *min_p)
{
    cvn_value *operand[] = {logits, top_k, top_p, min_p};
    return graph_add(g, OP_KEEP_LIKELIEST, NULL, 4, operand, NULL);
}

cvn_value *cvn_categorical(cvn_graph *g, cvn_value *logits, cvn_value *greedy, cvn_value *key,
                           cvn_value *position)
{
    cvn_value *operand[] = {logits, greedy, key, position};
    return graph_add(g, OP_CATEGORICAL, NULL, 4, operand, NULL);
}

cvn_value *cvn_dequantize(cvn_graph *g, cvn_value *q, cvn_value *scale, cvn_dtype dtype)
{
    cvn_type type = q->type;
    type.dtype = dtype;
    return graph_add(g, OP_DEQUANTIZE, NULL, 2, (cvn_value *[]){q, scale}, &type);
}

static BlockKind block_kind(cvn_graph *g, const char *name)
{
    for (int i = 1; i < BLOCK_KINDS; i++)
        if (strcmp(block_names[i], name) == 0)
            return (BlockKind)i;
    graph_fail(g, CVN_EINVAL, "'%.40s' is no kind of blocks", name);
    return BLOCK_NONE;
}

cvn_value *cvn_dequantize_blocks(cvn_graph *g, cvn_value *w, const char *kind, cvn_type type)
{
    OpAttr attr = {.blocks = block_kind(g, kind)};
    return graph_add(g, OP_DEQUANTIZE, &attr, 1, &w, &type);
}

void cvn_quantize_rows(cvn_graph *g, cvn_value *x, cvn_value *out[2])
{
    all_results(g, graph_add(g, OP_QUANTIZE_ROWS, NULL, 1, &x, NULL), 2, out);
}

cvn_value *cvn_linear_int8(cvn_graph *g, cvn_value *x, cvn_value *x_scale, cvn_value *q,
                           cvn_value *scale, cvn_type type)
{
    return graph_add(g, OP_LINEAR_INT8, NULL, 4, (cvn_value *[]){x, x_scale, q, scale}, &type);
}

void cvn_linear(cvn_graph *g, cvn_value *x, const cvn_linear_spec *spec, cvn_value **out)
{
    OpAttr attr = {.axis = spec->contract,
                   .group_size = spec->n_weights,
                   .flag = spec->swiglu,
                   .norm = spec->norm != NULL,
                   .eps = spec->norm ? spec->eps : 0,
                   .bias = spec->bias[0] != NULL,
                   .int8 = spec->int8,
                   .blocks = spec->blocks ? block_kind(g, spec->blocks) : BLOCK_NONE};
    cvn_value *operand[3 + 3 * OP_MOST_RESULTS] = {x};
    int n = 1;
    for (int i = 0; i < spec->n_weights && i < OP_MOST_RESULTS; i++) {
        operand[n++] = spec->q[i];
        if (spec->scale[i])
            operand[n++] = spec->scale[i];
    }
    if (spec->norm)
        operand[n++] = spec->norm;
    for (int i = 0; i < spec->n_weights && i < OP_MOST_RESULTS; i++)
        if (spec->bias[i])
            operand[n++] = spec->bias[i];
    if (spec->residual)
        operand[n++] = spec->residual;
    cvn_value *first = graph_add(g, OP_LINEAR, &attr, n, operand, spec->type);
    all_results(g, first, op_results(OP_LINEAR, n, &attr), out);
}

void cvn_rms_norm_backward(cvn_graph *g, cvn_value *x, cvn_value *weight, cvn_value *dy, double eps,
                           cvn_value *out[2])
{
    OpAttr attr = {.eps = eps};
    cvn_value *operand[] = {x, weight, dy};
    all_results(g, graph_add(g, OP_RMS_NORM_BACKWARD, &attr, 3, operand, NULL), 2, out);
}

void cvn_attention_backward(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v,
                            cvn_value *start, cvn_value *length, cvn_value *first, cvn_value *dy,
                            double scale, cvn_value *out[3])
{
    OpAttr attr = {.scale = scale};
    cvn_value *operand[] = {q, k, v, start, length, dy, first};
    cvn_value *dq = graph_add(g, OP_ATTENTION_BACKWARD, &attr, first ? 7 : 6, operand, NULL);
    all_results(g, dq, 3, out);
}

cvn_value *cvn_softmax_cross_entropy_backward(cvn_graph *g, cvn_value *logits, cvn_value *targets,
                                              cvn_value *lse, cvn_value *dloss, cvn_value *dlse)
{
    cvn_value *operand[] = {logits, targets, lse, dloss, dlse};
    return graph_add(g, OP_SOFTMAX_CROSS_ENTROPY_BACKWARD, NULL, 5, operand, NULL);
}
