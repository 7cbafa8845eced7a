/* Bodies of regions: copies, comparison, and the rule of roots. */
#include "graph/region.h"

#include "graph/record.h"
#include "graph/strides.h"

#include <stdlib.h>
#include <string.h>

/* ---- copies ---- */

static void copy_op(cvn_graph *g, cvn_graph *body, const Op *op, cvn_value **map)
{
    Arena *arena = &g->arena;
    Op *copy = arena_alloc(arena, sizeof *copy);
    *copy = (Op){.kind = op->kind,
                 .n_operands = op->n_operands,
                 .n_results = op->n_results,
                 .operand = arena_array(arena, (size_t)op->n_operands + 1, sizeof(cvn_value *)),
                 .result = arena_array(arena, (size_t)op->n_results + 1, sizeof(cvn_value *)),
                 .attr = attr_copy(g, op->kind, &op->attr),
                 .file = op->file,
                 .line = op->line};
    for (int i = 0; i < op->n_operands; i++)
        copy->operand[i] = map[op->operand[i]->id];
    for (int i = 0; i < op->n_results; i++) {
        const cvn_value *from = op->result[i];
        cvn_value *v = map[from->id] = copy->result[i] = arena_alloc(arena, sizeof *v);
        *v = (cvn_value){.type = from->type, .id = body->n_values++, .result = i, .def = copy};
        v->name = from->name ? arena_string(arena, from->name) : NULL;
    }
    graph_put_before(body, copy, NULL);
}

const cvn_graph *body_copy(cvn_graph *g, const cvn_graph *from)
{
    Arena *arena = &g->arena;
    cvn_value **map = arena_array(arena, from->n_values + (size_t)1, sizeof *map);
    cvn_graph *body = arena_alloc(arena, sizeof *body);
    body->name = "body";
    body->n_parameters = from->n_parameters;
    body->n_outputs = from->n_outputs;
    body->parameter = arena_array(arena, (size_t)from->n_parameters + 1, sizeof *body->parameter);
    body->output = arena_array(arena, (size_t)from->n_outputs + 1, sizeof *body->output);
    for (int i = 0; i < from->n_parameters; i++) {
        copy_op(g, body, from->parameter[i]->def, map);
        body->parameter[i] = map[from->parameter[i]->id];
    }
    for (const Op *op = from->first; op; op = op->next)
        if (op->kind != OP_PARAMETER)
            copy_op(g, body, op, map);
    for (int i = 0; i < from->n_outputs; i++)
        body->output[i] = (Output){.value = map[from->output[i].value->id]};
    return body;
}

/* ---- comparison ---- */

static bool ops_equal(const Op *a, const Op *b)
{
    if (a->kind != b->kind || a->n_operands != b->n_operands || a->n_results != b->n_results)
        return false;
    for (int i = 0; i < a->n_operands; i++)
        if (a->operand[i]->id != b->operand[i]->id)
            return false;
    for (int i = 0; i < a->n_results; i++)
        if (!cvn_type_equal(&a->result[i]->type, &b->result[i]->type))
            return false;
    return a->kind == OP_PARAMETER || attr_equal(a->kind, &a->attr, &b->attr);
}

bool body_equal(const cvn_graph *a, const cvn_graph *b)
{
    if (a->n_ops != b->n_ops || a->n_outputs != b->n_outputs)
        return false;
    for (const Op *x = a->first, *y = b->first; x; x = x->next, y = y->next)
        if (!ops_equal(x, y))
            return false;
    for (int i = 0; i < a->n_outputs; i++)
        if (a->output[i].value->id != b->output[i].value->id)
            return false;
    return true;
}

/* ---- roots ---- */

bool op_may_be_root(const Op *op)
{
    OpClass class_ = op_info[op->kind].class_;
    return class_ == CLASS_CONTRACT || class_ == CLASS_COMPOSITE || class_ == CLASS_INDEX ||
           class_ == CLASS_REDUCE;
}

int64_t op_row_of(const Op *op)
{
    const cvn_type *x = op->n_operands ? op_in(op, 0) : NULL;
    if (op->kind == OP_RMS_NORM)
        return x->dim[x->rank - 1];
    if (op->kind != OP_REDUCE || op->n_operands != 1 || x->dtype != CVN_F32)
        return 0;
    const int first = x->rank - op->attr.dims.n;
    for (int d = first; d < x->rank; d++)
        if (!ints_contain(&op->attr.dims, d))
            return 0;
    return type_span(x, first, x->rank);
}

static bool may_be_beside(const Op *op)
{
    return class_is_elementwise(op_info[op->kind].class_) || op->kind == OP_CONSTANT ||
           op->kind == OP_IOTA || op->kind == OP_BROADCAST_IN_DIM || op->kind == OP_RESHAPE ||
           op->kind == OP_TRANSPOSE;
}

static bool reads(const Op *op, const cvn_value *v)
{
    for (int i = 0; i < op->n_operands; i++)
        if (op->operand[i] == v)
            return true;
    return false;
}

/* A reduction along rows of which only rows of a linear are made, which is a root then: it is done where those are read. */
static bool is_prologue(const cvn_graph *body, const Op *sum)
{
    if (op_row_of(sum) == 0)
        return false;
    bool read = false, good = true, *made = calloc(body->n_values + (size_t)1, sizeof *made);
    for (const Op *op = sum; op && made && good; op = op->next) {
        bool of_sum = op == sum;
        for (int i = 0; i < op->n_operands; i++)
            of_sum = of_sum || made[op->operand[i]->id];
        const bool linear = of_sum && op->kind == OP_LINEAR;
        for (int i = 0; i < op->n_results && !linear; i++)
            made[op->result[i]->id] = of_sum;
        for (int i = 1; i < op->n_operands && linear; i++)
            good = good && !made[op->operand[i]->id];
        good = good && (!of_sum || linear || !op_may_be_root(op) || op_row_of(op) > 0);
        read = read || linear;
    }
    for (int i = 0; i < body->n_outputs && made; i++)
        good = good && !made[body->output[i].value->id];
    good = good && made;
    free(made);
    return good && read;
}

/* Reductions are roots where there are no others. */
static bool is_root(const cvn_graph *body, const Op *op, bool others)
{
    return op_may_be_root(op) && !(others && op_info[op->kind].class_ == CLASS_REDUCE) &&
           !is_prologue(body, op);
}

/* Whether all roots reduce along rows, and along the same. */
static bool is_along_rows(const cvn_graph *body)
{
    int64_t row = 0;
    for (const Op *op = body->first; op; op = op->next) {
        if (!op_may_be_root(op))
            continue;
        if (op_row_of(op) == 0 || (row > 0 && op_row_of(op) != row))
            return false;
        row = op_row_of(op);
    }
    return row > 0;
}

static bool has_others(const cvn_graph *body)
{
    bool others = false;
    for (const Op *op = body->first; op; op = op->next)
        others = others || (op_may_be_root(op) && op_info[op->kind].class_ != CLASS_REDUCE);
    return others && !is_along_rows(body);
}

const Op *body_root(const cvn_graph *body)
{
    bool others = has_others(body);
    for (const Op *op = body->first; op; op = op->next)
        if (is_root(body, op, others))
            return op;
    return NULL;
}

/* Whether one of the first root's operands is read by all. */
static bool roots_share_operand(const cvn_graph *body)
{
    bool others = has_others(body);
    const Op *first = body_root(body);
    bool shared = !first || first->n_operands == 0 || is_along_rows(body);
    for (int i = 0; first && i < first->n_operands && !shared; i++) {
        shared = true;
        for (const Op *op = body->first; op; op = op->next)
            shared = shared && (!is_root(body, op, others) || reads(op, first->operand[i]));
    }
    return shared;
}

/* Whether a root that is no reduction has a part in all that is reduced. */
static bool reductions_are_of_roots(const cvn_graph *body)
{
    bool good = true, *made = calloc(body->n_values + (size_t)1, sizeof *made);
    for (const Op *op = body->first; op && made && good; op = op->next) {
        bool root = is_root(body, op, true), of_root = root;
        for (int i = 0; i < op->n_operands; i++)
            of_root = of_root || made[op->operand[i]->id];
        for (int i = 0; i < op->n_results; i++)
            made[op->result[i]->id] = of_root;
        good = of_root || op_info[op->kind].class_ != CLASS_REDUCE || is_prologue(body, op);
    }
    good = good && made;
    free(made);
    return good;
}

const char *body_fault(const cvn_graph *body)
{
    uint32_t id = 0, parameters = 0;
    for (const Op *op = body->first; op; op = op->next) {
        if (op->kind == OP_PARAMETER && parameters++ != id)
            return "its parameters must come first";
        if (op->kind != OP_PARAMETER && !may_be_beside(op) && !op_may_be_root(op))
            return "it holds an operation that regions do not have";
        for (int i = 0; i < op->n_results; i++)
            if (op->result[i]->id != id++)
                return "its values must be numbered in their order";
    }
    if (body->n_outputs < 1 || body->n_outputs > OP_MOST_RESULTS)
        return "it must return 1 to 8 values";
    for (int i = 0; i < body->n_outputs; i++)
        if (body->output[i].into)
            return "a body returns its values into nothing";
    if (has_others(body) && !reductions_are_of_roots(body))
        return "it reduces what its root has no part in";
    return roots_share_operand(body) ? NULL : "its roots have no operand in common";
}

void body_print_name(StrBuf *out, const cvn_graph *body)
{
    const Op *root = body_root(body);
    int n = 0;
    if (root)
        strbuf_printf(out, "%s%s", n++ ? "+" : "", op_info[root->kind].name);
    for (const Op *op = body->first; op; op = op->next)
        if (op != root && op->kind != OP_PARAMETER && op->kind != OP_CONSTANT &&
            op->kind != OP_RESHAPE && op->kind != OP_BROADCAST_IN_DIM)
            strbuf_printf(out, "%s%s", n++ ? "+" : "", op_info[op->kind].name);
}

/* ---- inlining ---- */

void region_inline(cvn_graph *g, const Op *region, cvn_value *const *operand, cvn_value **out)
{
    const cvn_graph *body = region->attr.body;
    cvn_value **map = arena_array(&g->arena, body->n_values + (size_t)1, sizeof *map);
    cvn_value **in =
        arena_array(&g->arena, body->n_values + (size_t)region->n_operands + 1, sizeof *in);
    for (int i = 0; i < body->n_parameters; i++)
        map[body->parameter[i]->id] = operand[i];
    for (const Op *op = body->first; op && !g->err.code; op = op->next) {
        if (op->kind == OP_PARAMETER)
            continue;
        for (int i = 0; i < op->n_operands; i++)
            in[i] = map[op->operand[i]->id];
        const cvn_value *first = graph_add_like(g, op, in);
        for (int i = 0; i < op->n_results && first != g->poison; i++)
            map[op->result[i]->id] = first->def->result[i];
    }
    for (int i = 0; i < body->n_outputs; i++)
        out[i] = g->err.code ? g->poison : map[body->output[i].value->id];
}

void region_dissolve(cvn_graph *g, Op *region)
{
    cvn_value *out[OP_MOST_RESULTS];
    graph_insert_before(g, region);
    region_inline(g, region, region->operand, out);
    for (int i = 0; i < region->n_results; i++)
        graph_replace(region->result[i], out[i]);
    graph_insert_before(g, NULL);
}
