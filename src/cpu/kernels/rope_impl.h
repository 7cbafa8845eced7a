/*
 * rope: turns pairs of elements by position * inv_freq, in f32. Compiled once per instruction set.
 *
 * The sines and cosines of a position are made once and used for all its heads. Positions are shared over the
 * threads.
 */
#include "compile/fused.h"
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

/* Elements i …, of which n are left. */
VEC_INLINE vf load_from(cvn_dtype dtype, const void *x, int64_t i, int64_t n)
{
    float some[VN];
    if (dtype == CVN_BF16)
        return vf_load_bf16_part((const uint16_t *)x + i, n);
    return vf_load_part(tile_read(dtype, x, i, num_min(n, VN), some), n);
}

VEC_INLINE void store_to(cvn_dtype dtype, void *x, int64_t i, int64_t n, vf v)
{
    float some[VN];
    if (dtype == CVN_F32) {
        vf_store_part((float *)x + i, v, n);
    } else if (dtype == CVN_BF16) {
        vf_store_bf16_part((uint16_t *)x + i, v, n);
    } else {
        vf_store(some, v);
        tile_write(dtype, x, i, num_min(n, VN), some);
    }
}

/* (a, b) becomes (a cos - b sin, b cos + a sin): n pairs of one head whose first elements are at `first` in it, and second ones
   at `second`. A head may be turned in place. */
VEC_INLINE void turn(cvn_dtype from, cvn_dtype to, const Turned *x, int64_t first, int64_t second,
                     const float *cosine, const float *sine, int64_t n)
{
    for (int64_t i = 0; i < n; i += VN) {
        vf a = load_from(from, x->in, x->at + first + i, n - i);
        vf b = load_from(from, x->in, x->at + second + i, n - i);
        vf c = vf_load_part(cosine + i, n - i), s = vf_load_part(sine + i, n - i);
        store_to(to, x->out, x->to_at + first + i, n - i, a * c - b * s);
        store_to(to, x->out, x->to_at + second + i, n - i, b * c + a * s);
    }
}

/* The usual dtypes as constants. */
static void turn_halves(const Turned *x, int64_t first, int64_t second, const float *cosine,
                        const float *sine, int64_t n)
{
    if (x->from == CVN_BF16 && x->to == CVN_BF16)
        turn(CVN_BF16, CVN_BF16, x, first, second, cosine, sine, n);
    else if (x->from == CVN_BF16 && x->to == CVN_F32)
        turn(CVN_BF16, CVN_F32, x, first, second, cosine, sine, n);
    else if (x->from == CVN_F32 && x->to == CVN_BF16)
        turn(CVN_F32, CVN_BF16, x, first, second, cosine, sine, n);
    else if (x->from == CVN_F32 && x->to == CVN_F32)
        turn(CVN_F32, CVN_F32, x, first, second, cosine, sine, n);
    else
        turn(x->from, x->to, x, first, second, cosine, sine, n);
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
#if defined(VEC_SAME) || defined(__AVX2__) || defined(__aarch64__) /* vf_fma rounds once */
    const float most = 1 << 20;
    for (bool near = true; i < n; i += SUM_LANES) {
        vf x[SUM_VECTORS], s, c;
        for (int p = 0; p < SUM_VECTORS; p++) {
            x[p] =
                vf_load_part(inv_freq + i + p * VN, vec_left(n - i, p)) * vf_splat((float)position);
            near = near && !(vf_max_lane(vf_abs(x[p])) > most);
        }
        if (!near)
            break;
        for (int p = 0; p < SUM_VECTORS; p++) {
            vf_sincos(x[p], &s, &c);
            vf_store_part(sine + i + p * VN, s, vec_left(n - i, p));
            vf_store_part(cosine + i + p * VN, c, vec_left(n - i, p));
        }
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
    unsigned transposed = kernel_fused(args->op)->transposed;
    int64_t seq = x->dim[transposed & 1 ? 2 : 1], heads = x->dim[transposed & 1 ? 1 : 2];
    int64_t head_dim = x->dim[3], pairs = head_dim / 2, begin, end;
    float cosine[PAIRS], sine[PAIRS];
    kernel_share(x->dim[0] * seq, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        for (int64_t p = 0; p < pairs; p += PAIRS) {
            int64_t n = num_min(pairs - p, PAIRS);
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
     .fuses = true},
    {0},
};
