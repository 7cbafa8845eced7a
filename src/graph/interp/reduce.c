/* Sums and their like: reduce, cumsum and dot_general. */
#include "graph/reduce.h"
#include "graph/interp/interp_impl.h"

Fold interp_fold(cvn_reduce kind, cvn_dtype dtype)
{
    double first = reduce_neutral(kind, dtype);
    Fold fold = {.kind = kind, .is_float = dtype_is_float(dtype), .real = first};
    if (!fold.is_float)
        fold.integer = (uint64_t)(int64_t)first;
    return fold;
}

void interp_fold_add(Fold *fold, cvn_dtype dtype, const void *data, int64_t i)
{
    if (fold->is_float)
        fold->real = reduce_floats(fold->kind, fold->real, element_get(dtype, data, i));
    else
        fold->integer =
            reduce_integers(fold->kind, fold->integer, (uint64_t)interp_get_int(dtype, data, i));
}

void interp_fold_store(const Fold *fold, cvn_dtype dtype, void *data, int64_t i)
{
    if (fold->is_float)
        element_set(dtype, data, i, fold->real);
    else
        interp_set_int(dtype, data, i, (int64_t)fold->integer);
}

/* Some dimensions of a tensor: their sizes, and the distance between neighbours in them. */
typedef struct Dims {
    int n;
    int64_t size[CVN_MAX_RANK], stride[CVN_MAX_RANK];
    int64_t count; /* product of the sizes */
} Dims;

/* Appends dimension d of a tensor. */
static void dims_add(Dims *dims, const cvn_type *type, const int64_t *stride, int64_t d)
{
    dims->count = (dims->n ? dims->count : 1) * type->dim[d];
    dims->size[dims->n] = type->dim[d];
    dims->stride[dims->n++] = stride[d];
}

static int64_t dims_offset(const Dims *dims, const int64_t *at)
{
    int64_t offset = 0;
    for (int d = 0; d < dims->n; d++)
        offset += at[d] * dims->stride[d];
    return offset;
}

void interp_reduce(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0), *y = op_out(op, 0);
    int64_t stride[CVN_MAX_RANK];
    type_strides(x, stride);
    Dims kept = {.count = 1}, reduced = {.count = 1};
    for (int d = 0; d < x->rank; d++)
        dims_add(ints_contain(&op->attr.dims, d) ? &reduced : &kept, x, stride, d);
    int64_t at[CVN_MAX_RANK] = {0};
    for (int64_t i = 0; i < kept.count; i++, index_next(kept.n, kept.size, at)) {
        int64_t first = dims_offset(&kept, at), k[CVN_MAX_RANK] = {0};
        Fold fold = interp_fold(op->attr.reduce, x->dtype);
        for (int64_t j = 0; j < reduced.count; j++, index_next(reduced.n, reduced.size, k))
            interp_fold_add(&fold, x->dtype, in[0], first + dims_offset(&reduced, k));
        interp_fold_store(&fold, y->dtype, out[0], i);
    }
}

/* y[i] = x[0] + … + x[i] along the axis. */
void interp_cumsum(const Op *op, const void *const *in, void *const *out)
{
    const cvn_type *x = op_in(op, 0);
    Lines lines = type_lines(x, op->attr.axis);
    for (int64_t o = 0; o < lines.outer; o++) {
        for (int64_t r = 0; r < lines.inner; r++) {
            Fold fold = interp_fold(CVN_SUM, x->dtype);
            for (int64_t i = 0; i < lines.n; i++) {
                int64_t place = (o * lines.n + i) * lines.inner + r;
                interp_fold_add(&fold, x->dtype, in[0], place);
                interp_fold_store(&fold, x->dtype, out[0], place);
            }
        }
    }
}

/* The dimensions of one side of a contraction. */
typedef struct DotSide {
    const cvn_type *type;
    Dims batch, free_, contract;
} DotSide;

static DotSide dot_side(const cvn_type *type, const Ints *batch, const Ints *contract)
{
    DotSide side = {type, {.count = 1}, {.count = 1}, {.count = 1}};
    int64_t stride[CVN_MAX_RANK];
    type_strides(type, stride);
    for (int i = 0; i < batch->n; i++)
        dims_add(&side.batch, type, stride, batch->v[i]);
    for (int d = 0; d < type->rank; d++)
        if (!ints_contain(batch, d) && !ints_contain(contract, d))
            dims_add(&side.free_, type, stride, d);
    for (int i = 0; i < contract->n; i++)
        dims_add(&side.contract, type, stride, contract->v[i]);
    return side;
}

/* One element of the result: the sum over the contracted dimensions, l and r being the offsets of
   the first factors. */
static void dot_element(const DotSide *lhs, const DotSide *rhs, const void *const *in, int64_t l,
                        int64_t r, cvn_dtype dtype, void *out, int64_t i)
{
    bool is_float = dtype_is_float(lhs->type->dtype);
    int64_t k[CVN_MAX_RANK] = {0};
    double real = 0;
    uint64_t integer = 0;
    for (int64_t j = 0; j < lhs->contract.count; j++) {
        double a = element_get(lhs->type->dtype, in[0], l + dims_offset(&lhs->contract, k));
        double b = element_get(rhs->type->dtype, in[1], r + dims_offset(&rhs->contract, k));
        if (is_float)
            real += a * b;
        else
            integer += (uint64_t)(int64_t)a * (uint64_t)(int64_t)b;
        index_next(lhs->contract.n, lhs->contract.size, k);
    }
    if (is_float)
        element_set(dtype, out, i, real);
    else
        interp_set_int(dtype, out, i, (int64_t)integer);
}

/* y[batch, m, n] = sum over k of lhs[batch, m, k] * rhs[batch, n, k], each letter standing for any
   number of dimensions, anywhere in their operand. */
void interp_dot_general(const Op *op, const void *const *in, void *const *out)
{
    const OpAttr *a = &op->attr;
    DotSide lhs = dot_side(op_in(op, 0), &a->lhs_batch, &a->lhs_contract);
    DotSide rhs = dot_side(op_in(op, 1), &a->rhs_batch, &a->rhs_contract);
    int64_t i = 0, b[CVN_MAX_RANK] = {0};
    for (int64_t nb = 0; nb < lhs.batch.count; nb++, index_next(lhs.batch.n, lhs.batch.size, b)) {
        int64_t lb = dims_offset(&lhs.batch, b), rb = dims_offset(&rhs.batch, b);
        int64_t m[CVN_MAX_RANK] = {0};
        for (int64_t nm = 0; nm < lhs.free_.count;
             nm++, index_next(lhs.free_.n, lhs.free_.size, m)) {
            int64_t l = lb + dims_offset(&lhs.free_, m), n[CVN_MAX_RANK] = {0};
            for (int64_t nn = 0; nn < rhs.free_.count;
                 nn++, index_next(rhs.free_.n, rhs.free_.size, n))
                dot_element(&lhs, &rhs, in, l, rb + dims_offset(&rhs.free_, n),
                            op_out(op, 0)->dtype, out[0], i++);
        }
    }
}
