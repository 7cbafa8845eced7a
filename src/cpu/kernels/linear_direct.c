/* The loops around the tiles of linear_direct.h, and the kernels made of them. */
#include "cpu/kernels/linear_direct.h"

#include "base/float16.h"
#include "cpu/kernels/choice.h"
#include "cpu/kernels/kernels.h"

#include <string.h>

enum {
    ALONE = 32768, /* elements of x up to which every thread lays out all of it for itself */
    CHUNK = 240,   /* rows that are computed at a time, about */
    MANY = 64,     /* rows above which the instruction set may ask for other blocks */
    LINE = 2048,   /* bytes of a row of a span of x at most */
    AMX_ROWS = 16, /* of a tile, and their bytes */
    AMX_BYTES = 64
};

/* One product: its loops, and where its parts are in scratch. */
typedef struct Product {
    LinearLoops loops;
    int64_t rows;     /* of x as it is laid out: with those that fill up tiles */
    size_t element;   /* bytes of x as it is laid out */
    size_t x_bytes;   /* of x, all rows */
    size_t all_bytes; /* and of 8 bits their sums in each span, and their steps */
    size_t c_bytes;   /* of a thread's sums */
    size_t row_bytes; /* of a normalised row that is brought to 8 bits, behind them */
} Product;

static Product read_product(const DirectIsa *isa, const Op *op, int n_threads)
{
    Product p = {.loops = linear_loops_of(op), .element = cvn_dtype_bytes(isa->x, 1)};
    LinearLoops *l = &p.loops;
    l->many = isa->chunk && l->m > MANY;
    l->block = l->many ? isa->block / (l->swiglu ? 2 : 1) : LINEAR_BLOCK;
    l->span = l->many ? isa->span : LINEAR_SPAN;
    l->spans = num_pieces(l->k, l->span);
    int64_t chunk = l->many ? isa->chunk : CHUNK, chunks = num_pieces(l->m, chunk);
    l->chunk = chunks > 1 ? num_round_up(num_pieces(l->m, chunks), isa->rows) : l->m;
    l->alone = n_threads > 1 && l->m * l->k <= ALONE;
    p.rows = isa->turned ? num_round_up(l->m, AMX_ROWS) : l->m;
    p.x_bytes = (size_t)(l->spans * p.rows * l->span) * p.element;
    p.all_bytes = p.x_bytes;
    if (isa->x == CVN_I8)
        p.all_bytes += (size_t)(num_round_up(l->spans * p.rows, 16) + num_round_up(l->m, 16)) * 4;
    if (isa->turned)
        l->chunk = num_round_up(l->chunk, AMX_ROWS);
    p.c_bytes = linear_sums_bytes(l);
    if (isa->x == CVN_I8 && op->attr.norm)
        p.row_bytes = (size_t)num_round_up(l->k, 32) * sizeof(uint16_t);
    return p;
}

bool linear_direct_match(const DirectIsa *isa, const Op *op)
{
    bool match = op->kind == OP_LINEAR_INT8 || op->attr.int8 ? isa->x == CVN_I8
                                                             : linear_rows_dtype(op) == isa->weight;
    /* a linear_int8 may be of plain weights */
    match = match && linear_weight(op, 0).panels > 0 && !linear_weight(op, 0).blocks;
    for (int i = 0; i < linear_weights(op) && match; i++)
        match = linear_weight(op, i).dtype == isa->weight;
    return match;
}

size_t linear_direct_scratch(const DirectIsa *isa, const Op *op, int n_threads)
{
    Product p = read_product(isa, op, n_threads);
    size_t threads = (size_t)n_threads;
    return p.all_bytes * (p.loops.alone ? threads : 1) + (p.c_bytes + p.row_bytes) * threads;
}

/* One thread's view. */
typedef struct Work {
    const DirectIsa *isa, *of_rows; /* of_rows: whose functions of rows are taken */
    const Product *p;
    const KernelArgs *args;
    char *x;       /* [spans][rows][span] */
    int32_t *sum;  /* of 8 bits: [spans][rows] */
    uint16_t *row; /* and bf16 [k] */
    float *step;   /* and [m] */
} Work;

/* Where a row of x goes in a span: at once, or into `line`, from which put() takes it. */
typedef struct Place {
    char *to, *line;
} Place;

static int64_t units_of(const LinearLoops *l, int64_t span)
{
    int64_t unit = panel_unit(l->weight[0].dtype);
    return num_min(l->span / unit, l->weight[0].units - span * l->span / unit);
}

/* Row `row` of span s; `line` has room for a span. */
static Place place_of(const Work *w, int64_t s, int64_t row, char *line)
{
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    size_t bytes = (size_t)l->span * p->element;
    char *rows = w->x + (size_t)(s * p->rows + row / AMX_ROWS * AMX_ROWS) * bytes;
    if (w->isa->turned && row < linear_tiled_rows(l->m) && units_of(l, s) % AMX_ROWS == 0)
        return (Place){rows + row % AMX_ROWS * AMX_BYTES, line};
    return (Place){NULL, rows + (size_t)(row % AMX_ROWS) * bytes};
}

static void put(const Work *w, const Place *place)
{
    size_t bytes = (size_t)w->p->loops.span * w->p->element;
    for (size_t i = 0; place->to && i < bytes; i += AMX_BYTES)
        memcpy(place->to + i * AMX_ROWS, place->line + i, AMX_BYTES);
}

/* Elements [at, at + n) of x into a span, with zeros after them. */
static void lay_out(const Work *w, const void *x, int64_t at, int64_t n, char *out)
{
    size_t size = w->p->element;
    if (w->isa->x == w->isa->weight) {
        memcpy(out, (const char *)x + (size_t)at * size, (size_t)n * size);
    } else { /* bf16, widened */
        const uint16_t *half = (const uint16_t *)x + at;
        float *value = (float *)(void *)out;
        for (int64_t i = 0; i < n; i++)
            value[i] = bf16_to_f32(half[i]);
    }
    memset(out + (size_t)n * size, 0, (size_t)(w->p->loops.span - n) * size);
}

/* Whole rows, because each needs the sum of all its squares first. */
static void lay_out_normalised(const Work *w)
{
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    LinearNorm norm = linear_norm_of(w->args);
    int64_t begin, end;
    uint16_t span[LINEAR_SPAN]; /* bf16 that is widened on the way */
    char line[LINE];
    linear_share_rows(l, l->m, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float scale = w->of_rows->norm_scale(&norm, row);
        for (int64_t s = 0; s < l->spans; s++) {
            int64_t k0 = s * l->span, n = num_min(l->span, l->k - k0);
            Place place = place_of(w, s, row, line);
            char *rest = place.line + (size_t)n * p->element;
            if (w->isa->x == norm.out_dtype) {
                w->of_rows->norm_span(&norm, row, k0, n, scale, place.line);
                memset(rest, 0, (size_t)(l->span - n) * p->element);
            } else {
                w->of_rows->norm_span(&norm, row, k0, n, scale, span);
                lay_out(w, span, 0, n, place.line);
            }
            put(w, &place);
        }
    }
    linear_meet(l);
}

static void lay_out_rows(const Work *w)
{
    const LinearLoops *l = &w->p->loops;
    int64_t begin, end;
    char line[LINE];
    linear_share_rows(l, l->spans * l->m, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t k0 = i / l->m * l->span, row = i % l->m;
        Place place = place_of(w, i / l->m, row, line);
        lay_out(w, w->args->in[0], row * l->k + k0, num_min(l->span, l->k - k0), place.line);
        put(w, &place);
    }
    linear_meet(l);
}

/* Row `row` normalised, all of its spans. */
static const void *normalised(const Work *w, const LinearNorm *norm, int64_t row)
{
    const LinearLoops *l = &w->p->loops;
    float scale = w->of_rows->norm_scale(norm, row);
    for (int64_t k0 = 0; k0 < l->k; k0 += LINEAR_SPAN)
        w->of_rows->norm_span(norm, row, k0, num_min(LINEAR_SPAN, l->k - k0), scale, w->row + k0);
    return w->row;
}

/* Brings a row to 8 bits. */
static void lay_out_row_of_8_bits(const Work *w, const LinearNorm *norm, int64_t row)
{
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    const Op *op = w->args->op;
    const void *x = norm->weight ? normalised(w, norm, row) : w->args->in[0];
    cvn_dtype dtype = norm->weight ? norm->out_dtype : op->operand[0]->type.dtype;
    int64_t at = norm->weight ? 0 : row * l->k;
    if (op->kind == OP_LINEAR_INT8) { /* it is there */
        w->step[row] = bf16_to_f32(((const uint16_t *)w->args->in[1])[row]);
    } else {
        int32_t most = 0;
        for (int64_t k0 = 0; k0 < l->k; k0 += LINEAR_SPAN)
            most = w->of_rows->largest(dtype, x, at + k0, num_min(LINEAR_SPAN, l->k - k0), most);
        w->step[row] = w->of_rows->step(most);
    }
    for (int64_t s = 0; s < l->spans; s++) {
        int64_t k0 = s * l->span, n = num_min(l->span, l->k - k0), i = s * p->rows + row;
        char line[LINE];
        Place place = place_of(w, s, row, line);
        int8_t *to = (int8_t *)place.line;
        w->sum[i] = 0;
        for (int64_t j = 0; j < n; j += LINEAR_SPAN)
            w->sum[i] += w->of_rows->to_8_bits(dtype, x, at + k0 + j, num_min(LINEAR_SPAN, n - j),
                                               w->step[row], to + j);
        memset(to + n, 0, (size_t)(l->span - n));
        put(w, &place);
    }
}

static void lay_out_8_bits(const Work *w)
{
    const LinearLoops *l = &w->p->loops;
    LinearNorm norm =
        w->args->op->attr.norm ? linear_norm_of(w->args) : (LinearNorm){.weight = NULL};
    int64_t begin, end;
    linear_share_rows(l, l->m, &begin, &end);
    for (int64_t row = begin; row < end; row++)
        lay_out_row_of_8_bits(w, &norm, row);
    linear_meet(l);
}

/* As in LinearLoops. */
static void multiply(const void *work, const LinearPiece *piece, float *c)
{
    const Work *w = work;
    const Product *p = w->p;
    const LinearLoops *l = &p->loops;
    const LinearWeight *lw = &l->weight[piece->weight];
    int64_t panels = piece->panels->n, span = piece->span, rows = piece->rows;
    int64_t unit = panel_unit(lw->dtype), most = w->isa->rows, call = 0;
    int64_t group = l->many ? w->isa->group : rows <= w->isa->few ? LINEAR_BLOCK : 2;
    int64_t tiles = num_pieces(rows, most), step = w->isa->even ? num_pieces(rows, tiles) : most;
    int64_t row = l->span * (int64_t)p->element, next = (span + 1) % l->spans;
    DirectTile t = {.x_stride = l->span,
                    .w_stride = piece->panels->stride * lw->units * PANEL_BYTES,
                    .units = num_min(l->span / unit, lw->units - span * l->span / unit),
                    .c_stride = l->chunk * PANEL_ROWS,
                    .add = span > 0};
    LinearAhead ahead = {.stride = t.w_stride,
                         .units = t.units,
                         .x = w->x + (next * p->rows + piece->m0) * row,
                         .x_lines = rows * row / 64,
                         .tiles = tiles,
                         .calls = tiles * num_pieces(panels, group)};
    LinearBeside beside;
    t.beside = l->many ? &beside : NULL;
    for (int64_t g = 0; g < panels; g += group) {
        int64_t panel = piece->panels->first + g * piece->panels->stride, left = panels - g - group;
        t.panels = (int)num_min(group, panels - g);
        t.w = linear_panel_at(w->args, lw, piece->weight, panel, span, l->span);
        ahead.panel = left > 0 ? t.w + group * t.w_stride : piece->next;
        ahead.n = !ahead.panel ? 0 : left > 0 ? num_min(group, left) : group;
        for (int64_t r = 0, tile = 0; r < rows; r += step, tile++, call++) {
            int64_t first = span * p->rows + piece->m0 + r;
            t.rows = (int)num_min(step, rows - r);
            t.x = w->x + first * row;
            t.sum = w->sum ? w->sum + first : NULL;
            t.c = c + g * t.c_stride + r * PANEL_ROWS;
            if (l->many)
                beside = linear_beside(&ahead, tile, call, num_pieces(t.units, PANEL_ROWS));
            if (l->many && piece->out && r + step < rows)
                linear_leaves_next(&beside, piece->out, g, t.panels, r + step);
            else if (l->many && piece->out)
                linear_leaves_next(&beside, piece->out, g + group, t.panels, 0);
            t.next = r + step < rows ? t.c + step * PANEL_ROWS : c + (g + group) * t.c_stride;
            w->isa->tile(&t);
            if (piece->out)
                linear_write_tile(l->write, piece->out, g, t.panels, r, t.rows);
        }
    }
}

void linear_direct_run(const DirectIsa *isa, const KernelArgs *args)
{
    Product p = read_product(isa, args->op, args->n_threads);
    LinearLoops *l = &p.loops;
    if (l->m == 0)
        return;
    char *scratch = args->scratch;
    char *c = scratch + p.all_bytes * (l->alone ? (size_t)args->n_threads : 1);
    c += (p.c_bytes + p.row_bytes) * (size_t)args->thread;
    Work w = {.isa = isa,
              .of_rows = isa->rows_of ? isa->rows_of : isa,
              .p = &p,
              .args = args,
              .x = scratch + (l->alone ? p.all_bytes * (size_t)args->thread : 0)};
    l->args = args;
    l->c = (float *)(void *)c;
    l->divided = l->chunk >= l->m && !l->many;
    l->multiply = multiply;
    l->work = &w;
    l->write = w.of_rows->write;
    if (isa->x == CVN_I8) {
        w.sum = (int32_t *)(void *)(w.x + p.x_bytes);
        w.step = (float *)(void *)(w.sum + num_round_up(l->spans * p.rows, 16));
        w.row = (uint16_t *)(void *)(c + p.c_bytes);
        l->step = w.step;
        lay_out_8_bits(&w);
    } else if (args->op->attr.norm)
        lay_out_normalised(&w);
    else
        lay_out_rows(&w);
    if (l->m <= LINEAR_STREAMED)
        l->block = l->m <= isa->few ? LINEAR_BLOCK : 2;
    linear_loops_run(l, isa->enter, isa->leave);
}

/* The functions of an instruction set: a kernel has no other way to carry it. And its rows of tables. */
#define DIRECT_FUNCTIONS(isa)                                                                      \
    static bool match_##isa(const Op *op)                                                          \
    {                                                                                              \
        return linear_direct_match(&linear_##isa, op);                                             \
    }                                                                                              \
    static size_t scratch_##isa(const Op *op, int n_threads)                                       \
    {                                                                                              \
        return linear_direct_scratch(&linear_##isa, op, n_threads);                                \
    }                                                                                              \
    static void run_##isa(const KernelArgs *args)                                                  \
    {                                                                                              \
        linear_direct_run(&linear_##isa, args);                                                    \
    }
#define DIRECT_ROW(text, op, isa)                                                                  \
    {                                                                                              \
        .name = text, .kind = op, .match = match_##isa, .scratch = scratch_##isa, .run = run_##isa \
    }

DIRECT_FUNCTIONS(portable_f32)
DIRECT_FUNCTIONS(portable_bf16)
DIRECT_FUNCTIONS(portable_rows8)

const Kernel linear_float_kernels_portable[] = {
    DIRECT_ROW("linear.portable.f32", OP_LINEAR, portable_f32),
    DIRECT_ROW("linear.portable.bf16", OP_LINEAR, portable_bf16),
    {0},
};
const Kernel linear_int8_kernels_portable[] = {
    DIRECT_ROW("linear.portable.rows8", OP_LINEAR, portable_rows8),
    DIRECT_ROW("linear_int8.portable", OP_LINEAR_INT8, portable_rows8),
    {0},
};

#if defined(CVN_HAVE_AVX2)
DIRECT_FUNCTIONS(avx2_f32)
DIRECT_FUNCTIONS(avx2_bf16)
DIRECT_FUNCTIONS(avx2_rows8)

const Kernel linear_float_kernels_avx2[] = {
    DIRECT_ROW("linear.avx2.f32", OP_LINEAR, avx2_f32),
    DIRECT_ROW("linear.avx2.bf16", OP_LINEAR, avx2_bf16),
    {0},
};
const Kernel linear_int8_kernels_avx2[] = {
    DIRECT_ROW("linear.avx2.rows8", OP_LINEAR, avx2_rows8),
    DIRECT_ROW("linear_int8.avx2", OP_LINEAR_INT8, avx2_rows8),
    {0},
};
#endif

#if defined(CVN_HAVE_AVX512)
DIRECT_FUNCTIONS(avx512_f32)
DIRECT_FUNCTIONS(avx512_bf16)
DIRECT_FUNCTIONS(avx512_bf16dot)
DIRECT_FUNCTIONS(avx512_rows8)

const Kernel linear_float_kernels_avx512[] = {
    DIRECT_ROW("linear.avx512.f32", OP_LINEAR, avx512_f32),
    DIRECT_ROW("linear.avx512.bf16", OP_LINEAR, avx512_bf16),
    {0},
};
const Kernel linear_float_kernels_avx512_bf16[] = {
    DIRECT_ROW("linear.avx512.bf16dot", OP_LINEAR, avx512_bf16dot),
    {0},
};
const Kernel linear_int8_kernels_avx512_vnni[] = {
    DIRECT_ROW("linear.avx512.vnni.rows8", OP_LINEAR, avx512_rows8),
    DIRECT_ROW("linear_int8.avx512.vnni", OP_LINEAR_INT8, avx512_rows8),
    {0},
};
#endif

#if defined(CVN_HAVE_AMX)
DIRECT_FUNCTIONS(amx_bf16)
DIRECT_FUNCTIONS(amx_rows8)

static bool match_amx_tiles(const Op *op)
{
    const char *name = op->kind == OP_LINEAR ? "linear.amx.rows8" : "linear_int8.amx";
    return match_amx_rows8(op) && choice_takes(name, linear_rows(op));
}

const Kernel linear_float_kernels_amx[] = {
    DIRECT_ROW("linear.amx.bf16", OP_LINEAR, amx_bf16),
    {0},
};
const Kernel linear_int8_kernels_amx[] = {
    {.name = "linear.amx.rows8",
     .kind = OP_LINEAR,
     .match = match_amx_tiles,
     .scratch = scratch_amx_rows8,
     .run = run_amx_rows8},
    {.name = "linear_int8.amx",
     .kind = OP_LINEAR_INT8,
     .match = match_amx_tiles,
     .scratch = scratch_amx_rows8,
     .run = run_amx_rows8},
    {0},
};
#endif
