/*
 * Attention and its gradient, in plain operations.
 *
 * Heads are viewed as [kv_heads, group], so that each KV head meets its group of queries in one
 * product:
 *
 *     scores  [batch, kv, seq, group, context] = q [batch, seq, kv, group, dim] . k [batch, kv, context, dim]
 *     position = start[batch] + query
 *     seen    max(first[batch, query], position - window + 1, position / chunk * chunk) <= key <= position
 *     weights = softmax(seen ? cap tanh(scores * scale / cap) : -inf), with a sink for each head in the sum
 *     out     [batch, kv, seq, group, dim] = weights . v [batch, kv, context, dim], 0 where query >= length
 *
 * The gradient makes the weights again and goes back the same way: with P the weights and dy the
 * gradient of out, dv = P^T dy, dP = dy v^T, dS = P (dP - rowsum(P dP)), dq = scale dS k, dk = scale dS^T q, where dS is
 * times the slope of the cap; and of a sink, whose weight is p, dsink = -p rowsum(P dP), summed over its head's queries.
 */
#include "graph/attention.h"
#include "graph/ops/ops.h"

/* ---- attention ---- */

/* Puts what a spec names behind n operands; returns how many there are then. */
static int add_spec(const cvn_attention_spec *spec, OpAttr *attr, cvn_value **operand, int n)
{
    *attr = (OpAttr){.scale = spec->scale,
                     .cap = spec->cap,
                     .sliding_window = spec->window,
                     .attention_chunk = spec->chunk,
                     .sinks = spec->sinks != NULL};
    cvn_value *const more[] = {spec->k_scale, spec->v_scale, spec->slot,
                               spec->table,   spec->first,   spec->sinks};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (more[i])
            operand[n++] = more[i];
    return n;
}

cvn_value *cvn_attention(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v, cvn_value *start,
                         cvn_value *length, const cvn_attention_spec *spec)
{
    OpAttr attr;
    if (attention_is_plain(spec))
        return attention_plain(g, q, k, v, start, length, spec);
    if (spec && !attention_slots_whole(g, spec->slot, spec->table))
        return g->poison;
    cvn_value *operand[ATTENTION_MOST_OPERANDS] = {q, k, v, start, length};
    int n = add_spec(spec, &attr, operand, 5);
    return graph_add(g, OP_ATTENTION, &attr, n, operand, NULL);
}

/* Checks the operands that may be missing: how many there are, and their types. */
static int check_optional(const Op *op, cvn_err *err)
{
    int scales = attention_scales(op), first = attention_first_at(op), sinks = attention_sinks(op);
    int slot = attention_slot_at(op);
    int n = attention_least(op) + (scales < 0 ? 0 : 2) + (slot < 0 ? 0 : 2) + (first < 0 ? 0 : 1) +
            op->attr.sinks;
    const cvn_type *q = op_in(op, 0);
    if (n != op->n_operands)
        return infer_fail(op, err,
                          "there must be scales where k and v are i8, and only there; then, or "
                          "not, slots with the table of their pages, and the "
                          "first keys; and sinks where `sinks` is true");
    cvn_type want = *op_in(op, 1);
    want.dtype = CVN_BF16;
    want.dim[3] = 1;
    if (scales >= 0 && (!cvn_type_equal(op_in(op, scales), &want) ||
                        !cvn_type_equal(op_in(op, scales + 1), &want)))
        return infer_fail(op, err, "scales must be bf16 [batch, kv_heads, context, 1]");
    if (slot >= 0) {
        TRY(attention_check_rows(op, slot, q->dim[0], "slot", err));
        TRY(attention_check_table(op, slot + 1, err));
    }
    want = CVN_TYPE(CVN_I32, q->dim[0], q->dim[1]);
    if (first >= 0 && !cvn_type_equal(op_in(op, first), &want))
        return infer_fail(op, err, "first must be i32 [batch, seq]");
    const cvn_type *sink = sinks < 0 ? NULL : op_in(op, sinks);
    if (sink && (!dtype_is_float(sink->dtype) || sink->rank != 1 || sink->dim[0] != q->dim[2]))
        return infer_fail(op, err, "sinks must be floats [heads]");
    return CVN_OK;
}

static int check_attributes(const Op *op, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    if (!isfinite(a->scale))
        return infer_fail(op, err, "the scale must be finite");
    if (!isfinite(a->cap) || a->cap < 0)
        return infer_fail(op, err, "the cap must be finite, and 0 or more");
    if (a->sliding_window < 0 || a->sliding_window > INT32_MAX || a->attention_chunk < 0 ||
        a->attention_chunk > INT32_MAX)
        return infer_fail(op, err,
                          "window and chunk must be 0, for none, or up to 2^31 - 1 positions");
    return CVN_OK;
}

int infer_attention(const Op *op, cvn_type *type, cvn_err *err)
{
    bool eight = op->kind == OP_ATTENTION && op_in(op, 1)->dtype == CVN_I8;
    const cvn_type *q = op_in(op, 0), *k = op_in(op, 1);
    if (q->rank != 4 || !dtype_is_float(q->dtype))
        return infer_fail(op, err, "q must be floats [batch, seq, heads, head_dim]");
    if (k->rank != 4 || !(dtype_is_float(k->dtype) || eight) || !cvn_type_equal(k, op_in(op, 2)))
        return infer_fail(op, err,
                          "k and v must be floats, or i8, [batch, kv_heads, context, head_dim]");
    if ((k->dim[0] != q->dim[0] && attention_slot_at(op) < 0) || k->dim[3] != q->dim[3])
        return infer_fail(op, err, "head_dim of q and k must agree, and without slots their batch");
    if (k->dim[1] < 1 || q->dim[2] % k->dim[1])
        return infer_fail(op, err, "%lld heads do not share %lld KV heads evenly",
                          (long long)q->dim[2], (long long)k->dim[1]);
    TRY(check_attributes(op, err));
    TRY(check_optional(op, err));
    TRY(attention_check_rows(op, 3, q->dim[0], "start", err));
    TRY(attention_check_rows(op, 4, q->dim[0], "length", err));
    type[0] = *q;
    return CVN_OK;
}

/* ---- factors ---- */

/* What the dimensions of attention and its gradient are. A head of queries is a KV head and one of its group. */
typedef struct AttentionFactors {
    int batch, slots, pages, seq, kv, group, dim, context;
} AttentionFactors;

static void put_rows(Rule *rule, int t, const AttentionFactors *f) /* [batch, seq, heads, dim] */
{
    rule_put(rule, t, 0, f->batch);
    rule_put(rule, t, 1, f->seq);
    rule_put(rule, t, 2, f->kv);
    rule_put(rule, t, 2, f->group);
    rule_put(rule, t, 3, f->dim);
}

static void put_keys(Rule *rule, int t, const AttentionFactors *f) /* [batch, kv, context, dim] */
{
    rule_put(rule, t, 0, f->pages);
    rule_put(rule, t, 1, f->kv);
    rule_put(rule, t, 2, f->context);
    rule_put(rule, t, 3, f->dim);
}

static void put_heads(Rule *rule, int t, const AttentionFactors *f) /* [heads] */
{
    rule_put(rule, t, 0, f->kv);
    rule_put(rule, t, 0, f->group);
}

/* Queries of a later shard of the sequence begin later: start and length are made relative. Heads are the KV heads times
   the group of each, so a split of heads beyond the KV heads splits the groups. Of the gradients, dk and dv are sums over
   the queries and over the heads of a group, dsinks over all queries of all rows. */
void factors_attention(const Op *op, Rule *rule)
{
    const cvn_type *q = op_in(op, 0), *k = op_in(op, 1);
    FactorKind sum = op->kind == OP_ATTENTION ? FACTOR_PASS : FACTOR_REDUCE;
    int scales = attention_scales(op), first = attention_first_at(op), sinks = attention_sinks(op);
    int slot = attention_slot_at(op);
    AttentionFactors f;
    int64_t slots = slot < 0 ? 0 : op_in(op, slot + 1)->dim[0];
    f.batch = rule_add_local(rule, q->dim[0], op->attr.sinks ? sum : FACTOR_PASS,
                             slots < 2 ? LOCAL_PLAIN : LOCAL_INDEX);
    f.slots = f.pages = slots == 1 ? NO_FACTOR : f.batch; /* as of cache_update */
    if (slot >= 0 && f.slots == NO_FACTOR) {
        f.slots = rule_add(rule, slots, FACTOR_WHOLE);
        f.pages = rule_add(rule, k->dim[0], FACTOR_WHOLE);
    }
    f.seq = rule_add_local(rule, q->dim[1], sum, LOCAL_INDEX);
    f.kv = rule_add(rule, k->dim[1], FACTOR_PASS);
    f.group = rule_add(rule, q->dim[2] / k->dim[1], sum);
    f.dim = rule_add(rule, q->dim[3], FACTOR_WHOLE);
    f.context = rule_add(rule, k->dim[2], FACTOR_WHOLE);
    put_rows(rule, 0, &f);
    put_keys(rule, 1, &f);
    put_keys(rule, 2, &f);
    rule_put(rule, 3, 0, f.batch);
    rule_put(rule, 4, 0, f.batch);
    AttentionFactors scale = f;
    scale.dim = NO_FACTOR;
    for (int t = scales; scales >= 0 && t < scales + 2; t++)
        put_keys(rule, t, &scale);
    if (slot >= 0) {
        rule_put(rule, slot, 0, f.batch);
        rule_put(rule, slot + 1, 0, f.slots);
        rule_put(rule, slot + 1, 1, rule_add(rule, op_in(op, slot + 1)->dim[1], FACTOR_WHOLE));
    }
    if (first >= 0) {
        rule_put(rule, first, 0, f.batch);
        rule_put(rule, first, 1, f.seq);
    }
    if (sinks >= 0)
        put_heads(rule, sinks, &f);
    put_rows(rule, op->n_operands, &f);
    if (op->kind == OP_ATTENTION)
        return;
    put_rows(rule, 5, &f);
    put_keys(rule, op->n_operands + 1, &f);
    put_keys(rule, op->n_operands + 2, &f);
    if (sinks >= 0)
        put_heads(rule, op->n_operands + 3, &f);
}

void factors_attention_backward(const Op *op, Rule *rule)
{
    factors_attention(op, rule);
}

/* ---- what it means ---- */

/* Multiplies keys or values of 8 bits by their scales [batch, kv_heads, context, 1]. */
static cvn_value *unscaled(cvn_graph *g, cvn_value *x, cvn_value *scale, cvn_dtype math)
{
    scale = cvn_reshape(g, as(g, scale, math), 3, scale->type.dim);
    x = as(g, x, math);
    return cvn_multiply(g, x, spread_over(g, scale, &x->type, 3));
}

/* v [batch, kv_heads, context, head_dim] with 0 for the keys that no query of the row sees but padding. Their
   weight is 0, but memory that was never written may hold anything, and 0 * NaN is NaN. */
static cvn_value *visible_values(cvn_graph *g, cvn_value *v, const Op *op)
{
    cvn_type keys = CVN_TYPE(CVN_I32, v->type.dim[0], v->type.dim[2]); /* [batch, context] */
    cvn_value *start = op->operand[3], *length = op->operand[4];
    length = cvn_minimum(g, length, like(g, length, (double)op_in(op, 0)->dim[1]));
    cvn_value *end = cvn_add(g, start, length);
    end = spread(g, end, &keys, (const int[]){0});
    cvn_value *seen = cvn_compare_values(g, CVN_LT, count_along(g, &keys, 1), end);
    seen = spread(g, seen, &v->type, (const int[]){0, 2});
    return cvn_select(g, seen, v, like(g, v, 0));
}

/* Sums over dim of rows [batch, seq, kv, group, dim] with keys or values [batch, kv, context, dim]:
   [batch, kv, seq, group, context]. */
static cvn_value *with_keys(cvn_graph *g, cvn_value *rows, cvn_value *keys, cvn_dtype dtype)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 2},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {3}};
    return cvn_dot_general(g, rows, keys, &dims, dtype);
}

/* Sums over the context of x [batch, kv, seq, group, context] with keys or values
   [batch, kv, context, dim]: [batch, seq, heads, dim], which is `shape`. */
static cvn_value *over_keys(cvn_graph *g, cvn_value *x, cvn_value *keys, const cvn_type *shape)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {2}};
    cvn_value *y = cvn_dot_general(g, x, keys, &dims, keys->type.dtype);
    y = cvn_transpose(g, y, (const int[]){0, 2, 1, 3, 4});
    return cvn_reshape(g, y, 4, shape->dim);
}

/* Sums over the queries of x [batch, kv, seq, group, context] with rows [batch, seq, kv, group, dim]:
   [batch, kv, context, dim]. */
static cvn_value *over_queries(cvn_graph *g, cvn_value *x, cvn_value *rows)
{
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 2},
                               .n_contract = 2,
                               .lhs_contract = {2, 3},
                               .rhs_contract = {1, 3}};
    return cvn_dot_general(g, x, rows, &dims, x->type.dtype);
}

/* Views x [batch, seq, heads, dim] as [batch, seq, kv, group, dim]. */
static cvn_value *by_group(cvn_graph *g, cvn_value *x, int64_t kv)
{
    const int64_t *dim = x->type.dim;
    return cvn_reshape(g, x, 5,
                       (const int64_t[]){dim[0], dim[1], kv, kv ? dim[2] / kv : 0, dim[3]});
}

/* x [batch, seq, heads, dim] with 0 in the rows that are not real, bool [batch, seq]. */
static cvn_value *real_rows(cvn_graph *g, cvn_value *x, cvn_value *real)
{
    real = spread(g, real, &x->type, (const int[]){0, 1});
    return cvn_select(g, real, x, like(g, x, 0));
}

/* Which queries are no padding, bool of the shape of rows [batch, seq]: query < length [batch]. */
static cvn_value *no_padding(cvn_graph *g, const cvn_type *rows, cvn_value *length)
{
    length = spread(g, length, rows, (const int[]){0});
    return cvn_compare_values(g, CVN_LT, count_along(g, rows, 1), length);
}

/* At which position each query is, i32 of the shape of rows [batch, seq]. */
static cvn_value *positions(cvn_graph *g, const cvn_type *rows, const Op *op)
{
    cvn_value *start = spread(g, op->operand[3], rows, (const int[]){0});
    return cvn_add(g, count_along(g, rows, 1), start);
}

/* The first key that queries at these positions [batch, seq] see; NULL: key 0. */
static cvn_value *first_keys(cvn_graph *g, const Op *op, cvn_value *position)
{
    cvn_value *first = attention_first(op), *low[2] = {NULL, NULL};
    int64_t window = op->attr.sliding_window, chunk = op->attr.attention_chunk;
    if (window)
        low[0] = cvn_subtract(g, position, like(g, position, (double)(window - 1)));
    if (chunk) {
        cvn_value *inside = cvn_remainder(g, position, like(g, position, (double)chunk));
        low[1] = cvn_subtract(g, position, inside);
    }
    for (int i = 0; i < 2; i++)
        if (low[i])
            first = first ? cvn_maximum(g, first, low[i]) : low[i];
    return first;
}

/* Which keys queries see, bool of the shape of scores [batch, kv, seq, group, context]. */
static cvn_value *seen_keys(cvn_graph *g, const Op *op, const cvn_type *shape)
{
    cvn_type plane = CVN_TYPE(CVN_I32, shape->dim[0], shape->dim[2], shape->dim[4]);
    cvn_type rows = CVN_TYPE(CVN_I32, shape->dim[0], shape->dim[2]);
    cvn_value *key = count_along(g, &plane, 2), *position = positions(g, &rows, op);
    cvn_value *first = first_keys(g, op, position);
    position = spread(g, position, &plane, (const int[]){0, 1});
    cvn_value *seen = cvn_compare_values(g, CVN_LE, key, position);
    if (first) {
        first = spread(g, first, &plane, (const int[]){0, 1});
        seen = cvn_and(g, seen, cvn_compare_values(g, CVN_GE, key, first));
    }
    return spread(g, seen, shape, (const int[]){0, 2, 4});
}

/* Scores of q and k, before they are masked. */
static cvn_value *scores_of(cvn_graph *g, const Op *op, cvn_value *q, cvn_value *k, cvn_dtype math,
                            cvn_value **tanh)
{
    cvn_value *scores = with_keys(g, q, k, math);
    scores = cvn_multiply(g, scores, like(g, scores, op->attr.scale));
    if (op->attr.cap <= 0)
        return scores;
    cvn_value *cap = like(g, scores, op->attr.cap);
    *tanh = cvn_tanh(g, cvn_divide(g, scores, cap));
    return cvn_multiply(g, *tanh, cap);
}

/* What queries make of the keys. */
typedef struct Weights {
    cvn_value *x;    /* [batch, kv, seq, group, context] */
    cvn_value *sink; /* [batch, kv, seq, group]: weights of the sinks; NULL: there are none */
    cvn_value *tanh; /* of scores over the cap; NULL: there is none */
} Weights;

/* q [batch, seq, kv, group, dim] and k */
static Weights attention_weights(cvn_graph *g, const Op *op, cvn_value *q, cvn_value *k,
                                 cvn_dtype math)
{
    Weights w = {0};
    cvn_value *scores = scores_of(g, op, q, k, math, &w.tanh), *sinks = NULL;
    const cvn_type *shape = &scores->type;
    cvn_value *seen = seen_keys(g, op, shape);
    if (op->attr.sinks) {
        const cvn_type rows =
            CVN_TYPE(math, shape->dim[0], shape->dim[1], shape->dim[2], shape->dim[3]);
        sinks = as(g, op->operand[attention_sinks(op)], math);
        sinks = cvn_reshape(g, sinks, 2, (const int64_t[]){rows.dim[1], rows.dim[3]});
        sinks = spread(g, sinks, &rows, (const int[]){1, 3});
    }
    Softmax s = softmax_parts(g, cvn_select(g, seen, scores, like(g, scores, -INFINITY)), sinks);
    w.x = cvn_divide(g, s.power, spread_over(g, s.sum, shape, 4));
    w.sink = s.other ? cvn_divide(g, s.other, s.sum) : NULL;
    return w;
}

cvn_value *attention_own(cvn_graph *g, cvn_value *x, cvn_value *slot, cvn_value *table)
{
    const cvn_type *t = &x->type;
    const int64_t dim[] = {slot->type.dim[0], t->dim[1], table->type.dim[1] * t->dim[2], t->dim[3]};
    x = cvn_take_rows(g, x, cvn_take_rows(g, table, slot)); /* [batch, n, kv_heads, page, …] */
    return cvn_reshape(g, cvn_transpose(g, x, (const int[]){0, 2, 1, 3, 4}), 4, dim);
}

cvn_value *attention_length(cvn_graph *g, const Op *op)
{
    int slot = attention_slot_at(op);
    if (slot < 0)
        return op->operand[4];
    int64_t slots = op->operand[slot + 1]->type.dim[0];
    return where(g, attention_slot_there(g, op->operand[slot], slots), op->operand[4]);
}

/* The same attention of rows that have their own keys: those of the slots. */
static Op without_slots(cvn_graph *g, const Op *op, cvn_value **operand)
{
    Op own = *op;
    int at = attention_slot_at(op), scales = attention_scales(op), n = 0;
    if (at < 0)
        return own;
    cvn_value *slot = op->operand[at], *table = op->operand[at + 1];
    for (int i = 0; i < op->n_operands; i++) {
        bool keys = i == 1 || i == 2 || (scales >= 0 && (i == scales || i == scales + 1));
        if (i == at || i == at + 1)
            continue;
        operand[n] = op->operand[i];
        if (keys)
            operand[n] = attention_own(g, operand[n], slot, table);
        if (i == 4)
            operand[n] = attention_length(g, op);
        n++;
    }
    own.operand = operand;
    own.n_operands = n;
    return own;
}

void decompose_attention(cvn_graph *g, const Op *with_slots, cvn_value **out)
{
    cvn_value *operand[ATTENTION_MOST_OPERANDS];
    const Op own = without_slots(g, with_slots, operand), *op = &own;
    if (g->err.code)
        return;
    cvn_value *q = op->operand[0], *k = op->operand[1], *v = op->operand[2];
    const cvn_type shape = q->type;
    int scales = attention_scales(op);
    if (scales >= 0) {
        k = unscaled(g, k, op->operand[scales], wide(shape.dtype));
        v = unscaled(g, v, op->operand[scales + 1], wide(shape.dtype));
    }
    cvn_dtype math = wide(shape.dtype == CVN_F64 ? shape.dtype : k->type.dtype);
    if (shape.dtype != k->type.dtype) {
        q = as(g, q, math);
        k = as(g, k, math);
    }
    q = by_group(g, q, k->type.dim[1]);
    cvn_value *weights = attention_weights(g, op, q, k, math).x;
    v = visible_values(g, as(g, v, math), op);
    cvn_value *y = over_keys(g, weights, v, &shape);
    cvn_type rows = CVN_TYPE(CVN_I32, shape.dim[0], shape.dim[1]);
    out[0] = as(g, real_rows(g, y, no_padding(g, &rows, op->operand[4])), shape.dtype);
}

/* ---- block by block ---- */

/* What is computed in: the type of the keys, but those of 8 bits and of 16 in f32. */
static cvn_dtype math_of(const Op *op)
{
    cvn_dtype q = op_in(op, 0)->dtype, k = op_in(op, 1)->dtype;
    return wide(q == CVN_F64 || k == CVN_I8 ? q : k);
}

AttentionSoFar attention_begin(cvn_graph *g, const Op *op)
{
    const cvn_type *q = op_in(op, 0);
    int64_t kv = op_in(op, 1)->dim[1], group = q->dim[2] / kv;
    cvn_type rows = CVN_TYPE(math_of(op), q->dim[0], kv, q->dim[1], group);
    cvn_type sums = CVN_TYPE(rows.dtype, q->dim[0], kv, q->dim[1], group, q->dim[3]);
    AttentionSoFar none = {.y = cvn_splat(g, sums, 0)};
    none.sum = cvn_splat(g, rows, op->attr.sinks ? 1 : 0);
    if (op->attr.sinks) {
        cvn_value *sinks = as(g, op->operand[attention_sinks(op)], rows.dtype);
        sinks = cvn_reshape(g, sinks, 2, (const int64_t[]){kv, group});
        none.most = spread(g, sinks, &rows, (const int[]){1, 3});
    } else {
        none.most = cvn_splat(g, rows, -INFINITY);
    }
    return none;
}

cvn_value *attention_first_keys(cvn_graph *g, const Op *op)
{
    cvn_type rows = CVN_TYPE(CVN_I32, op_in(op, 0)->dim[0], op_in(op, 0)->dim[1]);
    return first_keys(g, op, positions(g, &rows, op));
}

/* Operands of op with positions counted from `at`. */
static Op relative(cvn_graph *g, const Op *op, cvn_value *first, cvn_value *at, cvn_value **operand)
{
    Op part = *op;
    int sinks = attention_sinks(op), n = attention_scales(op) < 0 ? 5 : 7;
    memcpy(operand, op->operand, (size_t)n * sizeof *operand);
    operand[3] = cvn_subtract(g, operand[3], spread(g, at, &operand[3]->type, NULL));
    if (first)
        operand[n++] = cvn_subtract(g, first, spread(g, at, &first->type, NULL));
    if (sinks >= 0)
        operand[n++] = op->operand[sinks];
    part.operand = operand;
    part.n_operands = n;
    part.attr.sliding_window = part.attr.attention_chunk = 0; /* first says so */
    return part;
}

AttentionSoFar attention_step(cvn_graph *g, const Op *op, cvn_value *first, cvn_value *at,
                              AttentionSoFar before)
{
    cvn_value *operand[ATTENTION_MOST_OPERANDS], *tanh = NULL;
    cvn_value *q = op->operand[0], *k = op->operand[1], *v = op->operand[2];
    const Op part = relative(g, op, first, at, operand);
    const cvn_dtype math = math_of(op);
    const int scales = attention_scales(op), last = 4;
    if (scales >= 0) {
        k = unscaled(g, k, op->operand[scales], math);
        v = unscaled(g, v, op->operand[scales + 1], math);
    }
    if (q->type.dtype != k->type.dtype) {
        q = as(g, q, math);
        k = as(g, k, math);
    }
    q = by_group(g, q, k->type.dim[1]);
    v = visible_values(g, as(g, v, math), &part);
    cvn_value *scores = scores_of(g, op, q, k, math, &tanh);
    cvn_value *seen = seen_keys(g, &part, &scores->type);
    scores = cvn_select(g, seen, scores, like(g, scores, -INFINITY));
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, scores, 1, &last);
    most = cvn_maximum(g, before.most, most);
    /* Of a query that has seen no key: 0, so that exp(-inf - it) is 0. */
    cvn_value *any = cvn_compare_values(g, CVN_GT, most, like(g, most, -INFINITY));
    cvn_value *base = where(g, any, most);
    cvn_value *power = spread_over(g, base, &scores->type, last);
    power = cvn_exponential(g, cvn_subtract(g, scores, power));
    cvn_value *shrink = cvn_exponential(g, cvn_subtract(g, before.most, base));
    const cvn_dot_dims dims = {.n_batch = 2,
                               .lhs_batch = {0, 1},
                               .rhs_batch = {0, 1},
                               .n_contract = 1,
                               .lhs_contract = {4},
                               .rhs_contract = {2}};
    cvn_value *y = cvn_dot_general(g, power, v, &dims, math);
    cvn_value *sum = cvn_reduce_dims(g, CVN_SUM, power, 1, &last);
    cvn_value *old = cvn_multiply(g, before.sum, shrink);
    sum = cvn_add(g, old, sum);
    shrink = spread_over(g, shrink, &y->type, last);
    old = cvn_multiply(g, before.y, shrink);
    return (AttentionSoFar){cvn_add(g, old, y), most, sum};
}

cvn_value *attention_end(cvn_graph *g, const Op *op, AttentionSoFar all)
{
    const cvn_type *q = op_in(op, 0);
    cvn_type rows = CVN_TYPE(CVN_I32, q->dim[0], q->dim[1]);
    cvn_value *y = cvn_divide(g, all.y, spread_over(g, all.sum, &all.y->type, 4));
    y = cvn_transpose(g, y, (const int[]){0, 2, 1, 3, 4});
    y = cvn_reshape(g, y, 4, q->dim);
    return as(g, real_rows(g, y, no_padding(g, &rows, op->operand[4])), q->dtype);
}

void grad_attention(Grad *d, const Op *op)
{
    cvn_value *const *v = op->operand, *out[4];
    int sinks = attention_sinks(op);
    if (attention_scales(op) >= 0 || attention_slot_at(op) >= 0) {
        grad_refuse(d, op, "over keys and values of 8 bits, or of slots");
        return;
    }
    const cvn_attention_spec spec = {.scale = op->attr.scale,
                                     .cap = op->attr.cap,
                                     .window = op->attr.sliding_window,
                                     .chunk = op->attr.attention_chunk,
                                     .first = attention_first(op),
                                     .sinks = sinks < 0 ? NULL : v[sinks]};
    cvn_attention_backward(d->g, v[0], v[1], v[2], v[3], v[4], grad_of(d, op, 0), &spec, out);
    for (int i = 0; i < 3; i++)
        grad_give(d, op, i, out[i]);
    if (sinks >= 0)
        grad_give(d, op, sinks, out[3]);
}

/* The work is that of the scores and of their product with the values. */
double flops_attention(const Op *op)
{
    return 4 * op_elements(op->operand[0]) * (double)attention_reach(op);
}

/* ---- attention_backward ---- */

void cvn_attention_backward(cvn_graph *g, cvn_value *q, cvn_value *k, cvn_value *v,
                            cvn_value *start, cvn_value *length, cvn_value *dy,
                            const cvn_attention_spec *spec, cvn_value *out[4])
{
    OpAttr attr;
    if (attention_is_plain(spec))
        graph_fail(g, CVN_EINVAL,
                   "attention with a mask or dropout has the gradient of its plain operations; "
                   "take it by cvn_grad");
    cvn_value *operand[ATTENTION_MOST_OPERANDS + 1] = {q, k, v, start, length, dy};
    int n = add_spec(spec, &attr, operand, 6);
    cvn_value *dq = graph_add(g, OP_ATTENTION_BACKWARD, &attr, n, operand, NULL);
    out[3] = NULL;
    build_results(g, dq, op_results(OP_ATTENTION_BACKWARD, n, &attr), out);
}

int infer_attention_backward(const Op *op, cvn_type *type, cvn_err *err)
{
    TRY(infer_attention(op, type, err));
    TRY(infer_check_gradient(op, 5, 0, "dy", err));
    for (int i = 0; i < 3; i++)
        type[i] = *op_in(op, i);
    if (op->attr.sinks)
        type[3] = *op_in(op, attention_sinks(op));
    return CVN_OK;
}

/* Which queries have a gradient, bool [batch, seq]: those that are no padding and see a key. */
static cvn_value *real_queries(cvn_graph *g, const Op *op)
{
    const cvn_type *q = &op->operand[0]->type, *k = &op->operand[1]->type;
    cvn_type rows = CVN_TYPE(CVN_I32, q->dim[0], q->dim[1]);
    cvn_value *real = no_padding(g, &rows, op->operand[4]), *position = positions(g, &rows, op);
    cvn_value *first = first_keys(g, op, position);
    real = cvn_and(g, real, cvn_compare_values(g, CVN_GE, position, like(g, position, 0)));
    if (!first)
        return real;
    cvn_value *last = cvn_minimum(g, position, like(g, position, (double)k->dim[2] - 1));
    return cvn_and(g, real, cvn_compare_values(g, CVN_GE, last, first));
}

/* The gradient of scores before they are capped, of which this is what comes of it. */
static cvn_value *uncapped(cvn_graph *g, cvn_value *dscores, cvn_value *tanh)
{
    if (!tanh)
        return dscores;
    cvn_value *square = cvn_multiply(g, tanh, tanh);
    cvn_value *slope = cvn_subtract(g, like(g, tanh, 1), square);
    return cvn_multiply(g, dscores, slope);
}

void decompose_attention_backward(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->operand[0]->type, *k_type = &op->operand[1]->type;
    bool exact = type->dtype == CVN_F64 || k_type->dtype == CVN_F64;
    cvn_dtype math = exact ? CVN_F64 : CVN_F32;
    int64_t kv = k_type->dim[1];
    cvn_value *real = real_queries(g, op);
    cvn_value *q = by_group(g, real_rows(g, as(g, op->operand[0], math), real), kv);
    cvn_value *dy = by_group(g, real_rows(g, as(g, op->operand[5], math), real), kv);
    cvn_value *k = visible_values(g, as(g, op->operand[1], math), op);
    cvn_value *v = visible_values(g, as(g, op->operand[2], math), op);
    Weights w = attention_weights(g, op, q, k, math);
    cvn_value *counts = spread(g, real, &w.x->type, (const int[]){0, 2});
    cvn_value *weights = cvn_select(g, counts, w.x, like(g, w.x, 0));

    cvn_value *dweights = with_keys(g, dy, v, math);
    const int last = 4;
    cvn_value *mean = cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, weights, dweights), 1, &last);
    cvn_value *dscores = cvn_subtract(g, dweights, spread_over(g, mean, &dweights->type, last));
    dscores = uncapped(g, cvn_multiply(g, weights, dscores), w.tanh);
    dscores = cvn_multiply(g, dscores, like(g, dscores, op->attr.scale));
    out[0] = as(g, over_keys(g, dscores, k, type), type->dtype);
    out[1] = as(g, over_queries(g, dscores, q), k_type->dtype);
    out[2] = as(g, over_queries(g, weights, dy), k_type->dtype);
    if (!w.sink)
        return;
    cvn_value *sink = cvn_negate(g, cvn_multiply(g, w.sink, mean)); /* [batch, kv, seq, group] */
    sink = cvn_reduce_dims(g, CVN_SUM, sink, 2, (const int[]){0, 2});
    sink = cvn_reshape(g, sink, 1, &type->dim[2]);
    out[3] = as(g, sink, op_out(op, 3)->dtype);
}

/* There are five products where the forward pass has two. */
double flops_attention_backward(const Op *op)
{
    return 10 * op_elements(op->operand[0]) * (double)attention_reach(op);
}
