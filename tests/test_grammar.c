/* Grammars, in both notations: what they let come, byte by byte and token by token. */
#include "constrain_support.h"

static const char json[] =
    "# JSON\n"
    "root   ::= object\n"
    "value  ::= object | array | string | number | (\"true\" | \"false\" | \"null\") ws\n"
    "object ::=\n"
    "  \"{\" ws (\n"
    "            string \":\" ws value\n"
    "    (\",\" ws string \":\" ws value)*\n"
    "  )? \"}\" ws\n"
    "array  ::= \"[\" ws ( value (\",\" ws value)* )? \"]\" ws\n"
    "string ::= \"\\\"\" ( [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" "
    "[0-9a-fA-F]{4})\n"
    "  )* \"\\\"\" ws\n"
    "number ::= (\"-\"? ([0-9] | [1-9] [0-9]{0,15})) (\".\" [0-9]+)? ([eE] [-+]? [0-9] "
    "[1-9]{0,15})? ws\n"
    "ws ::= | \" \" | \"\\n\" [ \\t]{0,20}\n";

static const char sums[] = "?start: sum\n"
                           "?sum: product | sum \"+\" product -> add\n"
                           "    | sum \"-\" product -> sub\n"
                           "?product: atom | product \"*\" atom -> mul // left, too\n"
                           "?atom: NUMBER -> number | \"-\" atom | \"(\" sum \")\" | CNAME~1..2\n"
                           "%import common (NUMBER, CNAME)\n"
                           "%import common.WS_INLINE -> BLANKS\n"
                           "%ignore BLANKS\n";

static const struct {
    const char *grammar, *text;
    char want;
} cases[] = {
    {json, "{\"a\": [1, {\"b\":\"\\u00e9\xc3\xa9\"}, -2.5e+7]}", 'y'},
    {json, "{\"a\": [1,", 'p'},
    {json, "{\"a\": [1,]", 'n'},
    {json, "{\"a\":tru", 'p'},
    {json, "{} \n", 'n'},
    {json, "{}\n  ", 'y'},
    {sums, "1 + 2*(x - -3.5) ", 'y'},
    {sums, "1 + 2*(x - -3.5", 'p'},
    {sums, "1 + ", 'p'},
    {sums, "1 + * 2", 'n'},
    {sums, " a b", 'y'},
    {sums, "((((((((((((1))))))))))))", 'y'},
    {sums, "(1))", 'n'},
    {"root ::= [a-c]{2} | \"x\" root \"y\"", "xxaby", 'p'},
    {"root ::= [a-c]{2} | \"x\" root \"y\"", "xxabyy", 'y'},
    {"root ::= [a-c]{2} | \"x\" root \"y\"", "xxabyyy", 'n'},
    {"root ::= .{2}", "\xc3\xa9\n", 'y'},
    {"root ::= [^a\\]-]+", "b^", 'y'},
    {"root ::= [^a\\]-]+", "]", 'n'},
    {"root ::= a-b*\na-b ::= \"x\" | \"(\" root \")\"", "x(xx(x))x", 'y'},
    {"root ::= a-b{2,3}\na-b ::= \"x\" | \"(\" root \")\"", "x(xx", 'p'},
    {"root ::= a-b{2,3}\na-b ::= \"x\" | \"(\" root \")\"", "x(xxx)x", 'y'},
    {"root ::= a-b{2,3}\na-b ::= \"x\" | \"(\" root \")\"", "x(xxxx", 'n'},
    {"root ::= (e? e?)*\ne ::= \"a\" e \"b\" | \"\"", "aabbab", 'y'},
    {"root ::= \"a\" root | \"a\"", "aaaa", 'y'},
    {"root ::= \"a\" root? \"b\"?", "aabb", 'y'},
    {"root ::= x | \"b\"\nx ::= \"a\" x", "a", 'n'},
    {"root ::= x | \"b\"\nx ::= \"a\" x", "b", 'y'},
    {"start: (\"a\"..\"c\")~2 [\"SELECT\"i]", "acsElect", 'y'},
    {"start: A \"x\" A\nA.2: \"a\" B?\nB: /[0-9]{2}/", "a12xa", 'y'},
    {"start: A+\nA: /[^\\/]/\n%ignore \" \" | /\\n/", "  \n b c\n", 'y'},
    {"start: x\nx: x \"a\" | x \"b\" | \"c\"", "cabba", 'y'},
    {"start: x\nx: x \"a\" | x \"b\" | \"c\"", "ac", 'n'},
};

static cvn_constraint *grammar(const char *text)
{
    cvn_constraint *constraint;
    cvn_err err = {0};
    must(cvn_constraint_grammar(text, strlen(text), &constraint, &err), &err);
    return constraint;
}

static void texts_are_let_in_as_the_grammar_says(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_verdict(cases[i].grammar, grammar(cases[i].grammar), cases[i].text, cases[i].want);
}

static void what_is_not_read_is_refused_by_name(void **unused)
{
    static const struct {
        const char *grammar, *says;
    } bad[] = {
        {"root ::= a\na ::= b \"x\" | \"y\"\nb ::= a \"z\"", "rule a begins with itself"},
        {"root ::= \"\"? root \"x\" | \"y\"", "rule root begins with itself"},
        {"root ::= x", "rule 'x', which is not defined"},
        {"a ::= \"x\"", "no rule 'root'"},
        {"root ::= (\"a\"", "line 1"},
        {"root ::= \"a\n", "line 2"},
        {"root ::= [b-a]", "out of order"},
        {"root ::= \"\\q\"", "escape"},
        {"root ::= <[12]>", "token"},
        {"root ::= root \"a\"", "no text"},
        {"root ::= \"a\"\nroot ::= \"b\"", "already defined"},
        {"root ::= \"a\"{3,2}", "m <= n"},
        {"start: /a/i", "flags"},
        {"start: x{A}", "template"},
        {"start: A\nA: b\nb: \"x\"", "terminal"},
        {"start: /(a/", "line 1 of the grammar: the regular expression"},
        {"%declare A\nstart: A", "directive"},
        {"%import common.NOTHING\nstart: NOTHING", "%import"},
        {"", "start"},
        {"root ::= \"a\" )", "rule is expected"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cvn_constraint *c;
        cvn_err err = {0};
        if (!cvn_constraint_grammar(bad[i].grammar, strlen(bad[i].grammar), &c, &err))
            fail_msg("%s was not refused", bad[i].grammar);
        if (!strstr(err.message, bad[i].says))
            fail_msg("%s: '%s' does not say %s", bad[i].grammar, err.message, bad[i].says);
    }
}

static void masks_allow_what_bytes_allow(void **unused)
{
    static const char *const more[] = {
        "aa",       "ab\"",   "\": ", "\",\"", "]}", "1}",   "1]",   "\"}}", "xx(", "+ (",    "))",
        "\xc3\xa9", "\xa9\"", "abab", "true",  " }", "12.5", "e+1]", "x)x",  "(x",  "{\"a\":"};
    Pieces pieces;
    (void)unused;
    pieces_init(&pieces, more, sizeof more / sizeof *more, false);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_constraint *constraint = grammar(cases[i].grammar);
        check_masks_along(constraint, &pieces, cases[i].grammar, cases[i].text);
        cvn_constraint_free(constraint);
    }
    cvn_vocabulary_free(pieces.vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_let_in_as_the_grammar_says),
        cmocka_unit_test(what_is_not_read_is_refused_by_name),
        cmocka_unit_test(masks_allow_what_bytes_allow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
