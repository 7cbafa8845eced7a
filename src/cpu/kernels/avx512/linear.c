/*
 * Products with quantized weights with AVX-512 VNNI: vpdpbusd sums four products of unsigned with
 * signed bytes into each of 16 sums, one per row of a panel. Weights are made unsigned by flipping
 * their sign bit, which adds 128 (i4: 8); the activations' sums take that back.
 *
 * A tile of one or two rows takes four panels (i4: of one), and of up to six (i4: four) rows two, because each number of
 * x that is loaded then serves as many products; of more rows it takes one. That is 24 of 32 registers for sums at
 * most. Seven and eight rows of i8 are one tile, which reads x beside each product: two tiles would read weights twice,
 * and asked for ahead of one they come 12% faster. From caches two panels of one row are a little faster than four, from memory four are by 6 to 14%.
 */
#define VEC_BF16
#include "cpu/kernels/avx512/linear_vnni.h"
#include "cpu/kernels/constant_rows.h"

enum { ROWS_I8 = 8, MANY_I8 = 6 /* of more rows than 8 */, ROWS_I4 = 8 };

/* [hi of 512][lo of 512] */
void linear_avx512_arrange(const int16_t *x, int8_t *out)
{
    for (int i = 0; i < LINEAR_SPAN; i++) {
        int high = (x[i] + 128) >> 8;
        out[i] = (int8_t)high;
        out[LINEAR_SPAN + i] = (int8_t)(x[i] - 256 * high);
    }
}

VEC_INLINE void open_streams(Streams *s, const int P, const LinearTile *t, int panel)
{
#pragma GCC unroll 4
    for (int j = 0; j < P; j++) {
        s->q[j] = t->q + (panel + j) * t->q_stride;
        s->ahead[j] = t->ahead[panel + j];
    }
}

/* The same with the four bytes at x, which is one instruction; worth it when they meet one panel only. */
VEC_INLINE __m512i dot_at(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const int8_t(*)[PANEL_QUAD])x));
    return sum;
}

VEC_INLINE void add_row(float *c, __m512 sum, float scale, bool add)
{
    __m512 before = add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    _mm512_storeu_ps(c, _mm512_fmadd_ps(sum, _mm512_set1_ps(scale), before));
}

/* M rows and P panels from the given one on, constants. One row of one panel takes two chains of sums, so that enough
   are under way. */
VEC_INLINE void block_i8(const int M, const int P, const LinearTile *t, int panel)
{
    enum { CHAINS = 2 };
    const int chains = M * P == 1 ? CHAINS : 1;
    __m512i high[ROWS_I8][LINEAR_BLOCK][CHAINS], low[ROWS_I8][LINEAR_BLOCK][CHAINS];
    const __m512i flip = _mm512_set1_epi8((char)0x80);
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
#pragma GCC unroll 2
            for (int i = 0; i < chains; i++)
                high[r][j][i] = low[r][j][i] = _mm512_setzero_si512();
    Streams s;
    open_streams(&s, P, t, panel);
    const int8_t *x = t->x;
    int64_t units = t->units / chains;
    for (int64_t u = 0, at = 0; u < units; u++)
#pragma GCC unroll 2
        for (int i = 0; i < chains; i++, at += PANEL_BYTES, x += PANEL_QUAD) {
            __m512i w[LINEAR_BLOCK];
#pragma GCC unroll 4
            for (int j = 0; j < P; j++)
                w[j] = _mm512_xor_si512(load_unit(&s, j, at), flip);
#pragma GCC unroll 8
            for (int r = 0; r < M; r++) {
                const int8_t *y = x + r * LINEAR_ROW_BYTES;
                if (P == 1) {
                    high[r][0][i] = dot_at(high[r][0][i], w[0], y);
                    low[r][0][i] = dot_at(low[r][0][i], w[0], y + LINEAR_SPAN);
                    continue;
                }
                __m512i hi = load_x(y), lo = load_x(y + LINEAR_SPAN);
#pragma GCC unroll 4
                for (int j = 0; j < P; j++) {
                    high[r][j][i] = dot(high[r][j][i], w[j], hi);
                    low[r][j][i] = dot(low[r][j][i], w[j], lo);
                }
            }
        }
    if (chains > 1 && t->units % chains) {
        __m512i w = _mm512_xor_si512(load_unit(&s, 0, units * chains * PANEL_BYTES), flip);
        high[0][0][0] = dot(high[0][0][0], w, load_x(x));
        low[0][0][0] = dot(low[0][0][0], w, load_x(x + LINEAR_SPAN));
    }
#pragma GCC unroll 8
    for (int r = 0; r < M; r++) {
        __m512i flipped = _mm512_set1_epi32(16 * t->span[r].minus8[0]);
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            __m512i h = high[r][j][0], l = low[r][j][0];
            if (chains > 1) {
                h = _mm512_add_epi32(h, high[r][j][1]);
                l = _mm512_add_epi32(l, low[r][j][1]);
            }
            add_row(t->c + (panel + j) * t->c_stride + r * PANEL_ROWS,
                    join(h, _mm512_add_epi32(l, flipped)), t->span[r].scale, t->add);
        }
    }
}

VEC_INLINE __m512 load_scale(const LinearTile *t, int panel, int64_t group)
{
    int64_t at = panel * t->scale_stride + group * PANEL_ROWS;
    if (t->scale_dtype == CVN_F32)
        return _mm512_loadu_ps((const float *)t->scale + at);
    return vf_load_bf16((const uint16_t *)t->scale + at);
}

/* M rows and P panels from the given one on, constants. One row has two sums: the low nibbles go into one, the high
   ones, as they lie, into another, which is 16 times too large in the end. Otherwise they are shifted down first. */
VEC_INLINE void block_i4(const int M, const int P, const LinearTile *t, int panel)
{
    const bool split = M == 1;
    const __m512i mask = _mm512_set1_epi8(0x0f), flip88 = _mm512_set1_epi8((char)0x88),
                  mask_high = _mm512_set1_epi8((char)0xf0);
    __m512 sum[ROWS_I4][LINEAR_BLOCK];
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            sum[r][j] = _mm512_setzero_ps();
    Streams s;
    open_streams(&s, P, t, panel);
    const int8_t *x = t->x;
    int64_t groups = t->units / t->group, at = 0;
    for (int64_t g = 0; g < groups; g++) {
        __m512i high[ROWS_I4][LINEAR_BLOCK][2], low[ROWS_I4][LINEAR_BLOCK][2];
#pragma GCC unroll 8
        for (int r = 0; r < M; r++)
#pragma GCC unroll 4
            for (int j = 0; j < P; j++) {
                low[r][j][0] = load_x((const int8_t *)&t->span[r].minus8[g]);
                high[r][j][0] = high[r][j][1] = low[r][j][1] = _mm512_setzero_si512();
            }
        for (int64_t u = 0; u < t->group; u++, at += PANEL_BYTES) {
            __m512i both[LINEAR_BLOCK];
#pragma GCC unroll 4
            for (int j = 0; j < P; j++)
                both[j] = _mm512_xor_si512(load_unit(&s, j, at), flip88);
#pragma GCC unroll 2
            for (int i = 0; i < 2; i++, x += PANEL_QUAD) {
                __m512i w[LINEAR_BLOCK];
                const int chain = split ? i : 0;
#pragma GCC unroll 4
                for (int j = 0; j < P; j++)
                    w[j] = !i      ? _mm512_and_si512(both[j], mask)
                           : split ? _mm512_and_si512(both[j], mask_high)
                                   : _mm512_and_si512(_mm512_srli_epi16(both[j], 4), mask);
#pragma GCC unroll 8
                for (int r = 0; r < M; r++) {
                    const int8_t *y = x + r * LINEAR_ROW_BYTES;
                    if (P == 1) {
                        high[r][0][chain] = dot_at(high[r][0][chain], w[0], y);
                        low[r][0][chain] = dot_at(low[r][0][chain], w[0], y + LINEAR_SPAN);
                        continue;
                    }
                    __m512i hi = load_x(y), lo = load_x(y + LINEAR_SPAN);
#pragma GCC unroll 4
                    for (int j = 0; j < P; j++) {
                        high[r][j][chain] = dot(high[r][j][chain], w[j], hi);
                        low[r][j][chain] = dot(low[r][j][chain], w[j], lo);
                    }
                }
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            __m512 scale = load_scale(t, panel + j, g);
#pragma GCC unroll 8
            for (int r = 0; r < M; r++) {
                __m512i h = high[r][j][0], l = low[r][j][0];
                if (split) {
                    h = _mm512_add_epi32(h, _mm512_srai_epi32(high[r][j][1], 4));
                    l = _mm512_add_epi32(l, _mm512_srai_epi32(low[r][j][1], 4));
                }
                sum[r][j] = _mm512_fmadd_ps(join(h, l), scale, sum[r][j]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            add_row(t->c + (panel + j) * t->c_stride + r * PANEL_ROWS, sum[r][j], t->span[r].scale,
                    t->add);
}

/* M rows, all panels, as many at a time as registers hold. */
VEC_INLINE void rows_i8(const int M, const LinearTile *t)
{
    const int P = M <= 2 ? 4 : M <= 6 ? 2 : 1;
    int panel = 0;
    for (; panel + P <= t->panels; panel += P)
        block_i8(M, P, t, panel);
    for (; panel < t->panels; panel++)
        block_i8(M, 1, t, panel);
}

VEC_INLINE void rows_i4(const int M, const LinearTile *t)
{
    const int P = M == 1 ? 4 : M <= 4 ? 2 : 1;
    int panel = 0;
    for (; panel + P <= t->panels; panel += P)
        block_i4(M, P, t, panel);
    for (; panel < t->panels; panel++)
        block_i4(M, 1, t, panel);
}

static void tile_i8(const LinearTile *t)
{
    CONSTANT_ROWS_8(t->rows, rows_i8, t);
}

static void tile_i4(const LinearTile *t)
{
    CONSTANT_ROWS_8(t->rows, rows_i4, t);
}

#define MEMBERS                                                                                    \
    .of_rows = &linear_rows_avx512_bf16, .fixed = true, .panels = 2, .few = 2, .even = true,       \
    .arrange = linear_avx512_arrange

const LinearIsa linear_i8_avx512_bf16 = {MEMBERS,          .weight = CVN_I8, .rows = MANY_I8,
                                         .alone = ROWS_I8, .ahead = 2048,    .tile = tile_i8};
const LinearIsa linear_i4_avx512_bf16 = {MEMBERS, .weight = CVN_I4, .rows = ROWS_I4, .ahead = 4096,
                                         .tile = tile_i4};
const LinearIsa linear_blocks_avx512_bf16 = {MEMBERS, .blocks = true, .rows = LINEAR_CHUNK,
                                             .ahead = 4096, .tile = linear_avx512_tile_blocks};
