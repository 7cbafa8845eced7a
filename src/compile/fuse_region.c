/*
 * One region of some operations: their body, and its place in the graph.
 *
 * A region that is among them is taken apart again. What they read of each other through a view of all of it (a reshape, or
 * a barrier that has done its work) is read through a reshape in the body; what they read of others is an operand.
 */
#include "compile/fuse_impl.h"
#include "compile/region_plan.h"
#include "graph/region.h"

#include <string.h>

enum { MOST_OPS = 3 * FUSE_MOST, MOST_VALUES = 4 * FUSE_MOST };

/* A body being made, in scratch. */
typedef struct Body {
    const Fuse *f;
    cvn_graph *g;
    Op *op[MOST_OPS]; /* [n_ops] but for parameters */
    int n_ops;
    cvn_value *from[MOST_VALUES],
        *to[MOST_VALUES]; /* [n_values] outside, and what is that inside */
    int n_values;
    cvn_value *operand[TILE_OPERANDS]; /* [g->n_parameters] outside */
    bool spreads;
    bool full; /* it did not fit */
} Body;

static void note(Body *b, cvn_value *from, cvn_value *to)
{
    b->full = b->full || b->n_values == MOST_VALUES;
    if (!b->full) {
        b->from[b->n_values] = from;
        b->to[b->n_values++] = to;
    }
}

/* The same operation on operands of the body. */
static Op *add_op(Body *b, const Op *like, cvn_value **operand, int n_operands)
{
    Arena *arena = b->f->arena;
    Op *op = arena_alloc(arena, sizeof *op);
    *op = (Op){.kind = like->kind,
               .n_operands = n_operands,
               .n_results = like->n_results,
               .operand = operand,
               .result = arena_array(arena, (size_t)like->n_results + 1, sizeof(cvn_value *)),
               .attr = like->attr,
               .file = like->file,
               .line = like->line};
    for (int i = 0; i < like->n_results; i++) {
        cvn_value *v = op->result[i] = arena_alloc(arena, sizeof *v);
        *v = (cvn_value){
            .type = like->result[i]->type, .result = i, .def = op, .name = like->result[i]->name};
    }
    b->full = b->full || b->n_ops == MOST_OPS;
    if (!b->full)
        b->op[b->n_ops++] = op;
    return op;
}

static cvn_value *new_parameter(Body *b, cvn_value *outside)
{
    Arena *arena = b->f->arena;
    int n = b->g->n_parameters;
    Op *op = arena_alloc(arena, sizeof *op);
    cvn_value *v = arena_alloc(arena, sizeof *v);
    *v = (cvn_value){.type = outside->type, .def = op, .name = outside->name};
    *op = (Op){.kind = OP_PARAMETER,
               .n_results = 1,
               .result = arena_copy(arena, &v, sizeof(cvn_value *)),
               .attr = {.name = arena_printf(arena, "%d", n)}};
    b->full = b->full || n == TILE_OPERANDS;
    if (!b->full) {
        b->operand[n] = outside;
        b->g->parameter[n] = v;
        b->g->n_parameters++;
    }
    return v;
}

static bool is_spread(const Body *b, const cvn_value *v, int64_t elements)
{
    int64_t inner;
    return b->spreads && cvn_type_elements(&v->type) == elements &&
           (tile_is_splat(v) || tile_is_spread(v, &inner));
}

static cvn_value *inside(Body *b, cvn_value *v, int64_t elements);

/* What is broadcast, which is widened in the body if it is at all. */
static cvn_value *spread_from(Body *b, cvn_value *v)
{
    for (int i = 0; i < b->n_values; i++)
        if (b->from[i] == v)
            return b->to[i];
    if (!tile_is_widened(v))
        return inside(b, v, -1);
    cvn_value *half = inside(b, v->def->operand[0], -1);
    cvn_value *made =
        add_op(b, v->def, arena_copy(b->f->arena, &half, sizeof(cvn_value *)), 1)->result[0];
    note(b, v, made);
    return made;
}

/* What v is in the body. elements: of what reads it. */
static cvn_value *inside(Body *b, cvn_value *v, int64_t elements)
{
    Arena *arena = b->f->arena;
    for (int i = 0; i < b->n_values; i++)
        if (b->from[i] == v)
            return b->to[i];
    cvn_value *root = tile_root_of(v), *made;
    if (root != v) {
        made = inside(b, root, elements);
        if (!cvn_type_equal(&root->type, &v->type)) {
            const Op reshape = {.kind = OP_RESHAPE, .n_results = 1, .result = &v};
            made = add_op(b, &reshape, arena_copy(arena, &made, sizeof(cvn_value *)), 1)->result[0];
        }
    } else if (is_spread(b, v, elements)) {
        const Op *op = v->def;
        cvn_value *of = op->n_operands ? spread_from(b, op->operand[0]) : NULL;
        made =
            add_op(b, op, arena_copy(arena, &of, sizeof(cvn_value *)), op->n_operands)->result[0];
    } else {
        made = new_parameter(b, v);
    }
    note(b, v, made);
    return made;
}

static bool is_made_inside(const Body *b, const cvn_value *v)
{
    for (int i = 0; i < b->n_values; i++)
        if (b->from[i] == v)
            return b->to[i]->def->kind != OP_PARAMETER;
    return false;
}

/* An operand as it is, view or not. */
static cvn_value *whole_operand(Body *b, cvn_value *v)
{
    for (int i = 0; i < b->n_values; i++)
        if (b->from[i] == v)
            return b->to[i];
    note(b, v, new_parameter(b, v));
    return b->full ? v : b->to[b->n_values - 1];
}

/* Elementwise operations read through views; others only what is made in the region. */
static void copy_op(Body *b, const Op *op)
{
    cvn_value **operand = arena_array(b->f->arena, (size_t)op->n_operands + 1, sizeof(cvn_value *));
    const bool elementwise = class_is_elementwise(op_info[op->kind].class_);
    for (int i = 0; i < op->n_operands; i++) {
        cvn_value *v = op->operand[i];
        const bool through = elementwise || b->spreads || is_made_inside(b, tile_root_of(v));
        operand[i] = through ? inside(b, v, cvn_type_elements(op_out(op, 0))) : whole_operand(b, v);
    }
    const Op *copy = add_op(b, op, operand, op->n_operands);
    for (int i = 0; i < op->n_results; i++)
        note(b, op->result[i], copy->result[i]);
}

static void copy_region(Body *b, const Op *region)
{
    const cvn_graph *from = region->attr.body;
    Arena *arena = b->f->arena;
    cvn_value **map = arena_array(arena, from->n_values + (size_t)1, sizeof *map);
    for (int i = 0; i < region->n_operands; i++)
        map[i] = inside(b, region->operand[i], -1);
    for (const Op *op = from->first; op; op = op->next) {
        if (op->kind == OP_PARAMETER)
            continue;
        cvn_value **operand = arena_array(arena, (size_t)op->n_operands + 1, sizeof *operand);
        for (int i = 0; i < op->n_operands; i++)
            operand[i] = map[op->operand[i]->id];
        const Op *copy = add_op(b, op, operand, op->n_operands);
        for (int i = 0; i < op->n_results; i++)
            map[op->result[i]->id] = copy->result[i];
    }
    for (int i = 0; i < region->n_results; i++)
        note(b, region->result[i], map[from->output[i].value->id]);
}

static uint32_t *uses_of(const Fuse *f, cvn_value *v)
{
    return &f->uses[(f->by_root ? tile_root_of(v) : v)->id];
}

/* Whether something else than these operations uses v. */
static bool is_used_outside(const Fuse *f, Op *const *op, int n, const cvn_value *v)
{
    uint32_t uses = 0;
    for (int i = 0; i < n; i++)
        for (int k = 0; k < op[i]->n_operands; k++)
            uses += (f->by_root ? tile_root_of(op[i]->operand[k]) : op[i]->operand[k]) == v;
    return f->uses[v->id] > uses;
}

/* Numbers the values, parameters first. */
static void finish_body(Body *b)
{
    cvn_graph *g = b->g;
    for (int i = 0; i < g->n_parameters; i++) {
        g->parameter[i]->id = g->n_values++;
        graph_put_before(g, g->parameter[i]->def, NULL);
    }
    for (int i = 0; i < b->n_ops; i++) {
        for (int k = 0; k < b->op[i]->n_results; k++)
            b->op[i]->result[k]->id = g->n_values++;
        graph_put_before(g, b->op[i], NULL);
    }
}

Op *fuse_region(Fuse *f, Op *const *op, int n, const cvn_value *only, bool spreads)
{
    Arena *arena = f->arena;
    cvn_graph body = {.name = "body"};
    Body made = {.f = f, .g = &body, .spreads = spreads}, *b = &made;
    cvn_value *parameter[TILE_OPERANDS], *result[OP_MOST_RESULTS];
    Output output[OP_MOST_RESULTS];
    body.parameter = parameter;
    body.output = output;
    for (int i = 0; i < n; i++) {
        b->spreads = spreads || op[i]->kind == OP_SCATTER; /* to zeros */
        if (op[i]->kind == OP_REGION)
            copy_region(b, op[i]);
        else
            copy_op(b, op[i]);
    }
    for (int i = 0; i < n; i++)
        for (int k = 0; k < op[i]->n_results; k++) {
            cvn_value *v = op[i]->result[k];
            if (only ? v != only : !is_used_outside(f, op, n, v))
                continue;
            if (body.n_outputs == OP_MOST_RESULTS || b->full)
                return NULL;
            result[body.n_outputs] = v;
            output[body.n_outputs++] = (Output){.value = inside(b, v, -1)};
        }
    if (b->full || body.n_outputs == 0)
        return NULL;
    finish_body(b);
    Op region = {.kind = OP_REGION,
                 .n_operands = body.n_parameters,
                 .n_results = body.n_outputs,
                 .operand = b->operand,
                 .result = result,
                 .attr = {.body = &body},
                 .file = op[n - 1]->file,
                 .line = op[n - 1]->line};
    uint32_t unused = f->g->n_values;
    if (body_fault(&body) || !region_plan(f->backend, &region, arena, &unused))
        return NULL;
    arena = &f->g->arena;
    region.operand = arena_copy(arena, b->operand, (size_t)region.n_operands * sizeof(cvn_value *));
    region.result = arena_copy(arena, result, (size_t)region.n_results * sizeof(cvn_value *));
    region.attr.body = body_copy(f->g, &body);
    return arena_copy(arena, &region, sizeof region);
}

void fuse_put_region(Fuse *f, Op *region, Op *const *op, int n, const cvn_value *only, Op *next)
{
    int64_t position = next ? f->position[next->result[0]->id] : INT64_MAX;
    f->changed = true;
    graph_put_before(f->g, region, next);
    for (int i = only ? n - 1 : 0; i < n; i++) {
        graph_remove(f->g, op[i]);
        for (int k = 0; k < op[i]->n_operands; k++)
            --*uses_of(f, op[i]->operand[k]);
        for (int k = 0; k < op[i]->n_results; k++)
            op[i]->result[k]->def = region; /* those inside have no readers any more */
    }
    for (int i = 0; i < region->n_operands; i++)
        ++*uses_of(f, region->operand[i]);
    for (int i = 0; i < region->n_results; i++) {
        region->result[i]->result = i;
        f->position[region->result[i]->id] = position;
    }
}
