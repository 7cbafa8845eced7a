/*
 * The part of attention_impl.h for a few positions: decoding. Keys and values are read once, where they lie, by dot
 * products; what counts is that all threads read at once, however rows, heads and lengths are spread.
 *
 * The keys that a query sees are cut into chunks of CHUNK. Each chunk gives a largest score m, a sum l and an o of its
 * own, and these are folded one after the other, from the first chunk to the last (Dao et al. 2023,
 * "Flash-Decoding"): with the sums so far on the left,
 *
 *     M' = max(M, m)      L' = L exp(M - M') + l exp(m - M')      O' = O exp(M - M') + o exp(m - M')
 *
 * Chunks of all heads and rows are numbered one after the other, and each thread takes an equal share of the numbers:
 *
 *     head 0, row 0        head 0, row 1   head 1, row 0        head 1, row 1        3 and 2 chunks
 *     0     1     2        3     4         5     6     7        8     9
 *     thread 0 ………………… 2 | thread 1 ……………………… 5 | thread 2 …………………………………………………
 *
 * A query whose chunks are all one thread's is folded on the way. One whose chunks lie with several (head 1, row 0) has
 * them written to scratch, and the thread that has its first folds them when all are there. Where a chunk ends depends
 * on nothing but the query, and the order is always the same, so the result does not depend on the number of threads
 * or on the other rows.
 *
 * A head is numbered through all rows because cache_update shares heads out likewise: of whichever rows, filled one by one
 * or together, a thread reads the heads that it wrote, but for a head that lies with several. On a machine with several
 * memories these are near it.
 *
 * Where pairs of bf16 can be multiplied (VEC_BF16), q and keys are, and scores are scaled; weights stay f32.
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
#include "cpu/kernels/attention_few_int8_impl.h"
#endif

/* Scratch of one thread. */
typedef struct Few {
    float *q;     /* [group, head_dim]; where pairs are multiplied: bf16 */
    float *score; /* [group, KEYS] */
    /* [group * (head_dim + 2)] folded so far: o [group, head_dim], then m, then l [group]. */
    float *all;
    float *part; /* the same of one chunk */
    float *row;  /* [head_dim] */
#if defined(VEC_BF16)
    Whole whole_q,
        weight; /* of keys and values of 8 bits: q, [group] rows, and weights, of KEYS each */
#endif
} Few;

#if defined(VEC_BF16)
enum { HAS_PAIRS = true };
#else
enum { HAS_PAIRS = false };
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

/* Floats of o, m and l of the heads that share a KV head. */
static int64_t state_floats(const Attention *a)
{
    return a->group * (a->head_dim + 2);
}

static size_t few_of(const Attention *a, char *base, Few *f)
{
    const int64_t size = sizeof(float);
    size_t used = 0;
    f->q = scratch_take(base, &used, a->group * a->head_dim * size);
    f->score = scratch_take(base, &used, a->group * KEYS * size);
    f->all = scratch_take(base, &used, state_floats(a) * size);
    f->part = scratch_take(base, &used, state_floats(a) * size);
    f->row = scratch_take(base, &used, a->head_dim * size);
#if defined(VEC_BF16)
    f->whole_q = whole_of(base, &used, a->group, num_round_up(a->head_dim, UNIT));
    f->weight = whole_of(base, &used, a->group, KEYS);
#endif
    return used;
}

/* Bytes of the chunks of one query that lies with several threads. */
static size_t split_bytes(const Attention *a)
{
    int64_t chunks = num_pieces(a->context, CHUNK);
    return (size_t)num_round_up(chunks * state_floats(a) * (int64_t)sizeof(float), 64);
}

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
VEC_INLINE void score_block(const int R, const int J, cvn_dtype dtype, const void *q, int64_t r0,
                            const void *k, const void *next, int64_t first, int64_t d, float *score)
{
    const bool pairs = few_pairs(dtype);
    vf sum[4][4];
#pragma GCC unroll 4
    for (int r = 0; r < R; r++)
#pragma GCC unroll 4
        for (int j = 0; j < J; j++)
            sum[r][j] = vf_zero();
    for (int64_t i = 0; i < d; i += pairs ? 2 * VN : VN) {
        vf key[4];
#pragma GCC unroll 4
        for (int j = 0; j < J; j++) {
            key[j] = vf_keep(load_terms(pairs, k, first + j * d + i, d - i, dtype));
            ask_ahead(next, first + j * d + i, dtype);
        }
#pragma GCC unroll 4
        for (int r = 0; r < R; r++) {
            vf x = load_terms(pairs, q, (r0 + r) * d + i, d - i, CVN_F32);
#pragma GCC unroll 4
            for (int j = 0; j < J; j++)
                sum[r][j] = add_terms(pairs, x, key[j], sum[r][j]);
        }
    }
    vf_sum_block(R, J, sum, score + r0 * KEYS, KEYS);
}

VEC_INLINE void score_rows(const int R, cvn_dtype dtype, const void *q, int64_t r0, const void *k,
                           const void *next, int64_t first, int64_t keys, int64_t d, float *score)
{
    enum { J = VN == 16 ? 4 : 2 };
    int64_t j = 0;
    for (; j + J <= keys; j += J)
        score_block(R, J, dtype, q, r0, k, next, first + j * d, d, score + j);
    for (; j < keys; j++)
        score_block(R, 1, dtype, q, r0, k, next, first + j * d, d, score + j);
}

VEC_INLINE void score_group(cvn_dtype dtype, const void *q, const void *k, const void *next,
                            int64_t first, int64_t keys, int64_t d, int64_t group, float *score)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), score_rows, dtype, q, r, k, next, first, keys, d,
                        score)
}

/* o[r, :] += sum over j of p[r, j] * v[j, :] for R rows and C vectors of columns from column i on; not whole: the last one is
   less than a vector. */
VEC_INLINE void value_block(const int R, const int C, const bool whole, cvn_dtype dtype,
                            const float *p, const void *v, const void *next, int64_t first,
                            int64_t keys, int64_t d, int64_t i, float *o)
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
            ask_ahead(next, first + (KEYS + j) * d + i + c * VN, dtype);
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

VEC_INLINE void value_rows(const int R, cvn_dtype dtype, const float *p, const void *v,
                           const void *next, int64_t first, int64_t keys, int64_t d, float *o)
{
    enum { C = VN == 16 ? 4 : 2 };
    int64_t i = 0;
    for (; i + C * VN <= d; i += C * VN)
        value_block(R, C, true, dtype, p, v, next, first, keys, d, i, o);
    for (; i + VN <= d; i += VN)
        value_block(R, 1, true, dtype, p, v, next, first, keys, d, i, o);
    if (i < d)
        value_block(R, 1, false, dtype, p, v, next, first, keys, d, i, o);
}

VEC_INLINE void value_group(cvn_dtype dtype, const float *p, const void *v, const void *next,
                            int64_t first, int64_t keys, int64_t d, int64_t group, float *o)
{
    for (int64_t r = 0; r < group; r += 4)
        CONSTANT_ROWS_4(num_min(group - r, 4), value_rows, dtype, p + r * KEYS, v, next, first,
                        keys, d, o + r * d)
}

/* Multiplies the numbers of a head's keys by their scales, bf16. */
static void scale_keys(float *x, const uint16_t *scale, int64_t keys)
{
    for (int64_t j = 0; j < keys; j += VN)
        vf_store_part(x + j, vf_load_part(x + j, keys - j) * vf_load_bf16_part(scale + j, keys - j),
                      keys - j);
}

/* Scores of keys [at, at + keys), counted in all the cache, with all heads that share them. */
static void scores(const Attention *a, const Few *f, int64_t at, int64_t keys)
{
    int64_t d = a->head_dim, first = at * d;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        const int8_t *k = a->k, *v = a->v;
        Bytes bytes = {.row = k + first, .next = v + first, .keys = keys, .d = d};
        score_bytes(&bytes, &f->whole_q, a->group, a->k_scale + at, f->score);
        return;
    }
#endif
    if (a->kv_dtype == CVN_BF16)
        score_group(CVN_BF16, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    else if (a->kv_dtype == CVN_I8)
        score_group(CVN_I8, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    else
        score_group(CVN_F32, f->q, a->k, a->v, first, keys, d, a->group, f->score);
    for (int64_t r = 0; r < a->group; r++) {
        float *x = f->score + r * KEYS;
        /* By what q is not multiplied by where it stays bf16. KEYS are whole vectors. */
        for (int64_t j = 0; j < keys && few_pairs(a->kv_dtype); j += VN)
            vf_store(x + j, vf_load(x + j) * vf_splat(a->scale));
        if (a->k_scale)
            scale_keys(x, a->k_scale + at, keys);
    }
}

/* Scores of all heads that share the keys, whole vectors of them, are capped. */
static void cap_scores(const Attention *a, const Few *f, int64_t keys)
{
    for (int64_t r = 0; r < a->group; r++)
        for (int64_t j = 0; j < keys; j += VN) {
            float *x = f->score + r * KEYS + j;
            vf_store(x, vf_cap(vf_load(x), a->cap));
        }
}

/* Scores of row r become weights, times the scales of their values; returns what sums so far must be multiplied by. */
static float weigh(const Attention *a, const Few *f, int64_t r, int64_t at, int64_t keys,
                   float *peak, float *sum)
{
    float *score = f->score + r * KEYS;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype))
        return soften_whole(&f->weight, r, score, keys, a->v_scale + at, peak, sum);
#endif
    float factor = soften(score, keys, peak, sum);
    if (a->v_scale)
        scale_keys(score, a->v_scale + at, keys);
    return factor;
}

/* Adds to o the values of these keys, times their weights, which scores have become. */
static void values(const Attention *a, const Few *f, int64_t at, int64_t keys, float *o)
{
    int64_t d = a->head_dim, first = at * d;
#if defined(VEC_BF16)
    if (few_whole(a->kv_dtype)) {
        const int8_t *k = a->k, *v = a->v;
        Bytes bytes = {.row = v + first, .next = k + first + KEYS * d, .keys = keys, .d = d};
        add_bytes(&bytes, &f->weight, a->group, o);
        return;
    }
#endif
    if (a->kv_dtype == CVN_BF16)
        value_group(CVN_BF16, f->score, a->v, a->k, first, keys, d, a->group, o);
    else if (a->kv_dtype == CVN_I8)
        value_group(CVN_I8, f->score, a->v, a->k, first, keys, d, a->group, o);
    else
        value_group(CVN_F32, f->score, a->v, a->k, first, keys, d, a->group, o);
}

/* One position of the heads that share a KV head. */
typedef struct Query {
    int64_t b, s, h;    /* row, position, KV head */
    int64_t begin, end; /* of the keys that it sees */
    int64_t chunks;     /* of CHUNK keys from `begin` on: at least one, which may have no keys */
} Query;

static Query query_of(const Attention *a, int64_t b, int64_t h, int64_t s)
{
    Query q = {
        .b = b, .s = s, .h = h, .begin = attention_first_key(a, b, s), .end = keys_seen(a, b, s)};
    q.chunks = q.end - q.begin > CHUNK ? num_pieces(q.end - q.begin, CHUNK) : 1;
    return q;
}

static void read_query(const Attention *a, const Few *f, const Query *q)
{
    int64_t d = a->head_dim, at = query_at(a, q->b, q->s, q->h * a->group);
    if (few_pairs(a->kv_dtype)) {
        memcpy(f->q, (const uint16_t *)a->q + at, (size_t)(a->group * d) * sizeof(uint16_t));
        return;
    }
    for (int64_t r = 0; r < a->group; r++) {
        const float *x = tile_read(a->q_dtype, a->q, at + r * d, d, f->q + r * d);
        for (int64_t i = 0; i < d; i++)
            f->q[r * d + i] = x[i] * a->scale;
#if defined(VEC_BF16)
        if (few_whole(a->kv_dtype))
            whole_query(&f->whole_q, r, f->q + r * d, d);
#endif
    }
}

/* Makes `state` what chunk c of a query gives, the first with the sinks of the heads. */
static void attend_chunk(const Attention *a, const Few *f, const Query *q, int64_t c, float *state)
{
    int64_t d = a->head_dim, begin = q->begin + c * CHUNK, end = num_min(q->end, begin + CHUNK);
    float *o = state, *peak = o + a->group * d, *sum = peak + a->group;
    memset(state, 0, (size_t)state_floats(a) * sizeof *state);
    for (int64_t r = 0; r < a->group; r++) {
        float first = attention_sink(a, q->h * a->group + r, &sum[r]);
        peak[r] = c == 0 ? first : -INFINITY;
        sum[r] = c == 0 ? sum[r] : 0;
    }
    int64_t cache = (q->b * a->kv_heads + q->h) * a->context;
    for (int64_t j = begin; j < end; j += KEYS) {
        int64_t keys = num_min(KEYS, end - j);
        scores(a, f, cache + j, keys);
        if (a->cap > 0)
            cap_scores(a, f, keys);
        for (int64_t r = 0; r < a->group; r++) {
            float factor = weigh(a, f, r, cache + j, keys, &peak[r], &sum[r]);
            if (j > begin && factor != 1.0f)
                for (int64_t i = 0; i < d; i++)
                    o[r * d + i] *= factor;
        }
        values(a, f, cache + j, keys, o);
    }
}

/* all = all and part. */
static void fold(const Attention *a, float *all, const float *part)
{
    int64_t d = a->head_dim, peaks = a->group * d, sums = peaks + a->group;
    for (int64_t r = 0; r < a->group; r++) {
        float m = all[peaks + r], n = part[peaks + r], top = n > m ? n : m;
        float base = isfinite(top) ? top : 0.0f;
        float old = vf_exp(vf_splat(m - base))[0], new = vf_exp(vf_splat(n - base))[0];
        for (int64_t i = r * d; i < (r + 1) * d; i++)
            all[i] = all[i] * old + part[i] * new;
        all[peaks + r] = top;
        all[sums + r] = all[sums + r] * old + part[sums + r] * new;
    }
}

static void write_query(const Attention *a, const Few *f, const Query *q, const float *state)
{
    int64_t d = a->head_dim, at = query_at(a, q->b, q->s, q->h * a->group);
    const float *sum = state + a->group * (d + 1);
    for (int64_t r = 0; r < a->group; r++, at += d, state += d) {
        if (q->s >= a->length[q->b]) {
            write_zero(a, at);
            continue;
        }
        const float factor = 1.0f / sum[r];
        for (int64_t i = 0; i < d; i++)
            f->row[i] = state[i] * factor;
        tile_write(a->q_dtype, a->out, at, d, f->row);
    }
}

/* Which chunks a thread takes, and where it puts those of split queries. */
typedef struct Share {
    int64_t chunks; /* of all queries */
    int64_t threads;
    int64_t thread;
    int64_t begin, end; /* this thread's */
    /* [threads] chunks of a split query each; its place is that of who has the first of them. */
    char *parts;
    Query mine; /* the split query whose first chunk is this thread's; 0 chunks: none */
} Share;

static int64_t share_begin(const Share *s, int64_t thread)
{
    return s->chunks * thread / s->threads;
}

static float *part_of(const Attention *a, const Share *s, int64_t owner, int64_t chunk)
{
    char *parts = s->parts + split_bytes(a) * (size_t)owner;
    return (float *)(void *)parts + chunk * state_floats(a);
}

/* The thread's chunks of a query whose first is number `at`. */
static void attend_query(const Attention *a, const Few *f, Share *share, const Query *q, int64_t at)
{
    int64_t first = share->begin > at ? share->begin - at : 0;
    int64_t last = num_min(share->end - at, q->chunks);
    if (first >= last)
        return;
    read_query(a, f, q);
    if (first > 0 || last < q->chunks) {
        /* The thread whose share the first chunk is in: the largest with share_begin <= at. */
        int64_t owner = ((at + 1) * share->threads - 1) / share->chunks;
        for (int64_t c = first; c < last; c++)
            attend_chunk(a, f, q, c, part_of(a, share, owner, c));
        if (first == 0)
            share->mine = *q;
        return;
    }
    attend_chunk(a, f, q, 0, f->all);
    for (int64_t c = 1; c < last; c++) {
        attend_chunk(a, f, q, c, f->part);
        fold(a, f->all, f->part);
    }
    write_query(a, f, q, f->all);
}

static size_t few_scratch(const Attention *a, int n_threads)
{
    Few f;
    size_t split = n_threads > 1 ? split_bytes(a) : 0;
    return (few_of(a, NULL, &f) + split) * (size_t)n_threads;
}

static void run_few(const Attention *a, const KernelArgs *args)
{
    char *scratch = args->scratch;
    Few f;
    size_t bytes = few_of(a, NULL, &f);
    few_of(a, scratch + bytes * (size_t)args->thread, &f);
    Share share = {.threads = args->n_threads,
                   .thread = args->thread,
                   .parts = scratch + bytes * (size_t)args->n_threads};
    int64_t longest = 1;
    for (int64_t b = 0; b < a->batch; b++)
        for (int64_t s = 0; s < a->seq; s++) {
            int64_t n = query_of(a, b, 0, s).chunks;
            longest = num_max(n, longest);
            share.chunks += a->kv_heads * n;
        }
    share.begin = share_begin(&share, share.thread);
    share.end = share_begin(&share, share.thread + 1);
    int64_t each = share.chunks / a->kv_heads; /* of a head: all see the same keys */
    for (int64_t h = share.begin / each; h * each < share.end; h++) {
        int64_t at = h * each;
        for (int64_t b = 0; b < a->batch; b++)
            for (int64_t s = 0; s < a->seq; s++) {
                Query q = query_of(a, b, h, s);
                attend_query(a, &f, &share, &q, at);
                at += q.chunks;
            }
    }
    if (longest == 1) /* nothing is split */
        return;
    kernel_sync(args);
    if (!share.mine.chunks)
        return;
    float *all = part_of(a, &share, share.thread, 0);
    for (int64_t c = 1; c < share.mine.chunks; c++)
        fold(a, all, part_of(a, &share, share.thread, c));
    write_query(a, &f, &share.mine, all);
}
