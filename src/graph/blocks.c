/*
 * The kinds of blocks, and what their bytes mean.
 *
 * d and m are f16; q is an integer of each element, s and t of each group of neighbours.
 *
 *   type    of  bytes: field (size), in order       element
 *   Q4_0    32  18: d 2, q 16                       d (q - 8)
 *   Q4_1    32  20: d 2, m 2, q 16                  d q + m
 *   Q5_0    32  22: d 2, h 4, q 16                  d (q - 16)
 *   Q5_1    32  24: d 2, m 2, h 4, q 16             d q + m
 *   Q8_0    32  34: d 2, q 32                       d q
 *   Q2_K   256  84: s and t 16, q 64, d 2, m 2      d s q - m t         groups of 16
 *   Q3_K   256 110: h 32, q 64, s 12, d 2           d (s - 32) (q - 4)            16
 *   Q4_K   256 144: d 2, m 2, s and t 12, q 128     d s q - m t                   32
 *   Q5_K   256 176: d 2, m 2, s and t 12, h 32, q 128   d s q - m t               32
 *   Q6_K   256 210: q 128, h 64, s 16, d 2          d s (q - 32)                  16
 *   IQ4_NL  32  18: d 2, q 16                       d v[q]
 *   IQ4_XS 256 136: d 2, sh 2, sl 4, q 128          d (s - 32) v[q]               32
 *   TQ1_0  256  54: q 48, q 4, d 2                  d (q - 1)
 *   TQ2_0  256  66: q 64, d 2                       d (q - 1)
 *   MXFP4   32  17: e 1, q 16                       2^(e - 127) f[q]
 *   F8     128 132: s 4, c 128                      s c                 s in f32, c in e4m3 or e5m2: not of GGUF
 *
 * Upper bits of q for which there is no room in its bytes are in h. v are 16 unequal steps, f the
 * numbers of 4 bits of OCP's MX. Elements that share a byte are not neighbours, so that whole vectors
 * are unpacked by a mask or a shift: in 16 bytes of two q each, byte i holds elements i (low) and 16 + i
 * (high). A block of Q4_0 that begins with the bytes 00 38 9f has d = 0.5, element 0 is 0.5 (15 - 8) = 3.5, and
 * element 16 is 0.5 (9 - 8) = 0.5.
 *
 * (Formats: ggml-quants.h and gguf-py of ggml-org.)
 */
#include "graph/blocks.h"

#include "base/float8.h"

#include <math.h>
#include <string.h>

enum { SMALL = 32, LARGE = BLOCK_MOST /* elements of a block */, SIGN = 0x8000 /* of an f16 */ };

static uint16_t half_at(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* The low halves of n bytes are the first n codes, the high halves the other n. */
static inline void unpack_4(const uint8_t *in, int n, uint8_t *code)
{
    for (int i = 0; i < n; i++) {
        code[i] = in[i] & 15;
        code[n + i] = in[i] >> 4;
    }
}

/* The four pairs of bits of 32 bytes, the lowest first, of 128 codes, shifted and added. */
static inline void add_2(const uint8_t *in, int shift, uint8_t *code)
{
    for (int pair = 0; pair < 4; pair++)
        for (int i = 0; i < 32; i++)
            code[pair * 32 + i] = (uint8_t)(code[pair * 32 + i] | (in[i] >> 2 * pair & 3) << shift);
}

/* A byte b is the fraction b/256, whose digits to the base of 3 are numbers: `digits` of them from n bytes,
 * the first digits of all bytes first. */
static inline void unpack_trits(const uint8_t *in, int n, int digits, uint8_t *code)
{
    for (int i = 0; i < n; i++) {
        unsigned rest = in[i];
        for (int digit = 0; digit < digits; digit++) {
            code[digit * n + i] = (uint8_t)(rest * 3 >> 8);
            rest = rest * 3 & 255;
        }
    }
}

static inline __attribute__((always_inline)) void open_codes(const BlockPlaces *l,
                                                             const uint8_t *block, uint8_t *code)
{
    const uint8_t *in = block + l->codes;
    for (int i = 0; i < SMALL && l->code == CODE_8; i++)
        code[i] = in[i] ^ 128;
    if (l->code == CODE_FLOATS)
        memcpy(code, in, (size_t)l->run);
    for (int i = 0; i < l->runs && l->code == CODE_4; i++)
        unpack_4(in + l->run * i, l->run, code + 2 * l->run * i);
    if (l->code == CODE_2)
        memset(code, 0, LARGE);
    for (int i = 0; i < l->runs && l->code == CODE_2; i++)
        add_2(in + l->run * i, 0, code + 4 * l->run * i);
    if (l->code == CODE_TRITS) {
        unpack_trits(in, 32, 5, code);
        unpack_trits(in + 32, 16, 5, code + 160);
        unpack_trits(in + 48, 4, 4, code + 240);
    }
    for (int i = 0; i < SMALL && l->fifth; i++)
        code[i] = (uint8_t)(code[i] | (block[l->fifth + i / 8] >> i % 8 & 1) << 4);
    for (int k = 0; k < 8 && l->high; k++)
        for (int j = 0; j < 32; j++)
            code[32 * k + j] =
                (uint8_t)(code[32 * k + j] | (block[l->bits + j] >> k & 1) << l->high);
    for (int i = 0; i < l->runs && l->two; i++)
        add_2(block + l->two + 32 * i, 4, code + 128 * i);
}

static inline __attribute__((always_inline)) void open_scales(const BlockPlaces *l,
                                                              const uint8_t *block, BlockParts *p)
{
    const uint8_t *s = block + l->scales;
    switch (l->scale) {
    case SCALES_NONE:
        break;
    case SCALES_BYTES:
        memcpy(p->scale, s, 16);
        break;
    case SCALES_NIBBLES:
        for (int g = 0; g < 16; g++) {
            p->scale[g] = s[g] & 15;
            p->minimum[g] = s[g] >> 4;
        }
        break;
    case SCALES_6_MINIMA:
        for (int g = 0; g < 4; g++) {
            p->scale[g] = s[g] & 63;
            p->minimum[g] = s[g + 4] & 63;
            p->scale[g + 4] = (int8_t)((s[g + 8] & 15) | s[g] >> 6 << 4);
            p->minimum[g + 4] = (int8_t)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
        }
        break;
    case SCALES_6:
        for (int g = 0; g < 16; g++)
            p->scale[g] =
                (int8_t)(((s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) -
                         32);
        break;
    case SCALES_6_APART:
        for (int g = 0; g < 8; g++)
            p->scale[g] =
                (int8_t)(((s[2 + g / 2] >> g % 2 * 4 & 15) | (half_at(s) >> 2 * g & 3) << 4) - 32);
    }
}

static inline __attribute__((always_inline)) void open_block(const BlockPlaces *l,
                                                             const uint8_t *block, BlockParts *p)
{
    if (l->code == CODE_FLOATS)
        memcpy(&p->wide, block + l->d, sizeof p->wide);
    else
        p->d = l->exponent ? bf16_from_f32(ldexpf(1, block[l->d] - 128)) : half_at(block + l->d);
    if (l->m)
        p->m = l->added ? half_at(block + l->m) ^ SIGN : half_at(block + l->m);
    open_codes(l, block, p->code);
    open_scales(l, block, p);
}

static const BlockPlaces places[BLOCK_KINDS] = {
    [BLOCK_Q4_0] = {.codes = 2, .run = 16, .runs = 1},
    [BLOCK_Q4_1] = {.m = 2, .added = true, .codes = 4, .run = 16, .runs = 1},
    [BLOCK_Q5_0] = {.codes = 6, .run = 16, .runs = 1, .fifth = 2},
    [BLOCK_Q5_1] = {.m = 2, .added = true, .codes = 8, .run = 16, .runs = 1, .fifth = 4},
    [BLOCK_Q8_0] = {.code = CODE_8, .codes = 2},
    [BLOCK_Q2_K] = {.d = 80,
                    .m = 82,
                    .code = CODE_2,
                    .codes = 16,
                    .run = 32,
                    .runs = 2,
                    .scale = SCALES_NIBBLES},
    [BLOCK_Q3_K] = {.d = 108,
                    .code = CODE_2,
                    .codes = 32,
                    .run = 32,
                    .runs = 2,
                    .high = 2,
                    .scale = SCALES_6,
                    .scales = 96},
    [BLOCK_Q4_K] =
        {.m = 2, .codes = 16, .run = 32, .runs = 4, .scale = SCALES_6_MINIMA, .scales = 4},
    [BLOCK_Q5_K] = {.m = 2,
                    .codes = 48,
                    .run = 32,
                    .runs = 4,
                    .bits = 16,
                    .high = 4,
                    .scale = SCALES_6_MINIMA,
                    .scales = 4},
    [BLOCK_Q6_K] =
        {.d = 208, .run = 64, .runs = 2, .two = 128, .scale = SCALES_BYTES, .scales = 192},
    [BLOCK_IQ4_NL] = {.codes = 2, .run = 16, .runs = 1},
    [BLOCK_IQ4_XS] = {.codes = 8, .run = 16, .runs = 8, .scale = SCALES_6_APART, .scales = 2},
    [BLOCK_TQ1_0] = {.d = 52, .code = CODE_TRITS},
    [BLOCK_TQ2_0] = {.d = 64, .code = CODE_2, .run = 32, .runs = 2},
    [BLOCK_MXFP4] = {.exponent = true, .codes = 1, .run = 16, .runs = 1},
    [BLOCK_F8_E4M3] = {.code = CODE_FLOATS, .codes = 4, .run = 128},
    [BLOCK_F8_E5M2] = {.code = CODE_FLOATS, .codes = 4, .run = 128},
};

/* Steps that are finer near zero, as weights are. */
const int8_t block_iq4_step[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

/* e2m1 (sign, two bits of exponent, one of fraction), doubled: 0, 1/2, 1, 3/2, 2, 3, 4, 6. */
const int8_t block_mxfp4_number[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void widen_parts(const BlockForm *f, const BlockParts *p, int elements, float *out)
{
    const bool whole = f->scale >= BLOCK_WHOLE;
    for (int i = 0; i < elements && f->fraction; i++)
        out[i] = p->wide * f8_to_f32(f->fraction, p->code[i]);
    if (f->fraction)
        return;
    const float d = f->scale == BLOCK_BF16 ? bf16_to_f32(p->d) : f16_to_f32(p->d);
    const float m = f->minimum ? f16_to_f32(p->m) : 0;
    for (int g = 0; g < elements / f->group; g++, out += f->group) {
        const uint8_t *code = p->code + g * f->group;
        float scale = whole ? d * (float)p->scale[g] : d;
        float minimum = whole && f->minimum ? m * (float)p->minimum[g] : m;
        if (f->table)
            for (int i = 0; i < f->group; i++)
                out[i] = scale * (float)f->table[code[i]];
        else if (f->minimum)
            for (int i = 0; i < f->group; i++)
                out[i] = scale * (float)(code[i] - f->offset) - minimum;
        else
            for (int i = 0; i < f->group; i++)
                out[i] = scale * (float)(code[i] - f->offset);
    }
}

/* Compiled for each form by itself: all weights of a model that is converted go through it. */
#define READ(kind, name, elements, bytes)                                                          \
    static void open_##name(const uint8_t *block, BlockParts *parts)                               \
    {                                                                                              \
        open_block(&places[BLOCK_##kind], block, parts);                                           \
    }                                                                                              \
    static void widen_##name(const uint8_t *block, float *out)                                     \
    {                                                                                              \
        const BlockForm form = BLOCK_FORM_##name;                                                  \
        BlockParts parts;                                                                          \
        open_block(&places[BLOCK_##kind], block, &parts);                                          \
        widen_parts(&form, &parts, elements, out);                                                 \
    }
CVN_BLOCKS(READ)

const BlockInfo block_info[BLOCK_KINDS] = {
#define INFO(kind, name, elements, bytes)                                                          \
    [BLOCK_##kind] = {#name,       elements,    bytes, BLOCK_FORM_##name, &places[BLOCK_##kind],   \
                      open_##name, widen_##name},
    CVN_BLOCKS(INFO)};

const char *const block_names[BLOCK_KINDS] = {[BLOCK_NONE] = "none",
#define NAME(kind, name, elements, bytes) [BLOCK_##kind] = #name,
                                              CVN_BLOCKS(NAME)};

static bool is_nonfinite(const uint8_t *half)
{
    return (half_at(half) & 0x7c00) == 0x7c00;
}

int64_t block_count_nonfinite(BlockKind kind, const uint8_t *blocks, int64_t bytes)
{
    const BlockPlaces *l = &places[kind];
    int64_t bad = 0;
    for (int64_t at = 0; at < bytes && l->code == CODE_FLOATS; at += block_info[kind].bytes) {
        float x[BLOCK_MOST];
        bool finite = true;
        block_info[kind].widen(blocks + at, x);
        for (int i = 0; i < block_info[kind].elements; i++)
            finite = finite && isfinite(x[i]);
        bad += !finite;
    }
    if (l->code == CODE_FLOATS)
        return bad;
    for (int64_t at = 0; at < bytes && !l->exponent; at += block_info[kind].bytes)
        bad += is_nonfinite(blocks + at + l->d) || (l->m && is_nonfinite(blocks + at + l->m));
    return bad;
}
