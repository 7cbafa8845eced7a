/*
 * What runs along rows: rms_norm, softmax_cross_entropy, argmax, reduce. Compiled once per instruction set.
 *
 * Rows are shared over the threads, never split, so that sums have one order. A sum along a row goes in SUM_LANES
 * lanes; a sum down columns runs in the order of the rows; both in f32.
 */
#include "compile/fused.h"
#include "cpu/kernels/fusion_whole.h"
#include "cpu/kernels/gemm.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/log_sum_impl.h"
#include "cpu/kernels/norm_impl.h"
#include "cpu/kernels/reduce_impl.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"
#include "graph/strides.h"

/* ---- rms_norm ---- */

static bool match_rms_norm(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype) && tile_dtype(op_in(op, 1)->dtype) &&
           tile_dtype(op_out(op, 0)->dtype);
}

/* norm_tile, rounded to bf16. */
static void norm_tile_to_bf16(uint16_t *y, const float *x, const float *weight, float scale,
                              int64_t n)
{
    int64_t i = 0;
    vf s = vf_splat(scale);
    for (; i + VN <= n; i += VN)
        vf_store_bf16(y + i, vf_load(x + i) * s * vf_load(weight + i));
    for (; i < n; i++)
        y[i] = bf16_from_f32(x[i] * scale * weight[i]);
}

static void run_rms_norm(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *x = op_in(op, 0); /* [..., d] */
    cvn_dtype in = x->dtype, weight = op_in(op, 1)->dtype, out = op_out(op, 0)->dtype;
    int64_t d = x->dim[x->rank - 1], begin, end;
    if (d == 0)
        return;
    float from[TILE], scales[TILE], to[TILE];
    kernel_share(cvn_type_elements(x) / d, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t row = begin; row < end; row++) {
        float scale = norm_scale(in, args->in[0], row * d, d, (float)op->attr.eps);
        for (int64_t at = 0; at < d; at += TILE) {
            int64_t n = tile_length(at, d);
            const float *values = tile_read(in, args->in[0], row * d + at, n, from);
            const float *weights = tile_read(weight, args->in[1], at, n, scales);
            if (out == CVN_BF16) {
                norm_tile_to_bf16((uint16_t *)args->out[0] + row * d + at, values, weights, scale,
                                  n);
                continue;
            }
            float *y = tile_target(out, args->out[0], row * d + at, to);
            norm_tile(y, values, weights, scale, n);
            tile_write(out, args->out[0], row * d + at, n, y);
        }
    }
}

/* ---- softmax_cross_entropy ---- */

static bool match_floats(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype);
}

static void run_cross_entropy(const KernelArgs *args)
{
    const cvn_type *logits = op_in(args->op, 0); /* [..., vocab] */
    int64_t vocab = logits->dim[logits->rank - 1], begin, end;
    const int32_t *target = args->in[1];
    float *loss = args->out[0], *lse = args->out[1];
    kernel_share(cvn_type_elements(op_in(args->op, 1)), 1, args->thread, args->n_threads, &begin,
                 &end);
    for (int64_t row = begin; row < end; row++) {
        float one[1], peak,
            sum = log_sum(logits->dtype, args->in[0], row * vocab, vocab, NULL, &peak);
        lse[row] = sum + peak;
        loss[row] = 0;
        if (target[row] >= 0 && target[row] < vocab)
            loss[row] = sum + (peak - *tile_read(logits->dtype, args->in[0],
                                                 row * vocab + target[row], 1, one));
    }
}

/* ---- argmax ---- */

static int32_t argmax_line(cvn_dtype dtype, const void *data, int64_t first, int64_t n,
                           int64_t step)
{
    float one[1], most = -INFINITY;
    int64_t best = 0;
    for (int64_t i = 0; i < n; i++) {
        float x = *tile_read(dtype, data, first + i * step, 1, one);
        if (x > most) {
            most = x;
            best = i;
        }
    }
    return (int32_t)best;
}

static void run_argmax(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0);
    const Lines lines = type_lines(x, args->op->attr.axis);
    int64_t inner = lines.inner, n = lines.n, begin, end;
    int32_t *y = args->out[0];
    kernel_share(cvn_type_elements(op_out(args->op, 0)), 1, args->thread, args->n_threads, &begin,
                 &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t first = i / inner * n * inner + i % inner, at = first;
        if (inner == 1)
            largest_at(x->dtype, args->in[0], first, first + n, &at);
        y[i] = inner == 1 ? (int32_t)(at - first)
                          : argmax_line(x->dtype, args->in[0], first, n, inner);
    }
}

/* ---- reduce ---- */

/* The operand as [outer, n, inner], reduced over n: true when the reduced dimensions are neighbours (or of size 1). */
static bool as_lines(const Op *op, Lines *m)
{
    const cvn_type *x = op_in(op, 0);
    unsigned reduced = 0;
    for (int i = 0; i < op->attr.dims.n; i++)
        reduced |= 1u << op->attr.dims.v[i];
    *m = (Lines){1, 1, 1};
    bool inside = false, after = false;
    for (int i = 0; i < x->rank; i++) {
        bool r = reduced & 1u << i;
        if (x->dim[i] == 1)
            continue;
        if (r && after)
            return false;
        if (r) {
            inside = true;
            m->n *= x->dim[i];
        } else if (inside) {
            after = true;
            m->inner *= x->dim[i];
        } else {
            m->outer *= x->dim[i];
        }
    }
    return true;
}

static bool match_reduce_float(const Op *op)
{
    Lines m;
    return tile_dtype(op_in(op, 0)->dtype) && as_lines(op, &m);
}

/* What a reduce sums up: n <= TILE elements, what a program makes, or else, beside which there is something, squares. */
VEC_INLINE const float *read_terms(const KernelArgs *args, int64_t at, int64_t n, float *buffer)
{
    const Op *op = args->op;
    if (kernel_fused(op)->program[0]) {
        ISA_NAME(fusion_prologue)(args, at, n, buffer);
        return buffer;
    }
    const float *x = tile_read(op_in(op, 0)->dtype, args->in[0], at, n, buffer);
    if (!op->fused)
        return x;
    for (int64_t i = 0; i < n; i++)
        buffer[i] = x[i] * x[i];
    return buffer;
}

VEC_INLINE void reduce_row(cvn_reduce kind, const KernelArgs *args, int64_t first, int64_t n,
                           float *out)
{
    float from[TILE];
    VecSum total = no_terms(kind);
    for (int64_t at = 0; at < n; at += TILE) { /* a sum of sums: less is lost in long rows */
        int64_t length = tile_length(at, n);
        const float *x = read_terms(args, first + at, length, from);
        add_terms(kind, &total, x, length);
    }
    *out = combine_lanes(kind, &total);
}

/* y = combine(y, x), elementwise. */
VEC_INLINE void combine_tile(cvn_reduce kind, float *y, const float *x, int64_t n)
{
    int64_t i = 0;
    for (; i + VN <= n; i += VN)
        vf_store(y + i, combine(kind, vf_load(y + i), vf_load(x + i)));
    if (i < n)
        vf_store_part(y + i, combine(kind, vf_load_part(y + i, n - i), vf_load_part(x + i, n - i)),
                      n - i);
}

static void combine_columns(cvn_reduce kind, float *y, const float *x, int64_t n)
{
    OF_KIND(kind, combine_tile, y, x, n)
}

/* Columns [c, c + width) of one outer index, width <= TILE: rows are gathered in groups of GROUP, whose sums
   are summed. */
static void reduce_block(const KernelArgs *args, const Lines *m, int64_t outer, int64_t c,
                         int64_t width)
{
    enum { GROUP = 128 };
    cvn_reduce kind = args->op->attr.reduce;
    cvn_dtype dtype = op_out(args->op, 0)->dtype;
    float from[TILE], part[TILE], total[TILE], none = neutral(kind);
    for (int64_t j = 0; j < width; j++)
        total[j] = none;
    for (int64_t i0 = 0; i0 < m->n; i0 += GROUP) {
        for (int64_t j = 0; j < width; j++)
            part[j] = none;
        for (int64_t i = i0; i < m->n && i < i0 + GROUP; i++)
            combine_columns(kind, part,
                            read_terms(args, (outer * m->n + i) * m->inner + c, width, from),
                            width);
        combine_columns(kind, total, part, width);
    }
    tile_write(dtype, args->out[0], outer * m->inner + c, width, total);
}

static void run_reduce_float(const KernelArgs *args)
{
    const Op *op = args->op;
    cvn_dtype dtype = op_out(op, 0)->dtype;
    int64_t begin, end;
    Lines m;
    as_lines(op, &m);
    if (m.outer == 0 || m.inner == 0)
        return;
    if (m.inner == 1) {
        kernel_share(m.outer, 16, args->thread, args->n_threads, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            float y;
            OF_KIND(op->attr.reduce, reduce_row, args, i * m.n, m.n, &y)
            tile_write(dtype, args->out[0], i, 1, &y);
        }
        return;
    }
    int64_t width =
        TILE; /* columns at a time: fewer, where there would be none for some of the threads */
    while (width > 4 * VN && m.outer * (num_pieces(m.inner, width)) < args->n_threads)
        width /= 2;
    int64_t blocks = num_pieces(m.inner, width);
    kernel_share(m.outer * blocks, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t c = i % blocks * width;
        reduce_block(args, &m, i / blocks, c, num_min(m.inner - c, width));
    }
}

const Kernel ISA_NAME(row_kernels)[] = {
    {.name = "rms_norm." ISA,
     .kind = OP_RMS_NORM,
     .match = match_rms_norm,
     .run = run_rms_norm,
     .in_place = 1},
    {.name = "softmax_cross_entropy." ISA,
     .kind = OP_SOFTMAX_CROSS_ENTROPY,
     .match = match_floats,
     .run = run_cross_entropy},
    {.name = "argmax." ISA, .kind = OP_ARGMAX, .match = match_floats, .run = run_argmax},
    {.name = "reduce." ISA,
     .kind = OP_REDUCE,
     .match = match_reduce_float,
     .run = run_reduce_float,
     .fuses = true},
    {0},
};
