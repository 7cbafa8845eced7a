/*
 * Products of weights in blocks (graph/blocks.h) with AVX-512 VNNI, in the manner of linear.c beside this: vpdpbusd takes codes
 * as they are, unsigned, four of each of 16 rows at a time, and the activations' sums take their offset off. Each kind has tiles
 * of its own, which know its form; codes are put together from their planes by a mask or a shift each:
 *
 *     low half of a byte     and 15                        high half     shift by 4, and 15
 *     two more bits          shift to their place, and or  one more bit  an add under a mask that is read as it lies
 *     a table                vpshufb
 *
 * Of more than four rows (where no planes come together, eight) the first four put a span of two panels together, in L1, on
 * their way: other rows find codes, scales and minima there, and all kinds whose groups are as long are multiplied alike.
 *
 * A group's whole numbers become a float once, times its scale. Of rows in 8 bits (`eight`) there is no low byte of x.
 */
#define VEC_BF16
#include "cpu/kernels/avx512/linear_vnni.h"

enum { ROWS = 8, MOST_PANELS = LINEAR_BLOCK, PAIR = 2, FIRST = 4 /* rows */, READY = -1 };

/* Units 4 s to 4 s + 3 of a chunk: the codes of 16 columns, unsigned. */
VEC_INLINE void codes_of(const BlockForm f, const BlockChunk *c, const Streams *s, int j,
                         int64_t at, __m512i table, __m512i code[4])
{
    const __m512i four = _mm512_set1_epi8(15), flip = _mm512_set1_epi8((char)128);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        if (f.base == 8) {
            code[i] = _mm512_xor_si512(load_unit(s, j, (4 * at + i) * PANEL_BYTES), flip);
        } else if (f.base == 4 && i % 2 == 0) {
            code[i + 1] = load_unit(s, j, (2 * at + i / 2) * PANEL_BYTES);
            code[i] = _mm512_and_si512(code[i + 1], four);
            code[i + 1] = _mm512_and_si512(_mm512_srli_epi16(code[i + 1], 4), four);
        }
    }
    if (f.two != NO_PLANE) {
        const __m512i mask = _mm512_set1_epi8((char)(3 << f.two));
        const __m512i two = load_unit(s, j, c->two + at * PANEL_BYTES);
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

VEC_INLINE __m512 minimum_of(const bool eight, const BlockForm f, const BlockChunk *c,
                             const uint8_t *chunk, int64_t g, __m512 m)
{
    const __m512 minimum =
        scale_of(f, chunk + (f.scale == BLOCK_NIBBLES ? c->scale : c->minimum), g, m, true);
    return eight ? minimum : _mm512_mul_ps(minimum, _mm512_set1_ps(0.125f));
}

/* What codes are more than numbers: a power of two, or nothing where there are minima. */
VEC_INLINE int offset_of(const BlockForm f)
{
    return f.table ? 128 : f.offset;
}

/* The table with that added. */
VEC_INLINE __m512i table_of(const BlockForm f)
{
    if (!f.table)
        return _mm512_setzero_si512();
    return _mm512_xor_si512(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)f.table)),
        _mm512_set1_epi8((char)128));
}

/* What 1 << offset takes off the sum of a group. */
VEC_INLINE __m512i first_sum(const bool eight, const unsigned offset, const LinearSpan *span,
                             int64_t g)
{
    const int32_t minus = eight ? span->minus[g] : span->minus8[g] / 8;
    return _mm512_set1_epi32((int32_t)((uint32_t)minus << offset));
}

/* sum + what a group adds; minimum: as its sum of x is kept, 8 times, or eight as it is. */
VEC_INLINE __m512 add_group(const bool eight, const bool minima, const LinearSpan *span, int64_t g,
                            __m512i high, __m512i low, __m512 scale, __m512 minimum, __m512 sum)
{
    sum = _mm512_fmadd_ps(eight ? _mm512_cvtepi32_ps(low) : join(high, low), scale, sum);
    if (!minima)
        return sum;
    const __m512 all =
        _mm512_cvtepi32_ps(_mm512_set1_epi32(eight ? span->minus[g] : span->minus8[g]));
    return _mm512_fmadd_ps(all, minimum, sum);
}

VEC_INLINE void clear_sums(const int M, const int P, __m512 sum[ROWS][MOST_PANELS])
{
#pragma GCC unroll 8
    for (int r = 0; r < M; r++)
#pragma GCC unroll 4
        for (int j = 0; j < P; j++)
            sum[r][j] = _mm512_setzero_ps();
}

/* Adds a span's sums to c; or those of chunk i of rows in 8 bits, which begin again then. */
VEC_INLINE void add_sums(const LinearTile *t, const int M, const int P, int r0, int panel,
                         __m512 sum[ROWS][MOST_PANELS], int64_t i)
{
#pragma GCC unroll 8
    for (int r = 0; r < M; r++) {
        const LinearSpan *span = &t->span[r0 + r];
        const __m512 scale = _mm512_set1_ps(i < 0 ? span->scale : span->step[i]);
#pragma GCC unroll 4
        for (int j = 0; j < P; j++) {
            float *to = t->c + (panel + j) * t->c_stride + (r0 + r) * PANEL_ROWS;
            __m512 before = t->add || i > 0 ? _mm512_loadu_ps(to) : _mm512_setzero_ps();
            _mm512_storeu_ps(to, _mm512_fmadd_ps(sum[r][j], scale, before));
            sum[r][j] = _mm512_setzero_ps();
        }
    }
}

/* M rows, if any, from row r0 on and P panels from the given one on; constants, and the form too. What k keeps is put there,
   or lies there already if the form is READY. */
VEC_INLINE void block(const bool eight, const BlockForm f, const bool kept, const int M,
                      const int P, const LinearTile *t, LinearCodes *k, int r0, int panel)
{
    const bool ready = f.base == READY, keep = kept && !ready;
    const int own = ready ? 0 : P;
    const int row = eight ? LINEAR_SPAN : LINEAR_ROW_BYTES;
    const BlockChunk *c = t->chunk;
    const int64_t groups = c->groups, bytes = c->bytes;
    const int number = ready ? k->offset : offset_of(f);
    const unsigned offset = f.minimum ? 0 : (unsigned)__builtin_ctz((unsigned)number);
    const LinearSpan *span = t->span + r0;
    __m512 sum[ROWS][MOST_PANELS];
    const __m512i table = table_of(f);
    clear_sums(M, P, sum);
    Streams s;
#pragma GCC unroll 4
    for (int j = 0; j < own; j++) {
        s.q[j] = t->q + (panel + j) * t->q_stride;
        s.ahead[j] = r0 ? s.q[j] : t->ahead[panel + j];
        if (keep)
            k[j].offset = number;
    }
    const int8_t *x = (const int8_t *)t->x + r0 * row;
    int64_t of_span = 0, put = 0; /* groups before this one; bytes of codes */
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
                __m512i first = f.minimum ? _mm512_setzero_si512()
                                          : first_sum(eight, offset, &span[r], of_span);
#pragma GCC unroll 4
                for (int j = 0; j < P; j++) {
                    low[r][j] = first;
                    high[r][j] = _mm512_setzero_si512();
                }
            }
            for (int sixteen = 0; sixteen < f.group / 16; sixteen++, at++) {
                __m512i w[MOST_PANELS][4];
#pragma GCC unroll 4
                for (int j = 0; j < own; j++) {
                    codes_of(f, c, &s, j, at, table, w[j]);
                    for (int u = 0; keep && u < 4; u++)
                        _mm512_store_si512(k[j].code + put + u * PANEL_BYTES, w[j][u]);
                }
#pragma GCC unroll 4
                for (int u = 0; u < 4; u++, x += PANEL_QUAD, put += PANEL_BYTES) {
#pragma GCC unroll 4
                    for (int j = own; j < P; j++)
                        w[j][u] = _mm512_load_si512(k[j].code + put);
#pragma GCC unroll 8
                    for (int r = 0; r < M; r++) {
                        const int8_t *y = x + r * row;
                        __m512i one = load_x(y), two = eight ? one : load_x(y + LINEAR_SPAN);
#pragma GCC unroll 4
                        for (int j = 0; j < P; j++) {
                            if (!eight)
                                high[r][j] = dot(high[r][j], w[j][u], one);
                            low[r][j] = dot(low[r][j], w[j][u], two);
                        }
                    }
                }
            }
#pragma GCC unroll 4
            for (int j = 0; j < P; j++) {
                const int64_t line = of_span * PANEL_ROWS;
                __m512 scale, minimum = _mm512_setzero_ps();
                if (ready) {
                    scale = _mm512_load_ps(k[j].scale + line);
                    minimum = _mm512_load_ps(k[j].minimum + line);
                } else {
                    scale = scale_of(f, s.q[j] + c->scale, g, d[j], false);
                    if (f.minimum)
                        minimum = minimum_of(eight, f, c, s.q[j], g, m[j]);
                }
                if (keep) {
                    _mm512_store_ps(k[j].scale + line, scale);
                    _mm512_store_ps(k[j].minimum + line, minimum);
                }
#pragma GCC unroll 8
                for (int r = 0; r < M; r++)
                    sum[r][j] = add_group(eight, f.minimum, &span[r], of_span, high[r][j],
                                          low[r][j], scale, minimum, sum[r][j]);
            }
        }
        if (eight)
            add_sums(t, M, P, r0, panel, sum, i);
#pragma GCC unroll 4
        for (int j = 0; j < own; j++) {
            for (int64_t line = c->one; line < bytes; line += PANEL_BYTES)
                __builtin_prefetch(s.ahead[j] + line, 0, 2);
            s.q[j] += bytes;
            s.ahead[j] += bytes;
        }
    }
    if (!eight)
        add_sums(t, M, P, r0, panel, sum, -1);
}

/* M rows, panels from the given one on, as many at a time as registers hold. */
VEC_INLINE void rows(const bool eight, const BlockForm f, const int M, const LinearTile *t, int r0,
                     int panel)
{
    const int P = M == 1 ? 4 : PAIR;
    for (; panel + P <= t->panels; panel += P)
        block(eight, f, false, M, P, t, NULL, r0, panel);
    for (; panel < t->panels; panel++)
        block(eight, f, false, M, 1, t, NULL, r0, panel);
}

/* The rows after the first of two panels that k keeps, as few at a time as need no more registers than there are. */
VEC_INLINE void other_rows(const bool eight, const BlockForm f, const LinearTile *t, LinearCodes *k,
                           int panel)
{
    int r = FIRST;
    for (; eight && t->rows - r >= 8; r += 8)
        block(eight, f, true, 8, PAIR, t, k, r, panel);
    for (; t->rows - r >= 4; r += 4)
        block(eight, f, true, 4, PAIR, t, k, r, panel);
    for (; t->rows - r >= 2; r += 2)
        block(eight, f, true, 2, PAIR, t, k, r, panel);
    if (t->rows > r)
        block(eight, f, true, 1, PAIR, t, k, r, panel);
}

typedef void Others(const LinearTile *t, LinearCodes *k, int panel);

#define OTHERS(name, ...)                                                                          \
    static void name(const LinearTile *t, LinearCodes *k, int panel)                               \
    {                                                                                              \
        const BlockForm f = {.base = READY, __VA_ARGS__};                                          \
        if (t->eight)                                                                              \
            other_rows(true, f, t, k, panel);                                                      \
        else                                                                                       \
            other_rows(false, f, t, k, panel);                                                     \
    }
OTHERS(of_16, .group = 16)
OTHERS(of_16_minima, .group = 16, .minimum = true)
OTHERS(of_32, .group = 32)
OTHERS(of_32_minima, .group = 32, .minimum = true)
OTHERS(of_256, .group = 256)

/* Any number of rows. */
VEC_INLINE void all_rows(const bool eight, const BlockForm f, const LinearTile *t)
{
    Others *const others = f.group == 256  ? of_256
                           : f.group == 16 ? (f.minimum ? of_16_minima : of_16)
                           : f.minimum     ? of_32_minima
                                           : of_32;
    uint8_t code[PAIR][LINEAR_SPAN * PANEL_ROWS] __attribute__((aligned(64)));
    LinearCodes k[PAIR];
    const int again = f.two == NO_PLANE && f.one == NO_PLANE ? 2 * FIRST : FIRST;
    int panel = 0, r = 0;
    for (int j = 0; j < PAIR; j++)
        k[j].code = code[j];
    for (; t->rows > again && panel + PAIR <= t->panels; panel += PAIR) {
        block(eight, f, true, FIRST, PAIR, t, k, 0, panel);
        others(t, k, panel);
    }
    for (; t->rows - r >= FIRST; r += FIRST)
        rows(eight, f, FIRST, t, r, panel);
    if (t->rows - r >= 2) {
        rows(eight, f, 2, t, r, panel);
        r += 2;
    }
    if (t->rows > r)
        rows(eight, f, 1, t, r, panel);
}

#define TILE(kind, name, elements, bytes)                                                          \
    static void tile_##name(const LinearTile *t)                                                   \
    {                                                                                              \
        const BlockForm f = BLOCK_FORM_##name;                                                     \
        if (t->eight)                                                                              \
            all_rows(true, f, t);                                                                  \
        else                                                                                       \
            all_rows(false, f, t);                                                                 \
    }                                                                                              \
    static void codes_##name(const LinearTile *t, int panel, LinearCodes *out)                     \
    {                                                                                              \
        const BlockForm f = BLOCK_FORM_##name;                                                     \
        if (t->eight)                                                                              \
            block(true, f, true, 0, 1, t, out, 0, panel);                                          \
        else                                                                                       \
            block(false, f, true, 0, 1, t, out, 0, panel);                                         \
    }
CVN_BLOCKS(TILE)

void linear_avx512_tile_blocks(const LinearTile *t)
{
    static void (*const tiles[BLOCK_KINDS])(const LinearTile *) = {
#define X(kind, name, elements, bytes) [BLOCK_##kind] = tile_##name,
        CVN_BLOCKS(X)};
    tiles[t->blocks](t);
}

void linear_avx512_codes(const LinearTile *t, int panel, LinearCodes *out)
{
    static void (*const codes[BLOCK_KINDS])(const LinearTile *, int, LinearCodes *) = {
#undef X
#define X(kind, name, elements, bytes) [BLOCK_##kind] = codes_##name,
        CVN_BLOCKS(X)};
    codes[t->blocks](t, panel, out);
}
