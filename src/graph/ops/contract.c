/* dot_general: products summed over the contracted dimensions of both operands. */
#include "graph/ops/ops.h"

cvn_value *cvn_dot_general(cvn_graph *g, cvn_value *lhs, cvn_value *rhs, const cvn_dot_dims *dims,
                           cvn_dtype dtype)
{
    OpAttr attr = {.lhs_batch = build_list(g, dims->n_batch, dims->lhs_batch),
                   .rhs_batch = build_list(g, dims->n_batch, dims->rhs_batch),
                   .lhs_contract = build_list(g, dims->n_contract, dims->lhs_contract),
                   .rhs_contract = build_list(g, dims->n_contract, dims->rhs_contract)};
    cvn_type want = cvn_scalar(dtype);
    return graph_add(g, OP_DOT_GENERAL, &attr, 2, (cvn_value *[]){lhs, rhs}, &want);
}

/* Checks the dimension numbers of one side of a contraction. */
static int check_dot_side(const Op *op, int side, const Ints *batch, const Ints *contract,
                          cvn_err *err)
{
    int rank = op_in(op, side)->rank;
    const char *name = side ? "rhs dimension numbers" : "lhs dimension numbers";
    if (batch->n + contract->n > rank)
        return infer_fail(op, err, "%s name more dimensions than there are", name);
    int64_t all[CVN_MAX_RANK];
    for (int i = 0; i < batch->n; i++)
        all[i] = batch->v[i];
    for (int i = 0; i < contract->n; i++)
        all[batch->n + i] = contract->v[i];
    Ints both = {batch->n + contract->n, all};
    return infer_check_dims(op, &both, rank, name, err);
}

static int check_dot_sizes(const Op *op, const Ints *l, const Ints *r, const char *what,
                           cvn_err *err)
{
    if (l->n != r->n)
        return infer_fail(op, err, "lhs and rhs name %d and %d %s dimensions", l->n, r->n, what);
    for (int i = 0; i < l->n; i++) {
        long long a = op_in(op, 0)->dim[l->v[i]], b = op_in(op, 1)->dim[r->v[i]];
        if (a != b)
            return infer_fail(op, err, "%s sizes %lld and %lld differ", what, a, b);
    }
    return CVN_OK;
}

/* Appends the dimensions of operand `side` that are neither batch nor contracted. */
static int add_free_dims(const Op *op, int side, const Ints *batch, const Ints *contract,
                         cvn_type *type)
{
    unsigned taken = 0;
    for (int i = 0; i < batch->n; i++)
        taken |= 1u << batch->v[i];
    for (int i = 0; i < contract->n; i++)
        taken |= 1u << contract->v[i];
    const cvn_type *x = op_in(op, side);
    for (int i = 0; i < x->rank; i++) {
        if (taken & 1u << i)
            continue;
        if (type->rank == CVN_MAX_RANK)
            return CVN_ESHAPE;
        type->dim[type->rank++] = x->dim[i];
    }
    return CVN_OK;
}

int infer_dot_general(const Op *op, cvn_type *type, cvn_err *err)
{
    const OpAttr *a = &op->attr;
    const cvn_type *lhs = op_in(op, 0);
    if (lhs->dtype != op_in(op, 1)->dtype)
        return infer_fail(op, err, "operands must have the same dtype");
    TRY(check_dot_side(op, 0, &a->lhs_batch, &a->lhs_contract, err));
    TRY(check_dot_side(op, 1, &a->rhs_batch, &a->rhs_contract, err));
    TRY(check_dot_sizes(op, &a->lhs_batch, &a->rhs_batch, "batch", err));
    TRY(check_dot_sizes(op, &a->lhs_contract, &a->rhs_contract, "contracting", err));
    cvn_type result = {.dtype = type[0].dtype == CVN_DTYPE_COUNT ? lhs->dtype : type[0].dtype};
    if (dtype_is_float(lhs->dtype) != dtype_is_float(result.dtype) || result.dtype == CVN_BOOL ||
        result.dtype == CVN_I4)
        return infer_fail(op, err, "cannot give a result of %s", cvn_dtype_name(result.dtype));
    for (int i = 0; i < a->lhs_batch.n; i++)
        result.dim[result.rank++] = lhs->dim[a->lhs_batch.v[i]];
    if (add_free_dims(op, 0, &a->lhs_batch, &a->lhs_contract, &result) ||
        add_free_dims(op, 1, &a->rhs_batch, &a->rhs_contract, &result))
        return infer_fail(op, err, "the result would have more than %d dimensions", CVN_MAX_RANK);
    type[0] = result;
    return CVN_OK;
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

/* Dimensions of a type that are neither batch nor contracted, in order. */
static int free_dims(const cvn_type *type, const Ints *batch, const Ints *contract, int64_t *dims)
{
    int n = 0;
    for (int i = 0; i < type->rank; i++)
        if (!ints_contain(batch, i) && !ints_contain(contract, i))
            dims[n++] = i;
    return n;
}

/*
 * The gradient of operand `side` is dy contracted with the other operand over the other's free
 * dimensions. The product has the batch dimensions, then this side's free ones, then the other's
 * contracted ones in its order; a transpose puts them where this operand has them. An example:
 *
 *     y[b,s,f] = sum over e of x[b,s,e] w[f,e]
 *     dx[b,s,e] = sum over f of dy[b,s,f] w[f,e];   dw[f,e] = sum over b, s of dy[b,s,f] x[b,s,e]
 */
static void grad_dot_side(Grad *d, const Op *op, int side)
{
    cvn_graph *g = d->g;
    const OpAttr *a = &op->attr;
    const Ints *batch[2] = {&a->lhs_batch, &a->rhs_batch};
    const Ints *contract[2] = {&a->lhs_contract, &a->rhs_contract};
    cvn_value *other = op->operand[1 - side];
    int n_batch = batch[0]->n, place[CVN_MAX_RANK], n = 0;
    int64_t own_free[CVN_MAX_RANK], other_free[CVN_MAX_RANK];
    int n_own = free_dims(&op->operand[side]->type, batch[side], contract[side], own_free);
    int n_other = free_dims(&other->type, batch[1 - side], contract[1 - side], other_free);
    cvn_dot_dims dims = {.n_batch = n_batch, .n_contract = n_other};
    for (int i = 0; i < n_batch; i++) {
        dims.lhs_batch[i] = i;
        dims.rhs_batch[i] = batch[1 - side]->v[i];
        place[n++] = (int)batch[side]->v[i];
    }
    for (int i = 0; i < n_other; i++) {
        dims.lhs_contract[i] = n_batch + (side == 0 ? n_own : 0) + i;
        dims.rhs_contract[i] = other_free[i];
    }
    for (int i = 0; i < n_own; i++)
        place[n++] = (int)own_free[i];
    for (int i = 0; i < other->type.rank; i++)
        for (int k = 0; k < contract[1 - side]->n; k++)
            if (contract[1 - side]->v[k] == i)
                place[n++] = (int)contract[side]->v[k];
    cvn_value *own = op->operand[side], *dy = as(g, grad_of(d, op, 0), other->type.dtype);
    /* It is computed in the operand's type; but in that of the weight where the operand is made of one,
       and rounded for the product. A sum over all tokens is not rounded to bf16 then (see grad_convert). */
    const cvn_value *weight = d->weight[own->id];
    cvn_dtype dtype = own->type.dtype;
    if (weight && cvn_dtype_bits(weight->type.dtype) > cvn_dtype_bits(dtype))
        dtype = weight->type.dtype;
    cvn_value *product = grad_place(g, cvn_dot_general(g, dy, other, &dims, dtype), place);
    grad_give(d, op, side, as(g, product, own->type.dtype));
}

void grad_dot_general(Grad *d, const Op *op)
{
    for (int side = 0; side < 2; side++)
        if (grad_wants(d, op, side))
            grad_dot_side(d, op, side);
}

void factors_dot_general(const Op *op, Rule *rule)
{
    const OpAttr *a = &op->attr;
    int d = 0;
    for (int i = 0; i < a->lhs_batch.n; i++) {
        int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
        rule_put(rule, 0, a->lhs_batch.v[i], f);
        rule_put(rule, 1, a->rhs_batch.v[i], f);
        rule_put(rule, 2, d++, f);
    }
    for (int side = 0; side < 2; side++) {
        const Ints *batch = side ? &a->rhs_batch : &a->lhs_batch;
        const Ints *contract = side ? &a->rhs_contract : &a->lhs_contract;
        for (int i = 0; i < op_in(op, side)->rank; i++) {
            if (ints_contain(batch, i) || ints_contain(contract, i))
                continue;
            int f = rule_add(rule, op_out(op, 0)->dim[d], FACTOR_PASS);
            rule_put(rule, side, i, f);
            rule_put(rule, 2, d++, f);
        }
    }
    for (int i = 0; i < a->lhs_contract.n; i++) {
        int f = rule_add(rule, op_in(op, 0)->dim[a->lhs_contract.v[i]], FACTOR_REDUCE);
        rule_put(rule, 0, a->lhs_contract.v[i], f);
        rule_put(rule, 1, a->rhs_contract.v[i], f);
    }
}

void hlo_dot_general(Hlo *h, const Op *op)
{
    const OpAttr *a = &op->attr;
    cvn_dtype dtype = op->operand[0]->type.dtype;
    cvn_dtype sum = dtype_is_float(dtype) || dtype == CVN_U32 ? hlo_sum_dtype(dtype) : CVN_I32;
    const char *precision = dtype == CVN_F32 || dtype == CVN_F64 ? "HIGHEST" : "DEFAULT";
    HloCall call = {.name = "dot_general",
                    .operands = hlo_operands(h, op),
                    .operand_types = hlo_types(h, op->operand, op->n_operands)};
    call.attrs = arena_printf(
        &h->arena,
        "dot_dimension_numbers = #stablehlo.dot<lhs_batching_dimensions = %s, "
        "rhs_batching_dimensions = %s, lhs_contracting_dimensions = %s, "
        "rhs_contracting_dimensions = %s>, precision_config = [#stablehlo<precision %s>, "
        "#stablehlo<precision %s>]",
        hlo_list(h, &a->lhs_batch), hlo_list(h, &a->rhs_batch), hlo_list(h, &a->lhs_contract),
        hlo_list(h, &a->rhs_contract), precision, precision);
    hlo_call_in(h, op, call, sum);
}

double flops_dot_general(const Op *op)
{
    double n = 2 * op_elements(op->result[0]);
    for (int i = 0; i < op->attr.lhs_contract.n; i++)
        n *= (double)op_in(op, 0)->dim[op->attr.lhs_contract.v[i]];
    return n;
}
