/*
 * Products of rows with the matrices of their groups, as those of a layer's experts, of which the router gives each token a few:
 * grouped_dot, its gradient by the weight, grouped_outer, and grouped_linear, the same of weights in panels.
 *
 * In plain operations every row is multiplied with the matrices of all groups, and the product of its own is taken. Two tokens
 * of two slots each, three groups:
 *
 *     x f32[2,8], w f32[3,5,8], group i32[2,2]        dot_general -> [2,3,5]
 *     group = 0 or 1 or 2, bool[2,2,3]                select over [2,2,3,5], else 0; sum over the groups -> [2,2,5]
 *
 * so that a group outside of those that there are gives 0. That is how groups are split over devices: each has some of the
 * matrices, sees the groups relative to its first, and what all compute adds up to the whole, exactly: one summand is not 0.
 */
#include "base/num.h"
#include "graph/linear.h"
#include "graph/ops/ops.h"
#include "graph/panels.h"

enum { X, WEIGHT, GROUP };

/* Whether operand i has a row for each slot, beside [lead …, slots] groups in operand `group`. */
static bool has_slots(const Op *op, int i, int group)
{
    return op_in(op, i)->rank == op_in(op, group)->rank + 1;
}

/* Checks that operand i is [lead …, d] or [lead …, slots, d]. */
static int check_rows(const Op *op, int i, int group, cvn_err *err)
{
    const cvn_type *x = op_in(op, i), *g = op_in(op, group);
    bool fits = g->rank >= 1 && (x->rank == g->rank || x->rank == g->rank + 1);
    for (int d = 0; fits && d < x->rank - 1; d++)
        fits = x->dim[d] == g->dim[d];
    return fits ? CVN_OK
                : infer_fail(op, err,
                             "operand %d must be [lead …, d] or [lead …, slots, d] of groups [lead "
                             "…, slots]",
                             i);
}

/* Sets a result of [lead …, slots, n]. */
static void set_rows(cvn_type *type, const cvn_type *group, int64_t n)
{
    cvn_dtype dtype = type->dtype;
    *type = *group;
    type->dtype = dtype;
    type->dim[type->rank++] = n;
}

/* ---- in plain operations ---- */

/* bool [slots of all rows, groups]: whether the slot is of the group. */
static cvn_value *membership(cvn_graph *g, cvn_value *group, int64_t groups)
{
    const int64_t n = cvn_type_elements(&group->type);
    const cvn_type grid = CVN_TYPE(CVN_I32, n, groups);
    cvn_value *own = spread(g, cvn_reshape(g, as(g, group, CVN_I32), 1, &n), &grid, (int[]){0});
    return cvn_compare_values(g, CVN_EQ, own, cvn_iota(g, grid, 1));
}

/* x, [lead …, d] or [lead …, slots, d], as [slots of all rows, d] of a dtype. */
static cvn_value *for_each_slot(cvn_graph *g, cvn_value *x, const cvn_type *group, cvn_dtype dtype)
{
    const int64_t slots = group->dim[group->rank - 1], n = cvn_type_elements(group);
    const int64_t d = x->type.dim[x->type.rank - 1];
    x = as(g, x, dtype);
    if (x->type.rank == group->rank) {
        const cvn_type wide_type = CVN_TYPE(dtype, slots ? n / slots : 0, slots, d);
        x = cvn_reshape(g, x, 2, (int64_t[]){wide_type.dim[0], d});
        x = spread(g, x, &wide_type, (int[]){0, 2});
    }
    return cvn_reshape(g, x, 2, (int64_t[]){n, d});
}

/* x [n, k] times w [groups, rows, columns], each row its own, [n, rows or columns]. */
static cvn_value *own_products(cvn_graph *g, cvn_value *x, cvn_value *w, cvn_value *group,
                               int contract)
{
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {1}, .rhs_contract = {contract}};
    const int groups = 1;
    cvn_value *all = cvn_dot_general(g, x, w, &dims, x->type.dtype); /* [n, groups, …] */
    cvn_value *own = membership(g, group, w->type.dim[0]);
    own = spread(g, own,
                 &(cvn_type){.dtype = CVN_BOOL,
                             .rank = 3,
                             .dim = {all->type.dim[0], all->type.dim[1], all->type.dim[2]}},
                 (int[]){0, 1});
    return cvn_reduce_dims(g, CVN_SUM, where(g, own, all), 1, &groups);
}

/* ---- grouped_dot ---- */

cvn_value *cvn_grouped_dot(cvn_graph *g, cvn_value *x, cvn_value *w, cvn_value *group, int contract,
                           cvn_dtype dtype)
{
    const OpAttr attr = {.axis = contract};
    const cvn_type want = cvn_scalar(dtype);
    return graph_add(g, OP_GROUPED_DOT, &attr, 3, (cvn_value *[]){x, w, group}, &want);
}

int infer_grouped_dot(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, X), *w = op_in(op, WEIGHT);
    const int64_t contract = op->attr.axis;
    TRY(infer_check_index(op, GROUP, err));
    TRY(check_rows(op, X, GROUP, err));
    if (w->rank != 3 || (contract != 1 && contract != 2) || w->dtype != x->dtype ||
        !dtype_is_float(x->dtype))
        return infer_fail(op, err,
                          "takes x and a weight [groups, rows, columns] of the same floats, and "
                          "sums over its dimension 1 or 2");
    if (x->dim[x->rank - 1] != w->dim[contract])
        return infer_fail(op, err, "x has %lld columns and the weight %lld",
                          (long long)x->dim[x->rank - 1], (long long)w->dim[contract]);
    if (type->dtype == CVN_DTYPE_COUNT)
        type->dtype = x->dtype;
    if (!dtype_is_float(type->dtype))
        return infer_fail(op, err, "cannot give a result of %s", cvn_dtype_name(type->dtype));
    set_rows(type, op_in(op, GROUP), w->dim[3 - contract]);
    return CVN_OK;
}

void decompose_grouped_dot(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_type *type = &op->result[0]->type;
    const cvn_dtype math = wide(op->operand[X]->type.dtype);
    cvn_value *x = for_each_slot(g, op->operand[X], op_in(op, GROUP), math);
    cvn_value *w = as(g, op->operand[WEIGHT], math);
    cvn_value *y = own_products(g, x, w, op->operand[GROUP], (int)op->attr.axis);
    out[0] = as(g, cvn_reshape(g, y, type->rank, type->dim), type->dtype);
}

/* dx = the product with dy the other way, summed over the slots that read a row; dw = sums of outer products. As of
   dot_general they are rounded to what they are of, but that of a weight only to what that is made of. */
void grad_grouped_dot(Grad *d, const Op *op)
{
    cvn_graph *g = d->g;
    cvn_value *x = op->operand[X], *w = op->operand[WEIGHT], *group = op->operand[GROUP];
    cvn_value *dy = as(g, grad_of(d, op, 0), w->type.dtype);
    const int contract = (int)op->attr.axis;
    if (grad_wants(d, op, X)) {
        const bool own = has_slots(op, X, GROUP);
        const int slots = group->type.rank - 1;
        cvn_value *dx = cvn_grouped_dot(g, dy, w, group, 3 - contract,
                                        own ? x->type.dtype : wide(x->type.dtype));
        dx = own ? dx : cvn_reduce_dims(g, CVN_SUM, dx, 1, &slots);
        grad_give(d, op, X, as(g, dx, x->type.dtype));
    }
    if (!grad_wants(d, op, WEIGHT))
        return;
    const cvn_value *weight = d->weight[w->id];
    cvn_dtype dtype = w->type.dtype;
    if (weight && cvn_dtype_bits(weight->type.dtype) > cvn_dtype_bits(dtype))
        dtype = weight->type.dtype;
    cvn_value *left = contract == 2 ? dy : x, *right = contract == 2 ? x : dy;
    cvn_value *dw = cvn_grouped_outer(g, left, right, group, w->type.dim[0], dtype);
    grad_give(d, op, WEIGHT, as(g, dw, w->type.dtype));
}

/* The dimensions of groups, and so of rows and results: `kind` says what rows do. */
static void row_factors(const Op *op, Rule *rule, int group, const int *tensor, int n,
                        FactorKind kind)
{
    const cvn_type *type = op_in(op, group);
    for (int d = 0; d < type->rank; d++) {
        int f = rule_add(rule, type->dim[d], kind);
        rule_put(rule, group, d, f);
        for (int i = 0; i < n; i++)
            if (d < type->rank - 1 || factor_tensor(op, tensor[i])->type.rank == type->rank + 1)
                rule_put(rule, tensor[i], d, f);
    }
}

static int last_of(const Op *op, int tensor)
{
    return factor_tensor(op, tensor)->type.rank - 1;
}

/* x [rows …, k], w [e, n, k], group [rows …] -> [rows …, n]: groups are looked up, and k is summed. */
void factors_grouped_dot(const Op *op, Rule *rule)
{
    const cvn_type *w = op_in(op, WEIGHT);
    const int contract = (int)op->attr.axis;
    row_factors(op, rule, GROUP, (int[]){X, 3}, 2, FACTOR_PASS);
    rule_put(rule, WEIGHT, 0, rule_add_local(rule, w->dim[0], FACTOR_REDUCE, LOCAL_INDEX));
    int n = rule_add(rule, w->dim[3 - contract], FACTOR_PASS);
    rule_put(rule, WEIGHT, 3 - contract, n);
    rule_put(rule, 3, last_of(op, 3), n);
    int k = rule_add(rule, w->dim[contract], FACTOR_REDUCE);
    rule_put(rule, WEIGHT, contract, k);
    rule_put(rule, X, last_of(op, X), k);
}

double flops_grouped_dot(const Op *op)
{
    return 2 * op_elements(op->result[0]) * (double)op_in(op, WEIGHT)->dim[op->attr.axis];
}

/* ---- grouped_outer ---- */

cvn_value *cvn_grouped_outer(cvn_graph *g, cvn_value *a, cvn_value *b, cvn_value *group,
                             int64_t groups, cvn_dtype dtype)
{
    const cvn_type want =
        CVN_TYPE(dtype, groups, a->type.dim[a->type.rank - 1], b->type.dim[b->type.rank - 1]);
    return graph_add(g, OP_GROUPED_OUTER, NULL, 3, (cvn_value *[]){a, b, group}, &want);
}

int infer_grouped_outer(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *a = op_in(op, 0), *b = op_in(op, 1);
    TRY(infer_check_index(op, GROUP, err));
    TRY(check_rows(op, 0, GROUP, err));
    TRY(check_rows(op, 1, GROUP, err));
    if (a->dtype != b->dtype || !dtype_is_float(a->dtype))
        return infer_fail(op, err, "takes rows of the same floats");
    if (type->dtype == CVN_DTYPE_COUNT || !dtype_is_float(type->dtype) || type->rank != 3 ||
        type->dim[1] != a->dim[a->rank - 1] || type->dim[2] != b->dim[b->rank - 1])
        return infer_fail(op, err, "needs a result type of floats [groups, %lld, %lld]",
                          (long long)a->dim[a->rank - 1], (long long)b->dim[b->rank - 1]);
    return CVN_OK;
}

void decompose_grouped_outer(cvn_graph *g, const Op *op, cvn_value **out)
{
    const cvn_dot_dims dims = {.n_contract = 1, .lhs_contract = {0}, .rhs_contract = {0}};
    const cvn_dtype math = wide(op->operand[0]->type.dtype);
    cvn_value *a = for_each_slot(g, op->operand[0], op_in(op, GROUP), math);
    cvn_value *b = for_each_slot(g, op->operand[1], op_in(op, GROUP), math);
    cvn_value *own = membership(g, op->operand[GROUP], op_out(op, 0)->dim[0]);
    cvn_type type = CVN_TYPE(math, own->type.dim[0], own->type.dim[1], a->type.dim[1]);
    a = spread(g, a, &type, (int[]){0, 2});
    type.dtype = CVN_BOOL;
    a = where(g, spread(g, own, &type, (int[]){0, 1}), a); /* [slots, groups, n] */
    out[0] = as(g, cvn_dot_general(g, a, b, &dims, math), op->result[0]->type.dtype);
}

/* a [rows …, n], b [rows …, k], group [rows …] -> [e, n, k]: rows are summed, groups that are elsewhere left out. */
void factors_grouped_outer(const Op *op, Rule *rule)
{
    const cvn_type *y = op_out(op, 0);
    row_factors(op, rule, GROUP, (int[]){0, 1}, 2, FACTOR_REDUCE);
    rule_put(rule, 3, 0, rule_add_local(rule, y->dim[0], FACTOR_PASS, LOCAL_INDEX));
    for (int i = 0; i < 2; i++) {
        int f = rule_add(rule, y->dim[1 + i], FACTOR_PASS);
        rule_put(rule, i, last_of(op, i), f);
        rule_put(rule, 3, 1 + i, f);
    }
}

double flops_grouped_outer(const Op *op)
{
    const cvn_type *y = op_out(op, 0);
    return 2 * op_elements(op->operand[GROUP]) * (double)y->dim[1] * (double)y->dim[2];
}

/* ---- grouped_linear ---- */

/* Operands are x, the weights (of quantized ones each with its scale behind it), the groups. */
int infer_grouped_linear(const Op *op, cvn_type *type, cvn_err *err)
{
    const cvn_type *x = op_in(op, X);
    const int64_t weights = op->attr.group_size;
    int64_t groups = 0;
    if (weights < 1 || weights > LINEAR_WEIGHTS)
        return infer_fail(op, err, "takes 1 to %d weights", LINEAR_WEIGHTS);
    const int group = op->n_operands - 1;
    if (op->n_operands != linear_behind(op) + 1)
        return infer_fail(op, err,
                          "takes x, each weight, with its scale if it is quantized, and groups");
    TRY(infer_check_index(op, group, err));
    TRY(check_rows(op, X, group, err));
    for (int i = 0; i < (int)weights; i++) {
        cvn_type *y = &type[i];
        if (!dtype_is_float(x->dtype) || x->dtype == CVN_F64 || y->dtype == CVN_DTYPE_COUNT ||
            !dtype_is_float(y->dtype) || y->dtype == CVN_F64 ||
            y->rank != op_in(op, group)->rank + 1)
            return infer_fail(op, err, "x and the results must be f32, bf16 or f16");
        const int64_t k = x->dim[x->rank - 1], n = y->dim[y->rank - 1];
        const int q = linear_operand(op, i);
        const int64_t rows = op_in(op, q)->dim[0] * PANEL_ROWS;
        set_rows(y, op_in(op, group), n);
        if (n < 1 || n % PANEL_ROWS || rows % n)
            return infer_fail(op, err, "groups of %lld rows do not fill whole panels",
                              (long long)n);
        groups = i ? groups : rows / n;
        if (rows / n != groups)
            return infer_fail(op, err, "takes weights of as many groups each");
        TRY(infer_check_panels(op, q, rows, k, err));
    }
    return CVN_OK;
}

void decompose_grouped_linear(cvn_graph *g, const Op *op, cvn_value **out)
{
    cvn_value *group = op->operand[op->n_operands - 1];
    cvn_value *x = for_each_slot(g, op->operand[X], &group->type, CVN_F32);
    for (int i = 0; i < op->n_results; i++) {
        const cvn_type *type = &op->result[i]->type;
        const LinearWeight w = linear_weight(op, i);
        const int q = linear_operand(op, i);
        cvn_type all = CVN_TYPE(CVN_F32, op_in(op, q)->dim[0] / w.panels, w.n, w.k);
        const OpAttr attr = {.axis = 2, .blocks = w.blocks};
        cvn_value *values =
            graph_add(g, OP_DEQUANTIZE, &attr, linear_each(op), &op->operand[q], &all);
        cvn_value *y = own_products(g, x, values, group, 2);
        out[i] = as(g, cvn_reshape(g, y, type->rank, type->dim), type->dtype);
    }
}

/* Rows of x are split. Weights are in panels, which the graph of one device has: they are not. */
void factors_grouped_linear(const Op *op, Rule *rule)
{
    int tensor[1 + LINEAR_WEIGHTS] = {X};
    for (int i = 0; i < op->n_results; i++)
        tensor[1 + i] = op->n_operands + i;
    row_factors(op, rule, op->n_operands - 1, tensor, 1 + op->n_results, FACTOR_PASS);
    rule_put(rule, X, last_of(op, X),
             rule_add(rule, op_in(op, X)->dim[last_of(op, X)], FACTOR_WHOLE));
}

double flops_grouped_linear(const Op *op)
{
    const LinearWeight w = linear_weight(op, 0);
    return 2 * op_elements(op->operand[op->n_operands - 1]) *
           (double)(w.n * w.k * linear_weights(op));
}
