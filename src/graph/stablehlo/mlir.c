/*
 * module    = ["module" ["@" name] ["attributes" {…}] "{"] (function | "sdy.mesh" "@" name "=" <…>)* ["}"]
 * function  = "func.func" ["public" | "private"] "@" name "(" [argument ("," argument)*] ")" ["->" results] block
 * block     = "{" ["^" name ["(" argument ("," argument)* ")"] ":"] operation* "}"
 * operation = [result ("," result)* "="] name piece* [":" types ["->" types]] tail*
 * piece     = value | "(" … ")" | "[" … "]" | "<{" … "}>" | "{" … "}" | "@" name | name ["=" text] | string | "dense<" … ">"
 * tail      = "reducer" arguments block | "cond" block "do" block | "loc(" … ")"
 */
#include "graph/stablehlo/mlir.h"

#include <ctype.h>
#include <string.h>

enum { DEEPEST = 32 };
static const size_t LONGEST_TEXT = (size_t)256 << 20;

typedef struct Reader {
    MlirModule *m;
    Lexer lex;
    Arena *arena; /* of the tree */
    Map names; /* of the function that is being read: name -> slot + 1, or 0 where it is out of sight */
    Span *defined; /* [n_defined] in order, so that a block's end takes back what it defined */
    size_t n_defined;
    int n_slots;
    int depth;
} Reader;

static int parse_block(Reader *r, MlirBlock *block);

/* ---- pieces of text ---- */

static bool at_end(const Lexer *lex)
{
    return lex->p == lex->end;
}

static bool next_is(Lexer *lex, char c)
{
    lex_space(lex);
    return !at_end(lex) && *lex->p == c;
}

static bool take_arrow(Lexer *lex)
{
    lex_space(lex);
    if (lex->end - lex->p < 2 || lex->p[0] != '-' || lex->p[1] != '>')
        return false;
    lex->p += 2;
    return true;
}

/* Behind the quotes of a string that begins here. */
static int skip_string(Lexer *lex)
{
    const char *at = lex->p++;
    while (!at_end(lex) && *lex->p != '"')
        lex->p += *lex->p == '\\' && lex->end - lex->p > 1 ? 2 : 1;
    if (at_end(lex))
        return lex_fail_at(lex, at, "a string is not closed");
    lex->p++;
    return CVN_OK;
}

/* Text up to one of the characters of `until`, which is outside of brackets and strings, or to a bracket that closes what was
   opened before. */
static int skip_until(Lexer *lex, const char *until, Span *text)
{
    char open[DEEPEST * 2];
    int depth = 0;
    lex_space(lex);
    const char *begin = lex->p;
    for (; !at_end(lex); lex->p++) {
        static const char opening[] = "([{<", closing[] = ")]}>";
        char c = *lex->p;
        if (depth == 0 && strchr(until, c) && c)
            break;
        if (c == '"') {
            TRY(skip_string(lex));
            lex->p--;
            continue;
        }
        if (c == '-' && lex->end - lex->p > 1 && lex->p[1] == '>') {
            lex->p++;
            continue;
        }
        const char *opens = c ? strchr(opening, c) : NULL, *closes = c ? strchr(closing, c) : NULL;
        if (opens) {
            if (depth == (int)sizeof open)
                return lex_fail_at(lex, lex->p, "brackets are more than %d deep", (int)sizeof open);
            open[depth++] = closing[opens - opening];
        } else if (closes) {
            if (depth == 0)
                break;
            if (open[--depth] != c)
                return lex_fail_at(lex, lex->p, "found '%c', expected '%c'", c, open[depth]);
        }
    }
    if (at_end(lex) && depth)
        return lex_fail_at(lex, begin, "a bracket is not closed");
    const char *end = lex->p;
    while (end > begin && isspace((unsigned char)end[-1]))
        end--;
    *text = (Span){begin, (size_t)(end - begin)};
    return CVN_OK;
}

/* What a bracket that begins here encloses, without it. */
static int take_group(Lexer *lex, Span *inside)
{
    char close = *lex->p == '(' ? ')' : *lex->p == '[' ? ']' : *lex->p == '{' ? '}' : '>';
    lex->p++;
    TRY(skip_until(lex, "", inside));
    return lex_need(lex, close, "that closes a bracket");
}

/* Whether "loc(…)" is next, where an operation comes from. */
static bool comes_place(const Lexer *lex)
{
    Lexer ahead = *lex;
    return lex_take_word(&ahead, "loc") && next_is(&ahead, '(');
}

static int skip_place(Lexer *lex)
{
    Span skipped;
    if (!comes_place(lex))
        return CVN_OK;
    lex_take_word(lex, "loc");
    lex_space(lex);
    return take_group(lex, &skipped);
}

/* ---- names ---- */

static bool is_value_char(char c)
{
    return lex_is_name_char(c) || c == '$';
}

/* The name behind '%', '@' or '^', which is next. */
static int sigil_name(Lexer *lex, Span *name)
{
    const char *at = lex->p++;
    if (*at == '@' && !at_end(lex) && *lex->p == '"') {
        const char *begin = lex->p;
        TRY(skip_string(lex));
        *name = (Span){begin + 1, (size_t)(lex->p - begin) - 2};
        return CVN_OK;
    }
    *name = (Span){lex->p, 0};
    while (!at_end(lex) && is_value_char(*lex->p))
        lex->p++;
    name->n = (size_t)(lex->p - name->p);
    return name->n ? CVN_OK : lex_fail_at(lex, at, "expected a name after '%c'", *at);
}

static int take_symbol(Lexer *lex, Span *name)
{
    return next_is(lex, '@') ? sigil_name(lex, name) : lex_expected(lex, "a name such as @main");
}

/* A value that is defined here: `count` slots from *slot on. */
static int define(Reader *r, Span name, int count, int *slot)
{
    uint64_t *entry = map_put(&r->names, name.p, name.n, NULL);
    if (*entry)
        return lex_fail_at(&r->lex, name.p - 1, "value '%%%.*s' is defined twice",
                           name.n < 60 ? (int)name.n : 60, name.p);
    r->defined = arena_more(r->arena, r->defined, r->n_defined, sizeof *r->defined);
    r->defined[r->n_defined++] = name;
    *slot = r->n_slots;
    *entry = (uint64_t)(r->n_slots + 1) | (uint64_t)count << 32;
    if (count > (1 << 24) - r->n_slots)
        return lex_fail_at(&r->lex, name.p - 1, "a function has more than %d values", 1 << 24);
    r->n_slots += count;
    return CVN_OK;
}

static void add_slot(Reader *r, MlirSlots *list, int slot)
{
    list->v = arena_more(r->arena, list->v, list->n, sizeof *list->v);
    list->v[list->n++] = slot;
}

/* "%x" or "%x#1", which is next. */
static int take_use(Reader *r, MlirSlots *list)
{
    Lexer *lex = &r->lex;
    Span name;
    int64_t which = 0;
    TRY(sigil_name(lex, &name));
    if (!at_end(lex) && *lex->p == '#') {
        lex->p++;
        TRY(lex_int(lex, &which, "the number of a result"));
    }
    const uint64_t *entry = map_get(&r->names, name.p, name.n);
    if (!entry || !*entry)
        return lex_fail_at(lex, name.p - 1,
                           "found '%%%.*s', expected a value that is defined above",
                           name.n < 60 ? (int)name.n : 60, name.p);
    int64_t count = (int64_t)(*entry >> 32);
    if (which < 0 || which >= count)
        return lex_fail_at(lex, name.p - 1, "'%%%.*s' has %d results",
                           name.n < 60 ? (int)name.n : 60, name.p, (int)count);
    add_slot(r, list, (int)((uint32_t)*entry - 1) + (int)which);
    return CVN_OK;
}

/* ---- types ---- */

static const char *word_of_type(Lexer *lex, const char *p)
{
    while (p < lex->end && (isalnum((unsigned char)*p) || *p == '_'))
        p++;
    return p;
}

static bool parse_element(const char *p, size_t n, MlirType *type)
{
    char text[16] = "";
    if (n == 0 || n >= sizeof text)
        return false;
    memcpy(text, p, n);
    type->wide = strcmp(text, "i64") == 0;
    if (type->wide)
        type->type.dtype = CVN_I32;
    else if (strcmp(text, "ui32") == 0)
        type->type.dtype = CVN_U32;
    else if (strcmp(text, "u32") == 0 || !cvn_dtype_parse(text, &type->type.dtype))
        return false;
    return true;
}

/* "tensor<2x3xf32>". Any other type is kept as a text, for whoever would have to use it. */
static int take_type(Lexer *lex, MlirType *type)
{
    lex_space(lex);
    const char *begin = lex->p;
    *type = (MlirType){0};
    if (lex->end - begin > 7 && memcmp(begin, "tensor<", 7) == 0) {
        const char *p = begin + 7;
        bool sane = true;
        while (sane && p < lex->end && isdigit((unsigned char)*p)) {
            int64_t n = 0;
            for (; p < lex->end && isdigit((unsigned char)*p); p++)
                if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
                    sane = false;
            sane = sane && p < lex->end && *p++ == 'x' && type->type.rank < CVN_MAX_RANK;
            if (sane)
                type->type.dim[type->type.rank++] = n;
        }
        const char *end = word_of_type(lex, p);
        if (sane && end < lex->end && *end == '>' && parse_element(p, (size_t)(end - p), type) &&
            !type_fault(&type->type)) {
            lex->p = end + 1;
            return CVN_OK;
        }
    }
    Span all;
    lex->p = begin;
    TRY(skip_until(lex, " ,\n{", &all));
    *type = (MlirType){.type.dtype = CVN_DTYPE_COUNT, .fault = all};
    return type->fault.n ? CVN_OK : lex_expected(lex, "a type such as tensor<2x3xf32>");
}

static int add_type(Reader *r, MlirTypes *list)
{
    list->v = arena_more(r->arena, list->v, list->n, sizeof *list->v);
    return take_type(&r->lex, &list->v[list->n++]);
}

/* "T", "T, U" or "(T, U)"; attributes behind the types of a function's results are passed over. */
static int take_types(Reader *r, MlirTypes *list)
{
    Lexer *lex = &r->lex;
    Span skipped;
    bool group = lex_take(lex, '(');
    if (group && lex_take(lex, ')'))
        return CVN_OK;
    do {
        TRY(add_type(r, list));
        if (group && next_is(lex, '{'))
            TRY(take_group(lex, &skipped));
    } while (lex_take(lex, ','));
    return group ? lex_need(lex, ')', "after types") : CVN_OK;
}

/* ---- attributes ---- */

static void add_attr(Arena *arena, MlirAttrs *list, Span name, Span value)
{
    list->v = arena_more(arena, list->v, list->n, sizeof *list->v);
    list->v[list->n++] = (MlirAttr){name, value};
}

/* "a = 1 : i64, b" up to a closing bracket. */
static int take_attrs(Lexer *lex, MlirAttrs *list, Arena *arena)
{
    for (;;) {
        Span name, value = {0};
        lex_space(lex);
        if (at_end(lex) || strchr(")]}>", *lex->p))
            return CVN_OK;
        if (*lex->p == '"') {
            const char *begin = lex->p;
            TRY(skip_string(lex));
            name = (Span){begin + 1, (size_t)(lex->p - begin) - 2};
        } else {
            TRY(lex_name(lex, &name, "the name of an attribute"));
        }
        if (lex_take(lex, '='))
            TRY(skip_until(lex, ",", &value));
        add_attr(arena, list, name, value);
        if (!lex_take(lex, ','))
            return CVN_OK;
    }
}

/* "{a = 1}" or "<{a = 1}>", which is next. */
static int take_dictionary(Reader *r, MlirAttrs *list)
{
    Lexer *lex = &r->lex;
    bool properties = lex_take(lex, '<');
    TRY(lex_need(lex, '{', "and attributes"));
    TRY(take_attrs(lex, list, r->arena));
    TRY(lex_need(lex, '}', "after attributes"));
    return properties ? lex_need(lex, '>', "after attributes") : CVN_OK;
}

/* ---- blocks ---- */

/* "%a: T {…} loc(…)" up to ")". */
static int take_arguments(Reader *r, MlirBlock *block, MlirFunction *f)
{
    Lexer *lex = &r->lex;
    while (!lex_take(lex, ')')) {
        Span name;
        int slot;
        size_t n = block->argument.n;
        if (n && !lex_take(lex, ','))
            return lex_expected(lex, "',' or ')' after an argument");
        if (!next_is(lex, '%'))
            return lex_expected(lex, "an argument such as %arg0: tensor<2xf32>");
        TRY(sigil_name(lex, &name));
        TRY(define(r, name, 1, &slot));
        add_slot(r, &block->argument, slot);
        TRY(lex_need(lex, ':', "and the type of the argument"));
        TRY(add_type(r, &block->type));
        if (f) {
            f->argument_name = arena_more(r->arena, f->argument_name, n, sizeof *f->argument_name);
            f->argument = arena_more(r->arena, f->argument, n, sizeof *f->argument);
            f->argument_name[n] = name;
            f->argument[n] = (MlirAttrs){0};
            if (next_is(lex, '{'))
                TRY(take_dictionary(r, &f->argument[n]));
        }
        TRY(skip_place(lex));
    }
    return CVN_OK;
}

/* What was defined since then is out of sight. */
static void forget(Reader *r, size_t n_defined)
{
    for (; r->n_defined > n_defined; r->n_defined--) {
        Span name = r->defined[r->n_defined - 1];
        *map_put(&r->names, name.p, name.n, NULL) = 0;
    }
}

static MlirBlock *add_block(Reader *r, MlirOp *op)
{
    op->block = arena_more(r->arena, op->block, op->n_blocks, sizeof *op->block);
    op->block[op->n_blocks] = (MlirBlock){0};
    return &op->block[op->n_blocks++];
}

/* "(%a: T, %b: T) (%c: U, %d: U) {…}": of each operand what was reduced so far, and the next. All of the former come first
   in a block that is written generically. */
static int take_reducer(Reader *r, MlirOp *op)
{
    MlirBlock *block = add_block(r, op), next = {0};
    size_t outside = r->n_defined;
    while (lex_take(&r->lex, '(')) {
        MlirBlock pair = {0};
        TRY(take_arguments(r, &pair, NULL));
        if (pair.argument.n != 2)
            return lex_expected(&r->lex, "two arguments of a reducer for each operand");
        for (size_t i = 0; i < 2; i++) {
            MlirBlock *to = i ? &next : block;
            add_slot(r, &to->argument, pair.argument.v[i]);
            to->type.v = arena_more(r->arena, to->type.v, to->type.n, sizeof *to->type.v);
            to->type.v[to->type.n++] = pair.type.v[i];
        }
    }
    for (size_t i = 0; i < next.argument.n; i++) {
        add_slot(r, &block->argument, next.argument.v[i]);
        block->type.v = arena_more(r->arena, block->type.v, block->type.n, sizeof *block->type.v);
        block->type.v[block->type.n++] = next.type.v[i];
    }
    TRY(parse_block(r, block));
    forget(r, outside);
    return CVN_OK;
}

/* ---- operations ---- */

/* "(%a init: %b), (%c init: %d)", "(%x = %a, %y = %b)", "(%x, k = 5)" or "(%a, %b)": operands, then what they begin with; the
   names of a loop. */
static int take_operands(Reader *r, MlirOp *op, MlirSlots *begin, Span **loop, size_t *n_loop)
{
    Lexer *lex = &r->lex;
    lex->p++;
    while (!lex_take(lex, ')')) {
        Span name;
        if (lex_take(lex, ','))
            continue;
        if (next_is(lex, '%')) {
            const char *at = lex->p;
            TRY(sigil_name(lex, &name));
            if (lex_take(lex, '=')) {
                *loop = arena_more(r->arena, *loop, *n_loop, sizeof **loop);
                (*loop)[(*n_loop)++] = name;
                if (!next_is(lex, '%'))
                    return lex_expected(lex, "a value such as %x");
            } else {
                lex->p = at;
            }
            TRY(take_use(r, &op->operand));
        } else if (lex_take_word(lex, "init")) {
            TRY(lex_need(lex, ':', "and what a reduction begins with"));
            if (!next_is(lex, '%'))
                return lex_expected(lex, "a value such as %x");
            TRY(take_use(r, begin));
        } else {
            Span value = {0};
            TRY(lex_name(lex, &name, "a value such as %x"));
            if (lex_take(lex, '='))
                TRY(skip_until(lex, ",", &value));
            add_attr(r->arena, &op->attr, name, value);
        }
    }
    return CVN_OK;
}

/* "({…}, {…})": the blocks of an operation that is written generically. */
static int take_blocks(Reader *r, MlirOp *op)
{
    Lexer *lex = &r->lex;
    lex->p++;
    do {
        size_t outside = r->n_defined;
        TRY(parse_block(r, add_block(r, op)));
        forget(r, outside);
    } while (lex_take(lex, ','));
    return lex_need(lex, ')', "after blocks");
}

/* A word, or a name with its value, of an operation that is written its own way. */
static int take_word(Reader *r, MlirOp *op)
{
    Lexer *lex = &r->lex;
    Span name, value = {0};
    TRY(lex_name(lex, &name, "an operand, an attribute, or ':' and a type"));
    if (span_is(name, "dense") || span_is(name, "dense_resource")) {
        lex->p = name.p;
        TRY(skip_until(lex, ":", &value));
        name = (Span){"value", 5};
    } else if (span_is(name, "applies")) {
        TRY(lex_name(lex, &value, "the name of an operation"));
    } else if (lex_take(lex, '=')) {
        TRY(skip_until(lex, ",:", &value));
    }
    add_attr(r->arena, &op->attr, name, value);
    return CVN_OK;
}

/* What stands between the name of an operation and its type. */
static int take_pieces(Reader *r, MlirOp *op, MlirSlots *begin, Span **loop, size_t *n_loop)
{
    Lexer *lex = &r->lex;
    for (;;) {
        Span text;
        lex_space(lex);
        char c = at_end(lex) ? '\0' : *lex->p, then = lex->end - lex->p > 1 ? lex->p[1] : '\0';
        if (c == ':') {
            return CVN_OK;
        } else if (c == '%') {
            TRY(take_use(r, &op->operand));
        } else if (c == ',') {
            lex->p++;
        } else if (c == '(') {
            Lexer ahead = *lex;
            ahead.p++;
            TRY((next_is(&ahead, '{') ? take_blocks(r, op)
                                      : take_operands(r, op, begin, loop, n_loop)));
        } else if (c == '{' || (c == '<' && then == '{')) {
            TRY(take_dictionary(r, &op->attr));
        } else if (c == '[' || c == '<') { /* of a slice; of a sharding */
            TRY(take_group(lex, &text));
            add_attr(r->arena, &op->attr, (Span){c == '[' ? "slice" : "sharding", c == '[' ? 5 : 8},
                     text);
        } else if (c == '@') {
            TRY(sigil_name(lex, &op->symbol));
        } else if (c == '"') {
            TRY(skip_string(lex));
        } else if (c == '}' || c == '\0' || comes_place(lex)) { /* a return of nothing */
            return CVN_OK;
        } else {
            TRY(take_word(r, op));
        }
    }
}

/* Blocks of "cond {…} do {…}", whose arguments are those of the loop. */
static int take_loop(Reader *r, MlirOp *op, const Span *loop, size_t n_loop)
{
    if (n_loop != op->operand.n)
        return lex_fail_at(&r->lex, op->at, "a loop has %zu values, and %zu names for them",
                           op->operand.n, n_loop);
    for (int i = 0; i < 2; i++) {
        MlirBlock *block = add_block(r, op);
        size_t outside = r->n_defined;
        if (i == 1 && !lex_take_word(&r->lex, "do"))
            return lex_expected(&r->lex, "'do' and the body of a loop");
        for (size_t k = 0; k < n_loop; k++) {
            int slot;
            TRY(define(r, loop[k], 1, &slot));
            add_slot(r, &block->argument, slot);
        }
        TRY(parse_block(r, block));
        forget(r, outside);
    }
    return CVN_OK;
}

static int take_tail(Reader *r, MlirOp *op, const Span *loop, size_t n_loop)
{
    Lexer *lex = &r->lex;
    if (lex_take(lex, ':')) {
        TRY(take_types(r, &op->in));
        if (take_arrow(lex)) {
            TRY(take_types(r, &op->out));
        } else {
            op->out = op->in;
            op->in = (MlirTypes){0};
        }
    }
    if (lex_take_word(lex, "attributes"))
        TRY(take_dictionary(r, &op->attr));
    if (lex_take_word(lex, "reducer"))
        TRY(take_reducer(r, op));
    else if (lex_take_word(lex, "cond"))
        TRY(take_loop(r, op, loop, n_loop));
    return skip_place(lex);
}

/* "%a:2, %b =", before it is known that the operation defines them. */
typedef struct Results {
    Span *name;
    int *count;
    size_t n;
} Results;

static int take_results(Reader *r, Results *results)
{
    Lexer *lex = &r->lex;
    if (!next_is(lex, '%'))
        return CVN_OK;
    do {
        int64_t count = 1;
        size_t n = results->n;
        if (!next_is(lex, '%'))
            return lex_expected(lex, "a value such as %x");
        results->name = arena_more(r->arena, results->name, n, sizeof *results->name);
        results->count = arena_more(r->arena, results->count, n, sizeof *results->count);
        TRY(sigil_name(lex, &results->name[n]));
        if (lex_take(lex, ':'))
            TRY(lex_int(lex, &count, "the number of results"));
        if (count < 1 || count > 1 << 16)
            return lex_fail_at(lex, results->name[n].p, "an operation has 1 to %d results",
                               1 << 16);
        results->count[n] = (int)count;
        results->n++;
    } while (lex_take(lex, ','));
    return lex_need(lex, '=', "and an operation");
}

static int parse_op(Reader *r, MlirOp *op)
{
    Lexer *lex = &r->lex;
    Results results = {0};
    MlirSlots begin = {0};
    Span *loop = NULL;
    size_t n_loop = 0;
    lex_space(lex);
    op->at = lex->p;
    TRY(take_results(r, &results));
    if (next_is(lex, '"')) {
        const char *at = lex->p;
        TRY(skip_string(lex));
        op->name = (Span){at + 1, (size_t)(lex->p - at) - 2};
    } else {
        TRY(lex_name(lex, &op->name, "an operation"));
    }
    if (span_is(op->name, "sdy.return") || span_is(op->name, "func.return") ||
        span_is(op->name, "stablehlo.return") || span_is(op->name, "mhlo.return"))
        op->name = (Span){"return", 6};
    TRY(take_pieces(r, op, &begin, &loop, &n_loop));
    for (size_t i = 0; i < begin.n; i++)
        add_slot(r, &op->operand, begin.v[i]);
    TRY(take_tail(r, op, loop, n_loop));
    op->length = (size_t)(lex->p - op->at);
    size_t n_results = 0;
    for (size_t i = 0; i < results.n; i++)
        n_results += (size_t)results.count[i];
    const bool fits = n_results == 0 || n_results == op->out.n || (n_results == 1 && op->out.n);
    lex_space(lex);
    if (!fits && at_end(lex))
        return lex_fail_at(lex, op->at,
                           "the text ends within this operation, so the module is not whole");
    if (!fits)
        return lex_fail_at(lex, op->at,
                           "this operation defines %zu results and has %zu types for them",
                           n_results, op->out.n);
    for (size_t i = 0; i < results.n; i++) {
        int slot;
        TRY(define(r, results.name[i], results.count[i], &slot));
        for (int k = 0; k < results.count[i]; k++)
            add_slot(r, &op->result, slot + k);
    }
    if (op->out.n > op->result.n &&
        op->result.n == 1) { /* of a select: the last one is its result's */
        op->in = op->out;
        op->out = (MlirTypes){&op->in.v[op->in.n - 1], 1};
    }
    return CVN_OK;
}

static int parse_block(Reader *r, MlirBlock *block)
{
    Lexer *lex = &r->lex;
    Span skipped;
    MlirOp **end = &block->first, *last = NULL;
    if (r->depth == DEEPEST)
        return lex_fail_at(lex, lex->p, "blocks are more than %d deep", DEEPEST);
    r->depth++;
    TRY(lex_need(lex, '{', "and a block"));
    if (next_is(lex, '^')) {
        TRY(sigil_name(lex, &skipped));
        if (lex_take(lex, '('))
            TRY(take_arguments(r, block, NULL));
        TRY(lex_need(lex, ':', "after the name of a block"));
    }
    while (!lex_take(lex, '}')) {
        if (next_is(lex, '^'))
            return lex_fail_at(lex, lex->p, "jumps between blocks are not supported");
        last = arena_alloc(r->arena, sizeof *last);
        TRY(parse_op(r, last));
        *end = last;
        end = &last->next;
        if (span_is(last->name, "return") && !next_is(lex, '}'))
            return lex_expected(lex, "'}' after a return");
    }
    if (!last || !span_is(last->name, "return"))
        return lex_fail_at(lex, lex->p - 1, "a block has no return");
    r->depth--;
    return CVN_OK;
}

/* ---- functions and modules ---- */

static int parse_function(Reader *r, MlirFunction *f)
{
    Lexer *lex = &r->lex;
    MlirTypes results = {0};
    MlirAttrs skipped = {0};
    map_init(&r->names, r->arena);
    r->n_slots = 0;
    r->n_defined = 0;
    r->depth = 0;
    if (!lex_take_word(lex, "public"))
        lex_take_word(lex, "private");
    lex_space(lex);
    f->at = lex->p;
    TRY(take_symbol(lex, &f->name));
    TRY(lex_need(lex, '(', "and the arguments of a function"));
    TRY(take_arguments(r, &f->body, f));
    if (take_arrow(lex))
        TRY(take_types(r, &results));
    if (lex_take_word(lex, "attributes"))
        TRY(take_dictionary(r, &skipped));
    TRY(parse_block(r, &f->body));
    f->n_slots = r->n_slots;
    return CVN_OK;
}

static int parse_module(Reader *r)
{
    Lexer *lex = &r->lex;
    MlirFunction **end = &r->m->first;
    MlirAttrs skipped = {0};
    Span text;
    bool inside = false;
    for (;;) {
        lex_space(lex);
        if (at_end(lex))
            return inside ? lex_expected(lex, "'}' after a module") : CVN_OK;
        if (*lex->p == '#') { /* an alias of an attribute, such as a place */
            TRY(skip_until(lex, "\n", &text));
        } else if (!inside && !r->m->first && lex_take_word(lex, "module")) {
            inside = true;
            if (next_is(lex, '@'))
                TRY(take_symbol(lex, &r->m->name));
            if (lex_take_word(lex, "attributes"))
                TRY(take_dictionary(r, &skipped));
            TRY(lex_need(lex, '{', "and a module"));
        } else if (inside && lex_take(lex, '}')) {
            inside = false;
            TRY(skip_place(lex));
        } else if (lex_take_word(lex, "func.func")) {
            MlirFunction *f = arena_alloc(r->arena, sizeof *f);
            TRY(parse_function(r, f));
            bool added;
            *map_put(&r->m->functions, f->name.p, f->name.n, &added) = (uintptr_t)f;
            if (!added)
                return lex_fail_at(lex, f->at, "function '@%.*s' is defined twice",
                                   f->name.n < 60 ? (int)f->name.n : 60, f->name.p);
            *end = f;
            end = &f->next;
            TRY(skip_place(lex));
        } else if (lex_take_word(lex, "sdy.mesh")) {
            TRY(take_symbol(lex, &text));
            TRY(lex_need(lex, '=', "and a mesh"));
            if (!next_is(lex, '<'))
                return lex_expected(lex, "a mesh such as <[\"data\"=2]>");
            TRY(take_group(lex, &r->m->mesh));
            TRY(skip_until(lex, "\n", &text));
        } else {
            return lex_expected(lex, "a module, or a function (func.func @main(…) …)");
        }
    }
}

int mlir_parse(MlirModule *m, const char *text, size_t n, const char *filename, Arena *arena,
               cvn_err *err)
{
    *m = (MlirModule){.lex = {filename, text, text + n, text, err}};
    Reader r = {.m = m, .lex = m->lex, .arena = arena};
    map_init(&m->functions, arena);
    if (n > LONGEST_TEXT)
        return err_set(err, CVN_EFORMAT, "%s has %zu bytes; a module in text has at most %zu",
                       filename, n, LONGEST_TEXT);
    TRY(parse_module(&r));
    return m->first ? CVN_OK
                    : err_set(err, CVN_EFORMAT, "%s has no function; expected func.func @main",
                              filename);
}

const MlirFunction *mlir_function(const MlirModule *m, Span name)
{
    const uint64_t *entry = name.n ? map_get(&m->functions, name.p, name.n) : NULL;
    return entry ? (const MlirFunction *)(uintptr_t)*entry : NULL;
}
