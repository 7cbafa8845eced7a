/*
 * Operations that address by data: dynamic slices, gather, scatter, sort.
 *
 * Gather, on the example of rows of a table:
 *
 *     table [512,64], indices [4,7]  ->  y [4,7,64]
 *     window=[2] collapsed=[0] index_map=[0] index_vector_dim=2 sizes=[1,64]
 *
 * y[2,5,:]: the dimensions of y that are not in `window`, (2,5), name an index vector, here the one
 * number r = indices[2,5]. index_map says that it is where the slice starts in dimension 0 of the
 * table: start = (r, 0), clamped so that all of the slice is inside. The dimensions of y in
 * `window` run over the slice, without the collapsed ones: place = start + (0, at[2]).
 */
#include "graph/interp/interp_impl.h"

/* Operands first, first + 1, … are the starts of a slice with these sizes; clamped into x. */
static void read_starts(const Op *op, const void *const *in, int first, const int64_t *sizes,
                        int64_t *start)
{
    const cvn_type *x = op_in(op, 0);
    for (int d = 0; d < x->rank; d++)
        start[d] = interp_within(interp_get_int(op_in(op, first + d)->dtype, in[first + d], 0), 0,
                                 x->dim[d] - sizes[d]);
}

/* Offset of index start + at. */
static int64_t place_of(int rank, const int64_t *start, const int64_t *at, const int64_t *stride)
{
    int64_t place = 0;
    for (int d = 0; d < rank; d++)
        place += (start[d] + at[d]) * stride[d];
    return place;
}

void interp_dynamic_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    read_starts(op, in, 1, op->attr.sizes.v, start);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at))
        interp_move(y->dtype, out[0], i, in[0], place_of(y->rank, start, at, stride));
}

void interp_dynamic_update_slice(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *update = op_in(op, 1);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    read_starts(op, in, 2, update->dim, start);
    interp_copy(op, in, out);
    for (int64_t i = 0, n = cvn_type_elements(update); i < n;
         i++, index_next(update->rank, update->dim, at))
        interp_move(x->dtype, out[0], place_of(x->rank, start, at, stride), in[1], i);
}

/* The start, in each dimension of the operand, that the index vector says which belongs to index
   `at` (of rank `rank`) of gather's result or scatter's updates. Not clamped. */
static void index_start(const Op *op, const void *indices, int rank, const int64_t *at,
                        int64_t start[CVN_MAX_RANK])
{
    const OpAttr *a = &op->attr;
    const cvn_type *type = op_in(op, 1);
    int64_t stride[CVN_MAX_RANK + 1] = {0}, where[CVN_MAX_RANK + 1] = {0};
    type_strides(type, stride);
    for (int d = 0, e = 0; d < rank; d++) {
        if (ints_contain(&a->window, d))
            continue;
        e += e == a->index_vector_dim;
        where[e++] = at[d];
    }
    int64_t vector = 0;
    for (int d = 0; d < type->rank; d++)
        vector += where[d] * stride[d];
    for (int d = 0; d < CVN_MAX_RANK; d++)
        start[d] = 0;
    for (int k = 0; k < a->index_map.n; k++) /* stride is 0 where index_vector_dim = rank */
        start[a->index_map.v[k]] =
            interp_get_int(type->dtype, indices, vector + k * stride[a->index_vector_dim]);
    for (int k = 0; k < a->operand_batch.n; k++)
        start[a->operand_batch.v[k]] = where[a->index_batch.v[k]];
}

/* The offset inside the slice, in each dimension of the operand, of index `at`. */
static void window_offset(const Op *op, const int64_t *at, int64_t offset[CVN_MAX_RANK])
{
    const OpAttr *a = &op->attr;
    for (int d = 0, w = 0; d < op_in(op, 0)->rank; d++) {
        bool dropped = ints_contain(&a->collapsed, d) || ints_contain(&a->operand_batch, d);
        offset[d] = dropped ? 0 : at[a->window.v[w++]];
    }
}

void interp_gather(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], offset[CVN_MAX_RANK];
    int64_t at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    for (int64_t i = 0, n = cvn_type_elements(y); i < n; i++, index_next(y->rank, y->dim, at)) {
        index_start(op, in[1], y->rank, at, start);
        window_offset(op, at, offset);
        for (int d = 0; d < x->rank; d++)
            start[d] = interp_within(start[d], 0, x->dim[d] - op->attr.sizes.v[d]);
        interp_move(x->dtype, out[0], i, in[0], place_of(x->rank, start, offset, stride));
    }
}

/* Takes the updates in row-major order; an element whose place is outside is skipped. Each addition
   is rounded to the dtype of the tensor. */
void interp_scatter(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *u = op_in(op, 2);
    int64_t stride[CVN_MAX_RANK], start[CVN_MAX_RANK], offset[CVN_MAX_RANK];
    int64_t at[CVN_MAX_RANK] = {0};
    type_strides(x, stride);
    interp_copy(op, in, out);
    for (int64_t i = 0, n = cvn_type_elements(u); i < n; i++, index_next(u->rank, u->dim, at)) {
        index_start(op, in[1], u->rank, at, start);
        window_offset(op, at, offset);
        bool inside = true;
        for (int d = 0; d < x->rank; d++)
            inside = inside && start[d] + offset[d] >= 0 && start[d] + offset[d] < x->dim[d];
        if (!inside)
            continue;
        int64_t to = place_of(x->rank, start, offset, stride);
        if (op->attr.combine == COMBINE_ASSIGN)
            interp_move(x->dtype, out[0], to, in[2], i);
        else if (dtype_is_float(x->dtype))
            element_set(x->dtype, out[0], to,
                        element_get(x->dtype, out[0], to) + element_get(x->dtype, in[2], i));
        else
            interp_set_int(x->dtype, out[0], to,
                           interp_get_int(x->dtype, out[0], to) +
                               interp_get_int(x->dtype, in[2], i));
    }
}

/* One line of the tensors being sorted, in place: item i is element base + i * step of the key and,
   when there are two, of the payload. */
typedef struct SortLine {
    int n_tensors;
    cvn_dtype dtype[2];
    void *data[2];
    int64_t base, step;
    bool descending;
} SortLine;

/* An integer that orders as the elements do. For floats it is their bits, those of negative numbers
   turned round: the total order of IEEE 754, -NaN < -inf < … < -0 < +0 < … < inf < NaN. */
static int64_t sort_key(cvn_dtype dtype, const void *data, int64_t i)
{
    int64_t bits;
    switch (dtype) {
    case CVN_F64:
        memcpy(&bits, (const double *)data + i, sizeof bits);
        break;
    case CVN_F32:
    case CVN_I32:
        bits = ((const int32_t *)data)[i];
        break;
    case CVN_BF16:
    case CVN_F16:
        bits = ((const int16_t *)data)[i];
        break;
    default:
        return interp_get_int(dtype, data, i);
    }
    return bits < 0 && dtype != CVN_I32 ? bits ^ INT64_MAX : bits;
}

/* Must item i come before item j? */
static bool sort_before(const SortLine *line, int64_t i, int64_t j)
{
    int64_t a = sort_key(line->dtype[0], line->data[0], line->base + i * line->step);
    int64_t b = sort_key(line->dtype[0], line->data[0], line->base + j * line->step);
    return line->descending ? a > b : a < b;
}

static void sort_swap(const SortLine *line, int64_t i, int64_t j)
{
    for (int t = 0; t < line->n_tensors; t++) {
        double keep; /* room for any element */
        cvn_dtype dtype = line->dtype[t];
        interp_move(dtype, &keep, 0, line->data[t], line->base + i * line->step);
        interp_move(dtype, line->data[t], line->base + i * line->step, line->data[t],
                    line->base + j * line->step);
        interp_move(dtype, line->data[t], line->base + j * line->step, &keep, 0);
    }
}

static void sort_reverse(const SortLine *line, int64_t begin, int64_t end)
{
    while (begin < --end)
        sort_swap(line, begin++, end);
}

/* The first item of [begin, end), which is sorted, that must come after `item` (or need not come
   before it, when `first` is set); end if there is none. */
static int64_t sort_bound(const SortLine *line, int64_t begin, int64_t end, int64_t item,
                          bool first)
{
    while (begin < end) {
        int64_t middle = begin + (end - begin) / 2;
        bool left = first ? sort_before(line, middle, item) : !sort_before(line, item, middle);
        if (left)
            begin = middle + 1;
        else
            end = middle;
    }
    return begin;
}

/* Merges sorted [begin, middle) and [middle, end) in place, stably: cuts the longer in the middle
   and the other where that item belongs, exchanges the inner parts by three reversals, and goes on
   with both sides. */
static void sort_merge(const SortLine *line, int64_t begin, int64_t middle, int64_t end)
{
    if (begin == middle || middle == end || !sort_before(line, middle, middle - 1))
        return;
    if (end - begin == 2) {
        sort_swap(line, begin, middle);
        return;
    }
    int64_t cut_left, cut_right;
    if (middle - begin > end - middle) {
        cut_left = begin + (middle - begin) / 2;
        cut_right = sort_bound(line, middle, end, cut_left, true);
    } else {
        cut_right = middle + (end - middle) / 2;
        cut_left = sort_bound(line, begin, middle, cut_right, false);
    }
    sort_reverse(line, cut_left, middle);
    sort_reverse(line, middle, cut_right);
    sort_reverse(line, cut_left, cut_right);
    int64_t joint = cut_left + (cut_right - middle);
    sort_merge(line, begin, cut_left, joint);
    sort_merge(line, joint, cut_right, end);
}

static void sort_items(const SortLine *line, int64_t begin, int64_t end)
{
    if (end - begin < 2)
        return;
    int64_t middle = begin + (end - begin) / 2;
    sort_items(line, begin, middle);
    sort_items(line, middle, end);
    sort_merge(line, begin, middle, end);
}

/* Stable, without memory of its own: a merge sort with merging in place. */
void interp_sort(const Op *op, const void *const *in, void *const *out)
{
    Lines lines = type_lines(op_out(op, 0), op->attr.axis);
    SortLine line = {.n_tensors = op->n_operands, .step = lines.inner, .descending = op->attr.flag};
    for (int t = 0; t < op->n_operands; t++) {
        size_t bytes = cvn_type_bytes(op_out(op, t));
        if (bytes)
            memcpy(out[t], in[t], bytes);
        line.dtype[t] = op_out(op, t)->dtype;
        line.data[t] = out[t];
    }
    for (int64_t o = 0; o < lines.outer; o++) {
        for (int64_t r = 0; r < lines.inner; r++) {
            line.base = o * lines.n * lines.inner + r;
            sort_items(&line, 0, lines.n);
        }
    }
}
