/*
 * The micro-kernels of gemm.h on the vectors of vec.h, compiled once per instruction set. Operands
 * are f32, or bf16 that is widened: while packing for tile(), while loading for dots().
 *
 * MR and PANELS: a tile's accumulators are MR x 16 * PANELS / VN registers, and with one row of B must fit in the register file.
 * MC and KC: the blocking in the caches.
 */
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/transpose.h"
#include "cpu/kernels/vec.h"

#if defined(__AVX512F__)
enum { MR = 12, PANELS = 2, MC = 516, KC = 384 }; /* 12 x 32 accumulators are 24 of 32 registers */
#elif defined(__AVX2__) || defined(__aarch64__)
enum { MR = 6, PANELS = 1, MC = 510, KC = 256 }; /* 6 x 16 are 12 of 16, of NEON 24 of 32 */
#else
enum { MR = 2, PANELS = 1, MC = 256, KC = 256 }; /* of SSE2 8 of 16 */
#endif

enum { TILE_VECTORS = GEMM_PANEL * PANELS / VN, PANEL_VECTORS = GEMM_PANEL / VN };

static void tile_f32(int64_t k, const void *a_panel, const void *b_panels, size_t b_stride,
                     float *c, bool add)
{
    const float *a = a_panel;
    const char *b = b_panels;
    vf sum[MR][TILE_VECTORS];
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 16
        for (int v = 0; v < TILE_VECTORS; v++)
            sum[r][v] = add ? vf_load(c + (r * TILE_VECTORS + v) * VN) : vf_zero();
    for (int64_t i = 0; i < k; i++, a += MR, b += GEMM_PANEL * sizeof(float)) {
        vf row[TILE_VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < TILE_VECTORS; v++)
            row[v] =
                vf_load((const float *)(const void *)(b + b_stride * (size_t)(v / PANEL_VECTORS)) +
                        v % PANEL_VECTORS * VN);
#pragma GCC unroll 16
        for (int r = 0; r < MR; r++) {
            vf x = vf_splat(a[r]);
#pragma GCC unroll 16
            for (int v = 0; v < TILE_VECTORS; v++)
                sum[r][v] = vf_fma(x, row[v], sum[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 16
        for (int v = 0; v < TILE_VECTORS; v++)
            vf_store(c + (r * TILE_VECTORS + v) * VN, sum[r][v]);
}

/* ---- dot products of rows ---- */

VEC_INLINE vf load_source(const void *p, int64_t i, bool bf16)
{
    return bf16 ? vf_load_bf16((const uint16_t *)p + i) : vf_load((const float *)p + i);
}

VEC_INLINE vf load_source_part(const void *p, int64_t i, int64_t n, bool bf16)
{
    return bf16 ? vf_load_bf16_part((const uint16_t *)p + i, n)
                : vf_load_part((const float *)p + i, n);
}

/* Kept in a register where M rows use it. */
VEC_INLINE vf load_kept(const int M, const void *p, int64_t i, bool bf16)
{
    vf v = load_source(p, i, bf16);
    return M > 1 ? vf_keep(v) : v;
}

/* One step of M x N dot products. */
VEC_INLINE void dots_step(const int M, const int N, const float *a, const vf *x, vf sum[4][4])
{
#pragma GCC unroll 4
    for (int i = 0; i < M; i++) {
        vf y = vf_load(a + i * VN);
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j] = vf_fma(y, x[j], sum[i][j]);
    }
}

/* M rows of a against N rows of b, all constants; one accumulator for each of the M * N. */
VEC_INLINE void dots_block(const int M, const int N, bool bf16, int64_t k, const float *a,
                           const void *b, int64_t ldb, float *c, int64_t ldc)
{
    const size_t size = bf16 ? 2 : 4;
    vf sum[4][4], x[4];
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j] = vf_zero();
    int64_t at = 0; /* the rows of the next block but one are prefetched meanwhile */
    for (; at + VN <= k; at += VN, a += M * VN) {
#pragma GCC unroll 4
        for (int j = 0; j < N; j++) {
            x[j] = load_kept(M, b, j * ldb + at, bf16);
            __builtin_prefetch((const char *)b + (size_t)((j + 2 * N) * ldb + at) * size);
        }
        dots_step(M, N, a, x, sum);
    }
    if (at < k) {
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            x[j] = load_source_part(b, j * ldb + at, k - at, bf16);
        dots_step(M, N, a, x, sum);
    }
    vf_sum_block(M, N, sum, c, ldc);
}

/* All n columns for M rows, as many at a time as registers hold. */
VEC_INLINE void dots_rows(const int M, bool bf16, int64_t n, int64_t k, const float *a,
                          const void *b, int64_t ldb, float *c, int64_t ldc)
{
    enum { REGISTERS = VN == 16 ? 16 : 8 };
    const int wide = M * 4 <= REGISTERS ? 4 : 2;
    const size_t size = bf16 ? 2 : 4;
    int64_t j = 0;
    for (; j + wide <= n; j += wide)
        dots_block(M, wide, bf16, k, a, (const char *)b + (size_t)(j * ldb) * size, ldb, c + j,
                   ldc);
    for (; j < n; j++)
        dots_block(M, 1, bf16, k, a, (const char *)b + (size_t)(j * ldb) * size, ldb, c + j, ldc);
}

VEC_INLINE void dots_any(bool bf16, int64_t m, int64_t n, int64_t k, const void *a, const void *b,
                         int64_t ldb, float *c, int64_t ldc)
{
    CONSTANT_ROWS_4(m, dots_rows, bf16, n, k, a, b, ldb, c, ldc);
}

static void dots_f32(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                     float *c, int64_t ldc)
{
    dots_any(false, m, n, k, a, b, ldb, c, ldc);
}

static void dots_bf16(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                      float *c, int64_t ldc)
{
    dots_any(true, m, n, k, a, b, ldb, c, ldc);
}

#define GEMM_MEMBERS                                                                               \
    .packed = CVN_F32, .kpack = 1, .mr = MR, .panels = PANELS, .mc = MC, .nc = 256, .kc = KC,      \
    .tile = tile_f32, .interleave = interleave_units, .round = tile_rows_to_bf16, .add = tile_add, \
    .epilogue = ISA_NAME(fusion_epilogue), .squares = tile_add_squares, .lanes = VN

const GemmIsa ISA_NAME(gemm_f32) = {GEMM_MEMBERS, .dots = dots_f32, .source = CVN_F32};

/* bf16 is widened to f32 while packing. */
const GemmIsa ISA_NAME(gemm_bf16) = {GEMM_MEMBERS, .dots = dots_bf16, .source = CVN_BF16};
