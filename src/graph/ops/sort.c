/* Sorting along a dimension, perhaps with a payload that is carried along. */
#include "graph/ops/ops.h"

cvn_value *cvn_sort(cvn_graph *g, cvn_value *x, int axis, bool descending)
{
    OpAttr attr = {.axis = axis, .flag = descending};
    return graph_add(g, OP_SORT, &attr, 1, &x, NULL);
}

void cvn_sort_pair(cvn_graph *g, cvn_value *key, cvn_value *payload, int axis, bool descending,
                   cvn_value *out[2])
{
    OpAttr attr = {.axis = axis, .flag = descending};
    build_results(g, graph_add(g, OP_SORT, &attr, 2, (cvn_value *[]){key, payload}, NULL), 2, out);
}

int infer_sort(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *key = op_in(op, 0);
    if (key->dtype == CVN_I4 || key->dtype == CVN_BOOL)
        return infer_fail(op, err, "cannot sort by %s", cvn_dtype_name(key->dtype));
    type[0] = *key;
    if (op->n_operands == 2) {
        type[1] = *op_in(op, 1);
        cvn_type shape = type[1];
        shape.dtype = key->dtype;
        if (!cvn_type_equal(&shape, key) || type[1].dtype == CVN_I4)
            return infer_fail(op, err, "key and payload must have the same shape");
    }
    return infer_check_axis(op, op->attr.axis, key->rank, err);
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

/* Whether item i must come before item j. */
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

/* A merge sort that merges in place: stable, and without memory of its own. */
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

/* Sorting positions along with the key says where each element came from; sorting the gradient by
   these positions takes it back there. */
void grad_sort(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    int axis = (int)op->attr.axis;
    const cvn_type count = with_dtype(op->operand[0]->type, CVN_I32);
    cvn_value *sorted[2], *back[2];
    cvn_sort_pair(g, op->operand[0], cvn_iota(g, count, axis), axis, op->attr.flag, sorted);
    for (int i = 0; i < op->n_operands; i++) {
        if (!grad_wants(d, op, i))
            continue;
        cvn_sort_pair(g, sorted[1], grad_of(d, op, i), axis, false, back);
        grad_give(d, op, i, back[1]);
    }
}

/* The sort is stable, with floats in total order; a payload is carried along and not compared. */
void hlo_sort(Hlo *h, const Op *op)
{
    cvn_dtype dtype = op->operand[0]->type.dtype;
    const char *order = dtype_is_float(dtype) ? "TOTALORDER"
                        : dtype == CVN_U32    ? "UNSIGNED"
                                              : "SIGNED";
    const cvn_type key = cvn_scalar(dtype);
    const char *t = hlo_tensor(h, &key), *payload = "";
    if (op->n_operands > 1) {
        const cvn_type scalar = cvn_scalar(op->operand[1]->type.dtype);
        const char *u = hlo_tensor(h, &scalar);
        payload = arena_printf(&h->arena, ", %%$c: %s, %%$d: %s", u, u);
    }
    const char *region =
        arena_printf(&h->arena,
                     "{\n    ^bb0(%%$a: %s, %%$b: %s%s):\n"
                     "      %%$e = \"stablehlo.compare\"(%%$a, %%$b) {comparison_direction = "
                     "#stablehlo<comparison_direction %s>, compare_type = "
                     "#stablehlo<comparison_type %s>} : (%s, %s) -> tensor<i1>\n"
                     "      \"stablehlo.return\"(%%$e) : (tensor<i1>) -> ()\n    }",
                     t, t, payload, op->attr.flag ? "GT" : "LT", order, t, t);
    hlo_op(h, op, "sort", region,
           arena_printf(&h->arena, "%s, is_stable = true", hlo_attrs(h, op)));
}
