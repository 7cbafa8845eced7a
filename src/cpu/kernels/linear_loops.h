/*
 * The loops of linear.c, down to a piece: some panels of one weight times some rows, over one span of k.
 */
#ifndef CVN_CPU_KERNELS_LINEAR_LOOPS_H
#define CVN_CPU_KERNELS_LINEAR_LOOPS_H

#include "compile/fused.h"
#include "cpu/kernels/linear_rows.h"
#include "graph/linear.h"
#include "graph/panels.h"

/* Panels that are computed at a time: n from `first` on, `stride` apart. */
typedef struct LinearPanels {
    int64_t first, n, stride;
} LinearPanels;

/* Those that come after `done` of a weight's panels [from, to) have been computed, `most` at a time; false: none. Of
   few rows they are far apart, so that each is read on from where the one before it ended: memory gives several
   streams that are long more than one, or than several that end after a panel. */
bool linear_panels(LinearPanels *out, int64_t from, int64_t to, int64_t done, int64_t most,
                   int64_t rows);

/* What is multiplied. */
typedef struct LinearPiece {
    int weight;
    const LinearPanels *panels;
    int64_t span, m0, rows;
    const char *next; /* the first panel of the next piece, which has the same distances, or NULL */
    /* what a tile's sums do at once, if the piece has them whole; or NULL */
    const struct LinearLeave *leave;
} LinearPiece;

/* A product, as far as its loops are concerned. */
typedef struct LinearLoops {
    const KernelArgs *args;
    int weights;
    LinearWeight weight[LINEAR_WEIGHTS];
    bool divided;         /* as in LinearShare */
    bool alone;           /* each thread lays out all of x for itself */
    int together;         /* weights whose panels are computed side by side: all, or 1 */
    int64_t m, k, jobs;   /* rows; columns of the weights; panels of results */
    int64_t span, spans;  /* elements of one, and how many */
    int64_t chunk, block; /* rows and panels that are computed at a time */
    float *c;             /* this thread's [together][block][chunk][16] */
    const float *step;    /* as in LinearOut */
    const int32_t *place; /* the row of the result of each row that is laid out; NULL: the same */
    /* Multiplies a piece into c [panels][chunk][16], adding from the second span on. */
    void (*multiply)(const void *work, const LinearPiece *piece, float *c);
    const void *work;
    LinearWrite *write;
    bool many; /* rows: `multiply` writes sums, tile by tile, when they are whole */
    struct TileProgram *const *program; /* as Fused.program; NULL: there are none */
    Epilogue *epilogue;
    float *y; /* this thread's sums that a program is about to read: [together][linear_kept] */
} LinearLoops;

/* Some panels of a result, or of results that are computed together, as they leave. */
typedef struct LinearLeave {
    const LinearLoops *loops;
    int weight;                    /* the first */
    LinearOut out[LINEAR_WEIGHTS]; /* [loops->together] */
    int64_t m0, n0;                /* the first row and column */
    const float *read;             /* element 0 of what a program reads beside them, or NULL */
} LinearLeave;

/* Those of an operation, as far as it says. */
LinearLoops linear_loops_of(const Op *op);

/* Bytes of a thread's sums, c and then y, if there are programs. */
size_t linear_sums_bytes(const LinearLoops *loops);
size_t linear_kept_bytes(const LinearLoops *loops);

/* Which of n rows or spans of x a thread lays out, and the meeting of all afterwards. */
void linear_share_rows(const LinearLoops *loops, int64_t n, int64_t *begin, int64_t *end);
void linear_meet(const LinearLoops *loops);

/* Computes this thread's share of a product; enter and leave are called around it, or NULL. */
void linear_loops_run(const LinearLoops *loops, void (*enter)(void), void (*leave)(void));

/* Panels [begin, end) of the results, counted through all weights, rows [m0, m0 + rows). */
void linear_loops_panels(const LinearLoops *loops, int64_t begin, int64_t end, int64_t m0,
                         int64_t rows);

/* What leaves, while it is in L1: rows [r, r + rows) and `n` panels from the given one on of what `all` has. */
void linear_leave(const LinearLeave *all, int64_t panel, int64_t n, int64_t r, int64_t rows);

/* Row `row` of the results, whose sums are 0. */
void linear_leave_zeros(const LinearLoops *loops, int64_t row);

/* That `panels` panels from the given one on and rows from r on leave next. */
void linear_leaves_next(LinearBeside *b, const LinearLeave *all, int64_t panel, int64_t panels,
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
