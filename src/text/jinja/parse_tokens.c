/* What the parser makes its way by: the next token, and nodes whose nesting is bounded. */
#include "text/jinja/parse.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void jparse_fail(JinjaParser *p, int code, const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!p->rc)
        p->rc = err_set(p->err, code, "line %d of the chat template: %s", p->token->line, what);
}

JinjaNode *jparse_node(JinjaParser *p, JinjaNodeKind kind)
{
    JinjaNode *node = arena_alloc(&p->jinja->arena, sizeof *node);
    node->kind = kind;
    node->line = p->token->line;
    return node;
}

void jparse_nest(JinjaParser *p, JinjaNode *node, const JinjaNode *below)
{
    if (below && below->nesting >= node->nesting)
        node->nesting = below->nesting + 1;
    if (node->nesting > JINJA_MAX_NESTING)
        jparse_fail(p, CVN_EFORMAT, "it is nested too deeply");
}

JinjaNode *jparse_node_of(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a)
{
    JinjaNode *node = jparse_node(p, kind);
    node->line = a->line;
    node->a = a;
    jparse_nest(p, node, a);
    return node;
}

bool jparse_enter(JinjaParser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        jparse_fail(p, CVN_EFORMAT, "it is nested too deeply");
    return !p->rc;
}

void jparse_append(JinjaParser *p, JinjaNode *parent, JinjaNode ***link, JinjaNode *node)
{
    **link = node;
    *link = &node->next;
    jparse_nest(p, parent, node);
}

/* ---- tokens ---- */

bool jparse_is_op(const JinjaParser *p, const char *op)
{
    return p->token->kind == T_OPERATOR && p->token->n == strlen(op) &&
           memcmp(p->token->text, op, p->token->n) == 0;
}

bool jparse_is_word(const JinjaParser *p, const char *word)
{
    return p->token->kind == T_NAME && p->token->n == strlen(word) &&
           memcmp(p->token->text, word, p->token->n) == 0;
}

void jparse_next(JinjaParser *p)
{
    if (p->token->kind != T_END)
        p->token++;
}

bool jparse_skip_op(JinjaParser *p, const char *op)
{
    bool is = jparse_is_op(p, op);
    if (is)
        jparse_next(p);
    return is;
}

bool jparse_skip_word(JinjaParser *p, const char *word)
{
    bool is = jparse_is_word(p, word);
    if (is)
        jparse_next(p);
    return is;
}

void jparse_expect(JinjaParser *p, TokenKind kind, const char *name)
{
    if (p->token->kind != kind)
        jparse_fail(p, CVN_EFORMAT, "expected %s", name);
    jparse_next(p);
}

void jparse_expect_op(JinjaParser *p, const char *op)
{
    if (!jparse_skip_op(p, op))
        jparse_fail(p, CVN_EFORMAT, "expected '%s'", op);
}

const char *jparse_intern(JinjaParser *p, const char *text, size_t n)
{
    bool added;
    uint64_t *slot = map_put(&p->jinja->names, text, n, &added);
    if (added)
        *slot = (uint64_t)(uintptr_t)arena_stringn(&p->jinja->arena, text, n);
    return (const char *)(uintptr_t)*slot;
}

const char *jparse_name(JinjaParser *p)
{
    const Token *token = p->token;
    if (token->kind != T_NAME) {
        jparse_fail(p, CVN_EFORMAT, "expected a name");
        return "";
    }
    jparse_next(p);
    return jparse_intern(p, token->text, token->n);
}

JinjaValue jparse_constant(JinjaParser *p, const char *text, size_t n)
{
    Str *str = arena_alloc(&p->jinja->arena, sizeof *str);
    char *mark = arena_alloc(&p->jinja->arena, n + 1);
    memset(mark, JINJA_OWN, n);
    *str = (Str){text, mark, n};
    return (JinjaValue){.type = V_STR, .str = str};
}
