/*
 * Products of weights in blocks (graph/blocks.h) with AVX-512 VNNI, in the manner of linear.c beside this: vpdpbusd takes codes
 * as they are, unsigned, four of each of 16 rows at a time, and the activations' sums take their offset off. Each kind has tiles
 * of its own, which know its form; codes are put together from their planes by a mask or a shift each:
 *
 *     low half of a byte     and 15                        high half     shift by 4, and 15
 *     two more bits          shift to their place, and or  one more bit  an add under a mask that is read as it lies
 *     a table                vpshufb
 *
 * A group's whole numbers become a float once, times its scale.
 */
#define VEC_BF16
#include "cpu/kernels/linear.h"
#include "cpu/kernels/vec.h"

#include <immintrin.h>

enum { ROWS = 8, MOST_PANELS = LINEAR_BLOCK };

/* Where the chunks of some panels are read, and what of them is asked for at the same time. */
typedef struct Streams {
    const uint8_t *q[MOST_PANELS], *ahead[MOST_PANELS];
} Streams;

VEC_INLINE __m512i load_line(const Streams *s, int j, int64_t at)
{
    __builtin_prefetch(s->ahead[j] + at, 0, 2);
    return _mm512_loadu_si512(s->q[j] + at);
}

VEC_INLINE __m512i load_x(const int8_t *x)
{
    int32_t quad;
    memcpy(&quad, x, sizeof quad);
    return _mm512_set1_epi32(quad);
}

/* sum + w (unsigned) . x (signed). Written out, because compilers copy the sum for the intrinsic. */
VEC_INLINE __m512i dot(__m512i sum, __m512i w, __m512i x)
{
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
    return sum;
}

VEC_INLINE __m512i dot_at(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const int8_t(*)[PANEL_QUAD])x));
    return sum;
}

/* Units 4 s to 4 s + 3 of a chunk: the codes of 16 columns, unsigned. */
VEC_INLINE void codes_of(const BlockForm f, const BlockChunk *c, const Streams *s, int j,
                         int64_t at, __m512i table, __m512i code[4])
{
    const __m512i four = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)128);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        if (f.base == 8) {
            code[i] = _mm512_xor_si512(load_line(s, j, (4 * at + i) * PANEL_BYTES), flip);
        } else if (f.base == 4 && i % 2 == 0) {
            code[i + 1] = load_line(s, j, (2 * at + i / 2) * PANEL_BYTES);
            code[i] = _mm512_and_si512(code[i + 1], four);
            code[i + 1] = _mm512_and_si512(_mm512_srli_epi16(code[i + 1], 4), four);
        }
    }
    if (f.two != NO_PLANE) {
        const __m512i mask = _mm512_set1_epi8((char)(3 << f.two));
        const __m512i two = load_line(s, j, c->two + at * PANEL_BYTES);
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const int up = f.two - 2 * i;
            __m512i bits = up > 0   ? _mm512_slli_epi16(two, up > 0 ? (unsigned)up : 0)
                           : up < 0 ? _mm512_srli_epi16(two, up < 0 ? (unsigned)-up : 0)
                                    : two;
            bits = _mm512_and_si512(bits, mask);
            code[i] = f.base ? _mm512_or_si512(code[i], bits) : bits;
        }
    }
    if (f.one != NO_PLANE) {
        const __m512i bit = _mm512_set1_epi8((char)(1 << f.one));
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            uint64_t one;
            memcpy(&one, s->q[j] + c->one + (4 * at + i) * (int64_t)sizeof one, sizeof one);
            code[i] = _mm512_mask_add_epi8(code[i], one, code[i], bit);
        }
    }
    if (f.table)
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            code[i] = _mm512_shuffle_epi8(table, code[i]);
}

VEC_INLINE __m512 load_f16(const uint8_t *at)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
}

/* Of group g; d: what whole numbers are times. */
VEC_INLINE __m512 scale_of(const BlockForm f, const uint8_t *at, int64_t g, __m512 d, bool minimum)
{
    if (f.scale == BLOCK_F16)
        return load_f16(at + g * PANEL_ROWS * 2);
    if (f.scale == BLOCK_BF16)
        return vf_load_bf16((const uint16_t *)(const void *)(at + g * PANEL_ROWS * 2));
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(at + g * PANEL_ROWS));
    __m512i whole =
        f.scale == BLOCK_WHOLE ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
    if (f.scale == BLOCK_NIBBLES)
        whole =
            minimum ? _mm512_srli_epi32(whole, 4) : _mm512_and_si512(whole, _mm512_set1_epi32(15));
    return _mm512_mul_ps(_mm512_cvtepi32_ps(whole), d);
}

/* 256 hi + lo, as floats. */
VEC_INLINE __m512 join(__m512i high, __m512i low)
{
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 8), low));
}

/* M rows from row r on and P panels from the given one on; constants, and the form too. */
VEC_INLINE void block(const BlockForm f, const int M, const int P, const LinearTile *t, int r0,
                      int panel)
{
    const BlockChunk *c = t->chunk;
    const int offset = f.table ? 128 : f.offset;
    const int64_t groups = c->groups, bytes = c->bytes;
    const LinearSpan *span = t->span + r0;
    __m512 sum[ROWS][MOST_PANELS];
    __m512i table = _mm512_setzero_si512();
    if (f.table)
        table = _mm512_xor_si512(
            _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f.table)),
            _mm512_set1_epi8((char)128));
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            sum[r][j] = _mm512_setzero_ps();
    Streams s;
#pragma GCC unroll 4
    for (int j = 0; j < P; j++) {
        s.q[j] = t->q + (panel + j) * t->q_stride;
        s.ahead[j] = t->ahead[panel + j];
    }
    const int8_t *x = t->x + r0 * LINEAR_ROW_BYTES;
    int64_t of_span = 0; /* groups before this one */
    for (int64_t i = 0; i < t->units; i++) {
        __m512 d[MOST_PANELS], m[MOST_PANELS];
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            d[j] = f.scale >= BLOCK_WHOLE ? load_f16(s.q[j] + c->d) : _mm512_setzero_ps();
            m[j] =
                f.scale >= BLOCK_WHOLE && f.minimum ? load_f16(s.q[j] + c->m) : _mm512_setzero_ps();
        }
        for (int64_t g = 0, at = 0; g < groups; g++, of_span++) {
            __m512i high[ROWS][MOST_PANELS], low[ROWS][MOST_PANELS];
#pragma GCC unroll 8
            for (int r = 0; r < M; r++) {
                __m512i first = _mm512_set1_epi32(span[r].minus8[of_span] / 8 * offset);
#pragma GCC unroll 4
                for (int j = 0; j < P; j++) {
                    low[r][j] = offset ? first : _mm512_setzero_si512();
                    high[r][j] = _mm512_setzero_si512();
                }
            }
            for (int sixteen = 0; sixteen < f.group / 16; sixteen++, at++) {
                __m512i w[MOST_PANELS][4];
#pragma GCC unroll 4
                for (int j = 0; j < P; j++)
                    codes_of(f, c, &s, j, at, table, w[j]);
#pragma GCC unroll 4
                for (int u = 0; u < 4; u++, x += PANEL_QUAD)
#pragma GCC unroll 8
                    for (int r = 0; r < M; r++) {
                        const int8_t *y = x + r * LINEAR_ROW_BYTES;
                        if (P == 1) {
                            high[r][0] = dot_at(high[r][0], w[0][u], y);
                            low[r][0] = dot_at(low[r][0], w[0][u], y + LINEAR_SPAN);
                            continue;
                        }
                        __m512i hi = load_x(y), lo = load_x(y + LINEAR_SPAN);
#pragma GCC unroll 4
                        for (int j = 0; j < P; j++) {
                            high[r][j] = dot(high[r][j], w[j][u], hi);
                            low[r][j] = dot(low[r][j], w[j][u], lo);
                        }
                    }
            }
#pragma GCC unroll 4
            for (int j = 0; j < P; j++) {
                __m512 scale = scale_of(f, s.q[j] + c->scale, g, d[j], false);
                __m512 minimum =
                    f.minimum
                        ? scale_of(f, s.q[j] + (f.scale == BLOCK_NIBBLES ? c->scale : c->minimum),
                                   g, m[j], true)
                        : scale;
#pragma GCC unroll 8
                for (int r = 0; r < M; r++) {
                    sum[r][j] = _mm512_fmadd_ps(join(high[r][j], low[r][j]), scale, sum[r][j]);
                    if (f.minimum)
                        sum[r][j] =
                            _mm512_fmadd_ps(_mm512_set1_ps((float)span[r].minus8[of_span] * 0.125f),
                                            minimum, sum[r][j]);
                }
            }
        }
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            for (int64_t line = c->one; line < bytes; line += PANEL_BYTES)
                __builtin_prefetch(s.ahead[j] + line, 0, 2);
            s.q[j] += bytes;
            s.ahead[j] += bytes;
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            float *to = t->c + (panel + j) * t->c_stride + (r0 + r) * PANEL_ROWS;
            __m512 before = t->add ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
            _mm512_storeu_ps(to, _mm512_fmadd_ps(sum[r][j], _mm512_set1_ps(span[r].scale), before));
        }
}

/* M rows, all panels, as many at a time as registers hold. */
VEC_INLINE void rows(const BlockForm f, const int M, const LinearTile *t, int r0)
{
    const int P = M == 1 ? 4 : M <= 4 ? 2 : 1;
    int panel = 0;
    for (; panel + P <= t->panels; panel += P)
        block(f, M, P, t, r0, panel);
    for (; P > 1 && panel < t->panels; panel++)
        block(f, M, 1, t, r0, panel);
}

/* Any number of rows, of 8, 4, 2 and 1: so few tiles are made that each kind can have its own. */
#define TILE(kind, name, elements, bytes)                                                          \
    static void tile_##name(const LinearTile *t)                                                   \
    {                                                                                              \
        const BlockForm f = BLOCK_FORM_##name;                                                     \
        int r = 0;                                                                                 \
        for (; t->rows - r >= 8; r += 8)                                                           \
            rows(f, 8, t, r);                                                                      \
        if (t->rows - r >= 4) {                                                                    \
            rows(f, 4, t, r);                                                                      \
            r += 4;                                                                                \
        }                                                                                          \
        if (t->rows - r >= 2) {                                                                    \
            rows(f, 2, t, r);                                                                      \
            r += 2;                                                                                \
        }                                                                                          \
        if (t->rows > r)                                                                           \
            rows(f, 1, t, r);                                                                      \
    }
CVN_BLOCKS(TILE)

void linear_avx512_tile_blocks(const LinearTile *t)
{
    static void (*const tiles[BLOCK_KINDS])(const LinearTile *) = {
#define X(kind, name, elements, bytes) [BLOCK_##kind] = tile_##name,
        CVN_BLOCKS(X)};
    tiles[t->blocks](t);
}
