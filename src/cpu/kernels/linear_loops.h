/*
 * The loops of linear.c, down to a piece: some panels of one weight times some rows, over one span of k. And
 * what asks for what comes next, part by part, beside the tiles of a piece.
 */
#ifndef CVN_CPU_KERNELS_LINEAR_LOOPS_H
#define CVN_CPU_KERNELS_LINEAR_LOOPS_H

#include "base/num.h"
#include "compile/kernel.h"
#include "graph/linear.h"
#include "graph/panels.h"

enum {
    LINEAR_BLOCK = 4,       /* panels that are computed at a time */
    LINEAR_MOST_BLOCK = 32, /* where an instruction set wants more */
    LINEAR_STREAMED = 8     /* rows up to which panels are read in one go, all of their spans */
};

/* Panels that are computed at a time: n from `first` on, `stride` apart. */
typedef struct LinearPanels {
    int64_t first, n, stride;
} LinearPanels;

/* Those that come after `done` of a weight's panels [from, to) have been computed, `most` at a time; false: none. Of
   few rows they are far apart, so that each is read on from where the one before it ended: memory gives several
   streams that are long more than one, or than several that end after a panel. */
bool linear_panels(LinearPanels *out, int64_t from, int64_t to, int64_t done, int64_t most,
                   int64_t rows);

/* What leaves: `rows` rows of the 16 sums of some neighbouring panels. */
typedef struct LinearOut {
    int rows, columns; /* columns: of all the panels, at most 16 * LINEAR_MOST_BLOCK */
    /* [rows][16] of the first panel; up: of the second weight of swiglu, or NULL */
    const float *c, *up;
    int64_t c_stride; /* floats from panel to panel */
    /* c and up are integers, in steps of so much for each row; NULL: they are floats */
    const float *step;
    const float *scale, *up_scale; /* [columns rounded up to 16] to multiply by, or NULL: i4 */
    const void *bias, *up_bias;    /* the first column's, or NULL */
    cvn_dtype bias_dtype, up_bias_dtype;
    const float *residual; /* the first row's, or NULL */
    void *out;             /* the result, from element `at` on */
    cvn_dtype dtype;
    int64_t at, stride; /* elements: the first row's first column; from row to row */
} LinearOut;

typedef void LinearWrite(const LinearOut *out);

/* What a piece of many rows asks for beside its tiles: the panels that come next, and the next span of x. */
typedef struct LinearAhead {
    const char *panel; /* the first of n, `stride` bytes apart; each in `units` lines */
    int64_t n, stride, units;
    const char *x;
    int64_t x_lines;
    int64_t tiles, calls; /* tiles of rows, and all tiles of the piece: each asks for its part */
} LinearAhead;

/* Its part beside one tile: lines of three places, of which each step of the tile asks for `part`. A core has 16 lines under
   way to its L1 cache, whether loaded or asked for; those for which all was asked at once would hold up the tiles,
   whose operands come from L2. */
typedef struct LinearBeside {
    const char *at[3];
    int64_t lines[3], part[3];
    /* Where the next tile's sums will go and what is added to them, if this tile's leave: rows, so many bytes apart. */
    const char *out, *residual;
    int64_t out_row, out_bytes, residual_row;
} LinearBeside;

static inline LinearBeside linear_beside(const LinearAhead *a, int64_t tile, int64_t call,
                                         int64_t steps)
{
    int64_t panel = num_pieces(a->units, a->tiles), x = num_pieces(a->x_lines, a->calls);
    LinearBeside b = {.at = {a->x + call * x * 64}, .lines = {num_min(x, a->x_lines - call * x)}};
    for (int64_t i = 0; i < a->n && i < 2; i++) {
        b.at[1 + i] = a->panel + i * a->stride + tile * panel * 64;
        b.lines[1 + i] = num_min(panel, a->units - tile * panel);
    }
    for (int i = 0; i < 3; i++)
        b.part[i] = num_pieces(b.lines[i], steps);
    return b;
}

/* Beside step i of a tile, for the L2 cache. Inlined early: gcc takes calls of what only asks ahead for superfluous. */
static inline __attribute__((always_inline)) void linear_ask(const LinearBeside *b, int64_t i)
{
    for (int k = 0; k < 3; k++) {
        int64_t end = num_min(b->lines[k], (i + 1) * b->part[k]);
        for (int64_t line = i * b->part[k]; line < end; line++)
            __builtin_prefetch(b->at[k] + line * 64, 0, 2);
    }
}

/* The rows of results that step i of 16 asks for: two of 32. */
static inline __attribute__((always_inline)) void linear_ask_rows(const LinearBeside *b, int64_t i)
{
    enum { ROWS = 2, LINE = 64, RESIDUAL = 2 };
    for (int64_t r = i * ROWS; r < (i + 1) * ROWS; r++) {
        for (int64_t j = 0; j < b->out_bytes; j += LINE)
            __builtin_prefetch(b->out + r * b->out_row + j, 1, 2);
        for (int64_t j = 0; b->residual && j < RESIDUAL * LINE; j += LINE)
            __builtin_prefetch(b->residual + r * b->residual_row + j, 0, 2);
    }
}

/* What is multiplied. */
typedef struct LinearPiece {
    int weight;
    const LinearPanels *panels;
    int64_t span, m0, rows;
    const char *next; /* the first panel of the next piece, which has the same distances, or NULL */
    const LinearOut *out; /* where a tile's sums go at once, if the piece has them whole; or NULL */
} LinearPiece;

/* A product, as far as its loops are concerned. */
typedef struct LinearLoops {
    const KernelArgs *args;
    int weights;
    LinearWeight weight[LINEAR_WEIGHTS];
    bool swiglu, divided; /* divided: as in LinearShare */
    bool alone;           /* each thread lays out all of x for itself */
    int64_t m, k, jobs;   /* rows; columns of the weights; panels of results */
    int64_t span, spans;  /* elements of one, and how many */
    int64_t chunk, block; /* rows and panels that are computed at a time */
    float *c;             /* this thread's [weights of a job][block][chunk][16] */
    const float *step;    /* as in LinearOut */
    /* Multiplies a piece into c [panels][chunk][16], adding from the second span on. */
    void (*multiply)(const void *work, const LinearPiece *piece, float *c);
    const void *work;
    LinearWrite *write;
    bool many; /* rows: `multiply` writes sums, tile by tile, when they are whole */
} LinearLoops;

/* Those of an operation, as far as it says. */
LinearLoops linear_loops_of(const Op *op);

/* Bytes of a thread's sums. */
size_t linear_sums_bytes(const LinearLoops *loops);

/* Which of n rows or spans of x a thread lays out, and the meeting of all afterwards. */
void linear_share_rows(const LinearLoops *loops, int64_t n, int64_t *begin, int64_t *end);
void linear_meet(const LinearLoops *loops);

/* Computes this thread's share of a product; enter and leave are called around it, or NULL. */
void linear_loops_run(const LinearLoops *loops, void (*enter)(void), void (*leave)(void));

/* Writes the sums of a tile, while they are in L1: rows [r, r + rows) and `n` panels from the given one on of what `all`
   has; and asks for the places of the tile that comes next. */
void linear_write_tile(LinearWrite *write, const LinearOut *all, int64_t panel, int64_t n,
                       int64_t r, int64_t rows);

/* That `panels` panels from the given one on and rows from r on leave next. */
void linear_leaves_next(LinearBeside *b, const LinearOut *all, int64_t panel, int64_t panels,
                        int64_t r);

/* Where panel `panel` of a weight begins in span `span` of so many elements. */
static inline const char *linear_panel_at(const KernelArgs *args, const LinearWeight *w, int weight,
                                          int64_t panel, int64_t span, int64_t elements)
{
    const char *at =
        (const char *)args->in[linear_operand(args->op, weight)] + panel * (int64_t)w->panel_bytes;
    if (w->blocks)
        return at + span * elements * w->units / w->k * ((int64_t)w->panel_bytes / w->units);
    return at + span * elements / panel_unit(w->dtype) * PANEL_BYTES;
}

#endif
