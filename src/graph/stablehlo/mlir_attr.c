/* Values of attributes of MLIR, from their text: numbers, lists, fields, and the elements of dense<…>. */
#include "graph/stablehlo/mlir.h"

#include <stdlib.h>
#include <string.h>

Lexer mlir_lexer(const MlirModule *m, Span text)
{
    Lexer lex = m->lex;
    lex.p = text.p;
    lex.end = text.p + text.n;
    return lex;
}

const Span *mlir_find(const MlirAttrs *attrs, const char *name, const char *other)
{
    for (size_t i = 0; i < attrs->n; i++) {
        const MlirAttr *a = &attrs->v[i];
        if (a->value.p && (span_is(a->name, name) || (other && span_is(a->name, other))))
            return &a->value;
    }
    return NULL;
}

bool mlir_has_word(const MlirOp *op, const char *word)
{
    for (size_t i = 0; i < op->attr.n; i++)
        if (!op->attr.v[i].value.p && span_is(op->attr.v[i].name, word))
            return true;
    return false;
}

int mlir_int(const MlirModule *m, Span value, int64_t *out)
{
    Lexer lex = mlir_lexer(m, value);
    return lex_int(&lex, out, "a number");
}

int mlir_fields(const MlirModule *m, Span value, MlirAttrs *fields, Arena *arena)
{
    Lexer lex = mlir_lexer(m, value);
    while (lex.p < lex.end && *lex.p != '<')
        lex.p++;
    TRY(lex_need(&lex, '<', "and fields"));
    for (;;) {
        Span name;
        if (lex_take(&lex, '>'))
            return CVN_OK;
        TRY(lex_name(&lex, &name, "the name of a field"));
        TRY(lex_need(&lex, '=', "and the value of a field"));
        lex_space(&lex);
        const char *begin = lex.p;
        int depth = 0; /* of lists, which are all that fields have */
        for (; lex.p < lex.end && (depth || (*lex.p != ',' && *lex.p != '>')); lex.p++)
            depth += *lex.p == '[' ? 1 : *lex.p == ']' ? -1 : 0;
        fields->v = arena_more(arena, fields->v, fields->n, sizeof *fields->v);
        fields->v[fields->n++] = (MlirAttr){name, {begin, (size_t)(lex.p - begin)}};
        lex_take(&lex, ',');
    }
}

int mlir_ints(const MlirModule *m, Span value, Ints *out, cvn_graph *g)
{
    Lexer lex = mlir_lexer(m, value);
    int64_t *list = NULL;
    size_t n = 0;
    if (lex_take_word(&lex, "array")) {
        TRY(lex_need(&lex, '<', "and numbers"));
        if (!lex_take_word(&lex, "i64") && !lex_take_word(&lex, "i32"))
            return lex_expected(&lex, "i64");
        lex_take(&lex, ':');
    } else if (lex_take_word(&lex, "dense")) {
        TRY(lex_need(&lex, '<', "and numbers"));
    }
    while (lex_take(&lex, '['))
        ;
    while (lex_space(&lex), lex.p < lex.end && *lex.p != '>') {
        if (lex_take(&lex, ']') || lex_take(&lex, '[') || lex_take(&lex, ','))
            continue;
        int64_t number;
        TRY(lex_int(&lex, &number, "a number"));
        list = arena_more(&g->arena, list, n, sizeof *list);
        list[n++] = number;
    }
    if (n > INT32_MAX)
        return lex_fail_at(&lex, value.p, "a list is too long");
    *out = (Ints){(int)n, list};
    return CVN_OK;
}

/* ---- dense<…> ---- */

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* "0x7FC00000": the bits of an element of a float. */
static int take_bits(Lexer *lex, cvn_dtype dtype, void *data, int64_t i)
{
    uint64_t bits = 0;
    int bytes = cvn_dtype_bits(dtype) / 8, digits = 0;
    const char *at = lex->p;
    for (lex->p += 2; lex->p < lex->end && hex_digit(*lex->p) >= 0; lex->p++, digits++)
        bits = bits << 4 | (unsigned)hex_digit(*lex->p);
    if (!dtype_is_float(dtype) || digits != 2 * bytes)
        return lex_fail_at(lex, at, "expected %d hexadecimal digits of an element", 2 * bytes);
    memcpy((char *)data + i * bytes, &bits, (size_t)bytes);
    return CVN_OK;
}

static int take_element(Lexer *lex, const MlirType *type, void *data, int64_t i)
{
    cvn_dtype dtype = type->type.dtype;
    double value;
    lex_space(lex);
    const char *at = lex->p;
    if (lex->end - at > 2 && at[0] == '0' && at[1] == 'x')
        return take_bits(lex, dtype, data, i);
    TRY(lex_number(lex, &value));
    if (!dtype_is_float(dtype) && dtype != CVN_BOOL) {
        static const double least[] = {[CVN_I32] = INT32_MIN, [CVN_I8] = INT8_MIN, [CVN_I4] = -8};
        static const double most[] = {
            [CVN_I32] = INT32_MAX, [CVN_U32] = UINT32_MAX, [CVN_I8] = INT8_MAX, [CVN_I4] = 7};
        double low = dtype == CVN_U32 ? 0 : least[dtype];
        if (!(value >= low && value <= most[dtype]) || value != (double)(int64_t)value)
            return lex_fail_at(
                lex, at, "found %.17g, expected an element of %s, %.0f to %.0f", value,
                type->wide ? "i64 that fits in 32 bits" : cvn_dtype_name(dtype), low, most[dtype]);
    }
    element_set(dtype, data, i, value);
    return CVN_OK;
}

/* "0x0000803F…" in quotes: all elements as they lie in memory, or one for all; bools are bits, i4 are bytes. */
static int take_hex(Lexer *lex, const MlirType *type, Literal *out, cvn_graph *g)
{
    cvn_dtype dtype = type->type.dtype;
    int64_t n = cvn_type_elements(&type->type);
    const char *at = lex->p++, *p = lex->p + 2;
    while (lex->p < lex->end && *lex->p != '"')
        lex->p++;
    if (lex->p == lex->end || lex->p - p < 0 || (lex->p - p) % 2 || p[-2] != '0' || p[-1] != 'x')
        return lex_fail_at(lex, at, "expected \"0x\" and two hexadecimal digits for each byte");
    size_t given = (size_t)(lex->p - p) / 2;
    size_t one = dtype == CVN_BOOL || dtype == CVN_I4 ? 1 : cvn_dtype_bytes(dtype, 1);
    one *= type->wide ? 2 : 1;
    size_t all = dtype == CVN_BOOL ? (size_t)(n + 7) / 8 : one * (size_t)n;
    if (n < 1 || (given != all && given != one))
        return lex_fail_at(lex, at, "found %zu bytes, expected %zu", given, all);
    out->splat = given != all || n == 1;
    int64_t elements = out->splat ? 1 : n;
    out->bytes = cvn_dtype_bytes(dtype, elements);
    unsigned char *bytes = arena_alloc(&g->arena, given);
    for (size_t i = 0; i < given; i++) {
        int high = hex_digit(p[2 * i]), low = hex_digit(p[2 * i + 1]);
        if (high < 0 || low < 0)
            return lex_fail_at(lex, p + 2 * i, "expected two hexadecimal digits");
        bytes[i] = (unsigned char)(high << 4 | low);
    }
    void *data = arena_alloc(&g->arena, out->bytes);
    for (int64_t i = 0; i < elements; i++) {
        if (dtype == CVN_BOOL) {
            element_set(dtype, data, i, bytes[i / 8] >> i % 8 & 1);
        } else if (dtype == CVN_I4) {
            element_set(dtype, data, i, (bytes[i] & 15) - (bytes[i] & 8 ? 16 : 0));
        } else if (type->wide) {
            int64_t value;
            memcpy(&value, bytes + i * 8, sizeof value);
            if (value < INT32_MIN || value > INT32_MAX)
                return lex_fail_at(lex, at, "element %lld of i64 does not fit in 32 bits",
                                   (long long)i);
            element_set(dtype, data, i, (double)value);
        } else {
            memcpy((char *)data + (size_t)i * one, bytes + (size_t)i * one, one);
        }
    }
    out->data = data;
    lex->p++;
    return CVN_OK;
}

/* Elements in nested lists, of whose brackets only the number of elements is looked at. */
static int take_list(Lexer *lex, const MlirType *type, Literal *out, cvn_graph *g)
{
    int64_t n = cvn_type_elements(&type->type), i = 0;
    const char *at = lex->p;
    if (n > lex->end - at) /* an element takes a character */
        return lex_fail_at(lex, at, "found fewer elements than the type has");
    *out = (Literal){false, cvn_type_bytes(&type->type), NULL};
    void *data = arena_alloc(&g->arena, out->bytes ? out->bytes : 1);
    out->data = data;
    int depth = 0;
    do {
        if (lex_take(lex, '[')) {
            depth++;
        } else if (lex_take(lex, ']')) {
            depth--;
        } else if (!lex_take(lex, ',')) {
            if (i == n)
                return lex_fail_at(lex, lex->p, "found more elements than the type has");
            TRY(take_element(lex, type, data, i++));
        }
    } while (depth > 0);
    return i == n ? CVN_OK : lex_fail_at(lex, at, "found fewer elements than the type has");
}

int mlir_dense(const MlirModule *m, Span value, const MlirType *type, Literal *out, cvn_graph *g)
{
    Lexer lex = mlir_lexer(m, value);
    if (!lex_take_word(&lex, "dense"))
        return lex_expected(&lex, "dense<…>: a constant whose elements are in the text");
    TRY(lex_need(&lex, '<', "and elements"));
    lex_space(&lex);
    char c = lex.p < lex.end ? *lex.p : '\0';
    if (c == '"')
        return take_hex(&lex, type, out, g);
    if (c == '[' || c == '>') {
        if (c == '>' && cvn_type_elements(&type->type))
            return lex_fail_at(&lex, lex.p, "found no elements");
        if (c == '>') {
            *out = (Literal){false, 0, arena_alloc(&g->arena, 1)};
            return CVN_OK;
        }
        return take_list(&lex, type, out, g);
    }
    *out = (Literal){true, cvn_dtype_bytes(type->type.dtype, 1), NULL};
    void *data = arena_alloc(&g->arena, out->bytes);
    out->data = data;
    return take_element(&lex, type, data, 0);
}
