/*
 * rope: turns pairs of elements by position * inv_freq, in f32. Compiled once per instruction set.
 *
 * The sines and cosines of a position are made once and used for all its heads. Positions are shared over the
 * threads.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

enum { PAIRS = TILE / 2 }; /* at a time */

static bool match_rope(const Op *op)
{
    return tile_dtype(op->operand[0]->type.dtype);
}

/* Elements as they lie before and after. */
typedef struct Turned {
    const void *in;
    void *out;
    cvn_dtype from, to;
    int64_t at, to_at; /* where the head at hand begins */
} Turned;

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

/* Whole vectors of the same, from and to where they lie, in bf16 or, else, f32; returns how many pairs. A head may be turned
   in place. */
VEC_INLINE int64_t turn_vectors(const bool from_half, const bool to_half, const Turned *x,
                                int64_t first, int64_t second, const float *cosine,
                                const float *sine, int64_t n)
{
    const float *in = (const float *)x->in + x->at;
    const uint16_t *half_in = (const uint16_t *)x->in + x->at;
    float *out = (float *)x->out + x->to_at;
    uint16_t *half_out = (uint16_t *)x->out + x->to_at;
    int64_t i = 0;
    for (; i + VN <= n; i += VN) {
        vf a = from_half ? vf_load_bf16(half_in + first + i) : vf_load(in + first + i);
        vf b = from_half ? vf_load_bf16(half_in + second + i) : vf_load(in + second + i);
        vf c = vf_load(cosine + i), s = vf_load(sine + i);
        vf left = a * c - b * s, right = b * c + a * s;
        if (to_half) {
            vf_store_bf16(half_out + first + i, left);
            vf_store_bf16(half_out + second + i, right);
        } else {
            vf_store(out + first + i, left);
            vf_store(out + second + i, right);
        }
    }
    return i;
}

static int64_t turn_whole_vectors(const Turned *x, int64_t first, int64_t second,
                                  const float *cosine, const float *sine, int64_t n)
{
    bool from = x->from == CVN_BF16, to = x->to == CVN_BF16;
    if (x->from == CVN_F16 || x->to == CVN_F16)
        return 0;
    if (from && to)
        return turn_vectors(true, true, x, first, second, cosine, sine, n);
    if (from)
        return turn_vectors(true, false, x, first, second, cosine, sine, n);
    if (to)
        return turn_vectors(false, true, x, first, second, cosine, sine, n);
    return turn_vectors(false, false, x, first, second, cosine, sine, n);
}

/* n pairs of one head whose first elements are at `first` in it, and second ones at `second`. */
static void turn_halves(const Turned *x, int64_t first, int64_t second, const float *cosine,
                        const float *sine, int64_t n)
{
    float a_from[PAIRS], b_from[PAIRS], a_to[PAIRS], b_to[PAIRS];
    int64_t done = turn_whole_vectors(x, first, second, cosine, sine, n);
    if (done == n)
        return;
    first += done;
    second += done;
    cosine += done;
    sine += done;
    n -= done;
    const float *a = tile_read(x->from, x->in, x->at + first, n, a_from);
    const float *b = tile_read(x->from, x->in, x->at + second, n, b_from);
    float *a_out = tile_target(x->to, x->out, x->to_at + first, a_to);
    float *b_out = tile_target(x->to, x->out, x->to_at + second, b_to);
    turn(a_out, b_out, a, b, cosine, sine, n);
    tile_write(x->to, x->out, x->to_at + first, n, a_out);
    tile_write(x->to, x->out, x->to_at + second, n, b_out);
}

/* n pairs of neighbours from `first` on in a head. */
static void turn_neighbours(const Turned *x, int64_t first, const float *cosine, const float *sine,
                            int64_t n)
{
    float from[2 * PAIRS], to[2 * PAIRS];
    const float *in = tile_read(x->from, x->in, x->at + first, 2 * n, from);
    for (int64_t i = 0; i < n; i++) {
        float a = in[2 * i], b = in[2 * i + 1];
        to[2 * i] = a * cosine[i] - b * sine[i];
        to[2 * i + 1] = b * cosine[i] + a * sine[i];
    }
    tile_write(x->to, x->out, x->to_at + first, 2 * n, to);
}

/* Sines and cosines of position * inv_freq[0 … n). */
static void turns(int32_t position, const float *inv_freq, float *sine, float *cosine, int64_t n)
{
    int64_t i = 0;
#if defined(__AVX2__) || defined(__aarch64__) /* vf_fma rounds once */
    const float most = 1 << 20;
    for (; i < n; i += VN) {
        int64_t part = n - i < VN ? n - i : VN;
        vf x = vf_load_part(inv_freq + i, part) * vf_splat((float)position), s, c;
        if (vf_max_lane(vf_abs(x)) > most)
            break;
        vf_sincos(x, &s, &c);
        vf_store_part(sine + i, s, part);
        vf_store_part(cosine + i, c, part);
    }
#endif
    for (; i < n; i++)
        sincosf((float)position * inv_freq[i], &sine[i], &cosine[i]);
}

static void run_rope(const KernelArgs *args)
{
    const cvn_type *x = &args->op->operand[0]->type; /* [batch, seq, heads, head_dim] */
    const int32_t *position = args->in[1];           /* [batch, seq] */
    const float *inv_freq = args->in[2];             /* [pairs] */
    Turned turned = {args->in[0], args->out[0], x->dtype, args->op->result[0]->type.dtype, 0, 0};
    bool interleaved = args->op->attr.flag;
    unsigned transposed = args->op->attr.transposed;
    int64_t seq = x->dim[transposed & 1 ? 2 : 1], heads = x->dim[transposed & 1 ? 1 : 2];
    int64_t head_dim = x->dim[3], pairs = head_dim / 2, begin, end;
    float cosine[PAIRS], sine[PAIRS];
    kernel_share(x->dim[0] * seq, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t p = 0; p < pairs; p += PAIRS) {
            int64_t n = pairs - p < PAIRS ? pairs - p : PAIRS;
            turns(position[row], inv_freq + p, sine, cosine, n);
            for (int64_t h = 0; h < heads; h++) {
                int64_t plain = (row * heads + h) * head_dim;
                int64_t other = ((row / seq * heads + h) * seq + row % seq) * head_dim;
                turned.at = transposed & 1 ? other : plain;
                turned.to_at = transposed & 2 ? other : plain;
                if (interleaved)
                    turn_neighbours(&turned, 2 * p, cosine, sine, n);
                else
                    turn_halves(&turned, p, pairs + p, cosine, sine, n);
            }
        }
    }
}

const Kernel ISA_NAME(rope_kernels)[] = {
    {.name = "rope." ISA,
     .kind = OP_ROPE,
     .match = match_rope,
     .run = run_rope,
     .in_place = 1,
     .fuses = PROLOGUE_CONVERT | PROLOGUE_TRANSPOSE | EPILOGUE_CONVERT | EPILOGUE_TRANSPOSE},
    {0},
};
