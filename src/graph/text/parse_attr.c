/* Reads attributes, as ops.def says which an operation has and of what type. */
#include "graph/text/parse.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *parse_append(Parser *p, List *list, size_t size)
{
    if (list->n == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 16;
        void *more = reallocarray(list->data, cap, size);
        if (!more) {
            err_set(p->lex.err, CVN_EMEM, "%s: no memory to read the graph", p->filename);
            return NULL;
        }
        list->data = more;
        list->cap = cap;
    }
    return (char *)list->data + list->n++ * size;
}

/* "[1,2]" */
static int parse_ints(Parser *p, Ints *ints)
{
    Lexer *lex = &p->lex;
    p->ints.n = 0;
    TRY(lex_need(lex, '[', "and a list of integers"));
    if (lex_take(lex, ']'))
        return CVN_OK;
    do {
        int64_t *value = parse_append(p, &p->ints, sizeof *value);
        if (!value)
            return CVN_EMEM;
        TRY(lex_int(lex, value, "an integer"));
    } while (lex_take(lex, ','));
    *ints = graph_ints(p->g, (int)p->ints.n, p->ints.data);
    return lex_need(lex, ']', "after a list of integers");
}

/* A number that the element type can hold: floats are rounded, integers must be exact. */
static int parse_element(Parser *p, cvn_dtype dtype)
{
    lex_space(&p->lex);
    const char *at = p->lex.p;
    double value, stored[1] = {0};
    TRY(lex_number(&p->lex, &value));
    element_set(dtype, stored, 0, value);
    double back = element_get(dtype, stored, 0);
    if (dtype_is_float(dtype) ? isfinite(value) && !isfinite(back) : back != value)
        return lex_fail_at(&p->lex, at, "found %.17g, expected a value that %s can hold", value,
                           cvn_dtype_name(dtype));
    double *number = parse_append(p, &p->numbers, sizeof *number);
    if (!number)
        return CVN_EMEM;
    *number = value;
    return CVN_OK;
}

/* "splat 0.5" or "[1, 2]" */
static int parse_literal(Parser *p, const Declared *declared, Literal *literal)
{
    Lexer *lex = &p->lex;
    cvn_dtype dtype = declared->type.dtype;
    lex_space(lex);
    const char *at = lex->p;
    p->numbers.n = 0;
    literal->splat = lex_take_word(lex, "splat");
    if (literal->splat) {
        TRY(parse_element(p, dtype));
    } else if (!lex_take(lex, '[')) {
        return lex_expected(lex, "'splat' and a number, or '[' and all elements");
    } else if (!lex_take(lex, ']')) {
        do {
            TRY(parse_element(p, dtype));
        } while (lex_take(lex, ','));
        TRY(lex_need(lex, ']', "after the elements"));
    }
    literal->bytes = cvn_dtype_bytes(dtype, (int64_t)p->numbers.n);
    void *data = arena_alloc(&p->g->arena, literal->bytes);
    const double *number = p->numbers.data;
    for (size_t i = 0; i < p->numbers.n; i++)
        element_set(dtype, data, (int64_t)i, number[i]);
    literal->data = data;
    int64_t n = 1;
    for (int d = 0; d < declared->type.rank; d++)
        if (__builtin_mul_overflow(n, declared->type.dim[d], &n))
            return lex_fail_at(lex, declared->at, "the type has too many elements to address");
    if (!literal->splat && (uint64_t)n != p->numbers.n)
        return lex_fail_at(lex, at, "found %zu elements, expected %lld as in the type",
                           p->numbers.n, (long long)n);
    return CVN_OK;
}

/* One of `n` words; its index is the value of the enum. */
static int parse_enum(Parser *p, const char *const *names, int n, unsigned *value)
{
    Span word;
    char all[120] = "one of";
    size_t length = strlen(all);
    for (int i = 0; i < n && length < sizeof all; i++)
        length +=
            (size_t)snprintf(all + length, sizeof all - length, "%s %s", i ? "," : "", names[i]);
    TRY(lex_name(&p->lex, &word, all));
    for (*value = 0; *value < (unsigned)n; ++*value)
        if (span_is(word, names[*value]))
            return CVN_OK;
    p->lex.p = word.p;
    return lex_expected(&p->lex, all);
}

static int parse_attr_value(Parser *p, const AttrInfo *row, const Declared *declared, void *field)
{
    const AttrTypeInfo *type = &attr_types[row->type];
    unsigned choice = 0;
    switch (row->type) {
    case ATTR_INT:
        return lex_int(&p->lex, field, "an integer");
    case ATTR_INTS:
        return parse_ints(p, field);
    case ATTR_FLOAT:
        return lex_number(&p->lex, field);
    case ATTR_STRING:
        return lex_string(&p->lex, &p->g->arena, field);
    case ATTR_LITERAL:
        return parse_literal(p, declared, field);
    default:
        break;
    }
    int code = parse_enum(p, type->names, type->n_names, &choice);
    if (row->type == ATTR_BOOL)
        *(bool *)field = choice == 1;
    else
        *(unsigned *)field = choice;
    return code;
}

/* The attribute of this name, or NULL with an error that lists those there are. */
static const AttrInfo *find_attr(Parser *p, OpKind kind, Span name)
{
    char all[200] = "";
    size_t n = 0;
    for (const AttrInfo *row = op_info[kind].attrs; row->name; row++) {
        if (span_is(name, row->name))
            return row;
        if (n < sizeof all)
            n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", n ? ", " : "", row->name);
    }
    lex_fail_at(&p->lex, name.p, "found '%.*s', but %s%s%s", name.n < 60 ? (int)name.n : 60, name.p,
                op_info[kind].name, n ? " has attributes " : " has no attributes", all);
    return NULL;
}

int parse_attrs(Parser *p, OpKind kind, const Declared *declared, OpAttr *attr, const char **at)
{
    Lexer *lex = &p->lex;
    const AttrInfo *first = op_info[kind].attrs;
    uint32_t seen = 0; /* bit i: attribute i of this kind of operation */
    lex_space(lex);
    const char *begin = lex->p;
    if (lex_take(lex, '{') && !lex_take(lex, '}')) {
        do {
            Span name;
            TRY(lex_name(lex, &name, "the name of an attribute"));
            const AttrInfo *row = find_attr(p, kind, name);
            if (!row)
                return CVN_EFORMAT;
            uint32_t bit = UINT32_C(1) << (row - first);
            if (seen & bit)
                return lex_fail_at(lex, name.p, "attribute %s is given twice", row->name);
            seen |= bit;
            *at = name.p;
            TRY(lex_need(lex, '=', "after the name of an attribute"));
            TRY(parse_attr_value(p, row, declared, (char *)attr + row->offset));
        } while (lex_take(lex, ','));
        TRY(lex_need(lex, '}', "after the attributes"));
    }
    for (const AttrInfo *row = first; row->name; row++)
        if (!(seen >> (row - first) & 1) && !attr_types[row->type].optional)
            return lex_fail_at(lex, begin, "%s needs the attribute %s", op_info[kind].name,
                               row->name);
    return CVN_OK;
}
