/*
 * Tiles of weights in floats of 8 bits (graph/blocks.h), written once for each set of vectors that multiplies weights in bf16. A
 * float of 8 bits is a number of bf16, so that a group of 128 columns of a few panels is widened into L1 and multiplied there by
 * the set's own tiles for bf16 (linear_direct_impl.h); the group's sums then meet their scales:
 *
 *     for groups of 128 columns
 *       for panels                   128 columns x 16 rows of codes (2 KiB) -> bf16 (4 KiB)
 *       for tiles of rows            bf16 tile: sums of the group;  c = c + scale * sums
 *
 * A row's sums have one order, which those of bf16 have in a group, and the groups follow each other.
 *
 * A code without its sign is shifted to where bf16 has exponent and fraction, and the difference of the biases is added; those that
 * have no exponent, up to 7 / 8 of the least binade, come from a table by one shuffle of bytes, where there is one. The low bytes of
 * bf16 and the high ones are made apart and put in turn, which is why codes lie as they do (graph/blocks.h). Codes that are no finite
 * number have a scale that is NaN (block_pack).
 */
#include "base/float8.h"
#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"
#include "cpu/kernels/vec_codes.h"

enum {
    GROUP = 128,
    QUADS = GROUP / PANEL_QUAD,
    UNITS = GROUP / 2, /* of bf16 */
    ROWS = 16          /* of a tile of bf16 at most */
};

/* Some panels of a group. */
typedef struct Widened {
    uint8_t unit[LINEAR_BLOCK][UNITS][PANEL_BYTES] __attribute__((aligned(64)));
    float sum[LINEAR_BLOCK][ROWS][PANEL_ROWS];
} Widened;

/* The bytes of a vector by turns with those of another, of the first halves of each 16 bytes and of the second. */
#if defined(__AVX512F__)
#define IN_TURN(half, a, b) (vb) _mm512_unpack##half##_epi8((__m512i)(a), (__m512i)(b))
#elif defined(__AVX2__)
#define IN_TURN(half, a, b) (vb) _mm256_unpack##half##_epi8((__m256i)(a), (__m256i)(b))
#elif defined(__aarch64__)
#define zip_lo vzip1q_u8
#define zip_hi vzip2q_u8
#define IN_TURN(half, a, b) (vb) zip_##half((uint8x16_t)(a), (uint8x16_t)(b))
#endif

#if defined(IN_TURN)
/* table[code] where a code has no bit of `exponent`, else as it was. */
VEC_INLINE vb look_up_below(vb otherwise, uint8_t exponent, vb table, vb code)
{
#if defined(__AVX512F__)
    const __mmask64 below = _mm512_testn_epi8_mask((__m512i)code, _mm512_set1_epi8((char)exponent));
    return (vb)_mm512_mask_shuffle_epi8((__m512i)otherwise, below, (__m512i)table, (__m512i)code);
#else
    const vb below = (vb)((code & exponent) == 0);
    return (below & vb_lookup(table, code)) | (~below & otherwise);
#endif
}

/* Four columns of some rows as two units of bf16, by their low and their high bytes. */
VEC_INLINE void widen_quad(const int fraction, vb code, void *first, void *second)
{
    /* The same of codes that have no exponent. */
    static const uint8_t lows[2][16] = {{0, 0x80, 0, 0x40},
                                        {0, 0, 0x80, 0xc0, 0, 0x20, 0x40, 0x60}};
    static const uint8_t highs[2][16] = {{0, 0x37, 0x38, 0x38},
                                         {0, 0x3b, 0x3b, 0x3b, 0x3c, 0x3c, 0x3c, 0x3c}};
    const bool e4m3 = fraction == F8_E4M3;
    const uint8_t exponent = e4m3 ? 0x78 : 0x7c;
    const vb bits = code & 0x7f;
    vb low = (vb)((vw)code << (7 - fraction)) & (uint8_t)(0xff << (7 - fraction));
    vb high = ((vb)((vw)bits >> (1 + fraction)) & (uint8_t)(e4m3 ? 7 : 15)) +
              (uint8_t)((127 - f8_bias(fraction)) / 2);
    low = look_up_below(low, exponent, vb_table(lows[e4m3]), bits);
    high = look_up_below(high, exponent, vb_table(highs[e4m3]), bits) | (code & 0x80);
    const vb one = IN_TURN(lo, low, high), other = IN_TURN(hi, low, high);
    memcpy(first, &one, sizeof one);
    memcpy(second, &other, sizeof other);
}
#else
/* Without a shuffle of bytes: as bits of f32, whose upper half is bf16. */
VEC_INLINE vu widen_code(const int fraction, vu code)
{
    const vu bits = code & 0x7f;
    const vu number = (bits << (23 - fraction)) + ((uint32_t)(127 - f8_bias(fraction)) << 23);
    const vf step = vf_splat(fraction == F8_E4M3 ? 0x1p-9f : 0x1p-16f);
    const vu below = (vu)(__builtin_convertvector((vi)bits, vf) * step);
    const vu is_below = (vu)(bits < (uint32_t)(1 << fraction));
    return (code & 0x80) << 24 | (is_below & below) | (~is_below & number);
}

VEC_INLINE void widen_pairs(const int fraction, const uint8_t *code, void *out)
{
    vh words;
    memcpy(&words, code, sizeof words);
    const vu pairs = __builtin_convertvector(words, vu);
    const vu both = widen_code(fraction, pairs & 255) >> 16 | widen_code(fraction, pairs >> 8);
    memcpy(out, &both, sizeof both);
}

VEC_INLINE void widen_quad(const int fraction, vb code, void *first, void *second)
{
    uint8_t bytes[CODE_BYTES];
    memcpy(bytes, &code, sizeof code);
    widen_pairs(fraction, bytes, first);
    widen_pairs(fraction, bytes + CODE_BYTES / 2, second);
}
#endif

VEC_INLINE void widen_group(const int fraction, const uint8_t *code, const uint8_t *ahead,
                            uint8_t (*out)[PANEL_BYTES])
{
    for (int64_t quad = 0; quad < QUADS; quad++, code += PANEL_BYTES, out += 2) {
        __builtin_prefetch(ahead + quad * PANEL_BYTES, 0, 2);
#pragma GCC unroll 4
        for (int part = 0; part < CODE_PARTS; part++) {
            const int at = part * CODE_BYTES;
            widen_quad(fraction, vb_load(code + at), out[0] + at, out[1] + at);
        }
    }
}

/* c and the group's sums of some rows and panels, times the scales of each panel. */
VEC_INLINE void add_group(const Widened *w, const float *const *scale, int panels, int rows,
                          bool add, float *c, int64_t c_stride)
{
    for (int j = 0; j < panels; j++, c += c_stride)
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < PANEL_ROWS; i += VN) {
                float *to = c + r * PANEL_ROWS + i;
                const vf before = add ? vf_load(to) : vf_zero();
                vf_store(to, vf_fma(vf_load(w->sum[j][r] + i), vf_load(scale[j] + i), before));
            }
}

VEC_INLINE void tile_of(const int fraction, const LinearTile *t)
{
    const LinearIsa *bf16 = &ISA_NAME(linear_bf16);
    const BlockChunk *chunk = t->chunk;
    const int64_t element = bf16->x == CVN_F32 ? sizeof(float) : sizeof(uint16_t);
    const int tiles = (t->rows + bf16->rows - 1) / bf16->rows, rows = (t->rows + tiles - 1) / tiles;
    Widened w;
    LinearTile part = *t;
    part.q = w.unit[0][0];
    part.q_stride = sizeof w.unit[0];
    part.units = UNITS;
    part.c = w.sum[0][0];
    part.c_stride = ROWS * PANEL_ROWS;
    part.add = false;
    for (int64_t group = 0; group < t->units * chunk->groups; group++) {
        const int64_t at = group / chunk->groups * chunk->bytes, g = group % chunk->groups;
        const float *scale[LINEAR_BLOCK];
        for (int j = 0; j < t->panels; j++) {
            const uint8_t *q = t->q + j * t->q_stride + at;
            const int64_t codes = g * GROUP * PANEL_ROWS;
            scale[j] = (const float *)(const void *)(q + chunk->scale) + g * PANEL_ROWS;
            widen_group(fraction, q + codes, t->ahead[j] + at + codes, w.unit[j]);
        }
        for (int r = 0; r < t->rows; r += rows) {
            part.rows = t->rows - r < rows ? t->rows - r : rows;
            part.x = (const char *)t->x + (r * LINEAR_SPAN + group * GROUP) * element;
            bf16->tile(&part);
            add_group(&w, scale, t->panels, part.rows, t->add || group > 0, t->c + r * PANEL_ROWS,
                      t->c_stride);
        }
    }
}

static void tile_floats(const LinearTile *t)
{
    if (t->blocks == BLOCK_F8_E4M3)
        tile_of(F8_E4M3, t);
    else
        tile_of(F8_E5M2, t);
}

#if defined(VEC_BF16) || defined(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC)
#define OF_X CVN_BF16
#else
#define OF_X CVN_F32
#endif
#if !defined(LINEAR_ROWS)
#define LINEAR_ROWS ISA_NAME(linear_rows)
#endif

const LinearIsa ISA_NAME(linear_float8) = {.of_rows = &LINEAR_ROWS,
                                           .of_same = &LINEAR_SAME,
                                           .floats = true,
                                           .x = OF_X,
                                           .rows = LINEAR_CHUNK,
                                           .panels = 2,
                                           .few = 4,
                                           .ahead = 4096,
                                           .tile = tile_floats};
