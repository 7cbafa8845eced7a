/*
 * keep_likeliest: of each row of logits what top-k, top-p and min-p leave, by selection. Compiled once per instruction set.
 *
 * What is kept is what is not below a threshold, and both top-k and top-p ask for one of the same kind: the least logit
 * such that all greater ones together weigh less than a limit. Each weighs 1, and the limit is k; or each weighs
 * exp(logit - best), and the limit is p times their sum. Such a logit is found without sorting: the range that it may
 * lie in is cut in CUTS parts, one pass sums what lies above each cut, and only the logits of one part are looked at
 * again (limit 5, weights 1):
 *
 *     logits      9   8.5 8   7.1 7 6.9 6.8   5 4 3 2 1 0         CUTS = 3: at 6.75, 4.5, 2.25
 *     above                             | 7     | 8       | 9     more than 5 above the first: it lies over it
 *     again               7.1 7 6.9 6.8 …                         few are sorted, and counted from the top
 *
 * A row takes two passes over all of it and some over a few. One thread computes a row, and sums are made in one order, so
 * that what is kept does not depend on the number of threads or on the other rows.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec_math.h"

enum {
    CUTS = 8,
    FEW = 48,    /* logits that are sorted */
    FLUSH = 512, /* weights that are summed in f32, each lane its own; then in f64 */
    DEEP =
        24 /* where the first cuts end, below the best: exp(-24) is nothing yet to 128,000 logits of one text */
};

/* What a logit weighs. */
typedef struct Weight {
    bool counts; /* 1; else exp(logit - best) */
    float best;
} Weight;

VEC_INLINE vf weigh(const Weight *w, vf x)
{
    return w->counts ? vf_splat(1.0f) : vf_exp(x - vf_splat(w->best));
}

/* Logits from i on; those past the end are -inf. */
VEC_INLINE vf load_logits(const float *x, int64_t i, int64_t n)
{
    return i + VN <= n ? vf_load(x + i) : vf_load_part_or(x + i, n - i, -INFINITY);
}

/* sum, and e where v is above the cut. */
VEC_INLINE vf add_above(vf sum, vf v, vf cut, vf e)
{
#if defined(__AVX512F__)
    return _mm512_mask_add_ps(sum, _mm512_cmp_ps_mask(v, cut, _CMP_GT_OQ), sum, e);
#else
    return sum + vf_select(v > cut, e, vf_zero());
#endif
}

/* sum[i] = what the logits above cut[i] weigh together. */
static void sum_above(const float *x, int64_t n, const Weight *w, const float cut[CUTS],
                      double sum[CUTS])
{
    for (int i = 0; i < CUTS; i++)
        sum[i] = 0;
    for (int64_t at = 0; at < n; at += FLUSH) {
        int64_t end = at + FLUSH < n ? at + FLUSH : n;
        vf part[CUTS];
#pragma GCC unroll 8
        for (int i = 0; i < CUTS; i++)
            part[i] = vf_zero();
        for (int64_t j = at; j < end; j += VN) {
            vf v = load_logits(x, j, n), e = weigh(w, v);
#pragma GCC unroll 8
            for (int i = 0; i < CUTS; i++)
                part[i] = add_above(part[i], v, vf_splat(cut[i]), e);
        }
#pragma GCC unroll 8
        for (int i = 0; i < CUTS; i++)
            sum[i] += (double)vf_sum(part[i]);
    }
}

/* Copies the logits in (under, over] to `to`, which may be where they lie and has room for a vector more; returns how
   many. */
static int64_t collect(const float *x, int64_t n, float under, float over, float *to)
{
    int64_t count = 0, i = 0;
#if defined(__AVX512F__)
    const vf low = vf_splat(under), high = vf_splat(over);
    for (; i + VN <= n; i += VN) {
        vf v = vf_load(x + i);
        __mmask16 in = _mm512_cmp_ps_mask(v, low, _CMP_GT_OQ);
        in = _mm512_mask_cmp_ps_mask(in, v, high, _CMP_LE_OQ);
        if (!in)
            continue;
        vf_store(to + count, _mm512_maskz_compress_ps(in, v));
        count += __builtin_popcount(in);
    }
#endif
    for (; i < n; i++) {
        float v = x[i];
        to[count] = v;
        count += (v > under) & (v <= over);
    }
    return count;
}

/* Few logits: the least with less than `limit` above it, of which `above` are greater than all of these. */
static float least_of_few(float *x, int64_t n, const Weight *w, double above, double limit)
{
    for (int64_t i = 1; i < n; i++) { /* descending */
        float v = x[i];
        int64_t j = i;
        for (; j > 0 && x[j - 1] < v; j--)
            x[j] = x[j - 1];
        x[j] = v;
    }
    float least = x[0], weight[FEW + VN];
    for (int64_t i = 0; i < n; i += VN) {
        vf v = i + VN <= n ? vf_load(x + i) : vf_load_part(x + i, n - i);
        vf_store(weight + i, weigh(w, v));
    }
    for (int64_t i = 0; i < n && above < limit; i++) {
        least = x[i];
        above += (double)weight[i];
    }
    return least;
}

/* Of n logits, least and greatest that are not NaN or infinite in size. */
static void range(const float *x, int64_t n, float *low, float *high)
{
    vf least = vf_splat(INFINITY), most = vf_splat(-INFINITY);
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        vf v = vf_load(x + i);
        vi finite = vf_abs(v) < INFINITY;
        least = vf_min(vf_select(finite, v, least), least);
        most = vf_max(vf_select(finite, v, most), most);
    }
    *high = vf_max_lane(most);
    *low = -vf_max_lane(-least);
    for (; i < n; i++)
        if (fabsf(x[i]) < INFINITY) {
            *low = x[i] < *low ? x[i] : *low;
            *high = x[i] > *high ? x[i] : *high;
        }
}

/* Cuts from high down to the last, evenly. */
static void make_cuts(float high, float last, float cut[CUTS])
{
    for (int i = 0; i < CUTS; i++)
        cut[i] = (float)((double)high - ((double)high - (double)last) * (i + 1) / CUTS);
    cut[CUTS - 1] = last;
}

/* The least logit such that those above it weigh less than limit; -inf: all do. A limit below 0: the share p of all. low,
   high: the range of all; buffer [n + VN]. */
static float least_kept(const float *x, int64_t n, const Weight *w, double limit, double p,
                        float low, float high, float *buffer)
{
    double above = 0, sum[CUTS];
    float under = -INFINITY, over = INFINITY, cut[CUTS]; /* it is in (under, over] */
    make_cuts(high, w->counts || low > high - DEEP ? low : high - DEEP, cut);
    if (limit < 0)
        cut[CUTS - 1] = -INFINITY; /* below all */
    do {
        sum_above(x, n, w, cut, sum);
        limit = limit < 0 ? p * sum[CUTS - 1] : limit;
        int i = 0;
        while (i < CUTS && above + sum[i] < limit)
            i++;
        under = i < CUTS ? cut[i] : under;
        over = i > 0 ? cut[i - 1] : over;
        above += i > 0 ? sum[i - 1] : 0;
        n = collect(x, n, under, over, buffer);
        x = buffer;
        if (n == 0)
            return under;
        range(x, n, &low, &high);
        if (low >= high)
            return x[0];
        make_cuts(high, low, cut);
    } while (n > FEW);
    return least_of_few(buffer, n, w, above, limit);
}

/* What the k largest weigh together, `least` being the last of them: of its equals, as many as make k. */
static double weight_of(const float *x, int64_t n, const Weight *w, int64_t k, float least)
{
    const Weight count = {.counts = true};
    float cut[CUTS];
    double weight[CUTS], counted[CUTS];
    for (int i = 0; i < CUTS; i++)
        cut[i] = i == 0 ? least : nextafterf(least, -INFINITY);
    sum_above(x, n, w, cut, weight);
    sum_above(x, n, &count, cut, counted);
    double same = counted[1] - counted[0], left = (double)k - counted[0];
    return weight[0] + (weight[1] - weight[0]) * (left < same ? left / same : 1);
}

/* The least logit that a row's filters keep. */
static float threshold(const float *x, int64_t n, int64_t k, float p, float *buffer)
{
    float low, high, least = -INFINITY;
    range(x, n, &low, &high);
    Weight count = {.counts = true}, share = {.best = high};
    double limit = -1;
    if (!(p > 0))
        return high;
    if (k > 0 && k < n) {
        least = least_kept(x, n, &count, (double)k, 0, low, high, buffer);
        if (p < 1 && least > -INFINITY)
            limit = (double)p * weight_of(x, n, &share, k, least);
    }
    if (p >= 1)
        return least;
    float likely = least_kept(x, n, &share, limit, (double)p, low, high, buffer);
    return likely > least ? likely : least;
}

/* Writes a row: logits as they are, or -inf where they are below `least` or less likely than min_p times the best. */
static void write_row(const float *x, int64_t n, float least, float best, float min_p, float *out)
{
    const vf none = vf_splat(-INFINITY);
    for (int64_t i = 0; i < n; i += VN) {
        vf v = i + VN <= n ? vf_load(x + i) : vf_load_part(x + i, n - i);
        vi keep = v >= vf_splat(least);
        if (min_p > 0)
            keep &= (vf_exp(v - vf_splat(best)) >= vf_splat(min_p)) | (v >= vf_splat(best));
        v = vf_select(keep, v, none);
        if (i + VN <= n)
            vf_store(out + i, v);
        else
            vf_store_part(out + i, v, n - i);
    }
}

static size_t scratch(const Op *op, int n_threads)
{
    return sizeof(float) * (size_t)(op->operand[0]->type.dim[1] + VN) * (size_t)n_threads;
}

static void run(const KernelArgs *args)
{
    const cvn_type *type = &args->op->operand[0]->type;
    int64_t n = type->dim[1], begin, end;
    float *buffer = (float *)args->scratch + (n + VN) * args->thread;
    kernel_share(type->dim[0], 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end && n > 0; row++) {
        const float *x = (const float *)args->in[0] + row * n;
        float *out = (float *)args->out[0] + row * n, low, best;
        float min_p = ((const float *)args->in[3])[row];
        float least = threshold(x, n, ((const int32_t *)args->in[1])[row],
                                ((const float *)args->in[2])[row], buffer);
        range(x, n, &low, &best);
        write_row(x, n, least, best, min_p, out);
    }
}

const Kernel ISA_NAME(likeliest_kernels)[] = {
    {.name = "keep_likeliest." ISA,
     .kind = OP_KEEP_LIKELIEST,
     .scratch = scratch,
     .run = run,
     .in_place = 1},
    {0},
};
