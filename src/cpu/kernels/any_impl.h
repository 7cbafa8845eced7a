/*
 * Sums of what vectors of floats do not hold: reductions and products of f64 and of whole numbers, and reductions of
 * dimensions that do not lie together. Compiled once per instruction set; registry.c lists them behind those that are made
 * for a dtype. Each element of a result is summed in the order of the interpreter, by one thread.
 */
#include "base/num.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/walk.h"
#include "graph/wide.h"

#include <string.h>

static bool match_reduce(const Op *op)
{
    return wide_dtype(op_in(op, 0)->dtype);
}

/* The first n <= WIDE elements from x and y on along the innermost dimension that is kept: each reduced along lines, or, where
   what is kept lies closer together than what is reduced, all of them line by line. */
static void reduce_run(const KernelArgs *args, const Walk *reduced, int64_t x, int64_t x_step,
                       int64_t y, int64_t y_step, int64_t n)
{
    cvn_reduce kind = args->op->attr.reduce;
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    int inner = reduced->n - 1;
    int64_t length = inner < 0 ? 1 : reduced->size[inner];
    int64_t step = inner < 0 ? 0 : reduced->from_stride[inner], at[CVN_MAX_RANK] = {0};
    bool along = step < x_step || n == 1;
    Wide sum, line;
    wide_fill(dtype, reduce_neutral(kind, dtype), n, &sum);
    do {
        int64_t from = x + walk_offset(reduced->from_stride, inner, at);
        for (int64_t i = 0; along && i < n; i++)
            for (int64_t j = 0; j < length; j += WIDE) {
                int64_t part = num_min(length - j, WIDE);
                wide_read(dtype, args->in[0], from + i * x_step + j * step, step, part, &line);
                wide_reduce(kind, dtype, &sum, i, 0, &line, part);
            }
        for (int64_t j = 0; !along && j < length; j++) {
            wide_read(dtype, args->in[0], from + j * step, x_step, n, &line);
            wide_reduce(kind, dtype, &sum, 0, 1, &line, n);
        }
    } while (walk_next(reduced, inner, at));
    wide_write(dtype, args->out[0], y, y_step, n, &sum);
}

static void run_reduce(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    Walk kept = {0}, reduced = {0};
    type_strides(x, from);
    type_strides(op_out(args->op, 0), to);
    for (int d = 0, y = 0; d < x->rank; d++)
        if (ints_contain(&args->op->attr.dims, d))
            walk_add(&reduced, x->dim[d], from[d], 0);
        else
            walk_add(&kept, x->dim[d], from[d], to[y++]);
    if (!walk_share(&kept, 8, args->thread, args->n_threads))
        return;
    for (int i = 0; i < reduced.n; i++)
        if (reduced.size[i] == 0)
            reduced = (Walk){.n = 1}; /* nothing, in one line */
    int inner = kept.n - 1;
    int64_t n = inner < 0 ? 1 : kept.size[inner], x_step = inner < 0 ? 0 : kept.from_stride[inner],
            y_step = inner < 0 ? 0 : kept.to_stride[inner];
    do
        for (int64_t i = 0; i < n; i += WIDE)
            reduce_run(args, &reduced,
                       kept.from + walk_offset(kept.from_stride, inner, at) + i * x_step, x_step,
                       kept.to + walk_offset(kept.to_stride, inner, at) + i * y_step, y_step,
                       num_min(n - i, WIDE));
    while (walk_next(&kept, inner, at));
}

/* ---- dot_general ---- */

enum { ROWS = 8, COLUMNS = 64 }; /* of a block: its sums and a row of B stay in the L1 cache */

/* Others have kernels of their own. */
static bool match_dot(const Op *op)
{
    cvn_dtype in = op_in(op, 0)->dtype, out = op_out(op, 0)->dtype;
    return wide_dtype(in) && (!dtype_is_float(in) || in == CVN_F64 || out == CVN_F64);
}

/* Elements data[first + offset[i]], i < n. */
static void read_at(cvn_dtype dtype, const void *data, int64_t first, const int64_t *offset,
                    int64_t n, Wide *out)
{
    int64_t step = n > 1 ? offset[1] - offset[0] : 0, same = 1;
    while (same < n && offset[same] == offset[0] + same * step)
        same++;
    if (same >= n) {
        wide_read(dtype, data, first + offset[0], step, n, out);
        return;
    }
    Wide one;
    for (int64_t i = 0; i < n; i++) {
        wide_read(dtype, data, first + offset[i], 0, 1, &one);
        memcpy((char *)out + (size_t)i * 8, &one, 8);
    }
}

/* Rows [row, row + rows) and columns [column, column + columns) of product b. */
static void multiply_block(const KernelArgs *args, const Gemm *g, int64_t b, int64_t row,
                           int64_t rows, int64_t column, int64_t columns)
{
    int64_t row_at[ROWS], column_at[COLUMNS], to = (b * g->m + row) * g->n + column;
    int64_t a0 = gemm_offset(&g->a.batch, b), b0 = gemm_offset(&g->b.batch, b);
    bool is_float = dtype_is_float(g->a.dtype);
    Wide left, right, sum[ROWS];
    for (int64_t j = 0; j < columns; j++)
        column_at[j] = gemm_offset(&g->b.row, column + j);
    for (int64_t r = 0; r < rows; r++) {
        row_at[r] = gemm_offset(&g->a.row, row + r);
        wide_fill(g->out, 0, columns, &sum[r]);
    }
    for (int64_t k = 0; k < g->k; k++) {
        read_at(g->a.dtype, args->in[0], a0 + gemm_offset(&g->a.k, k), row_at, rows, &left);
        read_at(g->b.dtype, args->in[1], b0 + gemm_offset(&g->b.k, k), column_at, columns, &right);
        for (int64_t r = 0; r < rows; r++)
            if (is_float)
                for (int64_t j = 0; j < columns; j++)
                    sum[r].real[j] += left.real[r] * right.real[j];
            else /* of at most 32 bits each, and only the low ones of the sum matter */
                for (int64_t j = 0; j < columns; j++)
                    sum[r].whole[j] = (int64_t)((uint64_t)sum[r].whole[j] +
                                                (uint64_t)left.whole[r] * (uint64_t)right.whole[j]);
    }
    for (int64_t r = 0; r < rows; r++)
        wide_write(g->out, args->out[0], to + r * g->n, 1, columns, &sum[r]);
}

static void run_dot(const KernelArgs *args)
{
    int64_t begin, end;
    Gemm g = gemm_from_op(args->op);
    int64_t down = num_pieces(g.m, ROWS), across = num_pieces(g.n, COLUMNS);
    kernel_share(g.batch * down * across, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / across % down * ROWS, column = i % across * COLUMNS;
        multiply_block(args, &g, i / (down * across), row, num_min(g.m - row, ROWS), column,
                       num_min(g.n - column, COLUMNS));
    }
}

const Kernel ISA_NAME(any_kernels)[] = {
    {.name = "reduce." ISA ".any", .kind = OP_REDUCE, .match = match_reduce, .run = run_reduce},
    {.name = "dot_general." ISA ".any", .kind = OP_DOT_GENERAL, .match = match_dot, .run = run_dot},
    {0},
};
