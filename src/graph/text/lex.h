/*
 * The characters of the text form: white space, names, numbers, strings, and errors that say where.
 *
 * A Lexer is a position in a text that need not end in NUL. Each function below skips white space
 * and comments (// to the end of the line) first. Those that return bool leave the position alone
 * when they return false; the others raise "FILE:LINE:COLUMN: found '…', expected …".
 */
#ifndef CVN_GRAPH_TEXT_LEX_H
#define CVN_GRAPH_TEXT_LEX_H

#include "base/arena.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Lexer {
    const char *filename; /* for messages; borrowed */
    const char *text;     /* [end - text], borrowed */
    const char *end;
    const char *p; /* where we are: text <= p <= end */
    cvn_err *err;  /* may be NULL */
} Lexer;

/* A piece of the text. */
typedef struct Span {
    const char *p;
    size_t n;
} Span;

/* Letters, digits, '_', '.' and '-': what names of values, attributes and mesh axes are made of. */
bool lex_is_name_char(char c);
/* True for a text that lex_name would read whole, and that does not begin with a digit. */
bool lex_is_plain_name(const char *text);

void lex_space(Lexer *lex);

/* Raises "FILE:LINE:COLUMN: …" for the position `at`; returns CVN_EFORMAT. */
int lex_fail_at(const Lexer *lex, const char *at, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Raises "found '…', expected …" for the position of lex. */
int lex_expected(Lexer *lex, const char *what);

/* One character of punctuation, if it comes next; or it must. */
bool lex_take(Lexer *lex, char c);
int lex_need(Lexer *lex, char c, const char *where);
/* A word, not followed by more of a name. */
bool lex_take_word(Lexer *lex, const char *word);

int lex_name(Lexer *lex, Span *name, const char *what);
int lex_int(Lexer *lex, int64_t *value, const char *what);
/* A decimal number, inf, -inf, nan, -nan, true or false. */
int lex_number(Lexer *lex, double *value);
/* "…" with \" \\ \xNN, into the arena; no NUL and no bare line end. */
int lex_string(Lexer *lex, Arena *arena, const char **string);

bool span_is(Span span, const char *text);

#endif
