/*
 * Which part of one device's operand goes to which part of another's result, as boxes of elements;
 * and copying boxes, in runs that are dense at both ends.
 *
 * all_to_all over 2 members of f32[4,6], split axis 0, concat axis 1: member 1 gets of member 0 the
 * box [2,6] at element 12 of the operand (rows 2 and 3), and puts it at element 0 of its result
 * f32[2,12]; that of member 1 goes to element 6.
 */
#include "comm/comm_impl.h"

#include "base/num.h"

#include <string.h>

/* Dimensions from *first on lie dense at both ends: the elements of one run. */
static int64_t dense_run(const cvn_type *box, const int64_t *a, const int64_t *b, int *first)
{
    int64_t run = 1;
    int d = box->rank;
    while (d > 0 && (box->dim[d - 1] == 1 || (a[d - 1] == run && b[d - 1] == run)))
        run *= box->dim[--d];
    *first = d;
    return run;
}

static void move(cvn_dtype dtype, void *to, int64_t to_at, const void *from, int64_t from_at,
                 int64_t n)
{
    if (dtype == CVN_I4) {
        for (int64_t i = 0; i < n; i++)
            element_set(dtype, to, to_at + i, element_get(dtype, from, from_at + i));
        return;
    }
    size_t size = (size_t)cvn_dtype_bits(dtype) / 8;
    memcpy((char *)to + (size_t)to_at * size, (const char *)from + (size_t)from_at * size,
           (size_t)n * size);
}

void box_copy(const cvn_type *box, const Source *from, void *to, int64_t to_at,
              const int64_t *to_stride, int64_t begin, int64_t end)
{
    int first;
    int64_t run = dense_run(box, from->stride, to_stride, &first);
    for (int64_t at = begin; at < end;) {
        int64_t a = from->at + at % run, b = to_at + at % run, rest = at / run;
        for (int d = first - 1; d >= 0; d--) {
            a += rest % box->dim[d] * from->stride[d];
            b += rest % box->dim[d] * to_stride[d];
            rest /= box->dim[d];
        }
        int64_t n = num_min(run - at % run, end - at);
        move(box->dtype, to, b, from->base, a, n);
        at += n;
    }
}

bool box_is_dense(const cvn_type *box, const int64_t *stride)
{
    int first;
    dense_run(box, stride, stride, &first);
    return first == 0;
}

/* The to-th of `size` parts of all elements, in whole lines of cache. */
static void piece_of_all_reduce(const Op *op, int64_t size, int64_t to, cvn_type *box, Source *in)
{
    int64_t begin, end, n = cvn_type_elements(&op->operand[0]->type);
    kernel_share(n, 64, (int)to, (int)size, &begin, &end);
    *box = (cvn_type){.dtype = op->operand[0]->type.dtype, .rank = 1, .dim = {end - begin}};
    *in = (Source){.at = begin, .stride = {1}};
}

/* The to-th part along the axis, as lines of what lies dense. */
static void piece_of_reduce_scatter(const Op *op, int64_t size, int64_t to, cvn_type *box,
                                    Source *in)
{
    const cvn_type *y = &op->result[0]->type;
    int64_t line = 1, n = cvn_type_elements(y);
    for (int d = (int)op->attr.axis; d < y->rank; d++)
        line *= y->dim[d];
    *box = (cvn_type){.dtype = y->dtype, .rank = 2, .dim = {line ? n / line : 0, line}};
    *in = (Source){.at = to * line, .stride = {size * line, 1}};
}

void piece_of(const Op *op, int64_t size, int64_t from, int64_t to, cvn_type *box, Source *in,
              Source *out)
{
    const cvn_type *y = &op->result[0]->type;
    *out = (Source){0};
    if (op->kind == OP_ALL_REDUCE) {
        piece_of_all_reduce(op, size, to, box, in);
        *out = *in;
        return;
    }
    if (op->kind == OP_REDUCE_SCATTER) {
        piece_of_reduce_scatter(op, size, to, box, in);
        return;
    }
    const cvn_type *x = &op->operand[0]->type;
    *box = *x;
    *in = (Source){0};
    type_strides(x, in->stride);
    type_strides(y, out->stride);
    if (op->kind == OP_ALL_GATHER) {
        out->at = from * x->dim[op->attr.axis] * out->stride[op->attr.axis];
    } else if (op->kind == OP_ALL_TO_ALL) {
        int64_t split = op->attr.axis, concat = op->attr.concat_axis;
        box->dim[split] /= size;
        in->at = to * box->dim[split] * in->stride[split];
        out->at = from * box->dim[concat] * out->stride[concat];
    }
}
