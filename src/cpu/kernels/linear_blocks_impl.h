/*
 * Tiles of weights in blocks of any kind: each chunk is made numbers of 8 bits (graph/block_chunk.h), and those are multiplied
 * with all rows. The file that includes this has defined
 *
 *     static void group_sums(const int8_t *number, int64_t units, const int8_t *x, bool eight, int32_t sum[PANEL_ROWS])
 *
 * the sums of one row's `units` quads, as its arrange() made them or eight as they are, with a group's numbers [units][16][4].
 */
#include "graph/block_chunk.h"

enum { LINEAR_ROWS_BLOCKS = 64 /* for which a chunk is made numbers once */ };

/* A chunk as numbers. */
typedef struct Numbers {
    int8_t number[BLOCK_MOST * PANEL_ROWS];
    float scale[BLOCK_GROUPS * PANEL_ROWS], minimum[BLOCK_GROUPS * PANEL_ROWS];
} Numbers;

/* Row r with chunk i of the span. */
static void row_of_chunk(const LinearTile *t, const Numbers *n, int64_t i, int r, float *c,
                         bool add)
{
    const BlockForm *f = &block_info[t->blocks].form;
    const LinearSpan *span = &t->span[r];
    const int64_t first = i * t->chunk->groups;
    const int bytes = t->eight ? 1 : 2; /* of a number of x */
    const int8_t *x = (const int8_t *)t->x + (r * LINEAR_SPAN + first * f->group) * bytes;
    const float step = t->eight ? span->step[i] : span->scale;
    float y[PANEL_ROWS] = {0};
    for (int64_t g = 0; g < t->chunk->groups; g++) {
        const float *scale = n->scale + g * PANEL_ROWS, *minimum = n->minimum + g * PANEL_ROWS;
        const float all =
            t->eight ? -(float)span->minus[first + g] : (float)span->minus8[first + g] * -0.125f;
        int32_t sum[PANEL_ROWS];
        group_sums(n->number + g * f->group * PANEL_ROWS, f->group / PANEL_QUAD,
                   x + g * f->group * bytes, t->eight, sum);
        for (int j = 0; j < PANEL_ROWS; j++)
            y[j] += (float)sum[j] * scale[j];
        for (int j = 0; j < PANEL_ROWS && f->minimum; j++)
            y[j] -= minimum[j] * all;
    }
    for (int j = 0; j < PANEL_ROWS; j++)
        c[j] = (add ? c[j] : 0) + y[j] * step;
}

static void tile_blocks(const LinearTile *t)
{
    const BlockForm *f = &block_info[t->blocks].form;
    Numbers n;
    for (int panel = 0; panel < t->panels; panel++)
        for (int64_t i = 0; i < t->units; i++) {
            const uint8_t *at = t->q + panel * t->q_stride + i * t->chunk->bytes;
            float *c = t->c + panel * t->c_stride;
            block_expand_codes(f, t->chunk, at, n.number);
            block_expand_scales(f, t->chunk, at, false, n.scale);
            if (f->minimum)
                block_expand_scales(f, t->chunk, at, true, n.minimum);
            for (int r = 0; r < t->rows; r++)
                row_of_chunk(t, &n, i, r, c + r * PANEL_ROWS, t->add || i > 0);
        }
}
