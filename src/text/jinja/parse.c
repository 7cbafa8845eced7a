/* Tokens to nodes: a descent by the grammar of jinja2. */
#include "text/jinja/impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

typedef struct JinjaParser {
    JinjaTemplate *jinja;
    const Token *token; /* the next */
    int depth;          /* of expressions and blocks now */
    int branches; /* `if` blocks and expressions around: what is not known there fails when it is reached */
    int loops; /* `for` bodies around, up to the next macro */
    cvn_err *err;
    int rc;
} JinjaParser;

static JinjaNode *parse_expression(JinjaParser *p);
static JinjaNode *parse_unary(JinjaParser *p, bool filters);
static JinjaNode *parse_primary(JinjaParser *p);
static JinjaNode *parse_block(JinjaParser *p, const char *const *ends);

__attribute__((format(printf, 3, 4))) static void parse_fail(JinjaParser *p, int code,
                                                             const char *format, ...)
{
    char what[256];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!p->rc)
        p->rc = err_set(p->err, code, "line %d of the chat template: %s", p->token->line, what);
}

static JinjaNode *node_new(JinjaParser *p, JinjaNodeKind kind)
{
    JinjaNode *node = arena_alloc(&p->jinja->arena, sizeof *node);
    node->kind = kind;
    node->line = p->token->line;
    return node;
}

/* Above `below`, which may be NULL, and below which what is nested is bounded. */
static void nest(JinjaParser *p, JinjaNode *node, const JinjaNode *below)
{
    if (below && below->nesting >= node->nesting)
        node->nesting = below->nesting + 1;
    if (node->nesting > JINJA_MAX_NESTING)
        parse_fail(p, CVN_EFORMAT, "it is nested too deeply");
}

static bool enter(JinjaParser *p)
{
    if (++p->depth > JINJA_MAX_NESTING)
        parse_fail(p, CVN_EFORMAT, "it is nested too deeply");
    return !p->rc;
}

/* Appends to the list whose last link is *link. */
static void append(JinjaParser *p, JinjaNode *parent, JinjaNode ***link, JinjaNode *node)
{
    **link = node;
    *link = &node->next;
    nest(p, parent, node);
}

/* ---- tokens ---- */

static bool is_op(const JinjaParser *p, const char *op)
{
    return p->token->kind == T_OPERATOR && p->token->n == strlen(op) &&
           memcmp(p->token->text, op, p->token->n) == 0;
}

static bool token_is(const Token *token, const char *word)
{
    return token->kind == T_NAME && token->n == strlen(word) &&
           memcmp(token->text, word, token->n) == 0;
}

static bool is_word(const JinjaParser *p, const char *word)
{
    return token_is(p->token, word);
}

static void next(JinjaParser *p)
{
    if (p->token->kind != T_END)
        p->token++;
}

static bool skip_op(JinjaParser *p, const char *op)
{
    bool is = is_op(p, op);
    if (is)
        next(p);
    return is;
}

static bool skip_word(JinjaParser *p, const char *word)
{
    bool is = is_word(p, word);
    if (is)
        next(p);
    return is;
}

static void expect_kind(JinjaParser *p, TokenKind kind, const char *name)
{
    if (p->token->kind != kind)
        parse_fail(p, CVN_EFORMAT, "expected %s", name);
    next(p);
}

static void expect_op(JinjaParser *p, const char *op)
{
    if (!skip_op(p, op))
        parse_fail(p, CVN_EFORMAT, "expected '%s'", op);
}

static const char *intern(JinjaParser *p, const char *text, size_t n)
{
    bool added;
    uint64_t *slot = map_put(&p->jinja->names, text, n, &added);
    if (added)
        *slot = (uint64_t)(uintptr_t)arena_stringn(&p->jinja->arena, text, n);
    return (const char *)(uintptr_t)*slot;
}

static const char *expect_name(JinjaParser *p)
{
    const Token *token = p->token;
    if (token->kind != T_NAME) {
        parse_fail(p, CVN_EFORMAT, "expected a name");
        return "";
    }
    next(p);
    return intern(p, token->text, token->n);
}

static JinjaValue constant(JinjaParser *p, const char *text, size_t n)
{
    Str *str = arena_alloc(&p->jinja->arena, sizeof *str);
    char *mark = arena_alloc(&p->jinja->arena, n + 1);
    memset(mark, JINJA_OWN, n);
    *str = (Str){text, mark, n};
    return (JinjaValue){.type = V_STR, .str = str};
}

/* ---- expressions ---- */

static JinjaNode *binary(JinjaParser *p, JinjaNodeKind kind, JinjaOp op, JinjaNode *a, JinjaNode *b)
{
    JinjaNode *node = node_new(p, kind);
    *node = (JinjaNode){.kind = kind, .op = op, .line = a->line, .a = a, .b = b};
    nest(p, node, a);
    nest(p, node, b);
    return node;
}

static JinjaNode *unary(JinjaParser *p, JinjaNodeKind kind, JinjaNode *a)
{
    JinjaNode *node = node_new(p, kind);
    node->line = a->line;
    node->a = a;
    nest(p, node, a);
    return node;
}

static void parse_args(JinjaParser *p, JinjaNode *call)
{
    JinjaNode **link = &call->child;
    bool named = false;
    expect_op(p, "(");
    while (!p->rc && !skip_op(p, ")")) {
        if (call->child) {
            expect_op(p, ",");
            if (skip_op(p, ")"))
                return;
        }
        bool star = is_op(p, "*"), stars = is_op(p, "**");
        bool name = p->token->kind == T_NAME && p->token[1].kind == T_OPERATOR &&
                    p->token[1].n == 1 && p->token[1].text[0] == '=';
        JinjaNode *arg = node_new(p, star ? N_STAR : stars ? N_STARS : N_NAMED);
        if (name)
            arg->name = expect_name(p);
        if (name || star || stars) {
            next(p);
            arg->a = parse_expression(p);
            nest(p, arg, arg->a);
            named |= name || stars;
        } else {
            if (named)
                parse_fail(p, CVN_EFORMAT, "a positional argument follows a named one");
            arg = parse_expression(p);
        }
        append(p, call, &link, arg);
    }
}

static void not_known(JinjaParser *p, const char *what, const char *name)
{
    if (p->branches == 0)
        parse_fail(p, CVN_EUNSUPPORTED, "unknown %s '%.40s'", what, name);
}

/* name(arguments) behind | or is. */
static JinjaNode *parse_filter_name(JinjaParser *p, JinjaNode *of, JinjaNodeKind kind)
{
    JinjaNode *node = node_new(p, kind);
    node->a = of;
    nest(p, node, of);
    node->name = expect_name(p);
    node->builtin = j_builtin_find(kind == N_FILTER ? FILTER : TEST, node->name);
    if (!node->builtin)
        not_known(p, kind == N_FILTER ? "filter" : "test", node->name);
    return node;
}

static JinjaNode *parse_filter(JinjaParser *p, JinjaNode *of)
{
    JinjaNode *node = parse_filter_name(p, of, N_FILTER);
    if (is_op(p, "("))
        parse_args(p, node);
    return node;
}

static JinjaNode *parse_call(JinjaParser *p, JinjaNode *callee)
{
    JinjaNode *node = unary(p, N_CALL, callee);
    if (callee->kind == N_ATTR && !j_method_is_known(callee->name))
        not_known(p, "method", callee->name);
    parse_args(p, node);
    return node;
}

/* Parses the index or slice in [ ]. */
static JinjaNode *parse_subscript(JinjaParser *p, JinjaNode *of)
{
    JinjaNode *node = node_new(p, N_ITEM);
    node->a = of;
    nest(p, node, of);
    if (!is_op(p, ":"))
        node->b = parse_expression(p);
    if (skip_op(p, ":")) {
        node->kind = N_SLICE;
        if (!is_op(p, ":") && !is_op(p, "]"))
            node->c = parse_expression(p);
        if (skip_op(p, ":") && !is_op(p, "]"))
            node->d = parse_expression(p);
    }
    nest(p, node, node->b);
    nest(p, node, node->c);
    nest(p, node, node->d);
    expect_op(p, "]");
    return node;
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *node)
{
    while (!p->rc) {
        if (is_op(p, "(")) {
            node = parse_call(p, node);
        } else if (skip_op(p, "[")) {
            node = parse_subscript(p, node);
        } else if (skip_op(p, ".")) {
            JinjaNode *of = node;
            node = unary(p, N_ATTR, of);
            if (p->token->kind == T_INT) {
                node->kind = N_ITEM;
                node->b = node_new(p, N_CONST);
                node->b->value = p->token->value;
                next(p);
            } else {
                node->name = expect_name(p);
            }
        } else {
            break;
        }
    }
    return node;
}

/* Whether a token may begin the argument of a test that has no parentheses. */
static bool begins_test_argument(const JinjaParser *p)
{
    switch (p->token->kind) {
    case T_STRING:
    case T_INT:
    case T_FLOAT:
        return true;
    case T_NAME:
        return !is_word(p, "else") && !is_word(p, "or") && !is_word(p, "and") &&
               !is_word(p, "is") && !is_word(p, "if") && !is_word(p, "in") && !is_word(p, "not");
    default:
        return is_op(p, "[") || is_op(p, "{");
    }
}

static JinjaNode *parse_test(JinjaParser *p, JinjaNode *of)
{
    bool not = skip_word(p, "not");
    JinjaNode *node = parse_filter_name(p, of, N_TEST);
    if (is_op(p, "(")) {
        parse_args(p, node);
    } else if (begins_test_argument(p)) {
        node->child = parse_postfix(p, parse_primary(p));
        nest(p, node, node->child);
    }
    return not ? unary(p, N_NOT, node) : node;
}

static JinjaNode *parse_filters(JinjaParser *p, JinjaNode *node)
{
    while (!p->rc) {
        if (skip_op(p, "|"))
            node = parse_filter(p, node);
        else if (skip_word(p, "is"))
            node = parse_test(p, node);
        else if (is_op(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* a, b … up to what ends such a list: one expression, or a tuple of them. */
static JinjaNode *parse_tuple(JinjaParser *p, bool may_be_empty,
                              JinjaNode *(*parse_one)(JinjaParser *p))
{
    JinjaNode *tuple = node_new(p, N_TUPLE), **link = &tuple->child;
    bool commas = false;
    while (!p->rc) {
        if (is_op(p, ")") || p->token->kind == T_PRINT_END || p->token->kind == T_BLOCK_END ||
            is_word(p, "in"))
            break;
        append(p, tuple, &link, parse_one(p));
        if (!skip_op(p, ","))
            break;
        commas = true;
    }
    if (!tuple->child && !may_be_empty)
        parse_fail(p, CVN_EFORMAT, "an expression is expected");
    return tuple->child && !commas ? tuple->child : tuple;
}

static JinjaNode *parse_list(JinjaParser *p, JinjaNodeKind kind)
{
    JinjaNode *node = node_new(p, kind), **link = &node->child;
    const char *end = kind == N_LIST ? "]" : "}";
    next(p);
    while (!p->rc && !skip_op(p, end)) {
        append(p, node, &link, parse_expression(p));
        if (kind == N_DICT) {
            expect_op(p, ":");
            append(p, node, &link, parse_expression(p));
        }
        if (!skip_op(p, ",") && !is_op(p, end))
            expect_op(p, end);
    }
    return node;
}

static JinjaNode *parse_strings(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_CONST);
    SCOPED(strbuf_free) StrBuf whole = {0};
    const Token *first = p->token;
    next(p);
    if (p->token->kind != T_STRING) {
        node->value = constant(p, first->text, first->n);
        return node;
    }
    strbuf_add(&whole, first->text, first->n);
    for (; p->token->kind == T_STRING; next(p))
        strbuf_add(&whole, p->token->text, p->token->n);
    node->value =
        constant(p, arena_stringn(&p->jinja->arena, whole.text ? whole.text : "", whole.length),
                 whole.length);
    return node;
}

static JinjaNode *parse_word(JinjaParser *p)
{
    static const struct {
        const char *word;
        JinjaValue value;
    } constants[] = {
        {"true", {.type = V_BOOL, .b = true}},
        {"True", {.type = V_BOOL, .b = true}},
        {"false", {.type = V_BOOL, .b = false}},
        {"False", {.type = V_BOOL, .b = false}},
        {"none", {.type = V_NONE}},
        {"None", {.type = V_NONE}},
    };
    JinjaNode *node = node_new(p, N_NAME);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (skip_word(p, constants[i].word)) {
            node->kind = N_CONST;
            node->value = constants[i].value;
            return node;
        }
    }
    node->name = expect_name(p);
    return node;
}

static JinjaNode *parse_primary(JinjaParser *p)
{
    JinjaNode *node;
    switch (p->token->kind) {
    case T_NAME:
        return parse_word(p);
    case T_STRING:
        return parse_strings(p);
    case T_INT:
    case T_FLOAT:
        node = node_new(p, N_CONST);
        node->value = p->token->value;
        next(p);
        return node;
    default:
        break;
    }
    if (is_op(p, "["))
        return parse_list(p, N_LIST);
    if (is_op(p, "{"))
        return parse_list(p, N_DICT);
    if (skip_op(p, "(")) {
        node = parse_tuple(p, true, parse_expression);
        expect_op(p, ")");
        return node;
    }
    parse_fail(p, CVN_EFORMAT, "an expression is expected");
    return node_new(p, N_CONST);
}

static JinjaNode *parse_unary(JinjaParser *p, bool filters)
{
    JinjaNode *node = NULL;
    if (!enter(p)) {
        p->depth--;
        return node_new(p, N_CONST);
    }
    if (skip_op(p, "-"))
        node = unary(p, N_NEGATE, parse_unary(p, false));
    else if (skip_op(p, "+"))
        node = unary(p, N_PLUS, parse_unary(p, false));
    else
        node = parse_primary(p);
    node = parse_postfix(p, node);
    if (filters)
        node = parse_filters(p, node);
    p->depth--;
    return node;
}

/* Operations by rank, those that bind least first; ~ stands between the first row and the second. */
static const struct {
    const char *text;
    JinjaOp op;
    int rank;
} OPERATOR[] = {
    {"+", OP_ADD, 0},       {"-", OP_SUB, 0}, {"*", OP_MUL, 1},  {"/", OP_DIV, 1},
    {"//", OP_FLOORDIV, 1}, {"%", OP_MOD, 1}, {"**", OP_POW, 2},
};

static JinjaNode *parse_concat(JinjaParser *p);

static JinjaNode *parse_rank(JinjaParser *p, int rank)
{
    JinjaNode *left = rank == 0   ? parse_concat(p)
                      : rank == 1 ? parse_rank(p, 2)
                                  : parse_unary(p, true);
    for (size_t i = 0; !p->rc && i < sizeof OPERATOR / sizeof *OPERATOR;) {
        if (OPERATOR[i].rank != rank || !skip_op(p, OPERATOR[i].text)) {
            i++;
            continue;
        }
        JinjaNode *right = rank == 0   ? parse_concat(p)
                           : rank == 1 ? parse_rank(p, 2)
                                       : parse_unary(p, true);
        left = binary(p, N_BINARY, OPERATOR[i].op, left, right);
        i = 0;
    }
    return left;
}

static JinjaNode *parse_concat(JinjaParser *p)
{
    JinjaNode *first = parse_rank(p, 1);
    if (!is_op(p, "~"))
        return first;
    JinjaNode *node = node_new(p, N_CONCAT), **link = &node->child;
    append(p, node, &link, first);
    while (!p->rc && skip_op(p, "~"))
        append(p, node, &link, parse_rank(p, 1));
    return node;
}

static bool skip_comparison(JinjaParser *p, JinjaOp *op)
{
    static const struct {
        const char *text;
        JinjaOp op;
    } comparison[] = {{"==", OP_EQ}, {"!=", OP_NE}, {"<", OP_LT},
                      {"<=", OP_LE}, {">", OP_GT},  {">=", OP_GE}};
    for (size_t i = 0; i < sizeof comparison / sizeof *comparison; i++) {
        *op = comparison[i].op;
        if (skip_op(p, comparison[i].text))
            return true;
    }
    *op = OP_IN;
    if (skip_word(p, "in"))
        return true;
    *op = OP_NOT_IN;
    if (!is_word(p, "not") || !token_is(p->token + 1, "in"))
        return false;
    p->token += 2;
    return true;
}

static JinjaNode *parse_compare(JinjaParser *p)
{
    JinjaNode *first = parse_rank(p, 0);
    JinjaOp op;
    if (!skip_comparison(p, &op))
        return first;
    JinjaNode *node = unary(p, N_COMPARE, first), **link = &node->child;
    do {
        /* A node of its own, as the operation is kept in it. */
        JinjaNode *right = unary(p, N_NAMED, parse_rank(p, 0));
        right->op = op;
        append(p, node, &link, right);
    } while (!p->rc && skip_comparison(p, &op));
    return node;
}

static JinjaNode *parse_not(JinjaParser *p)
{
    int nots = 0;
    while (skip_word(p, "not"))
        nots++;
    JinjaNode *node = parse_compare(p);
    while (nots-- > 0 && !p->rc)
        node = unary(p, N_NOT, node);
    return node;
}

static JinjaNode *parse_and(JinjaParser *p)
{
    JinjaNode *left = parse_not(p);
    while (!p->rc && skip_word(p, "and"))
        left = binary(p, N_AND, OP_ADD, left, parse_not(p));
    return left;
}

static JinjaNode *parse_or(JinjaParser *p)
{
    JinjaNode *left = parse_and(p);
    while (!p->rc && skip_word(p, "or"))
        left = binary(p, N_OR, OP_ADD, left, parse_and(p));
    return left;
}

static JinjaNode *parse_expression(JinjaParser *p)
{
    if (!enter(p)) {
        p->depth--;
        return node_new(p, N_CONST);
    }
    JinjaNode *node = parse_or(p);
    while (!p->rc && skip_word(p, "if")) {
        JinjaNode *choice = node_new(p, N_IF_ELSE);
        choice->a = node;
        p->branches++;
        choice->b = parse_or(p);
        if (skip_word(p, "else"))
            choice->c = parse_expression(p);
        p->branches--;
        nest(p, choice, choice->a);
        nest(p, choice, choice->b);
        nest(p, choice, choice->c);
        node = choice;
    }
    p->depth--;
    return node;
}

/* ---- statements ---- */

/* Parses the target of an assignment: a name, an attribute of a namespace, or a tuple of them. */
static JinjaNode *parse_target_one(JinjaParser *p)
{
    if (is_op(p, "(")) {
        next(p);
        JinjaNode *tuple = parse_tuple(p, false, parse_target_one);
        expect_op(p, ")");
        return tuple;
    }
    JinjaNode *node = node_new(p, N_NAME);
    node->name = expect_name(p);
    if (skip_op(p, ".")) {
        node->kind = N_ATTR_TARGET;
        node->attribute = expect_name(p);
    }
    return node;
}

static JinjaNode *parse_target(JinjaParser *p)
{
    JinjaNode *node = NULL;
    if (enter(p))
        node = parse_tuple(p, false, parse_target_one);
    p->depth--;
    return node ? node : node_new(p, N_NAME);
}

static JinjaNode *parse_any_tuple(JinjaParser *p)
{
    return parse_tuple(p, false, parse_expression);
}

/* The body of a block, from behind its tag's words. */
static JinjaNode *parse_body(JinjaParser *p, JinjaNode *node, const char *end, const char *other,
                             const char *third)
{
    const char *const ends[] = {end, other, third, NULL};
    skip_op(p, ":");
    expect_kind(p, T_BLOCK_END, "the end of the tag");
    JinjaNode *body = parse_block(p, ends);
    for (const JinjaNode *each = body; each; each = each->next)
        nest(p, node, each);
    if (!p->rc && p->token->kind == T_END)
        parse_fail(p, CVN_EFORMAT, "the block of line %d has no '%s'", node->line, end);
    return body;
}

static void parse_ending(JinjaParser *p, JinjaNode *node, const char *end)
{
    node->child = parse_body(p, node, end, NULL, NULL);
    next(p);
}

static JinjaNode *parse_set(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_SET);
    node->a = parse_target(p);
    if (skip_op(p, "=")) {
        node->b = parse_any_tuple(p);
        nest(p, node, node->b);
        return node;
    }
    node->kind = N_SET_BLOCK;
    while (!p->rc && skip_op(p, "|"))
        node->b = parse_filter(p, node->b);
    parse_ending(p, node, "endset");
    return node;
}

static JinjaNode *parse_for(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_FOR);
    node->a = parse_target(p);
    if (!skip_word(p, "in"))
        parse_fail(p, CVN_EFORMAT, "expected 'in'");
    /* An `if` behind it chooses among the items. */
    node->b = parse_tuple(p, false, parse_or);
    if (skip_word(p, "if"))
        node->c = parse_expression(p);
    nest(p, node, node->b);
    nest(p, node, node->c);
    if (is_word(p, "recursive"))
        parse_fail(p, CVN_EUNSUPPORTED, "'recursive' loops are not supported");
    p->loops++;
    node->child = parse_body(p, node, "endfor", "else", NULL);
    p->loops--;
    if (skip_word(p, "else"))
        node->others = parse_body(p, node, "endfor", NULL, NULL);
    next(p);
    return node;
}

static JinjaNode *parse_if(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_IF), **link = &node->child;
    bool more = true, last = false;
    p->branches++;
    while (more && !p->rc) {
        JinjaNode *branch = node_new(p, N_BRANCH);
        if (!last)
            branch->a = parse_tuple(p, false, parse_or);
        nest(p, branch, branch->a);
        branch->child = parse_body(p, branch, "endif", last ? NULL : "else", last ? NULL : "elif");
        append(p, node, &link, branch);
        last = is_word(p, "else");
        more = last || is_word(p, "elif");
        next(p);
    }
    p->branches--;
    return node;
}

static void parse_parameters(JinjaParser *p, JinjaNode *node)
{
    JinjaNode **link = &node->others;
    expect_op(p, "(");
    while (!p->rc && !skip_op(p, ")")) {
        JinjaNode *parameter = node_new(p, N_NAME);
        if (node->others)
            expect_op(p, ",");
        parameter->name = expect_name(p);
        if (skip_op(p, "=")) {
            parameter->a = parse_expression(p);
            nest(p, parameter, parameter->a);
        }
        append(p, node, &link, parameter);
    }
}

/* The body of a macro or of a call block, out of which `break` cannot go. */
static void parse_function_body(JinjaParser *p, JinjaNode *node, const char *end)
{
    int loops = p->loops;
    p->loops = 0;
    parse_ending(p, node, end);
    p->loops = loops;
}

static JinjaNode *parse_macro(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_MACRO);
    node->name = expect_name(p);
    parse_parameters(p, node);
    parse_function_body(p, node, "endmacro");
    return node;
}

static JinjaNode *parse_call_block(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_CALL_BLOCK);
    node->name = intern(p, "caller", 6);
    if (is_op(p, "("))
        parse_parameters(p, node);
    node->a = parse_expression(p);
    nest(p, node, node->a);
    if (node->a->kind != N_CALL)
        parse_fail(p, CVN_EFORMAT, "expected a call");
    parse_function_body(p, node, "endcall");
    return node;
}

static JinjaNode *parse_filter_block(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_FILTER_BLOCK);
    do
        node->a = parse_filter(p, node->a);
    while (!p->rc && skip_op(p, "|"));
    parse_ending(p, node, "endfilter");
    return node;
}

static JinjaNode *parse_with(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_SCOPE), **link = &node->others;
    while (!p->rc && p->token->kind != T_BLOCK_END) {
        JinjaNode *set = node_new(p, N_SET);
        if (node->others)
            expect_op(p, ",");
        set->a = parse_target_one(p);
        expect_op(p, "=");
        set->b = parse_expression(p);
        nest(p, set, set->b);
        append(p, node, &link, set);
    }
    parse_ending(p, node, "endwith");
    return node;
}

static JinjaNode *parse_generation(JinjaParser *p)
{
    JinjaNode *node = node_new(p, N_GENERATION);
    parse_function_body(p, node, "endgeneration");
    return node;
}

static JinjaNode *parse_jump(JinjaParser *p)
{
    JinjaNode *node = node_new(p, p->token[-1].n == 5 ? N_BREAK : N_CONTINUE);
    if (!p->loops)
        parse_fail(p, CVN_EFORMAT, "break and continue are only allowed in a loop");
    return node;
}

static const struct {
    const char *tag;
    JinjaNode *(*parse)(JinjaParser *p);
} TAG[] = {
    {"set", parse_set},         {"if", parse_if},
    {"for", parse_for},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filter_block},
    {"with", parse_with},       {"break", parse_jump},
    {"continue", parse_jump},   {"generation", parse_generation},
};

static JinjaNode *parse_statement(JinjaParser *p)
{
    const Token *tag = p->token;
    if (tag->kind != T_NAME)
        parse_fail(p, CVN_EFORMAT, "the name of a tag is expected");
    for (size_t i = 0; !p->rc && i < sizeof TAG / sizeof *TAG; i++)
        if (skip_word(p, TAG[i].tag))
            return TAG[i].parse(p);
    parse_fail(p, tag->n > 3 && memcmp(tag->text, "end", 3) == 0 ? CVN_EFORMAT : CVN_EUNSUPPORTED,
               "unknown tag '%.*s'", tag->n > 40 ? 40 : (int)tag->n, tag->text);
    return node_new(p, N_CONST);
}

/* Statements up to a tag of `ends`, behind whose {% it stands then, or to the end of the template. */
static JinjaNode *parse_block(JinjaParser *p, const char *const *ends)
{
    JinjaNode *first = NULL, **link = &first, *node;
    if (!enter(p)) {
        p->depth--;
        return NULL;
    }
    while (!p->rc && p->token->kind != T_END) {
        switch (p->token->kind) {
        case T_DATA:
            node = node_new(p, N_TEXT);
            node->value = constant(p, p->token->text, p->token->n);
            next(p);
            break;
        case T_PRINT:
            next(p);
            node = unary(p, N_OUTPUT, parse_any_tuple(p));
            expect_kind(p, T_PRINT_END, "'}}'");
            break;
        default:
            next(p);
            for (size_t i = 0; ends && ends[i]; i++) {
                if (is_word(p, ends[i])) {
                    p->depth--;
                    return first;
                }
            }
            node = parse_statement(p);
            expect_kind(p, T_BLOCK_END, "the end of the tag");
        }
        *link = node;
        link = &node->next;
    }
    p->depth--;
    return first;
}

int jinja_parse(JinjaTemplate *jinja, const Token *tokens, cvn_err *err)
{
    JinjaParser p = {.jinja = jinja, .token = tokens, .err = err};
    jinja->body = parse_block(&p, NULL);
    return p.rc;
}
