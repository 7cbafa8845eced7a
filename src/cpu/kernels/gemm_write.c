/*
 * Where sums of products go: rounded to the result's type, added to a residual, transposed, and summed as squares. See
 * gemm.h.
 */
#include "cpu/kernels/gemm.h"

#include "base/float16.h"
#include "base/num.h"

#include <string.h>

static size_t dtype_size(cvn_dtype dtype)
{
    return (size_t)cvn_dtype_bits(dtype) / 8;
}

const void *gemm_operand_at(const GemmOperand *x, const void *data, int64_t b)
{
    return (const char *)data + (size_t)gemm_offset(&x->batch, b) * dtype_size(x->dtype);
}

GemmResult gemm_result(const GemmIsa *isa, const Gemm *gemm, const KernelArgs *args, float *part)
{
    return (GemmResult){.isa = isa,
                        .gemm = gemm,
                        .args = args,
                        .out = args->out[0],
                        .addend = gemm->residual ? args->in[2] : NULL,
                        .total = gemm->squares ? args->out[1] : NULL,
                        .part = gemm->squares ? part : NULL};
}

void gemm_write_zeros(const Gemm *gemm, const KernelArgs *args)
{
    if (args->thread == 0)
        memset(args->out[0], 0, cvn_dtype_bytes(gemm->out, gemm->batch * gemm->m * gemm->n));
    if (args->thread == 0 && gemm->squares)
        memset(args->out[1], 0, (size_t)gemm->n * sizeof(float));
}

void gemm_write_row(const GemmIsa *isa, cvn_dtype dtype, void *out, int64_t at, const float *sum,
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

/* Sums of a row that are neighbours, from column n0 on, to where they go. */
static void write_transposed(const GemmResult *w, int64_t row, int64_t n0, const float *sum,
                             int64_t n)
{
    const GemmDims *columns = &w->gemm->column_at;
    int64_t size = columns->n ? columns->size[columns->n - 1] : 1, length;
    for (int64_t j = 0; j < n; j += length) {
        length = num_min(size - (n0 + j) % size, n - j);
        gemm_write_row(w->isa, w->gemm->out, w->out, row + gemm_offset(columns, n0 + j), sum + j,
                       length);
    }
}

/* Adds the part of the columns that is complete to their sums. */
static void fold_squares(const GemmResult *w, int64_t n0, int64_t columns)
{
    for (int64_t j = n0; j < n0 + columns; j++) {
        w->total[j] += w->part[j];
        w->part[j] = 0;
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
        if ((row + n) % GEMM_SQUARES == 0 || row + n == w->gemm->m)
            fold_squares(w, t->n0, t->columns);
    }
}

void gemm_write(const GemmResult *w, const GemmRegion *t, const float *sum, int64_t ld)
{
    const Gemm *gemm = w->gemm;
    size_t size = dtype_size(gemm->out);
    int64_t at = w->at + t->m0 * gemm->n + t->n0;
    const float *row = sum;
    if (gemm->epilogue) {
        w->isa->epilogue(w->args, at, gemm->n, sum, ld, t->rows, t->columns);
        return;
    }
    if (w->total)
        add_squares(w, t, sum, ld);
    if (!gemm->transposed && !gemm->residual && gemm->out == CVN_BF16 && w->isa->round) {
        w->isa->round((uint16_t *)w->out + at, gemm->n, sum, ld, t->rows, t->columns);
        return;
    }
    for (int64_t i = 0; i < t->rows; i++, at += gemm->n, row += ld) {
        if (gemm->transposed)
            write_transposed(w, gemm_offset(&gemm->row_at, t->m0 + i), t->n0, row, t->columns);
        else if (gemm->residual)
            w->isa->add(gemm->out, (char *)w->out + (size_t)at * size, row,
                        (const char *)w->addend + (size_t)at * size, t->columns);
        else
            gemm_write_row(w->isa, gemm->out, w->out, at, row, t->columns);
    }
}
