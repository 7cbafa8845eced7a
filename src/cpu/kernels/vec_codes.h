/*
 * Vectors of codes: bytes of quantized weights, four neighbours in k of each of VN rows of a panel, and their products with
 * the same four numbers of a row of x. linear_codes_impl.h is written once on what stands here; an instruction set is a
 * branch of this file.
 *
 *     CODES_DOT     vpdpbusd (AVX-512 VNNI, AVX-VNNI): unsigned codes times signed bytes of x, four products summed into 32
 *                   bits. Fixed point is two bytes, X = 256 hi + lo, hence two instructions and two sums. On Arm sdot takes
 *                   signed bytes, which codes below 128 are, too.
 *     CODES_PAIRS   and smmla (i8mm) for kept codes: two rows of x times two rows of a panel, eight products in each sum.
 *     otherwise     pmaddwd (SSE2, AVX2), or the same by plain C: codes are widened to 16 bits, the even columns apart from
 *                   the odd ones, and multiplied with the whole X. |code * X * 2| <= 2 * 128 * 32512 fits 32 bits.
 *
 * Rows of 8 bits without CODES_DOT take vpmaddubsw where there is one (AVX2). It adds two products in 16 bits and saturates,
 * so that it is given only what cannot: of codes below 64 several results fit 16 bits, codes_settle() widens them in time;
 * codes of 8 bits are |code| times x with the code's sign, at most 2 * 128 * 127 = 32512, and widened at once.
 *
 * A code is unsigned and `offset` more than its number, which the sum of x takes back (LinearSpan.minus8). Codes of 8 bits
 * ("wide") are so only with vpdpbusd (then offset 128), elsewhere they are the signed numbers.
 */
#ifndef CVN_CPU_KERNELS_VEC_CODES_H
#define CVN_CPU_KERNELS_VEC_CODES_H

#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"

#if defined(VEC_VNNI) || defined(__ARM_FEATURE_DOTPROD)
#define CODES_DOT
#endif
#if defined(__ARM_FEATURE_MATMUL_INT8)
#define CODES_PAIRS
#endif

enum {
    CODE_BYTES = 4 * VN,          /* of a vector of codes */
    CODE_PARTS = PANEL_ROWS / VN, /* vectors of a panel's rows */
    CODES_NEVER = LINEAR_SPAN     /* quads after which nothing need be settled */
};

typedef uint8_t vb __attribute__((vector_size(CODE_BYTES)));
typedef uint16_t vw __attribute__((vector_size(CODE_BYTES)));
typedef int16_t vs __attribute__((vector_size(CODE_BYTES)));

/* What codes are multiplied as; what four numbers of x are; the sums of VN rows. b is unused where one vector is enough. */
typedef struct Factor {
    vi a, b;
} Factor;
typedef struct Quad {
    vi a, b;
} Quad;
typedef struct Sum {
    vi a, b;
} Sum;

VEC_INLINE vb vb_load(const void *at)
{
    vb v;
    memcpy(&v, at, sizeof v);
    return v;
}

VEC_INLINE vb vb_splat(uint8_t x)
{
    return (vb){0} + x;
}

/* sum, as if it were needed now: compilers rearrange additions of whole numbers into trees, for which there are not enough
   registers. */
VEC_INLINE vi vi_in_order(vi sum)
{
#if defined(__AVX512F__)
    __asm__("" : "+v"(sum));
#elif defined(__SSE2__)
    __asm__("" : "+x"(sum));
#elif defined(__aarch64__)
    __asm__("" : "+w"(sum));
#endif
    return sum;
}

/* The four bytes at x in each lane. */
VEC_INLINE vi vi_word(const int8_t *x)
{
    int32_t word;
    memcpy(&word, x, sizeof word);
#if defined(__AVX512F__)
    return (vi)_mm512_set1_epi32(word);
#elif defined(__AVX2__)
    return (vi)_mm256_set1_epi32(word);
#else
    return vi_splat(word);
#endif
}

/* table[code] for codes below 16; the table stands in each 16 bytes of the vector. */
VEC_INLINE vb vb_lookup(vb table, vb code)
{
#if defined(__AVX512F__)
    return (vb)_mm512_shuffle_epi8((__m512i)table, (__m512i)code);
#elif defined(__AVX2__)
    return (vb)_mm256_shuffle_epi8((__m256i)table, (__m256i)code);
#elif defined(__aarch64__)
    return (vb)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)code);
#else
    vb out;
    for (int i = 0; i < CODE_BYTES; i++)
        out[i] = table[code[i]];
    return out;
#endif
}

VEC_INLINE vb vb_table(const uint8_t table[16])
{
    vb v;
    for (int i = 0; i < CODE_BYTES; i += 16)
        memcpy((char *)&v + i, table, 16);
    return v;
}

/* code with `bit`, which it does not have, in each byte i of the vector for which bit i at `at` is set. */
VEC_INLINE vb vb_with(vb code, const uint8_t *at, uint8_t bit)
{
#if defined(__AVX512F__)
    uint64_t mask;
    memcpy(&mask, at, sizeof mask);
    return (vb)_mm512_mask_add_epi8((__m512i)code, mask, (__m512i)code,
                                    _mm512_set1_epi8((char)bit));
#elif defined(__AVX2__)
    const __m256i of = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2,
                                        2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bits = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i set = _mm256_shuffle_epi8((__m256i)vi_word((const int8_t *)at), of);
    set = _mm256_cmpeq_epi8(_mm256_and_si256(set, bits), bits);
    return code | (vb)_mm256_and_si256(set, _mm256_set1_epi8((char)bit));
#elif defined(__aarch64__)
    const uint8x16_t of = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t set = vcombine_u8(vld1_dup_u8(at), vld1_dup_u8(at + 1));
    return code | (vb)vandq_u8(vtstq_u8(set, of), vdupq_n_u8(bit));
#else
    vb out;
    for (int i = 0; i < CODE_BYTES / 8; i++) {
        uint64_t set = at[i] * UINT64_C(0x0101010101010101) & UINT64_C(0x8040201008040201);
        set = ((set + UINT64_C(0x7f7f7f7f7f7f7f7f)) >> 7 & UINT64_C(0x0101010101010101)) * bit;
        memcpy((char *)&out + 8 * i, &set, 8);
    }
    return code | out;
#endif
}

/* VN bytes without sign. */
VEC_INLINE vi vi_load_u8(const uint8_t *at)
{
#if defined(__AVX512F__)
    return (vi)_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)at));
#elif defined(__AVX2__)
    return (vi)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)at));
#elif defined(__aarch64__)
    uint32_t four;
    memcpy(&four, at, sizeof four);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    return (vi)vmovl_u16(vget_low_u16(wide));
#else
    typedef uint8_t bytes __attribute__((vector_size(VN)));
    bytes b;
    memcpy(&b, at, sizeof b);
    return __builtin_convertvector(b, vi);
#endif
}

/* VN signed bytes as floats. */
VEC_INLINE vf vf_of_bytes(const int8_t *at)
{
#if defined(__aarch64__)
    int32_t four;
    memcpy(&four, at, sizeof four);
    const int16x8_t wide = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four)));
    return vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide)));
#else
    return vf_load_i8(at);
#endif
}

VEC_INLINE vf vf_load_f16(const uint8_t *at)
{
#if defined(__AVX512F__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)at));
#elif defined(__AVX2__)
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)at));
#elif defined(__aarch64__)
    return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(at)));
#else
    uint16_t half[VN];
    float out[VN];
    memcpy(half, at, sizeof half);
    for (int i = 0; i < VN; i++)
        out[i] = f16_to_f32(half[i]);
    return vf_load(out);
#endif
}

#if defined(CODES_DOT)

/* x is laid out [hi of a span][lo]. */
enum {
    FIXED_QUAD = PANEL_QUAD,
    CODE_SUMS = 2,
    CODE_FACTORS = 1,
#if defined(CODES_PAIRS)
    CODES_AS_THEY_LIE = false,
#else
    CODES_AS_THEY_LIE = true,
#endif
    CODES_IN_BYTES = true
};

VEC_INLINE bool codes_signed(const bool wide)
{
#if defined(__aarch64__)
    return wide;
#else
    (void)wide;
    return false;
#endif
}

VEC_INLINE int codes_settled(int bits)
{
    (void)bits;
    return CODES_NEVER;
}

VEC_INLINE Factor codes_factor(const bool eight, const bool wide, vb code)
{
    (void)eight, (void)wide;
    return (Factor){(vi)code, {0}};
}

/* The same of codes that are halves of bytes, the lower or the upper ones. */
VEC_INLINE Factor codes_half(const bool eight, vb both, const bool upper)
{
    (void)eight;
    return (Factor){(vi)(upper ? both >> 4 : both & 15), {0}};
}

VEC_INLINE Quad codes_x(const bool eight, const bool wide, const int8_t *x)
{
    (void)wide;
    return (Quad){vi_word(x), eight ? (vi){0} : vi_word(x + LINEAR_SPAN)};
}

/* sum + w (unsigned, on Arm signed) . x (signed). Written out, because compilers copy the sum for the intrinsic. */
VEC_INLINE vi vi_dot(vi sum, vi w, vi x)
{
#if defined(__aarch64__)
    sum = (vi)vdotq_s32((int32x4_t)sum, (int8x16_t)w, (int8x16_t)x);
#elif defined(__AVX512F__)
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(x));
#else
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(w), "x"(x));
#endif
    return sum;
}

VEC_INLINE void codes_add(const bool eight, const bool wide, Sum *s, Factor w, Quad x)
{
    (void)wide;
    if (!eight)
        s->b = vi_dot(s->b, w.a, x.a);
    s->a = vi_dot(s->a, w.a, eight ? x.a : x.b);
}

/* The same with four numbers of x where they lie, which is one instruction; worth it when they meet one vector only. */
#if defined(__AVX512F__)
enum { CODES_BROADCAST = true };

VEC_INLINE vi vi_dot_at(vi sum, vi w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const int8_t(*)[PANEL_QUAD])x));
    return sum;
}

VEC_INLINE void codes_add_at(const bool eight, Sum *s, Factor w, const int8_t *x)
{
    if (!eight)
        s->b = vi_dot_at(s->b, w.a, x);
    s->a = vi_dot_at(s->a, w.a, eight ? x : x + LINEAR_SPAN);
}
#endif

VEC_INLINE void codes_settle(const bool eight, const bool wide, Sum *s)
{
    (void)eight, (void)wide, (void)s;
}

VEC_INLINE vi codes_total(const bool eight, const Sum *s)
{
    return eight ? s->a : s->a + (s->b << 8);
}

#if defined(CODES_PAIRS)
/* Two quads of four rows of a panel: eight neighbours of its first two rows, and of the others. */
VEC_INLINE void codes_pair(vi *first, vi *second)
{
    const int32x4_t a = (int32x4_t)*first, b = (int32x4_t)*second;
    *first = (vi)vzip1q_s32(a, b);
    *second = (vi)vzip2q_s32(a, b);
}

/* Eight neighbours of two rows of x. */
VEC_INLINE Quad codes_x_pair(const bool eight, const int8_t *x, const int8_t *y)
{
    Quad pair = {(vi)vcombine_s8(vld1_s8(x), vld1_s8(y)), {0}};
    if (!eight)
        pair.b = (vi)vcombine_s8(vld1_s8(x + LINEAR_SPAN), vld1_s8(y + LINEAR_SPAN));
    return pair;
}

/* Adds what both rows of x make of two rows of a panel: [x0 w0, x0 w1, x1 w0, x1 w1]. */
VEC_INLINE void codes_add_pair(const bool eight, Sum *s, vi w, Quad x)
{
    if (!eight)
        s->b = (vi)vmmlaq_s32((int32x4_t)s->b, (int8x16_t)x.a, (int8x16_t)w);
    s->a = (vi)vmmlaq_s32((int32x4_t)s->a, (int8x16_t)(eight ? x.a : x.b), (int8x16_t)w);
}

/* Of the first two rows of a panel and of the others: all that row 0 of x has, or row 1. */
VEC_INLINE vi codes_total_pair(const bool eight, const bool upper, const Sum *first,
                               const Sum *second)
{
    const int64x2_t a = (int64x2_t)codes_total(eight, first);
    const int64x2_t b = (int64x2_t)codes_total(eight, second);
    return (vi)(upper ? vzip2q_s64(a, b) : vzip1q_s64(a, b));
}
#endif

/* [hi of 512][lo of 512] */
VEC_INLINE void codes_arrange(const int16_t *x, int8_t *out)
{
    for (int i = 0; i < LINEAR_SPAN; i++) {
        int high = (x[i] + 128) >> 8;
        out[i] = (int8_t)high;
        out[LINEAR_SPAN + i] = (int8_t)(x[i] - 256 * high);
    }
}

#else

/* x is laid out as pairs of 16 bits: x0 x2 x1 x3 | x4 x6 x5 x7 | … */
enum { FIXED_QUAD = 2 * PANEL_QUAD, CODE_SUMS = 1, CODE_FACTORS = 2, CODES_AS_THEY_LIE = false };

/* sum + the two products in each lane. */
VEC_INLINE vi vi_madd(vi sum, vi w, vi x)
{
#if defined(__AVX512F__)
    sum += (vi)_mm512_madd_epi16((__m512i)w, (__m512i)x);
#elif defined(__AVX2__)
    sum += (vi)_mm256_madd_epi16((__m256i)w, (__m256i)x);
#elif defined(__SSE2__)
    sum += (vi)__builtin_ia32_pmaddwd128((vs)w, (vs)x);
#elif defined(__aarch64__)
    int32x4_t low = vmull_s16(vget_low_s16((int16x8_t)w), vget_low_s16((int16x8_t)x));
    int32x4_t high = vmull_high_s16((int16x8_t)w, (int16x8_t)x);
    sum += (vi)vpaddq_s32(low, high);
#else
    sum += (w << 16 >> 16) * (x << 16 >> 16) + (w >> 16) * (x >> 16);
#endif
    return vi_in_order(sum);
}

#if defined(__AVX512BW__)
#define CODES_UBS
VEC_INLINE vi vi_maddubs(vi w, vi x)
{
    return (vi)_mm512_maddubs_epi16((__m512i)w, (__m512i)x);
}

VEC_INLINE vi vi_with_sign(vi x, vi of) /* no vpsignb there */
{
    __mmask64 negative = _mm512_movepi8_mask((__m512i)of);
    return (vi)_mm512_mask_sub_epi8((__m512i)x, negative, _mm512_setzero_si512(), (__m512i)x);
}

VEC_INLINE vi vi_abs8(vi w)
{
    return (vi)_mm512_abs_epi8((__m512i)w);
}
#elif defined(__AVX2__)
#define CODES_UBS
VEC_INLINE vi vi_maddubs(vi w, vi x)
{
    return (vi)_mm256_maddubs_epi16((__m256i)w, (__m256i)x);
}

VEC_INLINE vi vi_with_sign(vi x, vi of)
{
    return (vi)_mm256_sign_epi8((__m256i)x, (__m256i)of);
}

VEC_INLINE vi vi_abs8(vi w)
{
    return (vi)_mm256_abs_epi8((__m256i)w);
}
#endif

#if defined(CODES_UBS)
enum { CODES_IN_BYTES = true }; /* rows of 8 bits are multiplied as bytes */
#else
enum { CODES_IN_BYTES = false };
#endif

VEC_INLINE bool codes_signed(const bool wide)
{
    return wide;
}

/* Quads whose sums fit 16 bits: each adds at most 2 * 127 * (2^bits - 1). */
VEC_INLINE int codes_settled(int bits)
{
    return CODES_IN_BYTES && bits < 8 ? INT16_MAX / (254 * ((1 << bits) - 1)) : CODES_NEVER;
}

/* The bytes of each pair as 16 bits, the even one and the odd one. */
VEC_INLINE Factor pair_of(const bool is_signed, vi bytes)
{
    return is_signed ? (Factor){(vi)((vs)((vw)bytes << 8) >> 8), (vi)((vs)bytes >> 8)}
                     : (Factor){(vi)((vw)bytes & 255), (vi)((vw)bytes >> 8)};
}

VEC_INLINE Factor codes_factor(const bool eight, const bool wide, vb code)
{
#if defined(CODES_UBS)
    if (eight)
        return wide ? (Factor){vi_abs8((vi)code), (vi)code} : (Factor){(vi)code, {0}};
#endif
    (void)eight;
    return pair_of(wide, (vi)code);
}

VEC_INLINE Factor codes_half(const bool eight, vb both, const bool upper)
{
    const vw pair = (vw)both;
    if (eight)
        return codes_factor(true, false, upper ? both >> 4 : both & 15);
    return upper ? (Factor){(vi)(pair >> 4 & 15), (vi)(pair >> 12)}
                 : (Factor){(vi)(pair & 15), (vi)(pair >> 8 & 15)};
}

VEC_INLINE Quad codes_x(const bool eight, const bool wide, const int8_t *x)
{
    (void)wide;
    if (!eight)
        return (Quad){vi_word(x), vi_word(x + 4)};
    if (CODES_IN_BYTES)
        return (Quad){vi_word(x), {0}};
    Factor pair = pair_of(true, vi_word(x));
    return (Quad){pair.a, pair.b};
}

VEC_INLINE void codes_add(const bool eight, const bool wide, Sum *s, Factor w, Quad x)
{
#if defined(CODES_UBS)
    const vi ones = vi_splat(0x00010001);
    if (eight && wide) {
        s->a = vi_madd(s->a, vi_maddubs(w.a, vi_with_sign(x.a, w.b)), ones);
        return;
    }
    if (eight) {
        s->b = vi_in_order((vi)((vs)s->b + (vs)vi_maddubs(w.a, x.a)));
        return;
    }
#endif
    (void)eight, (void)wide;
    s->a = vi_madd(s->a, w.a, x.a);
    s->a = vi_madd(s->a, w.b, x.b);
}

VEC_INLINE void codes_settle(const bool eight, const bool wide, Sum *s)
{
    if (CODES_IN_BYTES && eight && !wide) {
        s->a = vi_madd(s->a, s->b, vi_splat(0x00010001));
        s->b = (vi){0};
    }
}

VEC_INLINE vi codes_total(const bool eight, const Sum *s)
{
    (void)eight;
    return s->a;
}

VEC_INLINE void codes_arrange(const int16_t *x, int8_t *out)
{
    int16_t pair[LINEAR_SPAN];
    for (int i = 0; i < LINEAR_SPAN; i += PANEL_QUAD) {
        pair[i] = x[i];
        pair[i + 1] = x[i + 2];
        pair[i + 2] = x[i + 1];
        pair[i + 3] = x[i + 3];
    }
    memcpy(out, pair, sizeof pair);
}

#endif

#if !defined(CODES_DOT) || !defined(__AVX512F__)
enum { CODES_BROADCAST = false };

VEC_INLINE void codes_add_at(const bool eight, Sum *s, Factor w, const int8_t *x)
{
    codes_add(eight, false, s, w, codes_x(eight, false, x));
}
#endif

/* Bytes of x from four numbers to the next. */
VEC_INLINE int codes_quad(const bool eight)
{
    return eight ? PANEL_QUAD : FIXED_QUAD;
}

#endif
