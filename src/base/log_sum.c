/* The sum over a row of logits on the host, which is taken for every token that somebody listens to. */
#include "base/log_sum.h"

static inline __attribute__((always_inline)) float sum(const float *x, int64_t n, float *peak)
{
    Lanes total = {0}, most = (Lanes){0} - INFINITY;
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes y = (Lanes){0} - INFINITY;
        memcpy(&y, x + i, (size_t)(n - i < LANES ? n - i : LANES) * sizeof *x);
        LaneInts larger = y > most;
        most = (Lanes)((larger & (LaneInts)y) | (~larger & (LaneInts)most));
    }
    float lane[LANES];
    memcpy(lane, &most, sizeof lane);
    *peak = lane[0];
    for (int i = 1; i < LANES; i++)
        *peak = lane[i] > *peak ? lane[i] : *peak;
    if (!isfinite(*peak))
        *peak = 0;
    for (int64_t i = 0; i < n; i += LANES) {
        Lanes y = (Lanes){0} - INFINITY;
        memcpy(&y, x + i, (size_t)(n - i < LANES ? n - i : LANES) * sizeof *x);
        y -= *peak;
        lanes_exp(&y);
        total += y;
    }
    return log_of_sum(lanes_sum(&total));
}

#if defined(__x86_64__)
__attribute__((target("avx512f,avx512dq"))) static float sum_avx512(const float *x, int64_t n,
                                                                    float *peak)
{
    return sum(x, n, peak);
}

__attribute__((target("avx2"))) static float sum_avx2(const float *x, int64_t n, float *peak)
{
    return sum(x, n, peak);
}
#endif

float log_sum_floats(const float *x, int64_t n, float *peak)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        return sum_avx512(x, n, peak);
    if (__builtin_cpu_supports("avx2"))
        return sum_avx2(x, n, peak);
#endif
    return sum(x, n, peak);
}
