/*
 * RMS norm of a row, a tile at a time: shared by the kernel of rms_norm and by products that take the norm in, which
 * so have the same bits. The squares are summed in SUM_LANES lanes, in f32.
 */
#ifndef CVN_CPU_KERNELS_NORM_IMPL_H
#define CVN_CPU_KERNELS_NORM_IMPL_H

#include "cpu/kernels/tile.h"

#include <math.h>

static inline __attribute__((unused)) void add_squares(VecSum *sum, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + SUM_LANES <= n; i += SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            vf v = vf_load(x + i + p * VN);
            sum->part[p] = vf_fma(v, v, sum->part[p]);
        }
    if (i < n)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            vf v = vf_load_part(x + i + p * VN, vec_left(n - i, p));
            sum->part[p] = vf_fma(v, v, sum->part[p]);
        }
}

/* y = x * scale * weight */
static inline __attribute__((unused)) void norm_tile(float *y, const float *x, const float *weight,
                                                     float scale, int64_t n)
{
    int64_t i = 0;
    vf s = vf_splat(scale);
    for (; i + VN <= n; i += VN)
        vf_store(y + i, vf_load(x + i) * s * vf_load(weight + i));
    for (; i < n; i++)
        y[i] = x[i] * scale * weight[i];
}

/* 1 / sqrt(mean of d squares + eps) */
static inline __attribute__((unused)) float norm_of_squares(const VecSum *sum, int64_t d, float eps)
{
    return 1.0f / sqrtf(vec_sum(sum) / (float)d + eps);
}

/* 1 / sqrt(mean of squares + eps) of elements [at, at + d) of x. */
static inline __attribute__((unused)) float norm_scale(cvn_dtype dtype, const void *x, int64_t at,
                                                       int64_t d, float eps)
{
    float from[TILE];
    VecSum sum = vec_sum_zero();
    for (int64_t i = 0; i < d; i += TILE) {
        int64_t n = d - i < TILE ? d - i : TILE;
        add_squares(&sum, tile_read(dtype, x, at + i, n, from), n);
    }
    return norm_of_squares(&sum, d, eps);
}

#endif
