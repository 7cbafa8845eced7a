/* Grammars, in both notations: what they let come, byte by byte and token by token. */
#include "caravan/constrain.h"

#include "unit.h"

#include <string.h>

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

/* 'y': accepted to its end; 'p': a prefix of something that is; 'n': neither. */
static char verdict(cvn_constraint *constraint, const char *text)
{
    cvn_constrained *state;
    cvn_err err = {0};
    must(cvn_constrained_new(constraint, NULL, &state, &err), &err);
    int code = cvn_constrained_advance_bytes(state, text, strlen(text), &err);
    char answer = code ? 'n' : cvn_constrained_complete(state) ? 'y' : 'p';
    if (code && code != CVN_EINVAL)
        fail_msg("%s", err.message);
    cvn_constrained_free(state);
    return answer;
}

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

static void texts_are_let_in_as_the_grammar_says(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_constraint *c;
        cvn_err err = {0};
        must(cvn_constraint_grammar(cases[i].grammar, strlen(cases[i].grammar), &c, &err), &err);
        char got = verdict(c, cases[i].text);
        if (got != cases[i].want)
            fail_msg("%s\n%s is '%c', not '%c'", cases[i].grammar, cases[i].text, got,
                     cases[i].want);
        cvn_constraint_free(c);
    }
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

/* Every byte is a token, and some texts are. */
static void masks_allow_what_bytes_allow(void **unused)
{
    static const char *const more[] = {
        "aa",       "ab\"",   "\": ", "\",\"", "]}", "1}",   "1]",   "\"}}", "xx(", "+ (",    "))",
        "\xc3\xa9", "\xa9\"", "abab", "true",  " }", "12.5", "e+1]", "x)x",  "(x",  "{\"a\":"};
    enum { MORE = sizeof more / sizeof *more, ALL = 256 + MORE };
    static char bytes[256];
    const char *piece[ALL];
    size_t length[ALL];
    cvn_vocabulary *vocabulary;
    cvn_err err = {0};
    (void)unused;
    for (size_t i = 0; i < ALL; i++) {
        if (i < 256)
            bytes[i] = (char)i;
        piece[i] = i < 256 ? &bytes[i] : more[i - 256];
        length[i] = i < 256 ? 1 : strlen(more[i - 256]);
    }
    must(cvn_vocabulary_new(piece, length, ALL, NULL, 0, &vocabulary, &err), &err);
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        cvn_constraint *c;
        cvn_constrained *text;
        must(cvn_constraint_grammar(cases[k].grammar, strlen(cases[k].grammar), &c, &err), &err);
        must(cvn_constrained_new(c, vocabulary, &text, &err), &err);
        for (const char *at = cases[k].text; *at; at++) {
            uint32_t mask[CVN_MASK_WORDS(ALL)];
            must(cvn_constrained_mask(text, mask, &err), &err);
            for (cvn_token i = 0; i < ALL; i++) {
                cvn_constrained *next = cvn_constrained_clone(text);
                bool may = cvn_constrained_advance_bytes(next, piece[i], length[i], NULL) == CVN_OK;
                cvn_constrained_free(next);
                if (may != (mask[i / 32] >> (i % 32) & 1))
                    fail_msg("%s before %s, token '%s' (%d): the mask says %d", cases[k].grammar,
                             at, piece[i], (int)i, !may);
            }
            if (cvn_constrained_advance(text, (unsigned char)*at, NULL))
                break;
        }
        cvn_constrained_free(text);
        cvn_constraint_free(c);
    }
    cvn_vocabulary_free(vocabulary);
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
