/*
 * A chunk of a panel (graph/blocks.h) as whole numbers in 8 bits with a scale, and perhaps a minimum, for each row and group:
 * the one form that all kinds have in common. Inlined where it is used, so that it is compiled for the instruction set
 * there. `f` had better be known to the compiler.
 */
#ifndef CVN_GRAPH_BLOCK_CHUNK_H
#define CVN_GRAPH_BLOCK_CHUNK_H

#include "base/float16.h"
#include "graph/blocks.h"
#include "graph/panels.h"

/* Where a unit of floats has a row's column. */
static inline int block_float_place(int row, int column)
{
    return row / 4 * 16 + column / 2 * 8 + row % 4 * 2 + column % 2;
}

/* Numbers [columns / 4][16 rows][4]; element = scale * number - minimum. */
static inline void block_expand_codes(const BlockForm *f, const BlockChunk *c, const uint8_t *at,
                                      int8_t *out)
{
    const int64_t units = c->columns / PANEL_QUAD;
    for (int64_t u = 0; u < units; u++) {
        uint8_t code[PANEL_BYTES];
        const uint8_t *base = at + (f->base == 8 ? u : u / 2) * PANEL_BYTES;
        if (f->fraction)
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = base[block_float_place(i / PANEL_QUAD, i % PANEL_QUAD)];
        else if (f->base == 8)
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = base[i] ^ 128;
        else if (f->base == 4 && u % 2)
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = base[i] >> 4;
        else
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = f->base == 4 ? base[i] & 15 : 0;
        if (f->two != NO_PLANE) {
            const uint8_t *two = at + c->two + u / 4 * PANEL_BYTES;
            const int down = (int)(u % 4) * 2;
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = (uint8_t)(code[i] | (two[i] >> down & 3) << f->two);
        }
        if (f->one != NO_PLANE) {
            uint64_t one;
            memcpy(&one, at + c->one + u * (int64_t)sizeof one, sizeof one);
            for (int i = 0; i < PANEL_BYTES; i++)
                code[i] = (uint8_t)(code[i] | (one >> i & 1) << f->one);
        }
        if (f->table)
            for (int i = 0; i < PANEL_BYTES; i++)
                out[u * PANEL_BYTES + i] = f->table[code[i] & 15];
        else
            for (int i = 0; i < PANEL_BYTES; i++)
                out[u * PANEL_BYTES + i] = (int8_t)(code[i] - f->offset);
    }
}

/* Scales [groups][16] or, of `minima`, minima. */
static inline void block_expand_scales(const BlockForm *f, const BlockChunk *c, const uint8_t *at,
                                       bool minima, float *out)
{
    const uint8_t *from = at + (minima && f->scale != BLOCK_NIBBLES ? c->minimum : c->scale);
    float d[PANEL_ROWS];
    uint16_t half[PANEL_ROWS];
    if (f->scale == BLOCK_F32) {
        memcpy(out, from, (size_t)(c->groups * PANEL_ROWS) * sizeof *out);
        return;
    }
    if (f->scale < BLOCK_WHOLE) {
        for (int64_t i = 0; i < c->groups * PANEL_ROWS; i++) {
            memcpy(half, from + 2 * i, sizeof *half);
            out[i] = f->scale == BLOCK_BF16 ? bf16_to_f32(*half) : f16_to_f32(*half);
        }
        return;
    }
    memcpy(half, at + (minima ? c->m : c->d), sizeof half);
    for (int r = 0; r < PANEL_ROWS; r++)
        d[r] = f16_to_f32(half[r]);
    for (int64_t g = 0; g < c->groups; g++)
        for (int r = 0; r < PANEL_ROWS; r++) {
            uint8_t byte = from[g * PANEL_ROWS + r];
            int whole = f->scale == BLOCK_WHOLE ? (int8_t)byte : minima ? byte >> 4 : byte & 15;
            out[g * PANEL_ROWS + r] = d[r] * (float)whole;
        }
}

#endif
