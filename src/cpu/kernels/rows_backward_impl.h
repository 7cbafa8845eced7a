/*
 * The gradients of what runs along rows: rms_norm and softmax_cross_entropy. Compiled once per instruction set.
 *
 * Rows are shared over the threads. The gradient of the norm's weight is a sum over rows: in chunks of ROWS rows,
 * whose sums are added in order, so that neither the number of threads nor who did what changes a bit.
 */
#include "compile/fused.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/log_sum_impl.h"
#include "cpu/kernels/tile.h"
#include "cpu/kernels/vec_math.h"

enum { ROWS = 64 }; /* of a chunk */

/* ---- rms_norm ---- */

static bool match_rms_norm(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype) && tile_dtype(op_in(op, 1)->dtype) &&
           tile_dtype(op_in(op, 2)->dtype);
}

static int64_t row_count(const Op *op)
{
    const cvn_type *x = op_in(op, 0);
    int64_t d = x->dim[x->rank - 1];
    return d ? cvn_type_elements(x) / d : 0;
}

static size_t scratch_rms_norm(const Op *op, int n_threads)
{
    (void)n_threads;
    int64_t chunks = num_pieces(row_count(op), ROWS);
    return (size_t)(chunks * op_in(op, 1)->dim[0]) * sizeof(float);
}

/* Adds x^2 and dy w x of a tile to the sums. */
VEC_INLINE void add_products(const bool half, const float *x, const float *w, const void *dy,
                             int64_t n, VecSum *square, VecSum *along)
{
    for (int64_t i = 0; i < n; i += SUM_LANES)
#pragma GCC unroll 4
        for (int p = 0; p < SUM_VECTORS; p++) {
            const int64_t at = i + p * VN, left = vec_left(n - i, p);
            vf v = vf_load_part(x + at, left),
               dn = tile_end(half, dy, at, left, 0) * vf_load_part(w + at, left);
            square->part[p] = vf_fma(v, v, square->part[p]);
            along->part[p] = vf_fma(dn, v, along->part[p]);
        }
}

/* What becomes of a tile. */
typedef struct NormTile {
    const float *addend; /* added to dx, which may lie over it; or NULL */
    float *dx, *dw;
    uint16_t *copy; /* of dx, rounded; or NULL */
} NormTile;

/* dx = r (dy w - x r mean), and dw += dy x r. */
VEC_INLINE void write_tile(const bool half, const float *x, const float *w, const void *dy, float r,
                           float mean, const NormTile *t, int64_t n)
{
    vf scale = vf_splat(r), back = vf_splat(mean);
    for (int64_t i = 0; i < n; i += VN) {
        vf normed = vf_load_part(x + i, n - i) * scale, d = tile_end(half, dy, i, n - i, 0);
        vf across = d * vf_load_part(w + i, n - i) - normed * back;
        vf_store_part(t->dw + i, vf_fma(d, normed, vf_load_part(t->dw + i, n - i)), n - i);
        vf own = across * scale;
        if (t->addend)
            own += vf_load_part(t->addend + i, n - i);
        vf_store_part(t->dx + i, own, n - i);
        if (t->copy)
            vf_store_bf16_part(t->copy + i, own, n - i);
    }
}

/* One row; dw f32 [d] is added to. In a plan, where x is f32, there may be an addend, and a copy of dx in bf16. half: dy
   is bf16 and read where it lies. */
VEC_INLINE void norm_row(const bool half, const KernelArgs *args, int64_t row, int64_t d, float *dw)
{
    const Op *op = args->op;
    cvn_dtype x_dtype = op_in(op, 0)->dtype, w_dtype = op_in(op, 1)->dtype;
    cvn_dtype dy_dtype = op_in(op, 2)->dtype;
    const uint16_t *bf16 = (const uint16_t *)args->in[2] + row * d;
    float x_from[TILE], w_from[TILE], dy_from[TILE], to[TILE];
    VecSum square = vec_sum_zero(), along = square;
    for (int64_t at = 0; at < d; at += TILE) {
        int64_t n = tile_length(at, d);
        const float *dy = half ? NULL : tile_read(dy_dtype, args->in[2], row * d + at, n, dy_from);
        add_products(half, tile_read(x_dtype, args->in[0], row * d + at, n, x_from),
                     tile_read(w_dtype, args->in[1], at, n, w_from),
                     half ? (const void *)(bf16 + at) : dy, n, &square, &along);
    }
    float r = 1.0f / sqrtf(vec_sum(&square) / (float)d + (float)op->attr.eps);
    float mean = vec_sum(&along) * r / (float)d;
    for (int64_t at = 0; at < d; at += TILE) {
        int64_t n = tile_length(at, d), place = row * d + at;
        const float *dy = half ? NULL : tile_read(dy_dtype, args->in[2], place, n, dy_from);
        NormTile t = {.dx = tile_target(x_dtype, args->out[0], place, to), .dw = dw + at};
        if (op->n_operands > 3)
            t.addend = (const float *)args->in[3] + place;
        if (op->n_results > 2)
            t.copy = (uint16_t *)args->out[2] + place;
        write_tile(half, tile_read(x_dtype, args->in[0], place, n, x_from),
                   tile_read(w_dtype, args->in[1], at, n, w_from),
                   half ? (const void *)(bf16 + at) : dy, r, mean, &t, n);
        tile_write(x_dtype, args->out[0], place, n, t.dx);
    }
}

static void run_rms_norm(const KernelArgs *args)
{
    int64_t d = op_in(args->op, 1)->dim[0], rows = row_count(args->op), begin, end;
    int64_t chunks = num_pieces(rows, ROWS);
    float *sum = args->scratch; /* [chunks, d] */
    bool half = op_in(args->op, 2)->dtype == CVN_BF16;
    kernel_share(chunks, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t c = begin; c < end; c++) {
        memset(sum + c * d, 0, (size_t)d * sizeof *sum);
        for (int64_t row = c * ROWS; row < rows && row < (c + 1) * ROWS; row++) {
            if (half)
                norm_row(true, args, row, d, sum + c * d);
            else
                norm_row(false, args, row, d, sum + c * d);
        }
    }
    kernel_sync(args);
    kernel_share(d, TILE, args->thread, args->n_threads, &begin, &end);
    for (int64_t at = begin; at < end; at += TILE) {
        int64_t n = tile_length(at, end);
        float total[TILE] = {0};
        for (int64_t c = 0; c < chunks; c++)
            for (int64_t i = 0; i < n; i++)
                total[i] += sum[c * d + at + i];
        tile_write(args->op->result[1]->type.dtype, args->out[1], at, n, total);
    }
}

/* ---- softmax_cross_entropy ---- */

static bool match_cross_entropy(const Op *op)
{
    return tile_dtype(op_in(op, 0)->dtype);
}

/* What a row is and what its gradient is made of. */
typedef struct EntropyRow {
    int64_t at, vocab; /* its first element, and how many */
    int32_t target;    /* -1: none */
    float lse, dloss, dlse;
} EntropyRow;

/* y = x factor of powers x, or of logits exp(x - base) factor; in bf16 where that is `half`. */
VEC_INLINE void entropy_tile(const bool powers, const bool half, void *y, const float *x, vf base,
                             vf factor, int64_t n)
{
    for (int64_t i = 0; i < n; i += VN) {
        vf v = vf_load_part(x + i, n - i);
        v = (powers ? v : vf_exp(v - base)) * factor;
        if (half)
            vf_store_bf16_part((uint16_t *)y + i, v, n - i);
        else
            vf_store_part((float *)y + i, v, n - i);
    }
}

/* share = exp(logit - lse) (dloss + dlse), less dloss at the target; may be written over logits of its dtype. power, unless
   NULL: [vocab] exp(logit - peak), whose sum is exp(log), so that there is no other exponential. */
static void entropy_row(const KernelArgs *args, const EntropyRow *r, const float *power, float log)
{
    cvn_dtype in = op_in(args->op, 0)->dtype, out = args->op->result[0]->type.dtype;
    float from[TILE], to[TILE], share = r->dloss + r->dlse;
    const vf base = vf_splat(isfinite(r->lse) ? r->lse : 0.0f);
#if defined(VEC_SAME) /* libraries' own differ */
    const float all = vf_exp(vf_splat(log))[0];
#else
    const float all = expf(log);
#endif
    const vf factor = vf_splat(power ? share / all : share);
    for (int64_t at = 0; at < r->vocab; at += TILE) {
        int64_t n = tile_length(at, r->vocab), place = r->at + at, target = r->target - at;
        const float *x = power ? power + at : tile_read(in, args->in[0], place, n, from);
        const bool here = r->target >= at && target < n;
        uint16_t *half = out == CVN_BF16 ? (uint16_t *)args->out[0] + place : NULL;
        float *y = tile_target(out, args->out[0], place, to), own = here ? x[target] : 0;
        if (power && half)
            entropy_tile(true, true, half, x, base, factor, n);
        else if (power)
            entropy_tile(true, false, y, x, base, factor, n);
        else if (half)
            entropy_tile(false, true, half, x, base, factor, n);
        else
            entropy_tile(false, false, y, x, base, factor, n);
        if (here) {
            entropy_tile(power, false, y + target, &own, base, factor, 1);
            y[target] -= r->dloss;
        }
        if (here && half)
            half[target] = bf16_from_f32(y[target]);
        if (!half)
            tile_write(out, args->out[0], place, n, y);
    }
}

static size_t scratch_cross_entropy(const Op *op, int n_threads)
{
    const cvn_type *logits = op_in(op, 0);
    size_t row = (size_t)logits->dim[logits->rank - 1] * sizeof(float);
    return op->n_results == 3 ? (row + 63) / 64 * 64 * (size_t)n_threads : 0;
}

/* In a plan it may make the loss and lse of a row, too: operands logits, targets, dloss, dlse; results dlogits, loss, lse. */
static void run_cross_entropy(const KernelArgs *args)
{
    const bool with_loss = args->op->n_results == 3;
    const cvn_type *logits = op_in(args->op, 0); /* [..., vocab] */
    int64_t vocab = logits->dim[logits->rank - 1], begin, end;
    const int32_t *target = args->in[1];
    const float *dloss = args->in[with_loss ? 2 : 3], *dlse = args->in[with_loss ? 3 : 4];
    kernel_share(cvn_type_elements(op_in(args->op, 1)), 1, args->thread, args->n_threads, &begin,
                 &end);
    for (int64_t row = begin; row < end; row++) {
        bool known = target[row] >= 0 && target[row] < vocab;
        EntropyRow r = {.at = row * vocab,
                        .vocab = vocab,
                        .target = known ? target[row] : -1,
                        .dloss = known ? dloss[row] : 0.0f,
                        .dlse = dlse[row]};
        if (!with_loss) {
            r.lse = ((const float *)args->in[2])[row];
            entropy_row(args, &r, NULL, 0);
            continue;
        }
        float one[1], peak, *loss = args->out[1], *lse = args->out[2];
        float *power = (void *)((char *)args->scratch +
                                scratch_cross_entropy(args->op, 1) * (size_t)args->thread);
        float log = log_sum(logits->dtype, args->in[0], row * vocab, vocab, power, &peak);
        lse[row] = r.lse = log + peak;
        loss[row] = 0;
        if (known)
            loss[row] =
                log + (peak - *tile_read(logits->dtype, args->in[0], r.at + r.target, 1, one));
        entropy_row(args, &r, isfinite(r.lse) ? power : NULL, log);
    }
}

const Kernel ISA_NAME(row_backward_kernels)[] = {
    {.name = "rms_norm_backward." ISA,
     .kind = OP_RMS_NORM_BACKWARD,
     .match = match_rms_norm,
     .scratch = scratch_rms_norm,
     .run = run_rms_norm,
     .in_place = 1 | 8,
     .fuses = true},
    {.name = "softmax_cross_entropy_backward." ISA,
     .kind = OP_SOFTMAX_CROSS_ENTROPY_BACKWARD,
     .match = match_cross_entropy,
     .scratch = scratch_cross_entropy,
     .run = run_cross_entropy,
     .in_place = 1,
     .fuses = true},
    {0},
};
