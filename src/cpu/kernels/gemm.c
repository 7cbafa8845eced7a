/*
 * The loops around the micro-kernels: reading a dot_general as matrices, blocking, threads, writing sums. See
 * gemm.h.
 */
#include "cpu/kernels/gemm.h"

#include "base/float16.h"
#include "base/num.h"
#include "compile/fused.h"
#include "compile/tile_program.h"
#include "cpu/kernels/share.h"
#include "graph/strides.h"

#include <string.h>

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
    int64_t stride[CVN_MAX_RANK], rows = 1;
    unsigned taken = 0;
    type_strides(type, stride);
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
static void transpose_result(const Op *op, Gemm *gemm)
{
    const cvn_type *type = &op->result[0]->type;
    const int64_t *from =
        kernel_fused(op)->dims.v; /* dimension i of the result is from[i] of the product */
    int64_t size[CVN_MAX_RANK], stride[CVN_MAX_RANK], step = 1;
    int n_rows = op->operand[0]->type.rank - op->attr.lhs_contract.n;
    for (int i = type->rank - 1; i >= 0; i--) {
        size[from[i]] = type->dim[i];
        stride[from[i]] = step;
        step *= type->dim[i];
    }
    gemm->transposed = true;
    for (int i = 0; i < type->rank; i++)
        dims_add(i < n_rows ? &gemm->row_at : &gemm->column_at, size[i], stride[i]);
}

Gemm gemm_from_op(const Op *op)
{
    const OpAttr *attr = &op->attr;
    const Fused *fused = kernel_fused(op);
    const cvn_type *lhs = &op->operand[0]->type, *rhs = &op->operand[1]->type;
    Gemm gemm = {.out = op->result[0]->type.dtype, .epilogue = fused->program[0]};
    gemm.m = operand_from_type(lhs, &attr->lhs_batch, &attr->lhs_contract, &gemm.a);
    gemm.n = operand_from_type(rhs, &attr->rhs_batch, &attr->rhs_contract, &gemm.b);
    gemm.batch = gemm.k = 1;
    gemm.squares = op->n_results > 1 && !gemm.epilogue;
    for (int i = 0; i < attr->lhs_batch.n; i++)
        gemm.batch *= lhs->dim[attr->lhs_batch.v[i]];
    for (int i = 0; i < attr->lhs_contract.n; i++)
        gemm.k *= lhs->dim[attr->lhs_contract.v[i]];
    if (fused->dims.n)
        transpose_result(op, &gemm);
    return gemm;
}

/* ---- where sums go: rounded to the result's type, transposed, and summed as squares ---- */

const void *gemm_operand_at(const GemmOperand *x, const void *data, int64_t b)
{
    return (const char *)data + (size_t)gemm_offset(&x->batch, b) * cvn_dtype_bytes(x->dtype, 1);
}

GemmResult gemm_result(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args, float *part)
{
    return (GemmResult){.isa = isa,
                        .gemm = gemm,
                        .args = args,
                        .out = args->out[0],
                        .total = gemm->squares ? args->out[1] : NULL,
                        .part = gemm->squares ? part : NULL};
}

static void write_zeros(const Gemm *gemm, const KernelArgs *args)
{
    if (args->thread == 0)
        memset(args->out[0], 0, cvn_dtype_bytes(gemm->out, gemm->batch * gemm->m * gemm->n));
    if (args->thread == 0 && gemm->squares)
        memset(args->out[1], 0, (size_t)gemm->n * sizeof(float));
}

static void write_row(const GemmIsa *isa, cvn_dtype dtype, void *out, int64_t at, const float *sum,
                      int64_t n)
{
    if (dtype == CVN_F32) {
        memcpy((float *)out + at, sum, (size_t)n * sizeof *sum);
        return;
    }
    uint16_t *half = (uint16_t *)out + at;
    if (dtype == CVN_BF16)
        isa->round(half, n, sum, n, 1, n);
    else
        for (int64_t i = 0; i < n; i++)
            half[i] = f16_from_f32(sum[i]);
}

/* Sums of a row that are neighbours, from column n0 on, to where they go. */
static void write_transposed(const GemmResult *w, int64_t row, int64_t n0, const float *sum,
                             int64_t n)
{
    const GemmDims *columns = &w->gemm->column_at;
    int64_t size = columns->n ? columns->size[columns->n - 1] : 1, length;
    for (int64_t j = 0; j < n; j += length) {
        length = num_min(size - (n0 + j) % size, n - j);
        write_row(w->isa, w->gemm->out, w->out, row + gemm_offset(columns, n0 + j), sum + j,
                  length);
    }
}

static void add_squares(const GemmResult *w, const GemmRegion *t, const float *sum, int64_t ld)
{
    int64_t n;
    if (t->m0 == 0) {
        memset(w->total + t->n0, 0, (size_t)t->columns * sizeof *w->total);
        memset(w->part + t->n0, 0, (size_t)t->columns * sizeof *w->part);
    }
    for (int64_t r = 0; r < t->rows; r += n) {
        int64_t row = t->m0 + r;
        n = num_min(t->rows - r, GEMM_SQUARES - row % GEMM_SQUARES);
        w->isa->squares(w->part + t->n0, sum + r * ld, n, ld, t->columns);
        const bool whole = (row + n) % GEMM_SQUARES == 0 || row + n == w->gemm->m;
        for (int64_t j = t->n0; whole && j < t->n0 + t->columns; j++) {
            w->total[j] += w->part[j];
            w->part[j] = 0;
        }
    }
}

void gemm_write(const GemmResult *w, const GemmRegion *t, const float *sum, int64_t ld)
{
    const Gemm *gemm = w->gemm;
    int64_t at = w->at + t->m0 * gemm->n + t->n0;
    const float *row = sum;
    if (gemm->epilogue) {
        const EpilogueTile tile = {sum, ld, 0, at, gemm->n, t->rows, t->columns};
        w->isa->epilogue(w->args, kernel_fused(w->args->op)->program[0], &tile);
        return;
    }
    if (w->total)
        add_squares(w, t, sum, ld);
    if (!gemm->transposed && gemm->out == CVN_BF16) {
        w->isa->round((uint16_t *)w->out + at, gemm->n, sum, ld, t->rows, t->columns);
        return;
    }
    for (int64_t i = 0; i < t->rows; i++, at += gemm->n, row += ld) {
        if (gemm->transposed)
            write_transposed(w, gemm_offset(&gemm->row_at, t->m0 + i), t->n0, row, t->columns);
        else
            write_row(w->isa, gemm->out, w->out, at, row, t->columns);
    }
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
    size_t bytes =
        (size_t)(gemm->m * num_round_up(gemm->k, isa->lanes)) * cvn_dtype_bytes(isa->packed, 1);
    return (size_t)num_round_up((int64_t)bytes, 64);
}

/* Packs rows [m0, m0 + rows) of A; `data` is where the product's A begins. */
static void pack_few(const GemmIsa *isa, const Gemm *gemm, const void *data, int64_t m0,
                     int64_t rows, void *out)
{
    size_t from = cvn_dtype_bytes(isa->source, 1), to = cvn_dtype_bytes(isa->packed, 1);
    int64_t lda = gemm->a.row.n ? gemm->a.row.stride[0] : 0;
    char *at = out;
    for (int64_t k = 0; k < gemm->k; k += isa->lanes) {
        int64_t n = num_min(isa->lanes, gemm->k - k);
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
    size_t row = (size_t)num_round_up(gemm->k, isa->lanes) * cvn_dtype_bytes(isa->packed, 1);
    int64_t ldb = gemm->b.row.n ? gemm->b.row.stride[0] : 0, last = -1;
    int64_t blocks = num_pieces(gemm->n, GEMM_PANEL), begin, end;
    kernel_share(gemm->batch * blocks, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t b = i / blocks, n0 = i % blocks * GEMM_PANEL;
        int64_t columns = num_min(GEMM_PANEL, gemm->n - n0);
        const char *b_at = gemm_operand_at(&gemm->b, args->in[1], b);
        for (int64_t m0 = 0; m0 < gemm->m; m0 += GEMM_ROWS) {
            int64_t rows = num_min(GEMM_ROWS, gemm->m - m0);
            if (b != last)
                pack_few(isa, gemm, gemm_operand_at(&gemm->a, args->in[0], b), m0, rows,
                         packed + (size_t)m0 * row);
            isa->dots(rows, columns, gemm->k, packed + (size_t)m0 * row,
                      b_at + (size_t)(n0 * ldb) * cvn_dtype_bytes(isa->source, 1), ldb, sum,
                      GEMM_PANEL);
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
typedef struct GemmBlocking {
    bool alone;         /* each thread computes whole products; else all threads share each one */
    int64_t mc, nc, kc; /* blocking, cut to the product */
    int64_t k;          /* padded to a multiple of kpack */
    size_t a_panel;     /* bytes of a panel of A, whole k */
    size_t a, b, c;     /* bytes of each block */
    size_t group;       /* columns of a tile */
    int64_t together;   /* tiles, one below the other, that leave at a time */
} GemmBlocking;

static GemmBlocking plan_blocks(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    GemmBlocking p = {.alone = gemm->batch > 1 && gemm->batch >= n_threads, .together = 1};
    size_t size = cvn_dtype_bytes(isa->packed, 1);
    p.group = (size_t)(GEMM_PANEL * isa->panels);
    p.k = num_round_up(gemm->k, isa->kpack);
    p.mc = num_min(num_round_up(isa->mc, isa->mr), num_round_up(gemm->m, isa->mr));
    p.nc = num_min(isa->nc, num_round_up(gemm->n, (int64_t)p.group));
    p.kc = num_min(isa->kc, p.k);
    p.a_panel = (size_t)p.k * (size_t)isa->mr * size;
    p.a = (size_t)num_round_up((int64_t)(p.a_panel * (size_t)(p.mc / isa->mr)), 64);
    p.b = (size_t)num_round_up((int64_t)((size_t)(p.nc * p.kc) * size), 64);
    if (gemm->epilogue) /* programs are slow to start */
        p.together = num_max(1, TILE_ELEMENTS / (isa->mr * (int64_t)p.group));
    size_t tiles = (size_t)(isa->mr * p.together) * p.group;
    p.c = (p.kc < p.k ? (size_t)(p.mc * p.nc) : tiles) * sizeof(float);
    return p;
}

size_t gemm_scratch(const GemmIsa *isa, const Gemm *gemm, int n_threads)
{
    if (gemm->batch == 0 || gemm->m == 0 || gemm->n == 0 || gemm->k == 0)
        return 0; /* there are no products */
    if (isa->tiles)
        return gemm_tiles_scratch(isa, gemm, n_threads);
    GemmBlocking p = plan_blocks(isa, gemm, n_threads);
    size_t threads = (size_t)n_threads;
    size_t squares = gemm->squares ? (size_t)gemm->n * sizeof(float) : 0;
    return p.a * (p.alone ? threads : 1) + (p.b + p.c) * threads + squares;
}

/* One thread's view of one product of the batch. */
typedef struct Work {
    const GemmIsa *isa;
    const Gemm *gemm;
    GemmBlocking p;
    const void *a, *b;     /* operands of this product */
    GemmResult result;     /* of this product */
    char *pack_a, *pack_b; /* packed blocks */
    float *c;              /* C tiles, [row panel][column group]; one where kc is all of k */
    int thread, n_threads; /* among those that share this product */
    int64_t round;         /* blocks of rows that were shared out before */
} Work;

/* Packed rows times one packed block of B, k from k0 on. Tiles whose sums are whole leave at once, as many below each other
   as leave together. */
static void multiply_packed(const Work *w, const GemmRegion *block, int64_t k0, int64_t units,
                            size_t panel)
{
    const GemmIsa *isa = w->isa;
    const int64_t group = (int64_t)w->p.group, groups = num_pieces(block->columns, group);
    const int64_t tiles = num_pieces(block->rows, isa->mr), tile = isa->mr * group;
    const bool last = k0 + w->p.kc >= w->p.k, one = w->p.kc >= w->p.k;
    const size_t size = cvn_dtype_bytes(isa->packed, 1);
    for (int64_t t = 0, n; t < tiles; t += n) {
        n = num_min(w->p.together, tiles - t);
        const char *a = w->pack_a + (size_t)t * w->p.a_panel + (size_t)(k0 * isa->mr) * size;
        for (int64_t g = 0; g < groups; g++) {
            float *c = w->c + (one ? 0 : (t * groups + g * n) * tile);
            for (int64_t i = 0; i < n; i++)
                isa->tile(units, a + (size_t)i * w->p.a_panel,
                          w->pack_b + (size_t)(g * isa->panels) * panel, panel, c + i * tile,
                          k0 > 0);
            if (!last)
                continue;
            const int64_t m0 = t * isa->mr, n0 = g * group;
            GemmRegion out = {block->m0 + m0, num_min(n * isa->mr, block->rows - m0),
                              block->n0 + n0, num_min(group, block->columns - n0)};
            gemm_write(&w->result, &out, c, group);
        }
    }
}

/* A block of C, all of k, for the packed rows. */
static void multiply_block(const Work *w, const GemmRegion *block)
{
    const GemmIsa *isa = w->isa;
    size_t size = cvn_dtype_bytes(isa->packed, 1);
    int64_t panels = num_round_up(block->columns, (int64_t)w->p.group) / GEMM_PANEL;
    for (int64_t k0 = 0; k0 < w->p.k; k0 += w->p.kc) {
        int64_t length = num_min(w->p.kc, w->gemm->k - k0);
        int64_t units = num_pieces(length, isa->kpack);
        size_t panel = (size_t)(units * isa->kpack * GEMM_PANEL) * size;
        gemm_pack_panels(isa, &w->gemm->b, w->b, w->gemm->n, block->n0, GEMM_PANEL, panels, k0,
                         length, w->pack_b, panel);
        multiply_packed(w, block, k0, units, panel);
    }
}

static void run_product(Work *w, const KernelArgs *args)
{
    const GemmIsa *isa = w->isa;
    const Gemm *gemm = w->gemm;
    const int64_t group = (int64_t)w->p.group;
    int64_t first, last, begin, end;
    for (int64_t m0 = 0; m0 < gemm->m; m0 += w->p.mc, w->round++) {
        int64_t rows = num_min(w->p.mc, gemm->m - m0);
        kernel_share(num_pieces(rows, isa->mr), 1, w->thread, w->n_threads, &first, &last);
        gemm_pack_panels(isa, &gemm->a, w->a, gemm->m, m0 + first * isa->mr, isa->mr, last - first,
                         0, gemm->k, w->pack_a + (size_t)first * w->p.a_panel, w->p.a_panel);
        if (!w->p.alone)
            kernel_sync(args);
        KernelArgs sharing = *args;
        sharing.thread = w->thread;
        sharing.n_threads = w->n_threads;
        Share share = share_of(&sharing, num_pieces(gemm->n, group), true, w->round);
        while (share_next(&share, &begin, &end)) {
            end = num_min(end * group, gemm->n);
            for (int64_t n0 = begin * group; n0 < end && !kernel_cancelled(args); n0 += w->p.nc) {
                GemmRegion block = {m0, rows, n0, num_min(w->p.nc, end - n0)};
                multiply_block(w, &block);
            }
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
    if (isa->tiles) {
        gemm_tiles_run(isa, gemm, args);
        return;
    }
    Work w = {.isa = isa, .gemm = gemm, .p = plan_blocks(isa, gemm, args->n_threads)};
    size_t shared = w.p.a * (w.p.alone ? (size_t)args->n_threads : 1);
    size_t each = w.p.b + w.p.c;
    w.pack_a = (char *)args->scratch + (w.p.alone ? w.p.a * (size_t)args->thread : 0);
    w.pack_b = (char *)args->scratch + shared + each * (size_t)args->thread;
    w.c = (float *)(void *)(w.pack_b + w.p.b);
    char *part = (char *)args->scratch + shared + each * (size_t)args->n_threads;
    w.result = gemm_result(isa, gemm, args, (float *)(void *)part);
    w.thread = w.p.alone ? 0 : args->thread;
    w.n_threads = w.p.alone ? 1 : args->n_threads;
    int64_t begin = 0, end = gemm->batch;
    if (w.p.alone)
        kernel_share(gemm->batch, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t b = begin; b < end; b++) {
        w.a = gemm_operand_at(&gemm->a, args->in[0], b);
        w.b = gemm_operand_at(&gemm->b, args->in[1], b);
        w.result.at = b * gemm->m * gemm->n;
        run_product(&w, args);
    }
}
