/* Factor rules of the composites, of their gradients, and of quantized weights. */
#include "base/num.h"
#include "graph/attention.h"
#include "graph/linear.h"
#include "shard/factors_impl.h"

/* The mean over the last dimension is a reduction inside; the rest passes. */
void factor_rms_norm(const Op *op, Rule *rule)
{
    int last = op_out(op, 0)->rank - 1;
    for (int d = 0; d <= last; d++) {
        int f = add_local(rule, op_out(op, 0)->dim[d], FACTOR_PASS,
                          d == last ? LOCAL_PARTS : LOCAL_PLAIN);
        put(rule, 0, d, f);
        put(rule, 2, d, f);
        if (d == last)
            put(rule, 1, 0, f);
    }
}

/* Pairs of elements turn together, so head_dim stays whole. */
void factor_rope(const Op *op, Rule *rule)
{
    for (int d = 0; d < 4; d++) {
        int f = add(rule, op_out(op, 0)->dim[d], d == 3 ? FACTOR_WHOLE : FACTOR_PASS);
        put(rule, 0, d, f);
        put(rule, 3, d, f);
        if (d < 2)
            put(rule, 1, d, f);
    }
    put(rule, 2, 0, add(rule, op_in(op, 2)->dim[0], FACTOR_WHOLE));
}

/* The factors of attention and of its gradient. */
typedef struct AttentionFactors {
    int seq, kv, group, head_dim, context;
} AttentionFactors;

/* Queries of a later shard of seq begin later: start and length are made relative. Heads are the KV heads times the
   group of each, so a split of heads beyond the KV heads splits the groups. `over` is the kind of seq and group, which
   the gradients of k and v are sums over. */
static AttentionFactors attention_factors(const Op *op, Rule *rule, FactorKind over)
{
    const cvn_type *q = op_in(op, 0), *k = op_in(op, 1);
    AttentionFactors f;
    put_all(rule, 0, add(rule, q->dim[0], FACTOR_PASS)); /* the batch */
    f.seq = add_local(rule, q->dim[1], over, LOCAL_INDEX);
    f.kv = add(rule, k->dim[1], FACTOR_PASS);
    f.group = add(rule, q->dim[2] / k->dim[1], over);
    f.head_dim = add(rule, q->dim[3], FACTOR_WHOLE);
    f.context = add(rule, k->dim[2], FACTOR_WHOLE);
    return f;
}

/* Tensor t is [batch, seq, heads, head_dim]. */
static void put_like_q(Rule *rule, int t, const AttentionFactors *f)
{
    put(rule, t, 1, f->seq);
    put(rule, t, 2, f->kv);
    put(rule, t, 2, f->group);
    put(rule, t, 3, f->head_dim);
}

/* Tensor t is [batch, kv_heads, context, head_dim], or a scale of it [batch, kv_heads, context, 1]. */
static void put_like_k(Rule *rule, int t, const AttentionFactors *f, bool scale)
{
    put(rule, t, 1, f->kv);
    put(rule, t, 2, f->context);
    put(rule, t, 3, scale ? NONE : f->head_dim);
}

void factor_attention(const Op *op, Rule *rule)
{
    AttentionFactors f = attention_factors(op, rule, FACTOR_PASS);
    int scales = attention_scales(op);
    put_like_q(rule, 0, &f);
    put_like_q(rule, op->n_operands, &f);
    for (int i = 0; i < 2; i++) { /* k and v */
        put_like_k(rule, 1 + i, &f, false);
        if (scales >= 0)
            put_like_k(rule, scales + i, &f, true);
    }
    if (attention_first(op))
        put(rule, 5, 1, f.seq);
}

void factor_cache_update(const Op *op, Rule *rule)
{
    const cvn_type *cache = op_in(op, 0), *update = op_in(op, 1);
    int batch = add(rule, cache->dim[0], FACTOR_PASS);
    int kv = add(rule, cache->dim[1], FACTOR_PASS);
    int context = add(rule, cache->dim[2], FACTOR_WHOLE);
    int head_dim = add(rule, cache->dim[3], FACTOR_PASS);
    for (int t = 0; t <= 3; t += 3) { /* the cache before and after */
        put(rule, t, 0, batch);
        put(rule, t, 1, kv);
        put(rule, t, 2, context);
        put(rule, t, 3, head_dim);
    }
    put(rule, 1, 0, batch);
    put(rule, 1, 1, add(rule, update->dim[1], FACTOR_WHOLE));
    put(rule, 1, 2, kv);
    put(rule, 1, 3, head_dim);
    put(rule, 2, 0, batch);
}

/* Reductions over one dimension that are not one sum: the decomposition has a maximum and a sum
   (a minimum for argmax) in a row, each a small all-reduce, and logits are never gathered. */
void factor_softmax_cross_entropy(const Op *op, Rule *rule)
{
    int last = op_in(op, 0)->rank - 1;
    for (int d = 0; d < last; d++)
        put_all(rule, d, add(rule, op_in(op, 0)->dim[d], FACTOR_PASS));
    put(rule, 0, last, add_local(rule, op_in(op, 0)->dim[last], FACTOR_REDUCE, LOCAL_PARTS));
}

/* Rows for themselves. */
void factor_keep_likeliest(const Op *op, Rule *rule)
{
    int batch = add(rule, op_in(op, 0)->dim[0], FACTOR_PASS);
    int vocab = add(rule, op_in(op, 0)->dim[1], FACTOR_WHOLE);
    for (int t = 0; t < rule->n_tensors; t++)
        put(rule, t, 0, batch);
    put(rule, 0, 1, vocab);
    put(rule, 4, 1, vocab);
}

/* As argmax, of entries that know their number in the whole vocabulary. */
void factor_categorical(const Op *op, Rule *rule)
{
    int batch = add(rule, op_in(op, 0)->dim[0], FACTOR_PASS);
    int vocab = add_local(rule, op_in(op, 0)->dim[1], FACTOR_REDUCE, LOCAL_PARTS);
    if (vocab != NONE)
        rule->factor[vocab].how = CVN_MAX;
    for (int t = 0; t < rule->n_tensors; t++)
        put(rule, t, 0, batch);
    put(rule, 0, 1, vocab);
    put(rule, 2, 1, add(rule, 2, FACTOR_WHOLE));
}

void factor_argmax(const Op *op, Rule *rule)
{
    int kept = 0;
    for (int d = 0; d < op_in(op, 0)->rank; d++) {
        bool gone = d == op->attr.axis;
        int f = add_local(rule, op_in(op, 0)->dim[d], gone ? FACTOR_REDUCE : FACTOR_PASS,
                          gone ? LOCAL_PARTS : LOCAL_PLAIN);
        if (gone && f != NONE)
            rule->factor[f].how = CVN_MAX;
        put(rule, 0, d, f);
        if (!gone)
            put(rule, 1, kept++, f);
    }
}

/* ---- gradients of composites ---- */

/* dx is row by row; dweight is a sum over rows. */
void factor_rms_norm_backward(const Op *op, Rule *rule)
{
    int last = op_out(op, 0)->rank - 1;
    for (int d = 0; d <= last; d++) {
        int f = d == last ? add_local(rule, op_out(op, 0)->dim[d], FACTOR_PASS, LOCAL_PARTS)
                          : add(rule, op_out(op, 0)->dim[d], FACTOR_REDUCE);
        put(rule, 0, d, f);
        put(rule, 2, d, f);
        put(rule, 3, d, f);
        if (d == last) {
            put(rule, 1, 0, f);
            put(rule, 4, 0, f);
        }
    }
}

/* dk and dv are sums over the queries, and over the heads of a group. */
void factor_attention_backward(const Op *op, Rule *rule)
{
    const int dq = op->n_operands; /* then dk, dv */
    const int like_q[] = {0, 5, dq}, like_k[] = {1, 2, dq + 1, dq + 2};
    AttentionFactors f = attention_factors(op, rule, FACTOR_REDUCE);
    for (int i = 0; i < 3; i++)
        put_like_q(rule, like_q[i], &f);
    for (int i = 0; i < 4; i++)
        put_like_k(rule, like_k[i], &f, false);
    if (attention_first(op))
        put(rule, 6, 1, f.seq);
}

/* A target outside of a device's part of the vocabulary is not outside of the vocabulary, which the
   operation on a shard could not tell: it is decomposed. */
void factor_softmax_cross_entropy_backward(const Op *op, Rule *rule)
{
    int last = op_out(op, 0)->rank - 1;
    for (int d = 0; d <= last; d++) {
        int f = add_local(rule, op_out(op, 0)->dim[d], FACTOR_PASS,
                          d == last ? LOCAL_PARTS : LOCAL_PLAIN);
        put(rule, 0, d, f);
        put(rule, 5, d, f);
        for (int t = 1; t <= 4 && d < last; t++)
            put(rule, t, d, f);
    }
}

/* ---- quantized weights ---- */

/* Rows pass. Of columns as many parts as their outermost dimension and what is of several columns, a group that has a scale or
   a block, have in common; where a row has one scale, all.

       [rows …, (p a), b …]     q [rows …, (p a), b …]     scale [rows …, (p g)]     or blocks [rows …, (p g), bytes] */
void factor_dequantize(const Op *op, Rule *rule)
{
    int result = op->n_operands, last = result - 1;
    const cvn_type *type = op_out(op, 0), *groups = op_in(op, last);
    int rows = op->attr.blocks ? groups->rank - 2 : groups->rank - 1;
    if (op->attr.axis) /* in panels, which the graph of one device has: nothing is split */
        return;
    for (int d = 0; d < rows; d++)
        put_all(rule, d, add(rule, type->dim[d], FACTOR_PASS));
    int64_t size = type->dim[rows], n = groups->dim[rows];
    bool alone = !op->attr.blocks && n == 1; /* a scale of all columns */
    int64_t parts = alone ? size : num_gcd(n, size);
    int part = add(rule, parts, FACTOR_PASS), rest = add(rule, size / parts, FACTOR_WHOLE);
    for (int t = op->attr.blocks ? result : 0; t <= result; t += result) {
        put(rule, t, rows, part);
        put(rule, t, rows, rest);
    }
    put(rule, last, rows, alone ? NONE : part);
    put(rule, last, rows, add(rule, alone ? 1 : n / parts, FACTOR_WHOLE));
    if (op->attr.blocks)
        put(rule, 0, rows + 1, add(rule, groups->dim[rows + 1], FACTOR_WHOLE));
    for (int d = rows + 1; d < type->rank; d++) {
        int f = add(rule, type->dim[d], alone ? FACTOR_PASS : FACTOR_WHOLE);
        put(rule, result, d, f);
        if (!op->attr.blocks)
            put(rule, 0, d, f);
    }
}

/* Rows pass; each needs the largest of all of it. */
void factor_quantize_rows(const Op *op, Rule *rule)
{
    int last = op_out(op, 0)->rank - 1;
    for (int d = 0; d < last; d++)
        put_all(rule, d, add(rule, op_out(op, 0)->dim[d], FACTOR_PASS));
    int f = add(rule, op_out(op, 0)->dim[last], FACTOR_WHOLE);
    put(rule, 0, last, f);
    put(rule, 1, last, f);
}

void factor_linear_int8(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - 1, rank = op_out(op, 0)->rank;
    for (int d = 0; d < (op->attr.axis ? lead : rank); d++) { /* weights in panels are whole */
        int f = add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 4, d, f);
        for (int t = 0; t < 2; t++)
            put(rule, d < lead ? t : 2 + t, d < lead ? d : d - lead, f);
    }
    for (int d = rank - lead; d < op_in(op, 2)->rank && !op->attr.axis; d++) {
        bool exact = op_out(op, 0)->dtype == CVN_F32; /* enough, of whole numbers and a scale */
        int f = add(rule, op_in(op, 2)->dim[d], exact ? FACTOR_REDUCE : FACTOR_WHOLE);
        put(rule, 0, lead, f);
        put(rule, 2, d, f);
    }
}

/* Of rows; weights are in panels, which the graph of one device has. */
void factor_linear(const Op *op, Rule *rule)
{
    int lead = op_in(op, 0)->rank - (int)op->attr.axis, residual = linear_residual(op);
    for (int d = 0; d < lead; d++) {
        int f = add(rule, op_in(op, 0)->dim[d], FACTOR_PASS);
        for (int t = 0; t < rule->n_tensors; t++)
            if (t == 0 || t >= op->n_operands || t == residual)
                put(rule, t, d, f);
    }
    put_whole(rule, 0, op_in(op, 0), lead);
}
