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

#include "base/float16.h"

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

static inline void unpack_2(const uint8_t *in, uint8_t *code)
{
    memset(code, 0, 128);
    add_2(in, 0, code);
}

/* Adds 16 to each code whose bit in h (32 bits, little endian) is set. */
static inline void add_fifth_bits(const uint8_t *h, uint8_t *code)
{
    for (int i = 0; i < SMALL; i++)
        code[i] = (uint8_t)(code[i] | (h[i / 8] >> i % 8 & 1) << 4);
}

/* Bit k of h's byte j is that of element 32 k + j. */
static inline void add_high_bits(const uint8_t *h, int shift, uint8_t *code)
{
    for (int k = 0; k < 8; k++)
        for (int j = 0; j < 32; j++)
            code[32 * k + j] = (uint8_t)(code[32 * k + j] | (h[j] >> k & 1) << shift);
}

static inline void open_q4_0(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    unpack_4(block + 2, 16, p->code);
}

static inline void open_q4_1(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    p->m = half_at(block + 2) ^ SIGN;
    unpack_4(block + 4, 16, p->code);
}

static inline void open_q5_0(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    unpack_4(block + 6, 16, p->code);
    add_fifth_bits(block + 2, p->code);
}

static inline void open_q5_1(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    p->m = half_at(block + 2) ^ SIGN;
    unpack_4(block + 8, 16, p->code);
    add_fifth_bits(block + 4, p->code);
}

static inline void open_q8_0(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    for (int i = 0; i < SMALL; i++)
        p->code[i] = block[2 + i] ^ 128;
}

/* A group's byte has its scale below and its minimum above. */
static inline void open_q2_k(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block + 80);
    p->m = half_at(block + 82);
    unpack_2(block + 16, p->code);
    unpack_2(block + 48, p->code + 128);
    for (int g = 0; g < 16; g++) {
        p->scale[g] = block[g] & 15;
        p->minimum[g] = block[g] >> 4;
    }
}

/* 16 scales of 6 bits: byte g % 8 has the low four of scale g, below for the first eight and above for
 * the others; byte 8 + g % 4 has the upper two, those of g / 4 = 0 lowest. */
static inline void open_q3_k(const uint8_t *block, BlockParts *p)
{
    const uint8_t *s = block + 96;
    p->d = half_at(block + 108);
    unpack_2(block + 32, p->code);
    unpack_2(block + 64, p->code + 128);
    add_high_bits(block, 2, p->code);
    for (int g = 0; g < 16; g++) {
        int scale = (s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4;
        p->scale[g] = (int8_t)(scale - 32);
    }
}

/* 8 scales and 8 minima of 6 bits in 12 bytes. The first four of each are the low bits of bytes 0-3
 * and 4-7; the last four have their low four bits in bytes 8-11, scales below and minima above, and
 * their upper two on top of bytes 0-3 and 4-7. */
static inline void unpack_scales(const uint8_t *s, BlockParts *p)
{
    for (int g = 0; g < 4; g++) {
        p->scale[g] = s[g] & 63;
        p->minimum[g] = s[g + 4] & 63;
        p->scale[g + 4] = (int8_t)((s[g + 8] & 15) | s[g] >> 6 << 4);
        p->minimum[g + 4] = (int8_t)(s[g + 8] >> 4 | s[g + 4] >> 6 << 4);
    }
}

static inline void open_q4_k(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    p->m = half_at(block + 2);
    unpack_scales(block + 4, p);
    for (int i = 0; i < 4; i++)
        unpack_4(block + 16 + 32 * i, 32, p->code + 64 * i);
}

static inline void open_q5_k(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block);
    p->m = half_at(block + 2);
    unpack_scales(block + 4, p);
    for (int i = 0; i < 4; i++)
        unpack_4(block + 48 + 32 * i, 32, p->code + 64 * i);
    add_high_bits(block + 16, 4, p->code);
}

/* Each half of 128: low four bits in 64 bytes, upper two in 32. */
static inline void open_q6_k(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block + 208);
    memcpy(p->scale, block + 192, 16);
    for (int half = 0; half < 2; half++) {
        unpack_4(block + 64 * half, 64, p->code + 128 * half);
        add_2(block + 128 + 32 * half, 4, p->code + 128 * half);
    }
}

/* Steps that are finer near zero, as weights are. */
const int8_t block_iq4_step[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                   1,    13,   25,  38,  53,  69,  89,  113};

/* e2m1 (sign, two bits of exponent, one of fraction), doubled: 0, 1/2, 1, 3/2, 2, 3, 4, 6. */
const int8_t block_mxfp4_number[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

static inline void open_iq4_nl(const uint8_t *block, BlockParts *p)
{
    open_q4_0(block, p);
}

/* Scales of 6 bits: the low four of two in a byte of sl, the upper two of eight in sh. */
static inline void open_iq4_xs(const uint8_t *block, BlockParts *p)
{
    int high = half_at(block + 2);
    p->d = half_at(block);
    for (int g = 0; g < 8; g++) {
        int scale = (block[4 + g / 2] >> g % 2 * 4 & 15) | (high >> 2 * g & 3) << 4;
        p->scale[g] = (int8_t)(scale - 32);
        unpack_4(block + 8 + 16 * g, 16, p->code + 32 * g);
    }
}

static inline void open_mxfp4(const uint8_t *block, BlockParts *p)
{
    p->d = bf16_from_f32(ldexpf(1, block[0] - 128));
    unpack_4(block + 1, 16, p->code);
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

static inline void open_tq1_0(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block + 52);
    unpack_trits(block, 32, 5, p->code);
    unpack_trits(block + 32, 16, 5, p->code + 160);
    unpack_trits(block + 48, 4, 4, p->code + 240);
}

static inline void open_tq2_0(const uint8_t *block, BlockParts *p)
{
    p->d = half_at(block + 64);
    unpack_2(block, p->code);
    unpack_2(block + 32, p->code + 128);
}

static inline void widen_parts(const BlockForm *f, const BlockParts *p, int elements, float *out)
{
    const bool whole = f->scale >= BLOCK_WHOLE;
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

/* Widening is compiled for each form by itself: all weights of a model that is converted go through it. */
#define WIDEN(kind, name, elements, bytes)                                                         \
    static void widen_##name(const uint8_t *block, float *out)                                     \
    {                                                                                              \
        const BlockForm form = BLOCK_FORM_##name;                                                  \
        BlockParts parts;                                                                          \
        open_##name(block, &parts);                                                                \
        widen_parts(&form, &parts, elements, out);                                                 \
    }
CVN_BLOCKS(WIDEN)

const BlockInfo block_info[BLOCK_KINDS] = {
#define INFO(kind, name, elements, bytes)                                                          \
    [BLOCK_##kind] = {#name, elements, bytes, BLOCK_FORM_##name, open_##name, widen_##name},
    CVN_BLOCKS(INFO)};

const char *const block_names[BLOCK_KINDS] = {[BLOCK_NONE] = "none",
#define NAME(kind, name, elements, bytes) [BLOCK_##kind] = #name,
                                              CVN_BLOCKS(NAME)};

/* Where in a block the floats d and m are; -1 where there is none. The e of mxfp4 is always a number. */
static const struct {
    int d, m;
} half_place[BLOCK_KINDS] = {
    [BLOCK_NONE] = {-1, -1},  [BLOCK_Q4_0] = {0, -1},   [BLOCK_Q4_1] = {0, 2},
    [BLOCK_Q5_0] = {0, -1},   [BLOCK_Q5_1] = {0, 2},    [BLOCK_Q8_0] = {0, -1},
    [BLOCK_Q2_K] = {80, 82},  [BLOCK_Q3_K] = {108, -1}, [BLOCK_Q4_K] = {0, 2},
    [BLOCK_Q5_K] = {0, 2},    [BLOCK_Q6_K] = {208, -1}, [BLOCK_IQ4_NL] = {0, -1},
    [BLOCK_IQ4_XS] = {0, -1}, [BLOCK_TQ1_0] = {52, -1}, [BLOCK_TQ2_0] = {64, -1},
    [BLOCK_MXFP4] = {-1, -1},
};

static bool nonfinite_at(const uint8_t *block, int place)
{
    return place >= 0 && (half_at(block + place) & 0x7c00) == 0x7c00;
}

int64_t block_count_nonfinite(BlockKind kind, const uint8_t *blocks, int64_t bytes)
{
    int64_t bad = 0;
    for (int64_t at = 0; at < bytes; at += block_info[kind].bytes)
        bad += nonfinite_at(blocks + at, half_place[kind].d) ||
               nonfinite_at(blocks + at, half_place[kind].m);
    return bad;
}
