/* Factor rules of the composites, of their gradients, and of weights in panels. */
#include "base/num.h"
#include "graph/attention.h"
#include "graph/linear.h"
#include "graph/panels.h"
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

/* ---- weights in panels ---- */

/* Weights whose rows, of which there are two kinds with swiglu, give result i of a linear. */
static int rows_together(const Op *op)
{
    return op->attr.flag ? 2 : 1;
}

/* f is dimension d of result i of a linear, which is one of its rows' from `lead` on; and of what is added to it. */
static void put_row(const Op *op, Rule *rule, int i, int lead, int d, int f)
{
    put(rule, op->n_operands + i, d, f);
    if (linear_residual(op) >= 0)
        put(rule, linear_residual(op), d, f);
    for (int w = 0; w < rows_together(op) && op->attr.bias; w++)
        put(rule, linear_bias(op, i + w), d - lead, f);
}

/* The rows of result i of a linear, its dimensions from `lead` on, and its weights in panels: whole panels pass. */
static void put_panels(const Op *op, Rule *rule, int i, int lead)
{
    const cvn_type *type = &op->result[i]->type;
    int last = type->rank - 1, q = linear_operand(op, i);
    int end =
        q + rows_together(op) * linear_each(op); /* of operands in panels, scales among them */
    bool panels = type->dim[last] % PANEL_ROWS == 0;
    for (int d = lead; d <= last; d++) {
        int64_t size = panels && d == last ? type->dim[d] / PANEL_ROWS : type->dim[d];
        int f = add(rule, size, panels ? FACTOR_PASS : FACTOR_WHOLE);
        put_row(op, rule, i, lead, d, f);
        for (int t = q; t < end && panels; t++)
            put(rule, t, 0, f);
    }
    int lane = panels ? add(rule, PANEL_ROWS, FACTOR_WHOLE) : NONE;
    put_row(op, rule, i, lead, last, lane);
    for (int t = q; t < end; t++)
        for (int d = panels ? 1 : 0; d < op_in(op, t)->rank; d++)
            put(rule, t, d,
                panels && d == 2 ? lane : add(rule, op_in(op, t)->dim[d], FACTOR_WHOLE));
}

/* The columns of a weight in panels, from dimension `first` of the result on,
   where its rows are passed on whole panels at a time. Along the outermost of
   them, whole groups pass; where there is one group, whole units:

       [rows, (u 4)]       q [panels, u, 16, 4]         scale [panels, 1, 16]
       [rows, (g 64)]      q [panels, (g 8), 16, 4, 2]  scale [panels, g, 16]
       [rows, h, 128]      q [panels, (h 32), 16, 4]    scale [panels, 1, 16] */
static void put_columns(const Op *op, Rule *rule, int first)
{
    const cvn_type *type = op_out(op, 0), *q = op_in(op, 0);
    int result = op->n_operands;
    int64_t units = q->dim[1], groups = result > 1 ? op_in(op, 1)->dim[1] : 1, k = 1;
    for (int d = first; d < type->rank; d++)
        k *= type->dim[d];
    int64_t grain = groups > 1 ? groups : units, size = type->dim[first];
    int64_t parts = first == type->rank - 1 ? grain : size; /* of the outermost dimension */
    bool even = k == units * panel_unit(q->dtype) && units % parts == 0 && size % parts == 0 &&
                (groups == 1 || groups % parts == 0);
    int f = add(rule, even ? parts : size, even ? FACTOR_PASS : FACTOR_WHOLE);
    put(rule, result, first, f);
    if (even) {
        put(rule, result, first, add(rule, size / parts, FACTOR_WHOLE));
        put(rule, 0, 1, f);
    }
    put(rule, 0, 1, add(rule, even ? units / parts : units, FACTOR_WHOLE));
    bool in_groups = even && groups > 1;
    if (in_groups)
        put(rule, 1, 1, f);
    if (result > 1)
        put(rule, 1, 1, add(rule, in_groups ? groups / parts : groups, FACTOR_WHOLE));
    put_whole(rule, result, type, first + 1);
}

/* An array of blocks [rows …, blocks, bytes]: rows pass, and of columns as many parts as whole blocks and the outermost
   dimension of columns have in common. */
static void factor_blocks(const Op *op, Rule *rule)
{
    const cvn_type *in = op_in(op, 0), *type = op_out(op, 0);
    int rows = in->rank - 2;
    for (int d = 0; d < rows; d++)
        put_all(rule, d, add(rule, type->dim[d], FACTOR_PASS));
    int64_t blocks = in->dim[rows], size = type->dim[rows], parts = num_gcd(blocks, size);
    put_all(rule, rows, add(rule, parts, FACTOR_PASS));
    put(rule, 0, rows, add(rule, blocks / parts, FACTOR_WHOLE));
    put(rule, 1, rows, add(rule, size / parts, FACTOR_WHOLE));
    put_whole(rule, 0, in, rows + 1);
    put_whole(rule, 1, type, rows + 1);
}

void factor_dequantize(const Op *op, Rule *rule)
{
    const cvn_type *type = op_out(op, 0);
    int rows = (int)op->attr.axis, result = op->n_operands;
    if (op->attr.blocks && rows == 0) {
        factor_blocks(op, rule);
        return;
    }
    if (type->dim[rows - 1] % PANEL_ROWS || op->attr.blocks) { /* rows of neighbours share panels */
        for (int t = 0; t < result; t++)
            put_whole(rule, t, op_in(op, t), 0);
        put_whole(rule, result, type, 0);
        return;
    }
    for (int d = 0; d < rows; d++) {
        int64_t size = d == rows - 1 ? type->dim[d] / PANEL_ROWS : type->dim[d];
        int f = add(rule, size, FACTOR_PASS);
        for (int t = 0; t <= result; t++)
            put(rule, t, t < result ? 0 : d, f);
    }
    int lane = add(rule, PANEL_ROWS, FACTOR_WHOLE);
    for (int t = 0; t <= result; t++)
        put(rule, t, t < result ? 2 : rows - 1, lane);
    put_columns(op, rule, rows);
    put_whole(rule, 0, op_in(op, 0), 3);
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
    int lead = op_in(op, 0)->rank - 1;
    for (int d = 0; d < lead; d++) {
        int f = add(rule, op_in(op, 0)->dim[d], FACTOR_PASS);
        put(rule, 0, d, f);
        put(rule, 1, d, f);
        put(rule, 4, d, f);
    }
    put_whole(rule, 0, op_in(op, 0), lead);
    put_panels(op, rule, 0, lead);
}

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
    if (op->attr.norm)
        put_whole(rule, linear_norm(op), op_in(op, linear_norm(op)), 0);
    for (int i = 0; i < op->n_results; i++)
        put_panels(op, rule, i, lead);
}
