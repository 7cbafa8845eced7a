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

void strided_copy(const cvn_type *box, const StridedBox *from, void *to, int64_t to_at,
                  const int64_t *to_stride, int64_t begin, int64_t end)
{
    int first;
    int64_t run = dense_run(box, from->stride, to_stride, &first);
    size_t size = (size_t)cvn_dtype_bits(box->dtype) / 8;
    for (int64_t at = begin; at < end;) {
        int64_t a = from->at + at % run, b = to_at + at % run, rest = at / run;
        for (int d = first - 1; d >= 0; d--) {
            a += rest % box->dim[d] * from->stride[d];
            b += rest % box->dim[d] * to_stride[d];
            rest /= box->dim[d];
        }
        int64_t n = num_min(run - at % run, end - at);
        for (int64_t i = 0; i < n && box->dtype == CVN_I4; i++)
            element_set(CVN_I4, to, b + i, element_get(CVN_I4, from->base, a + i));
        if (box->dtype != CVN_I4)
            memcpy((char *)to + (size_t)b * size, (const char *)from->base + (size_t)a * size,
                   (size_t)n * size);
        at += n;
    }
}

bool strided_is_dense(const cvn_type *box, const int64_t *stride)
{
    int first;
    dense_run(box, stride, stride, &first);
    return first == 0;
}

void piece_of(const Op *op, int64_t size, int64_t from, int64_t to, cvn_type *box, StridedBox *in,
              StridedBox *out)
{
    const cvn_type *y = &op->result[0]->type;
    *out = (StridedBox){0};
    const cvn_type *x = &op->operand[0]->type;
    if (op->kind == OP_ALL_REDUCE) {
        /* The to-th of `size` parts of all elements, in whole lines of cache. */
        int64_t begin, end;
        kernel_share(cvn_type_elements(x), 64, (int)to, (int)size, &begin, &end);
        *box = (cvn_type){.dtype = x->dtype, .rank = 1, .dim = {end - begin}};
        *out = *in = (StridedBox){.at = begin, .stride = {1}};
        return;
    }
    if (op->kind == OP_REDUCE_SCATTER) {
        /* The to-th part along the axis, as lines of what lies dense. */
        int64_t line = 1, n = cvn_type_elements(y);
        for (int d = (int)op->attr.axis; d < y->rank; d++)
            line *= y->dim[d];
        *box = (cvn_type){.dtype = y->dtype, .rank = 2, .dim = {line ? n / line : 0, line}};
        *in = (StridedBox){.at = to * line, .stride = {size * line, 1}};
        return;
    }
    *box = *x;
    *in = (StridedBox){0};
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
