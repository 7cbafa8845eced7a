/* Blocks brought into panels, and read there. */
#include "graph/block_chunk.h"

#include "base/float8.h"
#include "base/num.h"

#include <assert.h>

BlockChunk block_chunk(BlockKind kind, int64_t k)
{
    const BlockForm *f = &block_info[kind].form;
    const bool whole = f->scale >= BLOCK_WHOLE;
    const int64_t half =
        PANEL_ROWS * (int64_t)(f->scale == BLOCK_F32 ? sizeof(float) : sizeof(uint16_t));
    BlockChunk c = {.columns = BLOCK_MOST};
    while (c.columns > block_info[kind].elements && k % c.columns)
        c.columns /= 2;
    c.groups = c.columns / f->group;
    c.two = c.columns * PANEL_ROWS * f->base / 8;
    c.one = c.two + (f->two == NO_PLANE ? 0 : c.columns * PANEL_ROWS / 4);
    c.scale = c.one + (f->one == NO_PLANE ? 0 : c.columns * PANEL_ROWS / 8);
    c.minimum = c.scale + c.groups * (whole ? PANEL_ROWS : half);
    c.d = c.minimum;
    if (f->minimum && f->scale != BLOCK_NIBBLES)
        c.d += c.minimum - c.scale;
    c.m = c.d + (whole ? half : 0);
    c.bytes = c.m + (whole && f->minimum ? half : 0);
    return c;
}

cvn_type block_type(BlockKind kind, const cvn_type *weight, int rows)
{
    cvn_type type = {.dtype = CVN_I8, .rank = rows + 2};
    int64_t k = 1;
    for (int d = 0; d < weight->rank; d++)
        if (d < rows)
            type.dim[d] = weight->dim[d];
        else
            k *= weight->dim[d];
    type.dim[rows] = k / block_info[kind].elements;
    type.dim[rows + 1] = block_info[kind].bytes;
    return type;
}

cvn_type block_panel_type(BlockKind kind, int64_t n, int64_t k)
{
    BlockChunk c = block_chunk(kind, k);
    return CVN_TYPE(CVN_I8, num_pieces(n, PANEL_ROWS), k / c.columns, c.bytes);
}

/* ---- packing ---- */

static uint32_t quad(const uint8_t *code)
{
    uint32_t four;
    memcpy(&four, code, sizeof four);
    return four;
}

static void put_quad(uint8_t *out, int64_t unit, int row, uint32_t four)
{
    memcpy(out + unit * PANEL_BYTES + row * PANEL_QUAD, &four, sizeof four);
}

/* The codes of n columns of a row, from column `at` of the chunk on. */
static void pack_codes(const BlockForm *f, const BlockChunk *c, const uint8_t *code, int64_t at,
                       int64_t n, int row, uint8_t *out)
{
    const uint32_t low = 0x0f0f0f0f, pair = 0x03030303, bit = 0x01010101;
    for (int64_t i = 0; i < n && f->fraction; i++)
        out[(at + i) / 4 * PANEL_BYTES + block_float_place(row, (int)(i % 4))] = code[i];
    for (int64_t i = 0; i < n && f->base == 8 && !f->fraction; i += 4)
        put_quad(out, (at + i) / 4, row, quad(code + i) ^ 0x80808080);
    for (int64_t i = 0; i < n && f->base == 4; i += 8)
        put_quad(out, (at + i) / 8, row, (quad(code + i) & low) | (quad(code + i + 4) & low) << 4);
    for (int64_t i = 0; i < n && f->two != NO_PLANE; i += 16) {
        uint32_t four = 0;
        for (int j = 0; j < 4; j++)
            four |= (quad(code + i + 4 * j) >> f->two & pair) << 2 * j;
        put_quad(out + c->two, (at + i) / 16, row, four);
    }
    for (int64_t i = 0; i < n && f->one != NO_PLANE; i += 4) {
        uint32_t four = quad(code + i) >> f->one & bit;
        uint8_t *to = out + c->one + (at + i) / 4 * 8 + row / 2;
        four = (four | four >> 7 | four >> 14 | four >> 21) & 15;
        *to = (uint8_t)(*to | four << row % 2 * 4);
    }
}

static void put_half(uint8_t *out, int64_t i, uint16_t half)
{
    memcpy(out + i * (int64_t)sizeof half, &half, sizeof half);
}

/* The scales of the groups of one block, the first of which is group g of the chunk. */
static void pack_scales(const BlockForm *f, const BlockChunk *c, const BlockParts *p, int64_t g,
                        int64_t groups, int row, uint8_t *out)
{
    for (int64_t i = 0; i < groups; i++) {
        int64_t at = (g + i) * PANEL_ROWS + row;
        if (f->scale == BLOCK_F32) {
            float scale = p->wide;
            for (int c_of = 0; c_of < f->group; c_of++)
                if (!f8_is_finite(f->fraction, p->code[i * f->group + c_of]))
                    scale = NAN;
            memcpy(out + c->scale + at * (int64_t)sizeof scale, &scale, sizeof scale);
        } else if (f->scale < BLOCK_WHOLE) {
            put_half(out + c->scale, at, p->d);
            if (f->minimum)
                put_half(out + c->minimum, at, p->m);
        } else if (f->scale == BLOCK_NIBBLES) {
            out[c->scale + at] = (uint8_t)(p->scale[i] | p->minimum[i] << 4);
        } else {
            out[c->scale + at] = (uint8_t)p->scale[i];
            if (f->minimum)
                out[c->minimum + at] = (uint8_t)p->minimum[i];
        }
    }
    if (f->scale >= BLOCK_WHOLE)
        put_half(out + c->d, row, p->d);
    if (f->scale >= BLOCK_WHOLE && f->minimum)
        put_half(out + c->m, row, p->m);
}

void block_pack(BlockKind kind, int64_t k, const void *rows, size_t stride, int64_t n, void *out)
{
    const BlockInfo *info = &block_info[kind];
    const BlockChunk c = block_chunk(kind, k);
    uint8_t *to = out;
    assert(n >= 1 && n <= PANEL_ROWS);
    for (int64_t at = 0; at < k; at += c.columns, to += c.bytes) {
        memset(to, 0, (size_t)c.bytes);
        for (int row = 0; row < (int)n; row++)
            for (int64_t i = 0; i < c.columns; i += info->elements) {
                const uint8_t *block = (const uint8_t *)rows + (size_t)row * stride +
                                       (at + i) / info->elements * info->bytes;
                BlockParts parts;
                info->open(block, &parts);
                pack_codes(&info->form, &c, parts.code, i, info->elements, row, to);
                pack_scales(&info->form, &c, &parts, i / info->form.group,
                            info->elements / info->form.group, row, to);
            }
    }
}

/* ---- reading ---- */

void block_chunk_row(BlockKind kind, const BlockChunk *c, const uint8_t *at, int row, float *out)
{
    const BlockForm *f = &block_info[kind].form;
    int8_t code[BLOCK_MOST * PANEL_ROWS];
    float scale[BLOCK_GROUPS * PANEL_ROWS], minimum[BLOCK_GROUPS * PANEL_ROWS] = {0};
    block_expand_codes(f, c, at, code);
    block_expand_scales(f, c, at, false, scale);
    if (f->minimum)
        block_expand_scales(f, c, at, true, minimum);
    for (int64_t i = 0; i < c->columns; i++) {
        int64_t g = i / f->group * PANEL_ROWS + row;
        const int8_t one = code[i / 4 * PANEL_BYTES + row * PANEL_QUAD + i % 4];
        float product =
            scale[g] * (f->fraction ? f8_to_f32(f->fraction, (uint8_t)one) : (float)one);
        out[i] = f->minimum ? product - minimum[g] : product;
    }
}
