/*
 * What is drawn: random_bits, and tokens (categorical). Compiled once per instruction set; the bits are the same everywhere,
 * because there is nothing but 32-bit additions, rotations and exclusive ors.
 *
 * categorical wants the largest logit + noise, and makes noise only where that can be it. The largest logit and its own
 * noise set a mark that the winner is not below. Of the others only those within reach of the most that noise can be get
 * random bits; and of these only those that their own bits' bound (vec_random.h) brings to the mark, a few of 32,000, get
 * logarithms:
 *
 *     logits 9 and its noise -1 → mark 8       2 + 16.6 reaches it, -9 + 16.6 does not: no random bits
 *                                              2 with bits that promise 5.5 or less: no logarithms
 *
 * Nothing is lost by rounding: where noise <= bound, logit + noise as rounded is no more than logit + bound as rounded,
 * because rounding never turns an order round; and who is passed over has a bound below the mark, so that not even a tie
 * is missed. Among equals the first wins, whatever the order they were looked at in. The token is therefore the
 * decomposition's for any number of threads, which share each row.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/log_sum_impl.h"
#include "cpu/kernels/vec_random.h"

#include <string.h>

VEC_INLINE vu lanes_at(const void *words, int64_t i)
{
    vu x;
    memcpy(&x, (const uint32_t *)words + i, sizeof x);
    return x;
}

static void run(const KernelArgs *args)
{
    const void *const *in = args->in;
    uint32_t *out = args->out[0];
    int64_t n = cvn_type_elements(&args->op->result[0]->type), i, end;
    kernel_share(n, 64, args->thread, args->n_threads, &i, &end);
    for (; i + VN <= end; i += VN) {
        vu x = threefry(lanes_at(in[0], i), lanes_at(in[1], i), lanes_at(in[2], i),
                        lanes_at(in[3], i));
        memcpy(out + i, &x, sizeof x);
    }
    if (i < end) {
        vu x[4] = {0};
        for (int k = 0; k < 4; k++)
            memcpy(&x[k], (const uint32_t *)in[k] + i, (size_t)(end - i) * sizeof *out);
        x[0] = threefry(x[0], x[1], x[2], x[3]);
        memcpy(out + i, &x[0], (size_t)(end - i) * sizeof *out);
    }
}

/* ---- categorical ---- */

/* The largest of some logits, noise added or not, and the first place that has it. A value of -inf: none; where NaN and
   -inf is all there is, the first entry of the row is its token. */
typedef struct Best {
    float value;
    int32_t index;
} Best;

/* The largest of x[begin, end). */
static Best largest(const float *x, int64_t begin, int64_t end)
{
    int64_t at = 0;
    float value = largest_at(CVN_F32, x, begin, end, &at);
    return (Best){value, (int32_t)at};
}

/* Where the noise of a row comes from, in all lanes. */
typedef struct RandomBits {
    vu k0, k1, position;
    vu lane; /* 0, 1, 2, … */
} RandomBits;

VEC_INLINE vu bits_at(const RandomBits *s, int64_t i)
{
    return threefry(s->k0, s->k1, s->lane + (uint32_t)i, s->position);
}

/* The best of x[begin, end) + noise. */
static Best drawn(const float *x, int64_t begin, int64_t end, const RandomBits *source)
{
    Best best = largest(x, begin, end);
    if (!(best.value > -INFINITY))
        return best;
    best.value += gumbel_noise(bits_at(source, best.index))[0];
    for (int64_t i = begin; i < end; i += VN) {
        vf v = vf_load_part_or(x + i, end - i, -INFINITY);
        const vf mark = vf_splat(best.value);
        if (!vf_any_ge(v + GUMBEL_MOST, mark))
            continue;
        vu bits = bits_at(source, i);
        if (!vf_any_ge(v + gumbel_bound(bits), mark))
            continue;
        float y[VN];
        vf_store(y, v + gumbel_noise(bits));
        for (int32_t l = 0; l < VN; l++) {
            int32_t index = (int32_t)i + l;
            if (y[l] > best.value || (y[l] == best.value && index < best.index))
                best = (Best){y[l], index};
        }
    }
    return best;
}

static size_t categorical_scratch(const Op *op, int n_threads)
{
    return sizeof(Best) * (size_t)op->operand[0]->type.dim[0] * (size_t)n_threads;
}

static void run_categorical(const KernelArgs *args)
{
    const cvn_type *type = &args->op->operand[0]->type;
    const bool *greedy = args->in[1];
    const uint32_t *key = args->in[2], *position = args->in[3];
    int64_t rows = type->dim[0], n = type->dim[1], begin, end;
    Best *part = args->scratch; /* [rows, n_threads] */
    vu lane = {0};
    for (uint32_t l = 0; l < VN; l++)
        lane[l] = l;
    kernel_share(n, 64, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = 0; row < rows; row++) {
        const float *x = (const float *)args->in[0] + row * n;
        const RandomBits source = {(vu){0} + key[2 * row], (vu){0} + key[2 * row + 1],
                                   (vu){0} + position[row], lane};
        part[row * args->n_threads + args->thread] =
            greedy[row] ? largest(x, begin, end) : drawn(x, begin, end, &source);
    }
    kernel_sync(args);
    kernel_share(rows, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        Best best = {-INFINITY, 0};
        for (int t = 0; t < args->n_threads; t++) {
            Best other = part[row * args->n_threads + t];
            best = other.value > best.value ? other : best;
        }
        ((int32_t *)args->out[0])[row] = best.index;
    }
}

const Kernel ISA_NAME(random_kernels)[] = {
    {.name = "random_bits." ISA, .kind = OP_RANDOM_BITS, .run = run, .in_place = 15},
    {.name = "categorical." ISA,
     .kind = OP_CATEGORICAL,
     .scratch = categorical_scratch,
     .run = run_categorical},
    {0},
};
