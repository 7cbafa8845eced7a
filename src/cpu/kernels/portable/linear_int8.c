/* Products of rows and weights of 8 bits in plain C. */
#include "cpu/kernels/linear_rows8_impl.h"

enum { ROWS = 4 };

static void row_of(const DirectTile *t, int r, int panel)
{
    int32_t sum[PANEL_ROWS], *c = (int32_t *)(void *)(t->c + panel * t->c_stride + r * PANEL_ROWS);
    const int8_t *q = (const int8_t *)t->w + panel * t->w_stride;
    const int8_t *x = (const int8_t *)t->x + r * t->x_stride;
    for (int j = 0; j < PANEL_ROWS; j++)
        sum[j] = t->add ? c[j] : 0;
    for (int64_t u = 0; u < t->units; u++, q += PANEL_BYTES, x += PANEL_QUAD)
        for (int j = 0; j < PANEL_ROWS; j++)
            for (int e = 0; e < PANEL_QUAD; e++)
                sum[j] += q[j * PANEL_QUAD + e] * x[e];
    memcpy(c, sum, sizeof sum);
}

static void tile(const DirectTile *t)
{
    for (int panel = 0; panel < t->panels; panel++)
        for (int r = 0; r < t->rows; r++)
            row_of(t, r, panel);
}

const DirectIsa linear_portable_rows8 = {ROWS8_MEMBERS, .rows = ROWS, .tile = tile};
