/* Rows as they are, brought into panels: 4 bytes (a float, or two bf16, four i8 or eight i4 that are neighbours) stay together. */
#include "graph/panels.h"

#include "graph/graph.h"

#include <assert.h>
#include <string.h>

/* In words of 4 bytes a panel is a transpose; 16 words of each row, a cache line, at a time. */
static void pack_words(const char *const *row, int64_t words, uint32_t *out)
{
    enum { LINE = 16 };
    for (int64_t at = 0; at < words; at += LINE) {
        uint32_t line[PANEL_ROWS][LINE];
        int64_t n = words - at < LINE ? words - at : LINE;
        for (int r = 0; r < PANEL_ROWS; r++)
            memcpy(line[r], row[r] + at * 4, (size_t)n * 4);
        for (int64_t j = 0; j < n; j++)
            for (int r = 0; r < PANEL_ROWS; r++)
                out[(at + j) * PANEL_ROWS + r] = line[r][j];
    }
}

/* Two columns of i4 that are neighbours in a byte, to where they are four apart: c7 … c0 becomes c7 c3 c6 c2 c5 c1 c4 c0. */
static uint32_t four_apart(uint32_t word)
{
    uint32_t half[2] = {word & 0xffff, word >> 16};
    for (int i = 0; i < 2; i++) {
        half[i] = (half[i] | half[i] << 8) & 0x00ff00ff;
        half[i] = (half[i] | half[i] << 4) & 0x0f0f0f0f;
    }
    return half[0] | half[1] << 4;
}

void panel_pack(cvn_dtype dtype, int64_t k, const void *rows, size_t stride, int64_t n, void *out)
{
    assert(panel_dtype(dtype) && n >= 1 && n <= PANEL_ROWS);
    const char *row[PANEL_ROWS];
    size_t bytes = cvn_dtype_bytes(dtype, k);
    int64_t words = (int64_t)(bytes / 4);
    uint32_t *to = out;
    for (int64_t r = 0; r < PANEL_ROWS; r++)
        row[r] = (const char *)rows + (r < n ? (size_t)r * stride : 0);
    pack_words(row, words, to);
    for (int64_t i = 0; i < words * PANEL_ROWS && dtype == CVN_I4; i++)
        to[i] = four_apart(to[i]);
    for (int r = 0; r < PANEL_ROWS && bytes % 4; r++) { /* the last numbers, beside zeros */
        uint32_t part = 0;
        memcpy(&part, row[r] + words * 4, bytes % 4);
        to[words * PANEL_ROWS + r] = part;
    }
    int64_t units = words + (bytes % 4 != 0);
    for (int64_t u = 0; u < units; u++)
        for (int64_t r = n; r < PANEL_ROWS; r++)
            to[u * PANEL_ROWS + r] = 0;
}

void panel_pack_scales(cvn_dtype dtype, int64_t groups, const void *rows, size_t stride, int64_t n,
                       void *out)
{
    size_t each = cvn_dtype_bytes(dtype, 1);
    memset(out, 0, (size_t)(groups * PANEL_ROWS) * each);
    for (int64_t r = 0; r < n; r++)
        for (int64_t g = 0; g < groups; g++)
            memcpy((char *)out + (size_t)(g * PANEL_ROWS + r) * each,
                   (const char *)rows + (size_t)r * stride + (size_t)g * each, each);
}

cvn_value *panel_dequantize(cvn_graph *g, cvn_value *q, cvn_value *scale, cvn_type type, int rows)
{
    const OpAttr attr = {.axis = rows};
    return graph_add(g, OP_DEQUANTIZE, &attr, scale ? 2 : 1, (cvn_value *[]){q, scale}, &type);
}

cvn_value *panel_linear_int8(cvn_graph *g, cvn_value *const operand[4], cvn_type type)
{
    return graph_add(g, OP_LINEAR_INT8, &(OpAttr){.axis = 1}, 4, operand, &type);
}
