/*
 * Weights in blocks in plain operations: bytes are taken apart by division and remainder, 16-bit floats too, so that any
 * compiler of graphs can read GGUF files. (blocks.c does the same in C and has the formats; all products are exact.)
 *
 *     q4_0   i8[n,blocks,18] -> u32 -> bytes 0, 1: scale f32[n,blocks,1]
 *                                      bytes 2 …:  x mod 16 beside x / 16, codes [n,blocks,32]
 *            (codes - 8) * scale -> f32[n, 32 blocks]
 */
#include "base/float8.h"
#include "graph/blocks.h"
#include "graph/decompose_impl.h"

enum { BYTES = 2 }; /* the axis of a block's bytes; before it are rows and blocks */

static cvn_value *field(cvn_graph *g, cvn_value *x, int64_t from, int64_t n)
{
    return cvn_slice_axis(g, x, BYTES, from, from + n);
}

/* Whole numbers: the lowest bits, and the others. */
static cvn_value *low(cvn_graph *g, cvn_value *x, int bits)
{
    return cvn_remainder(g, x, like(g, x, 1 << bits));
}

static cvn_value *high(cvn_graph *g, cvn_value *x, int bits)
{
    return bits ? cvn_divide(g, x, like(g, x, 1 << bits)) : x;
}

static cvn_value *times(cvn_graph *g, cvn_value *x, double factor)
{
    return cvn_multiply(g, x, like(g, x, factor));
}

static cvn_value *beside(cvn_graph *g, cvn_value *a, cvn_value *b)
{
    return cvn_concatenate(g, 2, (cvn_value *[]){a, b}, BYTES);
}

/* n fields of `each` bits in every number of x, the lowest of all first. */
static cvn_value *fields(cvn_graph *g, cvn_value *x, int n, int each)
{
    cvn_value *part[8];
    for (int k = 0; k < n; k++) {
        cvn_value *rest = high(g, x, k * each);
        part[k] = low(g, rest, each);
    }
    return cvn_concatenate(g, n, part, BYTES);
}

/* 2^x of whole numbers of so many bits, up to 7, f32: exact. */
static cvn_value *power_of_2(cvn_graph *g, cvn_value *x, int bits)
{
    const cvn_type type = with_dtype(x->type, CVN_F32);
    cvn_value *one = cvn_splat(g, type, 1), *all = one;
    for (int bit = 0; bit < bits; bit++) {
        cvn_value *rest = high(g, x, bit), *set = low(g, rest, 1);
        set = cvn_compare_values(g, CVN_NE, set, like(g, set, 0));
        cvn_value *factor = cvn_select(g, set, cvn_splat(g, type, ldexp(1, 1 << bit)), one);
        all = cvn_multiply(g, all, factor);
    }
    return all;
}

/* Where `negative` is not 0, minus the value. */
static cvn_value *with_sign(cvn_graph *g, cvn_value *negative, cvn_value *value)
{
    negative = cvn_compare_values(g, CVN_NE, negative, like(g, negative, 0));
    return cvn_select(g, negative, cvn_negate(g, value), value);
}

/* The f16 at two bytes, f32 [n, blocks, 1]: sign, 5 bits of exponent, 10 of fraction. */
static cvn_value *half_at(cvn_graph *g, cvn_value *bytes, int at)
{
    cvn_value *upper = field(g, bytes, at + 1, 1), *lower = field(g, bytes, at, 1);
    cvn_value *x = cvn_add(g, lower, times(g, upper, 256));
    cvn_value *fraction = low(g, x, 10), *rest = high(g, x, 10), *exponent = low(g, rest, 5);
    cvn_value *negative = high(g, rest, 5), *zero = like(g, x, 0);
    cvn_value *small = cvn_compare_values(g, CVN_EQ, exponent, zero);
    cvn_value *none = cvn_compare_values(g, CVN_EQ, exponent, like(g, x, 31));
    cvn_value *whole = cvn_add(g, fraction, cvn_select(g, small, zero, like(g, x, 1024)));
    cvn_value *power = power_of_2(g, cvn_maximum(g, exponent, like(g, x, 1)), 5);
    cvn_value *value = cvn_multiply(g, as(g, whole, CVN_F32), power);
    value = times(g, value, 1.0 / (1 << 25));
    cvn_value *exact = cvn_compare_values(g, CVN_EQ, fraction, zero);
    cvn_value *infinite = like(g, value, INFINITY);
    cvn_value *lost = cvn_select(g, exact, infinite, like(g, value, NAN));
    value = cvn_select(g, none, lost, value);
    return with_sign(g, negative, value);
}

/* The finite f32 at four bytes, f32 [n, blocks, 1]. */
static cvn_value *float_at(cvn_graph *g, cvn_value *bytes, int at)
{
    cvn_value *x = field(g, bytes, at, 1);
    for (int i = 1; i < 4; i++)
        x = cvn_add(g, x, times(g, field(g, bytes, at + i, 1), 1 << 8 * i));
    cvn_value *fraction = low(g, x, 23), *rest = high(g, x, 23), *exponent = low(g, rest, 8);
    cvn_value *zero = like(g, x, 0), *least = cvn_maximum(g, exponent, like(g, x, 1));
    cvn_value *small = cvn_compare_values(g, CVN_EQ, exponent, zero);
    cvn_value *whole = cvn_add(g, fraction, cvn_select(g, small, zero, like(g, x, 1 << 23)));
    /* Below 1, times 2^(exponent - 126), without leaving the range on the way. */
    cvn_value *value = times(g, as(g, whole, CVN_F32), 0x1p-24);
    cvn_value *large = cvn_compare_values(g, CVN_NE, high(g, least, 7), zero);
    cvn_value *one = like(g, value, 1), *up = like(g, value, 4), *down = like(g, value, 0x1p-126);
    value = cvn_multiply(g, value, cvn_select(g, large, up, one));
    value = cvn_multiply(g, value, power_of_2(g, low(g, least, 7), 7));
    value = cvn_multiply(g, value, cvn_select(g, large, one, down));
    return with_sign(g, high(g, rest, 8), value);
}

/* Codes as the floats that they are (base/float8.h), without those that are not finite. */
static cvn_value *floats_of(cvn_graph *g, cvn_value *code, int fraction)
{
    cvn_value *bits = low(g, code, 7), *exponent = high(g, bits, fraction),
              *zero = like(g, code, 0);
    cvn_value *small = cvn_compare_values(g, CVN_EQ, exponent, zero);
    cvn_value *one = cvn_select(g, small, zero, like(g, code, 1 << fraction));
    cvn_value *whole = as(g, cvn_add(g, low(g, bits, fraction), one), CVN_F32);
    cvn_value *least = cvn_maximum(g, exponent, like(g, code, 1));
    cvn_value *value = cvn_multiply(g, whole, power_of_2(g, least, 5));
    value = times(g, value, ldexp(1, -f8_bias(fraction) - fraction));
    return with_sign(g, high(g, code, 7), value);
}

static cvn_value *codes_of(cvn_graph *g, cvn_value *bytes, const BlockPlaces *p)
{
    cvn_value *codes = NULL;
    if (p->code == CODE_8) { /* signed */
        cvn_value *x = field(g, bytes, p->codes, 32);
        return low(g, cvn_add(g, x, like(g, x, 128)), 8);
    }
    for (int i = 0; i < p->runs; i++) {
        cvn_value *run = fields(g, field(g, bytes, p->codes + i * p->run, p->run), 2, 4);
        if (p->two) {
            cvn_value *two = fields(g, field(g, bytes, p->two + 32 * i, 32), 4, 2);
            run = cvn_add(g, run, times(g, two, 16));
        }
        codes = codes ? beside(g, codes, run) : run;
    }
    cvn_value *more = NULL;
    if (p->fifth) { /* bits 8 j + k of 4 bytes j, [n, blocks, 32] */
        cvn_value *x = field(g, bytes, p->fifth, 4);
        const int64_t *dim = x->type.dim;
        const int64_t byte[] = {dim[0] * dim[1], 4, 1}, all[] = {dim[0], dim[1], 32};
        more = cvn_reshape(g, fields(g, cvn_reshape(g, x, 3, byte), 8, 1), 3, all);
    } else if (p->high) {
        more = fields(g, field(g, bytes, p->bits, 32), 8, 1);
    }
    return more ? cvn_add(g, codes, times(g, more, 16)) : codes;
}

/* What codes of each group are multiplied by, or what is taken off, f32 [n, blocks, groups]. */
static cvn_value *scales_of(cvn_graph *g, cvn_value *bytes, const BlockPlaces *p, bool minimum)
{
    cvn_value *d = half_at(g, bytes, minimum ? p->m : p->d), *whole;
    if (p->scale == SCALES_NONE)
        return minimum ? cvn_negate(g, d) : d;
    if (p->scale == SCALES_6_MINIMA) {
        cvn_value *last = field(g, bytes, p->scales + 8, 4);
        last = minimum ? high(g, last, 4) : low(g, last, 4);
        /* Four numbers of 6 bits, and four of which the lower bits are elsewhere. */
        cvn_value *x = field(g, bytes, p->scales + (minimum ? 4 : 0), 4);
        cvn_value *first = low(g, x, 6), *upper = high(g, x, 6);
        last = cvn_add(g, last, times(g, upper, 16));
        whole = as(g, beside(g, first, last), CVN_F32);
    } else {
        cvn_value *x = field(g, bytes, p->scales, 16);
        whole = as(g, low(g, cvn_add(g, x, like(g, x, 128)), 8), CVN_F32);
        whole = cvn_subtract(g, whole, like(g, whole, 128));
    }
    return cvn_multiply(g, whole, spread(g, d, &whole->type, (const int[]){0, 1, 2}));
}

cvn_value *decompose_blocks(cvn_graph *g, cvn_value *w, BlockKind kind, bool panels)
{
    const BlockInfo *info = &block_info[kind];
    const BlockPlaces *p = info->places;
    bool codes_known =
        p->code == CODE_8 || p->code == CODE_FLOATS || (p->code == CODE_4 && !info->form.table);
    if (panels || !codes_known) {
        graph_fail(g, CVN_EUNSUPPORTED,
                   "weights in blocks of %s cannot be decomposed into plain operations; use the "
                   "model with --quantize none",
                   info->name);
        return g->poison;
    }
    int64_t blocks = w->type.dim[w->type.rank - 2];
    int64_t n = cvn_type_elements(&w->type) / (blocks * info->bytes);
    int64_t group = info->form.group, groups = info->elements / group;
    const int64_t all[] = {n, blocks, info->bytes}, apart[] = {n, blocks, groups, group};
    cvn_value *bytes = cvn_reshape(g, as(g, w, CVN_I32), 3, all);
    bytes = cvn_add(g, bytes, like(g, bytes, 256)); /* without sign */
    bytes = low(g, as(g, bytes, CVN_U32), 8);
    if (info->form.fraction) {
        cvn_value *codes = floats_of(g, field(g, bytes, p->codes, p->run), info->form.fraction);
        codes = cvn_reshape(g, codes, 4, apart);
        return cvn_multiply(g, codes, spread_over(g, float_at(g, bytes, p->d), &codes->type, 3));
    }
    cvn_value *codes = as(g, cvn_reshape(g, codes_of(g, bytes, p), 4, apart), CVN_F32);
    if (info->form.offset)
        codes = cvn_subtract(g, codes, like(g, codes, info->form.offset));
    cvn_value *scales = scales_of(g, bytes, p, false);
    cvn_value *value = cvn_multiply(g, codes, spread_over(g, scales, &codes->type, 3));
    if (info->form.minimum) {
        cvn_value *least = scales_of(g, bytes, p, true);
        value = cvn_subtract(g, value, spread_over(g, least, &codes->type, 3));
    }
    return value;
}
