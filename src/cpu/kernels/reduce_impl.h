/*
 * Reductions along a row, a tile at a time, in SUM_LANES lanes: shared by the kernel of reduce and by tile programs that reduce
 * along rows, which so have the same bits.
 */
#ifndef CVN_CPU_KERNELS_REDUCE_IMPL_H
#define CVN_CPU_KERNELS_REDUCE_IMPL_H

#include "cpu/kernels/vec.h"
#include "graph/reduce.h"

static inline __attribute__((unused)) float neutral(cvn_reduce kind)
{
    return (float)reduce_neutral(kind, CVN_F32);
}

/* NaN wins. */
VEC_INLINE vf combine(cvn_reduce kind, vf a, vf b)
{
    switch (kind) {
    case CVN_SUM:
        return a + b;
    case CVN_PRODUCT:
        return a * b;
    case CVN_MAX:
        return vf_select(a != a, a, vf_select(a > b, a, b));
    default:
        return vf_select(a != a, a, vf_select(a < b, a, b));
    }
}

/* The lanes of a sum combined, halves first. */
VEC_INLINE float combine_lanes(cvn_reduce kind, VecSum *s)
{
    float lane[2 * VN];
    for (int half = SUM_VECTORS / 2; half > 0; half /= 2)
        for (int p = 0; p < half; p++)
            s->part[p] = combine(kind, s->part[p], s->part[p + half]);
    vf v = s->part[0];
    for (int i = VN; i < 2 * VN; i++)
        lane[i] = neutral(kind);
    for (int half = VN / 2; half > 0; half /= 2) {
        vf_store(lane, v);
        v = combine(kind, v, vf_load(lane + half)); /* lanes from `half` on no longer matter */
    }
    vf_store(lane, v);
    return lane[0];
}

/* f of a kind that is a constant. */
#define OF_KIND(kind, f, ...)                                                                      \
    switch (kind) {                                                                                \
    case CVN_SUM:                                                                                  \
        f(CVN_SUM, __VA_ARGS__);                                                                   \
        break;                                                                                     \
    case CVN_PRODUCT:                                                                              \
        f(CVN_PRODUCT, __VA_ARGS__);                                                               \
        break;                                                                                     \
    case CVN_MAX:                                                                                  \
        f(CVN_MAX, __VA_ARGS__);                                                                   \
        break;                                                                                     \
    default:                                                                                       \
        f(CVN_MIN, __VA_ARGS__);                                                                   \
        break;                                                                                     \
    }

VEC_INLINE VecSum no_terms(cvn_reduce kind)
{
    VecSum total;
    for (int p = 0; p < SUM_VECTORS; p++)
        total.part[p] = vf_splat(neutral(kind));
    return total;
}

/* One tile of a row. */
VEC_INLINE void add_terms(cvn_reduce kind, VecSum *total, const float *x, int64_t n)
{
    int64_t i = 0;
#pragma GCC unroll 4
    for (int p = 0; p < SUM_VECTORS; p++) {
        vf part = vf_splat(neutral(kind));
        for (i = p * VN; i + VN <= n; i += SUM_LANES)
            part = combine(kind, part, vf_load(x + i));
        if (i < n)
            part = combine(kind, part, vf_load_part_or(x + i, n - i, neutral(kind)));
        total->part[p] = combine(kind, total->part[p], part);
    }
}

#endif
