/*
 * Along a row of any float dtype: its largest element, and the logarithm of a sum of exponentials, of cross-entropy and of
 * its gradient, which takes the exponentials as well, in the order of base/log_sum.h.
 */
#ifndef CVN_CPU_KERNELS_LOG_SUM_IMPL_H
#define CVN_CPU_KERNELS_LOG_SUM_IMPL_H

#include "base/log_sum.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

/* Elements i … of a tile of f32 or, where that is `half`, a constant, of bf16. */
VEC_INLINE vf tile_at(const bool half, const void *x, int64_t i)
{
    return half ? vf_load_bf16((const uint16_t *)x + i) : vf_load((const float *)x + i);
}

/* The same of the last n, with `rest` behind them where they are fewer than VN. */
VEC_INLINE vf tile_end(const bool half, const void *x, int64_t i, int64_t n, float rest)
{
    float last[VN];
    if (n >= VN)
        return tile_at(half, x, i);
    if (!half)
        return vf_load_part_or((const float *)x + i, n, rest);
    for (int64_t j = 0; j < VN; j++)
        last[j] = j < n ? bf16_to_f32(((const uint16_t *)x)[i + j]) : rest;
    return vf_load(last);
}

/* The largest of x and peak; NaN is not seen. */
VEC_INLINE float peak_tile(const bool half, const void *x, int64_t n, float peak)
{
    int64_t i = 0;
    vf most = vf_splat(peak), other = most; /* two, of which neither waits for the other */
    for (; i + 2 * VN <= n; i += 2 * VN) {
        most = vf_max(tile_at(half, x, i), most);
        other = vf_max(tile_at(half, x, i + VN), other);
    }
    for (; i + VN <= n; i += VN)
        most = vf_max(tile_at(half, x, i), most);
    if (i < n)
        most = vf_max(tile_end(half, x, i, n - i, peak), most);
    return vf_max_lane(vf_max(most, other));
}

/* The largest of elements [begin, end) of any float dtype, that of each tile first, and then in *at the first place that has
   it; -inf, and *at as it was, where there is nothing but -inf and NaN. */
static inline __attribute__((unused)) float largest_at(cvn_dtype dtype, const void *data,
                                                       int64_t begin, int64_t end, int64_t *at)
{
    float from[TILE], most = -INFINITY;
    for (int64_t first = begin; first < end; first += TILE) {
        int64_t n = tile_length(first, end), i = 0;
        const float *x = tile_read(dtype, data, first, n, from);
        float peak = peak_tile(false, x, n, most);
        if (!(peak > most))
            continue;
        most = peak;
        while (x[i] != peak)
            i++;
        *at = first + i;
    }
    return most;
}

/* Adds exp(x - peak) to the sum, and writes it to `power` unless that is NULL. */
VEC_INLINE void add_powers(const bool half, Lanes *sum, const void *x, int64_t n, float peak,
                           float *power)
{
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes y;
        for (int l = 0; l < LANES; l += VN) {
            vf part = n - i - l >= VN  ? tile_at(half, x, i + l)
                      : n - i - l >= 1 ? tile_end(half, x, i + l, n - i - l, -INFINITY)
                                       : vf_splat(-INFINITY);
            memcpy((float *)&y + l, &part, sizeof part);
        }
        y -= peak;
        lanes_exp(&y);
        *sum += y;
        if (power)
            memcpy(power + i, &y, (size_t)num_min(n - i, LANES) * sizeof *power);
    }
}

/* ln of the sum of exp(x - *peak) over elements [first, first + n); *peak is the largest, or 0 if that is not
   finite. A NaN among them comes out by way of the sum. power, unless NULL: [n] for what was summed. */
static inline float log_sum(cvn_dtype dtype, const void *data, int64_t first, int64_t n,
                            float *power, float *peak)
{
    const bool half = dtype == CVN_BF16;
    const uint16_t *bf16 = half ? (const uint16_t *)data + first : NULL;
    float from[TILE];
    *peak = -INFINITY;
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = tile_length(at, n);
        *peak = half ? peak_tile(true, bf16 + at, length, *peak)
                     : peak_tile(false, tile_read(dtype, data, first + at, length, from), length,
                                 *peak);
    }
    if (!isfinite(*peak))
        *peak = 0;
    Lanes sum = {0};
    for (int64_t at = 0; at < n; at += TILE) {
        int64_t length = tile_length(at, n);
        float *to = power ? power + at : NULL;
        if (half)
            add_powers(true, &sum, bf16 + at, length, *peak, to);
        else
            add_powers(false, &sum, tile_read(dtype, data, first + at, length, from), length, *peak,
                       to);
    }
    return log_of_sum(lanes_sum(&sum));
}

#endif
