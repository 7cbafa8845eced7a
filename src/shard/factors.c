#include "shard/factors_impl.h"

#include "base/num.h"

#include <string.h>

/* ---- making rules ---- */

static Rule new_rule(int n_operands, int n_tensors, Arena *arena)
{
    return (Rule){.factor = arena_array(arena, FACTORS_MAX, sizeof(Factor)),
                  .n_operands = n_operands,
                  .n_tensors = n_tensors,
                  .dim = arena_array(arena, (size_t)n_tensors, sizeof(DimFactors[CVN_MAX_RANK]))};
}

static void no_rule(const Op *op, Rule *rule)
{
    (void)op;
    (void)rule;
}

/* Scalars beside tensors (select's pred, clamp's bounds) have no dimensions to split. */
static void pointwise(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        for (int t = 0; t < rule->n_tensors; t++)
            if (t >= rule->n_operands || op_in(op, t)->rank > 0)
                put(rule, t, d, f);
    }
}

static void broadcast_in_dim(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 1, d, f);
        for (int i = 0; i < op_in(op, 0)->rank; i++)
            if (op->attr.dims.v[i] == d && op_in(op, 0)->dim[i] == op_out(op, 0)->dim[d])
                put(rule, 0, i, f);
    }
}

static void transpose(const Op *op, Rule *rule)
{
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 0, op->attr.dims.v[d], f);
        put(rule, 1, d, f);
    }
}

/* Gives dimensions [from, to) of a tensor factors of their own: what follows is not in line. */
static void own_factors(Rule *rule, int tensor, const int64_t *left, int from, int to)
{
    for (int d = from; d < to; d++)
        put(rule, tensor, d, add(rule, left[d], FACTOR_WHOLE));
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
        int f = add(rule, common, FACTOR_PASS);
        put(rule, 0, i, f);
        put(rule, 1, o, f);
        left[0][i] /= common;
        left[1][o] /= common;
    }
    own_factors(rule, 0, left[0], i, i_end);
    own_factors(rule, 1, left[1], o, o_end);
}

static void reshape(const Op *op, Rule *rule)
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

/* Of slices, reversals and concatenations, dimensions that are not taken as they are need their neighbours; sort and
   cumsum take one dimension whole. The others pass. */
static void along_dims(const Op *op, Rule *rule)
{
    const bool whole = op->kind == OP_SORT || op->kind == OP_CUMSUM;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        int64_t x = op_in(op, 0)->dim[d], y = op_out(op, 0)->dim[d];
        bool moves = op->kind == OP_SLICE     ? x != y
                     : op->kind == OP_REVERSE ? ints_contain(&op->attr.dims, d)
                                              : d == op->attr.axis && (whole || op->n_operands > 1);
        FactorKind kind = whole ? FACTOR_WHOLE : FACTOR_SHIFT;
        put_all(rule, d, add(rule, num_max(x, y), moves ? kind : FACTOR_PASS));
    }
}

static void pad(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = !a->start.v[d] && !a->limit.v[d] && !a->stride.v[d];
        int64_t x = op_in(op, 0)->dim[d], y = op_out(op, 0)->dim[d];
        int f = add(rule, num_max(x, y), whole ? FACTOR_PASS : FACTOR_SHIFT);
        put(rule, 0, d, f);
        put(rule, 2, d, f);
    }
}

/* ---- operations that address by data ---- */

static void dynamic_slice(const Op *op, Rule *rule)
{
    int result = rule->n_operands;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = op_in(op, 0)->dim[d] == op_out(op, 0)->dim[d];
        if (whole) {
            int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
            put(rule, 0, d, f);
            put(rule, result, d, f);
        } else {
            put(rule, 0, d, add(rule, op_in(op, 0)->dim[d], FACTOR_WHOLE));
            put(rule, result, d, add(rule, op_out(op, 0)->dim[d], FACTOR_WHOLE));
        }
    }
}

static void dynamic_update_slice(const Op *op, Rule *rule)
{
    int result = rule->n_operands;
    for (int d = 0; d < op_out(op, 0)->rank; d++) {
        bool whole = op_in(op, 0)->dim[d] == op_in(op, 1)->dim[d];
        int f = whole ? add(rule, op_out(op, 0)->dim[d], FACTOR_PASS)
                      : add_local(rule, op_out(op, 0)->dim[d], FACTOR_PASS, LOCAL_INDEX);
        put(rule, 0, d, f);
        put(rule, result, d, f);
        put(rule, 1, d, whole ? f : add(rule, op_in(op, 1)->dim[d], FACTOR_WHOLE));
    }
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

/* What gather and scatter share: the indices, and the slots they run over in tensor `slots`. */
static void index_dims(const Op *op, Rule *rule, int slots, const cvn_type *type, FactorKind kind,
                       FactorLocal local)
{
    const OpAttr *a = &op->attr;
    for (int e = 0; e < op_in(op, 1)->rank; e++) {
        int64_t size = op_in(op, 1)->dim[e];
        if (e == a->index_vector_dim) {
            put(rule, 1, e, add(rule, size, FACTOR_WHOLE));
            continue;
        }
        bool batch = ints_contain(&a->index_batch, e);
        int f = batch ? add(rule, size, FACTOR_PASS) : add_local(rule, size, kind, local);
        put(rule, 1, e, f);
        put(rule, slots, index_slot(a, type->rank, e), f);
        for (int i = 0; batch && i < a->index_batch.n; i++) {
            if (a->index_batch.v[i] != e)
                continue;
            put(rule, 0, a->operand_batch.v[i], f);
            if (op->kind == OP_SCATTER)
                put(rule, 3, a->operand_batch.v[i], f);
        }
    }
}

/* Rows of a table split by rows: each device looks up what it has, and the sum is the result. */
static void gather(const Op *op, Rule *rule)
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
            int f = add_local(rule, size, split ? FACTOR_REDUCE : FACTOR_WHOLE,
                              split ? LOCAL_INDEX : LOCAL_PLAIN);
            if (f != NONE && dtype == CVN_BOOL)
                rule->factor[f].how = CVN_ANY;
            put(rule, 0, d, f);
            continue;
        }
        int64_t slot = a->window.v[w++];
        int f = add(rule, size, a->sizes.v[d] == size ? FACTOR_PASS : FACTOR_WHOLE);
        put(rule, 0, d, f);
        put(rule, 2, slot, a->sizes.v[d] == size ? f : add(rule, a->sizes.v[d], FACTOR_WHOLE));
    }
}

/* Updates that are split among devices make partial sums, where they are added; where they
   replace, their order counts and they are needed whole. A window that an index moves may hang over
   the end, and what hangs over is skipped: it does not pass even when it has the full size. */
static void scatter(const Op *op, Rule *rule)
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
            f = add_local(rule, size, split ? FACTOR_PASS : FACTOR_WHOLE,
                          split ? LOCAL_INDEX : LOCAL_PLAIN);
        } else {
            int64_t slot = a->window.v[w++], n = updates->dim[slot];
            bool whole = n == size && !ints_contain(&a->index_map, d);
            f = add(rule, size, whole ? FACTOR_PASS : FACTOR_WHOLE);
            put(rule, 2, slot, whole ? f : add(rule, n, FACTOR_WHOLE));
        }
        put(rule, 0, d, f);
        put(rule, 3, d, f);
    }
}

/* ---- reductions and contractions ---- */

static void reduce(const Op *op, Rule *rule)
{
    int kept = 0;
    for (int d = 0; d < op_in(op, 0)->rank; d++) {
        bool gone = ints_contain(&op->attr.dims, d);
        int f = add(rule, op_in(op, 0)->dim[d], gone ? FACTOR_REDUCE : FACTOR_PASS);
        if (f != NONE)
            rule->factor[f].how = op->attr.reduce;
        put(rule, 0, d, f);
        if (!gone)
            put(rule, 1, kept++, f);
    }
}

static void dot_general(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    int d = 0;
    for (int i = 0; i < a->lhs_batch.n; i++) {
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 0, a->lhs_batch.v[i], f);
        put(rule, 1, a->rhs_batch.v[i], f);
        put(rule, 2, d++, f);
    }
    for (int side = 0; side < 2; side++) {
        const Ints *batch = side ? &a->rhs_batch : &a->lhs_batch;
        const Ints *contract = side ? &a->rhs_contract : &a->lhs_contract;
        for (int i = 0; i < op_in(op, side)->rank; i++) {
            if (ints_contain(batch, i) || ints_contain(contract, i))
                continue;
            int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
            put(rule, side, i, f);
            put(rule, 2, d++, f);
        }
    }
    for (int i = 0; i < a->lhs_contract.n; i++) {
        int f = add(rule, op_in(op, 0)->dim[a->lhs_contract.v[i]], FACTOR_REDUCE);
        put(rule, 0, a->lhs_contract.v[i], f);
        put(rule, 1, a->rhs_contract.v[i], f);
    }
}

/* ---- the table ---- */

static RuleFn *const table[OP_COUNT] = {
    [OP_PARAMETER] = no_rule,
    [OP_CONSTANT] = no_rule,
    [OP_IOTA] = no_rule,
    [OP_BROADCAST_IN_DIM] = broadcast_in_dim,
    [OP_RESHAPE] = reshape,
    [OP_TRANSPOSE] = transpose,
    [OP_SLICE] = along_dims,
    [OP_CONCATENATE] = along_dims,
    [OP_PAD] = pad,
    [OP_REVERSE] = along_dims,
    [OP_DYNAMIC_SLICE] = dynamic_slice,
    [OP_DYNAMIC_UPDATE_SLICE] = dynamic_update_slice,
    [OP_GATHER] = gather,
    [OP_SCATTER] = scatter,
    [OP_SORT] = along_dims,
    [OP_REDUCE] = reduce,
    [OP_CUMSUM] = along_dims,
    [OP_DOT_GENERAL] = dot_general,
    [OP_ALL_REDUCE] = no_rule, /* the partitioner makes collectives; whole graphs have none */
    [OP_ALL_GATHER] = no_rule,
    [OP_REDUCE_SCATTER] = no_rule,
    [OP_ALL_TO_ALL] = no_rule,
    [OP_COLLECTIVE_PERMUTE] = no_rule,
    [OP_PARTITION_ID] = no_rule,
    [OP_OPTIMIZATION_BARRIER] = pointwise,
    [OP_RMS_NORM] = factor_by_notation,
    [OP_ROPE] = factor_by_notation,
    [OP_ATTENTION] = factor_attention,
    [OP_CACHE_UPDATE] = factor_by_notation,
    [OP_SOFTMAX_CROSS_ENTROPY] = factor_by_notation,
    [OP_ARGMAX] = factor_argmax,
    [OP_RANDOM_BITS] = pointwise,
    [OP_KEEP_LIKELIEST] = factor_by_notation,
    [OP_CATEGORICAL] = factor_by_notation,
    [OP_DEQUANTIZE] = factor_dequantize,
    [OP_QUANTIZE_ROWS] = factor_by_notation,
    [OP_LINEAR_INT8] = factor_linear_int8,
    [OP_LINEAR] = factor_linear,
    [OP_RMS_NORM_BACKWARD] = factor_by_notation,
    [OP_ATTENTION_BACKWARD] = factor_attention_backward,
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = factor_by_notation,
};

/* Elementwise kinds share one rule. */
static RuleFn *rule_of(OpKind kind)
{
    return class_is_elementwise(op_info[kind].class_) ? pointwise : table[kind];
}

bool factor_rule_exists(OpKind kind)
{
    return rule_of(kind) != NULL;
}

bool factor_is_transparent(OpKind kind)
{
    return rule_of(kind) == pointwise || kind == OP_RESHAPE || kind == OP_TRANSPOSE;
}

Rule factor_rule(const Op *op, Arena *arena)
{
    Rule rule = new_rule(op->n_operands, op->n_operands + op->n_results, arena);
    rule_of(op->kind)(op, &rule);
    return rule;
}

Rule factor_identity(const cvn_type *type, Arena *arena)
{
    Rule rule = new_rule(1, 2, arena);
    for (int d = 0; d < type->rank; d++)
        put_all(&rule, d, add(&rule, type->dim[d], FACTOR_PASS));
    return rule;
}

/* A copy of a list of sizes in which those that name the whole of a dimension follow its shard. */
static Ints follow(const Ints *list, const cvn_type *whole, const cvn_type *shard, Arena *arena)
{
    int64_t *v = arena_copy(arena, list->v, (size_t)list->n * sizeof *v);
    for (int i = 0; i < list->n; i++)
        if (v[i] == whole->dim[i])
            v[i] = shard->dim[i];
    return (Ints){list->n, v};
}

OpAttr factor_local_attr(const Op *op, const cvn_type *shard, Arena *arena)
{
    OpAttr attr = op->attr;
    if (op->kind == OP_SLICE)
        attr.limit = follow(&attr.limit, op_in(op, 0), shard, arena);
    if (op->kind == OP_DYNAMIC_SLICE || op->kind == OP_GATHER)
        attr.sizes = follow(&attr.sizes, op_in(op, 0), shard, arena);
    return attr;
}
