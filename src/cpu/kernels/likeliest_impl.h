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
 * A row takes two passes over all of it and some over a few. Where there are fewer rows than threads, all threads share
 * each row: sums are those of blocks of FLUSH logits, each made by one thread, added up in the order of the blocks by
 * everyone; and the few are looked at by everyone for himself. So what is kept does not depend on the number of threads or
 * on the other rows.
 */
#include "base/num.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/vec_math.h"

enum {
    CUTS = 8,
    FEW = 48,    /* logits that are sorted */
    FLUSH = 512, /* weights that are summed in f32, each lane its own; then in f64 */
    DEEP =
        24 /* where the first cuts end, below the best: exp(-24) is nothing yet to 128,000 logits of one text */
};

/* What threads that share a row tell each other. Places are written in turns, so that nobody writes what another still
   reads: between two uses of a place everyone meets for the other one. */
typedef struct Shared {
    float *sum[2]; /* [blocks, CUTS] of each block of FLUSH logits, what lies above each cut */
    /* [n + VN * n_threads] what each thread has collected, from `begin` + VN * thread on */
    float *collected;
    int64_t *count; /* [n_threads] how many */
    float *range;   /* [n_threads, 2] least and greatest */
} Shared;

/* Logits to be summed: a row, of which this thread has a part; or a few, all for itself. */
typedef struct Row {
    const float *x; /* [n] */
    int64_t n;
    int64_t begin, end; /* this thread's part, of whole blocks */
    int thread, n_threads;
    int turn;               /* which of shared.sum is next */
    const KernelArgs *args; /* for kernel_sync, where n_threads > 1 */
    Shared shared;
} Row;

static void meet(const Row *row)
{
    if (row->n_threads > 1)
        kernel_sync(row->args);
}

/* What a logit weighs. */
typedef struct Weight {
    bool counts; /* 1; else exp(logit - best) */
    float best;
} Weight;

VEC_INLINE vf weigh(const Weight *w, vf x)
{
    return w->counts ? vf_splat(1.0f) : vf_exp(x - vf_splat(w->best));
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

/* part[i] = what the logits above cut[i] weigh together, of one block. */
static void sum_block(const float *x, int64_t n, const Weight *w, const float cut[CUTS],
                      float block[CUTS])
{
    VecSum sum[CUTS];
#pragma GCC unroll 8
    for (int i = 0; i < CUTS; i++)
        sum[i] = vec_sum_zero();
    for (int64_t j = 0; j < n; j += SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            vf v = vf_load_part_or(x + j + p * VN, vec_left(n - j, p), -INFINITY), e = weigh(w, v);
#pragma GCC unroll 8
            for (int i = 0; i < CUTS; i++)
                sum[i].part[p] = add_above(sum[i].part[p], v, vf_splat(cut[i]), e);
        }
#pragma GCC unroll 8
    for (int i = 0; i < CUTS; i++)
        block[i] = vec_sum(&sum[i]);
}

/* sum[i] = what the logits above cut[i] weigh together. */
static void sum_above(Row *row, const Weight *w, const float cut[CUTS], double sum[CUTS])
{
    float own[CUTS], *block = row->n_threads > 1 ? row->shared.sum[row->turn ^= 1] : NULL;
    for (int i = 0; i < CUTS; i++)
        sum[i] = 0;
    for (int64_t at = row->begin; at < row->end; at += FLUSH) {
        int64_t n = at + FLUSH < row->end ? FLUSH : row->end - at;
        sum_block(row->x + at, n, w, cut, block ? block + at / FLUSH * CUTS : own);
        for (int i = 0; i < CUTS && !block; i++)
            sum[i] += (double)own[i];
    }
    if (!block)
        return;
    meet(row);
    for (int64_t b = 0; b * FLUSH < row->n; b++)
        for (int i = 0; i < CUTS; i++)
            sum[i] += (double)block[b * CUTS + i];
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

/* The same of all of a row. */
static int64_t collect_row(const Row *row, float under, float over, float *to)
{
    if (row->n_threads == 1)
        return collect(row->x, row->n, under, over, to);
    const Shared *shared = &row->shared;
    float *own = shared->collected + row->begin + VN * row->thread;
    shared->count[row->thread] =
        collect(row->x + row->begin, row->end - row->begin, under, over, own);
    meet(row);
    int64_t n = 0, begin, end;
    for (int t = 0; t < row->n_threads; t++) {
        kernel_share(row->n, FLUSH, t, row->n_threads, &begin, &end);
        memcpy(to + n, shared->collected + begin + VN * t, (size_t)shared->count[t] * sizeof *to);
        n += shared->count[t];
    }
    return n;
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
    for (int64_t i = 0; i < n; i += VN)
        vf_store(weight + i, weigh(w, vf_load_part(x + i, n - i)));
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
    for (int64_t i = 0; i < n; i += VN) {
        vf v = vf_load_part_or(x + i, n - i, NAN);
        vi finite = vf_abs(v) < INFINITY;
        least = vf_min(vf_select(finite, v, least), least);
        most = vf_max(vf_select(finite, v, most), most);
    }
    *high = vf_max_lane(most);
    *low = -vf_max_lane(-least);
}

/* The same of all of a row. */
static void range_row(const Row *row, float *low, float *high)
{
    float *all = row->shared.range;
    range(row->x + row->begin, row->end - row->begin, low, high);
    if (row->n_threads == 1)
        return;
    all[2 * row->thread] = *low;
    all[2 * row->thread + 1] = *high;
    meet(row);
    for (int t = 0; t < row->n_threads; t++) {
        *low = all[2 * t] < *low ? all[2 * t] : *low;
        *high = all[2 * t + 1] > *high ? all[2 * t + 1] : *high;
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
static float least_kept(Row *row, const Weight *w, double limit, double p, float low, float high,
                        float *buffer)
{
    Row few;
    double above = 0, sum[CUTS];
    float under = -INFINITY, over = INFINITY, cut[CUTS]; /* it is in (under, over] */
    make_cuts(high, w->counts || low > high - DEEP ? low : high - DEEP, cut);
    if (limit < 0)
        cut[CUTS - 1] = -INFINITY; /* below all */
    do {
        sum_above(row, w, cut, sum);
        limit = limit < 0 ? p * sum[CUTS - 1] : limit;
        int i = 0;
        while (i < CUTS && above + sum[i] < limit)
            i++;
        under = i < CUTS ? cut[i] : under;
        over = i > 0 ? cut[i - 1] : over;
        above += i > 0 ? sum[i - 1] : 0;
        int64_t n = collect_row(row, under, over, buffer);
        few = (Row){.x = buffer, .n = n, .end = n, .n_threads = 1};
        row = &few;
        if (few.n == 0)
            return under;
        range(buffer, few.n, &low, &high);
        if (low >= high)
            return buffer[0];
        make_cuts(high, low, cut);
    } while (few.n > FEW);
    return least_of_few(buffer, few.n, w, above, limit);
}

/* What the k largest weigh together, `least` being the last of them: of its equals, as many as make k. */
static double weight_of(Row *row, const Weight *w, int64_t k, float least)
{
    const Weight count = {.counts = true};
    float cut[CUTS];
    double weight[CUTS], counted[CUTS];
    for (int i = 0; i < CUTS; i++)
        cut[i] = i == 0 ? least : nextafterf(least, -INFINITY);
    sum_above(row, w, cut, weight);
    sum_above(row, &count, cut, counted);
    double same = counted[1] - counted[0], left = (double)k - counted[0];
    return weight[0] + (weight[1] - weight[0]) * (left < same ? left / same : 1);
}

/* The least logit that a row's filters keep; low, high: its range. */
static float threshold(Row *row, int64_t k, float p, float low, float high, float *buffer)
{
    float least = -INFINITY;
    Weight count = {.counts = true}, share = {.best = high};
    double limit = -1;
    if (!(p > 0))
        return high;
    if (k > 0 && k < row->n) {
        least = least_kept(row, &count, (double)k, 0, low, high, buffer);
        if (p < 1 && least > -INFINITY)
            limit = (double)p * weight_of(row, &share, k, least);
    }
    if (p >= 1)
        return least;
    float likely = least_kept(row, &share, limit, (double)p, low, high, buffer);
    return likely > least ? likely : least;
}

/* Writes logits as they are, or -inf where they are below `least` or less likely than min_p times the best. */
static void write_kept(const float *x, int64_t n, float least, float best, float min_p, float *out)
{
    const vf none = vf_splat(-INFINITY);
    for (int64_t i = 0; i < n; i += VN) {
        vf v = vf_load_part(x + i, n - i);
        vi keep = v >= vf_splat(least);
        if (min_p > 0)
            keep &= (vf_exp(v - vf_splat(best)) >= vf_splat(min_p)) | (v >= vf_splat(best));
        vf_store_part(out + i, vf_select(keep, v, none), n - i);
    }
}

/* What threads share, and a buffer of each; returns the bytes of all, and where there is memory that buffer of `thread`. */
static size_t lay_out(int64_t n, int n_threads, int thread, char *memory, Shared *s, float **buffer)
{
    const int64_t size = sizeof(float), sums = num_pieces(n, FLUSH) * CUTS * size;
    size_t used = 0;
    s->sum[0] = scratch_take(memory, &used, sums);
    s->sum[1] = scratch_take(memory, &used, sums);
    s->collected = scratch_take(memory, &used, (n + (int64_t)VN * n_threads) * size);
    s->count = scratch_take(memory, &used, n_threads * (int64_t)sizeof *s->count);
    s->range = scratch_take(memory, &used, 2 * n_threads * size);
    for (int t = 0; t < n_threads; t++) {
        void *own = scratch_take(memory, &used, (n + VN) * size);
        *buffer = t == thread ? own : *buffer;
    }
    return used;
}

static size_t scratch(const Op *op, int n_threads)
{
    Shared shared;
    float *buffer = NULL;
    return lay_out(op->operand[0]->type.dim[1], n_threads, 0, NULL, &shared, &buffer);
}

static void run(const KernelArgs *args)
{
    const cvn_type *type = &args->op->operand[0]->type;
    int64_t rows = type->dim[0], n = type->dim[1], first, last;
    float *buffer = NULL;
    Row row = {.n = n, .end = n, .n_threads = 1, .args = args};
    lay_out(n, args->n_threads, args->thread, args->scratch, &row.shared, &buffer);
    kernel_share(rows, 1, args->thread, args->n_threads, &first, &last);
    if (rows < args->n_threads) {
        row.thread = args->thread;
        row.n_threads = args->n_threads;
        kernel_share(n, FLUSH, args->thread, args->n_threads, &row.begin, &row.end);
        first = 0;
        last = rows;
    }
    for (int64_t r = first; r < last && n > 0; r++) {
        float low, high = 0, least = -INFINITY;
        float p = ((const float *)args->in[2])[r], min_p = ((const float *)args->in[3])[r];
        int64_t k = ((const int32_t *)args->in[1])[r];
        row.x = (const float *)args->in[0] + r * n;
        if (!(p >= 1) || min_p > 0 || (k > 0 && k < n)) { /* else all are kept */
            range_row(&row, &low, &high);
            least = threshold(&row, k, p, low, high, buffer);
        }
        float *out = (float *)args->out[0] + r * n;
        if (out != row.x || least > -INFINITY || min_p > 0)
            write_kept(row.x + row.begin, row.end - row.begin, least, high, min_p, out + row.begin);
        if (r + 1 < last)
            meet(&row); /* others may still read this row's range */
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
