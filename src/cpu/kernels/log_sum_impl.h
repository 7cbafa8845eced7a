/*
 * The logarithm of a sum of exponentials, along a row of any float dtype: of cross-entropy and of its gradient, which
 * takes the exponentials as well.
 */
#ifndef CVN_CPU_KERNELS_LOG_SUM_IMPL_H
#define CVN_CPU_KERNELS_LOG_SUM_IMPL_H

#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

/* The largest of x and peak; NaN is not seen. */
static float peak_tile(const float *x, int64_t n, float peak)
{
    int64_t i = 0;
    vf most = vf_splat(peak);
    for (; i + VN <= n; i += VN)
        most = vf_max(vf_load(x + i), most);
    peak = vf_max_lane(most);
    for (; i < n; i++)
        peak = x[i] > peak ? x[i] : peak;
    return peak;
}

/* Adds exp(x - peak) to the sum, and writes it to `power` unless that is NULL. */
static vf add_powers(vf sum, const float *x, int64_t n, float peak, float *power)
{
    int64_t i = 0;
    vf p = vf_splat(peak);
    for (; i + VN <= n; i += VN) {
        vf y = vf_exp(vf_load(x + i) - p);
        sum += y;
        if (power)
            vf_store(power + i, y);
    }
    if (i < n) {
        float last[VN];
        for (int64_t j = 0; j < VN; j++)
            last[j] = i + j < n ? x[i + j] : -INFINITY;
        vf y = vf_exp(vf_load(last) - p);
        sum += y;
        if (power)
            vf_store_part(power + i, y, n - i);
    }
    return sum;
}

/* ln of the sum of exp(x - *peak) over elements [first, first + n); *peak is the largest, or 0 if that is not
   finite. A NaN among them comes out by way of the sum. power, unless NULL: [n] for what was summed. */
static inline float log_sum(cvn_dtype dtype, const void *data, int64_t first, int64_t n,
                            float *power, float *peak)
{
    float from[TILE];
    *peak = -INFINITY;
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = n - at < TILE ? n - at : TILE;
        *peak = peak_tile(tile_read(dtype, data, first + at, length, from), length, *peak);
    }
    if (!isfinite(*peak))
        *peak = 0;
    vf sum = vf_zero();
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = n - at < TILE ? n - at : TILE;
        sum = add_powers(sum, tile_read(dtype, data, first + at, length, from), length, *peak,
                         power ? power + at : NULL);
    }
    return logf(vf_sum(sum));
}

#endif
