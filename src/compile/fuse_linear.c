/* The rules of fuse_linear.h, each a walk over the graph. */
#include "compile/fuse_linear.h"

#include "compile/fuse_impl.h"
#include "graph/grouped.h"
#include "graph/linear.h"

#include <string.h>

/* What the rules share during one walk. */
typedef struct Products {
    cvn_graph *g;
    uint32_t *uses;    /* [n_values] at the start of the walk */
    int64_t *position; /* [n_values] of the operation that makes a value */
    uint32_t n;        /* values at the start of the walk: later ones have no entries */
    bool changed;
} Products;

static bool is_used_once(const Products *f, const cvn_value *v)
{
    return v->id < f->n && f->uses[v->id] == 1;
}

/* A linear of one weight, by group or not, without anything fused to it but perhaps a bias, or NULL. */
static Op *simple_product(const cvn_value *v, OpKind kind)
{
    Op *op = v->def;
    bool simple = op->kind == kind && op->n_results == 1 && !op->attr.flag && !op->attr.norm;
    return simple ? op : NULL;
}

static Op *simple_linear(const cvn_value *v)
{
    return simple_product(v, OP_LINEAR);
}

/* One product in the place of op, which makes what `old` [n_old] were. */
static void put_product(Products *f, Op *op, OpKind kind, int n_old, cvn_value *const *old,
                        const OpAttr *attr, int n, cvn_value *const *operand)
{
    cvn_type type[LINEAR_WEIGHTS];
    for (int i = 0; i < n_old; i++)
        type[i] = old[i]->type;
    graph_insert_before(f->g, op);
    cvn_at(f->g, op->file, op->line);
    f->changed = true;
    cvn_value *first = graph_add(f->g, kind, attr, n, operand, type);
    for (int i = 0; i < n_old && first != f->g->poison; i++)
        graph_replace(old[i], first->def->result[i]);
}

static void put_linear(Products *f, Op *op, int n_old, cvn_value *const *old, const OpAttr *attr,
                       int n, cvn_value *const *operand)
{
    put_product(f, op, OP_LINEAR, n_old, old, attr, n, operand);
}

/* Whether the list is first, first + 1, … up to rank. */
static bool is_tail(const Ints *dims, int first, int rank)
{
    bool tail = dims->n == rank - first;
    for (int i = 0; i < dims->n && tail; i++)
        tail = dims->v[i] == first + i;
    return tail;
}

int fuse_product_rows(const Op *op)
{
    const OpAttr *a = &op->attr;
    if (op->kind == OP_GROUPED_DOT) /* groups are whole panels */
        return a->axis == 2 && op_in(op, 1)->dim[1] % PANEL_ROWS == 0 &&
                       op_in(op, 0)->dtype != CVN_F64 && op_out(op, 0)->dtype != CVN_F64
                   ? 2
                   : 0;
    if (op->kind != OP_DOT_GENERAL || a->lhs_batch.n || a->lhs_contract.n < 1 ||
        op_in(op, 0)->dtype == CVN_F64 || op_out(op, 0)->dtype == CVN_F64)
        return 0;
    int summed = a->lhs_contract.n, x = op_in(op, 0)->rank, w = op_in(op, 1)->rank;
    bool last =
        is_tail(&a->lhs_contract, x - summed, x) && is_tail(&a->rhs_contract, w - summed, w);
    return last ? w - summed : 0;
}

/* dot_general(x, dequantize(q, s)), the last dimensions of both being summed. */
static void fuse_dequantized(Products *f, Op *op)
{
    int rows = fuse_product_rows(op);
    if (!rows || op->operand[1]->def->kind != OP_DEQUANTIZE)
        return;
    const Op *dequantize = op->operand[1]->def;
    cvn_dtype dtype = dequantize->operand[0]->type.dtype;
    bool rounded = op_in(op, 0)->dtype != dtype || op_in(op, 1)->dtype != dtype;
    if (dequantize->attr.axis != rows || (!panel_scaled(dtype) && rounded))
        return;
    const bool grouped = op->kind == OP_GROUPED_DOT;
    OpAttr attr = {.axis = grouped ? 0 : op->attr.lhs_contract.n,
                   .group_size = 1,
                   .blocks = dequantize->attr.blocks};
    int n = 1 + dequantize->n_operands;
    cvn_value *operand[4] = {op->operand[0]};
    memcpy(operand + 1, dequantize->operand, (size_t)dequantize->n_operands * sizeof *operand);
    if (grouped)
        operand[n++] = op->operand[2];
    put_product(f, op, grouped ? OP_GROUPED_LINEAR : OP_LINEAR, 1, op->result, &attr, n, operand);
}

/* linear_int8 of quantize_rows(x): rows are brought to 8 bits where the product lays them out. */
static void fuse_rounded(Products *f, Op *op)
{
    if (op->kind != OP_LINEAR_INT8 || !op->attr.axis)
        return;
    const Op *rounded = op->operand[0]->def;
    if (rounded->kind != OP_QUANTIZE_ROWS || op->operand[1]->def != rounded ||
        op->operand[0] != rounded->result[0] || op->operand[1] != rounded->result[1] ||
        rounded->operand[0]->type.dtype == CVN_F64)
        return;
    OpAttr attr = {.axis = 1, .group_size = 1, .int8 = true};
    cvn_value *operand[] = {rounded->operand[0], op->operand[2], op->operand[3]};
    put_linear(f, op, 1, op->result, &attr, 3, operand);
}

static cvn_value *behind_reshape(cvn_value *v)
{
    return v->def->kind == OP_RESHAPE ? v->def->operand[0] : v;
}

/* linear of blocks and of x = dequantize(quantize_rows(…)), a step for as many columns as the product has one for. */
static void fuse_steps(Products *f, Op *op)
{
    if (op->kind != OP_LINEAR || !op->attr.blocks || op->attr.int8 || op->attr.norm ||
        block_info[op->attr.blocks].form.fraction) /* floats are not multiplied in integers */
        return;
    const Op *numbers = behind_reshape(op->operand[0])->def;
    const Op *rounded = numbers->operand[0]->def;
    const LinearWeight w = linear_weight(op, 0);
    if (numbers->kind != OP_DEQUANTIZE || numbers->attr.blocks || numbers->attr.axis ||
        op->operand[0]->type.dtype != CVN_F32 || rounded->kind != OP_QUANTIZE_ROWS ||
        numbers->operand[0] != rounded->result[0] || numbers->operand[1] != rounded->result[1])
        return;
    const cvn_type *steps = &rounded->result[0]->type;
    cvn_value *x = rounded->operand[0], *before = behind_reshape(x);
    if (steps->dim[steps->rank - 1] != linear_step_columns(&w) || x->type.dtype == CVN_F64)
        return;
    cvn_type like = op->operand[0]->type;
    like.dtype = x->type.dtype;
    graph_insert_before(f->g, op);
    OpAttr attr = op->attr;
    attr.int8 = true;
    cvn_value *operand[LINEAR_OPERANDS];
    memcpy(operand, op->operand, (size_t)op->n_operands * sizeof *operand);
    operand[0] =
        cvn_type_equal(&before->type, &like) ? before : cvn_reshape(f->g, x, like.rank, like.dim);
    put_linear(f, op, op->n_results, op->result, &attr, op->n_operands, operand);
}

/* What v [kept …, rows …] spreads over its first `lead` dimensions, widened or not, or NULL. Over one row it is a
   reshape that spreads. */
static cvn_value *spread_over_rows(const cvn_value *v, int lead)
{
    const Op *op = v->def;
    if (op->kind == OP_CONVERT)
        op = op->operand[0]->def;
    bool whole = (op->kind == OP_BROADCAST_IN_DIM && is_tail(&op->attr.dims, lead, v->type.rank)) ||
                 op->kind == OP_RESHAPE;
    if (!whole)
        return NULL;
    cvn_value *bias = op->operand[0];
    if (bias->def->kind == OP_CONVERT)
        bias = bias->def->operand[0];
    whole = bias->type.rank == v->type.rank - lead;
    for (int d = 0; d < bias->type.rank && whole; d++)
        whole = bias->type.dim[d] == v->type.dim[lead + d];
    cvn_dtype dtype = bias->type.dtype, between = op->result[0]->type.dtype;
    bool exact = between == CVN_F32 || between == dtype;
    return whole && exact && (dtype == CVN_F32 || dtype == CVN_BF16 || dtype == CVN_F16) ? bias
                                                                                         : NULL;
}

/* y + bias, where y is a linear of one weight. */
static void fuse_bias(Products *f, Op *op)
{
    if (op->kind != OP_ADD || op->result[0]->type.dtype != CVN_F32)
        return;
    for (int i = 0; i < 2; i++) {
        const Op *a = simple_linear(op->operand[i]);
        if (!a || a->attr.bias || !is_used_once(f, op->operand[i]))
            continue;
        int lead = a->operand[0]->type.rank - (int)a->attr.axis;
        cvn_value *bias = spread_over_rows(op->operand[1 - i], lead);
        if (!bias)
            continue;
        OpAttr attr = a->attr;
        attr.bias = true;
        cvn_value *operand[LINEAR_OPERANDS];
        memcpy(operand, a->operand, (size_t)a->n_operands * sizeof *operand);
        operand[a->n_operands] = bias;
        put_linear(f, op, 1, op->result, &attr, a->n_operands + 1, operand);
        return;
    }
}

/* Two linears of the same x that could be one step. */
static bool share_input(const Op *a, const Op *b)
{
    if (!a || !b || a->operand[0] != b->operand[0] || a->attr.axis != b->attr.axis ||
        a->attr.bias != b->attr.bias)
        return false;
    LinearWeight v = linear_weight(a, 0), w = linear_weight(b, 0);
    return a->attr.int8 == b->attr.int8 && v.blocks == w.blocks && v.dtype == w.dtype &&
           v.scale_dtype == w.scale_dtype && v.groups == w.groups;
}

/* Operands of n simple linears of one x as one: the weights, then their biases. */
static int join_operands(const Op *const *member, int n, cvn_value *operand[LINEAR_OPERANDS])
{
    int each = linear_each(member[0]), at = 0;
    operand[at++] = member[0]->operand[0];
    for (int i = 0; i < n; i++)
        for (int j = 0; j < each; j++)
            operand[at++] = member[i]->operand[1 + j];
    for (int i = 0; i < n && member[0]->attr.bias; i++)
        operand[at++] = member[i]->operand[1 + each];
    return at;
}

/* silu(a) * b, where silu(a) = a * logistic(a); either operand of a product may come first. */
static void fuse_swiglu(Products *f, Op *op)
{
    if (op->kind != OP_MULTIPLY)
        return;
    for (int i = 0; i < 2; i++) {
        cvn_value *silu = op->operand[i], *up = op->operand[1 - i];
        const Op *inner = silu->def;
        if (inner->kind != OP_MULTIPLY || !is_used_once(f, silu) || !is_used_once(f, up))
            continue;
        int l = inner->operand[1]->def->kind == OP_LOGISTIC ? 1 : 0;
        cvn_value *gate = inner->operand[1 - l], *logistic = inner->operand[l];
        const bool grouped = gate->def->kind == OP_GROUPED_LINEAR;
        const OpKind kind = grouped ? OP_GROUPED_LINEAR : OP_LINEAR;
        const Op *a = simple_product(gate, kind), *b = simple_product(up, kind);
        if (logistic->def->kind != OP_LOGISTIC || logistic->def->operand[0] != gate ||
            !is_used_once(f, logistic) || gate->id >= f->n || f->uses[gate->id] != 2 ||
            !share_input(a, b) || op->result[0]->type.dtype != CVN_F32 ||
            (grouped && a->operand[a->n_operands - 1] != b->operand[b->n_operands - 1]))
            continue;
        OpAttr attr = {.axis = a->attr.axis,
                       .group_size = 2,
                       .flag = true,
                       .bias = a->attr.bias,
                       .int8 = a->attr.int8,
                       .blocks = a->attr.blocks};
        cvn_value *operand[LINEAR_OPERANDS];
        int n = join_operands((const Op *[]){a, b}, 2, operand);
        if (grouped)
            operand[n++] = a->operand[a->n_operands - 1];
        put_product(f, op, kind, 1, op->result, &attr, n, operand);
        return;
    }
}

/* Something is added to v, and nothing else is done with it: a product does that to one result as it is written, not to one of
   several. What is broadcast is not worth a tensor of its own. */
static bool is_summed(const Products *f, const cvn_value *v)
{
    const Op *op = v->def;
    do
        op = op->next;
    while (op && !(op->n_operands > 0 && op->operand[0] == v) &&
           !(op->n_operands > 1 && op->operand[1] == v));
    return op && op->kind == OP_ADD && is_used_once(f, v) && v->type.dtype == CVN_F32 &&
           op->operand[op->operand[0] == v]->def->kind != OP_BROADCAST_IN_DIM;
}

/* Linears of one x become one, where the first of them is. */
static void fuse_siblings(Products *f, Op *op)
{
    const Op *member[LINEAR_WEIGHTS] = {op};
    int n = 1;
    if (op->kind != OP_LINEAR || !simple_linear(op->result[0]) || op->result[0]->forward ||
        is_summed(f, op->result[0]))
        return;
    for (Op *next = op->next; next && n < LINEAR_WEIGHTS; next = next->next) {
        if (next->kind != OP_LINEAR || next->n_results != 1 || next->result[0]->forward ||
            !share_input(op, simple_linear(next->result[0])) || is_summed(f, next->result[0]))
            continue;
        bool known = next->result[0]->id < f->n && op->result[0]->id < f->n;
        for (int i = 1; i < next->n_operands && known; i++)
            known = f->position[next->operand[i]->id] < f->position[op->result[0]->id];
        if (known)
            member[n++] = next;
    }
    if (n == 1)
        return;
    OpAttr attr = {.axis = op->attr.axis,
                   .group_size = n,
                   .bias = op->attr.bias,
                   .int8 = op->attr.int8,
                   .blocks = op->attr.blocks};
    cvn_value *operand[LINEAR_OPERANDS], *old[LINEAR_WEIGHTS];
    for (int i = 0; i < n; i++)
        old[i] = member[i]->result[0];
    put_linear(f, op, n, old, &attr, join_operands(member, n, operand), operand);
}

/* linear(rms_norm(x)), where nothing else takes the normalised rows: they are made where the product lays them out. */
static void fuse_norm(Products *f, Op *op)
{
    if (op->kind != OP_LINEAR || op->attr.norm || op->attr.axis != 1)
        return;
    const cvn_value *rows = op->operand[0];
    const Op *norm = rows->def;
    cvn_dtype rounded = op->operand[1]->type.dtype == CVN_F32 ? CVN_F32 : CVN_BF16;
    if (norm->kind != OP_RMS_NORM || !is_used_once(f, rows) || rows->type.dtype != rounded ||
        norm->operand[0]->type.dtype == CVN_F64 || norm->operand[1]->type.dtype == CVN_F64)
        return;
    OpAttr attr = op->attr;
    attr.norm = true;
    attr.eps = norm->attr.eps;
    cvn_value *operand[LINEAR_OPERANDS] = {norm->operand[0]};
    int behind = linear_behind(op), rest = op->n_operands - behind;
    memcpy(operand + 1, op->operand + 1, (size_t)(behind - 1) * sizeof *operand);
    operand[behind] = norm->operand[1];
    memcpy(operand + behind + 1, op->operand + behind, (size_t)rest * sizeof *operand);
    put_linear(f, op, op->n_results, op->result, &attr, op->n_operands + 1, operand);
}

typedef void ProductRule(Products *f, Op *op);

/* In this order: what is a product, then what it is part of, then what is left side by side, and last what they all
   take. */
static ProductRule *const rules[] = {fuse_dequantized, fuse_rounded,  fuse_steps, fuse_bias,
                                     fuse_swiglu,      fuse_siblings, fuse_norm};

static void walk(Products *f, ProductRule *rule)
{
    cvn_graph *g = f->g;
    f->n = g->n_values;
    f->uses = graph_uses(g, &g->arena);
    f->position = fuse_positions(g, &g->arena);
    for (Op *op = g->first; op && !g->err.code; op = op->next) {
        graph_resolve_op(op);
        rule(f, op);
    }
    graph_insert_before(g, NULL);
    graph_resolve(g);
    graph_remove_dead(g);
}

int graph_fuse_linear(cvn_graph *g, bool products_only, bool *changed, cvn_err *err)
{
    const char *file = g->file;
    int line = g->line;
    Products f = {.g = g};
    bool any = false;
    for (const Op *op = g->first; op && !any; op = op->next)
        any = op->kind == OP_DEQUANTIZE || op->kind == OP_LINEAR || op->kind == OP_LINEAR_INT8;
    size_t n = products_only ? 1 : sizeof rules / sizeof *rules;
    for (size_t i = 0; any && i < n && !g->err.code; i++)
        walk(&f, rules[i]);
    cvn_at(g, file, line);
    if (changed)
        *changed = f.changed;
    return cvn_graph_check(g, err);
}
