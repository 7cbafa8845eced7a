/* What chooses the next token: argmax, random bits, and draws from the likeliest. */
#include "graph/ops/ops.h"

#include <math.h>

/* ---- argmax ---- */

cvn_value *cvn_argmax(cvn_graph *g, cvn_value *x, int axis)
{
    return graph_add(g, OP_ARGMAX, &(OpAttr){.axis = axis}, 1, &x, NULL);
}

int infer_argmax(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    TRY(infer_check_axis(op, op->attr.axis, x->rank, err));
    int axis = (int)op->attr.axis;
    if (x->dim[axis] < 1 || x->dim[axis] > INT32_MAX)
        return infer_fail(op, err, "axis %d has %lld elements", axis, (long long)x->dim[axis]);
    type[0] = (cvn_type){.dtype = CVN_I32};
    for (int i = 0; i < x->rank; i++)
        if (i != axis)
            type[0].dim[type[0].rank++] = x->dim[i];
    return CVN_OK;
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

void decompose_argmax(cvn_graph *g, const Op *op, cvn_value **out)
{
    out[0] = decompose_index_of_max(g, op->operand[0], (int)op->attr.axis);
}

/* ---- random_bits ---- */

cvn_value *cvn_random_bits(cvn_graph *g, cvn_value *k0, cvn_value *k1, cvn_value *c0, cvn_value *c1)
{
    return graph_add(g, OP_RANDOM_BITS, NULL, 4, (cvn_value *[]){k0, k1, c0, c1}, NULL);
}

int infer_random_bits(const Op *op, cvn_type *type, cvn_err *err)
{
    type[0] = *op_in(op, 0);
    for (int i = 0; i < 4; i++)
        if (op_in(op, i)->dtype != CVN_U32 || !cvn_type_equal(op_in(op, i), &type[0]))
            return infer_fail(op, err, "keys and counters must be u32 of one shape");
    return CVN_OK;
}

/* Threefry-2x32-20: five groups of four rounds, each round an add, a rotation and an xor; a key
   schedule of three words is added before the first group and after every one. */
void decompose_random_bits(cvn_graph *g, const Op *op, cvn_value **out)
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

/* ---- keep_likeliest ---- */

cvn_value *cvn_keep_likeliest(cvn_graph *g, cvn_value *logits, cvn_value *top_k, cvn_value *top_p,
                              cvn_value *min_p)
{
    cvn_value *operand[] = {logits, top_k, top_p, min_p};
    return graph_add(g, OP_KEEP_LIKELIEST, NULL, 4, operand, NULL);
}

int infer_keep_likeliest(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->dtype != CVN_F32 || x->rank != 2 || x->dim[1] > INT32_MAX)
        return infer_fail(op, err, "logits must be f32 [batch, vocab]");
    for (int i = 1; i < 4; i++) {
        cvn_type row = CVN_TYPE(i == 1 ? CVN_I32 : CVN_F32, x->dim[0]);
        if (!cvn_type_equal(op_in(op, i), &row))
            return infer_fail(op, err, "operand %d must be %s [batch]", i, i == 1 ? "i32" : "f32");
    }
    type[0] = *x;
    return CVN_OK;
}

/* Rows are sorted, and what is kept is a prefix of that. */
void decompose_keep_likeliest(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = op->operand[0], *top_k = op->operand[1];
    const cvn_type *shape = &logits->type;
    cvn_type shape_int = with_dtype(*shape, CVN_I32);
    cvn_value *top_p = along_rows(g, op->operand[2], shape);
    cvn_value *min_p = along_rows(g, op->operand[3], shape);

    cvn_value *sorted = cvn_sort(g, logits, 1, true);
    cvn_value *rank = cvn_iota(g, shape_int, 1);
    cvn_value *is_first = cvn_compare_values(g, CVN_EQ, rank, like(g, rank, 0));

    cvn_value *off = cvn_compare_values(g, CVN_LE, top_k, like(g, top_k, 0));
    top_k = cvn_select(g, off, like(g, top_k, (double)shape->dim[1]), top_k);
    cvn_value *keep = cvn_compare_values(g, CVN_LT, rank, along_rows(g, top_k, shape));

    /* Probabilities relative to the likeliest, of what top-k left; their running sum before each
     * entry. */
    cvn_value *best = cvn_reduce_dims(g, CVN_MAX, sorted, 1, (int[]){1});
    cvn_value *ratio = cvn_exponential(g, cvn_subtract(g, sorted, along_rows(g, best, shape)));
    ratio = cvn_select(g, keep, ratio, like(g, ratio, 0));
    cvn_value *total = cvn_reduce_dims(g, CVN_SUM, ratio, 1, (int[]){1});
    cvn_value *before = cvn_subtract(g, cvn_cumsum(g, ratio, 1), ratio);
    cvn_value *limit = cvn_multiply(g, top_p, along_rows(g, total, shape));
    cvn_value *in_top_p = cvn_compare_values(g, CVN_LT, before, limit);
    in_top_p = cvn_or(g, in_top_p, cvn_compare_values(g, CVN_GE, top_p, like(g, top_p, 1)));
    keep = cvn_and(g, keep, in_top_p);
    keep = cvn_and(g, keep, cvn_compare_values(g, CVN_GE, ratio, min_p));
    keep = cvn_or(g, keep, is_first);

    /* What is kept is a prefix of the sorted row; its smallest logit is the threshold. */
    cvn_value *kept = cvn_select(g, keep, sorted, like(g, sorted, INFINITY));
    cvn_value *threshold = cvn_reduce_dims(g, CVN_MIN, kept, 1, (int[]){1});
    cvn_value *pass = cvn_compare_values(g, CVN_GE, logits, along_rows(g, threshold, shape));
    out[0] = cvn_select(g, pass, logits, like(g, logits, -INFINITY));
}

/* What is kept is passed on; what is not is -inf. */
void grad_keep_likeliest(Grad *d, const Op *op)
{
    cvn_value *y = op->result[0];
    cvn_value *kept = cvn_compare_values(d->g, CVN_GT, y, like(d->g, y, -INFINITY));
    grad_give(d, op, 0, where(d->g, kept, grad_of(d, op, 0)));
}

/* ---- categorical ---- */

cvn_value *cvn_categorical(cvn_graph *g, cvn_value *logits, cvn_value *greedy, cvn_value *key,
                           cvn_value *position)
{
    cvn_value *operand[] = {logits, greedy, key, position};
    return graph_add(g, OP_CATEGORICAL, NULL, 4, operand, NULL);
}

int infer_categorical(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, 0);
    if (x->dtype != CVN_F32 || x->rank != 2 || x->dim[1] < 1 || x->dim[1] > INT32_MAX)
        return infer_fail(op, err, "logits must be f32 [batch, vocab]");
    const cvn_type greedy = CVN_TYPE(CVN_BOOL, x->dim[0]), key = CVN_TYPE(CVN_U32, x->dim[0], 2);
    type[0] = CVN_TYPE(CVN_I32, x->dim[0]);
    if (!cvn_type_equal(op_in(op, 1), &greedy) || !cvn_type_equal(op_in(op, 2), &key) ||
        !cvn_type_equal(op_in(op, 3), &type[0]))
        return infer_fail(op, err,
                          "greedy must be i1 [batch], key u32 [batch, 2], position i32 [batch]");
    return CVN_OK;
}

/* Noise f32 [batch, vocab]: -log(-log(u)), u uniform in (0, 1). u is an odd multiple of 2^-24: it has 23 random bits,
   because with 24 the largest would round to 1 and its noise be infinite. */
static cvn_value *gumbel(cvn_graph *g, const cvn_type *shape, cvn_value *key, cvn_value *position)
{
    cvn_value *word[2];
    for (int i = 0; i < 2; i++)
        word[i] = along_rows(
            g, cvn_reshape(g, cvn_slice_axis(g, key, 1, i, i + 1), 1, &shape->dim[0]), shape);
    cvn_value *where = along_rows(g, cvn_convert(g, position, CVN_U32), shape);
    cvn_value *entry = cvn_iota(g, with_dtype(*shape, CVN_U32), 1);
    cvn_value *bits = cvn_random_bits(g, word[0], word[1], entry, where);
    bits = cvn_shift_right_logical(g, bits, like(g, bits, 9));
    cvn_value *u = cvn_convert(g, bits, CVN_F32);
    u = cvn_add(g, u, like(g, u, 0.5));
    u = cvn_multiply(g, u, like(g, u, 0x1p-23));
    return cvn_negate(g, cvn_log(g, cvn_negate(g, cvn_log(g, u))));
}

void decompose_categorical(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *logits = op->operand[0], *greedy = along_rows(g, op->operand[1], &logits->type);
    cvn_value *noise = gumbel(g, &logits->type, op->operand[2], op->operand[3]);
    cvn_value *noisy = cvn_select(g, greedy, logits, cvn_add(g, logits, noise));
    out[0] = decompose_index_of_max(g, noisy, 1);
}
