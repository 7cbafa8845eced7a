/* The rules of fuse_linear.h, each a walk over the graph. */
#include "compile/fuse_linear.h"

#include "compile/fuse_impl.h"
#include "graph/grouped.h"
#include "graph/linear.h"

#include <string.h>

/* What the rules share during one walk. */
typedef struct Products {
    cvn_graph *g;
    int64_t *position; /* [n_values] of the operation that makes a value */
    uint8_t *made_of;  /* [n_values] of meet */
    uint32_t n;        /* values at the start of the walk: later ones have no entries */
    bool changed;
} Products;

/* A linear of one weight. */
static bool is_simple(const Op *op)
{
    return (op->kind == OP_LINEAR || op->kind == OP_GROUPED_LINEAR) && op->n_results == 1;
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
    if (op->kind != OP_LINEAR || !op->attr.blocks || op->attr.int8 ||
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

/* Two products of the same x, and by the same groups, that could be one step. */
static bool share_input(const Op *a, const Op *b)
{
    if (a->kind != b->kind || a->operand[0] != b->operand[0] || a->attr.axis != b->attr.axis ||
        (a->kind == OP_GROUPED_LINEAR &&
         a->operand[grouped_operand(a)] != b->operand[grouped_operand(b)]))
        return false;
    LinearWeight v = linear_weight(a, 0), w = linear_weight(b, 0);
    return a->attr.int8 == b->attr.int8 && v.blocks == w.blocks && v.dtype == w.dtype &&
           v.scale_dtype == w.scale_dtype && v.groups == w.groups;
}

/* Whether something elementwise is made of both results, not far behind them, as SwiGLU is. */
static bool meet(const Products *f, const Op *a, const Op *b)
{
    enum { FAR = 64 };
    const cvn_value *from[] = {a->result[0], b->result[0]};
    const Op *op = a->next;
    memset(f->made_of, 0, f->n);
    for (int i = 0; i < 2; i++)
        if (from[i]->id < f->n)
            f->made_of[from[i]->id] = (uint8_t)(1 << i);
    for (int n = 0; op && n < FAR; op = op->next, n++) {
        uint8_t of = 0;
        if (!class_is_elementwise(op_info[op->kind].class_) && op->kind != OP_RESHAPE)
            continue;
        for (int i = 0; i < op->n_operands; i++)
            of |= op->operand[i]->id < f->n ? f->made_of[op->operand[i]->id] : 0;
        if (op->result[0]->id < f->n)
            f->made_of[op->result[0]->id] = of;
        if (of == 3)
            return true;
    }
    return false;
}

/* A product that could be one step with op, of the same x, and is behind `last`; all that it reads must be there. Or NULL. */
static Op *next_sibling(const Products *f, const Op *op, const Op *last)
{
    for (Op *next = last->next; next; next = next->next) {
        if (!is_simple(next) || next->result[0]->forward || !share_input(op, next))
            continue;
        bool known = next->result[0]->id < f->n && op->result[0]->id < f->n;
        for (int i = 1; i < next->n_operands && known; i++)
            known = f->position[next->operand[i]->id] < f->position[op->result[0]->id];
        if (known)
            return next;
    }
    return NULL;
}

/* Products of one x become one, where the first of them is. */
static void join(Products *f, Op *const *member, int n)
{
    Op *op = member[0];
    OpAttr attr = op->attr;
    cvn_value *operand[LINEAR_OPERANDS] = {op->operand[0]}, *old[LINEAR_WEIGHTS];
    int at = 1;
    attr.group_size = n;
    for (int i = 0; i < n; i++) {
        old[i] = member[i]->result[0];
        for (int j = 0; j < linear_each(op); j++)
            operand[at++] = member[i]->operand[1 + j];
    }
    if (op->kind == OP_GROUPED_LINEAR)
        operand[at++] = op->operand[grouped_operand(op)];
    put_product(f, op, op->kind, n, old, &attr, at, operand);
}

/* Those that meet, before one of them is joined with others. */
static void fuse_pairs(Products *f, Op *op)
{
    if (!is_simple(op) || op->result[0]->forward)
        return;
    for (Op *next = op; (next = next_sibling(f, op, next));)
        if (meet(f, op, next)) {
            join(f, (Op *[]){op, next}, 2);
            return;
        }
}

static void fuse_siblings(Products *f, Op *op)
{
    Op *member[LINEAR_WEIGHTS] = {op};
    int n = 1;
    if (!is_simple(op) || op->result[0]->forward)
        return;
    for (Op *next = op; n < LINEAR_WEIGHTS && (next = next_sibling(f, op, next));)
        member[n++] = next;
    if (n > 1)
        join(f, member, n);
}

typedef void ProductRule(Products *f, Op *op);

/* In this order: what is a product, then those side by side. */
static ProductRule *const rules[] = {fuse_dequantized, fuse_rounded, fuse_steps, fuse_pairs,
                                     fuse_siblings};

static void walk(Products *f, ProductRule *rule)
{
    cvn_graph *g = f->g;
    f->n = g->n_values;
    f->made_of = arena_array(&g->arena, f->n + (size_t)1, 1);
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
