/* Rows as they are, brought into panels: 4 bytes (a float, or two bf16 that are neighbours) are never taken apart. */
#include "graph/panels.h"

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

void panel_pack(cvn_dtype dtype, int64_t k, const void *rows, size_t stride, int64_t n, void *out)
{
    assert(panel_dtype(dtype) && !panel_scaled(dtype) && n >= 1 && n <= PANEL_ROWS);
    const char *row[PANEL_ROWS];
    size_t bytes = cvn_dtype_bytes(dtype, k);
    int64_t words = (int64_t)(bytes / 4);
    uint32_t *to = out;
    for (int64_t r = 0; r < PANEL_ROWS; r++)
        row[r] = (const char *)rows + (r < n ? (size_t)r * stride : 0);
    pack_words(row, words, to);
    for (int r = 0; r < PANEL_ROWS && bytes % 4; r++) { /* the last bf16, beside a 0 */
        uint16_t half;
        memcpy(&half, row[r] + words * 4, sizeof half);
        to[words * PANEL_ROWS + r] = half;
    }
    int64_t units = words + (bytes % 4 != 0);
    for (int64_t u = 0; u < units; u++)
        for (int64_t r = n; r < PANEL_ROWS; r++)
            to[u * PANEL_ROWS + r] = 0;
}
