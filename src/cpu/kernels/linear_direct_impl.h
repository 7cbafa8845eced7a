/*
 * Tiles of weights of x's own kind on the vectors of vec.h: a weight's 16 rows are 16 / VN vectors, and what x has for 4 bytes
 * of each goes into all of their lanes:
 *
 *     f32       a number
 *     widened   of a pair of bf16 the even one is added first, then the other
 *     pairs     both products are added by one instruction (vdpbf16ps; bfdot, which rounds their sum once more), or two rows' of
 *               two pairs (bfmmla)
 *
 * With AVX-512 up to 6 rows take four panels at a time, up to 12 two: at most 24 sums of 32 registers.
 */
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"

typedef enum Kind { OF_F32, WIDENED, PAIRS } Kind;

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
enum { ROWS = SUMS / PARTS / (VN == 16 ? 2 : 1), FEW = SUMS / PARTS / LINEAR_BLOCK };

/* Whether two rows of x are multiplied at a time. */
VEC_INLINE bool by_pairs(const Kind kind, const int M)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    return kind == PAIRS && M > 1;
#else
    return (void)kind, (void)M, false;
#endif
}

/* Panels that M rows take at a time. */
VEC_INLINE int panels_of(const Kind kind, const int M)
{
    const int most = SUMS / PARTS / (by_pairs(kind, M) ? M + M % 2 : M);
    return most >= 4 ? 4 : most >= 2 ? 2 : 1;
}

VEC_INLINE vf multiply_add(const Kind kind, vf x, vf w, vf sum)
{
#if defined(VEC_BF16)
    if (kind == PAIRS)
        return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)w);
#elif defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (kind == PAIRS)
        return vbfdotq_f32(sum, (bfloat16x8_t)w, (bfloat16x8_t)x);
#endif
    (void)kind;
    return vf_fma(x, w, sum);
}

/* x times one vector of each panel; row: bytes of x. */
VEC_INLINE void add_products(const Kind kind, const int M, const int N, const char *x,
                             const int row, const vf *w, vf sum[ROWS][4 * PARTS])
{
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) {
        float value;
        memcpy(&value, x + r * row, sizeof value);
        vf a = vf_splat(value);
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            sum[r][j] = multiply_add(kind, a, w[j], sum[r][j]);
    }
}

/* M rows, P panels from the given one on, constants, and the kind too. */
VEC_INLINE void block(const Kind kind, const int M, const int P, const LinearTile *t, int panel)
{
    const int N = P * PARTS, element = kind == PAIRS ? 2 : 4;
    const int row = element * LINEAR_SPAN, step = kind == WIDENED ? 8 : 4; /* bytes of x */
    vf sum[ROWS][4 * PARTS], w[4 * PARTS];
    float *c = t->c + panel * t->c_stride;
    const uint8_t *from = t->q + panel * t->q_stride;
    const char *x = t->x;
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            sum[r][j] = t->add
                            ? vf_load(c + j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN)
                            : vf_zero();
    for (int64_t u = 0; u < t->units; u++, from += PANEL_BYTES, x += step) {
        vu word[4 * PARTS];
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            const uint8_t *at = from + j / PARTS * t->q_stride + j % PARTS * VN * 4;
            if (j % PARTS == 0)
                __builtin_prefetch(at + AHEAD, 0, 2);
            memcpy(&word[j], at, sizeof word[j]);
            w[j] = (vf)(kind == WIDENED ? word[j] << 16 : word[j]);
        }
        add_products(kind, M, N, x, row, w, sum);
        if (kind == WIDENED) {
#pragma GCC unroll 16
            for (int j = 0; j < N; j++)
                w[j] = (vf)(word[j] & 0xffff0000u);
            add_products(kind, M, N, x + 4, row, w, sum);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            vf_store(c + j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN, sum[r][j]);
}

#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
/* The same of pairs by bfmmla, which multiplies four neighbours of two rows of x with those of two rows of a panel, and rounds as
   two bfdot one after the other do (BFMatMulAdd in the Arm Architecture Reference Manual): twice as many products an instruction.
   For each vector of four sums, two rows of x have [x0 w0, x0 w1, x1 w0, x1 w1] and the same of w2 and w3 meanwhile; an odd last
   row is multiplied twice. */
VEC_INLINE void block_of_pairs(const int M, const int P, const LinearTile *t, int panel)
{
    const int N = P * PARTS;
    vf sum[ROWS + 1][4 * PARTS];
    float *c = t->c + panel * t->c_stride;
    const uint8_t *from = t->q + panel * t->q_stride;
    const uint16_t *x = t->x;
#pragma GCC unroll 16
    for (int r = 0; r < M; r += 2)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            const int64_t at = j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN;
            const vf a = t->add ? vf_load(c + at) : vf_zero();
            const vf b = t->add && r + 1 < M ? vf_load(c + at + PANEL_ROWS) : vf_zero();
            sum[r][j] = (vf)vzip1q_u64((uint64x2_t)a, (uint64x2_t)b);
            sum[r + 1][j] = (vf)vzip2q_u64((uint64x2_t)a, (uint64x2_t)b);
        }
    int64_t u = 0;
    for (; u + 2 <= t->units; u += 2, from += 2 * PANEL_BYTES, x += PANEL_QUAD) {
        uint16x8_t pair[(ROWS + 1) / 2];
#pragma GCC unroll 16
        for (int r = 0; r < M; r += 2) {
            const uint16_t *row = x + r * LINEAR_SPAN;
            pair[r / 2] =
                vcombine_u16(vld1_u16(row), vld1_u16(r + 1 < M ? row + LINEAR_SPAN : row));
        }
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            const uint8_t *at = from + j / PARTS * t->q_stride + j % PARTS * VN * 4;
            uint32x4_t even, odd;
            memcpy(&even, at, sizeof even);
            memcpy(&odd, at + PANEL_BYTES, sizeof odd);
            if (j % PARTS == 0) {
                __builtin_prefetch(at + AHEAD, 0, 2);
                __builtin_prefetch(at + AHEAD + PANEL_BYTES, 0, 2);
            }
            const bfloat16x8_t low = (bfloat16x8_t)vzip1q_u32(even, odd);
            const bfloat16x8_t high = (bfloat16x8_t)vzip2q_u32(even, odd);
#pragma GCC unroll 16
            for (int r = 0; r < M; r += 2) {
                const bfloat16x8_t two = (bfloat16x8_t)pair[r / 2];
                sum[r][j] = vbfmmlaq_f32(sum[r][j], two, low);
                sum[r + 1][j] = vbfmmlaq_f32(sum[r + 1][j], two, high);
            }
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r += 2)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++) {
            const uint64x2_t a = (uint64x2_t)sum[r][j], b = (uint64x2_t)sum[r + 1][j];
            sum[r][j] = (vf)vzip1q_u64(a, b);
            sum[r + 1][j] = (vf)vzip2q_u64(a, b);
        }
    if (u < t->units) {
        vf w[4 * PARTS];
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            memcpy(&w[j], from + j / PARTS * t->q_stride + j % PARTS * VN * 4, sizeof w[j]);
        add_products(PAIRS, M, N, (const char *)x, 2 * LINEAR_SPAN, w, sum);
    }
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int j = 0; j < N; j++)
            vf_store(c + j / PARTS * t->c_stride + r * PANEL_ROWS + j % PARTS * VN, sum[r][j]);
}
#endif

VEC_INLINE void any_block(const Kind kind, const int M, const int P, const LinearTile *t, int panel)
{
#if defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
    if (by_pairs(kind, M)) {
        block_of_pairs(M, P, t, panel);
        return;
    }
#endif
    block(kind, M, P, t, panel);
}

/* M rows, all panels. */
VEC_INLINE void rows_of(const int M, const Kind kind, const LinearTile *t)
{
    const int P = panels_of(kind, M);
    int panel = 0;
    if (M > ROWS)
        return;
    for (; panel + P <= t->panels; panel += P)
        any_block(kind, M, P, t, panel);
    for (; panel < t->panels; panel++)
        any_block(kind, M, 1, t, panel);
}

VEC_INLINE void tile(const Kind kind, const LinearTile *t)
{
    CONSTANT_ROWS_12(t->rows, rows_of, kind, t);
}

#define MEMBERS                                                                                    \
    .of_rows = &LINEAR_ROWS, .of_same = &LINEAR_SAME, .rows = ROWS, .few = FEW, .even = true,      \
    .panels = 2

#if defined(VEC_BF16) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
static void tile_bf16(const LinearTile *t)
{
    tile(PAIRS, t);
}

const LinearIsa ISA_NAME(linear_bf16) = {MEMBERS, .weight = CVN_BF16, .x = CVN_BF16,
                                         .tile = tile_bf16};
#else
static void tile_f32(const LinearTile *t)
{
    tile(OF_F32, t);
}

static void tile_bf16(const LinearTile *t)
{
    tile(WIDENED, t);
}

const LinearIsa ISA_NAME(linear_f32) = {MEMBERS, .weight = CVN_F32, .x = CVN_F32, .tile = tile_f32};
const LinearIsa ISA_NAME(linear_bf16) = {MEMBERS, .weight = CVN_BF16, .x = CVN_F32,
                                         .tile = tile_bf16};
#endif
