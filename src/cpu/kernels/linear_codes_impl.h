/*
 * Tiles of quantized weights, in blocks (graph/blocks.h), of 4 bits and of 8 bits, on the vectors of vec_codes.h: written
 * once, compiled for each instruction set. linear.h says what is computed.
 *
 * One row or few: codes are unpacked from their planes into registers, 16 columns at a time, and multiplied at once; each
 * kind of blocks has a function of its own, because its form is a constant there:
 *
 *     low half of a byte     and 15                        high half     shift by 4
 *     two more bits          shift to their place, and or  one more bit  bits spread to bytes, and or
 *     a table                one shuffle
 *
 * More rows: a span of a panel or two is unpacked into L1 first, as what multiplies (with its scales and minima in f32), and
 * all rows find it there. All kinds whose groups are as long are multiplied alike then.
 *
 * Integers of a group become a float once, times the group's scale. A row's sums have one order, whatever is beside it.
 */
#include "cpu/kernels/constant_rows.h"
#include "cpu/kernels/linear_tile.h"
#include "cpu/kernels/vec.h"
#include "cpu/kernels/vec_codes.h"

/* gcc looks for vectors beyond those of a block */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

/* What is multiplied. KEPT: what block() unpacked before. ROWS8: of 8 bits like I8, but what leaves are whole numbers. */
typedef enum Weights { BLOCKS, I4, I8, ROWS8, KEPT } Weights;

typedef struct Form {
    BlockForm of; /* of KEPT only group and minimum, or base as I4 or I8 has it; of those nothing */
    Weights weights;
    bool wide; /* codes of 8 bits */
    int bits;  /* of a code at most */
} Form;

#if defined(__AVX512F__) || defined(__aarch64__)
enum { SUMS = 24 }; /* of 32 registers */
#else
enum { SUMS = 12 }; /* of 16 */
#endif

enum {
    ROWS = CODE_PARTS == 1 ? 12 : 8, /* at a time at most */
    VECTORS = 4 * CODE_PARTS,
    SIXTEEN = 16 / PANEL_QUAD, /* quads that are unpacked at a time */
    KEPT_PANELS = CODE_PARTS == 1 ? 2 : 1,
    DIRECT = 4, /* rows that are multiplied at a time while codes are unpacked */
    FIRST =     /* rows that are multiplied while panels are unpacked to be kept */
    CODE_SUMS == 2 && CODE_PARTS <= 2 ? 4 : 0,
    /* Blocks are always kept where portable code unpacks them, which takes long to compile: a function per kind is enough. */
    KEEPS = CODE_SUMS == 1 && CODE_PARTS > 2,
#if defined(CODES_PAIRS)
    PAIRS = true /* kept codes meet two rows of x at a time */
#else
    PAIRS = false
#endif
};

/* Vectors of kept panels that are multiplied at a time. */
VEC_INLINE int kept_at_once(const bool eight)
{
    return KEPT_PANELS * CODE_PARTS / (PAIRS && !eight ? 2 : 1);
}

/* How many rows are multiplied at a time with kept panels. */
VEC_INLINE int kept_rows(const bool eight)
{
    const int sums = eight ? 1 : CODE_SUMS, vectors = kept_at_once(eight);
    const int rows = (CODE_PARTS == 1 ? 16 : SUMS) / sums / vectors;
    return rows >= 8 ? 8 : PAIRS ? rows / 2 * 2 : rows >= 4 ? 4 : rows;
}

VEC_INLINE Form form_of(const BlockForm b)
{
    const bool wide = b.base == 8 || b.table == block_iq4_step;
    const int bits = b.base + (b.two != NO_PLANE ? 2 : 0) + (b.one != NO_PLANE ? 1 : 0);
    return (Form){b, BLOCKS, wide, wide ? 8 : b.table ? 5 : bits};
}

/* Rows up to which a tile has LINEAR_BLOCK panels, as measured (Zen 4, Emerald Rapids): where a panel is one vector, its
   registers are enough for four of 8 bits. */
enum { FEW = CODE_PARTS == 1 ? 2 : 1, FEW_ROWS8 = CODE_PARTS == 1 ? 6 : 1 };

/* Panels that M rows take at a time where codes are unpacked on the way. Of one row several, because memory gives several
   streams more than one; fewer where the sums, or the table that codes are looked up in, would leave no registers to unpack in. */
VEC_INLINE int direct_panels(const int M, const bool eight, const Form f)
{
    const int vectors = f.of.table ? CODE_PARTS : eight || (f.wide && CODE_SUMS == 1) ? 8 : 4;
    const int registers = SUMS / (eight ? 1 : CODE_SUMS);
    const int few = f.weights == ROWS8 ? FEW_ROWS8 : f.weights == I8 ? FEW : 1;
    if (CODE_PARTS == 1 && M > 1)
        return M <= few ? LINEAR_BLOCK : registers / M >= 2 ? 2 : 1;
    if (M > 1 || CODE_PARTS > 2)
        return 1;
    return CODE_PARTS == 1 ? LINEAR_BLOCK : vectors / CODE_PARTS;
}

/* Of so many rows those that are multiplied at a time while codes are unpacked, for which there are registers. Seven and eight
   rows of 8 bits meet one panel at a time, because two tiles would read it twice. */
VEC_INLINE int direct_rows(const bool eight, const Form f, int rows)
{
    const int sums = CODE_PARTS * (eight ? 1 : CODE_SUMS);
    if (CODE_PARTS == 1 && f.weights != BLOCKS)
        return f.weights == I4 || (f.weights == I8 && rows <= 8) ? 8 : SUMS / 2 / sums;
    return DIRECT * sums > SUMS ? 2 : DIRECT;
}

/* A panel, as it lies. */
typedef struct Stream {
    const uint8_t *q, *ahead; /* of a chunk; what is asked for at the same time */
    int64_t scale; /* of I4: the element of its scales at which those of this panel begin */
} Stream;

VEC_INLINE int offset_of(const Form f)
{
    if (f.weights == I4)
        return 8;
    if (f.wide)
        return codes_signed(true) ? 0 : 128;
    return f.of.table ? 16 : f.of.offset;
}

/* Of forms with a table: it, with the offset added. */
VEC_INLINE vb table_of(const Form f)
{
    uint8_t table[16] = {0};
    for (int i = 0; f.of.table && i < 16; i++)
        table[i] = (uint8_t)(f.of.table[i] + offset_of(f));
    return vb_table(table);
}

/* A unit of 64 bytes: those of one part of the panel's rows. */
VEC_INLINE vb unit_at(const Stream *s, int64_t at, const int part)
{
    if (part == 0)
        __builtin_prefetch(s->ahead + at, 0, 2);
    return vb_load(s->q + at + part * CODE_BYTES);
}

/* Quads that unpack() makes at a time. */
VEC_INLINE int step_of(const Form f)
{
    return f.weights == I4 ? 2 : f.weights == I8 || f.weights == ROWS8 ? 1 : SIXTEEN;
}

/* Whether codes are halves of bytes and nothing else: they leave unpack() together, code[i + 1] above code[i]. */
VEC_INLINE bool in_halves(const Form f)
{
    return f.weights == I4 || (f.weights == BLOCKS && f.of.base == 4 && f.of.two == NO_PLANE &&
                               f.of.one == NO_PLANE && !f.of.table);
}

/* What code[u] is multiplied as. */
VEC_INLINE Factor factor_of(const bool eight, const Form f, const vb code[SIXTEEN], const int u)
{
    return in_halves(f) ? codes_half(eight, code[u / 2 * 2], u % 2)
                        : codes_factor(eight, f.wide, code[u]);
}

/* Up to how many rows unpacking codes again for each DIRECT of them takes less than keeping them: codes that are widened take
   twice the room. As measured (AVX2 on Zen 3, AVX-512 on Emerald Rapids). */
VEC_INLINE int direct_most(const Form f)
{
    if (KEEPS && f.weights == BLOCKS)
        return 0;
    if (CODE_SUMS == 2)
        return CODE_PARTS == 1 && f.weights == I4 ? 10 : DIRECT;
    return f.wide ? 3 * DIRECT : in_halves(f) ? 2 * DIRECT : DIRECT;
}

/* The codes of step `at` of a chunk. */
VEC_INLINE void unpack(const Form f, const BlockChunk *c, const Stream *s, int64_t at,
                       const int part, vb table, vb code[SIXTEEN])
{
    const vb flip =
        vb_splat(codes_signed(true) ? 0 : 128); /* codes of 8 bits lie as signed numbers */
    const BlockForm b = f.of;
    if (f.weights == I4) {
        code[0] = unit_at(s, at * PANEL_BYTES, part) ^ 0x88;
        return;
    }
    if (f.weights != BLOCKS) {
        code[0] = unit_at(s, at * PANEL_BYTES, part) ^ flip;
        return;
    }
#pragma GCC unroll 4
    for (int i = 0; i < SIXTEEN; i++) {
        if (b.base == 8) {
            code[i] = unit_at(s, (SIXTEEN * at + i) * PANEL_BYTES, part) ^ flip;
        } else if (b.base == 4 && i % 2 == 0) {
            const vb both = unit_at(s, (2 * at + i / 2) * PANEL_BYTES, part);
            code[i] = in_halves(f) ? both : both & 15;
            code[i + 1] = both >> 4;
        }
    }
    if (b.two != NO_PLANE) {
        const vw two = (vw)unit_at(s, c->two + at * PANEL_BYTES, part);
        const vb mask = vb_splat((uint8_t)(3 << b.two));
#pragma GCC unroll 4
        for (int i = 0; i < SIXTEEN; i++) {
            const int up = b.two - 2 * i;
            const vb bits =
                (vb)(up > 0 ? two << (up > 0 ? up : 0) : two >> (up > 0 ? 0 : -up)) & mask;
            code[i] = b.base ? code[i] | bits : bits;
        }
    }
    if (b.one != NO_PLANE)
#pragma GCC unroll 4
        for (int i = 0; i < SIXTEEN; i++)
            code[i] =
                vb_with(code[i], s->q + c->one + (SIXTEEN * at + i) * 8 + part * CODE_BYTES / 8,
                        (uint8_t)(1 << b.one));
    if (b.table)
#pragma GCC unroll 4
        for (int i = 0; i < SIXTEEN; i++)
            code[i] = vb_lookup(table, code[i]);
}

/* Scales (or minima) of a group; d: what whole numbers are times. */
VEC_INLINE vf scale_of(const BlockForm f, const uint8_t *at, int64_t g, const int part, vf d,
                       const bool minimum)
{
    const int64_t i = g * PANEL_ROWS + part * VN;
    if (f.scale == BLOCK_F16)
        return vf_load_f16(at + 2 * i);
    if (f.scale == BLOCK_BF16)
        return vf_load_bf16((const uint16_t *)(const void *)(at + 2 * i));
    if (f.scale == BLOCK_WHOLE)
        return vf_of_bytes((const int8_t *)at + i) * d;
    const vi both = vi_load_u8(at + i), whole = minimum ? both >> 4 : both & 15;
    return __builtin_convertvector(whole, vf) * d;
}

/* As add_group() wants it. */
VEC_INLINE vf minimum_of(const bool eight, const BlockForm f, const BlockChunk *c,
                         const uint8_t *chunk, int64_t g, const int part, vf m)
{
    const uint8_t *at = chunk + (f.scale == BLOCK_NIBBLES ? c->scale : c->minimum);
    const vf minimum = scale_of(f, at, g, part, m, true);
    return minimum * vf_splat(eight ? 1 : 0.125f);
}

/* Minus the sum of x over a group; of fixed point 8 times that. */
VEC_INLINE int32_t minus_of(const bool eight, const LinearSpan *span, int64_t g)
{
    return eight ? span->minus[g] : span->minus8[g];
}

/* sum + what group g adds. */
VEC_INLINE vf add_group(const bool eight, const bool minima, const LinearSpan *span, int64_t g,
                        vi total, vf scale, vf minimum, vf sum)
{
    sum = vf_fma(__builtin_convertvector(total, vf), scale, sum);
    const int32_t *minus = eight ? &span->minus[g] : &span->minus8[g];
    const vi of_x = vi_word((const int8_t *)minus); /* which is read into all lanes at once */
    return minima ? vf_fma(__builtin_convertvector(of_x, vf), minimum, sum) : sum;
}

/* The scales of I4 from element `at` on. */
VEC_INLINE vf own_scale(const LinearTile *t, int64_t at)
{
    return t->scale_dtype == CVN_F32 ? vf_load((const float *)t->scale + at)
                                     : vf_load_bf16((const uint16_t *)t->scale + at);
}

/* Where sums go: what of a tile is read before they are written. */
typedef struct Target {
    float *c;
    int64_t stride; /* floats from panel to panel */
    bool add;
} Target;

VEC_INLINE Target target_of(const LinearTile *t)
{
    return (Target){t->c, t->c_stride, t->add};
}

VEC_INLINE float *sums_at(const Target t, int r, int vector)
{
    return t.c + vector / CODE_PARTS * t.stride + r * PANEL_ROWS + vector % CODE_PARTS * VN;
}

/* Whole numbers that leave as they are. */
VEC_INLINE void add_whole(float *to, bool add, vi sum)
{
    vi before = {0};
    if (add)
        memcpy(&before, to, sizeof before);
    sum += before;
    memcpy(to, &sum, sizeof sum);
}

/* Adds a span's sums to c; or those of chunk i of rows in 8 bits, which begin again then. */
VEC_INLINE void add_sums(const LinearTile *t, const int M, const int N, int r0, int vector,
                         vf sum[ROWS][VECTORS], int64_t i)
{
    const Target target = target_of(t);
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) {
        const LinearSpan *span = &t->span[r0 + r];
        const vf scale = vf_splat(i < 0 ? span->scale : span->step[i]);
#pragma GCC unroll 16
        for (int v = 0; v < N; v++) {
            float *to = sums_at(target, r0 + r, vector + v);
            vf_store(to, vf_fma(sum[r][v], scale, target.add || i > 0 ? vf_load(to) : vf_zero()));
            sum[r][v] = vf_zero();
        }
    }
}

/* Vectors in which the factors of a quad are kept. */
VEC_INLINE int kept_vectors(const bool eight, const Form f)
{
    return eight && !f.wide && CODES_IN_BYTES ? 1 : CODE_FACTORS;
}

VEC_INLINE vi *kept_at(const LinearCodes *k, const int vectors, int64_t quad, const int part)
{
    return (vi *)(void *)k->code + (quad * CODE_PARTS + part) * vectors;
}

/* After how many quads sums are settled within a group of so many columns; 0: once, after it. */
VEC_INLINE int settle_after(const bool eight, const Form f)
{
    const int most = eight ? codes_settled(f.bits) : CODES_NEVER;
    return most >= f.of.group / PANEL_QUAD ? 0 : most >= SIXTEEN ? SIXTEEN : most >= 2 ? 2 : 1;
}

VEC_INLINE void settle(const bool eight, const Form f, const int M, const int N,
                       Sum sum[ROWS][VECTORS])
{
#pragma GCC unroll 16
    for (int r = 0; r < M; r++)
#pragma GCC unroll 16
        for (int v = 0; v < N; v++)
            codes_settle(eight, f.wide, &sum[r][v]);
}

/* Adds one quad of N vectors to the sums of M rows. */
VEC_INLINE void add_quad(const bool eight, const Form f, const int M, const int N, const int8_t *x,
                         const Factor w[VECTORS], Sum sum[ROWS][VECTORS])
{
    const int row = eight ? LINEAR_SPAN : LINEAR_ROW_BYTES;
#pragma GCC unroll 16
    for (int r = 0; r < M; r++) {
        if (CODES_BROADCAST && N == 1) {
            codes_add_at(eight, &sum[r][0], w[0], x + r * row);
            continue;
        }
        const Quad four = codes_x(eight, f.wide, x + r * row);
#pragma GCC unroll 16
        for (int v = 0; v < N; v++)
            codes_add(eight, f.wide, &sum[r][v], w[v], four);
    }
}

/* The same of two quads and pairs of rows. total[r] and total[r + 1] are of rows r and r + 1 of x and of two rows of a panel
   each; of an odd last row the pair is itself. */
VEC_INLINE void add_pairs(const bool eight, const int M, const int N, const int8_t *x, const vi *w,
                          const int between, Sum sum[ROWS][VECTORS])
{
#if defined(CODES_PAIRS)
    const int row = eight ? LINEAR_SPAN : LINEAR_ROW_BYTES;
#pragma GCC unroll 16
    for (int r = 0; r < M; r += 2) {
        const int8_t *first = x + r * row;
        const Quad pair = codes_x_pair(eight, first, r + 1 < M ? first + row : first);
#pragma GCC unroll 16
        for (int v = 0; v < N; v++) {
            codes_add_pair(eight, &sum[r][v], w[v], pair);
            codes_add_pair(eight, &sum[r + 1][v], w[between + v], pair);
        }
    }
#else
    (void)eight, (void)M, (void)N, (void)x, (void)w, (void)between, (void)sum;
#endif
}

/* What row r has in all. */
VEC_INLINE vi total_of(const bool eight, const bool pairs, const int r, const int v,
                       Sum sum[ROWS][VECTORS])
{
#if defined(CODES_PAIRS)
    if (pairs)
        return codes_total_pair(eight, r % 2, &sum[r / 2 * 2][v], &sum[r / 2 * 2 + 1][v]);
#endif
    (void)pairs;
    return codes_total(eight, &sum[r][v]);
}

/* How a span is walked: so many chunks of so many groups of so many steps. */
typedef struct CodeSteps {
    int64_t chunks, groups, steps;
    int64_t bytes; /* of a chunk in a panel */
} CodeSteps;

VEC_INLINE CodeSteps walk_of(const bool eight, const Form f, const LinearTile *t)
{
    switch (f.weights) {
    case BLOCKS:
        return (CodeSteps){t->units, t->chunk->groups, f.of.group / 16, t->chunk->bytes};
    case KEPT:
        if (f.of.group) /* chunks matter where each has a step */
            return (CodeSteps){eight ? t->units : 1,
                               eight ? t->chunk->groups : t->units * t->chunk->groups,
                               f.of.group / 16, 0};
        if (f.of.base == 4) /* I4: groups of units of 8 columns */
            return (CodeSteps){1, t->units / t->group, t->group / 2, 0};
        return (CodeSteps){1, 1, t->units / SIXTEEN, 0};
    case I4:
        return (CodeSteps){t->units / t->group, 1, t->group, t->group * PANEL_BYTES};
    default:
        return (CodeSteps){1, 1, t->units, 0};
    }
}

/* Whether M rows from r0 on ask for what comes after a panel: the first rows do; of many the next ones for each second panel, so
   that requests are as even as they can be. */
VEC_INLINE bool asks_for(const Form f, const int M, const LinearTile *t, int r0, int panel)
{
    if (f.weights == BLOCKS || t->rows <= LINEAR_STREAMED || t->rows <= M)
        return r0 == 0;
    return panel % 2 ? r0 > 0 && r0 < 2 * M : r0 == 0;
}

/* M rows, if any, from row r0 on and N vectors of rows of panels from the given one on; constants, and the form too. k: of
   these panels, where `keep` leaves what it unpacks, and KEPT finds it. */
VEC_INLINE void block(const bool eight, const Form f, const bool keep, const int M, const int N,
                      const LinearTile *t, LinearCodes *k, int r0, int vector)
{
    const bool kept = f.weights == KEPT, pairs = PAIRS && kept, blocks = f.weights == BLOCKS,
               half = blocks && f.of.scale >= BLOCK_WHOLE,
               alone = M == 1 && !kept && !keep && !f.of.table, together = !alone && !pairs;
    const int paired = pairs ? M + M % 2 : M;
    const int quads = step_of(f), vectors = kept_vectors(eight, f),
              settled = settle_after(eight, f);
    const int number = kept ? k->offset : offset_of(f);
    const CodeSteps walk = walk_of(eight, f, t);
    const Target target = target_of(t);
    const BlockChunk *c = t->chunk;
    const LinearSpan *span = t->span + r0;
    const int8_t *x = (const int8_t *)t->x + r0 * (eight ? LINEAR_SPAN : LINEAR_ROW_BYTES);
    const vb table = table_of(f);
    Stream s[VECTORS];
    vf sum[ROWS][VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < N; v++) {
        const int panel = (vector + v) / CODE_PARTS;
        s[v].q = t->q + panel * t->q_stride;
        s[v].ahead = asks_for(f, M, t, r0, panel) ? t->ahead[panel] : s[v].q;
        s[v].scale = panel * t->scale_stride;
#pragma GCC unroll 16
        for (int r = 0; r < M; r++)
            sum[r][v] = vf_zero();
    }
    int64_t group = 0, quad = 0; /* of the span */
    for (int64_t i = 0; i < walk.chunks; i++) {
        vf d[VECTORS], m[VECTORS];
#pragma GCC unroll 16
        for (int v = 0; v < N; v++) {
            const int64_t at = 2 * VN * ((vector + v) % CODE_PARTS);
            d[v] = half ? vf_load_f16(s[v].q + c->d + at) : vf_zero();
            m[v] = half && f.of.minimum ? vf_load_f16(s[v].q + c->m + at) : vf_zero();
        }
        for (int64_t g = 0, at = 0; g < walk.groups; g++, group++) {
            Sum total[ROWS][VECTORS];
            vi first[ROWS]; /* what takes the offset of codes back */
#pragma GCC unroll 16
            for (int r = 0; r < M; r++) {
                const int32_t one = f.weights == ROWS8 ? -t->sum[r0 + r]
                                    : f.of.minimum
                                        ? 0
                                        : minus_of(eight, &span[r], group) >> (eight ? 0 : 3);
                first[r] = vi_splat(one * number);
            }
#pragma GCC unroll 16
            for (int r = 0; r < paired; r++)
#pragma GCC unroll 16
                for (int v = 0; v < N; v++)
                    total[r][v] = (Sum){pairs ? vi_splat(0) : first[r], {0}};
            for (int64_t step = 0; step < walk.steps; step++, at++) {
                vb code[VECTORS][SIXTEEN];
#pragma GCC unroll 16
                for (int v = 0; v < N && !kept; v++) {
                    unpack(f, c, &s[v], at, (vector + v) % CODE_PARTS, table, code[v]);
#pragma GCC unroll 4
                    for (int u = 0; u < quads && alone;
                         u++) { /* before the next ones are unpacked */
                        const Quad four = codes_x(eight, f.wide, x + u * codes_quad(eight));
                        codes_add(eight, f.wide, &total[0][v], factor_of(eight, f, code[v], u),
                                  four);
                        if (settled && u % settled == settled - 1)
                            codes_settle(eight, f.wide, &total[0][v]);
                    }
                }
                if (alone)
                    x += quads * codes_quad(eight);
#pragma GCC unroll 4
                for (int u = 0; u < quads && pairs; u += 2, quad += 2, x += 2 * codes_quad(eight))
                    add_pairs(eight, M, N, x, kept_at(k, 1, quad, vector % CODE_PARTS), CODE_PARTS,
                              total);
#pragma GCC unroll 4
                for (int u = 0; u < quads && together; u++, quad++, x += codes_quad(eight)) {
                    Factor w[VECTORS];
#pragma GCC unroll 16
                    for (int v = 0; v < N; v++) {
                        vi *in = k ? kept_at(&k[v / CODE_PARTS], vectors, quad,
                                             (vector + v) % CODE_PARTS)
                                   : NULL;
                        w[v] = kept ? (Factor){in[0], in[vectors - 1]}
                                    : factor_of(eight, f, code[v], u);
                        if (keep)
                            in[0] = w[v].a;
                        if (keep && vectors > 1)
                            in[1] = w[v].b;
                    }
                    add_quad(eight, f, M, N, x, w, total);
                    if (settled && u % settled == settled - 1)
                        settle(eight, f, M, N, total);
                }
            }
            if (!settled)
                settle(eight, f, M, N, total);
#pragma GCC unroll 16
            for (int v = 0; v < N; v++) {
                const int part = (vector + v) % CODE_PARTS;
                const int64_t line = group * PANEL_ROWS + part * VN;
                vf scale = vf_splat(1), minimum = vf_zero();
                if (kept) {
                    scale = vf_load(k[v / CODE_PARTS].scale + line);
                    minimum = f.of.minimum ? vf_load(k[v / CODE_PARTS].minimum + line) : minimum;
                } else if (f.weights == I4) {
                    scale = own_scale(t, s[v].scale + line);
                } else if (blocks) {
                    scale = scale_of(f.of, s[v].q + c->scale, g, part, d[v], false);
                    if (f.of.minimum)
                        minimum = minimum_of(eight, f.of, c, s[v].q, g, part, m[v]);
                }
                if (keep) {
                    vf_store(k[v / CODE_PARTS].scale + line, scale);
                    if (f.of.minimum)
                        vf_store(k[v / CODE_PARTS].minimum + line, minimum);
                }
#pragma GCC unroll 16
                for (int r = 0; r < M; r++) {
                    const vi sums = total_of(eight, pairs, r, v, total);
                    const vi all = pairs ? sums + first[r] : sums;
                    if (f.weights == ROWS8)
                        add_whole(sums_at(target, r0 + r, vector + v), target.add, all);
                    else
                        sum[r][v] = add_group(eight, f.of.minimum, &span[r], group, all, scale,
                                              minimum, sum[r][v]);
                }
            }
        }
        if (eight && f.weights != ROWS8)
            add_sums(t, M, N, r0, vector, sum, i);
#pragma GCC unroll 16
        for (int v = 0; v < N && !kept; v++) {
            if (blocks && (vector + v) % CODE_PARTS == 0)
                for (int64_t line = c->one; line < c->bytes; line += PANEL_BYTES)
                    __builtin_prefetch(s[v].ahead + line, 0, 2);
            s[v].q += walk.bytes;
            s[v].ahead += walk.bytes;
        }
    }
    if (!eight)
        add_sums(t, M, N, r0, vector, sum, -1);
}

/* M rows from row r0 on, all panels from the given vector on, as codes are unpacked. */
VEC_INLINE void direct(const int M, const bool eight, const Form f, const LinearTile *t, int r0,
                       int vector)
{
    if (M > direct_rows(eight, f, 1))
        return;
    const int end = t->panels * CODE_PARTS, N = direct_panels(M, eight, f) * CODE_PARTS;
    for (; vector + N <= end; vector += N)
        block(eight, f, false, M, N, t, NULL, r0, vector);
    for (; N > CODE_PARTS && vector < end; vector += CODE_PARTS)
        block(eight, f, false, M, CODE_PARTS, t, NULL, r0, vector);
}

/* All rows from row r on with vectors of panels that are kept. */
VEC_INLINE void kept_part(const bool eight, const Form f, const LinearTile *t, LinearCodes *k,
                          int r, int vector)
{
    const int N = kept_at_once(eight), M = kept_rows(eight);
    for (; t->rows - r >= M; r += M)
        block(eight, f, false, M, N, t, k, r, vector);
    if (M > 4 && t->rows - r >= 4) {
        block(eight, f, false, 4, N, t, k, r, vector);
        r += 4;
    }
    for (; M > 2 && t->rows - r >= 2; r += 2)
        block(eight, f, false, 2, N, t, k, r, vector);
    if (t->rows > r)
        block(eight, f, false, 1, N, t, k, r, vector);
}

/* And with all KEPT_PANELS. */
VEC_INLINE void kept_panels(const bool eight, const Form f, const LinearTile *t, LinearCodes *k,
                            int r, int vector)
{
    const int end = vector + KEPT_PANELS * CODE_PARTS;
    for (; vector < end; vector += kept_at_once(eight))
        kept_part(eight, f, t, k, r, vector);
}

/* Brings what was kept to pairs of quads. */
VEC_INLINE void pair_kept(const Form f, const LinearTile *t, LinearCodes *k)
{
#if defined(CODES_PAIRS)
    const int64_t quads = f.weights == BLOCKS ? t->units * t->chunk->columns / PANEL_QUAD
                          : f.weights == I4   ? 2 * t->units
                                              : t->units;
    for (int64_t quad = 0; quad < quads; quad += 2)
        for (int part = 0; part < CODE_PARTS; part++)
            codes_pair(kept_at(k, 1, quad, part), kept_at(k, 1, quad + 1, part));
#else
    (void)f, (void)t, (void)k;
#endif
}

/* Kinds whose groups are as long, and whose sums are settled as often, are alike once they are kept. */
typedef void Kept(const LinearTile *t, LinearCodes *k, int r, int vector);
#define KEPT_FORM(name, eight, is_wide, most, ...)                                                 \
    static void name(const LinearTile *t, LinearCodes *k, int r, int vector)                       \
    {                                                                                              \
        const Form f = {.of = {__VA_ARGS__}, .weights = KEPT, .wide = is_wide, .bits = most};      \
        kept_panels(eight, f, t, k, r, vector);                                                    \
    }
KEPT_FORM(fixed_4, false, false, 4, .base = 4)
KEPT_FORM(fixed_8, false, true, 8, .base = 8)
KEPT_FORM(fixed_16, false, false, 8, .group = 16)
KEPT_FORM(fixed_16_minima, false, false, 8, .group = 16, .minimum = true)
KEPT_FORM(fixed_32, false, false, 8, .group = 32)
KEPT_FORM(fixed_32_minima, false, false, 8, .group = 32, .minimum = true)
KEPT_FORM(fixed_256, false, false, 8, .group = 256)
KEPT_FORM(eight_16, true, false, 6, .group = 16)
KEPT_FORM(eight_16_minima, true, false, 2, .group = 16, .minimum = true)
KEPT_FORM(eight_32, true, false, 4, .group = 32)
KEPT_FORM(eight_32_5, true, false, 5, .group = 32)
KEPT_FORM(eight_32_wide, true, true, 8, .group = 32)
KEPT_FORM(eight_32_minima, true, false, 4, .group = 32, .minimum = true)
KEPT_FORM(eight_32_minima_5, true, false, 5, .group = 32, .minimum = true)
KEPT_FORM(eight_256, true, false, 2, .group = 256)

VEC_INLINE Kept *kept_form(const bool eight, const Form f)
{
    const bool minima = f.of.minimum, five = f.bits > 4;
    switch (f.weights == BLOCKS ? f.of.group : 0) {
    case 16:
        return eight ? (minima ? eight_16_minima : eight_16) : minima ? fixed_16_minima : fixed_16;
    case 32:
        if (!eight)
            return minima ? fixed_32_minima : fixed_32;
        if (f.wide)
            return eight_32_wide;
        return minima ? (five ? eight_32_minima_5 : eight_32_minima) : five ? eight_32_5 : eight_32;
    case 256:
        return eight ? eight_256 : fixed_256;
    default:
        return f.weights == I4 ? fixed_4 : fixed_8;
    }
}

/* Whether a span of the weight can be kept: it is walked 16 columns at a time then. */
VEC_INLINE bool can_keep(const Form f, const LinearTile *t)
{
    return f.weights == BLOCKS || (f.weights == I4 && t->group % 2 == 0) ||
           (f.weights == I8 && !CODES_AS_THEY_LIE && t->units % SIXTEEN == 0);
}

/* Any number of rows. */
VEC_INLINE void all_rows(const bool eight, const Form f, const LinearTile *t)
{
    vi code[KEPT_PANELS][LINEAR_SPAN / PANEL_QUAD * CODE_PARTS * CODE_FACTORS];
    LinearCodes k[KEPT_PANELS];
    int vector = 0, r = 0;
    for (int j = 0; j < KEPT_PANELS; j++) {
        k[j].code = (uint8_t *)code[j];
        k[j].offset = offset_of(f);
    }
    for (; t->rows > direct_most(f) && can_keep(f, t) &&
           vector + KEPT_PANELS * CODE_PARTS <= t->panels * CODE_PARTS;
         vector += KEPT_PANELS * CODE_PARTS) {
        block(eight, f, true, FIRST, KEPT_PANELS * CODE_PARTS, t, k, 0, vector);
        pair_kept(f, t, k);
        kept_form(eight, f)(t, k, FIRST, vector);
    }
    const int most = direct_rows(eight, f, t->rows);
    if (direct_most(f) == 0)
        return;
    if (f.weights != BLOCKS) { /* as many rows each time */
        int times = t->rows > most ? (t->rows + most - 1) / most : 1;
        for (int n; times > 0; times--, r += n) {
            n = times > 1 ? (t->rows - r + times - 1) / times : t->rows - r;
            CONSTANT_ROWS_12(n, direct, eight, f, t, r, vector);
        }
        return;
    }
    for (; t->rows - r >= most; r += most)
        direct(most, eight, f, t, r, vector);
    if (CODE_PARTS == 1 && t->rows - r == 3) {
        direct(3, eight, f, t, r, vector);
        return;
    }
    for (; t->rows - r >= 2; r += 2)
        direct(2, eight, f, t, r, vector);
    if (t->rows > r)
        direct(1, eight, f, t, r, vector);
}

#define BLOCKS_OF(kind, name, elements, bytes)                                                     \
    static void tile_##name(const LinearTile *t)                                                   \
    {                                                                                              \
        const Form f = form_of((BlockForm)BLOCK_FORM_##name);                                      \
        if (t->eight)                                                                              \
            all_rows(true, f, t);                                                                  \
        else                                                                                       \
            all_rows(false, f, t);                                                                 \
    }
CVN_BLOCKS_WHOLE(BLOCKS_OF)

static void tile_blocks(const LinearTile *t)
{
    static void (*const tiles[BLOCK_KINDS])(const LinearTile *) = {
#define X(kind, name, elements, bytes) [BLOCK_##kind] = tile_##name,
        CVN_BLOCKS_WHOLE(X)
#undef X
    };
    tiles[t->blocks](t);
}

#if defined(__AVX512F__)
/* For tiles of AMX: x as it is laid out here, and a span of a panel of blocks, put together. */
void linear_avx512_arrange(const int16_t *x, int8_t *out)
{
    codes_arrange(x, out);
}

#define CODES_OF(kind, name, elements, bytes)                                                      \
    static void codes_##name(const LinearTile *t, int panel, LinearCodes *out)                     \
    {                                                                                              \
        const Form f = form_of((BlockForm)BLOCK_FORM_##name);                                      \
        out->offset = offset_of(f);                                                                \
        if (t->eight)                                                                              \
            block(true, f, true, 0, 1, t, out, 0, panel);                                          \
        else                                                                                       \
            block(false, f, true, 0, 1, t, out, 0, panel);                                         \
    }
CVN_BLOCKS_WHOLE(CODES_OF)

void linear_avx512_codes(const LinearTile *t, int panel, LinearCodes *out)
{
    static void (*const codes[BLOCK_KINDS])(const LinearTile *, int, LinearCodes *) = {
#define X(kind, name, elements, bytes) [BLOCK_##kind] = codes_##name,
        CVN_BLOCKS_WHOLE(X)
#undef X
    };
    codes[t->blocks](t, panel, out);
}
#endif

static void tile_i4(const LinearTile *t)
{
    all_rows(false, (Form){.weights = I4, .bits = 4}, t);
}

static void tile_i8(const LinearTile *t)
{
    all_rows(false, (Form){.weights = I8, .wide = true, .bits = 8}, t);
}

static void tile_rows8(const LinearTile *t)
{
    all_rows(true, (Form){.weights = ROWS8, .wide = true, .bits = 8}, t);
}

#define MEMBERS .of_rows = &LINEAR_ROWS, .of_same = &LINEAR_SAME, .panels = 2, .rows = LINEAR_CHUNK
#define FIXED MEMBERS, .fixed = true, .arrange = codes_arrange

const LinearIsa ISA_NAME(linear_i8) = {FIXED, .weight = CVN_I8, .few = FEW,
                                       .ahead = CODE_PARTS == 1 ? 2048 : 4096, .tile = tile_i8};
const LinearIsa ISA_NAME(linear_i4) = {FIXED, .weight = CVN_I4, .few = FEW, .ahead = 4096,
                                       .tile = tile_i4};
const LinearIsa ISA_NAME(linear_blocks) = {FIXED, .blocks = true, .few = FEW, .ahead = 4096,
                                           .tile = tile_blocks};
const LinearIsa ISA_NAME(linear_rows8) = {MEMBERS,
                                          .weight = CVN_I8,
                                          .x = CVN_I8,
                                          .few = FEW_ROWS8,
                                          .ahead = CODE_PARTS == 1 ? 8192 : 0,
                                          .tile = tile_rows8};
