/*
 * rope: turns pairs of elements by position * inv_freq, in f32. Compiled once per instruction set.
 *
 * The sines and cosines of a position are made once and used for all its heads. Positions are shared over the
 * threads.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"

enum { PAIRS = TILE / 2 }; /* at a time */

static bool match_rope(const Op *op)
{
    return tile_dtype(op->operand[0]->type.dtype);
}

/* (a, b) becomes (a cos - b sin, b cos + a sin). */
static void turn(float *a_out, float *b_out, const float *a, const float *b, const float *cosine,
                 const float *sine, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        vf x = vf_load(a + i), y = vf_load(b + i), c = vf_load(cosine + i), s = vf_load(sine + i);
        vf_store(a_out + i, x * c - y * s);
        vf_store(b_out + i, y * c + x * s);
    }
    for (; i < n; i++) {
        float x = a[i], y = b[i];
        a_out[i] = x * cosine[i] - y * sine[i];
        b_out[i] = y * cosine[i] + x * sine[i];
    }
}

/* n pairs of one head whose first elements are at `first`, and second ones at `second`. */
static void turn_halves(cvn_dtype dtype, const void *in, void *out, int64_t first, int64_t second,
                        const float *cosine, const float *sine, int64_t n)
{
    float a_from[PAIRS], b_from[PAIRS], a_to[PAIRS], b_to[PAIRS];
    const float *a = tile_read(dtype, in, first, n, a_from);
    const float *b = tile_read(dtype, in, second, n, b_from);
    float *x = tile_target(dtype, out, first, a_to), *y = tile_target(dtype, out, second, b_to);
    turn(x, y, a, b, cosine, sine, n);
    tile_write(dtype, out, first, n, x);
    tile_write(dtype, out, second, n, y);
}

/* n pairs of neighbours from `first` on. */
static void turn_neighbours(cvn_dtype dtype, const void *in, void *out, int64_t first,
                            const float *cosine, const float *sine, int64_t n)
{
    float from[2 * PAIRS], to[2 * PAIRS];
    const float *x = tile_read(dtype, in, first, 2 * n, from);
    for (int64_t i = 0; i < n; i++) {
        float a = x[2 * i], b = x[2 * i + 1];
        to[2 * i] = a * cosine[i] - b * sine[i];
        to[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
    tile_write(dtype, out, first, 2 * n, to);
}

static void run_rope(const KernelArgs *args)
{
    const cvn_type *x = &args->op->operand[0]->type; /* [batch, seq, heads, head_dim] */
    const int32_t *position = args->in[1];           /* [batch, seq] */
    const float *inv_freq = args->in[2];             /* [pairs] */
    bool interleaved = args->op->attr.flag;
    int64_t heads = x->dim[2], head_dim = x->dim[3], pairs = head_dim / 2, begin, end;
    float cosine[PAIRS], sine[PAIRS];
    kernel_share(x->dim[0] * x->dim[1], 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t p = 0; p < pairs; p += PAIRS) {
            int64_t n = pairs - p < PAIRS ? pairs - p : PAIRS;
            for (int64_t i = 0; i < n; i++)
                sincosf((float)position[row] * inv_freq[p + i], &sine[i], &cosine[i]);
            for (int64_t h = 0; h < heads; h++) {
                int64_t head = (row * heads + h) * head_dim;
                if (interleaved)
                    turn_neighbours(x->dtype, args->in[0], args->out[0], head + 2 * p, cosine, sine,
                                    n);
                else
                    turn_halves(x->dtype, args->in[0], args->out[0], head + p, head + pairs + p,
                                cosine, sine, n);
            }
        }
    }
}

const Kernel ISA_NAME(rope_kernels)[] = {
    {.name = "rope." ISA, .kind = OP_ROPE, .match = match_rope, .run = run_rope, .in_place = 1},
    {0},
};
