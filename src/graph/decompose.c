/*
 * Decompositions of the composites, one function each, in a table by kind.
 *
 * Each function gets the composite and builds, before it, plain operations that compute the same;
 * it returns the values that take the place of the results. An example, x f32[2,8] and w f32[8]:
 *
 *     %y f32[2,8] = rms_norm %x, %w {eps = 1e-5}
 *
 *     %0 f32[2,8] = multiply %x, %x              %4 f32[2] = rsqrt %3
 *     %1 f32[2]   = reduce %0 {sum, dims = 1}    %5 f32[2,8] = broadcast_in_dim %4 {dims = 0}
 *     %2 f32[2]   = divide %1, splat 8           %6 f32[2,8] = multiply %x, %5
 *     %3 f32[2]   = add %2, splat 1e-5           %y f32[2,8] = multiply %6, broadcast %w
 *
 * Arithmetic is in f32 (f64 for f64 data) and converted back once, at the end. Masks are made from
 * iota so that no constant as large as the data is ever stored.
 */
#include "graph/decompose.h"

#include "graph/decompose_impl.h"

#include <assert.h>
#include <math.h>

static void rms_norm(cvn_graph *g, const Op *op, cvn_value **out)
{
    out[0] = as(g, decompose_norm(g, op->operand[0], op->operand[1], op->attr.eps),
                op->result[0]->type.dtype);
}

/* One half of each pair, as [batch, seq, heads, pairs]: elements [0, pairs) or [pairs, 2 pairs) of
   the last dimension; or, interleaved, the even or the odd ones. */
static cvn_value *rope_half(cvn_graph *g, cvn_value *x, int half, bool interleaved)
{
    int64_t start[CVN_MAX_RANK] = {0}, limit[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    int last = x->type.rank - 1;
    int64_t pairs = x->type.dim[last] / 2;
    for (int i = 0; i <= last; i++) {
        limit[i] = x->type.dim[i];
        stride[i] = 1;
    }
    if (interleaved) {
        start[last] = half;
        stride[last] = 2;
    } else {
        start[last] = half * pairs;
        limit[last] = start[last] + pairs;
    }
    return cvn_slice(g, x, start, limit, stride);
}

/* The inverse of rope_half: a and b back into one tensor of the given shape. */
static cvn_value *rope_join(cvn_graph *g, cvn_value *a, cvn_value *b, const cvn_type *shape,
                            bool interleaved)
{
    int last = shape->rank - 1;
    if (!interleaved)
        return cvn_concatenate(g, 2, (cvn_value *[]){a, b}, last);
    int64_t dim[CVN_MAX_RANK];
    for (int i = 0; i <= last; i++)
        dim[i] = a->type.dim[i];
    dim[last + 1] = 1; /* [batch, seq, heads, pairs, 1] */
    cvn_value *pair[2] = {a, b};
    for (int i = 0; i < 2; i++)
        pair[i] = cvn_reshape(g, pair[i], last + 2, dim);
    return cvn_reshape(g, cvn_concatenate(g, 2, pair, last + 1), shape->rank, shape->dim);
}

/* (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position * inv_freq[pair]. */
static void rope(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *shape = &op->operand[0]->type;
    cvn_value *x = as(g, op->operand[0], wide(shape->dtype)); /* [batch, seq, heads, head_dim] */
    cvn_value *position = as(g, op->operand[1], CVN_F32);     /* [batch, seq] */
    cvn_value *inv_freq = as(g, op->operand[2], CVN_F32);     /* [pairs] */
    bool interleaved = op->attr.flag;

    cvn_value *a = rope_half(g, x, 0, interleaved), *b = rope_half(g, x, 1, interleaved);
    cvn_type turn = CVN_TYPE(CVN_F32, shape->dim[0], shape->dim[1], shape->dim[3] / 2);
    position = spread(g, position, &turn, (const int[]){0, 1});
    inv_freq = spread(g, inv_freq, &turn, (const int[]){2});
    cvn_value *angle = as(g, cvn_multiply(g, position, inv_freq), x->type.dtype);
    const int over_heads[] = {0, 1, 3};
    cvn_value *c = spread(g, cvn_cosine(g, angle), &a->type, over_heads);
    cvn_value *s = spread(g, cvn_sine(g, angle), &a->type, over_heads);
    cvn_value *ac = cvn_multiply(g, a, c), *turned_a = cvn_subtract(g, ac, cvn_multiply(g, b, s));
    cvn_value *bc = cvn_multiply(g, b, c), *turned_b = cvn_add(g, bc, cvn_multiply(g, a, s));
    out[0] = as(g, rope_join(g, turned_a, turned_b, shape, interleaved), shape->dtype);
}

const cvn_gather_dims cache_update_dims = {.n_window = 2,
                                           .window = {2, 3},
                                           .n_collapsed = 1,
                                           .collapsed = {2},
                                           .n_operand_batch = 1,
                                           .operand_batch = {0},
                                           .n_index_batch = 1,
                                           .index_batch = {0},
                                           .n_index_map = 1,
                                           .index_map = {2},
                                           .index_vector_dim = 2};

/* A scatter: row b of the batch, position start[b] + s, gets update[b, s], all heads at once. */
static void cache_update(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *cache = op->operand[0], *update = op->operand[1], *start = op->operand[2];
    cvn_type rows = CVN_TYPE(CVN_I32, update->type.dim[0], update->type.dim[1]); /* [batch, seq] */
    start = spread(g, start, &rows, (const int[]){0});
    cvn_value *position = cvn_add(g, count_along(g, &rows, 1), start);
    out[0] = cvn_scatter_assign(g, cache, position, update, &cache_update_dims);
}

/* The logit of the target is picked by comparing with iota, not by a gather: so it stays a plain
   sum where the vocabulary is split over devices. */
static void softmax_cross_entropy(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = as(g, op->operand[0], wide(op->operand[0]->type.dtype)); /* [..., vocab] */
    cvn_value *target = op->operand[1];                                          /* [...] */
    int last = logits->type.rank - 1;

    Softmax s = softmax_parts(g, logits);
    cvn_value *lse = cvn_add(g, cvn_log(g, s.sum), s.peak);
    cvn_value *entry = count_along(g, &logits->type, last);
    cvn_value *here =
        cvn_compare_values(g, CVN_EQ, entry, spread_over(g, target, &logits->type, last));
    cvn_value *picked =
        cvn_reduce_dims(g, CVN_SUM, cvn_select(g, here, logits, like(g, logits, 0)), 1, &last);
    cvn_value *known = is_known(g, target, logits->type.dim[last]);
    cvn_value *loss = cvn_subtract(g, lse, picked);
    loss = cvn_select(g, known, loss, like(g, lse, 0));
    out[0] = as(g, loss, op->result[0]->type.dtype);
    out[1] = as(g, lse, op->result[1]->type.dtype);
}

cvn_value *decompose_index_of_max(cvn_graph *g, cvn_value *x, int axis)
{
    if (dtype_is_float(x->type.dtype)) {
        cvn_value *number = cvn_compare_values(g, CVN_EQ, x, x);
        x = cvn_select(g, number, x, like(g, x, -INFINITY));
    }
    cvn_value *most = cvn_reduce_dims(g, CVN_MAX, x, 1, &axis);
    cvn_value *equal = cvn_compare_values(g, CVN_EQ, x, spread_over(g, most, &x->type, axis));
    cvn_value *index = count_along(g, &x->type, axis);
    cvn_value *candidate = cvn_select(g, equal, index, like(g, index, INT32_MAX));
    return cvn_reduce_dims(g, CVN_MIN, candidate, 1, &axis);
}

static void argmax(cvn_graph *g, const Op *op, cvn_value **out)
{
    out[0] = decompose_index_of_max(g, op->operand[0], (int)op->attr.axis);
}

/* Threefry-2x32-20: five groups of four rounds, each round an add, a rotation and an xor; a key
   schedule of three words is added before the first group and after every one. */
static void random_bits(cvn_graph *g, const Op *op, cvn_value **out)
{
    static const int rotation[2][4] = {{13, 15, 26, 6}, {17, 29, 16, 24}};
    cvn_value *key[3] = {op->operand[0], op->operand[1]};
    cvn_value *parity = like(g, key[0], 0x1BD11BDA);
    key[2] = cvn_xor(g, cvn_xor(g, key[0], key[1]), parity);
    cvn_value *a = cvn_add(g, op->operand[2], key[0]), *b = cvn_add(g, op->operand[3], key[1]);
    for (int group = 1; group <= 5; group++) {
        for (int i = 0; i < 4; i++) {
            a = cvn_add(g, a, b);
            int bits = rotation[(group - 1) % 2][i];
            cvn_value *high = cvn_shift_left(g, b, like(g, b, bits));
            cvn_value *low = cvn_shift_right_logical(g, b, like(g, b, 32 - bits));
            b = cvn_xor(g, cvn_or(g, high, low), a);
        }
        cvn_value *scheduled = cvn_add(g, key[(group + 1) % 3], like(g, b, group));
        a = cvn_add(g, a, key[group % 3]);
        b = cvn_add(g, b, scheduled);
    }
    out[0] = a;
}

static DecomposeFn *const table[OP_COUNT] = {
    [OP_RMS_NORM] = rms_norm,
    [OP_ROPE] = rope,
    [OP_ATTENTION] = decompose_attention,
    [OP_CACHE_UPDATE] = cache_update,
    [OP_SOFTMAX_CROSS_ENTROPY] = softmax_cross_entropy,
    [OP_ARGMAX] = argmax,
    [OP_RANDOM_BITS] = random_bits,
    [OP_KEEP_LIKELIEST] = decompose_keep_likeliest,
    [OP_CATEGORICAL] = decompose_categorical,
    [OP_DEQUANTIZE] = decompose_dequantize,
    [OP_QUANTIZE_ROWS] = decompose_quantize_rows,
    [OP_LINEAR_INT8] = decompose_linear_int8,
    [OP_LINEAR] = decompose_linear,
    [OP_RMS_NORM_BACKWARD] = decompose_rms_norm_backward,
    [OP_ATTENTION_BACKWARD] = decompose_attention_backward,
    [OP_SOFTMAX_CROSS_ENTROPY_BACKWARD] = decompose_softmax_cross_entropy_backward,
};

bool graph_can_decompose(OpKind kind)
{
    return table[kind] != NULL;
}

/* Builds what op stands for before it and puts that in its place. Returns the first operation to look at next: of those
   that were built, which may be composites, too. */
static Op *decompose_op(cvn_graph *g, Op *op)
{
    cvn_value *out[OP_MOST_RESULTS];
    Op *before = op->prev;
    assert(op->n_results <= OP_MOST_RESULTS);
    graph_insert_before(g, op);
    cvn_at(g, op->file, op->line);
    table[op->kind](g, op, out);
    for (int i = 0; i < op->n_results && !g->err.code; i++) {
        cvn_value *old = op->result[i];
        assert(cvn_type_equal(&old->type, &out[i]->type));
        out[i]->spec = old->spec;
        if (old->name)
            out[i]->name = old->name;
        graph_replace(old, out[i]);
    }
    graph_remove(g, op);
    return before ? before->next : g->first;
}

int graph_decompose(cvn_graph *g, bool (*keep)(const Op *op, void *context), void *context,
                    bool *changed, cvn_err *err)
{
    const char *file = g->file;
    int line = g->line;
    bool any = false;
    for (Op *op = g->first, *next; op && !g->err.code; op = next) {
        next = op->next;
        graph_resolve_op(op);
        if (op_info[op->kind].class_ != CLASS_COMPOSITE || (keep && keep(op, context)))
            continue;
        next = decompose_op(g, op);
        any = true;
    }
    graph_insert_before(g, NULL);
    cvn_at(g, file, line);
    graph_resolve(g);
    TRY(cvn_graph_check(g, err));
    if (any)
        graph_remove_dead(g);
    if (changed)
        *changed = any;
    return CVN_OK;
}
