/* The loops of linear_loops.h: who computes which panels, in which order, and what becomes of their sums. */
#include "cpu/kernels/linear_loops.h"

#include "cpu/kernels/share.h"

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

/* The bias of a weight from row n0 on. */
static const void *bias_at(const KernelArgs *args, int weight, int64_t n0, cvn_dtype *dtype)
{
    int bias = linear_bias(args->op, weight);
    *dtype = args->op->operand[bias]->type.dtype;
    return (const char *)args->in[bias] + cvn_dtype_bytes(*dtype, n0);
}

/* Rows [m0, m0 + rows) of `n` neighbouring panels from the given one on, the first of those that there are sums of. */
static LinearOut out_of(const LinearLoops *l, int weight, int64_t panel, int64_t n, int64_t m0,
                        int64_t rows)
{
    const KernelArgs *args = l->args;
    const Op *op = args->op;
    const LinearWeight *lw = &l->weight[weight];
    const int64_t size = l->chunk * PANEL_ROWS, n0 = panel * PANEL_ROWS;
    int residual = linear_residual(op), scale = linear_operand(op, weight) + 1;
    LinearOut o = {
        .rows = (int)rows,
        .columns = (int)num_min(n * PANEL_ROWS, lw->n - n0),
        .c = l->c,
        .up = l->swiglu ? l->c + l->block * size : NULL,
        .c_stride = size,
        .step = l->step ? l->step + m0 : NULL,
        .out = args->out[weight],
        .dtype = op->result[weight]->type.dtype,
        .at = (l->place ? 0 : m0) * lw->n + n0,
        .stride = lw->n,
    };
    if (lw->dtype == CVN_I8 && !lw->blocks) {
        o.scale = (const float *)args->in[scale] + n0;
        o.up_scale = o.up ? (const float *)args->in[linear_operand(op, 1) + 1] + n0 : NULL;
    }
    if (op->attr.bias) {
        o.bias = bias_at(args, weight, n0, &o.bias_dtype);
        o.up_bias = o.up ? bias_at(args, 1, n0, &o.up_bias_dtype) : NULL;
    }
    if (residual >= 0)
        o.residual = (const float *)args->in[residual] + o.at;
    return o;
}

/* Brings `o` to the panel that is so many panels on, of which so many columns are there, and to the sums beside. In place,
   because few rows leave panel by panel, every microsecond. */
static void next_panel(LinearOut *o, int64_t panels, int64_t columns)
{
    const int64_t j = panels * PANEL_ROWS;
    o->columns = (int)num_min(PANEL_ROWS, columns);
    o->c += o->c_stride;
    o->up = o->up ? o->up + o->c_stride : NULL;
    o->scale = o->scale ? o->scale + j : NULL;
    o->up_scale = o->up_scale ? o->up_scale + j : NULL;
    o->bias = o->bias ? (const char *)o->bias + cvn_dtype_bytes(o->bias_dtype, j) : NULL;
    o->up_bias =
        o->up_bias ? (const char *)o->up_bias + cvn_dtype_bytes(o->up_bias_dtype, j) : NULL;
    o->residual = o->residual ? o->residual + j : NULL;
    o->at += j;
}

void linear_write_tile(LinearWrite *write, const LinearOut *all, int64_t panel, int64_t n,
                       int64_t r, int64_t rows)
{
    LinearOut o = *all;
    const int64_t j = panel * PANEL_ROWS, c = panel * all->c_stride + r * PANEL_ROWS;
    const int64_t at = r * all->stride + j;
    const size_t up_bias = cvn_dtype_bytes(o.up_bias_dtype, j);
    o.rows = (int)rows;
    o.columns = (int)num_min(n * PANEL_ROWS, all->columns - j);
    o.c += c;
    o.up = o.up ? o.up + c : NULL;
    o.step = o.step ? o.step + r : NULL;
    o.scale = o.scale ? o.scale + j : NULL;
    o.up_scale = o.up_scale ? o.up_scale + j : NULL;
    o.bias = o.bias ? (const char *)o.bias + cvn_dtype_bytes(o.bias_dtype, j) : NULL;
    o.up_bias = o.up_bias ? (const char *)o.up_bias + up_bias : NULL;
    o.residual = o.residual ? o.residual + at : NULL;
    o.at += at;
    write(&o);
}

void linear_leaves_next(LinearBeside *b, const LinearOut *all, int64_t panel, int64_t panels,
                        int64_t r)
{
    const int64_t element = r * all->stride + panel * PANEL_ROWS;
    b->out = (const char *)all->out + cvn_dtype_bytes(all->dtype, all->at + element);
    b->out_row = (int64_t)cvn_dtype_bytes(all->dtype, all->stride);
    b->out_bytes = (int64_t)cvn_dtype_bytes(all->dtype, panels * PANEL_ROWS);
    b->residual = all->residual ? (const char *)(all->residual + element) : NULL;
    b->residual_row = all->stride * (int64_t)sizeof(float);
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
        row.up = row.up ? row.up + r * PANEL_ROWS : NULL;
        row.at += l->place[m0 + r] * out->stride;
        l->write(&row);
    }
}

/* Some panels of one result, rows [m0, m0 + rows). */
static void run_block(const LinearLoops *l, int weight, const LinearPanels *panels, int64_t m0,
                      int64_t rows)
{
    const LinearWeight *w = &l->weight[weight];
    int64_t behind = panels->first + panels->n, together = panels->stride == 1 ? panels->n : 1;
    bool by_tile = l->many && panels->stride == 1;
    LinearOut out = out_of(l, weight, panels->first, together, m0, rows);
    for (int64_t span = 0; span < l->spans && !kernel_cancelled(l->args); span++) {
        LinearPiece piece = {weight, panels, span, m0, rows, NULL, NULL};
        const LinearOut *whole = by_tile && span + 1 == l->spans ? &out : NULL;
        const char *next = NULL;
        if (span + 1 < l->spans)
            next = linear_panel_at(l->args, w, weight, panels->first, span + 1, l->span);
        else if (behind < w->panels)
            next = linear_panel_at(l->args, w, weight, behind, 0, l->span);
        piece.next =
            l->swiglu ? linear_panel_at(l->args, w, 1, panels->first, span, l->span) : next;
        piece.out = l->swiglu ? NULL : whole;
        l->multiply(l->work, &piece, l->c);
        if (l->swiglu) {
            piece.weight = 1;
            piece.next = next;
            piece.out = whole;
            l->multiply(l->work, &piece, l->c + l->block * l->chunk * PANEL_ROWS);
        }
    }
    for (int64_t i = 0; !by_tile && i < panels->n; i += together) {
        if (i)
            next_panel(&out, panels->stride,
                       w->n - (panels->first + i * panels->stride) * PANEL_ROWS);
        write_rows(l, &out, m0);
    }
}

void linear_loops_panels(const LinearLoops *l, int64_t begin, int64_t end, int64_t m0, int64_t rows)
{
    int64_t first = 0; /* of the weight's panels */
    for (int i = 0; i < (l->swiglu ? 1 : l->weights); first += l->weight[i++].panels) {
        LinearPanels panels;
        int64_t from = (begin > first ? begin : first) - first;
        int64_t to = num_min(end - first, l->weight[i].panels);
        for (int64_t j = from; linear_panels(&panels, from, to, j, l->block, l->m); j += panels.n)
            run_block(l, i, &panels, m0, rows);
    }
}

LinearLoops linear_loops_of(const Op *op)
{
    LinearLoops l = {.weights = linear_weights(op), .swiglu = op->attr.flag, .m = linear_rows(op)};
    for (int i = 0; i < l.weights; i++) {
        l.weight[i] = linear_weight(op, i);
        l.jobs += i && l.swiglu ? 0 : l.weight[i].panels;
    }
    l.k = l.weight[0].k;
    return l;
}

size_t linear_sums_bytes(const LinearLoops *l)
{
    return (size_t)(l->chunk * l->block * PANEL_ROWS) * sizeof(float) * (l->swiglu ? 2 : 1);
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
