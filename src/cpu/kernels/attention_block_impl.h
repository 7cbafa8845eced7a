/*
 * What attention_impl.h does with one block of keys, for any number of rows of queries that share them: scores, weights and the
 * sums of values; and how what the blocks give is folded together. Few positions and many go through these functions alike, which treat
 * every row and every key as if it were alone: a sum over head_dim has a lane for every SUM_LANES-th element, one over keys a lane for every SUM_LANES-th key that the
 * row sees (or one accumulator for each element of a value, in the order of keys), however many rows and keys are kept in registers.
 *
 * Where pairs of bf16 can be multiplied (VEC_BF16), q and keys are, and scores are scaled; weights stay f32. Many rows of those have
 * another loop with the same sums (attention_pairs_impl.h).
 * Keys and values of 8 bits become floats in registers, or where there are the instructions of VEC_BF16 meet whole numbers
 * (attention_few_int8_impl.h). Their scales are not applied to them but to what comes of them, a number for each key:
 * score[j] = scale[j] (q . key j), and o += (p[j] scale[j]) value j.
 */

/* Asks for element i of what will be read next, so that memory is not idle while weights are made: of values while
   keys are read, of the keys behind while values are. It need not be there. */
VEC_INLINE void ask_ahead(const void *next, int64_t i, cvn_dtype dtype)
{
    int64_t size = dtype == CVN_BF16 ? 2 : dtype == CVN_I8 ? 1 : 4;
    __builtin_prefetch((const void *)((uintptr_t)next + (uintptr_t)(i * size)), 0, 2);
}

#if defined(VEC_BF16)
#include "cpu/kernels/pack_columns.h"
#include "cpu/kernels/power_of_two.h"
enum { HAS_PAIRS = true, PAIR_STEP = 64 /* bytes of 32 elements */ };
#else
enum { HAS_PAIRS = false };
#endif

/* exp(x) of a score less the largest one; beside products of pairs within 3e-6 of it. */
VEC_INLINE vf exp_weight(vf x)
{
#if defined(VEC_BF16)
    return power_of_two(x * vf_splat(1.44269504088896341f));
#else
    return vf_exp(x);
#endif
}

/* Scores of n keys are multiplied by the scales of these, bf16 or NULL, and capped where there is a cap. */
static void adjust_scores(float *score, const uint16_t *scale, float cap, int64_t n)
{
    for (int64_t j = 0; j < n; j += VN) {
        vf x = vf_load_part(score + j, n - j);
        if (scale)
            x *= vf_load_bf16_part(scale + j, n - j);
        if (cap > 0)
            x = vf_cap(x, cap);
        vf_store_part(score + j, x, n - j);
    }
}

#if defined(VEC_BF16)
#include "cpu/kernels/attention_few_int8_impl.h"
#endif

/* Whether q stays bf16, for products of pairs of bf16 with keys. */
static inline bool few_pairs(cvn_dtype kv)
{
    return HAS_PAIRS && kv == CVN_BF16;
}

/* Whether keys and values meet whole numbers. */
static inline bool few_whole(cvn_dtype kv)
{
    return HAS_PAIRS && kv == CVN_I8;
}

/* ---- products with keys and values; `ask`, a constant: something else is asked for meanwhile ---- */

VEC_INLINE vf load_kv(const void *p, int64_t i, int64_t n, cvn_dtype dtype)
{
    return dtype == CVN_BF16 ? vf_load_bf16_part((const uint16_t *)p + i, n)
           : dtype == CVN_I8 ? vf_load_i8_part((const int8_t *)p + i, n)
                             : vf_load_part((const float *)p + i, n);
}

/* What is multiplied with keys of a dtype: elements i … of q or of keys, of which n are left, as floats or, where pairs are
   multiplied, in bf16; and their products, added to sums. */
VEC_INLINE vf load_terms(const bool pairs, const void *p, int64_t i, int64_t n, cvn_dtype dtype)
{
#if defined(VEC_BF16)
    if (pairs)
        return (vf)_mm512_maskz_loadu_epi16(n < 2 * VN ? (1u << n) - 1u : ~0u,
                                            (const uint16_t *)p + i);
#endif
    (void)pairs;
    return load_kv(p, i, n, dtype);
}

VEC_INLINE vf add_terms(const bool pairs, vf a, vf b, vf sum)
{
#if defined(VEC_BF16)
    if (pairs)
        return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
#endif
    (void)pairs;
    return vf_fma(a, b, sum);
}

/* score[r, j] = dot(q row r, key j) for R rows from r0 on and J keys, constants. */
VEC_INLINE void score_block(const int R, const int J, const bool ask, cvn_dtype dtype,
                            const void *q, int64_t r0, const void *k, const void *next,
                            int64_t first, int64_t d, float *score)
{
    const bool pairs = few_pairs(dtype);
    VecSum sum[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < J; j++)
            sum[r][j] = vec_sum_zero();
    for (int64_t i = 0; i < d; i += pairs ? 2 * SUM_LANES : SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            const int64_t at = i + p * VN, left = vec_left(d - i, p);
            vf key[4];
#pragma GCC unroll 4
            for (int j = 0; j < J; j++) {
                key[j] = vf_keep(load_terms(pairs, k, first + j * d + at, left, dtype));
                if (ask)
                    ask_ahead(next, first + j * d + at, dtype);
            }
#pragma GCC unroll 4
            for (int r = 0; r < R; r++) {
                vf x = load_terms(pairs, q, (r0 + r) * d + at, left, CVN_F32);
#pragma GCC unroll 4
                for (int j = 0; j < J; j++)
                    sum[r][j].part[p] = add_terms(pairs, x, key[j], sum[r][j].part[p]);
            }
        }
    vec_sum_block(R, J, sum, score + r0 * KEYS, KEYS);
}

VEC_INLINE void score_rows(const int R, const bool ask, cvn_dtype dtype, const void *q, int64_t r0,
                           const void *k, const void *next, int64_t first, int64_t keys, int64_t d,
                           float *score)
{
    const int J = SUM_VECTORS == 1 ? (VN == 16 || R == 2 ? 4 : 2) : R > 1 ? 1 : 2;
    int64_t j = 0;
    for (; j + J <= keys; j += J)
        score_block(R, J, ask, dtype, q, r0, k, next, first + j * d, d, score + j);
    for (; j < keys; j++)
        score_block(R, 1, ask, dtype, q, r0, k, next, first + j * d, d, score + j);
}

VEC_INLINE void score_group(cvn_dtype dtype, const void *q, const void *k, const void *next,
                            int64_t first, int64_t keys, int64_t d, int64_t group, float *score)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), score_rows, true, dtype, q, r, k, next, first, keys,
                        d, score)
}

/* o[r, :] += sum over j of p[r, j] * v[j, :] for R rows and C vectors of columns from column i on; not whole: the last one is
   less than a vector. */
VEC_INLINE void value_block(const int R, const int C, const bool ask, const bool whole,
                            cvn_dtype dtype, const float *p, const void *v, const void *next,
                            int64_t first, int64_t keys, int64_t d, int64_t i, float *o)
{
    vf sum[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            sum[r][c] = vf_load_part(o + r * d + i + c * VN, whole ? VN : d - i);
    for (int64_t j = 0; j < keys; j++) {
        vf x[4];
#pragma GCC unroll 4
        for (int c = 0; c < C; c++) {
            x[c] = load_kv(v, first + j * d + i + c * VN, whole ? VN : d - i, dtype);
            if (ask)
                ask_ahead(next, first + j * d + i + c * VN, dtype);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf w = vf_splat(p[r * KEYS + j]);
#pragma GCC unroll 4
            for (int c = 0; c < C; c++)
                sum[r][c] = vf_fma(w, x[c], sum[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int c = 0; c < C; c++)
            vf_store_part(o + r * d + i + c * VN, sum[r][c], whole ? VN : d - i);
}

VEC_INLINE void value_rows(const int R, const bool ask, cvn_dtype dtype, const float *p,
                           const void *v, const void *next, int64_t first, int64_t keys, int64_t d,
                           float *o)
{
    enum { C = VN == 16 ? 4 : 2 };
    int64_t i = 0;
    for (; i + C * VN <= d; i += C * VN)
        value_block(R, C, ask, true, dtype, p, v, next, first, keys, d, i, o);
    for (; i + VN <= d; i += VN)
        value_block(R, 1, ask, true, dtype, p, v, next, first, keys, d, i, o);
    if (i < d)
        value_block(R, 1, ask, false, dtype, p, v, next, first, keys, d, i, o);
}

VEC_INLINE void value_group(cvn_dtype dtype, const float *p, const void *v, const void *next,
                            int64_t first, int64_t keys, int64_t d, int64_t group, float *o)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), value_rows, true, dtype, p + r * KEYS, v, next,
                        first, keys, d, o + r * d)
}

/* ---- what a row makes of its scores ---- */

/* Scores of the n keys from number `at` of the cache on, which one row sees, become weights, exp(score - *peak), times the
   scales of their values: *peak is the largest score, *sum what the weights add up to without scales. */
static void weigh(const AttentionOperands *a, float *score, int64_t at, int64_t n, float *peak,
                  float *sum)
{
    const uint16_t *scale = a->v_scale ? a->v_scale + at : NULL;
    if (a->k_scale || a->cap > 0)
        adjust_scores(score, a->k_scale ? a->k_scale + at : NULL, a->cap, n);
    vf high = vf_splat(-INFINITY);
    VecSum total = vec_sum_zero();
    for (int64_t i = 0; i < n; i += VN)
        high = vf_max(vf_load_part_or(score + i, n - i, -INFINITY), high);
    float top = vf_max_lane(high), base = isfinite(top) ? top : 0.0f;
    for (int64_t i = 0; i < n; i += SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            const int64_t j = i + p * VN, left = vec_left(n - i, p);
            vf weight = exp_weight(vf_load_part_or(score + j, left, -INFINITY) - vf_splat(base));
            total.part[p] += weight;
            if (scale)
                weight *= vf_load_bf16_part(scale + j, left);
            vf_store_part(score + j, weight, left);
        }
    *sum = vec_sum(&total);
    *peak = top;
}

/* ---- sums of blocks ---- */

/* Of rows of queries: sums of values, times weights; the largest score; the sum of weights. */
typedef struct Sums {
    float *o;          /* [rows, head_dim] */
    float *peak, *sum; /* [rows] */
} Sums;

/* Floats of all three. */
static int64_t sums_floats(const AttentionOperands *a, int64_t rows)
{
    return rows * (a->head_dim + 2);
}

static Sums sums_at(const AttentionOperands *a, int64_t rows, float *base)
{
    float *peak = base + rows * a->head_dim;
    return (Sums){.o = base, .peak = peak, .sum = peak + rows};
}

/* Before any block: what is known of a row of a head is its sink. */
static void sums_begin(const AttentionOperands *a, const Sums *all, int64_t r, int64_t head)
{
    memset(all->o + r * a->head_dim, 0, (size_t)a->head_dim * sizeof *all->o);
    all->peak[r] = attention_sink(a, head, &all->sum[r]);
}

/* Of row r, all = all and part. */
static void fold(const AttentionOperands *a, const Sums *all, const Sums *part, int64_t r)
{
    int64_t d = a->head_dim;
    float m = all->peak[r], n = part->peak[r], top = n > m ? n : m;
    float base = isfinite(top) ? top : 0.0f;
    const vf old = vf_exp(vf_splat(m - base)), new = vf_exp(vf_splat(n - base));
    float *o = all->o + r * d;
    const float *more = part->o + r * d;
    for (int64_t i = 0; i < d; i += VN)
        vf_store_part(o + i, vf_load_part(o + i, d - i) * old + vf_load_part(more + i, d - i) * new,
                      d - i);
    all->peak[r] = top;
    all->sum[r] = all->sum[r] * old[0] + part->sum[r] * new[0];
}

/* The result of row r, which is a head of a position; `line` has room for head_dim. */
static void write_row(const AttentionOperands *a, const Sums *all, int64_t r, int64_t at,
                      float *line)
{
    const float factor = 1.0f / all->sum[r], *o = all->o + r * a->head_dim;
    for (int64_t i = 0; i < a->head_dim; i++)
        line[i] = o[i] * factor;
    tile_write(a->q_dtype, a->out, at, a->head_dim, line);
}
