/* What may follow in a text under a constraint: exactly what some complete text goes on with, and nothing else. */
#include "base/strbuf.h"
#include "constrain_support.h"

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
        check_verdict(cases[i].schema, schema(cases[i].schema, NULL), cases[i].text, cases[i].want);
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
            check_verdict(of, schema(of, NULL), cases[i].text, cases[i].want[d]);
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
        check_verdict(cases[i].regex, constraint, cases[i].text, cases[i].want);
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
        cmocka_unit_test(choices_are_whole_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
