/*
 * The loops around the micro-kernels: reading a dot_general as matrices, blocking, threads. See
 * gemm.h.
 */
#include "cpu/kernels/gemm.h"

#include "base/float16.h"

#include <string.h>

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static size_t dtype_size(cvn_dtype dtype)
{
    return (size_t)cvn_dtype_bits(dtype) / 8;
}

/* ---- dot_general as matrices ---- */

/* Appends a dimension, merged with the one before it where they lie as one. */
static void dims_add(GemmDims *dims, int64_t size, int64_t stride)
{
    int last = dims->n - 1;
    if (size == 1)
        return;
    if (last >= 0 && dims->stride[last] == stride * size) {
        dims->size[last] *= size;
        dims->stride[last] = stride;
        return;
    }
    dims->size[dims->n] = size;
    dims->stride[dims->n++] = stride;
}

/* Sorts the dimensions of one operand into batch, row and k; returns the number of rows. */
static int64_t operand_from_type(const cvn_type *type, const Ints *batch, const Ints *contract,
                                 GemmOperand *x)
{
    int64_t stride[CVN_MAX_RANK], step = 1, rows = 1;
    unsigned taken = 0;
    for (int i = type->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= type->dim[i];
    }
    *x = (GemmOperand){.dtype = type->dtype};
    for (int i = 0; i < batch->n; i++) {
        int d = (int)batch->v[i];
        dims_add(&x->batch, type->dim[d], stride[d]);
        taken |= 1u << d;
    }
    for (int i = 0; i < contract->n; i++) {
        int d = (int)contract->v[i];
        dims_add(&x->k, type->dim[d], stride[d]);
        taken |= 1u << d;
    }
    for (int i = 0; i < type->rank; i++) {
        if (taken & 1u << i)
            continue;
        dims_add(&x->row, type->dim[i], stride[i]);
        rows *= type->dim[i];
    }
    return rows;
}

/* The result is [what is left of A, what is left of B], with its dimensions permuted. */
static void place_result(const Op *op, Gemm *gemm)
{
    const cvn_type *type = &op->result[0]->type;
    const int64_t *from = op->attr.dims.v; /* dimension i of the result is from[i] of the product */
    int64_t size[CVN_MAX_RANK], stride[CVN_MAX_RANK], step = 1;
    int n_rows = op->operand[0]->type.rank - op->attr.lhs_contract.n;
    for (int i = type->rank - 1; i >= 0; i--) {
        size[from[i]] = type->dim[i];
        stride[from[i]] = step;
        step *= type->dim[i];
    }
    gemm->placed = true;
    for (int i = 0; i < type->rank; i++)
        dims_add(i < n_rows ? &gemm->row_at : &gemm->column_at, size[i], stride[i]);
}

void gemm_from_op(const Op *op, Gemm *gemm)
{
    const OpAttr *attr = &op->attr;
    const cvn_type *lhs = &op->operand[0]->type, *rhs = &op->operand[1]->type;
    *gemm = (Gemm){.out = op->result[0]->type.dtype,
                   .follows = op->attr.fusion,
                   .adds = op->n_operands == 3 && !op->attr.fusion};
    gemm->m = operand_from_type(lhs, &attr->lhs_batch, &attr->lhs_contract, &gemm->a);
    gemm->n = operand_from_type(rhs, &attr->rhs_batch, &attr->rhs_contract, &gemm->b);
    gemm->batch = gemm->k = 1;
    gemm->squares = op->n_results > 1 && !op->attr.fusion;
    for (int i = 0; i < attr->lhs_batch.n; i++)
        gemm->batch *= lhs->dim[attr->lhs_batch.v[i]];
    for (int i = 0; i < attr->lhs_contract.n; i++)
        gemm->k *= lhs->dim[attr->lhs_contract.v[i]];
    if (attr->dims.n)
        place_result(op, gemm);
}

/* ---- results ---- */

/* Rounds n sums to the result at element `at`. */
static void write_row(const GemmIsa *isa, cvn_dtype dtype, void *out, int64_t at, const float *sum,
                      int64_t n)
{
    if (dtype == CVN_F32) {
        memcpy((float *)out + at, sum, (size_t)n * sizeof *sum);
        return;
    }
    uint16_t *half = (uint16_t *)out + at;
    if (dtype == CVN_BF16 && isa->round)
        isa->round(half, n, sum, n, 1, n);
    else if (dtype == CVN_BF16)
        for (int64_t i = 0; i < n; i++)
            half[i] = bf16_from_f32(sum[i]);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = f16_from_f32(sum[i]);
}

/* Product b of the batch: its operands. */
static const void *operand_at(const GemmOperand *x, const void *data, int64_t b)
{
    return (const char *)data + (size_t)gemm_offset(&x->batch, b) * dtype_size(x->dtype);
}

/* ---- few rows: B is read where it lies ---- */

static bool rows_lie(const GemmOperand *x)
{
    return x->row.n <= 1 && (x->k.n == 0 || (x->k.n == 1 && x->k.stride[0] == 1));
}

bool gemm_few_match(const GemmIsa *isa, const Gemm *gemm)
{
    return isa->dots && gemm->a.dtype == isa->source && gemm->b.dtype == isa->source &&
           rows_lie(&gemm->a) && rows_lie(&gemm->b);
}

/* Bytes of the rows of A as dots wants them, of one thread. */
static size_t few_bytes(const GemmIsa *isa, const Gemm *gemm)
{
    size_t bytes = (size_t)(gemm->m * round_up(gemm->k, isa->lanes)) * dtype_size(isa->packed);
    return (size_t)round_up((int64_t)bytes, 64);
}

/* Packs rows [m0, m0 + rows) of A; `data` is where the product's A begins. */
static void pack_few(const GemmIsa *isa, const Gemm *gemm, const void *data, int64_t m0,
                     int64_t rows, void *out)
{
    size_t from = dtype_size(isa->source), to = dtype_size(isa->packed);
    int64_t lda = gemm->a.row.n ? gemm->a.row.stride[0] : 0;
    char *at = out;
    for (int64_t k = 0; k < gemm->k; k += isa->lanes) {
        int64_t n = least(isa->lanes, gemm->k - k);
        for (int64_t r = 0; r < rows; r++, at += (size_t)isa->lanes * to) {
            const char *x = (const char *)data + (size_t)((m0 + r) * lda + k) * from;
            if (isa->source == isa->packed) {
                memcpy(at, x, (size_t)n * to);
            } else { /* bf16 widened */
                for (int64_t i = 0; i < n; i++) {
                    float value = bf16_to_f32(((const uint16_t *)(const void *)x)[i]);
                    memcpy(at + i * 4, &value, 4);
                }
            }
            memset(at + (size_t)n * to, 0, (size_t)(isa->lanes - n) * to);
        }
    }
}

size_t gemm_few_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    return few_bytes(isa, gemm) * (size_t)n_threads;
}

static void write_zeros(const Gemm *gemm, const KernelArgs *args)
{
    if (args->thread == 0)
        memset(args->out[0], 0, cvn_dtype_bytes(gemm->out, gemm->batch * gemm->m * gemm->n));
    if (args->thread == 0 && gemm->squares)
        memset(args->out[1], 0, (size_t)gemm->n * sizeof(float));
}

/* Columns are shared over the threads; each packs the rows of A for itself. */
void gemm_few_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args)
{
    if (gemm->batch == 0 || gemm->m == 0 || gemm->n == 0)
        return;
    if (gemm->k == 0) {
        write_zeros(gemm, args);
        return;
    }
    float sum[GEMM_ROWS * GEMM_PANEL];
    char *packed = (char *)args->scratch + few_bytes(isa, gemm) * (size_t)args->thread;
    size_t row = (size_t)round_up(gemm->k, isa->lanes) * dtype_size(isa->packed);
    int64_t ldb = gemm->b.row.n ? gemm->b.row.stride[0] : 0, last = -1;
    int64_t blocks = round_up(gemm->n, GEMM_PANEL) / GEMM_PANEL, begin, end;
    kernel_share(gemm->batch * blocks, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / blocks, n0 = i % blocks * GEMM_PANEL;
        int64_t columns = least(GEMM_PANEL, gemm->n - n0);
        const char *b_at = operand_at(&gemm->b, args->in[1], b);
        for (int64_t m0 = 0; m0 < gemm->m; m0 += GEMM_ROWS) {
            int64_t rows = least(GEMM_ROWS, gemm->m - m0);
            if (b != last)
                pack_few(isa, gemm, operand_at(&gemm->a, args->in[0], b), m0, rows,
                         packed + (size_t)m0 * row);
            isa->dots(rows, columns, gemm->k, packed + (size_t)m0 * row,
                      b_at + (size_t)(n0 * ldb) * dtype_size(isa->source), ldb, sum, GEMM_PANEL);
            for (int64_t r = 0; r < rows; r++)
                write_row(isa, gemm->out, args->out[0], (b * gemm->m + m0 + r) * gemm->n + n0,
                          sum + r * GEMM_PANEL, columns);
        }
        last = b;
    }
}

/* ---- many rows: packed panels ---- */

/* Sizes of the packed blocks, in scratch: [A block] shared or per thread, then per thread [B
 * block][C]; then, where they are asked for, sums of squares, one for each column. */
typedef struct Blocks {
    bool alone;         /* each thread computes whole products; else all threads share each one */
    int64_t mc, nc, kc; /* blocking, cut to the product */
    int64_t step;       /* that k is padded to a multiple of */
    int64_t k;          /* so padded */
    size_t a_panel;     /* bytes of a panel of A, whole k */
    size_t a, b, c;     /* bytes of each block */
    size_t group;       /* columns of a tile */
} Blocks;

/* Values of k that a row of a panel of A has room for. Each kc of a panel is used together with the same of the others:
   an odd number of them from panel to panel, or they would all want the same few places of the L2 cache. */
static int64_t a_panel_k(const GemmIsa *isa, int64_t kc, int64_t k)
{
    if (!isa->keep_rows || k <= kc)
        return k;
    return (round_up(k, kc) / kc | 1) * kc;
}

static Blocks plan_blocks(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    Blocks p = {.alone = gemm->batch > 1 && gemm->batch >= n_threads};
    size_t size = dtype_size(isa->packed);
    p.group = (size_t)(GEMM_PANEL * isa->panels);
    p.step = isa->step ? isa->step : isa->kpack;
    p.k = round_up(gemm->k, p.step);
    p.mc = least(round_up(isa->mc, isa->mr), round_up(gemm->m, isa->mr));
    p.nc = least(isa->nc, round_up(gemm->n, (int64_t)p.group));
    p.kc = least(isa->kc, p.k);
    p.a_panel = (size_t)a_panel_k(isa, p.kc, p.k) * (size_t)isa->mr * size;
    p.a = (size_t)round_up((int64_t)(p.a_panel * (size_t)(p.mc / isa->mr)), 64);
    p.b = (size_t)round_up((int64_t)((size_t)(p.nc * p.kc) * size), 64);
    p.c = (p.kc < p.k ? (size_t)(p.mc * p.nc) : (size_t)isa->mr * p.group) * sizeof(float);
    return p;
}

size_t gemm_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    Blocks p = plan_blocks(isa, gemm, n_threads);
    size_t threads = (size_t)n_threads;
    size_t squares = gemm->squares ? (size_t)gemm->n * sizeof(float) : 0;
    return p.a * (p.alone ? threads : 1) + (p.b + p.c) * threads + squares;
}

/* One thread's view of one product of the batch. */
typedef struct Work {
    const GemmIsa *isa;
    const Gemm *gemm;
    Blocks p;
    const void *a, *b; /* operands of this product */
    const KernelArgs *args;
    void *out;             /* the whole result */
    const void *addend;    /* of its type, or NULL */
    int64_t out_at;        /* element where this product's result starts */
    char *pack_a, *pack_b; /* packed blocks */
    float *c;              /* C tiles, [row panel][column group]; one where kc is all of k */
    float *total, *part;   /* sums of squares of the columns; of GEMM_SQUARES rows; or NULL */
    int thread, n_threads; /* among those that share this product */
} Work;

/* Asks for memory in L2. Inlined early: gcc takes calls of what only asks ahead for superfluous. */
static inline __attribute__((always_inline)) void fetch(const char *at, size_t bytes)
{
#pragma GCC unroll 4
    for (size_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(at + i, 0, 2);
}

/* Where the next block of B lies that will be packed: rows of `bytes` each; none where that is not so simple. */
typedef struct Ahead {
    const char *at;
    int64_t rows;
    size_t bytes, stride;
} Ahead;

/* The block after columns [n0, n0 + nc), k from k0 on, of columns up to `end`. */
static Ahead next_block(const Work *w, int64_t n0, int64_t end, int64_t k0)
{
    const GemmOperand *b = &w->gemm->b;
    size_t size = dtype_size(b->dtype);
    bool last = k0 + w->p.kc >= w->gemm->k;
    int64_t n = last ? n0 + w->p.nc : n0, k = last ? 0 : k0 + w->p.kc;
    int64_t columns = least(w->p.nc, end - n), length = least(w->p.kc, w->gemm->k - k);
    if (columns <= 0 || b->row.n != 1 || b->k.n != 1)
        return (Ahead){0};
    int64_t along = b->k.stride[0], across = b->row.stride[0];
    const char *at = (const char *)w->b + (size_t)(n * across + k * along) * size;
    if (along == 1)
        return (Ahead){at, columns, (size_t)length * size, (size_t)across * size};
    if (across == 1)
        return (Ahead){at, length, (size_t)columns * size, (size_t)along * size};
    return (Ahead){0};
}

/* Sums of a row that are neighbours, from column n0 on, to where they are placed. */
static void write_placed(const Work *w, int64_t row, int64_t n0, const float *sum, int64_t n)
{
    const GemmDims *columns = &w->gemm->column_at;
    int64_t size = columns->n ? columns->size[columns->n - 1] : 1, length;
    for (int64_t j = 0; j < n; j += length) {
        length = least(size - (n0 + j) % size, n - j);
        write_row(w->isa, w->gemm->out, w->out, row + gemm_offset(columns, n0 + j), sum + j,
                  length);
    }
}

/* Rows [m0, m0 + rows) of the result, columns [n0, n0 + columns). */
typedef struct Region {
    int64_t m0, rows, n0, columns;
} Region;

/* Asks for the part of the result that will be written next. */
static inline __attribute__((always_inline)) void fetch_result(const Work *w, const Region *r)
{
    size_t size = dtype_size(w->gemm->out);
    const char *at = (const char *)w->out + (size_t)(w->out_at + r->m0 * w->gemm->n + r->n0) * size;
    for (int64_t i = 0; i < r->rows; i++, at += (size_t)w->gemm->n * size)
        for (size_t k = 0; k < (size_t)r->columns * size; k += 64)
            __builtin_prefetch(at + k, 1, 3);
}

/* Writes a tile of C. */
static void write_tile(const Work *w, const Region *r, const float *c)
{
    const Gemm *gemm = w->gemm;
    size_t size = dtype_size(gemm->out);
    int64_t at = w->out_at + r->m0 * gemm->n + r->n0, group = (int64_t)w->p.group;
    if (gemm->follows) {
        w->isa->follow(w->args, at, gemm->n, c, group, r->rows, r->columns);
        return;
    }
    if (!gemm->placed && !gemm->adds && gemm->out == CVN_BF16 && w->isa->round) {
        w->isa->round((uint16_t *)w->out + at, gemm->n, c, group, r->rows, r->columns);
        return;
    }
    for (int64_t i = 0; i < r->rows; i++, at += gemm->n, c += group) {
        if (gemm->placed)
            write_placed(w, gemm_offset(&gemm->row_at, r->m0 + i), r->n0, c, r->columns);
        else if (gemm->adds)
            w->isa->add(gemm->out, (char *)w->out + (size_t)at * size, c,
                        (const char *)w->addend + (size_t)at * size, r->columns);
        else
            write_row(w->isa, gemm->out, w->out, at, c, r->columns);
    }
}

/* Adds the part of the columns that is complete to their sums. */
static void fold_squares(const Work *w, int64_t n0, int64_t columns)
{
    for (int64_t j = n0; j < n0 + columns; j++) {
        w->total[j] += w->part[j];
        w->part[j] = 0;
    }
}

/* Squares of a tile of C; tiles come in the order of their rows. */
static void add_squares(const Work *w, const Region *t, const float *c)
{
    int64_t group = (int64_t)w->p.group, n;
    if (t->m0 == 0) {
        memset(w->total + t->n0, 0, (size_t)t->columns * sizeof *w->total);
        memset(w->part + t->n0, 0, (size_t)t->columns * sizeof *w->part);
    }
    for (int64_t r = 0; r < t->rows; r += n) {
        int64_t row = t->m0 + r;
        n = least(t->rows - r, GEMM_SQUARES - row % GEMM_SQUARES);
        w->isa->squares(w->part + t->n0, c + r * group, n, group, t->columns);
        if ((row + n) % GEMM_SQUARES == 0 || row + n == w->gemm->m)
            fold_squares(w, t->n0, t->columns);
    }
}

/* The tile at panel row m0 and group g of a block. */
static Region tile_at(const Work *w, const Region *block, int64_t m0, int64_t g)
{
    int64_t group = (int64_t)w->p.group;
    return (Region){block->m0 + m0, least(w->isa->mr, block->rows - m0), block->n0 + g * group,
                    least(group, block->columns - g * group)};
}

/* Packed rows times one packed block of B, k from k0 on. Tiles leave little time for loads from afar: the next panel of A,
   the next block of B and what will be written are asked for meanwhile. A tile whose sums are whole leaves at once. */
static void multiply_packed(const Work *w, const Region *block, int64_t k0, int64_t units,
                            size_t panel, const Ahead *ahead)
{
    const GemmIsa *isa = w->isa;
    int64_t rows = block->rows, group = (int64_t)w->p.group;
    int64_t groups = round_up(block->columns, group) / group;
    bool last = k0 + w->p.kc >= w->p.k, one = w->p.kc >= w->p.k;
    size_t size = dtype_size(isa->packed);
    size_t piece = (size_t)(units * isa->kpack * isa->mr) * size / (size_t)groups;
    int64_t calls = round_up(rows, isa->mr) / isa->mr * groups, call = 0, asked = 0;
    float *c = w->c;
    for (int64_t m0 = 0; m0 < rows; m0 += isa->mr) {
        const char *a =
            w->pack_a + (size_t)(m0 / isa->mr) * w->p.a_panel + (size_t)(k0 * isa->mr) * size;
        for (int64_t g = 0; g < groups; g++, c += one ? 0 : isa->mr * group) {
            Region tile = tile_at(w, block, m0, g);
            call++;
            if (isa->keep_rows && m0 + isa->mr < rows)
                fetch(a + w->p.a_panel + (size_t)g * piece, piece);
            for (; isa->keep_rows && asked < ahead->rows * call / calls; asked++)
                fetch(ahead->at + (size_t)asked * ahead->stride, ahead->bytes);
            if (isa->keep_rows && last && !w->gemm->placed && !w->gemm->follows)
                fetch_result(w, &tile);
            isa->tile(units, a, w->pack_b + (size_t)(g * isa->panels) * panel, panel, c, k0 > 0);
            if (last)
                write_tile(w, &tile, c);
            if (last && w->total)
                add_squares(w, &tile, c);
        }
    }
}

/* A block of C, all of k, for the packed rows; `end`: of the columns that follow. */
static void multiply_block(const Work *w, const Region *block, int64_t end)
{
    const GemmIsa *isa = w->isa;
    size_t size = dtype_size(isa->packed);
    int64_t panels = round_up(block->columns, (int64_t)w->p.group) / GEMM_PANEL;
    for (int64_t k0 = 0; k0 < w->p.k; k0 += w->p.kc) {
        int64_t length = least(w->p.kc, w->gemm->k - k0);
        int64_t units = round_up(length, w->p.step) / isa->kpack;
        size_t panel = (size_t)(units * isa->kpack * GEMM_PANEL) * size;
        size_t filled = (size_t)(round_up(length, isa->kpack) * GEMM_PANEL) * size;
        gemm_pack_panels(isa, &w->gemm->b, w->b, w->gemm->n, block->n0, GEMM_PANEL, panels, k0,
                         length, w->pack_b, panel);
        for (int64_t i = 0; i < panels && filled < panel; i++)
            memset(w->pack_b + (size_t)i * panel + filled, 0, panel - filled);
        Ahead ahead = next_block(w, block->n0, end, k0);
        multiply_packed(w, block, k0, units, panel, &ahead);
    }
}

/* Row panels [panel, panel + count) of the rows of A from m0 on, all k. */
static void pack_rows(const Work *w, int64_t m0, int64_t panel, int64_t count)
{
    const GemmIsa *isa = w->isa;
    const Gemm *gemm = w->gemm;
    char *out = w->pack_a + (size_t)panel * w->p.a_panel;
    int64_t first = m0 + panel * isa->mr;
    if (!isa->keep_rows) {
        gemm_pack_panels(isa, &gemm->a, w->a, gemm->m, first, isa->mr, count, 0, gemm->k, out,
                         w->p.a_panel);
        return;
    }
    gemm_keep_panels(isa, &gemm->a, w->a, gemm->m, first, count, gemm->k, out, w->p.a_panel);
}

static void run_product(const Work *w, const KernelArgs *args)
{
    const GemmIsa *isa = w->isa;
    const Gemm *gemm = w->gemm;
    int64_t first, last, begin, end;
    kernel_share(gemm->n, (int64_t)w->p.group, w->thread, w->n_threads, &begin, &end);
    for (int64_t m0 = 0; m0 < gemm->m; m0 += w->p.mc) {
        int64_t rows = least(w->p.mc, gemm->m - m0);
        kernel_share(round_up(rows, isa->mr) / isa->mr, 1, w->thread, w->n_threads, &first, &last);
        pack_rows(w, m0, first, last - first);
        if (!w->p.alone)
            kernel_sync(args);
        for (int64_t n0 = begin; n0 < end; n0 += w->p.nc) {
            Region block = {m0, rows, n0, least(w->p.nc, end - n0)};
            multiply_block(w, &block, end);
        }
        if (!w->p.alone)
            kernel_sync(args);
    }
}

void gemm_run(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args)
{
    if (gemm->batch == 0 || gemm->n == 0)
        return;
    if (gemm->m == 0 || gemm->k == 0) {
        write_zeros(gemm, args);
        return;
    }
    Work w = {.isa = isa, .gemm = gemm, .args = args, .p = plan_blocks(isa, gemm, args->n_threads)};
    size_t shared = w.p.a * (w.p.alone ? (size_t)args->n_threads : 1);
    w.pack_a = (char *)args->scratch + (w.p.alone ? w.p.a * (size_t)args->thread : 0);
    w.pack_b = (char *)args->scratch + shared + (w.p.b + w.p.c) * (size_t)args->thread;
    w.c = (float *)(void *)(w.pack_b + w.p.b);
    w.out = args->out[0];
    w.addend = gemm->adds ? args->in[2] : NULL;
    if (gemm->squares) {
        w.total = args->out[1];
        w.part = (float *)(void *)((char *)args->scratch + shared +
                                   (w.p.b + w.p.c) * (size_t)args->n_threads);
    }
    w.thread = w.p.alone ? 0 : args->thread;
    w.n_threads = w.p.alone ? 1 : args->n_threads;
    int64_t begin = 0, end = gemm->batch;
    if (w.p.alone)
        kernel_share(gemm->batch, 1, args->thread, args->n_threads, &begin, &end);
    if (isa->enter)
        isa->enter();
    for (int64_t b = begin; b < end; b++) {
        w.a = operand_at(&gemm->a, args->in[0], b);
        w.b = operand_at(&gemm->b, args->in[1], b);
        w.out_at = b * gemm->m * gemm->n;
        run_product(&w, args);
    }
    if (isa->leave)
        isa->leave();
}
