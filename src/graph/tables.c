/*
 * The tables of operations and attributes as data, and the three functions on attributes that are
 * loops over them: equality, deep copy, and (in print.c and parse.c) the text form.
 */
#include "graph/graph.h"
#include "graph/linear.h"

#include <limits.h>
#include <string.h>

const OpInfo op_info[OP_COUNT + 1] = {
#define OP(kind, name, least, most, results, class, dtypes)                                        \
    [OP_##kind] = {name, least, most, results, CLASS_##class, DTYPES_##dtypes},
#include "graph/ops.def"
#undef OP
    [OP_FUSION] = {"fusion", 1, INT_MAX, 1, CLASS_CONTROL, DTYPES_A},
};

const AttrInfo attr_info[] = {
#define ATTR(kind, name, field, type, hlo)                                                         \
    {OP_##kind, name, offsetof(OpAttr, field), ATTR_##type, hlo},
#include "graph/attrs.def"
#undef ATTR
};
const int attr_info_count = (int)(sizeof attr_info / sizeof *attr_info);

const char *const compare_names[COMPARE_COUNT] = {"eq", "ne", "lt", "le", "gt", "ge"};
const char *const reduce_names[REDUCE_COUNT] = {"sum", "product", "max", "min", "all", "any"};
const char *const combine_names[COMBINE_COUNT] = {"assign", "add"};

int op_results(OpKind kind, int n_operands, const OpAttr *attr)
{
    if (op_info[kind].results)
        return op_info[kind].results;
    if (kind != OP_LINEAR)
        return n_operands;
    bool legal = attr->group_size >= 1 && attr->group_size <= LINEAR_WEIGHTS;
    return legal ? linear_results(attr) : 1; /* which inference refuses */
}

static bool ints_equal(const Ints *a, const Ints *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->v, b->v, (size_t)a->n * sizeof *a->v) == 0);
}

static bool field_equal(AttrType type, const void *a, const void *b)
{
    switch (type) {
    case ATTR_INT:
        return *(const int64_t *)a == *(const int64_t *)b;
    case ATTR_INTS:
        return ints_equal(a, b);
    case ATTR_FLOAT:
        return memcmp(a, b, sizeof(double)) == 0;
    case ATTR_BOOL:
        return *(const bool *)a == *(const bool *)b;
    case ATTR_STRING:
        return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    case ATTR_COMPARE:
        return *(const cvn_compare *)a == *(const cvn_compare *)b;
    case ATTR_REDUCE:
        return *(const cvn_reduce *)a == *(const cvn_reduce *)b;
    case ATTR_COMBINE:
        return *(const Combine *)a == *(const Combine *)b;
    case ATTR_LITERAL: {
        const Literal *x = a, *y = b;
        return x->splat == y->splat && x->bytes == y->bytes &&
               memcmp(x->data, y->data, x->bytes) == 0;
    }
    }
    return false;
}

bool attr_equal(OpKind kind, const OpAttr *a, const OpAttr *b)
{
    for (int i = 0; i < attr_info_count; i++) {
        const AttrInfo *row = &attr_info[i];
        if (row->kind == kind &&
            !field_equal(row->type, (const char *)a + row->offset, (const char *)b + row->offset))
            return false;
    }
    return true;
}

OpAttr attr_copy(cvn_graph *g, OpKind kind, const OpAttr *attr)
{
    OpAttr copy = *attr;
    for (int i = 0; i < attr_info_count; i++) {
        const AttrInfo *row = &attr_info[i];
        if (row->kind != kind)
            continue;
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
        }
    }
    return copy;
}
