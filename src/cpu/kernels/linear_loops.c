/* The loops of linear_loops.h: who computes which panels, in which order, and what becomes of their sums. */
#include "cpu/kernels/linear_loops.h"

#include "compile/tile_program.h"
#include "cpu/kernels/share.h"

#include <string.h>

_Static_assert((int)SHARE_PANELS == (int)LINEAR_BLOCK, "pieces of shares are whole blocks");

bool linear_panels(LinearPanels *out, int64_t from, int64_t to, int64_t done, int64_t most,
                   int64_t rows)
{
    int64_t far = rows <= LINEAR_STREAMED ? (to - from) / most : 1, end = from + far * most;
    if (done >= to)
        return false;
    if (rows <= LINEAR_STREAMED && done < end)
        *out = (LinearPanels){from + (done - from) / most, most, far};
    else
        *out = (LinearPanels){done, num_min(most, to - done), 1};
    return true;
}

/* Rows [m0, m0 + rows) of `n` neighbouring panels from the given one on, the first of those that there are sums of; `beside` of
   the weights that are computed together. */
static LinearOut out_of(const LinearLoops *l, int weight, int beside, int64_t panel, int64_t n,
                        int64_t m0, int64_t rows)
{
    const KernelArgs *args = l->args;
    const Op *op = args->op;
    const LinearWeight *lw = &l->weight[weight];
    const int64_t size = l->chunk * PANEL_ROWS, n0 = panel * PANEL_ROWS;
    const int scale = linear_operand(op, weight) + 1, result = weight < op->n_results ? weight : 0;
    LinearOut o = {
        .rows = (int)rows,
        .columns = (int)num_min(n * PANEL_ROWS, lw->n - n0),
        .c = l->c + beside * l->block * size,
        .c_stride = size,
        .step = l->step ? l->step + m0 : NULL,
        .out = args->out[result],
        .dtype = op->result[result]->type.dtype,
        .at = (l->place ? 0 : m0) * lw->n + n0,
        .stride = lw->n,
    };
    if (lw->dtype == CVN_I8 && !lw->blocks)
        o.scale = (const float *)args->in[scale] + n0;
    return o;
}

/* Of those the part that begins so many panels and rows on. */
static LinearOut part_of(const LinearOut *all, int64_t panel, int64_t n, int64_t r, int64_t rows)
{
    LinearOut o = *all;
    const int64_t j = panel * PANEL_ROWS;
    o.rows = (int)rows;
    o.columns = (int)num_min(n * PANEL_ROWS, all->columns - j);
    o.c += panel * all->c_stride + r * PANEL_ROWS;
    o.step = o.step ? o.step + r : NULL;
    o.scale = o.scale ? o.scale + j : NULL;
    o.at += r * all->stride + j;
    return o;
}

/* Brings `o` to the panel that is so many panels on, of which so many columns are there, and to the sums beside. In place,
   because few rows leave panel by panel, every microsecond. */
static void next_panel(LinearOut *o, int64_t panels, int64_t columns)
{
    const int64_t j = panels * PANEL_ROWS;
    o->columns = (int)num_min(PANEL_ROWS, columns);
    o->c += o->c_stride;
    o->scale = o->scale ? o->scale + j : NULL;
    o->at += j;
}

void linear_leaves_next(LinearBeside *b, const LinearLeave *all, int64_t panel, int64_t panels,
                        int64_t r)
{
    const LinearOut *out = &all->out[0];
    const int64_t element = out->at + r * out->stride + panel * PANEL_ROWS;
    b->out = (const char *)out->out + cvn_dtype_bytes(out->dtype, element);
    b->out_row = (int64_t)cvn_dtype_bytes(out->dtype, out->stride);
    b->out_bytes = (int64_t)cvn_dtype_bytes(out->dtype, panels * PANEL_ROWS);
    b->read = all->read ? (const char *)(all->read + element) : NULL;
    b->read_row = out->stride * (int64_t)sizeof(float);
}

/* Writes rows from m0 on, each where it belongs. */
static void write_rows(const LinearLoops *l, const LinearOut *out, int64_t m0)
{
    if (!l->place) {
        l->write(out);
        return;
    }
    for (int r = 0; r < out->rows; r++) {
        LinearOut row = *out;
        row.rows = 1;
        row.c += r * PANEL_ROWS;
        row.at += l->place[m0 + r] * out->stride;
        l->write(&row);
    }
}

/* ---- programs ---- */

enum {
    STRIP = LINEAR_MOST_BLOCK * PANEL_ROWS *
            2, /* sums that a program is given at a time, of many rows */
    RANGE = 64 /* panels that it is given at a time, of few: programs are slow to start */
};

static bool has_program(const LinearLoops *l, int weight)
{
    return l->program && l->program[weight];
}

/* Floats of y for one weight. */
static int64_t kept(const LinearLoops *l)
{
    return num_max(STRIP, num_min(l->m, LINEAR_STREAMED) * RANGE * PANEL_ROWS);
}

/* Sums of weight w of those together go to y, `stride` floats from row to row, from column j on. */
static void keep(const LinearLoops *l, LinearOut *out, int w, int64_t stride, int64_t j)
{
    out->out = l->y + w * kept(l);
    out->dtype = CVN_F32;
    out->at = j;
    out->stride = stride;
}

/* Does the program to what y has: rows from m0 on, columns from n0 on. */
static void run_program(const LinearLoops *l, int weight, int64_t stride, int64_t m0, int64_t rows,
                        int64_t n0, int64_t columns)
{
    const int64_t ld = l->weight[weight].n;
    EpilogueTile t = {.sum = l->y,
                      .row = stride,
                      .apart = kept(l),
                      .at = m0 * ld + n0,
                      .ld = ld,
                      .rows = l->place ? 1 : rows,
                      .n = columns};
    for (int64_t i = 0; i < rows; i += t.rows, t.sum += stride) {
        if (l->place)
            t.at = l->place[m0 + i] * ld + n0;
        l->epilogue(l->args, l->program[weight], &t);
    }
}

/* An operand that the program of a weight reads element by element, to ask for. */
static const float *read_by(const LinearLoops *l, int weight)
{
    const struct TileProgram *program = has_program(l, weight) ? l->program[weight] : NULL;
    for (int i = 0; program && i < program->n_places; i++) {
        const TilePlace *place = &program->place[i];
        if (place->kind == PLACE_OPERAND && place->index >= 0 && place->bytes == sizeof(float))
            return l->args->in[place->index];
    }
    return NULL;
}

void linear_leave(const LinearLeave *all, int64_t panel, int64_t n, int64_t r, int64_t rows)
{
    const LinearLoops *l = all->loops;
    const bool program = has_program(l, all->weight);
    const int64_t stride = n * PANEL_ROWS, most = program ? STRIP / stride : rows;
    for (int64_t i = 0; i < rows; i += most) {
        const int64_t some = num_min(most, rows - i);
        LinearOut out = {0};
        for (int w = 0; w < l->together; w++) {
            out = part_of(&all->out[w], panel, n, r + i, some);
            if (program) {
                keep(l, &out, w, stride, 0);
                l->write(&out);
            } else {
                write_rows(l, &out, all->m0 + r + i);
            }
        }
        if (program)
            run_program(l, all->weight, stride, all->m0 + r + i, some, all->n0 + panel * PANEL_ROWS,
                        out.columns);
    }
}

void linear_leave_zeros(const LinearLoops *l, int64_t row)
{
    for (int i = 0; i < (l->together > 1 ? 1 : l->weights); i++) {
        const int64_t n = l->weight[i].n;
        const Op *op = l->args->op;
        if (!has_program(l, i)) {
            const size_t bytes = cvn_dtype_bytes(op->result[i]->type.dtype, n);
            memset((char *)l->args->out[i] + (size_t)row * bytes, 0, bytes);
            continue;
        }
        memset(l->y, 0, linear_kept_bytes(l));
        for (int64_t j = 0; j < n; j += STRIP)
            run_program(l, i, STRIP, row, 1, j, num_min(STRIP, n - j));
    }
}

/* ---- blocks ---- */

/* Some panels of one result, or of those together, rows [m0, m0 + rows). kept: the panels whose sums y has; or NULL: they leave. */
static void run_block(const LinearLoops *l, int weight, const LinearPanels *panels,
                      const LinearPanels *range, int64_t m0, int64_t rows)
{
    const LinearWeight *w = &l->weight[weight];
    int64_t behind = panels->first + panels->n, beside = panels->stride == 1 ? panels->n : 1;
    const bool by_tile = l->many && panels->stride == 1, program = has_program(l, weight);
    LinearLeave leave = {.loops = l,
                         .weight = weight,
                         .m0 = m0,
                         .n0 = panels->first * PANEL_ROWS,
                         .read = by_tile ? read_by(l, weight) : NULL};
    for (int i = 0; i < l->together; i++) {
        leave.out[i] = out_of(l, weight + i, i, panels->first, beside, m0, rows);
        if (range)
            keep(l, &leave.out[i], i, range->n * PANEL_ROWS,
                 (panels->first - range->first) * PANEL_ROWS);
    }
    for (int64_t span = 0; span < l->spans && !kernel_cancelled(l->args); span++) {
        const char *next = NULL;
        if (span + 1 < l->spans)
            next = linear_panel_at(l->args, w, weight, panels->first, span + 1, l->span);
        else if (behind < w->panels)
            next = linear_panel_at(l->args, w, weight, behind, 0, l->span);
        for (int i = 0; i < l->together; i++) {
            const bool last = i + 1 == l->together;
            LinearPiece piece = {weight + i, panels, span, m0, rows, next, NULL};
            if (!last)
                piece.next = linear_panel_at(l->args, &l->weight[weight + i + 1], weight + i + 1,
                                             panels->first, span, l->span);
            if (last && by_tile && span + 1 == l->spans)
                piece.leave = &leave;
            l->multiply(l->work, &piece, l->c + i * l->block * l->chunk * PANEL_ROWS);
        }
    }
    for (int64_t i = 0; !by_tile && i < panels->n; i += beside) {
        const int64_t left = w->n - (panels->first + i * panels->stride) * PANEL_ROWS;
        for (int k = 0; k < l->together; k++) {
            if (i)
                next_panel(&leave.out[k], panels->stride, left);
            if (range)
                l->write(&leave.out[k]);
            else if (!program)
                write_rows(l, &leave.out[k], m0);
        }
        leave.n0 += i ? panels->stride * PANEL_ROWS : 0;
        if (program && !range)
            linear_leave(&leave, 0, beside, 0, rows);
    }
}

/* Panels [from, to) of few rows, with a program behind them: their sums are kept. */
static void run_range(const LinearLoops *l, int weight, int64_t from, int64_t to, int64_t m0,
                      int64_t rows)
{
    LinearPanels panels;
    for (int64_t first = from; first < to; first += RANGE) {
        const LinearPanels range = {first, num_min(RANGE, to - first), 1};
        const int64_t end = first + range.n, n0 = first * PANEL_ROWS;
        for (int64_t j = first; linear_panels(&panels, first, end, j, l->block, l->m);
             j += panels.n)
            run_block(l, weight, &panels, &range, m0, rows);
        run_program(l, weight, range.n * PANEL_ROWS, m0, rows, n0,
                    num_min(range.n * PANEL_ROWS, l->weight[weight].n - n0));
    }
}

void linear_loops_panels(const LinearLoops *l, int64_t begin, int64_t end, int64_t m0, int64_t rows)
{
    int64_t first = 0; /* of the weight's panels */
    for (int i = 0; i < (l->together > 1 ? 1 : l->weights); first += l->weight[i++].panels) {
        LinearPanels panels;
        int64_t from = (begin > first ? begin : first) - first;
        int64_t to = num_min(end - first, l->weight[i].panels);
        if (has_program(l, i) && l->m <= LINEAR_STREAMED && !l->many) {
            run_range(l, i, from, to, m0, rows);
            continue;
        }
        for (int64_t j = from; linear_panels(&panels, from, to, j, l->block, l->m); j += panels.n)
            run_block(l, i, &panels, NULL, m0, rows);
    }
}

LinearLoops linear_loops_of(const Op *op)
{
    LinearLoops l = {.weights = linear_weights(op), .together = 1, .m = linear_rows(op)};
    if (kernel_fused(op)->together)
        l.together = l.weights;
    for (int i = 0; i < l.weights; i++) {
        l.weight[i] = linear_weight(op, i);
        l.jobs += i && l.together > 1 ? 0 : l.weight[i].panels;
    }
    l.k = l.weight[0].k;
    return l;
}

size_t linear_sums_bytes(const LinearLoops *l)
{
    return (size_t)(l->chunk * l->block * PANEL_ROWS) * sizeof(float) * (size_t)l->together;
}

size_t linear_kept_bytes(const LinearLoops *l)
{
    return (size_t)(kept(l) * l->together) * sizeof(float);
}

void linear_share_rows(const LinearLoops *l, int64_t n, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = n;
    if (!l->alone)
        kernel_share(n, 1, l->args->thread, l->args->n_threads, begin, end);
}

void linear_meet(const LinearLoops *l)
{
    if (!l->alone)
        kernel_sync(l->args);
}

void linear_loops_run(const LinearLoops *l, void (*enter)(void), void (*leave)(void))
{
    Share share = share_of(l->args, l->jobs, l->divided, 0);
    int64_t begin, end;
    if (enter)
        enter();
    while (share_next(&share, &begin, &end))
        for (int64_t m0 = 0; m0 < l->m; m0 += l->chunk)
            linear_loops_panels(l, begin, end, m0, num_min(l->chunk, l->m - m0));
    if (leave)
        leave();
}
