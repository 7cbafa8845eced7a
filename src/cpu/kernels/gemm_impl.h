/*
 * The micro-kernels of gemm.h on the vectors of vec.h, compiled once per instruction set. Operands
 * are f32, or bf16 that is widened: while packing for tile(), while loading for dots(). With VEC_BF16 they are pairs of bf16:
 * vdpbf16ps multiplies 32 of them and adds two products to each of 16 f32 sums, twice the work of a fused multiply-add.
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

typedef enum Kind { OF_F32, WIDENED, PAIRS } Kind;

#if defined(VEC_BF16)
enum { KPACK = 2 };
#else
enum { KPACK = 1 };
#endif

VEC_INLINE vf multiply_add(const Kind kind, vf a, vf b, vf sum)
{
#if defined(VEC_BF16)
    if (kind == PAIRS)
        return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)a, (__m512bh)b);
#endif
    (void)kind;
    return vf_fma(a, b, sum);
}

static void tile(int64_t k, const void *a_panel, const void *b_panels, size_t b_stride, float *c,
                 bool add)
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
                sum[r][v] = multiply_add(KPACK == 2 ? PAIRS : OF_F32, x, row[v], sum[r][v]);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 16
        for (int v = 0; v < TILE_VECTORS; v++)
            vf_store(c + (r * TILE_VECTORS + v) * VN, sum[r][v]);
}

/* ---- dot products of rows ---- */

/* Elements of the vectors of a sum. */
VEC_INLINE int lanes_of(const Kind kind)
{
    return kind == PAIRS ? 2 * SUM_LANES : SUM_LANES;
}

/* Those of one vector, from element i on, of which n are there. */
VEC_INLINE vf load_source(const Kind kind, const void *p, int64_t i, int64_t n)
{
    const bool part = n < (kind == PAIRS ? 2 * VN : VN);
    const uint16_t *half = (const uint16_t *)p + i;
#if defined(VEC_BF16)
    if (kind == PAIRS && part)
        return (vf)_mm512_maskz_loadu_epi16((__mmask32)((1u << n) - 1u), half);
#endif
    if (kind == PAIRS)
        return vf_load((const float *)(const void *)half);
    if (kind == WIDENED)
        return part ? vf_load_bf16_part(half, n) : vf_load_bf16(half);
    return part ? vf_load_part((const float *)p + i, n) : vf_load((const float *)p + i);
}

/* One step of M x N dot products, in vector p of their sums. */
VEC_INLINE void dots_step(const Kind kind, const int M, const int N, const int p, const float *a,
                          const vf *x, VecSum sum[4][4])
{
#pragma GCC unroll 4
    for (int i = 0; i < M; i++) {
        vf y = vf_load(a + i * SUM_LANES + p * VN);
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j].part[p] = multiply_add(kind, y, x[j], sum[i][j].part[p]);
    }
}

/* M rows of a against N rows of b, all constants; one accumulator for each of the M * N. */
VEC_INLINE void dots_block(const Kind kind, const int M, const int N, int64_t k, const float *a,
                           const void *b, int64_t ldb, float *c, int64_t ldc)
{
    const size_t size = kind == OF_F32 ? 4 : 2;
    const int lanes = lanes_of(kind);
    VecSum sum[4][4];
    vf x[4];
#pragma GCC unroll 4
    for (int i = 0; i < M; i++)
#pragma GCC unroll 4
        for (int j = 0; j < N; j++)
            sum[i][j] = vec_sum_zero();
    int64_t at = 0; /* the rows of the next block but one are prefetched meanwhile */
    for (; at + lanes <= k; at += lanes, a += M * SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
#pragma GCC unroll 4
            for (int j = 0; j < N; j++) {
                x[j] = load_source(kind, b, j * ldb + at + p * VN, lanes);
                if (M > 1 && kind != PAIRS) /* in a register, as M rows use it */
                    x[j] = vf_keep(x[j]);
                __builtin_prefetch((const char *)b +
                                   (size_t)((j + 2 * N) * ldb + at + p * VN) * size);
            }
            dots_step(kind, M, N, p, a, x, sum);
        }
    if (at < k)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
#pragma GCC unroll 4
            for (int j = 0; j < N; j++)
                x[j] = load_source(kind, b, j * ldb + at + p * VN, vec_left(k - at, p));
            dots_step(kind, M, N, p, a, x, sum);
        }
    vec_sum_block(M, N, sum, c, ldc);
}

/* All n columns for M rows, as many at a time as registers hold. */
VEC_INLINE void dots_rows(const int M, const Kind kind, int64_t n, int64_t k, const float *a,
                          const void *b, int64_t ldb, float *c, int64_t ldc)
{
    enum { REGISTERS = VN == 16 ? 16 : 8 };
    const int own = M * SUM_VECTORS, wide = own * 4 <= REGISTERS ? 4 : own <= 4 ? 2 : 1;
    const size_t row = (size_t)ldb * (kind == OF_F32 ? 4 : 2);
    int64_t j = 0;
    for (; j + wide <= n; j += wide)
        dots_block(kind, M, wide, k, a, (const char *)b + (size_t)j * row, ldb, c + j, ldc);
    for (; j < n; j++)
        dots_block(kind, M, 1, k, a, (const char *)b + (size_t)j * row, ldb, c + j, ldc);
}

#define GEMM_MEMBERS                                                                               \
    .kpack = KPACK, .mr = MR, .panels = PANELS, .mc = MC, .nc = 256, .kc = KC * KPACK,             \
    .tile = tile, .interleave = interleave_units, .round = tile_rows_to_bf16,                      \
    .epilogue = ISA_NAME(fusion_epilogue), .squares = tile_add_squares, .lanes = SUM_LANES * KPACK

#if defined(VEC_BF16)
void gemm_pair_rows(const uint16_t *x, int64_t stride, int64_t units, uint32_t *out)
{
    for (int64_t u = 0; u < units; u++, x += 2 * stride, out += GEMM_PANEL) {
        __m512i even = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)x));
        __m512i odd = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(x + stride)));
        _mm512_storeu_si512(out, _mm512_or_si512(even, _mm512_slli_epi32(odd, 16)));
    }
}

static void dots_pairs(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                       float *c, int64_t ldc)
{
    CONSTANT_ROWS_4(m, dots_rows, PAIRS, n, k, a, b, ldb, c, ldc);
}

const GemmIsa ISA_NAME(gemm_bf16) = {GEMM_MEMBERS, .packed = CVN_BF16, .dots = dots_pairs,
                                     .source = CVN_BF16, .pair = gemm_pair_rows};
#else
static void dots_f32(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                     float *c, int64_t ldc)
{
    CONSTANT_ROWS_4(m, dots_rows, OF_F32, n, k, a, b, ldb, c, ldc);
}

static void dots_bf16(int64_t m, int64_t n, int64_t k, const void *a, const void *b, int64_t ldb,
                      float *c, int64_t ldc)
{
    CONSTANT_ROWS_4(m, dots_rows, WIDENED, n, k, a, b, ldb, c, ldc);
}

const GemmIsa ISA_NAME(gemm_f32) = {GEMM_MEMBERS, .packed = CVN_F32, .dots = dots_f32,
                                    .source = CVN_F32};
const GemmIsa ISA_NAME(gemm_bf16) = {GEMM_MEMBERS, .packed = CVN_F32, .dots = dots_bf16,
                                     .source = CVN_BF16};
#endif
