/* Masks of tokens under a constraint: they allow what single bytes allow, and never lead where no text ends. */
#include "constrain_support.h"

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
    Pieces pieces;
    (void)unused;
    pieces_init(&pieces, more, sizeof more / sizeof *more, false);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        cvn_constraint *constraint = schema(cases[c].schema, NULL);
        check_masks_along(constraint, &pieces, cases[c].schema, cases[c].text);
        check_verdict(cases[c].schema, constraint, cases[c].text, 'y');
    }
    cvn_vocabulary_free(pieces.vocabulary);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_walk_under_masks_ends_before_the_text_does),
        cmocka_unit_test(masks_allow_what_bytes_allow),
        cmocka_unit_test(masks_of_all_kinds_allow_what_bytes_allow),
        cmocka_unit_test(tokens_want_a_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
