/*
 * The list of operations: adding, replacing, removing, cloning. Errors of building are sticky:
 * after the first one graph_add returns the graph's poison value and does nothing.
 */
#include "graph/graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void release(void *graph)
{
    cvn_graph_free(graph);
}

typedef struct Beginning {
    Arena arena;
    cvn_graph *g;
    const char *name;
} Beginning;

static int begin(void *of, cvn_err *err)
{
    Beginning *b = of;
    (void)err;
    b->g = arena_alloc(&b->arena, sizeof *b->g);
    b->g->name = arena_string(&b->arena, b->name);
    b->g->poison = arena_alloc(&b->arena, sizeof *b->g->poison);
    b->g->poison->type = cvn_scalar(CVN_F32);
    return CVN_OK;
}

cvn_graph *cvn_graph_new(const char *name, cvn_err *err)
{
    Beginning b = {.name = name};
    if (arena_init(&b.arena, err))
        return NULL;
    if (protect(begin, &b, "beginning a graph", err)) {
        arena_free(&b.arena);
        return NULL;
    }
    b.g->arena = b.arena;
    cleanup_push(&b.g->cleanup, release, b.g);
    return b.g;
}

void graph_keep(cvn_graph *g)
{
    cleanup_cancel(&g->cleanup);
}

void cvn_graph_free(cvn_graph *g)
{
    if (!g)
        return;
    cleanup_cancel(&g->cleanup);
    Arena arena = g->arena;
    arena_free(&arena);
}

void graph_release(cvn_graph **g)
{
    cvn_graph_free(*g);
}

int cvn_graph_check(const cvn_graph *g, cvn_err *err)
{
    if (g->err.code)
        return err_set_at(err, g->err.code, g->err.file, g->err.line, "%s", g->err.message);
    return CVN_OK;
}

cvn_graph *cvn_at(cvn_graph *g, const char *file, int line)
{
    g->file = file;
    g->line = line;
    return g;
}

const cvn_type *cvn_value_type(const cvn_value *v)
{
    return &v->type;
}

void graph_fail(cvn_graph *g, int code, const char *format, ...)
{
    if (g->err.code)
        return;
    char message[sizeof g->err.message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (g->file)
        err_set(&g->err, code, "%s:%d: %s", g->file, g->line, message);
    else
        err_set(&g->err, code, "%s", message);
}

void *graph_alloc(cvn_graph *g, size_t bytes)
{
    if (protected_here())
        return arena_alloc(&g->arena, bytes);
    void *p = g->err.code ? NULL : arena_try(&g->arena, bytes);
    if (!p)
        graph_fail(g, CVN_EMEM, "no memory for %zu more bytes of graph '%s'", bytes, g->name);
    return p;
}

char *graph_string(cvn_graph *g, const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = graph_alloc(g, bytes);
    return copy ? memcpy(copy, text, bytes) : NULL;
}

typedef struct More {
    Arena *arena;
    void *array;
    size_t n, size;
} More;

static int more(void *of, cvn_err *err)
{
    More *m = of;
    (void)err;
    m->array = arena_more(m->arena, m->array, m->n, m->size);
    return CVN_OK;
}

void *graph_more(cvn_graph *g, void *array, size_t n, size_t size)
{
    More m = {&g->arena, array, n, size};
    if (protected_here())
        more(&m, NULL);
    else if (protect(more, &m, "building a graph", &g->err))
        return NULL;
    return m.array;
}

Ints graph_ints(cvn_graph *g, int n, const int64_t *v)
{
    if (n <= 0)
        return (Ints){0};
    int64_t *copy = graph_alloc(g, (size_t)n * sizeof *v);
    return copy ? (Ints){n, memcpy(copy, v, (size_t)n * sizeof *v)} : (Ints){0};
}

static const cvn_spec *copy_spec(cvn_graph *g, const cvn_spec *spec)
{
    if (!spec)
        return NULL;
    cvn_spec *copy = graph_alloc(g, sizeof *spec);
    if (!copy)
        return NULL;
    *copy = *spec;
    for (int d = 0; d < spec->rank; d++)
        for (int i = 0; i < spec->dim[d].n; i++)
            if (!(copy->dim[d].axis[i] = graph_string(g, spec->dim[d].axis[i])))
                return NULL;
    return copy;
}

void cvn_mark_sharding(cvn_graph *g, cvn_value *v, const cvn_spec *spec)
{
    if (g->err.code)
        return;
    char type[TYPE_TEXT];
    if (spec->rank != v->type.rank) {
        graph_fail(g, CVN_ESHAPE, "a partition spec of rank %d was given for a value %s",
                   spec->rank, type_text(&v->type, type, sizeof type));
        return;
    }
    for (int d = 0; d < spec->rank; d++) {
        if (spec->dim[d].n < 0 || spec->dim[d].n > CVN_MAX_SPEC_AXES) {
            graph_fail(g, CVN_EINVAL, "a partition spec names %d axes for dimension %d; at most %d",
                       spec->dim[d].n, d, CVN_MAX_SPEC_AXES);
            return;
        }
    }
    v->spec = copy_spec(g, spec);
}

void graph_put_before(cvn_graph *g, Op *op, Op *next)
{
    Op *prev = next ? next->prev : g->last;
    op->prev = prev;
    op->next = next;
    *(prev ? &prev->next : &g->first) = op;
    *(next ? &next->prev : &g->last) = op;
    g->n_ops++;
}

cvn_value *graph_add(cvn_graph *g, OpKind kind, const OpAttr *attr, int n,
                     cvn_value *const *operand, const cvn_type *want)
{
    if (g->err.code)
        return g->poison;
    const OpInfo *info = &op_info[kind];
    if (n < info->least || n > info->most) {
        graph_fail(g, CVN_EINVAL, "%s takes %d to %d operands, not %d", info->name, info->least,
                   info->most, n);
        return g->poison;
    }
    Op *op = graph_alloc(g, sizeof *op);
    cvn_value **operands = op ? graph_alloc(g, (size_t)n * sizeof *operands) : NULL;
    if (!operands)
        return g->poison;
    op->kind = kind;
    op->n_operands = n;
    op->operand = operands;
    if (n)
        memcpy(op->operand, operand, (size_t)n * sizeof *operand);
    if (attr)
        op->attr = *attr;
    op->n_results = op_results(kind, n, &op->attr);
    if (op->n_results < 1 || op->n_results > OP_MOST_RESULTS) {
        graph_fail(g, CVN_EINVAL, "%s has %d results; 1 to %d are possible", info->name,
                   op->n_results, OP_MOST_RESULTS);
        return g->poison;
    }
    op->file = g->file;
    op->line = g->line;
    cvn_type type[OP_MOST_RESULTS];
    cvn_err err = {0};
    for (int i = 0; i < op->n_results; i++)
        type[i] = want ? want[i] : (cvn_type){.dtype = CVN_DTYPE_COUNT};
    if (infer_types(op, type, &err)) {
        graph_fail(g, err.code, "%s", err.message);
        return g->poison;
    }
    op->result = graph_alloc(g, (size_t)op->n_results * sizeof *op->result);
    for (int i = 0; i < op->n_results; i++) {
        cvn_value *v = op->result ? graph_alloc(g, sizeof *v) : NULL;
        if (!v)
            return g->poison;
        *v = (cvn_value){.type = type[i], .id = g->n_values + (uint32_t)i, .result = i, .def = op};
        op->result[i] = v;
    }
    if (kind == OP_PARAMETER) {
        cvn_value **list =
            graph_more(g, g->parameter, (size_t)g->n_parameters, sizeof *g->parameter);
        if (!list)
            return g->poison;
        g->parameter = list;
        g->parameter[g->n_parameters++] = op->result[0];
    }
    g->n_values += (uint32_t)op->n_results;
    graph_put_before(g, op, g->insert_point);
    return op->result[0];
}

cvn_value *graph_add_like(cvn_graph *g, const Op *op, cvn_value *const *operand)
{
    if (g->err.code)
        return g->poison;
    cvn_type want[OP_MOST_RESULTS];
    for (int i = 0; i < op->n_results; i++)
        want[i] = op->result[i]->type;
    OpAttr attr = attr_copy(g, op->kind, &op->attr);
    cvn_value *first = graph_add(g, op->kind, &attr, op->n_operands, operand, want);
    if (first == g->poison)
        return first;
    Op *copy = first->def;
    copy->file = op->file;
    copy->line = op->line;
    for (int i = 0; i < op->n_results; i++) {
        const cvn_value *from = op->result[i];
        copy->result[i]->name = from->name ? graph_string(g, from->name) : NULL;
        copy->result[i]->spec = copy_spec(g, from->spec);
        copy->result[i]->role = from->role;
        copy->result[i]->index = from->index;
    }
    return first;
}

void graph_insert_before(cvn_graph *g, Op *op)
{
    g->insert_point = op;
}

void graph_replace(cvn_value *old, cvn_value *by)
{
    by = graph_forwarded(by);
    old = graph_forwarded(old);
    if (old != by)
        old->forward = by;
}

cvn_value *graph_forwarded(cvn_value *v)
{
    while (v->forward)
        v = v->forward;
    return v;
}

void graph_resolve_op(Op *op)
{
    for (int i = 0; i < op->n_operands; i++)
        op->operand[i] = graph_forwarded(op->operand[i]);
}

void graph_resolve(cvn_graph *g)
{
    for (Op *op = g->first; op; op = op->next)
        graph_resolve_op(op);
    for (int i = 0; i < g->n_outputs; i++) {
        g->output[i].value = graph_forwarded(g->output[i].value);
        if (g->output[i].into)
            g->output[i].into = graph_forwarded(g->output[i].into);
    }
}

void graph_remove(cvn_graph *g, Op *op)
{
    *(op->prev ? &op->prev->next : &g->first) = op->next;
    *(op->next ? &op->next->prev : &g->last) = op->prev;
    g->n_ops--;
    if (g->insert_point == op)
        g->insert_point = op->next;
}

bool graph_remove_dead(cvn_graph *g)
{
    SCOPED(scoped_free) bool *live = calloc(g->n_values + (size_t)1, sizeof *live);
    if (!live)
        return false; /* keeping dead operations is always right */
    for (int i = 0; i < g->n_outputs; i++)
        live[g->output[i].value->id] = true;
    bool any = false;
    for (Op *op = g->last, *prev; op; op = prev) {
        prev = op->prev;
        bool needed = op->kind == OP_PARAMETER;
        for (int i = 0; i < op->n_results; i++)
            needed |= live[op->result[i]->id];
        for (int i = 0; needed && i < op->n_operands; i++)
            live[op->operand[i]->id] = true;
        if (!needed) {
            graph_remove(g, op);
            any = true;
        }
    }
    return any;
}

uint32_t *graph_uses(const cvn_graph *g, Arena *arena)
{
    uint32_t *uses = arena_array(arena, g->n_values + (size_t)1, sizeof *uses);
    for (const Op *op = g->first; op; op = op->next)
        for (int i = 0; i < op->n_operands; i++)
            uses[op->operand[i]->id]++;
    for (int i = 0; i < g->n_outputs; i++)
        uses[g->output[i].value->id]++;
    return uses;
}

int graph_append(cvn_graph *g, const cvn_graph *from, cvn_err *err)
{
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    cvn_value **map = arena_array(&arena, from->n_values + (size_t)1, sizeof *map);
    for (const Op *op = from->first; op && !g->err.code; op = op->next) {
        cvn_value **operand = arena_array(&g->arena, (size_t)op->n_operands, sizeof *operand);
        for (int i = 0; i < op->n_operands; i++)
            operand[i] = map[op->operand[i]->id];
        cvn_value *first = graph_add_like(g, op, operand);
        for (int i = 0; i < op->n_results && first != g->poison; i++)
            map[op->result[i]->id] = first->def->result[i];
    }
    for (int i = 0; i < from->n_outputs && !g->err.code; i++) {
        const Output *output = &from->output[i];
        cvn_output_into(g, map[output->value->id], output->into ? map[output->into->id] : NULL);
        if (g->n_outputs > 0) {
            g->output[g->n_outputs - 1].role = output->role;
            g->output[g->n_outputs - 1].index = output->index;
        }
    }
    return cvn_graph_check(g, err);
}

cvn_graph *graph_clone(const cvn_graph *g, cvn_err *err)
{
    if (cvn_graph_check(g, err))
        return NULL;
    cvn_graph *copy = cvn_graph_new(g->name, err);
    if (!copy)
        return NULL;
    copy->mesh = g->mesh ? arena_string(&copy->arena, g->mesh) : NULL;
    if (graph_append(copy, g, err)) {
        cvn_graph_free(copy);
        return NULL;
    }
    return copy;
}
