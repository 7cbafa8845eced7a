/*
 * Operations that move elements to where attributes say. All of them are one walk (walk.h):
 *
 *     broadcast_in_dim   stride 0 in the dimensions that are repeated
 *     transpose          the operand's strides, permuted
 *     slice, reverse     another start, another or negative stride
 *     concatenate        one walk per operand, each to its own start
 *     pad                the value everywhere, then the operand with its elements spread
 *
 * Elements are moved by their size; types packed below a byte are left to the fallback.
 */
#include "base/num.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/walk.h"

static bool match_bytes(const Op *op)
{
    return cvn_dtype_bits(op_out(op, 0)->dtype) >= 8;
}

static void share_and_run(Walk *w, const KernelArgs *args, int from)
{
    const size_t size = (size_t)cvn_dtype_bits(op_out(args->op, 0)->dtype) / 8;
    if (walk_share(w, 64, args->thread, args->n_threads))
        walk_run(w, size, args->out[0], args->in[from]);
}

/* Operand i, a scalar, clamped so that `size` elements fit in n. */
static int64_t clamped_start(const KernelArgs *args, int i, int64_t size, int64_t n)
{
    const void *data = args->in[i];
    cvn_dtype dtype = op_in(args->op, i)->dtype;
    int64_t start = dtype == CVN_I8 ? *(const int8_t *)data : *(const int32_t *)data;
    if (dtype == CVN_U32)
        start = *(const uint32_t *)data;
    return start < 0 ? 0 : start > n - size ? n - size : start;
}

/* Operand 0, read from an element on with other strides. */
static void run_strided(const KernelArgs *args)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *x = op_in(args->op, 0), *y = op_out(args->op, 0);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    int64_t stride[CVN_MAX_RANK] = {0}; /* of x along the dimensions of y */
    Walk w = {0};
    type_strides(x, from);
    type_strides(y, to);
    for (int i = 0; i < x->rank; i++) {
        bool back = args->op->kind == OP_REVERSE && ints_contain(&a->dims, i);
        switch (args->op->kind) {
        case OP_BROADCAST_IN_DIM:
            stride[a->dims.v[i]] = x->dim[i] != 1 ? from[i] : 0;
            break;
        case OP_TRANSPOSE:
            stride[i] = from[a->dims.v[i]];
            break;
        case OP_SLICE:
            w.from += a->start.v[i] * from[i];
            stride[i] = from[i] * a->stride.v[i];
            break;
        case OP_REVERSE:
            w.from += back ? (x->dim[i] - 1) * from[i] : 0;
            stride[i] = back ? -from[i] : from[i];
            break;
        default: /* OP_DYNAMIC_SLICE */
            w.from += clamped_start(args, 1 + i, y->dim[i], x->dim[i]) * from[i];
            stride[i] = from[i];
        }
    }
    for (int i = 0; i < y->rank; i++)
        walk_add(&w, y->dim[i], stride[i], to[i]);
    share_and_run(&w, args, 0);
}

static void run_concatenate(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *y = op_out(op, 0);
    int64_t to[CVN_MAX_RANK], from[CVN_MAX_RANK], begin = 0;
    int axis = (int)op->attr.axis;
    type_strides(y, to);
    for (int k = 0; k < op->n_operands; k++) {
        const cvn_type *x = op_in(op, k);
        type_strides(x, from);
        Walk w = {.to = begin * to[axis]};
        for (int i = 0; i < x->rank; i++)
            walk_add(&w, x->dim[i], from[i], to[i]);
        share_and_run(&w, args, k);
        begin += x->dim[axis];
    }
}

static void run_pad(const KernelArgs *args)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *x = op_in(args->op, 0), *y = op_out(args->op, 0);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    type_strides(x, from);
    type_strides(y, to);
    Walk value = {0}, w = {0};
    for (int i = 0; i < y->rank; i++)
        walk_add(&value, y->dim[i], 0, to[i]);
    share_and_run(&value, args, 1);
    kernel_sync(args);
    for (int i = 0; i < x->rank; i++) {
        int64_t low = a->start.v[i], step = a->stride.v[i] + 1, n = y->dim[i];
        /* What stays: indices [first, last), with low + index * step in [0, n). */
        int64_t first = low < 0 ? (-low + step - 1) / step : 0;
        int64_t last = num_min(n > low ? (n - low - 1) / step + 1 : 0, x->dim[i]);
        if (first >= last)
            return;
        w.from += first * from[i];
        w.to += (low + first * step) * to[i];
        walk_add(&w, last - first, from[i], to[i] * step);
    }
    share_and_run(&w, args, 0);
}

/* ---- slices whose start is data ---- */

static bool match_starts(const Op *op)
{
    for (int i = op->kind == OP_DYNAMIC_SLICE ? 1 : 2; i < op->n_operands; i++) {
        cvn_dtype dtype = op_in(op, i)->dtype;
        if (dtype != CVN_I32 && dtype != CVN_U32 && dtype != CVN_I8)
            return false;
    }
    return match_bytes(op);
}

/* Copies everything first, unless it is in place already. */
static void run_dynamic_update(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0), *update = op_in(args->op, 1);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    type_strides(update, from);
    type_strides(x, to);
    if (args->out[0] != args->in[0]) {
        Walk all = {0};
        walk_add(&all, cvn_type_elements(x), 1, 1);
        share_and_run(&all, args, 0);
        kernel_sync(args);
    }
    Walk w = {0};
    for (int i = 0; i < x->rank; i++) {
        w.to += clamped_start(args, 2 + i, update->dim[i], x->dim[i]) * to[i];
        walk_add(&w, update->dim[i], from[i], to[i]);
    }
    share_and_run(&w, args, 1);
}

const Kernel copy_kernels[] = {
    {.name = "broadcast_in_dim",
     .kind = OP_BROADCAST_IN_DIM,
     .match = match_bytes,
     .run = run_strided},
    {.name = "transpose", .kind = OP_TRANSPOSE, .match = match_bytes, .run = run_strided},
    {.name = "slice", .kind = OP_SLICE, .match = match_bytes, .run = run_strided},
    {.name = "reverse", .kind = OP_REVERSE, .match = match_bytes, .run = run_strided},
    {.name = "concatenate", .kind = OP_CONCATENATE, .match = match_bytes, .run = run_concatenate},
    {.name = "pad", .kind = OP_PAD, .match = match_bytes, .run = run_pad},
    {.name = "dynamic_slice", .kind = OP_DYNAMIC_SLICE, .match = match_starts, .run = run_strided},
    {.name = "dynamic_update_slice",
     .kind = OP_DYNAMIC_UPDATE_SLICE,
     .match = match_starts,
     .run = run_dynamic_update,
     .in_place = 1},
    {0},
};
