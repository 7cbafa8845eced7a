/*
 * The verifier: says whether a graph is what graph.h promises. It runs between passes, so what it
 * finds is a mistake of the pass before it, and the message names the operation.
 *
 * It trusts pointers, not numbers: a value is known by its address, so a pass that forgets to
 * insert an operation, or uses one of another graph, is found whatever ids they have.
 */
#include "graph/graph.h"
#include "graph/text/lex.h"

#include "base/map.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The fields of OpAttr that kinds of operations have. */
typedef struct Fields {
    const AttrInfo *row[sizeof(OpAttr)]; /* [n] of each field once, that of one of the kinds */
    int n;
} Fields;

typedef struct Verifier {
    const cvn_graph *g;
    cvn_err *err;
    const Op *op;           /* being looked at */
    const Op *previous;     /* before op, NULL at the start of the list */
    int64_t position;       /* of op in the list */
    const cvn_value **seen; /* [n_values], heap: the value with this id, once it is defined */
    Arena *arena;           /* scratch, which the verifiers of bodies share */
    const Fields *fields;
    Map names; /* of parameters */
    int n_parameters;
} Verifier;

static int verify(const cvn_graph *g, const Fields *fields, Arena *arena, cvn_err *err);

/* Raises "graph 'g', operation 12 (add, made at model.c:40): …". */
static __attribute__((format(printf, 2, 3))) int fail(Verifier *v, const char *format, ...)
{
    char message[600], where[200] = "";
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const Op *op = v->op;
    if (op && op->file)
        snprintf(where, sizeof where, ", made at %s:%d", op->file, op->line);
    if (!op)
        return err_set(v->err, CVN_EINVAL, "graph '%s': %s", v->g->name, message);
    return err_set(v->err, CVN_EINVAL, "graph '%s', operation %lld (%s%s): %s", v->g->name,
                   (long long)v->position, op->kind < OP_COUNT ? op_info[op->kind].name : "?",
                   where, message);
}

/* True for a value that an operation before this one defines. */
static bool is_defined(const Verifier *v, const cvn_value *value)
{
    return value && value->id < v->g->n_values && v->seen[value->id] == value;
}

static int check_operands(Verifier *v)
{
    const Op *op = v->op;
    const OpInfo *info = &op_info[op->kind];
    if (op->n_operands < info->least || op->n_operands > info->most)
        return fail(v, "it has %d operands, expected %d to %d", op->n_operands, info->least,
                    info->most);
    for (int i = 0; i < op->n_operands; i++) {
        if (op->operand[i] && op->operand[i]->forward)
            return fail(v, "operand %d was replaced and not resolved", i);
        if (!is_defined(v, op->operand[i]))
            return fail(v, "operand %d is not defined before it", i);
    }
    return CVN_OK;
}

/* Fields that ops.def does not give to this kind of operation must be zero: what compares and
   copies attributes does not look at them. */
static int check_attrs(Verifier *v)
{
    OpAttr rest = v->op->attr; /* what ops.def does not give to its kind */
    for (const AttrInfo *row = op_info[v->op->kind].attrs; row->name; row++) {
        const void *field = attr_field(&v->op->attr, row);
        const Ints *ints = row->type == ATTR_INTS ? field : NULL;
        if (ints && (ints->n < 0 || (ints->n > 0 && !ints->v)))
            return fail(v, "attribute %s is a list of %d integers at no address", row->name,
                        ints->n);
        if (row->type == ATTR_STRING && !*(const char *const *)field)
            return fail(v, "attribute %s is missing", row->name);
        if (row->type == ATTR_BODY && !*(const cvn_graph *const *)field)
            return fail(v, "its body is missing");
        memset((char *)&rest + row->offset, 0, attr_types[row->type].size);
    }
    for (int i = 0; i < v->fields->n; i++)
        if (!attr_is_zero(&rest, v->fields->row[i]))
            return fail(v, "it has an attribute that is not one of its kind");
    return CVN_OK;
}

static void list_fields(Fields *fields)
{
    bool there[sizeof(OpAttr)] = {0};
    fields->n = 0;
    for (int kind = 0; kind < OP_COUNT; kind++)
        for (const AttrInfo *row = op_info[kind].attrs; row->name; row++) {
            if (!there[row->offset])
                fields->row[fields->n++] = row;
            there[row->offset] = true;
        }
}

static int check_types(Verifier *v)
{
    const Op *op = v->op;
    int expected = op_results(op->kind, op->n_operands, &op->attr);
    cvn_type type[OP_MOST_RESULTS];
    cvn_err why = {0};
    if (op->n_results != expected || expected > OP_MOST_RESULTS)
        return fail(v, "it has %d results, expected %d", op->n_results, expected);
    for (int i = 0; i < op->n_results; i++) {
        if (!op->result[i] || op->result[i]->def != op || op->result[i]->result != i)
            return fail(v, "result %d is not its own", i);
        type[i] = op->result[i]->type;
    }
    if (op->kind == OP_REGION && verify(op->attr.body, v->fields, v->arena, &why))
        return fail(v, "in its body, %s", why.message);
    if (infer_types(op, type, &why))
        return fail(v, "%s", why.message);
    for (int i = 0; i < op->n_results; i++) {
        char a[TYPE_TEXT], b[TYPE_TEXT];
        if (!cvn_type_equal(&type[i], &op->result[i]->type))
            return fail(v, "result %d has type %s, but inference gives %s", i,
                        type_text(&op->result[i]->type, a, sizeof a),
                        type_text(&type[i], b, sizeof b));
    }
    return CVN_OK;
}

/* Every dimension of the type, plain names of axes, no axis twice. */
static int check_spec(Verifier *v, const cvn_value *value)
{
    const cvn_spec *spec = value->spec;
    const char *axis[CVN_MAX_RANK * CVN_MAX_SPEC_AXES];
    int n = 0;
    if (spec->rank != value->type.rank)
        return fail(v, "a spec has rank %d, its value %d", spec->rank, value->type.rank);
    for (int d = 0; d < spec->rank; d++) {
        if (spec->dim[d].n < 0 || spec->dim[d].n > CVN_MAX_SPEC_AXES)
            return fail(v, "a spec splits dimension %d by %d axes", d, spec->dim[d].n);
        for (int i = 0; i < spec->dim[d].n; i++) {
            axis[n] = spec->dim[d].axis[i];
            if (!lex_is_plain_name(axis[n]) || strcmp(axis[n], "_") == 0)
                return fail(v, "a spec names no mesh axis for dimension %d", d);
            for (int j = 0; j < n; j++)
                if (strcmp(axis[j], axis[n]) == 0)
                    return fail(v, "a spec uses the axis '%s' twice", axis[n]);
            n++;
        }
    }
    return CVN_OK;
}

static int check_results(Verifier *v)
{
    const Op *op = v->op;
    for (int i = 0; i < op->n_results; i++) {
        const cvn_value *value = op->result[i];
        if (value->id >= v->g->n_values)
            return fail(v, "result %d has id %u, but only %u were handed out", i, value->id,
                        v->g->n_values);
        if (v->seen[value->id])
            return fail(v, "result %d has the id %u of another value", i, value->id);
        if (value->spec && check_spec(v, value))
            return CVN_EINVAL;
        v->seen[value->id] = value;
    }
    return CVN_OK;
}

/* The list of parameters names them in execution order, each with a name of its own. */
static int check_parameter(Verifier *v)
{
    bool added;
    const char *name = v->op->attr.name;
    if (v->n_parameters >= v->g->n_parameters ||
        v->g->parameter[v->n_parameters] != v->op->result[0])
        return fail(v, "parameter %d of the list is another one", v->n_parameters);
    v->n_parameters++;
    map_put(&v->names, name, strlen(name), &added);
    return added ? CVN_OK : fail(v, "there are two parameters '%s'", name);
}

static int check_outputs(Verifier *v, bool *taken)
{
    for (int i = 0; i < v->g->n_outputs; i++) {
        const cvn_value *value = v->g->output[i].value, *into = v->g->output[i].into;
        if (!is_defined(v, value))
            return fail(v, "output %d is not a value of the graph", i);
        if (value->forward)
            return fail(v, "output %d was replaced and not resolved", i);
        if (!into)
            continue;
        if (!is_defined(v, into) || into->def->kind != OP_PARAMETER)
            return fail(v, "output %d is computed into what is not a parameter", i);
        if (!cvn_type_equal(&value->type, &into->type))
            return fail(v, "output %d and its parameter '%s' differ in type", i,
                        into->def->attr.name);
        if (taken[into->id])
            return fail(v, "two outputs are computed into parameter '%s'", into->def->attr.name);
        taken[into->id] = true;
    }
    return CVN_OK;
}

static int check_graph(Verifier *v, bool *taken)
{
    const cvn_graph *g = v->g;
    if (g->insert_point)
        return fail(v, "the last pass left its insertion point set");
    for (v->op = g->first; v->op; v->previous = v->op, v->op = v->op->next, v->position++) {
        if (v->op->prev != v->previous)
            return fail(v, "it does not lead back to the operation before it");
        if (!v->op->next && g->last != v->op)
            return fail(v, "the list goes on after it, or ends before it");
        if (v->op->kind >= OP_COUNT)
            return fail(v, "there is no kind of operation %d", (int)v->op->kind);
        if (check_operands(v) || check_attrs(v) || check_types(v) || check_results(v) ||
            (v->op->kind == OP_PARAMETER && check_parameter(v)))
            return CVN_EINVAL;
    }
    if (v->position != g->n_ops)
        return fail(v, "it counts %lld operations, but has %lld", (long long)g->n_ops,
                    (long long)v->position);
    if (!g->first != !g->last)
        return fail(v, "one end of its list is missing");
    if (v->n_parameters != g->n_parameters)
        return fail(v, "%d parameters of its list have no operation",
                    g->n_parameters - v->n_parameters);
    return check_outputs(v, taken);
}

static int verify(const cvn_graph *g, const Fields *fields, Arena *arena, cvn_err *err)
{
    cvn_err local = {0};
    size_t n = g->n_values + (size_t)1;
    Verifier v = {.g = g, .err = &local, .arena = arena, .fields = fields};
    if (cvn_graph_check(g, err))
        return g->err.code;
    map_init(&v.names, arena);
    v.seen = arena_array(arena, n, sizeof *v.seen);
    check_graph(&v, arena_array(arena, n, sizeof(bool)));
    if (local.code)
        err_set_at(err, local.code, local.file, local.line, "%s", local.message);
    return local.code;
}

int graph_verify(const cvn_graph *g, cvn_err *err)
{
    Arena arena;
    Fields fields;
    list_fields(&fields);
    TRY(arena_begin(&arena, err));
    int code = verify(g, &fields, &arena, err);
    arena_free(&arena);
    return code;
}
