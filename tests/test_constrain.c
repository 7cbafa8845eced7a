/* What may follow in a text under a constraint: exactly what some complete text goes on with, and nothing else. */
#include "base/strbuf.h"
#include "caravan/constrain.h"
#include "constrain/decimal.h"
#include "constrain/json.h"

#include "unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static cvn_constraint *schema(const char *text, const cvn_constrain_options *options)
{
    cvn_constraint *constraint;
    cvn_err err = {0};
    must(cvn_constraint_schema(text, strlen(text), options, &constraint, &err), &err);
    return constraint;
}

/* 'y': accepted to its end; 'p': a prefix of something that is; 'n': neither. */
static char verdict(cvn_constraint *constraint, const char *text)
{
    cvn_constrained *state;
    cvn_err err = {0};
    must(cvn_constrained_new(constraint, NULL, &state, &err), &err);
    int code = cvn_constrained_advance_bytes(state, text, strlen(text), &err);
    char answer = code ? 'n' : cvn_constrained_complete(state) ? 'y' : 'p';
    assert_true(code == CVN_OK || code == CVN_EINVAL);
    cvn_constrained_free(state);
    return answer;
}

static void expect(const char *of, const char *text, char want)
{
    cvn_constraint *constraint = schema(of, NULL);
    char got = verdict(constraint, text);
    if (got != want)
        fail_msg("%s: %s is '%c', not '%c'", of, text, got, want);
    cvn_constraint_free(constraint);
}

static void prefixes_without_an_end_are_not_let_in(void **unused)
{
    static const struct {
        const char *schema, *text;
        char want;
    } cases[] = {
        {"{\"enum\":[\"ab\",\"ac\"]}", "\"a", 'p'},
        {"{\"enum\":[\"ab\",\"ac\"]}", "\"ad", 'n'},
        {"{\"enum\":[\"ab\",\"ac\"]}", "\"\\u0061\\u006", 'p'},
        {"{\"enum\":[\"ab\",\"ac\"]}", "\"\\u0061\\u007", 'n'},
        {"{\"pattern\":\"^a+$\",\"not\":{\"pattern\":\"^aa$\"},\"maxLength\":2}", "\"a\"", 'y'},
        {"{\"pattern\":\"^a+$\",\"not\":{\"pattern\":\"^aa$\"},\"maxLength\":2,\"type\":"
         "\"string\"}",
         "\"aa", 'n'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "1", 'p'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "2", 'n'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "0.01", 'p'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "1.1e1", 'y'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "1.15", 'n'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "1.10000", 'p'},
        {"{\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "-", 'n'},
        {"{\"multipleOf\":0.3,\"minimum\":0.5,\"maximum\":0.7}", "0.60", 'y'},
        {"{\"type\":\"integer\",\"multipleOf\":0.123456789}", "12345678", 'p'},
        {"{\"type\":\"integer\",\"multipleOf\":0.123456789}", "123456789", 'y'},
        {"{\"type\":\"integer\",\"multipleOf\":0.123456789,\"maximum\":123456788,\"minimum\":1}",
         "1", 'n'},
        {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":6},{\"multipleOf\":15}],\"minimum\":1,"
         "\"maximum\":59}",
         "3", 'p'},
        {"{\"type\":\"integer\",\"allOf\":[{\"multipleOf\":6},{\"multipleOf\":15}],\"minimum\":1,"
         "\"maximum\":59}",
         "6", 'n'},
        {"{\"type\":\"integer\",\"not\":{\"multipleOf\":0.5}}", "1", 'n'},
        {"{\"type\":\"number\",\"multipleOf\":0.3,\"minimum\":0.5,\"maximum\":0.7}", "0.5", 'n'},
        {"{\"type\":\"number\",\"multipleOf\":7,\"minimum\":50,\"maximum\":55}", "5", 'n'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"exclusiveMaximum\":1e-300}", "0.00", 'p'},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,true]},\"uniqueItems\":true}", "[1.0, t", 'p'},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,true]},\"uniqueItems\":true}", "[1, 1", 'n'},
        {"{\"type\":\"array\",\"items\":{\"enum\":[1,true]},\"uniqueItems\":true}", "[1,true,",
         'n'},
        {"{\"uniqueItems\":true}", "[{\"a\":1,\"b\":2},{\"b\":2.0,\"a\":1}", 'n'},
        {"{\"uniqueItems\":true}", "[{\"a\":1},{\"a\":1", 'p'},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"maxItems\":2}", "[1,", 'p'},
        {"{\"type\":\"array\",\"contains\":{\"const\":5},\"maxItems\":2}", "[1,6", 'n'},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"additionalProperties\":false,\"properties\":{"
         "\"a\":false}}",
         "{", 'n'},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"maxProperties\":1}", "{\"b", 'n'},
        {"{\"type\":\"object\",\"required\":[\"a\"],\"maxProperties\":1}", "{\"a\":1,", 'n'},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}}}", "{\"a\":1,\"a", 'p'},
        {"{\"type\":\"object\",\"properties\":{\"a\":{}},\"additionalProperties\":false}",
         "{\"a\":1,", 'n'},
        {"{\"minProperties\":2,\"propertyNames\":{\"enum\":[\"x\"]}}", "{", 'n'},
        {"{\"oneOf\":[{\"required\":[\"a\"]},{\"required\":[\"b\"]}]}", "{\"a\":1,\"b\"", 'n'},
        {"{\"$defs\":{\"n\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "n\"},\"minItems\":1}},\"$ref\":\"#/$defs/n\"}",
         "[", 'n'},
        {"{\"$defs\":{\"n\":{\"type\":\"array\",\"items\":{\"$ref\":\"#/$defs/"
         "n\"},\"maxItems\":1}},\"$ref\":\"#/$defs/n\"}",
         "[[[]]]", 'y'},
        {"{\"minProperties\":2}", "{\"x\":1,\"x\"", 'n'},
        {"{\"minProperties\":2}", "{\"x\":1,\"\\u0078", 'p'},
        {"{\"minProperties\":2}", "{\"x\":1,\"\\u0078\"", 'n'},
        {"{\"minProperties\":2}", "{\"x\":1,\"xy\":1}", 'y'},
        {"{\"minProperties\":2}", "{\"x\":1,\"y\":1,\"x\"", 'n'},
        {"{\"minProperties\":1}", "{\"x\":1,\"x\":1}", 'y'},
        {"{\"minProperties\":2,\"properties\":{\"a\":{}}}", "{\"a\":1,\"x\":{\"x\":[]}}", 'y'},
        {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}",
         "{\"x\":1,\"x\"", 'n'},
        {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}",
         "{\"x\":1,\"y\":null}", 'y'},
        {"{\"type\":\"object\",\"not\":{\"additionalProperties\":{\"type\":\"null\"}}}",
         "{\"x\":null}", 'n'},
        {"{\"minProperties\":2,\"patternProperties\":{\"^[ab]{30}$\":{}},\"additionalProperties\":"
         "{\"type\":\"null\"}}",
         "{\"aa\":null,\"b\":null,\"c\":null}", 'y'},
        {"{\"minProperties\":2,\"propertyNames\":{\"pattern\":\"^[a-z]{2}$\"}}", "{\"xx\":1,\"xx\"",
         'n'},
        {"{\"minProperties\":2,\"propertyNames\":{\"pattern\":\"^[a-z]{2}$\"}}",
         "{\"xx\":1,\"xy\":1}", 'y'},
        {"{\"type\":\"object\",\"maxProperties\":1,\"propertyNames\":{\"maxLength\":1},\"not\":{"
         "\"patternProperties\":{\"^a\":{\"type\":\"string\"}}}}",
         "{\"a\":1}", 'y'},
        {"{\"type\":\"object\",\"maxProperties\":1,\"propertyNames\":{\"maxLength\":1},\"not\":{"
         "\"patternProperties\":{\"^[a\u00e4-\u4e00]\":{\"type\":\"string\"}}}}",
         "{\"b\"", 'n'},
        {"{\"format\":\"date\",\"type\":\"string\"}", "\"2023-02-2", 'p'},
        {"{\"format\":\"date\",\"type\":\"string\"}", "\"2023-02-29", 'n'},
        {"{\"format\":\"date\",\"type\":\"string\"}", "\"2024-02-29\"", 'y'},
        {"true", "\"\\ud800\"", 'n'},
        {"true", "\"\\ud83d\\ude00\" \n", 'y'},
        {"true", "[1,]", 'n'},
        {"true", "01", 'n'},
        {"false", "1", 'n'},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect(cases[i].schema, cases[i].text, cases[i].want);
}

static void what_is_not_supported_is_refused_with_its_path(void **unused)
{
    static const struct {
        const char *schema, *says;
    } cases[] = {
        {"{\"properties\":{\"a\":{\"$dynamicRef\":\"#b\"}}}", "#/properties/a/$dynamicRef"},
        {"{\"items\":{\"pattern\":\"(a+)\\\\1\"}}", "#/items/pattern"},
        {"{\"$ref\":\"https://example.com/other\"}", "#/$ref"},
        {"{\"format\":\"regex\"}", "#/format"},
        {"{\"not\":{\"uniqueItems\":true}}", "uniqueItems"},
        {"{\"$ref\":\"#\"}", "$ref"},
        {"{\"multipleOf\":0}", "#/multipleOf"},
        {"{\"minProperties\":3,\"propertyNames\":{\"pattern\":\"^a{90}b?$\"}}", "few names"},
        {"{\"minProperties\":17577,\"propertyNames\":{\"pattern\":\"^[a-z]{3}$\"}}", "few names"},
        {"{\"type\":\"strong\"}", "#/type"},
        {"{\"$schema\":\"http://json-schema.org/draft-03/schema#\"}", "#/$schema"},
        {"{\"$defs\":{\"a\":{\"$id\":\"x\"},\"b\":{\"$id\":\"x\"}},\"items\":{\"$ref\":\"x\"}}",
         "two schemas"},
        {"[]", "#"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_constraint *constraint;
        cvn_err err = {0};
        if (!cvn_constraint_schema(cases[i].schema, strlen(cases[i].schema), NULL, &constraint,
                                   &err))
            fail_msg("%s was not refused", cases[i].schema);
        if (!strstr(err.message, cases[i].says))
            fail_msg("%s: '%s' does not say %s", cases[i].schema, err.message, cases[i].says);
    }
    static const char deep[] =
        "{\"type\":\"object\",\"properties\":{\"a\":{\"items\":{\"format\":\"regex\"}}}}";
    cvn_err err = {0};
    cvn_constraint *lazy = schema(deep, &(cvn_constrain_options){.lazy = true});
    assert_int_equal(cvn_constraint_check(lazy, &err), CVN_EUNSUPPORTED);
    assert_non_null(strstr(err.message, "#/properties/a/items/format"));
    cvn_constraint_free(lazy);
}

static void keywords_mean_what_the_dialect_says(void **unused)
{
#define SAYS(uri) "{\"$schema\":\"" uri "\","
    static const char *const dialect[] = {SAYS("http://json-schema.org/draft-04/schema#"),
                                          SAYS("http://json-schema.org/draft-06/schema"),
                                          SAYS("http://json-schema.org/draft-07/schema#"),
                                          SAYS("https://json-schema.org/draft/2019-09/schema"),
                                          SAYS("https://json-schema.org/draft/2020-12/schema")};
    static const int draft[] = {4, 6, 7, 2019, 2020};
    static const struct {
        const char *rest, *text, *want; /* a verdict per dialect */
    } cases[] = {
        {"\"id\":\"a\",\"definitions\":{\"x\":{\"id\":\"b\",\"type\":\"null\"},\"y\":{\"$id\":"
         "\"b\"}},"
         "\"items\":{\"$ref\":\"b\"}}",
         "[1]", "nyyyy"},
        {"\"minimum\":3,\"const\":3}", "4", "ynnnn"},
        {"\"if\":{\"type\":\"null\"},\"else\":false}", "4", "yynnn"},
        {"\"type\":\"integer\"}", "1.0", "nyyyy"},
        {"\"type\":\"number\",\"not\":{\"type\":\"integer\"}}", "1.0", "ypppp"},
        {"\"type\":\"integer\",\"not\":{\"type\":\"integer\"}}", "1", "nnnnn"},
        {"\"type\":\"integer\",\"multipleOf\":2.5,\"minimum\":1}", "2", "ppppp"},
        {"\"type\":\"integer\",\"minimum\":1}", "-", "nnnnn"},
        {"\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "0.01", "npppp"},
        {"\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "1", "ppppp"},
        {"\"type\":\"integer\",\"minimum\":10,\"maximum\":12}", "2", "nnnnn"},
        {"\"type\":\"integer\"}", "1e", "npppp"},
        {"\"contains\":{\"type\":\"null\"}}", "[]", "ynnnn"},
        {"\"contains\":{\"type\":\"null\"},\"minContains\":2}", "[null]", "yyynn"},
        {"\"items\":{\"type\":\"null\"},\"prefixItems\":[true]}", "[1]", "nnnny"},
        {"\"dependentRequired\":{\"a\":[\"b\"]}}", "{\"a\":1}", "yyynn"},
        {"\"dependencies\":{\"a\":[\"b\"]}}", "{\"a\":1}", "nnnnn"},
        {"\"definitions\":{\"x\":true},\"$ref\":\"#/definitions/x\",\"type\":\"null\"}", "1",
         "yyynn"},
        {"\"propertyNames\":{\"maxLength\":1}}", "{\"ab\":1}", "ynnnn"},
        {"\"unevaluatedProperties\":false}", "{\"ab\":1}", "yyynn"},
        {"\"unevaluatedItems\":false,\"contains\":true}", "[1]", "yyyny"},
        {"\"definitions\":{\"x\":{\"$anchor\":\"q\"}},\"$defs\":{\"$ref\":\"#q\"}}", "1", "yyyyy"},
    };
    static const struct {
        const char *rest, *text, *want;
    } without[] = {
        /* what only some dialects take */
        {"{\"minimum\":3,\"exclusiveMinimum\":true}", "3", "p----"},
        {"{\"exclusiveMinimum\":3}", "3", "-pppp"},
        {"{\"items\":[{\"type\":\"null\"}],\"additionalItems\":false}", "[null,", "nnnn-"}};
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t d = 0; d < 5; d++) {
            char of[400];
            snprintf(of, sizeof of, "%s%s", dialect[d], cases[i].rest);
            expect(of, cases[i].text, cases[i].want[d]);
        }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        for (size_t d = 0; d < 5; d++) {
            cvn_constraint *constraint = NULL;
            cvn_constrain_options options = {.draft = draft[d]};
            cvn_err err = {0};
            int code = cvn_constraint_schema(without[i].rest, strlen(without[i].rest), &options,
                                             &constraint, &err);
            if ((code ? '-' : verdict(constraint, without[i].text)) != without[i].want[d])
                fail_msg("%s, draft %d: not '%c' (%s)", without[i].rest, draft[d],
                         without[i].want[d], err.message);
            cvn_constraint_free(constraint);
        }
    cvn_constraint *none;
    assert_int_equal(
        cvn_constraint_schema("{}", 2, &(cvn_constrain_options){.draft = 5}, &none, NULL),
        CVN_EINVAL);
}

/* A text of n parts around another: "%d" stands for the part's number, "%n" for the next. */
typedef struct Hostile {
    const char *begin, *each, *core, *close, *end;
    int n;
    const char *says; /* of what is refused; NULL: it is not */
} Hostile;

static void write_hostile(const Hostile *h, StrBuf *out)
{
    strbuf_puts(out, h->begin);
    for (int i = 0; i < h->n; i++)
        for (const char *at = h->each; *at; at++) {
            bool number = at[0] == '%' && (at[1] == 'd' || at[1] == 'n');
            if (number)
                strbuf_printf(out, "%d", i + (at[1] == 'n'));
            else
                strbuf_putc(out, *at);
            at += number;
        }
    strbuf_puts(out, h->core);
    for (int i = 0; i < h->n; i++)
        strbuf_puts(out, h->close);
    strbuf_puts(out, h->end);
}

/* Schemas that explode are refused by name, when they are made or on the way, or cost no more than others. */
static void what_multiplies_is_bounded(void **unused)
{
    static const Hostile hostile[] = {
        {"", "{\"items\":", "{}", "}", "", 2000, "nested"},
        {"", "{\"type\":\"array\",\"minItems\":1,\"items\":", "{}", "}", "", 300, NULL},
        {"", "{\"not\":{\"anyOf\":[{\"type\":\"null\"},", "{\"type\":\"integer\"}", "]}}", "", 40,
         NULL},
        {"{\"type\":\"string\",\"pattern\":\"^", "(", "a", "{0,99})", "$\"}", 16, "takes too long"},
        {"{\"type\":\"string\",\"pattern\":\"^", "(", "a", "{1,1000})", "$\"}", 2, NULL},
        {"{\"type\":\"string\",\"pattern\":\"^.*a.{60}$\",\"not\":{\"pattern\":\"^.*b.{50}$\"}}",
         "", "", "", "", 0, NULL},
        {"{\"type\":\"object\",\"allOf\":[",
         "{\"anyOf\":[{\"required\":[\"a%d\"]},{\"required\":[\"b%d\"]}]},", "true", "", "]}", 40,
         NULL},
        {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{", "\"d%d\":{\"$ref\":\"#/$defs/d%n\"},",
         "\"d3000\":true", "", "}}", 3000, "nested too deeply"},
        {"{\"$ref\":\"#/$defs/d0\",\"$defs\":{",
         "\"d%d\":{\"required\":[\"x\",\"y\"],\"additionalProperties\":{\"$ref\":\"#/$defs/"
         "d%n\"}},",
         "\"d60\":true", "", "}}", 60, NULL},
        {"{\"enum\":[", "\"value %d of many\",", "null", "", "]}", 3000, NULL},
        {"{\"enum\":[", "{\"k\":%d},", "null", "", "]}", 500, NULL},
        {"{\"enum\":[", "{\"k\":%d},", "null", "", "]}", 3000, "too many"},
        {"{\"type\":\"array\",\"minItems\":1e9,\"maxItems\":1e12}", "", "", "", "", 0, NULL},
        {"{\"type\":\"array\",\"minItems\":100,\"uniqueItems\":true,\"items\":{\"type\":"
         "\"boolean\"}}",
         "", "", "", "", 0, "uniqueItems"},
        {"{\"type\":\"string\",\"minLength\":1e9}", "", "", "", "", 0, NULL},
        {"{\"type\":\"object\",\"patternProperties\":{", "\"^.*%d.*%n\":{\"minimum\":%d},",
         "\"x\":true", "", "}}", 9, "classes of names"},
        {"{\"unevaluatedProperties\":false,\"anyOf\":[", "{\"properties\":{\"a%d\":true}},", "true",
         "", "]}", 20, "combinations"},
        {"{\"oneOf\":[",
         "{\"properties\":{\"kind\":{\"enum\":[\"k%d\"]},\"note\":{\"type\":\"string\"}}},",
         "false", "", "]}", 32, NULL},
        {"{\"type\":\"object\",\"minProperties\":1,\"oneOf\":[",
         "{\"properties\":{\"kind\":{\"enum\":[\"k%d\"]},\"note\":{\"minLength\":1}},\"required\":"
         "[\"n%d\"]},",
         "{\"properties\":{\"note\":{\"maxLength\":0}}}", "", "]}", 20, NULL},
        {"{\"allOf\":[",
         "{\"if\":{\"properties\":{\"kind\":{\"const\":\"k%d\"}}},\"then\":{\"properties\":{\"p\":{"
         "\"minLength\":1},\"q%d\":{\"minimum\":1}}}},",
         "true", "", "]}", 16, NULL},
        {"{\"oneOf\":[",
         "{\"type\":\"object\",\"required\":[\"kind\"],\"properties\":{\"kind\":{\"const\":\"k%d\"}"
         ","
         "\"config\":{\"properties\":{\"p%d\":{\"maxLength\":255},\"q\":{\"maxLength\":32767}},"
         "\"additionalProperties\":false}},\"additionalProperties\":false},",
         "false", "", "]}", 30, NULL},
        {"{\"type\":\"number\",\"minimum\":1,\"multipleOf\":999983,\"allOf\":[{\"multipleOf\":"
         "999979},{"
         "\"multipleOf\":1e-9},{\"multipleOf\":7.777}]}",
         "", "", "", "", 0, "multipleOf"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof hostile / sizeof *hostile; i++) {
        StrBuf schema_text = {0};
        cvn_constraint *c = NULL;
        cvn_constrained *text = NULL;
        cvn_err err = {0};
        write_hostile(&hostile[i], &schema_text);
        cvn_constraint_schema(schema_text.text, schema_text.length, NULL, &c, &err);
        if (c)
            must(cvn_constrained_new(c, NULL, &text, &err), &err);
        for (int step = 0; step < 60 && c && !err.code; step++) {
            const char *tried = step ? "abx[{:1,]}" : "[{\"";
            for (const char *at = tried; *at && !err.code; at++)
                if (cvn_constrained_advance_bytes(text, at, 1, &err) == CVN_EINVAL)
                    err = (cvn_err){0};
        }
        if (hostile[i].says ? !strstr(err.message, hostile[i].says) : err.code != CVN_OK)
            fail_msg("%zu, %.200s: '%s'", i, schema_text.text, err.message);
        cvn_constrained_free(text);
        cvn_constraint_free(c);
        strbuf_free(&schema_text);
    }
}

static void regular_expressions_are_those_of_ecma_262(void **unused)
{
    static const struct {
        const char *regex, *text;
        char want;
    } cases[] = {
        {"a{2,3}", "a", 'p'},
        {"a{2,3}", "aaa", 'y'},
        {"a{2,3}", "aaaa", 'n'},
        {"(?:ab|cd)+", "abc", 'p'},
        {"[^a-c]", "\xc3\xa9", 'y'},
        {"[^a-c]", "\xc3", 'p'},
        {"\\d+", "12", 'y'},
        {"\\d", "\xd9\xa1", 'n'},
        {".", "\n", 'n'},
        {"\\u{1f600}", "\xf0\x9f\x98\x80", 'y'},
        {"a(?=b)b", "ab", 'y'},
        {"a(?!b).", "ab", 'n'},
        {"a(?!b).", "ac", 'y'},
        {"^a$", "a", 'y'},
        {"a|b$|^c", "c", 'y'},
        {"\\p{L}+", "\xc3\xa9", 'y'},
        {"a*?b", "aab", 'y'},
        {"[\\w-]+", "a-b", 'y'},
        {"\\cA", "\x01", 'y'},
        {"", "", 'y'},
        {"\\bab\\b.*", "ab cd", 'y'},
        {"\\bab\\b.*", "abc", 'n'},
        {"[a-c ]{1,3}\\bd?", "a", 'y'},
        {"[a-c ]{1,3}\\bd?", "ad", 'n'},
        {"[a-c ]{1,3}\\bd?", "a d", 'y'},
        {"[a-c ]{1,3}\\bd?", " ", 'p'},
        {"a\\Bb\\B", "ab", 'n'},
        {"a\\Bb\\Bc", "abc", 'y'},
        {"(\\w+\\b ?)+", "ab cd", 'y'},
        {"([^,]+(,|$)){3,}", "a,b,c", 'y'},
        {"([^,]+(,|$)){3,}", "a,b", 'p'},
        {"([^,]+(,|$)){3,}", "a,b,c,", 'y'},
        {"((?!mode)(?!Mode).)*", "a mod", 'y'},
        {"((?!mode)(?!Mode).)*", "a mode", 'n'},
        {"((?!mode)(?!Mode).)*", "a Mod", 'y'},
        {"(^a|b)*", "abb", 'y'},
        {"(^a|b)*", "aba", 'n'},
        {"(^a|b){2,3}", "ab", 'y'},
        {"(^a|b){2,3}", "ba", 'n'},
        {"(a$|b)*", "bba", 'y'},
        {"(a$|b)*", "ab", 'n'},
        {"x?^a", "a", 'y'},
        {"x?^a", "xa", 'n'},
        {"(a|bc)-\\1", "bc-bc", 'y'},
        {"(a|bc)-\\1", "bc-a", 'n'},
        {"(?<q>['\"])[a-z]*\\k<q>", "'ab'", 'y'},
        {"(?<q>['\"])[a-z]*\\k<q>", "'ab\"", 'n'},
        {"{env}/\\d{2}", "{env}/12", 'y'},
        {"[\\p{Zs}a]+", "a\xc2\xa0", 'y'},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_constraint *constraint;
        cvn_err err = {0};
        must(cvn_constraint_regex(cases[i].regex, strlen(cases[i].regex), &constraint, &err), &err);
        char got = verdict(constraint, cases[i].text);
        if (got != cases[i].want)
            fail_msg("%s: '%s' is '%c', not '%c'", cases[i].regex, cases[i].text, got,
                     cases[i].want);
        cvn_constraint_free(constraint);
    }
    static const char *const bad[] = {"(",
                                      ")",
                                      "[a",
                                      "a**",
                                      "\\",
                                      "a{2,1}",
                                      "(?<=a)b",
                                      "\\1",
                                      "\\a",
                                      "[b-a]",
                                      "*",
                                      "(a+)\\1",
                                      "(a)?\\1",
                                      "(a\\1)",
                                      "\\k<n>(a)",
                                      "((?=a)b?)*",
                                      "(a|^b)\\b(c\\bd)+e"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cvn_constraint *constraint;
        assert_int_not_equal(cvn_constraint_regex(bad[i], strlen(bad[i]), &constraint, NULL),
                             CVN_OK);
    }
}

static const char *const walked[] = {
    "true",
    "{\"type\":\"object\",\"properties\":{\"id\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":"
    "99},\"tags\":{\"type\":\"array\",\"items\":{\"type\":\"string\","
    "\"pattern\":\"^[a-z]{1,4}$\"},\"maxItems\":3,\"uniqueItems\":true}},\"required\":[\"id\"],"
    "\"additionalProperties\":false}",
    "{\"oneOf\":[{\"properties\":{\"k\":{\"const\":\"a\"},\"x\":{\"type\":\"number\"}},"
    "\"required\":[\"k\",\"x\"]},{\"properties\":{\"k\":{\"const\":\"b\"}},"
    "\"required\":[\"k\"],\"maxProperties\":1}],\"type\":\"object\"}",
    "{\"if\":{\"properties\":{\"a\":{\"const\":1}},\"required\":[\"a\"]},\"then\":{\"required\":["
    "\"b\"]},\"else\":{\"maxProperties\":1},\"type\":\"object\"}",
    "{\"type\":\"array\",\"contains\":{\"type\":\"string\"},\"minContains\":2,\"maxContains\":2,"
    "\"items\":{\"type\":[\"string\",\"null\"],\"maxLength\":3},\"maxItems\":4}",
    "{\"anyOf\":[{\"format\":\"date-time\"},{\"format\":\"ipv4\"}],\"type\":\"string\"}",
    "{\"type\":\"number\",\"multipleOf\":0.25,\"exclusiveMinimum\":-3,\"maximum\":7}",
    "{\"type\":\"integer\",\"multipleOf\":7,\"not\":{\"multipleOf\":3},\"minimum\":-40}",
    "{\"items\":{\"type\":\"integer\",\"minimum\":17,\"maximum\":2e4,\"multipleOf\":12},"
    "\"minItems\":3}",
};

/* Bytes are drawn at random from those that may come. */
static void no_walk_under_masks_ends_before_the_text_does(void **unused)
{
    (void)unused;
    uint64_t seed = 7;
    for (size_t s = 0; s < 2 * (sizeof walked / sizeof *walked); s++) {
        const cvn_constrain_options options = {.compact = true, .canonical = s % 2};
        cvn_constraint *constraint = schema(walked[s / 2], &options);
        for (int walk = 0; walk < 20; walk++) {
            cvn_constrained *text;
            cvn_err err = {0};
            must(cvn_constrained_new(constraint, NULL, &text, &err), &err);
            for (int step = 0; step < 30; step++) {
                char may[256];
                size_t n = 0;
                for (int b = 0; b < 256; b++) {
                    char byte = (char)b;
                    cvn_constrained *next = cvn_constrained_clone(text);
                    if (!cvn_constrained_advance_bytes(next, &byte, 1, NULL))
                        may[n++] = byte;
                    cvn_constrained_free(next);
                }
                if (!n) {
                    assert_true(cvn_constrained_complete(text));
                    break;
                }
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                must(cvn_constrained_advance_bytes(text, &may[(seed >> 33) % n], 1, &err), &err);
            }
            cvn_constrained_free(text);
        }
        cvn_constraint_free(constraint);
    }
}

static void masks_allow_what_bytes_allow(void **unused)
{
    static const char *const piece[] = {"{",      "\"", "a",  "\":", "1", "}",  ",",   "{\"a\":1}",
                                        "\"a\":", " ",  "2}", "",    "b", "12", "</s>"};
    enum { N = sizeof piece / sizeof *piece, END = N - 1 };
    size_t length[N];
    cvn_vocabulary *vocabulary;
    cvn_constrained *text;
    cvn_err err = {0};
    (void)unused;
    for (size_t i = 0; i < N; i++)
        length[i] = strlen(piece[i]);
    must(cvn_vocabulary_new(piece, length, N, &(cvn_token){END}, 1, &vocabulary, &err), &err);
    cvn_constraint *constraint =
        schema("{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":9}},"
               "\"required\":[\"a\"],\"additionalProperties\":false}",
               NULL);
    must(cvn_constrained_new(constraint, vocabulary, &text, &err), &err);
    static const cvn_token said[] = {0, 1, 2, 3, 4, 5, END};
    for (size_t step = 0; step < sizeof said / sizeof *said; step++) {
        uint32_t mask[CVN_MASK_WORDS(N)];
        must(cvn_constrained_mask(text, mask, &err), &err);
        for (cvn_token i = 0; i < N; i++) {
            cvn_constrained *next = cvn_constrained_clone(text);
            bool may = cvn_constrained_advance(next, i, NULL) == CVN_OK;
            cvn_constrained_free(next);
            if (may != (mask[i / 32] >> (i % 32) & 1))
                fail_msg("step %zu, token '%s': the mask says %d", step, piece[i], !may);
        }
        must(cvn_constrained_advance(text, said[step], &err), &err);
    }
    cvn_constrained_free(text);
    cvn_constraint_free(constraint);
    cvn_vocabulary_free(vocabulary);
}

/* Every byte is a token, and some texts are, with quotes, commas and halves of characters in them. */
static void masks_of_all_kinds_allow_what_bytes_allow(void **unused)
{
    static const char *const more[] = {
        "ab\"",   "a\",",        "\"x\"",       "\xc3\xa9",  "\xc3\xa9\"", "12",       "1,",
        "0.5",    "99]",         "\\u00",       "\\u0061",   "\":",        "\",\"",    "\"},",
        "abcd",   "abcdefgh",    "abc\"]",      "e-1",       "e1}",        "\":\"a\"", "[1,",
        "\xa9\"", "\":1,\"a\":", "\":1,\"b\":", "\":1,\"\":"};
    static const struct {
        const char *schema, *text;
    } cases[] = {
        {"{\"type\":\"string\",\"minLength\":3,\"maxLength\":6}", "\"abcde\""},
        {"{\"type\":\"string\",\"maxLength\":2}", "\"a\xc3\xa9\""},
        {"{\"items\":{\"type\":\"integer\",\"minimum\":10,\"maximum\":99},\"type\":\"array\"}",
         "[12,1.3e1]"},
        {"{\"items\":{\"type\":\"integer\",\"minimum\":1},\"type\":\"array\"}", "[1200,13.00,5e1]"},
        {"{\"items\":{\"type\":\"number\"},\"uniqueItems\":true}", "[1,12,99]"},
        {"{\"items\":{\"type\":\"string\"},\"uniqueItems\":true}", "[\"ab\",\"a\"]"},
        {"{\"properties\":{\"ab\":{\"type\":\"string\"}},\"type\":\"object\"}",
         "{\"ab\":\"x\",\"abcd\":[1,2]}"},
        {"{\"patternProperties\":{\"b$\":{\"type\":\"null\"}},\"type\":\"object\"}",
         "{\"ab\":null,\"a\":1}"},
        {"{\"minProperties\":2}", "{\"a\":1,\"b\":\"ab\",\"\\u0063\":2}"},
        {"{\"pattern\":\"bc\"}", "\"abcd\""},
        {"{\"not\":{\"pattern\":\"cd\"}}", "\"ab\\u0063e\""},
        {"{\"pattern\":\"b$\"}", "\"x\xc3\xa9"
                                 "ab\""},
        {"{\"pattern\":\"b\",\"minLength\":3}", "\"aab\""},
        {"{\"patternProperties\":{\"bc\":{\"type\":\"null\"},\"d\":{\"minimum\":3}}}",
         "{\"abc\":null,\"d\":12e1}"},
        {"{\"items\":{\"minimum\":2.5,\"not\":{\"const\":12}},\"uniqueItems\":true}",
         "[\"a\",99,120,[1]]"},
        {"{\"items\":{\"maximum\":-12,\"multipleOf\":3}}", "[-12,-15e1,-99]"},
        {"true", "{\"a\":[\"\\u0061\xc3\xa9\",-0.5e1,true]}"},
    };
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
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        cvn_constraint *constraint = schema(cases[c].schema, NULL);
        cvn_constrained *text;
        must(cvn_constrained_new(constraint, vocabulary, &text, &err), &err);
        for (const char *at = cases[c].text; *at; at++) {
            uint32_t mask[CVN_MASK_WORDS(ALL)];
            must(cvn_constrained_mask(text, mask, &err), &err);
            for (cvn_token i = 0; i < ALL; i++) {
                cvn_constrained *next = cvn_constrained_clone(text);
                bool may = cvn_constrained_advance_bytes(next, piece[i], length[i], NULL) == CVN_OK;
                cvn_constrained_free(next);
                if (may != (mask[i / 32] >> (i % 32) & 1))
                    fail_msg("%s before %s, token '%s' (%d): the mask says %d", cases[c].schema, at,
                             piece[i], (int)i, !may);
            }
            must(cvn_constrained_advance(text, (unsigned char)*at, &err), &err);
        }
        assert_true(cvn_constrained_complete(text));
        cvn_constrained_free(text);
        cvn_constraint_free(constraint);
    }
    cvn_vocabulary_free(vocabulary);
}

static void members_come_in_order_where_that_is_asked(void **unused)
{
    static const char of[] = "{\"type\":\"object\",\"properties\":{\"b\":{},\"a\":{},\"c\":{}},"
                             "\"required\":[\"a\"],\"additionalProperties\":false}";
    cvn_constraint *constraint =
        schema(of, &(cvn_constrain_options){.compact = true, .in_order = true});
    (void)unused;
    assert_int_equal(verdict(constraint, "{\"b\":1,\"a\":1,\"c\":1}"), 'y');
    assert_int_equal(verdict(constraint, "{\"a\":1,\"c\":1}"), 'y');
    assert_int_equal(verdict(constraint, "{\"a\":1,\"b"), 'n');
    assert_int_equal(verdict(constraint, "{\"c"), 'n');
    assert_int_equal(verdict(constraint, "{\"a\": "), 'n');
    cvn_constraint_free(constraint);
}

static void integers_are_digits_where_that_is_asked(void **unused)
{
    static const struct {
        const char *of, *text;
        char want;
    } cases[] = {
        {"{\"type\":\"integer\"}", "-12", 'y'},
        {"{\"type\":\"integer\"}", "12.", 'n'},
        {"{\"type\":\"integer\"}", "1e", 'n'},
        {"{\"type\":\"integer\"}", "0.", 'n'},
        {"{\"type\":\"number\"}", "12.5e", 'n'},
        {"{\"type\":\"number\"}", "12.5", 'y'},
        {"{\"type\":\"number\"}", "12.50", 'p'},
        {"{\"type\":\"number\"}", "12.501", 'y'},
        {"{\"type\":\"number\"}", "-0", 'p'},
        {"{\"type\":\"number\"}", "-0.5", 'y'},
        {"{\"type\":\"number\"}", "0.000001", 'y'},
        {"{\"type\":\"number\"}", "0.000000", 'n'},
        {"{\"type\":\"number\"}", "1e-7", 'y'},
        {"{\"type\":\"number\"}", "1e-6", 'p'},
        {"{\"type\":\"number\"}", "1E", 'n'},
        {"{\"type\":\"number\"}", "1.5e+300", 'y'},
        {"{\"type\":\"number\"}", "1.5e+9", 'p'},
        {"{\"type\":\"number\"}", "1e2", 'n'},
        {"{\"type\":\"number\"}", "100000000000000000000", 'y'},
        {"{\"type\":\"number\"}", "1000000000000000000000", 'n'},
        {"{\"type\":\"number\"}", "1234567890123450", 'y'},
        {"{\"type\":\"number\"}", "1234567890123456", 'n'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "0.0", 'p'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "0", 'p'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "1", 'y'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "2", 'p'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "2e-", 'p'},
        {"{\"type\":\"number\",\"exclusiveMinimum\":0,\"maximum\":1}", "12", 'n'},
        {"{\"type\":\"number\",\"minimum\":10,\"maximum\":15}", "2", 'n'},
        {"{\"type\":\"number\",\"minimum\":10,\"maximum\":15}", "1.", 'n'},
        {"{\"type\":\"number\",\"minimum\":10,\"maximum\":15}", "15.0", 'n'},
        {"{\"type\":\"number\",\"minimum\":1e25}", "1e+25", 'y'},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", "1.7", 'p'},
        {"{\"type\":\"number\",\"multipleOf\":0.25,\"maximum\":9,\"minimum\":1}", "1.72", 'n'},
        {"{\"type\":\"number\",\"multipleOf\":0.25}", "1.75", 'y'},
        /* none of 15 digits */
        {"{\"type\":\"number\",\"exclusiveMinimum\":1.2345678901234567,\"exclusiveMaximum\":"
         "1.2345678901234568}",
         "1.23456789012345675", 'y'},
        {"{\"type\":\"integer\",\"minimum\":5}", "0", 'n'},
        {"{\"type\":\"integer\",\"minimum\":5}", "1", 'p'},
        {"{\"type\":\"integer\",\"minimum\":5}", "-", 'n'},
        {"{\"type\":\"integer\",\"minimum\":5,\"maximum\":13}", "2", 'n'},
        {"{\"type\":\"integer\",\"minimum\":-3,\"maximum\":-1}", "-2", 'y'},
        {"{\"type\":\"integer\",\"multipleOf\":7}", "13", 'p'},
        {"{\"type\":\"integer\",\"multipleOf\":7}", "133", 'y'},
        {"{\"type\":\"integer\",\"multipleOf\":7,\"maximum\":13}", "1", 'n'},
        {"{\"type\":\"integer\",\"multipleOf\":2.5}", "5", 'y'},
        {"{\"multipleOf\":300}", "6", 'p'},
        {"{\"multipleOf\":300}", "6.", 'n'},
        {"{\"enum\":[3,40]}", "4", 'p'},
        {"{\"enum\":[3,40]}", "3.", 'n'},
        {"{\"enum\":[3,0.5]}", "3.", 'n'},
        {"{\"anyOf\":[{\"type\":\"integer\"},{\"maximum\":0.5}]}", "3.", 'p'},
        {"{\"type\":\"integer\",\"minimum\":1e100}", "1e100", 'y'},
        {"{\"type\":\"integer\"}", "0", 'y'},
        {"{\"type\":\"integer\"}", "-0", 'n'},
        {"{\"type\":\"integer\",\"minimum\":-9,\"maximum\":0}", "-", 'p'},
        {"{\"type\":\"integer\",\"minimum\":0,\"maximum\":9}", "-", 'n'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "-1.5", 'y'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "-1.50", 'n'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "-15", 'n'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "2000", 'y'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "2e", 'n'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "0.00125", 'y'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "1e-7", 'y'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "1.2e+22", 'y'},
        {"{\"enum\":[-1.5,2e3,0.00125,1e-7,12e21]}", "1.2e2", 'n'},
        {"{\"enum\":[1.5,1.50000001]}", "1.50", 'p'},
        {"{\"enum\":[1.5,2.5],\"minimum\":2}", "1", 'n'},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cvn_constraint *constraint =
            schema(cases[i].of, &(cvn_constrain_options){.canonical = true});
        char got = verdict(constraint, cases[i].text);
        if (got != cases[i].want)
            fail_msg("%s: %s is '%c', not '%c'", cases[i].of, cases[i].text, got, cases[i].want);
        cvn_constraint_free(constraint);
    }
}

/* Whether a number is written as ECMA-262 writes the double that it is. Integers may have any number of digits. */
static void assert_number_is_stringified(const char *of, const char *text, size_t n)
{
    Arena arena;
    char number[64], shortest[64], written[DECIMAL_TEXT];
    int digits = 0;
    must(arena_init(&arena, NULL), &(cvn_err){0});
    snprintf(number, sizeof number, "%.*s", (int)n, text);
    const double is = strtod(number, NULL);
    do
        snprintf(shortest, sizeof shortest, "%.*e", digits, is);
    while (strtod(shortest, NULL) != is && ++digits < 17);
    Decimal decimal = decimal_read(&arena, shortest, strlen(shortest));
    size_t length = decimal_write(&decimal, written);
    bool long_integer = n > 15 && strspn(number, "-0123456789") == n;
    if (!long_integer && (length != n || memcmp(written, text, n) != 0))
        fail_msg("%s: %s is written %.*s", of, number, (int)length, written);
    arena_free(&arena);
}

/* Whether a text is as JSON.stringify would write its value, each name once and nothing between the parts. */
static void assert_stringified(const char *of, const char *text, size_t n)
{
    static const char in_numbers[] = "+-.0123456789eE";
    Arena arena;
    StrBuf back = {0};
    cvn_err err = {0};
    must(arena_init(&arena, &err), &err);
    const JsonValue *value = json_tree(&arena, text, n, &err);
    assert_non_null(value);
    json_write(value, &back);
    if (back.length != n || memcmp(back.text, text, n) != 0)
        fail_msg("%s: %.*s is not %s", of, (int)n, text, back.text);
    for (size_t at = 0, end; at < n; at = end) {
        end = at + 1;
        while (text[at] == '"' && text[end] != '"')
            end += text[end] == '\\' ? 2 : 1;
        end += text[at] == '"';
        if (text[at] != '-' && (text[at] < '0' || text[at] > '9'))
            continue;
        while (end < n && strchr(in_numbers, text[end]))
            end++;
        assert_number_is_stringified(of, text + at, end - at);
    }
    strbuf_free(&back);
    arena_free(&arena);
}

static void canonical_strings_spell_each_character_in_one_way(void **unused)
{
    static const cvn_constrain_options canonical = {.canonical = true};
    static const struct {
        const char *text;
        char want;
    } cases[] = {
        {"\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0000\\u000b\\u001f\x7f\"", 'y'},
        {"\"\xc3\xa9\xe2\x80\xa8\xf0\x9f\x98\x80\"", 'y'},
        {"\"\\u00e9", 'n'},
        {"\"\\u0061", 'n'},
        {"\"\\/", 'n'},
        {"\"\\u001F", 'n'},
        {"\"\\u000a", 'n'},
        {"\"\\u002", 'n'},
        {"\"\\ud83d", 'n'},
        {"{\"\\u0061", 'n'},
        {"\"\n", 'n'},
        /* blanks between parts, but none behind the whole */
        {"{ \"a\" : [1 , 2] }", 'y'},
        {"{\"a\":1} ", 'n'},
        {"[1]\n", 'n'},
        {"1 ", 'n'},
        /* each name once */
        {"{\"x\":1,\"xy\":{\"x\":2},\"y\":3}", 'y'},
        {"{\"x\":1,\"x\"", 'n'},
        {"{\"x\":1,\"y\":2,\"x\"", 'n'},
        {"[{\"x\":1},{\"x\":1}]", 'y'},
    };
    (void)unused;
    cvn_constraint *any = schema("{\"enum\":[\"a\\u0001/\\n\"]}", &canonical);
    assert_int_equal(verdict(any, "\"a\\u0001/\\n\""), 'y');
    assert_int_equal(verdict(any, "\"a\\u0001\\"), 'n');
    assert_int_equal(verdict(any, "\"a\\n"), 'n');
    assert_int_equal(verdict(any, "\"a\\u001"), 'n');
    cvn_constraint_free(any);
    any = schema("true", &canonical);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (verdict(any, cases[i].text) != cases[i].want)
            fail_msg("%s is not '%c'", cases[i].text, cases[i].want);
    for (int c = 0; c < 0x20; c++) { /* of the two spellings of each one is canonical */
        static const char letters[] = "btn fr";
        bool has_letter = c >= 8 && c <= 13 && letters[c - 8] != ' ';
        char digits[16], letter[] = {'"', '\\', has_letter ? letters[c - 8] : 'u', 0};
        snprintf(digits, sizeof digits, "\"\\u%04x", (unsigned)c);
        assert_int_equal(verdict(any, digits), has_letter ? 'n' : 'p');
        assert_int_equal(verdict(any, letter), 'p');
    }
    cvn_constraint_free(any);
}

static const char *const spelled[] = {
    "true",
    "{\"type\":\"number\"}",
    "{\"type\":\"number\",\"minimum\":0}",
    "{\"type\":\"number\",\"minimum\":0,\"maximum\":1}",
    "{\"type\":\"number\",\"exclusiveMinimum\":-0.002,\"exclusiveMaximum\":0}",
    "{\"type\":\"number\",\"minimum\":9.5,\"maximum\":1e21}",
    "{\"type\":\"number\",\"multipleOf\":0.05,\"maximum\":70}",
    "{\"type\":\"number\",\"minimum\":0.0000001,\"maximum\":0.00001,\"not\":{\"multipleOf\":1e-6}}",
    "{\"type\":\"object\",\"properties\":{\"a\\n\":{\"type\":\"string\",\"maxLength\":3},\"a/"
    "\\u0002\":{"
    "\"enum\":[\"\\\"\\\\\",\"\xc3\xa9/"
    "\",1.5,-20]},\"ab\":{\"type\":\"integer\"}},\"required\":[\"a\\n\"]"
    ",\"additionalProperties\":false}",
    "{\"type\":\"array\",\"items\":{\"type\":\"string\"},\"uniqueItems\":true,\"maxItems\":3}",
    "{\"type\":\"object\",\"propertyNames\":{\"pattern\":\"^[a-i]{2}$\"},\"maxProperties\":5,"
    "\"additionalProperties\":{\"enum\":[0,\"a\"]}}",
    "{\"type\":\"array\",\"uniqueItems\":true,\"maxItems\":2,\"items\":{\"type\":\"object\","
    "\"maxProperties\":3,\"additionalProperties\":{\"enum\":[1]}}}",
    "{\"type\":\"string\",\"pattern\":\"[\\\\n\\u0001a]$\",\"maxLength\":4}",
    "{\"type\":\"string\",\"not\":{\"pattern\":\"[a\\u0000-\\u0007]\"}}",
    "{\"type\":\"object\",\"minProperties\":2,\"maxProperties\":3,\"additionalProperties\":{"
    "\"enum\":[0,true]}}",
    "{\"type\":\"object\",\"patternProperties\":{\"^[\\\\u0000-\\\\u001f]$\":{\"const\":\"\\t\"}},"
    "\"additionalProperties\":false,\"maxProperties\":4}",
};

/* Tokens are drawn at random from those that the masks allow, among them halves of escapes and what goes on behind quotes. */
static void what_is_drawn_under_canonical_masks_is_stringified(void **unused)
{
    static const char *const more[] = {
        "ab\"",
        "a\",",
        "\"x\"",
        "\xc3\xa9",
        "\xc3\xa9\"",
        "\\u",
        "\\u0",
        "\\u00",
        "\\u000",
        "\\u001",
        "0b",
        "1f\"",
        "\\n\"",
        "\\\"\"",
        "n\"",
        "\\/",
        "\\\\",
        "\\u0061",
        "\":\"",
        "\",\"",
        "\"},",
        "{\"a\\n",
        "/\\u",
        "\\t\\u",
        "\":\"\\t\"",
        "u0001",
        "\x9f\x98",
        "aa\":0,\"",
        "000",
        ".5",
        "e-",
        "e+30",
        "e-7",
        "12",
        "0.0",
        "\":0,\"aa\":0",
        "a\":0,\"aa\":0,\"b",
    };
    enum { MORE = sizeof more / sizeof *more, ALL = 256 + MORE, END = ALL, STEPS = 24, WALKS = 60 };
    static char bytes[256];
    const char *piece[ALL + 1];
    size_t length[ALL + 1], whole = 0;
    cvn_vocabulary *vocabulary;
    cvn_err err = {0};
    uint64_t seed = 11;
    (void)unused;
    for (size_t i = 0; i < ALL; i++) {
        if (i < 256)
            bytes[i] = (char)i;
        piece[i] = i < 256 ? &bytes[i] : more[i - 256];
        length[i] = i < 256 ? 1 : strlen(more[i - 256]);
    }
    piece[END] = "";
    length[END] = 0;
    must(cvn_vocabulary_new(piece, length, ALL + 1, &(cvn_token){END}, 1, &vocabulary, &err), &err);
    for (size_t s = 0; s < sizeof spelled / sizeof *spelled; s++) {
        cvn_constraint *constraint =
            schema(spelled[s], &(cvn_constrain_options){.canonical = true, .compact = true});
        for (int walk = 0; walk < WALKS; walk++) {
            cvn_constrained *text;
            StrBuf said = {0};
            must(cvn_constrained_new(constraint, vocabulary, &text, &err), &err);
            for (int step = 0; step < STEPS; step++) {
                uint32_t mask[CVN_MASK_WORDS(ALL + 1)];
                cvn_token may[ALL + 1];
                size_t n = 0;
                must(cvn_constrained_mask(text, mask, &err), &err);
                for (cvn_token i = 0; i < ALL; i++) {
                    cvn_constrained *next = cvn_constrained_clone(text);
                    bool is = cvn_constrained_advance_bytes(next, piece[i], length[i], NULL) == 0;
                    cvn_constrained_free(next);
                    if (is != (mask[i / 32] >> (i % 32) & 1))
                        fail_msg("%s behind %s: '%s' (%d)", spelled[s], said.text, piece[i], i);
                    for (int often = i < 256 ? 1 : 8; is && often && n < ALL; often--)
                        may[n++] = i;
                }
                if (cvn_constrained_complete(text)) {
                    assert_stringified(spelled[s], said.text, said.length);
                    whole++;
                }
                if (!n)
                    break;
                seed = seed * 6364136223846793005u + 1442695040888963407u;
                cvn_token token = may[(seed >> 33) % n];
                must(cvn_constrained_advance(text, token, &err), &err);
                strbuf_add(&said, piece[token], length[token]);
            }
            strbuf_free(&said);
            cvn_constrained_free(text);
        }
        cvn_constraint_free(constraint);
    }
    assert_true(whole > 200);
    cvn_vocabulary_free(vocabulary);
}

static void tokens_want_a_vocabulary(void **unused)
{
    cvn_constraint *constraint = schema("{}", NULL);
    cvn_constrained *text;
    cvn_err err = {0};
    uint32_t mask[1];
    (void)unused;
    must(cvn_constrained_new(constraint, NULL, &text, &err), &err);
    assert_int_equal(cvn_constrained_mask(text, mask, &err), CVN_EINVAL);
    assert_int_equal(cvn_constrained_advance(text, '{', &err), CVN_EINVAL);
    assert_non_null(strstr(err.message, "vocabulary"));
    cvn_constrained_free(text);
    cvn_constraint_free(constraint);
}

static void choices_are_whole_texts(void **unused)
{
    static const char *const choice[] = {"yes", "yesterday", "no"};
    static const size_t length[] = {3, 9, 2};
    cvn_constraint *constraint;
    cvn_err err = {0};
    (void)unused;
    must(cvn_constraint_choices(choice, length, 3, &constraint, &err), &err);
    assert_int_equal(verdict(constraint, "yes"), 'y');
    assert_int_equal(verdict(constraint, "yest"), 'p');
    assert_int_equal(verdict(constraint, "not"), 'n');
    cvn_constraint_free(constraint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prefixes_without_an_end_are_not_let_in),
        cmocka_unit_test(what_is_not_supported_is_refused_with_its_path),
        cmocka_unit_test(keywords_mean_what_the_dialect_says),
        cmocka_unit_test(what_multiplies_is_bounded),
        cmocka_unit_test(regular_expressions_are_those_of_ecma_262),
        cmocka_unit_test(no_walk_under_masks_ends_before_the_text_does),
        cmocka_unit_test(masks_allow_what_bytes_allow),
        cmocka_unit_test(masks_of_all_kinds_allow_what_bytes_allow),
        cmocka_unit_test(members_come_in_order_where_that_is_asked),
        cmocka_unit_test(integers_are_digits_where_that_is_asked),
        cmocka_unit_test(canonical_strings_spell_each_character_in_one_way),
        cmocka_unit_test(what_is_drawn_under_canonical_masks_is_stringified),
        cmocka_unit_test(tokens_want_a_vocabulary),
        cmocka_unit_test(choices_are_whole_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
