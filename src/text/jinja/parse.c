/* Tokens to nodes, a descent by the grammar of jinja2: statements, each a row of TAG, and the text and expressions between them. */
#include "text/jinja/parse.h"

#include <string.h>

static JinjaNode *parse_block(JinjaParser *p, const char *const *ends);

/* Parses the target of an assignment: a name, an attribute of a namespace, or a tuple of them. */
static JinjaNode *parse_target_one(JinjaParser *p)
{
    if (jparse_is_op(p, "(")) {
        jparse_next(p);
        JinjaNode *tuple = jparse_tuple(p, false, parse_target_one);
        jparse_expect_op(p, ")");
        return tuple;
    }
    JinjaNode *node = jparse_node(p, N_NAME);
    node->name = jparse_name(p);
    if (jparse_skip_op(p, ".")) {
        node->kind = N_ATTR_TARGET;
        node->attribute = jparse_name(p);
    }
    return node;
}

static JinjaNode *parse_target(JinjaParser *p)
{
    JinjaNode *node = NULL;
    if (jparse_enter(p))
        node = jparse_tuple(p, false, parse_target_one);
    p->depth--;
    return node ? node : jparse_node(p, N_NAME);
}

static JinjaNode *parse_any_tuple(JinjaParser *p)
{
    return jparse_tuple(p, false, jparse_expression);
}

/* The body of a block, from behind its tag's words. */
static JinjaNode *parse_body(JinjaParser *p, JinjaNode *node, const char *end, const char *other,
                             const char *third)
{
    const char *const ends[] = {end, other, third, NULL};
    jparse_skip_op(p, ":");
    jparse_expect(p, T_BLOCK_END, "the end of the tag");
    JinjaNode *body = parse_block(p, ends);
    for (const JinjaNode *each = body; each; each = each->next)
        jparse_nest(p, node, each);
    if (!p->rc && p->token->kind == T_END)
        jparse_fail(p, CVN_EFORMAT, "the block of line %d has no '%s'", node->line, end);
    return body;
}

static void parse_ending(JinjaParser *p, JinjaNode *node, const char *end)
{
    node->child = parse_body(p, node, end, NULL, NULL);
    jparse_next(p);
}

static JinjaNode *parse_set(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_SET);
    node->a = parse_target(p);
    if (jparse_skip_op(p, "=")) {
        node->b = parse_any_tuple(p);
        jparse_nest(p, node, node->b);
        return node;
    }
    node->kind = N_SET_BLOCK;
    while (!p->rc && jparse_skip_op(p, "|"))
        node->b = jparse_filter(p, node->b);
    parse_ending(p, node, "endset");
    return node;
}

static JinjaNode *parse_for(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_FOR);
    node->a = parse_target(p);
    if (!jparse_skip_word(p, "in"))
        jparse_fail(p, CVN_EFORMAT, "expected 'in'");
    /* An `if` behind it chooses among the items. */
    node->b = jparse_tuple(p, false, jparse_or);
    if (jparse_skip_word(p, "if"))
        node->c = jparse_expression(p);
    jparse_nest(p, node, node->b);
    jparse_nest(p, node, node->c);
    if (jparse_is_word(p, "recursive"))
        jparse_fail(p, CVN_EUNSUPPORTED, "'recursive' loops are not supported");
    p->loops++;
    node->child = parse_body(p, node, "endfor", "else", NULL);
    p->loops--;
    if (jparse_skip_word(p, "else"))
        node->others = parse_body(p, node, "endfor", NULL, NULL);
    jparse_next(p);
    return node;
}

static JinjaNode *parse_if(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_IF), **link = &node->child;
    bool more = true, last = false;
    p->branches++;
    while (more && !p->rc) {
        JinjaNode *branch = jparse_node(p, N_BRANCH);
        if (!last)
            branch->a = jparse_tuple(p, false, jparse_or);
        jparse_nest(p, branch, branch->a);
        branch->child = parse_body(p, branch, "endif", last ? NULL : "else", last ? NULL : "elif");
        jparse_append(p, node, &link, branch);
        last = jparse_is_word(p, "else");
        more = last || jparse_is_word(p, "elif");
        jparse_next(p);
    }
    p->branches--;
    return node;
}

static void parse_parameters(JinjaParser *p, JinjaNode *node)
{
    JinjaNode **link = &node->others;
    jparse_expect_op(p, "(");
    while (!p->rc && !jparse_skip_op(p, ")")) {
        JinjaNode *parameter = jparse_node(p, N_NAME);
        if (node->others)
            jparse_expect_op(p, ",");
        parameter->name = jparse_name(p);
        if (jparse_skip_op(p, "=")) {
            parameter->a = jparse_expression(p);
            jparse_nest(p, parameter, parameter->a);
        }
        jparse_append(p, node, &link, parameter);
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
    JinjaNode *node = jparse_node(p, N_MACRO);
    node->name = jparse_name(p);
    parse_parameters(p, node);
    parse_function_body(p, node, "endmacro");
    return node;
}

static JinjaNode *parse_call_block(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_CALL_BLOCK);
    node->name = jparse_intern(p, "caller", 6);
    if (jparse_is_op(p, "("))
        parse_parameters(p, node);
    node->a = jparse_expression(p);
    jparse_nest(p, node, node->a);
    if (node->a->kind != N_CALL)
        jparse_fail(p, CVN_EFORMAT, "expected a call");
    parse_function_body(p, node, "endcall");
    return node;
}

static JinjaNode *parse_filter_block(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_FILTER_BLOCK);
    do
        node->a = jparse_filter(p, node->a);
    while (!p->rc && jparse_skip_op(p, "|"));
    parse_ending(p, node, "endfilter");
    return node;
}

static JinjaNode *parse_with(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_SCOPE), **link = &node->others;
    while (!p->rc && p->token->kind != T_BLOCK_END) {
        JinjaNode *set = jparse_node(p, N_SET);
        if (node->others)
            jparse_expect_op(p, ",");
        set->a = parse_target_one(p);
        jparse_expect_op(p, "=");
        set->b = jparse_expression(p);
        jparse_nest(p, set, set->b);
        jparse_append(p, node, &link, set);
    }
    parse_ending(p, node, "endwith");
    return node;
}

static JinjaNode *parse_generation(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, N_GENERATION);
    parse_function_body(p, node, "endgeneration");
    return node;
}

static JinjaNode *parse_jump(JinjaParser *p)
{
    JinjaNode *node = jparse_node(p, p->token[-1].n == 5 ? N_BREAK : N_CONTINUE);
    if (!p->loops)
        jparse_fail(p, CVN_EFORMAT, "break and continue are only allowed in a loop");
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
        jparse_fail(p, CVN_EFORMAT, "the name of a tag is expected");
    for (size_t i = 0; !p->rc && i < sizeof TAG / sizeof *TAG; i++)
        if (jparse_skip_word(p, TAG[i].tag))
            return TAG[i].parse(p);
    jparse_fail(p, tag->n > 3 && memcmp(tag->text, "end", 3) == 0 ? CVN_EFORMAT : CVN_EUNSUPPORTED,
                "unknown tag '%.*s'", tag->n > 40 ? 40 : (int)tag->n, tag->text);
    return jparse_node(p, N_CONST);
}

/* Statements up to a tag of `ends`, behind whose {% it stands then, or to the end of the template. */
static JinjaNode *parse_block(JinjaParser *p, const char *const *ends)
{
    JinjaNode *first = NULL, **link = &first, *node;
    if (!jparse_enter(p)) {
        p->depth--;
        return NULL;
    }
    while (!p->rc && p->token->kind != T_END) {
        switch (p->token->kind) {
        case T_DATA:
            node = jparse_node(p, N_TEXT);
            node->value = jparse_constant(p, p->token->text, p->token->n);
            jparse_next(p);
            break;
        case T_PRINT:
            jparse_next(p);
            node = jparse_node_of(p, N_OUTPUT, parse_any_tuple(p));
            jparse_expect(p, T_PRINT_END, "'}}'");
            break;
        default:
            jparse_next(p);
            for (size_t i = 0; ends && ends[i]; i++) {
                if (jparse_is_word(p, ends[i])) {
                    p->depth--;
                    return first;
                }
            }
            node = parse_statement(p);
            jparse_expect(p, T_BLOCK_END, "the end of the tag");
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
