/* Writes the text form. */
#include "graph/text/text.h"

#include "base/map.h"
#include "graph/text/lex.h"
#include "graph/text/names.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the printer knows beside the graph: how each value is called. */
typedef struct Printer {
    StrBuf *out;
    Arena *arena;
    char **name;        /* [n_values], without the % */
    const char *margin; /* before each operation */
    bool body;          /* of a region: its parameters are named where it is read */
} Printer;

static void put_value(Printer *p, const cvn_value *v)
{
    strbuf_printf(p->out, "%%%s", p->name[v->id]);
}

static void put_spec(StrBuf *out, const cvn_spec *spec)
{
    strbuf_putc(out, '<');
    if (spec->priority)
        strbuf_printf(out, "%d:", spec->priority);
    for (int d = 0; d < spec->rank; d++) {
        strbuf_puts(out, d ? "," : "");
        if (spec->dim[d].n == 0)
            strbuf_putc(out, '_');
        for (int i = 0; i < spec->dim[d].n; i++)
            strbuf_printf(out, "%s%s", i ? "*" : "", spec->dim[d].axis[i]);
    }
    strbuf_putc(out, '>');
}

static void put_string(StrBuf *out, const char *text)
{
    strbuf_putc(out, '"');
    for (const char *p = text; *p; p++) {
        unsigned char c = (unsigned char)*p;
        if (c == '"' || c == '\\')
            strbuf_printf(out, "\\%c", c);
        else if (c < 32 || c == 127)
            strbuf_printf(out, "\\x%02x", c);
        else
            strbuf_putc(out, (char)c);
    }
    strbuf_putc(out, '"');
}

/* The shortest decimal that reads back as the same value of this element type. */
static void put_number(StrBuf *out, cvn_dtype dtype, double value)
{
    char text[40];
    double bits[1] = {0};
    if (isnan(value)) {
        strbuf_puts(out, signbit(value) ? "-nan" : "nan");
        return;
    }
    if (fabs(value) < 1e15 && value == trunc(value)) {
        strbuf_printf(out, "%.0f", value);
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        element_set(dtype, bits, 0, strtod(text, NULL));
        if (element_get(dtype, bits, 0) == value)
            break;
    }
    strbuf_puts(out, text);
}

static void put_literal(StrBuf *out, const Literal *literal, const cvn_type *type)
{
    int64_t n = literal->splat ? 1 : cvn_type_elements(type);
    strbuf_puts(out, literal->splat ? "splat " : "[");
    for (int64_t i = 0; i < n; i++) {
        strbuf_puts(out, i ? ", " : "");
        put_number(out, type->dtype, element_get(type->dtype, literal->data, i));
    }
    strbuf_puts(out, literal->splat ? "" : "]");
}

/* Groups of a large mesh are most of a graph's text. */
static void put_int(StrBuf *out, int64_t n)
{
    char digits[24], *end = digits + sizeof digits, *at = end;
    uint64_t left = n < 0 ? 0 - (uint64_t)n : (uint64_t)n;
    do
        *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (n < 0)
        *--at = '-';
    strbuf_add(out, at, (size_t)(end - at));
}

static void put_attr(StrBuf *out, const AttrInfo *row, const void *field, const cvn_type *type)
{
    const Ints *ints = field;
    strbuf_printf(out, "%s=", row->name);
    switch (row->type) {
    case ATTR_INT:
        put_int(out, *(const int64_t *)field);
        break;
    case ATTR_INTS:
        for (int i = 0; i < ints->n; i++) {
            strbuf_putc(out, i ? ',' : '[');
            put_int(out, ints->v[i]);
        }
        strbuf_puts(out, ints->n ? "]" : "[]");
        break;
    case ATTR_FLOAT:
        put_number(out, CVN_F64, *(const double *)field);
        break;
    case ATTR_STRING:
        put_string(out, *(const char *const *)field);
        break;
    case ATTR_LITERAL:
        put_literal(out, field, type);
        break;
    case ATTR_BOOL:
        strbuf_puts(out, attr_types[row->type].names[*(const bool *)field]);
        break;
    default:
        strbuf_puts(out, attr_types[row->type].names[*(const unsigned *)field]);
    }
}

static void put_ops(Printer *p, const cvn_graph *g);

/* The operands of a region are known in its body by the names that they have outside; one that is given again gets
   another there: "region %x, %x.1 = %x {". */
static void put_region(Printer *p, const Op *op)
{
    const cvn_graph *body = op->attr.body;
    const char **given = arena_array(p->arena, (size_t)op->n_operands + 1, sizeof *given);
    Map taken;
    bool added;
    map_init(&taken, p->arena);
    for (int i = 0; i < op->n_operands; i++) {
        const char *name = p->name[op->operand[i]->id];
        strbuf_puts(p->out, i ? ", " : " ");
        given[i] = name;
        map_put(&taken, name, strlen(name), &added);
        for (int more = 1; !added; more++) {
            given[i] = arena_printf(p->arena, "%s.%d", name, more);
            map_put(&taken, given[i], strlen(given[i]), &added);
        }
        if (given[i] != name)
            strbuf_printf(p->out, "%%%s = ", given[i]);
        strbuf_printf(p->out, "%%%s", name);
    }
    Printer inside = *p;
    inside.name = names_choose(body, given, p->arena);
    inside.margin = "    ";
    inside.body = true;
    strbuf_puts(p->out, " {\n");
    put_ops(&inside, body);
    strbuf_printf(p->out, "\n%s}\n", p->margin);
}

static void put_op(Printer *p, const Op *op)
{
    strbuf_puts(p->out, p->margin);
    for (int i = 0; i < op->n_results; i++) {
        strbuf_puts(p->out, i ? ", " : "");
        put_value(p, op->result[i]);
        strbuf_puts(p->out, ": ");
        type_print(p->out, &op->result[i]->type);
        if (op->result[i]->spec)
            put_spec(p->out, op->result[i]->spec);
    }
    strbuf_printf(p->out, " = %s", op_info[op->kind].name);
    if (op->kind == OP_REGION) {
        put_region(p, op);
        return;
    }
    for (int i = 0; i < op->n_operands; i++) {
        strbuf_puts(p->out, i ? ", " : " ");
        put_value(p, op->operand[i]);
    }
    int n = 0;
    for (const AttrInfo *row = op_info[op->kind].attrs; row->name; row++) {
        if (attr_types[row->type].optional && attr_is_zero(&op->attr, row))
            continue;
        strbuf_puts(p->out, n++ ? ", " : " {");
        put_attr(p->out, row, attr_field(&op->attr, row), &op->result[0]->type);
    }
    strbuf_puts(p->out, n ? "}" : "");
    strbuf_putc(p->out, '\n');
}

/* The operations of a graph or a body, and what it returns. */
static void put_ops(Printer *p, const cvn_graph *g)
{
    for (const Op *op = g->first; op; op = op->next)
        if (op->kind != OP_PARAMETER || !p->body)
            put_op(p, op);
    strbuf_printf(p->out, "%sreturn", p->margin);
    for (int i = 0; i < g->n_outputs; i++) {
        strbuf_puts(p->out, i ? ", " : " ");
        put_value(p, g->output[i].value);
        if (g->output[i].into) {
            strbuf_puts(p->out, " into ");
            put_value(p, g->output[i].into);
        }
    }
}

void graph_print(StrBuf *out, const cvn_graph *g)
{
    SCOPED(arena_free) Arena arena = {0};
    if (arena_begin(&arena, NULL)) {
        out->failed = true;
        return;
    }
    Printer p = {.out = out, .arena = &arena, .margin = "  "};
    p.name = names_choose(g, NULL, &arena);
    strbuf_puts(out, "graph @");
    if (lex_is_plain_name(g->name))
        strbuf_puts(out, g->name);
    else
        put_string(out, g->name);
    strbuf_puts(out, " {\n");
    put_ops(&p, g);
    strbuf_puts(out, "\n}\n");
}
