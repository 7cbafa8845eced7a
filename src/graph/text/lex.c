#include "graph/text/lex.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool lex_is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
}

bool lex_is_plain_name(const char *text)
{
    enum { LONGEST = 200 };
    size_t n = 0;
    if (!text || !text[0] || (text[0] >= '0' && text[0] <= '9'))
        return false;
    while (n < LONGEST && lex_is_name_char(text[n]))
        n++;
    return text[n] == '\0';
}

void lex_space(Lexer *lex)
{
    for (;;) {
        while (lex->p < lex->end &&
               (*lex->p == ' ' || *lex->p == '\t' || *lex->p == '\n' || *lex->p == '\r'))
            lex->p++;
        if (lex->end - lex->p < 2 || lex->p[0] != '/' || lex->p[1] != '/')
            return;
        while (lex->p < lex->end && *lex->p != '\n')
            lex->p++;
    }
}

int lex_fail_at(const Lexer *lex, const char *at, const char *format, ...)
{
    char message[800];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    const char *start = lex->text; /* of the line */
    int line = 1;
    for (const char *q = lex->text; q < at; q++)
        if (*q == '\n') {
            start = q + 1;
            line++;
        }
    return err_set(lex->err, CVN_EFORMAT, "%s:%d:%td: %s", lex->filename, line, at - start + 1,
                   message);
}

int lex_expected(Lexer *lex, const char *what)
{
    enum { LONGEST = 40 };
    lex_space(lex);
    int n = 0;
    while (n < LONGEST && lex->p + n < lex->end && lex_is_name_char(lex->p[n]))
        n++;
    if (lex->p == lex->end)
        return lex_fail_at(lex, lex->p, "the text ends, expected %s", what);
    unsigned char c = (unsigned char)*lex->p;
    if (n == 0 && (c < ' ' || c > '~'))
        return lex_fail_at(lex, lex->p, "found byte 0x%02x, expected %s", c, what);
    return lex_fail_at(lex, lex->p, "found '%.*s%s', expected %s", n ? n : 1, lex->p,
                       n == LONGEST ? "..." : "", what);
}

bool lex_take(Lexer *lex, char c)
{
    lex_space(lex);
    if (lex->p == lex->end || *lex->p != c)
        return false;
    lex->p++;
    return true;
}

int lex_need(Lexer *lex, char c, const char *where)
{
    char what[80];
    if (lex_take(lex, c))
        return CVN_OK;
    snprintf(what, sizeof what, "'%c' %s", c, where);
    return lex_expected(lex, what);
}

/* The characters of a name that begin here. */
static Span name_here(Lexer *lex)
{
    lex_space(lex);
    Span span = {lex->p, 0};
    while (lex->p < lex->end && lex_is_name_char(*lex->p))
        lex->p++;
    span.n = (size_t)(lex->p - span.p);
    return span;
}

bool lex_take_word(Lexer *lex, const char *word)
{
    Span span = name_here(lex);
    if (span_is(span, word))
        return true;
    lex->p = span.p;
    return false;
}

int lex_name(Lexer *lex, Span *name, const char *what)
{
    *name = name_here(lex);
    return name->n ? CVN_OK : lex_expected(lex, what);
}

/* A NUL-terminated copy of the word that begins here; '+' may be part of it, as in 1e+30. */
static bool word_copy(Lexer *lex, char *buffer, size_t size, Span *span)
{
    lex_space(lex);
    *span = (Span){lex->p, 0};
    while (lex->p < lex->end && (lex_is_name_char(*lex->p) || *lex->p == '+'))
        lex->p++;
    span->n = (size_t)(lex->p - span->p);
    bool fits = span->n > 0 && span->n < size;
    if (fits) {
        memcpy(buffer, span->p, span->n);
        buffer[span->n] = '\0';
    }
    lex->p = span->p;
    return fits;
}

int lex_int(Lexer *lex, int64_t *value, const char *what)
{
    char text[64], *end;
    Span span;
    if (!word_copy(lex, text, sizeof text, &span) || strchr("+.e", text[0]))
        return lex_expected(lex, what);
    errno = 0;
    *value = strtoll(text, &end, 10);
    if (end == text || *end)
        return lex_expected(lex, what);
    if (errno == ERANGE)
        return lex_fail_at(lex, span.p, "%s does not fit in 64 bits", text);
    lex->p += span.n;
    return CVN_OK;
}

/* Digits with an optional fraction and exponent: strtod alone also takes hexadecimal and more. */
static bool is_decimal(const char *text)
{
    const char *p = text + (*text == '-');
    size_t whole = strspn(p, "0123456789");
    p += whole;
    if (*p == '.') {
        size_t fraction = strspn(++p, "0123456789");
        p += fraction;
        whole += fraction;
    }
    if (whole == 0)
        return false;
    if (*p == 'e' || *p == 'E') {
        p++;
        p += *p == '+' || *p == '-';
        size_t exponent = strspn(p, "0123456789");
        if (exponent == 0)
            return false;
        p += exponent;
    }
    return *p == '\0';
}

int lex_number(Lexer *lex, double *value)
{
    static const struct {
        const char *text;
        double value;
    } words[] = {{"inf", INFINITY},      {"-inf", -INFINITY}, {"nan", NAN},
                 {"-nan", -(double)NAN}, {"true", 1},         {"false", 0}};
    char text[400];
    Span span;
    if (!word_copy(lex, text, sizeof text, &span))
        return lex_expected(lex, "a number");
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcmp(text, words[i].text) == 0) {
            *value = words[i].value;
            lex->p += span.n;
            return CVN_OK;
        }
    }
    if (!is_decimal(text))
        return lex_expected(lex, "a number");
    *value = strtod(text, NULL);
    if (isinf(*value))
        return lex_fail_at(lex, span.p, "%s is too large for a number", text);
    lex->p += span.n;
    return CVN_OK;
}

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* One character of a string; NUL when there is none that may stand there. */
static char string_char(Lexer *lex)
{
    const char *p = lex->p;
    size_t left = (size_t)(lex->end - p);
    if (left == 0 || *p == '\n' || *p == '\0')
        return '\0';
    lex->p++;
    if (*p != '\\')
        return *p;
    if (left >= 2 && (p[1] == '"' || p[1] == '\\')) {
        lex->p++;
        return p[1];
    }
    if (left >= 4 && p[1] == 'x' && hex_value(p[2]) >= 0 && hex_value(p[3]) >= 0) {
        lex->p += 3;
        return (char)(hex_value(p[2]) << 4 | hex_value(p[3]));
    }
    lex->p = p;
    return '\0';
}

int lex_string(Lexer *lex, Arena *arena, const char **string)
{
    if (!lex_take(lex, '"'))
        return lex_expected(lex, "a string in \"\"");
    const char *begin = lex->p;
    while (lex->p < lex->end && *lex->p != '"')
        if (string_char(lex) == '\0')
            return lex_fail_at(lex, lex->p,
                               "found no character of a string, expected one, or "
                               "\\\", \\\\ or \\xNN, and a '\"' in the same line");
    if (lex->p == lex->end)
        return lex_fail_at(lex, lex->p, "the text ends, expected the '\"' that ends a string");
    char *out = arena_alloc(arena, (size_t)(lex->p - begin) + 1);
    *string = out;
    lex->p = begin;
    while (*lex->p != '"')
        *out++ = string_char(lex);
    lex->p++;
    return CVN_OK;
}

bool span_is(Span span, const char *text)
{
    return strlen(text) == span.n && memcmp(span.p, text, span.n) == 0;
}
