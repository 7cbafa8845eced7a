/*
 * A graph from a module in StableHLO. Functions are carried out, operation by operation, on values of the graph that is being
 * made: a call is what it calls, once more each time; a loop runs while its condition is a constant, which it is where it counts,
 * so that a scan over layers becomes the layers one after the other; of a choice that is not known, all ways are computed, and
 * one is selected.
 *
 *     %2:2 = stablehlo.while(%i = %c0, %x = %0) : …        i is 0, 1, then 2:  %3 = tanh %0   %4 = tanh %3
 *      cond { %3 = compare LT, %i, %c2 … } do { %4 = tanh %x … add %i, %c1 … }
 *
 * That is what graphs are: no control flow. What a stranger's module may ask for is bounded by MOST_OPS and MOST_TEXT.
 */
#include "graph/stablehlo/read.h"

#include "graph/fold.h"
#include "graph/interp/interp.h"
#include "graph/stablehlo/stablehlo.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_OPS = 1 << 17, MOST_CALLS = 64, FOLD_MOST_ELEMENTS = 16 };
static const size_t MOST_TEXT = (size_t)1 << 28;

int read_fail(const Read *r, const MlirOp *op, const char *format, ...)
{
    char message[500];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return lex_fail_at(&r->m->lex, op->at, "%.*s %s", op->name.n < 80 ? (int)op->name.n : 80,
                       op->name.p, message);
}

int read_built(const Read *r, const MlirOp *op)
{
    const cvn_err *e = &r->g->err;
    return e->code ? lex_fail_at(&r->m->lex, op->at, "%s", e->message) : CVN_OK;
}

cvn_value *read_as(cvn_graph *g, cvn_value *x, cvn_dtype dtype)
{
    return x->type.dtype == dtype ? x : cvn_convert(g, x, dtype);
}

int read_ints(Read *r, const MlirOp *op, const char *name, const char *other, Ints *out)
{
    const Span *value = mlir_find(&op->attr, name, other);
    *out = (Ints){0};
    return value ? mlir_ints(r->m, *value, out, r->g) : CVN_OK;
}

int read_int(Read *r, const MlirOp *op, const char *name, const char *other, int64_t *out)
{
    const Span *value = mlir_find(&op->attr, name, other);
    return value ? mlir_int(r->m, *value, out) : read_fail(r, op, "has no attribute %s", name);
}

bool read_constant(const cvn_value *v, double *value)
{
    if (v->def->kind != OP_CONSTANT || cvn_type_elements(&v->type) != 1)
        return false;
    *value = element_get(v->type.dtype, v->def->attr.literal.data, 0);
    return true;
}

cvn_value *read_folded(Read *r, cvn_value *v)
{
    if (r->g->err.code || v->def->kind == OP_CONSTANT || v->def->n_results != 1 ||
        cvn_type_elements(&v->type) > FOLD_MOST_ELEMENTS)
        return v;
    if (v->def->kind == OP_IOTA) { /* which a condition of a loop may be made of */
        size_t bytes = cvn_type_bytes(&v->type);
        void *data = arena_alloc(&r->g->arena, bytes + 1);
        interp_op(v->def, NULL, &data);
        return fold_constant(r->g, &v->type, &(Literal){false, bytes, data});
    }
    cvn_value *folded = fold_op(r->g, v->def);
    return folded ? folded : v;
}

/* ---- operations ---- */

/* The name without its dialect, "stablehlo.", "chlo." or "mhlo."; false where it is of another. */
static bool own_name(Span full, Span *name)
{
    static const char *const dialect[] = {"stablehlo.", "chlo.", "mhlo."};
    for (size_t i = 0; i < sizeof dialect / sizeof *dialect; i++) {
        size_t n = strlen(dialect[i]);
        *name = (Span){full.p + n, full.n - n};
        if (full.n > n && memcmp(full.p, dialect[i], n) == 0)
            return true;
    }
    return false;
}

static ReadFn *row_of(const ReadRow *rows, Span name)
{
    for (; rows->name; rows++)
        if (span_is(name, rows->name))
            return rows->read;
    return NULL;
}

static ReadFn read_call, read_composite, read_while, read_case, read_if, read_constraint;

static ReadFn *find_reader(const MlirOp *op)
{
    static const ReadRow control[] = {{"while", read_while},
                                      {"case", read_case},
                                      {"if", read_if},
                                      {"composite", read_composite},
                                      {NULL, NULL}};
    const ReadRow *const tables[] = {control, read_rows, read_reducers, read_maths};
    Span name;
    if (span_is(op->name, "call") || span_is(op->name, "func.call"))
        return read_call;
    if (span_is(op->name, "sdy.sharding_constraint"))
        return read_constraint;
    if (!own_name(op->name, &name))
        return NULL;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (row_of(tables[i], name))
            return row_of(tables[i], name);
    return read_kind(name) < OP_COUNT ? read_plain : NULL;
}

/* A value that is i64 may be u32 in the graph. */
static bool has_type(const ReadValue *value, const MlirType *type)
{
    cvn_type is = value->v->type;
    if (type->wide && is.dtype == CVN_U32)
        is.dtype = type->type.dtype;
    return cvn_type_equal(&is, &type->type) && value->wide == type->wide;
}

/* That the results are of the types that are written. */
static int check_results(Read *r, const MlirOp *op, const ReadValue *out)
{
    char is[TYPE_TEXT], wants[TYPE_TEXT];
    for (size_t i = 0; i < op->result.n; i++) {
        const MlirType *type = &op->out.v[i];
        if (!has_type(&out[i], type))
            return read_fail(
                r, op, "is %s%s, but %s%s is written as its type",
                type_text(&out[i].v->type, is, sizeof is), out[i].wide ? " of i64" : "",
                type_text(&type->type, wants, sizeof wants), type->wide ? " of i64" : "");
    }
    return CVN_OK;
}

static int check_types(Read *r, const MlirOp *op, const MlirTypes *types)
{
    for (size_t i = 0; i < types->n; i++) {
        Span fault = types->v[i].fault;
        if (types->v[i].type.dtype == CVN_DTYPE_COUNT)
            return read_fail(r, op,
                             "has type %.*s; supported are tensors of f64, f32, bf16, f16, "
                             "i32, ui32, i8, i4 and i1 of known sizes and at most %d "
                             "dimensions",
                             fault.n < 60 ? (int)fault.n : 60, fault.p, CVN_MAX_RANK);
    }
    return CVN_OK;
}

/* Operands; where a block of a reduction uses a constant from around it, one of its own. */
static int take_operands(Read *r, const MlirOp *op, ReadValue *in)
{
    for (size_t i = 0; i < op->operand.n; i++) {
        in[i] = r->slot[op->operand.v[i]];
        if (in[i].g == r->g)
            continue;
        if (!in[i].g || in[i].v->def->kind != OP_CONSTANT)
            return read_fail(r, op, "uses a value from outside of the block that it is in");
        in[i] = (ReadValue){fold_constant(r->g, &in[i].v->type, &in[i].v->def->attr.literal), r->g,
                            in[i].wide};
    }
    return CVN_OK;
}

static int read_op(Read *r, const MlirOp *op)
{
    SCOPED(scoped_free) ReadValue *in = calloc(op->operand.n + op->result.n + 1, sizeof *in);
    ReadFn *read = find_reader(op);
    if (!in)
        return err_set(r->err, CVN_EMEM, "no memory to read a module");
    if (++r->n_ops > MOST_OPS)
        return read_fail(r, op, "is beyond %d operations, with calls and loops written out",
                         MOST_OPS);
    r->n_text += op->literal ? 0 : op->length;
    if (r->n_text > MOST_TEXT)
        return read_fail(r, op, "is beyond %zu characters, with calls and loops written out",
                         MOST_TEXT);
    if (!read)
        return read_fail(r, op, "is not supported: graphs have no such operation");
    TRY(check_types(r, op, &op->in));
    TRY(check_types(r, op, &op->out));
    if (op->out.n != op->result.n)
        return read_fail(r, op, "defines %zu values, and has types of %zu", op->result.n,
                         op->out.n);
    TRY(take_operands(r, op, in));
    ReadValue *out = in + op->operand.n;
    TRY(read(r, op, in, out));
    TRY(read_built(r, op));
    for (size_t i = 0; i < op->result.n; i++)
        out[i].v = read_folded(r, out[i].v);
    TRY(check_results(r, op, out));
    for (size_t i = 0; i < op->result.n; i++)
        r->slot[op->result.v[i]] = (ReadValue){out[i].v, r->g, out[i].wide};
    return CVN_OK;
}

int read_block(Read *r, const MlirBlock *block, const ReadValue *argument, size_t n, ReadValue *out)
{
    const MlirOp *op = block->first;
    for (size_t i = 0; i < block->argument.n; i++)
        r->slot[block->argument.v[i]] = (ReadValue){argument[i].v, r->g, argument[i].wide};
    for (; !span_is(op->name, "return"); op = op->next)
        TRY(read_op(r, op));
    if (op->operand.n != n)
        return read_fail(r, op, "gives %zu values, expected %zu", op->operand.n, n);
    return take_operands(r, op, out);
}

int read_body(Read *r, const MlirOp *op, cvn_graph **body)
{
    enum { MOST = 64 };
    ReadValue argument[MOST], result[MOST];
    cvn_graph *outside = r->g;
    if (op->n_blocks != 1 || op->block[0].argument.n > MOST ||
        op->block[0].type.n != op->block[0].argument.n)
        return read_fail(r, op, "has no block of at most %d arguments with their types", MOST);
    const MlirBlock *block = &op->block[0];
    const MlirOp *last = block->first;
    while (last->next)
        last = last->next;
    size_t n = last->operand.n;
    if (n > MOST)
        return read_fail(r, op, "has a block of more than %d results", MOST);
    TRY(check_types(r, op, &block->type));
    SCOPED(graph_release) cvn_graph *g = cvn_graph_new("body", r->err);
    if (!g)
        return CVN_EMEM;
    r->g = g;
    r->total = false;
    for (size_t i = 0; i < block->argument.n; i++) {
        char name[16];
        snprintf(name, sizeof name, "%zu", i);
        argument[i] =
            (ReadValue){cvn_parameter(g, name, block->type.v[i].type), g, block->type.v[i].wide};
    }
    int code = read_block(r, block, argument, n, result);
    for (size_t i = 0; i < n && !code; i++)
        cvn_output(g, result[i].v);
    code = code ? code : read_built(r, op);
    r->g = outside;
    if (code)
        return code;
    *body = g;
    g = NULL;
    return CVN_OK;
}

/* ---- calls ---- */

/* f, of given arguments. */
static int carry_out(Read *r, const MlirOp *op, const MlirFunction *f, const ReadValue *in,
                     size_t n_out, ReadValue *out)
{
    const int shown = f->name.n < 60 ? (int)f->name.n : 60;
    if (op->operand.n != f->body.argument.n)
        return read_fail(r, op, "gives %zu arguments, and @%.*s takes %zu", op->operand.n, shown,
                         f->name.p, f->body.argument.n);
    if (r->calls == MOST_CALLS)
        return read_fail(r, op, "is called %d calls deep", MOST_CALLS);
    SCOPED(scoped_free) ReadValue *slot = calloc((size_t)f->n_slots + 1, sizeof *slot);
    ReadValue *outside = r->slot;
    if (!slot)
        return err_set(r->err, CVN_EMEM, "no memory to read a module");
    TRY(check_types(r, op, &f->body.type));
    for (size_t i = 0; i < op->operand.n; i++) {
        if (!has_type(&in[i], &f->body.type.v[i]))
            return read_fail(r, op, "gives argument %zu another type than @%.*s takes", i, shown,
                             f->name.p);
    }
    r->n_text += (size_t)f->n_slots;
    r->slot = slot;
    r->calls++;
    int code = read_block(r, &f->body, in, n_out, out);
    r->calls--;
    r->slot = outside;
    return code;
}

static int call_named(Read *r, const MlirOp *op, Span name, const ReadValue *in, ReadValue *out)
{
    const MlirFunction *f = mlir_function(r->m, name);
    if (!f)
        return read_fail(r, op, "names @%.*s, which is not defined", name.n < 60 ? (int)name.n : 60,
                         name.p);
    return carry_out(r, op, f, in, op->result.n, out);
}

static int read_call(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *callee = mlir_find(&op->attr, "callee", NULL);
    Span name = op->symbol;
    if (!name.n && callee && callee->n > 1)
        name = (Span){callee->p + 1, callee->n - 1};
    return call_named(r, op, name, in, out);
}

/* A composite is what its decomposition says. */
static int read_composite(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *name = mlir_find(&op->attr, "decomposition", NULL);
    if (!name || name->n < 2)
        return read_fail(r, op, "has no decomposition");
    return call_named(r, op, (Span){name->p + 1, name->n - 1}, in, out);
}

/* ---- control flow ---- */

static int read_while(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    size_t n = op->operand.n;
    SCOPED(scoped_free) ReadValue *now = calloc(n + 1, sizeof *now);
    if (!now)
        return err_set(r->err, CVN_EMEM, "no memory to read a module");
    if (op->n_blocks != 2 || op->block[0].argument.n != n || op->block[1].argument.n != n ||
        op->result.n != n)
        return read_fail(r, op, "has no condition and body of its %zu values", n);
    memcpy(out, in, n * sizeof *out);
    for (;;) {
        ReadValue more;
        double goes_on;
        if (++r->n_ops > MOST_OPS)
            return read_fail(r, op, "has more than %d turns", MOST_OPS);
        memcpy(now, out, n * sizeof *now);
        TRY(check_results(r, op, now));
        TRY(read_block(r, &op->block[0], now, 1, &more));
        if (!read_constant(more.v, &goes_on))
            return read_fail(r, op,
                             "depends on data; loops of graphs have a constant number of "
                             "turns");
        if (goes_on == 0)
            return CVN_OK;
        TRY(read_block(r, &op->block[1], now, n, out));
    }
}

/* What choice i of op->block is, where it is known; else all, and the selected: which(i) is a bool. */
static int choose(Read *r, const MlirOp *op, cvn_value *index, ReadValue *out)
{
    size_t n = op->result.n, last = op->n_blocks - 1;
    double known;
    if (read_constant(index, &known)) {
        size_t i = known >= 0 && known < (double)last ? (size_t)known : last;
        return read_block(r, &op->block[i], NULL, n, out);
    }
    SCOPED(scoped_free) ReadValue *other = calloc(n + 1, sizeof *other);
    if (!other)
        return err_set(r->err, CVN_EMEM, "no memory to read a module");
    TRY(read_block(r, &op->block[last], NULL, n, out));
    TRY(check_results(r, op, out));
    for (size_t i = 0; i < last; i++) {
        cvn_value *number = cvn_splat(r->g, index->type, (double)i);
        cvn_value *is = cvn_compare_values(r->g, CVN_EQ, index, number);
        TRY(read_block(r, &op->block[i], NULL, n, other));
        TRY(check_results(r, op, other));
        for (size_t k = 0; k < n; k++)
            out[k].v = cvn_select(r->g, is, other[k].v, out[k].v);
    }
    return CVN_OK;
}

static int check_choices(Read *r, const MlirOp *op, size_t least)
{
    if (op->operand.n != 1 || op->n_blocks < least)
        return read_fail(r, op, "has no choice of blocks");
    for (size_t i = 0; i < op->n_blocks; i++)
        if (op->block[i].argument.n)
            return read_fail(r, op, "has a block with arguments");
    return CVN_OK;
}

static int read_case(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    TRY(check_choices(r, op, 1));
    if (in[0].v->type.dtype != CVN_I32 || in[0].v->type.rank)
        return read_fail(r, op, "requires an i32 scalar to choose by");
    return choose(r, op, in[0].v, out);
}

/* The first block where it is true: choice 0 of "not". */
static int read_if(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    TRY(check_choices(r, op, 2));
    if (op->n_blocks != 2 || in[0].v->type.dtype != CVN_BOOL || in[0].v->type.rank)
        return read_fail(r, op, "requires a bool scalar and two blocks");
    cvn_value *index = cvn_convert(r->g, cvn_not(r->g, in[0].v), CVN_I32);
    return choose(r, op, read_folded(r, index), out);
}

/* ---- shardings, as Shardy writes them ---- */

/* "[{"data"}, {}, {?}]", behind an optional @mesh, of a value. */
static int mark(Read *r, const char *at, Span text, cvn_value *v)
{
    Lexer lex = mlir_lexer(r->m, text);
    cvn_spec spec = {.rank = v->type.rank};
    int d = 0;
    while (lex.p < lex.end && *lex.p != '[')
        lex.p++;
    TRY(lex_need(&lex, '[', "and a sharding"));
    while (!lex_take(&lex, ']')) {
        if (d == spec.rank)
            return lex_fail_at(&r->m->lex, at, "a sharding has more dimensions than its value");
        TRY(lex_need(&lex, '{', "and the axes of a dimension"));
        while (!lex_take(&lex, '}')) {
            const char *axis;
            if (lex_take(&lex, '?') || lex_take(&lex, ','))
                continue;
            if (spec.dim[d].n == CVN_MAX_SPEC_AXES)
                return lex_fail_at(&r->m->lex, at, "a dimension is split by more than %d axes",
                                   CVN_MAX_SPEC_AXES);
            TRY(lex_string(&lex, &r->g->arena, &axis));
            if (!lex_is_plain_name(axis) || (lex.p < lex.end && *lex.p == ':'))
                return lex_fail_at(&r->m->lex, at, "axis \"%.40s\" is not a plain name", axis);
            spec.dim[d].axis[spec.dim[d].n++] = axis;
        }
        d++;
        lex_take(&lex, ',');
    }
    if (d != spec.rank)
        return lex_fail_at(&r->m->lex, at, "a sharding has %d dimensions, and its value %d", d,
                           spec.rank);
    cvn_mark_sharding(r->g, v, &spec);
    return CVN_OK;
}

/* The value itself, marked. */
static int read_constraint(Read *r, const MlirOp *op, const ReadValue *in, ReadValue *out)
{
    const Span *sharding = mlir_find(&op->attr, "sharding", NULL);
    if (op->operand.n != 1 || op->result.n != 1 || !sharding)
        return read_fail(r, op, "has no operand and sharding");
    out[0] = in[0];
    out[0].v = cvn_optimization_barrier(r->g, in[0].v);
    return mark(r, op->at, *sharding, out[0].v);
}

/* ---- the module ---- */

static int read_main(Read *r)
{
    const MlirModule *m = r->m;
    const MlirFunction *f = mlir_function(m, (Span){"main", 4});
    f = f ? f : m->first;
    const MlirOp *last = f->body.first;
    while (last->next)
        last = last->next;
    const MlirOp call = {.at = f->at, .name = {"main", 4}, .operand = f->body.argument};
    size_t n = f->body.argument.n, n_out = last->operand.n;
    SCOPED(scoped_free) ReadValue *in = calloc(n + n_out + 1, sizeof *in);
    if (!in)
        return err_set(r->err, CVN_EMEM, "no memory to read a module");
    TRY(check_types(r, &call, &f->body.type));
    for (size_t i = 0; i < n; i++) {
        const Span *sharding = mlir_find(&f->argument[i], "sdy.sharding", NULL);
        const MlirType *type = &f->body.type.v[i];
        char *name = arena_stringn(&r->g->arena, f->argument_name[i].p, f->argument_name[i].n);
        in[i] = (ReadValue){cvn_parameter(r->g, name, type->type), r->g, false};
        if (type->wide)
            return lex_fail_at(&m->lex, f->argument_name[i].p - 1,
                               "%%%.60s is of i64; the integers of graphs have 32 bits at most",
                               name);
        if (sharding)
            TRY(mark(r, f->argument_name[i].p - 1, *sharding, in[i].v));
    }
    ReadValue *out = in + n;
    TRY(carry_out(r, &call, f, in, n_out, out));
    for (size_t k = 0; k < n_out; k++) {
        cvn_value *into = NULL;
        if (out[k].wide)
            return read_fail(r, last, "gives i64; the integers of graphs have 32 bits at most");
        for (size_t i = 0; i < n; i++) {
            const Span *alias = mlir_find(&f->argument[i], "tf.aliasing_output", NULL);
            int64_t output = -1;
            if (alias)
                TRY(mlir_int(m, *alias, &output));
            into = alias && output == (int64_t)k ? in[i].v : into;
        }
        cvn_output_into(r->g, out[k].v, into);
        TRY(read_built(r, last));
    }
    return CVN_OK;
}

/* <["data"=2, "model"=2]> as "data=2,model=2". */
static int read_mesh(const MlirModule *m, cvn_graph *g)
{
    SCOPED(strbuf_free) StrBuf text = {0};
    for (size_t i = 0; i < m->mesh.n; i++)
        if (lex_is_name_char(m->mesh.p[i]) || strchr("=,", m->mesh.p[i]))
            strbuf_putc(&text, m->mesh.p[i]);
    if (!text.failed && text.length)
        g->mesh = arena_stringn(&g->arena, text.text, text.length);
    return CVN_OK;
}

static int read_module(cvn_graph *g, const char *text, size_t n, const char *filename, cvn_err *err)
{
    MlirModule m;
    SCOPED(arena_free) Arena arena = {0};
    TRY(arena_begin(&arena, err));
    TRY(mlir_parse(&m, text, n, filename, &arena, err));
    Read r = {.m = &m, .whole = g, .g = g, .err = err};
    g->name = m.name.n ? arena_stringn(&g->arena, m.name.p, m.name.n) : "module";
    TRY(read_mesh(&m, g));
    TRY(read_main(&r));
    graph_remove_dead(g);
    return CVN_OK;
}

cvn_graph *graph_read_stablehlo(const char *text, size_t n, const char *filename, cvn_err *err)
{
    cvn_err local = {0};
    SCOPED(graph_release) cvn_graph *g = cvn_graph_new("module", &local);
    if (g && read_module(g, text, n, filename, &local) == CVN_OK) {
        cvn_graph *made = g;
        g = NULL;
        return made;
    }
    err_set_at(err, local.code, local.file, local.line, "%s", local.message);
    return NULL;
}
