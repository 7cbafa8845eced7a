/*
 * Operations of a module with a block: reductions, running sums, sorts, scatters, collectives. Graphs have them with names
 * in place of blocks, so the block is read as a graph of its own, on scalars, and looked at.
 *
 *     reduce … { %2 = add %arg1, %arg2   return %2 }                             kind=sum
 *     sort … { %2 = compare LT, %arg1, %arg2, TOTALORDER   return %2 }           ascending
 *     scatter … { return %arg2 }                                                 combine=assign
 *
 * The block of an argmax compares, selects and combines truths; it is tried on all orders that two numbers can have, a NaN
 * among them, which is all that such a block can tell apart.
 */
#include "graph/interp/interp.h"
#include "graph/stablehlo/read.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what blocks say ---- */

static bool reducer_of(const cvn_value *v, const cvn_value *a, const cvn_value *b, cvn_reduce *kind)
{
    static const struct {
        OpKind op;
        cvn_reduce kind;
    } rows[] = {{OP_ADD, CVN_SUM},     {OP_MULTIPLY, CVN_PRODUCT}, {OP_MAXIMUM, CVN_MAX},
                {OP_MINIMUM, CVN_MIN}, {OP_AND, CVN_ALL},          {OP_OR, CVN_ANY}};
    const Op *op = v->def;
    if (op->n_operands != 2 || !((op->operand[0] == a && op->operand[1] == b) ||
                                 (op->operand[0] == b && op->operand[1] == a)))
        return false;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].op == op->kind) {
            *kind = rows[i].kind;
            return true;
        }
    return false;
}

/* "applies stablehlo.add" */
static bool reducer_named(Span name, cvn_reduce *kind)
{
    static const char *const names[REDUCE_COUNT] = {"add",     "multiply", "maximum",
                                                    "minimum", "and",      "or"};
    const char *dot = memchr(name.p, '.', name.n);
    Span own = dot ? (Span){dot + 1, name.n - (size_t)(dot + 1 - name.p)} : name;
    for (int i = 0; i < REDUCE_COUNT; i++)
        if (span_is(own, names[i])) {
            *kind = (cvn_reduce)i;
            return true;
        }
    return false;
}

/* The reducer of an operation of one operand. */
static int find_reducer(Read *r, const MlirOp *op, cvn_reduce *kind)
{
    const Span *applies = mlir_find(&op->attr, "applies", NULL);
    SCOPED(graph_release) cvn_graph *body = NULL;
    if (applies && reducer_named(*applies, kind))
        return CVN_OK;
    if (!applies) {
        TRY(read_body(r, op, &body));
        if (body->n_parameters == 2 && body->n_outputs == 1 &&
            reducer_of(body->output[0].value, body->parameter[0], body->parameter[1], kind))
            return CVN_OK;
    }
    return read_fail(r, op, "is supported with add, multiply, maximum, minimum, and, or");
}

/* ---- reductions ---- */

static bool is_neutral(cvn_reduce kind, const cvn_value *init)
{
    double x, least = -INFINITY, most = INFINITY;
    if (!read_constant(init, &x))
        return false;
    switch (init->type.dtype) {
    case CVN_I32:
        least = INT32_MIN;
        most = INT32_MAX;
        break;
    case CVN_U32:
        least = 0;
        most = UINT32_MAX;
        break;
    case CVN_I8:
        least = INT8_MIN;
        most = INT8_MAX;
        break;
    default:
        break;
    }
    const double neutral[REDUCE_COUNT] = {[CVN_SUM] = 0,    [CVN_PRODUCT] = 1, [CVN_MAX] = least,
                                          [CVN_MIN] = most, [CVN_ALL] = 1,     [CVN_ANY] = 0};
    return x == neutral[kind];
}

/* x reduced, with what the reduction begins with. */
static cvn_value *reduce(Read *r, cvn_reduce kind, const Ints *dims, cvn_value *x, cvn_value *init)
{
    static const OpKind combine[REDUCE_COUNT] = {OP_ADD,     OP_MULTIPLY, OP_MAXIMUM,
                                                 OP_MINIMUM, OP_AND,      OP_OR};
    OpAttr attr = {.reduce = kind, .dims = *dims};
    cvn_value *y = graph_add(r->g, OP_REDUCE, &attr, 1, &x, NULL);
    if (r->g->err.code || is_neutral(kind, init))
        return y;
    cvn_value *both[] = {cvn_broadcast_to(r->g, init, &y->type), y};
    return graph_add(r->g, combine[kind], NULL, 2, both, NULL);
}

/* A block that does nothing but compare and choose, so that the order of its operands is all that it depends on. */
static bool only_compares(const cvn_graph *body)
{
    for (const Op *op = body->first; op; op = op->next)
        switch (op->kind) {
        case OP_PARAMETER:
        case OP_COMPARE:
        case OP_SELECT:
        case OP_AND:
        case OP_OR:
        case OP_NOT:
        case OP_XOR:
            break;
        default:
            return false;
        }
    return true;
}

/* Whether the block takes the larger (sign 1) or smaller (-1) of (a, i) and (b, j), a NaN before all others, and of equals that
   with the smaller index. */
static bool takes_first(const cvn_graph *body, int sign)
{
    static const double values[] = {0, 1, NAN};
    const cvn_value *const *parameter = (const cvn_value *const *)body->parameter;
    int n_values = dtype_is_float(parameter[0]->type.dtype) ? 3 : 2;
    for (int at = 0; at < n_values * n_values * 9; at++) {
        double a = values[at % n_values], b = values[at / n_values % n_values];
        int i = at / n_values / n_values % 3, j = at / n_values / n_values / 3;
        const double given[] = {a, i, b, j};
        double data[4], got[2];
        const void *in[4];
        void *out[2] = {NULL, NULL};
        for (int k = 0; k < 4; k++) {
            element_set(parameter[k]->type.dtype, &data[k], 0, given[k]);
            in[k] = &data[k];
        }
        bool ran = interp_run_one(body, in, out, NULL) == CVN_OK;
        for (int k = 0; k < 2 && ran; k++)
            got[k] = element_get(body->output[k].value->type.dtype, out[k], 0);
        free(out[0]);
        free(out[1]);
        bool left = isnan(a) || sign * a > sign * b;
        double value = left ? a : b, index = a == b ? (i < j ? i : j) : left ? i : j;
        if (!ran || got[1] != index || (got[0] != value && !(isnan(got[0]) && isnan(value))))
            return false;
    }
    return true;
}

/* Whether v counts along the dimension. */
static bool counts_along(const cvn_value *v, int64_t axis)
{
    const Op *op = v->def;
    if (op->kind == OP_IOTA)
        return op->attr.axis == axis;
    if (op->kind == OP_CONSTANT) { /* a short one is read so (read_folded) */
        int64_t inner = 1, n = cvn_type_elements(&v->type);
        for (int d = (int)axis + 1; d < v->type.rank; d++)
            inner *= v->type.dim[d];
        for (int64_t i = 0; i < n; i++)
            if (element_get(v->type.dtype, op->attr.literal.data, op->attr.literal.splat ? 0 : i) !=
                (double)(i / inner % v->type.dim[axis]))
                return false;
        return true;
    }
    return op->kind == OP_BROADCAST_IN_DIM && op->operand[0]->def->kind == OP_IOTA &&
           op->attr.dims.n == 1 && op->attr.dims.v[0] == axis &&
           op->operand[0]->type.dim[0] == v->type.dim[axis];
}

/* The largest (or smallest) along a dimension and where it is; NaNs are before all others. */
static void largest(cvn_graph *g, cvn_value *x, int axis, int sign, cvn_dtype index, ReadValue *out)
{
    bool floats = dtype_is_float(x->type.dtype);
    cvn_value *turned = sign > 0 ? x : floats ? cvn_negate(g, x) : cvn_not(g, x);
    cvn_value *at = cvn_argmax(g, turned, axis);
    if (floats) {
        cvn_value *nan = cvn_compare_values(g, CVN_NE, x, x);
        cvn_value *any = cvn_reduce_dims(g, CVN_ANY, nan, 1, &axis);
        at = cvn_select(g, any, cvn_argmax(g, cvn_convert(g, nan, CVN_I32), axis), at);
    }
    out[0].v = cvn_reduce_dims(g, sign > 0 ? CVN_MAX : CVN_MIN, x, 1, &axis);
    out[1].v = read_as(g, at, index);
}

static int read_argmax(Read *r, const MlirOp *op, const cvn_graph *body, const Ints *dims,
                       const ReadValue *in, ReadValue *out)
{
    const cvn_type *x = &in[0].v->type, *index = &in[1].v->type;
    double first;
    bool whole = x->dtype == CVN_I32 || x->dtype == CVN_U32 || x->dtype == CVN_I8;
    if (dims->n != 1 || dims->v[0] < 0 || dims->v[0] >= x->rank || x->dim[dims->v[0]] < 1 ||
        !(whole || dtype_is_float(x->dtype)) ||
        !(index->dtype == CVN_I32 || index->dtype == CVN_U32) || in[1].wide ||
        body->n_parameters != 4 || body->n_outputs != 2 || !only_compares(body) ||
        !counts_along(in[1].v, dims->v[0]) || !read_constant(in[3].v, &first) || first != 0)
        return CVN_EUNSUPPORTED;
    for (int sign = -1; sign <= 1; sign += 2) {
        if (!is_neutral(sign > 0 ? CVN_MAX : CVN_MIN, in[2].v) || !takes_first(body, sign))
            continue;
        largest(r->g, in[0].v, (int)dims->v[0], sign, index->dtype, out);
        return CVN_OK;
    }
    (void)op;
    return CVN_EUNSUPPORTED;
}

static int read_reduce(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    size_t n = op->operand.n / 2;
    cvn_reduce kind;
    Ints dims;
    TRY(read_ints(r, op, "dimensions", NULL, &dims));
    if (op->operand.n != 2 * n || n < 1 || op->result.n != n)
        return read_fail(r, op, "has %zu operands and %zu results", op->operand.n, op->result.n);
    for (size_t i = 0; i < n; i++) {
        if (in[i].wide)
            return read_fail(r, op,
                             "calculates with i64; the integers of graphs have 32 bits at "
                             "most");
        cvn_type scalar = cvn_scalar(in[i].v->type.dtype);
        if (!cvn_type_equal(&in[n + i].v->type, &scalar))
            return read_fail(r, op, "requires a scalar of its operand's type to begin with");
    }
    if (n == 1) {
        TRY(find_reducer(r, op, &kind));
        out[0].v = reduce(r, kind, &dims, in[0].v, in[1].v);
        return CVN_OK;
    }
    SCOPED(graph_release) cvn_graph *body = NULL;
    TRY(read_body(r, op, &body));
    bool apart = (size_t)body->n_parameters == 2 * n && (size_t)body->n_outputs == n;
    for (size_t i = 0; i < n && apart; i++) {
        apart =
            reducer_of(body->output[i].value, body->parameter[i], body->parameter[n + i], &kind);
        if (apart)
            out[i].v = reduce(r, kind, &dims, in[i].v, in[n + i].v);
    }
    if (!apart && (n != 2 || read_argmax(r, op, body, &dims, in, out)))
        return read_fail(r, op,
                         "of several operands is supported where each is reduced by itself, "
                         "or they are numbers and their places, of which the first largest or "
                         "smallest is taken");
    return CVN_OK;
}

/* ---- windows ---- */

/* A list of numbers all of which are `wanted`, or that is not there. */
static int all_are(Read *r, const MlirOp *op, const char *name, int64_t wanted, bool *are)
{
    Ints list;
    TRY(read_ints(r, op, name, NULL, &list));
    *are = true;
    for (int i = 0; i < list.n; i++)
        *are = *are && list.v[i] == wanted;
    return CVN_OK;
}

/* A window as long as a dimension, that ends at the element, or begins there. */
static int read_window(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    static const char *const ones[] = {"window_strides", "base_dilations", "window_dilations"};
    cvn_reduce kind;
    Ints window, padding;
    int axis = -1, running = 0;
    bool plain = op->operand.n == 2 && op->result.n == 1 && !in[0].wide, one;
    TRY(find_reducer(r, op, &kind));
    TRY(read_ints(r, op, "window_dimensions", NULL, &window));
    TRY(read_ints(r, op, "padding", NULL, &padding));
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++) {
        TRY(all_are(r, op, ones[i], 1, &one));
        plain = plain && one;
    }
    const cvn_type *x = &in[0].v->type;
    bool same = padding.n == 1 && padding.v[0] == 0; /* dense<0> */
    plain = plain && window.n == x->rank && (padding.n == 2 * x->rank || padding.n == 0 || same) &&
            is_neutral(kind, in[1].v) && (kind == CVN_SUM || kind == CVN_PRODUCT);
    for (int d = 0; d < x->rank && plain; d++) {
        int64_t n = window.v[d], low = padding.n == 2 * x->rank ? padding.v[2 * d] : 0,
                high = padding.n == 2 * x->rank ? padding.v[2 * d + 1] : 0;
        if (n == 1 && low == 0 && high == 0)
            continue;
        plain = n == x->dim[d] && low + high == n - 1 && (low == 0 || high == 0) && running++ == 0;
        axis = high == 0 ? d : d - x->rank; /* below 0: from the end */
    }
    if (!plain)
        return read_fail(r, op, "is supported as a running sum or product along a dimension");
    out[0].v = in[0].v;
    if (running == 0)
        return CVN_OK;
    int along = axis < 0 ? axis + x->rank : axis;
    cvn_value *y = axis < 0 ? cvn_reverse(r->g, in[0].v, 1, &along) : in[0].v;
    y = kind == CVN_SUM ? cvn_cumsum(r->g, y, along) : cvn_cumprod(r->g, y, along);
    out[0].v = axis < 0 ? cvn_reverse(r->g, y, 1, &along) : y;
    return CVN_OK;
}

/* ---- sorts ---- */

/* Floats with one zero and one NaN, as JAX compares them. */
static cvn_value *one_of_each(cvn_graph *g, cvn_value *x)
{
    cvn_value *zero = cvn_splat(g, x->type, 0), *nan = cvn_splat(g, x->type, (double)NAN);
    cvn_value *y = cvn_select(g, cvn_compare_values(g, CVN_EQ, x, zero), zero, x);
    return cvn_select(g, cvn_compare_values(g, CVN_NE, x, x), nan, y);
}

/* What v selects where x is not zero, and not NaN. */
static const cvn_value *without_one_of_each(const cvn_value *v, unsigned *which)
{
    double constant;
    while (v->def->kind == OP_SELECT && read_constant(v->def->operand[1], &constant)) {
        const Op *test = v->def->operand[0]->def;
        bool nan = isnan(constant) && test->kind == OP_COMPARE && test->attr.compare == CVN_NE &&
                   test->operand[0] == test->operand[1];
        bool zero = constant == 0 && test->kind == OP_COMPARE && test->attr.compare == CVN_EQ &&
                    read_constant(test->operand[1], &constant) && constant == 0;
        if (!nan && !zero)
            break;
        *which |= nan ? 1 : 2;
        v = v->def->operand[2];
    }
    return v;
}

static int read_sort(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    int64_t axis;
    size_t n = op->operand.n, key = 0;
    unsigned which[2] = {0, 0};
    SCOPED(graph_release) cvn_graph *body = NULL;
    TRY(read_int(r, op, "dimension", NULL, &axis));
    TRY(read_body(r, op, &body));
    const Op *last = body->n_outputs == 1 ? body->output[0].value->def : NULL;
    bool known = last && last->kind == OP_COMPARE && n == op->result.n &&
                 (size_t)body->n_parameters == 2 * n &&
                 (last->attr.compare == CVN_LT || last->attr.compare == CVN_GT);
    const cvn_value *a = known ? without_one_of_each(last->operand[0], &which[0]) : NULL;
    const cvn_value *b = known ? without_one_of_each(last->operand[1], &which[1]) : NULL;
    while (known && key < n && a != body->parameter[2 * key] && b != body->parameter[2 * key])
        key++;
    known = known && key < n && which[0] == which[1] && (which[0] == 0 || which[0] == 3);
    if (known) {
        const cvn_value *lhs = body->parameter[2 * key], *rhs = body->parameter[2 * key + 1];
        known = (a == lhs && b == rhs) || (a == rhs && b == lhs);
    }
    if (!known)
        return read_fail(r, op, "is supported by one operand, in ascending or descending order");
    bool descending = (last->attr.compare == CVN_GT) == (a == body->parameter[2 * key]);
    cvn_value *by = in[key].v;
    bool exact = !dtype_is_float(by->type.dtype) || (r->total && which[0] == 0);
    by = exact ? by : one_of_each(r->g, by);
    OpAttr attr = {.axis = axis, .flag = descending};
    for (size_t i = 0; i < n; i++) {
        cvn_value *both[] = {by, in[i].v};
        bool alone = exact && i == key;
        cvn_value *sorted = graph_add(r->g, OP_SORT, &attr, alone ? 1 : 2, both, NULL);
        if (r->g->err.code)
            return CVN_OK; /* the caller says so */
        out[i] = (ReadValue){sorted->def->result[alone ? 0 : 1], r->g, in[i].wide};
    }
    return CVN_OK;
}

/* ---- scatters ---- */

static int take_dims(Read *r, const MlirAttrs *fields, const char *name, Ints *out)
{
    const Span *value = mlir_find(fields, name, NULL);
    return value ? mlir_ints(r->m, *value, out, r->g) : CVN_OK;
}

static int read_scatter(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *numbers = mlir_find(&op->attr, "scatter_dimension_numbers", NULL), *along;
    OpAttr attr = {0};
    MlirAttrs f = {0};
    cvn_reduce kind = CVN_MAX;
    SCOPED(graph_release) cvn_graph *body = NULL;
    if (!numbers || op->operand.n != 3 || op->result.n != 1)
        return read_fail(r, op, "is supported of one operand");
    TRY(read_body(r, op, &body));
    bool known = body->n_parameters == 2 && body->n_outputs == 1;
    const cvn_value *y = known ? body->output[0].value : NULL;
    if (known && y == body->parameter[1])
        attr.combine = COMBINE_ASSIGN;
    else if (known && reducer_of(y, body->parameter[0], body->parameter[1], &kind) &&
             kind == CVN_SUM)
        attr.combine = COMBINE_ADD;
    else
        return read_fail(r, op,
                         "is supported where updates are added, or take the place of what "
                         "is there");
    TRY(mlir_fields(r->m, *numbers, &f, &r->g->arena));
    TRY(take_dims(r, &f, "update_window_dims", &attr.window));
    TRY(take_dims(r, &f, "inserted_window_dims", &attr.collapsed));
    TRY(take_dims(r, &f, "input_batching_dims", &attr.operand_batch));
    TRY(take_dims(r, &f, "scatter_indices_batching_dims", &attr.index_batch));
    TRY(take_dims(r, &f, "scatter_dims_to_operand_dims", &attr.index_map));
    along = mlir_find(&f, "index_vector_dim", NULL);
    if (along)
        TRY(mlir_int(r->m, *along, &attr.index_vector_dim));
    if (in[0].wide || in[2].wide)
        return read_fail(r, op, "of i64 is not supported");
    out[0].v =
        graph_add(r->g, OP_SCATTER, &attr, 3, (cvn_value *[]){in[0].v, in[1].v, in[2].v}, NULL);
    return CVN_OK;
}

/* ---- collectives ---- */

/* Columns of dense<[[0, 1], [2, 3]]> : tensor<2x2xi64>. */
static int64_t columns(Span value)
{
    const char *type = memmem(value.p, value.n, "tensor<", 7), *end = value.p + value.n;
    int64_t n = 0;
    while (type && type < end && *type != 'x')
        type++;
    for (type = type ? type + 1 : end; type < end && *type >= '0' && *type <= '9' && n < 1 << 20;
         type++)
        n = n * 10 + (*type - '0');
    return n;
}

static int read_collective(Read *r, const MlirOp *op, OpKind kind, const ReadValue *in,
                           ReadValue *out)
{
    const Span *groups = mlir_find(&op->attr, "replica_groups", "source_target_pairs");
    OpAttr attr = {0};
    if (op->operand.n != 1 || op->result.n != 1 || !groups || in[0].wide)
        return read_fail(r, op, "is supported of one operand, with its devices");
    TRY(mlir_ints(r->m, *groups, &attr.groups, r->g));
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++)
        if (row->hlo)
            TRY(read_int(r, op, row->hlo, NULL, (void *)((char *)&attr + row->offset)));
    if (kind != OP_COLLECTIVE_PERMUTE)
        attr.group_size = columns(*groups);
    if (kind == OP_ALL_REDUCE || kind == OP_REDUCE_SCATTER)
        TRY(find_reducer(r, op, &attr.reduce));
    out[0].v = graph_add(r->g, kind, &attr, 1, (cvn_value *[]){in[0].v}, NULL);
    return CVN_OK;
}

#define COLLECTIVE(kind, name)                                                                     \
    static int read_##name(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)         \
    {                                                                                              \
        return read_collective(r, op, kind, in, out);                                              \
    }
COLLECTIVE(OP_ALL_REDUCE, all_reduce)
COLLECTIVE(OP_ALL_GATHER, all_gather)
COLLECTIVE(OP_REDUCE_SCATTER, reduce_scatter)
COLLECTIVE(OP_ALL_TO_ALL, all_to_all)
COLLECTIVE(OP_COLLECTIVE_PERMUTE, collective_permute)

const ReadRow read_reducers[] = {
    {"reduce", read_reduce},
    {"reduce_window", read_window},
    {"sort", read_sort},
    {"scatter", read_scatter},
    {"all_reduce", read_all_reduce},
    {"all_gather", read_all_gather},
    {"reduce_scatter", read_reduce_scatter},
    {"all_to_all", read_all_to_all},
    {"collective_permute", read_collective_permute},
    {NULL, NULL},
};
