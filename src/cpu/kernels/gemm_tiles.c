/*
 * The loops around tiles of AMX. What decides is how far operands and sums travel, and that nothing else is done by itself:
 *
 *     for blocks of mc rows and nc columns         sums stay in L2; each thread has blocks of its own
 *       for k, kc at a time (a slab)               rows of A, mc x kc, packed, stay in L2
 *         for groups of 64 columns                 B, 64 x kc, packed, stays in L1
 *           for 32 rows                            tiles(), 350 ns
 *
 * Between two calls of tiles() a piece of what comes next is packed, of the next group's B and of the next slab's A, and
 * what will be packed some pieces later is asked for: so that the processor packs, and waits for L3, while its tiles
 * multiply. Threads share nothing. What is packed is packed again for the next block, unless many blocks need it and
 * it is not too much: then it is kept, and only asked for.
 *
 * The longer side is the outer loop, and is read from memory but once. Where k is so long that neither side stays
 * in L3 for a block (the gradient of logits has sums over the vocabulary), k is cut: sums of all blocks of a thread are
 * kept, and every `deep` of k is done for all of them before the next.
 *
 * Both operands are packed into tiles of 1 KiB, [panel of 16 rows or columns][steps of k]; A with rows of 32 values of k, B
 * with 16 pairs of k, each of 16 columns. Sums of an element are added up in the order of k, whatever the blocks are.
 */
#include "cpu/kernels/gemm.h"

#include "base/num.h"

#include <string.h>

enum {
    TILE = 1024,           /* bytes */
    ROWS = 2 * GEMM_PANEL, /* of a product of tiles */
    GROUP = GEMM_PANEL * GEMM_TILE_PANELS,
    /* Rows or columns that are packed at a time, of one step of k: whole cache lines either way. */
    PIECE = 2 * GEMM_PANEL,
    AHEAD = 4,              /* pieces from asking for them to packing them */
    EARLY = 3,              /* tiles from asking for their place in the result to writing them */
    DEEP = 2048,            /* of k, where it is cut */
    LONG = 8192,            /* k from which it is */
    OFTEN = 2,              /* blocks that need an operand, for which it is kept packed */
    MOST_PACKED = 20 << 20, /* bytes of an operand of a thread that are kept packed */
    KEPT = 4 << 20          /* most bytes of sums that are kept for that */
};

/* The largest part of n, in units, when it is cut into equal parts of at most `most`. */
static int64_t even(int64_t n, int64_t most, int64_t unit)
{
    int64_t parts = num_pieces(n, most);
    return num_round_up(num_pieces(n, parts), unit);
}

/* ---- who does what ---- */

typedef struct TileBlocking {
    bool alone; /* each thread computes whole products; else all threads share each one */
    int row_parts, col_parts; /* the threads as a grid over the result */
    int64_t rows, columns;    /* most of both that a thread has */
    int64_t mc, nc, kc, deep; /* of a block, a slab, and of k before the next block */
    bool rows_outside;        /* blocks of rows are the outer loop */
    bool keep_a, keep_b;      /* what is packed is kept for other blocks */
    size_t a, b, c;           /* bytes of a packed slab, a packed group, and of sums */
    size_t all_a, all_b;      /* of all that are there at a time */
} TileBlocking;

/* Cuts the result for the threads: the most work that one has, with what it packs, is to be small. Sums of squares go down
   whole columns. */
static void choose_grid(const Gemm *gemm, int n_threads, TileBlocking *p)
{
    int64_t best = INT64_MAX;
    for (int parts = 1; parts <= n_threads; parts++) {
        if (n_threads % parts || (gemm->squares && parts > 1))
            continue;
        int64_t rows = even(gemm->m, num_round_up(num_pieces(gemm->m, parts), ROWS), ROWS);
        int64_t others = n_threads / parts;
        int64_t columns = even(gemm->n, num_round_up(num_pieces(gemm->n, others), GROUP), GROUP);
        int64_t work = rows * columns + (rows + columns) * GEMM_PANEL;
        if (work >= best)
            continue;
        best = work;
        p->row_parts = parts;
        p->col_parts = n_threads / parts;
        p->rows = rows;
        p->columns = columns;
    }
}

/* What is packed of one operand, in units of `bytes`, `units` of them for each slab of a block: of its block of the outer
   loop, or of all blocks of the inner one; where it will be needed again, and is not too much. Returns the bytes. */
static size_t keep(const TileBlocking *p, bool outer, int64_t blocks, int64_t others, int64_t units,
                   size_t bytes, bool *kept)
{
    int64_t slabs = p->deep / p->kc;
    size_t all = bytes * (size_t)(units * slabs * (outer ? 1 : blocks));
    *kept = others >= OFTEN && slabs > 1 && all <= MOST_PACKED;
    return *kept ? all : 2 * bytes;
}

static TileBlocking plan_blocks(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    TileBlocking p = {.alone = gemm->batch > 1 && gemm->batch >= n_threads};
    choose_grid(gemm, p.alone ? 1 : n_threads, &p);
    /* Sums of a block are to stay in L2: tall where the other side is packed but once, wide where there are many. */
    bool wide = p.rows > isa->mc && p.columns >= 2 * isa->mc;
    p.mc = even(p.rows, wide ? isa->nc : isa->mc, ROWS);
    p.nc = even(p.columns, wide ? isa->mc : isa->nc, GROUP);
    p.kc = even(gemm->k, isa->kc, GEMM_STEP);
    p.rows_outside = p.rows >= p.columns;
    int64_t kept =
        num_round_up(p.rows, p.mc) * num_round_up(p.columns, p.nc) * (int64_t)sizeof(float);
    bool cut = gemm->k >= LONG && kept <= KEPT;
    p.deep = cut ? DEEP / p.kc * p.kc : num_round_up(gemm->k, p.kc);
    p.a = (size_t)(p.mc * p.kc) * 2;
    p.b = (size_t)(GROUP * p.kc) * 2;
    p.c = (cut ? (size_t)kept : (size_t)(p.mc * p.nc) * sizeof(float));
    int64_t down = num_pieces(p.rows, p.mc), across = num_pieces(p.columns, p.nc);
    p.all_a = keep(&p, p.rows_outside, down, across, 1, p.a, &p.keep_a);
    p.all_b = keep(&p, !p.rows_outside, across, down, p.nc / GROUP, p.b, &p.keep_b);
    if (p.kc >= gemm->k)
        p.c = (size_t)(ROWS * GROUP) * sizeof(float);
    return p;
}

static size_t thread_bytes(const TileBlocking *p)
{
    return p->all_a + p->all_b + p->c;
}

size_t gemm_tiles_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    TileBlocking p = plan_blocks(isa, gemm, n_threads);
    size_t squares = gemm->squares ? (size_t)gemm->n * sizeof(float) : 0;
    return thread_bytes(&p) * (size_t)n_threads + squares;
}

/* ---- the order of slabs ---- */

/* A block, and k of it from k0 on. */
typedef struct Slab {
    GemmRegion block; /* no rows: there is none left */
    int64_t k0, length;
} Slab;

/* One operand of one product. */
typedef struct Side {
    const GemmOperand *x;
    const uint16_t *data;
    int64_t rows; /* or columns, of the whole product */
    bool is_b;
    /* The strides of rows and k, and how pieces are packed; NULL where there is more to it. */
    int64_t row_stride, k_stride, stride;
    GemmPack *pack;
    char *packed; /* units, of `bytes` each: two that take turns, or all that are kept */
    size_t bytes;
    bool kept, outer; /* it is the operand of the outer loop */
} Side;

/* An operand whose packed units have `bytes`. */
static Side side_of(const GemmIsa *isa, const GemmOperand *x, int64_t rows, bool is_b, char *packed,
                    size_t bytes)
{
    Side side = {.x = x, .rows = rows, .is_b = is_b, .packed = packed, .bytes = bytes};
    if (x->row.n > 1 || x->k.n != 1)
        return side;
    side.row_stride = x->row.n ? x->row.stride[0] : 0;
    side.k_stride = x->k.stride[0];
    if (side.k_stride != 1 && side.row_stride != 1)
        return side;
    side.pack = isa->pack[is_b][side.k_stride != 1];
    side.stride = side.k_stride == 1 ? side.row_stride : side.k_stride;
    return side;
}

/* One thread's view of one product of the batch. */
typedef struct Work {
    const KernelArgs *args;
    const GemmIsa *isa;
    const Gemm *gemm;
    TileBlocking p;
    Side a, b;
    GemmResult result;
    int64_t m_begin, m_end, n_begin, n_end; /* the thread's part of it */
    float *c;                               /* sums: [block][group][16 rows][16][GROUP] */
} Work;

static void fit(const Work *w, Slab *s)
{
    s->block.rows = num_min(w->p.mc, w->m_end - s->block.m0);
    s->block.columns = num_min(w->p.nc, w->n_end - s->block.n0);
    s->length = num_min(w->p.kc, w->gemm->k - s->k0);
}

static Slab first_slab(const Work *w)
{
    Slab s = {.block = {.m0 = w->m_begin, .n0 = w->n_begin}};
    fit(w, &s);
    if (s.block.columns <= 0)
        s.block.rows = 0;
    return s;
}

/* Goes on, or back to the beginning: then it says false. */
static bool next(int64_t *at, int64_t begin, int64_t end, int64_t step)
{
    *at = *at + step < end ? *at + step : begin;
    return *at > begin;
}

static void next_slab(const Work *w, Slab *s)
{
    GemmRegion *block = &s->block;
    int64_t deep = s->k0 / w->p.deep * w->p.deep;
    bool more = next(&s->k0, deep, num_min(deep + w->p.deep, w->gemm->k), w->p.kc);
    if (!more && !w->p.rows_outside)
        more = next(&block->m0, w->m_begin, w->m_end, w->p.mc);
    if (!more)
        more = next(&block->n0, w->n_begin, w->n_end, w->p.nc);
    if (!more && w->p.rows_outside)
        more = next(&block->m0, w->m_begin, w->m_end, w->p.mc);
    if (!more)
        s->k0 = deep + w->p.deep;
    if (s->k0 < w->gemm->k)
        fit(w, s);
    else
        block->rows = 0;
}

/* ---- packing, piece by piece ---- */

/* Walks over what is packed of one operand: slabs of A, groups of B. */
typedef struct Cursor {
    Slab slab;
    int64_t first, count, length; /* rows or columns of the operand, and k, packed together */
    int64_t row, k;               /* the next piece, from `first` and k0 on */
    int64_t pieces;               /* of all of it */
    int buffer;
    char *packed;   /* where it goes */
    bool is_packed; /* it is there */
} Cursor;

/* Where a unit lies, packed. */
static char *unit_at(const Work *w, const Side *side, const Cursor *c)
{
    const GemmRegion *block = &c->slab.block;
    if (!side->kept)
        return side->packed + (size_t)c->buffer * side->bytes;
    int64_t index = (block->m0 - w->m_begin) / w->p.mc;
    if (side->outer)
        index = 0;
    else if (side->is_b)
        index = (block->n0 - w->n_begin) / w->p.nc;
    if (side->is_b)
        index = index * (w->p.nc / GROUP) + (c->first - block->n0) / GROUP;
    index = index * (w->p.deep / w->p.kc) + c->slab.k0 % w->p.deep / w->p.kc;
    return side->packed + (size_t)index * side->bytes;
}

static void enter_unit(const Work *w, const Side *side, Cursor *c, int64_t first)
{
    const GemmRegion *block = &c->slab.block;
    c->first = first;
    c->count = side->is_b ? num_min(GROUP, block->n0 + block->columns - first) : block->rows;
    c->length = c->slab.length;
    c->row = c->k = 0;
    c->pieces =
        block->rows > 0 ? num_pieces(c->count, PIECE) * num_pieces(c->length, GEMM_STEP) : 0;
    c->packed = unit_at(w, side, c);
    c->is_packed = side->kept && (side->is_b ? block->m0 > w->m_begin : block->n0 > w->n_begin);
}

static void next_unit(const Work *w, const Side *side, Cursor *c)
{
    const GemmRegion *block = &c->slab.block;
    c->buffer ^= 1;
    if (side->is_b && c->first + GROUP < block->n0 + block->columns) {
        enter_unit(w, side, c, c->first + GROUP);
        return;
    }
    next_slab(w, &c->slab);
    enter_unit(w, side, c, side->is_b ? block->n0 : block->m0);
}

static inline void next_piece(const Work *w, const Side *side, Cursor *c)
{
    c->k += GEMM_STEP;
    if (c->k < c->length)
        return;
    c->k = 0;
    c->row += PIECE;
    if (c->row >= c->count)
        next_unit(w, side, c);
}

/* Where a piece begins, if operands are as simple as they mostly are. */
static inline const uint16_t *piece_at(const Side *side, const Cursor *c)
{
    return side->data + (c->first + c->row) * side->row_stride +
           (c->slab.k0 + c->k) * side->k_stride;
}

/* 16 rows or columns and a step of k, in any order and past any edge. */
static void pack_tile(const GemmIsa *isa, const Side *side, int64_t first, int64_t k0,
                      int64_t length, char *out)
{
    if (!side->is_b) {
        gemm_pack_rows(isa, side->x, side->data, side->rows, first, k0, length, out);
        return;
    }
    size_t filled = (size_t)(num_round_up(length, 2) * GEMM_PANEL) * 2;
    gemm_pack_panels(isa, side->x, side->data, side->rows, first, GEMM_PANEL, 1, k0, length, out,
                     0);
    memset(out + filled, 0, TILE - filled);
}

/* Packs a piece, and asks for what lies at `ahead`. */
static void pack_piece(const Work *w, const Side *side, const Cursor *c, const uint16_t *ahead)
{
    size_t panel = (size_t)num_pieces(c->length, GEMM_STEP) * TILE; /* bytes to the next one */
    char *out =
        c->packed + (size_t)(c->row / GEMM_PANEL) * panel + (size_t)(c->k / GEMM_STEP) * TILE;
    if (side->pack && c->row + PIECE <= c->count && c->k + GEMM_STEP <= c->length &&
        c->first + c->row + PIECE <= side->rows) {
        side->pack(piece_at(side, c), side->stride, ahead, (void *[2]){out, out + panel});
        return;
    }
    for (int64_t i = 0; i < PIECE && c->row + i < c->count; i += GEMM_PANEL, out += panel)
        pack_tile(w->isa, side, c->first + c->row + i, c->slab.k0 + c->k,
                  num_min(GEMM_STEP, c->length - c->k), out);
}

/* What is packed and what is asked for, of one operand. */
typedef struct Feed {
    const Side *side;
    Cursor pack, fetch;
    int64_t done, all;      /* pieces of the unit that is packed at present */
    const char *now, *next; /* the one before, which is whole, and this */
} Feed;

static void begin_unit(Feed *f)
{
    f->now = f->next;
    f->next = f->pack.packed;
    f->done = 0;
    f->all = f->pack.pieces;
}

/* Packs until `part` of `whole` is done, and asks for what comes AHEAD pieces later. */
static inline void feed(const Work *w, Feed *f, int64_t part, int64_t whole)
{
    const Side *side = f->side;
    for (; f->done * whole < f->all * part; f->done++) {
        const uint16_t *ahead = piece_at(side, f->fetch.is_packed ? &f->pack : &f->fetch);
        if (f->fetch.pieces)
            next_piece(w, side, &f->fetch);
        if (!f->pack.is_packed)
            pack_piece(w, side, &f->pack, ahead);
        next_piece(w, side, &f->pack);
    }
}

/* Everything up to the end of the first unit. */
static void feed_first(const Work *w, Feed *f, const Side *side)
{
    *f = (Feed){.side = side, .pack.slab = first_slab(w)};
    enter_unit(w, side, &f->pack, side->is_b ? w->n_begin : w->m_begin);
    f->fetch = f->pack;
    for (int i = 0; i < AHEAD && f->fetch.pieces; i++)
        next_piece(w, side, &f->fetch);
    begin_unit(f);
    feed(w, f, 1, 1);
}

/* ---- products ---- */

/* The sums of 32 rows of a group: from scratch, and back or to the result. */
static void multiply_tile(const Work *w, const Slab *s, const GemmRegion *tile,
                          const GemmRegion *later, const char *a, const char *b, float *c)
{
    enum { ROW = GROUP * sizeof(float) };
    const Gemm *gemm = w->gemm;
    GemmTiles p = {.steps = num_pieces(s->length, GEMM_STEP),
                   .a = a,
                   .b = b,
                   .rows = tile->rows > GEMM_PANEL ? 2 : 1,
                   .columns = (int)num_pieces(tile->columns, GEMM_PANEL),
                   .from = s->k0 > 0 ? c : NULL,
                   .to = c,
                   .from_row = GROUP,
                   .to_row = GROUP,
                   .ask = (const char *)(c + ROWS * GROUP),
                   .ask_row = ROW,
                   .ask_bytes = ROW};
    const GemmResult *out = &w->result;
    bool last = s->k0 + s->length >= gemm->k;
    bool as_they_are = last && gemm->out == CVN_F32 && !gemm->epilogue && !gemm->transposed &&
                       !out->total && tile->rows % GEMM_PANEL == 0 &&
                       tile->columns % GEMM_PANEL == 0;
    if (last && !gemm->transposed && !gemm->epilogue) { /* what will be written next */
        size_t size = cvn_dtype_bytes(gemm->out, 1);
        p.ask = (const char *)out->out + (size_t)(out->at + later->m0 * gemm->n + later->n0) * size;
        p.ask_row = (size_t)gemm->n * size;
        p.ask_bytes = (size_t)later->columns * size;
    }
    if (as_they_are) {
        p.to = (float *)out->out + out->at + tile->m0 * gemm->n + tile->n0;
        p.to_row = gemm->n;
    }
    w->isa->tiles(&p);
    if (last && !as_they_are)
        gemm_write(out, tile, c, GROUP);
}

/* The sums of a block. */
static float *block_sums(const Work *w, const GemmRegion *block)
{
    if (w->p.deep >= w->gemm->k)
        return w->c;
    int64_t row = (block->m0 - w->m_begin) / w->p.mc, column = (block->n0 - w->n_begin) / w->p.nc;
    int64_t blocks = num_pieces(w->p.columns, w->p.nc);
    return w->c + (row * blocks + column) * w->p.mc * w->p.nc;
}

/* Rows i of group g of a block, 32 at a time; it may be one group too far. */
static inline GemmRegion tile_at(const GemmRegion *block, int64_t g, int64_t i)
{
    int64_t columns = block->columns - g * GROUP;
    return (GemmRegion){block->m0 + i * ROWS, num_min(ROWS, block->rows - i * ROWS),
                        block->n0 + g * GROUP, columns < 0 ? 0 : num_min(GROUP, columns)};
}

static void multiply_slab(const Work *w, const Slab *s, Feed *feed_a, Feed *feed_b)
{
    const GemmRegion *block = &s->block;
    int64_t panels = num_pieces(block->rows, ROWS);
    int64_t groups = num_pieces(block->columns, GROUP), call = 0;
    size_t a_panel = (size_t)(num_round_up(s->length, GEMM_STEP) * ROWS) * 2;
    float *c = block_sums(w, block);
    bool one = w->p.kc >= w->gemm->k;
    begin_unit(feed_a);
    const char *a = feed_a->now;
    for (int64_t g = 0; g < groups; g++) {
        begin_unit(feed_b);
        const char *b = feed_b->now;
        for (int64_t i = 0; i < panels; i++, c += one ? 0 : ROWS * GROUP) {
            feed(w, feed_b, i + 1, panels);
            feed(w, feed_a, ++call, panels * groups);
            GemmRegion tile = tile_at(block, g, i);
            bool end = i + EARLY >= panels;
            GemmRegion later =
                tile_at(block, end ? g + 1 : g, end ? i + EARLY - panels : i + EARLY);
            multiply_tile(w, s, &tile, &later, a + (size_t)i * a_panel, b, c);
        }
    }
}

/* The part of a product that is this thread's. */
static void run_product(const Work *w)
{
    Feed feed_a, feed_b;
    Slab s = first_slab(w);
    if (s.block.rows <= 0)
        return;
    feed_first(w, &feed_a, &w->a);
    feed_first(w, &feed_b, &w->b);
    for (; s.block.rows > 0 && !kernel_cancelled(w->args); next_slab(w, &s))
        multiply_slab(w, &s, &feed_a, &feed_b);
}

void gemm_tiles_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args)
{
    Work w = {.args = args, .isa = isa, .gemm = gemm, .p = plan_blocks(isa, gemm, args->n_threads)};
    char *scratch = args->scratch, *mine = scratch + thread_bytes(&w.p) * (size_t)args->thread;
    char *part = scratch + thread_bytes(&w.p) * (size_t)args->n_threads;
    int thread = w.p.alone ? 0 : args->thread;
    int64_t begin = 0, end = gemm->batch;
    w.a = side_of(isa, &gemm->a, gemm->m, false, mine, w.p.a);
    w.a.kept = w.p.keep_a;
    w.a.outer = w.p.rows_outside;
    mine += w.p.all_a;
    w.b = side_of(isa, &gemm->b, gemm->n, true, mine, w.p.b);
    w.b.kept = w.p.keep_b;
    w.b.outer = !w.p.rows_outside;
    w.c = (float *)(void *)(mine + w.p.all_b);
    w.result = gemm_result(isa, gemm, args, (float *)(void *)part);
    kernel_share(gemm->m, ROWS, thread / w.p.col_parts, w.p.row_parts, &w.m_begin, &w.m_end);
    kernel_share(gemm->n, GROUP, thread % w.p.col_parts, w.p.col_parts, &w.n_begin, &w.n_end);
    if (w.p.alone)
        kernel_share(gemm->batch, 1, args->thread, args->n_threads, &begin, &end);
    isa->enter();
    for (int64_t b = begin; b < end; b++) {
        w.a.data = gemm_operand_at(&gemm->a, args->in[0], b);
        w.b.data = gemm_operand_at(&gemm->b, args->in[1], b);
        w.result.at = b * gemm->m * gemm->n;
        run_product(&w);
    }
    isa->leave();
}
