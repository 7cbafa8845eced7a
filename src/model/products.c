/*
 * Products with the parameters of a model, in whatever form these are: floats, 8 or 4 bits, blocks of GGUF files; of inputs in floats or
 * in 8 bits; with adapters or without. In equations b, s are batch and sequence, e the width, n and k heads of queries and of keys, h
 * their width, f that of the feed-forward part, v the vocabulary, r the rank of adapters.
 */
#include "model/forward_impl.h"

#include <stdio.h>
#include <string.h>

cvn_value *forward_weight(const Builder *b, ParamKind kind, int64_t layer)
{
    const Param *p = kind < PARAM_KIND_COUNT ? params_find(b->params, kind, (int)layer) : NULL;
    return p ? b->weight[p - b->params->param] : NULL;
}

cvn_value *forward_compute(Builder *b, cvn_value *x)
{
    if (cvn_value_type(x)->dtype == b->compute)
        return x;
    return cvn_convert(G, x, b->compute);
}

/* The letters of an equation's weight that stand in its input (in) or do not. */
static void pick(const char *equation, bool in, char letters[CVN_MAX_RANK + 1])
{
    size_t comma = strcspn(equation, ",");
    int n = 0;
    for (const char *c = equation + comma + 1; *c != '-'; c++)
        if ((memchr(equation, *c, comma) != NULL) == in)
            letters[n++] = *c;
    letters[n] = '\0';
}

/* What ranks count in each row. Those of other adapters are 0 whatever x makes of them, infinities too. */
static cvn_value *select_ranks(Builder *b, cvn_value *low /* [batch, seq, rank] */)
{
    const cvn_type type = *cvn_value_type(low);
    if (!b->rows.select)
        return cvn_multiply(G, low, cvn_splat(G, type, b->adapters->scale));
    cvn_value *scale = cvn_broadcast_in_dim(G, b->rows.select, type, (int[]){0, 2});
    cvn_value *zero = cvn_splat(G, type, 0), *none = cvn_compare_values(G, CVN_EQ, scale, zero);
    low = cvn_multiply(G, low, scale);
    return cvn_select(G, none, zero, low);
}

/* y + scale (x A^T) B^T where the weight has adapters: for "bse,nhe->bsnh" the products are
   "bse,re->bsr" and "bsr,nhr->bsnh". */
static cvn_value *adapt(Builder *b, const char *equation, cvn_value *x, cvn_value *y,
                        ParamKind kind, int64_t layer)
{
    const Param *p = params_find(b->params, kind, (int)layer);
    int64_t i = p - b->params->param;
    if (!b->adapters || !b->adapters->a[i])
        return y;
    char in[CVN_MAX_RANK + 1], out[CVN_MAX_RANK + 1], down[64], up[64];
    pick(equation, true, in);
    pick(equation, false, out);
    snprintf(down, sizeof down, "%.*s,r%s->bsr", (int)strcspn(equation, ","), equation, in);
    snprintf(up, sizeof up, "bsr,%sr->bs%s", out, out);
    x = dropout(G, x, &b->drop, b->drop.adapters, dropout_site(layer, DROPOUT_ADAPTER + (int)kind));
    cvn_value *low = cvn_einsum_as(G, down, x, forward_compute(b, b->adapters->a[i]), CVN_F32);
    low = forward_compute(b, select_ranks(b, low));
    return cvn_add(G, y, cvn_einsum_as(G, up, low, forward_compute(b, b->adapters->b[i]), CVN_F32));
}

cvn_value *forward_matrix(Builder *b, ParamKind kind, int64_t layer, cvn_dtype dtype)
{
    const Param *p = params_find(b->params, kind, (int)layer);
    cvn_value *w = forward_weight(b, kind, layer);
    if (p->form == PARAM_PLAIN)
        return forward_compute(b, w);
    if (p->form == PARAM_QUANTIZED)
        return cvn_dequantize(G, w, b->weight[p->scale], b->compute);
    const cvn_type type = cvn_type_make(dtype, p->rank, p->dims);
    return cvn_dequantize_blocks(G, w, block_info[p->blocks].name, type);
}

/* x [batch, seq, what is summed …] in 8 bits, a scale for each `columns` of a row, 0 for all: out[0] i8
   [batch, seq, (k / columns,) columns]. */
static void to_8_bits(Builder *b, cvn_value *x, const Param *p, cvn_value *out[2])
{
    const cvn_type *from = cvn_value_type(x);
    int64_t k = 1;
    for (int d = 2; d < from->rank; d++)
        k *= from->dim[d];
    int64_t shape[] = {from->dim[0], from->dim[1], k, 1};
    if (p->form == PARAM_BLOCKS) {
        shape[3] = block_chunk(p->blocks, k).columns;
        shape[2] = k / shape[3];
    }
    cvn_quantize_rows(G, cvn_reshape(G, x, p->form == PARAM_BLOCKS ? 4 : 3, shape), out);
}

/* x in 8 bits times a weight in blocks, whose chunks have a step each. */
static cvn_value *blocks_int8(Builder *b, const char *equation, cvn_value *x, ParamKind kind,
                              int64_t layer)
{
    const cvn_type *type = cvn_value_type(x);
    cvn_value *rows[2];
    to_8_bits(b, x, params_find(b->params, kind, (int)layer), rows);
    x = cvn_dequantize(G, rows[0], rows[1], CVN_F32);
    x = cvn_reshape(G, x, type->rank, type->dim);
    return cvn_einsum_as(G, equation, x, forward_matrix(b, kind, layer, CVN_F32), CVN_F32);
}

/* x in 8 bits times a weight of 8 bits, f32 [batch, seq, rows …]. */
static cvn_value *linear_int8(Builder *b, cvn_value *x, ParamKind kind, int64_t layer)
{
    const Param *p = params_find(b->params, kind, (int)layer);
    const cvn_type *from = cvn_value_type(x);
    cvn_value *rows[2];
    to_8_bits(b, x, p, rows);
    cvn_type type = {.dtype = CVN_F32, .rank = 2 + p->n_rows};
    for (int d = 0; d < type.rank; d++)
        type.dim[d] = d < 2 ? from->dim[d] : p->dims[d - 2];
    return cvn_linear_int8(G, rows[0], rows[1], forward_weight(b, kind, layer), b->weight[p->scale],
                           type);
}

cvn_value *forward_linear(Builder *b, const char *equation, cvn_value *x, ParamKind kind,
                          ParamKind bias, int64_t layer)
{
    const Param *p = params_find(b->params, kind, (int)layer);
    bool eight =
        p->form == PARAM_BLOCKS || (p->form == PARAM_QUANTIZED && p->quant.dtype == CVN_I8);
    cvn_value *y, *add = forward_weight(b, bias, layer);
    if (b->input)
        b->input[p - b->params->param] = x;
    if (!eight || !b->step || !b->step->int8_inputs)
        y = cvn_einsum_as(G, equation, x, forward_matrix(b, kind, layer, b->compute), CVN_F32);
    else if (p->form == PARAM_BLOCKS)
        y = blocks_int8(b, equation, x, kind, layer);
    else
        y = linear_int8(b, x, kind, layer);
    y = adapt(b, equation, x, y, kind, layer);
    if (!add)
        return y;
    add = cvn_convert(G, add, CVN_F32);
    return cvn_add(G, y, cvn_broadcast_to(G, add, cvn_value_type(y)));
}
