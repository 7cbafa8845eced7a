/* Expressions, by the ranks of jinja2's grammar: if-else, or, and, not, comparisons, sums, ~, products, powers, and what stands behind
 * a primary: attributes, subscripts, calls, filters and tests. */
#include "text/jinja/parse.h"

#include <string.h>

static JinjaNode *parse_unary(JinjaParser *p, bool filters);
static JinjaNode *parse_primary(JinjaParser *p);

static JinjaNode *binary(JinjaParser *p, JinjaNodeKind kind, JinjaOp op, JinjaNode *a, JinjaNode *b)
{
    JinjaNode *node = jparse_node(p, kind);
    *node = (JinjaNode){.kind = kind, .op = op, .line = a->line, .a = a, .b = b};
    jparse_nest(p, node, a);
    jparse_nest(p, node, b);
    return node;
}

static void parse_args(JinjaParser *p, JinjaNode *call)
{
    JinjaNode **link = &call->child;
    bool named = false;
    jparse_expect_op(p, "(");
    while (!p->rc && !jparse_skip_op(p, ")")) {
        if (call->child) {
            jparse_expect_op(p, ",");
            if (jparse_skip_op(p, ")"))
                return;
        }
        bool star = jparse_is_op(p, "*"), stars = jparse_is_op(p, "**");
        bool name = p->token->kind == T_NAME && p->token[1].kind == T_OPERATOR &&
                    p->token[1].n == 1 && p->token[1].text[0] == '=';
        JinjaNode *arg = jparse_node(p, star ? N_STAR : stars ? N_STARS : N_NAMED);
        if (name)
            arg->name = jparse_name(p);
        if (name || star || stars) {
            jparse_next(p);
            arg->a = jparse_expression(p);
            jparse_nest(p, arg, arg->a);
            named |= name || stars;
        } else {
            if (named)
                jparse_fail(p, CVN_EFORMAT, "a positional argument follows a named one");
            arg = jparse_expression(p);
        }
        jparse_append(p, call, &link, arg);
    }
}

static void not_known(JinjaParser *p, const char *what, const char *name)
{
    if (p->branches == 0)
        jparse_fail(p, CVN_EUNSUPPORTED, "unknown %s '%.40s'", what, name);
}

/* name(arguments) behind | or is. */
static JinjaNode *parse_filter_name(JinjaParser *p, JinjaNode *of, JinjaNodeKind kind)
{
    JinjaNode *node = jparse_node(p, kind);
    node->a = of;
    jparse_nest(p, node, of);
    node->name = jparse_name(p);
    node->builtin = j_builtin_find(kind == N_FILTER ? FILTER : TEST, node->name);
    if (!node->builtin)
        not_known(p, kind == N_FILTER ? "filter" : "test", node->name);
    return node;
}

JinjaNode *jparse_filter(JinjaParser *p, JinjaNode *of)
{
    JinjaNode *node = parse_filter_name(p, of, N_FILTER);
    if (jparse_is_op(p, "("))
        parse_args(p, node);
    return node;
}

static JinjaNode *parse_call(JinjaParser *p, JinjaNode *callee)
{
    JinjaNode *node = jparse_node_of(p, N_CALL, callee);
    if (callee->kind == N_ATTR && !j_method_is_known(callee->name))
        not_known(p, "method", callee->name);
    parse_args(p, node);
    return node;
}

/* Parses the index or slice in [ ]. */
static JinjaNode *parse_subscript(JinjaParser *p, JinjaNode *of)
{
    JinjaNode *node = jparse_node(p, N_ITEM);
    node->a = of;
    jparse_nest(p, node, of);
    if (!jparse_is_op(p, ":"))
        node->b = jparse_expression(p);
    if (jparse_skip_op(p, ":")) {
        node->kind = N_SLICE;
        if (!jparse_is_op(p, ":") && !jparse_is_op(p, "]"))
            node->c = jparse_expression(p);
        if (jparse_skip_op(p, ":") && !jparse_is_op(p, "]"))
            node->d = jparse_expression(p);
    }
    jparse_nest(p, node, node->b);
    jparse_nest(p, node, node->c);
    jparse_nest(p, node, node->d);
    jparse_expect_op(p, "]");
    return node;
}

static JinjaNode *parse_postfix(JinjaParser *p, JinjaNode *node)
{
    while (!p->rc) {
        if (jparse_is_op(p, "(")) {
            node = parse_call(p, node);
        } else if (jparse_skip_op(p, "[")) {
            node = parse_subscript(p, node);
        } else if (jparse_skip_op(p, ".")) {
            JinjaNode *of = node;
            node = jparse_node_of(p, N_ATTR, of);
            if (p->token->kind == T_INT) {
                node->kind = N_ITEM;
                node->b = jparse_node(p, N_CONST);
                node->b->value = p->token->value;
                jparse_next(p);
            } else {
                node->name = jparse_name(p);
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
        return !jparse_is_word(p, "else") && !jparse_is_word(p, "or") &&
               !jparse_is_word(p, "and") && !jparse_is_word(p, "is") && !jparse_is_word(p, "if") &&
               !jparse_is_word(p, "in") && !jparse_is_word(p, "not");
    default:
        return jparse_is_op(p, "[") || jparse_is_op(p, "{");
    }
}

static JinjaNode *parse_test(JinjaParser *p, JinjaNode *of)
{
    bool not = jparse_skip_word(p, "not");
    JinjaNode *node = parse_filter_name(p, of, N_TEST);
    if (jparse_is_op(p, "(")) {
        parse_args(p, node);
    } else if (begins_test_argument(p)) {
        node->child = parse_postfix(p, parse_primary(p));
        jparse_nest(p, node, node->child);
    }
    return not ? jparse_node_of(p, N_NOT, node) : node;
}

static JinjaNode *parse_filters(JinjaParser *p, JinjaNode *node)
{
    while (!p->rc) {
        if (jparse_skip_op(p, "|"))
            node = jparse_filter(p, node);
        else if (jparse_skip_word(p, "is"))
            node = parse_test(p, node);
        else if (jparse_is_op(p, "("))
            node = parse_call(p, node);
        else
            break;
    }
    return node;
}

/* a, b … up to what ends such a list: one expression, or a tuple of them. */
JinjaNode *jparse_tuple(JinjaParser *p, bool may_be_empty, JinjaNode *(*parse_one)(JinjaParser *p))
{
    JinjaNode *tuple = jparse_node(p, N_TUPLE), **link = &tuple->child;
    bool commas = false;
    while (!p->rc) {
        if (jparse_is_op(p, ")") || p->token->kind == T_PRINT_END ||
            p->token->kind == T_BLOCK_END || jparse_is_word(p, "in"))
            break;
        jparse_append(p, tuple, &link, parse_one(p));
        if (!jparse_skip_op(p, ","))
            break;
        commas = true;
    }
    if (!tuple->child && !may_be_empty)
        jparse_fail(p, CVN_EFORMAT, "an expression is expected");
    return tuple->child && !commas ? tuple->child : tuple;
}

static JinjaNode *parse_list(JinjaParser *p, JinjaNodeKind kind)
{
    JinjaNode *node = jparse_node(p, kind), **link = &node->child;
    const char *end = kind == N_LIST ? "]" : "}";
    jparse_next(p);
    while (!p->rc && !jparse_skip_op(p, end)) {
        jparse_append(p, node, &link, jparse_expression(p));
        if (kind == N_DICT) {
            jparse_expect_op(p, ":");
            jparse_append(p, node, &link, jparse_expression(p));
        }
        if (!jparse_skip_op(p, ",") && !jparse_is_op(p, end))
            jparse_expect_op(p, end);
    }
    return node;
}

static JinjaNode *parse_strings(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_CONST);
    SCOPED(strbuf_free) StrBuf whole = {0};
    const Token *first = p->token;
    jparse_next(p);
    if (p->token->kind != T_STRING) {
        node->value = jparse_constant(p, first->text, first->n);
        return node;
    }
    strbuf_add(&whole, first->text, first->n);
    for (; p->token->kind == T_STRING; jparse_next(p))
        strbuf_add(&whole, p->token->text, p->token->n);
    node->value = jparse_constant(
        p, arena_stringn(&p->jinja->arena, whole.text ? whole.text : "", whole.length),
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
    JinjaNode *node = jparse_node(p, N_NAME);
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (jparse_skip_word(p, constants[i].word)) {
            node->kind = N_CONST;
            node->value = constants[i].value;
            return node;
        }
    }
    node->name = jparse_name(p);
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
        node = jparse_node(p, N_CONST);
        node->value = p->token->value;
        jparse_next(p);
        return node;
    default:
        break;
    }
    if (jparse_is_op(p, "["))
        return parse_list(p, N_LIST);
    if (jparse_is_op(p, "{"))
        return parse_list(p, N_DICT);
    if (jparse_skip_op(p, "(")) {
        node = jparse_tuple(p, true, jparse_expression);
        jparse_expect_op(p, ")");
        return node;
    }
    jparse_fail(p, CVN_EFORMAT, "an expression is expected");
    return jparse_node(p, N_CONST);
}

static JinjaNode *parse_unary(JinjaParser *p, bool filters)
{
    JinjaNode *node = NULL;
    if (!jparse_enter(p)) {
        p->depth--;
        return jparse_node(p, N_CONST);
    }
    if (jparse_skip_op(p, "-"))
        node = jparse_node_of(p, N_NEGATE, parse_unary(p, false));
    else if (jparse_skip_op(p, "+"))
        node = jparse_node_of(p, N_PLUS, parse_unary(p, false));
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
static JinjaNode *parse_rank(JinjaParser *p, int rank);

/* What the operators of a rank stand between. */
static JinjaNode *parse_operand(JinjaParser *p, int rank)
{
    return rank == 0 ? parse_concat(p) : rank == 1 ? parse_rank(p, 2) : parse_unary(p, true);
}

static JinjaNode *parse_rank(JinjaParser *p, int rank)
{
    JinjaNode *left = parse_operand(p, rank);
    for (size_t i = 0; !p->rc && i < sizeof OPERATOR / sizeof *OPERATOR;) {
        if (OPERATOR[i].rank != rank || !jparse_skip_op(p, OPERATOR[i].text)) {
            i++;
            continue;
        }
        left = binary(p, N_BINARY, OPERATOR[i].op, left, parse_operand(p, rank));
        i = 0;
    }
    return left;
}

static JinjaNode *parse_concat(JinjaParser *p)
{
    JinjaNode *first = parse_rank(p, 1);
    if (!jparse_is_op(p, "~"))
        return first;
    JinjaNode *node = jparse_node(p, N_CONCAT), **link = &node->child;
    jparse_append(p, node, &link, first);
    while (!p->rc && jparse_skip_op(p, "~"))
        jparse_append(p, node, &link, parse_rank(p, 1));
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
        if (jparse_skip_op(p, comparison[i].text))
            return true;
    }
    *op = OP_IN;
    if (jparse_skip_word(p, "in"))
        return true;
    *op = OP_NOT_IN;
    if (!jparse_skip_word(p, "not"))
        return false;
    if (jparse_skip_word(p, "in"))
        return true;
    p->token--;
    return false;
}

static JinjaNode *parse_compare(JinjaParser *p)
{
    JinjaNode *first = parse_rank(p, 0);
    JinjaOp op;
    if (!skip_comparison(p, &op))
        return first;
    JinjaNode *node = jparse_node_of(p, N_COMPARE, first), **link = &node->child;
    do {
        /* A node of its own, as the operation is kept in it. */
        JinjaNode *right = jparse_node_of(p, N_NAMED, parse_rank(p, 0));
        right->op = op;
        jparse_append(p, node, &link, right);
    } while (!p->rc && skip_comparison(p, &op));
    return node;
}

static JinjaNode *parse_not(JinjaParser *p)
{
    int nots = 0;
    while (jparse_skip_word(p, "not"))
        nots++;
    JinjaNode *node = parse_compare(p);
    while (nots-- > 0 && !p->rc)
        node = jparse_node_of(p, N_NOT, node);
    return node;
}

static JinjaNode *parse_and(JinjaParser *p)
{
    JinjaNode *left = parse_not(p);
    while (!p->rc && jparse_skip_word(p, "and"))
        left = binary(p, N_AND, OP_ADD, left, parse_not(p));
    return left;
}

JinjaNode *jparse_or(JinjaParser *p)
{
    JinjaNode *left = parse_and(p);
    while (!p->rc && jparse_skip_word(p, "or"))
        left = binary(p, N_OR, OP_ADD, left, parse_and(p));
    return left;
}

JinjaNode *jparse_expression(JinjaParser *p)
{
    if (!jparse_enter(p)) {
        p->depth--;
        return jparse_node(p, N_CONST);
    }
    JinjaNode *node = jparse_or(p);
    while (!p->rc && jparse_skip_word(p, "if")) {
        JinjaNode *choice = jparse_node(p, N_IF_ELSE);
        choice->a = node;
        p->branches++;
        choice->b = jparse_or(p);
        if (jparse_skip_word(p, "else"))
            choice->c = jparse_expression(p);
        p->branches--;
        jparse_nest(p, choice, choice->a);
        jparse_nest(p, choice, choice->b);
        jparse_nest(p, choice, choice->c);
        node = choice;
    }
    p->depth--;
    return node;
}
