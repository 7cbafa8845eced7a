/*
 * The split pattern of Llama 3, which is matched by hand, against PCRE2 matching the same pattern. The
 * pattern given to PCRE2 is in parentheses, so that it is not recognised. Characters are those on which
 * Unicode 14 (PCRE2) and 16 (the table) agree.
 */
#include "test_text.h"
#include "text/split.h"
#include "text/unicode.h"
#include "text/utf8.h"

static uint64_t next_random(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void compare(const Split *hand, const Split *pcre, const char *text, size_t n)
{
    SplitWork *work = NULL, *none = NULL;
    assert_int_equal(split_work_new(pcre, &work, NULL), CVN_OK);
    assert_int_equal(split_work_new(hand, &none, NULL), CVN_OK);
    assert_null(none);
    for (size_t begin = 0, a, b; begin < n; begin = a) {
        assert_int_equal(split_next(hand, NULL, text, n, &begin, &a, NULL), CVN_OK);
        assert_int_equal(split_next(pcre, work, text, n, &begin, &b, NULL), CVN_OK);
        if (a != b)
            fail_msg("at byte %zu of '%.*s': %zu by hand, %zu by PCRE2", begin, (int)n, text, a, b);
        assert_true(a > begin && a <= n);
    }
    split_work_free(work);
}

static void by_hand_is_what_pcre2_matches(void **state)
{
    static const char *const parts[] = {"a",
                                        "Z",
                                        "the",
                                        "'",
                                        "'s",
                                        "'T",
                                        "'re",
                                        "'VE",
                                        "'ll",
                                        "'lL",
                                        "'\xc5\xbf",
                                        "'x",
                                        "0",
                                        "12",
                                        "3456",
                                        " ",
                                        "  ",
                                        "   ",
                                        "\n",
                                        "\r",
                                        "\r\n",
                                        "\t",
                                        "\x0b",
                                        "\x1c",
                                        "\x1f",
                                        "\xc2\x85",
                                        ".",
                                        "!?",
                                        "-",
                                        "=",
                                        "_",
                                        "\xc3\xa9",
                                        "\xc2\xa0",
                                        "\xe3\x80\x80",
                                        "\xe2\x80\xa8",
                                        "\xe4\xb8\x96",
                                        "\xd9\xa3",
                                        "\xc2\xbd",
                                        "\xe2\x85\xa7",
                                        "\xf0\x9f\x98\x80",
                                        "\xcc\x81",
                                        "\xe2\x80\x8d",
                                        "\xf0\x9d\x9f\x98",
                                        "\x7f",
                                        "\xe1\xa0\x8e",
                                        "\xef\xbb\xbf",
                                        "\xe2\x80\x8b"};
    static const char *const patterns[] = {SPLIT_LLAMA3, SPLIT_QWEN2};
    for (size_t k = 0; k < sizeof patterns / sizeof *patterns; k++) {
        Split *hand, *pcre;
        char pattern[300];
        snprintf(pattern, sizeof pattern, "(?:%s)", patterns[k]);
        assert_int_equal(
            split_pattern_new(patterns[k], strlen(patterns[k]), SPLIT_ISOLATED, &hand, NULL),
            CVN_OK);
        assert_int_equal(split_pattern_new(pattern, strlen(pattern), SPLIT_ISOLATED, &pcre, NULL),
                         CVN_OK);
        uint64_t seed = 3;
        for (int i = 0; i < 20000; i++) {
            StrBuf text = {0};
            strbuf_puts(&text, "");
            for (size_t n = next_random(&seed) % 12; n > 0; n--)
                strbuf_puts(&text, parts[next_random(&seed) % (sizeof parts / sizeof *parts)]);
            compare(hand, pcre, text.text, text.length);
            strbuf_free(&text);
        }
        split_free(hand);
        split_free(pcre);
    }
}

/* Words of each behaviour, by a pattern and by a text. */
static void behaviors_say_what_becomes_of_matches(void **state)
{
    static const struct {
        SplitBehavior behavior;
        const char *text, *words; /* words, with a bar behind each */
    } cases[] = {
        {SPLIT_ISOLATED, "a--b-", "a|-|-|b|-|"},
        {SPLIT_CONTIGUOUS, "a--b-", "a|--|b|-|"},
        {SPLIT_WITH_PREVIOUS, "a--b-", "a-|-|b-|"},
        {SPLIT_WITH_NEXT, "a--b-", "a|-|-b|-|"},
        {SPLIT_REMOVED, "a--b-", "a|b|"},
        {SPLIT_KEPT, "a--b-", "-|-|-|"},
        {SPLIT_ISOLATED, "--", "-|-|"},
        {SPLIT_CONTIGUOUS, "--", "--|"},
        {SPLIT_WITH_PREVIOUS, "-ab-c", "-|ab-|c|"},
        {SPLIT_WITH_NEXT, "-ab-c", "-ab|-c|"},
        {SPLIT_REMOVED, "--", ""},
        {SPLIT_KEPT, "ab", ""},
        {SPLIT_REMOVED, "-ab-c", "ab|c|"},
        {SPLIT_CONTIGUOUS, "---a", "---|a|"},
        {SPLIT_REMOVED, "-\xff-\xfe", "\xff|\xfe|"},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof *cases; i++) {
        Split *split;
        SplitWork *work;
        StrBuf words = {0};
        const char *text = cases[i / 2].text;
        size_t n = strlen(text);
        strbuf_puts(&words, "");
        int (*make)(const char *, size_t, SplitBehavior, Split **, cvn_err *) =
            i % 2 ? split_text_new : split_pattern_new;
        assert_int_equal(make("-", 1, cases[i / 2].behavior, &split, NULL), CVN_OK);
        assert_int_equal(split_work_new(split, &work, NULL), CVN_OK);
        for (size_t begin = 0, end; begin < n; begin = end) {
            assert_int_equal(split_next(split, work, text, n, &begin, &end, NULL), CVN_OK);
            strbuf_add(&words, text + begin, end - begin);
            strbuf_puts(&words, begin < n ? "|" : "");
        }
        assert_string_equal(words.text, cases[i / 2].words);
        strbuf_free(&words);
        split_work_free(work);
        split_free(split);
    }
}

/* What is not UTF-8 is text, neither letter, number nor space. */
static void bytes_that_are_not_utf8_are_kept(void **state)
{
    static const char text[] = "ab\xff\xfe"
                               "c \xe4\xb8 12\x80\n";
    /* "\xff\xfe" as punctuation, " \xe4\xb8" too, "\x80\n" with its line end. */
    static const size_t ends[] = {2, 4, 5, 8, 9, 11, 13};
    Split *hand, *pcre;
    size_t n = sizeof text - 1, end, k = 0, words = 0;
    assert_int_equal(
        split_pattern_new(SPLIT_LLAMA3, strlen(SPLIT_LLAMA3), SPLIT_ISOLATED, &hand, NULL), CVN_OK);
    for (size_t begin = 0; begin < n; begin = end) {
        assert_int_equal(split_next(hand, NULL, text, n, &begin, &end, NULL), CVN_OK);
        assert_true(k < sizeof ends / sizeof *ends && end == ends[k++]);
    }
    SplitWork *work;
    assert_int_equal(split_pattern_new("[a-z]+", 6, SPLIT_ISOLATED, &pcre, NULL), CVN_OK);
    assert_int_equal(split_work_new(pcre, &work, NULL), CVN_OK);
    for (size_t begin = 0; begin < n; begin = end, words++)
        assert_int_equal(split_next(pcre, work, text, n, &begin, &end, NULL), CVN_OK);
    assert_int_equal(words, 8);
    split_work_free(work);
    split_free(hand);
    split_free(pcre);
}

static void the_table_of_classes_is_sorted_and_known(void **state)
{
    static const struct {
        uint32_t point;
        UnicodeClass class;
    } known[] = {{'a', UNICODE_LETTER},     {'Z', UNICODE_LETTER},    {'0', UNICODE_NUMBER},
                 {' ', UNICODE_SPACE},      {0x85, UNICODE_SPACE},    {0x1c, UNICODE_OTHER},
                 {0xaa, UNICODE_LETTER},    {0xb2, UNICODE_NUMBER},   {0x4e16, UNICODE_LETTER},
                 {0x3007, UNICODE_NUMBER},  {0x3000, UNICODE_SPACE},  {0x180e, UNICODE_OTHER},
                 {0x300, UNICODE_OTHER},    {0x1f600, UNICODE_OTHER}, {0x10ffff, UNICODE_OTHER},
                 {0x323af, UNICODE_LETTER}, {0xd800, UNICODE_OTHER}};
    size_t n[4] = {0};
    for (uint32_t point = 0; point < 0x110000; point++)
        n[unicode_class(point)]++;
    assert_int_equal(n[UNICODE_LETTER], 141028);
    assert_int_equal(n[UNICODE_NUMBER], 1911);
    assert_int_equal(n[UNICODE_SPACE], 25);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        assert_int_equal(unicode_class(known[i].point), known[i].class);
}

/* \\s and \\S mean Unicode's white space wherever they stand in a pattern. */
static void white_space_is_unicode_white_space(void **state)
{
    static const struct {
        const char *pattern, *text;
        size_t ends[4];
    } cases[] = {
        {"\\s+", " \xe1\xa0\x8e \xc2\xa0", {1, 4, 7}},
        {"\\S+", " \xe1\xa0\x8ez ", {1, 5, 6}},
        {"[\\sz]+", "z \xe1\xa0\x8ez", {2, 5, 6}},
        {"[^\\s]+", "z\xe1\xa0\x8e z", {4, 5, 6}},
        {"[^\\S]+", "z \xe1\xa0\x8e", {1, 2, 5}},
        {"[]\\s]+", "z] z", {1, 3, 4}},
        {"[[:digit:]\\s]+", "z1 z", {1, 3, 4}},
        {"\\Q\\s\\E", "z\\sz", {1, 3, 4}},
        {"\\[\\s", "z[ z", {1, 3, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Split *split;
        SplitWork *work;
        size_t n = strlen(cases[i].text), end = 0, k = 0;
        assert_int_equal(split_pattern_new(cases[i].pattern, strlen(cases[i].pattern),
                                           SPLIT_ISOLATED, &split, NULL),
                         CVN_OK);
        assert_int_equal(split_work_new(split, &work, NULL), CVN_OK);
        for (size_t begin = 0; begin < n; begin = end) {
            assert_int_equal(split_next(split, work, cases[i].text, n, &begin, &end, NULL), CVN_OK);
            if (cases[i].ends[k++] != end)
                fail_msg("'%s': word %zu ends at %zu", cases[i].pattern, k, end);
        }
        split_work_free(work);
        split_free(split);
    }
}

/* A pattern that backtracks without end is stopped, not waited for. */
static void a_pattern_without_end_is_stopped(void **state)
{
    Split *split;
    SplitWork *work;
    cvn_err err = {0};
    char text[64];
    size_t begin = 0, end;
    memset(text, 'a', sizeof text);
    assert_int_equal(split_pattern_new("(a|a)+[bc]", 10, SPLIT_ISOLATED, &split, NULL), CVN_OK);
    assert_int_equal(split_work_new(split, &work, NULL), CVN_OK);
    assert_int_equal(split_next(split, work, text, sizeof text, &begin, &end, &err), CVN_EFORMAT);
    assert_non_null(strstr(err.message, "pattern"));
    split_work_free(work);
    split_free(split);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand_is_what_pcre2_matches),
        cmocka_unit_test(behaviors_say_what_becomes_of_matches),
        cmocka_unit_test(bytes_that_are_not_utf8_are_kept),
        cmocka_unit_test(the_table_of_classes_is_sorted_and_known),
        cmocka_unit_test(white_space_is_unicode_white_space),
        cmocka_unit_test(a_pattern_without_end_is_stopped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
