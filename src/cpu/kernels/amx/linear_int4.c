/*
 * Products with 4-bit weights on AMX tiles of 8-bit numbers. A span of two panels is widened once, into 8 or 16 KiB each
 * that stay in L1, and then multiplied with all rows, 16 at a time:
 *
 *     tiles 0 1    sums of 16 rows with the high bytes, with the low bytes
 *           2 3    sums with the panel beside it
 *           4 5    x, high and low bytes of the rows, as arrange() of AVX-512 leaves them
 *           6 7    64 columns of each panel, widened
 *
 * A group has a scale of its own, so tiles are emptied after each: its integers are scaled and added in f32, in the
 * order of the groups. A group of 32 is half a tile, whose other half is zeros:
 *
 *     groups of 64 and more    [column / 64][16 units][16 rows][4]          a tile is 64 columns of one group
 *     groups of 32             [column / 32][16 units][16 rows][4]          units 0-7 or 8-15 are the group's
 *
 * Why not tiles of bf16, with weights multiplied by their scales: those round differently from the integers of
 * vpdpbusd that few rows take, and a row would change its bits with the size of its batch. The integers are the same
 * on both. In cycles, for 16 rows and 64 columns: vpdpbusd 256, two tiles of bf16 32, two of 8 bits 32 and about 50
 * more for the sums' way through memory (with groups of 32 twice both; of 128 the 50 only once for two). So these
 * tiles are three times as fast as vpdpbusd, and give away half of what tiles of bf16 would reach.
 */
#include "cpu/kernels/amx/linear_block.h"

enum {
    TILE_COLUMNS = TILE_ROWS * PANEL_QUAD, /* 64 */
    PAIR_UNITS = 2 * PANEL_QUAD            /* columns of a unit of 4-bit weights */
};

/* A span of a panel, widened. */
typedef struct Widened {
    int8_t tile[2 * LINEAR_SPAN / TILE_COLUMNS][TILE_ROWS][PANEL_BYTES];
} Widened;

/* Of each byte the low four bits are one unit's, the high four the next one's. */
static void widen_unit(const uint8_t *q, int8_t *low, int8_t *high)
{
    const __m512i four = _mm512_set1_epi8(15), sign = _mm512_set1_epi8(8);
    __m512i pair = _mm512_loadu_si512(q);
    __m512i first = _mm512_and_si512(pair, four);
    __m512i second = _mm512_and_si512(_mm512_srli_epi16(pair, 4), four);
    _mm512_storeu_si512(low, _mm512_sub_epi8(_mm512_xor_si512(first, sign), sign));
    _mm512_storeu_si512(high, _mm512_sub_epi8(_mm512_xor_si512(second, sign), sign));
}

static void widen(const LinearTile *t, int panel, Widened *w)
{
    bool half = t->group * PAIR_UNITS < TILE_COLUMNS;
    for (int64_t u = 0; u < t->units; u++) {
        int64_t unit = 2 * u; /* of 8 bits */
        int64_t tile = half ? u / t->group : unit / TILE_ROWS;
        int8_t *to = w->tile[tile][unit % TILE_ROWS];
        widen_unit(t->q + panel * t->q_stride + u * PANEL_BYTES, to, to + PANEL_BYTES);
        if (half) /* the same place in the other half */
            memset(w->tile[tile][(unit + TILE_ROWS / 2) % TILE_ROWS], 0, 2 * PANEL_BYTES);
    }
}

/* Of a group of a panel. */
static __m512 scales_of(const LinearTile *t, int panel, int64_t group)
{
    int64_t at = panel * t->scale_stride + group * PANEL_ROWS;
    if (t->scale_dtype == CVN_F32)
        return _mm512_loadu_ps((const float *)t->scale + at);
    const void *half = (const uint16_t *)t->scale + at;
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(half)), 16));
}

/* The integers of rows first to first + 15 with one group of one or two panels. */
static inline __attribute__((always_inline)) void group_of(const LinearTile *t, const Widened *w,
                                                           int first, int64_t g, FixedSums *sum)
{
    const bool second = t->panels == 2;
    int64_t columns = t->group * PAIR_UNITS;
    int64_t steps = columns < TILE_COLUMNS ? 1 : columns / TILE_COLUMNS;
    tiles_zero();
    for (int64_t s = g * steps; s < (g + 1) * steps; s++) {
        int64_t at = columns < TILE_COLUMNS ? s / 2 * TILE_COLUMNS : s * TILE_COLUMNS;
        const int8_t *x = (const int8_t *)t->x + first * LINEAR_ROW_BYTES + at;
        fixed_step(t, x, w[0].tile[s], second ? w[1].tile[s] : NULL,
                   first / TILE_ROWS * (LINEAR_SPAN / TILE_COLUMNS) + at / TILE_COLUMNS);
    }
    store_fixed(sum, second);
}

/* Adds the integers of a group to what the rows have of one panel, scaled. */
static inline __attribute__((always_inline)) void add_group(__m512 y[TILE_ROWS],
                                                            int32_t high[TILE_ROWS][16],
                                                            int32_t low[TILE_ROWS][16],
                                                            __m512 scale)
{
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++) {
        __m512i whole = _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high[r]), 8),
                                         _mm512_load_si512(low[r]));
        y[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(whole), scale, y[r]);
    }
}

static void add_rows(const LinearTile *t, int first, float *c, const __m512 y[TILE_ROWS])
{
#pragma GCC unroll 16
    for (int r = 0; r < TILE_ROWS; r++, c += PANEL_ROWS) {
        __m512 before = t->add ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
        _mm512_storeu_ps(c,
                         _mm512_fmadd_ps(y[r], _mm512_set1_ps(t->span[first + r].scale), before));
    }
}

/* Rows first to first + 15. Two groups take turns with the tiles' sums, so that one's integers are read while the
   other's are made. */
static void rows_of(const LinearTile *t, const Widened *w, int first)
{
    FixedSums sum[2] __attribute__((aligned(64)));
    __m512 y[2][TILE_ROWS];
    for (int r = 0; r < TILE_ROWS; r++)
        y[0][r] = y[1][r] = _mm512_setzero_ps();
    for (int64_t g = 0; g < t->units / t->group; g++) {
        FixedSums *s = &sum[g % 2];
        group_of(t, w, first, g, s);
        add_group(y[0], s->of[0], s->of[1], scales_of(t, 0, g));
        if (t->panels == 2)
            add_group(y[1], s->of[2], s->of[3], scales_of(t, 1, g));
    }
    float *c = t->c + first * PANEL_ROWS;
    add_rows(t, first, c, y[0]);
    if (t->panels == 2)
        add_rows(t, first, c + t->c_stride, y[1]);
}

void linear_amx_tile_i4(const LinearTile *t)
{
    Widened w[2] __attribute__((aligned(64)));
    int r = 0;
    for (int panel = 0; t->rows >= TILE_ROWS && panel < t->panels; panel++)
        widen(t, panel, &w[panel]);
    tile_fence();
    for (; t->rows - r >= TILE_ROWS; r += TILE_ROWS)
        rows_of(t, w, r);
    rest_of(&linear_i4_avx512_vnni, t, r, LINEAR_ROW_BYTES);
}
