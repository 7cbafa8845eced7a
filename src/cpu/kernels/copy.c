/*
 * Operations that move elements to where attributes say. All of them are one walk: for each index, element
 * `to + sum of index * to_stride` gets element `from + sum of index * from_stride`.
 *
 *     broadcast_in_dim   stride 0 in the dimensions that are repeated
 *     transpose          the operand's strides, permuted
 *     slice, reverse     another start, another or negative stride
 *     concatenate        one walk per operand, each to its own start
 *     pad                the value everywhere, then the operand with its elements spread
 *
 * Neighbouring dimensions that lie as one are merged. The longest dimension is shared over the threads. Elements
 * are moved by their size; types packed below a byte are left to the fallback.
 */
#include "cpu/kernels/kernels.h"

#include <string.h>

typedef struct Walk {
    int n;
    int64_t size[CVN_MAX_RANK];
    int64_t from_stride[CVN_MAX_RANK], to_stride[CVN_MAX_RANK]; /* elements */
    int64_t from, to;                                           /* first elements */
} Walk;

static const cvn_type *operand(const Op *op, int i)
{
    return &op->operand[i]->type;
}

static const cvn_type *result(const Op *op)
{
    return &op->result[0]->type;
}

static size_t element_size(const Op *op)
{
    return (size_t)cvn_dtype_bits(result(op)->dtype) / 8;
}

static bool match_bytes(const Op *op)
{
    return cvn_dtype_bits(result(op)->dtype) >= 8;
}

static void strides_of(const cvn_type *type, int64_t *stride)
{
    int64_t step = 1;
    for (int i = type->rank - 1; i >= 0; i--) {
        stride[i] = step;
        step *= type->dim[i];
    }
}

/* Appends a dimension, merged with the one before where both sides lie as one. */
static void walk_add(Walk *w, int64_t size, int64_t from_stride, int64_t to_stride)
{
    int last = w->n - 1;
    if (size == 1)
        return;
    if (last >= 0 && w->from_stride[last] == from_stride * size &&
        w->to_stride[last] == to_stride * size) {
        w->size[last] *= size;
        w->from_stride[last] = from_stride;
        w->to_stride[last] = to_stride;
        return;
    }
    w->size[w->n] = size;
    w->from_stride[w->n] = from_stride;
    w->to_stride[w->n++] = to_stride;
}

/* Cuts the walk to the part of one thread; false if that is nothing. */
static bool walk_share(Walk *w, int thread, int n_threads)
{
    int longest = 0;
    for (int i = 0; i < w->n; i++) {
        if (w->size[i] == 0)
            return false;
        if (w->size[i] > w->size[longest])
            longest = i;
    }
    if (w->n == 0)
        return thread == 0;
    int64_t begin, end, grain = longest == w->n - 1 ? 64 : 1;
    kernel_share(w->size[longest], grain, thread, n_threads, &begin, &end);
    w->from += begin * w->from_stride[longest];
    w->to += begin * w->to_stride[longest];
    w->size[longest] = end - begin;
    return end > begin;
}

/* n elements at strides, in bytes. One loop per size, so that each move is one instruction. */
static void move_strided(size_t size, char *to, int64_t to_step, const char *from,
                         int64_t from_step, int64_t n)
{
    switch (size) {
    case 1:
        for (int64_t i = 0; i < n; i++)
            to[i * to_step] = from[i * from_step];
        break;
    case 2:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 2);
        break;
    case 4:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 4);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            memcpy(to + i * to_step, from + i * from_step, 8);
        break;
    }
}

/* One element n times, by doubling what is there. */
static void fill_row(size_t size, char *to, const char *value, int64_t n)
{
    memmove(to, value, size);
    for (int64_t done = 1; done < n; done *= 2)
        memcpy(to + done * (int64_t)size, to, (size_t)(n - done < done ? n - done : done) * size);
}

/* The innermost dimension. */
static void move_row(size_t size, char *to, int64_t to_stride, const char *from,
                     int64_t from_stride, int64_t n)
{
    if (to_stride == 1 && from_stride == 1)
        memmove(to, from, (size_t)n * size);
    else if (to_stride == 1 && from_stride == 0)
        fill_row(size, to, from, n);
    else
        move_strided(size, to, to_stride * (int64_t)size, from, from_stride * (int64_t)size, n);
}

/* Rows and columns exchanged: by blocks, so that neither side walks over more lines than the cache holds. */
static void move_blocks(size_t size, char *to, const char *from, const Walk *w, int outer)
{
    enum { BLOCK = 16 };
    int inner = w->n - 1;
    int64_t bytes = (int64_t)size, rows = w->size[outer], columns = w->size[inner];
    for (int64_t r = 0; r < rows; r += BLOCK)
        for (int64_t c = 0; c < columns; c += BLOCK)
            for (int64_t i = r; i < rows && i < r + BLOCK; i++)
                move_strided(size, to + (i * w->to_stride[outer] + c * w->to_stride[inner]) * bytes,
                             w->to_stride[inner] * bytes,
                             from + (i * w->from_stride[outer] + c * w->from_stride[inner]) * bytes,
                             w->from_stride[inner] * bytes,
                             columns - c < BLOCK ? columns - c : BLOCK);
}

/* Carries out a walk on this thread. */
static void walk_run(const Walk *w, size_t size, void *to_data, const void *from_data)
{
    char *to = (char *)to_data + w->to * (int64_t)size;
    const char *from = (const char *)from_data + w->from * (int64_t)size;
    if (w->n == 0) {
        memmove(to, from, size);
        return;
    }
    int inner = w->n - 1,
        outer = inner; /* outer: the dimension that is contiguous in the operand */
    for (int i = 0; i < inner; i++)
        if (w->from_stride[i] == 1 && w->from_stride[inner] != 1)
            outer = i;
    int64_t at[CVN_MAX_RANK] = {0};
    for (;;) {
        int64_t t = 0, f = 0;
        for (int i = 0; i < inner; i++) {
            t += at[i] * w->to_stride[i];
            f += at[i] * w->from_stride[i];
        }
        if (outer != inner)
            move_blocks(size, to + t * (int64_t)size, from + f * (int64_t)size, w, outer);
        else
            move_row(size, to + t * (int64_t)size, w->to_stride[inner], from + f * (int64_t)size,
                     w->from_stride[inner], w->size[inner]);
        int d = inner - 1;
        for (; d >= 0; d--) {
            if (d == outer)
                continue;
            if (++at[d] < w->size[d])
                break;
            at[d] = 0;
        }
        if (d < 0)
            return;
    }
}

static void share_and_run(Walk *w, const KernelArgs *args, int from)
{
    if (walk_share(w, args->thread, args->n_threads))
        walk_run(w, element_size(args->op), args->out[0], args->in[from]);
}

static void run_broadcast(const KernelArgs *args)
{
    const cvn_type *x = operand(args->op, 0), *y = result(args->op);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK], stride[CVN_MAX_RANK] = {0};
    strides_of(x, from);
    strides_of(y, to);
    for (int i = 0; i < x->rank; i++)
        if (x->dim[i] != 1)
            stride[args->op->attr.dims.v[i]] = from[i];
    Walk w = {0};
    for (int i = 0; i < y->rank; i++)
        walk_add(&w, y->dim[i], stride[i], to[i]);
    share_and_run(&w, args, 0);
}

static void run_transpose(const KernelArgs *args)
{
    const cvn_type *x = operand(args->op, 0), *y = result(args->op);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    strides_of(x, from);
    strides_of(y, to);
    Walk w = {0};
    for (int i = 0; i < y->rank; i++)
        walk_add(&w, y->dim[i], from[args->op->attr.dims.v[i]], to[i]);
    share_and_run(&w, args, 0);
}

static void run_slice(const KernelArgs *args)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *y = result(args->op);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    strides_of(operand(args->op, 0), from);
    strides_of(y, to);
    Walk w = {0};
    for (int i = 0; i < y->rank; i++) {
        w.from += a->start.v[i] * from[i];
        walk_add(&w, y->dim[i], from[i] * a->stride.v[i], to[i]);
    }
    share_and_run(&w, args, 0);
}

static void run_reverse(const KernelArgs *args)
{
    const Ints *dims = &args->op->attr.dims;
    const cvn_type *y = result(args->op);
    int64_t stride[CVN_MAX_RANK];
    strides_of(y, stride);
    unsigned reversed = 0;
    for (int i = 0; i < dims->n; i++)
        reversed |= 1u << dims->v[i];
    Walk w = {0};
    for (int i = 0; i < y->rank; i++) {
        bool back = reversed & 1u << i;
        w.from += back ? (y->dim[i] - 1) * stride[i] : 0;
        walk_add(&w, y->dim[i], back ? -stride[i] : stride[i], stride[i]);
    }
    share_and_run(&w, args, 0);
}

static void run_concatenate(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *y = result(op);
    int64_t to[CVN_MAX_RANK], from[CVN_MAX_RANK], begin = 0;
    int axis = (int)op->attr.axis;
    strides_of(y, to);
    for (int k = 0; k < op->n_operands; k++) {
        const cvn_type *x = operand(op, k);
        strides_of(x, from);
        Walk w = {.to = begin * to[axis]};
        for (int i = 0; i < x->rank; i++)
            walk_add(&w, x->dim[i], from[i], to[i]);
        share_and_run(&w, args, k);
        begin += x->dim[axis];
    }
}

/* The part of the operand that stays: indices [first, last) of one dimension, with low + i * step in [0, n). */
static void kept_range(int64_t size, int64_t low, int64_t step, int64_t n, int64_t *first,
                       int64_t *last)
{
    *first = low < 0 ? (-low + step - 1) / step : 0;
    *last = n > low ? (n - low - 1) / step + 1 : 0;
    *last = *last < size ? *last : size;
}

static void run_pad(const KernelArgs *args)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *x = operand(args->op, 0), *y = result(args->op);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    strides_of(x, from);
    strides_of(y, to);
    Walk value = {0}, w = {0};
    for (int i = 0; i < y->rank; i++)
        walk_add(&value, y->dim[i], 0, to[i]);
    share_and_run(&value, args, 1);
    kernel_sync(args);
    for (int i = 0; i < x->rank; i++) {
        int64_t step = a->stride.v[i] + 1, first, last;
        kept_range(x->dim[i], a->start.v[i], step, y->dim[i], &first, &last);
        if (first >= last)
            return;
        w.from += first * from[i];
        w.to += (a->start.v[i] + first * step) * to[i];
        walk_add(&w, last - first, from[i], to[i] * step);
    }
    share_and_run(&w, args, 0);
}

/* ---- slices whose start is data ---- */

static int64_t read_start(const cvn_type *type, const void *data)
{
    switch (type->dtype) {
    case CVN_U32:
        return *(const uint32_t *)data;
    case CVN_I8:
        return *(const int8_t *)data;
    default:
        return *(const int32_t *)data;
    }
}

static bool match_starts(const Op *op, int first)
{
    for (int i = first; i < op->n_operands; i++) {
        cvn_dtype dtype = operand(op, i)->dtype;
        if (dtype != CVN_I32 && dtype != CVN_U32 && dtype != CVN_I8)
            return false;
    }
    return match_bytes(op);
}

static bool match_dynamic_slice(const Op *op)
{
    return match_starts(op, 1);
}

static bool match_dynamic_update(const Op *op)
{
    return match_starts(op, 2);
}

/* Clamped so that `size` elements fit in n. */
static int64_t clamped_start(const KernelArgs *args, int i, int64_t size, int64_t n)
{
    int64_t start = read_start(operand(args->op, i), args->in[i]);
    return start < 0 ? 0 : start > n - size ? n - size : start;
}

static void run_dynamic_slice(const KernelArgs *args)
{
    const cvn_type *x = operand(args->op, 0), *y = result(args->op);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    strides_of(x, from);
    strides_of(y, to);
    Walk w = {0};
    for (int i = 0; i < y->rank; i++) {
        w.from += clamped_start(args, 1 + i, y->dim[i], x->dim[i]) * from[i];
        walk_add(&w, y->dim[i], from[i], to[i]);
    }
    share_and_run(&w, args, 0);
}

/* Copies everything first, unless it is in place already. */
static void run_dynamic_update(const KernelArgs *args)
{
    const cvn_type *x = operand(args->op, 0), *update = operand(args->op, 1);
    int64_t from[CVN_MAX_RANK], to[CVN_MAX_RANK];
    strides_of(update, from);
    strides_of(x, to);
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
     .run = run_broadcast},
    {.name = "transpose", .kind = OP_TRANSPOSE, .match = match_bytes, .run = run_transpose},
    {.name = "slice", .kind = OP_SLICE, .match = match_bytes, .run = run_slice},
    {.name = "reverse", .kind = OP_REVERSE, .match = match_bytes, .run = run_reverse},
    {.name = "concatenate", .kind = OP_CONCATENATE, .match = match_bytes, .run = run_concatenate},
    {.name = "pad", .kind = OP_PAD, .match = match_bytes, .run = run_pad},
    {.name = "dynamic_slice",
     .kind = OP_DYNAMIC_SLICE,
     .match = match_dynamic_slice,
     .run = run_dynamic_slice},
    {.name = "dynamic_update_slice",
     .kind = OP_DYNAMIC_UPDATE_SLICE,
     .match = match_dynamic_update,
     .run = run_dynamic_update,
     .in_place = 1},
    {0},
};
