/* The decompositions of sampling. */
#include "graph/decompose_impl.h"

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
