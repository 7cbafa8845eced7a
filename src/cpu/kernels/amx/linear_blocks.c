/*
 * Products with weights in blocks (graph/blocks.h) on AMX tiles of bf16, with the bits of AVX-512 VNNI, whose integers these
 * floats are. The fixed point of x in bf16 is X times a power of two and so a number of bf16 itself (linear.h); codes
 * of up to 6 bits are, too; and the sum of a group is exact in f32, in whatever order tiles add:
 *
 *     groups of 32     16 * 32512 * 32 < 2^24         5 bits: -16 … 15
 *     groups of 16     32 * 32512 * 16 < 2^24         6 bits: -32 … 31
 *     x in 8 bits      far less
 *
 * Codes of 5 bits that have minima are 0 … 31; what is taken off them is added again, 16 times the sum of x, which rounds as
 * the integer does. Numbers of 8 bits are two of 4, 16 high + low, multiplied apart: their join rounds once.
 *
 * A span of two panels (of one, where numbers are halved) is widened once and stays in L1, and is then multiplied with all
 * rows, 16 at a time. A tile is the sums of one group, which go through memory and are scaled and added in the order of the
 * groups, four tiles at a time: as long again as their products take. As quads of columns lie, their even and odd bytes become
 * pairs by one vpermw each, so that rows of x have columns 0 2 1 3 of each quad.
 *
 * Integers of 8 bits (linear_int4.c) would take two tiles, of high and of low bytes of x, and fill half of each where groups
 * are of 32. So x in 8 bits is no faster here than in 16.
 */
#include "cpu/kernels/linear_tile.h"

#include "cpu/kernels/amx/tiles.h"

#include <immintrin.h>

enum {
    TILE_COLUMNS = 32,
    SPAN_TILES = LINEAR_SPAN / TILE_COLUMNS,
    GROUPS = LINEAR_SPAN / BLOCK_LEAST_GROUP,
    HALVED = 16, /* high halves of numbers are times this */
    LIFT = 16    /* what is taken off codes of 5 bits that have minima */
};

/* For groups of half a tile. */
static const TileConfig half_config __attribute__((aligned(64))) = {
    .palette = 1,
    .row_bytes = {64, 64, 64, 64, 32, 32, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 8, 8},
};

/* What the loops of a kind depend on. */
typedef struct TileForm {
    int group;
    bool minima, lifted, halved, six; /* six: bits, else up to 5 */
} TileForm;

/* Codes of a span as an operand: pairs of 16 rows. */
typedef struct Operand {
    char pair[LINEAR_SPAN / 2][PANEL_BYTES];
} Operand;

/* Some panels: two, or the high and the low halves of one. */
typedef struct Span {
    char sum[4][TILE_BYTES]; /* as multiply() leaves them */
    Operand w[2];
    LinearCodes codes[2];
    float all[TILE_ROWS][GROUPS]; /* of 16 rows, -8 times the sums of x; eight: minus the sums */
} Span;

static __m512i as_bf16(__m512i low, __m512i high)
{
    __m256i a =
        _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(low)), 16));
    __m256i b =
        _mm512_cvtepi32_epi16(_mm512_srli_epi32(_mm512_castps_si512(_mm512_cvtepi32_ps(high)), 16));
    return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

void linear_amx_arrange_blocks(bool eight, const int8_t *x, int8_t *to)
{
    enum { QUAD_0213 = 0xd8 };
    for (int i = 0; i < SPAN_TILES; i++, to += TILE_BYTES) {
        __m512i whole[2];
        for (int j = 0; j < 2; j++) {
            const int8_t *at = x + i * TILE_COLUMNS + j * 16;
            whole[j] = _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)at));
            if (!eight)
                whole[j] = _mm512_add_epi32(
                    _mm512_slli_epi32(whole[j], 8),
                    _mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(at + LINEAR_SPAN))));
        }
        __m512i words = _mm512_shufflelo_epi16(as_bf16(whole[0], whole[1]), QUAD_0213);
        _mm512_storeu_si512(to, _mm512_shufflehi_epi16(words, QUAD_0213));
    }
}

/* Of 32 codes from the given one on: the numbers ((code + add) & mask) - less. */
static __m512i numbers_of(int code, int add, int mask, int less)
{
    const __m512i one = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512i number[2];
    for (int i = 0; i < 2; i++) {
        number[i] = _mm512_add_epi32(one, _mm512_set1_epi32(code + 16 * i + add));
        number[i] = _mm512_and_si512(number[i], _mm512_set1_epi32(mask));
        number[i] = _mm512_sub_epi32(number[i], _mm512_set1_epi32(less));
    }
    return as_bf16(number[0], number[1]);
}

/* A table's numbers at the low bits of each word. */
static inline __m512i look_up(const bool six, const __m512i *table, __m512i words)
{
    return six ? _mm512_permutex2var_epi16(table[0], words, table[1])
               : _mm512_permutexvar_epi16(words, table[0]);
}

static inline __attribute__((always_inline)) void spread(const bool six, const unsigned down,
                                                         const __m512i *table, int64_t units,
                                                         const uint8_t *code, Operand *out)
{
    char *to = out->pair[0];
    for (int64_t u = 0; u < units; u++, code += PANEL_BYTES, to += 2 * PANEL_BYTES) {
        __m512i quads = _mm512_loadu_si512(code);
        _mm512_storeu_si512(to, look_up(six, table, _mm512_srli_epi16(quads, down)));
        _mm512_storeu_si512(to + PANEL_BYTES,
                            look_up(six, table, _mm512_srli_epi16(quads, down + 8)));
    }
}

/* Panel `panel`, as the first or second of the span. */
static inline __attribute__((always_inline)) void widen(const TileForm f, const LinearTile *t,
                                                        int panel, int j, Span *s)
{
    enum { HALF_5 = 16, HALF_6 = 32, FOUR = 15 };
    LinearCodes *codes = &s->codes[j];
    const int64_t units = t->units * t->chunk->columns / PANEL_QUAD;
    uint8_t code[LINEAR_SPAN * PANEL_ROWS] __attribute__((aligned(64)));
    codes->code = code;
    linear_avx512_codes(t, panel, codes);
    if (f.halved) {
        const __m512i high = numbers_of(0, 0, FOUR, HALVED / 2), low = numbers_of(0, 0, FOUR, 0);
        spread(false, 4, &high, units, code, &s->w[0]);
        spread(false, 0, &low, units, code, &s->w[1]);
        return;
    }
    const int half = f.six ? HALF_6 : HALF_5, offset = f.lifted ? LIFT : codes->offset;
    const __m512i table[2] = {numbers_of(0, half - offset, 2 * half - 1, half),
                              numbers_of(32, half - offset, 2 * half - 1, half)};
    spread(f.six, 0, table, units, code, &s->w[j]);
}

/* The product of a group in tile `sums`, from zero; x and codes come by two others. */
#define MULTIPLY(sums, of_x, of_w, a, w)                                                           \
    do {                                                                                           \
        tile_zero(sums);                                                                           \
        for (int k = 0; k < tiles; k++) {                                                          \
            tile_load(of_x, (a) + k * TILE_BYTES, TILE_ROW_BYTES);                                 \
            tile_load(of_w, (w) + k * TILE_BYTES, TILE_ROW_BYTES);                                 \
            tile_bf16(sums, of_x, of_w);                                                           \
        }                                                                                          \
    } while (0)

/* Four tiles: the products of four groups, of both halves of two, or of one long one. What lies behind a span's last group is
   multiplied, too, and not added. */
static inline __attribute__((always_inline)) void multiply(const TileForm f, const char *x,
                                                           const char *w, char *sum)
{
    const int tiles = f.group > TILE_COLUMNS ? f.group / TILE_COLUMNS : 1;
    const int right = f.group < TILE_COLUMNS ? TILE_ROW_BYTES / 2 : TILE_BYTES;
    const int below = f.group < TILE_COLUMNS ? TILE_BYTES / 2 : TILE_BYTES;
    if (f.halved) {
        MULTIPLY(0, 4, 6, x, w);
        MULTIPLY(1, 4, 7, x, w + sizeof(Operand));
        MULTIPLY(2, 5, 6, x + right, w + below);
        MULTIPLY(3, 5, 7, x + right, w + sizeof(Operand) + below);
    } else {
        MULTIPLY(0, 4, 6, x, w);
        if (tiles == 1) {
            MULTIPLY(1, 5, 7, x + right, w + below);
            MULTIPLY(2, 4, 6, x + (f.group < TILE_COLUMNS ? 1 : 2) * TILE_BYTES, w + 2 * below);
            MULTIPLY(3, 5, 7, x + (f.group < TILE_COLUMNS ? 1 : 2) * TILE_BYTES + right,
                     w + 3 * below);
        }
    }
    tile_store(0, sum, TILE_ROW_BYTES);
    tile_store(1, sum + TILE_BYTES, TILE_ROW_BYTES);
    tile_store(2, sum + 2 * TILE_BYTES, TILE_ROW_BYTES);
    tile_store(3, sum + 3 * TILE_BYTES, TILE_ROW_BYTES);
    tile_fence();
}

/* Adds a group's sums to those of 16 rows; `all` of the first row, of the group. */
static inline __attribute__((always_inline)) void add_group(const TileForm f,
                                                            const LinearCodes *codes, int64_t g,
                                                            const char *sum, const float *all,
                                                            float lift, __m512 y[TILE_ROWS])
{
    const __m512 scale = _mm512_loadu_ps(codes->scale + g * PANEL_ROWS);
    const __m512 minimum = f.minima ? _mm512_loadu_ps(codes->minimum + g * PANEL_ROWS) : scale;
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++) {
        __m512 one = _mm512_load_ps(sum + r * TILE_ROW_BYTES);
        if (f.halved)
            one = _mm512_fmadd_ps(one, _mm512_set1_ps(HALVED),
                                  _mm512_load_ps(sum + TILE_BYTES + r * TILE_ROW_BYTES));
        if (f.lifted)
            one = _mm512_fmadd_ps(_mm512_set1_ps(all[r * GROUPS]), _mm512_set1_ps(lift), one);
        y[r] = _mm512_fmadd_ps(one, scale, y[r]);
        if (f.minima)
            y[r] = _mm512_fmadd_ps(_mm512_set1_ps(all[r * GROUPS]), minimum, y[r]);
    }
}

/* To c what it is, or else 0, and the rows' sums by their scales, of which the first is given. */
static inline __attribute__((always_inline)) void add_rows(int rows, bool add, const float *scale,
                                                           const __m512 y[TILE_ROWS], float *c)
{
    const __mmask16 before = add ? 0xffff : 0;
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++, c += PANEL_ROWS) {
        const __mmask16 is = r < rows ? 0xffff : 0;
        const float one = *(const float *)((const char *)scale + r * sizeof(LinearSpan));
        __m512 sum = _mm512_maskz_loadu_ps(before & is, c);
        _mm512_mask_storeu_ps(c, is, _mm512_fmadd_ps(y[r], _mm512_set1_ps(one), sum));
    }
}

/* Rows from r0 on, up to 16, with panel `panel`, which is the j-th of the span. */
static inline __attribute__((always_inline)) void rows_of(const TileForm f, const LinearTile *t,
                                                          Span *s, int r0, int panel, int j)
{
    const int together = f.group > TILE_COLUMNS ? 1 : f.halved ? 2 : 4;
    const int64_t groups = t->units * t->chunk->groups;
    const int64_t part = t->eight ? t->chunk->groups : groups; /* with one scale of x */
    const LinearBeside *beside = j || f.halved ? NULL : t->beside;
    const float lift = LIFT * (t->eight ? -1 : -0.125F);
    const char *x = (const char *)t->x + r0 * LINEAR_ROW_BYTES;
    for (int64_t g0 = 0, i = 0; g0 < groups; g0 += part, i++) {
        __m512 y[TILE_ROWS];
#pragma GCC unroll 16
        for (int r = 0; r < TILE_ROWS; r++)
            y[r] = _mm512_setzero_ps();
        for (int64_t g = g0; g < g0 + part; g += together) {
            const int64_t at = g * f.group; /* the first column */
            multiply(f, x + at / TILE_COLUMNS * TILE_BYTES + at % TILE_COLUMNS * 2,
                     s->w[j].pair[at / 2], s->sum[0]);
            if (beside) {
                const int64_t step = (r0 * (LINEAR_SPAN / 64) / TILE_ROWS) + at / 64;
                linear_ask(beside, step);
                linear_ask_rows(beside, step);
            }
#pragma GCC unroll 4
            for (int k = 0; k < together; k++)
                if (g + k < g0 + part)
                    add_group(f, &s->codes[j], g + k, s->sum[f.halved ? 2 * k : k],
                              &s->all[0][g + k], lift, y);
            tile_fence();
        }
        const float *scale = t->eight ? &t->span[r0].step[i] : &t->span[r0].scale;
        add_rows(t->rows - r0, t->add || i, scale, y, t->c + panel * t->c_stride + r0 * PANEL_ROWS);
    }
}

/* The sums of x of rows from r0 on; of rows that there are not whatever lies there. */
static void sums_of_x(const LinearTile *t, int r0, Span *s)
{
    for (int r = 0; r < TILE_ROWS; r++) {
        const LinearSpan *span = &t->span[r0 + r];
        const int32_t *all = t->eight ? span->minus : span->minus8;
        for (int g = 0; g < GROUPS; g += 16)
            _mm512_storeu_ps(&s->all[r][g], _mm512_cvtepi32_ps(_mm512_loadu_si512(all + g)));
    }
}

static inline __attribute__((always_inline)) void panels_of(const TileForm f, const LinearTile *t)
{
    Span s __attribute__((aligned(4096)));
    const int together = f.halved ? 1 : 2;
    if (f.group < TILE_COLUMNS)
        _tile_loadconfig(&half_config);
    for (int panel = 0; panel < t->panels; panel += together) {
        const int n = t->panels - panel < together ? 1 : together;
        for (int j = 0; j < n; j++)
            widen(f, t, panel + j, j, &s);
        tile_fence();
        for (int r = 0; r < t->rows; r += TILE_ROWS) {
            if (f.minima)
                sums_of_x(t, r, &s);
            for (int j = 0; j < n; j++)
                rows_of(f, t, &s, r, panel + j, j);
        }
    }
    if (f.group < TILE_COLUMNS)
        tile_enter();
}

#define FORM(name, ...)                                                                            \
    static void name(const LinearTile *t)                                                          \
    {                                                                                              \
        panels_of((TileForm){__VA_ARGS__}, t);                                                     \
    }
FORM(of_16, .group = 16)
FORM(of_16_six, .group = 16, .six = true)
FORM(of_16_minima, .group = 16, .minima = true)
FORM(of_32, .group = 32)
FORM(of_32_minima, .group = 32, .minima = true)
FORM(of_32_lifted, .group = 32, .minima = true, .lifted = true)
FORM(of_32_halved, .group = 32, .halved = true)
FORM(of_256, .group = 256)

void linear_amx_tile_blocks(const LinearTile *t)
{
    static void (*const tiles[BLOCK_KINDS])(const LinearTile *) = {
        [BLOCK_Q4_0] = of_32,        [BLOCK_Q4_1] = of_32_minima,   [BLOCK_Q5_0] = of_32,
        [BLOCK_Q5_1] = of_32_lifted, [BLOCK_Q8_0] = of_32_halved,   [BLOCK_Q2_K] = of_16_minima,
        [BLOCK_Q3_K] = of_16,        [BLOCK_Q4_K] = of_32_minima,   [BLOCK_Q5_K] = of_32_lifted,
        [BLOCK_Q6_K] = of_16_six,    [BLOCK_IQ4_NL] = of_32_halved, [BLOCK_IQ4_XS] = of_32_halved,
        [BLOCK_TQ1_0] = of_256,      [BLOCK_TQ2_0] = of_256,        [BLOCK_MXFP4] = of_32,
    };
    tiles[t->blocks](t);
}
