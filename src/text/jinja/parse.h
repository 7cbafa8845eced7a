/*
 * The parser of chat templates: parse.c reads statements, jparse_expression.c expressions, parse_tokens.c has what both go by. The
 * first error stays: it is in rc and *err, and all that is read behind it is void, though never NULL.
 */
#ifndef CVN_TEXT_JINJA_PARSE_H
#define CVN_TEXT_JINJA_PARSE_H

#include "text/jinja/impl.h"

typedef struct JinjaParser {
    JinjaTemplate *jinja;
    const Token *token; /* the next */
    int depth;          /* of expressions and blocks now */
    int branches; /* `if` blocks and expressions around: what is not known there fails when it is reached */
    int loops; /* `for` bodies around, up to the next macro */
    cvn_err *err;
    int rc;
} JinjaParser;

__attribute__((format(printf, 3, 4))) void jparse_fail(JinjaParser *p, int code, const char *format,
                                                       ...);

/* ---- nodes ---- */

/* A node on the line of the next token, and one on the line of `a`, which is below it. */
JinjaNode *jparse_node(JinjaParser *p, JinjaNodeKind kind);
JinjaNode *jparse_node_of(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a);

/* Says that a node is above `below`, which may be NULL: how deep nodes lie in each other is bounded. */
void jparse_nest(JinjaParser *p, JinjaNode *node, const JinjaNode *below);

/* Appends to a list of the parent, whose last link is *link. */
void jparse_append(JinjaParser *p, JinjaNode *parent, JinjaNode ***link, JinjaNode *node);

/* One level of recursion more, of which the caller takes p->depth back in any case; false where there are too many. */
bool jparse_enter(JinjaParser *p);

/* ---- tokens ---- */

/* Whether the next token is an operator or a word; skip: moves behind it if it is; expect: fails if it is not. */
bool jparse_is_op(const JinjaParser *p, const char *op);
bool jparse_is_word(const JinjaParser *p, const char *word);
bool jparse_skip_op(JinjaParser *p, const char *op);
bool jparse_skip_word(JinjaParser *p, const char *word);
void jparse_expect_op(JinjaParser *p, const char *op);

/* Moves behind a token, which must be of a kind. */
void jparse_next(JinjaParser *p);
void jparse_expect(JinjaParser *p, TokenKind kind, const char *name);

/* A name that must come next, the same pointer for the same name; "" where there is none. */
const char *jparse_name(JinjaParser *p);
const char *jparse_intern(JinjaParser *p, const char *text, size_t n);

/* A str that is the template's own text. */
JinjaValue jparse_constant(JinjaParser *p, const char *text, size_t n);

/* ---- expressions ---- */

JinjaNode *jparse_expression(JinjaParser *p);

/* An expression without if-else. */
JinjaNode *jparse_or(JinjaParser *p);

/* a, b … up to what ends such a list: one of them alone, or a tuple. */
JinjaNode *jparse_tuple(JinjaParser *p, bool may_be_empty, JinjaNode *(*parse_one)(JinjaParser *p));

/* name(arguments), behind a "|" that `of` stands before. */
JinjaNode *jparse_filter(JinjaParser *p, JinjaNode *of);

#endif
