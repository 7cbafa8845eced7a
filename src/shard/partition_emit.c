/*
 * Operations on shards. Most are the same operation on smaller shapes. The others:
 *
 *     padding                 what a reduction would read of it is replaced by what changes nothing
 *     LOCAL_INDEX             indices are made relative to the shard; what lies elsewhere is read
 *                             as 0, by a mask, and not written
 *     LOCAL_ONCE              the first operand of scatter counts on the first shard only
 */
#include "shard/partition_impl.h"

#include "base/num.h"
#include "graph/attention.h"
#include "graph/reduce.h"
#include "graph/steps.h"

#include <string.h>

/* An operation that is being emitted. */
typedef struct Local {
    Partitioner *p;
    Emit *e;
    cvn_graph *g; /* e->g */
    const Op *op;
    const Rule *rule;
    const FactorSplit *choice;
    cvn_value **in; /* [n_operands], changed in place */
} Local;

static const cvn_type *whole(const Local *l, int t)
{
    return &l->op->operand[t]->type;
}

/* The only factor of dimension d of tensor t; -1 when there is none or several. */
static int factor_of(const Local *l, int t, int d)
{
    const DimFactors *dim = &l->rule->dim[t][d];
    return dim->n == 1 ? dim->factor[0] : -1;
}

static bool is_split(const Local *l, int f)
{
    return f >= 0 && l->choice->axes[f].n > 0;
}

static bool is_indexed(const Local *l, int f)
{
    return is_split(l, f) && l->rule->factor[f].local == LOCAL_INDEX;
}

/* ---- padding ---- */

static bool needs_mask(const Local *l, int t, int f)
{
    switch (l->op->kind) {
    case OP_GATHER: /* of the table only rows are read that are there */
        return false;
    case OP_SCATTER: /* with updates of 0 it does not matter where */
        return t == 2 && l->rule->factor[f].kind == FACTOR_REDUCE;
    case OP_ATTENTION:
    case OP_ATTENTION_BACKWARD: /* rows of the batch that are not there have no tokens */
        if (t == 3 || t == 4)
            return true;
        return l->rule->factor[f].kind == FACTOR_REDUCE;
    case OP_CACHE_UPDATE: /* nor do they go anywhere */
        return t == 3;
    default:
        return l->rule->factor[f].kind == FACTOR_REDUCE;
    }
}

/* What the padding may hold, where it is summed over: see the formulas in caravan/graph.h. 1 makes
   rms_norm_backward's mean square finite. */
static void mask_padding(Local *l)
{
    const Op *op = l->op;
    for (int t = 0; t < op->n_operands; t++) {
        double fill = op->kind == OP_RMS_NORM_BACKWARD && t == 0 ? 1
                      : op->kind == OP_CACHE_UPDATE              ? -1
                                                                 : 0;
        if (op->kind == OP_REDUCE)
            fill = reduce_neutral(op->attr.reduce, whole(l, t)->dtype);
        for (int d = 0; d < whole(l, t)->rank; d++) {
            int f = factor_of(l, t, d);
            if (is_split(l, f) && needs_mask(l, t, f))
                l->in[t] =
                    emit_mask(l->e, l->in[t], d, &l->choice->axes[f], whole(l, t)->dim[d], fill);
        }
    }
}

/* ---- indices ---- */

/* The indices as i32. One that does not fit into i32 is out of bounds in any tensor. */
static cvn_value *signed_index(Local *l, cvn_value *x)
{
    if (x->type.dtype != CVN_U32)
        return x;
    x = cvn_minimum(l->g, x, like(l->g, x, INT32_MAX));
    return cvn_convert(l->g, x, CVN_I32);
}

static int64_t chunk_of(int64_t n, const AxisList *axes)
{
    return num_pieces(n, axes_size(axes));
}

/* Index vectors of gather and scatter with what concerns the components that move over split
   dimensions: the same for all vectors, [components] each. */
typedef struct Components {
    int axis;                              /* of the indices, that runs over the components */
    int64_t n;                             /* components */
    cvn_value *offset, *last, *low, *high; /* of the shard; its last index; bounds of the whole */
    bool any;
} Components;

static cvn_value *vector(Local *l, const int32_t *v, int64_t n)
{
    return cvn_constant(l->g, CVN_TYPE(CVN_I32, n), v);
}

static Components components(Local *l)
{
    const OpAttr *a = &l->op->attr;
    Components c = {.axis = (int)a->index_vector_dim, .n = a->index_map.n};
    int32_t low[CVN_MAX_RANK], high[CVN_MAX_RANK], last[CVN_MAX_RANK];
    for (int k = 0; k < c.n; k++) {
        int d = (int)a->index_map.v[k], f = factor_of(l, 0, d);
        bool indexed = is_indexed(l, f);
        int64_t n = whole(l, 0)->dim[d];
        low[k] = indexed ? 0 : INT32_MIN;
        high[k] = indexed ? (int32_t)(n > 0 ? n - 1 : 0) : INT32_MAX;
        last[k] = indexed ? (int32_t)chunk_of(n, &l->choice->axes[f]) - 1 : INT32_MAX;
        c.any = c.any || indexed;
    }
    if (!c.any)
        return c;
    c.low = vector(l, low, c.n);
    c.high = vector(l, high, c.n);
    c.last = vector(l, last, c.n);
    for (int k = 0; k < c.n; k++) {
        int d = (int)a->index_map.v[k], f = factor_of(l, 0, d);
        if (!is_indexed(l, f))
            continue;
        const AxisList *axes = &l->choice->axes[f];
        int32_t here[CVN_MAX_RANK] = {0};
        here[k] = 1;
        cvn_value *off = emit_offset(l->e, axes, chunk_of(whole(l, 0)->dim[d], axes));
        off = cvn_broadcast_in_dim(l->g, off, CVN_TYPE(CVN_I32, c.n), NULL);
        off = cvn_multiply(l->g, off, vector(l, here, c.n));
        c.offset = c.offset ? cvn_add(l->g, c.offset, off) : off;
    }
    return c;
}

static cvn_value *per_vector(Local *l, const Components *c, cvn_value *x, const cvn_type *indices)
{
    return cvn_broadcast_in_dim(l->g, x, *indices, &c->axis);
}

/* The indices with a dimension for components, as i32. */
static cvn_value *index_vectors(Local *l, int axis)
{
    cvn_value *x = signed_index(l, l->in[1]);
    if (axis < x->type.rank)
        return x;
    cvn_type type = x->type;
    type.dim[type.rank++] = 1;
    return cvn_reshape(l->g, x, type.rank, type.dim);
}

static cvn_value *plain(Local *l);

/* Gathers what the shard holds; everything else is 0, so that the results of all shards add up to the whole. */
static cvn_value *gather(Local *l)
{
    Components c = components(l);
    if (!c.any)
        return plain(l);
    cvn_value *index = index_vectors(l, c.axis);
    const cvn_type type = index->type;
    cvn_graph *g = l->g;
    cvn_value *low = per_vector(l, &c, c.low, &type), *high = per_vector(l, &c, c.high, &type);
    index = cvn_clamp(g, low, index, high);
    index = cvn_subtract(g, index, per_vector(l, &c, c.offset, &type));
    cvn_value *zero = cvn_splat(g, type, 0), *last = per_vector(l, &c, c.last, &type);
    cvn_value *indexed = cvn_compare_values(g, CVN_EQ, low, zero);
    cvn_value *inside = cvn_compare_values(g, CVN_GE, index, zero);
    inside = cvn_and(g, inside, cvn_compare_values(g, CVN_LE, index, last));
    inside = cvn_or(g, inside, cvn_not(g, indexed));
    inside = cvn_reduce_dims(g, CVN_ALL, inside, 1, &c.axis); /* [indices] */
    l->in[1] = index;
    cvn_value *y = plain(l);
    int slots[CVN_MAX_RANK], n = 0;
    for (int d = 0; d < y->type.rank; d++)
        if (!ints_contain(&l->op->attr.window, d))
            slots[n++] = d;
    return where(g, spread(g, inside, &y->type, slots), y);
}

/* Updates beyond the shard are skipped as those beyond the end are. */
static cvn_value *scatter(Local *l)
{
    Components c = components(l);
    AxisList once = {0};
    for (int f = 0; f < l->rule->n_factors; f++)
        if (is_split(l, f) && l->rule->factor[f].local == LOCAL_ONCE)
            axes_add_list(&once, &l->choice->axes[f]);
    if (once.n) {
        cvn_value *zero = like(l->g, l->in[0], 0);
        cvn_value *first = emit_digit(l->e, &once);
        first = cvn_compare_values(l->g, CVN_EQ, first, emit_i32(l->e, 0));
        l->in[0] = cvn_select(l->g, first, l->in[0], zero);
    }
    if (c.any) {
        cvn_value *index = index_vectors(l, c.axis);
        cvn_type type = index->type;
        l->in[1] = cvn_subtract(l->g, index, per_vector(l, &c, c.offset, &type));
    }
    return plain(l);
}

/* The shard is seen between two margins as wide as the update, which it is then written to: there,
   partly there, or into a margin, which is cut off again. */
static cvn_value *dynamic_update_slice(Local *l)
{
    cvn_graph *g = l->g;
    const cvn_type shard = l->in[0]->type;
    int64_t margin[CVN_MAX_RANK] = {0}, none[CVN_MAX_RANK] = {0}, end[CVN_MAX_RANK];
    bool any = false;
    for (int d = 0; d < shard.rank; d++) {
        int f = factor_of(l, 0, d);
        if (!is_indexed(l, f))
            continue;
        int64_t n = whole(l, 0)->dim[d], update = whole(l, 1)->dim[d];
        margin[d] = update;
        cvn_value *start = signed_index(l, l->in[2 + d]), *first = emit_i32(l->e, 0);
        start = cvn_clamp(g, first, start, emit_i32(l->e, n - update));
        start = cvn_subtract(g, start, emit_offset(l->e, &l->choice->axes[f], shard.dim[d]));
        start = cvn_add(g, start, emit_i32(l->e, update));
        l->in[2 + d] = cvn_clamp(g, first, start, emit_i32(l->e, shard.dim[d] + update));
        any = true;
    }
    if (!any)
        return plain(l);
    cvn_value *zero = cvn_splat(g, cvn_scalar(shard.dtype), 0);
    l->in[0] = cvn_pad(g, l->in[0], zero, margin, margin, none);
    for (int d = 0; d < shard.rank; d++)
        end[d] = margin[d] + shard.dim[d];
    return cvn_slice(g, plain(l), margin, end, NULL);
}

/* Queries of a later shard, or of its second half, begin later: start goes up, and fewer are left. offset: i32 scalar. */
static void shift_queries(Local *l, cvn_value *offset)
{
    cvn_graph *g = l->g;
    cvn_value *start = signed_index(l, l->in[3]), *length = signed_index(l, l->in[4]);
    offset = cvn_broadcast_in_dim(g, offset, start->type, NULL);
    cvn_value *most = like(g, length, (double)whole(l, 0)->dim[1]);
    cvn_value *none = like(g, length, 0);
    cvn_value *left = cvn_subtract(g, cvn_clamp(g, none, length, most), offset);
    l->in[3] = cvn_add(g, start, offset);
    l->in[4] = cvn_maximum(g, left, none);
}

/* Groups relative to the first of the shard; the others are outside of those that there are. */
static void shift_groups(Local *l)
{
    const bool dot = l->op->kind == OP_GROUPED_DOT;
    const int f = factor_of(l, dot ? 1 : 3, 0);
    if (!is_indexed(l, f))
        return;
    const AxisList *axes = &l->choice->axes[f];
    const int64_t groups = (dot ? l->op->operand[1] : l->op->result[0])->type.dim[0];
    cvn_value *group = signed_index(l, l->in[2]);
    cvn_value *offset = emit_offset(l->e, axes, chunk_of(groups, axes));
    offset = cvn_broadcast_in_dim(l->g, offset, group->type, NULL);
    l->in[2] = cvn_subtract(l->g, group, offset);
}

/* Rows of operand `of` that operand `index` names are counted from the first of the shard. */
static void shift_rows(Local *l, int index, int of)
{
    int f = factor_of(l, of, 0);
    if (!is_indexed(l, f))
        return;
    cvn_value *x = signed_index(l, l->in[index]);
    cvn_value *offset = emit_offset(l->e, &l->choice->axes[f], l->in[of]->type.dim[0]);
    offset = cvn_broadcast_in_dim(l->g, offset, x->type, NULL);
    l->in[index] = cvn_subtract(l->g, x, offset);
}

/* Slots, which are rows of the table behind them, and its pages, which are rows of the cache. */
static void shift_pages(Local *l, int slot, int cache)
{
    if (slot < 0)
        return;
    shift_rows(l, slot, slot + 1);
    shift_rows(l, slot + 1, cache);
}

/* ---- attention ---- */

/* The operation on shards, whose types follow from theirs. */
static void attend(Local *l, cvn_value **out)
{
    const Op *op = l->op;
    OpAttr attr = attr_copy(l->g, op->kind, &op->attr);
    const cvn_value *y = graph_add(l->g, op->kind, &attr, op->n_operands, l->in, NULL);
    for (int i = 0; i < op->n_results; i++)
        out[i] = y == l->g->poison ? l->g->poison : y->def->result[i];
}

/* Operands [batch, seq, …] of attention and its gradient: q, dy, the first keys; and the results: y, or dq. */
static bool by_query(const Op *op, int t)
{
    return t == 0 || (t == 5 && op->kind == OP_ATTENTION_BACKWARD) || t == attention_first_at(op);
}

/* x [batch, seq, …] of the mirror image. */
static cvn_value *mirrored(Local *l, cvn_value *x, const AxisList *axes)
{
    cvn_value *y = emit_mirror(l->e, x, axes);
    if (y != l->g->poison)
        part_note(l->p, l->op->result[0], y->def, axes, (double)cvn_type_bytes(&y->type));
    return y;
}

/*
 * Queries see all keys before them, so that the last of n shards would have 2n - 1 times the work of the first, and all wait for it.
 * Each device computes the first half of its queries and the second half of its mirror image's, which are as much work together
 * whoever has them:
 *
 *     4 devices, quarters of 2 halves: 0 1 | 2 3 | 4 5 | 6 7       device 0: 0 and 7    1: 2 and 5    2: 4 and 3    3: 6 and 1
 *
 * Half of q, and of the gradient of y, goes to the mirror image, and half of y, or of dq, comes back. Gradients of keys and values
 * are the sums of both halves'.
 */
static void balanced_attention(Local *l, const AxisList *axes, cvn_value **out)
{
    const Op *op = l->op;
    cvn_graph *g = l->g;
    const int64_t n = l->in[0]->type.dim[1], half = n / 2;
    cvn_value *whole_in[ATTENTION_MOST_OPERANDS], *first[4], *second[4];
    memcpy(whole_in, l->in, (size_t)op->n_operands * sizeof *whole_in);
    for (int t = 0; t < op->n_operands; t++)
        if (by_query(op, t))
            l->in[t] = cvn_slice_axis(g, whole_in[t], 1, 0, half);
    cvn_value *offset = emit_offset(l->e, axes, n);
    shift_queries(l, offset);
    attend(l, first);
    memcpy(l->in, whole_in, (size_t)op->n_operands * sizeof *whole_in);
    for (int t = 0; t < op->n_operands; t++)
        if (by_query(op, t))
            l->in[t] = mirrored(l, cvn_slice_axis(g, whole_in[t], 1, half, n), axes);
    cvn_value *last = emit_i32(l->e, (axes_size(axes) - 1) * n + half);
    shift_queries(l, cvn_subtract(g, last, offset));
    attend(l, second);
    cvn_value *halves[] = {first[0], mirrored(l, second[0], axes)};
    out[0] = cvn_concatenate(g, 2, halves, 1);
    for (int i = 1; i < op->n_results; i++)
        out[i] = cvn_add(g, first[i], second[i]);
}

static void attention(Local *l, cvn_value **out)
{
    const Op *op = l->op;
    const int f = factor_of(l, 0, 1);
    const AxisList *axes = f < 0 ? NULL : &l->choice->axes[f];
    const int64_t n = l->in[0]->type.dim[1];
    shift_pages(l, attention_slot_at(op), 1);
    if (!is_indexed(l, f)) {
        attend(l, out);
    } else if (n % 2 || op->attr.sliding_window || op->attr.attention_chunk) {
        shift_queries(l, emit_offset(l->e, axes, n));
        attend(l, out);
    } else {
        balanced_attention(l, axes, out);
    }
}

/* ---- the operation itself ---- */

static cvn_value *plain(Local *l)
{
    const Op *op = l->op;
    cvn_type want[OP_MOST_RESULTS];
    for (int i = 0; i < op->n_results; i++) {
        int t = op->n_operands + i;
        Sharding s = choice_sharding(l->rule, l->choice, t, op->result[i]->type.rank);
        want[i] = sharding_local(&s, &op->result[i]->type);
    }
    OpAttr local = op->attr;
    if (op->n_operands)
        local = factor_local_attr(op, &l->in[0]->type, &l->p->arena);
    OpAttr attr = attr_copy(l->g, op->kind, &local);
    return graph_add(l->g, op->kind, &attr, op->n_operands, l->in, want);
}

/* Of an operation with one result. */
static cvn_value *emit_one(Local *l)
{
    const Op *op = l->op;
    switch (op->kind) {
    case OP_GATHER:
        return gather(l);
    case OP_SCATTER:
        return scatter(l);
    case OP_DYNAMIC_UPDATE_SLICE:
        return dynamic_update_slice(l);
    case OP_CACHE_UPDATE:
        shift_pages(l, op->n_operands == 5 ? 3 : -1, 0);
        return plain(l);
    case OP_GROUPED_DOT:
    case OP_GROUPED_OUTER:
        shift_groups(l);
        return plain(l);
    default:
        return plain(l);
    }
}

void part_emit(Partitioner *p, const Op *op, const Rule *rule, const FactorSplit *choice,
               cvn_value **in, cvn_value **out)
{
    Local l = {p, &p->emit, p->emit.g, op, rule, choice, in};
    mask_padding(&l);
    if (op->kind == OP_ATTENTION || op->kind == OP_ATTENTION_BACKWARD) {
        attention(&l, out);
        return;
    }
    const cvn_value *y = emit_one(&l);
    for (int i = 0; i < op->n_results; i++)
        out[i] =
            y == l.g->poison ? l.g->poison : y->def->result[op->n_results == 1 ? y->result : i];
}
