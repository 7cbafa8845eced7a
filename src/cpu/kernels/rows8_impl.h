/*
 * Rows in 8 bits, each by its largest element: what quantize_rows does, and products that bring their rows to 8 bits
 * themselves, with the same bits.
 */
#ifndef CVN_CPU_KERNELS_ROWS8_IMPL_H
#define CVN_CPU_KERNELS_ROWS8_IMPL_H

#include "cpu/kernels/tile.h"

#include <math.h>

#define WHOLE                                                                                      \
    0x1.8p23f /* in its neighbourhood floats are one apart: x + WHOLE - WHOLE is rounded */

/* The largest pattern of |x| as an integer, which orders floats as they are and NaN above them. */
static inline __attribute__((unused)) int32_t largest(const float *x, int64_t n, int32_t most)
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

/* q = x / step, rounded and clamped. */
static inline __attribute__((unused)) void steps_of(int8_t *q, const float *x, float step,
                                                    int64_t n)
{
    int64_t i = 0;
    vf s = vf_splat(step), low = vf_splat(-127.0f), high = vf_splat(127.0f), c = vf_splat(WHOLE);
    for (; i + VN <= n; i += VN) {
        vf v = vf_max(vf_min(vf_load(x + i) / s, high), low) + c - c;
        vi whole = __builtin_convertvector(v, vi);
        typedef int8_t vb __attribute__((vector_size(VN)));
        vb bytes = __builtin_convertvector(whole, vb);
        memcpy(q + i, &bytes, sizeof bytes);
    }
    for (; i < n; i++) {
        float v = x[i] / step;
        v = v > 127.0f ? 127.0f : v < -127.0f ? -127.0f : v;
        q[i] = (int8_t)rintf(v);
    }
}

/* The step of a row whose largest magnitude has these bits, as bf16. */
static inline __attribute__((unused)) uint16_t step_of(int32_t bits)
{
    float most;
    memcpy(&most, &bits, sizeof most);
    return bf16_from_f32(most / 127.0f);
}

/* Whether a row has steps at all: not of zeros, nor where an element is not finite. Else it is zeros. */
static inline __attribute__((unused)) bool step_usable(float step)
{
    return step > 0 && step < INFINITY;
}

#endif
