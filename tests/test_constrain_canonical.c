/* Canonical texts of JSON: each value is spelled in the one way in which JSON.stringify writes it, members in order where that is asked. */
#include "base/strbuf.h"
#include "constrain/decimal.h"
#include "constrain/json.h"
#include "constrain_support.h"

#include <stdlib.h>

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
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        check_verdict(cases[i].of, schema(cases[i].of, &(cvn_constrain_options){.canonical = true}),
                      cases[i].text, cases[i].want);
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
    enum { STEPS = 24, WALKS = 60 };
    Pieces pieces;
    cvn_err err = {0};
    uint64_t seed = 11;
    size_t whole = 0;
    (void)unused;
    pieces_init(&pieces, more, sizeof more / sizeof *more, true);
    const size_t end = pieces.n - 1;
    for (size_t s = 0; s < sizeof spelled / sizeof *spelled; s++) {
        cvn_constraint *constraint =
            schema(spelled[s], &(cvn_constrain_options){.canonical = true, .compact = true});
        for (int walk = 0; walk < WALKS; walk++) {
            cvn_constrained *text;
            StrBuf said = {0};
            must(cvn_constrained_new(constraint, pieces.vocabulary, &text, &err), &err);
            for (int step = 0; step < STEPS; step++) {
                uint32_t mask[CVN_MASK_WORDS(PIECES)];
                cvn_token may[PIECES];
                size_t n = 0;
                must(cvn_constrained_mask(text, mask, &err), &err);
                for (size_t i = 0; i < end; i++) {
                    bool is = piece_may(text, &pieces, i, mask, spelled[s], said.text);
                    for (int often = i < 256 ? 1 : 8; is && often && n < PIECES; often--)
                        may[n++] = (cvn_token)i;
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
                strbuf_add(&said, pieces.text[token], pieces.length[token]);
            }
            strbuf_free(&said);
            cvn_constrained_free(text);
        }
        cvn_constraint_free(constraint);
    }
    assert_true(whole > 200);
    cvn_vocabulary_free(pieces.vocabulary);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(members_come_in_order_where_that_is_asked),
        cmocka_unit_test(integers_are_digits_where_that_is_asked),
        cmocka_unit_test(canonical_strings_spell_each_character_in_one_way),
        cmocka_unit_test(what_is_drawn_under_canonical_masks_is_stringified),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
