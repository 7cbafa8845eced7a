/*
 * Tiles of weights in bf16 and f32 on the vectors of vec.h: a weight's 16 rows are 16 / VN vectors, and each element of x goes
 * into all of their lanes. bf16 is widened on the way: of a pair, the even one is added first.
 */
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/linear.h"
#include "cpu/kernels/vec.h"

enum {
    PARTS = PANEL_ROWS / VN,  /* vectors of a panel's sums */
    AHEAD = 128 * PANEL_BYTES /* what of a panel is fetched ahead */
};

#if defined(__AVX512F__) || defined(__aarch64__)
enum { SUMS = 24 }; /* of 32 registers */
#else
enum { SUMS = 12 }; /* of 16 */
#endif

/* Rows of a tile, and up to how many take more than two panels. */
enum { FLOAT_ROWS = SUMS / PARTS / (VN == 16 ? 2 : 1), FLOAT_FEW = SUMS / PARTS / LINEAR_BLOCK };

/* Panels that M rows take at a time. */
VEC_INLINE int panels_of(const int M)
{
    const int most = SUMS / PARTS / M;
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

/* x times one vector of each panel. */
VEC_INLINE void add_products(const int M, const int N, const float *x, const vf *w,
                             vf sum[FLOAT_ROWS][4 * PARTS])
{
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) {
        vf a = vf_splat(x[r * LINEAR_SPAN]);
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            sum[r][j] = vf_fma(a, w[j], sum[r][j]);
    }
}

/* M rows, P panels from the given one on, constants. */
VEC_INLINE void float_block(const int M, const int P, const bool bf16, const LinearTile *t,
                            int panel)
{
    vf sum[FLOAT_ROWS][4 * PARTS], w[4 * PARTS];
    const int N = P * PARTS;
    float *c = t->c + panel * t->c_stride;
    const uint8_t *from = t->q + panel * t->q_stride;
    const float *x = t->x;
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            sum[r][j] = t->add
                            ? vf_load(c + j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN)
                            : vf_zero();
    for (int64_t u = 0; u < t->units; u++, from += PANEL_BYTES, x += bf16 ? 2 : 1) {
        vu word[4 * PARTS];
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            const uint8_t *at = from + j / PARTS * t->q_stride + j % PARTS * VN * 4;
            if (j % PARTS == 0)
                __builtin_prefetch(at + AHEAD, 0, 2);
            memcpy(&word[j], at, sizeof word[j]);
            w[j] = bf16 ? (vf)(word[j] << 16) : (vf)word[j];
        }
        add_products(M, N, x, w, sum);
        if (bf16) {
#pragma GCC unroll 16
            for (int j = 0; j < N; j++)
                w[j] = (vf)(word[j] & 0xffff0000u);
            add_products(M, N, x + 1, w, sum);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            vf_store(c + j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN, sum[r][j]);
}

/* M rows, all panels. */
VEC_INLINE void float_rows(const int M, const bool bf16, const LinearTile *t)
{
    const int P = panels_of(M);
    int panel = 0;
    if (M > FLOAT_ROWS)
        return;
    for (; panel + P <= t->panels; panel += P)
        float_block(M, P, bf16, t, panel);
    for (; panel < t->panels; panel++)
        float_block(M, 1, bf16, t, panel);
}

VEC_INLINE void float_tile(const bool bf16, const LinearTile *t)
{
    CONSTANT_ROWS_12(t->rows, float_rows, bf16, t);
}

static void tile_f32(const LinearTile *t)
{
    float_tile(false, t);
}

static void tile_bf16(const LinearTile *t)
{
    float_tile(true, t);
}

#define MEMBERS                                                                                    \
    .of_rows = &ISA_NAME(linear_rows), .x = CVN_F32, .rows = FLOAT_ROWS, .few = FLOAT_FEW,         \
    .even = true, .panels = 2

const LinearIsa ISA_NAME(linear_f32) = {MEMBERS, .weight = CVN_F32, .tile = tile_f32};
const LinearIsa ISA_NAME(linear_bf16) = {MEMBERS, .weight = CVN_BF16, .tile = tile_bf16};
