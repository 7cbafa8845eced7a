/*
 * quantize_rows: rows in 8 bits, each by its largest element. Compiled once per instruction set.
 *
 * A row is read twice, the second time from the cache. Every step is one that all instruction sets round alike (a
 * maximum, a division, a rounding to the nearest whole number), so that they give the interpreter's bits: as with all
 * that is written into a KV cache, a row then has the same bits wherever it was made.
 */
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/tile.h"

#define WHOLE                                                                                      \
    0x1.8p23f /* in its neighbourhood floats are one apart: x + WHOLE - WHOLE is rounded */

static bool match(const Op *op)
{
    return tile_dtype(op->operand[0]->type.dtype);
}

/* The largest pattern of |x| as an integer, which orders floats as they are and NaN above them. */
static int32_t largest(const float *x, int64_t n, int32_t most)
{
    int64_t i = 0;
    vi all = vi_splat(most);
    for (; i + VN <= n; i += VN) {
        vi bits = (vi)vf_abs(vf_load(x + i));
        all = (vi)vf_select(bits > all, (vf)bits, (vf)all);
    }
    for (int j = 0; j < VN; j++)
        most = all[j] > most ? all[j] : most;
    for (; i < n; i++) {
        int32_t bits;
        memcpy(&bits, x + i, sizeof bits);
        bits &= 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* q = x / scale, rounded and clamped. */
static void steps_of(int8_t *q, const float *x, float scale, int64_t n)
{
    int64_t i = 0;
    vf s = vf_splat(scale), low = vf_splat(-127.0f), high = vf_splat(127.0f), c = vf_splat(WHOLE);
    for (; i + VN <= n; i += VN) {
        vf v = vf_max(vf_min(vf_load(x + i) / s, high), low) + c - c;
        vi whole = __builtin_convertvector(v, vi);
        typedef int8_t vb __attribute__((vector_size(VN)));
        vb bytes = __builtin_convertvector(whole, vb);
        memcpy(q + i, &bytes, sizeof bytes);
    }
    for (; i < n; i++) {
        float v = x[i] / scale;
        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
        q[i] = (int8_t)rintf(v);
    }
}

static void run(const KernelArgs *args)
{
    const cvn_type *x = &args->op->operand[0]->type; /* [..., d] */
    int64_t d = x->dim[x->rank - 1], begin, end;
    int8_t *q = args->out[0];
    uint16_t *scales = args->out[1]; /* bf16 */
    float from[TILE];
    kernel_share(cvn_type_elements(x) / d, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        int32_t bits = 0;
        for (int64_t at = 0; at < d; at += TILE) {
            int64_t n = d - at < TILE ? d - at : TILE;
            bits = largest(tile_read(x->dtype, args->in[0], row * d + at, n, from), n, bits);
        }
        float most;
        memcpy(&most, &bits, sizeof most);
        scales[row] = bf16_from_f32(most / 127.0f);
        float scale = bf16_to_f32(scales[row]);
        if (!(scale > 0 && scale < INFINITY)) {
            memset(q + row * d, 0, (size_t)d);
            continue;
        }
        for (int64_t at = 0; at < d; at += TILE) {
            int64_t n = d - at < TILE ? d - at : TILE;
            const float *y = tile_read(x->dtype, args->in[0], row * d + at, n, from);
            steps_of(q + row * d + at, y, scale, n);
        }
    }
}

const Kernel ISA_NAME(quantize_kernels)[] = {
    {.name = "quantize_rows." ISA, .kind = OP_QUANTIZE_ROWS, .match = match, .run = run},
    {0},
};
