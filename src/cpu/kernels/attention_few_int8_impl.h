/*
 * The products of attention_few_impl.h with keys and values of 8 bits, in integers (AVX-512 VNNI): vpdpbusd adds four
 * products of an unsigned with a signed byte to each of 16 sums. Keys and values are the unsigned ones, read as they lie
 * and made so by flipping their sign bit, which adds 128; q and the weights become whole numbers x of 16 bits times a
 * unit of their row, and are two signed bytes each, x = 256 high + low:
 *
 *     q . k  =  unit (256 sum of high (k + 128)  +  sum of low (k + 128)  -  128 sum of x)
 *
 * Sums are exact. What is rounded is q, to 2^-16 of the largest of its row (bf16, which it comes from, has 2^-9 of each),
 * and weights, which have the scales of their values in them, to 2^-16 of the largest of the KEYS beside them.
 *
 * Sixteen keys are transposed in registers, four dimensions of each to a lane, so that a lane is a key and nothing is
 * summed across lanes. Four values are interleaved, so that a lane has one dimension of each.
 */
enum {
    UNIT = 64,        /* bytes of a vector */
    MOST = 127 * 256, /* of x: its high byte has 8 bits */
    LONG_ROW = 512    /* of so many products the sum has 31 bits; x of longer rows is smaller */
};

/* q or weights as whole numbers: of each row `width` of them, a whole number of UNITs. */
typedef struct Whole {
    int8_t *x;     /* [rows][width / 4][high, low][4] */
    float *unit;   /* [rows] */
    int32_t *flip; /* [rows] -128 times the sum of x */
} Whole;

static Whole whole_of(char *base, size_t *used, int64_t rows, int64_t width)
{
    Whole f;
    f.x = scratch_take(base, used, 2 * rows * width);
    f.unit = scratch_take(base, used, rows * (int64_t)sizeof(float));
    f.flip = scratch_take(base, used, rows * (int64_t)sizeof(int32_t));
    return f;
}

/* x of 16 numbers, the vector number i of a row; their sum is added to that of the row. */
VEC_INLINE __m512i store_whole(int8_t *row, int64_t i, __m512i x, __m512i sum)
{
    __m512i high = _mm512_srai_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(128)), 8);
    __m512i low = _mm512_sub_epi32(x, _mm512_slli_epi32(high, 8));
    __m128i h = _mm512_cvtepi32_epi8(high), l = _mm512_cvtepi32_epi8(low);
    _mm_storeu_si128((__m128i *)(void *)(row + 2 * i), _mm_unpacklo_epi32(h, l));
    _mm_storeu_si128((__m128i *)(void *)(row + 2 * i + VN), _mm_unpackhi_epi32(h, l));
    return _mm512_add_epi32(sum, x);
}

/* Row r of f becomes n floats from element `begin` on, some whole vectors, of which `high` are the largest of each lane, and zeros
   elsewhere; nan: a NaN if one of them is, or infinite, and so is the unit then. */
static void make_whole(const Whole *f, int64_t r, int64_t begin, const float *x, int64_t n,
                       int64_t width, vf high, vf nan)
{
    float most = (float)(width <= LONG_ROW ? MOST : MOST * LONG_ROW / width);
    float top = vf_max_lane(high);
    top = top > 1e-30f ? top : 1e-30f;       /* so that most / top is finite */
    float fault = vec_sum(&(VecSum){{nan}}); /* 0, or a NaN */
    f->unit[r] = top / most + fault;
    vf factor = vf_splat(most / top);
    __m512i sum = _mm512_setzero_si512();
    int8_t *row = f->x + 2 * r * width;
    memset(row, 0, (size_t)(2 * begin));
    row += 2 * begin;
    for (int64_t i = 0; i < width - begin; i += VN) {
        vf v = i < n ? vf_load_part(x + i, n - i) : vf_zero();
        sum = store_whole(row, i, _mm512_cvtps_epi32(v * factor), sum);
    }
    f->flip[r] = fault == 0 ? -128 * _mm512_reduce_add_epi32(sum) : 0;
}

/* Of q, n floats. */
static void whole_query(const Whole *f, int64_t r, const float *x, int64_t n)
{
    vf high = vf_zero(), nan = vf_zero();
    for (int64_t i = 0; i < n; i += VN) {
        vf v = vf_load_part(x + i, n - i);
        high = vf_max(vf_abs(v), high);
        nan = vf_fma(v, vf_zero(), nan);
    }
    make_whole(f, r, 0, x, n, num_round_up(n, UNIT), high, nan);
}

/* Scores of keys [from, to) of some whole vectors become weights, times the scales of their values: those of row r of f, from
   element `begin` on. from is in the first vector; keys before it, and all others of the row, get 0. *peak and *sum as in weigh. */
static void weigh_whole(const AttentionOperands *a, const Whole *f, int64_t r, int64_t begin,
                        float *score, int64_t from, int64_t to, const uint16_t *scale, float *peak,
                        float *sum)
{
    vf high = vf_splat(-INFINITY), total = vf_zero(), nan = vf_zero();
    if (a->cap > 0)
        adjust_scores(score, NULL, a->cap, to);
    for (int64_t i = 0; i < from; i++)
        score[i] = -INFINITY;
    for (int64_t i = to; i < num_round_up(to, VN); i++)
        score[i] = -INFINITY;
    for (int64_t i = 0; i < to; i += VN)
        high = vf_max(vf_load(score + i), high);
    float top = vf_max_lane(high);
    float base = isfinite(top) ? top : 0.0f;
    high = vf_zero();
    for (int64_t i = 0; i < to; i += VN) {
        vf p = exp_weight(vf_load(score + i) - vf_splat(base));
        total += p;
        p *= vf_load_bf16_part(scale + i, to - i);
        if (i < from) /* whatever their scales are */
            p = _mm512_maskz_mov_ps((__mmask16)(~0u << from), p);
        vf_store(score + i, p);
        high = vf_max(vf_abs(p), high);
        nan = vf_fma(p, vf_zero(), nan);
    }
    make_whole(f, r, begin, score, to, KEYS, high, nan);
    *sum = vec_sum(&(VecSum){{total}});
    *peak = top;
}

/* sum + w (unsigned) . x (signed), x being four bytes for all lanes. Written out, because compilers copy the sum for
   the intrinsic. */
VEC_INLINE __m512i dot4(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*(const int8_t(*)[4])x));
    return sum;
}

VEC_INLINE vf join_sums(__m512i high, __m512i low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

VEC_INLINE __mmask64 first_bytes(int64_t n)
{
    return n < UNIT ? ((__mmask64)1 << n) - 1 : ~(__mmask64)0;
}

/* 16 rows of 16 numbers of 32 bits: groups of four rows become columns, of which transpose_four makes whole ones. */
VEC_INLINE void transpose_groups(__m512i x[16])
{
#pragma GCC unroll 4
    for (int i = 0; i < 16; i += 4) {
        __m512i a = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        __m512i b = _mm512_unpackhi_epi32(x[i], x[i + 1]);
        __m512i c = _mm512_unpacklo_epi32(x[i + 2], x[i + 3]);
        __m512i d = _mm512_unpackhi_epi32(x[i + 2], x[i + 3]);
        x[i] = _mm512_unpacklo_epi64(a, c);
        x[i + 1] = _mm512_unpackhi_epi64(a, c);
        x[i + 2] = _mm512_unpacklo_epi64(b, d);
        x[i + 3] = _mm512_unpackhi_epi64(b, d);
    }
}

/* Columns i, i + 4, i + 8 and i + 12. */
VEC_INLINE void transpose_four(const __m512i x[16], int i, __m512i column[4])
{
    __m512i a = _mm512_shuffle_i32x4(x[i], x[i + 4], 0x88);
    __m512i b = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0x88);
    __m512i c = _mm512_shuffle_i32x4(x[i], x[i + 4], 0xdd);
    __m512i d = _mm512_shuffle_i32x4(x[i + 8], x[i + 12], 0xdd);
    column[0] = _mm512_shuffle_i32x4(a, b, 0x88);
    column[1] = _mm512_shuffle_i32x4(c, d, 0x88);
    column[2] = _mm512_shuffle_i32x4(a, b, 0xdd);
    column[3] = _mm512_shuffle_i32x4(c, d, 0xdd);
}

/* The keys or values of one KV head from some position on, and what will be read next. */
typedef struct Bytes {
    const int8_t *row; /* [keys, d] */
    const void *next;  /* asked for at the same time; need not be there */
    int64_t keys, d;
} Bytes;

/* Elements [i, i + 64) of rows j, j + 1 … of `count`, a constant, made unsigned; whole: there are so many. Of those past
   the end the last is taken in their place: what comes of them is not used, or has no weight. */
VEC_INLINE void load_rows(const int count, const bool whole, const bool ask, const Bytes *b,
                          int64_t j, int64_t i, __mmask64 valid, __m512i *x)
{
    const int8_t *at = b->row + j * b->d + i, *end = b->row + (b->keys - 1) * b->d;
    int64_t ahead = (int64_t)((uintptr_t)b->next - (uintptr_t)b->row);
#pragma GCC unroll 16
    for (int t = 0; t < count; t++) {
        x[t] = _mm512_xor_si512(_mm512_maskz_loadu_epi8(valid, at), _mm512_set1_epi8((char)0x80));
        if (ask)
            ask_ahead(at, ahead, CVN_I8);
        at += whole || at < end ? b->d : 0;
    }
}

/* score[r, j] = scale[j] dot(q row r, key j) for R rows, a constant, from row r0 on, and 16 keys, or, not whole, as many
   as there are. */
VEC_INLINE void score_keys(const int R, const bool whole, const Bytes *k, const Whole *q,
                           int64_t r0, int64_t j, const uint16_t *scale, float *score)
{
    int64_t width = num_round_up(k->d, UNIT), left = k->keys - j;
    __m512i high[4], low[4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++) {
        high[r] = _mm512_setzero_si512();
        low[r] = _mm512_set1_epi32(q->flip[r0 + r]);
    }
    for (int64_t i = 0; i < k->d; i += UNIT) {
        __m512i x[VN];
        load_rows(VN, whole, true, k, j, i, first_bytes(k->d - i), x);
        transpose_groups(x);
        const int8_t *quad = q->x + 2 * (r0 * width + i);
#pragma GCC unroll 4
        for (int t = 0; t < 4; t++, quad += 8) {
            __m512i column[4];
            transpose_four(x, t, column);
#pragma GCC unroll 4
            for (int c = 0; c < 4; c++)
#pragma GCC unroll 4
                for (int r = 0; r < R; r++) {
                    const int8_t *at = quad + 2 * r * width + 32 * c;
                    high[r] = dot4(high[r], column[c], at);
                    low[r] = dot4(low[r], column[c], at + 4);
                }
        }
    }
    vf scales = whole ? vf_load_bf16(scale + j) : vf_load_bf16_part(scale + j, left);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        vf_store(score + (r0 + r) * KEYS + j,
                 join_sums(high[r], low[r]) * vf_splat(q->unit[r0 + r]) * scales);
}

VEC_INLINE void score_rows_bytes(const int R, const Bytes *k, const Whole *q, int64_t r0,
                                 const uint16_t *scale, float *score)
{
    int64_t j = 0;
    for (; j + VN <= k->keys; j += VN)
        score_keys(R, true, k, q, r0, j, scale, score);
    if (j < k->keys)
        score_keys(R, false, k, q, r0, j, scale, score);
}

/* o[16 l + 4 c + i, …) += unit sum[c][4 l + i] for l < 4, c < 2, i < 4, of n columns that there are. */
VEC_INLINE void add_values(float *o, int64_t n, vf first, vf second, float unit)
{
    const __m512i low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    __m512d a = _mm512_castps_pd(first), b = _mm512_castps_pd(second);
    vf sum[2] = {_mm512_castpd_ps(_mm512_permutex2var_pd(a, low, b)),
                 _mm512_castpd_ps(_mm512_permutex2var_pd(a, high, b))};
#pragma GCC unroll 4
    for (int l = 0; l < 4; l++) {
        int64_t left = n - 16 * l;
        if (left <= 0)
            break;
        __mmask8 valid = (__mmask8)(left < 8 ? (1u << left) - 1u : 0xffu);
        __m256 x =
            l % 2 ? _mm512_extractf32x8_ps(sum[l / 2], 1) : _mm512_castps512_ps256(sum[l / 2]);
        x = _mm256_fmadd_ps(x, _mm256_set1_ps(unit), _mm256_maskz_loadu_ps(valid, o + 16 * l));
        _mm256_mask_storeu_ps(o + 16 * l, valid, x);
    }
}

/* Products of R rows, a constant, from r0 on, with values j … j + 3 in columns i + 16 l + 8 half + 0 … 7. */
VEC_INLINE void value_four(const int R, const bool half, const bool whole, const Bytes *v,
                           const Whole *p, int64_t r0, int64_t j, int64_t i, __mmask64 valid,
                           __m512i high[4][2], __m512i low[4][2])
{
    __m512i x[4], y[2];
    load_rows(4, whole, !half, v, j, i, valid, x);
    __m512i ab = half ? _mm512_unpackhi_epi8(x[0], x[1]) : _mm512_unpacklo_epi8(x[0], x[1]);
    __m512i cd = half ? _mm512_unpackhi_epi8(x[2], x[3]) : _mm512_unpacklo_epi8(x[2], x[3]);
    y[0] = _mm512_unpacklo_epi16(ab, cd);
    y[1] = _mm512_unpackhi_epi16(ab, cd);
    const int8_t *quad = p->x + 2 * (r0 * KEYS + j);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            high[r][c] = dot4(high[r][c], y[c], quad + 2 * r * KEYS);
            low[r][c] = dot4(low[r][c], y[c], quad + 2 * r * KEYS + 4);
        }
}

/* o[r, i + 16 l + 8 half + …] += sum over j of weight[r, j] value[j, …]: l < 4 and 8 columns each. */
VEC_INLINE void value_half(const int R, const bool half, const Bytes *v, const Whole *p, int64_t r0,
                           int64_t i, float *o)
{
    __m512i high[4][2], low[4][2];
    __mmask64 valid = first_bytes(v->d - i);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 2
        for (int c = 0; c < 2; c++) {
            high[r][c] = _mm512_setzero_si512();
            low[r][c] = _mm512_set1_epi32(p->flip[r0 + r]);
        }
    int64_t j = 0, at = i + 8 * half;
    for (; j + 4 <= v->keys; j += 4)
        value_four(R, half, true, v, p, r0, j, i, valid, high, low);
    if (j < v->keys)
        value_four(R, half, false, v, p, r0, j, i, valid, high, low);
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
        add_values(o + (r0 + r) * v->d + at, v->d - at, join_sums(high[r][0], low[r][0]),
                   join_sums(high[r][1], low[r][1]), p->unit[r0 + r]);
}

VEC_INLINE void add_rows_bytes(const int R, const Bytes *v, const Whole *p, int64_t r0, float *o)
{
    for (int64_t i = 0; i < v->d; i += UNIT) {
        value_half(R, false, v, p, r0, i, o);
        if (i + 8 < v->d)
            value_half(R, true, v, p, r0, i, o);
    }
}

/* score[r, j] = scale[j] dot(q row r, key j) for all heads that share the keys; scale in bf16. */
static void score_bytes(const Bytes *k, const Whole *q, int64_t group, const uint16_t *scale,
                        float *score)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), score_rows_bytes, k, q, r, scale, score)
}

/* o[r, :] += sum over j of p[r, j] value[j, :] for all heads that share the values. */
static void add_bytes(const Bytes *v, const Whole *p, int64_t group, float *o)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), add_rows_bytes, v, p, r, o)
}
