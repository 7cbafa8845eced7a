/*
 * Operations that address by data: gather (rows of a table, and any other), scatter (sums into rows, and any other), and the
 * update of a KV cache.
 */
#include "base/float16.h"
#include "base/num.h"
#include "compile/fused.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/walk.h"
#include "graph/wide.h"

#include <stdlib.h>

/* Dimension numbers that say: each index, a scalar, names a row of x [rows, row...]; the result (or updates) is
   [indices..., row...]. */
static bool names_rows(const Op *op, const cvn_type *rows)
{
    const OpAttr *a = &op->attr;
    const cvn_type *x = op_in(op, 0), *indices = op_in(op, 1);
    if (cvn_dtype_bits(x->dtype) < 8 || indices->dtype != CVN_I32 || x->rank < 1 ||
        rows->rank != indices->rank + x->rank - 1 || a->operand_batch.n != 0 ||
        a->index_vector_dim != indices->rank || a->collapsed.n != 1 || a->collapsed.v[0] != 0 ||
        a->index_map.n != 1 || a->index_map.v[0] != 0 || a->window.n != x->rank - 1)
        return false;
    for (int i = 0; i < a->window.n; i++)
        if (a->window.v[i] != indices->rank + i || rows->dim[indices->rank + i] != x->dim[i + 1])
            return false;
    return true;
}

/* Elements of one row of x [rows, row...]. */
static int64_t row_length(const cvn_type *x)
{
    return type_span(x, 1, x->rank);
}

static bool match_gather(const Op *op)
{
    return names_rows(op, &op->result[0]->type) && op->attr.sizes.v[0] == 1;
}

static void run_gather(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0);
    const int32_t *index = args->in[1];
    size_t bytes = cvn_dtype_bytes(x->dtype, row_length(x));
    int64_t begin, end;
    kernel_share(cvn_type_elements(op_in(args->op, 1)), 1, args->thread, args->n_threads, &begin,
                 &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t row = index[i] < 0 ? 0 : index[i] >= x->dim[0] ? x->dim[0] - 1 : index[i];
        if (bytes)
            memcpy((char *)args->out[0] + (size_t)i * bytes,
                   (const char *)args->in[0] + (size_t)row * bytes, bytes);
    }
}

static bool match_bytes(const Op *op)
{
    return wide_dtype(op_in(op, 0)->dtype);
}

/* The dimension numbers of a gather or scatter, resolved: "slots" are the gather's result or the scatter's updates, whose
   elements lie in boxes, one for each index vector. */
typedef struct Boxes {
    int rank;                       /* of the operand; for each of its dimensions: */
    int64_t stride[CVN_MAX_RANK];   /* elements */
    int64_t size[CVN_MAX_RANK];     /* of a box */
    int window[CVN_MAX_RANK];       /* the dimension of the slots that runs over it, or -1 */
    int batch[CVN_MAX_RANK];        /* the one that is its index, or -1 */
    int64_t slot[CVN_MAX_RANK + 1]; /* stride of the window's dimension */
    int outer;    /* dimensions of the slots up to the last that is not in the window; for each: */
    Walk vectors; /* how far slots (from) and index vectors (to) are apart */
} Boxes;

static Boxes boxes_of(const Op *op, const cvn_type *slots)
{
    const OpAttr *a = &op->attr;
    const cvn_type *x = op_in(op, 0);
    int64_t slot[CVN_MAX_RANK], vector[CVN_MAX_RANK + 1] = {0};
    int slot_of[CVN_MAX_RANK + 1] = {0}; /* dimensions of the indices */
    Boxes b = {.rank = x->rank};
    type_strides(x, b.stride);
    type_strides(slots, slot);
    type_strides(op_in(op, 1), vector);
    for (int d = 0, e = 0; d < slots->rank; d++) {
        b.vectors.size[d] = slots->dim[d];
        b.vectors.from_stride[d] = slot[d];
        if (ints_contain(&a->window, d))
            continue;
        e += e == a->index_vector_dim;
        b.vectors.to_stride[d] = vector[e];
        slot_of[e++] = d;
        b.outer = d + 1;
    }
    for (int d = 0, k = 0; d < x->rank; d++) {
        bool dropped = ints_contain(&a->collapsed, d) || ints_contain(&a->operand_batch, d);
        b.window[d] = dropped ? -1 : (int)a->window.v[k++];
        b.size[d] = dropped ? 1 : slots->dim[b.window[d]];
        b.slot[d] = dropped ? 0 : slot[b.window[d]];
        b.batch[d] = -1;
    }
    for (int k = 0; k < a->operand_batch.n; k++)
        b.batch[a->operand_batch.v[k]] = slot_of[a->index_batch.v[k]];
    return b;
}

/* Where the box of element `at` of the slots starts in each dimension of the operand: as the index vector says, in bounds or
   not. */
static void box_start(const KernelArgs *args, const Boxes *b, const int64_t *at, int64_t *start)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *indices = op_in(args->op, 1);
    int64_t vector = walk_offset(b->vectors.to_stride, b->outer, at), component = 1;
    for (int d = indices->rank - 1; d > a->index_vector_dim; d--)
        component *= indices->dim[d];
    for (int d = 0; d < b->rank; d++)
        start[d] = b->batch[d] < 0 ? 0 : at[b->batch[d]];
    for (int k = 0; k < a->index_map.n; k++, vector += component)
        start[a->index_map.v[k]] = indices->dtype == CVN_I32
                                       ? ((const int32_t *)args->in[1])[vector]
                                       : (int64_t)((const uint32_t *)args->in[1])[vector];
}

/* Any gather: for each index vector, a box of the operand is copied. */
static void run_gather_boxes(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0), *y = op_out(args->op, 0);
    const Boxes b = boxes_of(args->op, y);
    int64_t count = 1, begin, end;
    Walk w;
    for (int d = 0; d < b.outer; d++)
        count *= ints_contain(&args->op->attr.window, d) ? 1 : y->dim[d];
    if (cvn_type_elements(y) == 0)
        return;
    kernel_share(count, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        int64_t at[CVN_MAX_RANK] = {0}, start[CVN_MAX_RANK], rest = i;
        for (int d = b.outer - 1; d >= 0; d--) {
            if (ints_contain(&args->op->attr.window, d))
                continue;
            at[d] = rest % y->dim[d];
            rest /= y->dim[d];
        }
        box_start(args, &b, at, start);
        walk_begin(&w, 0, walk_offset(b.vectors.from_stride, b.outer, at));
        for (int d = 0; d < x->rank; d++) {
            w.from += num_max(0, num_min(start[d], x->dim[d] - b.size[d])) * b.stride[d];
            walk_add(&w, b.size[d], b.stride[d], b.slot[d]);
        }
        walk_run(&w, (size_t)cvn_dtype_bits(x->dtype) / 8, args->out[0], args->in[0]);
    }
}

static bool match_scatter(const Op *op)
{
    cvn_dtype dtype = op_in(op, 0)->dtype;
    return (dtype == CVN_F32 || dtype == CVN_BF16) && op->attr.combine == COMBINE_ADD &&
           names_rows(op, op_in(op, 2));
}

static void add_row(cvn_dtype dtype, void *to, int64_t to_at, const void *from, int64_t from_at,
                    int64_t n)
{
    if (dtype == CVN_F32) {
        float *y = (float *)to + to_at;
        const float *x = (const float *)from + from_at;
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
        return;
    }
    uint16_t *y = (uint16_t *)to + to_at;
    const uint16_t *x = (const uint16_t *)from + from_at;
    for (int64_t i = 0; i < n; i++)
        y[i] = bf16_from_f32(bf16_to_f32(y[i]) + bf16_to_f32(x[i]));
}

/* Updates in the order of their rows, and those of one row in their own: each is row << 32 | its number. */
static int by_row(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* A thread's list of updates, and of its columns the sum of a row and what all rows add to the squares. */
static size_t sums_bytes(const Op *op)
{
    size_t n = (size_t)cvn_type_elements(op_in(op, 1)), length = (size_t)row_length(op_in(op, 0));
    return (n * sizeof(uint64_t) + 2 * length * sizeof(float) + 63) / 64 * 64;
}

static size_t scratch_scatter(const Op *op, int n_threads)
{
    return op->fused ? sums_bytes(op) * (size_t)n_threads : 0;
}

/* Columns [begin, end) of f32, where operand 0 is a residual: what is added to a row is the sum of its updates; other rows
   are not touched. */
static void scatter_to_residual(const KernelArgs *args, int64_t begin, int64_t end)
{
    const cvn_type *x = op_in(args->op, 0);
    const int32_t *index = args->in[1];
    const float *update = args->in[2];
    int64_t length = row_length(x), n = cvn_type_elements(op_in(args->op, 1)), count = 0;
    uint64_t *order = (void *)((char *)args->scratch + sums_bytes(args->op) * (size_t)args->thread);
    float *sum = (void *)(order + n), *more = sum + length, *out = args->out[0];
    bool squares = args->op->n_results > 1;
    memset(more, 0, (size_t)(end - begin) * sizeof *more);
    for (int64_t i = 0; i < n; i++)
        if (index[i] >= 0 && index[i] < x->dim[0])
            order[count++] = (uint64_t)index[i] << 32 | (uint64_t)i;
    qsort(order, (size_t)count, sizeof *order, by_row);
    for (int64_t i = 0; i < count;) {
        int64_t row = (int64_t)(order[i] >> 32);
        memset(sum, 0, (size_t)(end - begin) * sizeof *sum);
        for (; i < count && (int64_t)(order[i] >> 32) == row; i++)
            add_row(CVN_F32, sum, 0, update, (int64_t)(uint32_t)order[i] * length + begin,
                    end - begin);
        float *y = out + row * length + begin;
        for (int64_t j = 0; j < end - begin; j++) { /* more: as much as the squares of y grow */
            float before = y[j];
            y[j] += sum[j];
            more[j] += y[j] * y[j] - before * before;
        }
    }
    for (int64_t j = begin; squares && j < end; j++) {
        float all = ((const float *)args->in[3])[j] + more[j - begin];
        ((float *)args->out[1])[j] =
            all < 0 ? 0 : all; /* rounding may make nothing less than that */
    }
}

/* Each thread takes some columns of all rows, so that every element is summed in the order of the updates. */
static void run_scatter(const KernelArgs *args)
{
    const cvn_type *x = op_in(args->op, 0);
    const int32_t *index = args->in[1];
    int64_t length = row_length(x), n = cvn_type_elements(op_in(args->op, 1)), begin, end;
    size_t size = (size_t)cvn_dtype_bits(x->dtype) / 8;
    kernel_share(length, 32, args->thread, args->n_threads, &begin, &end);
    if (begin == end)
        return;
    if (args->out[0] != args->in[0])
        for (int64_t row = 0; row < x->dim[0]; row++)
            memcpy((char *)args->out[0] + (size_t)(row * length + begin) * size,
                   (const char *)args->in[0] + (size_t)(row * length + begin) * size,
                   (size_t)(end - begin) * size);
    if (args->op->fused) {
        scatter_to_residual(args, begin, end);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (index[i] >= 0 && index[i] < x->dim[0])
            add_row(x->dtype, args->out[0], index[i] * length + begin, args->in[2],
                    i * length + begin, end - begin);
}

/* ---- any scatter ---- */

/* The dimension of the operand that threads share: the longest of those that every box has as a whole or at any index; where
   these are shorter than the threads are many, the longest of all. */
static int shared_dim(const Op *op, int n_threads)
{
    const cvn_type *x = op_in(op, 0);
    int best = 0, whole = -1;
    for (int d = 0; d < x->rank; d++) {
        if (x->dim[d] > x->dim[best])
            best = d;
        if (!ints_contain(&op->attr.index_map, d) && (whole < 0 || x->dim[d] > x->dim[whole]))
            whole = d;
    }
    return whole >= 0 && x->dim[whole] >= n_threads ? whole : best;
}

/* Adds a box of updates, each sum rounded. */
static void add_box(const KernelArgs *args, const Walk *w)
{
    cvn_dtype dtype = op_in(args->op, 0)->dtype;
    int inner = w->n - 1;
    int64_t n = inner < 0 ? 1 : w->size[inner], at[CVN_MAX_RANK] = {0};
    int64_t from_step = inner < 0 ? 0 : w->from_stride[inner];
    int64_t to_step = inner < 0 ? 0 : w->to_stride[inner];
    Wide sum, update;
    do
        for (int64_t i = 0; i < n; i += WIDE) {
            int64_t part = num_min(n - i, WIDE);
            int64_t from = w->from + walk_offset(w->from_stride, inner, at) + i * from_step;
            int64_t to = w->to + walk_offset(w->to_stride, inner, at) + i * to_step;
            wide_read(dtype, args->out[0], to, to_step, part, &sum);
            wide_read(dtype, args->in[2], from, from_step, part, &update);
            wide_reduce(CVN_SUM, dtype, &sum, 0, 1, &update, part);
            wide_write(dtype, args->out[0], to, to_step, part, &sum);
        }
    while (walk_next(w, inner, at));
}

/* What of the box that begins at `start` lies in [low, high). Of a window that runs over dimensions before `outer` it has one
   element, number `at`. */
static bool clip_box(const Boxes *b, const int64_t *at, const int64_t *start, const int64_t *low,
                     const int64_t *high, Walk *w)
{
    for (int d = 0; d < b->rank; d++) {
        bool one = b->window[d] < b->outer;
        int64_t first = start[d] + (one && b->window[d] >= 0 ? at[b->window[d]] : 0);
        int64_t begin = num_max(first, low[d]);
        int64_t end = num_min(first + (one ? 1 : b->size[d]), high[d]);
        if (begin >= end)
            return false;
        w->from += one ? 0 : (begin - first) * b->slot[d];
        w->to += begin * b->stride[d];
        walk_add(w, end - begin, b->slot[d], b->stride[d]);
    }
    return true;
}

/* Every thread goes through all updates, in their order, and takes those for its part of the operand, [low, high). */
static void run_scatter_boxes(const KernelArgs *args)
{
    const Op *op = args->op;
    const cvn_type *x = op_in(op, 0), *u = op_in(op, 2);
    const Boxes b = boxes_of(op, u);
    const size_t size = (size_t)cvn_dtype_bits(x->dtype) / 8;
    int64_t low[CVN_MAX_RANK] = {0}, high[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    int64_t start[CVN_MAX_RANK], shared = shared_dim(op, args->n_threads);
    Walk copy = {0}, w;
    memcpy(high, x->dim, sizeof high);
    if (x->rank > 0)
        kernel_share(x->dim[shared], 1, args->thread, args->n_threads, &low[shared], &high[shared]);
    else if (args->thread > 0)
        return;
    for (int d = 0; d < x->rank; d++) {
        copy.from = copy.to += low[d] * b.stride[d];
        if (high[d] == low[d])
            return;
        walk_add(&copy, high[d] - low[d], b.stride[d], b.stride[d]);
    }
    if (args->out[0] != args->in[0])
        walk_run(&copy, size, args->out[0], args->in[0]);
    if (cvn_type_elements(u) == 0)
        return;
    do {
        walk_begin(&w, walk_offset(b.vectors.from_stride, b.outer, at), 0);
        box_start(args, &b, at, start);
        if (!clip_box(&b, at, start, low, high, &w))
            continue;
        if (op->attr.combine == COMBINE_ADD)
            add_box(args, &w);
        else
            walk_run(&w, size, args->out[0], args->in[2]);
    } while (walk_next(&b.vectors, b.outer, at));
}

/* Threads share KV heads x batch, as those of attention to few positions do; of a cache that is not updated in place, of which
   slots without a row are copied too, KV heads. */
static void run_cache_update(const KernelArgs *args)
{
    const cvn_type *cache = op_in(args->op, 0);  /* [batch or pages, kv_heads, page, head_dim] */
    const cvn_type *update = op_in(args->op, 1); /* [batch, seq, kv_heads, head_dim] */
    int64_t batch = update->dim[0], kv_heads = cache->dim[1], page = cache->dim[2];
    int64_t seq = update->dim[1], pages = cache->dim[0], begin, end;
    const int32_t *start = args->in[2]; /* [batch] */
    const bool listed = args->op->n_operands == 5;
    const int32_t *slot = listed ? args->in[3] : NULL, *table = listed ? args->in[4] : NULL;
    int64_t slots = listed ? op_in(args->op, 4)->dim[0] : batch;
    int64_t row_pages = listed ? op_in(args->op, 4)->dim[1] : 1;
    size_t row = cvn_dtype_bytes(cache->dtype, cache->dim[3]), head = (size_t)page * row;
    bool copies = args->out[0] != args->in[0];
    kernel_share(copies ? kv_heads : kv_heads * batch, 1, args->thread, args->n_threads, &begin,
                 &end);
    if (row == 0)
        return;
    for (int64_t h = begin; h < end && copies; h++)
        for (int64_t i = 0; i < pages; i++) {
            size_t at = (size_t)(i * kv_heads + h) * head;
            memcpy((char *)args->out[0] + at, (const char *)args->in[0] + at, head);
        }
    begin *= copies ? batch : 1;
    end *= copies ? batch : 1;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i / batch, b = i % batch, of = slot ? slot[b] : b;
        for (int64_t s = 0; s < seq && of >= 0 && of < slots; s++) {
            int64_t place = (int64_t)start[b] + s;
            if (place < 0 || place >= row_pages * page)
                continue;
            int64_t to = table ? table[of * row_pages + place / page] : b;
            char *out = (char *)args->out[0] + (size_t)(to * kv_heads + h) * head;
            if (to >= 0 && to < pages)
                memcpy(out + (size_t)(place % page) * row,
                       (const char *)args->in[1] + (size_t)((b * seq + s) * kv_heads + h) * row,
                       row);
        }
    }
}

const Kernel index_kernels[] = {
    {.name = "gather.rows", .kind = OP_GATHER, .match = match_gather, .run = run_gather},
    {.name = "gather.boxes", .kind = OP_GATHER, .match = match_bytes, .run = run_gather_boxes},
    {.name = "scatter.add_rows",
     .kind = OP_SCATTER,
     .match = match_scatter,
     .scratch = scratch_scatter,
     .run = run_scatter,
     .in_place = 1,
     .fuses = true},
    {.name = "scatter.boxes",
     .kind = OP_SCATTER,
     .match = match_bytes,
     .run = run_scatter_boxes,
     .in_place = 1},
    {.name = "cache_update",
     .kind = OP_CACHE_UPDATE,
     .match = match_bytes,
     .run = run_cache_update,
     .in_place = 1},
    {0},
};
