/* What kernels fuse with their own operation (compile/kernel.h), drawn where options.rows says so. Rows that
   are added to a product are not: they change the sign of zeros. */
#ifndef TESTS_RANDOM_FUSED_H
#define TESTS_RANDOM_FUSED_H

#include "random_op.h"

/* Heads as attention has them: as many elements as any tensor that is fused. */
static inline cvn_type random_heads_type(const RandomGraph *r, cvn_dtype dtype)
{
    return CVN_TYPE(dtype, 2, r->options.rows, 2, 32);
}

/* [batch, seq, heads, head_dim] to [batch, heads, seq, head_dim], or back. */
static inline cvn_value *random_swap(RandomGraph *r, cvn_value *v)
{
    return cvn_transpose(r->g, v, (const int[]){0, 2, 1, 3});
}

/* A product or a norm's gradient, in f32 or bf16, now and then of heads. */
static inline cvn_value *random_producer(RandomGraph *r)
{
    cvn_graph *g = r->g;
    cvn_dtype dtype = random_chance(r, 70) ? CVN_BF16 : CVN_F32;
    const int64_t rows = r->options.rows;
    cvn_value *out[2];
    switch (random_below(r, 3)) {
    case 0:
        return random_row_product(r);
    case 1:
        return cvn_einsum_as(g, "bse,ehd->bshd", random_of_type(r, CVN_TYPE(dtype, 2, rows, 64)),
                             random_of_type(r, CVN_TYPE(dtype, 64, 2, 32)),
                             random_chance(r, 50) ? dtype : CVN_F32);
    default:
        cvn_rms_norm_backward(g, random_of_type(r, CVN_TYPE(CVN_F32, rows, 128)),
                              random_of_type(r, CVN_TYPE(CVN_F32, 128)),
                              random_of_type(r, CVN_TYPE(CVN_F32, rows, 128)), 1e-5, out);
        return out[0];
    }
}

/* One more operation that may become part of what made v. */
static inline cvn_value *random_epilogue(RandomGraph *r, cvn_value *v)
{
    cvn_graph *g = r->g;
    cvn_value *other;
    const int rank = v->type.rank;
    cvn_type part = v->type;
    switch (random_below(r, 8)) {
    case 0:
        other = random_of_type(r, v->type);
        return random_chance(r, 50) ? cvn_add(g, v, other) : cvn_add(g, other, v);
    case 1:
        return random_is_float(v->type.dtype) ? cvn_convert(g, v, CVN_BF16) : v;
    case 2:
        return v->type.rank == 4 ? random_swap(r, v) : v;
    case 3: /* squares down the columns, beside what they are of */
        if (v->type.dtype == CVN_F32 && v->type.rank == 2)
            cvn_output(g, cvn_reduce_dims(g, CVN_SUM, cvn_multiply(g, v, v), 1, (int[]){0}));
        return v;
    case 4: /* a column's factor, or a bias */
        part = CVN_TYPE(v->type.dtype, v->type.dim[rank - 1]);
        other = cvn_broadcast_in_dim(g, random_of_type(r, part), v->type, (int[]){rank - 1});
        return random_chance(r, 50) ? cvn_add(g, v, other) : cvn_multiply(g, other, v);
    case 5: /* a row's */
        part.rank--;
        other = cvn_broadcast_in_dim(g, random_of_type(r, part), v->type, (int[]){0, 1, 2, 3});
        return random_chance(r, 50) ? cvn_subtract(g, v, other) : cvn_multiply(g, v, other);
    case 6: /* a soft cap, a gate, or what is above 0 */
        return random_chance(r, 50)   ? cvn_multiply(g, v, cvn_logistic(g, v))
               : random_chance(r, 50) ? cvn_tanh(g, v)
                                      : cvn_maximum(g, v, cvn_splat(g, v->type, 0));
    default:
        return cvn_optimization_barrier(g, v);
    }
}

/* Rope of heads, widened, turned round before or behind. */
static inline cvn_value *random_turned(RandomGraph *r)
{
    bool before = random_chance(r, 50);
    cvn_value *x =
        random_of_type(r, random_heads_type(r, random_chance(r, 50) ? CVN_BF16 : CVN_F32));
    cvn_value *freq = random_of_type(r, CVN_TYPE(CVN_F32, 16));
    x = before ? random_swap(r, random_swap(r, x)) : x;
    x = x->type.dtype == CVN_BF16 && random_chance(r, 60) ? cvn_convert(r->g, x, CVN_F32) : x;
    x = cvn_rope(r->g, x, cvn_iota(r->g, CVN_TYPE(CVN_I32, 2, r->options.rows), 1), freq,
                 random_chance(r, 50));
    return random_chance(r, 50) ? cvn_convert(r->g, x, CVN_BF16) : x;
}

/* One value a row of x, [rows, columns], as it is or spread over the row again. */
static inline cvn_value *random_row_value(RandomGraph *r, cvn_value *x)
{
    cvn_graph *g = r->g;
    const cvn_reduce kind = random_chance(r, 80) ? CVN_SUM : CVN_MAX;
    cvn_value *row = cvn_reduce_dims(g, kind, x, 1, (int[]){1});
    row = cvn_multiply(g, row, cvn_splat(g, row->type, 1.0 / (double)x->type.dim[1]));
    if (random_chance(r, 20))
        cvn_output(g, row);
    return cvn_broadcast_in_dim(g, row, x->type, (int[]){0});
}

/* What norms are made of: reductions along rows, a gain for each column, 1 + it, and a norm of a kernel's own. */
static inline cvn_value *random_norm(RandomGraph *r)
{
    cvn_graph *g = r->g;
    const cvn_type all = CVN_TYPE(CVN_F32, r->options.rows, 128), column = CVN_TYPE(CVN_F32, 128);
    cvn_value *x = random_chance(r, 50) ? random_of_type(r, all)
                                        : cvn_convert(g, random_row_product(r), CVN_F32);
    if (!cvn_type_equal(&x->type, &all))
        x = random_of_type(r, all);
    cvn_value *gain = random_of_type(r, column);
    gain = random_chance(r, 50) ? cvn_add(g, gain, cvn_splat(g, column, 1)) : gain;
    if (random_chance(r, 60))
        x = cvn_subtract(g, x, random_row_value(r, x));
    if (random_chance(r, 50))
        return cvn_rms_norm(g, x, gain, 1e-5, random_chance(r, 50) ? CVN_BF16 : CVN_F32);
    x = cvn_multiply(g, x, random_row_value(r, cvn_multiply(g, x, x)));
    if (random_chance(r, 20))
        cvn_output(g, gain);
    return cvn_multiply(g, x, cvn_broadcast_in_dim(g, gain, all, (int[]){1}));
}

static inline cvn_value *random_fused(RandomGraph *r)
{
    cvn_value *v = random_chance(r, 25)   ? random_norm(r)
                   : random_chance(r, 75) ? random_producer(r)
                                          : random_turned(r);
    for (int n = random_below(r, 5); n > 0; n--)
        v = random_epilogue(r, v);
    return v;
}

#endif
