/*
 * Attributes: their types as a table, and functions that are loops over those of an operation: equality and deep copy.
 * (The text form is another such loop, in text/print.c and text/parse_attr.c.)
 */
#include "graph/blocks.h"
#include "graph/linear.h"
#include "graph/region.h"

#include <string.h>

const char *const compare_names[COMPARE_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
const char *const reduce_names[REDUCE_COUNT] = {"sum", "product", "max", "min", "all", "any"};
const char *const combine_names[COMBINE_COUNT] = {"assign", "add"};
static const char *const bool_names[2] = {"false", "true"};

const AttrTypeInfo attr_types[ATTR_TYPES] = {
    [ATTR_INT] = {sizeof(int64_t), true, NULL, 0},
    [ATTR_INTS] = {sizeof(Ints), true, NULL, 0},
    [ATTR_FLOAT] = {sizeof(double), true, NULL, 0},
    [ATTR_BOOL] = {sizeof(bool), true, bool_names, 2},
    [ATTR_STRING] = {sizeof(char *), false, NULL, 0},
    [ATTR_COMPARE] = {sizeof(cvn_compare), false, compare_names, COMPARE_COUNT},
    [ATTR_REDUCE] = {sizeof(cvn_reduce), false, reduce_names, REDUCE_COUNT},
    [ATTR_COMBINE] = {sizeof(Combine), false, combine_names, COMBINE_COUNT},
    [ATTR_BLOCKS] = {sizeof(BlockKind), true, block_names, BLOCK_KINDS},
    [ATTR_LITERAL] = {sizeof(Literal), false, NULL, 0},
    [ATTR_BODY] = {sizeof(cvn_graph *), false, NULL, 0},
};
_Static_assert(sizeof(cvn_compare) == sizeof(unsigned) && sizeof(cvn_reduce) == sizeof(unsigned) &&
                   sizeof(Combine) == sizeof(unsigned) && sizeof(BlockKind) == sizeof(unsigned),
               "enums are read and written as unsigned");

int op_results(OpKind kind, int n_operands, const OpAttr *attr)
{
    if (op_info[kind].results)
        return op_info[kind].results;
    if (kind == OP_REGION)
        return attr->body ? attr->body->n_outputs : 1; /* which inference refuses */
    if (kind == OP_ATTENTION_BACKWARD)
        return attr->sinks ? 4 : 3;
    if (kind != OP_LINEAR && kind != OP_GROUPED_LINEAR)
        return n_operands;
    bool legal = attr->group_size >= 1 && attr->group_size <= LINEAR_WEIGHTS;
    return legal ? (int)attr->group_size : 1; /* which inference refuses */
}

static bool field_equal(AttrType type, const void *a, const void *b)
{
    if (type == ATTR_INTS) {
        const Ints *x = a, *y = b;
        return x->n == y->n && (x->n == 0 || memcmp(x->v, y->v, (size_t)x->n * sizeof *x->v) == 0);
    }
    if (type == ATTR_STRING)
        return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    if (type == ATTR_BODY)
        return body_equal(*(const cvn_graph *const *)a, *(const cvn_graph *const *)b);
    if (type != ATTR_LITERAL)
        return memcmp(a, b, attr_types[type].size) == 0;
    const Literal *x = a, *y = b;
    return x->splat == y->splat && x->bytes == y->bytes && memcmp(x->data, y->data, x->bytes) == 0;
}

bool attr_equal(OpKind kind, const OpAttr *a, const OpAttr *b)
{
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++)
        if (!field_equal(row->type, attr_field(a, row), attr_field(b, row)))
            return false;
    return true;
}

bool attr_is_zero(const OpAttr *attr, const AttrInfo *row)
{
    static const char zero[sizeof(Literal)];
    const void *field = attr_field(attr, row);
    if (row->type == ATTR_INTS)
        return ((const Ints *)field)->n == 0;
    if (row->type == ATTR_LITERAL)
        return !((const Literal *)field)->data;
    return memcmp(field, zero, attr_types[row->type].size) == 0;
}

OpAttr attr_copy(cvn_graph *g, OpKind kind, const OpAttr *attr)
{
    OpAttr copy = *attr;
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++) {
        void *field = (char *)&copy + row->offset;
        if (row->type == ATTR_INTS) {
            Ints *ints = field;
            *ints = graph_ints(g, ints->n, ints->v);
        } else if (row->type == ATTR_STRING) {
            const char **text = field;
            *text = arena_string(&g->arena, *text);
        } else if (row->type == ATTR_LITERAL) {
            Literal *literal = field;
            literal->data = arena_copy(&g->arena, literal->data, literal->bytes);
        } else if (row->type == ATTR_BODY) {
            const cvn_graph **body = field;
            *body = body_copy(g, *body);
        }
    }
    return copy;
}
