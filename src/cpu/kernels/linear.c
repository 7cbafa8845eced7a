/* The loops around the tiles of linear.h, and the kernels of `linear`. */
#include "cpu/kernels/linear.h"

#include "cpu/kernels/choice.h"
#include "cpu/kernels/kernels.h"

#include <string.h>

/* Elements of x up to which every thread quantizes all of it for itself: less work than meeting. */
enum { ALONE = 16384 };

/* Rows above which an instruction set may be wide; those of a piece of x. */
enum { MANY = 64, TILED = 16, TILED_BYTES = 64 };

/* One product: its loops, and where its parts are in scratch. */
typedef struct Product {
    LinearLoops loops;
    BlockChunk chunk_of; /* of blocks */
    int64_t group;       /* columns of a group; LINEAR_SPAN for i8 */
    bool eight;          /* rows of 8 bits */
    bool tiled;          /* 16 rows of x in one piece, as arrange_blocks lays them out */
    int64_t row_bytes;   /* of a row's span */
    int64_t rows;        /* from span to span */
    int64_t rest;     /* rows of x's spans from one to what it rounded off; 0: that is left away */
    size_t x_bytes;   /* of the arranged activations, all rows */
    size_t all_bytes; /* and their spans */
    size_t c_bytes;   /* of a thread's sums */
} Product;

static Product read_product(const Op *op, int n_threads, bool wide)
{
    Product p = {.loops = linear_loops_of(op), .group = LINEAR_SPAN};
    LinearLoops *l = &p.loops;
    const LinearWeight *first = &l->weight[0];
    if (first->blocks) {
        p.group = block_info[first->blocks].form.group;
        p.chunk_of = block_chunk(first->blocks, l->k);
    } else if (first->dtype == CVN_I4) {
        p.group = l->k / first->groups;
    }
    bool many = wide && l->m > MANY;
    l->span = LINEAR_SPAN;
    l->spans = num_pieces(l->k, l->span);
    l->chunk = num_min(l->m, many ? LINEAR_WIDE_CHUNK : LINEAR_CHUNK);
    l->block = many ? LINEAR_WIDE_BLOCK / (l->swiglu ? 2 : 1) : LINEAR_BLOCK;
    l->alone = n_threads > 1 && l->m * l->k <= ALONE;
    p.eight = op->attr.int8;
    p.tiled = wide && first->blocks;
    p.row_bytes = p.eight && !p.tiled ? LINEAR_SPAN : LINEAR_ROW_BYTES;
    p.rows = p.tiled ? num_round_up(l->m, TILED) : l->m;
    bool exact = first->blocks && linear_rows_dtype(op) == CVN_F32 && !p.eight;
    p.rest = exact ? l->spans * p.rows : 0;
    int64_t rows = l->spans * p.rows + p.rest;
    p.x_bytes = (size_t)(rows * p.row_bytes);
    p.all_bytes = p.x_bytes + (size_t)rows * sizeof(LinearSpan);
    p.all_bytes = (size_t)num_round_up((int64_t)p.all_bytes, 64);
    p.c_bytes = linear_sums_bytes(l);
    return p;
}

/* Quantized weights of one kind, whose groups make whole spans. */
bool linear_match(const Op *op)
{
    LinearWeight first = linear_weight(op, 0);
    if (first.blocks)
        return true;
    if (!panel_scaled(first.dtype) || op->attr.int8)
        return false;
    for (int i = 0; i < (int)op->attr.group_size; i++) {
        LinearWeight w = linear_weight(op, i);
        if (w.dtype != first.dtype || w.groups != first.groups)
            return false;
        if (w.dtype == CVN_I8 && (w.groups != 1 || w.scale_dtype != CVN_F32))
            return false;
    }
    if (first.dtype == CVN_I8)
        return true;
    int64_t group = first.k / first.groups;
    return LINEAR_SPAN % group == 0;
}

static size_t scratch_bytes(const Op *op, int n_threads, bool wide)
{
    Product p = read_product(op, n_threads, wide);
    return p.all_bytes * (p.loops.alone ? (size_t)n_threads : 1) + p.c_bytes * (size_t)n_threads;
}

size_t linear_scratch(const Op *op, int n_threads)
{
    return scratch_bytes(op, n_threads, false);
}

size_t linear_wide_scratch(const Op *op, int n_threads)
{
    return scratch_bytes(op, n_threads, true);
}

/* One thread's view. */
typedef struct Work {
    const LinearIsa *isa, *rows; /* rows: whose functions of rows are taken */
    const Product *p;
    const KernelArgs *args;
    int8_t *x;        /* [spans][m][row_bytes], and what those rounded off */
    LinearSpan *span; /* [spans][m], and of that */
} Work;

LinearNorm linear_norm_of(const KernelArgs *args)
{
    const Op *op = args->op;
    int weight = linear_norm(op);
    return (LinearNorm){.x_dtype = op->operand[0]->type.dtype,
                        .weight_dtype = op->operand[weight]->type.dtype,
                        .out_dtype = linear_rows_dtype(op),
                        .x = args->in[0],
                        .weight = args->in[weight],
                        .k = linear_weight(op, 0).k,
                        .eps = (float)op->attr.eps};
}

/* Elements [at, at + n) of x as a row's span. */
static void quantize_span(const Work *w, cvn_dtype dtype, const void *x, int64_t at, int64_t n,
                          int64_t span, int64_t row, int64_t rest)
{
    const Product *p = w->p;
    const int64_t i = span * p->rows + row;
    int8_t *to = w->x + i * p->row_bytes, plain[LINEAR_ROW_BYTES];
    int8_t *out = p->tiled ? plain : to;
    if (p->eight)
        w->rows->quantize8(dtype, x, at, n, p->group, p->chunk_of.columns, out, &w->span[i]);
    else
        w->rows->quantize(dtype, x, at, n, p->group, out, &w->span[i], rest);
    if (p->tiled)
        w->isa->arrange_blocks(p->eight, plain,
                               to + row % TILED * (TILED_BYTES - LINEAR_ROW_BYTES));
}

/* Whole rows, because each needs the sum of all its squares first. */
static void quantize_normalised(const Work *w)
{
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    LinearNorm norm = linear_norm_of(w->args);
    int64_t begin, end;
    uint16_t span[LINEAR_SPAN]; /* bf16 */
    linear_share_rows(l, l->m, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float scale = w->rows->norm_scale(&norm, row);
        for (int64_t s = 0; s < l->spans; s++) {
            int64_t k0 = s * LINEAR_SPAN, n = num_min(LINEAR_SPAN, l->k - k0);
            w->rows->norm_span(&norm, row, k0, n, scale, span);
            quantize_span(w, CVN_BF16, span, 0, n, s, row, 0);
        }
    }
    linear_meet(l);
}

static void quantize_rows(const Work *w)
{
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    int64_t begin, end;
    linear_share_rows(l, l->spans * l->m, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t span = i / l->m, k0 = span * LINEAR_SPAN, row = i % l->m;
        quantize_span(w, w->args->op->operand[0]->type.dtype, w->args->in[0], row * l->k + k0,
                      num_min(LINEAR_SPAN, l->k - k0), span, row, p->rest);
    }
    linear_meet(l);
}

/* Panels that a tile takes for so many rows. */
static int64_t panels_of_tile(const LinearIsa *isa, int64_t rows)
{
    return isa->panels ? rows <= isa->few ? LINEAR_BLOCK : isa->panels : 1;
}

/* A piece in tiles. */
typedef struct Cut {
    int64_t panels;      /* of a tile */
    int64_t rows, tiles; /* of a tile at most, and how many tiles of rows there are */
    int64_t
        ahead; /* bytes of a panel between what a tile reads and what it asks for; 0: what the next piece reads,
                            of which each tile asks for a part */
} Cut;

static Cut cut_piece(const LinearIsa *isa, const LinearWeight *w, int64_t rows)
{
    bool is_i4 = w->dtype == CVN_I4, blocks = w->blocks != BLOCK_NONE;
    int64_t most = blocks ? isa->rows_blocks : is_i4 ? isa->rows_i4 : isa->rows_i8;
    bool alone = !is_i4 && !blocks && rows > most && rows <= isa->alone_i8;
    Cut c = {.panels = panels_of_tile(isa, rows), .rows = alone ? rows : num_min(most, rows)};
    c.tiles = num_pieces(rows, c.rows);
    if (isa->panels && !isa->wide)
        c.rows = num_pieces(rows, c.tiles);
    if (alone)
        c.ahead = LINEAR_SPAN / panel_unit(w->dtype) * PANEL_BYTES;
    else if (rows <= LINEAR_STREAMED)
        c.ahead = is_i4 || blocks ? 4096 : 2048; /* as measured */
    return c;
}

/* All rows with the panels of t, which are the g-th ones on. */
static void multiply_panels(const Work *w, const LinearPiece *piece, const Cut *cut,
                            const LinearAhead *ahead, LinearTile *t, float *c, int64_t g)
{
    const LinearLoops *l = &w->p->loops;
    const bool is_i4 = l->weight[piece->weight].dtype == CVN_I4;
    void (*tile_of)(const LinearTile *) = t->blocks ? w->isa->tile_blocks
                                          : is_i4   ? w->isa->tile_i4
                                                    : w->isa->tile_i8;
    int64_t first = piece->span * w->p->rows + piece->m0, call = g / cut->panels * cut->tiles;
    const int64_t steps = LINEAR_SPAN / 64;
    const uint8_t *next = piece->next ? (const uint8_t *)piece->next + g * t->q_stride : NULL;
    LinearBeside beside;
    t->beside = w->isa->wide ? &beside : NULL;
    for (int64_t r = 0, tile = 0; r < piece->rows; r += cut->rows, tile++) {
        t->rows = (int)num_min(cut->rows, piece->rows - r);
        t->x = w->x + (first + r) * w->p->row_bytes;
        t->span = w->span + first + r;
        t->c = c + r * PANEL_ROWS;
        for (int j = 0; j < t->panels; j++) {
            const uint8_t *q = t->q + j * t->q_stride;
            if (cut->ahead)
                t->ahead[j] = q + cut->ahead;
            else
                t->ahead[j] = next && j % cut->tiles == tile ? next + j * t->q_stride : q;
        }
        if (w->isa->wide)
            beside = linear_beside(ahead, tile, call + tile, num_pieces(cut->rows, 16) * steps);
        if (w->isa->wide && piece->out)
            linear_leaves_next(&beside, piece->out,
                               r + cut->rows < piece->rows ? g : g + cut->panels, t->panels,
                               r + cut->rows < piece->rows ? r + cut->rows : 0);
        tile_of(t);
        if (w->p->rest) {
            LinearTile rest = *t;
            rest.x += w->p->rest * w->p->row_bytes;
            rest.span += w->p->rest;
            rest.add = true;
            tile_of(&rest);
        }
        if (piece->out)
            linear_write_tile(l->write, piece->out, g, t->panels, r, t->rows);
    }
}

/* As in LinearLoops. */
static void multiply(const void *work, const LinearPiece *piece, float *c)
{
    const Work *w = work;
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    const LinearPanels *panels = piece->panels;
    const LinearWeight *lw = &l->weight[piece->weight];
    const int64_t span = piece->span, unit = lw->blocks ? lw->k / lw->units : panel_unit(lw->dtype);
    const int64_t scale_bytes = lw->scale_dtype == CVN_F32 ? 4 : 2;
    const char *scale = lw->blocks ? NULL : w->args->in[2 + 2 * piece->weight];
    Cut cut = cut_piece(w->isa, lw, piece->rows);
    LinearTile t = {.q_stride = panels->stride * (int64_t)lw->panel_bytes,
                    .eight = p->eight,
                    .blocks = lw->blocks,
                    .chunk = &p->chunk_of,
                    .units = num_min(LINEAR_SPAN / unit, lw->units - span * LINEAR_SPAN / unit),
                    .group = p->group / unit,
                    .scale_stride = panels->stride * lw->groups * PANEL_ROWS,
                    .scale_dtype = lw->scale_dtype,
                    .c_stride = l->chunk * PANEL_ROWS,
                    .add = span > 0};
    LinearAhead ahead = {.stride = t.q_stride,
                         .units = lw->blocks ? t.units * p->chunk_of.bytes / PANEL_BYTES : t.units,
                         .x = (const char *)w->x +
                              ((span + 1) % l->spans * p->rows + piece->m0) * p->row_bytes,
                         .x_lines = piece->rows * p->row_bytes / 64,
                         .tiles = cut.tiles,
                         .calls = cut.tiles * num_pieces(panels->n, cut.panels)};
    for (int64_t g = 0; g < panels->n; g += cut.panels) {
        int64_t panel = panels->first + g * panels->stride;
        int64_t at = panel * lw->groups + span * LINEAR_SPAN / p->group;
        bool last = g + cut.panels >= panels->n;
        t.panels = (int)num_min(cut.panels, panels->n - g);
        t.q =
            (const uint8_t *)linear_panel_at(w->args, lw, piece->weight, panel, span, LINEAR_SPAN);
        if (scale)
            t.scale = scale + at * PANEL_ROWS * scale_bytes;
        ahead.panel = last ? piece->next : (const char *)t.q + cut.panels * t.q_stride;
        ahead.n = ahead.panel ? t.panels : 0;
        multiply_panels(w, piece, &cut, &ahead, &t, c + g * t.c_stride, g);
    }
}

void linear_run(const LinearIsa *isa, const KernelArgs *args)
{
    Product p = read_product(args->op, args->n_threads, isa->wide);
    LinearLoops *l = &p.loops;
    if (l->m == 0)
        return;
    char *scratch = args->scratch,
         *x = scratch + (l->alone ? p.all_bytes * (size_t)args->thread : 0);
    char *c = scratch + p.all_bytes * (l->alone ? (size_t)args->n_threads : 1);
    Work w = {.isa = isa,
              .rows = isa->rows_of ? isa->rows_of : isa,
              .p = &p,
              .args = args,
              .x = (int8_t *)x,
              .span = (LinearSpan *)(void *)(x + p.x_bytes)};
    l->args = args;
    l->c = (float *)(void *)(c + p.c_bytes * (size_t)args->thread);
    l->divided = l->chunk == l->m;
    l->multiply = multiply;
    l->work = &w;
    l->write = w.rows->write;
    l->many = isa->wide;
    if (args->op->attr.norm)
        quantize_normalised(&w);
    else
        quantize_rows(&w);
    if (l->m <= LINEAR_STREAMED)
        l->block = panels_of_tile(isa, l->m);
    linear_loops_run(l, isa->enter, isa->leave);
}

/* What runs an instruction set: a kernel has no other way to carry it. And a table that takes all there is. */
#define LINEAR_FUNCTION(isa)                                                                       \
    static void run_##isa(const KernelArgs *args)                                                  \
    {                                                                                              \
        linear_run(&linear_##isa, args);                                                           \
    }
#define LINEAR_TABLE(isa, text)                                                                    \
    LINEAR_FUNCTION(isa)                                                                           \
    const Kernel linear_kernels_##isa[] = {{.name = text,                                          \
                                            .kind = OP_LINEAR,                                     \
                                            .match = linear_match,                                 \
                                            .scratch = linear_scratch,                             \
                                            .run = run_##isa},                                     \
                                           {0}};

LINEAR_TABLE(portable, "linear.portable")
#if defined(CVN_HAVE_AVX2)
LINEAR_TABLE(avx2, "linear.avx2")
#endif
#if defined(CVN_HAVE_AVX512)
LINEAR_TABLE(avx512_vnni, "linear.avx512.vnni")
#endif

#if defined(CVN_HAVE_AMX)
LINEAR_FUNCTION(amx_int8)

static bool match_amx_int8(const Op *op)
{
    return linear_match(op) && linear_weight(op, 0).dtype == CVN_I8 && !op->attr.blocks &&
           choice_takes("linear.amx.int8", linear_rows(op));
}

/* Groups must be half a tile at least. */
static bool match_amx_int4(const Op *op)
{
    enum { LEAST_GROUP = 32 };
    LinearWeight w = linear_weight(op, 0);
    return linear_match(op) && w.dtype == CVN_I4 && w.k / w.groups >= LEAST_GROUP &&
           choice_takes("linear.amx.int4", linear_rows(op));
}

/* x as fixed point must be numbers of bf16. */
static bool match_amx_blocks(const Op *op)
{
    return op->attr.blocks && !op->attr.int8 && linear_rows_dtype(op) == CVN_BF16 &&
           choice_takes("linear.amx.blocks", linear_rows(op));
}

/* Numbers of 8 bits are two of 4 there: those vectors multiply as fast. */
static bool match_amx_blocks_rows8(const Op *op)
{
    const BlockForm *f = &block_info[op->attr.blocks].form;
    return op->attr.blocks && op->attr.int8 && f->base != 8 && f->table != block_iq4_step &&
           choice_takes("linear.amx.blocks8", linear_rows(op));
}

const Kernel linear_kernels_amx[] = {
    {.name = "linear.amx.blocks",
     .kind = OP_LINEAR,
     .match = match_amx_blocks,
     .scratch = linear_wide_scratch,
     .run = run_amx_int8},
    {.name = "linear.amx.blocks8",
     .kind = OP_LINEAR,
     .match = match_amx_blocks_rows8,
     .scratch = linear_wide_scratch,
     .run = run_amx_int8},
    {.name = "linear.amx.int8",
     .kind = OP_LINEAR,
     .match = match_amx_int8,
     .scratch = linear_wide_scratch,
     .run = run_amx_int8},
    {.name = "linear.amx.int4",
     .kind = OP_LINEAR,
     .match = match_amx_int4,
     .scratch = linear_wide_scratch,
     .run = run_amx_int8},
    {0},
};
#endif
