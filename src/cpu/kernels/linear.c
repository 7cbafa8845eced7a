/* What is around the loops (linear_loops.h) and the tiles (linear.h): how x is laid out; and the kernels made of them. */
#include "cpu/kernels/linear.h"

#include "base/float16.h"
#include "compile/fused.h"
#include "cpu/kernels/choice.h"
#include "cpu/kernels/grouped.h"
#include "cpu/kernels/kernels.h"
#include "graph/grouped.h"

#include <string.h>

enum {
    /* Elements of x up to which every thread lays out all of it for itself: less work than meeting. */
    ALONE = 32768,
    ALONE_FIXED = 16384,
    MANY = 64,   /* rows above which an instruction set may ask for other blocks */
    LINE = 2048, /* bytes of a row of a span of x at most */
    TILED = 16,  /* rows of a tile of AMX, and their bytes */
    TILED_BYTES = 64
};

/* One product: its loops, and where its parts are in scratch. */
typedef struct LinearPlan {
    LinearLoops loops;
    BlockChunk chunk_of; /* of blocks */
    int64_t group;       /* columns of a group; LINEAR_SPAN for i8 */
    bool eight;          /* of fixed point, rows of 8 bits */
    int64_t element;     /* bytes of one of x as it is laid out */
    int64_t row_bytes;   /* of a row's span */
    int64_t rows;        /* from span to span: with those that fill up tiles */
    int64_t rest;     /* rows of x's spans from one to what it rounded off; 0: that is left away */
    size_t x_bytes;   /* of x as it is laid out, all rows */
    size_t all_bytes; /* and their spans; of rows of 8 bits their sums in each span, and steps */
    size_t c_bytes;   /* of a thread's sums, and of those that a program reads, behind sums_bytes */
    size_t sums_bytes;
    size_t made_bytes; /* of a row that is made, behind them; of rows by group, of those */
} LinearPlan;

/* What the rows that are multiplied hold: x as it is, or what is made of it; with int8 before they are brought to 8 bits. */
static cvn_dtype rows_dtype(const Op *op)
{
    const Fused *fused = kernel_fused(op);
    return fused->rows ? fused->rows_dtype : op_in(op, 0)->dtype;
}

/* Panels that a tile takes of so many rows. */
static int64_t panels_of_tile(const LinearIsa *isa, int64_t rows)
{
    return rows <= isa->few ? LINEAR_BLOCK : isa->panels;
}

static LinearPlan read_product(const LinearIsa *isa, const Op *op, int n_threads)
{
    LinearPlan p = {.loops = linear_loops_of(op), .group = LINEAR_SPAN};
    LinearLoops *l = &p.loops;
    const LinearWeight *first = &l->weight[0];
    const bool grouped = op->kind == OP_GROUPED_LINEAR,
               wide = isa->chunk && l->m > MANY && !grouped;
    const int64_t chunk = wide ? isa->chunk : LINEAR_CHUNK, chunks = num_pieces(l->m, chunk);
    if (first->blocks) {
        p.group = block_info[first->blocks].form.group;
        p.chunk_of = block_chunk(first->blocks, l->k);
    } else if (first->dtype == CVN_I4) {
        p.group = l->k / first->groups;
    }
    l->many = isa->asks && l->m >= isa->asks;
    l->block = wide                      ? isa->block / l->together
               : l->m <= LINEAR_STREAMED ? panels_of_tile(isa, l->m)
                                         : LINEAR_BLOCK;
    l->block = grouped ? LINEAR_BLOCK : l->block; /* at most: see fit_to_group */
    l->many = l->many && !grouped;
    l->span = wide && isa->span ? isa->span : LINEAR_SPAN;
    l->spans = num_pieces(l->k, l->span);
    l->chunk = chunks > 1 ? num_round_up(num_pieces(l->m, chunks), isa->rows) : l->m;
    l->chunk = isa->turned ? num_round_up(l->chunk, TILED) : l->chunk;
    l->divided = !l->many || (isa->fixed && l->chunk >= l->m);
    l->alone = n_threads > 1 && l->m * l->k <= (isa->fixed ? ALONE_FIXED : ALONE);
    p.eight = isa->fixed && op->attr.int8;
    p.element = !isa->fixed               ? cvn_dtype_bits(isa->x) / 8
                : p.eight && !isa->turned ? 1
                                          : LINEAR_ROW_BYTES / LINEAR_SPAN;
    p.row_bytes = l->span * p.element;
    p.rows = isa->turned ? num_round_up(l->m, TILED) : l->m;
    bool exact = isa->blocks && rows_dtype(op) == CVN_F32 && !p.eight;
    p.rest = exact ? l->spans * p.rows : 0;
    int64_t rows = l->spans * p.rows + p.rest;
    p.x_bytes = p.all_bytes = (size_t)(rows * p.row_bytes);
    if (isa->fixed)
        p.all_bytes += (size_t)rows * sizeof(LinearSpan);
    else if (isa->x == CVN_I8)
        p.all_bytes += (size_t)(num_round_up(rows, 16) + l->m) * sizeof(float);
    p.all_bytes = num_padded(p.all_bytes, CACHE_LINE);
    p.sums_bytes = p.c_bytes = linear_sums_bytes(l);
    if (op->fused && op->fused->over)
        p.c_bytes += linear_kept_bytes(l);
    if (kernel_fused(op)->rows)
        p.made_bytes = num_padded(cvn_dtype_bytes(rows_dtype(op), l->k), CACHE_LINE);
    if (grouped)
        p.made_bytes = groups_bytes(op, grouped_number(op));
    return p;
}

/* Weights of the instruction set's kind; of quantized ones the groups make whole spans. */
bool linear_match(const Kernel *kernel, const Op *op)
{
    const LinearIsa *isa = kernel->isa;
    const LinearWeight first = linear_weight(op, 0);
    const bool eight = op->kind == OP_LINEAR_INT8 || op->attr.int8;
    if (!choice_takes(kernel->name, linear_rows(op)))
        return false;
    if (first.blocks || isa->blocks || isa->floats) { /* of x in bf16 f32 is a wider one */
        const bool floats = block_info[first.blocks].form.fraction;
        return first.blocks && (floats ? isa->floats : isa->blocks) &&
               (!floats || (!eight && (isa->x == CVN_F32 || isa->x == rows_dtype(op))));
    }
    if (eight != (!isa->fixed && isa->x == CVN_I8))
        return false;
    if (!isa->fixed && !eight && rows_dtype(op) != isa->weight)
        return false;
    for (int i = 0; i < linear_weights(op); i++) {
        LinearWeight w = linear_weight(op, i);
        if (w.dtype != isa->weight || !w.panels) /* a linear_int8 may be of plain weights */
            return false;
        if (isa->fixed && w.groups != first.groups)
            return false;
        if (isa->fixed && w.dtype == CVN_I8 && (w.groups != 1 || w.scale_dtype != CVN_F32))
            return false;
    }
    const int64_t group = first.groups ? first.k / first.groups : 1;
    return first.dtype != CVN_I4 || (LINEAR_SPAN % group == 0 && group >= isa->least_group);
}

size_t linear_scratch(const Kernel *kernel, const Op *op, int n_threads)
{
    LinearPlan p = read_product(kernel->isa, op, n_threads);
    size_t threads = (size_t)n_threads;
    return p.all_bytes * (p.loops.alone ? threads : 1) + (p.c_bytes + p.made_bytes) * threads;
}

/* One thread's view. */
typedef struct Work {
    const LinearIsa *isa;
    const LinearRows *of;
    const LinearPlan *p;
    const KernelArgs *args;
    int8_t *x;        /* [spans][rows][row_bytes], and what those rounded off */
    LinearSpan *span; /* of fixed point: [spans][rows], and of that; else NULL */
    int32_t *sum;     /* of rows of 8 bits: [spans][rows]; else NULL */
    float *step;      /* and [m] */
    char *row;        /* made of one of x */
    /* of rows by group: whose row each that is laid out is, and how many slots share one */
    const int32_t *slot;
    int64_t share;
} Work;

/* Units of a weight's panels in a span. */
static int64_t units_of(const LinearLoops *l, const LinearWeight *w, int64_t span)
{
    const int64_t unit = w->blocks ? w->k / w->units : panel_unit(w->dtype);
    return num_min(l->span / unit, w->units - span * l->span / unit);
}

/* Lays out n <= LINEAR_SPAN elements of a row, from k0 on, which are at x; zeros after them. */
static void lay_out(const Work *w, cvn_dtype dtype, const void *x, int64_t n, int64_t k0,
                    int64_t row)
{
    const LinearPlan *p = w->p;
    const LinearLoops *l = &p->loops;
    const LinearIsa *isa = w->isa;
    const int64_t s = k0 / l->span, i = s * p->rows + row, part = k0 % l->span * p->element;
    int8_t line[LINE], *to = w->x + i * p->row_bytes + part;
    const bool turned = isa->turn || (isa->turned && row < linear_tiled_rows(l->m) &&
                                      units_of(l, &l->weight[0], s) % TILED == 0);
    int8_t *out = turned ? line : to;
    if (p->eight) {
        w->of->quantize8(dtype, x, n, p->group, p->chunk_of.columns, out, &w->span[i]);
    } else if (isa->fixed) {
        w->of->quantize(dtype, x, n, p->group, isa->arrange, out, &w->span[i], p->rest);
    } else if (isa->x == CVN_I8) {
        int32_t sum = w->of->to_8_bits(dtype, x, n, w->step[row], out);
        w->sum[i] = part ? w->sum[i] + sum : sum;
    } else if (isa->x == dtype) {
        memcpy(out, x, (size_t)(n * p->element));
    } else { /* bf16 or f16, widened */
        float *value = (float *)(void *)out;
        for (int64_t j = 0; j < n; j++) {
            const uint16_t half = ((const uint16_t *)x)[j];
            value[j] = dtype == CVN_BF16 ? bf16_to_f32(half) : f16_to_f32(half);
        }
    }
    if (!isa->fixed)
        memset(out + n * p->element, 0, (size_t)((LINEAR_SPAN - n) * p->element));
    if (!turned)
        return;
    to -= row % TILED * (p->row_bytes - TILED_BYTES) - part * (TILED - 1);
    if (isa->turn)
        isa->turn(p->eight, line, to);
    for (int64_t j = 0; !isa->turn && j < LINEAR_SPAN * p->element; j += TILED_BYTES)
        memcpy(to + j * TILED, line + j, TILED_BYTES);
}

/* The step of a row of d elements that is brought to 8 bits. */
static float step_of_row(const LinearRows *of, cvn_dtype dtype, const char *x, int64_t d)
{
    int32_t most = 0;
    for (int64_t i = 0; i < d; i += LINEAR_SPAN)
        most = of->largest(dtype, x + cvn_dtype_bytes(dtype, i), num_min(LINEAR_SPAN, d - i), most);
    return of->step(most);
}

/* Lays out this thread's part of x: whole rows, where each needs first what all of it is like. */
static void lay_out_rows(const Work *w)
{
    const LinearLoops *l = &w->p->loops;
    const LinearRows *of = w->of;
    const Op *op = w->args->op;
    const TileProgram *rows = kernel_fused(op)->rows;
    const bool steps = w->step, whole = rows || steps;
    const cvn_dtype dtype = rows_dtype(op);
    int64_t begin, end;
    linear_share_rows(l, whole ? l->m : num_pieces(l->k, LINEAR_SPAN) * l->m, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = i % l->m, first = i / l->m * LINEAR_SPAN;
        const int64_t last = whole ? l->k : num_min(l->k, first + LINEAR_SPAN);
        const int64_t from = w->slot ? w->slot[row] / w->share : row;
        const char *x = (const char *)w->args->in[0] + cvn_dtype_bytes(dtype, from * l->k);
        if (rows) {
            of->row(w->args, rows, row, w->row);
            x = w->row;
        }
        if (op->kind == OP_LINEAR_INT8) { /* it is there */
            w->step[row] = bf16_to_f32(((const uint16_t *)w->args->in[1])[row]);
        } else if (steps) {
            w->step[row] = step_of_row(of, dtype, x, l->k);
        }
        for (int64_t k0 = first; k0 < last; k0 += LINEAR_SPAN)
            lay_out(w, dtype, x + cvn_dtype_bytes(dtype, k0), num_min(LINEAR_SPAN, last - k0), k0,
                    row);
    }
    linear_meet(l);
}

/* A piece in tiles. */
typedef struct Cut {
    int64_t panels;      /* of a tile */
    int64_t rows, tiles; /* of a tile at most, and how many tiles of rows there are */
    /* bytes of a panel between what a tile reads and what it asks for; 0: what the next piece reads, of which each tile asks
       for a part */
    int64_t ahead;
    int64_t steps; /* of a tile, beside each of which it asks */
} Cut;

static Cut cut_piece(const LinearIsa *isa, int64_t units, int64_t rows)
{
    enum { STEP_BYTES = 64 };
    Cut c = {.panels = panels_of_tile(isa, rows), .rows = num_min(isa->rows, rows)};
    c.tiles = num_pieces(rows, c.rows);
    if (isa->even)
        c.rows = num_pieces(rows, c.tiles);
    if (rows <= LINEAR_STREAMED)
        c.ahead = isa->ahead;
    c.steps = isa->fixed ? num_pieces(c.rows, TILED) * (LINEAR_SPAN / STEP_BYTES)
                         : num_pieces(units, PANEL_ROWS);
    return c;
}

/* All rows with the panels of t, which are the g-th ones on. */
static void multiply_panels(const Work *w, const LinearPiece *piece, const Cut *cut,
                            const LinearAhead *ahead, LinearTile *t, float *c, int64_t g)
{
    const LinearPlan *p = w->p;
    const LinearLoops *l = &p->loops;
    const int64_t rows = piece->rows, call = g / cut->panels * cut->tiles;
    const uint8_t *next = piece->next ? (const uint8_t *)piece->next + g * t->q_stride : NULL;
    LinearBeside beside;
    t->beside = l->many ? &beside : NULL;
    for (int64_t r = 0, tile = 0; r < rows; r += cut->rows, tile++) {
        const int64_t first = piece->span * p->rows + piece->m0 + r;
        const bool last = r + cut->rows >= rows;
        t->rows = (int)num_min(cut->rows, rows - r);
        t->x = w->x + first * p->row_bytes;
        t->span = w->span ? w->span + first : NULL;
        t->sum = w->sum ? w->sum + first : NULL;
        t->c = c + g * t->c_stride + r * PANEL_ROWS;
        t->next = last ? c + (g + cut->panels) * t->c_stride : t->c + cut->rows * PANEL_ROWS;
        for (int j = 0; j < t->panels; j++) {
            const uint8_t *q = t->q + j * t->q_stride;
            if (cut->ahead)
                t->ahead[j] = q + cut->ahead;
            else
                t->ahead[j] = next && j % cut->tiles == tile ? next + j * t->q_stride : q;
        }
        if (l->many)
            beside = linear_beside(ahead, tile, call + tile, cut->steps);
        if (l->many && piece->leave)
            linear_leaves_next(&beside, piece->leave, last ? g + cut->panels : g, t->panels,
                               last ? 0 : r + cut->rows);
        w->isa->tile(t);
        if (p->rest) {
            LinearTile rest = *t;
            rest.x = w->x + (first + p->rest) * p->row_bytes;
            rest.span += p->rest;
            rest.add = true;
            w->isa->tile(&rest);
        }
        if (piece->leave)
            linear_leave(piece->leave, g, t->panels, r, t->rows);
    }
}

/* As in LinearLoops. */
static void multiply(const void *work, const LinearPiece *piece, float *c)
{
    const Work *w = work;
    const LinearPlan *p = w->p;
    const LinearLoops *l = &p->loops;
    const LinearPanels *panels = piece->panels;
    const LinearWeight *lw = &l->weight[piece->weight];
    const int64_t span = piece->span, next = (span + 1) % l->spans * p->rows + piece->m0;
    const size_t scale_bytes = cvn_dtype_bytes(lw->scale_dtype, PANEL_ROWS);
    const bool scaled = w->isa->fixed && !lw->blocks;
    LinearTile t = {.eight = p->eight,
                    .x_stride = l->span,
                    .q_stride = panels->stride * (int64_t)lw->panel_bytes,
                    .blocks = lw->blocks,
                    .chunk = &p->chunk_of,
                    .units = units_of(l, lw, span),
                    .group = lw->blocks ? 0 : p->group / panel_unit(lw->dtype),
                    .scale_stride = panels->stride * lw->groups * PANEL_ROWS,
                    .scale_dtype = lw->scale_dtype,
                    .c_stride = l->chunk * PANEL_ROWS,
                    .add = span > 0};
    const Cut cut = cut_piece(w->isa, t.units, piece->rows);
    LinearAhead ahead = {.stride = t.q_stride,
                         .units = lw->blocks ? t.units * p->chunk_of.bytes / PANEL_BYTES : t.units,
                         .x = (const char *)w->x + next * p->row_bytes,
                         .x_lines = piece->rows * p->row_bytes / CACHE_LINE,
                         .tiles = cut.tiles,
                         .calls = cut.tiles * num_pieces(panels->n, cut.panels)};
    for (int64_t g = 0; g < panels->n; g += cut.panels) {
        const int64_t panel = panels->first + g * panels->stride, left = panels->n - g - cut.panels;
        const char *q = linear_panel_at(l->args, lw, piece->weight, panel, span, l->span);
        t.panels = (int)num_min(cut.panels, panels->n - g);
        t.q = (const uint8_t *)q;
        if (scaled)
            t.scale = (const char *)l->args->in[2 + 2 * piece->weight] +
                      (size_t)(panel * lw->groups + span * l->span / p->group) * scale_bytes;
        ahead.panel = left > 0 ? q + cut.panels * t.q_stride : piece->next;
        ahead.n = !ahead.panel ? 0 : left > 0 ? num_min(cut.panels, left) : cut.panels;
        multiply_panels(w, piece, &cut, &ahead, &t, c, g);
    }
}

/* What so few rows take, of all that a product by group has. */
static void fit_to_group(LinearLoops *l, int64_t rows)
{
    l->m = rows;
    l->block = rows <= LINEAR_STREAMED ? panels_of_tile(l->args->isa, rows) : LINEAR_BLOCK;
}

/* Each row with the weights of its group. */
static void run_by_group(Work *w, LinearLoops *l)
{
    const KernelArgs *args = w->args;
    const cvn_type *slots = grouped_groups(args->op);
    const int64_t n = grouped_number(args->op);
    const Groups groups = groups_sort(args, n, w->row);
    for (int64_t slot = -1; (slot = groups_none(args, n, slot)) >= 0;)
        linear_leave_zeros(l, slot);
    l->m = groups.sorted;
    w->slot = groups.slot;
    w->share = grouped_has_slots(args->op, 0) ? 1 : slots->dim[slots->rank - 1];
    lay_out_rows(w);
    grouped_loops_run(l, &groups, fit_to_group);
}

static void run_product(const KernelArgs *args, const LinearRows *of)
{
    const LinearIsa *isa = args->isa;
    LinearPlan p = read_product(isa, args->op, args->n_threads);
    LinearLoops *l = &p.loops;
    if (l->m == 0)
        return;
    const size_t threads = (size_t)args->n_threads, thread = (size_t)args->thread;
    char *x = (char *)args->scratch + (l->alone ? p.all_bytes * thread : 0);
    char *c = (char *)args->scratch + p.all_bytes * (l->alone ? threads : 1) +
              (p.c_bytes + p.made_bytes) * thread;
    Work w = {.isa = isa, .of = of, .p = &p, .args = args, .x = (int8_t *)x, .row = c + p.c_bytes};
    if (isa->fixed) {
        w.span = (LinearSpan *)(void *)(x + p.x_bytes);
    } else if (isa->x == CVN_I8) {
        w.sum = (int32_t *)(void *)(x + p.x_bytes);
        w.step = (float *)(void *)(w.sum + num_round_up(l->spans * p.rows, 16));
    }
    l->args = args;
    l->c = (float *)(void *)c;
    l->multiply = multiply;
    l->work = &w;
    l->step = w.step;
    l->write = of->write;
    l->program = args->op->fused ? args->op->fused->program : NULL;
    l->epilogue = of->epilogue;
    l->y = (float *)(void *)(c + p.sums_bytes);
    if (args->op->kind == OP_GROUPED_LINEAR) {
        run_by_group(&w, l);
        return;
    }
    lay_out_rows(&w);
    linear_loops_run(l, isa->enter, isa->leave);
}

void linear_run(const KernelArgs *args)
{
    run_product(args, ((const LinearIsa *)args->isa)->of_rows);
}

/* With the bits of every instruction set: tiles have them anyway, rows where they are told to (VEC_SAME in vec.h). */
static void run_same(const KernelArgs *args)
{
    run_product(args, ((const LinearIsa *)args->isa)->of_same);
}

/* ---- quantize_rows: the same rows of 8 bits, by themselves ---- */

static bool match_rows(const Op *op)
{
    cvn_dtype dtype = op->operand[0]->type.dtype;
    return dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16;
}

/* Every step is one that all instruction sets round alike (a maximum, a division, a rounding to the nearest whole number), so
   that they give the interpreter's bits: as with all that is written into a KV cache, a row then has the same bits
   wherever it was made. */
static void quantize_rows(const KernelArgs *args)
{
    const LinearRows *of = args->isa;
    const cvn_type *type = &args->op->operand[0]->type; /* [..., d] */
    const int64_t d = type->dim[type->rank - 1];
    uint16_t *scale = args->out[1]; /* bf16 */
    int64_t begin, end;
    kernel_share(cvn_type_elements(type) / d, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        const char *x = (const char *)args->in[0] + cvn_dtype_bytes(type->dtype, row * d);
        const float step = step_of_row(of, type->dtype, x, d);
        scale[row] = bf16_from_f32(step);
        for (int64_t i = 0; i < d; i += LINEAR_SPAN)
            of->to_8_bits(type->dtype, x + cvn_dtype_bytes(type->dtype, i),
                          num_min(LINEAR_SPAN, d - i), step, (int8_t *)args->out[0] + row * d + i);
    }
}

#define QUANTIZE_ROWS(set)                                                                         \
    {                                                                                              \
        .name = "quantize_rows." #set, .kind = OP_QUANTIZE_ROWS, .isa = &linear_rows_##set,        \
        .match = match_rows, .run = quantize_rows                                                  \
    }
#define ROW_OF(text, of, match, how, set)                                                          \
    {                                                                                              \
        .name = text, .kind = of, .isa = &linear_##set, .match_isa = match,                        \
        .scratch_isa = linear_scratch, .run = how, .fuses = true                                   \
    }
#define ROW(text, of, match, set) ROW_OF(text, of, match, linear_run, set)
/* Those that every set of vectors has for quantized weights, and for rows of 8 bits. */
#define INTEGERS_OF(set, text, how)                                                                \
    ROW_OF("linear." text ".int8", OP_LINEAR, linear_match, how, i8_##set),                        \
        ROW_OF("linear." text ".int4", OP_LINEAR, linear_match, how, i4_##set),                    \
        ROW_OF("linear." text ".blocks", OP_LINEAR, linear_match, how, blocks_##set),              \
        ROW_OF("grouped_linear." text ".int8", OP_GROUPED_LINEAR, linear_match, how, i8_##set),    \
        ROW_OF("grouped_linear." text ".int4", OP_GROUPED_LINEAR, linear_match, how, i4_##set),    \
        ROW_OF("grouped_linear." text ".blocks", OP_GROUPED_LINEAR, linear_match, how,             \
               blocks_##set),                                                                      \
        ROW_OF("linear." text ".rows8", OP_LINEAR, linear_match, how, rows8_##set),                \
        ROW_OF("linear_int8." text, OP_LINEAR_INT8, linear_match, how, rows8_##set)
#define IN_INTEGERS(set, text) INTEGERS_OF(set, text, linear_run)
#define SAME_INTEGERS(set, text) INTEGERS_OF(set, text ".same", run_same)
/* And for floats. */
#define FLOATS_OF(set, text, how)                                                                  \
    ROW_OF("linear." text ".f32", OP_LINEAR, linear_match, how, f32_##set),                        \
        ROW_OF("grouped_linear." text ".f32", OP_GROUPED_LINEAR, linear_match, how, f32_##set),    \
        ROW_OF("linear." text ".bf16", OP_LINEAR, linear_match, how, bf16_##set),                  \
        ROW_OF("grouped_linear." text ".bf16", OP_GROUPED_LINEAR, linear_match, how, bf16_##set)
#define IN_FLOATS(set, text) FLOATS_OF(set, text, linear_run)
#define SAME_FLOATS(set, text) FLOATS_OF(set, text ".same", run_same)
/* And for floats of 8 bits. */
#define FLOAT8_OF(set, text, how)                                                                  \
    ROW_OF("linear." text ".float8", OP_LINEAR, linear_match, how, float8_##set),                  \
        ROW_OF("grouped_linear." text ".float8", OP_GROUPED_LINEAR, linear_match, how,             \
               float8_##set)
#define IN_FLOAT8(set, text) FLOAT8_OF(set, text, linear_run)
#define SAME_FLOAT8(set, text) FLOAT8_OF(set, text ".same", run_same)

const Kernel linear_kernels_portable[] = {
    IN_INTEGERS(portable, "portable"),
    QUANTIZE_ROWS(portable),
    IN_FLOATS(portable, "portable"),
    IN_FLOAT8(portable, "portable"),
    {0},
};
const Kernel linear_kernels_portable_same[] = {
    SAME_INTEGERS(portable_same, "portable"),
    QUANTIZE_ROWS(portable),
    SAME_FLOATS(portable_same, "portable"),
    SAME_FLOAT8(portable_same, "portable"),
    {0},
};

#if defined(CVN_HAVE_DOTPROD)
const Kernel linear_kernels_dotprod[] = {
    IN_INTEGERS(dotprod, "dotprod"),
    {0},
};
const Kernel linear_kernels_dotprod_same[] = {
    SAME_INTEGERS(dotprod, "dotprod"),
    {0},
};
#endif

#if defined(CVN_HAVE_I8MM)
const Kernel linear_kernels_i8mm[] = {
    IN_INTEGERS(i8mm, "i8mm"),
    ROW("linear.i8mm.bf16dot", OP_LINEAR, linear_match, bf16_i8mm),
    ROW("grouped_linear.i8mm.bf16dot", OP_GROUPED_LINEAR, linear_match, bf16_i8mm),
    IN_FLOAT8(i8mm, "i8mm"),
    {0},
};
const Kernel linear_kernels_i8mm_same[] = {
    SAME_INTEGERS(i8mm, "i8mm"),
    {0},
};
#endif

#if defined(CVN_HAVE_AVX2)
const Kernel linear_kernels_avx2[] = {
    IN_INTEGERS(avx2, "avx2"),
    QUANTIZE_ROWS(avx2),
    IN_FLOATS(avx2, "avx2"),
    IN_FLOAT8(avx2, "avx2"),
    {0},
};
const Kernel linear_kernels_avx2_same[] = {
    SAME_INTEGERS(avx2, "avx2"),
    QUANTIZE_ROWS(avx2),
    SAME_FLOATS(avx2, "avx2"),
    SAME_FLOAT8(avx2, "avx2"),
    {0},
};
#endif

#if defined(CVN_HAVE_AVX_VNNI)
const Kernel linear_kernels_avx_vnni[] = {
    IN_INTEGERS(avx_vnni, "avx_vnni"),
    {0},
};
const Kernel linear_kernels_avx_vnni_same[] = {
    SAME_INTEGERS(avx_vnni, "avx_vnni"),
    {0},
};
#endif

#if defined(CVN_HAVE_AVX512)
const Kernel linear_kernels_avx512[] = {
    QUANTIZE_ROWS(avx512),
    IN_FLOATS(avx512, "avx512"),
    IN_FLOAT8(avx512, "avx512"),
    {0},
};
const Kernel linear_kernels_avx512_same[] = {
    QUANTIZE_ROWS(avx512),
    SAME_FLOATS(avx512, "avx512"),
    SAME_FLOAT8(avx512, "avx512"),
    {0},
};
const Kernel linear_kernels_avx512_vnni[] = {
    IN_INTEGERS(avx512_vnni, "avx512.vnni"),
    {0},
};
const Kernel linear_kernels_avx512_vnni_same[] = {
    SAME_INTEGERS(avx512_vnni, "avx512.vnni"),
    {0},
};
const Kernel linear_kernels_avx512_bf16[] = {
    ROW("linear.avx512.bf16dot", OP_LINEAR, linear_match, bf16_avx512_bf16),
    ROW("grouped_linear.avx512.bf16dot", OP_GROUPED_LINEAR, linear_match, bf16_avx512_bf16),
    IN_FLOAT8(avx512_bf16, "avx512.bf16dot"),
    {0},
};
#endif

#if defined(CVN_HAVE_AMX)
/* x as fixed point must be numbers of bf16. */
static bool match_blocks(const Kernel *kernel, const Op *op)
{
    return !op->attr.int8 && rows_dtype(op) == CVN_BF16 && linear_match(kernel, op);
}

/* Numbers of 8 bits are two of 4 there: those vectors multiply as fast. */
static bool match_blocks_rows8(const Kernel *kernel, const Op *op)
{
    const BlockForm *f = &block_info[op->attr.blocks].form;
    return op->attr.int8 && f->base != 8 && f->table != block_iq4_step && linear_match(kernel, op);
}

const Kernel linear_kernels_amx[] = {
    ROW("linear.amx.blocks", OP_LINEAR, match_blocks, blocks_amx),
    ROW("linear.amx.blocks8", OP_LINEAR, match_blocks_rows8, blocks_amx),
    ROW("linear.amx.int8", OP_LINEAR, linear_match, i8_amx),
    ROW("linear.amx.int4", OP_LINEAR, linear_match, i4_amx),
    ROW("linear.amx.bf16", OP_LINEAR, linear_match, bf16_amx),
    ROW("linear.amx.rows8", OP_LINEAR, linear_match, rows8_amx),
    ROW("linear_int8.amx", OP_LINEAR_INT8, linear_match, rows8_amx),
    {0},
};
#endif
