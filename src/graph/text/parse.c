/*
 * Reads the text form. One pass, no recursion but for the bodies of regions, which hold none:
 *
 *     graph      = "graph" "@" (name | string) "{" operation* "return" [output ("," output)*] "}"
 *     operation  = result ("," result)* "=" name [value ("," value)*] ["{" attributes "}"]
 *                | result ("," result)* "=" "region" [operand ("," operand)*] "{" operation* "return" output ("," output)* "}"
 *     operand    = [value "="] value
 *     result     = value ":" type ["<" [int ":"] split ("," split)* ">"]
 *     split      = "_" | axis ("*" axis)*
 *     output     = value ["into" value]
 *     attributes = [name "=" attribute ("," name "=" attribute)*]
 *
 * What is allocated is bounded by the length of the text (about 100 bytes for each of it): lists
 * and dense constants are as long as they are written, and a splat stays one element.
 */
#include "graph/text/parse.h"
#include "graph/region.h"
#include "graph/text/text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static const size_t LONGEST_TEXT = (size_t)256 << 20; /* its graph fits in an arena */

/* ---- types, specs and values ---- */

/* "f32[4,1]" */
static int parse_type(Parser *p, cvn_type *type)
{
    Lexer *lex = &p->lex;
    char text[16] = "";
    Span name;
    *type = (cvn_type){0};
    TRY(lex_name(lex, &name, "a type such as f32[4,1]"));
    if (name.n < sizeof text)
        memcpy(text, name.p, name.n);
    if (!cvn_dtype_parse(text, &type->dtype)) {
        lex->p = name.p;
        return lex_expected(lex, "an element type: f64, f32, bf16, f16, i32, u32, i8, i4 or i1");
    }
    TRY(lex_need(lex, '[', "and the sizes of the type"));
    if (lex_take(lex, ']'))
        return CVN_OK;
    do {
        if (type->rank == CVN_MAX_RANK)
            return lex_fail_at(lex, lex->p, "a type has more than %d dimensions", CVN_MAX_RANK);
        lex_space(lex);
        const char *at = lex->p;
        int64_t *dim = &type->dim[type->rank++];
        TRY(lex_int(lex, dim, "a size"));
        if (*dim < 0)
            return lex_fail_at(lex, at, "found size %lld, expected 0 or more", (long long)*dim);
    } while (lex_take(lex, ','));
    return lex_need(lex, ']', "after the sizes of the type");
}

/* One dimension of a spec. */
static int parse_split(Parser *p, cvn_spec *spec, int d)
{
    Lexer *lex = &p->lex;
    do {
        Span axis;
        TRY(lex_name(lex, &axis, "a mesh axis or '_'"));
        if (span_is(axis, "_") && spec->dim[d].n == 0)
            return CVN_OK;
        const char *name = arena_stringn(&p->g->arena, axis.p, axis.n);
        if (!lex_is_plain_name(name) || span_is(axis, "_"))
            return lex_fail_at(lex, axis.p, "found '%.40s', expected the name of a mesh axis",
                               name);
        if (spec->dim[d].n == CVN_MAX_SPEC_AXES)
            return lex_fail_at(lex, axis.p, "a dimension is split by more than %d axes",
                               CVN_MAX_SPEC_AXES);
        for (int e = 0; e < spec->rank; e++)
            for (int i = 0; i < spec->dim[e].n; i++)
                if (strcmp(spec->dim[e].axis[i], name) == 0)
                    return lex_fail_at(lex, axis.p, "axis %s is used twice in a spec", name);
        spec->dim[d].axis[spec->dim[d].n++] = name;
    } while (lex_take(lex, '*'));
    return CVN_OK;
}

/* "1:" in front of a spec, if that is what comes next: no axis begins with a digit,
   so a number without a colon is refused by parse_split. */
static int parse_priority(Parser *p, cvn_spec *spec)
{
    Lexer *lex = &p->lex;
    int64_t priority = 0;
    lex_space(lex);
    const char *at = lex->p, *digit = at;
    digit += digit < lex->end && *digit == '-';
    if (digit == lex->end || !isdigit((unsigned char)*digit))
        return CVN_OK;
    TRY(lex_int(lex, &priority, "a priority"));
    if (!lex_take(lex, ':')) {
        lex->p = at;
        return CVN_OK;
    }
    if (priority <= INT32_MIN || priority > INT32_MAX)
        return lex_fail_at(lex, at, "the priority of a spec is out of range");
    spec->priority = (int)priority;
    return CVN_OK;
}

/* "data*model,_>", or with a priority in front, "1:data,_>" */
static int parse_spec(Parser *p, Declared *declared)
{
    Lexer *lex = &p->lex;
    const char *at = lex->p;
    cvn_spec *spec = &declared->spec;
    declared->has_spec = true;
    *spec = (cvn_spec){0};
    TRY(parse_priority(p, spec));
    if (!lex_take(lex, '>')) {
        do {
            if (spec->rank == CVN_MAX_RANK)
                return lex_fail_at(lex, lex->p, "a spec has more than %d dimensions", CVN_MAX_RANK);
            TRY(parse_split(p, spec, spec->rank++));
        } while (lex_take(lex, ','));
        TRY(lex_need(lex, '>', "after the spec"));
    }
    if (spec->rank != declared->type.rank)
        return lex_fail_at(lex, at, "found a spec of %d dimensions, expected %d as in the type",
                           spec->rank, declared->type.rank);
    return CVN_OK;
}

int graph_parse_mark(cvn_graph *g, cvn_value *v, const char *text, cvn_err *err)
{
    SCOPED(strbuf_free) StrBuf closed = {0};
    Declared declared = {.type = v->type};
    strbuf_printf(&closed, "%s>", text);
    if (closed.failed)
        return err_set(err, CVN_EMEM, "no memory for a mark");
    Parser p = {.lex = {"a mark", closed.text, closed.text + closed.length, closed.text, err},
                .g = g};
    TRY(parse_spec(&p, &declared));
    cvn_mark_sharding(g, v, &declared.spec);
    return g->err.code ? err_set(err, g->err.code, "%s", g->err.message) : CVN_OK;
}

/* "%name"; names are not looked up here. */
static int parse_value_name(Parser *p, Span *name)
{
    Lexer *lex = &p->lex;
    if (!lex_take(lex, '%'))
        return lex_expected(lex, "a value such as %x");
    if (lex->p == lex->end || !lex_is_name_char(*lex->p))
        return lex_expected(lex, "the name of a value after '%'");
    return lex_name(lex, name, "the name of a value");
}

/* A value that is defined above and has this name. */
static int find_use(Parser *p, Span name, cvn_value **value)
{
    const uint64_t *entry = map_get(&p->values, name.p, name.n);
    if (!entry)
        return lex_fail_at(&p->lex, name.p - 1,
                           "found '%%%.*s', expected a value that is defined above",
                           name.n < 60 ? (int)name.n : 60, name.p);
    *value = (cvn_value *)(uintptr_t)*entry;
    return CVN_OK;
}

static int parse_use(Parser *p, cvn_value **value)
{
    Span name;
    TRY(parse_value_name(p, &name));
    return find_use(p, name, value);
}

static int parse_declared(Parser *p, Declared *declared)
{
    lex_space(&p->lex);
    *declared = (Declared){.at = p->lex.p};
    TRY(parse_value_name(p, &declared->name));
    if (map_get(&p->values, declared->name.p, declared->name.n))
        return lex_fail_at(&p->lex, declared->at, "value '%%%.*s' is defined twice",
                           declared->name.n < 60 ? (int)declared->name.n : 60, declared->name.p);
    TRY(lex_need(&p->lex, ':', "and the type of the value"));
    TRY(parse_type(p, &declared->type));
    return lex_take(&p->lex, '<') ? parse_spec(p, declared) : CVN_OK;
}

/* ---- operations ---- */

static int parse_kind(Parser *p, OpKind *kind)
{
    Span name;
    TRY(lex_name(&p->lex, &name, "the name of an operation"));
    for (*kind = 0; *kind < OP_COUNT; ++*kind)
        if (span_is(name, op_info[*kind].name))
            return CVN_OK;
    p->lex.p = name.p;
    return lex_expected(&p->lex, "the name of an operation, such as add");
}

/* An operand of a region, "%x", or "%a = %x", which its body calls %a. */
static int parse_operand(Parser *p, cvn_value **value)
{
    Span name, other;
    TRY(parse_value_name(p, &name));
    other = name;
    if (lex_take(&p->lex, '='))
        TRY(parse_value_name(p, &other));
    p->given = arena_more(&p->scratch, p->operands.n > 1 ? p->given : NULL, p->operands.n - 1,
                          sizeof *p->given);
    p->given[p->operands.n - 1] = name;
    return find_use(p, other, value);
}

static int parse_operands(Parser *p, OpKind kind)
{
    const OpInfo *info = &op_info[kind];
    const char *at = p->lex.p;
    p->operands.n = 0;
    lex_space(&p->lex);
    /* A '%' after an operation that takes no operands begins the next one. */
    if (info->most > 0 && p->lex.p < p->lex.end && *p->lex.p == '%') {
        do {
            cvn_value **operand = parse_append(p, &p->operands, sizeof(cvn_value *));
            if (!operand)
                return CVN_EMEM;
            TRY(kind == OP_REGION ? parse_operand(p, operand) : parse_use(p, operand));
        } while (lex_take(&p->lex, ','));
    }
    int n = p->operands.n > (size_t)info->most ? info->most + 1 : (int)p->operands.n;
    if (n < info->least || n > info->most)
        return lex_fail_at(&p->lex, at, "found %zu operands of %s, expected %d to %d",
                           p->operands.n, info->name, info->least, info->most);
    return CVN_OK;
}

/* Names, marks and remembers a result; its inferred type must be the declared one. */
static int define(Parser *p, const Declared *declared, cvn_value *v)
{
    char a[TYPE_TEXT], b[TYPE_TEXT];
    if (!cvn_type_equal(&declared->type, &v->type))
        return lex_fail_at(&p->lex, declared->at, "found type %s, but %s gives %s",
                           type_text(&declared->type, a, sizeof a), op_info[v->def->kind].name,
                           type_text(&v->type, b, sizeof b));
    if (declared->name.p[0] < '0' || declared->name.p[0] > '9')
        v->name = arena_stringn(&p->g->arena, declared->name.p, declared->name.n);
    if (declared->has_spec)
        v->spec = arena_copy(&p->g->arena, &declared->spec, sizeof declared->spec);
    bool added;
    uint64_t *entry = map_put(&p->values, declared->name.p, declared->name.n, &added);
    if (!added)
        return lex_fail_at(&p->lex, declared->at, "the value is defined twice");
    *entry = (uintptr_t)v;
    return CVN_OK;
}

static int parse_op(Parser *p);

/* Operations, up to what "return" says, whose '}' is next. */
static int parse_ops(Parser *p)
{
    Lexer *lex = &p->lex;
    while (!lex_take_word(lex, "return")) {
        lex_space(lex);
        if (lex->p == lex->end || *lex->p != '%')
            return lex_expected(lex, "an operation (%x: f32[4] = ...) or 'return'");
        TRY(parse_op(p));
    }
    if (lex_take(lex, '}'))
        return CVN_OK;
    do {
        cvn_value *value, *into = NULL;
        lex_space(lex);
        const char *at = lex->p;
        TRY(parse_use(p, &value));
        if (!p->body && lex_take_word(lex, "into"))
            TRY(parse_use(p, &into));
        cvn_output_into(p->g, value, into);
        if (p->g->err.code)
            return lex_fail_at(lex, at, "%s", p->g->err.message);
    } while (lex_take(lex, ','));
    return lex_need(lex, '}', p->body ? "and the end of the region" : "and the end of the graph");
}

/* "{ … return … }" behind the operands of a region, in which nothing has a name but they. */
static int parse_body(Parser *p, OpAttr *attr)
{
    Parser outside = *p;
    SCOPED(graph_release) cvn_graph *body = cvn_graph_new("body", p->lex.err);
    if (!body)
        return CVN_EMEM;
    if (p->body)
        return lex_fail_at(&p->lex, p->lex.p, "regions cannot be nested");
    TRY(lex_need(&p->lex, '{', "and the body of the region"));
    p->g = body;
    p->body = true;
    map_init(&p->values, &p->scratch);
    p->operands = (List){0};
    cvn_value *const *operand = outside.operands.data;
    int code = CVN_OK;
    for (size_t i = 0; i < outside.operands.n && !code; i++) {
        bool added;
        Span name = outside.given[i];
        cvn_value *v = cvn_parameter(body, arena_printf(&p->scratch, "%zu", i), operand[i]->type);
        *map_put(&p->values, name.p, name.n, &added) = (uintptr_t)v;
        code =
            added ? CVN_OK : lex_fail_at(&p->lex, name.p, "the body has two values of this name");
    }
    code = code ? code : parse_ops(p);
    free(p->operands.data);
    p->g = outside.g;
    p->body = false;
    p->values = outside.values;
    p->operands = outside.operands;
    attr->body = code ? NULL : body_copy(p->g, body);
    return code;
}

static int parse_op(Parser *p)
{
    Declared declared[OP_MOST_RESULTS];
    int n = 0;
    OpKind kind = OP_COUNT;
    OpAttr attr = {0};
    const char *name_at = NULL;
    do {
        if (n == OP_MOST_RESULTS)
            return lex_expected(&p->lex, "'=': no operation has more than eight results");
        TRY(parse_declared(p, &declared[n++]));
    } while (lex_take(&p->lex, ','));
    if (lex_need(&p->lex, '=', "and the operation") || parse_kind(p, &kind) ||
        parse_operands(p, kind) ||
        (kind == OP_REGION ? parse_body(p, &attr)
                           : parse_attrs(p, kind, &declared[0], &attr, &name_at)))
        return CVN_EFORMAT;
    if (kind == OP_PARAMETER && p->body)
        return lex_fail_at(&p->lex, declared[0].at, "the parameters of a body are its operands");
    int n_operands = (int)p->operands.n;
    int n_results = op_results(kind, n_operands, &attr);
    if (n != n_results)
        return lex_fail_at(&p->lex, declared[0].at, "found %d results of %s, expected %d", n,
                           op_info[kind].name, n_results);
    bool added = true;
    if (kind == OP_PARAMETER && attr.name)
        map_put(&p->parameters, attr.name, strlen(attr.name), &added);
    if (!added)
        return lex_fail_at(&p->lex, name_at, "a parameter above has the name \"%.200s\" already",
                           attr.name);
    cvn_type want[OP_MOST_RESULTS];
    for (int i = 0; i < n; i++)
        want[i] = declared[i].type;
    cvn_value *first = graph_add(p->g, kind, &attr, n_operands, p->operands.data, want);
    if (p->g->err.code)
        return lex_fail_at(&p->lex, declared[0].at, "%s", p->g->err.message);
    for (; p->counted_to < declared[0].at; p->counted_to++)
        p->line += *p->counted_to == '\n';
    first->def->file = p->filename;
    first->def->line = p->line;
    for (int i = 0; i < n; i++)
        TRY(define(p, &declared[i], first->def->result[i]));
    return CVN_OK;
}

static int parse_graph(Parser *p)
{
    Lexer *lex = &p->lex;
    if (!lex_take_word(lex, "graph"))
        return lex_expected(lex, "'graph @name {'");
    TRY(lex_need(lex, '@', "and the name of the graph"));
    Span name;
    if (lex->p < lex->end && *lex->p == '"') {
        TRY(lex_string(lex, &p->g->arena, &p->g->name));
    } else if (lex_name(lex, &name, "the name of the graph")) {
        return CVN_EFORMAT;
    } else {
        p->g->name = arena_stringn(&p->g->arena, name.p, name.n);
    }
    TRY(lex_need(lex, '{', "and the operations"));
    TRY(parse_ops(p));
    lex_space(lex);
    return lex->p == lex->end ? CVN_OK : lex_expected(lex, "the end of the text");
}

static void release(void *of)
{
    Parser *p = of;
    free(p->numbers.data);
    free(p->ints.data);
    free(p->operands.data);
}

cvn_graph *graph_parse(const char *text, size_t n, const char *filename, cvn_err *err)
{
    cvn_err local = {0}; /* so that what failed is known when the caller does not want to know */
    Parser p = {.lex = {filename, text, text + n, text, &local}, .line = 1, .counted_to = text};
    if (n > LONGEST_TEXT)
        err_set(&local, CVN_EFORMAT, "%s has %zu bytes; a graph in text has at most %zu", filename,
                n, LONGEST_TEXT);
    else if (arena_begin(&p.scratch, &local) == CVN_OK)
        p.g = cvn_graph_new("", &local);
    Cleanup cleanup;
    cleanup_push(&cleanup, release, &p);
    if (p.g) {
        p.filename = arena_string(&p.g->arena, filename);
        map_init(&p.values, &p.scratch);
        map_init(&p.parameters, &p.scratch);
        parse_graph(&p);
    }
    cleanup_run(&cleanup);
    arena_free(&p.scratch);
    if (local.code == CVN_OK)
        return p.g;
    err_set_at(err, local.code, local.file, local.line, "%s", local.message);
    cvn_graph_free(p.g);
    return NULL;
}
