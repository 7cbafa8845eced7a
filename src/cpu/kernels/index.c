/*
 * Operations that address by data: gather (rows of a table, and any other), sums into rows (scatter), and the
 * update of a KV cache. Other scatters are left to the fallback.
 */
#include "base/float16.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/walk.h"

#include <stdlib.h>
#include <string.h>

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
    int64_t n = 1;
    for (int i = 1; i < x->rank; i++)
        n *= x->dim[i];
    return n;
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

/* Any gather: for each index vector, a box of the operand is copied. */
static bool match_gather_boxes(const Op *op)
{
    return cvn_dtype_bits(op_in(op, 0)->dtype) >= 8 && op_in(op, 1)->dtype == CVN_I32;
}

/* What index vector number `i` says: where the box starts in the operand, and where it goes in the result. */
typedef struct Box {
    int64_t start[CVN_MAX_RANK]; /* in each dimension of the operand, clamped into bounds */
    int64_t to;                  /* element of the result */
} Box;

static Box box_of(const KernelArgs *args, int64_t i)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *x = op_in(args->op, 0), *y = &args->op->result[0]->type;
    const cvn_type *indices = op_in(args->op, 1);
    int64_t y_stride[CVN_MAX_RANK], stride[CVN_MAX_RANK + 1] = {0}, where[CVN_MAX_RANK + 1] = {0};
    walk_strides(y, y_stride);
    walk_strides(indices, stride);
    Box box = {.to = 0};
    int e =
        indices->rank; /* dimensions of the indices, last first, without that of the components */
    int64_t vector = 0, component = a->index_vector_dim < e ? stride[a->index_vector_dim] : 0;
    for (int d = y->rank - 1; d >= 0; d--) {
        if (ints_contain(&a->window, d))
            continue;
        e -= 1 + (e - 1 == a->index_vector_dim);
        where[e] = i % y->dim[d];
        i /= y->dim[d];
        box.to += where[e] * y_stride[d];
        vector += where[e] * stride[e];
    }
    for (int k = 0; k < a->operand_batch.n; k++)
        box.start[a->operand_batch.v[k]] = where[a->index_batch.v[k]];
    for (int k = 0; k < a->index_map.n; k++) {
        int64_t d = a->index_map.v[k];
        int64_t at = ((const int32_t *)args->in[1])[vector + k * component];
        int64_t most = x->dim[d] - a->sizes.v[d];
        box.start[d] = at < 0 ? 0 : at > most ? most : at;
    }
    return box;
}

static void run_gather_boxes(const KernelArgs *args)
{
    const OpAttr *a = &args->op->attr;
    const cvn_type *x = op_in(args->op, 0), *y = &args->op->result[0]->type;
    int64_t x_stride[CVN_MAX_RANK], y_stride[CVN_MAX_RANK], boxes = 1, begin, end;
    walk_strides(x, x_stride);
    walk_strides(y, y_stride);
    for (int d = 0; d < y->rank; d++)
        boxes *= ints_contain(&a->window, d) ? 1 : y->dim[d];
    if (cvn_type_elements(y) == 0)
        return;
    kernel_share(boxes, 1, args->thread, args->n_threads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        Box box = box_of(args, i);
        Walk w = {.to = box.to};
        for (int d = 0, k = 0; d < x->rank; d++) {
            w.from += box.start[d] * x_stride[d];
            if (!ints_contain(&a->collapsed, d) && !ints_contain(&a->operand_batch, d))
                walk_add(&w, a->sizes.v[d], x_stride[d], y_stride[a->window.v[k++]]);
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
static size_t apart_bytes(const Op *op)
{
    size_t n = (size_t)cvn_type_elements(op_in(op, 1)), length = (size_t)row_length(op_in(op, 0));
    return (n * sizeof(uint64_t) + 2 * length * sizeof(float) + 63) / 64 * 64;
}

/* y += sum; more, by as much as the squares of y grow. */
static void add_row_and_squares(float *y, const float *sum, float *more, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        float before = y[i];
        y[i] += sum[i];
        more[i] += y[i] * y[i] - before * before;
    }
}

static size_t scratch_scatter(const Op *op, int n_threads)
{
    return op->attr.apart ? apart_bytes(op) * (size_t)n_threads : 0;
}

/* Columns [begin, end) of f32: what is added to a row is the sum of its updates; other rows are not touched. */
static void scatter_apart(const KernelArgs *args, int64_t begin, int64_t end)
{
    const cvn_type *x = op_in(args->op, 0);
    const int32_t *index = args->in[1];
    const float *update = args->in[2];
    int64_t length = row_length(x), n = cvn_type_elements(op_in(args->op, 1)), count = 0;
    uint64_t *order =
        (void *)((char *)args->scratch + apart_bytes(args->op) * (size_t)args->thread);
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
        if (squares)
            add_row_and_squares(out + row * length + begin, sum, more, end - begin);
        else
            add_row(CVN_F32, out, row * length + begin, sum, 0, end - begin);
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
    if (args->op->attr.apart) {
        scatter_apart(args, begin, end);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        if (index[i] >= 0 && index[i] < x->dim[0])
            add_row(x->dtype, args->out[0], index[i] * length + begin, args->in[2],
                    i * length + begin, end - begin);
}

static bool match_cache_update(const Op *op)
{
    return cvn_dtype_bits(op_in(op, 0)->dtype) >= 8;
}

/* Threads share KV heads x batch, as those of attention to few positions do. */
static void run_cache_update(const KernelArgs *args)
{
    const cvn_type *cache = op_in(args->op, 0);  /* [batch, kv_heads, context, head_dim] */
    const cvn_type *update = op_in(args->op, 1); /* [batch, seq, kv_heads, head_dim] */
    int64_t batch = cache->dim[0], kv_heads = cache->dim[1], context = cache->dim[2];
    int64_t seq = update->dim[1], begin, end;
    const int32_t *start = args->in[2]; /* [batch] */
    size_t row = cvn_dtype_bytes(cache->dtype, cache->dim[3]), head = (size_t)context * row;
    kernel_share(kv_heads * batch, 1, args->thread, args->n_threads, &begin, &end);
    if (row == 0)
        return;
    for (int64_t i = begin; i < end; i++) {
        int64_t h = i / batch, b = i % batch;
        size_t at = (size_t)(b * kv_heads + h) * head;
        char *out = (char *)args->out[0] + at;
        if (args->out[0] != args->in[0])
            memcpy(out, (const char *)args->in[0] + at, head);
        for (int64_t s = 0; s < seq; s++) {
            int64_t place = start[b] + s;
            if (place >= 0 && place < context)
                memcpy(out + (size_t)place * row,
                       (const char *)args->in[1] + (size_t)((b * seq + s) * kv_heads + h) * row,
                       row);
        }
    }
}

const Kernel index_kernels[] = {
    {.name = "gather.rows", .kind = OP_GATHER, .match = match_gather, .run = run_gather},
    {.name = "gather.boxes",
     .kind = OP_GATHER,
     .match = match_gather_boxes,
     .run = run_gather_boxes},
    {.name = "scatter.add_rows",
     .kind = OP_SCATTER,
     .match = match_scatter,
     .scratch = scratch_scatter,
     .run = run_scatter,
     .in_place = 1,
     .adds = true,
     .column_squares = true},
    {.name = "cache_update",
     .kind = OP_CACHE_UPDATE,
     .match = match_cache_update,
     .run = run_cache_update,
     .in_place = 1},
    {0},
};
