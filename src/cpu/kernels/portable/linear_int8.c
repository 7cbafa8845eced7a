/* linear_int8 in plain C. */
#include "cpu/kernels/linear_int8.h"
#include "graph/panels.h"

enum { ROWS = 4 };

static void tile(const Int8Tile *t)
{
    for (int r = 0; r < t->rows; r++) {
        int32_t sum[PANEL_ROWS] = {0};
        const int8_t *q = t->q, *x = t->x + r * t->stride;
        for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD)
            for (int j = 0; j < PANEL_ROWS; j++)
                for (int e = 0; e < PANEL_QUAD; e++)
                    sum[j] += q[j * PANEL_QUAD + e] * x[e];
        for (int j = 0; j < PANEL_ROWS; j++)
            t->c[r * PANEL_ROWS + j] = sum[j];
    }
}

const Int8Isa linear_int8_portable = {.rows = ROWS, .tile = tile};
